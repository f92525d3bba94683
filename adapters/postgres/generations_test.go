package postgres

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func TestGenerations(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	if made, err := db.First(ctx, projections.Method); err != nil || made {
		t.Errorf("made another first generation: %t, %v", made, err)
	}
	list, err := db.Generations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Name != "a" || !list[0].Active || list[0].State != Live || list[0].Method != projections.Method ||
		list[0].Bytes == 0 || len(list[0].Partitions) != len(domain.AllPartitions()) || list[0].Position().String() != "0" || list[0].Created.IsZero() {
		t.Errorf("the first generation is %+v", list)
	}
	for _, name := range []string{"", "B", "1b", "b-c", "b;drop table x", strings.Repeat("b", 42)} {
		if err := db.Create(ctx, name, "m"); err == nil {
			t.Errorf("created generation %q", name)
		}
	}
	if err := db.Create(ctx, "a", "m"); !errors.Is(err, ErrGeneration) {
		t.Errorf("created a twice: %v", err)
	}
	// Several processes at once: one makes it.
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = db.Create(ctx, "b", "m2") })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else if !errors.Is(err, ErrGeneration) {
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("b was made %d times", made)
	}

	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"switch to a building generation", db.Switch(ctx, "b"), ErrGeneration},
		{"switch to a missing generation", db.Switch(ctx, "x"), ErrNoGeneration},
		{"set a missing generation live", db.SetLive(ctx, "x"), ErrNoGeneration},
		{"drop a missing generation", db.Drop(ctx, "x", true), ErrNoGeneration},
		{"drop the active one", db.Drop(ctx, "a", true), ErrGeneration},
		{"set live", db.SetLive(ctx, "b"), nil},
		{"set live again", db.SetLive(ctx, "b"), nil},
		{"switch", db.Switch(ctx, "b"), nil},
		{"switch again", db.Switch(ctx, "b"), nil},
		{"drop the new active one", db.Drop(ctx, "b", false), ErrGeneration},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	if active, err := db.Active(ctx); err != nil || active != "b" {
		t.Errorf("active is %q, %v", active, err)
	}
	// Switch with a decision. It is kept until Told; until then no other switch is possible.
	said := []byte("decision")
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"switch from an inactive one", db.SwitchBy(ctx, "x", "a", said), ErrGeneration},
		{"switch with a decision", db.SwitchBy(ctx, "b", "a", said), nil},
		{"switch before Told", db.SwitchBy(ctx, "a", "b", said), ErrGeneration},
		{"Told with another decision", db.Told(ctx, []byte("other")), nil},
		{"switch before the right Told", db.SwitchBy(ctx, "a", "b", said), ErrGeneration},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.err, c.want)
		}
	}
	if got, err := db.Untold(ctx); err != nil || string(got) != "decision" {
		t.Errorf("untold is %q, %v", got, err)
	}
	if err := errors.Join(db.Told(ctx, said), db.SwitchBy(ctx, "a", "b", said), db.Told(ctx, said)); err != nil {
		t.Errorf("switch back: %v", err)
	}
	if got, err := db.Untold(ctx); err != nil || got != nil {
		t.Errorf("untold is %q, %v", got, err)
	}
	// Switch back and drop the other.
	if err := db.Switch(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := db.Drop(ctx, "b", false); err != nil {
		t.Fatal(err)
	}
	if list, err = db.Generations(ctx); err != nil || len(list) != 1 {
		t.Errorf("left are %+v, %v", list, err)
	}
	var schema sql.NullString
	if err := db.QueryRow(`select to_regnamespace('rows_b')`).Scan(&schema); err != nil || schema.Valid {
		t.Errorf("the schema of b is there: %v, %v", schema, err)
	}
	if _, err := db.Generation(ctx, "b"); !errors.Is(err, ErrNoGeneration) {
		t.Errorf("b is there: %v", err)
	}
	if err := db.Create(ctx, "b", "m3"); err != nil {
		t.Errorf("made again after it was dropped: %v", err)
	}
}

// TestDropWhileFolded drops a generation while it is being folded.
func TestDropWhileFolded(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	if err := db.Create(ctx, "b", projections.Method); err != nil {
		t.Fatal(err)
	}
	s := join(t, db, "folder")
	store := claimAll(t, s, "b")
	l := storetest.Fleet(10, 24, storetest.Start)
	l.Batch = 2
	r := l.Runner(store)
	folded := make(chan error, 1)
	go func() { folded <- r.CatchUp(ctx, l.End()) }()
	for r.Progress().Records < 10 {
		select {
		case err := <-folded:
			t.Fatalf("folded before it could be dropped: %v", err)
		default:
		}
	}
	if err := db.Drop(ctx, "b", false); !errors.Is(err, ErrGeneration) || !strings.Contains(err.Error(), "folder") {
		t.Errorf("dropped without force: %v", err)
	}
	if err := db.Drop(ctx, "b", true); err != nil {
		t.Fatal(err)
	}
	if err := <-folded; err == nil {
		t.Error("folding went on without the generation")
	}
	if s.Context().Err() != nil {
		t.Errorf("the session ended too: %v", s.Context().Err())
	}
}

