package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// ErrColumns is wrapped by the error of a file that is no table of the kind
// asked for. Nothing of it was imported; the text says what is missing.
var ErrColumns = errors.New("not the columns of this kind")

// table reads CSV (RFC 4180: comma, double quotes, CRLF or LF) row by row in
// memory bounded by the longest row allowed.
//
// A row that cannot be read does not take its successors with it: after an
// unbalanced quote reading resumes at the next line of the file.
type table struct {
	r       io.Reader
	max     int // bytes of a row
	buf     []byte
	pos     int   // start of the row to be read, in buf
	end     int   // bytes in buf
	err     error // why buf could not be filled further
	line    int   // line of the file at pos, from 1
	offset  int64 // byte of the unpacked file at pos
	header  []string
	fields  [][]byte
	scratch []byte
}

// record is one row. Its fields are valid until the next call of next.
type record struct {
	line   int   // where it starts
	offset int64 // byte of the unpacked file where it starts
	fields [][]byte
	// broken says why the row could not be read, with the column where it is known.
	broken *refusal
}

func newTable(r io.Reader, limits Limits) *table {
	return &table{r: r, max: limits.LineBytes, buf: make([]byte, min(64<<10, limits.LineBytes+2)), line: 1}
}

// fill reads more bytes behind those at hand, making room first. It reports
// false when there are none left or the row at pos is as long as allowed.
func (t *table) fill() bool {
	if t.err != nil {
		return false
	}
	if t.pos > 0 && t.end == len(t.buf) {
		copy(t.buf, t.buf[t.pos:t.end])
		t.end -= t.pos
		t.pos = 0
	}
	if t.end == len(t.buf) {
		if len(t.buf) >= t.max+2 {
			return false
		}
		grown := make([]byte, min(2*len(t.buf), t.max+2))
		copy(grown, t.buf[:t.end])
		t.buf = grown
	}
	for range 100 {
		n, err := t.r.Read(t.buf[t.end:])
		t.end += n
		if err != nil {
			t.err = err
		}
		if n > 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
	t.err = io.ErrNoProgress
	return false
}

// advance moves past n bytes of the file, counting lines.
func (t *table) advance(n int) {
	t.line += bytes.Count(t.buf[t.pos:t.pos+n], []byte{'\n'})
	t.offset += int64(n)
	t.pos += n
}

// next returns the next row that is not blank. It returns io.EOF after the
// last, and any other error of the reader once the complete rows before it
// were returned: a row cut off by an error is never returned as if whole.
func (t *table) next() (record, error) {
	for {
		rec := record{line: t.line, offset: t.offset}
		length, why := t.extent()
		switch why {
		case "":
			raw := trimEOL(t.buf[t.pos : t.pos+length])
			if len(raw) == 0 {
				t.advance(length)
				continue
			}
			rec.fields, rec.broken = t.split(raw)
			if rec.broken != nil {
				length = t.firstLine(length)
			}
			t.advance(length)
			return rec, nil
		case endOfFile:
			return rec, t.err
		default:
			rec.broken = &refusal{Reason: why, Value: string(t.buf[t.pos:min(t.pos+80, t.end)])}
			t.skipLine()
			return rec, nil
		}
	}
}

const endOfFile = "end of file"

// extent finds the end of the row at pos: its length with the line end, or why
// there is none.
func (t *table) extent() (length int, why string) {
	quotes := 0
	scanned := 0 // from pos
	for {
		for {
			i := bytes.IndexByte(t.buf[t.pos+scanned:t.end], '\n')
			if i < 0 {
				break
			}
			quotes += bytes.Count(t.buf[t.pos+scanned:t.pos+scanned+i], []byte{'"'})
			scanned += i + 1
			if quotes%2 == 0 {
				if scanned > t.max+1 {
					return 0, t.tooLong(scanned)
				}
				return scanned, ""
			}
		}
		quotes += bytes.Count(t.buf[t.pos+scanned:t.end], []byte{'"'})
		scanned = t.end - t.pos
		if t.fill() {
			continue
		}
		switch {
		case scanned > t.max:
			return 0, t.tooLong(scanned)
		case !errors.Is(t.err, io.EOF) || scanned == 0:
			return 0, endOfFile
		case quotes%2 == 1:
			return 0, "a quoted field is never closed"
		default:
			return scanned, "" // the last row need not end in a line end
		}
	}
}

func (t *table) tooLong(scanned int) string {
	if bytes.IndexByte(t.buf[t.pos:t.pos+min(scanned, t.max)], '\n') >= 0 {
		return fmt.Sprintf("a quoted field is not closed within %d bytes", t.max)
	}
	return fmt.Sprintf("the line is longer than %d bytes", t.max)
}

// firstLine returns the length of the first line of the file within a row.
func (t *table) firstLine(length int) int {
	if i := bytes.IndexByte(t.buf[t.pos:t.pos+length], '\n'); i >= 0 {
		return i + 1
	}
	return length
}

// skipLine moves to the next line of the file, however long this one is.
func (t *table) skipLine() {
	for {
		if i := bytes.IndexByte(t.buf[t.pos:t.end], '\n'); i >= 0 {
			t.advance(i + 1)
			return
		}
		t.offset += int64(t.end - t.pos)
		t.pos, t.end = 0, 0
		if !t.fill() {
			return
		}
	}
}

func trimEOL(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}

// split cuts a row into fields, without the quotes.
func (t *table) split(raw []byte) ([][]byte, *refusal) {
	t.fields = t.fields[:0]
	if bytes.IndexByte(raw, '"') < 0 {
		rest := raw
		for {
			i := bytes.IndexByte(rest, ',')
			if i < 0 {
				t.fields = append(t.fields, rest)
				break
			}
			t.fields = append(t.fields, rest[:i])
			rest = rest[i+1:]
		}
	} else if refused := t.splitQuoted(raw); refused != nil {
		return nil, refused
	}
	if bytes.IndexByte(raw, 0) >= 0 || !utf8.Valid(raw) {
		for i, f := range t.fields {
			if bytes.IndexByte(f, 0) >= 0 {
				return nil, &refusal{Field: t.columnName(i), Value: string(f), Reason: "holds a NUL byte"}
			}
			if !utf8.Valid(f) {
				return nil, &refusal{Field: t.columnName(i), Value: string(f), Reason: "is not valid UTF-8"}
			}
		}
		return nil, &refusal{Reason: "is not valid UTF-8"}
	}
	if t.header != nil && len(t.fields) != len(t.header) {
		return nil, &refusal{Reason: fmt.Sprintf("has %d fields where the header has %d", len(t.fields), len(t.header))}
	}
	return t.fields, nil
}

func (t *table) splitQuoted(raw []byte) *refusal {
	if cap(t.scratch) < len(raw) {
		t.scratch = make([]byte, 0, 2*len(raw))
	}
	t.scratch = t.scratch[:0]
	for i := 0; ; {
		if i >= len(raw) || raw[i] != '"' {
			end := bytes.IndexByte(raw[i:], ',')
			if end < 0 {
				end = len(raw) - i
			}
			f := raw[i : i+end]
			if bytes.IndexByte(f, '"') >= 0 {
				return &refusal{Field: t.columnName(len(t.fields)), Value: string(f), Reason: "has a quote in the middle: a field with quotes must be quoted whole"}
			}
			t.fields = append(t.fields, f)
			i += end
		} else {
			start := len(t.scratch)
			i++
			for {
				j := bytes.IndexByte(raw[i:], '"')
				if j < 0 {
					return &refusal{Field: t.columnName(len(t.fields)), Value: string(raw[i:]), Reason: "is a quoted field that is never closed"}
				}
				t.scratch = append(t.scratch, raw[i:i+j]...)
				i += j + 1
				if i >= len(raw) || raw[i] != '"' {
					break
				}
				t.scratch = append(t.scratch, '"')
				i++
			}
			if i < len(raw) && raw[i] != ',' {
				return &refusal{Field: t.columnName(len(t.fields)), Value: string(raw[i:]), Reason: "has text behind its closing quote"}
			}
			t.fields = append(t.fields, t.scratch[start:len(t.scratch):len(t.scratch)])
		}
		if i >= len(raw) {
			return nil
		}
		i++ // the comma
	}
}

func (t *table) columnName(i int) string {
	if i < len(t.header) {
		return t.header[i]
	}
	return fmt.Sprintf("column %d", i+1)
}

// readHeader reads the first row as the names of the columns: lower case,
// without blanks around them.
func (t *table) readHeader() error {
	rec, err := t.next()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the file is empty", ErrColumns)
	}
	if err != nil {
		return err
	}
	if rec.broken != nil {
		return fmt.Errorf("%w: the header in line %d: %s %s", ErrColumns, rec.line, rec.broken.Field, rec.broken.Reason)
	}
	names := make([]string, len(rec.fields))
	at := make(map[string]int, len(names))
	for i, f := range rec.fields {
		names[i] = strings.ToLower(strings.TrimSpace(string(f)))
		if j, twice := at[names[i]]; twice && names[i] != "" {
			return fmt.Errorf("%w: column %q stands twice in the header, as number %d and %d", ErrColumns, names[i], j+1, i+1)
		}
		at[names[i]] = i
	}
	t.header = names
	return nil
}
