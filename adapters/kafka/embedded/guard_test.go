package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logged collects log lines.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func raw(t testing.TB, b *Broker) net.Conn {
	t.Helper()
	c, err := b.Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// dropped sends bytes and waits for the connection to end.
func dropped(t testing.TB, b *Broker, frame []byte) {
	t.Helper()
	c := raw(t, b)
	c.Write(frame)
	if n, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("after %d bytes: %v", n, err)
	}
}

func frame(key, version int16, body ...byte) []byte {
	b := make([]byte, 14, 14+len(body))
	binary.BigEndian.PutUint16(b[4:], uint16(key))
	binary.BigEndian.PutUint16(b[6:], uint16(version))
	binary.BigEndian.PutUint16(b[12:], 0xffff)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// TestHostileFrames: each connection is dropped with its reason, and the broker continues to serve
// others.
func TestHostileFrames(t *testing.T) {
	var l logged
	b := open(t, Config{Dir: t.TempDir(), Log: l.logger(), FrameTimeout: 100 * time.Millisecond})
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	size := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	for _, h := range []struct {
		name   string
		frame  []byte
		reason string
	}{
		{"unknown key", frame(32000, 0), "request 32000"}, // these 14 bytes crash kfake
		{"negative key", frame(-1, 0), "not served"},
		{"DeleteTopics", frame(20, 1, 0, 0, 0, 0, 0, 0, 0, 0), "DeleteTopics) is not served"},
		{"DeleteRecords, all", frame(21, 1, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0,
			255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1), "names no offset"},
		{"DeleteRecords, short", frame(21, 1, 0, 0, 0, 1, 0, 1, 't'), "malformed"},
		{"AlterConfigs", frame(33, 0, 0, 0, 0, 0, 0), "not served"},
		{"IncrementalAlterConfigs", frame(44, 0, 0, 0, 0, 0, 0), "not served"},
		{"CreatePartitions", frame(37, 0, 0, 0, 0, 0, 0), "not served"},
		{"EndTxn", frame(26, 0), "not served"},
		{"negative version", frame(3, -1), "version -1"},
		{"flexible version", frame(3, 12, 0, 0), "version 12"},
		{"huge length", size(1 << 31), "bytes, 10 to"},
		{"negative length", size(0xffffffff), "-1 bytes"},
		{"length 0", size(0), "0 bytes"},
		{"length over the cap", size(16<<20 + 1), "16777217 bytes"},
		{"length over the cap of its kind", append(size(2<<20), 0, 3, 0, 0, 0, 0, 0, 0), "Metadata of 2097152"},
		{"half a length", []byte{0, 0}, "within its header"},
		{"half a header", size(100, 0, 3), "within its header"},
		{"half a frame", append(size(100), frame(3, 0)[4:]...), "stopped after"},
		{"nothing", nil, ""},
		{"long client id", append(size(10), 0, 3, 0, 0, 0, 0, 0, 0, 0x7f, 0xff), "client id"},
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "bytes, 10 to"},
		{"Produce without body", frame(0, 7), "is malformed"},
		{"Produce of 2^31 topics", frame(0, 7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff), "is malformed"},
		{"Produce to 1,025 partitions", frame(0, 7, append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 4, 1},
			bytes.Repeat([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 1025)...)...), "more than 1024 partitions"},
		{"Produce in a transaction", frame(0, 7, 0, 1, 'x', 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0), "transaction"},
		{"InitProducerID with one", frame(22, 0, 0, 1, 'x', 0, 0, 0, 1), "transaction"},
		{"CreateTopics without body", frame(19, 2), "CreateTopics"},
	} {
		t.Run(h.name, func(t *testing.T) {
			before := len(l.String())
			dropped(t, b, h.frame)
			if got := l.String()[before:]; !strings.Contains(got, h.reason) {
				t.Errorf("logged %q, want %q", got, h.reason)
			}
			if _, err := produceTo(c, "t", 0, h.name); err != nil {
				t.Fatalf("others are not served: %v", err)
			}
		})
	}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
}

