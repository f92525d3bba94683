//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/spool"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// A fault of the driver is in the gateway's log soon after. The delay is logged.
func TestFaultArrives(t *testing.T) {
	b := newBooks(t)
	n := newNode(t, b, "", "")
	n.start()
	until(t, "the first frame", func() bool { return strings.Contains(n.said(), "the collector began") })
	for range 5 {
		begin := time.Now()
		k := n.xid(1, 79)
		until(t, "the fault to arrive", func() bool { return b.has([]string{k}) })
		took := b.arrived[k].Sub(begin)
		t.Logf("XID to the gateway's log: %s", took.Round(time.Millisecond))
		if took > 20*time.Second {
			t.Errorf("a fault took %s", took)
		}
	}
	until(t, "a sample", func() bool { return len(events[*domain.NodeSampled](b)) > 0 })
	e := events[*domain.NodeSampled](b)[0]
	if e.Node != "n1" || e.Entries() != 4 || e.ActivityMean[0] != 501 || e.PowerWatts[0] != 401 {
		t.Errorf("%+v", e)
	}
}

// A new node asks for the number of shards before its first event.
func TestShardsAtFirst(t *testing.T) {
	b := newBooks(t)
	b.reshard(8)
	n := newNode(t, b, t.TempDir(), "")
	n.start()
	defer n.kill()
	until(t, "the first frame", func() bool { return strings.Contains(n.said(), "the collector began") })
	k := n.xid(0, 79)
	until(t, "that the fault arrives", func() bool { return b.has([]string{k}) })
	until(t, "that a sample arrives", func() bool { return len(events[*domain.NodeSampled](b)) > 0 })
	b.mu.Lock()
	defer b.mu.Unlock()
	want := domain.NodeKey(testCluster, "n1", 8)
	for tp, recs := range b.records {
		for i := range recs {
			if key := string(recs[i].Key); key != want && tp.Topic != domain.TopicFleet {
				t.Errorf("a record of %s has the key %s, want %s", tp, key, want)
			}
		}
	}
}

// Every failure of the collector is shown with what to do, and reported to the log. The collector
// is restarted, and its recovery is reported too.
func TestSilentCollector(t *testing.T) {
	for mode, want := range map[string]string{
		"none":    "libdcgm.so.4 is not there: install datacenter-gpu-manager-4-core",
		"127":     "exit status 127: undefined symbol: dcgmHealthSet_v2",
		"garbage": "said what is no frame",
		"hang":    "the driver hangs",
		"mute":    "said nothing for 5s",
		"absent":  "cannot be started",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBooks(t)
			n := newNode(t, b, "", "")
			n.env = []string{"QM_COLLECTOR=" + mode}
			if mode == "absent" {
				if err := os.Rename(filepath.Join(n.dir, "collector"), filepath.Join(n.dir, "later")); err != nil {
					t.Fatal(err)
				}
			}
			n.start()
			until(t, "the event", func() bool { return len(events[*domain.CollectorSilent](b)) > 0 })
			e := events[*domain.CollectorSilent](b)[0]
			if e.Node != "n1" || !strings.Contains(e.Reason, want) || e.Silent.From == 0 || e.Silent.To != 0 {
				t.Errorf("%+v, want %q", e, want)
			}
			until(t, "another start", func() bool { return strings.Count(n.said(), "is restarted") > 1 })
			if got := len(events[*domain.CollectorSilent](b)); got != 1 {
				t.Errorf("it is told %d times that the collector is silent", got)
			}
			n.stop()
			n.env = nil
			if mode == "absent" {
				if err := os.Rename(filepath.Join(n.dir, "later"), filepath.Join(n.dir, "collector")); err != nil {
					t.Fatal(err)
				}
			}
			n.start()
			until(t, "a measurement", func() bool { return len(events[*domain.NodeSampled](b)) > 0 })
		})
	}
}

// If a healthy collector is killed, its silence and the end of the silence are reported.
func TestCollectorComesBack(t *testing.T) {
	b := newBooks(t)
	n := newNode(t, b, "", "")
	n.start()
	until(t, "a measurement", func() bool { return len(events[*domain.NodeSampled](b)) > 0 })
	n.killCollector()
	until(t, "that it is told", func() bool { return len(events[*domain.CollectorSilent](b)) == 2 })
	for _, e := range events[*domain.CollectorSilent](b) {
		if !strings.Contains(e.Reason, "signal: killed") {
			t.Errorf("%+v", e)
		}
	}
}

