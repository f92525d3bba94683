package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/dimension"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// NewReport sums the time of [EachDeviceHour] by the given dimensions. Its memory grows with the
// number of groups.
func NewReport(view projections.View, from, to domain.Instant, filter Filter, by ...Dimension) (*Report, error) {
	return NewReportFrom(view, nil, 0, from, to, filter, by...)
}

// NewReportFrom returns the same as [NewReport], byte for byte, from kept months where it can: for
// whole days of months that end at the hour sealed or before. It computes and keeps such a month if
// the period has all of it. The rest is computed from rows: days that the period cuts, open months,
// a day on which a cluster or the class of a deployment changed, and all questions about nodes, GPUs
// and hours.
func NewReportFrom(
	view projections.View, kept Kept, sealed int64, from, to domain.Instant, filter Filter, by ...Dimension,
) (*Report, error) {
	r, err := newReporter(view, domain.Interval{From: from, To: to}, filter, by)
	if err != nil {
		return nil, err
	}
	period := domain.Interval{From: from, To: to}
	rest := []domain.Interval{period}
	if kept != nil && !r.finerThanDays() {
		if rest, err = r.months(kept, sealed, period); err != nil {
			return nil, err
		}
	}
	for _, p := range rest {
		if err := r.rows(p); err != nil {
			return nil, err
		}
	}
	return r.finish(), nil
}

// reporter sums up a report.
type reporter struct {
	view   projections.View // of all rows
	seen   *within          // nil: everything is seen
	fleet  *inventory.Fleet
	filter Filter
	dims   []*dimension.Of[cell, usageKey]
	picker *dimension.Picker[cell, usageKey]
	report *Report
	groups map[usageKey]*GPUTime

	at        cell // what is added
	key, last usageKey
	sum       *GPUTime // of last
}

func newReporter(view projections.View, period domain.Interval, filter Filter, by []Dimension) (*reporter, error) {
	r := &reporter{filter: filter, groups: map[usageKey]*GPUTime{}}
	var err error
	if r.filter.Where, err = access.Under(view, filter.Under, filter.Where, ByWorkspace); err != nil {
		return nil, err
	}
	filter = r.filter
	if r.dims, err = dimensions.By(by); err != nil {
		return nil, fmt.Errorf("usage by %v: %w", by, err)
	}
	if r.picker, err = dimensions.Picker(filter.Where); err != nil {
		return nil, fmt.Errorf("usage where %v: %w", filter.Where, err)
	}
	if err := checkPeriod(period.From, period.To); err != nil {
		return nil, err
	}
	r.report = &Report{
		Position: view.Position().String(), From: period.From, To: period.To, By: append([]Dimension{}, by...), Where: filter.Where,
		Groups: []Group{},
	}
	topics := []domain.Topic{domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware}
	if asks(ByWorkloadClass, by, filter.Where) {
		if r.at.workloads, err = ReadWorkloads(view); err != nil {
			return nil, err
		}
		topics = append(topics, domain.TopicDeployments)
	}
	if r.report.Completeness, err = registry.CompletenessOf(view, filter.Workspace, filter.Cluster, period, topics...); err != nil {
		return nil, err
	}
	// How time is divided depends on all who held a GPU. What is not seen is left out of the result.
	r.view, r.seen = access.Beneath(view), newWithin(view)
	r.fleet, err = inventory.ReadFleet(r.view)
	return r, err
}

// finerThanDays reports whether the question needs more than a [Month] has.
func (r *reporter) finerThanDays() bool {
	return slices.ContainsFunc([]Dimension{ByNode, ByGPU, ByHour}, func(d Dimension) bool {
		return asks(d, r.report.By, r.filter.Where)
	})
}

// keyed sets the key of the group that what is in r.at belongs to. It reports false if the filter excludes it, or it is
// not seen.
func (r *reporter) keyed() bool {
	if r.at.segment == nil || !r.filter.accepts(r.at.hour, r.at.segment) || !r.picker.Picks(&r.at) {
		return false
	}
	r.key = usageKey{}
	for _, d := range r.dims {
		d.Read(&r.at, &r.key)
	}
	return true
}

// owned returns the key with texts that outlive what was read.
func (k usageKey) owned() usageKey {
	k.workspace, k.deployment = strings.Clone(k.workspace), strings.Clone(k.deployment)
	return k
}

// group returns the sums that what is in r.at belongs to. It reports false if the filter excludes
// it, or it is not seen.
func (r *reporter) group() (*GPUTime, bool) {
	if !r.keyed() {
		return nil, false
	}
	if r.sum == nil || r.key != r.last {
		if r.sum = r.groups[r.key]; r.sum == nil {
			r.sum = &GPUTime{}
			r.groups[r.key.owned()] = r.sum
		}
		r.last = r.key
	}
	return r.sum, true
}

// covers reports whether the filter accepts the place of a GPU.
func (r *reporter) covers(d *DeviceHour) bool {
	return (r.filter.Cluster == "" || d.Cluster == r.filter.Cluster) && (r.filter.Region == "" || d.Region == r.filter.Region)
}

