package instance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/check/certificate"
	"quartermaster/domain/procurement/check/question"
	"quartermaster/domain/procurement/joint"
	"quartermaster/domain/reliability"
)

// Method is the version of this package's method. An answer names it.
const Method = "instance/8"

// Methods lists the versions of everything that computes an answer.
func Methods() []string {
	return []string{Method, procurement.Method, joint.Method, reliability.Method}
}

// Solve answers an instance. lp may be nil; an instance with a component that needs a linear
// programming solver is then refused with an error that wraps [linear.ErrUnavailable]. An instance
// that cannot be satisfied is refused with [Infeasible], and one that violates a rule with
// [Faults]. The answer has passed both checkers: that of its solutions, and [Follows].
func Solve(ctx context.Context, in *Instance, lp linear.Solver) (*Answer, error) {
	a, err := SolveUntil(ctx, ctx, in, lp, 0)
	if err == nil {
		err = Follows(ctx, in, a)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Follows holds an answer against the document of its instance, with the checker that reads that by
// itself (package question). Its error wraps [check.ErrRejected] if the answer does not follow.
func Follows(ctx context.Context, in *Instance, a *Answer) error {
	asked, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the instance: %w", err)
	}
	answered, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if _, err = certificate.Check(ctx, asked, answered); errors.Is(err, question.ErrRejected) {
		return fmt.Errorf("%w: %w", check.ErrRejected, err)
	}
	return err
}

// SolveUntil is [Solve] without the check against the document, that stops searching when until ends. It then returns the best known answer
// with the bound proven so far, and marks it (Answer.Interrupted). Buying nothing is such an answer
// if it keeps the posture, budgets and limits. If no answer is known, the error is until's. The
// search for coupled pools also ends at an effort (see [joint.SolveWithin]), which does not mark the
// answer: equal efforts give equal answers.
func SolveUntil(ctx, until context.Context, in *Instance, lp linear.Solver, effort int) (*Answer, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, err
	}
	solved, err := m.solveUntil(ctx, until, lp, effort)
	if err != nil {
		return nil, err
	}
	return m.answer(solved)
}

// Best is the purchases of an answer without the answer: what [Solve] buys, checked against the problem
// that the solver was given.
func Best(ctx context.Context, in *Instance, lp linear.Solver) ([]Order, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, err
	}
	solved, err := m.solveUntil(ctx, ctx, lp, 0)
	if err != nil {
		return nil, err
	}
	return m.orders(solved.units), nil
}

// EndOfHorizon solves an instance again with the salvage of terms beyond the horizon set to 0 and
// to 1, and adds the results to its answer. It does nothing if no purchase could outlive the
// horizon.
func EndOfHorizon(ctx context.Context, in *Instance, a *Answer, lp linear.Solver, effort int) error {
	base, err := a.modelOf(ctx, in)
	if err != nil {
		return err
	}
	for i := range a.EndOfHorizon {
		t := &a.EndOfHorizon[i]
		m, err := base.under(ctx, in, t.Salvage)
		if err != nil {
			return err
		}
		solved, err := m.solveUntil(ctx, ctx, lp, effort)
		if err != nil {
			return err
		}
		cost, bound, err := m.proves(solved)
		if err != nil {
			return err
		}
		t.Best, t.LowerBound, t.Purchases = &cost, &bound, m.orders(solved.units)
	}
	return nil
}

// modelOf is the model of the instance of an answer.
func (a *Answer) modelOf(ctx context.Context, in *Instance) (*model, error) {
	if a.model != nil && a.model.of == in {
		return a.model, nil
	}
	return newLoads().compile(ctx, in, nil)
}

// under is the model of its instance under another salvage.
func (m *model) under(ctx context.Context, in *Instance, salvage domain.Decimal) (*model, error) {
	out, err := m.repriced(salvage)
	if errors.Is(err, errLarge) {
		return m.loads.compile(ctx, in, &salvage)
	}
	return out, err
}

