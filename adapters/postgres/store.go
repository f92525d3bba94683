package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Store holds the rows of one generation. It implements [projections.Store] for a session, which
// folds the partitions that it has claimed. It is safe for concurrent use.
//
// During a claim, the rows that a partition touched stay in memory, up to a bound, so that hot rows
// are not read again for every batch. If a transaction fails or its outcome is unknown, these rows
// are dropped, and the next transaction reads the position from the database again.
type Store struct {
	db         *DB
	generation string
	schema     string
	token      string
	tuning     tuning
	bulk       bool // as few commits as memory allows: see [Session.Bulk]
	log        *slog.Logger

	mu     sync.Mutex
	parts  map[domain.TopicPartition]*part
	homes  map[domain.TopicPartition]home
	months map[monthIn]bool // months whose partitions are known to exist

	pending atomic.Int64 // changed rows in all open transactions
	// large has one place, for a commit of many rows: its messages take as much memory as the rows.
	large chan struct{}
	asked *atomic.Int64 // as in [Session]
}

// tuning bounds what a Store keeps in memory and sends at once.
type tuning struct {
	// keep bounds the rows of a partition in memory. Above it, rows that the last batch did not
	// change are dropped.
	keep  int
	array int // rows of a table that are sent as one array
	bytes int // bytes of a table's rows that are sent at once; the server's limit is 1 GB a message
	page  int // rows that a scan reads at a time
}

// All rows are written as arrays in the server's binary form. COPY was never faster, not even into
// the empty tables of a rebuild, because this driver sends it as text: that takes twice as many
// bytes a row, and both sides must convert them. Measured in transactions of 100 to 100,000 rows,
// in CPU time of both sides for one node-hour with nine holders:
//
//	             new row        replaced row
//	arrays       106 to 134 µs  138 to 158 µs
//	COPY         132 to 164 µs
//	COPY, merge                 181 to 193 µs
//
// COPY thus takes 1.0 to 1.5 times as much, COPY and merge 1.2 to 1.4 times. BenchmarkCommit
// compares with a plain COPY.
var defaultTuning = tuning{keep: 16_384, array: 2_000, bytes: 16 << 20, page: 256}

// part is a partition's claim and working set. The goroutine that holds the gate may use the other
// fields.
type part struct {
	gate    chan struct{}
	claimed bool
	home    *sql.DB // that has the rows and the position
	epoch   int64
	next    int64
	last    domain.Anchor           // the record before next
	rows    *projections.WorkingSet // nil: must be read again, with the position
	// held are the rows of usage_held for the usage hours in rows.
	held map[projections.Key][]heldRow
	// uncertain is set after a failure: rows that are believed new may exist in the database.
	uncertain bool
	// detached are the months whose rows are in parts, as of the claim.
	detached map[int64]projections.PartDigest
	// absent are keys that this transaction asked for and that have no row.
	absent map[projections.Key]bool
	// pending are the changed rows of the open transaction, as counted in the store.
	pending int64
	asked   int64 // what was committed because of a request, as in [Session]
}

// Store returns the store of a generation for the session with this token. [Store.Claim] MUST be
// called before a partition is folded.
func (db *DB) Store(generation, token string) *Store {
	return &Store{
		db:         db,
		generation: generation,
		schema:     schemaOf(generation),
		token:      token,
		tuning:     defaultTuning,
		log:        slog.New(slog.DiscardHandler),
		large:      make(chan struct{}, 1),
		asked:      &atomic.Int64{},
		parts:      map[domain.TopicPartition]*part{},
		homes:      map[domain.TopicPartition]home{},
		months:     map[monthIn]bool{},
	}
}

// Generation returns the name of the generation whose rows these are.
func (s *Store) Generation() string { return s.generation }

// home is the database that has the rows of a partition.
type home struct {
	*sql.DB
	name string // "": the first
}

// homeOf returns the database that has the rows of a partition. It never changes.
func (s *Store) homeOf(ctx context.Context, tp domain.TopicPartition) (home, error) {
	s.mu.Lock()
	h, ok := s.homes[tp]
	s.mu.Unlock()
	if ok {
		return h, nil
	}
	err := s.db.QueryRowContext(ctx, `
		select database from quartermaster.partitions where generation = $1 and topic = $2 and partition = $3`,
		s.generation, string(tp.Topic), tp.Partition).Scan(&h.name)
	if errors.Is(err, sql.ErrNoRows) {
		return h, fmt.Errorf("%s: generation %s: %w", tp, s.generation, ErrNoGeneration)
	}
	if err == nil {
		h.DB, err = s.db.home(h.name)
	}
	if err != nil {
		return h, fmt.Errorf("find the database of %s: %w", tp, err)
	}
	s.mu.Lock()
	s.homes[tp] = h
	s.mu.Unlock()
	return h, nil
}

