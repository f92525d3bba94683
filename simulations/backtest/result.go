package backtest

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/procurement"
)

// Result is what the courses cost.
type Result struct {
	Methods  []string        `json:"methods"`
	Period   domain.Interval `json:"period"`
	Months   int             `json:"months"`
	Currency string          `json:"currency"`
	// What was taken as given.
	Horizon   int            `json:"horizon_months"`
	Scenarios int            `json:"scenarios"`
	Growth    string         `json:"growth"`
	Salvage   domain.Decimal `json:"salvage"` // the terminal rule
	Shortage  domain.Decimal `json:"shortage_factor"`
	// Interval says what low and high of a regret are.
	Interval string `json:"interval"`
	// All is every region together, and Regions each, by name.
	All     Region   `json:"all"`
	Regions []Region `json:"regions"`
	Pools   []Tested `json:"pools"`
	// Notes say what must be known to read the result.
	Notes []string `json:"notes"`
}

// Region is what the courses cost in one region, or in all.
type Region struct {
	Region string `json:"region,omitempty"`
	// Foresight is the least that any course could have cost, proven, and
	// FutureKnown what served demand then.
	Foresight   domain.Decimal `json:"foresight_cost"`
	FutureKnown Served         `json:"foresight_served_unit_hours"`
	Courses     []Course       `json:"courses"`
	Forecast    ForecastScore  `json:"forecast"`
}

// Course is what a course cost.
type Course struct {
	Course  string         `json:"course"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"` // of it
	// Regret is (cost − foresight) ÷ foresight, Low and High the interval that it
	// lies in; 0 where perfect foresight costs nothing.
	Regret domain.Decimal `json:"regret"`
	Low    domain.Decimal `json:"regret_low"`
	High   domain.Decimal `json:"regret_high"`
	Served Served         `json:"served_unit_hours"`
}

// Served is unit-hours by what served them.
type Served struct {
	Reserved int64 `json:"reserved"`
	Unused   int64 `json:"reserved_unused"`
	Spot     int64 `json:"spot"`
	OnDemand int64 `json:"on_demand"`
	Shortage int64 `json:"shortage"`
}

func (s *Served) add(o *Served) {
	s.Reserved += o.Reserved
	s.Unused += o.Unused
	s.Spot += o.Spot
	s.OnDemand += o.OnDemand
	s.Shortage += o.Shortage
}

// ForecastScore is what the forecasts of the plan were worth over their first
// four weeks, pool by pool.
type ForecastScore struct {
	Forecasts int `json:"forecasts"`
	Hours     int `json:"hours"`
	// AgainstNaive is the sum of absolute errors over that of repeating the last
	// week, and Covered90 the share of hours within the upper 90% quantile, both to
	// four digits.
	AgainstNaive domain.Decimal `json:"error_against_seasonal_naive"`
	Covered90    domain.Decimal `json:"within_90_percent_quantile"`

	error, naive big.Int
	within       int64
}

func (s *ForecastScore) add(o *ForecastScore) {
	s.Forecasts += o.Forecasts
	s.Hours += o.Hours
	s.error.Add(&s.error, &o.error)
	s.naive.Add(&s.naive, &o.naive)
	s.within += o.within
}

func (s *ForecastScore) finish() {
	if s.naive.Sign() > 0 {
		s.AgainstNaive = decimal.NewFromBigInt(&s.error, 0).DivRound(decimal.NewFromBigInt(&s.naive, 0), 4)
	}
	if s.Hours > 0 {
		s.Covered90 = decimal.NewFromInt(s.within).DivRound(decimal.NewFromInt(int64(s.Hours)), 4)
	}
}

// Tested is what became of one pool.
type Tested struct {
	Region    string         `json:"region"`
	Kind      string         `json:"kind"`
	Foresight domain.Decimal `json:"foresight_cost"`
	Plan      domain.Decimal `json:"plan_cost"`
	OnDemand  domain.Decimal `json:"on_demand_cost"`
	// Bought is what the plan bought.
	Bought []Bought `json:"plan_purchases"`
	// Missing are hours of the months that were not observed: nobody pays for them.
	Missing int `json:"missing_hours"`
	// Synthetic is in how many months a price was made up or not known then.
	Synthetic int `json:"months_with_synthetic_prices"`
	// Blind is in how many months nothing could be forecast, so that the plan
	// bought nothing, and Why the reason in the first of them.
	Blind int    `json:"months_without_forecast"`
	Why   string `json:"why_no_forecast,omitempty"`
}

// Bought is units of an offer that begin with a month.
type Bought struct {
	Offer string `json:"offer"`
	Month string `json:"month"`
	Units int    `json:"units"`
}

// The bootstrap behind the intervals.
const (
	resamples = 1000
	block     = 3 // months
)

// intervalSays is what Result.Interval says.
func intervalSays(months int) string {
	return fmt.Sprintf("the middle 90%% of %d block bootstraps over the %d months (blocks of %d months, the same in every region and course)", resamples, months, min(block, months))
}

func money(nano *big.Int) domain.Decimal { return decimal.NewFromBigInt(nano, -9) }

