package question

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// Problem is a group of pools as the question asks it: what a certificate of the answer is held
// against. Amounts are integers of the answer's resolution, discounted; bounds of −1 are none.
// Lists are in the order that the answer's schema gives (solution).
type Problem struct {
	Pools, Quotas, Spends []string
	Weights               []int // by scenario
	Demands               []Demand
	Routes                []Route
	Epochs                []Epoch
	Choices               []Choice
	Needs                 []Need
	Limits                []Limit
	// Plain: one pool with one demand and plain offers.
	Plain bool
}

// waits reports whether work of some demand may wait.
func (p *Problem) waits() bool {
	return slices.ContainsFunc(p.Demands, func(d Demand) bool { return d.Window > 0 })
}

// Weight is the sum of the weights.
func (p *Problem) Weight() int {
	sum := 0
	for _, w := range p.Weights {
		sum += w
	}
	return sum
}

// Demand is units wanted by the hour. Interruptible is in thousandths. Window is the hours of the
// windows in which it may wait, 0 if it does not.
type Demand struct {
	ID                    string
	Interruptible, Window int
}

// Route lets a pool serve a demand, of which a unit takes Num/Den units of the pool.
type Route struct{ Demand, Pool, Num, Den int }

// Epoch is the prices and the demand of an epoch.
type Epoch struct {
	Span             domain.Interval
	Pools            []Supply
	Routes, Shortage []int64 // by route and by demand
	Quotas           []int   // in its own units
	Spends           []int64 // held, by the hour
	Cases            []Case  // by scenario
}

// Supply is what a pool sells and holds. Quota and Spend are positions in the problem's lists, −1:
// none.
type Supply struct {
	OnDemand, Spot       int64 // −1: not sold
	Guaranteed, Discount int
	Quota, QuotaPerUnit  int
	Spend                int
	SpendPrice           int64
}

// Case is an epoch in a scenario: units of spot that serve by pool, and hours of equal demand,
// ascending, without those of none; or all hours in their order where some demand waits.
type Case struct {
	Spot  []int
	Slots []Slot
}

// Slot is a number of hours in which demands want just these units. Waits is how many of them may
// wait, nil if none.
type Slot struct {
	Hours        int
	Units, Waits []int
}

// Choice is what can be bought, in lots.
type Choice struct {
	Offer       string // "": further terms
	Commitment  string // that goes on
	Renewals    int
	Epoch       int
	Term        int // epochs of an offer
	Cost        int64
	Least, Most int
	Covers      []Cover
	Spends      []SpendCover
	Spent       []int64 // by limit
	// Exactly is Spent before it is rounded.
	Exactly []domain.Decimal
	Group   string
}

// Cover is what a lot covers in epochs [From, To).
type Cover struct {
	Pool, From, To, Units int
	Guaranteed            bool
}

// SpendCover is what a lot commits to spend in an hour of epochs [From, To).
type SpendCover struct {
	Spend, From, To int
	PerHour         int64
}

// Need is guaranteed capacity: Σ PerUnit · units ≥ Least.
type Need struct {
	Epochs []int
	Terms  []NeedTerm
	Least  int
}

// NeedTerm is a pool's part in a need.
type NeedTerm struct{ Pool, PerUnit int }

// Limit bounds money, or unit-hours that are unserved or on spot. Serving takes thousandths of its
// discounted money, by epoch.
type Limit struct {
	Name           string
	Most           int64
	Serving        []int64
	Unserved, Spot bool
	// Of a budget: what is left of it and what serving costs nominally, before it is counted in
	// Parts and rounded, and the nominal prices of serving by epoch.
	Budget  bool
	Left    domain.Decimal
	Parts   int64
	Digits  int32
	Nominal [][]domain.Decimal
	Priced  [][]int64 // the same prices, discounted
}

