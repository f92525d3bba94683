package cli

import (
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) recommendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "What to do about findings: propose, approve, carry out, measure",
		Long: `A recommendation is proposed, approved by others than whoever proposed it, carried out by a cluster or by
people, and measured. Every step is in the log.`,
	}
	cmd.AddCommand(append(a.recommendDecisions(), a.recommendListCommand(), a.recommendShowCommand())...)
	return cmd
}

func (a *Program) recommendListCommand() *cobra.Command {
	var q app.ProposedQuery
	var asOf string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List recommendations that were proposed",
		Long:    `List shows the recommendations in the log, the last proposed first, and how far each is.`,
		Example: "  quartermaster recommend list\n  quartermaster recommend list --stage issued -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Proposed(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showProposals(ans)
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Workspace, "workspace", "", "only recommendations for this workspace")
	f.StringVar((*string)(&q.Stage), "stage", "", "only recommendations at this stage: proposed, approved, rejected, withdrawn, lapsed, issued, actuated or measured")
	f.StringVar(&q.Kind, "kind", "", "only recommendations of this kind")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) recommendShowCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:     "show RECOMMENDATION",
		Short:   "Show a recommendation that was proposed, and how it went on",
		Long:    `Show has every step of a recommendation: who proposed and approved it, its commands, what was done, and its outcome.`,
		Example: "  quartermaster recommend show r-0123456789abcdef",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ans, err := a.caller().Proposal(cmd.Context(), app.At(asOf), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showProposal(&ans.Proposal)
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}
