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

// ErrDiverged means that the log is not the one that rows were folded from: it ends before their
// position, or has another record where they folded one. This happens when a broker loses
// acknowledged records, such as an unsynced tail in a power cut. Rows and log cannot be
// reconciled; see docs/operate/diverged.md.
var ErrDiverged error = &lasting{"diverged", "diverged", divergedAdvice}

// divergedAdvice is what an operator can do when rows and log have diverged.
const divergedAdvice = "stop writers, keep the database, and see docs/operate/diverged.md: " +
	"\"quartermaster generation rebuild NAME\" folds what the log holds now, " +
	"and \"quartermaster generation switch NAME\" activates it"

// DivergedError is an [ErrDiverged] with its details.
type DivergedError struct {
	Partition domain.TopicPartition
	Position  int64         // of the rows
	Folded    domain.Anchor // the last record that they were folded from
	// End is the end of the log if it is shorter than the rows, else -1.
	End int64
	// Found is the record that the log has at Folded.Offset. It is zero if the log is shorter, or
	// if the broker only reported different leader epochs.
	Found domain.Anchor
	// Since is the offset from which on the log differs, derived by the broker from its leader
	// epochs; -1: unknown.
	Since int64
}

func (e *DivergedError) Error() string {
	text := fmt.Sprintf(
		"%v: %s was folded up to offset %d, the last record at %s",
		ErrDiverged, e.Partition, e.Position, e.Folded,
	)
	if e.End >= 0 {
		text += fmt.Sprintf("; the log ends at offset %d", e.End)
	} else {
		text += fmt.Sprintf("; the log has %s", e.Found)
	}
	if e.Since >= 0 {
		text += fmt.Sprintf("; it differs from offset %d on", e.Since)
	}
	return text
}

func (e *DivergedError) Unwrap() error { return ErrDiverged }

// Advice implements projections.Lasting.
func (e *DivergedError) Advice() string { return divergedAdvice }

// Differs says so, as projections.Lasting describes it.
func (e *DivergedError) Differs() {}

// Kind implements projections.Lasting: "shorter" if the log ends before the rows, "other_record"
// if it has another record, "other_leader" if the broker only reported that another leader
// appended the last record.
func (e *DivergedError) Kind() string {
	switch {
	case e.End >= 0:
		return "shorter"
	case !e.Found.IsZero():
		return "other_record"
	}
	return "other_leader"
}

// ReadAfter is [Log.Read] for a reader that has folded the partition up to from. The anchor last
// is the last record before from. ReadAfter fails with a [*DivergedError] unless the log still has
// that record. It checks this at the start and after each reconnect.
func (l *Log) ReadAfter(
	ctx context.Context,
	tp domain.TopicPartition,
	last domain.Anchor,
	from, to int64,
	yield func([]domain.Record) error,
) error {
	if to < from {
		return &TrimmedError{tp, from, to}
	}
	return l.read(ctx, tp, last, from, to, yield)
}

// FollowAfter is [Log.ReadAfter] without an end.
func (l *Log) FollowAfter(
	ctx context.Context,
	tp domain.TopicPartition,
	last domain.Anchor,
	from int64,
	yield func([]domain.Record) error,
) error {
	return l.read(ctx, tp, last, from, math.MaxInt64, yield)
}

// Diverged returns the partitions whose log is not the one that was folded up to their position.
// It ignores partitions without a position, and reads one batch of each partition with an anchor.
func (l *Log) Diverged(
	ctx context.Context,
	at domain.Position,
	anchors map[domain.TopicPartition]domain.Anchor,
) (map[domain.TopicPartition]*DivergedError, error) {
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
	first, next, err := l.BrokerBounds(ctx, tps)
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
		case last.IsZero() || first[tp] > last.Offset && l.Archive == nil:
			continue // nothing to compare with; a trimmed log is reported elsewhere
		}
		err := l.retry(ctx, func(ctx context.Context) error {
			if first[tp] > last.Offset {
				r := &reader{log: l, tp: tp, next: at[tp], to: at[tp], last: last, dec: dec}
				err := r.sameInArchive(ctx)
				if errors.Is(err, ErrTrimmed) {
					return nil // as above
				}
				return err
			}
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
			return nil, fmt.Errorf("compare %s with the last folded record: %w", tp, err)
		}
	}
	return out, nil
}

// resumeWait is the maximum wait of a fetch request for a record that should exist.
const resumeWait = 500 * time.Millisecond

// resume checks that the log has the last record before r.next, if that record is known.
func (r *reader) resume(ctx context.Context, conn net.Conn) error {
	if r.last.IsZero() || r.last == r.confirmed {
		return nil
	}
	since := int64(-1)
	// With the leader epoch, the broker itself reports where the logs diverged (Fetch from
	// version 12 on). A second request without the epoch finds the record that is there now.
	for _, epoch := range []int32{r.last.Epoch, -1} {
		if err := r.ask(conn, fetch{from: r.last.Offset, epoch: epoch, bytes: 1, least: 1, wait: resumeWait}); err != nil {
			return err
		}
		set, _, err := r.answer(conn)
		switch {
		case errors.Is(err, kafkago.OffsetOutOfRange) && epoch >= 0:
			continue // Kafka returns this also for an epoch that it never had
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
			if r.last == r.seam && !found.same(r.last) {
				return &SeamError{r.tp, r.last, found.record}
			}
			if since >= 0 || !found.same(r.last) {
				return &DivergedError{r.tp, r.next, r.last, -1, found.record, since}
			}
			return nil
		}
	}
	return &DivergedError{r.tp, r.next, r.last, -1, domain.Anchor{}, since}
}

// short returns the error for a log that has no record where one was folded.
func (r *reader) short(ctx context.Context, since int64) error {
	first, next, err := r.log.bounds(ctx, r.tp)
	switch {
	case err != nil:
		return err
	case first > r.last.Offset:
		return &TrimmedError{r.tp, r.last.Offset, first}
	case next > r.last.Offset: // the record appeared between the two requests
		return kafkago.OffsetNotAvailable
	}
	diverged := &DivergedError{r.tp, r.next, r.last, next, domain.Anchor{}, since}
	if since >= 0 {
		return diverged
	}
	// Possibly temporary: a new leader may not know yet the end that an earlier one reported.
	return &passing{diverged}
}

// record returns the record at r.last.Offset from an answer that begins with its batch.
func (r *reader) record(set []byte) (found foundRecord, err error) {
	h, whole, err := readHead(set)
	if err != nil {
		return found, err
	}
	if !whole || h.base > r.last.Offset || h.last < r.last.Offset {
		return found, fmt.Errorf(
			"%w: asked for offset %d, got a batch from %d to %d",
			ErrCorrupt, r.last.Offset, h.base, h.last,
		)
	}
	defer r.dec.reset()
	// A record of an aborted transaction was folded as the span of its batch.
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

// foundRecord is the record that the log has at an offset.
type foundRecord struct{ record domain.Anchor }

// same reports whether it is the folded record.
func (f foundRecord) same(a domain.Anchor) bool {
	epochs := f.record.Epoch == a.Epoch || f.record.Epoch < 0 || a.Epoch < 0
	return f.record.Offset == a.Offset && f.record.Hash == a.Hash && epochs
}