// discounted is a price by the hour of an epoch.
func (r *reading) discounted(v domain.Decimal, e int) (int64, error) {
	return rounded(v.Mul(r.cal.middle[e]), r.digits)
}

// onSpot is how many units spot of a pool serves in a scenario, −1 without bound.
func (r *reading) onSpot(pool, s int) int {
	p := &r.doc.Pools[pool]
	if p.Spot == nil {
		return -1
	}
	units := -1
	if p.Spot.Available != nil {
		units = *p.Spot.Available
	}
	if n, ok := r.scenarios[s].Spot[p.ID]; ok {
		units = n
	}
	if units < 0 {
		return -1
	}
	return int(whole(units).Mul(one.Sub(p.Spot.Overhead)).IntPart())
}

// spared are the spares of a group's demands by demand, scenario and epoch.
type spared [][][]int64

// problem states a group.
func (r *reading) problem(g *group) (*Problem, spared, error) {
	p := &Problem{}
	for _, s := range r.scenarios {
		p.Weights = append(p.Weights, s.Weight)
	}
	pool, quotas := map[int]int{}, map[string]int{}
	for i, n := range g.pools {
		pool[n] = i
		p.Pools = append(p.Pools, r.doc.Pools[n].ID)
		if q := r.doc.Pools[n].Quota; q != "" {
			if _, ok := quotas[q]; !ok {
				quotas[q] = len(p.Quotas)
				p.Quotas = append(p.Quotas, q)
			}
		}
	}
	spends := map[int]int{}
	for i, s := range g.spends {
		spends[s] = i
		p.Spends = append(p.Spends, r.spends[s])
	}
	var extra []domain.Decimal
	for i, n := range g.demands {
		d := &r.doc.Demands[n]
		window := 0
		if d.waits() {
			window = d.DeferHours
		}
		p.Demands = append(p.Demands, Demand{d.ID, thousandths(d.Interruptible), window})
		for _, way := range r.routes[n] {
			p.Routes = append(p.Routes, Route{i, pool[way.pool], way.num, way.den})
			extra = append(extra, way.extra)
		}
	}
	for e := range r.cal.n {
		x, err := r.epoch(g, e, extra, quotas, spends)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", r.cal.name(e), err)
		}
		for _, q := range p.Quotas {
			x.Quotas = append(x.Quotas, r.quotas[q][e])
		}
		p.Epochs = append(p.Epochs, *x)
	}
	spare, err := r.slots(g, p)
	if err != nil {
		return nil, nil, err
	}
	p.Choices = make([]Choice, len(g.choices))
	var c choice
	covers := make([]Cover, 0, len(g.choices))
	for j, n := range g.choices {
		if err := r.price(n, &c); err != nil {
			return nil, nil, err
		}
		at := len(covers)
		for _, v := range c.covers {
			v.Pool = pool[v.Pool]
			covers = append(covers, v)
		}
		p.Choices[j].Covers = covers[at:len(covers):len(covers)]
		if err := r.sold(&p.Choices[j], &c, g, spends); err != nil {
			return nil, nil, err
		}
	}
	for _, i := range g.needs {
		n := Need{Epochs: r.needs[i].epochs, Least: r.needs[i].least}
		for _, t := range r.needs[i].terms {
			n.Terms = append(n.Terms, NeedTerm{pool[t.Pool], t.PerUnit})
		}
		p.Needs = append(p.Needs, n)
	}
	for _, i := range g.bounds {
		p.Limits = append(p.Limits, r.limited(&r.bounds[i], g, extra, p))
	}
	p.Plain = len(g.pools) == 1 && len(g.demands) == 1 && !p.waits() && len(g.needs)+len(g.bounds)+len(g.spends) == 0 &&
		!slices.ContainsFunc(g.choices, func(i int) bool {
			if r.choices[i].offer < 0 {
				return true
			}
			o := &r.doc.Offers[r.choices[i].offer]
			return o.Exclusive != "" || len(o.Tiers)+len(o.Ramp) > 0 || max(1, o.Lot)*max(1, o.PerUnit) != 1
		})
	return p, spare, nil
}

