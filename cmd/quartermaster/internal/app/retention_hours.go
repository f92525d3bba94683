package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"quartermaster/adapters/parts"
	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// hoursRemover leaves rows of sealed months in the database to their parts.
type hoursRemover struct {
	h     *Conn
	dir   parts.Directory
	ready map[domain.Instant]leaving // by month, after check
}

// leaving is a month whose parts were compared with the rows.
type leaving struct {
	parts  []projections.PartDigest
	writes postgres.MonthWrites
	stale  bool // the rows are not those of the parts
}

// telemetry returns the partitions whose rows are split by hour.
func telemetry() []domain.TopicPartition {
	return slices.DeleteFunc(domain.AllPartitions(), func(tp domain.TopicPartition) bool {
		return tp.Topic != domain.TopicTelemetry
	})
}

func (r *hoursRemover) generation(ctx context.Context) (string, error) {
	if r.h.Generation != "" {
		return r.h.Generation, nil
	}
	return r.h.DB.Active(ctx)
}

// plan returns the months that have parts, are sealed, and ended longer ago than the rule says.
func (r *hoursRemover) plan(
	ctx context.Context, v projections.View, ret *registry.Retention, rule *registry.RetentionRule, now domain.Instant,
) (p removable, err error) {
	generation, err := r.generation(ctx)
	if err != nil {
		return p, err
	}
	months, err := r.h.DB.HourMonths(ctx, generation)
	if err != nil {
		return p, err
	}
	before, err := r.before(ctx, v, rule, now)
	if err != nil {
		return p, err
	}
	left, err := r.h.DB.Detached(ctx, generation)
	if err != nil {
		return p, err
	}
	for _, month := range months {
		at := projections.BillingMonth(domain.Instant(month) * domain.Hour)
		if projections.HourOf(at.To) > before {
			continue
		}
		list, err := r.partsOf(month)
		if err != nil {
			return p, err
		}
		if !slices.ContainsFunc(list, func(d projections.PartDigest) bool { return !slices.Contains(left, d) }) {
			continue // none was made since
		}
		by, err := r.held(ctx, v, ret.Holds, &domain.Removed{Month: at.From})
		if err != nil {
			return p, err
		}
		p.keep(by...)
		for _, d := range list {
			if len(by) == 0 {
				p.add(domain.Removed{
					Topic: d.Partition.Topic, Partition: uint32(d.Partition.Partition), Month: at.From,
					Records: uint64(d.Rows), Digest: d.Digest[:],
				})
			}
		}
	}
	return p, nil
}

// before returns the hour before which months must end that a rule lets go: they are sealed.
func (r *hoursRemover) before(
	ctx context.Context, v projections.View, rule *registry.RetentionRule, now domain.Instant,
) (int64, error) {
	newest, err := r.h.lastAppended(ctx, v.Position())
	kept := domain.InstantOf(projections.BillingMonth(now).From.Time().AddDate(0, -rule.Keep.Months, 0))
	return min(projections.HourOf(kept), projections.SealedBefore(newest)), err
}

func (r *hoursRemover) due(
	ctx context.Context, v projections.View, rule *registry.RetentionRule, now domain.Instant,
) (func(*domain.Removed) (bool, error), error) {
	before, err := r.before(ctx, v, rule, now)
	return func(of *domain.Removed) (bool, error) {
		month := projections.BillingMonth(of.Month)
		if projections.HourOf(month.To) > before {
			return false, nil
		}
		list, err := r.partsOf(projections.HourOf(month.From))
		return slices.Contains(list, partDigestOf(of)), err
	}, err
}

// partsOf returns the current parts of a month of telemetry.
func (r *hoursRemover) partsOf(month int64) (list []projections.PartDigest, err error) {
	keys, err := r.dir.List()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.Month != month || k.Partition.Topic != domain.TopicTelemetry {
			continue
		}
		m, err := r.dir.Manifest(k)
		if err != nil {
			return nil, err
		}
		if v := m.Last(); v.Method == projections.Method {
			list = append(list, projections.PartDigest{PartKey: k, Rows: v.Rows, Digest: v.Digest})
		}
	}
	return list, nil
}

