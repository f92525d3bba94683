package main

import (
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// What will never arrive is called lost by a signature, and no longer awaited. An event
// that arrives after all counts.
func TestStreamsResolve(t *testing.T) {
	dir := apptest.FilledDir(t)
	at := app.Now() - domain.Hour
	fault := func(seq uint64) {
		t.Helper()
		h, _ := apptest.Open(t, dir)
		defer apptest.Close(t, h)
		rec, err := wire.Encode(&domain.Envelope{
			Source: "node-reporter/lab/n1", Incarnation: 7, Sequence: seq, Time: at, Cluster: "lab", Subject: "n1",
			Event: &domain.GPUFaultObserved{Node: "n1", GPU: domain.DeriveGPUID("lab", "n1", 0), Kind: domain.FaultXID, Code: 13, Count: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		if err := h.Log.Append(t.Context(), []domain.Record{rec}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, dir, args...)
		if code == commandline.ExitIncomplete && strings.Contains(want, "have not arrived") {
			code = 0 // an answer that lacks events
		}
		if (code != 0) != strings.HasPrefix(want, "!") || !strings.Contains(out, strings.TrimPrefix(want, "!")) {
			t.Errorf("%v: exit %d, want %q\n%s", args, code, want, out)
		}
	}
	resolve := func(want string, more ...string) {
		t.Helper()
		run(want, append([]string{"streams", "resolve", "node-reporter/lab/n1", "--topic", "qm.hardware", "--reason", "the disk is gone"}, more...)...)
	}
	run("no stream has missing events", "streams", "list")
	resolve("!no gap of source", "--lost")
	fault(1)
	fault(5)
	code, out := command(t, dir, "streams", "list", "-o", "json")
	var list app.StreamGaps
	if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.Streams) != 1 {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if g := list.Streams[0]; g.Awaited != 3 || g.First != 2 || g.Last != 4 || g.Mark != 5 || g.Incarnation != 7 {
		t.Errorf("%+v", g)
	}
	run("3 events have not arrived", "fleet")
	resolve("!give --lost")
	resolve("!no gap of source", "--lost", "--incarnation", "8")
	resolve("would mark as lost 3 events", "--lost", "--dry-run")
	run("3 events have not arrived", "fleet")
	resolve("lost: 3 events of node-reporter/lab/n1 in qm.hardware/", "--lost")
	run("no stream has missing events", "streams", "list")
	if _, out := command(t, dir, "fleet"); strings.Contains(out, "have not arrived") {
		t.Error(out)
	}
	fault(3)
	fault(8)
	run(" 2 ", "streams", "list")
	_, out = command(t, dir, "log", "replay", "-o", "json")
	if !strings.Contains(out, `"repeats": 0`) {
		t.Error(out)
	}
}
