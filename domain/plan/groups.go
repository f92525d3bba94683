package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Component is a set of pools that share something and are planned together.
type Component struct {
	Pools []string `json:"pools"`      // as "region kind"
	By    []string `json:"coupled_by"` // in words
	// Cost and LowerBound include what is still owed. No purchases make Cost less than LowerBound.
	// The pools' own costs and bounds are parts of these.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Binding    []Binding      `json:"binding,omitempty"`
}

// Region is a location of pools, with its distance to other regions.
type Region struct {
	Region     string
	Country    string // ISO 3166-1 alpha-2, "" if unknown
	RoundTrips []domain.RoundTrip
	UTCOffset  string // [domain.RegionDefined.UTCOffset]
}

// measured says that a round trip was measured.
const measured = "measured"

// zoneMS is the estimate of a round trip for each time zone that it crosses, in milliseconds.
const zoneMS = 5

// trip returns the round trip between two regions: what is stated for either direction, the better
// known first, else an estimate from their time zones. Regions of one time zone count as one zone apart.
// how says where it is from; ok is false if nothing is known.
func (r *Region) trip(to *Region) (ms int, how string, ok bool) {
	stated := func(from, to *Region) *domain.RoundTrip {
		i := slices.IndexFunc(from.RoundTrips, func(t domain.RoundTrip) bool { return t.To == to.Region })
		if i < 0 {
			return nil
		}
		return &from.RoundTrips[i]
	}
	there := stated(r, to)
	if back := stated(to, r); there == nil || back != nil && back.Measured && !there.Measured {
		there = back
	}
	if there != nil {
		how = measured
		if !there.Measured {
			how = "estimated"
		}
		return int((there.Micros + 999) / 1000), how, true
	}
	a, known := domain.ParseUTCOffset(r.UTCOffset)
	b, too := domain.ParseUTCOffset(to.UTCOffset)
	if !known || !too {
		return 0, "", false
	}
	const hour, day = 60, 24 * 60
	apart := max(a-b, b-a)
	apart = min(apart, day-apart)
	zones := max(1, (apart+hour-1)/hour)
	return zoneMS * zones, fmt.Sprintf("estimated at %d ms for each time zone crossed", zoneMS), true
}

// group is pools that are planned together, at least one.
type group struct {
	pools    []*candidate
	by       []string
	overflow []instance.Overflow
	// alone are the spend commitments that pay for one pool, and spans those over pools, or held.
	alone, spans []spend
}

// shadows names the further pools of an instance in which a pool is stated: for spend commitments and for
// providers.
func (c *composer) shadows(g *group, k *candidate) []string {
	names := g.spent(k)
	if c.byProvider(g) {
		for _, provider := range k.providers()[1:] {
			names = append(names, k.poolOf(provider))
		}
	}
	return names
}

// home is the pool of a group that a pool of its instance states, nil if there is none.
func (c *composer) home(g *group, pool string) *candidate {
	i := slices.IndexFunc(g.pools, func(k *candidate) bool {
		return k.name() == pool || slices.Contains(c.shadows(g, k), pool)
	})
	if i < 0 {
		return nil
	}
	return g.pools[i]
}