// rows adds a period from usage hours.
func (r *reporter) rows(p domain.Interval) error {
	return eachDeviceHour(r.view, r.fleet, p.From, p.To, func(d *DeviceHour) error {
		if !r.covers(d) {
			return nil
		}
		for i := range d.Segments {
			var err error
			if r.at.hour, r.at.segment, err = r.seen.segment(d, &d.Segments[i]); err != nil {
				return err
			}
			if sum, ok := r.group(); ok {
				sum.add(r.at.segment, d.Declared)
				r.report.Total.add(r.at.segment, d.Declared)
			}
		}
		return nil
	})
}

// months adds what kept months have of a period, and returns the rest.
func (r *reporter) months(kept Kept, sealed int64, period domain.Interval) (rest []domain.Interval, err error) {
	tallies, err := projections.TalliesOf(r.view)
	if errors.Is(err, projections.ErrNoTallies) {
		return []domain.Interval{period}, nil
	}
	if err != nil {
		return nil, err
	}
	leave := func(p domain.Interval) {
		if n := len(rest); n > 0 && rest[n-1].To == p.From {
			rest[n-1].To = p.To
		} else if !p.Empty() {
			rest = append(rest, p)
		}
	}
	for at := period.From; at < period.To; {
		month := projections.BillingMonth(at)
		part := month.Intersect(period)
		at = month.To
		days := domain.Interval{From: part.From.DayStart(), To: part.To.DayStart()}
		if days.From < part.From {
			days.From += domain.Day
		}
		var m *Month
		if days.From < days.To && projections.HourOf(month.To) <= sealed {
			if m, err = r.month(kept, tallies, month, part == month); err != nil {
				return nil, err
			}
		}
		if m == nil {
			leave(part)
			continue
		}
		leave(domain.Interval{From: part.From, To: days.From})
		for day := days.From; day < days.To; day += domain.Day {
			if entries := m.of(day); r.steady(entries) {
				if err := r.days(entries); err != nil {
					return nil, err
				}
			} else {
				leave(domain.Interval{From: day, To: day + domain.Day})
			}
		}
		leave(domain.Interval{From: days.To, To: part.To})
	}
	return rest, nil
}

// month returns a kept month, nil for none. It computes the month if that is wanted.
func (r *reporter) month(kept Kept, tallies []projections.Tally, month domain.Interval, compute bool) (*Month, error) {
	inputs, err := inputsOf(r.view, r.fleet, tallies, month)
	if err != nil {
		return nil, err
	}
	m := kept.Month(inputs)
	if m == nil && compute {
		if m, err = newMonth(r.view, r.fleet, inputs); err != nil {
			return nil, err
		}
		kept.Keep(m)
	}
	return m, nil
}

// steady reports whether clusters and deployments have one description for the whole day.
func (r *reporter) steady(day []Day) bool {
	for i := range day {
		d := &day[i]
		first, owner := r.fleet.Cluster(d.Cluster, d.Day)
		if last, later := r.fleet.Cluster(d.Cluster, d.Day+domain.Day-domain.Hour); first != last || owner != later {
			return false
		}
		if whole := (domain.Interval{From: d.Day, To: d.Day + domain.Day}); r.at.workloads != nil && d.Held &&
			r.at.workloads.Class(d.Cluster, d.Deployment, d.Workspace, whole) == dimension.Mixed {
			return false
		}
	}
	return true
}

// days adds entries of a kept month.
func (r *reporter) days(entries []Day) error {
	var hour DeviceHour
	var segment DeviceSegment
	var holder projections.Holder
	for i := range entries {
		e := &entries[i]
		hour = DeviceHour{Cluster: e.Cluster, Hour: e.Day, Model: e.Model, Billing: e.Billing}
		if c, owner := r.fleet.Cluster(e.Cluster, e.Day); c != nil {
			hour.Region, hour.Owner, hour.Provider, hour.ProviderClass = c.Region, owner, c.Provider, c.ProviderClass
		}
		if !r.covers(&hour) {
			continue
		}
		segment.Holder = nil
		if e.Held {
			holder = projections.Holder{Workspace: e.Workspace, Deployment: e.Deployment}
			segment.Holder = &holder
		}
		var err error
		if r.at.hour, r.at.segment, err = r.seen.segment(&hour, &segment); err != nil {
			return err
		}
		if sum, ok := r.group(); ok {
			sum.plus(&e.Time)
			r.report.Total.plus(&e.Time)
		}
	}
	return nil
}

func (r *reporter) finish() *Report {
	keys := make([]usageKey, 0, len(r.groups))
	for k := range r.groups {
		keys = append(keys, k)
	}
	for _, of := range dimension.Groups(r.dims, keys, func(_, _ *usageKey) int { return 0 }) {
		g := Group{Key: dimension.Named(r.dims, of), GPUTime: *r.groups[*of.Key]}
		g.finish()
		r.report.Groups = append(r.report.Groups, g)
	}
	r.report.Total.finish()
	return r.report
}
