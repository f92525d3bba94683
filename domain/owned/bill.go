package owned

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Input is what invoices are computed from.
type Input struct {
	Assets   []Asset
	Readings []Reading
	Tariffs  []Tariff
	Rules    Rules
}

// What a line is for. It is the InvoiceDetailId of its invoice row and a part of its id.
const (
	Depreciation   = "depreciation"
	Impairment     = "impairment"
	DisposalResult = "disposal" // the carrying amount less the proceeds
	CapitalCost    = "capital"
	Power          = "power"
	PowerEstimated = "power-estimated" // from the nameplate
)

// meters are names of what lines are for, as people read them.
var meters = map[string]string{
	Depreciation: "Depreciation", Impairment: "Impairment", DisposalResult: "Disposal", CapitalCost: "Cost of capital",
	Power: "Power, metered", PowerEstimated: "Power, estimated from the nameplate",
}

// Bill returns the invoices of a calendar month in UTC, by cluster, asset, account and currency,
// and what could not be charged.
func Bill(in *Input, month domain.Interval) ([]Invoice, []Problem) {
	b := &biller{in: in, month: month, length: frac(int64(month.Length()), 1), tariffs: tariffsOf(in.Tariffs)}
	assets := slices.Clone(in.Assets)
	slices.SortFunc(assets, func(x, y Asset) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.ID, y.ID))
	})
	b.meter(assets)
	var all []Invoice
	for i := range assets {
		all = append(all, b.asset(&assets[i])...)
	}
	slices.SortFunc(b.problems, func(x, y Problem) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Detail, y.Detail))
	})
	return all, slices.Compact(b.problems)
}

type biller struct {
	in       *Input
	month    domain.Interval
	length   *rat // of the month, in nanoseconds
	tariffs  map[string][]Tariff
	readings map[nodeName][]share
	owner    map[nodeName]string // the asset that is charged for the power of a node
	problems []Problem
}

// line is a charge before it is rounded.
type line struct {
	node      int // index into the nodes of the asset, -1 for none
	what      string
	currency  string
	amount    *rat
	consumed  *rat // kWh at the machine
	priced    *rat // kWh at the site
	describes string
}

func (b *biller) asset(a *Asset) []Invoice {
	except := func(kind ProblemKind, format string, args ...any) {
		b.problems = append(b.problems, Problem{kind, a.Cluster + "/" + a.ID, fmt.Sprintf(format, args...)})
	}
	service := a.service(b.month)
	if service.Empty() && !b.disposed(a) {
		return nil
	}
	for i := range a.Nodes {
		if a.Nodes[i].Resource == "" {
			except(NoNode, "node %s is not registered", a.Nodes[i].Name)
		}
	}
	lines := b.value(a, service, except)
	lines = append(lines, b.power(a, service, except)...)
	lines = append(lines, b.site(a, service, except)...)
	return b.invoices(a, service, lines)
}

// service returns when an asset is in service within a time.
func (a *Asset) service(within domain.Interval) domain.Interval {
	in := domain.Interval{From: a.InService, To: within.To}
	if d := a.Disposal; d != nil && d.At >= a.InService {
		in.To = min(in.To, d.At)
	}
	return in.Intersect(within)
}

// disposed reports whether the asset is disposed of in the month.
func (b *biller) disposed(a *Asset) bool {
	return a.Disposal != nil && a.Disposal.At >= a.InService && a.Disposal.At >= b.month.From && a.Disposal.At < b.month.To
}

