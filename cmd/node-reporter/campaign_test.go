//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/dcgm"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
)

// This test binary is also the reporter, and a collector without a GPU.
func TestMain(m *testing.M) {
	switch os.Getenv("QM_NODE") {
	case "reporter":
		a := &app{out: os.Stdout, err: os.Stderr, pace: pace{10 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}}
		os.Exit(a.run(os.Args[1:]))
	case "collector":
		os.Exit(collect(os.Args[1:]))
	}
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// testGPUs are the devices of the test collector.
func testGPUs() (gpus []dcgm.Device) {
	for i := range uint32(4) {
		id := domain.DeriveGPUID("test", "gpu", int(i))
		gpus = append(gpus, dcgm.Device{UUID: id, GPU: i, Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559})
	}
	return gpus
}

// collect is a collector attached to a fake nv-hostengine that keeps XIDs. They are the lines "at
// gpu code" of a file, to which the test appends. The environment selects how it misbehaves.
func collect(args []string) int {
	var since int64
	for i, a := range args {
		if a == "--since" {
			_, _ = fmt.Sscan(args[i+1], &since)
		}
	}
	w := dcgm.NewWriter(os.Stdout)
	began := time.Now()
	write := func(b dcgm.Body) {
		at := time.Now()
		f := dcgm.Frame{At: domain.InstantOf(at), Boot: time.Hour + at.Sub(began), Body: b}
		if w.Write(f) != nil {
			os.Exit(18)
		}
	}
	gpus := testGPUs()
	switch os.Getenv("QM_COLLECTOR") {
	case "none":
		write(&dcgm.Trouble{Code: dcgm.TroubleNoLibrary, Text: "libdcgm.so.4 is not there: install datacenter-gpu-manager-4-core", Fatal: true})
		return 10
	case "127":
		fmt.Fprintln(os.Stderr, "undefined symbol: dcgmHealthSet_v2")
		return 127
	case "garbage":
		fmt.Println(strings.Repeat("[INFO] this is no frame, but somebody printed it ", 10))
		<-time.After(time.Minute)
	case "hang":
		write(&dcgm.Heartbeat{})
		for {
			<-time.After(50 * time.Millisecond)
			write(&dcgm.Heartbeat{Call: "dcgmUpdateAllFields", Waiting: time.Since(began) + time.Minute})
		}
	case "mute":
		write(&dcgm.Heartbeat{})
		<-time.After(time.Minute)
	}
	write(&dcgm.Hello{Version: dcgm.Version, Driver: "580.0", Library: "4.5.0", Inventory: dcgm.Inventory{Generation: 1, Devices: gpus}})
	for tick := 0; ; tick++ {
		text, err := os.ReadFile(os.Getenv("QM_XIDS"))
		if err != nil {
			return 1
		}
		var events []dcgm.Event
		newest := since
		lines := strings.SplitAfter(string(text), "\n")
		for _, line := range lines[:len(lines)-1] {
			var at int64
			var gpu, code uint32
			if n, _ := fmt.Sscan(line, &at, &gpu, &code); n != 3 || at < since {
				continue
			}
			events = append(events, dcgm.Event{Kind: dcgm.KindXID, Device: gpu + 1, UUID: gpus[gpu].UUID, Code: code, Field: dcgm.FieldXID, Count: 1, At: domain.Instant(at) * 1000})
			newest = max(newest, at+1)
		}
		if len(events) > 0 || tick == 0 {
			since = newest
			write(&dcgm.Events{Generation: 1, Events: events, Cursor: since})
		}
		if tick%20 == 0 {
			r := &dcgm.Readings{Generation: 1}
			for i := range gpus {
				r.Readings = append(r.Readings,
					dcgm.Reading{Device: uint32(i), Field: fieldSM, Status: dcgm.StatusOK, Value: 0.5},
					dcgm.Reading{Device: uint32(i), Field: fieldPower, Status: dcgm.StatusOK, Value: 400})
			}
			write(r)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// books is a gateway with a log behind it. Tests select how it misbehaves.
type books struct {
	t       testing.TB
	server  *http.Server
	address string

	mu      sync.Mutex
	mode    string
	shards  int // number of shards in the answers
	records map[domain.TopicPartition][]domain.Record
	arrived map[string]time.Time // arrival time of each fault, by its key
	decoder wire.Decoder
	asked   int
}

const testCluster = "lab"

func newBooks(t testing.TB) *books {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &books{t: t, address: l.Addr().String(), records: map[domain.TopicPartition][]domain.Record{}, arrived: map[string]time.Time{}}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: time.Second}
	go func() { _ = b.server.Serve(l) }()
	t.Cleanup(func() { b.server.Close() })
	return b
}

func (b *books) set(mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mode = mode
}

func (b *books) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	mode := b.mode
	b.asked++
	b.mu.Unlock()
	cut := func() {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
	}
	say := func(status int, text string) {
		w.Header().Set("Content-Type", wire.AnswerContentType)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
	}
	switch mode {
	case "cut":
		cut()
		return
	case "reset": // like a crash
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		return
	case "500":
		say(500, "broken")
		return
	case "503":
		say(503, "the log does not take events at the moment; send again later")
		return
	case "429":
		w.Header().Set("Retry-After", "0")
		say(429, "too much")
		return
	case "401":
		say(401, "key aaaaaaaaaa of cluster lab was revoked")
		return
	case "400", "413": // from a proxy, which does not know events
		status, _ := strconv.Atoi(mode)
		http.Error(w, `{"error": "The plain HTTP request was sent to HTTPS port"}`, status)
		return
	case "html":
		_, _ = w.Write([]byte("<html>welcome to the hotel</html>"))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		say(400, err.Error())
		return
	}
	if r.Header.Get("Content-Encoding") == "zstd" {
		d, _ := zstd.NewReader(nil)
		if body, err = d.DecodeAll(body, nil); err != nil {
			say(400, err.Error())
			return
		}
		d.Close()
	}
	if mode == "small" && len(body) > 2000 {
		say(413, "too large")
		return
	}
	var recs []domain.Record
	if len(body) > 0 {
		if recs, err = wire.ReadBatch(body); err != nil {
			say(400, err.Error())
			return
		}
	}
	n, shards := b.take(recs)
	if mode == "forget" {
		cut() // the log has them, but the answer is lost
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"accepted": n, "shards": shards})
}

// reshard sets the number of shards of the cluster.
func (b *books) reshard(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shards = n
}

// take appends records to the log. It returns how many, and the present number of shards.
func (b *books) take(recs []domain.Record) (n, shards int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rec := range recs {
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		rec.Time = domain.InstantOf(time.Now())
		tp := domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
		rec.Offset = int64(len(b.records[tp]))
		b.records[tp] = append(b.records[tp], rec)
		var env domain.Envelope
		if err := b.decoder.Decode(&rec, &env); err != nil {
			b.t.Errorf("a record does not decode: %v", err)
			continue
		}
		if f, ok := env.Event.(*domain.GPUFaultObserved); ok {
			if k := faultKey(f, env.Time); b.arrived[k].IsZero() {
				b.arrived[k] = time.Now()
			}
		}
	}
	return len(recs), b.shards
}

func faultKey(f *domain.GPUFaultObserved, at domain.Instant) string {
	return fmt.Sprintf("%s %d %d", f.GPU, f.Code, at/1000)
}

// deviceAndCode is a fault's key without its time: repeats count as one version.
func deviceAndCode(key string) string { return key[:strings.LastIndex(key, " ")] }

// checkCounts compares the counted faults with what the driver reported. A row that has the rest of a
// kind, without a code, keeps no more apart: then the sums are compared.
func checkCounts(t *testing.T, counts map[string]int, told []string) {
	t.Helper()
	want := map[string]int{}
	for _, k := range told {
		want[deviceAndCode(k)]++
	}
	sum, rest := 0, false
	for k, n := range counts {
		sum += n
		rest = rest || strings.HasSuffix(k, " 0")
	}
	if rest && sum == len(told) {
		return
	}
	if !maps.Equal(counts, want) {
		t.Errorf("faults count %v, the driver reported %v", counts, want)
	}
}

func (b *books) has(keys []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !slices.ContainsFunc(keys, func(k string) bool { return b.arrived[k].IsZero() })
}

// events returns the events of a type.
func events[E domain.Event](b *books) (out []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, recs := range b.records {
		for i := range recs {
			var env domain.Envelope
			if err := new(wire.Decoder).Decode(&recs[i], &env); err != nil {
				b.t.Error(err)
			}
			if e, ok := env.Event.(E); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// Read and Follow make books the log of a runner.
func (b *books) ReadAfter(_ context.Context, tp domain.TopicPartition, _ domain.Anchor, from, to int64, yield func([]domain.Record) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return yield(b.records[tp][from:to])
}

func (b *books) FollowAfter(context.Context, domain.TopicPartition, domain.Anchor, int64, func([]domain.Record) error) error {
	return nil
}

// fold returns the counts of faults by device and code, and checks the rest.
func (b *books) fold() (counts map[string]int, repeats int64) {
	b.t.Helper()
	store := projections.NewMemory(domain.TopicSpecs())
	r := projections.Runner{Log: b, Store: store, Topics: domain.TopicSpecs(), NewDecoder: func() projections.Decoder { return new(wire.Decoder) }}
	to := domain.Position{}
	b.mu.Lock()
	for tp, recs := range b.records {
		to[tp] = int64(len(recs))
	}
	b.mu.Unlock()
	if err := r.CatchUp(b.t.Context(), to); err != nil {
		b.t.Fatal(err)
	}
	counts = map[string]int{}
	err := store.View(b.t.Context(), func(v projections.View) error {
		if err := v.Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
			for _, version := range row.(*projections.History).Versions {
				if f, ok := version.Event.(*domain.GPUFaultObserved); ok {
					counts[deviceAndCode(faultKey(f, 0))] += int(version.Events())
				}
			}
			return nil
		}); err != nil {
			return err
		}
		if err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
			b.t.Errorf("quarantined: %+v", row)
			return nil
		}); err != nil {
			return err
		}
		return v.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
			if s := row.(*projections.Stream); s.Missing() > 0 && strings.HasPrefix(k.Scope, string(domain.TopicHardware)) {
				b.t.Errorf("%s: %d events of incarnation %d are missing: %v", k.Scope, s.Missing(), s.Incarnation, s.Gaps)
			}
			return nil
		})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return counts, r.Progress().Repeats
}

