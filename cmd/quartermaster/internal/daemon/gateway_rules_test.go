package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"quartermaster/projections/registry"
)

// While the rows are slow or away, rules that are known are answered with at once; none
// waits for them but who would have rules of long ago otherwise.
func TestSlowRulesKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rules
		// What the rows are like: how long a read takes, and the rule that they have then.
		var slow atomic.Int64
		var name atomic.Value
		var reads atomic.Int32
		rows := func(takes time.Duration, rule string) {
			slow.Store(int64(takes))
			name.Store(rule)
		}
		load := func(ctx context.Context) ([]registry.MappingRuleEntry, error) {
			reads.Add(1)
			select {
			case <-time.After(time.Duration(slow.Load())):
			case <-ctx.Done():
				return nil, errors.New("away")
			}
			e := registry.MappingRuleEntry{}
			e.Rule = name.Load().(string)
			return []registry.MappingRuleEntry{e}, nil
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
		rows(time.Second, "a")
		ask("a", time.Second) // the first
		rows(time.Second, "b")
		pass(rulesFresh)
		ask("a", 0)
		synctest.Wait()
		ask("a", 0) // and begins no second read
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads", n)
		}
		pass(2 * time.Second)
		ask("b", 0)
		rows(time.Hour, "b")
		for range 20 { // the rows are away for long
			pass(5 * time.Second)
			ask("b", 0)
		}
		rows(time.Second, "c")
		pass(rulesStale) // nobody asked
		ask("c", time.Second)
		pass(rulesFresh)
	})
}
