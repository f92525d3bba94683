package remotewrite

import (
	"context"
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
}

// maxGathered bounds the events of one call.
const maxGathered = 20_000

// put appends events and returns once they are acknowledged, or known not to be. When
// ctx ends before they are on their way, they are not appended; when they are, the
// answer is still waited for, which patience bounds. After an error the log may take
// them later nevertheless: see Config.Append.
func (g *gatherer) put(ctx context.Context, events []domain.Envelope) error {
	if len(events) == 0 {
		return nil
	}
	w := &waiter{events, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.busy {
		g.busy = true
		go g.run(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	g.mu.Lock()
	at := slices.Index(g.waiting, w)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at >= 0 {
		return context.Cause(ctx)
	}
	return <-w.done
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
			w.done <- err
		}
	}
}

func (g *gatherer) call(ctx context.Context, events []domain.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	return g.append(ctx, events)
}
