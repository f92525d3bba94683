package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// spread puts every second partition of each topic, and the whole of the others, into a database
// called more.
func spread(dsn string) Other {
	o := Other{Name: "more", DSN: dsn}
	for _, tp := range domain.AllPartitions() {
		if tp.Partition%2 == 1 || tp.Topic == domain.TopicHardware || tp.Topic == domain.TopicWorkspaces {
			o.Partitions = append(o.Partitions, tp)
		}
	}
	return o
}

// severalOpened returns a database with another one beside it, and their configuration.
func severalOpened(t testing.TB) (*DB, Config) {
	t.Helper()
	cfg := Config{DSN: database(t), Others: []Other{spread(database(t))}}
	return openedWith(t, cfg), cfg
}

func openedWith(t testing.TB, cfg Config) *DB {
	t.Helper()
	if _, _, err := Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func several(t testing.TB) *DB {
	t.Helper()
	db, _ := severalOpened(t)
	return db
}

func TestStoreSeveral(t *testing.T) { testStore(t, several(t), "Usual") }

func TestDetachSeveral(t *testing.T)         { testDetach(t, several(t)) }
func TestDetachAnywhereSeveral(t *testing.T) { testDetachAnywhere(t, several(t)) }
func TestDetachFencesSeveral(t *testing.T)   { testDetachFences(t, several(t)) }

// Of two databases each has the rows of its own partitions, and both together those of the log.
func TestSeveralShareRows(t *testing.T) {
	db := several(t)
	g := generation(t, db)
	l := storetest.Fleet(4, 30, storetest.Start)
	l.Append(storetest.Examples()...)
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if got, want := digests(t, l, db, g); got != want {
		t.Fatalf("digest %x, want %x", got, want)
	}
	rows := map[string]int{}
	for name, at := range db.all {
		var n int
		if err := at.QueryRowContext(t.Context(), "select count(*) from "+schemaOf(g)+".streams").Scan(&n); err != nil {
			t.Fatal(err)
		}
		rows[name] = n
		places, err := collectText(at.QueryContext(t.Context(), `select distinct log_partition from `+schemaOf(g)+`.streams`))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			here := slices.ContainsFunc(db.others[0].Partitions, func(tp domain.TopicPartition) bool { return tp.String() == p })
			if here != (name == "more") {
				t.Errorf("database %q has rows of %s", name, p)
			}
		}
	}
	if rows[""] == 0 || rows["more"] == 0 {
		t.Errorf("rows of streams: %v", rows)
	}
	gen, err := db.Generation(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if at := gen.Position(); at.String() != l.End().String() {
		t.Errorf("it is at %s, want %s", at, l.End())
	}
	if len(db.Misplaced(gen)) != 0 {
		t.Errorf("misplaced: %v", db.Misplaced(gen))
	}
	// A generation in one database is equal to one in two, row by row.
	db.others[0].Partitions = nil
	one := generation(t, db)
	if err := l.Runner(claimed(t, db, one, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	c, err := db.Compare(t.Context(), g, one, func(context.Context, domain.Position) error { return nil })
	if err != nil || !c.Equal() || len(c.Tables) == 0 {
		t.Errorf("%+v: %v", c, err)
	}
	if moved := db.Misplaced(gen); len(moved) == 0 {
		t.Error("the configuration keeps nothing in the other database, and nothing is misplaced")
	}
	at, counted, err := db.counts(t.Context(), g)
	if err != nil || at.String() != l.End().String() {
		t.Errorf("counted at %s: %v", at, err)
	}
	if _, alone, err := db.counts(t.Context(), one); err != nil || fmt.Sprint(counted) != fmt.Sprint(alone) {
		t.Errorf("counted %v, and in one database %v: %v", counted, alone, err)
	}
}

// Who took a partition over in the first database and not yet in the other one has not fenced its
// owner there, and may not fold itself. Who is slower than its successor never gets it.
func TestSeveralFence(t *testing.T) {
	db := several(t)
	g := generation(t, db)
	l := storetest.Fleet(4, 6, storetest.Start)
	var tp domain.TopicPartition
	for _, at := range db.others[0].Partitions {
		if l.End()[at] > l.End()[tp] {
			tp = at
		}
	}
	old := claimed(t, db, g, nil)
	step := func(s *Store) error { _, err := storetest.Step(t.Context(), l, s, tp, 1); return err }
	if err := step(old); err != nil {
		t.Fatal(err)
	}
	kill := func(s *Store) {
		if _, err := db.ExecContext(t.Context(), `update quartermaster.sessions set alive_until = now() - interval '1 hour' where token = $1`, s.token); err != nil {
			t.Fatal(err)
		}
	}
	// The first step of a claim alone.
	if _, err := db.ExecContext(t.Context(), `
		update quartermaster.partitions set epoch = epoch + 1, owner = 'half' where generation = $1 and topic = $2 and partition = $3`,
		g, string(tp.Topic), tp.Partition); err != nil {
		t.Fatal(err)
	}
	if err := step(old); err != nil {
		t.Fatalf("nobody has reached the rows, and the owner is fenced: %v", err)
	}
	kill(old)
	// It has a transaction open there, as a frozen process does.
	frozen, err := db.others[0].Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Rollback()
	if _, err := frozen.Exec(`update quartermaster.partitions set owner = owner where generation = $1 and topic = $2 and partition = $3
		and set_config('application_name', $4, true) is not null`, g, string(tp.Topic), tp.Partition, applicationName(old.token)); err != nil {
		t.Fatal(err)
	}
	heir := db.Store(g, "heir")
	if _, err := db.ExecContext(t.Context(), `
		insert into quartermaster.sessions (token, instance, method, lease, alive_until)
		values ('heir', 'heir', $1, '1 hour', now() + interval '1 hour')`, projections.Method); err != nil {
		t.Fatal(err)
	}
	if ok, err := heir.Claim(t.Context(), tp); err != nil || ok {
		t.Fatalf("claimed while a transaction is open: %t, %v", ok, err)
	}
	if err := step(heir); !errors.Is(err, projections.ErrFenced) {
		t.Fatalf("it folds without the second step: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); ; { // the server ends it soon
		ok, err := heir.Claim(t.Context(), tp)
		if ok {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the open transaction was not ended: %v", err)
		}
	}
	if err := step(old); !errors.Is(err, projections.ErrFenced) {
		t.Fatalf("the old owner is not fenced: %v", err)
	}
	if err := step(heir); err != nil {
		t.Fatal(err)
	}
	// A first database that was restored counts from an earlier epoch. The next claim is later all the
	// same.
	if _, err := db.ExecContext(t.Context(), `update quartermaster.partitions set epoch = 0 where generation = $1`, g); err != nil {
		t.Fatal(err)
	}
	if ok, err := heir.Claim(t.Context(), tp); err != nil || !ok {
		t.Fatalf("claim again: %t, %v", ok, err)
	}
	if err := l.Runner(heir).FollowPartition(stopped(t), tp); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// stopped is a context that has ended.
func stopped(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// What changes in the first database changes in the other one.
func TestSeveralGenerations(t *testing.T) {
	ctx := t.Context()
	db, cfg := severalOpened(t)
	copied := func() map[string]copied {
		t.Helper()
		have, err := copies(ctx, db.others[0].DB, "")
		if err != nil {
			t.Fatal(err)
		}
		return have
	}
	if made, err := db.First(ctx, projections.Method); err != nil || !made {
		t.Fatal(made, err)
	}
	if a := copied()["a"]; !a.Active || a.State != Live || a.Partitions == "" {
		t.Errorf("%+v", a)
	}
	for _, err := range []error{db.Create(ctx, "b", projections.Method), db.SetLive(ctx, "b"), db.Switch(ctx, "b")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if have := copied(); have["a"].Active || !have["b"].Active || have["b"].State != Live {
		t.Errorf("%+v", have)
	}
	if err := db.Drop(ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	if have := copied(); len(have) != 1 {
		t.Errorf("%+v", have)
	}
	l := storetest.Fleet(4, 6, storetest.Start)
	if err := l.Runner(claimed(t, db, "b", nil)).CatchUp(ctx, l.End()); err != nil {
		t.Fatal(err)
	}
	// The other database is lost. Nothing is answered from half of the rows.
	lost := cfg
	lost.Others = []Other{spread(database(t))}
	if _, err := Open(ctx, lost); !errors.Is(err, ErrSchema) {
		t.Errorf("an empty database: %v", err)
	}
	if _, _, err := Migrate(ctx, lost); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, lost)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.View(ctx, func(projections.View) error { return nil }); !errors.Is(err, ErrDatabases) || !strings.Contains(err.Error(), `database "more" has no rows of generation b`) {
		t.Errorf("%v", err)
	}
	if stops, err := again.Generation(ctx, "b"); err != nil || len(stops.Stops()) != len(lost.Others[0].Partitions) {
		t.Errorf("%v: %v", stops, err)
	}
	if _, _, err := again.Grant(ctx); err != nil { // as "generation migrate" does
		t.Fatal(err)
	}
	if _, err := again.ExecContext(ctx, `update quartermaster.partitions set owner = null`); err != nil {
		t.Fatal(err)
	}
	if err := l.Runner(claimed(t, again, "b", nil)).CatchUp(ctx, l.End()); err != nil {
		t.Fatal(err)
	}
	if got, want := digests(t, l, again, "b"); got != want {
		t.Errorf("folded again: digest %x, want %x", got, want)
	}
}

// A name of a generation is used again after the other database was away while the first one dropped it. The other one
// has nothing of the rows of then.
func TestSeveralReuseOfAName(t *testing.T) {
	ctx := t.Context()
	db, _ := severalOpened(t)
	if made, err := db.First(ctx, projections.Method); err != nil || !made {
		t.Fatal(made, err)
	}
	old, l := storetest.Fleet(6, 9, storetest.Start), storetest.Fleet(4, 6, storetest.Start)
	for round, log := range []*storetest.Log{old, l} {
		if err := db.Create(ctx, "b", projections.Method); err != nil {
			t.Fatal(err)
		}
		g, err := db.Generation(ctx, "b")
		if err != nil {
			t.Fatal(err)
		}
		if n := g.Position().Records(); n != 0 {
			t.Fatalf("round %d: the new generation has %d records", round, n)
		}
		if err := log.Runner(claimed(t, db, "b", nil)).CatchUp(ctx, log.End()); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			break
		}
		// As in a drop of which only the first database knows, after which the other one is reached again.
		if _, err := db.ExecContext(ctx, `update quartermaster.partitions set owner = null`); err != nil {
			t.Fatal(err)
		}
		if err := change(ctx, db.DB, func(tx *sql.Tx) error { return db.drop(ctx, tx, "b") }); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := digests(t, l, db, "b"); got != want {
		t.Errorf("digest %x, want %x", got, want)
	}
	// A copy of before copies were noted is taken as it is.
	if _, err := db.others[0].ExecContext(ctx, `update quartermaster.generations set copy_of = null`); err != nil {
		t.Fatal(err)
	}
	if err := db.follow(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := digests(t, l, db, "b"); got != want {
		t.Errorf("after the upgrade: digest %x, want %x", got, want)
	}
	if unknown := texts(t, &DB{DB: db.others[0].DB}, `select count(*)::text from quartermaster.generations where copy_of is null`); unknown[0] != "0" {
		t.Errorf("%s copies are not noted", unknown[0])
	}
}

// Databases that do not belong together are refused before anything is written to them.
func TestSeveralRefused(t *testing.T) {
	ctx := t.Context()
	db, cfg := severalOpened(t)
	if _, err := db.First(ctx, projections.Method); err != nil {
		t.Fatal(err)
	}
	foreign, cfg2 := severalOpened(t)
	if _, err := foreign.First(ctx, projections.Method); err != nil {
		t.Fatal(err)
	}
	with := func(others ...Other) Config { c := cfg; c.Others = others; return c }
	more := cfg.Others[0]
	named := func(name, dsn string) Other { return Other{Name: name, DSN: dsn} }
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"not named":              {with(), `rows are in database "more", which postgres.others does not name`},
		"the first":              {with(more, named("x", cfg.DSN)), `"x" of postgres.others is the first database itself`},
		"twice":                  {with(more, named("x", more.DSN)), `"x" of postgres.others is the database that was called "more"`},
		"of others":              {with(more, named("x", cfg2.Others[0].DSN)), `"x" of postgres.others belongs to another installation, where it is called "more"`},
		"the first of others":    {with(more, named("x", cfg2.DSN)), `"x" of postgres.others has rows of its own`},
		"another as the first":   {Config{DSN: more.DSN}, `postgres.dsn names the database "more" of postgres.others`},
		"the first of others us": {Config{DSN: cfg2.DSN, Others: cfg.Others}, `"more" of postgres.others belongs to another installation`},
	} {
		got, err := Open(ctx, c.cfg)
		if err == nil {
			got.Close()
		}
		if !errors.Is(err, ErrDatabases) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: open: %v, want %s", name, err, c.want)
		}
		if name == "not named" {
			continue
		}
		if name != "another as the first" { // there is nothing to migrate
			if _, _, err := Migrate(ctx, c.cfg); !errors.Is(err, ErrDatabases) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: migrate: %v, want %s", name, err, c.want)
			}
		}
		if s, err := Inspect(ctx, c.cfg); err == nil && !slices.ContainsFunc(s.Others, func(o OtherState) bool {
			return o.Err != nil && strings.Contains(o.Err.Error(), c.want)
		}) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: inspect: %v, %+v", name, err, s.Others)
		}
	}
	// A new database is taken in by name.
	fresh := with(more, named("x", database(t)))
	if _, _, err := Migrate(ctx, fresh); err != nil {
		t.Fatal(err)
	}
	openedWith(t, fresh)
	// A database that has other partitions than the first says.
	if _, err := db.others[0].ExecContext(ctx, `delete from quartermaster.partitions where topic = 'qm.hardware' and partition = 0`); err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(projections.View) error { return nil }); !errors.Is(err, ErrDatabases) {
		t.Errorf("%v", err)
	}
	if _, err := db.others[0].ExecContext(ctx, `insert into quartermaster.partitions (generation, topic, partition) values ('a', 'qm.hardware', 0), ('a', 'qm.telemetry', 0)`); err != nil {
		t.Fatal(err)
	}
	if err := db.View(ctx, func(projections.View) error { return nil }); !errors.Is(err, ErrDatabases) || !strings.Contains(err.Error(), "and the first database says") {
		t.Errorf("%v", err)
	}
}

// One database that does not answer keeps no partition of another one waiting.
func TestSeveralOneIsGone(t *testing.T) {
	db := several(t)
	if _, err := db.First(t.Context(), projections.Method); err != nil {
		t.Fatal(err)
	}
	// Its rows cannot be claimed.
	if _, err := db.others[0].ExecContext(t.Context(), `alter table quartermaster.partitions rename to gone`); err != nil {
		t.Fatal(err)
	}
	began := make(chan domain.TopicPartition, len(domain.AllPartitions()))
	s := join(t, db, "alone")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Share(ctx, func(ctx context.Context, _ *Store, tp domain.TopicPartition) error {
			began <- tp
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	for range len(domain.AllPartitions()) - len(db.others[0].Partitions) {
		if tp := <-began; slices.Contains(db.others[0].Partitions, tp) {
			t.Errorf("%s was claimed", tp)
		}
	}
	if _, err := db.others[0].ExecContext(t.Context(), `alter table quartermaster.gone rename to partitions`); err != nil {
		t.Fatal(err)
	}
	for range db.others[0].Partitions {
		if tp := <-began; !slices.Contains(db.others[0].Partitions, tp) {
			t.Errorf("%s was claimed again", tp)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
