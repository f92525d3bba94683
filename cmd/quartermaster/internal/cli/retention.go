package cli

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) retentionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show what may be removed, what legal holds keep, and what was removed",
		Long: `By default everything stays for ever. A policy of kind retention says how long records of a kind
stay; "quartermaster apply" declares it, signed by an admin or finance operator of the first
workspace:

  policies:
    - {id: log, kind: retention, scope: log, value: 90 days}

  hours       rows of sealed months in the database, which parts hold too: a number of months
  log         records of the log that the archive has too: a number of days
  quarantine  resolved records in quarantine, since they were resolved: a number of days
  snapshots   scheduled snapshots: the newest of each of a number of days and of months stays
  people      names of people, since their last role ended: a number of days

Of several policies for the same records the one that keeps longest counts. A legal hold stops every
removal of what it covers, until it is lifted. An admin, finance operator or auditor sets it:

  legal_holds:
    - {id: case-7, reason: a lawsuit, covers: {cluster: lab, period: 2026-Q1}}

The schedule "retention" of the configuration, "retention run" and "archive trim" remove. Every removal is recorded in
the log before it begins and when it ended.`,
	}
	cmd.AddCommand(a.retentionShowCommand(), a.retentionRunCommand())
	return cmd
}

func (a *Program) retentionRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Remove what the policies let go now",
		Long: `Run removes everything that the retention policies let go now and no legal hold keeps, as the schedule
does. "retention show" says what that is. Before hours leave the database, parts are made of them and
compared. A removal that was interrupted is finished.`,
		Example: "  quartermaster retention run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := a.caller().RunRetention(cmd.Context())
			if err == nil && a.json {
				return a.answerJSON(done)
			}
			for _, r := range done {
				fmt.Fprintf(a.out, "removal %s: %s\n", r.Removal, removedText(r.What, r.Removed))
			}
			if len(done) == 0 && err == nil {
				fmt.Fprintln(a.out, "nothing to remove")
			}
			return err
		},
	}
}

func (a *Program) retentionShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show what would be removed now, and what holds it",
		Long: `Show lists for each policy what would be removed now, the legal holds in force, and the latest
removals. It removes nothing.`,
		Example: "  quartermaster retention show\n  quartermaster retention show -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Retention(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showRetention(ans)
			return nil
		},
	}
}

// latestRemovals is how many removals a table shows.
const latestRemovals = 10

func (a *Program) showRetention(ans *app.Retention) {
	due := a.table("records", "policy", "keeps", "would be removed now", "held by")
	for i := range ans.Due {
		d := &ans.Due[i]
		what := removedText(d.What, d.Removed)
		if d.Note != "" {
			what = d.Note
		}
		due.AppendRow(table.Row{d.What, d.Policy, d.Rule, what, strings.Join(d.Holds, ", ")})
	}
	for _, what := range domain.AllRetained() {
		if ans.Rule(what) == nil {
			due.AppendRow(table.Row{what, "none", "everything", "nothing", ""})
		}
	}
	due.Render()
	if len(ans.Holds) > 0 {
		holds := a.table("legal hold", "workspace", "cluster", "period", "since", "set by", "reason")
		for i := range ans.Holds {
			h := &ans.Holds[i]
			period := ""
			if h.Period != (domain.Interval{}) {
				period = day(h.Period.From) + " to " + day(h.Period.To)
			}
			holds.AppendRow(table.Row{h.Hold, h.Workspace, h.Cluster, period, day(h.Since), h.SetBy, h.Reason})
		}
		holds.Render()
	}
	if len(ans.Removals) > 0 {
		done := a.table("removal", "policy", "by", "removed", "held by")
		for i := range ans.Removals[:min(latestRemovals, len(ans.Removals))] {
			m := &ans.Removals[i]
			what, holds := "unfinished: "+removedText(m.What, m.Removed), ""
			if m.Ended != nil {
				what, holds = removedText(m.What, m.Ended.Removed), strings.Join(m.Ended.Holds, ", ")
			}
			done.AppendRow(table.Row{m.Removal, m.Policy, m.By, what, holds})
		}
		done.Render()
	}
}

// removedText summarises what is removed.
func removedText(what domain.Retained, list []domain.Removed) string {
	var n uint64
	for i := range list {
		n += list[i].Records
	}
	count := humanize.Comma(int64(min(n, 1<<62)))
	switch {
	case n == 0:
		return "nothing"
	case what == domain.RetainedLog:
		return fmt.Sprintf("%s events of %d partitions", count, len(list))
	case what == domain.RetainedHours:
		return fmt.Sprintf("%s rows of %d parts", count, len(list))
	case what == domain.RetainedPeople:
		return count + " names"
	case what == domain.RetainedSnapshots:
		return count + " snapshots"
	}
	return count + " records"
}
