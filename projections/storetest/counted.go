package storetest

import "quartermaster/projections"

// Counted is a view that counts the rows that are read through it, by table.
type Counted struct {
	projections.View
	Rows map[projections.Table]int
}

// Count returns a view that counts rows.
func Count(v projections.View) *Counted { return &Counted{v, map[projections.Table]int{}} }

// Timed returns how many rows were read of tables that are split by time.
func (c *Counted) Timed() (n int) {
	for t, rows := range c.Rows {
		if t.Timed() {
			n += rows
		}
	}
	return n
}

// All returns how many rows were read.
func (c *Counted) All() (n int) {
	for _, rows := range c.Rows {
		n += rows
	}
	return n
}

// Stored implements the view of [projections.Stored]. Rows that are read through it are not counted.
func (c *Counted) Stored() projections.View { return projections.Stored(c.View) }

// Scan implements [projections.View].
func (c *Counted) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return c.View.Scan(q, func(k projections.Key, row projections.Row) error {
		c.Rows[q.Table]++
		return yield(k, row)
	})
}

// Get implements [projections.View].
func (c *Counted) Get(k projections.Key) (projections.Row, error) {
	row, err := c.View.Get(k)
	if row != nil {
		c.Rows[k.Table]++
	}
	return row, err
}
