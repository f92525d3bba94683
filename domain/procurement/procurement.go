// Package procurement finds the purchases that serve a pool's demand at least net present cost.
//
// A pool is machines of one kind in one region. Time is divided into epochs with constant prices,
// quotas and spot share, so hours compress without error into a load-duration curve. A purchase
// covers consecutive epochs. What purchases leave uncovered in an hour is served in this order: by
// spot up to a share of that hour's demand (if it is cheaper than on-demand), on-demand up to the
// quota, and not at all at the price of a shortage.
//
// Demand and spot may have several scenarios, each with an integer weight. Purchases are made
// before it is known which comes true, and each scenario is then served at its own least cost. The
// objective is the expectation, as a sum: costs, bounds and prices of a pool are [Pool.Weight]
// times their expected values, so that no scenario's share is ever rounded.
//
// Price and capacity are separate. A guaranteed purchase is capacity: what it covers needs no
// quota. A discount-only commitment makes on-demand use free of further charge, and that use still
// needs on-demand quota.
//
// # Method
//
// With d the demand of an hour in a scenario, g the guaranteed units, p the discount-only units, S
// what spot may carry and Q the quota, an hour costs
//
//	A(g + min(p, Q)) + B(g)
//
// where A and B are sums of terms k·max(0, b − x) with k ≥ 0 (see curve.go). Both are convex, and
// an epoch is their weighted sum over its hours in every scenario. So a pool with scenarios is no
// harder than one without.
//
// If in every epoch only one of the two kinds can be bought, or the quota carries all demand, an
// epoch's cost is a convex function of the units bought. Purchases of consecutive epochs are then
// arcs of a network, and a minimum-cost flow solves the pool exactly (flow.go). Otherwise three
// overlapping purchases can form an odd cycle, and the linear program has fractional optima. A
// simplex then proposes prices and a mix, flows make it integral, and what was proven is the
// answer's Bound (mixed.go). Floating point only proposes: cost and bound are evaluated in
// integers.
//
// All amounts are integers (see [Nano]), so costs, bounds and gaps are exact. Equal pools give
// equal solutions, byte for byte. Package check, which shares no code with this one, verifies a
// solution independently.
package procurement

import (
	"quartermaster/domain"
)

// Method is the version of this package's method. A plan names it.
const Method = "procurement/2"

// Nano is an amount of money in 10⁻⁹ of the currency. Prices of a pool are already discounted to
// the start of the horizon.
type Nano int64

// Unlimited stands for no bound.
const Unlimited = -1

// Limits of a pool, so that no sum of prices exceeds 64 bits and no product of price and units 128.
// [Pool.Validate] refuses what is beyond them.
const (
	MaxUnits = 1_000_000_000 // demand, quota, holdings, units of a start
	MaxHours = 1_000_000_000 // of one epoch, over all scenarios, each times its weight
	// MaxWeight bounds the sum of the weights of scenarios.
	MaxWeight = 1_000_000
	// MaxWorth bounds the cost of a start times [Pool.Weight], and the cost of a unit that is short
	// in every hour of the horizon, over all scenarios, each times its weight: 10⁹ of the currency.
	// If that is too small, prices can be in a coarser unit than 10⁻⁹ of the currency; nothing here
	// depends on the unit.
	MaxWorth Nano = 1_000_000_000_000_000_000
)

// Step is the number of hours of an epoch in which demand was exactly Units.
type Step struct {
	Units int
	Hours int
}

// Case is an epoch in one scenario.
type Case struct {
	Demand []Step // as Epoch.Demand
	// SpotUnits is the number of units that spot can carry in an hour, in addition to the limit by
	// share of demand; Unlimited means no bound.
	SpotUnits int
}