// value returns depreciation, impairment, the result of a disposal and the cost of capital.
func (b *biller) value(a *Asset, service domain.Interval, except func(ProblemKind, string, ...any)) []line {
	s := scheduleOf(a, cmp.Or(a.Convention, b.in.Rules.Convention), except)
	from, to := monthOf(b.month.From), monthOf(b.month.To)
	currency := a.Capex.Currency
	// Rounding what was depreciated until then makes the months add up to the whole.
	charge := less(ratOf(minor(s.depreciated(to), currency)), ratOf(minor(s.depreciated(from), currency)))
	number := sum(floor(higher(less(from, floor(s.begins)), new(rat))), frac(1, 1))
	lines := b.over(a, line{
		what: Depreciation, currency: currency, amount: charge,
		describes: fmt.Sprintf("Straight-line depreciation, month %s of %d", number.RatString(), a.life(b.month.To)),
	})
	impaired, reasons := new(rat), []string{}
	for _, l := range s.losses {
		if l.at >= b.month.From && l.at < b.month.To {
			impaired = sum(impaired, ratOf(minor(l.amount, currency)))
			if l.reason != "" {
				reasons = append(reasons, l.reason)
			}
		}
	}
	if impaired.Sign() > 0 {
		lines = append(lines, b.over(a, line{
			what: Impairment, currency: currency, amount: impaired,
			describes: strings.TrimSuffix("Impairment: "+strings.Join(reasons, "; "), ": "),
		})...)
	}
	if b.disposed(a) {
		left := b.left(a, s)
		if !other(a.Capex, a.Disposal.Proceeds) {
			left = less(left, ratOf(a.Disposal.Proceeds.Amount))
		}
		lines = append(lines, b.over(a, line{
			what: DisposalResult, currency: currency, amount: ratOf(minor(left, currency)),
			describes: fmt.Sprintf("Disposal: carrying amount less proceeds of %s", a.Disposal.Proceeds),
		})...)
	}
	if rate := b.in.Rules.CapitalRate; rate.Valid {
		capital := times(s.carrying(higher(from, s.begins)), times(ratOf(rate.Decimal), frac(1, 12)))
		capital = times(capital, ratio(frac(int64(service.Length()), 1), b.length))
		lines = append(lines, b.over(a, line{
			what: CapitalCost, currency: currency, amount: ratOf(minor(capital, currency)),
			describes: fmt.Sprintf("Cost of capital at %s a year", rate.Decimal),
		})...)
	}
	return lines
}

// left returns the carrying amount at the end of the month: the price less what was charged. It ends
// with a disposal only by the line for it.
func (b *biller) left(a *Asset, s *schedule) *rat {
	currency := a.Capex.Currency
	left := less(ratOf(a.Capex.Amount), ratOf(minor(s.depreciated(monthOf(b.month.To)), currency)))
	for _, l := range s.losses {
		if l.at < b.month.To {
			left = less(left, ratOf(minor(l.amount, currency)))
		}
	}
	return left
}

// life returns the months of life that are in effect at the end of a month.
func (a *Asset) life(until domain.Instant) uint32 {
	life, since := a.LifeMonths, domain.Instant(0)
	for _, r := range a.Revisions {
		if r.LifeMonths > 0 && r.From < until && r.From >= since && r.From >= a.InService {
			life, since = r.LifeMonths, r.From
		}
	}
	return life
}

// over spreads a charge of an asset over its nodes by their GPUs, else evenly.
func (b *biller) over(a *Asset, l line) []line {
	if len(a.Nodes) == 0 {
		l.node = -1
		return []line{l}
	}
	lines := make([]line, len(a.Nodes))
	for i := range a.Nodes {
		lines[i] = l
		lines[i].node, lines[i].amount = i, times(l.amount, a.weight(i))
	}
	return lines
}

// weight returns a node's part of its asset: by GPUs if all have some, else evenly.
func (a *Asset) weight(i int) *rat {
	var gpus int64
	for j := range a.Nodes {
		if a.Nodes[j].GPUs == 0 {
			return frac(1, int64(len(a.Nodes)))
		}
		gpus += int64(a.Nodes[j].GPUs)
	}
	return frac(int64(a.Nodes[i].GPUs), gpus)
}

