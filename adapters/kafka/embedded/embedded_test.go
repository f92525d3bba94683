package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func open(t testing.TB, cfg Config) *Broker {
	t.Helper()
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func client(t testing.TB, b *Broker) *kafka.Client {
	tr := &kafka.Transport{Dial: b.Dial, MetadataTTL: time.Hour}
	t.Cleanup(tr.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(b.Address()), Transport: tr, Timeout: 20 * time.Second}
}

var keepAll = []kafka.ConfigEntry{
	{ConfigName: "cleanup.policy", ConfigValue: "delete"},
	{ConfigName: "retention.ms", ConfigValue: "-1"},
}

func createTopic(c *kafka.Client, topic string, partitions int, more ...kafka.ConfigEntry) error {
	resp, err := c.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: append(more, keepAll...),
	}}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func produceTo(c *kafka.Client, topic string, partition int, values ...string) (int64, error) {
	var rs []kafka.Record
	for _, v := range values {
		rs = append(rs, kafka.Record{Value: kafka.NewBytes([]byte(v))})
	}
	resp, err := c.Produce(context.Background(), &kafka.ProduceRequest{Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(rs...)})
	if err != nil {
		return 0, err
	}
	return resp.BaseOffset, resp.Error
}

// readAll returns every value of a partition and fails on a gap.
func readAll(t testing.TB, b *Broker, topic string, partition int) []string {
	t.Helper()
	d := &kafka.Dialer{DialFunc: b.Dial, Timeout: 10 * time.Second}
	c, err := d.DialLeader(t.Context(), "tcp", b.Address(), topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, end, err := c.ReadOffsets()
	if err != nil {
		t.Fatal(err)
	}
	var vs []string
	for int64(len(vs)) < end {
		batch := c.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second})
		for {
			m, err := batch.ReadMessage()
			if err != nil {
				break
			}
			if m.Offset != int64(len(vs)) {
				t.Fatalf("offset %d where %d is next", m.Offset, len(vs))
			}
			vs = append(vs, string(m.Value))
		}
		if err := batch.Close(); err != nil {
			t.Fatalf("read %s/%d at %d: %v", topic, partition, len(vs), err)
		}
	}
	return vs
}

func TestRecordsSurviveAStop(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	b := open(t, cfg)
	if !b.Owner() || b.Report.Clean {
		t.Fatalf("owner %v of a fresh directory, clean %v", b.Owner(), b.Report.Clean)
	}
	c := client(t, b)
	if err := createTopic(c, "qm.fleet", 2); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		off, err := produceTo(c, "qm.fleet", 1, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
		if err != nil || off != int64(2*i) {
			t.Fatalf("append %d: offset %d, %v", i, off, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Dial(t.Context(), "", ""); !errors.Is(err, ErrClosed) {
		t.Fatalf("dial after close: %v", err)
	}
	b = open(t, cfg)
	if r := b.Report; !r.Clean || r.Topics != 1 || r.Records != 20 || r.Batches != 10 || len(r.Trimmed) != 0 {
		t.Fatalf("report %+v", r)
	}
	if vs := readAll(t, b, "qm.fleet", 1); len(vs) != 20 || vs[19] != "19" {
		t.Fatalf("read %v", vs)
	}
	// The log continues where it ended.
	if off, err := produceTo(client(t, b), "qm.fleet", 1, "next"); err != nil || off != 20 {
		t.Fatalf("append after a stop: offset %d, %v", off, err)
	}
}

func TestSecondOpenIsServed(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	first := open(t, cfg)
	second := open(t, cfg)
	if second.Owner() {
		t.Fatal("two owners of one directory")
	}
	if err := createTopic(client(t, second), "a", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := produceTo(client(t, first), "a", 0, "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := produceTo(client(t, second), "a", 0, "two"); err != nil {
		t.Fatal(err)
	}
	if vs := readAll(t, second, "a", 0); fmt.Sprint(vs) != "[one two]" {
		t.Fatalf("read %v", vs)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-second.Done()
	if !errors.Is(second.Err(), ErrOwnerGone) {
		t.Fatalf("client ended with %v", second.Err())
	}
	third := open(t, cfg)
	if !third.Owner() {
		t.Fatal("nobody owns the directory, yet it was not taken over")
	}
	if vs := readAll(t, third, "a", 0); len(vs) != 2 {
		t.Fatalf("read %v", vs)
	}
}

func TestHeldButSilent(t *testing.T) {
	dir := t.TempDir()
	d, err := openDirectory(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if got, err := d.tryLock(); !got || err != nil {
		t.Fatal(got, err)
	}
	defer d.unlock()
	for _, listening := range []bool{true, false} {
		if listening { // a listener that never answers
			l, err := d.listen()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		} else {
			d.removeSocket()
		}
		_, err = Open(t.Context(), Config{Dir: dir, Wait: 50 * time.Millisecond})
		if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
			t.Fatalf("listening %v: %v", listening, err)
		}
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	b := open(t, Config{Dir: dir})
	other := open(t, Config{Dir: dir})
	if other.Owner() {
		t.Fatal("two owners")
	}
	if err := createTopic(client(t, other), "a", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := produceTo(client(t, b), "a", 0, "x"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, socketFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket %v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("directory %v, %v", info, err)
	}
}

func TestDirectoriesDoNotMix(t *testing.T) {
	a, b := open(t, Config{Dir: t.TempDir()}), open(t, Config{Dir: t.TempDir()})
	if err := createTopic(client(t, a), "a", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := produceTo(client(t, a), "a", 0, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := produceTo(client(t, b), "a", 0, "x"); err == nil {
		t.Fatal("a topic of one directory is known in another")
	}
}

func TestOnlyOneOfManyOwns(t *testing.T) {
	dir := t.TempDir()
	type result struct {
		b   *Broker
		err error
	}
	results := make(chan result)
	for range 8 {
		go func() {
			b, err := Open(context.Background(), Config{Dir: dir})
			results <- result{b, err}
		}()
	}
	owners := 0
	for range 8 {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		defer r.b.Close()
		if r.b.Owner() {
			owners++
		}
	}
	if owners != 1 {
		t.Fatalf("%d owners", owners)
	}
}
