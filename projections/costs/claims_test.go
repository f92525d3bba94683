package costs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

func claims(t *testing.T, l *storetest.Log, maintenance bool) (c *costs.Claims) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		d, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err == nil {
			c, err = costs.NewClaims(v, d, maintenance)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return c
}

// Two hours of two GPUs cost 10. GPU 0 failed for an hour in which nobody held it, which is a quarter of what was paid:
// 2.5. Then it was half an hour in maintenance: 1.25. GPU 1 was held all the time, and nothing of it is claimed. A
// credit of June for hours of May is 1.2 of the claim, and one that names no machine is shown apart.
func TestClaims(t *testing.T) {
	l := storetest.NewLog()
	node := storetest.Node("c", "n", "H100 80GB", 2, storetest.Start-domain.Day)
	node.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	line := func(id, amount, category, resource string, edit ...func(*domain.BillingLine)) domain.Envelope {
		return recorded(billLine(id, amount, append(edit, func(b *domain.BillingLine) {
			b.ChargeCategory, b.ResourceID, b.ServiceCategory = category, resource, "Compute"
			b.ChargePeriodStart, b.ChargePeriodEnd = storetest.Start, storetest.Start+2*domain.Hour
			if category == "Usage" {
				b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(storetest.Dec("2")), "Hours"
			}
		})...))
	}
	june := func(b *domain.BillingLine) {
		next := projections.BillingMonth(storetest.MayBill.To)
		b.BillingPeriodStart, b.BillingPeriodEnd, b.InvoiceID = next.From, next.To, "i-june"
	}
	l.Append(
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
			Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
		}},
		node,
		storetest.Sampled("reporter/n", 0, 120, storetest.Seen{ID: storetest.DeviceOf(0)}, storetest.Seen{ID: storetest.DeviceOf(1), Workspace: "a", Activity: 500}),
		storetest.Hardware(25, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(1), Kind: domain.FaultXID, Code: 31}),
		storetest.Hardware(30, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 79, Fatal: true, Detail: "fell off the bus"}),
		storetest.Hardware(90, &domain.NodeReturned{Node: "n", GPU: storetest.DeviceOf(0), Faults: true}),
		storetest.Hardware(90, &domain.NodeDrained{Node: "n", Reason: "new driver"}),
		line("1", "10", "Usage", "r-1"), line("2", "1", "Tax", "r-1"), line("3", "-1.2", "Credit", "r-1", june), line("4", "-0.3", "Credit", ""),
	)
	text := func(c *costs.Claims) (got []string) {
		for i := range c.Claims {
			s := &c.Claims[i]
			got = append(got, fmt.Sprintf("%s %s %s %v %s: failed %d min %s %s, maintenance %d min %s, claimed %s credited %s open %s by %v", s.Issuer, s.Account, s.Resource,
				s.Nodes, s.Currency, s.FailedMs/60_000, s.FailedBilled, s.FailedEffective, s.MaintenanceMs/60_000, s.MaintenanceEffective, s.Claimed, s.Credited, s.Open, s.Lines))
			for _, d := range s.Downtimes {
				got = append(got, fmt.Sprintf("%d to %d %s %s %t: %s", (d.From-storetest.Start)/storetest.Minute, (d.To-storetest.Start)/domain.Hour, d.State, d.Cause, d.Open, d.Reason))
			}
			for _, f := range s.Faults {
				got = append(got, fmt.Sprintf("%d %s %d %t", (f.At-storetest.Start)/storetest.Minute, f.Kind, f.Code, f.Fatal))
			}
		}
		for _, a := range c.Accounts {
			got = append(got, fmt.Sprintf("%s %s: claimed %s credited %s other %s open %s at least %s", a.Account, a.Currency, a.Claimed, a.Credited, a.CreditedOther, a.Open, a.OpenLeast))
		}
		for _, x := range c.Credits {
			got = append(got, fmt.Sprintf("%s in %s of %s: %s %t", x.Line, x.Billed, x.Invoice, x.Amount, x.Counted))
		}
		return got
	}
	want := []string{
		"p 1 r-1 [n] USD: failed 60 min 2.5 2.5, maintenance 30 min 1.25, claimed 2.5 credited 1.2 open 1.3 by [1]",
		"30 to 1 failed xid 79 false: fell off the bus",
		"90 to 744 maintenance drained true: new driver",
		"25 xid 31 false",
		"30 xid 79 true",
		"1 USD: claimed 2.5 credited 1.2 other 0.3 open 1.3 at least 1",
		"3 in 2026-06 of i-june: 1.2 true",
		"4 in 2026-05 of i-1: 0.3 false",
	}
	if got := text(claims(t, l, false)); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	with := claims(t, l, true)
	if s := with.Claims[0]; s.Claimed.String() != "3.75" || s.Open.String() != "2.55" {
		t.Errorf("with maintenance %s are claimed and %s are open, want 3.75 and 2.55", s.Claimed, s.Open)
	}
	// More credits than claims leave nothing open, and nothing negative.
	l.Append(line("5", "-9", "Credit", "r-1"))
	if s := claims(t, l, false).Accounts[0]; s.Credited.String() != "10.2" || !s.Open.IsZero() || !s.OpenLeast.IsZero() {
		t.Errorf("after a credit of 9: %+v", s)
	}
}

