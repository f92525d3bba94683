package tabular

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// csvWriter writes what encoding/csv writes. It does not look at a value again that is that of the row before.
type csvWriter struct {
	w       io.Writer
	columns []Column
	last    []string // the value of each column in the row before
	cells   [][]byte // how that is written
	buf     bytes.Buffer
	rows    int
	err     error
}

// csvBuffer is how much is written at once.
const csvBuffer = 1 << 16

// NewCSVWriter returns a Writer of CSV (RFC 4180, lines end with LF), with the names of columns as header. Texts are
// those of [Safe], because spreadsheet programs take cells of CSV for formulas; other values are written as they are.
func NewCSVWriter(w io.Writer, columns []Column) Writer {
	c := &csvWriter{w: w, columns: columns, last: make([]string, len(columns)), cells: make([][]byte, len(columns))}
	for i := range columns {
		if i > 0 {
			c.buf.WriteByte(',')
		}
		c.buf.Write(quoted(nil, Safe(columns[i].Name)))
	}
	c.buf.WriteByte('\n')
	return c
}

func (c *csvWriter) Write(row []string) error {
	if c.err != nil {
		return c.err
	}
	c.rows++
	for i, s := range row {
		if i > 0 {
			c.buf.WriteByte(',')
		}
		if s != c.last[i] {
			c.last[i] = s
			if c.columns[i].Kind == Texts {
				if !utf8.ValidString(s) {
					return c.fail(&CellError{c.rows, c.columns[i].Name, "a text that is not UTF-8"})
				}
				c.cells[i] = quoted(c.cells[i][:0], Safe(s))
			} else {
				c.cells[i] = append(c.cells[i][:0], s...)
			}
		}
		c.buf.Write(c.cells[i])
	}
	c.buf.WriteByte('\n')
	if c.buf.Len() >= csvBuffer {
		c.flush()
	}
	return c.err
}

func (c *csvWriter) fail(err error) error {
	c.err = err
	return err
}

func (c *csvWriter) flush() {
	if _, err := c.buf.WriteTo(c.w); err != nil && c.err == nil {
		c.err = err
	}
}

func (c *csvWriter) Close() error {
	c.flush()
	return c.err
}

// quoted appends a field as encoding/csv writes it.
func quoted(b []byte, s string) []byte {
	first, _ := utf8.DecodeRuneInString(s)
	if !strings.ContainsAny(s, ",\"\r\n") && !unicode.IsSpace(first) && s != `\.` {
		return append(b, s...)
	}
	b = append(b, '"')
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return append(append(b, s...), '"')
		}
		b = append(append(b, s[:i]...), `""`...)
		s = s[i+1:]
	}
}
