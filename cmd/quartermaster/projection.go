package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

func (a *app) projectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projection",
		Short: "Generations of the rows in Postgres: make, rebuild, compare, switch",
		Long: `In a production home the rows are in Postgres, in generations: complete sets of
rows with a name, each in a schema of its own and made by one version of the
folds. One is active, which is what every command reads. A new one is built
beside it while everything goes on, is compared with it at a common position,
and becomes active by one row's change.

A new version of the folds comes in like this: "projection rebuild NAME" with
the new program builds its generation while instances of the old program serve;
start instances of the new program, "projection switch NAME", stop the old
ones, "projection drop OLD".`,
	}
	cmd.AddCommand(a.projectionMigrateCommand(), a.projectionStatusCommand(), a.projectionRebuildCommand(),
		a.projectionSwitchCommand(), a.projectionDropCommand())
	return cmd
}

// withDatabase opens the rows of the production home.
func (a *app) withDatabase(ctx context.Context, work func(*postgres.DB) error) (err error) {
	db, err := a.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return work(db)
}

type migrateAnswer struct {
	Before     int64  `json:"before"`
	After      int64  `json:"after"`
	Generation string `json:"generation,omitempty"`
	// Readers may read everything now; MissingReaders are configured and no roles.
	Readers        []string `json:"readers"`
	MissingReaders []string `json:"missing_readers"`
}

func (a *app) projectionMigrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema to this program's version",
		Long: `Migrate makes or changes the control tables, and the first generation, "a",
where there is none. It lets the roles of postgres.readers read all rows and
views; run it again when a reader was added to the configuration, or its role
was created later. Nobody loses a right: that is SQL's REVOKE. Run it once before
the first start and after an upgrade; several may run it at once, and again
changes nothing.

JSON keys: before, after (versions of the schema; 0 is none), generation (the
first one, when it was made), readers (roles that may read), missing_readers
(configured, and no roles of the server).`,
		Example: "  quartermaster projection migrate --config quartermaster.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.config == nil {
				return errNoProduction
			}
			cfg, err := a.config.ForPostgres()
			if err != nil {
				return err
			}
			var ans migrateAnswer
			if ans.Before, ans.After, err = postgres.Migrate(cmd.Context(), cfg); err != nil {
				return err
			}
			if err := a.withDatabase(cmd.Context(), func(db *postgres.DB) error {
				made, err := db.First(cmd.Context(), projections.Method)
				if err == nil && made {
					ans.Generation, err = db.Active(cmd.Context())
				}
				if err != nil {
					return err
				}
				ans.Readers, ans.MissingReaders, err = db.Grant(cmd.Context())
				return err
			}); err != nil {
				return err
			}
			ans.Readers, ans.MissingReaders = slices.Concat([]string{}, ans.Readers), slices.Concat([]string{}, ans.MissingReaders)
			for _, role := range ans.MissingReaders {
				a.note("the reader %s does not exist as a role, and may read nothing: create it, and run this again", role)
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if ans.Before == ans.After {
				fmt.Fprintf(a.out, "the schema is version %d already\n", ans.After)
			} else {
				fmt.Fprintf(a.out, "the schema was version %d and is version %d\n", ans.Before, ans.After)
			}
			if ans.Generation != "" {
				fmt.Fprintf(a.out, "made the first generation of rows, %q\n", ans.Generation)
			}
			if len(ans.Readers) > 0 {
				fmt.Fprintf(a.out, "all rows and views may be read by %s\n", strings.Join(ans.Readers, ", "))
			}
			return nil
		},
	}
}

// projectionStatus is how the rows of a production home stand.
type projectionStatus struct {
	Active      string             `json:"active"`
	Method      string             `json:"method"` // of this program
	LogError    string             `json:"log_error,omitempty"`
	Generations []generationStatus `json:"generations"`
	// Trimmed are the partitions of which the log no longer has the beginning.
	Trimmed   []trimmedStatus  `json:"trimmed"`
	Instances []instanceStatus `json:"instances"`
	Runs      []runStatus      `json:"runs"`
	// Switches are signed switches that the active rows know of, the latest first.
	Switches []registry.SwitchEntry `json:"switches"`
	// Untold says that the event of the last switch is not in the log yet.
	Untold bool `json:"untold"`
}

type generationStatus struct {
	Name       string            `json:"name"`
	Method     string            `json:"method"`
	State      string            `json:"state"`
	Active     bool              `json:"active"`
	Created    time.Time         `json:"created"`
	Position   string            `json:"position"`
	Events     int64             `json:"events"`
	Lag        *int64            `json:"lag"`
	Bytes      int64             `json:"bytes"`
	Partitions []partitionStatus `json:"partitions"`
}

