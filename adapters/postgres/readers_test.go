package postgres

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/lib/pq"
)

// A configured reader without a role does not stop a generation or a month from being made. Once
// the role exists, Grant gives it access to what was made before.
func TestReaderCreatedLater(t *testing.T) {
	dsn := database(t)
	early := fmt.Sprintf("early_%d_%d", os.Getpid(), generations.Add(1))
	late := fmt.Sprintf("late_%d_%d", os.Getpid(), generations.Add(1))
	db, ctx, l := openedAt(t, dsn, early, late), t.Context(), examples()
	exec := func(q string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(role string) {
		t.Cleanup(func() {
			// Revoking a role's rights requires membership in it.
			if _, err := db.Exec(fmt.Sprintf("grant %s to current_user; drop owned by %[1]s; drop role %[1]s", role)); err != nil {
				t.Error(err)
			}
		})
	}
	exec("create role " + early)
	remove(early)
	g := generation(t, db)
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(ctx, l.End()); err != nil {
		t.Fatalf("fold while %s is no role: %v", late, err)
	}
	// not lists what a role may not read: views, control tables, tables and months.
	refused := func(role string) (names []string) {
		t.Helper()
		names, err := collectText(db.QueryContext(ctx, `
			select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where c.relkind in ('r', 'p', 'v') and (n.nspname = $2 or n.nspname = 'quartermaster' and c.relname = any ($3::text[]))
			and not (has_schema_privilege($1, n.oid, 'usage') and has_table_privilege($1, c.oid, 'select'))`,
			role, schemaOf(g), pq.Array(readable())))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if not := refused(early); len(not) > 0 {
		t.Errorf("%s may not read %v", early, not)
	}
	if missing, err := db.MissingReaders(ctx); err != nil || !slices.Equal(missing, []string{late}) {
		t.Errorf("missing are %v: %v", missing, err)
	}
	if s, err := Inspect(ctx, Config{DSN: dsn, Readers: []string{early, late}}); err != nil || !slices.Equal(s.MissingReaders, []string{late}) {
		t.Errorf("Inspect tells of %v: %v", s.MissingReaders, err)
	}

	exec("create role " + late)
	remove(late)
	if not := refused(late); len(not) < len(tables) {
		t.Fatalf("%s is refused %d tables and views only", late, len(not))
	}
	granted, missing, err := db.Grant(ctx)
	if err != nil || len(missing) > 0 || !slices.Equal(granted, []string{early, late}) {
		t.Fatalf("granted %v, missing %v: %v", granted, missing, err)
	}
	if not := refused(late); len(not) > 0 {
		t.Errorf("%s still may not read %v", late, not)
	}
}
