package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Lines calls yield with every line of the month's bill in the columns of FOCUS 1.4 Cost and Usage,
// until yield returns an error, which Lines returns. The line is reused for the next one: yield
// MUST copy what it keeps.
//
// Machines have one line for each day in service, spot pools one for each day, region and SKU. Days
// are in order; monthly items come after them. The fee of the commitment is a purchase with an
// effective cost of zero. Its use has a billed cost of zero, and used and unused hours add up to
// the fee. A last line of each detail rounds the sum of its lines to whole cents.
func (e *Estate) Lines(yield func(*domain.BillingLine) error) error {
	if err := e.check(); err != nil {
		return err
	}
	b := &bill{Estate: e, yield: yield, sums: map[string]domain.Decimal{}}
	for day := e.Period.From; day < e.Period.To; day += domain.Day {
		b.day(domain.Interval{From: day, To: day + domain.Day})
	}
	b.monthly()
	b.round(taxedDetails...)
	b.tax()
	b.round(detailTax)
	return b.err
}

// bill is one run of Lines.
type bill struct {
	*Estate
	yield func(*domain.BillingLine) error
	line  domain.BillingLine
	sums  map[string]domain.Decimal // billed so far, by detail
	err   error
}

// day writes the lines of metered charges.
func (b *bill) day(day domain.Interval) {
	used := decimal.Zero
	pools := map[pool]domain.Decimal{} // hours
	for i, m := range b.Nodes {
		inUse := hours(metered(m.Service, b.Period).Intersect(day))
		if inUse.IsZero() {
			continue
		}
		switch b.class(i) {
		case committed:
			used = used.Add(inUse)
			b.usage(detailCommitment, day, m, inUse, b.ReservedHourly)
			b.commitment("Used", inUse)
			b.line.BilledCost = decimal.Zero
			b.emit(detailCommitment, m.name())
		case onDemand:
			b.usage(detailOnDemand, day, m, inUse, b.OnDemandHourly)
			b.emit(detailOnDemand, m.name())
		case spot:
			p := pool{m.Region, m.SKU}
			pools[p] = pools[p].Add(inUse)
		}
	}
	if inUse := hours(metered(b.Stray.Service, b.Period).Intersect(day)); !inUse.IsZero() {
		b.usage(detailOnDemand, day, b.Stray, inUse, b.OnDemandHourly)
		b.emit(detailOnDemand, b.Stray.name())
	}
	b.spotPools(day, pools)
	b.unused(day, hours(day).Mul(decimal.New(int64(b.Committed), 0)).Sub(used))
	b.network(day)
}

// pool is the unit in which spot machines are billed.
type pool struct{ region, sku string }

func (b *bill) spotPools(day domain.Interval, pools map[pool]domain.Decimal) {
	order := slices.SortedFunc(maps.Keys(pools), func(p, q pool) int {
		return cmp.Or(strings.Compare(p.region, q.region), strings.Compare(p.sku, q.sku))
	})
	for _, p := range order {
		b.usage(detailSpot, day, Machine{Region: p.region, SKU: p.sku}, pools[p], b.SpotHourly)
		b.line.PricingCategory = "Dynamic"
		b.emit(detailSpot, p.region+" "+p.sku)
	}
}

// unused writes the part of the commitment that no machine used on a day.
func (b *bill) unused(day domain.Interval, left domain.Decimal) {
	if left.IsZero() {
		return
	}
	of := Machine{SKU: b.CommitmentID}
	if len(b.Nodes) > 0 {
		of = Machine{SKU: b.Nodes[0].SKU, Region: b.Nodes[0].Region}
	}
	b.usage(detailCommitment, day, of, left, b.ReservedHourly)
	b.commitment("Unused", left)
	b.line.ChargeDescription = "committed machines, unused"
	b.line.BilledCost = decimal.Zero
	// Nothing was consumed.
	b.line.ConsumedQuantity, b.line.ConsumedUnit = domain.NullDecimal{}, ""
	b.emit(detailCommitment, "unused")
}

