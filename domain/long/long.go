// Package long controls how much work a test does. By default a test draws few cases, so that all
// tests can run after every change. With CI_LONG=1 in the environment it draws many, and slow
// campaigns run too ("make long"). Only tests import it.
package long

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// Run reports whether CI_LONG requests long tests.
func Run() bool { return os.Getenv("CI_LONG") == "1" }

// Count returns short, or many with CI_LONG=1.
func Count(short, many int) int {
	if Run() {
		return many
	}
	return short
}

// Only skips the test unless CI_LONG requests long tests. The reason says why it is slow.
func Only(t testing.TB, reason string) {
	t.Helper()
	if !Run() {
		t.Skipf("%s: CI_LONG=1 runs it", reason)
	}
}

// Check is rapid.Check with Count(short, many) cases. The flag -rapid.checks overrides both. A test
// that uses it MUST NOT run in parallel with others, because the count is global in rapid.
func Check(t *testing.T, short, many int, property func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if before == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(Count(short, many))); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(before) }()
	}
	rapid.Check(t, property)
}
