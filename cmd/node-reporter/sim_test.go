//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/adapters/dcgm/simdcgm"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/spool"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// built is the folder of builtCollector. TestMain removes it.
var built string

// builtCollector builds the collector and the simulated DCGM into a folder, once for all tests.
func builtCollector(t *testing.T) (dir, collector string) {
	t.Helper()
	if built != "" {
		return built, filepath.Join(built, "dcgm-collector")
	}
	dir, err := os.MkdirTemp("", "node-reporter-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if built != dir {
			os.RemoveAll(dir)
		}
	})
	if err := simdcgm.Build(dir); errors.Is(err, simdcgm.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	collector = filepath.Join(dir, "dcgm-collector")
	build := exec.Command("go", "build", "-o", collector, "quartermaster/cmd/dcgm-collector")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the collector: %v\n%s", err, out)
	}
	built = dir
	return dir, collector
}

// While everything runs, a GPU is partitioned, partitioned again in the same way, left in MIG mode
// without instances, and given one instance with two compute instances. Each sample has the devices
// of its time with their own holders, and an XID counts once.
func TestMIGHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles C")
	}
	dir, collector := builtCollector(t)
	machine, err := simdcgm.NewMachine(dir, t.TempDir(), "gpus 2", "seed 3", "load 0 50", "mig 1 3 4")
	if err != nil {
		t.Fatal(err)
	}
	do := func(command string) {
		t.Helper()
		if err := machine.Do(command); err != nil {
			t.Fatal(err)
		}
	}
	b := newBooks(t)
	n := newNode(t, b, "", "attribution: {static: holders}")
	n.write("collector", "#!/bin/sh\nexec "+collector+" --engine embedded --medium=1s --slow=2s \"$@\"\n", 0o700)
	n.write("holders", "", 0o600)
	n.env = machine.Env()
	n.start()
	// The newest sample, and the holder of each of its devices.
	last := func() (*domain.NodeSampled, map[domain.GPUID]string) {
		var e *domain.NodeSampled
		for _, s := range events[*domain.NodeSampled](b) {
			if e == nil || s.Interval.To > e.Interval.To {
				e = s
			}
		}
		held := map[domain.GPUID]string{}
		if e == nil {
			return &domain.NodeSampled{}, held
		}
		for i := range e.Entries() {
			id, unit := domain.GPUID(e.IDs[16*i:]), ""
			if len(e.Holder) > 0 && e.Holder[i] > 0 {
				unit = e.Text(e.HolderUnit, int(e.Holder[i]-1))
			}
			held[id] = unit
		}
		return e, held
	}
	var e *domain.NodeSampled
	var held map[domain.GPUID]string
	await := func(what string, is func() bool) {
		t.Helper()
		until(t, what, func() bool { e, held = last(); return is() })
	}
	id := func(i int) domain.GPUID { return domain.GPUID(e.IDs[16*i:]) }
	await("a sample of two instances", func() bool { return e.Entries() == 3 && len(e.Parents) == 16 })
	gpu, first := domain.GPUID(e.Parents), [2]domain.GPUID{id(1), id(2)}
	mig := func(id domain.GPUID) string { return "MIG" + strings.TrimPrefix(id.String(), "GPU") }
	n.write("holders", mig(first[0])+" w - a\n"+mig(first[1])+" w - b\n", 0o600)
	await("their holders", func() bool { return held[first[0]] == "a" && held[first[1]] == "b" })

	do("mig 1 3 4")
	await("the same cut anew", func() bool { return e.Entries() == 3 && id(1) != first[0] })
	if id(2) == first[1] || held[id(1)] != "" || held[id(2)] != "" {
		t.Errorf("the holders of devices that are gone hold the new ones: %v", held)
	}
	do("mig 1 on")
	await("a GPU without instances", func() bool { return e.Entries() == 2 && len(e.Parents) == 0 })
	await("readings of it", func() bool { return len(e.PowerWatts) == 2 && e.PowerWatts[1] > 1 })
	if id(1) != gpu || e.ActivityField != fieldSM || held[gpu] != "" {
		t.Errorf("%+v", e)
	}
	do("mig 1 3:2 4")
	await("three MIG devices", func() bool { return e.Entries() == 4 })
	// With the device names of old drivers.
	n.write("holders", "MIG-"+gpu.String()+"/1/0 w - x\nMIG-"+gpu.String()+"/1/1 w - y\nMIG-"+gpu.String()+"/2/0 w - z\n", 0o600)
	await("the holders of compute instances", func() bool { return held[id(1)] == "x" && held[id(2)] == "y" && held[id(3)] == "z" })
	xids := func() []*domain.GPUFaultObserved { return events[*domain.GPUFaultObserved](b) }
	do("xid 1 31 1")
	until(t, "the XID", func() bool { return len(xids()) > 0 })
	do("xid 0 13")
	until(t, "the XID after it", func() bool { return len(xids()) > 1 })
	n.stop()
	for i, want := range []domain.GPUID{id(3), id(0)} {
		if all := xids(); len(all) != 2 || all[i].GPU != want {
			t.Errorf("%d XIDs, want 2, of %s: %+v", len(all), want, *all[i])
		}
	}
	for _, s := range events[*domain.NodeSampled](b) {
		for i, w := range append(append(append(s.MemoryUsedMiB, s.PowerWatts...), s.TemperatureC...), s.SMClockMHz...) {
			if w > 100_000 {
				t.Errorf("value %d is %d: %+v", i, w, s)
			}
		}
	}
	b.fold()
}

