package whatif

import (
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
)

// Format is the version of a result's document.
const Format = "quartermaster.simulation/1"

// Result is the answer to a scenario. Amounts are net present values at the start
// of the horizon in Currency, to cents.
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
	// AnnualRate discounts, and Salvage is the share that is credited of what a
	// purchase costs beyond the horizon; nil: a document from before they were said.
	AnnualRate *domain.Decimal `json:"annual_rate,omitempty"`
	Salvage    *domain.Decimal `json:"salvage,omitempty"`
	Seed       uint64          `json:"seed"`
	Runs       int             `json:"runs"`
	// Scenario is what was asked, with everything that a file may leave out.
	Scenario *Scenario `json:"scenario"`
	// Drivers are the uncertain numbers, and what was drawn of them.
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

// Outcome is what an alternative comes to.
type Outcome struct {
	Alternative string         `json:"alternative"`
	Expected    domain.Decimal `json:"expected_cost"`
	// Interval holds the expectation with 95 % confidence, given how many trials
	// there are.
	Interval [2]domain.Decimal `json:"expected_cost_interval"`
	P5       domain.Decimal    `json:"p5_cost"`
	P50      domain.Decimal    `json:"p50_cost"`
	P95      domain.Decimal    `json:"p95_cost"`
	// CVaR is the mean of the worst tenth of the trials.
	CVaR    domain.Decimal `json:"cvar_90_cost"`
	Median  domain.Decimal `json:"median_world_cost"` // with every driver at its median
	Penalty domain.Decimal `json:"shortage_penalty"`  // expected, in the cost
	// Committed is what held and bought capacity costs, expected.
	Committed domain.Decimal `json:"committed_cost"`
	// Stranded is the cost of committed unit-hours that serve nothing, expected,
	// and in the trial at its 95th percentile.
	Stranded    domain.Decimal `json:"stranded_cost"`
	StrandedP95 domain.Decimal `json:"p95_stranded_cost"`
	// Demand and Unserved are unit-hours, expected; UnservedShare and SpotShare are
	// of demand.
	Demand        domain.Decimal `json:"demand_unit_hours"`
	Unserved      domain.Decimal `json:"unserved_unit_hours"`
	UnservedShare domain.Decimal `json:"unserved_share"`
	SpotShare     domain.Decimal `json:"spot_share"`
	// Kept says of each constraint in which share of the trials it is kept.
	Kept      []Kept     `json:"constraints,omitempty"`
	Purchases []Purchase `json:"purchases"`
	// Set are the weighted scenarios that the purchases are for, and Solved what
	// they cost over it, with the bound that proves it. Nothing was solved where
	// nothing is to be bought.
	Set        []SetEntry     `json:"scenario_set"`
	Solved     domain.Decimal `json:"solved_cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Solvers    []string       `json:"solvers,omitempty"`
	// EndOfHorizon is how much of Solved rests on what is credited of terms beyond the
	// horizon: with nothing and with all of it, what the same purchases cost over the
	// set, and what the best ones then do. None where nothing sold outlives it.
	EndOfHorizon []instance.Terminal `json:"end_of_horizon,omitempty"`
	// The gap is of the solved problem alone. TrialsAbove is Expected less Solved, which
	// is what that problem does not see, and Unmodelled names it.
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
	// Upfront and Hourly are nominal, of all units, at their mean over the trials where
	// they are uncertain; Cost is within the horizon, discounted and after salvage.
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
	Weight int    `json:"weight"` // trials that it stands for
	// Demand is how many unit-hours are wanted in it.
	Demand domain.Decimal `json:"demand_unit_hours"`
}

// Unmodelled is something that the trials have otherwise than the problem for which
// purchases are solved, and how that one has it.
type Unmodelled struct {
	Driver string `json:"driver"`
	Solved How    `json:"solved"`
}

// How a problem has what trials vary.
type How string

// The ways in which it does, and "at its p25" and "at its p5" of a quota, where those
// purchases cost less in the trials than the ones for its mean.
const (
	AtItsMean How = "at its mean"
	Excluded  How = "left out"
	NeverLate How = "never late" // beyond the median
	// InExpectation is how it keeps budgets and limits; trials serve as is cheapest.
	InExpectation How = "kept in expectation"
)

// Swing is what the cost is when one driver is low or high and the others are at
// their medians.
type Swing struct {
	Driver string `json:"driver"`
	// Given is what holds beside the medians, where at those the driver is about
	// nothing: that it happens, that there is one outage.
	Given    string         `json:"given,omitempty"`
	Low      domain.Decimal `json:"p5"`
	High     domain.Decimal `json:"p95"`
	LowCost  domain.Decimal `json:"p5_cost"`
	HighCost domain.Decimal `json:"p95_cost"`
}

// Bin is a part of the trials by cost: From ≤ cost < To, the last with its end.
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

// BreakEven says from which utilization on an offer costs less than on-demand: over
// its whole term from the first day on which it can begin, discounted to that day,
// at the median of what is uncertain. Beyond the horizon on-demand costs what it
// costs in its last epoch.
type BreakEven struct {
	Pool         string           `json:"pool"`
	Offer        string           `json:"offer"`
	Kind         domain.OfferKind `json:"kind"`
	Term         int              `json:"term_epochs"`
	Hourly       domain.Decimal   `json:"hourly"`                 // all that it costs, by the hour of its term
	OnDemand     domain.Decimal   `json:"on_demand_hourly"`       // in the same hours
	Utilization  domain.Decimal   `json:"break_even_utilization"` // above 1: never
	Alternatives []string         `json:"alternatives"`           // that may take it
	Generated    bool             `json:"generated,omitempty"`
	Citation     string           `json:"citation,omitempty"`
}

// units is a number of units or unit-hours in millionths, to thousandths.
func units(millionths int64) domain.Decimal { return decimal.New(millionths, -6).Round(3) }

// name gives a result its id: a digest of everything in it but the position, so
// that the same question with the same answer is one simulation.
func (r *Result) name() error {
	position := r.Position
	r.ID, r.Position = "", ""
	id, err := plan.IDOf("sim", r)
	r.ID, r.Position = id, position
	return err
}

// TrialRow is what a trial comes to, for a table of them.
type TrialRow struct {
	Trial    int            `json:"trial"`
	Cost     domain.Decimal `json:"cost"`
	Penalty  domain.Decimal `json:"shortage_penalty"`
	Stranded domain.Decimal `json:"stranded_cost"`
	Unserved domain.Decimal `json:"unserved_unit_hours"`
	Spot     domain.Decimal `json:"spot_unit_hours"`
}

// TrialsOf returns the trials of an alternative, by index. A result that was read
// back from its document has none.
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

// InstanceOf returns the problem that an alternative's purchases answer, by index;
// nil where nothing was solved, or for a result that was read back.
func (r *Result) InstanceOf(alternative int) *instance.Instance {
	if alternative >= len(r.in) {
		return nil
	}
	return r.in[alternative]
}
