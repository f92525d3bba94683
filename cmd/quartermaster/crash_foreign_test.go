package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// foreignWrites appends, in between, what another program would: transactions that are
// committed, ones that are aborted and written again, and batches that unpack to more
// than is read. Their markers stand between the records of others.
func (c *campaign) foreignWrites(ctx context.Context) {
	sequence := map[string]uint64{}
	at := domain.InstantOf(time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC))
	had := func(r *crashRun) int { return r.Foreign }
	for i := 0; rest(ctx, c.until(c.plan.foreign, had, c.plan.Foreign)); i++ {
		cluster := fmt.Sprint("crash-", c.pick(crashClusters))
		n := 1 + c.pick(3)
		if i%3 == 2 {
			n = 0
		}
		var recs []*kgo.Record
		for range n {
			sequence[cluster]++
			at += crashStep
			rec, err := wire.Encode(&domain.Envelope{
				Source: "foreign", Incarnation: 1, Sequence: sequence[cluster], Time: at, Workspace: "ws-0", Cluster: cluster,
				Event: &domain.JobQueued{Job: fmt.Sprintf("foreign-%d", sequence[cluster]), Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}},
			})
			if err != nil {
				c.t.Error(err)
				return
			}
			k := foreignRecord(&rec)
			k.Timestamp = at.Time()
			recs = append(recs, k)
		}
		ends := []kgo.TransactionEndTry{kgo.TryCommit}
		switch i % 3 {
		case 1:
			ends = []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit}
		case 2:
			recs = []*kgo.Record{{
				Topic: string(domain.TopicTelemetry), Partition: int32(domain.PartitionOf([]byte(cluster), domain.TopicTelemetry.Partitions())),
				Value: make([]byte, 65<<20), Timestamp: at.Time(),
			}}
		}
		// Nothing is left half written, however the broker is treated: a transaction whose
		// end is not known is written again, and is a repeat if it was committed.
		for _, end := range ends {
			for tries := 0; ; tries++ {
				err := c.transaction(recs, end)
				if err == nil {
					break
				}
				if tries == 20 {
					c.t.Errorf("foreign writes: %v", err)
					return
				}
				rest(context.Background(), 500*time.Millisecond)
			}
		}
		c.count(func(r *crashRun) { r.Foreign++ })
	}
}

// transaction writes records in one, with a pause before its end.
func (c *campaign) transaction(recs []*kgo.Record, end kgo.TransactionEndTry) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cl, err := foreignClient(c.brokers...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	var fresh []*kgo.Record // a client writes its own into them
	for _, r := range recs {
		again := *r
		fresh = append(fresh, &again)
	}
	if err := cl.ProduceSync(ctx, fresh...).FirstErr(); err != nil {
		return err
	}
	rest(ctx, c.draw(400*time.Millisecond))
	return cl.EndTransaction(ctx, end)
}
