package question

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	"quartermaster/domain"
)

// reading is a question as this package understands it.
type reading struct {
	doc       *document
	cal       *horizon
	digits    int32 // of the resolution
	scenarios []scenario
	weight    int
	region    map[string]int
	pool      map[string]int
	demand    map[string]int
	routes    [][]route // by demand
	spends    []string
	spendOf   []int            // by pool, −1: none
	rates     []domain.Decimal // by pool, of its spend commitment
	onDemand  [][]domain.Decimal
	spot      [][]domain.Decimal // of what is served
	quotas    map[string][]int

	// Held: units by pool and epoch, spend by name and epoch, and what it costs.
	guaranteed, discount [][]int
	spend                [][]domain.Decimal
	cash                 []domain.Decimal
	accrual              [][]domain.Decimal // by pool, and of none
	committed            domain.Decimal

	choices []listing
	further []choice                // further terms
	hours   map[term]domain.Decimal // of terms, under salvage
	salvage domain.Decimal
	falls   struct { // of the offer that was priced last
		offer int32
		list  []domain.Decimal
	}
	needs   []need
	bounds  []bound
	groups  []*group
	outlive bool // a term can end beyond the horizon
}

// route is a way to serve a demand: a unit of it takes num/den units of the pool.
type route struct {
	pool, num, den int
	extra          domain.Decimal // for a unit of demand and hour
}

// group is pools that have to do with one another.
type group struct {
	pools, demands, choices, needs, bounds, spends []int
}

func index[T any](kind string, list []T, id func(*T) string) (map[string]int, error) {
	out := make(map[string]int, len(list))
	for i := range list {
		if _, twice := out[id(&list[i])]; twice {
			return nil, fmt.Errorf("two %s are named %q", kind, id(&list[i]))
		}
		out[id(&list[i])] = i
	}
	return out, nil
}

// understand translates a question.
func understand(d *document, digits int32) (r *reading, err error) {
	r = &reading{doc: d, digits: digits}
	if r.region, err = index("regions", d.Regions, func(x *region) string { return x.ID }); err != nil {
		return nil, err
	}
	if r.pool, err = index("pools", d.Pools, func(x *pool) string { return x.ID }); err != nil {
		return nil, err
	}
	if r.demand, err = index("demands", d.Demands, func(x *demand) string { return x.ID }); err != nil {
		return nil, err
	}
	if err := r.refers(); err != nil {
		return nil, err
	}
	r.weigh()
	if err := r.dates(); err != nil {
		return nil, err
	}
	if err := r.lengths(); err != nil {
		return nil, err
	}
	if err := r.market(); err != nil {
		return nil, err
	}
	for i := range d.Demands {
		r.routes = append(r.routes, r.routesOf(&d.Demands[i]))
	}
	if err := r.hold(); err != nil {
		return nil, err
	}
	for i := range d.Offers {
		if err := r.sell(i); err != nil {
			return nil, fmt.Errorf("offer %q: %w", d.Offers[i].ID, err)
		}
	}
	if err := r.survive(); err != nil {
		return nil, err
	}
	if err := r.limit(); err != nil {
		return nil, err
	}
	r.divide()
	return r, nil
}

