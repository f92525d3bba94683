package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"quartermaster/domain"
)

// month counts calendar months from the year 0.
type month int

// Each month from firstMonth to before endMonth gets its own partition when it gets its first row.
// All earlier months share one partition, and so do all later ones. This bounds a table to 302
// partitions, whatever times are reported. Existing generations keep their bounds, so changing
// these needs a new [projections.Method].
const (
	firstMonth month = 2015 * 12
	endMonth   month = 2040 * 12
)

func monthOf(hour int64) month {
	t := (domain.Instant(hour) * domain.Hour).Time()
	return month(t.Year()*12 + int(t.Month()) - 1)
}

func (m month) start() time.Time {
	return time.Date(int(m)/12, time.Month(m%12)+1, 1, 0, 0, 0, 0, time.UTC)
}

// String returns the month as, for example, "2026-05".
func (m month) String() string { return m.start().Format("2006-01") }

// monthIn is a month in one database.
type monthIn struct {
	home *sql.DB
	month
}

// monthBound returns the start of a month as SQL text.
func monthBound(m month) string { return m.start().Format("2006-01-02 15:04:05+00") }

// ensureMonths makes the partitions of months that have none yet. Several processes may do so at
// once. Readers and writers do not wait for it: the partition is made as a separate table and then
// attached.
func (s *Store) ensureMonths(ctx context.Context, home *sql.DB, months map[month]bool) error {
	for m := range months {
		if m < firstMonth || m >= endMonth {
			continue
		}
		s.mu.Lock()
		known := s.months[monthIn{home, m}]
		s.mu.Unlock()
		if known {
			continue
		}
		if err := s.createMonth(ctx, home, m); err != nil {
			return fmt.Errorf("make the partitions of %s in generation %q: %w", m, s.generation, err)
		}
		s.mu.Lock()
		s.months[monthIn{home, m}] = true
		s.mu.Unlock()
	}
	return nil
}

// lockMonths serializes processes that make the same month. Check whether the month exists after
// taking the lock.
const lockMonths = `select ` + idleTimeout + `, pg_advisory_xact_lock(hashtextextended($1, 0))`

func monthsOf(generation string) string { return "quartermaster months " + generation }

func (s *Store) createMonth(ctx context.Context, home *sql.DB, m month) error {
	tx, err := home.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, lockMonths, monthsOf(s.generation)); err != nil {
		return err
	}
	for _, t := range monthly() {
		parent := s.schema + "." + t
		name := fmt.Sprintf("%s_%s", parent, m.start().Format("2006_01"))
		var there bool
		if err := tx.QueryRowContext(ctx, `select to_regclass($1) is not null`, name).Scan(&there); err != nil {
			return err
		}
		if there {
			continue
		}
		from, to := pq.QuoteLiteral(monthBound(m)), pq.QuoteLiteral(monthBound(m+1))
		statements := []string{
			fmt.Sprintf("create table %s (like %s including all) with (%s)", name, parent, hotStorage),
			// With this constraint the server need not scan the table when attaching it.
			fmt.Sprintf("alter table %s add constraint bounds check (hour >= %s and hour < %s)", name, from, to),
			fmt.Sprintf("alter table %s attach partition %s for values from (%s) to (%s)", parent, name, from, to),
			fmt.Sprintf("alter table %s drop constraint bounds", name),
			fmt.Sprintf("comment on table %s is %s", name, pq.QuoteLiteral("Rows of "+t+" in "+m.String()+".")),
		}
		for _, q := range statements {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// isCode reports whether err is a server error with this code.
func isCode(err error, code pqerror.Code) bool {
	e, ok := errors.AsType[*pq.Error](err)
	return ok && e.Code == code
}
