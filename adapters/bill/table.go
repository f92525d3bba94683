package bill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
)

// Column is the column that names the mapping of a line.
const Column = "x_Mapping"

// Open opens a file of the supplier, which open opens as a table, as a table in the columns of FOCUS:
// the fields of the mapping, [Column] and the columns that it keeps. The error wraps
// [focus.ErrColumns] if the file lacks a column that the mapping requires.
func (m *Mapping) Open(
	ctx context.Context, file io.Reader, limits tabular.Limits,
	open func(context.Context, io.Reader, tabular.Limits) (tabular.Table, error),
) (tabular.Table, error) {
	if err := m.complete(); err != nil {
		return nil, err
	}
	of, err := m.open(ctx, file, limits, open)
	if err != nil {
		return nil, err
	}
	header, err := of.Next()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the file is empty", focus.ErrColumns)
	}
	if err != nil {
		return nil, err
	}
	if header.Broken != nil {
		return nil, fmt.Errorf("%w: the header: %s", focus.ErrColumns, header.Broken.Reason)
	}
	t := &table{m: m, of: of, at: map[string]int{}, line: header.Line}
	for i, name := range header.Fields {
		if _, twice := t.at[fold(name)]; twice {
			return nil, fmt.Errorf("%w: column %q is in the header twice", focus.ErrColumns, tabular.Clip(name))
		}
		t.at[fold(name)] = i
	}
	t.columns = len(header.Fields)
	var missing []string
	for _, name := range m.Required {
		if _, ok := t.at[fold(name)]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%w: mapping %s needs the columns %s; found %s", focus.ErrColumns, m, strings.Join(missing, ", "),
			tabular.Clip(strings.Join(header.Fields, ", ")))
	}
	t.header = append(append(t.header, m.Fields...), Column)
	for _, name := range m.Keep {
		t.header = append(t.header, "x_"+strings.ReplaceAll(name, " ", ""))
	}
	t.row = row{m: m, done: map[string]string{}, cell: t.cell}
	return t, nil
}

// table is a table in the columns of FOCUS.
type table struct {
	m       *Mapping
	of      tabular.Table
	at      map[string]int // columns of the supplier, by folded name
	columns int
	line    int
	header  []string
	begun   bool
	fields  []string // of the supplier's row
	row     row
	out     []string
}

func (t *table) Notes() []tabular.Note { return t.of.Notes() }

func (t *table) cell(column string) string {
	i, ok := t.at[column]
	if !ok {
		return "" // an optional column
	}
	return strings.TrimSpace(t.fields[i])
}

// Next returns the next row: see [tabular.Table]. A field that cannot be computed makes the row
// broken.
func (t *table) Next() (tabular.Row, error) {
	if !t.begun {
		t.begun = true
		return tabular.Row{Line: t.line, Fields: t.header}, nil
	}
	row, err := t.of.Next()
	if err != nil || row.Broken != nil {
		return row, err
	}
	if len(row.Fields) != t.columns {
		row.Broken = &tabular.Fault{Reason: fmt.Sprintf("has %d fields where the header has %d", len(row.Fields), t.columns)}
		return row, nil
	}
	t.fields, t.out = row.Fields, t.out[:0]
	clear(t.row.done)
	t.row.made = 0
	for _, name := range t.m.Fields {
		v, fault := t.m.rules[name].eval(&t.row)
		if fault != nil {
			fault.Field = name
			row.Broken = fault
			return row, nil
		}
		t.out = append(t.out, v)
	}
	t.out = append(t.out, t.m.String())
	for _, name := range t.m.Keep {
		t.out = append(t.out, t.cell(fold(name)))
	}
	row.Fields, row.Changed = t.out, nil
	return row, nil
}
