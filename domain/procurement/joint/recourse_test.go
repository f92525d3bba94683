package joint_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// asked is a problem of one epoch in the form of calls of recourse.
type asked struct {
	terms                       joint.Terms
	have                        joint.Capacity
	units, interruptible, hours []int64
}

func ask(p *joint.Problem, grid int64) *asked {
	e := &p.Epochs[0]
	a := &asked{terms: joint.Terms{Routes: e.Routes, Shortage: e.Shortage}, have: joint.Capacity{Grid: grid}}
	bound := func(n int) int64 {
		if n == procurement.Unlimited {
			return procurement.Unlimited
		}
		return int64(n) * grid
	}
	for i := range e.Pools {
		a.terms.OnDemand, a.terms.Spot = append(a.terms.OnDemand, e.Pools[i].OnDemand), append(a.terms.Spot, e.Pools[i].Spot)
		a.have.Guaranteed, a.have.DiscountOnly = append(a.have.Guaranteed, int64(e.Pools[i].HeldGuaranteed)*grid), append(a.have.DiscountOnly, int64(e.Pools[i].HeldDiscountOnly)*grid)
		a.have.Spot = append(a.have.Spot, bound(e.Cases[0].Spot[i]))
	}
	for _, q := range e.Quotas {
		a.have.Quotas = append(a.have.Quotas, bound(q))
	}
	for _, s := range e.Cases[0].Slots {
		a.hours = append(a.hours, int64(s.Hours))
		for d, u := range s.Units {
			a.units, a.interruptible = append(a.units, int64(u)*grid), append(a.interruptible, int64(u*p.Demands[d].Interruptible/1000)*grid)
		}
	}
	return a
}

