package whatif

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement/joint"
	"quartermaster/projections"
)

// Input is what a scenario is answered from.
type Input struct {
	Scenario *Scenario
	// View is rows at the base position. It is read while Run runs.
	View projections.View
	// Instance is what a scenario is based on that names one; then View is nil.
	Instance *instance.Instance
	// At is when offers and decisions are those in force.
	At domain.Instant
	// Solve answers an instance; see [instance.Solve].
	Solve func(context.Context, *instance.Instance) (*instance.Answer, error)
	// Workers is how many draws are evaluated at once; 0 is one.
	Workers int
	// Progress, if not nil, is told how many draws of how many are evaluated.
	Progress func(done, of int64)
}

// Methods names the versions of everything that an answer is computed by.
func Methods() []string {
	return append(plan.Methods(projections.Method), instance.Method, joint.Method, Method)
}

// Run answers a scenario. It ends soon after ctx does.
func Run(ctx context.Context, in *Input) (*Result, error) {
	s := *in.Scenario
	if in.View != nil {
		s.Base.Position, s.Base.At = in.View.Position().String(), in.At
	}
	r := &Result{
		Format: Format, Name: s.Name, Question: s.Question, Position: s.Base.Position, At: in.At, Currency: s.Assumptions.Currency, Seed: s.Seed, Runs: s.Runs,
		Methods: Methods(), Drivers: []Driver{}, Differences: []Difference{}, Alternatives: []Outcome{},
	}
	// The position stands beside the scenario, not in it, so that the same answer
	// to the same question has the same name.
	asked := s
	asked.Base.Position = ""
	r.Scenario = &asked
	k := &composer{ctx: ctx, s: &s, view: in.View, at: in.At, given: in.Instance, known: map[string]*course{}}
	var done atomic.Int64
	progress := func() {
		n := done.Add(1)
		if in.Progress != nil {
			in.Progress(n, int64(s.Runs)*int64(len(s.Alternatives)))
		}
	}
	for i := range s.Alternatives {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := k.course(&s.Alternatives[i])
		if err != nil {
			return nil, fmt.Errorf("alternative %q: %w", s.Alternatives[i].Name, err)
		}
		e := &experiment{in: in, s: &s, c: c, spans: c.in.Spans(), progress: progress}
		out, err := e.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("alternative %q: %w", c.alt.Name, err)
		}
		r.Currency, r.Horizon = c.in.Currency, domain.Interval{From: e.spans[0].From, To: e.spans[len(e.spans)-1].To}
		r.Alternatives, r.draws, r.in = append(r.Alternatives, *out), append(r.draws, e.outcomes), append(r.in, e.solved)
		r.drivers(e)
		if slices.Contains(s.Report, "break_even") {
			r.breakEven(e.m.priced, c.in)
		}
		for _, n := range c.in.Notes {
			if !slices.Contains(r.Notes, n) {
				r.Notes = append(r.Notes, n)
			}
		}
	}
	for i := 1; i < len(r.draws); i++ {
		r.Differences = append(r.Differences, difference(r, i))
	}
	return r, r.name()
}

// experiment is the draws of a course.
type experiment struct {
	in       *Input
	s        *Scenario
	c        *course
	spans    []domain.Interval
	progress func()
	// asked is the problem that the draws are reduced to, solved the same where
	// something may be bought.
	asked, solved *instance.Instance
	m             *compiled
	outcomes      []outcome
}

func (e *experiment) run(ctx context.Context) (*Outcome, error) {
	c := e.c
	var err error
	// Before anything is bought the model serves to draw worlds.
	if e.m, err = newModel(c.in); err != nil {
		return nil, err
	}
	out := &Outcome{Alternative: c.alt.Name, Purchases: []Purchase{}, Set: []SetEntry{}, Tornado: []Swing{}, Histogram: []Bin{}}
	if err := e.decide(ctx, out); err != nil {
		return nil, err
	}
	if err := e.m.bought(e.asked, c.answer); err != nil {
		return nil, err
	}
	if err := e.draw(ctx); err != nil {
		return nil, err
	}
	e.sum(out)
	if err := e.tornado(ctx, out); err != nil {
		return nil, err
	}
	out.Notes = append(c.notes, e.m.notes...)
	return out, nil
}

