package advice_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/inventory"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// tick is when figures of these tests are read: 20 minutes after the end of a day's window.
const tick = storetest.Start + 20*storetest.Minute

// watched returns a log of two clusters of two H100 each since a month before: busy reports every hour of the last two days
// with activities of 600 and 200 per mille, silent reports nothing.
func watched() *storetest.Log {
	l := storetest.NewLog()
	born := storetest.Start - 31*domain.Day
	for _, c := range []string{"busy", "silent"} {
		l.Append(storetest.Cluster(c, "acme", "example", "eu-1", born), storetest.Node(c, "n", "H100 80GB", 2, born))
	}
	for at := storetest.Start - 2*domain.Day; at < storetest.Start; at += domain.Hour {
		l.Append(report("busy", at, 600, 200))
	}
	return l
}

// report is a report of node n about an hour: GPUs that team-a holds, with an activity in per mille, or that are idle if it
// is 0.
func report(cluster string, at domain.Instant, activity ...int) domain.Envelope {
	var seen []storetest.Seen
	for i, a := range activity {
		s := storetest.Seen{ID: storetest.GPU(cluster, "n", i), Activity: a}
		if a > 0 {
			s.Workspace, s.Deployment, s.Unit = "team-a", "train", "pod-"+string(rune('a'+i))
		}
		seen = append(seen, s)
	}
	return domain.Envelope{
		Source: "node-reporter/" + cluster + "/n", Cluster: cluster, Time: at + domain.Hour,
		Event: storetest.Sample("n", domain.Interval{From: at, To: at + domain.Hour}, seen...),
	}
}

// figures reads a log, and passes its view too.
func figures(t *testing.T, l *storetest.Log, as advice.Options, check func(projections.View, *rules.Figures)) {
	t.Helper()
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storetest.Look(t, m, func(v projections.View) error {
		err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
			if q := row.(*projections.Quarantined); !strings.Contains(q.Reason, "junk") {
				t.Errorf("quarantined: %s", q.Reason)
			}
			return nil
		})
		if err != nil {
			return err
		}
		f, err := advice.Read(v, tick, as)
		if err == nil {
			check(v, f)
		}
		return err
	})
}

func find[T any](t *testing.T, all []T, is func(*T) bool) *T {
	t.Helper()
	i := slices.IndexFunc(all, func(x T) bool { return is(&x) })
	if i < 0 {
		t.Fatalf("not in %+v", all)
	}
	return &all[i]
}

var day = domain.Interval{From: storetest.Start - domain.Day, To: storetest.Start}

// The figures of a day are those of "usage", and a cluster that reports nothing has figures too.
func TestUse(t *testing.T) {
	figures(t, watched(), advice.Options{}, func(v projections.View, f *rules.Figures) {
		r, err := usage.NewReport(v, day.From, day.To, usage.Filter{}, usage.ByCluster, usage.ByGPUModel)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Groups {
			g := &r.Groups[i]
			u := find(t, f.Use, func(u *rules.Use) bool { return u.Window == day && u.Cluster == g.Key[usage.ByCluster] })
			want := rules.Use{
				Window: day, Cluster: g.Key[usage.ByCluster], GPUModel: g.Key[usage.ByGPUModel], Service: g.Service,
				Down: g.Failed + g.Maintenance + g.Unprovisioned, Idle: g.Idle, Measured: g.Measured, Active: g.Active,
			}
			if *u != want {
				t.Errorf("use %+v, want %+v", *u, want)
			}
		}
		const gpuDay = 24 * projections.MsPerHour
		busy := find(t, f.Use, func(u *rules.Use) bool { return u.Window == day && u.Cluster == "busy" })
		if busy.Measured != 2*gpuDay || busy.Active != 800*gpuDay {
			t.Errorf("busy %+v", busy)
		}
		silent := find(t, f.Use, func(u *rules.Use) bool { return u.Window == day && u.Cluster == "silent" })
		if silent.Service != 2*gpuDay || silent.Measured+silent.Idle+silent.Active != 0 {
			t.Errorf("silent %+v", silent)
		}
		want := []rules.Devices{
			{Window: day, Cluster: "busy", GPUModel: "H100 80GB", All: 2, Known: 2, Low: 1, LowMs: gpuDay},
			{Window: day, Cluster: "silent", GPUModel: "H100 80GB", All: 2},
		}
		for i := range want {
			want[i].GPUModel = busy.GPUModel
		}
		if !slices.Equal(f.Devices, want) {
			t.Errorf("devices %+v, want %+v", f.Devices, want)
		}
		if len(f.Clusters) != 2 || len(f.Nodes) != 2 || f.Nodes[0] != (rules.Node{Cluster: "busy", Node: "n", GPUs: 2}) ||
			f.Clusters[1] != (rules.Cluster{ID: "silent", Workspace: "acme", Provider: "example", ProviderClass: "neocloud", Region: "eu-1"}) {
			t.Errorf("%+v %+v", f.Clusters, f.Nodes)
		}
	})
}

