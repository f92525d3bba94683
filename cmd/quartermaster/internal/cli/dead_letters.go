package cli

import (
	"fmt"

	"quartermaster/cmd/quartermaster/internal/app"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

func (a *Program) deadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "Events that webhooks and other reactions could not handle",
	}
	cmd.AddCommand(a.deadLettersListCommand())
	return cmd
}

func (a *Program) deadLettersListCommand() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest dead letters",
		Long: `List shows the newest messages of the topic ` + string(app.TopicDeadLetters) + `, oldest first. Each is an
event that a reaction of a serving instance (alerts, replan or webhook.NAME) could not
handle, with the reason. The events are in the log, at topic, partition and offset, and are
counted like any other. Notify the intended recipients yourself.

A message that no reaction wrote has an empty reaction, and its own position in
` + string(app.TopicDeadLetters) + `.`,
		Example: "  quartermaster dead-letters list --config quartermaster.yaml\n  quartermaster dead-letters list --brokers kafka:9092 -n 100 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, wrong, err := a.caller().DeadLetters(cmd.Context(), n)
			if err != nil {
				return err
			}
			if wrong != nil {
				a.note("the settings of the topic were changed, so messages may be missing: %v", wrong)
			}
			if a.json {
				return a.answerJSON(list)
			}
			if len(list) == 0 {
				fmt.Fprintln(a.out, "no dead letters")
				return nil
			}
			t := a.table("at", "reaction", "event", "type", "subject", "reason")
			for _, e := range list {
				t.AppendRow(table.Row{e.At, named(e.Reaction), fmt.Sprintf("%s/%d@%d", e.Topic, e.Partition, e.Offset), e.Type, named(e.Subject), named(e.Reason)})
			}
			t.Render()
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "number of messages")
	return cmd
}
