// Package attribution divides a supplier's bill among those who used what was
// billed. It is a pure function of ledger lines, the fleet, usage and policy.
//
// An allocation is one line's part for one hour, workspace, cluster, deployment and
// component. The allocations of a line add up to it exactly, in both ledgers: what
// was billed, which reconciles with invoices, and what was consumed (effective), which
// reconciles with commitments. Nothing is hidden in a rate: what nobody used, what was
// broken and what nobody saw are components of their own.
//
// What always holds, each with its property test:
//
//   - The allocations of a line sum to its BilledCost and to its EffectiveCost.
//   - Equal sets of lines, nodes, hours and policies give equal allocations, in equal
//     order, however they were ordered or repeated on the way in.
//   - A line and its reversal cancel allocation by allocation.
//   - Of an allocation's GPU time, useful is at most measured, measured at most
//     allocated, and allocated at most bought.
//   - What weighs nothing costs nothing.
//   - A line that buys no time moves no other line's money, but for what follows
//     charges, such as tax, and but for what it refunds.
//
// # How a line is divided
//
//  1. It is classed: see [Class].
//  2. It is matched to nodes, by the first match method of [MatchMethod] that finds any. Hardware
//     that had two names is found by the resource id of either; see [OtherID].
//  3. It is spread over the UTC hours of its charge period and divided among
//     the parts of those hours in one step: a part weighs the GPU time that it
//     had. A charge that begins or ends within an hour is divided by what was held
//     within the charge. Lines of one match and one charge period are divided alike. Lines for
//     all nodes of an account buy no node's time, and are divided over the
//     charge period as a whole.
//  4. What was bought beyond the time that the nodes were in service weighs as
//     the component [Unseen], spread evenly. Lines and their reversals net. Lines
//     that buy no time share the weights of those that do in the same charge
//     period.
//  5. Lines that buy no time (tax, credits, rounding, recurring fees of a
//     commitment) follow the lines that they belong to, in the proportion in
//     which those were divided. A credit for a node pays first for what of it
//     failed or was maintained.
//
// # Which lines buy time
//
// A machine-hour is bought once, however many lines a supplier writes for it: as
// GPUs, cores and memory; beside a licence; with a line that takes a discount or
// the price on demand back. Each line has a [Meter], which a mapping rule, its unit
// or its SKU decides; see [LineOf]. Of the lines of one match:
//
//  1. Add-ons buy nothing, and neither does a line whose cost runs against its
//     quantity: that takes money back, and no time. But where only free text calls a
//     line an add-on and no other line would buy, it buys; see [Line.Alone].
//  2. At every instant the lines of the first meter buy that states any time in
//     charge periods that have the instant: GPU time before machine time, machine
//     time before time of what is called by a GPU's model, and that before time of
//     which no column says what it is. A line that others come
//     before in a part of its charge period buys the rest, in proportion to its
//     length. Charge periods whose lines net to no time do not count.
//  3. Lines of one meter add up: hours on demand and hours that a commitment
//     covers. But where they state more time than the machines were in service, by a
//     minute and a thousandth, a line buys nothing that was refunded: another of the
//     same resource, product, commitment, charge period and quantity takes back its
//     cost in both ledgers, and others of its product buy. And where several products (SkuId, else SkuMeter) with overlapping
//     charge periods still state more than that together, not all of them can be the machine. Those that name
//     the machines by their type come first, then the one whose lines cost more
//     (effective), then by name; each buys if what it states is left, and the first
//     in any case. The others buy nothing, and are exceptions of kind
//     [BuyerAmbiguous].
//
// A line that does not buy costs what it costs, and follows those who held the
// machine. It names no machine either: a machine that only add-ons name stays in
// its pool.
//
// Division is by cumulative rounding in the finest unit, in the order of allocation
// keys, on the magnitude of the amount: exact in sum, each part within one unit
// of 10⁻¹⁸, and odd in the sign.
package attribution

import (
	"quartermaster/domain"
)

// Method is the version of this package's method. A report names it.
const Method = "attribution/3"

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

