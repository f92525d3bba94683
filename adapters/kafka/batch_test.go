package kafka

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/compress"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

func testEncoder(codec Codec) *batchEncoder {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return &batchEncoder{codec: codec, zstd: z}
}

func testDecoder() *batchDecoder {
	d, err := newBatchDecoder()
	if err != nil {
		panic(err)
	}
	return d
}

// fill sets the offset of a batch, like a broker.
func fill(b []byte, base int64) []byte {
	binary.BigEndian.PutUint64(b[headBase:], uint64(base))
	return b
}

// seal updates the checksum after a change.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[headCRC:], crc32.Checksum(b[headAttributes:], castagnoli))
	return b
}

// encode packs records, in order, until the batch is full.
func (e *batchEncoder) encode(recs []domain.Record) (batch []byte, taken int, err error) {
	e.begin(0)
	for ; taken < len(recs) && !e.full(); taken++ {
		e.add(&recs[taken])
	}
	batch, err = e.finish()
	return batch, taken, err
}

func TestBatchRoundTrip(t *testing.T) {
	tp := domain.TopicPartition{Topic: "qm.fleet", Partition: 3}
	field := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		return append([]byte{}, bytes.Repeat(rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "b"), rapid.IntRange(1, 40).Draw(t, "times"))...)
	})
	enc := map[Codec]*batchEncoder{Zstd: testEncoder(Zstd), LZ4: testEncoder(LZ4), -1: testEncoder(-1)}
	dec := testDecoder()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		n := rapid.IntRange(1, 30).Draw(t, "n")
		var want []domain.Record
		for i := range n {
			r := domain.Record{
				Topic: tp.Topic, Partition: tp.Partition, Offset: base + int64(i),
				Time: domain.Instant(rapid.Int64Range(1, 4e12).Draw(t, "ms")) * 1e6,
				Key:  field.Draw(t, "key"), Value: field.Draw(t, "value"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "headers") {
				r.Headers = append(r.Headers, domain.Header{Key: rapid.StringN(0, 9, 20).Draw(t, "name"), Value: field.Draw(t, "hv")})
			}
			r.Epoch = -1 // set by the broker
			want = append(want, r)
		}
		b, taken, err := enc[rapid.SampledFrom([]Codec{Zstd, LZ4, -1}).Draw(t, "codec")].encode(want)
		if err != nil || taken != n {
			t.Fatal(taken, err)
		}
		fill(b, base)
		h, whole, err := readHead(b)
		if err != nil || !whole || h.base != base || h.last != base+int64(n)-1 || h.size != len(b) {
			t.Fatal(h, whole, err)
		}
		from := base + rapid.Int64Range(0, int64(n)).Draw(t, "from")
		to := from + rapid.Int64Range(0, int64(n)).Draw(t, "to")
		dec.reset()
		if err := dec.decode(b, tp, from, to, false); err != nil {
			t.Fatal(err)
		}
		want = want[from-base : min(to-base, int64(n))]
		if len(want)+len(dec.records) > 0 && !reflect.DeepEqual(dec.records, want) {
			t.Fatalf("got  %v\nwant %v", dec.records, want)
		}
	})
}

// Codecs that other programs may have used.
func TestDecodeForeignCodecs(t *testing.T) {
	recs := numbered(domain.TopicPartition{Topic: "t"}, 0, 50)
	plain, _, err := testEncoder(-1).encode(recs)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []compress.Compression{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		var b bytes.Buffer
		b.Write(plain[:headSize])
		w := code.Codec().NewWriter(&b)
		w.Write(plain[headSize:])
		w.Close()
		batch := b.Bytes()
		binary.BigEndian.PutUint16(batch[headAttributes:], uint16(code))
		binary.BigEndian.PutUint32(batch[headLength:], uint32(len(batch)-12))
		d := testDecoder()
		if err := d.decode(seal(batch), domain.TopicPartition{Topic: "t"}, 0, 50, false); err != nil || len(d.records) != 50 {
			t.Errorf("codec %d: %d records, %v", code, len(d.records), err)
		}
	}
}

