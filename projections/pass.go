package projections

import (
	"context"
	"errors"
	"fmt"

	"quartermaster/domain"
)

// pass is one reading of a partition. It folds batches of records in one transaction until the
// store says that it should be committed.
type pass struct {
	*Runner
	tp     domain.TopicPartition
	folder *Projector

	tx     Tx     // nil: nothing was folded since the last commit
	before Counts // of the folder, when tx began
	from   int64  // where tx began
	began  domain.Instant
	last   domain.Anchor
	Pending
	read bool // the log was read without an error
}

// batch folds records, or takes notice that there are none.
func (p *pass) batch(ctx context.Context, records []domain.Record) error {
	if len(records) == 0 {
		return p.idle(ctx)
	}
	if err := p.fold(ctx, records); err != nil {
		p.rollback()
		return err
	}
	if p.tx.Due(p.Pending) {
		return p.commit(ctx)
	}
	return nil
}

// idle is called when there are no more records for now.
func (p *pass) idle(ctx context.Context) error {
	if !p.read {
		p.read = true
		if err := p.reads(ctx, p.tp); err != nil {
			return err
		}
	}
	if p.AtEnd {
		p.Silent++
	}
	p.AtEnd = true
	if p.tx != nil && p.tx.Due(p.Pending) {
		if err := p.commit(ctx); err != nil {
			return err
		}
	}
	p.First = false
	return nil
}

func (p *pass) fold(ctx context.Context, records []domain.Record) error {
	first, last := &records[0], &records[len(records)-1]
	if p.tx == nil {
		tx, err := p.Store.Begin(ctx, p.tp)
		if err != nil {
			return err
		}
		p.tx, p.before, p.from, p.began = tx, p.folder.Counts(), tx.Next(), first.Time
		p.last = domain.Anchor{Offset: p.from - 1}
	}
	if next := p.last.Offset + 1; next != first.Offset {
		return fmt.Errorf("read offset %d where %d is next: %w", first.Offset, next, ErrFenced)
	}
	rows, err := p.tx.Load(ctx, func(yield func(Key) bool) {
		for i := range records {
			if !p.folder.Keys(&records[i], yield) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for i := range records {
		if err := p.folder.Apply(rows, &records[i]); err != nil {
			return err
		}
	}
	p.last = last.Anchor()
	p.Records = p.last.Offset + 1 - p.from
	p.Span, p.AtEnd, p.Silent = max(0, last.Time-p.began), false, 0
	return nil
}

func (p *pass) commit(ctx context.Context) error {
	next := p.last.Offset + 1
	if err := p.tx.Commit(ctx, next, p.last); err != nil {
		p.rollback()
		return err
	}
	p.tx = nil
	after := p.folder.Counts()
	p.records.Add(next - p.from)
	// In one step, so that Progress never shows the new position with the old stop.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = p.counts.Plus(after.minus(p.before))
	p.next[p.tp] = next
	delete(p.stops, p.tp)
	return nil
}

// rollback gives up what was folded since the last commit.
func (p *pass) rollback() {
	if p.tx != nil {
		p.tx.Rollback()
		p.tx, p.folder.counts = nil, p.before
	}
}

// end commits what was folded when reading ended, so that nobody has to fold it again: unless the log
// no longer has it.
func (p *pass) end(ctx context.Context, err error) error {
	if p.tx == nil {
		return err
	}
	if differs := (interface{ Differs() })(nil); errors.As(err, &differs) {
		p.rollback()
		return err
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return errors.Join(err, p.commit(ctx))
}
