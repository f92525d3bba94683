package procurement_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

var tiny = size{epochs: 4, steps: 3, units: 4, hours: 3, price: 9, offers: 3, starts: 5, most: 3}

// judge compares a solution with trying every mix, and returns the cost of the best.
func judge(t rapid.TB, p *procurement.Pool, s *procurement.Solution) *big.Int {
	t.Helper()
	ev, err := procurement.Evaluate(p, s.Purchases)
	if err != nil {
		t.Fatal(err)
	}
	best := cheapest(t, p)
	switch {
	case s.Cost.Cmp(ev.Cost) != 0:
		t.Fatalf("cost %d, evaluated %d: %+v", s.Cost, ev.Cost, p)
	case s.Cost.Cmp(best) < 0 || s.Bound.Cmp(best) > 0:
		t.Fatalf("the best mix costs %d, outside bound %d and cost %d: %+v", best, s.Bound, s.Cost, p)
	case s.Exact != (s.Cost.Cmp(s.Bound) == 0):
		t.Fatalf("cost %d, bound %d, exact %t", s.Cost, s.Bound, s.Exact)
	case s.Algorithm == procurement.Flow && !s.Exact:
		t.Fatalf("a flow of cost %d proves %d only: %+v", s.Cost, s.Bound, p)
	}
	return best
}

// Trying every mix finds nothing cheaper than a flow, and the proof is tight.
func TestFlowAgainstEveryMix(t *testing.T) {
	z := tiny
	z.kinds = oneKind
	long.Check(t, 1000, 300_000, func(rt *rapid.T) {
		p := draw(drawn(rt), z)
		if rapid.Bool().Draw(rt, "uncertain") {
			uncertain(drawn(rt), p)
		}
		if s := solve(rt, p); s.Algorithm != procurement.Flow {
			rt.Fatalf("%s for offers of one kind: %+v", s.Algorithm, p)
		} else {
			judge(t, p, s)
		}
	})
}

// If discount-only commitments compete for a quota, the best mix is within the proven bounds.
// Nearly always it is the one that was found, with a tight proof.
func TestMixedAgainstEveryMix(t *testing.T) {
	z := tiny
	z.kinds = bothKinds
	long.Check(t, 666, 200_000, func(rt *rapid.T) {
		p := draw(drawn(rt), z)
		if rapid.Bool().Draw(rt, "uncertain") {
			uncertain(drawn(rt), p)
		}
		judge(rt, p, solve(rt, p))
	})
	var n, proven, best int
	one := func(seed uint64, epochs, offers, units int) {
		p := contested(even(seed), epochs, offers, units, 1)
		s := solve(t, p)
		if s.Algorithm == procurement.Flow {
			return
		}
		n++
		if s.Cost.Cmp(judge(t, p, s)) == 0 {
			best++
		}
		if s.Exact {
			proven++
		}
	}
	for seed := range uint64(300) {
		one(seed, 4, 3, 4)
	}
	t.Logf("%d contested pools: %d solved at least cost, %d of them proven", n, best, proven)
	if n < 200 || best < n-1 || proven < n-3 {
		t.Errorf("that is not good enough")
	}

	// The seeds out of 120,000 whose linear program has a fractional optimum: the bound is not
	// tight, and the result is the best except for one.
	n, proven, best = 0, 0, 0
	for _, seed := range fractional {
		one(seed, 4, 3, 4)
	}
	for _, seed := range []uint64{395, 1423, 3115, 4320, 46563} {
		one(seed, 5, 4, 5)
	}
	t.Logf("%d pools with fractional optima: %d solved at least cost, %d of them proven", n, best, proven)
	if n != 10 || best < 9 || proven > 0 {
		t.Errorf("that is not as it was: are these still the hard ones?")
	}
}

// fractional are seeds of contested pools of at most 4 epochs, 3 offers, 4 units.
var fractional = []uint64{354, 2095, 8683, 11603, 11686}

// byContent describes purchases by what is bought rather than by index.
func byContent(p *procurement.Pool, s *procurement.Solution, name func(procurement.Offer) string) string {
	units := map[string]int{}
	for _, b := range s.Purchases {
		units[fmt.Sprintf("%s from %d", name(p.Offers[b.Offer]), b.Epoch)] += b.Units
	}
	return fmt.Sprint(units) // sorted by key
}

