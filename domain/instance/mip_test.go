package instance_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"quartermaster/domain/linear"
)

// mip is a whole instance as one mixed-integer program, from the text of its schema alone. Purchases
// are whole lots, serving is continuous. Hours of an epoch that want the same are one. The objective
// is in scale.
type mip struct {
	*document
	b       linear.Builder
	one     int // a column that is 1: what is added to it is constant
	scale   float64
	fixed   float64 // the cost of what is held and of a cold standby
	weights int
	total   int // unit-hours that are wanted, times the weights
	// most is how many units are of use, by pool.
	most []float64
	// guaranteed and discounted cover pools, by pool and epoch. spends is what the commitments of a name
	// spend in an hour, by epoch.
	guaranteed, discounted [][]supply
	spends                 map[string][]supply
	rates                  map[string]map[string]float64
	budgets                []limit
	// unserved and spot are the rows of the limits, −1 where there is none.
	unserved, spot int
	come, spares   [][][]int      // by scenario, demand and hour
	groups         map[string]int // rows: one of them at most is bought
	orders         []order
}

// supply is a column, and the row that keeps it equal to what is held and bought.
type supply struct{ column, row int }

// limit is the row of a budget, in unit.
type limit struct {
	row, from, to int
	cash          bool
	unit          float64
}

// order is something to buy: lots of an offer in an epoch, or further terms of a commitment.
type order struct {
	offer, commitment    string
	epoch, renewals, lot int
	least, most          float64 // lots
	column, binary       int     // binary: −1 where there is none
}

// bill is what something costs: discounted with what it is worth beyond the horizon, and nominal by
// epoch of the horizon.
type bill struct {
	cost          float64
	cash, accrual []float64
}

var inf = math.Inf(1)

func newMIP(t testing.TB, text []byte) *mip {
	t.Helper()
	m := &mip{document: readDocument(t, text), unserved: -1, spot: -1, scale: 1e-3}
	m.spends, m.rates, m.groups = map[string][]supply{}, map[string]map[string]float64{}, map[string]int{}
	m.one = m.b.Column(0, 1, 1)
	for i := range m.Scenarios {
		s := &m.Scenarios[i]
		m.weights += s.Weight
		come, spares := make([][]int, len(m.Demands)), make([][]int, len(m.Demands))
		for j := range m.Demands {
			come[j], spares[j] = m.wanted(j, s)
			for h := range come[j] {
				m.total += s.Weight * (come[j][h] + spares[j][h])
				m.scale += float64(come[j][h]) * float64(m.Demands[j].Shortage) / float64(len(m.Scenarios)) / 1e5
			}
		}
		m.come, m.spares = append(m.come, come), append(m.spares, spares)
	}
	m.findUse()
	m.limit()
	m.supply()
	m.hold()
	for i := range m.Offers {
		m.sell(&m.Offers[i])
	}
	for e := range m.Epochs {
		m.protect(e)
		for s := range m.Scenarios {
			m.serve(s, e)
		}
	}
	return m
}

// findUse finds how many units of each pool are of use: all that may be served there at once.
func (m *mip) findUse() {
	m.most = make([]float64, len(m.Pools))
	for p := range m.Pools {
		for s := range m.Scenarios {
			for h := range m.come[s][0] {
				sum := 0.0
				for i := range m.Demands {
					if u, _, ok := m.takes(&m.Demands[i], &m.Pools[p]); ok {
						each, _ := u.Float64()
						if m.Posture != nil && each < 1000 {
							each = max(each, 1000/math.Floor(1000/each))
						}
						sum += each * float64(m.come[s][i][h]+m.spares[s][i][h])
					}
				}
				m.most[p] = max(m.most[p], math.Ceil(sum)+2)
			}
		}
	}
}

// limit adds the rows of budgets and limits.
func (m *mip) limit() {
	for _, b := range m.Budgets {
		l := limit{cash: b.Basis == "cash", unit: max(1, float64(b.Amount)/1e4), from: m.Epochs}
		for e := range m.Epochs {
			if !b.Interval.From.After(m.start(e)) && (b.Interval.To.IsZero() || !b.Interval.To.Before(m.start(e+1))) {
				l.from, l.to = min(l.from, e), e+1
			}
		}
		l.row = m.b.Row(-inf, 0)
		m.b.Add(l.row, m.one, -float64(b.Amount)/l.unit)
		m.budgets = append(m.budgets, l)
	}
	share := func(x *exact) int {
		if x == nil {
			return -1
		}
		n := new(big.Rat).Mul(&x.Rat, big.NewRat(int64(m.total), int64(m.weights)))
		most, _ := new(big.Int).Quo(n.Num(), n.Denom()).Float64()
		return m.b.Row(-inf, most/100)
	}
	m.unserved, m.spot = share(m.Limits.Unserved), share(m.Limits.Spot)
}

