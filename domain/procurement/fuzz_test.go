package procurement_test

import (
	"encoding/binary"
	"math"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// bytesToPool reads any bytes as a pool: mostly small numbers, sometimes one at a limit or of 64
// bits, so that most pools pass Validate and some do not.
func bytesToPool(b []byte) *procurement.Pool {
	number := func() int {
		if len(b) == 0 {
			return 0
		}
		first := b[0]
		b = b[1:]
		switch {
		case first < 240:
			return int(first) - 2
		case first < 248 && len(b) >= 2:
			v := binary.LittleEndian.Uint16(b)
			b = b[2:]
			return int(v) * 1000
		case first < 250 && len(b) >= 8:
			v := binary.LittleEndian.Uint64(b)
			b = b[8:]
			return int(v)
		}
		return []int{procurement.MaxUnits, procurement.MaxUnits + 1, int(procurement.MaxWorth), int(procurement.MaxWorth) / 3, math.MaxInt, math.MinInt}[first%6]
	}
	list := func(most int) int { return (number()%most + most) % most }
	price := func() procurement.Nano { return procurement.Nano(number()) }

	p := &procurement.Pool{ID: "fuzz"}
	for range list(4) {
		p.Weights = append(p.Weights, number())
	}
	demand := func() (out []procurement.Step) {
		units := 0
		for range list(5) {
			units += number()
			out = append(out, procurement.Step{Units: units, Hours: number()})
		}
		return out
	}
	for range 1 + list(8) {
		e := procurement.Epoch{Span: domain.Interval{From: domain.Instant(number()), To: domain.Instant(number())}}
		if list(2) == 0 {
			e.Demand = demand()
		} else {
			for range max(1, len(p.Weights)) {
				e.Cases = append(e.Cases, procurement.Case{Demand: demand(), SpotUnits: number()})
			}
		}
		e.OnDemand, e.Spot = price(), price()
		e.Shortage = max(e.OnDemand, e.Spot) + price()
		e.SpotPermille, e.Quota, e.HeldGuaranteed, e.HeldDiscountOnly = number(), number(), number(), number()
		p.Epochs = append(p.Epochs, e)
	}
	for range list(5) {
		o := procurement.Offer{Guaranteed: list(2) == 1, Term: number()}
		epoch := 0
		for range list(6) {
			o.Starts = append(o.Starts, procurement.Start{Epoch: epoch, Cost: price(), Max: number()})
			epoch += 1 + list(2)
		}
		p.Offers = append(p.Offers, o)
	}
	return p
}

// Any pool is refused or solved, and a solution has the stated cost.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("one pool, not long"))
	f.Add([]byte{2, 2, 9, 3, 4, 5, 6, 90, 50, 99, 200, 8, 3, 3, 2, 2, 9, 3, 4, 5, 6, 90, 50, 99, 200, 8, 3, 3, 5, 3, 4, 3, 20, 1, 3, 30, 1, 2, 3, 4, 20, 5, 2})
	f.Add([]byte{3, 2, 240, 3, 4, 250, 6, 90, 50, 99, 200, 1, 252, 253, 2, 2, 9, 3, 254, 5, 6, 90})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := bytesToPool(b)
		s, err := procurement.Solve(p)
		if err != nil {
			if p.Validate() == nil {
				t.Fatalf("%v: %+v", err, p)
			}
			return
		}
		ev, err := procurement.Evaluate(p, s.Purchases)
		if err != nil || ev.Cost.Cmp(s.Cost) != 0 || s.Gap().Sign() < 0 {
			t.Fatalf("cost %d, bound %d, evaluated %+v, %v: %+v", s.Cost, s.Bound, ev, err, p)
		}
	})
}