// enter waits until no transaction is open on a partition. leave ends that exclusion.
func (s *Store) enter(ctx context.Context, tp domain.TopicPartition) (*part, error) {
	s.mu.Lock()
	p := s.parts[tp]
	if p == nil {
		p = &part{gate: make(chan struct{}, 1)}
		s.parts[tp] = p
	}
	s.mu.Unlock()
	select {
	case p.gate <- struct{}{}:
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the transaction on %s: %w", tp, context.Cause(ctx))
	}
}

func (p *part) leave() { <-p.gate }

// forget drops the working set.
func (p *part) forget() { p.rows, p.held, p.absent = nil, nil, nil }

// start begins an empty working set.
func (p *part) start() {
	p.rows, p.held, p.absent = projections.NewWorkingSet(), map[projections.Key][]heldRow{}, nil
}

// lose drops the claim.
func (p *part) lose() {
	p.claimed = false
	p.forget()
}

// Claim takes a partition for the session and reports whether it succeeded. A partition is free if
// no live session owns it and no transaction of an earlier claim is open on it. Claim does not wait
// for such a transaction, because its process may be frozen and other partitions wait for this
// session. Instead it has the server end the transactions that a dead session left open, so that
// the next call may succeed. Claiming a partition that the session already holds starts a new
// epoch. Claim fails with [projections.ErrFenced] if this session is not alive itself.
func (s *Store) Claim(ctx context.Context, tp domain.TopicPartition) (bool, error) {
	p, err := s.enter(ctx, tp)
	if err != nil {
		return false, err
	}
	defer p.leave()
	p.lose()
	claimed, err := s.claim(ctx, tp, p)
	if err != nil {
		return false, fmt.Errorf("claim %s of generation %q: %w", tp, s.generation, err)
	}
	if !claimed {
		return false, nil
	}
	if err := s.learn(ctx, tp, p); err != nil {
		return false, err
	}
	p.claimed = true
	p.start()
	return true, nil
}

// claim takes a partition in the database that has its rows. If that is not the first one, the first
// one decides who owns it.
func (s *Store) claim(ctx context.Context, tp domain.TopicPartition, p *part) (claimed bool, err error) {
	at, err := s.homeOf(ctx, tp)
	if errors.Is(err, ErrNoGeneration) { // it was dropped
		return false, s.evict(ctx, tp)
	}
	if err != nil {
		return false, err
	}
	p.home = at.DB
	var known int64 // epoch in the other database: it may be higher if the first one was restored
	if at.name != "" {
		err := at.QueryRowContext(ctx, `
			select epoch from quartermaster.partitions where generation = $1 and topic = $2 and partition = $3`,
			s.generation, string(tp.Topic), tp.Partition).Scan(&known)
		if errors.Is(err, sql.ErrNoRows) {
			return false, missingRows(at.name, s.generation)
		}
		if err != nil {
			return false, within(at.name, err)
		}
	}
	err = s.db.QueryRowContext(ctx, `
		with free as materialized (
			select generation, topic, partition from quartermaster.partitions p
			where generation = $1 and topic = $2 and partition = $3 and (owner is null or owner = $4 or not exists (
				select from quartermaster.sessions s where s.token = p.owner and `+aliveNow+`))
				and exists (select from quartermaster.sessions s where s.token = $4 and `+aliveNow+`)
			for update skip locked
		)
		update quartermaster.partitions p set owner = $4, epoch = greatest(epoch, $5) + 1 from free
		where p.generation = free.generation and p.topic = free.topic and p.partition = free.partition
		returning p.epoch, p.next_offset, `+anchorSQL,
		s.generation, string(tp.Topic), tp.Partition, s.token, known).Scan(&p.epoch, &p.next, (*anchor)(&p.last))
	if errors.Is(err, sql.ErrNoRows) {
		return false, s.evict(ctx, tp)
	}
	if err != nil || at.name == "" {
		return err == nil, err
	}
	err = at.QueryRowContext(ctx, `
		with free as materialized (
			select generation, topic, partition from quartermaster.partitions
			where generation = $1 and topic = $2 and partition = $3 and epoch < $5
			for update skip locked
		)
		update quartermaster.partitions p set owner = $4, epoch = $5 from free
		where p.generation = free.generation and p.topic = free.topic and p.partition = free.partition
		returning p.next_offset, `+anchorSQL,
		s.generation, string(tp.Topic), tp.Partition, s.token, p.epoch).Scan(&p.next, (*anchor)(&p.last))
	if errors.Is(err, sql.ErrNoRows) {
		return false, within(at.name, s.evictAt(ctx, tp, at))
	}
	return err == nil, within(at.name, err)
}

