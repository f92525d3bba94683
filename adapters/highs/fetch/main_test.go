package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A failure counts for ten minutes. A clock that was set back does not make it count for ever.
func TestLately(t *testing.T) {
	file := filepath.Join(t.TempDir(), "failed")
	now := time.Now()
	if lately(file, now) {
		t.Error("nothing failed")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age  time.Duration
		want bool
	}{{time.Minute, true}, {patient, false}, {-time.Minute, false}} {
		if err := os.Chtimes(file, now, now.Add(-c.age)); err != nil {
			t.Fatal(err)
		}
		if got := lately(file, now); got != c.want {
			t.Errorf("after %s: %t", c.age, got)
		}
	}
}
