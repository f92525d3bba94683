package configfile_test

import (
	"errors"
	"slices"
	"testing"

	"quartermaster/adapters/configfile"
)

func TestJoined(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	if got := configfile.Joined(errors.Join(one, two)); !slices.Equal(got, []error{one, two}) {
		t.Errorf("got %v", got)
	}
	if got := configfile.Joined(one); !slices.Equal(got, []error{one}) {
		t.Errorf("got %v", got)
	}
}