// proves returns the cost of a solution as its answer would state it, and the bound that its
// certificates prove.
func (m *model) proves(s *solution) (cost, bound domain.Decimal, err error) {
	sum, least := m.needless(s.units), new(big.Int)
	for i := range s.proofs {
		p := &s.proofs[i]
		if _, err := m.proven(i, p.cost(), p); err != nil {
			return cost, bound, err
		}
		sum.Add(sum, p.cost())
		least.Add(least, m.bounded(&m.components[i], p.report))
	}
	owed := m.owed.RoundBank(m.digits)
	return owed.Add(m.quotient(sum, true)), owed.Add(m.quotient(least, false)), nil
}

// orders are what a solution buys, in the order of an answer's purchases.
func (m *model) orders(units []int) []Order {
	var bought []int
	for i, n := range units {
		if n > 0 {
			bought = append(bought, i)
		}
	}
	all := make([]*choice, len(bought))
	for k, i := range bought {
		all[k] = m.choice(i)
	}
	slices.SortFunc(all, func(a, b *choice) int {
		return cmp.Or(cmp.Compare(a.term.From, b.term.From), cmp.Compare(a.order.Offer, b.order.Offer),
			cmp.Compare(a.order.Commitment, b.order.Commitment), cmp.Compare(a.order.Renewals, b.order.Renewals))
	})
	out := make([]Order, len(all))
	for k, x := range all {
		out[k] = x.order
		out[k].Units *= units[x.at]
	}
	return out
}

// solution is the number of units bought of each choice and the proof of each component. Purchases
// that are only evaluated have no proofs.
type solution struct {
	units       []int // by choice
	proofs      []proof
	interrupted bool
}

type proof struct {
	alone  *procurement.Solution
	joint  *joint.Solution
	report check.Report // the checker's result
}

// cost is the cost that the solution states.
func (p *proof) cost() *big.Int {
	if p.alone != nil {
		return p.alone.Cost
	}
	return p.joint.Cost
}

func (m *model) solveUntil(ctx, until context.Context, lp linear.Solver, effort int) (*solution, error) {
	out := &solution{units: make([]int, len(m.choices))}
	for i := range m.components {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := m.solveComponent(ctx, until, &m.components[i], lp, effort)
		if err != nil {
			return nil, err
		}
		m.take(&m.components[i], p, out.units)
		out.interrupted = out.interrupted || p.joint != nil && p.joint.Interrupted
		out.proofs = append(out.proofs, *p)
	}
	return out, nil
}

// solveComponent solves a component and has the solution checked. A single pool is solved without
// its least orders first: where the solution meets them, it is the best with them, too.
func (m *model) solveComponent(ctx, until context.Context, c *component, lp linear.Solver, effort int) (*proof, error) {
	if c.alone != nil {
		alone := m.alone(c)
		s, err := procurement.Solve(alone)
		if err != nil {
			return nil, err
		}
		if !m.tooFew(c, s) {
			r, err := check.Check(alone, s)
			return &proof{alone: s, report: r}, err
		}
		if err := m.together(ctx, c); err != nil {
			return nil, err
		}
	}
	s, err := joint.SolveWithin(ctx, until, c.joint, lp, effort)
	var clash *joint.Infeasible
	if errors.As(err, &clash) {
		return nil, m.clash(clash)
	} else if err != nil {
		return nil, err
	}
	r, err := check.JointContext(ctx, c.joint, s)
	return &proof{joint: s, report: r}, err
}

// tooFew reports whether a solution of a single pool buys less of something than its least order.
func (m *model) tooFew(c *component, s *procurement.Solution) bool {
	return slices.ContainsFunc(s.Purchases, func(b procurement.Purchase) bool {
		return b.Units < int(m.choices[m.choiceOf(c, b.Offer, b.Epoch)].least)
	})
}

// together states a single pool as a component of several is stated.
func (m *model) together(ctx context.Context, c *component) error {
	c.alone = nil
	return m.stateJoint(ctx, c)
}

