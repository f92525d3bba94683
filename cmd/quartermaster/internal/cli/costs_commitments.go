package cli

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
)

func (a *Program) costCommitmentsCommand() *cobra.Command {
	var period, asOf string
	cmd := &cobra.Command{
		Use:   "commitments",
		Short: "Roll commitments forward: prepaid or accrued, billed, consumed, left",
		Long: `Commitments shows for each commitment of the bills what was prepaid or accrued before the month, what
was billed and consumed in it, and what is left. A negative balance is accrued: consumed and not
billed yet. Over its term the effective cost of what was used and unused equals the billed cost of
the purchases, so that the balance ends at 0. What was billed and not consumed by then is expired,
and listed.

Utilization is the used part of the cost. Break-even is the utilization from which the commitment
saves money: what the covered usage cost, of what it costs without the commitment (ContractedCost,
else ListCost). Who is charged for the unused part are the owners of the commitment.

Kinds of exceptions:
  commitment_undeclared     on a bill, and nobody declared its contract
  commitment_unbilled       in its term, and no bill names it
  ledger_begins_later       the balance lacks bills from before the first month of the ledger
  commitment_accrued        more was consumed than billed when its term ended
  commitment_prepaid_left   less was consumed than billed when its term ended
  commitment_line_unusable  an amount of a line cannot be used`,
		Example: "  quartermaster costs commitments --period 2026-05\n  quartermaster costs commitments --period 2026-05 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			b, err := a.caller().Commitments(cmd.Context(), app.At(asOf), month)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(b)
			}
			a.showCommitmentBook(b)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to show, for example 2026-05 (required)")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showCommitmentBook(b *costs.CommitmentBook) {
	amount := func(x attribution.Amount) cell { return moneyCell(x.Decimal()) }
	percent := func(permille *int64) string {
		if permille == nil {
			return "unknown"
		}
		return fmt.Sprintf("%d.%d%%", *permille/10, *permille%10)
	}
	if len(b.Commitments) == 0 {
		fmt.Fprintf(a.out, "no commitment has lines or a balance in %s\n", app.MonthName(b.Month))
	} else {
		books := a.table("commitment", "issuer", "currency", "opening", "purchased", "used", "unused", "expired", "closing", "ends")
		uses := a.table("commitment", "currency", "utilization", "break-even", "without it", "savings", "notice by")
		for i := range b.Commitments {
			c := &b.Commitments[i]
			ends := "undeclared"
			if !c.Term.Empty() {
				ends = day(c.Term.To)
			}
			books.AppendRow(table.Row{
				named(c.Commitment), c.Issuer, c.Currency, amount(c.Opening), amount(c.Purchased), amount(c.Used), amount(c.Unused),
				amount(c.Expired), amount(c.Closing), ends,
			})
			row := table.Row{named(c.Commitment), c.Currency, percent(c.Utilization), percent(c.BreakEven), "unknown", "unknown", day(c.NoticeBy)}
			if c.WithoutIt != nil {
				row[4], row[5] = amount(*c.WithoutIt), amount(*c.Savings)
			}
			uses.AppendRow(row)
		}
		books.Render()
		uses.Render()
	}
	var faults []inventory.Exception
	for _, f := range b.Exceptions {
		faults = append(faults, inventory.Exception{Kind: string(f.Kind), Subject: f.Commitment, Detail: f.Detail})
	}
	a.showExceptions(faults)
	a.showPosition(b.Position)
	a.reportEnds(b.Completeness)
}
