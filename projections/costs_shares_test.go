package projections_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Three replicas share a GPU, reported a second at a time. A third of a second is
// no whole number of milliseconds, and the rounding of each second fell to the same
// replicas.
func TestCostsOfSharesAreExact(t *testing.T) {
	l := storetest.NewLog()
	env := storetest.Node("c", "n1", "H100 80GB", 1, t0-domain.Day)
	env.Event.(*domain.NodeRegistered).ResourceID = "r-1"
	l.Append(domain.Envelope{Workspace: "own", Cluster: "c", Time: t0 - domain.Day, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}}, env)
	const seconds = 60
	for i := range domain.Instant(seconds) {
		s := domain.Interval{From: t0 + i*domain.Second, To: t0 + (i+1)*domain.Second}
		var seen []storetest.Seen
		for r, workspace := range []string{"ada", "bob", "cyd"} {
			// Whose deployment changes each second, so that seconds do not join.
			seen = append(seen, storetest.Seen{ID: storetest.GPU("c", "n1", 0), Replica: uint32(r + 1), Workspace: workspace, Deployment: "d" + string(rune('a'+i%2))})
		}
		l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: s.To, Event: storetest.Sample("n1", s, seen...)})
	}
	l.Append(recorded(billLine("l", "300000", func(b *domain.BillingLine) {
		b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID, b.ServiceCategory = t0, t0+seconds*domain.Second, "r-1", "Compute"
	})))
	for _, g := range costs(t, l, projections.CostQuery{Month: mayBill, By: []projections.CostDimension{projections.CostByWorkspace}}).Groups {
		// A microsecond of a second in a minute of 300,000.
		if off := g.Billed.Decimal().Sub(dec("100000")).Abs(); off.GreaterThan(dec("0.2")) {
			t.Errorf("%s pays %s of 300000", g.Key[projections.CostByWorkspace], g.Billed)
		}
	}
}
