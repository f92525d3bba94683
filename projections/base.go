package projections

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// A store may leave the rows of sealed months to parts, and keep only rows that are newer than
// their part. [Over] joins both: a row of the store takes precedence over one of a part under the
// same key. No row of a table that is split by time is ever removed, so nothing in a part has to be
// hidden.

// PartSource reads parts by their digest, so that a store reads the rows that it once left to a part
// also after the part was superseded. It is implemented by adapters/parts. Methods MUST be safe for
// concurrent use.
type PartSource interface {
	// Has fails if the part is not there. It need not read the rows.
	Has(p PartDigest) error
	// Scopes returns the scopes that a table has rows in, in order.
	Scopes(p PartDigest, t Table) ([]string, error)
	// Scan calls yield for each row that the query selects, by key, in the form of [AppendRow]. The
	// zero query selects every row. The bytes are valid until yield returns.
	Scan(p PartDigest, q Query, yield func(Key, []byte) error) error
}

// overView is the view of the rows of a store and of the parts below them.
type overView struct {
	View   // the rows that the store has itself
	source PartSource
	parts  []PartDigest
}

// Over returns the view of the rows of own, as they are stored, and of parts below them.
func Over(own View, source PartSource, parts []PartDigest) View {
	if len(parts) == 0 {
		return own
	}
	return &overView{own, source, slices.SortedFunc(slices.Values(parts), func(a, b PartDigest) int {
		return a.Compare(b.PartKey)
	})}
}

// PartsBelow returns the parts below the rows of a view, by partition and month.
func PartsBelow(v View) []PartDigest {
	if _, over := divided(Stored(v)); over != nil {
		return over.parts
	}
	return nil
}

// divided returns the rows that a store has itself, and the view with the parts below them, nil if
// there are none.
func divided(stored View) (own View, over *overView) {
	if o, ok := stored.(*overView); ok {
		return o.View, o
	}
	return stored, nil
}

// under returns the parts that may have rows that a query selects.
func (v *overView) under(q Query) []PartDigest {
	if !q.Table.Timed() {
		return nil
	}
	topic := q.Table.Topic()
	of, scoped := PartKey{}, q.Scope != ""
	if scoped {
		of, _ = PartOf(Key{Table: q.Table, Scope: q.Scope})
	}
	var found []PartDigest
	for _, p := range v.parts {
		if p.Partition.Topic == topic && (!scoped || p.Partition == of.Partition) && p.reaches(q.From, q.To) {
			found = append(found, p)
		}
	}
	return found
}

// reaches reports whether the month has hours within bounds, of which 0 is none.
func (k PartKey) reaches(from, to int64) bool {
	return (from == 0 || nextMonth(k.Month) > from) && (to == 0 || k.Month < to)
}

