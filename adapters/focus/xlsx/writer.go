package xlsx

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/xuri/excelize/v2"

	"quartermaster/adapters/tabular"
)

// Limits of a spreadsheet.
const (
	sheetRows    = excelize.TotalRows
	sheetColumns = excelize.MaxColumns
	cellUnits    = excelize.TotalCellChars // of UTF-16
	exactDigits  = 15
)

// exactSuffix ends the names of columns with the exact texts of numbers.
const exactSuffix = "_exact"

// textFormat is the number of the format "@", in which what is typed stays text.
const textFormat = 49

// Writer writes a spreadsheet. It is a [tabular.Writer].
type Writer struct {
	out     io.Writer
	file    *excelize.File
	sheet   *excelize.StreamWriter
	sheets  int
	limit   int // of rows in a sheet
	columns []tabular.Column
	style   int // of texts
	cells   []any
	rows    int // so far
	filled  int // of the sheet
	err     error
}

// NewWriter returns a Writer to w. It writes everything at Close.
func NewWriter(w io.Writer, columns []tabular.Column) (*Writer, error) {
	return newWriter(w, columns, sheetRows)
}

func newWriter(w io.Writer, columns []tabular.Column, limit int) (*Writer, error) {
	x := &Writer{out: w, file: excelize.NewFile(), columns: columns, limit: limit}
	if n := len(widened(columns)); n > sheetColumns {
		return nil, fmt.Errorf("%d columns: a sheet of XLSX has at most %d", n, sheetColumns)
	}
	var err error
	if x.style, err = x.file.NewStyle(&excelize.Style{NumFmt: textFormat}); err != nil {
		return nil, err
	}
	return x, x.begin()
}

// widened are the columns of a sheet: a decimal has its exact text beside it.
func widened(columns []tabular.Column) []tabular.Column {
	var all []tabular.Column
	for _, c := range columns {
		if all = append(all, c); c.Kind == tabular.Decimals {
			all = append(all, tabular.Column{Name: c.Name + exactSuffix})
		}
	}
	return all
}

// sheetName is the name of the n-th sheet.
func sheetName(n int) string {
	if n == 1 {
		return "rows"
	}
	return "rows " + strconv.Itoa(n)
}

// begin begins another sheet.
func (x *Writer) begin() error {
	x.sheets++
	name := sheetName(x.sheets)
	if x.sheets == 1 {
		if err := x.file.SetSheetName(x.file.GetSheetName(0), name); err != nil {
			return err
		}
	} else if _, err := x.file.NewSheet(name); err != nil {
		return err
	}
	// A new sheet states that it has one cell. Rows are written before their number is known, so nothing is stated: some
	// readers take a range for the truth.
	err := x.file.SetSheetDimension(name, "")
	if err != nil {
		return err
	}
	if x.sheet, err = x.file.NewStreamWriter(name); err != nil {
		return err
	}
	x.filled, x.cells = 0, x.cells[:0]
	for _, c := range widened(x.columns) {
		x.cells = append(x.cells, x.text(c.Name))
	}
	return x.put()
}

// put writes a row of the sheet.
func (x *Writer) put() error {
	x.filled++
	return x.sheet.SetRow("A"+strconv.Itoa(x.filled), x.cells)
}

func (x *Writer) text(s string) any { return excelize.Cell{StyleID: x.style, Value: tabular.Safe(s)} }

// digitsOf is a number as text. It needs no apostrophe: a minus sign before digits is no formula.
func (x *Writer) digitsOf(s string) any { return excelize.Cell{StyleID: x.style, Value: s} }

// Write implements [tabular.Writer].
func (x *Writer) Write(row []string) error {
	if x.err != nil {
		return x.err
	}
	if x.filled == x.limit {
		if x.err = errors.Join(x.sheet.Flush(), x.begin()); x.err != nil {
			return x.err
		}
	}
	x.rows++
	x.cells = x.cells[:0]
	for i := range x.columns {
		if why := x.cell(x.columns[i].Kind, row[i]); why != "" {
			x.err = &tabular.CellError{Row: x.rows, Column: x.columns[i].Name, Reason: why}
			return x.err
		}
	}
	x.err = x.put()
	return x.err
}

// cell adds the cells of a value. It returns why it cannot.
func (x *Writer) cell(kind tabular.Kind, s string) (why string) {
	if s == "" {
		x.cells = append(x.cells, nil)
		if kind == tabular.Decimals {
			x.cells = append(x.cells, nil)
		}
		return ""
	}
	switch kind {
	case tabular.Decimals, tabular.Wholes:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || strings.Trim(s, "-.0123456789") != "" {
			return fmt.Sprintf("%q is not a number", tabular.Clip(s))
		}
		exact := digits(s) <= exactDigits
		n = shortened(n)
		switch {
		case kind == tabular.Decimals && exact:
			x.cells = append(x.cells, n, nil)
		case kind == tabular.Decimals:
			x.cells = append(x.cells, n, x.digitsOf(s))
		case exact:
			x.cells = append(x.cells, n)
		default:
			x.cells = append(x.cells, x.digitsOf(s))
		}
	case tabular.Flags:
		if s != "true" && s != "false" {
			return fmt.Sprintf("%q is not a flag", tabular.Clip(s))
		}
		x.cells = append(x.cells, s == "true")
	default:
		if !utf8.ValidString(s) {
			return "a text that is not UTF-8"
		}
		if strings.ContainsAny(s, "\ufffe\uffff") {
			return "a text with U+FFFE or U+FFFF, which XML has no form for"
		}
		if safe := tabular.Safe(s); len(safe) > cellUnits {
			if n := len(utf16.Encode([]rune(safe))); n > cellUnits {
				return fmt.Sprintf("a text of %d characters, and a cell of XLSX has at most %d: export CSV or Parquet, which have no such limit", n, cellUnits)
			}
		}
		x.cells = append(x.cells, x.text(s))
	}
	return ""
}

// shortened rounds a number to the digits that a spreadsheet program shows.
func shortened(n float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(n, 'g', exactDigits, 64), 64) // it is a number
	return short
}

// digits returns the number of significant digits of a plain decimal.
func digits(s string) int {
	s = strings.TrimLeft(s, "-0.")
	if strings.Contains(s, ".") {
		return len(strings.TrimRight(s, "0.")) - strings.Count(strings.TrimRight(s, "0."), ".")
	}
	return len(s)
}

// Close implements [tabular.Writer].
func (x *Writer) Close() error {
	if x.err == nil {
		x.err = x.sheet.Flush()
	}
	if x.err == nil {
		x.err = x.file.Write(x.out)
	}
	return errors.Join(x.err, x.file.Close())
}
