package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"

	"quartermaster/projections"
)

// tallied is the name of the table of [projections.Tally].
const tallied = "tallies"

var tallyColumns = []struct{ name, typ, comment string }{
	{"topic", `text collate "C" not null`, "Topic of the log."},
	{"partition", "integer not null", "Partition of the topic."},
	{"rows_of", `text collate "C" not null`, "Table."},
	{"month", "timestamptz", "Start of the UTC month of the rows; null for a table without time."},
	{"rows", "bigint not null", "Number of rows."},
	{"changed_offset", "bigint not null", "Offset of the last record that added, changed or removed any of them."},
}

func createTallies(b *strings.Builder, schema string) {
	name := schema + "." + tallied
	fmt.Fprintf(b, "create table %s (\n", name)
	for _, c := range tallyColumns {
		fmt.Fprintf(b, "\t%s %s,\n", c.name, c.typ)
	}
	fmt.Fprintf(b, "\tunique nulls not distinct (topic, partition, rows_of, month)\n) with (%s);\n", hotStorage)
	fmt.Fprintf(b, "comment on table %s is %s;\n", name, pq.QuoteLiteral(
		"Number of rows of each table, month and partition, and the last record that changed them."))
	for _, c := range tallyColumns {
		fmt.Fprintf(b, "comment on column %s.%s is %s;\n", name, c.name, pq.QuoteLiteral(c.comment))
	}
}

// tallySQL adds the changes of $3 to $6 (tables, months in hours, rows, offsets) to the tallies of
// partition $1, $2.
func tallySQL(schema string) string {
	return fmt.Sprintf(`
		insert into %s.%s as t (topic, partition, rows_of, month, rows, changed_offset)
		select $1, $2, u.rows_of, to_timestamp(nullif(u.month, 0) * 3600), u.rows, u.changed
		from unnest($3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) u(rows_of, month, rows, changed)
		on conflict (topic, partition, rows_of, month) do update
		set rows = t.rows + excluded.rows, changed_offset = excluded.changed_offset`, schema, tallied)
}

// tally stores what changed in a working set.
func (s *Store) tally(ctx context.Context, tx *sql.Tx, topic string, partition int, rows *projections.WorkingSet) error {
	all := slices.SortedFunc(rows.Tallied, func(a, b projections.Tally) int { return a.Compare(b.TallyKey) })
	if len(all) == 0 {
		return nil
	}
	names := newArray(oidText, 32*len(all))
	months, counts, offsets := newArray(oidInt8, 12*len(all)), newArray(oidInt8, 12*len(all)), newArray(oidInt8, 12*len(all))
	for _, t := range all {
		names.text(t.Table.String())
		months.int(t.Month)
		counts.int(t.Rows)
		offsets.int(t.Changed)
	}
	if _, err := tx.ExecContext(ctx, tallySQL(s.schema), topic, partition,
		names.value(), months.value(), counts.value(), offsets.value()); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	return nil
}

// Tallies implements the view of [projections.TalliesOf].
func (v *view) Tallies() ([]projections.Tally, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rows, err := v.tx.QueryContext(v.ctx, fmt.Sprintf(`
		select topic, partition, rows_of, coalesce((extract(epoch from month) / 3600)::bigint, 0), rows, changed_offset
		from %s.%s`, v.schema, tallied))
	if err != nil {
		return nil, err
	}
	all, err := collect(rows, func(rows *sql.Rows, t *projections.Tally) error {
		var name string
		if err := rows.Scan(&t.Partition.Topic, &t.Partition.Partition, &name, &t.Month, &t.Rows, &t.Changed); err != nil {
			return err
		}
		var ok bool
		if t.Table, ok = projections.TableNamed(name); !ok {
			return fmt.Errorf("table %q is not known", name)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b projections.Tally) int { return a.Compare(b.TallyKey) })
	return all, err
}
