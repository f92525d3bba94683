package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections/storetest"
)

// report appends what a fleet of a node reports from May on, as another source each time.
func (s *site) report(source string, hours int) {
	s.t.Helper()
	fleet := storetest.Fleet(1, hours, apptest.May)
	var recs []domain.Record
	seqs := map[domain.TopicPartition]uint64{}
	for _, tp := range domain.AllPartitions() {
		held := fleet.Records(tp)
		for i := range held {
			env := fleet.Event(&held[i])
			if env.Signature != nil {
				continue
			}
			seqs[tp]++
			env.Source, env.Incarnation, env.Sequence = source, 1, seqs[tp]
			rec, err := wire.Encode(env)
			if err != nil {
				s.t.Fatal(err)
			}
			rec.Time = held[i].Time
			recs = append(recs, rec)
		}
	}
	if err := s.log().Append(s.t.Context(), recs); err != nil {
		s.t.Fatal(err)
	}
}

// Months of hours leave the database by policy, under a running instance: answers and the comparison
// with the log stay the same, late facts of such a month count, a hold keeps them, and the next run
// takes them over.
func TestHoursLeaveDatabase(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(1)
	s.report("reporter/a", 1000)
	r := s.serve("a")
	r.says(1, "caught up")
	declare := func(lists string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "retention.yaml")
		head := "apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\neffective_from: 2026-01-01\n"
		if err := os.WriteFile(path, []byte(head+lists), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := s.command("apply", "-f", path); code != 0 {
			t.Fatal(out)
		}
	}
	run := func() string {
		t.Helper()
		code, out := s.command("retention", "run")
		if code != 0 {
			t.Fatalf("exit %d\n%s", code, out)
		}
		return out
	}
	usage := func() string {
		t.Helper()
		code, out := s.command("usage", "--from", "2026-05-01", "--to", "2026-06-01", "-o", "json")
		if code != 0 || !strings.Contains(out, `"groups"`) {
			t.Fatalf("exit %d\n%s", code, out)
		}
		_, groups, _ := strings.Cut(out, `"groups"`) // positions differ
		return groups
	}
	cfg, err := config.Load(s.config, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a := &app.App{Config: cfg, ConfigPath: s.config}
	h, err := a.OpenProduction(t.Context(), app.Reading)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Shut()
	hours := func() (n int) {
		t.Helper()
		if err := h.DB.QueryRow(`select count(*) from rows_a.usage_hours where hour < '2026-06-01'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := run(); !strings.Contains(got, "nothing to remove") {
		t.Fatal(got)
	}
	const hold = "legal_holds: [{id: case-7, reason: a lawsuit%s}]\n"
	declare("policies: [{id: hours, kind: retention, scope: hours, value: 1 month}]\n" + fmt.Sprintf(hold, ""))
	before, all := usage(), hours()
	if got := run(); !strings.Contains(got, "nothing to remove") || hours() != all || all == 0 {
		t.Fatalf("%d of %d hours are left: %s", hours(), all, got)
	}
	declare(fmt.Sprintf(hold, ", lifted: true"))
	// A process that is killed after it began leaves the rest to the next one.
	if code, out := s.command("parts", "make"); code != 0 {
		t.Fatal(out)
	}
	due, err := a.For(app.Everyone).Retention(t.Context())
	if err != nil || len(due.Due) != 1 || len(due.Due[0].Removed) == 0 {
		t.Fatalf("%+v: %v", due, err)
	}
	begin := func(id string) {
		t.Helper()
		if err := errors.Join(a.Close(), h.RecordRemoval(t.Context(), &domain.RemovalStarted{
			Entity: app.Platform, Removal: id, What: domain.RetainedHours, Policy: "hours", Rule: "1 month", By: "a test",
			Removed: due.Due[0].Removed,
		}, app.Now())); err != nil {
			t.Fatal(err)
		}
	}
	// But the policy of then decides.
	declare("policies: [{id: hours, kind: retention, scope: hours, value: 36 months}]\n")
	begin("hours/longer")
	if got := run(); !strings.Contains(got, "removal hours/longer: nothing") || hours() != all {
		t.Fatalf("%d of %d hours are left: %s", hours(), all, got)
	}
	declare("policies: [{id: hours, kind: retention, scope: hours, value: 1 month}]\n")
	begin("hours/killed")
	if got := run(); !strings.Contains(got, "removal hours/killed: ") || hours() != 0 {
		t.Fatalf("%d hours are left: %s", hours(), got)
	}
	if got := usage(); got != before {
		t.Errorf("usage was %s, is %s", before, got)
	}
	s.verified()
	if got := run(); !strings.Contains(got, "nothing to remove") {
		t.Errorf("again: %s", got)
	}
	s.report("sha256:late", 3)
	s.verified()
	if n := hours(); n == 0 || n > 3 {
		t.Errorf("late facts wrote %d hours", n)
	}
	if got := run(); !strings.Contains(got, "removal hours/") || hours() != 0 {
		t.Errorf("%d hours are left: %s", hours(), got)
	}
	s.verified()
	code, out := s.command("get", "removals")
	if code != 0 || strings.Count(out, "removed ") != 3 || strings.Contains(out, "removing") {
		t.Errorf("exit %d\n%s", code, out)
	}
	r.ends()
}
