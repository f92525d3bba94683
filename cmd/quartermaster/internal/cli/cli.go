package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"

	"github.com/spf13/cobra"
)

// New returns the command line of an app.
func New(on *app.App, stdout, stderr io.Writer) *Program {
	a := &Program{App: on, out: stdout, err: stderr}
	on.Tell = func(note string) { a.note("%s", note) }
	on.Track = a.track
	return a
}

// Add adds a command that another package implements.
func (a *Program) Add(cmd *cobra.Command) { a.others = append(a.others, cmd) }

// JSON reports whether answers are written as JSON.
func (a *Program) JSON() bool { return a.json }

// Run runs a command and returns the exit code.
func (a *Program) Run(args []string, stdin io.Reader) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal stops cleanly, the second kills the process.
	context.AfterFunc(ctx, stop)
	root := a.Root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := errors.Join(root.ExecuteContext(ctx), a.Close())
	if a.output == asCSV && (err == nil || a.csv != nil) {
		err = errors.Join(err, a.writeCSV(root.OutOrStdout()))
	}
	var failed *failed
	switch {
	case err == nil && a.Lacks:
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
		answer := map[string]string{"error": Worded(err)}
		if kind := KindOf(err); kind != app.KindNone {
			answer["kind"] = string(kind)
		}
		// Errors go to the same stream as answers, so that a program reads only one.
		if werr := json.NewEncoder(a.out).Encode(answer); werr == nil {
			return code
		}
	}
	fmt.Fprintf(a.err, "quartermaster: %s\n", Worded(err))
	return code
}

// KindOf returns the kind of a command's error.
func KindOf(err error) app.Kind {
	kind := app.KindOf(err)
	if kind == app.KindNone && exitOf(err) == commandline.ExitUsage {
		return app.KindInvalid
	}
	return kind
}

// exitOf returns the exit code for an error.
func exitOf(err error) int {
	switch app.KindOf(err) {
	case app.KindInvalid, app.KindNotFound:
		return commandline.ExitUsage
	case app.KindUnavailable:
		return commandline.ExitUnavailable
	case app.KindDenied:
		return commandline.ExitDenied
	case app.KindIncomplete:
		return commandline.ExitIncomplete
	case app.KindConflict:
		return commandline.ExitNo
	}
	return commandline.ExitOf(err)
}

// errStopped replaces the error of a command that a signal ended.
var errStopped = &app.IncompleteError{Err: errors.New("interrupted before it finished: run it again")}

// failed is the error of a command that has already written its answer, but did not succeed: for
// example, a failed verification or rejected rows.
type failed struct {
	why  string
	code int // 0: commandline.ExitNo
}

func (f *failed) Error() string { return f.why }

// Program holds the state that all commands share.
type Program struct {
	*app.App
	out, err io.Writer
	output   string // an output form, such as asTable
	json     bool   // output is asJSON
	csv      *grid  // table to write as CSV
	quiet    bool
	width    int    // of tables, in characters; 0: of the terminal
	server   string // to ask instead of a log; "": none
	// proposing is set for a command whose signer is elsewhere.
	proposing *proposing
	// tokenFile has what the server is shown; "": that of the login.
	tokenFile string

	// HoldOpen keeps the log open for other commands after the demo, until ctx ends.
	HoldOpen func(ctx context.Context, listen string) error
	others   []*cobra.Command // added by Add
}

// Root returns the tree of commands, with the flags that say where the log is.
func (a *Program) Root() *cobra.Command {
	root := a.tree()
	root.PersistentPreRunE = func(cmd *cobra.Command, words []string) error {
		f := cmd.Flags()
		if !f.Changed("server") && (f.Changed("data-dir") || f.Changed("brokers") || f.Changed("config")) {
			a.server = "" // a flag says more than the environment
		}
		if err := a.place(cmd); err != nil || a.server == "" {
			return err
		}
		return a.remote(cmd)
	}
	f := root.PersistentFlags()
	f.StringVar(&a.Dir, "data-dir", defaultDir(), "directory of the embedded log and of snapshots (environment: QUARTERMASTER_DATA_DIR)")
	f.StringSliceVar(&a.Brokers, "brokers", nil, "addresses of a Kafka cluster to use instead of the embedded log")
	f.StringVar(&a.ConfigPath, "config", os.Getenv("QUARTERMASTER_CONFIG"), "configuration for Kafka and Postgres (environment: QUARTERMASTER_CONFIG)")
	f.StringVar(&a.tokenFile, "token-file", os.Getenv("QUARTERMASTER_TOKEN_FILE"), "`file` with the key of a service account or an access token, for --server https://HOST (default what \"quartermaster login\" keeps; environment: QUARTERMASTER_TOKEN_FILE)")
	f.StringVar(&a.server, "server", os.Getenv("QUARTERMASTER_SERVER"), "`URL` of a \"quartermaster serve\" to ask, unix:SOCKET or https://HOST (environment: QUARTERMASTER_SERVER)")
	commandline.OutputFlag(f, &a.output, "output format: table, wide (all columns, unclipped), json or csv (the main table)", asTable, asWide, asJSON, asCSV)
	f.BoolVar(&a.quiet, "quiet", false, "no progress bars or notes on standard error")
	return root
}

