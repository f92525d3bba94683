package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// model is a sorted and fully priced instance, from which the problems of its components are cut.
type model struct {
	of *Instance // as given
	in *Instance // sorted
	at places
	// cal covers the latest end of any term.
	cal *calendar
	// digits is the resolution in which costs are counted, 10⁻ᵈⁱᵍⁱᵗˢ of the currency. It is nine,
	// or fewer where amounts times weights would overflow the solvers' numbers.
	digits int32
	// salvage is the share of the cost of epochs beyond the horizon that is credited.
	salvage   domain.Decimal
	scenarios []Scenario
	weight    int

	region, pool, demand map[string]int
	ways                 [][]route // by demand
	rates                []rate    // by pool
	spends               []string
	spendOf              map[string]int
	supplies             [][][2]procurement.Nano // what supply returns, once it is known
	onDemand, spot       [][]domain.Decimal      // by pool and epoch, nominal; spot with its overhead; nil: not sold
	quotas               map[string][]int        // by epoch

	heldGuaranteed, heldDiscountOnly [][]int // by pool and epoch
	heldSpend                        [][]domain.Decimal
	// What existing commitments cost, by pool; the last is charged to no pool. owed is the present
	// value of all of them, and owedBy its parts.
	heldCash, heldAccrual [][]domain.Decimal
	owed                  domain.Decimal
	owedBy                []domain.Decimal

	loads *loads // shared by all models of an instance

	choices  []listing
	renewals []choice
	// asked are other prices of a lot than the offer's, by choice.
	asked map[int]prices
	// costs are those of one unit of each choice within the horizon, less its salvage.
	costs   []procurement.Nano
	plain   map[[2]int]factors // by start and term, of the model's salvage
	sold    map[string][2]int  // choices [from, to) of an offer or a commitment; nil until an order is placed
	needs   []joint.Need
	bounds  []bound
	outlive int // offers whose terms reach beyond the horizon
	notes   []string

	components []component
}

// component is a set of pools that are independent of all others.
type component struct {
	pools, demands, choices, needs, bounds []int
	spends                                 []int
	// alone is the problem of a single pool that procurement solves exactly, without its offers (see
	// model.alone); joint is that of any other component. One of them is nil.
	alone *procurement.Pool
	joint *joint.Problem
	// first is, for alone, the choice of each offer's first start; those of its other starts follow.
	// Its last entry is the end of the last offer's.
	first []int
}

// newModel prepares a validated instance. terminal replaces the salvage share of terms beyond the
// horizon; nil keeps that of the instance.
func newModel(in *Instance, terminal *domain.Decimal) (*model, error) {
	m := &model{digits: 9, salvage: in.Salvage, loads: newLoads(), plain: map[[2]int]factors{}, asked: map[int]prices{}, of: in}
	if terminal != nil {
		m.salvage = *terminal
	}
	m.in, m.at = in.sorted()
	in = m.in
	m.scenarios = in.weighted()
	for _, s := range m.scenarios {
		m.weight += s.Weight
	}
	index := func(n int, id func(int) string) map[string]int {
		out := make(map[string]int, n)
		for i := range n {
			out[id(i)] = i
		}
		return out
	}
	m.region = index(len(in.Regions), func(i int) string { return in.Regions[i].ID })
	m.pool = index(len(in.Pools), func(i int) string { return in.Pools[i].ID })
	m.demand = index(len(in.Demands), func(i int) string { return in.Demands[i].ID })
	m.spendRates()
	for i := range in.Demands {
		m.ways = append(m.ways, m.routes(&in.Demands[i]))
	}
	reach := in.Epochs
	for i := range in.Offers {
		reach = max(reach, in.Epochs+in.Offers[i].Term)
	}
	end := in.epochs(in.Epochs)[in.Epochs-1].To
	for i := range in.Commitments {
		c := &in.Commitments[i]
		settled, weighed := c.renewals(in.From, end)
		if settled+weighed == 0 || settled+weighed > 2*mostRenewals {
			continue
		}
		from, to := in.From.Time(), c.term(settled+weighed).To.Time()
		if in.Epoch == Days {
			reach = max(reach, int(to.Sub(from).Hours()/24)+1)
		} else {
			reach = max(reach, 12*(to.Year()-from.Year())+int(to.Month()-from.Month())+1)
		}
	}
	var err error
	if m.cal, err = newCalendar(in, reach); err != nil {
		return nil, err
	}
	m.market()
	return m, nil
}

