// Package plan composes what to buy from what the log says. It turns observed demand into machines,
// states each group of pools as a problem of package instance, has it solved and proven there, and
// presents the answers.
//
// A pool is machines of one shape in one region, from any supplier. Future demand is either
// repeated or forecast. Repeated demand is that of the last weeks, week by week, with an assumed
// growth rate that the answer states. A forecast is a set of equally likely scenarios. Purchases
// are then made before it is known which scenario comes true; the expected cost is minimised, and
// amounts and unit-hours are means over scenarios. Amounts are net present values at the start of
// the horizon. A purchase that outlives the horizon is credited with a stated share of its
// remaining value.
//
// What always holds:
//
//   - Equal questions give equal plans, byte for byte, and so equal ids.
//   - A plan is the answer of its problem: [Question.Instance] has the same least cost. This package
//     prices and discounts nothing itself.
//   - Every answer has passed two checkers: one of the solver's solution, and one that reads the
//     problem's document by itself (package question). An answer that does not pass is an error.
//   - Lower bound ≤ cost. Any purchases cost at least the lower bound.
//   - A pool that cannot be planned is named with the reason, and the others are planned
//     without it.
//   - Anything held, bought or owned, serves at most one pool.
package plan

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/packing"
	"quartermaster/domain/reliability"
)

// Method is the version of this package's method. A plan names it.
const Method = "plan/16"

