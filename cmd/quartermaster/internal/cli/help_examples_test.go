package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"quartermaster/adapters/importer"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/long"
)

// notOnTheDemo is what the examples need that the demo has not: somebody's own files,
// keys and nodes, other servers, or time without end.
var notOnTheDemo = regexp.MustCompile(strings.Join([]string{
	`--config|--brokers|^(serve|dead-letters|generation|config|demo)\b`, // servers
	`^(apply|import|operator|key|node|commitment|cluster register)\b`,   // facts of somebody's own
	`--follow`,
	`qm\.\w+/\d@\d|^streams resolve|^quarantine (repair|discard)`, // records that are bad
	`LINE|ALLOCATION|'issuer=AWS`,
	`\b(openb_\w+|shavedice\w+|helios\w+|demand|instance|large|answer|before/result)\.(csv|json|csv\.gz)\b`,
	`--launch`,
	`\.snapshot`, `^archive (restore|verify --from)`,
	`^plan backtest --from`, // minutes
}, "|"))

// helpExamples returns the examples of a command and of those below it, which come first.
func helpExamples(c *cobra.Command) (examples []string) {
	for _, sub := range c.Commands() {
		examples = append(examples, helpExamples(sub)...)
	}
	for line := range strings.Lines(c.Example) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(examples, line) {
			examples = append(examples, line)
		}
	}
	return examples
}

// What help shows are commands of this program, with flags that they have, and files
// of the demo that are there.
func TestHelpExamplesAreCommands(t *testing.T) {
	for _, example := range helpExamples((commandLine(&app.App{}, io.Discard, io.Discard)).Root()) {
		line, ok := strings.CutPrefix(example, "quartermaster ")
		if !ok {
			t.Errorf("%q is not a command of this program", example)
			continue
		}
		line, _, _ = strings.Cut(line, " > ")
		root := (commandLine(&app.App{}, io.Discard, io.Discard)).Root()
		c, rest, err := root.Find(words(line))
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", example, err)
		}
		for _, path := range regexp.MustCompile(`\bdeploy/\S+`).FindAllString(line, -1) {
			if _, err := os.Stat(filepath.Join("..", "..", "..", "..", path)); err != nil {
				t.Errorf("%s: %v", example, err)
			}
		}
	}
}

// demoOfMay returns a home with the demo, without its plans.
func demoOfMay(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "home")
	leanDemo(t, dir, "2026-05-01") // forecasts take four weeks
	d := &demoRun{app: commandLine(&app.App{Dir: dir}, io.Discard, io.Discard), say: func(string, ...any) {}}
	if err := d.generate(); err != nil {
		t.Fatal(err)
	}
	if err := d.caller().ImportColumns(t.Context(), importer.Nodes, d.options[d.nodes], []string{d.nodes}, false, d.took); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.bill(t.Context()), d.app.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What help shows can be run on the demo as it stands there.
func TestHelpExamplesRunOnTheDemo(t *testing.T) {
	long.Only(t, "plans and simulates for a minute")
	dir := demoOfMay(t)
	deploy, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Symlink(deploy, "deploy"); err != nil {
		t.Fatal(err)
	}
	// Answers that the examples name by an id have one of their own here.
	ids := map[string]string{}
	for made, id := range map[string][]string{
		"plan-0f3a9c81d2e4": {"plan", "--at", "2026-06-01", "--region", "us-west-2"},
		"sim-0f3a9c81d2e4":  {"simulate", "deploy/demo/scenarios/demand-growth.yaml", "--runs", "5", "--freeze"},
		"sim-77aa01b2c3d4":  {"simulate", "deploy/demo/scenarios/new-offer.yaml", "--runs", "5", "--freeze"},
	} {
		kind, _, _ := strings.Cut(made, "-")
		code, out := command(t, dir, id...)
		if ids[made] = regexp.MustCompile(kind + `-[0-9a-f]{12}`).FindString(out); code != 0 || ids[made] == "" {
			t.Fatalf("%v: exit %d\n%s", id, code, out)
		}
	}
	ran := 0
	examples := helpExamples((commandLine(&app.App{}, io.Discard, io.Discard)).Root())
	for _, example := range examples {
		line := strings.TrimPrefix(example, "quartermaster ")
		if notOnTheDemo.MatchString(line) {
			continue
		}
		for made, id := range ids {
			line = strings.ReplaceAll(line, made, id)
		}
		line, to, _ := strings.Cut(line, " > ")
		code, out := command(t, dir, words(line)...)
		if code != 0 {
			t.Errorf("%s: exit %d\n%.2000s", example, code, out)
		}
		ran++
		if to != "" {
			if err := os.WriteFile(to, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ran < 50 {
		t.Errorf("%d of %d examples ran, so that most are not put to the test", ran, len(examples))
	}
}

// words splits a command line as a shell does: by spaces, but not between quotes.
func words(line string) (out []string) {
	for _, m := range regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`).FindAllString(line, -1) {
		out = append(out, strings.NewReplacer("'", "", `"`, "").Replace(m))
	}
	return out
}