// market computes the hourly prices and quotas of what pools sell.
func (m *model) market() {
	n, spans := m.cal.n, m.cal.spans[:m.cal.n]
	m.quotas = map[string][]int{}
	for i := range m.in.Quotas {
		q := &m.in.Quotas[i]
		limits := q.bounds(spans)
		for e, each := 0, m.in.Takes(q.ID); e < n; e++ {
			if limits[e] != procurement.Unlimited {
				limits[e] -= limits[e] % each
			}
		}
		m.quotas[q.ID] = limits
	}
	pools := len(m.in.Pools)
	m.onDemand, m.spot = make([][]domain.Decimal, pools), make([][]domain.Decimal, pools)
	m.heldGuaranteed, m.heldDiscountOnly = make([][]int, pools), make([][]int, pools)
	for i := range m.in.Pools {
		p := &m.in.Pools[i]
		m.heldGuaranteed[i], m.heldDiscountOnly[i] = make([]int, n), make([]int, n)
		if p.OnDemand != nil {
			m.onDemand[i] = m.in.hourly(p.OnDemand, spans)
		}
		if p.Spot != nil {
			m.spot[i] = m.in.hourly(&p.Spot.Price, spans)
			for e, price := range m.spot[i] {
				m.spot[i][e] = price.DivRound(one.Sub(p.Spot.Overhead), digits)
			}
		}
	}
	zeros := func() []domain.Decimal {
		out := make([]domain.Decimal, n)
		for i := range out {
			out[i] = decimal.Zero
		}
		return out
	}
	m.owedBy = slices.Repeat([]domain.Decimal{decimal.Zero}, pools+1)
	for range pools + 1 {
		m.heldCash, m.heldAccrual = append(m.heldCash, zeros()), append(m.heldAccrual, zeros())
	}
	for range m.spends {
		m.heldSpend = append(m.heldSpend, zeros())
	}
}

// compile states the problems of a validated instance, in the finest unit of the currency in which
// its amounts can be counted.
func compile(in *Instance, terminal *domain.Decimal) (*model, error) {
	return newLoads().compile(context.Background(), in, terminal)
}

// compile is [compile] with the shared demand of the instance and a context.
func (w *loads) compile(ctx context.Context, in *Instance, terminal *domain.Decimal) (*model, error) {
	for _, digits := range []int32{9, 8, 7, 6, 5, 4} {
		m, err := newModel(in, terminal)
		if err != nil {
			return nil, err
		}
		m.digits, m.loads = digits, w
		if !m.fits() {
			continue
		}
		if err = m.states(ctx); !errors.Is(err, errLarge) {
			return m, err
		}
	}
	return nil, fmt.Errorf("instance %q: %w: give fewer or smaller weights, or amounts in thousands", in.Name, ErrTooLarge)
}

func (m *model) states(ctx context.Context) error {
	if err := m.commitments(); err != nil {
		return err
	}
	price := m.pricer()
	m.reserve()
	for i := range m.in.Offers {
		if err := m.offerChoices(i, price); err != nil {
			return err
		}
	}
	if m.large() {
		return errLarge
	}
	if err := m.sells(); err != nil {
		return err
	}
	if err := m.posture(ctx); err != nil {
		return err
	}
	if err := m.limits(ctx); err != nil {
		return err
	}
	m.cut()
	for i := range m.components {
		if err := m.state(ctx, &m.components[i]); err != nil {
			return err
		}
	}
	m.remark()
	return nil
}

// fits reports whether the cost of a unit that is short all the time, over all scenarios, is within
// the range of the solvers.
func (m *model) fits() bool {
	most := decimal.NewFromInt(int64(procurement.MaxWorth)).Shift(-m.digits)
	for i := range m.in.Demands {
		d := &m.in.Demands[i]
		worth := d.Shortage.Mul(m.cal.paid[m.cal.n]).Mul(whole(m.weight))
		if worth.GreaterThan(most) {
			return false
		}
	}
	return true
}

// add adds a choice and its cost.
func (m *model) add(x listing, cost procurement.Nano) {
	m.choices, m.costs = append(m.choices, x), append(m.costs, cost)
}

// reserve makes room for the choices of all offers.
func (m *model) reserve() {
	n := 0
	for i := range m.in.Offers {
		from, to := m.starts(&m.in.Offers[i])
		n += (to - from) * (1 + len(m.in.Offers[i].Tiers))
	}
	m.choices, m.costs = slices.Grow(m.choices, n), slices.Grow(m.costs, n)
}

