package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/snapshotfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// A snapshot that is sound and not what the log says is found by its name, by
// its row, and by a replay on the way; one of another log or of more than there
// is too.
func TestSnapshotThatLies(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	e := newEstate(6, 10*time.Minute)
	keep := func(of *app.Conn, log string, at domain.Position) string {
		t.Helper()
		var path string
		if err := of.View(t.Context(), func(v projections.View) (err error) {
			if at == nil {
				at = v.Position()
			}
			path, err = snapshotfile.Keep(h.Snapshots(), at, func(w io.Writer) error {
				_, err := projections.WriteSnapshot(w, v, log)
				return err
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(path)
	}
	if err := errors.Join(e.fill(t.Context(), h, 30), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	good := keep(h, h.ID, nil)

	// Rows of another estate, of as many records, under this log's name.
	other, _ := apptest.Open(t, t.TempDir())
	liar := newEstate(6, 10*time.Minute)
	liar.start += domain.Hour
	if err := errors.Join(liar.fill(t.Context(), other, 60), other.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	lie := keep(other, h.ID, nil)
	foreign := keep(other, "another", domain.Position{{Topic: domain.TopicFleet}: 1})
	if err := errors.Join(liar.fill(t.Context(), other, 60), other.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	beyond := keep(other, h.ID, nil)
	apptest.Close(t, other)

	if err := errors.Join(e.fill(t.Context(), h, 40), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := h.Shut(); err != nil { // nothing is saved beside
		t.Fatal(err)
	}

	want := map[string]string{good: "equal", lie: "different", foreign: "other_log", beyond: "beyond_log"}
	code, out := command(t, dir, "snapshot", "verify", "-o", "json")
	var checks []app.SnapshotCheck
	if err := json.Unmarshal([]byte(out), &checks); code != 1 || err != nil || len(checks) != len(want) {
		t.Fatalf("exit %d, %d checks, %v\n%s", code, len(checks), err, out)
	}
	for _, c := range checks {
		if name := filepath.Base(c.File); c.Result != want[name] {
			t.Errorf("%s is said to be %s, want %s: %s", name, c.Result, want[name], c.Why)
		}
		if c.Result == "different" && (len(c.Differences) == 0 || !strings.HasPrefix(c.Differences[0].Row, "streams ") && !strings.HasPrefix(c.Differences[0].Row, "usage_hours ") || c.Digest == c.LogDigest) {
			t.Errorf("it differs in %+v", c.Differences)
		}
	}
	if code, out := command(t, dir, "snapshot", "verify", good, good); code != 0 || !strings.Contains(out, "2 of 2 snapshots match the log") {
		t.Errorf("the good one: exit %d\n%s", code, out)
	}
	// Opening a data directory takes the newest snapshot that covers no more than the log, so
	// the rows are those of the lie: replaying tells.
	for name := range want {
		if name != good && name != lie {
			if err := removeSnapshot(dir, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	code, out = command(t, dir, "log", "replay", "--verify")
	if code != 1 || !strings.Contains(out, "SNAPSHOT "+lie+": different") || !strings.Contains(out, "DIFFERENT: the live rows") || strings.Contains(out, "SNAPSHOT "+good) {
		t.Errorf("replay: exit %d\n%s", code, out)
	}
	// Nothing was folded on from the lie: the log has other records before its position.
	if !strings.Contains(out, "diverged") {
		t.Errorf("the replay does not say that the lie is of another log:\n%s", out)
	}
	if err := removeSnapshot(dir, lie); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, dir, "log", "replay", "--verify", "-o", "json"); code != 0 || !strings.Contains(out, `"snapshots_checked": 1`) {
		t.Errorf("replay without the lie: exit %d\n%s", code, out)
	}
}

// A snapshot of a log that is no more says which file to remove, and nothing of
// generations, which only a database has. Without it the rows are those of the log.
func TestSnapshotOfAnotherLog(t *testing.T) {
	dir, before := t.TempDir(), t.TempDir()
	e := newEstate(6, 10*time.Minute)
	fill := func(e *estate, n int) {
		t.Helper()
		h, _ := apptest.Open(t, dir)
		if err := errors.Join(e.fill(t.Context(), h, n), h.CatchUp(t.Context())); err != nil {
			t.Fatal(err)
		}
		apptest.Close(t, h)
	}
	snapshots := func() []string {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return paths
	}
	fill(e, 30)
	if err := os.CopyFS(before, os.DirFS(filepath.Join(dir, "log"))); err != nil {
		t.Fatal(err)
	}
	early := snapshots()
	fill(e, 30)
	late := slices.DeleteFunc(snapshots(), func(path string) bool { return slices.Contains(early, path) })
	if len(early) != 1 || len(late) != 1 {
		t.Fatalf("snapshots %v and %v", early, late)
	}
	// The log as it was before, and then with other records.
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "log")), os.Rename(before, filepath.Join(dir, "log"))); err != nil {
		t.Fatal(err)
	}
	says := func(args ...string) {
		t.Helper()
		_, out := command(t, dir, args...)
		if !strings.Contains(out, "remove this file") || !strings.Contains(out, late[0]) || !strings.Contains(out, "the beginning of the log") || strings.Contains(out, "generation rebuild") {
			t.Errorf("%v: it says\n%s", args, out)
		}
	}
	says("usage", "--from", "2026-05-01", "--to", "2026-06-01") // the log is shorter
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(late[0], aside); err != nil {
		t.Fatal(err)
	}
	other := newEstate(6, 10*time.Minute)
	other.start += domain.Hour
	fill(other, 60)
	for _, path := range snapshots() {
		if !slices.Contains(early, path) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Rename(aside, late[0]); err != nil {
		t.Fatal(err)
	}
	says("usage", "--from", "2026-05-01", "--to", "2026-06-01") // as many records, others
	if err := errors.Join(os.Rename(late[0], aside), os.Rename(early[0], early[0]+".aside")); err != nil {
		t.Fatal(err)
	}
	fill(other, 120)
	for _, path := range snapshots() {
		if !strings.HasSuffix(path, ".aside") {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Rename(aside, late[0]), os.Rename(early[0]+".aside", early[0])); err != nil {
		t.Fatal(err)
	}
	says("usage", "--from", "2026-05-01", "--to", "2026-06-01") // more of them
	if left := snapshots(); len(left) != 2 {
		t.Errorf("rows of another log were kept once more: %v", left)
	}
	if err := os.Remove(late[0]); err != nil {
		t.Fatal(err)
	}
	if code, out := command(t, dir, "log", "replay", "--verify"); code != 0 || strings.Contains(out, "diverged") {
		t.Errorf("without the snapshot: exit %d\n%s", code, out)
	}
}

func removeSnapshot(dir, name string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", name))
	if err == nil && len(paths) != 1 {
		err = errors.New(name + " is not there")
	}
	for _, p := range paths {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

// As of the past, a report that names no time is about when the last record
// before it was appended.
func TestNowInThePast(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	e := newEstate(2, 10*time.Minute)
	if err := e.fill(t.Context(), h, 8); err != nil {
		t.Fatal(err)
	}
	all, err := h.End(t.Context())
	if err = errors.Join(err, h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	a := &app.App{Dir: dir}
	defer a.Close()
	at := func(asOf app.At) domain.Instant {
		t.Helper()
		inv, err := a.For(app.Everyone).Fleet(t.Context(), asOf, inventory.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		return inv.At
	}
	third := e.start + 3*e.interval
	if got := at(app.At(all.String())); got != e.start+4*e.interval {
		t.Errorf("after everything it is %s", got)
	}
	if got := at(app.At((third + 1).String())); got != third {
		t.Errorf("after three rounds it is %s, want %s", got, third)
	}
	if got := at("0"); got != 0 {
		t.Errorf("before everything it is %s", got)
	}
	if got := at(""); got < third {
		t.Errorf("now it is %s", got)
	}
}

// Every command that reads has --as-of.
func TestAsOfEverywhere(t *testing.T) {
	dir := apptest.FilledDir(t)
	for _, c := range [][]string{
		{"fleet"}, {"models"}, {"usage"}, {"costs"}, {"costs", "allocations"}, {"costs", "explain"}, {"plan"}, {"plan", "list"}, {"plan", "show"},
		{"quarantine", "list"}, {"quarantine", "show"}, {"log", "stats"}, {"snapshot", "make"},
	} {
		if _, help := command(t, dir, append(c, "--help")...); !strings.Contains(help, "--as-of ") {
			t.Errorf("%v does not take --as-of", c)
		}
	}
	for _, c := range []string{"make", "list", "verify"} { // held to their schemas
		if code, out := command(t, dir, "snapshot", c, "-o", "json"); code != 0 {
			t.Fatalf("snapshot %s: exit %d\n%s", c, code, out)
		}
	}
}