// site returns what a site charges besides power.
func (b *biller) site(a *Asset, service domain.Interval, except func(ProblemKind, string, ...any)) []line {
	type of struct{ cost, currency string }
	sums := map[of]*rat{}
	var order []of
	for _, t := range b.during(a, service, nil) {
		for _, r := range t.Rates {
			units := a.units(r.Per)
			if units == 0 || r.Price.Amount.IsZero() {
				continue
			}
			part := ratio(frac(int64(t.within.Length()), 1), b.length)
			at := of{r.Cost, r.Price.Currency}
			if sums[at] == nil {
				sums[at] = new(rat)
				order = append(order, at)
			}
			sums[at] = sum(sums[at], times(times(ratOf(r.Price.Amount), part), frac(int64(units), 1)))
		}
	}
	slices.SortFunc(order, func(x, y of) int { return cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(x.currency, y.currency)) })
	var lines []line
	for _, at := range order {
		lines = append(lines, b.over(a, line{
			what: at.cost, currency: at.currency, amount: ratOf(minor(sums[at], at.currency)),
			describes: fmt.Sprintf("%s of site %s", at.cost, a.Site),
		})...)
	}
	return lines
}

// units returns how many of a unit an asset has.
func (a *Asset) units(per domain.RatePer) uint64 {
	switch per {
	case domain.PerAsset:
		return 1
	case domain.PerRackUnit:
		return uint64(a.SpaceUnits)
	case domain.PerNode:
		return uint64(len(a.Nodes))
	case domain.PerGPU:
		n := 0
		for i := range a.Nodes {
			n += a.Nodes[i].GPUs
		}
		return uint64(n)
	}
	return 0
}

// invoices rounds lines and groups them by account and currency.
func (b *biller) invoices(a *Asset, service domain.Interval, lines []line) []Invoice {
	month := b.month.From.Time().Format("2006-01")
	var all []Invoice
	at := map[[2]string]int{}
	rounded := b.round(lines)
	for i := range lines {
		l := &lines[i]
		node := Node{Account: a.Account, Region: a.Region}
		if l.node >= 0 {
			node = a.Nodes[l.node]
		}
		account := cmp.Or(node.Account, a.Account)
		id := a.Cluster + "/" + a.ID + "/" + month
		if l.currency != a.Capex.Currency {
			id += "/" + l.currency
		}
		key := [2]string{account, l.currency}
		n, ok := at[key]
		if !ok {
			n = len(all)
			at[key] = n
			all = append(all, Invoice{
				Issuer: a.Provider, Account: account, ID: id, Asset: a.ID, Cluster: a.Cluster, Ledger: a.Ledger,
				Total: domain.Money{Currency: l.currency},
			})
		}
		inv := &all[n]
		amount := rounded[i]
		if amount.IsZero() && (l.what != Depreciation || service.Empty()) {
			continue
		}
		inv.add(l, amount)
		inv.Lines = append(inv.Lines, b.billingLine(a, inv, &node, service, l, amount))
	}
	all = slices.DeleteFunc(all, func(inv Invoice) bool { return len(inv.Lines) == 0 })
	slices.SortFunc(all, func(x, y Invoice) int {
		return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.ID, y.ID))
	})
	s := scheduleOf(a, cmp.Or(a.Convention, b.in.Rules.Convention), func(ProblemKind, string, ...any) {})
	for i := range all {
		if all[i].Total.Currency == a.Capex.Currency {
			carrying := minor(b.left(a, s), a.Capex.Currency)
			if b.disposed(a) {
				carrying = domain.Decimal{}
			}
			all[i].Carrying = domain.Money{Amount: carrying, Currency: a.Capex.Currency}
		}
	}
	return all
}

// add adds an amount to the invoice and its row.
func (inv *Invoice) add(l *line, amount domain.Decimal) {
	inv.Total.Amount = inv.Total.Amount.Add(amount)
	for i := range inv.Details {
		if d := &inv.Details[i]; d.InvoiceDetailID == l.what {
			d.BilledCost = d.BilledCost.Add(amount)
			return
		}
	}
	inv.Details = append(inv.Details, domain.InvoiceDetail{
		InvoiceDetailID: l.what, ChargeCategory: "Usage", BilledCost: amount, Description: l.describes,
	})
}