// The real collector on a simulated DCGM: a fault, a GPU that falls off the bus, and one that is
// partitioned while everything runs.
func TestWithCollector(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles C")
	}
	dir, collector := builtCollector(t)
	machine, err := simdcgm.NewMachine(dir, t.TempDir(), "gpus 4", "seed 3", "period 60")
	if err != nil {
		t.Fatal(err)
	}
	do := func(command string) {
		t.Helper()
		if err := machine.Do(command); err != nil {
			t.Fatal(err)
		}
	}
	b := newBooks(t)
	n := newNode(t, b, "", "register: {enabled: true, sku: p5.48xlarge}")
	n.write("collector", "#!/bin/sh\nexec "+collector+" --engine embedded \"$@\"\n", 0o700)
	n.env = machine.Env()
	n.start()
	samples := func() []*domain.NodeSampled { return events[*domain.NodeSampled](b) }
	until(t, "a sample", func() bool { return len(samples()) > 0 })
	if e := samples()[0]; e.Entries() != 4 || e.ActivityField != fieldSM || len(e.ActivityMean) != 4 || len(e.PowerWatts) != 4 {
		t.Errorf("%+v", e)
	}
	until(t, "the registration", func() bool { return len(events[*domain.NodeRegistered](b)) == 1 })
	if e := events[*domain.NodeRegistered](b)[0]; len(e.GPUs) != 4 || e.SKU != "p5.48xlarge" || e.DriverVersion == "" || e.GPUs[3].Index != 3 {
		t.Errorf("%+v", e)
	}
	faults := func(kind domain.FaultKind) []*domain.GPUFaultObserved {
		var out []*domain.GPUFaultObserved
		for _, f := range events[*domain.GPUFaultObserved](b) {
			if f.Kind == kind {
				out = append(out, f)
			}
		}
		return out
	}
	begin := time.Now()
	do("xid 2 48")
	until(t, "the XID", func() bool { return len(faults(domain.FaultXID)) == 1 })
	t.Logf("XID in the driver to the gateway's log: %s", time.Since(begin).Round(time.Millisecond))
	if f := faults(domain.FaultXID)[0]; f.Code != 48 || f.Class != "hardware" || f.Count != 1 || f.BootTime == 0 {
		t.Errorf("%+v", f)
	}
	do("lost 3")
	until(t, "the GPU to be lost", func() bool { return len(faults(domain.FaultOffBus)) == 1 })
	do("mig 1 3 4")
	until(t, "a sample of instances", func() bool {
		all := samples()
		e := all[len(all)-1]
		return len(e.Parents) == 16 && e.Entries() == 5
	})
	until(t, "that the change is logged", func() bool { return strings.Contains(n.said(), "the devices of this node changed") })
	// The node registers again only if its registration changes. Whole GPUs did not change.
	if got := len(events[*domain.NodeRegistered](b)); got != 1 {
		t.Errorf("%d registrations", got)
	}
	n.killCollector()
	until(t, "that the collector is back", func() bool { return strings.Count(n.said(), "the collector began") == 2 })
	do("xid 0 13")
	until(t, "the next XID", func() bool { return len(faults(domain.FaultXID)) == 2 })
	n.stop()
	if got := len(faults(domain.FaultOffBus)); got != 1 {
		t.Errorf("the lost GPU is told %d times: the second collector found it lost, and it was known: %+v %+v", got, *faults(domain.FaultOffBus)[0], *faults(domain.FaultOffBus)[1])
	}
	b.fold()
}

