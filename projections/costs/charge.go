package costs

import (
	"strconv"
	"strings"
	"unsafe"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/owned"
)

// Charge has the columns of a supplier's line that attribution does not use, as the supplier stated them, and where the
// line came from. Of other columns that FOCUS does not define it has one: the asset of a line of owned hardware.
type Charge struct {
	texts   *[chargeTexts]string
	numbers [chargeNumbers]string // plain decimals with all their digits; "": null
}

const (
	chargeTexts   = 40
	chargeNumbers = 11
)

// Columns that say where a line came from.
const (
	columnSource   = "x_SourceId"
	columnReceived = "x_ReceivedAt"
	columnPlace    = "x_SourceLine"
)

// chargeText are the columns of text, in the order of the canonical form.
var chargeText = [chargeTexts]string{
	"AvailabilityZone", "BillingAccountName", "BillingAccountType", "CapacityReservationId", "CapacityReservationStatus",
	"ChargeClass", "ChargeDescription", "ChargeFrequency", "CommitmentDiscountCategory", "CommitmentDiscountId",
	"CommitmentDiscountName", "CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit",
	"CommitmentProgramEligibilityDetails", "ConsumedUnit", "ContractApplied", "HostProviderName", "PricingCategory",
	"PricingCurrency", "PricingUnit", "RegionId", "RegionName", "ResourceName", "ResourceType", "ServiceCategory",
	"ServiceName", "ServiceProviderName", "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId",
	"SubAccountId", "SubAccountName", "SubAccountType", "Tags", owned.ColumnAsset,
	columnSource, columnReceived,
}

// chargeNumber are the columns of numbers, in the order of the canonical form.
var chargeNumber = [chargeNumbers]struct {
	name    string
	divided bool                                         // an allocation has a part of it; otherwise it is a price
	of      func(*domain.BillingLine) domain.NullDecimal // nil: of the line's event
}{
	{"ListCost", true, func(l *domain.BillingLine) domain.NullDecimal { return l.ListCost }},
	{"ContractedCost", true, func(l *domain.BillingLine) domain.NullDecimal { return l.ContractedCost }},
	{"ListUnitPrice", false, func(l *domain.BillingLine) domain.NullDecimal { return l.ListUnitPrice }},
	{"ContractedUnitPrice", false, func(l *domain.BillingLine) domain.NullDecimal { return l.ContractedUnitPrice }},
	{"PricingQuantity", true, func(l *domain.BillingLine) domain.NullDecimal { return l.PricingQuantity }},
	{"ConsumedQuantity", true, func(l *domain.BillingLine) domain.NullDecimal { return l.ConsumedQuantity }},
	{"CommitmentDiscountQuantity", true, func(l *domain.BillingLine) domain.NullDecimal { return l.CommitmentDiscountQuantity }},
	{"PricingCurrencyContractedUnitPrice", false, func(l *domain.BillingLine) domain.NullDecimal { return l.PricingCurrencyContractedUnitPrice }},
	{"PricingCurrencyEffectiveCost", true, func(l *domain.BillingLine) domain.NullDecimal { return l.PricingCurrencyEffectiveCost }},
	{"PricingCurrencyListUnitPrice", false, func(l *domain.BillingLine) domain.NullDecimal { return l.PricingCurrencyListUnitPrice }},
	{columnPlace, false, nil}, // the last: see [storedCharge]
}

// chargeAt has the place of each column of text, and of each of numbers after those.
var chargeAt = func() map[string]int {
	at := map[string]int{}
	for i, name := range chargeText {
		at[name] = i
	}
	for i := range chargeNumber {
		at[chargeNumber[i].name] = chargeTexts + i
	}
	return at
}()

// noCharge is the charge of a line that is not a supplier's.
var noCharge = &Charge{texts: &[chargeTexts]string{}}

// Column returns the text of a column, "" for null and for a column that a charge does not have.
func (c *Charge) Column(name string) string {
	i, ok := chargeAt[name]
	switch {
	case !ok:
		return ""
	case i < chargeTexts:
		return c.texts[i]
	}
	return c.numbers[i-chargeTexts]
}

// charges are the charges of the lines of a month, by the number that [attribution.Line] carries. A month may have
// millions. Most lines have their texts in common with others, and numbers repeat.
type charges struct {
	names map[string]string
	texts map[[chargeTexts]string]uint32 // into kept
	kept  []*[chargeTexts]string

	numbers map[string]uint32 // into number
	number  []string
	all     [][]storedCharge // of line n at n-1, in blocks, so that those of a large month are never copied
	count   int
	bytes   int

	// Many lines were received at once.
	received domain.Instant
	text     string
}

