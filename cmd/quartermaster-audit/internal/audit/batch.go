package audit

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"quartermaster/domain"
)

// A record batch of Kafka, format 2 (kafka.apache.org/documentation/#recordbatch).
type batch struct {
	first, last   int64
	size          int // bytes
	attributes    uint16
	epoch         int32
	count         int
	earliest      int64 // milliseconds
	latest        int64
	producer      int64
	body, covered []byte // the records; what the checksum covers
}

const (
	headBytes     = 61
	codecMask     = 0x07
	appendTime    = 0x08
	transactional = 0x10
	control       = 0x20

	// What a reader of the log takes. A batch beyond it is a span, as in the log.
	maxUnpacked = 64 << 20
	recordCost  = 128
	headerCost  = 40
	maxMillis   = math.MaxInt64 / 1_000_000
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// nextBatch reads the first batch in b and checks it.
func nextBatch(b []byte) (h batch, err error) {
	if len(b) < headBytes {
		return h, fmt.Errorf("%d bytes are not a batch", len(b))
	}
	be := binary.BigEndian
	length := int64(int32(be.Uint32(b[8:])))
	if b[16] != 2 || length < headBytes-12 || length+12 > int64(len(b)) {
		return h, fmt.Errorf("a batch of format %d has %d bytes, and %d follow", b[16], length+12, len(b))
	}
	h.size = int(length) + 12
	h.covered = b[21:h.size]
	if want, got := be.Uint32(b[17:]), crc32.Checksum(h.covered, castagnoli); want != got {
		return h, fmt.Errorf("the checksum of the batch is %08x, it says %08x", got, want)
	}
	h.first = int64(be.Uint64(b))
	h.epoch = int32(be.Uint32(b[12:]))
	h.attributes = be.Uint16(b[21:])
	h.last = h.first + int64(int32(be.Uint32(b[23:])))
	h.earliest, h.latest = int64(be.Uint64(b[27:])), int64(be.Uint64(b[35:]))
	h.producer = int64(be.Uint64(b[43:]))
	h.count = int(int32(be.Uint32(b[57:])))
	h.body = b[headBytes:h.size]
	if h.first < 0 || h.last < h.first || int64(h.count) != h.last-h.first+1 {
		return h, fmt.Errorf("a batch has %d records for the offsets %d to %d", h.count, h.first, h.last)
	}
	return h, nil
}

func instant(ms int64) domain.Instant {
	return domain.Instant(min(max(ms, -maxMillis), maxMillis) * 1_000_000)
}

// records returns the records of a batch, or one span if it has none that can be read.
func (h *batch) records(tp domain.TopicPartition, aborted bool) []domain.Record {
	fault := "the records are of a transaction that its producer aborted"
	switch {
	case h.attributes&control != 0:
		fault = ""
	case !aborted:
		recs, err := h.decode(tp)
		if err == nil {
			return recs
		}
		fault = err.Error()
	}
	return []domain.Record{{
		Topic: tp.Topic, Partition: tp.Partition, Offset: h.first, Time: instant(h.latest), Epoch: h.epoch,
		Span: &domain.Span{Last: h.last, Fault: fault, SHA256: sha256.Sum256(h.covered)},
	}}
}

// The texts of faults are in rows, so they are those of the log's reader, word for word.
var (
	errLarge   = fmt.Errorf("the batch unpacks to more than %d MiB", maxUnpacked>>20)
	errCrowded = fmt.Errorf("the records and headers of the batch take more than %d MiB of memory", maxUnpacked>>20)
)

func malformed(i int) error { return fmt.Errorf("record %d of the batch is malformed", i) }

func (h *batch) decode(tp domain.TopicPartition) ([]domain.Record, error) {
	plain, err := unpack(h.attributes&codecMask, h.body)
	switch {
	case errors.Is(err, errLarge), errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, errLarge
	case err != nil:
		return nil, fmt.Errorf("the batch cannot be unpacked (codec %d)", h.attributes&codecMask)
	}
	cost := h.count * recordCost
	if cost > maxUnpacked {
		return nil, errCrowded
	}
	recs := make([]domain.Record, 0, h.count)
	f := fields{rest: plain}
	for i := range h.count {
		size := f.varint()
		if size < 0 || size > int64(len(f.rest)) {
			return nil, malformed(i)
		}
		end := len(f.rest) - int(size)
		f.take(1)
		at := h.earliest + f.varint()
		if h.attributes&appendTime != 0 {
			at = h.latest
		}
		if f.varint() != int64(i) {
			return nil, malformed(i)
		}
		r := domain.Record{
			Topic: tp.Topic, Partition: tp.Partition, Offset: h.first + int64(i), Time: instant(at), Epoch: h.epoch,
			Key: f.bytes(), Value: f.bytes(),
		}
		headers := f.varint()
		if headers < 0 || headers > int64(len(f.rest)) {
			return nil, malformed(i)
		}
		if cost += int(headers) * headerCost; cost > maxUnpacked {
			return nil, errCrowded
		}
		for range headers {
			r.Headers = append(r.Headers, domain.Header{Key: string(f.bytes()), Value: f.bytes()})
		}
		if f.bad || len(f.rest) != end {
			return nil, malformed(i)
		}
		recs = append(recs, r)
	}
	if n := len(f.rest); n > 0 {
		return nil, fmt.Errorf("%d bytes follow the last record of the batch", n)
	}
	return recs, nil
}

// fields reads the fields of records. Beyond the end it is bad.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) take(n int) []byte {
	if n < 0 || n > len(f.rest) {
		f.rest, f.bad = nil, true
		return nil
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.rest)
	if n <= 0 {
		f.rest, f.bad = nil, true
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

// bytes reads a field with its length; -1 is null.
func (f *fields) bytes() []byte {
	n := f.varint()
	if n == -1 || f.bad {
		return nil
	}
	if n < 0 || n > int64(len(f.rest)) {
		f.rest, f.bad = nil, true
		return nil
	}
	return f.take(int(n))
}

// unpack decompresses the records of a batch. Codecs are untrusted: a panic is an error.
func unpack(codec uint16, in []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec %d panics: %v", codec, p)
		}
	}()
	switch codec {
	case 0:
		return in, nil
	case 1:
		r, err := gzip.NewReader(bytes.NewReader(in))
		if err != nil {
			return nil, err
		}
		return limited(r)
	case 2:
		return unsnappy(in)
	case 3:
		return limited(lz4.NewReader(bytes.NewReader(in)))
	case 4:
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(in, nil)
	}
	return nil, fmt.Errorf("unknown codec %d", codec)
}

func limited(r io.Reader) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err == nil && len(out) > maxUnpacked {
		err = errLarge
	}
	return out, err
}

// unsnappy reads one block, or the blocks after a header that Java clients write
// (org.xerial.snappy.SnappyOutputStream).
func unsnappy(in []byte) (out []byte, err error) {
	const magic, header = "\x82SNAPPY\x00", 16
	blocks := [][]byte{in}
	if len(in) >= header && bytes.HasPrefix(in, []byte(magic)) {
		blocks = nil
		for rest := in[header:]; len(rest) > 0; {
			if len(rest) < 4 || int64(binary.BigEndian.Uint32(rest)) > int64(len(rest)-4) {
				return nil, io.ErrUnexpectedEOF
			}
			n := binary.BigEndian.Uint32(rest)
			blocks = append(blocks, rest[4:4+n])
			rest = rest[4+n:]
		}
	}
	for _, b := range blocks {
		n, err := snappy.DecodedLen(b)
		if err != nil {
			return nil, err
		}
		if n > maxUnpacked-len(out) {
			return nil, errLarge
		}
		plain, err := snappy.Decode(nil, b)
		if err != nil {
			return nil, err
		}
		out = append(out, plain...)
	}
	return out, nil
}
