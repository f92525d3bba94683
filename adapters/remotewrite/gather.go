package remotewrite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"quartermaster/domain"
)

// gatherer appends the events of concurrent requests in one call, because the time of an
// acknowledgement hardly depends on the number of events.
type gatherer struct {
	append   func(context.Context, []domain.Envelope) error
	patience time.Duration

	mu      sync.Mutex
	waiting []*waiter
	busy    bool
}

type waiter struct {
	events []domain.Envelope
	done   chan error // receives one result
	// lost are the events that the log will never accept. The request may read it after done was
	// sent.
	lost []lostEvent
}

// lostEvent is an event that the log will never accept, and the reason.
type lostEvent struct {
	event *domain.Envelope
	err   error
}

// maxGathered bounds the events of one call.
const maxGathered = 20_000

// put appends events and returns once they are acknowledged, or known not to be. It returns the
// events that the log will never accept. If ctx ends before the append begins, the events are not
// appended. If it ends later, put still waits for the result, for at most patience. After an error
// the log may still accept the events later: see Config.Append.
func (g *gatherer) put(ctx context.Context, events []domain.Envelope) ([]lostEvent, error) {
	if len(events) == 0 {
		return nil, nil
	}
	w := &waiter{events: events, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.busy {
		g.busy = true
		go g.run(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case err := <-w.done:
		return w.lost, err
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(g.waiting, w)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at >= 0 {
		return nil, context.Cause(ctx)
	}
	err := <-w.done
	return w.lost, err
}

// run appends until no request waits.
func (g *gatherer) run(ctx context.Context) {
	for {
		g.mu.Lock()
		n, events := 0, 0
		for n < len(g.waiting) && (n == 0 || events+len(g.waiting[n].events) <= maxGathered) {
			events += len(g.waiting[n].events)
			n++
		}
		if n == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		batch := slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
		g.mu.Unlock()
		all := batch[0].events
		if n > 1 {
			all = make([]domain.Envelope, 0, events)
			for _, w := range batch {
				all = append(all, w.events...)
			}
		}
		err := g.call(ctx, all)
		for _, w := range batch {
			if errors.Is(err, ErrRefused) {
				// An event of one of the requests makes the call fail for all.
				var own error
				w.lost, own = g.without(ctx, w.events, nil)
				w.done <- own
				continue
			}
			w.done <- err
		}
	}
}

// without appends events except those that the log refuses individually, which it adds to lost. It
// finds them by bisection.
func (g *gatherer) without(ctx context.Context, events []domain.Envelope, lost []lostEvent) ([]lostEvent, error) {
	err := g.call(ctx, events)
	switch {
	case !errors.Is(err, ErrRefused):
		return lost, err
	case len(events) == 1:
		return append(lost, lostEvent{&events[0], err}), nil
	}
	half := len(events) / 2
	if lost, err = g.without(ctx, events[:half], lost); err != nil {
		return lost, err
	}
	return g.without(ctx, events[half:], lost)
}

func (g *gatherer) call(ctx context.Context, events []domain.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	return g.append(ctx, events)
}
