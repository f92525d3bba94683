package advice

import (
	"fmt"
	"math/big"

	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// providerCosts judges the cost of a useful GPU-hour of each provider against the mean of all, for one GPU model, class
// and currency. What it costs is the difference for the useful hours of the month.
func (e *evaluation) providerCosts() {
	type key struct{ model, class, currency string }
	groups := map[key][]*ProviderTime{}
	var order []key
	for i := range e.f.ProviderCosts {
		p := &e.f.ProviderCosts[i]
		if p.Useful <= 0 {
			continue // blank, as costs shows it
		}
		k := key{p.GPUModel, p.Class, p.Cost.Currency}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], p)
	}
	for _, k := range order {
		all := groups[k]
		if len(all) < 2 {
			continue
		}
		var cost decimal.Decimal
		var useful int64
		for _, p := range all {
			cost, useful = cost.Add(p.Cost.Amount), useful+p.Useful
		}
		if !cost.IsPositive() {
			continue
		}
		for _, p := range all {
			// (cost of p ÷ useful of p) ÷ (cost of all ÷ useful of all) − 1
			value := p.Cost.Amount.Mul(decimal.NewFromInt(useful)).DivRound(cost.Mul(decimal.NewFromInt(p.Useful)), 18).Sub(decimal.NewFromInt(1))
			m := measure{
				rule: ProviderCost, value: value, known: true, coverage: covered(p.Coverage, 1000), window: p.Month,
				subject: Subject{Provider: p.Provider, GPUModel: k.model, Class: k.class},
				summary: fmt.Sprintf("a useful GPU-hour of %s for %s costs %s %s at %s, %s more than the mean of %d providers",
					k.model, k.class, perHour(p.Cost.Amount, p.Useful), k.currency, p.Provider, percent(value), len(all)),
				question: Ask("costs", "by", "provider,gpu_model,workload_class", "period", month(p.Month)),
			}
			if value.IsPositive() {
				more := p.Cost.Amount.Sub(cost.Mul(decimal.NewFromInt(p.Useful)).DivRound(decimal.NewFromInt(useful), 18))
				m.perMonth = &domain.Money{Amount: more, Currency: k.currency}
			}
			e.judge(m)
		}
	}
}

func perHour(cost decimal.Decimal, ms int64) string {
	return cost.Mul(decimal.NewFromInt(3600000)).DivRound(decimal.NewFromInt(ms), 2).StringFixed(2)
}

func month(i domain.Interval) string { return i.From.Time().Format("2006-01") }

// owning judges whether rented GPUs are used for more of the time than owning needs. What renting costs more is its price
// for the used time, less the price of as many owned GPUs.
func (e *evaluation) owning() {
	for i := range e.f.Owning {
		o := &e.f.Owning[i]
		value := share(o.Used-o.BreakEven, 1000)
		thumb := "would not own"
		if o.Used > 700 {
			thumb = "would own"
		}
		m := measure{
			rule: OwnInstead, subject: Subject{Region: o.Region, GPUModel: o.GPUModel}, value: value, known: o.Used > 0,
			coverage: covered(o.Coverage, 1000), window: o.Window,
			summary: fmt.Sprintf("rented GPUs of model %s in region %s are used for %s of the time; owning (%s) costs less than renting (%s) from %s on (the rule of thumb of 70%% %s)",
				o.GPUModel, o.Region, percent(share(o.Used, 1000)), o.OwnOffer, o.RentOffer, percent(share(o.BreakEven, 1000)), thumb),
			question: Ask("usage", "by", "gpu_model,billing_model", "region", o.Region, "from", o.Window.From.String(), "to", o.Window.To.String()),
		}
		if value.IsPositive() && o.RentPerHour.Currency == o.OwnPerHour.Currency && !o.Window.Empty() {
			// (rent − own ÷ used) × rented hours × 730 h ÷ window
			each := o.RentPerHour.Amount.Sub(o.OwnPerHour.Amount.Mul(decimal.NewFromInt(1000)).DivRound(decimal.NewFromInt(o.Used), 18))
			if each.IsPositive() {
				m.perMonth = &domain.Money{
					Amount: each.Mul(decimal.NewFromInt(o.Rented)).Mul(decimal.NewFromInt(domain.MonthHours*1000000)).
						DivRound(decimal.NewFromInt(int64(o.Window.Length())), 18),
					Currency: o.RentPerHour.Currency,
				}
			}
		}
		e.judge(m)
	}
}

// courseDays are the days before the judged one that its weekly course is of.
const courseDays = 28

