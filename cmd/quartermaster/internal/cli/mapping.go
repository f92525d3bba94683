package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/bill"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
)

func (a *Program) importBillCommand() *cobra.Command {
	var fl billFlags
	var mapping string
	var set, tables []string
	cmd := &cobra.Command{
		Use:   "bill --mapping NAME|FILE FILE...",
		Short: "Import suppliers' bills in their own columns",
		Long: `Import suppliers' bills in their own columns, as CSV (plain, gzip or zstd), Parquet or, if the mapping
says where its rows are, JSON. A mapping says how each column of FOCUS is computed from them: one that is
part of the program ("quartermaster mapping list"), or a file ("quartermaster mapping check" reads it,
"quartermaster schema mapping" describes it).

Some bills lack something that every line needs. --set gives a parameter, such as the name of the account,
and --table a table in CSV, such as the prices of a contract by SKU, from a date on. "quartermaster mapping
show" prints what a mapping needs, from which document it was made, and what to check.

Each row becomes one billing line, whose column x_Mapping has the name and version of the mapping, and the
hash of each table. A value that the mapping does not provide for, and a key without a row in a table, make
a bad row, with file, line and field. Rows of JSON are counted, and the header is line 1. Otherwise rows are
treated as those of "quartermaster import focus", whose help says how, and --snapshot replaces a month.`,
		Example: `  quartermaster import bill --mapping aws-cur-2.0 cur-2026-05.parquet
  quartermaster import bill --mapping aws-cur-2.0 --snapshot 123456789012/2026-05 cur-2026-05-*.parquet
  quartermaster import bill --mapping runpod --set account=research pods-2026-05.json
  quartermaster import bill --mapping coreweave --table rates=our-contract.csv usage-2026-09.json
  quartermaster import bill --mapping our-supplier.yaml usage.csv --zone UTC`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			m, err := readMapping(mapping)
			if err != nil {
				return err
			}
			if err := give(cmd.Context(), m, set, tables); err != nil {
				return err
			}
			return a.importBills(cmd, &fl, app.MappedBy(m, fl.opts), files)
		},
	}
	fl.add(cmd)
	cmd.Flags().StringVar(&mapping, "mapping", "", "name of a mapping of the program, or a file (required)")
	cmd.Flags().StringArrayVar(&set, "set", nil, "a parameter of the mapping, as NAME=TEXT; repeatable")
	cmd.Flags().StringArrayVar(&tables, "table", nil, "a table of the mapping, as NAME=FILE; repeatable")
	must(cmd.MarkFlagRequired("mapping"))
	return cmd
}

// give gives a mapping its parameters and tables.
func give(ctx context.Context, m *bill.Mapping, set, tables []string) error {
	for _, p := range set {
		name, text, ok := strings.Cut(p, "=")
		if !ok {
			return commandline.Usagef("--set %s: want NAME=TEXT", p)
		}
		if err := m.Set(name, text); err != nil {
			return &app.InvalidError{Err: err}
		}
	}
	for _, p := range tables {
		name, file, ok := strings.Cut(p, "=")
		if !ok {
			return commandline.Usagef("--table %s: want NAME=FILE", p)
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = m.Load(ctx, name, file, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return &app.InvalidError{Err: err}
		}
	}
	return nil
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

// needs returns the parameters and tables without which a mapping reads no file.
func needs(m *bill.Mapping) (names []string) {
	for _, p := range m.Parameters {
		if !p.Optional {
			names = append(names, p.Name)
		}
	}
	for _, t := range m.Tables {
		names = append(names, t.Name)
	}
	return names
}

func (a *Program) mappingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mapping",
		Short: "List, print and check mappings of suppliers' bills",
		Long: `A mapping says how a supplier's columns become those of FOCUS. "quartermaster import bill" reads bills
by it. To write one, print one of the program, change it and check it.`,
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the mappings that are part of the program",
		Long: `List the mappings that are part of the program, with what each needs beside the file ("quartermaster
import bill" has --set and --table), and the document of the supplier that it follows.`,
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
			t := a.table("mapping", "version", "fields", "needs", "source")
			for _, m := range all {
				t.AppendRow(table.Row{m.Name, m.Version, len(m.Fields), strings.Join(needs(m), ", "), m.Source})
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