// cost is that of one unit of a choice within the horizon, less its salvage.
func (m *model) cost(x *choice) procurement.Nano { return m.costs[x.at] }

// large reports whether a choice costs more than the solvers can count.
func (m *model) large() bool {
	return slices.ContainsFunc(m.costs, func(cost procurement.Nano) bool {
		return cost > procurement.MaxWorth/procurement.Nano(m.weight)
	})
}

// cut finds the components.
func (m *model) cut() {
	with := m.blocks()
	groups := map[string]int{}
	spend := map[int]int{}
	for i, r := range m.rates {
		if r.spend >= 0 {
			spend[r.spend] = i
		}
	}
	of := make([]int32, len(m.in.Offers)) // a pool that it covers
	for i := range m.in.Offers {
		if o := &m.in.Offers[i]; o.Kind != domain.OfferSpendCommitment {
			of[i] = int32(m.pool[o.Pool])
		} else {
			of[i] = int32(spend[m.spendOf[o.Spend]])
		}
	}
	home := func(i int) int {
		at := m.choices[i].offer
		if at >= 0 {
			return int(of[at])
		}
		if c := m.renewals[-1-at].goes; c.Kind != domain.OfferSpendCommitment {
			return m.pool[c.Pool]
		} else {
			return spend[m.spendOf[c.Spend]]
		}
	}
	for i := range m.choices {
		g := m.group(i)
		if g == "" {
			continue
		}
		if j, ok := groups[g]; ok {
			with.Join(home(i), j)
		}
		groups[g] = home(i)
	}
	for _, n := range m.needs {
		for _, t := range n.Terms {
			with.Join(n.Terms[0].Pool, t.Pool)
		}
	}
	if len(m.bounds) > 0 {
		for i := range m.in.Pools {
			with.Join(0, i)
		}
	}
	named := map[int]int{} // component by the name of its set
	for i := range m.in.Pools {
		k := with.Find(i)
		c, ok := named[k]
		if !ok {
			c = len(m.components)
			named[k] = c
			m.components = append(m.components, component{})
		}
		m.components[c].pools = append(m.components[c].pools, i)
	}
	in := func(pool int) *component { return &m.components[named[with.Find(pool)]] }
	for i := range m.in.Demands {
		c := in(m.pool[m.in.Demands[i].Pool])
		c.demands = append(c.demands, i)
	}
	for i := range m.choices {
		c := in(home(i))
		c.choices = append(c.choices, i)
	}
	for i := range m.needs {
		c := in(m.needs[i].Terms[0].Pool)
		c.needs = append(c.needs, i)
	}
	for i := range m.bounds {
		m.components[0].bounds = append(m.components[0].bounds, i)
	}
	for s := range m.spends {
		c := in(spend[s])
		c.spends = append(c.spends, s)
	}
	// A component without demand, needs and bounds has nothing to decide.
	m.components = slices.DeleteFunc(m.components, func(c component) bool {
		return len(c.demands)+len(c.needs)+len(c.bounds) == 0
	})
}

// permille converts a share to thousandths, rounded down.
func permille(share domain.Decimal) int { return int(share.Shift(3).IntPart()) }

// single reports whether procurement can solve a component by itself, without its least orders.
func (m *model) single(c *component) bool {
	if len(c.pools) != 1 || len(c.demands) != 1 || len(c.needs)+len(c.bounds)+len(c.spends) > 0 ||
		m.in.Demands[c.demands[0]].waits() {
		return false
	}
	return !slices.ContainsFunc(c.choices, func(i int) bool {
		o := m.offer(i)
		return o == nil || o.Exclusive != "" || len(o.Tiers)+len(o.Ramp) > 0 || max(1, o.Lot)*max(1, o.PerUnit) != 1
	})
}

// state states the problem of a component.
func (m *model) state(ctx context.Context, c *component) error {
	if m.single(c) {
		return m.stateAlone(ctx, c)
	}
	return m.stateJoint(ctx, c)
}

// discounted is the discounted price of an hour in an epoch, as an integer.
func (m *model) discounted(price domain.Decimal, e int) (procurement.Nano, error) {
	return rounded(price.Mul(m.cal.middle[e]), m.digits)
}

