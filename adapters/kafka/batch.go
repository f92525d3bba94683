package kafka

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"

	"quartermaster/domain"
)

// ErrCorrupt means that the log returned an invalid record batch: a checksum or a length is
// wrong. An operator has to examine the broker's copy; another replica may have an intact copy.
var ErrCorrupt error = &lasting{
	text: "log is corrupt",
	kind: "corrupt",
	advice: "the broker's copy of the records is damaged: make a replica with an intact copy the leader of the partition " +
		"(kafka-leader-election.sh, kafka-reassign-partitions.sh), and folding continues; if there is none, " + Anew,
}

// The fixed header of a record batch, format 2. Numbers are big-endian.
// Source: kafka.apache.org/documentation/#recordbatch.
const (
	headBase       = 0  // int64 offset of the first record
	headLength     = 8  // int32 bytes after this field
	headEpoch      = 12 // int32 epoch of the leader that appended it
	headMagic      = 16 // int8, 2
	headCRC        = 17 // uint32 Castagnoli, of everything from headAttributes
	headAttributes = 21 // int16: codec, log append time, transactional, control
	headLastDelta  = 23 // int32
	headFirstTime  = 27 // int64 milliseconds since the epoch
	headMaxTime    = 35 // int64
	headProducer   = 43 // int64 id, int16 epoch, int32 sequence; all -1 without idempotence
	headCount      = 57 // int32
	headSize       = 61

	attrCodec         = 0x07
	attrAppended      = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20

	// maxPlainBytes limits the decompressed size of a batch. It also limits the memory for its
	// records and headers, which take recordCost and headerCost each. Our own batches stay below
	// 6 MiB.
	maxPlainBytes = 64 << 20
	recordCost    = 128
	headerCost    = 40

	maxMillis = math.MaxInt64 / 1_000_000 // the latest time of an Instant
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendVarint(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func varintSize(v int64) int {
	u, n := uint64(v<<1)^uint64(v>>63), 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

// bytesSize is the encoded size of a length-prefixed field of n bytes.
func bytesSize(n int) int { return varintSize(int64(n)) + n }

// batchEncoder builds record batches in reused memory: begin, add for each record, then finish.
type batchEncoder struct {
	codec         Codec
	zstd          *zstd.Encoder
	plain         []byte // records before compression
	out           []byte
	count         int
	now           int64 // milliseconds; the time of records without one
	first, latest int64 // times of the batch's records, in milliseconds
}

// begin starts an empty batch. Records without a time get the time now, in milliseconds.
func (e *batchEncoder) begin(now int64) { e.plain, e.count, e.now = e.plain[:0], 0, now }

// full reports whether the batch takes no more records. An empty batch takes any record.
func (e *batchEncoder) full() bool {
	return e.count >= maxBatchRecords || len(e.plain) >= targetBatchBytes
}

// add copies a record into the batch.
func (e *batchEncoder) add(r *domain.Record) {
	at := e.now
	if r.Time != 0 {
		at = r.Time.Time().UnixMilli()
	}
	if e.count == 0 {
		e.first, e.latest = at, at
	}
	e.latest = max(e.latest, at)
	e.plain = appendRecord(e.plain, r, at-e.first, int64(e.count))
	e.count++
}

// finish returns the batch of the records added since begin. It is valid until the next call.
func (e *batchEncoder) finish() (batch []byte, err error) {
	out := append(e.out[:0], make([]byte, headSize)...)
	code := compress.None
	switch e.codec {
	case Zstd:
		code, out = compress.Zstd, e.zstd.EncodeAll(e.plain, out)
	case LZ4:
		b := bytes.NewBuffer(out)
		w := compress.Lz4.Codec().NewWriter(b)
		_, err := w.Write(e.plain)
		if err = errors.Join(err, w.Close()); err != nil {
			return nil, fmt.Errorf("compress batch: %w", err)
		}
		code, out = compress.Lz4, b.Bytes()
	}
	if code == compress.None || len(out) >= headSize+len(e.plain) {
		code, out = compress.None, append(out[:headSize], e.plain...)
	}
	e.out = out
	be := binary.BigEndian
	be.PutUint32(out[headLength:], uint32(len(out)-headMagic+4))
	be.PutUint32(out[headEpoch:], 0xffffffff) // leader epoch, set by the broker
	out[headMagic] = 2
	be.PutUint16(out[headAttributes:], uint16(code))
	be.PutUint32(out[headLastDelta:], uint32(e.count-1))
	be.PutUint64(out[headFirstTime:], uint64(e.first))
	be.PutUint64(out[headMaxTime:], uint64(e.latest))
	for i := headProducer; i < headCount; i++ {
		out[i] = 0xff
	}
	be.PutUint32(out[headCount:], uint32(e.count))
	be.PutUint32(out[headCRC:], crc32.Checksum(out[headAttributes:], castagnoli))
	return out, nil
}

func appendRecord(b []byte, r *domain.Record, timeDelta, offsetDelta int64) []byte {
	size := 1 + varintSize(timeDelta) + varintSize(offsetDelta) +
		bytesSize(len(r.Key)) + bytesSize(len(r.Value)) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		size += bytesSize(len(r.Headers[i].Key)) + bytesSize(len(r.Headers[i].Value))
	}
	b = appendVarint(b, int64(size))
	b = append(b, 0) // attributes: none are defined
	b = appendVarint(b, timeDelta)
	b = appendVarint(b, offsetDelta)
	b = appendBytes(b, r.Key)
	b = appendBytes(b, r.Value)
	b = appendVarint(b, int64(len(r.Headers)))
	for i := range r.Headers {
		b = appendVarint(b, int64(len(r.Headers[i].Key)))
		b = append(b, r.Headers[i].Key...)
		b = appendBytes(b, r.Headers[i].Value)
	}
	return b
}

// appendBytes appends a field. Nil is null, which is as long as an empty field.
func appendBytes(b, field []byte) []byte {
	if field == nil {
		return appendVarint(b, -1)
	}
	return append(appendVarint(b, int64(len(field))), field...)
}

// batchHead has the header fields that are needed before decompression.
type batchHead struct {
	base, last int64
	size       int // bytes of the whole batch
	producer   int64
	attributes uint16
}

// readHead reads the header of the first batch in b. It reports false if the batch is incomplete:
// brokers truncate the last batch of an answer.
func readHead(b []byte) (h batchHead, ok bool, err error) {
	if len(b) < headSize {
		return h, false, nil
	}
	be := binary.BigEndian
	length := int32(be.Uint32(b[headLength:]))
	if b[headMagic] != 2 || length < headSize-headMagic+4 {
		return h, false, fmt.Errorf("%w: batch of format %d and %d bytes", ErrCorrupt, b[headMagic], length)
	}
	h.size = int(length) + headMagic - 4
	delta := int32(be.Uint32(b[headLastDelta:]))
	h.base = int64(be.Uint64(b[headBase:]))
	h.last = h.base + int64(delta)
	h.producer = int64(be.Uint64(b[headProducer:]))
	h.attributes = be.Uint16(b[headAttributes:])
	if delta < 0 || h.base < 0 {
		return h, false, fmt.Errorf("%w: batch at offset %d with last delta %d", ErrCorrupt, h.base, delta)
	}
	return h, len(b) >= h.size, nil
}

// batchDecoder decodes record batches into memory that it reuses after reset.
type batchDecoder struct {
	zstd    *zstd.Decoder
	records []domain.Record
	headers []domain.Header
	plain   [][]byte // decompressed batches, each in its own memory, so that adding one moves none
	used    int      // entries of plain in use since reset
	size    int      // bytes in these
	names   []string // header names by index in the record, because they rarely differ
}

func newBatchDecoder() (*batchDecoder, error) {
	z, err := newZstdDecoder()
	if err != nil {
		return nil, err
	}
	return &batchDecoder{zstd: z}, nil
}

func newZstdDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPlainBytes))
}