// Delivery to Kafka with a password: the records have the cluster's key, in its partition.
func TestDirect(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "node", "secret"),
		kfake.SeedTopics(8, string(domain.TopicTelemetry)), kfake.SeedTopics(4, string(domain.TopicHardware), string(domain.TopicFleet)))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secret\n")
	c := &KafkaConfig{Brokers: cluster.ListenAddrs(), Mechanism: "SCRAM-SHA-512", User: "node", PasswordFile: password}
	d, err := newDirect(c, "lab", "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	r := &reporter{cfg: &Config{Cluster: "lab", Node: "n1"}, log: slog.New(slog.DiscardHandler)}
	if r.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), Source: "node-reporter/lab/n1", Incarnation: 1, Quota: 1 << 20, Queues: []spool.Rule{{Name: string(domain.TopicHardware), Keep: true}}}); err != nil {
		t.Fatal(err)
	}
	defer r.spool.Close()
	for range 3 {
		if err := r.append(noon, &domain.GPUFaultObserved{Node: "n1", GPU: gpu(0).UUID, Kind: domain.FaultXID, Code: 79, Count: 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	q := r.queue(domain.TopicHardware)
	b, err := q.Next(1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	earlier := bytes.Clone(b.Entries[0].Data)
	courier := &courier{queue: q, topic: domain.TopicHardware, cluster: r.cfg.Cluster, sender: d, refused: newRefusedFile(t.TempDir(), r.log), log: r.log, pace: usualPace}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		until(t, "the delivery", func() bool { return q.Stats().Waiting == 0 })
		cancel()
	}()
	courier.run(ctx)
	log, err := kafka.Open(t.Context(), d.config)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n := domain.TopicHardware.Partitions()
	tp := domain.TopicPartition{Topic: domain.TopicHardware, Partition: domain.PartitionOf([]byte("lab"), n)}
	got := 0
	err = log.Read(t.Context(), tp, 0, 3, func(recs []domain.Record) error {
		for i := range recs {
			var env domain.Envelope
			if err := new(wire.Decoder).Decode(&recs[i], &env); err != nil {
				t.Error(err)
			}
			if got++; env.Sequence != uint64(got) || env.Source != "node-reporter/lab/n1" || env.Cluster != "lab" {
				t.Errorf("%+v", env)
			}
		}
		return nil
	})
	if err != nil || got != 3 {
		t.Errorf("%d records: %v", got, err)
	}
	// With shards the record is in the partition of the node's shard, as the first of an incarnation.
	d.of = 8
	r.reshard(d.shards())
	if err := r.append(noon, &domain.NodeReturned{Node: "n1"}, nil); err != nil {
		t.Fatal(err)
	}
	b, err = q.Next(1, 1<<20)
	if err != nil || !courier.deliver(t.Context(), &b) {
		t.Fatal(err)
	}
	key := domain.NodeKey("lab", "n1", 8)
	tp.Partition = domain.PartitionOf([]byte(key), n)
	_, end, err := log.Bounds(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	err = log.Read(t.Context(), tp, end-1, end, func(recs []domain.Record) error {
		var env domain.Envelope
		if err := new(wire.Decoder).Decode(&recs[0], &env); err != nil || string(recs[0].Key) != key || env.Incarnation < 2 || env.Sequence != 1 {
			t.Errorf("%+v under key %s: %v", env, recs[0].Key, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// A record without a key has that of the cluster, as the gateway reads it too.
	record, _, err := unpack(earlier)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := wire.ReadBatch(record)
	if err != nil {
		t.Fatal(err)
	}
	recs[0].Key = nil
	if record, err = wire.AppendBatch(nil, &recs[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := d.send(t.Context(), [][]byte{record}); err != nil {
		t.Fatal(err)
	}
	tp.Partition = domain.PartitionOf([]byte("lab"), n)
	if _, end, err = log.Bounds(t.Context(), tp); err != nil {
		t.Fatal(err)
	}
	err = log.Read(t.Context(), tp, end-1, end, func(recs []domain.Record) error {
		var env domain.Envelope
		if err := new(wire.Decoder).Decode(&recs[0], &env); err != nil || string(recs[0].Key) != "lab" ||
			env.Sequence != 1 {
			t.Errorf("%+v under key %q: %v", env, recs[0].Key, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	write("wrong")
	bad, err := newDirect(c, "lab", "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer bad.close()
	bad.config.Patience = 500 * time.Millisecond
	if _, err := bad.open(t.Context()); err == nil || !strings.Contains(err.Error(), "reach Kafka") {
		t.Errorf("a wrong password: %v", err)
	}
}
