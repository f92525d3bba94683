package app

import (
	"errors"
	"fmt"
	"testing"
)

func TestKindOf(t *testing.T) {
	plain := errors.New("x")
	for want, err := range map[Kind]error{
		KindInvalid:     fmt.Errorf("read: %w", &Invalid{Field: "at", Err: plain}),
		KindNotFound:    &NotFound{What: "cluster", Name: "x", Err: plain},
		KindDenied:      errors.Join(plain, &Denied{plain}),
		KindConflict:    &Conflict{&Denied{plain}}, // the outermost
		KindIncomplete:  fmt.Errorf("%w and %w", plain, &Incomplete{plain}),
		KindUnavailable: &Unavailable{plain},
		KindNone:        fmt.Errorf("y: %w", plain),
	} {
		if have := KindOf(err); have != want {
			t.Errorf("%v: %q, want %q", err, have, want)
		}
		if !errors.Is(err, plain) {
			t.Errorf("%v lost what is wrong", err)
		}
	}
	if KindOf(nil) != KindNone {
		t.Error("nothing is wrong with nothing")
	}
}