// refers checks that names are known.
func (r *reading) refers() error {
	d := r.doc
	quotas, err := index("quotas", d.Quotas, func(x *quota) string { return x.ID })
	if err != nil {
		return err
	}
	for _, p := range d.Pools {
		if _, ok := r.region[p.Region]; !ok {
			return fmt.Errorf("pool %q: there is no region %q", p.ID, p.Region)
		}
		if _, ok := quotas[p.Quota]; !ok && p.Quota != "" {
			return fmt.Errorf("pool %q: there is no quota %q", p.ID, p.Quota)
		}
	}
	for _, x := range d.Demands {
		if _, ok := r.pool[x.Pool]; !ok {
			return fmt.Errorf("demand %q: there is no pool %q", x.ID, x.Pool)
		}
	}
	covers := func(kind, id, what, pool, spend string, rates map[string]domain.Decimal) error {
		if what != spending {
			if _, ok := r.pool[pool]; !ok {
				return fmt.Errorf("%s %q: there is no pool %q", kind, id, pool)
			}
			return nil
		}
		for p := range rates {
			if _, ok := r.pool[p]; !ok {
				return fmt.Errorf("%s %q: there is no pool %q", kind, id, p)
			}
		}
		if spend == "" || len(rates) == 0 {
			return fmt.Errorf("%s %q: a spend commitment without name or rates", kind, id)
		}
		return nil
	}
	for _, o := range d.Offers {
		if err := covers("offer", o.ID, o.Kind, o.Pool, o.Spend, o.Rates); err != nil {
			return err
		}
		if o.Term < 1 || (o.Kind == "owned") != (o.Owned != nil) {
			return fmt.Errorf("offer %q: term %d, or running costs of what is not owned", o.ID, o.Term)
		}
	}
	for _, c := range d.Commitments {
		if err := covers("commitment", c.ID, c.Kind, c.Pool, c.Spend, c.Rates); err != nil {
			return err
		}
		if c.Renews && (c.Term.To == 0 || c.NoticeBy == 0) {
			return fmt.Errorf("commitment %q renews, without end or day of notice", c.ID)
		}
	}
	return nil
}

const spending = "spend_commitment"

// weigh reads the scenarios, and divides their weights by what they share.
func (r *reading) weigh() {
	r.scenarios = slices.Clone(r.doc.Scenarios)
	if len(r.scenarios) == 0 {
		r.scenarios = []scenario{{ID: "as stated", Weight: 1}}
	}
	shared := new(big.Int)
	for _, s := range r.scenarios {
		shared.GCD(nil, nil, shared, big.NewInt(int64(s.Weight)))
	}
	for i := range r.scenarios {
		r.scenarios[i].Weight /= max(1, int(shared.Int64()))
		r.weight += r.scenarios[i].Weight
	}
}

// dates makes the horizon, as far as any term reaches.
func (r *reading) dates() error {
	d := r.doc
	reach := d.Epochs
	for _, o := range d.Offers {
		reach = max(reach, d.Epochs+o.Term)
	}
	for range 2 {
		cal, err := newHorizon(d, reach+1)
		if err != nil {
			return err
		}
		r.cal = cal
		last := cal.end()
		for i := range d.Commitments {
			c := &d.Commitments[i]
			if settled, weighed := c.further(d.From, cal.end()); settled+weighed > 0 {
				last = max(last, c.times(settled+weighed).To)
			}
		}
		if e := cal.of(last); e < reach {
			break
		}
		years := last.Time().Year() - d.From.Time().Year() + 1
		if reach = max(reach, 12*years); d.Epoch == "day" {
			reach = max(reach, 366*years)
		}
	}
	return nil
}

// lengths checks that demand fills the horizon.
func (r *reading) lengths() error {
	hours := int(r.cal.hours[r.cal.n])
	for i := range r.doc.Demands {
		d := &r.doc.Demands[i]
		if d.Duration != nil {
			for e, curve := range d.Duration {
				sum := int64(0)
				for _, s := range curve {
					sum += int64(s.Hours)
				}
				if len(d.Duration) != r.cal.n || sum != r.cal.length(e) {
					return fmt.Errorf("demand %q: its curves do not fill %s", d.ID, r.cal.name(min(e, r.cal.n-1)))
				}
			}
		} else if len(d.Hourly) != hours {
			return fmt.Errorf("demand %q: %d hours, of %d", d.ID, len(d.Hourly), hours)
		}
	}
	for _, s := range r.scenarios {
		for _, id := range slices.Sorted(maps.Keys(s.Hourly)) {
			if len(s.Hourly[id]) != hours {
				return fmt.Errorf("scenario %q: demand %q: %d hours, of %d", s.ID, id, len(s.Hourly[id]), hours)
			}
		}
	}
	return nil
}