// values are those of a draw.
func (e *experiment) values(draw int) *values {
	v := &values{at: make([]domain.Decimal, len(e.c.vars.list)), random: func(name string) float64 { return uniform(e.s.Seed, name, draw) }}
	for i := range e.c.vars.list {
		x := &e.c.vars.list[i]
		u := uniform(e.s.Seed, x.name, draw)
		v.at[i] = e.valueAt(i, u)
	}
	return v
}

// valueAt is the value of a variable at a quantile. What happens with a
// probability happens in the highest part of them.
func (e *experiment) valueAt(i int, u float64) domain.Decimal {
	n := e.c.vars.list[i].number
	if e.c.happening(i) {
		if float64(1-u) < float(n.P[0]) {
			return decimal.NewFromInt(1)
		}
		return decimal.Zero
	}
	return n.Quantile(u)
}

// happening reports whether a variable is a probability.
func (c *course) happening(i int) bool {
	return slices.ContainsFunc(c.levers, func(l lever) bool { return l.happens == i })
}

// typical is the world in which every driver is at its median, but for some that
// are at another quantile.
func (e *experiment) typical(but map[int]float64, random float64) *values {
	v := &values{at: make([]domain.Decimal, len(e.c.vars.list)), random: func(string) float64 { return 0.5 }}
	if random > 0 {
		v.random = func(string) float64 { return random }
	}
	for i := range e.c.vars.list {
		u, ok := but[i]
		if !ok {
			u = 0.5
		}
		v.at[i] = e.valueAt(i, u)
	}
	return v
}

