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
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
)

// Result is the costs of the alternatives.
type Result struct {
	Methods  []string        `json:"methods"`
	Period   domain.Interval `json:"period"`
	Months   int             `json:"months"`
	Currency string          `json:"currency"`
	// The inputs.
	Horizon   int            `json:"horizon_months"`
	Scenarios int            `json:"scenarios"`
	Growth    domain.Decimal `json:"monthly_growth"`
	Life      int            `json:"life_months"`
	Salvage   domain.Decimal `json:"salvage"` // the terminal rule
	Shortage  domain.Decimal `json:"shortage_factor"`
	// PlanSalvage is the salvage share that plans assume beyond their horizon. It is left out if it follows
	// from their forecasts.
	PlanSalvage *domain.Decimal `json:"plan_salvage,omitempty"`
	// Interval describes the low and high of a regret.
	Interval string `json:"interval"`
	// All is all regions together, and Regions each one, by name.
	All     Region   `json:"all"`
	Regions []Region `json:"regions"`
	Pools   []Tested `json:"pools"`
	// Notes are remarks needed to read the result.
	Notes []string `json:"notes"`
}

// Region is the costs of the alternatives in one region, or in all.
type Region struct {
	Region string `json:"region,omitempty"`
	// Foresight is the proven lowest possible cost, and FutureKnown what served demand at that
	// cost.
	Foresight   domain.Decimal `json:"foresight_cost"`
	FutureKnown Served         `json:"foresight_served_unit_hours"`
	// Alternatives do not know the end, as when advice is given, and pay under the question's
	// terminal rule. Least lists the cheapest of them.
	Alternatives []Alternative `json:"alternatives"`
	Least        []string      `json:"least"`
	// Terminal is the same under every terminal rule, with the end unknown and known.
	Terminal []Terminal `json:"terminal_rules"`
	// Robust compares the alternatives over the rules whose end is unknown and the one whose end is
	// known and leaves nothing, in the order of Alternatives.
	Robust   []Robust       `json:"over_terminal_rules"`
	Forecast forecast.Score `json:"forecast"` // as the score of "plan forecast", of the first four weeks
	// Synthetic is the number of pool-months, out of PoolMonths, with a price that was invented or
	// not known then.
	Synthetic  int `json:"pool_months_with_synthetic_prices"`
	PoolMonths int `json:"pool_months"`
}

// Terminal is the costs of the alternatives under one terminal rule.
type Terminal struct {
	Salvage domain.Decimal `json:"salvage"`
	// EndKnown says whether alternatives know the end of the test and the rule. If not, they buy
	// the same under every rule, which only decides what they are charged. If so, each decides by
	// what it is charged until the end.
	EndKnown     bool           `json:"end_known"`
	Foresight    domain.Decimal `json:"foresight_cost"`
	Alternatives []Alternative  `json:"alternatives"`
	Least        []string       `json:"least"` // the cheapest alternatives
}

// Robust is how an alternative does over several terminal rules: its mean regret, and the most by which
// its regret exceeds the least of a rule.
type Robust struct {
	Name   string         `json:"alternative"`
	Mean   domain.Decimal `json:"mean_regret"`
	Excess domain.Decimal `json:"worst_excess"`
}

