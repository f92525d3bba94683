package attribution

import (
	"encoding/json"
	"fmt"
	"strings"

	"quartermaster/domain"
)

// The values of FOCUS columns that decide.
const (
	categoryUsage      = "Usage"
	categoryPurchase   = "Purchase"
	categoryTax        = "Tax"
	categoryCredit     = "Credit"
	categoryAdjustment = "Adjustment"

	unused = "Unused"
)

// Columns of ours that an importer may fill in, by name in BillingLine.Other.
const (
	// columnBilling holds a domain.BillingModel, and decides the class of usage
	// where it stands: FOCUS has no word for hardware of one's own, and few
	// smaller suppliers fill in PricingCategory.
	columnBilling = "x_BillingModel"
	// columnInstance holds the machine's type as the fleet spells it.
	columnInstance = "x_InstanceType"
)

// LineOf takes from a billing line what attribution needs. EffectiveCost is as
// billed where it is null. SKU is x_InstanceType, else the InstanceType of
// SkuPriceDetails (FOCUS 1.2 and later), else SkuId; so a node is found by the
// type that it was registered with, even where the supplier's SkuId means
// something else. rules decide what lines sell, the first that is for
// the line, before any column does. Corrects is the caller's to fill in, because another event
// says it.
//
// It is an error if an amount does not fit (see [AmountOf]), and nothing else
// is: of a quantity that nobody can mean, [Line.UnusableQuantity] tells, and a
// line with an empty charge period matches nothing.
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

// Classify says what kind of charge a line is. The first that applies counts:
//
//   - ChargeCategory Tax and Credit are what they say.
//   - An Adjustment is Rounding where its description, SkuId, SkuMeter or an x_
//     column says "rounding". One that has a quantity of machine time is classed
//     as usage is. Any other is a Credit, whatever its sign: it follows what it
//     adjusts.
//   - What stayed unused of a commitment is Committed.
//   - x_BillingModel decides, for example "owned".
//   - Usage, and a Purchase without a commitment, of what is no machine is
//     Shared: another ServiceCategory than Compute and AI and Machine Learning,
//     or a unit that is neither time nor a count of machines, as GB is.
//   - PricingCategory Committed, a CommitmentDiscountId, or the Purchase of a
//     commitment is Committed; PricingCategory Dynamic is Spot.
//   - What is left is OnDemand.
//
// The reason names the columns that decided, and their values where those are
// of a fixed vocabulary or short.
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
	// A purchase that says nothing of a machine is a subscription or a fee.
	if b.ChargeCategory == categoryPurchase {
		return "ChargeCategory is Purchase, and no unit counts machines"
	}
	return ""
}

// saysRounding returns the column that says so, the first in the alphabet of
// several of ours.
func saysRounding(b *domain.BillingLine) string {
	for _, c := range [...]struct{ column, text string }{{"ChargeDescription", b.ChargeDescription}, {"SkuId", b.SKUID}, {"SkuMeter", b.SKUMeter}} {
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

// instanceType returns the name by which a machine of the line is found.
func instanceType(b *domain.BillingLine) string {
	if s := b.Other[columnInstance]; s != "" {
		return s
	}
	if s := typeInDetails(b); s != "" {
		return s
	}
	return b.SKUID
}

// typeInDetails returns the InstanceType of SkuPriceDetails. What is no JSON says
// nothing of the machine, and the charge still counts.
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