func (r *reading) limited(x *bound, g *group, extra []domain.Decimal, p *Problem) Limit {
	l := Limit{Name: x.name, Most: x.most, Serving: x.serving, Unserved: x.unserved, Spot: x.spot}
	if x.budget == nil {
		return l
	}
	l.Budget, l.Left, l.Parts, l.Digits = true, x.left, x.parts, r.digits
	l.Nominal, l.Priced = make([][]domain.Decimal, r.cal.n), make([][]int64, r.cal.n)
	for e := range r.cal.n {
		add := func(nominal domain.Decimal, priced int64) {
			l.Nominal[e], l.Priced[e] = append(l.Nominal[e], nominal), append(l.Priced[e], priced)
		}
		for i, n := range g.pools {
			if r.onDemand[n] != nil {
				add(r.onDemand[n][e], p.Epochs[e].Pools[i].OnDemand)
			}
			if r.spot[n] != nil {
				add(r.spot[n][e], p.Epochs[e].Pools[i].Spot)
			}
		}
		for i, v := range extra {
			add(v, p.Epochs[e].Routes[i])
		}
	}
	return l
}

func (r *reading) epoch(g *group, e int, extra []domain.Decimal, quotas map[string]int, spends map[int]int) (*Epoch, error) {
	x := &Epoch{Span: r.cal.span(e)}
	var err error
	price := func(v domain.Decimal) int64 {
		n, failed := r.discounted(v, e)
		err = cmp.Or(err, failed)
		return n
	}
	for _, n := range g.pools {
		p := &r.doc.Pools[n]
		s := Supply{
			OnDemand: -1, Spot: -1, Guaranteed: r.guaranteed[n][e], Discount: r.discount[n][e], Quota: -1, Spend: -1,
		}
		if r.onDemand[n] != nil {
			s.OnDemand = price(r.onDemand[n][e])
		}
		if r.spot[n] != nil {
			s.Spot = price(r.spot[n][e])
		}
		if p.Quota != "" {
			s.Quota, s.QuotaPerUnit = quotas[p.Quota], max(1, p.QuotaPerUnit)
		}
		if of := r.spendOf[n]; of >= 0 && s.OnDemand >= 0 {
			v, failed := rounded(r.rates[n], r.digits)
			err = cmp.Or(err, failed)
			s.Spend, s.SpendPrice = spends[of], max(1, v)
		}
		x.Pools = append(x.Pools, s)
	}
	for _, v := range extra {
		x.Routes = append(x.Routes, price(v))
	}
	for _, n := range g.demands {
		x.Shortage = append(x.Shortage, price(r.doc.Demands[n].Shortage))
	}
	for _, s := range g.spends {
		v, failed := rounded(r.spend[s][e], r.digits)
		err = cmp.Or(err, failed)
		x.Spends = append(x.Spends, v)
	}
	for s := range r.scenarios {
		c := Case{}
		for _, n := range g.pools {
			c.Spot = append(c.Spot, r.onSpot(n, s))
		}
		x.Cases = append(x.Cases, c)
	}
	return x, err
}