// Assumptions are the inputs of a plan that were not observed.
type Assumptions struct {
	// Months is the length of the horizon.
	Months int `json:"months"`
	// Weeks of observed demand before the horizon are repeated over it.
	Weeks int `json:"lookback_weeks"`
	// MonthlyGrowth multiplies demand by 1 + MonthlyGrowth for every month since it was observed.
	MonthlyGrowth domain.Decimal `json:"monthly_growth"`
	// AnnualRate discounts payments: upfront ones from their day, hourly ones from the middle of
	// their month.
	AnnualRate domain.Decimal `json:"annual_rate"`
	// Salvage is the share, 0 to 1, of a purchase's cost in months beyond the horizon that is
	// credited.
	Salvage domain.Decimal `json:"salvage"`
	// SalvageFrom is [Forecast] if Salvage follows from the forecast: the use that demand makes of a term
	// beyond the horizon, relative to its use within. A plan states the share.
	SalvageFrom string `json:"salvage_from,omitempty"`
	// SpotOverhead is the share of spot time lost to interruptions: restarts and lost work. Serving
	// one hour takes 1/(1 − overhead) hours of spot.
	SpotOverhead domain.Decimal `json:"spot_overhead"`
	// ShortageFactor is the price of an unserved hour as a multiple of the on-demand price.
	ShortageFactor domain.Decimal `json:"shortage_factor"`
	// ServiceLevel is the probability, below 1, that all demand can be served at any time despite
	// machine failures; 0 means no spare machines.
	ServiceLevel domain.Decimal `json:"service_level,omitzero"`
	// Currency of all amounts, ISO 4217. Offers in others are left out.
	Currency string `json:"currency"`
	// Demand is [Forecast], or "" for repeated demand. A forecast does not use Weeks; MonthlyGrowth
	// continues its level beyond 13 weeks.
	Demand string `json:"demand,omitempty"`
	// Scenarios is the number of forecast scenarios, and Seed that of their draws; both are 0 for
	// repeated demand.
	Scenarios int    `json:"scenarios,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
	// SecondBest asks for plans without a supplier or an offer ([Plan.Alternatives]).
	SecondBest bool `json:"second_best,omitempty"`
	// MaxShare is a share of the plan's cost, below 1. It asks what it would cost to spend no more of it on
	// commitments with one supplier, or on one offer ([Plan.Capped]); 0 asks nothing.
	MaxShare domain.Decimal `json:"max_share,omitzero"`
	// OrderPrice is the price of placing one order. It asks for a plan of fewer, larger ones
	// ([Plan.FewerOrders]); 0 asks nothing. No cost contains it.
	OrderPrice domain.Decimal `json:"order_price,omitzero"`
	// Life is the mean number of months until a successor replaces a machine type and its demand ends
	// ([forecast.Spread]); 0: it never ends. It is 0 for repeated demand.
	Life int `json:"life_months,omitempty"`
}

// Question is everything that a plan is computed from.
type Question struct {
	At          domain.Instant // offers and quotas are those in force then; the horizon begins with the next month
	Position    string
	Only        []string // regions that the question is narrowed to, in order; empty: all
	Folds       string   // method version of the rows
	Assumptions Assumptions
	Pools       []Pool
	// Held is what is bought already, each term of a commitment separately, and owned machines
	// (Kind owned, an open-ended term).
	Held []Held
	// Expiry lists expiring commitments, each with the units that no later term continues. A plan
	// passes it on.
	Expiry []Held
	// Packings are the fleets of regions and the workloads that should run on them.
	Packings []Packing
	// Regions hold the distances between regions, for serving demand elsewhere.
	Regions []Region
	// Posture protects demand against the loss of a region; nil: nothing does.
	Posture *Posture
	// Budgets are hard ones for all that is bought.
	Budgets []Budget
	// SpendsApart plans a spend commitment for each pool by itself, as a discount-only reservation, and
	// counts none that is held. It is for simulations, whose trials serve no commitment over pools.
	SpendsApart bool
	// Limits are hard quotas of workspaces.
	Limits []Limit
	// FX is the value of one unit of another currency in the plan's currency. An instance of the
	// question is in one currency; a plan leaves out what is priced in others.
	FX map[string]domain.Decimal
	// Draws returns a source of random draws for a stream number; equal numbers give equal sources,
	// and Assumptions.Seed decides which. It is needed for forecast demand.
	Draws func(stream uint64) func() uint64 `json:"-"`
}

// Budget bounds the money of a period, as paid or as accrued.
type Budget struct {
	ID     string
	Basis  domain.BudgetBasis
	Period domain.Interval // To 0: without end
	Amount domain.Money
}

// Packing is the fleet of a region and the workloads that should run on it.
type Packing struct {
	Region    string
	Nodes     []packing.Node
	Workloads []packing.Workload
}

// Pool is demand for machines of one shape in one region.
type Pool struct {
	Region string
	// Kind is the GPU model if demand is counted in GPUs (Unit "gpu"), and the instance type if it
	// is counted in machines (Unit "vm").
	Kind, Unit string
	// Series add up to the pool's demand.
	Series []Series
	Offers []domain.OfferQuoted // of the region, for the kind
	// Quotas bound on-demand use; a provider without one has no known bound.
	Quotas []Quota
	// SpotShare is the share of demand that may run on spot, 0 to 1.
	SpotShare domain.Decimal
	// NodeGPUs is the number of GPUs per machine of the fleet there, 0 if there is none.
	NodeGPUs int
	// Mix is what runs in the pool, used to count the machines that its GPUs need; if empty, GPUs
	// fill machines.
	Mix []packing.Workload
	// Failures is the interruption rate of its GPUs, for a service level; nil if not requested.
	Failures *reliability.Estimate
	// Observed is its demand as input of a forecast; nil if not requested.
	Observed *Observed
	// LatencyMicros is the smallest round trip that any deployment declared for it allows. It is 0
	// if one of them names none: then its demand is served at home.
	LatencyMicros uint64
	// Substitutes are GPU models that may do all of its work.
	Substitutes []Substitute
	// Transfers are prices of moving parts of its work to another region. The highest counts for all of it.
	Transfers []Transfer
	// Protected: the question's posture applies to its demand.
	Protected bool
	// Idle: it has no demand of its own, and is there to serve that of others.
	Idle bool
	// Note is a remark on the demand.
	Note string
}

// Transfer is what a GPU-hour costs besides in another region.
type Transfer struct {
	Price  domain.Money
	Policy string // that says so
}

// Substitute is a GPU model that may do the work of a pool.
type Substitute struct {
	Model    string
	GPUs     domain.Decimal // of the model, for one of the pool's
	Measured bool
	Policy   string // that says so
}

// inGPUs reports whether demand is counted in GPUs, and not in machines.
func (p *Pool) inGPUs() bool { return p.Unit == "gpu" }

// Series is hourly demand, running and pending.
type Series struct {
	Source    string
	Workspace string         // "" if unknown
	From      domain.Instant // start of a UTC hour
	// Milli is in thousandths of a unit per hour; −1 where nothing was observed.
	Milli []int64
}

// To is the end of the last hour.
func (s *Series) To() domain.Instant { return s.From + domain.Instant(len(s.Milli))*domain.Hour }

// Quota bounds on-demand use of a provider.
type Quota struct {
	Provider string
	GPUs     uint64
	// Shared: includes a quota for all models together, which other pools use too.
	Shared bool
	// Together: it is the quota of all models together, and nothing else bounds the pool. Such
	// pools share the number.
	Together bool
}

// Held is a term of an existing commitment, or owned machines. A Term.To of 0 means open-ended.
type Held struct {
	Commitment string           `json:"commitment"`
	Provider   string           `json:"provider"`
	Region     string           `json:"region"`
	Kind       domain.OfferKind `json:"kind"`
	SKU        string           `json:"sku"`
	GPUModel   string           `json:"gpu_model"`
	GPUs       int              `json:"gpus_per_unit"`
	Units      int              `json:"units"`
	Term       domain.Interval  `json:"term"`
	NoticeBy   domain.Instant   `json:"notice_by,omitempty"`
	Hourly     domain.Money     `json:"hourly"` // per unit
	// Upfront is what all units cost when the term begins.
	Upfront    domain.Money `json:"upfront"`
	Guaranteed bool         `json:"guarantees_capacity"`
	// Spend names a spend commitment, and SpendPerHour is the amount that it commits.
	Spend        string             `json:"spend,omitempty"`
	SpendPerHour domain.NullDecimal `json:"spend_per_hour,omitzero"`
	// CountsFor is what it serves in the plan: the pool, as "region kind", or all that a spend
	// commitment pays for. NotCounted says why it serves none.
	CountsFor  string `json:"counts_for,omitempty"`
	NotCounted string `json:"not_counted,omitempty"`
}

// Plan is what to buy, its inputs and its proof. All amounts are net present values in Currency, as
// decimal strings.
type Plan struct {
	ID       string         `json:"plan"`
	Position string         `json:"position"`
	Methods  []string       `json:"methods"`
	At       domain.Instant `json:"at"`
	// Region is the single region that the plan is narrowed to; Only lists several. See
	// [Plan.Asked].
	Region      string          `json:"region,omitempty"`
	Only        []string        `json:"regions_asked,omitempty"`
	Horizon     domain.Interval `json:"horizon"`
	Assumptions Assumptions     `json:"assumptions"`
	Regions     []RegionPlan    `json:"regions"`
	Total       Amounts         `json:"total"`
	// Baselines are simple purchasing rules and their costs, for all pools. Rules ignore least
	// orders, so a baseline may buy fewer units than an offer sells.
	Baselines []Baseline            `json:"baselines"`
	Calendar  []instance.MonthMoney `json:"calendar"` // of all pools
	// EndOfHorizon is what would be bought under salvage 0 and 1, and at which cost.
	EndOfHorizon []Sensitivity `json:"end_of_horizon"`
	// Alternatives are plans without a supplier or one of its offers, the cheapest first, if they were
	// asked for: the second-best plan, and what it costs more.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Capped are plans with the purchases from one supplier, or of one offer, at most a share of the cost,
	// for those that exceed it in the plan, the cheapest first: the price of a cap on concentration.
	Capped []Alternative `json:"capped,omitempty"`
	// FewerOrders is a plan of fewer orders, if a price of placing one was stated.
	FewerOrders *Bundle `json:"fewer_orders,omitempty"`
	// Expiry lists existing commitments by the end of their terms.
	Expiry []Held `json:"expiry_ladder"`
	// Ignored are commitments that extend into the horizon and serve nothing in the plan. Their
	// cost is in no amount, and their savings in no decision.
	Ignored []Ignored `json:"ignored_commitments,omitempty"`
	// Notes are remarks on the plan as a whole.
	Notes []string `json:"notes,omitempty"`
	// Excluded names the pools that are not in the answer, and why.
	Excluded []ExcludedPool `json:"excluded"`
	// Components are the groups of pools that share something and are planned together.
	Components []Component `json:"components,omitempty"`
	// Certificate are the proofs of all groups of pools.
	Certificate []instance.Proof `json:"certificate"`
	// WithoutSolver means that pools are excluded because there was no solver of linear programs.
	WithoutSolver bool `json:"without_linear_solver,omitempty"`
}

// Asked returns the regions that a plan is narrowed to; empty means all.
func (p *Plan) Asked() []string {
	if p.Region != "" {
		return []string{p.Region}
	}
	return p.Only
}

// Ignored is an existing commitment that the plan does not use.
type Ignored struct {
	Commitment string           `json:"commitment"`
	Provider   string           `json:"provider"`
	Region     string           `json:"region,omitempty"`
	Kind       domain.OfferKind `json:"kind"`
	SKU        string           `json:"sku,omitempty"`
	Units      int              `json:"units"`
	Term       domain.Interval  `json:"term"`
	Reason     string           `json:"reason"`
}

// ExcludedPool is a pool that could not be planned.
type ExcludedPool struct {
	Region string `json:"region"`
	Kind   string `json:"kind"`
	Unit   string `json:"unit"`
	Reason string `json:"reason"`
	// Next is what the user can do about it.
	Next string `json:"next_step"`
}

// Empty reports whether the plan contains no pool; it then only says why, and what to do about it.
func (p *Plan) Empty() bool {
	return !slices.ContainsFunc(p.Regions, func(r RegionPlan) bool { return len(r.Pools) > 0 })
}

// Amounts compares costs. What is still owed on held commitments within the horizon is in Cost,
// Current and LowerBound, because they serve demand in each; OnDemand is a yardstick without them.
type Amounts struct {
	// Cost is the plan's cost: what is held, new purchases, spot, on-demand, and the penalty for
	// unserved demand. Held and Penalty are those parts of it; the rest is money that the plan
	// spends.
	Cost    domain.Decimal `json:"cost"`
	Held    domain.Decimal `json:"held_cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	// Current is the cost of buying nothing new, including its penalty.
	Current        domain.Decimal `json:"buy_nothing_cost"`
	CurrentPenalty domain.Decimal `json:"buy_nothing_penalty"`
	// OnDemand is the cost of every hour at the on-demand price where the demand is, as if no quota
	// refused any.
	OnDemand domain.Decimal `json:"on_demand_cost"`
	// LowerBound is proven: no purchases of the considered offers make Cost less. For a pool in a
	// component it is the pool's part, in proportion to cost, of the component's proven bound.
	LowerBound domain.Decimal `json:"lower_bound"`
	// Gap is (Cost − LowerBound) ÷ LowerBound to twelve digits, 0 when both are 0, and 1 when only the
	// bound is.
	Gap domain.Decimal `json:"gap"`
	// Nominal is the money paid within the horizon, undiscounted and without penalties: the sum of
	// the calendar's cash.
	Nominal domain.Decimal `json:"nominal_cost"`
	// Stranded is the nominal cost of committed unit-hours that would serve nothing at low demand.
	// Low demand repeats the least demanding observed week without growth; for a forecast it is the
	// scenario with the least demand in the pools that are planned together.
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
	// Costs are the costs by scenario, of which Cost is the mean; none for repeated demand.
	// Scenarios with equal numbers add up across pools: in each, all pools have the forecast errors
	// of the same past weeks. CVaR is the mean of the worst tenth.
	Costs []domain.Decimal `json:"scenario_costs,omitempty"`
	CVaR  *domain.Decimal  `json:"cvar_90,omitempty"`
	Range *CostRange       `json:"cost_range,omitempty"`
}

