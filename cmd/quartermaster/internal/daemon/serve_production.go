package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
)

// instance is one of the processes that share a log with --config.
type instance struct {
	*service
	session atomic.Pointer[postgres.Session] // nil while there is none
	beside  *workMetrics

	mu      sync.Mutex
	runners map[string]*projections.Runner // of this session, by generation
	before  map[string]projections.Counts  // folded in earlier sessions
	records map[string]int64               // likewise
	failed  map[postgres.Holding]time.Time // when folding a partition last failed
}

// errNoSession means that this instance has just lost its session and has no new one yet. The
// caller tries again.
var errNoSession = errors.New("the database does not hold a session of this instance at the moment")

// ServeProduction folds its share of the partitions, calls webhooks and runs schedules, until ctx
// ends or an error occurs that time does not fix.
func (d *Daemon) ServeProduction(ctx context.Context, listen string) error {
	in := &instance{
		service: d.newService(), beside: newWorkMetrics(),
		runners: map[string]*projections.Runner{}, before: map[string]projections.Counts{}, records: map[string]int64{},
		failed: map[postgres.Holding]time.Time{},
	}
	in.progress = in.folded
	d.App.Logger = in.log
	in.more = append(in.more, in.metrics()...)
	gateway := in.newGateway(d.App.Config.Gateway)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait, err := in.answer(ctx, cancel, listen)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer func() {
		cancel(nil)
		wg.Wait()
		wait()
	}()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if err := in.openPatiently(ctx); err != nil {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		return err
	}
	defer func() {
		if err := in.conn.Shut(); err != nil {
			in.log.Warn("closing", "error", err)
		}
	}()
	// Everything that uses the data directory ends before it is closed.
	defer func() {
		cancel(nil)
		wg.Wait()
	}()
	if gateway != nil {
		pushed, err := gateway.serve(ctx, cancel)
		if err != nil {
			return err
		}
		wg.Go(pushed)
	}
	if cfg := d.App.Config.API; cfg.Socket != "" || cfg.Listen != "" {
		asked, err := in.serveAPI(ctx, cancel, cfg, "")
		if err != nil {
			return err
		}
		wg.Go(asked)
	}
	wg.Go(func() { in.look(ctx) })
	wg.Go(func() { in.tell(ctx) })
	wg.Go(func() { in.awaitReady(ctx) })
	wg.Go(func() { in.keepReady(ctx) })
	part := func(name string, run func() error) {
		wg.Go(func() {
			if err := run(); err != nil && ctx.Err() == nil {
				if name != "" {
					err = fmt.Errorf("%s: %w", name, err)
				}
				cancel(err)
			}
		})
	}
	part("watch the topics", func() error { return in.watchTopics(ctx) })
	part("reactions", func() error { return react(ctx, in.conn, d.App.Config, in.once, in.beside, in.log, nil) })
	part("schedules", func() error { return schedule(ctx, in.conn, d.App.Config, in.once, in.beside, in.log) })
	part("", func() error { return in.fold(ctx) })
	<-ctx.Done()
	wg.Wait()
	if err := stopped(ctx); err != nil {
		in.failure.Store(&err)
		return err
	}
	in.log.Info("stopped")
	return nil
}

// collectAt makes the garbage collector begin when the heap has grown by this part, in percent.
// Nearly all of the heap is rows that stay for minutes, so waiting until it has doubled only takes
// memory.
const collectAt = 30

