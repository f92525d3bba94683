package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster-audit/internal/audit"
	"quartermaster/domain"
)

// item is one row of a sample.
type item struct {
	Row    int64             `json:"row"` // of the file, from 1, without the header
	Values map[string]string `json:"values"`
	// Hits is how often the sample hit the row; more than once only by amount.
	Hits int `json:"hits"`
	// Trail are the events of the line that the row names; absent without --archive.
	Trail []step `json:"trail,omitempty"`
}

// generator returns the random numbers of a seed. They are the same on every machine.
func generator(seed string) *rand.Rand {
	sum := sha256.Sum256([]byte(seed))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// drawRows draws n different rows, each as likely as another. It returns how often each was hit, by index.
func drawRows(rows, n int, r *rand.Rand) map[int]int {
	hits := map[int]int{}
	for _, i := range r.Perm(rows)[:min(n, rows)] {
		hits[i] = 1
	}
	return hits
}

// drawAmounts draws by monetary unit: of the sum of absolute amounts, every interval of sum/n units is
// hit once, from a random start in the first. So a row of at least sum/n is always in the sample. It is
// exact: amounts are rational numbers.
func drawAmounts(amounts []*big.Rat, n int, r *rand.Rand) map[int]int {
	sum := new(big.Rat)
	for _, a := range amounts {
		sum.Add(sum, new(big.Rat).Abs(a))
	}
	hits := map[int]int{}
	if sum.Sign() == 0 {
		return hits
	}
	step := new(big.Rat).Quo(sum, big.NewRat(int64(n), 1))
	// The start is one of 2⁵³ places within the first interval.
	next := new(big.Rat).Mul(step, big.NewRat(int64(r.Uint64()>>11), 1<<53))
	at := new(big.Rat)
	for i, a := range amounts {
		at.Add(at, new(big.Rat).Abs(a))
		for next.Cmp(at) < 0 {
			hits[i]++
			next.Add(next, step)
		}
	}
	return hits
}

func (p *program) sampleCommand() *cobra.Command {
	var seed, by, currency, dir, lineColumn string
	n := 25
	cmd := &cobra.Command{
		Use:   "sample FILE --seed TEXT",
		Short: "Draw a sample of an exported file, with the events behind each row",
		Long: `Sample draws rows of an exported CSV or Parquet file, or of the kept allocations of a month, whose file
is named by its SHA-256 and ends with .allocations. Without --by each row is as likely as another. With
--by it draws by monetary unit: the chance of a row is proportional to the amount in that column without
its sign, and a row of at least the sum divided by --n is always drawn. Amounts in several currencies cannot be
added, so --currency names the one whose rows are drawn; draw once for each. The same rows in the same order,
seed and options give the same sample on every machine, whatever the format.

With --archive each row has the events of the line that it names, with partition and offset for "prove".
Kept allocations must then be those that a close in the archive names, else sample exits with 5.`,
		Example: "  quartermaster-audit sample june.csv --seed \"dice 4 1 6 2\" --by BilledCost --n 60\n" +
			"  quartermaster-audit sample june.parquet --seed 20260701 --archive /mnt/archive -o json\n" +
			"  quartermaster-audit sample parts/month=2026-06/allocations/DIGEST.allocations --seed 7 --by BilledCost",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if n < 1 || n > 1_000_000 {
				return commandline.Usagef("--n is %d, want 1 to 1000000", n)
			}
			file, err := readExport(args[0])
			if err != nil {
				return err
			}
			var from []int // the rows to draw from
			if from, err = file.inCurrency(by, currency, args[0]); err != nil {
				return err
			}
			r := generator(seed)
			var drawn map[int]int
			if by == "" {
				drawn = drawRows(len(from), n, r)
			} else {
				amounts, err := file.amounts(by, args[0], from)
				if err != nil {
					return err
				}
				drawn = drawAmounts(amounts, n, r)
			}
			hits := map[int]int{}
			for k, times := range drawn {
				hits[from[k]] = times
			}
			var items []item
			for i, row := range file.rows {
				if hits[i] == 0 {
					continue
				}
				values := map[string]string{}
				for k, name := range file.header {
					values[name] = row[k]
				}
				items = append(items, item{Row: int64(i + 1), Values: values, Hits: hits[i]})
			}
			column := file.lineColumn(lineColumn)
			if dir != "" {
				if column == "" {
					column = lineColumns[0]
				}
				if _, err := file.column(column, args[0]); err != nil {
					return err
				}
				if err := addTrails(dir, column, file.kept, items); err != nil {
					return err
				}
			}
			return p.showSample(items, file, len(from), column)
		},
	}
	f := cmd.Flags()
	f.StringVar(&seed, "seed", "", "any text: what decides the draw")
	f.IntVar(&n, "n", n, "number of draws")
	f.StringVar(&by, "by", "", "column with the amount, for monetary-unit sampling (default: every row is as likely)")
	f.StringVar(&currency, "currency", "", "draw only from rows in this currency (default: all, which with --by must have the same one)")
	f.StringVar(&dir, "archive", "", "directory of an archive, for the events of each row (default none)")
	f.StringVar(&lineColumn, "line-column", "", "column with the id of a line of a bill (default: "+strings.Join(lineColumns, ", else ")+")")
	if err := cmd.MarkFlagRequired("seed"); err != nil {
		panic(err) // the flag exists
	}
	return cmd
}

