// Package backtest computes what past advice would have been worth. At the start of each past month
// it plans with what was known then, buys what the plan says to decide at once, keeps those
// purchases, and pays for the demand that actually came. The plan is compared with alternatives
// that need no plan ([baseline]), each of which decides every month by its own rule, and with
// perfect foresight.
//
// The plan is that of package plan: its composition, prices and solver.
//
// What always holds:
//
//   - Every alternative pays by one function, [procurement.Evaluate], on the same pool: the actual
//     demand at the prices of each month. Perfect foresight is that pool's optimum, so no
//     alternative costs less; a checker that shares no code with the solver has proven it.
//   - All alternatives use one terminal rule: a stated share of a purchase's cost beyond the last
//     month is not charged ([Question.Salvage]). The values depend on it, so every result also
//     shows salvage 0, one half and 1, in two variants. In the first, advice has no end: an
//     alternative looks ahead by its own horizon, and the rule only decides what it is finally
//     charged. In the second, every alternative decides anew for each rule and knows the end and
//     the rule.
//   - A decision sees only the demand, launches, outages and prices that were known at its time.
//     Prices that were not known then are counted as synthetic.
//   - Equal questions with equal draws give equal results, byte for byte, for any number of
//     workers.
//
// Amounts are nominal, without discount. Least orders are ignored. What was held at the start costs
// the same in every alternative and is not counted.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/parallel"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
)

// Method is the version of this package's method. A result names it.
const Method = "backtest/6"

// Question is what is to be tested.
type Question struct {
	From, To domain.Instant // starts of months; a decision is made in each month between them
	Pools    []Pool
	Currency string
	// Horizon is the number of months that each plan looks ahead.
	Horizon int
	// Scenarios is the number of demand scenarios in each plan.
	Scenarios int
	// Growth is the monthly growth of demand beyond the forecast, and Life the mean number of months
	// that demand for a machine type lasts, as in plans.
	Growth domain.Decimal
	Life   int
	// Salvage is the terminal rule: the share, 0 to 1, of the cost beyond the last month that is
	// not charged.
	Salvage domain.Decimal
	// PlanSalvage is the same share beyond the horizon of a plan that does not know the end; nil if it
	// follows from the forecast, as in plans. With less than 1, every such plan sees later starts as
	// dearer, and buys early what could have waited.
	PlanSalvage *domain.Decimal
	// Shortage is the price of an unserved hour as a multiple of the on-demand price.
	Shortage domain.Decimal
	// Draws returns a source of random draws for a number; equal numbers give equal sources.
	Draws func(stream uint64) func() uint64
	// Workers is the number of workers that share the pools; 0 means one.
	Workers int
	// Progress, if not nil, receives the number of completed decisions, never concurrently.
	Progress func(done int)
}

// Pool is machines of one kind in one region.
type Pool struct {
	Region, Kind string
	// Unit is what demand was counted in. Pools of a region with the same unit are forecast together.
	Unit string
	// Family means that the pool is of several machine types, which may replace each other.
	Family bool
	// From is the start of the first hour of Milli. Milli is the demand as known at the end, in
	// thousandths of a purchased unit; −1 means not observed.
	From  domain.Instant
	Milli []int64
	// Known, if not nil, is what was known of Milli at each decision, by month: the hours from From
	// on. A nil entry means that everything before the decision was known.
	Known [][]int64
	// Changes, if not nil, are the known changes of demand at each decision, by month, in
	// thousandths of a purchased unit; see [forecast.Shifts].
	Changes [][]forecast.Change
	// Markets is what was for sale in each month.
	Markets []Market
	// SpotPermille is the share of demand that may run on spot, in thousandths.
	SpotPermille int
	Held         []Held
}

// Market is what was for sale in a month.
type Market struct {
	OnDemand Price
	Seller   string // the supplier of the on-demand price
	Spot     *Price // including the overhead of interruptions
	Terms    []Term // each ID once
	Quota    int    // of on-demand units; procurement.Unlimited: no bound
}

// Price is the cost of a unit for an hour.
type Price struct {
	Hourly    domain.Decimal
	Synthetic bool // invented, or not known at the time
	// Since is when the price's quote became known and valid; 0 if invented.
	Since domain.Instant
}

// Term is a commitment for sale.
type Term struct {
	ID         string
	Seller     string // its supplier
	Months     int    // its length
	Lead       int    // months from the decision until it begins
	Guaranteed bool
	Upfront    domain.Decimal // per unit
	Hourly     domain.Decimal
	Max        int // units; 0: no bound
	Synthetic  bool
	Since      domain.Instant // as in Price
}

// Held is an earlier purchase.
type Held struct {
	Units      int
	Guaranteed bool
	Span       domain.Interval // To 0: open-ended
}