// TestRandomFrames sends random bytes, alone and after every admitted key and version.
func TestRandomFrames(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir(), FrameTimeout: time.Second})
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	rounds := 20
	if testing.Short() {
		rounds = 2
	}
	rng := rand.New(rand.NewPCG(7, 11))
	vs := admitted()
	sent := 0
	for range rounds {
		vs.EachMaxKeyVersion(func(key, top int16) {
			for version := range top + 1 {
				body := make([]byte, rng.IntN(80))
				for i := range body {
					body[i] = byte(rng.Uint32())
					if rng.IntN(2) == 0 {
						body[i] = 0 // small counts pass more checks
					}
				}
				nc := raw(t, b)
				nc.Write(frame(key, version, body...))
				nc.(*net.UnixConn).CloseWrite()
				nc.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				io.Copy(io.Discard, nc)
				nc.Close()
				sent++
			}
		})
	}
	t.Logf("%d frames", sent)
	if _, err := produceTo(c, "t", 0, "still here"); err != nil {
		t.Fatal(err)
	}
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	var l logged
	b := open(t, Config{Dir: t.TempDir(), MaxConns: 4, FrameTimeout: 100 * time.Millisecond, Log: l.logger()})
	var held []net.Conn
	for range 4 {
		c := raw(t, b)
		if err := handshake(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	if err := handshake(t.Context(), raw(t, b)); err == nil {
		t.Fatal("a fifth connection is served")
	}
	if !strings.Contains(l.String(), "4 connections are open") {
		t.Fatalf("logged %s", l.String())
	}
	// A connection that has sent a request may be idle; one that ends makes room.
	if err := handshake(t.Context(), held[0]); err != nil {
		t.Fatal(err)
	}
	held[1].Close()
	for {
		if err := handshake(t.Context(), raw(t, b)); err == nil {
			break
		}
	}
}

// TestSettingsThatForgetAreRefused: settings that delete events are refused with an answer, because
// people will try them.
func TestSettingsThatForgetAreRefused(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()})
	c := client(t, b)
	for name, value := range map[string]string{
		"cleanup.policy": "compact", "retention.ms": "604800000", "retention.bytes": "1000000", "message.timestamp.type": "LogAppendTime", "segment.bytes": "1",
	} {
		resp, err := c.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: "t", NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{{ConfigName: name, ConfigValue: value}},
		}}})
		if err != nil || !errors.Is(resp.Errors["t"], kafka.InvalidConfiguration) {
			t.Errorf("%s=%s: %v %v", name, value, resp, err)
		}
	}
	if err := createTopic(c, "t", 1<<20); !errors.Is(err, kafka.InvalidConfiguration) {
		t.Errorf("a million partitions: %v", err)
	}
	if err := createTopic(c, "t", 3); err != nil {
		t.Fatal(err)
	}
	// A topic without retention settings keeps everything too, by the broker's own setting, which
	// it lists under its own name.
	resp, err := c.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "plain", NumPartitions: 1, ReplicationFactor: 1}}})
	if err != nil || resp.Errors["plain"] != nil {
		t.Fatal(resp, err)
	}
	d, err := c.DescribeConfigs(t.Context(), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: "plain", ConfigNames: []string{"log.retention.ms", "log.retention.bytes", "cleanup.policy"}}}})
	if err != nil || len(d.Resources) != 1 || len(d.Resources[0].ConfigEntries) != 3 {
		t.Fatal(d, err)
	}
	for _, e := range d.Resources[0].ConfigEntries {
		if !allowedConfig(strings.TrimPrefix(e.ConfigName, "log."), e.ConfigValue) {
			t.Errorf("%s is %s", e.ConfigName, e.ConfigValue)
		}
	}
}

