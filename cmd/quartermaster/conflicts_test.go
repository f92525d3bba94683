package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
)

// A forged sequence does not silence a node's real fault: it stands in quarantine, is
// told of once however often, and counts once it is appended again.
func TestForgedSequence(t *testing.T) {
	dir := apptest.FilledDir(t)
	at := app.Now() - domain.Hour
	fault := func(xid uint32) domain.Record {
		t.Helper()
		rec, err := wire.Encode(&domain.Envelope{
			Source: "node-reporter/lab/n1", Incarnation: 7, Sequence: 1, Time: at, Cluster: "lab", Subject: "n1",
			Event: &domain.GPUFaultObserved{Node: "n1", GPU: domain.DeriveGPUID("lab", "n1", 0), Kind: domain.FaultXID, Code: xid, Count: 1, Fatal: xid == 79},
		})
		if err != nil {
			t.Fatal(err)
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		return rec
	}
	h, _ := apptest.Open(t, dir)
	if err := h.Log.Append(t.Context(), []domain.Record{fault(13), fault(79), fault(79), fault(13)}); err != nil {
		t.Fatal(err)
	}
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 1, 0} {
		n, err := h.TellConflicts(t.Context()) // the second comes before the first is folded
		if n != want || err != nil {
			t.Errorf("call %d told of %d conflicts: %v", i, n, err)
		}
		if i == 1 {
			before := h.Runner.Progress()
			if err := h.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := h.Runner.Progress(); p.Folded-before.Folded != 1 || p.Repeats-before.Repeats != 1 || p.Quarantined != before.Quarantined {
				t.Errorf("told twice, %d count, %d are repeats", p.Folded-before.Folded, p.Repeats-before.Repeats)
			}
		}
	}
	faults := func() (xids []uint32) {
		t.Helper()
		if err := h.View(t.Context(), func(v projections.View) error {
			return v.Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
				for _, f := range row.(*projections.History).Versions {
					if f.Order.Effective != at {
						continue // of the data directory as it is made
					}
					xids = append(xids, f.Event.(*domain.GPUFaultObserved).Code)
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		return xids
	}
	if got := faults(); len(got) != 1 || got[0] != 13 {
		t.Errorf("faults %v", got)
	}
	apptest.Close(t, h)

	code, out := command(t, dir, "quarantine", "list", "-o", "json")
	var list struct {
		Entries []projections.QuarantineEntry `json:"entries"`
	}
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.Entries) != 1 || list.Entries[0].Kind != projections.KindConflict {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	id := list.Entries[0].ID
	code, out = command(t, dir, "quarantine", "show", id, "--event")
	if code != 0 || !strings.Contains(out, "79") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, dir, "quarantine", "repair", id, "--event", file, "--reason", "the other one is forged"); code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	h, _ = apptest.Open(t, dir)
	defer apptest.Close(t, h)
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := faults(); len(got) != 2 {
		t.Errorf("faults %v", got)
	}
}
