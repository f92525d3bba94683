package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Blocks of shell in the documents begin with "```sh" and what says where they run:
//
//	(nothing)    on the data of the demo, by TestDocs
//	production   on a Kafka and a Postgres, by deploy/dev/integration.sh
//	node         on a node with a simulated DCGM, by deploy/demo/quickstart.sh
//	example      nowhere: they name a server, a file or a machine that the reader has
//
// Readers see only "sh". TestDocsAreUnderstood holds all of them to the commands and
// flags that there are. A block that begins with "```text output" shows lines of what the
// commands of the page print.
var docsPlaces = []string{"", "production", "node", "example"}

// docsBlock is a block of shell in a document.
type docsBlock struct {
	line  int
	place string
	text  string
}

var docsFence = regexp.MustCompile("^( *)```(\\S*) *(.*)$")

// docsBlocks returns the blocks of shell of a document, and the commands in its running
// text and in blocks of a console, of which "$ " leads a line.
func docsBlocks(text string) (blocks []docsBlock, mentions []docsBlock) {
	code := regexp.MustCompile("`(quartermaster [^`]+)`")
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		m := docsFence.FindStringSubmatch(lines[i])
		if m == nil {
			for _, c := range code.FindAllStringSubmatch(lines[i], -1) {
				mentions = append(mentions, docsBlock{line: i + 1, text: c[1]})
			}
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			if c, ok := strings.CutPrefix(lines[i], "$ quartermaster "); ok && m[2] == "console" {
				mentions = append(mentions, docsBlock{line: i + 1, text: "quartermaster " + c})
			}
		}
		if m[2] == "sh" {
			for n := begin; n < i; n++ {
				lines[n] = strings.TrimPrefix(lines[n], m[1])
			}
			blocks = append(blocks, docsBlock{begin + 1, m[3], strings.Join(lines[begin:i], "\n") + "\n"})
		}
	}
	return blocks, mentions
}

