package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lib/pq"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Where one database is outgrown, partitions have their rows in others ([Config.Others]). Each other
// database has the same schema. The first has what concerns all: sessions, claims, runs, which
// generations there are, which of them is active, and which database has the rows of a partition.
// That is decided when a generation is created and never changes.
//
// A claim of a partition in another database takes two steps. The first database decides who owns
// it, and counts its epoch up. Then the epoch is raised in the other one, if it is lower there. A
// commit compares the epoch and the position in the database that it writes to, as always. So an
// owner that was replaced can store nothing after the second step of its successor, and the
// successor reads the position in that step.
//
// What another database has of generations is a copy, which [DB.follow] makes equal to the first. A
// database that lost its rows gets empty tables, and is folded again from the log. So does one that still
// has a generation which was dropped while the database was away, once another one has its name.

// Other is a database beside the first.
type Other struct {
	// Name names it in the first database. It MUST stay the same for the same database.
	Name string
	// DSN is as in [Config].
	DSN string
	// Partitions are those that have their rows here, in generations that are created from now on.
	Partitions []domain.TopicPartition
}

// other is an open one.
type other struct {
	*sql.DB
	Other
}

// ErrDatabases means that the databases of the configuration are not those that the rows are in. An
// operator corrects the configuration.
var ErrDatabases = errors.New("the databases do not belong together as configured")

// membership is what a database says about itself.
type membership struct {
	id, name string
	used     bool // there are generations of rows
}

func readMembership(ctx context.Context, db *sql.DB) (m membership, err error) {
	err = db.QueryRowContext(ctx, `
		select id::text, name, exists (select from quartermaster.generations) from quartermaster.installation`).Scan(&m.id, &m.name, &m.used)
	if err != nil {
		return m, fmt.Errorf("read which installation the database belongs to: %w", err)
	}
	return m, nil
}

// checkFirst refuses a first database that is another one of somebody.
func checkFirst(m membership) error {
	if m.name != "" {
		return fmt.Errorf("%w: postgres.dsn names the database %q of postgres.others, not the first one", ErrDatabases, m.name)
	}
	return nil
}

// check refuses a database that is not the one that the configuration names. A new one is not
// refused if it may be.
func (m membership) check(first membership, name string, mayBeNew bool) error {
	switch {
	case m.id == first.id && m.name == "":
		return fmt.Errorf("%w: %q of postgres.others is the first database itself", ErrDatabases, name)
	case m.id == first.id && m.name != name:
		return fmt.Errorf("%w: %q of postgres.others is the database that was called %q: two names for one database, or two exchanged",
			ErrDatabases, name, m.name)
	case m.id == first.id, mayBeNew && m.name == "" && !m.used:
		return nil
	case m.name != "":
		return fmt.Errorf("%w: %q of postgres.others belongs to another installation, where it is called %q", ErrDatabases, name, m.name)
	case m.used:
		return fmt.Errorf("%w: %q of postgres.others has rows of its own: name an empty database", ErrDatabases, name)
	default:
		return fmt.Errorf("%w: %q of postgres.others is new: \"quartermaster generation migrate\" takes it in", ErrDatabases, name)
	}
}

// openOthers connects to the other databases and checks that they belong to this one, and that every
// partition of every generation is in a configured one.
func (db *DB) openOthers(ctx context.Context, cfg Config) error {
	first, err := readMembership(ctx, db.DB)
	if err == nil {
		err = checkFirst(first)
	}
	if err != nil {
		return err
	}
	for _, o := range cfg.Others {
		open, err := openSchema(ctx, cfg.of(o))
		if err != nil {
			return fmt.Errorf("database %q: %w", o.Name, err)
		}
		db.others = append(db.others, &other{open, o})
		m, err := readMembership(ctx, open)
		if err != nil {
			return fmt.Errorf("database %q: %w", o.Name, err)
		}
		if err := m.check(first, o.Name, false); err != nil {
			return err
		}
	}
	used, err := collectText(db.QueryContext(ctx, `
		select distinct database from quartermaster.partitions where database <> '' order by 1`))
	if err != nil {
		return fmt.Errorf("read which databases have rows: %w", err)
	}
	for _, name := range used {
		if _, err := db.home(name); err != nil {
			return err
		}
	}
	return nil
}

// of returns how to connect to another database.
func (cfg Config) of(o Other) Config {
	cfg.DSN, cfg.Others = o.DSN, nil
	return cfg
}

// Close closes all databases.
func (db *DB) Close() error {
	err := db.DB.Close()
	for _, o := range db.others {
		err = errors.Join(err, o.Close())
	}
	return err
}

