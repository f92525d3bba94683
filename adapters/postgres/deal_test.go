package postgres

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// If a sharer leaves, only its own partitions move. If one joins, only its share moves. Loads
// differ by at most one.
func TestDeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]string, rapid.IntRange(0, 70).Draw(t, "partitions"))
		for i := range parts {
			parts[i] = fmt.Sprint("a qm.telemetry/", i)
		}
		at, sharers := make([]string, len(parts)), []string{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			before, left := slices.Clone(at), ""
			name := fmt.Sprint("i-", rapid.IntRange(0, 6).Draw(t, "instance"))
			i, there := slices.BinarySearch(sharers, name)
			if there {
				sharers, left = slices.Delete(sharers, i, i+1), name
			} else {
				sharers = slices.Insert(sharers, i, name)
			}
			at = assign(parts, before, sharers)
			if len(sharers) == 0 {
				continue
			}
			load := map[string]int{}
			for i, to := range at {
				load[to]++
				if was := before[i]; was != "" && to != was && was != left && (there || to != name) {
					t.Fatalf("%s moves from %s to %s when %s changes", parts[i], was, to, name)
				}
			}
			least, most := len(parts), 0
			for _, s := range sharers {
				least, most = min(least, load[s]), max(most, load[s])
			}
			if most-least > 1 {
				t.Fatalf("loads %v", load)
			}
			if again := assign(parts, at, sharers); !slices.Equal(again, at) {
				t.Fatal("the assignment is not stable")
			}
			// During the handover, the assignment stays the same.
			half := slices.Clone(before)
			for i := range half {
				if half[i] != at[i] && rapid.Bool().Draw(t, "released") {
					half[i] = ""
				}
			}
			got := assign(parts, half, sharers)
			for i := range got {
				if before[i] == at[i] && got[i] != at[i] {
					t.Fatalf("%s moves in the middle of a change", parts[i])
				}
			}
		}
	})
}
