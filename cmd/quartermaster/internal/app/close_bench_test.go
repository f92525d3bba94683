package app_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/postgres"
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
// QM_BENCH_CLOSE_SEALED leaves the rows of the month to parts, as those of every month are once it is over.
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
	fleet := homeFleet{nodes: nodes, teams: 1001, apart: 3, hourly: true, over: os.Getenv("QM_BENCH_CLOSE_SEALED") != ""}
	dir = filepath.Join(dir, fmt.Sprintf("%d-%t", nodes, fleet.over))
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fillHome(b, dir, fleet, from, from.AddDate(0, 1, 0))
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
		var ref attribution.Ref // the last that is of an hour
		if _, err := caller.ExportCosts(b.Context(), "", app.CostsExport{Months: []domain.Interval{month}}, func(columns []costs.Column) (app.RowWriter, error) {
			at := slices.IndexFunc(columns, func(c costs.Column) bool { return c.Name == "x_AllocationId" })
			return rowFunc(func(row []string) error {
				of, err := attribution.ParseRef(row[at])
				if of.Hour != 0 {
					ref = of
				}
				return err
			}), nil
		}); err != nil {
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
	b.Run("sql", func(b *testing.B) {
		db := emptyDatabase(b)
		for range b.N {
			report(b, measure(b, func() error {
				return app.BooksContent(b.Context(), a, month, func(content *postgres.BooksContent) error {
					return db.PutBooks(b.Context(), postgres.Books{Month: month, Allocations: make([]byte, 32)}, content)
				})
			}))
		}
		var bytes, rows float64
		if err := db.QueryRowContext(b.Context(), `select pg_total_relation_size('quartermaster.closed_allocations'), rows
			from quartermaster.closed_months`).Scan(&bytes, &rows); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rows, "rows")
		b.ReportMetric(bytes/rows, "B/row")
	})
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

// emptyDatabase returns a new database on the server that QM_POSTGRES_DSN names. It is dropped in the end.
func emptyDatabase(b *testing.B) *postgres.DB {
	b.Helper()
	dsn := os.Getenv("QM_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("QM_POSTGRES_DSN names no server")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		b.Fatal(err)
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		b.Fatal(err)
	}
	server, name := sql.OpenDB(connector), "qm_bench_"+strings.ToLower(rand.Text()[:12])
	if _, err := server.ExecContext(b.Context(), "create database "+name); err != nil {
		b.Fatal(err)
	}
	u.Path = "/" + name
	cfg := postgres.Config{DSN: u.String()}
	_, _, err = postgres.Migrate(b.Context(), cfg)
	var db *postgres.DB
	if err == nil {
		db, err = postgres.Open(b.Context(), cfg)
	}
	b.Cleanup(func() {
		var closed error
		if db != nil {
			closed = db.Close()
		}
		_, dropped := server.ExecContext(context.Background(), "drop database "+name+" with (force)")
		if err := errors.Join(closed, dropped, server.Close()); err != nil {
			b.Error(err)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return db
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
	if all, err := a.For(app.Everyone).Closes(b.Context(), ""); err != nil || len(all) > 0 {
		return err
	}
	return newBookkeepers(b, a).close(b, a, month, measured)
}

// bookkeepers are two people who close months.
type bookkeepers struct{ root, ann ed25519.PrivateKey }

func newBookkeepers(b testing.TB, a *app.App) (k bookkeepers) {
	b.Helper()
	_, k.root = apptest.FirstOperator(b, a)
	public, ann, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	k.ann = ann
	apptest.Decide(b, a, k.root, app.RegisterOperator(app.Platform, &domain.OperatorRegistered{Operator: "ann", PublicKey: public, Role: domain.RoleFinance}))
	return k
}

// close is closedMonth for a month that is open.
func (k bookkeepers) close(b testing.TB, a *app.App, month domain.Interval, measured func(prepare func() error)) error {
	b.Helper()
	caller := a.For(app.Everyone)
	accept := map[string]string{}
	for _, check := range costs.CheckNames() {
		accept[check] = "a benchmark"
	}
	var draft app.Draft
	var err error
	measured(func() error {
		_, draft, err = caller.PrepareClose(b.Context(), month, accept, "", false)
		return err
	})
	if err != nil {
		return err
	}
	apptest.Decide(b, a, k.root, draft)
	_, draft, err = caller.ApproveClose(b.Context(), month, "")
	if err != nil {
		return err
	}
	apptest.Decide(b, a, k.ann, draft)
	return nil
}

// BenchmarkClosedYear measures the costs of twelve closed months by workspace and month, in a program that was just
// started, and again at once. QM_BENCH_CLOSE_NODES sets the nodes of eight GPUs, QM_BENCH_CLOSE_TEAMS the workspaces, and
// QM_BENCH_CLOSE_DIR keeps the home between runs. docs/evidence/benchmarks.md reports 125 nodes and 200 workspaces.
func BenchmarkClosedYear(b *testing.B) {
	number := func(name string, n int) int {
		if s := os.Getenv(name); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil {
				b.Fatal(err)
			}
		}
		return n
	}
	nodes, teams := number("QM_BENCH_CLOSE_NODES", 2), number("QM_BENCH_CLOSE_TEAMS", 20)
	dir := os.Getenv("QM_BENCH_CLOSE_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	dir = filepath.Join(dir, "year-"+strconv.Itoa(nodes)+"-"+strconv.Itoa(teams))
	from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		fillHome(b, dir, homeFleet{nodes: nodes, teams: teams + 1, apart: 3, hourly: true}, from, from.AddDate(1, 0, 0))
	}
	opened := func(work func(a *app.App)) {
		a := &app.App{Dir: dir}
		work(a)
		if err := a.Close(); err != nil {
			b.Error(err)
		}
	}
	var year []domain.Interval
	for m := range 12 {
		year = append(year, domain.Interval{From: domain.InstantOf(from.AddDate(0, m, 0)), To: domain.InstantOf(from.AddDate(0, m+1, 0))})
	}
	opened(func(a *app.App) {
		if all, err := a.For(app.Everyone).Closes(b.Context(), ""); err != nil {
			b.Fatal(err)
		} else if len(all) > 0 {
			return
		}
		k := newBookkeepers(b, a)
		for _, month := range year {
			if err := k.close(b, a, month, func(prepare func() error) { _ = prepare() }); err != nil {
				b.Fatal(err)
			}
		}
	})
	for b.Loop() {
		opened(func(a *app.App) {
			caller := a.For(app.Everyone)
			start := measure(b, func() error {
				_, err := caller.Closes(b.Context(), "")
				return err
			})
			groups := 0
			ask := func() error {
				r, err := caller.CostsOfMonths(b.Context(), "", costs.MonthsQuery{Months: year, By: []costs.Dimension{costs.ByWorkspace, costs.ByMonth}})
				if err == nil {
					groups = len(r.Groups)
				}
				return err
			}
			first := measure(b, ask)
			b.ReportMetric(float64(groups), "groups")
			b.ReportMetric(start.cpu.Seconds(), "open-cpu-s")
			b.ReportMetric(float64(start.peak)/(1<<20), "open-MiB")
			b.ReportMetric(first.cpu.Seconds(), "cpu-s")
			b.ReportMetric(first.wall.Seconds(), "s")
			b.ReportMetric(float64(first.peak)/(1<<20), "MiB")
		})
	}
}
