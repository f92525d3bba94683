package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

func (a *Program) costFXCommand() *cobra.Command {
	var period, asOf string
	cmd := &cobra.Command{
		Use:   "fx",
		Short: "Show the rates that translate a month to the currency of the books",
		Long: `FX shows which rates translate a month to the currency of the books, with their sources, what is
missing, and what the rate at the end of the month makes of what is owed.

The books have one currency, declared by a policy of kind books_currency of the root workspace. A legal
entity may keep its books in another one: what its workspaces are charged is translated to that.
Policies and rates are declared with "quartermaster apply":

  policies:
    - {id: books, kind: books_currency, value: USD}
    - {id: books-de, kind: books_currency, value: EUR, columns: {x_Entity: acme-de}}
  fx_rates:
    - {pair: EUR/USD, rate: 1.0823, kind: average, effective: 2026-05, citation: ECB}
    - {pair: EUR/USD, rate: 1.0712, kind: payment, effective: {from: 2026-01-03, to: 2026-01-04}}
    - {pair: EUR/USD, rate: 1.0901, kind: closing, effective: {from: 2026-05-31, to: 2026-06-01}}

average is for expense, and has to be in effect in the whole month. payment is for what was paid at
once for a term: it has to be in effect on its first day, and holds until all of it is consumed. A
commitment that was paid in part at once has a rate of its own, from both. closing is for balances at
the end of the month. A rate may be declared in the other direction. Rates are never chained over a
third currency, and two different rates for one thing are an error.

"quartermaster costs close prepare" freezes the rates of a month, the closing rates that are declared until
then among them.`,
		Example: "  quartermaster costs fx --period 2026-05\n  quartermaster costs fx --period 2026-05 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			m, err := a.caller().FX(cmd.Context(), app.At(asOf), month)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(m)
			}
			a.showFX(m)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "billing month in UTC, for example 2026-05 (required)")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showFX(m *costs.FXMonth) {
	of := []string{m.Currency}
	for _, entity := range slices.Sorted(maps.Keys(m.Entities)) {
		of = append(of, clipped(entity)+" in "+m.Entities[entity])
	}
	fmt.Fprintf(a.out, "%s in the currency of the books, %s\n", app.MonthName(m.Month), strings.Join(of, "; "))
	a.showTranslation(&m.Translation)
	for _, id := range m.Undeclared {
		fmt.Fprintf(a.out, "nobody declared commitment %s: its use has the average rate of the month; if it was paid at once, declare it\n", clipped(id))
	}
	for _, p := range m.Problems {
		fmt.Fprintln(a.out, "missing: "+p)
	}
	if len(m.Balances) == 0 {
		return
	}
	t := a.table("currency", "billed", "books", "as expense", "closing rate", "at closing rate", "difference")
	alignRight(t, 2, 7)
	for i := range m.Balances {
		b := &m.Balances[i]
		row := table.Row{b.Currency, cents(b.Billed, b.Currency), b.Books, cents(b.Expense, b.Books), "unknown", "unknown", "unknown"}
		if b.Rate != nil {
			row[4], row[5], row[6] = b.Rate.String(), cents(*b.Owed, b.Books), cents(*b.Difference, b.Books)
		}
		t.AppendRow(row)
	}
	t.Render()
	for i := range m.Balances {
		if b := &m.Balances[i]; b.Problem != "" {
			fmt.Fprintln(a.out, "note: "+b.Problem)
		}
	}
}

// showTranslation shows rates; nil has none.
func (a *Program) showTranslation(t *costs.Translation) {
	if t == nil {
		return
	}
	frozen := ""
	if t.Frozen {
		frozen = ", as closed"
	}
	a.showRates(frozen, t.Rates)
}

func (a *Program) showRates(frozen string, rates []domain.BooksRate) {
	for _, r := range rates {
		of := ""
		if r.Commitment != "" {
			of = " for commitment " + clipped(r.Commitment)
			if !r.TermFrom.IsZero() {
				of += " from " + r.TermFrom.Time().Format(time.DateOnly)
			}
		}
		if r.Kind == domain.FXClosing {
			of = " for balances"
		}
		fmt.Fprintf(a.out, "rate: 1 %s is %s %s%s%s: %s\n", r.Base, r.Rate, r.Quote, of, frozen, r.Citation)
	}
}
