// Package instance states a procurement problem whole, and its answer: what a
// planner hands to somebody else, who gets the same answer from it without a
// log. The planner composes instances from the log, what-ifs change them,
// backtests cut them off at a past month; all of them are solved here.
//
// A document is JSON (schemas/instance/v1.schema.json). Amounts are decimal
// strings in the currency of the instance unless they name another, time is UTC,
// quantities are units of a pool: GPUs or machines, as the instance says.
package instance

import (
	"quartermaster/domain"
)

// Format is the version of the document.
const Format = "quartermaster.instance/1"

// Instance is everything that an answer is computed from.
type Instance struct {
	Format   string `json:"format"`
	Name     string `json:"name"`
	Currency string `json:"currency"` // ISO 4217

	// From is midnight UTC, and the first of a month where epochs are months. A
	// horizon has so many epochs.
	From   domain.Instant `json:"from"`
	Epoch  EpochKind      `json:"epoch"`
	Epochs int            `json:"epochs"`

	// AnnualRate discounts payments to From: upfront ones from the day on which a
	// term begins, hourly ones from the middle of their epoch.
	AnnualRate domain.Decimal `json:"annual_rate"`
	// Salvage is the share of the cost of its epochs beyond the horizon that a
	// purchase is taken to be worth, 0 to 1: of an upfront payment, the part of the
	// term's hours that lie there. Owned hardware is no exception.
	Salvage domain.Decimal `json:"salvage"`
	// FX says how much of Currency one unit of another is worth.
	FX map[string]domain.Decimal `json:"fx,omitempty"`

	Regions     []Region     `json:"regions"`
	Pools       []Pool       `json:"pools"`
	Demands     []Demand     `json:"demands"`
	Offers      []Offer      `json:"offers"`
	Commitments []Commitment `json:"commitments,omitempty"`
	Quotas      []Quota      `json:"quotas,omitempty"`
	Overflow    []Overflow   `json:"overflow,omitempty"`
	Substitutes []Substitute `json:"substitutes,omitempty"`
	Posture     *Posture     `json:"posture,omitempty"`
	Budgets     []Budget     `json:"budgets,omitempty"`
	Limits      Limits       `json:"limits,omitzero"`
	Scenarios   []Scenario   `json:"scenarios,omitempty"` // none: one, as stated
	Source      string       `json:"source,omitempty"`    // what it was made from: position, file, methods
	Notes       []string     `json:"notes,omitempty"`
}

// EpochKind is how long prices stay as they are.
type EpochKind string

// The kinds of epochs. Days are for capacity blocks.
const (
	Months EpochKind = "month"
	Days   EpochKind = "day"
)

// Region is where pools are.
type Region struct {
	ID      string `json:"id"`
	Country string `json:"country,omitempty"` // ISO 3166-1 alpha-2
}

// Pool is machines or GPUs of one kind in one region.
type Pool struct {
	ID     string `json:"id"`
	Region string `json:"region"`
	Class  string `json:"class"` // GPU model or instance type
	Unit   string `json:"unit"`  // "gpu" or "vm"
	GPUs   int    `json:"gpus_per_unit,omitempty"`
	// OnDemand is the price of a unit for an hour; none: there is no on-demand.
	OnDemand *Price `json:"on_demand,omitempty"`
	// Quota bounds on-demand and discount-only units, each of which takes
	// QuotaPerUnit of it (1 if not said). "": no bound.
	Quota        string `json:"quota,omitempty"`
	QuotaPerUnit int    `json:"quota_per_unit,omitempty"`
	Spot         *Spot  `json:"spot,omitempty"`
	// Certifications that the pool has.
	Certifications []string `json:"certifications,omitempty"`
}

// Price is a price of a unit for an hour, with what it is later. A step applies
// from its day on.
type Price struct {
	Hourly   domain.Decimal `json:"hourly"`
	Currency string         `json:"currency,omitempty"`
	Path     []PriceStep    `json:"path,omitempty"` // ascending
}

// PriceStep is a price from a day on.
type PriceStep struct {
	From   domain.Instant `json:"from"`
	Hourly domain.Decimal `json:"hourly"`
}

