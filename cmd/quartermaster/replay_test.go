package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// estate is the workload that replay is measured on: nodes of eight GPUs in
// sixteen clusters, a sample every ten minutes, holders that change now and
// then, everything from one seed.
type estate struct {
	nodes    int
	clusters int
	shards   int // of each cluster
	interval domain.Instant
	start    domain.Instant
	rng      *rand.Rand
	strings  []string
	held     [][]uint32 // per node and GPU: 0 nobody, or workspace number
	seq      []uint64
	t        int
	at       domain.Position // of what was filled in so far
}

func newEstate(nodes int, interval time.Duration) *estate {
	e := &estate{
		nodes: nodes, clusters: 16, interval: domain.Instant(interval),
		start: domain.InstantOf(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)),
		rng:   rand.New(rand.NewPCG(20260501, 8)),
		held:  make([][]uint32, nodes), seq: make([]uint64, nodes), at: domain.Position{},
	}
	for i := range 24 {
		e.strings = append(e.strings, fmt.Sprintf("workspace-%02d", i))
	}
	for i := range 24 {
		e.strings = append(e.strings, fmt.Sprintf("deployment-%02d", i))
	}
	for i := range e.held {
		e.held[i] = make([]uint32, 8)
	}
	return e
}

// round returns one sample of every node.
func (e *estate) round() ([]domain.Record, error) {
	recs := make([]domain.Record, 0, e.nodes)
	from := e.start + domain.Instant(e.t)*e.interval
	e.t++
	for n := range e.nodes {
		cluster, node := fmt.Sprintf("cluster-%02d", n%e.clusters), fmt.Sprintf("node-%04d", n)
		s := &domain.NodeSampled{Node: node, Interval: domain.Interval{From: from, To: from + e.interval}, ActivityField: 1002}
		index := map[uint32]uint32{}
		for g := range 8 {
			id := domain.DeriveGPUID(cluster, node, g)
			s.IDs = append(s.IDs, id[:]...)
			if e.rng.IntN(50) == 0 {
				e.held[n][g] = uint32(e.rng.IntN(25))
			}
			w := e.held[n][g]
			if w > 0 && index[w] == 0 {
				s.Strings = append(s.Strings, e.strings[w-1], e.strings[24+w-1])
				s.HolderWorkspace = append(s.HolderWorkspace, uint32(len(s.Strings)-1))
				s.HolderDeployment = append(s.HolderDeployment, uint32(len(s.Strings)))
				s.HolderUnit = append(s.HolderUnit, 0)
				index[w] = uint32(len(s.HolderWorkspace))
			}
			s.Holder = append(s.Holder, index[w])
			busy := uint32(e.rng.IntN(900))
			s.ActivityMean = append(s.ActivityMean, busy+1)
			s.ActivityMin = append(s.ActivityMin, busy/2+1)
			s.ActivityMax = append(s.ActivityMax, busy+50)
			s.TensorActive = append(s.TensorActive, busy/3+1)
			s.DRAMActive = append(s.DRAMActive, busy/2+1)
			s.MemoryUsedMiB = append(s.MemoryUsedMiB, uint32(e.rng.IntN(80_000))+1)
			s.PowerWatts = append(s.PowerWatts, uint32(100+e.rng.IntN(600)))
			s.TemperatureC = append(s.TemperatureC, uint32(30+e.rng.IntN(50)))
			s.SMClockMHz = append(s.SMClockMHz, uint32(900+e.rng.IntN(1000)))
		}
		e.seq[n]++
		rec, err := wire.Encode(&domain.Envelope{
			Source: httpapi.SourceOf(cluster) + node, Incarnation: 1, Sequence: e.seq[n],
			Time: s.Interval.To, Cluster: cluster, Shards: e.shards, Event: s,
		})
		if err != nil {
			return nil, err
		}
		rec.Partition = domain.PartitionOf(rec.Key, domain.TopicTelemetry.Partitions())
		rec.Time = s.Interval.To
		recs = append(recs, rec)
	}
	return recs, nil
}

