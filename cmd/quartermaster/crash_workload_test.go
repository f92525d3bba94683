package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
)

// workload appends what the campaign folds: five minutes of a small fleet at a
// time, all topics but none that needs the rules of projections to be foretold,
// with what goes wrong in a log: repeats because acknowledgements got lost,
// repeats of old records, records late, records that never come, sources that
// start anew, and records that are no good.
type workload struct {
	log  *kafka.Log
	rng  *rand.Rand
	hub  *kafka.Stream // of the clusters whose samples come through one gateway
	key  ed25519.PrivateKey
	at   domain.Instant
	tick int

	incarnation map[string]uint64
	sequence    map[refStream]uint64
	before      map[refStream][2]uint64 // incarnation and sequence before this incarnation's first
	late        []lateRecord
	old         []domain.Record
	jobs        int
	bursts      int

	wanted   atomic.Bool  // a burst
	appended atomic.Int64 // records that were given to the log, without those it repeated by itself
}

type lateRecord struct {
	due int
	rec domain.Record
}

const (
	crashClusters = 3
	crashNodes    = 8 // of each cluster
	crashStep     = 5 * domain.Instant(time.Minute)
)

// flaky connects to Kafka and loses an answer now and then: the connection ends
// after the request was sent and before its answer is read.
func flaky(rng *rand.Rand, share float64) func(context.Context, string, string) (net.Conn, error) {
	var mu sync.Mutex
	lose := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.Float64() < share
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &flakyConn{c, lose}, nil
	}
}

type flakyConn struct {
	net.Conn
	lose func() bool
}

func (c *flakyConn) Read(b []byte) (int, error) {
	if len(b) > 0 && c.lose() {
		// The answer is there, and nobody will ever see it.
		_, _ = c.Conn.Read(make([]byte, 1))
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return c.Conn.Read(b)
}

func newWorkload(log *kafka.Log, seed uint64) *workload {
	w := &workload{
		log: log, rng: rand.New(rand.NewPCG(seed, 2)),
		key:         ed25519.NewKeyFromSeed([]byte("crash campaign, a key for tests!")),
		at:          domain.InstantOf(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)),
		incarnation: map[string]uint64{}, sequence: map[refStream]uint64{}, before: map[refStream][2]uint64{},
	}
	w.hub = kafka.NewStream(log, kafka.StreamConfig{Source: "gateway", Incarnation: 1, Encode: apptest.EncodeThen})
	return w
}

// event numbers an event of a source and encodes it.
func (w *workload) event(source string, env domain.Envelope) domain.Record {
	key, err := env.Key()
	if err != nil {
		panic(err) // the workload is at fault
	}
	if w.incarnation[source] == 0 {
		w.incarnation[source] = 1
	}
	tp := domain.TopicPartition{Topic: env.Topic(), Partition: domain.PartitionOf([]byte(key), env.Topic().Partitions())}
	id := refStream{tp, source, w.incarnation[source]}
	w.sequence[id]++
	env.Source, env.Incarnation, env.Sequence = source, id.incarnation, w.sequence[id]
	if last := w.sequence[refStream{tp, source, id.incarnation - 1}]; env.Sequence == 1 && last > 0 {
		env.PreviousIncarnation, env.PreviousSequence = id.incarnation-1, last
	}
	if domain.NeedsSignature(env.Event) && w.rng.IntN(20) > 0 {
		if err := wire.Sign(&env, "crash", w.key); err != nil {
			panic(err)
		}
	}
	rec, err := wire.Encode(&env)
	if err != nil {
		panic(err)
	}
	rec.Time = env.Time // of the campaign's own clock, as the rest
	return rec
}

