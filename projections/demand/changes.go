package demand

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// Change is a declared change of a pool's demand, because deployments begin, end, grow or shrink.
type Change struct {
	At          domain.Instant // start of the first whole hour in which it holds
	Milli       int64          // thousandths of the pool's unit; not 0
	Deployments []string       // cluster/deployment, sorted
}

// Changes returns the declared changes of each pool's demand by deployments, by time, after the
// pool's history begins and before until, as known at knownBy (0: now). A change that takes effect
// after the histories end counts only if it was known when they end.
//
// A deployment belongs to the pool of its region that has what its replicas need. Pools that its
// cluster feeds are preferred, then pools that count GPUs. Replicas count by the GPUs that they
// need. A pool of machines counts them in machines of its type, as its nodes were declared.
// unplaced lists coming changes that belong to no pool, or to one of several.
func Changes(
	view projections.View, pools []History, until, knownBy domain.Instant,
) (changes [][]Change, unplaced []string, err error) {
	changes = make([][]Change, len(pools))
	if len(pools) == 0 {
		return changes, nil, nil
	}
	view = registry.Known(view, knownBy)
	at := pools[0].From + domain.Instant(len(pools[0].Milli))*domain.Hour
	clusters, err := inventory.ReadClusters(view)
	if err != nil {
		return nil, nil, err
	}
	p := demandPlaces{pools: pools}
	if p.sizes, p.present, err = machineTypes(view); err != nil {
		return nil, nil, err
	}
	type moment struct {
		pool int
		at   domain.Instant
	}
	sums := map[moment]*Change{}
	err = view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		region := ""
		if c, _ := clusters.Cluster(k.Scope, at); c != nil {
			region = c.Region
		}
		name := k.Scope + "/" + k.ID
		add := func(pool int, from domain.Instant, milli int64) {
			if pool < 0 || milli == 0 || from <= pools[pool].From || from >= until {
				return
			}
			m := moment{pool, from}
			if sums[m] == nil {
				sums[m] = &Change{At: from}
			}
			sums[m].Milli += milli
			sums[m].Deployments = append(sums[m].Deployments, name)
		}
		was, wanted := -1, int64(0)
		for _, v := range row.(*projections.History).Versions {
			if v.Order.Effective > at && v.Known() > at {
				continue
			}
			from := (v.Order.Effective + domain.Hour - 1).HourStart()
			pool, milli := -1, int64(0)
			if d, ok := v.Event.(*domain.DeploymentChanged); ok && d.Replicas > 0 {
				var why string
				if pool, milli, why = p.place(k.Scope, region, d); why != "" && from >= at && from < until {
					unplaced = append(unplaced, fmt.Sprintf("%s from %s: %s", name, v.Order.Effective, why))
				}
			}
			if pool == was {
				add(pool, from, milli-wanted)
			} else {
				add(was, from, -wanted)
				add(pool, from, milli)
			}
			was, wanted = pool, milli
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read deployments: %w", err)
	}
	for m, c := range sums {
		if c.Milli != 0 {
			slices.Sort(c.Deployments)
			c.Deployments = slices.Compact(c.Deployments)
			changes[m.pool] = append(changes[m.pool], *c)
		}
	}
	for i := range changes {
		slices.SortFunc(changes[i], func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	}
	slices.Sort(unplaced)
	return changes, unplaced, nil
}

// Knows converts what the log knows of a pool's demand besides observations, its outages and the
// changes by deployments, for forecasts.
func (p *History) Knows(declared []Change) []forecast.Change {
	out := []forecast.Change{}
	for _, o := range p.Outages {
		out = append(out, forecast.Change{Span: o, Ignored: true, Why: "it was down, or in maintenance"})
	}
	for _, d := range declared {
		why := strings.Join(d.Deployments[:min(3, len(d.Deployments))], ", ")
		if more := len(d.Deployments) - 3; more > 0 {
			why += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, forecast.Change{
			Span: domain.Interval{From: d.At}, Milli: max(-forecast.MaxMilli, min(d.Milli, forecast.MaxMilli)),
			Why: why,
		})
	}
	return out
}

// machineType describes the machines of a type.
type machineType struct {
	model string
	gpus  int64
}

// machineTypes returns the declared types of machines with their GPUs (the maximum if nodes
// differ), and the declared models.
func machineTypes(view projections.View) (map[string]machineType, []string, error) {
	sizes, models := map[string]machineType{}, map[string]bool{}
	err := view.Scan(projections.Query{Table: projections.TableNodes}, func(_ projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			n, ok := v.Event.(*domain.NodeRegistered)
			if !ok || len(n.GPUs) == 0 {
				continue
			}
			t := machineType{market.ModelName(n.GPUs[0].Model), int64(len(n.GPUs))}
			models[t.model] = true
			if has := sizes[n.SKU]; t.gpus > has.gpus || t.gpus == has.gpus && t.model < has.model {
				sizes[n.SKU] = t
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read nodes: %w", err)
	}
	return sizes, slices.Sorted(maps.Keys(models)), nil
}

// demandPlaces finds the pool of a deployment.
type demandPlaces struct {
	pools   []History
	sizes   map[string]machineType
	present []string
}

// place returns the pool of a deployment and the demand on it, in thousandths. If there is no pool
// it returns −1, and why says why the pool is unknown.
func (p *demandPlaces) place(cluster, region string, d *domain.DeploymentChanged) (pool int, milli int64, why string) {
	milli, models := GPUNeed(&d.Need, p.present)
	if milli == 0 {
		return -1, 0, ""
	}
	milli = int64(min(uint64(milli)*uint64(d.Replicas)*uint64(max(1, d.Need.GangNodes)), math.MaxInt64))
	fed, inGPUs := false, false
	var fit []int
	for i := range p.pools {
		h := &p.pools[i]
		model := h.Kind
		if h.Unit != "gpu" {
			model = p.sizes[h.Kind].model
		}
		if h.Region != region || model == "" || len(models) > 0 && !slices.Contains(models, model) {
			continue
		}
		feeds, counts := slices.Contains(h.Clusters, cluster), h.Unit == "gpu"
		switch {
		case feeds == fed && counts == inGPUs:
			fit = append(fit, i)
		case feeds && !fed, feeds == fed && counts:
			fit, fed, inGPUs = []int{i}, feeds, counts
		}
	}
	switch {
	case len(fit) == 0:
		return -1, 0, "no demand was observed of what it needs in region " + cmp.Or(region, "(unknown)")
	case len(fit) > 1:
		return -1, 0, fmt.Sprintf("it may run on %s as well as on %s", p.pools[fit[0]].Kind, p.pools[fit[1]].Kind)
	}
	if h := &p.pools[fit[0]]; h.Unit != "gpu" {
		milli = ceilDiv(milli, p.sizes[h.Kind].gpus)
	}
	return fit[0], milli, ""
}
