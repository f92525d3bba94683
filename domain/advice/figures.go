package advice

import (
	"quartermaster/domain"

	"github.com/shopspring/decimal"
)

// Figures are what the rules judge: sums at one position of the log, for one tick. Slices are in the order that their
// comments say, and have one entry for each key. GPU time is in milliseconds of a whole GPU.
type Figures struct {
	At       domain.Instant // the tick
	Position string
	Nodes    []Node    // in service, by cluster and node
	Clusters []Cluster // by id
	Prices   []Price   // by cluster and GPU model

	Use           []Use          // by window, cluster and GPU model; windows of a day and of 7 days that end at a whole hour
	Devices       []Devices      // of the day, by cluster and GPU model
	ProviderCosts []ProviderTime // of the last billed month, by GPU model, class and provider
	FirstTokens   []Served       // of the day, by model and cluster
	Servers       []Served       // of the last whole quarter of an hour, by model and cluster
	Deployments   []Sighting     // shadow and unseen ones, by workspace, cluster and deployment
	Held          []Held         // over the last 7 days, by cluster, workspace, deployment and GPU model
	Holdings      []Fit          // that fit a smaller slice or GPU, by cluster, workspace and deployment
	Owning        []Owning       // by region and GPU model
	Commitments   []Commitment   // by id
	Limits        []Limit        // quotas and budgets, by rule, workspace and name
	Failed        []Failed       // nodes, GPU models, clusters and providers by region
	Spot          []Spot         // by provider, region and GPU model
	Courses       []Course       // of cost by day, by workspace, component and region
	Weeks         []Week         // of use by hour of the week, by cluster and GPU model
	Gaps          []Gap          // by kind and subject
}

// Node is a machine in service.
type Node struct {
	Cluster, Node string
	Fabric        string // "" if it states none
	GPUs          int
}

// Cluster describes a cluster.
type Cluster struct {
	ID, Workspace, Provider, ProviderClass, Region string
}

// Price is what a GPU-hour costs in the effective ledger: the cost of the last billed month ÷ the GPU-hours that it bought. Of
// several currencies it is the one with the most cost.
type Price struct {
	Cluster, GPUModel string
	PerGPUHour        domain.Money // rounded to 18 decimals
	Month             domain.Interval
}

// Use is GPU time by state, as usage.GPUTime has it.
type Use struct {
	Window            domain.Interval
	Cluster, GPUModel string
	// Service less Down (failed, in maintenance, not provisioned) is what could be used. Of it, Measured had a known
	// activity, and Idle had no holder. Active is Measured times its activity in per mille.
	Service, Down, Idle, Measured, Active int64
}

// Devices counts the GPUs of a cluster by their activity over a day. Known ones were known for half of the day.
type Devices struct {
	Window            domain.Interval
	Cluster, GPUModel string
	All, Known        int // in service; with a measured activity, or idle
	Low               int // of Known: activity below 40%
	// LowMs is the service time of Low.
	LowMs int64
}

// ProviderTime is what useful GPU time cost at a provider.
type ProviderTime struct {
	Month                     domain.Interval
	Provider, GPUModel, Class string
	Cost                      domain.Money // effective
	Useful                    int64
	Coverage                  int64 // of telemetry, per mille
}

// Served is the work of a model's servers in a cluster.
type Served struct {
	Window                                 domain.Interval
	Workspace, Cluster, Model, Tier, Class string
	Requests                               uint64
	FirstTokenP50, FirstTokenP95, WaitP95  uint64 // microseconds; 0: not measured
	KVCache                                int64  // mean per mille in use; -1: not measured
	Deployments                            []string
}

// Sighting is a deployment that runs and is not declared, or is declared and is not seen.
type Sighting struct {
	Window                                domain.Interval // that was looked at
	Workspace, Cluster, Model, Deployment string
	Shadow                                bool
	Units                                 int // pods or jobs that held GPUs
	GPUModel                              string
	GPUMs                                 int64          // held within Window, by a shadow
	Since                                 domain.Instant // of a declaration: since when; 0: unknown
	LastSeen                              domain.Instant // 0: not within Window
	// Known is false where nothing of the cluster was observed in Window, so that nobody can say.
	Known bool
}

