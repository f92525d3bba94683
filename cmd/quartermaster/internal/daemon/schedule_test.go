package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/projections"
)

// runBook is a onceFunc in memory, as adapters/postgres keeps one.
type runBook struct {
	mu       sync.Mutex
	state    map[string]string // by job and input: running or finished
	crashing bool              // the next run is done and not noted
}

var errCrashed = errors.New("crashed before it was noted")

func (b *runBook) once(ctx context.Context, job, input string, do func(context.Context) (string, error)) (bool, error) {
	key := job + " " + input
	b.mu.Lock()
	if b.state == nil {
		b.state = map[string]string{}
	}
	if b.state[key] != "" {
		b.mu.Unlock()
		return false, nil
	}
	b.state[key] = "running"
	b.mu.Unlock()
	_, err := do(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.crashing:
		b.crashing, err = false, errCrashed
		fallthrough
	case err != nil:
		delete(b.state, key)
		return true, err
	}
	b.state[key] = "finished"
	return true, nil
}

var silent = slog.New(slog.DiscardHandler)

func cronOf(t *testing.T, text string) cron.Schedule {
	t.Helper()
	s, err := config.ParseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The run that is due is the last one, in UTC, whatever the clocks of the place do.
func TestLastTick(t *testing.T) {
	york, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		times string
		now   time.Time
		ago   time.Duration
		want  string
	}{
		{"30 4 * * *", time.Date(2026, 5, 2, 4, 29, 59, 0, time.UTC), missedDay, "2026-05-01T04:30:00Z"},
		{"30 4 * * *", time.Date(2026, 5, 2, 4, 30, 0, 0, time.UTC), missedDay, "2026-05-02T04:30:00Z"},
		{"0 0 * * 1", time.Date(2026, 5, 5, 2, 0, 0, 0, time.UTC), missedDay, ""}, // Monday was 26 hours ago
		{"0 0 * * 1", time.Date(2026, 5, 5, 0, 59, 0, 0, time.UTC), missedDay, "2026-05-04T00:00:00Z"},
		{"0 8 1-5 * *", time.Date(2026, 5, 20, 0, 0, 0, 0, time.UTC), missedMonth, "2026-05-05T08:00:00Z"},
		{"0 0 29 2 *", time.Date(2028, 3, 31, 0, 0, 0, 0, time.UTC), missedMonth, "2028-02-29T00:00:00Z"},
		// New York skips the hour from 2 to 3 on 8 March 2026 and has that from 1 to 2 twice on 1 November.
		{"30 2 * * *", time.Date(2026, 3, 8, 12, 0, 0, 0, york), missedDay, "2026-03-08T02:30:00Z"},
		{"30 1 * * *", time.Date(2026, 11, 1, 12, 0, 0, 0, york), missedDay, "2026-11-01T01:30:00Z"},
		{"*/15 * * * *", time.Date(2026, 11, 1, 1, 50, 0, 0, york), missedDay, "2026-11-01T05:45:00Z"},
	} {
		tick, due := lastTick(cronOf(t, c.times), c.now, c.ago)
		got := ""
		if due {
			got = tick.Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%q at %s: %q, want %q", c.times, c.now, got, c.want)
		}
	}
}

// Without a session a run waits for one, fails nothing, and is then the one that
// is due: what was due before has been superseded.
func TestScheduleAwaitsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		var done []string
		joined := time.Now().Add(90 * time.Minute)
		s := &scheduler{now: time.Now, metrics: newWorkMetrics(), log: slog.New(slog.NewTextHandler(&logged, nil)),
			once: func(ctx context.Context, _, input string, do func(context.Context) (string, error)) (bool, error) {
				if time.Now().Before(joined) {
					return false, errNoSession
				}
				done = append(done, input)
				_, err := do(ctx)
				return true, err
			}}
		want := joined.UTC().Truncate(time.Hour).Format(time.RFC3339)
		s.look(t.Context(), &job{name: "hourly", times: cronOf(t, "0 * * * *"), missed: 2 * time.Hour,
			input: func(tick time.Time) string { return tick.Format(time.RFC3339) },
			do:    func(context.Context, time.Time) (string, error) { return "", nil }})
		if !slices.Equal(done, []string{want}) {
			t.Errorf("done %v, want %s", done, want)
		}
		if strings.Contains(logged.String(), "ERROR") || strings.Count(logged.String(), "\n") != 1 {
			t.Errorf("logged:\n%s", logged.String())
		}
	})
}

