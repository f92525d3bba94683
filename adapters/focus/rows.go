package focus

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
)

// refusal is why a row is not imported. It is an error so that the reader of a
// row can return it; every other error ends the import.
type refusal struct {
	field, value, reason string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s %q %s", r.field, r.value, r.reason) }

// rows reads CSV row by row. encoding/csv splits the rows; what stands here
// finds where a row ends, and hands it no more than that. So a row costs at
// most the memory allowed to it, though encoding/csv reads a quoted field to
// wherever the file closes it, and a row that cannot be read does not take its
// successors with it: reading goes on in the next line of the file.
type rows struct {
	r    io.Reader
	max  int // bytes of a row
	buf  []byte
	pos  int   // start of the row to be read, in buf
	end  int   // bytes in buf
	err  error // why buf could not be filled further
	line int   // line of the file at pos, from 1
	row  bytes.Reader
	csv  *csv.Reader
}

// record is one row. Its fields are valid until the next call of next.
type record struct {
	line   int // where it starts
	fields []string
	open   bool // the file ends before the row's line does
	broken *refusal
}

func newRows(r io.Reader, most int) *rows {
	rs := &rows{r: r, max: most, buf: make([]byte, min(64<<10, most+2)), line: 1}
	rs.resetCSV()
	return rs
}

// resetCSV forgets what encoding/csv has of a row.
func (rs *rows) resetCSV() {
	rs.row.Reset(nil)
	rs.csv = csv.NewReader(&rs.row)
	rs.csv.FieldsPerRecord = -1
	rs.csv.ReuseRecord = true
}

// next returns the next row that is not blank, io.EOF after the last, and any
// other error of the file once the complete rows before it were returned: a row
// that an error cuts off is never returned as if whole.
func (rs *rows) next() (record, error) {
	for {
		rec := record{line: rs.line}
		length, why := rs.extent()
		if why == atEnd {
			return rec, rs.err
		}
		if why != "" {
			rec.broken = &refusal{value: string(rs.buf[rs.pos:min(rs.pos+80, rs.end)]), reason: why}
			rs.skipLine()
			return rec, nil
		}
		raw := rs.buf[rs.pos : rs.pos+length]
		rec.open = raw[length-1] != '\n'
		if len(bytes.TrimRight(raw, "\r\n")) == 0 {
			rs.advance(length)
			continue
		}
		rs.row.Reset(raw)
		fields, err := rs.csv.Read()
		if err != nil {
			rec.broken = broken(raw, err)
			rs.resetCSV()
			length = firstLine(raw)
		}
		rec.fields = fields
		rs.advance(length)
		return rec, nil
	}
}

// broken says why encoding/csv could not split a row.
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
		r.reason = "has a quote that is not closed, or text behind one that is"
	}
	return r
}

const atEnd = "end of file"

// extent finds the end of the row at pos: its length with the line end, or why
// there is none.
func (rs *rows) extent() (length int, why string) {
	odd := false // an odd number of quotes: a line end is part of a field
	scanned := 0 // from pos
	for {
		for {
			i := bytes.IndexByte(rs.buf[rs.pos+scanned:rs.end], '\n')
			if i < 0 {
				break
			}
			odd = odd != (bytes.Count(rs.buf[rs.pos+scanned:rs.pos+scanned+i], quote)%2 == 1)
			scanned += i + 1
			if !odd {
				if scanned > rs.max+1 {
					return 0, rs.tooLong(scanned)
				}
				return scanned, ""
			}
		}
		odd = odd != (bytes.Count(rs.buf[rs.pos+scanned:rs.end], quote)%2 == 1)
		scanned = rs.end - rs.pos
		if rs.fill() {
			continue
		}
		switch {
		case scanned > rs.max:
			return 0, rs.tooLong(scanned)
		case !errors.Is(rs.err, io.EOF) || scanned == 0:
			return 0, atEnd
		case odd:
			return 0, "a quoted field is never closed"
		default:
			return scanned, "" // the last row need not end in a line end
		}
	}
}

var quote = []byte{'"'}

func (rs *rows) tooLong(scanned int) string {
	if bytes.IndexByte(rs.buf[rs.pos:rs.pos+min(scanned, rs.max)], '\n') >= 0 {
		return fmt.Sprintf("a quoted field is not closed within %d bytes", rs.max)
	}
	return fmt.Sprintf("the line is longer than %d bytes", rs.max)
}

// fill reads more bytes behind those at hand, making room first. It reports
// false when there are none left or the row at pos is as long as allowed.
func (rs *rows) fill() bool {
	if rs.err != nil {
		return false
	}
	if rs.pos > 0 && rs.end == len(rs.buf) {
		copy(rs.buf, rs.buf[rs.pos:rs.end])
		rs.end -= rs.pos
		rs.pos = 0
	}
	if rs.end == len(rs.buf) {
		if len(rs.buf) >= rs.max+2 {
			return false
		}
		grown := make([]byte, min(2*len(rs.buf), rs.max+2))
		copy(grown, rs.buf[:rs.end])
		rs.buf = grown
	}
	for range 100 {
		n, err := rs.r.Read(rs.buf[rs.end:])
		rs.end += n
		rs.err = err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	rs.err = io.ErrNoProgress
	return false
}

// advance moves past n bytes of the file, counting lines.
func (rs *rows) advance(n int) {
	rs.line += bytes.Count(rs.buf[rs.pos:rs.pos+n], []byte{'\n'})
	rs.pos += n
}

// skipLine moves to the next line of the file, however long this one is.
func (rs *rows) skipLine() {
	for {
		if i := bytes.IndexByte(rs.buf[rs.pos:rs.end], '\n'); i >= 0 {
			rs.advance(i + 1)
			return
		}
		rs.pos, rs.end = 0, 0
		if !rs.fill() {
			return
		}
	}
}

func firstLine(row []byte) int {
	if i := bytes.IndexByte(row, '\n'); i >= 0 {
		return i + 1
	}
	return len(row)
}
