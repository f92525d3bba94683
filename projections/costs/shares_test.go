package costs_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// Three replicas share a GPU, reported one second at a time. A third of a second is not a whole
// number of milliseconds, and the rounding of each second went to the same replicas.
func TestCostsOfSharesAreExact(t *testing.T) {
	l := storetest.NewLog()
	env := storetest.Node("c", "n1", "H100 80GB", 1, storetest.Start-domain.Day)
	env.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	l.Append(domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}}, env)
	const seconds = 60
	for i := range domain.Instant(seconds) {
		s := domain.Interval{From: storetest.Start + i*domain.Second, To: storetest.Start + (i+1)*domain.Second}
		var seen []storetest.Seen
		for r, workspace := range []string{"ada", "bob", "cyd"} {
			// The deployment changes each second, so that seconds are not joined.
			seen = append(seen, storetest.Seen{ID: storetest.GPU("c", "n1", 0), Replica: uint32(r + 1), Workspace: workspace, Deployment: "d" + string(rune('a'+i%2))})
		}
		l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: s.To, Event: storetest.Sample("n1", s, seen...)})
	}
	l.Append(recorded(billLine("l", "300000", func(b *domain.BillingLine) {
		b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID, b.ServiceCategory = storetest.Start, storetest.Start+seconds*domain.Second, "r-1", "Compute"
	})))
	for _, g := range report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace}}).Groups {
		// One microsecond per second in a minute of 300,000.
		if off := g.Billed.Decimal().Sub(storetest.Dec("100000")).Abs(); off.GreaterThan(storetest.Dec("0.2")) {
			t.Errorf("%s pays %s of 300000", g.Key[costs.ByWorkspace], g.Billed)
		}
	}
}
