package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
)

// Verified is the result of [Archive.Verify].
type Verified struct {
	Segments int
	Records  int64
	Bytes    int64 // of batches
	// Unreferenced counts segment objects without a manifest, which a crash or a superseded object
	// leaves. They are not part of the archive.
	Unreferenced int
	// Faults are [*DamageError]s and [*OtherLogError]s, in the order of partitions and offsets.
	Faults []error
}

// Verify reads every object of partitions and checks it. It calls read with the bytes of each segment
// that was read. Its error means that it could not check everything.
func (a *Archive) Verify(ctx context.Context, tps []domain.TopicPartition, read func(bytes int64)) (*Verified, error) {
	v := &Verified{}
	var mu sync.Mutex
	faults := map[domain.TopicPartition][]error{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inMemory)
	check := func(tp domain.TopicPartition) error {
		used := map[string]bool{}
		fault := func(err error) error {
			if !errors.Is(err, kafka.ErrArchive) {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			faults[tp] = append(faults[tp], err)
			return nil
		}
		names, err := a.chain(ctx, tp, true)
		if err != nil {
			return fault(err)
		}
		var before *Manifest
		for i, name := range names {
			m, err := a.manifest(ctx, tp, name, before)
			if err != nil && before != nil && errors.Is(err, kafka.ErrArchive) {
				// It may be right by itself; then what follows it can be checked against it.
				_ = fault(err)
				m, err = a.manifest(ctx, tp, name, nil)
			}
			previous := before
			if before = m; err != nil {
				if err := fault(err); err != nil {
					return err
				}
				continue
			}
			if m.Number != int64(i) {
				_ = fault(&DamageError{name, tp, m.First, fmt.Sprintf("its number is %d, and %d manifests are before it", m.Number, i)})
			}
			var tree *merkle.Builder // nil: it cannot be compared
			if m.Tree != nil && (previous != nil || m.First == 0) {
				tree, err = a.treeOf(ctx, previous)
				if err != nil && !errors.Is(err, kafka.ErrArchive) { // else a fault that is found by itself
					return err
				}
			}
			used[m.Object] = true
			v.Segments++
			v.Records += m.Records()
			v.Bytes += m.Bytes
			g.Go(func() error {
				err := a.withSegment(ctx, m, func(raw []byte) error {
					if tree == nil {
						return nil
					}
					return checkTree(tree, m, raw)
				})
				if read != nil {
					read(m.Bytes)
				}
				return fault(err)
			})
		}
		objects, err := a.store.List(ctx, fmt.Sprintf("segments/%s/%d/", tp.Topic, tp.Partition))
		for _, object := range objects {
			if !used[object] {
				v.Unreferenced++
			}
		}
		return err
	}
	for _, tp := range tps {
		if err := check(tp); err != nil {
			return nil, errors.Join(err, g.Wait())
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, tp := range tps {
		slices.SortStableFunc(faults[tp], func(x, y error) int { return cmp.Compare(offsetOf(x), offsetOf(y)) })
		v.Faults = append(v.Faults, faults[tp]...)
	}
	return v, nil
}

func offsetOf(err error) int64 {
	var d *DamageError
	if errors.As(err, &d) {
		return d.Offset
	}
	return -1
}

// Confirm reads every segment again that has records from the log's first offset to before another, and
// compares it with what the log holds, byte for byte. It returns the end of the last of them. The log
// MUST NOT be trimmed beyond it.
func (a *Archive) Confirm(ctx context.Context, log Source, tp domain.TopicPartition, first, to int64) (int64, error) {
	end := first
	err := a.manifests(ctx, tp, first, func(m *Manifest) error {
		if m.First >= to {
			return errFound
		}
		err := a.withSegment(ctx, m, func(raw []byte) error {
			differs, err := compare(ctx, log, tp, m, raw, max(first, m.First), bytes.Equal)
			switch {
			case errors.Is(err, errDiffers):
				return &DamageError{m.Object, tp, differs, "the log has other bytes"}
			case errors.Is(err, errFewer):
				return &DamageError{m.Object, tp, m.First, "the log has fewer bytes"}
			}
			return err
		})
		if err != nil {
			return err
		}
		end = m.Last + 1
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return first, err
	}
	return end, nil
}

// Results of compare.
var (
	errDiffers = errors.New("the log has another batch")
	errFewer   = errors.New("the log returned fewer batches than it has")
)

// compare compares the batches of a segment, from the one with an offset on, with what a log holds. Its
// error is errDiffers, with the first offset of the first batch that differs, errFewer, or that of
// reading the log.
func compare(
	ctx context.Context,
	log Source,
	tp domain.TopicPartition,
	m *Manifest,
	raw []byte,
	from int64,
	equal func(held, archived []byte) bool,
) (differs int64, err error) {
	rest := raw
	err = log.ReadBatches(ctx, tp, domain.Anchor{}, from, m.Last+1, func(b kafka.Batches) error {
		for held := b.Bytes; len(held) > 0 && len(rest) > 0; { // the answer may go on with the next segment
			want, err := kafka.NextBatch(rest)
			if err != nil {
				return err
			}
			if want.Last < from {
				rest = rest[want.Size:]
				continue
			}
			found, err := kafka.NextBatch(held)
			if err != nil {
				return err
			}
			if found.Size != want.Size || !equal(held[:found.Size], rest[:want.Size]) {
				differs = want.First
				return errDiffers
			}
			held, rest = held[found.Size:], rest[want.Size:]
		}
		return nil
	})
	if err == nil && len(rest) > 0 {
		err = errFewer
	}
	return differs, err
}
