package cli

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) adviceScoreCommand() *cobra.Command {
	var workspace, asOf string
	cmd := &cobra.Command{
		Use:   "score",
		Short: "What recommendations were worth: predicted and measured, by rule and kind",
		Long: `Score counts the recommendations in the log by the rule whose finding they cite and their kind: how many were
proposed, approved and carried out, and of those that were measured how many came true. One came true if its
measured saving is at least the low end of its interval, or if it saves no money and its finding is gone.

A saving is measured over the 30 days after it was carried out, against what they would have cost at the prices
of the 30 days before it was proposed, as much more or less as demand grew or fell. Covered counts the measured
savings that are within the predicted interval of 90%.`,
		Example: "  quartermaster advice score\n  quartermaster advice score --workspace research -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Score(cmd.Context(), app.At(asOf), workspace)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			if len(ans.Scores) == 0 {
				fmt.Fprintln(a.out, "no recommendation was proposed")
			} else {
				t := a.table("rule", "kind", "made", "approved", "done", "measured", "came true", "predicted a month", "realised", "covered")
				t.SetColumnConfigs(rightFrom(3, 10))
				for i := range ans.Scores {
					s := &ans.Scores[i]
					predicted, realised, covered := "", "", ""
					if s.Of > 0 {
						predicted, realised = s.Predicted.StringFixed(2)+" "+s.Currency, s.Realised.StringFixed(2)+" "+s.Currency
						covered = fmt.Sprintf("%d of %d", s.Covered, s.Of)
					}
					t.AppendRow(table.Row{s.Rule, s.Kind, s.Made, s.Approved, s.Done, s.Measured, s.CameTrue, predicted, realised, covered})
				}
				t.Render()
			}
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	cmd.Flags().StringVar(&workspace, "workspace", "", "only recommendations for this workspace")
	asOfFlag(cmd, &asOf)
	return cmd
}
