package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// ErrDiverged means that the log is not the one that rows were folded from: it ends
// before their position, or holds another record where they folded one. A broker
// that loses acknowledged records, as an unsynced tail in a power cut, leaves such a
// log. Rows and log cannot be joined again; see docs/operate/diverged.md.
var ErrDiverged error = &lasting{"diverged", "diverged", divergedAdvice}

// divergedAdvice is what is left to do once rows and log are not of one history.
const divergedAdvice = "stop writers, keep the database, and see docs/operate/diverged.md: " +
	"\"quartermaster generation rebuild NAME\" folds what the log holds now, and \"quartermaster generation switch NAME\" goes over to it"

// DivergedError is an [ErrDiverged] with its place.
type DivergedError struct {
	Partition domain.TopicPartition
	Position  int64         // of the rows
	Folded    domain.Anchor // the last record that they were folded from
	// End is the end of the log where it is shorter than the rows, else -1.
	End int64
	// Found is the record that the log has at Folded.Offset; zero where End says that
	// there is none, or where the broker only said that its leaders were others.
	Found domain.Anchor
	// Since is the offset from which on the log is another one, as the broker tells by
	// the epochs of its leaders; -1: not known.
	Since int64
}

func (e *DivergedError) Error() string {
	text := fmt.Sprintf("%v: %s was folded up to offset %d, the last record at %s", ErrDiverged, e.Partition, e.Position, e.Folded)
	if e.End >= 0 {
		text += fmt.Sprintf("; the log ends at offset %d", e.End)
	} else {
		text += fmt.Sprintf("; the log has %s", e.Found)
	}
	if e.Since >= 0 {
		text += fmt.Sprintf("; it is another one from offset %d on", e.Since)
	}
	return text
}

func (e *DivergedError) Unwrap() error { return ErrDiverged }

// Advice implements projections.Lasting.
func (e *DivergedError) Advice() string { return divergedAdvice }

// Kind implements projections.Lasting: "shorter" where the log ends before the rows,
// "other_record" where another one was found, "other_leader" where the broker only says
// that the leader that appended the last record was another.
func (e *DivergedError) Kind() string {
	switch {
	case e.End >= 0:
		return "shorter"
	case !e.Found.IsZero():
		return "other_record"
	}
	return "other_leader"
}

// ReadAfter is [Log.Read] for whoever folded the partition up to from and keeps the
// last record before. It fails with a [*DivergedError] unless the log still holds that
// record, now and whenever it connects anew.
func (l *Log) ReadAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	if to < from {
		return &TrimmedError{tp, from, to}
	}
	return l.read(ctx, tp, last, from, to, yield)
}

// FollowAfter is [Log.ReadAfter] without an end, as [Log.Follow] is of Read.
func (l *Log) FollowAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64, yield func([]domain.Record) error) error {
	return l.read(ctx, tp, last, from, math.MaxInt64, yield)
}

// Diverged returns the partitions, of those that have a position, whose log is not
// the one that was folded up to there. It reads one batch of each that has an anchor.
func (l *Log) Diverged(ctx context.Context, at domain.Position, anchors map[domain.TopicPartition]domain.Anchor) (map[domain.TopicPartition]*DivergedError, error) {
	out := map[domain.TopicPartition]*DivergedError{}
	var tps []domain.TopicPartition
	for _, tp := range domain.AllPartitions() {
		if at[tp] > 0 {
			tps = append(tps, tp)
		}
	}
	if len(tps) == 0 {
		return out, nil
	}
	dec, err := newBatchDecoder()
	if err != nil {
		return nil, err
	}
	defer dec.zstd.Close()
	first, next, err := l.AllBounds(ctx, tps)
	if err != nil {
		return nil, err
	}
	conns := map[string]net.Conn{}
	drop := func() {
		for address, conn := range conns {
			conn.Close()
			delete(conns, address)
		}
	}
	defer drop()
	for _, tp := range tps {
		last := anchors[tp]
		switch {
		case next[tp] < at[tp]:
			out[tp] = &DivergedError{Partition: tp, Position: at[tp], Folded: last, End: next[tp], Since: -1}
			continue
		case last.IsZero() || first[tp] > last.Offset:
			continue // nothing to compare with; a trimmed log is said to be one elsewhere
		}
		err := l.retry(ctx, func(ctx context.Context) error {
			leaders, err := l.leaders(ctx, string(tp.Topic))
			if err != nil {
				return err
			}
			address := leaders[tp]
			conn := conns[address]
			if conn == nil {
				if conn, err = l.dial(ctx, address); err != nil {
					return err
				}
				conns[address] = conn
			}
			r := &reader{log: l, tp: tp, next: at[tp], to: at[tp], last: last, dec: dec}
			if l.byID {
				ids, err := l.identify(conn, tp.Topic)
				if err != nil {
					drop()
					return err
				}
				r.topic = ids[tp.Topic]
			}
			err = r.resume(ctx, conn)
			if err != nil && !errors.Is(err, ErrDiverged) {
				drop()
			}
			return err
		})
		var diverged *DivergedError
		switch {
		case errors.As(err, &diverged):
			out[tp] = diverged
		case err != nil:
			return nil, fmt.Errorf("compare %s with the last record that was folded: %w", tp, err)
		}
	}
	return out, nil
}

