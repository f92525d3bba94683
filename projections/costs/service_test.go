package costs_test

import (
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// A charge for a known machine, completely outside its service, is NotInService: no pool of its
// type pays, and the machine is not reported as unknown. That holds within the month of the bill
// and beyond, and whether the machine reports or not.
func TestCostsNotInService(t *testing.T) {
	const later = storetest.Start + domain.Hour
	sampled := func(l *storetest.Log, at domain.Instant) {
		i := domain.Interval{From: at, To: at + domain.Hour}
		l.Append(domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})})
	}
	for name, c := range map[string]struct {
		from domain.Instant
		more func(*storetest.Log)
	}{
		"an hour later":   {later, nil},
		"the month after": {storetest.Start + 40*domain.Day, nil},
		"it reports":      {later, func(l *storetest.Log) { sampled(l, later) }},
		"it reports a day later": {storetest.Start + domain.Day, func(l *storetest.Log) {
			sampled(l, storetest.Start+domain.Day)
			sampled(l, storetest.Start+3*domain.Day)
		}},
		"a correction of its service": {later, func(l *storetest.Log) {
			l.Append(domain.Envelope{Source: "fix", Cluster: "c", Time: storetest.Start + domain.Day, Event: &domain.UsageCorrected{
				Correction: "x", Node: "n9", GPU: storetest.GPU("c", "n9", 0), Interval: domain.Interval{From: later, To: later + domain.Hour}, Workspace: "a", Reason: "lost",
			}})
		}},
		"it begins and reports within the hour": {storetest.Start + 90*storetest.Minute, func(l *storetest.Log) {
			i := domain.Interval{From: storetest.Start + 90*storetest.Minute, To: storetest.Start + 120*storetest.Minute}
			l.Append(domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})})
		}},
		"it reported before its service, after the charge": {storetest.Start + 5*domain.Hour, func(l *storetest.Log) { sampled(l, storetest.Start+2*domain.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := house()
			env := storetest.Node("c", "n9", "H100 80GB", 2, c.from)
			r := env.Event.(*domain.NodeRegistered)
			r.ResourceID, r.SKU, r.BillingModel, r.InServiceFrom = "r-late", "gpu-2", domain.BillingOnDemand, c.from
			l.Append(env, recorded(billLine("13-early", "9", func(b *domain.BillingLine) {
				b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = storetest.Start, storetest.Start+domain.Hour, "r-late"
				b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
				b.ServiceCategory, b.SKUID, b.RegionID = "Compute", "gpu-2", "eu"
			})))
			if c.more != nil {
				c.more(l)
			}
			rep := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByLine}})
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
				if g.Key[costs.ByLine] == "p|1|13-early" && g.Key[costs.ByWorkspace] != attribution.Platform {
					t.Errorf("%s pays %s for it", g.Key[costs.ByWorkspace], g.Billed)
				}
			}
		})
	}
}

// The usage of a machine before its declaration is its own: the machine is found by the resource
// that was declared later, in the hours in which it reported.
func TestCostsBeforeService(t *testing.T) {
	l := house()
	env := storetest.Node("c", "n9", "H100 80GB", 1, storetest.Start+domain.Day)
	r := env.Event.(*domain.NodeRegistered)
	r.ResourceID, r.SKU, r.BillingModel, r.InServiceFrom = "r-late", "gpu-1", domain.BillingOnDemand, storetest.Start+domain.Day
	i := storetest.Span(0, 60)
	l.Append(env,
		domain.Envelope{Source: "reporter/n9", Cluster: "c", Time: i.To, Event: storetest.Sample("n9", i, storetest.Seen{ID: storetest.GPU("c", "n9", 0), Workspace: "a", Activity: 500})},
		recorded(billLine("13-early", "9", func(b *domain.BillingLine) {
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = i.From, i.To, "r-late"
			b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
			b.ServiceCategory, b.SKUID, b.RegionID = "Compute", "gpu-1", "eu"
		})))
	for _, g := range report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByLine}}).Groups {
		if g.Key[costs.ByLine] == "p|1|13-early" && (g.Key[costs.ByWorkspace] != "a" || g.Billed.String() != "9") {
			t.Errorf("%s pays %s for it", g.Key[costs.ByWorkspace], g.Billed)
		}
	}
}