// Bounds of a question.
const (
	MaxMonths    = 120
	MaxScenarios = 200
)

// Months returns the months between two times, which must be starts of months.
func Months(from, to domain.Instant) ([]domain.Interval, error) {
	var out []domain.Interval
	for at := from.Time(); domain.InstantOf(at) < to; at = at.AddDate(0, 1, 0) {
		if at.Day() != 1 || from != from.DayStart() {
			return nil, fmt.Errorf("%s is not the start of a month", from)
		}
		if len(out) == MaxMonths {
			return nil, fmt.Errorf("from %s to %s: more than %d months", from, to, MaxMonths)
		}
		out = append(out, domain.Interval{From: domain.InstantOf(at), To: domain.InstantOf(at.AddDate(0, 1, 0))})
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("from %s to %s: there is no month between", from, to)
	case out[len(out)-1].To != to:
		return nil, fmt.Errorf("%s is not the start of a month", to)
	}
	return out, nil
}

// following returns the next n months after a start of a month.
func following(at domain.Instant, n int) []domain.Interval {
	out := make([]domain.Interval, n)
	first := at.Time()
	for i := range out {
		out[i] = domain.Interval{From: domain.InstantOf(first.AddDate(0, i, 0)), To: domain.InstantOf(first.AddDate(0, i+1, 0))}
	}
	return out
}

func hoursOf(i domain.Interval) int { return int((i.To - i.From) / domain.Hour) }

func (q *Question) check() ([]domain.Interval, error) {
	months, err := Months(q.From, q.To)
	if err != nil {
		return nil, err
	}
	one := decimal.NewFromInt(1)
	switch {
	case q.Horizon < 1 || q.Horizon > MaxMonths:
		return nil, fmt.Errorf("plans that look %d months ahead: want 1 to %d", q.Horizon, MaxMonths)
	case q.Scenarios < 1 || q.Scenarios > MaxScenarios:
		return nil, fmt.Errorf("%d scenarios: want 1 to %d", q.Scenarios, MaxScenarios)
	case q.Salvage.IsNegative() || q.Salvage.GreaterThan(one) || q.PlanSalvage != nil && (q.PlanSalvage.IsNegative() || q.PlanSalvage.GreaterThan(one)):
		return nil, fmt.Errorf("salvage of %s, and of %s in plans: want 0 to 1", q.Salvage, q.PlanSalvage)
	case q.Shortage.LessThan(one) || q.Shortage.GreaterThan(decimal.NewFromInt(1000)):
		return nil, fmt.Errorf("shortage at %s times on-demand: want 1 to 1000", q.Shortage)
	case len(q.Pools) == 0:
		return nil, fmt.Errorf("there is no pool to test")
	}
	seen := map[[2]string]bool{}
	for i := range q.Pools {
		p := &q.Pools[i]
		name := [2]string{p.Region, p.Kind}
		switch {
		case seen[name]:
			return nil, fmt.Errorf("pool %s is given twice", p.name())
		case len(p.Markets) != len(months), p.Known != nil && len(p.Known) != len(months),
			p.Changes != nil && len(p.Changes) != len(months):
			return nil, fmt.Errorf("pool %s: %d months of prices, %d of knowledge and %d of changes, want %d",
				p.name(), len(p.Markets), len(p.Known), len(p.Changes), len(months))
		case p.From != p.From.HourStart():
			return nil, fmt.Errorf("pool %s: demand from %s does not begin with an hour", p.name(), p.From)
		}
		seen[name] = true
		for h, v := range p.Milli {
			if v < -1 || v > 1000*procurement.MaxUnits {
				return nil,
					fmt.Errorf("pool %s: demand of %d thousandths at %s: want 0 to %d, or -1 for an hour that was "+
						"not observed", p.name(), v, p.From+domain.Instant(h)*domain.Hour,
						int64(1000*procurement.MaxUnits))
			}
		}
	}
	return months, nil
}

func (p *Pool) name() string { return p.Region + " " + p.Kind }

// Run tests the alternatives. It returns a [plan.OutOfRangeError] for an invalid question.
func Run(ctx context.Context, q *Question) (*Result, error) {
	months, err := q.check()
	if err != nil {
		return nil, &plan.OutOfRangeError{Err: err}
	}
	tests, err := q.decide(ctx, months)
	if err != nil {
		return nil, err
	}
	return q.result(months, tests), nil
}

// decide makes the decisions of all alternatives and computes their costs.
func (q *Question) decide(ctx context.Context, months []domain.Interval) ([]*test, error) {
	tests := make([]*test, len(q.Pools))
	var err error
	for i := range q.Pools {
		if tests[i], err = newTest(q, i, months); err != nil {
			return nil, &plan.OutOfRangeError{Err: fmt.Errorf("pool %s: %w", q.Pools[i].name(), err)}
		}
	}
	var lock sync.Mutex
	done := 0
	tell := func() {
		lock.Lock()
		defer lock.Unlock()
		done++
		if q.Progress != nil {
			q.Progress(done)
		}
	}
	for m := range months {
		if err := q.decideMonth(ctx, m, tests, tell); err != nil {
			return nil, err
		}
	}
	return tests, q.each(ctx, tests, func(t *test) error { return t.reckon() })
}

