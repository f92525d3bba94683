package storetest

import (
	"fmt"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// Draw returns a random log: a few hundred records of a small fleet, from several sources,
// including late, repeated, missing, forged, broken and misplaced records, and restarted sources.
func Draw(t *rapid.T) *Log {
	l := NewLog()
	l.Batch = rapid.IntRange(1, 40).Draw(t, "batch")
	examples := Examples()
	l.Append(examples[:2]...) // the first operators
	n := rapid.IntRange(0, 120).Draw(t, "records")
	for range n {
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0:
			tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
			value := rapid.SampledFrom([]string{"", "not an event", "\x00", "-1", "999999999"}).Draw(t, "value")
			l.AppendRaw(tp, []byte("c1"), []byte(value), drawTime(t))
		case 1:
			// A valid event in the wrong place.
			tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
			l.AppendRaw(tp, []byte("elsewhere"), []byte("0"), drawTime(t))
		case 2:
			l.repeatSome(t)
		case 3:
			// An event is lost, or two streams of one source follow each other.
			env := DrawEvent(t)
			env.Incarnation = rapid.Uint64Range(1, 3).Draw(t, "incarnation")
			if env.Incarnation > 1 {
				env.PreviousIncarnation, env.PreviousSequence = env.Incarnation-1, rapid.Uint64Range(0, 9).Draw(t, "previous")
			}
			env.Sequence = rapid.Uint64Range(1, 20).Draw(t, "sequence")
			l.AppendAt(env, env.Time-domain.Instant(rapid.IntRange(0, 600).Draw(t, "ahead"))*domain.Second)
		case 4:
			env := rapid.SampledFrom(examples).Draw(t, "example")
			if env.Signature != nil {
				s := *env.Signature
				s.Bytes = append([]byte{}, s.Bytes...)
				s.Bytes[0] ^= 1
				env.Signature = &s
			}
			l.Append(env)
		case 5, 6, 7:
			l.Append(rapid.SampledFrom(examples).Draw(t, "example"))
		default:
			l.Append(DrawEvent(t))
		}
	}
	return l
}

func (l *Log) repeatSome(t *rapid.T) {
	var filled []domain.TopicPartition
	for _, tp := range domain.AllPartitions() {
		if len(l.Records(tp)) > 0 {
			filled = append(filled, tp)
		}
	}
	tp := rapid.SampledFrom(filled).Draw(t, "repeated")
	from := rapid.IntRange(0, len(l.Records(tp))-1).Draw(t, "from")
	to := min(len(l.Records(tp)), from+rapid.IntRange(1, 5).Draw(t, "count"))
	for i := from; i < to; i++ {
		l.Repeat(tp, int64(i))
	}
}

func drawTime(t *rapid.T) domain.Instant {
	return Start + domain.Instant(rapid.IntRange(0, 5*60).Draw(t, "minute"))*60*domain.Second
}

// DrawEvent returns a valid random event about a fleet of two clusters, with two nodes each, with
// two GPUs each.
func DrawEvent(t *rapid.T) domain.Envelope {
	cluster := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "cluster")
	node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
	return drawEvent(t, cluster, node, rapid.IntRange(0, 18).Draw(t, "event"))
}

// DrawUsage returns a random log about one node: what its few observers saw, with many overlaps,
// and events about the node.
func DrawUsage(t *rapid.T) *Log {
	l := NewLog()
	for range rapid.IntRange(1, 30).Draw(t, "events") {
		// Mostly samples (20), and some other kinds.
		kinds := []int{0, 1, 3, 4, 5, 6, 7, 8, 8, 15, 20, 20, 20, 20, 20, 20, 20, 20}
		l.Append(drawEvent(t, "c1", "n1", rapid.SampledFrom(kinds).Draw(t, "event")))
	}
	return l
}

// DrawDemand returns a random log about one cluster, which may be registered and move between
// regions, and its demand.
func DrawDemand(t *rapid.T) *Log {
	l := NewLog()
	for i := range rapid.IntRange(0, 2).Draw(t, "places") {
		l.Append(Cluster("c1", []string{"acme", "beta"}[i], "p", []string{"us", "ap"}[i], Start+domain.Instant(2*i)*domain.Hour))
	}
	for range rapid.IntRange(1, 40).Draw(t, "events") {
		l.Append(drawEvent(t, "c1", "n1", 13))
	}
	return l
}

