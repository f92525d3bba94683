package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

func (a *Program) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Who decided what, who read what over the API, and reports of it"}
	cmd.AddCommand(a.auditAccessCommand(), a.auditTrailCommand(), a.auditReportCommand())
	return cmd
}

func (a *Program) auditAccessCommand() *cobra.Command {
	var q app.AccessAuditQuestion
	var principal, from, to, asOf string
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Who read what, when, and who could have",
		Long: `Access lists what was asked of the API, a line for each minute, principal and operation: how often,
how often it was refused, at which position of the log, and the digest of the last question. Then
it lists the grants that counted in the period: who could have asked.

What the owner of the home asks by the socket of the API or by commands is not recorded.`,
		Example: "  quartermaster audit access --from 2026-05-01 --to 2026-06-01 --workspace research\n" +
			"  quartermaster audit access --principal user:corp/248289761001 --refused",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cmp.Or(timeFlag("from", from, &q.Period.From), timeFlag("to", to, &q.Period.To)); err != nil {
				return err
			}
			q.Principal = domain.Principal(principal)
			ans, err := a.caller().AuditAccess(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAudit(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Workspace, "workspace", "", "only what could show this workspace")
	f.StringVar(&principal, "principal", "", "only what this principal asked")
	f.StringVar(&from, "from", "", "only from this time on (RFC 3339, date or month; default a day ago)")
	f.StringVar(&to, "to", "", "only before this time (default now)")
	f.BoolVar(&q.Refused, "refused", false, "only what was refused")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showAudit(ans *app.AccessAudit) {
	if len(ans.Asked) == 0 {
		fmt.Fprintln(a.out, "nobody asked anything")
	} else {
		t := a.table("minute", "principal", "operation", "sees", "times", "refused")
		for i := range ans.Asked {
			x := &ans.Asked[i]
			sees := strings.Join(x.Workspaces, ", ")
			switch {
			case x.Refused == x.Count:
				sees = "nothing"
			case sees == "":
				sees = "the whole estate"
			}
			t.AppendRow(table.Row{moment(x.Time), x.Principal, x.Operation, domain.Clip(sees, widest), x.Count, x.Refused})
		}
		t.Render()
	}
	if len(ans.Could) > 0 {
		t := a.table("could have asked", "role", "workspace", "from", "to")
		for i := range ans.Could {
			g := &ans.Could[i]
			t.AppendRow(table.Row{g.Principal, g.Role, g.Workspace, moment(g.From), moment(g.To)})
		}
		t.Render()
	}
}

func (a *Program) auditTrailCommand() *cobra.Command {
	var q app.TrailQuestion
	var from, to, asOf string
	cmd := &cobra.Command{
		Use:   "trail",
		Short: "Who decided what, when, and what came of it",
		Long: `Trail lists every signed decision and every refused attempt in one line: who decided, about which
workspace and cluster, what, when, and what came of it. A decision is in effect, took no effect
and why, was superseded or ended by a later one, or waits. The approval of a recommendation says
when it was actuated, and the outcome.

Each line names a partition and offset of the log, so that "log prove", or quartermaster-audit
with the archive alone, proves it. JSON names the records that the outcome follows from, too.

Flags combine. Attempts that a server refused are about the whole estate: a right in a workspace
does not show them.`,
		Example: "  quartermaster audit trail --workspace research --from 2026-05-01 --to 2026-06-01\n" +
			"  quartermaster audit trail --recommendation rec-42\n" +
			"  quartermaster audit trail --operator ann -o csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(timeFlag("from", from, &q.From), timeFlag("to", to, &q.To)); err != nil {
				return err
			}
			ans, err := a.caller().AuditTrail(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showTrail(ans.Entries)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Workspace, "workspace", "", "only what is about this workspace, or makes it pay")
	f.StringVar(&q.Cluster, "cluster", "", "only what is about this cluster")
	f.StringVar(&q.Recommendation, "recommendation", "", "only this recommendation, with what nobody signed about it")
	f.StringVar(&q.Operator, "operator", "", "only what this operator decided or tried")
	f.StringVar(&from, "from", "", "only from this time on (RFC 3339, date or month)")
	f.StringVar(&to, "to", "", "only before this time")
	f.BoolVar(&q.Refused, "refused", false, "only what was refused, or took no effect")
	asOfFlag(cmd, &asOf)
	return cmd
}

// showTrail writes a sentence for each entry; as CSV, a column for each of its parts.
func (a *Program) showTrail(all []registry.Entry) {
	if a.output == asCSV {
		t := a.table("time", "operator", "role", "workspace", "cluster", "subject", "type", "did", "state", "outcome", "appended", "partition", "offset")
		for i := range all {
			e := &all[i]
			t.AppendRow(table.Row{e.Time, e.Operator, e.Role, e.Workspace, e.Cluster, e.Subject, e.Type, e.Did, e.State, e.Outcome, e.Appended, e.Partition, e.Offset})
		}
		t.Render()
		return
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "nobody decided anything")
		return
	}
	for i := range all {
		e := &all[i]
		fmt.Fprintf(a.out, "%s  %s  [%s@%d]\n", e.Time.Time().Format("2006-01-02 15:04:05"), e.Says, e.Partition, e.Offset)
	}
}
