package cli

import (
	_ "embed" // the example
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"quartermaster/adapters/configfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
)

func (a *Program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration of a log in production",
		Long: `In production the log is in Apache Kafka and the rows are in Postgres. One file
describes both, which every command takes with --config; "quartermaster
config example" prints it with its manual.

Every field but webhooks can be set in the environment instead, as QUARTERMASTER_
and the path of its key in capitals, lists separated by commas:
QUARTERMASTER_KAFKA_BROKERS, QUARTERMASTER_POSTGRES_DSN_FILE. The environment
overrides the file; an empty variable is one that is not set.

Secrets stand in files of their own, open to their owner alone.`,
	}
	cmd.AddCommand(a.configCheckCommand(), a.configShowCommand(), a.configExampleCommand())
	return cmd
}

func (a *Program) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration with its manual, to begin from",
		Long: `Example prints a configuration that explains every field. With -o json it is one
document with the key example.`,
		Example: "  quartermaster config example > quartermaster.yaml",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.answerJSON(map[string]string{"example": string(config.Example)})
			}
			_, err := a.out.Write(config.Example)
			return err
		},
	}
}

type configShowAnswer struct {
	Config string             `json:"config"` // the file
	Values []configfile.Value `json:"values"`
}

func (a *Program) configShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in effect, and where each value came from",
		Long: `Show prints every field with the value that is in effect and where it came
from: a place in the file, a variable of the environment, or the default. It
opens no file with a secret; of the addresses of webhooks, which may be secrets
themselves, it shows the host.`,
		Example: "  quartermaster config show --config quartermaster.yaml\n  quartermaster config show --config quartermaster.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := config.Read(a.ConfigPath, os.Getenv)
			if err != nil {
				return err
			}
			ans := configShowAnswer{a.ConfigPath, c.Values()}
			if a.json {
				return a.answerJSON(ans)
			}
			text, err := configfile.YAML(ans.Values)
			if err != nil {
				return err
			}
			_, err = a.out.Write(text)
			return err
		},
	}
}

// ConfigCheckAnswer is what "config check" answers.
type ConfigCheckAnswer struct {
	Config string            `json:"config"` // the file
	OK     bool              `json:"ok"`
	Checks []app.ConfigCheck `json:"checks"`
}

func (a *Program) configCheckCommand() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try everything that the configuration names, and change nothing",
		Long: `Check reads the configuration and tries what it names, as serve will: secrets
are there and closed to others; every broker answers, encrypted and logged in
as configured; every topic exists with the settings and the number of
partitions that the log needs; every partition has a leader that can be reached;
Postgres answers, is 15 or newer, takes writes, and its schema and active
generation are this program's and were made of this log; snapshots can be
written; the gateway's certificate is valid, with a warning 14 days before its end
(or in the last third of a shorter life). It says how far the clocks are apart, when each schedule comes next,
and whom webhooks would tell, without calling them.

Nothing is created or changed: before the first start, topics and schema are
reported as missing, with the command that makes them. It fails only where this
user may not make them, and names the rights that are missing.

One line a check: ok, WARNING, skipped or FAILED, what was found, and what to do
next. Exit 1 if any failed. --offline connects to nothing.`,
		Example: "  quartermaster config check --config quartermaster.yaml\n  quartermaster config check --config quartermaster.yaml --offline -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans := ConfigCheckAnswer{Config: a.ConfigPath, OK: true, Checks: app.CheckConfig(cmd.Context(), a.ConfigPath, offline)}
			for _, c := range ans.Checks {
				ans.OK = ans.OK && c.Result != app.CheckFailed
			}
			if err := a.showConfigCheck(ans); err != nil {
				return err
			}
			if !ans.OK {
				return &failed{why: "the configuration does not work"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "look at files alone and connect to nothing")
	return cmd
}

func (a *Program) showConfigCheck(ans ConfigCheckAnswer) error {
	if a.json {
		return a.answerJSON(ans)
	}
	label := map[string]string{app.CheckOK: "ok", app.CheckFailed: "FAILED", app.CheckWarning: "WARNING", app.CheckSkipped: "skipped"}
	for _, c := range ans.Checks {
		fmt.Fprintf(a.out, "%-8s %s: %s\n", label[c.Result], c.Check, c.Found)
		if c.Next != "" {
			fmt.Fprintf(a.out, "         -> %s\n", c.Next)
		}
	}
	return nil
}
