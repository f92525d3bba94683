package whatif

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/parallel"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement/joint"
	"quartermaster/projections"
)

// Input is what a scenario is answered from.
type Input struct {
	Scenario *Scenario
	// View is rows at the base position. It is read while [Prepare] runs.
	View projections.View
	// Instance is the base of a scenario that names an instance; View is then nil.
	Instance *instance.Instance
	// At is the time at which offers and decisions are in force.
	At domain.Instant
	// Solve answers an instance; see [instance.Solve].
	Solve func(context.Context, *instance.Instance) (*instance.Answer, error)
	// EndOfHorizon answers an instance again with salvage 0 and 1; see [instance.EndOfHorizon]. If
	// nil, an answer has only the cost of the same purchases under those, and not the best ones.
	EndOfHorizon func(context.Context, *instance.Instance, *instance.Answer) error
	// Workers is the number of trials evaluated at once; 0 means one.
	Workers int
	// Progress, if not nil, receives the number of evaluated trials and the total.
	Progress func(done, of int64)
}

// Methods lists the versions of everything that computes an answer.
func Methods() []string {
	return append(plan.Methods(projections.Method), instance.Method, joint.Method, Method)
}

// Prepared is a scenario with everything that its answer needs of the rows.
type Prepared struct {
	in       *Input
	s        Scenario
	composed []*composed
	r        *Result
}

// Run answers a scenario. It ends soon after ctx does.
func Run(ctx context.Context, in *Input) (*Result, error) {
	p, err := Prepare(ctx, in)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx)
}

// Prepare reads what a scenario needs of the rows. They may change afterwards.
func Prepare(ctx context.Context, in *Input) (*Prepared, error) {
	s := *in.Scenario
	if in.View != nil {
		s.Base.Position, s.Base.At = in.View.Position().String(), in.At
	}
	r := &Result{
		Format: Format, Name: s.Name, Question: s.Question, Position: s.Base.Position, At: in.At,
		Currency: s.Assumptions.Currency, Seed: s.Seed, Runs: s.Runs,
		Methods: Methods(), Drivers: []Driver{}, Differences: []Difference{}, Alternatives: []Outcome{},
	}
	// The position is next to the scenario, not in it, so that the same answer to the same question
	// has the same id.
	asked := s
	asked.Base.Position = ""
	r.Scenario = &asked
	p := &Prepared{in: in, s: s, r: r}
	k := &composer{ctx: ctx, s: &p.s, view: in.View, at: in.At, given: in.Instance, known: map[string]*composed{}}
	for i := range p.s.Alternatives {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := k.compose(&p.s.Alternatives[i])
		if err != nil {
			return nil, fmt.Errorf("alternative %q: %w", p.s.Alternatives[i].Name, err)
		}
		p.composed = append(p.composed, c)
	}
	return p, nil
}

// Run answers the scenario, once.
func (p *Prepared) Run(ctx context.Context) (*Result, error) {
	in, s, r := p.in, &p.s, p.r
	var done atomic.Int64
	progress := func() {
		n := done.Add(1)
		if in.Progress != nil {
			in.Progress(n, int64(s.Runs)*int64(len(s.Alternatives)))
		}
	}
	for _, c := range p.composed {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e := &experiment{in: in, s: s, c: c, spans: c.in.Spans(), progress: progress}
		out, err := e.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("alternative %q: %w", c.alt.Name, err)
		}
		r.AnnualRate, r.Salvage = &c.in.AnnualRate, &c.in.Salvage
		r.Currency, r.Horizon = c.in.Currency, domain.Interval{From: e.spans[0].From, To: e.spans[len(e.spans)-1].To}
		r.Alternatives, r.trials, r.in = append(r.Alternatives, *out), append(r.trials, e.outcomes), append(r.in, e.solved)
		r.drivers(e)
		if slices.Contains(s.Report, "break_even") {
			r.breakEven(e)
		}
		for _, n := range c.in.Notes {
			if !slices.Contains(r.Notes, n) {
				r.Notes = append(r.Notes, n)
			}
		}
	}
	r.BreakEven = cheapest(r.BreakEven)
	for i := 1; i < len(r.trials); i++ {
		r.Differences = append(r.Differences, difference(r, i))
	}
	return r, r.name()
}

