package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) costRestateCommand() *cobra.Command {
	var period string
	var limit int
	cmd := &cobra.Command{
		Use:   "restate FROM [TO]",
		Short: "Show what changed in a month between two positions, by cause",
		Long: `Restate divides a month at two points in the log, and compares the allocations. The default of TO is
the present. Changes are summed up by type and cause, as in "quartermaster costs postings"; those
that moved only the last digit of an unchanged share are rounding, and apart. The sums of the causes
are the difference of the totals, exactly.

FROM and TO are what --as-of takes: positions, names of snapshots, or times.`,
		Example: "  quartermaster costs restate 2026-06-10 --period 2026-05\n" +
			"  quartermaster costs restate 2026-06-10 2026-07-10 --period 2026-05 -o json",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			to := ""
			if len(args) > 1 {
				to = args[1]
			}
			r, err := a.caller().Restate(cmd.Context(), app.At(args[0]), app.At(to), month)
			if err != nil {
				return err
			}
			if a.json {
				shown := *r
				shown.Changes = firstOf(r.Changes, limit)
				return a.answerJSON(&shown)
			}
			a.showRestatement(r, limitOf(cmd, limit))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.IntVar(&limit, "limit", 0, "list so many single allocations, too; 0 is all (default none, in JSON all)")
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showRestatement(r *app.Restatement, limit int) {
	fmt.Fprintf(a.out, "%s from %s to %s: %s allocations changed\n", app.MonthName(r.Month), a.position(r.From), a.position(r.To), comma(len(r.Changes)))
	t := a.table("total", "currency", "billed", "effective")
	alignRight(t, 3, 4)
	for _, side := range []struct {
		name string
		sums []app.BooksSum
	}{{"before", r.Before}, {"after", r.After}} {
		for _, s := range side.sums {
			t.AppendRow(table.Row{side.name, s.Currency, s.Billed, s.Effective})
		}
	}
	t.Render()
	if len(r.Changes) == 0 {
		return
	}
	t = a.table("type", "allocations", "currency", "billed", "effective", "causes")
	alignRight(t, 2, 2)
	alignRight(t, 4, 5)
	for i := range r.Causes {
		c := &r.Causes[i]
		kind := string(c.Type)
		if c.Rounding {
			kind += ", rounding"
		}
		t.AppendRow(table.Row{kind, comma(c.Postings), c.Currency, c.Billed, c.Effective, domain.Clip(strings.Join(c.Causes, "; "), 3*widest)})
	}
	t.Render()
	a.showPostingsOf(r.Changes, limit)
}
