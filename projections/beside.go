package projections

import (
	"maps"
	"slices"

	"quartermaster/domain"
)

// besideView joins views of different partitions.
type besideView []View

// Beside returns the view of the rows of several views, each of other partitions: no partition, and so
// no row, MUST be in two of them. The position is theirs together. They need not be of one moment,
// because rows of different partitions never depend on each other.
func Beside(views ...View) View {
	if len(views) == 1 {
		return views[0]
	}
	return besideView(views)
}

// Position implements [View].
func (b besideView) Position() domain.Position {
	at := domain.Position{}
	for _, v := range b {
		maps.Copy(at, v.Position())
	}
	return at
}

// Anchors implements [View].
func (b besideView) Anchors() map[domain.TopicPartition]domain.Anchor {
	anchors := map[domain.TopicPartition]domain.Anchor{}
	for _, v := range b {
		maps.Copy(anchors, v.Anchors())
	}
	return anchors
}

// with returns the views that may have rows of a table.
func (b besideView) with(t Table) (some []View) {
	topic := t.Topic()
	for _, v := range b {
		for tp := range v.Position() {
			if topic == "" || tp.Topic == topic {
				some = append(some, v)
				break
			}
		}
	}
	return some
}

// Scan implements [View].
func (b besideView) Scan(q Query, yield func(Key, Row) error) error {
	some := b.with(q.Table)
	if len(some) == 0 {
		return nil
	}
	scans := make([]rowScan, len(some))
	for i, v := range some {
		scans[i] = func(yield rowYield) error {
			return v.Scan(q, func(k Key, row Row) error { return yield(k, row, nil) })
		}
	}
	return mergeRows(scans, Key.Compare, func(k Key, row Row, _ []byte) error { return yield(k, row) })
}

// Get implements [View].
func (b besideView) Get(k Key) (Row, error) {
	for _, v := range b.with(k.Table) {
		if row, err := v.Get(k); row != nil || err != nil {
			return row, err
		}
	}
	return nil, nil
}

// Scopes implements [View].
func (b besideView) Scopes(t Table) (all []string, err error) {
	for _, v := range b.with(t) {
		scopes, err := v.Scopes(t)
		if err != nil {
			return nil, err
		}
		all = append(all, scopes...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Tallies implements the view of [TalliesOf].
func (b besideView) Tallies() (all []Tally, err error) {
	for _, v := range b {
		tallies, err := TalliesOf(v)
		if err != nil {
			return nil, err
		}
		all = append(all, tallies...)
	}
	slices.SortFunc(all, func(a, b Tally) int { return a.Compare(b.TallyKey) })
	return all, nil
}

// ForScans returns the view for n scans at once.
func (b besideView) ForScans(n int) View {
	each := make(besideView, len(b))
	for i, v := range b {
		each[i] = v
		if own, ok := v.(interface{ ForScans(n int) View }); ok {
			each[i] = own.ForScans(n * len(b))
		}
	}
	return each
}
