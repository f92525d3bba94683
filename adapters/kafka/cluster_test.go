package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/adapters/kafka/freeport"
	"quartermaster/domain"
)

// cluster is an Apache Kafka of three brokers that a test may kill, started by the script in
// QM_KAFKA_SH (deploy/dev/kafka.sh).
type cluster struct {
	script, dir string
	port        int
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	script := os.Getenv("QM_KAFKA_SH")
	if script == "" {
		t.Skip("QM_KAFKA_SH names no deploy/dev/kafka.sh to start three brokers with")
	}
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{script: script, dir: filepath.Join(t.TempDir(), "kafka"), port: freeport.Row(t, 6)}
	t.Cleanup(func() {
		if t.Failed() {
			for id := 1; id <= 3; id++ {
				log, _ := exec.Command("tail", "-n", "5", filepath.Join(c.dir, fmt.Sprint("broker-", id), "logs", "server.log")).Output()
				t.Logf("broker %d: %s", id, log)
			}
		}
		c.run(t, "clean")
	})
	if c.run(t, "start"); t.Failed() {
		t.FailNow()
	}
	return c
}

func (c *cluster) run(t testing.TB, command ...string) {
	t.Helper()
	cmd := exec.Command(c.script, append(command, "--dir", c.dir, "--port", strconv.Itoa(c.port), "--brokers", "3", "--heap", "256m")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

func (c *cluster) config() Config {
	cfg := Config{Replication: 3, Patience: 2 * time.Minute}
	for id := range 3 {
		cfg.Brokers = append(cfg.Brokers, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port+2*id)))
	}
	return cfg
}

// leader returns the number of the broker that leads a partition.
func (c *cluster) leader(t *testing.T, l *Log, tp domain.TopicPartition) string {
	t.Helper()
	var at map[domain.TopicPartition]string
	until(t, func() bool {
		var err error
		at, err = l.leaders(t.Context(), string(tp.Topic))
		return err == nil // it fails while there is no leader
	})
	_, port, _ := net.SplitHostPort(at[tp])
	n, _ := strconv.Atoi(port)
	return strconv.Itoa((n-c.port)/2 + 1)
}

// whole waits until every replica of a topic is in sync.
func (c *cluster) whole(t *testing.T, topic domain.Topic) {
	t.Helper()
	l := open(t, c.config())
	defer l.Close()
	until(t, func() bool {
		md, err := l.client.Metadata(t.Context(), &kafkago.MetadataRequest{Topics: []string{string(topic)}})
		return err == nil && len(md.Topics) == 1 &&
			!slices.ContainsFunc(md.Topics[0].Partitions, func(p kafkago.Partition) bool { return len(p.Isr) < 3 })
	})
}

// TestLeaderKilled kills and freezes the broker that leads a partition while a
// source appends to all of them and readers follow: every event is in the log and is
// delivered; without repeats, exactly once and in order.
func TestLeaderKilled(t *testing.T) {
	c := startCluster(t)
	l := open(t, c.config())
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	c.whole(t, domain.TopicFleet)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		mu      sync.Mutex
		marks   = make([]uint64, domain.TopicFleet.Partitions())
		repeats int
		longest time.Duration // in which no reader got a record
		last    = time.Now()
		wg      sync.WaitGroup
	)
	defer wg.Wait()
	defer cancel()
	for p := range marks {
		wg.Go(func() {
			tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: p}
			next := int64(0)
			err := follow(ctx, l, tp, 0, func(recs []domain.Record) error {
				mu.Lock()
				defer mu.Unlock()
				longest, last = max(longest, time.Since(last)), time.Now()
				for i := range recs {
					if recs[i].Offset != next {
						t.Errorf("%s: offset %d instead of %d", tp, recs[i].Offset, next)
					}
					next++
					seq, _ := decoded(&recs[i])
					switch {
					case seq == marks[p]+1:
						marks[p] = seq
					case seq > marks[p]:
						t.Errorf("%s: sequence %d follows %d", tp, seq, marks[p])
					default:
						repeats++
					}
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", tp, err)
			}
		})
	}
	total := func() (n uint64) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range marks {
			n += m
		}
		return n
	}
	enc, scribble := encode()
	s := NewStream(l, StreamConfig{Source: "s", Incarnation: 1, Encode: enc})
	sent := 0
	appendFor := func(until <-chan struct{}) (stall time.Duration) {
		for {
			var es []*domain.Envelope
			for k := range 20 {
				es = append(es, retired(fmt.Sprint("cluster ", k), sent))
				sent++
			}
			begin := time.Now()
			if err := s.Append(ctx, es...); err != nil {
				t.Fatal(err)
			}
			stall = max(stall, time.Since(begin))
			scribble()
			select {
			case <-until:
				return stall
			case <-time.After(2 * time.Millisecond):
			}
		}
	}
	for round, harm := range []string{"kill", "pause", "stop"} {
		tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: round}
		id := c.leader(t, l, tp)
		mu.Lock()
		longest, last = 0, time.Now()
		mu.Unlock()
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.run(t, harm, id)
			until(t, func() bool { return c.leader(t, l, tp) != id })
			from := total()
			until(t, func() bool { return total() > from+1000 })
			c.run(t, map[string]string{"kill": "start", "pause": "resume", "stop": "start"}[harm], id)
			if !t.Failed() {
				c.whole(t, domain.TopicFleet)
			}
		}()
		stall := appendFor(over)
		if t.Failed() {
			t.FailNow()
		}
		mu.Lock()
		t.Logf("%s %s: appends stood still for at most %s, readers for %s", harm, id, stall.Round(10*time.Millisecond), longest.Round(10*time.Millisecond))
		mu.Unlock()
	}
	until(t, func() bool { return total() >= uint64(sent) })
	cancel()
	wg.Wait()
	if total() != uint64(sent) {
		t.Errorf("sent %d events, readers have %d", sent, total())
	}
	for p, m := range marks {
		if got := s.Sequences()[domain.TopicPartition{Topic: domain.TopicFleet, Partition: p}]; got != m {
			t.Errorf("partition %d: stream is at %d, readers at %d", p, got, m)
		}
	}
	t.Logf("%d events, %d repeats", sent, repeats)
}

// TestReconnectCluster is TestReconnect with all brokers of Apache Kafka killed.
func TestReconnectCluster(t *testing.T) {
	c := startCluster(t)
	reconnect(t, c.config(), func() {
		c.run(t, "kill")
		c.run(t, "start")
	})
}

// No error that a changed leader, a restarted or a frozen broker can cause may be permanent.
func TestWhatAClusterAnswersPasses(t *testing.T) {
	for _, e := range []kafkago.Error{
		kafkago.NotLeaderForPartition, kafkago.LeaderNotAvailable, kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable,
		kafkago.NotEnoughReplicas, kafkago.NotEnoughReplicasAfterAppend, kafkago.RequestTimedOut, kafkago.KafkaStorageError,
		kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch, kafkago.OffsetNotAvailable, kafkago.UnknownTopicOrPartition,
		kafkago.UnknownTopicID, kafkago.InconsistentTopicID,
	} {
		if !temporary(fmt.Errorf("fetch: %w", e)) {
			t.Errorf("%s ends a reader", strings.ToLower(e.Title()))
		}
	}
}
