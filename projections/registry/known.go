package registry

import (
	"quartermaster/domain"
	"quartermaster/projections"
)

// Known returns a view of what was known by a time: the versions of every history that their source
// recorded by then, or else that had been appended; 0: the view unchanged. Rows other than
// histories are unchanged; [demand.Pools] has its own filter.
func Known(view projections.View, by domain.Instant) projections.View {
	if by == 0 {
		return view
	}
	return knownView{view, by, func(v *projections.Version) bool { return v.Known() <= by }}
}

// Then returns a view of what had taken effect or was known by a time. What had taken effect was
// known to its author, whenever the log learned of it.
func Then(view projections.View, at domain.Instant) projections.View {
	return knownView{view, at, func(v *projections.Version) bool { return v.Order.Effective <= at || v.Known() <= at }}
}

// knownView shows the versions of histories that keep accepts, without later repeats of faults.
type knownView struct {
	projections.View
	by    domain.Instant
	keeps func(*projections.Version) bool
}

// Scan implements [projections.View].
func (v knownView) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	if !q.Last {
		return v.View.Scan(q, func(k projections.Key, row projections.Row) error {
			if row = v.known(row); row == nil {
				return nil
			}
			return yield(k, row)
		})
	}
	// The row with the greatest hour may not have been known.
	q.Last = false
	var last projections.Key
	var found projections.Row
	pass := func() error {
		if found == nil {
			return nil
		}
		return yield(last, found)
	}
	err := v.View.Scan(q, func(k projections.Key, row projections.Row) error {
		if row = v.known(row); row == nil {
			return nil
		}
		if k.Scope != last.Scope || k.ID != last.ID {
			if err := pass(); err != nil {
				return err
			}
		}
		last, found = k, row
		return nil
	})
	if err != nil {
		return err
	}
	return pass()
}

// Get implements [projections.View].
func (v knownView) Get(k projections.Key) (projections.Row, error) {
	row, err := v.View.Get(k)
	if row == nil || err != nil {
		return nil, err
	}
	return v.known(row), nil
}

// known returns the part of a row that was known, nil if nothing was.
func (v knownView) known(row projections.Row) projections.Row {
	h, ok := row.(*projections.History)
	if !ok {
		return row
	}
	n, goOn := 0, false
	for i := range h.Versions {
		if v.keeps(&h.Versions[i]) {
			n++
			goOn = goOn || h.Versions[i].Last > v.by
		}
	}
	switch {
	case n == 0:
		return nil
	case n == len(h.Versions) && !goOn:
		return h
	}
	out := &projections.History{Versions: make([]projections.Version, 0, n)}
	for i := range h.Versions {
		if v.keeps(&h.Versions[i]) {
			out.Versions = append(out.Versions, h.Versions[i].Until(v.by))
		}
	}
	return out
}
