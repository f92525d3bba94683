package projections_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Two clusters of a region are one pool. An hour that one of them does not know is
// not known, what lags behind by less than eight weeks is not demand of nothing,
// and maintenance of a whole cluster is an outage.
func TestPoolHistories(t *testing.T) {
	const hour = domain.Hour
	seen := func(cluster string, at int, milli uint64) domain.Envelope {
		from := t0.HourStart() + domain.Instant(at)*hour
		return domain.Envelope{Cluster: cluster, Time: from + hour, Recorded: from + hour, Event: &domain.DemandObserved{
			Pool: "p", Model: "H100", Unit: "gpu", Interval: domain.Interval{From: from, To: from + hour}, RunningMilli: milli, PendingMilli: 1,
		}}
	}
	window := domain.Interval{From: t0 + 2*hour, To: t0 + 3*hour}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c1", "acme", "p", "eu", t0), storetest.Cluster("c2", "acme", "p", "eu", t0),
		seen("c1", 1, 10), seen("c1", 2, 20), seen("c1", 4, 40), seen("c1", 5, 50),
		seen("c2", 2, 200), seen("c2", 3, 300), seen("c2", 4, 400),
		domain.Envelope{Cluster: "c1", Time: t0 + hour, Event: &domain.MaintenanceScheduled{Maintenance: "all", Window: window}},
		domain.Envelope{Cluster: "c1", Time: t0 + hour, Event: &domain.MaintenanceScheduled{Maintenance: "part", Nodes: []string{"n"}, Window: window}},
		domain.Envelope{Cluster: "c1", Time: t0 + hour, Event: &domain.MaintenanceScheduled{Maintenance: "off", Cancelled: true, Window: window}},
	)
	view(t, l, func(v projections.View) {
		from := t0.HourStart()
		pools, err := projections.PoolHistories(v, from, from+6*hour, projections.DemandFilter{})
		if err != nil {
			t.Fatal(err)
		}
		if len(pools) != 1 {
			t.Fatalf("%d pools", len(pools))
		}
		p := &pools[0]
		if want := []int64{-1, 11, 222, -1, 442, -1}; p.Region != "eu" || p.From != from || !slices.Equal(p.Milli, want) {
			t.Errorf("%s from %s: %v, want %v", p.Region, p.From, p.Milli, want)
		}
		if !slices.Equal(p.Outages, []domain.Interval{window}) {
			t.Errorf("outages %v", p.Outages)
		}
		// Long after its last word a cluster wants nothing, and says so no more.
		pools, err = projections.PoolHistories(v, from, from+6*hour+70*domain.Day, projections.DemandFilter{KnownBy: from + 5*hour})
		if err != nil {
			t.Fatal(err)
		}
		if want := []int64{-1, 11, 222, -1, 442, 0, 0}; !slices.Equal(pools[0].Milli[:7], want) {
			t.Errorf("known by then %v, want %v", pools[0].Milli[:7], want)
		}
	})
}
