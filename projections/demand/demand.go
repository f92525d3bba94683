package demand

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// Filter selects series of demand; empty fields match all.
type Filter struct {
	Cluster, Pool, Model, Unit, Region, Workspace string
	// KnownBy excludes what became known later; 0: nothing. A statement is known from the time that
	// its source recorded it, else from when it was appended to the log.
	KnownBy domain.Instant
}

// Pool is an hourly series of demand in UTC, in thousandths of its unit.
type Pool struct {
	Cluster, Pool, Model, Unit string
	// Region and Workspace are those of the last observation, else those of the cluster as
	// registered at the end of the requested time.
	Region, Workspace string
	From              domain.Instant // start of the first hour
	// One entry for each hour: means over the observed part of the hour, rounded down.
	Running, Pending, Owned []uint64
	// ObservedMs is the observed part of each hour, in milliseconds: 0 for an unknown hour,
	// 3,600,000 for a complete one.
	ObservedMs []uint32
}

// Hours returns the number of hours.
func (p *Pool) Hours() int { return len(p.ObservedMs) }

// Gaps returns the runs of hours that were not completely observed.
func (p *Pool) Gaps() []domain.Interval {
	var gaps []domain.Interval
	for i, ms := range p.ObservedMs {
		if ms == projections.MsPerHour {
			continue
		}
		at := p.From + domain.Instant(i)*domain.Hour
		if n := len(gaps); n > 0 && gaps[n-1].To == at {
			gaps[n-1].To += domain.Hour
			continue
		}
		gaps = append(gaps, domain.Interval{From: at, To: at + domain.Hour})
	}
	return gaps
}

