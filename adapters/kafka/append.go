package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"quartermaster/domain"
)

const (
	maxBatchRecords  = 1000
	targetBatchBytes = 1 << 20 // before compression; the record that reaches it closes the batch

	// MaxRecordBytes is the largest size of the key, value and headers of one record together.
	MaxRecordBytes = 4 << 20

	// The largest record may still be added to an almost full batch.
	maxBatchBytes = MaxRecordBytes + targetBatchBytes + 64<<10
)

// TooLargeError means that a record exceeds [MaxRecordBytes]. The call appended nothing. The
// caller must split or refuse the event.
type TooLargeError struct {
	Index int // of the record in the call
	Topic domain.Topic
	Key   string
	Bytes int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("record %d for topic %s with key %q has %d bytes, more than %d",
		e.Index, e.Topic, e.Key, e.Bytes, MaxRecordBytes)
}

// PartitionError means that an append to one partition did not complete. It wraps the cause: the
// broker's refusal, or why the wait for its answer ended.
type PartitionError struct {
	Partition    domain.TopicPartition
	Acknowledged int // number of the partition's records, from the first, that are in the log
	Err          error
}

func (e *PartitionError) Error() string {
	return fmt.Sprintf("append to %s, %d records acknowledged: %v", e.Partition, e.Acknowledged, e.Err)
}

func (e *PartitionError) Unwrap() error { return e.Err }

// Append writes records to the partitions that they name. It returns nil once all in-sync
// replicas have acknowledged all of them. Records of a partition keep their order, also across
// calls that do not overlap. Partitions are written in parallel. Calls that overlap share
// requests: while a request to a partition is in flight, the records of further calls wait and
// are sent together in the next one. The log stores times in milliseconds; a record without a
// Time gets the current time.
//
// The error joins one [*PartitionError] per failed partition. A record that was not acknowledged
// may still be in the log, because an answer can get lost. Append retries while the broker fails,
// so records may be in the log twice; see [Stream]. If the broker refuses a request that several
// calls share, the records of each call are sent again on their own, so that no call fails for
// the records of another.
//
// When ctx ends, Append returns at once. Records that wait are not sent. A request in flight keeps
// its partition occupied until it is answered or times out, so that a later call cannot overtake
// it. The caller may reuse the memory of the records once Append returns.
func (l *Log) Append(ctx context.Context, recs []domain.Record) error {
	for i := range recs {
		r := &recs[i]
		if err := checkSize(i, r); err != nil {
			return err
		}
		if r.Partition < 0 {
			return fmt.Errorf("append record %d: partition is %d", i, r.Partition)
		}
	}
	ctx, cancel := l.bind(ctx)
	defer cancel()
	var calls []*call
	parts := map[domain.TopicPartition]*call{}
	for i := range recs {
		tp := domain.TopicPartition{Topic: recs[i].Topic, Partition: recs[i].Partition}
		c := parts[tp]
		if c == nil {
			c = &call{lane: l.lane(tp), recs: recs, done: make(chan error, 1)}
			parts[tp] = c
			calls = append(calls, c)
		}
		c.which = append(c.which, i)
	}
	for _, c := range calls {
		if ctx.Err() == nil {
			l.queue(c)
		}
	}
	var errs []error
	for _, c := range calls {
		if acked, err := c.wait(ctx); err != nil {
			errs = append(errs, &PartitionError{c.lane.tp, acked, err})
		}
	}
	return errors.Join(errs...)
}

// checkSize returns a *TooLargeError, or nil.
func checkSize(i int, r *domain.Record) error {
	size := len(r.Key) + len(r.Value)
	for j := range r.Headers {
		size += len(r.Headers[j].Key) + len(r.Headers[j].Value)
	}
	if size > MaxRecordBytes {
		return &TooLargeError{i, r.Topic, string(r.Key), size}
	}
	return nil
}

// guard calls Guard. Only the writer of the partition's lane calls it.
func (l *Log) guard(ctx context.Context, tp domain.TopicPartition, failed bool) error {
	if l.Guard == nil {
		return nil
	}
	changes := l.changes.Load() // before the call: later changes need another call
	l.mu.Lock()
	anew := failed || l.agreed[tp] != changes
	l.mu.Unlock()
	if err := l.Guard(ctx, tp, anew); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agreed[tp] = changes
	return nil
}

// countedConn counts the ends of a connection in changes.
type countedConn struct {
	net.Conn
	changes *atomic.Int64
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.changes.Add(1)
	}
	return n, err
}

func (c *countedConn) Close() error {
	c.changes.Add(1)
	return c.Conn.Close()
}
