// Package tabular reads files of rows, whatever their columns mean. It unpacks a file within
// limits, finds where each row of CSV ends, and describes invalid rows. Packages importer and focus
// are built on it.
//
// Invariants: memory is bounded by the longest row allowed. An invalid row does not affect the rows
// after it. A row that an error cuts off is never returned as a whole row.
package tabular

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is wrapped by the error of a file that exceeds the limits. A caller that trusts the
// file raises [Limits] and reads it again.
var ErrTooLarge = errors.New("file is larger than allowed")

// ErrDamaged is wrapped by the error of a gzip file that cannot be unpacked to its end. The user
// fetches the file again.
var ErrDamaged = errors.New("the file is damaged: fetch it again")

// Limits bound what a file may cost. Zero fields take the defaults.
type Limits struct {
	LineBytes    int   // longest row; default 1 MiB. A longer one is a bad row
	DecodedBytes int64 // whole file, unpacked; default 16 GiB
	Ratio        int64 // unpacked bytes per packed byte, once 16 MiB are unpacked; default 250
}

// ratioGrace is how much a gzip file may unpack to before its ratio counts. Small files of equal
// rows compress very well and are harmless.
const ratioGrace = 16 << 20

// WithDefaults replaces zero fields by their defaults.
func (l Limits) WithDefaults() Limits {
	if l.LineBytes <= 0 {
		l.LineBytes = 1 << 20
	}
	if l.DecodedBytes <= 0 {
		l.DecodedBytes = 16 << 30
	}
	if l.Ratio <= 0 {
		l.Ratio = 250
	}
	return l
}

// Open returns the text of a file, gzip or not, without a byte order mark. A file that is
// recognizably not CSV gives an error that wraps noRows. Reading ends with an error at the limits
// and when the context is done, because a file may hold more blank lines than anyone waits for.
func Open(ctx context.Context, file io.Reader, limits Limits, noRows error) (io.Reader, error) {
	m := &meter{ctx: ctx, limits: limits}
	packed := bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		n, err := file.Read(p)
		m.packed += int64(n)
		return n, err
	}), 64<<10)
	m.text = packed
	if magic, _ := packed.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zr, err := gzip.NewReader(packed)
		if err != nil {
			return nil, damaged(err)
		}
		m.text, m.gzip = zr, true
	}
	text := bufio.NewReaderSize(m, 64<<10)
	head, _ := text.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		if _, err := text.Discard(3); err != nil {
			return nil, err
		}
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return nil, fmt.Errorf("%w: the file is UTF-16: save it as UTF-8", noRows)
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil, fmt.Errorf("%w: the file is a ZIP archive or a spreadsheet: unpack or export it as CSV", noRows)
	case bytes.HasPrefix(head, []byte("PAR1")):
		return nil, fmt.Errorf("%w: the file is Parquet: export it as CSV", noRows)
	}
	return text, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// meter counts the bytes read from a file and the bytes unpacked.
type meter struct {
	ctx            context.Context
	text           io.Reader
	limits         Limits
	gzip           bool
	packed, opened int64
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.text.Read(p)
	m.opened += int64(n)
	switch {
	case m.opened > m.limits.DecodedBytes:
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, m.limits.DecodedBytes)
	case m.gzip && m.opened > ratioGrace && m.opened/m.limits.Ratio > m.packed:
		return 0, fmt.Errorf("%w: %d bytes of gzip hold more than %d times as much", ErrTooLarge, m.packed, m.limits.Ratio)
	case m.gzip && err != nil && !errors.Is(err, io.EOF):
		return n, damaged(err)
	}
	return n, err
}

// damaged returns the error of unpacking a gzip file. It wraps ErrDamaged only if the content is at
// fault. After other errors, which are those of reading, the file may be intact.
func damaged(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: unpack gzip: the file ends in the middle: %w", ErrDamaged, io.ErrUnexpectedEOF)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return fmt.Errorf("%w: unpack gzip: %w", ErrDamaged, err)
	}
	return fmt.Errorf("unpack gzip: %w", err)
}

// Whole reads a file to its end, unpacking it. It returns an error if the file is damaged, exceeds
// the limits, or is refused by [Open]. It is for callers that accept a whole file or nothing:
// reading row by row finds damage only after the rows before it were returned.
func Whole(ctx context.Context, file io.Reader, limits Limits, noRows error) error {
	text, err := Open(ctx, file, limits.WithDefaults(), noRows)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, text)
	return err
}
