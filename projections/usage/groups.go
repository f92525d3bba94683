package usage

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Dimension is what usage is grouped by.
type Dimension string

// The dimensions. Workspace and deployment are those of the holder, and empty
// for time that nobody held; model is the GPU's.
const (
	ByWorkspace  Dimension = "workspace"
	ByCluster    Dimension = "cluster"
	ByNode       Dimension = "node"
	ByGPU        Dimension = "gpu"
	ByModel      Dimension = "model"
	ByDeployment Dimension = "deployment"
	ByRegion     Dimension = "region"
	ByHour       Dimension = "hour"
	ByDay        Dimension = "day"
)

// Dimensions returns every dimension.
func Dimensions() []Dimension {
	return []Dimension{ByWorkspace, ByCluster, ByNode, ByGPU, ByModel, ByDeployment, ByRegion, ByHour, ByDay}
}

// GPUTime adds up GPU time in milliseconds of a whole GPU, by [inventory.State]. The
// states add up to Service exactly.
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
	// Undeclared is the part of Service of GPUs that nobody declared.
	Undeclared int64 `json:"undeclared_gpu_ms"`
	// Measured is the part of Allocated for which activity was measured, and
	// Active that times the activity in per mille.
	Measured int64 `json:"activity_measured_gpu_ms"`
	Active   int64 `json:"activity_permille_gpu_ms"`
	// Activity is the mean activity of allocated time where it was measured, and
	// Coverage how much of allocated time that is, both per mille and rounded
	// down; nil where there is nothing to divide by.
	Activity *int64 `json:"activity_permille"`
	Coverage *int64 `json:"activity_coverage_permille"`
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

// Group is the time of one group. Key has a value for each dimension that
// was asked for; hours and days are their start.
type Group struct {
	Key map[Dimension]string `json:"key"`
	GPUTime
}

// Report says what GPUs were in which state in [From, To).
type Report struct {
	Position string         `json:"position"`
	From     domain.Instant `json:"from"`
	To       domain.Instant `json:"to"`
	By       []Dimension    `json:"by"`
	Groups   []Group        `json:"groups"` // by their keys, in the order of By
	Total    GPUTime        `json:"total"`
	registry.Completeness
}

// Filter picks what a usage report counts; empty fields match all.
// Workspace picks the time that it held and what nobody held in its clusters.
type Filter struct {
	Workspace, Cluster, Region string
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

// usageKey is a group's key with no more in it than was asked for.
type usageKey struct {
	workspace, cluster, node, model, deployment, region string
	gpu                                                 domain.GPUID
	hour                                                domain.Instant
}

func (k usageKey) value(d Dimension) string {
	switch d {
	case ByWorkspace:
		return k.workspace
	case ByCluster:
		return k.cluster
	case ByNode:
		return k.node
	case ByGPU:
		return k.gpu.String()
	case ByModel:
		return k.model
	case ByDeployment:
		return k.deployment
	case ByRegion:
		return k.region
	case ByDay:
		return k.hour.Time().Format(time.DateOnly)
	default:
		return k.hour.String()
	}
}

// NewReport adds up the time of [EachDeviceHour] by the given dimensions. Its
// memory follows the number of groups.
func NewReport(view projections.View, from, to domain.Instant, filter Filter, by ...Dimension) (*Report, error) {
	var want struct{ workspace, cluster, node, gpu, model, deployment, region, hour, day bool }
	for i, d := range by {
		flag := map[Dimension]*bool{
			ByWorkspace: &want.workspace, ByCluster: &want.cluster, ByNode: &want.node, ByGPU: &want.gpu, ByModel: &want.model,
			ByDeployment: &want.deployment, ByRegion: &want.region, ByHour: &want.hour, ByDay: &want.day,
		}[d]
		if flag == nil {
			return nil, fmt.Errorf("usage by %q: want some of %v", d, Dimensions())
		}
		if slices.Contains(by[:i], d) {
			return nil, fmt.Errorf("usage by %q twice", d)
		}
		*flag = true
	}
	report := &Report{Position: view.Position().String(), From: from, To: to, By: append([]Dimension{}, by...), Groups: []Group{}}
	lacks, err := registry.CompletenessOf(view, filter.Workspace, filter.Cluster, domain.Interval{From: from, To: to}, domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware)
	if err != nil {
		return nil, err
	}
	report.Completeness = lacks
	groups := map[usageKey]*GPUTime{}
	var last usageKey
	var sum *GPUTime
	err = EachDeviceHour(view, from, to, func(d *DeviceHour) error {
		if filter.Cluster != "" && d.Cluster != filter.Cluster || filter.Region != "" && d.Region != filter.Region {
			return nil
		}
		var k usageKey
		if want.cluster {
			k.cluster = d.Cluster
		}
		if want.node {
			k.node = d.Node
		}
		if want.gpu {
			k.gpu = d.GPU
		}
		if want.model {
			k.model = d.Model
		}
		if want.region {
			k.region = d.Region
		}
		if want.hour {
			k.hour = d.Hour
		} else if want.day {
			k.hour = d.Hour.DayStart()
		}
		for i := range d.Segments {
			s := &d.Segments[i]
			if !filter.accepts(d, s) {
				continue
			}
			k.workspace, k.deployment = "", ""
			if s.Holder != nil {
				if want.workspace {
					k.workspace = s.Holder.Workspace
				}
				if want.deployment {
					k.deployment = s.Holder.Deployment
				}
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
	slices.SortFunc(keys, func(a, b usageKey) int {
		for _, d := range by {
			var c int
			switch d {
			case ByGPU:
				c = bytes.Compare(a.gpu[:], b.gpu[:])
			case ByHour, ByDay:
				c = cmp.Compare(a.hour, b.hour)
			default:
				c = strings.Compare(a.value(d), b.value(d))
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	for _, k := range keys {
		g := Group{Key: make(map[Dimension]string, len(by)), GPUTime: *groups[k]}
		for _, d := range by {
			g.Key[d] = k.value(d)
		}
		g.finish()
		report.Groups = append(report.Groups, g)
	}
	report.Total.finish()
	return report, nil
}
