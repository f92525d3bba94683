package cli

import (
	"github.com/spf13/cobra"
)

func (a *Program) planInstanceCommand() *cobra.Command {
	var asOf string
	fl := usualPlan()
	cmd := &cobra.Command{
		Use:   "instance",
		Short: "Write the problem that a plan solves, as a file",
		Long: `Instance writes the procurement problem that "quartermaster plan" with the same flags solves: the
pools that can be planned with their demand hour by hour, offers, commitments, quotas and budgets.
It is a JSON document, which "quartermaster schema instance" describes; its notes name the pools that
cannot be planned. Nothing is recorded.

Whoever has the file can change it, solve it with "plan solve" without the log, check an answer to it
with "plan check", or hand it to another solver.`,
		Example: "  quartermaster plan instance --at 2026-06-01 --region us-west-2 > question.json\n" +
			"  quartermaster plan solve question.json --out answer.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := a.instanceOfLog(cmd.Context(), &fl, asOf)
			if err != nil {
				return err
			}
			return a.answerJSON(in)
		},
	}
	questionFlags(cmd, &fl)
	asOfFlag(cmd, &asOf)
	return cmd
}
