package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

var databases atomic.Int64

// database returns the DSN of a new, empty database on the server named by QM_POSTGRES_DSN. It is
// dropped when the test ends.
func database(t testing.TB) string {
	t.Helper()
	dsn := os.Getenv("QM_POSTGRES_DSN")
	if dsn == "" {
		t.Skip("QM_POSTGRES_DSN names no server")
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		t.Fatalf("QM_POSTGRES_DSN is not a URL: %v", err)
	}
	server, err := connect(t.Context(), Config{DSN: dsn, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("qm_test_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := server.ExecContext(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := server.ExecContext(context.Background(), "drop database "+name+" with (force)")
		if err != nil { // only waiting helps while an autovacuum runs
			_, err = server.ExecContext(context.Background(), "drop database "+name)
		}
		if err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	u.Path = "/" + name
	// No test crashes the server, so commits need not be durable.
	q := u.Query()
	q.Set("options", "-c synchronous_commit=off -c timezone=UTC")
	u.RawQuery = q.Encode()
	return u.String()
}

// opened returns a database with this program's schema.
func opened(t testing.TB) *DB {
	t.Helper()
	return openedAt(t, database(t))
}

func openedAt(t testing.TB, dsn string, readers ...Reader) *DB {
	t.Helper()
	cfg := Config{DSN: dsn, Readers: readers}
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

var generations atomic.Int64

// generation makes an empty generation of rows and returns its name.
func generation(t testing.TB, db *DB) string {
	t.Helper()
	name := fmt.Sprintf("g%d", generations.Add(1))
	if err := db.change(t.Context(), func(tx *sql.Tx) error {
		return db.create(t.Context(), tx, name, projections.Method, Live, domain.AllPartitions(), db.placeOf)
	}); err != nil {
		t.Fatal(err)
	}
	return name
}

func inTx(t testing.TB, db interface {
	BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error)
}, do func(*sql.Tx) error,
) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// claimed returns a store that has claimed every partition.
func claimed(t testing.TB, db *DB, generation string, tune func(*tuning)) *Store {
	t.Helper()
	s := db.Store(generation, fmt.Sprintf("session-%s-%d", generation, databases.Add(1)))
	if tune != nil {
		tune(&s.tuning)
	}
	if _, err := db.ExecContext(t.Context(), `
		insert into quartermaster.sessions (token, instance, method, lease, alive_until)
		values ($1, $1, $2, '1 hour', now() + interval '1 hour')`,
		s.token, projections.Method); err != nil {
		t.Fatal(err)
	}
	for _, tp := range domain.AllPartitions() {
		if ok, err := s.Claim(t.Context(), tp); err != nil || !ok {
			t.Fatalf("claim %s: %v, error %v", tp, ok, err)
		}
	}
	return s
}

// emptied deletes every row of a generation and resets its position.
func emptied(t testing.TB, db *DB, generation string) string {
	t.Helper()
	for _, at := range db.all {
		inTx(t, at, func(tx *sql.Tx) error {
			for _, name := range tableNames() {
				if _, err := tx.ExecContext(t.Context(), "delete from "+schemaOf(generation)+"."+name); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(t.Context(), "delete from quartermaster.detached_months where generation = $1", generation); err != nil {
				return err
			}
			_, err := tx.ExecContext(t.Context(), `update quartermaster.partitions set next_offset = 0, last_offset = null, last_epoch = null, last_sha256 = null, owner = null where generation = $1`, generation)
			return err
		})
	}
	return generation
}

// reopening is a store whose partitions another session takes over.
type reopening struct {
	*Store
	tune func(*tuning)
}

func (r reopening) Reopen(t *testing.T) projections.Store {
	for _, tp := range domain.AllPartitions() {
		if err := r.Release(t.Context(), tp); err != nil {
			t.Fatal(err)
		}
	}
	return reopening{claimed(t, r.db, r.generation, r.tune), r.tune}
}

func TestStore(t *testing.T) { testStore(t, opened(t), "Usual", "Bytes", "NoCache") }

// testStore runs the suite with some ways to tune a store.
func testStore(t *testing.T, db *DB, ways ...string) {
	g := generation(t, db)
	for name, tune := range map[string]func(*tuning){
		"Usual":   nil,
		"Bytes":   func(h *tuning) { h.bytes = 500 },
		"NoCache": func(h *tuning) { h.keep = 0; h.array = 3; h.page = 2 },
	} {
		if !slices.Contains(ways, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) projections.Store {
				return reopening{claimed(t, db, emptied(t, db, g), tune), tune}
			})
		})
	}
}

// Other processes see why a partition is stopped until it moves.
func TestStopIsKept(t *testing.T) {
	db, cfg := migrated(t)
	l, s := storetest.Fleet(4, 6, storetest.Start), claimed(t, db, "a", nil)
	var tp domain.TopicPartition
	for at, n := range l.End() {
		if n > l.End()[tp] {
			tp = at
		}
	}
	l.Break(tp, 2)
	r := l.Runner(s)
	if err := r.FollowPartition(t.Context(), tp); err == nil {
		t.Fatal("a broken partition is followed")
	}
	want := projections.Stops{tp: {Offset: 2, Reason: "log is broken", Advice: "mend it"}}
	if p := r.Progress(); p.Stopped[tp].String() != want[tp].String() || p.Position[tp] != 2 {
		t.Errorf("between two tries it is at %s and stopped %v", p.Position, p.Stopped)
	}
	r.Forget(tp)
	if p := r.Progress(); len(p.Stopped) != 0 || len(p.Position) != 0 {
		t.Errorf("once another folds it, it is at %s and stopped %v", p.Position, p.Stopped)
	}
	kept := func() projections.Stops {
		t.Helper()
		g, err := db.Generation(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		state, err := Inspect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		inspected := Generation{Partitions: state.Partitions}
		if !maps.Equal(g.Stops(), inspected.Stops()) {
			t.Errorf("the generation says %v, the inspection %v", g.Stops(), inspected.Stops())
		}
		return g.Stops()
	}
	if got := kept(); !maps.Equal(got, want) {
		t.Errorf("kept %v, want %v", got, want)
	}
	l.Mend()
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) != 0 {
		t.Errorf("kept %v after it went on", got)
	}
	// A stop can be resolved without folding a record, for example when a truncated log has grown
	// to its old length.
	if err := errors.Join(s.KeepStop(t.Context(), tp, &projections.Stop{Reason: "\xff\x00"}), s.KeepStop(t.Context(), tp, nil)); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) != 0 {
		t.Errorf("kept %v after it was read again", got)
	}
}

