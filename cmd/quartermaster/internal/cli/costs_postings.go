package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
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
				shown := *p
				shown.Postings = firstOf(p.Postings, limit)
				return a.answerJSON(&shown)
			}
			a.showPostings(p, limitOf(cmd, limit))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "month", "", "month that is posted into, for example 2026-06 (default the open period)")
	f.IntVar(&limit, "limit", 0, "list so many single allocations, too; 0 is all (default none, in JSON all)")
	asOfFlag(cmd, &asOf)
	return cmd
}

// noPostings is the limit if none is given.
const noPostings = -1

func limitOf(cmd *cobra.Command, limit int) int {
	if !cmd.Flags().Changed("limit") {
		return noPostings
	}
	return max(0, limit)
}

// firstOf returns the first so many; 0 is all.
func firstOf[T any](all []T, limit int) []T {
	if limit > 0 && limit < len(all) {
		return all[:limit]
	}
	return all
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
	a.showPostingsOf(p.Postings, limit)
	fmt.Fprintf(a.out, "position: %s\n", a.position(p.Position))
}

// showPostingsOf shows what is posted to whom. A line may have an allocation for each hour, of a part of a cent:
// such are summed up, in cents that add up to their total, and listed if a limit is given.
func (a *Program) showPostingsOf(all []costs.Posting, limit int) {
	if len(all) == 0 {
		return
	}
	type key struct{ month, kind, workspace, component, currency, causes string }
	type sum struct {
		postings          int
		billed, effective attribution.Amount
	}
	sums := map[key]sum{}
	var order []key
	for i := range all {
		x := &all[i]
		k := key{x.Period, string(x.Type), x.Workspace, x.Component, x.Currency, strings.Join(x.Causes, "; ")}
		if x.Rounding {
			k.kind += ", rounding"
		}
		s, known := sums[k]
		if !known {
			order = append(order, k)
		}
		sums[k] = sum{s.postings + 1, s.billed.Add(x.Billed), s.effective.Add(x.Effective)}
	}
	slices.SortStableFunc(order, func(x, y key) int { return strings.Compare(x.currency, y.currency) })
	t := a.table("month", "type", "workspace", "component", "currency", "postings", "billed", "effective", "causes")
	alignRight(t, 6, 8)
	for from := 0; from < len(order); {
		to := from
		var billed, effective []attribution.Amount
		for ; to < len(order) && order[to].currency == order[from].currency; to++ {
			billed, effective = append(billed, sums[order[to]].billed), append(effective, sums[order[to]].effective)
		}
		inBilled, inEffective := attribution.Apportion(billed, order[from].currency), attribution.Apportion(effective, order[from].currency)
		for i := from; i < min(to, shownRows); i++ {
			k := order[i]
			t.AppendRow(table.Row{
				k.month, k.kind, clipped(k.workspace), k.component, k.currency, comma(sums[k].postings),
				cents(inBilled[i-from].Amount, k.currency), cents(inEffective[i-from].Amount, k.currency), domain.Clip(k.causes, 2*widest),
			})
		}
		from = to
	}
	t.Render()
	a.more(len(order))
	if limit == noPostings {
		return
	}
	t = a.table("type", "currency", "billed", "effective", "allocation")
	alignRight(t, 3, 4)
	for i := range all {
		if x := &all[i]; limit <= 0 || i < limit {
			t.AppendRow(table.Row{x.Type, x.Currency, x.Billed, x.Effective, x.Allocation})
		}
	}
	t.Render()
	if limit > 0 && len(all) > limit {
		fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(len(all)-limit))
	}
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
