package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/domain"
)

func fill50(t testing.TB, l *Log, partitions int) domain.TopicPartition {
	t.Helper()
	tp := domain.TopicPartition{Topic: newTopic(t, l, partitions)}
	for i := 0; i < 50; i += 10 {
		if err := l.Append(t.Context(), numbered(tp, i, i+10)); err != nil {
			t.Fatal(err)
		}
	}
	return tp
}

func TestReadAnyRange(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	for _, r := range [][2]int{{0, 50}, {0, 0}, {50, 50}, {7, 8}, {13, 41}, {49, 50}, {10, 20}} {
		got := order(values(t, l, tp, int64(r[0]), int64(r[1])))
		if len(got) != r[1]-r[0] || len(got) > 0 && (got[0] != r[0] || got[len(got)-1] != r[1]-1) {
			t.Errorf("%v: got %v", r, got)
		}
	}
}

func TestReadEndsWithYieldError(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	enough := errors.New("enough")
	if err := l.Read(t.Context(), tp, 0, 50, func([]domain.Record) error { return enough }); !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
}

func TestFollowWaitsForMore(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := follow(ctx, l, tp, 45, func(recs []domain.Record) error {
		for _, r := range recs {
			got = append(got, string(r.Value))
		}
		if n := 45 + len(got); n < 60 {
			return l.Append(ctx, numbered(tp, n, n+1)) // one by one, while following
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(got) != 15 || got[0] != text(45) || got[14] != text(59) {
		t.Fatalf("got %v, %v", got, err)
	}
}

// A reader of the partition hears that it is at the end, and again while nothing more comes.
func TestFollowSaysThatItIsAtTheEnd(t *testing.T) {
	l := openAny(t)
	l.cfg.MaxWait = 20 * time.Millisecond
	tp := fill50(t, l, 1)
	done := errors.New("done")
	seen, silent := 0, 0
	err := l.Follow(t.Context(), tp, 40, func(recs []domain.Record) error {
		switch {
		case len(recs) > 0:
			if silent > 0 && seen < 10 {
				t.Errorf("the end was announced after %d of 10 records", seen)
			}
			seen, silent = seen+len(recs), 0
			return nil
		case silent < 2:
			silent++
			return nil
		case seen == 10:
			silent = 0
			return l.Append(t.Context(), numbered(tp, 50, 55))
		}
		return done
	})
	if !errors.Is(err, done) || seen != 15 {
		t.Fatalf("%d records, %v", seen, err)
	}
}

// Cancelling must not wait for the end of the long poll.
func TestFollowEndsWithContext(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	tp := fill50(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	polling := make(chan struct{})
	var fetches atomic.Int64
	c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		if fetches.Add(1) == 2 {
			close(polling)
		}
		return nil, nil, false
	})
	done := make(chan error)
	go func() { done <- l.Follow(ctx, tp, 0, func([]domain.Record) error { return nil }) }()
	<-polling
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	case <-time.After(fetchWait * 4 / 5):
		t.Fatal("still following")
	}
}

func wantTrimmed(t *testing.T, err error, want TrimmedError) {
	t.Helper()
	var got *TrimmedError
	if !errors.Is(err, ErrTrimmed) || !errors.As(err, &got) || *got != want {
		t.Errorf("got %v, want %v", err, &want)
	}
}

func TestOffsetsOutOfRangeAreHardStops(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	res, err := deleteRecords(t, l, tp, 20)
	if err != nil || res != 20 {
		t.Fatalf("delete records: %d, %v", res, err)
	}
	ignore := func([]domain.Record) error { return nil }
	if first, next, err := l.Bounds(t.Context(), tp); first != 20 || next != 50 || err != nil {
		t.Fatalf("bounds %d, %d, %v", first, next, err)
	}
	wantTrimmed(t, l.Read(t.Context(), tp, 0, 50, ignore), TrimmedError{tp, 0, 20})
	wantTrimmed(t, l.Follow(t.Context(), tp, 19, ignore), TrimmedError{tp, 19, 20})
	wantTrimmed(t, l.Follow(t.Context(), tp, 51, ignore), TrimmedError{tp, 51, 50})
	wantTrimmed(t, l.Read(t.Context(), tp, 60, 70, ignore), TrimmedError{tp, 60, 50})
	wantTrimmed(t, l.Read(t.Context(), tp, 30, 29, ignore), TrimmedError{tp, 30, 29})
	if got := values(t, l, tp, 20, 50); len(got) != 30 {
		t.Errorf("what is left: %d records", len(got))
	}
}

// The log is trimmed while a reader is in the middle of it. The reader requests the next records
// before it delivers the last, so a round of trimming may come too late to be noticed.
func TestTrimmedWhileFollowing(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	err := follow(t.Context(), l, tp, 0, func(recs []domain.Record) error {
		seen := int(recs[len(recs)-1].Offset) + 1
		if seen < 50 {
			return nil
		}
		for i := range 5 {
			if err := l.Append(t.Context(), numbered(tp, seen+i, seen+i+1)); err != nil {
				return err
			}
		}
		_, err := deleteRecords(t, l, tp, int64(seen+4))
		return err
	})
	if !errors.Is(err, ErrTrimmed) {
		t.Fatal(err)
	}
}

func deleteRecords(t testing.TB, l *Log, tp domain.TopicPartition, before int64) (int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = string(tp.Topic)
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = int32(tp.Partition), before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		return 0, err
	}
	p := res.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return 0, kafkago.Error(p.ErrorCode)
	}
	return p.LowWatermark, nil
}