// slots counts the hours of equal demand, or lists all hours if some demand waits.
func (r *reading) slots(g *group, p *Problem) (spared, error) {
	spare := make(spared, len(g.demands))
	for i := range spare {
		spare[i] = make([][]int64, len(r.scenarios))
	}
	for s := range r.scenarios {
		load, waits := make([][]int, len(g.demands)), make([][]int, len(g.demands))
		for i, n := range g.demands {
			var err error
			if load[i], waits[i], spare[i][s], err = r.wanted(n, s); err != nil {
				return nil, err
			}
		}
		for e := range r.cal.n {
			from, to := r.cal.hours[e], r.cal.hours[e+1]
			c := &p.Epochs[e].Cases[s]
			if p.waits() {
				for h := from; h < to; h++ {
					slot := Slot{1, make([]int, len(load)), make([]int, len(load))}
					for i := range load {
						if slot.Units[i] = load[i][h]; waits[i] != nil {
							slot.Waits[i] = waits[i][h]
						}
					}
					c.Slots = append(c.Slots, slot)
				}
				continue
			}
			if len(load) == 1 {
				c.Slots = levels(load[0][from:to])
				continue
			}
			hours := make([]int64, 0, to-from)
			for h := from; h < to; h++ {
				if slices.ContainsFunc(load, func(l []int) bool { return l[h] > 0 }) {
					hours = append(hours, h)
				}
			}
			slices.SortFunc(hours, func(a, b int64) int {
				for _, l := range load {
					if l[a] != l[b] {
						return cmp.Compare(l[a], l[b])
					}
				}
				return 0
			})
			for _, h := range hours {
				units := make([]int, len(load))
				for i, l := range load {
					units[i] = l[h]
				}
				if n := len(c.Slots); n > 0 && slices.Equal(c.Slots[n-1].Units, units) {
					c.Slots[n-1].Hours++
				} else {
					c.Slots = append(c.Slots, Slot{1, units, nil})
				}
			}
		}
	}
	return spare, nil
}

// levels counts the hours of a single demand.
func levels(load []int) []Slot {
	if len(load) == 0 {
		return nil
	}
	low, high := slices.Min(load), slices.Max(load)
	if high-low > 4*len(load) {
		return sortedLevels(load)
	}
	hours := make([]int, high-low+1)
	for _, n := range load {
		hours[n-low]++
	}
	var out []Slot
	for i, n := range hours {
		if n > 0 && low+i > 0 {
			out = append(out, Slot{n, []int{low + i}, nil})
		}
	}
	return out
}

// sortedLevels is levels where few of the numbers between the least and the most occur.
func sortedLevels(load []int) []Slot {
	var out []Slot
	for _, n := range slices.Sorted(slices.Values(load)) {
		if l := len(out); l > 0 && out[l-1].Units[0] == n {
			out[l-1].Hours++
		} else if n > 0 {
			out = append(out, Slot{1, []int{n}, nil})
		}
	}
	return out
}

// sold writes a choice, except what it covers.
func (r *reading) sold(x *Choice, c *choice, g *group, spends map[int]int) error {
	x.Epoch, x.Cost, x.Least, x.Most, x.Group = c.epoch, c.cost, c.least, c.most, c.group
	if c.offer != nil {
		x.Offer, x.Term = c.offer.ID, c.offer.Term
	} else {
		x.Commitment, x.Renewals = c.goes.ID, c.renewals
	}
	for _, v := range c.spends {
		v.Spend = spends[v.Spend]
		x.Spends = append(x.Spends, v)
	}
	for _, i := range g.bounds {
		b := &r.bounds[i]
		n, err := r.taken(c, b)
		if err != nil {
			return err
		}
		exactly := zero
		if b.budget != nil {
			exactly = r.spent(c, b.budget).Mul(whole(b.parts))
		}
		x.Spent, x.Exactly = append(x.Spent, n), append(x.Exactly, exactly)
	}
	return nil
}

// Name names a choice for a reader.
func (c *Choice) Name() string {
	if c.Commitment != "" {
		return fmt.Sprintf("commitment %q for %d further terms", c.Commitment, c.Renewals)
	}
	return fmt.Sprintf("offer %q from epoch %d", c.Offer, c.Epoch)
}

// describe names a choice for a reader.
func (r *reading) describe(c *choice) string {
	if c.goes != nil {
		return fmt.Sprintf("commitment %q for %d further terms", c.goes.ID, c.renewals)
	}
	return fmt.Sprintf("offer %q from %s", c.offer.ID, r.cal.name(c.epoch))
}
