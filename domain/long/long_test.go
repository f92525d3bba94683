package long_test

import (
	"flag"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/long"
)

func TestCheck(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	for _, c := range []struct {
		ci, asked string
		want      int
	}{{"", "100", 7}, {"0", "100", 7}, {"1", "100", 31}, {"1", "13", 13}, {"", "13", 13}} {
		t.Setenv("CI_LONG", c.ci)
		if err := checks.Value.Set(c.asked); err != nil {
			t.Fatal(err)
		}
		n := 0
		long.Check(t, 7, 31, func(*rapid.T) { n++ })
		if n != c.want || checks.Value.String() != c.asked {
			t.Errorf("CI_LONG=%q, -rapid.checks=%s: %d cases, want %d; the flag is %s after it", c.ci, c.asked, n, c.want, checks.Value)
		}
	}
	if err := checks.Value.Set(checks.DefValue); err != nil {
		t.Fatal(err)
	}
}
