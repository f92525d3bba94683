package instance

import (
	"encoding/json"
	"math/big"
	"strings"

	"quartermaster/domain"
)

// AnswerFormat is the version of an answer's document.
const AnswerFormat = "quartermaster.answer/1"

// Answer is what to buy, what it comes to, and what proves it. Amounts are net
// present values in the instance's currency unless they say otherwise.
type Answer struct {
	Format   string   `json:"format"`
	Instance string   `json:"instance"` // SHA-256 of the instance's canonical JSON
	Methods  []string `json:"methods"`
	Currency string   `json:"currency"`

	Purchases []Purchase `json:"purchases"`
	// Cost is expected: Committed, Bought, Serving and Penalty are its parts.
	Cost       domain.Decimal `json:"cost"`
	Committed  domain.Decimal `json:"committed_cost"`
	Bought     domain.Decimal `json:"purchase_cost"`
	Serving    domain.Decimal `json:"serving_cost"` // on-demand, spot, transfer
	Penalty    domain.Decimal `json:"shortage_penalty"`
	LowerBound domain.Decimal `json:"lower_bound"`
	// Unproven names pools without a proven bound: LowerBound counts what they cost as
	// nothing. Work may wait there, and runs as Waiting says, of two ways the one that
	// costs less; a third may cost still less.
	Unproven    []string       `json:"no_proven_bound,omitempty"`
	Waiting     Waiting        `json:"waiting,omitempty"`     // "" where a bound is proven
	Interrupted bool           `json:"interrupted,omitempty"` // the search was stopped ([SolveUntil])
	Gap         domain.Decimal `json:"gap"`                   // (cost − lower_bound) ÷ lower_bound, twelve digits
	// Nominal is the money that is paid within the horizon, without discount and
	// without penalty: the sum of Calendar's cash.
	Nominal domain.Decimal `json:"nominal_cost"`

	Recourse  []Recourse     `json:"recourse"` // by epoch and scenario
	Calendar  []MonthMoney   `json:"calendar"`
	Scenarios []ScenarioCost `json:"scenarios"`
	// Expected and CVaR are of Cost over the scenarios; CVaR is the mean of the
	// worst tenth (Rockafellar and Uryasev, 2000).
	CVaR domain.Decimal `json:"cvar_90"`
	// Stranded is the cost of committed unit-hours that serve nothing in the
	// scenario of least demand.
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
	Binding  []Binding      `json:"binding"`
	// EndOfHorizon is how much of Cost rests on what terms beyond the horizon are
	// taken to be worth: nothing, and all that they cost.
	EndOfHorizon []Terminal `json:"end_of_horizon"`
	// Baselines is what is done without a plan; none: it was not compared.
	Baselines []Baseline `json:"baselines,omitempty"`
	Proof     []Proof    `json:"certificate"` // by component
	Notes     []string   `json:"notes,omitempty"`
}

// Waiting is how work runs that may wait.
type Waiting string

// The ways. Levelled work runs in the hour of its window in which its pool serves least.
const (
	AsItComes Waiting = "as_it_comes"
	Levelled  Waiting = "levelled"
)

// Terminal is what the same purchases come to under another salvage, and, where
// it was solved again, what the best ones would.
type Terminal struct {
	Salvage domain.Decimal `json:"salvage"`
	Cost    domain.Decimal `json:"cost"`
	// Best and LowerBound are of the answer under this salvage, and Purchases those
	// of it; without them it was not solved again.
	Best       *domain.Decimal `json:"best_cost,omitempty"`
	LowerBound *domain.Decimal `json:"lower_bound,omitempty"`
	Purchases  []Order         `json:"purchases,omitempty"`
}

// Order is as much of a purchase as somebody has to decide: of an offer, or of a
// commitment that renews, from which epoch on, and how many units.
type Order struct {
	Offer      string `json:"offer,omitempty"`
	Commitment string `json:"commitment,omitempty"`
	// Renewals is how many times a commitment goes on for another term.
	Renewals int `json:"renewals,omitempty"`
	Epoch    int `json:"epoch"`
	Units    int `json:"units"` // of the offer; of a renewal those of the commitment
}

// Purchase is some units of an offer from a day on, or a commitment that goes on.
type Purchase struct {
	Order
	Pool    string          `json:"pool,omitempty"`
	Term    domain.Interval `json:"term"`
	OrderBy domain.Instant  `json:"order_by"` // of a renewal: the day of notice
	Covers  int             `json:"covers_units"`
	Tier    int             `json:"tier,omitempty"` // least order of the tier whose price is paid
	Cost    domain.Decimal  `json:"cost"`           // within the horizon, after salvage
	Upfront domain.Decimal  `json:"upfront"`        // nominal, of all units
	Hourly  domain.Decimal  `json:"hourly"`         // nominal, of all units
	// Worth is what a unit is worth at the certificate's prices, and Reason says in
	// words why it is bought.
	Worth  domain.Decimal `json:"worth_per_unit"`
	Reason string         `json:"reason"`
}

// Recourse is how an epoch is served in one scenario, in unit-hours of demand.
type Recourse struct {
	Epoch    int         `json:"epoch"`
	Scenario string      `json:"scenario"`
	Pools    []PoolHours `json:"pools"`
}

// PoolHours is unit-hours by what serves them.
type PoolHours struct {
	Pool   string `json:"pool"`
	Demand string `json:"demand"` // unit-hours, decimal: substitutes have fractions
	// Spare is what is wanted beside Demand to stand by for failures, and StandingBy
	// the part of what serves in the pool (all kinds alike) that does so. They are left
	// out where there are none.
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
	// SpendCommitted is the part of OnDemand that a commitment to spend pays for.
	SpendCommitted string `json:"spend_committed,omitempty"`
}

// MonthMoney is money in a month: when it is paid and what it is for, nominal
// and expected.
type MonthMoney struct {
	Month   string         `json:"month"` // 2006-01
	Cash    domain.Decimal `json:"cash"`
	Accrual domain.Decimal `json:"accrual"` // the P&L
}

// ScenarioCost is what the purchases cost in one scenario.
type ScenarioCost struct {
	Scenario string         `json:"scenario"`
	Weight   int            `json:"weight"`
	Cost     domain.Decimal `json:"cost"`
	Unserved string         `json:"unserved_unit_hours"`
}

// Binding is a constraint that holds the answer back, and what loosening it by a
// unit is worth.
type Binding struct {
	Constraint string         `json:"constraint"`
	Detail     string         `json:"detail"`
	Price      domain.Decimal `json:"shadow_price"`
	Epochs     []int          `json:"epochs,omitempty"`
}

// Proof is a component's certificate, as the package that solved it encodes it.
type Proof struct {
	Pools  []string `json:"pools"`
	Solver string   `json:"solver"`
	// Cost and Bound are integers of 10⁻ᵈⁱᵍⁱᵗˢ of the currency, times Weight, the sum
	// of the scenarios' weights. What is held is in neither.
	Cost     *big.Int        `json:"cost_units"`
	Bound    *big.Int        `json:"bound_units"`
	Digits   int32           `json:"digits"`
	Weight   int             `json:"weight"`
	Document json.RawMessage `json:"solution"`
}

// Infeasible is the error of an instance that no purchases answer. Constraints
// clash, whatever else the instance asks, and without any of them the others do not.
//
//nolint:errname // it is what callers tell by name, and no Error of anything
type Infeasible struct {
	Constraints []Constraint `json:"clash"`
	// Undecided: of some it could not be found out whether the others clash without
	// them.
	Undecided bool `json:"undecided,omitempty"`
}

// Constraint is a constraint of an instance: where it is stated, and what it asks.
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