// MatchMethod is how a line found what it is for. The first that applies counts.
//
// A line that names a machine which the fleet does not know joins a pool only
// where no line names any machine of that SKU and region by its resource id:
// then bill and fleet name machines differently. Otherwise names can be compared,
// this one is nobody's, and those who used the others do not pay for it. A line
// that names a machine of the fleet for a time in which that was not in service
// joins no pool, and is an exception of kind [NotInService].
type MatchMethod uint8

// The match methods.
const (
	ByResource   MatchMethod = iota + 1 // ResourceId names nodes of the billing account
	ByPool                              // the account's nodes in the region with the SKU that no line names
	ByAccount                           // all nodes of the account
	ByCommitment                        // owners of the commitment, or the lines that it covered
	ByFollowing                         // the lines that it belongs to
	ByNothing                           // nothing was found; the platform is charged
)

// Component says what became of what was paid for.
type Component uint8

// The components. The account that is charged for each where no workspace held the
// time stands behind it.
const (
	Allocated          Component = iota + 1 // held by the workspace
	BusyUnattributed                        // worked for nobody known: the cluster's owner, else "platform"
	Idle                                    // as BusyUnattributed; both by [Policy.IdleToPlatform]
	Unprovisioned                           // as Idle
	Failed                                  // "platform:reliability"
	Maintenance                             // "platform:reliability"
	Unobserved                              // "platform:unobserved"
	Unseen                                  // bought beyond the time in service: "platform:unobserved"
	UnusedCommitment                        // the owners in their shares, else "platform"
	Prepaid                                 // paid now for a term: "platform:prepaid"
	Unmatched                               // "platform"
	RoundingAdjustment                      // an invoice's rounding against its lines: "platform"
)

// The accounts that are charged for what is no workspace's.
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
	// Meter says what of a machine the line sells, and MeterReason by which rule or
	// column; see [LineOf]. The zero Meter is what the quantities say: GPUTime where
	// GPUMs is given, PlainTime where NodeMs is, else Unstated.
	Meter       Meter
	MeterReason string
	// Alone is what an AddOn sells where no other line would buy the time of the same
	// resource (without one, of the same SKU and region) in its charge period; 0 for
	// none. It is for what only free text calls an add-on, and an exception of kind
	// [BuyerAmbiguous] where it counts.
	Alone Meter
	// Product is the SKU as the supplier names it: SkuId, else SkuMeter. Lines of
	// one meter and several products compete where they state more time than there
	// was.
	Product string
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
	GPUModel      string // [Mixed] where its GPUs differ, "" where nobody said
	Resource      string // as on the bill
	Billing       domain.BillingModel
	GPUs          int
	CPUMilli      uint64
	MemoryMiB     uint64
	Registered    bool // false: it reported without being declared
	Service       domain.Interval
}

// NodeHour is what one node did in one UTC hour, or in a part of it.
type NodeHour struct {
	Node int // index into Input.Nodes
	Hour domain.Instant
	// Held is the part of the hour that Parts are of. Zero: all of the hour in
	// which the description held.
	Held  domain.Interval
	Owner string // workspace that owns the cluster then, "" for nobody
	Parts []Part
}

// Part is some GPU time of a node's hour in one state and one pair of hands.
// Parts of one hour may repeat a key; they are added up.
type Part struct {
	Component Component // Allocated, BusyUnattributed, Idle, Unprovisioned, Failed, Maintenance or Unobserved
	// Workspace, Deployment and Unit (pod or job) are the holder's; empty when
	// nobody held it.
	Workspace, Deployment, Unit string
	GPUMs                       int64 // milliseconds of whole GPUs
	// Micros are added to GPUMs, in microseconds: what the rounding of a share of a
	// GPU left out of it, below zero where it added.
	Micros   int64
	UsefulMs int64 // GPUMs × activity, for the part of it that was measured while healthy
	KnownMs  int64 // the part of GPUMs for which activity was measured; at least UsefulMs is
	// HeldMs is how long the unit was on the node, and CPUMilli and MemoryMiB
	// what it asks of it: where that is a larger share of the node than its
	// GPUs are, it is what the unit weighs (its dominant share). 0: not known.
	HeldMs    int64
	CPUMilli  uint64
	MemoryMiB uint64
}