// evictAt is evict in another database, where an earlier owner may have left a transaction open.
func (s *Store) evictAt(ctx context.Context, tp domain.TopicPartition, at home) error {
	var owner sql.NullString
	if err := at.QueryRowContext(ctx, `
		select owner from quartermaster.partitions where generation = $1 and topic = $2 and partition = $3`,
		s.generation, string(tp.Topic), tp.Partition).Scan(&owner); err != nil || !owner.Valid {
		return err
	}
	var alive bool
	if err := s.db.QueryRowContext(ctx, `
		select exists (select from quartermaster.sessions s where s.token = $1 and `+aliveNow+`)`, owner.String).Scan(&alive); err != nil || alive {
		return err
	}
	s.terminate(ctx, tp, at.DB, owner.String)
	return nil
}

// learn reads which months of a partition are in parts. That holds as long as the claim does.
func (s *Store) learn(ctx context.Context, tp domain.TopicPartition, p *part) error {
	list, err := detached(ctx, p.home, s.generation, tp.Topic)
	if err != nil {
		return err
	}
	p.detached = map[int64]projections.PartDigest{}
	for _, d := range list {
		if d.Partition == tp {
			p.detached[d.Month] = d
		}
	}
	s.mu.Lock()
	clear(s.months) // some may have been dropped
	s.mu.Unlock()
	return nil
}

// evict has the server end the transactions of the session that owns a partition, if that session
// is dead. Its process may be frozen or cut off in the middle of a message, where no timeout of the
// server applies.
func (s *Store) evict(ctx context.Context, tp domain.TopicPartition) error {
	var alive bool
	var dead sql.NullString
	err := s.db.QueryRowContext(ctx, `
		select exists (select from quartermaster.sessions s where s.token = $4 and `+aliveNow+`), (
			select owner from quartermaster.partitions p
			where generation = $1 and topic = $2 and partition = $3 and owner <> $4 and not exists (
				select from quartermaster.sessions s where s.token = p.owner and `+aliveNow+`))`,
		s.generation, string(tp.Topic), tp.Partition, s.token).Scan(&alive, &dead)
	switch {
	case err != nil:
		return err
	case !alive:
		return fmt.Errorf("this session is not alive: %w", projections.ErrFenced)
	case !dead.Valid:
		return nil
	}
	s.terminate(ctx, tp, s.db.DB, dead.String)
	return nil
}

// terminate has a database end the transactions of a dead session.
func (s *Store) terminate(ctx context.Context, tp domain.TopicPartition, at *sql.DB, dead string) {
	// A role sees only its own transactions, and may end only those.
	ended, err := collectText(at.QueryContext(ctx, `
		with open as materialized (
			select pid from pg_stat_activity where datname = current_database() and application_name = $1
		)
		select pid::text from open where pg_terminate_backend(pid)`, applicationName(dead)))
	switch {
	case err != nil:
		s.log.Warn("cannot end the transactions of a dead session; its partition becomes free when the server ends them",
			"generation", s.generation, "partition", tp.String(), "error", err)
	case len(ended) == 0:
		s.log.Info("the partition of a dead session is still locked by a transaction of another session or role",
			"generation", s.generation, "partition", tp.String())
	default:
		s.log.Info("had the server end the open transactions of a dead session",
			"generation", s.generation, "partition", tp.String(), "processes", ended)
	}
}

// Release gives a partition back. It waits for the open transaction on it, if any. If another
// session owns the partition by now, Release does nothing.
func (s *Store) Release(ctx context.Context, tp domain.TopicPartition) error {
	p, err := s.enter(ctx, tp)
	if err != nil {
		return err
	}
	defer p.leave()
	if !p.claimed {
		return nil
	}
	p.lose()
	_, err = s.db.ExecContext(ctx, `
		update quartermaster.partitions set owner = null
		where generation = $1 and topic = $2 and partition = $3 and owner = $4 and epoch = $5`,
		s.generation, string(tp.Topic), tp.Partition, s.token, p.epoch)
	if err != nil {
		return fmt.Errorf("release %s of generation %q: %w", tp, s.generation, err)
	}
	return nil
}

