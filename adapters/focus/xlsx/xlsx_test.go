package xlsx

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"github.com/xuri/excelize/v2"
	"pgregory.net/rapid"

	"quartermaster/adapters/tabular"
)

var columns = []tabular.Column{
	{Name: "Text"}, {Name: "Amount", Kind: tabular.Decimals}, {Name: "Count", Kind: tabular.Wholes}, {Name: "At", Kind: tabular.Times}, {Name: "Set", Kind: tabular.Flags}, {Name: "Last"},
}

type failer interface{ Fatal(...any) }

func write(t failer, rows [][]string, limit int) []byte {
	var b bytes.Buffer
	w, err := newWriter(&b, columns, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t failer, dir string, file []byte) (rows [][]string) {
	path := filepath.Join(dir, "x.xlsx")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	table, err := Open(path, columns)
	if err != nil {
		t.Fatal(err)
	}
	for {
		row, err := table.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if row.Line != len(rows)+1 {
			t.Fatal("row", len(rows), "has line", row.Line)
		}
		rows = append(rows, slices.Clone(row.Fields))
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func texts() *rapid.Generator[string] {
	return rapid.Map(rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`(_x|_x005F_|_x00[01][0-9a-fA-F]_|x005F_|[\x00-\x1f]|a|_| |'|=){0,8}`),
		rapid.SampledFrom([]string{`=HYPERLINK("http://x","y")`, "+1", "\t=1", " padded ", "a\r\nb", "true", "1e5", "</t>", "]]>"}),
	), func(s string) string { return strings.Trim(strings.ToValidUTF8(s, ""), "\ufffe\uffff") })
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []string {
			amount := decimal.NewFromBigInt(big.NewInt(rapid.Int64().Draw(t, "units")), -int32(rapid.IntRange(0, 24).Draw(t, "digits")))
			row := []string{
				texts().Draw(t, "text"), amount.String(), fmt.Sprint(rapid.Int64().Draw(t, "count")), "2026-05-01T00:00:00.000000001Z",
				rapid.SampledFrom([]string{"true", "false"}).Draw(t, "set"), texts().Draw(t, "last"),
			}
			for i := range row {
				if rapid.IntRange(0, 3).Draw(t, "null") == 0 || strings.ContainsAny(row[i], "\ufffe\uffff") {
					row[i] = ""
				}
			}
			return row
		}), 0, 12).Draw(t, "rows")
		got := read(t, dir, write(t, rows, rapid.IntRange(2, 8).Draw(t, "limit")))
		want := append([][]string{{"Text", "Amount", "Count", "At", "Set", "Last"}}, rows...)
		if !slices.EqualFunc(got, want, func(a, b []string) bool { return slices.Equal(a, b) }) {
			t.Fatalf("%q\nwas read as\n%q", want, got)
		}
	})
}

