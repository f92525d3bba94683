package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
)

// rebuildAnswer is what came of a rebuild.
type rebuildAnswer struct {
	Generation      string              `json:"generation"`
	Method          string              `json:"method"`
	ResumedAt       string              `json:"resumed_at"`
	Events          int64               `json:"events"`
	Seconds         float64             `json:"seconds"`
	EventsPerSecond float64             `json:"events_per_second"`
	Position        string              `json:"position"`
	ComparedWith    string              `json:"compared_with"`
	ComparedMethod  string              `json:"compared_method"`
	RowByRow        bool                `json:"row_by_row"`
	Equal           bool                `json:"equal"`
	Digest          string              `json:"digest,omitempty"`
	ActiveDigest    string              `json:"active_digest,omitempty"`
	Tables          []rebuiltTable      `json:"tables"`
	Differences     []rebuiltDifference `json:"differences"`
	State           string              `json:"state"`
	Switched        bool                `json:"switched"`
	Diverged        []string            `json:"diverged"`
	HandedOver      bool                `json:"handed_over"`
}

type rebuiltTable struct {
	Table       string `json:"table"`
	ActiveRows  int64  `json:"active_rows"`
	RebuiltRows int64  `json:"rebuilt_rows"`
	Changed     int64  `json:"changed"`
	OnlyActive  int64  `json:"only_active"`
	OnlyRebuilt int64  `json:"only_rebuilt"`
}

type rebuiltDifference struct {
	Row     string `json:"row"`
	Active  bool   `json:"active"`  // the active generation has it
	Rebuilt bool   `json:"rebuilt"` // the rebuilt one has it
}

func (a *app) projectionRebuildCommand() *cobra.Command {
	var noSwitch bool
	cmd := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Build a generation from the log beside the active one, compare, and switch",
		Long: `Rebuild folds the log from its beginning into a new generation, up to where the
active one stands, while instances go on and everything can be read. Then it
compares the two at a common position.

When both are of one version of the folds, not a row may differ: then the new one
is set live, the running instances take it over, and it becomes active once they
have it no more than a second behind; after a minute the switch is left to you. If a row differs, the rows of one of them are
damaged: nothing is switched, the first hundred are listed, and it fails. Rows of
another version may well differ; how many rows each table has is shown, and
"projection switch NAME" is left to you.

When the log is not the one that the active generation was folded from (it
diverged: see docs/operate/diverged.md), nothing can be compared: the log is
folded as it is now, the new generation is set live, and the switch is left to
you.

A rebuild that was interrupted goes on where it stopped when it is run again with
the same name. The generation before stays until "projection drop".

JSON keys: generation, method, resumed_at (the position that was there), events,
seconds, events_per_second, position (where they were compared), compared_with,
compared_method, row_by_row (whether rows were compared, or only counted), equal,
digest, active_digest, tables (table, active_rows, rebuilt_rows, changed,
only_active, only_rebuilt), differences (row, active, rebuilt: which has it),
state, switched, diverged (what is wrong with the log; empty: nothing), handed_over (whether the running instances, or the rebuild where
none runs, brought it to within a second of the active one before the switch).`,
		Example: "  quartermaster projection rebuild b --config quartermaster.yaml\n  quartermaster projection rebuild b --config quartermaster.yaml --no-switch",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.config == nil {
				return errNoProduction
			}
			return a.rebuild(cmd.Context(), args[0], !noSwitch)
		},
	}
	cmd.Flags().BoolVar(&noSwitch, "no-switch", false, "set the generation live, and leave the switch to \"projection switch\"")
	return cmd
}

func (a *app) rebuild(ctx context.Context, name string, change bool) (err error) {
	h, err := a.openProduction(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.shut()) }()
	r := &rebuild{app: a, db: h.db, log: h.log, name: name}
	if err := r.run(ctx, change); err != nil {
		return err
	}
	if err := r.show(); err != nil {
		return err
	}
	if r.ans.RowByRow && !r.ans.Equal {
		return &failed{why: "the rebuilt rows are not the active ones"}
	}
	return nil
}

// rebuild builds one generation.
type rebuild struct {
	app  *app
	db   *postgres.DB
	log  *kafka.Log
	name string

	active string
	runner *projections.Runner
	ans    rebuildAnswer
}

// nearEnough is how many events may be left when the comparison begins, which
// folds them while it holds the active rows still.
const nearEnough = 20_000