// Spot is capacity that may be taken back.
type Spot struct {
	Price
	// Overhead is the share of spot time that interruptions lose, below 1: serving
	// an hour takes 1/(1 − overhead) hours.
	Overhead domain.Decimal `json:"overhead"`
	// Available bounds the units in an hour; nil: no bound. Scenarios may differ. Of
	// these interruptions take the overhead ([Spot.Serves]).
	Available *int `json:"available_units,omitempty"`
}

// Demand is units wanted in each hour from a pool, or from others that may stand
// in for it. Exactly one of Hourly and Duration is given.
type Demand struct {
	ID    string `json:"id"`
	Pool  string `json:"pool"`            // at home
	Class string `json:"class,omitempty"` // training, fine_tuning, batch, serving
	// Hourly is demand in each hour of the horizon.
	Hourly []int `json:"hourly,omitempty"`
	// Duration is a load-duration curve for each epoch, of all its hours, for demand
	// that no other pool can serve.
	Duration [][]Step `json:"duration,omitempty"`
	// Interruptible is the share that may run on spot, 0 to 1.
	Interruptible domain.Decimal `json:"interruptible_share"`
	// Shortage is what a unit costs for each hour that it is not served.
	Shortage domain.Decimal `json:"shortage_hourly"`
	// LatencyBudgetMS bounds the round trip to another region; 0: it stays at home.
	LatencyBudgetMS int `json:"latency_budget_ms,omitempty"`
	// Countries to which it may go; none: any.
	Countries      []string `json:"countries,omitempty"`
	Certifications []string `json:"certifications,omitempty"` // needed of a pool
	// DeferHours lets DeferrableShare of each hour's demand wait for so many hours
	// at most (whole windows from the start of the horizon). A posture and bounds of the
	// answer as a whole count it as it comes.
	DeferrableShare domain.Decimal `json:"deferrable_share,omitzero"`
	DeferHours      int            `json:"defer_hours,omitempty"`
	// Buffer adds spare units for failures.
	Buffer *Buffer `json:"buffer,omitempty"`
	// Past is demand of the hours before the horizon, the last one right before it, as
	// it was observed; -1: it was not. Nothing is decided by it but what is done
	// without a plan ([Baseline]).
	Past []int `json:"past_hourly,omitempty"`
}

// Step says in how many hours demand was just so many units.
type Step struct {
	Units int `json:"units"`
	Hours int `json:"hours"`
}

// Buffer is the spare capacity that keeps a service level although machines
// fail: the smallest n with P(at least demand of n are up) ≥ ServiceLevel, each
// node of UnitsPerNode being down with the probability rate × time to repair.
type Buffer struct {
	ServiceLevel       domain.Decimal `json:"service_level"` // below 1
	FailuresPerGPUHour domain.Decimal `json:"failures_per_gpu_hour"`
	RepairHours        domain.Decimal `json:"repair_hours"`
	UnitsPerNode       int            `json:"units_per_node,omitempty"` // 1 if not said
	GPUsPerUnit        int            `json:"gpus_per_unit,omitempty"`  // 1 if not said
}

