package reliability_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/reliability"
)

func dec(s string) decimal.Decimal { return decimal.RequireFromString(s) }

func spares(t testing.TB, units, perNode int, q, level string) int {
	t.Helper()
	s, err := reliability.Spares(units, perNode, dec(q), dec(level))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Cumulative binomial probabilities as printed in tables, to four places (NIST Handbook of
// Mathematical Functions, and every textbook): the probability that at most s of n nodes are down
// if each is down with probability q. For a level half a unit of the last place below it, s spare
// nodes are enough; half a unit above, they are not.
func TestTabulatedQuantiles(t *testing.T) {
	for _, c := range []struct {
		n, s int
		q    string
		p    string
	}{
		{5, 0, "0.1", "0.5905"}, {5, 1, "0.1", "0.9185"}, {5, 2, "0.1", "0.9914"}, {5, 3, "0.1", "0.9995"},
		{10, 0, "0.05", "0.5987"}, {10, 1, "0.05", "0.9139"}, {10, 2, "0.05", "0.9885"}, {10, 3, "0.05", "0.9990"},
		{10, 2, "0.1", "0.9298"}, {10, 3, "0.1", "0.9872"}, {10, 4, "0.1", "0.9984"},
		{20, 1, "0.05", "0.7358"}, {20, 2, "0.05", "0.9245"}, {20, 3, "0.05", "0.9841"}, {20, 4, "0.05", "0.9974"},
		{20, 2, "0.1", "0.6769"}, {20, 4, "0.1", "0.9568"}, {20, 5, "0.1", "0.9887"},
		{15, 5, "0.25", "0.8516"}, {20, 10, "0.5", "0.5881"}, {20, 14, "0.5", "0.9793"},
	} {
		half := dec("0.00005")
		k := c.n - c.s // in use
		if got := spares(t, k, 1, c.q, dec(c.p).Sub(half).String()); got > c.s {
			t.Errorf("%d nodes of %s: P(at most %d down) = %s, but %d spares for just below", c.n, c.q, c.s, c.p, got)
		}
		if got := spares(t, k, 1, c.q, dec(c.p).Add(half).String()); got <= c.s {
			t.Errorf("%d nodes of %s: P(at most %d down) = %s, but %d spares for just above", c.n, c.q, c.s, c.p, got)
		}
	}
}

// tail adds up P(Bin(n, q) ≤ s) in fractions, term by term.
func tail(n, s int, q *big.Rat) *big.Rat {
	up := new(big.Rat).Sub(big.NewRat(1, 1), q)
	sum := new(big.Rat)
	for j := 0; j <= s; j++ {
		term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(j)))
		for range j {
			term.Mul(term, q)
		}
		for range n - j {
			term.Mul(term, up)
		}
		sum.Add(sum, term)
	}
	return sum
}

// Trying one spare after the other in fractions finds the same, for all numbers, and where a level
// is met exactly, to the last digit.
func TestSparesByForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := decimal.New(int64(rapid.IntRange(1, 500).Draw(t, "q")), -3)
		nodes := rapid.IntRange(1, 12).Draw(t, "nodes")
		var level decimal.Decimal
		if rapid.Bool().Draw(t, "met exactly") {
			q = decimal.New(int64(rapid.IntRange(1, 5).Draw(t, "q in tenths")), -1)
			s := rapid.IntRange(0, 4).Draw(t, "spares")
			p := tail(nodes+s, s, q.Rat())
			level = decimal.NewFromBigRat(p, 16) // of at most 16 digits: exact
			if level.Rat().Cmp(p) != 0 {
				t.Fatalf("%s is not %s", level, p)
			}
			if rapid.Bool().Draw(t, "and a little") {
				level = level.Add(decimal.New(1, -18))
			}
		} else {
			level = decimal.New(int64(rapid.IntRange(1, 9999).Draw(t, "level")), -4)
		}
		want := 0
		for tail(nodes+want, want, q.Rat()).Cmp(level.Rat()) < 0 {
			want++
		}
		perNode := rapid.IntRange(1, 8).Draw(t, "units per node")
		units := nodes*perNode - rapid.IntRange(0, perNode-1).Draw(t, "not all")
		got, err := reliability.Spares(units, perNode, q, level)
		if err != nil || got != want*perNode {
			t.Fatalf("%d units on nodes of %d at %s for %s: %d spares, by force %d nodes, %v", units, perNode, q, level, got, want, err)
		}
	})
}

