package costs_test

import (
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

func divided(t *testing.T, l *storetest.Log) (d *costs.Division) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err != nil {
			t.Fatal(err)
		}
	})
	return d
}

func columnOf(name string) int {
	for i, c := range costs.ExportedColumns() {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// TestExportedSubAccountType: subAccountType of an export is the line's.
func TestExportedSubAccountType(t *testing.T) {
	l := storetest.NewLog()
	l.Append(recorded(billLine("1", "7", func(l *domain.BillingLine) {
		l.SubAccountID, l.SubAccountName, l.SubAccountType, l.AvailabilityZone = "sub", "Sub", "project", "us-east-1a"
	})))
	d := divided(t, l)
	if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error {
		if got := row[columnOf("SubAccountType")]; got != "project" {
			t.Errorf("SubAccountType %q, want project", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRatiosOfRecoverableTax: the ratios of a line's allocations add up to 1, and its list cost to the line's.
func TestRatiosOfRecoverableTax(t *testing.T) {
	for _, share := range []string{"0.5", "0.19", "1"} {
		l := storetest.NewLog()
		for _, env := range houseEvents() {
			if ev, ok := env.Event.(*domain.BillingLineRecorded); ok && ev.Line.LineID == "07-tax" {
				again := *ev
				again.Line.ListCost, again.Line.ContractedCost = decimal.NewNullDecimal(ev.Line.BilledCost), decimal.NewNullDecimal(ev.Line.BilledCost)
				env.Event = &again
			}
			l.Append(env)
		}
		l.Append(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.PolicySet{
			Policy: "vat", Kind: domain.PolicyRecoverableTax, Share: decimal.NewNullDecimal(storetest.Dec(share)),
			Columns: map[string]string{"InvoiceIssuerName": "p"}, EffectiveFrom: storetest.Start - domain.Day,
		}}))
		d := divided(t, l)
		ratio, list, billed := decimal.Zero, decimal.Zero, decimal.Zero
		if _, err := d.Export(costs.AllocationFilter{Line: "07-tax"}, nil, func(row []string) error {
			text := strings.TrimSuffix(strings.TrimPrefix(row[columnOf("AllocatedMethodDetails")], `{"Elements":[{"AllocatedRatio":`), "}]}")
			t.Log(share, row[columnOf("x_WorkspaceId")], row[columnOf("BilledCost")], text, row[columnOf("ListCost")])
			ratio, list, billed = ratio.Add(storetest.Dec(text)), list.Add(storetest.Dec(row[columnOf("ListCost")])), billed.Add(storetest.Dec(row[columnOf("BilledCost")]))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if ratio.String() != "1" || list.String() != "4.53" || billed.String() != "4.53" {
			t.Errorf("share %s: ratios %s, list %s, billed %s; want 1, 4.53, 4.53", share, ratio, list, billed)
		}
	}
}

// TestSavingsRateCountsListOnce: a commitment's purchase is no list cost beside the usage that it covers.
func TestSavingsRateCountsListOnce(t *testing.T) {
	l := storetest.NewLog()
	price := func(list, contracted, effective string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.ListCost, l.ContractedCost = decimal.NewNullDecimal(storetest.Dec(list)), decimal.NewNullDecimal(storetest.Dec(contracted))
			l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec(effective))
			l.CommitmentDiscountID, l.CommitmentDiscountCategory, l.PricingCategory = "res", "Usage", "Committed"
		}
	}
	l.Append(
		// On demand it would be 100. The commitment costs 60, is paid monthly and used in full: 40% are saved.
		recorded(billLine("1-use", "0", price("100", "100", "60"), func(l *domain.BillingLine) { l.CommitmentDiscountStatus = "Used" })),
		recorded(billLine("2-buy", "60", price("60", "60", "0"), func(l *domain.BillingLine) { l.ChargeCategory, l.ChargeFrequency = "Purchase", "Recurring" })),
	)
	r := report(t, l, costs.Query{Month: storetest.MayBill})
	c := r.Totals[0]
	if c.List.String() != "100" || c.SavingsRate.String() != "0.4" {
		t.Errorf("list %s, committed savings %s, rate %s; want 100, 40, 0.4", c.List, c.Committed, c.SavingsRate)
	}
}

// TestProvidersWithDiscountLines: a provider that bills a discount as a line of its own is compared by what it costs.
func TestProvidersWithDiscountLines(t *testing.T) {
	l := house()
	l.Append(domain.Envelope{Workspace: "own", Cluster: "d", Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
		Provider: "q", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "7"}})
	env := storetest.Node("d", "m1", "H100 80GB", 2, storetest.Start-domain.Day)
	env.Event.(*domain.NodeRegistered).ResourceID = "m-d"
	line := func(id, cost, category string, hours int64) domain.Envelope {
		return recorded(billLine(id, cost, func(b *domain.BillingLine) {
			b.BillingAccountID, b.InvoiceID, b.ResourceID, b.ChargeCategory = "7", "", "m-d", category
			b.ChargePeriodStart, b.ChargePeriodEnd = storetest.Start, storetest.Start+2*domain.Hour
			if hours > 0 {
				b.PricingQuantity, b.PricingUnit, b.ServiceCategory = decimal.NewNullDecimal(decimal.NewFromInt(hours)), "Hours", "Compute"
			}
		}))
	}
	l.Append(env, line("31", "40", "Usage", 2), line("32", "-20", "Credit", 0))
	r := units(t, l, costs.UnitUsefulGPUHour)
	full := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByProvider}})
	want := ""
	for _, g := range full.Groups {
		if g.Key[costs.ByProvider] == "q" && g.PerBought != nil {
			want = g.PerBought.String()
		}
	}
	for _, p := range r.Providers {
		if p.Provider == "q" && p.PerHour.String() != want {
			t.Errorf("costs unit: a bought hour at q costs %s; costs --by provider: %s", p.PerHour, want)
		}
	}
}

