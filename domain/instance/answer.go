package instance

import (
	"encoding/json"
	"math/big"
	"strings"

	"quartermaster/domain"
)

// AnswerFormat is the version of an answer's document.
const AnswerFormat = "quartermaster.answer/1"

// Answer says what to buy, what it costs and what proves it. Amounts are net present values in the
// instance's currency unless a field says otherwise.
type Answer struct {
	Format   string   `json:"format"`
	Instance string   `json:"instance"` // SHA-256 of the instance's canonical JSON
	Methods  []string `json:"methods"`
	Currency string   `json:"currency"`

	Purchases []Purchase `json:"purchases"`
	// Cost is expected over the scenarios: the sum of Committed, Bought, Serving and Penalty.
	Cost        domain.Decimal `json:"cost"`
	Committed   domain.Decimal `json:"committed_cost"`
	Bought      domain.Decimal `json:"purchase_cost"`
	Serving     domain.Decimal `json:"serving_cost"` // on-demand, spot, transfer
	Penalty     domain.Decimal `json:"shortage_penalty"`
	LowerBound  domain.Decimal `json:"lower_bound"`
	Interrupted bool           `json:"interrupted,omitempty"` // the search was stopped ([SolveUntil])
	Gap         domain.Decimal `json:"gap"`                   // (cost − lower_bound) ÷ lower_bound, twelve digits
	// Nominal is the money paid within the horizon, undiscounted and without penalties: the sum of
	// Calendar's cash.
	Nominal domain.Decimal `json:"nominal_cost"`

	Recourse  []Recourse     `json:"recourse"` // by epoch and scenario
	Calendar  []MonthMoney   `json:"calendar"`
	Scenarios []ScenarioCost `json:"scenarios"`
	// CVaR is the mean of Cost over the worst tenth of the scenarios (Rockafellar and Uryasev,
	// 2000).
	CVaR domain.Decimal `json:"cvar_90"`
	// Stranded is the cost of committed unit-hours that are unused in the scenario with the least
	// demand.
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
	Binding  []Binding      `json:"binding"`
	// EndOfHorizon shows how much of Cost depends on the salvage value of terms that end beyond the
	// horizon, by evaluating it with salvage 0 and 1.
	EndOfHorizon []Terminal `json:"end_of_horizon"`
	// Baselines are simple purchasing rules to compare with; empty if they were not computed.
	Baselines []Baseline `json:"baselines,omitempty"`
	// Alternatives buy nothing from a supplier or of an offer that is bought from, and Capped at most a
	// share of Cost; empty if they were not computed ([Alternatives]). Both are in the order of costs.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	Capped       []Alternative `json:"capped,omitempty"`
	// Unsolved names the alternatives that could not be solved, and why.
	Unsolved []string `json:"alternatives_not_solved,omitempty"`
	Proof    []Proof  `json:"certificate"` // by component
	Notes    []string `json:"notes,omitempty"`
	// Parts are the answer's amounts by pool, the last of what belongs to no pool. The document
	// leaves them out.
	Parts []Part `json:"-"`

	stated int // notes on the instance, before those on the answer
	// What it was computed with.
	model  *model
	solved *solution
}

// Caveats are the notes on the answer itself, after those on its instance.
func (a *Answer) Caveats() []string { return a.Notes[a.stated:] }

// Terminal is the cost of the same purchases under another salvage share. Where the instance was
// solved again under that share, it also holds the best purchases.
type Terminal struct {
	Salvage domain.Decimal `json:"salvage"`
	Cost    domain.Decimal `json:"cost"`
	// Best, LowerBound and Purchases describe the answer under this salvage share. They are left
	// out if it was not solved again.
	Best       *domain.Decimal `json:"best_cost,omitempty"`
	LowerBound *domain.Decimal `json:"lower_bound,omitempty"`
	Purchases  []Order         `json:"purchases,omitempty"`
}

// Order is one purchase decision: an offer or a renewing commitment, the epoch in which it begins,
// and the number of units.
type Order struct {
	Offer      string `json:"offer,omitempty"`
	Commitment string `json:"commitment,omitempty"`
	// Renewals is the number of further terms for which a commitment is renewed.
	Renewals int `json:"renewals,omitempty"`
	Epoch    int `json:"epoch"`
	Units    int `json:"units"` // of the offer; for a renewal, the units of the commitment
}

// Forget frees what an answer keeps for [EndOfHorizon] and [Compare], which would compute it again,
// and for [Answer.Targets].
func (a *Answer) Forget() { a.model, a.solved = nil, nil }

// Orders are the answer's purchases as they are ordered.
func (a *Answer) Orders() []Order {
	out := make([]Order, len(a.Purchases))
	for i := range a.Purchases {
		out[i] = a.Purchases[i].Order
	}
	return out
}