// result adds up the pools.
func (q *Question) result(months []domain.Interval, tests []*test) *Result {
	out := &Result{
		Methods: []string{Method, forecast.Method, procurement.Method},
		Period:  domain.Interval{From: q.From, To: q.To}, Months: len(months), Currency: q.Currency,
		Horizon: q.Horizon, Scenarios: q.Scenarios, Salvage: q.Salvage, Shortage: q.Shortage, Interval: intervalSays(len(months)),
		Growth: "beyond the forecast " + forecast.RandomWalk,
	}
	if len(q.Growth) > 0 {
		out.Growth = "beyond the forecast the level grows as stated"
	}
	picks := q.picks(len(months))
	regions := map[string][]*test{}
	var names []string
	synthetic, blind, missing := 0, 0, 0
	for _, t := range tests {
		if regions[t.pool.Region] == nil {
			names = append(names, t.pool.Region)
		}
		regions[t.pool.Region] = append(regions[t.pool.Region], t)
		out.Pools = append(out.Pools, t.tested())
		synthetic, blind, missing = synthetic+t.synthetic, blind+t.blind, missing+t.missing
	}
	slices.Sort(names)
	for _, name := range names {
		out.Regions = append(out.Regions, region(name, regions[name], picks))
	}
	out.All = region("", tests, picks)
	n := len(months) * len(tests)
	if synthetic > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("prices are synthetic (made up, or not known at the time) in %d of %d months of pools", synthetic, n))
	}
	if blind > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("in %d of %d months of pools too little was known for a forecast, and the plan bought nothing", blind, n))
	}
	if missing > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d hours of pools were not observed, and cost nothing in any course", missing))
	}
	return out
}

func (t *test) tested() Tested {
	out := Tested{
		Region: t.pool.Region, Kind: t.pool.Kind, Foresight: money(t.foresight.Cost), Bought: []Bought{},
		Plan: money(t.total(0)), OnDemand: money(t.total(slices.Index(Courses(), courseOnDemand))),
		Missing: t.missing, Synthetic: t.synthetic, Blind: t.blind, Why: t.why,
	}
	bought := slices.Clone(t.bought[0])
	slices.SortFunc(bought, func(a, b procurement.Purchase) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Offer, b.Offer))
	})
	for _, b := range bought {
		out.Bought = append(out.Bought, Bought{t.terms[b.Offer].ID, month(t.months[b.Epoch].From), b.Units})
	}
	return out
}

// total is what a course of a pool cost.
func (t *test) total(course int) *big.Int {
	sum := new(big.Int)
	for _, m := range t.costs[course].month {
		sum.Add(sum, m)
	}
	return sum
}

// picks draws the months of every resample: blocks that follow one another, from
// the last month on to the first.
func (q *Question) picks(months int) [][]int {
	draw := q.Draws(1 << 40)
	out := make([][]int, resamples)
	for i := range out {
		for len(out[i]) < months {
			from, _ := bits.Mul64(draw(), uint64(months))
			for k := range min(block, months-len(out[i])) {
				out[i] = append(out[i], (int(from)+k)%months)
			}
		}
	}
	return out
}

func region(name string, tests []*test, picks [][]int) Region {
	out := Region{Region: name}
	last := len(Courses())
	sums := make([][]*big.Int, last+1) // by course and month
	for i := range sums {
		sums[i] = make([]*big.Int, len(tests[0].months))
		for m := range sums[i] {
			sums[i][m] = new(big.Int)
			for _, t := range tests {
				sums[i][m].Add(sums[i][m], t.costs[i].month[m])
			}
		}
	}
	least := sum(sums[last], nil)
	out.Foresight = money(least)
	for _, t := range tests {
		out.FutureKnown.add(&t.costs[last].served)
		out.Forecast.add(&t.score)
	}
	out.Forecast.finish()
	for i, course := range Courses() {
		cost := sum(sums[i], nil)
		c := Course{Course: course, Cost: money(cost), Regret: regret(cost, least)}
		penalty := new(big.Int)
		for _, t := range tests {
			penalty.Add(penalty, t.costs[i].penalty)
			c.Served.add(&t.costs[i].served)
		}
		c.Penalty = money(penalty)
		drawn := make([]domain.Decimal, len(picks))
		for k, pick := range picks {
			drawn[k] = regret(sum(sums[i], pick), sum(sums[last], pick))
		}
		slices.SortFunc(drawn, domain.Decimal.Cmp)
		c.Low, c.High = drawn[len(drawn)*5/100], drawn[len(drawn)*95/100-1]
		out.Courses = append(out.Courses, c)
	}
	return out
}

// sum adds up months: those picked, or all.
func sum(months []*big.Int, pick []int) *big.Int {
	out := new(big.Int)
	if pick == nil {
		for _, m := range months {
			out.Add(out, m)
		}
	}
	for _, m := range pick {
		out.Add(out, months[m])
	}
	return out
}

// regret is to four digits, 0 where the least is nothing.
func regret(cost, least *big.Int) domain.Decimal {
	if least.Sign() <= 0 {
		return decimal.Zero
	}
	return decimal.NewFromBigInt(new(big.Int).Sub(cost, least), 0).DivRound(decimal.NewFromBigInt(least, 0), 4)
}
