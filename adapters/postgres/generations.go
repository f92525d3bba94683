package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"quartermaster/domain"
	"quartermaster/projections"
)

// GenerationState says which processes fold a generation.
type GenerationState string

// The states of a generation.
const (
	Building GenerationState = "building" // the rebuild that makes it
	Live     GenerationState = "live"     // every instance with its fold version
)

// Generation is a complete set of rows.
type Generation struct {
	Name    string
	Method  string // version of the folds that make the rows
	State   GenerationState
	Created time.Time
	Active  bool  // queries read this generation
	Bytes   int64 // on disk, with indexes
	// Partitions are in order.
	Partitions []Partition
}

// Partition is how far a partition of a generation is folded, and by which instance.
type Partition struct {
	domain.TopicPartition
	Database string        // that has its rows; "": the first
	Next     int64         // offset of the first record that is not folded
	Last     domain.Anchor // the last record that is folded
	Owner    string        // instance that folds it; "" if no live instance does
	// Stop says why the partition is stopped. It is nil if no stop is known.
	Stop *projections.Stop
}

// Position is how far into the log the rows go.
func (g *Generation) Position() domain.Position {
	at := domain.Position{}
	for _, p := range g.Partitions {
		at[p.TopicPartition] = p.Next
	}
	return at
}

// Anchors returns the last record before that position for each partition that has one.
func (g *Generation) Anchors() map[domain.TopicPartition]domain.Anchor {
	anchors := map[domain.TopicPartition]domain.Anchor{}
	for _, p := range g.Partitions {
		if !p.Last.IsZero() {
			anchors[p.TopicPartition] = p.Last
		}
	}
	return anchors
}

// Stops returns the stopped partitions of the generation.
func (g *Generation) Stops() projections.Stops {
	stops := projections.Stops{}
	for _, p := range g.Partitions {
		if p.Stop != nil {
			stops[p.TopicPartition] = *p.Stop
		}
	}
	return stops
}

// Instance is a process that joined.
type Instance struct {
	Name    string
	Method  string
	Sharing bool // partitions are assigned to it
	Alive   bool
	Started time.Time
	Until   time.Time // its lease ends then, or ended
}

// Errors about a generation. Each is wrapped with the generation's name.
var (
	ErrNoGeneration = errors.New("there is no such generation; \"quartermaster generation status\" lists them")
	ErrGeneration   = errors.New("generation cannot be changed this way")
)

// ErrOtherLog means that the rows were folded from another log than the connected one, or from
// topics that were deleted. Folding further would mix the two: the caller MUST stop. An operator
// connects the right log, or starts with a new database.
var ErrOtherLog = errors.New("the rows belong to another log")

// changeWait is how long a change of generations waits for another change, and for folds that are
// about to write. It is longer than any of them takes.
const changeWait = "30s"

// ErrChanging means that another change of generations did not end in time. The caller tries again.
var ErrChanging = errors.New("another program is changing generations or writing rows and has not finished; try again")

// change runs work in a transaction that excludes all other changes of generations, and then makes
// the copies in the other databases.
func (db *DB) change(ctx context.Context, work func(*sql.Tx) error) error {
	if err := change(ctx, db.DB, work); err != nil {
		return err
	}
	return db.follow(ctx)
}

// change runs work in a transaction that excludes all other changes of the generations of a database.
func change(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// A process that freezes in here must not keep all others from starting.
	if _, err := tx.ExecContext(ctx, `select `+idleTimeout+`, set_config('lock_timeout', $1, true)`, changeWait); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `lock table quartermaster.generations in share row exclusive mode`)
	if err == nil {
		err = work(tx)
	}
	if isCode(err, pqerror.LockNotAvailable) && !errors.Is(err, ErrRead) {
		err = fmt.Errorf("%w: %w", ErrChanging, err)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// Create makes an empty generation, which a rebuild then folds.
func (db *DB) Create(ctx context.Context, name, method string) error {
	if err := checkGeneration(name); err != nil {
		return err
	}
	err := db.change(ctx, func(tx *sql.Tx) error {
		return db.create(ctx, tx, name, method, Building, domain.AllPartitions(), db.placeOf)
	})
	if err != nil {
		return fmt.Errorf("create generation %s: %w", name, err)
	}
	return nil
}

// create makes the tables of a generation. Of its partitions it has those in the list, and place says
// which database has the rows of each.
func (db *DB) create(
	ctx context.Context, tx *sql.Tx, name, method string, state GenerationState,
	list []domain.TopicPartition, place func(domain.TopicPartition) string,
) error {
	places := make([]string, len(list))
	for i, tp := range list {
		places[i] = place(tp)
	}
	topics, partitions := partitionText(list)
	res, err := tx.ExecContext(ctx, `
		insert into quartermaster.generations (name, method, state) values ($1, $2, $3) on conflict do nothing`,
		name, method, state)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return fmt.Errorf("%w: it exists", ErrGeneration)
	}
	if _, err := tx.ExecContext(ctx, `
		insert into quartermaster.partitions (generation, topic, partition, database)
		select $1, * from unnest($2::text[], $3::integer[], $4::text[])`,
		name, topics, partitions, pq.Array(places)); err != nil {
		return err
	}
	return db.createTables(ctx, tx, name)
}

