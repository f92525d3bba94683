package cli

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/document"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) costStatementCommand() *cobra.Command {
	var month, workspace, out, asOf string
	var formats []string
	cmd := &cobra.Command{
		Use:   "statement --month MONTH",
		Short: "Write what each workspace is charged for a month, as a document",
		Long: `Statement shows what a workspace is charged for a month: by component, by model and by kind of
charge, its part of each invoice, savings, unit costs, and corrections of earlier months with their
causes. With --out it writes a document for each workspace, as HTML and as PDF, ready to be printed
or sent. Both have the same content.

The statement of a closed month is final. It is numbered by the month, the workspace and the digest
of the closed allocations, and the same position gives the same bytes. What changes the month later is
a correction on the statement of the period that it is posted into; it names the statement that it
corrects. Only the credit and debit notes that are written beside a final statement cancel an earlier
one: each names the statement, and is one amount in one currency. The statement of an open month is
preliminary, and says so.`,
		Example: "  quartermaster costs statement --month 2026-05\n" +
			"  quartermaster costs statement --month 2026-05 --workspace vc-a01 --out statements\n" +
			"  quartermaster costs statement --month 2026-05 --out statements --format pdf",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
			}
			for _, format := range formats {
				if document.Formats[format] == nil {
					return commandline.Usagef("--format %q: want html or pdf", format)
				}
			}
			if len(formats) == 0 {
				return commandline.Usagef("--format: want html or pdf")
			}
			all, err := a.caller().CostStatements(cmd.Context(), app.At(asOf), m, workspace)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return a.noBills(cmd.Context(), app.At(asOf), m, workspace)
			}
			files := make([]string, len(all))
			if out != "" {
				for i := range all {
					if files[i], err = writeStatement(out, formats, &all[i]); err != nil {
						return err
					}
				}
			}
			if a.json {
				return jsonLines(a, all)
			}
			t := a.table("statement", "charged", "corrections", "file")
			for i := range all {
				s := &all[i]
				t.AppendRow(table.Row{clipped(s.Number), chargedText(s), correctionsText(s), files[i]})
			}
			t.Render()
			if all[0].Generated {
				fmt.Fprintln(a.out, generatedNote)
			}
			fmt.Fprintf(a.out, "position: %s\n", a.position(all[0].Position))
			return nil
		},
	}
	bookMonthFlag(cmd, &month)
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", "", "only the statement of this workspace")
	f.StringVar(&out, "out", "", "directory for the documents (default none are written)")
	f.StringSliceVar(&formats, "format", []string{"html", "pdf"}, "formats of the documents, separated by commas")
	asOfFlag(cmd, &asOf)
	return cmd
}

func chargedText(s *app.CostStatement) string {
	var list []string
	for i := range s.Totals {
		list = append(list, amountText(s.Totals[i].BilledMinor.Amount, s.Totals[i].Currency))
	}
	return strings.Join(list, ", ")
}

// correctionsText sums up corrections by currency.
func correctionsText(s *app.CostStatement) string {
	var list []string
	for i := range s.Corrections {
		c := &s.Corrections[i]
		list = append(list, amountText(c.Billed, c.Currency)+" "+string(c.Type))
	}
	return strings.Join(list, ", ")
}

// writeStatement writes the documents of a statement and its notes in some formats, and returns the path of the first.
func writeStatement(dir string, formats []string, s *app.CostStatement) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write statement %s: %w", s.Number, err)
	}
	month, workspace := app.MonthName(s.Month), url.PathEscape(s.Workspace)
	documents := map[string]*document.Document{"statement-" + month + "-" + workspace: statementDocument(s)}
	if s.Final {
		for i := range s.Notes {
			n := &s.Notes[i]
			of, _, _ := strings.Cut(n.Corrects, "/")
			name := strings.ReplaceAll(string(n.Kind), "_", "-") + "-" + month + "-" + workspace + "-on-" + of + "-" + n.Currency
			documents[name] = noteDocument(s, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, format := range formats {
			path := filepath.Join(dir, name+"."+format)
			err := app.WriteWhole(path, func(w io.Writer) error { return document.Formats[format](w, documents[name]) })
			if err != nil {
				return "", fmt.Errorf("write statement %s: %w", s.Number, err)
			}
		}
	}
	return filepath.Join(dir, "statement-"+month+"-"+workspace+"."+formats[0]), nil
}
