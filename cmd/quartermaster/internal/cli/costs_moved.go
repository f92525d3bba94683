package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

func (a *Program) costMovedCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "moved",
		Short: "Compare a saved answer with the costs that the current methods compute",
		Long: `Moved compares a saved answer (costs --by workspace,component -o json) with the costs that
this program's methods compute for the same month and log position. It lists the changes by
workspace and component. Totals cover all rows, changed or not. If both methods divide the
same lines, the totals do not change.

The saved answer names its methods. A program with those methods reproduces it with
"costs --as-of POSITION". When an organisation adopts a new method, declare that in an estate
file (methods: id, version, effective_from, reason) with "quartermaster apply": the
declaration is signed and kept in the log (MethodChanged).`,
		Example: "  quartermaster costs --period 2026-05 --by workspace,component -o json > may.json\n" +
			"  quartermaster costs moved --before may.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("--before: %w", err)
			}
			var before costs.Kept
			if err := json.Unmarshal(data, &before); err != nil {
				return fmt.Errorf("--before %s: %w; save an answer with \"quartermaster costs --period MONTH --by workspace,component -o json\"", file, err)
			}
			if err := before.Check(); err != nil {
				return fmt.Errorf("--before %s: %w", file, err)
			}
			moves, err := a.caller().CostsMoved(cmd.Context(), &before)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(moves)
			}
			a.showMoves(moves)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "before", "", "file with the saved answer (required)")
	must(cmd.MarkFlagRequired("before"))
	return cmd
}

func (a *Program) showMoves(m *costs.Moves) {
	fmt.Fprintf(a.out, "costs of %s, %s compared with %s\n", app.MonthName(m.Month), m.After.Attribution, m.Before.Attribution)
	t := a.table("workspace", "component", "currency", "billed before", "billed after", "billed moved", "effective before", "effective after", "effective moved")
	alignRight(t, 4, 9)
	row := func(workspace, component string, c *costs.Move) {
		t.AppendRow(table.Row{workspace, component, c.Currency, c.Billed.Before, c.Billed.After, c.Billed.Moved, c.Effective.Before, c.Effective.After, c.Effective.Moved})
	}
	still := map[string]*costs.Move{}
	moved := 0
	for i := range m.Moves {
		c := &m.Moves[i]
		if !c.Billed.Moved.IsZero() || !c.Effective.Moved.IsZero() {
			row(clipped(c.Workspace), c.Component, c)
			moved++
			continue
		}
		s := still[c.Currency]
		if s == nil {
			s = &costs.Move{Currency: c.Currency}
			still[c.Currency] = s
		}
		for _, of := range [...]struct{ to, from *costs.Moved }{{&s.Billed, &c.Billed}, {&s.Effective, &c.Effective}} {
			of.to.Before, of.to.After = of.to.Before.Add(of.from.Before), of.to.After.Add(of.from.After)
		}
	}
	for i := range m.Totals {
		if s := still[m.Totals[i].Currency]; s != nil {
			row("(did not move)", "", s)
		}
	}
	t.AppendSeparator()
	for i := range m.Totals {
		row("total", "", &m.Totals[i])
	}
	t.Render()
	if moved == 0 {
		fmt.Fprintln(a.out, "nothing moved")
	}
	fmt.Fprintf(a.out, "to reproduce the earlier answer, use a program with %s on %s and --as-of %s\n", m.Before.Attribution, m.Before.Folds, a.position(m.Position))
}
