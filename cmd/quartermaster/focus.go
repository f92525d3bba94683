package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/rows"
	"quartermaster/domain"
)

func (a *app) importFocusCommand() *cobra.Command {
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

Numbers are read to the last of up to 18 decimals. Times without a zone need
--zone. What could not be divided is a bad row: BilledCost or EffectiveCost of
1e15 or more, PricingQuantity or ConsumedQuantity of more than 200,000,000 hours
of machines or GPUs, and usage over more than 13 months.

A gzip file that is damaged or cut off is refused whole. A plain CSV file does
not tell where it should end: a last row that was cut off is a bad row where it
lacks columns, and a warning says when a file does not end in a line end.

A row that is in two files counts once. A row that is twice in one file counts
twice, with a warning; with one x_LineId the second is a bad row, and an invoice
with a detail twice is refused whole. A file that was imported with another --zone is
refused, because its rows would count again. A month that is exported again after rows of it changed is
not a correction: import a month when it is closed, or one whose rows carry
x_LineId.

JSON keys, one object per file: file, source, dataset, focus_version, rows,
events, types (events by type), appended, known, bad (file, line, field, value,
reason), bad_rows, refused, warnings (reason, value, rows, line), seconds.`,
		Example: `  quartermaster import focus 2026-05-cost-and-usage.csv.gz
  quartermaster import focus bill.csv --currency EUR --zone UTC --strict
  quartermaster import focus invoice-detail.csv --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			return a.importFiles(cmd.Context(), files, strict, billsOf(opts), func(*home) error { return nil })
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Zone, "zone", "", "time zone of times that name none, for example UTC or Europe/Berlin")
	f.StringVar(&opts.Currency, "currency", "", "currency that the files must be billed in; a row in another is bad")
	f.StringVar(&opts.FocusVersion, "focus-version", "", "version that the files are written in, 1.0 to 1.4, where their columns do not tell")
	f.BoolVar(&opts.Historical, "historical", false, "declare that every fact was known when it became true, so that backtests may use it")
	f.BoolVar(&strict, "strict", false, "refuse a file whole when any row of it is bad")
	return cmd
}

// billsOf reads bills in the columns of FOCUS.
func billsOf(opts focus.Options) reader {
	return reader{
		source:  func(sum [32]byte) string { return focus.SourceName(sum, opts) },
		oneZone: true,
		whole:   func(ctx context.Context, file io.Reader) error { return focus.Whole(ctx, file, opts.Limits) },
		run: func(ctx context.Context, file io.Reader, name string, emit func(*domain.Envelope) error, bad func(rows.BadRow)) (fileRead, error) {
			s, err := focus.Run(ctx, file, name, opts, emit, bad)
			return fileRead{
				dataset: s.Dataset, version: s.FocusVersion, rows: s.Rows, events: s.Events, bad: s.Bad, types: s.Types, warnings: s.Warnings,
			}, err
		},
	}
}