// RegionPlan is the plan of a region. The one without a name has what belongs to no region: spend
// commitments over pools.
type RegionPlan struct {
	Region string `json:"region"`
	Amounts
	Purchases []Purchase            `json:"purchases"`
	Pools     []PoolPlan            `json:"pools"`
	Packing   *PackingReport        `json:"packing,omitempty"`
	Calendar  []instance.MonthMoney `json:"calendar,omitempty"`
}

// Purchase is a number of units of an offer for a term.
type Purchase struct {
	Provider   string           `json:"provider"`
	Offer      string           `json:"offer"`
	Zone       string           `json:"zone,omitempty"`
	Kind       domain.OfferKind `json:"kind"`
	SKU        string           `json:"sku"`
	GPUModel   string           `json:"gpu_model"`
	Units      int              `json:"units"`
	GPUs       int              `json:"gpus"`
	Term       domain.Interval  `json:"term"`
	OrderBy    domain.Instant   `json:"order_by,omitempty"` // the lead time before the term begins
	Upfront    domain.Decimal   `json:"upfront"`            // of all units, nominal
	Hourly     domain.Decimal   `json:"hourly"`             // of all units, nominal
	Cost       domain.Decimal   `json:"cost"`               // of all units within the horizon, less salvage
	Guaranteed bool             `json:"guarantees_capacity"`
	// Covers are, for a spend commitment over pools, the pools whose use it pays for, as "region
	// kind", and SpendPerHour is the amount that it commits.
	Covers       []string           `json:"covers,omitempty"`
	SpendPerHour domain.NullDecimal `json:"spend_per_hour,omitzero"`
	Generated    bool               `json:"generated,omitempty"` // the offer is synthetic
	Citation     string             `json:"citation,omitempty"`
	// Worth is the value of one unit at the certificate's prices, and Reason says in words why it
	// is bought.
	Worth  domain.Decimal `json:"worth_per_unit"`
	Reason string         `json:"reason"`
	// Decision says when to decide a purchase that need not be ordered yet. What has none is ordered
	// now, or demand is not a forecast.
	Decision *Decision `json:"decision,omitempty"`
	// Wait is what of a purchase is not ordered yet, although it could be. Nil: nothing waits. The plan's
	// cost is that of ordering all.
	Wait *Wait `json:"wait,omitempty"`
	// Regret is what it is worth in each scenario; nil if demand is no forecast.
	Regret *Regret `json:"regret,omitempty"`
}

