// Package certificate holds the certificates of an answer against the question as package question
// reads it. It writes the reading in the types of the solvers, calls none of their functions (a test
// of package check enforces it), and has package check prove purchases, hours and bound in exact
// arithmetic. So the bound is one of the question, not of what the planner made of it.
package certificate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/check/question"
	"quartermaster/domain/procurement/joint"
)

// Check verifies the answer of a question; see [question.Check].
func Check(ctx context.Context, asked, answered []byte) (question.Report, error) {
	return question.Check(ctx, asked, answered, Prove)
}

// Prove is a [question.Prover].
func Prove(ctx context.Context, p *question.Problem, lots []int, c *question.Certificate) (question.Proven, error) {
	// A plain group is also solved as a coupled one where least orders bind: either proves it.
	if p.Plain && !strings.HasPrefix(c.Solver, joint.Method) {
		return plain(p, lots, c)
	}
	var s joint.Solution
	if err := json.Unmarshal(c.Solution, &s); err != nil {
		return question.Proven{}, fmt.Errorf("solution: %w", err)
	}
	if s.Cost == nil || s.Cost.String() != c.Cost.String() {
		return question.Proven{}, fmt.Errorf("the solution costs %v units, and cost_units is %s", s.Cost, c.Cost)
	}
	if len(s.Units) != len(lots) {
		return question.Proven{}, fmt.Errorf("the solution has %d choices, and the question %d", len(s.Units), len(lots))
	}
	for i, n := range s.Units {
		if n != lots[i] {
			return question.Proven{}, fmt.Errorf("the solution buys %d lots of %s, and the answer %d", n, p.Choices[i].Name(), lots[i])
		}
	}
	r, err := check.JointContext(ctx, coupled(p), &s)
	if err != nil {
		return question.Proven{}, err
	}
	return question.Proven{Cost: r.Cost, Bound: lowered(p, r), Exact: len(p.Limits) == 0}, nil
}

// plain proves a group of one pool with one demand and plain offers.
func plain(p *question.Problem, lots []int, c *question.Certificate) (question.Proven, error) {
	var s procurement.Solution
	if err := json.Unmarshal(c.Solution, &s); err != nil {
		return question.Proven{}, fmt.Errorf("solution: %w", err)
	}
	q, at := single(p)
	bought := map[[2]int]int{}
	for i, n := range lots {
		if n > 0 {
			bought[at[i]] = n
		}
	}
	for _, b := range s.Purchases {
		if bought[[2]int{b.Offer, b.Epoch}] != b.Units {
			return question.Proven{}, errors.New("the solution buys other units than the answer")
		}
		delete(bought, [2]int{b.Offer, b.Epoch})
	}
	if len(bought) > 0 {
		return question.Proven{}, errors.New("the solution buys fewer units than the answer")
	}
	r, err := check.Check(q, &s)
	return question.Proven{Cost: r.Cost, Bound: r.Bound, Exact: true}, err
}

// single writes a plain group, and the offer and epoch of each choice.
func single(p *question.Problem) (*procurement.Pool, [][2]int) {
	out := &procurement.Pool{ID: p.Pools[0], Weights: p.Weights}
	for e := range p.Epochs {
		x := &p.Epochs[e]
		s := &x.Pools[0]
		y := procurement.Epoch{
			Span: x.Span, OnDemand: procurement.Nano(s.OnDemand), Spot: procurement.Nano(s.Spot),
			Shortage: procurement.Nano(x.Shortage[0]), SpotPermille: p.Demands[0].Interruptible, Quota: procurement.Unlimited,
			HeldGuaranteed: s.Guaranteed, HeldDiscountOnly: s.Discount,
		}
		if y.SpotPermille == 0 || y.Spot > y.Shortage { // it serves nothing
			y.Spot, y.SpotPermille = -1, 0
		}
		if s.Quota >= 0 && x.Quotas[s.Quota] >= 0 {
			y.Quota = x.Quotas[s.Quota] / s.QuotaPerUnit
		}
		for k := range x.Cases {
			c := procurement.Case{SpotUnits: x.Cases[k].Spot[0]}
			for _, slot := range x.Cases[k].Slots {
				c.Demand = append(c.Demand, procurement.Step{Units: slot.Units[0], Hours: slot.Hours})
			}
			y.Cases = append(y.Cases, c)
		}
		out.Epochs = append(out.Epochs, y)
	}
	at := make([][2]int, len(p.Choices))
	for i := range p.Choices {
		c := &p.Choices[i]
		if n := len(out.Offers); n == 0 || out.Offers[n-1].ID != c.Offer {
			out.Offers = append(out.Offers, procurement.Offer{ID: c.Offer, Guaranteed: c.Covers[0].Guaranteed, Term: c.Term})
		}
		o := &out.Offers[len(out.Offers)-1]
		o.Starts = append(o.Starts, procurement.Start{Epoch: c.Epoch, Cost: procurement.Nano(c.Cost), Max: c.Most})
		at[i] = [2]int{len(out.Offers) - 1, c.Epoch}
	}
	return out, at
}

