package domain

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/shopspring/decimal"
)

// Rules for events of billing, market, procurement and books.

var one = decimal.NewFromInt(1)

// The FOCUS 1.4 values of the columns that attribution reads. Descriptive columns are only bounded
// in size: a service category that FOCUS does not know changes nothing in the books, and the charge
// must not be lost because of it.
var (
	chargeCategories     = []string{"Usage", "Purchase", "Tax", "Credit", "Adjustment"}
	chargeFrequencies    = []string{"One-Time", "Recurring", "Usage-Based"}
	pricingCategories    = []string{"Standard", "Dynamic", "Committed", "Other"}
	commitmentCategories = []string{"Spend", "Usage"}
	useStatuses          = []string{"Used", "Unused"}
	issueStatuses        = []string{"Open", "Issued", "Voided"}
)

func (c *checker) market(m Market) {
	c.id("market.provider", m.Provider)
	c.optionalID("market.region", m.Region)
}

// billingLine does not look at a text or a number that is in valid too, and puts those there that it finds valid.
// Texts and numbers of the zero line are valid.
func (c *checker) billingLine(l, valid *BillingLine) {
	c.id("line.x_LineId", l.LineID)
	c.changedID("line.InvoiceIssuerName", l.InvoiceIssuerName, &valid.InvoiceIssuerName)
	c.changedID("line.BillingAccountId", l.BillingAccountID, &valid.BillingAccountID)
	c.currency("line.BillingCurrency", l.BillingCurrency)
	c.interval("line.BillingPeriod", Interval{l.BillingPeriodStart, l.BillingPeriodEnd})
	c.interval("line.ChargePeriod", Interval{l.ChargePeriodStart, l.ChargePeriodEnd})
	oneOf(c, "line.ChargeCategory", l.ChargeCategory, chargeCategories...)
	c.focus("line.ChargeClass", l.ChargeClass, "Correction")
	c.focus("line.ChargeFrequency", l.ChargeFrequency, chargeFrequencies...)
	c.focus("line.PricingCategory", l.PricingCategory, pricingCategories...)
	c.focus("line.CapacityReservationStatus", l.CapacityReservationStatus, useStatuses...)
	c.focus("line.CommitmentDiscountCategory", l.CommitmentDiscountCategory, commitmentCategories...)
	c.focus("line.CommitmentDiscountStatus", l.CommitmentDiscountStatus, useStatuses...)
	c.decimal("line.BilledCost", l.BilledCost)
	billed := l.BilledCost
	c.changedNumber("line.CommitmentDiscountQuantity", l.CommitmentDiscountQuantity, &valid.CommitmentDiscountQuantity, billed, false)
	c.changedNumber("line.ConsumedQuantity", l.ConsumedQuantity, &valid.ConsumedQuantity, billed, false)
	c.changedNumber("line.ContractedCost", l.ContractedCost, &valid.ContractedCost, billed, false)
	c.changedNumber("line.EffectiveCost", l.EffectiveCost, &valid.EffectiveCost, billed, false)
	c.changedNumber("line.ListCost", l.ListCost, &valid.ListCost, billed, false)
	c.changedNumber("line.PricingCurrencyEffectiveCost", l.PricingCurrencyEffectiveCost, &valid.PricingCurrencyEffectiveCost, billed, false)
	c.changedNumber("line.PricingQuantity", l.PricingQuantity, &valid.PricingQuantity, billed, false)
	c.changedNumber("line.ContractedUnitPrice", l.ContractedUnitPrice, &valid.ContractedUnitPrice, billed, true)
	c.changedNumber("line.ListUnitPrice", l.ListUnitPrice, &valid.ListUnitPrice, billed, true)
	c.changedNumber("line.PricingCurrencyContractedUnitPrice", l.PricingCurrencyContractedUnitPrice, &valid.PricingCurrencyContractedUnitPrice, billed, true)
	c.changedNumber("line.PricingCurrencyListUnitPrice", l.PricingCurrencyListUnitPrice, &valid.PricingCurrencyListUnitPrice, billed, true)
	c.changedText("line.AllocatedMethodId", l.AllocatedMethodID, &valid.AllocatedMethodID, maxText)
	c.changedText("line.AllocatedResourceId", l.AllocatedResourceID, &valid.AllocatedResourceID, maxText)
	c.changedText("line.AllocatedResourceName", l.AllocatedResourceName, &valid.AllocatedResourceName, maxText)
	c.changedText("line.AvailabilityZone", l.AvailabilityZone, &valid.AvailabilityZone, maxText)
	c.changedText("line.BillingAccountName", l.BillingAccountName, &valid.BillingAccountName, maxText)
	c.changedText("line.BillingAccountType", l.BillingAccountType, &valid.BillingAccountType, maxText)
	c.changedText("line.CapacityReservationId", l.CapacityReservationID, &valid.CapacityReservationID, maxText)
	c.changedText("line.ChargeDescription", l.ChargeDescription, &valid.ChargeDescription, maxText)
	c.changedText("line.CommitmentDiscountId", l.CommitmentDiscountID, &valid.CommitmentDiscountID, maxText)
	c.changedText("line.CommitmentDiscountName", l.CommitmentDiscountName, &valid.CommitmentDiscountName, maxText)
	c.changedText("line.CommitmentDiscountType", l.CommitmentDiscountType, &valid.CommitmentDiscountType, maxText)
	c.changedText("line.CommitmentDiscountUnit", l.CommitmentDiscountUnit, &valid.CommitmentDiscountUnit, maxText)
	c.changedText("line.ConsumedUnit", l.ConsumedUnit, &valid.ConsumedUnit, maxText)
	c.changedText("line.HostProviderName", l.HostProviderName, &valid.HostProviderName, maxText)
	c.changedText("line.InvoiceDetailId", l.InvoiceDetailID, &valid.InvoiceDetailID, maxText)
	c.changedText("line.InvoiceId", l.InvoiceID, &valid.InvoiceID, maxText)
	c.changedText("line.PricingCurrency", l.PricingCurrency, &valid.PricingCurrency, maxText)
	c.changedText("line.PricingUnit", l.PricingUnit, &valid.PricingUnit, maxText)
	c.changedText("line.RegionId", l.RegionID, &valid.RegionID, maxText)
	c.changedText("line.RegionName", l.RegionName, &valid.RegionName, maxText)
	c.changedText("line.ResourceId", l.ResourceID, &valid.ResourceID, maxText)
	c.changedText("line.ResourceName", l.ResourceName, &valid.ResourceName, maxText)
	c.changedText("line.ResourceType", l.ResourceType, &valid.ResourceType, maxText)
	c.changedText("line.ServiceCategory", l.ServiceCategory, &valid.ServiceCategory, maxText)
	c.changedText("line.ServiceName", l.ServiceName, &valid.ServiceName, maxText)
	c.changedText("line.ServiceProviderName", l.ServiceProviderName, &valid.ServiceProviderName, maxText)
	c.changedText("line.ServiceSubcategory", l.ServiceSubcategory, &valid.ServiceSubcategory, maxText)
	c.changedText("line.SkuId", l.SKUID, &valid.SKUID, maxText)
	c.changedText("line.SkuMeter", l.SKUMeter, &valid.SKUMeter, maxText)
	c.changedText("line.SkuPriceId", l.SKUPriceID, &valid.SKUPriceID, maxText)
	c.changedText("line.SubAccountId", l.SubAccountID, &valid.SubAccountID, maxText)
	c.changedText("line.SubAccountName", l.SubAccountName, &valid.SubAccountName, maxText)
	c.changedText("line.SubAccountType", l.SubAccountType, &valid.SubAccountType, maxText)
	c.changedText("line.AllocatedMethodDetails", l.AllocatedMethodDetails, &valid.AllocatedMethodDetails, maxLongText)
	c.changedText("line.AllocatedTags", l.AllocatedTags, &valid.AllocatedTags, maxLongText)
	c.changedText("line.CommitmentProgramEligibilityDetails", l.CommitmentProgramEligibilityDetails, &valid.CommitmentProgramEligibilityDetails, maxLongText)
	c.changedText("line.ContractApplied", l.ContractApplied, &valid.ContractApplied, maxLongText)
	c.changedText("line.SkuPriceDetails", l.SKUPriceDetails, &valid.SKUPriceDetails, maxLongText)
	c.changedText("line.Tags", l.Tags, &valid.Tags, maxLongText)
	c.otherColumns(l.Other)
	c.optionalID("line.x_FocusVersion", l.FocusVersion)
}

