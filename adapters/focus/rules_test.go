package focus_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
)

// whole has every mandatory column of 1.2 and satisfies every rule.
const whole = `BilledCost,BillingAccountId,BillingAccountName,BillingCurrency,BillingPeriodEnd,BillingPeriodStart,ChargeCategory,ChargeClass,ChargeDescription,ChargeFrequency,ChargePeriodEnd,ChargePeriodStart,CommitmentDiscountCategory,CommitmentDiscountId,CommitmentDiscountStatus,CommitmentDiscountType,ConsumedQuantity,ConsumedUnit,ContractedCost,ContractedUnitPrice,EffectiveCost,InvoiceId,InvoiceIssuerName,ListCost,ListUnitPrice,PricingCategory,PricingQuantity,PricingUnit,ProviderName,PublisherName,RegionId,RegionName,ResourceId,ResourceType,ServiceCategory,ServiceName,SkuId,SkuPriceId,Tags,x_Team
10,a,A,USD,2026-06-01T00:00:00Z,2026-05-01T00:00:00Z,Usage,,machine,Usage-Based,2026-05-02T00:00:00Z,2026-05-01T00:00:00Z,,,,,4,Hours,10,2.5,10,I-1,Example,12,3,Standard,4,Hours,Example,Example,r,Region,i-1,Machine,Compute,Machines,s,s-1,"{""a"":""b""}",x
0.85,a,A,USD,2026-06-01T00:00:00Z,2026-05-01T00:00:00Z,Tax,,tax,Recurring,2026-06-01T00:00:00Z,2026-05-01T00:00:00Z,,,,,,,0.85,,0.85,I-1,Example,0.85,,,,,Example,Example,,,,,Other,Tax,,,,
`

func validated(t *testing.T, text, version string) focus.Verdict {
	t.Helper()
	n := 0
	v, err := focus.Validate(context.Background(), strings.NewReader(text), "f.csv", focus.Options{FocusVersion: version}, func(x focus.Violation) {
		if n++; x.File != "f.csv" || x.Line < 1 || x.Text == "" {
			t.Errorf("%+v", x)
		}
	})
	if err != nil || n != v.Violations {
		t.Fatalf("%+v, %d reported, error %v", v, n, err)
	}
	return v
}

func TestValidateFindsWhatIsBroken(t *testing.T) {
	if v := validated(t, whole, ""); v.Violations != 0 || v.Version != "1.2" || v.Rows != 2 || v.Rules < 100 {
		t.Fatalf("%+v", v)
	}
	for _, c := range []struct{ from, to, want string }{
		{"\n10,a", "\n\"1,0\",a", "BilledCost-type"},
		{"\n10,a", "\n,a", "BilledCost-not-null"},
		{"\n10,a,A,USD", "\n10,a,A,usd", "BillingCurrency-currency"},
		{"\n10,a,A,USD,2026-06-01T00:00:00Z", "\n10,a,A,USD,2026-06-01T00:00:00+00:00", "BillingPeriodEnd-type"},
		{"\n10,a,A,USD,2026-06-01T00:00:00Z", "\n10,a,A,USD,2026-04-01T00:00:00Z", "BillingPeriodEnd-after-start"},
		{",Usage,,machine", ",Usages,,machine", "ChargeCategory-allowed ConsumedQuantity-of-usage"},
		{",Usage,,machine", ",Usage,Change,machine", "ChargeClass-allowed"},
		{",,,,,4,Hours", ",Spend,,,,4,Hours", "CommitmentDiscountCategory-null-with-CommitmentDiscountId"},
		{",,,,,4,Hours", ",Spend,c,,Plan,4,Hours", "CommitmentDiscountStatus-given-for-usage"},
		{",,,,,4,Hours", ",Spend,c,Unused,Plan,4,Hours", "ConsumedQuantity-of-usage"},
		{",4,Hours,10,2.5", ",4,,10,2.5", "ConsumedUnit-given-with-ConsumedQuantity"},
		{",4,Hours,10,2.5", ",4,Hours,10,-2.5", "ContractedUnitPrice-not-negative ContractedCost-product"},
		{",12,3,", ",12.01,3,", "ListCost-product"},
		{",Standard,", ",,", "PricingCategory-given-for-usage"},
		{",0.85,,,,,Example,", ",0.85,,Other,,,Example,", "PricingCategory-null-for-tax"},
		{",r,Region,", ",r,,", "RegionName-given-with-RegionId"},
		{",i-1,Machine,", ",,Machine,", "ResourceType-null-with-ResourceId"},
		{`"{""a"":""b""}"`, "team=b", "Tags-type"},
		{"x_Team", "Team", "x_-name"},
		{"PublisherName,", "x_Publisher,", "PublisherName-present"},
		{",x\n", "\n", "row"},
	} {
		text := strings.Replace(whole, c.from, c.to, 1)
		if text == whole {
			t.Fatalf("%q is not in the file", c.from)
		}
		have := slices.Sorted(maps.Keys(validated(t, text, "").ByRule))
		want := strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%q: violates %v, want %v", c.to, have, want)
		}
	}
}

// Rules come and go with versions.
func TestRulesOfVersions(t *testing.T) {
	count := map[string]int{}
	for _, v := range []string{"1.0", "1.1", "1.2", "1.3", "1.4"} {
		rules, err := focus.Rules(v)
		if err != nil {
			t.Fatal(err)
		}
		count[v] = len(rules)
		ids := map[string]bool{}
		for _, r := range rules {
			if ids[r.ID] || r.Text == "" || r.Since > v || r.Until != "" && r.Until < v {
				t.Errorf("%s: %+v", v, r)
			}
			ids[r.ID] = true
		}
		if ids["ProviderName-present"] != (v < "1.4") || ids["ServiceProviderName-present"] != (v >= "1.3") || ids["SkuMeter-null-with-SkuId"] != (v >= "1.1") {
			t.Errorf("%s: %v", v, ids)
		}
	}
	if count["1.0"] >= count["1.1"] || count["1.1"] >= count["1.2"] || count["1.2"] >= count["1.3"] {
		t.Errorf("%v", count)
	}
	if _, err := focus.Rules("2.0"); err == nil {
		t.Error("version 2.0 is taken")
	}
	if v := validated(t, whole, "1.4"); v.ByRule["ServiceProviderName-present"] != 1 || v.ByRule["ProviderName-present"] != 0 {
		t.Errorf("%+v", v)
	}
	_, err := focus.Validate(context.Background(), strings.NewReader("a,b\n"), "f", focus.Options{}, nil)
	if !errors.Is(err, focus.ErrColumns) {
		t.Errorf("error %v", err)
	}
}

// What is known to be wrong with the sample of the FOCUS project is found, and nothing that is right.
func TestValidatePublishedSample(t *testing.T) {
	text := published(t, "finops-sample-1.0/focus_sample_first_300.csv")
	v, err := focus.Validate(context.Background(), strings.NewReader(text), "sample", focus.Options{FocusVersion: "1.0"}, nil)
	if err != nil || v.Rows != 300 {
		t.Fatalf("%+v, error %v", v, err)
	}
	// Its times have no zone.
	if v.ByRule["ChargePeriodStart-type"] != 300 || v.ByRule["BilledCost-type"] != 0 || v.ByRule["ChargeCategory-allowed"] != 0 {
		t.Errorf("%v", v.ByRule)
	}
}
