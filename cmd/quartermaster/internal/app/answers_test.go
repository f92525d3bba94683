package app

import (
	"context"
	"errors"
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

var errComputed = errors.New("computed")