// KeepStop implements [projections.StopKeeper]. It changes nothing if another session owns the
// partition by now.
func (s *Store) KeepStop(ctx context.Context, tp domain.TopicPartition, stop *projections.Stop) error {
	var reason, advice sql.NullString
	if stop != nil {
		reason = sql.NullString{String: plainText(stop.Reason), Valid: true}
		advice = sql.NullString{String: stop.Advice, Valid: true}
	}
	at, err := s.homeOf(ctx, tp)
	if err != nil {
		return err
	}
	_, err = at.ExecContext(ctx, `
		update quartermaster.partitions set stop_reason = $5, stop_advice = $6
		where generation = $1 and topic = $2 and partition = $3 and owner = $4 and stop_reason is distinct from $5`,
		s.generation, string(tp.Topic), tp.Partition, s.token, reason, advice)
	if err != nil {
		return fmt.Errorf("store why %s of generation %q is stopped: %w", tp, s.generation, err)
	}
	return nil
}

// Begin implements [projections.Store]. It fails with [projections.ErrFenced]
// for a partition that the session has not claimed, or that was taken over.
func (s *Store) Begin(ctx context.Context, tp domain.TopicPartition) (projections.Tx, error) {
	p, err := s.enter(ctx, tp)
	if err != nil {
		return nil, err
	}
	if err := s.resume(ctx, tp, p); err != nil {
		p.leave()
		return nil, fmt.Errorf("fold %s of generation %q: %w", tp, s.generation, err)
	}
	return &tx{store: s, tp: tp, part: p}, nil
}

// resume checks that the claim is still valid and the position is known.
func (s *Store) resume(ctx context.Context, tp domain.TopicPartition, p *part) error {
	if !p.claimed {
		return fmt.Errorf("this process has not claimed it: %w", projections.ErrFenced)
	}
	if p.rows != nil {
		return nil
	}
	err := p.home.QueryRowContext(ctx, `
		select next_offset, `+anchorSQL+` from quartermaster.partitions p
		where generation = $1 and topic = $2 and partition = $3 and owner = $4 and epoch = $5`,
		s.generation, string(tp.Topic), tp.Partition, s.token, p.epoch).Scan(&p.next, (*anchor)(&p.last))
	if errors.Is(err, sql.ErrNoRows) {
		p.lose()
		return fmt.Errorf("claim %d: %w", p.epoch, projections.ErrFenced)
	}
	if err != nil {
		return fmt.Errorf("read its position: %w", err)
	}
	p.start()
	return nil
}

// tx implements [projections.Tx]. It opens no transaction on the server before Commit.
type tx struct {
	store *Store
	tp    domain.TopicPartition
	part  *part
	done  bool
	// failed is set if not all announced rows could be read. The fold may then believe that they do
	// not exist.
	failed bool
}

func (t *tx) Next() int64 { return t.part.next }

func (t *tx) Anchor() domain.Anchor { return t.part.last }

// Each commit of telemetry writes the hour and the stream of every node that sent a sample, and the
// next commit writes them again. Where many nodes share a partition, a batch has few samples of each:
// a million samples of 100,000 nodes then took 1.9 GB of the server's log. So a partition is
// committed once its rows have changed often enough, if there are many. Whoever takes the partition
// over folds again what was not committed.
const (
	// changesPerRow is how many records are folded for each changed row. A sample changes two rows,
	// so these are 24 samples of each node: four minutes, if nodes are sampled every ten seconds.
	changesPerRow = 12
	// longest is the longest time between the appends of two records in one transaction.
	longest = 240 * domain.Second
	// dueNow rows are committed as soon as there are no more records.
	dueNow = 64
	// silentRows are committed for each answer of the log that there is nothing more.
	silentRows = 50
	// mostPending bounds the changed rows of all partitions together. Above it, a partition with
	// more than leastPending is committed.
	mostPending  = 400_000
	leastPending = 4096
	// bulkRecords bounds what is folded again if a rebuild is interrupted.
	bulkRecords = 2_000_000
)

// Due implements [projections.Tx].
func (t *tx) Due(p projections.Pending) bool {
	n := int64(t.part.rows.Changes())
	if t.store.db.patient {
		n += 3 * dueNow
	}
	all := t.store.pending.Add(n - t.part.pending)
	t.part.pending = n
	if asked := t.store.asked.Load(); asked != t.part.asked {
		t.part.asked = asked
		return true
	}
	if t.store.bulk {
		return p.Records >= bulkRecords || crowded(n, all)
	}
	return due(t.tp.Topic, n, all, p)
}

// due decides for a partition with n changed rows, when all partitions together have so many.
func due(topic domain.Topic, n, all int64, p projections.Pending) bool {
	switch {
	case topic != domain.TopicTelemetry, p.Records >= changesPerRow*n, p.Span >= longest:
		return true
	case p.AtEnd && (p.First || n <= dueNow || int64(p.Silent)*silentRows >= n):
		return true
	}
	return crowded(n, all)
}

