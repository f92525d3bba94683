// Package postgres stores the rows of the folds in Postgres, for several instances that share the
// partitions of one log. It implements [projections.Store].
//
// Invariants:
//
//   - Rows, stream state, quarantine and position change in one transaction.
//     Its first statement moves the position only if the position and the epoch
//     of the claim are still the expected ones. If that statement changes no
//     row, the claim was lost: nothing is stored, and the caller gets
//     [projections.ErrFenced].
//   - At most one live session folds a partition. A session lives as long as
//     its heartbeat. Only the database's clock counts, so instances may have
//     wrong clocks. Locks of the server do not fence. They only
//     order changes of the schema and of generations.
//   - A reader sees rows and position of one moment (repeatable read). With several
//     databases it sees one moment of each: rows of different partitions do not depend
//     on each other, and the position has an offset for each partition.
//   - The rows of a generation are in a schema of their own. One row of
//     quartermaster.active names the generation that queries read.
//
// # Schemas and tables
//
// Schema quartermaster holds the control tables (migrations) and the views for
// people (views.sql); schema rows_NAME the rows of generation NAME, one table
// for each [projections.Table]. Rows may be in several databases (several.go).
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"quartermaster/projections"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says how to reach the database. Only DSN is needed.
type Config struct {
	// DSN is a connection string as libpq takes it: a URL, or key=value pairs.
	DSN string

	// Others are databases that hold rows of some partitions.
	Others []Other

	// MaxConns bounds the connections to each database; 0 means 16.
	MaxConns int

	// Wrap, if set, wraps the connector that opens connections. It serves tracing, and tests that
	// cut connections.
	Wrap func(driver.Connector) driver.Connector

	// Readers are roles that may read views. [DB.Grant] lets them.
	Readers []Reader

	// Patient makes transactions of few rows wait as those of many do: see [projections.Tx]. It
	// serves tests.
	Patient bool
}

// ErrSchema means that the database's schema is older or newer than this program's, or missing. An
// operator runs "quartermaster generation migrate", or upgrades the program.
var ErrSchema = errors.New("database schema has another version than this program")

// DB is a database with rows, with others beside it if [Config.Others] names some. It is safe for
// concurrent use.
type DB struct {
	*sql.DB // the first
	others  []*other
	readers []Reader
	patient bool

	// Parts reads the parts that rows were left to ([DB.Detach]). Set it before anything is read. It
	// may be nil while there are none.
	Parts projections.PartSource
}

// settings are server settings on every connection; they override those of the database or the
// role. The server must notice a lost client as fast as the client notices a lost server, because
// the client's transaction holds its locks until then. At read committed, each statement sees what
// was committed before it, so a transaction that waited for a row sees the row's new value.
var settings = map[string]string{
	"tcp_keepalives_idle":           seconds(peerTimeout / 3),
	"tcp_keepalives_interval":       seconds(peerTimeout / 3),
	"tcp_keepalives_count":          "2",
	"tcp_user_timeout":              strconv.FormatInt(peerTimeout.Milliseconds(), 10),
	"default_transaction_isolation": "read committed",
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// parse reads a connection string. If it cannot be parsed, the error does not quote it, because any
// part of it may be the password.
func parse(dsn string) (pq.Config, error) {
	params, err := pq.NewConfig(dsn)
	if err == nil {
		if params.Runtime == nil {
			params.Runtime = map[string]string{}
		}
		return params, nil
	}
	if !strings.HasPrefix(err.Error(), "pq: ") {
		err = errors.New(`it is neither a URL ` +
			`("postgres://USER:PASSWORD@HOST:PORT/DATABASE", with special characters as %XX) ` +
			`nor pairs ("host=HOST user=USER dbname=DATABASE", with values in single quotes where they have spaces)`)
	}
	return params, err
}

// connect opens the database without checking its schema.
func connect(ctx context.Context, cfg Config) (*sql.DB, error) {
	params, err := parse(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("read the database's connection string: %w", err)
	}
	// Rows travel in binary, not as hexadecimal digits, and a query takes one round trip instead of
	// two.
	params.BinaryParameters = true
	for name, value := range settings {
		params.Runtime[name] = value
	}
	direct, err := pq.NewConnectorConfig(params)
	if err != nil {
		return nil, fmt.Errorf("read the database's connection string: %w", err)
	}
	direct.Dialer(newDialer())
	var connector driver.Connector = direct
	if cfg.Wrap != nil {
		connector = cfg.Wrap(connector)
	}
	db := sql.OpenDB(connector)
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 16
	}
	db.SetMaxOpenConns(cfg.MaxConns)
	db.SetMaxIdleConns(cfg.MaxConns)
	db.SetConnMaxIdleTime(time.Minute)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the database: %w", err), db.Close())
	}
	return db, nil
}

// Open connects and checks that every schema has this program's version, and that the databases are
// those that the rows are in. It fails with [ErrSchema] or [ErrDatabases] otherwise.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	first, err := openSchema(ctx, cfg)
	if err != nil {
		return nil, err
	}
	db := &DB{DB: first, readers: cfg.Readers, patient: cfg.Patient}
	if err := db.openOthers(ctx, cfg); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// openSchema connects to a database and checks its schema.
func openSchema(ctx context.Context, cfg Config) (*sql.DB, error) {
	db, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	have, want, err := versions(ctx, db)
	if err == nil && have != want {
		switch {
		case have == 0:
			err = fmt.Errorf("%w: it has none yet; \"quartermaster generation migrate\" makes it", ErrSchema)
		case have < want:
			err = fmt.Errorf("%w: it is version %d, this program needs %d; "+
				"stop older instances, then run \"quartermaster generation migrate\"", ErrSchema, have, want)
		default:
			err = fmt.Errorf("%w: it is version %d, this program supports %d; upgrade this program", ErrSchema, have, want)
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Migrate brings the schemas to this program's version, and takes in other databases that are new.
// Several processes may run it at once. It returns the versions of the first database before and
// after.
func Migrate(ctx context.Context, cfg Config) (before, after int64, err error) {
	db, err := connect(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if before, after, err = migrate(ctx, db); err == nil {
		err = migrateOthers(ctx, cfg)
	}
	return before, after, err
}

// migrate brings one schema to this program's version.
func migrate(ctx context.Context, db *sql.DB) (before, after int64, err error) {
	if _, err := db.ExecContext(ctx, `create schema if not exists quartermaster`); err != nil {
		return 0, 0, fmt.Errorf("create schema quartermaster: %w", err)
	}
	if before, _, err = versions(ctx, db); err != nil {
		return 0, 0, err
	}
	p, err := provider(db)
	if err != nil {
		return 0, 0, err
	}
	if _, err := p.Up(ctx); err != nil {
		return before, 0, fmt.Errorf("migrate the database: %w", err)
	}
	_, after, err = versions(ctx, db)
	return before, after, err
}

const versionTable = "quartermaster.schema_version"

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return p, nil
}

// versions returns the schema's version (0 if there is none) and this program's.
func versions(ctx context.Context, db *sql.DB) (have, want int64, err error) {
	p, err := provider(db)
	if err != nil {
		return 0, 0, err
	}
	sources := p.ListSources()
	want = sources[len(sources)-1].Version
	var there bool
	if err := db.QueryRowContext(ctx, `select to_regclass($1) is not null`, versionTable).Scan(&there); err != nil {
		return 0, 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if !there {
		return 0, want, nil
	}
	const applied = `select coalesce(max(version_id), 0) from ` + versionTable + ` where is_applied`
	if err := db.QueryRowContext(ctx, applied).Scan(&have); err != nil {
		return 0, 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return have, want, nil
}