// market prices what pools sell.
func (r *reading) market() error {
	d := r.doc
	r.quotas = map[string][]int{}
	for i := range d.Quotas {
		each := 0
		for _, p := range d.Pools {
			if takes := max(1, p.QuotaPerUnit); p.Quota == d.Quotas[i].ID {
				if each == 0 {
					each = takes
				} else if each != takes {
					each = 1
				}
			}
			if each == 1 {
				break
			}
		}
		r.quotas[d.Quotas[i].ID] = r.quotaUnits(&d.Quotas[i], max(1, each))
	}
	n := len(d.Pools)
	r.onDemand, r.spot = make([][]domain.Decimal, n), make([][]domain.Decimal, n)
	for i := range d.Pools {
		p := &d.Pools[i]
		var err error
		if p.OnDemand != nil {
			if r.onDemand[i], err = r.prices(p.OnDemand); err != nil {
				return fmt.Errorf("pool %q: %w", p.ID, err)
			}
		}
		if p.Spot != nil {
			if r.spot[i], err = r.prices(&p.Spot.price); err != nil {
				return fmt.Errorf("pool %q: %w", p.ID, err)
			}
			for e, v := range r.spot[i] {
				if !p.Spot.Overhead.LessThan(one) {
					return fmt.Errorf("pool %q: interruptions lose all of the time on spot", p.ID)
				}
				r.spot[i][e] = v.DivRound(one.Sub(p.Spot.Overhead), places)
			}
		}
	}
	return r.committedPrices()
}

// committedPrices reads the rates of spend commitments.
func (r *reading) committedPrices() error {
	d := r.doc
	names := map[string]bool{}
	for _, c := range d.Commitments {
		if c.Kind == spending {
			names[c.Spend] = true
		}
	}
	for _, o := range d.Offers {
		if o.Kind == spending {
			names[o.Spend] = true
		}
	}
	r.spends = slices.Sorted(maps.Keys(names))
	r.spendOf, r.rates = slices.Repeat([]int{-1}, len(d.Pools)), make([]domain.Decimal, len(d.Pools))
	r.spend = make([][]domain.Decimal, len(r.spends))
	for i := range r.spend {
		r.spend[i] = make([]domain.Decimal, r.cal.n)
	}
	add := func(kind, spend, currency string, rates map[string]domain.Decimal) error {
		if kind != spending {
			return nil
		}
		fx, err := d.worth(currency)
		if err != nil {
			return err
		}
		s, _ := slices.BinarySearch(r.spends, spend)
		for id, rate := range rates {
			p := r.pool[id]
			if r.spendOf[p] >= 0 && (r.spendOf[p] != s || !r.rates[p].Equal(rate.Mul(fx))) {
				return fmt.Errorf("pool %q has two committed prices", id)
			}
			r.spendOf[p], r.rates[p] = s, rate.Mul(fx)
		}
		return nil
	}
	for _, c := range d.Commitments {
		if err := add(c.Kind, c.Spend, c.Currency, c.Rates); err != nil {
			return fmt.Errorf("commitment %q: %w", c.ID, err)
		}
	}
	for _, o := range d.Offers {
		if err := add(o.Kind, o.Spend, o.Currency, o.Rates); err != nil {
			return fmt.Errorf("offer %q: %w", o.ID, err)
		}
	}
	return nil
}

// routesOf are the pools that may serve a demand, its home first.
func (r *reading) routesOf(d *demand) []route {
	home := &r.doc.Pools[r.pool[d.Pool]]
	out := []route{{pool: r.pool[d.Pool], num: 1, den: 1}}
	for i := range r.doc.Pools {
		p := &r.doc.Pools[i]
		country := r.doc.Regions[r.region[p.Region]].Country
		if i == out[0].pool || len(d.Countries) > 0 && !slices.Contains(d.Countries, country) ||
			slices.ContainsFunc(d.Certifications, func(c string) bool { return !slices.Contains(p.Certifications, c) }) {
			continue
		}
		way, takes := route{pool: i}, one
		if p.Region != home.Region {
			j := slices.IndexFunc(r.doc.Overflow, func(o overflow) bool { return o.From == home.Region && o.To == p.Region })
			if j < 0 || d.LatencyBudgetMS == 0 || r.doc.Overflow[j].RoundTripMS > d.LatencyBudgetMS {
				continue
			}
			way.extra, takes = r.doc.Overflow[j].Hourly.Add(d.Moving), takes.Add(r.doc.Overflow[j].Overhead)
		}
		if p.Class == home.Class {
			if p.Unit != home.Unit || max(1, p.GPUs) != max(1, home.GPUs) {
				continue
			}
		} else {
			j := slices.IndexFunc(r.doc.Substitutes, func(s substitute) bool {
				return s.For == home.Class && s.Class == p.Class && (len(s.Demands) == 0 || slices.Contains(s.Demands, d.ID))
			})
			if j < 0 {
				continue
			}
			takes = takes.Mul(r.doc.Substitutes[j].Units)
		}
		if way.num, way.den = ratio(takes); way.num <= mostRatio {
			out = append(out, way)
		}
	}
	return out
}

