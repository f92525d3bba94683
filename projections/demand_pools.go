package projections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
)

// lagAfter is how long a series may have said nothing before it is taken to have
// ended. Imports of demand come weekly or monthly, so eight weeks are one that was
// missed.
const lagAfter = 56 * domain.Day

// PoolHistory is the demand of one kind and unit in one region, whichever clusters
// and workspaces it comes from.
type PoolHistory struct {
	Region, Kind, Unit string
	Clusters           []string
	From               domain.Instant // start of the first hour
	// Milli is what ran and waited, in thousandths of a unit by the hour; −1 where
	// it is not known as a whole.
	Milli []int64
	// Outages are times in which a whole cluster of the pool was in maintenance.
	Outages []domain.Interval
}

// PoolHistories returns the demand of pools from one time to another as it was
// known by a third (0: now), by region, kind and unit. Where a series does not
// know an hour between its first and its last, or lags behind by less than eight
// weeks, the pool does not know it either. All begin with the same hour.
func PoolHistories(view View, from, to domain.Instant, f DemandFilter) ([]PoolHistory, error) {
	series, err := Demand(view, from, to, f)
	if err != nil {
		return nil, err
	}
	pools, begun := map[poolKey]*PoolHistory{}, map[poolKey]int{}
	for i := range series {
		s := &series[i]
		first := slices.IndexFunc(s.ObservedMs, func(ms uint32) bool { return ms > 0 })
		if first < 0 {
			continue
		}
		k := poolKey{s.Region, s.Model, s.Unit}
		if s.Unit == "gpu" {
			k.kind = modelName(s.Model)
		}
		p := pools[k]
		if p == nil {
			p = &PoolHistory{Region: k.region, Kind: k.kind, Unit: k.unit, From: s.From, Milli: make([]int64, s.Hours())}
			pools[k], begun[k] = p, first
		}
		begun[k] = min(begun[k], first)
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
		}
		for h := first; h <= end; h++ {
			switch {
			case s.ObservedMs[h] == 0:
				p.Milli[h] = -1
			case p.Milli[h] >= 0:
				p.Milli[h] = clampInt64(uint64(p.Milli[h]) + s.Running[h] + s.Pending[h])
			}
		}
	}
	out := []PoolHistory{}
	for _, k := range slices.SortedFunc(maps.Keys(pools), poolKey.compare) {
		p := pools[k]
		for h := range begun[k] { // nothing is known of the time before
			p.Milli[h] = -1
		}
		if p.Outages, err = outages(view, p.Clusters, f.KnownBy); err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// outages returns when whole clusters were to be in maintenance, by start.
func outages(view View, clusters []string, knownBy domain.Instant) ([]domain.Interval, error) {
	var out []domain.Interval
	for _, c := range clusters {
		err := view.Scan(Query{Table: TableMaintenance, Scope: c}, func(_ Key, row Row) error {
			var says *domain.MaintenanceScheduled
			h := row.(*History)
			for i := range h.Versions {
				if knownBy == 0 || h.Versions[i].known() <= knownBy {
					says = h.Versions[i].Event.(*domain.MaintenanceScheduled)
				}
			}
			if says != nil && !says.Cancelled && len(says.Nodes) == 0 {
				out = append(out, says.Window)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read maintenance: %w", err)
		}
	}
	slices.SortFunc(out, func(a, b domain.Interval) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return slices.Compact(out), nil
}
