package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"quartermaster/domain"
)

// State is what there is in a database.
type State struct {
	Version int       // of the server, as server_version_num: 150004 is 15.4
	Standby bool      // the server takes no writes
	Clock   time.Time // of the server

	Schema, Wanted int64 // versions: what there is, 0 for none, and this program's

	// The rest is empty unless Schema is Wanted.

	LogID  string                         // the log that the rows are of; "" before the first instance ran
	Topics map[domain.Topic]TopicIdentity // as first met

	MissingReaders []string // configured, and no roles of the server

	Active       string // the generation that is read; "" when there is none
	ActiveMethod string
}

// TopicIdentity tells a topic from one of the same name.
type TopicIdentity struct {
	ID         string
	Partitions int
}

// MinVersion is the oldest server that will do: views run with the rights of who
// asks (security_invoker) from 15 on.
const MinVersion = 150000

// Inspect returns what there is, and changes nothing.
func Inspect(ctx context.Context, cfg Config) (s State, err error) {
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
	if s.Schema, s.Wanted, err = versions(ctx, db); err != nil || s.Schema != s.Wanted {
		return s, err
	}
	if _, s.MissingReaders, err = readersOf(ctx, db, cfg.Readers); err != nil {
		return s, err
	}
	if err := s.bindings(ctx, db); err != nil {
		return s, fmt.Errorf("ask the database what its rows are of: %w", err)
	}
	return s, nil
}

func (s *State) bindings(ctx context.Context, db *sql.DB) error {
	b, err := bound(ctx, db)
	if err != nil {
		return err
	}
	s.LogID, s.Topics = b.logID, b.topics
	err = db.QueryRowContext(ctx, `select name, method from quartermaster.active join quartermaster.generations on name = generation`).Scan(&s.Active, &s.ActiveMethod)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