// Scan implements [View].
func (v *overView) Scan(q Query, yield func(Key, Row) error) error {
	parts := v.under(q)
	if len(parts) == 0 {
		return v.View.Scan(q, yield)
	}
	show := func(k Key, row Row, raw []byte) error {
		if row == nil {
			var err error
			if row, err = DecodeRow(k.Table, raw); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		return yield(k, row)
	}
	scans := []rowScan{func(yield rowYield) error {
		return v.View.Scan(q, func(k Key, row Row) error { return yield(k, row, nil) })
	}}
	for _, p := range parts {
		scans = append(scans, v.rowsOf(p, q))
	}
	if !q.Last {
		return mergeRows(scans, Key.Compare, show)
	}
	if own, ok := v.View.(memoryView); ok && own.hasLast() && ofNodes(q.Table) {
		return v.scanLast(q, yield)
	}
	// The parts of several months each have a last row.
	var last Key
	var lastRow Row
	var lastRaw []byte
	flush := func() error {
		if lastRow == nil && lastRaw == nil {
			return nil
		}
		return show(last, lastRow, lastRaw)
	}
	if err := mergeRows(scans, Key.Compare, func(k Key, row Row, raw []byte) error {
		if k.Scope != last.Scope || k.ID != last.ID {
			if err := flush(); err != nil {
				return err
			}
		}
		last, lastRow, lastRaw = k, row, append(lastRaw[:0], raw...)
		return nil
	}); err != nil {
		return err
	}
	return flush()
}

// scanLast is Scan for the last rows of nodes, of each of which the store has the last of all.
func (v *overView) scanLast(q Query, yield func(Key, Row) error) error {
	return v.View.Scan(Query{Table: q.Table, Scope: q.Scope, ID: q.ID, Last: true}, func(k Key, row Row) error {
		if q.To == 0 || k.Hour < q.To {
			if k.Hour < q.From {
				return nil
			}
			return yield(k, row)
		}
		k, row, err := v.lastOf(k, q)
		if row == nil || err != nil {
			return err
		}
		return yield(k, row)
	})
}

// lastOf returns the last row of a node within the bounds of a query, nil if there is none.
func (v *overView) lastOf(node Key, q Query) (last Key, row Row, err error) {
	q = Query{Table: q.Table, Scope: node.Scope, ID: node.ID, From: q.From, To: q.To, Last: true}
	if err := v.View.Scan(q, func(k Key, r Row) error {
		last, row = k, r
		return nil
	}); err != nil {
		return last, nil, err
	}
	for _, p := range slices.Backward(v.under(q)) {
		if row != nil && last.Hour >= nextMonth(p.Month) {
			break
		}
		var raw []byte
		if err := v.rowsOf(p, q)(func(k Key, _ Row, b []byte) error {
			if row == nil || k.Hour > last.Hour {
				last, raw = k, slices.Clone(b)
			}
			return nil
		}); err != nil {
			return last, nil, err
		}
		if raw != nil {
			row, err = DecodeRow(last.Table, raw)
			return last, row, err
		}
	}
	return last, row, nil
}

// rowsOf returns the scan of a part.
func (v *overView) rowsOf(p PartDigest, q Query) rowScan {
	return func(yield rowYield) error {
		return v.source.Scan(p, q, func(k Key, b []byte) error {
			raw, err := rowOf(b)
			if err != nil {
				return fmt.Errorf("part %s: %w", p.PartKey, err)
			}
			return yield(k, nil, raw)
		})
	}
}

// rowOf returns the row's own encoding of one in the form of [AppendRow].
func rowOf(b []byte) ([]byte, error) {
	_, raw, err := SplitRow(b)
	return raw, err
}

// ForScans returns the view for n scans at once.
func (v *overView) ForScans(n int) View {
	own, ok := v.View.(interface{ ForScans(n int) View })
	if !ok {
		return v
	}
	return &overView{own.ForScans(n), v.source, v.parts}
}

// Get implements [View].
func (v *overView) Get(k Key) (Row, error) {
	row, err := v.View.Get(k)
	if row != nil || err != nil {
		return row, err
	}
	of, ok := PartOf(k)
	if !ok {
		return nil, nil
	}
	i, ok := slices.BinarySearchFunc(v.parts, of, func(p PartDigest, of PartKey) int { return p.Compare(of) })
	if !ok {
		return nil, nil
	}
	raw, err := RowInPart(v.source, v.parts[i], k)
	if raw == nil || err != nil {
		return nil, err
	}
	if row, err = DecodeRow(k.Table, raw); err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	return row, nil
}

// RowInPart returns the encoding of a row of a part, as [DecodeRow] reads it, nil if it has none under the key.
func RowInPart(source PartSource, p PartDigest, k Key) (raw []byte, err error) {
	q := Query{Table: k.Table, Scope: k.Scope, ID: k.ID, From: k.Hour, To: k.Hour + 1}
	err = source.Scan(p, q, func(at Key, b []byte) error {
		if at != k {
			return nil // an empty name in the query selects all
		}
		found, err := rowOf(b)
		raw = slices.Clone(found)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s from its part: %w", k, err)
	}
	return raw, nil
}

// Scopes implements [View].
func (v *overView) Scopes(t Table) ([]string, error) {
	scopes, err := v.View.Scopes(t)
	if err != nil {
		return nil, err
	}
	for _, p := range v.under(Query{Table: t}) {
		more, err := v.source.Scopes(p, t)
		if err != nil {
			return nil, fmt.Errorf("list the scopes of %s: %w", t, err)
		}
		scopes = append(scopes, more...)
	}
	slices.Sort(scopes)
	return slices.Compact(scopes), nil
}

// rowScan calls yield with rows in order.
type rowScan func(yield rowYield) error

// mergeRows calls yield with the rows of several scans in the order of compare. Of rows with the
// same key only the one of the first scan is passed.
func mergeRows(scans []rowScan, compare func(a, b Key) int, yield rowYield) error {
	if len(scans) == 1 {
		return scans[0](yield)
	}
	type found struct {
		key Key
		row Row
		raw []byte
	}
	type head struct {
		found
		scan int
		next func() (found, bool)
	}
	var heads []*head
	errs := make([]error, len(scans))
	for i, scan := range scans {
		next, stop := iter.Pull(func(yield func(found) bool) {
			errs[i] = scan(func(k Key, row Row, raw []byte) error {
				if !yield(found{k, row, raw}) {
					return errEnough
				}
				return nil
			})
		})
		defer stop()
		h := &head{scan: i, next: next}
		var ok bool
		if h.found, ok = next(); ok {
			heads = append(heads, h)
		}
		if errs[i] != nil {
			return errs[i]
		}
	}
	order := func(a, b *head) int {
		if c := compare(a.key, b.key); c != 0 {
			return c
		}
		return a.scan - b.scan
	}
	slices.SortFunc(heads, order)
	// advance moves the first head on. The heads are in order except for it.
	advance := func() error {
		h := heads[0]
		var ok bool
		if h.found, ok = h.next(); !ok {
			heads = heads[1:]
			return errors.Join(errs...)
		}
		at, _ := slices.BinarySearchFunc(heads[1:], h, order)
		copy(heads, heads[1:at+1])
		heads[at] = h
		return nil
	}
	for len(heads) > 0 {
		h := heads[0]
		key := h.key
		if err := yield(key, h.row, h.raw); err != nil {
			return err
		}
		if err := advance(); err != nil {
			return err
		}
		for len(heads) > 0 && heads[0].key == key {
			if err := advance(); err != nil {
				return err
			}
		}
	}
	return nil
}
