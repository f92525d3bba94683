package cli

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/focus/xlsx"
	"quartermaster/adapters/tabular"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// manifestSuffix follows the name of an exported file in the name of its manifest.
const manifestSuffix = ".manifest.json"

// costFormats make the writer of each format of an export.
var costFormats = map[string]func(io.Writer, []tabular.Column) (tabular.Writer, error){
	"csv": func(w io.Writer, columns []tabular.Column) (tabular.Writer, error) {
		return tabular.NewCSVWriter(w, columns), nil
	},
	"parquet": func(w io.Writer, columns []tabular.Column) (tabular.Writer, error) {
		return parquet.NewWriter(w, columns), nil
	},
	"xlsx": func(w io.Writer, columns []tabular.Column) (tabular.Writer, error) { return xlsx.NewWriter(w, columns) },
}

// typedColumns are the columns of an export as files have them.
func typedColumns(columns []costs.Column) []tabular.Column {
	typed := make([]tabular.Column, len(columns))
	for i, c := range columns {
		typed[i] = tabular.Column{Name: c.Name, Kind: tabularKinds[c.Kind]}
	}
	return typed
}

// tabularKinds are the kinds of cells in files.
var tabularKinds = map[costs.Kind]tabular.Kind{
	costs.KindText: tabular.Texts, costs.KindJSON: tabular.Texts, costs.KindDecimal: tabular.Decimals,
	costs.KindTime: tabular.Times, costs.KindFlag: tabular.Flags,
}

func (a *Program) costExportCommand() *cobra.Command {
	var (
		span                             monthFlags
		format, out, asOf, compare, view string
		by, where                        []string
		record                           bool
		q                                app.CostsExport
	)
	cmd := &cobra.Command{
		Use:   "export --period MONTH --out FILE",
		Short: "Write costs to a file, with a manifest from which anyone can verify it",
		Long: `Export writes the costs of billing months to a file. Without --by every allocation is a row: an
allocated charge in the columns of FOCUS 1.4, followed by ours, whose names begin with x_. The rows
of a line add up to the line in every cost and quantity, to the last digit. With --by the rows are
groups, as "quartermaster costs" shows them.

A closed month is written as it was closed. What changed about it later follows the allocations of
the month that it is posted into ("costs postings"): a row for each allocation that changed, with the
supplier's columns and periods as they are, and the difference in everything that adds up. Its
x_BooksPeriod is that month, x_PostingType says why and x_CauseEventId by which events. So what an
export of all months has more than an earlier one is what was posted between. Groups have no
postings.

Rows come one after the other, so that large months need little memory; postings are in memory.

The manifest FILE` + manifestSuffix + ` beside the file has the position of the log, the question, methods,
policies, mapping rules, columns, rows, control totals by currency, the SHA-256 of the file and
the newest signed checkpoint. "quartermaster costs verify FILE" computes the file again and
compares every cell.

With --compare previous, groups also have what they cost in the month before, and the difference.

With --currency groups are in the currency of the books, and allocations have their amounts in it
in columns of their own, beside those that were billed. The manifest has the rates.

With --view loaded or proportional, rows are workspaces, after the cost of pools was passed on, with
what they cost before, passed on and received: see "quartermaster costs --help".

With --record the log says that the file was exported (ExportMade), so that an auditor knows of it.

Decimals are decimals: decimal(38,18) in Parquet, and numbers in XLSX, with the exact text in a
column beside them wherever a number has more than 15 significant digits. In CSV and XLSX a text
that a spreadsheet program could take for a formula begins with an apostrophe. Nothing is cut:
a text of more than 32,767 characters is refused in XLSX. More than 1,048,575 rows become
several sheets.`,
		Example: "  quartermaster costs export --period 2026-05 --out may.csv\n" +
			"  quartermaster costs export --from 2026-01 --to 2026-07 --by workspace,service --out half.csv\n" +
			"  quartermaster costs export --period 2026-05 --out may.parquet\n" +
			"  quartermaster costs export --period 2026-05 --by workspace,component --out may.xlsx\n" +
			"  quartermaster costs export --period 2026-05 --workspace vc-a01 --out vc-a01.csv -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Months, err = span.months(); err != nil {
				return err
			}
			if q.Compare, err = comparing(compare); err != nil {
				return err
			}
			if q.Compare && len(by) == 0 {
				return commandline.Usagef("--compare is for groups: name dimensions with --by")
			}
			if err := checkView(cmd, costs.View(view)); err != nil {
				return err
			}
			if view != string(costs.ViewDirect) {
				q.View = costs.View(view)
			}
			if q.By, err = costs.ParseDimensions(by); err != nil {
				return commandline.Usagef("--by: %w", err)
			}
			if q.Where, err = costs.ParseConditions(where); err != nil {
				return commandline.Usagef("--where: %w", err)
			}
			if format == "" {
				format = strings.ToLower(strings.TrimPrefix(filepath.Ext(out), "."))
			}
			open := costFormats[format]
			if open == nil {
				return commandline.Usagef("--format %q: want %s", format, strings.Join(formatNames(), ", "))
			}
			if record {
				if err := a.NotDemo(); err != nil {
					return err
				}
			}
			m, err := a.exportCosts(cmd, app.At(asOf), q, format, out)
			if err != nil {
				return err
			}
			if record {
				if err := a.caller().RecordExport(cmd.Context(), m); err != nil {
					return fmt.Errorf("%s was written, and the log does not have that: %w", out, err)
				}
			}
			if a.json {
				return a.answerJSON(m)
			}
			a.showExport(m, out)
			return nil
		},
	}
	f := cmd.Flags()
	span.add(cmd)
	f.StringVar(&q.Workspace, "workspace", "", "only the charges of this workspace")
	f.StringSliceVar(&by, "by", nil, "dimensions to group by, separated by commas (default every allocation)")
	whereFlag(cmd, &where)
	currencyFlag(cmd, &q.Currency)
	compareFlag(cmd, &compare)
	viewFlag(cmd, &view)
	f.StringVar(&format, "format", "", strings.Join(formatNames(), ", ")+" (default by the name of the file)")
	f.StringVar(&out, "out", "", "file to write, which must not exist (required)")
	f.BoolVar(&record, "record", false, "record the export in the log, with its position, rows and SHA-256")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("out"))
	return cmd
}

