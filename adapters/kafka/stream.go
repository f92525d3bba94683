package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"quartermaster/domain"
)

// ErrUndelivered means that a [Stream] accepted events but not all of them were acknowledged. It
// keeps them, numbered, and delivers them before anything new. The caller calls Flush, or Append
// with more events. It MUST NOT append the same events again, because that would give them new
// sequence numbers.
var ErrUndelivered = errors.New("events are not yet delivered")

// StreamConfig describes a source that appends events.
type StreamConfig struct {
	// Source and Incarnation name the stream; see [domain.Envelope]. Two streams with the same
	// name MUST NOT append at the same time.
	Source      string
	Incarnation uint64

	// Sequences are the last sequence numbers of this incarnation in the log, by partition; nil
	// for a new incarnation.
	Sequences map[domain.TopicPartition]uint64

	// PreviousIncarnation and PreviousSequences are where the previous incarnation ended; zero
	// and nil if there was none.
	PreviousIncarnation uint64
	PreviousSequences   map[domain.TopicPartition]uint64

	// Encode turns an event into the Time, Key, Value and Headers of a record. The stream sets
	// Topic and Partition. The memory of the record MUST NOT change until the call of Append
	// that encoded it returns.
	Encode func(*domain.Envelope) (domain.Record, error)
}

// Stream appends the events of one source with dense sequence numbers: in every partition 1, 2, 3
// and so on, each always for the same event. A failure may write events twice, which the sequence
// shows, but never skips one. A Stream is safe for concurrent use; calls take turns.
type Stream struct {
	cfg    StreamConfig
	append func(context.Context, []domain.Record) error

	turn  chan struct{} // guards the fields below
	given map[domain.TopicPartition]uint64
	acked map[domain.TopicPartition]uint64
	held  []domain.Record // numbered but not acknowledged, in order
	owned int             // number of copies at the beginning of held
}

// NewStream returns a stream that appends to the log.
func NewStream(log *Log, cfg StreamConfig) *Stream {
	s := &Stream{
		cfg: cfg, append: log.Append, turn: make(chan struct{}, 1),
		given: map[domain.TopicPartition]uint64{}, acked: map[domain.TopicPartition]uint64{},
	}
	maps.Copy(s.given, cfg.Sequences)
	maps.Copy(s.acked, cfg.Sequences)
	return s
}

// Append numbers the events and returns nil once they, and all events held before them, are
// acknowledged. It sets Source, Incarnation and Sequence of each envelope, and the previous
// incarnation of the first one in a partition.
//
// After an error that wraps [ErrUndelivered], the stream holds the events that were not
// acknowledged. After any other error it accepted no event and used no sequence number: ctx ended
// while another call had its turn, or an event has no key, cannot be encoded or is too large
// ([*TooLargeError]).
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

// Flush delivers the held events.
func (s *Stream) Flush(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return fmt.Errorf("flush events: %w", err)
	}
	defer s.release()
	return s.deliver(ctx)
}

// Held returns the number of events that wait for delivery.
func (s *Stream) Held() int {
	s.turn <- struct{}{}
	defer s.release()
	return len(s.held)
}

// Sequences returns the last acknowledged sequence number of each partition, for a later
// StreamConfig of this incarnation.
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

// number assigns a partition and a sequence number to an event and encodes it. The map fresh has
// the sequence numbers that this call of Append has assigned.
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

// deliver appends the held events and keeps those that were not acknowledged.
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

// partitionErrors splits an error of [Log.Append] by partition.
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
