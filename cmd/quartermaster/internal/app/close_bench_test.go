package app_test

import (
	"crypto/ed25519"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// BenchmarkClose measures the close of a month from stored rows, and what a closed month answers: one sample and one
// billing line for each node and hour, 1,000 workspaces, three allocations a line. QM_BENCH_CLOSE_NODES sets the nodes of
// eight GPUs; docs/evidence/benchmarks.md reports 1,250, which are 10,000 GPUs and a million lines.
// QM_BENCH_CLOSE_DIR keeps the home between runs.
func BenchmarkClose(b *testing.B) {
	nodes := 10
	if s := os.Getenv("QM_BENCH_CLOSE_NODES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		nodes = n
	}
	dir := os.Getenv("QM_BENCH_CLOSE_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	month := domain.Interval{From: domain.InstantOf(from), To: domain.InstantOf(from.AddDate(0, 1, 0))}
	dir = filepath.Join(dir, strconv.Itoa(nodes))
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fillHome(b, dir, homeFleet{nodes: nodes, teams: 1001, apart: 3, hourly: true}, from, from.AddDate(0, 1, 0))
	}
	a := &app.App{Dir: dir}
	defer func() {
		if err := a.Close(); err != nil {
			b.Error(err)
		}
	}()
	report := func(b *testing.B, c cost) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(c.wall.Seconds(), "s")
		b.ReportMetric(c.cpu.Seconds(), "cpu-s")
		b.ReportMetric(float64(c.peak)/(1<<20), "MiB")
	}
	closed := closedMonth(b, a, month, func(prepare func() error) {
		b.Run("prepare", func(b *testing.B) {
			for range b.N {
				report(b, measure(b, prepare))
			}
		})
	})
	if closed != nil {
		b.Fatal(closed)
	}
	caller := a.For(app.Everyone)
	b.Run("costs", func(b *testing.B) {
		for range b.N {
			report(b, measure(b, func() error {
				_, err := caller.Costs(b.Context(), "", costs.Query{Month: month, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}})
				return err
			}))
		}
	})
	b.Run("statement", func(b *testing.B) {
		for range b.N {
			report(b, measure(b, func() error {
				_, err := caller.CostStatements(b.Context(), "", month, "team-7")
				return err
			}))
		}
	})
	b.Run("explain", func(b *testing.B) {
		var ref attribution.Ref
		enough := errors.New("enough")
		_, err := caller.ExportCosts(b.Context(), "", app.CostsExport{Months: []domain.Interval{month}}, func(columns []costs.Column) (app.RowWriter, error) {
			at := slices.IndexFunc(columns, func(c costs.Column) bool { return c.Name == "x_AllocationId" })
			return rowFunc(func(row []string) (err error) {
				if ref, err = attribution.ParseRef(row[at]); err == nil && ref.Hour > month.From+domain.Day {
					err = enough
				}
				return err
			}), nil
		})
		if !errors.Is(err, enough) {
			b.Fatal(err)
		}
		for range b.N {
			report(b, measure(b, func() error {
				_, err := caller.ExplainAllocation(b.Context(), "", ref)
				return err
			}))
		}
	})
	var cells [][]string // some rows, written again and again by encoding/csv
	rows := 0
	cpu := map[string]time.Duration{}
	export := func(name string, open func(io.Writer, []tabular.Column) tabular.Writer) {
		b.Run("export/"+name, func(b *testing.B) {
			for range b.N {
				c := measure(b, func() error {
					var w tabular.Writer
					m, err := caller.ExportCosts(b.Context(), "", app.CostsExport{Months: []domain.Interval{month}}, func(columns []costs.Column) (app.RowWriter, error) {
						typed := make([]tabular.Column, len(columns))
						for i, c := range columns {
							typed[i] = tabular.Column{Name: c.Name, Kind: map[costs.Kind]tabular.Kind{
								costs.KindDecimal: tabular.Decimals, costs.KindTime: tabular.Times, costs.KindFlag: tabular.Flags,
							}[c.Kind]}
						}
						w = open(io.Discard, typed)
						return remembered{w, &cells}, nil
					})
					if err != nil {
						return err
					}
					rows = m.Rows
					return w.Close()
				})
				report(b, c)
				cpu[name] = c.cpu
				b.ReportMetric(float64(rows), "rows")
			}
		})
	}
	export("csv", func(w io.Writer, columns []tabular.Column) tabular.Writer { return tabular.NewCSVWriter(w, columns) })
	export("parquet", func(w io.Writer, columns []tabular.Column) tabular.Writer { return parquet.NewWriter(w, columns) })
	b.Run("export/encoding-csv", func(b *testing.B) {
		if len(cells) == 0 {
			b.Skip("no rows were exported before")
		}
		for range b.N {
			c := measure(b, func() error {
				w := csv.NewWriter(io.Discard)
				for i := range rows {
					if err := w.Write(cells[i%len(cells)]); err != nil {
						return err
					}
				}
				w.Flush()
				return w.Error()
			})
			report(b, c)
			for name, of := range cpu {
				b.ReportMetric(of.Seconds()/c.cpu.Seconds(), name+"-of-this")
			}
		}
	})
}

// rowFunc is a writer of rows.
type rowFunc func(row []string) error

func (f rowFunc) Write(row []string) error { return f(row) }

// remembered keeps some of the rows that it writes.
type remembered struct {
	tabular.Writer
	cells *[][]string
}

func (w remembered) Write(row []string) error {
	if len(*w.cells) < 10_000 {
		*w.cells = append(*w.cells, append([]string{}, row...))
	}
	return w.Writer.Write(row)
}

// closedMonth closes a month by two people, accepting whatever stands against it. measured is called with the
// preparation that is accepted.
func closedMonth(b testing.TB, a *app.App, month domain.Interval, measured func(prepare func() error)) error {
	b.Helper()
	caller := a.For(app.Everyone)
	if all, err := caller.Closes(b.Context(), ""); err != nil || len(all) > 0 {
		return err
	}
	_, root := apptest.FirstOperator(b, a)
	public, ann, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	apptest.Decide(b, a, root, app.RegisterOperator(app.Platform, &domain.OperatorRegistered{Operator: "ann", PublicKey: public, Role: domain.RoleFinance}))
	accept := map[string]string{}
	for _, check := range costs.CheckNames() {
		accept[check] = "a benchmark"
	}
	var draft app.Draft
	measured(func() error {
		_, draft, err = caller.PrepareClose(b.Context(), month, accept, false)
		return err
	})
	if err != nil {
		return err
	}
	apptest.Decide(b, a, root, draft)
	_, draft, err = caller.ApproveClose(b.Context(), month)
	if err != nil {
		return err
	}
	apptest.Decide(b, a, ann, draft)
	return nil
}
