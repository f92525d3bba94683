package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/focus"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) importFocusCommand() *cobra.Command {
	var fl billFlags
	cmd := &cobra.Command{
		Use:   "focus FILE...",
		Short: "Import suppliers' bills in FOCUS columns",
		Long: `Import suppliers' bills in the columns of FOCUS, the FinOps Open Cost and Usage Specification
1.0-preview to 1.4, as CSV (plain, gzip or zstd) or Parquet.

Each row of a Cost and Usage file becomes one billing line. Each invoice of an Invoice Detail
file (1.4) becomes one invoice. A closed period of a Billing Period file (1.4) says that the
supplier changes nothing more in it. FOCUS does not say of which billing accounts a period is:
--account does, or a column x_BillingAccountId. A Contract Commitment file (1.3, 1.4) is checked and
compared with the commitments in the log, and changes nothing, because a commitment is a decision that
someone signs. The kind of file and its version are recognised from the columns.

Required columns of Cost and Usage: BilledCost, BillingAccountId, BillingCurrency, BillingPeriodStart,
BillingPeriodEnd, ChargeCategory, ChargePeriodStart, ChargePeriodEnd and InvoiceIssuerName (or
ProviderName before 1.4). Other columns may be missing, with a warning. Columns that FOCUS does
not define are kept.

A row without an issuer takes the issuer of the other rows of its invoice, else of the rows of
its account and billing period, else its ProviderName. The other rows are those of the file,
else those of the other given files and of the ledger, so import all parts of a bill at once.
If the rows name two issuers, the rows with the same ProviderName decide, else the
ProviderName itself.

A row with money is not rejected because of a column that allocation does not need. An unknown
ChargeFrequency or PricingCategory, a negative unit price and a quantity that is not a number
are read as null. If a quantity of machine time is unusable, for example more than 200,000,000
hours, the line buys no time, and the costs report it.

Numbers are exact to 18 decimals; further digits are rounded half to even. The original text is
kept, for example in the column x_PricingCategoryAsWritten. Deviations are counted and shown as
warnings. --strict rejects them.

Times without a zone need --zone. A row that cannot be allocated is a bad row: BilledCost or
EffectiveCost of 1e15 or more, or with more than 1,100 characters or decimals, and usage over
more than 13 months.

Decimals of a Parquet file are exact. A column of floating point gives a warning: each value is
read by the shortest decimal text that gives the same float. Lists, maps and structs become JSON.

A damaged or truncated Parquet, gzip or zstd file is rejected as a whole. A plain CSV file does not
show where it should end. A truncated last row is a bad row if it lacks columns, and there is a warning if the
file does not end with a newline.

A row that is in two files counts once. A row that is twice in one file counts twice, with a
warning. If both have the same x_LineId, the second is a bad row. An invoice with a duplicate
detail is rejected as a whole. A file that was imported with another --zone is rejected, because
its rows would count again.

A supplier who rewrites an open month exports it again and again. With --snapshot ACCOUNT/MONTH the
files together are such an export, and replace what the ledger has of that month of the account:
lines that they do not have are removed, new ones are added, and the rest stays. Rows are compared
without columns that say when the file was exported (--export-time). An export with a bad row is
rejected as a whole, and so is one with rows of another account or month. An export with at most half
as many lines as the ledger is rejected until --accept-removal says how many lines it removes.`,
		Example: `  quartermaster import focus 2026-05-cost-and-usage.csv.gz
  quartermaster import focus FocusCost.parquet --zone UTC
  quartermaster import focus bill.csv --currency EUR --zone UTC --strict
  quartermaster import focus --snapshot 123456789012/2026-05 export-of-today.csv.gz
  quartermaster import focus invoice-detail.csv -o json
  quartermaster import focus --account 123456789012 billing-period.csv
  quartermaster import focus contract-commitment.csv`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return a.importBills(cmd, &fl, fl.opts, files)
		},
	}
	fl.add(cmd)
	cmd.Flags().StringArrayVar(&fl.opts.Accounts, "account", nil, "billing account of a Billing Period file; repeatable")
	cmd.Flags().StringVar(&fl.opts.FocusVersion, "focus-version", "", "FOCUS version of the files, 1.0-preview or 1.0 to 1.4, if their columns do not show it")
	return cmd
}

// billFlags are the flags of imports of bills.
type billFlags struct {
	opts     focus.Options
	strict   bool
	snapshot string
	accept   int
}

func (fl *billFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&fl.opts.Zone, "zone", "", "time zone of times without one, for example UTC or Europe/Berlin")
	f.StringVar(&fl.opts.Currency, "currency", "", "currency of the files; rows in other currencies are bad")
	f.BoolVar(&fl.opts.Historical, "historical", false, "declare that every fact was known when it became true, so that backtests can use it")
	f.BoolVar(&fl.strict, "strict", false, "reject a file if any row is bad or deviates from FOCUS")
	f.StringVar(&fl.snapshot, "snapshot", "", "billing account and month, as ACCOUNT/2026-05, of which the files are the latest export")
	f.IntVar(&fl.accept, "accept-removal", 0, "number of lines that the export may remove, if it is half as large as the one before")
	f.StringSliceVar(&fl.opts.ExportTime, "export-time", focus.ExportTimeColumns, "columns of the export that say when it was made")
}

// importBills imports bills, or an export of a whole month of them.
func (a *Program) importBills(cmd *cobra.Command, fl *billFlags, opts focus.Options, files []string) error {
	if fl.snapshot != "" {
		of, err := app.ParseBillMonth(fl.snapshot)
		if err != nil {
			return commandline.Usagef("--snapshot: %w", err)
		}
		opts.Strict = fl.strict
		return a.importMonth(cmd.Context(), opts, of, files, fl.accept)
	}
	for _, name := range []string{"accept-removal", "export-time"} {
		if cmd.Flags().Changed(name) {
			return commandline.Usagef("--%s needs --snapshot", name)
		}
	}
	opts.ExportTime = nil
	return a.importFiles(func(done func(*app.Imported) error) error {
		return a.caller().ImportBills(cmd.Context(), opts, files, fl.strict, done)
	})
}

// importMonth imports an export of a whole month and reports it.
func (a *Program) importMonth(ctx context.Context, opts focus.Options, of app.BillMonth, files []string, accept int) error {
	return a.importFiles(func(done func(*app.Imported) error) error {
		ans, err := a.caller().ImportMonth(ctx, opts, of, files, accept)
		if err != nil && ans.Appended == 0 {
			return err
		}
		return errors.Join(err, done(&ans))
	})
}
