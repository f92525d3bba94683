package app_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/parts"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
)

// faultOf is a fault of a node's first GPU on a day of May, on a cluster.
func faultOf(node string, day int) domain.Envelope {
	return domain.Envelope{
		Cluster: "lab", Time: apptest.May + domain.Instant(day)*domain.Day,
		Event: &domain.GPUFaultObserved{
			Node: node, GPU: domain.DeriveGPUID("lab", node, 0), Kind: domain.FaultXID, Code: 79, Fatal: true,
		},
	}
}

// sealedDir is a data directory with faults in May and June, and an event that seals both.
func sealedDir(t *testing.T) *app.App {
	t.Helper()
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, faultOf("n1", 1), faultOf("n2", 1), faultOf("n1", 9), faultOf("n1", 35), faultOf("n1", 80))
	apptest.Close(t, h)
	a := &app.App{Dir: dir}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// outcomes returns what making parts did, as "month outcome".
func outcomes(t *testing.T, a *app.App) (made *app.PartsMade, did []string) {
	t.Helper()
	made, err := a.For(app.Everyone).MakeParts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range made.Parts {
		did = append(did, p.Month+" "+p.Outcome)
	}
	return made, did
}

// witness is a view that counts the rows that are read of each month.
type witness struct {
	projections.View
	months map[string]int
}

func (w witness) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return w.View.Scan(q, func(k projections.Key, row projections.Row) error {
		if of, ok := projections.PartOf(k); ok {
			w.months[projections.MonthName(of.Month)]++
		}
		return yield(k, row)
	})
}

func (w witness) Tallies() ([]projections.Tally, error) { return projections.TalliesOf(w.View) }

