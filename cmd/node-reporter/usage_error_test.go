package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A mistake on a command line, for example in a unit file, is always reported.
func TestWrongCommandLines(t *testing.T) {
	for line, says := range map[string]string{
		"rnu": `did you mean run?`, "config exampel": "did you mean example?", "config example x": "takes no argument", "config show x": "takes no argument",
		"check x": "takes no argument", "run x": "takes no argument", "run --no-such-flag": "unknown flag", "check --no-such-flag": "unknown flag",
		"config --no-such-flag": "unknown flag", "config show --no-such-flag": "unknown flag", "config example --no-such-flag": "unknown flag",
		"help rnu": "did you mean run?", "completion zhs": "did you mean zsh?", "--no-such-flag": "unknown flag",
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(line), &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), says) {
			t.Errorf("%q exits %d with %q and %q, want 2 and %q", line, code, out.String(), errs.String(), says)
		}
	}
	var out bytes.Buffer
	if code := run([]string{"--version"}, &out, io.Discard); code != 0 || !strings.HasPrefix(out.String(), "node-reporter ") || !strings.Contains(out.String(), "\nfaults/") {
		t.Errorf("--version exits %d with %q", code, out.String())
	}
	out.Reset()
	if code := run([]string{"--version", "-o", "json"}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), `"program": "node-reporter"`) {
		t.Errorf("--version -o json exits %d with %q", code, out.String())
	}
}