// PoolPlan is the plan of one pool.
type PoolPlan struct {
	Kind        string `json:"kind"`
	Unit        string `json:"unit"`
	SKU         string `json:"sku"` // whose on-demand price applies
	GPUsPerUnit int    `json:"gpus_per_unit"`
	// Notes say what a reader must know: for example that demand counts machines, that no quota or
	// commitment is known, or that one supplier's on-demand price was taken.
	Notes []string `json:"notes"`
	Amounts
	Demand    DemandSummary `json:"demand"`
	Purchases []Purchase    `json:"purchases"`
	// Served is the plan's unit-hours by what serves them.
	Served Served `json:"served_unit_hours"`
	// Targets are the prices up to which the considered offers are worth buying, bought or not.
	Targets        []Target        `json:"price_targets"`
	Binding        []Binding       `json:"binding"`
	ExcludedOffers []ExcludedOffer `json:"offers_excluded"`
	OnDemand       Price           `json:"on_demand"`
	Spot           *Price          `json:"spot,omitempty"`
	QuotaGPUs      *uint64         `json:"quota_gpus,omitempty"`
	// Refused is the number of unit-hours that the quota refuses if everything is served on demand.
	// Pools that share a quota have their parts of what it refuses.
	Refused  int64                 `json:"refused_unit_hours"`
	Solver   string                `json:"solver"`
	Calendar []instance.MonthMoney `json:"calendar"`
}