// First makes the generation "a", live and active, if there is no generation.
func (db *DB) First(ctx context.Context, method string) (made bool, err error) {
	const look = `select exists (select from quartermaster.generations)`
	var some bool
	err = db.QueryRowContext(ctx, look).Scan(&some)
	if err == nil && !some {
		err = db.change(ctx, func(tx *sql.Tx) error {
			if err := tx.QueryRowContext(ctx, look).Scan(&some); err != nil || some {
				return err
			}
			if err := db.create(ctx, tx, "a", method, Live, domain.AllPartitions(), db.placeOf); err != nil {
				return err
			}
			return setActive(ctx, tx, "a")
		})
	}
	if err != nil {
		return false, fmt.Errorf("create the first generation: %w", err)
	}
	return !some, nil
}

func setActive(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `
		insert into quartermaster.active (generation) values ($1)
		on conflict (one) do update set generation = excluded.generation`, name)
	return err
}

// state returns the state of a generation and whether it is active.
func state(ctx context.Context, tx *sql.Tx, name string) (st GenerationState, active bool, err error) {
	err = tx.QueryRowContext(ctx, `
		select state, exists (select from quartermaster.active where generation = name)
		from quartermaster.generations where name = $1`, name).Scan(&st, &active)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoGeneration
	}
	return st, active, err
}

// SetLive hands a generation from its rebuild to the instances of its method. It is idempotent.
func (db *DB) SetLive(ctx context.Context, name string) error {
	err := db.change(ctx, func(tx *sql.Tx) error {
		if _, _, err := state(ctx, tx, name); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `update quartermaster.generations set state = $2 where name = $1`, name, Live)
		return err
	})
	if err != nil {
		return fmt.Errorf("set generation %s live: %w", name, err)
	}
	return nil
}

// Switch makes queries read a live generation. The previous generation stays and is folded further,
// so that a switch can be undone.
func (db *DB) Switch(ctx context.Context, name string) error {
	err := db.change(ctx, func(tx *sql.Tx) error {
		st, active, err := state(ctx, tx, name)
		switch {
		case err != nil || active:
			return err
		case st != Live:
			return building(name)
		}
		return setActive(ctx, tx, name)
	})
	if err != nil {
		return fmt.Errorf("switch to generation %s: %w", name, err)
	}
	return nil
}

func building(name string) error {
	return fmt.Errorf("%w: it is still building; \"quartermaster generation rebuild %s\" goes on with it", ErrGeneration, name)
}

// SwitchBy is [DB.Switch] with a signed decision. The switch and the storing of the decision are
// one transaction. The decision is kept until [DB.Told] confirms that it is in the log, and no
// other switch is possible until then. from MUST be the active generation.
func (db *DB) SwitchBy(ctx context.Context, from, to string, decision []byte) error {
	err := db.change(ctx, func(tx *sql.Tx) error {
		st, _, err := state(ctx, tx, to)
		switch {
		case err != nil:
			return err
		case st != Live:
			return building(to)
		}
		res, err := tx.ExecContext(ctx, `
			update quartermaster.active set generation = $1, untold = $2
			where generation = $3 and untold is null`, to, decision, from)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return fmt.Errorf("%w: somebody else has just switched; see \"quartermaster generation status\"", ErrGeneration)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("switch to generation %s: %w", to, err)
	}
	return nil
}

// Untold returns the decision of a switch that is not in the log yet, or nil.
func (db *DB) Untold(ctx context.Context) (decision []byte, err error) {
	err = db.QueryRowContext(ctx, `select untold from quartermaster.active`).Scan(&decision)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("read the pending decision of a switch: %w", err)
	}
	return decision, nil
}

// Told records that the decision of a switch is in the log.
func (db *DB) Told(ctx context.Context, decision []byte) error {
	if _, err := db.ExecContext(ctx, `update quartermaster.active set untold = null where untold = $1`, decision); err != nil {
		return fmt.Errorf("record that the decision of a switch is in the log: %w", err)
	}
	return nil
}