func (b *bill) network(day domain.Interval) {
	amount := b.EgressGBPerDay.Mul(b.EgressPerGB)
	if amount.IsZero() {
		return
	}
	b.begin(detailNetwork, day, amount)
	b.line.ChargeFrequency = "Usage-Based"
	b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "Network", "Networking", "Network Infrastructure"
	b.priced("egress", b.EgressGBPerDay, "GB", b.EgressPerGB)
	b.line.PricingCategory = "Standard"
	b.line.ConsumedQuantity, b.line.ConsumedUnit = decimal.NewNullDecimal(b.EgressGBPerDay), "GB"
	b.emit(detailNetwork, "egress")
}

// monthly writes the fees and credits.
func (b *bill) monthly() {
	if units := hours(b.Period).Mul(decimal.New(int64(b.Committed), 0)); !units.IsZero() {
		b.begin(detailCommitment, b.Period, units.Mul(b.ReservedHourly))
		b.line.ChargeFrequency = "Recurring"
		b.compute()
		b.priced("commitment", units, "Hours", b.ReservedHourly)
		b.line.PricingCategory = "Standard"
		b.line.ResourceID, b.line.ResourceType = b.CommitmentID, "Commitment"
		b.commitment("", units)
		b.effective(decimal.Zero)
		b.emit(detailCommitment, "fee")
	}
	if !b.Support.IsZero() {
		b.begin(detailSupport, b.Period, b.Support)
		b.line.ChargeFrequency = "Recurring"
		b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "Support",
			"Management and Governance", "Support"
		b.priced("support", decimal.New(1, 0), "Months", b.Support)
		b.line.PricingCategory = "Standard"
		b.emit(detailSupport, "fee")
	}
	for i, o := range b.Outages {
		m := b.Nodes[o.Node]
		down := metered(o.Time, b.Period).Intersect(metered(m.Service, b.Period))
		amount := hours(down).Mul(b.price(b.class(o.Node))).Neg()
		if down.Empty() || amount.IsZero() {
			continue
		}
		b.begin(detailService, down, amount)
		b.line.ChargeFrequency = "One-Time"
		b.compute()
		b.machine(m)
		b.emit(detailService, fmt.Sprintf("%s outage %d", m.name(), i+1))
	}
	if !b.PromotionCredit.IsZero() {
		b.begin(detailPromotion, b.Period, b.PromotionCredit.Neg())
		b.line.ChargeFrequency = "One-Time"
		b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "Promotion", "Other", "Other (Other)"
		b.emit(detailPromotion, "credit")
	}
}

// round writes a rounding line for each detail whose lines do not add up to whole cents.
func (b *bill) round(details ...detail) {
	for _, d := range details {
		sum := b.sums[d.id]
		if gap := cents(sum).Sub(sum); !gap.IsZero() {
			b.begin(d, b.Period, gap)
			b.line.ChargeCategory, b.line.ChargeFrequency = "Adjustment", "One-Time"
			b.line.ChargeDescription = "rounding of " + d.description
			b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "Rounding", "Other", "Other (Other)"
			b.emit(d, "rounding")
		}
	}
}

// tax writes a line for the tax on each detail.
func (b *bill) tax() {
	for _, d := range taxedDetails {
		amount := cents(b.sums[d.id]).Mul(b.TaxRate) // the sum is whole cents by now
		if amount.IsZero() {
			continue
		}
		b.begin(detailTax, b.Period, amount)
		b.line.ChargeFrequency = "One-Time"
		b.line.ChargeDescription = "tax on " + d.description
		b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "Tax", "Other", "Other (Other)"
		b.emit(detailTax, d.id)
	}
}

