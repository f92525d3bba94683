package projections_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

func TestQuarantineAndStats(t *testing.T) {
	l := storetest.NewLog()
	tp := domain.TopicPartition{Topic: domain.TopicMarket, Partition: 2}
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start))
	for range 3 {
		l.AppendRaw(tp, []byte("k"), []byte("no event"), storetest.Start)
	}
	bad := domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.WorkspaceRegistered{}} // without a name
	l.Append(bad)
	resolve := func(offset int64, resolution string) domain.Envelope {
		return domain.Envelope{Time: storetest.Start + domain.Hour, Event: &domain.QuarantineResolved{Entity: "house", Topic: tp.Topic, Partition: uint32(tp.Partition), Offset: offset, Resolution: resolution, Reason: "seen to"}}
	}
	l.Append(storetest.Root.Sign(resolve(0, "discarded")), storetest.Mallory.Sign(resolve(1, "discarded")))
	late := storetest.Node("c1", "n1", "x", 1, storetest.Start+3*storetest.Minute)
	late.Source, late.Sequence = "importer", 5
	l.AppendAt(late, storetest.Start)

	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		q, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		if len(q.Entries) != 4 || q.Open != 3 {
			t.Fatalf("%d in quarantine, %d open; want 4 and 3", len(q.Entries), q.Open)
		}
		if open, err := registry.Open(v); err != nil || !reflect.DeepEqual(open, q.Incomplete) {
			t.Errorf("counted %+v, listed %+v: %v", open, q.Incomplete, err)
		}
		e := q.Find("qm.market/2@0")
		if e == nil || e.Resolution != "discarded" || e.ResolvedBy != "root" || e.Note != "seen to" || e.Resolved != storetest.Start+domain.Hour || len(e.SHA256) != 32 {
			t.Errorf("resolved: %+v", e)
		}
		if e := q.Find("qm.market/2@1"); e == nil || e.Resolution != "" || e.Reason == "" {
			t.Errorf("resolved by nobody: %+v", e)
		}
		if q.Find("qm.market/2@3") != nil {
			t.Error("found what is not there")
		}
		got := fmt.Sprintf("%q %q %q", q.Incomplete.Note("acme"), q.Incomplete.Note("beta"), q.Incomplete.Note(""))
		if got != `"incomplete: 3 events" "incomplete: 2 events" "incomplete: 3 events"` {
			t.Errorf("notes %s", got)
		}
		if note := (projections.Incomplete{All: 1}).Note("x") + (projections.Incomplete{}).Note(""); note != "incomplete: 1 event" {
			t.Errorf("notes %s", note)
		}

		s, err := registry.NewLogStats(v)
		if err != nil {
			return err
		}
		for _, p := range s.Partitions {
			switch (domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}) {
			case tp:
				if p.Next != 3 || p.Quarantined != 3 || p.Streams != 0 {
					t.Errorf("%+v", p)
				}
			case domain.TopicPartition{Topic: domain.TopicWorkspaces}:
				// A record that was decoded and found invalid keeps its place in the stream.
				if p.Next != 2 || p.Quarantined != 1 || p.Events != 2 || p.Missing != 0 {
					t.Errorf("%+v", p)
				}
			}
		}
		if len(s.Partitions) != len(domain.AllPartitions()) {
			t.Errorf("%d partitions", len(s.Partitions))
		}
		if len(s.Sources) != 2 || s.Sources[0].Source != "importer" || s.Sources[0].Missing != 4 || s.Sources[0].Events != 1 || s.Sources[0].AheadMs != 180_000 || s.Sources[1].Incarnations != 1 || s.Sources[1].Streams != 2 {
			t.Errorf("sources %+v", s.Sources)
		}
		if s.Rows["nodes"] != 1 || s.Rows["quarantine"] != 4 || s.Rows["streams"] != 3 {
			t.Errorf("rows %v", s.Rows)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every report says what it may lack: open quarantined records of its workspace or of an unknown
// one, and missing events of its topics.
func TestReportsSayWhatTheyLack(t *testing.T) {
	reports := func(t *testing.T, l *storetest.Log, workspace string) (all [3]registry.Completeness) {
		t.Helper()
		m, err := l.Fold(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		err = m.View(context.Background(), func(v projections.View) error {
			inv, err := inventory.New(v, inventory.Filter{Workspace: workspace, At: storetest.Start + domain.Hour})
			if err != nil {
				return err
			}
			models, err := inventory.Models(v, storetest.Start+domain.Hour, domain.Hour, inventory.ModelFilter{Workspace: workspace})
			if err != nil {
				return err
			}
			usage, err := usage.NewReport(v, storetest.Start, storetest.Start+domain.Hour, usage.Filter{Workspace: workspace})
			if err != nil {
				return err
			}
			all = [3]registry.Completeness{inv.Completeness, models.Completeness, usage.Completeness}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	l := storetest.NewLog()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start), storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100", 1, storetest.Start))
	if got := reports(t, l, ""); !reflect.DeepEqual(got, [3]registry.Completeness{}) {
		t.Errorf("nothing is lacking, but %+v", got)
	}

	telemetry := domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: 1}
	l.AppendRaw(telemetry, []byte("k"), []byte("no event"), storetest.Start) // of an unknown workspace
	l.AppendRaw(telemetry, []byte("k"), []byte("no event either"), storetest.Start)
	l.Append(storetest.Root.Sign(domain.Envelope{Time: storetest.Start + 1, Event: &domain.QuarantineResolved{
		Entity: "house", Topic: telemetry.Topic, Partition: uint32(telemetry.Partition), Offset: 1, Resolution: "discarded", Reason: "seen to",
	}}))
	for _, workspace := range []string{"acme", "acme", "beta"} {
		l.Append(domain.Envelope{Workspace: workspace, Cluster: "c", Time: storetest.Start, Event: &domain.DeploymentChanged{}}) // without a name
	}
	late := func(sequence uint64, env domain.Envelope) {
		env.Source, env.Sequence = "late", sequence
		l.Append(env)
	}
	late(3, domain.Envelope{Cluster: "c", Time: storetest.Start, Event: &domain.ReplicasObserved{Deployment: "d", Model: "m"}})                                                                   // misses 2
	late(5, domain.Envelope{Cluster: "c", Time: storetest.Start, Event: &domain.NodeCordoned{Node: "n"}})                                                                                         // misses 4
	late(9, domain.Envelope{Cluster: "c", Time: storetest.Start + storetest.Minute, Event: storetest.Sample("n", storetest.Span(0, 1), storetest.Seen{ID: storetest.DeviceOf(0), Activity: -1})}) // misses 8
	late(17, domain.Envelope{Cluster: "c", Time: storetest.Start, Event: &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Span(100, 101)}})                                       // misses 16
	late(33, domain.Envelope{Time: storetest.Start, Event: &domain.SpotInterrupted{Market: domain.Market{Provider: "p", Region: "eu"}, SKU: "s", Units: 1}})                                      // no report's business
	for _, c := range []struct {
		workspace  string
		incomplete int
	}{{"acme", 3}, {"beta", 2}, {"nobody", 1}, {"", 4}} {
		var want [3]registry.Completeness
		for i, missing := range [3]uint64{2 + 4 + 8 + 16, 2 + 8 + 16, 4 + 8 + 16} {
			want[i].Incomplete, want[i].Missing = c.incomplete, missing
		}
		if got := reports(t, l, c.workspace); !reflect.DeepEqual(got, want) {
			t.Errorf("of %q: fleet, models and usage lack %+v, want %+v", c.workspace, got, want)
		}
	}
	for want, c := range map[string]registry.Completeness{
		"":                     {},
		"incomplete: 2 events": {Incomplete: 2},
		"incomplete: 1 event; 9 events have not arrived": {Incomplete: 1, Missing: 9},
		"incomplete: 1 event has not arrived":            {Missing: 1},
	} {
		if got := c.Note(); got != want {
			t.Errorf("%+v is noted as %q, want %q", c, got, want)
		}
	}
	// Numbers that anyone may claim do not overflow.
	for i := range 2 {
		env := domain.Envelope{Source: fmt.Sprint("liar ", i), Sequence: 1<<64 - 1, Cluster: "c", Time: storetest.Start, Event: &domain.NodeCordoned{Node: "n"}}
		l.Append(env)
	}
	if got := reports(t, l, ""); got[2].Missing != 1<<64-1 {
		t.Errorf("liars miss %d events", got[2].Missing)
	}
}