func (c *checker) changedText(field, s string, valid *string, most int) {
	if s != *valid {
		c.prose(field, s, most)
		c.keep(s, valid)
	}
}

func (c *checker) changedID(field, s string, valid *string) {
	if s == "" || s != *valid {
		c.id(field, s)
		c.keep(s, valid)
	}
}

// keep notes a text that was checked, unless it or something before it is wrong.
func (c *checker) keep(s string, valid *string) {
	if c.err == nil {
		*valid = s
	}
}

// changedNumber takes the billed cost, which was checked before, because most costs of a line are the same number.
func (c *checker) changedNumber(field string, n NullDecimal, valid *NullDecimal, billed Decimal, price bool) {
	switch {
	case !n.Valid || n == *valid || n.Decimal == billed && !price:
		return
	case price:
		c.notNegative(field, n.Decimal)
	default:
		c.decimal(field, n.Decimal)
	}
	if c.err == nil {
		*valid = n
	}
}

func (c *checker) otherColumns(m map[string]string) {
	if !c.listed("line.Other", len(m)) {
		return
	}
	before := c.err
	for k, v := range m {
		c.otherColumn(k, v)
	}
	if c.err == before {
		return
	}
	c.err = before // the first by name counts
	for _, k := range slices.Sorted(maps.Keys(m)) {
		c.otherColumn(k, m[k])
	}
}