// Whatever is killed, samples and silences cover all time between them without gaps or overlaps,
// and a silence whose beginning was reported has its end reported.
func TestSilencesAreWhole(t *testing.T) {
	b := newBooks(t)
	n := newNode(t, b, "", "")
	n.start()
	samples := func() []*domain.NodeSampled { return events[*domain.NodeSampled](b) }
	// An event that was sent again after a kill counts once, as in the folds.
	silences := func() []*domain.CollectorSilent {
		seen := map[domain.CollectorSilent]bool{}
		return slices.DeleteFunc(events[*domain.CollectorSilent](b), func(s *domain.CollectorSilent) bool {
			again := seen[*s]
			seen[*s] = true
			return again
		})
	}
	more := func(what string) {
		t.Helper()
		have := len(samples())
		until(t, "samples after "+what, func() bool { return len(samples()) > have+1 })
	}
	more("the start")
	n.killCollector()
	until(t, "that the silence is over", func() bool { return len(silences()) == 2 })
	more("the collector was killed")
	n.kill()
	n.start()
	more("the reporter was killed")
	n.stop()
	n.start()
	more("the reporter was stopped")
	// A silence is reported, and the reporter is killed during it, twice.
	n.env = []string{"QM_COLLECTOR=none"}
	n.kill()
	n.start()
	until(t, "an open silence", func() bool { s := silences(); return len(s) > 0 && s[len(s)-1].Silent.To == 0 })
	opened := len(silences())
	n.kill()
	n.start()
	until(t, "that the collector ends again", func() bool { return strings.Count(n.said(), "is restarted") > 3 })
	if got := len(silences()); got != opened {
		t.Errorf("the open silence is told %d times", 1+got-opened)
	}
	n.kill()
	n.env = nil
	n.start()
	more("the silence")
	n.stop()
	type told struct {
		domain.Interval
		what string
	}
	var all []told
	open := map[domain.Instant]bool{}
	for _, s := range silences() {
		if s.Silent.To == 0 {
			open[s.Silent.From] = true
			continue
		}
		delete(open, s.Silent.From)
		all = append(all, told{s.Silent, "silence: " + s.Reason})
	}
	if len(open) > 0 {
		t.Errorf("silences without an end: %v", open)
	}
	for _, s := range samples() {
		all = append(all, told{s.Interval, "sample"})
	}
	slices.SortFunc(all, func(x, y told) int { return cmp.Compare(x.From, y.From) })
	all = slices.Compact(all)
	for i := range all[1:] {
		if all[i].To != all[i+1].From {
			t.Errorf("%s until %s, %s from %s", all[i].what, all[i].To, all[i+1].what, all[i+1].From)
		}
	}
}

