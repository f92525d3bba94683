package app

import (
	"context"
	"fmt"
	"slices"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// conflictSource begins the source names of the events about conflicts. The id of the quarantined
// record follows, and the event is the only one of its stream. Every instance appends the same
// bytes, so the event counts once.
const conflictSource = "quartermaster/conflict/"

// TellConflicts appends an event for every record that claims the place of another in its stream,
// unless one was appended before. It returns the number of events.
func (h *Conn) TellConflicts(ctx context.Context) (int, error) {
	var events []domain.Envelope
	if err := h.View(ctx, func(v projections.View) (err error) {
		events, err = inventory.UntoldConflicts(v, Platform)
		return err
	}); err != nil {
		return 0, err
	}
	var batch []domain.Record
	// A source name may be invalid in an event. Its records stay in quarantine, where "inventory"
	// names them.
	events = slices.DeleteFunc(events, func(env domain.Envelope) bool { return domain.Validate(&env) != nil })
	for i := range events {
		env := &events[i]
		env.Source, env.Incarnation, env.Sequence = conflictSource+env.Subject, 1, 1
		rec, err := wire.Encode(env)
		if err != nil {
			return 0, fmt.Errorf("tell of the conflict of %s: %w", env.Subject, err)
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		if batch = append(batch, rec); len(batch) == appendBatch || i == len(events)-1 {
			if err := h.Log.Append(ctx, batch); err != nil {
				return 0, fmt.Errorf("tell of conflicts: %w", err)
			}
			batch = batch[:0]
		}
	}
	return len(events), nil
}