// run appends until ctx ends. Between ticks it waits for pace, and while behind
// says that the rivals do not keep up.
func (w *workload) run(ctx context.Context, pace time.Duration, behind func() bool) error {
	for ctx.Err() == nil {
		err := w.step(ctx)
		if err == nil && w.wanted.CompareAndSwap(true, false) {
			err = w.burst(ctx, 6500)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		for wait := true; wait && ctx.Err() == nil; wait = behind() {
			select {
			case <-ctx.Done():
			case <-time.After(pace):
			}
		}
	}
	return nil
}

// give appends records until they are acknowledged. What was appended and not
// acknowledged is appended again, and is a repeat.
func (w *workload) give(ctx context.Context, recs []domain.Record) error {
	w.appended.Add(int64(len(recs)))
	for {
		err := w.log.Append(ctx, recs)
		if err == nil || ctx.Err() != nil {
			return err
		}
		var part *kafka.PartitionError
		if !errors.As(err, &part) {
			return err
		}
	}
}

func (w *workload) step(ctx context.Context) error {
	w.tick++
	from := w.at
	w.at += crashStep
	var out []domain.Record
	var through []*domain.Envelope // the gateway
	for c := range crashClusters {
		cluster := fmt.Sprintf("crash-%d", c)
		for n := range crashNodes {
			node := fmt.Sprintf("node-%02d", n)
			sampled := func() domain.Envelope {
				s := w.sample(cluster, node, n, domain.Interval{From: from, To: w.at})
				return domain.Envelope{Time: s.Interval.To, Cluster: cluster, Event: s}
			}
			env := sampled()
			if c == 0 {
				through = append(through, &env)
				continue
			}
			source := "reporter/" + cluster + "/" + node
			if w.rng.IntN(1500) == 0 && w.tick > 20 {
				w.incarnation[source]++
			}
			rec := w.event(source, env)
			switch d := w.rng.IntN(2000); {
			case d < 30:
				w.late = append(w.late, lateRecord{w.tick + 1 + w.rng.IntN(40), rec})
			case d < 31:
				// It never comes.
			default:
				out = append(out, rec)
			}
			if n%4 == 1 {
				// A second observer of the same node.
				out = append(out, w.event("scanner/"+cluster, sampled()))
			}
		}
		out = append(out, w.others(cluster, from)...)
	}
	out = append(out, w.market(from)...)
	out = append(out, w.poison()...)
	out = append(out, w.forged()...)
	kept := w.late[:0]
	for _, l := range w.late {
		if l.due <= w.tick {
			out = append(out, l.rec)
		} else {
			kept = append(kept, l)
		}
	}
	w.late = kept
	// Repeats of whatever age.
	for range len(out) {
		if w.rng.IntN(60) == 0 && len(w.old) > 0 {
			out = append(out, w.old[w.rng.IntN(len(w.old))])
		}
	}
	for i := range out {
		if n := len(w.old); n < 4000 {
			w.old = append(w.old, out[i])
		} else if w.rng.IntN(50) == 0 {
			w.old[w.rng.IntN(n)] = out[i]
		}
	}
	if err := w.give(ctx, out); err != nil {
		return err
	}
	w.appended.Add(int64(len(through)))
	for err := w.hub.Append(ctx, through...); err != nil; err = w.hub.Flush(ctx) {
		if ctx.Err() != nil || !errors.Is(err, kafka.ErrUndelivered) {
			return err
		}
	}
	return nil
}

// burst appends so many statements at once that one transaction sends them in
// several messages.
func (w *workload) burst(ctx context.Context, n int) error {
	// The things of three bursts are the same, so that rows are also replaced.
	first := w.bursts / 3 * n
	w.bursts++
	recs := make([]domain.Record, n)
	for i := range recs {
		job := fmt.Sprintf("burst-%d", first+i)
		var ev domain.Event = &domain.JobQueued{Job: job, Class: domain.ClassBatch, Need: domain.GPUNeed{Count: 1}}
		switch w.bursts % 3 {
		case 2:
			ev = &domain.JobStarted{Job: job, GPUs: 1}
		case 0:
			ev = &domain.JobFinished{Job: job, Outcome: domain.JobSucceeded, RetainedPermille: 1000}
		}
		recs[i] = w.event("scheduler", domain.Envelope{Time: w.at + domain.Instant(i), Cluster: "crash-batch", Workspace: "ws-0", Event: ev})
	}
	return w.give(ctx, recs)
}

// sample makes a sample of four devices; the first node's first device is cut up,
// and its second shared in turn.
func (w *workload) sample(cluster, node string, n int, over domain.Interval) *domain.NodeSampled {
	if n%4 == 2 {
		// Not in step with the hours.
		over.From += domain.Instant(2 * time.Minute)
		over.To += domain.Instant(2 * time.Minute)
	}
	s := &domain.NodeSampled{Node: node, Interval: over, ActivityField: 1002}
	entry := func(id domain.GPUID, parent, profile, replica uint32) {
		s.IDs = append(s.IDs, id[:]...)
		s.Parent, s.Profile, s.Replica = append(s.Parent, parent), append(s.Profile, profile), append(s.Replica, replica)
	}
	for g := range 4 {
		id := domain.DeriveGPUID(cluster, node, g)
		switch {
		case n == 0 && g == 0:
			s.Parents = append(s.Parents, id[:]...)
			s.Strings = append(s.Strings, "1g.10gb", "2g.20gb")
			for i := range 3 {
				entry(domain.DeriveGPUID(cluster, node, 100+i), 1, uint32(1+i%2), 0)
			}
		case n == 0 && g == 1:
			entry(id, 0, 0, 1)
			entry(id, 0, 0, 2)
		default:
			entry(id, 0, 0, 0)
		}
	}
	devices := len(s.IDs) / 16
	slot := uint64(over.From) / uint64(20*time.Minute) // holders change every twenty minutes or so
	for k := range 2 {
		s.Strings = append(s.Strings, fmt.Sprintf("ws-%d", (int(slot)+n+k)%5), fmt.Sprintf("deployment-%d", (int(slot)+k)%3))
		s.HolderWorkspace = append(s.HolderWorkspace, uint32(len(s.Strings)-1))
		s.HolderDeployment = append(s.HolderDeployment, uint32(len(s.Strings)))
		s.HolderUnit = append(s.HolderUnit, 0)
	}
	for i := range devices {
		s.Holder = append(s.Holder, uint32((int(slot)*7+i+n)%3))
		busy := uint32(w.rng.IntN(1001))
		s.ActivityMean = append(s.ActivityMean, busy) // at times blank
		s.ActivityMin, s.ActivityMax = append(s.ActivityMin, busy/2), append(s.ActivityMax, busy)
		s.TensorActive, s.DRAMActive = append(s.TensorActive, busy/3), append(s.DRAMActive, busy/2)
		s.MemoryUsedMiB = append(s.MemoryUsedMiB, uint32(w.rng.IntN(80_000)))
		s.PowerWatts, s.TemperatureC = append(s.PowerWatts, uint32(w.rng.IntN(700))), append(s.TemperatureC, uint32(30+w.rng.IntN(50)))
		s.SMClockMHz = append(s.SMClockMHz, uint32(w.rng.IntN(1900)))
	}
	if w.rng.IntN(4) == 0 {
		s.OtherEntry, s.OtherField, s.OtherValue = []uint32{0, 0, 1}, []uint32{230, 310, 230}, []uint64{uint64(w.rng.IntN(9)), 7, 1}
	}
	return s
}

// others makes what else happens in a cluster.
func (w *workload) others(cluster string, from domain.Instant) (out []domain.Record) {
	at := func(source string, ev domain.Event, workspace string) {
		out = append(out, w.event(source, domain.Envelope{Time: w.at, Cluster: cluster, Workspace: workspace, Event: ev}))
	}
	r := w.rng
	control := "operations/" + cluster
	if w.tick%40 == 1 {
		at(control, &domain.ClusterRegistered{Provider: "acme", ProviderClass: domain.Neocloud, Region: "eu-1", Labels: map[string]string{"era": fmt.Sprint(w.tick / 200), "a": "b"}}, "ws-0")
		for n := range crashNodes {
			node := fmt.Sprintf("node-%02d", n)
			ev := &domain.NodeRegistered{Node: node, CPUMilli: 64000, MemoryMiB: 1 << 20, DriverVersion: fmt.Sprintf("550.%d", w.tick/120)}
			for g := range 4 {
				ev.GPUs = append(ev.GPUs, domain.GPUDeclared{ID: domain.DeriveGPUID(cluster, node, g), Index: uint32(g), Model: "H100 SXM 80GB"})
			}
			at("reporter/"+cluster+"/"+node, ev, "")
		}
	}
	if r.IntN(20) == 0 {
		at(control, &domain.NodeRetired{Node: fmt.Sprintf("spare-%d", r.IntN(5)), Reason: []string{"", "broken"}[r.IntN(2)]}, "")
	}
	node := fmt.Sprintf("node-%02d", r.IntN(crashNodes))
	if r.IntN(4) == 0 {
		at(control, &domain.GPUFaultObserved{Node: node, GPU: domain.DeriveGPUID(cluster, node, 0), Kind: domain.FaultXID, Code: uint32(r.IntN(100)), Count: 1}, "")
	}
	if r.IntN(10) == 0 {
		at(control, &domain.NodeCordoned{Node: node, Repair: true}, "")
		at(control, &domain.NodeReturned{Node: node}, "")
	}
	if r.IntN(30) == 0 {
		at(control, &domain.MaintenanceScheduled{Maintenance: fmt.Sprintf("m-%d", r.IntN(4)), Nodes: []string{node}, Window: domain.Interval{From: w.at, To: w.at + domain.Hour}, Cancelled: r.IntN(2) == 0}, "")
	}
	if r.IntN(30) == 0 {
		at(control, &domain.OutageDeclared{Outage: fmt.Sprintf("o-%d", r.IntN(4)), Nodes: []string{node}, Window: domain.Interval{From: from, To: w.at}, Reason: "power", Cancelled: r.IntN(2) == 0}, "")
	}
	if r.IntN(3) == 0 {
		job := fmt.Sprintf("job-%d", w.jobs)
		w.jobs++
		at("scheduler/"+cluster, &domain.JobQueued{Job: job, Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 4}}, "ws-1")
		at("scheduler/"+cluster, &domain.JobStarted{Job: job, Nodes: []string{node}, GPUs: 4}, "ws-1")
		at("scheduler/"+cluster, &domain.JobFinished{Job: fmt.Sprintf("job-%d", r.IntN(w.jobs)), Outcome: domain.JobFailed}, "ws-1")
	}
	if r.IntN(25) == 0 {
		at(control, &domain.UsageCorrected{Correction: fmt.Sprintf("fix-%d", r.IntN(4)), Node: node, GPU: domain.DeriveGPUID(cluster, node, 1), Interval: domain.Interval{From: from, To: w.at}, Reason: "mapped wrongly", Cancelled: r.IntN(2) == 0}, "")
	}
	if r.IntN(6) == 0 {
		at(control, &domain.EnergyMetered{Meter: "pdu-1", Interval: domain.Interval{From: from, To: w.at}, WattHours: decimal.New(r.Int64N(1e6), -3)}, "")
	}
	deployment := fmt.Sprintf("deployment-%d", r.IntN(3))
	if r.IntN(8) == 0 {
		at(control, &domain.DeploymentChanged{Deployment: deployment, Class: domain.ClassServing, Replicas: uint32(1 + r.IntN(2)), Need: domain.GPUNeed{Count: 1}}, "ws-2")
	} else if r.IntN(40) == 0 {
		at(control, &domain.DeploymentRemoved{Deployment: deployment}, "ws-2")
	}
	if r.IntN(4) == 0 {
		at(control, &domain.ReplicasObserved{Deployment: deployment, Model: "m", Ready: uint32(r.IntN(4)), Desired: 3}, "")
	}
	served := &domain.ServingSampled{
		Deployment: deployment, Model: "llm", Engine: []string{"vllm", "sglang"}[r.IntN(2)], Interval: domain.Interval{From: from, To: w.at},
		QueueDepthMilli: uint64(r.IntN(5000)), BatchSizeMilli: uint64(r.IntN(9000)), KVCachePermille: uint64(r.IntN(1000)),
		PromptTokens: uint64(r.IntN(1e6)), GenerationTokens: uint64(r.IntN(1e5)), RequestsOK: uint64(r.IntN(1000)), RequestsFailed: uint64(r.IntN(3)),
	}
	if r.IntN(5) > 0 {
		served.TTFT = domain.Histogram{Bounds: []uint64{1000, 10_000 * (1 + r.Uint64N(2))}, Counts: []uint64{r.Uint64N(9), r.Uint64N(9), r.Uint64N(3)}, Sum: r.Uint64N(1e6)}
	}
	at("server/"+cluster, served, "")
	demand := &domain.DemandObserved{Pool: "pool", Model: "H100", Unit: "gpu", Interval: domain.Interval{From: from, To: w.at}, RunningMilli: uint64(r.IntN(9)) * 1000, PendingMilli: uint64(r.IntN(3)) * 1000}
	at("queue/"+cluster, demand, "")
	if r.IntN(5) == 0 {
		again := *demand
		again.RunningMilli = uint64(r.IntN(9)) * 1000
		at("queue/"+cluster, &again, "ws-3")
		at("queue/"+cluster, &again, "ws-3")
	}
	return out
}

