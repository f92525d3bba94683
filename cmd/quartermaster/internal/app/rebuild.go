package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"

	"github.com/dustin/go-humanize"
)

// Rebuilt is the result of a rebuild.
type Rebuilt struct {
	Generation      string              `json:"generation"`
	Method          string              `json:"method"`
	ResumedAt       string              `json:"resumed_at"` // position of an interrupted rebuild
	Events          int64               `json:"events"`
	Seconds         float64             `json:"seconds"`
	EventsPerSecond float64             `json:"events_per_second"`
	Position        string              `json:"position"` // where the generations were compared
	ComparedWith    string              `json:"compared_with"`
	ComparedMethod  string              `json:"compared_method"`
	RowByRow        bool                `json:"row_by_row"` // whether rows were compared, rather than only counted
	Equal           bool                `json:"equal"`
	Digest          string              `json:"digest,omitempty"`
	ActiveDigest    string              `json:"active_digest,omitempty"`
	Tables          []RebuiltTable      `json:"tables"`
	Differences     []RebuiltDifference `json:"differences"`
	State           string              `json:"state"`
	Switched        bool                `json:"switched"`
	Diverged        []string            `json:"diverged"`    // divergences of the log; empty: none
	HandedOver      bool                `json:"handed_over"` // whether it was brought to within a second of the active one before the switch
}

// RebuiltTable counts the rows of a table in the active and in the rebuilt generation.
type RebuiltTable struct {
	Table       string `json:"table"`
	ActiveRows  int64  `json:"active_rows"`
	RebuiltRows int64  `json:"rebuilt_rows"`
	Changed     int64  `json:"changed"`
	OnlyActive  int64  `json:"only_active"`
	OnlyRebuilt int64  `json:"only_rebuilt"`
}

// RebuiltDifference is a row that differs between the two.
type RebuiltDifference struct {
	Row     string `json:"row"`
	Active  bool   `json:"active"`  // the active generation has it
	Rebuilt bool   `json:"rebuilt"` // the rebuilt one has it
}

// rebuild builds one generation.
type rebuild struct {
	app  *App
	db   *postgres.DB
	log  *kafka.Log
	name string

	active string
	runner *projections.Runner
	ans    Rebuilt
}

// nearEnough is how many events may be left when the comparison begins, which folds them while it
// locks the active rows.
const nearEnough = 20_000

func (r *rebuild) run(ctx context.Context, change bool) (err error) {
	if r.active, err = r.db.Active(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	s, err := r.db.Join(ctx, postgres.SessionConfig{
		Instance: config.RebuildPrefix + r.name, Method: projections.Method, Lease: r.app.Config.Lease,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Context(), func() { cancel(context.Cause(s.Context())) })()
	store := s.Bulk(r.name)
	for _, tp := range domain.AllPartitions() {
		if ok, err := store.Claim(ctx, tp); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("rebuild %s: %s is folded by another process; \"quartermaster generation status\" names it", r.name, tp)
		}
	}
	r.runner = NewRunner(r.log, store)
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
	r.app.tell("comparing generations %s and %s", r.active, r.name)
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
	// The active generation has moved on during the comparison.
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

// diverged reports whether the log is not the one that the active generation was folded from, and
// records the differences.
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

// anew folds the log as it is now. There is no position at which the rows could be compared with
// the active ones, so an operator must switch.
func (r *rebuild) anew(ctx context.Context, store *postgres.Store) error {
	for _, text := range r.ans.Diverged {
		r.app.tell("%s", text)
	}
	_, end, err := r.log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		return err
	}
	start := time.Now()
	bar := r.app.track(Work{Name: "rebuild " + r.name, Total: end.Records(), Unit: "events"})
	stop := follow(bar, func() int64 { return r.runner.Progress().Records })
	err = r.runner.CatchUp(ctx, end)
	stop()
	bar.Stop()
	if err != nil {
		return r.failed(ctx, err)
	}
	a := &r.ans
	a.Events, a.Seconds = r.runner.Progress().Records, time.Since(start).Seconds()
	a.EventsPerSecond = float64(a.Events) / max(a.Seconds, 1e-9)
	a.ComparedWith, a.Tables, a.Differences = r.active, []RebuiltTable{}, []RebuiltDifference{}
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

// reach folds up to the present position of the active generation.
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
	// handOverWait is how long a rebuild waits for the instances to fold its generation, before
	// it leaves the switch to an operator.
	handOverWait = time.Minute
	// handOverLag is how much older than the active rows the new ones may be at the switch. Both
	// are folded on, and neither waits for the other. Instances commit both within seconds of a
	// request.
	handOverLag = 5 * time.Second
)

// handOver lets the instances take over a live generation, and waits until they have folded it as
// far as the active one. If no instance runs, it is folded here up to the position of the active
// one.
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
	var past []seen // positions of the active one, the oldest first
	tick := time.NewTicker(AwaitEvery)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < handOverWait; {
		asked := time.Now()
		if err := r.db.Ask(ctx); err != nil {
			return false, err
		}
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
	r.app.tell("generation %s is live, and after %s the running instances have not folded it as far as %s: "+
		"see \"quartermaster generation status\", then \"quartermaster generation switch %s\"",
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

// both returns the active generation and the new one, read in one transaction.
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

// failed returns why folding ended, if the session was lost.
func (r *rebuild) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, projections.ErrFenced) {
		err = cause
	}
	return fmt.Errorf("rebuild %s: %w; run it again to resume", r.name, err)
}

// begin creates the generation, or finds that of an interrupted rebuild.
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
		return fmt.Errorf("rebuild %s: it was begun with other folds (%s) than this program's (%s): resume it with that program, or drop it first",
			r.name, g.Method, projections.Method)
	}
	at := g.Position()
	r.ans = Rebuilt{Generation: r.name, Method: g.Method, ResumedAt: at.String(), State: string(g.State)}
	if at.Records() > 0 {
		r.app.tell("resuming generation %s, which has %s events", r.name, humanize.Comma(at.Records()))
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

// near folds up to near the active generation, which moves on meanwhile.
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
		bar := r.app.track(Work{Name: "rebuild " + r.name, Total: left, Unit: "events"})
		before := r.runner.Progress().Records
		stop := follow(bar, func() int64 { return r.runner.Progress().Records - before })
		err = fold(ctx, to)
		stop()
		bar.Stop()
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
	a.Tables, a.Differences = []RebuiltTable{}, []RebuiltDifference{}
	if c.RowByRow {
		a.Digest, a.ActiveDigest = fmt.Sprintf("%x", c.DigestB), fmt.Sprintf("%x", c.DigestA)
	}
	for _, t := range c.Tables {
		a.Tables = append(a.Tables, RebuiltTable{t.Table, t.RowsA, t.RowsB, t.Changed, t.OnlyA, t.OnlyB})
	}
	for _, d := range c.Differences {
		a.Differences = append(a.Differences, RebuiltDifference{d.Key.String(), d.InA, d.InB})
	}
}

// Rebuild folds the log into a new generation of rows beside the active one and compares the two
// at a common position. With change it switches to the new one if they are equal.
func (c *Caller) Rebuild(ctx context.Context, name string, change bool) (ans *Rebuilt, err error) {
	if c.app.Config == nil {
		return nil, errNoProduction
	}
	h, err := c.app.OpenProduction(ctx, Reading)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Shut()) }()
	r := &rebuild{app: c.app, db: h.DB, log: h.Log, name: name}
	return &r.ans, r.run(ctx, change)
}
