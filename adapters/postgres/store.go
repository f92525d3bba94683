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

	"quartermaster/domain"
	"quartermaster/projections"
)

// Store is the rows of one generation. It implements [projections.Store] for a
// session, which folds the partitions that it has claimed. It is safe for
// concurrent use.
//
// While a claim lasts, the rows that a partition touched stay in memory, up to
// a bound, so that hot rows are not read again for every batch. A transaction
// that fails, or whose outcome is not known, forgets them all; the next one
// begins at the position that the database has.
type Store struct {
	db         *DB
	generation string
	schema     string
	token      string
	tuning     tuning
	log        *slog.Logger

	mu     sync.Mutex
	parts  map[domain.TopicPartition]*part
	months map[month]bool // whose partitions are known to be there
}

// tuning bounds what a Store keeps and sends at a time.
type tuning struct {
	keep  int // rows of a partition in memory; of more, those that the last batch did not change are forgotten
	array int // rows of a table that are sent as one array
	bytes int // bytes of a table's rows that are sent at once; the server takes a message of 1 GB at most
	page  int // rows that a scan reads at a time
}

// There is one way to write, arrays in the server's binary form, since COPY never
// paid, not into the empty tables of a rebuild either: with this driver it is text,
// twice as many bytes for a row, which both sides convert. Measured with each way in
// transactions of 100 to 100,000 rows, an hour of a node with what nine holders held
// took, on both sides together, 106 to 134 µs of CPU when it is new and 138 to 158 µs
// when it is replaced; by COPY 132 to 164 µs, by COPY and merge 181 to 193 µs: 1.0
// to 1.5 and 1.2 to 1.4 times as much. BenchmarkCommit has a plain COPY beside it.
var usual = tuning{keep: 16_384, array: 2_000, bytes: 16 << 20, page: 256}

// part is a partition's claim and working set. Whoever holds the gate uses the rest.
type part struct {
	gate    chan struct{}
	claimed bool
	epoch   int64
	next    int64
	last    domain.Anchor           // the record before next
	rows    *projections.WorkingSet // nil: to be read anew, with the position
	// held is what usage_held has of the usage hours in rows.
	held map[projections.Key][]heldRow
	// careful is set after a failure: what is believed new may be there.
	careful bool
	// absent are the keys that were asked for in this transaction and have no row.
	absent map[projections.Key]bool
}

// Store returns the rows of a generation, for the session of a token to fold.
// Nothing is folded before [Store.Claim].
func (db *DB) Store(generation, token string) *Store {
	return &Store{
		db: db, generation: generation, schema: schemaOf(generation), token: token, tuning: usual, log: slog.New(slog.DiscardHandler),
		parts: map[domain.TopicPartition]*part{}, months: map[month]bool{},
	}
}

// Generation returns the name of the generation whose rows these are.
func (s *Store) Generation() string { return s.generation }

// enter waits until no transaction is open on a partition. leave lets the next in.
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

// Claim takes a partition for the session and reports whether it could: a
// partition is free when nobody holds it, or a session that is no longer alive,
// and no transaction of an earlier claim is open on it. It waits for none, since
// whoever left one open may be frozen, and others wait for this session: it has
// the server end what a dead session left open, so that the next call may find
// the partition free. To claim again what is held starts a new epoch. It fails
// with [projections.ErrFenced] when this session is not alive itself.
func (s *Store) Claim(ctx context.Context, tp domain.TopicPartition) (bool, error) {
	p, err := s.enter(ctx, tp)
	if err != nil {
		return false, err
	}
	defer p.leave()
	p.lose()
	err = s.db.QueryRowContext(ctx, `
		with free as materialized (
			select generation, topic, partition from quartermaster.partitions p
			where generation = $1 and topic = $2 and partition = $3 and (owner is null or owner = $4 or not exists (
				select from quartermaster.sessions s where s.token = p.owner and `+aliveNow+`))
				and exists (select from quartermaster.sessions s where s.token = $4 and `+aliveNow+`)
			for update skip locked
		)
		update quartermaster.partitions p set owner = $4, epoch = epoch + 1 from free
		where p.generation = free.generation and p.topic = free.topic and p.partition = free.partition
		returning p.epoch, p.next_offset, `+anchorSQL,
		s.generation, string(tp.Topic), tp.Partition, s.token).Scan(&p.epoch, &p.next, (*anchor)(&p.last))
	if errors.Is(err, sql.ErrNoRows) {
		err = s.evict(ctx, tp)
		if err == nil {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("claim %s of generation %q: %w", tp, s.generation, err)
	}
	p.claimed = true
	p.start()
	return true, nil
}

// evict has the server end the transactions of the session that owns a partition
// if that is dead: it may be frozen, or cut off, in the middle of what it sends,
// where no time limit of the server holds.
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
	// Only what runs under the same role is seen, and may be ended.
	ended, err := collectText(s.db.QueryContext(ctx, `
		with open as materialized (select pid from pg_stat_activity where datname = current_database() and application_name = $1)
		select pid::text from open where pg_terminate_backend(pid)`, applicationName(dead.String)))
	switch {
	case err != nil:
		s.log.Warn("cannot end the transactions of a session that is dead; its partition is free when the server ends them by itself",
			"generation", s.generation, "partition", tp.String(), "error", err)
	case len(ended) == 0:
		s.log.Info("the partition of a session that is dead is locked still, by a transaction of another session or of another role",
			"generation", s.generation, "partition", tp.String())
	default:
		s.log.Info("had the server end what a session that is dead left open", "generation", s.generation, "partition", tp.String(), "processes", ended)
	}
	return nil
}

