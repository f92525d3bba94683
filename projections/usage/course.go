package usage

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Bounds of a course.
const (
	MostPoints  = 2000
	mostHours   = 4 << 20 // of all groups, 32 bytes each
	mostBuckets = 1 << 19 // of all groups, about 400 bytes each with their part of the answer
)

// Course is GPU time by state over a period of whole hours, in buckets of equally many hours, for charts. The least and
// the most of the hours in a bucket are kept, so that no spike disappears. The buckets of a group add up to its hours in a
// [Report] by hour.
type Course struct {
	Position string                `json:"position"`
	From     domain.Instant        `json:"from"`
	To       domain.Instant        `json:"to"`
	By       []Dimension           `json:"by"`
	Where    []dimension.Condition `json:"where,omitempty"` // restricts the course
	Hours    int64                 `json:"bucket_hours"`    // of a bucket; the last may have fewer
	Starts   []domain.Instant      `json:"starts"`          // of the buckets
	Series   []CourseSeries        `json:"series"`          // by their keys, in the order of By
	Total    GPUTime               `json:"total"`
	registry.Completeness
}

// CourseSeries is the course of one group: of each figure a value for each bucket. Figures in GPU-milliseconds are those
// of a [GPUTime]. Figures in per mille are rounded down, and null if there is nothing to divide by.
type CourseSeries struct {
	Key              map[Dimension]string `json:"key"` // a value for each dimension
	Service          []int64              `json:"in_service_gpu_ms"`
	Allocated        []int64              `json:"allocated_gpu_ms"`
	BusyUnattributed []int64              `json:"busy_unattributed_gpu_ms"`
	Idle             []int64              `json:"idle_gpu_ms"`
	Failed           []int64              `json:"failed_gpu_ms"`
	Maintenance      []int64              `json:"maintenance_gpu_ms"`
	Unprovisioned    []int64              `json:"unprovisioned_gpu_ms"`
	Unobserved       []int64              `json:"unobserved_gpu_ms"`
	// AllocatedShare is the allocated part of the time in service.
	AllocatedShare []*int64 `json:"allocated_permille"`
	AllocatedLeast []*int64 `json:"allocated_permille_least"` // of the hours in service
	AllocatedMost  []*int64 `json:"allocated_permille_most"`
	// Activity is the mean activity of measured allocated time.
	Activity      []*int64 `json:"activity_permille"`
	ActivityLeast []*int64 `json:"activity_permille_least"` // of the hours with measured time
	ActivityMost  []*int64 `json:"activity_permille_most"`
}

// course is what is added up of a group.
type course struct {
	hours   []courseHour
	buckets []GPUTime
}

// courseHour is what the least and the most of an hour follow from.
type courseHour struct{ service, allocated, measured, active int64 }

func (h *courseHour) add(service, allocated, measured, active int64) {
	h.service, h.allocated = h.service+service, h.allocated+allocated
	h.measured, h.active = h.measured+measured, h.active+active
}

// ErrTooFine means that a course has too many groups, and hours or points. The caller asks for fewer.
var ErrTooFine = fmt.Errorf("more than %d groups times hours, or %d groups times points: filter, or ask for a shorter period or fewer points",
	mostHours, mostBuckets)

// NewCourse returns the course of a period of whole hours in at most some points. by MUST NOT have hours and days. It
// fails with [ErrTooFine] for too many groups.
func NewCourse(view projections.View, period domain.Interval, points int, filter Filter, by ...Dimension) (*Course, error) {
	return NewCourseFrom(view, nil, 0, period, points, filter, by...)
}

