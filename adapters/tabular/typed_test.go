package tabular_test

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"quartermaster/adapters/tabular"
	"quartermaster/domain/long"
)

// hostile generates texts as a bill may have them to harm who opens its export.
func hostile() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`['=+\-@\t\r\n＝＋－＠]{0,3}[a-z_x0-9 ,;"\\.]{0,12}`),
		rapid.StringMatching(`(_x|_x005F_|_x00[01][0-9a-fA-F]_|x005F_|[\x00-\x1f]|a){0,6}`),
		rapid.SampledFrom([]string{`=HYPERLINK("http://x","y")`, "@SUM(A1)", "-2+3", "'=1", "''=1", "\t=1", "\r=1", `\.`, " =1", "\u00a0x", "\u2003=1", "\u0085", "a\r\nb", "_x0041_", "=1\n", "-"}),
	)
}

func TestSafeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(hostile().Draw(t, "text"), "")
		safe := tabular.Safe(s)
		if strings.ContainsAny(safe[:min(1, len(safe))], "=+-@\t\r\n") {
			t.Fatalf("%q begins a formula", safe)
		}
		if i := strings.IndexFunc(safe, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }); i >= 0 {
			t.Fatalf("%q has a control character at %d", safe, i)
		}
		if again := tabular.Plain(safe); again != s {
			t.Fatalf("%q became %q, and that %q", s, safe, again)
		}
	})
}

// TestCSVWriter compares the writer with encoding/csv, and reads back what it wrote.
func TestCSVWriter(t *testing.T) {
	columns := []tabular.Column{{Name: "a"}, {Name: "b"}, {Name: "n", Kind: tabular.Decimals}}
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []string {
			return []string{hostile().Draw(t, "a"), rapid.SampledFrom([]string{"", "x", "y,z"}).Draw(t, "b"), rapid.SampledFrom([]string{"", "-1.5", "0"}).Draw(t, "n")}
		}), 0, long.Count(40, 400)).Draw(t, "rows")
		var got, want bytes.Buffer
		w, other := tabular.NewCSVWriter(&got, columns), csv.NewWriter(&want)
		_ = other.Write([]string{"a", "b", "n"})
		for _, row := range rows {
			row[0] = strings.ToValidUTF8(row[0], "")
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
			_ = other.Write([]string{tabular.Safe(row[0]), tabular.Safe(row[1]), row[2]})
		}
		other.Flush()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("written\n%q, encoding/csv writes\n%q", got.Bytes(), want.Bytes())
		}
		table := tabular.NewCSV(&got, 1<<20)
		for i := -1; i < len(rows); i++ {
			row, err := table.Next()
			if err != nil || row.Broken != nil {
				t.Fatal(i, err, row.Broken)
			}
			if i >= 0 && tabular.Plain(row.Fields[0]) != rows[i][0] {
				t.Fatalf("row %d: %q was read as %q", i, rows[i][0], row.Fields[0])
			}
		}
	})
}

func TestCSVWriterRefusesWhatIsNotText(t *testing.T) {
	w := tabular.NewCSVWriter(&bytes.Buffer{}, []tabular.Column{{Name: "a"}})
	_ = w.Write([]string{"good"})
	var bad *tabular.CellError
	if err := w.Write([]string{"\xff"}); !errors.As(err, &bad) || bad.Row != 2 || bad.Column != "a" {
		t.Fatalf("the error is %v", err)
	}
	if err := w.Close(); !errors.As(err, &bad) {
		t.Fatalf("Close returns %v", err)
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct {
		kind       tabular.Kind
		text, want string
	}{
		{tabular.Decimals, "1.500", "1.5"}, {tabular.Decimals, "100", "100"}, {tabular.Decimals, "0.000", "0"},
		{tabular.Decimals, "-0.00", "0"}, {tabular.Texts, "1.0", "1.0"}, {tabular.Decimals, "", ""},
		{tabular.Times, "2026-05-01T02:00:00+02:00", "2026-05-01T00:00:00Z"}, {tabular.Times, "x", "x"},
	} {
		if got := tabular.Canonical(c.kind, c.text); got != c.want {
			t.Errorf("%q is %q, want %q", c.text, got, c.want)
		}
	}
}
