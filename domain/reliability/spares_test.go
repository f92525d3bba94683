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
	s, err := reliability.Spares(units, perNode, dec(q), dec(level), 0)
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
		got, err := reliability.Spares(units, perNode, q, level, 0)
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
			b, err := reliability.NewBuffer(top, perNode, q, level, 0)
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
		alone, err := reliability.Spares(u, perNode, q, level, 0)
		if err != nil || alone != b.Spares(u) {
			t.Fatalf("%d units alone: %d spares, in the table %d, %v", u, alone, b.Spares(u), err)
		}
	})
}

// 100,000 levels in one pass. At some of them, whole-number sums show that the spares are enough
// and that one node fewer is not.
func TestLargeTable(t *testing.T) {
	q, level := dec("0.00384"), dec("0.9999") // 8 GPUs, one in 50,000 hours, a day
	b, err := reliability.NewBuffer(100_000, 1, q, level, 0)
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
		"0 units per node":                   func() error { _, err := reliability.NewBuffer(1, 0, dec("0.1"), dec("0.9"), 0); return err },
		"-1 units on nodes of 2: not from 0": func() error { _, err := reliability.NewBuffer(-1, 2, dec("0.1"), dec("0.9"), 0); return err },
		"500001 units on nodes of 1":         func() error { _, err := reliability.NewBuffer(500_001, 1, dec("0.1"), dec("0.9"), 0); return err },
		"unavailability 0.51":                func() error { _, err := reliability.NewBuffer(1, 1, dec("0.51"), dec("0.9"), 0); return err },
		"unavailability -0.1":                func() error { _, err := reliability.NewBuffer(1, 1, dec("-0.1"), dec("0.9"), 0); return err },
		"service level 1: not above 0":       func() error { _, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("1"), 0); return err },
		"service level 0: not above 0":       func() error { _, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("0"), 0); return err },
		"has more than 18 decimals": func() error {
			_, err := reliability.NewBuffer(1, 1, dec("0.1"), dec("0.1234567890123456789"), 0)
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if long.Run() { // a million steps
		if _, err := reliability.NewBuffer(500_000, 1, dec("0.5"), dec("0.9999"), 0); err == nil || !strings.Contains(err.Error(), "need more than") {
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
				if _, err := reliability.NewBuffer(100_000, 1, dec(q), dec("0.999"), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Cumulative Poisson probabilities as printed in tables, to four places: a rate counted from very
// many interruptions is known, and few of many nodes are down.
func TestCountedFromMany(t *testing.T) {
	for _, c := range []struct {
		s       int
		mean, p string
	}{
		{0, "0.5", "0.6065"}, {1, "0.5", "0.9098"}, {2, "1", "0.9197"}, {3, "1", "0.9810"}, {5, "2", "0.9834"}, {8, "3", "0.9962"},
		{10, "5", "0.9863"}, {15, "10", "0.9513"},
	} {
		half, q := dec("0.00006"), dec(c.mean).Shift(-3)
		for level, enough := range map[string]bool{dec(c.p).Sub(half).String(): true, dec(c.p).Add(half).String(): false} {
			if reliability.ReachesCounted(1000, c.s, q, dec(level), reliability.MaxCounted) != enough {
				t.Errorf("mean %s: P(at most %d) = %s, and %s is enough: %t", c.mean, c.s, c.p, level, !enough)
			}
		}
	}
}

// With a single interruption the predictive distribution is geometric: more than s of n nodes are
// down with probability (m/(1 + m))^(s+1), where m = nq. Ten nodes in use and s spare ones of q =
// 0.01 need s = 2 for 0.998: m = 0.12, and (0.12/1.12)^3 = 0.00123.
func TestCountedFromOne(t *testing.T) {
	for level, want := range map[string]int{"0.998": 2, "0.999": 3, "0.99": 1, "0.91": 1, "0.9": 0} {
		got, err := reliability.Spares(10, 1, dec("0.01"), dec(level), 1)
		if err != nil || got != want {
			t.Errorf("level %s: %d spares, want %d, %v", level, got, want, err)
		}
	}
	if known := spares(t, 1000, 1, "0.01", "0.999"); known != 21 {
		t.Errorf("a known rate needs %d", known)
	}
	young, err := reliability.Spares(1000, 1, dec("0.01"), dec("0.999"), 1)
	if err != nil || young != 77 {
		t.Errorf("a rate of one interruption needs %d, %v", young, err)
	}
}

// Trying one spare after the other in fractions finds the same, and the fewer interruptions were
// counted, the more spares.
func TestCountedByForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := decimal.New(int64(rapid.IntRange(1, 100).Draw(t, "q")), -3)
		nodes, r := rapid.IntRange(1, 12).Draw(t, "nodes"), rapid.IntRange(1, 6).Draw(t, "counted")
		level := decimal.New(int64(rapid.IntRange(1, 9990).Draw(t, "level")), -4)
		want := 0
		for negativeBinomial(nodes+want, want, r, q.Rat()).Cmp(level.Rat()) < 0 {
			want++
		}
		got, err := reliability.Spares(nodes, 1, q, level, r)
		if err != nil || got != want {
			t.Fatalf("%d nodes at %s for %s from %d: %d spares, by force %d, %v", nodes, q, level, r, got, want, err)
		}
		b, err := reliability.NewBuffer(12, 1, q, level, r)
		if err != nil || b.Spares(nodes) != want {
			t.Fatalf("a table of 12 nodes has %d, want %d, %v", b.Spares(nodes), want, err)
		}
		if more, err := reliability.Spares(nodes, 1, q, level, r+1); level.GreaterThan(dec("0.9")) && (err != nil || more > got) {
			t.Fatalf("from %d interruptions %d spares, from one more %d, %v", r, got, more, err)
		}
	})
}

// negativeBinomial is P(X ≤ s) of shape r and mean nq: r/(r + nq) is the probability of a success,
// and X counts the failures before the r-th.
func negativeBinomial(n, s, r int, q *big.Rat) *big.Rat {
	mean := new(big.Rat).Mul(q, big.NewRat(int64(n), 1))
	p := new(big.Rat).Quo(big.NewRat(int64(r), 1), new(big.Rat).Add(mean, big.NewRat(int64(r), 1)))
	fail, sum := new(big.Rat).Sub(big.NewRat(1, 1), p), new(big.Rat)
	for j := 0; j <= s; j++ {
		term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(r+j-1), int64(j)))
		for range r {
			term.Mul(term, p)
		}
		for range j {
			term.Mul(term, fail)
		}
		sum.Add(sum, term)
	}
	return sum
}

// A level that no number of spares reaches is refused soon.
func TestCountedOutOfReach(t *testing.T) {
	for _, c := range []struct {
		nodes    int
		q, level string
	}{{10, "0.5", "0.999"}, {500_000, "0.2", "0.999999"}, {12_500, "0.3", "0.99999"}} {
		if n, err := reliability.Spares(c.nodes, 1, dec(c.q), dec(c.level), 1); err == nil {
			t.Errorf("%d nodes at %s for %s: %d spares", c.nodes, c.q, c.level, n)
		} else if !strings.Contains(err.Error(), "counted from 1 interruptions") {
			t.Error(err)
		}
	}
	if n, err := reliability.Spares(12_500, 1, dec("0.004"), dec("0.999"), 1); err != nil || n < 345 {
		t.Errorf("100,000 GPUs: %d spares, %v", n, err)
	}
}
