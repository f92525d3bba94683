package parquet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// typed are columns of every kind, in an order that is not that of their names.
var typed = []tabular.Column{
	{Name: "x_Text"}, {Name: "Amount", Kind: tabular.Decimals}, {Name: "Count", Kind: tabular.Wholes}, {Name: "At", Kind: tabular.Times}, {Name: "Set", Kind: tabular.Flags},
}

func typedRow(t *rapid.T) []string {
	amount := decimal.NewFromBigInt(new(big.Int).SetInt64(rapid.Int64().Draw(t, "units")), -int32(rapid.IntRange(0, 18).Draw(t, "digits"))).String()
	row := []string{
		strings.ToValidUTF8(rapid.String().Draw(t, "text"), ""), amount, fmt.Sprint(rapid.Int64().Draw(t, "count")),
		domain.Instant(rapid.Int64Range(1, 1<<62).Draw(t, "at")).String(), rapid.SampledFrom([]string{"true", "false"}).Draw(t, "set"),
	}
	for i := range row {
		if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			row[i] = ""
		}
	}
	return row
}

// readBack reads a file that was written, with texts in their canonical form.
func readBack(t interface{ Fatal(...any) }, file []byte, columns []tabular.Column) (header []string, rows [][]string) {
	table, err := parquet.Open(context.Background(), bytes.NewReader(file), tabular.Limits{}, errColumns)
	if err != nil {
		t.Fatal(err)
	}
	for {
		row, err := table.Next()
		if errors.Is(err, io.EOF) {
			return header, rows
		}
		if err != nil || row.Broken != nil {
			t.Fatal(err, row.Broken)
		}
		fields := slices.Clone(row.Fields)
		if header == nil {
			header = fields
			continue
		}
		for i := range fields {
			fields[i] = tabular.Canonical(columns[i].Kind, fields[i])
		}
		rows = append(rows, fields)
	}
}

func writeAll(t interface{ Fatal(...any) }, rows [][]string) []byte {
	var b bytes.Buffer
	w := parquet.NewWriter(&b, typed)
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

func TestWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(typedRow), 0, 40).Draw(t, "rows")
		for range rapid.IntRange(0, 6).Draw(t, "doublings") { // more than a batch
			rows = slices.Concat(rows, rows)
		}
		file := writeAll(t, rows)
		header, got := readBack(t, file, typed)
		if want := []string{"x_Text", "Amount", "Count", "At", "Set"}; !slices.Equal(header, want) {
			t.Fatalf("the columns are %q, want %q", header, want)
		}
		if !slices.EqualFunc(got, rows, func(a, b []string) bool { return slices.Equal(a, b) }) {
			t.Fatalf("%d rows were written, and %d others read", len(rows), len(got))
		}
		if !bytes.Equal(file, writeAll(t, rows)) {
			t.Fatal("the same rows gave other bytes")
		}
	})
}

// TestWriterGroups writes more rows than a row group has.
func TestWriterGroups(t *testing.T) {
	rows := make([][]string, long.Count(140_000, 400_000))
	for i := range rows {
		rows[i] = []string{fmt.Sprint("text ", i/3), decimal.New(int64(i), -18).String(), fmt.Sprint(i), domain.Instant(i + 1).String(), ""}
	}
	_, got := readBack(t, writeAll(t, rows), typed)
	for i := range rows {
		if !slices.Equal(got[i], rows[i]) {
			t.Fatalf("row %d: %q was read as %q", i, rows[i], got[i])
		}
	}
}

// TestWriterTypes reads the types of columns as another reader sees them.
func TestWriterTypes(t *testing.T) {
	file := writeAll(t, [][]string{{"a", "1.5", "7", "2026-05-01T00:00:00Z", "true"}})
	f, err := pq.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range f.Root().Columns() {
		got = append(got, fmt.Sprint(c.Name(), " ", c.Type(), " ", c.Type().Kind()))
	}
	want := []string{
		"x_Text STRING BYTE_ARRAY", "Amount DECIMAL(38,18) FIXED_LEN_BYTE_ARRAY", "Count INT(64,true) INT64",
		"At TIMESTAMP(isAdjustedToUTC=true,unit=NANOS) INT64", "Set BOOLEAN BOOLEAN",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the types are\n%q, want\n%q", got, want)
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		column int
		value  string
		reason string
	}{
		{0, "\xff", "not UTF-8"},
		{1, "0.1234567890123456789", "18 after the point"},
		{1, "123456789012345678901", "at most 20 digits before"},
		{1, "1e5", "not a decimal"}, {1, ".5", "not a decimal"}, {1, "5.", "not a decimal"}, {1, "-", "not a decimal"},
		{2, "9223372036854775808", "64 bits"}, {3, "yesterday", "yesterday"}, {4, "yes", "not a flag"},
	} {
		w := parquet.NewWriter(io.Discard, typed)
		row := make([]string, len(typed))
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
		row[c.column] = c.value
		var bad *tabular.CellError
		err := w.Write(row)
		if !errors.As(err, &bad) || bad.Row != 2 || bad.Column != typed[c.column].Name || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("%q: the error is %v, want one with %q", c.value, err, c.reason)
		}
	}
}

// Values that repeat for any number of rows, across the batches in which they are written, are read back.
func TestWriterOfRuns(t *testing.T) {
	periods := []int{1, 2, 3, 63, 64, 65, 128, 130, 1000}
	var columns []tabular.Column
	for _, p := range periods {
		columns = append(columns,
			tabular.Column{Name: fmt.Sprint("text", p)},
			tabular.Column{Name: fmt.Sprint("decimal", p), Kind: tabular.Decimals},
			tabular.Column{Name: fmt.Sprint("null", p)})
	}
	var rows [][]string
	var b bytes.Buffer
	w := parquet.NewWriter(&b, columns)
	for i := range 700 {
		var row []string
		for _, p := range periods {
			null := ""
			if i/p%2 == 1 {
				null = "set"
			}
			row = append(row, fmt.Sprint("value ", i/p), fmt.Sprint(i/p), null)
		}
		rows = append(rows, row)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, got := readBack(t, b.Bytes(), columns)
	for i := range rows {
		if i >= len(got) || !slices.Equal(got[i], rows[i]) {
			t.Fatalf("row %d of %d is %q, want %q", i, len(got), got[min(i, len(got)-1)], rows[i])
		}
	}
}
