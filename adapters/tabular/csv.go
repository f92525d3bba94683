package tabular

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strings"
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
	Open   bool     // the row has no line end: it is the last in the file
	Broken *Fault   // why the row could not be read; nil for a good row
}

// Fault is why a row, or a value in it, cannot be read.
type Fault struct {
	Field, Value, Reason string
}

// CSV reads CSV row by row. [Frames] finds the end of each row, which bounds its memory: on its own,
// encoding/csv would read a quoted field up to the closing quote, however far away. A plain row is
// split here, which takes half the time. encoding/csv gets the others, and says what is wrong with a
// row.
type CSV struct {
	frames *Frames
	fields []string
	text   []byte // of the fields of a row with quotes, without them
	ends   []int  // of each field in text
	row    bytes.Reader
	csv    *csv.Reader
}

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
	t.fields = t.fields[:0]
	if bytes.IndexByte(raw, '"') < 0 {
		for row := string(raw); ; {
			i := strings.IndexByte(row, ',')
			if i < 0 {
				t.fields = append(t.fields, row)
				return t.fields
			}
			t.fields = append(t.fields, row[:i])
			row = row[i+1:]
		}
	}
	if !t.unquote(raw) {
		return nil
	}
	row, from := string(t.text), 0
	for _, to := range t.ends {
		t.fields = append(t.fields, row[from:to])
		from = to
	}
	return t.fields
}

// unquote sets text and ends to the fields of a row. It reports false if quotes are anywhere but
// around a field or doubled within it, or if a quoted field has a carriage return.
func (t *CSV) unquote(raw []byte) bool {
	t.text, t.ends = t.text[:0], t.ends[:0]
	for {
		quoted := len(raw) > 0 && raw[0] == '"'
		if !quoted {
			i := bytes.IndexByte(raw, ',')
			field := raw
			if i >= 0 {
				field = raw[:i]
			}
			if bytes.IndexByte(field, '"') >= 0 {
				return false
			}
			t.text = append(t.text, field...)
			t.ends = append(t.ends, len(t.text))
			if i < 0 {
				return true
			}
			raw = raw[i+1:]
			continue
		}
		for raw = raw[1:]; ; raw = raw[2:] {
			i := bytes.IndexByte(raw, '"')
			if i < 0 || bytes.IndexByte(raw[:i], '\r') >= 0 {
				return false
			}
			t.text = append(t.text, raw[:i]...)
			if raw = raw[i:]; len(raw) == 1 || raw[1] != '"' {
				break
			}
			t.text = append(t.text, '"')
		}
		t.ends = append(t.ends, len(t.text))
		switch {
		case len(raw) == 1:
			return true
		case raw[1] != ',':
			return false
		}
		raw = raw[2:]
	}
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