// node is a reporter and its collector, as processes.
type node struct {
	t      testing.TB
	dir    string
	spool  string
	xids   string
	config string
	env    []string
	cmd    *exec.Cmd
	log    *os.File
	told   []string // faults that the driver reported
	last   int64
}

func newNode(t testing.TB, b *books, spoolDir string, more string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, dir: dir, spool: spoolDir, xids: filepath.Join(dir, "xids"), config: filepath.Join(dir, "node.yaml")}
	if n.spool == "" {
		n.spool = filepath.Join(dir, "spool")
	}
	key, err := domain.NewClusterKey(rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	n.write("key", key.String(), 0o600)
	n.write("xids", "", 0o600)
	// The collector is this test binary in another mode.
	n.write("collector", fmt.Sprintf("#!/bin/sh\nQM_NODE=collector exec %s \"$@\"\n", os.Args[0]), 0o700)
	n.write("node.yaml", fmt.Sprintf(`
cluster: %s
node: n1
interval: 1s
gateway: {url: "http://%s", key_file: key, timeout: 2s}
spool: {dir: %s, quota_mib: 8, reserve_kib: 64}
collector: {command: %s, silent: 5s}
listen: "off"
%s`, testCluster, b.address, n.spool, filepath.Join(dir, "collector"), more), 0o600)
	if n.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(); n.log.Close() })
	return n
}