// Neither the order of offers nor a duplicate offer changes anything but indices.
func TestOrderOfOffersDoesNotMatter(t *testing.T) {
	same := func(t *rapid.T, p *procurement.Pool) {
		s := solve(t, p)
		q := *p
		q.Offers = rapid.Permutation(p.Offers).Draw(t, "order")
		r := solve(t, &q)
		byID := func(o procurement.Offer) string { return o.ID }
		if a, b := byContent(p, s, byID), byContent(&q, r, byID); a != b {
			t.Fatalf("in another order of offers %s instead of %s", b, a)
		}
		r.Purchases = s.Purchases
		if a, b := marshal(t, s), marshal(t, r); !bytes.Equal(a, b) {
			t.Fatalf("in another order of offers\n%s\ninstead of\n%s", b, a)
		}

		// Twice as much of a limited offer would be another pool.
		q.Offers = slices.Clone(q.Offers)
		for _, o := range p.Offers {
			if !slices.ContainsFunc(o.Starts, func(s procurement.Start) bool { return s.Max != procurement.Unlimited }) {
				o.ID += " again"
				q.Offers = append(q.Offers, o)
			}
		}
		content := func(o procurement.Offer) string { return fmt.Sprint(o.Guaranteed, o.Term, o.Starts) }
		r = solve(t, &q)
		if a, b := byContent(p, s, content), byContent(&q, r, content); a != b || s.Cost.Cmp(r.Cost) != 0 {
			t.Fatalf("with offers twice %s instead of %s", b, a)
		}
	}
	z := tiny
	z.kinds, z.most, z.units = anyKind, 0, 10
	long.Check(t, 100, 30_000, func(t *rapid.T) {
		same(t, draw(drawn(t), z))
		same(t, contested(drawn(t), 6, 4, 12, 0))
		same(t, uncertain(drawn(t), contested(drawn(t), 6, 4, 12, 0)))
	})
}