// decideMonth makes the decisions of a month in all pools, and calls tell after each.
func (q *Question) decideMonth(ctx context.Context, m int, tests []*test, tell func()) error {
	type whole struct{ region, unit string }
	wholes := map[whole][]*test{}
	for _, t := range tests {
		w := whole{t.pool.Region, t.pool.Unit}
		wholes[w] = append(wholes[w], t)
	}
	observed, why := make([]*plan.Observed, len(tests)), make([]error, len(tests))
	ahead := following(q.From, m+q.Horizon)[m:]
	hours := hoursOf(domain.Interval{From: ahead[0].From, To: ahead[len(ahead)-1].To})
	for _, of := range wholes { // none depends on another
		var parts []*forecast.Question
		for _, t := range of {
			o := t.observed(m)
			observed[t.index] = o
			parts = append(parts, &forecast.Question{
				From: o.From, History: o.Milli, Changes: o.Changes,
				Weeks:  min(forecast.MaxHorizon, (hours+forecast.Week-1)/forecast.Week),
				Family: domain.Family(t.pool.Kind),
			})
		}
		made, errs := forecast.Together(parts)
		for i, t := range of {
			observed[t.index].Made, why[t.index] = made[i], errs[i]
		}
	}
	return q.each(ctx, tests, func(t *test) error {
		err := t.decide(ctx, m, observed[t.index], why[t.index])
		if err == nil {
			tell()
		}
		return err
	})
}

// each does something for every pool, with the question's workers. Of several errors it returns that of
// the first pool, and those of cancellation only if there is no other.
func (q *Question) each(ctx context.Context, tests []*test, do func(*test) error) error {
	var (
		next   atomic.Int64
		failed = make([]error, len(tests))
	)
	parallel.Run(max(1, min(q.Workers, len(tests))), func(int) {
		for i := int(next.Add(1)) - 1; i < len(tests); i = int(next.Add(1)) - 1 {
			if failed[i] = ctx.Err(); failed[i] == nil {
				failed[i] = do(tests[i])
			}
		}
	})
	var stopped error
	for i, err := range failed {
		switch {
		case err == nil:
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			stopped = err
		default:
			return fmt.Errorf("pool %s: %w", q.Pools[i].name(), err)
		}
	}
	return stopped
}

// salvages are the terminal rules that results show, ascending: 0, one half, 1 and the question's
// own.
func (q *Question) salvages() []domain.Decimal {
	out := []domain.Decimal{decimal.Zero, decimal.New(5, -1), decimal.NewFromInt(1)}
	if !slices.ContainsFunc(out, q.Salvage.Equal) {
		out = append(out, q.Salvage)
	}
	slices.SortFunc(out, domain.Decimal.Cmp)
	return out
}

// main is the index of the question's own rule.
func (q *Question) main() int { return slices.IndexFunc(q.salvages(), q.Salvage.Equal) }

// Decisions is the number of decisions of a question.
func (q *Question) Decisions() int {
	months, err := Months(q.From, q.To)
	if err != nil {
		return 0
	}
	return len(months) * len(q.Pools)
}

// rules are the alternatives that need no plan. They decide anew every month, but for the constant
// one, which decides once and again when what it bought has ended. They follow those that buy
// nothing.
var rules = []struct {
	name     string
	days     int
	kind     baseline.Rule
	constant bool
}{
	{"lookback_7d", 7, baseline.Lookback, false}, {"lookback_30d", 30, baseline.Lookback, false},
	{"lookback_60d", 60, baseline.Lookback, false}, {"ladder_60d", 60, baseline.Ladder, false},
	{"constant_60d", 60, baseline.Lookback, true}, {"peak_60d", 60, baseline.Peak, false},
}

// Names of the alternatives, in the order of results.
const (
	alternativePlan       = "plan"
	alternativeBuyNothing = "buy_nothing"
	alternativeOnDemand   = "on_demand"
)

// ladderParts is the number of parts of a ladder: one a month, so that each month buys a part of
// what is still missing.
const ladderParts = 12

// Alternatives lists the alternatives of a result in order. Perfect foresight is not an
// alternative.
func Alternatives() []string {
	out := []string{alternativePlan, alternativeBuyNothing, alternativeOnDemand}
	for _, r := range rules {
		out = append(out, r.name)
	}
	return out
}

// month is the name of a month.
func month(at domain.Instant) string { return at.Time().Format("2006-01") }
