package commandline_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
)

// tree is a program with every shape of command.
func tree(t *testing.T) (*cobra.Command, *bytes.Buffer, *[]string) {
	t.Helper()
	ran := []string{}
	run := func(c *cobra.Command, words []string) error {
		ran = append(ran, c.CommandPath()+" "+strings.Join(words, " "))
		return nil
	}
	root := &cobra.Command{Use: "tool", Short: "A tool", SilenceErrors: true, SilenceUsage: true}
	commandline.OutputFlag(root.PersistentFlags(), new(string), "form of the answer", "table", "json")
	group := &cobra.Command{Use: "log", Short: "The log"}
	tail := &cobra.Command{Use: "tail", Args: cobra.NoArgs, RunE: run}
	tail.Flags().Bool("verify", false, "compare")
	group.AddCommand(tail, &cobra.Command{Use: "replay", Args: cobra.NoArgs, RunE: run})
	both := &cobra.Command{Use: "plan", Args: cobra.NoArgs, RunE: run}
	both.AddCommand(&cobra.Command{Use: "show PLAN", Args: cobra.ExactArgs(1), RunE: run})
	needs := &cobra.Command{Use: "apply -f FILE", Args: cobra.NoArgs, RunE: run}
	needs.Flags().StringP("file", "f", "", "file")
	if err := needs.MarkFlagRequired("file"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(group, both, needs, &cobra.Command{Use: "import FILE...", Args: cobra.MinimumNArgs(1), RunE: run})
	if err := commandline.SetVersion(root, "v1", build{"tool", "v1"}); err != nil {
		t.Fatal(err)
	}
	commandline.Strict(root)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	return root, &out, &ran
}

func TestStrict(t *testing.T) {
	for _, c := range []struct{ line, ran, shows, fails string }{
		{"log tail", "tool log tail ", "", ""},
		{"plan show p", "tool plan show p", "", ""},
		{"plan", "tool plan ", "", ""},
		{"apply -f x", "tool apply ", "", ""},
		{"import a b", "tool import a b", "", ""},
		{"", "", "A tool", ""},
		{"log", "", "The log", ""},
		{"log tial --help", "", "The log", ""},
		{"help", "", "A tool", ""},
		{"help log tail", "", "tool log tail", ""},
		{"lgo", "", "", `"lgo" is not a command of "tool": did you mean log?`},
		{"log tial", "", "", `"tial" is not a command of "tool log": did you mean tail?`},
		{"log zzzzzzzz x", "", "", `"zzzzzzzz" is not a command of "tool log": known are replay, tail`},
		{"-o json log zzzzzzzz", "", "", `is not a command of "tool log"`},
		{"log tail x", "", "", `tool log tail takes no arguments, got "x"; see "tool log tail --help"`},
		{"plan shwo p", "", "", `"shwo" is not a command of "tool plan": did you mean show?`},
		{"plan show", "", "", `accepts 1 arg(s), received 0; usage: tool plan show PLAN`},
		{"plan show a b", "", "", `accepts 1 arg(s), received 2; usage: tool plan show PLAN`},
		{"import", "", "", `requires at least 1 arg(s), only received 0; usage: tool import FILE...`},
		{"apply", "", "", `required flag(s) "file" not set; see "tool apply --help"`},
		{"log replay --verfy", "", "", `unknown flag: --verfy; see "tool log replay --help"`},
		{"log tail --verfy", "", "", `unknown flag: --verfy (did you mean --verify?); see "tool log tail --help"`},
		{"log tail --verify=maybe", "", "", `invalid argument "maybe" for "--verify" flag`},
		{"log --wrong", "", "", "unknown flag: --wrong"},
		{"log reopen --month x", "", "", `"reopen" is not a command of "tool log": known are replay, tail`},
		{"plan reopen --month x", "", "", `"reopen" is not a command of "tool plan": known are show`},
		{"help lgo", "", "", `"lgo" is not a command of "tool": did you mean log?`},
		{"help log tial", "", "", `"tial" is not a command of "tool log": did you mean tail?`},
		{"completion zhs", "", "", `"zhs" is not a command of "tool completion": did you mean zsh?`},
		{"completion bash x", "", "", `tool completion bash takes no arguments, got "x"`},
	} {
		root, out, ran := tree(t)
		root.SetArgs(strings.Fields(c.line))
		err := root.Execute()
		if got := strings.Join(*ran, ";"); got != c.ran {
			t.Errorf("%q ran %q, want %q", c.line, got, c.ran)
		}
		var usage *commandline.UsageError
		switch {
		case c.fails == "" && (err != nil || !strings.Contains(out.String(), c.shows)):
			t.Errorf("%q: error %v, output %q, want %q", c.line, err, out, c.shows)
		case c.fails != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), c.fails) || commandline.ExitOf(err) != 2 || out.Len() > 0):
			t.Errorf("%q: error %v, output %q, want %q", c.line, err, out, c.fails)
		}
		if strings.Contains(out.String(), "tool log [flags]") {
			t.Errorf("%q shows a usage line for a group: %s", c.line, out)
		}
	}
	if commandline.ExitOf(nil) != 0 || commandline.ExitOf(errors.New("x")) != 1 {
		t.Error("exit codes of success and of other errors")
	}
	if !commandline.AsksJSON([]string{"a", "-o", "json"}) || commandline.AsksJSON([]string{"--", "-o", "json"}) {
		t.Error("AsksJSON is wrong")
	}
}

// build is the version of the tests' tool.
type build struct {
	Program string `json:"program"`
	Version string `json:"version"`
}

func (b build) String() string { return b.Program + " " + b.Version + "\n" }

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		root, out, _ := tree(t)
		root.PersistentPreRunE = func(*cobra.Command, []string) error { return errors.New("no configuration") }
		root.SetArgs(args)
		if err := root.Execute(); err != nil || out.String() != "tool v1\n" {
			t.Errorf("%v: %q, error %v", args, out, err)
		}
		root, out, _ = tree(t)
		root.SetArgs(append(args, "-o", "json"))
		if err := root.Execute(); err != nil || out.String() != "{\n  \"program\": \"tool\",\n  \"version\": \"v1\"\n}\n" {
			t.Errorf("%v: %q, error %v", args, out, err)
		}
	}
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	if err := commandline.WriteJSON(&b, map[string]string{"limit": "<10%"}); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"limit\": \"<10%\"\n}\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