// take enters what a solution of a component buys.
func (m *model) take(c *component, p *proof, units []int) {
	if p.alone != nil {
		for _, b := range p.alone.Purchases {
			units[m.choiceOf(c, b.Offer, b.Epoch)] = b.Units
		}
		return
	}
	for j, n := range p.joint.Units {
		units[c.choices[j]] = n
	}
}

// Evaluate computes the result of given orders, with Recourse, Calendar and Scenarios. It proves
// nothing: LowerBound and Gap are zero. It needs no linear programming solver. Orders that the
// instance does not sell are refused. Notes lists violations of its posture, budgets and limits.
func Evaluate(ctx context.Context, in *Instance, orders []Order) (*Answer, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	units, err := m.place(orders)
	if err != nil {
		return nil, err
	}
	return m.answer(&solution{units: units})
}

// sales are the choices of what an order names: the starts and tiers of an offer, or the renewals of
// a commitment. They follow each other.
func (m *model) sales(o *Order) (from, to int) {
	if m.sold == nil {
		m.sold = map[string][2]int{}
		name := func(i int) string {
			if k := m.choices[i].offer; k >= 0 {
				return "o" + m.in.Offers[k].ID
			} else {
				return "c" + m.renewals[-1-k].goes.ID
			}
		}
		for i := 0; i < len(m.choices); {
			j := i + 1
			for first := name(i); j < len(m.choices) && (m.choices[j].offer == m.choices[i].offer || name(j) == first); {
				j++
			}
			m.sold[name(i)] = [2]int{i, j}
			i = j
		}
	}
	name := "o" + o.Offer
	if o.Commitment != "" {
		name = "c" + o.Commitment
	}
	x := m.sold[name]
	return x[0], x[1]
}

// place maps orders to choices.
func (m *model) place(orders []Order) ([]int, error) {
	units := make([]int, len(m.choices))
	sum := map[Order]int{}
	for i, o := range orders {
		k := o
		k.Units = 0
		var by []int
		for from, to := m.sales(&o); from < to; from++ {
			if int(m.choices[from].epoch) != o.Epoch {
				continue
			}
			if x := m.choice(from).order; x.Offer == o.Offer && x.Commitment == o.Commitment && x.Renewals == o.Renewals {
				by = append(by, from)
			}
		}
		if len(by) == 0 {
			return nil, fmt.Errorf("purchases/%d: nothing is sold as offer %q, commitment %q with %d renewals, "+
				"from epoch %d on", i, o.Offer, o.Commitment, o.Renewals, o.Epoch)
		}
		if o.Units < 1 || o.Units > MaxUnits {
			return nil, fmt.Errorf("purchases/%d: %d units", i, o.Units)
		}
		if sum[k] > 0 {
			return nil, fmt.Errorf("purchases/%d: offer %q is ordered twice from epoch %d on: what begins "+
				"together is one order", i, o.Offer, o.Epoch)
		}
		sum[k] = o.Units
		found := false
		for _, j := range by {
			x := m.choice(j)
			n := o.Units / x.order.Units
			if o.Units%x.order.Units == 0 && n >= x.least && (x.max == procurement.Unlimited || n <= x.max) {
				units[j], found = n, true
			}
		}
		if !found {
			return nil, fmt.Errorf("purchases/%d: %d units of %q from epoch %d on: not sold in such an order (see "+
				"min_units, max_units and lot)", i, o.Units, o.Offer+o.Commitment, o.Epoch)
		}
	}
	groups := map[string]int{}
	for i, n := range units {
		if n == 0 {
			continue
		}
		x := m.choice(i)
		if x.group == "" {
			continue
		}
		if j, ok := groups[x.group]; ok {
			return nil, fmt.Errorf("purchases: %q and %q are both bought, and of %s one may be at most",
				choiceID(m.choice(j)), choiceID(x), x.group)
		}
		groups[x.group] = i
	}
	return units, nil
}

