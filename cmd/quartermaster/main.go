// Command quartermaster keeps the books of a GPU fleet: it appends facts to the
// log, folds the log into rows, and answers from them.
//
// Every command works on one home, a directory that holds the embedded log and
// the snapshots of its rows, or with --brokers on a Kafka cluster. main parses
// flags and turns errors into exit codes; home.go opens and closes the home;
// the other files hold one command each.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program without the process, for tests.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{out: stdout, err: stderr, ownWait: ownWait, watch: watchEvery}).run(args, stdin)
}

func (a *app) run(args []string, stdin io.Reader) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for a clean end, the second kills.
	context.AfterFunc(ctx, stop)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	var failed *failed
	switch {
	case err == nil && a.lacking:
		return commandline.ExitIncomplete
	case err == nil:
		return 0
	case errors.As(err, &failed):
		return cmp.Or(failed.code, commandline.ExitNo)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errStopped
	}
	code := exitOf(err)
	if a.json || commandline.AsksJSON(args) {
		answer := map[string]string{"error": advised(err)}
		if kind := application.KindOf(err); kind != application.KindNone {
			answer["kind"] = string(kind)
		}
		// The same stream as the answer would take, so that a program reads one.
		if werr := json.NewEncoder(a.out).Encode(answer); werr == nil {
			return code
		}
	}
	fmt.Fprintf(a.err, "quartermaster: %s\n", advised(err))
	return code
}

// exitOf returns what the program exits with for an error.
func exitOf(err error) int {
	switch application.KindOf(err) {
	case application.KindInvalid, application.KindNotFound:
		return commandline.ExitUsage
	case application.KindUnavailable:
		return commandline.ExitUnavailable
	case application.KindDenied:
		return commandline.ExitDenied
	case application.KindIncomplete:
		return commandline.ExitIncomplete
	case application.KindConflict:
		return commandline.ExitNo
	}
	return commandline.ExitOf(err)
}

// errStopped is what a command that a signal ended says, in place of what it
// was doing.
var errStopped = &application.IncompleteError{Err: errors.New("interrupted before it was done: run it again for an answer")}

// failed is the error of a command whose answer is already written but is not
// good: a verification that failed, rows that were refused.
type failed struct {
	why  string
	code int // 0: commandline.ExitNo
}

func (f *failed) Error() string { return f.why }

// app holds what every command shares.
type app struct {
	out, err io.Writer

	dir      string
	named    bool // somebody chose dir
	brokers  []string
	json     bool
	quiet    bool
	lacking  bool          // the answer that is written lacks events
	ownWait  time.Duration // how long serve waits for the log
	watch    time.Duration // how often serve looks at the topics
	patience time.Duration // how long rows may not move while a command waits for them; 0: awaitPatience
	logger   *slog.Logger  // of serve; nil in other commands

	configPath string         // of a production home
	config     *config.Config // what it says; nil without
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "quartermaster",
		Short: "The books of a GPU fleet: what there is, who used it, what it cost, what to buy",
		Long: `Quartermaster keeps the books of a GPU fleet that spans clouds. Every fact is
an event in a log that speaks Kafka's protocol; everything else is computed
from that log and can be computed again.

A home is a directory. The first command that appends something creates it; the
first decision makes a workspace "platform" and a first operator, whose key
signs your decisions. With --config the home is in production: the log is an
Apache Kafka, the rows are in Postgres, and the instances of "quartermaster
serve" fold them.

  quartermaster apply -f estate.yaml             declare clusters, policies, prices ...
  quartermaster import nodes nodes.csv --cluster lab
  quartermaster fleet                            what there is
  quartermaster usage --by workspace             who used it
  quartermaster log replay --verify              rebuild everything and compare

Exit codes: 0 done; 1 the answer is no: it differs, does not reconcile or is rejected;
2 the command line, or a name or document that it gives, is wrong, and nothing was done;
3 a server, a database or a file cannot be reached or read; 4 denied; 5 incomplete: the
answer is written and lacks events, or the work was stopped. With --json an error is
an object with the keys error and kind.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.named = cmd.Flags().Changed("home") || os.Getenv("QUARTERMASTER_HOME") != ""
			if cmd.Flags().Changed("brokers") && (len(a.brokers) == 0 || slices.Contains(a.brokers, "")) {
				return commandline.Usagef("--brokers is empty: name host:port, or leave the flag out to use the embedded log")
			}
			// "quartermaster config" says itself what is wrong with the file.
			if a.configPath == "" || cmd.Parent().Name() == "config" {
				return nil
			}
			if len(a.brokers) > 0 {
				return commandline.Usagef("--brokers and --config both name a log: leave one out")
			}
			var err error
			a.config, err = config.Load(a.configPath, os.Getenv)
			return err
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.PersistentFlags()
	f.StringVar(&a.dir, "home", defaultHome(), "directory of the embedded log and of snapshots (environment: QUARTERMASTER_HOME)")
	f.StringSliceVar(&a.brokers, "brokers", nil, "addresses of a Kafka cluster to use instead of the embedded log")
	f.StringVar(&a.configPath, "config", os.Getenv("QUARTERMASTER_CONFIG"), "configuration of a home on Kafka and Postgres (environment: QUARTERMASTER_CONFIG)")
	f.BoolVar(&a.json, "json", false, "answer in JSON; the keys of each answer are in the command's help")
	f.BoolVar(&a.quiet, "quiet", false, "no progress bars and notes on standard error")
	root.AddCommand(
		a.applyCommand(),
		a.operatorCommand(),
		a.clusterCommand(),
		a.keyCommand(),
		a.importCommand(),
		a.fleetCommand(),
		a.nodeCommand(),
		a.modelsCommand(),
		a.servingCommand(),
		a.jobsCommand(),
		a.fragmentationCommand(),
		a.usageCommand(),
		a.costsCommand(),
		a.planCommand(),
		a.simulateCommand(),
		a.logCommand(),
		a.quarantineCommand(),
		a.streamsCommand(),
		a.poisonCommand(),
		a.snapshotCommand(),
		a.serveCommand(),
		a.configCommand(),
		a.projectionCommand(),
		a.demoCommand(),
	)
	must(commandline.SetVersion(root, version()))
	commandline.Strict(root)
	return root
}

// defaultHome is where the data is if nobody says, "" where the environment does not
// tell.
func defaultHome() string {
	if dir := os.Getenv("QUARTERMASTER_HOME"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "quartermaster")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // placed refuses it
	}
	return filepath.Join(home, ".local", "share", "quartermaster")
}

// placed refuses to work in a directory that nobody named and no environment gives.
// In production the log and the rows are elsewhere, so that none is needed.
func (a *app) placed() error {
	if a.dir != "" || a.config != nil {
		return nil
	}
	return commandline.Usagef("there is no data directory: HOME is not set; name one with --home or QUARTERMASTER_HOME")
}

// note tells a person something beside the answer.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// answerJSON writes one JSON document.
func (a *app) answerJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
