package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"quartermaster/domain"
	"quartermaster/domain/long"
)

// Known defects of kafka-go v0.4.51. The tests of this file show first the behaviour of kafka-go,
// where that is cheap, and then that the log does not have the defect.
//
//	kafka-go                                     its source               the log                                   held by
//	Writer{} waits for no acknowledgement:       writer.go:150,           all in-sync replicas, always              TestWriterLosesSilently
//	  nil although nothing was written           #1181
//	A retry after a lost answer appends twice:   writer.go:1110,          repeats, in order, that the sequence      TestWriterRetryAppendsTwice, TestStreamOverBrokenConnections,
//	  no idempotence                             record_v2.go:205, #797     shows and folds drop                      TestLostAcknowledgementRepeatsInOrder, projections.Stream
//	A cancelled write goes on, out of the        writer.go:1110           the partition is held until the answer    TestCancelledAppendIsNotOvertaken
//	  caller's sight and over its memory
//	Offset before the log's begin: jumps there,  reader.go:1393, 1470,    ErrTrimmed                                TestReaderJumpsSilently, TestOffsetsOutOfRangeAreHardStops,
//	  also with OffsetOutOfRangeError              #34                                                                TestTrimmedWhileFollowing, TestEveryOffsetIsChecked
//	Offset after the log's end: waits for ever,  reader.go:1279, #891     ErrTrimmed                                TestOffsetsOutOfRangeAreHardStops
//	Topic deleted, created again and filled:     Fetch up to v11 only,    fetches by topic id, RecreatedError       TestReaderPassesFromTopicToTopic, TestRecreatedTopic
//	  reads on in the new one                      Metadata up to v8
//	Checksums of batches are not compared        message_reader.go:455    ErrCorrupt                                TestReaderHandsOutDamage, TestEveryOffsetIsChecked
//	Stale messages after a rebalance, from a     reader.go:840, #1398     no queue; contexts end with the           TestRebalances
//	  queue of 100 that is not emptied                                      generation
//	A group's first offsets depend on when it    #904, #1319              a group begins at the first offset        watermill suite: grouped, ordered
//	  first commits (LastOffset)
//	A moved leader is seen after MetadataTTL     transport.go:526         tries on within Patience; reads resume    TestMovedLeader, TestLeaderKilled
//	  only, errors of refreshing are dropped                                at the offset that is next
//	Keys are spread by FNV-1a                    balancer.go:163          murmur2, as every other client            TestKeysAreSpreadAsByOthers

// until waits until a condition is true.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
}

// follow is Follow, and calls yield with records only.
func follow(ctx context.Context, l *Log, tp domain.TopicPartition, from int64, yield func([]domain.Record) error) error {
	return l.Follow(ctx, tp, from, func(recs []domain.Record) error {
		if len(recs) == 0 {
			return nil
		}
		return yield(recs)
	})
}

func TestWriterLosesSilently(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	die := func() { // the broker dies while it processes the next produce request
		c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("out of memory"), true
		})
	}
	w := kafkago.Writer{Addr: kafkago.TCP(c.ListenAddrs()...), Topic: string(tp.Topic), BatchTimeout: time.Millisecond}
	defer w.Close()
	die()
	if err := w.WriteMessages(t.Context(), kafkago.Message{Value: []byte("lost")}); err != nil {
		t.Logf("kafka-go has learnt to report it: %v", err)
	}
	die()
	if err := l.Append(t.Context(), numbered(tp, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l, tp); !slices.Contains(got, text(0)) || slices.Contains(got, "lost") {
		t.Fatalf("log holds %q", got)
	}
}

func TestWriterRetryAppendsTwice(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	d := &lossy{}
	w := kafkago.Writer{
		Addr: kafkago.TCP(c.ListenAddrs()...), Topic: string(tp.Topic), RequiredAcks: kafkago.RequireAll,
		BatchTimeout: time.Millisecond, Transport: &kafkago.Transport{Dial: d.dial},
	}
	defer w.Close()
	d.lose.Store(1)
	if err := w.WriteMessages(t.Context(), kafkago.Message{Value: []byte("once")}); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l, tp); !slices.Equal(got, []string{"once", "once"}) {
		t.Fatalf("log holds %q: kafka-go has become idempotent, sequences have less to do", got)
	}
}

