package usage

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// Hours is the GPU time of a calendar month by hour, of everybody together: what a chart of a fleet shows, without who
// held what. Like a [Month] it is a pure function of what its Inputs name.
type Hours struct {
	Inputs Inputs
	Of     []HoursOf // by cluster, model and billing model
}

// HoursOf is the GPU time of GPUs of one model in one cluster, paid for in one way, by hour of the month.
type HoursOf struct {
	Cluster, Model string
	Billing        domain.BillingModel
	Hours          []GPUTime // Activity and Coverage are not set
}

// Bytes returns about how much memory the hours take.
func (h *Hours) Bytes() int {
	const hour = 112
	n := len(h.Inputs.Text)
	for i := range h.Of {
		n += 100 + hour*len(h.Of[i].Hours)
	}
	return n
}

// KeptHours keeps the hours of months.
type KeptHours interface {
	// Hours returns the hours that were kept with these inputs, nil if there are none.
	Hours(Inputs) *Hours
	// KeepHours keeps hours. It MUST NOT change them.
	KeepHours(*Hours)
}

// newHours computes the hours of a month from its rows.
func newHours(view projections.View, f *inventory.Fleet, inputs Inputs) (*Hours, error) {
	type key struct {
		cluster, model string
		billing        domain.BillingModel
	}
	sums := map[key][]GPUTime{}
	var of []GPUTime
	var last key
	err := eachDeviceHour(view, f, inputs.Month.From, inputs.Month.To, func(d *DeviceHour) error {
		if k := (key{d.Cluster, d.Model, d.Billing}); of == nil || k != last {
			if of = sums[k]; of == nil {
				of = make([]GPUTime, inputs.Month.Length()/domain.Hour)
				sums[k] = of
			}
			last = k
		}
		sum := &of[(d.Hour-inputs.Month.From)/domain.Hour]
		for i := range d.Segments {
			sum.add(&d.Segments[i], d.Declared)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	h := &Hours{Inputs: inputs}
	for k, hours := range sums {
		h.Of = append(h.Of, HoursOf{k.cluster, k.model, k.billing, hours})
	}
	slices.SortFunc(h.Of, func(a, b HoursOf) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Model, b.Model), cmp.Compare(a.Billing, b.Billing))
	})
	return h, nil
}

// ofHours reports whether [Hours] have all that a question asks for.
func (r *reporter) ofHours() bool {
	return r.seen == nil && r.filter.Workspace == "" &&
		!slices.ContainsFunc([]Dimension{ByWorkspace, ByNode, ByGPU, ByDeployment, ByWorkloadClass, ByDay, ByHour}, func(d Dimension) bool {
			return asks(d, r.report.By, r.filter.Where)
		})
}

// sealedHours calls take with what kept hours have of a period, and returns the rest. It computes and keeps those of a
// sealed month of which the period has all.
func (r *reporter) sealedHours(kept KeptHours, sealed int64, period domain.Interval, take func(*GPUTime) error) (rest []domain.Interval, err error) {
	if kept == nil || !r.ofHours() {
		return []domain.Interval{period}, nil
	}
	tallies, err := projections.TalliesOf(r.view)
	if errors.Is(err, projections.ErrNoTallies) {
		return []domain.Interval{period}, nil
	}
	if err != nil {
		return nil, err
	}
	for at := period.From; at < period.To; {
		month := projections.BillingMonth(at)
		part := month.Intersect(period)
		at = month.To
		var h *Hours
		if projections.HourOf(month.To) <= sealed {
			inputs, err := inputsOf(r.view, r.fleet, tallies, month)
			if err != nil {
				return nil, err
			}
			if h = kept.Hours(inputs); h == nil && part == month {
				if h, err = newHours(r.view, r.fleet, inputs); err != nil {
					return nil, err
				}
				kept.KeepHours(h)
			}
		}
		if h == nil {
			if n := len(rest); n > 0 && rest[n-1].To == part.From {
				rest[n-1].To = part.To
			} else {
				rest = append(rest, part)
			}
			continue
		}
		if err := r.hours(h, part, take); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// hours calls take with the hours of a part of a month that the filter accepts. The hour is in r.at, and its key is set.
func (r *reporter) hours(h *Hours, part domain.Interval, take func(*GPUTime) error) error {
	var hour DeviceHour
	r.at.hour, r.at.segment = &hour, &DeviceSegment{}
	for i := range h.Of {
		of := &h.Of[i]
		for at := part.From; at < part.To; at += domain.Hour {
			t := &of.Hours[(at-h.Inputs.Month.From)/domain.Hour]
			if *t == (GPUTime{}) {
				continue
			}
			hour = DeviceHour{Cluster: of.Cluster, Hour: at, Model: of.Model, Billing: of.Billing}
			if c, owner := r.fleet.Cluster(of.Cluster, at); c != nil {
				hour.Region, hour.Owner, hour.Provider, hour.ProviderClass = c.Region, owner, c.Provider, c.ProviderClass
			}
			if r.covers(&hour) && r.keyed() {
				if err := take(t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
