package check

import (
	"errors"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// A tableau in 64 bits ends with the basis of one in big integers, or says that its numbers might not fit.
func TestSmallTableau(t *testing.T) {
	fits, wide := 0, 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		// Some are of numbers whose products need more than 64 bits.
		most := []int64{2, 9, 1_000_000, 4_000_000_000}[seed%4]
		n := func() *big.Int { return whole(rng.Int64N(most) + 1) }
		g := &program{rows: 2 + rng.IntN(5)}
		right := func() (out []*big.Int) {
			for range g.rows {
				out = append(out, n())
			}
			return out
		}
		for range 4 + rng.IntN(8) {
			c := column{cost: n()}
			for r := range g.rows {
				if rng.IntN(3) == 0 {
					v := n()
					if r > 1 && rng.IntN(2) == 0 {
						v.Neg(v)
					}
					c.rows, c.entries = append(c.rows, int64(r)), append(c.entries, v)
				}
			}
			if rng.IntN(2) == 0 {
				c.cost.Neg(c.cost)
			}
			if c.cost.Sign() < 0 { // it would end nowhere without a bound
				c.rows, c.entries = append(c.rows[:0], 0), append(c.entries[:0], n())
			}
			g.columns = append(g.columns, c)
		}
		for r := range g.rows {
			g.columns = append(g.columns, column{rows: []int64{int64(r)}, entries: []*big.Int{whole(1)}, cost: new(big.Int)})
		}
		g.narrow = g.narrowed()
		var from *basis
		for round := range 4 {
			values := right()
			if round > 0 {
				values[rng.IntN(g.rows)].Neg(n()) // often not feasible
			}
			t0 := newTableau(g, from, values)
			small := newSmallTableau(g.narrow, from, values)
			var err, other error
			if from != nil {
				err = t0.dual(t.Context())
			} else {
				err = t0.primal(t.Context())
			}
			if small == nil {
				other = errWide
			} else {
				other = small.end(t.Context(), from != nil)
			}
			switch {
			case errors.Is(other, errWide):
				wide++
			case !errors.Is(other, err):
				t.Fatalf("seed %d, round %d: %v, in 64 bits %v", seed, round, err, other)
			case err == nil:
				fits++
				a, b := t0.basis(), small.basis()
				if !slices.Equal(a.columns, b.columns) || a.denominator.Cmp(b.denominator) != 0 || !slices.Equal(a.small, b.small) {
					t.Fatalf("seed %d, round %d: basis %v, in 64 bits %v", seed, round, a, b)
				}
			}
			if err != nil {
				break
			}
			from = t0.basis()
			if from.cheapest(g) != from.cheapest(&program{rows: g.rows, columns: g.columns}) {
				t.Fatalf("seed %d, round %d: the basis is only optimal in some bits", seed, round)
			}
		}
	}
	t.Logf("%d fit, %d do not", fits, wide)
	if fits < 1000 || wide < 100 {
		t.Errorf("%d fit, %d do not", fits, wide)
	}
}