// market makes bills, prices and what people do.
func (w *workload) market(from domain.Instant) (out []domain.Record) {
	r := w.rng
	at := func(source, workspace string, ev domain.Event) {
		out = append(out, w.event(source, domain.Envelope{Time: w.at, Workspace: workspace, Event: ev}))
	}
	month := from.Time()
	begin := domain.InstantOf(time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC))
	end := domain.InstantOf(time.Date(month.Year(), month.Month()+1, 1, 0, 0, 0, 0, time.UTC))
	for range 2 {
		account := fmt.Sprintf("account-%d", r.IntN(3))
		at("bill/"+account, "", &domain.BillingLineRecorded{Line: domain.BillingLine{
			LineID: fmt.Sprintf("line-%d", r.IntN(5000)), BilledCost: decimal.New(r.Int64N(1e9), -6), BillingAccountID: account, BillingCurrency: "USD",
			BillingPeriodStart: begin, BillingPeriodEnd: end, ChargePeriodStart: from, ChargePeriodEnd: w.at, ChargeCategory: "Usage", InvoiceIssuerName: "Acme",
			Other: map[string]string{"x_b": "2", "x_a": "1"},
		}})
	}
	if r.IntN(10) == 0 {
		at("bill/invoices", "", &domain.InvoiceReceived{
			InvoiceIssuerName: "Acme", BillingAccountID: fmt.Sprintf("account-%d", r.IntN(3)), InvoiceID: fmt.Sprintf("inv-%d", r.IntN(6)), Status: []string{"Open", "Issued"}[r.IntN(2)],
			Total: domain.Money{Amount: decimal.New(100+r.Int64N(2), 0), Currency: "USD"}, IssueDate: begin, BillingPeriod: domain.Interval{From: begin, To: end},
		})
	}
	market := domain.Market{Provider: "acme", Region: fmt.Sprintf("eu-%d", r.IntN(3))}
	switch r.IntN(6) {
	case 0, 1:
		at("prices", "", &domain.OfferQuoted{Market: market, Offer: fmt.Sprintf("offer-%d", r.IntN(4)), SKU: "h100x8", GPUModel: "H100 SXM 80GB", GPUCount: 8, Kind: domain.OfferOnDemand,
			Hourly: decimal.New(20+r.Int64N(2), 0), Currency: "USD", ValidFrom: w.at})
	case 2:
		at("prices", "", &domain.OfferWithdrawn{Market: market, Offer: fmt.Sprintf("offer-%d", r.IntN(4)), At: w.at})
	case 3:
		at("prices", "", &domain.SpotInterrupted{Market: market, SKU: "h100x8", Units: uint32(1 + r.IntN(3)), NoticeSeconds: 120})
	}
	if r.IntN(10) == 0 {
		at("treasury", "", &domain.FXRateSet{Base: "EUR", Quote: "USD", Rate: decimal.New(1000+r.Int64N(200), -3), Kind: domain.FXSpot, Effective: domain.Interval{From: from, To: w.at}})
	}
	if r.IntN(15) == 0 {
		at("desk", "ws-0", &domain.PolicySet{Policy: fmt.Sprintf("p-%d", r.IntN(3)), Kind: domain.PolicyIdleCost, EffectiveFrom: w.at, Value: []string{"owner", "platform"}[r.IntN(2)]})
	}
	if r.IntN(12) == 0 {
		workspace := fmt.Sprintf("ws-%d", r.IntN(5))
		at("desk", workspace, &domain.WorkspaceRegistered{Name: []string{"Research", "Vision"}[r.IntN(2)]})
	}
	if r.IntN(8) == 0 {
		at("planner", "ws-1", &domain.RecommendationMade{Recommendation: fmt.Sprintf("rec-%d", w.tick), Kind: "drain", Summary: "drain a node", Requester: "planner"})
		at("gate", "ws-1", &domain.RecommendationActuated{Recommendation: fmt.Sprintf("rec-%d", w.tick), Cluster: "crash-1", Actor: []string{domain.KeyActor("k1"), domain.OperatorActor("crash")}[r.IntN(2)]})
		if r.IntN(3) == 0 {
			at("desk", "ws-1", &domain.RecommendationWithdrawn{Recommendation: fmt.Sprintf("rec-%d", w.tick), Reason: "stale"})
		}
		at("planner", "ws-1", &domain.OutcomeRecorded{Recommendation: fmt.Sprintf("rec-%d", r.IntN(w.tick+1)), Outcome: "succeeded"})
	}
	if r.IntN(8) == 0 {
		at("gate", "", &domain.AccessDenied{Entity: "main", Principal: fmt.Sprintf("user-%d", r.IntN(3)), Action: "close", Reason: "no right"})
	}
	if r.IntN(4) == 0 {
		who := domain.UserOf("corp", fmt.Sprintf("u-%d", r.IntN(3)))
		at("api", "ws-1", &domain.AccessRecorded{Principal: who, Journal: fmt.Sprintf("j-%d", w.tick), Window: domain.Interval{From: from, To: w.at}, Asked: []domain.AccessRead{
			{Operation: "costs", Workspaces: []string{"ws-1"}, Count: 1 + r.Uint64N(9)},
		}})
		if r.IntN(4) == 0 {
			at("api", "ws-1", &domain.SessionEnded{Principal: who, At: w.at})
		}
	}
	if r.IntN(6) == 0 {
		incident := fmt.Sprintf("incident-%d", w.tick)
		at("advice", "ws-2", &domain.IncidentOpened{Incident: incident, Rule: "utilization", Version: 1, Subject: "cluster/crash-1", Severity: domain.SeverityWarning,
			At: w.at, Position: "0", Method: "advice/1", Summary: "idle", Document: []byte(`{"measured":"0.3"}`)})
		if r.IntN(2) == 0 {
			at("advice", "ws-2", &domain.IncidentResolved{Incident: incident, At: w.at, Position: "0", Method: "advice/1"})
		}
	}
	return out
}

