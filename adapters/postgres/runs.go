package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"quartermaster/projections"
)

// How often a run is tried. A failure is the job's own; an attempt is also one
// whose process died, so that a job which kills its process ends some time.
const (
	maxFailures = 5
	maxAttempts = 20
)

// A failed run is tried again after this pause, twice as long each time.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

// Run is one run of a job for an input.
type Run struct {
	Job, Input string
	State      RunState
	Instance   string // that runs it; "" when it is not known any more
	Attempts   int
	Failures   int
	Started    time.Time // the latest attempt
	NextTry    time.Time // zero unless it waits
	Finished   time.Time // zero until then
	Outcome    string
	Error      string // of the latest failure
}

// RunState says how a run stands.
type RunState string

// The states of a run.
const (
	RunRunning  RunState = "running"
	RunFinished RunState = "finished"
	RunWaiting  RunState = "waiting"  // failed or was left, and will be tried again
	RunOrphaned RunState = "orphaned" // its process died; the next one that asks takes it over
	RunGivenUp  RunState = "given up"
)

// Once does a job for an input unless that was done already, by whomever: at
// most one run for the two ever finishes. Of several that ask at once, one
// does it. That it is done is recorded before it begins.
//
// A run whose process died before it finished is taken over by the next that
// asks; do may thus find its own work half done. A run that failed may be asked
// for again, after a pause of a minute, doubling up to an hour, and five times at
// most. ran says whether do was called; err is its error, or why that could not
// be found out or recorded. do's context ends with the session.
func (s *Session) Once(ctx context.Context, job, input string, do func(context.Context) (outcome string, err error)) (ran bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	var attempt int
	err = s.db.QueryRowContext(ctx, `
		insert into quartermaster.runs as r (job, input, owner)
		select $1, $2, token from quartermaster.sessions where token = $3 and alive_until > now()
		on conflict (job, input) do update
		set owner = excluded.owner, attempts = r.attempts + 1, started = now(), next_try = null
		where r.finished is null and r.failures < $4 and r.attempts < $5 and case
			when r.owner is null then coalesce(r.next_try, now()) <= now()
			else not exists (select from quartermaster.sessions a where a.token = r.owner and a.alive_until > now()) end
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
	if rerr := s.record(ctx, job, input, outcome, err, left); rerr != nil {
		rerr = fmt.Errorf("record the run of %s for %s: %w", job, input, rerr)
		return true, errors.Join(err, rerr)
	}
	if err != nil {
		return true, fmt.Errorf("run %s for %s: %w", job, input, err)
	}
	return true, nil
}

// record notes how a run ended. It keeps trying while the session lives, even
// when the caller is to stop: a run that finished should not be done again.
func (s *Session) record(ctx context.Context, job, input, outcome string, failure error, left bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.cfg.Lease)
	defer cancel()
	query, args := `
		update quartermaster.runs set finished = now(), outcome = $4, error = ''
		where job = $1 and input = $2 and owner = $3 and finished is null`, []any{job, input, s.token, outcome}
	switch {
	case left:
		query, args = `
			update quartermaster.runs set owner = null, next_try = now()
			where job = $1 and input = $2 and owner = $3 and finished is null`, []any{job, input, s.token}
	case failure != nil:
		query, args = `
			update quartermaster.runs set owner = null, failures = failures + 1, error = $4,
				next_try = now() + least($5 * 2.0 ^ failures, $6) * interval '1 second'
			where job = $1 and input = $2 and owner = $3 and finished is null`,
			[]any{job, input, s.token, failure.Error(), firstRetry.Seconds(), lastRetry.Seconds()}
	}
	for {
		res, err := s.db.ExecContext(ctx, query, args...)
		if err == nil {
			n, err := res.RowsAffected()
			if err == nil && n == 0 {
				return fmt.Errorf("another process took it over: %w", projections.ErrFenced)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.ctx.Done():
			return errors.Join(err, context.Cause(s.ctx))
		case <-time.After(s.cfg.Lease / beats):
		}
	}
}

// Runs returns the latest runs, the newest first.
func (db *DB) Runs(ctx context.Context, limit int) ([]Run, error) {
	rows, err := db.QueryContext(ctx, `
		select r.job, r.input, coalesce(s.instance, ''), s.alive_until > now(), r.owner is not null,
			r.attempts, r.failures, r.started, r.next_try, r.finished, r.outcome, r.error
		from quartermaster.runs r left join quartermaster.sessions s on s.token = r.owner
		order by r.started desc, r.job, r.input limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Run
	for rows.Next() {
		var r Run
		var alive sql.NullBool
		var owned bool
		var next, finished sql.NullTime
		if err := rows.Scan(&r.Job, &r.Input, &r.Instance, &alive, &owned, &r.Attempts, &r.Failures, &r.Started, &next, &finished, &r.Outcome, &r.Error); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
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
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return out, nil
}
