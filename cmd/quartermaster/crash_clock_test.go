package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"quartermaster/domain"
)

// clockSQL gives a database a clock that can be stepped.
const clockSQL = `
	create schema clock;
	create table clock.off (by interval);
	insert into clock.off values ('0');
	create function clock.now() returns timestamptz stable language sql as 'select pg_catalog.now() + (select by from clock.off)';
	create function clock.clock_timestamp() returns timestamptz volatile language sql as
		'select pg_catalog.clock_timestamp() + (select by from clock.off)';
	alter database %s set search_path = clock, pg_catalog, public`

// step steps the database's clock.
func (r *rowsOf) step(ctx context.Context, by time.Duration) error {
	_, err := r.db.ExecContext(ctx, `update clock.off set by = by + $1 * interval '1 microsecond'`, by.Microseconds())
	return err
}

// stepClock steps the database's clock back and forward, as a restored virtual machine
// or a corrected time server does. Each time every partition that grows must be folded
// on soon: nobody who is gone may count as alive.
func (c *campaign) stepClock(ctx context.Context, rows *rowsOf) {
	had := func(r *crashRun) int { return r.ClockBack + r.ClockForward }
	for i := 0; rest(ctx, c.until(c.plan.clock, had, c.plan.ClockSteps)); i++ {
		// From two leases, less than which nobody may notice, to more than half an hour.
		by := crashLease << (1 + c.pick(11))
		if i%2 == 0 {
			by = -by
		}
		for err := rows.step(ctx, by); err != nil; err = rows.step(ctx, by) {
			if !rest(ctx, time.Second) { // the database is down
				return
			}
		}
		began := time.Now()
		before, err := rows.position(ctx, firstGeneration)
		for err != nil && rest(ctx, time.Second) {
			before, err = rows.position(ctx, firstGeneration)
		}
		rest(ctx, 2*crashLease)
		_, end, err := c.log.AllBounds(ctx, domain.AllPartitions())
		if err != nil {
			if ctx.Err() == nil {
				c.t.Error(err)
			}
			return
		}
		for {
			var stand []string
			at, err := rows.position(ctx, firstGeneration)
			for tp := range end {
				if end[tp] > before[tp] && at[tp] <= before[tp] {
					stand = append(stand, tp.String())
				}
			}
			if err == nil && len(stand) == 0 {
				break
			}
			if time.Since(began) > clockPatience {
				c.t.Errorf("%s after the clock stepped by %s these partitions stand still: %v, %v", clockPatience, by, stand, err)
				return
			}
			if !rest(ctx, 100*time.Millisecond) {
				return
			}
		}
		c.say("the database's clock stepped by %s; all partitions that grew were folded on within %.1f s", by, time.Since(began).Seconds())
		c.count(func(r *crashRun) {
			if by < 0 {
				r.ClockBack++
			} else {
				r.ClockForward++
			}
		})
	}
}

// clockPatience is how long folding may take after the clock was stepped, while rivals
// are killed and servers crash.
const clockPatience = 4 * time.Minute

// controlAhead puts a defect in: sessions ahead of the database's clock are alive. One
// rival is killed, the clock steps back by an hour, and nobody takes its partitions.
func (c *campaign) controlAhead(ctx context.Context) {
	rows := c.database(ctx, "control_clock")
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	names := []string{"clock-1", "clock-2"}
	for _, name := range names {
		wg.Go(func() {
			if err := c.rival(ctx, rows, name, name, controlClock, true); err != nil {
				c.t.Errorf("control %q: rival %s: %v", controlClock, name, err)
			}
		})
	}
	var held [2]int
	for began := time.Now(); held[0] == 0 || held[1] == 0; {
		if time.Since(began) > time.Minute || !rest(ctx, crashLease/4) {
			c.t.Errorf("control %q: two rivals hold %v partitions", controlClock, held)
			return
		}
		for i, name := range names {
			held[i], _ = owned(ctx, rows, name)
		}
	}
	c.mu.Lock()
	for p := range c.rivals {
		if p.name == names[0] {
			p.mu.Lock()
			p.by = "again"
			_ = p.cmd.Process.Kill()
			p.mu.Unlock()
		}
	}
	c.mu.Unlock()
	err := rows.step(ctx, -time.Hour)
	before, also := rows.position(ctx, firstGeneration)
	rest(ctx, 10*crashLease)
	after, last := rows.position(ctx, firstGeneration)
	_, end, bounds := c.log.AllBounds(ctx, domain.AllPartitions())
	if err := errors.Join(err, also, last, bounds); err != nil {
		c.t.Errorf("control %q: %v", controlClock, err)
		return
	}
	var stand, move int
	for tp := range end {
		switch {
		case after[tp] > before[tp]:
			move++
		case after[tp] < end[tp]:
			stand++
		}
	}
	if stand == 0 || move == 0 {
		c.t.Errorf("control %q is not caught: %d partitions stand still and %d are folded", controlClock, stand, move)
		return
	}
	how := fmt.Sprintf("%d partitions stand still, %d are folded", stand, move)
	c.say("control %q is caught: %s", controlClock, how)
	c.run.Controls[controlClock] = how
}

// aheadSQL is the condition that [controlClock] leaves out.
const aheadSQL = "and s.alive_until <= clock_timestamp() + s.lease"

// withoutAhead leaves it out.
func withoutAhead(query string) string { return strings.ReplaceAll(query, aheadSQL, "") }
