package whatif

import (
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
)

// Format is the version of a result's document.
const Format = "quartermaster.simulation/1"

// Result is the answer to a scenario. Amounts are net present values at the start of the horizon in
// Currency, to cents.
type Result struct {
	Format   string          `json:"format"`
	ID       string          `json:"simulation"` // a digest of everything but the position
	Name     string          `json:"name"`
	Question string          `json:"question,omitempty"`
	Position string          `json:"position"`
	At       domain.Instant  `json:"at"`
	Methods  []string        `json:"methods"`
	Currency string          `json:"currency"`
	Horizon  domain.Interval `json:"horizon"`
	// AnnualRate is the discount rate. Salvage is the share of a purchase's cost beyond the horizon
	// that is credited. Both are nil in older documents that lack them.
	AnnualRate *domain.Decimal `json:"annual_rate,omitempty"`
	Salvage    *domain.Decimal `json:"salvage,omitempty"`
	Seed       uint64          `json:"seed"`
	Runs       int             `json:"runs"`
	// Scenario is the question, with the defaults of everything that a file may leave out.
	Scenario *Scenario `json:"scenario"`
	// Drivers are the uncertain numbers and their drawn values.
	Drivers      []Driver     `json:"drivers"`
	Alternatives []Outcome    `json:"alternatives"`
	Differences  []Difference `json:"differences"` // of each alternative from the first
	BreakEven    []BreakEven  `json:"break_even,omitempty"`
	Notes        []string     `json:"notes,omitempty"`
	trials       [][]outcome  // by alternative and trial
	in           []*instance.Instance
}

// Driver is an uncertain number.
type Driver struct {
	Name         string         `json:"driver"`
	Distribution string         `json:"distribution"`
	P5           domain.Decimal `json:"p5"`
	P50          domain.Decimal `json:"p50"`
	P95          domain.Decimal `json:"p95"`
	Mean         domain.Decimal `json:"mean"` // of the trials
	Alternatives []string       `json:"alternatives"`
}