// Target is an hourly price of a unit up to which an offer may be worth buying: at a higher price an
// exact plan does not buy it. Hourly is the quoted price. From is when the term would begin.
type Target struct {
	Provider string         `json:"provider"`
	Offer    string         `json:"offer"`
	Zone     string         `json:"zone,omitempty"`
	Hourly   domain.Decimal `json:"hourly"`
	BuyAt    domain.Decimal `json:"buy_at_hourly"`
	From     domain.Instant `json:"term_from"`
	Units    int            `json:"units_bought"`
}

// Price is a nominal price of one unit for an hour.
type Price struct {
	Provider  string         `json:"provider"`
	Offer     string         `json:"offer"`
	Hourly    domain.Decimal `json:"hourly"`
	Generated bool           `json:"generated,omitempty"` // the offer is synthetic
	Citation  string         `json:"citation,omitempty"`
}

// DemandSummary describes the demand that a pool's plan serves, in units.
type DemandSummary struct {
	ObservedFrom domain.Instant `json:"observed_from"`
	ObservedTo   domain.Instant `json:"observed_to"`
	MissingHours int            `json:"missing_hours"` // of those observed, over all sources; taken from another week
	Sources      []string       `json:"sources"`
	Hours        int            `json:"hours"` // of the horizon
	UnitHours    int64          `json:"unit_hours"`
	Peak         int            `json:"peak_units"`
	// Curve is the number of machines by demand, found by packing the pool's workloads. It is
	// piecewise linear from the origin, and proportional beyond the last point.
	Curve []Filled `json:"packing_curve"`
	// Packing says how Curve was found, or why it is a plain division.
	Packing string `json:"packing_basis"`
	// SparePeak and SpareHours are the spare machines for failures contained in Peak and UnitHours.
	// Failures is the estimate behind them.
	SparePeak  int                   `json:"spare_units_at_peak,omitempty"`
	SpareHours int64                 `json:"spare_unit_hours,omitempty"`
	Failures   *reliability.Estimate `json:"failures,omitempty"`
	// Range is the range of a forecast. UnitHours and SpareHours are then means, and Peak is the
	// highest of any scenario.
	Range *DemandRange `json:"forecast,omitempty"`
}

