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

// Stop says why a partition stands still. The other partitions go on.
type Stop struct {
	Offset int64  `json:"offset"` // of the first record that is not folded
	Reason string `json:"reason"`
	Advice string `json:"advice"` // what a person does about it; empty: it is tried again and may pass
	// Kind is that of the [Lasting] error, for metrics of the process that met it; "passing" of another error.
	Kind string `json:"-"`
}

func (s Stop) String() string {
	text := fmt.Sprintf("stands still at offset %d: %s", s.Offset, s.Reason)
	if s.Advice != "" {
		text += "; " + s.Advice
	}
	return text
}

// Lasting is an error that trying again at once does not mend. It stops the partition
// that it is about, and no other.
type Lasting interface {
	error
	// Advice says in one sentence what a person does; empty: it may pass by itself.
	Advice() string
	// Kind is one of a few words for what is wrong.
	Kind() string
}

// lasting returns the [Lasting] error that err wraps, nil where it wraps none.
func lasting(err error) (l Lasting) {
	errors.As(err, &l)
	return l
}

// Stops are the partitions that stand still, each with the reason.
type Stops map[domain.TopicPartition]Stop

// Partitions returns the partitions in order.
func (s Stops) Partitions() []domain.TopicPartition {
	return slices.SortedFunc(maps.Keys(s), domain.TopicPartition.Compare)
}

// StoppedError means that some partitions could not be folded as far as they
// should. The others were. Whoever gets it says so beside the answer, or gives none.
type StoppedError struct{ Stops Stops }

func (e *StoppedError) Error() string {
	var lines []string
	for _, tp := range e.Stops.Partitions() {
		lines = append(lines, tp.String()+" "+e.Stops[tp].String())
	}
	return strings.Join(lines, "\n")
}

// StopKeeper is a [Store] that remembers why a partition stands still, for other
// processes to see. Moving the position forgets it.
type StopKeeper interface {
	// KeepStop remembers the reason; nil says that the partition is read again.
	KeepStop(ctx context.Context, tp domain.TopicPartition, stop *Stop) error
}

// stopped notes that a partition cannot be folded on. The failure to tell other
// processes is part of the answer, since it may have the same cause.
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

// reads notes that a partition that stood still is read again.
func (r *Runner) reads(ctx context.Context, tp domain.TopicPartition) error {
	r.mu.Lock()
	delete(r.stops, tp)
	r.mu.Unlock()
	if k, ok := r.Store.(StopKeeper); ok {
		return k.KeepStop(ctx, tp, nil)
	}
	return nil
}