func marshal(t rapid.TB, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Solving again, in a process that has solved other pools, gives the same bytes.
func TestEqualPoolsEqualBytes(t *testing.T) {
	for seed := range uint64(20) {
		p := contested(even(seed), 12, 6, 40, 0)
		first := marshal(t, solve(t, p))
		solve(t, contested(even(seed+100), 12, 6, 40, 0))
		if again := marshal(t, solve(t, contested(even(seed), 12, 6, 40, 0))); !bytes.Equal(first, again) {
			t.Errorf("seed %d:\n%s\nthen\n%s", seed, first, again)
		}
	}
}

// Which pools a flow decides.
func TestAlgorithm(t *testing.T) {
	const m = procurement.Unlimited
	offer := func(guaranteed bool, epoch int) procurement.Offer {
		cost := procurement.Nano(1)
		if guaranteed {
			cost = 2
		}
		return procurement.Offer{Guaranteed: guaranteed, Term: 1, Starts: []procurement.Start{{Epoch: epoch, Cost: cost, Max: m}}}
	}
	for _, c := range []struct {
		name   string
		quota  int
		offers []procurement.Offer
		want   procurement.Algorithm
	}{
		{"guaranteed offers alone, beside discount-only holdings", 3, []procurement.Offer{offer(true, 0)}, procurement.Flow},
		{"discount-only offers alone, beside guaranteed holdings", 3, []procurement.Offer{offer(false, 0)}, procurement.Flow},
		{"both, without quota", m, []procurement.Offer{offer(true, 0), offer(false, 0)}, procurement.Flow},
		{"both, with quota for all demand", 9, []procurement.Offer{offer(true, 0), offer(false, 0)}, procurement.Flow},
		{"both, in different epochs", 3, []procurement.Offer{offer(true, 0), offer(false, 1)}, procurement.Flow},
		{"both, with quota for less than demand", 5, []procurement.Offer{offer(true, 0), offer(false, 0)}, procurement.Linear},
	} {
		e := procurement.Epoch{Demand: []procurement.Step{{Units: 9, Hours: 1}}, OnDemand: 2, Spot: -1, Shortage: 3, Quota: c.quota, HeldGuaranteed: 1, HeldDiscountOnly: 1}
		p := &procurement.Pool{ID: c.name, Epochs: []procurement.Epoch{e, e}, Offers: c.offers}
		if s := solve(t, p); s.Algorithm != c.want {
			t.Errorf("%s: %s, want %s", c.name, s.Algorithm, c.want)
		}
	}
}

// At the limits of Validate nothing overflows: costs of 10²⁷ and more are still exact.
func TestLargestPools(t *testing.T) {
	long.Check(t, 66, 20_000, func(t *rapid.T) {
		n := drawn(t)
		epochs := n(1, 5, "epochs")
		p := &procurement.Pool{ID: "large"}
		weighted := n(0, 1, "weighted") == 1
		if weighted {
			p.Weights = []int{1, procurement.MaxWeight - 1}
		}
		for range epochs {
			hours := n(1, 3, "hours")
			weight := 1
			e := procurement.Epoch{OnDemand: -1, Spot: -1, Quota: procurement.Unlimited}
			if weighted {
				weight = procurement.MaxWeight
			}
			e.Shortage = (procurement.MaxWorth/procurement.Nano(epochs) - procurement.Nano(n(0, 1000, "less"))) / procurement.Nano(2*hours*weight)
			e.OnDemand = e.Shortage - procurement.Nano(n(0, 9, "below"))
			for _, u := range []int{procurement.MaxUnits - n(2, 1000, "low"), procurement.MaxUnits - n(0, 1, "high")} {
				e.Demand = append(e.Demand, procurement.Step{Units: u, Hours: hours})
			}
			e.HeldGuaranteed = n(0, 5, "held")
			e.Quota = n(procurement.MaxUnits-5000, procurement.MaxUnits, "quota")
			if weighted && n(0, 1, "cases") == 1 {
				e.Cases = []procurement.Case{{Demand: e.Demand, SpotUnits: n(0, 9, "spot units")}, {Demand: e.Demand, SpotUnits: procurement.Unlimited}}
				e.Demand = nil
			}
			p.Epochs = append(p.Epochs, e)
		}
		for i := range n(0, 3, "offers") {
			o := procurement.Offer{Guaranteed: i%2 == 0, Term: n(1, epochs, "term")}
			for m := range epochs {
				cost := procurement.MaxWorth / procurement.Nano(epochs) * procurement.Nano(min(o.Term, epochs-m)) / procurement.Nano(n(1, 3, "cost"))
				cost /= procurement.Nano(p.Weight())
				most := []int{procurement.Unlimited, procurement.MaxUnits, procurement.MaxUnits / 3}[n(0, 2, "max")]
				o.Starts = append(o.Starts, procurement.Start{Epoch: m, Cost: cost, Max: most})
			}
			p.Offers = append(p.Offers, o)
		}
		s := solve(t, p)
		ev, err := procurement.Evaluate(p, s.Purchases)
		if err != nil || ev.Cost.Cmp(s.Cost) != 0 || s.Cost.Cmp(big.NewInt(1_000_000_000_000_000_000)) < 0 {
			t.Fatalf("cost %d, evaluated %+v, %v", s.Cost, ev, err)
		}
	})
}

// A purchase of an exact solution is worth its cost, and offers that cost more than their worth are
// not bought.
func TestWorth(t *testing.T) {
	for seed := range uint64(50) {
		p := contested(even(seed), 8, 4, 20, 0)
		s := solve(t, p)
		if !s.Exact {
			continue
		}
		bought := map[[2]int]int{}
		for _, b := range s.Purchases {
			bought[[2]int{b.Offer, b.Epoch}] = b.Units
		}
		for i, o := range p.Offers {
			for j, st := range o.Starts {
				worth, n := s.Certificate.Worth(p, i, j), bought[[2]int{i, st.Epoch}]
				if n > 0 && worth < st.Cost || worth > st.Cost {
					t.Errorf("seed %d: %d units of offer %d from epoch %d cost %d and are worth %d", seed, n, i, st.Epoch, st.Cost, worth)
				}
			}
		}
	}
}