// experiment is the trials of an alternative.
type experiment struct {
	in       *Input
	s        *Scenario
	c        *composed
	spans    []domain.Interval
	progress func()
	// asked is the problem that the trials are reduced to; solved is the problem that purchases are
	// solved for, if something may be bought.
	asked, solved *instance.Instance
	quotas        How // how uncertain quotas are treated in it
	m             *compiled
	outcomes      []outcome
}

func (e *experiment) run(ctx context.Context) (*Outcome, error) {
	c := e.c
	var err error
	// Before anything is bought the model is used to draw worlds.
	if e.m, err = newModel(c.in, c.haven()); err != nil {
		return nil, err
	}
	out := &Outcome{Alternative: c.alt.Name, Purchases: []Purchase{}, Set: []SetEntry{}, Tornado: []Swing{}, Histogram: []Bin{}}
	if err := e.decide(ctx, out); err != nil {
		return nil, err
	}
	if err := e.m.bought(e.asked, c.answer); err != nil {
		return nil, err
	}
	if err := e.trials(ctx); err != nil {
		return nil, err
	}
	e.sum(out)
	if len(out.Solvers) > 0 {
		out.TrialsAbove, out.Unmodelled = out.Expected.Sub(out.Solved), e.unmodelled()
		if out.Solved.IsPositive() {
			out.TrialsAboveShare = out.TrialsAbove.DivRound(out.Solved, 6)
		}
	}
	if err := e.tornado(ctx, out); err != nil {
		return nil, err
	}
	out.Notes = c.notes
	for i := range c.in.Budgets {
		if len(out.Solvers) > 0 {
			out.Notes = append(out.Notes,
				fmt.Sprintf("budget %q is kept in expectation over the weighted scenarios; a trial of more demand "+
					"may exceed it, and trials are not judged by it", c.in.Budgets[i].ID))
		}
	}
	return out, nil
}

// unmodelled lists what the trials vary and the solved problem does not, and the constraints that
// the problem keeps and trials do not.
func (e *experiment) unmodelled() []Unmodelled {
	out := []Unmodelled{}
	varies := func(of ...int) bool {
		return slices.ContainsFunc(of, func(i int) bool { return i >= 0 && !e.c.certain(i) })
	}
	for i := range e.c.levers {
		l := &e.c.levers[i]
		switch l.kind {
		case ProviderOutage, Maintenance:
			out = append(out, Unmodelled{l.name, Excluded})
		case LeadTime:
			if len(l.offers) > 0 && varies(l.value) {
				out = append(out, Unmodelled{l.name, NeverLate})
			}
		case NewOffer:
			if len(l.offers) > 0 && varies(l.value, l.second) {
				out = append(out, Unmodelled{l.name, AtItsMean})
			}
			if len(l.offers) > 0 && varies(l.third) {
				out = append(out, Unmodelled{l.name, NeverLate})
			}
		case SpotInterruption:
			if varies(l.value, l.second) {
				out = append(out, Unmodelled{l.name, AtItsMean})
			}
		case PriceChange, Renewal, FXChange:
			if len(l.pools)+len(l.offers)+len(l.held) > 0 && varies(l.value, l.happens) {
				out = append(out, Unmodelled{l.name, AtItsMean})
			}
		case QuotaChange:
			if len(l.quotas) > 0 && varies(l.value, l.happens) {
				out = append(out, Unmodelled{l.name, e.quotas})
			}
		}
	}
	if x := &e.s.Constraints; x.MaxUnserved != nil || x.MaxSpotShare != nil || len(x.Budgets) > 0 {
		out = append(out, Unmodelled{"constraints", InExpectation})
	}
	return out
}