// Two instances with one book run each input once, a third makes up for the run
// that nobody was there for, and a job that fails or panics is tried again and
// stops no other.
func TestScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The bubble's clock begins at midnight of 2000-01-01.
		var mu sync.Mutex
		var ran []string
		note := func(name string) func(context.Context, time.Time) (string, error) {
			return func(_ context.Context, tick time.Time) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, name+" "+tick.Format("01-02T15:04"))
				return "", nil
			}
		}
		fails := 0
		jobs := func() []*job {
			return []*job{
				{name: "daily", times: cronOf(t, "30 4 * * *"), missed: missedDay, input: minuteOf, do: note("daily")},
				{name: "weekly", times: cronOf(t, "0 0 * * 0"), missed: missedDay, input: minuteOf, do: note("weekly")},
				{name: "flaky", times: cronOf(t, "0 12 * * *"), missed: missedDay, input: minuteOf, do: func(ctx context.Context, tick time.Time) (string, error) {
					mu.Lock()
					fails++
					n := fails
					mu.Unlock()
					switch n {
					case 1:
						return "", errors.New("not today")
					case 2:
						panic("out of order")
					}
					return note("flaky")(ctx, tick)
				}},
			}
		}
		book := &runBook{}
		start := func() (metrics *workMetrics, stop func()) {
			ctx, cancel := context.WithCancel(context.Background())
			metrics = newWorkMetrics()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				(&scheduler{once: book.once, now: time.Now, metrics: metrics, log: silent}).run(ctx, jobs())
			}()
			return metrics, func() { cancel(); <-ended }
		}
		take := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := ran
			ran = nil
			slices.Sort(out)
			return out
		}
		expect := func(want ...string) {
			t.Helper()
			if got := take(); !slices.Equal(got, want) {
				t.Errorf("at %s ran %v, want %v", time.Now().UTC().Format(time.RFC3339), got, want)
			}
		}
		pass := func(d time.Duration) { // the bubble's time
			if err := sleep(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		_, stop1 := start()
		_, stop2 := start()
		pass(time.Second)
		// The runs of the day before were missed: nobody was there.
		expect("daily 12-31T04:30")
		pass(2 * lookEveryJob)
		expect("flaky 12-31T12:00")
		pass(48 * time.Hour)
		expect("daily 01-01T04:30", "daily 01-02T04:30", "flaky 01-01T12:00", "flaky 01-02T12:00", "weekly 01-02T00:00")
		stop1()
		stop2()
		// Nobody is there for three days: the last of each is made up for, no more.
		pass(72 * time.Hour)
		expect()
		_, stop3 := start()
		pass(time.Second)
		expect("daily 01-05T04:30", "flaky 01-05T12:00")
		// A restart does nothing twice.
		stop3()
		_, stop4 := start()
		pass(time.Hour)
		expect()
		stop4()
	})
}

