package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lib/pq"

	"quartermaster/projections"
)

// Bounds on the tries of a run. A failure is an error of the job. An attempt also counts if the
// process died, so that a job that kills its process is not tried for ever.
const (
	maxFailures = 5
	maxAttempts = 20
)

// A failed run is tried again after firstRetry. The pause doubles each time, up to lastRetry.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// Run is one run of a job for an input.
type Run struct {
	Job, Input string
	State      RunState
	Instance   string // runs it or has finished it; "" if none does
	Attempts   int
	Failures   int
	Started    time.Time // of the latest attempt
	NextTry    time.Time // zero unless waiting
	Finished   time.Time // zero if not finished
	Outcome    string
	Error      string // of the latest failure
}

// RunState is the state of a run.
type RunState string

// The states of a run.
const (
	RunRunning  RunState = "running"
	RunFinished RunState = "finished"
	RunWaiting  RunState = "waiting"  // failed or interrupted, and will be tried again
	RunOrphaned RunState = "orphaned" // its process died; the next process that asks takes it over
	RunGivenUp  RunState = "given up"
)

// Once does a job for an input, unless it is done already. At most one run for a job and input ever
// finishes, whichever process runs it. If several ask at once, one does it. The run is recorded
// before it begins.
//
// If the process of a run dies before it finishes, the next one that asks takes the run over. do
// may thus find its own work half done. A failed run may be tried again after a pause of a minute,
// which doubles up to an hour, and at most five times. ran says whether do was called. err is do's
// error, or the reason why the run could not be looked up or recorded. do's context ends with the
// session.
func (s *Session) Once(
	ctx context.Context,
	job, input string,
	do func(context.Context) (outcome string, err error),
) (ran bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	var attempt int
	err = s.db.QueryRowContext(ctx, `
		insert into quartermaster.runs as r (job, input, owner)
		select $1, $2, token from quartermaster.sessions s where token = $3 and `+aliveNow+`
		on conflict (job, input) do update
		set owner = excluded.owner, attempts = r.attempts + 1, started = now(), next_try = null
		where r.finished is null and r.failures < $4 and r.attempts < $5 and case
			when r.owner is null then coalesce(r.next_try, now()) <= now()
			else not exists (select from quartermaster.sessions s where s.token = r.owner and `+aliveNow+`) end
		returning attempts`, job, input, s.token, maxFailures, maxAttempts).Scan(&attempt)
	if errors.Is(err, sql.ErrNoRows) {
		return false, context.Cause(s.ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, fmt.Errorf("run %s for %s: %w", job, input, err)
	}
	if attempt > 1 {
		s.log.Info("running a job again", "job", job, "input", input, "attempt", attempt)
	}
	outcome, err := do(ctx)
	left := err != nil && ctx.Err() != nil // it was told to stop
	if rerr := s.record(ctx, job, input, attempt, outcome, err, left); rerr != nil {
		rerr = fmt.Errorf("record the run of %s for %s: %w", job, input, rerr)
		return true, errors.Join(err, rerr)
	}
	if err != nil {
		return true, fmt.Errorf("run %s for %s: %w", job, input, err)
	}
	s.forget(ctx, job)
	return true, nil
}

// remembered is how long a finished run is known. Nobody asks for one as old: schedules look back a month at most.
const remembered = "100 days"

// forget removes old runs of a job, some at a time. A failure does not matter: the next run removes them.
func (s *Session) forget(ctx context.Context, job string) {
	if _, err := s.db.ExecContext(ctx, `
		delete from quartermaster.runs where ctid in (
			select ctid from quartermaster.runs where job = $1 and finished < now() - interval '`+remembered+`' limit 1000)`, job); err != nil {
		s.log.Warn("old runs of a job were not removed", "job", job, "error", err)
	}
}

// maxNote bounds the stored text of an outcome or an error, in bytes.
const maxNote = 64 << 10

// noteText makes the text of a job valid for a column.
func noteText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, replacementPrefix), "\x00", replacementPrefix)
	if len(s) <= maxNote {
		return s
	}
	return strings.ToValidUTF8(s[:maxNote], "") + fmt.Sprintf(" … (%d bytes)", len(s))
}

