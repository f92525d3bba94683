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

// Guessing keys must not fill the log, which keeps everything. The first refusal of a principal
// for a reason is reported at once. Further ones are counted and reported as one event at the end
// of the window. At most mostDenials are kept apart in a window, so it adds at most twice as many
// events plus one to the log.
const (
	denialWindow = 5 * time.Minute
	mostDenials  = 20
)

// denials are the refusals in a window. It is safe for concurrent use.
type denials struct {
	wake chan struct{} // signals that fresh has something

	mu     sync.Mutex
	since  time.Time // start of the window
	seen   map[refusedFor]int
	order  []httpapi.Denial // the first refusal of each in seen
	told   int              // number of order that was reported
	others int              // refusals beyond those that are kept apart
}

// refusedFor is the key by which denials are kept apart. The refused client cannot choose its
// values, because it does not choose [httpapi.Denial.Reason].
type refusedFor struct{ principal, reason string }

func newDenials(now time.Time) *denials {
	return &denials{wake: make(chan struct{}, 1), since: now, seen: map[refusedFor]int{}}
}

// add records a denial.
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

// fresh returns the denials that were not reported yet.
func (d *denials) fresh() []httpapi.Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.order[d.told:]
	d.told = len(d.order)
	return out
}

// end ends the window and returns its unreported denials, with counts of the repeated ones.
func (d *denials) end(now time.Time) []httpapi.Denial {
	out := d.fresh()
	d.mu.Lock()
	defer d.mu.Unlock()
	since := d.since.UTC().Format(time.RFC3339)
	for _, one := range d.order {
		if more := d.seen[refusedFor{one.Principal, one.Reason}] - 1; more > 0 {
			one.Reason = fmt.Sprintf("%s; and %d more since %s", one.Reason, more, since)
			one.Target = "" // the repeats may have other targets
			out = append(out, one)
		}
	}
	if d.others > 0 {
		out = append(out, httpapi.Denial{Principal: "others", Reason: fmt.Sprintf("%d refusals since %s, of more addresses, keys and reasons than are told apart",
			d.others, since)})
	}
	d.since, d.order, d.told, d.others = now, nil, 0, 0
	clear(d.seen)
	return out
}

// denialEvent returns the event of a denial. Long texts are truncated.
func denialEvent(d httpapi.Denial, now time.Time) domain.Envelope {
	who := cutText(d.Principal, 256)
	return domain.Envelope{Time: domain.InstantOf(now), Subject: who, Event: &domain.AccessDenied{
		Entity: app.Platform, Principal: who, Action: "push events", Target: d.Target, Reason: cutText(d.Reason, 4096),
	}}
}

// cutText returns the longest prefix of a text that fits into most bytes.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// deny reports denials in the program's log and as events.
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
			// An invalid event would be quarantined, and show up in everybody's reports.
			err := domain.Validate(&env)
			if err == nil {
				err = stream.Append(ctx, &env)
			}
			if err != nil {
				g.log.Warn("cannot record the refusal", "error", err)
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