// TestDropWhileRead drops a generation during a long read of it. Readers of the active generation
// do not wait for that.
func TestDropWhileRead(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	if err := db.Create(ctx, "b", projections.Method); err != nil {
		t.Fatal(err)
	}
	long, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback() }()
	if _, err := long.Exec(`select from rows_b.nodes`); err != nil {
		t.Fatal(err)
	}
	dropped := make(chan error, 1)
	go func() { dropped <- db.Drop(ctx, "b", false) }()
	for range 5 {
		// The drop waits for the reader; meanwhile others wait for the drop.
		for waits := false; !waits; {
			if err := db.QueryRow(`select exists (select from pg_locks where not granted and relation = 'rows_b.nodes'::regclass)`).Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		if err := db.QueryRow(`select count(*) from quartermaster.nodes`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-dropped:
		t.Fatalf("dropped during a read: %v", err)
	default:
	}
	if err := long.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-dropped; err != nil {
		t.Error(err)
	}
	if list, err := db.Generations(ctx); err != nil || len(list) != 1 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// A process that freezes while it changes generations does not keep others from starting. The
// server ends its transaction.
func TestFrozenChange(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	ids := map[domain.Topic]string{domain.TopicFleet: "f1"}
	if err := db.Bind(ctx, "L1", ids); err != nil {
		t.Fatal(err)
	}
	if err := db.change(ctx, func(frozen *sql.Tx) error {
		var idle, lock string
		if err := frozen.QueryRow(`select current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout')`).Scan(&idle, &lock); err != nil || idle != "5s" || lock != changeWait {
			t.Errorf("a change may be idle for %q and waits for locks for %q: %v", idle, lock, err)
		}
		if err := db.Bind(ctx, "L1", ids); err != nil {
			t.Error(err)
		}
		if made, err := db.First(ctx, projections.Method); err != nil || made {
			t.Errorf("made a first generation: %t, %v", made, err)
		}
		if err := db.Bind(ctx, "L2", ids); !errors.Is(err, ErrOtherLog) {
			t.Error(err)
		}
		// A new log identity waits until the server ends the frozen transaction.
		if err := db.Bind(ctx, "L1", map[domain.Topic]string{domain.TopicBooks: "b1"}); err != nil {
			t.Error(err)
		}
		return nil
	}); err == nil {
		t.Error("a change that was idle for too long was committed")
	}
}

func claimAll(t *testing.T, s *Session, generation string) *Store {
	t.Helper()
	store := s.Store(generation)
	for _, tp := range domain.AllPartitions() {
		if ok, err := store.Claim(t.Context(), tp); err != nil || !ok {
			t.Fatalf("claim %s of %s: %t, %v", tp, generation, ok, err)
		}
	}
	return store
}

func TestBind(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	ids := map[domain.Topic]string{domain.TopicFleet: "f1", domain.TopicBooks: "b1"}
	for _, c := range []struct {
		what, log string
		topics    map[domain.Topic]string
		want      string // in the error; "" for none
	}{
		{"first", "L1", nil, ""},
		{"the same without ids", "L1", nil, ""},
		{"the same, now with ids", "L1", ids, ""},
		{"the same again", "L1", ids, ""},
		{"more ids", "L1", map[domain.Topic]string{domain.TopicMarket: "m1"}, ""},
		{"another log", "L2", ids, "they belong to log L1, this is L2"},
		{"a recreated topic", "L1", map[domain.Topic]string{domain.TopicFleet: "f2", domain.TopicBooks: "b1"}, "topic qm.fleet was deleted and created again (its id was f1 and is f2)"},
		{"the right one", "L1", ids, ""},
	} {
		err := db.Bind(ctx, c.log, c.topics)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (!errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	if _, err := db.Exec(`update quartermaster.topics set partitions = 3 where topic = 'qm.fleet'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Bind(ctx, "L1", ids); !errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "qm.fleet had 3 partitions") {
		t.Errorf("another number of partitions: %v", err)
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	join(t, db, "b")
	join(t, db, "a")
	if _, err := db.Exec(`update quartermaster.sessions set alive_until = now() - interval '1 minute' where instance = 'b'`); err != nil {
		t.Fatal(err)
	}
	list, err := db.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != "a" || !list[0].Alive || list[1].Name != "b" || list[1].Alive || list[0].Sharing {
		t.Errorf("listed are %+v", list)
	}
	// A process that joins removes instances that died long ago.
	if _, err := db.Exec(`update quartermaster.sessions set alive_until = now() - interval '1 day' where instance = 'b'`); err != nil {
		t.Fatal(err)
	}
	join(t, db, "c")
	list, err = db.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(list, func(in Instance) bool { return in.Name == "b" }) {
		t.Errorf("an instance that died long ago is listed: %+v", list)
	}
}
