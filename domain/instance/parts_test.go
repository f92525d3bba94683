package instance

import (
	"math/big"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// addUp holds the parts of an answer against its amounts.
func addUp(t *testing.T, in *Instance, a *Answer) {
	t.Helper()
	if len(a.Parts) != len(in.Pools)+1 {
		t.Fatalf("%d parts of %d pools", len(a.Parts), len(in.Pools))
	}
	sum := func(what string, want domain.Decimal, of func(*Part) domain.Decimal) {
		all := decimal.Zero
		for i := range a.Parts {
			all = all.Add(of(&a.Parts[i]))
		}
		if !all.Equal(want) {
			t.Errorf("%s: parts add up to %s, want %s", what, all, want)
		}
	}
	sum("cost", a.Cost, func(x *Part) domain.Decimal { return x.Cost })
	sum("committed", a.Committed, func(x *Part) domain.Decimal { return x.Committed })
	sum("bought", a.Bought, func(x *Part) domain.Decimal { return x.Bought })
	sum("serving", a.Serving, func(x *Part) domain.Decimal { return x.Serving })
	sum("penalty", a.Penalty, func(x *Part) domain.Decimal { return x.Penalty })
	sum("lower bound", a.LowerBound, func(x *Part) domain.Decimal { return x.LowerBound })
	sum("nominal", a.Nominal, func(x *Part) domain.Decimal { return x.Nominal })
	sum("stranded", a.Stranded, func(x *Part) domain.Decimal { return x.Stranded })
	for i := range a.Calendar {
		sum("accrual of "+a.Calendar[i].Month, a.Calendar[i].Accrual, func(x *Part) domain.Decimal { return x.Calendar[i].Accrual })
	}
	for i := range a.Scenarios {
		sum("cost in "+a.Scenarios[i].Scenario, a.Scenarios[i].Cost, func(x *Part) domain.Decimal { return x.Scenarios[i] })
	}
	bought := map[string]domain.Decimal{}
	for i := range a.Purchases {
		p := &a.Purchases[i]
		bought[p.Pool] = bought[p.Pool].Add(p.Cost)
	}
	for i := range a.Parts {
		x := &a.Parts[i]
		if !x.Bought.Equal(bought[x.Pool]) {
			t.Errorf("pool %q buys for %s, want %s", x.Pool, x.Bought, bought[x.Pool])
		}
		if x.LowerBound.GreaterThan(x.Cost) {
			t.Errorf("pool %q costs %s, at least %s", x.Pool, x.Cost, x.LowerBound)
		}
	}
}

// Parts of a bound stay below the costs of their pools, also where rounding leaves several units over.
func TestPartsOfABoundRounded(t *testing.T) {
	m := &model{digits: 9, weight: 3, in: &Instance{}}
	a := &Answer{LowerBound: dec("29.999999999")}
	for _, pool := range []string{"a", "b", "c", ""} {
		a.Parts = append(a.Parts, Part{Pool: pool, Cost: dec("10")})
		m.in.Pools = append(m.in.Pools, Pool{ID: pool})
	}
	a.Parts[3].Cost, m.in.Pools = decimal.Zero, m.in.Pools[:3]
	m.components = []component{{pools: []int{0, 1, 2}}}
	m.bound(a, nil, []*big.Int{big.NewInt(89_999_999_998)})
	sum := decimal.Zero
	for i := range a.Parts {
		x := &a.Parts[i]
		if sum = sum.Add(x.LowerBound); x.LowerBound.GreaterThan(x.Cost) {
			t.Errorf("pool %q costs %s, at least %s", x.Pool, x.Cost, x.LowerBound)
		}
	}
	if !sum.Equal(a.LowerBound) {
		t.Errorf("parts come to %s, want %s", sum, a.LowerBound)
	}
}