func (r *rebuild) run(ctx context.Context, change bool) (err error) {
	if r.active, err = r.db.Active(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	s, err := r.db.Join(ctx, postgres.SessionConfig{Instance: config.RebuildPrefix + r.name, Method: projections.Method, Lease: r.app.config.Lease})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Context(), func() { cancel(context.Cause(s.Context())) })()
	store := s.Store(r.name)
	for _, tp := range domain.AllPartitions() {
		if ok, err := store.Claim(ctx, tp); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("rebuild %s: %s is folded by another process; \"quartermaster projection status --partitions\" names it", r.name, tp)
		}
	}
	r.runner = newRunner(r.log, store)
	if parted, err := r.diverged(ctx); err != nil {
		return err
	} else if parted {
		return r.anew(ctx, store)
	}
	var took time.Duration
	fold := func(ctx context.Context, to domain.Position) error {
		start := time.Now()
		defer func() { took += time.Since(start) }()
		return r.runner.CatchUp(ctx, to)
	}
	if err := r.near(ctx, fold); err != nil {
		return r.failed(ctx, err)
	}
	r.app.note("comparing generations %s and %s", r.active, r.name)
	stop := r.app.still(fmt.Sprintf("comparing generations %s and %s", r.active, r.name))
	c, err := r.db.Compare(ctx, r.active, r.name, fold)
	stop()
	if err != nil {
		return r.failed(ctx, err)
	}
	r.answer(c, took)
	if c.RowByRow && !c.Equal() {
		return nil
	}
	// The active one has moved on while they were compared.
	if err := r.near(ctx, fold); err != nil {
		return r.failed(ctx, err)
	}
	if err := r.reach(ctx); err != nil {
		return err
	}
	if err := r.db.SetLive(ctx, r.name); err != nil {
		return err
	}
	r.ans.State = string(postgres.Live)
	if !change || !c.RowByRow {
		return nil
	}
	if r.ans.HandedOver, err = r.handOver(ctx, store); err != nil || !r.ans.HandedOver {
		return err
	}
	if err := r.db.Switch(ctx, r.name); err != nil {
		return err
	}
	r.ans.Switched = true
	return nil
}

// diverged reports whether the log is not the one that the active generation was
// folded from, and keeps what is wrong.
func (r *rebuild) diverged(ctx context.Context) (bool, error) {
	g, err := r.db.Generation(ctx, r.active)
	if err != nil {
		return false, err
	}
	found, err := r.log.Diverged(ctx, g.Position(), g.Anchors())
	if err != nil {
		return false, err
	}
	r.ans.Diverged = []string{}
	for _, tp := range slices.SortedFunc(maps.Keys(found), domain.TopicPartition.Compare) {
		r.ans.Diverged = append(r.ans.Diverged, found[tp].Error())
	}
	return len(found) > 0, nil
}

// anew folds the log as it is now. There is no position at which the rows could be
// compared with the active ones, so the switch is left to a person.
func (r *rebuild) anew(ctx context.Context, store *postgres.Store) error {
	for _, text := range r.ans.Diverged {
		r.app.note("%s", text)
	}
	_, end, err := r.log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		return err
	}
	start := time.Now()
	bar := r.app.bar("rebuild "+r.name, end.Records(), "events")
	stop := bar.follow(func() int64 { return r.runner.Progress().Records })
	err = r.runner.CatchUp(ctx, end)
	stop()
	bar.stop()
	if err != nil {
		return r.failed(ctx, err)
	}
	a := &r.ans
	a.Events, a.Seconds = r.runner.Progress().Records, time.Since(start).Seconds()
	a.EventsPerSecond = float64(a.Events) / max(a.Seconds, 1e-9)
	a.ComparedWith, a.Tables, a.Differences = r.active, []rebuiltTable{}, []rebuiltDifference{}
	if err := store.View(ctx, func(v projections.View) error {
		a.Position = v.Position().String()
		sum, err := projections.DigestOf(v)
		a.Digest = fmt.Sprintf("%x", sum)
		return err
	}); err != nil {
		return err
	}
	if err := r.db.SetLive(ctx, r.name); err != nil {
		return err
	}
	a.State = string(postgres.Live)
	return nil
}