// groups finds the pools that cannot be planned separately: those that share a quota, a budget or a
// spend commitment, and those that may serve each other's demand. Groups are in the order of their first pool.
func (c *composer) groups(pools []*candidate) []group {
	of := make([]int, len(pools)) // the first pool of its group
	for i := range of {
		of[i] = i
	}
	reasons := make([][]string, len(pools))
	overflow := make([][]instance.Overflow, len(pools))
	join := func(i, j int, why string) {
		i, j = of[i], of[j]
		if i > j {
			i, j = j, i
		}
		if i != j {
			for k := range of {
				if of[k] == j {
					of[k] = i
				}
			}
			reasons[i], overflow[i] = append(reasons[i], reasons[j]...), ways(overflow[i], overflow[j]...)
		}
		if !slices.Contains(reasons[i], why) {
			reasons[i] = append(reasons[i], why)
		}
	}
	for i, k := range pools {
		for j, l := range pools {
			if i == j {
				continue
			}
			if i < j && sharesQuota(k, l) {
				q := k.shelf.quota
				join(i, j, fmt.Sprintf("the on-demand quota of %s in %s for all models together, %d GPUs", q.Provider,
					k.Region, q.GPUs))
			}
			if r := c.route(k, l); r != nil {
				join(i, j, r.why)
				if r.overflow != nil {
					overflow[of[i]] = ways(overflow[of[i]], *r.overflow)
				}
			}
		}
	}
	for _, b := range c.budget {
		for i := 1; i < len(pools); i++ {
			join(0, i, fmt.Sprintf("the hard budget %s of %s %s (%s)", b.ID, b.Amount, c.a.Currency, b.Basis))
		}
	}
	for _, s := range c.spends(pools) {
		for _, k := range s.pools[1:] {
			join(slices.Index(pools, s.pools[0]), slices.Index(pools, k), "the spend commitment "+s.String())
		}
	}
	var out []group
	for i := range pools {
		g := group{by: reasons[i], overflow: overflow[i]}
		for j, k := range pools {
			if of[j] == i {
				g.pools = append(g.pools, k)
			}
		}
		if len(g.pools) > 0 {
			g.pay(c)
			slices.Sort(g.by)
			slices.SortFunc(g.overflow, func(a, b instance.Overflow) int {
				return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
			})
			out = append(out, g)
		}
	}
	return out
}

// ways adds ways to a list, each once.
func ways(list []instance.Overflow, more ...instance.Overflow) []instance.Overflow {
	for _, way := range more {
		if !slices.Contains(list, way) {
			list = append(list, way)
		}
	}
	return list
}

// sharesQuota reports whether one number bounds the on-demand use of two pools together, and
// nothing else does.
func sharesQuota(k, l *candidate) bool {
	a, b := k.quota(), l.quota()
	return a != nil && b != nil && a.Together && b.Together && k.Region == l.Region && a.Provider == b.Provider &&
		a.GPUs == b.GPUs
}

// route is a way in which a pool may serve all demand of another: in another region, by machines of
// another kind, or both.
type route struct {
	overflow   *instance.Overflow // nil: in the same region
	substitute *Substitute        // nil: by machines of the same kind
	units      domain.Decimal     // machines of the substitute for one
	why        string
}

// route returns how l may serve the demand of k, nil if it may not.
func (c *composer) route(k, l *candidate) *route {
	r := &route{}
	var how string
	if k.Kind == l.Kind {
		if k.Unit != l.Unit || k.shelf.gpus != l.shelf.gpus {
			return nil
		}
	} else if r.substitute, r.units = c.substitute(k, l); r.substitute == nil {
		return nil
	}
	if k.Region != l.Region {
		if r.overflow, how = c.way(k, l); r.overflow == nil {
			return nil
		}
		r.why = fmt.Sprintf("demand of %s may be served in %s: a round trip of %d ms, %s, is within the "+
			"budget of %d ms of every deployment declared for it", k.name(), l.Region, r.overflow.RoundTripMS,
			how, k.LatencyMicros/1000)
		if t := k.transfer(); t.Policy != "" {
			r.why += fmt.Sprintf("; moving it costs %s for a GPU-hour, by the policy %s", t.Price, t.Policy)
		}
	}
	if s := r.substitute; s != nil && r.why == "" {
		how = "estimated"
		if s.Measured {
			how = measured
		}
		r.why = fmt.Sprintf("%s may do the work of %s: %s %s for one %s, %s, by the policy %s", l.name(), k.name(), s.GPUs,
			s.Model, k.Model(), how, s.Policy)
	}
	return r
}

