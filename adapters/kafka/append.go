package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

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
// calls that do not overlap. Partitions are written in parallel. The log stores times in
// milliseconds; a record without a Time gets the current time.
//
// The error joins one [*PartitionError] per failed partition. A record that was not acknowledged
// may still be in the log, because an answer can get lost. Append retries while the broker fails,
// so records may be in the log twice; see [Stream].
//
// When ctx ends, Append returns at once. A request in flight keeps its partition locked until it
// is answered or times out, so that a later call cannot overtake it. The caller may reuse the
// memory of the records once Append returns.
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
	var order []domain.TopicPartition
	parts := map[domain.TopicPartition][]int{}
	for i := range recs {
		tp := domain.TopicPartition{Topic: recs[i].Topic, Partition: recs[i].Partition}
		if _, seen := parts[tp]; !seen {
			order = append(order, tp)
		}
		parts[tp] = append(parts[tp], i)
	}
	errs := make([]error, len(order))
	var wg sync.WaitGroup
	for i, tp := range order {
		write := func() {
			if acked, err := l.appendTo(ctx, tp, recs, parts[tp]); err != nil {
				errs[i] = &PartitionError{tp, acked, err}
			}
		}
		if i == len(order)-1 { // the common case of one partition needs no goroutine
			write()
		} else {
			wg.Go(write)
		}
	}
	wg.Wait()
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

// lane admits one writer at a time to a partition.
type lane chan struct{}

func (l *Log) lane(tp domain.TopicPartition) lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln, ok := l.lanes[tp]
	if !ok {
		ln = make(lane, 1)
		l.lanes[tp] = ln
	}
	return ln
}

// appendTo writes recs[which...] to one partition, batch by batch.
func (l *Log) appendTo(
	ctx context.Context,
	tp domain.TopicPartition,
	recs []domain.Record,
	which []int,
) (acked int, err error) {
	ln := l.lane(tp)
	select {
	case ln <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	release := func() { <-ln }
	defer func() { release() }()

	enc, _ := encoders.Get().(*batchEncoder)
	if enc == nil {
		enc = &batchEncoder{}
	}
	enc.codec, enc.zstd = l.cfg.Codec, l.zstd
	given := false
	for acked < len(which) {
		if ctx.Err() != nil {
			return acked, context.Cause(ctx)
		}
		batch, n, err := enc.encode(recs, which[acked:], time.Now().UnixMilli())
		if err != nil {
			return acked, err
		}
		for wait := newBackoff(l.cfg.Patience); ; {
			if err := l.guard(ctx, tp, given); err != nil {
				return acked, err
			}
			answer := l.produce(ctx, tp, batch)
			select {
			case err = <-answer:
			case <-ctx.Done():
				release = func() { go func() { _, _ = <-answer, <-ln }() }
				return acked, context.Cause(ctx)
			}
			if err == nil {
				break
			}
			if !temporary(err) {
				return acked, err
			}
			if err := wait.sleep(ctx, err); err != nil {
				return acked, err
			}
			given = true
		}
		if given { // an abandoned request may still read the batch
			enc, given = &batchEncoder{codec: l.cfg.Codec, zstd: l.zstd}, false
		}
		acked += n
	}
	// Only on success: after a failure an abandoned request may still read the batch.
	encoders.Put(enc)
	return acked, nil
}

// guard calls Guard. The caller holds the partition's lane.
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

var encoders sync.Pool // of *batchEncoder

// produce sends a batch and delivers the result in the channel. The request outlives ctx, up to
// requestTimeout, so that the result is known before the lane is released.
func (l *Log) produce(ctx context.Context, tp domain.TopicPartition, batch []byte) <-chan error {
	answer := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		size := binary.BigEndian.AppendUint32(nil, uint32(len(batch))) // kafka-go does not add this prefix
		res, err := l.client.RawProduce(ctx, &kafkago.RawProduceRequest{
			Topic:        string(tp.Topic),
			Partition:    tp.Partition,
			RequiredAcks: kafkago.RequireAll,
			RawRecords:   protocol.RawRecordSet{Reader: io.MultiReader(bytes.NewReader(size), bytes.NewReader(batch))},
		})
		if err == nil {
			err = res.Error
		}
		answer <- err
	}()
	return answer
}
