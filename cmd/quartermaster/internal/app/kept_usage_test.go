package app_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/parts"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// sampled is a report of an hour of a node of cluster lab.
func sampled(source string, day int, by string) domain.Envelope {
	i := domain.Interval{From: apptest.May + domain.Instant(day)*domain.Day, To: apptest.May + domain.Instant(day)*domain.Day + domain.Hour}
	return domain.Envelope{
		Source: source, Cluster: "lab", Time: i.To,
		Event: storetest.Sample("n1", i, storetest.Seen{ID: domain.DeriveGPUID("lab", "n1", 0), Workspace: by}),
	}
}

// A month is computed once and kept in a file, which later processes answer from. What is kept does
// not change an answer, and a late fact makes the month be computed again.
func TestUsageIsAnsweredFromKeptMonths(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, sampled("reporter/a", 1, "a"), sampled("reporter/a", 9, "b"), sampled("reporter/a", 31, "a"), sampled("reporter/a", 80, "a"))
	apptest.Close(t, h)
	may := projections.BillingMonth(apptest.May)
	june := projections.BillingMonth(may.To)
	var told []string
	ask := func(at app.At, period domain.Interval) string {
		t.Helper()
		told = nil
		a := &app.App{Dir: dir, Tell: func(note string) { told = append(told, note) }}
		r, err := a.For(app.Everyone).Usage(t.Context(), at, period, usage.Filter{}, usage.ByWorkspace, usage.ByDay)
		if err := errors.Join(err, a.Close()); err != nil {
			t.Fatal(err)
		}
		told = slices.DeleteFunc(told, func(s string) bool { return strings.HasPrefix(s, "as of ") })
		r.Position = ""
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	files := func() (names []string) {
		names, err := filepath.Glob(filepath.Join(dir, "parts", "*", "month=*", "usage_days", "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}

	first := ask("", may)
	if n := len(files()); n != 1 {
		t.Fatalf("%d months are kept after one was asked for", n)
	}
	file := files()[0]
	folder := filepath.Dir(file)
	var manifest struct {
		Log      string
		Versions []parts.UsageVersion
	}
	if err := json.Unmarshal(contentOf(t, filepath.Join(folder, "manifest.json")), &manifest); err != nil {
		t.Fatal(err)
	}
	d := parts.Directory{Path: filepath.Dir(filepath.Dir(folder)), Log: manifest.Log}
	in := usage.Inputs{Month: may, Text: manifest.Versions[0].Inputs}
	good, err := d.Usage(in)
	if err != nil {
		t.Fatal(err)
	}
	if again := ask("", may); again != first || len(told) > 0 {
		t.Errorf("the second answer is\n%s\nwant\n%s; told %q", again, first, told)
	}

	// A kept month that was made with other figures shows that it is used.
	other := *good
	other.Days = slices.Clone(good.Days)
	other.Days[0].Time.Allocated += 77_000
	other.Days[0].Time.Service += 77_000
	put := func(m *usage.Month) {
		w, err := parts.NewWriter(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.PutUsage(m, domain.Position{}), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	put(&other)
	if again := ask("", may); again == first || !strings.Contains(again, "3677000") {
		t.Errorf("a kept month was not used: %s", again)
	}
	put(good)

	// Damage is noticed, noted and mended.
	if err := os.WriteFile(file, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := ask("", may); again != first || len(told) != 1 || !strings.Contains(told[0], "damaged") {
		t.Errorf("with a damaged file\n%s\nwant\n%s; told %q", again, first, told)
	}
	if again := ask("", may); again != first || len(told) > 0 {
		t.Errorf("after it was mended\n%s\nwant\n%s; told %q", again, first, told)
	}

	// Another process that makes parts does not keep anybody from an answer.
	w, err := parts.NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	ask("", june)
	if len(told) > 0 || len(files()) != 1 {
		t.Errorf("while the directory is locked %d files are kept; told %q", len(files()), told)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	// The open month is not kept. A past position reads what is kept, and keeps nothing.
	ask("", domain.Interval{From: apptest.May + 62*domain.Day, To: apptest.May + 92*domain.Day})
	h, _ = apptest.Open(t, dir)
	end, err := h.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := sampled("import/late", 2, "c")
	late.Recorded = late.Time
	apptest.AppendEvents(t, h.Log, late, sampled("reporter/a", 81, "a"))
	apptest.Close(t, h)
	if n := len(files()); n != 1 {
		t.Errorf("%d months are kept", n)
	}
	if past := ask(app.At(end.String()), may); past != first {
		t.Errorf("as of before the late fact\n%s\nwant\n%s", past, first)
	}
	if now := ask("", may); now == first || !strings.Contains(now, `"workspace":"c"`) {
		t.Errorf("after a late fact: %s", now)
	}
	if n := len(files()); n != 2 {
		t.Errorf("%d versions are kept, want the one before and after the late fact", n)
	}
	if past := ask(app.At(end.String()), may); past != first || len(files()) != 2 {
		t.Errorf("as of before the late fact\n%s\nwant\n%s", past, first)
	}

	// Who makes parts keeps all sealed months.
	a := &app.App{Dir: dir}
	for range 2 {
		made, err := a.For(app.Everyone).MakeParts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if equal(t, "months with usage", made.Usage, "2026-05", "2026-06"); len(files()) != 3 {
			t.Errorf("%d files are kept, want two of May and one of June", len(files()))
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
