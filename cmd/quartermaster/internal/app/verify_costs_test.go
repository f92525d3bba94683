package app_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

// rowsOf collects the rows of an export.
type rowsOf struct{ rows [][]string }

func (r *rowsOf) Write(row []string) error {
	r.rows = append(r.rows, slices.Clone(row))
	return nil
}

// keptFile returns the only kept division of May, and the manifest beside it.
func keptFile(t *testing.T, dir string) (file, manifest string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "parts", "*", "month=2026-05", "allocations", "*.allocations"))
	if err != nil || len(found) != 1 {
		t.Fatalf("kept divisions %q: %v", found, err)
	}
	return found[0], filepath.Join(filepath.Dir(found[0]), "manifest.json")
}

// A verification divides an open month again. A kept division that is wrong, and that the export was made from, is found.
func TestVerifyDoesNotReadWhatTheExportRead(t *testing.T) {
	export := func(dir string, by ...costs.Dimension) (*app.CostsManifest, [][]string) {
		t.Helper()
		a, rows := &app.App{Dir: dir}, &rowsOf{}
		m, err := a.For(app.Everyone).ExportCosts(t.Context(), "", app.CostsExport{Months: []domain.Interval{may}, By: by},
			func([]costs.Column) (app.RowWriter, error) { return rows, nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return m, rows.rows
	}
	verify := func(dir string, m *app.CostsManifest, rows [][]string) *app.CostsVerified {
		t.Helper()
		a := &app.App{Dir: dir}
		next := func() ([]string, error) {
			if len(rows) == 0 {
				return nil, io.EOF
			}
			row := rows[0]
			rows = rows[1:]
			return row, nil
		}
		v, err := a.For(app.Everyone).VerifyCosts(t.Context(), m, next, func([]costs.Column) (app.RowWriter, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return v
	}
	dir := billedDir(t)
	for _, by := range [][]costs.Dimension{nil, {costs.ByWorkspace}} {
		m, rows := export(dir, by...)
		if v := verify(dir, m, rows); !v.Equal {
			t.Fatalf("by %v: %+v", by, v)
		}
	}
	// The same month with another amount, kept as if it were this one.
	forged := t.TempDir()
	h, _ := apptest.Open(t, forged)
	apptest.AppendEvents(t, h.Log, sampled("reporter/a", 1, "a"), sampled("reporter/a", 9, "b"), sampled("reporter/a", 80, "a"),
		lineOf("l-1", "10.000000000000000001"), lineOf("l-2", "6"), invoiced("15"))
	apptest.Close(t, h)
	export(forged)
	wrong, _ := keptFile(t, forged)
	right, manifest := keptFile(t, dir)
	body := contentOf(t, wrong)
	digest := sha256.Sum256(body)
	name := hex.EncodeToString(digest[:])
	text := strings.ReplaceAll(string(contentOf(t, manifest)), strings.TrimSuffix(filepath.Base(right), ".allocations"), name)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]string{manifest: text, filepath.Join(filepath.Dir(right), name+".allocations"): string(body)} {
		if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range [][]costs.Dimension{nil, {costs.ByWorkspace}} {
		m, rows := export(dir, by...)
		if v := verify(dir, m, rows); v.Equal || v.Difference == nil {
			t.Errorf("by %v: a wrong division verifies itself: %+v", by, v)
		}
	}
}