// TestUnitCostOfABillInAnotherZone: tokens and cost are of the same hours.
func TestUnitCostOfABillInAnotherZone(t *testing.T) {
	// Telemetry and use are complete. A Pacific month ends seven hours after that of UTC.
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day),
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - 9*domain.Day, Event: &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1"}},
	)
	node := storetest.Node("c", "n1", "H100 80GB", 1, storetest.Start-9*domain.Day)
	node.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	l.Append(node)
	end := storetest.MayBill.To
	at := func(h int) domain.Interval {
		return domain.Interval{From: end + domain.Instant(h)*domain.Hour, To: end + domain.Instant(h+1)*domain.Hour}
	}
	for h := -1; h < 1; h++ {
		i := at(h)
		l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: i.To, Event: storetest.Sample("n1", i, storetest.Seen{ID: storetest.GPU("c", "n1", 0), Workspace: "a", Deployment: "chat", Activity: 500})})
		l.Append(domain.Envelope{Source: "scraper", Cluster: "c", Time: i.To, Event: &domain.ServingSampled{
			Interval: i, Deployment: "chat", Model: "llama", Engine: "vllm", PromptTokens: 1_000_000, RequestsOK: 1}})
	}
	l.Append(recorded(billLine("1", "2", func(b *domain.BillingLine) {
		b.BillingPeriodStart, b.BillingPeriodEnd = storetest.MayBill.From+7*domain.Hour, storetest.MayBill.To+7*domain.Hour
		b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = at(-1).From, at(0).To, "r-1"
		b.PricingQuantity, b.PricingUnit, b.ServiceCategory = decimal.NewNullDecimal(decimal.NewFromInt(2)), "Hours", "Compute"
	})))
	r := units(t, l, costs.UnitMillionTokens)
	if len(r.Totals) != 1 {
		t.Fatalf("%+v", r)
	}
	c := r.Totals[0]
	if c.Effective.String() != "2" || c.PromptTokens != 2_000_000 || c.Upper.String() != "1" {
		t.Errorf("%s for %d tokens is %s for a million, coverage %d; want 2 for 2000000: 1, coverage 1000", c.Effective, c.PromptTokens, c.Upper, *c.Coverage)
	}
}

// TestRatiosOfRecoverableTaxOfASmallBill: whatever follows, each share of a tax line is what it has of the line's billed cost, and its list cost too.
func TestRatiosOfRecoverableTaxOfASmallBill(t *testing.T) {
	for _, workspace := range []string{"a", "team"} {
		l := storetest.NewLog()
		l.Append(
			storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day),
			storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.MappingRuleSet{
				Rule: "r", ToWorkspace: workspace, Columns: map[string]string{"ServiceName": "Storage"}, EffectiveFrom: storetest.Start - domain.Day}}),
			storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.PolicySet{
				Policy: "vat", Kind: domain.PolicyRecoverableTax, Share: decimal.NewNullDecimal(storetest.Dec("0.5")),
				Columns: map[string]string{"InvoiceIssuerName": "p"}, EffectiveFrom: storetest.Start - domain.Day,
			}}),
			recorded(billLine("1", "0.30", func(l *domain.BillingLine) { l.ServiceName = "Storage" })),
			recorded(billLine("2-tax", "0.06", func(l *domain.BillingLine) {
				l.ChargeCategory, l.ListCost, l.ContractedCost = "Tax", decimal.NewNullDecimal(l.BilledCost), decimal.NewNullDecimal(l.BilledCost)
			})),
		)
		d := divided(t, l)
		list := decimal.Zero
		if _, err := d.Export(costs.AllocationFilter{Line: "2-tax"}, nil, func(row []string) error {
			text := strings.TrimSuffix(strings.TrimPrefix(row[columnOf("AllocatedMethodDetails")], `{"Elements":[{"AllocatedRatio":`), "}]}")
			want := storetest.Dec(row[columnOf("BilledCost")]).Div(storetest.Dec("0.06"))
			if !storetest.Dec(text).Equal(want) {
				t.Errorf("%s: BilledCost %s of 0.06 has AllocatedRatio %s, want %s; ListCost %s", row[columnOf("x_WorkspaceId")], row[columnOf("BilledCost")], text, want, row[columnOf("ListCost")])
			}
			list = list.Add(storetest.Dec(row[columnOf("ListCost")]))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if list.String() != "0.06" {
			t.Errorf("ListCost of the parts adds up to %s, want 0.06", list)
		}
	}
}

// TestExportNamesTheMethodOfTheMonth: what was closed names the method that divided it, in an export too.
func TestExportNamesTheMethodOfTheMonth(t *testing.T) {
	l := storetest.NewLog()
	l.Append(recorded(billLine("1", "100")))
	d := divided(t, l)
	d.Summary.Methods.Attribution = "attribution/1" // it was closed by an earlier program
	if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error {
		if got := row[columnOf("AllocatedMethodId")]; got != d.Methods.Attribution {
			t.Errorf("AllocatedMethodId %s, and the month was divided by %s", got, d.Methods.Attribution)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