// Check verifies an answer of an instance. It restates the problems, has each solution proven in
// exact arithmetic by a checker that shares no code with its solver, and recomputes everything in
// the answer. Its error wraps [check.ErrRejected] if the answer is wrong, and is the context's
// error if that ends.
//
// Three things are not proven ([Answer.NotProven]): that the search was interrupted; the lower
// bounds under another salvage (Terminal.LowerBound) and of alternatives, while the costs of their
// purchases are recomputed; and the work counts in certificates. Another certificate, or
// another recourse that keeps the limits, is accepted if it proves the same.
func Check(ctx context.Context, in *Instance, a *Answer) error {
	if err := in.Validate(); err != nil {
		return err
	}
	digest, err := in.Digest()
	if err != nil {
		return err
	}
	if a.Instance != digest {
		return fmt.Errorf("%w: it answers instance %s, not %s", check.ErrRejected, a.Instance, digest)
	}
	if !slices.Equal(a.Methods, Methods()) {
		return fmt.Errorf("%w: it was computed by %q, this program uses %q: check it with that version",
			check.ErrRejected, a.Methods, Methods())
	}
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return err
	}
	units, err := m.place(a.Orders())
	if err != nil {
		return fmt.Errorf("%w: %v", check.ErrRejected, err)
	}
	if len(a.Proof) != len(m.components) {
		return fmt.Errorf("%w: %d certificates for %d components", check.ErrRejected, len(a.Proof), len(m.components))
	}
	s := &solution{units: units, interrupted: a.Interrupted}
	for i := range m.components {
		p, err := m.prove(ctx, &m.components[i], units, &a.Proof[i])
		if err != nil {
			return fmt.Errorf("certificate/%d: %w", i, err)
		}
		s.proofs = append(s.proofs, *p)
	}
	again, err := m.answer(s)
	if err != nil {
		return err
	}
	if len(a.EndOfHorizon) == len(again.EndOfHorizon) {
		for i := range a.EndOfHorizon {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := m.otherwise(ctx, in, &a.EndOfHorizon[i], &again.EndOfHorizon[i]); err != nil {
				return fmt.Errorf("end_of_horizon/%d: %w", i, err)
			}
		}
	}
	if a.Baselines != nil {
		if again.Baselines, err = m.baselines(ctx, in); err != nil {
			return err
		}
	}
	if err := a.checkAlternatives(ctx, in, m, again); err != nil {
		return err
	}
	if path, err := differs(a, again); err != nil {
		return err
	} else if path != "" {
		return fmt.Errorf("%w: %s does not follow from the purchases and the certificate", check.ErrRejected, path)
	}
	return nil
}

// NotProven lists, as JSON Pointers, the values that [Check] takes from an answer without
// verification. No other figure depends on them.
func (a *Answer) NotProven() []string {
	out := []string{}
	if a.Interrupted {
		out = append(out, "/interrupted")
	}
	for i := range a.EndOfHorizon {
		if a.EndOfHorizon[i].LowerBound != nil {
			out = append(out, fmt.Sprintf("/end_of_horizon/%d/lower_bound", i))
		}
	}
	for i := range a.Alternatives {
		out = append(out, fmt.Sprintf("/alternatives/%d/lower_bound", i))
	}
	for i := range a.Capped {
		out = append(out, fmt.Sprintf("/capped/%d/lower_bound", i))
	}
	for i := range a.Proof {
		out = append(out, fmt.Sprintf("/certificate/%d/solution/work", i))
	}
	return out
}

// otherwise checks what an answer says about another salvage against the cost of its purchases, and
// copies it. The lower bound is informative and not proven.
func (m *model) otherwise(ctx context.Context, in *Instance, says, again *Terminal) error {
	if says.Best == nil && says.LowerBound == nil && says.Purchases == nil {
		return nil
	}
	if says.Best == nil || says.LowerBound == nil || says.LowerBound.GreaterThan(*says.Best) {
		return fmt.Errorf("%w: best_cost and lower_bound must both be given, the bound no higher than the cost",
			check.ErrRejected)
	}
	under, err := m.under(ctx, in, again.Salvage)
	if err != nil {
		return err
	}
	m = under
	units, err := m.place(says.Purchases)
	if err != nil {
		return fmt.Errorf("%w: %v", check.ErrRejected, err)
	}
	other, err := m.answer(&solution{units: units})
	if err != nil {
		return err
	}
	if len(other.Notes) > len(m.notes) {
		return fmt.Errorf("%w: %s", check.ErrRejected, other.Notes[len(m.notes)])
	}
	if !other.Cost.Equal(*says.Best) || !slices.Equal(other.Orders(), says.Purchases) {
		return fmt.Errorf("%w: best_cost is %s, and the purchases there come to %s", check.ErrRejected, says.Best, other.Cost)
	}
	again.Best, again.LowerBound, again.Purchases = says.Best, says.LowerBound, says.Purchases
	return nil
}

