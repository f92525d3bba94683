package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

func (a *Program) costAccrueCommand() *cobra.Command {
	var period, method, amount, out, asOf string
	var q costs.AccrualQuery
	cmd := &cobra.Command{
		Use:   "accrue --period MONTH --issuer NAME --account ACCOUNT --method METHOD",
		Short: "Estimate a month of an account whose invoice has not come",
		Long: `Accrue makes an internal invoice in the name of a supplier, for a month whose own invoice has not
come. With --out it writes it as FOCUS 1.4, Cost and Usage and Invoice Detail. Import both files: the
accrual is matched, divided and closed like a supplier's bill. An accrual of the same account and
month that was imported before is replaced.

Methods:
  last-invoice   the usage and recurring purchases of the last month with a bill, of at most three,
                 billed and effective; without credits, tax, corrections and one-time purchases
  contract-rate  the time in service of each machine of the account that no line buys, at the price
                 in force then: of a contract for its SKU while it has units, else of the on-demand
                 offer in its region
  manual         the amount of --amount, with a --reason
  reverse        nothing: an earlier accrual is withdrawn

An accrual counts until the supplier's invoices for the month cover it: one whose billing period is
the month in any time zone, or all that come weekly. They are received, or lines of the account name
them. Then the accrual's lines are no longer in the ledger. Lines that name no invoice yet replace
nothing. While invoices cover a part of the month, accrue again after each: last-invoice is then in
proportion to the rest, contract-rate is what no line buys, and manual is your amount for the rest. If
the month is closed by the time of the last invoice, the reversal and the supplier's lines are posted
into the open period. "quartermaster costs accruals" compares both.

A close lists what is estimated, and whoever prepares it has to accept that with a reason.`,
		Example: "  quartermaster costs accrue --period 2026-05 --issuer 'Example Cloud' --account 42 --method last-invoice --out bills\n" +
			"  quartermaster costs accrue --period 2026-05 --issuer 'Example Cloud' --account 42 --method manual --amount '1200 EUR' --reason 'as ordered'\n" +
			"  quartermaster costs accruals --period 2026-05",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Month, err = monthFlag("period", period); err != nil {
				return err
			}
			q.Method = costs.AccrualMethod(strings.ReplaceAll(method, "-", "_"))
			switch manual := q.Method == costs.AccrueManual; {
			case manual && (amount == "" || q.Reason == ""):
				return commandline.Usagef("--method manual needs --amount and --reason")
			case !manual && (amount != "" || q.Reason != ""):
				return commandline.Usagef("--amount and --reason are for --method manual")
			case manual:
				if q.Amount, err = parseMoney(amount); err != nil {
					return commandline.Usagef("--amount: %w", err)
				}
			case q.Method != costs.AccrueLastInvoice && q.Method != costs.AccrueContractRate && q.Method != costs.AccrueReverse:
				return commandline.Usagef("--method %q: want last-invoice, contract-rate, manual or reverse", method)
			}
			ans, err := a.caller().Accrue(cmd.Context(), app.At(asOf), q, out)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showAccrual(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to accrue, for example 2026-05 (required)")
	f.StringVar(&q.Issuer, "issuer", "", "issuer of the account's invoices, as on them (required)")
	f.StringVar(&q.Account, "account", "", "billing account (required)")
	f.StringVar(&method, "method", "", "last-invoice, contract-rate, manual or reverse (required)")
	f.StringVar(&amount, "amount", "", "amount with its currency, for --method manual, for example '1200 EUR'")
	f.StringVar(&q.Reason, "reason", "", "why that much, for --method manual")
	f.StringVar(&out, "out", "", "directory to write the accrual to")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	must(cmd.MarkFlagRequired("issuer"))
	must(cmd.MarkFlagRequired("account"))
	must(cmd.MarkFlagRequired("method"))
	return cmd
}

// mostCharges bounds the lines of an accrual in a table. JSON has all.
const mostCharges = shownRows

func (a *Program) showAccrual(ans *app.AccrualAnswer) {
	fmt.Fprintf(a.out, "accrual %s of %s, account %s: %s %s\n", ans.Invoice, clipped(ans.Issuer), clipped(ans.Account),
		minorText(ans.Total.Amount, ans.Total.Currency), ans.Total.Currency)
	t := a.table("resource", "sku", "billed", "basis")
	alignRight(t, 3, 3)
	for i, c := range ans.Charges {
		if i < mostCharges {
			t.AppendRow(table.Row{named(c.Resource), named(c.SKU), minorText(c.Billed, ans.Total.Currency), c.Basis})
		}
	}
	t.Render()
	a.more(len(ans.Charges))
	for _, p := range ans.Problems {
		fmt.Fprintln(a.out, "not accrued: "+p)
	}
	for _, l := range ans.Withdrawn {
		fmt.Fprintln(a.out, "withdrawn: "+l)
	}
	if f := ans.Files; f != nil {
		fmt.Fprintf(a.out, "import it: quartermaster import focus %s %s\n", f.Lines, f.Invoices)
	}
}

func (a *Program) costAccrualsCommand() *cobra.Command {
	var period, asOf string
	cmd := &cobra.Command{
		Use:   "accruals",
		Short: "Compare the accruals of a month with what was billed",
		Long: `Accruals lists what was accrued for a month ("costs accrue"), by which method, whether an invoice has
replaced it, and what the supplier's lines came to, in each currency. Accounts that were billed or
accrued the month before and have neither lines nor an accrual are missing.`,
		Example: "  quartermaster costs accruals --period 2026-05\n  quartermaster costs accruals --period 2026-05 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			b, err := a.caller().Accruals(cmd.Context(), app.At(asOf), month)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(b)
			}
			a.showAccruals(b)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&period, "period", "", "month to show, for example 2026-05 (required)")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showAccruals(b *costs.AccrualBook) {
	if len(b.Accruals) == 0 {
		fmt.Fprintf(a.out, "nothing was accrued for %s\n", app.MonthName(b.Month))
	} else {
		t := a.table("issuer", "account", "currency", "method", "state", "accrued", "actual", "difference")
		alignRight(t, 6, 8)
		for i := range b.Accruals {
			x := &b.Accruals[i]
			state := "counts"
			switch invoices := clipped(strings.Join(x.Invoices, ", ")); {
			case x.Replaced:
				state = "replaced by " + invoices
			case invoices != "":
				state = "counts beside " + invoices
			}
			t.AppendRow(table.Row{
				named(x.Issuer), named(x.Account), x.Currency, strings.Join(x.Methods, ", "), state,
				cents(x.Accrued, x.Currency), cents(x.Actual, x.Currency), cents(x.Difference, x.Currency),
			})
		}
		t.Render()
	}
	for _, account := range b.NotBilled {
		fmt.Fprintf(a.out, "missing: %s was billed or accrued the month before and has no lines: import its bill, or accrue it\n", account)
	}
	a.reportEnds(b.Completeness)
}
