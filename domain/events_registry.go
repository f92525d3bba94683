package domain

import (
	"slices"
	"time"
)

// Events of qm.workspaces, keyed by workspace: tenants, operators and the rules that they set.

// WorkspaceRegistered declares a tenant or changes its description.
type WorkspaceRegistered struct {
	Name     string `json:"name"`
	Parent   string `json:"parent,omitempty"`   // workspace that this one reports to
	Currency string `json:"currency,omitempty"` // ISO 4217, for reports to it
	// Owner answers for the costs of the workspace, CostCentre is what they are booked to, and Entity is the company
	// that bears them. Each counts from the event's time on, until the next event about the workspace.
	Owner      string `json:"owner,omitempty"`
	CostCentre string `json:"cost_centre,omitempty"`
	Entity     string `json:"entity,omitempty"`
}

// Role says what an operator may decide.
type Role string

// The roles. An admin registers operators; the others decide in their field. A viewer decides nothing.
const (
	RoleAdmin    Role = "admin"
	RoleFinance  Role = "finance"
	RolePlanner  Role = "planner"
	RoleAuditor  Role = "auditor"
	RoleOperator Role = "operator"
	RoleViewer   Role = "viewer"
)

// OperatorRegistered gives a person or program the right to decide in a workspace.
type OperatorRegistered struct {
	Operator  string `json:"operator"`
	PublicKey []byte `json:"public_key"` // Ed25519, 32 bytes
	Role      Role   `json:"role"`
	// AuthorityLimits are the largest commitment in each currency, one entry per currency. An
	// operator may commit no money in other currencies.
	AuthorityLimits []Money `json:"authority_limits,omitempty"`
}

// OperatorRevoked ends a key's right to decide, from the event's time.
type OperatorRevoked struct {
	Operator  string `json:"operator"`
	PublicKey []byte `json:"public_key"`
	Reason    string `json:"reason,omitempty"`
}

// PolicyKind says which question a policy answers.
type PolicyKind string

// The policies. Placement policies bind the planner, accounting policies bind attribution, and
// retention binds every removal.
const (
	PolicyResidency          PolicyKind = "residency"           // Selector runs only in Countries
	PolicyCertification      PolicyKind = "certification"       // Selector needs Certifications
	PolicyPlacement          PolicyKind = "placement"           // Selector runs only in Clusters
	PolicyApart              PolicyKind = "apart"               // Selector shares no node (Scope "node") or cluster with Others
	PolicyDedicated          PolicyKind = "dedicated"           // Selector shares no node with anyone
	PolicySpotShare          PolicyKind = "spot_share"          // at most Share of Selector on spot
	PolicyCommitmentDiscount PolicyKind = "commitment_discount" // Value: as_supplied, owners_first, pool_rate
	PolicyIdleCost           PolicyKind = "idle_cost"           // Value: owner, platform
	PolicyActivity           PolicyKind = "activity"            // Value: the DCGM field that makes an hour useful
	PolicyCostOfCapital      PolicyKind = "cost_of_capital"     // Share: annual rate
	PolicyRetention          PolicyKind = "retention"           // Scope: what stays ([Retained]); Value: how long ([ParseKeep])
	PolicyDepreciation       PolicyKind = "depreciation"        // Value: when it begins: daily, full_month, half_month, next_month
	PolicyCapitalCharge      PolicyKind = "capital_charge"      // Share: annual rate that owned hardware is charged
	PolicyBooksCurrency      PolicyKind = "books_currency"      // Value: the currency that books are kept in (ISO 4217); with Columns of one entity
	PolicyRecoverableTax     PolicyKind = "recoverable_tax"     // Share: of lines of tax with Columns, what comes back
	PolicySharedCosts        PolicyKind = "shared_costs"        // Pools: whose cost is passed on in the view "loaded"
	PolicySubstitution       PolicyKind = "substitution"        // Substitutes: other GPU models that may do Selector's work
	PolicyPosture            PolicyKind = "posture"             // Value: how Selector survives the loss of a region or provider ([PostureActiveActive] …); Share: of its demand
	PolicyTransferPrice      PolicyKind = "transfer_price"      // Value: what a GPU-hour of Selector's work costs besides in another region, such as 0.05 USD
	PolicyLedgerAccount      PolicyKind = "ledger_account"      // Value: account of the general ledger, for Scope, of costs with Columns
	PolicyAdviceThreshold    PolicyKind = "advice_threshold"    // Value: threshold of rule Scope in its unit, or off; Share: least coverage of telemetry
	PolicySecondApproval     PolicyKind = "second_approval"     // Value: above this cost, or saving a month, recommendations need two approvers, such as 50000 USD
)

