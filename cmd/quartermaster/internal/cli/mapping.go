package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/bill"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) importBillCommand() *cobra.Command {
	var fl billFlags
	var mapping string
	cmd := &cobra.Command{
		Use:   "bill --mapping NAME|FILE FILE...",
		Short: "Import suppliers' bills in their own columns",
		Long: `Import suppliers' bills in their own columns, as CSV (plain, gzip or zstd) or Parquet. A mapping says
how each column of FOCUS is computed from them: one that is part of the program ("quartermaster mapping
list"), or a file ("quartermaster mapping check" reads it, "quartermaster schema mapping" describes it).

Each row becomes one billing line, whose column x_Mapping has the name and version of the mapping. A
value that the mapping does not provide for makes a bad row, with file, line and field. Otherwise rows
are treated as those of "quartermaster import focus", whose help says how, and --snapshot replaces a
month.`,
		Example: `  quartermaster import bill --mapping aws-cur-2.0 cur-2026-05.parquet
  quartermaster import bill --mapping aws-cur-2.0 --snapshot 123456789012/2026-05 cur-2026-05-*.parquet
  quartermaster import bill --mapping our-supplier.yaml usage.csv --zone UTC`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			m, err := readMapping(mapping)
			if err != nil {
				return err
			}
			return a.importBills(cmd, &fl, app.MappedBy(m, fl.opts), files)
		},
	}
	fl.add(cmd)
	cmd.Flags().StringVar(&mapping, "mapping", "", "name of a mapping of the program, or a file (required)")
	must(cmd.MarkFlagRequired("mapping"))
	return cmd
}

// readMapping reads a mapping of the program, or a file.
func readMapping(name string) (*bill.Mapping, error) {
	if m, _, ok := bill.Named(name); ok {
		return m, nil
	}
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, &app.NotFoundError{What: "mapping", Name: name, Known: bill.Names(),
			Err: fmt.Errorf("no mapping and no file is called %q; mappings of the program: %s", name, strings.Join(bill.Names(), ", "))}
	}
	if err != nil {
		return nil, err
	}
	m, err := bill.Parse(name, text)
	if err != nil {
		return nil, &app.InvalidError{Err: err}
	}
	return m, nil
}

func (a *Program) mappingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mapping",
		Short: "List, print and check mappings of suppliers' bills",
		Long: `A mapping says how a supplier's columns become those of FOCUS. "quartermaster import bill" reads bills
by it. To write one, print one of the program, change it and check it.`,
	}
	list := &cobra.Command{
		Use:     "list",
		Short:   "List the mappings that are part of the program",
		Long:    "List the mappings that are part of the program, with the document of the supplier that each follows.",
		Example: "  quartermaster mapping list",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := []*bill.Mapping{}
			for _, name := range bill.Names() {
				m, _, _ := bill.Named(name)
				all = append(all, m)
			}
			if a.json {
				return a.answerJSON(all)
			}
			t := a.table("mapping", "version", "fields", "source")
			for _, m := range all {
				t.AppendRow(table.Row{m.Name, m.Version, len(m.Fields), m.Source})
			}
			t.Render()
			return nil
		},
	}
	show := &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a mapping that is part of the program",
		Long:    "Print a mapping that is part of the program, as YAML.",
		Example: "  quartermaster mapping show aws-cur-2.0 > our-cur.yaml",
		Args:    cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return bill.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			_, text, ok := bill.Named(args[0])
			if !ok {
				return &app.NotFoundError{What: "mapping", Name: args[0], Known: bill.Names(),
					Err: fmt.Errorf("no mapping is called %q; there are: %s", args[0], strings.Join(bill.Names(), ", "))}
			}
			_, err := a.out.Write(text)
			return err
		},
	}
	check := &cobra.Command{
		Use:   "check NAME|FILE...",
		Short: "Check mappings, without a bill",
		Long: `Check mappings, without a bill. Faults are reported with file, line and column: an unknown column, field
or key, a second rule for a field, a value that needs itself, a missing rule for a column that every
line needs.`,
		Example: "  quartermaster mapping check our-supplier.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			all := []*bill.Mapping{}
			for _, name := range names {
				m, err := readMapping(name)
				if err != nil {
					return err
				}
				all = append(all, m)
			}
			if a.json {
				return a.answerJSON(all)
			}
			for i, m := range all {
				fmt.Fprintf(a.out, "%s: %s, %d fields of %d columns\n", names[i], m, len(m.Fields), len(m.Required)+len(m.Optional))
			}
			return nil
		},
	}
	cmd.AddCommand(list, show, check)
	return cmd
}
