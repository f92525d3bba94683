package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// Filters name records without a list of ids: twenty thousand are resolved in seconds,
// and the answer is short.
func TestResolveByFilter(t *testing.T) {
	dir := apptest.FilledDir(t)
	h, _ := apptest.Open(t, dir)
	many := 1000 * long.Count(4, 20)
	all, half := fmt.Sprintf("%d,000", many/1000), fmt.Sprintf("%d,000", many/2000)
	recs := make([]domain.Record, many)
	for i := range recs {
		recs[i] = domain.Record{Topic: domain.TopicTelemetry, Partition: i % 2, Value: []byte("a port scan"), Time: apptest.May + domain.Instant(i%2)*domain.Day}
	}
	if err := h.Log.Append(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	if err := apptest.Plant(dir, "gpu-twice"); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		t.Helper()
		code, out := command(t, dir, "quarantine", "list", "-o", "json", "--kind", "invalid")
		var list struct {
			Open    int
			Entries []struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(out), &list); code != 0 || err != nil || len(list.Entries) != 1 {
			t.Fatalf("exit %d, %v: %d entries", code, err, len(list.Entries))
		}
		return list.Open
	}
	for _, c := range []struct{ args, want string }{
		{"", "either by id or by filters"},
		{"qm.telemetry/0@0 --kind undecodable", "either by id or by filters"},
		{"--kind none", `--kind "none" is unknown, want one of`},
		{"--topic qm.none", "is not a topic of the log"},
		{"--partition 3", "needs --topic"},
		{"--topic qm.fleet --partition -5 --dry-run", "qm.fleet has partitions 0 to 3"},
		{"--topic qm.fleet --partition 4 --dry-run", "qm.fleet has partitions 0 to 3"},
		{"--partition -1", "needs --topic"},
		{"--since yesterday", "--since: "},
	} {
		args := append([]string{"quarantine", "discard", "--reason", "x"}, strings.Fields(c.args)...)
		if code, out := command(t, dir, args...); code == 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d, want %q\n%s", c.args, code, c.want, out)
		}
	}
	resolve := func(want string, args ...string) {
		t.Helper()
		code, out := command(t, dir, append([]string{"quarantine", "discard", "--reason", "a port scan"}, args...)...)
		if code != 0 || !strings.Contains(out, want) || len(out) > 300 {
			t.Errorf("%v: exit %d, want %q, have %.400s", args, code, want, out)
		}
	}
	resolve("would discard "+half+" records: "+half+" undecodable", "--topic", "qm.telemetry", "--partition", "1", "--dry-run")
	resolve("would discard "+half+" records: "+half+" undecodable", "--kind", "undecodable", "--until", "2026-05-02", "--dry-run")
	resolve("no open quarantined record", "--matching", "no such text", "--dry-run")
	if n := open(); n != many+1 {
		t.Errorf("%d are open, want %d", n, many+1)
	}
	start := time.Now()
	resolve("discarded "+all+" records: "+all+" undecodable, signed by", "--kind", "undecodable")
	t.Logf("resolved in %s", time.Since(start))
	if n := open(); n != 1 {
		t.Errorf("%d are open, want 1", n)
	}
	resolve("no open quarantined record", "--kind", "undecodable")
	if code, out := command(t, dir, "quarantine", "list", "--open"); code != 0 || strings.Count(out, "\n") > 10 || !strings.Contains(out, "qm.fleet/") {
		t.Errorf("open ones: exit %d\n%.1000s", code, out)
	}
	if code, out := command(t, dir, "quarantine", "list"); code != 0 || !strings.Contains(out, "open: 1 invalid\nresolved: "+all+" undecodable\n") {
		t.Errorf("all: exit %d\n%.1000s", code, out)
	}
}
