package postgres

import (
	"context"
	"fmt"
)

// Ask has the instances commit what they have folded: within a heartbeat and the time of a commit.
// Otherwise the rows of a large fleet are minutes behind the log (decision 67). Within ten seconds of
// another request it changes nothing, so that writing does not grow with the number of readers; a
// caller that waits asks again.
func (db *DB) Ask(ctx context.Context) error {
	if _, err := db.ExecContext(ctx, `
		update quartermaster.wanted set asked = now() where asked < now() - interval '10 seconds'`); err != nil {
		return fmt.Errorf("ask for the present rows: %w", err)
	}
	return nil
}
