package projections

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// A tally counts the rows of a table in one month of a partition, and names the last record that
// changed them. Stores write tallies with the rows, so that reading one costs nothing. Tallies are a
// function of the log, as rows are: two stores with equal tallies of a month have equal rows there.
// So what was computed from a month is known to hold without reading the month.

// TallyKey identifies a tally.
type TallyKey struct {
	Partition domain.TopicPartition
	Table     Table
	// Month is the first hour of the month, in hours since 1970 UTC; 0 for tables without time.
	Month int64
}

// Compare orders tallies by partition, table name and month.
func (k TallyKey) Compare(l TallyKey) int {
	return cmp.Or(k.Partition.Compare(l.Partition), strings.Compare(k.Table.String(), l.Table.String()),
		cmp.Compare(k.Month, l.Month))
}

// Tally describes the rows of a key.
type Tally struct {
	TallyKey
	Rows int64
	// Changed is the offset of the last record that added, changed or removed any of the rows.
	Changed int64
}

// ErrNoTallies means that a view cannot say when its rows changed, because its rows are not only
// those of a log. The caller reads the rows instead.
var ErrNoTallies = errors.New("the view has no tallies")

// TalliesOf returns the tallies of a view, by [TallyKey.Compare]. It fails with [ErrNoTallies] if
// the view has none.
func TalliesOf(v View) ([]Tally, error) {
	t, ok := Stored(v).(interface{ Tallies() ([]Tally, error) })
	if !ok {
		return nil, ErrNoTallies
	}
	all, err := t.Tallies()
	if err != nil {
		return nil, fmt.Errorf("read tallies: %w", err)
	}
	return all, nil
}

// Tallies implements the view of [TalliesOf].
func (v memoryView) Tallies() ([]Tally, error) {
	var all []Tally
	for tp, p := range v.m.parts {
		all = p.tallies.list(all, tp)
	}
	slices.SortFunc(all, func(a, b Tally) int { return a.Compare(b.TallyKey) })
	return all, nil
}

// Tallies implements the view of [TalliesOf]. Those of a store count what it left to parts, too.
func (v *overView) Tallies() ([]Tally, error) { return TalliesOf(v.View) }

type tableMonth struct {
	table Table
	month int64
}

type rowsChanged struct{ rows, changed int64 }

// tallies are those of one partition. The zero value is empty.
type tallies struct {
	of map[tableMonth]*rowsChanged
	// last is the tally of each table that was used last, and the hours that it covers, because
	// nearly every record is about the same month as the one before.
	last [tableEnd]struct {
		from, to int64
		of       *rowsChanged
	}
}

// at returns the tally of a row.
func (t *tallies) at(k Key) *rowsChanged {
	l := &t.last[k.Table]
	if l.of != nil && l.from <= k.Hour && k.Hour < l.to {
		return l.of
	}
	month := int64(0)
	l.from, l.to = math.MinInt64, math.MaxInt64
	if k.Table.Timed() {
		month = monthOfHour(k.Hour)
		l.from, l.to = month, nextMonth(month)
	}
	l.of = t.of[tableMonth{k.Table, month}]
	if l.of == nil {
		if t.of == nil {
			t.of = map[tableMonth]*rowsChanged{}
		}
		l.of = &rowsChanged{}
		t.of[tableMonth{k.Table, month}] = l.of
	}
	return l.of
}

// add adds changes that were stored.
func (t *tallies) add(changes *tallies) {
	for k, c := range changes.of {
		if t.of == nil {
			t.of = map[tableMonth]*rowsChanged{}
		}
		if have := t.of[k]; have != nil {
			have.rows, have.changed = have.rows+c.rows, c.changed
		} else {
			own := *c
			t.of[k] = &own
		}
	}
}

func (t *tallies) list(all []Tally, tp domain.TopicPartition) []Tally {
	for k, c := range t.of {
		all = append(all, Tally{TallyKey{tp, k.table, k.month}, c.rows, c.changed})
	}
	return all
}

// sameRows reports whether two tallies count the same rows, except those of months that have parts.
func (t *tallies) sameRows(other *tallies, parts map[int64]bool) bool {
	some := func(m map[tableMonth]*rowsChanged) map[tableMonth]*rowsChanged {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k tableMonth, c *rowsChanged) bool {
			return c.rows == 0 || k.table.Timed() && parts[k.month]
		})
		return m
	}
	return maps.EqualFunc(some(t.of), some(other.of), func(a, b *rowsChanged) bool { return a.rows == b.rows })
}

// Tallied calls yield with what changed since [WorkingSet.Settle]: Rows is how many rows were added
// less those removed. Partition is not set.
func (r *WorkingSet) Tallied(yield func(Tally) bool) {
	for _, t := range r.changes.list(nil, domain.TopicPartition{}) {
		if !yield(t) {
			return
		}
	}
}

// note records a change of a row by the current record.
func (r *WorkingSet) note(k Key, rows int64) {
	if k.Table == TableUsage && rows == 0 { // every change is noted so, too
		r.days[usageDayOf(k)] = r.offset
	}
	t := r.changes.at(k)
	t.rows, t.changed = t.rows+rows, r.offset
}
