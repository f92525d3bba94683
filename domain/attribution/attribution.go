// Package attribution divides a supplier's bill among those who used what was
// billed. It is a pure function of ledger lines, the fleet, usage and policy.
//
// An allocation is one line's part for one hour, workspace, cluster, deployment and
// component. The allocations of a line add up to it exactly in both ledgers: billed
// cost, which reconciles with invoices, and effective cost, which reconciles with
// commitments. No cost is hidden in a rate: idle, failed and unobserved capacity are
// components of their own.
//
// What always holds, each with its property test:
//
//   - The allocations of a line sum to its BilledCost and to its EffectiveCost, less
//     recoverable tax.
//   - Equal sets of lines, nodes, hours and policies give equal allocations in equal
//     order, whatever the order of the input and however often it repeats entries.
//   - A line and its reversal cancel allocation by allocation.
//   - In every allocation, useful GPU time ≤ measured ≤ allocated ≤ bought.
//   - Zero weight means zero cost.
//   - A line that buys no time does not change the allocations of other lines, except
//     those that follow charges, such as tax, and those that it refunds.
//
// # How a line is divided
//
//  1. It is classified: see [Class].
//  2. It is matched to nodes, by the first method of [MatchMethod] that finds any.
//     Hardware with two names is found by the resource id of either; see [OtherID].
//  3. It is spread over the UTC hours of its charge period and divided among the
//     parts of those hours in one step. The weight of a part is its GPU time. A
//     charge that begins or ends within an hour is divided by the usage within the
//     charge. Lines of one match and one charge period are divided alike. Lines for
//     all nodes of an account buy no node's time, and are divided over the charge
//     period as a whole.
//  4. Time bought beyond the time that the nodes were in service has its own
//     component, [Unseen], spread evenly. Lines and their reversals net. Lines that
//     buy no time use the weights of the lines that do in the same charge period.
//  5. Lines that buy no time (tax, credits, rounding, recurring fees of a
//     commitment) follow the lines that they belong to, in the same proportions. A
//     credit for a node first pays for the node's failed and maintenance time.
//  6. A line without a machine of its own that a mapping rule takes goes to one account,
//     or is shared by the rule's weights, or by the GPU time that workspaces held in the
//     UTC hours of its charge period. If nobody held any, the platform is charged.
//  7. The recoverable part of a line of tax is a component of its own, which has billed
//     cost, because it is on the invoice, and no effective cost. The rest of the line is
//     divided as above.
//
// # Units and machines
//
// Each allocation is divided once more, among the units (pods or jobs) that held it and the machines that it was on,
// by the weights that the first division added up for it: see [Allocation.Divide]. An allocation of a line that
// follows others is divided by what these cost each of them. Nothing depends on it: allocations and their ids are the
// same for a machine with one pod and with a hundred. What no unit held has no unit. What is not for a known machine
// has no machine: unused commitments, prepaid purchases, lines of no machine, and [Unseen] time of several machines.
//
// # Which lines buy time
//
// A machine-hour is bought once, although a supplier may write several lines for
// it: for GPUs, cores and memory; for a licence; for a discount, or to take back the
// on-demand price. Each line has a [Meter], decided by a mapping rule, its unit or
// its SKU; see [LineOf]. Of the lines of one match:
//
//  1. Add-ons buy nothing. Neither does a line whose cost and quantity have opposite
//     signs: it refunds money, not time. But a line that only free text calls an
//     add-on does buy if no other line would; see [Line.Alone].
//  2. At every instant, the lines of the first meter that states time in charge
//     periods with that instant buy. The order is: GPU time, machine time, time of
//     something named by a GPU model, and time that no column explains. A line that
//     is outranked in a part of its charge period buys the rest, in proportion to its
//     length. Charge periods whose lines net to no time do not count.
//  3. Lines of one meter add up: on-demand hours and hours that a commitment covers.
//     The exception is when they state more time than the machines were in service,
//     by a minute and a thousandth. Then refunded lines buy nothing. A line is
//     refunded if another line of the same resource, product, commitment, charge
//     period and quantity takes back its cost in both ledgers, and other lines of its
//     product buy. If several products (SkuId, else SkuMeter) with overlapping charge
//     periods still state more than that together, not all of them can be the
//     machine. They are ranked: those named as the machines' type, then by higher
//     effective cost, then by name. The first always buys, and each other buys if
//     enough time is left. Products that do not buy are exceptions of kind
//     [BuyerAmbiguous].
//
// A line that does not buy keeps its cost, and is divided among those who held the
// machine. It also does not count as naming a machine: a machine that only add-ons
// name stays in its pool.
//
// Division is by cumulative rounding in the finest unit, in the order of allocation
// keys, on the magnitude of the amount. It is exact in sum, each part is within one
// unit of 10⁻¹⁸, and a negated amount gives negated parts.
package attribution