// forged makes two records of one sequence that say different things, of which the
// second is a conflict.
func (w *workload) forged() (out []domain.Record) {
	if w.rng.IntN(6) > 0 {
		return nil
	}
	for _, reason := range []string{"", "forged"} {
		rec := w.event("twice", domain.Envelope{Time: w.at, Cluster: "crash-1", Event: &domain.NodeRetired{Node: fmt.Sprint("twice-", w.tick), Reason: reason}})
		w.sequence[refStream{domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}, "twice", 1}]--
		out = append(out, rec)
	}
	w.sequence[refStream{domain.TopicPartition{Topic: out[0].Topic, Partition: out[0].Partition}, "twice", 1}]++
	return out
}

// poison makes records that are no good, each in a way of its own.
func (w *workload) poison() (out []domain.Record) {
	r := w.rng
	if r.IntN(3) > 0 {
		return nil
	}
	kind := r.IntN(7)
	good := w.event("strange", domain.Envelope{Time: w.at, Cluster: fmt.Sprintf("crash-%d", r.IntN(3)), Event: &domain.NodeRetired{Node: "n"}})
	if kind >= 1 && kind <= 4 {
		// Its sequence is another's: what cannot be read has none, and would be missed.
		w.sequence[refStream{domain.TopicPartition{Topic: good.Topic, Partition: good.Partition}, "strange", 1}]--
	}
	switch kind {
	case 0: // bytes
		out = append(out, domain.Record{Topic: domain.TopicTelemetry, Partition: r.IntN(8), Key: []byte("crash-0"), Value: []byte(strings.Repeat("\xff", r.IntN(90)))})
	case 1: // a payload that ends early
		good.Value = append([]byte{0xff, 0xff}, good.Value...)
	case 2: // a type of the future
		for i := range good.Headers {
			if good.Headers[i].Key == "ce_type" {
				good.Headers[i].Value = []byte("quartermaster.NodePainted.v1")
			}
		}
	case 3: // the wrong partition
		good.Partition = (good.Partition + 1) % domain.TopicFleet.Partitions()
	case 4: // the wrong key
		good.Key = []byte("elsewhere")
	case 5: // an event that says nothing possible
		out = append(out, w.event("strange", domain.Envelope{Time: w.at, Cluster: "crash-1", Event: &domain.JobFinished{Job: "j", Outcome: "vanished"}}))
	case 6: // a decision that nobody signed
		rec, err := wire.Encode(&domain.Envelope{Source: "nobody", Incarnation: uint64(w.tick), Sequence: 1, Time: w.at, Workspace: "ws-4",
			Event: &domain.PolicySet{Policy: "p", Kind: domain.PolicyIdleCost, EffectiveFrom: w.at, Value: "owner"}})
		if err != nil {
			panic(err)
		}
		out = append(out, rec)
	}
	return append(out, good)
}
