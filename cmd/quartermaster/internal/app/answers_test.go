package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// TestGivenUpQuestions asks a question twice at once, and the one who computes the answer gives up. The other computes it.
func TestGivenUpQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{}
		ask := func(ctx context.Context) (int, error) {
			return keptAs(a, "q", func() string { return "k" }, func() (int, string, error) {
				<-ctx.Done()
				if err := context.Cause(ctx); !errors.Is(err, errComputed) {
					return 0, "", err
				}
				return 7, "k", nil
			})
		}
		first, giveUp := context.WithCancel(t.Context())
		second, computed := context.WithCancelCause(t.Context())
		gone, got := make(chan error, 1), make(chan int, 1)
		go func() {
			_, err := ask(first)
			gone <- err
		}()
		synctest.Wait() // the first computes
		go func() {
			n, err := ask(second)
			if err != nil {
				t.Error(err)
			}
			got <- n
		}()
		synctest.Wait() // the second waits for it
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the first got %v", err)
		}
		synctest.Wait() // the second computes
		computed(errComputed)
		if n := <-got; n != 7 {
			t.Errorf("the second got %d", n)
		}
	})
}

// sized is a value of a size.
type sized int

// Bytes returns the size.
func (s sized) Bytes() int { return int(s) }

// TestKeep keeps more than there is room for. What was asked for lately stays.
func TestKeep(t *testing.T) {
	on := &App{}
	const size = keptBytes / 8
	for i := range 20 {
		on.Keep(fmt.Sprint(i), sized(size))
		if on.Kept("0") != sized(size) {
			t.Fatalf("after %d others the one that is asked for again is gone", i)
		}
	}
	n := 0
	for i := range 20 {
		if on.Kept(fmt.Sprint(i)) != nil {
			n++
		}
	}
	if a := on.cache(); n != 8 || a.bytes != keptBytes || a.list.Len() != 8 {
		t.Errorf("%d are kept, of %d bytes, %d in the list", n, a.bytes, a.list.Len())
	}
	on.Keep("0", sized(size))
	if a := on.cache(); a.bytes != keptBytes {
		t.Errorf("the same answer twice: %d bytes", a.bytes)
	}
}

var errComputed = errors.New("computed")
