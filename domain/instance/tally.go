package instance

import (
	"math/big"

	"quartermaster/domain"
)

// tally is an exact sum. Almost all of its parts have a finite decimal fraction: those are added as whole
// numbers, which takes a fraction of the time of [big.Rat.Add].
type tally struct {
	scaled big.Int // × 10^−tallyDigits
	rest   big.Rat // of what has no such fraction
	x, y   big.Int // used again
}

const tallyDigits = digits + 6

// add adds a number.
func (t *tally) add(n *big.Rat) {
	switch {
	case n.Sign() == 0:
	case n.IsInt():
		t.scaled.Add(&t.scaled, t.x.Mul(n.Num(), tens(tallyDigits)))
	default:
		if t.x.QuoRem(tens(tallyDigits), n.Denom(), &t.y); t.y.Sign() == 0 {
			t.scaled.Add(&t.scaled, t.x.Mul(&t.x, n.Num()))
		} else {
			t.rest.Add(&t.rest, n)
		}
	}
}

// addProduct adds n × price.
func (t *tally) addProduct(n *big.Rat, price domain.Decimal) {
	if shift := tallyDigits + price.Exponent(); n.Sign() != 0 && n.IsInt() && shift >= 0 {
		t.x.Mul(n.Num(), price.Coefficient())
		t.scaled.Add(&t.scaled, t.x.Mul(&t.x, tens(shift)))
	} else if n.Sign() != 0 {
		t.add(new(big.Rat).Mul(n, price.Rat()))
	}
}

// sum is the sum of what was added.
func (t *tally) sum() *big.Rat {
	out := new(big.Rat).SetFrac(&t.scaled, tens(tallyDigits))
	return out.Add(out, &t.rest)
}