// Epoch is a period with constant prices.
type Epoch struct {
	Span   domain.Interval
	Demand []Step // strictly ascending by units; hours without demand may be left out
	// Cases, if any, are the epoch in each scenario, in the order of Pool.Weights, and Demand is
	// empty. Without cases Demand holds in all scenarios.
	Cases []Case
	// OnDemand, Spot and Shortage are the costs of one unit for one hour. Spot includes the
	// overhead of interruptions. Negative means not sold; without on-demand, discount-only
	// commitments serve nothing. Shortage is never negative and never below the other two.
	OnDemand Nano
	Spot     Nano
	Shortage Nano
	// SpotPermille is the share of an hour's demand that may run on spot, rounded down to whole
	// units, if available (Case.SpotUnits).
	SpotPermille int
	// Quota bounds the units that on-demand and discount-only commitments serve in an hour;
	// Unlimited means no bound.
	Quota int
	// What is held already: units of guaranteed capacity and of discount-only commitments. They
	// have no further cost.
	HeldGuaranteed   int
	HeldDiscountOnly int
}

// Offer is what can be bought.
type Offer struct {
	ID         string
	Guaranteed bool
	Term       int     // epochs that a purchase covers; it may extend beyond the horizon
	Starts     []Start // when it can begin, ascending; includes lead times
}

// Start is an epoch in which a purchase of an offer can begin to cover.
type Start struct {
	Epoch int
	Cost  Nano // of one unit over the term within the horizon, whether used or not
	Max   int  // units; Unlimited: no bound
}

// Pool is one problem.
type Pool struct {
	ID string
	// Weights of the scenarios, each at least 1. Empty: one scenario of weight 1.
	Weights []int
	Epochs  []Epoch
	Offers  []Offer
}

// Weight is the sum of the scenarios' weights, by which costs, bounds and the prices of
// certificates are to be divided.
func (p *Pool) Weight() int {
	if len(p.Weights) == 0 {
		return 1
	}
	sum := 0
	for _, w := range p.Weights {
		sum += w
	}
	return sum
}

// way is the course of an epoch in one scenario, or in several equal ones.
type way struct {
	weight int
	Case
}

// ways returns the courses of an epoch.
func (p *Pool) ways(m int) []way {
	e := &p.Epochs[m]
	if len(e.Cases) == 0 {
		return []way{{p.Weight(), Case{e.Demand, Unlimited}}}
	}
	out := make([]way, len(e.Cases))
	for i, c := range e.Cases {
		out[i] = way{1, c}
		if len(p.Weights) > 0 {
			out[i].weight = p.Weights[i]
		}
	}
	return out
}

// Purchase is a number of units of an offer from an epoch on.
type Purchase struct {
	Offer int `json:"offer"` // index into Pool.Offers
	Epoch int `json:"epoch"`
	Units int `json:"units"`
}

// Certificate proves a lower bound. For each epoch it states the value of one unit of coverage over
// the epoch, and the additional value of one unit of guaranteed capacity, both non-negative. Any
// purchases cost at least
//
//	Σ epochs  min over g, p ≥ 0 of: cost of serving with g guaranteed and p
//	          discount-only units in addition to those held, over all scenarios,
//	          each times its weight + Cover·(g + p) + Guarantee·g
//	+ Σ starts  Max × min(0, weight × cost − worth of the epochs covered)
//
// where weight is the sum of the scenarios' weights, as in that cost. The reason is that a plan's
// purchases cost the worth of what they cover plus cost − worth for each unit (weak duality). This
// holds for any prices; good ones make it the optimum. What is held pays no price. The prices of a
// solution never exceed the cost of an unlimited start, for which the second sum would be
// unbounded.
type Certificate struct {
	Cover     []Nano `json:"cover"`
	Guarantee []Nano `json:"guarantee"`
}

// Worth returns the value of a unit of an offer, bought at one of its starts (an index into
// Starts), at the certificate's prices, times [Pool.Weight]. In an exact solution, a start whose
// cost times that weight is higher is not bought; the difference is how much cheaper it would have
// to get.
func (c *Certificate) Worth(p *Pool, offer, start int) Nano {
	o := &p.Offers[offer]
	from := o.Starts[start].Epoch
	var w Nano
	for m := from; m < o.end(from, len(p.Epochs)); m++ {
		w += c.Cover[m]
		if o.Guaranteed {
			w += c.Guarantee[m]
		}
	}
	return w
}

// end returns the epoch before which a purchase ends that begins in epoch from, within a horizon of
// the given number of epochs.
func (o *Offer) end(from, epochs int) int {
	if o.Term >= epochs-from {
		return epochs
	}
	return from + o.Term
}
