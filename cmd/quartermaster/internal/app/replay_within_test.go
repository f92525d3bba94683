package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

const (
	withinNodes = 15
	withinDays  = 110
)

// daysDir is a data directory with days of hourly samples from May on.
func daysDir(t *testing.T, nodes, days int) string {
	t.Helper()
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	var records []domain.Record
	for hour := range 24 * days {
		at := apptest.May + domain.Instant(hour)*domain.Hour
		for n := range nodes {
			rec, err := apptest.EncodeThen(&domain.Envelope{
				Source: fmt.Sprint("reporter/n", n), Incarnation: 1, Sequence: uint64(hour + 1), Cluster: "lab", Time: at + domain.Hour,
				Event: benchSample(fmt.Sprint("n", n), at),
			})
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, rec)
		}
	}
	if err := h.Log.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	apptest.AppendEvents(t, h.Log, faultOf("n1", 1), faultOf("n2", 40))
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	return dir
}

func within(t *testing.T, dir, progress string) (*app.Replay, error) {
	t.Helper()
	h := homeIn(t, dir)
	r, err := h.For(app.Everyone).ReplayWithin(t.Context(), app.ReplayBudget{Memory: 1 << 30, Progress: progress})
	return r, errors.Join(err, h.Close())
}

// TestVerifyUntilKilled is no test: it is the process that TestVerificationIsKilled kills.
func TestVerifyUntilKilled(t *testing.T) {
	kill, err := strconv.Atoi(os.Getenv("QM_TEST_KILL_AT"))
	if err != nil {
		t.Skip("it runs as a process of another test")
	}
	n := 0
	app.SetAtSave(func() {
		if n++; n == kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	r, err := within(t, os.Getenv("QM_TEST_DIR"), os.Getenv("QM_TEST_PROGRESS"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("QM_TEST_ANSWER"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A verification that is killed with SIGKILL, before or after it saves its progress, goes on from what it
// saved, and ends with the answer of one that was not killed.
func TestVerificationIsKilled(t *testing.T) {
	dir, progress := daysDir(t, withinNodes, withinDays), filepath.Join(t.TempDir(), "progress")
	h := homeIn(t, dir)
	want, err := h.For(app.Everyone).Replay(t.Context(), true)
	if err := errors.Join(err, h.Close()); err != nil || !*want.Equal {
		t.Fatal(want, err)
	}
	answer := filepath.Join(t.TempDir(), "answer")
	kills := 0
	for ; ; kills++ {
		if kills > 30 {
			t.Fatal("it makes no progress")
		}
		// Before a save, then after the second, and so on.
		cmd := exec.Command(os.Args[0], "-test.run=^TestVerifyUntilKilled$")
		cmd.Env = append(os.Environ(), fmt.Sprint("QM_TEST_KILL_AT=", 3+kills%2), "QM_TEST_DIR="+dir, "QM_TEST_PROGRESS="+progress,
			"QM_TEST_ANSWER="+answer)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL { //nolint:forcetypeassert // Linux
			t.Fatalf("%v\n%s", err, out)
		}
	}
	b, err := os.ReadFile(answer)
	var got app.Replay
	if err = errors.Join(err, json.Unmarshal(b, &got)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, the last run folded %d of %d events", kills, got.Events, want.Events)
	if kills < 3 {
		t.Errorf("it was killed %d times", kills)
	}
	if !*got.Equal || got.ReplayDigest != want.ReplayDigest || got.LiveDigest != want.LiveDigest || got.Position != want.Position {
		t.Errorf("%+v, want %+v", got, want)
	}
	if *got.Resumed == 0 || *got.Resumed+got.Events != want.Events {
		t.Errorf("%d events were folded, and %d before, of %d", got.Events, *got.Resumed, want.Events)
	}
	// All is known: nothing is folded again, until more is appended.
	again, err := within(t, dir, progress)
	if err != nil || !*again.Equal || again.Events != 0 || again.ReplayDigest != want.ReplayDigest {
		t.Errorf("again: %+v %v", again, err)
	}
	c, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, c.Log, faultOf("n3", 145), faultOf("n3", 3))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, c)
	more, err := within(t, dir, progress)
	if err != nil || !*more.Equal || more.Events != 2 || more.ReplayDigest == want.ReplayDigest {
		t.Errorf("with two more: %+v %v", more, err)
	}
}

// Memory holds the open months of a partition, with and without parts of the live rows, and what does not
// fit into the budget is an error that says so.
func TestVerificationIsBounded(t *testing.T) {
	dir := daysDir(t, withinNodes, withinDays)
	var most atomic.Int64
	app.SetMostRows(&most)
	defer app.SetMostRows(nil)
	rows := int64(withinNodes * withinDays * 24)
	for _, how := range []string{"with parts", "without parts"} {
		if how == "without parts" {
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "parts")), os.RemoveAll(filepath.Join(dir, "snapshots"))); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "parts"), nil, 0o400); err != nil { // none can be made
				t.Fatal(err)
			}
		}
		most.Store(0)
		progress := t.TempDir()
		r, err := within(t, dir, progress)
		if err != nil || !*r.Equal || r.Events < rows {
			t.Fatalf("%s: %+v %v", how, r, err)
		}
		made, err := filepath.Glob(filepath.Join(progress, "parts", "month=*", "*", "*", "*.parquet"))
		if err != nil || (len(made) > 0) != (how == "without parts") {
			t.Errorf("%s: %v %v", how, made, err)
		}
		t.Logf("%s: %d of %d rows in memory at most", how, most.Load(), rows)
		if n := most.Load(); n == 0 || n > rows*6/10 {
			t.Errorf("%s: %d of %d rows were in memory", how, n, rows)
		}
	}
	defer app.SetLeastBudget(app.SetLeastBudget(1))
	h := homeIn(t, dir)
	defer h.Close()
	_, err := h.For(app.Everyone).ReplayWithin(t.Context(), app.ReplayBudget{Memory: 1})
	if err == nil || app.KindOf(err) != app.KindInvalid || !strings.Contains(err.Error(), "the memory budget is too small") {
		t.Errorf("a budget of a byte: %v", err)
	}
}

