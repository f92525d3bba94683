package importer

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"quartermaster/adapters/tabular"
)

// readAll reads all rows. It returns the good rows and the lines of the bad ones.
func readAll(t testing.TB, r io.Reader, limits tabular.Limits) (rows [][]string, broken []int, err error) {
	t.Helper()
	tab := newTable(r, limits.WithDefaults())
	for {
		rec, err := tab.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return rows, broken, err
		}
		if rec.broken != nil {
			broken = append(broken, rec.line)
			continue
		}
		row := make([]string, len(rec.fields))
		for i, f := range rec.fields {
			row[i] = string(f)
		}
		rows = append(rows, row)
	}
}

func TestTable(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name, in string
		rows     string // fields joined by '|', rows by '/'
		broken   []int
	}{
		{"plain", "a,b\n1,2\n", "a|b/1|2", nil},
		{"no line end at the end", "a,b\n1,2", "a|b/1|2", nil},
		{"carriage returns", "a,b\r\n1,2\r\n", "a|b/1|2", nil},
		{"blank lines", "\n\r\na,b\n\n1,2\n\n", "a|b/1|2", nil},
		{"empty fields", ",\n,,\n", "|/||", nil},
		{"quotes", "\"a,\"\"b\"\"\",c\n\"\",\"\"\n", "a,\"b\"|c/|", nil},
		{"line end in quotes", "\"a\nb\",c\nd,e\n", "a\nb|c/d|e", nil},
		{"quote in the middle", "a\"b,c\nd,e\nf,g\n", "d|e/f|g", []int{1}},
		{"text behind a quote", "\"a\"b,c\nd,e\n", "d|e", []int{1}},
		{"quote never closed", "a,b\n\"c,d\ne,f\n", "a|b/e|f", []int{2}},
		{"two quotes never closed", "\"a\nb\n\"c,d\ne\n", "b/e", []int{1, 3}},
		{"long line", "a\n" + long + "\nb\n", "a/b", []int{2}},
		{"long line at the end", "a\n" + long, "a", []int{2}},
		{"quote open for too long", "a\n\"b\n" + strings.Repeat("c\n", 60) + "d\n", "a" + strings.Repeat("/c", 60) + "/d", []int{2}},
		{"NUL", "a,b\n1,\x002\n3,4\n", "a|b/3|4", []int{2}},
		{"not UTF-8", "a,b\n\xff,2\n3,ä\n", "a|b/3|ä", []int{2}},
		{"nothing", "", "", nil},
	} {
		for name, r := range map[string]io.Reader{"at once": strings.NewReader(c.in), "bytewise": iotest.OneByteReader(strings.NewReader(c.in))} {
			rows, broken, err := readAll(t, r, tabular.Limits{LineBytes: 100})
			var got []string
			for _, row := range rows {
				got = append(got, strings.Join(row, "|"))
			}
			if s := strings.Join(got, "/"); s != c.rows || err != nil || !equalInts(broken, c.broken) {
				t.Errorf("%s, %s: rows %q, broken %v, error %v, want %q, %v", c.name, name, s, broken, err, c.rows, c.broken)
			}
		}
	}
}

func equalInts(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestTableNeverReturnsARowCutOffByAnError(t *testing.T) {
	broken := errors.New("the disk is gone")
	rows, _, err := readAll(t, io.MultiReader(strings.NewReader("a,b\n1,58"), iotest.ErrReader(broken)), tabular.Limits{})
	if len(rows) != 1 || !errors.Is(err, broken) {
		t.Errorf("rows %q, error %v, want the header alone and the error", rows, err)
	}
}

// FuzzTable compares the reader with encoding/csv wherever that can read the whole text, and checks
// its own contract everywhere.
func FuzzTable(f *testing.F) {
	for _, s := range []string{
		"a,b\n1,2\n", "\"a\nb\",\"c\"\"\"\r\n", "a\"b\n", "\"a", "\"a\"b,\n\n\nc", "\x00,\xff\n", ",\r\r\n,\r", "\"\n\"\n\"\n\"", "\"\"\"\"\"\",\n",
		strings.Repeat("x", 300) + "\n\"" + strings.Repeat("y\n", 200),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		limits := tabular.Limits{LineBytes: 128}
		tab := newTable(bytes.NewReader(in), limits.WithDefaults())
		lastLine := 0
		for {
			rec, err := tab.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if rec.line <= lastLine {
				t.Fatalf("a row in line %d comes after one in line %d", rec.line, lastLine)
			}
			lastLine = rec.line
			if rec.broken != nil && rec.broken.Reason == "" {
				t.Fatal("a broken row without a reason")
			}
		}
		if tab.frames.Offset != int64(len(in)) {
			t.Fatalf("stopped at byte %d of %d", tab.frames.Offset, len(in))
		}
		if tab.frames.Held() > limits.LineBytes+2 {
			t.Fatalf("holds %d bytes for rows of at most %d", tab.frames.Held(), limits.LineBytes)
		}

		cr := csv.NewReader(bytes.NewReader(in))
		cr.FieldsPerRecord = -1
		want, err := cr.ReadAll()
		if err != nil || !utf8.Valid(in) || bytes.IndexByte(in, 0) >= 0 {
			return
		}
		got, broken, err := readAll(t, bytes.NewReader(in), tabular.Limits{})
		if err != nil || len(broken) > 0 || len(got) != len(want) {
			t.Fatalf("%d rows, broken %v, error %v, where encoding/csv reads %d", len(got), broken, err, len(want))
		}
		for i := range want {
			g := strings.ReplaceAll(strings.Join(got[i], "\x00"), "\r\n", "\n")
			if w := strings.Join(want[i], "\x00"); g != w {
				t.Fatalf("row %d is %q, encoding/csv reads %q", i, g, w)
			}
		}
	})
}
