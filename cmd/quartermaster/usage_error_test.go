package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"quartermaster/adapters/buildinfo"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
)

// everyCommand calls yield with each command of the program and the words that
// lead to it.
func everyCommand(c *cobra.Command, words []string, yield func(c *cobra.Command, words []string)) {
	yield(c, words)
	for _, sub := range c.Commands() {
		everyCommand(sub, append(slices.Clone(words), sub.Name()), yield)
	}
}

// A slip on a command line never passes for success: a script in cron that runs
// "log verify" must fail.
func TestEveryCommandRefusesWhatItDoesNotTake(t *testing.T) {
	t.Setenv("QUARTERMASTER_DATA_DIR", t.TempDir()+"/home")
	fails := func(words []string, says string) {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(words, strings.NewReader(""), &out, &errs); code != commandline.ExitUsage || out.Len() > 0 || !strings.Contains(errs.String(), says) {
			t.Errorf("%q exits %d with %q and %q, want 2 and %q", words, code, out.String(), errs.String(), says)
		}
		out.Reset()
		if code := run(append(slices.Clone(words), "-o", "json"), strings.NewReader(""), &out, io.Discard); code != commandline.ExitUsage {
			t.Errorf("%q -o json exits %d", words, code)
		}
		var answer struct{ Error string }
		if json.Unmarshal(out.Bytes(), &answer) != nil || answer.Error == "" {
			t.Errorf("%q -o json answers %q", words, out.String())
		}
	}
	groups, leaves := 0, 0
	root := (commandLine(&app.App{}, io.Discard, io.Discard)).Root()
	everyCommand(root, nil, func(c *cobra.Command, words []string) {
		stray := append(slices.Clone(words), "no-such-word")
		if c.HasAvailableSubCommands() {
			groups++
			if c.Name() != "simulate" { // its word is a file
				fails(stray, `"no-such-word" is not a command of "`+c.CommandPath()+`": `)
			}
		} else {
			leaves++
			many := append(slices.Clone(words), strings.Fields(strings.Repeat("no-such-word ", 9))...)
			switch path := c.CommandPath(); {
			case c.Name() == "help":
				fails(stray, "is not a command of")
			case strings.Contains(c.Use, "..."): // it takes any number of words
			default:
				fails(many, path)
			}
		}
		if c.Name() != "help" {
			fails(append(slices.Clone(words), "--no-such-flag"), "unknown flag: --no-such-flag")
		}
	})
	if groups < 14 || leaves < 50 {
		t.Errorf("%d commands that lead to others and %d that do not were tried", groups, leaves)
	}
	for line, says := range map[string]string{
		"log verify":          `"verify" is not a command of "quartermaster log": known are event, export, prove, replay, stats, tail`,
		"import focsu x":      `"focsu" is not a command of "quartermaster import": did you mean focus?`,
		"key revok lab":       `"revok" is not a command of "quartermaster key": did you mean revoke?`,
		"headroom extra":      `quartermaster headroom takes no arguments, got "extra"`,
		"apply":               `required flag(s) "file" not set`,
		"log replay --verfy":  "did you mean --verify?",
		"fleet --brokers=":    "--brokers is empty",
		"costs --period may":  "is not a billing month",
		"models --at never":   "--at: ",
		"plan show":           "usage: quartermaster plan show PLAN",
		"usage --as-of":       "flag needs an argument",
		"simulate freeze a b": "usage: quartermaster simulate freeze FILE",
	} {
		fails(strings.Fields(line), says)
	}
}

func TestVersionFlag(t *testing.T) {
	var out bytes.Buffer
	if code := run([]string{"--version"}, nil, &out, io.Discard); code != 0 || !strings.HasPrefix(out.String(), "quartermaster ") || !strings.Contains(out.String(), "\nfolds/") || !strings.Contains(out.String(), "\nattribution/") {
		t.Errorf("exit %d, %q", code, out.String())
	}
	out.Reset()
	var v buildinfo.Version
	if code := run([]string{"--version", "-o", "json"}, nil, &out, io.Discard); code != 0 || json.Unmarshal(out.Bytes(), &v) != nil || len(v.Methods) != 12 || v.Program != "quartermaster" {
		t.Errorf("exit %d, %q", code, out.String())
	}
}
