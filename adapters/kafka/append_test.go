package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
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

func TestAppendKeepsOrderAcrossBatches(t *testing.T) {
	for _, codec := range []Codec{Zstd, LZ4} {
		l := openAny(t)
		l.cfg.Codec = codec
		topic := newTopic(t, l, 3)
		var recs []domain.Record
		for i := range 7500 { // interleaved
			recs = append(recs, numbered(domain.TopicPartition{Topic: topic, Partition: i % 3}, i, i+1)...)
		}
		if err := l.Append(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
		for p := range 3 {
			got := all(t, l, domain.TopicPartition{Topic: topic, Partition: p})
			if len(got) != 2500 {
				t.Fatalf("partition %d holds %d records", p, len(got))
			}
			for i, v := range got {
				if v != text(3*i+p) {
					t.Fatalf("partition %d, offset %d: %s", p, i, v)
				}
			}
		}
	}
}

func TestAppendNothing(t *testing.T) {
	if err := openAny(t).Append(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func TestAppendGivesTime(t *testing.T) {
	l := openAny(t)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	before := domain.InstantOf(time.Now().Truncate(time.Millisecond))
	recs := numbered(tp, 0, 2)
	recs[1].Time = 0
	if err := l.Append(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
	after := domain.InstantOf(time.Now())
	err := l.Read(t.Context(), tp, 0, 2, func(got []domain.Record) error {
		if got[0].Time != recs[0].Time {
			t.Errorf("time given is read as %v", got[0].Time)
		}
		if got[1].Time < before || got[1].Time > after {
			t.Errorf("time not given is read as %v", got[1].Time)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAppendTooLarge(t *testing.T) {
	l := openAny(t)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	recs := numbered(tp, 0, 3)
	noise := make([]byte, MaxRecordBytes-1)
	for i := range noise { // incompressible
		noise[i] = byte(uint32(i) * 2654435761 >> 23)
	}
	recs[1].Value = noise
	if err := l.Append(t.Context(), recs); err != nil {
		t.Fatalf("largest record: %v", err)
	}
	recs[1].Headers = []domain.Header{{Key: "h"}}
	err := l.Append(t.Context(), recs)
	var large *TooLargeError
	if !errors.As(err, &large) || large.Index != 1 || large.Topic != tp.Topic || large.Key != "k" || large.Bytes != MaxRecordBytes+1 {
		t.Fatalf("got %v", err)
	}
	if got := all(t, l, tp); len(got) != 3 || got[1] != string(noise) {
		t.Fatalf("log holds %d records", len(got))
	}
}

// lossy is a dialler. Its first lose connections with a produce request break after the request was
// sent, before the answer is read.
type lossy struct {
	lose atomic.Int64
	lost atomic.Int64
}

func (d *lossy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &lossyConn{Conn: c, d: d}, err
}

type lossyConn struct {
	net.Conn
	d       *lossy
	produce atomic.Bool
	rest    int // missing bytes of the request
	key     int16
}

// Write detects when a complete produce request was sent. kafka-go may write a request in pieces.
func (c *lossyConn) Write(b []byte) (int, error) {
	if c.rest == 0 {
		c.rest = int(binary.BigEndian.Uint32(b)) + 4
		c.key = int16(binary.BigEndian.Uint16(b[4:]))
	}
	n, err := c.Conn.Write(b)
	c.rest -= n
	if c.rest == 0 && c.key == int16(kmsg.Produce) {
		c.produce.Store(true)
	}
	return n, err
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.produce.Swap(false) && c.d.lose.Add(-1) >= 0 {
		c.d.lost.Add(1)
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// dropRepeats keeps the first of each value, as a fold does by sequence.
func dropRepeats(vs []string) []string {
	var out []string
	for _, v := range vs {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func TestLostAcknowledgementRepeatsInOrder(t *testing.T) {
	c := fake(t)
	d := &lossy{}
	l := open(t, Config{Brokers: c.ListenAddrs(), Dial: d.dial})
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	var want []string
	for i := range 20 {
		if i%4 == 1 {
			d.lose.Store(2)
		}
		if err := l.Append(t.Context(), numbered(tp, i, i+1)); err != nil {
			t.Fatal(err)
		}
		want = append(want, text(i))
	}
	got := all(t, l, tp)
	if d.lost.Load() != 10 || len(got) != 30 {
		t.Fatalf("lost %d answers, log holds %d records", d.lost.Load(), len(got))
	}
	if !slices.Equal(dropRepeats(got), want) || !slices.IsSorted(order(got)) {
		t.Fatalf("log holds %v", got)
	}
}

func order(vs []string) []int {
	var ns []int
	for _, v := range vs {
		var n int
		fmt.Sscanf(v, "value %d", &n)
		ns = append(ns, n)
	}
	return ns
}

// refuse answers the next n produce requests with an error code.
func refuse(c *kfake.Cluster, n int, code int16) {
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n--; n == 0 {
			c.DropControl()
		}
		return refusal(kreq.(*kmsg.ProduceRequest), code), nil, true
	})
}

// refusal answers a produce request with an error code for every partition.
func refusal(req *kmsg.ProduceRequest, code int16) kmsg.Response {
	res := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return res
}

func TestAppendRetriesWhatPasses(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	refuse(c, 3, int16(kafkago.NotEnoughReplicas))
	if err := l.Append(t.Context(), numbered(tp, 0, 5)); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l, tp); len(got) != 5 {
		t.Fatalf("log holds %v", got)
	}
}

func TestAppendSaysWhichPartitionFailed(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	topic := newTopic(t, l, 2)
	good, bad := domain.TopicPartition{Topic: topic, Partition: 0}, domain.TopicPartition{Topic: topic, Partition: 1}
	batches := 0
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		p := kreq.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Partition
		if p == 1 {
			batches++
		}
		if batches < 2 || p == 0 {
			return nil, nil, false
		}
		res := kreq.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = string(topic)
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.Partition, rp.ErrorCode = 1, int16(kafkago.TopicAuthorizationFailed)
		rt.Partitions = append(rt.Partitions, rp)
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
	err := l.Append(t.Context(), append(numbered(good, 0, 10), numbered(bad, 0, 2500)...))
	var failed *PartitionError
	if !errors.As(err, &failed) || failed.Partition != bad || failed.Acknowledged != maxBatchRecords || !errors.Is(err, kafkago.TopicAuthorizationFailed) {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), bad.String()) {
		t.Errorf("error does not name the partition: %v", err)
	}
	if g, b := len(all(t, l, good)), len(all(t, l, bad)); g != 10 || b != maxBatchRecords {
		t.Fatalf("log holds %d and %d records", g, b)
	}
}

func TestAppendGivesUp(t *testing.T) {
	c := fake(t)
	l := open(t, Config{Brokers: c.ListenAddrs(), Patience: time.Millisecond})
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	refuse(c, 1000, int16(kafkago.NotEnoughReplicas))
	if err := l.Append(t.Context(), numbered(tp, 0, 1)); !errors.Is(err, kafkago.NotEnoughReplicas) {
		t.Fatalf("got %v", err)
	}
}

// A cancelled append leaves its request in flight. The next append must not overtake it, and the
// caller's memory must not be read any more.
func TestCancelledAppendIsNotOvertaken(t *testing.T) {
	c := fake(t, kfake.SleepOutOfOrder())
	l := openFake(t, c)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() {
			close(arrived)
			c.SleepControl(func() { <-goOn })
		})
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	recs := numbered(tp, 0, 1)
	failed := make(chan error)
	go func() { failed <- l.Append(ctx, recs) }()
	<-arrived
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	copy(recs[0].Value, "scribble")
	second := make(chan error)
	go func() { second <- l.Append(t.Context(), numbered(tp, 1, 2)) }()
	select {
	case err := <-second:
		t.Fatalf("overtook the request in flight: %v", err)
	case <-time.After(50 * time.Millisecond): // usually long enough to catch an overtaking append
	}
	close(goOn)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if got := all(t, l, tp); !slices.Equal(got, []string{text(0), text(1)}) {
		t.Fatalf("log holds %v", got)
	}
}

func TestAppendConcurrently(t *testing.T) {
	l := openAny(t)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				if err := l.Append(t.Context(), numbered(tp, w*1000+2*i, w*1000+2*i+2)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	last := map[int]int{}
	got := order(all(t, l, tp))
	for _, n := range got {
		if n%1000 != last[n/1000] {
			t.Fatalf("writer %d: %d after %d", n/1000, n%1000, last[n/1000])
		}
		last[n/1000]++
	}
	if len(got) != 400 {
		t.Fatalf("log holds %d records", len(got))
	}
}
