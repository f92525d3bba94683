package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// Sharing returns a function that makes an app for one request of a principal, who sees their scope alone. All of
// them answer from the log and the rows that h holds, at once, and from one cache of answers. h MUST stay open, and be
// caught up, while they are used; they do not close it.
func (h *Conn) Sharing() func(Principal) *App {
	on := h.app
	kept := on.cache()
	return func(who Principal) *App {
		if who.Scope == nil {
			who.Scope = new(access.Scope) // nobody sees everything by mistake
		}
		return &App{
			who: who,
			Dir: on.Dir, Named: on.Named, Brokers: on.Brokers, ConfigPath: on.ConfigPath, Config: on.Config,
			OpenBucket: on.OpenBucket, Patience: on.Patience, Logger: on.Logger,
			shared: h, kept: kept,
		}
	}
}

// IsShared reports whether the app answers from a log and rows that others use at the same time.
func (s *App) IsShared() bool { return s.shared != nil }

// share returns the shared log, without rows.
func (s *App) share() *Conn {
	h := s.shared
	return &Conn{
		app: s, Broker: h.Broker, Log: h.Log, parts: h.parts, source: h.source, ID: h.ID, archive: h.archive, borrowed: true,
	}
}

// openShared returns the shared log and rows once the rows cover everything that the log holds now.
func (s *App) openShared(ctx context.Context) (*Conn, error) {
	h, from := s.share(), s.shared
	h.DB, h.store, h.sealer, h.Runner, h.Generation = from.DB, from.store, from.sealer, from.Runner, from.Generation
	if err := h.CatchUp(ctx); err != nil {
		return nil, err
	}
	h.loaded, h.aside = from.loaded, from.aside // which never change once rows are loaded
	h.caughtUp = true
	return h, nil
}

// Asking returns the principal as they ask an operation: with what they may see of it. It returns a [*DeniedError] if
// they may not ask it.
func (p Principal) Asking(operation string) (Principal, error) {
	if p.Scope == nil {
		p.Scope = new(access.Scope)
	}
	var err error
	if p.Scope, err = p.Scope.For(operation); err != nil {
		return Principal{}, &DeniedError{Err: err}
	}
	return p, nil
}

// Position returns how far the rows are folded, once they cover everything that the log holds now.
func (s *App) Position(ctx context.Context) (at domain.Position, err error) {
	h, err := s.For(Everyone).conn(ctx, Reading)
	if err != nil {
		return nil, err
	}
	err = h.View(ctx, func(v projections.View) error { at = v.Position(); return nil })
	return at, err
}

// Kept returns what was kept under a name, nil if it is not there any more.
func (s *App) Kept(name string) any {
	value, _ := s.cache().get("kept\n" + name)
	return value
}

// Keep keeps a value beside the answers, until others need the room. Equal names MUST have equal values, and nobody may
// change a value.
func (s *App) Keep(name string, value interface{ Bytes() int }) { s.cache().put("kept\n"+name, value) }

// followed waits until the runner that follows the log has folded it up to end, or only stopped partitions are left.
func (h *Conn) followed(ctx context.Context, end domain.Position) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		var at domain.Position
		if err := h.View(ctx, func(v projections.View) error { at = v.Position(); return nil }); err != nil {
			return err
		}
		if at.Covers(end) {
			return nil
		}
		left, stops := sub(end, at), projections.Stops{}
		for tp, stop := range h.Runner.Progress().Stopped {
			if left[tp] > 0 {
				stops[tp] = stop
			}
			delete(left, tp)
		}
		if left.Records() == 0 {
			h.noteStops(stops, end)
			return nil
		}
		if patience := cmp.Or(h.app.Patience, awaitPatience); time.Since(began) > patience {
			return &UnavailableError{Err: fmt.Errorf("the rows lack %s events of the log, and for %s did not catch up: ask again later",
				comma(int(left.Records())), patience)}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
