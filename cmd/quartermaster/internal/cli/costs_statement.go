package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

//go:embed statement.html
var statementHTML string

// statementRow is a row of a table of a statement.
type statementRow struct {
	Name string
	*costs.Cost
}

type statementTable struct {
	Caption, Head string
	Rows          []statementRow
}

var statementTemplate = template.Must(template.New("statement").Funcs(template.FuncMap{
	"month": app.MonthName,
	"money": func(a attribution.Amount, currency string) string { return cents(a, currency) },
	"cents": cents,
	"hours": gpuHours,
	"rate": func(d *domain.Decimal, absent costs.Absent) string {
		if d == nil {
			return string(absent)
		}
		return d.StringFixed(4)
	},
	"invoice": func(id string, period domain.Interval) string {
		if id == "" {
			return fmt.Sprintf("none yet, for %s to %s", dayText(period.From), dayText(period.To))
		}
		return id
	},
	"permille": func(c *int64) string { return fmt.Sprintf("%d.%d%%", *c/10, *c%10) },
	"rows": func(caption, head string, groups []costs.Group) statementTable {
		t := statementTable{Caption: caption, Head: head}
		for i := range groups {
			t.Rows = append(t.Rows, statementRow{statementName(head, &groups[i]), &groups[i].Cost})
		}
		return t
	},
}).Parse(statementHTML))

// statementName names a group by its dimensions, in the order of the head.
func statementName(head string, g *costs.Group) string {
	var names []string
	for _, word := range strings.Split(head, ", ") {
		d := costs.Dimension(strings.ToLower(strings.ReplaceAll(word, " ", "_")))
		if name := g.Key[d]; name != "" {
			names = append(names, name)
		} else {
			names = append(names, costs.Blank(d))
		}
	}
	return strings.Join(names, " / ")
}

func (a *Program) costStatementCommand() *cobra.Command {
	var month, workspace, out, asOf string
	cmd := &cobra.Command{
		Use:   "statement --month MONTH",
		Short: "Write what each workspace is charged for a month, as a document",
		Long: `Statement shows what a workspace is charged for a month: by component, by model and by kind of
charge, its part of each invoice, savings, unit costs, and corrections of earlier months with their
causes. With --out it writes one HTML document for each workspace, ready to be printed or sent.

The statement of a closed month is final. It is numbered by the month, the workspace and the digest
of the closed allocations, and the same position gives the same bytes. What changes the month later is
a correction on the statement of the period that it is posted into; it names the statement that it
corrects. The statement of an open month is preliminary, and says so.`,
		Example: "  quartermaster costs statement --month 2026-05\n" +
			"  quartermaster costs statement --month 2026-05 --workspace vc-a01 --out statements",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := monthFlag("month", month)
			if err != nil {
				return err
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
					if files[i], err = writeStatement(out, &all[i]); err != nil {
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

// writeStatement writes the document of a statement and returns its path.
func writeStatement(dir string, s *app.CostStatement) (string, error) {
	var b bytes.Buffer
	if err := statementTemplate.Execute(&b, s); err != nil {
		return "", fmt.Errorf("write statement %s: %w", s.Number, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write statement %s: %w", s.Number, err)
	}
	path := filepath.Join(dir, "statement-"+app.MonthName(s.Month)+"-"+url.PathEscape(s.Workspace)+".html")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("write statement %s: %w", s.Number, err)
	}
	_, err = f.Write(b.Bytes())
	return path, errors.Join(err, f.Close())
}
