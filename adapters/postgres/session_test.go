package postgres

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// migrated returns a database with a first generation, and its configuration. It first executes the
// statements of setup, with DATABASE standing for the database's name.
func migrated(t *testing.T, setup ...string) (*DB, Config) {
	t.Helper()
	cfg := Config{DSN: database(t), MaxConns: 24}
	if len(setup) > 0 {
		db, err := connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		u, err := url.Parse(cfg.DSN)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range setup {
			if _, err := db.Exec(strings.ReplaceAll(q, "DATABASE", strings.TrimPrefix(u.Path, "/"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, err := Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if made, err := db.First(t.Context(), projections.Method); err != nil || !made {
		t.Fatalf("made a first generation: %t, %v", made, err)
	}
	return db, cfg
}

// lease is short to make tests fast. No test asserts how long anything takes.
const lease = 600 * time.Millisecond

func join(t *testing.T, db *DB, instance string) *Session {
	t.Helper()
	s, err := db.Join(t.Context(), SessionConfig{Instance: instance, Method: projections.Method, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(nil) })
	return s
}

// sessionGroup is a number of sessions that share. It records which session works on which
// partition.
type sessionGroup struct {
	t  *testing.T
	db *DB

	mu      sync.Mutex
	at      map[Holding]string // the member that works on it now
	clashes []string
	changed chan struct{}
}

func newSessionGroup(t *testing.T, db *DB) *sessionGroup {
	return &sessionGroup{t: t, db: db, at: map[Holding]string{}, changed: make(chan struct{}, 1)}
}

func (h *sessionGroup) note() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// member is a session that shares.
type member struct {
	*Session
	stop context.CancelFunc
	done chan error
}

func (h *sessionGroup) join(instance string) *member {
	h.t.Helper()
	s := join(h.t, h.db, instance)
	ctx, cancel := context.WithCancel(h.t.Context())
	m := &member{s, cancel, make(chan error, 1)}
	go func() {
		m.done <- s.Share(ctx, func(ctx context.Context, store *Store, tp domain.TopicPartition) error {
			k := Holding{store.generation, tp}
			h.mu.Lock()
			if other := h.at[k]; other != "" {
				h.clashes = append(h.clashes, fmt.Sprintf("%s works on %s while %s does", instance, k, other))
			}
			h.at[k] = instance
			h.mu.Unlock()
			h.note()
			<-ctx.Done()
			h.mu.Lock()
			if h.at[k] == instance {
				delete(h.at, k)
			}
			h.mu.Unlock()
			h.note()
			return ctx.Err()
		})
		h.note()
	}()
	return m
}

// settled waits until the members share evenly.
func (h *sessionGroup) settled(members ...string) {
	h.t.Helper()
	for {
		h.mu.Lock()
		count := map[string]int{}
		for _, who := range h.at {
			count[who]++
		}
		all, clashes := len(h.at), slices.Clone(h.clashes)
		h.mu.Unlock()
		if len(clashes) > 0 {
			h.t.Fatal(strings.Join(clashes, "\n"))
		}
		want := len(domain.AllPartitions())
		even := all == want && len(count) == len(members)
		for _, m := range members {
			n := count[m]
			even = even && (n == want/len(members) || n == want/len(members)+1)
		}
		if even {
			return
		}
		select {
		case <-h.changed:
		case <-h.t.Context().Done():
			h.t.Fatalf("members %v hold %v of %d", members, count, want)
		}
	}
}

// clocks are databases whose clocks are an hour off the processes' clock.
var clocks = map[string][]string{
	"SameClock":   nil,
	"HourBehind":  shifted("+ interval '1 hour'"),
	"HourAhead":   shifted("- interval '1 hour'"),
	"DecadeAhead": shifted("- interval '10 years'"),
}

func shifted(by string) []string {
	return []string{
		`create schema shifted`,
		`create function shifted.now() returns timestamptz stable language sql as 'select pg_catalog.now() ` + strings.ReplaceAll(by, "'", "''") + `'`,
		`create function shifted.clock_timestamp() returns timestamptz volatile language sql as 'select pg_catalog.clock_timestamp() ` +
			strings.ReplaceAll(by, "'", "''") + `'`,
		`alter database DATABASE set search_path = shifted, pg_catalog, public`,
	}
}

// TestClockStepsBack turns the database's clock back by an hour, as after restoring a virtual
// machine or correcting a time server. The session of a process that was killed before that must
// not count as alive for an hour, or its share would not be folded.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	setup := append([]string{}, shifted("+ (select by from public.clock)")...)
	db, _ := migrated(t, append([]string{`create table public.clock (by interval)`, `insert into public.clock values ('0')`}, setup...)...)
	h := newSessionGroup(t, db)
	a, b, c := h.join("a"), h.join("b"), h.join("c")
	h.settled("a", "b", "c")
	killed := fmt.Errorf("killed: %w", projections.ErrFenced)
	c.end(killed)
	if err := <-c.done; !errors.Is(err, projections.ErrFenced) {
		t.Errorf("a killed one ended with %v", err)
	}
	if _, err := db.Exec(`update public.clock set by = '-1 hour'`); err != nil {
		t.Fatal(err)
	}
	// The database cannot know whether the heartbeats of live sessions were in time. So these
	// sessions are lost too, and join again.
	for _, m := range []*member{a, b} {
		if err := <-m.done; !errors.Is(err, projections.ErrFenced) {
			t.Errorf("after the clock stepped back a session ended with %v", err)
		}
	}
	h.join("a")
	h.join("b")
	h.settled("a", "b")
	list, err := db.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range list {
		if in.Alive != (in.Name != "c") {
			t.Errorf("instance %s is alive: %t", in.Name, in.Alive)
		}
	}
	// The name of the dead instance is free at once.
	h.join("c")
	h.settled("a", "b", "c")
}

func TestShare(t *testing.T) {
	for name, setup := range clocks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := migrated(t, setup...)
			h := newSessionGroup(t, db)
			a := h.join("a")
			h.settled("a")
			b := h.join("b")
			h.settled("a", "b")
			c := h.join("c")
			h.settled("a", "b", "c")
			d, e := h.join("d"), h.join("e")
			h.settled("a", "b", "c", "d", "e")

			// One member leaves in order: the others take its partitions without waiting for a
			// lease to end, and its name is free at once.
			b.stop()
			if err := <-b.done; err != nil {
				t.Error(err)
			}
			h.settled("a", "c", "d", "e")
			if held := b.Stats().Held; len(held) > 0 {
				t.Errorf("b stopped and still holds %v", held)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			b = h.join("b")
			h.settled("a", "b", "c", "d", "e")

			// Two members are killed without leaving.
			killed := fmt.Errorf("killed: %w", projections.ErrFenced)
			for _, m := range []*member{c, e} {
				m.end(killed)
				if err := <-m.done; !errors.Is(err, projections.ErrFenced) {
					t.Errorf("a killed one ended with %v", err)
				}
				if s := m.Stats(); s.Losses == 0 {
					t.Errorf("a killed one counts %d losses of %d claims", s.Losses, s.Claims)
				}
			}
			h.settled("a", "b", "d")

			// The heavy topic is spread over members, although few partitions moved.
			for who, n := range h.countOf(domain.TopicTelemetry) {
				if n < 1 || n > 5 {
					t.Errorf("%s has %d of the 8 partitions of telemetry", who, n)
				}
			}
			for _, m := range []*member{a, b, d} {
				m.stop()
				if err := <-m.done; err != nil {
					t.Error(err)
				}
			}
			g, err := db.Generation(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range g.Partitions {
				if p.Owner != "" {
					t.Errorf("%s still owns %s", p.Owner, p.TopicPartition)
				}
			}
		})
	}
}

func (h *sessionGroup) countOf(topic domain.Topic) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := map[string]int{}
	for k, who := range h.at {
		if k.Topic == topic {
			count[who]++
		}
	}
	return count
}

// Two live generations of one method are both folded. Dropping one stops only its own folding.
func TestShareGenerations(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	if err := db.Create(t.Context(), "b", projections.Method); err != nil {
		t.Fatal(err)
	}
	if err := db.Create(t.Context(), "other", "another method"); err != nil {
		t.Fatal(err)
	}
	if err := db.SetLive(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	h := newSessionGroup(t, db)
	m, n := h.join("m"), h.join("n")
	h.settled("m", "n") // "b" is building, and "other" has another method
	if err := db.SetLive(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	both := func(want map[string]int) {
		t.Helper()
		for {
			h.mu.Lock()
			got := map[string]int{}
			for k := range h.at {
				got[k.Generation]++
			}
			h.mu.Unlock()
			if maps.Equal(got, want) {
				return
			}
			select {
			case <-h.changed:
			case <-t.Context().Done():
				t.Fatalf("folded are %v, want %v", got, want)
			}
		}
	}
	all := len(domain.AllPartitions())
	both(map[string]int{"a": all, "b": all})
	if err := db.Drop(t.Context(), "b", false); !errors.Is(err, ErrGeneration) {
		t.Errorf("dropped while it was folded: %v", err)
	}
	if err := db.Drop(t.Context(), "b", true); err != nil {
		t.Fatal(err)
	}
	both(map[string]int{"a": all})
	for _, m := range []*member{m, n} {
		m.stop()
		if err := <-m.done; err != nil {
			t.Error(err)
		}
	}
}

// TestSecondOfAName runs two processes with one name.
func TestSecondOfAName(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	first := join(t, db, "twin")
	cfg := SessionConfig{Instance: "twin", Method: projections.Method, Lease: lease}
	_, err := db.Join(t.Context(), cfg)
	if !errors.Is(err, ErrInstanceTaken) || !strings.Contains(err.Error(), "since 2") {
		t.Errorf("a second one joined beside the first: %v", err)
	}
	if first.Context().Err() != nil {
		t.Errorf("the first ended: %v", context.Cause(first.Context()))
	}
	// The name of a killed process becomes free when its lease is over.
	first.end(errors.New("killed"))
	second, err := db.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Many processes at once: one gets the name.
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	var joined atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := db.Join(t.Context(), cfg)
			switch {
			case err == nil:
				joined.Add(1)
				t.Cleanup(func() { s.end(nil) })
			case !errors.Is(err, ErrInstanceTaken):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if joined.Load() != 1 {
		t.Errorf("%d have one name", joined.Load())
	}
}

// TestLostSession expires, deletes or replaces a session in the database.
func TestLostSession(t *testing.T) {
	t.Parallel()
	for name, q := range map[string]string{
		"Expired": `update quartermaster.sessions set alive_until = now() - interval '1 second' where instance = $1`,
		"Gone":    `delete from quartermaster.sessions where instance = $1`,
		"Renamed": `update quartermaster.sessions set token = 'another' where instance = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := migrated(t)
			h := newSessionGroup(t, db)
			m := h.join("m")
			h.settled("m")
			if _, err := db.Exec(q, "m"); err != nil {
				t.Fatal(err)
			}
			if err := <-m.done; !errors.Is(err, projections.ErrFenced) {
				t.Errorf("sharing ended with %v", err)
			}
			if err := context.Cause(m.Context()); !errors.Is(err, projections.ErrFenced) {
				t.Errorf("the session ended with %v", err)
			}
			ran, err := m.Once(t.Context(), "job", "input", func(context.Context) (string, error) { return "", nil })
			if ran || !errors.Is(err, projections.ErrFenced) {
				t.Errorf("a lost session ran a job: %t, %v", ran, err)
			}
		})
	}
}

// TestExpiredKeepsPartitions asks for assignments when the session's lease is over and the heartbeat
// has not noticed. They are unknown then; none were taken away.
func TestExpiredKeepsPartitions(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	s, err := db.Join(t.Context(), SessionConfig{Instance: "late", Method: projections.Method, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.share(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if found, err := s.look(t.Context()); err != nil || len(found) != len(domain.AllPartitions()) {
		t.Fatalf("%d partitions, %v", len(found), err)
	}
	if _, err := db.Exec(`update quartermaster.sessions set alive_until = now() - interval '1 second'`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.look(t.Context()); !errors.Is(err, errNotAlive) {
		t.Errorf("with the lease over: %v", err)
	}
}

// TestUnreachable makes the database unreachable for a session: its connections hang.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	db, cfg := migrated(t)
	other, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var logged bytes.Buffer
	s, err := db.Join(t.Context(), SessionConfig{Instance: "cut-off", Method: projections.Method, Lease: lease,
		Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	work, shared := make(chan Holding, len(domain.AllPartitions())), make(chan error)
	go func() {
		shared <- s.Share(t.Context(), func(ctx context.Context, store *Store, tp domain.TopicPartition) error {
			work <- Holding{store.generation, tp}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	for range cap(work) {
		<-work
	}
	// The session's row is locked, so that its heartbeat hangs.
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`select from quartermaster.sessions for update`); err != nil {
		t.Fatal(err)
	}
	<-s.Context().Done()
	if err := context.Cause(s.Context()); !errors.Is(err, projections.ErrFenced) || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("it ended with %v", err)
	}
	if err := <-shared; !errors.Is(err, projections.ErrFenced) {
		t.Errorf("sharing ended with %v", err)
	}
	// No other session took over. The number of lost partitions and the reason are logged once.
	if text := logged.String(); strings.Count(text, "lost") != 1 || strings.Contains(text, "taken over") ||
		!strings.Contains(text, fmt.Sprintf("partitions=%d", cap(work))) || !strings.Contains(text, "has not answered") {
		t.Errorf("logged:\n%s", text)
	}
}

// TestFrozen freezes a process, lets another take over, and wakes it.
func TestFrozen(t *testing.T) {
	t.Parallel()
	db, cfg := migrated(t)
	zombie := exec.Command(os.Args[0], "-test.run=^TestZombie$", "-test.v")
	zombie.Env = append(os.Environ(), "QM_ZOMBIE="+cfg.DSN)
	out, err := zombie.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	zombie.Stderr = os.Stderr
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Process.Kill()
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "zombie holds all" {
	}
	if err := zombie.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h := newSessionGroup(t, db)
	m := h.join("heir")
	h.settled("heir")
	if err := zombie.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var last string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "zombie ") {
			last = lines.Text()
		}
	}
	if err := zombie.Wait(); err != nil || last != "zombie is fenced, and stored nothing" {
		t.Errorf("the process that was frozen ended with %v, and said %q", err, last)
	}
	h.settled("heir")
	if s := m.Stats(); s.Losses > 0 {
		t.Errorf("the successor lost %d partitions", s.Losses)
	}
}

// A process that is frozen in the middle of a transaction keeps its lock. No session waits for it:
// other partitions are taken over at once, and this one when the server has ended the transaction.
func TestFrozenInTransaction(t *testing.T) {
	db, _ := migrated(t)
	frozen, other := join(t, db, "frozen"), join(t, db, "other")
	tps := domain.AllPartitions()[:2]
	for _, tp := range tps {
		if ok, err := frozen.Store("a").Claim(t.Context(), tp); err != nil || !ok {
			t.Fatalf("claim %s: %t, %v", tp, ok, err)
		}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	res, err := tx.Exec(moveSQL, "a", string(tps[0].Topic), tps[0].Partition, 0, 1, 10, applicationName(frozen.token), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("moved %d positions: %v", n, err)
	}
	var bound string
	if err := tx.QueryRow(`show idle_in_transaction_session_timeout`).Scan(&bound); err != nil || bound != "5s" {
		t.Errorf("the server waits %q for a frozen client: %v", bound, err)
	}
	frozen.end(fmt.Errorf("frozen: %w", projections.ErrFenced))
	die(t, db, "frozen")
	if taken, err := other.Store("a").Claim(t.Context(), tps[1]); err != nil || !taken {
		t.Errorf("%s, on which nothing is open: %t, %v", tps[1], taken, err)
	}
	if taken, err := other.Store("a").Claim(t.Context(), tps[0]); err != nil || taken {
		t.Errorf("took over %s while a transaction is open on it: %t, %v", tps[0], taken, err)
	}
	for taken := false; !taken; {
		if taken, err = other.Store("a").Claim(t.Context(), tps[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err == nil {
		t.Error("a transaction that others did not wait for was committed")
	}
}

// die waits until the database considers an instance dead.
func die(t *testing.T, db *DB, instance string) {
	t.Helper()
	for alive := true; alive; {
		if err := db.QueryRow(`select `+aliveNow+` from quartermaster.sessions s where instance = $1`, instance).Scan(&alive); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that freezes in the middle of a message is not idle, so no timeout of the server ends
// its transaction. The session that takes over ends it.
func TestFrozenWhileSending(t *testing.T) {
	t.Parallel()
	db, cfg := migrated(t)
	u, err := url.Parse(cfg.DSN)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := make(chan struct{})
	go func(server string) {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { client.Close(); to.Close() })
			go func() {
				defer client.Close() // when the server has ended it
				io.Copy(client, to)
			}()
			go func() {
				left := 1 << 40 // bytes that pass before the connection goes silent
				for b := make([]byte, 16<<10); ; {
					n, err := client.Read(b)
					if err != nil {
						return
					}
					if bytes.Contains(b[:n], []byte("set next_offset = $6")) {
						left = 1 << 20
					}
					if left -= n; left < 0 {
						close(silent) // the connection stays open
						return
					}
					if _, err := to.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}(u.Host)
	u.Host = l.Addr().String()
	via, err := Open(t.Context(), Config{DSN: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	frozen, other := join(t, db, "frozen"), join(t, db, "other")
	store := via.Store("a", frozen.token)
	if ok, err := store.Claim(t.Context(), fleet); err != nil || !ok {
		t.Fatal(ok, err)
	}
	examples, log := storetest.Examples(), storetest.NewLog()
	node := examples[slices.IndexFunc(examples, func(e domain.Envelope) bool { return e.Event.Type() == domain.TypeNodeRegistered })]
	for i := range 2000 {
		ev := *node.Event.(*domain.NodeRegistered)
		ev.Node = fmt.Sprint(i, strings.Repeat("n", 900))
		node.Event = &ev
		log.Append(node)
	}
	committed := make(chan error, 1)
	go func() {
		_, err := storetest.Step(t.Context(), log, store, fleet, 2000)
		committed <- err
	}()
	select {
	case <-silent:
	case err := <-committed:
		t.Fatalf("ended before it was cut off: %v", err)
	}
	frozen.end(fmt.Errorf("frozen: %w", projections.ErrFenced))
	die(t, db, "frozen")
	heir := other.Store("a")
	for taken := false; !taken; {
		if taken, err = heir.Claim(t.Context(), fleet); err != nil {
			t.Fatal(err)
		}
	}
	if at, err := db.Generation(t.Context(), "a"); err != nil || at.Position()[fleet] != 0 {
		t.Errorf("what was half sent moved the position to %d: %v", at.Position()[fleet], err)
	}
	if err := <-committed; err == nil {
		t.Error("what was half sent is said to be committed")
	}
}

// TestZombie is the other process of TestFrozen.
func TestZombie(t *testing.T) {
	dsn := os.Getenv("QM_ZOMBIE")
	if dsn == "" {
		t.Skip("it is a process of TestFrozen")
	}
	db, err := Open(t.Context(), Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := join(t, db, "zombie")
	var working atomic.Int32
	var stored atomic.Bool
	err = s.Share(t.Context(), func(ctx context.Context, store *Store, tp domain.TopicPartition) error {
		if int(working.Add(1)) == len(domain.AllPartitions()) {
			io.WriteString(os.Stdout, "\nzombie holds all\n")
		}
		// It continues as if nothing had happened, even if its context has ended.
		<-ctx.Done()
		tx, err := store.Begin(context.WithoutCancel(ctx), tp)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := tx.Commit(context.WithoutCancel(ctx), 1, domain.Anchor{}); !errors.Is(err, projections.ErrFenced) {
			stored.Store(true)
			t.Errorf("%s: stored by a fenced process: %v", tp, err)
		}
		return err
	})
	if errors.Is(err, projections.ErrFenced) && !stored.Load() {
		io.WriteString(os.Stdout, "\nzombie is fenced, and stored nothing\n")
	}
}

// TestWorkFails ends the work on partitions in every possible way.
func TestWorkFails(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	fatal := errors.New("nothing mends this")
	s, err := db.Join(t.Context(), SessionConfig{Instance: "m", Method: projections.Method, Lease: lease,
		Fatal: func(err error) bool { return errors.Is(err, fatal) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := domain.AllPartitions()
	var mu sync.Mutex
	starts := map[domain.TopicPartition]int{}
	err = s.Share(t.Context(), func(ctx context.Context, store *Store, tp domain.TopicPartition) error {
		mu.Lock()
		starts[tp]++
		failed, fenced := starts[all[0]], starts[all[1]]
		mu.Unlock()
		switch tp {
		case all[0]:
			return errors.New("it may be better next time")
		case all[1]:
			return fmt.Errorf("as if: %w", projections.ErrFenced)
		case all[2]:
			return nil
		case all[3]:
			for failed < 2 || fenced < 2 {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Millisecond):
				}
				mu.Lock()
				failed, fenced = starts[all[0]], starts[all[1]]
				mu.Unlock()
			}
			return fatal
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, fatal) || !strings.Contains(err.Error(), "generation ") { // work names the partition itself
		t.Errorf("sharing ended with %v", err)
	}
	if n := starts[all[2]]; n != 1 {
		t.Errorf("work that had no more to do was started %d times", n)
	}
	if st := s.Stats(); len(st.Held) > 0 || st.Losses == 0 || st.Claims < int64(len(all))+st.Losses-1 {
		t.Errorf("in the end %+v", st)
	}
	var owned int
	if err := db.QueryRow(`select count(*) from quartermaster.partitions where owner is not null`).Scan(&owned); err != nil {
		t.Fatal(err)
	}
	if owned > 1 { // the fenced one stays with its owner
		t.Errorf("%d partitions are owned after the end", owned)
	}
}
