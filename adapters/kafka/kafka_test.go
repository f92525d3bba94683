package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/domain"
)

// The tests run against an in-memory broker, or against Apache Kafka if QM_KAFKA_BROKERS names
// one. Tests that make the broker fail need the former.

// fake starts an in-memory broker.
func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func openFake(t testing.TB, c *kfake.Cluster) *Log {
	return open(t, Config{Brokers: c.ListenAddrs(), Patience: 3 * time.Second})
}

// openAny uses Apache Kafka if there is one.
func openAny(t testing.TB) *Log {
	t.Helper()
	if b := os.Getenv("QM_KAFKA_BROKERS"); b != "" {
		return open(t, Config{Brokers: strings.Split(b, ",")})
	}
	return openFake(t, fake(t))
}

var topicNumber struct {
	sync.Mutex
	n int
}

// newTopic creates a new topic for a test.
func newTopic(t testing.TB, l *Log, partitions int) domain.Topic {
	t.Helper()
	topicNumber.Lock()
	topicNumber.n++
	topic := domain.Topic(fmt.Sprintf("test-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), topicNumber.n))
	topicNumber.Unlock()
	if err := l.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: topic, Partitions: partitions}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.client.DeleteTopics(context.Background(), &kafkago.DeleteTopicsRequest{Topics: []string{string(topic)}})
	})
	return topic
}

func text(n int) string { return fmt.Sprintf("value %d", n) }

// numbered returns records with the numbers from to to-1.
func numbered(tp domain.TopicPartition, from, to int) []domain.Record {
	var recs []domain.Record
	for i := from; i < to; i++ {
		recs = append(recs, domain.Record{
			Topic: tp.Topic, Partition: tp.Partition, Time: 1_750_000_000 * domain.Second,
			Key: []byte("k"), Value: []byte(text(i)),
		})
	}
	return recs
}