// Progress that is foreign, stale or damaged is refused, and the error says what to do. Live rows that are
// not those of the log are found, and their month is named.
func TestProgressIsChecked(t *testing.T) {
	dir, progress := daysDir(t, withinNodes, 90), t.TempDir()
	if r, err := within(t, dir, progress); err != nil || !*r.Equal {
		t.Fatal(r, err)
	}
	// A longer log, of which the progress is too long for the first, and another one of that length.
	longer := t.TempDir()
	if err := os.CopyFS(longer, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	c, _ := apptest.Open(t, longer)
	apptest.AppendEvents(t, c.Log, faultOf("n3", 80))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, c)
	long := t.TempDir()
	if r, err := within(t, longer, long); err != nil || !*r.Equal {
		t.Fatal(r, err)
	}
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	c, _ = apptest.Open(t, other)
	apptest.AppendEvents(t, c.Log, faultOf("n4", 81))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, c)

	head := filepath.Join(progress, "progress.json")
	snapshots, err := filepath.Glob(filepath.Join(progress, "folds", "qm.telemetry-*", "*.snapshot"))
	if err != nil || len(snapshots) == 0 {
		t.Fatal(snapshots, err)
	}
	last := snapshots[len(snapshots)-1]
	edit := func(path string, do func(string) string) func() {
		text, err := os.ReadFile(path)
		if err == nil {
			err = errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte(do(string(text))), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(a, b string) func(string) string {
		return func(s string) string { return strings.Replace(s, a, b, 1) }
	}
	mess := t.TempDir()
	if err := os.WriteFile(filepath.Join(mess, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(what, dir, progress, want string) {
		t.Helper()
		r, err := within(t, dir, progress)
		if err == nil || app.KindOf(err) != app.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %q", what, r, err, want)
		}
	}
	refused("another directory", dir, mess, "is not empty, and has no progress")
	undo := edit(head, replace(`"folds/`, `"folds/0`))
	refused("other folds", dir, progress, "has progress of")
	undo()
	undo = edit(head, replace(`"log":"`, `"log":"x`))
	refused("another log", dir, progress, "remove the directory to begin anew")
	undo()
	undo = edit(head, func(string) string { return "{" })
	refused("no head", dir, progress, head)
	undo()
	undo = edit(last, func(s string) string { return s[:len(s)/2] })
	refused("half a snapshot", dir, progress, last)
	undo()
	undo = edit(last, func(s string) string { return s[:len(s)/2] + "x" + s[len(s)/2+1:] })
	refused("an altered snapshot", dir, progress, "remove the directory to begin anew")
	undo()
	refused("rows that are behind", dir, long, "and the live rows to")
	refused("other records at the same offsets", other, long, "is of other records than the log has")
	if r, err := within(t, dir, progress); err != nil || !*r.Equal || r.Events != 0 {
		t.Errorf("at last: %+v %v", r, err)
	}

	// Live rows of a snapshot that is of other records.
	h := homeIn(t, longer)
	made, err := h.For(app.Everyone).MakeSnapshot(t.Context(), "")
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(made.File)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(other, "snapshots", filepath.Base(filepath.Dir(made.File)), filepath.Base(made.File))
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := within(t, other, t.TempDir())
	if err != nil || *r.Equal || len(r.Differences) == 0 {
		t.Fatalf("%+v %v", r, err)
	}
	found := false
	for _, d := range r.Differences {
		found = found || strings.HasPrefix(d.Row, string(domain.TopicHardware)) && strings.HasSuffix(d.Row, " 2026-07") && d.Live && d.Replay
	}
	if !found {
		t.Errorf("the month that differs is not named: %+v", r.Differences)
	}
}
