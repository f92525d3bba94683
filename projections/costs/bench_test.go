package costs_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// billedFleet is a week of nodes with eight GPUs whose holders change every two hours, reported and
// billed by the hour.
func billedFleet(nodes, hours int) *storetest.Log { return billedTeams(nodes, hours, 4) }

// billedTeams is billedFleet with another number of holders; the first of them is nobody.
func billedTeams(nodes, hours, teams int) *storetest.Log {
	l := storetest.NewLog()
	l.Batch = 1000
	l.Append(domain.Envelope{Workspace: "acme", Cluster: "c1", Time: storetest.Start, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}})
	for n := range nodes {
		env := storetest.Node("c1", fmt.Sprintf("n%05d", n), "H100 80GB", 8, storetest.Start)
		env.Event.(*domain.NodeRegistered).ResourceID = fmt.Sprintf("r%05d", n)
		l.Append(env)
	}
	devices := make([]storetest.Seen, 8)
	for hour := range hours {
		i := domain.Interval{From: storetest.Start + domain.Instant(hour)*domain.Hour, To: storetest.Start + domain.Instant(hour+1)*domain.Hour}
		for n := range nodes {
			node := fmt.Sprintf("n%05d", n)
			for g := range devices {
				devices[g] = storetest.Seen{ID: storetest.GPU("c1", node, g), Activity: (n*7 + g*13) % 1001}
				if who := (n + g + hour/2) % teams; who > 0 {
					devices[g].Workspace, devices[g].Deployment = fmt.Sprintf("team-%d", who), fmt.Sprintf("job-%d", (n+g)%5)
				}
			}
			l.Append(domain.Envelope{Source: "reporter/c1/" + node, Cluster: "c1", Time: i.To, Event: storetest.Sample(node, i, devices...)})
			l.Append(recorded(billLine(fmt.Sprintf("%05d-%04d", n, hour), "31.464", func(b *domain.BillingLine) {
				b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = i.From, i.To, fmt.Sprintf("r%05d", n)
				b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
			})))
		}
	}
	return l
}

// Ten times the nodes, and so ten times the lines and allocations, take ten times as long.
func BenchmarkCosts(b *testing.B) {
	const hours = 168
	for _, nodes := range []int{50, 500} {
		m, err := billedFleet(nodes, hours).Fold(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for name, by := range map[string][]costs.Dimension{
			"workspace": {costs.ByWorkspace, costs.ByComponent},
			"line":      {costs.ByLine, costs.ByDeployment},
		} {
			b.Run(fmt.Sprintf("%d/%s", nodes, name), func(b *testing.B) {
				b.ReportAllocs()
				allocations := 0
				for b.Loop() {
					err := m.View(context.Background(), func(v projections.View) error {
						r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: by})
						allocations = r.Allocations
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes*hours), "ns/node-hour")
				b.ReportMetric(float64(allocations), "allocations")
			})
		}
		// The next query about a divided month.
		b.Run(fmt.Sprintf("%d/kept", nodes), func(b *testing.B) {
			var d *costs.Division
			err := m.View(context.Background(), func(v projections.View) (err error) {
				d, err = costs.Divide(v, storetest.MayBill, 1<<40)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := d.Report(costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes*hours), "ns/node-hour")
			b.ReportMetric(float64(d.Bytes())/(1<<20), "MiB")
		})
	}
}

// A kept month of many workspaces answers from its canonical form, and so does a year of such months. A month of 10,000
// GPUs has 2.8 million allocations.
func BenchmarkKeptMonth(b *testing.B) {
	m, err := billedTeams(50, 168, 1001).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	var d *costs.Division
	if err := m.View(context.Background(), func(v projections.View) (err error) {
		if d, err = costs.ReadCanonical(openBytes(canonicalForm(b, v, storetest.MayBill))); err == nil {
			d, err = d.At(v)
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	for name, answer := range map[string]func() error{
		"workspace": func() error {
			_, err := d.Report(costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}})
			return err
		},
		"line": func() error {
			_, err := d.Report(costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByLine}})
			return err
		},
		"statement": func() error {
			_, err := d.WorkspaceReports(costs.EachWorkspace{
				Month: storetest.MayBill, Only: "team-7", By: [][]costs.Dimension{{costs.ByComponent}, {costs.ByGPUModel}},
			})
			return err
		},
		"months": func() error {
			m, err := costs.NewMonths(costs.MonthsQuery{
				Months: []domain.Interval{storetest.MayBill}, By: []costs.Dimension{costs.ByWorkspace, costs.ByMonth},
			})
			if err != nil {
				return err
			}
			return m.Add(d)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			from := cpuTime(b)
			for b.Loop() {
				if err := answer(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-from)/float64(b.N)/float64(d.Allocations), "cpu-ns/allocation")
			b.ReportMetric(float64(d.Allocations), "allocations")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