func (n *node) write(name, text string, mode os.FileMode) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), mode); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) start() {
	n.t.Helper()
	n.cmd = exec.Command(os.Args[0], "run", "--config", n.config)
	n.cmd.Env = append(append(os.Environ(), "QM_NODE=reporter", "QM_XIDS="+n.xids), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) running() bool { return n.cmd != nil }

// kill kills the reporter.
func (n *node) kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// stop asks the reporter to end.
func (n *node) stop() {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		_ = n.cmd.Wait()
		n.cmd = nil
	}
}

// killCollector kills the collector.
func (n *node) killCollector() {
	if n.cmd == nil {
		return
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", n.cmd.Process.Pid, n.cmd.Process.Pid))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.cmd.Process.Pid))
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		text = append(append(text, ' '), more...)
	}
	if err != nil && len(tasks) == 0 {
		return
	}
	for _, pid := range strings.Fields(string(text)) {
		var p int
		if _, err := fmt.Sscan(pid, &p); err == nil {
			_ = syscall.Kill(p, syscall.SIGKILL)
		}
	}
}

// xid makes the driver report a fault.
func (n *node) xid(gpu, code uint32) string {
	n.t.Helper()
	at := max(time.Now().UnixMicro(), n.last+1)
	n.last = at
	f, err := os.OpenFile(n.xids, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%d %d %d\n", at, gpu, code); err != nil {
		n.t.Fatal(err)
	}
	k := faultKey(&domain.GPUFaultObserved{GPU: testGPUs()[gpu].UUID, Code: code}, domain.Instant(at)*1000)
	n.told = append(n.told, k)
	return k
}

// until waits for a condition.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
		runtimeYield()
	}
}

func runtimeYield() { <-time.After(2 * time.Millisecond) }

