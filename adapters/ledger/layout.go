// Package ledger writes journals as general ledger systems import them. A layout is a file in YAML that says which
// columns a file has and what is in them. Users write theirs as those that are shipped.
//
// No cell can be taken for a formula: texts are those of [tabular.Safe]. Amounts and dates are written as they are.
package ledger

import (
	"cmp"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// ErrLayout is wrapped by every fault of a layout. The user corrects the file.
var ErrLayout = errors.New("the layout is wrong")

// Layout says how a journal is written.
type Layout struct {
	Name    string `yaml:"layout"`
	Version int    `yaml:"version"`
	About   string `yaml:"about"`
	Source  string `yaml:"source"` // where the columns are documented
	// Date is the form of dates, of YYYY, MM and DD.
	Date string `yaml:"date"`
	// Decimal is the decimal separator, and Delimiter separates columns.
	Decimal   string   `yaml:"decimal"`
	Delimiter string   `yaml:"delimiter"`
	NoHeader  bool     `yaml:"no_header"`
	Columns   []Column `yaml:"columns"`
}

// Column is a column of the file. Value is text with fields in braces, for example "{issuer} {invoice}".
type Column struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// String returns NAME@VERSION.
func (l *Layout) String() string { return fmt.Sprintf("%s@%d", l.Name, l.Version) }

//go:embed layouts/*.yaml
var shipped embed.FS

// Names returns the names of the layouts that are part of the program.
func Names() []string {
	files, err := fs.Glob(shipped, "layouts/*.yaml")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "layouts/"), ".yaml")
	}
	return files
}

// Named returns a layout that is part of the program. It reports false if there is none of that name.
func Named(name string) (*Layout, bool) {
	text, err := shipped.ReadFile("layouts/" + name + ".yaml")
	if err != nil {
		return nil, false
	}
	l, err := Parse(name+".yaml", text)
	if err != nil {
		panic(err) // a test parses all of them
	}
	return l, true
}

// writing is how cells are written.
type writing struct{ *Layout }

// fields are what columns may have, by name.
var fields = map[string]func(*writing, *costs.JournalEntry) string{
	"document":    func(_ *writing, e *costs.JournalEntry) string { return e.Document },
	"line":        func(_ *writing, e *costs.JournalEntry) string { return strconv.Itoa(e.Line) },
	"external_id": func(_ *writing, e *costs.JournalEntry) string { return e.ID },
	"entity":      func(_ *writing, e *costs.JournalEntry) string { return e.Entity },
	"date":        func(w *writing, e *costs.JournalEntry) string { return w.date(e.Date) },
	"account":     func(_ *writing, e *costs.JournalEntry) string { return e.Account },
	"cost_center": func(_ *writing, e *costs.JournalEntry) string { return e.CostCenter },
	"debit":       func(w *writing, e *costs.JournalEntry) string { return w.side(e.Debit) },
	"credit":      func(w *writing, e *costs.JournalEntry) string { return w.side(e.Credit) },
	"amount":      func(w *writing, e *costs.JournalEntry) string { return w.number(e.Amount()) },
	"currency":    func(_ *writing, e *costs.JournalEntry) string { return e.Currency },
	"billed_amount": func(w *writing, e *costs.JournalEntry) string {
		if e.Billed == nil {
			return w.number(e.Amount())
		}
		return w.number(*e.Billed)
	},
	"billed_currency": func(_ *writing, e *costs.JournalEntry) string { return cmp.Or(e.BilledCurrency, e.Currency) },
	"description":     func(_ *writing, e *costs.JournalEntry) string { return e.Text },
	"issuer":          func(_ *writing, e *costs.JournalEntry) string { return e.Issuer },
	"invoice":         func(_ *writing, e *costs.JournalEntry) string { return e.Invoice },
	"statement":       func(_ *writing, e *costs.JournalEntry) string { return e.Statement },
	"counterparty":    func(_ *writing, e *costs.JournalEntry) string { return e.Counterparty },
	"corrects":        func(_ *writing, e *costs.JournalEntry) string { return e.Corrects },
	"reverses":        func(_ *writing, e *costs.JournalEntry) string { return e.Reverses },
	reversalDate: func(w *writing, e *costs.JournalEntry) string {
		if e.ReversalDate.IsZero() {
			return ""
		}
		return w.date(e.ReversalDate)
	},
}

// reversalDate is the field by which a ledger system reverses accruals by itself.
const reversalDate = "reversal_date"

// values are the fields that are not texts. They are safe, and stand alone in a column.
var values = []string{"{amount}", "{billed_amount}", "{credit}", "{date}", "{debit}", "{line}", "{" + reversalDate + "}"}

func (w *writing) date(t domain.Instant) string {
	at := t.Time()
	return strings.NewReplacer("YYYY", at.Format("2006"), "MM", at.Format("01"), "DD", at.Format("02")).Replace(w.Date)
}

func (w *writing) number(m attribution.Minor) string {
	return strings.Replace(m.String(), ".", w.Decimal, 1)
}

