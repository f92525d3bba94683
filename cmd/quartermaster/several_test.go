package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
)

// configured writes the configuration of a site again, with other databases.
func (s *site) configured(others string) {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "\npostgres: {")
	dsn, after, _ := strings.Cut(rest, "\n")
	dsn, _, _ = strings.Cut(strings.TrimSuffix(dsn, "}"), ", others: ")
	text = fmt.Appendf(nil, "%s\npostgres: {%s, others: [%s]}\n%s", before, dsn, others, after)
	if err := os.WriteFile(s.config, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) generations() (ans app.GenerationsStatus) {
	s.t.Helper()
	code, out := s.command("generation", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &ans); err != nil || code != 0 {
		s.t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	return ans
}

// placed counts the events of the active generation by database.
func placed(ans app.GenerationsStatus) (events map[string]int64, misplaced int) {
	events = map[string]int64{}
	for _, g := range ans.Generations {
		if g.Active {
			for _, p := range g.Partitions {
				events[p.Database] += p.Next
			}
			misplaced = g.Misplaced
		}
	}
	return events, misplaced
}

// An installation outgrows its database while it runs: another one is taken in, a rebuild moves half
// of the partitions there, and instances, readers and another rebuild work on both. One of them may
// be out of reach for a while.
func TestProductionSeveral(t *testing.T) {
	s := newSite(t)
	s.patient = true // rows wait in memory until somebody asks, whatever database they go to
	s.start()
	s.fill(300)
	a := s.serve("a")
	a.says(1, "caught up")
	s.verified()

	dsn, _ := database(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	gate := newGate(t, u.Host)
	u.Host = gate.address
	file := writeSecret(t, u.String())
	s.configured(fmt.Sprintf("{name: more, dsn_file: %q, partitions: [qm.telemetry/4-7, qm.fleet/1-3, qm.hardware/0]}", file))
	if code, out := s.command("fleet"); code == 0 || !strings.Contains(out, "database \"more\"") || !strings.Contains(out, "generation migrate") {
		t.Errorf("a database without a schema: exit %d: %s", code, out)
	}
	if code, out := s.command("config", "check"); !strings.Contains(out, "database more: it has no schema of this version yet") || !strings.Contains(out, "databases: 8 partitions of generation a are in another database than configured") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := s.command("generation", "migrate"); code != 0 || !strings.Contains(out, "other databases at this version: more") {
		t.Fatalf("exit %d: %s", code, out)
	}
	// Nothing moves by itself.
	if events, misplaced := placed(s.generations()); misplaced != 8 || events["more"] != 0 || events[""] == 0 {
		t.Errorf("%d are misplaced: %v", misplaced, events)
	}
	a.ends()
	a, b := s.serve("a2"), s.serve("b")
	b.says(1, "joined")
	a.says(1, "joined")
	code, out := s.command("generation", "rebuild", "b", "-o", "json", "--quiet")
	var ans app.Rebuilt
	if err := json.Unmarshal([]byte(out), &ans); err != nil || code != 0 || !ans.Equal || !ans.Switched {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if events, misplaced := placed(s.generations()); misplaced != 0 || events["more"] == 0 || events[""] == 0 {
		t.Errorf("%d are misplaced: %v", misplaced, events)
	}
	if code, out := s.command("generation", "status", "--partitions"); code != 0 || !strings.Contains(out, "more") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := s.command("config", "check"); !strings.Contains(out, "database more: version ") || strings.Contains(out, "than configured") {
		t.Errorf("exit %d: %s", code, out)
	}
	s.fill(300)
	s.verified()
	for _, q := range [][]string{{"usage", "--from", "2026-05-01", "--to", "2026-06-01"}, {"fleet"}, {"log", "stats"}} {
		if code, out := s.command(q...); code != 0 || strings.Contains(out, "not folded") {
			t.Errorf("%s: exit %d: %s", q, code, out)
		}
	}

	// One database is out of reach: nobody answers from half of the rows, and nothing is lost.
	gate.set(false)
	s.fill(120)
	a.says(1, "folding a partition failed")
	if code, out := s.command("fleet"); code == 0 || !strings.Contains(out, `database "more"`) {
		t.Errorf("exit %d: %s", code, out)
	}
	gate.set(true)
	s.verified()

	// An instance that ends leaves partitions of both to the other one.
	a.ends()
	s.fill(120)
	s.verified()
	b.becomes("/readyz", http.StatusOK, "ok")
	if code, out := s.command("generation", "drop", "a", "--force"); code != 0 {
		t.Fatal(out)
	}
	// Back into one database.
	s.configured(fmt.Sprintf("{name: more, dsn_file: %q}", file))
	if code, out := s.command("generation", "rebuild", "c", "-o", "json", "--quiet"); code != 0 || !strings.Contains(out, `"equal": true`) {
		t.Fatalf("exit %d: %s", code, out)
	}
	if events, misplaced := placed(s.generations()); misplaced != 0 || events["more"] != 0 {
		t.Errorf("%d are misplaced: %v", misplaced, events)
	}
	if code, out := s.command("generation", "drop", "b", "--force"); code != 0 {
		t.Fatal(out)
	}
	s.fill(120)
	s.verified()
	b.ends()
	// Now nothing needs it.
	s.configured("")
	s.patience = time.Second
	if code, out := s.command("fleet"); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if n := len(s.generations().Generations); n != 1 {
		t.Errorf("%d generations", n)
	}
}
