package attribution

import (
	"encoding/json"
	"fmt"
	"strings"

	"quartermaster/domain"
)

// FOCUS column values that affect classification.
const (
	categoryUsage      = "Usage"
	categoryPurchase   = "Purchase"
	categoryTax        = "Tax"
	categoryCredit     = "Credit"
	categoryAdjustment = "Adjustment"

	unused = "Unused"
)

// Our own columns, which an importer may fill in, by name in BillingLine.Other.
const (
	// columnBilling holds a domain.BillingModel. If present, it decides the class of usage: FOCUS
	// has no word for owned hardware, and few smaller suppliers fill in PricingCategory.
	columnBilling = "x_BillingModel"
	// columnInstance holds the machine's type as the fleet spells it.
	columnInstance = "x_InstanceType"
)

// LineOf extracts what attribution needs from a billing line.
//
// If EffectiveCost is null, BilledCost is used. SKU is x_InstanceType, else the InstanceType of
// SkuPriceDetails (FOCUS 1.2 and later), else SkuId; so a node is found by the type that it was
// registered with, even if the supplier's SkuId means something else. The first matching rule of
// rules decides what the line sells, before any column does. The caller sets Corrects, because
// another event states it.
//
// The only error is an amount that does not fit (see [AmountOf]). An implausible quantity is
// reported in [Line.UnusableQuantity]. A line with an empty charge period matches nothing.
func LineOf(b *domain.BillingLine, rules ...MeterRule) (Line, error) {
	l := Line{
		Issuer: b.InvoiceIssuerName, Account: b.BillingAccountID, ID: b.LineID,
		Invoice: b.InvoiceID, Detail: b.InvoiceDetailID,
		Currency:      b.BillingCurrency,
		BillingPeriod: domain.Interval{From: b.BillingPeriodStart, To: b.BillingPeriodEnd},
		ChargePeriod:  domain.Interval{From: b.ChargePeriodStart, To: b.ChargePeriodEnd},
		Category:      b.ChargeCategory,
		Resource:      b.ResourceID,
		Region:        b.RegionID,
		SKU:           instanceType(b),
		Commitment:    b.CommitmentDiscountID,
		Unused:        isUnused(b),
		Recurring:     b.ChargeFrequency == "Recurring",
		Generated:     b.Generated,
		Product:       b.SKUID,
	}
	if l.Product == "" {
		l.Product = b.SKUMeter
	}
	l.Class, l.ClassReason = Classify(b)
	if l.Commitment == "" {
		l.Commitment = b.CapacityReservationID
	}
	if l.Region == "" {
		l.Region = b.RegionName
	}
	var err error
	if l.Billed, err = AmountOf(b.BilledCost); err != nil {
		return Line{}, fmt.Errorf("line %q: billed cost: %w", b.LineID, err)
	}
	l.Effective = l.Billed
	if b.EffectiveCost.Valid {
		if l.Effective, err = AmountOf(b.EffectiveCost.Decimal); err != nil {
			return Line{}, fmt.Errorf("line %q: effective cost: %w", b.LineID, err)
		}
	}
	l.Meter, l.Alone, l.MeterReason = meterOf(b, rules)
	l.To, l.ToRule = assigned(b, rules)
	if l.Class == Tax {
		l.TaxRule = taxRule(b, rules)
	}
	l.NodeMs, l.GPUMs, l.UnusableQuantity = boughtTime(b)
	sells := l.Meter
	if l.Alone != 0 {
		sells = l.Alone
	}
	switch sells {
	case GPUTime:
		l.NodeMs, l.GPUMs = 0, l.NodeMs+l.GPUMs // one of them is 0
	case MachineTime:
		l.NodeMs, l.GPUMs = l.NodeMs+l.GPUMs, 0
	}
	return l, nil
}

