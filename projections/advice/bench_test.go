package advice_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/storetest"
)

// estate returns a log of clusters with nodes of eight GPUs over some hours before [storetest.Start]: one report an hour,
// holders that change every six hours, one model server in each cluster.
func estate(clusters, nodes, hours int) *storetest.Log {
	l := storetest.NewLog()
	l.Batch = 1000
	first := storetest.Start - domain.Instant(hours)*domain.Hour
	born := min(first, storetest.Start-31*domain.Day)
	for c := range clusters {
		id := fmt.Sprintf("c%04d", c)
		l.Append(storetest.Cluster(id, fmt.Sprintf("team-%d", c%100), fmt.Sprintf("provider-%d", c%5), fmt.Sprintf("region-%d", c%7), born))
		for n := range nodes {
			l.Append(storetest.Node(id, fmt.Sprintf("n%03d", n), "H100 80GB", 8, born))
		}
		l.Append(domain.Envelope{Cluster: id, Workspace: "team-1", Time: born, Event: &domain.DeploymentChanged{
			Deployment: "job-1", Model: "llm", Replicas: 1, Class: domain.ClassServing,
		}}, domain.Envelope{Cluster: id, Workspace: "team-1", Time: born, Event: &domain.DeploymentChanged{
			Deployment: "gone", Model: "llm", Replicas: 1, Class: domain.ClassServing,
		}})
	}
	devices := make([]storetest.Seen, 8)
	for at := first; at < storetest.Start; at += domain.Hour {
		for c := range clusters {
			id := fmt.Sprintf("c%04d", c)
			l.Append(domain.Envelope{Source: "prometheus/" + id, Cluster: id, Time: at + domain.Hour, Event: storetest.Scrape(
				"job-1", "pod-1", at, 1800*domain.Second,
				storetest.Scraped{Metric: domain.MetricTTFT, Bound: 100_000, Values: []uint64{0, 40}},
				storetest.Scraped{Metric: domain.MetricTTFT, Bound: domain.Infinite, Values: []uint64{0, 100}},
				storetest.Scraped{Metric: domain.MetricKVCache, Values: []uint64{500, 500}},
			)})
			for n := range nodes {
				node := fmt.Sprintf("n%03d", n)
				for i := range devices {
					devices[i] = storetest.Seen{ID: storetest.GPU(id, node, i), Activity: (n*7 + i*13 + c) % 1001}
					if who := (n + i + int(at/(6*domain.Hour))) % 12; who > 0 {
						devices[i].Workspace = fmt.Sprintf("team-%d", who)
						devices[i].Deployment, devices[i].Unit = fmt.Sprintf("job-%d", who), fmt.Sprintf("pod-%d", who)
					}
				}
				l.Append(domain.Envelope{
					Source: "reporter/" + id + "/" + node, Cluster: id, Time: at + domain.Hour,
					Event: storetest.Sample(node, domain.Interval{From: at, To: at + domain.Hour}, devices...),
				})
			}
		}
	}
	return l
}

// storm appends fatal faults of GPUs of every fifth cluster within a minute, half an hour before the end.
func storm(l *storetest.Log, clusters, nodes, faults int) {
	for i := range faults {
		id, node := fmt.Sprintf("c%04d", i*5%clusters), fmt.Sprintf("n%03d", i*5/clusters%nodes)
		gpu := i * 5 / clusters / nodes % 8
		l.Append(domain.Envelope{
			Source: "node-reporter/" + id + "/" + node, Cluster: id, Time: storetest.Start - 30*storetest.Minute + domain.Instant(i)*domain.Second/1000,
			Event: &domain.GPUFaultObserved{Node: node, Kind: domain.FaultXID, Code: 79, Class: "hardware", Fatal: true, GPU: storetest.GPU(id, node, gpu)},
		})
	}
}

// One evaluation of all rules. QM_BENCH_ADVICE_CLUSTERS=1000 has 13 nodes in each: 104,000 GPUs. QM_BENCH_ADVICE_HOURS is
// the length of the history, QM_BENCH_ADVICE_FAULTS=10000 an outage of a provider. "first" sums up four weeks, "next" is a
// tick whose earlier days are kept.
func BenchmarkRead(b *testing.B) {
	clusters, hours := 20, 29*24
	const nodes = 13
	if n, err := strconv.Atoi(os.Getenv("QM_BENCH_ADVICE_CLUSTERS")); err == nil {
		clusters = n
	}
	if n, err := strconv.Atoi(os.Getenv("QM_BENCH_ADVICE_HOURS")); err == nil {
		hours = n
	}
	l := estate(clusters, nodes, hours)
	if n, err := strconv.Atoi(os.Getenv("QM_BENCH_ADVICE_FAULTS")); err == nil {
		storm(l, clusters, nodes, n)
	}
	m, err := l.Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	kept := &advice.Hours{}
	for _, c := range []struct {
		name string
		as   func() advice.Options
	}{
		{"first", func() advice.Options { return advice.Options{Hours: &advice.Hours{}} }},
		{"next", func() advice.Options { return advice.Options{Hours: kept} }},
	} {
		read := func() (rows int) {
			if err := m.View(context.Background(), func(v projections.View) error {
				counted := storetest.Count(v)
				f, err := advice.Read(counted, storetest.Start, c.as())
				rows = counted.Timed()
				if err != nil {
					return err
				}
				rules.Correlate(f, rules.Evaluate(f, nil))
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			return rows
		}
		b.Run(c.name, func(b *testing.B) {
			if c.name == "next" {
				read()
			}
			b.ReportAllocs()
			rows := 0
			began := cpu()
			for b.Loop() {
				rows = read()
			}
			b.ReportMetric(float64(rows), "rows")
			b.ReportMetric((cpu()-began).Seconds()/float64(b.N), "CPU-s/op")
		})
	}
}

// cpu is the time that the process has had of all processors.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
