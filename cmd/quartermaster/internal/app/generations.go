package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// withDatabase opens the database.
func (s *App) withDatabase(ctx context.Context, work func(*postgres.DB) error) (err error) {
	db, err := s.Database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return work(db)
}

// Migrated is what a schema migration changed.
type Migrated struct {
	Before     int64  `json:"before"`
	After      int64  `json:"after"`                // schema version; 0 is none
	Generation string `json:"generation,omitempty"` // the first one, if it was created
	// Databases are the names of those beside the first, which were migrated too.
	Databases []string `json:"databases"`
	// Readers may read views now, and no role that could before and is not here.
	Readers        []Reader `json:"readers"`
	MissingReaders []string `json:"missing_readers"` // configured, but not roles of the server
}

// Reader is a role of the database that may read views.
type Reader struct {
	Role string `json:"role"`
	// Workspaces are those that it sees, with those below them; null: the whole estate.
	Workspaces []string `json:"workspaces"`
}

// GenerationsStatus is the state of the rows in a database.
type GenerationsStatus struct {
	Active      string             `json:"active"`
	Method      string             `json:"method"` // of this program
	LogError    string             `json:"log_error,omitempty"`
	Generations []GenerationStatus `json:"generations"`
	// Trimmed are the partitions whose beginning was deleted from the log.
	Trimmed   []TrimmedStatus  `json:"trimmed"`
	Instances []InstanceStatus `json:"instances"`
	Runs      []RunStatus      `json:"runs"`
	// Switches are the signed switches in the active rows, the latest first.
	Switches []registry.SwitchEntry `json:"switches"`
	// Untold says that the event of the last switch is not in the log yet.
	Untold bool `json:"untold"`
}

// GenerationStatus is the progress of a generation of rows.
type GenerationStatus struct {
	Name     string    `json:"name"`
	Method   string    `json:"method"`
	State    string    `json:"state"` // building or live
	Active   bool      `json:"active"`
	Created  time.Time `json:"created"`
	Position string    `json:"position"`
	Events   int64     `json:"events"`
	Lag      *int64    `json:"lag"`
	Bytes    int64     `json:"bytes"` // in all databases
	// Misplaced counts the partitions that the configuration keeps in another database. A rebuild
	// makes a generation as configured.
	Misplaced  int               `json:"misplaced"`
	Partitions []PartitionStatus `json:"partitions"`
}

// PartitionStatus is the progress of a partition.
type PartitionStatus struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Database  string       `json:"database"` // that has its rows, as postgres.others names it; "": the first
	Next      int64        `json:"next"`
	Lag       *int64       `json:"lag"`
	Instance  string       `json:"instance"` // the instance that folds it
	// Stopped says why folding stopped at Next; null: it runs.
	Stopped *projections.Stop `json:"stopped"`
}

// TrimmedStatus is a partition whose beginning was deleted.
type TrimmedStatus struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	First     int64        `json:"first"` // first remaining offset
}

// InstanceStatus is a process that folds.
type InstanceStatus struct {
	Name    string    `json:"name"`
	Method  string    `json:"method"`
	Alive   bool      `json:"alive"`
	Sharing bool      `json:"sharing"` // whether it takes part in the assignment of partitions
	Started time.Time `json:"started"`
	Until   time.Time `json:"until"` // when it counts as gone unless it renews
}

// RunStatus is one run of a scheduled job.
type RunStatus struct {
	Job      string            `json:"job"`
	Input    string            `json:"input"`
	State    postgres.RunState `json:"state"` // running, finished, waiting, orphaned or given up
	Instance string            `json:"instance"`
	Attempts int               `json:"attempts"`
	Failures int               `json:"failures"`
	Started  time.Time         `json:"started"`
	NextTry  *time.Time        `json:"next_try"`
	Finished *time.Time        `json:"finished"`
	Outcome  string            `json:"outcome"`
	Error    string            `json:"error"`
}

// ShownRuns is how many of the latest runs status shows.
const ShownRuns = 20