// Drop removes a generation and its rows. It refuses the active generation, and needs force for one
// that is being folded. Instances that fold it notice and stop folding it.
func (db *DB) Drop(ctx context.Context, name string, force bool) error {
	err := db.change(ctx, func(tx *sql.Tx) error {
		_, active, err := state(ctx, tx, name)
		switch {
		case err != nil:
			return err
		case active:
			return fmt.Errorf("%w: it is the active one; switch to another first", ErrGeneration)
		}
		// These locks come first, as in drop.
		owners, err := collectText(tx.QueryContext(ctx, `
			select coalesce((select instance from quartermaster.sessions s where s.token = p.owner and `+aliveNow+`), '')
			from quartermaster.partitions p where generation = $1 order by topic, partition for update`, name))
		if err != nil {
			return err
		}
		slices.Sort(owners)
		owners = slices.DeleteFunc(slices.Compact(owners), func(o string) bool { return o == "" })
		if len(owners) > 0 && !force {
			return fmt.Errorf("%w: it is being folded by %v; stop them, or force it", ErrGeneration, owners)
		}
		return db.drop(ctx, tx, name)
	})
	if err != nil {
		return fmt.Errorf("drop generation %s: %w", name, err)
	}
	return nil
}

// drop removes a generation from a database.
func (db *DB) drop(ctx context.Context, tx *sql.Tx, name string) error {
	// Folds lock the row of their partition first and then rows of the generation. Locking in another
	// order could deadlock with them.
	if _, err := tx.ExecContext(ctx, `
		select from quartermaster.partitions where generation = $1 order by topic, partition for update`, name); err != nil {
		return err
	}
	if err := db.dropTables(ctx, tx, name); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `delete from quartermaster.generations where name = $1`, name)
	return err
}

// Active returns the name of the active generation: the one that queries read.
func (db *DB) Active(ctx context.Context) (name string, err error) {
	err = db.QueryRowContext(ctx, `select generation from quartermaster.active`).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%w; \"quartermaster generation migrate\" makes one", ErrNoGeneration)
	}
	if err != nil {
		return "", fmt.Errorf("read which generation is active: %w", err)
	}
	return name, nil
}

// Generations returns every generation, oldest first.
func (db *DB) Generations(ctx context.Context) ([]Generation, error) {
	out, err := db.generations(ctx)
	if err != nil {
		return nil, fmt.Errorf("list generations: %w", err)
	}
	return out, nil
}

func (db *DB) generations(ctx context.Context) ([]Generation, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, `
		select name, method, state, created, exists (select from quartermaster.active where generation = name), `+bytesSQL+`
		from quartermaster.generations g order by created, name collate "C"`)
	if err != nil {
		return nil, err
	}
	out, err := collect(rows, func(rows *sql.Rows, g *Generation) error {
		err := rows.Scan(&g.Name, &g.Method, &g.State, &g.Created, &g.Active, &g.Bytes)
		g.Created = g.Created.UTC()
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Partitions, err = partitionsOf(ctx, tx, out[i].Name); err != nil {
			return nil, err
		}
	}
	if err := tx.Rollback(); err != nil {
		return nil, err
	}
	for i := range out {
		if err := db.fill(ctx, out[i].Name, out[i].Partitions); err != nil {
			return nil, err
		}
		for _, o := range db.others {
			var bytes int64
			err := o.QueryRowContext(ctx, `select `+bytesSQL+` from quartermaster.generations g where name = $1`, out[i].Name).Scan(&bytes)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return nil, within(o.Name, err)
			}
			out[i].Bytes += bytes
		}
	}
	return out, nil
}

// bytesSQL is how much of the disk the rows of a generation g take.
const bytesSQL = `coalesce((
	select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname = 'rows_' || g.name and c.relkind in ('r', 'm')), 0)::bigint`

// partitionsOf returns the partitions of a generation, in order, as one database knows them: see
// [DB.fill].
func partitionsOf(ctx context.Context, q querier, generation string) ([]Partition, error) {
	rows, err := q.QueryContext(ctx, `
		select p.topic, p.partition, p.database, p.next_offset, `+anchorSQL+`, coalesce(s.instance, ''),
			p.stop_reason, coalesce(p.stop_advice, '')
		from quartermaster.partitions p left join quartermaster.sessions s on s.token = p.owner and `+aliveNow+`
		where p.generation = $1 order by p.topic collate "C", p.partition`, generation)
	if err != nil {
		return nil, err
	}
	return collect(rows, func(rows *sql.Rows, p *Partition) error {
		var reason sql.NullString
		var advice string
		err := rows.Scan(&p.Topic, &p.Partition, &p.Database, &p.Next, (*anchor)(&p.Last), &p.Owner, &reason, &advice)
		if err != nil || !reason.Valid {
			return err
		}
		p.Stop = &projections.Stop{Offset: p.Next, Reason: reason.String, Advice: advice}
		return nil
	})
}

