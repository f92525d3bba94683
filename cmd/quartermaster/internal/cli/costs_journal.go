package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/ledger"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

func (a *Program) costJournalCommand() *cobra.Command {
	var month, entity, currency, layout, out, asOf string
	cmd := &cobra.Command{
		Use:   "journal --month MONTH --layout NAME|FILE",
		Short: "Write a closed month as entries for the general ledger",
		Long: `Journal makes balanced entries of a closed month, from the allocations that were closed and from what
was posted into the month about earlier ones:

  debit   what was used: expense accounts, with cost centres
          what was billed and not used, or used and billed before: prepaid
          recoverable tax, and the rounding of invoices
  credit  what is owed: payable with an invoice, accrued without one, owned for owned hardware

Policies of kind ledger_account are the chart of accounts. Nothing is guessed: whatever has no account
is listed, and no journal is made. Amounts are in whole minor units of the currencies that were
billed. They add up to the statements of the month, and to the notes about earlier ones. The debits of
each document, entity and currency equal its credits.

Expense is that of the legal entity of the workspace in the hour that was paid for. The entity that gets
the invoice owes the supplier; what it bears for another one is due from that one, and due to it there.

With --currency books, each entity's entries are in the currency of its books, at the rates that the month was
closed with: expense at the average rate of the month, what was paid for later months at that of its
payment, and what is owed, due or recoverable at that of the end of the month. The difference is booked on the
account for fx. An accrual is taken back as it was booked. Without a closing rate there is no journal.

An accrual has the date on which it is reversed, the first day of the next month. The journal of that
month takes it back, and books it again unless the invoice of the supplier has come. A layout with the
column {reversal_date}, such as netsuite, leaves the reversal to the ledger system.

--layout is the layout of the file: ` + strings.Join(ledger.Names(), ", ") + `, or a file of your own
in YAML. Entries have external ids that are derived from the close and from what they say, so that a
ledger can refuse to load them twice.`,
		Example: "  quartermaster costs journal --month 2026-05 --layout netsuite --out may.csv\n" +
			"  quartermaster costs journal --month 2026-05 --entity de --layout business-central --out may-de.csv\n" +
			"  quartermaster costs journal --month 2026-05 --currency books --layout netsuite --out may-books.csv\n" +
			"  quartermaster costs journal --month 2026-05 --layout netsuite -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			l, err := readLayout(layout)
			if err != nil {
				return err
			}
			j, err := a.caller().Journal(cmd.Context(), app.At(asOf), m, entity, currency)
			if err != nil {
				return err
			}
			j.Layout, j.File = l.String(), out
			if out != "" {
				if err := app.WriteWhole(out, func(w io.Writer) error { return ledger.Write(w, l, j.Entries) }); err != nil {
					return err
				}
			}
			if a.json {
				return a.answerJSON(j)
			}
			t := a.table("entity", "currency", "entries", "debit", "credit")
			alignRight(t, 3, 5)
			written := l.Entries(j.Entries) // without what the ledger system does itself
			totals := costs.JournalTotals(written)
			for i := range totals {
				s := &totals[i]
				t.AppendRow(table.Row{
					clipped(s.Entity), s.Currency, comma(s.Entries),
					amountText(s.Debit.Amount, s.Currency), amountText(s.Credit.Amount, s.Currency),
				})
			}
			t.Render()
			if out != "" {
				fmt.Fprintf(a.out, "%s has %s entries for %s\n", out, comma(len(written)), l)
			}
			fmt.Fprintf(a.out, "position: %s\n", a.position(j.Position))
			return nil
		},
	}
	bookMonthFlag(cmd, &month)
	f := cmd.Flags()
	f.StringVar(&entity, "entity", "", "only the entries of this legal entity")
	f.StringVar(&currency, "currency", "", "books for the currency of the books of each entity (default as billed)")
	f.StringVar(&layout, "layout", "", "layout of the file: "+strings.Join(ledger.Names(), ", ")+", or a file (required)")
	f.StringVar(&out, "out", "", "file to write (default none is written)")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("layout"))
	return cmd
}

// readLayout returns a layout that is part of the program, else reads a file.
func readLayout(name string) (*ledger.Layout, error) {
	if l, ok := ledger.Named(name); ok {
		return l, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, commandline.Usagef("--layout %q is none of %s, and not a file that can be read: %w", name, strings.Join(ledger.Names(), ", "), err)
	}
	return ledger.Parse(name, text)
}
