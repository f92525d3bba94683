package bill_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
)

// rowsOf reads a file by small, whose rows are at data.rows. It describes each row by its cost and day.
func rowsOf(t testing.TB, path, text string, limits tabular.Limits) (rows []string, err error) {
	t.Helper()
	m := parsed(t, "{column: cost}", "rows: "+path+"\n")
	table, err := m.Open(context.Background(), strings.NewReader(text), limits, focus.OpenCSV)
	if err != nil {
		return nil, err
	}
	header, err := table.Next()
	if err != nil {
		return nil, err
	}
	names := strings.Join(header.Fields, ",")
	at := strings.Count(names[:strings.Index(names, "BilledCost")], ",")
	for {
		row, err := table.Next()
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return rows, err
		case row.Broken != nil:
			rows = append(rows, "!"+row.Broken.Field+" "+row.Broken.Reason)
		default:
			rows = append(rows, row.Fields[at])
		}
	}
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, path, text, want, err string }{
		{"numbers and texts as written", "data.rows", `{"data":{"rows":[{"cost":1.10,"day":"2026-05-06"},{"cost":"2e-7","day":"2026-05-06"}]}}`, "1.10|2e-7", ""},
		{"other members around", "data.rows", `{"x":{"data":[1]},"data":{"n":[[]],"rows":[{"day":"2026-05-06","cost":1,"z":{}}],"m":{"rows":[2]}},"y":null}`, "1", ""},
		{"pages", ".", ` [{"cost":1,"day":"2026-05-06"}] [] [{"cost":2,"day":"2026-05-06"}]`, "1|2", ""},
		{"a member is missing", ".", `[{"cost":1},{"cost":2,"day":"2026-05-06"}]`, "!day is missing|2", ""},
		{"null is empty", ".", `[{"cost":null,"day":"2026-05-06"},{"cost":1,"day":"2026-05-06"}]`, "|1", ""},
		{"a member twice", ".", `[{"cost":1,"cost":2,"day":"2026-05-06"}]`, "!cost is there twice", ""},
		{"no object", ".", `[7,{"cost":2,"day":"2026-05-06"}]`, "! is no object|2", ""},
		{"a long row", ".", `[{"cost":1,"day":"` + strings.Repeat("x", 300) + `"},{"cost":2,"day":"2026-05-06"}]`, "! the row is longer than 256 bytes|2", ""},
		{"a row without end", ".", `[{"cost":"` + strings.Repeat("x", 1<<18), "", "far longer than a row"},
		{"truncated", "data.rows", `{"data":{"rows":[{"cost":1,"day":"2026-05-06"}`, "1", "the JSON ends in the middle"},
		{"truncated after the list", "data.rows", `{"data":{"rows":[{"cost":1,"day":"2026-05-06"}]}`, "1", "the JSON ends in the middle"},
		{"no list", "data.rows", `{"error":"unauthorized"}`, "", "needs a list at data.rows, and a document has none"},
		{"no list on the second page", "data.rows", `{"data":{"rows":[]}}{"error":1}`, "", "and a document has none"},
		{"an object instead of the list", "data.rows", `{"data":{"rows":{}}}`, "", "needs a list at data.rows"},
		{"a list instead of the object", "data.rows", `[]`, "", "needs an object with the member data"},
		{"two lists", "data.rows", `{"data":{"rows":[],"rows":[]}}`, "", "the member rows is there twice"},
		{"not JSON", ".", `[{"cost":1,"day":"2026-05-06"},}]`, "1", "the JSON is wrong at byte"},
		{"nested too deeply", "data.rows", `{"x":` + strings.Repeat("[", 2000), "", "nested deeper than 1000"},
		{"CSV", "data.rows", "cost,day\n3,2026-05-06\n", "3", ""},
	} {
		rows, err := rowsOf(t, c.path, c.text, tabular.Limits{LineBytes: 256})
		if strings.Join(rows, "|") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, error %v, want %q, %s", c.name, rows, err, c.want, c.err)
		}
	}
}

// Whole finds what reading row by row finds after the rows before it.
func TestWholeJSON(t *testing.T) {
	m := parsed(t, "1", "rows: data\n")
	other := func(context.Context, io.Reader, tabular.Limits) error { return errors.New("other") }
	for text, want := range map[string]error{
		`{"data":[{}]}`: nil,
		`{"data":[{}]`:  tabular.ErrDamaged,
		`{"rows":[{}]}`: focus.ErrColumns,
		"cost,day\n1\n": nil,
	} {
		if err := m.Whole(context.Background(), strings.NewReader(text), tabular.Limits{}, other); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	if err := m.Whole(context.Background(), strings.NewReader("PAR1"), tabular.Limits{}, other); err == nil || err.Error() != "other" {
		t.Errorf("Parquet: %v", err)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"data":{"rows":[{"cost":1.10,"day":"2026-05-06"}]}}`, "data.rows")
	f.Add(`[[{"a":[1,{}]}]] {"x"`, ".")
	f.Fuzz(func(t *testing.T, text, path string) {
		if path != "." {
			path = "data.rows"
		}
		_, _ = rowsOf(t, path, text, tabular.Limits{LineBytes: 64})
	})
}
