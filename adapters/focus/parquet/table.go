package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"quartermaster/adapters/tabular"
)

// magic begins and ends a file.
const magic = "PAR1"

// file is what a Parquet file is read from: its description is at its end.
type file interface {
	io.ReaderAt
	io.Seeker
}

// Is reports whether a file is Parquet. It does not move the file's offset. A reader of which only
// the next byte can be read is none.
func Is(r io.Reader) bool {
	f, ok := r.(file)
	if !ok {
		return false
	}
	var head [len(magic)]byte
	n, _ := f.ReadAt(head[:], 0)
	return string(head[:n]) == magic
}

// Table reads the rows of a file. Its rows are not safe to keep: see [tabular.Row].
type Table struct {
	ctx    context.Context
	limits tabular.Limits
	from   io.ReaderAt
	file   *parquet.File
	fields []*column
	leaves []*leaf
	notes  []tabular.Note
	shared shared

	begun   bool
	group   int   // the next row group
	left    int64 // rows left in the open row group
	line    int
	decoded int64 // bytes of text so far
	length  int   // of the row, with a delimiter after each field
	row     []string
	until   []int // of each column: the line of the next row for which it is read
	changed []int // the columns in which the row differs from the one before
}

// Open opens a file. The error wraps noRows if a column has a type that is not read,
// [tabular.ErrTooLarge] if the file is larger than the limits, and [tabular.ErrDamaged] if it cannot
// be decoded.
func Open(ctx context.Context, r io.Reader, limits tabular.Limits, noRows error) (_ *Table, err error) {
	f, ok := r.(file)
	if !ok {
		return nil, errors.New("a Parquet file is read from its end, which this one does not allow")
	}
	limits = limits.WithDefaults()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	t := &Table{ctx: ctx, limits: limits, from: f, line: 1, shared: shared{room: keptTexts}}
	if err := guarded(func() (err error) {
		t.file, err = parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
		return err
	}); err != nil {
		return nil, fmt.Errorf("%w: read Parquet: %w", tabular.ErrDamaged, err)
	}
	var bytes int64
	for _, g := range t.file.Metadata().RowGroups {
		if bytes += g.TotalByteSize; bytes > limits.DecodedBytes || g.TotalByteSize < 0 {
			return nil, fmt.Errorf("%w: more than %d bytes", tabular.ErrTooLarge, limits.DecodedBytes)
		}
	}
	for _, c := range t.file.Root().Columns() {
		col, err := t.column(c)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", noRows, err)
		}
		t.fields = append(t.fields, col)
	}
	n := len(t.fields)
	t.row, t.until, t.changed = make([]string, n), make([]int, n), make([]int, 0, n)
	return t, nil
}

// Whole decodes a file to its end, without the texts of its values, and returns an error if it is
// damaged or too large. See [tabular.Whole].
func Whole(ctx context.Context, r io.Reader, limits tabular.Limits, noRows error) error {
	t, err := Open(ctx, r, limits, noRows)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := t.advance()
		if err != nil || !more {
			return err
		}
		for ; t.left > 0; t.left-- {
			for _, l := range t.leaves {
				if err := l.skip(); err != nil {
					return t.damaged(fmt.Errorf("column %s: %w", l.name, err))
				}
			}
		}
	}
}

// Notes names the columns of floating point.
func (t *Table) Notes() []tabular.Note { return t.notes }

// Next returns the next row: see [tabular.Table].
func (t *Table) Next() (row tabular.Row, err error) {
	row.Line = t.line
	if !t.begun {
		t.begun = true
		for i, c := range t.fields {
			t.row[i] = c.name
			t.length += len(c.name) + 1
		}
		row.Fields = t.row
		return row, nil
	}
	t.line++
	row.Line = t.line
	if t.left == 0 {
		more, err := t.advance()
		if err != nil {
			return row, err
		}
		if !more {
			return row, io.EOF
		}
	}
	t.left--
	if row.Broken, err = t.read(); err != nil {
		return row, t.damaged(err)
	}
	row.Fields, row.Changed = t.row, t.changed
	if t.decoded > t.limits.DecodedBytes {
		return row, fmt.Errorf("%w: more than %d bytes of text", tabular.ErrTooLarge, t.limits.DecodedBytes)
	}
	return row, nil
}

// read reads the fields of a row that may differ from those of the row before.
func (t *Table) read() (broken *tabular.Fault, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	t.changed = t.changed[:0]
	for i, until := range t.until {
		if t.line < until {
			continue
		}
		c := t.fields[i]
		text, same, err := c.text(int(t.left))
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		if t.until[i] = t.line + 1 + same; text != t.row[i] {
			t.length += len(text) - len(t.row[i])
			t.row[i], t.changed = text, append(t.changed, i)
		}
	}
	t.decoded += int64(t.length)
	if t.length > t.limits.LineBytes {
		broken = &tabular.Fault{Reason: fmt.Sprintf("the row is longer than %d bytes", t.limits.LineBytes)}
	}
	return broken, nil
}

// advance opens the next row group that has rows. It reports false after the last.
func (t *Table) advance() (more bool, err error) {
	err = guarded(func() error {
		for t.left == 0 {
			groups := t.file.RowGroups()
			for _, l := range t.leaves {
				if err := l.finish(); err != nil {
					return fmt.Errorf("column %s: %w", l.name, err)
				}
			}
			if t.group == len(groups) {
				return nil
			}
			if err := t.bounded(t.group); err != nil {
				return err
			}
			chunks := groups[t.group].ColumnChunks()
			t.left = groups[t.group].NumRows()
			for _, l := range t.leaves {
				l.open(chunks[l.index].Pages())
			}
			t.group++
		}
		more = true
		return nil
	})
	if err != nil {
		return false, t.damaged(err)
	}
	return more, nil
}

// damaged returns the error of decoding. An error of the context is one of its own.
func (t *Table) damaged(err error) error {
	if ctx := t.ctx.Err(); ctx != nil {
		return ctx
	}
	if errors.Is(err, tabular.ErrTooLarge) {
		return fmt.Errorf("read Parquet: %w", err)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: read Parquet: row group %d: %w", tabular.ErrDamaged, t.group, err)
}

// guarded turns a panic of the decoder, which trusts what it reads, into an error.
func guarded(decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return decode()
}
