package projections

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Reads are what a computation read of a view: tables, and hours of tables that are split by time.
// What was computed holds for every view in which the tallies of these are the same.
type Reads struct {
	tables map[Table]hours
}

// hours are half-open; from 0 means no beginning, to 0 no end.
type hours struct{ from, to int64 }

func (r *Reads) note(t Table, from, to int64) {
	h, known := r.tables[t]
	if !known {
		r.tables[t] = hours{from, to}
		return
	}
	if h.from = min(h.from, from); from == 0 || r.tables[t].from == 0 {
		h.from = 0
	}
	if h.to = max(h.to, to); to == 0 || r.tables[t].to == 0 {
		h.to = 0
	}
	r.tables[t] = h
}

// has reports whether rows of a tally were read, or would have been if there had been any.
func (r *Reads) has(k TallyKey) bool {
	h, ok := r.tables[k.Table]
	return ok && (!k.Table.Timed() || (h.to == 0 || k.Month < h.to) && (h.from == 0 || nextMonth(k.Month) > h.from))
}

// Inputs returns what was read, and its tallies in a view, as text. Texts of different reads differ, even
// if there are no rows yet where only one of them looked. It fails with [ErrNoTallies] for a
// view without any.
func (r *Reads) Inputs(v View) (string, error) {
	all, err := TalliesOf(v)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintln(&b, Method)
	for _, t := range slices.Sorted(maps.Keys(r.tables)) {
		fmt.Fprintf(&b, "%s from %d to %d\n", t, r.tables[t].from, r.tables[t].to)
	}
	for _, t := range all {
		if r.has(t.TallyKey) {
			fmt.Fprintf(&b, "%s %s %d: %d rows, last changed by offset %d\n", t.Partition, t.Table, t.Month, t.Rows, t.Changed)
		}
	}
	return b.String(), nil
}

// readHours is the JSON form of what was read of a table.
type readHours struct {
	Table string `json:"table"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

// MarshalJSON writes what was read, by table.
func (r *Reads) MarshalJSON() ([]byte, error) {
	all := []readHours{}
	for _, t := range slices.Sorted(maps.Keys(r.tables)) {
		all = append(all, readHours{t.String(), r.tables[t].from, r.tables[t].to})
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Reads) UnmarshalJSON(b []byte) error {
	var all []readHours
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	r.tables = map[Table]hours{}
	for _, h := range all {
		t, ok := TableNamed(h.Table)
		if _, twice := r.tables[t]; !ok || twice {
			return fmt.Errorf("table %q is unknown or listed twice", h.Table)
		}
		r.tables[t] = hours{h.From, h.To}
	}
	return nil
}

// Record returns a view that records what is read through it. Position and anchors are not recorded:
// a result that is kept MUST NOT depend on them.
func Record(v View) (View, *Reads) {
	r := &Reads{tables: map[Table]hours{}}
	return recorder{v, r}, r
}

// CountRows returns how many rows a table has in a month, by the first hour of the month, and 0 if the view does not
// count them. It is for what no answer depends on, such as how much memory to take: [Record] does not note it.
func CountRows(v View, t Table, month int64) (n int64) {
	v = Stored(v)
	if r, ok := v.(recorder); ok {
		v = r.view
	}
	all, err := TalliesOf(v)
	if err != nil {
		return 0
	}
	for i := range all {
		if all[i].Table == t && all[i].Month == month {
			n += all[i].Rows
		}
	}
	return n
}

type recorder struct {
	view  View
	reads *Reads
}

func (r recorder) Position() domain.Position { return r.view.Position() }

func (r recorder) Anchors() map[domain.TopicPartition]domain.Anchor { return r.view.Anchors() }

func (r recorder) Scan(q Query, yield func(Key, Row) error) error {
	r.reads.note(q.Table, q.From, q.To)
	return r.view.Scan(q, yield)
}

func (r recorder) Get(k Key) (Row, error) {
	to := int64(0)
	if k.Table.Timed() {
		to = k.Hour + 1
	}
	r.reads.note(k.Table, k.Hour, to)
	return r.view.Get(k)
}

func (r recorder) Scopes(t Table) ([]string, error) {
	r.reads.note(t, 0, 0)
	return r.view.Scopes(t)
}
