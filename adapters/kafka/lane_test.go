package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/domain"
)

// gate is a broker that holds the first produce request until it is opened.
type gate struct {
	*kfake.Cluster
	arrived  chan struct{}
	opened   chan struct{}
	requests atomic.Int64
	// judge returns an error code for the records of a request, if it is set.
	judge func(records []byte) int16
}

func newGate(t *testing.T) *gate {
	g := &gate{Cluster: fake(t, kfake.SleepOutOfOrder()), arrived: make(chan struct{}), opened: make(chan struct{})}
	g.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		g.KeepControl()
		if g.requests.Add(1) == 1 {
			close(g.arrived)
			g.SleepControl(func() { <-g.opened })
		}
		if g.judge == nil {
			return nil, nil, false
		}
		req := kreq.(*kmsg.ProduceRequest)
		code := g.judge(req.Topics[0].Partitions[0].Records)
		if code == 0 {
			return nil, nil, false
		}
		return refusal(req, code), nil, true
	})
	return g
}

// open lets the first request pass.
func (g *gate) open() { close(g.opened) }

// result gets what a call returns.
type result chan error

// start begins an append and waits until it is in the lane's queue.
func start(ctx context.Context, t *testing.T, l *Log, recs []domain.Record) result {
	t.Helper()
	tp := domain.TopicPartition{Topic: recs[0].Topic, Partition: recs[0].Partition}
	ln := l.lane(tp)
	queued := func() int {
		ln.mu.Lock()
		defer ln.mu.Unlock()
		return len(ln.calls)
	}
	before, o := queued(), make(result, 1)
	go func() { o <- l.Append(ctx, recs) }()
	for queued() == before && len(o) == 0 {
		runtime.Gosched()
	}
	return o
}

// occupied returns a log whose only partition has a request with record 0 in flight.
func occupied(t *testing.T) (g *gate, l *Log, tp domain.TopicPartition, first result) {
	g = newGate(t)
	l = openFake(t, g.Cluster)
	l.cfg.Codec = -1 // not compressed, so that the gate sees the values
	tp = domain.TopicPartition{Topic: newTopic(t, l, 1)}
	first = make(result, 1)
	go func() { first <- l.Append(t.Context(), numbered(tp, 0, 1)) }()
	<-g.arrived
	return g, l, tp, first
}

func TestWaitingCallsShareARequest(t *testing.T) {
	g, l, tp, first := occupied(t)
	var calls []result
	var want []string
	for i := range 50 {
		calls = append(calls, start(t.Context(), t, l, numbered(tp, 1+2*i, 3+2*i)))
	}
	for i := range 101 {
		want = append(want, text(i))
	}
	g.open()
	for i, o := range append(calls, first) {
		if err := <-o; err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if n := g.requests.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	if got := all(t, l, tp); !slices.Equal(got, want) {
		t.Errorf("log holds %v", got)
	}
}

func TestSharedRequestsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		calls, records, bytes int
		want                  int64 // requests
	}{
		"records": {calls: 5, records: 450, want: 3},                  // 1000, 1000, 250
		"bytes":   {calls: 4, records: 1, bytes: 700 << 10, want: 2},  // two reach the target
		"large":   {calls: 3, records: 1, bytes: 2048 << 10, want: 3}, // each reaches it alone
	} {
		t.Run(name, func(t *testing.T) {
			g, l, tp, first := occupied(t)
			var calls []result
			next := 1
			for range c.calls {
				recs := numbered(tp, next, next+c.records)
				next += c.records
				for i := range recs {
					recs[i].Headers = []domain.Header{{Key: "h", Value: make([]byte, c.bytes)}}
				}
				calls = append(calls, start(t.Context(), t, l, recs))
			}
			g.open()
			for _, o := range append(calls, first) {
				if err := <-o; err != nil {
					t.Error(err)
				}
			}
			if n := g.requests.Load(); n != 1+c.want {
				t.Errorf("%d requests, want %d", n, 1+c.want)
			}
			if got := all(t, l, tp); len(got) != next || !slices.IsSorted(order(got)) {
				t.Errorf("log holds %v", got)
			}
		})
	}
}

