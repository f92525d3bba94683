package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Machine is a node as its supplier knows it.
type Machine struct {
	Cluster, Node string
	ResourceID    string // on the bill; unused for spot, which is billed by pool
	SKU, Region   string
	GPUs          int
	Service       domain.Interval
}

// name identifies a machine within an account.
func (m Machine) name() string { return m.Cluster + "/" + m.Node }

// Outage is a time in which a machine was broken and for which the supplier gives credit.
type Outage struct {
	Node int // index into Estate.Nodes
	Time domain.Interval
}

// Estate is what one supplier bills to one account for one month, and the terms. [Estate.Lines]
// produces the bill day by day and machine by machine. [Estate.Invoices] computes the amount due
// from the terms, without looking at a line. The two agree to the cent, which makes the pair a test
// of programs that read bills.
//
// The terms, as in a contract:
//
//   - Time is metered in hundredths of an hour of UTC, rounded up.
//   - Committed units are paid for every hour of the month in one recurring fee, used or not. They
//     cover the first Reserved nodes.
//   - The last Spot nodes are billed at the spot price, by region and SKU, without resource ids.
//     The nodes in between are billed on demand, and so is Stray.
//   - An outage is credited at the price of the machine's class for the time in which the machine
//     was in service.
//   - Support is a fee, network traffic a number of gigabytes a day, the promotion a fixed credit.
//   - Each detail of the invoice is rounded to cents, half away from zero. Tax is a rate on the sum
//     of the rounded details.
type Estate struct {
	Issuer   string // InvoiceIssuerName
	Provider string // ServiceProviderName and HostProviderName
	Account  string
	Currency string          // ISO 4217
	Period   domain.Interval // a calendar month, UTC

	Nodes    []Machine
	Reserved int // number of first Nodes
	Spot     int // number of last Nodes

	CommitmentID string
	Committed    int // units like the first of Nodes; at least Reserved

	// Per machine and hour. No amount here is negative or has more than nine decimals, and
	// EgressGBPerDay has at most two, so no line needs more than eleven.
	OnDemandHourly, ReservedHourly, SpotHourly domain.Decimal

	Outages []Outage // disjoint for one node; none of a spot node

	// Stray is a machine that is billed but unknown to the fleet; none if its Service is empty.
	Stray Machine

	Support         domain.Decimal // per month
	EgressGBPerDay  domain.Decimal
	EgressPerGB     domain.Decimal
	PromotionCredit domain.Decimal // per month, positive
	TaxRate         domain.Decimal // 0.19 is 19 %; 0 for none
}

// meterUnit is the unit of billed time: a hundredth of an hour.
const meterUnit = domain.Hour / 100

// metered returns an interval as the supplier's meter sees it within a period.
func metered(i, period domain.Interval) domain.Interval {
	if i.Empty() {
		return domain.Interval{}
	}
	from := i.From - ((i.From%meterUnit)+meterUnit)%meterUnit
	to := i.To + (meterUnit-i.To%meterUnit)%meterUnit
	return domain.Interval{From: from, To: to}.Intersect(period)
}

// hours is the length of a metered interval.
func hours(i domain.Interval) domain.Decimal {
	return decimal.New(int64(i.Length()/meterUnit), -2)
}

// cents rounds an amount as an invoice shows it.
func cents(d domain.Decimal) domain.Decimal { return d.Round(2) }

// class is how a node is billed.
type class uint8

const (
	committed class = iota
	onDemand
	spot
)

func (e *Estate) class(node int) class {
	switch {
	case node < e.Reserved:
		return committed
	case node >= len(e.Nodes)-e.Spot:
		return spot
	default:
		return onDemand
	}
}

func (e *Estate) price(c class) domain.Decimal {
	switch c {
	case committed:
		return e.ReservedHourly
	case spot:
		return e.SpotHourly
	default:
		return e.OnDemandHourly
	}
}

// detail is a row of the invoice's breakdown: its name and kind of charge.
type detail struct {
	id, category, description string
}

