package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

// fill sets the offset of a batch, as a broker does.
func fill(b []byte, base int64) []byte {
	binary.BigEndian.PutUint64(b[headBase:], uint64(base))
	return b
}

// seal makes the checksum right again after a change.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[headCRC:], crc32.Checksum(b[headAttributes:], castagnoli))
	return b
}

func indexes(n int) []int {
	which := make([]int, n)
	for i := range which {
		which[i] = i
	}
	return which
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
			want = append(want, r)
		}
		b, taken, err := enc[rapid.SampledFrom([]Codec{Zstd, LZ4, -1}).Draw(t, "codec")].encode(want, indexes(n), 0)
		if err != nil || taken != n {
			t.Fatal(taken, err)
		}
		fill(b, base)
		h, whole, err := readHead(b)
		if err != nil || !whole || h != (batchHead{base, base + int64(n) - 1, len(b)}) {
			t.Fatal(h, whole, err)
		}
		from := base + rapid.Int64Range(0, int64(n)).Draw(t, "from")
		to := from + rapid.Int64Range(0, int64(n)).Draw(t, "to")
		dec.reset()
		if err := dec.decode(b, tp, from, to); err != nil {
			t.Fatal(err)
		}
		want = want[from-base : min(to-base, int64(n))]
		if len(want)+len(dec.records) > 0 && !reflect.DeepEqual(dec.records, want) {
			t.Fatalf("got  %v\nwant %v", dec.records, want)
		}
	})
}

// Codecs that other programs may have written with.
func TestDecodeForeignCodecs(t *testing.T) {
	recs := numbered(domain.TopicPartition{Topic: "t"}, 0, 50)
	plain, _, err := testEncoder(-1).encode(recs, indexes(50), 0)
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
		if err := d.decode(seal(batch), domain.TopicPartition{Topic: "t"}, 0, 50); err != nil || len(d.records) != 50 {
			t.Errorf("codec %d: %d records, %v", code, len(d.records), err)
		}
	}
}

func TestBatchLimits(t *testing.T) {
	e := testEncoder(Zstd)
	recs := numbered(domain.TopicPartition{Topic: "t"}, 0, maxBatchRecords+5)
	if _, n, _ := e.encode(recs, indexes(len(recs)), 0); n != maxBatchRecords {
		t.Errorf("took %d small records", n)
	}
	big := []byte(strings.Repeat("x", 300<<10))
	for i := range recs {
		recs[i].Value = big
	}
	if _, n, _ := e.encode(recs, indexes(len(recs)), 0); n != 4 {
		t.Errorf("took %d records of 300 KiB", n)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tp := domain.TopicPartition{Topic: "t"}
	batch := func() []byte {
		b, _, err := testEncoder(-1).encode(numbered(tp, 0, 3), indexes(3), 0)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(b)
	}
	for _, tc := range []struct {
		name string
		want error
		b    func() []byte
	}{
		{"flipped bit", ErrCorrupt, func() []byte { b := batch(); b[70] ^= 1; return b }},
		{"transaction marker", ErrCorrupt, func() []byte { b := batch(); b[headAttributes+1] |= attrControl; return seal(b) }},
		{"unknown codec", ErrCorrupt, func() []byte { b := batch(); b[headAttributes+1] |= 7; return seal(b) }},
		{"not zstd", ErrCorrupt, func() []byte { b := batch(); b[headAttributes+1] |= 4; return seal(b) }},
		{"compacted away at the end", ErrTrimmed, func() []byte { b := batch(); b[headLastDelta+3]++; return seal(b) }},
		{"fewer records than said", ErrTrimmed, func() []byte { b := batch(); b[headCount+3]--; return seal(b) }},
		{"one record too few", ErrCorrupt, func() []byte { b := batch(); b[headCount+3]++; b[headLastDelta+3]++; return seal(b) }},
		{"one record too many", ErrCorrupt, func() []byte { b := batch(); b[headCount+3]--; b[headLastDelta+3]--; return seal(b) }},
		{"offset skipped within", ErrTrimmed, func() []byte { b := batch(); b[headSize+3] = 2; return seal(b) }},
	} {
		d := testDecoder()
		if err := d.decode(tc.b(), tp, 0, 9); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, codec := range []Codec{-1, Zstd, LZ4} {
		recs := numbered(domain.TopicPartition{Topic: "t"}, 0, 3)
		recs[1].Headers = []domain.Header{{Key: "a", Value: []byte("b")}}
		b, _, err := testEncoder(codec).encode(recs, indexes(3), 0)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b))
	}
	d := testDecoder()
	f.Fuzz(func(t *testing.T, b []byte) {
		h, whole, err := readHead(b)
		if err != nil || !whole {
			return
		}
		d.reset()
		// With the right checksum, because otherwise nothing gets past it.
		if err := d.decode(seal(bytes.Clone(b[:h.size])), domain.TopicPartition{Topic: "t"}, 0, 1<<62); err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTrimmed) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		for i, r := range d.records {
			if r.Offset != h.base+int64(i) {
				t.Fatal(fmt.Sprint("offsets are not dense: ", r.Offset))
			}
		}
	})
}
