// Package tabular reads what every file of rows has, whatever its columns mean: it
// unpacks a file within limits, finds where each row of CSV ends, and names what
// is wrong with one. Package importer and package focus stand on it.
//
// What always holds: memory is bounded by the longest row allowed, a row that is
// no good does not take its successors with it, and a row that an error cuts off
// is never given as if whole.
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

// ErrTooLarge is wrapped by the error of a file that asks for more than the
// limits allow. Whoever trusts the file raises [Limits] and reads it again.
var ErrTooLarge = errors.New("file is larger than allowed")

// ErrDamaged is wrapped by the error of a gzip file that cannot be unpacked to
// its end: fetch it again from where it came.
var ErrDamaged = errors.New("the file is damaged: fetch it again")

// Limits bound what a file may cost. Zero fields take the defaults.
type Limits struct {
	LineBytes    int   // longest row; default 1 MiB. A longer one is a bad row
	DecodedBytes int64 // whole file, unpacked; default 16 GiB
	Ratio        int64 // unpacked bytes per packed byte, once 16 MiB are unpacked; default 250
}

// ratioGrace is what a gzip file may unpack to before its ratio counts: small
// files of equal rows pack very well and harm nobody.
const ratioGrace = 16 << 20

// WithDefaults fills in what is zero.
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

// Open returns the text of a file, whether it is gzip or not, without a byte
// order mark. A file that is plainly no CSV gives an error that wraps noRows.
// Reading ends with an error at the limits and when the context is done: a file
// may hold more blank lines than anyone waits for.
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

// meter counts what is read of a file and what that unpacks to.
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

// damaged says what is wrong with a gzip file, and names the commonest. Other
// errors are of reading, and the file may be as it should.
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

// Whole reads a file to its end, unpacking it, and returns the error of a file
// that is damaged or beyond the limits, or that [Open] refuses. It is for callers
// that take a file whole or not at all: reading row by row finds damage only where
// it is, when the rows before are out.
func Whole(ctx context.Context, file io.Reader, limits Limits, noRows error) error {
	text, err := Open(ctx, file, limits.WithDefaults(), noRows)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, text)
	return err
}
