package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/deploy/runbooks"
	"quartermaster/domain/advice"
	"quartermaster/domain/long"
)

// runbookCommands returns the commands that runbooks print, each once.
func runbookCommands(t *testing.T) (commands []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range advice.Rules() {
		text, err := runbooks.Of(string(r.ID))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(quartermaster [^`]*)`").FindAllStringSubmatch(text, -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				commands = append(commands, m[1])
			}
		}
	}
	return commands
}

// Every rule has a runbook of one shape, there is no other, and their commands are commands of this program.
func TestRunbooks(t *testing.T) {
	of := map[string]bool{"runbooks.go": true}
	for _, r := range advice.Rules() {
		of[string(r.ID)+".md"] = true
		text, err := runbooks.Of(string(r.ID))
		if err != nil {
			t.Error(err)
			continue
		}
		_, look, ok := strings.Cut(text, "\n## Look\n")
		_, end, ends := strings.Cut(look, "\n## End it\n")
		if !strings.HasPrefix(text, "# "+string(r.ID)+": ") || !ok || !ends || !strings.Contains(look, "`quartermaster ") || !strings.Contains(end, "\nIt closes ") {
			t.Errorf("the runbook of %s does not say what it means, how to look, what ends it and when it closes:\n%s", r.ID, text)
		}
	}
	files, err := os.ReadDir("../../../../deploy/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !of[f.Name()] {
			t.Errorf("%s is the runbook of no rule", f.Name())
		}
	}
	for _, line := range runbookCommands(t) {
		root := commandLine(&app.App{}, io.Discard, io.Discard).Root()
		c, rest, err := root.Find(words(strings.TrimPrefix(line, "quartermaster ")))
		if err == nil && !strings.HasSuffix(line, " --help") {
			if err = c.ParseFlags(rest); err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// What runbooks show can be run on the demo.
func TestRunbooksRunOnTheDemo(t *testing.T) {
	long.Only(t, "generates the demo and computes a plan")
	dir := demoOfMay(t)
	for _, line := range runbookCommands(t) {
		if code, out := command(t, dir, words(strings.TrimPrefix(line, "quartermaster "))...); code != 0 {
			t.Errorf("%s: exit %d\n%.2000s", line, code, out)
		}
	}
}