// Held is the GPU time that a deployment held.
type Held struct {
	Window                                   domain.Interval
	Workspace, Cluster, Deployment, GPUModel string
	GPUMs                                    int64
	Activity                                 int64 // mean, per mille; -1: not measured
}

// Fit is a deployment on GPUs of which it needs a part.
type Fit struct {
	Window                                   domain.Interval
	Workspace, Cluster, Deployment, GPUModel string
	To                                       string // MIG profile or smaller GPU model
	PeakMiB                                  uint64
	Activity                                 int64 // mean, per mille
	GPUMs, SavedMs                           int64 // held; of it not needed
	Coverage                                 int64 // per mille
}

// Owning compares the cheapest way to rent a GPU with owning one, as plans price both.
type Owning struct {
	Window           domain.Interval
	Region, GPUModel string
	Used             int64 // per mille of the time of the most rented GPUs that were up in an hour of Window
	BreakEven        int64 // per mille of the time from which owning costs less, rounded up
	Rented           int64 // GPU time that was rented and used
	RentPerHour      domain.Money
	OwnPerHour       domain.Money // of its whole term, used or not
	RentOffer        string
	OwnOffer         string
	Coverage         int64
}

// Commitment is a commitment that is held.
type Commitment struct {
	Workspace, Commitment string
	Window                domain.Interval // the last billed month, of at least 7 days, until At; empty: not billed
	Used, Unused          domain.Money    // effective cost in Window
	Ends                  domain.Instant  // of the last term, 0 for none
	NoticeBy              domain.Instant  // 0: none
	Monthly               domain.Money    // what it costs a month
}

// Limit is a quota or a budget.
type Limit struct {
	Rule      RuleID // Quota or Budget
	Workspace string
	Name      string
	Region    string
	GPUModel  string
	Hard      bool
	Window    domain.Interval
	Used      decimal.Decimal
	Limit     decimal.Decimal
	Unit      string              // resource or currency
	Forecast  decimal.NullDecimal // of Used at the end of the period, upper end of its interval
}

// Failed is what interrupted a part of the fleet.
type Failed struct {
	Window          domain.Interval
	Subject         Subject // a node, or a provider with region, cluster or GPU model
	GPUHours        decimal.Decimal
	Interruptions   int64
	Of              []Subject // nodes that were interrupted, where the subject is not one
	PriorShape      int64     // of the posterior before Window, at least 1: interruptions that the rate was counted from
	PriorPerGPUHour decimal.Decimal
	// Level groups subjects that are tested together: node, gpu_model, cluster, provider.
	Level string
}

// Spot is how often a supplier took spot capacity back.
type Spot struct {
	Window                     domain.Interval
	Provider, Region, GPUModel string
	UnitHours                  decimal.Decimal // machines × hours on spot
	Interrupted                int64
	AssumedPerHour             decimal.Decimal // by the plan for that time: the share of time lost, if each takes an hour
	Plan                       string
}

// Course is a cost by day, oldest first; the last day is judged. Days without an entry cost 0.
type Course struct {
	Workspace, Component, Region string // Region "": the sum over all regions
	Currency                     string
	Days                         []decimal.Decimal
	Last                         domain.Interval // the last day
}

// Week is GPU time by hour of the week over whole weeks, oldest first.
type Week struct {
	Window            domain.Interval // whole weeks that end at a whole hour
	Cluster, GPUModel string
	Service, Unused   []int64 // by hour of Window: in service and not down; without a holder, observed
}

// Gap is something that is not known.
type Gap struct {
	Kind     string // as fleet, log stats and quarantine name it
	Subject  Subject
	Detail   string
	Count    int64
	Window   domain.Interval
	Question Question
}
