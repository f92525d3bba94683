package advice_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"

	"github.com/shopspring/decimal"
)

// april is the month that is billed in these tests.
var april = domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}

// paid returns a log of a cluster of one node of two H100, one of which team-a holds, with a line of 96 dollars for each day
// of April, more on the 10th and 11th; and a commitment whose lines end on the 28th.
func paid() *storetest.Log {
	l := storetest.NewLog()
	born := april.From - domain.Day
	node := storetest.Node("c", "n", "H100 80GB", 2, born)
	r := node.Event.(*domain.NodeRegistered)
	r.ResourceID, r.SKU, r.BillingModel, r.BillingAccount = "r-1", "gpu-2", domain.BillingOnDemand, "1"
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), born),
		domain.Envelope{Workspace: "own", Cluster: "c", Time: born, Event: &domain.ClusterRegistered{
			Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
		}},
		node,
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: born, Event: &domain.CommitmentPurchased{
			Commitment: "res", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
			GPUsPerUnit: 2, Units: 3, Term: domain.Interval{From: born, To: storetest.Start + 40*domain.Day}, Hourly: *storetest.USD("4"),
			Upfront: *storetest.USD("0"), NoticeBy: storetest.Start + 10*domain.Day,
		}}),
	)
	for at := april.From; at < april.To; at += domain.Hour {
		l.Append(report("c", at, 500, 0))
	}
	for d := range 30 {
		day := domain.Interval{From: april.From + domain.Instant(d)*domain.Day, To: april.From + domain.Instant(d+1)*domain.Day}
		line := func(id, cost string, edit func(*domain.BillingLine)) {
			b := domain.BillingLine{
				LineID: fmt.Sprintf("%s-%02d", id, d), InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", BillingCurrency: "USD",
				BillingPeriodStart: april.From, BillingPeriodEnd: april.To, ChargePeriodStart: day.From, ChargePeriodEnd: day.To,
				ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", PricingCategory: "Standard", ServiceCategory: "Compute",
				PricingQuantity: decimal.NewNullDecimal(decimal.NewFromInt(24)), PricingUnit: "Hours", RegionID: "eu", SKUID: "gpu-2",
				BilledCost: storetest.Dec(cost), EffectiveCost: decimal.NewNullDecimal(storetest.Dec(cost)),
			}
			edit(&b)
			l.Append(domain.Envelope{Source: "focus/p", Time: day.To, Event: &domain.BillingLineRecorded{Line: b}})
		}
		cost := "96"
		if d == 9 || d == 10 {
			cost = "116"
		}
		line("n", cost, func(b *domain.BillingLine) { b.ResourceID = "r-1" })
		if d < 28 {
			line("unused", "3", func(b *domain.BillingLine) {
				b.CommitmentDiscountID, b.CommitmentDiscountStatus, b.PricingCategory, b.BilledCost = "res", "Unused", "Committed", decimal.Zero
			})
		}
	}
	return l
}

// Prices, costs of providers and costs by day are those of "costs".
func TestCosts(t *testing.T) {
	figures(t, paid(), advice.Options{}, func(v projections.View, f *rules.Figures) {
		r, err := costs.NewReport(v, costs.Query{Month: april, By: []costs.Dimension{costs.ByCluster, costs.ByGPUModel}})
		if err != nil {
			t.Fatal(err)
		}
		g := find(t, r.Groups, func(g *costs.Group) bool { return g.Key[costs.ByCluster] == "c" })
		p := find(t, f.Prices, func(*rules.Price) bool { return true })
		if len(f.Prices) != 1 || p.Cluster != "c" || p.GPUModel == "" || p.Month != april || p.PerGPUHour.Currency != "USD" ||
			!p.PerGPUHour.Amount.Round(6).Equal(*g.PerBought) {
			t.Errorf("prices %+v, want %s", f.Prices, g.PerBought)
		}
		if r, err = costs.NewReport(v, costs.Query{Month: april, By: []costs.Dimension{costs.ByProvider, costs.ByGPUModel, costs.ByWorkloadClass}}); err != nil {
			t.Fatal(err)
		}
		x := find(t, r.Groups, func(g *costs.Group) bool { return g.Useful != nil && *g.Useful > 0 })
		c := find(t, f.ProviderCosts, func(*rules.ProviderTime) bool { return true })
		if len(f.ProviderCosts) != 1 || c.Provider != "p" || c.Class != x.Key[costs.ByWorkloadClass] || c.Useful != *x.Useful || c.Coverage != 1000 ||
			!c.Cost.Amount.Equal(x.Effective.Decimal()) || c.Month != april {
			t.Errorf("costs of providers %+v, want %+v", f.ProviderCosts, x)
		}
	})
}