// substitute returns the substitute by which machines of l may do the work of k, and how many of them
// for one of k, rounded up. It is nil if there is none.
func (c *composer) substitute(k, l *candidate) (*Substitute, domain.Decimal) {
	i := slices.IndexFunc(k.Substitutes, func(s Substitute) bool { return s.Model == l.Model() })
	if i < 0 || k.shelf.gpus == 0 || l.shelf.gpus == 0 {
		return nil, domain.Decimal{}
	}
	if both := append(k.workspaces(), l.workspaces()...); l.consumer() && len(both) > 0 &&
		slices.ContainsFunc(both, func(name string) bool { return name != both[0] }) {
		return nil, domain.Decimal{} // parts of machines would be shared by workspaces
	}
	s := &k.Substitutes[i]
	units := s.GPUs.Mul(decimal.NewFromInt(int64(k.shelf.gpus))).
		DivRound(decimal.NewFromInt(int64(l.shelf.gpus)), 18).RoundUp(3)
	if !units.IsPositive() || units.GreaterThanOrEqual(decimal.NewFromInt(100)) {
		return nil, domain.Decimal{} // beyond what a problem can count in fractions of machines
	}
	return s, units
}

// transfer is the highest price of moving work of the pool, zero if none is known.
func (p *Pool) transfer() (most Transfer) {
	for _, t := range p.Transfers {
		if most.Policy == "" || t.Price.Amount.GreaterThan(most.Price.Amount) {
			most = t
		}
	}
	return most
}

// immovable says why the price of moving a pool's work cannot be counted, "" if it can.
func (c *composer) immovable(k *candidate) string {
	for _, t := range k.Transfers {
		switch {
		case t.Price.Amount.IsZero():
		case t.Price.Currency != c.a.Currency:
			return fmt.Sprintf("its demand stays in its region: the policy %s prices moving it in %s, the plan is in %s", t.Policy,
				t.Price.Currency, c.a.Currency)
		case k.shelf.gpus == 0:
			return fmt.Sprintf("its demand stays in its region: the policy %s prices moving it by the GPU, and no offer says how "+
				"many GPUs %s has", t.Policy, k.Kind)
		}
	}
	return ""
}

// way returns the overflow from the region of a pool to that of another, nil if there is none, and
// where its round trip is from. Every deployment declared for the demand must name a latency budget.
// None may be bound to certifications or clusters, or have anti-affinity in only one of the two
// regions, because machines were counted for one of them.
func (c *composer) way(k, l *candidate) (way *instance.Overflow, how string) {
	if k.LatencyMicros < 1000 || len(k.Mix) == 0 || c.immovable(k) != "" {
		return nil, ""
	}
	from, to := c.region(k.Region), c.region(l.Region)
	for i := range k.Mix {
		w := &k.Mix[i]
		if len(w.Certifications)+len(w.Clusters)+len(w.ApartCluster)+len(w.ApartIn) > 0 ||
			len(w.Countries) > 0 && !(slices.Contains(w.Countries, to.Country) &&
				slices.Contains(w.Countries, from.Country)) {
			return nil, ""
		}
	}
	ms, how, ok := from.trip(&to)
	if !ok || uint64(ms) > k.LatencyMicros/1000 {
		return nil, ""
	}
	return &instance.Overflow{From: k.Region, To: l.Region, RoundTripMS: ms, Estimated: how != measured}, how
}

// substitutes are those between the pools of a group, for the demand of each.
func (c *composer) substitutes(g *group) []instance.Substitute {
	var out []instance.Substitute
	for _, k := range g.pools {
		for _, l := range g.pools {
			if k == l || k.left != "" || l.left != "" {
				continue
			}
			r := c.route(k, l)
			if r == nil || r.substitute == nil {
				continue
			}
			s := instance.Substitute{For: c.class(k), Class: c.class(l), Units: r.units, Demands: []string{k.name()}}
			if !slices.ContainsFunc(out, func(x instance.Substitute) bool {
				return x.For == s.For && x.Class == s.Class && x.Demands[0] == s.Demands[0]
			}) {
				out = append(out, s)
			}
		}
	}
	return out
}

func (c *composer) region(name string) Region {
	i := slices.IndexFunc(c.q.Regions, func(r Region) bool { return r.Region == name })
	if i < 0 {
		return Region{Region: name}
	}
	return c.q.Regions[i]
}
