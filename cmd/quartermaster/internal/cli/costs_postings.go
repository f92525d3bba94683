package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) costPostingsCommand() *cobra.Command {
	var month, asOf string
	var limit int
	cmd := &cobra.Command{
		Use:   "postings",
		Short: "Show what later events changed in closed months",
		Long: `Postings are the differences between what was closed and what the closed months divide to now, one
for each allocation. They are posted into the open period. When that is closed, its postings are
fixed with it. What was closed, plus all postings about it, is the division of today, exactly.

  late           a line that was not there when the month was closed
  correction     a line or an invoice was stated with other amounts, or corrected
  reversal       a line that is no longer there
  reattribution  the same line, divided otherwise: late telemetry, corrected usage, policies, rules
  method         the same line, divided by another version of the method
  accrual        a line of an estimate came or went: the supplier's invoice replaces it

The causes of a posting are the events that can have changed it. Rounding: the share and the line
are unchanged, and only the last digit moved. Suppliers' columns and periods stay as they are.`,
		Example: "  quartermaster costs postings\n" +
			"  quartermaster costs postings --month 2026-06 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var m domain.Interval
			if month != "" {
				var err error
				if m, err = monthFlag("month", month); err != nil {
					return err
				}
			}
			p, err := a.caller().Postings(cmd.Context(), app.At(asOf), m)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(p)
			}
			a.showPostings(p, limit)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "month", "", "month that is posted into, for example 2026-06 (default the open period)")
	f.IntVar(&limit, "limit", 100, "postings to list; 0 is all")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showPostings(p *app.Postings, limit int) {
	if p.Books == (domain.Interval{}) {
		fmt.Fprintln(a.out, "no month is closed, so nothing is posted")
		return
	}
	state := "open"
	if p.Closed {
		state = "closed"
	}
	fmt.Fprintf(a.out, "posted into %s, which is %s: %s\n", app.MonthName(p.Books), state, comma(len(p.Postings)))
	a.showPostingSums(p.Sums)
	t := a.table("month", "type", "workspace", "component", "currency", "billed", "effective", "allocation", "causes")
	alignRight(t, 6, 7)
	for i := range p.Postings {
		if x := &p.Postings[i]; limit <= 0 || i < limit {
			t.AppendRow(table.Row{x.Period, x.Type, clipped(x.Workspace), x.Component, x.Currency, x.Billed, x.Effective, clipped(x.Allocation), domain.Clip(strings.Join(x.Causes, "; "), 2*widest)})
		}
	}
	if len(p.Postings) > 0 {
		t.Render()
	}
	if limit > 0 && len(p.Postings) > limit {
		fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(len(p.Postings)-limit))
	}
	fmt.Fprintf(a.out, "position: %s\n", a.position(p.Position))
}

func (a *Program) showPostingSums(sums []app.PostingSum) {
	if len(sums) == 0 {
		return
	}
	t := a.table("month", "type", "postings", "currency", "billed", "effective")
	alignRight(t, 3, 3)
	alignRight(t, 5, 6)
	for _, s := range sums {
		kind := string(s.Type)
		if s.Rounding {
			kind += ", rounding"
		}
		t.AppendRow(table.Row{s.Period, kind, comma(s.Postings), s.Currency, s.Billed, s.Effective})
	}
	t.Render()
}
