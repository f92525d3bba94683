package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
)

// lastBilled are the months before one that may be repeated.
const lastBilled = 3

// repeat adds the charges of the last month that was billed, for the rest of the month.
func (b *AccrualBill) repeat(view projections.View) error {
	scope := domain.AccountKey(b.Issuer, b.Account)
	month := b.Month
	for range lastBilled {
		month = projections.BillingMonth(month.From - 1)
		sums := map[string]*domain.BillingLine{}
		var billed domain.Interval // what was billed for the month
		at := projections.MonthStart(month.From)
		err := view.Scan(projections.Query{Table: projections.TableBillingLines, Scope: scope, From: at, To: at + 1}, func(k projections.Key, row projections.Row) error {
			l := ledgerLine(k, row.(*projections.History))
			if l == nil || l.Corrects != "" || l.Other[ColumnAccrual] != "" || l.ChargeClass != "" {
				return nil
			}
			if recurring := l.ChargeCategory == "Purchase" && l.ChargeFrequency == "Recurring"; l.ChargeCategory != "Usage" && !recurring {
				return nil
			}
			billed = hull(billed, domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd})
			key := accrualKey(&l.BillingLine)
			sum := sums[key]
			if sum == nil {
				kept := l.BillingLine
				kept.Other = maps.Clone(l.Other)
				maps.DeleteFunc(kept.Other, func(column, _ string) bool { return domain.IsAsWritten(column) })
				sums[key] = &kept
				return nil
			}
			maps.DeleteFunc(sum.Other, func(column, value string) bool { return l.Other[column] != value })
			sum.BilledCost = sum.BilledCost.Add(l.BilledCost)
			for _, of := range accruedNumbers(sum, &l.BillingLine) {
				*of[0] = addNull(*of[0], *of[1])
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read billing lines: %w", err)
		}
		if len(sums) > 0 {
			b.repeated(sums, month, billed)
			return nil
		}
	}
	b.Problems = append(b.Problems, fmt.Sprintf("account %s has no bill in the %d months before", b.Account, lastBilled))
	return nil
}

// repeated adds sums of a month, in the proportion of the rest of this month to what was billed then. A bill of about a
// month stands for a month, however many days it has.
func (b *AccrualBill) repeated(sums map[string]*domain.BillingLine, month, billed domain.Interval) {
	whole := billed.Length()
	if off := whole - month.Length(); -domain.Day <= off && off <= domain.Day {
		whole = b.Month.Length()
	}
	var rest domain.Instant
	for _, in := range b.Rest {
		rest += in.Length()
	}
	if whole == b.Month.Length() {
		rest = min(whole, rest+b.zone) // the supplier's month is as long as ours, and begins at another time
	}
	basis := "as billed for " + monthText(month)
	if rest != whole {
		basis += fmt.Sprintf(", times %s / %s days", days(rest), days(whole))
	}
	part := func(d domain.Decimal, digits int32) domain.Decimal {
		if rest == whole {
			return d
		}
		return d.Mul(decimal.NewFromInt(int64(rest))).DivRound(decimal.NewFromInt(int64(whole)), digits)
	}
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		l := sums[key]
		if l.BilledCost.IsZero() && (!l.EffectiveCost.Valid || l.EffectiveCost.Decimal.IsZero()) {
			continue
		}
		minor := int32(domain.MinorUnits(l.BillingCurrency))
		l.BilledCost = part(l.BilledCost, minor)
		for i, of := range accruedNumbers(l, l) {
			digits := minor
			if i >= accruedCosts {
				digits = 6
			}
			if of[0].Valid {
				of[0].Decimal = part(of[0].Decimal, digits)
			}
		}
		b.add(l, b.restHull(), basis)
	}
}

// days is a length in days, with at most two digits after the point.
func days(t domain.Instant) domain.Decimal {
	return decimal.NewFromInt(int64(t)).DivRound(decimal.NewFromInt(int64(domain.Day)), 2)
}

// accruedCosts are the costs among accruedNumbers, which come first.
const accruedCosts = 4

// accruedNumbers are the numbers of a line, beside its billed cost, that grow with what it charges, with those of another.
func accruedNumbers(l, o *domain.BillingLine) [7][2]*domain.NullDecimal {
	return [7][2]*domain.NullDecimal{
		{&l.EffectiveCost, &o.EffectiveCost}, {&l.ListCost, &o.ListCost}, {&l.ContractedCost, &o.ContractedCost},
		{&l.PricingCurrencyEffectiveCost, &o.PricingCurrencyEffectiveCost},
		{&l.PricingQuantity, &o.PricingQuantity}, {&l.ConsumedQuantity, &o.ConsumedQuantity},
		{&l.CommitmentDiscountQuantity, &o.CommitmentDiscountQuantity},
	}
}

func addNull(a, b domain.NullDecimal) domain.NullDecimal {
	if !a.Valid || !b.Valid {
		return domain.NullDecimal{}
	}
	return decimal.NewNullDecimal(a.Decimal.Add(b.Decimal))
}

