package xlsx

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/xuri/excelize/v2"

	"quartermaster/adapters/tabular"
)

// Table reads the rows of a spreadsheet that a [Writer] wrote, maybe saved again by a spreadsheet program. It is a
// [tabular.Table]. The sheets are read one after the other; columns with exact texts are not shown.
type Table struct {
	file    *excelize.File
	columns []tabular.Column // of the sheets
	sheet   int
	rows    *excelize.Rows
	line    int
	begun   bool
	fields  []string
}

// unzipped bounds the bytes of a spreadsheet without compression; more than 16 MiB of a sheet are in a temporary file.
const unzipped = 64 << 30

// Open opens a spreadsheet. The error wraps [tabular.ErrDamaged] if it cannot be read.
func Open(path string, columns []tabular.Column) (*Table, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	f, err := excelize.OpenFile(path, excelize.Options{RawCellValue: true, UnzipSizeLimit: unzipped, UnzipXMLSizeLimit: 16 << 20})
	if err != nil {
		return nil, damaged(err)
	}
	return &Table{file: f, columns: widened(columns)}, nil
}

func damaged(err error) error { return fmt.Errorf("%w: read XLSX: %w", tabular.ErrDamaged, err) }

// Close removes temporary files.
func (t *Table) Close() error {
	if t.rows != nil {
		if err := t.rows.Close(); err != nil {
			return errors.Join(err, t.file.Close())
		}
	}
	return t.file.Close()
}

// Notes implements [tabular.Table].
func (t *Table) Notes() []tabular.Note { return nil }

// Next implements [tabular.Table]. The line of a row counts the rows of all sheets, without their headers.
func (t *Table) Next() (tabular.Row, error) {
	for {
		if t.rows == nil {
			t.sheet++
			rows, err := t.file.Rows(sheetName(t.sheet))
			if errors.As(err, &excelize.ErrSheetNotExist{}) && t.sheet > 1 {
				return tabular.Row{Line: t.line + 1}, io.EOF
			}
			if err != nil {
				return tabular.Row{}, damaged(err)
			}
			t.rows = rows
			header, err := t.read()
			if errors.Is(err, io.EOF) {
				return tabular.Row{}, damaged(errors.New("a sheet without a header"))
			}
			if err != nil {
				return tabular.Row{}, err
			}
			names := t.shown(header, func(name, _ string, _ tabular.Kind) string { return name })
			if !t.begun {
				t.begun, t.line = true, 1
				return tabular.Row{Line: 1, Fields: names}, nil
			}
		}
		cells, err := t.read()
		if errors.Is(err, io.EOF) {
			if err := t.rows.Close(); err != nil {
				return tabular.Row{}, damaged(err)
			}
			t.rows = nil
			continue
		}
		if err != nil {
			return tabular.Row{}, err
		}
		t.line++
		return tabular.Row{Line: t.line, Fields: t.shown(cells, valueOf)}, nil
	}
}

// read reads a row of the sheet.
func (t *Table) read() ([]string, error) {
	if !t.rows.Next() {
		if err := t.rows.Error(); err != nil {
			return nil, damaged(err)
		}
		return nil, io.EOF
	}
	cells, err := t.rows.Columns()
	if err != nil {
		return nil, damaged(err)
	}
	return cells, nil
}

// shown returns the values of a row without columns of exact texts. A row may lack empty cells at its end, and has more
// fields than there are columns if it has more cells.
func (t *Table) shown(cells []string, of func(cell, exact string, kind tabular.Kind) string) []string {
	at := func(i int) string {
		if i < len(cells) {
			return cells[i]
		}
		return ""
	}
	t.fields = t.fields[:0]
	for i := 0; i < len(t.columns); i++ {
		kind, exact := t.columns[i].Kind, ""
		cell := at(i)
		if kind == tabular.Decimals {
			i++
			exact = at(i)
		}
		t.fields = append(t.fields, of(cell, exact, kind))
	}
	for i := len(t.columns); i < len(cells); i++ {
		t.fields = append(t.fields, cells[i])
	}
	return t.fields
}

// valueOf returns the text of a value. A number whose exact text is beside it must be the number of that text.
func valueOf(cell, exact string, kind tabular.Kind) string {
	switch kind {
	case tabular.Decimals, tabular.Wholes:
		n, err := strconv.ParseFloat(cell, 64)
		if kind == tabular.Wholes && digits(cell) > exactDigits || err != nil {
			return tabular.Plain(cell)
		}
		if exact = tabular.Plain(exact); exact != "" {
			if want, err := strconv.ParseFloat(exact, 64); err != nil || shortened(want) != shortened(n) {
				return cell + " beside " + exact
			}
			return exact
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	case tabular.Flags:
		switch strings.ToLower(cell) {
		case "1", "true":
			return "true"
		case "0", "false":
			return "false"
		}
		return cell
	}
	return tabular.Plain(cell)
}