// courses judges the cost of a day against the same weekday of the four weeks before. The regions of a workspace's component
// are judged first, then the sum over them, if no region explains it. Its chance is shared by all that are judged.
func (e *evaluation) courses() {
	explained := map[Subject]bool{}
	for _, sums := range []bool{false, true} {
		n := 0
		for i := range e.f.Courses {
			if c := &e.f.Courses[i]; (c.Region == "") == sums && len(c.Days) > courseDays {
				n++
			}
		}
		for i := range e.f.Courses {
			c := &e.f.Courses[i]
			if (c.Region == "") != sums || len(c.Days) <= courseDays {
				continue
			}
			of := Subject{Workspace: c.Workspace, Component: c.Component, Name: c.Currency}
			if sums && explained[of] {
				continue
			}
			s := of
			s.Region = c.Region
			expected, chanceOf := outside(c.Days[len(c.Days)-courseDays-1:])
			today := c.Days[len(c.Days)-1]
			more := today.Sub(expected)
			if more.Abs().LessThan(expected.Mul(leastChange)) {
				continue // nobody would act on it
			}
			where := "region " + c.Region
			if sums {
				where = "all regions together"
			}
			direction := "more"
			if more.IsNegative() {
				direction = "less"
			}
			m := measure{
				rule: CostAnomaly, workspace: c.Workspace, subject: s, value: chanceOf, known: true, window: c.Last,
				least: e.part(CostAnomaly, c.Workspace, s, n),
				summary: fmt.Sprintf("%s of workspace %s in %s cost %s %s on %s, %s %s than its weekly course", c.Component, c.Workspace, where,
					today.StringFixed(2), c.Currency, c.Last.From.Time().Format("2006-01-02"), more.Abs().StringFixed(2), direction),
				question: Ask("costs", "by", "component,region,day", "workspace", c.Workspace, "period", month(c.Last)),
			}
			if more.IsPositive() {
				m.perMonth = &domain.Money{Amount: more.Mul(decimal.NewFromInt(domain.MonthHours)).DivRound(decimal.NewFromInt(24), 18), Currency: c.Currency}
			}
			if e.judge(m) == Firing {
				explained[of] = true
			}
		}
	}
}

// part is what each of n figures has of a rule's common chance (Bonferroni's inequality): the chance that any of them is
// beyond it by accident is at most that of the rule.
func (e *evaluation) part(id RuleID, workspace string, s Subject, n int) decimal.NullDecimal {
	return decimal.NewNullDecimal(e.threshold(id, workspace, s).DivRound(decimal.NewFromInt(int64(max(n, 1))), 12))
}

// leastSpread is the spread below which a weekly course is not believed, as a share of its level: prices that never move
// would otherwise make news of a cent.
var leastSpread = ratio(20)

// leastChange is the change of a cost, as a share of what was expected, below which it is no finding however unlikely it is.
var leastChange = ratio(200)

// outside returns what the last of 29 days is expected to cost, the mean of the same weekday of the 4 weeks before, and the
// chance of a cost at least as far from it, on both sides.
//
// Days are a mean of their weekday with independent deviations of one spread. The spread is estimated from the 28 days
// before, which have 21 degrees of freedom; the deviation of the next day is that times √(1 + 1/4), and their ratio has
// Student's t distribution. It is taken with 20 degrees, where it is algebraic, which is a little wider.
func outside(days []decimal.Decimal) (expected, chanceOf decimal.Decimal) {
	four := decimal.NewFromInt(4)
	var squares, level decimal.Decimal
	for weekday := range 7 {
		var mean decimal.Decimal
		for week := range 4 {
			mean = mean.Add(days[week*7+weekday])
		}
		level = level.Add(mean)
		mean = mean.DivRound(four, 18)
		for week := range 4 {
			d := days[week*7+weekday].Sub(mean)
			squares = squares.Add(d.Mul(d))
		}
		if weekday == 0 { // the 29th day has the weekday of the first
			expected = mean
		}
	}
	variance := squares.DivRound(decimal.NewFromInt(21), 30)
	floor := level.DivRound(decimal.NewFromInt(courseDays), 18).Mul(leastSpread)
	variance = decimal.Max(variance, floor.Mul(floor))
	d := days[courseDays].Sub(expected)
	if d.IsZero() {
		return expected, decimal.NewFromInt(1)
	}
	if variance.IsZero() {
		return expected, decimal.Decimal{} // something where there was always nothing
	}
	// t² = d² ÷ (variance × 5/4)
	return expected, student20(d.Mul(d).Mul(four).DivRound(variance.Mul(decimal.NewFromInt(5)), 18))
}

// student20 is the chance that a variable of Student's t distribution with 20 degrees of freedom is at least as far from 0
// as the root of a square, to 12 decimals (Abramowitz and Stegun, 26.7.4).
func student20(square decimal.Decimal) decimal.Decimal {
	const degrees = 20
	t2 := bigFloat(square)
	whole := new(big.Float).SetPrec(precision).Add(t2, big.NewFloat(degrees))
	sin := new(big.Float).SetPrec(precision).Sqrt(new(big.Float).SetPrec(precision).Quo(t2, whole))
	cos2 := new(big.Float).SetPrec(precision).Quo(new(big.Float).SetPrec(precision).SetInt64(degrees), whole)
	term := new(big.Float).SetPrec(precision).SetInt64(1)
	sum := new(big.Float).SetPrec(precision).SetInt64(1)
	for k := int64(1); k <= (degrees-2)/2; k++ {
		term.Mul(term, cos2)
		term.Mul(term, big.NewFloat(float64(2*k-1)))
		term.Quo(term, big.NewFloat(float64(2*k)))
		sum.Add(sum, term)
	}
	inside := sum.Mul(sum, sin)
	return rounded(inside.Sub(new(big.Float).SetPrec(precision).SetInt64(1), inside))
}

// precision of sums of chances, in bits. The result does not depend on the machine.
const precision = 200

func bigFloat(d decimal.Decimal) *big.Float {
	f, _, err := big.ParseFloat(d.String(), 10, precision, big.ToNearestEven)
	if err != nil {
		return new(big.Float).SetPrec(precision)
	}
	return f
}

// rounded returns a chance to 12 decimals.
func rounded(f *big.Float) decimal.Decimal {
	d, err := decimal.NewFromString(f.Text('f', 12))
	if err != nil || d.IsNegative() {
		return decimal.Decimal{}
	}
	return d
}
