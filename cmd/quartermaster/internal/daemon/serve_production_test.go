package daemon

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
)

// What time mends is waited for; what only a person mends ends the process.
func TestWhatPasses(t *testing.T) {
	server := func(code string) error { return fmt.Errorf("do: %w", &pq.Error{Code: pqerror.Code(code)}) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"cut":               {errors.New("connection reset"), true},
		"server stops":      {server("57P01"), true},
		"too many":          {server("53300"), true},
		"serialization":     {server("40001"), true},
		"deadlock":          {server("40P01"), true},
		"lock":              {server("55P03"), true},
		"rested":            {server("25P03"), true},
		"read only":         {server("25006"), false},
		"in use":            {server("55006"), false},
		"no right":          {server("42501"), false},
		"password":          {server("28P01"), false},
		"another schema":    {fmt.Errorf("open: %w", postgres.ErrSchema), false},
		"trimmed":           {fmt.Errorf("read: %w", kafka.ErrTrimmed), false},
		"changed by others": {fmt.Errorf("bind: %w: %w", postgres.ErrChanging, server("55P03")), true},
	} {
		if got := passes(c.err); got != c.want {
			t.Errorf("%s (%v) passes: %t, want %t", name, c.err, got, c.want)
		}
	}
}