// documents returns README and all below docs, by path from the root of the module.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	docs := map[string]string{}
	read := func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		docs[filepath.ToSlash(name)] = string(b)
		return err
	}
	err := errors.Join(
		read(filepath.Join(root, "README.md")),
		filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".md" {
				return err
			}
			return read(path)
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// docsShell runs a script of a document in a folder.
func docsShell(t *testing.T, dir, script string, env ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &out
	c.Env = append(os.Environ(), env...)
	c.Env = append(c.Env, "HOME="+dir, "TMPDIR="+t.TempDir())
	err := c.Run()
	return out.String(), err
}

// docsFolder is where a page's commands run: what they read of the repository is there.
func docsFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	deploy, err := filepath.Abs(filepath.Join("..", "..", "deploy"))
	if err == nil {
		err = os.Symlink(deploy, filepath.Join(dir, "deploy"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every command that a document prints is there, with the flags and the number of
// arguments that stand there, wherever it is to be run.
func TestDocsAreUnderstood(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	commands := 0
	for name, text := range documents(t) {
		blocks, mentions := docsBlocks(text)
		for _, m := range mentions {
			if err := understoodMention(m.text); err != nil {
				t.Errorf("%s:%d: %s: %v", name, m.line, m.text, err)
			}
		}
		for _, b := range blocks {
			if !slices.Contains(docsPlaces, b.place) {
				t.Errorf("%s:%d: a block of shell is to be run %q, want one of %q", name, b.line, b.place, docsPlaces)
			}
			// The shell runs nothing but itself, and says which commands it would have run.
			calls := filepath.Join(t.TempDir(), "calls")
			out, err := docsShell(t, t.TempDir(), `
command_not_found_handle() { :; }
quartermaster() { printf '%s\0' "$@" $'\1' >>"$CALLS"; } # in one write: some run in the background
PATH=/nowhere
`+b.text, "CALLS="+calls)
			if strings.Contains(out, "syntax error") {
				t.Errorf("%s:%d: %v\n%s", name, b.line, err, out)
			}
			said, err := os.ReadFile(calls)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			var args []string
			for _, arg := range strings.Split(string(said), "\x00") {
				if arg != "\x01" {
					args = append(args, arg)
					continue
				}
				commands++
				if err := understood(args); err != nil {
					t.Errorf("%s:%d: quartermaster %s: %v", name, b.line, strings.Join(args, " "), err)
				}
				args = nil
			}
		}
	}
	if commands < 10 {
		t.Errorf("found %d commands in the documents", commands)
	}
	for _, wrong := range [][]string{{"no-such"}, {"fleet", "--no-such"}, {"plan", "show"}, {"usage"}, {"log", "no-such"}} {
		if understood(wrong) == nil {
			t.Errorf("%q passes", wrong)
		}
	}
}

// understood parses a command line and runs nothing.
func understood(args []string) error {
	root := (commandLine(&app.App{}, io.Discard, io.Discard)).Root()
	root.InitDefaultVersionFlag()
	cmd, words, err := root.Find(args)
	if err != nil {
		return err
	}
	err = cmd.ParseFlags(words)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if v := cmd.Flags().Lookup("version"); v != nil && v.Changed {
		return nil
	}
	return errors.Join(cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags())
}

// understoodMention looks for the command and the flags of text in which names may stand
// for what the reader fills in.
func understoodMention(text string) error {
	var words []string
	for _, w := range strings.Fields(text)[1:] {
		if strings.HasPrefix(w, "-") {
			break
		}
		words = append(words, strings.Split(w, "|")[0])
	}
	root := (commandLine(&app.App{}, io.Discard, io.Discard)).Root()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if len(rest) > 0 && cmd.HasAvailableSubCommands() && !cmd.Runnable() {
		return fmt.Errorf("no command %q", rest[0])
	}
	if len(rest) > 0 && cmd == root {
		return fmt.Errorf("no command %q", rest[0])
	}
	for _, f := range regexp.MustCompile(`(?:^|[\s\[])--([a-z][a-z-]*)`).FindAllStringSubmatch(text, -1) {
		if hasFlag(cmd, f[1]) {
			continue
		}
		return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), f[1])
	}
	return nil
}

func hasFlag(c *cobra.Command, name string) bool {
	return c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil || name == "help" || name == "version" && c.Parent() == nil
}

// docsOutput returns what a document shows as printed: in README by make demo, elsewhere by
// the commands of the page.
func docsOutput(text, opening string) (lines []string) {
	for _, block := range strings.Split(text, opening)[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		lines = append(lines, strings.Split(block, "\n")...)
	}
	return lines
}

var docsTimed = regexp.MustCompile(`\d[\d,.]* (s|events/s)\b`)

// notPrinted returns the lines that are no lines of the output, of which columns may be left
// out. How long something took is as it may be.
func notPrinted(output string, shown []string) (wrong []string) {
	fields := func(line string) []string { return strings.Fields(docsTimed.ReplaceAllString(line, "")) }
	var have [][]string
	for line := range strings.Lines(output) {
		have = append(have, fields(line))
	}
	for _, line := range shown {
		want := fields(line)
		if !slices.ContainsFunc(have, func(of []string) bool {
			rest := want
			for _, f := range of {
				if len(rest) > 0 && f == rest[0] {
					rest = rest[1:]
				}
			}
			return len(rest) == 0
		}) {
			wrong = append(wrong, line)
		}
	}
	return wrong
}

func TestDocsOutput(t *testing.T) {
	shown := docsOutput("x\n```text output\n a  c\n took 2.0 s\n```\ny\n```text output\n c a\n```\n", "```text output\n")
	if got := notPrinted("a b c\n took 31.5 s\n", shown); len(shown) != 3 || !slices.Equal(got, []string{" c a"}) {
		t.Errorf("of %q these are not printed: %q", shown, got)
	}
}

// Every block of shell in README and docs runs as printed, those of a page in one shell,
// on the data of the demo, which is made once. A page that writes names a data directory
// of its own. It takes minutes: make docs.
func TestDocs(t *testing.T) {
	if os.Getenv("QM_DOCS") == "" {
		t.Skip("QM_DOCS=1, which make docs sets, runs what the documents print")
	}
	env := []string{"QUARTERMASTER_DATA_DIR=" + filepath.Join(t.TempDir(), "demo")}
	if cache, err := os.UserCacheDir(); err == nil { // the solver is compiled once for all
		env = append(env, "XDG_CACHE_HOME="+cache)
	}
	printed, err := docsShell(t, docsFolder(t), "quartermaster demo --once --quiet", env...)
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, printed)
	}
	docs := documents(t)
	t.Run("what the demo prints", func(t *testing.T) {
		shown := docsOutput(docs["README.md"], "$ make demo\n")
		if len(shown) != 23 {
			t.Errorf("README shows %d lines of the demo, want 23", len(shown))
		}
		for _, line := range notPrinted(printed, shown) {
			t.Errorf("README shows what the demo does not print: %s", line)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		var script strings.Builder
		blocks, _ := docsBlocks(docs[name])
		for _, b := range blocks {
			if b.place == "" {
				fmt.Fprintf(&script, "# line %d\n%s", b.line, b.text)
			}
		}
		if script.Len() == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			out, err := docsShell(t, docsFolder(t), "set -euo pipefail\nmake() { :; }\nset -x\n"+script.String(), env...)
			if err != nil {
				lines := strings.Split(strings.TrimSpace(out), "\n")
				t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
			}
			for _, line := range notPrinted(out, docsOutput(docs[name], "```text output\n")) {
				t.Errorf("the page shows what its commands do not print: %s", line)
			}
			t.Logf("%.1f s", time.Since(begin).Seconds())
		})
	}
}
