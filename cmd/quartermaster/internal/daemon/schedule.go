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

// onceFunc does work once for an input, however many instances ask and however often. Scheduled
// jobs and the plans that decisions cause use it to run on one instance.
//
// ran reports whether do was called here. It is false, without an error, when the work was
// finished before, when a living instance is doing it, and when it failed and its pause before
// the next attempt is not over. A caller that must know that it is finished asks again. The
// result of do is recorded: an outcome is final; an error is retried by whoever asks after the
// pause. If an instance dies, the next caller does the work: do MUST tolerate being called again
// after it did everything but return.
type onceFunc func(ctx context.Context, job, input string, do func(context.Context) (outcome string, err error)) (ran bool, err error)

// lookEveryJob is how often the scheduler looks for due work that is unfinished because it
// failed, or because another instance died.
const lookEveryJob = time.Minute

// sessionPause is how often the scheduler checks whether this instance has a session, without
// which no work starts. At startup it has none for a moment.
const sessionPause = 100 * time.Millisecond

// How late work is still done when no instance was there at its time: daily work until shortly
// before the next run, a month's reminder until the month is over. Older runs are skipped; the
// next run makes up for them.
const (
	missedDay   = 25 * time.Hour
	missedMonth = 32 * 24 * time.Hour
)

// job is work that is done on a schedule.
type job struct {
	name   string
	times  cron.Schedule
	missed time.Duration // how late it is still done
	// input identifies the run at a time: runs with the same input are one.
	input func(tick time.Time) string
	do    func(ctx context.Context, tick time.Time) (outcome string, err error)

	settled string // input of the last run that this instance finished
}

// schedule runs the configured jobs until ctx ends, then waits for the running ones to notice.
// For each job it only does the latest due run: missed runs are not made up for one by one.
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
		// One at a time, whatever woke it: the next look finds a skipped run.
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

// look does the latest due run, unless it was done. Without a session it waits for one, which is
// not a failure, and then does what is due by then.
func (s *scheduler) look(ctx context.Context, j *job) {
	for !s.doLast(ctx, j) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sessionPause):
		}
	}
}

// doLast does the latest due run, unless it was done. It returns false when it could not try,
// because this instance has no session yet.
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
	case err != nil && ctx.Err() != nil: // stopping; another instance will do it
	case errors.Is(err, errNoSession):
		return false
	case err != nil:
		s.metrics.runs.WithLabelValues(j.name, "failed").Inc()
		s.log.Error("scheduled work failed; it will be retried", "job", j.name, "input", input, "error", err)
	case ran:
		j.settled = input
		s.metrics.runs.WithLabelValues(j.name, "done").Inc()
		s.metrics.last.WithLabelValues(j.name).Set(float64(s.now().Unix()))
		s.metrics.took.WithLabelValues(j.name).Set(s.now().Sub(start).Seconds())
		s.log.Info("scheduled work is done", "job", j.name, "input", input, "outcome", outcome, "seconds", s.now().Sub(start).Seconds())
	}
	return true
}

// lastTick returns the latest scheduled time that is not after now and at most ago old.
func lastTick(times cron.Schedule, now time.Time, ago time.Duration) (tick time.Time, due bool) {
	for t := times.Next(now.Add(-ago)); !t.IsZero() && !t.After(now); t = times.Next(t) {
		tick, due = t.UTC(), true
	}
	return tick, due
}