// A late sample changes the window that it is of.
func TestLateSample(t *testing.T) {
	var before *rules.Figures
	figures(t, watched(), advice.Options{}, func(_ projections.View, f *rules.Figures) { before = f })
	l := watched()
	late := report("silent", storetest.Start-3*domain.Hour, 900, 0)
	l.AppendAt(late, tick-1)
	figures(t, l, advice.Options{}, func(_ projections.View, f *rules.Figures) {
		for i := range f.Use {
			want := before.Use[i]
			if want.Cluster == "silent" {
				want.Measured, want.Idle, want.Active = projections.MsPerHour, projections.MsPerHour, 900*projections.MsPerHour
			}
			if f.Use[i] != want {
				t.Errorf("use %+v, want %+v", f.Use[i], want)
			}
		}
	})
}

// Shadows and unseen deployments are those of "models". Where nothing of the cluster was observed, nobody can say.
func TestDeployments(t *testing.T) {
	l := watched()
	for _, c := range []string{"busy", "silent"} {
		l.Append(domain.Envelope{Cluster: c, Workspace: "team-b", Time: storetest.Start - 5*domain.Day, Event: &domain.DeploymentChanged{
			Deployment: "gone", Model: "llm", Replicas: 1, Class: domain.ClassServing,
		}})
	}
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		inv, err := inventory.Models(v, tick, domain.Hour, inventory.ModelFilter{})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, e := range inv.Deployments {
			if e.Status == inventory.ModelShadow || e.Status == inventory.ModelStale {
				want++
			}
		}
		if len(f.Deployments) != 3 || want != 3 {
			t.Fatalf("%d deployments, want %d: %+v", len(f.Deployments), want, f.Deployments)
		}
		shadow := find(t, f.Deployments, func(s *rules.Sighting) bool { return s.Shadow })
		// Two GPUs from 20 minutes past until the last report at the full hour.
		if shadow.Deployment != "train" || shadow.Workspace != "team-a" || shadow.Units != 2 || shadow.GPUMs != 2*40*60_000 ||
			shadow.GPUModel == "" || !shadow.Known || shadow.LastSeen != storetest.Start {
			t.Errorf("shadow %+v", shadow)
		}
		for c, known := range map[string]bool{"busy": true, "silent": false} {
			s := find(t, f.Deployments, func(s *rules.Sighting) bool { return !s.Shadow && s.Cluster == c })
			if s.Deployment != "gone" || s.Workspace != "team-b" || s.Known != known || s.Since != storetest.Start-5*domain.Day || s.LastSeen != 0 {
				t.Errorf("%s %+v", c, s)
			}
		}
	})
}

