package instance

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// mostGroups bounds the number of groups of protected demand with different possible pools: every
// union of groups is a need of its own.
const mostGroups = 10

// protected returns the demands that a posture protects.
func (m *model) protected() []int {
	var out []int
	for i := range m.in.Demands {
		d := &m.in.Demands[i]
		if p := m.in.Posture; slices.Contains(p.Demands, d.ID) ||
			len(p.Demands) == 0 && domain.WorkloadClass(d.Class) == domain.ClassServing {
			out = append(out, i)
		}
	}
	return out
}

// loss is what may be lost: a region or a provider.
type loss struct{ id, words string }

// posture states the needs for the loss of each region, or of each provider.
//
// For each that can be lost, and each set of protected demands, the guaranteed capacity
// elsewhere that may serve any of the set must carry the peak of their sum. This is necessary for
// each set, and for all sets together it is sufficient (Hall, 1935; Gale, 1957), because then
// demand can be divided among the pools in every hour. Demands that may go to the same pools form
// one group. Where one kind of unit substitutes for another at a ratio, a set counts its worst
// ratio, which is sufficient but may exceed what is necessary.
func (m *model) posture(ctx context.Context) error {
	p := m.in.Posture
	if p == nil || p.Share.IsZero() {
		return nil
	}
	demands := m.protected()
	if p.Kind == MultiProvider {
		for _, provider := range m.in.providers() {
			l := loss{"provider " + provider, fmt.Sprintf("provider %q", provider)}
			if err := m.survive(ctx, l, demands, func(pool int) bool { return m.in.Pools[pool].Provider != provider }); err != nil {
				return err
			}
		}
		return nil
	}
	lost := map[int][]int{} // home regions with their demands
	for _, i := range demands {
		r := m.region[m.in.Pools[m.pool[m.in.Demands[i].Pool]].Region]
		lost[r] = append(lost[r], i)
	}
	for r := range m.in.Regions {
		var err error
		l := loss{m.in.Regions[r].ID, fmt.Sprintf("region %q", m.in.Regions[r].ID)}
		switch {
		case p.Kind == ActiveActive:
			err = m.survive(ctx, l, demands, func(pool int) bool { return m.region[m.in.Pools[pool].Region] != r })
		case len(lost[r]) == 0 || m.in.Regions[r].ID == p.Standby:
		default:
			standby := m.region[p.Standby]
			there := func(pool int) bool { return m.region[m.in.Pools[pool].Region] == standby }
			if p.Cold != nil {
				err = m.cold(ctx, l, lost[r], there)
			} else {
				err = m.survive(ctx, l, slices.Concat(lost[r], lost[standby]), there)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// providers are those of the pools, in order.
func (in *Instance) providers() []string {
	var out []string
	for i := range in.Pools {
		out = append(out, in.Pools[i].Provider)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// most is the largest amount of a pool that a unit of any of these demands takes, by their routes.
// ok is false if the pool may serve none of them.
func (m *model) most(pool int, demands []int) (num, den int, ok bool) {
	for _, i := range demands {
		for _, r := range m.ways[i] {
			if r.pool == pool && (!ok || int64(r.num)*int64(den) > int64(num)*int64(r.den)) {
				num, den, ok = r.num, r.den, true
			}
		}
	}
	return num, den, ok
}

// unprotected is the fault of a demand that no other pool can take over.
func (m *model) unprotected(demand int, lost loss) error {
	return fault(fmt.Sprintf("/demands/%d", m.at.demands[demand]), nil,
		"it is protected, and when %s is lost no pool elsewhere may serve it: see latency_budget_ms, "+
			"countries, certifications, overflow and substitutes", lost.words)
}

// survive adds the needs of demands when something is lost and the remaining pools are those for
// which remains is true.
func (m *model) survive(ctx context.Context, lost loss, demands []int, remains func(pool int) bool) error {
	// Group demands by their remaining pools.
	var groups [][]int
	byPools := map[string]int{}
	for _, i := range demands {
		var key strings.Builder
		for _, r := range slices.SortedFunc(slices.Values(m.ways[i]), func(a, b route) int {
			return cmp.Compare(a.pool, b.pool)
		}) {
			if remains(r.pool) {
				fmt.Fprintf(&key, "%d ", r.pool)
			}
		}
		if key.Len() == 0 {
			return m.unprotected(i, lost)
		}
		g, ok := byPools[key.String()]
		if !ok {
			g = len(groups)
			byPools[key.String()] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	if len(groups) > mostGroups {
		return fault("/posture/demands", nil,
			"protected demand may go %d different ways when %s is lost, more than the %d that are weighed",
			len(groups), lost.words, mostGroups)
	}
	peaks, err := m.peaks(ctx, groups)
	if err != nil {
		return err
	}
	type need struct {
		pools []joint.NeedTerm
		key   string
		set   int
	}
	var needs []need
	for set := 1; set < 1<<len(groups); set++ {
		var of []int
		for g := range groups {
			if set&(1<<g) != 0 {
				of = append(of, groups[g]...)
			}
		}
		var n need
		n.set = set
		for pool := range m.in.Pools {
			num, den, ok := m.most(pool, of)
			if !ok || !remains(pool) {
				continue
			}
			counts := needScale * den / num
			if counts == 0 { // one unit takes more than a thousand of it: too little to count
				continue
			}
			n.pools = append(n.pools, joint.NeedTerm{Pool: pool, PerUnit: counts})
			n.key += fmt.Sprintf("%d:%d ", pool, counts)
		}
		if len(n.pools) == 0 {
			return fault("/posture", nil,
				"when %s is lost, a unit of protected demand takes more than %d units of whatever pool "+
					"remains: count that class in larger units", lost.words, needScale)
		}
		needs = append(needs, n)
	}
	// Of sets with the same capacity the largest implies the others.
	slices.SortStableFunc(needs, func(a, b need) int { return bits.OnesCount(uint(b.set)) - bits.OnesCount(uint(a.set)) })
	seen := map[string][]int{}
	for _, n := range needs {
		if slices.ContainsFunc(seen[n.key], func(larger int) bool { return larger&n.set == n.set }) {
			continue
		}
		seen[n.key] = append(seen[n.key], n.set)
		m.need(lost, n.set, n.pools, peaks[n.set])
	}
	return nil
}

// needScale is the count of one unit of demand in a need, so that fractions of a pool's units are
// integers.
const needScale = 1000

// need adds one need for all epochs with the same peak.
func (m *model) need(lost loss, set int, terms []joint.NeedTerm, peaks []int) {
	permille := m.in.Posture.Share.Shift(3).Ceil().IntPart()
	scale := needScale
	if !slices.ContainsFunc(terms, func(t joint.NeedTerm) bool { return t.PerUnit != needScale }) {
		scale, terms = 1, slices.Clone(terms)
		for i := range terms {
			terms[i].PerUnit = 1
		}
	}
	by := map[int][]int{}
	for e, peak := range peaks {
		if n := int((int64(peak)*permille + 999) / 1000); n > 0 {
			by[n*scale] = append(by[n*scale], e)
		}
	}
	var least []int
	for n := range by {
		least = append(least, n)
	}
	slices.Sort(least)
	for _, n := range least {
		m.needs = append(m.needs, joint.Need{
			ID:     fmt.Sprintf("loss of %s, demand set %d, %d units", lost.id, set, n/scale),
			Epochs: by[n], Terms: terms, Least: n,
		})
	}
}

// mostSums bounds the number of demand sums for a posture: unions of groups times hours times
// scenarios.
const mostSums = 20_000_000_000

// peaks returns for each union of groups its largest demand in one hour of each epoch, over all
// scenarios. Demand is not deferred here, because capacity for a loss must not depend on deferral.
// Results for the same groups are cached.
func (m *model) peaks(ctx context.Context, groups [][]int) ([][]int, error) {
	key := fmt.Sprint(groups)
	if known := m.loads.peak(key, nil); known != nil {
		return known, nil
	}
	if n := m.cal.hours[m.cal.n] * int64(len(m.scenarios)); n > mostSums>>len(groups) {
		return nil, fault("/posture/demands", nil, "protected demand may go %d different ways, which over %d "+
			"hours of scenarios is more than is weighed: protect fewer demands, shorten the horizon or give fewer "+
			"scenarios", len(groups), n)
	}
	out := make([][]int, 1<<len(groups))
	for i := range out {
		out[i] = make([]int, m.cal.n)
	}
	sums := make([][]int, len(groups))
	for s := range m.scenarios {
		for g, demands := range groups {
			sums[g] = make([]int, m.cal.hours[m.cal.n])
			for _, i := range demands {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				units, err := m.levels(i, s)
				if err != nil {
					return nil, err
				}
				for h, n := range units {
					sums[g][h] += n
				}
			}
		}
		total := make([]int, len(out))
		for e := range m.cal.n {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for h := m.cal.hours[e]; h < m.cal.hours[e+1]; h++ {
				for set := 1; set < len(out); set++ {
					low := bits.TrailingZeros(uint(set))
					total[set] = total[set&(set-1)] + sums[low][h]
					out[set][e] = max(out[set][e], total[set])
				}
			}
		}
	}
	return m.loads.peak(key, out), nil
}

// cold adds the cost of a standby that is bought on demand when needed: the cheapest pool there,
// for the peak of what is lost.
func (m *model) cold(ctx context.Context, lost loss, demands []int, there func(pool int) bool) error {
	p := m.in.Posture
	permille := m.in.Posture.Share.Shift(3).Ceil()
	for _, i := range demands {
		both, err := m.peaks(ctx, [][]int{{i}})
		if err != nil {
			return err
		}
		peaks := both[1]
		d := &m.in.Demands[i]
		sum, found := decimal.Zero, false
		for e := range m.cal.n {
			var best *domain.Decimal
			for _, r := range m.ways[i] {
				if pool := &m.in.Pools[r.pool]; there(r.pool) && pool.OnDemand != nil {
					price := m.onDemand[r.pool][e].Mul(whole(r.num)).DivRound(whole(r.den), digits)
					if best == nil || price.LessThan(*best) {
						best = &price
					}
				}
			}
			if best == nil {
				break
			}
			found = true
			hourly := best.Mul(*p.Cold).Mul(whole(peaks[e])).Mul(permille).Shift(-3)
			money := hourly.Mul(whole(m.cal.hoursIn(e, e+1)))
			cash, of := m.heldCash[len(m.in.Pools)], m.heldAccrual[len(m.in.Pools)]
			cash[e], of[e] = cash[e].Add(money), of[e].Add(money)
			sum = sum.Add(money.Mul(m.cal.middle[e]))
		}
		if !found {
			return m.unprotected(i, lost)
		}
		m.owe(len(m.in.Pools), sum)
		m.notes = append(m.notes,
			fmt.Sprintf("demand %q keeps a cold standby in %q for the loss of %q, at %s of the price on demand: a "+
				"cost, and no guarantee of capacity",
				d.ID, p.Standby, lost.id, *p.Cold))
	}
	return nil
}

// limits states budgets and the limits of the answer as a whole.
func (m *model) limits(ctx context.Context) error {
	for i := range m.in.Budgets {
		b := &m.in.Budgets[i]
		l := joint.Limit{ID: "budget " + b.ID, Serving: make([]int64, m.cal.n)}
		left, undo := b.Amount, make([]domain.Decimal, m.cal.n)
		for e := range m.cal.n {
			if !m.inBudget(b, e) {
				continue
			}
			for _, of := range m.heldOn(b.Basis) {
				left = left.Sub(of[e])
			}
			undo[e] = thousand.DivRound(m.cal.middle[e], digits)
			if undo[e].GreaterThan(whole(joint.MaxRatio)) {
				return fault("/annual_rate", nil,
					"at a rate of %s money in %s is worth less than a hundredth of its amount today, too little "+
						"for budget %q to be kept with: lower the rate or shorten the horizon", m.in.AnnualRate,
					day(m.cal.spans[e].From), b.ID)
			}
		}
		path := fmt.Sprintf("/budgets/%d", m.at.budgets[i])
		if left.IsNegative() {
			return &Infeasible{Constraints: []Constraint{
				{path + "/amount", fmt.Sprintf("budget %q of %s %s (%s)", b.ID, b.Amount, m.in.Currency, b.Basis)},
				{"/commitments", fmt.Sprintf("what is held already takes %s more than that", left.Neg().Round(2))},
			}}
		}
		most, err := rounded(left.Shift(m.digits).Floor().Shift(-m.digits), m.digits)
		if err != nil { // an amount too large to count is no bound
			m.notes = append(m.notes, fmt.Sprintf("budget %q is larger than any plan of this size and bounds nothing", b.ID))
			continue
		}
		l.Most = most
		x := bound{Limit: l, budget: b, path: path, parts: 1, left: left}
		if err := m.refine(&x, left, undo); err != nil {
			return err
		}
		m.bounds = append(m.bounds, x)
	}
	total, counted := decimal.Zero, false
	count := func(share *domain.Decimal, l joint.Limit, path string) error {
		if share == nil {
			return nil
		}
		for s := range m.scenarios {
			for i := range m.in.Demands {
				if counted {
					break
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				units, err := m.levels(i, s)
				if err != nil {
					return err
				}
				sum := int64(0)
				for _, n := range units {
					sum += int64(n)
				}
				total = total.Add(whole(sum).Mul(whole(m.scenarios[s].Weight)))
			}
		}
		counted = true
		l.Most = procurement.Nano(share.Mul(total).DivRound(whole(m.weight), digits).Floor().IntPart())
		l.Serving = make([]int64, m.cal.n)
		for e := range l.Serving {
			l.Serving[e] = 1000
		}
		m.bounds = append(m.bounds, bound{Limit: l, path: path, parts: 1, exact: true})
		return nil
	}
	if err := count(m.in.Limits.MaxUnservedShare, joint.Limit{ID: "unserved share", Unserved: true},
		"/limits/max_unserved_share"); err != nil {
		return err
	}
	return count(m.in.Limits.MaxSpotShare, joint.Limit{ID: "spot share", Spot: true}, "/limits/max_spot_share")
}

// bound is a limit and where it comes from.
type bound struct {
	joint.Limit
	budget *Budget
	path   string
	// parts multiplies a budget's amount and what is taken of it, so that rounding up the factor
	// that undoes the discount adds little.
	parts int64
	left  domain.Decimal // of the budget, after existing commitments
	// exact means that nothing was rounded.
	exact bool
}

// refine multiplies a budget by as many parts as the solvers' numbers allow. undo is the factor
// that undoes the discount of each epoch, in thousandths; 0 outside the budget.
//
// The solvers know discounted prices and multiply them by undo · parts, rounded up to an integer of
// at most joint.MaxRatio. So on-demand and spot use are overcounted by less than 1/(undo · parts),
// undo being at least 1000. With the parts that MaxRatio leaves, that is below 0.002 % where money
// of the budget's last epoch is worth at least half of its amount today, and below 0.1 % with a
// single part. Purchases and existing commitments are counted exactly. The budget is thus always
// kept, and at most that share of it is left unused. Without a discount, or where undo is an
// integer, nothing is rounded.
//
// Counting exactly would require the nominal price of each pool and route in the solvers, in
// addition to the discounted one. A bound of the tighter problem is lowered so that it holds for
// the stated one ([model.bounded]).
func (m *model) refine(x *bound, left domain.Decimal, undo []domain.Decimal) error {
	most := slices.MaxFunc(undo, domain.Decimal.Cmp)
	if !most.IsPositive() {
		x.exact = true
		return nil
	}
	x.exact = !slices.ContainsFunc(undo, func(u domain.Decimal) bool { return !u.IsInteger() })
	for parts := whole(joint.MaxRatio).Div(most).IntPart(); parts > 1 && !x.exact; parts /= 2 {
		x.parts = parts
		sum, err := rounded(left.Mul(whole(parts)).Shift(m.digits).Floor().Shift(-m.digits), m.digits)
		if err != nil || sum > 9*joint.MaxCost {
			x.parts = 1
			continue
		}
		fits := true
		for i := range m.choices {
			spent, err := m.spent(m.choice(i), x)
			if fits = err == nil && spent <= joint.MaxCost; !fits {
				break
			}
		}
		if fits {
			x.Most = sum
			break
		}
		x.parts = 1
	}
	for e, u := range undo {
		if u.IsPositive() {
			x.Serving[e] = u.Mul(whole(x.parts)).Ceil().IntPart()
		}
	}
	return nil
}

func (m *model) inBudget(b *Budget, e int) bool {
	s := m.cal.spans[e]
	return s.From >= b.Interval.From && (b.Interval.To == 0 || s.To <= b.Interval.To)
}