// record stores how an attempt ended. It keeps trying while the session lives, even when the caller
// is told to stop, because a run that finished should not be done again.
func (s *Session) record(
	ctx context.Context,
	job, input string,
	attempt int,
	outcome string,
	failure error,
	left bool,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.cfg.Lease)
	defer cancel()
	note := noteText(outcome)
	if failure != nil {
		note = noteText(failure.Error())
	}
	write := func() error {
		args := []any{job, input, s.token, attempt}
		var set string
		switch {
		case left:
			set = `owner = null, next_try = now()`
		case failure != nil:
			set = `owner = null, failures = failures + 1, error = $5,
				next_try = now() + least($6 * 2.0 ^ failures, $7) * interval '1 second'`
			args = append(args, note, firstRetry.Seconds(), lastRetry.Seconds())
		default:
			set = `finished = now(), outcome = $5, error = ''`
			args = append(args, note)
		}
		res, err := s.db.ExecContext(ctx, `
			update quartermaster.runs set `+set+`
			where job = $1 and input = $2 and owner = $3 and attempts = $4 and finished is null`, args...)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		// A process that takes the run over increments attempts. If attempts is unchanged, the
		// result was stored by an earlier try whose answer was lost.
		var stored bool
		err = s.db.QueryRowContext(ctx, `
			select exists (select from quartermaster.runs
			where job = $1 and input = $2 and attempts = $4 and (owner is null or owner = $3 and finished is not null))`,
			job, input, s.token, attempt).Scan(&stored)
		if err == nil && !stored {
			err = fmt.Errorf("another process took it over: %w", projections.ErrFenced)
		}
		return err
	}
	for {
		err := write()
		if err == nil || errors.Is(err, projections.ErrFenced) {
			return err
		}
		const unfit = "what the job said cannot be stored in this database; it is in the log of the process that ran it"
		if e, ok := errors.AsType[*pq.Error](err); ok && e.Code.Class() == "22" && note != unfit {
			s.log.Warn("what a job said cannot be stored", "job", job, "input", input, "said", note, "error", err)
			note = unfit
			continue
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.ctx.Done():
			return errors.Join(err, context.Cause(s.ctx))
		case <-time.After(s.cfg.Lease / heartbeatsPerLease):
		}
	}
}

// Runs returns the latest runs, the newest first.
func (db *DB) Runs(ctx context.Context, limit int) ([]Run, error) {
	rows, err := db.QueryContext(ctx, `
		select r.job, r.input, coalesce(s.instance, substring(r.owner from ' (.*)$'), ''), `+aliveNow+`, r.owner is not null,
			r.attempts, r.failures, r.started, r.next_try, r.finished, r.outcome, r.error
		from quartermaster.runs r left join quartermaster.sessions s on s.token = r.owner
		order by r.started desc, r.job, r.input limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	out, err := collect(rows, func(rows *sql.Rows, r *Run) error {
		var alive sql.NullBool
		var owned bool
		var next, finished sql.NullTime
		err := rows.Scan(&r.Job, &r.Input, &r.Instance, &alive, &owned,
			&r.Attempts, &r.Failures, &r.Started, &next, &finished, &r.Outcome, &r.Error)
		if err != nil {
			return err
		}
		r.Started, r.NextTry, r.Finished = r.Started.UTC(), next.Time.UTC(), finished.Time.UTC()
		switch {
		case finished.Valid:
			r.State = RunFinished
		case owned && alive.Bool:
			r.State = RunRunning
		case r.Failures >= maxFailures || r.Attempts >= maxAttempts:
			r.State = RunGivenUp
		case owned:
			r.State = RunOrphaned
		default:
			r.State = RunWaiting
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return out, nil
}