// values are the drawn numbers of a trial.
func (e *experiment) values(trial int) *values {
	v := &values{
		at: make([]domain.Decimal, len(e.c.vars.list)),
		outages: func(l *lever, mean float64) int {
			return int(poisson(min(float64(maxPoisson), mean), uniform(e.s.Seed, l.name+" count", trial)))
		},
		start: func(l *lever, k, _ int) float64 {
			return uniform(e.s.Seed, fmt.Sprintf("%s start %d", l.name, k), trial)
		},
	}
	for i := range e.c.vars.list {
		v.at[i] = e.valueAt(i, uniform(e.s.Seed, e.c.vars.list[i].name, trial))
	}
	return v
}

// valueAt is the value of a variable at a quantile. Something with a probability happens in the
// highest quantiles.
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
func (c *composed) happening(i int) bool {
	return slices.ContainsFunc(c.levers, func(l lever) bool { return l.happens == i })
}

// certain reports whether a variable is the same in every trial.
func (c *composed) certain(i int) bool {
	n := c.vars.list[i].number
	if c.happening(i) {
		return n.P[0].IsZero() || n.P[0].Equal(decimal.NewFromInt(1))
	}
	return n.Certain()
}

// point is a world with every driver at its median, except for some.
type point struct {
	// at is the quantile of variables, by index.
	at map[int]float64
	// lever has as many outages as the quantile of their number says, 0 meaning the median, but not
	// less than least.
	lever    *lever
	quantile float64
	least    int
}

// typical are the values of a point. Outages are spread evenly over the horizon.
func (e *experiment) typical(of point) *values {
	v := &values{at: make([]domain.Decimal, len(e.c.vars.list)), start: func(_ *lever, k, n int) float64 {
		return float64(2*k+1) / float64(2*n)
	}}
	v.outages = func(l *lever, mean float64) int {
		u, least := 0.5, 0
		if l == of.lever {
			u, least = cmp.Or(of.quantile, u), of.least
		}
		return max(least, int(poisson(min(float64(maxPoisson), mean), u)))
	}
	for i := range e.c.vars.list {
		v.at[i] = e.valueAt(i, cmp.Or(of.at[i], 0.5))
	}
	return v
}

// evaluators returns one evaluator per worker. Bases for the hours of coupled pools start in each
// trial with those of the all-median world, so the result of a trial does not depend on its worker.
func (e *experiment) evaluators(workers int) ([]*evaluator, error) {
	first, err := newEvaluator(e.m)
	if err != nil {
		return nil, err
	}
	if len(e.m.groups) > 0 {
		w := e.c.newWorld(e.m)
		if err := w.set(e.c, e.m, e.typical(point{})); err != nil {
			return nil, err
		}
		if _, err := first.evaluate(w); err != nil {
			return nil, err
		}
	}
	out := make([]*evaluator, workers)
	for k := range out {
		if out[k], err = newEvaluator(e.m); err != nil {
			return nil, err
		}
		for i, t := range out[k].groups {
			t.r.Seed(first.groups[i].r.Seeds())
		}
	}
	return out, nil
}

