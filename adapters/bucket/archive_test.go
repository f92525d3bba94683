package bucket

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/domain"
)

// TestArchiveInBucket archives a log in a bucket, trims the log, and reads it all.
func TestArchiveInBucket(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	l, err := kafka.Open(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs(), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tp := domain.TopicPartition{Topic: domain.TopicFleet}
	if err := l.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: tp.Topic, Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	for batch := range 20 {
		var recs []domain.Record
		for i := range 10 {
			recs = append(recs, domain.Record{Topic: tp.Topic, Key: []byte("k"), Value: fmt.Append(nil, batch*10+i)})
		}
		if err := l.Append(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
	}
	store, service := open(t)
	a := archive.New(store, archive.Log{ID: "log"})
	for range 2 { // the second has nothing to do
		if err := a.Seal(t.Context(), l, tp, 0, 200, archive.Policy{Bytes: 1000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	end, err := a.Confirm(t.Context(), l, tp, 0, 200)
	if end != 200 || err != nil {
		t.Fatal(end, err)
	}
	l.Archive = a
	if _, err := l.DeleteRecords(t.Context(), tp, 123); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := l.Read(t.Context(), tp, 0, 200, func(recs []domain.Record) error {
		for i := range recs {
			if string(recs[i].Value) != fmt.Sprint(n) {
				t.Fatalf("offset %d has %q", recs[i].Offset, recs[i].Value)
			}
			n++
		}
		return nil
	}); err != nil || n != 200 {
		t.Fatal(n, err)
	}
	v, err := a.Verify(t.Context(), []domain.TopicPartition{tp}, nil)
	if err != nil || v.Records != 200 || len(v.Faults) > 0 {
		t.Fatalf("%+v: %v", v, err)
	}
	// The bucket answers with an error: nothing is confirmed.
	service.mu.Lock()
	service.refuse = 403
	service.mu.Unlock()
	if end, err := a.Confirm(t.Context(), l, tp, 123, 200); end != 123 || err == nil {
		t.Fatal(end, err)
	}
}