// values reads the values of a partition between two offsets.
func values(t testing.TB, l *Log, tp domain.TopicPartition, from, to int64) []string {
	t.Helper()
	var got []string
	err := l.Read(t.Context(), tp, from, to, func(recs []domain.Record) error {
		for _, r := range recs {
			if want := from + int64(len(got)); r.Offset != want {
				t.Errorf("offset %d, want %d", r.Offset, want)
			}
			got = append(got, string(r.Value))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func all(t testing.TB, l *Log, tp domain.TopicPartition) []string {
	t.Helper()
	first, next, err := l.Bounds(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	return values(t, l, tp, first, next)
}

func TestOpenNeedsABroker(t *testing.T) {
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Fatal("opened without an address")
	}
	down := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("cable cut") }
	if _, err := Open(t.Context(), Config{Dial: down, Patience: time.Millisecond}); err == nil || !strings.Contains(err.Error(), "cable cut") {
		t.Fatalf("open with nobody there: %v", err)
	}
}

func TestDialReachesEveryAdvertisedAddress(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	var mu sync.Mutex
	asked := map[string]bool{}
	l := open(t, Config{
		Brokers: []string{c.ListenAddrs()[0]},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			asked[address] = true
			mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	})
	topic := newTopic(t, l, 6)
	for p := range 6 {
		tp := domain.TopicPartition{Topic: topic, Partition: p}
		if err := l.Append(t.Context(), numbered(tp, 0, 3)); err != nil {
			t.Fatal(err)
		}
		if got := all(t, l, tp); len(got) != 3 {
			t.Fatalf("%s holds %v", tp, got)
		}
	}
	at, err := l.leaders(t.Context(), string(topic))
	if err != nil || len(at) != 6 {
		t.Fatal(at, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for tp, address := range at {
		if !asked[address] {
			t.Errorf("%s of %s was not dialled", address, tp)
		}
	}
}

// selfSigned returns configurations for a server at 127.0.0.1 and for a client
// that trusts it.
func selfSigned(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: trusted}
}

func TestEncryptedAndAuthenticated(t *testing.T) {
	server, client := selfSigned(t)
	c := fake(t, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "quartermaster", "secret"))
	mechanism := func(password string) sasl.Mechanism {
		m, err := scram.Mechanism(scram.SHA512, "quartermaster", password)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	l := open(t, Config{Brokers: c.ListenAddrs(), TLS: client, SASL: mechanism("secret")})
	if got := all(t, l, fill50(t, l, 1)); len(got) != 50 {
		t.Fatalf("log holds %d records", len(got))
	}
	topic := newTopic(t, l, 1)
	if err := NewPublisher(l, nil).Publish(string(topic), message.NewMessage("1", nil)); err != nil {
		t.Fatal(err)
	}
	s := NewSubscriber(l, SubscriberConfig{Group: "g"})
	defer s.Close()
	ch, err := s.Subscribe(t.Context(), string(topic))
	if err != nil {
		t.Fatal(err)
	}
	receive(t, ch).Ack()

	for name, cfg := range map[string]Config{
		"wrong password": {TLS: client, SASL: mechanism("guess")},
		"no password":    {TLS: client},
		"not trusted":    {TLS: &tls.Config{}, SASL: mechanism("secret")},
		"not encrypted":  {SASL: mechanism("secret")},
	} {
		cfg.Brokers, cfg.Patience = c.ListenAddrs(), time.Millisecond
		if l, err := Open(t.Context(), cfg); err == nil {
			l.Close()
			t.Errorf("opened with %s", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestClose(t *testing.T) {
	l := openFake(t, fake(t))
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	l.Close()
	l.Close()
	if err := l.Append(t.Context(), numbered(tp, 0, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if err := l.Follow(t.Context(), tp, 0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("follow: %v", err)
	}
}

func TestEnsureTopics(t *testing.T) {
	l := openAny(t)
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatalf("again: %v", err)
	}
	first, next, err := l.AllBounds(t.Context(), domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != len(domain.AllPartitions()) || len(next) != len(first) {
		t.Fatalf("bounds of %d and %d partitions", len(first), len(next))
	}
}

func TestEnsureTopicsRefuses(t *testing.T) {
	sp := func(s string) *string { return &s }
	for _, tc := range []struct {
		name, setting, value string
		partitions           int
		want                 SettingError
	}{
		{"count", "", "", 3, SettingError{Setting: "partitions", Found: "3", Wanted: "2"}},
		{"compact", "cleanup.policy", "compact", 2, SettingError{Setting: "cleanup.policy", Found: "compact", Wanted: "delete"}},
		{"both", "cleanup.policy", "compact,delete", 2, SettingError{Setting: "cleanup.policy", Found: "compact,delete", Wanted: "delete"}},
		{"time", "retention.ms", "604800000", 2, SettingError{Setting: "retention.ms", Found: "604800000", Wanted: "-1"}},
		{"space", "retention.bytes", "1000000", 2, SettingError{Setting: "retention.bytes", Found: "1000000", Wanted: "-1"}},
		{"clock", "message.timestamp.type", "LogAppendTime", 2, SettingError{Setting: "message.timestamp.type", Found: "LogAppendTime", Wanted: "CreateTime"}},
		{"size", "max.message.bytes", "1000000", 2, SettingError{Setting: "max.message.bytes", Found: "1000000", Wanted: fmt.Sprint(maxBatchBytes) + " or more"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fake(t)
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			configs := map[string]*string{}
			for _, s := range (&Log{}).settings() {
				if !s.optional {
					configs[s.name] = sp(s.value)
				}
			}
			if tc.setting != "" {
				configs[tc.setting] = sp(tc.value)
			}
			req := kmsg.NewPtrCreateTopicsRequest()
			rt := kmsg.NewCreateTopicsRequestTopic()
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "qm.fleet", int32(tc.partitions), 1
			for k, v := range configs {
				rc := kmsg.NewCreateTopicsRequestTopicConfig()
				rc.Name, rc.Value = k, v
				rt.Configs = append(rt.Configs, rc)
			}
			req.Topics = append(req.Topics, rt)
			if res, err := req.RequestWith(t.Context(), cl); err != nil || res.Topics[0].ErrorCode != 0 {
				t.Fatal(res, err)
			}
			err = openFake(t, c).EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: "qm.fleet", Partitions: 2}})
			var refused *SettingError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a SettingError", err)
			}
			tc.want.Topic = "qm.fleet"
			if *refused != tc.want {
				t.Fatalf("got %v, want %v", refused, &tc.want)
			}
		})
	}
}

// A setting that the broker does not report counts as wrong.
func TestEnsureTopicsRefusesWhatItIsNotTold(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "qm.fleet"
		res.Resources = append(res.Resources, r)
		return res, nil, true
	})
	err := l.EnsureTopics(t.Context(), []domain.TopicSpec{{Topic: "qm.fleet", Partitions: 2}})
	var refused *SettingError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "retention.ms is unknown, must be -1") {
		t.Fatalf("got %v", err)
	}
}