// The details in the order of the invoice.
var (
	detailCommitment = detail{"commitment", "Purchase", "committed machines, monthly fee"}
	detailOnDemand   = detail{"on-demand", "Usage", "machines on demand"}
	detailSpot       = detail{"spot", "Usage", "spot machines"}
	detailSupport    = detail{"support", "Purchase", "support, monthly fee"}
	detailNetwork    = detail{"network", "Usage", "network traffic out"}
	detailService    = detail{"service-credit", "Credit", "credit for machines that failed"}
	detailPromotion  = detail{"promotion", "Credit", "promotional credit"}
	detailTax        = detail{"tax", "Tax", "tax"}

	taxedDetails = []detail{
		detailCommitment, detailOnDemand, detailSpot, detailSupport, detailNetwork, detailService, detailPromotion,
	}
)

// invoiceID names the one invoice of the month, marked as generated.
func (e *Estate) invoiceID() string {
	return "gen-" + e.Account + "-" + e.Period.From.Time().Format("200601")
}

// check refuses terms that are meaningless or cannot be billed exactly.
func (e *Estate) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("estate of account %q: "+format, append([]any{e.Account}, args...)...)
	}
	if e.Issuer == "" || e.Provider == "" || e.Account == "" || e.Currency == "" {
		return bad("issuer %q, provider %q, account and currency %q must be given", e.Issuer, e.Provider, e.Currency)
	}
	from := e.Period.From.Time()
	month := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC)
	if e.Period != (domain.Interval{From: domain.InstantOf(month), To: domain.InstantOf(month.AddDate(0, 1, 0))}) {
		return bad("period %s to %s is no month of UTC", e.Period.From, e.Period.To)
	}
	if e.Reserved < 0 || e.Spot < 0 || e.Reserved+e.Spot > len(e.Nodes) {
		return bad("%d reserved and %d spot of %d nodes", e.Reserved, e.Spot, len(e.Nodes))
	}
	if e.Committed < e.Reserved || e.Committed > 0 && e.CommitmentID == "" {
		return bad("%d units of commitment %q for %d reserved nodes", e.Committed, e.CommitmentID, e.Reserved)
	}
	for _, term := range []struct {
		name   string
		amount domain.Decimal
		digits int32 // number of decimals
	}{
		{"on-demand price", e.OnDemandHourly, 9},
		{"reserved price", e.ReservedHourly, 9},
		{"spot price", e.SpotHourly, 9},
		{"support", e.Support, 9},
		{"egress", e.EgressGBPerDay, 2},
		{"egress price", e.EgressPerGB, 9},
		{"promotion", e.PromotionCredit, 9},
		{"tax rate", e.TaxRate, 9},
	} {
		if term.amount.IsNegative() || term.amount.Exponent() < -term.digits {
			return bad("%s %s is negative or has more than %d digits behind the point", term.name, term.amount, term.digits)
		}
	}
	return e.checkNodes(bad)
}

func (e *Estate) checkNodes(bad func(string, ...any) error) error {
	nodes, resources := map[string]bool{}, map[string]bool{}
	billed := slices.Clone(e.Nodes)
	if !e.Stray.Service.Empty() {
		billed = append(billed, e.Stray)
	}
	for i, m := range billed {
		stray := i == len(e.Nodes)
		name := m.name()
		switch {
		case m.Node == "" || m.SKU == "" || m.Region == "":
			return bad("node %q with SKU %q in region %q: each must be given", m.Node, m.SKU, m.Region)
		case nodes[name]:
			return bad("node %s is there twice", name)
		case m.ResourceID != "" && resources[m.ResourceID]:
			return bad("resource %q is there twice", m.ResourceID)
		case m.ResourceID == "" && (stray || e.class(i) != spot):
			return bad("node %s is billed by resource and has none", name)
		}
		nodes[name], resources[m.ResourceID] = true, true
	}
	for i, o := range e.Outages {
		if o.Node < 0 || o.Node >= len(e.Nodes) || e.class(o.Node) == spot {
			return bad("outage %d is of node %d, which is none or spot", i, o.Node)
		}
		for _, other := range e.Outages[:i] {
			if other.Node == o.Node && !metered(o.Time, e.Period).Intersect(metered(other.Time, e.Period)).Empty() {
				return bad("outages of node %d overlap", o.Node)
			}
		}
	}
	return nil
}
