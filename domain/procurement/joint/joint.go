// Package joint finds the purchases of pools that are not alone: demand that may
// be served from another region or by another kind of GPU, quotas that pools
// share, commitments to spend, budgets, ramps, tiers, least orders, and capacity
// that must be there when a region is lost.
//
// All amounts are integers in [procurement.Nano], already discounted; the
// expectation over scenarios is a sum with integer weights, so cost and bound are
// Problem.Weight times what they stand for and exact.
//
// # The hour
//
// With d units wanted of demand i, G guaranteed and P discount-only units held and
// bought in pool p, Z units of spot there, Q the quota, S the money committed to
// spend, an hour is the least of
//
//	Σ pools on-demand·y + spot·z + Σ routes extra·(f + s) + Σ demands shortage·h
//
//	demand i:  Σ its routes (f + s) + h ≥ d
//	           Σ its routes s ≤ ⌊d·Interruptible/1000⌋
//	pool p:    Σ routes to it Num/Den·f ≤ G + b + y + w
//	           Σ routes to it Num/Den·s ≤ z ≤ Z
//	           b ≤ P
//	quota q:   Σ its pools QuotaPerUnit·(b + y + w) ≤ Q
//	spend c:   Σ its pools SpendPrice·w ≤ S
//
// over f and s (firm and spot units of demand along a route), b, y, w (units of a
// pool on discount-only commitments, on demand, and on demand paid by a commitment
// to spend), z and h, none negative. Where a pool has no on-demand there is no b,
// y or w, and where it has no spot no z. Units may be fractions: a substitute's
// are.
package joint

import (
	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// Method is the version of this package's method. A plan names it.
const Method = "joint/1"

// Problem is pools, what is needed of them, and what can be bought.
//
// Purchases are made once, before it is known which scenario comes true. In each
// hour of each scenario demand is then served cheapest: by what is held or bought
// in its own pool or along a route in another, by spot, on demand, or not at all.
type Problem struct {
	ID      string
	Weight  int // sum of the scenarios' weights, at least 1
	Pools   []string
	Demands []Demand
	Routes  []Route // a demand's own pool is a route too
	Quotas  []string
	Spends  []string // commitments to spend that can be held or bought
	Epochs  []Epoch
	Choices []Choice
	Needs   []Need
	Limits  []Limit

	relaxation
}

// relaxation makes of a problem the one of what it takes to keep needs and limits.
type relaxation struct {
	unwanted []bool // by demand: there is none; nil: there is
	keeping  bool   // nothing costs anything but to break a limit or need
	// One above a limit costs ceiling, in the units of multipliers, which is one
	// divided by scale.
	ceiling []int64
	scale   []float64
	one     float64
}

// Demand is units wanted by the hour.
type Demand struct {
	ID string
	// Interruptible is the share of an hour's demand, in thousandths and rounded
	// down to whole units, that may run on spot.
	Interruptible int
}

// Route lets a pool serve a demand: Num/Den units of the pool do the work of one
// unit of demand.
type Route struct {
	Demand, Pool int
	Num, Den     int // 1 to MaxRatio
}

// Epoch is a stretch of time with constant prices.
type Epoch struct {
	Span     domain.Interval
	Pools    []Supply           // by pool
	Routes   []procurement.Nano // by route: extra for a unit of demand and hour along it
	Shortage []procurement.Nano // by demand, for a unit and hour
	Quotas   []int              // by quota, in its own units; procurement.Unlimited: no bound
	Spends   []procurement.Nano // by spend commitment: what is held already, an hour
	Cases    []Case             // by scenario
}

// Supply is a pool in an epoch. Negative prices: there is none. Discount-only
// commitments need on-demand to be there.
type Supply struct {
	OnDemand, Spot                   procurement.Nano // a unit for an hour
	HeldGuaranteed, HeldDiscountOnly int
	// Quota is the quota that on-demand and discount-only units draw on, each with
	// QuotaPerUnit of it; −1: none.
	Quota, QuotaPerUnit int
	// Spend is the commitment to spend that pays for on-demand units, each with
	// SpendPrice an hour of it (the committed price); −1: none.
	Spend      int
	SpendPrice procurement.Nano
}

// Case is an epoch in one scenario.
type Case struct {
	Weight int
	Spot   []int // by pool: units that can be had, procurement.Unlimited: no bound
	// Slots are hours with equal demand, those without any left out; slots are
	// ascending, none twice.
	Slots []Slot
}

// Slot says in how many hours demand was just so.
type Slot struct {
	Hours int
	Units []int // by demand
}

// Choice is something that can be bought.
type Choice struct {
	ID    string // of the offer and start, for a reader
	Cost  procurement.Nano
	Least int // at least so many units or none
	Max   int // procurement.Unlimited: no bound
	Lot   int // units come in multiples of it, 1 for any
	Cover []Cover
	Spend []SpendCover
	Spent []procurement.Nano // by limit: what a unit takes of it
	// Group, if not "": of all choices of the group one at most is bought.
	Group string
}

// Cover is what one unit of a choice covers. A ramp has several.
type Cover struct {
	Pool       int
	From, To   int // epochs [From, To)
	Units      int
	Guaranteed bool
}

// SpendCover is what one unit of a choice commits to spend, an hour.
type SpendCover struct {
	Spend    int
	From, To int
	PerHour  procurement.Nano
}

// Need is guaranteed capacity that must be there in an epoch, whatever demand:
// Σ PerUnit·(units held and bought) over pools ≥ Least. The loss of a region is
// one for every region that can be lost.
type Need struct {
	ID     string
	Epochs []int // the epochs in which it holds
	Terms  []NeedTerm
	Least  int
}

// NeedTerm is a pool's part in a need.
type NeedTerm struct{ Pool, PerUnit int }

// Limit bounds a sum over the whole plan: what choices take of it (Choice.Spent)
// and, in the epochs that it names, what serving takes in expectation.
type Limit struct {
	ID string
	// Most, times Problem.Weight, is the bound.
	Most procurement.Nano
	// By epoch, how much of the limit one Nano of serving cost takes, in
	// thousandths (1000 undoes no discount); nil: serving takes nothing. Serving
	// costs on-demand, spot and routes; a shortage's price is no money.
	Serving []int64
	// Unserved counts unit-hours of demand that is not served instead of money, and
	// Spot unit-hours of pools that spot serves: Most and Choice.Spent are in
	// unit-hours then. One of the two at most.
	Unserved, Spot bool
}
