package usage

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// GPUTime sums GPU time in milliseconds of a whole GPU, by [inventory.State]. The states add up to
// Service exactly.
type GPUTime struct {
	Service          int64 `json:"in_service_gpu_ms"`
	Allocated        int64 `json:"allocated_gpu_ms"`
	BusyUnattributed int64 `json:"busy_unattributed_gpu_ms"`
	Idle             int64 `json:"idle_gpu_ms"`
	Failed           int64 `json:"failed_gpu_ms"`
	Maintenance      int64 `json:"maintenance_gpu_ms"`
	Unprovisioned    int64 `json:"unprovisioned_gpu_ms"`
	Unobserved       int64 `json:"unobserved_gpu_ms"`
	// WhileFailed is the part of Allocated that was held although failed.
	WhileFailed int64 `json:"allocated_while_failed_gpu_ms"`
	// Undeclared is the part of Service of undeclared GPUs.
	Undeclared int64 `json:"undeclared_gpu_ms"`
	// Measured is the part of Allocated with measured activity, and Active is Measured times the
	// activity in per mille.
	Measured int64 `json:"activity_measured_gpu_ms"`
	Active   int64 `json:"activity_permille_gpu_ms"` // measured time times per mille
	// Activity is the mean activity of measured allocated time, and Coverage the measured share of
	// allocated time, both in per mille, rounded down; null if there is nothing to divide by.
	Activity *int64 `json:"activity_permille"`
	Coverage *int64 `json:"activity_coverage_permille"` // null without allocated time
}

func (t *GPUTime) add(s *DeviceSegment, declared bool) {
	t.Service += s.GPUMs
	if !declared {
		t.Undeclared += s.GPUMs
	}
	switch s.State {
	case inventory.Allocated:
		t.Allocated += s.GPUMs
		t.Measured += s.Known
		t.Active += s.Active
		if s.WhileFailed {
			t.WhileFailed += s.GPUMs
		}
	case inventory.BusyUnattributed:
		t.BusyUnattributed += s.GPUMs
	case inventory.Idle:
		t.Idle += s.GPUMs
	case inventory.Failed:
		t.Failed += s.GPUMs
	case inventory.Maintenance:
		t.Maintenance += s.GPUMs
	case inventory.Unprovisioned:
		t.Unprovisioned += s.GPUMs
	case inventory.Unobserved:
		t.Unobserved += s.GPUMs
	}
}

func (t *GPUTime) finish() {
	if t.Measured > 0 {
		t.Activity = new(int64)
		*t.Activity = t.Active / t.Measured
	}
	if t.Allocated > 0 {
		t.Coverage = new(int64)
		*t.Coverage = Permille(t.Measured, t.Allocated)
	}
}

// Permille returns 1000 × a ÷ b rounded down, for a up to b, without overflow.
func Permille(a, b int64) int64 {
	return a/b*1000 + a%b*1000/b
}

// Group is the time of one group. Key has a value for each requested dimension; hours and days are
// their start.
type Group struct {
	Key map[Dimension]string `json:"key"` // a value for each dimension
	GPUTime
}

// Report is the GPU time by state in [From, To).
type Report struct {
	Position string                `json:"position"`
	From     domain.Instant        `json:"from"`
	To       domain.Instant        `json:"to"`
	By       []Dimension           `json:"by"`
	Where    []dimension.Condition `json:"where,omitempty"` // restricts the report
	Groups   []Group               `json:"groups"`          // by their keys, in the order of By
	Total    GPUTime               `json:"total"`
	registry.Completeness
}

// Filter selects what a usage report counts; empty fields match all. Workspace selects the time
// that the workspace held, and time without a holder in its clusters. Where selects by any
// dimension; there, a workspace is the holder.
type Filter struct {
	Workspace, Cluster, Region string
	Where                      []dimension.Condition
}

func (f *Filter) accepts(d *DeviceHour, s *DeviceSegment) bool {
	if f.Workspace == "" {
		return true
	}
	if s.Holder != nil {
		return s.Holder.Workspace == f.Workspace
	}
	return d.Owner == f.Workspace
}

// asks reports whether a report depends on a dimension.
func asks(d Dimension, by []Dimension, where []dimension.Condition) bool {
	on := func(c dimension.Condition) bool { return c.Dimension == d }
	return slices.Contains(by, d) || slices.ContainsFunc(where, on)
}

// NewReport sums the time of [EachDeviceHour] by the given dimensions. Its memory grows with the
// number of groups.
func NewReport(view projections.View, from, to domain.Instant, filter Filter, by ...Dimension) (*Report, error) {
	dims, err := dimensions.By(by)
	if err != nil {
		return nil, fmt.Errorf("usage by %v: %w", by, err)
	}
	picker, err := dimensions.Picker(filter.Where)
	if err != nil {
		return nil, fmt.Errorf("usage where %v: %w", filter.Where, err)
	}
	topics := []domain.Topic{domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware}
	at := cell{}
	if asks(ByWorkloadClass, by, filter.Where) {
		topics = append(topics, domain.TopicDeployments)
		if at.workloads, err = ReadWorkloads(view); err != nil {
			return nil, err
		}
	}
	report := &Report{
		Position: view.Position().String(), From: from, To: to, By: append([]Dimension{}, by...), Where: filter.Where,
		Groups: []Group{},
	}
	lacks, err := registry.CompletenessOf(view, filter.Workspace, filter.Cluster, domain.Interval{From: from, To: to}, topics...)
	if err != nil {
		return nil, err
	}
	report.Completeness = lacks
	groups := map[usageKey]*GPUTime{}
	var k, last usageKey
	var sum *GPUTime
	err = EachDeviceHour(view, from, to, func(d *DeviceHour) error {
		if filter.Cluster != "" && d.Cluster != filter.Cluster || filter.Region != "" && d.Region != filter.Region {
			return nil
		}
		at.hour = d
		for i := range d.Segments {
			s := &d.Segments[i]
			at.segment = s
			if !filter.accepts(d, s) || !picker.Picks(&at) {
				continue
			}
			k = usageKey{}
			for _, d := range dims {
				d.Read(&at, &k)
			}
			if sum == nil || k != last {
				if sum = groups[k]; sum == nil {
					sum = &GPUTime{}
					own := k
					own.workspace, own.deployment = strings.Clone(k.workspace), strings.Clone(k.deployment)
					groups[own] = sum
				}
				last = k
			}
			sum.add(s, d.Declared)
			report.Total.add(s, d.Declared)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	keys := make([]usageKey, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	for _, of := range dimension.Groups(dims, keys, func(_, _ *usageKey) int { return 0 }) {
		g := Group{Key: dimension.Named(dims, of), GPUTime: *groups[*of.Key]}
		g.finish()
		report.Groups = append(report.Groups, g)
	}
	report.Total.finish()
	return report, nil
}
