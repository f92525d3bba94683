package projections

import (
	"testing"

	"pgregory.net/rapid"
)

// At every moment the last sample decides who held the device, and without a holder, whether it was
// busy, however samples were joined and cut: compared with an array of milliseconds.
func TestHold(t *testing.T) {
	type moment struct {
		seen, busy bool
		holder     uint32
	}
	rapid.Check(t, func(t *rapid.T) {
		var d Device
		var want, got [100]moment
		for range rapid.IntRange(1, 20).Draw(t, "samples") {
			from := rapid.Uint32Range(0, 98).Draw(t, "from")
			to := rapid.Uint32Range(from+1, 99).Draw(t, "to")
			g := Segment{From: from, To: to, Holder: rapid.Uint32Range(0, 2).Draw(t, "holder")}
			mean := rapid.SampledFrom([]int{-1, 0, 1, 48, 49, 50, 51, 1000}).Draw(t, "mean")
			if mean >= 0 {
				g.Known, g.Active = to-from, uint64(mean)*uint64(to-from)
			}
			d.hold(g)
			for i := from; i < to; i++ {
				want[i] = moment{true, g.Holder == 0 && mean >= 50, g.Holder}
			}
		}
		for _, s := range d.Segments {
			for i := s.From; i < s.To; i++ {
				if got[i].seen {
					t.Fatalf("segments overlap: %+v", d.Segments)
				}
				got[i] = moment{true, s.Busy(), s.Holder}
			}
			if s.Holder == 0 && s.Known != 0 && s.Known != s.To-s.From {
				t.Fatalf("measured and not: %+v", s)
			}
		}
		if got != want {
			t.Fatalf("got  %v\nwant %v\nof %+v", got, want, d.Segments)
		}
	})
}
