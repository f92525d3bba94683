package joint_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// alone is a problem of independent pools.
func alone(n source, pools int) *joint.Problem {
	p := draw(n, with{epochs: 4, pools: pools, slots: 5, cases: 2, units: 9, hours: 5, choices: 0, spot: true})
	p.Routes, p.Demands = nil, p.Demands[:0]
	for i := range p.Pools {
		p.Demands = append(p.Demands, joint.Demand{ID: "own", Interruptible: n(0, 1000)})
		p.Routes = append(p.Routes, joint.Route{Demand: i, Pool: i, Num: 1, Den: 1})
		p.Quotas = append(p.Quotas, "own")
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		e.Routes, e.Quotas, e.Shortage = make([]procurement.Nano, len(p.Pools)), nil, nil
		for i := range p.Pools {
			e.Pools[i].Quota, e.Pools[i].QuotaPerUnit = i, 1
			e.Quotas = append(e.Quotas, n(-1, 9))
			e.Shortage = append(e.Shortage, procurement.Nano(n(3, 30))*million)
		}
		for c := range e.Cases {
			for s := range e.Cases[c].Slots {
				u := &e.Cases[c].Slots[s].Units
				*u = nil
				for range p.Pools {
					*u = append(*u, n(0, 9))
				}
			}
			slices.SortFunc(e.Cases[c].Slots, func(a, b joint.Slot) int { return slices.Compare(a.Units, b.Units) })
			e.Cases[c].Slots = slices.CompactFunc(e.Cases[c].Slots, func(a, b joint.Slot) bool { return slices.Equal(a.Units, b.Units) })
		}
	}
	for range n(1, 8) {
		from := n(0, len(p.Epochs)-1)
		to := n(from+1, len(p.Epochs))
		p.Choices = append(p.Choices, joint.Choice{
			ID: "some", Cost: procurement.Nano(n(5, 60)*(to-from)) * million, Max: n(-1, 9), Lot: 1,
			Cover: []joint.Cover{{Pool: n(0, len(p.Pools)-1), From: from, To: to, Units: 1, Guaranteed: n(0, 1) == 0}},
		})
	}
	return p
}

