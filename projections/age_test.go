package projections_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// Observations from long before or after their record are quarantined, whoever wrote them. Imports,
// decisions and repairs of quarantined records may be of any time.
func TestAges(t *testing.T) {
	const now = storetest.Start
	fault := &domain.GPUFaultObserved{Node: "n", GPU: storetest.GPU("c", "n", 0), Kind: domain.FaultXID, Code: 79, Fatal: true}
	sample := func(at domain.Instant) domain.Event {
		return storetest.Sample("n", domain.Interval{From: at - storetest.Minute, To: at}, storetest.Seen{ID: storetest.GPU("c", "n", 0)})
	}
	l := storetest.NewLog()
	want := map[string]string{}
	add := func(kind, source string, at domain.Instant, ev domain.Event, cites string) string {
		tp, offset := l.AppendAt(domain.Envelope{Source: source, Cluster: "c", Time: at, Event: ev, Cites: cites}, now)
		id := recordName(tp, offset)
		if kind != "" {
			want[id] = kind
		}
		return id
	}
	add(projections.KindTooOld, "node-reporter/c/n", 365*domain.Day, fault, "")
	old := add(projections.KindTooOld, "anybody", now-180*domain.Day, sample(now-180*domain.Day), "")
	add(projections.KindTooOld, "anybody", now-8*domain.Day, &domain.ReplicasObserved{Deployment: "d", Model: "m", Desired: 1}, "")
	add(projections.KindTooOld, "anybody", now-8*domain.Day, &domain.JobFinished{Job: "j", Outcome: domain.JobFailed}, "")
	add(projections.KindInFuture, "anybody", now+11*storetest.Minute, fault, "")
	node := func(name string, from domain.Instant) *domain.NodeRegistered {
		return &domain.NodeRegistered{Node: name, SKU: "other", CPUMilli: 1, MemoryMiB: 1, InServiceFrom: from}
	}
	add(projections.KindTooOld, "node-reporter/c/n", 365*domain.Day, node("n", 0), "")
	add(projections.KindTooOld, "node-reporter/c/n", now, node("n", now-180*domain.Day), "")
	add(projections.KindInFuture, "node-reporter/c/n", now+3650*domain.Day, node("n", 0), "")
	add(projections.KindInFuture, "node-reporter/c/n", now, node("n", now+domain.Day), "")
	add("", "node-reporter/c/n", now-6*domain.Day, node("n", now-6*domain.Day), "")
	add("", "sha256:12/nodes.v1", now-180*domain.Day, node("n", now-180*domain.Day), "")
	silent := func(from, to domain.Instant) *domain.CollectorSilent {
		return &domain.CollectorSilent{Node: "n", Silent: domain.Interval{From: from, To: to}}
	}
	add(projections.KindInvalid, "node-reporter/c/n", now, silent(365*domain.Day, now), "")
	add(projections.KindInvalid, "node-reporter/c/n", now, silent(now-domain.Day, now+domain.Day), "")
	add("", "node-reporter/c/n", now, silent(now-30*domain.Day, now), "")
	add("", "node-reporter/c/n", now, silent(now-365*domain.Day, 0), "")
	add(projections.KindInvalid, "node-reporter/c/n", now, &domain.SpoolDropped{Node: "n", Stream: "s", From: 1, To: 2, Covered: domain.Interval{From: 365 * domain.Day, To: now}, Incarnation: 1}, "")
	add("", "node-reporter/c/n", now, &domain.SpoolDropped{Node: "n", Stream: "s", From: 1, To: 2, Covered: domain.Interval{From: now - 30*domain.Day, To: now}, Incarnation: 1}, "")
	add("", "anybody", now+10*storetest.Minute, fault, "")
	add("", "anybody", now-7*domain.Day, sample(now-7*domain.Day), "")
	add("", "sha256:12/usage.v1", now-180*domain.Day, sample(now-180*domain.Day), "")
	add("", "quartermaster/demo", now-180*domain.Day, fault, "")
	add("", "desk", now-180*domain.Day, &domain.UsageCorrected{Correction: "x", Node: "n", GPU: fault.GPU, Interval: domain.Interval{From: now - 181*domain.Day, To: now - 180*domain.Day}, Workspace: "w", Reason: "r"}, "")
	add("", "anybody/mended/"+old, now-180*domain.Day, sample(now-180*domain.Day), old)
	// The record that it repairs was in the wrong partition.
	part, _, _ := strings.Cut(old, "/")
	tp, _, _ := strings.Cut(old, "@")
	for i := range domain.TopicTelemetry.Partitions() {
		if other := fmt.Sprintf("%s/%d", part, i); other != tp {
			add("", "anybody/mended/other", now-180*domain.Day, sample(now-180*domain.Day), other+"@0")
			break
		}
	}
	add(projections.KindTooOld, "anybody/mended/topic", now-180*domain.Day, sample(now-180*domain.Day), "qm.fleet/0@0")
	add(projections.KindTooOld, "anybody/mended/x", now-180*domain.Day, sample(now-180*domain.Day), strings.Replace(old, "@", "@99", 1))
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.View(context.Background(), func(v projections.View) error {
		q, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		for _, e := range q.Entries {
			if want[e.ID] != e.Kind {
				t.Errorf("%s %s is %s, want %q: %s", e.ID, e.Type, e.Kind, want[e.ID], e.Reason)
			}
			delete(want, e.ID)
		}
		for id, kind := range want {
			t.Errorf("%s counts, want %s", id, kind)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func recordName(tp domain.TopicPartition, offset int64) string {
	return fmt.Sprintf("%s@%d", tp, offset)
}
