package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// A data directory goes on from its newest sound snapshot and the tail of the log, and
// the rows are the same as from the log alone.
func TestSnapshotAndTail(t *testing.T) {
	dir := t.TempDir()
	e := newEstate(6, 10*time.Minute)
	h, _ := apptest.Open(t, dir)
	for range 3 {
		if err := errors.Join(e.fill(t.Context(), h, 60), h.CatchUp(t.Context()), h.Save()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(e.fill(t.Context(), h, 60), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	want, at, err := h.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Shut(); err != nil { // no snapshot of the last 60
		t.Fatal(err)
	}
	paths, err := snapshotfile.List(h.Snapshots())
	if err != nil || len(paths) != 2 {
		t.Fatalf("%d snapshots are kept, want 2: %v", len(paths), err)
	}
	same := func(what string, records int64, note string) {
		t.Helper()
		h, notes := apptest.Open(t, dir)
		defer h.Shut()
		got, pos, err := h.Digest(t.Context())
		if err != nil || got != want || pos.String() != at.String() {
			t.Errorf("%s: digest %x at %s, want %x at %s: %v", what, got, pos, want, at, err)
		}
		if n := h.Runner.Progress().Records; n != records {
			t.Errorf("%s: folded %d records, want %d", what, n, records)
		}
		if !strings.Contains(notes.String(), note) {
			t.Errorf("%s: it noted %q, want %q in it", what, notes, note)
		}
	}
	same("newest snapshot", 60, "")

	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(paths[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	same("the newest is damaged", 120, "was ignored: snapshot is damaged")
	for _, p := range paths {
		if err := os.Truncate(p, 100); err != nil {
			t.Fatal(err)
		}
	}
	same("all are damaged", 240, "was ignored")

	// A snapshot of another log is of no use, however long that log is.
	other := t.TempDir()
	h, _ = apptest.Open(t, other)
	if err := errors.Join(newEstate(9, 10*time.Minute).fill(t.Context(), h, 900), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	theirs, err := snapshotfile.List(h.Snapshots())
	if err != nil || len(theirs) != 1 {
		t.Fatalf("closing left %d snapshots: %v", len(theirs), err)
	}
	if err := os.Rename(theirs[0], filepath.Join(filepath.Dir(paths[0]), filepath.Base(theirs[0]))); err != nil {
		t.Fatal(err)
	}
	same("another log's snapshot", 240, "snapshot is of another log")
}

// A log that is shorter than what was once folded is not gone on with.
func TestShorterLog(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	if err := errors.Join(newEstate(6, 10*time.Minute).fill(t.Context(), h, 60), h.CatchUp(t.Context()), h.Save()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	if err := os.RemoveAll(dir + "/log"); err != nil {
		t.Fatal(err)
	}
	a := commandLine(&app.App{Dir: dir}, io.Discard, io.Discard)
	if _, err := a.Open(t.Context()); !errors.Is(err, kafka.ErrTrimmed) {
		t.Fatalf("a data directory whose log is gone opens: %v", err)
	}
}

// Times on the command line are RFC 3339, or a date or month in UTC.
func TestInstantFlag(t *testing.T) {
	may := domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	for s, want := range map[string]domain.Instant{
		"2026-05": may, "2026-05-01": may, "2026-05-01T02:00:00+02:00": may, "2026-05-01T00:00:00Z": may,
		"2026-05-01 00:00": 0, "yesterday": 0, "": 0, "2026-13": 0, "0001-01-01": 0,
	} {
		got, err := domain.ParseTime(s)
		if (err == nil) != (want != 0) || got != want {
			t.Errorf("%q: %s, %v", s, got, err)
		}
	}
}

// Without HOME there is no directory to fall back to, and none is made where somebody
// happens to be.
func TestNoHomeInTheEnvironment(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "QUARTERMASTER_DATA_DIR"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
	instance := filepath.Join("..", "instance.json")
	for _, args := range [][]string{{"fleet"}, {"apply", "-f", "estate.yaml"}, {"demo", "--once"}, {"log", "export"}, {"cluster", "list"}, {"operator", "add", "a", "--role", "admin", "--new-key", "a.pem"}} {
		var out, errs strings.Builder
		if err := os.WriteFile("estate.yaml", []byte("apiVersion: quartermaster/v1\nkind: Estate\nworkspaces: [{id: a}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := run(args, strings.NewReader(""), &out, &errs); code != 2 || !strings.Contains(errs.String(), "no data directory: HOME is not set; name one with --data-dir or QUARTERMASTER_DATA_DIR") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out.String(), errs.String())
		}
	}
	// What needs no data says what else is wrong, and is not refused.
	var out, errs strings.Builder
	if code := run([]string{"plan", "solve", instance}, strings.NewReader(""), &out, &errs); code == 2 || !strings.Contains(errs.String(), "no such file") {
		t.Errorf("plan solve: exit %d\n%s", code, errs.String())
	}
	if made, err := filepath.Glob("*"); err != nil || len(made) != 1 {
		t.Errorf("left behind: %v, %v", made, err)
	}
}
