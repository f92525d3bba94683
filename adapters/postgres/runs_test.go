package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"quartermaster/projections"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	var runs, told atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		s := join(t, db, fmt.Sprintf("i%d", i))
		wg.Go(func() {
			for _, input := range []string{"2026-05-01", "2026-05-02"} {
				ran, err := s.Once(ctx, "plan", input, func(context.Context) (string, error) {
					runs.Add(1)
					return "plan of " + input, nil
				})
				if err != nil {
					t.Error(err)
				}
				if ran {
					told.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if runs.Load() != 2 || told.Load() != 2 {
		t.Errorf("two runs were done %d times and reported %d times", runs.Load(), told.Load())
	}
	list, err := db.Runs(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 {
		t.Fatalf("%d runs are listed", len(list))
	}
	for _, r := range list {
		if r.State != RunFinished || r.Job != "plan" || r.Outcome != "plan of "+r.Input || r.Attempts != 1 || r.Finished.IsZero() {
			t.Errorf("listed is %+v", r)
		}
	}
	if list, err = db.Runs(ctx, 1); err != nil || len(list) != 1 {
		t.Errorf("asked for one: %v, %v", list, err)
	}
}

// A run is taken over only once its process is dead.
func TestOnceAfterDeath(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	first, second := join(t, db, "first"), join(t, db, "second")
	never := func(context.Context) (string, error) {
		t.Error("it ran twice at once")
		return "", nil
	}
	var firstErr error
	ran, err := first.Once(ctx, "close", "2026-05", func(ctx context.Context) (string, error) {
		if ran, err := second.Once(t.Context(), "close", "2026-05", never); ran || err != nil {
			t.Errorf("while it ran: %t, %v", ran, err)
		}
		list, err := db.Runs(t.Context(), 1)
		if err != nil || list[0].State != RunRunning || list[0].Instance != "first" {
			t.Errorf("while it ran: %+v, %v", list, err)
		}
		// The process dies, and another does the whole job.
		if _, err := db.Exec(`delete from quartermaster.sessions where instance = 'first'`); err != nil {
			t.Error(err)
		}
		<-ctx.Done() // its context ends
		if list, err := db.Runs(t.Context(), 1); err != nil || list[0].State != RunOrphaned {
			t.Errorf("after its death: %+v, %v", list, err)
		}
		ran, err := second.Once(t.Context(), "close", "2026-05", func(context.Context) (string, error) { return "by the second", nil })
		if !ran || err != nil {
			t.Errorf("after its death: %t, %v", ran, err)
		}
		return "by the first", nil // too late
	})
	firstErr = err
	if !ran || !errors.Is(firstErr, projections.ErrFenced) {
		t.Errorf("the dead one ended with %t, %v", ran, firstErr)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := db.Runs(ctx, 1) // the instance's name is kept after its process has left
	if err != nil || list[0].State != RunFinished || list[0].Outcome != "by the second" || list[0].Attempts != 2 || list[0].Instance != "second" {
		t.Errorf("in the end %+v, %v", list, err)
	}
}

func TestOnceFails(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	s := join(t, db, "s")
	broken := errors.New("broken")
	due := func() {
		t.Helper()
		if _, err := db.Exec(`update quartermaster.runs set next_try = now()`); err != nil {
			t.Fatal(err)
		}
	}
	look := func() Run {
		t.Helper()
		list, err := db.Runs(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		return list[0]
	}
	var pauses []float64
	for i := range maxFailures {
		ran, err := s.Once(ctx, "snapshot", "x", func(context.Context) (string, error) { return "", broken })
		if !ran || !errors.Is(err, broken) {
			t.Fatalf("attempt %d: %t, %v", i, ran, err)
		}
		var pause float64
		if err := db.QueryRow(`select round(extract(epoch from next_try - started)) from quartermaster.runs`).Scan(&pause); err != nil {
			t.Fatal(err)
		}
		pauses = append(pauses, pause)
		if r := look(); r.Failures != i+1 || r.Error != "broken" || (i < maxFailures-1) != (r.State == RunWaiting) {
			t.Errorf("after attempt %d: %+v", i, r)
		}
		// A retry before its time is refused.
		if ran, err := s.Once(ctx, "snapshot", "x", nil); ran || err != nil {
			t.Errorf("at once after attempt %d: %t, %v", i, ran, err)
		}
		due()
	}
	if fmt.Sprint(pauses) != "[60 120 240 480 960]" {
		t.Errorf("pauses are %v", pauses)
	}
	if ran, err := s.Once(ctx, "snapshot", "x", nil); ran || err != nil || look().State != RunGivenUp {
		t.Errorf("after the last attempt: %t, %v, %+v", ran, err, look())
	}

	// An interruption is not a failure, and the next process may continue at once.
	stopping, stop := context.WithCancel(ctx)
	ran, err := s.Once(stopping, "snapshot", "y", func(ctx context.Context) (string, error) {
		stop()
		return "", ctx.Err()
	})
	if !ran || !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %t, %v", ran, err)
	}
	ran, err = s.Once(ctx, "snapshot", "y", func(context.Context) (string, error) { return "done", nil })
	if r := look(); !ran || err != nil || r.Failures != 0 || r.Attempts != 2 || r.State != RunFinished {
		t.Errorf("gone on: %t, %v, %+v", ran, err, r)
	}

	// A job that kills every process that runs it is given up eventually.
	for i := range maxAttempts {
		if _, err := db.Exec(`insert into quartermaster.runs (job, input, owner) values ('killer', 'z', 'dead')
			on conflict (job, input) do update set owner = 'dead'`); err != nil {
			t.Fatal(err)
		}
		ran, err := s.Once(ctx, "killer", "z", func(context.Context) (string, error) {
			if _, err := db.Exec(`update quartermaster.runs set owner = 'dead' where job = 'killer'`); err != nil {
				t.Error(err)
			}
			return "", errors.New("dies")
		})
		if want := i < maxAttempts-1; ran != want {
			t.Fatalf("attempt %d: %t, %v", i+2, ran, err)
		}
	}
}

// Any text of a job can be stored, and a run does not stay unfinished because of it.
func TestOnceSaysAnything(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	s := join(t, db, "s")
	long := strings.Repeat("é", maxNote)
	for i, c := range []struct{ said, want string }{
		{"a\x00b", "a\ufffdb"},
		{"a\xffb", "a\ufffdb"},
		{"x" + long, "x" + long[:maxNote-2] + fmt.Sprintf(" … (%d bytes)", len(long)+1)},
	} {
		for _, fails := range []bool{false, true} {
			input := fmt.Sprint(i, fails)
			ran, err := s.Once(ctx, "job", input, func(context.Context) (string, error) {
				if fails {
					return "", errors.New(c.said)
				}
				return c.said, nil
			})
			if !ran || fails != (err != nil) || fails && err.Error() != fmt.Sprintf("run job for %s: %s", input, c.said) {
				t.Errorf("%s: ran %t, %.200v", input, ran, err)
			}
			list, err := db.Runs(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			state, said := RunFinished, list[0].Outcome
			if fails {
				state, said = RunWaiting, list[0].Error
			}
			if list[0].State != state || said != c.want {
				t.Errorf("%s: it is %s, and said %.100q (%d bytes), want %.100q (%d bytes)", input, list[0].State, said, len(said), c.want, len(c.want))
			}
		}
	}

	// A column that accepts no text.
	if _, err := db.Exec(`delete from quartermaster.runs; alter table quartermaster.runs alter outcome type varchar(110)`); err != nil {
		t.Fatal(err)
	}
	if ran, err := s.Once(ctx, "job", "narrow", func(context.Context) (string, error) { return long, nil }); !ran || err != nil {
		t.Errorf("an outcome that cannot be stored: %t, %v", ran, err)
	}
	if list, err := db.Runs(ctx, 1); err != nil || list[0].State != RunFinished || !strings.Contains(list[0].Outcome, "cannot be stored") {
		t.Errorf("an outcome that cannot be stored: %+v, %v", list, err)
	}
}

// The answer to a successful write may be lost. Finding the result stored is not a takeover.
func TestOnceStoredBefore(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	s := join(t, db, "s")
	failed := errors.New("failed")
	for stored, do := range map[string]func() (string, error){
		`finished = now(), outcome = 'done'`:                      func() (string, error) { return "done", nil },
		`owner = null, failures = failures + 1, next_try = now()`: func() (string, error) { return "", failed },
	} {
		ran, err := s.Once(ctx, "job", stored, func(context.Context) (string, error) {
			if _, err := db.Exec(`update quartermaster.runs set `+stored+` where input = $1`, stored); err != nil {
				t.Error(err)
			}
			return do()
		})
		if _, want := do(); !ran || !errors.Is(err, want) || errors.Is(err, projections.ErrFenced) {
			t.Errorf("%s: %t, %v", stored, ran, err)
		}
	}
}

// Runs of long ago are forgotten, so that a job of every five minutes does not fill a table for ever.
func TestOldRunsAreForgotten(t *testing.T) {
	t.Parallel()
	db, _ := migrated(t)
	ctx := t.Context()
	s := join(t, db, "one")
	for _, run := range [][2]string{{"advice", "101 days"}, {"advice", "99 days"}, {"plan", "101 days"}} {
		if _, err := db.ExecContext(ctx, `insert into quartermaster.runs (job, input, started, finished, outcome)
			values ($1, $2, now() - $3::interval, now() - $3::interval, '')`, run[0], run[1], run[1]); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := s.Once(ctx, "advice", "now", func(context.Context) (string, error) { return "", nil }); !ran || err != nil {
		t.Fatal(ran, err)
	}
	list, err := db.Runs(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, r := range list {
		left = append(left, r.Job+" "+r.Input)
	}
	if got := strings.Join(left, ", "); got != "advice now, advice 99 days, plan 101 days" {
		t.Errorf("left are: %s", got)
	}
}
