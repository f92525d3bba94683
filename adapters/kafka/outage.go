package kafka

import (
	"errors"
	"sync"
	"time"

	"quartermaster/domain"
)

const (
	// outageAfter is how long a reader must fail before the log counts as unreachable. A change
	// of leader is shorter and is not an outage.
	outageAfter = time.Second
	// outageAgain is the interval at which a subscription logs that it still fails.
	outageAgain = time.Minute
)

// outage is a period in which the brokers do not answer, for all readers of a Log together. Its
// begin and its end are logged once each.
type outage struct {
	mu      sync.Mutex
	since   time.Time // of the first failure; zero while there is no outage
	failing map[*reader]bool
	wrong   map[domain.TopicPartition]bool // partitions whose invalid answers were logged
}

// away records that a reader has failed since a time. A broker that answers with a passing error
// is reachable, so this is not an outage.
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
			l.cfg.Logger.Warn("cannot continue reading a partition; retrying", "partition", r.tp.String(), "error", err)
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
		l.cfg.Logger.Warn("the log does not answer; retrying", "partition", r.tp.String(), "error", err)
	}
}

// back records that a reader got an answer.
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

// answered ends the outage if no reader fails any more. The caller holds the lock of the outage.
func (l *Log) answered(r *reader) {
	o := &l.outage
	delete(o.failing, r)
	if !o.since.IsZero() && len(o.failing) == 0 {
		l.cfg.Logger.Info("the log answers again", "after", time.Since(o.since).Round(100*time.Millisecond).String())
		o.since = time.Time{}
	}
}

// left records that a reader has ended. If it ended because of the outage, the outage lasts until
// the next reader gets an answer.
func (l *Log) left(r *reader) {
	l.outage.mu.Lock()
	defer l.outage.mu.Unlock()
	delete(l.outage.failing, r)
}

// failures limits how often a subscription logs continuing failures.
type failures struct {
	mu          sync.Mutex
	since, said time.Time // zero while there is no failure
	grave       bool      // a failure other than the forming of the group was logged
}

// fail reports whether to log a failure: the first, the first grave one, and then one per
// outageAgain.
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

// end returns how long the failures lasted. It returns zero if there was no grave one, because
// nobody needs to know that a consumer group has formed.
func (f *failures) end(now time.Time) (lasted time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.grave {
		lasted = max(now.Sub(f.since), 1)
	}
	f.since, f.said, f.grave = time.Time{}, time.Time{}, false
	return lasted
}
