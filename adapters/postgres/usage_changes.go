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

// usageChanged is the name of the table of [projections.UsageChange].
const usageChanged = "usage_changes"

var usageChangedColumns = []struct{ name, typ, comment string }{
	{"partition", "integer not null", "Partition of qm.telemetry."},
	{"scope", `text collate "C" not null`, "Cluster, or shard of one."},
	{"day", "timestamptz not null", "Start of the UTC day."},
	{"changed_offset", "bigint not null", "Offset of the last record that changed usage hours of the day."},
}

func createUsageChanges(b *strings.Builder, schema string) {
	name := schema + "." + usageChanged
	fmt.Fprintf(b, "create table %s (\n", name)
	for _, c := range usageChangedColumns {
		fmt.Fprintf(b, "\t%s %s,\n", c.name, c.typ)
	}
	fmt.Fprintf(b, "\tprimary key (day, partition, scope)\n) with (%s);\n", hotStorage)
	fmt.Fprintf(b, "comment on table %s is %s;\n", name, pq.QuoteLiteral("The last record that changed a day's usage of a cluster."))
	for _, c := range usageChangedColumns {
		fmt.Fprintf(b, "comment on column %s.%s is %s;\n", name, c.name, pq.QuoteLiteral(c.comment))
	}
}

// changeUsage stores which days of usage changed in a working set.
func (s *Store) changeUsage(ctx context.Context, tx *sql.Tx, partition int, rows *projections.WorkingSet) error {
	all := rows.UsageChanged()
	if len(all) == 0 {
		return nil
	}
	scopes, days, offsets := newArray(oidText, 32*len(all)), newArray(oidInt8, 12*len(all)), newArray(oidInt8, 12*len(all))
	for _, c := range all {
		scopes.text(c.Scope)
		days.int(c.Day)
		offsets.int(c.Offset)
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`
		insert into %s.%s (partition, scope, day, changed_offset)
		select $1, u.scope, to_timestamp(u.day * 3600), u.changed
		from unnest($2::text[], $3::bigint[], $4::bigint[]) u(scope, day, changed)
		on conflict (day, partition, scope) do update set changed_offset = excluded.changed_offset`, s.schema, usageChanged),
		partition, scopes.value(), days.value(), offsets.value()); err != nil {
		return fmt.Errorf("note changes of usage: %w", err)
	}
	return nil
}

// UsageChanges implements the view of [projections.UsageChangesOf]. No change is forgotten, so a day without one has no rows.
func (v *view) UsageChanges(from int64) (*projections.UsageChanges, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rows, err := v.tx.QueryContext(v.ctx, fmt.Sprintf(`
		select partition, scope, (extract(epoch from day) / 3600)::bigint, changed_offset
		from %s.%s where day >= to_timestamp($1::bigint * 3600)`, v.schema, usageChanged), from)
	if err != nil {
		return nil, err
	}
	days, err := collect(rows, func(rows *sql.Rows, c *projections.UsageChange) error {
		return rows.Scan(&c.Partition, &c.Scope, &c.Day, &c.Offset)
	})
	slices.SortFunc(days, projections.UsageChange.Compare)
	return &projections.UsageChanges{Days: days, Floors: map[int]int64{}}, err
}
