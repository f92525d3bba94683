package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) importListCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the files that were imported",
		Long: `List the files that were imported, by when their first event was appended: what they stated, and whether
their bytes are kept. Files of bills, prices and meters are kept as they came, beside the parts.`,
		Example: "  quartermaster import list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.caller().Imports(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(all)
			}
			t := a.table("sha256", "reader", "appended", "events", "lines", "invoices", "months", "kept")
			alignRight(t, 4, 6)
			for i := range all {
				s := &all[i]
				kept := make([]string, len(s.Files))
				for i, f := range s.Files {
					kept[i] = clipped(f.Name)
				}
				t.AppendRow(table.Row{s.SHA256[:12], s.Kind, s.From, comma(int(s.Events)), comma(s.Lines), comma(s.Invoices),
					strings.Join(s.Months, " "), cmp.Or(strings.Join(kept, ", "), "no")})
			}
			t.Render()
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) importShowCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "show SHA-256",
		Short: "Show an imported file, compare its bytes with its SHA-256, and write it",
		Long: `Show what was imported from a file, and compare the kept bytes with its SHA-256. The beginning of the
SHA-256 is enough: eight digits. Files that were imported together as a snapshot are one source, and each has
its own SHA-256. A mapping and tables that were given are kept, too. The command fails if a kept file is damaged.

--out writes the bytes as they came to a file, which must not exist.`,
		Example: "  quartermaster import list\n" +
			"  quartermaster import show 3f9ad0c1 --out bill-2026-05.csv",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var w io.Writer
			if out != "" {
				f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return fmt.Errorf("import show: %w", err)
				}
				defer func() {
					if err = errors.Join(err, f.Close()); err != nil {
						err = errors.Join(err, os.Remove(out))
					}
				}()
				w = f
			}
			found, err := a.caller().Import(cmd.Context(), strings.ToLower(args[0]), w)
			if err != nil {
				return err
			}
			if a.json {
				err = a.answerJSON(found)
			} else {
				a.showImported(found)
			}
			for i := range found {
				for _, f := range append(found[i].Files, found[i].With...) {
					if f.State == app.FileDamaged || f.State == app.FileMissing {
						fmt.Fprintf(a.err, "%s is %s: import the file with SHA-256 %s again, or put it back\n", clipped(f.Name), f.State, f.SHA256)
						err = cmp.Or(err, error(&failed{why: "a kept file is not what was imported"}))
					}
				}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write the bytes of the file to this file")
	return cmd
}

func (a *Program) showImported(found []app.ImportedSource) {
	for i := range found {
		s := &found[i]
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		t := a.table()
		t.AppendRow(table.Row{"source", s.Source})
		t.AppendRow(table.Row{"events", fmt.Sprintf("%s, %s missing", comma(int(s.Events)), comma(int(s.Missing)))})
		t.AppendRow(table.Row{"states", fmt.Sprintf("%s lines and %s invoices", comma(s.Lines), comma(s.Invoices))})
		if len(s.Months) > 0 {
			t.AppendRow(table.Row{"months", strings.Join(s.Months, " ")})
		}
		if s.From != 0 {
			t.AppendRow(table.Row{"appended", fmt.Sprintf("%s to %s", s.From, s.To)})
		}
		if s.Received != 0 {
			t.AppendRow(table.Row{"received", s.Received})
		}
		for _, f := range s.Files {
			t.AppendRow(table.Row{"file", keptText(f)})
		}
		for _, f := range s.With {
			t.AppendRow(table.Row{"read with", keptText(f)})
		}
		if len(s.Files) == 0 {
			t.AppendRow(table.Row{"file", "not kept"})
		}
		t.Render()
	}
}

func keptText(f app.KeptFile) string {
	text := fmt.Sprintf("%s, %s, %s, sha256:%s", clipped(f.Name), humanize.IBytes(uint64(f.Bytes)), f.State, f.SHA256)
	if f.Before > 0 {
		text += fmt.Sprintf(", its line 1 is line %s of the source", comma(int(f.Before)+1))
	}
	return text
}
