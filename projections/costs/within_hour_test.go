package costs_test

import (
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// Ada holds a machine for the first half of an hour and bob for the second, and the price falls at
// half past: each pays for their own half.
func TestCostsWithinAnHour(t *testing.T) {
	l := storetest.NewLog()
	env := storetest.Node("c", "n1", "H100 80GB", 1, storetest.Start-domain.Day)
	env.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	l.Append(domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}}, env)
	for i, workspace := range []string{"ada", "bob"} {
		s := storetest.Span(30*i, 30*i+30)
		l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: s.To, Event: storetest.Sample("n1", s, storetest.Seen{ID: storetest.GPU("c", "n1", 0), Workspace: workspace, Activity: 1000})})
	}
	charge := func(id, billed string, from, to domain.Instant) {
		l.Append(recorded(billLine(id, billed, func(b *domain.BillingLine) {
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID, b.ServiceCategory, b.PricingUnit = storetest.Start+from, storetest.Start+to, "r-1", "Compute", "Seconds"
			b.PricingQuantity = decimal.NewNullDecimal(decimal.NewFromInt(int64((to - from) / domain.Second)))
		})))
	}
	const half, second = 30 * storetest.Minute, domain.Second
	charge("dear", "100", 0, half)
	charge("cheap", "10", half, 2*half)
	// A charge that ends within bob's half is split between him and ada by the seconds held.
	charge("over", "40", half-30*second, half+10*second)

	got := map[string]string{}
	for _, g := range report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByLine}}).Groups {
		got[g.Key[costs.ByWorkspace]+" "+g.Key[costs.ByLine]] = g.Billed.String()
	}
	for k, want := range map[string]string{"ada p|1|dear": "100", "bob p|1|cheap": "10", "ada p|1|over": "30", "bob p|1|over": "10"} {
		if got[k] != want {
			t.Errorf("%s bears %q, want %s (%v)", k, got[k], want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
}