func (d *batchDecoder) reset() {
	held := 0
	for _, b := range d.plain {
		held += cap(b)
	}
	if held > keptBytes && d.size < held/4 {
		d.plain = nil // release the memory of a single large record
	}
	d.records, d.headers, d.used, d.size = d.records[:0], d.headers[:0], 0, 0
}

// decode appends the records of a complete batch with from <= offset < to. They share memory with
// the decoder and with b. Three kinds of batches become a [domain.Span]: a control batch of Kafka,
// the batch of an aborted transaction, and a batch that cannot be decoded or takes too much
// memory. This depends only on the batch, and its checksum proves that it was written like this.
// An error means that the broker's copy is damaged or incomplete.
func (d *batchDecoder) decode(b []byte, tp domain.TopicPartition, from, to int64, aborted bool) error {
	be := binary.BigEndian
	base := int64(be.Uint64(b[headBase:]))
	if want, got := be.Uint32(b[headCRC:]), crc32.Checksum(b[headAttributes:], castagnoli); want != got {
		return fmt.Errorf("%w: checksum of batch is %08x, must be %08x", ErrCorrupt, got, want)
	}
	count, last := int(int32(be.Uint32(b[headCount:]))), int(int32(be.Uint32(b[headLastDelta:])))
	if count != last+1 {
		return gapWithin(base, int64(count), last)
	}
	fault := "the records are of a transaction that its producer aborted"
	switch {
	case be.Uint16(b[headAttributes:])&attrControl != 0:
		fault = ""
	case !aborted:
		records, headers := len(d.records), len(d.headers)
		if fault = d.take(b, tp, from, to); fault == "" {
			return nil
		}
		d.records, d.headers = d.records[:records], d.headers[:headers]
	}
	first, end := max(base, from), min(base+int64(count), to)
	if first < end {
		d.records = append(d.records, domain.Record{
			Topic:     tp.Topic,
			Partition: tp.Partition,
			Offset:    first,
			Time:      instant(int64(be.Uint64(b[headMaxTime:]))),
			Epoch:     int32(be.Uint32(b[headEpoch:])),
			Span:      &domain.Span{Last: end - 1, Fault: fault, SHA256: sha256.Sum256(b[headAttributes:])},
		})
	}
	return nil
}

