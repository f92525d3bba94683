package bill

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// ErrGiven is wrapped by every fault of what a user gives to a mapping beside the file: a missing
// parameter or table, or a wrong one. The user corrects it.
var ErrGiven = errors.New("the mapping needs something else beside the file")

// Parameter is a text that a file lacks and the user gives, such as the name of the account.
type Parameter struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Optional says that Default counts if the user gives nothing. Otherwise the parameter is required.
	Optional bool   `json:"optional,omitempty"`
	Default  string `json:"default,omitempty"`
}

// Table is a table that the user gives as CSV, such as the prices of a contract. Its columns are those
// of Key, from, and value. A row holds from that time until the next row of the same key.
type Table struct {
	Name  string   `json:"name"`
	About string   `json:"about"`
	Key   []string `json:"key"`
	// SHA256 is that of the CSV, once it is given.
	SHA256 string `json:"sha256,omitempty"`

	rows map[string][]priced // by key, oldest first
}

type priced struct {
	from  time.Time
	value string
}

func (r *reader) parameters(n ast.Node) {
	for _, e := range r.entries(n, "parameters") {
		p := Parameter{Name: e.key}
		for _, k := range r.entries(e.value, e.key) {
			switch k.key {
			case "about":
				p.About = strings.TrimSpace(r.text(k.value, k.key))
			case "default":
				p.Optional, p.Default = true, r.text(k.value, k.key)
			default:
				r.bad(k.at, "a parameter has no key %s; %s", k.key, domain.Suggest(k.key, []string{"about", "default"}))
			}
		}
		if p.Name == "" || strings.ContainsAny(p.Name, " \t=") {
			r.bad(e.at, "a parameter must have a name without blanks")
		}
		r.m.Parameters = append(r.m.Parameters, p)
		r.m.parameters[p.Name] = p.Default
	}
}

func (r *reader) tables(n ast.Node) {
	for _, e := range r.entries(n, "tables") {
		t := &Table{Name: e.key}
		for _, k := range r.entries(e.value, e.key) {
			switch k.key {
			case "about":
				t.About = strings.TrimSpace(r.text(k.value, k.key))
			case "key":
				t.Key = r.texts(k.value, k.key)
			default:
				r.bad(k.at, "a table has no key %s; %s", k.key, domain.Suggest(k.key, []string{"about", "key"}))
			}
		}
		if t.Name == "" || strings.ContainsAny(t.Name, " \t=+:@?&") {
			r.bad(e.at, "a table must have a name without blanks")
		}
		if len(t.Key) == 0 {
			r.bad(e.value, "table %s needs key, the columns by which a row is found", t.Name)
		}
		r.m.Tables = append(r.m.Tables, t)
		r.m.tables[t.Name] = t
	}
}

// Set gives the mapping a parameter.
func (m *Mapping) Set(name, value string) error {
	if _, ok := m.parameters[name]; !ok {
		var known []string
		for _, p := range m.Parameters {
			known = append(known, p.Name)
		}
		return fmt.Errorf("%w: %s has no parameter %q; %s", ErrGiven, m, name, domain.Suggest(name, known))
	}
	m.parameters[name], m.given[name] = value, true
	return nil
}

// Given returns the parameters that the user gave, as name=value, sorted. They are part of what a file
// says.
func (m *Mapping) Given() []string {
	var all []string
	for name := range m.given {
		all = append(all, name+"="+m.parameters[name])
	}
	slices.Sort(all)
	return all
}

// complete refuses a mapping of which something is still to be given.
func (m *Mapping) complete() error {
	for _, p := range m.Parameters {
		if !p.Optional && m.parameters[p.Name] == "" {
			return fmt.Errorf("%w: %s needs the parameter %s (%s)", ErrGiven, m, p.Name, p.About)
		}
	}
	for _, t := range m.Tables {
		if t.rows == nil {
			return fmt.Errorf("%w: %s needs the table %s (%s), as CSV with the columns %s", ErrGiven, m, t.Name, t.About,
				strings.Join(t.columns(), ", "))
		}
	}
	return nil
}

func (t *Table) columns() []string { return append(slices.Clone(t.Key), "from", "value") }

// maxTableRows bounds the rows of a table. The price lists of suppliers have thousands.
const maxTableRows = 1 << 20