// readerOf is kafka-go's own reader with its most careful configuration.
func readerOf(t *testing.T, l *Log, tp domain.TopicPartition, at int64) *kafkago.Reader {
	t.Helper()
	return readerBy(t, kafkago.DefaultDialer, l, tp, at)
}

func readerBy(t *testing.T, dialer *kafkago.Dialer, l *Log, tp domain.TopicPartition, at int64) *kafkago.Reader {
	t.Helper()
	r := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: l.cfg.Brokers, Topic: string(tp.Topic), Partition: tp.Partition, Dialer: dialer,
		OffsetOutOfRangeError: true, MaxWait: 100 * time.Millisecond, ReadLagInterval: -1,
	})
	t.Cleanup(func() { r.Close() })
	if err := r.SetOffset(at); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReaderJumpsSilently(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	if _, err := deleteRecords(t, l, tp, 20); err != nil {
		t.Fatal(err)
	}
	m, err := readerOf(t, l, tp, 0).ReadMessage(t.Context())
	if err != nil || m.Offset != 20 {
		t.Fatalf("kafka-go asked for offset 0 gives %d, %v", m.Offset, err)
	}
	wantTrimmed(t, follow(t.Context(), l, tp, 0, nil), TrimmedError{tp, 0, 20})
}

func TestReaderHandsOutDamage(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	b, _, err := testEncoder(Codec(-1)).encode(numbered(tp, 0, 1)) // not compressed, because compressed data has its own checksums
	if err != nil {
		t.Fatal(err)
	}
	b = fill(slices.Clone(b), 0)
	at := strings.LastIndex(string(b), text(0))
	b[at+len("value ")]++
	if err := l.Append(t.Context(), numbered(tp, 0, 1)); err != nil { // so that the offset exists
		t.Fatal(err)
	}
	serve(c, tp, 1, b)
	m, err := readerOf(t, l, tp, 0).ReadMessage(t.Context())
	if err != nil || string(m.Value) != text(1) {
		t.Logf("kafka-go has learnt to notice: %q, %v", m.Value, err)
	}
	if err := follow(t.Context(), l, tp, 0, func([]domain.Record) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
}

// recreate deletes a topic and creates it again.
func recreate(t *testing.T, l *Log, topic domain.Topic, partitions int) {
	t.Helper()
	res, err := l.client.DeleteTopics(t.Context(), &kafkago.DeleteTopicsRequest{Topics: []string{string(topic)}})
	if err == nil {
		err = res.Errors[string(topic)]
	}
	if err != nil {
		t.Fatal(err)
	}
	for { // a cluster takes a while to delete a topic
		again := open(t, l.cfg)
		if err = again.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: topic, Partitions: partitions}}); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// turnstile blocks requests while it is shut.
type turnstile struct {
	shut   atomic.Bool
	waits  chan struct{} // a request is blocked
	opened chan struct{}
}

type heldConn struct {
	net.Conn
	*turnstile
}

func (c heldConn) Write(b []byte) (int, error) {
	if c.shut.Load() {
		select {
		case c.waits <- struct{}{}:
		default:
		}
		<-c.opened
	}
	return c.Conn.Write(b)
}

func TestReaderPassesFromTopicToTopic(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	turn := &turnstile{waits: make(chan struct{}, 1), opened: make(chan struct{})}
	r := readerBy(t, &kafkago.Dialer{DialFunc: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return heldConn{c, turn}, err
	}}, l, tp, 49)
	if m, err := r.ReadMessage(t.Context()); err != nil || string(m.Value) != text(49) {
		t.Fatalf("%q, %v", m.Value, err)
	}
	// It fetches again once the new topic is filled. A fetch before that gets an out-of-range
	// error.
	turn.shut.Store(true)
	<-turn.waits
	free := sync.OnceFunc(func() { close(turn.opened) })
	defer free()
	recreate(t, l, tp.Topic, 1)
	err := open(t, l.cfg).Append(t.Context(), numbered(tp, 100, 160))
	free()
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.ReadMessage(t.Context())
	if err != nil || m.Offset != 50 || string(m.Value) != text(150) {
		t.Fatalf("kafka-go goes on with offset %d, %q, %v", m.Offset, m.Value, err)
	}
}

