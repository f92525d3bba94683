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
		Short: "Check and show the production configuration",
		Long: `In production the log is in Apache Kafka and the rows are in Postgres. One file configures
both. Every command takes it with --config. "quartermaster config example" prints the file
with comments that explain each field.

Every field except webhooks can be set in the environment instead. The variable is
QUARTERMASTER_ followed by the path of the key in capitals; lists are separated by commas:
QUARTERMASTER_KAFKA_BROKERS, QUARTERMASTER_POSTGRES_DSN_FILE. The environment overrides the
file. An empty variable counts as not set.

Secrets are in separate files, readable by their owner only.`,
	}
	cmd.AddCommand(a.configCheckCommand(), a.configShowCommand(), a.configExampleCommand())
	return cmd
}

func (a *Program) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print an example configuration with comments",
		Long: `Example prints a configuration that explains every field. With -o json it is one document
with the key example.`,
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
		Short: "Print the configuration in effect and the source of each value",
		Long: `Show prints every field with its value in effect and the source of the value: a line of the
file, an environment variable, or the default. It opens no secret file. Of a webhook address
it shows only the host, because the address may be secret.`,
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

// ConfigCheckAnswer is the answer of "config check".
type ConfigCheckAnswer struct {
	Config string            `json:"config"` // the file
	OK     bool              `json:"ok"`
	Checks []app.ConfigCheck `json:"checks"`
}

func (a *Program) configCheckCommand() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try everything that the configuration names, without changing anything",
		Long: `Check reads the configuration and tries what serve will need:
- secret files exist and are closed to others;
- every broker answers, with the configured encryption and login;
- every topic exists with the settings and partitions that the log needs, and every partition
  has a reachable leader;
- Postgres answers, is version 15 or newer and accepts writes, and its schema and active
  generation belong to this program and this log;
- snapshots can be written;
- the gateway's certificate is valid, with a warning 14 days before it expires (or in the last
  third of a shorter life).

Check also reports the clock differences, the next time of each schedule, and whom webhooks
would notify. It does not call the webhooks.

It creates and changes nothing. Before the first start it reports missing topics and schema
with the command that creates them. This is a failure only if this user may not create them;
then check names the missing rights.

Each check is one line: ok, WARNING, skipped or FAILED, what was found, and what to do next.
Exit status 1 if any check failed. --offline connects to nothing.`,
		Example: "  quartermaster config check --config quartermaster.yaml\n  quartermaster config check --config quartermaster.yaml --offline -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans := ConfigCheckAnswer{Config: a.ConfigPath, OK: true, Checks: a.CheckConfig(cmd.Context(), a.ConfigPath, offline)}
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
	cmd.Flags().BoolVar(&offline, "offline", false, "check files only and connect to nothing")
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