// reach folds up to where the active generation stands now.
func (r *rebuild) reach(ctx context.Context) error {
	at, err := r.position(ctx, r.active)
	if err == nil {
		err = r.runner.CatchUp(ctx, at)
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	return nil
}

const (
	// handOverWait is how long a rebuild waits for the instances to fold its
	// generation, before it leaves the switch to a person.
	handOverWait = time.Minute
	// handOverLag is how much older than the active rows the new ones may be when
	// they begin to be read: both are folded on, neither waits for the other.
	handOverLag = time.Second
)

// handOver lets the instances take over a generation that is live, and waits until
// they have it and it is as new as the active one. Where none runs, it is folded
// here to where the active one stands.
func (r *rebuild) handOver(ctx context.Context, store *postgres.Store) (done bool, err error) {
	if alone, err := r.alone(ctx); err != nil || alone {
		return true, errors.Join(err, r.reach(ctx))
	}
	for _, tp := range domain.AllPartitions() {
		if err := store.Release(ctx, tp); err != nil {
			return false, err
		}
	}
	type seen struct {
		when   time.Time
		active domain.Position
	}
	var past []seen // where the active one stood, the oldest first
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < handOverWait; {
		asked := time.Now()
		active, fresh, err := r.both(ctx)
		if err != nil {
			return false, err
		}
		past = append(past, seen{asked, active.Position()})
		at := fresh.Position()
		unowned := slices.ContainsFunc(fresh.Partitions, func(p postgres.Partition) bool { return p.Owner == "" })
		for i := len(past) - 1; i >= 0 && !unowned; i-- {
			if at.Covers(past[i].active) {
				if i == len(past)-1 || time.Since(past[i].when) <= handOverLag {
					return true, nil
				}
				past = past[i:]
				break
			}
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-tick.C:
		}
	}
	r.app.note("generation %s is live, and after %s the running instances have not brought it to where %s stands: see \"quartermaster projection status\", then \"quartermaster projection switch %s\"",
		r.name, handOverWait, r.active, r.name)
	return false, nil
}

// alone reports whether no instance runs that folds this program's generations.
func (r *rebuild) alone(ctx context.Context) (bool, error) {
	instances, err := r.db.Instances(ctx)
	return !slices.ContainsFunc(instances, func(in postgres.Instance) bool {
		return in.Alive && in.Sharing && in.Method == projections.Method
	}), err
}

// both returns the active generation and the new one, as of one moment.
func (r *rebuild) both(ctx context.Context) (active, fresh *postgres.Generation, err error) {
	all, err := r.db.Generations(ctx)
	for i := range all {
		switch all[i].Name {
		case r.active:
			active = &all[i]
		case r.name:
			fresh = &all[i]
		}
	}
	if err == nil && (active == nil || fresh == nil) {
		err = fmt.Errorf("generations %s and %s: %w", r.active, r.name, postgres.ErrNoGeneration)
	}
	return active, fresh, err
}

// failed says why folding ended, when it was because the session was lost.
func (r *rebuild) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, projections.ErrFenced) {
		err = cause
	}
	return fmt.Errorf("rebuild %s: %w; run it again, it goes on where it stopped", r.name, err)
}

// begin makes the generation, or finds what an interrupted rebuild left.
func (r *rebuild) begin(ctx context.Context) error {
	g, err := r.db.Generation(ctx, r.name)
	if errors.Is(err, postgres.ErrNoGeneration) {
		if err := r.db.Create(ctx, r.name, projections.Method); err != nil {
			return err
		}
		g, err = r.db.Generation(ctx, r.name)
	}
	switch {
	case err != nil:
		return err
	case g.State == postgres.Live:
		return fmt.Errorf("rebuild %s: there is a live generation of that name; choose another, or drop it first", r.name)
	case g.Method != projections.Method:
		return fmt.Errorf("rebuild %s: the one left there was begun with other folds (%s) than this program's (%s): go on with that program, or drop it first", r.name, g.Method, projections.Method)
	}
	at := g.Position()
	r.ans = rebuildAnswer{Generation: r.name, Method: g.Method, ResumedAt: at.String(), State: string(g.State)}
	if at.Records() > 0 {
		r.app.note("going on with generation %s, which has %s events", r.name, humanize.Comma(at.Records()))
	}
	return nil
}

func (r *rebuild) position(ctx context.Context, name string) (domain.Position, error) {
	g, err := r.db.Generation(ctx, name)
	if err != nil {
		return nil, err
	}
	return g.Position(), nil
}

// near brings the generation near to where the active one stands, which moves on
// meanwhile.
func (r *rebuild) near(ctx context.Context, fold func(context.Context, domain.Position) error) error {
	for {
		at, err := r.position(ctx, r.name)
		if err != nil {
			return err
		}
		to, err := r.position(ctx, r.active)
		if err != nil {
			return err
		}
		left := to.Records() - at.Records()
		if left <= nearEnough {
			return nil
		}
		bar := r.app.bar("rebuild "+r.name, left, "events")
		before := r.runner.Progress().Records
		stop := bar.follow(func() int64 { return r.runner.Progress().Records - before })
		err = fold(ctx, to)
		stop()
		bar.stop()
		if err != nil {
			return err
		}
	}
}