func (c *checker) otherColumn(name, value string) {
	c.id("line.Other", name)
	c.prose("line.Other", value, maxLongText)
}

// focus accepts an allowed value or "".
func (c *checker) focus(field, v string, allowed ...string) {
	if v != "" {
		oneOf(c, field, v, allowed...)
	}
}

func (c *checker) invoiceReceived(e *InvoiceReceived) {
	c.id("InvoiceIssuerName", e.InvoiceIssuerName)
	c.id("BillingAccountId", e.BillingAccountID)
	c.id("InvoiceId", e.InvoiceID)
	c.money("total", e.Total) // negative: a credit note
	c.currency("total", e.Total.Currency)
	c.optionalInstant("InvoiceIssueDate", e.IssueDate)
	oneOf(c, "InvoiceIssueStatus", e.Status, issueStatuses...)
	c.optionalInstant("PaymentDueDate", e.PaymentDueDate)
	if e.PaymentCurrency != "" {
		c.currency("PaymentCurrency", e.PaymentCurrency)
	}
	c.text("PaymentTerms", e.PaymentTerms)
	c.text("PurchaseOrderNumber", e.PurchaseOrder)
	c.optionalID("ReferenceInvoiceId", e.ReferenceInvoiceID)
	c.interval("billing_period", e.BillingPeriod)
	if !c.listed("details", len(e.Details)) {
		return
	}
	for i, d := range e.Details {
		c.in("details", i)
		c.id("InvoiceDetailId", d.InvoiceDetailID)
		oneOf(c, "ChargeCategory", d.ChargeCategory, chargeCategories...)
		c.decimal("BilledCost", d.BilledCost)
		c.text("ChargeDescription", d.Description)
		c.prose("InvoiceDetailGrain", d.Grain, maxLongText)
		c.out()
	}
}

func (c *checker) offerQuoted(e *OfferQuoted) {
	c.market(e.Market)
	c.id("offer", e.Offer)
	c.optionalID("zone", e.Zone)
	c.id("sku", e.SKU)
	c.optionalID("gpu_model", e.GPUModel)
	if e.GPUCount > 0 || e.GPUMilli > 0 {
		c.id("gpu_model", e.GPUModel)
	}
	c.atMost("gpu_milli", uint64(e.GPUMilli), 999)
	if e.GPUCount > 0 && e.GPUMilli > 0 {
		c.bad("gpu_milli", "is %d beside %d whole GPUs, want one of them", e.GPUMilli, e.GPUCount)
	}
	c.offerKind(e.Kind)
	c.atMost("term_months", uint64(e.TermMonths), maxMonths)
	c.notNegative("upfront", e.Upfront)
	c.notNegative("hourly", e.Hourly)
	if e.EffectiveHourly.Valid {
		c.notNegative("effective_hourly", e.EffectiveHourly.Decimal)
	}
	c.currency("currency", e.Currency)
	c.optionalID("spend", e.Spend)
	if e.Spend != "" && e.Kind != OfferSpendCommitment {
		c.bad("spend", "names a spend commitment, and the kind is %s", e.Kind)
	}
	if e.MaxUnits != 0 && e.MaxUnits < e.MinUnits {
		c.bad("max_units", "%d is below min_units %d", e.MaxUnits, e.MinUnits)
	}
	c.instant("valid_from", e.ValidFrom)
	c.until("valid_to", e.ValidFrom, e.ValidTo)
	c.optionalID("as_of", e.AsOf)
	c.text("citation", e.Citation)
}