import (
	"quartermaster/domain"
)

// Method is the version of this package's method. Reports state it.
const Method = "attribution/3"

// Class is the kind of charge of a line.
type Class uint8

// The classes.
const (
	Committed Class = iota + 1 // usage covered by a commitment, its unused part, and purchases of commitments
	OnDemand
	Spot   // PricingCategory Dynamic
	Owned  // internal invoices for owned hardware
	Shared // charges not for machines: support, network, licences
	Credit
	Tax
	Rounding // a supplier's own rounding adjustment
)

// MatchMethod is how a line was matched to what it pays for. The first that applies counts.
//
// A line that names a machine unknown to the fleet joins a pool only if no line names any machine
// of that SKU and region by its resource id: then bill and fleet use different names. Otherwise
// names are comparable, the named machine belongs to nobody, and users of other machines do not pay
// for it. A line that names a machine of the fleet for a time in which it was not in service joins
// no pool, and is an exception of kind [NotInService].
type MatchMethod uint8

// The match methods.
const (
	ByResource   MatchMethod = iota + 1 // ResourceId names nodes of the billing account
	ByPool                              // the account's nodes in the region with the SKU, except those that lines name
	ByAccount                           // all nodes of the account
	ByCommitment                        // owners of the commitment, or the lines that it covered
	ByFollowing                         // the lines that it belongs to
	ByNothing                           // no match; the platform is charged
	ByRule                              // a mapping rule says who is charged: for lines that match no machine
)

// Component says what became of what was paid for.
type Component uint8

// The components. The comment names the account that is charged if no workspace held the time.
const (
	Allocated          Component = iota + 1 // held by the workspace
	BusyUnattributed                        // busy without a known holder: the cluster's owner, else "platform"
	Idle                                    // as BusyUnattributed, subject to [Policy.IdleToPlatform]
	Unprovisioned                           // as Idle
	Failed                                  // "platform:reliability"
	Maintenance                             // "platform:reliability"
	Unobserved                              // "platform:unobserved"
	Unseen                                  // bought beyond the time in service: "platform:unobserved"
	UnusedCommitment                        // the owners in their shares, else "platform"
	Prepaid                                 // paid now for a term: "platform:prepaid"
	Unmatched                               // "platform"
	RoundingAdjustment                      // an invoice's rounding against its lines: "platform"
	Assigned                                // for no machine: the workspace of a mapping rule
	Outside                                 // not for the estate, by a mapping rule: "platform:outside"
	SharedCost                              // for no machine: the workspaces of a mapping rule, else "platform"
	TaxRecoverable                          // tax that the tax authority returns, no cost: "platform:tax"
)

// The accounts that are charged for costs of no workspace.
const (
	Platform            = "platform"
	PlatformReliability = "platform:reliability"
	PlatformUnobserved  = "platform:unobserved"
	PlatformPrepaid     = "platform:prepaid"
	PlatformOutside     = "platform:outside"
	PlatformTax         = "platform:tax"
)

// Accounts returns the accounts that are charged for costs of no workspace.
func Accounts() []string {
	return []string{Platform, PlatformReliability, PlatformUnobserved, PlatformPrepaid, PlatformOutside, PlatformTax}
}