// A course ends with the last day that is billed whole, and has the 28 days before it.
func TestCourses(t *testing.T) {
	figures(t, paid(), advice.Options{}, func(v projections.View, f *rules.Figures) {
		r, err := costs.NewReport(v, costs.Query{Month: april, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent, costs.ByRegion, costs.ByDay}})
		if err != nil {
			t.Fatal(err)
		}
		c := find(t, f.Courses, func(c *rules.Course) bool { return c.Workspace == "team-a" && c.Component == "allocated" })
		// The 30th is billed, and nobody knows whether all of it.
		if c.Region != "eu" || c.Currency != "USD" || len(c.Days) != 29 || c.Last != (domain.Interval{From: april.To - 2*domain.Day, To: april.To - domain.Day}) {
			t.Fatalf("%+v", c)
		}
		for i, cost := range c.Days {
			day := (april.From + domain.Instant(i)*domain.Day).Time().Format("2006-01-02")
			g := find(t, r.Groups, func(g *costs.Group) bool {
				return g.Key[costs.ByWorkspace] == "team-a" && g.Key[costs.ByComponent] == "allocated" && g.Key[costs.ByDay] == day
			})
			if want := storetest.Dec(map[bool]string{true: "58", false: "48"}[i == 9 || i == 10]); !cost.Equal(g.Effective.Decimal()) || !cost.Equal(want) {
				t.Errorf("%s: %s, want %s", day, cost, want)
			}
		}
		for _, c := range f.Courses {
			if c.Region == "" {
				t.Errorf("the sum over one region is that region: %+v", c)
			}
		}
	})
}

// Without bills of the month before there is no course: it would begin with days that cost nothing.
func TestCourseNeedsBills(t *testing.T) {
	l := paid()
	at := storetest.Start + 10*domain.Day
	l.Append(domain.Envelope{Source: "focus/p", Time: at, Event: &domain.BillingLineRecorded{Line: domain.BillingLine{
		LineID: "june", InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-2", BillingCurrency: "USD",
		BillingPeriodStart: storetest.MayBill.To, BillingPeriodEnd: storetest.MayBill.To + 30*domain.Day,
		ChargePeriodStart: storetest.MayBill.To, ChargePeriodEnd: storetest.MayBill.To + domain.Day,
		ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", BilledCost: storetest.Dec("5"), EffectiveCost: decimal.NewNullDecimal(storetest.Dec("5")),
	}}})
	storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
		f, err := advice.Read(v, storetest.MayBill.To+5*domain.Day, advice.Options{})
		if err == nil && len(f.Courses) > 0 {
			t.Errorf("%+v", f.Courses)
		}
		return err
	})
}

// What commitments did not use is that of the last billed month, and dates are those of their terms.
func TestCommitments(t *testing.T) {
	figures(t, paid(), advice.Options{}, func(v projections.View, f *rules.Figures) {
		c := find(t, f.Commitments, func(*rules.Commitment) bool { return true })
		if len(f.Commitments) != 1 || c.Workspace != "home" || c.Commitment != "res" || c.Window != april ||
			!c.Unused.Amount.Equal(storetest.Dec("84")) || !c.Used.Amount.IsZero() || c.Ends != storetest.Start+40*domain.Day ||
			c.NoticeBy != storetest.Start+10*domain.Day || !c.Monthly.Amount.Equal(storetest.Dec("8760")) || c.Monthly.Currency != "USD" {
			t.Errorf("%+v", f.Commitments)
		}
	})
}

