package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/kafka"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// Whoever guesses keys must not fill the log, which keeps everything: a principal that
// is refused for one reason is told of at once, and what follows is counted and told
// as one event at the end of the window. Of a window no more than mostDenials are told
// apart, so that the log takes twice as many and one.
const (
	denialWindow = 5 * time.Minute
	mostDenials  = 20
)

// denials are what was refused in a window. It is safe for concurrent use.
type denials struct {
	wake chan struct{} // there is something fresh

	mu     sync.Mutex
	since  time.Time // the window began
	seen   map[refusedFor]int
	order  []httpapi.Denial // those in seen, the first of each
	told   int              // of order
	others int              // beyond those that are told apart
}

// refusedFor is by what denials are told apart: nothing in it is made up by who was
// refused, since [httpapi.Denial.Reason] is not.
type refusedFor struct{ principal, reason string }

func newDenials(now time.Time) *denials {
	return &denials{wake: make(chan struct{}, 1), since: now, seen: map[refusedFor]int{}}
}

// add notes a denial.
func (d *denials) add(one httpapi.Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := refusedFor{one.Principal, one.Reason}
	if _, again := d.seen[of]; !again && len(d.seen) == mostDenials {
		d.others++
		return
	}
	d.seen[of]++
	if d.seen[of] > 1 {
		return
	}
	d.order = append(d.order, one)
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// fresh returns what was not told yet.
func (d *denials) fresh() []httpapi.Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.order[d.told:]
	d.told = len(d.order)
	return out
}

// end ends the window and returns what was not told of it, with counts of what is folded
// together.
func (d *denials) end(now time.Time) []httpapi.Denial {
	out := d.fresh()
	d.mu.Lock()
	defer d.mu.Unlock()
	since := d.since.UTC().Format(time.RFC3339)
	for _, one := range d.order {
		if more := d.seen[refusedFor{one.Principal, one.Reason}] - 1; more > 0 {
			one.Reason = fmt.Sprintf("%s; and %d more since %s", one.Reason, more, since)
			one.Target = "" // which need not be the same
			out = append(out, one)
		}
	}
	if d.others > 0 {
		out = append(out, httpapi.Denial{Principal: "others", Reason: fmt.Sprintf("%d refusals since %s, of more addresses, keys and reasons than are told apart", d.others, since)})
	}
	d.since, d.order, d.told, d.others = now, nil, 0, 0
	clear(d.seen)
	return out
}

// denialEvent is how the log is told. What is too long for it is cut.
func denialEvent(d httpapi.Denial, now time.Time) domain.Envelope {
	who := cutText(d.Principal, 256)
	return domain.Envelope{Time: domain.InstantOf(now), Subject: who, Event: &domain.AccessDenied{
		Entity: app.Platform, Principal: who, Action: "push events", Target: d.Target, Reason: cutText(d.Reason, 4096),
	}}
}

// cutText returns as much of a text as fits into some bytes.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// deny tells of denials in the log of the program and in the log of events.
func (g *gateway) deny(ctx context.Context) {
	tick := time.NewTicker(denialWindow)
	defer tick.Stop()
	var stream *kafka.Stream
	tell := func(ctx context.Context, all []httpapi.Denial) {
		for _, d := range all {
			g.log.Warn("refused", "who", d.Principal, "cluster", d.Target, "reason", d.Reason)
			if stream == nil {
				stream = g.conn.Stream("gateway")
			}
			env := denialEvent(d, time.Now())
			// What is not valid would be quarantined, and mark every report of everybody.
			err := domain.Validate(&env)
			if err == nil {
				err = stream.Append(ctx, &env)
			}
			if err != nil {
				g.log.Warn("cannot note the refusal", "error", err)
			}
		}
	}
	for {
		select {
		case <-g.denials.wake:
			tell(ctx, g.denials.fresh())
		case now := <-tick.C:
			tell(ctx, g.denials.end(now))
		case <-ctx.Done():
			last, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer stop()
			tell(last, g.denials.end(time.Now()))
			return
		}
	}
}
