// Package kafka is the log: the one implementation of appending to, reading
// and reacting to the topics of [domain.TopicSpecs], used against Apache Kafka
// and against the embedded broker, which speaks the same protocol.
//
// What always holds:
//
//   - A record that [Log.Append] reported as written was acknowledged by all
//     in-sync replicas. One request is in flight per partition, so the order in
//     which records were given is the order in the log. A retry may write
//     records twice, never in another order: folds drop repeats by sequence.
//   - [Log.Read] and [Log.Follow] hand out every offset from the first to the
//     last exactly once, having checked every checksum and every offset: as a
//     record, or in a [domain.Span] where transactions or broken batches left
//     none. A log that was trimmed, recreated or compacted stops them with
//     [ErrTrimmed].
//   - The partition of a record is [domain.PartitionOf] its key.
//   - Topics are kept for ever: [Log.EnsureTopics] refuses any other setting.
//   - A [Stream] numbers its events densely from 1 per partition, and after a
//     failure delivers exactly what was left before anything new.
//
// segmentio/kafka-go finds brokers, connects, authenticates, administers
// topics, sends produce requests and runs consumer groups. Record batches
// (format 2) are encoded and decoded here, in memory that is reused: a fold
// reads every event of history, kafka-go's readers take two to three times as
// long per record, do not check checksums and silently move an offset that is
// out of range; and its writers read the caller's memory after a cancelled
// call has returned.
//
// [Publisher] and [Subscriber] carry Watermill's messages over the same log,
// for components that react to single events.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"quartermaster/domain"
)

// Codec is a compression of record batches. Reading understands all of Kafka's.
type Codec int8

// The codecs that appending offers.
const (
	Zstd Codec = iota // the default
	LZ4               // for installations whose other programs lack zstd
)

// Config says how to reach the log. The zero value of every field but Brokers
// and Dial has a sound meaning; one of these two must be given.
type Config struct {
	// Brokers are the host:port addresses asked first. Not needed with Dial.
	Brokers []string

	// Dial opens a connection, and replaces TCP. It is called for every
	// connection, also to brokers whose address the cluster advertises, and is
	// free to ignore the address: the embedded log does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// TLS encrypts connections when set. An empty ServerName means the host
	// that is dialled.
	TLS *tls.Config

	// SASL authenticates connections when set.
	SASL sasl.Mechanism

	// Codec compresses what is appended.
	Codec Codec

	// Replication is the replication factor of topics created by EnsureTopics,
	// 1 when zero, and the least that existing ones may have. From 2 on
	// min.insync.replicas is 2 or more: a broker may be lost without losing an event,
	// and from 3 on without refusing one.
	Replication int

	// ClientID names this program in the broker's logs; "quartermaster" when empty.
	ClientID string

	// Batch is about how many records Read and Follow collect from what a broker
	// sent before they hand them out, 1000 when zero. A large one is for readers
	// to whom each batch costs a transaction.
	Batch int

	// Patience is how long Append, Read and Bounds go on trying while the
	// broker fails or is away, before they return its error; 30 s when zero.
	Patience time.Duration

	// MinBytes and MaxWait let Follow gather: the broker answers once a
	// partition has MinBytes of new records, or MaxWait after it was asked.
	// Whoever follows many partitions and pays for each batch (a transaction,
	// say) sets for example 64 KiB and 250 ms. 1 byte and 5 s when zero: every
	// record is handed out as soon as it is there.
	MinBytes int
	MaxWait  time.Duration

	// Logger is told once when those who read get no answer any more, once when they
	// get answers again, and once of each partition whose answers are not what they
	// must be; nothing is logged when nil.
	Logger *slog.Logger
}

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 20 * time.Second // one produce, list or admin request
	metadataTTL    = 2 * time.Second  // how long a moved leader may stay unnoticed
)

// ErrClosed means that the Log was closed.
var ErrClosed = errors.New("log is closed")