// A collector that runs but has no value of any GPU counts as silent, and samples claim nothing of
// that time.
func TestNothingMeasured(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: 10 * time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	frame := func(s int, body dcgm.Body) {
		t.Helper()
		f := dcgm.Frame{At: noon + domain.Instant(s)*domain.Second, Boot: time.Duration(s) * time.Second, Body: body}
		if err := r.frame(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	frame(0, &dcgm.Hello{Inventory: dcgm.Inventory{Generation: 1, Devices: testGPUs()}})
	for s := range 8 {
		frame(s, &dcgm.Readings{Generation: 1, Readings: []dcgm.Reading{ok(0, fieldSM, 0.5)}})
	}
	frame(8, &dcgm.Trouble{Code: dcgm.TroubleDriver, Text: "DCGM has no new values of any GPU"})
	for s := 8; s < 40; s++ {
		frame(s, &dcgm.Readings{Generation: 1, Readings: []dcgm.Reading{{Field: fieldSM, Status: dcgm.StatusStale}}})
	}
	r.stalled()
	r.stalled()
	frame(40, &dcgm.Readings{Generation: 1, Readings: []dcgm.Reading{ok(0, fieldSM, 0.5)}})
	var got []domain.Event
	for _, topic := range []domain.Topic{domain.TopicTelemetry, domain.TopicHardware} {
		batch, err := r.queue(topic).Next(10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Entries {
			got = append(got, spooled(t, testCluster, e))
		}
	}
	at := func(s int) domain.Instant { return noon + domain.Instant(s)*domain.Second }
	if len(got) != 3 {
		t.Fatalf("%d events, want a sample, a silence and its end: %+v", len(got), got)
	}
	if s := got[0].(*domain.NodeSampled); s.Interval != (domain.Interval{From: at(0), To: at(7)}) {
		t.Errorf("the sample claims %+v", s.Interval)
	}
	if s := got[1].(*domain.CollectorSilent); s.Silent != (domain.Interval{From: at(7)}) || s.Reason != "DCGM has no new values of any GPU" {
		t.Errorf("%+v", s)
	}
	if s := got[2].(*domain.CollectorSilent); s.Silent != (domain.Interval{From: at(7), To: at(40)}) {
		t.Errorf("%+v", s)
	}
}

// An invalid configuration is refused at once, with the reason and what to do.
func TestRefusedStarts(t *testing.T) {
	b := newBooks(t)
	n := newNode(t, b, "", "")
	n.start()
	until(t, "the first frame", func() bool { return strings.Contains(n.said(), "the collector began") })
	second := func(spoolDir string, exit int) string {
		var out, errs strings.Builder
		text, err := os.ReadFile(n.config)
		if err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(n.dir, "other.yaml")
		if err := os.WriteFile(config, []byte(strings.Replace(string(text), n.spool, spoolDir, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := run([]string{"run", "--config", config}, &out, &errs); code != exit {
			t.Errorf("exit %d", code)
		}
		return errs.String()
	}
	if got := second(n.spool, commandline.ExitNo); !strings.Contains(got, spool.ErrLocked.Error()) {
		t.Errorf("another reporter on one spool: %s", got)
	}
	if got := second("/proc/none", commandline.ExitUnavailable); !strings.Contains(got, "open spool /proc/none") {
		t.Errorf("no directory: %s", got)
	}
	ro := t.TempDir()
	if err := mountReadOnly(ro); err != nil {
		t.Logf("without a read-only disk: %v", err)
		return
	}
	unmount(t, ro)
	if got := second(filepath.Join(ro, "spool"), commandline.ExitUnavailable); !strings.Contains(got, "read-only file system") {
		t.Errorf("read-only: %s", got)
	}
	if got := second(ro, commandline.ExitUnavailable); !strings.Contains(got, "give a directory on one that can be written") {
		t.Errorf("read-only: %s", got)
	}
}

// Samples were lost, and the disk accepts no faults: one event reports the loss, from memory until
// the disk accepts it. Faults use the remaining room.
func TestLossOnADiskThatFails(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	cfg.Attribution.Unmapped = "unmapped"
	r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	devices := testGPUs()
	frame := func(s int, body dcgm.Body) {
		f := dcgm.Frame{At: noon + domain.Instant(s)*domain.Second, Boot: time.Duration(s) * time.Second, Body: body}
		if err := r.frame(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	frame(0, &dcgm.Hello{Inventory: dcgm.Inventory{Generation: 1, Devices: devices}})
	samples, faults := r.queue(domain.TopicTelemetry), r.queue(domain.TopicHardware)
	for s := 0; len(samples.Losses()) == 0; s++ {
		var readings []dcgm.Reading
		for i := range devices {
			for _, field := range []uint32{fieldSM, fieldTensor, fieldDRAM, fieldPower, fieldMemory, fieldTemperature} {
				readings = append(readings, ok(uint32(i), field, float64(1+s%90)/100))
			}
		}
		frame(s, &dcgm.Readings{Generation: 1, Readings: readings})
	}
	folder, gone := filepath.Join(cfg.Spool.Dir, string(domain.TopicHardware)), filepath.Join(cfg.Spool.Dir, "gone")
	if err := os.Rename(folder, gone); err != nil {
		t.Fatal(err)
	}
	second := func() {
		for _, topic := range queueNames {
			_ = r.queue(topic).Sync()
			r.reportLosses(topic)
		}
	}
	for range 10 {
		second()
	}
	if n := faults.Stats().Held; n != 1 {
		t.Fatalf("%d events are held of one loss", n)
	}
	if len(samples.Losses()) == 0 {
		t.Fatal("the loss is forgotten before its event is on disk")
	}
	if err := os.Rename(gone, folder); err != nil {
		t.Fatal(err)
	}
	second()
	if st := faults.Stats(); st.Held != 0 || st.Waiting != 1 || len(samples.Losses()) != 0 {
		t.Errorf("held %d, waiting %d, unsaid %+v; want the one event on disk", st.Held, st.Waiting, samples.Losses())
	}
}

// The spool is small and the gateway is away for long: samples are dropped, faults are not, and the
// drops are reported exactly.
func TestLongOutage(t *testing.T) {
	b := newBooks(t)
	b.set("503")
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	cfg.Attribution.Unmapped = "unmapped"
	r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	devices := testGPUs()
	frame := func(s int, body dcgm.Body) {
		f := dcgm.Frame{At: noon + domain.Instant(s)*domain.Second, Boot: time.Duration(s) * time.Second, Body: body}
		if err := r.frame(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	frame(0, &dcgm.Hello{Inventory: dcgm.Inventory{Generation: 1, Devices: devices}})
	const seconds = 3200
	for s := range seconds {
		var readings []dcgm.Reading
		for i := range devices {
			for _, field := range []uint32{fieldSM, fieldTensor, fieldDRAM, fieldPower, fieldMemory, fieldTemperature, 202, 310, 312, 1009, 1010, 1011, 1012} {
				readings = append(readings, ok(uint32(i), field, float64(1+s%90)/100))
			}
		}
		frame(s, &dcgm.Readings{Generation: 1, Readings: readings})
		if s%100 == 0 {
			frame(s, &dcgm.Events{Generation: 1, Events: []dcgm.Event{{Kind: dcgm.KindXID, Device: 1, UUID: devices[0].UUID, Code: 13, Field: dcgm.FieldXID, Count: 1, At: noon + domain.Instant(s)*domain.Second}}})
		}
		for _, topic := range queueNames {
			r.reportLosses(topic)
		}
	}
	b.set("")
	lost, sampled := map[uint64]bool{}, map[uint64]bool{}
	for _, topic := range queueNames {
		q := r.queue(topic)
		for {
			batch, err := q.Next(1000, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if len(batch.Entries) == 0 {
				break
			}
			for _, e := range batch.Entries {
				body, _, err := unpack(e.Data)
				if err != nil {
					t.Fatal(err)
				}
				recs, err := wire.ReadBatch(slices.Clone(body))
				if err != nil {
					t.Fatal(err)
				}
				b.take(recs)
				if topic == domain.TopicTelemetry {
					sampled[e.Sequence] = true
				}
			}
			if err := q.Done(batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, d := range events[*domain.SpoolDropped](b) {
		if d.Node != "n1" || d.Incarnation != r.spool.Incarnation() || !strings.Contains(d.Stream, "qm.telemetry") || d.Covered.Empty() {
			t.Errorf("%+v", d)
		}
		for n := d.From; n <= d.To; n++ {
			lost[n] = true
		}
	}
	faults := len(events[*domain.GPUFaultObserved](b))
	if faults != seconds/100 {
		t.Errorf("%d faults, want %d", faults, seconds/100)
	}
	if len(lost) == 0 || len(lost)+len(sampled) != seconds-1 {
		t.Errorf("%d samples lost and %d kept, of %d", len(lost), len(sampled), seconds-1)
	}
	t.Logf("%d samples dropped, %d kept", len(lost), len(sampled))
}

// Every answer of a gateway is handled, and none loses an event.
func TestDelivery(t *testing.T) {
	for _, mode := range []string{"cut", "500", "503", "429", "401", "400", "413", "html", "forget", "small"} {
		t.Run(mode, func(t *testing.T) {
			b := newBooks(t)
			b.set(mode)
			n := newNode(t, b, "", "")
			n.start()
			until(t, "the first frame", func() bool { return strings.Contains(n.said(), "the collector began") })
			for i := range 20 {
				n.xid(uint32(i%4), uint32(i))
			}
			until(t, "a delivery", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asked > 2 })
			want := map[string]string{"503": "the log does not take events", "401": "key aaaaaaaaaa of cluster lab was revoked", "400": "something that is not the gateway answered 400", "413": "something that is not the gateway answered 413", "html": "is this address the gateway's?", "cut": "reach the gateway", "500": "500 Internal"}[mode]
			if want != "" {
				until(t, "that it is said", func() bool { return strings.Contains(n.said(), want) })
			}
			if mode != "small" {
				b.set("")
			}
			until(t, "that all arrive", func() bool { return b.has(n.told) })
			n.stop()
			counts, _ := b.fold()
			checkCounts(t, counts, n.told)
			if _, err := os.Stat(filepath.Join(n.spool, refusedName)); err == nil {
				t.Error("events were taken for refused")
			}
		})
	}
}

// An outage is logged once for each topic and cause, although every attempt fails from another
// port, and cut connections fail in different ways.
func TestOutageIsSaidOnce(t *testing.T) {
	b := newBooks(t)
	b.set("reset")
	n := newNode(t, b, "", "")
	n.start()
	n.xid(0, 79)
	until(t, "many attempts", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asked > 30 })
	const line = "events are not delivered"
	for _, topic := range queueNames {
		said := 0
		for l := range strings.Lines(n.said()) {
			// On a busy machine an attempt may also time out, which is another cause.
			if strings.Contains(l, line) && strings.Contains(l, "topic="+string(topic)) && !strings.Contains(l, "exceeded") {
				said++
			}
		}
		if said > 1 {
			t.Errorf("%d lines about %s:\n%s", said, topic, n.said())
		}
	}
	if !strings.Contains(n.said(), line) {
		t.Error("nothing is said")
	}
	// Another cause is logged again, and so is the next outage.
	b.set("503")
	until(t, "the other cause", func() bool { return strings.Contains(n.said(), "503 Service Unavailable") })
	b.set("")
	until(t, "the end", func() bool { return strings.Contains(n.said(), "events are delivered again") })
	before := strings.Count(n.said(), line)
	b.set("reset")
	n.xid(0, 79)
	until(t, "the next outage", func() bool { return strings.Count(n.said(), line) > before })
}

// chosen is a sender that refuses chosen records.
type chosen struct {
	mu     sync.Mutex
	refuse map[int]string
	split  string // refuses batches that contain this record
	got    []string
}

func (c *chosen) close() {}

func (c *chosen) shards() int { return 0 }

func (c *chosen) send(_ context.Context, records [][]byte) ([]refusedRecord, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		if c.split != "" && strings.Contains(string(r), c.split) {
			return nil, &sendError{text: "the body is no batch", split: true, final: true}
		}
	}
	var refused []refusedRecord
	for i, r := range records {
		if why := c.refuse[len(c.got)]; why != "" {
			refused = append(refused, refusedRecord{i, why})
		}
		c.got = append(c.got, string(r))
	}
	return refused, nil
}

// The node's cluster name was wrong and is corrected. Events that were observed under the old name
// are kept in a file and do not block others.
func TestClusterCorrected(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	for life, cluster := range []string{"lab", testCluster + "2"} {
		cfg := &Config{Cluster: cluster, Node: "n1", Interval: time.Second, Listen: "off"}
		cfg.Spool = SpoolConfig{Dir: dir, QuotaMiB: 1}
		cfg.Attribution.Unmapped = "unmapped"
		r, err := openReporter(cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.append(noon, &domain.GPUFaultObserved{Node: "n1", GPU: gpu(uint32(life)).UUID, Kind: domain.FaultXID, Code: 79, Count: 1}, nil); err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			if err := r.spool.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if f := checkWaiting(cfg); len(f) != 1 || f[0].Result != resultWarning || !strings.Contains(f[0].Found, "1 KiB wait that were observed as node-reporter/lab/n1, but this node now belongs to cluster lab2") {
			t.Errorf("%+v", f)
		}
		to := &chosen{}
		c := &courier{queue: r.queue(domain.TopicHardware), topic: domain.TopicHardware, cluster: cluster, sender: to, refused: newRefusedFile(dir, log), log: log, pace: usualPace}
		// While the file cannot be written, the events stay in the spool.
		if err := os.Mkdir(filepath.Join(dir, refusedName), 0o700); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.run(ctx) })
		until(t, "the failure", func() bool { return c.failing.Load() != nil })
		if n := c.queue.Stats().Waiting; n != 2 {
			t.Errorf("%d events wait", n)
		}
		if err := os.Remove(filepath.Join(dir, refusedName)); err != nil {
			t.Fatal(err)
		}
		until(t, "the delivery", func() bool { return c.sent.Load() == 1 })
		stop()
		wg.Wait()
		if c.refused.count.Load() != 1 || c.failing.Load() != nil || len(to.got) != 1 || len(c.queue.Losses()) > 0 {
			t.Errorf("%d refused, %d sent, failing %v", c.refused.count.Load(), len(to.got), c.failing.Load())
		}
		text, err := os.ReadFile(filepath.Join(dir, refusedName))
		if f := checkWaiting(cfg); len(f) != 1 || !strings.Contains(f[0].Found, refusedName+" holds 1 events") {
			t.Errorf("%+v", f)
		}
		if err != nil || !strings.Contains(string(text), "it was observed as node-reporter/lab/n1, but this node now belongs to cluster lab2") {
			t.Errorf("%v %s", err, text)
		}
		if err := r.spool.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A node whose cluster was corrected registers once in the right one.
func TestRegisteredInEachCluster(t *testing.T) {
	dir := t.TempDir()
	for life, cluster := range []string{"lab", "lab", "lab2", "lab2", "lab"} {
		cfg := &Config{Cluster: cluster, Node: "n1", Interval: time.Second, Listen: "off"}
		cfg.Spool = SpoolConfig{Dir: dir, QuotaMiB: 1}
		cfg.Register = RegisterConfig{Enabled: true, Provider: "own", BillingModel: "owned"}
		r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		before := r.queue(domain.TopicFleet).Stats().Waiting
		if err := r.frame(t.Context(), dcgm.Frame{At: noon, Body: &dcgm.Hello{Inventory: dcgm.Inventory{Generation: 1, Devices: []dcgm.Device{gpu(0)}}}}); err != nil {
			t.Fatal(err)
		}
		if n, want := r.queue(domain.TopicFleet).Stats().Waiting-before, []uint64{1, 0, 1, 0, 1}[life]; n != want {
			t.Errorf("life %d, in %s: registered %d times, want %d", life, cluster, n, want)
		}
		if err := r.spool.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The status listener bounds its open connections; the next ones wait.
func TestStatusConnections(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: time.Second, Listen: free.Addr().String()}
	_ = free.Close()
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	stop, err := r.serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	idle := make([]net.Conn, maxStatusConnections)
	for i := range idle {
		if idle[i], err = net.Dial("tcp", cfg.Listen); err != nil {
			t.Fatal(err)
		}
		defer idle[i].Close()
	}
	live := func(within time.Duration) error {
		res, err := (&http.Client{Timeout: within}).Get("http://" + cfg.Listen + "/livez")
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	if live(100*time.Millisecond) == nil {
		t.Error("one more was answered")
	}
	_ = idle[0].Close()
	if err := live(10 * time.Second); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

// A reporter with problems must not be restarted for them: it would lose the events in memory.
func TestHealthAsksForNoRestart(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	r.blocked.Store(true)
	w := httptest.NewRecorder()
	r.health(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "the spool takes no more faults") {
		t.Errorf("answer %d: %s", w.Code, w.Body)
	}
}

// If the gateway refuses everything, including reports of losses, each loss is reported once.
func TestAllRefused(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	log := slog.New(slog.DiscardHandler)
	r, err := openReporter(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	if err := r.append(noon, &domain.GPUFaultObserved{Node: "n1", GPU: gpu(0).UUID, Kind: domain.FaultXID, Code: 79, Count: 1}, nil); err != nil {
		t.Fatal(err)
	}
	q := r.queue(domain.TopicHardware)
	to := &chosen{refuse: map[int]string{0: "no", 1: "no", 2: "no", 3: "no"}}
	c := &courier{queue: q, topic: domain.TopicHardware, cluster: testCluster, sender: to, refused: newRefusedFile(cfg.Spool.Dir, log), log: log, pace: usualPace}
	for range 4 {
		b, err := q.Next(mostRecords, mostBytes)
		if err != nil || !c.deliver(t.Context(), &b) {
			t.Fatal(err)
		}
		if err := q.Done(b); err != nil {
			t.Fatal(err)
		}
		r.reportLosses(domain.TopicHardware)
	}
	if len(to.got) != 2 || len(q.Losses()) > 0 {
		t.Errorf("%d events were sent, want the fault and the report of its loss; not said: %+v", len(to.got), q.Losses())
	}
	// The record in a line of the file is in the form that the gateway accepts.
	text, err := os.ReadFile(filepath.Join(cfg.Spool.Dir, refusedName))
	if err != nil {
		t.Fatal(err)
	}
	var body []byte
	for line := range strings.Lines(string(text)) {
		var l struct{ Record []byte }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		body = append(body, l.Record...)
	}
	if recs, err := wire.ReadBatch(body); err != nil || len(recs) != 2 {
		t.Errorf("%d records: %v", len(recs), err)
	}
}

// The DaemonSet's probes use nothing that waits for a disk, and do not restart a reporter with
// problems.
func TestLivenessProbe(t *testing.T) {
	text, err := os.ReadFile("../../deploy/node/daemonset.yaml")
	if err != nil || !strings.Contains(string(text), "livenessProbe:\n            httpGet: {path: /livez, port: metrics}") {
		t.Errorf("%v: another liveness probe than /livez:\n%s", err, text)
	}
	w := httptest.NewRecorder()
	live(w, nil)
	if w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}

// Refused events are kept in a file, and one bad event does not block others.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := spool.Open(spool.Config{Dir: dir, Source: sourceOf(testCluster) + "n1", Incarnation: 1, Quota: 1 << 20, Queues: []spool.Rule{{Name: "q", Keep: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 20 {
		if err := s.Queue("q").Append(domain.Interval{}, func(spool.Place) ([]byte, error) {
			return pack(fmt.Appendf(nil, "event %d.", i), []byte("memo")), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	to := &chosen{split: "event 7.", refuse: map[int]string{3: "it is of another cluster"}}
	c := &courier{queue: s.Queue("q"), topic: "q", cluster: testCluster, sender: to, refused: newRefusedFile(dir, log), log: log, pace: usualPace}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		until(t, "all to be delivered", func() bool { return s.Queue("q").Stats().Waiting == 0 })
		cancel()
	}()
	c.run(ctx)
	want := []spool.Loss{{Incarnation: 1, From: 4, To: 4, Reason: spool.Refused}, {Incarnation: 1, From: 8, To: 8, Reason: spool.Refused}}
	if got := s.Queue("q").Losses(); !slices.Equal(got, want) {
		t.Errorf("losses %+v, want those of the two that are refused: nothing else reports that they never come", got)
	}
	if len(to.got) != 19 || c.sent.Load() != 18 || c.refused.count.Load() != 2 {
		t.Errorf("%d were sent, %d accepted, %d refused", len(to.got), c.sent.Load(), c.refused.count.Load())
	}
	text, err := os.ReadFile(filepath.Join(dir, refusedName))
	if err != nil || strings.Count(string(text), "\n") != 2 || !strings.Contains(string(text), "it is of another cluster") ||
		!strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte("event 7."))) {
		t.Errorf("%s: %v", text, err)
	}
}

func TestReadAccepted(t *testing.T) {
	for text, want := range map[string]bool{
		`{"accepted":3}`:                                      true,
		`{"accepted":3,"shards":1024}`:                        true,
		`{"accepted":3,"shards":1025}`:                        false,
		`{"accepted":3,"shards":-1}`:                          false,
		`{"accepted":2,"refused":[{"index":1,"error":"no"}]}`: true,
		`{"accepted":2}`:                                      false,
		`{}`:                                                  false,
		`[]`:                                                  false,
		``:                                                    false,
		`{"accepted":2,"refused":[{"index":3,"error":"no"}]}`:                             false,
		`{"accepted":1,"refused":[{"index":1,"error":"no"},{"index":1,"error":"again"}]}`: false,
		`{"accepted":-1,"refused":[{},{},{},{}]}`:                                         false,
	} {
		if _, _, err := readAccepted([]byte(text), 3); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	open := func() *reporter {
		cfg := &Config{Cluster: "c", Node: "n", Interval: time.Second}
		cfg.Spool = SpoolConfig{Dir: dir, QuotaMiB: 1}
		r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	count := func() int64 { return r.faults.Load() }
	id := gpu(0).UUID
	tell := func(events ...dcgm.Event) int64 {
		t.Helper()
		before := count()
		for i := range events {
			events[i].UUID = id
			events[i].Count = max(events[i].Count, 1)
		}
		f := dcgm.Frame{At: noon, Boot: time.Hour, Body: &dcgm.Events{Events: events}}
		if err := r.frame(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		return count() - before
	}
	again := func() { // like kill -9: only the lock is released
		t.Helper()
		if err := r.spool.Close(); err != nil {
			t.Fatal(err)
		}
		r = open()
	}
	xid := dcgm.Event{Kind: dcgm.KindXID, Code: 79, Field: dcgm.FieldXID, At: noon}
	later := xid
	later.At++
	link := dcgm.Event{Kind: dcgm.KindNVLink, Code: 3, At: noon}
	found, over := link, link
	found.Found, over.Over = true, true
	ecc := dcgm.Event{Kind: dcgm.KindECC, Field: dcgm.FieldECCUncorrectable, Total: 5, Count: 5, At: noon, Found: true}
	more := ecc
	more.Total, more.Count = 7, 7
	reset := ecc
	reset.Total, reset.Count = 1, 1
	life := func(total uint64, found bool) dcgm.Event {
		return dcgm.Event{Kind: dcgm.KindPageRetirement, Field: dcgm.FieldRetiredUncorrectable, Total: total, Count: 1, At: noon, Found: found}
	}
	for i, step := range []struct {
		event dcgm.Event
		want  int64
	}{
		{life(0, true), 0}, {life(1, false), 1}, {life(1, true), 0}, {life(3, true), 1}, // it grew while nothing ran
		{life(2, true), 0}, {life(3, true), 1}, // it was cleared, and is 2 now
		{xid, 1}, {xid, 0}, {later, 1},
		{link, 1}, {found, 0}, {over, 0}, {found, 1}, {link, 1},
		{ecc, 1}, {ecc, 0}, {more, 1}, {reset, 1},
	} {
		if got := tell(step.event); got != step.want {
			t.Errorf("step %d: %+v is %d faults, want %d", i, step.event, got, step.want)
		}
		again()
		if step.event.Kind == dcgm.KindXID || step.event.Found {
			if got := tell(step.event); got != 0 && !step.event.Over {
				t.Errorf("step %d: after a restart it is news again", i)
			}
		}
	}
	// If a counter is found at 7 and 5 were reported, 2 are new.
	var deltas []uint64
	q := r.queue(domain.TopicHardware)
	if err := q.Stored(func(e spool.Entry) bool {
		if f, ok := spooled(t, "c", e).(*domain.GPUFaultObserved); ok && f.Kind == domain.FaultECC {
			deltas = append(deltas, f.Count)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(deltas) != "[5 2 1]" {
		t.Errorf("counts %v, want 5, 2 more, and 1 after the counter began anew", deltas)
	}
	if err := r.spool.Close(); err != nil {
		t.Fatal(err)
	}
}

// If the memory cannot be written, that is logged once, and no partial file stays.
func TestNotRemembered(t *testing.T) {
	usual := syncFile
	defer func() { syncFile = usual }()
	var logged strings.Builder
	cfg := &Config{Cluster: "c", Node: "n", Interval: time.Second}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	r, err := openReporter(cfg, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	syncFile = func(*os.File) error { return syscall.ENOSPC }
	for range 3 {
		r.remember()
	}
	if n := strings.Count(logged.String(), "memory of reported faults cannot be written"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, logged.String())
	}
	if _, err := os.Stat(filepath.Join(cfg.Spool.Dir, memoryName+".new")); err == nil {
		t.Error("a part of the file is left")
	}
	syncFile = usual
	r.remember()
	if !strings.Contains(logged.String(), "remembered again") {
		t.Errorf("%s", logged.String())
	}
}

// Files beside the spool are durable: the bytes are synced before the name.
func TestFilesLast(t *testing.T) {
	usual := syncFile
	defer func() { syncFile = usual }()
	var synced []string
	syncFile = func(f *os.File) error {
		synced = append(synced, filepath.Base(f.Name()))
		return usual(f)
	}
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(dir, memoryName), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	f := newRefusedFile(dir, slog.New(slog.DiscardHandler))
	for range 2 {
		f.add(domain.TopicHardware, []byte("record"), "why")
	}
	if want := []string{"memory.json.new", "spool", "refused.jsonl", "spool", "refused.jsonl"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
}

func TestConfig(t *testing.T) {
	example, err := os.ReadFile("node-reporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	deployed, err := os.ReadFile("../../deploy/node/node-reporter.yaml")
	if err != nil || string(deployed) != string(example) {
		t.Errorf("deploy/node/node-reporter.yaml is not the example of this program: %v", err)
	}
	c, err := readConfig("node-reporter.yaml", env(map[string]string{"NODE_REPORTER_NODE": "n7", "NODE_REPORTER_SPOOL_QUOTA_MIB": "9"}))
	if err != nil {
		t.Fatal(err)
	}
	if c.Node != "n7" || c.Spool.QuotaMiB != 9 || c.Gateway.KeyFile != "/etc/node-reporter/key" || c.Attribution.Rules[1].Labels["account"] != "*" || c.source() != "node-reporter/lab/n7" {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{
		"cluster: a b\nnode: n\ngateway: {url: 'https://h:1', key_file: k}":                                                     "1:10: cluster: \"a b\" is not a name",
		"cluster: c\nnode: n\ngatway: {url: x}":                                                                                 "3:1: gatway: unknown field; did you mean gateway?",
		"cluster: c\nnode: n":                                                                                                   "gateway.url: is needed",
		"cluster: c\nnode: n\ngateway: {url: 'http://far:1', key_file: k}":                                                      "not encrypted",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1'}":                                                                    "gateway.key_file: is needed",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\nkafka: {brokers: ['b:1']}":                            "both say where events go",
		"cluster: c\nnode: n\nkafka: {brokers: ['b:1']}":                                                                        "has no authentication",
		"cluster: c\nnode: n\nkafka: {brokers: ['b:1'], mechanism: PLAIN, user: u, password_file: p}":                           `"PLAIN" is unknown`,
		"cluster: c\nnode: n\nkafka: {brokers: ['b:1'], mechanism: SCRAM-SHA-512, user: u, password_file: p, shards: 1025}":     "shards: 1025 is not within 1 and 1024",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\ninterval: 1500ms":                                     "not a whole number of seconds",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\nattribution: {rules: [{namespace: a}]}":               "rules[0].deployment: is needed",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\nattribution: {rules: [{namespace: a, workspace: w}]}": "rules[0].workspace: is for jobs (namespace: slurm); signed mapping rules say who pays for pods",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\nregister: {billing_model: rent}":                      "register.billing_model",
		"cluster: c\nnode: n\ngateway: {url: 'https://h:1', key_file: k}\nlisten: here":                                         "listen: is not host:port",
	} {
		path := filepath.Join(t.TempDir(), "n.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readConfig(path, env(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n  %v, want %q", text, err, want)
		}
	}
	if got := c.file.Unknown([]string{"NODE_REPORTER_GATEWAY_ULR=x", "NODE_REPORTER_NODE=y", "HOME=z"}); len(got) != 1 {
		t.Errorf("unknown variables %v", got)
	}
}

// The configuration in the manifest is valid.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../deploy/node/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "  node-reporter.yaml: |\n")
	if !ok {
		t.Fatal("it has no node-reporter.yaml")
	}
	var config strings.Builder
	for line := range strings.Lines(rest) {
		body, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		config.WriteString(body)
	}
	path := filepath.Join(t.TempDir(), "node-reporter.yaml")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(path, env(map[string]string{"NODE_REPORTER_NODE": "n1"}))
	if err != nil || !c.Attribution.Kubernetes.Enabled || !c.Attribution.Kubernetes.Labels || len(c.Attribution.Rules) != 1 || c.Listen != "0.0.0.0:9475" {
		t.Errorf("%+v: %v", c, err)
	}
}

// Check reports what is missing and what to do, one finding a line.
func TestCheck(t *testing.T) {
	b := newBooks(t)
	n := newNode(t, b, "", "attribution: {kubernetes: {enabled: true, socket: /nowhere/kubelet.sock}, slurm: {job_dir: /nowhere/jobs}, static: nowhere}")
	n.write("key", "qmk_mistyped", 0o600)
	n.write("collector", "#!/bin/sh\necho '{\"ok\":false,\"text\":\"libdcgm.so.4 is not there: install datacenter-gpu-manager-4-core\",\"exit\":10}'; exit 10\n", 0o700)
	report := func() (found map[string]finding, code int) {
		t.Helper()
		var out, errs strings.Builder
		code = run([]string{"check", "--config", n.config, "-o", "json"}, &out, &errs)
		var ans struct{ Checks []finding }
		if err := json.Unmarshal([]byte(out.String()), &ans); err != nil {
			t.Fatalf("%s: %v", out.String(), err)
		}
		found = map[string]finding{}
		for _, f := range ans.Checks {
			found[f.Check] = f
			if f.Result != resultOK && f.Result != resultSkipped && f.Next == "" {
				t.Errorf("%+v does not say what to do", f)
			}
		}
		return found, code
	}
	found, code := report()
	for check, want := range map[string]string{
		"collector": "libdcgm.so.4 is not there", "kubelet": "mount the kubelet's directory", "slurm": "/nowhere/jobs",
		"static file": "read the static file", "secret gateway.key_file": "not a cluster key",
	} {
		if f := found[check]; f.Result != resultFailed || !strings.Contains(f.Found, want) {
			t.Errorf("%s: %+v, want %q", check, f, want)
		}
	}
	if code != 1 || found["configuration"].Result != resultOK || found["spool"].Result != resultOK {
		t.Errorf("exit %d, %+v", code, found)
	}
	// A key that other users can read, and one that the gateway refuses.
	n.write("key", "x", 0o600)
	if err := os.Chmod(filepath.Join(n.dir, "key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, _ := report(); os.Getuid() != 0 && !strings.Contains(found["secret gateway.key_file"].Found, "open to users other") {
		t.Errorf("%+v", found["secret gateway.key_file"])
	}
	m := newNode(t, b, "", "")
	b.set("401")
	var out, errs strings.Builder
	run([]string{"check", "--config", m.config}, &out, &errs)
	if !strings.Contains(out.String(), "FAILED   gateway: the gateway answered 401 Unauthorized: key aaaaaaaaaa of cluster lab was revoked") {
		t.Errorf("%s", out.String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	text, err := os.ReadFile(m.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.config, []byte(strings.Replace(string(text), b.address, l.Addr().String(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	run([]string{"check", "--config", m.config}, &out, &errs)
	if !strings.Contains(out.String(), "connection refused") || !strings.Contains(out.String(), "does \"quartermaster serve\" run") {
		t.Errorf("%s", out.String())
	}
}

// spooled returns the event of an entry of the spool, as in the log of a cluster.
func spooled(t *testing.T, cluster string, e spool.Entry) domain.Event {
	t.Helper()
	body, _, err := unpack(e.Data)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := wire.ReadBatch(slices.Clone(body))
	if err != nil {
		t.Fatal(err)
	}
	recs[0].Key = []byte(cluster)
	recs[0].Partition = domain.PartitionOf(recs[0].Key, recs[0].Topic.Partitions())
	var env domain.Envelope
	if err := new(wire.Decoder).Decode(&recs[0], &env); err != nil {
		t.Fatal(err)
	}
	return env.Event
}
