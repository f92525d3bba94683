package projections

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

func drawDemandMonth(t *rapid.T) *DemandMonth {
	u32 := rapid.OneOf(rapid.Uint32Range(0, 30), rapid.Uint32())
	u64 := rapid.OneOf(rapid.Uint64Range(0, 30), rapid.Uint64())
	text := rapid.StringN(0, 40, 200)
	m := &DemandMonth{}
	for range rapid.IntRange(0, 3).Draw(t, "labels") {
		m.Labels = append(m.Labels, DemandLabel{Region: text.Draw(t, "region"), Workspace: text.Draw(t, "workspace")})
	}
	if len(m.Labels) == 0 {
		return m
	}
	for range rapid.IntRange(0, 5).Draw(t, "spans") {
		m.Spans = append(m.Spans, DemandSpan{
			From: u32.Draw(t, "from"), Length: u32.Draw(t, "length"), Label: rapid.Uint32Range(0, uint32(len(m.Labels)-1)).Draw(t, "label"),
			Running: u64.Draw(t, "running"), Pending: u64.Draw(t, "pending"), Owned: u64.Draw(t, "owned"),
			Known: domain.Instant(rapid.Int64().Draw(t, "known")),
		})
	}
	return m
}

// A month of demand survives a round trip through a row and a snapshot, and its encoding is the
// core deterministic encoding.
func TestDemandMonthEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDemandMonth(t)
		b, err := EncodeRow(m)
		if err != nil {
			t.Fatal(err)
		}
		row, err := DecodeRow(TableDemand, b)
		if err != nil || !reflect.DeepEqual(row, m) {
			t.Fatalf("read %+v, wrote %+v: %v", row, m, err)
		}
		k := Key{Table: TableDemand, Scope: "c", ID: "p|m|gpu", Hour: 5}
		section, err := AppendRow(nil, k, m)
		if err != nil {
			t.Fatal(err)
		}
		p, counts := &memoryPartition{rows: NewWorkingSet()}, &tallies{}
		counts.at(k).rows++
		if err := p.fill([][]byte{section}, counts, nil); err != nil {
			t.Fatal(err)
		}
		if got := p.rows.Get(k); !reflect.DeepEqual(got, m) {
			t.Fatalf("a snapshot has %+v, want %+v", got, m)
		}
		var plain any
		if err := cbor.Unmarshal(b, &plain); err != nil {
			t.Fatalf("another reader cannot read it: %v", err)
		}
		again, err := canonical.Marshal(plain)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("the library writes %x, this %x: %v", again, b, err)
		}
	})
}

// For all bytes, decoding a month of demand ends with a row or an error, and the labels of a row
// exist.
func FuzzDemandMonth(f *testing.F) {
	f.Add([]byte{0x82, 0x80, 0x80})
	f.Add(appendDemand(nil, &DemandMonth{
		Labels: []DemandLabel{{Region: "eu"}},
		Spans:  []DemandSpan{{Length: 3_600_000, Running: 1500, Known: -1}, {From: 3_600_000, Length: 5, Known: 7}},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &DemandMonth{}
		if err := m.UnmarshalCBOR(b); err != nil {
			return
		}
		for _, s := range m.Spans {
			_ = m.Labels[s.Label]
		}
		again := &DemandMonth{}
		if err := again.UnmarshalCBOR(appendDemand(nil, m)); err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v is read back as %+v: %v", m, again, err)
		}
	})
}

func TestSeriesIDs(t *testing.T) {
	name := rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\`)), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		pool, model, unit := name.Draw(t, "pool"), name.Draw(t, "model"), rapid.SampledFrom([]string{"gpu", "vm"}).Draw(t, "unit")
		id := seriesID(pool, model, unit)
		if p, m, u := SplitSeries(id); p != pool || m != model || u != unit {
			t.Fatalf("%q %q %q is %q, which is %q %q %q", pool, model, unit, id, p, m, u)
		}
	})
}
