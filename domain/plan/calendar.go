package plan

import (
	"math"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// MonthMoney is the nominal money of a month of the horizon, without penalties.
type MonthMoney struct {
	Month string `json:"month"` // 2006-01
	// Cash is what is paid in the month. Accrual is what the month is charged: an upfront payment
	// is spread over the hours of its term.
	Cash    domain.Decimal `json:"cash"`
	Accrual domain.Decimal `json:"accrual"`
}

// account fills the calendar of a pool's plan, and the cost of commitments stranded at low demand,
// assuming that the pool serves its own demand. serves returns the on-demand and spot unit-hours of
// a month; nil means those of the pool planned by itself.
func (c *composer) account(
	out *PoolPlan, p *procurement.Pool, k *candidate, bought []procurement.Purchase,
	serves func(month int) (onDemand, spot domain.Decimal),
) error {
	ev, err := procurement.Evaluate(p, bought)
	if err != nil {
		return err
	}
	n := len(c.span)
	cash, charged := make([]domain.Decimal, n), make([]domain.Decimal, n) // of commitments
	commit := func(term domain.Interval, upfront, hourly domain.Decimal) {
		for m, month := range c.span {
			if month.From <= term.From && term.From < month.To {
				cash[m] = cash[m].Add(upfront)
			}
			within := min(term.To, month.To) - max(term.From, month.From)
			if within <= 0 {
				continue
			}
			paid := hourly.Mul(hoursDecimal(within))
			cash[m], charged[m] = cash[m].Add(paid), charged[m].Add(paid)
			if term.To != math.MaxInt64 && !upfront.IsZero() {
				charged[m] = charged[m].Add(upfront.Mul(hoursDecimal(within)).DivRound(hoursDecimal(term.To-term.From), digits))
			}
		}
	}
	for i := range k.held {
		for _, t := range k.held[i].terms {
			commit(t.Interval, t.upfront, t.hourly)
		}
	}
	for _, b := range bought {
		o, units := &k.shelf.terms[b.Offer], decimal.NewFromInt(int64(b.Units))
		term := domain.Interval{From: c.all[b.Epoch].From, To: c.all[b.Epoch+int(o.TermMonths)-1].To}
		commit(term, o.Upfront.Mul(units), o.Hourly.Mul(units))
	}
	if serves == nil {
		serves = func(m int) (onDemand, spot domain.Decimal) {
			return shared(ev.Epochs[m].OnDemand, p.Weight()), shared(ev.Epochs[m].Spot, p.Weight())
		}
	}
	for m, month := range c.span {
		onDemand, spot := serves(m)
		served := k.shelf.onDemand.Hourly.Mul(onDemand)
		if k.shelf.spot != nil {
			price := k.shelf.spot.Hourly.DivRound(decimal.NewFromInt(1).Sub(c.a.SpotOverhead), digits)
			served = served.Add(price.Mul(spot))
		}
		x := MonthMoney{
			Month: month.From.Time().Format("2006-01"), Cash: cash[m].Add(served).Round(9),
			Accrual: charged[m].Add(served).Round(9),
		}
		out.Calendar, out.Nominal = append(out.Calendar, x), out.Nominal.Add(x.Cash)
	}
	if len(ev.Scenarios) > 0 {
		c.unused(out, p, bought, leastDemand(ev.Scenarios).Epochs, charged)
		return nil
	}
	return c.strand(out, p, k, bought, charged)
}

// shared is the mean of unit-hours over n scenarios.
func shared(unitHours int64, n int) domain.Decimal {
	if n == 1 {
		return decimal.NewFromInt(unitHours)
	}
	return decimal.NewFromInt(unitHours).DivRound(decimal.NewFromInt(int64(n)), digits)
}

// leastDemand returns the scenario with the fewest unit-hours; ties go to the first.
func leastDemand(scenarios []procurement.Evaluation) *procurement.Evaluation {
	var least *procurement.Evaluation
	fewest := int64(math.MaxInt64)
	for i := range scenarios {
		sum := int64(0)
		for m := range scenarios[i].Epochs {
			sum += scenarios[i].Epochs[m].Demand
		}
		if sum < fewest {
			least, fewest = &scenarios[i], sum
		}
	}
	return least
}

func hoursDecimal(t domain.Instant) domain.Decimal {
	return decimal.NewFromInt(int64(t)).DivRound(decimal.NewFromInt(int64(domain.Hour)), digits)
}

// strand serves low demand with the commitments: the least demanding of the repeated weeks, week
// after week, without assumed growth.
func (c *composer) strand(
	out *PoolPlan, p *procurement.Pool, k *candidate, bought []procurement.Purchase, charged []domain.Decimal,
) error {
	h, err := observe(k.Pool, c.a, c.q.At)
	if err != nil {
		return err
	}
	least, sum := 0, int64(math.MaxInt64)
	for w := 0; w < len(h.milli); w += week {
		all := int64(0)
		for _, milli := range h.milli[w : w+week] {
			if all += milli; all < 0 { // beyond 64 bits
				all = math.MaxInt64
				break
			}
		}
		if all < sum {
			least, sum = w, all
		}
	}
	low := *h
	low.milli = h.milli[least : least+week]
	low.from = h.from + domain.Instant(least)*domain.Hour
	growth := c.growth
	if c.a.MonthlyGrowth.IsPositive() {
		growth = slices.Repeat([]int64{grown}, len(c.growth))
	}
	f := k.future.summary
	future, err := low.repeat(c.span, growth, k.fit)
	if err != nil {
		return err
	}
	if f.Failures != nil && future.summary.Peak > 0 {
		b, err := c.buffer(k, future.summary.Peak)
		if err != nil {
			return err
		}
		var spare int64
		future.steps = withSpares(future.steps, b, &spare)
	}
	q := *p
	q.Epochs = slices.Clone(p.Epochs)
	for m := range q.Epochs {
		q.Epochs[m].Demand = future.steps[m]
	}
	ev, err := procurement.Evaluate(&q, bought)
	if err != nil {
		return err
	}
	c.unused(out, &q, bought, ev.Epochs, charged)
	return nil
}

// unused adds up the cost of committed unit-hours that serve nothing.
func (c *composer) unused(
	out *PoolPlan, p *procurement.Pool, bought []procurement.Purchase, served []procurement.Serving,
	charged []domain.Decimal,
) {
	for m := range p.Epochs {
		_, units := coverage(p, bought, m)
		if units == 0 {
			continue
		}
		s := &served[m]
		unused := decimal.NewFromInt(s.UnusedGuaranteed + s.UnusedDiscountOnly)
		out.Stranded = out.Stranded.Add(charged[m].Mul(unused).DivRound(decimal.NewFromInt(int64(units)*hoursOf(c.span[m])), 9))
	}
}

// sumMonths adds one calendar to another with the same months.
func sumMonths(into, more []MonthMoney) []MonthMoney {
	if into == nil {
		return slices.Clone(more)
	}
	for i := range more {
		into[i].Cash, into[i].Accrual = into[i].Cash.Add(more[i].Cash), into[i].Accrual.Add(more[i].Accrual)
	}
	return into
}