// storedCharge is a charge without texts of its own, which the collector of garbage need not look at.
type storedCharge struct {
	place   uint64 // in the imported file; 0: unknown
	texts   uint32
	numbers [chargeNumbers - 1]uint32 // all but the place, which is the last
}

const chargeBlock = 512

func (c *charges) time(t domain.Instant) string {
	if c.received != t {
		c.received, c.text = t, t.String()
	}
	return c.text
}

func (c *charges) reset() {
	*c = charges{
		names: map[string]string{}, texts: map[[chargeTexts]string]uint32{}, numbers: map[string]uint32{"": 0}, number: []string{""},
	}
}

func (c *charges) name(s string) string {
	if s == "" {
		return ""
	}
	known, ok := c.names[s]
	if !ok {
		known = strings.Clone(s) // the line may be a part of a large buffer
		c.names[known] = known
		c.bytes += len(known) + 48
	}
	return known
}

// numbered returns the number of a text of digits.
func (c *charges) numbered(s string) uint32 {
	n, ok := c.numbers[s]
	if !ok {
		n = uint32(len(c.number))
		c.numbers[s] = n
		c.number = append(c.number, s)
		c.bytes += len(s) + 64
	}
	return n
}

// add returns the number of a line.
func (c *charges) add(l *LedgerLine) uint32 {
	var texts [chargeTexts]string
	for i, name := range chargeText {
		switch name {
		case columnSource:
			texts[i] = l.Event.Source
		case columnReceived:
			texts[i] = c.time(l.Event.Appended)
		default:
			texts[i] = l.Column(name)
		}
	}
	charge := storedCharge{place: l.Event.Line}
	var known bool
	if charge.texts, known = c.texts[texts]; !known {
		kept := texts
		for i := range kept {
			kept[i] = c.name(kept[i])
		}
		charge.texts = uint32(len(c.kept))
		c.kept = append(c.kept, &kept)
		c.texts[kept] = charge.texts
		c.bytes += 2 * chargeTexts * 16
	}
	for i := range charge.numbers {
		if n := chargeNumber[i].of(&l.BillingLine); n.Valid {
			charge.numbers[i] = c.numbered(n.Decimal.String())
		}
	}
	if c.count%chargeBlock == 0 {
		c.all = append(c.all, make([]storedCharge, 0, chargeBlock))
	}
	last := &c.all[len(c.all)-1]
	*last = append(*last, charge)
	c.count++
	c.bytes += int(unsafe.Sizeof(charge))
	return uint32(c.count)
}

// get sets a charge to that of a line, and reports whether there is one.
func (c *charges) get(line uint32, to *Charge) bool {
	if line == 0 || int(line) > c.count {
		return false
	}
	n := int(line - 1)
	of := &c.all[n/chargeBlock][n%chargeBlock]
	to.texts = c.kept[of.texts]
	for i, number := range of.numbers {
		to.numbers[i] = c.number[number]
	}
	to.numbers[chargeNumbers-1] = ""
	if of.place > 0 {
		to.numbers[chargeNumbers-1] = strconv.FormatUint(of.place, 10)
	}
	return true
}

// charge returns the charge of an allocation's line. It is reused for the next line: what keeps it MUST copy it.
func (p *part) charge() *Charge {
	if p.kept != nil {
		return p.keptCharge
	}
	n := p.allocation.Line.Number
	if p.chargeOf != n && p.books.charges.get(n, &p.charged) {
		p.chargeOf = n
	}
	if n == 0 || p.chargeOf != n {
		return noCharge
	}
	return &p.charged
}

// priced is an allocation's part of the list and the contracted cost of its line.
type priced struct {
	list, contracted       attribution.Amount
	hasList, hasContracted bool // false: the line states none, or one of 10¹⁵ or more
}

// pricing divides the list and the contracted cost of lines among their allocations, which come one after the other.
type pricing struct {
	line             uint32
	list, contracted attribution.Portions
	priced           priced
}

// price sets the prices of the next allocation. It MUST be called for every allocation, in their order.
func (r *pricing) price(p *part) {
	l := p.allocation
	if l.Line.Number == 0 {
		p.priced = priced{}
		return
	}
	if l.Line.Number != r.line {
		r.line, r.priced = l.Line.Number, priced{}
		c := p.charge()
		r.list, r.priced.hasList = portionsOf(c.numbers[0])
		r.contracted, r.priced.hasContracted = portionsOf(c.numbers[1])
	}
	r.priced.list, r.priced.contracted = r.list.Next(l.Weight, l.Of), r.contracted.Next(l.Weight, l.Of)
	p.priced = r.priced
}

func portionsOf(text string) (attribution.Portions, bool) {
	if text == "" {
		return attribution.Portions{}, false
	}
	a, err := attribution.ParseAmount(text)
	return attribution.PortionsOf(a), err == nil
}
