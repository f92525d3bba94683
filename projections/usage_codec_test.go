package projections

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

func drawUsage(t *rapid.T) *UsageHour {
	u32 := rapid.OneOf(rapid.Uint32Range(0, 30), rapid.Uint32())
	u64 := rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64())
	text := rapid.StringN(0, 40, 200)
	id := func() (id domain.GPUID) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		return id
	}
	count := func(what string) int { return rapid.IntRange(0, 3).Draw(t, what) }
	reading := func() Reading {
		return Reading{Sum: u64.Draw(t, "sum"), Known: u32.Draw(t, "known"), Max: u32.Draw(t, "max")}
	}
	u := &UsageHour{}
	for range count("holders") {
		u.Holders = append(u.Holders, Holder{Workspace: text.Draw(t, "w"), Deployment: text.Draw(t, "d"), Unit: text.Draw(t, "u")})
	}
	for range count("observers") {
		o := Observer{Source: text.Draw(t, "source"), ActivityField: u32.Draw(t, "field"), Samples: u32.Draw(t, "samples")}
		for range count("cuts") {
			o.Cuts = append(o.Cuts, Cut{Parent: id(), Profile: text.Draw(t, "profile")})
		}
		for range count("devices") {
			d := Device{ID: id(), Replica: u32.Draw(t, "replica"), Cut: u32.Draw(t, "cut"),
				Tensor: reading(), DRAM: reading(), Memory: reading(), Power: reading(), Heat: reading(), Clock: reading()}
			for range count("segments") {
				d.Segments = append(d.Segments, Segment{From: u32.Draw(t, "from"), To: u32.Draw(t, "to"),
					Holder: u32.Draw(t, "holder"), Known: u32.Draw(t, "known"), Active: u64.Draw(t, "active")})
			}
			if rapid.Bool().Draw(t, "scraped") {
				d.Covered = new([6][]Span)
				for i := range d.Covered {
					for range count("spans") {
						d.Covered[i] = append(d.Covered[i], Span{u32.Draw(t, "from"), u32.Draw(t, "to")})
					}
				}
			}
			for range count("unasked") {
				d.Unasked = append(d.Unasked, Span{u32.Draw(t, "from"), u32.Draw(t, "to")})
			}
			o.Devices = append(o.Devices, d)
		}
		for range count("others") {
			o.Others = append(o.Others, Other{Device: u32.Draw(t, "device"), Field: u32.Draw(t, "field"),
				Count: u64.Draw(t, "count"), Sum: u64.Draw(t, "sum"), Max: u64.Draw(t, "max")})
		}
		u.Observers = append(u.Observers, o)
	}
	return u
}

// A usage hour survives a round trip, and its encoding is the core deterministic encoding: the
// library writes the same bytes for the same data.
func TestUsageHourEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawUsage(t)
		b, err := EncodeRow(u)
		if err != nil {
			t.Fatal(err)
		}
		row, err := DecodeRow(TableUsage, b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(row, u) {
			t.Fatalf("read %+v, wrote %+v", row, u)
		}
		var plain any
		if err := cbor.Unmarshal(b, &plain); err != nil {
			t.Fatalf("another reader cannot read it: %v", err)
		}
		again, err := canonical.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, again) {
			t.Fatalf("the library writes %x, this %x", again, b)
		}
	})
}

// For all bytes, decoding a usage hour ends with a row or an error.
func FuzzUsageHour(f *testing.F) {
	f.Add([]byte{0x82, 0x80, 0x80})
	f.Add(appendUsage(nil, &UsageHour{
		Holders:   []Holder{{Workspace: "w"}},
		Observers: []Observer{{Source: "s", Devices: []Device{{Segments: []Segment{{To: 5, Holder: 1}}}}}},
	}))
	f.Add(appendUsage(nil, &UsageHour{Observers: []Observer{{Source: "s", Devices: []Device{{Unasked: []Span{{0, 5}}}, {Covered: new([6][]Span), Unasked: []Span{{1, 2}, {3, 4}}}}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		u := &UsageHour{}
		if err := u.UnmarshalCBOR(b); err != nil {
			return
		}
		again := &UsageHour{}
		if err := again.UnmarshalCBOR(appendUsage(nil, u)); err != nil || !reflect.DeepEqual(u, again) {
			t.Fatalf("%+v is read back as %+v: %v", u, again, err)
		}
	})
}
