package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// The hour is the linear program in the comment of package joint, for the pools and demands
// connected by routes, quotas and spend commitments. It is solved by a simplex in integers
// (Edmonds' integer pivoting: every entry is a determinant over a common denominator) with Bland's
// rule, which always terminates.
//
// Between slots only the right-hand side changes, and the optimal basis rarely does. A basis with
// non-negative reduced costs is optimal for every slot for which its values are non-negative. So
// the known bases are tried before anything is solved.

// serve checks the stated cost against the cost of serving. It returns the cost of purchases and
// serving; where a limit binds, this is an upper bound.
func (c *coupled) serve(ctx context.Context) (*big.Int, error) {
	components := c.components()
	cheapest, err := c.served(ctx, components, make([]int64, len(c.p.Limits)), 0)
	if err != nil {
		return nil, err
	}
	room := c.room()
	over := cheapest.over(c.p, room)
	if len(over) == 0 {
		cost := new(big.Rat).SetInt(c.paid)
		for _, v := range cheapest.cost {
			cost.Add(cost, v)
		}
		sum := up(cost.Num(), cost.Denom())
		if sum.Cmp(c.s.Cost) != 0 {
			return nil, fmt.Errorf("the purchases cost %d, not %d", sum, c.s.Cost)
		}
		return sum, nil
	}
	ways, err := c.ways()
	if err != nil {
		return nil, err
	}
	if ways == nil {
		return nil, fmt.Errorf("serving takes more than there is of %s", strings.Join(over, ", "))
	}
	all := []*serving{cheapest}
	for i, multipliers := range ways {
		v, err := c.served(ctx, components, multipliers, i/3) // each way has three variants
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return c.mix(ctx, all, room, over)
}

// room is what purchases leave of each limit, times the weight.
func (c *coupled) room() []*big.Int {
	p := c.p
	weight := whole(int64(p.Weight))
	out := make([]*big.Int, len(p.Limits))
	for i := range p.Limits {
		out[i] = nano(p.Limits[i].Most)
		for j, units := range c.s.Units {
			if i < len(p.Choices[j].Spent) {
				minus(out[i], nano(p.Choices[j].Spent[i]), whole(int64(units)))
			}
		}
		out[i].Mul(out[i], weight)
	}
	return out
}

// ways are the multipliers at which the solution says that demand is served. For each of them it
// adds variants with the next larger multipliers, first of the non-zero ones, then of all. If
// several ways of serving cost the same at some multipliers, only the one that takes less is
// optimal at the larger ones.
func (c *coupled) ways() ([][]int64, error) {
	n := len(c.p.Limits)
	if len(c.s.Ways) > 4*(n+1) {
		return nil, fmt.Errorf("%d ways of serving, for %d limits there are %d at most", len(c.s.Ways), n, 4*(n+1))
	}
	var out [][]int64
	for k, w := range c.s.Ways {
		if len(w.Multipliers) != n {
			return nil, errors.New("it is served at multipliers of other limits")
		}
		above, all := slices.Clone(w.Multipliers), slices.Clone(w.Multipliers)
		for i, v := range w.Multipliers {
			if v < 0 || v > math.MaxInt64-1000 {
				return nil, fmt.Errorf("way %d, limit %q: multiplier %d", k, c.p.Limits[i].ID, v)
			}
			if v > 0 {
				above[i]++
			}
			if c.p.Limits[i].Serving != nil {
				all[i] += 1000 // one Nano, if serving takes a thousandth of its cost
			}
		}
		out = append(out, w.Multipliers, above, all)
	}
	return out, nil
}

// mix proves that the stated cost can be achieved within all limits, and returns an upper bound of
// what must be paid. Any mix of ways of serving, by shares of each epoch's hours, is a way of
// serving. The cheapest mix within the limits is a small linear program.
func (c *coupled) mix(ctx context.Context, all []*serving, room []*big.Int, over []string) (*big.Int, error) {
	p := c.p
	var limits []int
	for i := range p.Limits {
		if p.Limits[i].Serving != nil {
			limits = append(limits, i)
		} else if room[i].Sign() < 0 {
			return nil, fmt.Errorf("purchases take more than there is of limit %q", p.Limits[i].ID)
		}
	}
	// In integers: multiplied by the common denominator.
	scale := whole(1)
	fractions := func(of *serving, m int) []*big.Rat {
		out := []*big.Rat{of.cost[m]}
		for _, i := range limits {
			out = append(out, of.taken[m][i])
		}
		return out
	}
	for m := range p.Epochs {
		for _, of := range all {
			for _, v := range fractions(of, m) {
				d := v.Denom()
				scale = times(scale, new(big.Int).Quo(d, new(big.Int).GCD(nil, nil, scale, d)))
			}
		}
	}
	scaled := func(v *big.Rat) *big.Int { return new(big.Int).Quo(times(v.Num(), scale), v.Denom()) }
	g := &program{rows: len(p.Epochs) + len(limits)}
	dearest := whole(1)
	for m := range p.Epochs {
		for _, of := range all {
			col := column{cost: scaled(of.cost[m])}
			dearest = dearest.Add(dearest, col.cost)
			col.rows, col.entries = append(col.rows, int64(m)), append(col.entries, whole(1))
			for k, i := range limits {
				if v := of.taken[m][i]; v.Sign() != 0 {
					col.rows, col.entries = append(col.rows, int64(len(p.Epochs)+k)), append(col.entries, scaled(v))
				}
			}
			g.columns = append(g.columns, col)
		}
	}
	right := make([]*big.Int, g.rows)
	for r := range g.rows {
		col := column{rows: []int64{int64(r)}, entries: []*big.Int{whole(1)}, cost: new(big.Int)}
		right[r] = whole(1)
		if r < len(p.Epochs) {
			col.cost = dearest // an epoch that is not served
		} else if right[r] = times(room[limits[r-len(p.Epochs)]], scale); right[r].Sign() < 0 {
			return nil, fmt.Errorf("purchases take more than there is of limit %q", p.Limits[limits[r-len(p.Epochs)]].ID)
		}
		g.columns = append(g.columns, col)
	}
	t := newTableau(g, nil, right)
	if err := t.primal(ctx); err != nil {
		return nil, err
	}
	at := t.basis()
	sum := new(big.Int)
	for r, j := range at.columns {
		v := at.value(r, right)
		if j >= len(g.columns)-g.rows && j < len(g.columns)-len(limits) && v.Sign() != 0 {
			return nil, fmt.Errorf("at the multipliers serving takes more than there is of %s", strings.Join(over, ", "))
		}
		plus(sum, g.columns[j].cost, v)
	}
	sum = up(sum, times(at.denominator, scale))
	if sum.Add(sum, c.paid).Cmp(c.s.Cost) > 0 {
		return nil, fmt.Errorf("at the multipliers, with all limits kept, the purchases cost %d, not %d", sum, c.s.Cost)
	}
	return sum, nil
}

// serving is the result of serving everything, by epoch and times the weights of scenarios: its
// cost, and what it takes of each limit.
type serving struct {
	cost  []*big.Rat
	taken [][]*big.Rat
}

// over names the limits that are exceeded.
func (s *serving) over(p *joint.Problem, room []*big.Int) (names []string) {
	for i := range p.Limits {
		sum := new(big.Rat)
		for m := range s.taken {
			sum.Add(sum, s.taken[m][i])
		}
		if sum.Cmp(new(big.Rat).SetInt(room[i])) > 0 {
			names = append(names, fmt.Sprintf("limit %q", p.Limits[i].ID))
		}
	}
	return names
}

// served serves every slot at least cost under multipliers of limits. Work that waits runs as in a way
// of the solution.
func (c *coupled) served(ctx context.Context, components []*component, multipliers []int64, way int) (*serving, error) {
	p := c.p
	own := make([]*big.Int, len(multipliers))
	for i, v := range multipliers {
		own[i] = whole(v)
	}
	out := &serving{}
	for m := range p.Epochs {
		pr := c.priced(m, own)
		cost, taken := new(big.Rat), make([]*big.Rat, len(p.Limits))
		for i := range taken {
			taken[i] = new(big.Rat)
		}
		for _, x := range components {
			for k := range p.Epochs[m].Cases {
				if err := c.serveCase(ctx, x, m, k, way, pr, cost, taken); err != nil {
					return nil, fmt.Errorf("epoch %d, case %d: %w", m, k, err)
				}
			}
		}
		out.cost, out.taken = append(out.cost, cost), append(out.taken, taken)
	}
	return out, nil
}

// component is a set of pools and demands that are served together.
type component struct {
	pools, demands, routes, quotas, spends []int
	bases                                  map[string][]*basis // by the program's shape
}

func (c *coupled) components() []*component {
	p := c.p
	// Pools, then demands.
	root := make([]int, len(p.Pools)+len(p.Demands))
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	union := func(a, b int) {
		a, b = find(a), find(b)
		root[max(a, b)] = min(a, b)
	}
	for _, r := range p.Routes {
		union(r.Pool, len(p.Pools)+r.Demand)
	}
	quotas, spends := map[int]int{}, map[int]int{}
	for m := range p.Epochs {
		for i, s := range p.Epochs[m].Pools {
			for _, shared := range []struct {
				of map[int]int
				n  int
			}{{quotas, s.Quota}, {spends, s.Spend}} {
				if shared.n < 0 {
					continue
				}
				if first, known := shared.of[shared.n]; known {
					union(first, i)
				} else {
					shared.of[shared.n] = i
				}
			}
		}
	}
	of := map[int]*component{}
	var out []*component
	at := func(i int) *component {
		i = find(i)
		if of[i] == nil {
			of[i] = &component{bases: map[string][]*basis{}}
			out = append(out, of[i])
		}
		return of[i]
	}
	for i := range p.Pools {
		x := at(i)
		x.pools = append(x.pools, i)
	}
	for i := range p.Demands {
		x := at(len(p.Pools) + i)
		x.demands = append(x.demands, i)
	}
	for i, r := range p.Routes {
		x := at(r.Pool)
		x.routes = append(x.routes, i)
	}
	for i := range p.Quotas {
		if pool, used := quotas[i]; used {
			x := at(pool)
			x.quotas = append(x.quotas, i)
		}
	}
	for i := range p.Spends {
		if pool, used := spends[i]; used {
			x := at(pool)
			x.spends = append(x.spends, i)
		}
	}
	return out
}

// column is a variable of the hour.
type column struct {
	rows    []int64
	entries []*big.Int
	cost    *big.Int // under the multipliers
	really  *big.Int // the cost in money, without the price of a shortage
	money   bool
	short   int64 // unserved units of demand
	spot    int64 // units of pools that spot serves
}

// program is the hour of a component in an epoch: minimise cost·x such that the columns add up to
// the right-hand side. Each row has a column of its own with a one in that row: the shortage in
// demand rows, and the slack in the others.
type program struct {
	rows    int
	columns []column
	shape   string
	narrow  *narrowed // nil: it does not fit
}

// Rows come in this order.
func (x *component) row(kind, i int) int64 {
	n := 0
	for k, size := range []int{len(x.demands), len(x.demands), len(x.pools), len(x.pools), len(x.pools),
		len(x.quotas), len(x.spends)} {
		if k == kind {
			return int64(n + i)
		}
		n += size
	}
	return int64(n)
}

const (
	demandRow = iota
	interruptibleRow
	firmRow
	spotRow
	discountOnlyRow
	quotaRow
	spendRow
	allRows
)

func (c *coupled) program(x *component, epoch int, pr *prices) *program {
	p := c.p
	e := &p.Epochs[epoch]
	g := &program{rows: int(x.row(allRows, 0))}
	add := func(cost, really *big.Int, spot int64, entries ...int64) {
		col := column{cost: cost, really: really, money: true, spot: spot}
		for i := 0; i < len(entries); i += 2 {
			col.rows, col.entries = append(col.rows, entries[i]), append(col.entries, whole(entries[i+1]))
		}
		g.columns = append(g.columns, col)
		g.shape += fmt.Sprint(entries)
	}
	for _, n := range x.routes {
		// Counted in 1/Den of a unit of demand, all entries are integers.
		r := &p.Routes[n]
		num, den := int64(r.Num), int64(r.Den)
		demand, pool := slices.Index(x.demands, r.Demand), slices.Index(x.pools, r.Pool)
		extra, really := times(pr.extra[n], whole(den)), times(nano(e.Routes[n]), whole(den))
		add(extra, really, 0, x.row(demandRow, demand), den, x.row(firmRow, pool), num)
		if pr.spot[r.Pool] != nil {
			cost, truly := new(big.Int).Set(extra), new(big.Int).Set(really)
			plus(cost, pr.spot[r.Pool], whole(num))
			plus(truly, nano(e.Pools[r.Pool].Spot), whole(num))
			add(cost, truly, num, x.row(demandRow, demand), den, x.row(interruptibleRow, demand), den,
				x.row(spotRow, pool), num)
		}
	}
	for i, n := range x.pools {
		s := &e.Pools[n]
		if pr.onDemand[n] == nil {
			continue
		}
		var quota []int64
		if s.Quota >= 0 {
			quota = []int64{x.row(quotaRow, slices.Index(x.quotas, s.Quota)), int64(s.QuotaPerUnit)}
		}
		firm := []int64{x.row(firmRow, i), -1}
		none := new(big.Int)
		add(none, none, 0, slices.Concat(firm, quota, []int64{x.row(discountOnlyRow, i), 1})...)
		add(pr.onDemand[n], nano(s.OnDemand), 0, slices.Concat(firm, quota)...)
		if s.Spend >= 0 {
			add(none, none, 0, slices.Concat(firm, quota,
				[]int64{x.row(spendRow, slices.Index(x.spends, s.Spend)), int64(s.SpendPrice)})...)
		}
	}
	for i := range g.rows {
		col := column{rows: []int64{int64(i)}, entries: []*big.Int{whole(1)}, cost: new(big.Int), really: new(big.Int)}
		if i < len(x.demands) {
			col.cost, col.really, col.short = pr.shortage[x.demands[i]], nano(e.Shortage[x.demands[i]]), 1
		}
		g.columns = append(g.columns, col)
	}
	g.narrow = g.narrowed()
	return g
}

// right is the right-hand side of a slot, in fractions: all of it times grain. loads are what is
// served of each demand, in these fractions.
func (c *coupled) right(x *component, epoch, k int, loads []int64, grain int64) []*big.Int {
	p := c.p
	whole := func(n int64) *big.Int { return times(big.NewInt(n), big.NewInt(grain)) }
	e := &p.Epochs[epoch]
	out := make([]*big.Int, x.row(allRows, 0))
	// Where there is no bound, use more than can be used of anything.
	enough := whole(1)
	for _, n := range x.routes {
		r := &p.Routes[n]
		d := big.NewInt(loads[slices.Index(x.demands, r.Demand)])
		enough = new(big.Int).Add(enough, up(times(d, big.NewInt(int64(r.Num))), big.NewInt(int64(r.Den))))
	}
	for i, n := range x.demands {
		load, share := big.NewInt(loads[i]), big.NewInt(int64(p.Demands[n].Interruptible))
		out[x.row(demandRow, i)] = load
		if p.Demands[n].Window > 0 {
			out[x.row(interruptibleRow, i)] = down(times(load, share), big.NewInt(1000))
		} else {
			out[x.row(interruptibleRow, i)] = whole(loads[i] / grain * int64(p.Demands[n].Interruptible) / 1000)
		}
	}
	perUnit := int64(1)
	for i, n := range x.pools {
		out[x.row(firmRow, i)] = whole(c.guaranteed[epoch][n])
		out[x.row(discountOnlyRow, i)] = whole(c.discountOnly[epoch][n])
		out[x.row(spotRow, i)] = enough
		if spot := e.Cases[k].Spot[n]; spot != procurement.Unlimited {
			out[x.row(spotRow, i)] = whole(int64(spot))
		}
		perUnit = max(perUnit, int64(e.Pools[n].QuotaPerUnit))
	}
	for i, n := range x.quotas {
		out[x.row(quotaRow, i)] = times(enough, big.NewInt(perUnit))
		if e.Quotas[n] != procurement.Unlimited {
			out[x.row(quotaRow, i)] = whole(int64(e.Quotas[n]))
		}
	}
	for i, n := range x.spends {
		out[x.row(spendRow, i)] = times(c.spends[epoch][n], big.NewInt(grain))
	}
	return out
}

// serveCase adds the cost of a component's hours of a case and what they take of limits, times its
// weight.
func (c *coupled) serveCase(
	ctx context.Context, x *component, epoch, k, way int, pr *prices, cost *big.Rat, taken []*big.Rat,
) error {
	p := c.p
	hours := c.slots(x.demands, epoch, k)
	if len(hours.hours) == 0 {
		return nil
	}
	g := c.program(x, epoch, pr)
	best := map[*basis]bool{} // whether a basis is optimal in this epoch
	sums := map[*basis][]*big.Int{}
	var used []*basis
	loads, grain := c.loads(x.demands, &hours, way, epoch, k)
	for i := range hours.hours {
		b := c.right(x, epoch, k, loads[i], grain)
		at, err := x.solve(ctx, g, b, best)
		if err != nil {
			return err
		}
		if sums[at] == nil {
			used = append(used, at)
			sums[at] = make([]*big.Int, len(b))
			for r := range b {
				sums[at][r] = new(big.Int)
			}
		}
		hour := whole(hours.hours[i])
		for r := range b {
			plus(sums[at][r], b[r], hour)
		}
	}
	e := &p.Epochs[epoch]
	weight := whole(int64(e.Cases[k].Weight))
	for _, at := range used {
		all, money, short, spot := new(big.Int), new(big.Int), new(big.Int), new(big.Int)
		for r, j := range at.columns {
			value := at.value(r, sums[at])
			col := &g.columns[j]
			plus(all, col.really, value)
			if col.money {
				plus(money, col.really, value)
			}
			plus(short, whole(col.short), value)
			plus(spot, whole(col.spot), value)
		}
		share := func(n *big.Int, per int64) *big.Rat {
			return new(big.Rat).SetFrac(times(n, weight), times(at.denominator, whole(per*grain)))
		}
		cost.Add(cost, share(all, 1))
		for i := range p.Limits {
			l := &p.Limits[i]
			if l.Serving == nil || l.Serving[epoch] == 0 {
				continue
			}
			of := money
			switch {
			case l.Spot:
				of = spot
			case l.Unserved:
				of = short
			}
			taken[i].Add(taken[i], share(times(of, whole(l.Serving[epoch])), 1000))
		}
	}
	return nil
}

// basis is a choice of columns, one for each row, with its inverse.
type basis struct {
	columns     []int
	denominator *big.Int // positive
	// The inverse times the denominator, row by row: in 64 bits with its largest magnitude, and in
	// floating point if that is exact (sums of integers are below 2⁵³); in big integers if it does not fit.
	small  []int64
	most   float64
	floats []float64
	large  []*big.Int
}

// newBasis is a basis with an inverse in 64 bits.
func newBasis(columns []int, denominator int64, inverse []int64) *basis {
	b := &basis{columns: columns, denominator: whole(denominator), small: inverse, most: sizeOf(inverse)}
	if b.most < exactly {
		b.floats = make([]float64, len(inverse))
		for i, v := range inverse {
			b.floats[i] = float64(v)
		}
	}
	return b
}

const exactly = 1 << 53

// at is a number of the inverse.
func (b *basis) at(row, column int) *big.Int {
	if k := row*len(b.columns) + column; b.small == nil {
		return b.large[k]
	} else {
		return whole(b.small[k])
	}
}

// value returns the value of the column of a row, times the denominator.
func (b *basis) value(row int, right []*big.Int) *big.Int {
	sum := new(big.Int)
	for i, x := range right {
		if k := row*len(right) + i; b.small != nil && b.small[k] == 0 {
			continue
		}
		plus(sum, b.at(row, i), x)
	}
	return sum
}

// serves reports whether no value is negative.
func (b *basis) serves(right []*big.Int, floats []float64) bool {
	for r := range b.columns {
		if b.floats != nil && floats != nil {
			sum, size := 0.0, 0.0
			for i, v := range b.floats[r*len(floats) : (r+1)*len(floats)] {
				product := float64(v * floats[i])
				sum += product
				size += math.Abs(product)
			}
			if size < exactly {
				if sum < 0 {
					return false
				}
				continue
			}
		}
		if b.value(r, right).Sign() < 0 {
			return false
		}
	}
	return true
}

func toFloats(list []*big.Int) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		if v.BitLen() > 53 {
			return nil
		}
		out[i] = float64(v.Int64())
	}
	return out
}

