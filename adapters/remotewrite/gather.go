package remotewrite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"quartermaster/domain"
)

// gatherer appends the events of requests that wait at the same time in one call:
// an acknowledgement takes a disk's or a network's time, however much it is for.
type gatherer struct {
	append   func(context.Context, []domain.Envelope) error
	patience time.Duration

	mu      sync.Mutex
	waiting []*waiter
	busy    bool
}

type waiter struct {
	events []domain.Envelope
	done   chan error // of one
	// lost are those of the events that the log will never take. They are the
	// request's once done was sent.
	lost []lostEvent
}

// lostEvent is an event that the log will never take, and why.
type lostEvent struct {
	event *domain.Envelope
	err   error
}

// maxGathered bounds the events of one call.
const maxGathered = 20_000

// put appends events and returns once they are acknowledged, or known not to be, but
// for those that the log will never take, which it returns. When
// ctx ends before they are on their way, they are not appended; when they are, the
// answer is still waited for, which patience bounds. After an error the log may take
// them later nevertheless: see Config.Append.
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

// run appends until nobody waits.
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
				// One of them has an event that spoils the call for all.
				var own error
				w.lost, own = g.without(ctx, w.events, nil)
				w.done <- own
				continue
			}
			w.done <- err
		}
	}
}

// without appends events but for those that the log refuses by themselves, which it
// adds to lost. It finds them by halves.
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
