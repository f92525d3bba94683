package attribution_test

import (
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/simulations/public"
)

func null(s string) domain.NullDecimal {
	return domain.NullDecimal{Decimal: decimal.RequireFromString(s), Valid: true}
}

func TestClassify(t *testing.T) {
	other := func(model string) map[string]string { return map[string]string{"x_BillingModel": model} }
	for _, c := range []struct {
		name string
		line domain.BillingLine
		want attribution.Class
	}{
		{"usage of a machine", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Compute", PricingUnit: "Hours"}, attribution.OnDemand},
		{"usage with few columns", domain.BillingLine{ChargeCategory: "Usage"}, attribution.OnDemand},
		{"GPUs", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "AI and Machine Learning", PricingUnit: "GPU-Hours"}, attribution.OnDemand},
		{"spot", domain.BillingLine{ChargeCategory: "Usage", PricingCategory: "Dynamic"}, attribution.Spot},
		{"committed", domain.BillingLine{ChargeCategory: "Usage", PricingCategory: "Committed"}, attribution.Committed},
		{"with a commitment", domain.BillingLine{ChargeCategory: "Usage", PricingCategory: "Standard", CommitmentDiscountID: "k"}, attribution.Committed},
		{"in a reservation of capacity", domain.BillingLine{ChargeCategory: "Usage", PricingCategory: "Standard", CapacityReservationID: "k", CapacityReservationStatus: "Used"}, attribution.OnDemand},
		{"unused reservation of capacity", domain.BillingLine{ChargeCategory: "Usage", PricingCategory: "Standard", CapacityReservationID: "k", CapacityReservationStatus: "Unused"}, attribution.Committed},
		{"unused commitment, whatever the service", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Storage", CommitmentDiscountID: "k", CommitmentDiscountStatus: "Unused"}, attribution.Committed},
		{"purchase of a commitment", domain.BillingLine{ChargeCategory: "Purchase", ServiceCategory: "Other", CommitmentDiscountID: "k"}, attribution.Committed},
		{"purchase of capacity", domain.BillingLine{ChargeCategory: "Purchase", CapacityReservationID: "k"}, attribution.Committed},
		{"support", domain.BillingLine{ChargeCategory: "Purchase", ServiceCategory: "Other"}, attribution.Shared},
		{"a subscription", domain.BillingLine{ChargeCategory: "Purchase"}, attribution.Shared},
		{"machines bought by the hour", domain.BillingLine{ChargeCategory: "Purchase", PricingUnit: "Hours", PricingQuantity: null("3")}, attribution.OnDemand},
		{"storage by GB and hour", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Storage", PricingUnit: "GB-Hours"}, attribution.Shared},
		{"gateway by the hour", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Networking", PricingUnit: "Hours", PricingQuantity: null("3")}, attribution.Shared},
		{"traffic of a machine", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Compute", PricingUnit: "GB"}, attribution.Shared},
		{"machines by the month", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Compute", PricingUnit: "1 Month"}, attribution.OnDemand},
		{"owned hardware", domain.BillingLine{ChargeCategory: "Usage", ServiceCategory: "Other", Other: other("owned")}, attribution.Owned},
		{"billing model set by the importer", domain.BillingLine{ChargeCategory: "Usage", Other: other("spot")}, attribution.Spot},
		{"capacity block", domain.BillingLine{ChargeCategory: "Usage", Other: other("capacity_block")}, attribution.Committed},
		{"tax", domain.BillingLine{ChargeCategory: "Tax", Other: other("owned")}, attribution.Tax},
		{"credit", domain.BillingLine{ChargeCategory: "Credit", CommitmentDiscountID: "k"}, attribution.Credit},
		{"rounding by description", domain.BillingLine{ChargeCategory: "Adjustment", ChargeDescription: "Invoice Rounding"}, attribution.Rounding},
		{"rounding by a column", domain.BillingLine{ChargeCategory: "Adjustment", Other: map[string]string{"x_CostType": "rounding_error"}}, attribution.Rounding},
		{"an adjustment", domain.BillingLine{ChargeCategory: "Adjustment", PricingCategory: "Committed"}, attribution.Credit},
		{"an adjustment of machine time", domain.BillingLine{ChargeCategory: "Adjustment", PricingCategory: "Committed", PricingUnit: "Hours", PricingQuantity: null("-3")}, attribution.Committed},
	} {
		if got, why := attribution.Classify(&c.line); got != c.want || why == "" {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

func billingLine() domain.BillingLine {
	return domain.BillingLine{
		LineID: "l", InvoiceIssuerName: "S", BillingAccountID: "x", BillingCurrency: "USD", ChargeCategory: "Usage",
		BillingPeriodStart: month.From, BillingPeriodEnd: month.To, ChargePeriodStart: start, ChargePeriodEnd: start + domain.Hour,
		BilledCost: decimal.RequireFromString("1.5"),
	}
}

func TestBoughtTime(t *testing.T) {
	const h = 3_600_000
	for _, c := range []struct {
		priced, unit, consumed, consumedUnit string
		node, gpu                            int64
	}{
		{"2", "Hours", "", "", 2 * h, 0},
		{"2", "Hrs", "9", "Hours", 2 * h, 0},
		{"2", "hour", "", "", 2 * h, 0},
		{"2", "h", "", "", 2 * h, 0},
		{"16", "GPU-Hours", "", "", 0, 16 * h},
		{"16", "gpu hours", "", "", 0, 16 * h},
		{"16", "GPU Hrs", "", "", 0, 16 * h},
		{"90", "Seconds", "", "", 90_000, 0},
		{"90", "Minutes", "", "", 90 * 60_000, 0},
		{"1.5", "Days", "", "", 36 * h, 0},
		{"1", "Week", "", "", 168 * h, 0},
		{"3", "100 Hours", "", "", 300 * h, 0},
		{"3", "Instance-Hours", "", "", 3 * h, 0},
		{"-3", "Hours", "", "", -3 * h, 0},
		{"0.0000001", "Hours", "", "", 0, 0},
		{"0.000000139", "Hours", "", "", 1, 0}, // 0.5004 ms
		{"5", "GB", "2", "Hours", 2 * h, 0},
		{"5", "GB-Hours", "", "", 0, 0},
		{"5", "vCPU Hours", "", "", 0, 0},
		{"1", "Month", "", "", 0, 0},
		{"5", "", "", "", 0, 0},
	} {
		b := billingLine()
		b.PricingQuantity, b.PricingUnit = null(c.priced), c.unit
		if c.consumed != "" {
			b.ConsumedQuantity, b.ConsumedUnit = null(c.consumed), c.consumedUnit
		}
		l, err := attribution.LineOf(&b)
		if err != nil || l.NodeMs != c.node || l.GPUMs != c.gpu {
			t.Errorf("%s %q and %s %q are %d and %d ms (%v), want %d and %d", c.priced, c.unit, c.consumed, c.consumedUnit, l.NodeMs, l.GPUMs, err, c.node, c.gpu)
		}
	}
}

func TestLineOf(t *testing.T) {
	b := billingLine()
	b.SKUID, b.SKUPriceDetails = "opaque", `{"InstanceType":"p5.48xlarge","CoreCount":96}`
	b.CapacityReservationID, b.CapacityReservationStatus, b.RegionName = "cr-1", "Unused", "Frankfurt"
	l, err := attribution.LineOf(&b)
	if err != nil {
		t.Fatal(err)
	}
	if l.SKU != "p5.48xlarge" || l.Commitment != "cr-1" || !l.Unused || l.Region != "Frankfurt" || l.Effective != l.Billed || l.Billed.String() != "1.5" {
		t.Errorf("%+v", l)
	}
	b.Other = map[string]string{"x_InstanceType": "H100x8"}
	b.EffectiveCost = null("0")
	if l, _ = attribution.LineOf(&b); l.SKU != "H100x8" || !l.Effective.IsZero() {
		t.Errorf("%+v", l)
	}
	b.Other, b.SKUPriceDetails = nil, "no JSON"
	if l, _ = attribution.LineOf(&b); l.SKU != "opaque" {
		t.Errorf("%+v", l)
	}
	for want, spoil := range map[string]func(*domain.BillingLine){
		"billed cost: amount":    func(b *domain.BillingLine) { b.BilledCost = decimal.New(1, 15) },
		"effective cost: amount": func(b *domain.BillingLine) { b.EffectiveCost = null("0.0000000000000000001") },
	} {
		b := billingLine()
		spoil(&b)
		if _, err := attribution.LineOf(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one of %q", err, want)
		}
	}
}

// Only an amount makes a line unusable.
func TestLineOfUnusableQuantity(t *testing.T) {
	for _, c := range []struct {
		quantity   domain.NullDecimal
		unit, want string
	}{
		{null("1000000000"), "Hours", "quantity 1000000000 Hours is beyond 31688 years"},
		{null("-1000000000"), "GPU-Hours", "quantity -1000000000 GPU-Hours is beyond 31688 years"},
		{domain.NullDecimal{Decimal: decimal.New(1, 1_000_000), Valid: true}, "Hours", "quantity of 1000001 digits Hours is beyond 31688 years"},
		{null("2"), "1000000 Weeks", "quantity 2 1000000 Weeks is beyond 31688 years"},
		{null("2"), "1000000 1000000 Weeks", ""}, // not a unit of time
	} {
		b := billingLine()
		b.PricingQuantity, b.PricingUnit = c.quantity, c.unit
		l, err := attribution.LineOf(&b)
		if err != nil || l.UnusableQuantity != c.want || l.NodeMs != 0 || l.GPUMs != 0 || l.Billed.String() != "1.5" {
			t.Errorf("%+v (%v), want %q", l, err, c.want)
		}
	}
	// The supplier's text could not be kept as a number. The consumed quantity does not replace the
	// priced one.
	b := billingLine()
	b.PricingQuantity, b.PricingUnit = domain.NullDecimal{}, "Hours"
	b.ConsumedQuantity, b.ConsumedUnit = null("2"), "Hours"
	b.Other = map[string]string{domain.AsWritten("PricingQuantity"): "N/A"}
	if l, err := attribution.LineOf(&b); err != nil || l.UnusableQuantity != `quantity "N/A" Hours cannot be used` || l.NodeMs != 0 || l.Meter == attribution.Unstated {
		t.Errorf("%+v (%v)", l, err)
	}
	b = billingLine()
	b.ChargePeriodEnd = b.ChargePeriodStart
	if _, err := attribution.LineOf(&b); err != nil {
		t.Errorf("a line without a charge period: %v", err)
	}
}

// TestCommitmentScenarios reads the commitment examples of the FOCUS 1.2 specification: a recurring
// purchase of 1.00 for each hour is used, unused, or partly used. Used and unused add up to the
// purchase.
func TestCommitmentScenarios(t *testing.T) {
	purchase := focusExample(t, "commitment_discount_purchase_scenario_2.csv")[:1]
	purchase[0].ChargePeriodEnd = purchase[0].ChargePeriodStart + domain.Hour // the periods in the example are misprinted
	for _, c := range []struct {
		file                 string
		used, idle, standard string
	}{
		{"commitment_discount_usage_scenario_1.csv", "1", "0", "0"},
		{"commitment_discount_usage_scenario_2.csv", "0", "1", "0"},
		{"commitment_discount_usage_scenario_3.csv", "0.75", "0.25", "0"},
		{"commitment_discount_usage_scenario_4.csv", "1", "0", "0.5"},
	} {
		e := &estate{
			nodes: []attribution.Node{{Cluster: "c", Node: "n", Account: "x", Resource: "<my-resource-id>", GPUs: 1, Service: month}},
			hours: []attribution.NodeHour{{Hour: 1_672_531_200 * domain.Second, Parts: []attribution.Part{{Component: attribution.Allocated, Workspace: "ada", GPUMs: hour}}}},
		}
		e.nodes[0].Service.From = e.hours[0].Hour
		for _, b := range append(purchase, focusExample(t, c.file)...) {
			l, err := attribution.LineOf(&b)
			if err != nil {
				t.Fatal(err)
			}
			l.ID = string(rune('a' + len(e.lines)))
			e.lines = append(e.lines, l)
		}
		allocations, res, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Commitments) != 1 {
			t.Fatalf("%s: commitments %+v", c.file, res.Commitments)
		}
		k := res.Commitments[0]
		if k.Purchased != k.Used.Add(k.Unused) || k.Purchased.String() != "1" || k.Used.String() != c.used || k.Unused.String() != c.idle {
			t.Errorf("%s: purchased %s, used %s, unused %s", c.file, k.Purchased, k.Used, k.Unused)
		}
		// The billed cost of the purchase is divided like the commitment's effective cost.
		billed, effective := map[attribution.Component]attribution.Amount{}, map[attribution.Component]attribution.Amount{}
		var standard attribution.Amount
		for i := range allocations {
			l := &allocations[i]
			if l.line.Commitment == "" {
				standard = standard.Add(l.Effective)
				continue
			}
			billed[l.Component], effective[l.Component] = billed[l.Component].Add(l.Billed), effective[l.Component].Add(l.Effective)
		}
		for component, cost := range effective {
			if billed[component] != cost {
				t.Errorf("%s: %s of the commitment is billed %s and costs %s", c.file, component, billed[component], cost)
			}
		}
		if standard.String() != c.standard {
			t.Errorf("%s: %s beside the commitment", c.file, standard)
		}
	}
}

// focusExample reads an example of the specification, or skips the test.
func focusExample(t *testing.T, name string) []domain.BillingLine {
	t.Helper()
	all := public.Rows(t, "focus/spec-1.2-examples/commitment_discount_scenarios/"+name)
	var lines []domain.BillingLine
	for _, row := range all[1:] {
		get := func(column string) string {
			for i, c := range all[0] {
				if c == column && row[i] != "null" {
					return row[i]
				}
			}
			return ""
		}
		// Later rows of one example have an hour 30; the first row is used.
		at := func(column string) domain.Instant {
			i, _ := domain.ParseInstant(get(column))
			return i
		}
		lines = append(lines, domain.BillingLine{
			InvoiceIssuerName: "S", BillingAccountID: "x", BillingCurrency: get("CommitmentDiscountUnit"),
			BillingPeriodStart: at("BillingPeriodStart"), BillingPeriodEnd: at("BillingPeriodEnd"),
			ChargePeriodStart: at("ChargePeriodStart"), ChargePeriodEnd: at("ChargePeriodEnd"),
			ChargeCategory: get("ChargeCategory"), ChargeFrequency: get("ChargeFrequency"), PricingCategory: get("PricingCategory"), ResourceID: get("ResourceId"),
			BilledCost: decimal.RequireFromString(get("BilledCost")), EffectiveCost: null(get("EffectiveCost")),
			CommitmentDiscountID: get("CommitmentDiscountId"), CommitmentDiscountStatus: get("CommitmentDiscountStatus"),
			ConsumedUnit: get("ConsumedUnit"),
		})
		l := &lines[len(lines)-1]
		if l.BillingCurrency == "" {
			l.BillingCurrency = "USD"
		}
		if q := get("ConsumedQuantity"); q != "" {
			l.ConsumedQuantity = null(q)
		}
	}
	return lines
}
