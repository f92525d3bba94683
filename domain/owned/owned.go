// Package owned computes the monthly internal invoices of owned hardware.
//
// Hardware that a company owns sends no bill. [Bill] makes one for each asset and month,
// from the register of assets, metered energy and what a site charges. Its lines have the
// columns of a supplier's bill, so they are imported, matched, divided and reconciled like
// one.
//
// What always holds:
//
//   - Over its life an asset is charged its price less its residual value, impairment and
//     disposal included, to the last minor unit.
//   - The lines of an asset add up to its invoice in every month.
//   - A revision changes what comes after it and nothing before it.
//   - Equal input gives equal lines, in equal order.
//   - Nothing is guessed. What lacks a tariff, a currency or a place is a [Problem].
//
// # Depreciation
//
// Straight line over months: every full month of the life carries the same part, whatever
// its days. The part of a month that begins or ends within it is by its time. A [Convention]
// says when the life begins. A revision of life or residual value spreads what is left over
// the months that are left (IAS 16.51, IAS 8.32–8.38), never more than is left, and nothing
// while the residual value is above the carrying amount (IAS 16.54). An impairment is charged
// in its month (IAS 16.63). A disposal ends depreciation (IAS 16.55), and charges what the
// proceeds are below the carrying amount, or credits what they are above it (IAS 16.71).
//
// # Power
//
// Metered watt-hours × the site's price of a kilowatt-hour × its power usage effectiveness
// (PUE, ISO/IEC 30134-2). A meter of several nodes is shared in proportion to their nameplate
// power, else evenly. Several meters of a node add up: machines have several feeds. For time
// without a reading, the nameplate power is charged on a line of its own, marked as estimated.
package owned

import (
	"math/big"

	"quartermaster/domain"
)

// Node is a machine of an asset.
type Node struct {
	Name     string
	Account  string // billing account
	Resource string // as bills name it
	Region   string
	GPUs     int
}

// Asset is owned hardware as the register of assets knows it. It is of one cluster.
type Asset struct {
	Cluster string
	ID      string
	// Ledger is its reference in the general ledger or the register of fixed assets, "" for none.
	Ledger string
	// Nodes are its machines. Without any it is shared equipment of the cluster, such as a switch.
	Nodes      []Node
	Account    string // of the cluster
	Provider   string // of the cluster
	Region     string // of the cluster
	Capex      domain.Money
	Residual   domain.Money
	InService  domain.Instant
	Convention Convention // when its depreciation begins; "": that of [Rules]
	LifeMonths uint32
	PowerWatts uint64 // nameplate, of the whole asset
	Site       string
	SpaceUnits uint32 // rack units
	Revisions  []Revision
	Disposal   *Disposal // nil while it is on the books
}

// Revision changes an asset from a time on.
type Revision struct {
	From       domain.Instant
	LifeMonths uint32       // since it came into service; 0: as before
	Residual   domain.Money // at the new end of its life; without a currency: as before
	Impairment domain.Money // written off at once, zero for none
	Reason     string
}

// Disposal takes an asset off the books.
type Disposal struct {
	At       domain.Instant
	Proceeds domain.Money
}

// Reading is what a power meter counted in an interval.
type Reading struct {
	Cluster   string
	Meter     string
	Nodes     []string
	Interval  domain.Interval
	WattHours domain.Decimal
}

// Tariff is what a site charges from a time on, until the site's next tariff.
type Tariff struct {
	Operator, Site string
	From           domain.Instant
	PerKWh         domain.Money
	PUE            domain.Decimal // 0: 1
	Rates          []domain.SiteRate
}

// Convention says when depreciation begins and when a disposal ends it. All conventions agree on an
// instant that begins a month.
type Convention string

// The conventions.
const (
	Daily     Convention = "daily"      // at the instant that it comes into service or is disposed of
	FullMonth Convention = "full_month" // at the beginning of that month
	HalfMonth Convention = "half_month" // in the middle of that month
	NextMonth Convention = "next_month" // at the end of that month
)

// Rules are a company's accounting policies for owned hardware.
type Rules struct {
	Convention Convention // "": Daily
	// CapitalRate is the annual cost of capital on the carrying amount at the beginning of a
	// month. A month in service is a twelfth of a year. Null charges none.
	CapitalRate domain.NullDecimal
}

// Problem is something of an asset that could not be charged, or is doubtful.
type Problem struct {
	Kind    ProblemKind
	Subject string // cluster/asset
	Detail  string
}

// ProblemKind names a kind of problem.
type ProblemKind string

// The kinds of problems.
const (
	NoTariff      ProblemKind = "no_tariff"         // no price for its site: power and site costs are not charged
	NoPower       ProblemKind = "no_power"          // no reading and no nameplate: power is not charged
	AboveRated    ProblemKind = "above_nameplate"   // meters count more than the nameplate allows: charged as metered
	NoNode        ProblemKind = "no_node"           // a node of it is not registered: its part goes to nobody's machine
	NodeOfSeveral ProblemKind = "node_of_several"   // two assets name one node: both are charged to it, its power once
	OtherCurrency ProblemKind = "other_currency"    // an amount that is not in the currency of the asset: not charged
	LateRevision  ProblemKind = "revision_ignored"  // before service, or after disposal: not applied
	BeforeService ProblemKind = "disposal_ignored"  // a disposal before service: not applied
	TooImpaired   ProblemKind = "impairment_capped" // more than the carrying amount: only that is charged
	// OverlappingReadings are of one meter. The subject is cluster/meter.
	OverlappingReadings ProblemKind = "overlapping_readings"
)

// Invoice is an internal invoice of an asset for a month, in one currency.
type Invoice struct {
	Issuer, Account, ID string
	Asset, Cluster      string
	Ledger              string
	Total               domain.Money
	Details             []domain.InvoiceDetail // by component
	Lines               []domain.BillingLine
	// Carrying is the carrying amount at the end of the month. Set only in the asset's currency.
	Carrying domain.Money
}

// rat is an exact number. Amounts are exact until a line is rounded to minor units.
type rat = big.Rat

func ratOf(d domain.Decimal) *rat { return d.Rat() }

func frac(a, b int64) *rat { return big.NewRat(a, b) }

func sum(a, b *rat) *rat { return new(rat).Add(a, b) }

func less(a, b *rat) *rat { return new(rat).Sub(a, b) }

func times(a, b *rat) *rat { return new(rat).Mul(a, b) }

func ratio(a, b *rat) *rat { return new(rat).Quo(a, b) }

func lower(a, b *rat) *rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func higher(a, b *rat) *rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}
