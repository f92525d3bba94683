package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"quartermaster/domain"
)

// Archive holds the record batches of the log from its beginning on, so that the log may be trimmed.
// It is safe for concurrent use. What it returns MUST be what the broker held, byte for byte.
type Archive interface {
	// Reaches returns the offset up to which a partition is archived. Once that is at least offset, it
	// need not look again.
	Reaches(ctx context.Context, tp domain.TopicPartition, offset int64) (end int64, err error)
	// Batches calls yield with the batches of a partition, from the one with the offset from on, until
	// the archive ends or yield fails. It returns the error of yield unchanged. An error that no retry
	// can help is an [ErrArchive].
	Batches(ctx context.Context, tp domain.TopicPartition, from int64, yield func(Batches) error) error
	// Since returns an offset before which the archive has no record of the time t or later.
	Since(ctx context.Context, tp domain.TopicPartition, t domain.Instant) (int64, error)
}

// ErrArchive means that the archive is damaged, incomplete, or not of this log. An operator follows
// the Advice of the error. Nothing may be trimmed meanwhile.
var ErrArchive error = &lasting{
	text: "archive cannot be used",
	kind: "archive",
	advice: "\"quartermaster archive verify\" names every object that is missing or wrong: " +
		"restore it from a copy of the archive, and folding continues",
}

// Batches is a run of record batches, byte for byte as the broker holds them.
type Batches struct {
	First, Next int64 // the first offset, and the one after the last
	Bytes       []byte
	// Aborted are the transactions that were aborted and may have records here.
	Aborted []Transaction
}

// Batch is the header of a record batch.
type Batch struct {
	First, Last int64
	Size        int            // bytes
	Producer    int64          // -1 without idempotence
	Control     bool           // it ends a transaction of its producer
	InTx        bool           // it is part of a transaction of its producer
	Earliest    domain.Instant // of the first record
	Latest      domain.Instant // the latest of its records
}

// NextBatch returns the header of the first batch in b. It fails with [ErrCorrupt] unless the batch
// is complete, has the right checksum, and has a record for each of its offsets.
func NextBatch(b []byte) (Batch, error) {
	h, whole, err := readHead(b)
	if err != nil {
		return Batch{}, err
	}
	if !whole {
		return Batch{}, fmt.Errorf("%w: %d bytes are not a whole batch", ErrCorrupt, len(b))
	}
	be := binary.BigEndian
	if want, got := be.Uint32(b[headCRC:]), crc32.Checksum(b[headAttributes:h.size], castagnoli); want != got {
		return Batch{}, fmt.Errorf("%w: checksum of batch at offset %d is %08x, must be %08x", ErrCorrupt, h.base, got, want)
	}
	if count := int64(int32(be.Uint32(b[headCount:]))); count != h.last-h.base+1 {
		return Batch{}, fmt.Errorf("%w: batch at offset %d has %d records for %d offsets",
			ErrCorrupt, h.base, count, h.last-h.base+1)
	}
	return Batch{
		h.base, h.last, h.size, h.producer, h.attributes&attrControl != 0, h.attributes&attrTransactional != 0,
		instant(int64(be.Uint64(b[headFirstTime:]))), instant(int64(be.Uint64(b[headMaxTime:]))),
	}, nil
}

// LastOf returns the last record of a batch, which MUST be one that [NextBatch] accepts.
func LastOf(tp domain.TopicPartition, batch []byte) (domain.Anchor, error) {
	dec, err := newBatchDecoder()
	if err != nil {
		return domain.Anchor{}, err
	}
	defer dec.zstd.Close()
	return dec.last(tp, batch)
}

func (d *batchDecoder) last(tp domain.TopicPartition, batch []byte) (domain.Anchor, error) {
	defer d.reset()
	h, err := NextBatch(batch)
	if err != nil {
		return domain.Anchor{}, err
	}
	if err := d.decode(batch[:h.Size], tp, h.Last, h.Last+1, false); err != nil {
		return domain.Anchor{}, err
	}
	return d.records[len(d.records)-1].Anchor(), nil
}

// EachRecord calls yield with the records of batches, as [Log.Read] delivers them. The batches MUST be
// such as [NextBatch] accepts. The slice passed to yield and all memory behind it are reused once yield
// returns. An error of yield ends EachRecord and is returned unchanged.
func EachRecord(tp domain.TopicPartition, b Batches, yield func([]domain.Record) error) error {
	dec, err := newBatchDecoder()
	if err != nil {
		return fmt.Errorf("decode %s: %w", tp, err)
	}
	defer dec.zstd.Close()
	r := &reader{
		log: &Log{cfg: Config{Batch: yieldRecords}}, tp: tp, next: b.First, to: b.Next,
		yield: yield, aborted: slices.Clone(b.Aborted), dec: dec,
	}
	if err := r.handOut(b.Bytes, b.Next); r.refused == nil && err != nil {
		return fmt.Errorf("decode %s at offset %d: %w", tp, r.next, err)
	}
	return r.refused
}

// ReadBatches is [Log.ReadAfter] for whole record batches, as the broker holds them. The last batch
// may go beyond to. The memory of the batches is reused once yield returns. Batches of a transaction
// are delivered when it has ended; ReadBatches fails with an [*OpenTransactionError] at one that has
// not, without waiting.
func (l *Log) ReadBatches(
	ctx context.Context,
	tp domain.TopicPartition,
	last domain.Anchor,
	from, to int64,
	yield func(Batches) error,
) error {
	if to < from {
		return &TrimmedError{tp, from, to}
	}
	return l.run(ctx, &reader{log: l, tp: tp, last: last, next: from, to: to, raw: yield})
}

