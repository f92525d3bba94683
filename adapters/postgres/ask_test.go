package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Telemetry of many nodes waits in memory until somebody asks for the present rows.
func TestAsk(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	s := join(t, db, "asked")
	store := s.Store(g)
	l := storetest.NewLog()
	l.Batch = 1000
	// The runner writes a few rows at the end of the log at once, so it has to see all of a round together.
	sample := func(round int) (tp domain.TopicPartition) {
		during := domain.Interval{From: storetest.Start + domain.Instant(round)*10*domain.Second}
		during.To = during.From + 10*domain.Second
		var all []domain.Envelope
		for n := range 1000 {
			node := fmt.Sprintf("n%03d", n)
			all = append(all, domain.Envelope{
				Source: "node-reporter/c1/" + node, Cluster: "c1", Time: during.To,
				Event: storetest.Sample(node, during, storetest.Seen{ID: storetest.GPU("c1", node, 0), Activity: 500}),
			})
		}
		l.AppendTogether(during.To, all...)
		key, err := all[0].Key()
		if err != nil {
			t.Fatal(err)
		}
		return domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte(key), domain.TopicTelemetry.Partitions())}
	}
	tp := sample(0)
	if ok, err := store.Claim(t.Context(), tp); err != nil || !ok {
		t.Fatal(ok, err)
	}
	stored := func() (next int64) {
		if err := db.View(t.Context(), func(v projections.View) error { next = v.Position()[tp]; return nil }); err != nil {
			t.Fatal(err)
		}
		return next
	}
	tick := time.NewTicker(lease / heartbeatsPerLease)
	defer tick.Stop()
	await := func(want int64) {
		for deadline := time.Now().Add(time.Minute); stored() != want; {
			if time.Now().After(deadline) {
				t.Fatalf("rows are at %d, want %d", stored(), want)
			}
			<-tick.C
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Runner(store).FollowPartition(ctx, tp) }()
	await(1000) // the end, for the first time
	sample(1)
	for range 4 { // heartbeats
		<-tick.C
	}
	if n := stored(); n != 1000 {
		t.Errorf("rows are at %d although nobody asked", n)
	}
	if err := db.Ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	for silent := 0; stored() != 2000; silent++ { // so many rows would wait for 60 silences
		if silent == 40 {
			t.Fatal("nobody answered")
		}
		l.Silence()
		<-tick.C
	}
	sample(2)
	<-tick.C
	stop()
	<-done
	if n := stored(); n < 2000 {
		t.Errorf("rows are at %d", n)
	}
}