// prove has the solution of a component checked.
func (m *model) prove(ctx context.Context, c *component, units []int, of *Proof) (*proof, error) {
	if c.alone != nil && of.Solver == joint.Method { // least orders bind
		if err := m.together(ctx, c); err != nil {
			return nil, err
		}
	}
	if c.alone != nil {
		var s procurement.Solution
		if err := json.Unmarshal(of.Document, &s); err != nil {
			return nil, fmt.Errorf("%w: solution: %v", check.ErrRejected, err)
		}
		bought := 0
		for _, b := range s.Purchases {
			i := m.choiceOf(c, b.Offer, b.Epoch)
			if i < 0 || units[i] != b.Units {
				return nil, fmt.Errorf("%w: the certificate proves other purchases", check.ErrRejected)
			}
			bought++
		}
		for _, i := range c.choices {
			if units[i] > 0 {
				bought--
			}
		}
		if bought != 0 {
			return nil, fmt.Errorf("%w: the certificate proves other purchases", check.ErrRejected)
		}
		r, err := check.Check(m.alone(c), &s)
		return &proof{alone: &s, report: r}, err
	}
	var s joint.Solution
	if err := json.Unmarshal(of.Document, &s); err != nil {
		return nil, fmt.Errorf("%w: solution: %v", check.ErrRejected, err)
	}
	if len(s.Units) != len(c.choices) {
		return nil, fmt.Errorf("%w: the certificate proves other purchases", check.ErrRejected)
	}
	for j, i := range c.choices {
		if s.Units[j] != units[i] {
			return nil, fmt.Errorf("%w: the certificate proves other purchases", check.ErrRejected)
		}
	}
	r, err := check.JointContext(ctx, c.joint, &s)
	return &proof{joint: &s, report: r}, err
}

// differs returns the place where two answers differ, "" if nowhere.
func differs(a, b *Answer) (string, error) {
	var trees [2]any
	for i, x := range []*Answer{a, b} {
		text, err := json.Marshal(x)
		if err != nil {
			return "", fmt.Errorf("write answer: %w", err)
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&trees[i]); err != nil {
			return "", fmt.Errorf("read answer: %w", err)
		}
	}
	return difference("", trees[0], trees[1]), nil
}

func difference(path string, a, b any) string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return path
		}
		keys := make([]string, 0, len(x)+len(y))
		for k := range x {
			keys = append(keys, k)
		}
		for k := range y {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			v, inA := x[k]
			w, inB := y[k]
			if inA != inB {
				return path + "/" + escape(k)
			}
			if d := difference(path+"/"+escape(k), v, w); d != "" {
				return d
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return path
		}
		for i := range x {
			if d := difference(fmt.Sprintf("%s/%d", path, i), x[i], y[i]); d != "" {
				return d
			}
		}
	default:
		if a != b {
			return path
		}
	}
	return ""
}

// quotient converts a sum of weighted integers to the currency, exactly if the weight divides it.
func (m *model) quotient(sum *big.Int, up bool) domain.Decimal {
	q, r := new(big.Int).QuoRem(sum, big.NewInt(int64(m.weight)), new(big.Int))
	switch {
	case r.Sign() > 0 && up:
		q.Add(q, big.NewInt(1))
	case r.Sign() < 0 && !up:
		q.Sub(q, big.NewInt(1))
	}
	return decimal.NewFromBigInt(q, -m.digits)
}