func TestBatchLimits(t *testing.T) {
	e := testEncoder(Zstd)
	recs := numbered(domain.TopicPartition{Topic: "t"}, 0, maxBatchRecords+5)
	if _, n, _ := e.encode(recs); n != maxBatchRecords {
		t.Errorf("took %d small records", n)
	}
	big := []byte(strings.Repeat("x", 300<<10))
	for i := range recs {
		recs[i].Value = big
	}
	if _, n, _ := e.encode(recs); n != 4 {
		t.Errorf("took %d records of 300 KiB", n)
	}
}

// Damage of the broker's copy is an error. A batch that was written invalid becomes a span with
// exactly the offsets of the batch.
func TestDecodeRefuses(t *testing.T) {
	tp := domain.TopicPartition{Topic: "t"}
	batch := func() []byte {
		b, _, err := testEncoder(-1).encode(numbered(tp, 0, 3))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b)
	}
	snappied := func(payload string) []byte {
		b := append(batch()[:headSize], payload...)
		b[headAttributes+1] |= byte(compress.Snappy)
		return seal(b)
	}
	for _, tc := range []struct {
		name  string
		want  error
		fault string
		b     func() []byte
	}{
		{"flipped bit", ErrCorrupt, "", func() []byte { b := batch(); b[70] ^= 1; return b }},
		{"compacted away at the end", ErrTrimmed, "", func() []byte { b := batch(); b[headLastDelta+3]++; return seal(b) }},
		{"fewer records than said", ErrTrimmed, "", func() []byte { b := batch(); b[headCount+3]--; return seal(b) }},
		{"transaction marker", nil, "", func() []byte { b := batch(); b[headAttributes+1] |= attrControl; return seal(b) }},
		{"unknown codec", nil, "cannot be unpacked (codec 7)", func() []byte { b := batch(); b[headAttributes+1] |= 7; return seal(b) }},
		{"not zstd", nil, "cannot be unpacked (codec 4)", func() []byte { b := batch(); b[headAttributes+1] |= 4; return seal(b) }},
		{"snappy that claims 4 GB", nil, "more than 64 MiB", func() []byte { return snappied("\xf0\xff\xff\xff\x0f") }},
		{"snappy block that claims 4 GB", nil, "cannot be unpacked (codec 2)",
			func() []byte { return snappied(xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff") }},
		{"one record too few", nil, "record 3 of the batch is malformed", func() []byte { b := batch(); b[headCount+3]++; b[headLastDelta+3]++; return seal(b) }},
		{"one record too many", nil, "follow the last record", func() []byte { b := batch(); b[headCount+3]--; b[headLastDelta+3]--; return seal(b) }},
		{"offset skipped within", nil, "record 0 of the batch is malformed", func() []byte { b := batch(); b[headSize+3] = 2; return seal(b) }},
		{"very many records", nil, "64 MiB of memory", func() []byte { b := batch(); b[headCount] = 1; b[headLastDelta] = 1; return seal(b) }},
	} {
		d, b := testDecoder(), tc.b()
		err := d.decode(b, tp, 0, math.MaxInt64, false)
		if tc.want != nil {
			if !errors.Is(err, tc.want) || len(d.records) > 0 {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err != nil || len(d.records) != 1 || d.records[0].Span == nil {
			t.Errorf("%s: %v, %d records", tc.name, err, len(d.records))
			continue
		}
		r := d.records[0]
		want := domain.Span{Last: int64(int32(binary.BigEndian.Uint32(b[headLastDelta:]))), Fault: r.Span.Fault, SHA256: sha256.Sum256(b[headAttributes:])}
		if *r.Span != want || r.IsMarker() != (tc.fault == "") || !strings.Contains(r.Span.Fault, tc.fault) {
			t.Errorf("%s: %+v", tc.name, *r.Span)
		}
	}
}

// Headers take more memory than bytes in the log: a batch of 1 MB must not take 100 MB.
func TestManyHeaders(t *testing.T) {
	tp := domain.TopicPartition{Topic: "t"}
	rec := domain.Record{Topic: tp.Topic, Headers: make([]domain.Header, maxPlainBytes/headerCost+1)}
	b, _, err := testEncoder(Zstd).encode([]domain.Record{rec})
	if err != nil {
		t.Fatal(err)
	}
	d := testDecoder()
	if err := d.decode(b, tp, 0, 1, false); err != nil || len(d.records) != 1 || d.records[0].Span == nil || cap(d.headers) > 0 {
		t.Fatalf("%v, %d headers", err, cap(d.headers))
	}
}

func FuzzDecode(f *testing.F) {
	for _, codec := range []Codec{-1, Zstd, LZ4} {
		recs := numbered(domain.TopicPartition{Topic: "t"}, 0, 3)
		recs[1].Headers = []domain.Header{{Key: "a", Value: []byte("b")}}
		b, _, err := testEncoder(codec).encode(recs)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b), false)
		for _, code := range []byte{1, 2, 3, 4, attrControl} { // input that is not of the codec
			b[headAttributes+1] = code
			f.Add(bytes.Clone(b), code&1 == 0)
		}
	}
	d := testDecoder()
	f.Fuzz(func(t *testing.T, b []byte, aborted bool) {
		h, whole, err := readHead(b)
		if err != nil || !whole || h.last < h.base { // brokers check the last offset
			return
		}
		d.reset()
		// With a valid checksum, because otherwise the batch is refused at once.
		if err := d.decode(seal(bytes.Clone(b[:h.size])), domain.TopicPartition{Topic: "t"}, 0, math.MaxInt64, aborted); err != nil {
			if !errors.Is(err, ErrTrimmed) || len(d.records) > 0 {
				t.Fatalf("%d records and %v", len(d.records), err)
			}
			return
		}
		next := h.base
		for _, r := range d.records {
			if r.Offset != next {
				t.Fatal(fmt.Sprint("offsets are not dense: ", r.Offset))
			}
			next = r.Next()
		}
		if next != h.last+1 && h.last != math.MaxInt64 {
			t.Fatalf("offsets end at %d, want %d", next, h.last+1)
		}
		if d.size > maxPlainBytes || len(d.records)*recordCost+len(d.headers)*headerCost > maxPlainBytes {
			t.Fatalf("%d bytes, %d records, %d headers", d.size, len(d.records), len(d.headers))
		}
	})
}

// After any change of a valid answer, the reader delivers what was written or a span with a
// fault, or it stops at the offset that it cannot read.
func TestMutatedAnswers(t *testing.T) {
	tp := domain.TopicPartition{Topic: "t"}
	rapid.Check(t, func(t *rapid.T) {
		var set []byte
		sound := map[int64]string{}
		for base := 0; base < 30; base += 10 {
			recs := numbered(tp, base, base+10)
			for i := range recs {
				sound[int64(base+i)] = string(recs[i].Value)
			}
			b, _, err := testEncoder(rapid.SampledFrom([]Codec{Zstd, LZ4, -1}).Draw(t, "codec")).encode(recs)
			if err != nil {
				t.Fatal(err)
			}
			set = append(set, fill(b, int64(base))...)
		}
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			set[rapid.IntRange(0, len(set)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		next := int64(0)
		r := &reader{log: &Log{cfg: Config{Batch: 7}}, tp: tp, to: 30, dec: testDecoder(), yield: func(recs []domain.Record) error {
			for _, rec := range recs {
				if rec.Offset != next || rec.Span == nil && string(rec.Value) != sound[next] {
					t.Fatalf("at offset %d: %d %q", next, rec.Offset, rec.Value)
				}
				next = rec.Next()
			}
			return nil
		}}
		end, err := r.check(set)
		if end > 0 {
			err = errors.Join(r.handOut(set, end), err)
		}
		if next != r.next || err == nil && next != end {
			t.Fatalf("handed out up to %d, at %d of %d: %v", next, r.next, end, err)
		}
	})
}