func TestRecreatedTopic(t *testing.T) {
	for _, again := range []int{0, 30, 60} { // records in the new topic, while a follower waits at 50
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			l := openAny(t)
			tp := fill50(t, l, 1)
			before, err := l.TopicIDs(t.Context(), tp.Topic)
			if err != nil || len(before[tp.Topic]) != 22 {
				t.Fatal(before, err)
			}
			waiting, stopped := make(chan struct{}), make(chan error)
			go func() {
				stopped <- follow(t.Context(), l, tp, 0, func(recs []domain.Record) error {
					if recs[len(recs)-1].Offset == 49 {
						close(waiting)
					} else if recs[len(recs)-1].Offset > 49 {
						t.Error("records of another topic were handed out")
					}
					return nil
				})
			}()
			<-waiting
			recreate(t, l, tp.Topic, 1)
			other := open(t, l.cfg)
			if err := other.Append(t.Context(), numbered(tp, 100, 100+again)); err != nil {
				t.Fatal(err)
			}
			after, err := other.TopicIDs(t.Context(), tp.Topic)
			if err != nil || after[tp.Topic] == before[tp.Topic] {
				t.Fatalf("ids before %v and after %v, %v", before, after, err)
			}
			want := RecreatedError{tp.Topic, before[tp.Topic], after[tp.Topic]}
			check := func(err error) {
				t.Helper()
				var got *RecreatedError
				if !errors.Is(err, ErrTrimmed) || !errors.As(err, &got) || *got != want {
					t.Errorf("got %v, want %v", err, &want)
				}
			}
			check(<-stopped)
			check(l.Read(t.Context(), tp, 0, 30, nil))
			_, err = l.TopicIDs(t.Context(), tp.Topic)
			check(err)
		})
	}
}

// A log whose brokers do not support topic ids, such as the embedded one, is read by name.
func TestReadByName(t *testing.T) {
	l := openFake(t, fake(t, kfake.MaxVersions(kversion.V2_4_0())))
	if l.byID {
		t.Fatal("asks for records by id")
	}
	if got := order(all(t, l, fill50(t, l, 1))); len(got) != 50 || !slices.IsSorted(got) {
		t.Fatalf("got %v", got)
	}
	if ids, err := l.TopicIDs(t.Context()); err != nil || len(ids) != 0 {
		t.Fatal(ids, err)
	}
}

func TestTopicIDs(t *testing.T) {
	l := open(t, Config{Brokers: fake(t).ListenAddrs(), Patience: time.Millisecond})
	if _, err := l.TopicIDs(t.Context()); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
		t.Fatalf("without topics: %v", err)
	}
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	ids, err := l.TopicIDs(t.Context())
	if err != nil || len(ids) != len(domain.TopicSpecs()) {
		t.Fatal(ids, err)
	}
	seen := map[string]bool{}
	for topic, id := range ids {
		if len(id) != 22 || seen[id] {
			t.Errorf("%s has id %q", topic, id)
		}
		seen[id] = true
	}
}

func FuzzTopicIDs(f *testing.F) {
	id := topicID{1: 7, 15: 9}
	answer := []byte{0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 2, 'h', 0, 0, 0x23, 0x84, 0, 0, 2, 'c', 0, 0, 0, 1, 2, 0, 0, 2, 't'}
	answer = append(append(answer, id[:]...), 0, 2)
	answer = append(answer, make([]byte, 14)...)
	answer = append(answer, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0)
	if ids, err := parseTopicIDs(&cursor{b: answer}); err != nil || ids["t"] != id {
		f.Fatal(ids, err)
	}
	f.Add(answer)
	f.Fuzz(func(t *testing.T, answer []byte) {
		if ids, err := parseTopicIDs(&cursor{b: answer}); err == nil && len(ids) > len(answer)/20 {
			t.Fatalf("%d topics in %d bytes", len(ids), len(answer))
		}
	})
}