// serve answers fetches of tp with the given bytes instead of those of the log.
func serve(c *kfake.Cluster, tp domain.TopicPartition, end int64, set []byte) {
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		res := kreq.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = string(tp.Topic), kreq.(*kmsg.FetchRequest).Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.HighWatermark, rp.RecordBatches = int32(tp.Partition), end, set
		rt.Partitions = append(rt.Partitions, rp)
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
}

func TestEveryOffsetIsChecked(t *testing.T) {
	tp := domain.TopicPartition{Topic: "t"}
	batch := func(base int64, n int) []byte {
		b, _, err := testEncoder(Zstd).encode(numbered(tp, int(base), int(base)+n))
		if err != nil {
			t.Fatal(err)
		}
		return fill(slices.Clone(b), base)
	}
	flip := func(b []byte) []byte { b[len(b)-3] ^= 0x10; return b }
	cat := func(bs ...[]byte) []byte { return slices.Concat(bs...) }
	for _, tc := range []struct {
		name string
		set  []byte
		want error
		got  int // records delivered before
	}{
		{"whole", cat(batch(0, 10), batch(10, 10)), nil, 15},
		{"cut at the end", cat(batch(0, 15), batch(15, 10)[:70]), nil, 15},
		{"begins late", batch(1, 10), &TrimmedError{tp, 0, 1}, 0},
		{"begins later in the answer", cat(batch(0, 5), batch(6, 10)), &TrimmedError{tp, 5, 6}, 5},
		{"goes back", cat(batch(0, 5), batch(4, 11)), &TrimmedError{tp, 5, 4}, 5},
		{"comes twice", cat(batch(0, 5), batch(0, 5)), &TrimmedError{tp, 5, 0}, 5},
		{"flipped bit", cat(batch(0, 5), flip(batch(5, 10))), ErrCorrupt, 5},
		{"shorter than one batch", batch(0, 15)[:80], ErrCorrupt, 0},
		{"not a batch", cat(batch(0, 5), make([]byte, 80)), ErrCorrupt, 5},
	} {
		c := fake(t)
		l := openFake(t, c)
		if err := l.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: tp.Topic, Partitions: 1}}); err != nil {
			t.Fatal(err)
		}
		serve(c, tp, 100, tc.set)
		got := 0
		err := l.Read(t.Context(), tp, 0, 15, func(recs []domain.Record) error { got += len(recs); return nil })
		var want *TrimmedError
		if errors.As(tc.want, &want) {
			wantTrimmed(t, err, *want)
		} else if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got != tc.got {
			t.Errorf("%s: handed out %d records, want %d", tc.name, got, tc.got)
		}
	}
}

func TestReadSurvivesBrokenConnections(t *testing.T) {
	c := fake(t)
	w := openFake(t, c)
	tp := fill50(t, w, 1)
	var left atomic.Int64
	left.Store(600) // bytes until the next connection breaks; later ones last longer
	l := open(t, Config{Brokers: c.ListenAddrs(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &shortConn{conn, left.Add(100)}, err
	}})
	if got := order(values(t, l, tp, 0, 50)); len(got) != 50 || !slices.IsSorted(got) {
		t.Fatalf("got %v", got)
	}
}

// shortConn breaks after a number of bytes.
type shortConn struct {
	net.Conn
	left int64
}

func (c *shortConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		c.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

func TestReadBeyondTheEnd(t *testing.T) {
	c := fake(t)
	w := openFake(t, c)
	tp := fill50(t, w, 1)
	serve(c, tp, 50, nil) // answers at once without records
	l := open(t, Config{Brokers: c.ListenAddrs(), Patience: time.Millisecond})
	wantTrimmed(t, l.Read(t.Context(), tp, 50, 60, nil), TrimmedError{tp, 60, 50})
}

func TestUnknownTopic(t *testing.T) {
	l := open(t, Config{Brokers: fake(t).ListenAddrs(), Patience: time.Millisecond})
	tp := domain.TopicPartition{Topic: "no-such-topic"}
	if _, _, err := l.Bounds(t.Context(), tp); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		t.Errorf("bounds: %v", err)
	}
	if err := l.Read(t.Context(), tp, 0, 1, nil); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		t.Errorf("read: %v", err)
	}
	if err := l.Append(t.Context(), numbered(tp, 0, 1)); err == nil {
		t.Error("appended")
	}
}

func FuzzFetchAnswer(f *testing.F) {
	tp := domain.TopicPartition{Topic: "t"}
	b, _, err := testEncoder(Zstd).encode(numbered(tp, 0, 3))
	if err != nil {
		f.Fatal(err)
	}
	be := binary.BigEndian
	answer := append(make([]byte, 10), 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1) // one topic, one partition
	answer = append(answer, make([]byte, 4+2)...)
	answer = be.AppendUint64(answer, 3)
	answer = append(answer, make([]byte, 16+4)...)
	answer = append(be.AppendUint32(answer, uint32(len(b))), b...)
	r := &reader{tp: tp, to: 100}
	if set, end, code := r.parse(&cursor{b: answer}); len(set) != len(b) || end != 3 || code != 0 {
		f.Fatal("the seed is not an answer")
	}
	f.Add(answer)
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := cursor{b: answer}
		set, _, _ := r.parse(&c)
		if c.bad {
			return
		}
		if next, err := r.check(set); err == nil && next < r.next {
			t.Fatalf("goes back to offset %d", next)
		}
	})
}