// A table gives the same for every level as a separate request. More units never need fewer spares;
// neither do a higher level, worse nodes or larger nodes.
func TestBufferIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		top, perNode := rapid.IntRange(0, 300).Draw(t, "top"), rapid.IntRange(1, 8).Draw(t, "units per node")
		q := decimal.New(int64(rapid.IntRange(0, 400).Draw(t, "q")), -3)
		level := decimal.New(int64(rapid.IntRange(1, 99990).Draw(t, "level")), -5)
		buffer := func(q, level domain.Decimal) *reliability.Buffer {
			b, err := reliability.NewBuffer(top, perNode, q, level)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		b := buffer(q, level)
		worse, higher := buffer(q.Add(dec("0.05")), level), buffer(q, level.Add(dec("0.00005")))
		for u := range top + 1 {
			if u > 0 && (b.Spares(u) < b.Spares(u-1) || b.With(u) <= b.With(u-1)) {
				t.Fatalf("%d units need %d spares, %d need %d", u-1, b.Spares(u-1), u, b.Spares(u))
			}
			if b.Spares(u) > worse.Spares(u) || b.Spares(u) > higher.Spares(u) {
				t.Fatalf("%d units: %d spares, %d for worse nodes, %d for a higher level", u, b.Spares(u), worse.Spares(u), higher.Spares(u))
			}
			if b.With(u) != u+b.Spares(u) || b.Spares(u)%perNode != 0 {
				t.Fatalf("%d units with %d spares are %d", u, b.Spares(u), b.With(u))
			}
		}
		u := rapid.IntRange(0, top).Draw(t, "units")
		alone, err := reliability.Spares(u, perNode, q, level)
		if err != nil || alone != b.Spares(u) {
			t.Fatalf("%d units alone: %d spares, in the table %d, %v", u, alone, b.Spares(u), err)
		}
	})
}

// 100,000 levels in one pass. At some of them, whole-number sums show that the spares are enough
// and that one node fewer is not.
func TestLargeTable(t *testing.T) {
	q, level := dec("0.00384"), dec("0.9999") // 8 GPUs, one in 50,000 hours, a day
	b, err := reliability.NewBuffer(100_000, 1, q, level)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []int{1, 2, 10, 999, 2_000} {
		s := b.Spares(u)
		if !reliability.Reaches(u+s, s, q, level) || s > 0 && reliability.Reaches(u+s-1, s-1, q, level) {
			t.Errorf("%d units: %d spares are not the fewest", u, s)
		}
	}
	// 3.719 standard deviations above the mean, and some skew: 384 + 3.72·19.6.
	if s := b.Spares(100_000); s < 455 || s > 465 {
		t.Errorf("%d spares of 100,000", s)
	}
}

func TestBufferRefuses(t *testing.T) {
	for want, f := range map[string]func() error{
		"0 units per node":                   func() error { _, err := reliability.NewBuffer(1, 0, dec("0.1"), dec("0.9")); return err },
		"-1 units on nodes of 2: not from 0": func() error { _, err := reliability.NewBuffer(-1, 2, dec("0.1"), dec("0.9")); return err },
		"500001 units on nodes of 1":         func() error { _, err := reliability.NewBuffer(500_001, 1, dec("0.1"), dec("0.9")); return err },
		"unavailability 0.51":                func() error { _, err := reliability.NewBuffer(1, 1, dec("0.51"), dec("0.9")); return err },
		"unavailability -0.1":                func() error { _, err := reliability.NewBuffer(1, 1, dec("-0.1"), dec("0.9")); return err },
		"service level 1: not above 0":       func() error { _, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("1")); return err },
		"service level 0: not above 0":       func() error { _, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("0")); return err },
		"has more than 18 decimals": func() error {
			_, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("0.1234567890123456789"))
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if long.Run() { // a million steps
		if _, err := reliability.NewBuffer(500_000, 1, dec("0.5"), dec("0.9999")); err == nil || !strings.Contains(err.Error(), "need more than") {
			t.Errorf("half of the nodes down: %v", err)
		}
	}
	if s := spares(t, 100, 8, "0", "0.999"); s != 0 {
		t.Errorf("%d spares for nodes that never fail", s)
	}
	if s := spares(t, 0, 8, "0.5", "0.999"); s != 0 {
		t.Errorf("%d spares for no units", s)
	}
}

func BenchmarkBuffer(b *testing.B) {
	for _, q := range []string{"0.00384", "0.05"} {
		b.Run(fmt.Sprintf("100000 nodes at %s", q), func(b *testing.B) {
			for b.Loop() {
				if _, err := reliability.NewBuffer(100_000, 1, dec(q), dec("0.999")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