func FuzzFetchAnswerByID(f *testing.F) {
	tp := domain.TopicPartition{Topic: "t"}
	b, _, err := testEncoder(Zstd).encode(numbered(tp, 0, 3))
	if err != nil {
		f.Fatal(err)
	}
	r := &reader{tp: tp, to: 100, topic: topicID{3: 1}}
	res := kmsg.NewPtrFetchResponse()
	res.SetVersion(fetchByID)
	rt := kmsg.NewFetchResponseTopic()
	rt.TopicID = r.topic
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.HighWatermark, rp.RecordBatches = 3, b
	rp.DivergingEpoch.Epoch = 4 // a tagged field
	rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{}}
	rt.Partitions = append(rt.Partitions, rp)
	res.Topics = append(res.Topics, rt)
	answer := append([]byte{0}, res.AppendTo(nil)...) // no tagged fields in the header
	c := cursor{b: answer}
	if set, end, code := r.parseByID(&c); c.bad || len(c.b) > 0 || len(set) != len(b) || end != 3 || code != 0 {
		f.Fatal("the seed is not an answer")
	}
	f.Add(answer)
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := cursor{b: answer}
		set, _, _ := r.parseByID(&c)
		if c.bad {
			return
		}
		if next, err := r.check(set); err == nil && next < r.next {
			t.Fatalf("goes back to offset %d", next)
		}
	})
}

func TestCheckTopics(t *testing.T) {
	l := openAny(t)
	topic := newTopic(t, l, 2)
	specs := []domain.TopicSpec{{Topic: topic, Partitions: 2}}
	if err := l.CheckTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	res, err := l.client.CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: string(topic), Count: 3}}})
	if err == nil {
		err = res.Errors[string(topic)]
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { // metadata is up to metadataTTL old
		err := l.CheckTopics(t.Context(), specs)
		var refused *SettingError
		if errors.As(err, &refused) && *refused == (SettingError{topic, "partitions", "3", "2"}) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		return false
	})
	missing := open(t, Config{Brokers: l.cfg.Brokers, Patience: time.Millisecond})
	if err := missing.CheckTopics(t.Context(), []domain.TopicSpec{{Topic: "no-such-topic", Partitions: 1}}); !errors.Is(err, kafkago.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "no-such-topic") {
		t.Fatalf("a topic that does not exist: %v", err)
	}
}

func TestKeysAreSpreadAsByOthers(t *testing.T) {
	other := kgo.StickyKeyPartitioner(nil).ForTopic("t") // like Java's
	for i := range 1000 {
		key := make([]byte, i%40+1)
		for j := range key {
			key[j] = byte(rand.Uint32())
		}
		if got, want := domain.PartitionOf(key, 7), other.Partition(&kgo.Record{Key: key}, 7); got != want {
			t.Fatalf("key %x goes to partition %d, elsewhere to %d", key, got, want)
		}
	}
}

func TestMovedLeader(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	l := openFake(t, c)
	l.cfg.Patience = 30 * time.Second
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen atomic.Int64
	followed := make(chan error)
	go func() {
		followed <- follow(ctx, l, tp, 0, func(recs []domain.Record) error { seen.Add(int64(len(recs))); return nil })
	}()
	for i := range 12 {
		if i%4 == 3 {
			if err := c.MoveTopicPartition(string(tp.Topic), 0, (c.LeaderFor(string(tp.Topic), 0)+1)%3); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Append(t.Context(), numbered(tp, i, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return seen.Load() == 12 })
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := order(all(t, l, tp)); len(got) != 12 || !slices.IsSorted(got) {
		t.Fatalf("log holds %v", got)
	}
}

// freePort finds a port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	return n.Addr().(*net.TCPAddr).Port
}

// restartable is a broker on a fixed port that keeps its records in a directory.
type restartable struct {
	port int
	dir  string

	mu      sync.Mutex
	cluster *kfake.Cluster
}

func newRestartable(t *testing.T) *restartable {
	b := &restartable{port: freePort(t), dir: t.TempDir()}
	t.Cleanup(b.stop)
	return b
}

func (b *restartable) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

func (b *restartable) start(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(b.port), kfake.DataDir(b.dir), kfake.SyncWrites())
	if err != nil {
		t.Error(err)
		return
	}
	b.cluster = c
}

func (b *restartable) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cluster != nil {
		b.cluster.Close()
		b.cluster = nil
	}
}

