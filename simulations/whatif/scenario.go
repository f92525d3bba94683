package whatif

import (
	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
)

// APIVersion and FileKind begin a scenario file.
const (
	APIVersion = "quartermaster/v1"
	FileKind   = "Scenario"
)

// Scenario is a question: what changes, what can be done, and how it is judged.
type Scenario struct {
	Name     string `json:"name"`
	Question string `json:"question,omitempty"`
	Base     Base   `json:"base"`
	// Months is the horizon, from the first of the month at or after Base.At.
	Months int `json:"horizon_months"`
	// Seed determines the random numbers, Runs is the number of trials, and Set the number of
	// weighted scenarios that they are reduced to.
	Seed uint64 `json:"seed"`
	Runs int    `json:"runs"`
	Set  int    `json:"scenario_set"`
	// Assumptions are the planner's. Its growth applies before the changes do.
	Assumptions  plan.Assumptions `json:"assumptions"`
	Changes      []Change         `json:"changes"`
	Alternatives []Alternative    `json:"alternatives"`
	Constraints  Constraints      `json:"constraints"`
	Report       []string         `json:"report"`
}

// Base is what the scenario starts from.
type Base struct {
	// Position in the log, "" for its end.
	Position string `json:"position,omitempty"`
	// At is the time at which offers, quotas and decisions are in force; zero means now.
	At     domain.Instant `json:"at,omitempty"`
	Region string         `json:"region,omitempty"` // narrows it to one
	// Instance is a file with an instance, instead of the log.
	Instance string `json:"instance,omitempty"`
}

// Alternative is a course of action. It has the scenario's changes and its own.
type Alternative struct {
	Name    string   `json:"name"`
	Changes []Change `json:"changes,omitempty"`
	// Buy is "best", or "nothing" beyond what is held.
	Buy string `json:"buy"`
	// Without excludes kinds of offers; Only excludes all others.
	Without []string `json:"without,omitempty"`
	Only    []string `json:"only,omitempty"`
	// PaymentOptions are the allowed payment options, see [PaymentOption]; empty means all.
	PaymentOptions []string `json:"payment_options,omitempty"`
	// SpotShare is the share of demand that policy allows on spot; nil means that of the log.
	SpotShare *domain.Decimal     `json:"spot_share,omitempty"`
	Posture   *instance.Posture   `json:"posture,omitempty"`
	Overflow  []instance.Overflow `json:"overflow,omitempty"`
}

// What an alternative buys.
const (
	BuyBest    = "best"
	BuyNothing = "nothing"
)

// When an offer is paid.
const (
	NoUpfront      = "no_upfront"
	PartialUpfront = "partial_upfront"
	AllUpfront     = "all_upfront"
)

// PaymentOption says when an offer is paid, over all its tiers. Owned hardware counts as paid
// upfront, whatever its running cost.
func PaymentOption(o *instance.Offer) string {
	upfront, hourly := !o.Upfront.IsZero(), !o.Hourly.IsZero()
	for _, t := range o.Tiers {
		upfront, hourly = upfront || !t.Upfront.IsZero(), hourly || !t.Hourly.IsZero()
	}
	switch {
	case o.Kind == domain.OfferOwned:
		return AllUpfront
	case !upfront:
		return NoUpfront
	case hourly:
		return PartialUpfront
	}
	return AllUpfront
}

// Constraints bind the purchases of every alternative, in expectation over the weighted scenarios:
// a scenario with more demand may exceed them. MaxUnserved and MaxSpotShare are also judged trial
// by trial; budgets are not.
type Constraints struct {
	MaxUnserved  *domain.Decimal   `json:"max_unserved_share,omitempty"`
	MaxSpotShare *domain.Decimal   `json:"max_spot_share,omitempty"`
	Budgets      []instance.Budget `json:"budgets,omitempty"`
}

// Kind is a kind of change.
type Kind string

