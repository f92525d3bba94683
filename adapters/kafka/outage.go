package kafka

import (
	"errors"
	"sync"
	"time"

	"quartermaster/domain"
)

const (
	// outageAfter is how long a reader fails before the log counts as away: a
	// partition that gets another leader is no outage.
	outageAfter = time.Second
	// outageAgain is how often a subscription says that it still fails.
	outageAgain = time.Minute
)

// outage is a time in which the brokers do not answer, of all readers of a Log
// together: it is said once that it began and once that it is over.
type outage struct {
	mu      sync.Mutex
	since   time.Time // of the first failure; zero while there is no outage
	failing map[*reader]bool
	wrong   map[domain.TopicPartition]bool // partitions whose answers were said to be wrong
}

// away notes that a reader has failed since a time. A broker that answers what should
// pass is not away.
func (l *Log) away(r *reader, since time.Time, err error) {
	if l.cfg.Logger == nil || since.IsZero() || time.Since(since) < outageAfter {
		return
	}
	o := &l.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := (*passing)(nil); errors.As(err, &p) {
		l.answered(r)
		if !o.wrong[r.tp] {
			l.cfg.Logger.Warn("a partition cannot be read on; reading is tried again", "partition", r.tp.String(), "error", err)
		}
		if o.wrong == nil {
			o.wrong = map[domain.TopicPartition]bool{}
		}
		o.wrong[r.tp] = true
		return
	}
	if o.failing == nil {
		o.failing = map[*reader]bool{}
	}
	o.failing[r] = true
	if o.since.IsZero() {
		o.since = since
		l.cfg.Logger.Warn("the log does not answer; reading is tried again", "partition", r.tp.String(), "error", err)
	}
}

// back notes that a reader got an answer.
func (l *Log) back(r *reader) {
	if l.cfg.Logger == nil {
		return
	}
	o := &l.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.wrong, r.tp)
	l.answered(r)
}

// answered is to be called with the lock on the outage.
func (l *Log) answered(r *reader) {
	o := &l.outage
	delete(o.failing, r)
	if !o.since.IsZero() && len(o.failing) == 0 {
		l.cfg.Logger.Info("the log answers again", "after", time.Since(o.since).Round(100*time.Millisecond).String())
		o.since = time.Time{}
	}
}

// left notes that a reader has ended. If it did so because nothing answered, the
// outage goes on until whoever reads next is answered.
func (l *Log) left(r *reader) {
	l.outage.mu.Lock()
	defer l.outage.mu.Unlock()
	delete(l.outage.failing, r)
}

// failures turns those of a subscription that go on into few lines.
type failures struct {
	mu          sync.Mutex
	since, said time.Time // zero while there is none
	grave       bool      // one was said that is not a group's forming
}

// fail tells whether to say a failure: the first, the first that is grave, and
// one in a while.
func (f *failures) fail(now time.Time, grave bool) (say bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
	}
	if f.said.IsZero() || grave && !f.grave || now.Sub(f.said) >= outageAgain {
		f.said, f.grave = now, grave || f.grave
		return true
	}
	return false
}

// end tells how long there were failures, zero when there were none or none grave:
// that a group forms is no failure whose end anybody waits for.
func (f *failures) end(now time.Time) (lasted time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grave {
		lasted = max(now.Sub(f.since), 1)
	}
	f.since, f.said, f.grave = time.Time{}, time.Time{}, false
	return lasted
}
