package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mistake on a command line is always reported.
func TestWrongCommandLines(t *testing.T) {
	answer := func(line string) (code int, stdout, stderr string) {
		t.Helper()
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var errs bytes.Buffer
		code = run(strings.Fields(line), f, &errs)
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return code, string(b), errs.String()
	}
	for line, says := range map[string]string{
		"chekc": "did you mean check?", "check x": "takes no argument", "check --no-such-flag": "unknown flag", "--no-such-flag": "unknown flag",
		"--engine nowhere": "--engine", "--every 1ms": "--every", "help chekc": "did you mean check?",
	} {
		if code, out, errs := answer(line); code != exitUsage || out != "" || !strings.Contains(errs, says) {
			t.Errorf("%q exits %d with %q and %q, want 2 and %q", line, code, out, errs, says)
		}
	}
	if code, out, _ := answer("--version"); code != 0 || !strings.HasPrefix(out, "dcgm-collector ") {
		t.Errorf("--version exits %d with %q", code, out)
	}
	if code, out, _ := answer("--version -o json"); code != 0 || !strings.Contains(out, `"program": "dcgm-collector"`) {
		t.Errorf("--version -o json exits %d with %q", code, out)
	}
}
