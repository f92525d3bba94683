package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"quartermaster/domain"
)

// ErrMoved means that a record batch did not get the offset that it had, because the partition ends
// elsewhere: another program appends to it. The caller stops, and begins anew with an empty log.
var ErrMoved = errors.New("the batch has another offset now: another program appends to this log")

// AppendBatch appends a record batch as it is to a partition that ends where the batch begins. The
// batch MUST be one that [NextBatch] accepts, and nothing else may append to the partition. After a
// failure AppendBatch finds out whether the batch was appended, so it appends it once.
func (l *Log) AppendBatch(ctx context.Context, tp domain.TopicPartition, batch []byte) error {
	b, err := NextBatch(batch)
	if err != nil {
		return err
	}
	if b.InTx {
		return fmt.Errorf("append batch of %s at offset %d: it is of a transaction of another program, "+
			"and a broker takes it from that program alone", tp, b.First)
	}
	return l.retry(ctx, func(ctx context.Context) error {
		_, next, err := l.bounds(ctx, tp)
		switch {
		case err != nil:
			return err
		case next == b.Last+1:
			return nil // by an attempt whose answer got lost; the caller reads it back
		case next != b.First:
			return fmt.Errorf("append batch of %s at offset %d: %w: it ends at %d", tp, b.First, ErrMoved, next)
		}
		// The broker sets the offset, which no checksum covers. An abandoned request may still read sent.
		sent := bytes.Clone(batch[:b.Size])
		clear(sent[headBase:headLength])
		got, err := l.produce(ctx, tp, sent)
		if err == nil && got != b.First {
			err = fmt.Errorf("append batch of %s at offset %d: %w: it got %d", tp, b.First, ErrMoved, got)
		}
		return err
	})
}
