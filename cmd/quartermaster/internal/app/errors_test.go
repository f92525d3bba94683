package app

import (
	"errors"
	"fmt"
	"testing"

	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/simulations/whatif"
)

func TestKindOf(t *testing.T) {
	plain := errors.New("x")
	for _, of := range []struct {
		err  error
		want Kind
	}{
		{&plan.OutOfRangeError{Err: plain}, KindInvalid}, {&whatif.UnfitError{Err: plain}, KindInvalid},
		{&instances.Faults{}, KindInvalid}, {instances.ErrTooLarge, KindInvalid}, {domain.ErrIncomplete, KindInvalid}, {&instances.Infeasible{}, KindConflict},
	} {
		if err := fmt.Errorf("plan: %w", of.err); KindOf(err) != of.want {
			t.Errorf("%v: %q, want %q", err, KindOf(err), of.want)
		}
	}
	for want, err := range map[Kind]error{
		KindInvalid:     fmt.Errorf("read: %w", &InvalidError{Field: "at", Err: plain}),
		KindNotFound:    &NotFoundError{What: "cluster", Name: "x", Err: plain},
		KindDenied:      errors.Join(plain, &DeniedError{plain}),
		KindConflict:    &ConflictError{&DeniedError{plain}}, // the outermost
		KindIncomplete:  fmt.Errorf("%w and %w", plain, &IncompleteError{plain}),
		KindUnavailable: &UnavailableError{plain},
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
