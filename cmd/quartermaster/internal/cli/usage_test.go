package cli

import (
	"testing"

	"quartermaster/projections/usage"
)

// Activity that was not measured is said of held time alone: where nobody held anything
// there was none to measure.
func TestActivityCell(t *testing.T) {
	half := int64(500)
	for _, c := range []struct {
		g    usage.GPUTime
		want string
	}{
		{usage.GPUTime{Idle: 1}, ""},
		{usage.GPUTime{Allocated: 1}, "not measured"},
		{usage.GPUTime{Allocated: 2, Activity: &half, Coverage: &half}, "50.0% of 50.0%"},
	} {
		if got := activity(&c.g); got != c.want {
			t.Errorf("%+v: %q, want %q", c.g, got, c.want)
		}
	}
}