// round rounds lines to minor units so that those for the same thing in the same currency add up to
// their rounded sum.
func (b *biller) round(lines []line) []domain.Decimal {
	out := make([]domain.Decimal, len(lines))
	type of struct{ what, currency string }
	exact, done := map[of]*rat{}, map[of]domain.Decimal{}
	for i := range lines {
		l := &lines[i]
		at := of{l.what, l.currency}
		if exact[at] == nil {
			exact[at] = new(rat)
		}
		exact[at] = sum(exact[at], l.amount)
		until := minor(exact[at], l.currency)
		out[i] = until.Sub(done[at])
		done[at] = until
	}
	return out
}

// Our columns of a line.
const (
	ColumnAsset     = "x_AssetId" // cluster/asset
	ColumnLedger    = "x_GeneralLedgerReference"
	ColumnEstimated = "x_Estimated"
	// ColumnRevision is set by whoever issues the bill, on a line that was issued otherwise before. It
	// makes a bill that goes back to what an earlier one said another bill.
	ColumnRevision = "x_Revision"
	columnBilling  = "x_BillingModel"
)

// Columns are the columns of lines that FOCUS does not define.
func Columns() []string {
	return []string{ColumnAsset, ColumnLedger, ColumnEstimated, ColumnRevision, columnBilling}
}

func (b *biller) billingLine(a *Asset, inv *Invoice, node *Node, service domain.Interval, l *line, amount domain.Decimal) domain.BillingLine {
	inService := !service.Empty()
	if !inService {
		service = b.month // what is left of it is written off after its last hour
	}
	valid := func(d domain.Decimal) domain.NullDecimal { return domain.NullDecimal{Decimal: d, Valid: true} }
	id := []string{inv.ID, l.what}
	if node.Name != "" {
		id = append(id, node.Name)
	}
	out := domain.BillingLine{
		LineID: strings.Join(id, "/"), InvoiceID: inv.ID, InvoiceDetailID: l.what,
		InvoiceIssuerName: a.Provider, ServiceProviderName: a.Provider, HostProviderName: a.Provider,
		BillingAccountID: inv.Account, BillingCurrency: l.currency,
		BillingPeriodStart: b.month.From, BillingPeriodEnd: b.month.To,
		ChargePeriodStart: service.From, ChargePeriodEnd: service.To,
		ChargeCategory: "Usage", ChargeFrequency: "Recurring", ChargeDescription: l.describes,
		BilledCost: amount, EffectiveCost: valid(amount), ListCost: valid(amount), ContractedCost: valid(amount),
		ServiceCategory: "Compute", ServiceName: "Owned hardware", SKUMeter: cmp.Or(meters[l.what], l.what),
		RegionID: cmp.Or(node.Region, a.Region), FocusVersion: "1.4",
		Other: map[string]string{ColumnAsset: a.Cluster + "/" + a.ID},
	}
	if a.Ledger != "" {
		out.Other[ColumnLedger] = a.Ledger
	}
	if l.what == PowerEstimated {
		out.Other[ColumnEstimated] = "true"
	}
	if l.node < 0 {
		// Shared equipment has no machine, and is divided among all of the account.
		out.ServiceCategory = "Other"
		return out
	}
	out.Other[columnBilling] = string(domain.BillingOwned)
	out.ResourceID, out.ResourceName, out.ResourceType = cmp.Or(node.Resource, node.Name), node.Name, "Instance"
	switch {
	case l.what == Depreciation && inService:
		// Depreciation buys the machine's time, even after the end of its life, when it costs nothing.
		out.PricingQuantity, out.PricingUnit = valid(decimalOf(hours(service), 9)), "Instance-Hours"
		out.ConsumedQuantity, out.ConsumedUnit = out.PricingQuantity, out.PricingUnit
	case l.consumed != nil:
		out.ConsumedQuantity, out.ConsumedUnit = valid(decimalOf(l.consumed, 9)), "kWh"
		out.PricingQuantity, out.PricingUnit = valid(decimalOf(l.priced, 9)), "kWh"
	}
	return out
}

func hours(i domain.Interval) *rat { return frac(int64(i.Length()), int64(domain.Hour)) }
