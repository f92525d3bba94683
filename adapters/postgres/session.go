package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"quartermaster/domain"
)

// SessionConfig says how a process joins.
type SessionConfig struct {
	// Instance names the process. No two live processes have the same name.
	Instance string

	// Method is the fold version of the process. The process shares the partitions of live
	// generations with that version.
	Method string

	// Lease is how long the process may be silent before others take over; 0 means 4s. It sends
	// four heartbeats in that time.
	Lease time.Duration

	// Fatal reports which errors of work end [Session.Share]: those that a retry cannot fix. Nil
	// means none.
	Fatal func(error) bool

	// Left, if not nil, is called with each partition that the session no longer works on.
	Left func(Holding)

	// Log gets takeovers and failures; nil discards them.
	Log *slog.Logger
}

// heartbeatsPerLease is how many heartbeats a session sends during a lease. It looks for partitions
// as often.
const heartbeatsPerLease = 4

// aliveNow is the condition under which the session of a row s of quartermaster.sessions is alive:
// its last heartbeat was within its lease. A time further ahead than one lease was written before
// the database's clock stepped back, so the heartbeat's age is unknown.
//
// The upper bound uses clock_timestamp(), which is read after the rows. now() stands still while a
// statement waits, so a heartbeat that arrived meanwhile would lie ahead of it.
const aliveNow = `(s.alive_until > now() and s.alive_until <= clock_timestamp() + s.lease)`

// deadSessionRetention is how long the row of a dead session is kept, for people to see.
const deadSessionRetention = "10 minutes"

// ErrInstanceTaken means that another live process has the same instance name. An operator stops
// one of the two, or gives it another name.
var ErrInstanceTaken = errors.New("instance is already running")

// Session is a process among those that share the partitions. It lives as long as its heartbeats
// reach the database in time. Only the database's clock decides that. A session that was silent for
// longer, because it was frozen or cut off, is lost for ever. The process then joins again.
type Session struct {
	db    *DB
	cfg   SessionConfig
	token string // unique; contains the instance after a space, so that recorded work names it
	log   *slog.Logger
	ctx   context.Context
	end   context.CancelCauseFunc

	// asked is when somebody last asked for the present rows ([DB.Ask]), in microseconds since 1970.
	asked atomic.Int64

	mu             sync.Mutex
	held           map[Holding]context.CancelCauseFunc // partitions being worked on, until their work has returned
	claims, losses int64
	dropped        int // losses caused by the loss of the session itself

	// partly: some databases do not let partitions be claimed, and the log says so. Only Share uses it.
	partly bool
}

// Holding is a partition that a session folds.
type Holding struct {
	Generation string
	domain.TopicPartition
}

func (h Holding) String() string { return h.Generation + " " + h.TopicPartition.String() }

// Stats describes what a session holds and what happened to it.
type Stats struct {
	Held   []Holding // in order
	Claims int64     // partitions taken so far
	Losses int64     // of these, how many others took over
}

// Join registers the process. If another live process has the same instance name, Join waits for as
// long as a killed process needs to expire, then fails with [ErrInstanceTaken].
func (db *DB) Join(ctx context.Context, cfg SessionConfig) (*Session, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 4 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Instance == "" || cfg.Method == "" || cfg.Lease < heartbeatsPerLease*time.Millisecond {
		return nil, fmt.Errorf("join as instance %q with method %q and lease %s: all three are needed",
			cfg.Instance, cfg.Method, cfg.Lease)
	}
	s := &Session{
		db:    db,
		cfg:   cfg,
		token: rand.Text() + " " + cfg.Instance,
		held:  map[Holding]context.CancelCauseFunc{},
		log:   cfg.Log.With("instance", cfg.Instance),
	}
	last, err := s.register(ctx)
	if err != nil {
		return nil, fmt.Errorf("join as instance %q: %w", cfg.Instance, err)
	}
	if err := db.follow(ctx); err != nil {
		s.log.Warn("partitions of a database cannot be folded", "error", err)
	}
	s.ctx, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.beat(last)
	return s, nil
}

