package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"quartermaster/domain"
)

// ErrUndelivered means that a [Stream] took events but has not seen all of them
// acknowledged. It holds them, numbered, and delivers them before anything
// new. The caller calls Flush, or Append with further events; it MUST NOT
// append the same events again, which would number them anew.
var ErrUndelivered = errors.New("events are not yet delivered")

// StreamConfig describes a source that appends events.
type StreamConfig struct {
	// Source and Incarnation name the stream; see [domain.Envelope]. Two
	// streams of the same name MUST NOT append at the same time.
	Source      string
	Incarnation uint64

	// Sequences are the last sequences that this incarnation has in the log,
	// by partition; nil for a new incarnation.
	Sequences map[domain.TopicPartition]uint64

	// PreviousIncarnation and PreviousSequences say where the incarnation
	// before left off; zero and nil when there was none.
	PreviousIncarnation uint64
	PreviousSequences   map[domain.TopicPartition]uint64

	// Encode turns an event into the Time, Key, Value and Headers of a record;
	// Topic and Partition are set by the stream. Their memory must stay as it
	// is until the call of Append that encoded them returns.
	Encode func(*domain.Envelope) (domain.Record, error)
}

// Stream appends the events of one source with dense sequences: in every
// partition 1, 2, 3 and so on, each for ever the same event. A failure may put
// events into the log twice, which the sequence shows; it never leaves one
// out. A Stream is safe for concurrent use; calls take turns.
type Stream struct {
	cfg    StreamConfig
	append func(context.Context, []domain.Record) error

	turn  chan struct{} // held by the call that may touch what follows
	given map[domain.TopicPartition]uint64
	acked map[domain.TopicPartition]uint64
	held  []domain.Record // given a sequence, not acknowledged, in order
	owned int             // how many of held, from the first, are copies
}

// NewStream returns a stream over the log.
func NewStream(log *Log, cfg StreamConfig) *Stream {
	s := &Stream{
		cfg: cfg, append: log.Append, turn: make(chan struct{}, 1),
		given: map[domain.TopicPartition]uint64{}, acked: map[domain.TopicPartition]uint64{},
	}
	maps.Copy(s.given, cfg.Sequences)
	maps.Copy(s.acked, cfg.Sequences)
	return s
}

// Append numbers the events and returns nil once they, and all that was held
// before them, are acknowledged. It sets Source, Incarnation and Sequence of
// each envelope, and the previous incarnation on the first in a partition.
//
// After an error that wraps [ErrUndelivered] the stream holds what was not
// acknowledged. After any other error it took no event and used no sequence:
// ctx ended while another call had its turn, or an event lacks its key, cannot
// be encoded or is a [*TooLargeError].
func (s *Stream) Append(ctx context.Context, events ...*domain.Envelope) error {
	if err := s.take(ctx); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	defer s.release()
	recs := make([]domain.Record, len(events))
	fresh := map[domain.TopicPartition]uint64{}
	for i, e := range events {
		var err error
		if recs[i], err = s.number(e, fresh); err != nil {
			return fmt.Errorf("append event %d: %w", i, err)
		}
		if err := checkSize(i, &recs[i]); err != nil {
			return err
		}
	}
	maps.Copy(s.given, fresh)
	s.held = append(s.held, recs...)
	return s.deliver(ctx)
}

// Flush delivers what is held.
func (s *Stream) Flush(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return fmt.Errorf("flush events: %w", err)
	}
	defer s.release()
	return s.deliver(ctx)
}

// Held returns how many events wait to be delivered.
func (s *Stream) Held() int {
	s.turn <- struct{}{}
	defer s.release()
	return len(s.held)
}

// Sequences returns the last sequence acknowledged in each partition: what a
// later StreamConfig of this incarnation starts from.
func (s *Stream) Sequences() map[domain.TopicPartition]uint64 {
	s.turn <- struct{}{}
	defer s.release()
	return maps.Clone(s.acked)
}

func (s *Stream) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Stream) release() { <-s.turn }

// number gives an event its place and encodes it. fresh holds the sequences
// that this call has given out.
func (s *Stream) number(e *domain.Envelope, fresh map[domain.TopicPartition]uint64) (domain.Record, error) {
	key, err := e.Key()
	if err != nil {
		return domain.Record{}, err
	}
	n := e.Topic().Partitions()
	if n == 0 {
		return domain.Record{}, fmt.Errorf("%s: %w: no topic", e.Event.Type(), domain.ErrIncomplete)
	}
	tp := domain.TopicPartition{Topic: e.Topic(), Partition: domain.PartitionOf([]byte(key), n)}
	last, ok := fresh[tp]
	if !ok {
		last = s.given[tp]
	}
	e.Source, e.Incarnation, e.Sequence = s.cfg.Source, s.cfg.Incarnation, last+1
	e.PreviousIncarnation, e.PreviousSequence = 0, 0
	if e.Sequence == 1 {
		e.PreviousIncarnation, e.PreviousSequence = s.cfg.PreviousIncarnation, s.cfg.PreviousSequences[tp]
	}
	r, err := s.cfg.Encode(e)
	if err != nil {
		return domain.Record{}, err
	}
	if string(r.Key) != key {
		return domain.Record{}, fmt.Errorf("%s: encoded with key %q instead of %q", e.Event.Type(), r.Key, key)
	}
	r.Topic, r.Partition = tp.Topic, tp.Partition
	fresh[tp] = e.Sequence
	return r, nil
}

// deliver appends what is held and keeps what was not acknowledged.
func (s *Stream) deliver(ctx context.Context) error {
	if len(s.held) == 0 {
		return nil
	}
	err := s.append(ctx, s.held)
	failed := partitionErrors(err)
	seen := map[domain.TopicPartition]int{}
	var left []domain.Record
	for i := range s.held {
		r := &s.held[i]
		tp := domain.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		f := failed[tp]
		if err == nil || f == nil && len(failed) > 0 || f != nil && seen[tp] < f.Acknowledged {
			s.acked[tp]++
			seen[tp]++
			continue
		}
		if i < s.owned {
			left = append(left, *r)
		} else {
			left = append(left, cloneRecord(r))
		}
	}
	s.held, s.owned = left, len(left)
	if len(left) > 0 {
		return fmt.Errorf("%w: %d are held: %w", ErrUndelivered, len(left), err)
	}
	return nil
}

// partitionErrors takes an error of [Log.Append] apart.
func partitionErrors(err error) map[domain.TopicPartition]*PartitionError {
	failed := map[domain.TopicPartition]*PartitionError{}
	parts := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	for _, part := range parts {
		var p *PartitionError
		if errors.As(part, &p) {
			failed[p.Partition] = p
		}
	}
	return failed
}