// begin starts a line with the fields common to all lines.
func (b *bill) begin(d detail, period domain.Interval, amount domain.Decimal) {
	b.line = domain.BillingLine{
		BilledCost:         amount,
		BillingAccountID:   b.Account,
		BillingAccountName: "generated account " + b.Account,
		BillingAccountType: "Account",
		BillingCurrency:    b.Currency,
		BillingPeriodStart: b.Period.From,
		BillingPeriodEnd:   b.Period.To,

		ChargeCategory:    d.category,
		ChargeDescription: d.description,
		ChargePeriodStart: period.From,
		ChargePeriodEnd:   period.To,

		ContractedCost:    decimal.NewNullDecimal(amount),
		ListCost:          decimal.NewNullDecimal(amount),
		PricingCurrency:   b.Currency,
		HostProviderName:  b.Provider,
		InvoiceDetailID:   b.invoiceID() + "-" + d.id,
		InvoiceID:         b.invoiceID(),
		InvoiceIssuerName: b.Issuer,

		ServiceProviderName: b.Provider,
		FocusVersion:        "1.4",
		Generated:           true,
	}
	b.effective(amount)
}

// usage starts a line for the hours of a machine, or of a pool of them.
func (b *bill) usage(d detail, day domain.Interval, m Machine, inUse, price domain.Decimal) {
	b.begin(d, day, inUse.Mul(price))
	b.line.ChargeCategory, b.line.ChargeFrequency = "Usage", "Usage-Based"
	b.compute()
	b.machine(m)
	list := price
	if d == detailCommitment {
		// What the hours would cost without the commitment.
		list = b.OnDemandHourly
	}
	b.priced(m.SKU, inUse, "Hours", list)
	b.line.PricingCategory = "Standard"
	b.line.ConsumedQuantity, b.line.ConsumedUnit = decimal.NewNullDecimal(inUse), "Hours"
}

func (b *bill) compute() {
	b.line.ServiceName, b.line.ServiceCategory, b.line.ServiceSubcategory = "GPU machines", "Compute", "Virtual Machines"
}

func (b *bill) machine(m Machine) {
	b.line.RegionID, b.line.RegionName = m.Region, m.Region
	b.line.SKUID = m.SKU
	if m.ResourceID != "" {
		b.line.ResourceID, b.line.ResourceName, b.line.ResourceType = m.ResourceID, m.Node, "GPU machine"
	}
}

// priced sets quantity, list price and derived fields. The contracted price is the list price: in
// FOCUS it includes negotiated discounts, of which there are none, and excludes commitment savings.
func (b *bill) priced(sku string, quantity domain.Decimal, unit string, list domain.Decimal) {
	l := &b.line
	l.SKUID = sku
	l.SKUPriceID = sku + "/" + unit + "/" + list.String()
	l.SKUMeter = unit
	l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(quantity), unit
	l.ListUnitPrice = decimal.NewNullDecimal(list)
	l.ContractedUnitPrice = l.ListUnitPrice
	l.PricingCurrencyListUnitPrice, l.PricingCurrencyContractedUnitPrice = l.ListUnitPrice, l.ListUnitPrice
	l.ListCost = decimal.NewNullDecimal(quantity.Mul(list))
	l.ContractedCost = l.ListCost
}

// commitment marks the line as the fee (no status), the used part or the unused part of the
// commitment.
func (b *bill) commitment(status string, quantity domain.Decimal) {
	l := &b.line
	l.CommitmentDiscountCategory = "Usage"
	l.CommitmentDiscountID = b.CommitmentID
	l.CommitmentDiscountName = "generated commitment " + b.CommitmentID
	l.CommitmentDiscountQuantity = decimal.NewNullDecimal(quantity)
	l.CommitmentDiscountType = "Committed machines"
	l.CommitmentDiscountUnit = "Hours"
	l.CommitmentDiscountStatus = status
	if status != "" {
		l.PricingCategory = "Committed"
	}
}

func (b *bill) effective(amount domain.Decimal) {
	b.line.EffectiveCost = decimal.NewNullDecimal(amount)
	b.line.PricingCurrencyEffectiveCost = b.line.EffectiveCost
}

// emit names the line by the day and its purpose, and yields it.
func (b *bill) emit(d detail, what string) {
	if b.err != nil {
		return
	}
	b.line.LineID = b.line.InvoiceDetailID + "/" + b.line.ChargePeriodStart.Time().Format("2006-01-02") + "/" + what
	b.sums[d.id] = b.sums[d.id].Add(b.line.BilledCost)
	b.err = b.yield(&b.line)
}
