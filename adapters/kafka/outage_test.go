package kafka

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"quartermaster/domain"
)

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	all  []string
	more chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// await waits until part is in one of the lines.
func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	for l.count(part) == 0 {
		select {
		case <-l.more:
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
}

// The begin and the end of an outage are logged once each, for any number of readers and
// subscriptions.
func TestOutageIsSaidOnce(t *testing.T) {
	b := newRestartable(t)
	b.start(t)
	logged := &lines{more: make(chan struct{}, 1)}
	logger := slog.New(slog.NewTextHandler(logged, nil))
	var failed atomic.Int64
	fail := make(chan struct{}, 1)
	l := open(t, Config{Brokers: []string{b.address()}, Logger: logger, MaxWait: 100 * time.Millisecond,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				failed.Add(1)
				select {
				case fail <- struct{}{}:
				default:
				}
			}
			return c, err
		}})
	const partitions = 8
	spec := []domain.TopicSpec{{Topic: "t", Partitions: partitions}}
	if err := l.EnsureTopics(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for p := range partitions {
		wg.Go(func() {
			_ = l.Follow(ctx, domain.TopicPartition{Topic: "t", Partition: p}, 0, func([]domain.Record) error { return nil })
		})
	}
	sub := NewSubscriber(l, SubscriberConfig{Group: "g", Logger: watermill.NewSlogLogger(logger)})
	if _, err := sub.Subscribe(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	b.stop()
	logged.await(t, "the log does not answer")
	logged.await(t, "join group; trying again")
	for enough := failed.Load() + 3*partitions; failed.Load() < enough; { // every reader has tried once more
		<-fail
	}
	b.start(t)
	logged.await(t, "the log answers again")
	logged.await(t, "joined the group again")
	cancel()
	wg.Wait()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"the log does not answer", "the log answers again", "join group; trying again", "joined the group again"} {
		if n := logged.count(part); n != 1 {
			t.Errorf("%q is there %d times", part, n)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(logged.all, ""))
	}
}

// A continuing failure is logged when it begins, when it becomes grave, and at intervals.
func TestFailures(t *testing.T) {
	var f failures
	at := time.Unix(0, 0)
	for i, c := range []struct {
		after time.Duration
		grave bool
		say   bool
	}{{0, false, true}, {time.Second, false, false}, {time.Second, true, true}, {time.Second, true, false}, {58 * time.Second, false, false}, {time.Second, true, true}} {
		at = at.Add(c.after)
		if say := f.fail(at, c.grave); say != c.say {
			t.Errorf("failure %d: said %t, want %t", i, say, c.say)
		}
	}
	if lasted := f.end(at); lasted != 62*time.Second {
		t.Errorf("lasted %s", lasted)
	}
	if lasted := f.end(at); lasted != 0 || !f.fail(at, false) {
		t.Errorf("it is not over: %s", lasted)
	}
}