// home returns the database of a name, "" for the first.
func (db *DB) home(name string) (*sql.DB, error) {
	if name == "" {
		return db.DB, nil
	}
	for _, o := range db.others {
		if o.Name == name {
			return o.DB, nil
		}
	}
	return nil, fmt.Errorf("%w: rows are in database %q, which postgres.others does not name", ErrDatabases, name)
}

// all returns the databases by name, the first first.
func (db *DB) all(yield func(name string, at *sql.DB) bool) {
	if !yield("", db.DB) {
		return
	}
	for _, o := range db.others {
		if !yield(o.Name, o.DB) {
			return
		}
	}
}

// Databases returns the names of the other databases, in the order of the configuration.
func (db *DB) Databases() (names []string) {
	for _, o := range db.others {
		names = append(names, o.Name)
	}
	return names
}

// within names the database in an error; "" is the first, which needs no name.
func within(name string, err error) error {
	if name == "" || err == nil {
		return err
	}
	return fmt.Errorf("database %q: %w", name, err)
}

// placeOf returns which database new generations keep the rows of a partition in.
func (db *DB) placeOf(tp domain.TopicPartition) string {
	for _, o := range db.others {
		if slices.Contains(o.Partitions, tp) {
			return o.Name
		}
	}
	return ""
}

// Misplaced returns the partitions of a generation that new generations would keep elsewhere.
func (db *DB) Misplaced(g *Generation) (moved []domain.TopicPartition) {
	for _, p := range g.Partitions {
		if db.placeOf(p.TopicPartition) != p.Database {
			moved = append(moved, p.TopicPartition)
		}
	}
	return moved
}

// copied is what another database must have of a generation.
type copied struct {
	// ID is that of the generation in the first database; "" in a copy of before ids were noted.
	ID         string
	Method     string
	State      GenerationState
	Active     bool
	Partitions string // topic/partition, in order, separated by spaces
}

// copies reads the generations of a database, with the partitions that have their rows in a database
// of this name; "": here.
func copies(ctx context.Context, q querier, name string) (map[string]copied, error) {
	rows, err := q.QueryContext(ctx, `
		select g.name, coalesce(case when $1 = '' then g.copy_of else g.id end::text, ''), g.method, g.state, exists (select from quartermaster.active where generation = g.name),
			coalesce((select string_agg(topic || '/' || partition, ' ' order by topic collate "C", partition)
				from quartermaster.partitions where generation = g.name and database = $1), '')
		from quartermaster.generations g`, name)
	if err != nil {
		return nil, err
	}
	out := map[string]copied{}
	_, err = collect(rows, func(rows *sql.Rows, c *copied) error {
		var generation string
		err := rows.Scan(&generation, &c.ID, &c.Method, &c.State, &c.Active, &c.Partitions)
		out[generation] = *c
		return err
	})
	return out, err
}

// follow makes the generations of the other databases equal to those of the first.
func (db *DB) follow(ctx context.Context) error {
	for _, o := range db.others {
		if err := db.followIn(ctx, o); err != nil {
			return fmt.Errorf("database %q: bring its generations up to date: %w", o.Name, err)
		}
	}
	return nil
}