// supply prices what a pool sells in an epoch; −1 means not sold.
func (m *model) supply(pool, e int) (onDemand, spot procurement.Nano, err error) {
	if m.supplies != nil {
		x := m.supplies[pool][e]
		return x[0], x[1], nil
	}
	onDemand, spot = -1, -1
	if p := m.onDemand[pool]; p != nil {
		if onDemand, err = m.discounted(p[e], e); err != nil {
			return 0, 0, fmt.Errorf("pool %q: on demand: %w", m.in.Pools[pool].ID, err)
		}
	}
	if p := m.spot[pool]; p != nil {
		if spot, err = m.discounted(p[e], e); err != nil {
			return 0, 0, fmt.Errorf("pool %q: spot: %w", m.in.Pools[pool].ID, err)
		}
	}
	return onDemand, spot, nil
}

// sells prices what all pools sell.
func (m *model) sells() error {
	all := make([][][2]procurement.Nano, len(m.in.Pools))
	for p := range all {
		all[p] = make([][2]procurement.Nano, m.cal.n)
		for e := range all[p] {
			onDemand, spot, err := m.supply(p, e)
			if err != nil {
				return err
			}
			all[p][e] = [2]procurement.Nano{onDemand, spot}
		}
	}
	m.supplies = all
	return nil
}

// spotUnits is the number of units of demand that a pool's spot capacity serves in a scenario.
func (m *model) spotUnits(pool, scenario int) int {
	p := &m.in.Pools[pool]
	if p.Spot == nil {
		return procurement.Unlimited // no spot is sold
	}
	if n, ok := m.scenarios[scenario].Spot[p.ID]; ok {
		return p.Spot.Serves(n)
	}
	if p.Spot.Available != nil {
		return p.Spot.Serves(*p.Spot.Available)
	}
	return procurement.Unlimited
}

// Serves returns how many units of demand a number of spot units serves. Interruptions take their
// share of each hour; the result is rounded down to whole units.
func (s *Spot) Serves(units int) int {
	return int(whole(units).Mul(one.Sub(s.Overhead)).IntPart())
}

func (m *model) stateAlone(ctx context.Context, c *component) error {
	pool := c.pools[0]
	d := &m.in.Demands[c.demands[0]]
	out := &procurement.Pool{ID: m.in.Pools[pool].ID}
	for _, s := range m.scenarios {
		out.Weights = append(out.Weights, s.Weight)
	}
	share := permille(d.Interruptible)
	for e := range m.cal.n {
		x := procurement.Epoch{
			Span: m.cal.spans[e], SpotPermille: share, Quota: procurement.Unlimited,
			HeldGuaranteed: m.heldGuaranteed[pool][e], HeldDiscountOnly: m.heldDiscountOnly[pool][e],
		}
		var err error
		if x.OnDemand, x.Spot, err = m.supply(pool, e); err != nil {
			return err
		}
		if x.Shortage, err = m.discounted(d.Shortage, e); err != nil {
			return fmt.Errorf("demand %q: shortage: %w", d.ID, err)
		}
		if share == 0 || x.Spot > x.Shortage {
			x.Spot, x.SpotPermille = -1, 0 // spot cannot serve this demand
		}
		if q := m.in.Pools[pool].Quota; q != "" {
			if n := m.quotas[q][e]; n != procurement.Unlimited {
				x.Quota = n / max(1, m.in.Pools[pool].QuotaPerUnit)
			}
		}
		out.Epochs = append(out.Epochs, x)
	}
	for s := range m.scenarios {
		if err := ctx.Err(); err != nil {
			return err
		}
		units, err := m.levels(c.demands[0], s)
		if err != nil {
			return err
		}
		for e := range m.cal.n {
			steps := curve(units[m.cal.hours[e]:m.cal.hours[e+1]])
			out.Epochs[e].Cases = append(out.Epochs[e].Cases, procurement.Case{Demand: steps, SpotUnits: m.spotUnits(pool, s)})
		}
	}
	last := int32(-1)
	for _, i := range c.choices {
		if k := m.choices[i].offer; k != last {
			last, c.first = k, append(c.first, i)
		}
	}
	if n := len(c.choices); n > 0 {
		c.first = append(c.first, c.choices[n-1]+1)
	}
	c.alone = out
	return nil
}