// NewCourseFrom returns the same as [NewCourse], byte for byte, from kept hours where it can: of months that end at the
// hour sealed or before, in questions of the whole estate that are not about who held the GPUs.
func NewCourseFrom(
	view projections.View, kept KeptHours, sealed int64, period domain.Interval, points int, filter Filter, by ...Dimension,
) (*Course, error) {
	if period.From.HourStart() != period.From || period.To.HourStart() != period.To {
		return nil, fmt.Errorf("the course of %s to %s: want whole hours", period.From, period.To)
	}
	if points < 1 || points > MostPoints || slices.Contains(by, ByHour) || slices.Contains(by, ByDay) {
		return nil, fmt.Errorf("a course by %v in %d points: want 1 to %d, and no times", by, points, MostPoints)
	}
	r, err := newReporter(view, period, filter, by)
	if err != nil {
		return nil, err
	}
	hours := int64(period.Length() / domain.Hour)
	out := &Course{
		Position: r.report.Position, From: period.From, To: period.To, By: r.report.By, Where: r.report.Where,
		Hours: (hours + int64(points) - 1) / int64(points), Starts: []domain.Instant{}, Series: []CourseSeries{},
		Completeness: r.report.Completeness,
	}
	for at := period.From; at < period.To; at += domain.Instant(out.Hours) * domain.Hour {
		out.Starts = append(out.Starts, at)
	}
	groups := map[usageKey]*course{}
	var of *course
	// sums returns the hour and the bucket of what is in r.at.
	sums := func() (*courseHour, *GPUTime, error) {
		if of == nil || r.key != r.last {
			if of = groups[r.key]; of == nil {
				if n := int64(len(groups) + 1); n*hours > mostHours || n*int64(len(out.Starts)) > mostBuckets {
					return nil, nil, ErrTooFine
				}
				of = &course{make([]courseHour, hours), make([]GPUTime, len(out.Starts))}
				groups[r.key.owned()] = of
			}
			r.last = r.key
		}
		hour := int64((r.at.hour.Hour - period.From) / domain.Hour)
		return &of.hours[hour], &of.buckets[hour/out.Hours], nil
	}
	rest, err := r.sealedHours(kept, sealed, period, func(t *GPUTime) error {
		h, bucket, err := sums()
		if err == nil {
			h.add(t.Service, t.Allocated, t.Measured, t.Active)
			bucket.plus(t)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, part := range rest {
		if err := eachDeviceHour(r.view, r.fleet, part.From, part.To, func(d *DeviceHour) error {
			if !r.covers(d) {
				return nil
			}
			for i := range d.Segments {
				var err error
				if r.at.hour, r.at.segment, err = r.seen.segment(d, &d.Segments[i]); err != nil {
					return err
				}
				if !r.keyed() {
					continue
				}
				h, bucket, err := sums()
				if err != nil {
					return err
				}
				s := r.at.segment
				if s.State == inventory.Allocated {
					h.add(s.GPUMs, s.GPUMs, s.Known, s.Active)
				} else {
					h.add(s.GPUMs, 0, 0, 0)
				}
				bucket.add(s, d.Declared)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	keys := make([]usageKey, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	for _, g := range dimension.Groups(r.dims, keys, func(_, _ *usageKey) int { return 0 }) {
		of := groups[*g.Key]
		for i := range of.buckets {
			out.Total.plus(&of.buckets[i])
		}
		out.Series = append(out.Series, of.series(dimension.Named(r.dims, g), out.Hours))
	}
	out.Total.finish()
	return out, nil
}

// series returns the course of a group, as it is shown.
func (c *course) series(key map[Dimension]string, hours int64) CourseSeries {
	s := CourseSeries{Key: key}
	for i := range c.buckets {
		t := &c.buckets[i]
		s.Service, s.Allocated = append(s.Service, t.Service), append(s.Allocated, t.Allocated)
		s.BusyUnattributed, s.Idle = append(s.BusyUnattributed, t.BusyUnattributed), append(s.Idle, t.Idle)
		s.Failed, s.Maintenance = append(s.Failed, t.Failed), append(s.Maintenance, t.Maintenance)
		s.Unprovisioned, s.Unobserved = append(s.Unprovisioned, t.Unprovisioned), append(s.Unobserved, t.Unobserved)
		var held, active span
		for j := int64(i) * hours; j < min(int64(i+1)*hours, int64(len(c.hours))); j++ {
			h := &c.hours[j]
			if h.service > 0 {
				held.add(Permille(h.allocated, h.service))
			}
			if h.measured > 0 {
				active.add(h.active / h.measured)
			}
		}
		s.AllocatedLeast, s.AllocatedMost = append(s.AllocatedLeast, held.least), append(s.AllocatedMost, held.most)
		s.ActivityLeast, s.ActivityMost = append(s.ActivityLeast, active.least), append(s.ActivityMost, active.most)
		var share *int64
		if t.Service > 0 {
			share = new(int64)
			*share = Permille(t.Allocated, t.Service)
		}
		t.finish()
		s.AllocatedShare, s.Activity = append(s.AllocatedShare, share), append(s.Activity, t.Activity)
	}
	return s
}

// span is the least and the most of some values, nil for none.
type span struct{ least, most *int64 }

func (s *span) add(v int64) {
	if s.least == nil || v < *s.least {
		s.least = &v
	}
	if s.most == nil || v > *s.most {
		s.most = &v
	}
}
