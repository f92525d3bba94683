package packing

import (
	"testing"

	"pgregory.net/rapid"
)

// Sizes that fit into part of the capacity still do after each function.
func TestDualsAreFeasible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 60).Draw(t, "capacity")
		var of []sizes
		part := rapid.Int64Range(0, capacity).Draw(t, "part of it")
		var contents []int64
		for left := part; left > 0 && len(contents) < 20; {
			x := rapid.Int64Range(0, left).Draw(t, "size")
			contents = append(contents, x)
			of = append(of, sizes{x, 1})
			left -= x
		}
		of = append(of, sizes{rapid.Int64Range(0, capacity).Draw(t, "other size"), 1})
		for i, f := range duals(capacity, of) {
			sum := int64(0)
			for _, x := range contents {
				sum += f(x)
			}
			if sum > f(part) || f(part) > f(capacity) {
				t.Fatalf("function %d makes %d of %v, %d of %d and %d of %d", i, sum, contents, f(part), part, f(capacity), capacity)
			}
		}
	})
}

// The bounds of Martello and Toth where plain sums are too weak.
func TestLineBound(t *testing.T) {
	for _, c := range []struct {
		of   []sizes
		want int64
	}{
		{nil, 0},
		{[]sizes{{6, 3}}, 3},
		{[]sizes{{5, 4}}, 2},
		{[]sizes{{7, 2}, {4, 2}}, 3}, // no 4 with a 7
		{[]sizes{{4, 5}}, 3},         // three would be 12: two to a bin
		{[]sizes{{10, 1}, {9, 1}, {1, 1}}, 2},
	} {
		if got := lineBound([]supply{{10, unbounded}}, c.of); got != c.want {
			t.Errorf("%v: at least %d bins, want %d", c.of, got, c.want)
		}
	}
	// The largest come first, and are missed once they are used up.
	if got := lineBound([]supply{{4, 2}, {10, 1}}, []sizes{{3, 5}}); got != 3 {
		t.Errorf("at least %d machines, want 3", got)
	}
	if got := lineBound([]supply{{4, 1}}, []sizes{{4, 3}}); got != 3 {
		t.Errorf("at least %d machines, want 3", got)
	}
}