// Served is unit-hours by what serves them.
type Served struct {
	Held         int64 `json:"committed"`
	Unused       int64 `json:"bought_unused"`
	Spot         int64 `json:"spot"`
	OnDemand     int64 `json:"on_demand"`
	Shortage     int64 `json:"shortage"`
	Guaranteed   int64 `json:"guaranteed"`
	DiscountOnly int64 `json:"discount_only"`
	// Elsewhere is the part of its demand that other pools serve. ForOthers is what it serves of
	// theirs, in their machines; the other fields include the machines that this takes.
	Elsewhere int64 `json:"served_elsewhere,omitempty"`
	ForOthers int64 `json:"served_for_others,omitempty"`
	// SpendCommitted is the part of OnDemand that spend commitments pay for.
	SpendCommitted int64 `json:"spend_committed,omitempty"`
}

// Binding is a binding bound of the plan.
type Binding struct {
	Constraint string           `json:"constraint"` // shortage, or as in an answer: quota, max_units
	Detail     string           `json:"detail"`
	Months     []domain.Instant `json:"months,omitempty"`
	// Price is the value of one more machine over the horizon; nil if unknown.
	Price *domain.Decimal `json:"shadow_price,omitempty"`
}

// ExcludedOffer counts offers that could not be considered.
type ExcludedOffer struct {
	Reason string `json:"reason"`
	Offers int    `json:"offers"`
	First  string `json:"first"`
}

// Sensitivity is the best plan under another salvage share. Kept is the cost of the plan's own
// purchases under it.
type Sensitivity struct {
	Salvage    domain.Decimal `json:"salvage"`
	Kept       domain.Decimal `json:"cost"`
	Cost       domain.Decimal `json:"best_cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	// Units and Orders are what would be bought.
	Units  int              `json:"units"`
	Orders []instance.Order `json:"purchases"`
}

// Baseline is a simple purchasing rule of package baseline. It serves the same demand as the plan,
// under the same quota and prices. Unserved demand is in Cost at the price of a shortage; Penalty
// is that part.
type Baseline struct {
	Name    string         `json:"baseline"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	Nominal domain.Decimal `json:"nominal_cost"`
	// Broken names the hard budgets that the rule exceeds, and "posture" if it does not keep that. Rules
	// ignore both, so it is not comparable then.
	Broken []string `json:"does_not_keep,omitempty"`
}
