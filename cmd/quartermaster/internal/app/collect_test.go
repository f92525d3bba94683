package app

import (
	"runtime/debug"
	"testing"
)

// TestCollectSooner overlaps two that need garbage to be collected sooner, in both orders of their ends. What was set
// before holds again after both.
func TestCollectSooner(t *testing.T) {
	for _, before := range []int{100, 10, -1} {
		was := debug.SetGCPercent(before)
		t.Cleanup(func() { debug.SetGCPercent(was) })
		is := func() int {
			percent := debug.SetGCPercent(50)
			debug.SetGCPercent(percent)
			return percent
		}
		low := func(percent int) int {
			if before >= 0 {
				return min(before, percent)
			}
			return percent
		}
		for _, firstEndsFirst := range []bool{true, false} {
			first := collectSooner(40)
			one := is()
			second := collectSooner(20)
			both := is()
			left := 40
			if firstEndsFirst {
				first, second, left = second, first, 20
			}
			second()
			if last := is(); one != low(40) || both != low(20) || last != low(left) {
				t.Errorf("of %d: %d, %d and %d", before, one, both, last)
			}
			if first(); is() != before {
				t.Errorf("after both %d, before %d", is(), before)
			}
		}
	}
}