// Commitment is who answers for a contract.
type Commitment struct {
	ID     string
	Owners []domain.Share // add up to 1; none: the platform
	// Hardware is what the contract is for, as far as it says.
	Hardware Hardware
}

// Discount says who enjoys what a floating commitment saves.
type Discount string

// The rules for floating discounts.
const (
	AsSupplied Discount = "as_supplied" // whoever the supplier applied it to
	// OwnersFirst gives what a commitment bought in a pool, hour by hour, to its
	// owners' use of the pool first. What other lines bought is divided among
	// what is left. A line that buys nothing goes where the lines that it belongs to
	// go; where it belongs to none, as a licence, it is divided as if no commitment had
	// owners. A pool is the account's nodes of a region and SKU, named by lines or
	// not, without its own.
	OwnersFirst Discount = "owners_first"
	PoolRate    Discount = "pool_rate" // everyone in the pool pays one rate
)

// Policy is what was decided about the division.
type Policy struct {
	Discount       Discount // "" is as supplied
	IdleToPlatform bool     // what nobody is known to have held; otherwise to the cluster's owner
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

// Cuts returns the times within an hour of a node, ascending, at which a charge
// that may be for it begins or ends; mostly none. It may be called until Usage
// returns, and its result is valid until the next call.
type Cuts func(node int, hour domain.Instant) []domain.Instant

// OtherID is a resource id under which a bill may name a machine besides its own: that
// of the same hardware under another name. It counts where no line that may buy machines
// names the node's own.
type OtherID struct {
	Node              int // index into Input.Nodes
	Account, Resource string
}

// Input is what a division is made of.
type Input struct {
	// Lines calls yield with every line once, in any order, until it returns an
	// error. The line is reused after yield returns.
	Lines func(yield func(*Line) error) error
	Nodes []Node
	// Usage calls yield with the hours that overlap any of the spans, by
	// cluster, node, hour and time within it. Spans are ascending and disjoint. An
	// hour of a node comes in parts, so that none of [Cuts] lies within one. The
	// hour is reused after yield returns.
	Usage func(spans []domain.Interval, cuts Cuts, yield func(*NodeHour) error) error
	// Known reports whether a resource id of an account names a machine that is not
	// among Nodes, because it was in service at other times only. May be nil.
	Known func(account, resource string) bool
	// Also are further resource ids of Nodes, in any order.
	Also        []OtherID
	Commitments []Commitment
	Invoices    []Invoice
	Policy      Policy
	// Trace names an allocation that [Result.Trace] explains; nil for none.
	Trace *Ref
}

// Allocation is one line's part for one hour, workspace, cluster, deployment and
// component. It explains itself: of both amounts of the line it gets
// Weight/Of, rounded cumulatively.
type Allocation struct {
	Line        *Line
	Hour        domain.Instant // start of the UTC hour; 0: the whole charge period
	Workspace   string         // or one of the platform's accounts
	Cluster     string
	Deployment  string
	Component   Component
	MatchMethod MatchMethod
	// Hardware is that of the machines that weigh in the allocation; of a line that
	// follows others, of the machines that those were for.
	Hardware Hardware

	Billed, Effective Amount
	// Weight is this allocation's part of Of: GPU milliseconds, to the microsecond, an owner's share, or
	// money for a line that follows others (then the weights of Billed).
	Weight, Of Amount
	// What the line bought of GPU time, in milliseconds: 0 for lines that buy
	// none, that do not say how much, or for machines that nobody knows, whether
	// their unit is time of machines or of GPUs. MeasuredMs is the part of AllocatedMs
	// for which activity was measured, and UsefulMs is of that part.
	BoughtMs, AllocatedMs, UsefulMs, MeasuredMs int64
}