// A quota counts what its workspace and those below it held in the last hour.
func TestQuotas(t *testing.T) {
	l := paid()
	quota := func(id string, edit func(*domain.QuotaSet)) {
		q := &domain.QuotaSet{Quota: id, Resource: "nvidia.com/gpu", Limit: storetest.Dec("4"), EffectiveFrom: april.From}
		edit(q)
		l.Append(storetest.Root.Sign(domain.Envelope{Workspace: "top", Time: april.From, Event: q}))
	}
	l.Append(
		storetest.Root.Sign(domain.Envelope{Workspace: "top", Time: april.From, Event: &domain.WorkspaceRegistered{Name: "top"}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "team-a", Time: april.From, Event: &domain.WorkspaceRegistered{Name: "a", Parent: "top"}}),
	)
	quota("all", func(q *domain.QuotaSet) { q.Hard = true })
	quota("far", func(q *domain.QuotaSet) { q.Region = "us" })
	quota("h100", func(q *domain.QuotaSet) { q.GPUModel, q.Region = "H100 80GB", "eu" })
	quota("other", func(q *domain.QuotaSet) { q.Resource = "cpu" })
	figures(t, l, advice.Options{Budgets: func(m domain.Interval) (*costs.BudgetReport, error) {
		b := costs.BudgetUse{Workspace: "top", Budget: "year", Currency: "USD", Hard: true}
		return &costs.BudgetReport{Budgets: []costs.BudgetUse{b, {Budget: "none", Problem: "no month"}}}, nil
	}}, func(v projections.View, f *rules.Figures) {
		got := ""
		for _, x := range f.Limits {
			got += fmt.Sprint(x.Rule, " ", x.Workspace, "/", x.Name, " ", x.Used, " of ", x.Limit, " ", x.Hard, " ", x.Window.Length() == domain.Hour, "\n")
		}
		want := "budget top/year 0 of 0 true false\n" +
			"quota top/all 1 of 4 true true\nquota top/far 0 of 4 false true\nquota top/h100 1 of 4 false true\n"
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// Owning is compared where both offers exist, for the time that rented GPUs are held.
func TestOwning(t *testing.T) {
	l := paid()
	offer := func(kind domain.OfferKind, hourly, upfront string, months uint32) {
		l.Append(domain.Envelope{Time: april.From, Event: &domain.OfferQuoted{
			Market: domain.Market{Provider: "p", Region: "eu"}, Offer: fmt.Sprint(kind, hourly), SKU: "gpu-2", GPUModel: "H100 80GB", GPUCount: 2, Kind: kind,
			TermMonths: months, Upfront: storetest.Dec(upfront), Hourly: storetest.Dec(hourly), Currency: "USD", ValidFrom: april.From,
		}})
	}
	offer(domain.OfferOnDemand, "8", "0", 0)
	offer(domain.OfferOnDemand, "6", "0", 0)
	offer(domain.OfferSpot, "1", "0", 0)
	offer(domain.OfferOwned, "1", "26280", 36)
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		o := find(t, f.Owning, func(*rules.Owning) bool { return true })
		// Owned: (1 + 26280 ÷ (36 × 730)) ÷ 2 = 1; rented: 3. One of two GPUs is held.
		if o.Region != "eu" || !o.OwnPerHour.Amount.Equal(storetest.Dec("1")) || !o.RentPerHour.Amount.Equal(storetest.Dec("3")) || o.BreakEven != 334 ||
			o.Used != 500 || o.Coverage != 1000 || o.RentOffer != "p/eu/on_demand6" || o.OwnOffer != "p/eu/owned1" || o.Rented != 28*24*projections.MsPerHour {
			t.Errorf("%+v", f.Owning)
		}
	})
}

// Spot interruptions are set against the share of time that the plan for their time takes as lost.
func TestSpot(t *testing.T) {
	l := paid()
	node := storetest.Node("c", "spot", "H100 80GB", 2, storetest.Start-2*domain.Day)
	r := node.Event.(*domain.NodeRegistered)
	r.SKU, r.BillingModel, r.Provider = "spot-2", domain.BillingSpot, "p"
	l.Append(
		node,
		domain.Envelope{Time: april.From, Event: &domain.OfferQuoted{
			Market: domain.Market{Provider: "p", Region: "eu"}, Offer: "s", SKU: "spot-2", GPUModel: "H100 80GB", GPUCount: 2, Kind: domain.OfferSpot,
			Hourly: storetest.Dec("1"), Currency: "USD", ValidFrom: april.From,
		}},
		domain.Envelope{Time: storetest.Start - domain.Hour, Event: &domain.SpotInterrupted{
			Market: domain.Market{Provider: "p", Region: "eu"}, SKU: "spot-2", Units: 3,
		}},
	)
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		if len(f.Spot) != 0 {
			t.Errorf("without a plan %+v", f.Spot)
		}
	})
	plan := func(at domain.Instant, id, overhead string, horizon domain.Interval) {
		document := []byte(`{"assumptions": {"spot_overhead": "` + overhead + `"}}`)
		digest := sha256.Sum256(document)
		l.Append(domain.Envelope{Workspace: "home", Time: at, Event: &domain.PlanComputed{
			Plan: id, Position: "0", Method: "m", Horizon: horizon, Document: document, Digest: digest[:],
		}})
	}
	year := domain.Interval{From: april.From, To: tick + 365*domain.Day}
	before, after := year, year
	before.From, after.From = year.From-domain.Day, tick+1
	plan(storetest.Start-2*domain.Hour, "old", "0.5", year)
	plan(storetest.Start-domain.Hour, "ahead", "0.9", after)
	plan(storetest.Start-domain.Hour, "ended", "0.8", domain.Interval{From: april.From + domain.Hour, To: tick})
	plan(tick+domain.Hour, "new", "0.05", year) // a plan may be recorded after the time that it is for
	plan(tick+2*domain.Hour, "longer", "0.7", before)
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		s := find(t, f.Spot, func(*rules.Spot) bool { return true })
		if len(f.Spot) != 1 || s.Provider != "p" || s.Region != "eu" || s.GPUModel == "" || s.Interrupted != 3 || !s.UnitHours.Equal(storetest.Dec("48")) ||
			!s.AssumedPerHour.Equal(storetest.Dec("0.05")) || s.Plan != "new" {
			t.Errorf("%+v", f.Spot)
		}
	})
}
