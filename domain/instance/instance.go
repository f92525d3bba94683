// Package instance defines a complete procurement problem and its answer. An instance can be handed
// to another party, who computes the same answer from it without the log. The planner composes
// instances from the log, what-if simulations change them, and backtests cut them off at a past
// month. This package solves all of them.
//
// A document is JSON (schemas/instance/v1.schema.json). Amounts are decimal strings in the currency
// of the instance unless they name another. Time is UTC. Quantities are units of a pool: GPUs or
// machines, as the pool says.
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

	// From is midnight UTC, and the first of a month if epochs are months. Epochs is the length of
	// the horizon.
	From   domain.Instant `json:"from"`
	Epoch  EpochKind      `json:"epoch"`
	Epochs int            `json:"epochs"`

	// AnnualRate discounts payments to From: upfront payments from the day on which a term begins,
	// hourly ones from the middle of their epoch.
	AnnualRate domain.Decimal `json:"annual_rate"`
	// Salvage is the share, 0 to 1, of a purchase's cost beyond the horizon that is credited. Of an
	// upfront payment, the part beyond the horizon is in proportion to the term's hours there. This
	// applies to owned hardware too.
	Salvage domain.Decimal `json:"salvage"`
	// FX is the value of one unit of another currency in Currency.
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
	Scenarios   []Scenario   `json:"scenarios,omitempty"` // empty: one, as stated
	Source      string       `json:"source,omitempty"`    // what it was composed from: position, file, methods
	Notes       []string     `json:"notes,omitempty"`
}

// EpochKind is the length of an epoch, within which prices are constant.
type EpochKind string

// The kinds of epochs. Days are for capacity blocks.
const (
	Months EpochKind = "month"
	Days   EpochKind = "day"
)

// Region is a location of pools.
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
	// OnDemand is the price of a unit for an hour; nil if the pool sells nothing on demand.
	OnDemand *Price `json:"on_demand,omitempty"`
	// Quota names the quota that bounds on-demand and discount-only units; empty means unlimited.
	// Each unit takes QuotaPerUnit of it, 1 if zero.
	Quota        string `json:"quota,omitempty"`
	QuotaPerUnit int    `json:"quota_per_unit,omitempty"`
	Spot         *Spot  `json:"spot,omitempty"`
	// Certifications are those that the pool has.
	Certifications []string `json:"certifications,omitempty"`
	// Provider is whose capacity it is, for [MultiProvider].
	Provider string `json:"provider,omitempty"`
}

// Price is the hourly price of a unit with its later changes. A step applies from its day on.
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

// Spot is interruptible capacity.
type Spot struct {
	Price
	// Overhead is the share of spot time lost to interruptions, below 1: serving an hour takes 1/(1
	// − overhead) hours.
	Overhead domain.Decimal `json:"overhead"`
	// Available bounds the units in an hour, before interruptions take the overhead
	// ([Spot.Serves]); nil means no bound. Scenarios may replace it.
	Available *int `json:"available_units,omitempty"`
}