func (r *rebuild) answer(c *postgres.Comparison, took time.Duration) {
	a := &r.ans
	a.Events, a.Seconds = r.runner.Progress().Records, took.Seconds()
	a.EventsPerSecond = float64(a.Events) / max(a.Seconds, 1e-9)
	a.Position, a.ComparedWith, a.ComparedMethod = c.Position.String(), c.A.Name, c.A.Method
	a.RowByRow, a.Equal = c.RowByRow, c.Equal()
	a.Tables, a.Differences = []rebuiltTable{}, []rebuiltDifference{}
	if c.RowByRow {
		a.Digest, a.ActiveDigest = fmt.Sprintf("%x", c.DigestB), fmt.Sprintf("%x", c.DigestA)
	}
	for _, t := range c.Tables {
		a.Tables = append(a.Tables, rebuiltTable{t.Table, t.RowsA, t.RowsB, t.Changed, t.OnlyA, t.OnlyB})
	}
	for _, d := range c.Differences {
		a.Differences = append(a.Differences, rebuiltDifference{d.Key.String(), d.InA, d.InB})
	}
}

func (r *rebuild) show() error {
	a, ans := r.app, r.ans
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "folded %s events in %.2f s (%s events/s) into generation %s\n",
		humanize.Comma(ans.Events), ans.Seconds, humanize.Comma(int64(ans.EventsPerSecond)), ans.Generation)
	fmt.Fprintf(a.out, "position  %s\n", ans.Position)
	switch {
	case len(ans.Diverged) > 0:
		fmt.Fprintf(a.out, "digest    %s\nthe active generation %s is of another log than this is now, and nothing was compared:\n", ans.Digest, ans.ComparedWith)
		for _, text := range ans.Diverged {
			fmt.Fprintf(a.out, "  %s\n", text)
		}
		fmt.Fprintf(a.out, "%s is live; \"quartermaster projection switch %s --reason TEXT\" makes it the one that is read, if a replay of the log gives the same rows\n",
			ans.Generation, ans.Generation)
	case !ans.RowByRow:
		fmt.Fprintf(a.out, "the active generation %s is of other folds (%s) than %s (%s); rows by table:\n\n", ans.ComparedWith, ans.ComparedMethod, ans.Generation, ans.Method)
		t := a.table("table", ans.ComparedWith, ans.Generation, "more")
		for _, row := range ans.Tables {
			t.AppendRow([]any{row.Table, humanize.Comma(row.ActiveRows), humanize.Comma(row.RebuiltRows), humanize.Comma(row.RebuiltRows - row.ActiveRows)})
		}
		t.Render()
		fmt.Fprintf(a.out, "\n%s is live; \"quartermaster projection switch %s --reason TEXT\" makes it the one that is read\n", ans.Generation, ans.Generation)
	case ans.Equal:
		var rows int64
		for _, t := range ans.Tables {
			rows += t.RebuiltRows
		}
		fmt.Fprintf(a.out, "digest    %s\nequal: %s rows are the same in %s\n", ans.Digest, humanize.Comma(rows), ans.ComparedWith)
		if ans.Switched {
			fmt.Fprintf(a.out, "generation %s is read now; before it was %s\n", ans.Generation, ans.ComparedWith)
		} else {
			fmt.Fprintf(a.out, "%s is live; \"quartermaster projection switch %s --reason TEXT\" makes it the one that is read\n", ans.Generation, ans.Generation)
		}
	default:
		fmt.Fprintf(a.out, "DIFFERENT: the same folds made other rows; nothing was switched\n%-9s %s\n%-9s %s\n\n", ans.ComparedWith, ans.ActiveDigest, ans.Generation, ans.Digest)
		t := a.table("table", ans.ComparedWith, ans.Generation, "changed", "only "+ans.ComparedWith, "only "+ans.Generation)
		for _, row := range ans.Tables {
			if row.Changed+row.OnlyActive+row.OnlyRebuilt > 0 {
				t.AppendRow([]any{row.Table, row.ActiveRows, row.RebuiltRows, row.Changed, row.OnlyActive, row.OnlyRebuilt})
			}
		}
		t.Render()
		fmt.Fprintln(a.out)
		for _, d := range ans.Differences {
			fmt.Fprintf(a.out, "  %s  %s=%t %s=%t\n", d.Row, ans.ComparedWith, d.Active, ans.Generation, d.Rebuilt)
		}
		fmt.Fprintf(a.out, "\nOne of the two is damaged. \"quartermaster log replay\" tells the digest that the log has.\n")
	}
	return nil
}