// What keeps the demand of a [PolicyPosture] when a region or a provider is lost.
const (
	PostureActiveActive  = "active_active"  // guaranteed capacity of the other regions (N+1)
	PostureHotStandby    = "hot_standby"    // guaranteed capacity in Standby
	PostureMultiProvider = "multi_provider" // guaranteed capacity of the other providers, when any one is lost in all regions
	PostureColdStandby   = "cold_standby"   // capacity in Standby that is rented then; keeping it costs StandbyPriceShare
)

// GPUSubstitute says how many GPUs of model By do the work of one GPU of model For, by the throughput of
// the same work on both.
type GPUSubstitute struct {
	For      string  `json:"for"`
	By       string  `json:"by"`
	GPUs     Decimal `json:"gpus"`
	Measured bool    `json:"measured"` // false: an estimate, to be shown as one
}

// What an entry of the chart of accounts says, in Scope of a [PolicyLedgerAccount].
const (
	LedgerExpense      = "expense"      // account of costs
	LedgerPayable      = "payable"      // account of what is owed by invoice
	LedgerAccrued      = "accrued"      // account of what is owed without an invoice yet
	LedgerPrepaid      = "prepaid"      // account of what was paid for later months
	LedgerTax          = "tax"          // account of recoverable tax
	LedgerOwned        = "owned"        // account against which owned hardware is charged, such as depreciation
	LedgerRounding     = "rounding"     // account of the rounding of invoices
	LedgerFX           = "fx"           // account of differences of exchange rates, in a journal in the currency of the books
	LedgerIntercompany = "intercompany" // account between the entity of an invoice and that of a workspace, of both
	LedgerDueTo        = "due_to"       // account of what a workspace's entity owes that of an invoice, instead of intercompany
	LedgerDueFrom      = "due_from"     // account of what it owes, in the books of the entity of the invoice
	LedgerCostCenter   = "cost_center"  // cost centre of costs
	LedgerEntity       = "entity"       // legal entity of a workspace, or of invoices
)

// LedgerScopes are the scopes of a [PolicyLedgerAccount].
var LedgerScopes = []string{
	LedgerExpense, LedgerPayable, LedgerAccrued, LedgerPrepaid, LedgerTax, LedgerOwned, LedgerRounding, LedgerFX,
	LedgerIntercompany, LedgerDueTo, LedgerDueFrom, LedgerCostCenter, LedgerEntity,
}

// Selector picks workloads. Empty fields match all. Cluster is the cluster in which a deployment is
// declared.
//
// Regions and Countries restrict the place. For [PolicyApart] that is the place of replicas: the
// policy binds machines in a region and a country that both its Selector and the other selector
// list, and no machine elsewhere. Policies of other kinds bind a deployment wherever it runs. For
// them it is the region of the cluster in which the deployment is declared, or for
// [PolicySpotShare], [PolicySubstitution], [PolicyPosture] and [PolicyTransferPrice] the region of the demand.
// An unknown region is in no list.
type Selector struct {
	Workspace   string        `json:"workspace,omitempty"`
	Class       WorkloadClass `json:"class,omitempty"`
	Deployment  string        `json:"deployment,omitempty"`
	Cluster     string        `json:"cluster,omitempty"`
	Tier        string        `json:"tier,omitempty"`
	Environment string        `json:"environment,omitempty"`
	Regions     []string      `json:"regions,omitempty"`
	Countries   []string      `json:"countries,omitempty"` // ISO 3166-1 alpha-2, of the region
}

// IsZero reports whether the selector picks everything.
func (s *Selector) IsZero() bool {
	return s.Workspace == "" && s.Class == "" && s.Deployment == "" && s.Cluster == "" && s.Tier == "" &&
		s.Environment == "" && len(s.Regions) == 0 && len(s.Countries) == 0
}

