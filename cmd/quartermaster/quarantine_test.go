package main

import (
	"context"
	"errors"
	"io"

	"github.com/rogpeppe/go-internal/testscript"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// badRecords returns records that are no good, by name: each as some client of
// Kafka could have written it into a log.
func badRecords() (map[string]domain.Record, error) {
	at := may
	out := map[string]domain.Record{}
	var errs error
	add := func(name string, env domain.Envelope, spoil func(*domain.Record)) {
		env.Time, env.Incarnation, env.Sequence = at, 1, 1
		rec, err := wire.Encode(&env)
		if spoil != nil {
			spoil(&rec)
		}
		out[name], errs = rec, errors.Join(errs, err)
	}
	twice := []domain.GPUDeclared{
		{ID: domain.DeriveGPUID("lab", "n9", 0), Model: "H100 SXM 80GB"},
		{ID: domain.DeriveGPUID("lab", "n9", 0), Index: 1, Model: "H100 SXM 80GB"},
	}
	node := func(source string) domain.Envelope {
		return domain.Envelope{Source: source, Cluster: "lab", Subject: "n9", Event: &domain.NodeRegistered{Node: "n9", CPUMilli: 1000, MemoryMiB: 1024, GPUs: twice}}
	}
	add("gpu-twice", node("reporter/n9"), nil)
	misplaced := node("reporter/n9b")
	misplaced.Event.(*domain.NodeRegistered).GPUs = twice[:1]
	add("misplaced", misplaced, func(r *domain.Record) { r.Partition = (r.Partition + 1) % domain.TopicFleet.Partitions() })
	add("unsigned", domain.Envelope{Source: "somebody", Workspace: platform, Subject: "idle", Event: &domain.PolicySet{
		Policy: "idle", Kind: domain.PolicyIdleCost, EffectiveFrom: at, Value: "owner",
	}}, nil)
	id := domain.DeriveGPUID("lab", "n9", 0)
	add("sample", domain.Envelope{Source: "reporter/n9", Cluster: "lab", Event: &domain.NodeSampled{
		Node: "n9", Interval: domain.Interval{From: at - domain.Hour, To: at}, IDs: id[:],
	}}, func(r *domain.Record) { r.Value = r.Value[:len(r.Value)-1] })
	out["garbage"] = domain.Record{Topic: domain.TopicTelemetry, Value: []byte("GET / HTTP/1.1\r\n")}
	return out, errs
}

// poison NAME... appends bad records to the log of the home.
func poison(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: poison name...")
	}
	ts.Check(plant(ts.Getenv("QUARTERMASTER_HOME"), args...))
}

func plant(dir string, names ...string) error {
	bad, err := badRecords()
	if err != nil {
		return err
	}
	var recs []domain.Record
	for _, name := range names {
		rec, ok := bad[name]
		if !ok {
			return errors.New("no bad record " + name)
		}
		recs = append(recs, rec)
	}
	a := &app{out: io.Discard, err: io.Discard, quiet: true, dir: dir}
	return a.withLog(context.Background(), func(h *home) error { return h.log.Append(context.Background(), recs) })
}
