package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Stop says why a partition stopped. The other partitions continue.
type Stop struct {
	Offset int64  `json:"offset"` // of the first record that is not folded
	Reason string `json:"reason"`
	Advice string `json:"advice"` // what a person can do about it; empty: it is retried and may pass
	// Kind is that of the [Lasting] error, for metrics of the process that met it. It is
	// "passing" for any other error.
	Kind string `json:"-"`
}

func (s Stop) String() string {
	text := fmt.Sprintf("stands still at offset %d: %s", s.Offset, s.Reason)
	if s.Advice != "" {
		text += "; " + s.Advice
	}
	return text
}

// Lasting is an error that an immediate retry does not fix. It stops only the partition that it is
// about. One with a method Differs says that the log does not have the records that were read: what
// was folded of them and not committed is given up.
type Lasting interface {
	error
	// Advice says in one sentence what a person can do; empty: it may pass by itself.
	Advice() string
	// Kind is one of a few words for the kind of error.
	Kind() string
}

// lasting returns the [Lasting] error that err wraps, nil if there is none.
func lasting(err error) (l Lasting) {
	errors.As(err, &l)
	return l
}

// Stops are the stopped partitions, each with the reason.
type Stops map[domain.TopicPartition]Stop

// Partitions returns the partitions in order.
func (s Stops) Partitions() []domain.TopicPartition {
	return slices.SortedFunc(maps.Keys(s), domain.TopicPartition.Compare)
}

// StoppedError means that some partitions could not be folded as far as requested. The others were.
// The caller either reports it with the answer or gives no answer.
type StoppedError struct{ Stops Stops }

func (e *StoppedError) Error() string {
	var lines []string
	for _, tp := range e.Stops.Partitions() {
		lines = append(lines, tp.String()+" "+e.Stops[tp].String())
	}
	return strings.Join(lines, "\n")
}

// StopKeeper is a [Store] that remembers why a partition stopped, so that other processes can see
// it. Moving the position clears it.
type StopKeeper interface {
	// KeepStop stores the reason; nil says that the partition is read again.
	KeepStop(ctx context.Context, tp domain.TopicPartition, stop *Stop) error
}

// stopped records that folding of a partition stopped. If storing the reason for other processes
// fails too, the result includes that failure, since it may have the same cause.
func (r *Runner) stopped(ctx context.Context, tp domain.TopicPartition, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrFenced) {
		return err
	}
	stop := Stop{Reason: err.Error(), Kind: "passing"}
	if l := lasting(err); l != nil {
		stop.Advice, stop.Kind = l.Advice(), l.Kind()
	}
	r.mu.Lock()
	stop.Offset = r.next[tp]
	if r.stops == nil {
		r.stops = Stops{}
	}
	r.stops[tp] = stop
	r.mu.Unlock()
	if k, ok := r.Store.(StopKeeper); ok {
		return errors.Join(err, k.KeepStop(ctx, tp, &stop))
	}
	return err
}

// reads records that a stopped partition is read again.
func (r *Runner) reads(ctx context.Context, tp domain.TopicPartition) error {
	r.mu.Lock()
	delete(r.stops, tp)
	r.mu.Unlock()
	if k, ok := r.Store.(StopKeeper); ok {
		return k.KeepStop(ctx, tp, nil)
	}
	return nil
}