func (db *DB) followIn(ctx context.Context, o *other) error {
	have, err := copies(ctx, o.DB, "")
	if err != nil {
		return err
	}
	want, err := copies(ctx, db.DB, o.Name)
	if err != nil || maps.Equal(have, want) {
		return err
	}
	return change(ctx, o.DB, func(tx *sql.Tx) error {
		// Whoever has the lock reads what the first has now, so the last one makes the newest copy.
		want, err := copies(ctx, db.DB, o.Name)
		if err != nil {
			return err
		}
		have, err := copies(ctx, tx, "")
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			w, h := want[name], have[name]
			_, ok := have[name]
			if ok && h.ID != "" && h.ID != w.ID {
				// It is what is left of another generation of this name.
				if _, err := tx.ExecContext(ctx, `delete from quartermaster.active where generation = $1`, name); err != nil {
					return err
				}
				if err := db.drop(ctx, tx, name); err != nil {
					return err
				}
				ok = false
			}
			if !ok {
				var parts []domain.TopicPartition
				for _, tp := range domain.AllPartitions() {
					if slices.Contains(strings.Fields(w.Partitions), tp.String()) {
						parts = append(parts, tp)
					}
				}
				if err := db.create(ctx, tx, name, w.Method, w.State, parts, func(domain.TopicPartition) string { return "" }); err != nil {
					return err
				}
			} else if h.Partitions != w.Partitions || h.Method != w.Method {
				return fmt.Errorf("%w: of generation %s it has %q made by %s, and the first database says %q made by %s",
					ErrDatabases, name, h.Partitions, h.Method, w.Partitions, w.Method)
			}
			if _, err := tx.ExecContext(ctx, `
				update quartermaster.generations set state = $2, copy_of = $3 where name = $1`, name, w.State, w.ID); err != nil {
				return err
			}
			if w.Active {
				if err := setActive(ctx, tx, name); err != nil {
					return err
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(have)) {
			if _, ok := want[name]; ok {
				continue
			}
			if err := db.drop(ctx, tx, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// takeIn records that another database belongs to this one.
func takeIn(ctx context.Context, first membership, name string, db *sql.DB) error {
	m, err := readMembership(ctx, db)
	if err == nil {
		err = m.check(first, name, true)
	}
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `
		update quartermaster.installation set id = $1, name = $2
		where id = $1 or name = '' and not exists (select from quartermaster.generations)`, first.id, name)
	if err != nil {
		return fmt.Errorf("database %q: take it in: %w", name, err)
	}
	return nil
}

// migrateOthers brings the schemas of the other databases to this program's version.
func migrateOthers(ctx context.Context, cfg Config) (err error) {
	if len(cfg.Others) == 0 {
		return nil
	}
	db, err := openSchema(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	first, err := readMembership(ctx, db)
	if err == nil {
		err = checkFirst(first)
	}
	if err != nil {
		return err
	}
	for _, o := range cfg.Others {
		if err := migrateOther(ctx, cfg.of(o), first, o.Name); err != nil {
			return err
		}
	}
	return nil
}

func migrateOther(ctx context.Context, cfg Config, first membership, name string) (err error) {
	db, err := connect(ctx, cfg)
	if err != nil {
		return within(name, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// Nobody else's rows are migrated by mistake.
	var known, used bool
	if err := db.QueryRowContext(ctx, `
		select to_regclass('quartermaster.installation') is not null, to_regclass('quartermaster.generations') is not null`).Scan(&known, &used); err != nil {
		return within(name, err)
	}
	switch {
	case known:
		m, err := readMembership(ctx, db)
		if err == nil {
			err = m.check(first, name, true)
		}
		if err != nil {
			return err
		}
	case used:
		return fmt.Errorf("%w: %q of postgres.others has rows of its own: name an empty database", ErrDatabases, name)
	}
	if _, _, err := migrate(ctx, db); err != nil {
		return within(name, err)
	}
	return takeIn(ctx, first, name, db)
}

// placed reads which database has the rows of the partitions of a generation. The names are those in
// the first database.
func placed(ctx context.Context, q querier, generation string) (map[string][]domain.TopicPartition, error) {
	rows, err := q.QueryContext(ctx, `
		select database, topic, partition from quartermaster.partitions
		where generation = $1 order by topic collate "C", partition`, generation)
	if err != nil {
		return nil, err
	}
	at := map[string][]domain.TopicPartition{}
	_, err = collect(rows, func(rows *sql.Rows, tp *domain.TopicPartition) error {
		var name string
		err := rows.Scan(&name, &tp.Topic, &tp.Partition)
		at[name] = append(at[name], *tp)
		return err
	})
	return at, err
}

// fill adds to the partitions of a generation what the databases that have their rows say.
func (db *DB) fill(ctx context.Context, generation string, parts []Partition) error {
	for _, o := range db.others {
		if !slices.ContainsFunc(parts, func(p Partition) bool { return p.Database == o.Name }) {
			continue
		}
		have, err := partitionsOf(ctx, o.DB, generation)
		if err != nil {
			return within(o.Name, err)
		}
		fill(o.Name, parts, have)
	}
	return nil
}

// fill copies what a database says about its partitions.
func fill(name string, parts, have []Partition) {
	for i := range parts {
		p := &parts[i]
		if p.Database != name {
			continue
		}
		at := slices.IndexFunc(have, func(h Partition) bool { return h.TopicPartition == p.TopicPartition })
		if at < 0 {
			p.Stop = &projections.Stop{
				Reason: fmt.Sprintf("database %q has no rows of the generation", name),
				Advice: "restore that database, or \"quartermaster generation migrate\" makes empty tables that are folded again",
			}
			continue
		}
		p.Next, p.Last, p.Stop = have[at].Next, have[at].Last, have[at].Stop
	}
}

// missingRows means that a database lacks a generation that the first says it has.
func missingRows(name, generation string) error {
	return fmt.Errorf("%w: database %q has no rows of generation %s: restore it, "+
		"or let \"quartermaster generation migrate\" make empty tables, which are folded again from the log", ErrDatabases, name, generation)
}

// partitionText returns partitions as SQL arrays.
func partitionText(tps []domain.TopicPartition) (topics, partitions any) {
	var names []string
	var numbers []int64
	for _, tp := range tps {
		names, numbers = append(names, string(tp.Topic)), append(numbers, int64(tp.Partition))
	}
	return pq.Array(names), pq.Array(numbers)
}