// amount is a number that [big.Rat] can hold without taking much memory.
var amount = regexp.MustCompile(`^[+-]?[0-9]{1,60}(\.[0-9]{1,60})?([eE][+-]?[0-9]{1,2})?$`)

// currencyColumns have the currency of the amounts in other columns, which begin so. The last is for all others.
var currencyColumns = []struct{ amounts, currency string }{
	{"x_Books", "x_BooksCurrency"},
	{"PricingCurrency", "PricingCurrency"},
	{"", "BillingCurrency"},
}

// inCurrency returns the indexes of the rows in a currency; all rows without one. It refuses to add amounts in several
// currencies: by is the column of the amounts, "" if none are added.
func (e *exported) inCurrency(by, currency, file string) ([]int, error) {
	at := -1
	for _, c := range currencyColumns {
		if strings.HasPrefix(by, c.amounts) {
			at = slices.Index(e.header, c.currency)
			break
		}
	}
	if at < 0 && currency != "" {
		return nil, commandline.Usagef("%s has no column with the currency, so no row is known to be in %s", file, domain.Clip(currency, 40))
	}
	var rows []int
	found := map[string]bool{}
	for i, row := range e.rows {
		if at >= 0 {
			found[row[at]] = true
			if currency != "" && row[at] != currency {
				continue
			}
		}
		rows = append(rows, i)
	}
	delete(found, "") // without an amount
	names := strings.Join(slices.Sorted(maps.Keys(found)), ", ")
	switch {
	case currency != "" && !found[currency]:
		return nil, commandline.Usagef("%s has no row in %q; it has %s", file, domain.Clip(currency, 40), names)
	case currency == "" && by != "" && len(found) > 1:
		return nil, commandline.Usagef("%s has %s in %s, which cannot be added: draw from one of them with --currency", file, by, names)
	}
	return rows, nil
}

// amounts returns a column of some rows as exact numbers. An empty cell is 0.
func (e *exported) amounts(column, file string, rows []int) ([]*big.Rat, error) {
	at, err := e.column(column, file)
	if err != nil {
		return nil, err
	}
	out := make([]*big.Rat, len(rows))
	for i, k := range rows {
		row := e.rows[k]
		out[i] = new(big.Rat)
		if row[at] == "" {
			continue
		}
		if !amount.MatchString(row[at]) {
			return nil, commandline.Usagef("%s: row %d: %s is %q, not an amount", file, k+1, column, domain.Clip(row[at], 40))
		}
		if _, ok := out[i].SetString(row[at]); !ok {
			return nil, commandline.Usagef("%s: row %d: %s is %q, not an amount", file, k+1, column, domain.Clip(row[at], 40))
		}
	}
	return out, nil
}

