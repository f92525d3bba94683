package usage

import (
	"slices"

	"quartermaster/domain"
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

// plus adds the time of a day.
func (t *GPUTime) plus(o *GPUTime) {
	t.Service += o.Service
	t.Allocated += o.Allocated
	t.BusyUnattributed += o.BusyUnattributed
	t.Idle += o.Idle
	t.Failed += o.Failed
	t.Maintenance += o.Maintenance
	t.Unprovisioned += o.Unprovisioned
	t.Unobserved += o.Unobserved
	t.WhileFailed += o.WhileFailed
	t.Undeclared += o.Undeclared
	t.Measured += o.Measured
	t.Active += o.Active
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
	// Under selects what a workspace and those below it held, by their parents at the position.
	Under string
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
