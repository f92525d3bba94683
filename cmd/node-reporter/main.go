// Command node-reporter reports the GPUs of one node: what they did, every ten seconds,
// who held them, and every fault at once. It starts dcgm-collector, which alone talks to
// NVIDIA's libraries, and takes frames from it.
//
// Every event goes into a spool on disk first (package adapters/spool), and from there
// to the gateway of "quartermaster serve", or to Kafka, until that acknowledged it. So
// what holds is: a fault that the collector told is reported once, whatever is killed,
// cut off or full meanwhile; and what had to be dropped or was damaged is reported too.
//
// The life of a fault: the supervisor reads a frame; the memory says that it is news; it
// is judged by the table of faults and encoded with its place in the stream, synced to
// disk with a memo of what the collector said; a courier sends it and, once it is
// acknowledged, moves the place of delivery. Its end, where the collector shows it, is an
// event as well, and goes the same way (mend.go).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	_ "embed" // the example

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"quartermaster/adapters/buildinfo"
	"quartermaster/adapters/commandline"
	"quartermaster/adapters/configfile"
	"quartermaster/domain/faults"
)

// The example that deploy/node has for operators, of the same bytes.
//
//go:embed node-reporter.yaml
var exampleConfig []byte

func main() {
	// A node's own work comes first: two threads, and little memory.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(40 << 20)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without the process, for tests.
func run(args []string, stdout, stderr io.Writer) int {
	return (&app{out: stdout, err: stderr, pace: usualPace}).run(args)
}

func (a *app) run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for a clean end, the second kills.
	context.AfterFunc(ctx, stop)
	root := a.root()
	root.SetArgs(args)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	code := commandline.ExitOf(err)
	switch {
	case err == nil, errors.Is(err, errNotReady):
		return code
	case a.asJSON() || commandline.AsksJSON(args):
		if json.NewEncoder(a.out).Encode(map[string]string{"error": err.Error()}) == nil {
			return code
		}
	}
	fmt.Fprintf(a.err, "node-reporter: %v\n", err)
	return code
}

// app holds what every command shares.
type app struct {
	out, err io.Writer
	path     string // of the configuration
	output   string // text or json
	pace     pace
}

// pace is how long this program waits before it tries again what failed: at first, and
// at most.
type pace struct{ start, deliver, collector time.Duration }

var usualPace = pace{start: 250 * time.Millisecond, deliver: 30 * time.Second, collector: time.Minute}

func (p pace) backoff(most time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.RandomizationFactor = p.start, most, 0.3
	return b
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "node-reporter",
		Short: "Report the GPUs of this node: what they did, who held them, what failed",
		Long: `Reports what the GPUs of this node did, who held them, and every fault at once. It
starts dcgm-collector, keeps what it observes in a spool on disk, and delivers it to
"quartermaster serve" with the cluster's key. Nothing is lost when the network, the
gateway, the driver or this program fails; what must be dropped is reported.

  node-reporter config example > node-reporter.yaml
  node-reporter check --config node-reporter.yaml
  node-reporter run --config node-reporter.yaml

Exit codes: 0 done, 1 failed, 2 the command line is wrong and nothing was done, 3 a server
or a file cannot be reached or read.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	f := root.PersistentFlags()
	f.StringVar(&a.path, "config", os.Getenv(envPrefix+"CONFIG"), "configuration of this node (environment: NODE_REPORTER_CONFIG)")
	commandline.OutputFlag(f, &a.output, "form of the answer and of the log: text or json", "text", "json")
	root.AddCommand(a.runCommand(), a.checkCommand(), a.configCommand())
	version := buildinfo.Of("node-reporter", "faults/"+faults.Standard().Version())
	if err := commandline.SetVersion(root, version.Version, version); err != nil {
		panic(err) // a struct of strings
	}
	commandline.Strict(root)
	return root
}

func (a *app) logger() *slog.Logger {
	if a.asJSON() {
		return slog.New(slog.NewJSONHandler(a.err, nil))
	}
	return slog.New(slog.NewTextHandler(a.err, nil))
}

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Report, until it is asked to end",
		Long: `Run reports until it gets SIGTERM or SIGINT; what is not delivered then waits in the
spool for the next run. It logs to standard error, as JSON with -o json.

It runs without a collector, a gateway or a free disk, and tries again; what is wrong
is logged once, and stands in /healthz and /metrics. It ends with an error only when
the configuration is wrong, the spool's directory cannot be written, or another
reporter has it open.`,
		Example: "  node-reporter run --config /etc/node-reporter/node-reporter.yaml\n  NODE_REPORTER_CLUSTER=lab node-reporter run --config node-reporter.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := readConfig(a.path, os.Getenv)
			if err != nil {
				return err
			}
			log := a.logger()
			for _, name := range cfg.file.Unknown(os.Environ()) {
				if name != envPrefix+"CONFIG" {
					log.Warn("a variable of the environment names no field", "variable", name)
				}
			}
			r, err := openReporter(cfg, log)
			if err != nil {
				return err
			}
			to, err := newSender(cfg, r.clock, log)
			if err != nil {
				return errors.Join(err, r.spool.Close())
			}
			r.pace = a.pace
			return r.run(cmd.Context(), to)
		},
	}
}

// newSender returns what delivers, as configured.
func newSender(cfg *Config, clk *clock, log *slog.Logger) (sender, error) {
	if len(cfg.Kafka.Brokers) > 0 {
		return newDirect(&cfg.Kafka, cfg.Cluster, cfg.Node)
	}
	return newGateway(&cfg.Gateway, clk, log)
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration, or an example with its manual",
		Long: `One file describes a node. Every field but attribution.rules can be set in the
environment instead, as NODE_REPORTER_ and the path of its key in capitals:
NODE_REPORTER_GATEWAY_URL. The environment overrides the file; an empty variable is
one that is not set. Secrets stand in files of their own, open to their owner alone.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "example",
		Short:   "Print a configuration with its manual, to begin from",
		Long:    `Example prints a configuration that explains every field. With -o json it is one document with the key example.`,
		Example: "  node-reporter config example > node-reporter.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.asJSON() {
				return commandline.WriteJSON(a.out, map[string]string{"example": string(exampleConfig)})
			}
			_, err := a.out.Write(exampleConfig)
			return err
		},
	}, &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in effect, and where each value came from",
		Long: `Show prints every field with the value that is in effect and where it came from. It
opens no file with a secret.

JSON keys: config (the file), values (key, value, from: file, environment or default,
at: file:line:column or the variable).`,
		Example: "  node-reporter config show --config node-reporter.yaml\n  node-reporter config show --config node-reporter.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := readConfig(a.path, os.Getenv)
			if err != nil {
				return err
			}
			values := cfg.file.Values()
			if a.asJSON() {
				return commandline.WriteJSON(a.out, map[string]any{"config": a.path, "values": values})
			}
			text, err := configfile.YAML(values)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
	})
	return cmd
}

// asJSON reports whether it logs and answers in JSON.
func (a *app) asJSON() bool { return a.output == "json" }
