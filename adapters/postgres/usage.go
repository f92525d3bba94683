package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/usage"
)

// Computed months of usage are kept in two tables of a generation, for people who use SQL. The
// program itself does not read them.
const (
	usageDays   = "usage_days"
	usageMonths = "usage_months"
)

var usageDayColumns = []struct {
	name, typ, comment string
	of                 func(*usage.GPUTime) int64 // in milliseconds; nil: part of the key
}{
	{"month", "timestamptz not null", "Start of the UTC month.", nil},
	{"day", "date not null", "Day in UTC.", nil},
	{"cluster", `text collate "C" not null`, "Cluster.", nil},
	{"gpu_model", `text collate "C" not null`, "Model of the GPUs; empty: not declared.", nil},
	{"billing_model", `text collate "C" not null`, "How the machines are declared to be paid for; empty: not declared.", nil},
	{"held", "boolean not null", "Whether a workspace held them.", nil},
	{"workspace", `text collate "C" not null`, "Workspace that held them.", nil},
	{"deployment", `text collate "C" not null`, "Deployment that held them; empty: unknown.", nil},
	{"in_service_ms", "bigint not null", "Milliseconds of whole GPUs in service. The states add up to it.",
		func(t *usage.GPUTime) int64 { return t.Service }},
	{"allocated_ms", "bigint not null", "Held by a workspace.", func(t *usage.GPUTime) int64 { return t.Allocated }},
	{"busy_unattributed_ms", "bigint not null", "Busy, and nobody knows for whom.",
		func(t *usage.GPUTime) int64 { return t.BusyUnattributed }},
	{"idle_ms", "bigint not null", "Held by nobody.", func(t *usage.GPUTime) int64 { return t.Idle }},
	{"failed_ms", "bigint not null", "Failed and held by nobody.", func(t *usage.GPUTime) int64 { return t.Failed }},
	{"maintenance_ms", "bigint not null", "Set aside and held by nobody.", func(t *usage.GPUTime) int64 { return t.Maintenance }},
	{"unprovisioned_ms", "bigint not null", "Not part of any MIG instance.",
		func(t *usage.GPUTime) int64 { return t.Unprovisioned }},
	{"unobserved_ms", "bigint not null", "Without a report.", func(t *usage.GPUTime) int64 { return t.Unobserved }},
	{"allocated_while_failed_ms", "bigint not null", "Part of allocated_ms that was held although failed.",
		func(t *usage.GPUTime) int64 { return t.WhileFailed }},
	{"undeclared_ms", "bigint not null", "Part of in_service_ms of GPUs that nobody declared.",
		func(t *usage.GPUTime) int64 { return t.Undeclared }},
	{"measured_ms", "bigint not null", "Part of allocated_ms with measured activity.",
		func(t *usage.GPUTime) int64 { return t.Measured }},
	{"active_permille_ms", "bigint not null", "measured_ms times activity in thousandths.",
		func(t *usage.GPUTime) int64 { return t.Active }},
}

func createUsage(b *strings.Builder, schema string) {
	months, days := schema+"."+usageMonths, schema+"."+usageDays
	fmt.Fprintf(b, `create table %s (
		month timestamptz primary key,
		inputs text not null,
		next_offsets jsonb not null
	);
	comment on table %[1]s is 'Months of which resolved usage is kept in usage_days.';
	comment on column %[1]s.month is 'Start of the UTC month.';
	comment on column %[1]s.inputs is 'What the usage was computed from, as text.';
	comment on column %[1]s.next_offsets is 'Position of the rows that it was computed from: the next offset of each partition.';
`, months)
	fmt.Fprintf(b, "create table %s (\n", days)
	var key []string
	for _, c := range usageDayColumns {
		fmt.Fprintf(b, "\t%s %s,\n", c.name, c.typ)
		if c.of == nil {
			key = append(key, c.name)
		}
	}
	fmt.Fprintf(b, "\tprimary key (%s),\n\tforeign key (month) references %s on delete cascade\n);\n", strings.Join(key, ", "), months)
	fmt.Fprintf(b, "create index on %s (workspace, day) where held;\n", days) // for readers of some workspaces
	fmt.Fprintf(b, "comment on table %s is %s;\n", days, pq.QuoteLiteral(
		"Resolved GPU time of each day in the months of usage_months, as \"quartermaster parts make\" last computed it."))
	for _, c := range usageDayColumns {
		fmt.Fprintf(b, "comment on column %s.%s is %s;\n", days, c.name, pq.QuoteLiteral(c.comment))
	}
}

