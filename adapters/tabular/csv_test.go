package tabular

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll reads all rows. It returns the good rows and the lines of the bad ones.
func readAll(t testing.TB, r io.Reader, most int) (rows [][]string, broken []int, err error) {
	t.Helper()
	rs := NewCSV(r, most)
	last := 0
	var before []string // the fields of the last row, whether it was good or not
	for {
		rec, err := rs.Next()
		if errors.Is(err, io.EOF) {
			return rows, broken, nil
		}
		if err != nil {
			return rows, broken, err
		}
		if rec.Line <= last {
			t.Fatalf("a row in line %d comes after one in line %d", rec.Line, last)
		}
		if rs.frames.Held() > most+2 {
			t.Fatalf("%d bytes are held where a row may have %d", rs.frames.Held(), most)
		}
		last = rec.Line
		for i, f := range rec.Fields {
			if rec.Changed != nil && !slices.Contains(rec.Changed, i) && (i >= len(before) || f != before[i]) {
				t.Fatalf("row %q after %q: column %d differs, but only %v are said to", rec.Fields, before, i, rec.Changed)
			}
		}
		if before = nil; rec.Broken == nil {
			for _, f := range rec.Fields {
				before = append(before, strings.Clone(f))
			}
		}
		if rec.Broken != nil {
			broken = append(broken, rec.Line)
			continue
		}
		rows = append(rows, before)
	}
}

func flat(rows [][]string) string {
	var s []string
	for _, row := range rows {
		s = append(s, strings.Join(row, "|"))
	}
	return strings.Join(s, "/")
}

func TestRowsResumeInTheNextLine(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name, in, rows string
		broken         []int
	}{
		{"plain", "a,b\n1,2\n", "a|b/1|2", nil},
		{"no line end at the end", "a,b\r\n1,2", "a|b/1|2", nil},
		{"blank lines", "\n\r\na,b\n\n1,2\n\n", "a|b/1|2", nil},
		{"line end in quotes", "\"a\nb\",c\nd,e\n", "a\nb|c/d|e", nil},
		{"quote in the middle", "a\"b\",c\nd,e\nf,g\n", "d|e/f|g", []int{1}},
		{"odd quote in the middle", "a\"b,c\nd,e\nf,g\n", "d|e/f|g", []int{1}},
		{"text behind a quote", "\"a\"b,c\nd,e\n", "d|e", []int{1}},
		{"quote never closed", "a,b\n\"c,d\ne,f\n", "a|b/e|f", []int{2}},
		{"two quotes never closed", "\"a\nb\n\"c,d\ne\n", "b/e", []int{1, 3}},
		{"long line", "a\n" + long + "\nb\n", "a/b", []int{2}},
		{"long line at the end", "a\n" + long, "a", []int{2}},
		{"quote open for too long", "a\n\"b\n" + strings.Repeat("c\n", 60) + "d\n", "a" + strings.Repeat("/c", 60) + "/d", []int{2}},
		{"empty fields", "a,b,c\n,,\n1,,3,,\n,,\n", "a|b|c/||/1||3||/||", nil},
		{"fields that repeat", "a,\"b\"\"\",c\na,\"b\"\"\"\na,\"b\"\na,\"b\"\"c\",\na,b,c\n", "a|b\"|c/a|b\"/a|b/a|b\"c|/a|b|c", nil},
		{"nothing", "", "", nil},
	} {
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(c.in), "bytewise": iotest.OneByteReader(strings.NewReader(c.in))} {
			rows, broken, err := readAll(t, r, 100)
			if flat(rows) != c.rows || err != nil || len(broken) != len(c.broken) || len(broken) > 0 && broken[0] != c.broken[0] {
				t.Errorf("%s, %s: rows %q, broken %v, error %v, want %q, %v", c.name, name, flat(rows), broken, err, c.rows, c.broken)
			}
		}
	}
	gone := errors.New("the disk is gone")
	rows, _, err := readAll(t, io.MultiReader(strings.NewReader("a,b\n1,58"), iotest.ErrReader(gone)), 100)
	if len(rows) != 1 || !errors.Is(err, gone) {
		t.Errorf("rows %q, error %v: want the header alone and the error", rows, err)
	}
}

// FuzzRows compares the reader of rows with encoding/csv wherever that can read the whole text,
// and checks its limits everywhere.
func FuzzRows(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a\nb\",\"c\"\"\"\r\n", "a\"b\n", "\"a", "\"a\"b,\n\n\nc", ",\r\r\n,\r", "\"\n\"\n\"\n\"", "\"\r\n\"", "a,b\n\"a\",b\n\"a\nb\",b\na\"b\na,b\na\na,c\n", strings.Repeat("x", 300) + "\n\"" + strings.Repeat("y\n", 200)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rows, broken, err := readAll(t, bytes.NewReader(in), 128)
		if err != nil {
			t.Fatal(err)
		}
		r := csv.NewReader(bytes.NewReader(in))
		r.FieldsPerRecord = -1
		whole, err := r.ReadAll()
		if err != nil || len(in) > 128 || bytes.Contains(in, []byte("\r\r")) { // "\r\r\n" is a row for encoding/csv but a blank line here
			return
		}
		if len(broken) > 0 || !slices.EqualFunc(rows, whole, slices.Equal) {
			t.Fatalf("%q: rows %q, broken %v, want %q", in, rows, broken, whole)
		}
	})
}