// alone is the problem of a single pool, with its offers at the model's costs.
func (m *model) alone(c *component) *procurement.Pool {
	out := *c.alone
	out.Offers = make([]procurement.Offer, 0, len(c.first))
	for k := range len(c.first) - 1 {
		from, to := c.first[k], c.first[k+1]
		o := m.offer(from)
		x := procurement.Offer{
			ID: o.ID, Guaranteed: o.GuaranteesCapacity, Term: o.Term, Starts: make([]procurement.Start, 0, min(to-from, m.cal.n)),
		}
		for i := from; i < to && m.choices[i].offer == m.choices[from].offer; i++ {
			at := &m.choices[i]
			x.Starts = append(x.Starts, procurement.Start{Epoch: int(at.epoch), Cost: m.costs[i], Max: int(at.max)})
		}
		out.Offers = append(out.Offers, x)
	}
	return &out
}

// choiceOf is that of an offer of a single pool and a start epoch, −1 if it is not sold then.
func (m *model) choiceOf(c *component, offer, epoch int) int {
	if offer < 0 || offer >= len(c.first)-1 {
		return -1
	}
	from := c.first[offer]
	for i := from; i < c.first[offer+1] && m.choices[i].offer == m.choices[from].offer; i++ {
		if int(m.choices[i].epoch) == epoch {
			return i
		}
	}
	return -1
}

// boughtAlone is the problem of a single pool with no other starts than those bought, and the purchases.
func (m *model) boughtAlone(c *component, units []int) (*procurement.Pool, []procurement.Purchase) {
	out := *c.alone
	var bought []procurement.Purchase
	last := int32(-1)
	for _, i := range c.choices {
		n := units[i]
		if n == 0 {
			continue
		}
		at := &m.choices[i]
		if o := m.offer(i); at.offer != last {
			out.Offers = append(out.Offers, procurement.Offer{ID: o.ID, Guaranteed: o.GuaranteesCapacity, Term: o.Term})
			last = at.offer
		}
		x := &out.Offers[len(out.Offers)-1]
		x.Starts = append(x.Starts, procurement.Start{Epoch: int(at.epoch), Cost: m.costs[i], Max: int(at.max)})
		bought = append(bought, procurement.Purchase{Offer: len(out.Offers) - 1, Epoch: int(at.epoch), Units: n})
	}
	return &out, bought
}

// repriced is the model under another salvage. Its error wraps errLarge where amounts are counted
// too finely for it.
func (m *model) repriced(salvage domain.Decimal) (*model, error) {
	out := *m
	out.salvage, out.plain, out.costs, out.asked = salvage, map[[2]int]factors{}, slices.Clone(m.costs), nil
	price := out.pricer()
	for i, at := range out.choices {
		if at.offer >= 0 && int(at.epoch)+m.in.Offers[at.offer].Term <= m.cal.n {
			continue // nothing of it is beyond the horizon
		}
		var err error
		if out.costs[i], err = price.of(at); err != nil {
			x := out.choice(i)
			return nil, fault(out.path(i), err, "%q from %s: %v", choiceID(x), day(x.term.From), err)
		}
	}
	return &out, out.recost()
}

// recost gives a copy of a model components with its own costs.
func (m *model) recost() error {
	if m.large() {
		return errLarge
	}
	m.components = slices.Clone(m.components)
	for i := range m.components {
		c := &m.components[i]
		if c.alone != nil {
			continue
		}
		p := *c.joint
		p.Choices = slices.Clone(p.Choices)
		for j, k := range c.choices {
			p.Choices[j].Cost = m.costs[k]
		}
		c.joint = &p
	}
	return nil
}

// curve counts the hours at each level of demand.
func curve(units []int) []procurement.Step {
	low, high := slices.Min(units), slices.Max(units)
	if high-low <= 4*len(units) { // counted, which is faster than sorted
		hours := make([]int32, high-low+1)
		levels := 0
		for _, n := range units {
			if hours[n-low]++; hours[n-low] == 1 {
				levels++
			}
		}
		out := make([]procurement.Step, 0, levels)
		for i, n := range hours {
			if n > 0 && low+i > 0 {
				out = append(out, procurement.Step{Units: low + i, Hours: int(n)})
			}
		}
		return out
	}
	all := slices.Clone(units)
	slices.Sort(all)
	var out []procurement.Step
	for _, n := range all {
		switch {
		case n == 0:
		case len(out) > 0 && out[len(out)-1].Units == n:
			out[len(out)-1].Hours++
		default:
			out = append(out, procurement.Step{Units: n, Hours: 1})
		}
	}
	return out
}

