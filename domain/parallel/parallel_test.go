package parallel_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"quartermaster/domain/parallel"
)

func TestRun(t *testing.T) {
	var sum atomic.Int64
	parallel.Run(10, func(k int) { sum.Add(int64(k)) })
	if sum.Load() != 45 {
		t.Errorf("sum %d", sum.Load())
	}
}

// A panic reaches whoever called, with its stack, and after the others have ended.
func TestRunPanics(t *testing.T) {
	var others atomic.Int64
	defer func() {
		said, stack, _ := strings.Cut(recover().(string), "\n")
		if said != "a defect" || !strings.Contains(stack, "parallel_test.broken") || others.Load() != 9 {
			t.Errorf("%d others ended; %q\n%s", others.Load(), said, stack)
		}
	}()
	parallel.Run(10, func(k int) {
		if k == 3 {
			broken()
		}
		others.Add(1)
	})
	t.Error("no panic")
}

func broken() { panic("a defect") }