// A call that gives up while it waits is not sent. The others are, in their order.
func TestCancelledCallLeavesTheQueue(t *testing.T) {
	g, l, tp, first := occupied(t)
	ctx, cancel := context.WithCancel(t.Context())
	before := start(t.Context(), t, l, numbered(tp, 1, 3))
	recs := numbered(tp, 100, 1600)
	leaves := start(ctx, t, l, recs)
	after := start(t.Context(), t, l, numbered(tp, 3, 5))
	cancel()
	var failed *PartitionError
	if err := <-leaves; !errors.Is(err, context.Canceled) || !errors.As(err, &failed) || failed.Acknowledged != 0 {
		t.Fatalf("got %v", err)
	}
	for i := range recs { // the race detector notices if it is still read
		copy(recs[i].Value, "scribble")
	}
	g.open()
	for _, o := range []result{first, before, after} {
		if err := <-o; err != nil {
			t.Error(err)
		}
	}
	if got := all(t, l, tp); !slices.Equal(got, []string{text(0), text(1), text(2), text(3), text(4)}) {
		t.Errorf("log holds %v", got)
	}
}

// A request in flight goes on for the other calls when one of them gives up.
func TestCancelledCallDoesNotEndASharedRequest(t *testing.T) {
	g, l, tp, first := occupied(t)
	var tries atomic.Int64
	tried, goOn := make(chan struct{}), make(chan struct{})
	g.judge = func(records []byte) int16 { // fails once, after the first request
		if !bytes.Contains(records, []byte(text(1))) || tries.Add(1) > 1 {
			return 0
		}
		close(tried)
		<-goOn
		return int16(kafkago.NotEnoughReplicas)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leaves := start(ctx, t, l, numbered(tp, 1, 2))
	stays := start(t.Context(), t, l, numbered(tp, 2, 3))
	g.open()
	<-tried
	cancel()
	if err := <-leaves; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	close(goOn)
	for _, o := range []result{first, stays} {
		if err := <-o; err != nil {
			t.Error(err)
		}
	}
	if got := all(t, l, tp); got[len(got)-1] != text(2) {
		t.Errorf("log holds %v", got)
	}
}

// Nobody waits for the request any more, so it is not tried again, and the lane takes new calls.
func TestRetriesEndWithTheLastCall(t *testing.T) {
	c := fake(t)
	l := open(t, Config{Brokers: c.ListenAddrs(), Patience: time.Hour})
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	var failing atomic.Bool
	failing.Store(true)
	failed := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !failing.Load() {
			return nil, nil, false
		}
		select {
		case failed <- struct{}{}:
		default:
		}
		return refusal(kreq.(*kmsg.ProduceRequest), int16(kafkago.NotEnoughReplicas)), nil, true
	})
	ctx, cancel := context.WithCancel(t.Context())
	calls := make(chan error)
	for i := range 3 {
		go func() { calls <- l.Append(ctx, numbered(tp, i, i+1)) }()
	}
	<-failed
	cancel()
	for range 3 {
		if err := <-calls; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	failing.Store(false)
	if err := l.Append(t.Context(), numbered(tp, 10, 11)); err != nil {
		t.Fatal(err)
	}
}