// instant converts a time in milliseconds, clipped to the range of an Instant.
func instant(ms int64) domain.Instant {
	return domain.Instant(min(max(ms, -maxMillis), maxMillis) * 1e6)
}

// take appends the records of a batch, or returns its fault. The text of the fault is stored in
// rows, so it MUST NOT change, and it contains no error text of a library.
func (d *batchDecoder) take(b []byte, tp domain.TopicPartition, from, to int64) (fault string) {
	be := binary.BigEndian
	base, count := int64(be.Uint64(b[headBase:])), int(be.Uint32(b[headCount:]))
	attributes := be.Uint16(b[headAttributes:])
	first, latest := int64(be.Uint64(b[headFirstTime:])), int64(be.Uint64(b[headMaxTime:]))
	code := compress.Compression(attributes & attrCodec)
	in, err := d.unpack(code, b[headSize:])
	switch {
	case errors.Is(err, errTooLarge):
		return fmt.Sprintf("the batch unpacks to more than %d MiB", maxPlainBytes>>20)
	case err != nil:
		return fmt.Sprintf("the batch cannot be unpacked (codec %d)", code)
	}
	broken := func(i int) string { return fmt.Sprintf("record %d of the batch is malformed", i) }
	crowded := fmt.Sprintf("the records and headers of the batch take more than %d MiB of memory", maxPlainBytes>>20)
	cost := count * recordCost
	if cost > maxPlainBytes {
		return crowded
	}
	c := cursor{b: in}
	for i := range count {
		size := c.varint()
		end := len(c.b) - int(size)
		if size < 0 || size > int64(len(c.b)) {
			return broken(i)
		}
		c.skip(1)
		at := first + c.varint()
		if attributes&attrAppended != 0 {
			at = latest
		}
		if delta := c.varint(); delta != int64(i) {
			return broken(i)
		}
		key, value := c.varbytes(), c.varbytes()
		headers := c.varint()
		if headers < 0 || headers > int64(len(c.b)) {
			return broken(i)
		}
		if cost += int(headers) * headerCost; cost > maxPlainBytes {
			return crowded
		}
		start := len(d.headers)
		for h := range int(headers) {
			name := c.varbytes()
			d.headers = append(d.headers, domain.Header{Key: d.name(h, name), Value: c.varbytes()})
		}
		if c.bad || len(c.b) != end {
			return broken(i)
		}
		if offset := base + int64(i); offset >= from && offset < to {
			r := domain.Record{
				Topic: tp.Topic, Partition: tp.Partition, Offset: offset,
				Time: instant(at), Key: key, Value: value, Epoch: int32(be.Uint32(b[headEpoch:])),
			}
			if len(d.headers) > start {
				r.Headers = d.headers[start:len(d.headers):len(d.headers)]
			}
			d.records = append(d.records, r)
		}
	}
	if len(c.b) != 0 {
		return fmt.Sprintf("%d bytes follow the last record of the batch", len(c.b))
	}
	return ""
}

