package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"quartermaster/adapters/tabular"
)

// ErrColumns means that the file is not a table of the requested kind. Nothing was imported. The
// text of the error names the missing columns.
var ErrColumns = errors.New("not the columns of this kind")

// table reads CSV row by row. Package tabular finds the end of each row, and split splits it into
// fields without copying.
type table struct {
	frames  *tabular.Frames
	header  []string
	fields  [][]byte
	scratch []byte
}

// record is one row. Its fields are valid until the next call of next.
type record struct {
	line   int   // where it starts
	offset int64 // where it starts in the decompressed file, in bytes
	fields [][]byte
	// broken is why the row could not be read, with the column if known.
	broken *refusal
}

func newTable(r io.Reader, limits tabular.Limits) *table {
	return &table{frames: tabular.NewFrames(r, limits.LineBytes)}
}

// next returns the next nonblank row. Its errors are those of [tabular.Frames.Next].
func (t *table) next() (record, error) {
	for {
		frame, err := t.frames.Next()
		rec := record{line: frame.Line, offset: frame.Offset}
		if err != nil {
			return rec, err
		}
		if frame.Broken != "" {
			rec.broken = &refusal{Reason: frame.Broken, Value: string(frame.Raw)}
			return rec, nil
		}
		raw := trimEOL(frame.Raw)
		if len(raw) == 0 {
			continue
		}
		if rec.fields, rec.broken = t.split(raw); rec.broken != nil {
			t.frames.FirstLineOnly()
		}
		return rec, nil
	}
}

func trimEOL(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}

// split splits a row into fields and removes the quotes.
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
				return &refusal{
					Field:  t.columnName(len(t.fields)),
					Value:  string(f),
					Reason: "has a quote in the middle: a field with quotes must be quoted whole",
				}
			}
			t.fields = append(t.fields, f)
			i += end
		} else {
			start := len(t.scratch)
			i++
			for {
				j := bytes.IndexByte(raw[i:], '"')
				if j < 0 {
					return &refusal{
						Field:  t.columnName(len(t.fields)),
						Value:  string(raw[i:]),
						Reason: "is a quoted field that is never closed",
					}
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
				return &refusal{
					Field:  t.columnName(len(t.fields)),
					Value:  string(raw[i:]),
					Reason: "has text after its closing quote",
				}
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

// readHeader reads the first row as the names of the columns, in lower case and without
// surrounding blanks.
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
			return fmt.Errorf(
				"%w: column %q is in the header twice, as columns %d and %d",
				ErrColumns, names[i], j+1, i+1,
			)
		}
		at[names[i]] = i
	}
	t.header = names
	return nil
}
