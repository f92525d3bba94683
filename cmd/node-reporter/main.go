// Command node-reporter reports the GPUs of one node: their activity and holders every ten seconds,
// and every fault at once. It starts dcgm-collector, the only program that talks to NVIDIA's
// libraries, and reads frames from it.
//
// Every event goes into a spool on disk first (package adapters/spool). From there it is sent to
// the gateway of "quartermaster serve", or to Kafka, until that has acknowledged it. So a fault
// that the collector reported is reported exactly once, whatever is killed, cut off or full
// meanwhile. Dropped and damaged events are reported too.
//
// The life of a fault:
//
//  1. The supervisor reads a frame.
//  2. The memory decides that the fault is new.
//  3. The fault table judges it. It is encoded with its place in the stream, and synced
//     to disk with a memo of what the collector reported.
//  4. A courier sends it. Once it is acknowledged, the courier moves the delivery
//     position.
//
// If the collector sees the end of a fault, that is an event as well, and goes the same way
// (mend.go).
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

// exampleConfig is identical to the file for operators in deploy/node.
//
//go:embed node-reporter.yaml
var exampleConfig []byte

func main() {
	// The node's own workloads come first: use two threads and little memory.
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(40 << 20)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process, for tests.
func run(args []string, stdout, stderr io.Writer) int {
	return (&app{out: stdout, err: stderr, pace: usualPace}).run(args)
}

func (a *app) run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for a clean end, the second one kills.
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

// app holds the state that all commands share.
type app struct {
	out, err io.Writer
	path     string // of the configuration
	output   string // text or json
	pace     pace
}

// pace are the retry intervals: the first one, and the maxima for deliveries and for the collector.
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
		Short: "Report the GPUs of this node: activity, holders and faults",
		Long: `Reports the activity and the holders of this node's GPUs, and every fault at once. It
starts dcgm-collector, keeps its observations in a spool on disk, and delivers them to
"quartermaster serve" with the cluster's key. Nothing is lost when the network, the
gateway, the driver or this program fails. If events must be dropped, that is reported.

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
		Long: `Run reports until it gets SIGTERM or SIGINT. Events that are not delivered by then
wait in the spool for the next run. It logs to standard error, as JSON with -o json.

It also runs without a collector, a gateway or free disk space, and retries. Problems
are logged once, and shown by /healthz and /metrics. It ends with an error only if the
configuration is invalid, the spool's directory cannot be written, or another reporter
has it open.`,
		Example: "  node-reporter run --config /etc/node-reporter/node-reporter.yaml\n" +
			"  NODE_REPORTER_CLUSTER=lab node-reporter run --config node-reporter.yaml -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := readConfig(a.path, os.Getenv)
			if err != nil {
				return err
			}
			log := a.logger()
			for _, name := range cfg.file.Unknown(os.Environ()) {
				if name != envPrefix+"CONFIG" {
					log.Warn("an environment variable matches no field", "variable", name)
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

// newSender returns the configured sender.
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
		Long: `One file describes a node. Every field except attribution.rules can be set in the
environment instead, as NODE_REPORTER_ and the path of its key in capitals:
NODE_REPORTER_GATEWAY_URL. The environment overrides the file. An empty variable counts
as not set. Secrets are in files of their own, which only their owner may read.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "example",
		Short: "Print a configuration with its manual, to begin from",
		Long: `Example prints a configuration that explains every field. With -o json it is one
document with the key example.`,
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
		Long: `Show prints every field with its value in effect and where the value came from. It
opens no file with a secret.

JSON keys: config (the file), values (key, value, from: file, environment or default,
at: file:line:column or the variable).`,
		Example: "  node-reporter config show --config node-reporter.yaml\n" +
			"  node-reporter config show --config node-reporter.yaml -o json",
		Args: cobra.NoArgs,
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

// asJSON reports whether logs and answers are JSON.
func (a *app) asJSON() bool { return a.output == "json" }
