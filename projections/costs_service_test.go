package projections_test

import (
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// A charge for a machine that the fleet knows, wholly outside its service, is not
// in service: no pool of its type pays, and it is not called unknown. That holds
// within the month of the bill and beyond, and whether the machine reports or not.
func TestCostsNotInService(t *testing.T) {
	const later = t0 + domain.Hour
	sampled := func(l *storetest.Log, at domain.Instant) {
		i := domain.Interval{From: at, To: at + domain.Hour}
		l.Append(domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})})
	}
	for name, c := range map[string]struct {
		from domain.Instant
		more func(*storetest.Log)
	}{
		"an hour later":   {later, nil},
		"the month after": {t0 + 40*domain.Day, nil},
		"it reports":      {later, func(l *storetest.Log) { sampled(l, later) }},
		"it reports a day later": {t0 + domain.Day, func(l *storetest.Log) {
			sampled(l, t0+domain.Day)
			sampled(l, t0+3*domain.Day)
		}},
		"a correction of its service": {later, func(l *storetest.Log) {
			l.Append(domain.Envelope{Source: "fix", Cluster: "c", Time: t0 + domain.Day, Event: &domain.UsageCorrected{
				Node: "n9", GPU: storetest.GPU("c", "n9", 0), Interval: domain.Interval{From: later, To: later + domain.Hour}, Workspace: "a", Reason: "lost",
			}})
		}},
		"it begins and reports within the hour": {t0 + 90*minute, func(l *storetest.Log) {
			i := domain.Interval{From: t0 + 90*minute, To: t0 + 120*minute}
			l.Append(domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})})
		}},
		"it reported before its service, after the charge": {t0 + 5*domain.Hour, func(l *storetest.Log) { sampled(l, t0+2*domain.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := house()
			env := storetest.Node("c", "n9", "H100 80GB", 2, c.from)
			r := env.Event.(*domain.NodeRegistered)
			r.ResourceID, r.SKU, r.BillingModel, r.InServiceFrom = "r-late", "gpu-2", domain.BillingOnDemand, c.from
			l.Append(env, recorded(billLine("13-early", "9", func(b *domain.BillingLine) {
				b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = t0, t0+domain.Hour, "r-late"
				b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
				b.ServiceCategory, b.SKUID, b.RegionID = "Compute", "gpu-2", "eu"
			})))
			if c.more != nil {
				c.more(l)
			}
			rep := costs(t, l, projections.CostQuery{Month: mayBill, By: []projections.CostDimension{projections.CostByWorkspace, projections.CostByLine}})
			var kinds []attribution.Kind
			for _, x := range rep.Exceptions {
				if x.Subject == "1/r-late" {
					kinds = append(kinds, x.Kind)
				}
			}
			if !slices.Equal(kinds, []attribution.Kind{attribution.NotInService}) {
				t.Errorf("it is %v", kinds)
			}
			for _, g := range rep.Groups {
				if g.Key[projections.CostByLine] == "p|1|13-early" && g.Key[projections.CostByWorkspace] != attribution.Platform {
					t.Errorf("%s pays %s for it", g.Key[projections.CostByWorkspace], g.Billed)
				}
			}
		})
	}
}

// What a machine did before anybody declared it is its own: it is found by the
// resource that was declared later, in the hours in which it reported.
func TestCostsBeforeService(t *testing.T) {
	l := house()
	env := storetest.Node("c", "n9", "H100 80GB", 1, t0+domain.Day)
	r := env.Event.(*domain.NodeRegistered)
	r.ResourceID, r.SKU, r.BillingModel, r.InServiceFrom = "r-late", "gpu-1", domain.BillingOnDemand, t0+domain.Day
	i := span(0, 60)
	l.Append(env,
		domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})},
		recorded(billLine("13-early", "9", func(b *domain.BillingLine) {
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = i.From, i.To, "r-late"
			b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
			b.ServiceCategory, b.SKUID, b.RegionID = "Compute", "gpu-1", "eu"
		})))
	for _, g := range costs(t, l, projections.CostQuery{Month: mayBill, By: []projections.CostDimension{projections.CostByWorkspace, projections.CostByLine}}).Groups {
		if g.Key[projections.CostByLine] == "p|1|13-early" && (g.Key[projections.CostByWorkspace] != "a" || g.Billed.String() != "9") {
			t.Errorf("%s pays %s for it", g.Key[projections.CostByWorkspace], g.Billed)
		}
	}
}