// Log is a connection to the log. It is safe for concurrent use.
type Log struct {
	// Guard is asked before every request that appends to a partition, one at a time
	// for each; its error ends the append. anew says that a request failed, or a
	// connection began or ended, since it last agreed: the broker may have been restarted.
	// It may be set before the first Append.
	Guard   func(ctx context.Context, tp domain.TopicPartition, anew bool) error
	changes atomic.Int64 // connections of client that were opened, broke or were closed

	cfg       Config
	client    *kafkago.Client
	transport *kafkago.Transport
	zstd      *zstd.Encoder

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	heldFor time.Duration // openWait, but in tests

	byID bool // the brokers tell topic ids and are asked for records by them

	mu     sync.Mutex
	lanes  map[domain.TopicPartition]lane
	agreed map[domain.TopicPartition]int64 // changes, when Guard last agreed
	ids    map[domain.Topic]topicID        // as first seen

	outage outage
}

// Open checks the configuration and that a broker answers.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if len(cfg.Brokers) == 0 {
		if cfg.Dial == nil {
			return nil, errors.New("open log: neither brokers nor a dial function given")
		}
		cfg.Brokers = []string{"embedded:9092"}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if cfg.Codec != Zstd && cfg.Codec != LZ4 {
		return nil, fmt.Errorf("open log: no codec %d", cfg.Codec)
	}
	if cfg.ClientID == "" {
		cfg.ClientID = "quartermaster"
	}
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Batch == 0 {
		cfg.Batch = yieldRecords
	}
	if cfg.MinBytes < 0 || cfg.MinBytes > fetchBytes {
		return nil, fmt.Errorf("open log: MinBytes is %d, must be at most %d", cfg.MinBytes, fetchBytes)
	}
	if cfg.MaxWait < 0 || cfg.MaxWait > time.Minute {
		return nil, fmt.Errorf("open log: MaxWait is %s, must be at most a minute", cfg.MaxWait)
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = fetchWait
	}
	cfg.MinBytes = max(cfg.MinBytes, 1)
	cfg.Replication = max(cfg.Replication, 1)
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &Log{cfg: cfg, zstd: enc, heldFor: openWait, lanes: map[domain.TopicPartition]lane{}, agreed: map[domain.TopicPartition]int64{}, ids: map[domain.Topic]topicID{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.transport = &kafkago.Transport{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			l.changes.Add(1)
			c, err := cfg.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{c, &l.changes}, nil
		},
		DialTimeout: dialTimeout,
		MetadataTTL: metadataTTL,
		ClientID:    cfg.ClientID,
		TLS:         cfg.TLS,
		SASL:        cfg.SASL,
		Context:     l.ctx,
	}
	l.client = &kafkago.Client{
		Addr:      kafkago.TCP(cfg.Brokers...),
		Timeout:   requestTimeout,
		Transport: l.transport,
	}
	if err := l.retry(ctx, func(ctx context.Context) error {
		if _, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{}); err != nil {
			return err
		}
		res, err := l.client.ApiVersions(ctx, &kafkago.ApiVersionsRequest{})
		if err == nil {
			err = res.Error
		}
		if err != nil {
			return err
		}
		top := map[int]int{}
		for _, k := range res.ApiKeys {
			top[k.ApiKey] = k.MaxVersion
		}
		l.byID = top[fetchKey] >= fetchByID && top[metadataKey] >= metadataWithIDs
		return nil
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("open log: no Kafka broker answered at %s: %w; start Kafka, or correct the addresses, TLS or SASL",
			strings.Join(cfg.Brokers, ", "), err), l.Close())
	}
	return l, nil
}

// ID returns the cluster's id, which tells this log from every other.
func (l *Log) ID(ctx context.Context) (id string, err error) {
	err = l.retry(ctx, func(ctx context.Context) error {
		m, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{}})
		if err == nil {
			id = m.ClusterID
		}
		return err
	})
	if err == nil && id == "" {
		err = errors.New("the cluster has no id")
	}
	if err != nil {
		return "", fmt.Errorf("ask for the log's id: %w", err)
	}
	return id, nil
}

// Close ends every connection; calls in progress return an error. It may be
// called more than once.
func (l *Log) Close() error {
	l.cancel()
	l.transport.CloseIdleConnections()
	return nil
}

// bind returns a context that also ends when the log is closed.
func (l *Log) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// retry calls do until it succeeds, fails for good, ctx ends or patience runs out.
func (l *Log) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := l.bind(ctx)
	defer cancel()
	for wait := newBackoff(l.cfg.Patience); ; {
		attempt, done := context.WithTimeout(ctx, requestTimeout)
		err := do(attempt)
		done()
		if err == nil || ctx.Err() == nil && !temporary(err) {
			return err
		}
		if err := wait.sleep(ctx, err); err != nil {
			return err
		}
	}
}

