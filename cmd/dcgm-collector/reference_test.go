package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"quartermaster/adapters/commandline/manual"
)

var update = flag.Bool("update", false, "write docs/reference anew")

// The reference of the command is its own help.
func TestReference(t *testing.T) {
	page := manual.Note + "# dcgm-collector\n\nThe program with C in it, which reads GPUs. node-reporter starts it.\n"
	for _, args := range [][]string{{"--help"}, {"check", "--help"}} {
		f, err := os.Create(filepath.Join(t.TempDir(), "help"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if code := run(args, f, io.Discard); code != 0 {
			t.Fatalf("%v exits %d", args, code)
		}
		help, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if len(args) > 1 {
			page += "\n## dcgm-collector " + args[0] + "\n"
		}
		page += "\n```text\n" + string(help) + "```\n"
	}
	manual.Compare(t, filepath.Join(manual.Dir, "cli"), "dcgm-collector*.md", map[string]string{"dcgm-collector.md": page}, *update)
}