// Release gives a partition back, after the transaction on it if one is open.
// Where another holds it by now, that is left alone.
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

// KeepStop implements [projections.StopKeeper]. It changes nothing where another
// session holds the partition by now.
func (s *Store) KeepStop(ctx context.Context, tp domain.TopicPartition, stop *projections.Stop) error {
	var reason, advice sql.NullString
	if stop != nil {
		reason, advice = sql.NullString{String: plainText(stop.Reason), Valid: true}, sql.NullString{String: stop.Advice, Valid: true}
	}
	_, err := s.db.ExecContext(ctx, `
		update quartermaster.partitions set stop_reason = $5, stop_advice = $6
		where generation = $1 and topic = $2 and partition = $3 and owner = $4 and stop_reason is distinct from $5`,
		s.generation, string(tp.Topic), tp.Partition, s.token, reason, advice)
	if err != nil {
		return fmt.Errorf("keep why %s of generation %q stands still: %w", tp, s.generation, err)
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

// resume makes sure that the claim stands and the position is known.
func (s *Store) resume(ctx context.Context, tp domain.TopicPartition, p *part) error {
	if !p.claimed {
		return fmt.Errorf("this process has not claimed it: %w", projections.ErrFenced)
	}
	if p.rows != nil {
		return nil
	}
	err := s.db.QueryRowContext(ctx, `
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

// tx implements [projections.Tx]. Nothing is open on the server before Commit.
type tx struct {
	store *Store
	tp    domain.TopicPartition
	part  *part
	done  bool
	// failed is set when rows that were announced could not all be read, so that
	// the fold may believe them absent.
	failed bool
}

func (t *tx) Next() int64 { return t.part.next }

func (t *tx) Anchor() domain.Anchor { return t.part.last }

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
	defer p.leave()
	switch {
	case errors.Is(err, projections.ErrFenced):
		p.lose()
	case err != nil:
		p.careful = true
		p.forget()
	default:
		p.next, p.last, p.careful = next, last, false
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

// Rollback implements [projections.Tx]. A working set that was changed is
// forgotten.
func (t *tx) Rollback() {
	if t.done {
		return
	}
	t.done = true
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

// giveUp makes the server end a transaction whose client leaves it waiting: one
// that is frozen, or whose machine is gone, holds the lock of its partition so
// long, and nobody can take it over.
const giveUp = `set_config('idle_in_transaction_session_timeout', '5s', true)`

// applicationName is what a transaction calls itself that folds for a session, so
// that whoever takes over finds it: one whose client stops while the server reads
// what it sends is not idle, and waits for ever. The server keeps 63 bytes of ASCII
// of it, so it has no more than what makes the token unique.
func applicationName(token string) string {
	unique, _, _ := strings.Cut(token, " ")
	return "quartermaster " + unique
}

const moveSQL = `
	update quartermaster.partitions set next_offset = $6, last_offset = $8, last_epoch = $9, last_sha256 = $10,
		stop_reason = null, stop_advice = null
	where generation = $1 and topic = $2 and partition = $3 and next_offset = $4 and epoch = $5
		and ` + giveUp + ` is not null and set_config('application_name', $7, true) is not null`

// commit stores what changed and moves the position, both or neither.
func (s *Store) commit(ctx context.Context, tp domain.TopicPartition, p *part, next int64, last domain.Anchor) error {
	w, err := s.prepare(p)
	if err != nil {
		return err
	}
	if err := s.ensureMonths(ctx, w.months); err != nil {
		return err
	}
	sqlTx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sqlTx.Rollback() }()
	offset, epoch, hash := anchorColumns(last)
	res, err := sqlTx.ExecContext(ctx, moveSQL, s.generation, string(tp.Topic), tp.Partition, p.next, p.epoch, next, applicationName(s.token), offset, epoch, hash)
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
	if err := sqlTx.Commit(); err != nil {
		return err
	}
	maps.Copy(p.held, w.hours)
	return nil
}
