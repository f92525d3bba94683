package projections_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// TestWritingDoesNotGrowWithHistory folds repeated reports, one per transaction, and counts the
// bytes of the rows that change, which is what a store writes: as many after a month as after two
// days.
func TestWritingDoesNotGrowWithHistory(t *testing.T) {
	const every = 30 * 60 * domain.Second
	device := storetest.GPU("c1", "n1", 0)
	for name, event := range map[string]func(domain.Interval) domain.Event{
		"energy": func(i domain.Interval) domain.Event {
			return &domain.EnergyMetered{Meter: "pdu", Nodes: []string{"n1"}, Interval: i}
		},
		"replicas": func(domain.Interval) domain.Event {
			return &domain.ReplicasObserved{Deployment: "chat", Model: "llama", Ready: 1, Desired: 2}
		},
		"fault": func(domain.Interval) domain.Event {
			return &domain.GPUFaultObserved{Node: "n1", GPU: device, Kind: domain.FaultXID, Code: 79, Count: 1}
		},
		"cordon": func(domain.Interval) domain.Event { return &domain.NodeCordoned{Node: "n1"} },
		"drain":  func(domain.Interval) domain.Event { return &domain.NodeDrained{Node: "n1"} },
		"return": func(domain.Interval) domain.Event { return &domain.NodeReturned{Node: "n1"} },
		"silence": func(i domain.Interval) domain.Event {
			return &domain.CollectorSilent{Node: "n1", Silent: i}
		},
		"drop": func(i domain.Interval) domain.Event {
			return &domain.SpoolDropped{Node: "n1", Stream: "s", From: 3, To: 3, Covered: i}
		},
		"correction": func(i domain.Interval) domain.Event {
			return &domain.UsageCorrected{Correction: i.From.String(), Node: "n1", GPU: device, Interval: i, Workspace: "beta", Reason: "wrong label"}
		},
		"interruption": func(domain.Interval) domain.Event {
			return &domain.SpotInterrupted{Market: storetest.Frankfurt, SKU: "p5", Units: 1}
		},
		"denial": func(domain.Interval) domain.Event {
			return &domain.AccessDenied{Entity: "e", Principal: "p", Action: "read", Target: "costs"}
		},
		"usage": func(i domain.Interval) domain.Event {
			return storetest.Sample("n1", i, storetest.Seen{ID: device, Activity: 700})
		},
		"serving": func(i domain.Interval) domain.Event {
			return &domain.ServingSampled{Deployment: "chat", Model: "llama", Engine: "vllm", Interval: i}
		},
		"offer": func(i domain.Interval) domain.Event {
			return &domain.OfferQuoted{
				Market: storetest.Frankfurt, Offer: "o", SKU: "p5", GPUModel: "H100 80GB", GPUCount: 8,
				Kind: domain.OfferOnDemand, Currency: "USD", ValidFrom: storetest.Start,
			}
		},
		"deployment": func(domain.Interval) domain.Event {
			return &domain.DeploymentChanged{Deployment: "chat", Model: "llama", Class: domain.ClassServing, Replicas: 2, Need: domain.GPUNeed{Count: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := projections.NewMemory(domain.TopicSpecs())
			l := storetest.NewLog()
			// written returns the bytes that a day's reports change.
			written := func(day int) (n int) {
				for at := storetest.Start + domain.Instant(day)*domain.Day; at < storetest.Start+domain.Instant(day+1)*domain.Day; at += every {
					tp, _ := l.AppendAt(domain.Envelope{Workspace: "acme", Cluster: "c1", Time: at + every, Event: event(domain.Interval{From: at, To: at + every})}, at+every)
					n += changedBytes(t, l, m, tp)
				}
				return n
			}
			var early, late int
			for day := range 30 {
				switch n := written(day); day {
				case 4: // by then a stream keeps the maximum number of records to compare with
					early = n
				case 29:
					late = n
				}
			}
			if late > early+early/10 {
				t.Errorf("the reports of day 30 change %d bytes, those of day 5 %d", late, early)
			}
		})
	}
}

// changedBytes folds the next record of a partition and returns the size in bytes of the rows that
// it changed.
func changedBytes(t *testing.T, l *storetest.Log, s projections.Store, tp domain.TopicPartition) (bytes int) {
	t.Helper()
	tx, err := s.Begin(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	rec := l.Records(tp)[tx.Next()]
	f := projections.NewProjector(tp, tp.Topic.Partitions(), l)
	rows, err := tx.Load(t.Context(), func(yield func(projections.Key) bool) { f.Keys(&rec, yield) })
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(rows, &rec); err != nil {
		t.Fatal(err)
	}
	for k, row := range rows.Changed {
		if q, ok := row.(*projections.Quarantined); ok {
			t.Fatalf("%s is set aside: %s", l.Event(&rec).Event.Type(), q.Reason)
		}
		b, err := projections.EncodeRow(row)
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		bytes += len(b)
	}
	if err := tx.Commit(t.Context(), tx.Next()+1, domain.Anchor{}); err != nil {
		t.Fatal(err)
	}
	return bytes
}