func (a *asked) serve(t *testing.T, r *joint.Recourse) *joint.Amounts {
	t.Helper()
	out := &joint.Amounts{
		OnDemand: make([]int64, len(a.terms.OnDemand)), Firm: make([]int64, len(a.terms.Routes)), Spot: make([]int64, len(a.terms.Routes)), Shortage: make([]int64, len(a.terms.Shortage)),
	}
	if err := r.Serve(&a.terms, &a.have, a.units, a.interruptible, a.hours, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// cost is the cost of amounts, and by how much their rounding can change it.
func (a *asked) cost(p *joint.Problem, out *joint.Amounts) (cost, off float64) {
	add := func(amount int64, price procurement.Nano) {
		cost += float64(amount) * float64(price) / 1e6
		off += float64(price) / 1e6 * float64(1+len(a.hours))
	}
	for i, x := range out.OnDemand {
		add(x, a.terms.OnDemand[i])
	}
	for i, x := range out.Firm {
		r := &p.Routes[i]
		add(x, a.terms.Routes[i])
		if spot := a.terms.Spot[r.Pool]; out.Spot[i] > 0 {
			add(out.Spot[i], a.terms.Routes[i])
			cost += float64(out.Spot[i]) * float64(r.Num) / float64(r.Den) * float64(spot) / 1e6
			off += float64(spot) / 1e6 * float64(4*(1+len(a.hours)))
		}
	}
	for i, x := range out.Shortage {
		add(x, a.terms.Shortage[i])
	}
	return cost, off
}

func recourseOf(seed uint64) *joint.Problem {
	p := draw(seeded(seed), with{epochs: 1, pools: 3, slots: 6, cases: 1, units: 9, hours: 5, choices: 1, ratios: true, quotas: true, spot: true})
	p.Choices = nil
	return p
}

// Hours served one by one with their prices cost the same as the whole problem, for any grid, any
// previous hours and any seeds. TestEvaluateAgainstLinearProgram compares that cost with another
// solver.
func TestRecourse(t *testing.T) {
	for seed := range uint64(long.Count(400, 6000)) {
		p := recourseOf(seed)
		ev, err := joint.Evaluate(p, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r, err := joint.NewRecourse(p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := float(ev.Cost)
		for _, grid := range []int64{1, 1_000_000} {
			a := ask(p, grid)
			r.Begin()
			first := a.serve(t, r)
			if got, off := a.cost(p, first); got < want-off-1 || got > want+off+1 {
				t.Errorf("seed %d: in fractions of %d hours cost %.0f, evaluated %.0f", seed, grid, got, want)
			}
			// Hours at other prices, and then the first ones again.
			other := ask(p, grid)
			other.terms.OnDemand = slices.Clone(a.terms.OnDemand)
			for i := range other.terms.OnDemand {
				other.terms.OnDemand[i] *= 2
			}
			other.serve(t, r)
			seeds := r.Seeds()
			r.Begin()
			if again := a.serve(t, r); !same(first, again) {
				t.Errorf("seed %d: served again %+v, at first %+v", seed, again, first)
			}
			seeded, err := joint.NewRecourse(p)
			if err != nil {
				t.Fatal(err)
			}
			seeded.Seed(seeds)
			if got, off := a.cost(p, a.serve(t, seeded)); got < want-off-1 || got > want+off+1 {
				t.Errorf("seed %d: with seeds hours cost %.0f, evaluated %.0f", seed, got, want)
			}
		}
	}
}

// Several goroutines begin with the seeds of one, so serving changes none of them, also where numbers are too large for
// 64 bits.
func TestSeedsStay(t *testing.T) {
	seen := 0
	for seed := range uint64(20) {
		p := recourseOf(seed)
		first, err := joint.NewRecourse(p)
		if err != nil {
			t.Fatal(err)
		}
		ask(p, 1).serve(t, first)
		seeds := first.Seeds()
		text := func() (all []string) {
			of := reflect.ValueOf(seeds)
			for _, shape := range of.MapKeys() {
				for i := range of.MapIndex(shape).Len() {
					all = append(all, fmt.Sprintf("%+v", of.MapIndex(shape).Index(i).Elem()))
				}
			}
			slices.Sort(all)
			return all
		}
		before := text()
		seen += len(before)
		var wg sync.WaitGroup
		for range 2 {
			r, err := joint.NewRecourse(p)
			if err != nil {
				t.Fatal(err)
			}
			r.Seed(seeds)
			wg.Go(func() { ask(p, 1<<54).serve(t, r) })
		}
		wg.Wait()
		if after := text(); !slices.Equal(before, after) {
			t.Errorf("seed %d: %v, before %v", seed, after, before)
		}
	}
	if seen < 20 {
		t.Errorf("only %d seeds", seen)
	}
}

// More quota, more holdings or a further route never increase the cost.
func TestRecourseMonotone(t *testing.T) {
	cost := func(p *joint.Problem) (float64, float64) {
		r, err := joint.NewRecourse(p)
		if err != nil {
			t.Fatal(err)
		}
		a := ask(p, 1)
		return a.cost(p, a.serve(t, r))
	}
	cheaper := 0
	for seed := range uint64(long.Count(300, 3000)) {
		p := recourseOf(seed)
		e := &p.Epochs[0]
		n := seeded(seed + 1_000_000)
		before, off := cost(p)
		switch {
		case n(0, 2) == 0 && len(e.Quotas) > 0:
			if q := &e.Quotas[n(0, len(e.Quotas)-1)]; *q != procurement.Unlimited {
				*q += n(1, 5)
			}
		case n(0, 1) == 0:
			e.Pools[n(0, len(e.Pools)-1)].HeldGuaranteed += n(1, 4)
		default:
			k, d := n(0, len(p.Pools)-1), n(0, len(p.Demands)-1)
			if !slices.ContainsFunc(p.Routes, func(r joint.Route) bool { return r.Demand == d && r.Pool == k }) {
				p.Routes, e.Routes = append(p.Routes, joint.Route{Demand: d, Pool: k, Num: 11, Den: 10}), append(e.Routes, million)
			}
		}
		after, also := cost(p)
		if after > before+off+also {
			t.Errorf("seed %d: with more it costs %.0f, with less %.0f", seed, after, before)
		}
		if after < before-off-also {
			cheaper++
		}
	}
	if cheaper < 20 {
		t.Errorf("only %d of the drawn changes were of use: the test is too easy", cheaper)
	}
}

func same(a, b *joint.Amounts) bool {
	return slices.Equal(a.OnDemand, b.OnDemand) && slices.Equal(a.Firm, b.Firm) && slices.Equal(a.Spot, b.Spot) && slices.Equal(a.Shortage, b.Shortage)
}

// Features that recourse does not support are refused.
func TestRecourseRefuses(t *testing.T) {
	p := recourseOf(1)
	two := *p
	two.Epochs = append(slices.Clone(p.Epochs), p.Epochs[0])
	spend := *p
	spend.Spends = []string{"plan"}
	for name, p := range map[string]*joint.Problem{"two epochs": &two, "a commitment to spend": &spend} {
		if _, err := joint.NewRecourse(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := joint.NewRecourse(recourseOf(2)); err != nil {
		t.Error(err)
	}
}
