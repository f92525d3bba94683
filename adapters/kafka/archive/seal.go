package archive

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Source is the log that is archived.
type Source interface {
	// ReadBatches is [kafka.Log.ReadBatches].
	ReadBatches(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64,
		yield func(kafka.Batches) error) error
}

// Policy says when a segment is sealed.
type Policy struct {
	// Bytes seals a segment of at least that size; at most 512 MiB.
	Bytes int64
	// Age seals a smaller one once its first record is that old at the time Now. 0 seals everything.
	Age time.Duration
	Now domain.Instant
	// Key signs the checkpoint in each manifest; nil: there is none.
	Key ed25519.PrivateKey
}

const maxPolicyBytes = maxSegment / 2 // a segment may exceed it by one batch

// MissingError means that a log lacks records that its archive has not: another archive has them, or
// nobody. The archive cannot be continued, because it would have a hole.
type MissingError struct {
	Partition domain.TopicPartition
	Archived  int64 // the archive ends here
	First     int64 // and the log begins here
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s begins at offset %d, and this archive ends at offset %d: if another archive has the "+
		"records between, use it", kafka.ErrArchive, e.Partition, e.First, e.Archived)
}

func (e *MissingError) Unwrap() error { return kafka.ErrArchive }

// Advice implements projections.Lasting.
func (e *MissingError) Advice() string { return kafka.Anew }

// Kind implements projections.Lasting.
func (e *MissingError) Kind() string { return "archive" }

// Seal archives the segments of a partition that can be sealed, and calls sealed with each. The log
// holds the offsets from first to next-1. It never goes beyond the last stable offset. It may be
// called again after any failure, and continues.
func (a *Archive) Seal(
	ctx context.Context,
	log Source,
	tp domain.TopicPartition,
	first, next int64,
	p Policy,
	sealed func(*Manifest),
) error {
	if p.Bytes < 1 || p.Bytes > maxPolicyBytes {
		return fmt.Errorf("archive %s: segments of %d bytes: want 1 to %d", tp, p.Bytes, int64(maxPolicyBytes))
	}
	if err := a.create(ctx); err != nil {
		return err
	}
	head, err := a.Head(ctx, tp)
	if err != nil {
		return err
	}
	tree, err := a.treeOf(ctx, head)
	if err != nil {
		return err
	}
	s := &sealing{archive: a, tp: tp, policy: p, head: head, tree: tree, sealed: sealed}
	from, last := int64(0), domain.Anchor{}
	if head != nil {
		from, last = head.Last+1, head.Anchor()
	}
	switch {
	case first > from:
		return &MissingError{tp, from, first}
	case next < from:
		return &OtherLogError{
			a.store.String(), fmt.Sprintf("a log with %d records in %s", from, tp), fmt.Sprintf("a log with %d", next),
		}
	case next == from:
		return nil
	}
	if last.Offset < first {
		last = domain.Anchor{} // the log begins right after the archive: nothing to compare
	}
	err = log.ReadBatches(ctx, tp, last, from, next, func(b kafka.Batches) error { return s.add(ctx, b) })
	var open *kafka.OpenTransactionError
	switch {
	case errors.As(err, &open): // what comes after it is archived later
	case errors.Is(err, kafka.ErrDiverged):
		return fmt.Errorf("%w: the log is not the one that was archived: %w", kafka.ErrArchive, err)
	case err != nil:
		return err
	}
	if len(s.raw) > 0 && (p.Age == 0 || s.earliest+domain.Instant(p.Age) <= p.Now) {
		return s.seal(ctx)
	}
	return nil
}

// sealing is one call of Seal.
type sealing struct {
	archive *Archive
	tp      domain.TopicPartition
	policy  Policy
	head    *Manifest // of the last sealed segment
	tree    *merkle.Builder
	sealed  func(*Manifest)

	raw      []byte // of the segment that grows
	earliest domain.Instant
	// aborted are the transactions of the segment that were aborted, open those of them that have not
	// ended in it.
	aborted, open []kafka.Transaction
}

