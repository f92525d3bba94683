// Package joint finds the purchases of coupled pools: demand that may be served from another region
// or by another kind of GPU, shared quotas, spend commitments, budgets, ramps, tiers, least orders,
// and capacity that must be present when a region is lost.
//
// All amounts are integers in [procurement.Nano], already discounted. The expectation over
// scenarios is a sum with integer weights, so cost and bound are exact and Problem.Weight times
// their expected values.
//
// # The hour
//
// Given d units wanted of demand i, G guaranteed and P discount-only units held and bought in pool
// p, Z units of spot there, Q the quota and S the committed spend, an hour minimises
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
// over non-negative f and s (firm and spot units of demand along a route), b, y, w (units of a pool
// on discount-only commitments, on demand, and on demand paid by a spend commitment), z and h. A
// pool without on-demand has no b, y or w, and one without spot no z. Units may be fractional,
// because substitutes have ratios.
//
// Demand may wait (Demand.Window). How much of it runs in which hour of its window is then decided
// with the hours, at least cost: d is what does not wait and what runs then. See windows.go.
package joint

import (
	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// Method is the version of this package's method. A plan names it.
const Method = "joint/3"

// Problem is pools, their demand, and what can be bought.
//
// Purchases are made once, before it is known which scenario comes true. In each hour of each
// scenario demand is then served at least cost: by what is held or bought in its own pool or in
// another along a route, by spot, on demand, or not at all.
type Problem struct {
	ID      string
	Weight  int // sum of the scenarios' weights, at least 1
	Pools   []string
	Demands []Demand
	Routes  []Route // includes routes to a demand's own pool
	Quotas  []string
	Spends  []string // spend commitments that can be held or bought
	Epochs  []Epoch
	Choices []Choice
	Needs   []Need
	Limits  []Limit

	relaxation
}

// relaxation turns a problem into its feasibility problem for needs and limits.
type relaxation struct {
	unwanted []bool // by demand: it is dropped; nil: none is
	keeping  bool   // only violating a limit or need costs anything
	// Exceeding a limit by one costs ceiling, in the units of multipliers, which is one divided by
	// scale.
	ceiling []int64
	scale   []float64
	one     float64
}

// Demand is units wanted by the hour.
type Demand struct {
	ID string
	// Interruptible is the share of an hour's demand that may run on spot, in thousandths, rounded
	// down to whole units; of one that waits it is not rounded.
	Interruptible int
	// Window is the number of hours of the windows within which Slot.Waits may be put off; 0 for a
	// demand that does not wait. The first begins with the epoch, and the last ends with it.
	Window int
}

// Route lets a pool serve a demand: Num/Den units of the pool do the work of one unit of demand.
type Route struct {
	Demand, Pool int
	Num, Den     int // 1 to MaxRatio
}

// Epoch is a period with constant prices.
type Epoch struct {
	Span     domain.Interval
	Pools    []Supply           // by pool
	Routes   []procurement.Nano // by route: extra cost per unit of demand and hour
	Shortage []procurement.Nano // by demand, per unit and hour
	Quotas   []int              // by quota, in its own units; procurement.Unlimited: no bound
	Spends   []procurement.Nano // by spend commitment: what is held already, per hour
	Cases    []Case             // by scenario
}

// Supply is a pool in an epoch. Negative prices mean not sold. Discount-only commitments need
// on-demand to be sold.
type Supply struct {
	OnDemand, Spot                   procurement.Nano // per unit and hour
	HeldGuaranteed, HeldDiscountOnly int
	// Quota is the quota that on-demand and discount-only units draw on, each with QuotaPerUnit of
	// it; −1 means none.
	Quota, QuotaPerUnit int
	// Spend is the spend commitment that pays for on-demand units, each with SpendPrice (the
	// committed price) per hour; −1 means none.
	Spend      int
	SpendPrice procurement.Nano
}

// Case is an epoch in one scenario.
type Case struct {
	Weight int
	Spot   []int // by pool: available units, procurement.Unlimited: no bound
	// Slots are hours with equal demand, without hours of no demand. They are strictly ascending.
	// Where a demand of the problem waits, they are instead all hours of the epoch in order, each
	// with Hours 1.
	Slots []Slot
}

// Slot is the number of hours with exactly this demand.
type Slot struct {
	Hours int
	Units []int // by demand, as it comes
	// Waits is, by demand, how many of Units may run in a later hour of the same window instead; nil:
	// none.
	Waits []int
}

// Grain is the fraction of a unit in which work that waits is divided among hours.
const Grain = 1000

// Choice is something that can be bought.
type Choice struct {
	ID    string // of the offer and start, for a reader
	Cost  procurement.Nano
	Least int // the smallest order, other than none
	Max   int // procurement.Unlimited: no bound
	Lot   int // units come in multiples of it, 1 for any
	Cover []Cover
	Spend []SpendCover
	Spent []procurement.Nano // by limit: what a unit takes of it
	// Group, if not "", is a set of choices of which at most one is bought.
	Group string
}

// Cover is what one unit of a choice covers. A ramp has several.
type Cover struct {
	Pool       int
	From, To   int // epochs [From, To)
	Units      int
	Guaranteed bool
}

// SpendCover is the hourly spend that one unit of a choice commits.
type SpendCover struct {
	Spend    int
	From, To int
	PerHour  procurement.Nano
}

// Need is guaranteed capacity that must be present in an epoch, whatever the demand: Σ
// PerUnit·(units held and bought) over pools ≥ Least. Each region that can be lost has needs of its
// own.
type Need struct {
	ID     string
	Epochs []int // the epochs in which it holds
	Terms  []NeedTerm
	Least  int
}

// NeedTerm is a pool's part in a need.
type NeedTerm struct{ Pool, PerUnit int }

// Limit bounds a sum over the whole plan: what choices take of it (Choice.Spent) and, in the epochs
// that it names, what serving takes in expectation.
type Limit struct {
	ID string
	// Most, times Problem.Weight, is the bound.
	Most procurement.Nano
	// Serving is, by epoch, how much of the limit one Nano of serving cost takes, in thousandths
	// (1000 undoes no discount); nil means that serving takes nothing. Serving costs are on-demand,
	// spot and routes; the penalty of a shortage is not money spent.
	Serving []int64
	// Unserved makes the limit count unserved unit-hours of demand instead of money, and Spot
	// unit-hours of pools that spot serves. Most and Choice.Spent are then in unit-hours. At most
	// one of the two is set.
	Unserved, Spot bool
}