type partitionStatus struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Next      int64        `json:"next"`
	Lag       *int64       `json:"lag"`
	Instance  string       `json:"instance"`
	// Stopped says why it stands still at Next; null: it does not.
	Stopped *projections.Stop `json:"stopped"`
}

type trimmedStatus struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	First     int64        `json:"first"` // offset that is there
}

type instanceStatus struct {
	Name    string    `json:"name"`
	Method  string    `json:"method"`
	Alive   bool      `json:"alive"`
	Sharing bool      `json:"sharing"`
	Started time.Time `json:"started"`
	Until   time.Time `json:"until"`
}

type runStatus struct {
	Job      string            `json:"job"`
	Input    string            `json:"input"`
	State    postgres.RunState `json:"state"`
	Instance string            `json:"instance"`
	Attempts int               `json:"attempts"`
	Failures int               `json:"failures"`
	Started  time.Time         `json:"started"`
	NextTry  *time.Time        `json:"next_try"`
	Finished *time.Time        `json:"finished"`
	Outcome  string            `json:"outcome"`
	Error    string            `json:"error"`
}

// shownRuns is how many of the latest runs status shows.
const shownRuns = 20

func (a *app) projectionStatusCommand() *cobra.Command {
	var partitions bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show generations, how far each is, and who folds them",
		Long: `Status shows the generations of rows, how many events each has folded and how
many are left, which instances run, which partitions stand still, where, why and
what to do about it, which records the log no longer has, and what was last run on
schedule. The log is asked whether it still is what the active generation was folded
from. With
--partitions it shows every partition and who folds it. When the log cannot be
reached, everything else is shown.

JSON keys: active, method (of this program), log_error, generations (name,
method, state: building or live, active, created, position, events, lag, bytes,
partitions: topic, partition, next, lag, instance: which folds it, stopped: null, or
offset, reason and advice where it stands still), trimmed (topic, partition, first:
where the log lacks what came before that offset), instances (name, method, alive,
sharing: whether partitions are dealt to it, started, until: by when it must be
heard of), runs (job, input, state: running, finished, waiting, orphaned or
given up, instance, attempts, failures, started, next_try, finished, outcome,
error; the latest ` + fmt.Sprint(shownRuns) + `), switches (from, to, method, position, digest, reason, lost, at,
operator: who switched between generations, the latest first), untold (the last switch is
not in the log yet: run it again). lag is null when the log cannot be reached.`,
		Example: "  quartermaster projection status --config quartermaster.yaml\n  quartermaster projection status --config quartermaster.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(db *postgres.DB) error {
				ans, err := a.projectionStatus(cmd.Context(), db)
				if err != nil {
					return err
				}
				if a.json {
					return a.answerJSON(ans)
				}
				a.showProjectionStatus(ans, partitions)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "show every partition")
	return cmd
}

