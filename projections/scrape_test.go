package projections

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// A naive hour: one entry for each second.
type seconds [3600]int

func (s *seconds) fill(from, to uint32, v int) {
	from, to = from/1000, to/1000
	last := int(from) - 1
	for last >= 0 && s[last] == 0 {
		last--
	}
	if hole := int(from) - 1 - last; last >= 0 && s[from] == 0 && hole > 0 && hole <= int(to-from) && hole <= maxBridge/1000 {
		from = uint32(last + 1)
	}
	for i := from; i < to; i++ {
		if s[i] == 0 {
			s[i] = v
		}
	}
}

// Filling covered time changes nothing, in any order: compared with an array of seconds.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Device
		var spans []Span
		var want, covered seconds
		for range rapid.IntRange(1, 40).Draw(t, "parts") {
			from := uint32(rapid.IntRange(0, 3590).Draw(t, "from"))
			to := min(3600, from+uint32(rapid.SampledFrom([]int{1, 5, 15, 30, 400}).Draw(t, "length")))
			who := uint32(rapid.IntRange(0, 2).Draw(t, "holder"))
			mean := rapid.OneOf(rapid.IntRange(48, 51), rapid.IntRange(0, 1000)).Draw(t, "mean")
			d.fill(Segment{From: 1000 * from, To: 1000 * to, Holder: who}, uint64(mean), true)
			want.fill(1000*from, 1000*to, 1+int(who)+10*mean)
			n := covered.total()
			added := cover(&spans, 1000*from, 1000*to)
			covered.fill(1000*from, 1000*to, 1)
			if int(added) != 1000*(covered.total()-n) {
				t.Fatalf("cover(%d, %d) added %d, want %d: %v", from, to, added, 1000*(covered.total()-n), spans)
			}
			if again := cover(&spans, 1000*from, 1000*to); again != 0 {
				t.Fatalf("covering again added %d", again)
			}
		}
		got := seconds{}
		var active, wantActive uint64
		end := uint32(0)
		for _, s := range d.Segments {
			if s.From < end || s.To <= s.From || s.Known != s.To-s.From {
				t.Fatalf("segments %+v", d.Segments)
			}
			end = s.To
			active += s.Active
			for i := s.From / 1000; i < s.To/1000; i++ {
				got[i] = 1 + int(s.Holder)
				if s.Busy() {
					got[i] = -1
				}
			}
		}
		for i := range want {
			if want[i] > 0 {
				wantActive += 1000 * uint64((want[i]-1)/10)
				mean := (want[i] - 1) / 10
				if want[i] = 1 + (want[i]-1)%10; want[i] == 1 && mean >= 50 {
					want[i] = -1 // busy without a known holder
				}
			}
		}
		if got != want || active != wantActive {
			t.Fatalf("active %d, want %d; segments %+v", active, wantActive, d.Segments)
		}
		if !slices.IsSortedFunc(spans, func(a, b Span) int { return int(a.From) - int(b.From) }) {
			t.Fatalf("spans %v", spans)
		}
		for i := 1; i < len(spans); i++ {
			if spans[i].From <= spans[i-1].To {
				t.Fatalf("spans touch: %v", spans)
			}
		}
	})
}

func (s *seconds) total() (n int) {
	for _, v := range s {
		if v != 0 {
			n++
		}
	}
	return n
}

// scrapedCells draws what two monitoring servers, equal or each with half of the data, deliver of
// two GPUs: parts of scrapes, some repeated, roughly in the order of time.
func scrapedCells(t *rapid.T) []*domain.NodeSampled {
	var out []*domain.NodeSampled
	for cell := range rapid.IntRange(1, 12).Draw(t, "cells") {
		from := t0 + domain.Instant(cell)*30*domain.Second
		for _, field := range []uint32{FieldSMActive, FieldEngineActive, FieldUtilization, 0} {
			if !rapid.Bool().Draw(t, fmt.Sprint("field ", field)) {
				continue
			}
			s := &domain.NodeSampled{Node: "n", Interval: domain.Interval{From: from, To: from + 30*domain.Second}, ActivityField: field}
			for g := range 2 {
				id := domain.DeriveGPUID("c", "n", g)
				s.IDs = append(s.IDs, id[:]...)
				if field != 0 {
					s.ActivityMean = append(s.ActivityMean, field%100+uint32(cell)+1)
				}
				s.MemoryUsedMiB = append(s.MemoryUsedMiB, 1000*uint32(cell)+1)
			}
			out = append(out, s)
		}
	}
	return out
}

const t0 = domain.Instant(1_780_272_000) * domain.Second

// Repeated deliveries, by any server and in any parts, give the row of a single delivery.
func TestScrapedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := scrapedCells(t)
		if len(parts) == 0 {
			return
		}
		once, again := NewWorkingSet(), NewWorkingSet()
		for _, s := range parts {
			foldSample(once, "c", "prometheus/a", s, 0)
			foldSample(again, "c", "prometheus/a", s, 0)
			for range rapid.IntRange(0, 2).Draw(t, "again") {
				old := parts[rapid.IntRange(0, len(parts)-1).Draw(t, "which")]
				if old.Interval.To > s.Interval.To {
					old = s // nobody delivers the future
				}
				if slices.Index(parts, old) <= slices.Index(parts, s) {
					foldSample(again, "c", rapid.SampledFrom([]string{"prometheus/a", "prometheus/b"}).Draw(t, "by"), old, 0)
				}
			}
		}
		k := Key{Table: TableUsage, Scope: "c", ID: "n", Hour: HourOf(t0)}
		a, b := once.Get(k).(*UsageHour), again.Get(k).(*UsageHour)
		for i := range b.Observers {
			b.Observers[i].Samples = a.Observers[i].Samples // only the number of samples may differ
		}
		x, _ := EncodeRow(a)
		y, _ := EncodeRow(b)
		if string(x) != string(y) {
			t.Fatalf("once %+v\nagain %+v", a, b)
		}
	})
}

// SM activity takes precedence over engine activity and that over utilization, in every order of
// arrival. A part without activity hides none.
func TestScrapedFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.Permutation(scrapedCells(t)).Draw(t, "order")
		rows := NewWorkingSet()
		best := map[domain.Instant]uint32{}
		for _, s := range parts {
			foldSample(rows, "c", "prometheus/a", s, 0)
			f := s.ActivityField
			if old, ok := best[s.Interval.From]; !ok || rank(f) < rank(old) {
				best[s.Interval.From] = f
			}
		}
		if len(parts) == 0 {
			return
		}
		u := rows.Get(Key{Table: TableUsage, Scope: "c", ID: "n", Hour: HourOf(t0)}).(*UsageHour)
		ranks := Ranked(nil, u)
		for from, field := range best {
			at := uint32((from - t0) / NsPerMs)
			for _, o := range ranks {
				covers := slices.ContainsFunc(o.Devices[0].Segments, func(s Segment) bool { return s.From <= at && at < s.To })
				// A better field may bridge a gap over this cell.
				if covers && rank(o.ActivityField) > rank(field) {
					t.Fatalf("at %d observer %s is believed, and there is field %d", at, o.Source, field)
				}
				if covers {
					break
				}
			}
		}
	})
}

func rank(field uint32) int {
	return ObserverRank(&Observer{Source: "prometheus/c", ActivityField: field})
}
