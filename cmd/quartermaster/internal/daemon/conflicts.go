// Package daemon is the command serve. It folds the log continuously, either an embedded log or,
// as one of several instances, a shared Kafka log. It serves its status over HTTP, accepts events
// at the gateway, runs scheduled jobs, and sends webhooks and alerts.
package daemon

import (
	"context"
	"time"
)

// tellEvery is how often serve checks whether it has folded records that claim the place of
// others.
const tellEvery = 5 * time.Second

// tell reports conflicts: those known at the start, and those that this process folds.
func (s *service) tell(ctx context.Context) {
	known := int64(-1)
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		var folded int64
		for _, p := range s.progress() {
			folded += p.Conflicts
		}
		if folded != known {
			n, err := s.conn.TellConflicts(ctx)
			switch {
			case err == nil:
				known = folded
			case ctx.Err() == nil:
				s.log.Warn("cannot report records that claim the place of others", "error", err)
			}
			if n > 0 {
				s.log.Warn("records claim the place of others in their streams: see \"quartermaster quarantine list\"", "records", n)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