// In reports whether the selector covers a region. The country may be "" for unknown.
func (s *Selector) In(region, country string) bool {
	return (len(s.Regions) == 0 || slices.Contains(s.Regions, region)) &&
		(len(s.Countries) == 0 || slices.Contains(s.Countries, country))
}

// PolicySet sets or replaces a policy from EffectiveFrom on.
type PolicySet struct {
	Policy         string      `json:"policy"` // id within the workspace
	Kind           PolicyKind  `json:"kind"`
	EffectiveFrom  Instant     `json:"effective_from"`
	EffectiveTo    Instant     `json:"effective_to,omitempty"` // zero: until replaced
	Selector       Selector    `json:"selector"`
	Others         []Selector  `json:"others,omitempty"`
	Countries      []string    `json:"countries,omitempty"` // ISO 3166-1 alpha-2
	Certifications []string    `json:"certifications,omitempty"`
	Clusters       []string    `json:"clusters,omitempty"`
	Scope          string      `json:"scope,omitempty"`
	Value          string      `json:"value,omitempty"`
	Share          NullDecimal `json:"share,omitzero"`
	// Columns are those of [MappingRuleSet]; for ledger_account also those of exported allocations, such as
	// x_WorkspaceId. Empty: all lines of tax, or all costs. Of several policies that a line fits, the one
	// with the most columns counts, then the first by workspace and id.
	Columns map[string]string `json:"columns,omitempty"`
	Pools   []CostPool        `json:"pools,omitempty"` // in the order in which they pass on their cost
	// Substitutes are those of [PolicySubstitution]. A deployment that lists GPU models must list By, too.
	Substitutes []GPUSubstitute `json:"substitutes,omitempty"`
	// Standby is the region that takes over, for [PolicyPosture]. StandbyPriceShare is the share of the
	// on-demand price that keeping a cold one costs.
	Standby           string      `json:"standby,omitempty"`
	StandbyPriceShare NullDecimal `json:"standby_price_share,omitzero"`
}

// QuotaSet states what a workspace, with those below it, may hold. Plans count no demand beyond a hard
// quota of nvidia.com/gpu. The rule "quota" finds when 80% and all of it is used, hard or soft; of other resources
// nobody is notified yet.
type QuotaSet struct {
	Quota         string  `json:"quota"`
	Resource      string  `json:"resource"` // Kubernetes resource name, for example nvidia.com/gpu
	GPUModel      string  `json:"gpu_model,omitempty"`
	Region        string  `json:"region,omitempty"`
	Limit         Decimal `json:"limit"`
	Hard          bool    `json:"hard"` // binds plans, where a soft one only warns
	EffectiveFrom Instant `json:"effective_from"`
}

// BudgetBasis says which ledger a budget counts.
type BudgetBasis string

// The bases of a budget.
const (
	BudgetCash    BudgetBasis = "cash"
	BudgetAccrual BudgetBasis = "accrual"
)

// BudgetSet grants a workspace an amount for a period. It is compared with costs, and the rule "budget" finds when
// 80% and all of it is used, or will be. A hard one of the root workspace bounds plans whose horizon has begun when its period
// begins.
type BudgetSet struct {
	Budget string      `json:"budget"`
	Period Interval    `json:"period"`
	Amount Money       `json:"amount"`
	Basis  BudgetBasis `json:"basis"`
	Hard   bool        `json:"hard"` // bounds plans, if it is of the root workspace
}

// RoundTrip is the network round-trip time to another region.
type RoundTrip struct {
	To       string `json:"to"`
	Micros   uint64 `json:"micros"`
	Measured bool   `json:"measured"` // false: an estimate, to be shown as one
}

// RegionDefined describes a region. Between regions without a stated round trip, plans estimate one
// from the time zones.
type RegionDefined struct {
	Region     string      `json:"region"`
	Country    string      `json:"country"` // ISO 3166-1 alpha-2
	Name       string      `json:"name,omitempty"`
	RoundTrips []RoundTrip `json:"round_trips,omitempty"`
	UTCOffset  string      `json:"utc_offset,omitempty"` // standard time, such as +01:00; empty: unknown
}

