package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

func (a *Program) rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check mapping rules for lines of bills",
		Long: `Mapping rules say who is charged for lines of bills that are for no machine, and what lines buy. They are
declared with "quartermaster apply", and "quartermaster get rules" lists those in force.`,
	}
	cmd.AddCommand(a.rulesCheckCommand())
	return cmd
}

func (a *Program) rulesCheckCommand() *cobra.Command {
	var period, asOf string
	var files []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show which lines of a month each mapping rule takes",
		Long: `Check divides a month's bills and shows, for each mapping rule in the order in which they are tried, which
lines it takes and their cost. A rule that says who is charged takes lines that are for no machine. What
no rule takes is listed by account and service, with what becomes of it. So are rules that take nothing,
and the earlier rules that take their lines.

With --file, the mapping rules of a file count as if they were in force in the month, whatever their
dates, and replace those of the same name. Nothing is recorded. Lines are read as they are now, even if
the month is closed. Rules for pods, by cluster and namespace, are not checked.`,
		Example: "  quartermaster rules check --period 2026-05\n" +
			"  quartermaster rules check --period 2026-05 -f rules.yaml\n" +
			"  quartermaster rules check --period 2026-05 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			var declared *app.Declarations
			if len(files) > 0 {
				if declared, err = a.readDeclarations(files); err != nil {
					return err
				}
			}
			ans, err := a.caller().CheckRules(cmd.Context(), app.At(asOf), month, declared)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			a.showRulesCheck(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to check, for example 2026-05 (required)")
	f.StringSliceVarP(&files, "file", "f", nil, "file with mapping rules that are not applied, YAML or JSON")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

// ruleCosts returns costs with their currencies.
func ruleCosts(all []costs.RuleCost) string {
	parts := make([]string, len(all))
	for i, c := range all {
		parts[i] = c.Effective.StringFixed(2) + " " + c.Currency
	}
	return strings.Join(parts, ", ")
}

func (a *Program) showRulesCheck(ans *costs.RulesCheck) {
	rules := a.table("#", "rule", "says", "columns", "lines", "effective cost", "of machines", "behind", "note")
	for i := range ans.Rules {
		r := &ans.Rules[i]
		var columns, behind []string
		for _, name := range slices.Sorted(maps.Keys(r.Columns)) {
			columns = append(columns, name+"="+r.Columns[name])
		}
		for _, b := range r.Behind {
			behind = append(behind, fmt.Sprintf("%s (%d)", b.Rule, b.Lines))
		}
		name := r.Rule
		if r.Proposed {
			name += " (proposed)"
		}
		rules.AppendRow(table.Row{i + 1, name, r.Says, strings.Join(columns, ", "), r.Lines, ruleCosts(r.Costs), r.OfMachines,
			strings.Join(behind, ", "), r.Note})
	}
	if len(ans.Rules) == 0 {
		fmt.Fprintf(a.out, "no rule for lines of bills is in force in %s\n", app.MonthName(ans.Month))
	} else {
		rules.Render()
	}
	if len(ans.NotTaken) > 0 {
		fmt.Fprintln(a.out, "taken by no rule:")
		not := a.table("issuer", "billing account", "service", "lines", "effective cost", "becomes")
		for i := range ans.NotTaken {
			n := &ans.NotTaken[i]
			not.AppendRow(table.Row{n.Issuer, n.Account, orNone(n.Service), n.Lines, ruleCosts(n.Costs), n.Becomes})
		}
		not.Render()
	}
	for _, x := range ans.Ignored {
		fmt.Fprintf(a.out, "not followed: %s: %s\n", x.Subject, x.Detail)
	}
	a.showPosition(ans.Position)
	a.reportEnds(ans.Completeness)
}

// readDeclarations reads files of declarations.
func (a *Program) readDeclarations(files []string) (*app.Declarations, error) {
	var documents []app.Document
	for _, path := range files {
		f, err := a.OpenFile(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		documents = append(documents, app.Document{Name: path, Text: f})
	}
	return app.ReadDeclarations(documents...)
}