// PutUsage keeps a month of usage for SQL, computed at a position of the active generation. It
// changes nothing if the month is kept already with the same inputs.
func (db *DB) PutUsage(ctx context.Context, m *usage.Month, at domain.Position) error {
	name := projections.MonthName(projections.HourOf(m.Inputs.Month.From))
	if err := db.putUsage(ctx, m, at); err != nil {
		return fmt.Errorf("keep usage of %s in the database: %w", name, err)
	}
	return nil
}

func (db *DB) putUsage(ctx context.Context, m *usage.Month, at domain.Position) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var generation string
	if err := tx.QueryRowContext(ctx, `select generation from quartermaster.active for share`).Scan(&generation); err != nil {
		return err
	}
	schema, month := schemaOf(generation), m.Inputs.Month.From.Time()
	var have string
	err = tx.QueryRowContext(ctx, fmt.Sprintf(`select inputs from %s.%s where month = $1`, schema, usageMonths), month).Scan(&have)
	if err == nil && have == m.Inputs.Text {
		return nil
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	offsets := map[string]int64{}
	for tp, next := range at {
		offsets[tp.String()] = next
	}
	next, err := json.Marshal(offsets)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`delete from %s.%s where month = $1`, schema, usageMonths), month); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`insert into %s.%s (month, inputs, next_offsets) values ($1, $2, $3)`,
		schema, usageMonths), month, m.Inputs.Text, string(next)); err != nil {
		return err
	}
	for days := range slices.Chunk(m.Days, defaultTuning.array) {
		statement, args := insertDays(schema, m, days)
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// insertDays returns a statement that inserts days as arrays, one for each column.
func insertDays(schema string, m *usage.Month, days []usage.Day) (statement string, args []any) {
	n := len(days)
	dates, held := newArray(oidText, 12*n), newArray(oidText, 8*n)
	texts := [5]*array{}
	for i := range texts {
		texts[i] = newArray(oidText, 24*n)
	}
	for i := range days {
		d := &days[i]
		dates.text(d.Day.Time().Format("2006-01-02"))
		held.text(fmt.Sprint(d.Held))
		for j, s := range [...]string{d.Cluster, d.Model, string(d.Billing), d.Workspace, d.Deployment} {
			text, _ := columnText(s, maxHeld)
			texts[j].text(text)
		}
	}
	args = []any{
		m.Inputs.Month.From.Time(), dates.value(), texts[0].value(), texts[1].value(), texts[2].value(), held.value(),
		texts[3].value(), texts[4].value(),
	}
	names := make([]string, len(usageDayColumns))
	unnest := []string{
		"$2::text[]", "$3::text[]", "$4::text[]", "$5::text[]", "$6::text[]", "$7::text[]", "$8::text[]",
	}
	for i, c := range usageDayColumns {
		if names[i] = c.name; c.of == nil {
			continue
		}
		times := newArray(oidInt8, 12*n)
		for j := range days {
			times.int(c.of(&days[j].Time))
		}
		args = append(args, times.value())
		unnest = append(unnest, fmt.Sprintf("$%d::bigint[]", len(args)))
	}
	columns := strings.Join(names[1:], ", ")
	values := strings.NewReplacer("day,", "u.day::date,", "held,", "u.held::boolean,").Replace(columns)
	return fmt.Sprintf("insert into %s.%s (month, %s) select $1::timestamptz, %s from unnest(%s) u(%s)",
		schema, usageDays, columns, values, strings.Join(unnest, ", "), columns), args
}
