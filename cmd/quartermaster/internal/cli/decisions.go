package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

func (a *Program) decisionsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "decisions", Short: "Signed decisions: who decided what, when, and with which role and limit"}
	var since, until, asOf string
	var filter registry.DecisionFilter
	var last int
	list := &cobra.Command{
		Use:   "list",
		Short: "List all signed decisions, also those without effect",
		Long: `List shows every signed event: who decided it, when, under which role and limit, and how much
money it commits. Role and limit are those that the operator's key had at that time. A
decision without effect shows the reason; "quarantine list" shows these too.

A decision applies from its effective time, which may be before or after the decision itself:
for example a rate for last month, or a policy for next month.`,
		Example: "  quartermaster decisions list --since 2026-05-01 --until 2026-06-01\n  quartermaster decisions list --workspace platform --last 5",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cmp.Or(timeFlag("since", since, &filter.From), timeFlag("until", until, &filter.To)); err != nil {
				return err
			}
			if last < 0 {
				return commandline.Usagef("--last %d: want 0 or more", last)
			}
			ans, err := a.caller().Decisions(cmd.Context(), app.At(asOf), filter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showDecisions(ans.Decisions, last)
			return nil
		},
	}
	f := list.Flags()
	f.StringVar(&filter.Operator, "operator", "", "only decisions of this operator")
	f.StringVar(&filter.Workspace, "workspace", "", "only decisions about this workspace")
	f.StringVar(&since, "since", "", "only decisions at this time or later (RFC 3339, date or month)")
	f.StringVar(&until, "until", "", "only decisions before this time")
	f.IntVar(&last, "last", 50, "latest decisions to list; JSON has all")
	asOfFlag(list, &asOf)
	cmd.AddCommand(list)
	return cmd
}

// showDecisions lists the last decisions.
func (a *Program) showDecisions(all []registry.Decision, last int) {
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no decisions")
		return
	}
	void := 0
	limits := func(all []domain.Money) string { return cmp.Or(moneys(all), "none") }
	t := a.table("decided", "operator", "role", "limit", "decision", "of", "in effect from", "commits", "takes no effect because")
	for i := range all {
		d := &all[i]
		if d.Refused != "" {
			void++
		}
		if i < len(all)-last {
			continue
		}
		of := d.Workspace
		if of == "" {
			of = d.Scope
		}
		t.AppendRow(table.Row{moment(d.Time), d.Operator, d.Role, limits(d.Limits), string(d.Type) + " " + d.ID, of, moment(d.Effective), moneys(d.Commits), d.Refused})
	}
	t.Render()
	if n := len(all) - last; n > 0 {
		fmt.Fprintf(a.out, "and %s earlier; see --last or --since\n", comma(n))
	}
	if void > 0 {
		fmt.Fprintf(a.out, "%s of %s decisions take no effect\n", comma(void), comma(len(all)))
	}
	a.showProgram()
}

// moment shows a time to the minute.
func moment(t domain.Instant) string {
	if t == 0 {
		return ""
	}
	return t.Time().Format("2006-01-02 15:04")
}

// moneys joins amounts with commas.
func moneys(all []domain.Money) string {
	texts := make([]string, len(all))
	for i, m := range all {
		texts[i] = m.String()
	}
	return strings.Join(texts, ", ")
}