// resumeWait is how long the broker holds the question for a record that must be there.
const resumeWait = 500 * time.Millisecond

// resume makes sure that the log holds the last record before r.next, if that is known.
func (r *reader) resume(ctx context.Context, conn net.Conn) error {
	if r.last.IsZero() {
		return nil
	}
	since := int64(-1)
	// The leader's epoch lets the broker itself say where the logs parted (Fetch from
	// version 12 on). The record is asked for again without, to name what is there.
	for _, epoch := range []int32{r.last.Epoch, -1} {
		if err := r.ask(conn, fetch{from: r.last.Offset, epoch: epoch, bytes: 1, least: 1, wait: resumeWait}); err != nil {
			return err
		}
		set, _, err := r.answer(conn)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange) && epoch >= 0:
			continue // Kafka says this too of an epoch that it never had
		case errors.Is(err, kafkago.OffsetOutOfRange):
			return r.short(ctx, since)
		case err != nil:
			return err
		case r.diverging >= 0:
			since = r.diverging
		case len(set) == 0:
			return r.short(ctx, since)
		default:
			found, err := r.record(set)
			if err != nil {
				return err
			}
			if since >= 0 || !found.same(r.last) {
				return &DivergedError{r.tp, r.next, r.last, -1, found.record, since}
			}
			return nil
		}
	}
	return &DivergedError{r.tp, r.next, r.last, -1, domain.Anchor{}, since}
}

// short returns what is wrong with a log that holds no record where one was folded.
func (r *reader) short(ctx context.Context, since int64) error {
	first, next, err := r.log.Bounds(ctx, r.tp)
	switch {
	case err != nil:
		return err
	case first > r.last.Offset:
		return &TrimmedError{r.tp, r.last.Offset, first}
	case next > r.last.Offset: // it was mended between the two requests
		return kafkago.OffsetNotAvailable
	}
	diverged := &DivergedError{r.tp, r.next, r.last, next, domain.Anchor{}, since}
	if since >= 0 {
		return diverged
	}
	// Not final at once: a new leader may not yet know the end that an earlier one gave.
	return &passing{diverged}
}

// record returns the record at r.last.Offset from an answer that begins with its batch.
func (r *reader) record(set []byte) (found foundRecord, err error) {
	h, whole, err := readHead(set)
	if err != nil {
		return found, err
	}
	if !whole || h.base > r.last.Offset || h.last < r.last.Offset {
		return found, fmt.Errorf("%w: asked for offset %d, got a batch from %d to %d", ErrCorrupt, r.last.Offset, h.base, h.last)
	}
	defer r.dec.reset()
	// A record of a transaction that was aborted was folded as the span of its batch.
	for _, aborted := range []bool{false, true} {
		if err := r.dec.decode(set[:h.size], r.tp, r.last.Offset, r.last.Offset+1, aborted); err != nil {
			return found, err
		}
		n := len(r.dec.records)
		found.record = r.dec.records[n-1].Anchor()
		if found.same(r.last) {
			return found, nil
		}
	}
	found.record = r.dec.records[0].Anchor()
	return found, nil
}

// foundRecord is what the log has at an offset.
type foundRecord struct{ record domain.Anchor }

// same reports whether it is the record that was folded.
func (f foundRecord) same(a domain.Anchor) bool {
	epochs := f.record.Epoch == a.Epoch || f.record.Epoch < 0 || a.Epoch < 0
	return f.record.Offset == a.Offset && f.record.Hash == a.Hash && epochs
}