// Outcome is the result of an alternative.
type Outcome struct {
	Alternative string         `json:"alternative"`
	Expected    domain.Decimal `json:"expected_cost"`
	// Interval is the 95 % confidence interval of the expectation, given the number of trials.
	Interval [2]domain.Decimal `json:"expected_cost_interval"`
	P5       domain.Decimal    `json:"p5_cost"`
	P50      domain.Decimal    `json:"p50_cost"`
	P95      domain.Decimal    `json:"p95_cost"`
	// CVaR is the mean of the worst tenth of the trials.
	CVaR    domain.Decimal `json:"cvar_90_cost"`
	Median  domain.Decimal `json:"median_world_cost"` // with every driver at its median
	Penalty domain.Decimal `json:"shortage_penalty"`  // expected, part of the cost
	// Committed is the expected cost of held and bought capacity.
	Committed domain.Decimal `json:"committed_cost"`
	// Stranded is the expected cost of committed unit-hours that serve nothing, and StrandedP95 its
	// 95th percentile over the trials.
	Stranded    domain.Decimal `json:"stranded_cost"`
	StrandedP95 domain.Decimal `json:"p95_stranded_cost"`
	// Demand and Unserved are expected unit-hours; UnservedShare and SpotShare are shares of
	// demand.
	Demand        domain.Decimal `json:"demand_unit_hours"`
	Unserved      domain.Decimal `json:"unserved_unit_hours"`
	UnservedShare domain.Decimal `json:"unserved_share"`
	SpotShare     domain.Decimal `json:"spot_share"`
	// Kept is, for each constraint, the share of the trials that keep it.
	Kept      []Kept     `json:"constraints,omitempty"`
	Purchases []Purchase `json:"purchases"`
	// Set is the weighted scenarios that the purchases are solved for. Solved is their cost over
	// the set, with the bound that proves it. Nothing is solved if nothing may be bought.
	Set        []SetEntry     `json:"scenario_set"`
	Solved     domain.Decimal `json:"solved_cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Solvers    []string       `json:"solvers,omitempty"`
	// EndOfHorizon shows how much of Solved depends on the credit for terms beyond the horizon.
	// With salvage 0 and 1 it holds the cost of the same purchases over the set, and that of the
	// best ones. It is empty if nothing sold extends beyond the horizon.
	EndOfHorizon []instance.Terminal `json:"end_of_horizon,omitempty"`
	// The gap is that of the solved problem only. TrialsAbove is Expected less Solved, the effect
	// of what that problem does not model; Unmodelled lists it.
	TrialsAbove      domain.Decimal `json:"trials_above_solved"`
	TrialsAboveShare domain.Decimal `json:"trials_above_solved_share"` // of Solved
	Unmodelled       []Unmodelled   `json:"unmodelled_drivers"`
	Tornado          []Swing        `json:"tornado"`
	Histogram        []Bin          `json:"cost_distribution"`
	Stacks           []Stack        `json:"load_duration,omitempty"`
	Trials           string         `json:"trials_sha256"`
	Notes            []string       `json:"notes,omitempty"`
}

// Kept is a constraint and how often it is kept.
type Kept struct {
	Constraint string         `json:"constraint"`
	Share      domain.Decimal `json:"share_of_trials"`
}

// Purchase is what an alternative buys.
type Purchase struct {
	Offer      string          `json:"offer,omitempty"`
	Commitment string          `json:"commitment,omitempty"`
	Pool       string          `json:"pool"`
	Units      int             `json:"units"`
	Term       domain.Interval `json:"term"`
	// Upfront and Hourly are nominal, of all units, at their mean over the trials if they are
	// uncertain. Cost is within the horizon, discounted and less salvage.
	Upfront    domain.Decimal `json:"upfront"`
	Hourly     domain.Decimal `json:"hourly"`
	Cost       domain.Decimal `json:"cost"`
	Guaranteed bool           `json:"guarantees_capacity"`
	Generated  bool           `json:"generated,omitempty"`
	Citation   string         `json:"citation,omitempty"`
}

// SetEntry is one of the scenarios that purchases are solved over.
type SetEntry struct {
	ID     string `json:"id"`
	Weight int    `json:"weight"` // trials that it represents
	// Demand is the unit-hours wanted in it.
	Demand domain.Decimal `json:"demand_unit_hours"`
}

// Unmodelled is something that the trials vary and the solved problem does not, and how the problem
// treats it.
type Unmodelled struct {
	Driver string `json:"driver"`
	Solved How    `json:"solved"`
}

// How is how a problem treats what trials vary.
type How string

// The treatments. There are also "at its p25" and "at its p5" of a quota, if those purchases cost
// less in the trials than the ones for its mean.
const (
	AtItsMean How = "at its mean"
	Excluded  How = "left out"
	NeverLate How = "never late" // beyond the median
	// InExpectation: the problem keeps budgets and limits in expectation; trials serve at least
	// cost.
	InExpectation How = "kept in expectation"
)

// Swing is the cost when one driver is low or high and the others are at their medians.
type Swing struct {
	Driver string `json:"driver"`
	// Given is a condition in addition to the medians, if the driver has no effect at the medians:
	// that its change happens, or that there is one outage.
	Given    string         `json:"given,omitempty"`
	Low      domain.Decimal `json:"p5"`
	High     domain.Decimal `json:"p95"`
	LowCost  domain.Decimal `json:"p5_cost"`
	HighCost domain.Decimal `json:"p95_cost"`
}

// Bin is a part of the trials by cost: From ≤ cost < To; the last includes its end.
type Bin struct {
	From   domain.Decimal `json:"from"`
	To     domain.Decimal `json:"to"`
	Trials int            `json:"trials"`
}

// Difference compares an alternative with the first, trial by trial.
type Difference struct {
	Alternative string            `json:"alternative"`
	From        string            `json:"from"`
	Mean        domain.Decimal    `json:"mean"`
	Interval    [2]domain.Decimal `json:"mean_interval"` // 95 %
	P5          domain.Decimal    `json:"p5"`
	P50         domain.Decimal    `json:"p50"`
	P95         domain.Decimal    `json:"p95"`
	Cheaper     domain.Decimal    `json:"cheaper_share_of_trials"`
}

// BreakEven is the utilization from which an offer costs less than on-demand: over its whole term
// from the first day on which it can begin, discounted to that day, at the median of uncertain
// numbers. Beyond the horizon on-demand has the price of its last epoch.
type BreakEven struct {
	Pool         string           `json:"pool"`
	Offer        string           `json:"offer"`
	Kind         domain.OfferKind `json:"kind"`
	Term         int              `json:"term_epochs"`
	Hourly       domain.Decimal   `json:"hourly"`                 // its total cost, by the hour of its term
	OnDemand     domain.Decimal   `json:"on_demand_hourly"`       // in the same hours
	Utilization  domain.Decimal   `json:"break_even_utilization"` // above 1: never
	Alternatives []string         `json:"alternatives"`           // that may take it
	Generated    bool             `json:"generated,omitempty"`
	Citation     string           `json:"citation,omitempty"`
}

// units is a number of units or unit-hours in millionths, to thousandths.
func units(millionths int64) domain.Decimal { return decimal.New(millionths, -6).Round(3) }

// name sets a result's id to a digest of everything in it but the position, so that the same
// question with the same answer is one simulation.
func (r *Result) name() error {
	position := r.Position
	r.ID, r.Position = "", ""
	id, err := plan.IDOf("sim", r)
	r.ID, r.Position = id, position
	return err
}

// TrialRow is the result of a trial, for a table.
type TrialRow struct {
	Trial    int            `json:"trial"`
	Cost     domain.Decimal `json:"cost"`
	Penalty  domain.Decimal `json:"shortage_penalty"`
	Stranded domain.Decimal `json:"stranded_cost"`
	Unserved domain.Decimal `json:"unserved_unit_hours"`
	Spot     domain.Decimal `json:"spot_unit_hours"`
}

// TrialsOf returns the trials of an alternative, by index. A result read back from its document has
// none.
func (r *Result) TrialsOf(alternative int) []TrialRow {
	if alternative >= len(r.trials) {
		return nil
	}
	out := make([]TrialRow, len(r.trials[alternative]))
	for i, o := range r.trials[alternative] {
		out[i] = TrialRow{i, money(o.cost), money(o.penalty), money(o.stranded), units(o.unserved), units(o.spot)}
	}
	return out
}

// InstanceOf returns the problem that an alternative's purchases solve, by index. It is nil if
// nothing was solved, or for a result that was read back.
func (r *Result) InstanceOf(alternative int) *instance.Instance {
	if alternative >= len(r.in) {
		return nil
	}
	return r.in[alternative]
}