// drawEvent returns an event of a kind, one of the numbers below. Higher kinds are samples.
func drawEvent(t *rapid.T, cluster, node string, kind int) domain.Envelope {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	at := drawTime(t)
	env := domain.Envelope{
		Cluster: cluster, Time: at,
		Source: pick("source", "reporter/a", "prometheus/b", "import/c"),
	}
	length := domain.Instant(rapid.IntRange(1, 150).Draw(t, "length")) * 60 * domain.Second
	odd := domain.Instant(rapid.IntRange(0, 1).Draw(t, "odd")) * 1_500_000
	interval := domain.Interval{From: at, To: at + length - odd}
	device := GPU(cluster, node, rapid.IntRange(0, 2).Draw(t, "gpu"))
	switch kind {
	case 0:
		return Node(cluster, node, pick("model", "H100 80GB", "A100 40GB", "unheard of"), rapid.IntRange(1, 2).Draw(t, "gpus"), at)
	case 1:
		env.Event = &domain.NodeRetired{Node: node}
	case 2:
		env.Workspace = pick("owner", "acme", "beta")
		env.Event = &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: pick("region", "eu", "us")}
	case 3:
		env.Event = &domain.GPUFaultObserved{
			Node: node, GPU: device, Kind: domain.FaultXID, Code: 79, Fatal: rapid.Bool().Draw(t, "fatal"),
		}
	case 4:
		env.Event = &domain.NodeCordoned{Node: node, Repair: rapid.Bool().Draw(t, "repair")}
	case 5:
		env.Event = &domain.NodeDrained{Node: node}
	case 6:
		r := &domain.NodeReturned{Node: node, Faults: rapid.Bool().Draw(t, "faults")}
		if r.Faults {
			r.GPU = device
		}
		env.Event = r
	case 7:
		env.Event = &domain.MaintenanceScheduled{
			Maintenance: pick("window", "m1", "m2"), Nodes: []string{node}, Window: interval,
			Cancelled: rapid.Bool().Draw(t, "cancelled"),
		}
	case 8:
		env.Event = &domain.UsageCorrected{
			Correction: pick("correction", "x1", "x2", "x3"), Node: node, GPU: device,
			Replica: uint32(rapid.IntRange(0, 1).Draw(t, "replica")), Interval: interval,
			Workspace: pick("holder", "", "acme", "beta"), Reason: "r",
			Cancelled: rapid.IntRange(0, 3).Draw(t, "withdrawn") == 0,
		}
	case 9:
		env.Workspace = pick("workspace", "acme", "beta")
		env.Event = &domain.DeploymentChanged{
			Deployment: pick("deployment", "d1", "d2"), Model: pick("runs", "llama", "qwen"),
			Class: domain.ClassServing, Replicas: uint32(rapid.IntRange(0, 3).Draw(t, "replicas")),
		}
	case 10:
		env.Event = &domain.ReplicasObserved{
			Deployment: pick("deployment", "", "d1", "d2"), Model: pick("runs", "llama", "qwen"), Ready: 1, Desired: 1,
		}
	case 11:
		env.Workspace = "acme"
		env.Event = &domain.QuotaSet{Quota: pick("quota", "q1", "q2"), Resource: "gpu", EffectiveFrom: drawTime(t)}
		return rapid.SampledFrom([]Operator{Root, NewOperator("mallory", 1)}).Draw(t, "operator").Sign(env)
	case 12:
		env.Event = &domain.ServingSampled{Deployment: "d1", Model: "llama", Engine: "vllm", Interval: interval, PromptTokens: 7}
	case 13:
		drawDemand(t, &env, interval)
	case 14:
		env.Event = drawScrape(t, at)
	case 15:
		env.Event = &domain.OutageDeclared{
			Outage: pick("outage", "o1", "o2"), Nodes: []string{node}, Window: interval, Reason: "power",
			Cancelled: rapid.Bool().Draw(t, "cancelled"),
		}
	default:
		env.Time = interval.To
		s := Sample(node, interval, drawDevices(t, cluster, node)...)
		s.HoldersUnknown = rapid.IntRange(0, 3).Draw(t, "unasked") == 0
		env.Event = s
	}
	return env
}

