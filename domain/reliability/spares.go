package reliability

import (
	"fmt"
	"math/big"
	"sort"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// MaxNodes bounds the nodes of a [Buffer], in use and spare.
const MaxNodes = 1_000_000

// places is how many decimals an unavailability or service level may have.
const places = 18

// Buffer says how many spare units keep a service level although nodes fail.
//
// Nodes fail independently, and whole: each is down with one probability q, and
// with it all of its units. Units in use fill nodes; spare units come as whole
// nodes. Of k nodes in use and s spare ones, at most s are down with probability
//
//	P(Bin(k + s, q) ≤ s)
//
// and s is the smallest for which that reaches the service level. No rounding
// decides it: the sum is computed with more than seventy digits, and where it
// comes closer to the level than that, in whole numbers.
type Buffer struct {
	perNode int
	// enough[s] is the most nodes in use that s spare ones are enough for.
	enough []int
	nodes  int // that it goes up to
}

// NewBuffer computes the buffer of any number of units up to top, in one pass.
// Unavailability is a node's q, 0 to 0.5, and level from above 0 to below 1, each
// of at most 18 decimals.
func NewBuffer(top, unitsPerNode int, unavailability, level domain.Decimal) (*Buffer, error) {
	half, one := decimal.New(5, -1), decimal.NewFromInt(1)
	switch {
	case unitsPerNode < 1:
		return nil, fmt.Errorf("%d units per node: below 1", unitsPerNode)
	case top < 0 || nodesOf(top, unitsPerNode) > MaxNodes/2:
		return nil, fmt.Errorf("%d units on nodes of %d: not from 0 to %d nodes", top, unitsPerNode, MaxNodes/2)
	case unavailability.IsNegative() || unavailability.GreaterThan(half):
		return nil, fmt.Errorf("unavailability %s of a node: not from 0 to %s; what is down more often than up is no spare", unavailability, half)
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
	if err := b.fill(unavailability, level); err != nil {
		return nil, err
	}
	return b, nil
}

func nodesOf(units, perNode int) int { return units/perNode + min(1, units%perNode) }

// precision of the tail's sum, in bits. Each of at most 2·MaxNodes steps multiplies
// a probability three times, so that is right to 2⁻²³³ of itself, and adds it to
// the sum or takes it off, so that is within 2⁻²¹⁰ of the truth. What differs from
// the level by margin or more is decided by it.
const (
	precision = 256
	margin    = -200 // exponent of 2
)

// fill walks from one node on. Tail is P(Bin(n, q) > s), at the probability of
// exactly s, here. A node more in use, n+1 and s, and a spare node more, n+1 and
// s+1, are each a step from there:
//
//	P(Bin(n+1, q) > s)   = P(Bin(n, q) > s) + q·P(Bin(n, q) = s)
//	P(Bin(n+1, q) > s+1) = P(Bin(n, q) > s) − (1 − q)·P(Bin(n, q) = s+1)
func (b *Buffer) fill(unavailability, level domain.Decimal) error {
	number := func(d domain.Decimal) *big.Float { return new(big.Float).SetPrec(precision).SetRat(d.Rat()) }
	f := func() *big.Float { return new(big.Float).SetPrec(precision) }
	q := number(unavailability)
	p := number(decimal.NewFromInt(1).Sub(unavailability)) // that a node is up
	odds := f().Quo(q, p)
	most := number(decimal.NewFromInt(1).Sub(level)) // that the tail may be
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
				return fmt.Errorf("%d nodes of unavailability %s need more than %d spare ones for a service level of %s", k, unavailability, s, level)
			}
		}
	}
	b.enough = append(b.enough, b.nodes)
	return nil
}

// reaches reports whether P(Bin(n, q) ≤ s) ≥ level, in whole numbers.
func reaches(n, s int, unavailability, level domain.Decimal) bool {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	down := unavailability.Shift(places).BigInt()
	up := new(big.Int).Sub(scale, down)
	// Σ C(n, j)·down^j·up^(n−j) for j ≤ s is up^(n−s) times a sum of s+1 terms.
	sum, term := new(big.Int), big.NewInt(1)
	for j := 0; ; j++ { // term is C(n, j)·down^j, sum has been multiplied by up j times
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

// Spares returns how many spare units are kept beside some in use, whole nodes of
// them. It never falls as units grow. It panics beyond what the buffer was
// computed for.
func (b *Buffer) Spares(units int) int {
	k := nodesOf(max(0, units), b.perNode)
	if k > b.nodes {
		panic(fmt.Sprintf("a buffer of %d nodes of %d units was asked for %d units", b.nodes, b.perNode, units))
	}
	return b.perNode * sort.SearchInts(b.enough, k)
}

// With returns units and their spares: what must be there for them to be served.
// It grows with every unit.
func (b *Buffer) With(units int) int { return units + b.Spares(units) }

// Spares returns how many spare units keep a service level beside some in use; see
// [Buffer].
func Spares(units, unitsPerNode int, unavailability, level domain.Decimal) (int, error) {
	b, err := NewBuffer(units, unitsPerNode, unavailability, level)
	if err != nil {
		return 0, err
	}
	return b.Spares(units), nil
}
