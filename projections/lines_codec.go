package projections

import (
	"bytes"

	"quartermaster/domain"
)

// Rows of billing lines are most of what an open month's costs are computed from. So those in the form that is written
// are decoded without reflection, which is several times as fast. All others are left to the library. The form is the
// library's: the core deterministic encoding, so maps have sorted text keys.

const cborTrue = 7<<5 | 21 // RFC 8949 §3.3

// decodeLines decodes a history that has BillingLineRecorded alone. It reports false for any other row, which the
// library decodes or refuses. The history is then unusable.
func decodeLines(b []byte, h *History) bool {
	r := cborReader{b: b}
	r.pairs(func(key []byte) {
		if string(key) != "versions" {
			r.fail("key %q", key)
			return
		}
		h.Versions = make([]Version, r.array())
		for i := range h.Versions {
			r.lineVersion(&h.Versions[i])
		}
	})
	return r.err == nil && len(r.b) == 0 && len(h.Versions) > 0
}

// pairs reads a map with sorted text keys. value reads the value of each key.
func (r *cborReader) pairs(value func(key []byte)) {
	var before []byte
	for i, n := uint64(0), r.head(majorMap); i < n && r.err == nil; i++ {
		key := r.bytes(majorText)
		if i > 0 && (len(key) < len(before) || len(key) == len(before) && bytes.Compare(key, before) <= 0) {
			r.fail("key %q after %q", key, before)
		}
		if before = key; r.err == nil {
			value(key)
		}
	}
}

func (r *cborReader) lineVersion(v *Version) {
	typed := false
	r.pairs(func(key []byte) {
		switch string(key) {
		case "order":
			r.precedence(&v.Order)
		case "recorded":
			v.Recorded = r.textTime()
		case "workspace":
			v.Workspace = r.text()
		case "line":
			v.Line = r.uint64()
		case "type":
			typed = string(r.bytes(majorText)) == string(domain.TypeBillingLineRecorded)
		case "event":
			if !typed {
				r.fail("another event")
				return
			}
			e := &domain.BillingLineRecorded{}
			v.Event = e
			r.pairs(func(key []byte) {
				if string(key) != "line" {
					r.fail("key %q", key)
					return
				}
				r.line(&e.Line)
			})
		default:
			r.fail("key %q", key)
		}
	})
	if v.Event == nil {
		r.fail("no event")
	}
}

func (r *cborReader) precedence(p *domain.Precedence) {
	r.pairs(func(key []byte) {
		switch string(key) {
		case "Effective":
			p.Effective = r.textTime()
		case "Time":
			p.Time = r.textTime()
		case "Appended":
			p.Appended = r.textTime()
		case "Source":
			p.Source = r.text()
		case "Incarnation":
			p.Incarnation = r.uint64()
		case "Sequence":
			p.Sequence = r.uint64()
		default:
			r.fail("key %q", key)
		}
	})
}

func (r *cborReader) line(l *domain.BillingLine) {
	r.pairs(func(key []byte) {
		text, number, at := lineField(l, key)
		switch {
		case text != nil:
			*text = r.text()
		case number != nil:
			r.number(number.UnmarshalText)
		case at != nil:
			*at = r.textTime()
		case string(key) == "BilledCost":
			r.number(l.BilledCost.UnmarshalText)
		case string(key) == "Other":
			l.Other = map[string]string{}
			r.pairs(func(key []byte) { l.Other[string(key)] = r.text() })
		case string(key) == "x_Generated" && len(r.b) > 0 && r.b[0] == cborTrue:
			l.Generated, r.b = true, r.b[1:]
		default:
			r.fail("key %q", key)
		}
	})
}

func (r *cborReader) textTime() (t domain.Instant) {
	if b := r.bytes(majorText); r.err == nil {
		if err := t.UnmarshalText(b); err != nil {
			r.fail("%v", err)
		}
	}
	return t
}

func (r *cborReader) number(parse func([]byte) error) {
	if b := r.bytes(majorText); r.err == nil {
		if err := parse(b); err != nil {
			r.fail("%v", err)
		}
	}
}

