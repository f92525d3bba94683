package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/recommend"
)

func (a *Program) adviceActionsCommand() *cobra.Command {
	var (
		q        app.RecommendQuery
		at, asOf string
		refused  bool
		limit    int
	)
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "What could be done about the findings, and what it saves",
		Long: `Actions lists what could be done about the findings, the most money first, each with what a month (730
hours) of it saves, a 90% interval, its evidence, and the clusters that it touches. The savings add up:
several about the same machines or money exclude each other, and no workspace saves more than it pays.

What would break a policy of residency, certification, placement, separation or dedication, or a hard
budget, is refused, and so is what another one excludes: see --refused. The policies are checked by other
code than that which made the list.

The id is a digest of what is proposed to whom, so it is the same tomorrow. "quartermaster recommend
propose ID" records one for approval.`,
		Example: "  quartermaster advice actions --at 2026-06-01\n  quartermaster advice actions --at 2026-06-01 --kind rightsize --refused -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := timeFlag("at", at, &q.At); err != nil {
				return err
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			ans, err := a.caller().Recommendations(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			a.showActions(ans, refused, limit)
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.StringVar(&q.Workspace, "workspace", "", "only for this workspace")
	f.StringVar(&q.Cluster, "cluster", "", "only those that touch this cluster")
	f.StringVar(&q.Kind, "kind", "", "only this kind, for example rightsize, sleep, shift or lapse")
	f.BoolVar(&refused, "refused", false, "also list what was refused, and why; JSON has it")
	f.IntVar(&limit, "limit", 20, "actions to list; JSON has all")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showActions(r *recommend.Advice, refused bool, limit int) {
	if len(r.Made) == 0 {
		fmt.Fprintln(a.out, "nothing to do")
	} else {
		a.actionTable(r.Made, limit)
	}
	for _, s := range r.Sums {
		if s.Saved.IsPositive() {
			fmt.Fprintf(a.out, "workspace %s: %s of %s %s a month\n", s.Workspace, s.Saved.StringFixed(2), s.Paid.StringFixed(2), s.Currency)
		}
	}
	if n := len(r.Refused); n > 0 && !refused {
		fmt.Fprintf(a.out, "%s refused: see --refused\n", comma(n))
	}
	if refused && len(r.Refused) > 0 {
		fmt.Fprintln(a.out, "\nRefused:")
		t := a.table("kind", "workspace", "what", "because")
		for i := range r.Refused[:min(limit, len(r.Refused))] {
			x := &r.Refused[i]
			t.AppendRow(table.Row{x.Kind, x.Workspace, x.Summary, x.Because})
		}
		t.Render()
	}
}

// actionTable lists recommendations.
func (a *Program) actionTable(all []recommend.Recommendation, limit int) {
	t := a.table("recommendation", "kind", "workspace", "clusters", "saves a month", "from", "to", "what")
	t.SetColumnConfigs(rightFrom(5, 7))
	for i := range all[:min(limit, len(all))] {
		x := &all[i]
		t.AppendRow(table.Row{x.ID, x.Kind, x.Workspace, strings.Join(x.Clusters, ", "), priceOf(x.Saving), priceOf(x.Low), priceOf(x.High), x.Summary})
	}
	t.Render()
	if n := len(all) - limit; n > 0 {
		fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(n))
	}
}
