// Package plan composes what to buy: it takes what was observed and offered,
// turns demand into machines, prices into present values, asks procurement for
// the cheapest purchases of each pool, and lets the checker decide whether the
// answer may be shown.
//
// A pool is machines of one shape in one region, whoever sells them. Demand of
// the future is the demand of the last weeks, repeated week by week and grown
// at a rate that the planner names: an assumption, stated in the answer, and no
// forecast. Or it is scenarios of a forecast, equally likely: then purchases are
// made before it is known which comes true, what is minimised is the expectation,
// and amounts and unit-hours are means over scenarios. Amounts are net present values at the start of the horizon; a
// purchase that outlives the horizon is credited with a stated share of what it
// is still worth.
//
// What always holds:
//
//   - Equal questions give equal plans, byte for byte, and so equal ids.
//   - A pool's plan passed a checker that shares no code with the solver; one
//     that does not is an error, not a plan.
//   - Lower bound ≤ cost. Whatever is bought costs at least the lower bound.
//   - A pool that cannot be planned is named with the reason, and the others are
//     planned without it.
//   - What is held, bought or owned, serves one pool at most.
package plan

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/domain/procurement"
	"quartermaster/domain/reliability"
)

// Method is the version of this package's method. A plan names it.
const Method = "plan/7"

