// Package attribution divides a supplier's bill among those who used what was
// billed. It is a pure function of ledger lines, the fleet, usage and policy.
//
// A leaf is one line's part for one hour, workspace, cluster, deployment and
// component. The leaves of a line add up to it exactly, in both ledgers: what
// was billed, which ties to invoices, and what was consumed (effective), which
// ties to commitments. Nothing is hidden in a rate: what nobody used, what was
// broken and what nobody saw are components of their own.
//
// What always holds, each with its property test:
//
//   - The leaves of a line sum to its BilledCost and to its EffectiveCost.
//   - Equal sets of lines, nodes, hours and policies give equal leaves, in equal
//     order, however they were ordered or repeated on the way in.
//   - A line and its reversal cancel leaf by leaf.
//   - Of a leaf's GPU time, useful is at most allocated, and allocated at most
//     bought.
//   - What weighs nothing costs nothing.
//
// # How a line is divided
//
//  1. It is classed: see [Class].
//  2. It is matched to nodes, by the first rung of [Rung] that finds any.
//  3. It is spread over the UTC hours of its charge period and divided among
//     the parts of those hours in one step: a part weighs the GPU time that it
//     had. Lines of one match and one charge period are divided alike. Lines for
//     all nodes of an account buy no node's time, and are divided over the
//     charge period as a whole.
//  4. What was bought beyond the time that the nodes were in service weighs as
//     the component [Unseen], spread evenly. Lines and their reversals net.
//  5. Lines that buy no time (tax, credits, rounding, recurring fees of a
//     commitment) follow the lines that they belong to, in the proportion in
//     which those were divided. A credit for a node pays first for what of it
//     failed or was maintained.
//
// Division is by cumulative rounding in the finest unit, in the order of leaf
// keys, on the magnitude of the amount: exact in sum, each part within one unit
// of 10⁻¹⁸, and odd in the sign.
package attribution

import (
	"quartermaster/domain"
)

// Method is the version of this package's method. A report names it.
const Method = "attribution/1"

// Class is what kind of charge a line is.
type Class uint8

// The classes.
const (
	Committed Class = iota + 1 // usage covered by a commitment, its unused part, and purchases of commitments
	OnDemand
	Spot   // PricingCategory Dynamic
	Owned  // internal invoices for hardware of one's own
	Shared // charges for no machine: support, network, licences
	Credit
	Tax
	Rounding // a supplier's own rounding adjustment
)

// Rung is how a line found what it is for. The first that applies counts.
//
// A line that names a machine which the fleet does not know joins a pool only
// where no line names any machine of that SKU and region by its resource id:
// then bill and fleet name machines differently. Otherwise names can be compared,
// this one is nobody's, and those who used the others do not pay for it.
type Rung uint8

// The rungs.
const (
	ByResource   Rung = iota + 1 // ResourceId names nodes of the billing account
	ByPool                       // the account's nodes in the region with the SKU that no line names
	ByAccount                    // all nodes of the account
	ByCommitment                 // sponsors of the commitment, or the lines that it covered
	ByFollowing                  // the lines that it belongs to
	ByNothing                    // nothing was found; the platform carries it
)

// Component says what became of what was paid for.
type Component uint8

// The components. The account that carries each where no workspace held the
// time stands behind it.
const (
	Allocated        Component = iota + 1 // held by the workspace
	Idle                                  // the cluster's owner, else "platform"
	Unprovisioned                         // as Idle
	Failed                                // "platform:reliability"
	Maintenance                           // "platform:reliability"
	Unobserved                            // "platform:unobserved"
	Unseen                                // bought beyond the time in service: "platform:unobserved"
	UnusedCommitment                      // the sponsors in their shares, else "platform"
	Prepaid                               // paid now for a term: "platform:prepaid"
	Unmatched                             // "platform"
	Bridge                                // an invoice's rounding against its lines: "platform"
)

// The accounts that carry what is no workspace's.
const (
	Platform            = "platform"
	PlatformReliability = "platform:reliability"
	PlatformUnobserved  = "platform:unobserved"
	PlatformPrepaid     = "platform:prepaid"
)

// Line is what attribution needs of a billing line. See [LineOf].
type Line struct {
	Issuer, Account, ID string // ID is unique within issuer and account
	Invoice, Detail     string
	Currency            string // ISO 4217
	BillingPeriod       domain.Interval
	ChargePeriod        domain.Interval
	Class               Class
	ClassReason         string // which columns decided the class; see [Classify]
	Category            string // ChargeCategory
	Resource            string
	Region              string
	SKU                 string
	Commitment          string // CommitmentDiscountId, else CapacityReservationId
	Unused              bool   // the unused part of the commitment
	Recurring           bool   // ChargeFrequency Recurring
	Billed, Effective   Amount
	// NodeMs is how long a machine was bought, GPUMs how much GPU time, both in
	// milliseconds and as billed; 0 where the line's unit says neither.
	NodeMs, GPUMs int64
	// UnusableQuantity says which quantity the line states and why nobody can
	// mean it, "" where there is none such. NodeMs and GPUMs are 0 then, and the
	// line is an exception of kind [QuantityUnusable].
	UnusableQuantity string
	Corrects         string // the line that this one corrects, "" for none
	Generated        bool   // made by a generator; no supplier ever sent it
}