func formatNames() []string {
	names := make([]string, 0, len(costFormats))
	for name := range costFormats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mostMonths bounds the months of an export.
const mostMonths = 120

// exportedMonths reads a flag for one month, or --from and --to.
func exportedMonths(flag, period, from, to string) ([]domain.Interval, error) {
	switch {
	case period != "" && (from != "" || to != ""):
		return nil, commandline.Usagef("--%s is one month: leave out --from and --to", flag)
	case period != "":
		month, err := monthFlag(flag, period)
		return []domain.Interval{month}, err
	case from == "" || to == "":
		return nil, commandline.Usagef("name the month with --%s, or months with --from and --to", flag)
	}
	first, err := monthFlag("from", from)
	if err != nil {
		return nil, err
	}
	end, err := monthFlag("to", to)
	if err != nil {
		return nil, err
	}
	var months []domain.Interval
	for m := first; m.From < end.From; m = projections.BillingMonth(m.To) {
		if months = append(months, m); len(months) > mostMonths {
			return nil, commandline.Usagef("--from %s --to %s are more than %d months", from, to, mostMonths)
		}
	}
	if len(months) == 0 {
		return nil, commandline.Usagef("--to %s is not after --from %s", to, from)
	}
	return months, nil
}

// exportCosts writes an export and its manifest. If that fails, it leaves neither.
func (a *Program) exportCosts(cmd *cobra.Command, at app.At, q app.CostsExport, format, path string) (m *app.CostsManifest, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<18)
	m, err = a.writeCosts(cmd, at, q, format, buffered)
	if err = errors.Join(err, buffered.Flush(), f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	written, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m.File, m.FileFormat, m.Bytes, m.SHA256 = filepath.Base(path), format, written.Size(), hex.EncodeToString(sum.Sum(nil))
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	manifest, err := os.OpenFile(path+manifestSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	_, err = manifest.Write(append(text, '\n'))
	if err = errors.Join(err, manifest.Sync(), manifest.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path+manifestSuffix))
	}
	return m, nil
}

// writeCosts writes an export.
func (a *Program) writeCosts(cmd *cobra.Command, at app.At, q app.CostsExport, format string, out io.Writer) (*app.CostsManifest, error) {
	var w tabular.Writer
	m, err := a.caller().ExportCosts(cmd.Context(), at, q, func(columns []costs.Column) (app.RowWriter, error) {
		var err error
		w, err = costFormats[format](out, typedColumns(columns))
		return w, err
	})
	if w != nil {
		err = errors.Join(err, w.Close())
	}
	return m, err
}

func (a *Program) showExport(m *app.CostsManifest, path string) {
	fmt.Fprintf(a.out, "%s has %s rows of %d columns\n", path, comma(m.Rows), len(m.Columns))
	t := a.table("currency", "rows", "billed", "effective")
	alignRight(t, 2, 4)
	for _, c := range m.Totals {
		t.AppendRow(table.Row{c.Currency, count(c.Rows), c.Billed, c.Effective})
	}
	t.Render()
	for _, month := range m.Months {
		switch {
		case month.Books != nil:
			fmt.Fprintf(a.out, "%s is closed, by %s and %s\n", app.MonthName(month.Month), clipped(month.Books.Prepared), clipped(month.Books.Approved))
		case !month.Reconciled:
			fmt.Fprintf(a.out, "%s is open, and its bills do not reconcile yet\n", app.MonthName(month.Month))
		default:
			fmt.Fprintf(a.out, "%s is open\n", app.MonthName(month.Month))
		}
		posted := 0
		for _, c := range month.Posted {
			posted += c.Rows
		}
		if posted > 0 {
			fmt.Fprintf(a.out, "%s rows of %s are posted into it about earlier closed months\n", comma(posted), app.MonthName(month.Month))
		}
		if month.Generated {
			fmt.Fprintln(a.out, generatedNote)
		}
	}
	fmt.Fprintf(a.out, "sha256: %s\nposition: %s\n", m.SHA256, a.position(m.Position))
	fmt.Fprintf(a.out, "verify it with: quartermaster costs verify %s\n", path)
}