// Generation returns one generation.
func (db *DB) Generation(ctx context.Context, name string) (*Generation, error) {
	all, err := db.Generations(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(g Generation) bool { return g.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("generation %s: %w", name, ErrNoGeneration)
	}
	return &all[i], nil
}

// Instances returns the processes that joined, by name, including those that died in the last
// minutes.
func (db *DB) Instances(ctx context.Context) ([]Instance, error) {
	rows, err := db.QueryContext(ctx, `
		select instance, method, sharing, `+aliveNow+`, started, alive_until
		from quartermaster.sessions s order by instance collate "C"`)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	out, err := collect(rows, func(rows *sql.Rows, in *Instance) error {
		err := rows.Scan(&in.Name, &in.Method, &in.Sharing, &in.Alive, &in.Started, &in.Until)
		in.Started, in.Until = in.Started.UTC(), in.Until.UTC()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return out, nil
}

// Bind checks that the rows belong to this log, and records the log's identity if there are no rows
// yet. topics are the topic ids that the log has. Bind writes, and waits for other changes of
// generations, only if something is new.
func (db *DB) Bind(ctx context.Context, logID string, topics map[domain.Topic]string) error {
	known, err := bound(ctx, db.DB)
	var fresh bool
	if err == nil {
		fresh, err = known.check(logID, topics)
	}
	if err == nil && fresh {
		err = db.change(ctx, func(tx *sql.Tx) error { return bind(ctx, tx, logID, topics) })
	}
	if err != nil {
		return fmt.Errorf("bind the database to the log: %w", err)
	}
	return nil
}

// bind records what is new, unless another process has recorded something different meanwhile.
func bind(ctx context.Context, tx *sql.Tx, logID string, topics map[domain.Topic]string) error {
	known, err := bound(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := known.check(logID, topics); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `insert into quartermaster.log (log_id) values ($1) on conflict do nothing`, logID)
	if err != nil {
		return err
	}
	for _, spec := range domain.TopicSpecs() {
		if id := topics[spec.Topic]; id != "" {
			_, err := tx.ExecContext(ctx, `
				insert into quartermaster.topics (topic, topic_id, partitions) values ($1, $2, $3)
				on conflict do nothing`, string(spec.Topic), id, spec.Partitions)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// binding is the identity of the log that the rows belong to.
type binding struct {
	logID  string // "" before the first instance ran
	topics map[domain.Topic]TopicIdentity
}

// bound reads the binding, from a database or within a transaction.
func bound(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
},
) (b binding, err error) {
	if err := q.QueryRowContext(ctx, `select coalesce((select log_id from quartermaster.log), '')`).Scan(&b.logID); err != nil {
		return b, err
	}
	rows, err := q.QueryContext(ctx, `select topic, topic_id, partitions from quartermaster.topics`)
	if err != nil {
		return b, err
	}
	b.topics = map[domain.Topic]TopicIdentity{}
	_, err = collect(rows, func(rows *sql.Rows, _ *struct{}) error {
		var topic domain.Topic
		var id TopicIdentity
		if err := rows.Scan(&topic, &id.ID, &id.Partitions); err != nil {
			return err
		}
		b.topics[topic] = id
		return nil
	})
	return b, err
}

// check compares the binding with the connected log, and reports whether any of its identity is
// new.
func (b binding) check(logID string, topics map[domain.Topic]string) (fresh bool, err error) {
	if b.logID != "" && b.logID != logID {
		return false, fmt.Errorf("%w: they belong to log %s, this is %s: "+
			"check the brokers in the configuration, or use a separate database for this log", ErrOtherLog, b.logID, logID)
	}
	fresh = b.logID == ""
	var wrong []error
	for _, spec := range domain.TopicSpecs() {
		id := topics[spec.Topic]
		if id == "" {
			continue
		}
		known, ok := b.topics[spec.Topic]
		if !ok {
			fresh = true
			continue
		}
		if known.ID != id {
			wrong = append(wrong, fmt.Errorf("%w: topic %s was deleted and created again (its id was %s and is %s): "+
				"a deleted topic does not come back; connect the log that the rows belong to, or begin a new database",
				ErrOtherLog, spec.Topic, known.ID, id))
		}
		if known.Partitions != spec.Partitions {
			wrong = append(wrong, fmt.Errorf("%w: topic %s had %d partitions, this program expects %d",
				ErrOtherLog, spec.Topic, known.Partitions, spec.Partitions))
		}
	}
	return fresh, errors.Join(wrong...)
}

// collect reads every row and closes rows.
func collect[T any](rows *sql.Rows, scan func(*sql.Rows, *T) error) ([]T, error) {
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		var v T
		if err := scan(rows, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