// crowded reports whether the changed rows of all partitions are too many, and those of this one worth
// a commit.
func crowded(n, all int64) bool { return all > mostPending && n > leastPending }

// settled forgets the pending changes of a partition, once they are stored or given up.
func (t *tx) settled() {
	t.store.pending.Add(-t.part.pending)
	t.part.pending = 0
}

// lastCommit bounds a commit that nobody can cancel.
const lastCommit = 5 * time.Second

// Commit implements [projections.Tx].
func (t *tx) Commit(ctx context.Context, next int64, last domain.Anchor) error {
	if t.done {
		return errors.New("commit: the transaction has ended")
	}
	if t.failed {
		return errors.New("commit: rows could not be read")
	}
	p := t.part
	if next < p.next {
		return fmt.Errorf("commit: position would move back from %d to %d", p.next, next)
	}
	err := t.store.commit(ctx, t.tp, p, next, last)
	t.done = true
	t.settled()
	defer p.leave()
	switch {
	case errors.Is(err, projections.ErrFenced):
		p.lose()
	case err != nil:
		p.uncertain = true
		p.forget()
	default:
		p.next, p.last, p.uncertain = next, last, false
		p.absent = nil
		p.rows.Settle()
		before := p.rows.Len()
		p.rows.Evict(t.store.tuning.keep)
		if p.rows.Len() < before {
			maps.DeleteFunc(p.held, func(k projections.Key, _ []heldRow) bool { return !p.rows.Holds(k) })
		}
		return nil
	}
	return fmt.Errorf("commit %s of generation %q from %d to %d: %w", t.tp, t.store.generation, p.next, next, err)
}

// Rollback implements [projections.Tx]. It drops the working set if the transaction changed it.
func (t *tx) Rollback() {
	if t.done {
		return
	}
	t.done = true
	t.settled()
	t.part.absent = nil
	changed := t.failed
	for range t.part.rows.Changed {
		changed = true
		break
	}
	if changed {
		t.part.forget()
	}
	t.part.leave()
}

// idleTimeout makes the server end a transaction whose client is idle for 5 s. A client that is
// frozen, or whose machine is gone, holds the lock of its partition, and no other session can take
// the partition over before that.
const idleTimeout = `set_config('idle_in_transaction_session_timeout', '5s', true)`

// applicationName is the application_name of a session's transactions, by which evict finds them.
// The idle timeout does not end a transaction whose client froze in the middle of a message,
// because the server then waits for the rest. The server keeps 63 ASCII bytes of the name, so it
// contains only the unique part of the token.
func applicationName(token string) string {
	unique, _, _ := strings.Cut(token, " ")
	return "quartermaster " + unique
}

const moveSQL = `
	update quartermaster.partitions set next_offset = $6, last_offset = $8, last_epoch = $9, last_sha256 = $10,
		stop_reason = null, stop_advice = null
	where generation = $1 and topic = $2 and partition = $3 and next_offset = $4 and epoch = $5
		and ` + idleTimeout + ` is not null and set_config('application_name', $7, true) is not null`

// commit stores the changed rows and moves the position in one transaction.
func (s *Store) commit(ctx context.Context, tp domain.TopicPartition, p *part, next int64, last domain.Anchor) error {
	if p.rows.Changes() > leastPending {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if ctx.Done() == nil {
		bound, stop := context.WithTimeout(ctx, lastCommit)
		defer stop()
		ctx = bound
	}
	w, err := s.prepare(p)
	if err != nil {
		return err
	}
	if err := s.ensureMonths(ctx, p.home, w.months); err != nil {
		return err
	}
	sqlTx, err := p.home.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sqlTx.Rollback() }()
	offset, epoch, hash := anchorColumns(last)
	res, err := sqlTx.ExecContext(ctx, moveSQL,
		s.generation, string(tp.Topic), tp.Partition, p.next, p.epoch,
		next, applicationName(s.token), offset, epoch, hash)
	if err != nil {
		return fmt.Errorf("move the position: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil {
		return fmt.Errorf("move the position: %w", err)
	} else if n == 0 {
		return fmt.Errorf("it is not at %d under claim %d: %w", p.next, p.epoch, projections.ErrFenced)
	}
	if err := w.write(ctx, sqlTx); err != nil {
		return err
	}
	if err := s.tally(ctx, sqlTx, string(tp.Topic), tp.Partition, p.rows); err != nil {
		return err
	}
	if err := s.changeUsage(ctx, sqlTx, tp.Partition, p.rows); err != nil {
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		return err
	}
	maps.Copy(p.held, w.hours)
	return nil
}