// gapWithin is the error for a batch with missing records, as compaction leaves it.
func gapWithin(base, found int64, wanted int) error {
	return fmt.Errorf("%w: batch at offset %d is not dense: found record %d where %d belongs", ErrTrimmed, base, found, wanted)
}

// errTooLarge means that a batch decompresses to more than maxPlainBytes.
var errTooLarge = errors.New("batch is too large")

// unpack decompresses into the decoder's memory, up to maxPlainBytes. It recovers panics of the
// codec, because the input is untrusted.
func (d *batchDecoder) unpack(code compress.Compression, in []byte) (out []byte, err error) {
	if code == compress.None {
		return in, nil
	}
	if d.used == len(d.plain) {
		d.plain = append(d.plain, nil)
	}
	defer func() {
		if r := recover(); r != nil {
			d.zstd.Close()
			d.zstd, err = newZstdDecoder()
			err = errors.Join(fmt.Errorf("codec %d panics: %v", code, r), err)
		}
	}()
	into := d.plain[d.used][:0]
	switch code {
	case compress.Zstd:
		out, err = d.zstd.DecodeAll(in, into)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			err = errTooLarge
		}
	case compress.Snappy:
		out, err = unpackSnappy(in, into)
	default:
		codec := code.Codec()
		if codec == nil {
			return nil, fmt.Errorf("unknown codec %d", code)
		}
		r := codec.NewReader(bytes.NewReader(in))
		defer r.Close()
		b := bytes.NewBuffer(into)
		n, err := b.ReadFrom(io.LimitReader(r, maxPlainBytes+1))
		if err == nil && n > maxPlainBytes {
			err = errTooLarge
		}
		if err != nil {
			return nil, err
		}
		out = b.Bytes()
	}
	if err != nil {
		return nil, err
	}
	d.plain[d.used] = out
	d.used++
	d.size += len(out)
	return out, nil
}

// Java clients write Snappy as blocks after a header of 16 bytes; other clients write one block.
// Lengths are checked before memory is allocated for them.
// Source: org.xerial.snappy.SnappyOutputStream.
const (
	xerialMagic = "\x82SNAPPY\x00"
	xerialHead  = 16
)