// Classify returns the kind of charge of a line. The first rule that applies counts:
//
//   - ChargeCategory Tax is Tax, and Credit is Credit.
//   - An Adjustment is Rounding if its description, SkuId, SkuMeter or an x_ column
//     says "rounding". One with a quantity of machine time is classified like usage.
//     Any other is a Credit, whatever its sign: it follows what it adjusts.
//   - The unused part of a commitment is Committed.
//   - x_BillingModel decides, for example "owned".
//   - Usage, and a Purchase without a commitment, that is not for machines is
//     Shared: its ServiceCategory is neither Compute nor AI and Machine Learning,
//     or its unit is neither time nor a count of machines, such as GB.
//   - PricingCategory Committed, a CommitmentDiscountId, or the Purchase of a
//     commitment is Committed; PricingCategory Dynamic is Spot.
//   - Everything else is OnDemand.
//
// The reason names the columns that decided, with their values if those are short
// or of a fixed vocabulary.
func Classify(b *domain.BillingLine) (class Class, reason string) {
	switch b.ChargeCategory {
	case categoryTax:
		return Tax, "ChargeCategory is Tax"
	case categoryCredit:
		return Credit, "ChargeCategory is Credit"
	case categoryAdjustment:
		switch column := saysRounding(b); {
		case column != "":
			return Rounding, "ChargeCategory is Adjustment, and " + column + " says rounding"
		case !hasTime(b):
			return Credit, "ChargeCategory is Adjustment, and no quantity is machine time"
		}
	case categoryPurchase:
		switch {
		case b.CommitmentDiscountID != "":
			return Committed, "ChargeCategory is Purchase, and CommitmentDiscountId names a commitment"
		case b.CapacityReservationID != "":
			return Committed, "ChargeCategory is Purchase, and CapacityReservationId names a reservation"
		}
	}
	switch {
	case b.CommitmentDiscountStatus == unused:
		return Committed, "CommitmentDiscountStatus is Unused"
	case b.CapacityReservationStatus == unused:
		return Committed, "CapacityReservationStatus is Unused"
	}
	if class, ok := ofModel[domain.BillingModel(b.Other[columnBilling])]; ok {
		return class, columnBilling + " is " + b.Other[columnBilling]
	}
	switch why := isNoMachine(b); {
	case why != "":
		return Shared, why
	case b.CommitmentDiscountID != "":
		return Committed, "CommitmentDiscountId names a commitment"
	case b.PricingCategory == "Committed":
		return Committed, "PricingCategory is Committed"
	case b.PricingCategory == "Dynamic":
		return Spot, "PricingCategory is Dynamic"
	}
	return OnDemand, "no column says that it is another"
}

var ofModel = map[domain.BillingModel]Class{
	domain.BillingOwned: Owned, domain.BillingReserved: Committed, domain.BillingCapacityBlock: Committed,
	domain.BillingSpot: Spot, domain.BillingOnDemand: OnDemand,
}

func isUnused(b *domain.BillingLine) bool {
	return b.CommitmentDiscountStatus == unused || b.CapacityReservationStatus == unused
}

// isNoMachine returns why a line is not for the use of machines, "" if it is.
func isNoMachine(b *domain.BillingLine) string {
	switch b.ServiceCategory {
	case "", "Compute", "AI and Machine Learning":
	default:
		return "ServiceCategory is " + b.ServiceCategory
	}
	if hasTime(b) {
		return ""
	}
	for _, u := range [...]struct{ column, unit string }{{"PricingUnit", b.PricingUnit}, {"ConsumedUnit", b.ConsumedUnit}} {
		if u.unit == "" {
			continue
		}
		if countsMachines(u.unit) {
			return ""
		}
		return u.column + " is " + u.unit + ", which counts no machines"
	}
	// A purchase that does not mention a machine is a subscription or a fee.
	if b.ChargeCategory == categoryPurchase {
		return "ChargeCategory is Purchase, and no unit counts machines"
	}
	return ""
}

// saysRounding returns the column that says "rounding". Of several columns of ours it returns the
// first in alphabetical order.
func saysRounding(b *domain.BillingLine) string {
	type column struct{ column, text string }
	for _, c := range [...]column{
		{"ChargeDescription", b.ChargeDescription}, {"SkuId", b.SKUID}, {"SkuMeter", b.SKUMeter},
	} {
		if strings.Contains(strings.ToLower(c.text), "rounding") {
			return c.column
		}
	}
	said := ""
	for name, s := range b.Other {
		if strings.HasPrefix(name, "x_") && strings.Contains(strings.ToLower(s), "rounding") && (said == "" || name < said) {
			said = name
		}
	}
	return said
}

// instanceType returns the machine type by which the line's machine is found.
func instanceType(b *domain.BillingLine) string {
	if s := b.Other[columnInstance]; s != "" {
		return s
	}
	if s := typeInDetails(b); s != "" {
		return s
	}
	return b.SKUID
}

// typeInDetails returns the InstanceType of SkuPriceDetails. Invalid JSON yields "", and the charge
// still counts.
func typeInDetails(b *domain.BillingLine) string {
	if b.SKUPriceDetails == "" {
		return ""
	}
	var d struct{ InstanceType string }
	if json.Unmarshal([]byte(b.SKUPriceDetails), &d) != nil {
		return ""
	}
	return d.InstanceType
}
