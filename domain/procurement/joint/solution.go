package joint

import (
	"fmt"
	"math/big"
	"strings"

	"quartermaster/domain/procurement"
)

// Solution is what to buy, what that costs, and the proof of how little anything
// could. Cost and Bound are in Nano times Problem.Weight.
type Solution struct {
	Units       []int       `json:"units"` // by choice
	Cost        *big.Int    `json:"cost"`  // as Evaluate finds, of Units
	Bound       *big.Int    `json:"bound"` // what the certificate proves; never above Cost
	Certificate Certificate `json:"certificate"`
	// Ways are how serving keeps the limits (see [Evaluation]); nil: serving takes
	// nothing of any.
	Ways   []Way  `json:"ways,omitempty"`
	Prices Prices `json:"prices"`
	Work   Work   `json:"work"`
	// Interrupted says that the search was stopped ([SolveUntil]).
	Interrupted bool `json:"-"`
}

// Gap returns Cost − Bound: at most so much is lost.
func (s *Solution) Gap() *big.Int { return new(big.Int).Sub(s.Cost, s.Bound) }

// Prices say what loosening a constraint by one is worth, as the certificate
// has it, in Nano times Problem.Weight; nil stands for nothing, zero.
type Prices struct {
	// Worth is, by choice, what a unit is worth: what it would have to cost to be
	// bought. Beside what a unit takes of limits.
	Worth  []*big.Int   `json:"worth"`
	Quotas [][]*big.Int `json:"quotas"` // by quota and epoch, for one more of it
	Needs  [][]*big.Int `json:"needs"`  // by need and its epochs, for one of Least less
	Limits []*big.Int   `json:"limits"` // by limit, for 10⁹ more of Most (one of the currency), or for a unit-hour
}

// Work counts what a solution took. The same problem takes the same.
type Work struct {
	Parts      int `json:"parts"`
	Alone      int `json:"alone"`      // parts that a minimum-cost flow decided
	Masters    int `json:"masters"`    // linear programs solved
	Iterations int `json:"iterations"` // of their simplex
	Cuts       int `json:"cuts"`
	Leaves     int `json:"leaves"` // of branching over choices that are all or nothing
	Slots      int `json:"slots"`  // hours priced
	Pivots     int `json:"pivots"` // of the hourly simplex
	Tried      int `json:"tried"`  // purchases evaluated exactly
}

// Evaluation is what purchases come to: every slot of every epoch and scenario
// served at least cost. Money is in Nano times Problem.Weight.
type Evaluation struct {
	Cost      *big.Int   `json:"cost"` // the sum of the five, rounded up
	Purchases *big.Rat   `json:"purchases"`
	OnDemand  *big.Rat   `json:"on_demand"`
	Spot      *big.Rat   `json:"spot"`
	Routes    *big.Rat   `json:"routes"`
	Shortage  *big.Rat   `json:"shortage"`
	Cases     [][]Served `json:"cases"` // by epoch and scenario, as they are and not times a weight
	// Limits is what is taken of each limit, times Problem.Weight.
	Limits []*big.Rat `json:"limits"`
	// Ways are how it is served where serving takes of limits, nil elsewhere. Where the
	// cheapest way would break a limit, dearer ones are mixed that keep it.
	Ways []Way `json:"ways,omitempty"`
	// Broken names the limits and needs that these purchases do not keep.
	Broken []string `json:"broken,omitempty"`
}

// Way serves a share of every hour as is cheapest at multipliers of limits, by limit
// and in the units that [Leaf] names; all 0: as is cheapest. The shares of all ways
// sum up to one.
type Way struct {
	Share       *big.Rat `json:"share"`
	Multipliers []int64  `json:"multipliers"`
}

// Served is what served an epoch in a scenario, in unit-hours.
type Served struct {
	Pools   []PoolServed   `json:"pools"`
	Demands []DemandServed `json:"demands"`
	Routes  []RouteServed  `json:"routes"`
}

// PoolServed is in units of the pool. What is guaranteed serves first, then what
// is discount-only.
type PoolServed struct {
	Guaranteed   *big.Rat `json:"guaranteed"`
	DiscountOnly *big.Rat `json:"discount_only"`
	Committed    *big.Rat `json:"committed"` // on demand, paid by a commitment to spend
	OnDemand     *big.Rat `json:"on_demand"`
	Spot         *big.Rat `json:"spot"`
}

// DemandServed is in units of the demand.
type DemandServed struct {
	Demand   *big.Int `json:"demand"`
	Shortage *big.Rat `json:"shortage"`
}

// RouteServed is in units of the demand.
type RouteServed struct {
	Firm *big.Rat `json:"firm"`
	Spot *big.Rat `json:"spot"`
}

// Infeasible means that no purchases keep all of what Clash names, whatever the
// rest of the problem asks; without any one of them some do.
//
//nolint:errname // it says what a problem is, and reads as joint.Infeasible
type Infeasible struct {
	Clash []Member
	// Undecided: of some members it could not be found out whether the others clash
	// without them.
	Undecided bool
}

// Member is one of what clashes: a need, limit, quota, demand, or a choice by its
// least order, lot, group and bound. Index is its place in the problem.
type Member struct {
	Kind, ID string
	Index    int
}

func (e *Infeasible) Error() string {
	names := make([]string, len(e.Clash))
	for i, m := range e.Clash {
		names[i] = fmt.Sprintf("%s %q", m.Kind, m.ID)
	}
	return "no purchases keep all of these, loosen one: " + strings.Join(names, ", ")
}

// Limits of a problem; [Problem.Validate] refuses what is beyond them.
const (
	MaxUnits  = 100_000_000 // demand, holdings, spot, of a choice; and a quota
	MaxHours  = 10_000_000  // of an epoch in one scenario
	MaxRatio  = 100_000     // Num and Den of a route, QuotaPerUnit
	MaxWeight = 1_000_000
	// MaxPrice bounds what an hour of a unit costs: 10⁷ of the currency.
	MaxPrice procurement.Nano = 10_000_000_000_000_000
	// MaxCost bounds what a unit of a choice costs: 10⁹ of the currency.
	MaxCost procurement.Nano = 1_000_000_000_000_000_000
)
