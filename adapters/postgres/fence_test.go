package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

var fleet = domain.TopicPartition{Topic: domain.TopicFleet, Partition: domain.PartitionOf([]byte("c1"), domain.TopicFleet.Partitions())}

func examples() *storetest.Log {
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	return l
}

func TestUnclaimed(t *testing.T) {
	db := opened(t)
	s := claimed(t, db, generation(t, db), nil)
	for _, tp := range domain.AllPartitions() {
		if err := s.Release(t.Context(), tp); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Begin(t.Context(), fleet); !errors.Is(err, projections.ErrFenced) {
		t.Errorf("began without a claim: %v", err)
	}
	if ok, err := s.Claim(t.Context(), domain.TopicPartition{Topic: domain.TopicFleet, Partition: 99}); ok || err != nil {
		t.Errorf("claimed a partition that does not exist: %v, %v", ok, err)
	}
}

// A session that was wrongly presumed dead can no longer change anything.
func TestTakenOver(t *testing.T) {
	db, ctx, l := opened(t), t.Context(), examples()
	g := generation(t, db)
	first := claimed(t, db, g, nil)
	if _, err := storetest.Step(ctx, l, first, fleet, 2); err != nil {
		t.Fatal(err)
	}
	rival := db.Store(g, "rival")
	if ok, err := rival.Claim(ctx, fleet); ok || !errors.Is(err, projections.ErrFenced) {
		t.Fatalf("a session that the database does not know claimed: %v, %v", ok, err)
	}
	if _, err := db.ExecContext(ctx, `
		insert into quartermaster.sessions (token, instance, method, lease, alive_until)
		values ('rival', 'rival', 'm', '1 hour', now() + interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	if ok, err := rival.Claim(ctx, fleet); ok || err != nil {
		t.Fatalf("claimed what a live session owns: %v, %v", ok, err)
	}
	open, err := first.Begin(ctx, fleet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `update quartermaster.sessions set alive_until = now() - interval '1 second' where token <> 'rival'`); err != nil {
		t.Fatal(err)
	}
	if ok, err := rival.Claim(ctx, fleet); !ok || err != nil {
		t.Fatalf("did not claim what a dead session owned: %v, %v", ok, err)
	}
	// The position has not moved, but the first session is still refused.
	if err := open.Commit(ctx, open.Next(), domain.Anchor{}); !errors.Is(err, projections.ErrFenced) {
		t.Errorf("committed under a lost claim: %v", err)
	}
	if _, err := first.Begin(ctx, fleet); !errors.Is(err, projections.ErrFenced) {
		t.Fatalf("began under a lost claim: %v", err)
	}
	if err := first.Release(ctx, fleet); err != nil {
		t.Error(err)
	}
	for {
		n, err := storetest.Step(ctx, l, rival, fleet, 3)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	if err := rival.Release(ctx, fleet); err != nil {
		t.Fatal(err)
	}
	again := claimed(t, db, emptyOwners(t, db, g), nil)
	if err := l.Runner(again).CatchUp(ctx, l.End()); err != nil {
		t.Fatal(err)
	}
	want, err := l.Fold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same(t, again, want)
}

func emptyOwners(t *testing.T, db *DB, g string) string {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `update quartermaster.partitions set owner = null where generation = $1`, g); err != nil {
		t.Fatal(err)
	}
	return g
}

// A transaction does not overwrite a position that moved since it began.
func TestPositionMoved(t *testing.T) {
	db, ctx, l := opened(t), t.Context(), examples()
	g := generation(t, db)
	s := claimed(t, db, g, nil)
	if _, err := storetest.Step(ctx, l, s, fleet, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `update quartermaster.partitions set next_offset = next_offset + 1 where generation = $1`, g); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Step(ctx, l, s, fleet, 2); !errors.Is(err, projections.ErrFenced) {
		t.Errorf("committed at another position: %v", err)
	}
}

// cutter forwards connections to a server, and cuts one when it commits.
type cutter struct {
	server string
	// armed: 1 cuts before the server receives the commit, 2 after it has answered.
	armed atomic.Int32
	cuts  atomic.Int32
}

func (c *cutter) serve(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go c.pass(client)
	}
}

func (c *cutter) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", c.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var deaf atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil || deaf.Load() {
				_ = client.Close()
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			_ = server.Close()
			<-done
			return
		}
		if bytes.Contains(b[:n], []byte("COMMIT\x00")) {
			switch c.armed.Swap(0) {
			case 1:
				c.cuts.Add(1)
				return
			case 2:
				c.cuts.Add(1)
				deaf.Store(true)
			}
		}
		if _, err := io.Copy(server, bytes.NewReader(b[:n])); err != nil {
			return
		}
	}
}

// After a commit with an unknown outcome the position is read again: records are neither lost nor
// folded twice.
func TestOutcomeUnknown(t *testing.T) {
	dsn := database(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Migrate(t.Context(), Config{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c := &cutter{server: u.Host}
	go c.serve(l)
	u.Host = l.Addr().String()
	db := openedAt(t, u.String())
	log, ctx := storetest.Fleet(5, 3, storetest.Start), t.Context()
	log.Append(storetest.Examples()...)
	s := claimed(t, db, generation(t, db), nil)
	for _, tp := range domain.AllPartitions() {
		for step := 0; ; step++ {
			c.armed.Store(int32(step % 3))
			n, err := storetest.Step(ctx, log, s, tp, 3)
			if errors.Is(err, projections.ErrFenced) {
				t.Fatal(err)
			}
			if err != nil && c.armed.Load() != 0 {
				t.Fatalf("failed without a cut: %v", err)
			}
			if err == nil && n == 0 {
				break
			}
		}
	}
	c.armed.Store(0)
	want, err := log.Fold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c.cuts.Load() < 10 {
		t.Errorf("%d commits were cut", c.cuts.Load())
	}
	same(t, s, want)
}

// Readers never fail while generations are built, switched to and dropped.
func TestReadersWhileGenerationsChange(t *testing.T) {
	db, ctx, l := opened(t), t.Context(), examples()
	var names []string
	for range 2 {
		g := generation(t, db)
		if err := l.Runner(claimed(t, db, g, nil)).CatchUp(ctx, l.End()); err != nil {
			t.Fatal(err)
		}
		names = append(names, g)
	}
	activate(t, db, names[0])
	want, err := l.Fold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var digest [32]byte
	if err := want.View(ctx, func(v projections.View) (err error) {
		digest, err = storetest.Digest(v)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var reads atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := db.View(ctx, func(v projections.View) error {
					got, err := storetest.Digest(v)
					if err == nil && got != digest {
						err = errors.New("the rows are others")
					}
					return err
				})
				if err == nil && i%2 == 0 {
					var n int
					if err = db.QueryRowContext(ctx, `select count(*) from quartermaster.nodes`).Scan(&n); err == nil && n != 1 {
						err = fmt.Errorf("%d nodes", n)
					}
				}
				if err != nil {
					t.Errorf("read %d: %v", reads.Load(), err)
					return
				}
				reads.Add(1)
			}
		})
	}
	for i := range 6 {
		activate(t, db, names[(i+1)%2])
		third := generation(t, db)
		inTx(t, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `delete from quartermaster.generations where name = $1`, third); err != nil {
				return err
			}
			return db.dropTables(ctx, tx, third)
		})
		for before := reads.Load(); reads.Load() < before+4 && !t.Failed(); {
			if err := ctx.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestViewNeedsItsMethod(t *testing.T) {
	db := opened(t)
	view := func() error { return db.View(t.Context(), func(projections.View) error { return nil }) }
	if err := view(); err == nil || !strings.Contains(err.Error(), "no active generation") {
		t.Errorf("read no generation: %v", err)
	}
	g := generation(t, db)
	activate(t, db, g)
	if err := view(); err != nil {
		t.Error(err)
	}
	if _, err := db.ExecContext(t.Context(), `update quartermaster.generations set method = 'folds/0'`); err != nil {
		t.Fatal(err)
	}
	if err := view(); !errors.Is(err, ErrMethod) || !strings.Contains(err.Error(), `"folds/0"`) {
		t.Errorf("read rows of another method: %v", err)
	}
	if err := db.Store("gone", "").View(t.Context(), func(projections.View) error { return nil }); err == nil {
		t.Error("read a generation that does not exist")
	}
}

// Several processes may make partitions at once while rows are read.
func TestMonths(t *testing.T) {
	db, ctx := opened(t), t.Context()
	g := generation(t, db)
	reader, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback() }()
	var n int
	if err := reader.QueryRowContext(ctx, "select count(*) from "+schemaOf(g)+".usage_hours").Scan(&n); err != nil {
		t.Fatal(err)
	}
	first := monthOf(int64(storetest.Start / domain.Hour))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			months := map[month]bool{firstMonth - 1: true, endMonth: true}
			for m := range month(3) {
				months[first+m] = true
			}
			if err := db.Store(g, "").ensureMonths(ctx, db.DB, months); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made := texts(t, db, `select inhrelid::regclass::text from pg_inherits where inhparent = $1::regclass`, schemaOf(g)+".usage_held"); len(made) != 5 {
		t.Errorf("partitions %v, want three months and those before and after", made)
	}

	// Rows of any hour have a partition.
	s := claimed(t, db, emptyOwners(t, db, g), nil)
	l := storetest.NewLog()
	for _, at := range []domain.Instant{domain.Hour, firstMonthStart() - domain.Hour, firstMonthStart(), storetest.Start, domain.InstantOf(endMonth.start()) - domain.Hour, domain.InstantOf(endMonth.start()), 9_000_000 * 1000 * domain.Second} {
		l.Append(domain.Envelope{Cluster: "c1", Time: at + domain.Hour, Event: storetest.Sample("n1", domain.Interval{From: at - 1800*domain.Second, To: at + 1800*domain.Second},
			storetest.Seen{ID: storetest.GPU("c1", "n1", 0), Workspace: "acme", Activity: 500})})
	}
	if err := l.Runner(s).CatchUp(ctx, l.End()); err != nil {
		t.Fatal(err)
	}
	want, err := l.Fold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same(t, s, want)
	heldAddsUp(t, db, s, want)
}

func firstMonthStart() domain.Instant { return domain.InstantOf(firstMonth.start()) }

// Loading reads only the months of the keys, by index.
func TestLoadLooksAtItsMonths(t *testing.T) {
	db, ctx := opened(t), t.Context()
	g := generation(t, db)
	s := db.Store(g, "")
	first := monthOf(int64(storetest.Start / domain.Hour))
	if err := s.ensureMonths(ctx, db.DB, map[month]bool{first: true, first + 1: true, first - 1: true}); err != nil {
		t.Fatal(err)
	}
	scopes, ids, hours := newArray(oidText, 0), newArray(oidText, 0), newArray(oidInt8, 0)
	hour := int64(storetest.Start / domain.Hour)
	scopes.text("c1")
	ids.text("n1")
	hours.int(hour)
	plan := strings.Join(texts(t, db, "explain (costs off) "+tableOf[projections.TableUsage].loadSQL(s.schema), scopes.value(), ids.value(), hours.value(), hour, hour), "\n")
	if strings.Count(plan, " on usage_hours") != 1 || !strings.Contains(plan, "Index Scan using usage_hours_2026_05_pkey on usage_hours_2026_05") {
		t.Errorf("loading one row does:\n%s", plan)
	}
}

// A transaction's application name is found again whatever the instance's name is.
func TestApplicationName(t *testing.T) {
	db := opened(t)
	for _, token := range []string{rand.Text(), rand.Text() + " gpu-ledger-é-" + strings.Repeat("x", 200)} {
		var kept bool
		if err := db.QueryRowContext(t.Context(), `select set_config('application_name', $1, false) = $1`, applicationName(token)).Scan(&kept); err != nil || !kept {
			t.Errorf("the server keeps another name than %q: %v", applicationName(token), err)
		}
	}
}
