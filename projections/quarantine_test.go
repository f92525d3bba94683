package projections_test

import (
	"context"
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func TestQuarantineAndStats(t *testing.T) {
	l := storetest.NewLog()
	tp := domain.TopicPartition{Topic: domain.TopicMarket, Partition: 2}
	l.Append(root.Register(root, "home", domain.RoleAdmin, nil, t0))
	for range 3 {
		l.AppendRaw(tp, []byte("k"), []byte("no event"), t0)
	}
	bad := domain.Envelope{Workspace: "acme", Time: t0, Event: &domain.WorkspaceRegistered{}} // without a name
	l.Append(bad)
	resolve := func(offset int64, resolution string) domain.Envelope {
		return domain.Envelope{Time: t0 + domain.Hour, Event: &domain.QuarantineResolved{Entity: "house", Topic: tp.Topic, Partition: uint32(tp.Partition), Offset: offset, Resolution: resolution, Reason: "seen to"}}
	}
	l.Append(root.Sign(resolve(0, "discarded")), mallory.Sign(resolve(1, "discarded")))
	late := storetest.Node("c1", "n1", "x", 1, t0+3*minute)
	late.Source, late.Sequence = "importer", 5
	l.AppendAt(late, t0)

	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		q, err := projections.Quarantine(v)
		if err != nil {
			return err
		}
		if len(q.Entries) != 4 || q.Open != 3 {
			t.Fatalf("%d in quarantine, %d open; want 4 and 3", len(q.Entries), q.Open)
		}
		e := q.Find("qm.market/2@0")
		if e == nil || e.Resolution != "discarded" || e.ResolvedBy != "root" || e.Note != "seen to" || e.Resolved != t0+domain.Hour || len(e.SHA256) != 32 {
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

		s, err := projections.NewLogStats(v)
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
				// What was understood and found bad has its place in the stream.
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
