package postgres

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"quartermaster/projections"
)

func TestMessages(t *testing.T) {
	size := func(n *int) int { return *n }
	for _, c := range []struct {
		rows []int
		want string
	}{
		{nil, "[]"},
		{[]int{10}, "[[10]]"},
		{[]int{11, 1}, "[[11] [1]]"},
		{[]int{1, 11, 1}, "[[1] [11] [1]]"},
		{[]int{5, 5, 1, 9, 1, 1}, "[[5 5] [1 9] [1 1]]"},
		{[]int{1, 1, 1, 1, 1}, "[[1 1 1] [1 1]]"},
	} {
		got := fmt.Sprint(slices.Collect(messages(c.rows, tuning{array: 3, bytes: 10}, size)))
		if got != c.want {
			t.Errorf("%v is sent as %s, want %s", c.rows, got, c.want)
		}
	}
}

// TestLargeRows stores and replaces rows that are so large that few fit in a message.
func TestLargeRows(t *testing.T) {
	db := opened(t)
	s := db.Store(generation(t, db), "")
	spec := tableOf[projections.TableNodes]
	for _, fresh := range []bool{true, false} {
		var rows []stored
		for i := range 9 {
			id := fmt.Sprint(i)
			rows = append(rows, stored{
				key: projections.Key{Table: spec.of, Scope: "c1", ID: id}, scope: "c1", id: id, plain: true,
				row: make([]byte, 5<<20), facts: []byte(`[]`), fresh: fresh,
			})
		}
		rows[4].row = make([]byte, defaultTuning.bytes+1)
		sent := 0
		for chunk := range messages(rows, defaultTuning, (*stored).size) {
			n := 0
			for _, a := range spec.arrays(chunk) {
				n += len(a.([]byte))
			}
			if len(chunk) > 1 && n > defaultTuning.bytes+1<<10 {
				t.Errorf("%d rows are sent in %d bytes", len(chunk), n)
			}
			sent++
		}
		if sent != 5 {
			t.Errorf("sent in %d messages, want 5", sent)
		}
		inTx(t, db, func(tx *sql.Tx) error { return writeRows(t.Context(), tx, defaultTuning, spec.target(s.schema), rows) })
		if got := texts(t, db, "select count(*) || ' ' || sum(length(row)) from "+s.schema+".nodes")[0]; got != fmt.Sprintf("9 %d", 8*5<<20+defaultTuning.bytes+1) {
			t.Errorf("stored %s", got)
		}
	}
}