// An independent pool needs no linear programming solver, and costs the same as the whole program.
func TestAlone(t *testing.T) {
	exact := 0
	for seed := range uint64(long.Count(40, 2000)) {
		p := alone(seeded(seed), 3)
		s, err := joint.Solve(context.Background(), p, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s.Work.Alone != len(p.Pools) {
			t.Fatalf("seed %d: %d of %d pools by flow", seed, s.Work.Alone, len(p.Pools))
		}
		judge(t, p, s)
		best, _ := optimum(t, p, nil, false)
		if float(s.Bound) > best*(1+1e-9)+1 || float(s.Cost) < best*(1-1e-9)-1 {
			t.Errorf("seed %d: bound %s, cost %s, the linear program %.0f", seed, s.Bound, s.Cost, best)
		}
		if s.Gap().Sign() == 0 {
			exact++
		}
	}
	t.Logf("%d exact", exact)
}

// Without a linear programming solver a coupled problem is refused, and the error says why.
func TestUnavailable(t *testing.T) {
	p := coupled()
	_, err := joint.Solve(context.Background(), p, nil)
	if !errors.Is(err, linear.ErrUnavailable) || !strings.Contains(err.Error(), `"east" and 1 others are coupled by routes`) {
		t.Errorf("%v", err)
	}
}

// coupled is two regions, three months, and demand that may move.
func coupled() *joint.Problem {
	p := &joint.Problem{
		ID: "coupled", Weight: 1, Pools: []string{"east", "west"}, Demands: []joint.Demand{{ID: "east"}, {ID: "west"}},
		Routes: []joint.Route{{Demand: 0, Pool: 0, Num: 1, Den: 1}, {Demand: 1, Pool: 1, Num: 1, Den: 1}, {Demand: 0, Pool: 1, Num: 1, Den: 1}},
	}
	const price = 1_000_000_000
	for m := range 3 {
		supply := joint.Supply{OnDemand: 4 * price, Spot: -1, Quota: -1, Spend: -1}
		p.Epochs = append(p.Epochs, joint.Epoch{
			Pools: []joint.Supply{supply, supply}, Routes: []procurement.Nano{0, 0, price / 10}, Shortage: []procurement.Nano{40 * price, 40 * price},
			Cases: []joint.Case{{Weight: 1, Spot: []int{-1, -1}, Slots: []joint.Slot{
				{Hours: 300, Units: []int{10, 40 + 10*m}}, {Hours: 300, Units: []int{50, 10}}, {Hours: 130, Units: []int{70, 20}},
			}}},
		})
	}
	for k, pool := range p.Pools {
		p.Choices = append(p.Choices, joint.Choice{
			ID: "quarter " + pool, Cost: 3 * 730 * 2 * price, Max: procurement.Unlimited, Lot: 1,
			Cover: []joint.Cover{{Pool: k, From: 0, To: 3, Units: 1, Guaranteed: true}},
		})
	}
	return p
}

// A conflict is named completely and minimally.
func TestInfeasible(t *testing.T) {
	clash := func(change func(*joint.Problem)) string {
		t.Helper()
		p := coupled()
		change(p)
		_, err := joint.Solve(context.Background(), p, lp(t))
		var clash *joint.Infeasible
		if !errors.As(err, &clash) {
			t.Fatalf("%v", err)
		}
		var names []string
		for _, m := range clash.Clash {
			names = append(names, m.Kind+" "+m.ID)
		}
		return strings.Join(names, ", ")
	}
	need := func(least, pool int) joint.Need {
		return joint.Need{ID: []string{"lose west", "lose east"}[pool], Epochs: []int{0, 2}, Terms: []joint.NeedTerm{{Pool: pool, PerUnit: 1}}, Least: least}
	}
	const cost = 3 * 730 * 2 * 1_000_000_000
	if got := clash(func(p *joint.Problem) {
		p.Needs = []joint.Need{need(30, 0), need(2, 1)}
		p.Choices[0].Max = 20
	}); got != "need lose west, choice quarter east" {
		t.Error(got)
	}
	if got := clash(func(p *joint.Problem) {
		p.Needs = []joint.Need{need(30, 0), need(30, 1)}
		p.Limits = []joint.Limit{{ID: "budget", Most: 50 * cost}, {ID: "large", Most: 500 * cost}}
		for j := range p.Choices {
			p.Choices[j].Spent = []procurement.Nano{cost, cost}
		}
	}); got != "need lose west, need lose east, limit budget" {
		t.Error(got)
	}
	if got := clash(func(p *joint.Problem) {
		p.Needs = []joint.Need{need(3, 0)}
		p.Choices[0].Least, p.Choices[0].Max = 10, 8
	}); got != "need lose west, choice quarter east" {
		t.Error(got)
	}
	// Nothing may go unserved, and both on-demand and purchases are bounded.
	if got := clash(func(p *joint.Problem) {
		p.Quotas = []string{"account"}
		for m := range p.Epochs {
			p.Epochs[m].Quotas = []int{20}
			for k := range p.Epochs[m].Pools {
				p.Epochs[m].Pools[k].Quota, p.Epochs[m].Pools[k].QuotaPerUnit = 0, 1
			}
		}
		p.Limits = []joint.Limit{{ID: "served", Unserved: true, Most: 0, Serving: []int64{1000, 1000, 1000}}}
		p.Choices[0].Max, p.Choices[1].Max = 30, 30
	}); got != "limit served, quota account, demand west, choice quarter west" {
		t.Error(got)
	}
}

// Equal problems give equal bytes, whatever was solved before.
func TestEqualBytes(t *testing.T) {
	var first []string
	for range 2 {
		for seed := range uint64(12) {
			p := draw(seeded(seed), everything)
			s, err := joint.Solve(context.Background(), p, lp(t))
			out := ""
			if err != nil {
				out = err.Error()
			} else if b, err := json.Marshal(s); err != nil {
				t.Fatal(err)
			} else {
				out = string(b)
			}
			if len(first) <= int(seed) {
				first = append(first, out)
			} else if first[seed] != out {
				t.Errorf("seed %d: another time\n%s\ninstead of\n%s", seed, out, first[seed])
			}
		}
		slices.Reverse(first)
		slices.Reverse(first)
	}
}

// A cheaper offer does not increase the cost, and more demand or more constraints do not reduce it,
// up to the gap.
func TestMonotone(t *testing.T) {
	z := everything
	z.whole = false
	solve := func(p *joint.Problem) *joint.Solution {
		s, err := joint.Solve(context.Background(), p, lp(t))
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for seed := range uint64(long.Count(15, 500)) {
		n := seeded(seed)
		p := draw(n, z)
		s := solve(p)
		if s == nil {
			continue
		}
		if len(p.Choices) > 0 {
			q := *p
			q.Choices = slices.Clone(p.Choices)
			j := n(0, len(q.Choices)-1)
			q.Choices[j].Cost = q.Choices[j].Cost * 4 / 5
			if r := solve(&q); r == nil || r.Bound.Cmp(s.Cost) > 0 {
				t.Errorf("seed %d: with a cheaper offer at least %v, before %s", seed, r, s.Cost)
			}
		}
		q := *p
		q.Epochs = slices.Clone(p.Epochs)
		e := &q.Epochs[n(0, len(q.Epochs)-1)]
		e.Cases = slices.Clone(e.Cases)
		for c := range e.Cases {
			e.Cases[c].Slots = slices.Clone(e.Cases[c].Slots)
			for i := range e.Cases[c].Slots {
				e.Cases[c].Slots[i].Units = slices.Clone(e.Cases[c].Slots[i].Units)
				for d := range e.Cases[c].Slots[i].Units {
					e.Cases[c].Slots[i].Units[d] += 3
				}
			}
		}
		interruptible := slices.ContainsFunc(p.Demands, func(d joint.Demand) bool { return d.Interruptible%1000 != 0 })
		if r := solve(&q); r != nil && !interruptible && r.Cost.Cmp(s.Bound) < 0 {
			t.Errorf("seed %d: with more demand %s, before at least %s", seed, r.Cost, s.Bound)
		}
		q = *p
		q.Needs = append(slices.Clone(p.Needs), joint.Need{ID: "more", Epochs: []int{0}, Terms: []joint.NeedTerm{{Pool: 0, PerUnit: 1}}, Least: n(1, 6)})
		if r := solve(&q); r != nil && r.Cost.Cmp(s.Bound) < 0 {
			t.Errorf("seed %d: with one more need %s, before at least %s", seed, r.Cost, s.Bound)
		}
	}
}

// A context that ends stops the work soon.
func TestCancel(t *testing.T) {
	solver := lp(t)
	p := regions(made())
	for _, after := range []int{0, 1, 3} {
		ctx, cancel := context.WithCancel(context.Background())
		counted := &canceling{Solver: solver, after: after, cancel: cancel}
		if after == 0 {
			cancel()
		}
		_, err := joint.Solve(ctx, p, counted)
		cancel()
		if !errors.Is(err, context.Canceled) || counted.calls > max(after, 1) {
			t.Errorf("canceled in program %d: %v after %d programs", after, err, counted.calls)
		}
	}
}

// A stopped search answers with the best known purchases and a bound.
func TestSolveUntil(t *testing.T) {
	solver := lp(t)
	p := regions(made())
	nothing, err := joint.Evaluate(p, make([]int, len(p.Choices)))
	if err != nil {
		t.Fatal(err)
	}
	stops := []int{0, 6}
	if long.Run() {
		stops = []int{0, 1, 3, 6}
	}
	for _, after := range stops {
		until, stop := context.WithCancel(t.Context())
		counted := &canceling{Solver: solver, after: after, cancel: stop}
		if after == 0 {
			stop()
		}
		s, err := joint.SolveUntil(t.Context(), until, p, counted)
		stop()
		if err != nil {
			t.Fatalf("stopped in program %d: %v", after, err)
		}
		if _, err := check.Joint(p, s); err != nil {
			t.Errorf("stopped in program %d: %v", after, err)
		}
		if !s.Interrupted || s.Cost.Cmp(nothing.Cost) > 0 || after > 3 && (s.Bound.Sign() == 0 || s.Cost.Cmp(nothing.Cost) == 0) {
			t.Errorf("stopped in program %d: cost %d, at least %d, interrupted %t; nothing bought costs %d", after, s.Cost, s.Bound, s.Interrupted, nothing.Cost)
		}
	}
}

// canceling ends the context while a program is being solved.
type canceling struct {
	linear.Solver
	calls, after int
	cancel       func()
}

func (s *canceling) Solve(ctx context.Context, p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	if s.calls++; s.calls == s.after {
		s.cancel()
	}
	return s.Solver.Solve(ctx, p, l)
}

// A problem with any numbers is refused or solved, and its solution is consistent.
func TestHostile(t *testing.T) {
	solver := lp(t)
	rapid.Check(t, func(rt *rapid.T) {
		z := everything
		z.pools, z.choices = 2, 4
		p := draw(drawn(rt), z)
		extremes := []int64{-1, 0, 1, 2, 999, 1000, 1001, joint.MaxRatio, joint.MaxUnits, joint.MaxUnits + 1, int64(joint.MaxPrice), int64(joint.MaxCost), math.MaxInt64, math.MinInt64, 1 << 32}
		value := func() int64 { return rapid.SampledFrom(extremes).Draw(rt, "extreme") }
		for range rapid.IntRange(1, 6).Draw(rt, "changes") {
			e := &p.Epochs[rapid.IntRange(0, len(p.Epochs)-1).Draw(rt, "epoch")]
			switch rapid.IntRange(0, 14).Draw(rt, "what") {
			case 0:
				e.Pools[0].OnDemand = procurement.Nano(value())
			case 1:
				e.Pools[0].Spot = procurement.Nano(value())
			case 2:
				e.Pools[0].HeldGuaranteed = int(value())
			case 3:
				e.Shortage[0] = procurement.Nano(value())
			case 4:
				if len(p.Routes) > 0 {
					p.Routes[0].Num = int(value())
				}
			case 5:
				if len(p.Routes) > 0 {
					p.Routes[0].Den = int(value())
				}
			case 6:
				if s := e.Cases[0].Slots; len(s) > 0 {
					s[len(s)-1].Units[0] = int(value())
				}
			case 7:
				if s := e.Cases[0].Slots; len(s) > 0 {
					s[len(s)-1].Hours = int(value())
				}
			case 8:
				if len(p.Choices) > 0 {
					p.Choices[0].Cost = procurement.Nano(value())
				}
			case 9:
				if len(p.Choices) > 0 {
					p.Choices[0].Max = int(value())
				}
			case 10:
				if len(p.Choices) > 0 {
					p.Choices[0].Least = int(value())
				}
			case 11:
				if len(p.Limits) > 0 {
					p.Limits[0].Most = procurement.Nano(value())
				}
			case 12:
				if len(p.Needs) > 0 {
					p.Needs[0].Least = int(value())
				}
			case 13:
				e.Pools[0].Quota = int(value())
			case 14:
				e.Pools[0].SpendPrice = procurement.Nano(value())
			}
		}
		s, err := joint.Solve(context.Background(), p, solver)
		if p.Validate() != nil {
			if err == nil {
				rt.Fatal("an invalid problem is solved")
			}
			return
		}
		if err != nil {
			if strings.Contains(err.Error(), "wrong") {
				rt.Fatal(err)
			}
			return
		}
		if s.Bound.Cmp(s.Cost) > 0 || s.Bound.Cmp(new(big.Int)) < 0 {
			rt.Fatalf("bound %s, cost %s", s.Bound, s.Cost)
		}
	})
}

// A budget over some epochs gives a bound as good as the linear program's, although the prices of
// other epochs were tried at many multipliers.
func TestBudgetOfSomeEpochs(t *testing.T) {
	p := regions(made())
	p.Epochs = p.Epochs[:6]
	p.Choices = slices.DeleteFunc(p.Choices, func(c joint.Choice) bool { return c.Cover[0].To > 6 })
	free, err := joint.Solve(context.Background(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	ev, err := joint.Evaluate(p, free.Units)
	if err != nil {
		t.Fatal(err)
	}
	spent := new(big.Rat)
	for m := range 3 {
		for k := range p.Pools {
			spent.Add(spent, new(big.Rat).Mul(ev.Cases[m][0].Pools[k].OnDemand, big.NewRat(int64(p.Epochs[m].Pools[k].OnDemand), 1)))
		}
	}
	for j := range p.Choices {
		c := &p.Choices[j]
		c.Spent = []procurement.Nano{0}
		if c.Cover[0].From < 3 {
			c.Spent[0] = c.Cost
			spent.Add(spent, new(big.Rat).SetInt64(int64(c.Cost)*int64(free.Units[j])))
		}
	}
	most, _ := spent.Float64()
	p.Limits = []joint.Limit{{ID: "first months", Most: procurement.Nano(most * 0.97), Serving: []int64{1000, 1000, 1000, 0, 0, 0}}}
	s, err := joint.Solve(context.Background(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	judge(t, p, s)
	if g := gap(s); g > 1e-4 || s.Prices.Limits[0].Sign() <= 0 {
		t.Errorf("cost %s, bound %s: a gap of %g; %s for one more of the budget", s.Cost, s.Bound, g, s.Prices.Limits[0])
	}
}

// An unbounded tier that starts far above a hundred thousand units is bought if that much is needed.
// If its bound is below the need, the problem is infeasible.
func TestLargeTier(t *testing.T) {
	tiers := func(most int) *joint.Problem {
		p := coupled()
		for m := range p.Epochs {
			e := &p.Epochs[m]
			e.Pools[0].OnDemand, e.Pools[1].OnDemand = -1, -1
			e.Cases[0].Slots = []joint.Slot{{Hours: 700, Units: []int{1_500_000 + m, 0}}}
		}
		p.Routes = p.Routes[:2]
		for m := range p.Epochs {
			p.Epochs[m].Routes = p.Epochs[m].Routes[:2]
		}
		p.Choices[0].Least, p.Choices[0].Group, p.Choices[0].Max = 1_200_000, "tiers", most
		p.Choices[1].Cover[0].Pool, p.Choices[1].Cost = 0, 2*p.Choices[0].Cost
		p.Choices[1].Group, p.Choices[1].Max = "tiers", 900_000
		p.Limits = []joint.Limit{{ID: "served", Unserved: true, Serving: []int64{1000, 1000, 1000}}}
		return p
	}
	p := tiers(procurement.Unlimited)
	s, err := joint.Solve(context.Background(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	judge(t, p, s)
	if !slices.Equal(s.Units, []int{1_500_002, 0}) || gap(s) > 1e-5 {
		t.Errorf("%d units, a gap of %g", s.Units, gap(s))
	}
	var clash *joint.Infeasible
	if _, err = joint.Solve(context.Background(), tiers(1_400_000), lp(t)); !errors.As(err, &clash) || !strings.Contains(err.Error(), `choice "quarter east"`) {
		t.Error(err)
	}
}

// Where serving and not serving cost the same, a checker may choose the other, and still finds that
// the limit is kept.
func TestLimitKeptAmongEquals(t *testing.T) {
	p := draw(seeded(3518), everything)
	s, err := joint.Solve(context.Background(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	judge(t, p, s)
}
