// Package reliability says how often machines fail, how long they stay away, and
// how many spare ones make up for it.
//
// A rate counts interruptions of work for an hour of a GPU, whatever broke: not
// failures of a component. What was observed of a fleet moves a prior, the more
// the more there is of it (see [Prior]). Rate and time to repair say how likely a
// node is down ([Estimate.Unavailability]); from that and a service level
// [Buffer] finds the spares.
//
// All that is computed here is exact, or rounded in a stated direction: equal
// inputs give equal spares on every machine.
package reliability

import (
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Method is the version of this package's method.
const Method = "reliability/1"

// Prior is what is believed before anything was observed.
//
// Interruptions come independently, at a rate λ for a GPU-hour: n in T hours are
// Poisson(λT). Of λ a Gamma distribution of shape Strength and rate
// Strength·GPUHours is believed, whose mean is one in GPUHours; what was observed
// makes it Gamma(Strength + n, Strength·GPUHours + T), the conjugate update, with
// the mean
//
//	(Strength + n) / (Strength·GPUHours + T)
//
// So the prior weighs as much as Strength interruptions in Strength·GPUHours. In
// the same way times to repair are exponential, and the mean of their Gamma's
// update is (RepairStrength·RepairHours + time) / (RepairStrength + repairs); a
// repair that still lasts adds its time and no count.
type Prior struct {
	GPUHours       domain.Decimal // to one interruption
	Strength       domain.Decimal // in interruptions
	RepairHours    domain.Decimal // on average
	RepairStrength domain.Decimal // in repairs
	Source         string         // where it is from
}

// Published is the prior where nothing else is known. Its rate is that of a large
// training job: 419 unexpected interruptions in 54 days on 16,384 H100 GPUs are
// one in some 50,700 GPU-hours (Llama Team: The Llama 3 Herd of Models, 2024,
// arXiv:2407.21783, section 3.3.4 and table 5). They are interruptions of the job,
// by whatever cause, hardware and software, and no failure rate of a component.
// It weighs one interruption, because fleets differ.
//
// Its time to repair, a day, is an assumption and not published; it weighs as much
// as one repair.
func Published() Prior {
	return Prior{
		GPUHours: decimal.NewFromInt(50_000), Strength: decimal.NewFromInt(1),
		RepairHours: decimal.NewFromInt(24), RepairStrength: decimal.NewFromInt(1),
		Source: "interruptions: The Llama 3 Herd of Models, arXiv:2407.21783; time to repair: assumed",
	}
}

// Evidence is what was observed. Times are in milliseconds.
type Evidence struct {
	GPUMs         int64 `json:"gpu_ms"`        // of GPUs that were up and observed
	Interruptions int64 `json:"interruptions"` // see [Counts] for what counts
	Repairs       int64 `json:"repairs"`       // that ended
	RepairMs      int64 `json:"repair_ms"`     // of those, and of those that still last
}

// Estimate is what is believed then.
type Estimate struct {
	PerGPUHour  domain.Decimal `json:"interruptions_per_gpu_hour"` // mean, to 18 decimals
	RepairHours domain.Decimal `json:"repair_hours"`               // mean, to 6 decimals
	// The parts of the two that come from the prior, 1 for all, to 6 decimals.
	RatePrior   domain.Decimal `json:"rate_prior_share"`
	RepairPrior domain.Decimal `json:"repair_prior_share"`
	Evidence    Evidence       `json:"evidence"`
	Source      string         `json:"prior_source"`
}

// Learn moves a prior by what was observed. It refuses a prior that is not
// positive and evidence that is negative.
func (p Prior) Learn(e Evidence) (Estimate, error) {
	for _, v := range []struct {
		name  string
		value domain.Decimal
	}{{"GPU-hours to an interruption", p.GPUHours}, {"strength", p.Strength}, {"hours of a repair", p.RepairHours}, {"repair strength", p.RepairStrength}} {
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
	before, repairs := p.Strength.Mul(p.GPUHours), p.RepairStrength.Add(decimal.NewFromInt(e.Repairs))
	exposure := before.Add(hours(e.GPUMs))
	return Estimate{
		PerGPUHour:  p.Strength.Add(decimal.NewFromInt(e.Interruptions)).DivRound(exposure, places),
		RepairHours: p.RepairStrength.Mul(p.RepairHours).Add(hours(e.RepairMs)).DivRound(repairs, 6),
		RatePrior:   before.DivRound(exposure, 6),
		RepairPrior: p.RepairStrength.DivRound(repairs, 6),
		Evidence:    e, Source: p.Source,
	}, nil
}

// Unavailability returns how likely a node of so many GPUs is down at a time; see
// the function of that name.
func (e *Estimate) Unavailability(gpusPerNode int) domain.Decimal {
	return Unavailability(e.PerGPUHour, e.RepairHours, gpusPerNode)
}

// Unavailability returns how likely a node is down at a time: its rate of
// interruptions λ, each of which takes the whole node away, times the time to
// repair τ. Where λ is counted by the hour up, λτ/(1 + λτ) of all time would be
// exact and is a little less. The product is rounded up to 18 decimals. So no
// buffer falls short.
func Unavailability(perGPUHour, repairHours domain.Decimal, gpusPerNode int) domain.Decimal {
	q := perGPUHour.Mul(repairHours).Mul(decimal.NewFromInt(int64(gpusPerNode)))
	return q.RoundCeil(places)
}

// Counts says what counts as an interruption. It is data, because what interrupts
// work depends on the work, and sources class faults differently.
type Counts struct {
	Fatal   bool     `json:"fatal"`             // faults after which a device cannot work until it is repaired
	Repair  bool     `json:"repair"`            // a cordon for repair, whatever was seen before, or a declared outage
	Classes []string `json:"classes,omitempty"` // and faults of these classes
	XIDs    []uint32 `json:"xids,omitempty"`    // and XIDs of these numbers
	// Same is how long after one that takes no device away what comes next on the
	// node belongs to it.
	Same domain.Instant `json:"same_ns,omitempty"`
}

// DefaultCounts takes what takes a device or node away, so that every interruption
// has a time to repair.
func DefaultCounts() Counts { return Counts{Fatal: true, Repair: true, Same: domain.Hour} }

// Fault reports whether a fault counts.
func (c *Counts) Fault(e *domain.GPUFaultObserved) bool {
	return c.Fatal && e.Fatal || e.Class != "" && slices.Contains(c.Classes, e.Class) ||
		e.Kind == domain.FaultXID && slices.Contains(c.XIDs, e.Code)
}