// ParseUTCOffset returns the minutes that a time zone is ahead of UTC. The text is a sign, two digits
// for hours, a colon and two for minutes, from -12:00 to +14:00.
func ParseUTCOffset(text string) (minutes int, ok bool) {
	t, err := time.Parse("-07:00", text)
	if err != nil || len(text) != len("+01:00") {
		return 0, false
	}
	_, seconds := t.Zone()
	return seconds / 60, seconds >= -12*3600 && seconds <= 14*3600
}

// CertificationHeld says that a provider or a cluster has a certification.
type CertificationHeld struct {
	Provider      string   `json:"provider,omitempty"` // exactly one of Provider and Cluster
	Cluster       string   `json:"cluster,omitempty"`
	Certification string   `json:"certification"` // for example SOC 2 Type II
	Valid         Interval `json:"valid"`
	Evidence      string   `json:"evidence,omitempty"`
}

// MethodChanged puts a method version in force from a time on.
type MethodChanged struct {
	Method        string  `json:"method"` // folds, attribution, planner, solver
	Version       string  `json:"version"`
	EffectiveFrom Instant `json:"effective_from"`
	Reason        string  `json:"reason,omitempty"`
}

// LineBuys says what a billing line buys of the machine that it is for.
type LineBuys string

// What a line can buy.
const (
	BuysGPUTime     LineBuys = "gpu_time"
	BuysMachineTime LineBuys = "machine_time"
	BuysNothing     LineBuys = "nothing" // a licence, cores, a discount: charged to those who held the machine
	BuysOutside     LineBuys = "outside" // nothing of the estate: it is reconciled, and charged to platform:outside
)

// ShareBy says by what a cost is shared: lines of a mapping rule, or a [CostPool].
type ShareBy string

// By what a cost is shared. A mapping rule has only the first.
const (
	ShareByGPUHours ShareBy = "by_gpu_hours" // the GPU time that workspaces held in a line's charge period, or in the month
	ShareByCost     ShareBy = "by_cost"      // the effective cost of workspaces
)

// CostPool is a workspace, or an account of the platform such as platform:reliability, whose cost is for others. It is
// passed on by fixed weights (Shares) or by what By says: exactly one of them. A pool receives from earlier pools and
// never from later ones.
type CostPool struct {
	Pool   string            `json:"pool"`
	By     ShareBy           `json:"by,omitempty"`
	Shares []WorkspaceWeight `json:"shares,omitempty"`
}

// WorkspaceWeight is what a workspace bears of a cost that is shared by fixed weights.
type WorkspaceWeight struct {
	Workspace string `json:"workspace"`
	Weight    uint32 `json:"weight"`
}

// MappingRuleSet is one of three kinds of rules.
//
// With ToWorkspace it says which workspace pays for the pods of a cluster and a namespace, and
// which deployment they belong to. It ignores pod labels, because the pod's owner writes those;
// clusters and namespaces are controlled by the cluster's operators.
//
// With Columns and one of ToWorkspace, ToShares and ToShareBy, or with Buys "outside", it says who is charged for
// billing lines that are for no machine of the fleet, such as storage or support. A line that is matched to machines
// stays theirs, whatever a rule says.
//
// With another Buys it says what billing lines buy: those whose Columns have the given values. Columns are
// the text columns of FOCUS (see [BillingLine.Column]) and x_ columns, spelt as FOCUS and the
// supplier spell them. A value may begin or end with *, which stands for any text there; "" stands
// for null. If several rules of a kind match a line, the one with the lowest Priority counts, then
// the first by Rule.
type MappingRuleSet struct {
	Rule          string            `json:"rule"`
	Priority      uint32            `json:"priority"` // lower is tried first
	Cluster       string            `json:"cluster,omitempty"`
	Namespace     string            `json:"namespace,omitempty"`
	ToWorkspace   string            `json:"to_workspace,omitempty"`
	ToDeployment  string            `json:"to_deployment,omitempty"`
	ToShares      []WorkspaceWeight `json:"to_shares,omitempty"`
	ToShareBy     ShareBy           `json:"to_share_by,omitempty"`
	Columns       map[string]string `json:"columns,omitempty"`
	Buys          LineBuys          `json:"buys,omitempty"`
	EffectiveFrom Instant           `json:"effective_from"`
}

// Shares reports whether the rule shares lines of bills among several workspaces.
func (e *MappingRuleSet) Shares() bool { return len(e.ToShares) > 0 || e.ToShareBy != "" }