// each calls work for every trial, several at a time. Each worker has its own world.
func (e *experiment) each(ctx context.Context, work func(trial int, w *world, v *evaluator) error) error {
	workers := min(max(1, e.in.Workers), e.s.Runs)
	errs := make([]error, workers)
	evaluators, err := e.evaluators(workers)
	if err != nil {
		return err
	}
	var next atomic.Int64
	parallel.Run(workers, func(k int) {
		w, v := e.c.newWorld(e.m), evaluators[k]
		for ctx.Err() == nil {
			trial := int(next.Add(1)) - 1
			if trial >= e.s.Runs {
				return
			}
			if err := w.set(e.c, e.m, e.values(trial)); err != nil {
				errs[k] = fmt.Errorf("trial %d: %w", trial, err)
				return
			}
			if err := work(trial, w, v); err != nil {
				errs[k] = err
				return
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// trials evaluates every trial.
func (e *experiment) trials(ctx context.Context) error {
	e.outcomes = make([]outcome, e.s.Runs)
	return e.each(ctx, func(trial int, w *world, v *evaluator) error {
		var err error
		if e.outcomes[trial], err = v.evaluate(w); err != nil {
			return fmt.Errorf("trial %d: %w", trial, err)
		}
		e.progress()
		return nil
	})
}

// tried is a problem that purchases may be solved for, and its treatment of uncertain quotas.
type tried struct {
	in     *instance.Instance
	quotas How
}

// lowQuotas are the quantiles of uncertain quotas for which purchases are tried in addition to the
// mean.
var lowQuotas = []struct {
	at  float64
	how How
}{{0.25, "at its p25"}, {0.05, "at its p5"}}

// problems are the problems that purchases are solved for: the one that the trials are reduced to
// and, if quotas are uncertain, those with lower quotas. Scenarios of an instance share their
// quotas, and the mean hides that a quota may be lower.
func (e *experiment) problems(set *instance.Instance) ([]tried, error) {
	out := []tried{{set, AtItsMean}}
	at := map[int]bool{}
	for i := range e.c.levers {
		if l := &e.c.levers[i]; l.kind == QuotaChange && len(l.quotas) > 0 {
			for _, v := range []int{l.value, l.happens} {
				if v >= 0 && !e.c.certain(v) {
					at[v] = true
				}
			}
		}
	}
	if len(at) == 0 {
		return out, nil
	}
	w := e.c.newWorld(e.m)
	for _, low := range lowQuotas {
		of := point{at: map[int]float64{}}
		for v := range at {
			if of.at[v] = low.at; e.c.happening(v) {
				of.at[v] = 1 - low.at
			}
		}
		if err := w.set(e.c, e.m, e.typical(of)); err != nil {
			return nil, err
		}
		in := *set
		in.Quotas = slices.Clone(in.Quotas)
		e.limit(&in, w.quota, 1)
		out = append(out, tried{&in, low.how})
	}
	return out, nil
}

// expect is the total cost of purchases over all trials.
func (e *experiment) expect(ctx context.Context, problem *instance.Instance, a *instance.Answer) (*big.Int, error) {
	held := len(e.m.pays)
	if err := e.m.bought(problem, a); err != nil {
		return nil, err
	}
	costs := make([]int64, e.s.Runs)
	err := e.each(ctx, func(trial int, w *world, v *evaluator) error {
		o, err := v.evaluate(w)
		costs[trial] = o.cost
		return err
	})
	e.m.pays, e.m.cold = e.m.pays[:held], 0
	sum := new(big.Int)
	for _, c := range costs {
		sum.Add(sum, big.NewInt(c))
	}
	return sum, err
}

// solve finds the purchases of each problem, and takes those that cost least in the trials. The
// first problem must have an answer.
func (e *experiment) solve(ctx context.Context, set *instance.Instance) (*instance.Answer, error) {
	all, err := e.problems(set)
	if err != nil {
		return nil, err
	}
	var best *instance.Answer
	var least *big.Int
	for i, x := range all {
		a, err := e.in.Solve(ctx, x.in)
		switch {
		case err != nil && (i == 0 || ctx.Err() != nil):
			return nil, fmt.Errorf("find what to buy: %w", err)
		case err != nil:
			continue
		}
		if len(all) > 1 {
			cost, err := e.expect(ctx, x.in, a)
			if err != nil {
				return nil, err
			}
			if least != nil && cost.Cmp(least) >= 0 {
				continue
			}
			least = cost
		}
		best, e.asked, e.solved, e.quotas = a, x.in, x.in, x.quotas
	}
	return best, nil
}

// decide finds what to buy: the trials are reduced to a few weighted scenarios, and the purchases
// are the best for all of them together.
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
	a, err := e.solve(ctx, set.in)
	if err != nil {
		return err
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
		p := Purchase{
			Offer: b.Offer, Commitment: b.Commitment, Pool: b.Pool, Units: b.Units, Term: b.Term,
			Upfront: b.Upfront.Round(2), Hourly: b.Hourly.Round(6), Cost: b.Cost.Round(2),
		}
		if o := slices.IndexFunc(e.c.in.Offers, func(o instance.Offer) bool { return o.ID == b.Offer }); o >= 0 {
			f := &e.c.in.Offers[o]
			p.Pool, p.Guaranteed, p.Generated, p.Citation = f.Pool, f.GuaranteesCapacity, f.Generated, f.Citation
		}
		out.Purchases = append(out.Purchases, p)
	}
	if e.in.EndOfHorizon != nil {
		if err := e.in.EndOfHorizon(ctx, e.solved, a); err != nil {
			return fmt.Errorf("find what to buy with nothing, and all, credited beyond the horizon: %w", err)
		}
	}
	for _, t := range a.EndOfHorizon {
		t.Cost = t.Cost.Round(2)
		for _, of := range []**domain.Decimal{&t.Best, &t.LowerBound} {
			if *of != nil {
				rounded := (*of).Round(2)
				*of = &rounded
			}
		}
		out.EndOfHorizon = append(out.EndOfHorizon, t)
	}
	return nil
}

// sum summarizes the trials.
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
		if c := e.s.Constraints.MaxUnserved; c != nil &&
			decimal.NewFromInt(o.unserved).LessThanOrEqual(c.Mul(decimal.NewFromInt(o.demand))) {
			kept[0]++
		}
		if c := e.s.Constraints.MaxSpotShare; c != nil &&
			decimal.NewFromInt(o.spot).LessThanOrEqual(c.Mul(decimal.NewFromInt(o.demand))) {
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
		out.UnservedShare, out.SpotShare = decimal.NewFromBigInt(&short, 0).DivRound(d, 9),
			decimal.NewFromBigInt(&spot, 0).DivRound(d, 9)
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
	out.Trials = hex.EncodeToString(hash.Sum(nil))
}

// percentile is the smallest value that at least the given percentage does not exceed.
func percentile(sorted []int64, percent int) int64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// interval is the 95 % confidence interval of the mean: 1.96 standard errors to each side, in
// integers.
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
			out[i].Trials++
			at++
		}
	}
	return out
}

// tornado evaluates the all-median world, and those in which one driver is low or high. It also
// shows how the all-median world is served.
func (e *experiment) tornado(ctx context.Context, out *Outcome) error {
	w := e.c.newWorld(e.m)
	v, err := newEvaluator(e.m)
	if err != nil {
		return err
	}
	at := func(of point) (domain.Decimal, error) {
		if err := ctx.Err(); err != nil {
			return decimal.Zero, err
		}
		if err := w.set(e.c, e.m, e.typical(of)); err != nil {
			return decimal.Zero, err
		}
		o, err := v.evaluate(w)
		return money(o.cost), err
	}
	if out.Median, err = at(point{}); err != nil {
		return err
	}
	if slices.Contains(e.s.Report, "load_duration") {
		for p := range e.m.pools {
			s, err := v.stack(w, p)
			if err != nil {
				return err
			}
			out.Stacks = append(out.Stacks, s)
		}
	}
	if !slices.Contains(e.s.Report, "tornado") {
		return nil
	}
	swing := func(s Swing, low, high point) error {
		if s.LowCost, err = at(low); err != nil {
			return err
		}
		if s.HighCost, err = at(high); err != nil {
			return err
		}
		out.Tornado = append(out.Tornado, s)
		return nil
	}
	for i := range e.c.vars.list {
		if e.c.certain(i) {
			continue
		}
		with, given := e.given(i)
		low, high := with, with
		low.at, high.at = maps.Clone(with.at), maps.Clone(with.at)
		low.at[i], high.at[i] = 0.05, 0.95
		if err := swing(Swing{Driver: e.c.vars.list[i].name, Given: given, Low: e.valueAt(i, 0.05),
			High: e.valueAt(i, 0.95)}, low, high); err != nil {
			return err
		}
	}
	for i := range e.c.levers {
		l := &e.c.levers[i]
		if l.kind != ProviderOutage || l.value < 0 {
			continue
		}
		// The number of outages is not a number of the file.
		low, high := point{lever: l, quantile: 0.05}, point{lever: l, quantile: 0.95}
		count := func(of point) domain.Decimal {
			return decimal.NewFromInt(int64(e.typical(of).outages(l, l.mean(e.m, e.valueAt(l.value, 0.5)))))
		}
		if err := swing(Swing{Driver: l.name + " outages", Low: count(low), High: count(high)}, low, high); err != nil {
			return err
		}
	}
	width := func(s *Swing) domain.Decimal { return s.HighCost.Sub(s.LowCost).Abs() }
	slices.SortStableFunc(out.Tornado, func(a, b Swing) int {
		return cmp.Or(width(&b).Cmp(width(&a)), cmp.Compare(a.Driver, b.Driver))
	})
	return nil
}

// given is the point for a low or high variable: the all-median world or, if the variable's change
// has no effect there, the world in which it occurs once.
func (e *experiment) given(i int) (with point, given string) {
	with.at = map[int]float64{}
	for k := range e.c.levers {
		l := &e.c.levers[k]
		switch {
		case l.value != i && l.second != i && l.third != i:
		case l.happens >= 0 && e.valueAt(l.happens, 0.5).IsZero():
			with.at[l.happens], given = 1-1e-9, "if it happens"
		case l.kind == ProviderOutage && l.second == i && l.value >= 0 &&
			e.typical(point{}).outages(l, l.mean(e.m, e.valueAt(l.value, 0.5))) == 0:
			with.lever, with.least, given = l, 1, "of one outage"
		}
	}
	return with, given
}

// drivers adds the uncertain numbers of an alternative.
func (r *Result) drivers(e *experiment) {
	for i := range e.c.vars.list {
		x := &e.c.vars.list[i]
		if e.c.certain(i) {
			continue
		}
		name := x.name
		distribution := x.number.String()
		if e.c.happening(i) {
			distribution = "probability " + distribution
		}
		at := slices.IndexFunc(r.Drivers, func(d Driver) bool { return d.Name == name && d.Distribution == distribution })
		if at >= 0 {
			r.Drivers[at].Alternatives = append(r.Drivers[at].Alternatives, e.c.alt.Name)
			continue
		}
		d := Driver{
			Name: name, Distribution: distribution, P5: e.valueAt(i, 0.05), P50: e.valueAt(i, 0.5),
			P95: e.valueAt(i, 0.95), Alternatives: []string{e.c.alt.Name},
		}
		sum := decimal.Zero
		for trial := range e.s.Runs {
			sum = sum.Add(e.valueAt(i, uniform(e.s.Seed, name, trial)))
		}
		d.Mean = sum.DivRound(decimal.NewFromInt(int64(e.s.Runs)), places)
		r.Drivers = append(r.Drivers, d)
	}
}

// difference compares an alternative with the first, trial by trial.
func difference(r *Result, i int) Difference {
	base, other := r.trials[0], r.trials[i]
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

// breakEven compares every offer that an alternative may take with on-demand.
func (r *Result) breakEven(e *experiment) {
	in := e.c.in
	for o := range in.Offers {
		b, ok := breakEvenOf(e.m.priced, in, &in.Offers[o])
		if !ok {
			continue
		}
		same := slices.IndexFunc(r.BreakEven, func(x BreakEven) bool {
			return x.Pool == b.Pool && x.Offer == b.Offer && x.Hourly.Equal(b.Hourly) && x.OnDemand.Equal(b.OnDemand)
		})
		if same < 0 {
			same = len(r.BreakEven)
			r.BreakEven = append(r.BreakEven, b)
		}
		r.BreakEven[same].Alternatives = append(r.BreakEven[same].Alternatives, e.c.alt.Name)
	}
}

// cheapest sorts break-evens pool by pool, the lowest first, and keeps the first few of each pool.
func cheapest(all []BreakEven) []BreakEven {
	slices.SortStableFunc(all, func(a, b BreakEven) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), a.Utilization.Cmp(b.Utilization), cmp.Compare(a.Offer, b.Offer))
	})
	var out []BreakEven
	for i := range all {
		if i < mostBreakEven || all[i-mostBreakEven].Pool != all[i].Pool {
			out = append(out, all[i])
		}
	}
	return out
}