// What names no machine is a claim about the machines of the cluster that were down. It is the failed usage of the
// month, in each currency.
func TestClaimsOfPools(t *testing.T) {
	l := house()
	l.Append(
		storetest.Hardware(60, &domain.GPUFaultObserved{Node: "n2", GPU: storetest.GPU("c", "n2", 0), Kind: domain.FaultXID, Code: 48, Fatal: true}),
		storetest.Hardware(60, &domain.GPUFaultObserved{Node: "n3", GPU: storetest.GPU("c", "n3", 1), Kind: domain.FaultXID, Code: 79, Fatal: true}),
	)
	c := claims(t, l, false)
	r := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByComponent, costs.ByCharge}})
	var got, want []string
	for _, s := range c.Claims {
		got = append(got, fmt.Sprintf("%q %s %s", s.Resource, s.Currency, s.FailedEffective))
		if s.Resource == "" && !slices.Equal(s.Nodes, []string{"n2", "n3"}) {
			t.Errorf("the claim of the pool names %v", s.Nodes)
		}
	}
	for _, g := range r.Groups {
		if g.Key[costs.ByComponent] == "failed" && g.Key[costs.ByCharge] == "Usage" {
			want = append(want, fmt.Sprintf("%q %s %s", "", g.Currency, g.Effective))
		}
	}
	if len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("claims %v, want the failed usage %v", got, want)
	}
}

// An hour that was paid upfront was paid for, although its line bills nothing.
func TestClaimsOfPrepaidHours(t *testing.T) {
	l := house()
	// Node n2 was held by b, and not from the third hour on.
	l.Append(
		storetest.Hardware(120, &domain.GPUFaultObserved{Node: "n2", Kind: domain.FaultHealth, Code: 15, Fatal: true}),
		recorded(billLine("20-n2", "0", func(b *domain.BillingLine) {
			b.EffectiveCost = decimal.NewNullDecimal(storetest.Dec("4"))
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = storetest.Span(120, 180).From, storetest.Span(120, 180).To, "r-2"
			b.PricingQuantity, b.PricingUnit, b.ServiceCategory, b.SKUID = decimal.NewNullDecimal(storetest.Dec("1")), "Hours", "Compute", "gpu-2"
			b.CommitmentDiscountID, b.CommitmentDiscountStatus, b.PricingCategory, b.RegionID = "res", "Used", "Committed", "eu"
		})),
	)
	c := claims(t, l, false)
	i := slices.IndexFunc(c.Claims, func(s costs.Claim) bool { return s.Resource == "r-2" })
	if i < 0 || !c.Claims[i].FailedBilled.IsZero() || c.Claims[i].Open.String() != "4" || c.Claims[i].FailedMs != 2*projections.MsPerHour {
		t.Errorf("claims %+v, want 4 for two GPU-hours of r-2, of which nothing was billed", c.Claims)
	}
}