// patiently calls do until it succeeds, ctx ends, or it fails for a reason that waiting does not
// fix. It waits from 1 s, doubling to 15 s.
func (in *instance) patiently(ctx context.Context, what string, do func() error) error {
	for wait := time.Second; ; wait = min(2*wait, 15*time.Second) {
		err := do()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return err
		}
		in.log.Warn(what+" failed; trying again", "in", wait.String(), "error", err)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// passes reports whether an error may be temporary: a server that is down or starting, a lost
// connection, a conflict with or a lock of other instances.
func passes(err error) bool {
	if lasting(err) {
		return false
	}
	var answer *pq.Error
	if errors.As(err, &answer) {
		switch answer.Code.Class() {
		case "08", "40", "53", "57", "58": // connection, rolled back for others, resources, operator, system
			return true
		}
		// Lock timeout; or a transaction was idle for too long.
		return answer.Code == pqerror.LockNotAvailable || answer.Code == pqerror.IdleInTransactionSessionTimeout
	}
	return true
}

// lasting reports whether an error means that the log, the rows or the configuration are wrong,
// which only a person can fix.
func lasting(err error) bool {
	var setting *kafka.SettingError
	return errors.As(err, &setting) || errors.Is(err, kafkago.InvalidReplicationFactor) || errors.Is(err, kafka.ErrTrimmed) || errors.Is(err, kafka.ErrCorrupt) ||
		errors.Is(err, postgres.ErrSchema) || errors.Is(err, postgres.ErrOtherLog) || errors.Is(err, postgres.ErrDatabases) ||
		errors.Is(err, postgres.ErrInstanceTaken)
}

// stopsOne reports whether an error stops only the partition that it is about.
func stopsOne(err error) bool {
	var l projections.Lasting
	return errors.As(err, &l)
}

// openPatiently opens log and rows, and waits for servers that are down.
func (in *instance) openPatiently(ctx context.Context) error {
	in.log.Info("opening log and database", "brokers", in.app.Config.Kafka.Brokers)
	return in.patiently(ctx, "opening log and database", func() error {
		h, err := in.app.OpenProduction(ctx, app.Appending)
		if err != nil {
			return err
		}
		in.conn = h
		if ds, err := h.Log.Durabilities(ctx, domain.TopicSpecs()); err == nil {
			for _, d := range app.Durabilities(ds) {
				if d.Unsafe {
					in.log.Warn("the loss of a machine may lose events", "topics", d.Topics, "found", d.Found, "next", d.Next)
				}
			}
		}
		if missing, err := h.DB.MissingReaders(ctx); err == nil && len(missing) > 0 {
			in.log.Warn("configured readers are not roles of the server, so they cannot read; create them, then \"quartermaster generation migrate\"",
				"readers", missing)
		}
		return nil
	})
}

// fold joins the other instances and folds this instance's share, repeatedly: a process that was
// frozen is fenced when it resumes, and joins again.
func (in *instance) fold(ctx context.Context) error {
	name := in.app.Config.Instance
	for ctx.Err() == nil {
		var s *postgres.Session
		if err := in.patiently(ctx, "joining the other instances", func() (err error) {
			s, err = in.conn.DB.Join(ctx, postgres.SessionConfig{
				Instance: name, Method: projections.Method, Lease: in.app.Config.Lease, Log: in.log, Left: in.left,
				Fatal: func(err error) bool { return lasting(err) && !stopsOne(err) },
			})
			return err
		}); err != nil {
			return err
		}
		in.session.Store(s)
		in.log.Info("joined", "instance", name)
		err := s.Share(ctx, in.work)
		in.session.Store(nil)
		in.settle()
		if closing := s.Close(); closing != nil {
			in.log.Warn("leaving the other instances", "error", closing)
		}
		switch {
		case ctx.Err() != nil:
			continue
		case !errors.Is(err, projections.ErrFenced) && !passes(err):
			return err
		}
		in.log.Warn("this instance lost its session, and others may take over what it folded; joining again", "error", err)
	}
	return nil
}

// work folds one partition continuously.
func (in *instance) work(ctx context.Context, store *postgres.Store, tp domain.TopicPartition) error {
	in.mu.Lock()
	r := in.runners[store.Generation()]
	if r == nil {
		r = app.NewRunner(in.conn.Log, store)
		if d := in.app.Config.Decoder; d != nil {
			r.NewDecoder = d
		}
		in.runners[store.Generation()] = r
	}
	in.mu.Unlock()
	err := r.FollowPartition(ctx, tp)
	if err != nil && ctx.Err() == nil && !errors.Is(err, projections.ErrFenced) {
		in.mu.Lock()
		in.failed[postgres.Holding{Generation: store.Generation(), TopicPartition: tp}] = time.Now()
		in.mu.Unlock()
	}
	return err
}

// left removes a partition that this instance no longer folds.
func (in *instance) left(h postgres.Holding) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.failed, h)
	if r := in.runners[h.Generation]; r != nil {
		r.Forget(h.TopicPartition)
	}
}

// failingFor is how long after a failure a partition counts as failing: longer than the pause
// before a retry.
const failingFor = time.Minute

// failing returns how many partitions failed recently.
func (in *instance) failing(now time.Time) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	maps.DeleteFunc(in.failed, func(_ postgres.Holding, at time.Time) bool { return now.Sub(at) > failingFor })
	return len(in.failed)
}

