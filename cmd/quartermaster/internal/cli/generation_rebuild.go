package cli

import (
	"fmt"

	"quartermaster/cmd/quartermaster/internal/app"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

func (a *Program) generationRebuildCommand() *cobra.Command {
	var noSwitch bool
	cmd := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Build a generation from the log, compare it with the active one, and switch",
		Long: `Rebuild folds the log from its beginning into a new generation, up to the position of the active
one. Instances keep running and reads go on. Then it compares the two generations at a common
position.

If both were made by the same version of the folds, all rows must be equal. Then the new
generation is set live and running instances take it over. It becomes active once they are at
most one second behind. If that takes more than a minute, the switch is left to you. If a row
differs, one of the generations is damaged: rebuild switches nothing, lists the first hundred
differences, and fails.

Rows of another version may differ. Rebuild shows the row counts of each table and leaves
"generation switch NAME" to you.

If the log diverged, so that it is not the one that the active generation was folded from (see
docs/operate/diverged.md), nothing can be compared. The log is folded as it is now, the new
generation is set live, and the switch is left to you.

To continue an interrupted rebuild, run it again with the same name. The previous generation
stays until "generation drop".`,
		Example: "  quartermaster generation rebuild b --config quartermaster.yaml\n  quartermaster generation rebuild b --config quartermaster.yaml --no-switch",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ans, err := a.caller().Rebuild(cmd.Context(), args[0], !noSwitch)
			if err != nil {
				return err
			}
			if err := a.showRebuilt(ans); err != nil {
				return err
			}
			if ans.RowByRow && !ans.Equal {
				return &failed{why: "the rebuilt rows differ from the active ones"}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&noSwitch, "no-switch", false, "set the generation live, but do not switch to it")
	return cmd
}

func (a *Program) showRebuilt(ans *app.Rebuilt) error {
	if a.json {
		return a.answerJSON(ans)
	}
	fmt.Fprintf(a.out, "folded %s events in %.2f s (%s events/s) into generation %s\n",
		humanize.Comma(ans.Events), ans.Seconds, humanize.Comma(int64(ans.EventsPerSecond)), ans.Generation)
	fmt.Fprintf(a.out, "position  %s\n", ans.Position)
	switch {
	case len(ans.Diverged) > 0:
		fmt.Fprintf(a.out, "digest    %s\nthe active generation %s was folded from another log, so nothing was compared:\n", ans.Digest, ans.ComparedWith)
		for _, text := range ans.Diverged {
			fmt.Fprintf(a.out, "  %s\n", text)
		}
		fmt.Fprintf(a.out, "%s is live; \"quartermaster generation switch %s --reason TEXT\" makes it active, if a replay of the log gives the same rows\n",
			ans.Generation, ans.Generation)
	case !ans.RowByRow:
		fmt.Fprintf(a.out, "the active generation %s was made by other folds (%s) than %s (%s); rows by table:\n\n", ans.ComparedWith, ans.ComparedMethod, ans.Generation, ans.Method)
		t := a.table("table", ans.ComparedWith, ans.Generation, "more")
		for _, row := range ans.Tables {
			t.AppendRow([]any{row.Table, humanize.Comma(row.ActiveRows), humanize.Comma(row.RebuiltRows), humanize.Comma(row.RebuiltRows - row.ActiveRows)})
		}
		t.Render()
		fmt.Fprintf(a.out, "\n%s is live; \"quartermaster generation switch %s --reason TEXT\" makes it active\n", ans.Generation, ans.Generation)
	case ans.Equal:
		var rows int64
		for _, t := range ans.Tables {
			rows += t.RebuiltRows
		}
		fmt.Fprintf(a.out, "digest    %s\nequal: %s rows are the same in %s\n", ans.Digest, humanize.Comma(rows), ans.ComparedWith)
		if ans.Switched {
			fmt.Fprintf(a.out, "generation %s is active now; before it was %s\n", ans.Generation, ans.ComparedWith)
		} else {
			fmt.Fprintf(a.out, "%s is live; \"quartermaster generation switch %s --reason TEXT\" makes it active\n", ans.Generation, ans.Generation)
		}
	default:
		fmt.Fprintf(a.out, "DIFFERENT: the same folds gave different rows; nothing was switched\n%-9s %s\n%-9s %s\n\n", ans.ComparedWith, ans.ActiveDigest, ans.Generation, ans.Digest)
		t := a.table("table", ans.ComparedWith, ans.Generation, "changed", "only "+ans.ComparedWith, "only "+ans.Generation)
		for _, row := range ans.Tables {
			if row.Changed+row.OnlyActive+row.OnlyRebuilt > 0 {
				t.AppendRow([]any{row.Table, row.ActiveRows, row.RebuiltRows, row.Changed, row.OnlyActive, row.OnlyRebuilt})
			}
		}
		t.Render()
		fmt.Fprintln(a.out)
		for _, d := range ans.Differences {
			fmt.Fprintf(a.out, "  %s  %s=%t %s=%t\n", d.Row, ans.ComparedWith, d.Active, ans.Generation, d.Rebuilt)
		}
		fmt.Fprintf(a.out, "\nOne of the two is damaged. \"quartermaster log replay\" prints the digest of the log.\n")
	}
	return nil
}
