package app_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// yearStart begins the year of BenchmarkYear.
var yearStart = time.Date(2025, 7, 1, 0, 0, 0, 0, time.UTC)

// homeFleet is a fleet of nodes with eight GPUs, and who holds them.
type homeFleet struct {
	nodes, teams int  // the first team is nobody
	apart        int  // as many GPUs of a node have one holder
	hourly       bool // a billing line for each hour, and an invoice; else a line for each month
	// over means that one more hour follows months later, and that the partitions are folded one after another, so that
	// the rows of the months before it are left to parts, and memory never holds those of two partitions.
	over bool
}

// accountNodes is the number of nodes of a billing account of such a fleet.
const accountNodes = 1250

// account returns the billing account of a node.
func account(n int) string { return strconv.Itoa(1 + n/accountNodes) }

// fillHome appends the hours between two times of a fleet: one sample for each node and hour, appended
// at its end, and billing lines for each node. At the end of each month a snapshot is made, as the
// schedule makes it.
func fillHome(b *testing.B, dir string, fleet homeFleet, from, to time.Time) {
	b.Helper()
	nodes := fleet.nodes
	h, err := (&app.App{Dir: dir}).Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var records []domain.Record
	flush := func() {
		if err := h.Log.Append(b.Context(), records); err != nil {
			b.Fatal(err)
		}
		records = records[:0]
	}
	add := func(env *domain.Envelope) {
		rec, err := wire.Encode(env)
		if err != nil {
			b.Fatal(err)
		}
		rec.Time = env.Time
		if records = append(records, rec); len(records) == 20_000 {
			flush()
		}
	}
	names := make([]string, nodes)
	start := domain.InstantOf(from)
	for n := range names {
		names[n] = fmt.Sprintf("n%05d", n)
		env := storetest.Node("c1", names[n], "H100 80GB", 8, start)
		env.Source, env.Incarnation, env.Sequence = "node/"+names[n], 1, 1
		r := env.Event.(*domain.NodeRegistered)
		r.Provider, r.BillingAccount, r.ResourceID, r.SKU = "p", account(n), "r"+names[n], "gpu.8"
		add(&env)
	}
	devices := make([]storetest.Seen, 8)
	sequence := uint64(0)
	lines := map[string]uint64{} // by account
	bill := func(account string, at domain.Instant, e domain.Event) {
		lines[account]++
		add(&domain.Envelope{Source: "focus/p/" + account, Incarnation: 1, Sequence: lines[account], Time: at, Event: e})
	}
	hour := func(at time.Time) {
		i := domain.Interval{From: domain.InstantOf(at), To: domain.InstantOf(at.Add(time.Hour))}
		sequence++
		for n, node := range names {
			for g := range devices {
				devices[g] = storetest.Seen{ID: storetest.GPU("c1", node, g), Activity: (n*7 + g*13) % 1001}
				if who := (n + g/fleet.apart + at.YearDay()) % fleet.teams; who > 0 {
					devices[g].Workspace, devices[g].Deployment = fmt.Sprintf("team-%d", who), fmt.Sprintf("job-%d", (n+g/fleet.apart)%5)
				}
			}
			if fleet.hourly {
				line := billed(fmt.Sprintf("%05d-%04d", n, sequence), "r"+node, i)
				line.BillingAccountID = account(n)
				month := projections.BillingMonth(i.From)
				line.BillingPeriodStart, line.BillingPeriodEnd = month.From, month.To
				bill(line.BillingAccountID, i.To, &domain.BillingLineRecorded{Line: line})
			}
			add(&domain.Envelope{
				Source: "reporter/c1/" + node, Incarnation: 1, Sequence: sequence, Cluster: "c1", Shards: 64, Time: i.To,
				Event: storetest.Sample(node, i, devices...),
			})
		}
	}
	for at := from; at.Before(to); at = at.Add(time.Hour) {
		hour(at)
		if next := at.Add(time.Hour); next.Day() == 1 && next.Hour() == 0 {
			month := domain.Interval{From: domain.InstantOf(next.AddDate(0, -1, 0)), To: domain.InstantOf(next)}
			if fleet.hourly {
				for first := 0; first < nodes; first += accountNodes {
					whole := billed("", "", month)
					bill(account(first), month.To, &domain.InvoiceReceived{
						InvoiceIssuerName: "p", BillingAccountID: account(first), InvoiceID: whole.InvoiceID, BillingPeriod: month,
						Total: domain.Money{
							Amount: whole.BilledCost.Mul(decimal.NewFromInt(int64(min(accountNodes, nodes-first)))).Round(2), Currency: "USD",
						},
						IssueDate: month.To, Status: "Issued",
					})
				}
			} else {
				for n, node := range names {
					line := billed(fmt.Sprintf("%05d", n), "r"+node, month)
					line.BillingAccountID = account(n)
					bill(line.BillingAccountID, month.To, &domain.BillingLineRecorded{Line: line})
				}
			}
			if fleet.over {
				continue
			}
			flush()
			if err := h.CatchUp(b.Context()); err != nil {
				b.Fatal(err)
			}
			if _, err := h.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
			keepSnapshot(b, h)
		}
	}
	if fleet.over {
		hour(to.AddDate(0, 3, 0))
	}
	flush()
	if fleet.over {
		_, end, err := h.Bounds(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for tp, to := range end {
			if err := h.Runner.CatchUp(b.Context(), domain.Position{tp: to}); err != nil {
				b.Fatal(err)
			}
		}
		if err := app.Seal(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(h.CatchUp(b.Context()), h.Close()); err != nil {
		b.Fatal(err)
	}
}

// keepSnapshot keeps the rows for good. The rule for scheduled snapshots would keep one of all that
// are made in the same hour.
func keepSnapshot(b *testing.B, h *app.Conn) {
	b.Helper()
	if err := h.View(b.Context(), func(v projections.View) error {
		_, err := snapshotfile.Keep(h.Snapshots(), v.Position(), func(w io.Writer) error {
			_, err := projections.WriteSnapshot(w, v, h.ID)
			return err
		})
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// billed is the line of a node for a month.
func billed(id, resource string, month domain.Interval) domain.BillingLine {
	hours := int64((month.To - month.From) / domain.Hour)
	cost := decimal.New(hours*31_464, -3)
	return domain.BillingLine{
		LineID: id, InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-" + projections.MonthName(projections.HourOf(month.From)),
		BillingCurrency: "USD", BillingPeriodStart: month.From, BillingPeriodEnd: month.To,
		ChargePeriodStart: month.From, ChargePeriodEnd: month.To, ChargeCategory: "Usage", ChargeFrequency: "Usage-Based",
		PricingCategory: "Standard", BilledCost: cost, EffectiveCost: decimal.NewNullDecimal(cost), ResourceID: resource,
		PricingQuantity: decimal.NewNullDecimal(decimal.NewFromInt(hours)), PricingUnit: "Hours",
	}
}

// cost is what some work took.
type cost struct {
	wall, cpu time.Duration
	peak      uint64 // bytes of memory of the Go runtime, above what it held before
}

// measure runs work with a heap that was returned to the system.
func measure(b *testing.B, work func() error) (c cost) {
	b.Helper()
	held := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	memory := func() uint64 {
		metrics.Read(held)
		return held[0].Value.Uint64() - held[1].Value.Uint64()
	}
	debug.FreeOSMemory()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			c.peak = max(c.peak, memory())
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	start, before := time.Now(), cpuTime()
	err := work()
	c.wall, c.cpu = time.Since(start), cpuTime()-before
	close(stop)
	<-stopped
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkYear measures an embedded home with a year of samples, one for each node and hour:
// opening it, the costs of a month beside those of a home with that month alone, the past, and the
// check against the log. QM_BENCH_YEAR_NODES sets the nodes; docs/evidence/benchmarks.md reports 200
// and 1000. QM_BENCH_YEAR_DIR keeps the homes between runs.
func BenchmarkYear(b *testing.B) {
	nodes := 10
	if s := os.Getenv("QM_BENCH_YEAR_NODES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		nodes = n
	}
	dir := os.Getenv("QM_BENCH_YEAR_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	january := yearStart.AddDate(0, 6, 0)
	homes := map[string][2]time.Time{
		"year":  {yearStart, yearStart.AddDate(1, 0, 0)},
		"month": {january, january.AddDate(0, 1, 9)}, // sealed, as in the year
	}
	for name, span := range homes {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, os.ErrNotExist) {
			fillHome(b, filepath.Join(dir, name), homeFleet{nodes: nodes, teams: 4, apart: 1}, span[0], span[1])
		}
	}
	report := func(b *testing.B, c cost) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(c.wall.Seconds(), "s")
		b.ReportMetric(c.cpu.Seconds(), "cpu-s")
		b.ReportMetric(float64(c.peak)/(1<<20), "MiB")
	}
	open := func(b *testing.B, home string) (*app.Conn, cost) {
		var h *app.Conn
		c := measure(b, func() (err error) {
			h, err = (&app.App{Dir: filepath.Join(dir, home)}).Open(b.Context())
			return err
		})
		return h, c
	}
	b.Run("open", func(b *testing.B) {
		for range b.N {
			h, c := open(b, "year")
			report(b, c)
			if err := h.Shut(); err != nil {
				b.Fatal(err)
			}
		}
	})
	month := domain.Interval{From: domain.InstantOf(january), To: domain.InstantOf(january.AddDate(0, 1, 0))}
	cpu := map[string]time.Duration{}
	for _, home := range []string{"month", "year"} {
		b.Run("costs/"+home, func(b *testing.B) {
			for range b.N {
				a := &app.App{Dir: filepath.Join(dir, home)}
				h, err := a.Open(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Close(); err != nil { // leaves the month to parts
					b.Fatal(err)
				}
				groups := 0
				c := measure(b, func() error {
					r, err := a.For(app.Everyone).Costs(b.Context(), "", costs.Query{Month: month, By: []costs.Dimension{costs.ByWorkspace}})
					if err == nil {
						groups = len(r.Groups)
					}
					return err
				})
				if groups < 3 {
					b.Fatalf("%d workspaces have costs", groups)
				}
				report(b, c)
				cpu[home] = c.cpu
				if cpu["month"] > 0 && home == "year" {
					b.ReportMetric(float64(cpu["year"])/float64(cpu["month"]), "of-month")
				}
				if err := a.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("as-of", func(b *testing.B) {
		for range b.N {
			a := &app.App{Dir: filepath.Join(dir, "year")}
			report(b, measure(b, func() error {
				_, err := a.For(app.Everyone).Fleet(b.Context(), "2026-02-28", inventory.Filter{At: app.Now()})
				return err
			}))
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for range b.N {
			a := &app.App{Dir: filepath.Join(dir, "year")}
			report(b, measure(b, func() error {
				r, err := a.For(app.Everyone).Replay(b.Context(), true)
				if err == nil && !*r.Equal {
					err = fmt.Errorf("the live rows are not those of the log: %+v", r)
				}
				return err
			}))
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