// Pools returns the demand observed between two times, both widened to whole UTC hours, by cluster,
// pool, model and unit. Series without observations in that time are left out.
//
// If observations of a series overlap, the shorter interval counts, because it is more precise; of
// equally long ones the one that starts later; and of statements about one interval the one later
// in the log.
func Pools(view projections.View, from, to domain.Instant, f Filter) ([]Pool, error) {
	if to <= from {
		return nil, fmt.Errorf("demand from %s to %s: there is no time between", from, to)
	}
	from, to = from.HourStart(), (to + domain.Hour - 1).HourStart()
	clusters, err := inventory.ReadClusters(view)
	if err != nil {
		return nil, err
	}
	out := []Pool{}
	var s *demandSeries
	finish := func() {
		if s == nil {
			return
		}
		p := s.finish()
		s = nil
		if p.Hours() == 0 {
			return
		}
		if c, owner := clusters.Cluster(p.Cluster, to-1); c != nil {
			p.Region, p.Workspace = cmp.Or(p.Region, c.Region), cmp.Or(p.Workspace, owner)
		}
		if (f.Region == "" || f.Region == p.Region) && (f.Workspace == "" || f.Workspace == p.Workspace) {
			out = append(out, *p)
		}
	}
	var last projections.Key
	// No observation is longer than a day.
	q := projections.Query{
		Table: projections.TableDemand, Scope: f.Cluster, From: projections.MonthStart(max(0, from-domain.Day)),
		To: projections.HourOf(to-1) + 1,
	}
	err = view.Scan(q, func(k projections.Key, row projections.Row) error {
		if s == nil || k.Scope != last.Scope || k.ID != last.ID {
			finish()
			s = newDemandSeries(k, from, to)
			last = k
		}
		p := &s.pool
		if (f.Pool == "" || f.Pool == p.Pool) && (f.Model == "" || f.Model == p.Model) && (f.Unit == "" || f.Unit == p.Unit) {
			s.month(k.Hour, row.(*projections.DemandMonth), f.KnownBy)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read demand: %w", err)
	}
	finish()
	slices.SortFunc(out, func(a, b Pool) int {
		return cmp.Or(
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Unit, b.Unit),
		)
	})
	return out, nil
}

// demandSeries sums observations of a series, which come by start, by hour. Times are in
// milliseconds since 1970.
type demandSeries struct {
	pool     Pool
	from, to int64
	// group holds overlapping observations, up to end.
	group []observation
	end   int64
	under []*observation // of the group: those in progress, the one that counts last
	// The sums of the hour at index open.
	open  int
	ms    uint32
	sums  [3]wide
	label projections.DemandLabel
}

type observation struct {
	from, to int64
	span     *projections.DemandSpan
	label    projections.DemandLabel
}

// wide is a sum of products of 64 by 32 bits.
type wide struct{ hi, lo uint64 }

func (w *wide) add(v, ms uint64) {
	hi, lo := bits.Mul64(v, ms)
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi += hi + carry
}

func newDemandSeries(k projections.Key, from, to domain.Instant) *demandSeries {
	s := &demandSeries{from: int64(from / projections.NsPerMs), to: int64(to / projections.NsPerMs)}
	s.pool.Cluster, s.pool.From = k.Scope, from
	s.pool.Pool, s.pool.Model, s.pool.Unit = projections.SplitSeries(k.ID)
	return s
}

// month adds the observations of a row.
func (s *demandSeries) month(hour int64, m *projections.DemandMonth, knownBy domain.Instant) {
	start := hour * projections.MsPerHour
	for i := 0; i < len(m.Spans); {
		// The last statement of an interval that was known by then.
		var says *projections.DemandSpan
		for first := &m.Spans[i]; i < len(m.Spans) && m.Spans[i].From == first.From && m.Spans[i].Length == first.Length; i++ {
			if knownBy == 0 || m.Spans[i].Known <= knownBy {
				says = &m.Spans[i]
			}
		}
		if says == nil {
			continue
		}
		o := observation{from: start + int64(says.From), span: says, label: m.Labels[says.Label]}
		o.to = o.from + int64(says.Length)
		if o.to <= s.from || o.from >= s.to {
			continue
		}
		if o.from >= s.end {
			s.flush()
		}
		s.group = append(s.group, o)
		s.end = max(s.end, o.to)
	}
}

// flush adds a group of overlapping observations.
func (s *demandSeries) flush() {
	if len(s.group) == 1 {
		s.put(s.group[0].from, s.group[0].to, &s.group[0])
		s.group = s.group[:0]
		return
	}
	// Of the observations in progress the last counts, by length (longest first), then by start.
	counts := func(a, b *observation) int {
		return cmp.Or(cmp.Compare(b.to-b.from, a.to-a.from), cmp.Compare(a.from, b.from))
	}
	next := 0
	for at := s.end; ; {
		if n := len(s.under); n > 0 && s.under[n-1].to <= at {
			s.under = s.under[:n-1]
			continue
		}
		if len(s.under) == 0 {
			if next == len(s.group) {
				break
			}
			at = s.group[next].from
		}
		for ; next < len(s.group) && s.group[next].from <= at; next++ {
			o := &s.group[next]
			i, _ := slices.BinarySearchFunc(s.under, o, counts)
			s.under = slices.Insert(s.under, i, o)
		}
		top := s.under[len(s.under)-1]
		to := top.to
		if next < len(s.group) {
			to = min(to, s.group[next].from)
		}
		s.put(at, to, top)
		at = to
	}
	s.group = s.group[:0]
}

// put adds an observation for a time. Times do not overlap and come in order.
func (s *demandSeries) put(from, to int64, o *observation) {
	from, to = max(from, s.from), min(to, s.to)
	if from >= to {
		return
	}
	p := &s.pool
	if p.Hours() == 0 {
		n := (s.to - s.from) / projections.MsPerHour
		p.Running, p.Pending, p.Owned, p.ObservedMs = make([]uint64, n), make([]uint64, n), make([]uint64, n), make([]uint32, n)
	}
	s.label = o.label
	for from < to {
		i := int((from - s.from) / projections.MsPerHour)
		end := min(to, s.from+int64(i+1)*projections.MsPerHour)
		if ms := uint32(end - from); ms == projections.MsPerHour {
			p.Running[i], p.Pending[i], p.Owned[i], p.ObservedMs[i] = o.span.Running, o.span.Pending, o.span.Owned, ms
		} else {
			if i != s.open {
				s.settle()
				s.open = i
			}
			s.ms += ms
			for j, v := range [3]uint64{o.span.Running, o.span.Pending, o.span.Owned} {
				s.sums[j].add(v, uint64(ms))
			}
		}
		from = end
	}
}

// settle turns the sums of an hour into means.
func (s *demandSeries) settle() {
	if s.ms == 0 {
		return
	}
	p, i := &s.pool, s.open
	p.ObservedMs[i] = s.ms
	for j, mean := range [3]*uint64{&p.Running[i], &p.Pending[i], &p.Owned[i]} {
		*mean, _ = bits.Div64(s.sums[j].hi, s.sums[j].lo, uint64(s.ms))
	}
	s.ms, s.sums = 0, [3]wide{}
}

func (s *demandSeries) finish() *Pool {
	s.flush()
	s.settle()
	s.pool.Region, s.pool.Workspace = s.label.Region, s.label.Workspace
	return &s.pool
}
