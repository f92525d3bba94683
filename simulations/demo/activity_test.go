package demo_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/simulations/demo"
)

// Hu et al., NSDI'24, of Acme: a median SM activity of about 40 %, and half of the GPUs
// with more than 75 % of their memory in use.
func TestLoadActivity(t *testing.T) {
	var active, memory []int
	running := 0
	for _, r := range rows(t, "load") {
		mean := tenths(t, r["running_gpu_mean"])
		if mean == 0 {
			if r["running_sm_active"] != "" || r["running_memory_mib"] != "" {
				t.Fatalf("something was measured where nothing ran: %v", r)
			}
			continue
		}
		a, m := strings.Split(r["running_sm_active"], ";"), strings.Split(r["running_memory_mib"], ";")
		if want := (mean + 9) / 10; len(a) != want || len(m) != want {
			t.Fatalf("%d and %d values for %s running GPUs", len(a), len(m), r["running_gpu_mean"])
		}
		for i := range a {
			running++
			if (a[i] == "") != (m[i] == "") {
				t.Fatalf("activity %q beside memory %q", a[i], m[i])
			}
			if a[i] == "" {
				continue
			}
			v, err := strconv.ParseFloat(a[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			active, memory = append(active, int(v*10+0.5)), append(memory, number(t, m[i]))
		}
	}
	slices.Sort(active)
	slices.Sort(memory)
	at := func(v []int, percent int) int { return v[len(v)*percent/100] }
	within(t, "measured, per mille of the running GPU-hours", len(active)*1000/running, 920, 985)
	within(t, "median SM activity, per mille", at(active, 50), 370, 430)
	within(t, "tenth percentile of SM activity, per mille", at(active, 10), 5, 60)
	within(t, "ninetieth percentile of SM activity, per mille", at(active, 90), 700, 850)
	within(t, "greatest SM activity, per mille", active[len(active)-1], 900, 980)
	within(t, "median memory, MiB of 32768", at(memory, 50), 23_500, 25_700)
	within(t, "greatest memory, MiB", memory[len(memory)-1], 30_000, 32_000)
}

// The GPU jobs of Helios Earth: 73.5 % completed, 13.6 % cancelled, 12.9 % failed; of the
// GPU time 50 %, 42 % and 8 %.
func TestJobs(t *testing.T) {
	type state struct {
		queued, started domain.Instant
		gpus            int
		ended           bool
	}
	jobs, count, gpuTime := map[string]*state{}, map[domain.JobOutcome]int{}, map[domain.JobOutcome]int{}
	var last domain.Instant
	finished, worked := 0, 0
	for _, told := range told()["jobs"] {
		if told.At < last || told.At < demo.JobsPeriod.From || told.At >= demo.JobsPeriod.To {
			t.Fatalf("%s comes after %s", told.At, last)
		}
		last = told.At
		if err := domain.Validate(&domain.Envelope{Time: told.At, Workspace: told.Workspace, Cluster: "gen", Source: "test", Incarnation: 1, Sequence: 1, Event: told.Event}); err != nil {
			t.Fatal(err)
		}
		switch ev := told.Event.(type) {
		case *domain.JobQueued:
			if jobs[ev.Job] != nil {
				t.Fatalf("job %s is queued twice", ev.Job)
			}
			jobs[ev.Job] = &state{queued: told.At, gpus: int(ev.Need.Count * max(1, ev.Need.GangNodes))}
		case *domain.JobStarted:
			j := jobs[ev.Job]
			if j == nil || j.started > 0 || j.ended || int(ev.GPUs) != j.gpus {
				t.Fatalf("job %s starts with %d GPUs, and was %+v", ev.Job, ev.GPUs, j)
			}
			j.started = told.At
		case *domain.JobFinished:
			j := jobs[ev.Job]
			if j == nil || j.ended || j.started == 0 && ev.Outcome != domain.JobCancelled {
				t.Fatalf("job %s ends, and was %+v", ev.Job, j)
			}
			j.ended = true
			finished++
			count[ev.Outcome]++
			if j.started > 0 {
				work := int((told.At-j.started)/domain.Second) * j.gpus
				gpuTime[ev.Outcome] += work
				worked += work
			}
		}
	}
	within(t, "jobs", len(jobs), 6_000, 12_000)
	within(t, "succeeded, per mille", count[domain.JobSucceeded]*1000/finished, 715, 760)
	within(t, "cancelled, per mille", count[domain.JobCancelled]*1000/finished, 110, 150)
	within(t, "failed, per mille", count[domain.JobFailed]*1000/finished, 110, 150)
	within(t, "GPU time of cancelled jobs, per mille", gpuTime[domain.JobCancelled]*1000/worked, 330, 480)
	within(t, "GPU time of failed jobs, per mille", gpuTime[domain.JobFailed]*1000/worked, 50, 110)
}

// Every node but one reports every hour of the evening, and no GPU is used beyond its capacity.
func TestReports(t *testing.T) {
	nodes := map[string]int{}
	for _, n := range rows(t, "nodes") {
		nodes[n["sn"]] = number(t, n["gpu"])
	}
	pods := map[string]map[string]string{}
	for _, p := range rows(t, "pods") {
		pods[p["name"]] = p
	}
	hours := map[string]int{}
	gpus := map[string]int{} // of each unit in the first hour
	var active, memory []int
	samples := told()["reports"]
	for _, told := range samples {
		s := told.Event.(*domain.NodeSampled)
		if err := domain.Validate(&domain.Envelope{Time: told.At, Cluster: "gen", Source: "test", Incarnation: 1, Sequence: 1, Event: s}); err != nil {
			t.Fatal(err)
		}
		hours[s.Node]++
		asked, seen := map[domain.GPUID]int{}, map[domain.GPUID]bool{}
		for i := range s.Entries() {
			id := domain.GPUID(s.IDs[16*i:])
			seen[id] = true
			if len(s.ActivityMean) > 0 && s.Holder[i] > 0 {
				active, memory = append(active, int(s.ActivityMean[i])-1), append(memory, int(s.MemoryUsedMiB[i])-1)
			}
			if s.Holder[i] == 0 {
				continue
			}
			unit := s.Text(s.HolderUnit, int(s.Holder[i])-1)
			if p := pods[unit]; p != nil {
				asked[id] += number(t, p["gpu_milli"])
			} else if !strings.HasPrefix(unit, "gen-assistant-") {
				t.Fatalf("%s is held by %q, who is no pod", s.Node, unit)
			}
			if told.At == demo.ReportsPeriod.From+domain.Hour {
				gpus[unit]++
			}
		}
		for id, milli := range asked {
			if milli > 1000 {
				t.Fatalf("%d thousandths of %s are held", milli, id)
			}
		}
		if len(seen) != nodes[s.Node] {
			t.Fatalf("%s reports %d GPUs and has %d", s.Node, len(seen), nodes[s.Node])
		}
	}
	if len(hours) != len(nodes)-1 || hours[demo.SilentNode] != 0 || nodes[demo.SilentNode] == 0 {
		t.Errorf("%d of %d nodes report, %s %d times", len(hours), len(nodes), demo.SilentNode, hours[demo.SilentNode])
	}
	for node, n := range hours {
		if n != int(demo.ReportsPeriod.Length()/domain.Hour) {
			t.Errorf("%s reports %d hours", node, n)
		}
	}
	asks, runs := 0, 0
	for name, p := range pods {
		if want := number(t, p["num_gpu"]); want > 0 {
			asks++
			if gpus[name] > 0 {
				runs++
				if gpus[name] != want {
					t.Errorf("%s holds %d GPUs and asks for %d", name, gpus[name], want)
				}
			}
		}
	}
	within(t, "pods that found a place, per mille of those that ask for GPUs", runs*1000/asks, 900, 1000)
	slices.Sort(active)
	slices.Sort(memory)
	// PAI, as Hu et al. report it: 20 %.
	within(t, "median SM activity, per mille", active[len(active)/2], 170, 230)
}

// Gold has room at the busiest hour and bronze has not.
func TestServing(t *testing.T) {
	type sum struct {
		requests, failed, queue, n uint64
		slow                       uint64 // first tokens after more than a second
	}
	tiers := map[string]*sum{"gold": {}, "bronze": {}}
	units := map[string]int{}
	for _, told := range told()["serving"] {
		s := told.Event.(*domain.ServingSampled)
		if err := domain.Validate(&domain.Envelope{Time: told.At, Workspace: told.Workspace, Cluster: "gen", Source: "test", Incarnation: 1, Sequence: 1, Event: s}); err != nil {
			t.Fatal(err)
		}
		of := tiers[s.Tier]
		var counted uint64
		for i, n := range s.TTFT.Counts {
			counted += n
			if i >= len(s.TTFT.Bounds) || s.TTFT.Bounds[i] > 1_000_000 {
				of.slow += n
			}
		}
		if counted != s.RequestsOK+s.RequestsFailed {
			t.Fatalf("%d times to the first token of %d requests", counted, s.RequestsOK+s.RequestsFailed)
		}
		of.requests += counted
		of.failed += s.RequestsFailed
		of.queue += s.QueueDepthMilli
		of.n++
		units[s.Unit]++
	}
	for unit, n := range units {
		if want := int(demo.ServingPeriod.Length() / (domain.Hour / 6)); n != want {
			t.Errorf("%s reports %d times, want %d", unit, n, want)
		}
	}
	gold, bronze := tiers["gold"], tiers["bronze"]
	within(t, "units", len(units), 8, 8)
	within(t, "slow first tokens of gold, per mille", int(gold.slow*1000/gold.requests), 0, 30)
	within(t, "slow first tokens of bronze, per mille", int(bronze.slow*1000/bronze.requests), 100, 500)
	within(t, "requests waiting for gold, thousandths", int(gold.queue/gold.n), 0, 50)
	within(t, "requests waiting for bronze, thousandths", int(bronze.queue/bronze.n), 300, 3000)
}

// Planted machines report every hour of their service, the index sleeps at night, the two chat clusters are as busy as each
// other until the weights are swapped, and one spot machine in ten is taken back in an hour.
func TestPlanted(t *testing.T) {
	type load struct{ queued, requests uint64 }
	reports, asleep, taken := map[string]int{}, 0, 0
	var before, after [2]load // of the small and of the large cluster
	last := map[string]uint64{}
	for _, told := range told()["planted"] {
		env := &domain.Envelope{Time: told.At, Workspace: told.Workspace, Cluster: told.Cluster, Source: "test", Incarnation: 1, Sequence: 1, Event: told.Event}
		if err := domain.Validate(env); err != nil {
			t.Fatal(err)
		}
		switch ev := told.Event.(type) {
		case *domain.NodeSampled:
			reports[ev.Node]++
			if ev.Holder[0] == 0 {
				asleep++
				if hour := ev.Interval.From.Time().Hour(); told.Cluster != demo.PlantedIndex || hour < 2 || hour >= 10 {
					t.Fatalf("%s sleeps at %s", ev.Node, ev.Interval.From)
				}
			}
		case *domain.SpotInterrupted:
			taken++
		case *domain.MetricsObserved:
			at, to := &before, 0
			if told.At >= demo.ServingPeriod.To-2*domain.Day {
				at = &after
			}
			if told.Cluster == demo.PlantedLarge {
				to = 1
			}
			for i, m := range ev.Metric {
				switch domain.SeriesMetric(m) {
				case domain.MetricWaiting:
					at[to].queued += ev.Value[i]
				case domain.MetricRequestsOK:
					unit := ev.Text(ev.Unit, int(ev.Server[i]))
					if ev.Value[i] <= last[unit] {
						t.Fatalf("%s has served %d requests, and then %d", unit, last[unit], ev.Value[i])
					}
					at[to].requests += ev.Value[i] - last[unit]
					last[unit] = ev.Value[i]
				}
			}
		}
	}
	hours, machines := 0, 0
	for _, p := range demo.Plants() {
		for _, m := range p.Machines() {
			machines++
			if want := int(m.Service.Length() / domain.Hour); reports[m.Node] != want {
				t.Errorf("%s reports %d hours, want %d", m.Node, reports[m.Node], want)
			}
			if p.Cluster == demo.PlantedIndex {
				hours += int(min(m.Service.Length(), 7*domain.Day) / domain.Hour)
			}
			if (m.ResourceID == "") != (p.Cluster == demo.PlantedIndex) {
				t.Errorf("%s is %q on the bill", m.Node, m.ResourceID)
			}
		}
	}
	if len(reports) != machines || asleep != 4*8*31 {
		t.Errorf("%d of %d machines report, and %d hours are asleep", len(reports), machines, asleep)
	}
	within(t, "interruptions, per mille of the machine-hours on spot", taken*1000/hours, 75, 125)
	within(t, "requests to the small cluster before, percent", int(before[0].requests*100/(before[0].requests+before[1].requests)), 32, 35)
	within(t, "requests to the small cluster after, percent", int(after[0].requests*100/(after[0].requests+after[1].requests)), 64, 68)
	if before[1].queued > before[0].queued*3 || after[0].queued < 100*(after[1].queued+1) {
		t.Errorf("queues are %v before and %v after", before, after)
	}
}

// The same draws give the same events, and other draws give others.
func TestToldDrawsMatter(t *testing.T) {
	other := func() func() uint64 { return rand.New(rand.NewPCG(1, 1)).Uint64 }
	for name, again := range map[string][2][]demo.Told{
		"reports": {demo.Reports("gen", "research", seeded(), seeded()), demo.Reports("gen", "research", seeded(), other())},
		"serving": {demo.Serving("research", seeded()), demo.Serving("research", other())},
		"jobs":    {demo.Jobs(seeded(), seeded()), demo.Jobs(seeded(), other())},
		"planted": {demo.Planted(seeded()), demo.Planted(other())},
	} {
		if !reflect.DeepEqual(again[0], told()[name]) {
			t.Errorf("%s differs from one run to the next", name)
		}
		if reflect.DeepEqual(again[1], told()[name]) {
			t.Errorf("%s does not depend on the draws", name)
		}
	}
}