// cheapest reports whether no reduced cost of a program is negative.
func (b *basis) cheapest(g *program) bool {
	if g.narrow != nil {
		if costs := b.costs(g.narrow); costs != nil {
			return !slices.ContainsFunc(g.narrow.columns, func(c narrow) bool {
				return c.reduced(costs, b.denominator.Int64()) < 0
			})
		}
	}
	row := make([]*big.Int, g.rows) // costs of the columns times the inverse
	for i := range row {
		row[i] = new(big.Int)
	}
	for r, j := range b.columns {
		if cost := g.columns[j].cost; cost.Sign() != 0 {
			for i := range row {
				plus(row[i], cost, b.at(r, i))
			}
		}
	}
	for j := range g.columns {
		if reduced(&g.columns[j], row, b.denominator).Sign() < 0 {
			return false
		}
	}
	return true
}

func reduced(col *column, row []*big.Int, denominator *big.Int) *big.Int {
	d := times(denominator, col.cost)
	for i, r := range col.rows {
		minus(d, row[r], col.entries[i])
	}
	return d
}

// solve returns a basis that serves a slot at least cost.
func (x *component) solve(ctx context.Context, g *program, right []*big.Int, best map[*basis]bool) (*basis, error) {
	floats := toFloats(right)
	known := x.bases[g.shape]
	var from *basis // optimal, though not feasible for the slot
	for i, b := range known {
		serves := b.serves(right, floats)
		if !serves && from != nil {
			continue
		}
		is, asked := best[b]
		if !asked {
			is = b.cheapest(g)
			best[b] = is
		}
		switch {
		case is && serves:
			copy(known[1:i+1], known[:i]) // the next slot is likely to be similar
			known[0] = b
			return b, nil
		case is:
			from = b
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := g.from(ctx, from, right)
	if err != nil {
		return nil, err
	}
	if !b.serves(right, floats) || !b.cheapest(g) {
		return nil, errors.New("the checker's simplex ended where it should not: please report this")
	}
	best[b] = true
	x.bases[g.shape] = slices.Insert(known[:min(len(known), mostBases-1)], 0, b)
	return b, nil
}

// mostBases bounds the bases of a shape that are tried before an hour is solved.
const mostBases = 256

// from solves a slot from a basis that is optimal for others, or from none.
func (g *program) from(ctx context.Context, from *basis, right []*big.Int) (*basis, error) {
	if t := newSmallTableau(g.narrow, from, right); t != nil {
		err := t.end(ctx, from != nil)
		if err == nil {
			return t.basis(), nil
		} else if !errors.Is(err, errWide) {
			return nil, err
		}
	}
	t := newTableau(g, from, right)
	var err error
	if from != nil {
		err = t.dual(ctx)
	} else {
		err = t.primal(ctx)
	}
	if err != nil {
		return nil, err
	}
	return t.basis(), nil
}

// tableau is a program in terms of a basis: entries, values (the last column) and reduced costs
// (the last row), all times the denominator.
type tableau struct {
	cells       [][]*big.Int
	columns     []int
	denominator *big.Int
	rows, width int
}

func newTableau(g *program, from *basis, right []*big.Int) *tableau {
	if from == nil {
		from = slack(g.rows, len(g.columns))
	}
	t := &tableau{columns: slices.Clone(from.columns), denominator: from.denominator, rows: g.rows, width: len(g.columns)}
	costs := make([]*big.Int, g.rows)
	for i := range costs {
		costs[i] = new(big.Int)
	}
	for r := range g.rows {
		line := make([]*big.Int, t.width+1)
		for j := range g.columns {
			v := new(big.Int)
			for i, n := range g.columns[j].rows {
				plus(v, from.at(r, int(n)), g.columns[j].entries[i])
			}
			line[j] = v
		}
		line[t.width] = from.value(r, right)
		t.cells = append(t.cells, line)
		for i := range costs {
			plus(costs[i], g.columns[from.columns[r]].cost, from.at(r, i))
		}
	}
	line := make([]*big.Int, t.width+1)
	for j := range g.columns {
		line[j] = reduced(&g.columns[j], costs, t.denominator)
	}
	line[t.width] = new(big.Int)
	t.cells = append(t.cells, line)
	return t
}

// slack is the basis of all shortage and slack: the last columns.
func slack(rows, columns int) *basis {
	at, unit := make([]int, rows), make([]int64, rows*rows)
	for r := range rows {
		at[r], unit[r*rows+r] = columns-rows+r, 1
	}
	return newBasis(at, 1, unit)
}

// pivot brings a column into the basis in a row.
func (t *tableau) pivot(row, column int) {
	p := t.cells[row][column]
	by := new(big.Int)
	for i := range t.cells {
		if i == row {
			continue
		}
		factor := t.cells[i][column]
		line := make([]*big.Int, t.width+1)
		for j, v := range t.cells[i] {
			n := times(v, p)
			if factor.Sign() != 0 && t.cells[row][j].Sign() != 0 {
				n.Sub(n, by.Mul(factor, t.cells[row][j]))
			}
			line[j] = n.Quo(n, t.denominator) // exact division
		}
		t.cells[i] = line
	}
	t.columns[row] = column
	if t.denominator = p; p.Sign() < 0 {
		for i := range t.cells {
			line := make([]*big.Int, t.width+1)
			for j, v := range t.cells[i] {
				line[j] = new(big.Int).Neg(v)
			}
			t.cells[i] = line
		}
		t.denominator = new(big.Int).Neg(p)
	}
}

var errNoEnd = errors.New("the hour has no least cost")

// primal pivots until no reduced cost is negative.
func (t *tableau) primal(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		enter := slices.IndexFunc(t.cells[t.rows][:t.width], func(v *big.Int) bool { return v.Sign() < 0 })
		if enter < 0 {
			return nil
		}
		leave := -1
		for r := range t.rows {
			if t.cells[r][enter].Sign() <= 0 {
				continue
			}
			if leave >= 0 {
				a, b := times(t.cells[r][t.width], t.cells[leave][enter]), times(t.cells[leave][t.width], t.cells[r][enter])
				if n := a.Cmp(b); n > 0 || n == 0 && t.columns[r] > t.columns[leave] {
					continue
				}
			}
			leave = r
		}
		if leave < 0 {
			return errNoEnd
		}
		t.pivot(leave, enter)
	}
}

// dual pivots until no value is negative.
func (t *tableau) dual(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		leave := -1
		for r := range t.rows {
			if t.cells[r][t.width].Sign() < 0 && (leave < 0 || t.columns[r] < t.columns[leave]) {
				leave = r
			}
		}
		if leave < 0 {
			return nil
		}
		enter := -1
		for j := range t.width {
			if t.cells[leave][j].Sign() >= 0 {
				continue
			}
			if enter >= 0 { // the least of reduced cost ÷ −entry
				a, b := times(t.cells[t.rows][j], t.cells[leave][enter]), times(t.cells[t.rows][enter], t.cells[leave][j])
				if a.Cmp(b) <= 0 {
					continue
				}
			}
			enter = j
		}
		if enter < 0 {
			return errNoEnd
		}
		t.pivot(leave, enter)
	}
}

// basis reads the inverse from the rows' own columns.
func (t *tableau) basis() *basis {
	var inverse []*big.Int
	for r := range t.rows {
		inverse = append(inverse, t.cells[r][t.width-t.rows:t.width]...)
	}
	if small := inSmall(inverse); small != nil && t.denominator.IsInt64() {
		return newBasis(t.columns, t.denominator.Int64(), small)
	}
	return &basis{columns: t.columns, denominator: t.denominator, large: inverse}
}