// TestBatchesThatBreakTheLogAreRefused: the broker would store these batches, and the next opening
// would find damage.
func TestBatchesThatBreakTheLogAreRefused(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	b := open(t, cfg)
	cl := client(t, b)
	if err := createTopic(cl, "t", 1); err != nil {
		t.Fatal(err)
	}
	change := func(f func([]byte)) []byte {
		bb := batch(0, 1, []byte{12, 0, 0, 0, 1, 0, 0})
		f(bb)
		return bb
	}
	for name, records := range map[string][]byte{
		"no records":        batch(0, 0, nil),
		"negative":          batch(0, -5, nil),
		"time of appending": change(func(b []byte) { b[22] |= 8 }),
		"transactional":     change(func(b []byte) { b[22] |= 16 }),
		"control":           change(func(b []byte) { b[22] |= 32 }),
		"format 1":          change(func(b []byte) { b[16] = 1 }),
		"offsets":           change(func(b []byte) { b[26] = 9 }),
		"two batches":       append(batch(0, 1, []byte{1}), batch(1, 1, []byte{1})...),
		"nothing":           nil,
	} {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(8)
		req.Acks = -1
		tp := kmsg.NewProduceRequestTopicPartition()
		tp.Records = records
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.Partitions = "t", []kmsg.ProduceRequestTopicPartition{tp}
		req.Topics = append(req.Topics, topic)
		c := raw(t, b)
		if _, err := c.Write(frame(0, 8, req.AppendTo(nil)...)); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 8)
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		answer := make([]byte, binary.BigEndian.Uint32(head)-4)
		if _, err := io.ReadFull(c, answer); err != nil {
			t.Fatal(err)
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(8)
		if err := resp.ReadFrom(answer); err != nil || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != kafka87 {
			t.Errorf("%s: %+v, %v", name, resp, err)
		}
		c.Close()
	}
	if off, err := produceTo(cl, "t", 0, "good"); err != nil || off != 0 {
		t.Fatalf("offset %d, %v", off, err)
	}
}

const kafka87 = 87 // INVALID_RECORD

// TestOtherClients: the limits admit clients other than kafka-go, with newer protocol versions and
// idempotent producers.
func TestOtherClients(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()})
	if err := createTopic(client(t, b), "t", 2); err != nil {
		t.Fatal(err)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Address()), kgo.Dialer(b.Dial), kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 10 {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 10; {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		n += fs.NumRecords()
	}
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestBrokerComplaintStopsAcknowledgements: after the broker reports a failed write, none of its
// answers is sent.
func TestBrokerComplaintStopsAcknowledgements(t *testing.T) {
	b := open(t, Config{Dir: t.TempDir()})
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	w := &watcher{guard: b.owner.guard, log: b.owner.guard.log}
	w.Logf(kfake.LogLevelWarn, "consumerSessionTimeout: group=%s", "g")
	w.Logf(kfake.LogLevelInfo, "persist %s: %v", "fine", nil)
	if b.Err() != nil {
		t.Fatal(b.Err())
	}
	w.Logf(kfake.LogLevelWarn, "persist group entry write: %v", errors.New("input/output error"))
	<-b.Done()
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Fatalf("ended with %v", err)
	}
	if _, err := produceTo(c, "t", 0, "x"); err == nil {
		t.Fatal("acknowledged after a failure")
	}
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Fatalf("close: %v", err)
	}
	if b := open(t, Config{Dir: b.dir.path}); b.Report.Clean {
		t.Fatal("counts as a clean stop")
	}
}

func FuzzJudge(f *testing.F) {
	f.Add(frame(0, 7, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0))
	f.Add(frame(19, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Add(frame(18, 127))
	f.Add(frame(22, 0, 0xff, 0xff, 0, 0, 0, 0))
	g := newGuard(nil, Config{Log: slog.New(slog.DiscardHandler)}, newDisk(f.TempDir(), -1), nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 14 {
			return
		}
		r, answer, err := g.judge(b)
		if err != nil && answer != nil {
			t.Fatal("both answered and dropped")
		}
		if err == nil && answer == nil && len(r.appends) > len(b)/batchHeader {
			t.Fatalf("%d batches in %d bytes", len(r.appends), len(b))
		}
		if answer != nil && int(binary.BigEndian.Uint32(answer)) != len(answer)-4 {
			t.Fatal("answer of another length than it says")
		}
	})
}