// breakEvenOf is the hourly cost of an offer over its whole term and of on-demand in the same
// hours, both discounted to the day on which the offer can begin. Beyond the horizon on-demand has
// the price of the last epoch.
func breakEvenOf(priced *instance.Priced, in *instance.Instance, f *instance.Offer) (BreakEven, bool) {
	p := slices.IndexFunc(in.Pools, func(x instance.Pool) bool { return x.ID == f.Pool })
	if p < 0 || priced.Pools[p].ListedOnDemand == nil {
		return BreakEven{}, false
	}
	const digits = 30
	first, last := following(priced.Spans, max(f.From, in.From+domain.Instant(f.LeadHours)*domain.Hour)), len(priced.Spans)-1
	if first > last {
		return BreakEven{}, false
	}
	// A payment in the middle of an epoch is discounted by half an epoch.
	half := priced.Middle[0]
	full := half.Mul(half).Round(digits)
	total, hours, rent, running := f.Upfront, decimal.Zero, decimal.Zero, decimal.Zero
	start := priced.Spans[first].From
	after := func(n int) domain.Instant {
		if in.Epoch == instance.Days {
			return start + domain.Instant(n)*domain.Day
		}
		return monthsAfter(start, n)
	}
	now := decimal.NewFromInt(1)
	for k := range f.Term {
		length := decimal.NewFromInt(int64((after(k+1) - after(k)) / domain.Hour))
		worth := now.Mul(half).Round(digits)
		hours = hours.Add(length.Mul(worth))
		rent = rent.Add(length.Mul(worth).Mul(priced.Pools[p].ListedOnDemand[min(first+k, last)]))
		if w := f.Owned; w != nil {
			months := decimal.NewFromInt(1)
			if in.Epoch == instance.Days {
				u := after(k).Time()
				days := time.Date(u.Year(), u.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
				months = months.DivRound(decimal.NewFromInt(int64(days)), digits)
			}
			power := w.PowerKW.Mul(w.PUE).Mul(w.TariffKWh).Mul(length)
			monthly := w.SpaceMonthly.Add(w.NetworkMonthly).Add(w.SupportMonthly).Mul(months)
			running = running.Add(power.Add(monthly).Mul(worth))
		}
		now = now.Mul(full).Round(digits)
	}
	if f.Owned != nil {
		total = total.Sub(f.Upfront.Mul(f.Owned.Salvage).Mul(now))
	}
	if !rent.IsPositive() {
		return BreakEven{}, false
	}
	total = total.Add(f.Hourly.Mul(hours)).Add(running).Mul(priced.Worth(f.Currency))
	hourly, onDemand := total.DivRound(hours.Mul(decimal.NewFromInt(int64(max(1, f.PerUnit)))), 6), rent.DivRound(hours, 6)
	return BreakEven{
		Pool: f.Pool, Offer: f.ID, Kind: f.Kind, Term: f.Term, Hourly: hourly, OnDemand: onDemand,
		Utilization: hourly.DivRound(onDemand, 6), Generated: f.Generated, Citation: f.Citation,
		Alternatives: []string{},
	}, true
}
