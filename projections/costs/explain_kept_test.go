package costs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// Every allocation is explained from the division as dividing again explains it, but for the words of a rule that shares.
func TestExplainKeptAsDivided(t *testing.T) {
	text := func(x *costs.Explanation) string {
		shared := x.Allocation.Component == attribution.SharedCost
		x.Why = slices.DeleteFunc(x.Why, func(s string) bool { return shared && strings.HasPrefix(s, "match method") })
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	decided := func(workspace string, ev domain.Event) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start - domain.Day, Event: ev})
	}
	ruled := house()
	ruled.Append(
		decided("home", &domain.PolicySet{Policy: "vat", Kind: domain.PolicyRecoverableTax, Share: decimal.NewNullDecimal(storetest.Dec("0.25")),
			EffectiveFrom: storetest.Start - domain.Day}),
		decided("home", &domain.MappingRuleSet{Rule: "to-a", Columns: map[string]string{"ServiceName": "Storage"},
			ToWorkspace: "a", EffectiveFrom: storetest.Start - domain.Day}),
		decided("home", &domain.MappingRuleSet{Rule: "shared", Columns: map[string]string{"ServiceName": "Support"},
			ToShares: []domain.WorkspaceWeight{{Workspace: "a", Weight: 2}, {Workspace: "b", Weight: 1}}, EffectiveFrom: storetest.Start - domain.Day}),
	)
	for i, service := range []string{"Storage", "Support"} {
		ruled.Append(recorded(billLine(fmt.Sprint("2", i, service), "3.01", func(l *domain.BillingLine) { l.ServiceName, l.InvoiceID = service, "i-2" })))
	}
	fee := func(id, cost, from string) domain.Envelope {
		return recorded(billLine(id, cost, func(l *domain.BillingLine) {
			l.ChargeCategory, l.ChargeFrequency, l.CommitmentDiscountID, l.PricingCategory = "Purchase", from, "res", "Committed"
		}))
	}
	ruled.Append(fee("30-fee", "8.5", "Recurring"), fee("31-upfront", "70", "One-Time"),
		recorded(billLine("32-fee-of-another", "2", func(l *domain.BillingLine) {
			l.ChargeCategory, l.ChargeFrequency, l.CommitmentDiscountID, l.PricingCategory = "Purchase", "Recurring", "unknown", "Committed"
		})),
		recorded(billLine("33-tax", "0.19", func(l *domain.BillingLine) { l.ChargeCategory, l.InvoiceID = "Tax", "i-2" })),
		recorded(billLine("34-credit", "-0.5", func(l *domain.BillingLine) { l.ChargeCategory, l.ResourceID = "Credit", "r-1" })))
	by := map[string][2]int{} // by match method and component: explained from the division, and not
	logs := map[string]*storetest.Log{"teams": billedTeams(2, 6, 4), "house": house(), "rules": ruled}
	for _, rule := range []attribution.Discount{attribution.PoolRate, attribution.OwnersFirst} {
		l := house()
		l.Append(decided("home", &domain.PolicySet{Policy: "discount", Kind: domain.PolicyCommitmentDiscount, Value: string(rule),
			EffectiveFrom: storetest.Start - domain.Day}))
		logs[string(rule)] = l
	}
	cut := house() // charges that begin and end within hours
	for i, m := range []int{7, 20, 45} {
		cut.Append(recorded(billLine(fmt.Sprint("4", i, "-cut"), "1.01", func(l *domain.BillingLine) {
			l.ChargePeriodStart, l.ChargePeriodEnd = storetest.Start+domain.Instant(m)*60*domain.Second, storetest.Start+domain.Hour+domain.Instant(m)*60*domain.Second
			if i == 1 {
				l.ResourceID = "r-1"
			}
		})))
	}
	cut.Append(recorded(billLine("50-network", "3.01", func(l *domain.BillingLine) { l.ServiceCategory, l.ServiceName = "Networking", "Egress" })))
	logs["cut"] = cut
	for name, l := range logs {
		m, err := l.Fold(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		storetest.Look(t, m, func(v projections.View) error {
			var kept bytes.Buffer
			if _, _, err := costs.WriteCanonical(v, storetest.MayBill, &kept); err != nil {
				return err
			}
			d, err := costs.ReadCanonical(openBytes(kept.Bytes()))
			if err == nil {
				d, err = d.At(v)
			}
			if err != nil {
				return err
			}
			return d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error {
				ref, err := attribution.ParseRef(a.Allocation)
				if err != nil {
					return err
				}
				x, has, err := d.ExplainKept(v, ref)
				if err != nil || !has {
					t.Fatalf("%s: %t, %v", a.Allocation, has, err)
				}
				what := fmt.Sprint(name, " ", a.MatchMethod, " ", a.Component)
				n := by[what]
				if x == nil {
					by[what] = [2]int{n[0], n[1] + 1}
					return nil
				}
				by[what] = [2]int{n[0] + 1, n[1]}
				full, err := costs.Explain(v, ref, nil)
				if err != nil {
					return err
				}
				if got, want := text(x), text(full); got != want {
					t.Errorf("%s is explained as\n%s\nwant\n%s", a.Allocation, got, want)
				}
				return nil
			})
		})
	}
	methods := map[string]int{}
	for what, n := range by {
		if n[1] > 0 {
			t.Errorf("%s: %d were explained from the division, and %d were not", what, n[0], n[1])
		}
		methods[strings.Fields(what)[1]] += n[0]
	}
	for m := attribution.ByResource; m <= attribution.ByRule; m++ {
		if methods[m.String()] == 0 {
			t.Errorf("no allocation was divided %s: %v", m, methods)
		}
	}
	if n := by["teams by_resource allocated"]; n[0] < 20 || n[1] > 0 {
		t.Errorf("%d allocations of named machines were explained from the division, %d were not", n[0], n[1])
	}
}