func (n *node) said() string {
	text, err := os.ReadFile(n.log.Name())
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// tear appends a partial frame to the newest segment of a queue, as a crash in the middle of a
// write does. It was never accepted.
func (n *node) tear(rng *rand.Rand) {
	names, err := filepath.Glob(filepath.Join(n.spool, string(queueNames[rng.IntN(len(queueNames))]), "*.seg"))
	if err != nil || len(names) == 0 {
		return
	}
	name := slices.Max(names)
	b, err := os.ReadFile(name)
	if err != nil || len(b) < 80 {
		return
	}
	torn := b[len(b)-1-rng.IntN(min(len(b)-1, 300)):]
	torn = torn[:rng.IntN(len(torn))]
	if rng.IntN(3) == 0 {
		torn = append(slices.Clone(torn), make([]byte, rng.IntN(200))...)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(torn); err != nil && !strings.Contains(err.Error(), "no space") {
		n.t.Fatal(err)
	}
}

// All failures occur at random, again and again, while the driver reports faults. In the end the
// log counts each of them exactly once.
func TestCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	trials := long.Count(30, 600)
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	b := newBooks(t)
	small, full := smallDisk(t)
	n := newNode(t, b, small, "")
	n.start()
	done := map[string]int{}
	modes := []string{"", "", "", "cut", "500", "503", "429", "forget", "forget", "html", "401", "small"}
	until(t, "the first frame", func() bool { return strings.Contains(n.said(), "the collector began") })
	for range trials {
		for range 1 + rng.IntN(3) {
			n.xid(uint32(rng.IntN(4)), []uint32{13, 31, 48, 63, 79, 94, 119, 999}[rng.IntN(8)])
			if rng.IntN(3) == 0 {
				<-time.After(time.Duration(rng.IntN(30)) * time.Millisecond)
			}
		}
		b.set(modes[rng.IntN(len(modes))])
		<-time.After(time.Duration(rng.IntN(60)) * time.Millisecond)
		if !n.running() {
			n.start()
			continue
		}
		switch what := rng.IntN(10); what {
		case 0, 1, 2:
			done["reporter killed"]++
			n.kill()
			if rng.IntN(2) == 0 {
				done["tail torn"]++
				n.tear(rng)
			}
			if rng.IntN(3) > 0 {
				n.start()
			}
		case 3, 4:
			done["collector killed"]++
			n.killCollector()
		case 5:
			done["stopped"]++
			n.stop()
			n.start()
		case 6, 7:
			done["disk full"]++
			full(rng.IntN(3) > 0)
		case 8:
			done["another number of shards"]++
			b.reshard([]int{1, 4, 8}[rng.IntN(3)])
		case 9:
			until(t, "something to be delivered", func() bool { b.set(""); full(false); return b.has(n.told[:len(n.told)/2]) })
		}
	}
	b.set("")
	full(false)
	if !n.running() {
		n.start()
	}
	until(t, "that every fault arrives", func() bool { return b.has(n.told) })
	until(t, "that a sample arrives", func() bool { return len(events[*domain.NodeSampled](b)) > 0 })
	// Events may be in the log twice by now, but none may be there that was not reported.
	n.stop()
	counts, repeats := b.fold()
	checkCounts(t, counts, n.told)
	for _, o := range overlaps(b) {
		t.Error(o)
	}
	if repeats == 0 && trials > 100 {
		t.Error("no event came twice: answers were not lost")
	}
	t.Logf("%d trials, %d faults, %d repeats dropped by the fold, %v", trials, len(n.told), repeats, done)
	if t.Failed() {
		said := n.said()
		t.Log(said[max(0, len(said)-3000):])
	}
}

// overlaps returns the times that samples and ended silences cover twice. Events that were sent
// again count once.
func overlaps(b *books) (out []string) {
	type told struct {
		domain.Interval
		what string
	}
	var all []told
	for _, s := range events[*domain.NodeSampled](b) {
		all = append(all, told{s.Interval, "a sample"})
	}
	for _, s := range events[*domain.CollectorSilent](b) {
		if s.Silent.To != 0 {
			all = append(all, told{s.Silent, "silence: " + s.Reason})
		}
	}
	slices.SortFunc(all, func(x, y told) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To), cmp.Compare(x.what, y.what))
	})
	all = slices.Compact(all)
	for i := range max(1, len(all)) - 1 {
		if all[i].To > all[i+1].From {
			out = append(out, fmt.Sprintf("%s until %s, %s from %s", all[i].what, all[i].To, all[i+1].what, all[i+1].From))
		}
	}
	return out
}

// smallDisk returns a folder on a small disk of its own and a function that fills it, if this
// process may mount one. Otherwise it returns a folder and nil.
func smallDisk(t *testing.T) (dir string, full func(bool)) {
	t.Helper()
	root := t.TempDir()
	if err := mountSmall(root, 3<<20); err != nil {
		t.Logf("without a disk that is full: %v", err)
		return filepath.Join(root, "spool"), func(bool) {}
	}
	unmount(t, root)
	filler := filepath.Join(root, "filler")
	return filepath.Join(root, "spool"), func(on bool) {
		if !on {
			_ = os.Remove(filler)
			return
		}
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return
		}
		defer f.Close()
		for b := make([]byte, 4096); ; {
			if _, err := f.Write(b); err != nil {
				return
			}
		}
	}
}
