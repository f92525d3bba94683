// Package reliability estimates how often machines fail and how long repairs take, and computes the
// number of spare machines needed.
//
// A rate counts interruptions of work per GPU-hour, whatever the cause: it is not a failure rate of
// a component. Observations of a fleet update a prior (see [Prior]). Rate and time to repair give
// the probability that a node is down ([Estimate.Unavailability]). From that and a service level,
// [Buffer] computes the spares.
//
// All results are exact, or rounded in a stated direction: equal inputs give equal spares on every
// machine.
package reliability

import (
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Method is the version of this package's method.
const Method = "reliability/2"

// Prior is the belief before any observation.
//
// Interruptions are independent, with rate λ per GPU-hour: n in T hours are
// Poisson(λT). The prior of λ is a Gamma distribution of shape Strength and rate
// Strength·GPUHours, whose mean is one interruption in GPUHours. Observations update it
// to Gamma(Strength + n, Strength·GPUHours + T), the conjugate posterior, with mean
//
//	(Strength + n) / (Strength·GPUHours + T)
//
// So the prior has the weight of Strength interruptions in Strength·GPUHours. Likewise,
// times to repair are exponential, and the posterior mean is
// (RepairStrength·RepairHours + time) / (RepairStrength + repairs). A repair that has
// not ended adds its time but does not count.
type Prior struct {
	GPUHours       domain.Decimal // per interruption
	Strength       domain.Decimal // in interruptions
	RepairHours    domain.Decimal // on average
	RepairStrength domain.Decimal // in repairs
	Source         string         // citation
}

// Published is the default prior. Its rate is that of a large training job: 419 unexpected
// interruptions in 54 days on 16,384 H100 GPUs are one in about 50,700 GPU-hours (Llama Team: The
// Llama 3 Herd of Models, 2024, arXiv:2407.21783, section 3.3.4 and table 5). These are
// interruptions of the job by any cause, hardware or software, not a failure rate of a component.
// Its weight is one interruption, because fleets differ.
//
// Its time to repair, a day, is an assumption and not published. Its weight is one repair.
func Published() Prior {
	return Prior{
		GPUHours: decimal.NewFromInt(50_000), Strength: decimal.NewFromInt(1),
		RepairHours: decimal.NewFromInt(24), RepairStrength: decimal.NewFromInt(1),
		Source: "interruptions: The Llama 3 Herd of Models, arXiv:2407.21783; time to repair: assumed",
	}
}

// Evidence holds the observations. Times are in milliseconds.
type Evidence struct {
	GPUMs         int64 `json:"gpu_ms"`        // of GPUs that were up and observed
	Interruptions int64 `json:"interruptions"` // see [Counts] for what counts
	Repairs       int64 `json:"repairs"`       // repairs that ended
	RepairMs      int64 `json:"repair_ms"`     // total time of repairs, ended or not
}

// Estimate is the posterior.
type Estimate struct {
	PerGPUHour  domain.Decimal `json:"interruptions_per_gpu_hour"` // mean, to 18 decimals
	RepairHours domain.Decimal `json:"repair_hours"`               // mean, to 6 decimals
	// Counted is the shape of the posterior of the rate, rounded down to at least 1: how many
	// interruptions the rate is known from, the prior's weight included. See [Buffer].
	Counted int `json:"interruptions_counted"`
	// The weight of the prior in each of the two, 1 for all, to 6 decimals.
	RatePrior   domain.Decimal `json:"rate_prior_share"`
	RepairPrior domain.Decimal `json:"repair_prior_share"`
	Evidence    Evidence       `json:"evidence"`
	Source      string         `json:"prior_source"`
}

// Learn updates a prior with observations. It returns an error if the prior is not positive or
// evidence is negative.
func (p Prior) Learn(e Evidence) (Estimate, error) {
	for _, v := range []struct {
		name  string
		value domain.Decimal
	}{
		{"GPU-hours to an interruption", p.GPUHours}, {"strength", p.Strength},
		{"hours of a repair", p.RepairHours}, {"repair strength", p.RepairStrength},
	} {
		if !v.value.IsPositive() {
			return Estimate{}, fmt.Errorf("prior: %s %s is not positive", v.name, v.value)
		}
	}
	if min(e.GPUMs, e.Interruptions, e.Repairs, e.RepairMs) < 0 {
		return Estimate{}, fmt.Errorf("evidence %+v is negative", e)
	}
	hours := func(ms int64) domain.Decimal {
		return decimal.New(ms, 0).DivRound(decimal.NewFromInt(3_600_000), places)
	}
	counted := p.Strength.Add(decimal.NewFromInt(e.Interruptions))
	before, repairs := p.Strength.Mul(p.GPUHours), p.RepairStrength.Add(decimal.NewFromInt(e.Repairs))
	exposure := before.Add(hours(e.GPUMs))
	return Estimate{
		PerGPUHour:  counted.DivRound(exposure, places),
		Counted:     int(min(max(1, counted.IntPart()), MaxCounted)),
		RepairHours: p.RepairStrength.Mul(p.RepairHours).Add(hours(e.RepairMs)).DivRound(repairs, 6),
		RatePrior:   before.DivRound(exposure, 6),
		RepairPrior: p.RepairStrength.DivRound(repairs, 6),
		Evidence:    e, Source: p.Source,
	}, nil
}

// Unavailability returns the probability that a node with that many GPUs is down; see the function
// of that name.
func (e *Estimate) Unavailability(gpusPerNode int) domain.Decimal {
	return Unavailability(e.PerGPUHour, e.RepairHours, gpusPerNode)
}

// Unavailability returns the probability that a node is down: its rate of interruptions λ, each of
// which takes the whole node down, times the time to repair τ. As λ is per hour of uptime, the
// exact value is λτ/(1 + λτ), which is slightly less. The product is rounded up to 18 decimals. So
// no buffer is too small.
func Unavailability(perGPUHour, repairHours domain.Decimal, gpusPerNode int) domain.Decimal {
	q := perGPUHour.Mul(repairHours).Mul(decimal.NewFromInt(int64(gpusPerNode)))
	return q.RoundCeil(places)
}

// Counts says what counts as an interruption. It is configurable, because what interrupts work
// depends on the work, and sources classify faults differently.
type Counts struct {
	Fatal   bool     `json:"fatal"`             // faults after which a device cannot work until it is repaired
	Repair  bool     `json:"repair"`            // a cordon for repair, with or without a fault before it, or a declared outage
	Classes []string `json:"classes,omitempty"` // and faults of these classes
	XIDs    []uint32 `json:"xids,omitempty"`    // and XIDs of these numbers
	// Same is a time after an interruption that takes no device down. Later faults of the node
	// within it belong to the same interruption.
	Same domain.Instant `json:"same_ns,omitempty"`
}

// DefaultCounts counts only what takes a device or node down, so that every interruption has a time
// to repair.
func DefaultCounts() Counts { return Counts{Fatal: true, Repair: true, Same: domain.Hour} }

// Fault reports whether a fault counts.
func (c *Counts) Fault(e *domain.GPUFaultObserved) bool {
	return c.Fatal && e.Fatal || e.Class != "" && slices.Contains(c.Classes, e.Class) ||
		e.Kind == domain.FaultXID && slices.Contains(c.XIDs, e.Code)
}
