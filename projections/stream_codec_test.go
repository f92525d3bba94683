package projections

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// A stream survives a round trip, and its encoding is the core deterministic encoding of a map of
// its fields that are not empty.
func TestStreamEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u64 := rapid.OneOf(rapid.Uint64Range(0, 2), rapid.Uint64())
		at := rapid.Int64Range(0, 4e18)
		s := &Stream{
			Source: rapid.StringN(0, 30, 100).Draw(t, "source"), Incarnation: u64.Draw(t, "incarnation"),
			Mark: u64.Draw(t, "mark"), Forgotten: u64.Draw(t, "forgotten"), Lost: u64.Draw(t, "lost"),
			Ended: u64.Draw(t, "ended"), Uncompared: u64.Draw(t, "not compared"),
			Last:  domain.Instant(at.Draw(t, "last")),
			Ahead: domain.Instant(rapid.SampledFrom([]int64{0, 5, 1e9}).Draw(t, "ahead")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "gaps") {
			s.Gaps = append(s.Gaps, Gap{First: u64.Draw(t, "first"), Last: u64.Draw(t, "last")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "recent") {
			s.Recent = append(s.Recent,
				Seen{u64.Draw(t, "sequence"), rapid.Int64().Draw(t, "offset"), rapid.Uint32().Draw(t, "sum")})
		}
		if rapid.Bool().Draw(t, "past") {
			s.Past = &Past{
				Incarnations: u64.Draw(t, "incarnations"), First: u64.Draw(t, "first"), Last: u64.Draw(t, "last"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "lives") {
				s.Past.Lives = append(s.Past.Lives,
					Life{Incarnation: u64.Draw(t, "incarnation"), Mark: u64.Draw(t, "mark")})
			}
		}
		b, err := EncodeRow(s)
		if err != nil {
			t.Fatal(err)
		}
		row, err := DecodeRow(TableStreams, b)
		if err != nil || !reflect.DeepEqual(row, s) {
			t.Fatalf("decoded %+v, error %v, want %+v", row, err, s)
		}
		var loose map[string]any
		if err := cbor.Unmarshal(b, &loose); err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := canonical.MarshalToBuffer(loose, &again); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("the library writes %x, not %x; error %v", again.Bytes(), b, err)
		}
		for i := range len(b) {
			if _, err := DecodeRow(TableStreams, b[:i]); err == nil {
				t.Fatalf("%d of %d bytes decode", i, len(b))
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add(appendStream(nil, &Stream{
		Source: "s", Mark: 3, Past: &Past{Lives: []Life{{Mark: 2}}}, Recent: Recent{{1, 2, 3}},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Stream{}
		if s.UnmarshalCBOR(b) == nil {
			again := &Stream{}
			if err := again.UnmarshalCBOR(appendStream(nil, s)); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("%+v became %+v, error %v", s, again, err)
			}
		}
	})
}

// BenchmarkStream encodes and decodes the stream of a node with as many records as it may keep.
func BenchmarkStream(b *testing.B) {
	s := &Stream{Source: "node-reporter/c1/n1", Incarnation: 1_790_000_000, Last: 1_790_000_000 * domain.Second}
	for i := range uint64(maxRecent) {
		s.Recent.keep(Seen{i + 1, int64(900 * i), uint32(i) * 2654435761})
	}
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			if _, err := EncodeRow(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	raw, err := EncodeRow(s)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := DecodeRow(TableStreams, raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