func (m *model) stateJoint(ctx context.Context, c *component) error {
	out := &joint.Problem{ID: m.in.Pools[c.pools[0]].ID, Weight: m.weight}
	pool, spend := map[int]int{}, map[int]int{}
	for i, p := range c.pools {
		pool[p] = i
		out.Pools = append(out.Pools, m.in.Pools[p].ID)
	}
	for i, s := range c.spends {
		spend[s] = i
		out.Spends = append(out.Spends, m.spends[s])
	}
	quota := map[string]int{}
	for _, p := range c.pools {
		if q := m.in.Pools[p].Quota; q != "" {
			if _, ok := quota[q]; !ok {
				quota[q] = len(out.Quotas)
				out.Quotas = append(out.Quotas, q)
			}
		}
	}
	var extra []domain.Decimal
	for i, d := range c.demands {
		of := joint.Demand{ID: m.in.Demands[d].ID, Interruptible: permille(m.in.Demands[d].Interruptible)}
		if m.in.Demands[d].waits() {
			of.Window = m.in.Demands[d].DeferHours
		}
		out.Demands = append(out.Demands, of)
		for _, r := range m.ways[d] {
			out.Routes = append(out.Routes, joint.Route{Demand: i, Pool: pool[r.pool], Num: r.num, Den: r.den})
			extra = append(extra, r.extra)
		}
	}
	for e := range m.cal.n {
		x, err := m.jointEpoch(c, e, extra, quota, spend, out.Quotas)
		if err != nil {
			return err
		}
		out.Epochs = append(out.Epochs, *x)
	}
	if err := m.slots(ctx, c, out); err != nil {
		return err
	}
	for _, i := range c.choices {
		x := m.choice(i)
		y := joint.Choice{ID: choiceID(x), Cost: m.cost(x), Least: x.least, Max: x.max, Lot: 1, Group: x.group}
		for _, v := range x.covers {
			v.Pool = pool[v.Pool]
			y.Cover = append(y.Cover, v)
		}
		for _, v := range x.spends {
			v.Spend = spend[v.Spend]
			y.Spend = append(y.Spend, v)
		}
		if y.Least == 1 {
			y.Least = 0
		}
		for _, b := range c.bounds {
			spent, err := m.spent(x, &m.bounds[b])
			if err != nil {
				return err
			}
			y.Spent = append(y.Spent, spent)
		}
		out.Choices = append(out.Choices, y)
	}
	for _, i := range c.needs {
		n := m.needs[i]
		n.Terms = slices.Clone(n.Terms)
		for j := range n.Terms {
			n.Terms[j].Pool = pool[n.Terms[j].Pool]
		}
		out.Needs = append(out.Needs, n)
	}
	for _, i := range c.bounds {
		out.Limits = append(out.Limits, m.bounds[i].Limit)
	}
	c.joint = out
	return nil
}

func choiceID(x *choice) string {
	if x.goes != nil {
		return fmt.Sprintf("%s goes on %d times", x.goes.ID, x.order.Renewals)
	}
	if x.tier > 0 {
		return fmt.Sprintf("%s from epoch %d, tier of %d", x.offer.ID, x.order.Epoch, x.tier)
	}
	return fmt.Sprintf("%s from epoch %d", x.offer.ID, x.order.Epoch)
}

// spent is what a unit of a choice takes of a bound, rounded up.
func (m *model) spent(x *choice, b *bound) (procurement.Nano, error) {
	if b.budget == nil {
		return 0, nil
	}
	return rounded(m.spentExactly(x, b).Shift(m.digits).Ceil().Shift(-m.digits), m.digits)
}

// spentExactly is what a unit of a choice takes of a budget, in the budget's parts.
func (m *model) spentExactly(x *choice, b *bound) domain.Decimal {
	cash, accrual := m.money(x)
	sum := decimal.Zero
	for e := range m.cal.n {
		switch {
		case !m.inBudget(b.budget, e):
		case b.budget.Basis == Cash:
			sum = sum.Add(cash[e])
		default:
			sum = sum.Add(accrual[e])
		}
	}
	return sum.Mul(whole(b.parts))
}