// Load reads a table of the mapping from CSV. Messages call the file name. Every fault names its line.
func (m *Mapping) Load(ctx context.Context, table, name string, file io.Reader) error {
	t := m.tables[table]
	if t == nil {
		var known []string
		for _, t := range m.Tables {
			known = append(known, t.Name)
		}
		return fmt.Errorf("%w: %s has no table %q; %s", ErrGiven, m, table, domain.Suggest(table, known))
	}
	sum := sha256.New()
	var text bytes.Buffer
	file = io.TeeReader(file, &text)
	rows, err := focus.OpenCSV(ctx, io.TeeReader(file, sum), tabular.Limits{}.WithDefaults())
	if err != nil {
		return fmt.Errorf("table %s: %s: %w", table, name, err)
	}
	at, found := map[string]int{}, map[string][]priced{}
	for n := -1; ; n++ {
		row, err := rows.Next()
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%w: table %s: %s:%d: %s", ErrGiven, table, name, row.Line, fmt.Sprintf(format, args...))
		}
		switch {
		case errors.Is(err, io.EOF) && n < 0:
			return fmt.Errorf("%w: table %s: %s is empty", ErrGiven, table, name)
		case errors.Is(err, io.EOF):
			if _, err := io.Copy(sum, file); err != nil {
				return err
			}
			t.rows, t.SHA256 = found, hex.EncodeToString(sum.Sum(nil))
			m.documents = append(m.documents, focus.Document{Name: name, Text: text.Bytes()})
			return nil
		case err != nil:
			return fmt.Errorf("table %s: %s:%d: %w", table, name, row.Line, err)
		case row.Broken != nil:
			return bad("%s", row.Broken.Reason)
		case n == maxTableRows:
			return bad("the table has more than %d rows", maxTableRows)
		case n < 0:
			for i, column := range row.Fields {
				if _, twice := at[fold(column)]; twice {
					return bad("column %s is in the header twice", column)
				}
				at[fold(column)] = i
			}
			for _, column := range t.columns() {
				if _, ok := at[fold(column)]; !ok {
					return bad("column %s is missing; the columns are %s", column, strings.Join(t.columns(), ", "))
				}
			}
			if len(at) != len(t.columns()) {
				return bad("the columns are %s, and no others", strings.Join(t.columns(), ", "))
			}
			continue
		case len(row.Fields) != len(at):
			return bad("has %d fields where the header has %d", len(row.Fields), len(at))
		}
		cell := func(column string) string { return strings.Clone(strings.TrimSpace(row.Fields[at[fold(column)]])) }
		var parts []string
		for _, column := range t.Key {
			parts = append(parts, cell(column))
		}
		from, fault := (&rule{kind: "time", zone: time.UTC}).parse(cell("from"))
		if fault != nil {
			return bad("from %q %s", fault.Value, fault.Reason)
		}
		p := priced{from: from, value: cell("value")}
		if p.value == "" {
			return bad("value is empty; leave out the row")
		}
		key := keyOf(parts)
		i, twice := slices.BinarySearchFunc(found[key], p, func(a, b priced) int { return a.from.Compare(b.from) })
		if twice {
			return bad("the key %s has two rows from %s", strings.Join(parts, ", "), cell("from"))
		}
		found[key] = slices.Insert(found[key], i, p)
	}
}

// keyOf joins the parts of a key so that two keys are equal only if their parts are.
func keyOf(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%d:%s", len(p), p)
	}
	return b.String()
}

// lookup finds the row of a table. A key without a row at that time is a fault: no price is no price
// of 0.
func (ru *rule) lookup(w *row) (string, *tabular.Fault) {
	at, fault := ru.at.eval(w)
	if fault != nil {
		return "", fault
	}
	when, fault := (&rule{kind: "time", zone: time.UTC}).parse(at)
	if fault != nil {
		return "", fault
	}
	var parts []string
	for _, of := range ru.of {
		v, fault := of.eval(w)
		if fault != nil {
			return "", fault
		}
		parts = append(parts, v)
	}
	rows := w.m.tables[ru.text].rows[keyOf(parts)]
	i, exact := slices.BinarySearchFunc(rows, when, func(p priced, t time.Time) int { return p.from.Compare(t) })
	if !exact {
		i--
	}
	if i < 0 {
		return "", &tabular.Fault{Value: strings.Join(parts, ", "), Reason: fmt.Sprintf("has no row in table %s at %s", ru.text, at)}
	}
	return rows[i].value, nil
}
