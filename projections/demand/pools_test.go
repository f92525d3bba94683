package demand_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/storetest"
)

// Two clusters of a region are one pool. An hour that is unknown for one of them is unknown. A lag
// of less than eight weeks does not mean zero demand. A series that lags for longer has ended,
// unless the whole pool did. Maintenance of a whole cluster is an outage.
func TestPoolHistories(t *testing.T) {
	const hour = domain.Hour
	seen := func(cluster string, at int, milli uint64) domain.Envelope {
		from := storetest.Start.HourStart() + domain.Instant(at)*hour
		return domain.Envelope{Cluster: cluster, Time: from + hour, Recorded: from + hour, Event: &domain.DemandObserved{
			Pool: "p", Model: "H100", Unit: "gpu", Interval: domain.Interval{From: from, To: from + hour}, RunningMilli: milli, PendingMilli: 1,
		}}
	}
	window := domain.Interval{From: storetest.Start + 2*hour, To: storetest.Start + 3*hour}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c1", "acme", "p", "eu", storetest.Start), storetest.Cluster("c2", "acme", "p", "eu", storetest.Start),
		seen("c1", 1, 10), seen("c1", 2, 20), seen("c1", 4, 40), seen("c1", 5, 50),
		seen("c2", 2, 200), seen("c2", 3, 300), seen("c2", 4, 400),
		domain.Envelope{Cluster: "c1", Time: storetest.Start + hour, Event: &domain.MaintenanceScheduled{Maintenance: "all", Window: window}},
		domain.Envelope{Cluster: "c1", Time: storetest.Start + hour, Event: &domain.MaintenanceScheduled{Maintenance: "part", Nodes: []string{"n"}, Window: window}},
		domain.Envelope{Cluster: "c1", Time: storetest.Start + hour, Event: &domain.MaintenanceScheduled{Maintenance: "off", Cancelled: true, Window: window}},
	)
	storetest.FoldView(t, l, func(v projections.View) {
		from := storetest.Start.HourStart()
		pools, err := demand.Histories(v, from, from+6*hour, demand.Filter{})
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
		// Long after the last observation of the pool nothing is known.
		pools, err = demand.Histories(v, from, from+6*hour+70*domain.Day, demand.Filter{KnownBy: from + 5*hour})
		if err != nil {
			t.Fatal(err)
		}
		if p := &pools[0]; !slices.Equal(p.Milli[:7], []int64{-1, 11, 222, -1, 442, -1, -1}) || p.Milli[len(p.Milli)-1] != -1 || p.Ended != nil {
			t.Errorf("known by then %v, at the end %d, ended %v", p.Milli[:7], p.Milli[len(p.Milli)-1], p.Ended)
		}
	})
	// If one series continues, the silence of the other means zero demand.
	l.Append(seen("c2", 60*24, 500))
	storetest.FoldView(t, l, func(v projections.View) {
		from := storetest.Start.HourStart()
		pools, err := demand.Histories(v, from, from+(60*24+2)*hour, demand.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		p := &pools[0]
		if want := []demand.EndedSeries{{Source: "c1/p", At: from + 6*hour}}; !slices.Equal(p.Ended, want) || !slices.Equal(p.Milli[60*24-1:], []int64{-1, 501, -1}) {
			t.Errorf("ended %v, want %v; known %v", p.Ended, want, p.Milli[60*24-1:])
		}
	})
}