// coupled writes any other group.
func coupled(p *question.Problem) *joint.Problem {
	out := &joint.Problem{ID: p.Pools[0], Weight: p.Weight(), Pools: p.Pools, Quotas: p.Quotas, Spends: p.Spends}
	for _, d := range p.Demands {
		out.Demands = append(out.Demands, joint.Demand{ID: d.ID, Interruptible: d.Interruptible, Window: d.Window})
	}
	for _, r := range p.Routes {
		out.Routes = append(out.Routes, joint.Route{Demand: r.Demand, Pool: r.Pool, Num: r.Num, Den: r.Den})
	}
	for e := range p.Epochs {
		out.Epochs = append(out.Epochs, epoch(p, e))
	}
	for i := range p.Choices {
		c := &p.Choices[i]
		x := joint.Choice{ID: c.Name(), Cost: procurement.Nano(c.Cost), Least: c.Least, Max: c.Most, Lot: 1, Group: c.Group}
		if x.Least == 1 {
			x.Least = 0
		}
		for _, v := range c.Covers {
			x.Cover = append(x.Cover, joint.Cover{Pool: v.Pool, From: v.From, To: v.To, Units: v.Units, Guaranteed: v.Guaranteed})
		}
		for _, v := range c.Spends {
			x.Spend = append(x.Spend, joint.SpendCover{Spend: v.Spend, From: v.From, To: v.To, PerHour: procurement.Nano(v.PerHour)})
		}
		x.Spent = nanos(c.Spent)
		out.Choices = append(out.Choices, x)
	}
	for i, n := range p.Needs {
		x := joint.Need{ID: fmt.Sprint(i), Epochs: n.Epochs, Least: n.Least}
		for _, t := range n.Terms {
			x.Terms = append(x.Terms, joint.NeedTerm{Pool: t.Pool, PerUnit: t.PerUnit})
		}
		out.Needs = append(out.Needs, x)
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		out.Limits = append(out.Limits, joint.Limit{
			ID: l.Name, Most: procurement.Nano(l.Most), Serving: l.Serving, Unserved: l.Unserved, Spot: l.Spot,
		})
	}
	return out
}

func nanos(list []int64) []procurement.Nano {
	var out []procurement.Nano
	for _, n := range list {
		out = append(out, procurement.Nano(n))
	}
	return out
}

func epoch(p *question.Problem, e int) joint.Epoch {
	x := &p.Epochs[e]
	out := joint.Epoch{Span: x.Span, Routes: nanos(x.Routes), Shortage: nanos(x.Shortage), Quotas: x.Quotas, Spends: nanos(x.Spends)}
	for _, s := range x.Pools {
		out.Pools = append(out.Pools, joint.Supply{
			OnDemand: procurement.Nano(s.OnDemand), Spot: procurement.Nano(s.Spot), HeldGuaranteed: s.Guaranteed,
			HeldDiscountOnly: s.Discount, Quota: s.Quota, QuotaPerUnit: s.QuotaPerUnit, Spend: s.Spend,
			SpendPrice: procurement.Nano(s.SpendPrice),
		})
	}
	for k := range x.Cases {
		c := joint.Case{Weight: p.Weights[k], Spot: x.Cases[k].Spot}
		for _, s := range x.Cases[k].Slots {
			c.Slots = append(c.Slots, joint.Slot{Hours: s.Hours, Units: s.Units, Waits: s.Waits})
		}
		out.Cases = append(out.Cases, c)
	}
	return out
}

// lowered makes a bound of the problem one of the question. A budget is counted in parts that are
// rounded up, so that the problem allows less than the question. What the question allows keeps a
// budget that is larger by the greatest ratio of what is counted to what is spent: the bound is what
// the certificate proves then.
func lowered(p *question.Problem, r check.Report) *big.Int {
	if len(p.Limits) == 0 {
		return r.Bound
	}
	more := make([]*big.Int, len(p.Limits))
	for l := range p.Limits {
		more[l] = enlarged(p, l)
	}
	out := r.Loosened(more)
	if out.Sign() < 0 { // nothing costs less than nothing
		return new(big.Int)
	}
	return out
}

func ceil(r *big.Rat) *big.Int {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return n.Div(n, r.Denom())
}

// enlarged is by how much a budget has to be larger.
func enlarged(p *question.Problem, l int) *big.Int {
	limit := &p.Limits[l]
	if !limit.Budget {
		return new(big.Int)
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(limit.Digits)), nil))
	greatest := big.NewRat(1, 1)
	counts := func(counted *big.Rat, spent domain.Decimal) {
		if spent.IsPositive() {
			if ratio := counted.Quo(counted, new(big.Rat).Mul(spent.Rat(), scale)); ratio.Cmp(greatest) > 0 {
				greatest = ratio
			}
		}
	}
	parts := decimal.NewFromInt(limit.Parts)
	for e, list := range limit.Nominal {
		if limit.Serving[e] == 0 {
			continue
		}
		for i, nominal := range list {
			counted := new(big.Rat).Mul(big.NewRat(limit.Priced[e][i], 1000), big.NewRat(limit.Serving[e], 1))
			counts(counted, nominal.Mul(parts))
		}
	}
	for j := range p.Choices {
		counts(big.NewRat(p.Choices[j].Spent[l], 1), p.Choices[j].Exactly[l])
	}
	most := new(big.Rat).Mul(new(big.Rat).Mul(limit.Left.Mul(parts).Rat(), scale), greatest)
	return new(big.Int).Sub(ceil(most), big.NewInt(limit.Most))
}