// The kinds of changes.
const (
	DemandGrowth     Kind = "demand_growth"
	ModelLaunch      Kind = "model_launch"
	DeploymentChange Kind = "deployment_change"
	EfficiencyChange Kind = "efficiency_change"
	ProviderOutage   Kind = "provider_outage"
	Maintenance      Kind = "maintenance"
	PriceChange      Kind = "price_change"
	NewOffer         Kind = "new_offer"
	PurchaseMade     Kind = "purchase"
	Renewal          Kind = "renewal"
	FailureRate      Kind = "failure_rate"
	SpotInterruption Kind = "spot_interruption"
	LeadTime         Kind = "lead_time"
	QuotaChange      Kind = "quota_change"
	FXChange         Kind = "fx_change"
)

// Change is one hypothetical change. [Fields] lists the fields of a kind; empty selectors match
// everything.
type Change struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // of its random numbers; the same name draws the same

	// Where.
	Region    string `json:"region,omitempty"`
	Provider  string `json:"provider,omitempty"`
	Model     string `json:"model,omitempty"` // GPU model, or instance type where demand counts machines
	Offer     string `json:"offer,omitempty"`
	OfferKind string `json:"offer_kind,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Account   string `json:"account,omitempty"`

	// What.
	Deployment string   `json:"deployment,omitempty"`
	Commitment string   `json:"commitment,omitempty"`
	SKU        string   `json:"sku,omitempty"`
	GPUs       int      `json:"gpus,omitempty"` // of a replica, or of a unit that is sold
	Class      string   `json:"class,omitempty"`
	Term       int      `json:"term_months,omitempty"`
	Currency   string   `json:"currency,omitempty"`
	Base       string   `json:"base,omitempty"`  // of an exchange rate
	Quote      string   `json:"quote,omitempty"` // of an exchange rate
	MinUnits   int      `json:"min_units,omitempty"`
	MaxUnits   int      `json:"max_units,omitempty"`
	Guaranteed bool     `json:"guarantees_capacity,omitempty"`
	Removed    bool     `json:"removed,omitempty"`
	End        bool     `json:"end,omitempty"` // of a renewal: it is not renewed
	Citation   string   `json:"citation,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`

	// When.
	When  domain.Instant `json:"when,omitempty"`
	Until domain.Instant `json:"until,omitempty"`

	// How much.
	Monthly      *Number `json:"monthly,omitempty"`       // monthly growth, 0.02 is two percent
	Factor       *Number `json:"factor,omitempty"`        // times what it was
	Replicas     *Number `json:"replicas,omitempty"`      //
	Units        *Number `json:"units,omitempty"`         //
	Hourly       *Number `json:"hourly,omitempty"`        // price of a unit
	Upfront      *Number `json:"upfront,omitempty"`       // price of a unit
	Rate         *Number `json:"rate,omitempty"`          // exchange rate
	Hours        *Number `json:"hours,omitempty"`         // lead time
	Duration     *Number `json:"duration,omitempty"`      // hours
	PerYear      *Number `json:"per_year,omitempty"`      // outages
	PerGPUHour   *Number `json:"per_gpu_hour,omitempty"`  // failures
	PerUnitHour  *Number `json:"per_unit_hour,omitempty"` // interruptions
	RepairHours  *Number `json:"repair_hours,omitempty"`
	LostHours    *Number `json:"lost_hours,omitempty"` // of each interruption: restart and lost work
	Available    *Number `json:"available,omitempty"`  // available spot units
	LimitGPUs    *Number `json:"limit_gpus,omitempty"`
	Probability  *Number `json:"probability,omitempty"` // that it happens at all
	LeadHours    *Number `json:"lead_time_hours,omitempty"`
	PowerKW      *Number `json:"power_kw,omitempty"`
	PUE          *Number `json:"pue,omitempty"`
	TariffKWh    *Number `json:"tariff_kwh,omitempty"`
	SpaceMonth   *Number `json:"space_monthly,omitempty"`
	NetworkMonth *Number `json:"network_monthly,omitempty"`
	SupportMonth *Number `json:"support_monthly,omitempty"`
	Salvage      *Number `json:"salvage,omitempty"`
}

// Reports lists what a scenario may request.
func Reports() []string {
	return []string{"cost_distribution", "load_duration", "break_even", "tornado", "trials", "purchases"}
}