// backoff spaces attempts, from 20 ms doubling to 1 s, and gives up once
// attempts have failed for as long as patience.
type backoff struct {
	patience time.Duration
	step     time.Duration
	since    time.Time // of the first failure; zero when there was none since reset
}

func newBackoff(patience time.Duration) backoff { return backoff{patience: patience} }

func (b *backoff) reset() { b.step, b.since = 0, time.Time{} }

// sleep waits before the next attempt after failure err. It returns the reason
// not to try again.
func (b *backoff) sleep(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	if now.Sub(b.since) >= b.patience {
		return fmt.Errorf("tried for %s: %w", b.patience, err)
	}
	b.step = min(max(2*b.step, 20*time.Millisecond), time.Second)
	t := time.NewTimer(b.step)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// passing marks an error that would be final if it did not pass.
type passing struct{ err error }

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

// temporary reports whether trying again can help: what is not an answer of
// the broker is trouble with the network, and that passes.
func temporary(err error) bool {
	var answer kafkago.Error
	if errors.As(err, &answer) {
		// kafka-go holds the first two to be final, and says the first itself of
		// a broker that is gone from the metadata it has just read.
		return answer == kafkago.BrokerNotAvailable || answer == kafkago.ReplicaNotAvailable || answer.Temporary()
	}
	var p *passing
	var open *OpenTransactionError
	return errors.As(err, &p) || !errors.Is(err, ErrTrimmed) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrDiverged) && !errors.As(err, &open)
}

// leaders returns the addresses of the brokers that lead the topics' partitions,
// every one of them, from metadata at most metadataTTL old. While a partition
// has no leader it fails, temporarily. It asks for no topic to be created.
func (l *Log) leaders(ctx context.Context, topics ...string) (map[domain.TopicPartition]string, error) {
	md, err := l.metadata(ctx, topics...)
	if err != nil {
		return nil, err
	}
	at := map[domain.TopicPartition]string{}
	for _, t := range md.Topics {
		for _, p := range t.Partitions {
			at[domain.TopicPartition{Topic: domain.Topic(t.Name), Partition: p.ID}] =
				net.JoinHostPort(p.Leader.Host, strconv.Itoa(p.Leader.Port))
		}
	}
	return at, nil
}

// metadata returns what is known of topics, each of which exists and whose partitions
// are all led.
func (l *Log) metadata(ctx context.Context, topics ...string) (*kafkago.MetadataResponse, error) {
	md, err := l.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	for _, t := range md.Topics {
		if t.Error != nil {
			return nil, fmt.Errorf("read metadata of topic %s: %w", t.Name, t.Error)
		}
		for _, p := range t.Partitions {
			if p.Leader.Host == "" {
				return nil, fmt.Errorf("%s/%d: %w", t.Name, p.ID, kafkago.LeaderNotAvailable)
			}
		}
	}
	return md, nil
}

// dialer connects as the configuration says.
func (l *Log) dialer(opened func(net.Conn)) *kafkago.Dialer {
	return &kafkago.Dialer{
		ClientID:      l.cfg.ClientID,
		Timeout:       dialTimeout,
		SASLMechanism: l.cfg.SASL,
		DialFunc: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := l.cfg.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if l.cfg.TLS != nil {
				cfg := l.cfg.TLS
				if cfg.ServerName == "" {
					cfg = cfg.Clone()
					cfg.ServerName, _, _ = net.SplitHostPort(address)
				}
				t := tls.Client(c, cfg)
				if err := t.HandshakeContext(ctx); err != nil {
					c.Close()
					return nil, err
				}
				c = t
			}
			if opened != nil {
				opened(c)
			}
			return c, nil
		},
	}
}

// dial opens a connection to a broker, encrypted and authenticated, ready for
// requests.
func (l *Log) dial(ctx context.Context, address string) (net.Conn, error) {
	var c net.Conn
	if _, err := l.dialer(func(opened net.Conn) { c = opened }).DialContext(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", address, err)
	}
	return c, nil
}
