package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// month is that of the lines of [folded].
var month = domain.Interval{From: 1_748_736_000 * domain.Second, To: 1_751_328_000 * domain.Second} // June 2025

// kinds are those of exported columns in a file.
var kinds = map[costs.Kind]tabular.Kind{
	costs.KindDecimal: tabular.Decimals, costs.KindTime: tabular.Times, costs.KindFlag: tabular.Flags,
}

// exports writes the kept allocations of the month of an archive, and exports them in the other formats.
func exports(t *testing.T, dir string) (kept, csv, parq string, digest [sha256.Size]byte) {
	t.Helper()
	a, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := fold(t.Context(), a, "")
	if err != nil {
		t.Fatal(err)
	}
	var canonical, text, columnar bytes.Buffer
	if err := rows.View(t.Context(), func(v projections.View) error {
		_, _, err := costs.WriteCanonical(v, month, &canonical)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d, err := costs.ReadCanonical(func() (io.ReadSeekCloser, error) {
		return struct {
			io.ReadSeeker
			io.Closer
		}{bytes.NewReader(canonical.Bytes()), io.NopCloser(nil)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var columns []tabular.Column
	for _, c := range costs.ExportedColumns() {
		columns = append(columns, tabular.Column{Name: c.Name, Kind: kinds[c.Kind]})
	}
	writers := []tabular.Writer{tabular.NewCSVWriter(&text, columns), parquet.NewWriter(&columnar, columns)}
	if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error {
		for _, w := range writers {
			if err := w.Write(row); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, w := range writers {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	digest = sha256.Sum256(canonical.Bytes())
	out := t.TempDir()
	return write(t, out, fmt.Sprintf("%x.allocations", digest), canonical.Bytes()),
		write(t, out, "june.csv", text.Bytes()), write(t, out, "june.parquet", columnar.Bytes()), digest
}

// TestSampleOfEachFormat draws the same sample from the same rows in CSV, in Parquet and in kept allocations.
func TestSampleOfEachFormat(t *testing.T) {
	dir, _, _ := folded(t)
	kept, csv, parq, digest := exports(t, dir)
	for _, args := range []string{
		"--seed a --n 7", "--seed b --n 7", "--seed a --n 5 --by BilledCost", "--seed c --n 30 --by x_GpuSecondsBought", "--seed a --n 1000",
	} {
		rows := map[string][]item{}
		for _, file := range []string{kept, csv, parq} {
			code, out, errs := does(append([]string{"sample", file, "-o", "json"}, strings.Fields(args)...)...)
			if code != 0 {
				t.Fatalf("%s of %s: %d, %s", args, file, code, errs)
			}
			rows[file] = lines[item](t, out)
		}
		if len(rows[csv]) == 0 && !strings.Contains(args, "Gpu") {
			t.Errorf("%s draws nothing", args)
		}
		for _, file := range []string{kept, parq} {
			if got, want := fmt.Sprintf("%+v", rows[file]), fmt.Sprintf("%+v", rows[csv]); got != want {
				t.Errorf("%s: %s gives\n%s, and CSV\n%s", args, filepath.Base(file), got, want)
			}
		}
	}
	if code, out, errs := does("diff-exports", csv, parq); code != 0 || out != "" {
		t.Errorf("CSV and Parquet differ: %d, %s, %s", code, out, errs)
	}

	// Each row has the events of its line.
	code, out, errs := does("sample", parq, "--seed", "a", "--archive", dir, "-o", "json")
	drawn := lines[item](t, out)
	if code != 0 || len(drawn) == 0 {
		t.Fatal(code, errs)
	}
	for _, it := range drawn {
		if len(it.Trail) != 1 || it.Trail[0].Type != "BillingLineRecorded" || it.Values["x_OriginLineId"] == "" {
			t.Errorf("%+v", it)
		}
	}
	// Kept allocations are shown only beside the close that names them.
	if code, _, errs := does("sample", kept, "--seed", "a", "--archive", dir); code != 5 || !strings.Contains(errs, "no close in the archive names") {
		t.Errorf("without a close: %d, %s", code, errs)
	}
	closed, _, _ := folded(t, &domain.Envelope{Time: month.To, Event: &domain.BooksClosed{
		Entity: "platform", Period: month, Position: "0", Method: "attribution/2", Digest: digest[:],
	}})
	code, out, errs = does("sample", kept, "--seed", "a", "--archive", closed, "-o", "json")
	if again := lines[item](t, out); code != 0 || len(again) != len(drawn) || len(again[0].Trail) != 1 {
		t.Errorf("with its close: %d, %s, %+v", code, errs, again)
	}
}

// TestSampleRefuses: what is damaged or not read gives an error that says so.
func TestSampleRefuses(t *testing.T) {
	dir, _, _ := folded(t)
	kept, _, parq, digest := exports(t, dir)
	change := func(file, name string, how func([]byte) []byte) string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return write(t, t.TempDir(), name, how(b))
	}
	same := func(b []byte) []byte { return b }
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	half := func(b []byte) []byte { return b[:len(b)/2] }
	later := []byte("quartermaster.allocations/999\nfrom another version")
	var list bytes.Buffer
	w := pq.NewGenericWriter[struct{ Tags []string }](&list)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]struct {
		code int
		says string
	}{
		change(kept, fmt.Sprintf("%x.allocations", digest), flip):                         {1, "was changed: its SHA-256 is"},
		change(kept, fmt.Sprintf("%x.allocations", digest), half):                         {1, "was changed: its SHA-256 is"},
		change(kept, "june.allocations", same):                                            {2, "is not named by their SHA-256"},
		write(t, t.TempDir(), fmt.Sprintf("%x.allocations", sha256.Sum256(later)), later): {2, "not a month of allocations"},
		change(parq, "half.parquet", half):                                                {2, "is damaged"},
		write(t, t.TempDir(), "list.parquet", list.Bytes()):                               {2, "column Tags has several values in a row"},
		write(t, t.TempDir(), "empty.csv", nil):                                           {2, "is empty"},
	} {
		if code, out, errs := does("sample", file, "--seed", "a"); code != want.code || !strings.Contains(errs, want.says) {
			t.Errorf("%s: %d, %q, %s, want %q", filepath.Base(file), code, out, errs, want.says)
		}
	}
}

// TestReadCSV: CSV and Parquet that the server wrote of the same rows are read alike, whatever their texts.
func TestReadCSV(t *testing.T) {
	dir := t.TempDir()
	columns := []tabular.Column{{Name: "a"}, {Name: "b"}}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`'{0,2}[=+@＝-][a-z0-9]{0,3}`), rapid.StringMatching("[_x0-9A-F'\t\x01\x1f ]{0,12}"),
			rapid.StringMatching(`'?_x00[0-9]{2}_x?`), rapid.StringMatching(`[a-z"',]{1,4}`))
		rows := rapid.SliceOfN(rapid.SliceOfN(text, 2, 2), 1, 20).Draw(t, "rows")
		for _, row := range rows {
			row[1] += "." // a row of empty cells is an empty line in CSV
		}
		var files [2]bytes.Buffer
		for i, w := range []tabular.Writer{tabular.NewCSVWriter(&files[0], columns), parquet.NewWriter(&files[1], columns)} {
			for _, row := range rows {
				if err := w.Write(row); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, "rows")
			if err := os.WriteFile(name, files[i].Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readExport(name)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got.rows, rows, slices.Equal[[]string]) {
				t.Fatalf("file %d: %q, want %q", i, got.rows, rows)
			}
		}
	})
}

// TestReadParquet reads back what the server's writer wrote.
func TestReadParquet(t *testing.T) {
	columns := []tabular.Column{
		{Name: "t"}, {Name: "d", Kind: tabular.Decimals}, {Name: "n", Kind: tabular.Wholes}, {Name: "at", Kind: tabular.Times}, {Name: "is", Kind: tabular.Flags},
	}
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.Custom(func(t *rapid.T) []string {
			amount := fmt.Sprintf("%d.%018d", rapid.Int64().Draw(t, "whole"), rapid.Int64Range(0, 999_999_999_999_999_999).Draw(t, "part"))
			row := []string{
				rapid.StringMatching(`[a-zé ,"]{0,8}`).Draw(t, "text"), strings.TrimRight(strings.TrimRight(amount, "0"), "."),
				fmt.Sprint(rapid.Int64().Draw(t, "count")), domain.Instant(rapid.Int64Range(1, 1<<62).Draw(t, "at")).String(),
				rapid.SampledFrom([]string{"true", "false"}).Draw(t, "flag"),
			}
			row[rapid.IntRange(0, len(row)-1).Draw(t, "null")] = ""
			return row
		})
		rows := rapid.SliceOfN(row, 0, 300).Draw(t, "rows")
		name := filepath.Join(dir, "rows.parquet")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		w := parquet.NewWriter(f, columns)
		for _, row := range rows {
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := readExport(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"t", "d", "n", "at", "is"}; !slices.Equal(got.header, want) || !slices.EqualFunc(got.rows, rows, slices.Equal[[]string]) {
			t.Fatalf("%v\n%v\n%v", got.header, got.rows, rows)
		}
	})
}