// fill appends the next n samples of the estate to the log of a data directory, but for
// those that are there already, so that a log that another run filled, or half,
// can be used again.
func (e *estate) fill(ctx context.Context, h *app.Conn, n int) error {
	there, err := h.End(ctx)
	if err != nil {
		return err
	}
	var batch []domain.Record
	for n > 0 {
		recs, err := e.round()
		if err != nil {
			return err
		}
		recs = recs[:min(n, len(recs))]
		n -= len(recs)
		for i := range recs {
			tp := domain.TopicPartition{Topic: recs[i].Topic, Partition: recs[i].Partition}
			if e.at[tp]++; e.at[tp] > there[tp] {
				batch = append(batch, recs[i])
			}
		}
		if len(batch) >= 8000 || n == 0 {
			if err := h.Log.Append(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

func benchDir(b *testing.B, events int, e *estate) *app.Conn {
	b.Helper()
	ctx := b.Context()
	a := commandLine(&app.App{Dir: b.TempDir()}, io.Discard, io.Discard)
	h, err := a.OpenLog(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(h.Log.Close(), h.CloseBroker()); err != nil {
			b.Error(err)
		}
	})
	if err := e.fill(ctx, h, events); err != nil {
		b.Fatal(err)
	}
	return h
}

// drain reads a topic with kafka-go as fast as it can and does nothing with
// the records: one connection per partition, batches of up to 8 MiB, every
// record read whole.
func drain(ctx context.Context, h *app.Conn, topic domain.Topic, end domain.Position) (int64, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		total int64
		first error
	)
	for p := range topic.Partitions() {
		to := end[domain.TopicPartition{Topic: topic, Partition: p}]
		if to == 0 {
			continue
		}
		wg.Go(func() {
			n, err := drainPartition(ctx, h, topic, p, to)
			mu.Lock()
			defer mu.Unlock()
			total += n
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return total, first
}

func drainPartition(ctx context.Context, h *app.Conn, topic domain.Topic, p int, to int64) (n int64, err error) {
	d := &kafkago.Dialer{DialFunc: h.Broker.Dial, ClientID: "drain"}
	conn, err := d.DialLeader(ctx, "tcp", h.Broker.Address(), string(topic), p)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Seek(0, kafkago.SeekStart); err != nil {
		return 0, err
	}
	for n < to {
		batch := conn.ReadBatchWith(kafkago.ReadBatchConfig{MinBytes: 1, MaxBytes: 8 << 20})
		for {
			if _, err := batch.ReadMessage(); err != nil {
				if errors.Is(err, io.EOF) {
					break
				}
				return n, err
			}
			n++
		}
		if err := batch.Close(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// BenchmarkReplay folds half a million samples of eight GPUs from an embedded
// log into rows, beside kafka-go draining the same partitions.
// QM_REPLAY_EVENTS sets another number of events.
func BenchmarkReplay(b *testing.B) {
	events := 500_000
	if s := os.Getenv("QM_REPLAY_EVENTS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		events = n
	}
	h := benchDir(b, events, newEstate(125, 10*time.Minute))
	ctx := b.Context()
	end, err := h.End(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var drained, replayed time.Duration
	var rows int
	for b.Loop() {
		runtime.GC()
		start := time.Now()
		n, err := drain(ctx, h, domain.TopicTelemetry, end)
		if err != nil || n != int64(events) {
			b.Fatalf("drained %d of %d: %v", n, events, err)
		}
		drained += time.Since(start)

		store := projections.NewMemory(domain.TopicSpecs())
		r := app.NewRunner(h.Log, store)
		runtime.GC()
		start = time.Now()
		if err := r.CatchUp(ctx, end); err != nil {
			b.Fatal(err)
		}
		replayed += time.Since(start)
		if p := r.Progress(); p.Folded != int64(events) {
			b.Fatalf("folded %d of %d: %+v", p.Folded, events, p)
		}
		rows = 0
		if err := store.View(ctx, func(v projections.View) error {
			return v.Scan(projections.Query{Table: projections.TableUsage}, func(projections.Key, projections.Row) error {
				rows++
				return nil
			})
		}); err != nil {
			b.Fatal(err)
		}
	}
	total := float64(events) * float64(b.N)
	b.ReportMetric(total/drained.Seconds(), "drained/s")
	b.ReportMetric(total/replayed.Seconds(), "folded/s")
	b.ReportMetric(drained.Seconds()/replayed.Seconds(), "of-drain")
	b.ReportMetric(float64(rows), "rows")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReopen opens a data directory of a million events until it can answer: from
// a snapshot, and without one, when every event is folded again.
// QM_REOPEN_EVENTS sets another number of events.
func BenchmarkReopen(b *testing.B) {
	events := 1_000_000
	if s := os.Getenv("QM_REOPEN_EVENTS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		events = n
	}
	ctx := b.Context()
	a := commandLine(&app.App{Dir: b.TempDir()}, io.Discard, io.Discard)
	h, err := a.OpenLog(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := newEstate(125, 10*time.Minute).fill(ctx, h, events); err != nil {
		b.Fatal(err)
	}
	if err := h.CatchUp(ctx); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := h.Close(); err != nil {
		b.Fatal(err)
	}
	closing := time.Since(start)
	reopen := func(b *testing.B, saves bool) {
		for b.Loop() {
			h, err := a.Open(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := h.View(ctx, func(v projections.View) error {
				inv, err := inventory.New(v, inventory.Filter{At: app.Now()})
				if err == nil && len(inv.Clusters) == 0 {
					err = errors.New("the inventory is empty")
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			end := h.Close
			if !saves {
				end = h.Shut
			}
			if err := end(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	b.Run("from a snapshot", func(b *testing.B) {
		reopen(b, true)
		b.ReportMetric(closing.Seconds(), "s-to-close")
	})
	if err := os.RemoveAll(h.Snapshots()); err != nil {
		b.Fatal(err)
	}
	b.Run("from the log alone", func(b *testing.B) { reopen(b, false) })
}