// addTrails reads the events of bills once and adds to each item those of its line. If the items are of kept
// allocations, a close must name their digest.
func addTrails(dir, column, kept string, items []item) error {
	a, err := open(dir)
	if err != nil {
		return err
	}
	return trails(a, column, kept, items)
}

func trails(a *audit.Archive, column, kept string, items []item) error {
	wanted := map[string][]int{}
	for i := range items {
		if id := items[i].Values[column]; id != "" {
			wanted[id] = append(wanted[id], i)
		}
	}
	topics := []domain.Topic{domain.TopicBilling}
	if kept != "" {
		topics = append(topics, domain.TopicBooks)
	}
	closed := kept == ""
	err := each(a, topics, func(rec *domain.Record, env *domain.Envelope) error {
		var id string
		switch e := env.Event.(type) {
		case *domain.BillingLineRecorded:
			id = e.Line.LineID
		case *domain.BillingLineCorrected:
			if id = e.Corrects; wanted[id] == nil {
				id = e.Line.LineID
			}
		case *domain.BillingLineRemoved:
			id = e.LineID
		case *domain.BooksClosed:
			closed = closed || hex.EncodeToString(e.Digest) == kept
		}
		if id == "" || wanted[id] == nil {
			return nil
		}
		s, err := stepOf(rec, env)
		for _, i := range wanted[id] {
			items[i].Trail = append(items[i].Trail, s)
		}
		return err
	})
	if err == nil && !closed {
		return &answer{commandline.ExitIncomplete, "no close in the archive names the allocations " + kept}
	}
	return err
}

func (p *program) showSample(items []item, file *exported, from int, column string) error {
	for i := range items {
		it := &items[i]
		text := fmt.Sprintf("row %d", it.Row)
		if it.Hits > 1 {
			text += fmt.Sprintf(" (%d times)", it.Hits)
		}
		if slices.Contains(file.header, column) {
			text += "  " + it.Values[column]
		}
		for k := range it.Trail {
			text += "\n  " + it.Trail[k].String()
		}
		if err := p.line(it, text); err != nil {
			return err
		}
	}
	if !p.json() {
		fmt.Fprintf(p.out, "%d of %d rows\n", len(items), from)
	}
	return nil
}

// changed is a row that only one of two exports has.
type changed struct {
	Change string            `json:"change"` // added or removed
	Count  int               `json:"count"`  // how many more of the row there are
	Values map[string]string `json:"values"`
}

func (p *program) diffExportsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff-exports FILE FILE",
		Short: "Show which rows differ between two exported files",
		Long: `Diff-exports compares two files with the same columns, in CSV or Parquet, as sets of rows, in which a
row may occur several times. Their order does not matter, nor does it that CSV protects texts from being taken for
formulas, and Parquet does not. It exits with 1 if they differ.`,
		Example: "  quartermaster-audit diff-exports june.csv june-again.csv\n" +
			"  quartermaster-audit diff-exports june.csv june-again.csv -o json",
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := readExport(args[0])
			if err != nil {
				return err
			}
			b, err := readExport(args[1])
			if err != nil {
				return err
			}
			if !slices.Equal(a.header, b.header) {
				return commandline.Usagef("%s and %s have other columns", args[0], args[1])
			}
			more := map[string]int{} // of a row in the first file than in the second
			key := func(row []string) string { return strings.Join(row, "\x00") }
			for _, row := range a.rows {
				more[key(row)]++
			}
			for _, row := range b.rows {
				more[key(row)]--
			}
			differ := 0
			for _, row := range append(a.rows, b.rows...) {
				n := more[key(row)]
				if n == 0 {
					continue
				}
				delete(more, key(row))
				differ++
				c := changed{Change: "removed", Count: max(n, -n), Values: map[string]string{}}
				sign := "-"
				if n < 0 {
					c.Change, sign = "added", "+"
				}
				for k, name := range a.header {
					c.Values[name] = row[k]
				}
				if err := p.line(c, fmt.Sprintf("%s%d  %s", sign, c.Count, strings.Join(row, ","))); err != nil {
					return err
				}
			}
			if differ > 0 {
				return &answer{commandline.ExitNo, fmt.Sprintf("%d different rows differ", differ)}
			}
			return nil
		},
	}
}