// Alternative is the cost of an alternative.
type Alternative struct {
	Name    string         `json:"alternative"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"` // part of the cost
	// Regret is (cost − foresight) ÷ foresight, 0 if perfect foresight costs nothing. Low and High
	// are its interval; nil for a single pool.
	Regret domain.Decimal  `json:"regret"`
	Low    *domain.Decimal `json:"regret_low,omitempty"`
	High   *domain.Decimal `json:"regret_high,omitempty"`
	Served Served          `json:"served_unit_hours"`
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

// Tested is the result of one pool.
type Tested struct {
	Region    string         `json:"region"`
	Kind      string         `json:"kind"`
	Foresight domain.Decimal `json:"foresight_cost"`
	Plan      domain.Decimal `json:"plan_cost"`
	OnDemand  domain.Decimal `json:"on_demand_cost"`
	// Bought is what the plan bought.
	Bought []Bought `json:"plan_purchases"`
	// Missing is the number of hours that were not observed, which cost nothing.
	Missing int `json:"missing_hours"`
	// Synthetic is the number of months with a price that was invented or not known then.
	Synthetic int              `json:"months_with_synthetic_prices"`
	Prices    []SyntheticPrice `json:"synthetic_prices"`
	// Blind is the number of months without a forecast, in which the plan bought nothing; Why is
	// the reason in the first of them.
	Blind int    `json:"months_without_forecast"`
	Why   string `json:"why_no_forecast,omitempty"`
}

// SyntheticPrice is a price that is invented, or was not known in some months of a pool.
type SyntheticPrice struct {
	Price  string `json:"price"`  // "on_demand", "spot", or the offer
	Months int    `json:"months"` // number of months
	// Since is when the first quote that was carried back became known and valid; 0 if the price is
	// invented.
	Since domain.Instant `json:"known_from,omitempty"`
}

// Bought is units of an offer that begin with a month.
type Bought struct {
	Offer string `json:"offer"`
	Month string `json:"month"`
	Units int    `json:"units"`
}

// resamples is the number of bootstrap resamples of a region's pools.
const resamples = 1000

// intervalSays is the text of Result.Interval.
var intervalSays = fmt.Sprintf("the middle 90%% of %d bootstraps over pools: as many as the region has, drawn "+
	"from them with repetition, each against the least that its own pools could have cost. It says how regret "+
	"varies over pools, not over time, and little with less than ten of them; a single pool has none", resamples)

func money(nano *big.Int) domain.Decimal { return decimal.NewFromBigInt(nano, -9) }

// result adds up the pools.
func (q *Question) result(months []domain.Interval, tests []*test) *Result {
	out := &Result{
		Methods: append([]string{Method, plan.Method, forecast.Method}, instance.Methods()...),
		Period:  domain.Interval{From: q.From, To: q.To}, Months: len(months), Currency: q.Currency,
		Horizon: q.Horizon, Scenarios: q.Scenarios, Salvage: q.Salvage, PlanSalvage: q.PlanSalvage,
		Shortage: q.Shortage, Interval: intervalSays,
		Growth: q.Growth, Life: q.Life,
	}
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
		out.Regions = append(out.Regions, q.region(name, regions[name]))
	}
	out.All = q.region("", tests)
	for _, g := range append(slices.Clone(out.Regions), out.All) {
		if note := g.asGood(); note != "" && (g.Region != "" || len(out.Regions) > 1) {
			out.Notes = append(out.Notes, note)
		}
	}
	n := len(months) * len(tests)
	if synthetic > 0 {
		out.Notes = append(out.Notes,
			fmt.Sprintf("prices are synthetic (made up, or not known at the time) in %d of %d months of pools",
				synthetic, n))
	}
	if blind > 0 {
		out.Notes = append(out.Notes,
			fmt.Sprintf("in %d of %d months of pools too little was known for a forecast, and the plan bought nothing", blind, n))
	}
	if missing > 0 {
		out.Notes = append(out.Notes,
			fmt.Sprintf("%d hours of pools were not observed, and cost nothing in any alternative", missing))
	}
	return out
}

func (t *test) tested() Tested {
	b := t.books[t.q.main()]
	out := Tested{
		Region: t.pool.Region, Kind: t.pool.Kind, Foresight: money(b.foresight.Cost), Bought: []Bought{},
		Plan: money(b.unknown[0].total), OnDemand: money(b.unknown[slices.Index(Alternatives(), alternativeOnDemand)].total),
		Missing: t.missing, Synthetic: t.synthetic, Prices: t.pool.synthetic(), Blind: t.blind, Why: t.why,
	}
	bought := slices.Clone(t.sets[0].bought[0])
	slices.SortFunc(bought, func(a, b procurement.Purchase) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Offer, b.Offer))
	})
	for _, b := range bought {
		out.Bought = append(out.Bought, Bought{t.terms[b.Offer].ID, month(t.months[b.Epoch].From), b.Units})
	}
	return out
}

// synthetic lists the synthetic prices of a pool.
func (p *Pool) synthetic() []SyntheticPrice {
	out := []SyntheticPrice{}
	note := func(name string, since domain.Instant) {
		i := slices.IndexFunc(out, func(x SyntheticPrice) bool { return x.Price == name })
		if i < 0 {
			out = append(out, SyntheticPrice{name, 1, since})
			return
		}
		out[i].Months++
		out[i].Since = min(out[i].Since, since)
	}
	for m := range p.Markets {
		market := &p.Markets[m]
		if market.OnDemand.Synthetic {
			note("on_demand", market.OnDemand.Since)
		}
		if market.Spot != nil && market.Spot.Synthetic {
			note("spot", market.Spot.Since)
		}
		for _, term := range market.Terms {
			if term.Synthetic {
				note(term.ID, term.Since)
			}
		}
	}
	return out
}

// picks draws the pools of every resample; none for a single pool.
func (q *Question) picks(pools int) [][]int {
	if pools < 2 {
		return nil
	}
	draw := q.Draws(1 << 40)
	out := make([][]int, resamples)
	for i := range out {
		for range pools {
			pick, _ := bits.Mul64(draw(), uint64(pools))
			out[i] = append(out[i], int(pick))
		}
	}
	return out
}