// Every time of a schedule has a run of its own. Of those that nobody was there for, the
// last is made up for.
func TestScheduleOfMinutes(t *testing.T) {
	h, _ := apptest.Open(t, t.TempDir())
	defer apptest.Close(t, h)
	cfg := &config.Config{Schedules: config.Schedules{Plan: "*/4 * * * *", Snapshot: "*/4 * * * *", CloseReminder: "*/4 * * * *"}}
	jobs, err := jobs(h, cfg, silent)
	if err != nil || len(jobs) != 3 {
		t.Fatalf("%d jobs: %v", len(jobs), err)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, j := range jobs {
			var ran []string
			j.do = func(_ context.Context, tick time.Time) (string, error) {
				ran = append(ran, tick.Format("15:04"))
				return "", nil
			}
			book := &runBook{}
			s := &scheduler{once: book.once, now: time.Now, metrics: newWorkMetrics(), log: silent}
			for minute := range 90 {
				if minute < 15 || minute >= 46 { // nobody is there for half an hour
					s.look(t.Context(), j)
				}
				if err := sleep(t.Context(), time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			// The first is the last of the day before or the present one.
			if want := 4 + 1 + 11; len(ran) != want {
				t.Errorf("%s ran %d times in an hour of presence, want %d: %v", j.name, len(ran), want, ran)
			}
		}
	})
}

// plansAt is when plannedHome knows four weeks of demand.
var plansAt = apptest.May + 28*domain.Day

// A plan that was appended and not noted, because the process died between the
// two, is appended again and counts once; one that the rows know is not computed
// again.
func TestPlanOnce(t *testing.T) {
	h, _ := apptest.Open(t, apptest.PlannedDir(t))
	defer apptest.Close(t, h)
	ctx := t.Context()
	book := &runBook{crashing: true}
	const source = "quartermaster/schedule/plan"
	run := func(at domain.Instant) (outcome string, ran bool, err error) {
		ran, err = book.once(ctx, "plan", "2026-05-29", func(ctx context.Context) (string, error) {
			outcome, err = h.PlanOnce(ctx, source, plansAt, at)
			return outcome, err
		})
		return outcome, ran, err
	}
	first, _, err := run(plansAt)
	if !errors.Is(err, errCrashed) || !strings.HasPrefix(first, "plan-") {
		t.Fatalf("%q, %v", first, err)
	}
	// The rows do not know it yet, and what is asked has changed: a different plan.
	second, ran, err := run(plansAt + domain.Hour)
	if err != nil || !ran || second == first {
		t.Fatalf("the second run: %q, ran %t, %v", second, ran, err)
	}
	if _, ran, err := run(plansAt); ran || err != nil {
		t.Errorf("it was done and ran again: %v", err)
	}
	before := h.Runner.Progress()
	if err := h.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if p := h.Runner.Progress(); p.Repeats-before.Repeats != 1 || p.Folded-before.Folded != 1 {
		t.Errorf("%d folded and %d repeats, want one of each", p.Folded-before.Folded, p.Repeats-before.Repeats)
	}
	plans, err := h.Plans(ctx)
	if err != nil || len(plans) != 1 || plans[0].Plan != first {
		t.Errorf("plans are %v, want %s alone: %v", plans, first, err)
	}
	if outcome, err := h.PlanOnce(ctx, source, plansAt, plansAt); err != nil || outcome != "a plan was recorded before" {
		t.Errorf("with rows that know it: %q, %v", outcome, err)
	}
	if outcome, err := h.PlanOnce(ctx, source, plansAt+domain.Day, plansAt); err != nil || outcome != first+" was recorded before" {
		t.Errorf("the same plan on another day: %q, %v", outcome, err)
	}
	if outcome, err := h.PlanOnce(ctx, source, plansAt+domain.Day, apptest.May-400*domain.Day); err != nil || !strings.HasPrefix(outcome, "nothing to plan") {
		t.Errorf("before there was any demand: %q, %v", outcome, err)
	}
}

// A burst of decisions makes one plan, when its hour is over, and decisions that
// do not bear on plans make none. No decision is taken for handled before a plan
// knows it.
func TestReplan(t *testing.T) {
	h, _ := apptest.Open(t, apptest.PlannedDir(t))
	defer apptest.Close(t, h)
	clock := plansAt + 20*domain.Instant(time.Minute)
	book := &runBook{}
	folds := 0
	instance := func() *replanner {
		return &replanner{conn: h, once: book.once, now: func() domain.Instant { return clock }, wait: func(ctx context.Context, d time.Duration) error {
			if d != foldedEvery {
				t.Errorf("waited %s within an attempt", d)
			}
			folds++ // which another goroutine does meanwhile
			return h.CatchUp(ctx)
		}}
	}
	r, other := instance(), instance()
	tp := domain.TopicPartition{Topic: domain.TopicWorkspaces, Partition: domain.PartitionOf([]byte(app.Platform), domain.TopicWorkspaces.Partitions())}
	// decided appends a decision by a clock that says at.
	decided := func(at domain.Instant) *domain.Record {
		t.Helper()
		apptest.AppendEvents(t, h.Log, domain.Envelope{Time: apptest.May, Workspace: app.Platform, Event: &domain.RegionDefined{Region: "eu", Country: "NL"}})
		end, err := h.End(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return &domain.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: end[tp] - 1, Time: at}
	}
	ran := func(want ...string) {
		t.Helper()
		if have := slices.Sorted(maps.Keys(book.state)); !slices.Equal(have, want) {
			t.Errorf("ran %q, want %q", have, want)
		}
	}
	// do returns how long is to be waited before the event is looked at again.
	do := func(r *replanner, rec *domain.Record, ev domain.Event) time.Duration {
		t.Helper()
		err := r.do(t.Context(), rec, &domain.Envelope{Event: ev})
		var early *earlyError
		if errors.As(err, &early) {
			return early.wait
		}
		if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	if wait := do(r, decided(clock), &domain.PolicySet{Kind: domain.PolicyIdleCost}); wait != 0 {
		t.Error("a policy of accounting makes a plan")
	}
	burst := []*domain.Record{decided(clock), decided(clock + domain.Second), decided(clock + domain.Second)}
	// A producer's clock that runs ahead makes nobody wait for longer than an hour.
	for _, rec := range append(burst, decided(clock+domain.Day)) {
		if wait := do(r, rec, &domain.CommitmentPurchased{}); wait != 40*time.Minute {
			t.Errorf("waits %s, want 40 minutes", wait)
		}
	}
	ran()
	clock += 40 * domain.Instant(time.Minute)
	for i, ev := range []domain.Event{&domain.CommitmentPurchased{}, &domain.OnDemandQuotaSet{}, &domain.PolicySet{Kind: domain.PolicyResidency}} {
		if wait := do(r, burst[i], ev); wait != 0 {
			t.Errorf("the burst waits %s", wait)
		}
	}
	if folds == 0 {
		t.Error("it planned without knowing what had been decided")
	}
	ran("replan 2026-05-29T00Z")

	// The same decisions, given to another instance, are in a plan.
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, rec := range burst {
		if wait := do(other, rec, &domain.CommitmentPurchased{}); wait != 0 {
			t.Errorf("another instance waits %s", wait)
		}
	}
	// What comes after the run of its hour, or by a slow clock, is not lost.
	late, slow := decided(clock-domain.Second), decided(clock-5*domain.Hour)
	for _, rec := range []*domain.Record{late, slow} {
		for _, r := range []*replanner{r, other} {
			if wait := do(r, rec, &domain.CommitmentEnded{}); wait != time.Hour {
				t.Errorf("what came late waits %s, want an hour", wait)
			}
		}
	}
	clock += domain.Hour
	for _, rec := range []*domain.Record{late, slow} {
		if wait := do(r, rec, &domain.CommitmentEnded{}); wait != 0 {
			t.Errorf("what came late waits %s once more", wait)
		}
	}
	ran("replan 2026-05-29T00Z", "replan 2026-05-29T01Z")
	if at := r.planned; len(at) != 1 || at[0][tp] <= slow.Offset {
		t.Errorf("what came late is in no plan: %v", at)
	}

	// A run that failed here is not taken for one that was done elsewhere.
	rec := decided(clock)
	clock += domain.Hour
	asked := 0
	r.once = func(context.Context, string, string, func(context.Context) (string, error)) (bool, error) {
		if asked++; asked == 1 {
			return true, errors.New("no database")
		}
		return false, nil // it rests
	}
	due := func() error { return r.do(t.Context(), rec, &domain.Envelope{Event: &domain.CommitmentEnded{}}) }
	if err := due(); err == nil {
		t.Error("a run that failed is taken for done")
	}
	var early *earlyError
	if err := due(); err == nil || errors.As(err, &early) {
		t.Errorf("a run that rests is taken for done, or for another's: %v", err)
	}
	r.once = book.once
	if err := due(); err != nil {
		t.Error(err)
	}
}

// A checkpoint says what the rows were, under a key that anybody can check, once.
func TestCheckpoint(t *testing.T) {
	dir := apptest.FilledDir(t)
	h, _ := apptest.Open(t, dir)
	defer apptest.Close(t, h)
	key, err := keyfile.Create(filepath.Join(t.TempDir(), "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	sum, at, err := h.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second without knowing of the first
		if _, err := h.Checkpoint(t.Context(), key, apptest.May, app.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if outcome, err := h.Checkpoint(t.Context(), key, apptest.May, app.Now()); err != nil || outcome != "a checkpoint was signed before" {
		t.Errorf("a third: %q, %v", outcome, err)
	}
	var found []*domain.CheckpointSigned
	if err := h.View(t.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableCheckpoints}, func(_ projections.Key, row projections.Row) error {
			for _, version := range row.(*projections.History).Versions {
				found = append(found, version.Event.(*domain.CheckpointSigned))
			}
			return nil
		})
	}); err != nil || len(found) != 1 {
		t.Fatalf("%d checkpoints, want 1: %v", len(found), err)
	}
	verifier, err := merkle.Verifier(merkle.Origin(h.ID), key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := merkle.OpenNote(found[0].Note, verifier)
	if err != nil || signed.Size != 1 || found[0].Position != at.String() {
		t.Fatalf("%+v at %s: %v", signed, found[0].Position, err)
	}
	heads, err := filepath.Glob(filepath.Join(dir, "archive", "*", "heads", "*.txt"))
	if err != nil || len(heads) != 1 {
		t.Fatal(heads, err)
	}
	text, err := os.ReadFile(heads[0])
	if err != nil {
		t.Fatal(err)
	}
	head, err := merkle.ParseHead(text)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := head.Tree()
	if err != nil || tree.Root() != signed.Root {
		t.Fatalf("the checkpoint is of another head: %v", err)
	}
	if want := (merkle.Rows{Method: projections.Method, SHA256: sum, Position: at.String()}); head.Rows == nil || *head.Rows != want {
		t.Errorf("the head says %v, want %v", head.Rows, want)
	}
	altered := bytes.Replace(found[0].Note, []byte("\n1\n"), []byte("\n2\n"), 1)
	if _, err := merkle.OpenNote(altered, verifier); err == nil {
		t.Error("an altered note verifies")
	}
}

// A reminder is told for every ledger entity whose month nobody closed with
// effect, to the log and to each webhook that asked, and nothing is appended.
func TestCloseReminder(t *testing.T) {
	dir := apptest.FilledDir(t)
	h, _ := apptest.Open(t, dir)
	defer apptest.Close(t, h)
	url, got := receiver(t, func(told) int { return http.StatusOK })
	logged := &apptest.SyncBuffer{}
	tick := time.Date(2026, 6, 3, 8, 0, 0, 0, time.UTC)
	remind := func() (outcomes []string) {
		t.Helper()
		jobs, err := jobs(h, &config.Config{
			Schedules: config.Schedules{CloseReminder: "0 8 1-5 * *"},
			Webhooks: []config.Webhook{{Name: "all", URL: url}, {Name: "faults", URL: url, Types: []string{"GPUFaultObserved"}},
				{Name: "reminders", URL: url, Types: []string{reminderType}}},
		}, slog.New(slog.NewTextHandler(logged, nil)))
		if err != nil || len(jobs) != 3 {
			t.Fatalf("%d jobs, want 3: %v", len(jobs), err)
		}
		for _, j := range jobs {
			if input := j.input(tick); input != "2026-05 at 2026-06-03T08:00Z" {
				t.Errorf("%s has input %q", j.name, input)
			}
			outcome, err := j.do(t.Context(), tick)
			if err != nil {
				t.Fatal(err)
			}
			outcomes = append(outcomes, outcome)
		}
		return outcomes
	}
	month := domain.Interval{From: apptest.May, To: apptest.May + 31*domain.Day}
	usage := domain.Interval{From: apptest.May - 61*domain.Day, To: apptest.May - 30*domain.Day}
	same := func(want string) {
		t.Helper()
		if o := remind(); o[0] != want || o[1] != want || o[2] != want {
			t.Errorf("%q, want %q thrice", o, want)
		}
	}
	same("nothing to close") // there is neither a bill nor an entity
	key, err := keyfile.Load(filepath.Join(dir, "operator.pem"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := keyfile.Create(filepath.Join(t.TempDir(), "second.pem"))
	if err != nil {
		t.Fatal(err)
	}
	decide := func(operator string, key ed25519.PrivateKey, env domain.Envelope) {
		t.Helper()
		env.Time = app.Now()
		if err := wire.Sign(&env, operator, key); err != nil {
			t.Fatal(err)
		}
		apptest.AppendEvents(t, h.Log, env)
	}
	decide(app.Me(), key, domain.Envelope{Workspace: app.Platform, Event: &domain.OperatorRegistered{
		Operator: "second", PublicKey: second.Public().(ed25519.PublicKey), Role: domain.RoleFinance,
	}})
	// closed closes books, proposed by the first operator and approved and closed by another.
	closed := func(entity string, period domain.Interval, other string, key2 ed25519.PrivateKey) {
		t.Helper()
		end, err := h.End(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		digest := make([]byte, 32)
		offset := end[domain.TopicPartition{
			Topic: domain.TopicBooks, Partition: domain.PartitionOf([]byte(entity), domain.TopicBooks.Partitions()),
		}]
		decide(app.Me(), key, domain.Envelope{Subject: entity, Event: &domain.ClosePrepared{
			Entity: entity, Period: period, Position: "0", Method: "m", Digest: digest,
		}})
		decide(other, key2, domain.Envelope{Subject: entity, Event: &domain.CloseApproved{
			Entity: entity, Period: period, Digest: digest, Prepared: offset,
		}})
		decide(other, key2, domain.Envelope{Subject: entity, Event: &domain.BooksClosed{
			Entity: entity, Period: period, Position: "0", Method: "m", Digest: digest, Prepared: offset,
		}})
	}
	stranger, err := keyfile.Create(filepath.Join(t.TempDir(), "stranger.pem"))
	if err != nil {
		t.Fatal(err)
	}
	closed("gmbh", month, "second", second)
	closed("inc", usage, "second", second)
	closed("inc", month, "stranger", stranger)
	if err := h.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	end, err := h.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same("open: inc")
	if after, err := h.End(t.Context()); err != nil || after.String() != end.String() {
		t.Errorf("reminding appended to the log: %v", err)
	}
	for range 2 {
		e := <-got
		var body struct {
			SpecVersion string `json:"specversion"`
			Subject     string `json:"subject"`
			Data        struct {
				Entity string          `json:"entity"`
				Period domain.Interval `json:"period"`
			} `json:"data"`
		}
		if err := json.Unmarshal(e.body, &body); err != nil {
			t.Fatal(err)
		}
		if e.Type != reminderType || e.ID != "inc/2026-05/2026-06-03T08:00Z" || body.SpecVersion != "1.0" || body.Data.Entity != "inc" || body.Data.Period != month || e.header.Get("Idempotency-Key") == "" {
			t.Errorf("told of %s", e.body)
		}
	}
	if n := strings.Count(logged.String(), "entity=inc period=2026-05"); n != 1 {
		t.Errorf("logged %d reminders, want 1:\n%s", n, logged)
	}
	if len(got) != 0 {
		t.Errorf("%d webhooks too many were told", len(got))
	}
}

// A scheduled snapshot stays, and holds what the rows were.
func TestScheduledSnapshot(t *testing.T) {
	h, _ := apptest.Open(t, apptest.FilledDir(t))
	defer apptest.Close(t, h)
	sum, at, err := h.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := h.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path, digest, _ := strings.Cut(outcome, ", digest ")
	if digest != fmt.Sprintf("%x", sum) || !strings.HasSuffix(path, snapshotfile.Suffix) {
		t.Errorf("outcome %q, want digest %x", outcome, sum)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.Fatal(err)
	}
	fresh := projections.NewMemory(domain.TopicSpecs())
	if got, err := fresh.ReadSnapshot(f, size, h.ID); err != nil || got.String() != at.String() {
		t.Errorf("the snapshot is of %s, want %s: %v", got, at, err)
	}
}

// What the configuration gets wrong is said at once, all of it.
func TestScheduleConfig(t *testing.T) {
	h := &app.Conn{}
	_, err := jobs(h, &config.Config{Schedules: config.Schedules{Plan: "4 30 * * *", Snapshot: "@every 1h", CloseReminder: "TZ=CET 0 8 1 * *", Checkpoint: "0 * * * *", CheckpointKeyFile: "nowhere.pem"}}, silent)
	for _, want := range []string{"schedule plan: ", "schedule snapshot: ", "schedule close_reminder: ", "nowhere.pem"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: lacks %q", err, want)
		}
	}
	if jobs, err := jobs(h, &config.Config{}, silent); err != nil || len(jobs) != 0 {
		t.Errorf("nothing is scheduled, and there are %d jobs: %v", len(jobs), err)
	}
}

// What can be sealed is archived on schedule, with a signed checkpoint where there is a key.
func TestArchiveOnSchedule(t *testing.T) {
	dir := apptest.FilledDir(t)
	h, _ := apptest.Open(t, dir)
	defer apptest.Close(t, h)
	jobs, err := jobs(h, &config.Config{
		Schedules: config.Schedules{Archive: "20 * * * *", CheckpointKeyFile: filepath.Join(dir, "operator.pem")},
	}, slog.New(slog.DiscardHandler))
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%d jobs, want 1: %v", len(jobs), err)
	}
	outcome, err := jobs[0].do(t.Context(), time.Date(2026, 6, 3, 8, 20, 0, 0, time.UTC))
	if err != nil || !regexp.MustCompile(`^[1-9]\d* segments with [1-9]\d* records were archived`).MatchString(outcome) {
		t.Fatalf("%q: %v", outcome, err)
	}
	notes, err := filepath.Glob(filepath.Join(dir, "archive", "*", "checkpoints", "*.note"))
	if err != nil || len(notes) != 1 {
		t.Fatal(notes, err)
	}
}