// atContractRate adds the time of each machine of the account that no line buys.
func (b *AccrualBill) atContractRate(view projections.View) error {
	t, err := b.boughtTime(view)
	if err != nil {
		return err
	}
	p := &pricedTime{bill: b, view: view, fleet: t.fleet, used: map[string]map[inventory.NodeName]bool{}, offers: map[offerDay]*hourPrice{}}
	if p.contracts, err = declaredCommitments(view, b.Month); err != nil {
		return err
	}
	for i := range t.fleet.nodes {
		n := &t.fleet.nodes[i]
		if n.Account != b.Account {
			continue
		}
		for _, in := range n.Service.Intersect(b.Month).Without(t.covered) {
			if err := p.charge(n, in, decimal.NewFromInt(1)); err != nil {
				return err
			}
		}
		part, ok := t.part(n)
		if !ok {
			b.Problems = append(b.Problems, fmt.Sprintf("%s/%s has no GPUs, and lines of the account buy time: whether it is billed is not known", n.Cluster, n.Node))
			continue
		}
		for _, covered := range t.covered {
			if in := n.Service.Intersect(b.Month).Intersect(covered); !in.Empty() && part.Sign() > 0 {
				if err := p.charge(n, in, part); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// boughtTime says what time of an account's machines the lines of the account buy, without its accruals.
type boughtTime struct {
	fleet     *costFleet
	covered   []domain.Interval // with a line that buys time of some machine, disjoint
	missing   map[string]int64  // GPU time within covered that no line buys, in milliseconds, by machine
	resources map[string]bool   // that lines name
	within    map[string]int64  // GPU time in service within covered, by machine
}

func (b *AccrualBill) boughtTime(view projections.View) (*boughtTime, error) {
	opened, err := openBooks(view, b.Month)
	if err != nil {
		return nil, err
	}
	t := &boughtTime{missing: map[string]int64{}, resources: map[string]bool{}, within: map[string]int64{}}
	opened.only = func(l *domain.BillingLine) bool {
		mine := l.BillingAccountID == b.Account && l.Other[ColumnAccrual] == ""
		if mine && l.ResourceID != "" {
			t.resources[strings.Clone(l.ResourceID)] = true
		}
		return mine
	}
	var bought []domain.Interval
	result, err := opened.divide(func(l *attribution.Allocation) error {
		if in := l.Line.ChargePeriod; l.BoughtMs != 0 && (len(bought) == 0 || bought[len(bought)-1] != in) {
			bought = append(bought, in)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.covered = inventory.Joined(byTime(bought))
	for i := range result.Exceptions {
		if e := &result.Exceptions[i]; e.Kind == attribution.SeenNeverBilled || e.Kind == attribution.RegisteredNeither {
			t.missing[e.Subject] += e.GPUMs
		}
	}
	// The fleet of the month, not only of what was charged.
	if t.fleet, err = readCostFleet(view, b.Month); err != nil {
		return nil, err
	}
	for i := range t.fleet.nodes {
		n := &t.fleet.nodes[i]
		for _, in := range t.covered {
			t.within[n.Cluster+"/"+n.Node] += int64(n.Service.Intersect(b.Month).Intersect(in).Length()/projections.NsPerMs) * int64(max(1, n.GPUs))
		}
	}
	return t, nil
}

// part returns the part of a machine's time within the covered time that no line buys. It reports false if that is not
// known: usage of machines without GPUs is not compared with lines.
func (t *boughtTime) part(n *attribution.Node) (domain.Decimal, bool) {
	subject := n.Cluster + "/" + n.Node
	switch {
	case len(t.covered) == 0 || t.within[subject] == 0:
		return decimal.Zero, true
	case n.GPUs == 0 && t.resources[cmp.Or(n.Resource, n.Node)]:
		return decimal.Zero, true
	case n.GPUs == 0 && t.missing[subject] == 0:
		return decimal.Zero, false
	}
	return decimal.NewFromInt(min(t.missing[subject], t.within[subject])).DivRound(decimal.NewFromInt(t.within[subject]), 18), true
}

// hourPrice is what an hour of a unit costs.
type hourPrice struct {
	domain.Money
	gpus  int // of a unit; 0: a unit is a machine
	basis string
}

type offerDay struct {
	provider, region, sku string
	day                   domain.Instant
}

// pricedTime charges time of machines at the prices in force.
type pricedTime struct {
	bill      *AccrualBill
	view      projections.View
	fleet     *costFleet
	contracts map[string]*declaredCommitment
	used      map[string]map[inventory.NodeName]bool // machines that each contract is used for
	offers    map[offerDay]*hourPrice
}

// charge charges a part of a machine's time, with a line for each price.
func (p *pricedTime) charge(n *attribution.Node, in domain.Interval, part domain.Decimal) error {
	rest := []domain.Interval{in}
	for _, id := range slices.Sorted(maps.Keys(p.contracts)) {
		c := p.contracts[id]
		of := c.purchase
		if of == nil || of.BillingAccount != p.bill.Account || of.SKU != n.SKU {
			continue
		}
		var left []domain.Interval
		for _, r := range rest {
			left = append(left, r.Without(c.times)...)
			for _, t := range c.times {
				if at := r.Intersect(t); !at.Empty() {
					if !p.use(id, int(of.Units), n) {
						left = append(left, at)
						continue
					}
					name := cmp.Or(of.Contract, id)
					p.add(n, at, part, &hourPrice{of.Hourly, int(of.GPUsPerUnit), fmt.Sprintf("%s %s of contract %s", of.Hourly.Amount, of.Hourly.Currency, name)})
					if of.Upfront.Amount.Sign() > 0 {
						p.problem("contract %s has an upfront payment: what is used up of it is not accrued", name)
					}
				}
			}
		}
		rest = byTime(left)
	}
	for _, r := range rest {
		if err := p.onDemand(n, r, part); err != nil {
			return err
		}
	}
	return nil
}

// use reports whether a unit of a contract is there for a machine. Machines take units in their order.
func (p *pricedTime) use(id string, units int, n *attribution.Node) bool {
	if p.used[id] == nil {
		p.used[id] = map[inventory.NodeName]bool{}
	}
	name := inventory.NodeName{Cluster: n.Cluster, Node: n.Node}
	if p.used[id][name] {
		return true
	}
	if len(p.used[id]) >= units {
		return false
	}
	p.used[id][name] = true
	return true
}

// onDemand charges time at the on-demand offer of each day.
func (p *pricedTime) onDemand(n *attribution.Node, in domain.Interval, part domain.Decimal) error {
	var last *hourPrice
	from := in.From
	for at := in.From; at < in.To; at = min(in.To, at-at%domain.Day+domain.Day) {
		price, err := p.offer(n, at)
		if err != nil {
			return err
		}
		if at > in.From && !price.same(last) {
			p.add(n, domain.Interval{From: from, To: at}, part, last)
			from = at
		}
		last = price
	}
	p.add(n, domain.Interval{From: from, To: in.To}, part, last)
	return nil
}

func (p *hourPrice) same(o *hourPrice) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.gpus == o.gpus && p.basis == o.basis && p.Currency == o.Currency && p.Amount.Equal(o.Amount)
}

// offer returns the price of the on-demand offer at a time, nil if there is none. A day has the price of its beginning.
func (p *pricedTime) offer(n *attribution.Node, at domain.Instant) (*hourPrice, error) {
	c, _ := p.fleet.fleet.Cluster(n.Cluster, at)
	if c == nil || n.SKU == "" {
		return nil, nil
	}
	of := offerDay{c.Provider, cmp.Or(n.Region, c.Region), n.SKU, at - at%domain.Day}
	if price, known := p.offers[of]; known {
		return price, nil
	}
	offers, err := market.Offers(p.view, of.day, market.OfferFilter{Provider: of.provider, Region: of.region, SKU: of.sku})
	if err != nil {
		return nil, err
	}
	var price *hourPrice
	for i := range offers {
		if o := &offers[i]; o.Kind == domain.OfferOnDemand {
			price = &hourPrice{
				domain.Money{Amount: o.Hourly, Currency: o.Currency}, int(o.GPUCount), fmt.Sprintf("%s %s of offer %s", o.Hourly, o.Currency, o.Offer),
			}
			break
		}
	}
	p.offers[of] = price
	return price, nil
}

// add adds a charge for a part of a machine's time at a price, or a problem if there is no price.
func (p *pricedTime) add(n *attribution.Node, in domain.Interval, part domain.Decimal, price *hourPrice) {
	if price == nil {
		p.problem("%s/%s: no contract or on-demand offer has a price of %q from %s to %s", n.Cluster, n.Node, n.SKU, in.From, in.To)
		return
	}
	hours := decimal.NewFromInt(int64(in.Length())).Mul(part).DivRound(decimal.NewFromInt(int64(domain.Hour)), 6)
	units, basis := hours, price.basis
	if price.gpus > 0 && n.GPUs > 0 && n.GPUs != price.gpus {
		units = hours.Mul(decimal.NewFromInt(int64(n.GPUs))).DivRound(decimal.NewFromInt(int64(price.gpus)), 6)
		basis += fmt.Sprintf(", for %d GPUs instead of %d", n.GPUs, price.gpus)
	}
	p.bill.add(&domain.BillingLine{
		BilledCost: units.Mul(price.Amount).Round(int32(domain.MinorUnits(price.Currency))), BillingCurrency: price.Currency,
		ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", ServiceName: "Compute", ServiceCategory: "Compute", RegionID: n.Region,
		ResourceID: cmp.Or(n.Resource, n.Node), ResourceName: n.Node, ResourceType: "Instance", SKUMeter: n.SKU,
		PricingQuantity: decimal.NewNullDecimal(hours), PricingUnit: "Instance-Hours",
		ConsumedQuantity: decimal.NewNullDecimal(hours), ConsumedUnit: "Instance-Hours",
	}, in, fmt.Sprintf("%s hours at %s", hours, basis))
}

// problem adds a problem, once.
func (p *pricedTime) problem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.bill.Problems, text) {
		p.bill.Problems = append(p.bill.Problems, text)
	}
}
