package main

import (
	"runtime"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
)

// BenchmarkShards folds the samples of 2,000 nodes from an embedded log: in a hundred clusters, in
// one cluster with 64 shards, and in one without shards. The rates are compared with that of the
// hundred clusters. On one core all are equal, so it shows most on many.
func BenchmarkShards(b *testing.B) {
	const events, nodes = 200_000, 2000
	type home struct {
		name   string
		conn   *app.Conn
		end    domain.Position
		folded time.Duration
		busy   int // partitions with samples
	}
	var homes []*home
	for _, e := range []struct {
		name             string
		clusters, shards int
	}{{"clusters", 100, 1}, {"shards", 1, 64}, {"alone", 1, 1}} {
		of := newEstate(nodes, time.Minute)
		of.clusters, of.shards = e.clusters, e.shards
		h := &home{name: e.name, conn: benchDir(b, events, of)}
		var err error
		if h.end, err = h.conn.End(b.Context()); err != nil {
			b.Fatal(err)
		}
		for tp, next := range h.end {
			if tp.Topic == domain.TopicTelemetry && next > 0 {
				h.busy++
			}
		}
		homes = append(homes, h)
	}
	for b.Loop() {
		for _, h := range homes {
			r := app.NewRunner(h.conn.Log, projections.NewMemory(domain.TopicSpecs()))
			runtime.GC()
			start := time.Now()
			if err := r.CatchUp(b.Context(), h.end); err != nil {
				b.Fatal(err)
			}
			h.folded += time.Since(start)
			if p := r.Progress(); p.Folded != events {
				b.Fatalf("folded %d of %d: %+v", p.Folded, events, p)
			}
		}
	}
	for _, h := range homes {
		b.ReportMetric(events*float64(b.N)/h.folded.Seconds(), h.name+"/s")
		b.ReportMetric(float64(h.busy), h.name+"-partitions")
		if h != homes[0] {
			b.ReportMetric(homes[0].folded.Seconds()/h.folded.Seconds(), h.name+"-of-clusters")
		}
	}
	b.ReportMetric(0, "ns/op")
}