// side is an amount in a column of its own, which is empty for zero.
func (w *writing) side(m attribution.Minor) string {
	if m.Amount.IsZero() {
		return ""
	}
	return w.number(m)
}

var field = regexp.MustCompile(`\{[^{}]*\}`)

// Entries returns the entries that a layout writes. A ledger system that is told when to reverse an accrual does it by
// itself, so a layout with {reversal_date} leaves out the entries that do it.
func (l *Layout) Entries(entries []costs.JournalEntry) []costs.JournalEntry {
	for i := range l.Columns {
		if l.Columns[i].Value == "{"+reversalDate+"}" {
			return slices.DeleteFunc(slices.Clone(entries), func(e costs.JournalEntry) bool { return e.Reverses != "" })
		}
	}
	return entries
}

// Write writes the entries of a journal that the layout has.
func Write(out io.Writer, l *Layout, entries []costs.JournalEntry) error {
	w, c := &writing{Layout: l}, csv.NewWriter(out)
	c.Comma = rune(l.Delimiter[0])
	row := make([]string, len(l.Columns))
	if !l.NoHeader {
		for i := range l.Columns {
			row[i] = tabular.Safe(l.Columns[i].Name)
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	entries = l.Entries(entries)
	for i := range entries {
		for j := range l.Columns {
			value := l.Columns[j].Value
			row[j] = field.ReplaceAllStringFunc(value, func(f string) string { return fields[f[1:len(f)-1]](w, &entries[i]) })
			if !slices.Contains(values, value) {
				row[j] = tabular.Safe(row[j])
			}
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// maxFile bounds a layout, in bytes.
const maxFile = 1 << 16

// Parse reads a layout. Messages call the file name, and have file:line:column. The error joins all faults, and wraps
// [ErrLayout].
func Parse(file string, text []byte) (*Layout, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%w: %s: more than %d bytes", ErrLayout, file, maxFile)
	}
	tree, err := parser.ParseBytes(text, 0)
	l := &Layout{}
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, l, yaml.Strict())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrLayout, file, yaml.FormatError(err, false, false))
	}
	var faults []error
	bad := func(path, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s: %s", at(file, tree, path), path, fmt.Sprintf(format, args...)))
	}
	if l.Name == "" {
		bad("layout", "is missing")
	}
	if l.Version < 1 {
		bad("version", "want a whole number from 1")
	}
	if rest := strings.NewReplacer("YYYY", "", "MM", "", "DD", "").Replace(l.Date); !strings.Contains(l.Date, "YYYY") ||
		!strings.Contains(l.Date, "MM") || !strings.Contains(l.Date, "DD") || strings.Trim(rest, "-/. ") != "" {
		bad("date", "%q is not made of YYYY, MM and DD, for example YYYY-MM-DD", l.Date)
	}
	if l.Decimal != "." && l.Decimal != "," {
		bad("decimal", "%q: want . or ,", l.Decimal)
	}
	if !slices.Contains([]string{",", ";", "\t", "|"}, l.Delimiter) {
		bad("delimiter", "%q: want a comma, a semicolon, a bar or a tab", l.Delimiter)
	}
	if len(l.Columns) == 0 {
		bad("columns", "is empty, want at least one")
	}
	names := map[string]bool{}
	has := map[string]bool{}
	for i, c := range l.Columns {
		path := fmt.Sprintf("columns[%d]", i)
		if c.Name == "" || names[c.Name] {
			bad(path+".name", "%q is empty or there already", c.Name)
		}
		names[c.Name] = true
		for _, f := range field.FindAllString(c.Value, -1) {
			name := f[1 : len(f)-1]
			if has[name] = true; fields[name] == nil {
				bad(path+".value", "{%s} is not a field; %s", name, domain.Suggest(name, slices.Sorted(maps.Keys(fields))))
			}
			if slices.Contains(values, f) && c.Value != f {
				bad(path+".value", "%s is an amount, a number or a date, and stands alone", f)
			}
		}
		if rest := field.ReplaceAllString(c.Value, ""); strings.ContainsAny(rest, "{}") {
			bad(path+".value", "%q has a brace without its other", c.Value)
		}
	}
	if len(l.Columns) > 0 && !has["amount"] && (!has["debit"] || !has["credit"]) {
		bad("columns", "no column has {amount}, nor are there both {debit} and {credit}")
	}
	for _, name := range []string{"date", "account", "currency"} {
		if len(l.Columns) > 0 && !has[name] {
			bad("columns", "no column has {%s}", name)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrLayout, errors.Join(faults...))
	}
	return l, nil
}

// at is where a value is in a file.
func at(file string, tree *ast.File, path string) string {
	p, err := yaml.PathString("$." + path)
	if err != nil {
		return file
	}
	node, err := p.FilterFile(tree)
	if err != nil || node == nil || node.GetToken() == nil {
		return file + ":1:1"
	}
	pos := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", file, pos.Line, pos.Column)
}