// supply adds the columns of what covers each pool in each epoch.
func (m *mip) supply() {
	epochs := func() (out []supply) {
		for range m.Epochs {
			s := supply{m.b.Column(0, 0, inf), m.b.Row(0, 0)}
			m.b.Add(s.row, s.column, -1)
			out = append(out, s)
		}
		return out
	}
	for range m.Pools {
		m.guaranteed, m.discounted = append(m.guaranteed, epochs()), append(m.discounted, epochs())
	}
	rate := func(name string, rates map[string]number, currency string) {
		if name == "" {
			return
		}
		if m.spends[name] == nil {
			m.spends[name], m.rates[name] = epochs(), map[string]float64{}
		}
		for p, r := range rates {
			m.rates[name][p] = float64(r) * m.fx(currency)
		}
	}
	for i := range m.Offers {
		rate(m.Offers[i].Spend, m.Offers[i].Rates, m.Offers[i].Currency)
	}
	for i := range m.Commitments {
		rate(m.Commitments[i].Spend, m.Commitments[i].Rates, m.Commitments[i].Currency)
	}
}

// covered are the rows of what is covered by the epoch.
func (m *mip) covered(pool, spend string, guarantees bool) []supply {
	if spend != "" {
		return m.spends[spend]
	}
	if p := m.pool(pool); guarantees {
		return m.guaranteed[p]
	} else {
		return m.discounted[p]
	}
}

func (m *mip) pool(id string) int {
	return slices.IndexFunc(m.Pools, func(p pool) bool { return p.ID == id })
}

func (m *mip) newBill() *bill {
	return &bill{cash: make([]float64, m.Epochs), accrual: make([]float64, m.Epochs)}
}

// pay adds a nominal payment in an epoch of the horizon to both calendars.
func (b *bill) pay(e int, amount float64) {
	b.cash[e] += amount
	b.accrual[e] += amount
}

// spend adds a column's nominal payments to the budgets.
func (m *mip) spend(column int, b *bill) {
	for _, l := range m.budgets {
		for e := l.from; e < l.to; e++ {
			if by := b.accrual[e]; l.cash {
				m.b.Add(l.row, column, b.cash[e]/l.unit)
			} else if by != 0 {
				m.b.Add(l.row, column, by/l.unit)
			}
		}
	}
}

// buy adds the column of an order, which is whole, and its binary where it needs one.
func (m *mip) buy(o order, b *bill, group string) int {
	o.binary = -1
	o.column = m.b.WholeColumn(b.cost/m.scale, 0, o.most)
	m.spend(o.column, b)
	if group != "" || o.least > 1 {
		o.binary = m.b.WholeColumn(0, 0, 1)
		above, below := m.b.Row(0, inf), m.b.Row(-inf, 0)
		m.b.Add(above, o.column, 1)
		m.b.Add(above, o.binary, -o.least)
		m.b.Add(below, o.column, 1)
		m.b.Add(below, o.binary, -o.most)
	}
	if group != "" {
		if _, ok := m.groups[group]; !ok {
			m.groups[group] = m.b.Row(0, 1)
		}
		m.b.Add(m.groups[group], o.binary, 1)
	}
	m.orders = append(m.orders, o)
	return o.column
}

// sell adds what can be bought of an offer.
func (m *mip) sell(o *offer) {
	lot := max(1, o.Lot)
	for e := range m.Epochs {
		at := m.start(e)
		if at.Before(o.From.Time) || !o.To.IsZero() && !at.Before(o.To.Time) || at.Before(m.From.Add(time.Duration(o.Lead)*time.Hour)) {
			continue
		}
		for tier := -1; tier < len(o.Tiers); tier++ {
			upfront, hourly, least, most := o.Upfront, o.Hourly, max(1, o.Min), math.MaxInt
			if tier >= 0 {
				upfront, hourly, least = o.Tiers[tier].Upfront, o.Tiers[tier].Hourly, max(least, o.Tiers[tier].Units)
			}
			if tier+1 < len(o.Tiers) {
				most = o.Tiers[tier+1].Units - 1
			}
			if o.Max > 0 {
				most = min(most, o.Max)
			}
			c := order{offer: o.ID, epoch: e, lot: lot, least: float64((least + lot - 1) / lot), most: float64(most / lot)}
			if c.most < c.least {
				continue
			}
			b, stretches := m.price(o, e, float64(upfront), float64(hourly))
			c.most = max(c.least, min(c.most, m.lotsOfUse(o, stretches)))
			group := ""
			if o.Exclusive != "" {
				group = "exclusive " + o.Exclusive
			} else if len(o.Tiers) > 0 {
				group = fmt.Sprint(o.ID, " in ", e)
			}
			x := m.buy(c, b, group)
			rows := m.covered(o.Pool, o.Spend, o.Guarantees)
			for k, units := range stretches {
				switch {
				case o.Spend != "" && o.Commits != 0:
					units *= float64(o.Commits) * m.fx(o.Currency)
				case o.Spend != "":
					units *= float64(hourly) * m.left(o, e)
				default:
					units *= float64(max(1, o.Covers))
				}
				if e+k < m.Epochs && units != 0 {
					m.b.Add(rows[e+k].row, x, units)
				}
			}
		}
	}
}