// Assumptions are what a plan takes as given without having observed it.
type Assumptions struct {
	// Months is the length of the horizon.
	Months int `json:"months"`
	// Weeks of observed demand before the horizon are repeated over it.
	Weeks int `json:"lookback_weeks"`
	// MonthlyGrowth multiplies demand by 1 + it for every month since it was observed.
	MonthlyGrowth domain.Decimal `json:"monthly_growth"`
	// AnnualRate discounts payments: upfront ones from their day, hourly ones
	// from the middle of their month.
	AnnualRate domain.Decimal `json:"annual_rate"`
	// Salvage is the share of the cost of the months beyond the horizon that a
	// purchase reaching beyond it is taken to be worth, 0 to 1.
	Salvage domain.Decimal `json:"salvage"`
	// SpotOverhead is the share of spot time lost to interruptions: restarts and
	// lost work. Serving one hour takes 1/(1 − overhead) hours of spot.
	SpotOverhead domain.Decimal `json:"spot_overhead"`
	// ShortageFactor says how many times the on-demand price an hour unserved costs.
	ShortageFactor domain.Decimal `json:"shortage_factor"`
	// ServiceLevel is the probability with which all demand can be served at any time
	// although machines fail, below 1; 0: there are no spare machines for failures.
	ServiceLevel domain.Decimal `json:"service_level,omitzero"`
	// Currency of all amounts, ISO 4217. Offers in others are left out.
	Currency string `json:"currency"`
	// Demand is [Forecast], or "" for demand that repeats. A forecast does not look
	// at Weeks, and MonthlyGrowth is how its level goes on beyond 13 weeks.
	Demand string `json:"demand,omitempty"`
	// Scenarios is how many ways demand may go in a forecast, and Seed what they are
	// drawn with; 0 for demand that repeats.
	Scenarios int    `json:"scenarios,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
}

// Question is everything that a plan is computed from.
type Question struct {
	At          domain.Instant // offers and quotas are those in force then; the horizon begins with the next month
	Position    string
	Only        []string // regions that the question is narrowed to, in order; none: all
	Folds       string   // method version of the rows
	Assumptions Assumptions
	Pools       []Pool
	// Held is what is bought already, each term of a commitment by itself, and the
	// machines that are owned (Kind owned, a term without end).
	Held []Held
	// Expiry is what runs out of commitments, each with the units that no later
	// term goes on with. A plan passes it on.
	Expiry []Held
	// Packings are the fleets of regions and what should run on them.
	Packings []Packing
	// Regions say how far it is from one to another, where demand may be served
	// elsewhere.
	Regions []Region
	// FX says how much of the plan's currency one unit of another is worth. An
	// instance of the question is in one currency; a plan leaves out what is priced
	// in others.
	FX map[string]domain.Decimal
	// Draws returns a source of draws for a number; equal numbers give equal ones,
	// and Assumptions.Seed decides which. For demand that is forecast.
	Draws func(stream uint64) func() uint64 `json:"-"`
}

// Packing is the fleet of a region and what should run on it.
type Packing struct {
	Region    string
	Nodes     []packing.Node
	Workloads []packing.Workload
}

// Pool is demand for machines of one shape in one region.
type Pool struct {
	Region string
	// Kind is the GPU model where demand is counted in GPUs (Unit "gpu"), and the
	// instance type where it is counted in machines (Unit "vm").
	Kind, Unit string
	// Series are the demands that add up to the pool's.
	Series []Series
	Offers []domain.OfferQuoted // of the region, for the kind
	// Quotas bound on-demand use; providers that are not in it have no known bound.
	Quotas []Quota
	// SpotShare is the share of demand that may run on spot, 0 to 1.
	SpotShare domain.Decimal
	// NodeGPUs is how many GPUs a machine of the fleet has there, 0 when there is none.
	NodeGPUs int
	// Mix is what runs in the pool, to learn how many machines its GPUs need; none:
	// GPUs fill machines.
	Mix []packing.Workload
	// Failures is how often its GPUs are interrupted, for a service level; nil: not
	// asked for.
	Failures *reliability.Estimate
	// Observed is its demand as a forecast learns from it; nil: not asked for.
	Observed *Observed
	// LatencyMicros is the least round trip that deployments declared for it allow, 0
	// where one of them names none: then its demand is served at home.
	LatencyMicros uint64
	// Note is what must be known of the demand.
	Note string
}

// inGPUs reports whether demand is counted in GPUs, and not in machines.
func (p *Pool) inGPUs() bool { return p.Unit == "gpu" }

// Series is hourly demand, running and pending.
type Series struct {
	Source string
	From   domain.Instant // start of a UTC hour
	// Milli is in thousandths of a unit per hour; −1 where nothing was observed.
	Milli []int64
}

// To is the end of the last hour.
func (s *Series) To() domain.Instant { return s.From + domain.Instant(len(s.Milli))*domain.Hour }

// Quota bounds on-demand use of a provider.
type Quota struct {
	Provider string
	GPUs     uint64
	// Shared: a quota for all models together is in it, which other pools use too.
	Shared bool
	// Together: it is that of all models together, and nothing else bounds the pool.
	// Pools of which that holds share the number.
	Together bool
}

// Held is a term of a commitment that is bought already, or machines that are
// owned. A Term.To of 0 is no end.
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
	// CountsFor is the pool that it serves in the plan, as "region kind", and
	// NotCounted why it serves none.
	CountsFor  string `json:"counts_for,omitempty"`
	NotCounted string `json:"not_counted,omitempty"`
}

// Plan is what to buy, with what it rests on and what proves it. All amounts
// are net present values in Currency, as decimal strings.
type Plan struct {
	ID       string         `json:"plan"`
	Position string         `json:"position"`
	Methods  []string       `json:"methods"`
	At       domain.Instant `json:"at"`
	// Region is the region that it is narrowed to, and Only are those where there are
	// several; see [Plan.Asked].
	Region      string          `json:"region,omitempty"`
	Only        []string        `json:"regions_asked,omitempty"`
	Horizon     domain.Interval `json:"horizon"`
	Assumptions Assumptions     `json:"assumptions"`
	Regions     []RegionPlan    `json:"regions"`
	Total       Amounts         `json:"total"`
	Baselines   []Baseline      `json:"baselines"` // of all pools
	Calendar    []MonthMoney    `json:"calendar"`  // of all pools
	// Expiry is what is bought already, by the end of its term.
	Expiry []Held `json:"expiry_ladder"`
	// Ignored are commitments of which some of the horizon is left that serve nothing in
	// the plan: what they cost is in no amount, and what they save in no decision.
	Ignored []Ignored `json:"ignored_commitments,omitempty"`
	// Excluded names the pools that are not in the answer, and why.
	Excluded []ExcludedPool `json:"excluded"`
	// Components are the pools that share something, by what they share, with the
	// proof of their plan. Pools that share nothing prove theirs alone.
	Components []Component `json:"components,omitempty"`
}

// Asked returns the regions that a plan is narrowed to, none where it is of all.
func (p *Plan) Asked() []string {
	if p.Region != "" {
		return []string{p.Region}
	}
	return p.Only
}

// Ignored is a commitment that is held and not planned with.
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
	// Next is what whoever asked can do about it.
	Next string `json:"next_step"`
}

// Empty reports whether the plan plans no pool: then it says only why not, and what
// to do about it.
func (p *Plan) Empty() bool {
	return !slices.ContainsFunc(p.Regions, func(r RegionPlan) bool { return len(r.Pools) > 0 })
}

// Amounts compares baselines. What is still owed on held commitments within the
// horizon is in Cost, in Current and in LowerBound, because they serve demand in
// each; OnDemand is a yardstick without them.
type Amounts struct {
	// Cost is the plan's: what is held, new purchases, spot, on-demand, and the
	// penalty for what stays unserved. Held and Penalty are those parts of it; the
	// rest is money that the plan spends.
	Cost    domain.Decimal `json:"cost"`
	Held    domain.Decimal `json:"held_cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	// Current is to buy nothing new, with the penalty that is in it.
	Current        domain.Decimal `json:"buy_nothing_cost"`
	CurrentPenalty domain.Decimal `json:"buy_nothing_penalty"`
	// OnDemand is every hour at the on-demand price, as if no quota refused any.
	OnDemand domain.Decimal `json:"on_demand_cost"`
	// LowerBound is proven: no purchases of the offers considered make Cost less.
	// A pool's certificate proves it but for Held. Of a pool in a component it is its
	// part, by cost, of what the component's certificate proves of all of them.
	LowerBound domain.Decimal `json:"lower_bound"`
	// Gap is (Cost − LowerBound) ÷ LowerBound to twelve digits, 0 when both are 0.
	Gap domain.Decimal `json:"gap"`
	// Nominal is the money that is paid within the horizon, without discount and
	// without penalty: the sum of the calendar's cash.
	Nominal domain.Decimal `json:"nominal_cost"`
	// Stranded is what committed unit-hours cost, nominal, that would serve nothing
	// if demand were low: as in the week of least demand of those repeated, every
	// week, and not growing; of a forecast, as in each pool's scenario of least demand.
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
	// Costs are what Cost is the mean of, by scenario, none where demand repeats. Those
	// of equal number add up: in each, all pools err as they did in the same weeks of the
	// past. CVaR is the mean of the worst tenth.
	Costs []domain.Decimal `json:"scenario_costs,omitempty"`
	CVaR  *domain.Decimal  `json:"cvar_90,omitempty"`
	Range *CostRange       `json:"cost_range,omitempty"`
}