func TestBrokerIsDown(t *testing.T) {
	b := newRestartable(t)
	address := b.address()

	_, err := Open(t.Context(), Config{Brokers: []string{address}, Patience: time.Millisecond})
	for _, say := range []string{"no Kafka broker answered at " + address, "tried for 1ms", "refused", "start Kafka"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("error does not say %q: %v", say, err)
		}
	}

	opened := make(chan *Log)
	failed := make(chan struct{}, 1)
	go func() { // Open waits until the broker starts
		l, err := Open(t.Context(), Config{Brokers: []string{address}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				select {
				case failed <- struct{}{}:
				default:
				}
			}
			return c, err
		}})
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	<-failed
	b.start(t)
	l := <-opened
	if l == nil {
		return
	}
	defer l.Close()

	// Later, appends and readers wait for the broker and continue where they were.
	tp := domain.TopicPartition{Topic: "t"}
	if err := l.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: tp.Topic, Partitions: 1}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var got []string
	followed := make(chan error)
	go func() {
		next := int64(0)
		followed <- follow(ctx, l, tp, 0, func(recs []domain.Record) error {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range recs {
				if r.Offset != next {
					t.Errorf("offset %d instead of %d", r.Offset, next)
				}
				next++
				got = append(got, string(r.Value))
			}
			return nil
		})
	}()
	var want []string
	for i := range 30 {
		if i%10 == 5 {
			b.stop()
			time.AfterFunc(100*time.Millisecond, func() { b.start(t) })
		}
		if err := l.Append(t.Context(), numbered(tp, i, i+1)); err != nil {
			t.Fatal(err)
		}
		want = append(want, text(i))
	}
	until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(dropRepeats(got)) == len(want)
	})
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if !slices.Equal(dropRepeats(got), want) || !slices.IsSorted(order(got)) {
		t.Errorf("followed %v", got)
	}
}

