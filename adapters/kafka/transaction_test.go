package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/domain"
)

// producer is another program that writes to the log in transactions.
func producer(t testing.TB, l *Log, id string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.cfg.Brokers...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// transact writes the numbers from to to-1 in a transaction and leaves it open.
func transact(t testing.TB, cl *kgo.Client, tp domain.TopicPartition, from, to int) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range numbered(tp, from, to) {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: string(tp.Topic), Partition: int32(tp.Partition), Value: r.Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// endTransaction ends a transaction and waits until the log ends at offset end, after its marker,
// which brokers write a moment later.
func endTransaction(t testing.TB, l *Log, tp domain.TopicPartition, cl *kgo.Client, how kgo.TransactionEndTry, end int64) {
	t.Helper()
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatal(err)
	}
	for next := int64(0); next < end; {
		var err error
		if _, next, err = l.Bounds(t.Context(), tp); err != nil {
			t.Fatal(err)
		}
	}
}

// shape describes each offset: a number, "-" for a marker, "!" for an aborted record.
func shape(recs []domain.Record) string {
	var out []string
	for _, r := range recs {
		switch {
		case r.IsMarker():
			out = append(out, "-")
		case r.Span != nil:
			out = append(out, fmt.Sprintf("!%d", r.Span.Last-r.Offset+1))
		default:
			out = append(out, strings.TrimPrefix(string(r.Value), "value "))
		}
	}
	return strings.Join(out, " ")
}

// Records of a transaction count once it is committed. Aborted records do not count, but keep
// their offsets in a span. Markers take offsets too, even at the end of the log.
func TestTransactions(t *testing.T) {
	l := openAny(t)
	l.cfg.Patience, l.cfg.MaxWait = time.Second, 200*time.Millisecond
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	a, b := producer(t, l, "a-"+string(tp.Topic)), producer(t, l, "b-"+string(tp.Topic))
	transact(t, a, tp, 0, 2)
	endTransaction(t, l, tp, a, kgo.TryCommit, 3) // the marker is at offset 2
	transact(t, a, tp, 3, 5)
	transact(t, b, tp, 5, 6) // two concurrent transactions
	endTransaction(t, l, tp, a, kgo.TryAbort, 7)
	endTransaction(t, l, tp, b, kgo.TryCommit, 8)
	if err := l.Append(t.Context(), numbered(tp, 8, 10)); err != nil {
		t.Fatal(err)
	}
	transact(t, a, tp, 10, 11)
	endTransaction(t, l, tp, a, kgo.TryCommit, 12)
	const want = "0 1 - !1 !1 5 - - 8 9 10 -"
	if _, next, err := l.Bounds(t.Context(), tp); err != nil || next != 12 {
		t.Fatalf("the log ends at %d, %v", next, err)
	}
	for from := range int64(12) {
		var got []domain.Record
		if err := l.Read(t.Context(), tp, from, 12, func(recs []domain.Record) error {
			for i := range recs {
				got = append(got, cloneRecord(&recs[i]))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if s := shape(got); s != strings.Join(strings.Fields(want)[from:], " ") {
			t.Errorf("from %d: %s of %s", from, s, want)
		}
	}

	// An open transaction blocks later records and is reported. Once it ends, waiting readers
	// continue.
	transact(t, b, tp, 12, 14)
	if err := l.Append(t.Context(), numbered(tp, 14, 15)); err != nil {
		t.Fatal(err)
	}
	if err := l.Read(t.Context(), tp, 0, 15, func([]domain.Record) error { return nil }); err == nil || !strings.Contains(err.Error(), "a transaction is open since offset 12") {
		t.Errorf("got %v", err)
	}
	l.heldFor = 100 * time.Millisecond
	var open *OpenTransactionError
	if err := l.Follow(t.Context(), tp, 12, func([]domain.Record) error { t.Error("it can be read"); return nil }); !errors.As(err, &open) || open.Since != 12 {
		t.Errorf("followed, and got %v", err)
	}
	l.heldFor = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []domain.Record
	var ended sync.WaitGroup
	ended.Go(func() { endTransaction(t, l, tp, b, kgo.TryAbort, 16) })
	_ = l.Follow(ctx, tp, 12, func(recs []domain.Record) error {
		for i := range recs {
			got = append(got, cloneRecord(&recs[i]))
		}
		if n := len(got); n > 0 && got[n-1].Next() == 16 {
			cancel()
		}
		return nil
	})
	ended.Wait()
	if s := shape(got); s != "!1 !1 14 -" {
		t.Errorf("followed %s", s)
	}
	if !slices.ContainsFunc(got, func(r domain.Record) bool { return r.Span != nil && strings.Contains(r.Span.Fault, "aborted") }) {
		t.Error("what was aborted does not say so")
	}
}