// Offer is what can be bought.
type Offer struct {
	ID       string           `json:"id"`
	Provider string           `json:"provider,omitempty"`
	Kind     domain.OfferKind `json:"kind"` // reserved, capacity_block, owned, spend_commitment
	Pool     string           `json:"pool,omitempty"`
	Spend    string           `json:"spend,omitempty"` // a spend commitment's name
	// Term is in epochs. Owned hardware lasts its life.
	Term    int            `json:"term_epochs"`
	Upfront domain.Decimal `json:"upfront"` // of a unit
	Hourly  domain.Decimal `json:"hourly"`  // of a unit; of a spend commitment: what one unit commits an hour
	// Decline is the share by which Upfront and Hourly are lower in each epoch
	// that the purchase begins later; negative: higher.
	Decline  domain.Decimal `json:"decline_per_epoch,omitzero"`
	Currency string         `json:"currency,omitempty"`
	// GuaranteesCapacity says that what it covers is there. Otherwise it is a price.
	GuaranteesCapacity bool `json:"guarantees_capacity"`
	// PerUnit is how many units of the pool one unit of the offer covers, 1 if not
	// said; GPUs of a machine where the pool counts GPUs.
	PerUnit int `json:"covers_per_unit,omitempty"`
	// From and To bound the day on which a term may begin; zero: the horizon.
	From      domain.Instant `json:"from,omitempty"`
	To        domain.Instant `json:"to,omitempty"`
	LeadHours int            `json:"lead_time_hours,omitempty"`
	MinUnits  int            `json:"min_units,omitempty"` // of one order
	// MaxUnits bounds one order, and each epoch may begin with another: what can be
	// had of the offer altogether is bounded by Exclusive or by From and To. 0: no
	// bound; a document leaves it out.
	MaxUnits int `json:"max_units,omitempty"`
	Lot      int `json:"lot,omitempty"` // orders are multiples of it
	// Tiers are prices by the size of an order, ascending; the whole order pays the
	// price of its tier. Upfront and Hourly above hold below the first.
	Tiers []Tier `json:"tiers,omitempty"`
	// Ramp says how much of an order is there from which epoch of the term on,
	// ascending from epoch 0, in thousandths; none: all of it from the start. Hourly
	// is paid for what is there, Upfront for all. A lot has to divide into whole
	// units of the pool at each step.
	Ramp []RampStep `json:"ramp,omitempty"`
	// Exclusive: of all offers that share the name one at most is bought, and once.
	Exclusive string `json:"exclusive,omitempty"`
	Owned     *Owned `json:"owned,omitempty"`
	// Rates is, for a spend commitment, the committed on-demand price by pool.
	Rates     map[string]domain.Decimal `json:"rates,omitempty"`
	Citation  string                    `json:"citation,omitempty"`
	Generated bool                      `json:"generated,omitempty"` // made up, or not known at the time
}

// Tier is the price of an order of at least so many units.
type Tier struct {
	Units   int            `json:"units"`
	Upfront domain.Decimal `json:"upfront"`
	Hourly  domain.Decimal `json:"hourly"`
}

// RampStep is a part of an order from an epoch of its term on.
type RampStep struct {
	Epoch    int `json:"epoch"`
	Permille int `json:"permille"`
}

// Owned is hardware that is bought and run: of one unit. Its Offer's Upfront is
// the capital cost of the whole system (servers, network, storage, integration).
type Owned struct {
	PowerKW        domain.Decimal `json:"power_kw"` // metered at the unit, under load
	PUE            domain.Decimal `json:"pue"`      // ISO/IEC 30134-2
	TariffKWh      domain.Decimal `json:"tariff_kwh"`
	SpaceMonthly   domain.Decimal `json:"space_monthly"`
	NetworkMonthly domain.Decimal `json:"network_monthly"`
	SupportMonthly domain.Decimal `json:"support_monthly"` // maintenance and staff
	// Salvage is the share of Upfront for which it is sold at the end of the term. Where
	// that is beyond the horizon, Upfront less what is got then (both discounted) is
	// the cost of the term, and its hours beyond are worth what the instance's Salvage
	// says.
	Salvage domain.Decimal `json:"salvage"`
}

// Commitment is what is bought already.
type Commitment struct {
	ID                 string           `json:"id"`
	Kind               domain.OfferKind `json:"kind"`
	Pool               string           `json:"pool,omitempty"`
	Spend              string           `json:"spend,omitempty"`
	Units              int              `json:"units"`   // of the pool; of a spend commitment 1
	Term               domain.Interval  `json:"term"`    // To zero: no end
	Upfront            domain.Decimal   `json:"upfront"` // of all units, where the term is still to begin
	Hourly             domain.Decimal   `json:"hourly"`  // of a unit
	Currency           string           `json:"currency,omitempty"`
	GuaranteesCapacity bool             `json:"guarantees_capacity"`
	NoticeBy           domain.Instant   `json:"notice_by,omitempty"`
	// Renews: the term goes on for as long again, unless notice is given; both are
	// weighed when NoticeBy lies in the horizon.
	Renews bool                      `json:"renews,omitempty"`
	Rates  map[string]domain.Decimal `json:"rates,omitempty"`
}