// Demand is the number of units wanted in each hour from a pool, or from others that may substitute
// for it. Exactly one of Hourly and Duration is given.
type Demand struct {
	ID    string `json:"id"`
	Pool  string `json:"pool"`            // home pool
	Class string `json:"class,omitempty"` // training, fine_tuning, batch, serving
	// Hourly is the demand in each hour of the horizon.
	Hourly []int `json:"hourly,omitempty"`
	// Duration is a load-duration curve over all hours of each epoch, for demand that no other pool
	// can serve.
	Duration [][]Step `json:"duration,omitempty"`
	// Interruptible is the share that may run on spot, 0 to 1.
	Interruptible domain.Decimal `json:"interruptible_share"`
	// Shortage is the penalty for a unit that is not served for an hour.
	Shortage domain.Decimal `json:"shortage_hourly"`
	// LatencyBudgetMS bounds the round trip to another region; 0 means it stays in its home region.
	LatencyBudgetMS int `json:"latency_budget_ms,omitempty"`
	// OverflowHourly is what a unit-hour costs besides where it is served in another region, in addition
	// to that of the overflow.
	OverflowHourly domain.Decimal `json:"overflow_hourly,omitzero"`
	// Countries are those in which it may be served; empty means any.
	Countries      []string `json:"countries,omitempty"`
	Certifications []string `json:"certifications,omitempty"` // that a pool must have
	// DeferrableShare of each hour's demand may run in a later hour of its window. Windows have
	// DeferHours, the first of an epoch from its start; the last ends with it. Postures and Limits
	// count deferrable demand in the hour in which it arrives.
	DeferrableShare domain.Decimal `json:"deferrable_share,omitzero"`
	DeferHours      int            `json:"defer_hours,omitempty"`
	// Buffer adds spare units for failures.
	Buffer *Buffer `json:"buffer,omitempty"`
	// Past is the observed demand of the hours before the horizon, the last one right before it; -1
	// means not observed. It is used only by baselines ([Baseline]).
	Past []int `json:"past_hourly,omitempty"`
}

// Step is the number of hours in which demand was exactly Units.
type Step struct {
	Units int `json:"units"`
	Hours int `json:"hours"`
}

// Buffer is the spare capacity that keeps a service level despite machine failures: the smallest n
// with P(at least demand of n are up) ≥ ServiceLevel. Each node of UnitsPerNode units is down with
// probability rate × time to repair.
type Buffer struct {
	ServiceLevel       domain.Decimal `json:"service_level"` // below 1
	FailuresPerGPUHour domain.Decimal `json:"failures_per_gpu_hour"`
	RepairHours        domain.Decimal `json:"repair_hours"`
	// Counted is the number of interruptions that the rate was counted from, the weight of a prior
	// included; 0 means that the rate is known. The fewer, the more spares.
	Counted      int `json:"interruptions_counted,omitempty"`
	UnitsPerNode int `json:"units_per_node,omitempty"` // 1 if zero
	GPUsPerUnit  int `json:"gpus_per_unit,omitempty"`  // 1 if zero
}

// Offer is what can be bought.
type Offer struct {
	ID       string           `json:"id"`
	Provider string           `json:"provider,omitempty"`
	Kind     domain.OfferKind `json:"kind"` // reserved, capacity_block, owned, spend_commitment
	Pool     string           `json:"pool,omitempty"`
	Spend    string           `json:"spend,omitempty"` // name of the spend commitment
	// Term is in epochs. For owned hardware it is the lifetime.
	Term    int            `json:"term_epochs"`
	Upfront domain.Decimal `json:"upfront"` // per unit
	Hourly  domain.Decimal `json:"hourly"`  // per unit
	// Commits is, for a spend commitment, the amount that one unit commits in an hour. Zero means Hourly:
	// all of it is paid by the hour. It is no price: neither tiers nor Decline change it.
	Commits domain.Decimal `json:"commits_hourly,omitzero"`
	// Decline is the share by which Upfront and Hourly fall with each epoch that the purchase
	// begins later; negative values raise them.
	Decline  domain.Decimal `json:"decline_per_epoch,omitzero"`
	Currency string         `json:"currency,omitempty"`
	// GuaranteesCapacity is false for a discount-only offer, which lowers a price and guarantees no
	// capacity.
	GuaranteesCapacity bool `json:"guarantees_capacity"`
	// PerUnit is the number of pool units that one unit of the offer covers, 1 if zero: for example
	// the GPUs of a machine in a pool that counts GPUs.
	PerUnit int `json:"covers_per_unit,omitempty"`
	// From and To bound the day on which a term may begin; zero means the horizon's bound.
	From      domain.Instant `json:"from,omitempty"`
	To        domain.Instant `json:"to,omitempty"`
	LeadHours int            `json:"lead_time_hours,omitempty"`
	MinUnits  int            `json:"min_units,omitempty"` // per order
	// MaxUnits bounds one order; each epoch may begin with another one. Exclusive, or From and To,
	// limit the offer's total. 0 means no bound; a document leaves the key out.
	MaxUnits int `json:"max_units,omitempty"`
	Lot      int `json:"lot,omitempty"` // orders are multiples of it
	// Tiers are prices by order size, ascending. The whole order pays the price of its tier.
	// Upfront and Hourly above apply below the first tier.
	Tiers []Tier `json:"tiers,omitempty"`
	// Ramp is the share of an order, in thousandths, that is present from an epoch of the term on,
	// ascending from epoch 0. Without a ramp all of it is present from the start. Hourly is paid
	// for what is present, Upfront for all. At each step a lot must come to whole units of the
	// pool.
	Ramp []RampStep `json:"ramp,omitempty"`
	// Exclusive is a group name: of all offers in the group at most one is bought, and once.
	Exclusive string `json:"exclusive,omitempty"`
	Owned     *Owned `json:"owned,omitempty"`
	// Rates are, for a spend commitment, the committed on-demand prices by pool.
	Rates     map[string]domain.Decimal `json:"rates,omitempty"`
	Citation  string                    `json:"citation,omitempty"`
	Generated bool                      `json:"generated,omitempty"` // invented, or not known at the time
}

