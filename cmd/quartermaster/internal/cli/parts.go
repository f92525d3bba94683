package cli

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) partsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "parts",
		Short: "Make, list and verify the rows of sealed months as Parquet files",
		Long: `A part holds the rows of one month of one topic partition: usage, demand, faults, bills, prices and
all others that are split by time. It is a Parquet file that other programs can read, named by the
SHA-256 of its rows. docs/reference/parts.md describes it.

A month is sealed when an observation of it would be too old to be accepted: 7 days and an hour after
its end, by the time at which records were appended. Imports, corrections and repairs may still
change its rows. The part is then superseded: a new file is added, and the old one stays.

Parts are in the data directory, or where "parts" in the configuration says: a directory or a bucket.`,
	}
	cmd.AddCommand(a.partsMakeCommand(), a.partsListCommand(), a.partsVerifyCommand())
	return cmd
}

func (a *Program) partsMakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "make",
		Short: "Write the rows of sealed months that have no part, or have changed",
		Long: `Make writes a part for every sealed month that has none, or whose rows have changed since. It reads
the rows of these months only, so its cost does not grow with history. If nothing has changed, it writes
nothing. One process makes parts at a time.

It also keeps the usage of each of these months by day, resolved as "quartermaster usage" does, so that
later answers need not compute it. With a database, the SQL view usage then has these months, and
posted_allocations and statements have every closed month.`,
		Example: "  quartermaster parts make\n  quartermaster parts make -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			made, err := a.caller().MakeParts(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(made)
			}
			a.showMade(made)
			return nil
		},
	}
}

func (a *Program) showMade(made *app.PartsMade) {
	counts := map[string]int{}
	t := a.table("partition", "month", "rows", "outcome", "digest")
	alignRight(t, 3, 3)
	for _, p := range made.Parts {
		if counts[p.Outcome]++; p.Outcome != "unchanged" {
			t.AppendRow(table.Row{p.Partition, p.Month, count(int(p.Rows)), p.Outcome, domain.Clip(p.Digest, 17)})
		}
	}
	if counts["unchanged"] < len(made.Parts) {
		t.Render()
	}
	fmt.Fprintf(a.out, "%s new, %s superseded, %s unchanged; %s is the first month that is not sealed\n",
		comma(counts["new"]), comma(counts["superseded"]), comma(counts["unchanged"]), made.Open)
	if n := len(made.Usage); n > 0 {
		fmt.Fprintf(a.out, "usage by day of %s months, from %s to %s\n", comma(n), made.Usage[0], made.Usage[n-1])
	}
	if n := len(made.Posted); n > 0 {
		fmt.Fprintf(a.out, "%s closed months loaded into the database, from %s to %s\n", comma(n), made.Posted[0], made.Posted[n-1])
	}
	fmt.Fprintf(a.out, "in %s\nroot %s\nposition %s\n", made.Directory, made.Root, a.position(made.Position))
}

func (a *Program) partsListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the parts of this log",
		Long:    `List shows every version of every part, as its manifest describes it. It reads no Parquet file.`,
		Example: "  quartermaster parts list\n  quartermaster parts list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, dir, err := a.caller().ListParts(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(list)
			}
			if len(list) == 0 {
				fmt.Fprintf(a.out, "no parts in %s: \"quartermaster parts make\" makes them\n", dir)
				return nil
			}
			t := a.table("partition", "month", "rows", "size", "method", "state", "digest")
			alignRight(t, 3, 4)
			for _, p := range list {
				what := domain.Clip(p.Digest, 17)
				if p.Error != "" {
					what = p.Error
				}
				t.AppendRow(table.Row{
					p.Partition, p.Month, count(int(p.Rows)), humanize.IBytes(uint64(p.Bytes)), p.Method,
					strings.ReplaceAll(p.State, "_", " "), what,
				})
			}
			t.Render()
			fmt.Fprintf(a.out, "in %s\n", dir)
			return nil
		},
	}
}

func (a *Program) partsVerifyCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare every part with the rows",
		Long: `Verify reads every part, and compares its digest with its name and with the rows. It fails, and
names the part and the first row, if they differ, if a file is missing, or if one is not what was
written. With --as-of it folds the log to that position and compares with those rows.

If rows have changed since a part was made, it is reported as changed, and "parts make" supersedes
it. A part of another version of the folds is named and not compared. A sealed month without a part
is named; it is no failure.

Every file is read each time, because neither its name nor its time of change shows that its bytes
are the same.`,
		Example: "  quartermaster parts verify\n  quartermaster parts verify --as-of 2026-06-15 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := a.caller().VerifyParts(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			return a.showPartsCheck(check)
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showPartsCheck(check *app.PartsCheck) error {
	equal, bad := 0, 0
	for i := range check.Parts {
		c := &check.Parts[i]
		if c.Result == app.PartEqual {
			equal++
		}
		if c.Bad() {
			bad++
		}
	}
	if a.json {
		if err := a.answerJSON(check); err != nil {
			return err
		}
	} else {
		for _, c := range check.Parts {
			if c.Result == app.PartEqual {
				continue
			}
			fmt.Fprintf(a.out, "%s %s: %s: %s\n", c.Partition, c.Month, strings.ReplaceAll(c.Result, "_", " "), c.Why)
			if c.Row != "" {
				fmt.Fprintf(a.out, "  %s  part=%t rows=%t\n", c.Row, c.InPart, c.InRows)
			}
		}
		fmt.Fprintf(a.out, "%s of %s parts match the rows\nroot %s\nposition %s\n",
			comma(equal), comma(len(check.Parts)), check.Root, a.position(check.Position))
	}
	if bad > 0 {
		return &failed{why: fmt.Sprintf("%d parts do not match the rows", bad)}
	}
	return nil
}