// handRaw yields the batches up to offset next as they are.
func (r *reader) handRaw(set []byte, next int64) error {
	size, begin := 0, 0
	first := int64(-1)
	for at := r.next; at < next; {
		b, err := NextBatch(set[size:])
		if err != nil {
			return err
		}
		if first < 0 {
			first = b.First
		}
		begin, size, at = size, size+b.Size, b.Last+1
	}
	last, err := r.dec.last(r.tp, set[begin:size])
	if err != nil {
		return err
	}
	if r.refused = r.raw(Batches{first, next, set[:size], slices.Clone(r.aborted)}); r.refused != nil {
		return r.refused
	}
	r.last, r.next = last, next
	return nil
}

var errEnough = errors.New("enough was read from the archive")

// fromArchive reads what the log has no longer, after the error trimmed. It goes on to the end of the
// first batch that the log still has, if the archive has it. [reader.resume] then compares that batch
// with the log's. It returns trimmed if the archive does not reach the log.
func (r *reader) fromArchive(ctx context.Context, trimmed *TrimmedError) error {
	archive := r.log.Archive
	if archive == nil {
		return trimmed
	}
	firsts, _, err := r.log.BrokerBounds(ctx, []domain.TopicPartition{r.tp})
	if err != nil {
		return err
	}
	first := firsts[r.tp]
	if !r.last.IsZero() && r.last.Offset < first {
		if err := r.sameInArchive(ctx); err != nil {
			return err
		}
		r.confirmed = r.last
	} else if r.next >= first {
		return trimmed // records are missing within the log
	}
	if r.next >= first {
		return nil
	}
	end, err := archive.Reaches(ctx, r.tp, first)
	if err != nil {
		return err
	}
	if end < first {
		return &UnarchivedError{r.tp, end, first}
	}
	err = archive.Batches(ctx, r.tp, r.next, func(b Batches) error {
		next, err := r.check(b.Bytes)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		r.aborted = slices.Clone(b.Aborted)
		if err := r.handOut(b.Bytes, next); err != nil {
			return err
		}
		if r.next >= r.to || r.next > first {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
	case err != nil:
		return err
	case r.next < first && r.next < r.to:
		return &UnarchivedError{r.tp, r.next, first}
	}
	if r.seam = r.last; r.last.Offset < first {
		r.confirmed = r.last
	}
	return nil
}

// sameInArchive fails with a [*DivergedError] unless the archive has the record before r.next.
func (r *reader) sameInArchive(ctx context.Context) error {
	err := r.log.Archive.Batches(ctx, r.tp, r.last.Offset, func(b Batches) error {
		found, err := r.record(b.Bytes)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrArchive, err)
		case !found.same(r.last):
			return &DivergedError{r.tp, r.next, r.last, -1, found.record, -1}
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	if err == nil {
		firsts, _, err := r.log.BrokerBounds(ctx, []domain.TopicPartition{r.tp})
		if err != nil {
			return err
		}
		return &UnarchivedError{r.tp, r.last.Offset, firsts[r.tp]}
	}
	return err
}

// UnarchivedError is an [ErrTrimmed]: the log was trimmed, and its archive lacks records too.
type UnarchivedError struct {
	Partition domain.TopicPartition
	From, To  int64 // the records that neither has: From <= offset < To
}

func (e *UnarchivedError) Error() string {
	return fmt.Sprintf("%v: %s lacks records before offset %d, and its archive ends at offset %d",
		ErrTrimmed, e.Partition, e.To, e.From)
}

func (e *UnarchivedError) Unwrap() error { return ErrTrimmed }

// SeamError is an [ErrArchive]: archive and log have different records at an offset.
type SeamError struct {
	Partition       domain.TopicPartition
	Archived, Found domain.Anchor
}

func (e *SeamError) Error() string {
	return fmt.Sprintf("%v: it is not of this log: %s has %s in the archive and %s in the log",
		ErrArchive, e.Partition, e.Archived, e.Found)
}

func (e *SeamError) Unwrap() error { return ErrArchive }

// beginnings replaces the first offsets of trimmed partitions by 0 where the archive has the rest.
func (l *Log) beginnings(ctx context.Context, first domain.Position) error {
	if l.Archive == nil {
		return nil
	}
	for tp, at := range first {
		if at == 0 {
			continue
		}
		end, err := l.Archive.Reaches(ctx, tp, at)
		if err != nil {
			return err
		}
		if end >= at {
			first[tp] = 0
		}
	}
	return nil
}

// archivedBefore finds what [Log.Before] asks for among the records that the log has no longer. It
// changes at where there is one.
func (l *Log) archivedBefore(
	ctx context.Context,
	tps []domain.TopicPartition,
	t domain.Instant,
	at domain.Position,
) error {
	if l.Archive == nil {
		return nil
	}
	firsts, _, err := l.BrokerBounds(ctx, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		first := firsts[tp]
		if first == 0 {
			continue
		}
		from, err := l.Archive.Since(ctx, tp, t)
		if err != nil {
			return err
		}
		if from >= first {
			continue
		}
		err = l.Read(ctx, tp, from, first, func(recs []domain.Record) error {
			for i := range recs {
				if recs[i].Time >= t {
					at[tp] = recs[i].Offset
					return errEnough
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	return nil
}