// Latencies are those of "serving", with the workspace and the class that are declared: of the last whole quarter of an hour,
// and of the day.
func TestServing(t *testing.T) {
	l := watched()
	scraped := func(from, step domain.Instant, kv, within, all uint64) domain.Envelope {
		return domain.Envelope{Source: "prometheus/x", Cluster: "busy", Time: storetest.Start, Event: storetest.Scrape("chat", "a", from, step,
			storetest.Scraped{Metric: domain.MetricTTFT, Bound: 100_000, Values: []uint64{0, within}},
			storetest.Scraped{Metric: domain.MetricTTFT, Bound: domain.Infinite, Values: []uint64{0, all}},
			storetest.Scraped{Metric: domain.MetricKVCache, Values: []uint64{kv, kv}},
			storetest.Scraped{Metric: domain.MetricRequestsOK, Values: []uint64{0, all - 10}},
		)}
	}
	pushed := func(minute domain.Instant, kv uint64) domain.Envelope {
		from := storetest.Start + minute*storetest.Minute
		return domain.Envelope{Source: "server/b", Cluster: "busy", Time: from, Event: &domain.ServingSampled{
			Deployment: "push", Model: "mistral", Engine: "vllm", Interval: domain.Interval{From: from, To: from + 5*storetest.Minute}, KVCachePermille: kv,
		}}
	}
	l.Append(
		domain.Envelope{Cluster: "busy", Workspace: "team-b", Time: storetest.Start - domain.Day, Event: &domain.DeploymentChanged{
			Deployment: "chat", Model: "llama", Replicas: 1, Class: domain.ClassServing,
		}},
		// Of the day alone: a full cache, and times to first token above the bound.
		scraped(storetest.Start-50*storetest.Minute, 1800*domain.Second, 999, 0, 1000),
		scraped(storetest.Start+2*storetest.Minute, 600*domain.Second, 950, 40, 100),
		pushed(-5, 999), pushed(0, 100), pushed(15, 999),
	)
	check := func(want int64) {
		figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
			quarter := domain.Interval{From: storetest.Start, To: storetest.Start + domain.QuarterHour}
			r, err := serving.NewReport(v, quarter.From, quarter.To, serving.Filter{})
			if err != nil || len(r.Groups) != 2 || len(f.Servers) != 2 || len(f.FirstTokens) != 2 {
				t.Fatalf("%v %+v %+v", err, f.Servers, f.FirstTokens)
			}
			g, s := &r.Groups[0], &f.Servers[0]
			if s.FirstTokenP50 != g.TTFT[0].P50.Micros || s.FirstTokenP95 != g.TTFT[0].P95.Micros || s.KVCache != int64(*g.KVCache) || s.Window != quarter ||
				s.Requests != 100 || s.Workspace != "team-b" || s.Class != "serving" || s.WaitP95 != 0 || s.FirstTokenP50 == 0 || s.KVCache != 950 {
				t.Errorf("%+v, want %+v", s, g)
			}
			if g.Peak != nil || g.Memory != nil {
				t.Errorf("a peak of a quarter: %+v", g)
			}
			if d := f.FirstTokens[0]; d.Window != day || d.Requests != 1000 {
				t.Errorf("day %+v", d)
			}
			if got := f.Servers[1].KVCache; got != want || uint64(got) != *r.Groups[1].KVCache {
				t.Errorf("the cache is %d, and %d is reported, want %d", got, *r.Groups[1].KVCache, want)
			}
		})
	}
	check(100)
	l.Append(pushed(5, 500)) // late
	check(300)
}

// Everything that "fleet" shows is a gap, with the node that it is about.
func TestGaps(t *testing.T) {
	l := watched()
	l.Append(
		domain.Envelope{Source: "node-reporter/busy/n", Cluster: "busy", Time: storetest.Start + 1, Event: &domain.CollectorSilent{
			Node: "n", Silent: domain.Interval{From: storetest.Start}, Reason: "no driver",
		}},
	)
	gap := report("busy", storetest.Start-3*domain.Day, 1, 1)
	gap.Source, gap.Sequence = "node-reporter/busy/m", 5
	gap.Event.(*domain.NodeSampled).Node = "m"
	l.Append(gap)
	l.AppendRaw(domain.TopicPartition{Topic: domain.TopicTelemetry}, []byte("busy"), []byte("junk"), storetest.Start)
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		inv, err := inventory.New(v, inventory.Filter{At: tick})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range inv.Exceptions {
			if !slices.ContainsFunc(f.Gaps, func(g rules.Gap) bool { return g.Kind == e.Kind }) {
				t.Errorf("%+v is no gap", e)
			}
		}
		for _, want := range []rules.Gap{
			{Kind: inventory.CollectorIsSilent, Subject: rules.Subject{Cluster: "busy", Node: "n"}, Count: 1},
			{Kind: inventory.NodeNeverSeen, Subject: rules.Subject{Cluster: "silent", Node: "n"}, Count: 1},
			{Kind: advice.Quarantined, Subject: rules.Subject{Name: "quarantine"}, Count: 1},
		} {
			g := find(t, f.Gaps, func(g *rules.Gap) bool { return g.Kind == want.Kind })
			if g.Subject != want.Subject || g.Count != want.Count || g.Question.Command == "" || g.Question.API == "" {
				t.Errorf("%+v, want %+v", g, want)
			}
		}
		g := find(t, f.Gaps, func(g *rules.Gap) bool { return g.Kind == inventory.StreamIncomplete })
		if g.Count != 4 || g.Subject.Cluster != "busy" || g.Subject.Node != "m" {
			t.Errorf("stream %+v", g)
		}
	})
}