// add adds batches to the segment, and seals it whenever it is large enough.
func (s *sealing) add(ctx context.Context, b kafka.Batches) error {
	for _, t := range b.Aborted {
		if !slices.Contains(s.aborted, t) {
			s.aborted, s.open = append(s.aborted, t), append(s.open, t)
		}
	}
	for rest := b.Bytes; len(rest) > 0; {
		h, err := kafka.NextBatch(rest)
		if err != nil {
			return err
		}
		if len(s.raw) == 0 {
			s.earliest = h.Earliest
		}
		s.raw = append(s.raw, rest[:h.Size]...)
		s.open = ended(s.open, &h)
		rest = rest[h.Size:]
		if int64(len(s.raw)) >= s.policy.Bytes {
			if err := s.seal(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// seal archives the segment and begins the next one.
func (s *sealing) seal(ctx context.Context) error {
	a, tp := s.archive, s.tp
	first := int64(0)
	if s.head != nil {
		first = s.head.Last + 1
	}
	m, _, err := describe(tp, s.raw, first)
	if err != nil {
		return fmt.Errorf("archive %s: %w", tp, err)
	}
	m.Format, m.Archive, m.Log = Format, a.id, a.log.ID
	from := s.head.treeSize()
	m.Topic, m.Partition, m.TopicID = tp.Topic, tp.Partition, a.topics[tp.Topic]
	m.Bytes, m.SHA256 = int64(len(s.raw)), sha256.Sum256(s.raw)
	m.Aborted = []kafka.Transaction{}
	for _, t := range s.aborted {
		if t.First <= m.Last {
			m.Aborted = append(m.Aborted, t)
		}
	}
	if s.head != nil {
		m.Number, m.Previous = s.head.Number+1, sha256.Sum256(s.head.encode())
	}
	if err := grow(s.tree, &m, s.raw); err != nil {
		return fmt.Errorf("archive %s: %w", tp, err)
	}
	m.Tree = &Tree{s.tree.Root(), s.tree.Frontier(), from, s.tree.Blocks()}
	if s.policy.Key != nil {
		c := m.checkpoint()
		signed, err := c.Sign(s.policy.Key)
		if err != nil {
			return fmt.Errorf("archive %s: %w", tp, err)
		}
		m.Checkpoint = string(signed)
	}
	if err := a.putSegment(ctx, &m, s.raw); err != nil {
		return err
	}
	if err := a.putManifest(ctx, &m); err != nil {
		return err
	}
	s.head, s.raw, s.aborted = &m, s.raw[:0], slices.Clone(s.open)
	if s.sealed != nil {
		s.sealed(&m)
	}
	return nil
}

// attempts is how many wrong objects of a segment are superseded before it is given up.
const attempts = 8

// putSegment stores the object of a segment and reads it back. It completes the manifest.
func (a *Archive) putSegment(ctx context.Context, m *Manifest, raw []byte) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	packed := enc.EncodeAll(raw, nil)
	m.ObjectBytes = int64(len(packed))
	sum := Sum(sha256.Sum256(packed))
	m.ObjectSHA256 = &sum
	for attempt := 0; ; attempt++ {
		m.Object = segmentName(m.partition(), m.First, m.SHA256, attempt)
		err := a.store.Put(ctx, m.Object, packed)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = a.withSegment(ctx, m, func([]byte) error { return nil })
		if err == nil {
			return nil
		}
		// An earlier run may have left a wrong object, or one that another version compressed. The
		// store may have taken other bytes than it was given.
		if !errors.Is(err, kafka.ErrArchive) || attempt == attempts {
			return fmt.Errorf("read back: %w", err)
		}
	}
}

// putManifest stores a manifest and reads it back.
func (a *Archive) putManifest(ctx context.Context, m *Manifest) error {
	name := manifestName(m.partition(), m.First)
	err := a.store.Put(ctx, name, m.encode())
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	found, err := a.get(ctx, name, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return &DamageError{name, m.partition(), m.First, "it was written and cannot be found"}
	}
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if string(found) == string(m.encode()) {
		return nil
	}
	if _, err := parseManifest(found); err != nil {
		return &DamageError{name, m.partition(), m.First, err.Error()}
	}
	return fmt.Errorf("archive %s at offset %d: %w, or did: %s is of other batches", m.partition(), m.First, ErrForked, name)
}
