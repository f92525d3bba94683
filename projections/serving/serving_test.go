package serving_test

import (
	"context"
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

func served(t *testing.T, l *storetest.Log) *serving.Report {
	t.Helper()
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var r *serving.Report
	err = m.View(t.Context(), func(v projections.View) error {
		r, err = serving.NewReport(v, storetest.Start, storetest.Start+2*domain.Hour, serving.Filter{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// scrape is a server's histogram of the time to first token at the start and end of
// half an hour, with bounds in milliseconds.
func scrape(cluster, unit string, bounds []uint64, counts []uint64, sum uint64) domain.Envelope {
	var all []storetest.Scraped
	for i, n := range counts {
		bound := domain.Infinite
		if i < len(bounds) {
			bound = 1000 * bounds[i]
		}
		all = append(all, storetest.Scraped{Metric: domain.MetricTTFT, Bound: bound, Values: []uint64{50, 50 + n}})
	}
	n := counts[len(counts)-1]
	all = append(all,
		storetest.Scraped{Metric: domain.MetricTTFTSum, Values: []uint64{0, sum}}, storetest.Scraped{Metric: domain.MetricTTFTCount, Values: []uint64{0, n}},
		storetest.Scraped{Metric: domain.MetricRequestsOK, Values: []uint64{0, n - n/10}}, storetest.Scraped{Metric: domain.MetricRequestsFailed, Values: []uint64{0, n / 10}})
	return domain.Envelope{Source: "prometheus/x", Cluster: cluster, Time: storetest.Start + domain.Hour, Event: storetest.Scrape("chat", unit, storetest.Start+60*domain.Second, 1800*domain.Second, all...)}
}

// Histograms with equal bounds are merged, others are listed separately, and a quantile
// states its bucket.
func TestServingQuantiles(t *testing.T) {
	l := storetest.NewLog()
	l.Append(
		scrape("c1", "a", []uint64{100, 200, 400}, []uint64{40, 80, 100, 100}, 15_000_000),
		scrape("c1", "b", []uint64{100, 200, 400}, []uint64{20, 90, 98, 100}, 20_000_000),
		scrape("c1", "odd", []uint64{1000}, []uint64{10, 10}, 5_000_000),
		scrape("c2", "a", []uint64{100, 200, 400}, []uint64{0, 0, 100, 100}, 30_000_000),
	)
	r := served(t, l)
	if len(r.Groups) != 2 || len(r.Models) != 1 {
		t.Fatalf("%+v", r)
	}
	g := r.Groups[0]
	if len(g.TTFT) != 2 || g.TTFT[0].Count != 200 || g.TTFT[1].Count != 10 || *g.TTFT[0].Mean != 175_000 || g.Servers != 3 {
		t.Fatalf("%+v", g)
	}
	show := func(q *projections.Quantile) string {
		if q.UpTo == nil {
			return fmt.Sprintf("%d in %d..", q.Micros, q.Above)
		}
		return fmt.Sprintf("%d in %d..%d", q.Micros, q.Above, *q.UpTo)
	}
	// Ranks 100, 190 and 198 of 60, 170, 198 and 200: the 40th of 110, the 20th and the 28th of 28.
	for i, want := range []string{"136363 in 100000..200000", "342857 in 200000..400000", "400000 in 200000..400000"} {
		if got := show([]*projections.Quantile{g.TTFT[0].P50, g.TTFT[0].P95, g.TTFT[0].P99}[i]); got != want {
			t.Errorf("quantile %d is %s, want %s", i, got, want)
		}
	}
	if *g.Success != 900 { // 21 of 210 failed
		t.Errorf("success %d", *g.Success)
	}
	s := r.Models[0].Spread
	if s == nil || s.EqualBounds || s.P50.LeastAt != "c1" || s.P50.GreatestAt != "c2" || s.P50.DifferenceOf != 300_000-136_363 {
		t.Errorf("spread %+v", s)
	}
	if m := r.Models[0]; m.TTFT[0].Count != 300 || m.RequestsOK != 279 {
		t.Errorf("model %+v", m)
	}
}

// The bucket above all bounds has no end.
func TestServingBeyondBounds(t *testing.T) {
	l := storetest.NewLog()
	l.Append(scrape("c1", "a", []uint64{100}, []uint64{1, 100}, 1))
	q := served(t, l).Groups[0].TTFT[0].P99
	if q.UpTo != nil || q.Above != 100_000 || q.Micros != 100_000 {
		t.Errorf("%+v", q)
	}
}

// A GPU that the reporter and Prometheus see counts once, as the reporter saw it. While
// the reporter is silent, Prometheus counts.
func TestReporterAndPrometheus(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "a", "p", "r", storetest.Start), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
	seen := func(who string, activity int) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(0), Workspace: who, Activity: activity}
	}
	for cell := range domain.Instant(60) {
		i := domain.Interval{From: storetest.Start + cell*storetest.Minute, To: storetest.Start + (cell+1)*storetest.Minute}
		s := storetest.Sample("n", i, seen("scraped", 900))
		l.Append(domain.Envelope{Source: "prometheus/x", Cluster: "c", Time: i.To, Event: s})
		if cell < 30 {
			l.Append(domain.Envelope{Source: "reporter/n", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i, seen("reported", 100))})
		}
		poor := storetest.Sample("n", i, seen("scraped", 500))
		poor.ActivityField = projections.FieldUtilization
		l.Append(domain.Envelope{Source: "prometheus/y", Cluster: "c", Time: i.To, Event: poor})
	}
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		r, err := usage.NewReport(v, storetest.Start, storetest.Start+domain.Hour, usage.Filter{}, usage.ByWorkspace)
		if err != nil {
			return err
		}
		if len(r.Groups) != 2 || r.Total.Service != 3_600_000 || r.Total.Allocated != 3_600_000 {
			t.Fatalf("%+v", r)
		}
		for _, g := range r.Groups {
			want := map[string]int64{"reported": 100, "scraped": 900}[g.Key[usage.ByWorkspace]]
			if g.Allocated != 1_800_000 || *g.Activity != want {
				t.Errorf("%+v with activity %d", g, *g.Activity)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A return by a scheduler ends what a scheduler reported, and repairs no GPU.
func TestScrapedReturn(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
	say := func(source string, at domain.Instant, ev domain.Event) {
		l.Append(domain.Envelope{Source: source, Cluster: "c", Time: storetest.Start + at*storetest.Minute, Event: ev})
	}
	say("prometheus/x", 0, &domain.NodeCordoned{Node: "n", Reason: "kubernetes: unschedulable"})
	say("prometheus/x", 10, &domain.NodeReturned{Node: "n"})
	say("reporter/n", 20, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 79, Fatal: true})
	for i := range domain.Instant(30) {
		say("prometheus/x", 21+i, &domain.NodeReturned{Node: "n"})
	}
	say("reporter/n", 55, &domain.NodeReturned{Node: "n"})
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		r, err := usage.NewReport(v, storetest.Start, storetest.Start+domain.Hour, usage.Filter{})
		if err != nil {
			return err
		}
		if r.Total.Maintenance != 10*60_000 || r.Total.Failed != 35*60_000 {
			t.Errorf("maintenance %d s, failed %d s", r.Total.Maintenance/1000, r.Total.Failed/1000)
		}
		rows := 0
		err = v.Scan(projections.Query{Table: projections.TableHealth}, func(_ projections.Key, row projections.Row) error {
			rows += len(row.(*projections.History).Versions)
			return nil
		})
		if rows > 4 {
			t.Errorf("%d versions are kept of what was said again and again", rows)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestJobs(t *testing.T) {
	l := storetest.NewLog()
	for i, outcome := range []domain.JobOutcome{domain.JobSucceeded, domain.JobSucceeded, domain.JobFailed, domain.JobCancelled, domain.JobInterrupted} {
		job := fmt.Sprint("j", i)
		say := func(at int, ev domain.Event) {
			l.Append(domain.Envelope{Cluster: "c", Workspace: "acme", Time: storetest.Start + domain.Instant(at)*storetest.Minute, Event: ev})
		}
		say(0, &domain.JobQueued{Job: job, Class: domain.ClassTraining})
		say(i+1, &domain.JobStarted{Job: job})
		say(30, &domain.JobFinished{Job: job, Outcome: outcome, RetainedPermille: 500})
	}
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		r, err := serving.Jobs(v, storetest.Start, storetest.Start+domain.Hour, serving.JobsFilter{})
		if err != nil {
			return err
		}
		c := r.Total
		if c.Finished != 5 || *c.Success != 500 || *c.Retained != 500 || *c.WaitP50 != 180_000 || *c.WaitP95 != 300_000 || len(r.Groups) != 1 || r.Groups[0].Class != domain.ClassTraining {
			t.Errorf("%+v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
