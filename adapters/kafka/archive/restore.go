package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

// Open returns the archive in a store, of whatever log it is, and the id of that log. It is for
// restoring: to archive and to read a log, use [New], which refuses the archive of another one.
func Open(ctx context.Context, store Store) (a *Archive, log string, err error) {
	text, err := New(store, Log{}).get(ctx, identityFile, 1<<10)
	if err != nil {
		return nil, "", err
	}
	var id identity
	if err := json.Unmarshal(text, &id); err != nil {
		return nil, "", &DamageError{Object: identityFile, Reason: err.Error()}
	}
	a = New(store, Log{ID: id.Log})
	_, err = a.ID(ctx) // checks the rest
	return a, id.Log, err
}

// Target is a new log.
type Target interface {
	Source
	// AppendBatch is [kafka.Log.AppendBatch].
	AppendBatch(ctx context.Context, tp domain.TopicPartition, batch []byte) error
}

// NotEmptyError means that a log holds other records than the archive, so it cannot be restored into.
type NotEmptyError struct {
	Partition domain.TopicPartition
	Offset    int64
	Reason    string
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("restore %s at offset %d: %s; restore into an empty log", e.Partition, e.Offset, e.Reason)
}

// Restore appends to a partition of a new log what the archive has, at the same offsets, and calls
// appended with the number of records of each segment. The log holds the offsets from 0 to next-1, of
// an earlier call that was interrupted. Every segment is read back and compared, also those of the
// earlier call: the records are the same bytes, and only the leader's epoch may differ.
func (a *Archive) Restore(
	ctx context.Context,
	log Target,
	tp domain.TopicPartition,
	next int64,
	appended func(records int64),
) error {
	end, err := a.End(ctx, tp)
	if err != nil {
		return err
	}
	if next > end {
		return &NotEmptyError{tp, end, fmt.Sprintf("the log has %d records, the archive %d", next, end)}
	}
	return a.manifests(ctx, tp, 0, func(m *Manifest) error {
		return a.withSegment(ctx, m, func(raw []byte) error {
			for rest := raw; len(rest) > 0; {
				b, err := kafka.NextBatch(rest)
				if err != nil {
					return err // checked before
				}
				if b.First >= next {
					if err := log.AppendBatch(ctx, tp, rest[:b.Size]); err != nil {
						return err
					}
				} else if b.Last >= next {
					return &NotEmptyError{tp, next, "the log ends within a batch of the archive"}
				}
				rest = rest[b.Size:]
			}
			differs, err := compare(ctx, log, tp, m, raw, m.First, sameButEpoch)
			if errors.Is(err, errDiffers) {
				return &NotEmptyError{tp, differs, errDiffers.Error()}
			}
			if err != nil {
				return err
			}
			if appended != nil {
				appended(m.Records())
			}
			return nil
		})
	})
}

// The leader's epoch in the header of a batch is the broker's; no checksum covers it.
const epochFrom, epochTo = 12, 16

func sameButEpoch(x, y []byte) bool {
	return bytes.Equal(x[:epochFrom], y[:epochFrom]) && bytes.Equal(x[epochTo:], y[epochTo:])
}
