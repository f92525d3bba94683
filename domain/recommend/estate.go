package recommend

import (
	"quartermaster/domain"
	"quartermaster/domain/advice"

	"github.com/shopspring/decimal"
)

// Estate is what recommendations are made from: figures and findings, and what is declared, at one position.
type Estate struct {
	Figures     *advice.Figures
	Findings    []advice.Finding
	Clusters    []Cluster         // by id
	Deployments []Deployment      // by cluster and deployment
	Parents     map[string]string // of workspaces
	Policies    []Policy          // valid ones of the house, by workspace and policy
	Paid        []Paid            // what a month costs each workspace, by workspace and currency
	RoundTrips  []RoundTrip
	Plan        *Plan // the last one; nil: none
}

// Cluster is where deployments may run.
type Cluster struct {
	ID, Workspace, Provider, Region, Country string
	Certifications                           []string         // valid ones of the cluster and its provider
	Free                                     map[string]int64 // GPUs without a holder, healthy, by GPU model
}

// Deployment is a declared deployment that holds GPUs.
type Deployment struct {
	Workspace, Cluster, Deployment, Model, Tier, Environment string
	Class                                                    domain.WorkloadClass
	Interruptible, Dedicated                                 bool
	Replicas                                                 int64
	GPUs                                                     int64          // whole GPUs of a replica
	GPUModel                                                 string         // that it holds
	Models                                                   []string       // that it allows; none: any
	Countries, Certifications                                []string       // that it asks for itself
	LatencyMicros                                            uint64         // budget of a round trip; 0: none
	Activity                                                 int64          // mean, per mille; -1: not known
	Checkpoint                                               domain.Instant // next one of a running job; 0: none is known
	Unneeded                                                 int64          // replicas that its load does not need; 0: none known
	Lacking                                                  int64          // replicas that its load needs besides
}

// Policy is a rule of the house, as it was declared.
type Policy struct {
	Workspace string
	domain.PolicySet
}

// Paid is the effective cost of a month of 730 hours.
type Paid struct {
	Workspace string
	Amount    domain.Money
}

// RoundTrip is between two regions, in either direction.
type RoundTrip struct {
	A, B     string
	Micros   uint64
	Measured bool // false: estimated with 5 ms for each time zone
}

// Plan is what the last plan would buy now.
type Plan struct {
	ID, Currency string
	Saves        decimal.NullDecimal // a month, against buying nothing
	Purchases    []domain.Purchase
	Cost         decimal.Decimal // that they commit
	Text         []string        // one line each
}