// Making parts reads the rows of changed months alone, and knows the digests of all.
func TestUnchangedMonthsAreNotRead(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	defer func() { apptest.Close(t, h) }()
	days := []int{1, 35, 70, 100, 130, 160, 195}
	var events []domain.Envelope
	for _, day := range days {
		events = append(events, faultOf("n1", day), faultOf("n2", day))
	}
	apptest.AppendEvents(t, h.Log, events...)
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func(read map[string]int) (changed []string) {
		t.Helper()
		if err := h.View(t.Context(), func(v projections.View) error {
			w := witness{projections.Stored(v), map[string]int{}}
			keys, got, err := app.Changed(t.Context(), h, w)
			if err != nil {
				return err
			}
			for _, k := range keys {
				changed = append(changed, projections.MonthName(k.Month))
			}
			if fmt.Sprint(w.months) != fmt.Sprint(read) {
				t.Errorf("%v rows were read, want %v", w.months, read)
			}
			var want []projections.PartDigest
			r := projections.NewPartReader(v)
			for _, tp := range domain.AllPartitions() {
				d, err := r.Digest(tp)
				if err != nil {
					return err
				}
				for _, p := range d.Parts {
					if slices.ContainsFunc(got, func(q projections.PartDigest) bool { return q.PartKey == p.PartKey }) {
						want = append(want, p)
					}
				}
			}
			slices.SortFunc(want, func(a, b projections.PartDigest) int { return a.Compare(b.PartKey) })
			if !slices.Equal(got, want) {
				t.Errorf("digests %v, want %v", got, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return changed
	}
	again := func() (did []string) {
		t.Helper()
		if err := h.View(t.Context(), func(v projections.View) error {
			made, err := app.MakeParts(t.Context(), h, v)
			if err != nil {
				return err
			}
			for _, p := range made.Parts {
				did = append(did, p.Outcome)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return did
	}
	all := []string{"2026-05", "2026-06", "2026-07", "2026-08", "2026-09", "2026-10"}
	// Many months are read in one pass, with the one that is not sealed.
	equal(t, "before", look(map[string]int{
		"2026-05": 2, "2026-06": 2, "2026-07": 2, "2026-08": 2, "2026-09": 2, "2026-10": 2, "2026-11": 2,
	}), all...)
	again()
	equal(t, "made", look(map[string]int{}))

	late := faultOf("n3", 70)
	rec, err := apptest.EncodeThen(&domain.Envelope{
		Source: "sha256:late", Incarnation: 1, Sequence: 1, Cluster: late.Cluster, Time: late.Time, Event: late.Event,
	})
	rec.Time = apptest.May + 195*domain.Day
	if err := errors.Join(err, h.Log.Append(t.Context(), []domain.Record{rec}), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	equal(t, "with a late fact", look(map[string]int{"2026-07": 3}), "2026-07")
	equal(t, "made again", again(), "unchanged", "unchanged", "superseded", "unchanged", "unchanged", "unchanged")
	equal(t, "superseded", look(map[string]int{}))

	// A file that is missing is made again, without reading other months.
	files, err := filepath.Glob(filepath.Join(dir, "parts", "*", "month=2026-09", "*", "*", "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	equal(t, "without a file", look(map[string]int{"2026-09": 2}), "2026-09")
	equal(t, "restored", again(), "unchanged", "unchanged", "unchanged", "unchanged", "restored", "unchanged")
	equal(t, "at last", look(map[string]int{}))
}

// results returns the check of parts, as "month result row".
func results(t *testing.T, a *app.App, at app.At) (check *app.PartsCheck, got []string) {
	t.Helper()
	check, err := a.For(app.Everyone).VerifyParts(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range check.Parts {
		got = append(got, strings.TrimSpace(c.Month+" "+c.Result+" "+c.Row))
	}
	return check, got
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Each sealed month is written once. A late fact changes its rows: verify names the row, and the part
// is superseded. The month that is not sealed has no part.
func TestPartsOfALog(t *testing.T) {
	a := sealedDir(t)
	_, got := results(t, a, "")
	equal(t, "before", got, "2026-05 not_made", "2026-06 not_made")
	first, did := outcomes(t, a)
	equal(t, "made", did, "2026-05 new", "2026-06 new")
	if first.Open != "2026-07" {
		t.Errorf("%s is open, want 2026-07", first.Open)
	}
	again, did := outcomes(t, a)
	equal(t, "made again", did, "2026-05 unchanged", "2026-06 unchanged")
	check, got := results(t, a, "")
	equal(t, "verified", got, "2026-05 equal", "2026-06 equal")
	if again.Root != first.Root || check.Root != first.Root {
		t.Errorf("roots are %s, %s and %s", first.Root, again.Root, check.Root)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}

	h, _ := apptest.Open(t, a.Dir)
	late := faultOf("n2", 9)
	s := kafka.NewStream(h.Log, kafka.StreamConfig{
		Source: "sha256:late", Incarnation: 1,
		Encode: func(env *domain.Envelope) (domain.Record, error) {
			rec, err := wire.Encode(env)
			rec.Time = apptest.May + 80*domain.Day
			return rec, err
		},
	})
	if err := s.Append(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	_, got = results(t, a, "")
	equal(t, "with a late fact", got, "2026-05 changed faults lab/n2@2026-05-10T00:00:00Z", "2026-06 equal")
	_, got = results(t, a, app.At(first.Position))
	equal(t, "as of then", got, "2026-05 equal", "2026-06 equal")
	second, did := outcomes(t, a)
	equal(t, "made with a late fact", did, "2026-05 superseded", "2026-06 unchanged")
	if second.Root == first.Root {
		t.Error("other rows have the same root")
	}
	_, got = results(t, a, "")
	equal(t, "superseded", got, "2026-05 equal", "2026-06 equal")
	_, got = results(t, a, app.At(first.Position))
	equal(t, "as of then, superseded", got, "2026-05 beyond_log", "2026-06 equal")
	list, _, err := a.For(app.Everyone).ListParts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, p := range list {
		states = append(states, p.Month+" "+p.State)
		if st, err := os.Stat(p.File); err != nil || st.Size() != p.Bytes {
			t.Errorf("%+v: %v", p, err)
		}
	}
	equal(t, "listed", states, "2026-05 current", "2026-05 superseded", "2026-06 current")
}

// What is wrong with a part is named, and one bad part does not hide the others.
func TestVerifyPartsFinds(t *testing.T) {
	// Each changes the files of May.
	for want, change := range map[string]func(t *testing.T, a *app.App, file, manifest string){
		"2026-05 missing": func(t *testing.T, _ *app.App, file, _ string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		},
		"2026-05 damaged": func(t *testing.T, _ *app.App, file, _ string) {
			edited(t, file, func(s string) string { return s[:len(s)-1] })
		},
		"2026-05 other_log": func(t *testing.T, _ *app.App, _, manifest string) {
			edited(t, manifest, func(s string) string { return strings.Replace(s, `"log": "`, `"log": "x`, 1) })
		},
		"2026-05 other_method": func(t *testing.T, _ *app.App, _, manifest string) {
			edited(t, manifest, func(s string) string { return strings.Replace(s, projections.Method, "folds/0", 1) })
		},
		"2026-05 different faults lab/n1@2026-05-10T00:00:00Z": func(t *testing.T, a *app.App, file, _ string) {
			if err := os.RemoveAll(filepath.Dir(file)); err != nil {
				t.Fatal(err)
			}
			forge(t, a)
		},
	} {
		t.Run(want, func(t *testing.T) {
			a := sealedDir(t)
			outcomes(t, a)
			list, _, err := a.For(app.Everyone).ListParts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			change(t, a, list[0].File, filepath.Join(filepath.Dir(list[0].File), "manifest.json"))
			check, got := results(t, a, "")
			equal(t, "verified", got, want, "2026-06 equal")
			if check.Parts[0].Why == "" || check.Parts[0].Bad() == strings.HasSuffix(want, "other_method") {
				t.Errorf("%+v", check.Parts[0])
			}
		})
	}
}

func edited(t *testing.T, path string, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(b))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// forge writes a part of May without the fault of n1 on the tenth, that is valid in itself.
func forge(t *testing.T, a *app.App) {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ := apptest.Open(t, a.Dir)
	defer apptest.Close(t, h)
	if err := h.View(t.Context(), func(v projections.View) error {
		r := projections.NewPartReader(v)
		k, _ := projections.PartOf(projections.Key{Table: projections.TableFaults, Scope: "lab", Hour: projections.HourOf(apptest.May)})
		rows := func(yield func(projections.Key, []byte) error) error {
			return r.Rows(k, func(k projections.Key, b []byte) error {
				if k.ID == "n1" && k.Hour == projections.HourOf(apptest.May+9*domain.Day) {
					return nil
				}
				return yield(k, b)
			})
		}
		p, sum := projections.PartDigest{PartKey: k}, sha256.New()
		if err := rows(func(_ projections.Key, b []byte) error {
			p.Rows++
			_, err := sum.Write(b)
			return err
		}); err != nil {
			return err
		}
		p.Digest = [32]byte(sum.Sum(nil))
		w, err := parts.NewWriter(h.Parts())
		if err != nil {
			return err
		}
		if outcome, err := w.Put(p, nil, v.Position()[k.Partition], rows); err != nil || outcome != parts.New {
			return fmt.Errorf("forged part is %s: %w", outcome, err)
		}
		return w.Close()
	}); err != nil {
		t.Fatal(err)
	}
}

// A second process that makes parts is told that one is at work.
func TestMakePartsAlone(t *testing.T) {
	a := sealedDir(t)
	made, _ := outcomes(t, a)
	w, err := parts.NewWriter(parts.Directory{Path: made.Directory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.For(app.Everyone).MakeParts(t.Context()); app.KindOf(err) != app.KindUnavailable {
		t.Errorf("while another process makes parts: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkParts compares making and verifying parts with writing a snapshot of the same rows.
func BenchmarkParts(b *testing.B) {
	const nodes, days = 20, 40
	dir := b.TempDir()
	a := &app.App{Dir: dir}
	h, err := a.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var records []domain.Record
	for hour := range 24 * days {
		at := apptest.May + domain.Instant(hour)*domain.Hour
		for n := range nodes {
			rec, err := apptest.EncodeThen(&domain.Envelope{
				Source: "test", Incarnation: 1, Sequence: uint64(len(records) + 1), Cluster: "lab", Time: at + domain.Hour,
				Event: benchSample(fmt.Sprint("n", n), at),
			})
			if err != nil {
				b.Fatal(err)
			}
			records = append(records, rec)
		}
	}
	if err := errors.Join(h.Log.Append(b.Context(), records), a.Close()); err != nil {
		b.Fatal(err)
	}
	const sealed = nodes * 24 * 31
	for _, work := range []struct {
		name string
		do   func() error
	}{
		{"make", func() error {
			if err := os.RemoveAll(filepath.Join(dir, "parts")); err != nil {
				return err
			}
			_, err := a.For(app.Everyone).MakeParts(b.Context())
			return err
		}},
		{"unchanged", func() error { _, err := a.For(app.Everyone).MakeParts(b.Context()); return err }},
		{"verify", func() error { _, err := a.For(app.Everyone).VerifyParts(b.Context(), ""); return err }},
		{"snapshot", func() error { _, err := a.For(app.Everyone).MakeSnapshot(b.Context(), ""); return err }},
	} {
		b.Run(work.name, func(b *testing.B) {
			rows := sealed
			if work.name == "snapshot" { // has the open month too
				rows = len(records)
			}
			for b.Loop() {
				if err := work.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
}

// benchSample is an hour of a node with eight GPUs.
func benchSample(node string, at domain.Instant) *domain.NodeSampled {
	s := &domain.NodeSampled{
		Node: node, Interval: domain.Interval{From: at, To: at + domain.Hour}, ActivityField: 1002,
		Strings: []string{"research", "chat"}, HolderWorkspace: []uint32{1}, HolderDeployment: []uint32{2}, HolderUnit: []uint32{0},
	}
	for g := range 8 {
		id := domain.DeriveGPUID("lab", node, g)
		s.IDs = append(s.IDs, id[:]...)
		s.Holder, s.ActivityMean = append(s.Holder, 1), append(s.ActivityMean, uint32(500+time.Duration(at).Hours())%1000+1)
	}
	return s
}

// A hundred late days at once change each month that they are in once: its part is superseded, others
// stay, and parts, rows and a replay within a budget agree.
func TestHundredLateDays(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, faultOf("n1", 1), faultOf("n1", 35), faultOf("n1", 70), faultOf("n1", 130), faultOf("n1", 165))
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	a := &app.App{Dir: dir}
	_, did := outcomes(t, a)
	equal(t, "made", did, "2026-05 new", "2026-06 new", "2026-07 new", "2026-09 new")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}

	h, _ = apptest.Open(t, dir)
	var records []domain.Record
	for day := range 100 { // May to the 8th of August, in no order
		late := faultOf("late", day*37%100)
		late.Source, late.Incarnation, late.Sequence = "sha256:late", 1, uint64(day+1)
		rec, err := apptest.EncodeThen(&late)
		if err != nil {
			t.Fatal(err)
		}
		rec.Time = apptest.May + 165*domain.Day
		records = append(records, rec)
	}
	if err := errors.Join(h.Log.Append(t.Context(), records), h.CatchUp(t.Context())); err != nil {
		t.Fatal(err)
	}
	apptest.Close(t, h)
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, did = outcomes(t, a)
	equal(t, "with late days", did,
		"2026-05 superseded", "2026-06 superseded", "2026-07 superseded", "2026-08 new", "2026-09 unchanged")
	check, got := results(t, a, "")
	equal(t, "verified", got, "2026-05 equal", "2026-06 equal", "2026-07 equal", "2026-08 equal", "2026-09 equal")
	list, _, err := a.For(app.Everyone).ListParts(t.Context())
	if err != nil || len(list) != 8 {
		t.Errorf("%d versions are listed: %v", len(list), err)
	}
	rows := map[string]int64{}
	for _, v := range list {
		if v.State == "current" {
			rows[v.Month] = v.Rows
		}
	}
	if want := map[string]int64{"2026-05": 32, "2026-06": 31, "2026-07": 32, "2026-08": 8, "2026-09": 1}; !maps.Equal(rows, want) {
		t.Errorf("rows %v, want %v, at %s", rows, want, check.Position)
	}
	if r, err := a.For(app.Everyone).ReplayWithin(t.Context(), app.ReplayBudget{}); err != nil || !*r.Equal || r.Events != 105 {
		t.Errorf("%+v: %v", r, err)
	}
}