func (q *Question) region(name string, tests []*test) Region {
	out := Region{Region: name}
	for _, t := range tests {
		out.FutureKnown.add(&t.books[q.main()].served)
		out.Forecast.Merge(&t.score)
		out.Synthetic += t.synthetic
		out.PoolMonths += len(t.months)
	}
	picks := q.picks(len(tests))
	for i, salvage := range q.salvages() {
		for _, known := range []bool{false, true} {
			x := Terminal{Salvage: salvage, EndKnown: known}
			x.Foresight, x.Alternatives = alternatives(tests, i, known, picks)
			least := slices.MinFunc(x.Alternatives, func(a, b Alternative) int { return a.Cost.Cmp(b.Cost) })
			for _, c := range x.Alternatives {
				if c.Cost.Equal(least.Cost) {
					x.Least = append(x.Least, c.Name)
				}
			}
			if i == q.main() && !known {
				out.Foresight, out.Alternatives, out.Least = x.Foresight, x.Alternatives, x.Least
			}
			out.Terminal = append(out.Terminal, x)
		}
	}
	out.Robust = out.robust()
	return out
}

// robust compares the alternatives over terminal rules.
func (g *Region) robust() []Robust {
	out := make([]Robust, len(g.Alternatives))
	rules := int64(0)
	for i := range g.Terminal {
		x := &g.Terminal[i]
		if x.EndKnown && !x.Salvage.IsZero() {
			continue
		}
		rules++
		least := slices.MinFunc(x.Alternatives, func(a, b Alternative) int { return a.Regret.Cmp(b.Regret) }).Regret
		for k, c := range x.Alternatives {
			out[k].Name, out[k].Mean = c.Name, out[k].Mean.Add(c.Regret)
			out[k].Excess = decimal.Max(out[k].Excess, c.Regret.Sub(least))
		}
	}
	for k := range out {
		out[k].Mean = out[k].Mean.DivRound(decimal.NewFromInt(rules), 4)
	}
	return out
}

// asGood names the best alternative that needs no plan, if its mean regret over terminal rules is at
// most a point above the plan's.
func (g *Region) asGood() string {
	plan := g.Robust[0]
	best := slices.MinFunc(g.Robust[1:], func(a, b Robust) int { return a.Mean.Cmp(b.Mean) })
	if best.Mean.Sub(plan.Mean).GreaterThan(decimal.New(1, -2)) {
		return ""
	}
	does := "as well as"
	if plan.Mean.Sub(best.Mean).GreaterThan(decimal.New(1, -2)) {
		does = "better than"
	}
	return fmt.Sprintf("%s does %s the plan in %s: its mean regret over the terminal rules is %s%%, the plan's %s%%",
		best.Name, does, cmp.Or(g.Region, "all regions"), best.Mean.Shift(2), plan.Mean.Shift(2))
}

// alternatives returns the costs of the alternatives over pools, from the given books.
func alternatives(tests []*test, books int, endKnown bool, picks [][]int) (foresight domain.Decimal, out []Alternative) {
	least := make([]*big.Int, len(tests))
	for i, t := range tests {
		least[i] = t.books[books].foresight.Cost
	}
	for i, name := range Alternatives() {
		c := Alternative{Name: name}
		penalty := new(big.Int)
		cost := make([]*big.Int, len(tests))
		for k, t := range tests {
			x := &t.books[books].unknown[i]
			if endKnown {
				x = &t.books[books].known[i]
			}
			cost[k] = x.total
			penalty.Add(penalty, x.penalty)
			c.Served.add(&x.served)
		}
		c.Cost, c.Penalty = money(sum(cost, nil)), money(penalty)
		c.Regret = regret(sum(cost, nil), sum(least, nil))
		regrets := make([]domain.Decimal, len(picks))
		for k, pick := range picks {
			regrets[k] = regret(sum(cost, pick), sum(least, pick))
		}
		if n := len(regrets); n > 0 {
			slices.SortFunc(regrets, domain.Decimal.Cmp)
			c.Low, c.High = &regrets[n*5/100], &regrets[n*95/100-1]
		}
		out = append(out, c)
	}
	return money(sum(least, nil)), out
}

// sum adds up pools: those picked, or all.
func sum(pools []*big.Int, pick []int) *big.Int {
	out := new(big.Int)
	if pick == nil {
		for _, x := range pools {
			out.Add(out, x)
		}
	}
	for _, i := range pick {
		out.Add(out, pools[i])
	}
	return out
}

// regret is rounded to four digits, and 0 if the least cost is 0. The least cost is proven up to
// the checker's gap, so an alternative can be cheaper by at most that.
func regret(cost, least *big.Int) domain.Decimal {
	more := new(big.Int).Sub(cost, least)
	if least.Sign() <= 0 || more.Sign() <= 0 {
		return decimal.Zero
	}
	return decimal.NewFromBigInt(more, 0).DivRound(decimal.NewFromBigInt(least, 0), 4)
}