// lotsOfUse is an upper bound of the lots that are of use.
func (m *mip) lotsOfUse(o *offer, stretches []float64) float64 {
	need := 0.0
	if o.Spend == "" {
		need = m.most[m.pool(o.Pool)] / float64(max(1, o.Covers))
	} else {
		for p, rate := range m.rates[o.Spend] {
			need += m.most[m.pool(p)] * rate
		}
		if o.Commits != 0 {
			need /= float64(o.Commits)
		} else {
			need /= float64(o.Hourly)
		}
	}
	least := inf
	for _, units := range stretches {
		if units > 0 {
			least = min(least, units)
		}
	}
	return math.Ceil(need / least)
}

// left is what is left of an offer's prices in an epoch, in the currency of the instance.
func (m *mip) left(o *offer, e int) float64 {
	return m.fx(o.Currency) * math.Pow(1-float64(o.Decline), float64(e))
}

// price is what a lot costs that begins with an epoch, and how many units of the offer are there in
// each epoch of its term.
func (m *mip) price(o *offer, begin int, upfront, hourly float64) (*bill, []float64) {
	b, lot := m.newBill(), float64(max(1, o.Lot))
	upfront *= m.left(o, begin) * lot
	there := make([]float64, o.Term)
	for k := range there {
		if len(o.Ramp) == 0 {
			there[k] = lot
		}
		for _, s := range o.Ramp {
			if s.Epoch <= k {
				there[k] = lot * float64(s.Permille) / 1000
			}
		}
	}
	sale, end := 0.0, begin+o.Term
	if o.Owned != nil {
		sale = upfront * float64(o.Owned.Salvage)
	}
	all := float64(m.before(end) - m.before(begin))
	within := float64(m.before(min(end, m.Epochs)) - m.before(begin))
	worth := 1 - float64(m.Salvage)
	b.cost = (upfront*m.begin(begin) - sale*m.begin(end)) * (within + worth*(all-within)) / all
	b.cash[begin] += upfront
	if end < m.Epochs {
		b.cash[end] -= sale
	}
	for e := begin; e < end; e++ {
		n := float64(m.hours(e))
		paid := hourly * m.left(o, begin) * there[e-begin] * n
		if e >= m.Epochs {
			if o.Owned == nil {
				b.cost += paid * m.middle(e) * worth
			}
			continue
		}
		if w := o.Owned; w != nil {
			paid += float64(w.Power*w.PUE*w.Tariff) * m.fx(o.Currency) * there[e-begin] * n
			monthly := float64(w.Space+w.Network+w.Support) * m.fx(o.Currency) * there[e-begin]
			if m.Epoch == "day" {
				y, month, _ := m.start(e).Date()
				monthly /= float64(time.Date(y, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
			}
			paid += monthly
		}
		b.cost += paid * m.middle(e)
		b.pay(e, paid)
		b.accrual[e] += (upfront - sale) * n / all
	}
	return b, there
}

// hold counts what is held, and adds further terms that are a choice.
func (m *mip) hold() {
	held := map[string][]commitment{} // by pool and kind of cover
	key := func(c *commitment) string { return fmt.Sprint(c.Pool, c.Guarantees, c.Spend) }
	type further struct {
		of    commitment
		terms []interval
	}
	var choices []further
	for _, c := range m.Commitments {
		m.keep(&c)
		held[key(&c)] = append(held[key(&c)], c)
		f := further{of: c}
		for k := 1; c.Renews; k++ {
			term, notice := c.further(k)
			if !term.From.Before(m.end()) {
				break
			}
			if notice.Before(m.start(0)) {
				again := c
				again.Term = term
				m.keep(&again)
				held[key(&c)] = append(held[key(&c)], again)
			} else {
				f.terms = append(f.terms, term)
			}
		}
		if len(f.terms) > 0 {
			choices = append(choices, f)
		}
	}
	for _, list := range held {
		rows := m.covered(list[0].Pool, list[0].Spend, list[0].Guarantees)
		for e := range m.Epochs {
			m.b.Add(rows[e].row, m.one, m.counts(list, e))
		}
	}
	for _, f := range choices {
		list := slices.Clone(held[key(&f.of)])
		b := m.newBill()
		for j := range f.terms {
			m.renew(b, &f.of, f.terms[j])
			again := f.of
			again.Term = f.terms[j]
			list = append(list, again)
			whole := *b
			whole.cash, whole.accrual = slices.Clone(b.cash), slices.Clone(b.accrual)
			x := m.buy(order{commitment: f.of.ID, renewals: j + 1, lot: f.of.Units, least: 1, most: 1}, &whole, "further "+f.of.ID)
			rows := m.covered(f.of.Pool, f.of.Spend, f.of.Guarantees)
			for e := range m.Epochs {
				if more := m.counts(list, e) - m.counts(held[key(&f.of)], e); more != 0 {
					m.b.Add(rows[e].row, x, more)
				}
			}
		}
	}
}

// counts is what commitments cover in an epoch: the least sum at any moment, or what those spend in an
// hour whose terms hold the epoch whole.
func (m *mip) counts(list []commitment, e int) float64 {
	least := inf
	moments := []time.Time{m.start(e)}
	for _, c := range list {
		for _, at := range []time.Time{c.Term.From.Time, c.Term.To.Time} {
			if at.After(m.start(e)) && at.Before(m.start(e+1)) {
				moments = append(moments, at)
			}
		}
	}
	whole := 0.0
	for _, at := range moments {
		sum := 0.0
		for _, c := range list {
			if !at.Before(c.Term.From.Time) && (c.Term.To.IsZero() || at.Before(c.Term.To.Time)) {
				sum += float64(c.Units)
			}
		}
		least = min(least, sum)
	}
	for i, c := range list {
		if slices.ContainsFunc(list[:i], func(b commitment) bool { return b.ID == c.ID }) {
			continue // its terms are one
		}
		for _, b := range list[i:] {
			if b.ID == c.ID && b.Term.To.After(c.Term.To.Time) {
				c.Term.To = b.Term.To
			}
		}
		if c.Spend != "" && m.shared(e, c.Term) == float64(m.hours(e)) {
			commits := c.Commits
			if commits == 0 {
				commits = c.Hourly
			}
			whole += float64(commits) * m.fx(c.Currency)
		}
	}
	if list[0].Spend != "" {
		return whole
	}
	return least
}

// due is the epoch in which a term begins, −1 where that is before the horizon or after it.
func (m *mip) due(term interval) int {
	for e := range m.Epochs {
		if !term.From.Before(m.start(e)) && term.From.Before(m.start(e+1)) {
			return e
		}
	}
	return -1
}

// keep adds what a held term costs within the horizon.
func (m *mip) keep(c *commitment) {
	b, upfront := m.newBill(), float64(c.Upfront)*m.fx(c.Currency)
	if e := m.due(c.Term); e >= 0 {
		b.cost += upfront * m.begin(e)
		b.cash[e] += upfront
		if c.Term.To.IsZero() {
			b.accrual[e] += upfront
		}
	}
	for e := range m.Epochs {
		n := m.shared(e, c.Term)
		paid := float64(c.Hourly) * m.fx(c.Currency) * float64(c.Units) * n
		b.cost += paid * m.middle(e)
		b.pay(e, paid)
		if !c.Term.To.IsZero() {
			b.accrual[e] += upfront * n / c.Term.To.Sub(c.Term.From.Time).Hours()
		}
	}
	m.fixed += b.cost
	m.spend(m.one, b)
}

// renew adds what a further term costs that begins in the horizon.
func (m *mip) renew(b *bill, c *commitment, term interval) {
	begin := m.due(term)
	upfront, all, within := float64(c.Upfront)*m.fx(c.Currency), term.To.Sub(term.From.Time).Hours(), 0.0
	worth := 1 - float64(m.Salvage)
	for e := begin; m.start(e).Before(term.To.Time); e++ {
		n := m.shared(e, term)
		paid := float64(c.Hourly) * m.fx(c.Currency) * float64(c.Units) * n
		if e >= m.Epochs {
			b.cost += paid * m.middle(e) * worth
			continue
		}
		within += n
		b.cost += paid * m.middle(e)
		b.pay(e, paid)
		b.accrual[e] += upfront * n / all
	}
	b.cost += upfront * m.begin(begin) * (within + worth*(all-within)) / all
	b.cash[begin] += upfront
}