func (c *checker) offerKind(k OfferKind) {
	oneOf(c, "kind", k, OfferReserved, OfferOnDemand, OfferSpot, OfferCapacityBlock, OfferSpendCommitment, OfferOwned)
}

// ownedCharges are what owned hardware is charged for besides the rates of its site: see package owned.
var ownedCharges = []string{"depreciation", "impairment", "disposal", "capital", "power", "power-estimated"}

func (c *checker) tariffSet(e *TariffSet) {
	c.market(e.Market)
	c.amount("per_kwh", e.PerKWh)
	if c.decimal("pue", e.PUE) && e.PUE.Cmp(one) < 0 {
		c.bad("pue", "%s is below 1, which no building reaches", e.PUE)
	}
	c.instant("effective_from", e.EffectiveFrom)
	if !c.listed("rates", len(e.Rates)) {
		return
	}
	seen := map[string]int{}
	for i, r := range e.Rates {
		c.in("rates", i)
		c.id("cost", r.Cost)
		if slices.Contains(ownedCharges, r.Cost) {
			c.bad("cost", "%s is a charge of owned hardware already; name it otherwise", quote(r.Cost))
		}
		oneOf(c, "per", r.Per, PerAsset, PerNode, PerGPU, PerRackUnit)
		c.amount("price", r.Price)
		name := r.Cost + "\x00" + string(r.Per)
		if first, twice := seen[name]; twice {
			c.bad("cost", "%s per %s is that of rates[%d] too", quote(r.Cost), r.Per, first)
		}
		seen[name] = i
		c.out()
	}
}

func (c *checker) fxRateSet(e *FXRateSet) {
	c.currency("base", e.Base)
	c.currency("quote", e.Quote)
	if e.Base == e.Quote {
		c.bad("quote", "%s is the base too", quote(e.Quote))
	}
	if c.decimal("rate", e.Rate) && e.Rate.Sign() <= 0 {
		c.bad("rate", "%s is not above 0", e.Rate)
	}
	oneOf(c, "kind", e.Kind, FXSpot, FXAverage, FXPayment, FXClosing)
	c.interval("effective", e.Effective)
	c.text("citation", e.Citation)
}

func (c *checker) planComputed(e *PlanComputed) {
	c.id("plan", e.Plan)
	c.computedFrom(e.Position, e.Method)
	c.interval("horizon", e.Horizon)
	c.ids("regions", e.Regions)
	c.money("cost", e.Cost)
	c.money("lower_bound", e.LowerBound)
	c.document(e.Document, e.Digest)
}

// document checks the size of a document and that its digest matches.
func (c *checker) document(document, digest []byte) {
	if len(document) == 0 || len(document) > maxDocument {
		c.bad("document", "has %d bytes, want 1 to %d", len(document), maxDocument)
	}
	c.bytes("digest", digest, sha256.Size)
	if c.err == nil && sha256.Sum256(document) != [sha256.Size]byte(digest) {
		c.bad("digest", "%x is not the SHA-256 of the document", digest)
	}
}

func (c *checker) commitmentPurchased(e *CommitmentPurchased) {
	c.id("commitment", e.Commitment)
	c.optionalID("contract", e.Contract)
	c.market(e.Market)
	c.optionalID("offer", e.Offer)
	c.id("billing_account", e.BillingAccount)
	c.offerKind(e.Kind)
	switch e.Kind {
	case OfferOnDemand, OfferSpot:
		c.bad("kind", "%s commits to nothing", quote(string(e.Kind)))
	case OfferSpendCommitment:
		// A spend commitment buys an amount of spend, not machines.
		if !e.SpendPerHour.Valid {
			c.bad("spend_per_hour", "is missing, which a spend commitment needs")
		}
		c.optionalID("sku", e.SKU)
		c.optionalID("gpu_model", e.GPUModel)
	default:
		c.id("sku", e.SKU)
		c.id("gpu_model", e.GPUModel)
		c.positive("gpus_per_unit", e.GPUsPerUnit)
		c.positive("units", e.Units)
	}
	if e.SpendPerHour.Valid {
		c.notNegative("spend_per_hour", e.SpendPerHour.Decimal)
	}
	c.interval("term", e.Term)
	c.priced(e.Upfront, e.Hourly)
	c.owners(e.Owners)
	c.optionalInstant("notice_by", e.NoticeBy)
	c.optionalID("recommendation", e.Recommendation)
	c.optionalID("spend", e.Spend)
	if e.Spend != "" && e.Kind != OfferSpendCommitment {
		c.bad("spend", "names a spend commitment, and the kind is %s", e.Kind)
	}
}

