// Package procurement finds the purchases that serve a pool's demand at least
// net present cost.
//
// A pool is machines of one kind in one region. Time is cut into epochs within
// which prices, quotas and spot share do not change, so hours compress without
// error into a load-duration curve. A purchase covers consecutive epochs. What
// purchases leave uncovered in an hour is served, in this order, by spot up to
// a share of that hour's demand (where it is cheaper than on-demand), on-demand
// up to the quota, and not at all at the price of a shortage.
//
// Price and capacity are kept apart. A guaranteed purchase is capacity: what it
// covers needs no quota. A price-only commitment makes on-demand use free of
// further charge, and that use still needs on-demand quota.
//
// All amounts are integers (see [Nano]), so costs, bounds and gaps are exact.
// Equal pools give equal solutions, byte for byte.
package procurement

import (
	"quartermaster/domain"
)

// Method is the version of this package's method. A plan names it.
const Method = "procurement/1"

// Nano is an amount of money in 10⁻⁹ of the currency. Prices of a pool are
// already discounted to the start of the horizon.
type Nano int64

// Unlimited stands for a bound that is not there.
const Unlimited = -1

// Step says in how many hours of an epoch demand was exactly Units.
type Step struct {
	Units int
	Hours int
}

// Epoch is a stretch of time with constant prices.
type Epoch struct {
	Span   domain.Interval
	Demand []Step // by ascending units, each once; hours without demand may be left out
	// OnDemand, Spot and Shortage are what one unit for one hour costs. Spot
	// includes the overhead of interruptions: what it takes to serve one unit.
	// Negative: there is none. Shortage is never negative and above both.
	OnDemand Nano
	Spot     Nano
	Shortage Nano
	// SpotPermille is the share of an hour's demand that may run on spot,
	// rounded down to whole units.
	SpotPermille int
	// Quota bounds the units that on-demand and price-only commitments serve in
	// an hour; Unlimited: no bound.
	Quota int
	// What is bought already: units of guaranteed capacity, and of price-only
	// commitments. They cost nothing further.
	HeldGuaranteed int
	HeldPriceOnly  int
}

// Offer is what can be bought.
type Offer struct {
	ID         string
	Guaranteed bool
	Term       int     // epochs that a purchase covers; it may reach beyond the horizon
	Starts     []Start // when it can begin, ascending; lead times are in here
}

// Start is an epoch in which a purchase of an offer can begin to cover.
type Start struct {
	Epoch int
	Cost  Nano // of one unit over the term within the horizon, whether used or not
	Max   int  // units; Unlimited: no bound
}

// Pool is one problem.
type Pool struct {
	ID     string
	Epochs []Epoch
	Offers []Offer
}

// Purchase is some units of an offer from an epoch on.
type Purchase struct {
	Offer int `json:"offer"` // index into Pool.Offers
	Epoch int `json:"epoch"`
	Units int `json:"units"`
}

// Certificate proves a lower bound. For each epoch it names what one unit of
// coverage is worth over the epoch, and what one unit of guaranteed capacity is
// worth on top of that. Whatever is bought costs at least
//
//	Σ epochs  min over (total, guaranteed) of: serving cost + worth of what is covered
//	+ Σ starts  Max × min(0, cost − worth of the epochs covered)
//
// by weak duality, whichever prices are named; good ones make it the optimum.
type Certificate struct {
	Cover     []Nano `json:"cover"`
	Guarantee []Nano `json:"guarantee"`
}
