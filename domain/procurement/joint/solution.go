package joint

import (
	"fmt"
	"math/big"
	"strings"

	"quartermaster/domain/procurement"
)

// Solution is what to buy, its cost, and the proof of a lower bound. Cost and Bound are in Nano
// times Problem.Weight.
type Solution struct {
	Units       []int       `json:"units"` // by choice
	Cost        *big.Int    `json:"cost"`  // cost of Units, as computed by Evaluate
	Bound       *big.Int    `json:"bound"` // what the certificate proves; never above Cost
	Certificate Certificate `json:"certificate"`
	// Ways are how serving keeps the limits (see [Evaluation]); nil if serving takes nothing of any
	// limit.
	Ways   []Way  `json:"ways,omitempty"`
	Runs   []Run  `json:"runs,omitempty"` // when work that waits runs; as it comes if there is none
	Prices Prices `json:"prices"`
	Work   Work   `json:"work"`
	// Interrupted says that the search was stopped ([SolveUntil]).
	Interrupted bool `json:"-"`
}

// Gap returns Cost − Bound, the most that other purchases could save.
func (s *Solution) Gap() *big.Int { return new(big.Int).Sub(s.Cost, s.Bound) }

// Prices are the value of loosening a constraint by one, from the certificate, in Nano times
// Problem.Weight; nil means zero.
type Prices struct {
	// Worth is, by choice, the value of a unit: the cost at which it would be bought. What a unit
	// takes of limits is not included.
	Worth  []*big.Int   `json:"worth"`
	Quotas [][]*big.Int `json:"quotas"` // by quota and epoch, for one more of it
	Needs  [][]*big.Int `json:"needs"`  // by need and its epochs, for one less of Least
	Limits []*big.Int   `json:"limits"` // by limit, for 10⁹ more of Most (one of the currency), or for a unit-hour
}

// Work counts what a solution took. Equal problems take equal work.
type Work struct {
	Parts      int `json:"parts"`
	Alone      int `json:"alone"`      // parts solved by a minimum-cost flow
	Masters    int `json:"masters"`    // linear programs solved
	Iterations int `json:"iterations"` // of their simplex
	Cuts       int `json:"cuts"`
	Leaves     int `json:"leaves"` // of branching over all-or-nothing choices
	Slots      int `json:"slots"`  // hours priced
	Pivots     int `json:"pivots"` // of the hourly simplex
	Tried      int `json:"tried"`  // purchases evaluated exactly
}

// Evaluation is the result of purchases, with every slot of every epoch and scenario served at
// least cost. Money is in Nano times Problem.Weight.
type Evaluation struct {
	Cost      *big.Int   `json:"cost"` // the sum of the five, rounded up
	Purchases *big.Rat   `json:"purchases"`
	OnDemand  *big.Rat   `json:"on_demand"`
	Spot      *big.Rat   `json:"spot"`
	Routes    *big.Rat   `json:"routes"`
	Shortage  *big.Rat   `json:"shortage"`
	Cases     [][]Served `json:"cases"` // by epoch and scenario, without weights
	// Limits is what is taken of each limit, times Problem.Weight.
	Limits []*big.Rat `json:"limits"`
	// Ways are how it is served if serving takes of limits, else nil. Where the cheapest way would
	// exceed a limit, dearer ones are mixed in to keep it.
	Ways []Way `json:"ways,omitempty"`
	Runs []Run `json:"runs,omitempty"` // by way, when work that waits runs
	// Broken names the limits and needs that these purchases violate.
	Broken []string `json:"broken,omitempty"`
}

// Way serves a share of every hour by the cheapest serving at multipliers of limits, by limit and
// in the units of [Leaf]; all 0 means the cheapest serving. The shares of all ways sum to one.
type Way struct {
	Share       *big.Rat `json:"share"`
	Multipliers []int64  `json:"multipliers"`
}

// Run is how much of a demand's Slot.Waits runs in each hour of an epoch in a scenario.
type Run struct {
	Way    int    `json:"way,omitempty"` // 0 without ways
	Epoch  int    `json:"epoch"`
	Case   int    `json:"case,omitempty"`
	Demand int    `json:"demand"`
	Units  []byte `json:"units"` // by slot, in Grain, as unsigned varints (encoding/binary)
}

// Served is what served an epoch in a scenario, in unit-hours.
type Served struct {
	Pools   []PoolServed   `json:"pools"`
	Demands []DemandServed `json:"demands"`
	Routes  []RouteServed  `json:"routes"`
}

// PoolServed is in units of the pool. Guaranteed units serve first, then discount-only ones.
type PoolServed struct {
	Guaranteed   *big.Rat `json:"guaranteed"`
	DiscountOnly *big.Rat `json:"discount_only"`
	Committed    *big.Rat `json:"committed"` // on demand, paid by a spend commitment
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

// Infeasible means that no purchases satisfy all members of Clash. The conflict does not depend on
// the rest of the problem. Dropping any one member resolves it.
//
//nolint:errname // it describes a problem, and reads as joint.Infeasible
type Infeasible struct {
	Clash []Member
	// Undecided means that for some members it could not be determined whether the others conflict
	// without them.
	Undecided bool
}

// Member is a member of a conflict: a need, limit, quota, demand, or a choice by its least order,
// lot, group and bound. Index is its index in the problem.
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
	MaxUnits  = 100_000_000 // demand, holdings, spot, units of a choice; and a quota
	MaxHours  = 10_000_000  // of an epoch in one scenario
	MaxRatio  = 100_000     // Num and Den of a route, QuotaPerUnit
	MaxWeight = 1_000_000
	// MaxPrice bounds the hourly cost of a unit: 10⁷ of the currency.
	MaxPrice procurement.Nano = 10_000_000_000_000_000
	// MaxCost bounds the cost of a unit of a choice: 10⁹ of the currency.
	MaxCost procurement.Nano = 1_000_000_000_000_000_000
)