// lineField returns the text, number or time of a line that has a key; all nil for another key.
func lineField(l *domain.BillingLine, key []byte) (*string, *domain.NullDecimal, *domain.Instant) {
	switch string(key) {
	case "x_LineId":
		return &l.LineID, nil, nil
	case "AllocatedMethodDetails":
		return &l.AllocatedMethodDetails, nil, nil
	case "AllocatedMethodId":
		return &l.AllocatedMethodID, nil, nil
	case "AllocatedResourceId":
		return &l.AllocatedResourceID, nil, nil
	case "AllocatedResourceName":
		return &l.AllocatedResourceName, nil, nil
	case "AllocatedTags":
		return &l.AllocatedTags, nil, nil
	case "AvailabilityZone":
		return &l.AvailabilityZone, nil, nil
	case "BillingAccountId":
		return &l.BillingAccountID, nil, nil
	case "BillingAccountName":
		return &l.BillingAccountName, nil, nil
	case "BillingAccountType":
		return &l.BillingAccountType, nil, nil
	case "BillingCurrency":
		return &l.BillingCurrency, nil, nil
	case "CapacityReservationId":
		return &l.CapacityReservationID, nil, nil
	case "CapacityReservationStatus":
		return &l.CapacityReservationStatus, nil, nil
	case "ChargeCategory":
		return &l.ChargeCategory, nil, nil
	case "ChargeClass":
		return &l.ChargeClass, nil, nil
	case "ChargeDescription":
		return &l.ChargeDescription, nil, nil
	case "ChargeFrequency":
		return &l.ChargeFrequency, nil, nil
	case "CommitmentDiscountCategory":
		return &l.CommitmentDiscountCategory, nil, nil
	case "CommitmentDiscountId":
		return &l.CommitmentDiscountID, nil, nil
	case "CommitmentDiscountName":
		return &l.CommitmentDiscountName, nil, nil
	case "CommitmentDiscountStatus":
		return &l.CommitmentDiscountStatus, nil, nil
	case "CommitmentDiscountType":
		return &l.CommitmentDiscountType, nil, nil
	case "CommitmentDiscountUnit":
		return &l.CommitmentDiscountUnit, nil, nil
	case "CommitmentProgramEligibilityDetails":
		return &l.CommitmentProgramEligibilityDetails, nil, nil
	case "ConsumedUnit":
		return &l.ConsumedUnit, nil, nil
	case "ContractApplied":
		return &l.ContractApplied, nil, nil
	case "HostProviderName":
		return &l.HostProviderName, nil, nil
	case "InvoiceDetailId":
		return &l.InvoiceDetailID, nil, nil
	case "InvoiceId":
		return &l.InvoiceID, nil, nil
	case "InvoiceIssuerName":
		return &l.InvoiceIssuerName, nil, nil
	case "PricingCategory":
		return &l.PricingCategory, nil, nil
	case "PricingCurrency":
		return &l.PricingCurrency, nil, nil
	case "PricingUnit":
		return &l.PricingUnit, nil, nil
	case "RegionId":
		return &l.RegionID, nil, nil
	case "RegionName":
		return &l.RegionName, nil, nil
	case "ResourceId":
		return &l.ResourceID, nil, nil
	case "ResourceName":
		return &l.ResourceName, nil, nil
	case "ResourceType":
		return &l.ResourceType, nil, nil
	case "ServiceCategory":
		return &l.ServiceCategory, nil, nil
	case "ServiceName":
		return &l.ServiceName, nil, nil
	case "ServiceProviderName":
		return &l.ServiceProviderName, nil, nil
	case "ServiceSubcategory":
		return &l.ServiceSubcategory, nil, nil
	case "SkuId":
		return &l.SKUID, nil, nil
	case "SkuMeter":
		return &l.SKUMeter, nil, nil
	case "SkuPriceDetails":
		return &l.SKUPriceDetails, nil, nil
	case "SkuPriceId":
		return &l.SKUPriceID, nil, nil
	case "SubAccountId":
		return &l.SubAccountID, nil, nil
	case "SubAccountName":
		return &l.SubAccountName, nil, nil
	case "SubAccountType":
		return &l.SubAccountType, nil, nil
	case "Tags":
		return &l.Tags, nil, nil
	case "x_FocusVersion":
		return &l.FocusVersion, nil, nil
	case "CommitmentDiscountQuantity":
		return nil, &l.CommitmentDiscountQuantity, nil
	case "ConsumedQuantity":
		return nil, &l.ConsumedQuantity, nil
	case "ContractedCost":
		return nil, &l.ContractedCost, nil
	case "ContractedUnitPrice":
		return nil, &l.ContractedUnitPrice, nil
	case "EffectiveCost":
		return nil, &l.EffectiveCost, nil
	case "ListCost":
		return nil, &l.ListCost, nil
	case "ListUnitPrice":
		return nil, &l.ListUnitPrice, nil
	case "PricingCurrencyContractedUnitPrice":
		return nil, &l.PricingCurrencyContractedUnitPrice, nil
	case "PricingCurrencyEffectiveCost":
		return nil, &l.PricingCurrencyEffectiveCost, nil
	case "PricingCurrencyListUnitPrice":
		return nil, &l.PricingCurrencyListUnitPrice, nil
	case "PricingQuantity":
		return nil, &l.PricingQuantity, nil
	case "BillingPeriodEnd":
		return nil, nil, &l.BillingPeriodEnd
	case "BillingPeriodStart":
		return nil, nil, &l.BillingPeriodStart
	case "ChargePeriodEnd":
		return nil, nil, &l.ChargePeriodEnd
	case "ChargePeriodStart":
		return nil, nil, &l.ChargePeriodStart
	}
	return nil, nil, nil
}
