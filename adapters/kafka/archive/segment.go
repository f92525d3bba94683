package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// withSegment calls use with the checked bytes of a segment, while there is room for it in memory.
func (a *Archive) withSegment(ctx context.Context, m *Manifest, use func(raw []byte) error) error {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-a.slots }()
	raw, err := a.load(ctx, m)
	if err != nil {
		return err
	}
	return use(raw)
}

// load reads a segment and checks everything that its manifest says.
func (a *Archive) load(ctx context.Context, m *Manifest) ([]byte, error) {
	tp := m.partition()
	damage := func(offset int64, format string, args ...any) error {
		return &DamageError{m.Object, tp, offset, fmt.Sprintf(format, args...)}
	}
	if m.Bytes > maxSegment {
		return nil, damage(m.First, "its manifest gives it %d bytes, %d are read", m.Bytes, int64(maxSegment))
	}
	packed, err := a.store.Get(ctx, m.Object)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damage(m.First, "it is missing")
	}
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	hash := sha256.New()
	count := &counted{r: io.TeeReader(packed, hash)}
	dec, err := zstd.NewReader(count, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", m.Object, err)
	}
	defer dec.Close()
	var buf bytes.Buffer
	_, err = io.Copy(&buf, io.LimitReader(dec, m.Bytes+1))
	switch {
	case count.err != nil:
		return nil, fmt.Errorf("get %s: %w", m.Object, count.err)
	case err != nil:
		return nil, damage(m.First, "it cannot be unpacked: %v", err)
	case int64(buf.Len()) != m.Bytes:
		return nil, damage(m.First, "it unpacks to another size than the %d bytes of its manifest", m.Bytes)
	case count.n != m.ObjectBytes:
		return nil, damage(m.First, "it has %d bytes, its manifest says %d", count.n, m.ObjectBytes)
	case m.ObjectSHA256 != nil && Sum(hash.Sum(nil)) != *m.ObjectSHA256:
		return nil, damage(m.First, "its SHA-256 as stored is %x, its manifest says %s", hash.Sum(nil), m.ObjectSHA256)
	}
	raw := buf.Bytes()
	found, offset, err := describe(tp, raw, m.First)
	if err != nil {
		return nil, damage(offset, "%v", err)
	}
	if sum := Sum(sha256.Sum256(raw)); sum != m.SHA256 {
		return nil, damage(m.First, "its SHA-256 is %s, its manifest says %s", sum, m.SHA256)
	}
	found.Bytes, found.SHA256 = m.Bytes, m.SHA256
	if !found.sameContent(m) {
		return nil, damage(m.First, "it has %d batches with offsets %d to %d, the last record %s; "+
			"its manifest says %d, %d to %d and %s",
			found.Batches, found.First, found.Last, found.Anchor(), m.Batches, m.First, m.Last, m.Anchor())
	}
	return raw, nil
}

// maxWindow bounds the memory that an object can make the decoder take.
const maxWindow = 32 << 20

func (m *Manifest) sameContent(b *Manifest) bool {
	return m.First == b.First && m.Last == b.Last && m.Batches == b.Batches &&
		m.Earliest == b.Earliest && m.Latest == b.Latest && m.LastRecord == b.LastRecord
}

// describe checks the batches of a segment that begins at an offset. After an error, offset is the
// first that cannot be read.
func describe(tp domain.TopicPartition, raw []byte, first int64) (m Manifest, offset int64, err error) {
	next := first
	for rest := raw; len(rest) > 0; {
		b, err := kafka.NextBatch(rest)
		if err != nil {
			return m, next, err
		}
		if b.First != next {
			return m, next, fmt.Errorf("a batch begins at offset %d, %d is next", b.First, next)
		}
		if m.Batches == 0 {
			m.First, m.Earliest, m.Latest = b.First, b.Earliest, b.Latest
		}
		m.Latest = max(m.Latest, b.Latest)
		m.Batches++
		m.Last, next = b.Last, b.Last+1
		if len(rest) == b.Size {
			last, err := kafka.LastOf(tp, rest)
			if err != nil {
				return m, b.First, err
			}
			m.LastRecord = LastRecord{last.Epoch, last.Hash}
		}
		rest = rest[b.Size:]
	}
	if m.Batches == 0 {
		return m, first, errors.New("it is empty")
	}
	return m, next, nil
}

// counted counts what is read, and keeps the error of the store apart from that of the decoder.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}