// Figures with kept days are those without, and only days that changed are summed up again.
func TestHours(t *testing.T) {
	kept := &advice.Hours{}
	l := watched()
	read := func(what string, days int) {
		t.Helper()
		figures(t, l, advice.Options{}, func(v projections.View, want *rules.Figures) {
			got, err := advice.Read(v, tick, advice.Options{Hours: kept})
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: figures differ: %+v and %+v", what, got, want)
			}
			if kept.Summed() != days {
				t.Errorf("%s: %d days were summed up, want %d", what, kept.Summed(), days)
			}
		})
	}
	read("at first", 2*28)
	read("again", 0)
	l.AppendAt(report("silent", storetest.Start-5*domain.Day, 900, 0), tick-3)
	read("after a late sample", 1)
	l.Append(report("busy", storetest.Start, 900, 0))
	read("after a sample of today", 0)
	fault := domain.Envelope{Cluster: "silent", Time: storetest.Start - 30*domain.Hour, Event: &domain.GPUFaultObserved{
		Node: "n", Kind: domain.FaultXID, Code: 79, Class: "hardware", Fatal: true, GPU: storetest.GPU("silent", "n", 0),
	}}
	l.AppendAt(fault, storetest.Start-30*domain.Hour)
	read("after a fault of the day before yesterday", 2)
	l.Append(storetest.Node("late", "n", "H100 80GB", 8, storetest.Start-2*domain.Hour))
	read("after a node came", 28)
}

// The week and its hours are those of "usage", and a deployment that fits a slice is that of "fragmentation".
func TestWeeks(t *testing.T) {
	figures(t, watched(), advice.Options{}, func(v projections.View, f *rules.Figures) {
		week := domain.Interval{From: storetest.Start - 7*domain.Day, To: storetest.Start}
		r, err := usage.NewReport(v, week.From, week.To, usage.Filter{}, usage.ByCluster)
		if err != nil || len(f.Use) != 4 {
			t.Fatalf("%v %+v", err, f.Use)
		}
		for i, g := range r.Groups {
			if u := f.Use[2+i]; u.Window != week || u.Service != g.Service || u.Measured != g.Measured || u.Active != g.Active {
				t.Errorf("%+v, want %+v", u, g)
			}
		}
		if len(f.Weeks) != 2 || len(f.Weeks[0].Service) != 28*24 {
			t.Fatalf("%d weeks", len(f.Weeks))
		}
		for h, s := range f.Weeks[0].Service {
			if s != 2*projections.MsPerHour || f.Weeks[0].Unused[h] != 0 {
				t.Fatalf("hour %d: %d of %d without a holder", h, f.Weeks[0].Unused[h], s)
			}
		}
	})
}

// A deployment that fits a slice is that of "fragmentation" over the same days.
func TestHoldings(t *testing.T) {
	l := watched()
	for at := storetest.Start - 2*domain.Day; at < storetest.Start; at += domain.Hour {
		e := report("silent", at, 100, 0)
		e.Event.(*domain.NodeSampled).MemoryUsedMiB = []uint32{8001, 1}
		l.Append(e)
	}
	figures(t, l, advice.Options{}, func(v projections.View, f *rules.Figures) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		p, err := planning.PlacementsAt(v, a, storetest.Start-7*domain.Day, storetest.Start, "")
		if err != nil {
			t.Fatal(err)
		}
		fits := slices.DeleteFunc(online.Rightsize(p.Held, 200, nil), func(f online.Fit) bool { return f.Profile == "" })
		if len(fits) != 1 || len(f.Holdings) != 1 {
			t.Fatalf("%+v and %+v", f.Holdings, fits)
		}
		want := rules.Fit{
			Window:    domain.Interval{From: storetest.Start - 7*domain.Day, To: storetest.Start},
			Workspace: "team-a", Cluster: "silent", Deployment: "train", GPUModel: fits[0].Model, To: "1g.10gb",
			PeakMiB: 8000, Activity: 100, GPUMs: 48 * projections.MsPerHour, SavedMs: fits[0].SavedGPUMs, Coverage: 1000,
		}
		if f.Holdings[0] != want {
			t.Errorf("%+v, want %+v", f.Holdings[0], want)
		}
	})
}
