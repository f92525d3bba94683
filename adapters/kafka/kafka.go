// Package kafka is the log: it appends to, reads and subscribes to the topics of
// [domain.TopicSpecs]. The same code serves Apache Kafka and the embedded broker, which speaks
// the same protocol.
//
// What always holds:
//
//   - A record that [Log.Append] reports as written was acknowledged by all in-sync replicas.
//     One request is in flight per partition, so records are in the log in the order given. A
//     retry may write records twice, but never in another order. Folds drop repeats by sequence.
//   - [Log.Read] and [Log.Follow] deliver every offset from the first to the last exactly once,
//     after checking every checksum and every offset. An offset without a record, because of a
//     transaction or a broken batch, is in a [domain.Span]. What was trimmed is read from the
//     [Archive]. Without it, a trimmed log stops them with [ErrTrimmed], as a recreated or
//     compacted one does.
//   - The partition of a record is [domain.PartitionOf] its key.
//   - Topics are kept for ever: [Log.EnsureTopics] refuses any other setting.
//   - A [Stream] numbers its events densely from 1 per partition. After a failure it delivers
//     exactly the undelivered events before anything new.
//
// segmentio/kafka-go finds brokers, connects, authenticates, administers topics, sends produce
// requests and runs consumer groups. This package itself encodes and decodes record batches
// (format 2), in reused memory, because a fold reads every event of history. kafka-go's readers
// take two to three times as long per record, do not verify checksums and silently move an
// out-of-range offset. Its writers read the caller's memory after a cancelled call has returned.
//
// [Publisher] and [Subscriber] carry Watermill messages over the same log, for components that
// react to single events.
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

// Codec is a compression of record batches. Reading supports all of Kafka's codecs.
type Codec int8

// The codecs for appending.
const (
	Zstd Codec = iota // the default
	LZ4               // for installations whose other programs lack zstd
)

// Config is the configuration of a [Log]. Either Brokers or Dial is required. The zero value of
// every other field is a good default.
type Config struct {
	// Brokers are the host:port addresses to bootstrap from. Not needed with Dial.
	Brokers []string

	// Dial opens a connection in place of TCP. It is called for every connection, including
	// those to addresses that the cluster advertises. It may ignore the address, as the embedded
	// log does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// TLS encrypts connections when set. An empty ServerName means the dialled host.
	TLS *tls.Config

	// SASL authenticates connections when set.
	SASL sasl.Mechanism

	// Codec compresses appended records.
	Codec Codec

	// Replication is the replication factor of topics created by EnsureTopics, and the minimum
	// for existing ones; 1 when zero. From 2 on, min.insync.replicas is at least 2, so that
	// losing one broker loses no event. From 3 on, appends still succeed without one broker.
	Replication int

	// ClientID names this program in the broker's logs; "quartermaster" when empty.
	ClientID string

	// Batch is the approximate number of records that Read and Follow collect before they
	// deliver them; 1000 when zero. A large value suits readers that pay a transaction for each
	// batch.
	Batch int

	// Patience is how long Append, Read and Bounds retry while the broker fails or is
	// unreachable, before they return its error; 30 s when zero.
	Patience time.Duration

	// MinBytes and MaxWait let Follow collect larger batches: the broker answers once a
	// partition has MinBytes of new records, or after MaxWait. A reader that follows many
	// partitions and pays a transaction for each batch sets for example 64 KiB and 250 ms. The
	// defaults are 1 byte and 5 s: every record is delivered at once.
	MinBytes int
	MaxWait  time.Duration

	// Logger gets one entry when readers stop getting answers, one when they get answers again,
	// and one for each partition with invalid answers. If nil, nothing is logged.
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
	// Guard is called before every request that appends to a partition, one call at a time per
	// partition. Its error ends the append. The argument anew means that since the last
	// successful call a request failed or a connection was opened or closed, so the broker may
	// have been restarted. Guard MUST be set before the first Append.
	Guard func(ctx context.Context, tp domain.TopicPartition, anew bool) error

	// Archive holds what the log has no longer; nil: nothing. Reading then runs from the archive to
	// the log without a seam. It MUST be set before the first read.
	Archive Archive

	changes atomic.Int64 // connections of client that were opened, broken or closed

	cfg       Config
	client    *kafkago.Client
	transport *kafkago.Transport
	zstd      *zstd.Encoder

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	heldFor time.Duration // openWait, except in tests

	byID bool // the brokers support topic ids, and fetch requests use them

	mu     sync.Mutex
	lanes  map[domain.TopicPartition]*lane
	agreed map[domain.TopicPartition]int64 // changes at the last successful call of Guard
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
		return nil, fmt.Errorf("open log: unknown codec %d", cfg.Codec)
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
	l := &Log{
		cfg:     cfg,
		zstd:    enc,
		heldFor: openWait,
		lanes:   map[domain.TopicPartition]*lane{},
		agreed:  map[domain.TopicPartition]int64{},
		ids:     map[domain.Topic]topicID{},
	}
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
		return nil, errors.Join(fmt.Errorf(
			"open log: no Kafka broker answered at %s: %w; start Kafka, or correct the addresses, TLS or SASL",
			strings.Join(cfg.Brokers, ", "), err,
		), l.Close())
	}
	return l, nil
}

// ID returns the id of the cluster, which identifies the log.
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
		return "", fmt.Errorf("get the log's id: %w", err)
	}
	return id, nil
}

// Close closes every connection. Calls in progress return an error. It may be called more than
// once.
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

// retry calls do until it succeeds or fails permanently, ctx ends or Patience runs out.
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

// backoff delays attempts, from 20 ms doubling to 1 s, and gives up after failures for patience.
type backoff struct {
	patience time.Duration
	step     time.Duration
	since    time.Time // of the first failure since reset; zero if none
}

func newBackoff(patience time.Duration) backoff { return backoff{patience: patience} }

func (b *backoff) reset() { b.step, b.since = 0, time.Time{} }

// sleep waits before the next attempt after the failure err. Its error is the reason not to try
// again.
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

// passing marks an error that may be temporary, although its kind is permanent.
type passing struct{ err error }

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

// temporary reports whether a retry can help. An error that is not an answer of the broker is a
// network error, which is temporary.
func temporary(err error) bool {
	var answer kafkago.Error
	if errors.As(err, &answer) {
		// kafka-go considers the first two permanent. It also returns the first one for a
		// broker that is missing in the metadata it has just read.
		return answer == kafkago.BrokerNotAvailable || answer == kafkago.ReplicaNotAvailable || answer.Temporary()
	}
	var p *passing
	if errors.As(err, &p) {
		return true
	}
	var open *OpenTransactionError
	permanent := errors.Is(err, ErrTrimmed) || errors.Is(err, ErrArchive) || errors.Is(err, ErrCorrupt) ||
		errors.Is(err, ErrDiverged) || errors.Is(err, ErrMoved) || errors.As(err, &open)
	return !permanent
}

// leaders returns the address of the leader of every partition of the topics, from metadata at
// most metadataTTL old. While a partition has no leader, it fails with a temporary error. It does
// not auto-create topics.
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

// metadata returns the metadata of topics. It fails unless every topic exists and every partition
// has a leader.
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

// dialer returns a dialer with the configured TLS, SASL and Dial.
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

// dial opens a connection to a broker, encrypted, authenticated and ready for requests.
func (l *Log) dial(ctx context.Context, address string) (net.Conn, error) {
	var c net.Conn
	if _, err := l.dialer(func(opened net.Conn) { c = opened }).DialContext(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", address, err)
	}
	return c, nil
}
