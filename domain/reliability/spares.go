package reliability

import (
	"fmt"
	"math/big"
	"sort"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// MaxCounted bounds the interruptions that a rate was counted from; more make no difference.
const MaxCounted = 1_000_000

// maxTerms bounds the work for a rate that was counted.
const maxTerms = 4_000_000

// MaxNodes bounds the nodes of a [Buffer], in use and spare.
const MaxNodes = 1_000_000

// places is the maximum number of decimals of an unavailability or service level.
const places = 18

// Buffer gives the number of spare units that keep a service level despite failures of
// nodes.
//
// Nodes fail independently and as a whole: each is down with the same probability q,
// together with all of its units. Units in use fill nodes; spare units come as whole
// nodes. With k nodes in use and s spare nodes, at most s are down with probability
//
//	P(Bin(k + s, q) ≤ s)
//
// and s is the smallest number for which that reaches the service level.
//
// A rate is known no better than what it was counted from. If it is the mean of a Gamma posterior of
// shape r (see [Prior]), the rates of all nodes are high or low together, and at most s nodes are
// down with probability
//
//	P(NB(r, (k + s)·q) ≤ s)
//
// where NB is the predictive distribution, negative binomial of shape r and that mean (Gelman et al.:
// Bayesian Data Analysis, section 2.6). It is wider than the binomial one, and the wider the fewer
// interruptions were counted, so young fleets have more spares.
//
// Rounding does not affect the result: the sum is computed with more than seventy digits, and if it
// is too close to the level for that, in whole numbers.
type Buffer struct {
	perNode int
	// enough[s] is the maximum number of nodes in use for which s spare nodes are enough.
	enough []int
	nodes  int // nodes in use that it was computed for
}

// NewBuffer computes the buffer for every number of units up to top, in one pass. unavailability is
// a node's q, from 0 to 0.5, and level lies strictly between 0 and 1. Both have at most 18
// decimals. counted is the number of interruptions that the rate behind q was counted from, 0 if it
// is known.
func NewBuffer(top, unitsPerNode int, unavailability, level domain.Decimal, counted int) (*Buffer, error) {
	half, one := decimal.New(5, -1), decimal.NewFromInt(1)
	switch {
	case unitsPerNode < 1:
		return nil, fmt.Errorf("%d units per node: below 1", unitsPerNode)
	case counted < 0 || counted > MaxCounted:
		return nil, fmt.Errorf("%d interruptions counted: not from 0 to %d", counted, MaxCounted)
	case top < 0 || nodesOf(top, unitsPerNode) > MaxNodes/2:
		return nil, fmt.Errorf("%d units on nodes of %d: not from 0 to %d nodes", top, unitsPerNode, MaxNodes/2)
	case unavailability.IsNegative() || unavailability.GreaterThan(half):
		return nil, fmt.Errorf("unavailability %s of a node: not from 0 to %s; a node that is down more often than up is no spare",
			unavailability, half)
	case !level.IsPositive() || level.GreaterThanOrEqual(one):
		return nil, fmt.Errorf("service level %s: not above 0 and below 1; no number of spares reaches 1", level)
	case !unavailability.Equal(unavailability.Truncate(places)) || !level.Equal(level.Truncate(places)):
		return nil, fmt.Errorf("unavailability %s or service level %s has more than %d decimals", unavailability, level, places)
	}
	b := &Buffer{perNode: unitsPerNode, nodes: nodesOf(top, unitsPerNode)}
	if unavailability.IsZero() {
		b.enough = []int{b.nodes}
		return b, nil
	}
	fill := b.fill
	if counted > 0 {
		fill = func(q, level domain.Decimal) error { return b.fillCounted(q, level, counted) }
	}
	if err := fill(unavailability, level); err != nil {
		return nil, err
	}
	return b, nil
}

func nodesOf(units, perNode int) int { return units/perNode + min(1, units%perNode) }

// precision is that of the tail's sum, in bits. Each of at most 2·MaxNodes steps multiplies a
// probability three times, so that its relative error stays below 2⁻²³³, and adds it to or
// subtracts it from the sum, whose error so stays below 2⁻²¹⁰. If the sum differs from the level by
// margin or more, it decides.
const (
	precision = 256
	margin    = -200 // exponent of 2
)

// fill starts with one node. tail is P(Bin(n, q) > s); here is the probability of exactly s. One
// more node in use (n+1 and s) and one more spare node (n+1 and s+1) are each a step from there:
//
//	P(Bin(n+1, q) > s)   = P(Bin(n, q) > s) + q·P(Bin(n, q) = s)
//	P(Bin(n+1, q) > s+1) = P(Bin(n, q) > s) − (1 − q)·P(Bin(n, q) = s+1)
func (b *Buffer) fill(unavailability, level domain.Decimal) error {
	number := func(d domain.Decimal) *big.Float { return new(big.Float).SetPrec(precision).SetRat(d.Rat()) }
	f := func() *big.Float { return new(big.Float).SetPrec(precision) }
	q := number(unavailability)
	p := number(decimal.NewFromInt(1).Sub(unavailability)) // probability that a node is up
	odds := f().Quo(q, p)
	most := number(decimal.NewFromInt(1).Sub(level)) // maximum of the tail
	near := new(big.Float).SetMantExp(big.NewFloat(1), margin)

	n, s := 0, 0
	here, tail := f().SetInt64(1), f()
	term, x := f(), f()
	ratio := func(a, b int) *big.Float { return x.Quo(f().SetInt64(int64(a)), term.SetInt64(int64(b))) }
	enough := func() bool {
		d := f().Sub(tail, most)
		if f().Abs(d).Cmp(near) > 0 {
			return d.Sign() < 0
		}
		return reaches(n, s, unavailability, level)
	}
	for k := 1; k <= b.nodes; k++ {
		tail.Add(tail, term.Mul(q, here))
		n++
		here.Mul(here, ratio(n, n-s)).Mul(here, p) // P(Bin(n, q) = s)
		for !enough() {
			b.enough = append(b.enough, k-1)
			// P(Bin(n, q) = s+1), then both steps at once.
			here.Mul(here, ratio(n-s, s+1)).Mul(here, odds)
			tail.Sub(tail, term.Mul(p, here))
			n, s = n+1, s+1
			here.Mul(here, ratio(n, n-s)).Mul(here, p)
			if n > MaxNodes {
				return fmt.Errorf("%d nodes of unavailability %s need more than %d spare ones for a service level of %s",
					k, unavailability, s, level)
			}
		}
	}
	b.enough = append(b.enough, b.nodes)
	return nil
}

// fillCounted finds, for each number of spare nodes, how many in use it is enough for. That number is
// found by halving, because more nodes in use are more nodes down.
func (b *Buffer) fillCounted(unavailability, level domain.Decimal, counted int) error {
	fault := func(k, s int) error {
		return fmt.Errorf("%d nodes of unavailability %s, counted from %d interruptions, need more than %d spare ones "+
			"for a service level of %s", k, unavailability, counted, s, level)
	}
	if most := min(2*b.nodes+1000, 20_000); !reachesCounted(b.nodes+most, most, unavailability, level, counted) {
		return fault(b.nodes, most)
	}
	left := maxTerms
	for s, k := 0, 0; k < b.nodes; s++ {
		k += sort.Search(b.nodes-k, func(i int) bool {
			left -= s + 1
			return left >= 0 && !reachesCounted(k+i+1+s, s, unavailability, level, counted)
		})
		if left < 0 {
			return fault(k+1, s)
		}
		b.enough = append(b.enough, k)
	}
	if len(b.enough) == 0 {
		b.enough = []int{b.nodes}
	}
	return nil
}

// reachesCounted reports whether P(NB(r, nq) ≤ s) ≥ level. The terms are
//
//	P(NB = 0) = (r/(r + nq))^r,  P(NB = j+1) = P(NB = j)·(r + j)/(j + 1)·nq/(r + nq)
func reachesCounted(n, s int, unavailability, level domain.Decimal, r int) bool {
	number := func(x *big.Rat) *big.Float { return new(big.Float).SetPrec(precision).SetRat(x) }
	mean := new(big.Rat).Mul(unavailability.Rat(), big.NewRat(int64(n), 1))
	all := new(big.Rat).Add(mean, big.NewRat(int64(r), 1))
	step := number(mean.Quo(mean, all))
	term, base := number(big.NewRat(1, 1)), number(all.Quo(big.NewRat(int64(r), 1), all))
	for k := r; k > 0; k >>= 1 { // base to the power r
		if k&1 == 1 {
			term.Mul(term, base)
		}
		base.Mul(base, base)
	}
	sum, x := new(big.Float).SetPrec(precision).Set(term), new(big.Float).SetPrec(precision)
	for j := range s {
		term.Mul(term, step).Mul(term, x.SetInt64(int64(r+j))).Quo(term, x.SetInt64(int64(j+1)))
		sum.Add(sum, term)
	}
	sum.Sub(sum, number(level.Rat()))
	if sum.Sign() == 0 || sum.MantExp(nil) < margin {
		return countedExactly(n, s, unavailability.Rat(), level.Rat(), r)
	}
	return sum.Sign() > 0
}

// countedExactly is reachesCounted in fractions.
func countedExactly(n, s int, q, level *big.Rat, r int) bool {
	mean := new(big.Rat).Mul(q, big.NewRat(int64(n), 1))
	all := new(big.Rat).Add(mean, big.NewRat(int64(r), 1))
	step, base := mean.Quo(mean, all), new(big.Rat).Quo(big.NewRat(int64(r), 1), all)
	term := big.NewRat(1, 1)
	for range r {
		term.Mul(term, base)
	}
	sum := new(big.Rat).Set(term)
	for j := range s {
		term.Mul(term, step).Mul(term, big.NewRat(int64(r+j), int64(j+1)))
		sum.Add(sum, term)
	}
	return sum.Cmp(level) >= 0
}

// reaches reports whether P(Bin(n, q) ≤ s) ≥ level, in whole numbers.
func reaches(n, s int, unavailability, level domain.Decimal) bool {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	down := unavailability.Shift(places).BigInt()
	up := new(big.Int).Sub(scale, down)
	// Σ C(n, j)·down^j·up^(n−j) for j ≤ s is up^(n−s) times a sum of s+1 terms.
	sum, term := new(big.Int), big.NewInt(1)
	for j := 0; ; j++ { // term is C(n, j)·down^j; sum has been multiplied by up j times
		sum.Add(sum, term)
		if j == s {
			break
		}
		sum.Mul(sum, up)
		term.Mul(term, down).Mul(term, big.NewInt(int64(n-j))).Quo(term, big.NewInt(int64(j+1)))
	}
	sum.Mul(sum, up.Exp(up, big.NewInt(int64(n-s)), nil)).Mul(sum, scale)
	want := scale.Exp(scale, big.NewInt(int64(n)), nil)
	return sum.Cmp(want.Mul(want, level.Shift(places).BigInt())) >= 0
}

// Spares returns the number of spare units for some units in use, in whole nodes. It never falls as
// units grows. It panics for more units than the buffer was computed for.
func (b *Buffer) Spares(units int) int {
	k := nodesOf(max(0, units), b.perNode)
	if k > b.nodes {
		panic(fmt.Sprintf("a buffer of %d nodes of %d units was asked for %d units", b.nodes, b.perNode, units))
	}
	return b.perNode * sort.SearchInts(b.enough, k)
}

// With returns units and their spares: the capacity needed to serve units. It grows with every
// unit.
func (b *Buffer) With(units int) int { return units + b.Spares(units) }

// Spares returns the number of spare units that keep a service level for some units in use; see
// [NewBuffer].
func Spares(units, unitsPerNode int, unavailability, level domain.Decimal, counted int) (int, error) {
	b, err := NewBuffer(units, unitsPerNode, unavailability, level, counted)
	if err != nil {
		return 0, err
	}
	return b.Spares(units), nil
}