// Tier is the price of orders of at least Units units.
type Tier struct {
	Units   int            `json:"units"`
	Upfront domain.Decimal `json:"upfront"`
	Hourly  domain.Decimal `json:"hourly"`
}

// RampStep is the share of an order that is present from an epoch of its term on.
type RampStep struct {
	Epoch    int `json:"epoch"`
	Permille int `json:"permille"`
}

// Owned is the running cost of one unit of purchased hardware. Its Offer's Upfront is the capital
// cost of the whole system (servers, network, storage, integration).
type Owned struct {
	PowerKW        domain.Decimal `json:"power_kw"` // metered at the unit, under load
	PUE            domain.Decimal `json:"pue"`      // ISO/IEC 30134-2
	TariffKWh      domain.Decimal `json:"tariff_kwh"`
	SpaceMonthly   domain.Decimal `json:"space_monthly"`
	NetworkMonthly domain.Decimal `json:"network_monthly"`
	SupportMonthly domain.Decimal `json:"support_monthly"` // maintenance and staff
	// Salvage is the share of Upfront for which the hardware is sold at the end of its term. If the
	// term ends beyond the horizon, its cost is Upfront less the discounted proceeds; the part in
	// the hours beyond the horizon is credited by the instance's Salvage.
	Salvage domain.Decimal `json:"salvage"`
}

// Commitment is an existing purchase.
type Commitment struct {
	ID                 string           `json:"id"`
	Kind               domain.OfferKind `json:"kind"`
	Pool               string           `json:"pool,omitempty"`
	Spend              string           `json:"spend,omitempty"`
	Units              int              `json:"units"`                   // of the pool; 1 for a spend commitment
	Term               domain.Interval  `json:"term"`                    // To zero: open-ended
	Upfront            domain.Decimal   `json:"upfront"`                 // of all units, if the term has not begun
	Hourly             domain.Decimal   `json:"hourly"`                  // per unit
	Commits            domain.Decimal   `json:"commits_hourly,omitzero"` // as of an offer
	Currency           string           `json:"currency,omitempty"`
	GuaranteesCapacity bool             `json:"guarantees_capacity"`
	NoticeBy           domain.Instant   `json:"notice_by,omitempty"`
	// Renews means that the term repeats unless notice is given by NoticeBy. Both options are
	// weighed if NoticeBy lies within the horizon.
	Renews bool                      `json:"renews,omitempty"`
	Rates  map[string]domain.Decimal `json:"rates,omitempty"`
}