// Line is the part of a billing line that attribution uses. See [LineOf].
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
	// Meter says what of a machine the line sells, and MeterReason which rule or column decided
	// that; see [LineOf]. The zero Meter is derived from the quantities: GPUTime if GPUMs is given,
	// PlainTime if NodeMs is, else Unstated.
	Meter       Meter
	MeterReason string
	// Alone is what an AddOn sells if no other line would buy the time of the same resource
	// (without one, of the same SKU and region) in its charge period; 0 for nothing. It is set for
	// lines that only free text calls add-ons. Where it counts, the line is an exception of kind
	// [BuyerAmbiguous].
	Alone Meter
	// Product is the SKU as the supplier names it: SkuId, else SkuMeter. Lines of one meter and
	// several products compete if they state more time than there was.
	Product string
	// NodeMs is the machine time that was bought, GPUMs the GPU time, both in milliseconds and as
	// billed; 0 where the line's unit states neither.
	NodeMs, GPUMs int64
	// UnusableQuantity says which quantity of the line is implausible, and why; "" if none is. If
	// set, NodeMs and GPUMs are 0, and the line is an exception of kind [QuantityUnusable].
	UnusableQuantity string
	// ToRule names the rule that says who is charged for the line if it matches no machine of its own, and To is the
	// account that it charges; "" for none. If To is "", the rule shares the line; see [Input.Rules]. A line that
	// matches the account alone has no machine of its own.
	To, ToRule string
	// TaxRule names the rule that says how much of a line of tax is recoverable; "" for none. In allocations, Effective
	// is the line's effective cost without that.
	TaxRule   string
	Corrects  string // the line that this one corrects, "" for none
	Generated bool   // synthetic; no supplier sent it
	// Matching is how the line was matched, and is set in allocations only.
	Matching Matching
	// Node is the machine that all of the line is for, as cluster/node: the only one that it was matched to, or that the
	// lines that it follows were matched to. It is [Mixed] if there are several, or if it follows lines without a machine
	// too, and "" if there is none. It is set in allocations only. See [Holder] for the machines of a part.
	Node string
	// Number is the caller's, to find the line again. It has no influence, and is 0 for a line that attribution adds.
	Number uint32
}

// Node is a machine under one description. A machine with several descriptions is several Nodes
// with disjoint Service.
type Node struct {
	Cluster    string              `json:"cluster"`
	Node       string              `json:"node"`
	Account    string              `json:"account,omitempty"` // billing account
	Region     string              `json:"region,omitempty"`
	SKU        string              `json:"sku,omitempty"`
	GPUModel   string              `json:"gpu_model,omitempty"` // [Mixed] if its GPUs differ, "" if unknown
	Resource   string              `json:"resource,omitempty"`  // as on the bill
	Billing    domain.BillingModel `json:"billing_model,omitempty"`
	GPUs       int                 `json:"gpus"`
	CPUMilli   uint64              `json:"cpu_milli,omitempty"`
	MemoryMiB  uint64              `json:"memory_mib,omitempty"`
	Registered bool                `json:"registered,omitempty"` // false: it reported without a registration
	Service    domain.Interval     `json:"service"`
}

// NodeHour is the usage of one node in one UTC hour, or in a part of it.
type NodeHour struct {
	Node int // index into Input.Nodes
	Hour domain.Instant
	// Held is the part of the hour that Parts cover. Zero means the whole time in the hour during
	// which the description was valid.
	Held  domain.Interval
	Owner string // workspace that owned the cluster then, "" for none
	Parts []Part
}

// Part is GPU time of a node's hour in one state with one holder. Parts of one hour may repeat a
// key; they are added up.
type Part struct {
	Component Component // Allocated, BusyUnattributed, Idle, Unprovisioned, Failed, Maintenance or Unobserved
	// Workspace, Deployment and Unit (pod or job) identify the holder; empty without a holder.
	Workspace, Deployment, Unit string
	GPUMs                       int64 // milliseconds of whole GPUs
	// Micros are microseconds added to GPUMs: the rounding error of a share of a GPU. They may be
	// negative.
	Micros   int64
	UsefulMs int64 // GPUMs × activity, for the part that was measured while healthy
	KnownMs  int64 // the part of GPUMs with measured activity; at least UsefulMs is counted
	// HeldMs is how long the unit was on the node. CPUMilli and MemoryMiB are what it requests. If
	// one of them is a larger share of the node than its GPUs are, that share is its weight
	// (dominant share). 0: unknown.
	HeldMs    int64
	CPUMilli  uint64
	MemoryMiB uint64
}

// Commitment says who owns a contract.
type Commitment struct {
	ID     string
	Owners []domain.Share // add up to 1; none: the platform owns it
	// Hardware is what the contract is for, as far as it says so.
	Hardware Hardware
}

// Discount says who benefits from the savings of a floating commitment.
type Discount string

