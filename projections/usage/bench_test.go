package usage_test

import (
	"context"
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// A thousand node-hours of eight GPUs whose holders change every two hours. A hundred thousand take
// a hundred times as long.
func BenchmarkUsage(b *testing.B) {
	const nodes, hours = 100, 10
	m, err := storetest.Fleet(nodes, hours, storetest.Start).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range [][]usage.Dimension{nil, {usage.ByWorkspace, usage.ByGPU}, {usage.ByDeployment, usage.ByNode, usage.ByHour}} {
		name := "total"
		if len(by) > 0 {
			name = string(by[len(by)-1])
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err := m.View(context.Background(), func(v projections.View) error {
					_, err := usage.NewReport(v, storetest.Start, storetest.Start+hours*domain.Hour, usage.Filter{}, by...)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(nodes*hours), "ns/node-hour")
		})
	}
}

// A course by cluster costs no more than a report by cluster and hour of the same time.
func BenchmarkCourse(b *testing.B) {
	const nodes, hours = 1250, 24
	m, err := storetest.Fleet(nodes, hours, storetest.Start).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	period := domain.Interval{From: storetest.Start, To: storetest.Start + hours*domain.Hour}
	for name, ask := range map[string]func(projections.View) error{
		"course": func(v projections.View) error {
			_, err := usage.NewCourse(v, period, 300, usage.Filter{}, usage.ByCluster)
			return err
		},
		"report by hour": func(v projections.View) error {
			_, err := usage.NewReport(v, period.From, period.To, usage.Filter{}, usage.ByCluster, usage.ByHour)
			return err
		},
		"report": func(v projections.View) error {
			_, err := usage.NewReport(v, period.From, period.To, usage.Filter{}, usage.ByCluster)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := m.View(context.Background(), ask); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(nodes*hours), "ns/node-hour")
		})
	}
}

// months returns a log of nodes of eight GPUs over whole months before [storetest.Start], and two
// days after it: one report an hour, holders that change every six hours.
func months(nodes, months int) *storetest.Log {
	l := storetest.NewLog()
	l.Batch = 1000
	first := domain.InstantOf(storetest.Start.Time().AddDate(0, -months, 0))
	l.Append(storetest.Cluster("c1", "acme", "example", "eu-1", first))
	for n := range nodes {
		l.Append(storetest.Node("c1", fmt.Sprintf("n%05d", n), "H100 80GB", 8, first))
	}
	devices := make([]storetest.Seen, 8)
	for at := first; at < storetest.Start+2*domain.Day; at += domain.Hour {
		for n := range nodes {
			node := fmt.Sprintf("n%05d", n)
			for i := range devices {
				devices[i] = storetest.Seen{ID: storetest.GPU("c1", node, i), Activity: (n*7 + i*13) % 1001}
				if who := (n + i + int(at/(6*domain.Hour))) % 12; who > 0 {
					devices[i].Workspace = fmt.Sprintf("team-%d", who)
					devices[i].Deployment = fmt.Sprintf("job-%d", (n+i)%40)
				}
			}
			l.Append(domain.Envelope{
				Source: "reporter/c1/" + node, Cluster: "c1", Time: at + domain.Hour,
				Event: storetest.Sample(node, domain.Interval{From: at, To: at + domain.Hour}, devices...),
			})
		}
	}
	return l
}

// Answers about a history of 30 nodes: with kept months, and of one day, they cost the same after
// two months and after twelve. rows are those of tables split by time.
func BenchmarkHistory(b *testing.B) {
	sealed := projections.HourOf(storetest.Start)
	april := domain.Interval{From: storetest.Start - 30*domain.Day, To: storetest.Start}
	today := domain.Interval{From: storetest.Start + domain.Day, To: storetest.Start + 2*domain.Day}
	for _, n := range []int{2, 12} {
		l := months(30, n)
		m, err := l.Fold(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		kept, hours := &shelf{}, hoursShelf{}
		of := func(kept usage.Kept, p domain.Interval) func(projections.View) error {
			return func(v projections.View) error {
				_, err := usage.NewReportFrom(v, kept, sealed, p.From, p.To, usage.Filter{}, usage.ByWorkspace, usage.ByDay)
				return err
			}
		}
		all := domain.Interval{From: domain.InstantOf(storetest.Start.Time().AddDate(0, -n, 0)), To: storetest.Start}
		for _, c := range []struct {
			name string
			ask  func(projections.View) error
		}{
			{"month from rows", of(nil, april)},
			{"month kept", of(kept, april)},
			{"all months from rows", of(nil, all)},
			{"all months kept", of(kept, all)},
			{"all months kept, as a course", func(v projections.View) error {
				_, err := usage.NewCourseFrom(v, hours, sealed, all, 300, usage.Filter{}, usage.ByCluster)
				return err
			}},
			{"a day of the open month", of(kept, today)},
			{"models", func(v projections.View) error {
				_, err := inventory.Models(v, today.To, domain.Hour, inventory.ModelFilter{})
				return err
			}},
			{"log stats", func(v projections.View) error {
				_, err := registry.NewLogStats(v)
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%d months/%s", n, c.name), func(b *testing.B) {
				rows := 0
				if err := m.View(context.Background(), c.ask); err != nil { // the first computes what is kept
					b.Fatal(err)
				}
				for b.Loop() {
					if err := m.View(context.Background(), func(v projections.View) error {
						counted := storetest.Count(v)
						err := c.ask(counted)
						rows = counted.Timed()
						return err
					}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(rows), "rows")
			})
		}
	}
}
