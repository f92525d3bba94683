package importer

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

// ErrTooLarge is wrapped by the error of a file that unpacks to more than the
// limits allow. Whoever trusts the file raises [Limits] and imports it again.
var ErrTooLarge = errors.New("file unpacks to more than allowed")

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

func (l Limits) withDefaults() Limits {
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

// open returns the file's text: unpacked when its first bytes are gzip's,
// without the byte order mark, cut off with an error at the limits.
func open(ctx context.Context, file io.Reader, limits Limits) (io.Reader, error) {
	packed := &countingReader{r: file}
	br := bufio.NewReaderSize(packed, 64<<10)
	var text io.Reader = br
	bounded := &boundedReader{ctx: ctx, packed: packed, limits: limits}
	if magic, _ := br.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, damaged(err)
		}
		bounded.gzip = true
		text = zr
	}
	bounded.r = text
	tr := bufio.NewReaderSize(bounded, 64<<10)
	head, _ := tr.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		if _, err := tr.Discard(3); err != nil {
			return nil, err
		}
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return nil, fmt.Errorf("%w: the file is UTF-16: save it as UTF-8", ErrColumns)
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil, fmt.Errorf("%w: the file is a ZIP archive or a spreadsheet: unpack or export it as CSV", ErrColumns)
	case bytes.HasPrefix(head, []byte("PAR1")):
		return nil, fmt.Errorf("%w: the file is Parquet: export it as CSV", ErrColumns)
	}
	return tr, nil
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// boundedReader ends a file that is too large, and one that nobody waits for
// any more: a file may hold more blank lines than anyone has patience for.
type boundedReader struct {
	ctx    context.Context
	r      io.Reader
	packed *countingReader
	limits Limits
	gzip   bool
	n      int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > b.limits.DecodedBytes {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.limits.DecodedBytes)
	}
	if b.gzip && b.n > ratioGrace && b.n/b.limits.Ratio > b.packed.n {
		return 0, fmt.Errorf("%w: %d bytes of gzip hold more than %d times as much", ErrTooLarge, b.packed.n, b.limits.Ratio)
	}
	if b.gzip && err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
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
// that is damaged or beyond the limits, or that [Run] could not read as text. It
// is for callers that take a file whole or not at all: Run finds damage only
// where it is, when the events of the rows before are out.
func Whole(ctx context.Context, file io.Reader, limits Limits) error {
	text, err := open(ctx, file, limits.withDefaults())
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, text)
	return err
}