func (m *model) jointEpoch(
	c *component, e int, extra []domain.Decimal, quota map[string]int, spend map[int]int, quotas []string,
) (*joint.Epoch, error) {
	x := &joint.Epoch{Span: m.cal.spans[e]}
	for _, p := range c.pools {
		s := joint.Supply{
			Quota: -1, Spend: -1, HeldGuaranteed: m.heldGuaranteed[p][e], HeldDiscountOnly: m.heldDiscountOnly[p][e],
		}
		var err error
		if s.OnDemand, s.Spot, err = m.supply(p, e); err != nil {
			return nil, err
		}
		if q := m.in.Pools[p].Quota; q != "" {
			s.Quota, s.QuotaPerUnit = quota[q], max(1, m.in.Pools[p].QuotaPerUnit)
		}
		if r := m.rates[p]; r.spend >= 0 && s.OnDemand >= 0 {
			s.Spend = spend[r.spend]
			if s.SpendPrice, err = rounded(r.price, m.digits); err != nil {
				return nil, fmt.Errorf("pool %q: committed price: %w", m.in.Pools[p].ID, err)
			}
			s.SpendPrice = max(1, s.SpendPrice)
		}
		x.Pools = append(x.Pools, s)
	}
	for _, price := range extra {
		n, err := m.discounted(price, e)
		if err != nil {
			return nil, fmt.Errorf("overflow: %w", err)
		}
		x.Routes = append(x.Routes, n)
	}
	for _, d := range c.demands {
		n, err := m.discounted(m.in.Demands[d].Shortage, e)
		if err != nil {
			return nil, fmt.Errorf("demand %q: shortage: %w", m.in.Demands[d].ID, err)
		}
		x.Shortage = append(x.Shortage, n)
	}
	for _, q := range quotas {
		x.Quotas = append(x.Quotas, m.quotas[q][e])
	}
	for _, s := range c.spends {
		n, err := rounded(m.heldSpend[s][e], m.digits)
		if err != nil {
			return nil, fmt.Errorf("commitment to spend %q: %w", m.spends[s], err)
		}
		x.Spends = append(x.Spends, n)
	}
	for s := range m.scenarios {
		k := joint.Case{Weight: m.scenarios[s].Weight}
		for _, p := range c.pools {
			k.Spot = append(k.Spot, m.spotUnits(p, s))
		}
		x.Cases = append(x.Cases, k)
	}
	return x, nil
}

// slots counts the hours of each combination of demands, or lists all hours if some demand waits.
func (m *model) slots(ctx context.Context, c *component, out *joint.Problem) error {
	if len(c.demands) == 0 {
		return nil
	}
	some := slices.ContainsFunc(c.demands, func(d int) bool { return m.in.Demands[d].waits() })
	for s := range m.scenarios {
		all, waits := make([][]int, len(c.demands)), make([][]int, len(c.demands))
		for i, d := range c.demands {
			err := ctx.Err()
			if err != nil {
				return err
			}
			if all[i], err = m.levels(d, s); err != nil {
				return err
			}
			if m.in.Demands[d].waits() {
				if waits[i], err = m.waiting(d, s); err != nil {
					return err
				}
			}
		}
		if some {
			m.hourly(all, waits, s, out)
			continue
		}
		for e := range m.cal.n {
			if err := ctx.Err(); err != nil {
				return err
			}
			from, to := m.cal.hours[e], m.cal.hours[e+1]
			order := make([]int64, 0, to-from)
			for h := from; h < to; h++ {
				order = append(order, h)
			}
			compare := func(a, b int64) int {
				for i := range all {
					if c := cmp.Compare(all[i][a], all[i][b]); c != 0 {
						return c
					}
				}
				return 0
			}
			slices.SortFunc(order, compare)
			k := &out.Epochs[e].Cases[s]
			for i, h := range order {
				if i > 0 && compare(order[i-1], h) == 0 {
					if n := len(k.Slots); n > 0 {
						k.Slots[n-1].Hours++
					}
					continue
				}
				units, some := make([]int, len(all)), false
				for j := range all {
					units[j] = all[j][h]
					some = some || units[j] > 0
				}
				if some {
					k.Slots = append(k.Slots, joint.Slot{Hours: 1, Units: units})
				}
			}
		}
	}
	return nil
}

// hourly lists all hours of a scenario.
func (m *model) hourly(all, waits [][]int, s int, out *joint.Problem) {
	for e := range m.cal.n {
		k := &out.Epochs[e].Cases[s]
		for h := m.cal.hours[e]; h < m.cal.hours[e+1]; h++ {
			x := joint.Slot{Hours: 1, Units: make([]int, len(all)), Waits: make([]int, len(all))}
			for i := range all {
				if x.Units[i] = all[i][h]; waits[i] != nil {
					x.Waits[i] = waits[i][h]
				}
			}
			k.Slots = append(k.Slots, x)
		}
	}
}

