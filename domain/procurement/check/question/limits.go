package question

import (
	"errors"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// bound is a budget, or a bound of what is not served or runs on spot.
type bound struct {
	name   string
	budget *budget
	// unserved and spot say what is counted where it is no money.
	unserved, spot bool
	most           int64
	// left is what is held leaves of a budget. Serving counts by parts: thousandths of discounted
	// money by epoch, rounded up so that a budget is always kept.
	left    domain.Decimal
	parts   int64
	serving []int64
}

// Bounds of the solvers' numbers: they decide into how many parts a budget is counted.
const (
	mostMoney = 1_000_000_000_000_000_000
	thousand  = 1000
)

func (r *reading) within(b *budget, e int) bool {
	s := r.cal.span(e)
	return s.From >= b.Interval.From && (b.Interval.To == 0 || s.To <= b.Interval.To)
}

// limit states the bounds.
func (r *reading) limit() error {
	for i := range r.doc.Budgets {
		b := &r.doc.Budgets[i]
		if b.Basis != "cash" && b.Basis != "accrual" {
			return fmt.Errorf("budget %q: basis %q is neither cash nor accrual", b.ID, b.Basis)
		}
		x := bound{name: fmt.Sprintf("budget %q", b.ID), budget: b, left: b.Amount, parts: 1, serving: make([]int64, r.cal.n)}
		undo := make([]domain.Decimal, r.cal.n)
		for e := range r.cal.n {
			if !r.within(b, e) {
				continue
			}
			if b.Basis == "cash" {
				x.left = x.left.Sub(r.cash[e])
			} else {
				for _, of := range r.accrual {
					x.left = x.left.Sub(of[e])
				}
			}
			undo[e] = whole(thousand).DivRound(r.cal.middle[e], places)
		}
		if x.left.IsNegative() {
			return fmt.Errorf("budget %q: what is held takes %s more than there is", b.ID, x.left.Neg().StringFixed(2))
		}
		var err error
		if x.most, err = rounded(x.left.Shift(r.digits).Floor().Shift(-r.digits), r.digits); errors.Is(err, errLarge) {
			continue // more than can be spent
		}
		r.divideBudget(&x, undo)
		r.bounds = append(r.bounds, x)
	}
	if r.doc.Limits.Unserved == nil && r.doc.Limits.Spot == nil {
		return nil
	}
	total := zero
	for s := range r.scenarios {
		for i := range r.doc.Demands {
			load, _, _, err := r.wanted(i, s)
			if err != nil {
				return err
			}
			sum := int64(0)
			for _, n := range load {
				sum += int64(n)
			}
			total = total.Add(whole(sum).Mul(whole(r.scenarios[s].Weight)))
		}
	}
	add := func(share *domain.Decimal, x bound) {
		if share != nil {
			x.most = share.Mul(total).DivRound(whole(r.weight), places).Floor().IntPart()
			x.parts, x.serving = 1, slices.Repeat([]int64{thousand}, r.cal.n)
			r.bounds = append(r.bounds, x)
		}
	}
	add(r.doc.Limits.Unserved, bound{name: "max_unserved_share", unserved: true})
	add(r.doc.Limits.Spot, bound{name: "max_spot_share", spot: true})
	return nil
}

// divideBudget counts a budget in as many parts as the solvers' numbers allow.
func (r *reading) divideBudget(x *bound, undo []domain.Decimal) {
	dearest := slices.MaxFunc(undo, domain.Decimal.Cmp)
	if !dearest.IsPositive() {
		return
	}
	exact := !slices.ContainsFunc(undo, func(u domain.Decimal) bool { return !u.IsInteger() })
	for parts := whole(mostRatio).Div(dearest).IntPart(); parts > 1 && !exact; parts /= 2 {
		y := *x
		y.parts = parts
		most, err := rounded(x.left.Mul(whole(parts)).Shift(r.digits).Floor().Shift(-r.digits), r.digits)
		if err != nil || most > 9*mostMoney {
			continue
		}
		fits := true
		for i := 0; i < len(r.choices) && fits; i++ {
			c, err := r.choice(i)
			if err == nil {
				var n int64
				n, err = r.taken(c, &y)
				fits = n <= mostMoney
			}
			fits = fits && err == nil
		}
		if fits {
			x.parts, x.most = parts, most
			break
		}
	}
	for e, u := range undo {
		if u.IsPositive() {
			x.serving[e] = u.Mul(whole(x.parts)).Ceil().IntPart()
		}
	}
}

// spent is what a lot takes of a budget.
func (r *reading) spent(c *choice, b *budget) domain.Decimal {
	cash, accrual := r.money(c)
	sum := zero
	for e := range r.cal.n {
		if !r.within(b, e) {
			continue
		}
		if b.Basis == "cash" {
			sum = sum.Add(cash[e])
		} else {
			sum = sum.Add(accrual[e])
		}
	}
	return sum
}

// taken is what a lot takes of a bound, in its parts and rounded up.
func (r *reading) taken(c *choice, x *bound) (int64, error) {
	if x.budget == nil {
		return 0, nil
	}
	return rounded(r.spent(c, x.budget).Mul(whole(x.parts)).Shift(r.digits).Ceil().Shift(-r.digits), r.digits)
}