func (s *App) generations(ctx context.Context, db *postgres.DB) (*GenerationsStatus, error) {
	ans := &GenerationsStatus{
		Method:      projections.Method,
		Generations: []GenerationStatus{},
		Trimmed:     []TrimmedStatus{},
		Instances:   []InstanceStatus{},
		Runs:        []RunStatus{},
	}
	gens, err := db.Generations(ctx)
	if err != nil {
		return nil, err
	}
	// Read the log's end after the positions, so that it covers what was folded.
	trimmed, end, diverged, err := s.askLog(ctx, gens)
	if err != nil {
		ans.LogError = err.Error()
	}
	for _, tp := range slices.SortedFunc(maps.Keys(trimmed), domain.TopicPartition.Compare) {
		ans.Trimmed = append(ans.Trimmed, TrimmedStatus{tp.Topic, tp.Partition, trimmed[tp]})
	}
	for _, g := range gens {
		at := g.Position()
		s := GenerationStatus{
			Name: g.Name, Method: g.Method, State: string(g.State), Active: g.Active, Created: g.Created,
			Position: at.String(), Events: at.Records(), Bytes: g.Bytes, Misplaced: len(db.Misplaced(&g)),
		}
		if end != nil {
			s.Lag = new(int64)
		}
		for _, p := range g.Partitions {
			ps := PartitionStatus{p.Topic, p.Partition, p.Database, p.Next, nil, p.Owner, p.Stop}
			if end != nil {
				lag := max(0, end[p.TopicPartition]-p.Next) // a log that lost records may be shorter
				ps.Lag = &lag
				*s.Lag += lag
			}
			if d := diverged[p.TopicPartition]; d != nil && g.Active {
				ps.Stopped = new(StopOf(d))
			}
			s.Partitions = append(s.Partitions, ps)
		}
		if g.Active {
			ans.Active = g.Name
		}
		ans.Generations = append(ans.Generations, s)
	}
	instances, err := db.Instances(ctx)
	if err != nil {
		return nil, err
	}
	for _, in := range instances {
		ans.Instances = append(ans.Instances, InstanceStatus{in.Name, in.Method, in.Alive, in.Sharing, in.Started, in.Until})
	}
	runs, err := db.Runs(ctx, ShownRuns)
	if err != nil {
		return nil, err
	}
	stated := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	for _, r := range runs {
		ans.Runs = append(ans.Runs, RunStatus{r.Job, r.Input, r.State, r.Instance, r.Attempts, r.Failures, r.Started, stated(r.NextTry), stated(r.Finished), r.Outcome, r.Error})
	}
	untold, err := db.Untold(ctx)
	if err != nil {
		return nil, err
	}
	ans.Untold, ans.Switches = untold != nil, []registry.SwitchEntry{}
	err = db.View(ctx, func(v projections.View) (err error) { ans.Switches, err = registry.Switches(v); return err })
	if err != nil && !errors.Is(err, postgres.ErrMethod) {
		return nil, err
	}
	return ans, nil
}

// askLog returns which partitions lack their beginning, the end of the log, and where it differs
// from what the active generation was folded from. It creates no topics.
func (s *App) askLog(ctx context.Context, gens []postgres.Generation) (trimmed, end domain.Position, diverged map[domain.TopicPartition]*kafka.DivergedError, err error) {
	cfg, err := s.logConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	id, err := log.ID(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err := s.attach(ctx, log, id); err != nil {
		return nil, nil, nil, err
	}
	first, end, err := log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		return nil, nil, nil, err
	}
	for _, g := range gens {
		if g.Active {
			diverged, err = log.Diverged(ctx, g.Position(), g.Anchors())
		}
	}
	return trimmedOf(first), end, diverged, err
}

// Migrate brings the schemas of the databases to this program's version, creates the first generation if
// there is none, and grants read access to the configured readers.
func (c *Caller) Migrate(ctx context.Context) (*Migrated, error) {
	s := c.app
	if s.Config == nil {
		return nil, errNoProduction
	}
	cfg, err := s.Config.ForPostgres()
	if err != nil {
		return nil, err
	}
	ans := &Migrated{}
	if ans.Before, ans.After, err = postgres.Migrate(ctx, cfg); err != nil {
		return nil, err
	}
	err = s.withDatabase(ctx, func(db *postgres.DB) error {
		made, err := db.First(ctx, projections.Method)
		if err == nil && made {
			ans.Generation, err = db.Active(ctx)
		}
		if err != nil {
			return err
		}
		ans.Databases = append([]string{}, db.Databases()...)
		readers, missing, err := db.Grant(ctx)
		ans.Readers, ans.MissingReaders = make([]Reader, len(readers)), append([]string{}, missing...)
		for i, r := range readers {
			ans.Readers[i] = Reader(r)
		}
		return err
	})
	return ans, err
}

// Generations returns the state of the generations, which instances fold them, and what the log
// lacks.
func (c *Caller) Generations(ctx context.Context) (ans *GenerationsStatus, err error) {
	err = c.app.withDatabase(ctx, func(db *postgres.DB) error {
		ans, err = c.app.generations(ctx, db)
		return err
	})
	return ans, err
}

// DropGeneration removes an inactive generation; one that is being folded only with force.
func (c *Caller) DropGeneration(ctx context.Context, name string, force bool) error {
	return c.app.withDatabase(ctx, func(db *postgres.DB) error { return db.Drop(ctx, name, force) })
}
