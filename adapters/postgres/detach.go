package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"quartermaster/domain"
	"quartermaster/projections"
)

// A generation may leave the rows of a past month to parts ([DB.Detach]): the month's partitions of
// the tables that are split by hour are dropped, and views and folds read the rows from
// [DB.Parts]. Rows of other tables stay. A fold that needs a row of such a month copies it from the
// part, and writes it into a new partition if it changes it.
//
// Detach moves the epoch of every partition of the topic, so that what folds know of the month is
// void: they claim again, and see that it is detached.

// ErrMonthChanged means that rows of a month changed after its parts were compared with them, or that
// it is in use. Nothing was detached: the caller makes the parts again, and tries again later.
var ErrMonthChanged = errors.New("the rows of the month changed, or are being read")

// MonthWrites are the offsets of the records that last changed rows of a month, by partition.
type MonthWrites map[domain.TopicPartition]int64

// reader reads rows.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// HourMonths returns the first hours of the months that have partitions of their own, in order.
func (db *DB) HourMonths(ctx context.Context, generation string) (months []int64, err error) {
	all := map[string]bool{}
	for place, at := range db.all {
		names, err := hourMonths(ctx, at, generation)
		if err != nil {
			return nil, fmt.Errorf("list the months of generation %q: %w", generation, within(place, err))
		}
		for _, name := range names {
			all[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var year, m int
		if _, err := fmt.Sscanf(name, "%d_%d", &year, &m); err != nil {
			return nil, fmt.Errorf("list the months of generation %q: %q is no month", generation, name)
		}
		months = append(months, projections.HourOf(domain.InstantOf(month(year*12+m-1).start())))
	}
	return months, nil
}

// hourMonths lists the months that have partitions in one database, as text.
func hourMonths(ctx context.Context, db *sql.DB, generation string) ([]string, error) {
	return collectText(db.QueryContext(ctx, `
		select distinct right(c.relname, 7) from pg_inherits i
		join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
		join pg_namespace n on n.oid = p.relnamespace
		where n.nspname = $1 and p.relname = any($2) and c.relname ~ '_[0-9]{4}_[0-9]{2}$' order by 1`,
		schemaOf(generation), pq.Array(monthly())))
}

// MonthWrites returns when the rows of a month were last written. The caller MUST ask before it reads
// the rows that it compares with parts.
func (db *DB) MonthWrites(ctx context.Context, generation string, month int64) (MonthWrites, error) {
	places, err := placed(ctx, db, generation)
	w := MonthWrites{}
	for name := range places {
		var at *sql.DB
		var some MonthWrites
		if at, err = db.home(name); err == nil {
			some, err = monthWrites(ctx, at, generation, month)
		}
		if err != nil {
			break
		}
		maps.Copy(w, some)
	}
	if err != nil {
		return nil, fmt.Errorf("read when rows of %s were written: %w", projections.MonthName(month), err)
	}
	return w, nil
}

func monthWrites(ctx context.Context, from reader, generation string, month int64) (w MonthWrites, err error) {
	rows, err := from.QueryContext(ctx, fmt.Sprintf(`
		select topic, partition, max(changed_offset) from %s.%s
		where month = to_timestamp($1::bigint * 3600) and rows_of = any($2) group by topic, partition`,
		schemaOf(generation), tallied), month, pq.Array(monthly()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	w = MonthWrites{}
	for rows.Next() {
		var tp domain.TopicPartition
		var changed int64
		if err := rows.Scan(&tp.Topic, &tp.Partition, &changed); err != nil {
			return nil, err
		}
		w[tp] = changed
	}
	return w, rows.Err()
}

// detachWait is how long Detach waits for readers of the tables. Folds wait for Detach meanwhile.
const detachWait = "3s"

// Detach drops the rows of a month that are split by hour, and leaves them to parts. parts MUST have
// every row of the month of every partition that has one, as the rows were after writes, and the
// caller MUST have compared them. It fails with [ErrMonthChanged] if a row was written since, or
// readers do not let go of the tables in time, and changes nothing then. With several databases it does
// so in one after the other, and those before the one that failed stay detached: rows of the month are
// then in parts and in tables, each in one of them, and the next call goes on.
func (db *DB) Detach(
	ctx context.Context, generation string, at int64, parts []projections.PartDigest, writes MonthWrites,
) error {
	fail := func(err error) error {
		return fmt.Errorf("detach %s of generation %q: %w", projections.MonthName(at), generation, err)
	}
	m := monthOf(at)
	if m < firstMonth || m >= endMonth {
		return fail(errors.New("it has no partition of its own"))
	}
	places, err := placed(ctx, db, generation)
	if err != nil {
		return fail(err)
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		home, err := db.home(name)
		if err != nil {
			return fail(err)
		}
		here := func(tp domain.TopicPartition) bool { return slices.Contains(places[name], tp) }
		some := MonthWrites{}
		for tp, at := range writes {
			if here(tp) {
				some[tp] = at
			}
		}
		theirs := slices.DeleteFunc(slices.Clone(parts), func(p projections.PartDigest) bool { return !here(p.Partition) })
		if err := detachIn(ctx, home, generation, at, theirs, some); err != nil {
			return fail(within(name, err))
		}
	}
	return nil
}

// detachIn is Detach for the partitions in one database.
func detachIn(ctx context.Context, db *sql.DB, generation string, at int64, parts []projections.PartDigest, writes MonthWrites) error {
	m := monthOf(at)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// This locks the partitions as commits do, and fences folds that know rows of the month.
	if _, err := tx.ExecContext(ctx, `
		update quartermaster.partitions set epoch = epoch + 1
		where generation = $1 and topic = $2 and database = '' and `+idleTimeout+` is not null
			and set_config('lock_timeout', '`+detachWait+`', true) is not null`,
		generation, string(domain.TopicTelemetry)); err != nil {
		return busy(err)
	}
	if _, err := tx.ExecContext(ctx, lockMonths, monthsOf(generation)); err != nil {
		return busy(err)
	}
	now, err := monthWrites(ctx, tx, generation, at)
	if err != nil {
		return err
	}
	if !maps.Equal(now, writes) {
		return ErrMonthChanged
	}
	for _, p := range parts {
		if _, err := tx.ExecContext(ctx, `
			insert into quartermaster.detached_months (generation, topic, partition, month, rows, sha256)
			values ($1, $2, $3, $4, $5, $6)
			on conflict (generation, topic, partition, month) do update
			set rows = excluded.rows, sha256 = excluded.sha256, detached = now()`,
			generation, string(p.Partition.Topic), p.Partition.Partition, at, p.Rows, p.Digest[:]); err != nil {
			return err
		}
	}
	for _, t := range monthly() {
		name := fmt.Sprintf("%s.%s_%s", schemaOf(generation), t, m.start().Format("2006_01"))
		if _, err := tx.ExecContext(ctx, "drop table if exists "+name); err != nil {
			return busy(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return nil
}

// busy turns a lock that was not obtained in time into [ErrMonthChanged].
func busy(err error) error {
	if isCode(err, pqerror.LockNotAvailable) || isCode(err, pqerror.TRDeadlockDetected) {
		return fmt.Errorf("%w: %w", ErrMonthChanged, err)
	}
	return err
}

// Detached returns the parts that a generation left rows to.
func (db *DB) Detached(ctx context.Context, generation string) ([]projections.PartDigest, error) {
	var all []projections.PartDigest
	for name, at := range db.all {
		some, err := detached(ctx, at, generation, "")
		if err != nil {
			return nil, within(name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// detached returns the parts of a topic, or of all with "".
func detached(
	ctx context.Context, from reader, generation string, topic domain.Topic,
) (parts []projections.PartDigest, err error) {
	rows, err := from.QueryContext(ctx, `
		select topic, partition, month, rows, sha256 from quartermaster.detached_months
		where generation = $1 and (topic = $2 or $2 = '')`, generation, string(topic))
	if err != nil {
		return nil, fmt.Errorf("read which months of generation %q are detached: %w", generation, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p projections.PartDigest
		var sum []byte
		if err := rows.Scan(&p.Partition.Topic, &p.Partition.Partition, &p.Month, &p.Rows, &sum); err != nil {
			return nil, fmt.Errorf("read which months of generation %q are detached: %w", generation, err)
		}
		if len(sum) != len(p.Digest) {
			return nil, fmt.Errorf("the digest of part %s has %d bytes", p.PartKey, len(sum))
		}
		p.Digest = [32]byte(sum)
		parts = append(parts, p)
	}
	return parts, rows.Err()
}

// errNoParts means that rows are in parts and nothing reads them.
func errNoParts(generation string, p projections.PartDigest) error {
	return fmt.Errorf("rows of generation %q are in parts, among them those of %s: "+
		"set parts in the configuration to the directory that has them",
		generation, p.PartKey)
}

// loadDetached adds the rows of keys that were not found and that are in parts.
func (t *tx) loadDetached(keys []projections.Key) error {
	p := t.part
	if len(p.detached) == 0 {
		return nil
	}
	for _, k := range keys {
		of, ok := projections.PartOf(k)
		if !ok || !p.absent[k] {
			continue
		}
		part, ok := p.detached[of.Month]
		if !ok {
			continue
		}
		if t.store.db.Parts == nil {
			return errNoParts(t.store.generation, part)
		}
		raw, err := projections.RowInPart(t.store.db.Parts, part, k)
		if err != nil {
			return err
		}
		if raw == nil {
			continue
		}
		row, err := projections.DecodeRow(k.Table, raw)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		p.rows.Add(k, row) // what it holds is in no row of usage_held
		delete(p.absent, k)
	}
	return nil
}
