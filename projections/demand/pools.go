package demand

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// lagAfter is the time without data after which a series counts as ended. Imports of demand come
// weekly or monthly, so eight weeks allow for one missed import.
const lagAfter = 56 * domain.Day

// History is the demand for one kind and unit in one region, over all clusters and workspaces.
type History struct {
	Region, Kind, Unit string
	Clusters           []string
	From               domain.Instant // start of the first hour
	// Milli is running plus pending demand, in thousandths of a unit by the hour; −1 if it is not
	// completely known.
	Milli []int64
	// Ended are the series that count as ended, while others continue.
	Ended []EndedSeries
	// Outages are times in which a whole cluster of the pool was in maintenance, or at least half
	// of its machines were down; each is at most two weeks long.
	Outages []domain.Interval
}

// EndedSeries is a part of a pool without data for at least eight weeks.
type EndedSeries struct {
	Source string         // cluster and pool of the series
	At     domain.Instant // end of the last observed hour
}

// Histories returns the demand of pools between two times as known at a third (0: now), by region,
// kind and unit. If a series has no data for an hour between its first and its last, or lags by
// less than eight weeks, the pool's hour is unknown too. A series without data for longer has
// ended, and its demand is zero. But if no series of a pool continues, its demand is unknown:
// missing observations do not mean missing demand. All histories begin with the same hour.
func Histories(view projections.View, from, to domain.Instant, f Filter) ([]History, error) {
	series, err := Pools(view, from, to, f)
	if err != nil {
		return nil, err
	}
	pools, spanned := map[PoolKey]*History{}, map[PoolKey][]bool{}
	for i := range series {
		s := &series[i]
		first := slices.IndexFunc(s.ObservedMs, func(ms uint32) bool { return ms > 0 })
		if first < 0 {
			continue
		}
		k := PoolKey{s.Region, s.Model, s.Unit}
		if s.Unit == "gpu" {
			k.Kind = market.ModelName(s.Model)
		}
		p := pools[k]
		if p == nil {
			p = &History{Region: k.Region, Kind: k.Kind, Unit: k.Unit, From: s.From, Milli: make([]int64, s.Hours())}
			pools[k], spanned[k] = p, make([]bool, s.Hours())
		}
		if !slices.Contains(p.Clusters, s.Cluster) {
			p.Clusters = append(p.Clusters, s.Cluster)
		}
		last := s.Hours() - 1
		for s.ObservedMs[last] == 0 {
			last--
		}
		end := last
		if domain.Instant(s.Hours()-1-last)*domain.Hour < lagAfter {
			end = s.Hours() - 1
		} else {
			p.Ended = append(p.Ended, EndedSeries{s.Cluster + "/" + s.Pool, s.From + domain.Instant(last+1)*domain.Hour})
		}
		for h := first; h <= end; h++ {
			spanned[k][h] = true
			switch {
			case s.ObservedMs[h] == 0:
				p.Milli[h] = -1
			case p.Milli[h] >= 0:
				p.Milli[h] = int64(min(uint64(p.Milli[h])+s.Running[h]+s.Pending[h], math.MaxInt64))
			}
		}
	}
	if len(pools) == 0 {
		return []History{}, nil
	}
	known := registry.Known(view, f.KnownBy)
	fleet, err := inventory.ReadFleet(known)
	if err != nil {
		return nil, err
	}
	out := []History{}
	for _, k := range slices.SortedFunc(maps.Keys(pools), PoolKey.Compare) {
		p := pools[k]
		for h, ok := range spanned[k] {
			if !ok {
				p.Milli[h] = -1
			}
		}
		if !spanned[k][len(p.Milli)-1] { // all of it has ended, and that is reported
			p.Ended = nil
		}
		if p.Outages, err = outages(known, fleet, p, from, to); err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// longOutage is the maximum time for which most of a pool may be down and count as an outage. A
// longer one counts as a smaller fleet.
const longOutage = 14 * domain.Day

// outages returns when a pool was down between two times, by start and disjoint: while a whole
// cluster of it was scheduled for maintenance, and while at least half of its machines were
// unusable: failed, cordoned, drained or in maintenance. An outage that continues ends with the
// requested time.
func outages(view projections.View, f *inventory.Fleet, p *History, from, to domain.Instant) ([]domain.Interval, error) {
	var out []domain.Interval
	for _, c := range p.Clusters {
		query := projections.Query{Table: projections.TableMaintenance, Scope: c}
		err := view.Scan(query, func(_ projections.Key, row projections.Row) error {
			says := row.(*projections.History).Latest().Event.(*domain.MaintenanceScheduled)
			if !says.Cancelled && len(says.Nodes) == 0 {
				out = append(out, says.Window)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read maintenance: %w", err)
		}
	}
	for _, o := range mostlyDown(f, p) {
		if o.To = min(o.To, max(to, o.From)); o.To-o.From < longOutage {
			out = append(out, o)
		}
	}
	out = slices.DeleteFunc(out, func(o domain.Interval) bool { return o.To <= max(from, o.From) })
	slices.SortFunc(out, func(a, b domain.Interval) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return inventory.Joined(out), nil
}

// mostlyDown returns the times in which at least half of the machines of a pool were completely
// down, by GPUs if the pool counts GPUs.
func mostlyDown(f *inventory.Fleet, p *History) []domain.Interval {
	type turn struct {
		at       domain.Instant
		up, down int // changes of what is in service, and of the part of it that is down
	}
	var turns []turn
	for _, n := range f.Nodes {
		if !slices.Contains(p.Clusters, n.Cluster) {
			continue
		}
		for i := range n.Service {
			s := &n.Service[i]
			weight := 0
			if p.Unit == "gpu" {
				for _, g := range s.GPUs {
					if g.Model == p.Kind {
						weight++
					}
				}
			} else if s.Node.SKU == p.Kind {
				weight = 1
			}
			if weight == 0 {
				continue
			}
			turns = append(turns, turn{s.From, weight, 0}, turn{s.To, -weight, 0})
			covered := s.From
			for _, d := range n.Down { // ascending
				if d.GPU != (domain.GPUID{}) {
					continue
				}
				if from, end := max(d.From, covered), min(d.To, s.To); from < end {
					turns = append(turns, turn{from, 0, weight}, turn{end, 0, -weight})
					covered = end
				}
			}
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	var out []domain.Interval
	up, down := 0, 0
	for i := 0; i < len(turns); {
		at := turns[i].at
		for ; i < len(turns) && turns[i].at == at; i++ {
			up, down = up+turns[i].up, down+turns[i].down
		}
		open := len(out) > 0 && out[len(out)-1].To == inventory.Forever
		switch most := down > 0 && 2*down >= up; {
		case most && !open:
			out = append(out, domain.Interval{From: at, To: inventory.Forever})
		case !most && open:
			out[len(out)-1].To = at
		}
	}
	return out
}

// PoolKey identifies a pool.
type PoolKey struct{ Region, Kind, Unit string }

// Compare orders pools by region, kind and unit.
func (k PoolKey) Compare(l PoolKey) int {
	return cmp.Or(cmp.Compare(k.Region, l.Region), cmp.Compare(k.Kind, l.Kind), cmp.Compare(k.Unit, l.Unit))
}