func (a *app) projectionStatus(ctx context.Context, db *postgres.DB) (*projectionStatus, error) {
	ans := &projectionStatus{Method: projections.Method, Generations: []generationStatus{}, Trimmed: []trimmedStatus{}, Instances: []instanceStatus{}, Runs: []runStatus{}}
	gens, err := db.Generations(ctx)
	if err != nil {
		return nil, err
	}
	// The log is asked after the positions, so that it has what was folded.
	trimmed, end, diverged, err := a.askLog(ctx, gens)
	if err != nil {
		ans.LogError = err.Error()
	}
	for _, tp := range slices.SortedFunc(maps.Keys(trimmed), domain.TopicPartition.Compare) {
		ans.Trimmed = append(ans.Trimmed, trimmedStatus{tp.Topic, tp.Partition, trimmed[tp]})
	}
	for _, g := range gens {
		at := g.Position()
		s := generationStatus{
			Name: g.Name, Method: g.Method, State: string(g.State), Active: g.Active, Created: g.Created,
			Position: at.String(), Events: at.Records(), Bytes: g.Bytes,
		}
		if end != nil {
			s.Lag = new(int64)
		}
		for _, p := range g.Partitions {
			ps := partitionStatus{p.Topic, p.Partition, p.Next, nil, p.Owner, p.Stop}
			if end != nil {
				lag := max(0, end[p.TopicPartition]-p.Next) // a log that lost records may be shorter
				ps.Lag = &lag
				*s.Lag += lag
			}
			if d := diverged[p.TopicPartition]; d != nil && g.Active {
				ps.Stopped = new(stopOf(d))
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
		ans.Instances = append(ans.Instances, instanceStatus{in.Name, in.Method, in.Alive, in.Sharing, in.Started, in.Until})
	}
	runs, err := db.Runs(ctx, shownRuns)
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
		ans.Runs = append(ans.Runs, runStatus{r.Job, r.Input, r.State, r.Instance, r.Attempts, r.Failures, r.Started, stated(r.NextTry), stated(r.Finished), r.Outcome, r.Error})
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

// askLog asks which partitions lack their beginning, how long the log is, and where it
// is not what the active generation was folded from. It makes no topics.
func (a *app) askLog(ctx context.Context, gens []postgres.Generation) (trimmed, end domain.Position, diverged map[domain.TopicPartition]*kafka.DivergedError, err error) {
	cfg, err := a.logConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
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

func (a *app) showProjectionStatus(s *projectionStatus, partitions bool) {
	count := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return humanize.Comma(*n)
	}
	if s.LogError != "" {
		a.note("the log does not tell how it stands: %s", s.LogError)
	}
	t := a.table("generation", "method", "state", "events", "lag", "size", "folded by")
	for _, g := range s.Generations {
		state := g.State
		if g.Active {
			state += ", active"
		}
		owners := map[string]int{}
		for _, p := range g.Partitions {
			owners[cmp.Or(p.Instance, "nobody")]++
		}
		var by []string
		for _, who := range slices.Sorted(maps.Keys(owners)) {
			by = append(by, fmt.Sprintf("%s (%d)", who, owners[who]))
		}
		t.AppendRow([]any{g.Name, g.Method, state, humanize.Comma(g.Events), count(g.Lag), humanize.IBytes(uint64(max(0, g.Bytes))), strings.Join(by, ", ")})
	}
	t.Render()
	if partitions {
		for _, g := range s.Generations {
			fmt.Fprintln(a.out)
			t := a.table(g.Name, "next", "lag", "folded by")
			for _, p := range g.Partitions {
				t.AppendRow([]any{domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, p.Next, count(p.Lag), cmp.Or(p.Instance, "nobody")})
			}
			t.Render()
		}
	}
	for _, g := range s.Generations {
		for _, p := range g.Partitions {
			if p.Stopped != nil {
				fmt.Fprintf(a.out, "\n%s of generation %s %s\n", domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, g.Name, p.Stopped)
			}
		}
	}
	trimmed := domain.Position{}
	for _, p := range s.Trimmed {
		trimmed[domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}] = p.First
	}
	for _, text := range trimmedTexts(trimmed) {
		fmt.Fprintf(a.out, "\n%s\n", text)
	}
	if s.Untold {
		fmt.Fprintf(a.out, "\nthe switch to %[1]s is not in the log yet: \"quartermaster projection switch %[1]s\" appends it\n", s.Active)
	}
	if len(s.Switches) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("switched", "from", "to", "by", "partitions with losses", "reason")
		for _, w := range s.Switches[:min(len(s.Switches), shownRuns)] {
			t.AppendRow([]any{w.At, w.From, w.To, w.Operator, len(w.Lost), w.Reason})
		}
		t.Render()
	}
	if len(s.Instances) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("instance", "method", "state", "since", "heard of until")
		for _, in := range s.Instances {
			state := "dead"
			switch {
			case in.Alive && in.Sharing:
				state = "sharing"
			case in.Alive:
				state = "alive"
			}
			t.AppendRow([]any{in.Name, in.Method, state, in.Started.Format(time.RFC3339), in.Until.Format(time.RFC3339)})
		}
		t.Render()
	}
	if len(s.Runs) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("job", "for", "state", "instance", "attempts", "started", "outcome")
		for _, r := range s.Runs {
			t.AppendRow([]any{r.Job, r.Input, r.State, r.Instance, r.Attempts, r.Started.Format(time.RFC3339), cmp.Or(r.Error, r.Outcome)})
		}
		t.Render()
	}
	for _, g := range s.Generations {
		if g.Active && g.Method != s.Method {
			fmt.Fprintf(a.out, "\nthe active generation was made by other folds (%s) than this program's (%s)\n", g.Method, s.Method)
		}
	}
}

func (a *app) projectionDropCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Remove a generation and its rows",
		Long: `Drop removes a generation that is not active. One that instances fold at the
moment is removed only with --force; they notice, and stop folding it. Its rows
can be had again by a rebuild: everything is in the log.

JSON keys: dropped.`,
		Example: "  quartermaster projection drop a --config quartermaster.yaml --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(db *postgres.DB) error {
				if err := db.Drop(cmd.Context(), args[0], force); err != nil {
					return err
				}
				if a.json {
					return a.answerJSON(map[string]string{"dropped": args[0]})
				}
				fmt.Fprintf(a.out, "generation %s is gone\n", args[0])
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "even if it is folded at the moment")
	return cmd
}
