package registry

import (
	"encoding/json"

	"quartermaster/domain"
)

// Order is what a recommendation asks of a cluster: the document of its command. People get the same as an order sheet.
type Order struct {
	Recommendation string            `json:"recommendation"`
	Workspace      string            `json:"workspace"`
	Kind           string            `json:"kind"`
	Cluster        string            `json:"cluster,omitempty"`
	Summary        string            `json:"summary"`
	From           string            `json:"from,omitempty"`
	To             string            `json:"to,omitempty"`
	Steps          []string          `json:"steps"` // in order
	Subject        json.RawMessage   `json:"subject,omitempty"`
	Plan           string            `json:"plan,omitempty"`
	Purchases      []domain.Purchase `json:"purchases,omitempty"`
	Cost           domain.Money      `json:"cost"` // that it commits
}

// OrderOf returns what a recommendation of a workspace asks of a cluster, "": of people. It is a function of what was
// approved, so that a command can be compared with it.
func OrderOf(made *domain.RecommendationMade, workspace, cluster string) Order {
	o := Order{
		Recommendation: made.Recommendation, Workspace: workspace, Kind: made.Kind, Cluster: cluster, Summary: made.Summary,
		From: made.From, To: made.To, Plan: made.Plan, Purchases: made.Purchases, Cost: made.Cost, Steps: []string{},
	}
	var with struct {
		Steps   []string        `json:"steps"`
		Subject json.RawMessage `json:"subject"`
	}
	if json.Unmarshal(made.Document, &with) == nil {
		o.Subject, o.Steps = with.Subject, append(o.Steps, with.Steps...)
	}
	return o
}
