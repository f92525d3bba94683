package parts_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func keepBytes(t *testing.T, d parts.Directory, month domain.Interval, text string, books bool) parts.Digest {
	t.Helper()
	_, reads := projections.Record(nil)
	draft, err := d.NewDraft(month)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(draft, text); err != nil {
		t.Fatal(err)
	}
	w, err := parts.NewWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := w.PutAllocations(month, parts.AllocationsVersion{Reads: reads, Position: "0", Rows: 1, Books: books}, draft)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return digest
}

// What a close names stays. Of the rest the last stays. What a crash left is removed, and what is being
// written is not.
func TestAllocationsAreKept(t *testing.T) {
	d := parts.Directory{Path: filepath.Join(t.TempDir(), "log"), Log: "log"}
	month := storetest.MayBill
	if _, err := d.AllocationsVersions(month); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is kept: %v", err)
	}
	writing, err := d.NewDraft(month)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(d.Path, "month=2026-05", "allocations")
	write(t, filepath.Join(folder, "draft-left"), []byte("half"))
	first := keepBytes(t, d, month, "first", false)
	keepBytes(t, d, month, "first", true)
	keepBytes(t, d, month, "first", false)
	second := keepBytes(t, d, month, "second", false)
	third := keepBytes(t, d, month, "third", false)
	versions, err := d.AllocationsVersions(month)
	if err != nil || len(versions) != 2 || versions[0].Digest != first || !versions[0].Books || versions[1].Digest != third || versions[1].Books {
		t.Errorf("versions %+v: %v", versions, err)
	}
	for digest, want := range map[parts.Digest]error{first: nil, second: parts.ErrMissing, third: nil} {
		if _, err := d.OpenAllocations(month, digest); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", digest, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "draft-left")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a crash left: %v", err)
	}
	if _, err := writing.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if err := writing.Discard(); err != nil {
		t.Errorf("a draft was removed while it was written: %v", err)
	}

	// What is open can be read after it was superseded.
	open, err := d.OpenAllocations(month, third)
	if err != nil {
		t.Fatal(err)
	}
	keepBytes(t, d, month, "fourth", false)
	for range 2 {
		f, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != "third" {
			t.Errorf("read %q: %v", b, err)
		}
	}
	write(t, d.AllocationsFile(month, first), []byte("farst"))
	if _, err := d.OpenAllocations(month, first); !errors.Is(err, parts.ErrDamaged) {
		t.Errorf("a changed file: %v", err)
	}
	manifest := filepath.Join(folder, "manifest.json")
	for _, text := range []string{"{", `{"format":"x"}`, `{"format":"quartermaster.allocations-manifest/1","log":"log","month":"2026-04"}`} {
		write(t, manifest, []byte(text))
		if _, err := d.AllocationsVersions(month); !errors.Is(err, parts.ErrManifest) {
			t.Errorf("%s: %v", text, err)
		}
	}
	write(t, manifest, []byte(`{"format":"quartermaster.allocations-manifest/1","log":"other","month":"2026-05"}`))
	if _, err := d.AllocationsVersions(month); !errors.Is(err, parts.ErrLog) {
		t.Errorf("another log: %v", err)
	}
}