// The rules for floating discounts.
const (
	AsSupplied Discount = "as_supplied" // whoever the supplier applied it to
	// OwnersFirst gives the time that a commitment bought in a pool, hour by hour, first to the use
	// of the pool by the commitment's owners. Time that other lines bought is divided among the
	// remaining use. A line that buys nothing follows the lines that it belongs to. If it belongs
	// to none, such as a licence, it is divided as if no commitment had owners. The pool is all of
	// the account's nodes of a region and SKU, whether lines name them or not, except owned
	// hardware.
	OwnersFirst Discount = "owners_first"
	PoolRate    Discount = "pool_rate" // everyone in the pool pays one rate
)

// Policy holds the decisions about the division.
type Policy struct {
	Discount       Discount // "" means AsSupplied
	IdleToPlatform bool     // charge time without a known holder to the platform, not to the cluster's owner
}

// Invoice is a bill's total as received, independent of its lines.
type Invoice struct {
	Issuer, Account, ID string
	Currency            string
	Total               Amount
	Details             []InvoiceDetail // its breakdown, in any order
	Status              string          // Open, Issued, Voided
	Generated           bool
}

// Cuts returns the times within an hour of a node, ascending, at which a charge that may be for the
// node begins or ends. Usually there are none. It may be called until Usage returns. Its result is
// valid until the next call.
type Cuts func(node int, hour domain.Instant) []domain.Instant

// OtherID is a further resource id under which a bill may name a machine: the id of the same
// hardware under another name. It counts if no line that may buy machines names the node's own id.
type OtherID struct {
	Node              int // index into Input.Nodes
	Account, Resource string
}

// Input is the input of a division.
type Input struct {
	// Lines calls yield with every line once, in any order, until yield returns an error. The line
	// is reused after yield returns.
	Lines func(yield func(*Line) error) error
	// About is how many lines there are, if that is known: memory for so many is taken at once.
	About int
	Nodes []Node
	// Usage calls yield with the hours that overlap any of the spans, by cluster, node, hour and
	// time within the hour. Spans are ascending and disjoint. Usage MUST split an hour of a node at
	// each of its [Cuts]. The hour is reused after yield returns.
	Usage func(spans []domain.Interval, cuts Cuts, yield func(*NodeHour) error) error
	// Known reports whether a resource id of an account names a machine that is missing in Nodes
	// because it was in service at other times only. It may be nil.
	Known func(account, resource string) bool
	// Also lists further resource ids of Nodes, in any order.
	Also        []OtherID
	Commitments []Commitment
	// Rules are those that share lines, and those for tax, in any order. Others are ignored.
	Rules    []MeterRule
	Invoices []Invoice
	Policy   Policy
	// Trace names the allocation that [Result.Trace] explains; nil for none.
	Trace *Ref
}

// Allocation is one line's part for one hour, workspace, cluster, deployment and component. Weight
// and Of explain it: it gets Weight/Of of both amounts of the line, rounded cumulatively. Of a line of tax, the
// [TaxRecoverable] part gets Weight/Of of the billed amount, rounded down, and the others share the rest.
type Allocation struct {
	Line        *Line
	Hour        domain.Instant // start of the UTC hour; 0: the whole charge period
	Workspace   string         // or one of the platform's accounts
	Cluster     string
	Deployment  string
	Component   Component
	MatchMethod MatchMethod
	// Hardware describes the machines that have a weight in the allocation. For a line that follows
	// others, it describes the machines of those lines.
	Hardware Hardware

	Billed, Effective Amount
	// Weight is this allocation's part of Of. It is GPU milliseconds (to the microsecond), an
	// owner's share, or money for a line that follows others (then the weights of Billed). If some of a line of tax is
	// recoverable, it is Billed, and Of is that of the line.
	Weight, Of Amount
	// GPU time in milliseconds. BoughtMs is what the line bought. It is 0 for lines that buy no
	// time, that do not state how much, or that are for unknown machines, whether their unit is
	// machine time or GPU time. MeasuredMs is the part of AllocatedMs with measured activity.
	// UsefulMs is a part of MeasuredMs.
	BoughtMs, AllocatedMs, UsefulMs, MeasuredMs int64

	// Holders are the units that held it and the machines that it was on, and their weights; see [Allocation.Divide].
	// They are valid after the call that was given the allocation, and never change.
	Holders *Holders `json:"-"`
}