// The time is the producer's. Folds handle wrong clocks.
func TestClockAnHourOff(t *testing.T) {
	l := openAny(t)
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	now := domain.InstantOf(time.Now().Truncate(time.Millisecond))
	var recs []domain.Record
	for _, off := range []domain.Instant{-48 * domain.Hour, -domain.Hour, 0, domain.Hour, 2 * domain.Hour, 48 * domain.Hour, -domain.Hour} {
		r := numbered(tp, len(recs), len(recs)+1)[0]
		r.Time = now + off
		recs = append(recs, r)
	}
	if err := l.Append(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
	i := 0
	err := follow(t.Context(), l, tp, 0, func(got []domain.Record) error {
		for _, r := range got {
			if r.Time != recs[i].Time || string(r.Value) != text(i) {
				t.Errorf("record %d has time %v, was given %v", i, r.Time, recs[i].Time)
			}
			i++
		}
		if i == len(recs) {
			return io.EOF
		}
		return nil
	})
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// A record that another program wrote with a higher limit is delivered like any other, for a fold to
// quarantine. Our own are refused before they are sent (TestAppendTooLarge). Its memory is released.
func TestRecordOf20MB(t *testing.T) {
	l := openAny(t)
	tp := fill50(t, l, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.cfg.Brokers...), kgo.ProducerBatchMaxBytes(64<<20), kgo.BrokerMaxWriteBytes(80<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, string(tp.Topic)
	limit := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	limit.Name, limit.Value = "max.message.bytes", kmsg.StringPtr(fmt.Sprint(64<<20))
	res.Configs = append(res.Configs, limit)
	alter.Resources = append(alter.Resources, res)
	if answer, err := alter.RequestWith(t.Context(), cl); err != nil || answer.Resources[0].ErrorCode != 0 {
		t.Fatal(answer, err)
	}
	large := make([]byte, 20<<20)
	for i := range large {
		large[i] = byte(uint32(i) * 2654435761 >> 23)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: string(tp.Topic), Key: []byte("k"), Value: large}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), numbered(tp, 51, 60)); err != nil {
		t.Fatal(err)
	}
	got := values(t, l, tp, 0, 60)
	if len(got) != 60 || got[49] != text(49) || got[50] != string(large) || got[59] != text(59) {
		t.Fatalf("read %d records", len(got))
	}
}

// A batch that decompresses to more than maxPlainBytes is not from this program, and can pass a
// topic's limit only as a decompression bomb. The reader delivers it as a span with a fault.
func TestBatchThatUnpacksToTooMuch(t *testing.T) {
	if testing.Short() {
		t.Skip("packs 64 MB")
	}
	c := fake(t)
	l := openFake(t, c)
	tp := fill50(t, l, 1)
	plain := appendRecord(nil, &domain.Record{Value: make([]byte, maxPlainBytes+1)}, 0, 0)
	b, _, err := testEncoder(Zstd).encode(numbered(tp, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	b = l.zstd.EncodeAll(plain, slices.Clone(b[:headSize]))
	binary.BigEndian.PutUint32(b[headLength:], uint32(len(b)-headMagic+4))
	binary.BigEndian.PutUint16(b[headAttributes:], uint16(compress.Zstd))
	seal(b)
	serve(c, tp, 50, fill(b, 0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var got []domain.Record
	err = l.Read(t.Context(), tp, 0, 1, func(recs []domain.Record) error { got = append(got, recs...); return nil })
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != 1 || got[0].Span == nil || !strings.Contains(got[0].Span.Fault, "unpacks to more than 64 MiB") {
		t.Fatalf("got %v, %v", got, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 3*maxPlainBytes {
		t.Errorf("took %d MB", took>>20)
	}
}

func TestFollowGathers(t *testing.T) {
	l := openAny(t)
	l.cfg.MinBytes, l.cfg.MaxWait = 64<<10, time.Minute
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	const records, size = 40, 5000 // 14 of them fill 64 KiB
	got, batches := 0, 0
	followed := make(chan error)
	go func() {
		followed <- follow(t.Context(), l, tp, 0, func(recs []domain.Record) error {
			batches++
			if got += len(recs); got >= 26 {
				return io.EOF
			}
			return nil
		})
	}()
	for i := range records {
		r := numbered(tp, i, i+1)
		r[0].Value = make([]byte, size)
		for j := range r[0].Value { // incompressible
			r[0].Value[j] = byte(rand.Uint32())
		}
		if err := l.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-followed; !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if batches > 4 {
		t.Errorf("%d records came in %d batches", got, batches)
	}
}

func TestFollowGathersNoLongerThanMaxWait(t *testing.T) {
	l := openAny(t)
	l.cfg.MinBytes, l.cfg.MaxWait = fetchBytes, 50*time.Millisecond
	tp := fill50(t, l, 1)
	if err := follow(t.Context(), l, tp, 49, func([]domain.Record) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for _, bad := range []Config{{MinBytes: -1}, {MinBytes: fetchBytes + 1}, {MaxWait: -1}, {MaxWait: time.Hour}} {
		bad.Brokers = l.cfg.Brokers
		if _, err := Open(t.Context(), bad); err == nil {
			t.Errorf("opened with MinBytes %d and MaxWait %s", bad.MinBytes, bad.MaxWait)
		}
	}
}

// TestRebalances lets members of a group come and go while messages flow. No message is lost or
// skipped, no two members work on a partition at the same time, and a member that knows of a
// rebalance gets nothing more of its old assignment. kafka-go's Reader would first empty a queue
// of up to 100 messages.
func TestRebalances(t *testing.T) {
	const partitions = 4
	l := openAny(t)
	topic := newTopic(t, l, partitions)
	changes := 4
	if long.Run() {
		changes = 30
	}
	type holder struct {
		member int
		ctx    context.Context
	}
	var (
		mu                sync.Mutex
		next              [partitions]int64 // all messages before it were acknowledged
		holds             [partitions]holder
		worked            = map[int]bool{} // members that got a message since the last change
		repeated, refused int
		handlers          sync.WaitGroup
	)
	join := func(member int) *Subscriber {
		s := NewSubscriber(open(t, l.cfg), SubscriberConfig{Group: string(topic), Drain: 100 * time.Millisecond})
		ch, err := s.Subscribe(t.Context(), string(topic))
		if err != nil {
			t.Fatal(err)
		}
		handlers.Go(func() {
			for m := range ch {
				handlers.Go(func() {
					r, _ := RecordFrom(m.Context())
					p := r.Partition
					mu.Lock()
					if m.Context().Err() == nil {
						if h := holds[p]; h.ctx != nil && h.member != member && h.ctx.Err() == nil {
							t.Errorf("member %d gets offset %d of partition %d while member %d is at work", member, r.Offset, p, h.member)
						}
						holds[p] = holder{member, m.Context()}
					}
					if r.Offset > next[p] {
						t.Errorf("member %d gets offset %d of partition %d, %d is not done", member, r.Offset, p, next[p])
					}
					mu.Unlock()
					<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond) // work
					mu.Lock()
					defer mu.Unlock()
					if m.Context().Err() != nil { // too late: it is delivered again
						refused++
						m.Nack()
						return
					}
					if r.Offset < next[p] {
						repeated++
					}
					next[p] = max(next[p], r.Offset+1)
					worked[member] = true
					m.Ack()
				})
			}
		})
		return s
	}
	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	published := make(chan struct{})
	go func() {
		defer close(published)
		for ; ctx.Err() == nil; sent += partitions {
			var recs []domain.Record
			for p := range partitions {
				recs = append(recs, numbered(domain.TopicPartition{Topic: topic, Partition: p}, sent, sent+1)...)
			}
			if err := l.Append(t.Context(), recs); err != nil {
				t.Error(err)
			}
			<-time.After(2 * time.Millisecond)
		}
	}()
	done := func() (n int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range next {
			n += o
		}
		return n
	}
	members, first := []*Subscriber{join(0)}, 0
	// settled waits until every member and every partition has had a message since the last change.
	settled := func() {
		mu.Lock()
		from := next
		clear(worked)
		mu.Unlock()
		until(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			ok := len(worked) == len(members)
			for p := range next {
				ok = ok && next[p] > from[p]
			}
			return ok
		})
	}
	settled()
	for i := range changes {
		if i%3 == 2 || len(members) == partitions {
			members[0].Close()
			members, first = members[1:], first+1
		} else {
			members = append(members, join(first+len(members)))
		}
		settled()
	}
	cancel()
	<-published
	until(t, func() bool { return done() == int64(sent) })
	for _, s := range members {
		s.Close()
	}
	handlers.Wait()
	t.Logf("%d messages, %d changes, %d came again, %d were given up", sent, changes, repeated, refused)
}

// A broker that is restarted twice while messages are published and handled: all arrive.
// (Watermill's own TestReconnect compares with the messages recorded as published so far, and
// fails if the last few are received before they are recorded.)
func TestReconnect(t *testing.T) {
	b := newRestartable(t)
	b.start(t)
	reconnect(t, Config{Brokers: []string{b.address()}}, func() {
		b.stop()
		b.start(t)
	})
}

func reconnect(t *testing.T, cfg Config, restart func()) {
	messages, publishers := 600, 20
	if long.Run() {
		messages, publishers = 10_000, 100
	}
	l := open(t, cfg)
	p := NewPublisher(l, nil)
	s := NewSubscriber(l, SubscriberConfig{Group: "reconnect", Partitions: 4})
	topic := fmt.Sprintf("reconnect-%d", time.Now().UnixNano())
	if err := s.SubscribeInitialize(topic); err != nil {
		t.Fatal(err)
	}
	ch, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ids, due := make(chan string), make(chan bool, 2)
	wg.Go(func() {
		for range due {
			restart()
		}
	})
	go func() {
		defer close(ids)
		defer close(due)
		for i := range messages {
			if i == messages/3 || i == messages/2 {
				due <- true
			}
			ids <- fmt.Sprint(i)
		}
	}()
	for range publishers {
		wg.Go(func() {
			for id := range ids {
				for {
					err := p.Publish(topic, message.NewMessage(id, []byte("x")))
					if err == nil {
						break
					}
					t.Logf("publish message %s: %v", id, err)
				}
			}
		})
	}
	got := map[string]int{}
	for len(got) < messages {
		m := <-ch
		got[m.UUID]++
		m.Ack()
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	repeats := 0
	for _, n := range got {
		repeats += n - 1
	}
	t.Logf("%d messages, %d came again", messages, repeats)
}
