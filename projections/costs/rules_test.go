package costs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// A line of another SKU states the same two hours of a machine. That is an exception until a
// mapping rule says that the line buys nothing. A rule of a workspace other than the root has no
// effect.
func TestCostsMappingRules(t *testing.T) {
	l := house()
	l.Append(recorded(billLine("13-fabric", "1", func(b *domain.BillingLine) {
		b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = storetest.Span(0, 120).From, storetest.Span(0, 120).To, "r-1"
		b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(2)), "Hours"
		b.ServiceCategory, b.SKUID = "Compute", "fabric-node"
	})))
	ambiguous := func() int {
		r := report(t, l, costs.Query{Month: storetest.MayBill})
		n := 0
		for _, x := range r.Exceptions {
			if x.Kind == attribution.BuyerAmbiguous {
				n += x.Lines
			}
		}
		return n
	}
	if n := ambiguous(); n != 1 {
		t.Fatalf("%d lines are ambiguous, want that of the fabric", n)
	}
	rule := func(workspace, name string, priority uint32, buys domain.LineBuys) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start - domain.Day, Event: &domain.MappingRuleSet{
			Rule: name, Priority: priority, Columns: map[string]string{"SkuId": "fab*"}, Buys: buys, EffectiveFrom: storetest.MayBill.From,
		}})
	}
	l.Append(rule("own", "elsewhere", 0, domain.BuysNothing))
	if n := ambiguous(); n != 1 {
		t.Errorf("%d lines are ambiguous by the rule of a workspace that decides for itself alone", n)
	}
	l.Append(rule("home", "fabric", 1, domain.BuysNothing), rule("home", "later", 2, domain.BuysGPUTime))
	if n := ambiguous(); n != 0 {
		t.Errorf("%d lines are ambiguous in spite of a rule", n)
	}
	r := report(t, l, costs.Query{Month: storetest.MayBill})
	if !slices.ContainsFunc(r.Exceptions, func(x attribution.Exception) bool {
		return x.Kind == costs.PolicyNotApplied && x.Subject == "own/elsewhere"
	}) {
		t.Errorf("the rule of another workspace is no exception: %+v", r.Exceptions)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		ref, err := attribution.ParseRef("issuer=p;account=1;line=13-fabric;hour=" + storetest.Start.String() + ";workspace=a;cluster=c;deployment=chat;component=allocated")
		if err != nil {
			t.Fatal(err)
		}
		x, err := costs.Explain(v, ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		const want = "meter add_on: mapping rule home/fabric says nothing; it buys no time and is divided among those who held the machine"
		if !slices.Contains(x.Why, want) {
			t.Errorf("it says %s, want %s", strings.Join(x.Why, "\n"), want)
		}
	})
}
