package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// State describes a database.
type State struct {
	Version int       // of the server, as server_version_num: 150004 is 15.4
	Standby bool      // the server is read-only
	Clock   time.Time // of the server

	Schema, Wanted int64 // schema version of the database (0: none) and of this program

	// MissingRights are the rights that this user lacks to run Migrate and to make the first
	// generation. It is empty if a generation is active. Each is as GRANT names it, for example
	// "CREATE on database books".
	MissingRights []string

	// The rest is empty unless Schema is Wanted.

	LogID  string                         // the log that the rows belong to; "" before the first instance ran
	Topics map[domain.Topic]TopicIdentity // as recorded at first sight

	MissingReaders []string // configured, but not roles of the server

	Active       string // the active generation; "" if there is none
	ActiveMethod string
	Partitions   []Partition // of the active generation, in order

	Others []OtherState // in the order of the configuration

	membership membership
}

// OtherState describes one of [Config.Others]. Of State it has what concerns one server.
type OtherState struct {
	Name string
	State
	// Err is why it cannot be used; nil if it can.
	Err error
}

// TopicIdentity distinguishes topics of the same name.
type TopicIdentity struct {
	ID         string
	Partitions int
}

// MinVersion is the oldest supported server. Views run with the rights of the querying role
// (security_invoker), which needs version 15.
const MinVersion = 150000

// Inspect describes the databases without changing them.
func Inspect(ctx context.Context, cfg Config) (s State, err error) {
	if s, err = inspect(ctx, cfg); err != nil || s.Schema != s.Wanted {
		return s, err
	}
	if err := checkFirst(s.membership); err != nil {
		return s, err
	}
	for _, o := range cfg.Others {
		other := OtherState{Name: o.Name}
		other.State, other.Err = inspect(ctx, cfg.of(o))
		if other.Err == nil && other.Schema == other.Wanted {
			other.Err = other.membership.check(s.membership, o.Name, false)
		}
		if other.Err == nil && other.Active == s.Active {
			fill(o.Name, s.Partitions, other.Partitions)
		}
		s.Others = append(s.Others, other)
	}
	return s, nil
}

// inspect describes one database.
func inspect(ctx context.Context, cfg Config) (s State, err error) {
	db, err := connect(ctx, cfg)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.QueryRowContext(ctx,
		`select current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp()`,
	).Scan(&s.Version, &s.Standby, &s.Clock); err != nil {
		return s, fmt.Errorf("ask the database for its version: %w", err)
	}
	if s.Schema, s.Wanted, err = versions(ctx, db); err != nil {
		return s, err
	}
	if s.Schema < s.Wanted {
		s.MissingRights, err = missingRights(ctx, db)
	}
	if err != nil || s.Schema != s.Wanted {
		return s, err
	}
	if _, s.MissingReaders, err = readersOf(ctx, db, cfg.Readers); err != nil {
		return s, err
	}
	if s.membership, err = readMembership(ctx, db); err != nil {
		return s, err
	}
	if err := s.bindings(ctx, db); err != nil {
		return s, fmt.Errorf("read from the database which log its rows belong to: %w", err)
	}
	return s, nil
}

// missingRights returns the rights that this user lacks and Migrate needs: to make the schemas, and
// to make tables in a schema that exists already.
func missingRights(ctx context.Context, db *sql.DB) ([]string, error) {
	rights, err := collectText(db.QueryContext(ctx, `
		select format('CREATE on database %I', current_database()) where not has_database_privilege(current_database(), 'create')
		union all
		select format('%s on schema %I', upper(p), nspname) from pg_namespace, unnest(array['create', 'usage']) p
		where nspname = 'quartermaster' and not has_schema_privilege(oid, p)
		order by 1`))
	if err != nil {
		return nil, fmt.Errorf("ask the database for this user's rights: %w", err)
	}
	return rights, nil
}

func (s *State) bindings(ctx context.Context, db *sql.DB) error {
	b, err := bound(ctx, db)
	if err != nil {
		return err
	}
	s.LogID, s.Topics = b.logID, b.topics
	err = db.QueryRowContext(ctx, `
		select name, method from quartermaster.active join quartermaster.generations on name = generation`,
	).Scan(&s.Active, &s.ActiveMethod)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		s.Partitions, err = partitionsOf(ctx, db, s.Active)
	}
	return err
}

// Stops returns the stopped partitions of the active generation.
func (db *DB) Stops(ctx context.Context) (projections.Stops, error) {
	stops := projections.Stops{}
	for name, at := range db.all {
		rows, err := at.QueryContext(ctx, `
			select topic, partition, next_offset, stop_reason, coalesce(stop_advice, '')
			from quartermaster.partitions join quartermaster.active using (generation)
			where stop_reason is not null and database = ''`)
		if err == nil {
			_, err = collect(rows, func(rows *sql.Rows, tp *domain.TopicPartition) error {
				var stop projections.Stop
				err := rows.Scan(&tp.Topic, &tp.Partition, &stop.Offset, &stop.Reason, &stop.Advice)
				stops[*tp] = stop
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("read which partitions are stopped: %w", within(name, err))
		}
	}
	return stops, nil
}