// drawScrape returns a scrape of one of two servers over some time: few series, whose values grow,
// fall and restart, some of them for times that were scraped before.
func drawScrape(t *rapid.T, at domain.Instant) *domain.MetricsObserved {
	var series []Scraped
	for _, metric := range []domain.SeriesMetric{domain.MetricTTFT, domain.MetricInputLength, domain.MetricRunning} {
		s := Scraped{Metric: metric, Series: rapid.Uint64Range(0, 1).Draw(t, "series")}
		if metric.Kind() == domain.BucketKind {
			s.Bound = rapid.SampledFrom([]uint64{1000, domain.Infinite}).Draw(t, "bound")
		}
		s.Values = rapid.SliceOfN(rapid.Uint64Range(0, 9), 1, 4).Draw(t, "values")
		series = append(series, s)
	}
	step := domain.Instant(rapid.IntRange(1, 40).Draw(t, "step")) * 60 * domain.Second
	return Scrape("d1", rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "server"), at, step, series...)
}

// drawDemand makes env an observation of demand. There are few series and few intervals, so that
// some are repeated, equal or different, late, or overlapping, across the ends of hours and of a
// month.
func drawDemand(t *rapid.T, env *domain.Envelope, interval domain.Interval) {
	if rapid.Bool().Draw(t, "whole hours") {
		interval.From = Start + domain.Instant(rapid.IntRange(-3, 3).Draw(t, "hour"))*domain.Hour
		interval.To = interval.From + domain.Instant(rapid.IntRange(1, 2).Draw(t, "hours"))*domain.Hour
	}
	env.Time = interval.To
	env.Workspace = rapid.SampledFrom([]string{"", "acme"}).Draw(t, "wants")
	if rapid.Bool().Draw(t, "recorded") {
		env.Recorded = interval.To + domain.Instant(rapid.IntRange(0, 3).Draw(t, "recorded after"))*domain.Hour
	}
	env.Event = &domain.DemandObserved{
		Pool:     rapid.SampledFrom([]string{"p", "p|m"}).Draw(t, "pool"),
		Model:    rapid.SampledFrom([]string{"", "m", "m|m"}).Draw(t, "demanded"),
		Region:   rapid.SampledFrom([]string{"", "eu"}).Draw(t, "demand region"),
		Unit:     "gpu",
		Interval: interval, RunningMilli: rapid.Uint64Range(0, 2).Draw(t, "running"), PendingMilli: rapid.Uint64Range(0, 1).Draw(t, "pending"),
	}
}

// drawDevices returns the devices of a sample: GPUs that are whole, partitioned, shared, unknown or
// missing.
func drawDevices(t *rapid.T, cluster, node string) []Seen {
	var out []Seen
	hold := func(s Seen) {
		if s.Workspace = rapid.SampledFrom([]string{"", "acme", "beta"}).Draw(t, "holder"); s.Workspace != "" {
			s.Deployment = rapid.SampledFrom([]string{"", "d1", "d2"}).Draw(t, "deployment")
		}
		s.Activity = rapid.IntRange(-1, 1000).Draw(t, "activity")
		out = append(out, s)
	}
	for i := range 3 {
		id := GPU(cluster, node, i)
		switch rapid.IntRange(0, 4).Draw(t, fmt.Sprint("gpu ", i)) {
		case 0:
		case 1:
			for j := range rapid.IntRange(1, 4).Draw(t, "instances") {
				profiles := []string{"1g.10gb", "3g.40gb", "4g.40gb", "7g.80gb", "odd"}
				profile := rapid.SampledFrom(profiles).Draw(t, "profile")
				hold(Seen{ID: GPU(cluster, node, 10*(i+1)+j), Parent: id, Profile: profile})
			}
		case 2:
			for j := range rapid.IntRange(1, 3).Draw(t, "replicas") {
				hold(Seen{ID: id, Replica: uint32(j + 1)})
			}
		default:
			hold(Seen{ID: id})
		}
	}
	return out
}