// register takes the instance's name. It returns the time of the request that succeeded.
func (s *Session) register(ctx context.Context) (asked time.Time, err error) {
	var deadline time.Time // a dead holder of the name has expired by then
	for {
		asked = time.Now()
		res, err := s.db.ExecContext(ctx, `
			with gone as (
				delete from quartermaster.sessions where instance <> $2 and
					alive_until not between now() - interval '`+deadSessionRetention+`' and now() + lease + interval '`+deadSessionRetention+`'
			)
			insert into quartermaster.sessions as s (token, instance, method, lease, alive_until)
			values ($1, $2, $3, $4 * interval '1 microsecond', now() + $4 * interval '1 microsecond')
			on conflict (instance) do update
			set token = excluded.token, method = excluded.method, sharing = false, started = now(), lease = excluded.lease,
				alive_until = excluded.alive_until
			where not `+aliveNow+``,
			s.token, s.cfg.Instance, s.cfg.Method, s.cfg.Lease.Microseconds())
		if err != nil {
			return asked, err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return asked, err
		}
		var since, until time.Time
		var micros int64
		err = s.db.QueryRowContext(ctx, `
			select started, alive_until, (extract(epoch from alive_until - now()) * 1e6)::bigint
			from quartermaster.sessions where instance = $1`, s.cfg.Instance).Scan(&since, &until, &micros)
		if errors.Is(err, sql.ErrNoRows) {
			continue // it has just left
		}
		if err != nil {
			return asked, err
		}
		left := time.Duration(max(0, micros))*time.Microsecond + time.Millisecond
		pause := s.cfg.Lease / heartbeatsPerLease
		if deadline.IsZero() {
			deadline = time.Now().Add(min(left, s.cfg.Lease) + pause)
			s.log.Info("another process has this instance's name; waiting to see whether it is dead",
				"since", since.UTC(), "until", until.UTC())
		} else if time.Now().After(deadline) {
			return asked, fmt.Errorf("%w: since %s, and it still sends heartbeats, so it counts until %s; "+
				"stop it, or give this one another name (\"instance\" in the configuration)",
				ErrInstanceTaken, since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
		}
		select {
		case <-ctx.Done():
			return asked, context.Cause(ctx)
		case <-time.After(min(left, pause)):
		}
	}
}

// beat sends heartbeats until the session ends. last is the time of the last successful one.
func (s *Session) beat(last time.Time) {
	// A statement that hangs on a dead network must not keep the session alive.
	watch := time.AfterFunc(s.cfg.Lease-time.Since(last), func() {
		s.end(lostError(fmt.Sprintf("the database has not answered instance %q for %s", s.cfg.Instance, s.cfg.Lease)))
	})
	defer watch.Stop()
	tick := time.NewTicker(s.cfg.Lease / heartbeatsPerLease)
	defer tick.Stop()
	// The heartbeat has a connection of its own, so that it never waits for a fold's.
	var conn *sql.Conn
	drop := func() {
		if conn != nil {
			_ = conn.Close() // it may be broken
			conn = nil
		}
	}
	defer drop()
	var failing bool
	for {
		asked := time.Now()
		alive, err := func() (bool, error) {
			if conn == nil {
				c, err := s.db.Conn(s.ctx)
				if err != nil {
					return false, err
				}
				conn = c
			}
			res, err := conn.ExecContext(s.ctx, `
				update quartermaster.sessions s set alive_until = now() + lease
				where token = $1 and `+aliveNow, s.token)
			if err != nil {
				return false, err
			}
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				return false, err
			}
			var asked int64
			if err := conn.QueryRowContext(s.ctx, `
				select (extract(epoch from asked) * 1e6)::bigint from quartermaster.wanted`).Scan(&asked); err != nil {
				return false, err
			}
			s.asked.Store(asked)
			return true, nil
		}()
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil:
			drop()
			if !failing {
				s.log.Warn("the database does not answer", "error", err)
			}
			failing = true
		case !alive:
			s.end(lostError(fmt.Sprintf("instance %q sent no heartbeat for %s, so others may have taken over",
				s.cfg.Instance, s.cfg.Lease)))
			return
		default:
			failing = false
			watch.Reset(s.cfg.Lease - time.Since(asked))
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Context ends when the session is closed or lost. If it is lost, the cause wraps
// [projections.ErrFenced].
func (s *Session) Context() context.Context { return s.ctx }

// Close ends the session, so that a successor need not wait for it to expire.
func (s *Session) Close() error {
	s.end(nil)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Lease)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, `delete from quartermaster.sessions where token = $1`, s.token); err != nil {
		return fmt.Errorf("leave as instance %q: %w", s.cfg.Instance, err)
	}
	return nil
}

// Store returns the store of a generation; it writes under the session's claims.
func (s *Session) Store(generation string) *Store {
	store := s.db.Store(generation, s.token)
	store.log, store.asked = s.log, &s.asked
	return store
}

// Bulk is [Session.Store] for a generation that nobody reads yet. It commits when the changed rows fill
// the memory for them, not when readers would want them. So the row of an hour is written about once,
// where a store that is read writes it again every few minutes.
func (s *Session) Bulk(generation string) *Store {
	store := s.Store(generation)
	store.bulk = true
	return store
}

// Stats returns what the session holds and what happened to it.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := slices.SortedFunc(maps.Keys(s.held), func(a, b Holding) int {
		if c := strings.Compare(a.Generation, b.Generation); c != 0 {
			return c
		}
		return a.Compare(b.TopicPartition)
	})
	return Stats{held, s.claims, s.losses}
}
