package planning

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/packing"
	"quartermaster/domain/plan"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/failures"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// planLookback is how far before the plan's time demand is read. A plan repeats the end of what is
// found.
const planLookback = 400 * domain.Day

// FromPolicy stands for the annual rate of the valid cost_of_capital policy, or defaultRate without
// one.
var FromPolicy = decimal.NewFromInt(-1)

var defaultRate = decimal.New(8, -2)

// Question collects the input of a plan at a time: the demand observed before it, the valid offers,
// quotas, commitments and policies, owned machines, the fleet and its workloads. only are the
// regions that it is restricted to, in order; none means all.
//
// Demand for one kind and unit in one region is one pool, over all clusters and workspaces. Demand
// without a region, because its cluster is not registered, is a pool of region "". No offers exist
// there, and it is shown as excluded.
func Question(view projections.View, at domain.Instant, only []string, as plan.Assumptions) (*plan.Question, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	shares, rate, err := planPolicies(view, a, at)
	if err != nil {
		return nil, err
	}
	if as.AnnualRate.Equal(FromPolicy) {
		as.AnnualRate = rate
	}
	q := &plan.Question{At: at, Only: only, Position: view.Position().String(), Folds: projections.Method, Assumptions: as}
	in := regions(only)
	if q.Held, q.Expiry, err = planHeld(view, a, at, in); err != nil {
		return nil, err
	}
	owned, err := planOwned(view, at, in)
	if err != nil {
		return nil, err
	}
	q.Held = append(q.Held, owned...)
	if q.Regions, err = planRegions(view, at); err != nil {
		return nil, err
	}
	countries, err := inventory.Countries(view, at)
	if err != nil {
		return nil, err
	}
	if q.Budgets, err = planBudgets(view, a); err != nil {
		return nil, err
	}
	if q.Limits, err = planLimits(view, a, at); err != nil {
		return nil, err
	}
	others, err := workRules(view, a, at, domain.PolicySubstitution)
	if err != nil {
		return nil, err
	}
	postures, err := workRules(view, a, at, domain.PolicyPosture)
	if err != nil {
		return nil, err
	}
	moves, err := workRules(view, a, at, domain.PolicyTransferPrice)
	if err != nil {
		return nil, err
	}
	declared, err := declaredNeeds(view, at)
	if err != nil {
		return nil, err
	}
	series, err := demand.Pools(view, at-planLookback, at, demand.Filter{Region: in.one(), KnownBy: 0})
	if err != nil {
		return nil, err
	}
	series = slices.DeleteFunc(series, func(s demand.Pool) bool { return !in.has(s.Region) })
	quotas, err := market.OnDemandQuotas(view, a, at)
	if err != nil {
		return nil, err
	}
	nodes, err := PackingNodes(view, a, at, NodeFilter{Region: in.one()})
	if err != nil {
		return nil, err
	}
	nodes = slices.DeleteFunc(nodes, func(n packing.Node) bool { return !in.has(n.Region) })
	loads := map[string][]packing.Workload{}
	fleets := map[string][]packing.Node{}
	for _, n := range nodes {
		fleets[n.Region] = append(fleets[n.Region], n)
	}
	where := slices.Collect(maps.Keys(fleets))
	for i := range series {
		where = append(where, series[i].Region)
	}
	slices.Sort(where)
	for _, r := range slices.Compact(where) {
		if r == "" {
			continue // to a filter that is every region
		}
		if loads[r], _, err = Workloads(view, a, at, WorkloadFilter{Region: r}); err != nil {
			return nil, err
		}
		if len(loads[r]) > 0 && len(fleets[r]) > 0 {
			q.Packings = append(q.Packings, plan.Packing{Region: r, Nodes: fleets[r], Workloads: loads[r]})
		}
	}
	observed, err := planObserved(view, at, in, as)
	if err != nil {
		return nil, err
	}
	failures, err := planFailures(view, at, as)
	if err != nil {
		return nil, err
	}
	pools := map[demand.PoolKey][]demand.Pool{}
	for _, s := range series {
		k := demand.PoolKey{Region: s.Region, Kind: s.Model, Unit: s.Unit}
		if s.Unit == "gpu" {
			k.Kind = market.ModelName(s.Model)
		}
		pools[k] = append(pools[k], s)
	}
	for _, k := range slices.SortedFunc(maps.Keys(pools), demand.PoolKey.Compare) {
		p, err := newPool(k, view, at, pools[k], quotas, shares, countries[k.Region])
		if err != nil {
			return nil, fmt.Errorf("pool %s %s: %w", k.Region, k.Kind, err)
		}
		p.NodeGPUs = usualSize(fleets[k.Region], k.Kind)
		p.Observed = observed[k]
		if model := p.Model(); model != "" && as.ServiceLevel.IsPositive() {
			e := failures[model]
			if e == nil { // nothing was observed of the model: only the prior counts
				x, err := reliability.Published().Learn(reliability.Evidence{})
				if err != nil {
					return nil, err
				}
				e = &x
			}
			p.Failures = e
		}
		for _, w := range loads[k.Region] {
			if w.GPUMilli > 0 && (len(w.Models) == 0 || slices.Contains(w.Models, p.Model())) {
				p.Mix = append(p.Mix, w)
				if budget := declared[w.ID].latency; len(p.Mix) == 1 || budget < p.LatencyMicros {
					p.LatencyMicros = budget
				}
			}
		}
		interrupt(p, declared)
		p.Substitutes = substitutes(others, p, countries[k.Region], workOf(p, declared))
		if p.Transfers, err = transfers(moves, p, countries[k.Region], workOf(p, declared)); err != nil {
			return nil, err
		}
		q.Pools = append(q.Pools, *p)
	}
	q.Posture = protect(postures, q.Pools, func(r *workRule, p *plan.Pool) bool {
		return slices.ContainsFunc(workOf(p, declared), func(w workload) bool { return r.binds(&w, p.Region, countries[p.Region]) })
	})
	for _, k := range idle(q.Pools, q.Posture) {
		if !in.has(k.Region) {
			continue
		}
		p, err := newPool(k, view, at, nil, quotas, nil, countries[k.Region])
		if err != nil {
			return nil, fmt.Errorf("pool %s %s: %w", k.Region, k.Kind, err)
		}
		if slices.ContainsFunc(p.Offers, func(o domain.OfferQuoted) bool { return o.Kind == domain.OfferOnDemand }) {
			p.Idle, p.NodeGPUs = true, usualSize(fleets[k.Region], k.Kind)
			q.Pools = append(q.Pools, *p)
		}
	}
	return q, nil
}