// settle keeps the counts of an ended session.
func (in *instance) settle() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for generation, r := range in.runners {
		p := r.Progress()
		in.before[generation] = in.before[generation].Plus(p.Counts)
		in.records[generation] += p.Records
	}
	clear(in.runners)
}

// folded returns what this process folded since its start.
func (in *instance) folded() map[string]projections.Progress {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := map[string]projections.Progress{}
	for generation, c := range in.before {
		out[generation] = projections.Progress{Counts: c, Records: in.records[generation]}
	}
	for generation, r := range in.runners {
		p := r.Progress()
		p.Counts, p.Records = p.Plus(in.before[generation]), p.Records+in.records[generation]
		out[generation] = p
	}
	return out
}

// awaitReady waits until the rows have reached the end that the log had at the start of this
// instance, whoever folded them.
func (in *instance) awaitReady(ctx context.Context) {
	start := time.Now()
	var end domain.Position
	said := false
	tick := time.NewTicker(app.AwaitEvery)
	defer tick.Stop()
	for {
		if end == nil {
			if trimmed, at, err := in.conn.Bounds(ctx); err == nil { // on an error, folding fails too, and reports it
				in.bounded(trimmed, at)
				end = at
			}
		}
		if end != nil {
			var at domain.Position
			err := in.conn.View(ctx, func(v projections.View) error { at = v.Position(); return nil })
			done := err == nil && at.Covers(end)
			stops := projections.Stops{}
			if err == nil && !done { // /readyz reports stopped partitions
				var standing projections.Stops
				standing, err = in.conn.Standing(ctx, at, end)
				done = err == nil && standing != nil
			}
			if done {
				var found map[domain.TopicPartition]*kafka.DivergedError
				found, err = in.conn.DivergedPartitions(ctx)
				for tp, d := range found {
					stops[tp] = app.StopOf(d)
				}
				if diverged := app.JoinedErrors(found); diverged != nil && !said {
					said = true
					in.log.Error(app.Advised(diverged))
				}
				if done = err == nil && len(found) == 0; !done {
					tick.Reset(lookEvery)
				}
			}
			if err == nil { // on an error, keep the last known one
				in.behind.Store(&stops)
			}
			if done {
				in.ready.Store(true)
				in.log.Info("caught up", "events", at.Records(), "seconds", time.Since(start).Seconds())
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchEvery is how often topics and schema are checked: whether somebody added partitions,
// changed a setting, deleted and recreated a topic, or migrated the database.
const watchEvery = 30 * time.Second

func (in *instance) watchTopics(ctx context.Context) error {
	tick := time.NewTicker(in.watch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := in.conn.Log.CheckTopics(ctx, domain.TopicSpecs())
		if err == nil {
			err = in.conn.Bind(ctx)
		}
		if !lasting(err) {
			err = in.checkSchema(ctx)
		}
		if lasting(err) {
			return err
		}
	}
}

// checkSchema detects a migration of the database to another version.
func (in *instance) checkSchema(ctx context.Context) error {
	db, err := in.app.Database(ctx)
	if err != nil {
		return err
	}
	return db.Close()
}

// once runs what must run on one of all instances.
func (in *instance) once(ctx context.Context, job, input string, do func(context.Context) (string, error)) (bool, error) {
	s := in.session.Load()
	if s == nil {
		return false, errNoSession
	}
	return s.Once(ctx, job, input, do)
}

// metrics returns the metrics of an instance among others.
func (in *instance) metrics() []prometheus.Collector {
	stat := func(of func(postgres.Stats) float64) func() float64 {
		return func() float64 {
			if s := in.session.Load(); s != nil {
				return of(s.Stats())
			}
			return 0
		}
	}
	return []prometheus.Collector{
		in.beside,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_partitions_held", Help: "Partitions that this process folds, over all generations of rows.",
		}, stat(func(s postgres.Stats) float64 { return float64(len(s.Held)) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_partitions_claimed", Help: "Partitions that this process took over in its present session.",
		}, stat(func(s postgres.Stats) float64 { return float64(s.Claims) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_partitions_lost", Help: "Partitions that others took from this process in its present session.",
		}, stat(func(s postgres.Stats) float64 { return float64(s.Losses) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_partitions_failing", Help: "Partitions that this process failed to fold within the last minute, and tries again.",
		}, func() float64 { return float64(in.failing(time.Now())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_session", Help: "1 while this process has a session among the instances, 0 while it has none.",
		}, func() float64 {
			if in.session.Load() == nil {
				return 0
			}
			return 1
		}),
	}
}
