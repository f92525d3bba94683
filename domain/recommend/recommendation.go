package recommend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"quartermaster/domain"
	"quartermaster/domain/advice"

	"github.com/shopspring/decimal"
)

// Recommendation proposes something to a workspace.
type Recommendation struct {
	ID        string         `json:"recommendation"`
	Kind      string         `json:"kind"` // of [domain.RecommendationKinds]
	Workspace string         `json:"workspace"`
	Subject   advice.Subject `json:"subject"`
	// Clusters are those that it touches, sorted. WhyMore says why it touches more than one.
	Clusters []string `json:"clusters"`
	WhyMore  string   `json:"why_more,omitempty"`
	From     string   `json:"from"` // what is
	To       string   `json:"to"`   // what is proposed
	Summary  string   `json:"summary"`
	Steps    []string `json:"steps"` // what to do, in order
	// Saving is what a month (730 hours) of it saves in the effective ledger, with a 90% interval. Null: it saves no money that
	// a bill prices, or it is done for another reason.
	Saving *domain.Money `json:"saving"`
	Low    *domain.Money `json:"saving_low"`
	High   *domain.Money `json:"saving_high"`
	// Cost is what doing it commits; zero for most.
	Cost     domain.Money        `json:"cost"`
	Risk     string              `json:"risk"`
	Coverage decimal.NullDecimal `json:"coverage"`
	Expires  domain.Instant      `json:"expires"`
	Findings []string            `json:"findings"`
	Rules    []advice.RuleID     `json:"rules,omitempty"` // of the findings; set when it is proposed
	// Simulation is the digest of the fork that priced it: the position, what was changed, and the figures before and after.
	Simulation string            `json:"simulation"`
	Plan       string            `json:"plan,omitempty"` // that it cites
	Purchases  []domain.Purchase `json:"purchases,omitempty"`
	Checked    []Checked         `json:"checked"` // policies of the house, and whether it keeps them
	Question   advice.Question   `json:"question"`

	Moves  []Move  `json:"moves,omitempty"` // of replicas
	Claims []Claim `json:"claims"`
}

// Move puts replicas of a deployment elsewhere, or on another GPU.
type Move struct {
	Workspace   string `json:"workspace"`
	Deployment  string `json:"deployment"`
	FromCluster string `json:"from_cluster"`
	ToCluster   string `json:"to_cluster"`
	Replicas    int64  `json:"replicas"`
	ToModel     string `json:"to_gpu_model"`
	ToSlice     string `json:"to_slice,omitempty"` // MIG profile; it then shares its GPU
}

// Claim is a part of the estate that a recommendation is about. Two recommendations that claim the same part exclude each
// other.
type Claim struct {
	Part string `json:"part"` // such as "cluster=c deployment=d", "commitment=x"
}

// Checked is a policy of the house.
type Checked struct {
	Policy string `json:"policy"` // workspace/policy, or the limit's name
	Kind   string `json:"kind"`
	Kept   bool   `json:"kept"`
	Why    string `json:"why,omitempty"` // it is not
}

// Refused is a recommendation that is not made.
type Refused struct {
	Recommendation
	Because string `json:"because"` // the policy that it breaks, or the recommendation that excludes it
}

// Advice are the recommendations at a position.
type Advice struct {
	Position string           `json:"position"`
	At       domain.Instant   `json:"at"`
	Method   string           `json:"method"`
	Made     []Recommendation `json:"recommendations"` // the most money first
	Refused  []Refused        `json:"refused"`
	Sums     []Sum            `json:"sums"` // by workspace and currency
}

// Sum is what a workspace pays a month, and what the recommendations save of it.
type Sum struct {
	Workspace string          `json:"workspace"`
	Currency  string          `json:"currency"`
	Paid      decimal.Decimal `json:"paid"`
	Saved     decimal.Decimal `json:"saved"`
}

// identify sets the id: a digest of what is proposed to whom. Figures that move from day to day are not part of it.
func (r *Recommendation) identify() {
	h := sha256.New()
	for _, s := range []string{Method, r.Kind, r.Workspace, r.Subject.String(), r.From, r.To} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	for _, c := range r.Clusters {
		h.Write([]byte(c))
		h.Write([]byte{0})
	}
	r.ID = "r-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// Document returns a recommendation as canonical JSON.
func (r *Recommendation) Document() ([]byte, error) { return domain.CanonicalJSON(r) }

// Parse reads what [Recommendation.Document] wrote.
func Parse(document []byte) (r Recommendation, err error) {
	err = json.Unmarshal(document, &r)
	return r, err
}

// Made returns the event that proposes a recommendation. requester is who proposes it.
func (r *Recommendation) Made(position, requester string, supersedes, incidents []string) (*domain.RecommendationMade, error) {
	document, err := r.Document()
	if err != nil {
		return nil, err
	}
	made := &domain.RecommendationMade{
		Recommendation: r.ID, Kind: r.Kind, Plan: r.Plan, Summary: r.Summary, Purchases: r.Purchases, Cost: r.Cost, Requester: requester,
		Clusters: r.Clusters, WhyMore: r.WhyMore, From: r.From, To: r.To, Coverage: r.Coverage, Expires: r.Expires, Supersedes: supersedes,
		Incidents: incidents, Findings: r.Findings, Simulation: r.Simulation, Position: position, Method: Method, Document: document,
	}
	if r.Saving != nil {
		made.Saving, made.SavingLow, made.SavingHigh = *r.Saving, *r.Low, *r.High
	}
	return made, nil
}
