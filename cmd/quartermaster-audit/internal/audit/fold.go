package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// chain returns the manifests of a partition, in order.
func (a *Archive) chain(tp domain.TopicPartition) (out []*manifest, err error) {
	names, err := a.list(manifestsOf(tp))
	if err != nil {
		return nil, err
	}
	next := int64(0)
	for _, name := range names {
		m, err := a.manifest(tp, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if m.First != next {
			return nil, fmt.Errorf("%s: it begins at offset %d, %d is next: verify the archive", name, m.First, next)
		}
		next = m.Last + 1
		out = append(out, m)
	}
	return out, nil
}

// End returns the position of everything that is archived.
func (a *Archive) End() (domain.Position, error) {
	end := domain.Position{}
	for _, tp := range domain.AllPartitions() {
		chain, err := a.chain(tp)
		if err != nil {
			return nil, err
		}
		if n := len(chain); n > 0 {
			end[tp] = chain[n-1].Last + 1
		}
	}
	return end, nil
}

// Each calls yield with the records of a partition with from <= offset < to, in order, by batch.
func (a *Archive) Each(tp domain.TopicPartition, from, to int64, yield func([]domain.Record) error) error {
	chain, err := a.chain(tp)
	if err != nil {
		return err
	}
	for _, m := range chain {
		if m.Last < from || m.First >= to {
			continue
		}
		raw, err := a.segment(m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Object, err)
		}
		var failed error
		next, err := m.each(raw, func(r *domain.Record) bool {
			if r.Next() <= from {
				return true
			}
			if r.Offset >= to {
				return false
			}
			failed = yield([]domain.Record{*r})
			return failed == nil
		})
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return fmt.Errorf("%s: at offset %d: %w", m.Object, next, err)
		}
	}
	return nil
}

// ReadAfter implements [projections.Log].
func (a *Archive) ReadAfter(
	ctx context.Context,
	tp domain.TopicPartition,
	_ domain.Anchor,
	from, to int64,
	yield func([]domain.Record) error,
) error {
	var batch []domain.Record
	err := a.Each(tp, from, to, func(recs []domain.Record) error {
		if batch = append(batch, recs...); len(batch) < foldBatch {
			return nil
		}
		err := yield(batch)
		batch = nil
		return errors.Join(err, ctx.Err())
	})
	if err == nil && len(batch) > 0 {
		err = yield(batch)
	}
	return err
}

const foldBatch = 5000 // records that are folded at a time

// FollowAfter implements [projections.Log]. An archive does not grow.
func (a *Archive) FollowAfter(context.Context, domain.TopicPartition, domain.Anchor, int64, func([]domain.Record) error) error {
	return errors.New("an archive cannot be followed")
}

// ErrPoint means that a text names no point of the archive.
var ErrPoint = errors.New("no point of the archive")

// Point returns the position that a text names: a position, a time (RFC 3339, or the beginning of a date or
// month in UTC), or "" for the end. Its error is an [ErrPoint] if the text is wrong.
func (a *Archive) Point(text string) (domain.Position, error) {
	end, err := a.End()
	if err != nil || text == "" {
		return end, err
	}
	if text == "0" || strings.Contains(text, "=") {
		at, err := domain.ParsePosition(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPoint, err)
		}
		if !end.Covers(at) {
			return nil, fmt.Errorf("%w: %s is beyond the end of the archive, %s", ErrPoint, text, end)
		}
		return at, nil
	}
	t, err := domain.ParseTime(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is neither a position nor a time: %w", ErrPoint, domain.Clip(text, 100), err)
	}
	return a.before(t, end)
}

// before returns, for each partition, the offset of the first record of a time or later.
func (a *Archive) before(t domain.Instant, end domain.Position) (domain.Position, error) {
	errFound := errors.New("found")
	at := maps.Clone(end)
	for tp := range end {
		chain, err := a.chain(tp)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(chain, func(m *manifest) bool { return m.Latest >= t })
		if i < 0 {
			continue
		}
		err = a.Each(tp, chain[i].First, end[tp], func(recs []domain.Record) error {
			if recs[0].Time >= t {
				at[tp] = recs[0].Offset
				return errFound
			}
			return nil
		})
		if err != nil && !errors.Is(err, errFound) {
			return nil, err
		}
	}
	return at, nil
}

// Fold folds the archive up to a position, with the folds that the server has.
func (a *Archive) Fold(ctx context.Context, to domain.Position) (*projections.Memory, error) {
	rows := projections.NewMemory(domain.TopicSpecs())
	r := &projections.Runner{
		Log: a, Store: rows, Topics: domain.TopicSpecs(),
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
	}
	return rows, r.CatchUp(ctx, to)
}