func unpackSnappy(in, into []byte) ([]byte, error) {
	if len(in) < xerialHead || string(in[:len(xerialMagic)]) != xerialMagic {
		return appendSnappy(into, in)
	}
	c := cursor{b: in[xerialHead:]}
	for len(c.b) > 0 {
		block := c.skip(int(c.int32()))
		if c.bad {
			return nil, io.ErrUnexpectedEOF
		}
		var err error
		if into, err = appendSnappy(into, block); err != nil {
			return nil, err
		}
	}
	return into, nil
}

func appendSnappy(into, block []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	at := len(into)
	if n > maxPlainBytes-at {
		return nil, errTooLarge
	}
	into = slices.Grow(into, n)[:at+n]
	_, err = snappy.Decode(into[at:], block)
	return into, err
}

// name returns b as a string. It does not allocate if the header at the same index of the previous
// record had the same name.
func (d *batchDecoder) name(place int, b []byte) string {
	if place < len(d.names) {
		if d.names[place] != string(b) {
			d.names[place] = string(b)
		}
		return d.names[place]
	}
	s := string(b)
	if place == len(d.names) && place < 64 {
		d.names = append(d.names, s)
	}
	return s
}

// cursor reads the fields of Kafka's formats. After a field that exceeds the input it is bad and
// returns zero values.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) skip(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	f := c.b[:n:n]
	c.b = c.b[n:]
	return f
}

func (c *cursor) int16() int16 {
	if f := c.skip(2); f != nil {
		return int16(binary.BigEndian.Uint16(f))
	}
	return 0
}

func (c *cursor) int32() int32 {
	if f := c.skip(4); f != nil {
		return int32(binary.BigEndian.Uint32(f))
	}
	return 0
}

func (c *cursor) int64() int64 {
	if f := c.skip(8); f != nil {
		return int64(binary.BigEndian.Uint64(f))
	}
	return 0
}

// count reads the length of an array whose elements take at least one byte each.
func (c *cursor) count() int {
	n := int(c.int32())
	if n > len(c.b) {
		c.b, c.bad = nil, true
	}
	if c.bad || n < 0 { // -1 is a null array
		return 0
	}
	return n
}

// string reads a string with a 16-bit length; null is "".
func (c *cursor) string() string { return string(c.skip(max(0, int(c.int16())))) }

// compactCount, compactString, compactBytes and tags read the fields of flexible versions. They
// encode a length plus one; 0 is null.
func (c *cursor) compactCount() int {
	u, n := binary.Uvarint(c.b)
	if n <= 0 || u > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return max(0, int(u)-1)
}

func (c *cursor) compactString() string { return string(c.compactBytes()) }

func (c *cursor) compactBytes() []byte { return c.skip(c.compactCount()) }

func (c *cursor) tags() {
	fields, n := binary.Uvarint(c.b)
	if n <= 0 || fields > uint64(len(c.b)) {
		c.b, c.bad = nil, true
		return
	}
	c.b = c.b[n:]
	for range fields {
		_, n := binary.Uvarint(c.b)
		size, m := binary.Uvarint(c.b[max(0, n):])
		if n <= 0 || m <= 0 || size > uint64(len(c.b)) {
			c.b, c.bad = nil, true
			return
		}
		c.skip(n + m + int(size))
	}
}

func (c *cursor) uvarint() uint64 {
	u, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return u
}

func (c *cursor) uuid() (id topicID) {
	copy(id[:], c.skip(len(id)))
	return id
}

func (c *cursor) varint() int64 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		u := c.b[0]
		c.b = c.b[1:]
		return int64(u>>1) ^ -int64(u&1)
	}
	v, n := binary.Varint(c.b)
	if n <= 0 {
		c.b, c.bad = nil, true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// varbytes reads a field with a varint length; null is nil, empty is not.
func (c *cursor) varbytes() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(c.b)) {
		c.b, c.bad = nil, true
		return nil
	}
	return c.skip(int(n))
}
