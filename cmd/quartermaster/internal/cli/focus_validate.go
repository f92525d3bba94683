package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/focus"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) focusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "focus",
		Short: "Check files against the rules of FOCUS",
		Long:  `Check files of suppliers, or one's own exports, against the rules of FOCUS, the FinOps Open Cost and Usage Specification.`,
	}
	cmd.AddCommand(a.focusValidateCommand(), a.focusRulesCommand())
	return cmd
}

func (a *Program) focusValidateCommand() *cobra.Command {
	var version string
	var most int
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check files of Cost and Usage against the rules of FOCUS",
		Long: `Check files of Cost and Usage, as CSV (plain, gzip or zstd) or Parquet, against the rules of FOCUS 1.0 to
1.4 that a file alone decides: columns present, types, nulls, allowed values, and what must hold between
columns. Every violation has file, line and rule. "quartermaster focus rules" lists the rules.

Nothing is imported. Importing is more lenient: it rejects a row only for a column that its division
needs. The exit code is 1 if a file violates a rule.`,
		Example: `  quartermaster focus validate 2026-05-cost-and-usage.csv.gz
  quartermaster focus validate export.parquet --version 1.2 -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if _, err := focus.Rules(version); err != nil {
				return commandline.Usagef("--version: %w", err)
			}
			broken := false
			for _, name := range files {
				shown, left := map[string]int{}, 0
				v, err := app.ValidateFocus(cmd.Context(), name, focus.Options{FocusVersion: version}, func(x focus.Violation) {
					switch shown[x.Rule]++; {
					case a.json:
					case shown[x.Rule] <= most:
						fmt.Fprintln(a.err, x)
					default:
						left++
					}
				})
				if err != nil {
					return err
				}
				broken = broken || v.Violations > 0
				if a.json {
					if err := a.jsonLine(&v); err != nil {
						return err
					}
					continue
				}
				if left > 0 {
					fmt.Fprintf(a.err, "%s: %s more violations of the same rules\n", name, comma(left))
				}
				a.showVerdict(&v)
			}
			if broken {
				return &failed{why: "a file violates rules of FOCUS"}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "FOCUS version, 1.0 to 1.4 (default: the one that the columns show)")
	cmd.Flags().IntVar(&most, "most", 5, "violations of each rule that are listed; all are counted")
	return cmd
}

func (a *Program) showVerdict(v *focus.Verdict) {
	fmt.Fprintf(a.out, "%s: FOCUS %s, %s rows, %s rules: %s violations of %d rules\n",
		v.File, v.Version, comma(v.Rows), comma(v.Rules), comma(v.Violations), len(v.ByRule))
	if len(v.ByRule) == 0 {
		return
	}
	t := a.table("rule", "violations", "first line")
	for _, id := range slices.Sorted(maps.Keys(v.ByRule)) {
		i := slices.IndexFunc(v.First, func(x focus.Violation) bool { return x.Rule == id })
		t.AppendRow(table.Row{id, comma(v.ByRule[id]), v.First[i].Line})
	}
	t.Render()
}

func (a *Program) focusRulesCommand() *cobra.Command {
	var version, column string
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List the rules of FOCUS that are checked",
		Long: `List the rules of FOCUS that "quartermaster focus validate" checks. Rules that need more than one file,
or what the supplier alone knows, are not among them.`,
		Example: "  quartermaster focus rules --version 1.2\n  quartermaster focus rules --column EffectiveCost",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rules, err := focus.Rules(version)
			if err != nil {
				return commandline.Usagef("--version: %w", err)
			}
			if column != "" {
				rules = slices.DeleteFunc(rules, func(r focus.Rule) bool { return !strings.EqualFold(r.Column, column) })
				if len(rules) == 0 {
					return &app.NotFoundError{What: "column", Name: column, Err: errors.New("no rule is about column " + column)}
				}
			}
			if a.json {
				return a.answerJSON(rules)
			}
			t := a.table("rule", "since", "until", "text")
			for _, r := range rules {
				t.AppendRow(table.Row{r.ID, r.Since, r.Until, r.Text})
			}
			t.Render()
			return nil
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "FOCUS version, 1.0 to 1.4 (default: all)")
	cmd.Flags().StringVar(&column, "column", "", "column of the rules")
	return cmd
}