func TestDue(t *testing.T) {
	const telemetry = domain.TopicTelemetry
	for _, c := range []struct {
		why    string
		topic  domain.Topic
		n, all int64
		p      projections.Pending
		want   bool
	}{
		{"rows of another topic are hardly written twice", domain.TopicFleet, 1000, 1000, projections.Pending{Records: 1}, true},
		{"few samples of each node", telemetry, 1000, 1000, projections.Pending{Records: 500}, false},
		{"many samples of each node", telemetry, 1000, 1000, projections.Pending{Records: changesPerRow * 1000}, true},
		{"they span a long time", telemetry, 1000, 1000, projections.Pending{Records: 500, Span: longest}, true},
		{"few rows at the end", telemetry, dueNow, 64, projections.Pending{Records: 32, AtEnd: true}, true},
		{"few rows, but more records come", telemetry, dueNow, 64, projections.Pending{Records: 32}, false},
		{"at the end for the first time", telemetry, 1000, 1000, projections.Pending{Records: 500, AtEnd: true, First: true}, true},
		{"at the end again", telemetry, 1000, 1000, projections.Pending{Records: 500, AtEnd: true}, false},
		{"no more comes for a while", telemetry, 1000, 1000, projections.Pending{Records: 500, AtEnd: true, Silent: 19}, false},
		{"no more comes", telemetry, 1000, 1000, projections.Pending{Records: 500, AtEnd: true, Silent: 20}, true},
		{"too many rows", telemetry, leastPending + 1, mostPending + 1, projections.Pending{Records: 5000}, true},
		{"too many rows of other partitions", telemetry, leastPending, mostPending + 1, projections.Pending{Records: 5000}, false},
	} {
		if got := due(c.topic, c.n, c.all, c.p); got != c.want {
			t.Errorf("%s: due is %t", c.why, got)
		}
	}
}

// A rebuild writes rows once, not with every batch.
func TestBulk(t *testing.T) {
	db := opened(t)
	if _, err := db.ExecContext(t.Context(), `
		create table moves (generation text);
		create function note_move() returns trigger language plpgsql as $$ begin
			insert into moves values (new.generation);
			return null;
		end $$;
		create trigger note_move after update on quartermaster.partitions for each row
			when (old.next_offset <> new.next_offset) execute function note_move()`); err != nil {
		t.Fatal(err)
	}
	l := storetest.Fleet(4, 6, storetest.Start)
	l.Append(storetest.Examples()...)
	l.Batch = 5
	s := join(t, db, "rebuild")
	commits := map[string]int{}
	for way, store := range map[string]*Store{"usual": s.Store(generation(t, db)), "bulk": s.Bulk(generation(t, db))} {
		for _, tp := range domain.AllPartitions() {
			if ok, err := store.Claim(t.Context(), tp); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		if err := l.Runner(store).CatchUp(t.Context(), l.End()); err != nil {
			t.Fatal(err)
		}
		if got, want := digests(t, l, db, store.Generation()); got != want {
			t.Errorf("%s: digest %x, want %x", way, got, want)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), `select count(*) from moves where generation = $1`, store.Generation()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		commits[way] = n
	}
	if commits["bulk"] != len(l.End()) || commits["usual"] <= commits["bulk"] {
		t.Errorf("commits: %v, for %d partitions with records", commits, len(l.End()))
	}
}