// regions are the regions that a question is restricted to; none means all.
type regions []string

func (r regions) has(region string) bool { return len(r) == 0 || slices.Contains(r, region) }

// one returns the region if there is exactly one, else "", for filters with a single region.
func (r regions) one() string {
	if len(r) == 1 {
		return r[0]
	}
	return ""
}

// planRegions returns the regions defined at a time, by id.
func planRegions(view projections.View, at domain.Instant) ([]plan.Region, error) {
	var out []plan.Region
	err := view.Scan(projections.Query{Table: projections.TableRegions}, func(k projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(at); v != nil {
			if r, ok := v.Event.(*domain.RegionDefined); ok {
				out = append(out, plan.Region{Region: k.ID, Country: r.Country, RoundTrips: r.RoundTrips, UTCOffset: r.UTCOffset})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read regions: %w", err)
	}
	return out, nil
}

// planBudgets returns the hard budgets of the root workspace, which pays for what plans buy.
func planBudgets(view projections.View, a *registry.Authority) ([]plan.Budget, error) {
	var out []plan.Budget
	err := view.Scan(projections.Query{Table: projections.TableBudgets, Scope: a.Root()}, func(k projections.Key, row projections.Row) error {
		v := a.Latest(k, row.(*projections.History))
		if v == nil {
			return nil
		}
		if b := v.Event.(*domain.BudgetSet); b.Hard {
			out = append(out, plan.Budget{ID: b.Budget, Basis: b.Basis, Period: b.Period, Amount: b.Amount})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read budgets: %w", err)
	}
	return out, nil
}

// planLimits returns the hard quotas of workspaces on whole GPUs, each with the workspaces below.
func planLimits(view projections.View, a *registry.Authority, at domain.Instant) ([]plan.Limit, error) {
	below := map[string][]string{} // workspaces by parent
	err := view.Scan(projections.Query{Table: projections.TableWorkspaces}, func(k projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(at); v != nil {
			if w, ok := v.Event.(*domain.WorkspaceRegistered); ok && w.Parent != "" {
				below[w.Parent] = append(below[w.Parent], k.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workspaces: %w", err)
	}
	var out []plan.Limit
	err = view.Scan(projections.Query{Table: projections.TableQuotas}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		q := v.Event.(*domain.QuotaSet)
		if !q.Hard || q.Resource != wholeGPUs {
			return nil
		}
		l := plan.Limit{ID: q.Quota, Workspaces: []string{k.Scope}, Region: q.Region, Model: market.ModelName(q.GPUModel), GPUs: q.Limit}
		for i := 0; i < len(l.Workspaces); i++ { // the list grows; a cycle ends where a name repeats
			for _, w := range below[l.Workspaces[i]] {
				if !slices.Contains(l.Workspaces, w) {
					l.Workspaces = append(l.Workspaces, w)
				}
			}
		}
		out = append(out, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read quotas: %w", err)
	}
	return out, nil
}

// wholeGPUs is the Kubernetes resource of quotas that count whole GPUs, as of NVIDIA's device plugin.
const wholeGPUs = "nvidia.com/gpu"

// need is what a deployment says of its work.
type need struct {
	latency       uint64 // round-trip limit in microseconds; 0: none
	interruptible bool

	cluster, tier, environment string
}

// interrupt bounds the share of a pool that may run on spot by the share of its declared GPUs that
// is interruptible, where a deployment says so. Without a policy the declared share counts.
func interrupt(p *plan.Pool, declared map[string]need) {
	all, may := decimal.Zero, decimal.Zero
	for i := range p.Mix {
		w := &p.Mix[i]
		gpus := decimal.NewFromInt(int64(w.Replicas)).Mul(decimal.NewFromInt(w.GPUMilli))
		all = all.Add(gpus)
		if declared[w.ID].interruptible {
			may = may.Add(gpus)
		}
	}
	if !may.IsPositive() {
		return
	}
	share := may.DivRound(all, 12)
	if p.SpotShare.IsZero() || share.LessThan(p.SpotShare) {
		p.SpotShare = share
	}
}

// declaredNeeds returns what deployments say of their work, by workload id.
func declaredNeeds(view projections.View, at domain.Instant) (map[string]need, error) {
	out := map[string]need{}
	err := view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(at); v != nil {
			if d, ok := v.Event.(*domain.DeploymentChanged); ok {
				out[k.Scope+"/"+d.Deployment] = need{d.LatencyMicros, d.Interruptible, k.Scope, d.Tier, d.Environment}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read deployments: %w", err)
	}
	return out, nil
}

// forecastLookback is the history of a forecast: its window.
const forecastLookback = (forecast.Window + 1) * 7 * domain.Day

// planObserved collects what forecasts of pools learn from, if demand is to be forecast:
// observations, and known changes up to the plan's end.
func planObserved(
	view projections.View, at domain.Instant, in regions, as plan.Assumptions,
) (map[demand.PoolKey]*plan.Observed, error) {
	out := map[demand.PoolKey]*plan.Observed{}
	if as.Demand != plan.Forecast {
		return out, nil
	}
	at = at.HourStart()
	pools, err := demand.Histories(view, at-forecastLookback, at, demand.Filter{Region: in.one()})
	if err != nil {
		return nil, err
	}
	pools = slices.DeleteFunc(pools, func(p demand.History) bool { return !in.has(p.Region) })
	// Changes after the plan's end have no effect.
	changes, _, err := demand.Changes(view, pools, at+domain.Instant(as.Months+1)*31*domain.Day, 0)
	if err != nil {
		return nil, err
	}
	for i := range pools {
		p := &pools[i]
		out[demand.PoolKey{Region: p.Region, Kind: p.Kind, Unit: p.Unit}] = &plan.Observed{
			From: p.From, Milli: p.Milli, Changes: forecast.Shifts(p.From, p.Milli, p.Knows(changes[i])),
		}
	}
	return out, nil
}

// failureLookback is the time over which interruptions are counted.
const failureLookback = 90 * domain.Day

// planFailures estimates the interruption rate of each GPU model, if a service level is requested.
func planFailures(view projections.View, at domain.Instant, as plan.Assumptions) (map[string]*reliability.Estimate, error) {
	out := map[string]*reliability.Estimate{}
	if !as.ServiceLevel.IsPositive() {
		return out, nil
	}
	models, err := failures.ByModel(view, max(1, at-failureLookback), at, reliability.DefaultCounts())
	if err != nil {
		return nil, err
	}
	for i := range models {
		e, err := reliability.Published().Learn(models[i].Evidence)
		if err != nil {
			return nil, err
		}
		out[models[i].Model] = &e
	}
	return out, nil
}

func newPool(
	k demand.PoolKey, view projections.View, at domain.Instant, series []demand.Pool,
	quotas []market.OnDemandQuotaEntry, shares []spotShare, country string,
) (*plan.Pool, error) {
	p := &plan.Pool{Region: k.Region, Kind: k.Kind, Unit: k.Unit}
	filter := market.OfferFilter{Region: k.Region, GPUModel: k.Kind}
	if k.Unit == "vm" {
		filter.GPUModel, filter.SKU = "", k.Kind
		p.Note = "the demand counts machines, which are taken for " + k.Kind
	}
	if k.Region != "" {
		offers, err := market.Offers(view, at, filter)
		if err != nil {
			return nil, err
		}
		for i := range offers {
			o := offers[i].OfferQuoted
			o.GPUModel = offers[i].Model
			p.Offers = append(p.Offers, o)
		}
	}
	p.Quotas = Quotas(quotas, k.Region, p.Model())
	wanted, onSpot := decimal.Zero, decimal.Zero
	for i := range series {
		s := &series[i]
		first := slices.IndexFunc(s.ObservedMs, func(ms uint32) bool { return ms > 0 })
		if first < 0 {
			continue
		}
		last := s.Hours() - 1
		for s.ObservedMs[last] == 0 {
			last--
		}
		out := plan.Series{
			Source: s.Cluster + "/" + s.Pool, Workspace: s.Workspace, From: s.From + domain.Instant(first)*domain.Hour,
			Milli: make([]int64, last+1-first),
		}
		total := uint64(0)
		for h := first; h <= last; h++ {
			out.Milli[h-first] = -1
			if s.ObservedMs[h] > 0 {
				milli := s.Running[h] + s.Pending[h]
				out.Milli[h-first] = clampInt64(milli)
				total += milli
			}
		}
		p.Series = append(p.Series, out)
		d := decimal.NewFromUint64(total)
		wanted, onSpot = wanted.Add(d), onSpot.Add(d.Mul(shareOf(shares, s.Workspace, k.Region, country)))
	}
	if wanted.IsPositive() {
		p.SpotShare = onSpot.DivRound(wanted, 12)
	}
	return p, nil
}

// usualSize returns the most frequent number of GPUs per node of a model; in a tie, the greatest.
func usualSize(nodes []packing.Node, model string) int {
	counts := map[int]int{}
	for i := range nodes {
		if nodes[i].Model == model {
			counts[nodes[i].GPUs] += nodes[i].Count
		}
	}
	best := 0
	for size, n := range counts {
		if best == 0 || n > counts[best] || n == counts[best] && size > best {
			best = size
		}
	}
	return best
}

// spotShare is a policy: at most Share of a workspace's demand runs on spot.
type spotShare struct {
	workspace string           // "" for all
	where     *domain.Selector // its regions and countries
	share     domain.Decimal
}

// shareOf returns the smallest spot share that a policy allows a workspace in a region. Without a
// policy it is 0: spot is only for interruptible work, and only a policy says that work is.
func shareOf(shares []spotShare, workspace, region, country string) domain.Decimal {
	least, ok := decimal.Zero, false
	for _, s := range shares {
		if (s.workspace == "" || s.workspace == workspace) && s.where.In(region, country) && (!ok || s.share.LessThan(least)) {
			least, ok = s.share, true
		}
	}
	return least
}

// planPolicies returns the spot policies that apply to the demand of workspaces, and the cost of
// capital. A policy about classes, deployments, clusters, tiers or environments does not apply,
// because demand does not name them.
func planPolicies(
	view projections.View, a *registry.Authority, at domain.Instant,
) (shares []spotShare, rate domain.Decimal, err error) {
	rate = defaultRate
	var order domain.Precedence
	err = view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		if p.EffectiveTo != 0 && at >= p.EffectiveTo || !p.Share.Valid {
			return nil
		}
		switch p.Kind {
		case domain.PolicyCostOfCapital:
			if k.Scope == a.Root() && v.Order.After(order) {
				rate, order = p.Share.Decimal, v.Order
			}
		case domain.PolicySpotShare:
			s := p.Selector
			s.Workspace, s.Regions, s.Countries = "", nil, nil
			if !s.IsZero() {
				return nil
			}
			who := p.Selector.Workspace
			if k.Scope != a.Root() {
				if who != "" && who != k.Scope {
					return nil
				}
				who = k.Scope
			}
			shares = append(shares, spotShare{who, &p.Selector, p.Share.Decimal})
		}
		return nil
	})
	return shares, rate, err
}

// Quotas returns the on-demand quotas of a model in a region, by provider. An account's quota for
// the model and its quota for all models together both apply, so the smaller counts. Accounts add
// up.
func Quotas(quotas []market.OnDemandQuotaEntry, region, model string) []plan.Quota {
	var out []plan.Quota
	for i := 0; i < len(quotas); {
		// Quotas of a market are adjacent, by account.
		first := &quotas[i]
		least, all, shared, bound := uint64(math.MaxUint64), uint64(math.MaxUint64), false, false
		for ; i < len(quotas) && quotas[i].Market == first.Market && quotas[i].Account == first.Account; i++ {
			if q := &quotas[i]; q.Model == "" || q.Model == model {
				least, shared, bound = min(least, q.LimitGPUs), shared || q.Model == "", true
				if q.Model == "" {
					all = min(all, q.LimitGPUs)
				}
			}
		}
		if first.Market.Region != region || !bound {
			continue
		}
		n := len(out)
		if n == 0 || out[n-1].Provider != first.Market.Provider {
			out = append(out, plan.Quota{Provider: first.Market.Provider, Together: true})
			n++
		}
		q := &out[n-1]
		sum, carry := bits.Add64(q.GPUs, least, 0)
		if carry != 0 {
			sum = math.MaxUint64
		}
		q.GPUs, q.Shared, q.Together = sum, q.Shared || shared, q.Together && shared && least == all
	}
	return out
}

// planHeld returns the terms of commitments that are not over, and when they expire.
func planHeld(view projections.View, a *registry.Authority, at domain.Instant, in regions) (held, expiry []plan.Held, err error) {
	entries, err := CommitmentsHeld(view, a, at)
	if err != nil {
		return nil, nil, err
	}
	entries = slices.DeleteFunc(entries, func(e CommitmentEntry) bool {
		return !in.has(e.Market.Region) && e.Market.Region != "" // "" means all regions
	})
	for i := range entries {
		e := &entries[i]
		for _, t := range e.Terms {
			held = append(held, plan.Held{
				Commitment: e.Commitment, Provider: e.Market.Provider, Region: e.Market.Region, Kind: e.Kind,
				SKU: e.SKU, GPUModel: e.Model,
				GPUs: int(e.GPUsPerUnit), Units: int(t.Units), Term: t.Term, NoticeBy: t.NoticeBy, Hourly: t.Hourly,
				Upfront: t.Upfront, Guaranteed: e.GuaranteesCapacity, Spend: e.Spend, SpendPerHour: e.SpendPerHour,
			})
		}
	}
	for _, x := range ExpiryLadder(entries) {
		expiry = append(expiry, plan.Held{
			Commitment: x.Commitment, Provider: x.Market.Provider, Region: x.Market.Region, Kind: x.Kind, SKU: x.SKU,
			GPUModel: x.Model,
			GPUs:     int(x.GPUsPerUnit), Units: int(x.Units), Term: domain.Interval{From: x.From, To: x.At},
			NoticeBy: x.NoticeBy, Hourly: x.Hourly,
			Guaranteed: x.GuaranteesCapacity,
		})
	}
	return held, expiry, nil
}

// planOwned returns the healthy machines of clusters with owned hardware, with equal ones of a
// cluster combined: capacity that exists and needs no purchase. Its cost is in the books, whatever
// the plan.
func planOwned(view projections.View, at domain.Instant, in regions) ([]plan.Held, error) {
	fleet, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, err
	}
	var out []plan.Held
	for _, n := range fleet.Nodes { // by cluster
		s := n.At(at)
		c, _ := fleet.Cluster(n.Cluster, at)
		if s == nil || c == nil || c.ProviderClass != domain.Owned || !in.has(c.Region) || n.HealthAt(at).State != "ok" {
			continue
		}
		model, gpus := inventory.MostGPUs(s.GPUs)
		h := plan.Held{
			Commitment: n.Cluster, Provider: cmp.Or(s.Node.Provider, c.Provider), Region: c.Region,
			Kind: domain.OfferOwned, SKU: s.Node.SKU,
			GPUModel: model, GPUs: gpus, Units: 1, Term: domain.Interval{From: s.From}, Guaranteed: true,
		}
		same := slices.IndexFunc(out, func(x plan.Held) bool {
			return x.Commitment == h.Commitment && x.Provider == h.Provider &&
				x.SKU == h.SKU && x.GPUModel == h.GPUModel && x.GPUs == h.GPUs
		})
		if same < 0 {
			out = append(out, h)
			continue
		}
		out[same].Units++
		out[same].Term.From = max(out[same].Term.From, h.Term.From)
	}
	return out, nil
}
