package cli

import (
	"github.com/spf13/cobra"

	"quartermaster/adapters/focus"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) importFocusCommand() *cobra.Command {
	var opts focus.Options
	var strict bool
	cmd := &cobra.Command{
		Use:   "focus FILE...",
		Short: "Import suppliers' bills in FOCUS columns",
		Long: `Import suppliers' bills in the columns of FOCUS, the FinOps Open Cost and Usage
Specification 1.0 to 1.4, as CSV or gzip CSV.

Cost and Usage becomes one billing line per row; Invoice Detail (1.4) becomes one
invoice per invoice. Which of them a file is, and its version, is told from its
columns. The columns that must be there: BilledCost, BillingAccountId,
BillingCurrency, BillingPeriodStart, BillingPeriodEnd, ChargeCategory,
ChargePeriodStart, ChargePeriodEnd and InvoiceIssuerName (or ProviderName before
1.4). Others may be missing, with a warning; columns that FOCUS does not define
are kept.

A row that names no issuer takes the one that the other rows of its invoice name,
else the rows of its account and billing period, else its ProviderName. The other
rows are those of the file, else those of the other files given and of the ledger:
import all parts of a bill at once. Where they name two issuers, the rows of its
ProviderName decide, else that name itself.

A row with money is not refused for a column that division does not need: an
unknown ChargeFrequency or PricingCategory, a negative unit price or a quantity that
is no number is read as null. Where a quantity of machine time is, as with one of more
than 200,000,000 hours, the line buys no time, and the costs say so. Numbers are exact to 18 decimals; beyond, they are
rounded half to even. What was written is kept, for example in the column
x_PricingCategoryAsWritten, and deviations are warned of and counted. --strict
refuses them.

Times without a zone need --zone. What could not be divided is a bad row: BilledCost
or EffectiveCost of 1e15 or more or of more than 1,100 characters or decimals, and
usage over more than 13 months.

A gzip file that is damaged or cut off is refused whole. A plain CSV file does
not tell where it should end: a last row that was cut off is a bad row where it
lacks columns, and a warning says when a file does not end in a line end.

A row that is in two files counts once. A row that is twice in one file counts
twice, with a warning; with one x_LineId the second is a bad row, and an invoice
with a detail twice is refused whole. A file that was imported with another --zone is
refused, because its rows would count again. A month that is exported again after rows of it changed is
not a correction: import a month when it is closed, or one whose rows carry
x_LineId.`,
		Example: `  quartermaster import focus 2026-05-cost-and-usage.csv.gz
  quartermaster import focus bill.csv --currency EUR --zone UTC --strict
  quartermaster import focus invoice-detail.csv -o json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return a.importFiles(func(done func(*app.Imported) error) error {
				return a.caller().ImportBills(cmd.Context(), opts, files, strict, done)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Zone, "zone", "", "time zone of times that name none, for example UTC or Europe/Berlin")
	f.StringVar(&opts.Currency, "currency", "", "currency that the files must be billed in; a row in another is bad")
	f.StringVar(&opts.FocusVersion, "focus-version", "", "version that the files are written in, 1.0 to 1.4, where their columns do not tell")
	f.BoolVar(&opts.Historical, "historical", false, "declare that every fact was known when it became true, so that backtests may use it")
	f.BoolVar(&strict, "strict", false, "refuse a file whole when any row of it is bad or deviates from FOCUS")
	return cmd
}
