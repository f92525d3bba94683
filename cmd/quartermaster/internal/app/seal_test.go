package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quartermaster/adapters/parts"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections/usage"
)

// monthlyDir is a data directory with May and half of June of enough nodes that May is left to a
// part when the log was folded.
func monthlyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	var records []domain.Record
	const nodes, hours = 16, 24 * 46
	for hour := range hours {
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
	if err := errors.Join(h.Log.Append(t.Context(), records), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	return dir
}

// home opens a data directory and answers about it.
type home struct {
	*testing.T
	*app.App
	notes strings.Builder
}

func homeIn(t *testing.T, dir string) *home {
	h := &home{T: t, App: &app.App{Dir: dir}}
	h.Tell = func(note string) { fmt.Fprintln(&h.notes, note) }
	return h
}

// may returns the usage of May, and closes the home.
func (h *home) may(at app.At) (text string, err error) {
	h.Helper()
	period := domain.Interval{From: apptest.May, To: apptest.May + 31*domain.Day}
	// By node it is computed from rows each time.
	r, err := h.For(app.Everyone).Usage(h.Context(), at, period, usage.Filter{}, usage.ByWorkspace, usage.ByNode)
	if err == nil {
		b, e := json.Marshal(r.Groups)
		text, err = string(b), e
	}
	return text, errors.Join(err, h.Close())
}

func (h *home) snapshots() []snapshotfile.Info {
	h.Helper()
	dirs, err := filepath.Glob(filepath.Join(h.Dir, "snapshots", "*"))
	if err != nil || len(dirs) != 1 {
		h.Fatalf("%v: %v", dirs, err)
	}
	infos, err := snapshotfile.Infos(dirs[0])
	if err != nil {
		h.Fatal(err)
	}
	return infos
}

// A sealed month of a home is in a part: the snapshot names it and has no row of it. Answers, also
// about the past, and a replay of the log agree with it. A late fact supersedes the part, and the
// past is still answered from the one before.
func TestSealedMonthsOfAHome(t *testing.T) {
	dir := monthlyDir(t)
	h := homeIn(t, dir)
	before := h.snapshots()
	if len(before) != 1 || len(before[0].Parts) != 1 || before[0].Parts[0].Rows < 16*24*31 {
		t.Fatalf("snapshots %+v", before)
	}
	want, err := h.may("")
	if err != nil || !strings.Contains(want, "research") {
		t.Fatalf("%s %v", want, err)
	}
	verify := func() {
		t.Helper()
		r, err := h.For(app.Everyone).Replay(t.Context(), true)
		if err = errors.Join(err, h.Close()); err != nil {
			t.Fatal(err)
		}
		if !*r.Equal || len(r.PartsFailed) > 0 || *r.PartsChecked != 1 || len(r.SnapshotsFailed) > 0 || *r.SnapshotsChecked != len(h.snapshots()) {
			t.Errorf("%+v", r)
		}
	}
	verify()
	// So does one that has no room for the live rows beside its own, and what follows it.
	many := app.SetManyRows(1)
	defer app.SetManyRows(many)
	r, err := h.For(app.Everyone).Replay(t.Context(), true)
	if err != nil || !*r.Equal || r.LiveFrom != before[0].Position.String() {
		t.Errorf("%+v %v", r, err)
	}
	if got, err := h.may(""); err != nil || got != want {
		t.Errorf("after a replay: %s, want %s: %v", got, want, err)
	}

	// A node that reported nothing before did so in May.
	c, notes := apptest.Open(t, dir)
	late := domain.Envelope{
		Source: "sha256:late", Incarnation: 1, Sequence: 1, Cluster: "lab", Time: apptest.May + 9*domain.Day + domain.Hour,
		Event: benchSample("late", apptest.May+9*domain.Day),
	}
	rec, err := apptest.EncodeThen(&late)
	rec.Time = apptest.May + 46*domain.Day
	if err = errors.Join(err, c.Log.Append(t.Context(), []domain.Record{rec}), c.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, c)
	if notes.Len() > 0 {
		t.Error(notes)
	}
	now, err := h.may("")
	if err != nil || now == want {
		t.Errorf("with a late fact: %s %v", now, err)
	}
	past, err := h.may(app.At(before[0].Position.String()))
	if err != nil || past != want {
		t.Errorf("as of then: %s, want %s: %v", past, want, err)
	}
	verify()
	made, err := h.For(app.Everyone).MakeParts(t.Context())
	if err = errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	if len(made.Parts) != 1 || made.Parts[0].Outcome != "superseded" {
		t.Errorf("made %+v", made.Parts)
	}
	if got, err := h.may(""); err != nil || got != now {
		t.Errorf("superseded: %s, want %s: %v", got, now, err)
	}
	if past, err = h.may(app.At(before[0].Position.String())); err != nil || past != want {
		t.Errorf("as of then, superseded: %s, want %s: %v", past, want, err)
	}
}

// A home whose part is missing is folded from its log, with the same answers, and the part is made
// again. One whose part was altered says what to do, and gives no answer.
func TestHomeWithoutItsPart(t *testing.T) {
	dir := monthlyDir(t)
	h := homeIn(t, dir)
	want, err := h.may("")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "parts", "*", "*", "*", "*", "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	edited(t, files[0], func(s string) string { return s[:len(s)/2] + "x" + s[len(s)/2+1:] })
	if got, err := h.may(""); err == nil || !strings.Contains(err.Error(), files[0]) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("altered: %s %v", got, err)
	}
	if h.notes.Len() > 0 {
		t.Error(h.notes.String())
	}
	r, err := h.For(app.Everyone).Replay(t.Context(), true)
	if err := errors.Join(err, h.Close()); err != nil || !*r.Equal || len(r.PartsFailed) != 1 || !strings.Contains(r.PartsFailed[0], files[0]) {
		t.Errorf("altered: %+v %v", r, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := h.may(""); err != nil || got != want {
		t.Errorf("missing: %s, want %s: %v", got, want, err)
	}
	if !strings.Contains(h.notes.String(), "was ignored") || !strings.Contains(h.notes.String(), files[0]) {
		t.Errorf("notes: %s", &h.notes)
	}
	h.notes.Reset()
	if again, err := os.ReadFile(files[0]); err != nil || string(again) != string(whole) {
		t.Errorf("the part was not made again: %v", err)
	}
	if got, err := h.may(""); err != nil || got != want || h.notes.Len() > 0 {
		t.Errorf("made again: %s, want %s: %v %s", got, want, err, &h.notes)
	}
}

// manifest returns the manifest of the one part of a home, and its path.
func (h *home) manifest() (*parts.Manifest, string) {
	h.Helper()
	paths, err := filepath.Glob(filepath.Join(h.Dir, "parts", "*", "*", "*", "*", "manifest.json"))
	if err != nil || len(paths) != 1 {
		h.Fatalf("%v: %v", paths, err)
	}
	b, err := os.ReadFile(paths[0])
	if err != nil {
		h.Fatal(err)
	}
	m, err := parts.ParseManifest(b)
	if err != nil {
		h.Fatal(err)
	}
	return m, paths[0]
}

// appendLate appends samples of May from a node that reported none, when May is sealed, without folding
// them.
func appendLate(t *testing.T, c *app.Conn, node string, hours int) {
	t.Helper()
	records := make([]domain.Record, hours)
	for i := range records {
		at := apptest.May + domain.Instant(i)*domain.Hour
		rec, err := apptest.EncodeThen(&domain.Envelope{
			Source: "sha256:" + node, Incarnation: 1, Sequence: uint64(i + 1), Cluster: "lab", Time: at + domain.Hour,
			Event: benchSample(node, at),
		})
		if err != nil {
			t.Fatal(err)
		}
		rec.Time = apptest.May + 46*domain.Day
		records[i] = rec
	}
	if err := c.Log.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
}

// A log that is folded again does not supersede a part by an older state of its month.
func TestPartIsNotSupersededByThePast(t *testing.T) {
	dir := monthlyDir(t)
	c, _ := apptest.Open(t, dir)
	appendLate(t, c, "late", 1)
	apptest.Close(t, c)
	h := homeIn(t, dir)
	_, err := h.For(app.Everyone).MakeParts(t.Context())
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	// Only the part with the late sample is there, and no snapshot.
	m, path := h.manifest()
	m.Versions = m.Versions[len(m.Versions)-1:]
	m.Versions[0].Supersedes = nil
	b, err := json.Marshal(m)
	if err := errors.Join(err, os.WriteFile(path, b, 0o600), os.RemoveAll(filepath.Join(dir, "snapshots"))); err != nil {
		t.Fatal(err)
	}
	_, err = h.may("")
	if now, _ := h.manifest(); err != nil || len(now.Versions) != 1 {
		t.Errorf("versions %+v: %v", now.Versions, err)
	}
	if len(h.snapshots()[0].Parts) != 1 {
		t.Error("May stayed in memory")
	}
}

// While another process makes parts, a month stays in memory. It leaves with the next batch after that.
func TestSealingWaitsForTheLock(t *testing.T) {
	dir := monthlyDir(t)
	h := homeIn(t, dir)
	m, path := h.manifest()
	w, err := parts.NewWriter(parts.Directory{Path: filepath.Join(dir, "parts", m.Log), Log: m.Log})
	if err := errors.Join(err, os.RemoveAll(filepath.Dir(path)), os.RemoveAll(filepath.Join(dir, "snapshots"))); err != nil {
		t.Fatal(err)
	}
	c, notes := apptest.Open(t, dir)
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a part was made while the directory was locked")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	appendLate(t, c, "late", 1)
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("no part was made when the directory was free: %v", err)
	}
	if notes.Len() > 0 {
		t.Error(notes)
	}
	apptest.Close(t, c)
}

// Verifying a replay skips a snapshot of an earlier form, as one of other folds.
func TestReplayBesideAnOlderSnapshot(t *testing.T) {
	dir := t.TempDir()
	c, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, c.Log, faultOf("n1", 1))
	if err := c.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, c)
	h := homeIn(t, dir)
	for _, in := range h.snapshots() {
		edited(t, in.Path, func(s string) string { return strings.Replace(s, "QMSNAP4", "QMSNAP3", 1) })
	}
	r, err := h.For(app.Everyone).Replay(t.Context(), true)
	if err := errors.Join(err, h.Close()); err != nil || !*r.Equal || len(r.SnapshotsFailed) > 0 || len(r.LeftAside) > 0 {
		t.Errorf("%+v: %v", r, err)
	}
	if h.notes.Len() > 0 {
		t.Error(h.notes.String())
	}
}