// Purchase is an order with its dates, price and reason.
type Purchase struct {
	Order
	Pool    string          `json:"pool,omitempty"`
	Term    domain.Interval `json:"term"`
	OrderBy domain.Instant  `json:"order_by"` // for a renewal, the notice day
	Covers  int             `json:"covers_units"`
	Tier    int             `json:"tier,omitempty"` // least order size of the tier whose price is paid
	Cost    domain.Decimal  `json:"cost"`           // within the horizon, after salvage
	Upfront domain.Decimal  `json:"upfront"`        // nominal, of all units
	Hourly  domain.Decimal  `json:"hourly"`         // nominal, of all units
	// Worth is the value of a unit at the certificate's prices. Reason says in words why it is
	// bought.
	Worth  domain.Decimal `json:"worth_per_unit"`
	Reason string         `json:"reason"`
}

// Recourse says how demand is served in one epoch of one scenario, in unit-hours of demand.
type Recourse struct {
	Epoch    int         `json:"epoch"`
	Scenario string      `json:"scenario"`
	Pools    []PoolHours `json:"pools"`
}

// PoolHours divides a pool's unit-hours by the supply that serves them.
type PoolHours struct {
	Pool   string `json:"pool"`
	Demand string `json:"demand"` // unit-hours, decimal: substitutes have fractions
	// Spare is the demand for failure spares, in addition to Demand. StandingBy is the part of the
	// serving capacity, of all kinds in proportion, that stands by as spares. Both are left out if
	// zero.
	Spare           string `json:"spare,omitempty"`
	StandingBy      string `json:"standing_by,omitempty"`
	Guaranteed      string `json:"guaranteed"`
	DiscountOnly    string `json:"discount_only"`
	Spot            string `json:"spot"`
	OnDemand        string `json:"on_demand"`
	OverflowIn      string `json:"overflow_in,omitempty"`
	OverflowOut     string `json:"overflow_out,omitempty"`
	Shortage        string `json:"shortage"`
	UnusedCommitted string `json:"unused_committed"`
	// SpendCommitted is the part of OnDemand that a spend commitment pays for.
	SpendCommitted string `json:"spend_committed,omitempty"`
}

// MonthMoney is the expected nominal money of a month: when it is paid (cash) and what it is for
// (accrual).
type MonthMoney struct {
	Month   string         `json:"month"` // 2006-01
	Cash    domain.Decimal `json:"cash"`
	Accrual domain.Decimal `json:"accrual"` // the P&L
}

// ScenarioCost is the cost of the purchases in one scenario.
type ScenarioCost struct {
	Scenario string         `json:"scenario"`
	Weight   int            `json:"weight"`
	Cost     domain.Decimal `json:"cost"`
	Unserved string         `json:"unserved_unit_hours"`
}

// Binding is a binding constraint and the value of loosening it by one unit.
type Binding struct {
	Constraint string         `json:"constraint"`
	Detail     string         `json:"detail"`
	Price      domain.Decimal `json:"shadow_price"`
	Epochs     []int          `json:"epochs,omitempty"`
}

// Proof is a component's certificate, as encoded by the package that solved it.
type Proof struct {
	Pools  []string `json:"pools"`
	Solver string   `json:"solver"`
	// Cost and Bound are integers in units of 10⁻ᵈⁱᵍⁱᵗˢ of the currency, multiplied by Weight, the
	// sum of the scenarios' weights. Neither includes the cost of existing commitments.
	Cost     *big.Int        `json:"cost_units"`
	Bound    *big.Int        `json:"bound_units"`
	Digits   int32           `json:"digits"`
	Weight   int             `json:"weight"`
	Document json.RawMessage `json:"solution"`
}

// Infeasible is the error of an instance that no purchases satisfy. Constraints is a minimal
// conflicting set: they conflict by themselves, and no longer do if any one of them is dropped.
//
//nolint:errname // callers match it by this name; it is not the error of a type
type Infeasible struct {
	Constraints []Constraint `json:"clash"`
	// Undecided means that for some constraints it could not be determined whether the others
	// conflict without them.
	Undecided bool `json:"undecided,omitempty"`
}

// Constraint is a constraint of an instance: where it is stated and what it demands.
type Constraint struct {
	Path   string `json:"path"` // in the document, as JSON Pointer
	Detail string `json:"detail"`
}

func (e *Infeasible) Error() string {
	var b strings.Builder
	b.WriteString("nothing that can be bought meets these constraints together")
	for i, c := range e.Constraints {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(c.Path + ": " + c.Detail)
	}
	return b.String()
}
