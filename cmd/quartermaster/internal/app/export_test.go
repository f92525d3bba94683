package app

import (
	"context"
	"sync/atomic"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
)

// SetManyRows sets from how many rows in memory on a replay drops the live rows, and returns how many
// it was.
func SetManyRows(n int) int {
	was := manyRows
	manyRows = n
	return was
}

// Changed returns the sealed months that have no part with their tallies, and the digests of all.
func Changed(
	ctx context.Context, h *Conn, v projections.View,
) (changed []projections.PartKey, all []projections.PartDigest, err error) {
	m, made, err := h.changed(ctx, v, h.Parts())
	if err != nil {
		return nil, nil, err
	}
	for _, p := range m.parts {
		if !made[p.PartKey] {
			changed = append(changed, p.PartKey)
		}
	}
	return changed, m.parts, nil
}

// Seal leaves the rows of all sealed months to parts.
func Seal(ctx context.Context, h *Conn) error { return h.seal(ctx, h.Runner.Progress().Position) }

// MakeParts makes the parts of a view.
func MakeParts(ctx context.Context, h *Conn, v projections.View) (*PartsMade, error) {
	return h.makeParts(ctx, v)
}

// RowsInMemory returns how many rows the store of a data directory has itself.
func RowsInMemory(h *Conn) (n int) {
	for _, tp := range domain.AllPartitions() {
		n += h.store.Own(tp)
	}
	return n
}

// SetAtSave sets what is called before and after progress is saved.
func SetAtSave(do func()) { atSave = do }

// SetLeastBudget sets the least memory of a verification, and returns what it was.
func SetLeastBudget(n int64) int64 {
	was := leastBudget
	leastBudget = n
	return was
}

// SetMostRows sets where a verification notes how many rows of a partition were in memory.
func SetMostRows(to *atomic.Int64) { mostRows = to }

// Divisions returns how many months an app has divided.
func Divisions(a *App) int { return a.cache().divisions }

// BooksContent returns what SQL shows of a closed month, to work.
func BooksContent(ctx context.Context, a *App, month domain.Interval, work func(*postgres.BooksContent) error) error {
	c := a.For(Everyone)
	return c.read(ctx, "", func(h *Conn, v projections.View) error {
		content, err := c.booksContent(ctx, h, v, month)
		if err != nil {
			return err
		}
		return work(content)
	})
}