// Node is a machine under one description. A node described anew is several
// of these, with disjoint Service.
type Node struct {
	Cluster, Node string
	Account       string // billing account
	Region        string
	SKU           string
	Resource      string // as on the bill
	Billing       domain.BillingModel
	GPUs          int
	CPUMilli      uint64
	MemoryMiB     uint64
	Registered    bool // false: it reported without being declared
	Service       domain.Interval
}

// NodeHour is what one node did in one UTC hour, or in the part of it in which
// one description held.
type NodeHour struct {
	Node  int // index into Input.Nodes
	Hour  domain.Instant
	Owner string // workspace that owns the cluster then, "" for nobody
	Parts []Part
}

// Part is some GPU time of a node's hour in one state and one pair of hands.
// Parts of one hour may repeat a key; they are added up.
type Part struct {
	Component Component // Allocated, Idle, Unprovisioned, Failed, Maintenance or Unobserved
	// Workspace, Deployment and Unit (pod or job) are the holder's; empty when
	// nobody held it.
	Workspace, Deployment, Unit string
	GPUMs                       int64 // milliseconds of whole GPUs
	UsefulMs                    int64 // GPUMs × activity, for the part of it that was measured while healthy
	KnownMs                     int64 // the part of GPUMs for which activity was measured
	// HeldMs is how long the unit was on the node, and CPUMilli and MemoryMiB
	// what it asks of it: where that is a larger share of the node than its
	// GPUs are, it is what the unit weighs (its dominant share). 0: not known.
	HeldMs    int64
	CPUMilli  uint64
	MemoryMiB uint64
}

// Commitment is who answers for a contract.
type Commitment struct {
	ID       string
	Sponsors []domain.Share // add up to 1; none: the platform
}

// Discount says who enjoys what a floating commitment saves.
type Discount string

// The rules for floating discounts.
const (
	AsSupplied Discount = "as_supplied" // whoever the supplier applied it to
	// SponsorsFirst gives what a commitment bought in a pool, hour by hour, to its
	// sponsors' use of the pool first. What other lines bought is divided among
	// what is left. A pool is the account's nodes of a region and SKU, named by
	// lines or not, without its own.
	SponsorsFirst Discount = "sponsors_first"
	PoolRate      Discount = "pool_rate" // everyone in the pool pays one rate
)

// Policy is what was decided about the division.
type Policy struct {
	Discount       Discount // "" is as supplied
	IdleToPlatform bool     // otherwise to the cluster's owner
}

// Invoice is a bill's total as it was received, independent of its lines.
type Invoice struct {
	Issuer, Account, ID string
	Currency            string
	Total               Amount
	Details             []InvoiceDetail // its breakdown, in any order
	Status              string          // Open, Issued, Voided
	Generated           bool
}

// Input is what a division is made of.
type Input struct {
	// Lines calls yield with every line once, in any order, until it returns an
	// error. The line is reused after yield returns.
	Lines func(yield func(*Line) error) error
	Nodes []Node
	// Usage calls yield with the hours that overlap any of the spans, by
	// cluster, node and hour. Spans are ascending and disjoint. The hour is
	// reused after yield returns.
	Usage       func(spans []domain.Interval, yield func(*NodeHour) error) error
	Commitments []Commitment
	Invoices    []Invoice
	Policy      Policy
	// Trace names a leaf that [Result.Trace] explains; nil for none.
	Trace *Ref
}

// Leaf is one line's part for one hour, workspace, cluster, deployment and
// component. It explains itself: of both amounts of the line it gets
// Weight/Of, rounded cumulatively.
type Leaf struct {
	Line       *Line
	Hour       domain.Instant // start of the UTC hour; 0: the whole charge period
	Workspace  string         // or one of the platform's accounts
	Cluster    string
	Deployment string
	Component  Component
	Rung       Rung

	Billed, Effective Amount
	// Weight is this leaf's part of Of: GPU milliseconds, a sponsor's share, or
	// money for a line that follows others (then the weights of Billed).
	Weight, Of Amount
	// What the line bought of GPU time, in milliseconds: 0 for lines that buy
	// none, that do not say how much, or for machines that nobody knows, whether
	// their unit is time of machines or of GPUs.
	BoughtMs, AllocatedMs, UsefulMs int64
}
