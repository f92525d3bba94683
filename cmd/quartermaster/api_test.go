package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/tools/txtar"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
)

// questionsFile is the name of the file of a script with the questions for "alike".
const questionsFile = "questions"

// TestQuestions shows that every operation of the API is among the questions of the scripts.
func TestQuestions(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, path := range scripts {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name == questionsFile {
				asked = append(asked, strings.Split(string(f.Data), "\n")...)
			}
		}
	}
	for _, op := range cli.Operations() {
		words := strings.Join(op.Words, " ")
		if !slices.ContainsFunc(asked, func(q string) bool { return strings.HasPrefix(strings.TrimPrefix(q, "! ")+" ", words+" ") }) {
			t.Errorf("no script asks %q both ways", words)
		}
	}
}

// names are what a question may name in braces, beside the {DIR} of the script's files: what the first group of a pattern finds in the answer of a command.
var names = map[string]struct {
	command string
	pattern *regexp.Regexp
}{
	"{PLAN}":       {"plan list -o json", regexp.MustCompile(`"(plan-[0-9a-f]+)"`)},
	"{SIMULATION}": {"simulate list -o json", regexp.MustCompile(`"simulation": ?"([^"]+)"`)},
	"{ALLOCATION}": {"costs allocations --period 2026-05 -o json", regexp.MustCompile(`"allocation":"([^"]+)"`)},
	"{FILE}":       {"import list -o json", regexp.MustCompile(`"sha256": ?"([0-9a-f]{64})"`)},
	"{INCIDENT}":   {"alerts list --all -o json", regexp.MustCompile(`"incident": ?"([^"]+)"`)},
	"{RECORD}":     {"quarantine list -o json", regexp.MustCompile(`"id": ?"([^"]+)"`)},
}

// wellFormed checks that an answer in JSON is one document, or lines of documents where the operation says so.
func wellFormed(line, answer string) error {
	var op *cli.Operation
	for _, o := range cli.Operations() {
		if words := strings.Join(o.Words, " "); strings.HasPrefix(line+" ", words+" ") && (op == nil || len(o.Words) > len(op.Words)) {
			op = &o
		}
	}
	if !op.Lines {
		if !json.Valid([]byte(answer)) {
			return fmt.Errorf("%s is not one document: %.200s", line, answer)
		}
		return nil
	}
	for text := range strings.Lines(answer) {
		if !json.Valid([]byte(text)) {
			return fmt.Errorf("%s is not a document on each line: %.200s", line, text)
		}
	}
	return nil
}

var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// took finds how long something took, and how fast it was.
var took = regexp.MustCompile(`("(?:seconds|events_per_second)": ?)[0-9.e+-]+|in [0-9.]+ s \([0-9,]+ events/s\)`)

// alike FILE asks each question of a file, a command line on each line, of the data directory and of a server that holds
// it, in every form. Both answers, their exit codes and their errors are the same bytes. A question that begins with !
// is refused.
func alike(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: alike file")
	}
	dir := ts.Getenv("QUARTERMASTER_DATA_DIR")
	ask := func(line string, more ...string) (string, int) {
		var out bytes.Buffer
		words := slices.DeleteFunc(strings.Split(line, " "), func(w string) bool { return w == "" })
		code := run(append(append(words, more...), "--quiet"), strings.NewReader(""), &out, io.Discard)
		return out.String(), code
	}
	replacements := []string{"{DIR}", ts.MkAbs(".")}
	for name, of := range names {
		answer, _ := ask(of.command, "--data-dir", dir)
		if found := of.pattern.FindStringSubmatch(answer); found != nil {
			replacements = append(replacements, name, found[1])
		}
	}
	named := strings.NewReplacer(replacements...)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	lines := make(lineWriter, 1000)
	done := make(chan error, 1)
	go func() {
		done <- daemon.New(&app.App{Dir: dir}, lines, false).Serve(ctx, "127.0.0.1:0", config.Gateway{}, config.API{})
	}()
	for ready := false; !ready; {
		select {
		case line := <-lines:
			ready = strings.Contains(line, "caught up")
		case err := <-done:
			ts.Fatalf("serve: %v", err)
		case <-time.After(time.Minute):
			ts.Fatalf("serve has not caught up")
		}
	}
	defer func() {
		stop()
		ts.Check(<-done)
	}()
	// Answers about the present name it. It is not the same for two questions.
	began := time.Now().Add(-time.Second)
	timeless := func(answer string) string {
		answer = took.ReplaceAllString(answer, "${1}some")
		return instant.ReplaceAllStringFunc(answer, func(text string) string {
			if t, err := time.Parse(time.RFC3339Nano, text); err == nil && t.After(began) {
				return "now"
			}
			return text
		})
	}
	server := "unix:" + filepath.Join(dir, "api.sock")
	text, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		line, refused := strings.CutPrefix(named.Replace(line), "! ")
		for _, form := range cli.OutputForms() {
			want, code := ask(line, "-o", form, "--data-dir", dir)
			got, asked := ask(line, "-o", form, "--server", server)
			if (code == 2 || code == 4) != refused && form == "json" {
				ts.Fatalf("%s: exit code %d: %s", line, code, want)
			}
			if form == "json" && code == 0 {
				ts.Check(wellFormed(line, got))
			}
			if timeless(want) != timeless(got) || code != asked {
				ts.Fatalf("%s -o %s: of the data directory, exit code %d:\n%s\nof the server, exit code %d:\n%s", line, form, code, want, asked, got)
			}
		}
	}
	ts.Logf("asked in %d forms each, with equal answers", len(cli.OutputForms()))
}

// TestProductionAPI asks a server with a database, and the command on the same log, also about the past.
func TestProductionAPI(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(300)
	socket := filepath.Join(t.TempDir(), "api.sock")
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	served := s.config
	s.config = writeConfig(t, "%sapi: {socket: %q}\n", text, socket)
	a := s.serve("a")
	a.says(1, "caught up")
	s.config = served
	s.fill(300)
	for _, question := range []string{
		"log stats", "log stats --as-of 0", "fleet --at 2026-06-01", "fleet --at 2026-06-01 --as-of 0", "streams list",
		"usage --from 2026-05-01 --to 2026-05-02", "usage --from 2026-05-01 --to 2026-05-02 --as-of 0", "dead-letters list", "parts verify",
	} {
		words := append(strings.Split(question, " "), "-o", "json", "--quiet")
		code, want := s.command(words...)
		var got strings.Builder
		asked := run(append(words, "--server", "unix:"+socket), strings.NewReader(""), &got, io.Discard)
		if code != asked || want != got.String() {
			t.Errorf("%s: exit code %d:\n%s\nof the server, exit code %d:\n%s", question, code, want, asked, got.String())
		}
	}
	a.ends()
}
