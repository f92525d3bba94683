package main

import (
	"flag"
	"io"
	"path/filepath"
	"testing"

	"quartermaster/adapters/commandline/manual"
)

var update = flag.Bool("update", false, "write docs/reference anew")

// The reference of the commands is their own help.
func TestReference(t *testing.T) {
	t.Setenv("NODE_REPORTER_CONFIG", "")
	pages := manual.Pages((&app{out: io.Discard, err: io.Discard}).root())
	manual.Compare(t, filepath.Join(manual.Dir, "cli"), "node-reporter*.md", pages, *update)
}