// each calls work for every draw, some at a time. Each worker has its own world.
func (e *experiment) each(ctx context.Context, work func(draw int, w *world, v *evaluator) error) error {
	workers := min(max(1, e.in.Workers), e.s.Runs)
	errs := make([]error, workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			w, v := e.c.newWorld(e.m), newEvaluator(e.m)
			for ctx.Err() == nil {
				draw := int(next.Add(1)) - 1
				if draw >= e.s.Runs {
					return
				}
				if err := w.set(e.c, e.m, e.values(draw)); err != nil {
					errs[k] = fmt.Errorf("draw %d: %w", draw, err)
					return
				}
				if err := work(draw, w, v); err != nil {
					errs[k] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// draw evaluates every draw.
func (e *experiment) draw(ctx context.Context) error {
	e.outcomes = make([]outcome, e.s.Runs)
	return e.each(ctx, func(draw int, w *world, v *evaluator) error {
		e.outcomes[draw] = v.evaluate(w)
		e.progress()
		return nil
	})
}

// decide finds what to buy: the draws are reduced to a few weighted scenarios,
// and the purchases are the best for all of them together.
func (e *experiment) decide(ctx context.Context, out *Outcome) error {
	set, err := e.reduce(ctx)
	if err != nil {
		return err
	}
	e.c.answer = &instance.Answer{}
	out.Set = set.entries
	e.asked = set.in
	if e.c.alt.Buy == BuyNothing {
		return nil
	}
	e.solved = set.in
	a, err := e.in.Solve(ctx, set.in)
	if err != nil {
		return fmt.Errorf("find what to buy: %w", err)
	}
	e.c.answer = a
	out.Solved, out.LowerBound, out.Gap = a.Cost.Round(2), a.LowerBound.Round(2), a.Gap
	for i := range a.Proof {
		if s := a.Proof[i].Solver; !slices.Contains(out.Solvers, s) {
			out.Solvers = append(out.Solvers, s)
		}
	}
	for i := range a.Purchases {
		b := &a.Purchases[i]
		p := Purchase{Offer: b.Offer, Commitment: b.Commitment, Pool: b.Pool, Units: b.Units, Term: b.Term, Cost: b.Cost.Round(2)}
		if o := slices.IndexFunc(e.c.in.Offers, func(o instance.Offer) bool { return o.ID == b.Offer }); o >= 0 {
			f := &e.c.in.Offers[o]
			p.Pool, p.Guaranteed, p.Generated, p.Citation = f.Pool, f.GuaranteesCapacity, f.Generated, f.Citation
		}
		out.Purchases = append(out.Purchases, p)
	}
	return nil
}

// sum describes the draws.
func (e *experiment) sum(out *Outcome) {
	n := len(e.outcomes)
	costs, stranded := make([]int64, n), make([]int64, n)
	var total, capacity, penalty, idle, demand, short, spot big.Int
	add := func(to *big.Int, v int64) { to.Add(to, big.NewInt(v)) }
	hash := sha256.New()
	kept := make([]int, 2)
	for i, o := range e.outcomes {
		costs[i], stranded[i] = o.cost, o.stranded
		add(&total, o.cost)
		add(&capacity, o.capacity)
		add(&penalty, o.penalty)
		add(&idle, o.stranded)
		add(&demand, o.demand)
		add(&short, o.unserved)
		add(&spot, o.spot)
		for _, x := range []int64{o.cost, o.capacity, o.penalty, o.stranded, o.demand, o.unserved, o.spot} {
			hash.Write(binary.BigEndian.AppendUint64(nil, uint64(x)))
		}
		if c := e.s.Constraints.MaxUnserved; c != nil && decimal.NewFromInt(o.unserved).LessThanOrEqual(c.Mul(decimal.NewFromInt(o.demand))) {
			kept[0]++
		}
		if c := e.s.Constraints.MaxSpotShare; c != nil && decimal.NewFromInt(o.spot).LessThanOrEqual(c.Mul(decimal.NewFromInt(o.demand))) {
			kept[1]++
		}
	}
	share := func(k int) domain.Decimal {
		return decimal.NewFromInt(int64(k)).DivRound(decimal.NewFromInt(int64(n)), 6)
	}
	mean := func(sum *big.Int) *big.Int { return new(big.Int).Quo(sum, big.NewInt(int64(n))) }
	if e.s.Constraints.MaxUnserved != nil {
		out.Kept = append(out.Kept, Kept{"max_unserved " + e.s.Constraints.MaxUnserved.String(), share(kept[0])})
	}
	if e.s.Constraints.MaxSpotShare != nil {
		out.Kept = append(out.Kept, Kept{"max_spot_share " + e.s.Constraints.MaxSpotShare.String(), share(kept[1])})
	}
	out.Interval, _ = interval(costs)
	out.Expected, out.Committed = bigMoney(mean(&total)), bigMoney(mean(&capacity))
	out.Penalty, out.Stranded = bigMoney(mean(&penalty)), bigMoney(mean(&idle))
	out.Demand, out.Unserved = units(mean(&demand).Int64()), units(mean(&short).Int64())
	if demand.Sign() > 0 {
		d := decimal.NewFromBigInt(&demand, 0)
		out.UnservedShare, out.SpotShare = decimal.NewFromBigInt(&short, 0).DivRound(d, 9), decimal.NewFromBigInt(&spot, 0).DivRound(d, 9)
	}
	slices.Sort(costs)
	slices.Sort(stranded)
	out.P5, out.P50, out.P95 = money(percentile(costs, 5)), money(percentile(costs, 50)), money(percentile(costs, 95))
	out.StrandedP95 = money(percentile(stranded, 95))
	worst := new(big.Int)
	tail := (n + 9) / 10
	for _, c := range costs[n-tail:] {
		add(worst, c)
	}
	out.CVaR = bigMoney(worst.Quo(worst, big.NewInt(int64(tail))))
	out.Histogram = histogram(costs)
	out.Draws = hex.EncodeToString(hash.Sum(nil))
}

// percentile is the least value that at least so many percent do not exceed.
func percentile(sorted []int64, percent int) int64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// interval holds the mean of values with 95 % confidence: 1.96 standard errors to
// each side, in whole numbers.
func interval(values []int64) (around [2]domain.Decimal, mean *big.Int) {
	n := int64(len(values))
	sum, squares := new(big.Int), new(big.Int)
	for _, v := range values {
		x := big.NewInt(v)
		sum.Add(sum, x)
		squares.Add(squares, x.Mul(x, x))
	}
	mean = new(big.Int).Quo(sum, big.NewInt(n))
	half := new(big.Int)
	if n > 1 {
		// (Σx² − (Σx)²/n) / (n−1) / n · 1.96²
		half.Mul(sum, sum).Quo(half, big.NewInt(n)).Sub(squares, half)
		half.Mul(half, big.NewInt(196*196)).Quo(half, new(big.Int).Mul(big.NewInt(100*100), big.NewInt(n*(n-1))))
		half.Sqrt(half.Abs(half))
	}
	return [2]domain.Decimal{bigMoney(new(big.Int).Sub(mean, half)), bigMoney(new(big.Int).Add(mean, half))}, mean
}

const bins = 30

// histogram counts sorted values in parts of equal width.
func histogram(sorted []int64) []Bin {
	low, high := sorted[0], sorted[len(sorted)-1]
	if low == high {
		return []Bin{{money(low), money(high), len(sorted)}}
	}
	edge := func(i int) int64 { return low + (high-low)/bins*int64(i) + (high-low)%bins*int64(i)/bins }
	out := make([]Bin, bins)
	at := 0
	for i := range out {
		out[i].From, out[i].To = money(edge(i)), money(edge(i+1))
		for at < len(sorted) && (sorted[at] < edge(i+1) || i == bins-1) {
			out[i].Draws++
			at++
		}
	}
	return out
}

// tornado evaluates the world in which all is at its median, and those in which
// one driver is low or high; and shows how the first is served.
func (e *experiment) tornado(ctx context.Context, out *Outcome) error {
	w, v := e.c.newWorld(e.m), newEvaluator(e.m)
	at := func(x *values) (int64, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := w.set(e.c, e.m, x); err != nil {
			return 0, err
		}
		return v.evaluate(w).cost, nil
	}
	middle, err := at(e.typical(nil, 0))
	if err != nil {
		return err
	}
	out.Median = money(middle)
	if slices.Contains(e.s.Report, "load_duration") {
		for p := range e.m.pools {
			out.Stacks = append(out.Stacks, v.stack(w, p))
		}
	}
	if !slices.Contains(e.s.Report, "tornado") {
		return nil
	}
	for i := range e.c.vars.list {
		x := &e.c.vars.list[i]
		if x.number.Certain() && !e.c.happening(i) || e.c.happening(i) && (x.number.P[0].IsZero() || x.number.P[0].Equal(decimal.NewFromInt(1))) {
			continue
		}
		s := Swing{Driver: x.name, Low: e.valueAt(i, 0.05), High: e.valueAt(i, 0.95)}
		low, err := at(e.typical(map[int]float64{i: 0.05}, 0))
		if err != nil {
			return err
		}
		high, err := at(e.typical(map[int]float64{i: 0.95}, 0))
		if err != nil {
			return err
		}
		s.LowCost, s.HighCost = money(low), money(high)
		out.Tornado = append(out.Tornado, s)
	}
	for i := range e.c.levers {
		if l := &e.c.levers[i]; l.kind == ProviderOutage && l.value >= 0 {
			// How many there are and when is not a number of the file.
			s := Swing{Driver: l.name + " count", Low: decimal.New(5, -2), High: decimal.New(95, -2)}
			low, err := at(e.typical(nil, 0.05))
			if err != nil {
				return err
			}
			high, err := at(e.typical(nil, 0.95))
			if err != nil {
				return err
			}
			s.LowCost, s.HighCost = money(low), money(high)
			out.Tornado = append(out.Tornado, s)
		}
	}
	width := func(s *Swing) domain.Decimal { return s.HighCost.Sub(s.LowCost).Abs() }
	slices.SortStableFunc(out.Tornado, func(a, b Swing) int { return cmp.Or(width(&b).Cmp(width(&a)), cmp.Compare(a.Driver, b.Driver)) })
	return nil
}

// drivers adds the uncertain numbers of a course.
func (r *Result) drivers(e *experiment) {
	for i := range e.c.vars.list {
		x := &e.c.vars.list[i]
		happening := e.c.happening(i)
		if x.number.Certain() && !happening {
			continue
		}
		name := x.name
		at := slices.IndexFunc(r.Drivers, func(d Driver) bool { return d.Name == name && d.Distribution == x.number.String() })
		if at >= 0 {
			r.Drivers[at].Alternatives = append(r.Drivers[at].Alternatives, e.c.alt.Name)
			continue
		}
		d := Driver{Name: name, Distribution: x.number.String(), P5: e.valueAt(i, 0.05), P50: e.valueAt(i, 0.5), P95: e.valueAt(i, 0.95), Alternatives: []string{e.c.alt.Name}}
		if happening {
			d.Distribution = "probability " + d.Distribution
		}
		sum := decimal.Zero
		for draw := range e.s.Runs {
			sum = sum.Add(e.valueAt(i, uniform(e.s.Seed, name, draw)))
		}
		d.Mean = sum.DivRound(decimal.NewFromInt(int64(e.s.Runs)), places)
		r.Drivers = append(r.Drivers, d)
	}
}

// difference compares an alternative with the first, draw by draw.
func difference(r *Result, i int) Difference {
	base, other := r.draws[0], r.draws[i]
	diff := make([]int64, len(base))
	cheaper := 0
	for d := range base {
		diff[d] = other[d].cost - base[d].cost
		if diff[d] < 0 {
			cheaper++
		}
	}
	around, mean := interval(diff)
	slices.Sort(diff)
	return Difference{
		Alternative: r.Alternatives[i].Alternative, From: r.Alternatives[0].Alternative, Mean: bigMoney(mean), Interval: around,
		P5: money(percentile(diff, 5)), P50: money(percentile(diff, 50)), P95: money(percentile(diff, 95)),
		Cheaper: decimal.NewFromInt(int64(cheaper)).DivRound(decimal.NewFromInt(int64(len(diff))), 6),
	}
}

// mostBreakEven bounds the offers of a pool whose break-even is shown.
const mostBreakEven = 8

// breakEven compares every offer with on-demand, the cheapest of each pool first.
func (r *Result) breakEven(priced *instance.Priced, in *instance.Instance) {
	for p := range in.Pools {
		pool := &in.Pools[p]
		if pool.OnDemand == nil || slices.ContainsFunc(r.BreakEven, func(b BreakEven) bool { return b.Pool == pool.ID }) {
			continue
		}
		var all []BreakEven
		for o := range in.Offers {
			if f := &in.Offers[o]; f.Pool == pool.ID {
				if b, ok := breakEvenOf(priced, in, p, f); ok {
					all = append(all, b)
				}
			}
		}
		slices.SortStableFunc(all, func(a, b BreakEven) int {
			return cmp.Or(a.Utilization.Cmp(b.Utilization), cmp.Compare(a.Offer, b.Offer))
		})
		r.BreakEven = append(r.BreakEven, all[:min(len(all), mostBreakEven)]...)
	}
}

func breakEvenOf(priced *instance.Priced, in *instance.Instance, p int, f *instance.Offer) (BreakEven, bool) {
	from := max(in.From, f.From)
	to := monthsAfter(in.From, f.Term)
	if in.Epoch == instance.Days {
		to = in.From + domain.Instant(f.Term)*domain.Day
	}
	hours := decimal.NewFromInt(int64((to - in.From) / domain.Hour))
	rent, pool := priced.Pools[p].ListedOnDemand[min(containing(priced.Spans, from), len(priced.Spans)-1)], &in.Pools[p]
	if !rent.IsPositive() || !hours.IsPositive() {
		return BreakEven{}, false
	}
	total := f.Upfront.Add(f.Hourly.Mul(hours))
	if w := f.Owned; w != nil {
		months := hours.DivRound(decimal.New(8766, 0).DivRound(decimal.NewFromInt(12), 6), 12)
		total = total.Sub(f.Upfront.Mul(w.Salvage)).Add(w.PowerKW.Mul(w.PUE).Mul(w.TariffKWh).Mul(hours)).
			Add(w.SpaceMonthly.Add(w.NetworkMonthly).Add(w.SupportMonthly).Mul(months))
	}
	hourly := total.Mul(priced.Worth(f.Currency)).DivRound(hours.Mul(decimal.NewFromInt(int64(max(1, f.PerUnit)))), 6)
	return BreakEven{
		Pool: pool.ID, Offer: f.ID, Kind: f.Kind, Hourly: hourly, OnDemand: rent, Utilization: hourly.DivRound(rent, 6), Generated: f.Generated, Citation: f.Citation,
	}, true
}