// Takes is the amount of a quota that one unit takes, 1 if its pools differ. A remainder of the
// quota below this amount is unusable.
func (in *Instance) Takes(quota string) int {
	each := 0
	for i := range in.Pools {
		if p := &in.Pools[i]; p.Quota == quota {
			if n := max(1, p.QuotaPerUnit); each == 0 || each == n {
				each = n
			} else {
				return 1
			}
		}
	}
	return max(1, each)
}

// fractions reports whether units of a component may serve for part of an hour. That is so where
// units that take unequal amounts share a quota, or one unit substitutes for another at a ratio.
func (m *model) fractions() bool {
	return slices.ContainsFunc(m.components, func(c component) bool {
		return c.joint != nil && (slices.ContainsFunc(c.pools, func(p int) bool {
			q := &m.in.Pools[p]
			return q.Quota != "" && q.QuotaPerUnit > m.in.Takes(q.Quota)
		}) ||
			slices.ContainsFunc(c.joint.Routes, func(r joint.Route) bool { return r.Num != r.Den }))
	})
}

// remark adds the notes that a reader needs to understand the answer.
func (m *model) remark() {
	note := func(text string, args ...any) { m.notes = append(m.notes, fmt.Sprintf(text, args...)) }
	if m.outlive > 0 {
		note("of what terms cost beyond the horizon %s counts as worth keeping (offers that may reach so far: "+
			"%d); end_of_horizon says how much rests on that, with nothing and with all of it", m.salvage, m.outlive)
	}
	if slices.ContainsFunc(m.in.Offers, func(o Offer) bool { return o.Owned != nil && o.Owned.Salvage.IsPositive() }) {
		note("hardware that is owned is sold at the end of its life for its own salvage, discounted from then; " +
			"what running it costs beyond the horizon counts for nothing, as what it serves there does")
	}
	for i := range m.in.Pools {
		p := &m.in.Pools[i]
		if p.OnDemand == nil {
			note("pool %q sells nothing on demand", p.ID)
		} else if len(p.OnDemand.Path) > 0 {
			note("where the price of pool %q changes within an epoch, the epoch's price is its mean over the hours", p.ID)
		}
	}
	for i := range m.in.Demands {
		d := &m.in.Demands[i]
		if p := &m.in.Pools[m.pool[d.Pool]]; p.Quota == "" && p.OnDemand != nil {
			note("no quota bounds what demand %q takes on demand of pool %q", d.ID, p.ID)
		}
	}
	for i := range m.in.Demands {
		d := &m.in.Demands[i]
		if d.Buffer != nil {
			note("demand %q is served with spare units for failures: they are shown apart, as standing by, "+
				"neither used nor idle; what is not served counts as spares first", d.ID)
		}
		for s := range m.scenarios {
			x := &m.scenarios[s]
			if f, named := x.Factors[d.ID]; x.Hourly[d.ID] == nil && (x.Factor != 0 && x.Factor != 1000 || named && f != 1000) {
				note("where scenarios multiply demand %q each hour is rounded up to whole units, so that few "+
					"units grow by more than the factor", d.ID)
				break
			}
		}
	}
	for i := range m.in.Overflow {
		if s := &m.in.Overflow[i]; s.Estimated {
			note("the round trip from %q to %q is estimated, %d ms", s.From, s.To, s.RoundTripMS)
		}
	}
	if m.fractions() {
		note("within an hour units may serve for a part of it, and take as much of a quota: in whole units a " +
			"little less may be served")
	}
	for i := range m.in.Budgets {
		counted := ""
		for j := range m.bounds {
			if b := &m.bounds[j]; b.budget == &m.in.Budgets[i] && !b.exact {
				counted = fmt.Sprintf("; what is served by the hour counts at up to %s%% above what it costs; the "+
					"lower bound allows for that", thousand.Div(whole(10*b.parts)).Shift(-3).Round(5))
			}
		}
		note("budget %q holds in expectation over the scenarios, and a scenario of more demand may exceed it%s",
			m.in.Budgets[i].ID, counted)
	}
	if m.digits < 9 {
		note("amounts are counted in 10⁻%d of the currency, because amounts times weights are large", m.digits)
	}
	slices.Sort(m.notes)
	m.notes = slices.Compact(m.notes)
}