// TestCells looks at the cells as another reader does.
func TestCells(t *testing.T) {
	file := write(t, [][]string{
		{"=1+1", "0.1", "7", "2026-05-01T00:00:00Z", "true", "@x"},
		{"a\x00b\r\nc", "1234567890123.456789", "1234567890123456789", "", "", ""},
		{"third", "-3", "", "", "", ""},
		{"fourth", "-1234567890123.456789", "-1234567890123456789", "", "", ""},
	}, 3)
	f, err := excelize.OpenReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, sheet := range f.GetSheetList() {
		if got, err := f.GetSheetDimension(sheet); err != nil || got != "" {
			t.Errorf("%s states that it has the cells %q (%v)", sheet, got, err)
		}
	}
	if got := f.GetSheetList(); !slices.Equal(got, []string{"rows", "rows 2"}) {
		t.Fatalf("the sheets are %q", got)
	}
	for _, c := range []struct {
		sheet, cell, value string
		kind               excelize.CellType
	}{
		{"rows", "A1", "Text", excelize.CellTypeInlineString},
		{"rows", "B1", "Amount", excelize.CellTypeInlineString},
		{"rows", "C1", "Amount_exact", excelize.CellTypeInlineString},
		{"rows", "A2", "'=1+1", excelize.CellTypeInlineString},
		{"rows", "B2", "0.1", excelize.CellTypeUnset},
		{"rows", "C2", "", excelize.CellTypeUnset},
		{"rows", "D2", "7", excelize.CellTypeUnset},
		{"rows", "F2", "1", excelize.CellTypeBool},
		{"rows", "G2", "'@x", excelize.CellTypeInlineString},
		{"rows", "A3", "a_x0000_b_x000D_\nc", excelize.CellTypeInlineString},
		{"rows", "B3", "1234567890123.46", excelize.CellTypeUnset},
		{"rows", "C3", "1234567890123.456789", excelize.CellTypeInlineString},
		{"rows", "D3", "1234567890123456789", excelize.CellTypeInlineString},
		{"rows 2", "C1", "Amount_exact", excelize.CellTypeInlineString},
		{"rows 2", "A2", "third", excelize.CellTypeInlineString},
		{"rows 2", "B2", "-3", excelize.CellTypeUnset},
		{"rows 2", "C3", "-1234567890123.456789", excelize.CellTypeInlineString},
		{"rows 2", "D3", "-1234567890123456789", excelize.CellTypeInlineString},
	} {
		value, err := f.GetCellValue(c.sheet, c.cell, excelize.Options{RawCellValue: true})
		kind, err2 := f.GetCellType(c.sheet, c.cell)
		formula, err3 := f.GetCellFormula(c.sheet, c.cell)
		if err := errors.Join(err, err2, err3); err != nil || value != c.value || kind != c.kind || formula != "" {
			t.Errorf("%s %s: %q of type %v with formula %q (%v), want %q of %v", c.sheet, c.cell, value, kind, formula, err, c.value, c.kind)
		}
	}
	style, err := f.GetCellStyle("rows", "A2")
	if err != nil {
		t.Fatal(err)
	}
	if of, err := f.GetStyle(style); err != nil || of.NumFmt != textFormat {
		t.Fatalf("a text has the format %+v: %v", of, err)
	}
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range z.File {
		r, err := part.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || bytes.Contains(text, []byte("<f>")) {
			t.Fatalf("%s has a formula, or cannot be read: %v", part.Name, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		column int
		value  string
		reason string
	}{
		{0, strings.Repeat("x", 33_000), "33000 characters, and a cell of XLSX has at most 32767"},
		{0, strings.Repeat("\U0001F600", 16_384), "32768 characters"},
		{0, "=" + strings.Repeat("x", 32_766), "32768 characters"},
		{0, "\xff", "not UTF-8"}, {0, "a\uffff", "U+FFFF"},
		{1, "1e5", "not a number"}, {1, "NaN", "not a number"}, {2, "x", "not a number"}, {4, "yes", "not a flag"},
	} {
		w, err := NewWriter(io.Discard, columns)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(columns))
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
		row[c.column] = c.value
		var bad *tabular.CellError
		if err := w.Write(row); !errors.As(err, &bad) || bad.Row != 2 || bad.Column != columns[c.column].Name || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("the error is %v, want one with %q", err, c.reason)
		}
		if err := w.Close(); !errors.As(err, &bad) {
			t.Errorf("Close returns %v", err)
		}
	}
	if got := read(t, t.TempDir(), write(t, [][]string{{strings.Repeat("x", 32_767), "", "", "", "", ""}}, 9)); len(got[1][0]) != 32_767 {
		t.Errorf("the longest text was read with %d characters", len(got[1][0]))
	}
	if _, err := NewWriter(io.Discard, make([]tabular.Column, 16_385)); err == nil || !strings.Contains(err.Error(), "16384") {
		t.Errorf("too many columns: %v", err)
	}
}

// FuzzOpen reads files that may be anything.
func FuzzOpen(f *testing.F) {
	f.Add(write(f, [][]string{{"a", "1.5", "7", "", "true", "b"}}, 9))
	f.Add([]byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(t.TempDir(), "x.xlsx")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Open(path, columns)
		if err != nil {
			return
		}
		for range 1000 {
			if _, err := table.Next(); err != nil {
				break
			}
		}
		_ = table.Close()
	})
}