// priced checks the two parts of a price, which are in one currency.
func (c *checker) priced(upfront, hourly Money) {
	c.price("upfront", upfront)
	c.price("hourly", hourly)
	if upfront.Currency != "" && hourly.Currency != "" && upfront.Currency != hourly.Currency {
		c.bad("hourly", "%s is not in the currency of upfront %s", hourly, upfront)
	}
}

func (c *checker) owners(shares []Share) {
	if len(shares) == 0 || !c.listed("owners", len(shares)) {
		return
	}
	sum := Decimal{}
	seen := make(map[string]bool, len(shares))
	for i, s := range shares {
		c.in("owners", i)
		c.id("workspace", s.Workspace)
		if seen[s.Workspace] {
			c.bad("workspace", "%s is named twice", quote(s.Workspace))
		}
		seen[s.Workspace] = true
		if c.decimal("share", s.Share) && s.Share.Sign() <= 0 {
			c.bad("share", "%s is not above 0", s.Share)
		}
		c.out()
		if c.err != nil {
			return
		}
		sum = sum.Add(s.Share)
	}
	if !sum.Equal(one) {
		c.bad("owners", "shares add up to %s, want exactly 1", sum)
	}
}

// The kinds of recommendations, and the outcomes of quarantined records.
var (
	resolutions = []string{"reappended", "discarded"}
)

func (c *checker) quarantineResolved(e *QuarantineResolved) {
	c.id("entity", e.Entity)
	c.partition(e.Topic, e.Partition)
	if e.Offset < 0 {
		c.bad("offset", "%d is negative", e.Offset)
	}
	oneOf(c, "resolution", e.Resolution, resolutions...)
	c.text("reason", e.Reason)
}

func (c *checker) partition(topic Topic, n uint32) {
	if !slices.Contains(AllPartitions(), TopicPartition{topic, int(n)}) {
		c.bad("partition", "%s/%d is no partition of the log", quote(string(topic)), n)
	}
}

func (c *checker) streamConflict(e *StreamConflictObserved) {
	c.id("entity", e.Entity)
	c.partition(e.Topic, e.Partition)
	if e.First < 0 || e.Offset <= e.First {
		c.bad("offset", "%d does not follow the first record's, %d", e.Offset, e.First)
	}
	c.sequences(e.Source, e.Incarnation, e.Sequence, e.Sequence)
}

func (c *checker) streamGap(e *StreamGapResolved) {
	c.id("entity", e.Entity)
	c.partition(e.Topic, e.Partition)
	c.sequences(e.Source, e.Incarnation, e.From, e.To)
	c.text("reason", e.Reason)
}

func (c *checker) generationSwitched(e *GenerationSwitched) {
	c.id("entity", e.Entity)
	c.id("from", e.From)
	c.id("to", e.To)
	if e.From == e.To {
		c.bad("to", "%s was read before", quote(e.To))
	}
	c.computedFrom(e.Position, e.Method)
	c.bytes("digest", e.Digest, sha256.Size)
	c.text("reason", e.Reason)
	seen := map[TopicPartition]bool{}
	for i, l := range e.Lost {
		c.in("lost", i)
		c.partition(l.Topic, l.Partition)
		if l.Since < 0 || l.Since >= l.Position {
			c.bad("since", "%d to before %d are no records", l.Since, l.Position)
		}
		if l.End < 0 {
			c.bad("end", "%d is negative", l.End)
		}
		tp := TopicPartition{l.Topic, int(l.Partition)}
		if seen[tp] {
			c.bad("partition", "%s is named twice", tp)
		}
		seen[tp] = true
		c.out()
	}
}

// sequences checks the name of a stream and a range of its sequences.
func (c *checker) sequences(source string, incarnation, from, to uint64) {
	c.id("source", source)
	if incarnation == 0 {
		c.bad("incarnation", "is 0, they count from 1")
	}
	if from == 0 || to < from {
		c.bad("sequence", "%d to %d is no run of sequences, which count from 1", from, to)
	}
}