// An import into a sealed month supersedes its part once or twice, not with every batch. What is not in
// a part yet is in memory, which is bounded, and answers have it.
func TestImportIntoSealedMonth(t *testing.T) {
	for name, many := range map[string]int{"much memory": 300_000, "little memory": 30_000} {
		t.Run(name, func(t *testing.T) {
			dir := monthlyDir(t)
			defer app.SetManyRows(app.SetManyRows(many))
			c, notes := apptest.Open(t, dir)
			const nodes, hours, batch = 24, 24 * 31, 500
			var records []domain.Record
			most := 0
			for n := range nodes {
				for hour := range hours {
					at := apptest.May + domain.Instant(hour)*domain.Hour
					rec, err := apptest.EncodeThen(&domain.Envelope{
						Source: fmt.Sprint("sha256:late", n), Incarnation: 1, Sequence: uint64(hour + 1), Cluster: "lab",
						Time: at + domain.Hour, Event: benchSample(fmt.Sprint("late", n), at),
					})
					if err != nil {
						t.Fatal(err)
					}
					rec.Time = apptest.May + 46*domain.Day
					if records = append(records, rec); len(records) < batch {
						continue
					}
					if err := errors.Join(c.Log.Append(t.Context(), records), c.CatchUp(t.Context())); err != nil {
						t.Fatal(err)
					}
					records = records[:0]
					most = max(most, app.RowsInMemory(c))
				}
			}
			if err := errors.Join(c.Log.Append(t.Context(), records), c.CatchUp(t.Context())); err != nil {
				t.Fatal(err)
			}
			manifest := func() *parts.Manifest {
				t.Helper()
				keys, err := c.Parts().List()
				if err != nil || len(keys) != 1 {
					t.Fatal(keys, err)
				}
				m, err := c.Parts().Manifest(keys[0])
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			apptest.Close(t, c)
			m := manifest()
			t.Logf("%d versions, at most %d rows in memory", len(m.Versions), most)
			if got := m.Last().Rows; got < (16+nodes)*hours {
				t.Errorf("the last version has %d rows", got)
			}
			if limit := map[bool]int{true: 3, false: 5}[many > 100_000]; len(m.Versions) > limit {
				t.Errorf("the part has %d versions, want at most %d", len(m.Versions), limit)
			}
			if limit := max(many, 2*(16+nodes)*hours); most > limit {
				t.Errorf("%d rows were in memory, want at most %d", most, limit)
			}
			if notes.Len() > 0 {
				t.Error(notes)
			}
			h := homeIn(t, dir)
			r, err := h.For(app.Everyone).Replay(t.Context(), true)
			if err = errors.Join(err, h.Close()); err != nil || !*r.Equal || len(r.PartsFailed) > 0 {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
}