// held returns the holds on a month. A hold on a workspace or cluster keeps all of it, because the rows
// of all are in one table.
func (r *hoursRemover) held(
	_ context.Context, _ projections.View, holds []registry.LegalHold, of *domain.Removed,
) (by []string, err error) {
	month := projections.BillingMonth(of.Month)
	for i := range holds {
		if p := holds[i].Period; p == (domain.Interval{}) || p.From < month.To && month.From < p.To {
			by = append(by, holds[i].Hold)
		}
	}
	return by, nil
}

// check compares the rows of each month with its parts, and reads these through. A month whose rows
// are not those of its parts stays.
func (r *hoursRemover) check(ctx context.Context, list []domain.Removed) error {
	generation, err := r.generation(ctx)
	if err != nil {
		return err
	}
	r.ready = map[domain.Instant]leaving{}
	for i := range list {
		m := r.ready[list[i].Month]
		m.parts = append(m.parts, partDigestOf(&list[i]))
		r.ready[list[i].Month] = m
	}
	for month, m := range r.ready {
		if m.writes, err = r.h.DB.MonthWrites(ctx, generation, projections.HourOf(month)); err != nil {
			return err
		}
		if err := r.h.View(ctx, func(v projections.View) error {
			reader := projections.NewPartReader(v)
			for _, tp := range telemetry() {
				k := projections.PartKey{Partition: tp, Month: projections.HourOf(month)}
				d := projections.PartDigest{PartKey: k}
				d.Rows, d.Digest, err = digestRows(func(yield func(projections.Key, []byte) error) error {
					return reader.Rows(k, yield)
				})
				if err != nil {
					return err
				}
				m.stale = m.stale || d.Rows > 0 && !slices.Contains(m.parts, d)
			}
			return nil
		}); err != nil {
			return err
		}
		for _, p := range m.parts {
			if err := r.h.source.Verify(p); err != nil {
				return fmt.Errorf("read part %s: %w", p.PartKey, err)
			}
		}
		r.ready[month] = m
	}
	return nil
}

func digestRows(each func(yield func(projections.Key, []byte) error) error) (rows int64, sum [32]byte, err error) {
	h := sha256.New()
	err = each(func(_ projections.Key, b []byte) error {
		h.Write(b)
		rows++
		return nil
	})
	return rows, [32]byte(h.Sum(nil)), err
}

func partDigestOf(of *domain.Removed) projections.PartDigest {
	p := projections.PartDigest{Rows: int64(of.Records), Digest: [32]byte(of.Digest)}
	p.Partition = domain.TopicPartition{Topic: of.Topic, Partition: int(of.Partition)}
	p.Month = projections.HourOf(of.Month)
	return p
}

// remove detaches the whole month.
func (r *hoursRemover) remove(ctx context.Context, of *domain.Removed) error {
	if gone, err := r.gone(ctx, of); err != nil || gone {
		return err
	}
	generation, err := r.generation(ctx)
	if err != nil {
		return err
	}
	m := r.ready[of.Month]
	if m.stale {
		return fmt.Errorf("%w: its rows are not those of its parts", errStays)
	}
	err = r.h.DB.Detach(ctx, generation, projections.HourOf(of.Month), m.parts, m.writes)
	if errors.Is(err, postgres.ErrMonthChanged) {
		return fmt.Errorf("%w: %w", errStays, err)
	}
	return err
}

func (r *hoursRemover) gone(ctx context.Context, of *domain.Removed) (bool, error) {
	generation, err := r.generation(ctx)
	if err != nil {
		return false, err
	}
	left, err := r.h.DB.Detached(ctx, generation)
	return slices.Contains(left, partDigestOf(of)), err
}
