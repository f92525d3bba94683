package focus

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"

	"quartermaster/adapters/tabular"
)

// refusal is the reason why a row is not imported. Any other error of a row ends the import.
type refusal struct {
	field, value, reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s %q %s", r.field, r.value, r.reason) }

// table reads CSV row by row. Package tabular finds the end of each row, and encoding/csv gets
// only that row to split. This bounds the memory of a row: on its own, encoding/csv would read a
// quoted field up to the closing quote, however far away.
type table struct {
	frames *tabular.Frames
	row    bytes.Reader
	csv    *csv.Reader
}

// record is one row. Its fields are valid until the next call of next.
type record struct {
	line   int // where it starts
	fields []string
	open   bool // the row has no line end: it is the last in the file
	broken *refusal
}

func newTable(r io.Reader, most int) *table {
	t := &table{frames: tabular.NewFrames(r, most)}
	t.resetCSV()
	return t
}

// resetCSV discards the state of encoding/csv.
func (t *table) resetCSV() {
	t.row.Reset(nil)
	t.csv = csv.NewReader(&t.row)
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
}

// next returns the next nonblank row. Its errors are those of [tabular.Frames.Next].
func (t *table) next() (record, error) {
	for {
		frame, err := t.frames.Next()
		rec := record{line: frame.Line}
		if err != nil {
			return rec, err
		}
		if frame.Broken != "" {
			rec.broken = &refusal{value: string(frame.Raw), reason: frame.Broken}
			return rec, nil
		}
		rec.open = frame.Raw[len(frame.Raw)-1] != '\n'
		if len(bytes.TrimRight(frame.Raw, "\r\n")) == 0 {
			continue
		}
		t.row.Reset(frame.Raw)
		if rec.fields, err = t.csv.Read(); err != nil {
			rec.broken = broken(frame.Raw, err)
			t.resetCSV()
			t.frames.FirstLineOnly()
		}
		return rec, nil
	}
}

// broken returns why encoding/csv could not split a row.
func broken(raw []byte, err error) *refusal {
	var at *csv.ParseError
	r := &refusal{reason: err.Error()}
	if !errors.As(err, &at) {
		return r
	}
	lines := bytes.Split(raw, []byte{'\n'})
	if n := at.Line - at.StartLine; n >= 0 && n < len(lines) {
		from := max(0, min(at.Column-20, len(lines[n])))
		r.value = string(lines[n][from:min(len(lines[n]), from+80)])
	}
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		r.reason = "has a quote in the middle: a field with quotes must be quoted whole"
	case errors.Is(err, csv.ErrQuote):
		r.reason = "has an unclosed quote, or text after a closing quote"
	}
	return r
}