// If the broker refuses a shared request, only the calls with a record that it refuses fail. Each
// learns how many of its own records are in the log.
func TestRefusedRecordFailsItsCallAlone(t *testing.T) {
	g, l, tp, first := occupied(t)
	g.judge = func(records []byte) int16 {
		if bytes.Contains(records, []byte("poison")) {
			return int16(kafkago.InvalidRecord)
		}
		return 0
	}
	poisoned := func(from, to, at int) []domain.Record {
		recs := numbered(tp, from, to)
		recs[at].Value = []byte("poison")
		return recs
	}
	for i, c := range []struct {
		recs  []domain.Record
		acked int // -1: all
	}{
		{numbered(tp, 1, 11), -1},
		{poisoned(1000, 1003, 1), 0},
		{numbered(tp, 11, 21), -1},
		{poisoned(2000, 4500, 1500), 977}, // what the first request has room for; it fails in the second
		{numbered(tp, 21, 31), -1},
	} {
		o := start(t.Context(), t, l, c.recs)
		defer func() {
			err := <-o
			var failed *PartitionError
			switch {
			case c.acked < 0 && err != nil:
				t.Errorf("call %d: %v", i, err)
			case c.acked >= 0 && (!errors.As(err, &failed) || failed.Acknowledged != c.acked || !errors.Is(err, kafkago.InvalidRecord)):
				t.Errorf("call %d: %v, want %d records acknowledged", i, err, c.acked)
			}
			if i == 0 { // the last deferred call: all have ended
				want := 1 + 30 + 977
				if got := all(t, l, tp); len(got) != want || slices.Contains(got, "poison") {
					t.Errorf("log holds %d records, want %d", len(got), want)
				}
			}
		}()
	}
	g.open()
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	g, l, tp, first := occupied(t)
	calls := []result{first}
	for i := range 5 {
		calls = append(calls, start(t.Context(), t, l, numbered(tp, 1+i, 2+i)))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i, o := range calls {
		if err := <-o; !errors.Is(err, ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := l.Append(t.Context(), numbered(tp, 9, 10)); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	g.open()
	if got := all(t, openFake(t, g.Cluster), tp); len(got) > 1 {
		t.Errorf("log holds %v", got)
	}
}

// An error of Guard ends the calls of one request. The next request asks again.
func TestGuardEndsTheCallsOfOneRequest(t *testing.T) {
	g, l, tp, first := occupied(t)
	no := errors.New("no")
	asked := 0
	l.Guard = func(context.Context, domain.TopicPartition, bool) error {
		if asked++; asked == 1 {
			return no
		}
		return nil
	}
	var calls []result
	for i := range 3 {
		calls = append(calls, start(t.Context(), t, l, numbered(tp, 1000*i, 1000*i+400)))
	}
	g.open()
	if err := <-first; err != nil {
		t.Error(err)
	}
	for i, o := range calls { // all of them have records in the first request
		if err := <-o; !errors.Is(err, no) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := l.Append(t.Context(), numbered(tp, 1, 2)); err != nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if got := all(t, l, tp); !slices.Equal(got, []string{text(0), text(1)}) {
		t.Errorf("log holds %v", got)
	}
}

// Writers that give up and send again, on a broker that fails now and then: nothing acknowledged
// is missing, and what a writer sends first is first in the log.
func TestOrderOfManyWriters(t *testing.T) {
	const writers, records = 24, 40
	c := fake(t)
	l := open(t, Config{Brokers: c.ListenAddrs()})
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	var n atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		codes := []int16{int16(kafkago.NotEnoughReplicas), 0, 0, int16(kafkago.InvalidRecord), 0}
		if code := codes[n.Add(1)%int64(len(codes))]; code != 0 {
			return refusal(kreq.(*kmsg.ProduceRequest), code), nil, true
		}
		return nil, nil, false
	})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for i := 0; i < records; {
				recs := numbered(tp, w*1000+i, w*1000+min(i+1+rng.IntN(3), records))
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
				}
				err := l.Append(ctx, recs)
				cancel()
				var failed *PartitionError
				switch {
				case err == nil:
					i += len(recs)
				case !errors.As(err, &failed) || !errors.Is(err, context.Canceled) && !errors.Is(err, kafkago.InvalidRecord):
					t.Error(err)
					return
				default:
					i += failed.Acknowledged
				}
				for j := range recs { // the race detector notices if it is still read
					copy(recs[j].Value, "scribble")
				}
			}
		})
	}
	wg.Wait()
	var want, got [writers][]string
	for _, v := range dropRepeats(all(t, l, tp)) {
		w := order([]string{v})[0] / 1000
		got[w] = append(got[w], v)
	}
	for w := range writers {
		for i := range records {
			want[w] = append(want[w], text(w*1000+i))
		}
		if !slices.Equal(got[w], want[w]) {
			t.Errorf("writer %d: %s", w, fmt.Sprint(strings.Join(got[w], ", ")))
		}
	}
}
