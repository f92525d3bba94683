package projections

import (
	"fmt"
	"testing"
)

// Rows that a store can load again do not accumulate with history. Those of the current hour stay,
// however many there are.
func TestEvict(t *testing.T) {
	rows := NewWorkingSet()
	const nodes = 3 * leastOpen / 2
	key := func(node, hour int) Key {
		return Key{Table: TableUsage, Scope: "c1", ID: fmt.Sprint("n", node), Hour: int64(1000 + hour)}
	}
	most := 0
	for hour := range 50 {
		for node := range nodes {
			change[*UsageHour](rows, key(node, hour))
			if node%100 == 0 {
				rows.Settle()
				rows.Evict(1 << 20)
			}
		}
		most = max(most, rows.Len())
	}
	if most > 6*nodes {
		t.Errorf("of %d nodes %d hours were held at once", nodes, most)
	}
	for node := range nodes {
		if !rows.Holds(key(node, 49)) || !rows.Holds(key(node, 48)) {
			t.Fatalf("the present hours of node %d are gone", node)
		}
	}
	if rows.Holds(key(7, 3)) {
		t.Error("an hour long past is held")
	}
	// A late sample reopens an evicted hour, which must not count as changed once it was stored.
	rows.Settle()
	rows.Add(key(7, 3), &UsageHour{})
	change[*UsageHour](rows, key(7, 3))
	n := 0
	for range rows.Changed {
		n++
	}
	if n != 1 {
		t.Errorf("%d rows changed, want the late one", n)
	}
}