// place reads the flags that say where the log is.
func (a *Program) place(cmd *cobra.Command) (err error) {
	a.json = a.output == asJSON
	if a.output == asCSV {
		a.out = io.Discard // CSV has tables only
	}
	a.Named = cmd.Flags().Changed("data-dir") || os.Getenv("QUARTERMASTER_DATA_DIR") != ""
	if cmd.Flags().Changed("brokers") && (len(a.Brokers) == 0 || slices.Contains(a.Brokers, "")) {
		return commandline.Usagef("--brokers is empty: name host:port, or leave the flag out to use the embedded log")
	}
	// "quartermaster config" reports errors in the file itself.
	if a.ConfigPath == "" || a.server != "" || cmd.Parent().Name() == "config" {
		return nil
	}
	if len(a.Brokers) > 0 {
		return commandline.Usagef("--brokers and --config both name a log: leave one out")
	}
	a.Config, err = config.Load(a.ConfigPath, os.Getenv)
	return err
}

// tree returns the tree of commands.
func (a *Program) tree() *cobra.Command {
	root := &cobra.Command{
		Use:   "quartermaster",
		Short: "Inventory, usage, costs and procurement of a GPU fleet",
		Long: `Quartermaster does inventory, usage, cost accounting and procurement planning for GPU fleets
across clouds. Every fact is an event in a log that speaks the Kafka protocol. Everything
else is computed from the log and can be computed again.

The first command that appends an event creates the data directory. The first decision
creates a workspace "platform" and a first operator, whose key signs your decisions.

In production, with --config, the log is Apache Kafka and the rows are in Postgres. The
instances of "quartermaster serve" fold the rows.

  quartermaster apply -f estate.yaml             declare clusters, policies, prices ...
  quartermaster import nodes nodes.csv --cluster lab
  quartermaster fleet                            show the inventory
  quartermaster usage --by workspace             show who used it
  quartermaster log replay --verify              rebuild all rows and compare

Exit codes:
  0  done
  1  the answer is no: a difference, bills that do not reconcile, or a rejection
  2  the command line, a name or a document is invalid; nothing was done
  3  a server, a database or a file cannot be reached or read
  4  denied
  5  incomplete: the answer lacks events, or the work was stopped

With -o json an error is an object with the keys error and kind.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		a.applyCommand(),
		a.getCommand(),
		a.decisionsCommand(),
		a.commitmentCommand(),
		a.operatorCommand(), a.peopleCommand(),
		a.clusterCommand(),
		a.keyCommand(),
		a.accessCommand(),
		a.loginCommand(), a.logoutCommand(),
		a.auditCommand(),
		a.importCommand(),
		a.mappingCommand(),
		a.rulesCommand(),
		a.focusCommand(),
		a.overviewCommand(),
		a.fleetCommand(),
		a.nodeCommand(),
		a.modelsCommand(),
		a.servingCommand(),
		a.jobsCommand(),
		a.adviceCommand(),
		a.alertsCommand(),
		a.recommendCommand(),
		a.runbookCommand(),
		a.headroomCommand(),
		a.fragmentationCommand(),
		a.usageCommand(),
		a.costsCommand(),
		a.planCommand(),
		a.simulateCommand(),
		a.logCommand(),
		a.quarantineCommand(),
		a.streamsCommand(),
		a.deadLettersCommand(),
		a.snapshotCommand(),
		a.partsCommand(),
		a.retentionCommand(),
		a.archiveCommand(),
		a.schemaCommand(),
		a.configCommand(),
		a.generationCommand(),
		a.demoCommand(),
	)
	root.AddCommand(a.others...)
	for _, c := range root.Commands() {
		describeAnswers(c)
	}
	must(commandline.SetVersion(root, app.Version().Version, app.Version()))
	commandline.Strict(root)
	return root
}

// defaultDir returns the default data directory, "" if the environment does not determine one.
func defaultDir() string {
	if dir := os.Getenv("QUARTERMASTER_DATA_DIR"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "quartermaster")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "" // App.placed rejects it
	}
	return filepath.Join(home, ".local", "share", "quartermaster")
}

// note writes a message to standard error, unless --quiet.
func (a *Program) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// answerJSON writes one JSON document.
func (a *Program) answerJSON(v any) error {
	return commandline.WriteJSON(a.out, v)
}

// Worded returns the text of an error, with the invalid flag and the remedy.
func Worded(err error) string {
	text := app.Advised(err)
	if remedy := remedies[app.RemedyOf(err)]; remedy != "" {
		text += "; " + remedy
	}
	var wrong *app.InvalidError
	if errors.As(err, &wrong) && wrong.Field != "" {
		text = "--" + wrong.Field + ": " + text
	}
	return text
}

// remedies are the command-line texts of remedies.
var remedies = map[app.Remedy]string{
	app.RemedyNameDataDir:    "name one with --data-dir or QUARTERMASTER_DATA_DIR",
	app.RemedyOwnDataDir:     "name a directory for your own data with --data-dir or QUARTERMASTER_DATA_DIR (or this one, to add to the demo)",
	app.RemedyOtherDataDir:   "name another directory with --data-dir",
	app.RemedyNameConfig:     "name it with --config or QUARTERMASTER_CONFIG",
	app.RemedyDryRun:         "add --dry-run",
	app.RemedyOtherTime:      "choose another time with --at DATE",
	app.RemedyAcceptRemoval:  "if that is right, say so with --accept-removal and this number",
	app.RemedyWholeLog:       "omit --as-of to read the whole log",
	app.RemedyDeclareCluster: "give --provider, --class and --region",
	app.RemedyAuthority:      `an admin changes what an operator may do with "quartermaster operator add NAME --role ROLE --limit AMOUNT --public-key-of FILE"`,
	app.RemedySecondPerson:   "another admin or finance operator signs it with their own --key",
	app.RemedyRegisterSeen:   "--seen registers a node that reports",
	app.RemedyImportDemand:   `import some with "quartermaster import demand" or "quartermaster import usage", or name a file with --demand`,
}
