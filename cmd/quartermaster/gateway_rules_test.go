package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"quartermaster/projections"
)

// While the rows are slow or away, rules that are known are answered with at once; none
// waits for them but who would have rules of long ago otherwise.
func TestSlowRulesKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rules
		slow, name, reads := time.Duration(0), "a", 0
		load := func(ctx context.Context) ([]projections.MappingRuleEntry, error) {
			reads++
			select {
			case <-time.After(slow):
			case <-ctx.Done():
			}
			if ctx.Err() != nil || name == "" {
				return nil, errors.New("away")
			}
			e := projections.MappingRuleEntry{}
			e.Rule = name
			return []projections.MappingRuleEntry{e}, nil
		}
		pass := func(d time.Duration) { <-time.After(d) } // of the bubble's clock
		ask := func(want string, wait time.Duration) {
			t.Helper()
			began := time.Now()
			got := ""
			for _, e := range r.get(began, load) {
				got = e.Rule
			}
			if waited := time.Since(began); got != want || waited != wait {
				t.Errorf("rule %q after %s, want %q after %s", got, waited, want, wait)
			}
		}
		slow = time.Second
		ask("a", time.Second) // the first
		name = "b"
		pass(rulesFresh)
		ask("a", 0)
		synctest.Wait()
		ask("a", 0) // and begins no second read
		if reads != 2 {
			t.Errorf("%d reads", reads)
		}
		pass(2 * time.Second)
		ask("b", 0)
		slow = time.Hour
		for range 20 { // the rows are away for long
			pass(5 * time.Second)
			ask("b", 0)
		}
		slow, name = time.Second, "c"
		pass(rulesStale) // nobody asked
		ask("c", time.Second)
		pass(rulesFresh)
	})
}