// RegionPlan is the plan of a region.
type RegionPlan struct {
	Region string `json:"region"`
	Amounts
	Purchases []Purchase     `json:"purchases"`
	Pools     []PoolPlan     `json:"pools"`
	Packing   *PackingReport `json:"packing,omitempty"`
	Baselines []Baseline     `json:"baselines,omitempty"`
	Calendar  []MonthMoney   `json:"calendar,omitempty"`
}

// Purchase is some units of an offer for a term.
type Purchase struct {
	Provider   string           `json:"provider"`
	Offer      string           `json:"offer"`
	Kind       domain.OfferKind `json:"kind"`
	SKU        string           `json:"sku"`
	GPUModel   string           `json:"gpu_model"`
	Units      int              `json:"units"`
	GPUs       int              `json:"gpus"`
	Term       domain.Interval  `json:"term"`
	OrderBy    domain.Instant   `json:"order_by,omitempty"` // the lead time before the term begins
	Upfront    domain.Decimal   `json:"upfront"`            // of all units, nominal
	Hourly     domain.Decimal   `json:"hourly"`             // of all units, nominal
	Cost       domain.Decimal   `json:"cost"`               // of all units within the horizon, after salvage
	Guaranteed bool             `json:"guarantees_capacity"`
	Generated  bool             `json:"generated,omitempty"` // the offer is made up
	Citation   string           `json:"citation,omitempty"`
	// Worth is what one unit is worth at the certificate's prices, and Reason says
	// in words why it is bought; neither in a sensitivity.
	Worth  *domain.Decimal `json:"worth_per_unit,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// PoolPlan is the plan of one pool.
type PoolPlan struct {
	Kind        string `json:"kind"`
	Unit        string `json:"unit"`
	SKU         string `json:"sku"` // whose on-demand price applies
	GPUsPerUnit int    `json:"gpus_per_unit"`
	// Notes say what must be known to read the plan of the pool: that demand is of
	// machines, that no quota or no commitment is known, that one supplier's
	// on-demand price was taken.
	Notes []string `json:"notes"`
	Amounts
	Demand    DemandSummary `json:"demand"`
	Purchases []Purchase    `json:"purchases"`
	// Served is the unit-hours of the plan by what serves them.
	Served         Served          `json:"served_unit_hours"`
	Binding        []Binding       `json:"binding"`
	ExcludedOffers []ExcludedOffer `json:"offers_excluded"`
	OnDemand       Price           `json:"on_demand"`
	Spot           *Price          `json:"spot,omitempty"`
	QuotaGPUs      *uint64         `json:"quota_gpus,omitempty"`
	// Refused is how many unit-hours the quota refuses where all is served on demand. Of
	// pools that are planned together it is of them all, under the quota
	// that they share: what all on demand leaves unserved of the demand of this one.
	Refused int64  `json:"refused_unit_hours"`
	Solver  string `json:"solver"`
	// Certificate's prices are, with scenarios, times their number.
	Certificate procurement.Certificate `json:"certificate"`
	// Sensitivity is what would be bought if purchases beyond the horizon were
	// worth nothing, and everything.
	// Of a pool in a component it is with that.
	Sensitivity []Sensitivity `json:"sensitivity"`
	// Baselines are what is done without a plan, and what it comes to.
	Baselines []Baseline   `json:"baselines"`
	Calendar  []MonthMoney `json:"calendar"`
}

// Price is a price of one unit for an hour, nominal.
type Price struct {
	Provider  string         `json:"provider"`
	Offer     string         `json:"offer"`
	Hourly    domain.Decimal `json:"hourly"`
	Generated bool           `json:"generated,omitempty"` // the offer is made up
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
	// Curve says how many machines hold how much demand, by packing what runs there:
	// in proportion between its points, from nothing, and beyond the last.
	Curve []Filled `json:"packing_curve"`
	// Packing says how Curve was found, or why by division alone.
	Packing string `json:"packing_basis"`
	// SparePeak and SpareHours are the machines for failures that are in Peak and
	// UnitHours, and Failures is what they were computed from.
	SparePeak  int                   `json:"spare_units_at_peak,omitempty"`
	SpareHours int64                 `json:"spare_unit_hours,omitempty"`
	Failures   *reliability.Estimate `json:"failures,omitempty"`
	// Range is what a forecast ranges over. UnitHours and SpareHours are then means,
	// and Peak is the highest of any scenario.
	Range *DemandRange `json:"forecast,omitempty"`
}

// Served is unit-hours by how they are served.
type Served struct {
	Held         int64 `json:"committed"`
	Unused       int64 `json:"bought_unused"`
	Spot         int64 `json:"spot"`
	OnDemand     int64 `json:"on_demand"`
	Shortage     int64 `json:"shortage"`
	Guaranteed   int64 `json:"guaranteed"`
	DiscountOnly int64 `json:"discount_only"`
	// Elsewhere is how much of its demand other pools serve, and ForOthers how much
	// it serves of theirs, which is in the rest.
	Elsewhere int64 `json:"served_elsewhere,omitempty"`
	ForOthers int64 `json:"served_for_others,omitempty"`
}

// Binding is a bound that the plan runs into.
type Binding struct {
	Constraint string           `json:"constraint"` // on_demand_quota, spot_share, max_units, min_units, lead_time, shortage
	Detail     string           `json:"detail"`
	Months     []domain.Instant `json:"months,omitempty"`
	// Price is what one machine more of it is worth over the horizon; nil: not
	// known.
	Price *domain.Decimal `json:"shadow_price,omitempty"`
}

// ExcludedOffer counts offers that could not be considered.
type ExcludedOffer struct {
	Reason string `json:"reason"`
	Offers int    `json:"offers"`
	First  string `json:"first"`
}

// Sensitivity is the purchases under another salvage, and what they make of Cost.
type Sensitivity struct {
	Salvage   domain.Decimal `json:"salvage"`
	Cost      domain.Decimal `json:"cost"`
	Purchases []Purchase     `json:"purchases"`
}