// Quota bounds on-demand use of a provider's account, in every hour. What is less than a
// unit takes is of no use, where all take the same. In pools that have to do with one
// another and take unlike shares a unit may run for a part of an hour and takes as much
// of the quota: the master of such problems is a linear program over hours, and a bound
// in whole units would be a program of whole numbers for every hour.
type Quota struct {
	ID    string      `json:"id"`
	Limit int         `json:"limit"`
	Path  []QuotaStep `json:"path,omitempty"`
}

// QuotaStep is a bound from a day on.
type QuotaStep struct {
	From  domain.Instant `json:"from"`
	Limit int            `json:"limit"`
}

// Overflow is how far apart two regions are and what it costs to serve from one
// what belongs to the other. It holds one way.
type Overflow struct {
	From        string         `json:"from"` // region of the demand
	To          string         `json:"to"`
	RoundTripMS int            `json:"round_trip_ms"`
	Estimated   bool           `json:"estimated,omitempty"` // not measured
	Hourly      domain.Decimal `json:"hourly"`              // extra for a unit of demand: transfer
	// Overhead is the share by which serving it there takes more capacity.
	Overhead domain.Decimal `json:"overhead,omitzero"`
}

// Substitute lets a class do the work of another: Units of Class for one of For.
type Substitute struct {
	For   string         `json:"for"`
	Class string         `json:"class"`
	Units domain.Decimal `json:"units"`
	// Demands for which it holds; none: all.
	Demands []string `json:"demands,omitempty"`
}

// PostureKind is what happens when a region is lost.
type PostureKind string

// The postures.
const (
	// ActiveActive: the guaranteed capacity of the other regions carries the
	// protected demand's peak when any one region is lost (N+1).
	ActiveActive PostureKind = "active_active"
	// ActivePassive: a standby region holds capacity for the primary's peak.
	ActivePassive PostureKind = "active_passive"
)

// Posture protects demand from the loss of a region.
type Posture struct {
	Kind    PostureKind `json:"kind"`
	Demands []string    `json:"demands,omitempty"` // protected; none: all of class serving
	// Share of the demand that must survive, 0 to 1.
	Share domain.Decimal `json:"share"`
	// Standby is the region that takes over, and Cold the share of the on-demand
	// price at which its capacity is kept when not needed; nil: hot, it is bought as
	// guaranteed capacity.
	Standby string          `json:"standby,omitempty"`
	Cold    *domain.Decimal `json:"cold_price_share,omitempty"`
}

// BudgetBasis says when money counts.
type BudgetBasis string

// The bases: when it is paid, or spread over what it is for.
const (
	Cash    BudgetBasis = "cash"
	Accrual BudgetBasis = "accrual"
)

// Budget bounds spending in a stretch of the horizon, nominal, in expectation: it
// is the mean over the scenarios, by their weights, that keeps it. In a scenario of
// more demand than that, more may be spent.
type Budget struct {
	ID       string          `json:"id"`
	Basis    BudgetBasis     `json:"basis"`
	Interval domain.Interval `json:"interval"`
	Amount   domain.Decimal  `json:"amount"`
}

// Limits bound an answer as a whole. Nil: no bound.
type Limits struct {
	MaxUnservedShare *domain.Decimal `json:"max_unserved_share,omitempty"`
	MaxSpotShare     *domain.Decimal `json:"max_spot_share,omitempty"`
}

// Scenario is one way in which things may go.
type Scenario struct {
	ID     string `json:"id"`
	Weight int    `json:"weight"`
	// Factor multiplies every demand, Factors those that it names, in thousandths
	// and rounded up to whole units.
	Factor  int            `json:"factor_permille,omitempty"` // 0: 1000; a document leaves it out
	Factors map[string]int `json:"factors_permille,omitempty"`
	// Hourly replaces demands.
	Hourly map[string][]int `json:"hourly,omitempty"`
	// Spot replaces the spot units that can be had, by pool.
	Spot map[string]int `json:"spot_available_units,omitempty"`
}
