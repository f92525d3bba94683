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
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// ErrTooLarge is wrapped by the error of a file that exceeds the limits. A caller that trusts the
// file raises [Limits] and reads it again.
var ErrTooLarge = errors.New("file is larger than allowed")

// ErrDamaged is wrapped by the error of a compressed file that cannot be unpacked to its end. The
// user fetches the file again.
var ErrDamaged = errors.New("the file is damaged: fetch it again")

// Limits bound what a file may cost. Zero fields take the defaults.
type Limits struct {
	LineBytes    int   // longest row; default 1 MiB. A longer one is a bad row
	DecodedBytes int64 // whole file, unpacked; default 16 GiB
	Ratio        int64 // unpacked bytes per packed byte, once 16 MiB are unpacked; default 250
}

// ratioGrace is how much a compressed file may unpack to before its ratio counts. Small files of equal
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

// maxWindow bounds the memory for unpacking zstd: the window that "zstd --ultra --long" asks for by
// default.
const maxWindow = 128 << 20

// Open returns the text of a file, compressed with gzip or zstd or plain, without a byte order mark.
// A file that is recognizably not CSV gives an error that wraps noRows. Reading ends with an error
// at the limits and when the context is done, because a file may hold more blank lines than anyone
// waits for.
func Open(ctx context.Context, file io.Reader, limits Limits, noRows error) (io.Reader, error) {
	m := &meter{ctx: ctx, limits: limits}
	packed := bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		n, err := file.Read(p)
		m.packed += int64(n)
		if err != nil && !errors.Is(err, io.EOF) {
			m.gone = err
		}
		return n, err
	}), 64<<10)
	m.text = packed
	magic, _ := packed.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		m.packing = "gzip"
		zr, err := gzip.NewReader(packed)
		if err != nil {
			return nil, m.damaged(err)
		}
		m.text = zr
	case isZstd(magic):
		m.packing = "zstd"
		zr, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, m.damaged(err)
		}
		m.text = zr
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

// isZstd recognizes a frame of zstd, or a skippable frame, with which parallel compressors begin
// (RFC 8878, 3.1).
func isZstd(magic []byte) bool {
	return bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// meter counts the bytes read from a file and the bytes unpacked.
type meter struct {
	ctx            context.Context
	text           io.Reader
	limits         Limits
	packing        string // gzip, zstd; "" for a plain file
	packed, opened int64
	gone           error // why the packed bytes could not be read
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
	case m.packing != "" && m.opened > ratioGrace && m.opened/m.limits.Ratio > m.packed:
		return 0, fmt.Errorf("%w: %d bytes of %s hold more than %d times as much", ErrTooLarge, m.packed, m.packing, m.limits.Ratio)
	case m.packing != "" && err != nil && !errors.Is(err, io.EOF):
		return n, m.damaged(err)
	}
	return n, err
}

// damaged returns the error of unpacking. It wraps ErrDamaged only if the content is at fault. After
// an error of reading the file may be intact.
func (m *meter) damaged(err error) error {
	switch {
	case m.gone != nil:
		return fmt.Errorf("unpack %s: %w", m.packing, m.gone)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: unpack %s: it needs more than %d MiB of memory", ErrTooLarge, m.packing, maxWindow>>20)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: unpack %s: the file ends in the middle: %w", ErrDamaged, m.packing, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%w: unpack %s: %w", ErrDamaged, m.packing, err)
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