// mostRatio bounds both integers of a ratio.
const mostRatio = 100_000

// ratio rounds a number of units up to a fraction of integers up to mostRatio, with at most four
// digits.
func ratio(takes domain.Decimal) (num, den int) {
	for places := int32(4); places >= 0; places-- {
		f := takes.RoundUp(places).Rat()
		if f.Num().IsInt64() && f.Num().Int64() <= mostRatio && !takes.RoundUp(places).GreaterThan(whole(1000)) {
			return int(f.Num().Int64()), int(f.Denom().Int64())
		}
	}
	return int(takes.RoundUp(0).IntPart()), 1
}

// divide finds the groups.
func (r *reading) divide() {
	with := domain.NewSets(len(r.doc.Pools))
	for i := range r.doc.Demands {
		for _, way := range r.routes[i] {
			with.Join(r.pool[r.doc.Demands[i].Pool], way.pool)
		}
	}
	first := map[string]int{}
	share := func(name string, pool int) {
		if other, ok := first[name]; ok {
			with.Join(other, pool)
		} else {
			first[name] = pool
		}
	}
	spender := make([]int, len(r.spends)) // a pool of each
	for i := range r.doc.Pools {
		if q := r.doc.Pools[i].Quota; q != "" {
			share("quota "+q, i)
		}
		if s := r.spendOf[i]; s >= 0 {
			share("spend "+r.spends[s], i)
			spender[s] = i
		}
	}
	sells := make([]int, len(r.doc.Offers)) // a pool of each offer
	for i := range r.doc.Offers {
		if o := &r.doc.Offers[i]; o.Kind == spending {
			s, _ := slices.BinarySearch(r.spends, o.Spend)
			sells[i] = spender[s]
		} else {
			sells[i] = r.pool[o.Pool]
		}
	}
	home := func(c listing) int {
		if c.offer >= 0 {
			return sells[c.offer]
		}
		if x := &r.further[-1-c.offer]; x.pool >= 0 {
			return x.pool
		} else {
			return spender[x.spend]
		}
	}
	for _, c := range r.choices {
		if group := r.excludes(c); group != "" {
			share("choice "+group, home(c))
		}
	}
	for i := range r.needs {
		for _, t := range r.needs[i].terms {
			with.Join(r.needs[i].terms[0].Pool, t.Pool)
		}
	}
	if len(r.bounds) > 0 {
		for i := range r.doc.Pools {
			with.Join(0, i)
		}
	}
	of := map[int]*group{}
	at := func(pool int) *group { return of[with.Find(pool)] }
	for i := range r.doc.Pools {
		if at(i) == nil {
			of[with.Find(i)] = &group{}
			r.groups = append(r.groups, at(i))
		}
		g := at(i)
		g.pools = append(g.pools, i)
	}
	for i := range r.doc.Demands {
		g := at(r.pool[r.doc.Demands[i].Pool])
		g.demands = append(g.demands, i)
	}
	for i := range r.choices {
		g := at(home(r.choices[i]))
		g.choices = append(g.choices, i)
	}
	for i := range r.needs {
		g := at(r.needs[i].terms[0].Pool)
		g.needs = append(g.needs, i)
	}
	for i := range r.bounds {
		r.groups[0].bounds = append(r.groups[0].bounds, i)
	}
	for s := range r.spends {
		g := at(spender[s])
		g.spends = append(g.spends, s)
	}
	r.groups = slices.DeleteFunc(r.groups, func(g *group) bool { return len(g.demands)+len(g.needs)+len(g.bounds) == 0 })
}
