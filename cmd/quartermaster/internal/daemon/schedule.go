package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"

	"github.com/robfig/cron/v3"
)

// onceFunc does work once for an input, however many instances ask and however
// often. It is how scheduled work and the plans that decisions ask for run in
// one place.
//
// ran tells whether do was called here. It is false, without an error, when the
// work was finished before, when a living instance is at it, and when it failed
// and is to rest before the next attempt; whoever must know that it is finished
// asks again. What do returns is recorded: an outcome is final, an error is tried
// again by whoever asks after the rest. An instance that dies leaves the work to
// whoever asks next: do MUST bear to be called again after it did everything but
// return.
type onceFunc func(ctx context.Context, job, input string, do func(context.Context) (outcome string, err error)) (ran bool, err error)

// lookEveryJob is how often the scheduler looks for work that was due and is not
// finished: what failed, and what another instance left when it died.
const lookEveryJob = time.Minute

// sessionPause is how often the scheduler looks whether this instance has a
// session, without which no work is begun: at a start it has none for a moment.
const sessionPause = 100 * time.Millisecond

// How long after its time work is still done, when no instance was there to do
// it: daily work until the next is near, a month's reminder until the month is
// over. What is older is left out; the next run makes up for it.
const (
	missedDay   = 25 * time.Hour
	missedMonth = 32 * 24 * time.Hour
)

// job is work that is done at certain times.
type job struct {
	name   string
	times  cron.Schedule
	missed time.Duration // how long after its time it is still done
	// input names what a run at a time is for: runs of the same input are one.
	input func(tick time.Time) string
	do    func(ctx context.Context, tick time.Time) (outcome string, err error)

	settled string // the input that this instance finished last
}

// schedule does what the configuration says when it says so, until ctx ends;
// then it waits for what is being done to see that. Of each job it only ever does
// the run that was due last: missed ones are not made up for one by one.
func schedule(ctx context.Context, h *app.Conn, cfg *config.Config, once onceFunc, m *workMetrics, log *slog.Logger) error {
	jobs, err := jobs(h, cfg, log)
	if err != nil {
		return fmt.Errorf("start schedules: %w", err)
	}
	(&scheduler{once: once, now: time.Now, metrics: m, log: log}).run(ctx, jobs)
	return nil
}

type scheduler struct {
	once    onceFunc
	now     func() time.Time
	metrics *workMetrics
	log     *slog.Logger
}

func (s *scheduler) run(ctx context.Context, jobs []*job) {
	c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(cron.DiscardLogger))
	chain := cron.NewChain(cron.SkipIfStillRunning(cron.DiscardLogger))
	var starting sync.WaitGroup
	for _, j := range jobs {
		// One at a time, whatever woke it: a run that is skipped is found by the next look.
		look := chain.Then(cron.FuncJob(func() { s.look(ctx, j) }))
		c.Schedule(j.times, look)
		c.Schedule(cron.Every(lookEveryJob), look)
		starting.Go(look.Run)
		s.log.Info("scheduled", "job", j.name, "next", j.times.Next(s.now()))
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	starting.Wait()
}

// look does the run that was due last, unless it was done. Without a session it
// waits for one, which is no failure, and then does what is due by then.
func (s *scheduler) look(ctx context.Context, j *job) {
	for !s.doLast(ctx, j) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sessionPause):
		}
	}
}

// doLast does the run that was due last, unless it was done. It is false when
// that could not be tried, because this instance has no session yet.
func (s *scheduler) doLast(ctx context.Context, j *job) bool {
	tick, due := lastTick(j.times, s.now(), j.missed)
	if !due || ctx.Err() != nil {
		return true
	}
	input := j.input(tick)
	if input == j.settled {
		return true
	}
	start := s.now()
	outcome := ""
	ran, err := s.once(ctx, j.name, input, func(ctx context.Context) (_ string, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("scheduled work panicked", "job", j.name, "input", input, "panic", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("it panicked: %v", p)
			}
		}()
		outcome, err = j.do(ctx, tick)
		return outcome, err
	})
	switch {
	case err != nil && ctx.Err() != nil: // stopping, and done by whoever goes on
	case errors.Is(err, errNoSession):
		return false
	case err != nil:
		s.metrics.runs.WithLabelValues(j.name, "failed").Inc()
		s.log.Error("scheduled work failed; it is tried again", "job", j.name, "input", input, "error", err)
	case ran:
		j.settled = input
		s.metrics.runs.WithLabelValues(j.name, "done").Inc()
		s.metrics.last.WithLabelValues(j.name).Set(float64(s.now().Unix()))
		s.log.Info("scheduled work is done", "job", j.name, "input", input, "outcome", outcome, "seconds", s.now().Sub(start).Seconds())
	}
	return true
}

// lastTick returns the last time that is not after now and at most so long ago.
func lastTick(times cron.Schedule, now time.Time, ago time.Duration) (tick time.Time, due bool) {
	for t := times.Next(now.Add(-ago)); !t.IsZero() && !t.After(now); t = times.Next(t) {
		tick, due = t.UTC(), true
	}
	return tick, due
}
