package tabular

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
)

// Table is a file of rows, in any format. Its first row is the header.
type Table interface {
	// Next returns the next row, or io.EOF after the last. After a row with Broken set, it
	// continues with the row after that. Any other error ends the file.
	Next() (Row, error)
	// Notes returns what concerns whole columns. It is complete once the header was read.
	Notes() []Note
}

// Note is something to know about a column.
type Note struct{ Column, Text string }

// Row is one row of a table.
type Row struct {
	Line   int      // where it starts, from 1; the header is line 1 of a format without lines
	Fields []string // valid until the next call of Next
	// Changed are the columns, in order, whose fields may differ from those of the row that the call before
	// returned: all others are equal. It is nil if that is not known. It is valid until the next call of Next.
	Changed []int
	Open    bool   // the row has no line end: it is the last in the file
	Broken  *Fault // why the row could not be read; nil for a good row
}

// Fault is why a row, or a value in it, cannot be read.
type Fault struct {
	Field, Value, Reason string
}

// CSV reads CSV row by row. [Frames] finds the end of each row, which bounds its memory: on its own,
// encoding/csv would read a quoted field up to the closing quote, however far away. A plain row is
// split here, which takes half the time: a field written as in the row before is the same string, and
// most fields of a bill are. encoding/csv gets the others, and says what is wrong with a row.
type CSV struct {
	frames  *Frames
	fields  []string
	written []string // each field of the row before, as it is in the file
	changed []change // the fields of a row that differ from it
	columns []int    // of those
	whole   bool     // the row before was split here
	text    []byte   // of the fields that differ
	row     bytes.Reader
	csv     *csv.Reader
}

// change is a field that differs from that of the row before: what is written and what that means, in text.
type change struct {
	column         int
	from, to       int
	valueFrom, end int
}

// maxRemembered bounds the bytes of a row that is compared with the next one: a field that repeats keeps the
// text of the row that it came from.
const maxRemembered = 8 << 10

// NewCSV reads rows of at most the given number of bytes.
func NewCSV(r io.Reader, most int) *CSV {
	t := &CSV{frames: NewFrames(r, most)}
	t.resetCSV()
	return t
}

// Notes returns nil: CSV says nothing of its columns.
func (t *CSV) Notes() []Note { return nil }

// resetCSV discards the state of encoding/csv.
func (t *CSV) resetCSV() {
	t.row.Reset(nil)
	t.csv = csv.NewReader(&t.row)
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
}

// Next returns the next nonblank row. Its errors are those of [Frames.Next].
func (t *CSV) Next() (Row, error) {
	known := t.whole
	t.whole = false
	for {
		frame, err := t.frames.Next()
		rec := Row{Line: frame.Line}
		if err != nil {
			return rec, err
		}
		if frame.Broken != "" {
			rec.Broken = &Fault{Value: string(frame.Raw), Reason: frame.Broken}
			return rec, nil
		}
		rec.Open = frame.Raw[len(frame.Raw)-1] != '\n'
		if len(bytes.TrimRight(frame.Raw, "\r\n")) == 0 {
			continue
		}
		if rec.Fields = t.split(frame.Raw); rec.Fields != nil {
			if t.whole = true; known {
				rec.Changed = t.columns
			}
			return rec, nil
		}
		t.row.Reset(frame.Raw)
		if rec.Fields, err = t.csv.Read(); err != nil {
			rec.Broken = broken(frame.Raw, err)
			t.resetCSV()
			t.frames.FirstLineOnly()
		}
		return rec, nil
	}
}

// split returns the fields of a row as encoding/csv does, or nil if the row needs a closer look.
func (t *CSV) split(raw []byte) []string {
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte{'\n'}), []byte{'\r'})
	t.text, t.changed = t.text[:0], t.changed[:0]
	long, columns := len(raw) > maxRemembered, 0
	for {
		if columns == len(t.written) {
			t.written, t.fields = append(t.written, "\n"), append(t.fields, "") // no field begins with a line end
		}
		n := len(t.written[columns])
		if n > len(raw) || string(raw[:n]) != t.written[columns] || n < len(raw) && raw[n] != ',' {
			if n = t.change(columns, raw); n < 0 {
				return nil
			}
		}
		columns++
		if n == len(raw) {
			break
		}
		raw = raw[n+1:]
	}
	text := string(t.text)
	if t.columns == nil {
		t.columns = make([]int, 0, columns)
	}
	t.columns = t.columns[:0]
	for _, c := range t.changed {
		t.columns = append(t.columns, c.column)
		t.written[c.column], t.fields[c.column] = text[c.from:c.to], text[c.valueFrom:c.end]
	}
	t.written, t.fields = t.written[:columns], t.fields[:columns]
	fields := t.fields
	if long {
		t.written, t.fields = nil, nil
	}
	return fields
}

// change notes that a column has the field with which raw begins, and returns its length as written. It returns
// -1 if quotes are anywhere but around the field or doubled within it, if text follows the closing quote, or if a
// quoted field has a carriage return.
func (t *CSV) change(column int, raw []byte) int {
	c := change{column: column, from: len(t.text)}
	if len(raw) == 0 || raw[0] != '"' {
		n := bytes.IndexByte(raw, ',')
		if n < 0 {
			n = len(raw)
		}
		if bytes.IndexByte(raw[:n], '"') >= 0 {
			return -1
		}
		t.text = append(t.text, raw[:n]...)
		c.to = len(t.text)
		c.valueFrom, c.end = c.from, c.to
		t.changed = append(t.changed, c)
		return n
	}
	n, doubled := 1, false
	for {
		i := bytes.IndexByte(raw[n:], '"')
		if i < 0 {
			return -1
		}
		if n += i + 1; n == len(raw) || raw[n] != '"' {
			break
		}
		n, doubled = n+1, true
	}
	if n < len(raw) && raw[n] != ',' || bytes.IndexByte(raw[:n], '\r') >= 0 {
		return -1
	}
	t.text = append(t.text, raw[:n]...)
	c.to = len(t.text)
	c.valueFrom, c.end = c.from+1, c.to-1
	if doubled {
		c.valueFrom = c.to
		for rest := raw[1 : n-1]; ; {
			i := bytes.IndexByte(rest, '"')
			if i < 0 {
				t.text = append(t.text, rest...)
				break
			}
			t.text, rest = append(t.text, rest[:i+1]...), rest[i+2:]
		}
		c.end = len(t.text)
	}
	t.changed = append(t.changed, c)
	return n
}

// broken returns why encoding/csv could not split a row.
func broken(raw []byte, err error) *Fault {
	var at *csv.ParseError
	r := &Fault{Reason: err.Error()}
	if !errors.As(err, &at) {
		return r
	}
	lines := bytes.Split(raw, []byte{'\n'})
	if n := at.Line - at.StartLine; n >= 0 && n < len(lines) {
		from := max(0, min(at.Column-20, len(lines[n])))
		r.Value = string(lines[n][from:min(len(lines[n]), from+80)])
	}
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		r.Reason = "has a quote in the middle: a field with quotes must be quoted whole"
	case errors.Is(err, csv.ErrQuote):
		r.Reason = "has an unclosed quote, or text after a closing quote"
	}
	return r
}