// Quota bounds the on-demand use of a provider's account in every hour. If all units take the same
// amount, a remainder smaller than that is unusable. In connected pools whose units take different
// amounts, a unit may run for part of an hour and takes that part of the quota. The reason is that
// the master of such problems is a linear program over hours; a bound in whole units would need an
// integer program for every hour.
type Quota struct {
	ID    string      `json:"id"`
	Limit int         `json:"limit"`
	Path  []QuotaStep `json:"path,omitempty"`
}

// QuotaStep is a limit from a day on.
type QuotaStep struct {
	From  domain.Instant `json:"from"`
	Limit int            `json:"limit"`
}

// Overflow is the round trip between two regions and the cost of serving one region's demand from
// the other. It is directed.
type Overflow struct {
	From        string         `json:"from"` // region of the demand
	To          string         `json:"to"`
	RoundTripMS int            `json:"round_trip_ms"`
	Estimated   bool           `json:"estimated,omitempty"` // not measured
	Hourly      domain.Decimal `json:"hourly"`              // extra cost per unit of demand, such as transfer
	// Overhead is the share by which serving in the other region takes more capacity.
	Overhead domain.Decimal `json:"overhead,omitzero"`
}

// Substitute lets Units of Class do the work of one unit of For.
type Substitute struct {
	For   string         `json:"for"`
	Class string         `json:"class"`
	Units domain.Decimal `json:"units"`
	// Demands to which it applies; empty means all.
	Demands []string `json:"demands,omitempty"`
}

// PostureKind is a policy for the loss of a region or of a provider.
type PostureKind string

// The postures.
const (
	// ActiveActive: when any one region is lost, the guaranteed capacity of the others carries the
	// protected demand's peak (N+1).
	ActiveActive PostureKind = "active_active"
	// ActivePassive: a standby region holds capacity for the primary's peak.
	ActivePassive PostureKind = "active_passive"
	// MultiProvider: when any one provider is lost in all regions, the guaranteed capacity of the others
	// carries the protected demand's peak.
	MultiProvider PostureKind = "multi_provider"
)

// Posture protects demand against the loss of a region or of a provider.
type Posture struct {
	Kind    PostureKind `json:"kind"`
	Demands []string    `json:"demands,omitempty"` // protected; empty: all of class serving
	// Share of the demand that must survive, 0 to 1.
	Share domain.Decimal `json:"share"`
	// Standby is the region that takes over. Cold is the share of the on-demand price that keeping
	// its capacity costs while it is not needed; nil means hot: it is bought as guaranteed
	// capacity.
	Standby string          `json:"standby,omitempty"`
	Cold    *domain.Decimal `json:"cold_price_share,omitempty"`
}

// BudgetBasis says when money counts.
type BudgetBasis string

// The bases: when money is paid, or spread over the period it pays for.
const (
	Cash    BudgetBasis = "cash"
	Accrual BudgetBasis = "accrual"
)

// Budget bounds nominal spending in an interval of the horizon. It applies to the expectation: the
// mean over the scenarios, by their weights. A scenario with more demand may exceed it.
type Budget struct {
	ID       string          `json:"id"`
	Basis    BudgetBasis     `json:"basis"`
	Interval domain.Interval `json:"interval"`
	Amount   domain.Decimal  `json:"amount"`
}

// Limits bound an answer as a whole; nil means no bound.
type Limits struct {
	MaxUnservedShare *domain.Decimal `json:"max_unserved_share,omitempty"`
	MaxSpotShare     *domain.Decimal `json:"max_spot_share,omitempty"`
}

// Scenario is one possible future.
type Scenario struct {
	ID     string `json:"id"`
	Weight int    `json:"weight"`
	// Factor multiplies every demand, Factors the demands that it names. Factors are in
	// thousandths; products are rounded up to whole units.
	Factor  int            `json:"factor_permille,omitempty"` // 0: 1000; a document leaves the key out
	Factors map[string]int `json:"factors_permille,omitempty"`
	// Hourly replaces demands.
	Hourly map[string][]int `json:"hourly,omitempty"`
	// Spot replaces the available spot units, by pool.
	Spot map[string]int `json:"spot_available_units,omitempty"`
}
