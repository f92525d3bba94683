package procurement_test

import (
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/procurement"
)

var tiny = size{epochs: 4, steps: 3, units: 4, hours: 3, price: 9, offers: 3, starts: 5, most: 3}

// Trying everything finds nothing cheaper.
func TestFlowAgainstEveryMix(t *testing.T) {
	z := tiny
	z.kinds = oneKind
	check(t, 3000, func(t *rapid.T) {
		p := draw(drawn(t), z)
		s, err := procurement.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := procurement.Evaluate(p, s.Purchases)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := cheapest(nil, p)
		if s.Cost.Cmp(ev.Cost) != 0 || s.Cost.Cmp(want) != 0 || !s.Exact || s.Bound.Cmp(want) != 0 {
			t.Fatalf("cost %d, bound %d, evaluated %d, best %d: %+v", s.Cost, s.Bound, ev.Cost, want, s)
		}
	})
}

func TestMixedAgainstEveryMix(t *testing.T) {
	z := tiny
	z.kinds = bothKinds
	n, exact, optimal := 0, 0, 0
	check(t, 3000, func(t *rapid.T) {
		p := draw(drawn(t), z)
		s, err := procurement.Solve(p)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := procurement.Evaluate(p, s.Purchases)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := cheapest(nil, p)
		if s.Cost.Cmp(ev.Cost) != 0 || s.Cost.Cmp(want) < 0 || s.Bound.Cmp(want) > 0 {
			t.Fatalf("cost %d, bound %d, evaluated %d, best %d: %+v", s.Cost, s.Bound, ev.Cost, want, s)
		}
		if s.Algorithm != procurement.Linear {
			return
		}
		n++
		if s.Exact {
			exact++
		}
		if s.Cost.Cmp(want) == 0 {
			optimal++
		}
	})
	t.Logf("%d mixed, %d optimal, %d proven", n, optimal, exact)
}
