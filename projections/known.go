package projections

import "quartermaster/domain"

// Known returns a view of what was known by a time: of every history the versions
// that their source says were recorded by then, or else that had been appended; 0:
// the view as it is. Rows that are no histories stand as they are; [Demand] has a
// filter of its own.
func Known(view View, by domain.Instant) View {
	if by == 0 {
		return view
	}
	return knownView{view, by, func(v *Version) bool { return v.Known() <= by }}
}

// then returns a view of what had taken effect or was known by a time. What had
// taken effect was known to whoever did it, whenever the log heard of it.
func then(view View, at domain.Instant) View {
	return knownView{view, at, func(v *Version) bool { return v.Order.Effective <= at || v.Known() <= at }}
}

// knownView shows the versions of histories that it keeps, without repeats of faults
// that came later.
type knownView struct {
	View
	by    domain.Instant
	keeps func(*Version) bool
}

// Scan implements [View].
func (v knownView) Scan(q Query, yield func(Key, Row) error) error {
	if !q.Last {
		return v.View.Scan(q, func(k Key, row Row) error {
			if row = v.known(row); row == nil {
				return nil
			}
			return yield(k, row)
		})
	}
	// The row of the greatest hour may not have been known.
	q.Last = false
	var last Key
	var found Row
	pass := func() error {
		if found == nil {
			return nil
		}
		return yield(last, found)
	}
	err := v.View.Scan(q, func(k Key, row Row) error {
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

// Get implements [View].
func (v knownView) Get(k Key) (Row, error) {
	row, err := v.View.Get(k)
	if row == nil || err != nil {
		return nil, err
	}
	return v.known(row), nil
}

// known returns what was known of a row, nil when nothing was.
func (v knownView) known(row Row) Row {
	h, ok := row.(*History)
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
	out := &History{Versions: make([]Version, 0, n)}
	for i := range h.Versions {
		if v.keeps(&h.Versions[i]) {
			out.Versions = append(out.Versions, h.Versions[i].until(v.by))
		}
	}
	return out
}
