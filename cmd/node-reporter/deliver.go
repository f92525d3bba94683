package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go/sasl/scram"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/spool"
	"quartermaster/adapters/transport"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
)

// sender delivers records in the encoding of wire's batches. It returns nil once the log has
// acknowledged all records except the refused ones, which it will never accept. Without records it
// asks for the number of shards only.
type sender interface {
	send(ctx context.Context, records [][]byte) (refused []refusedRecord, err error)
	// shards returns the present number of shards of the cluster; 0: unknown.
	shards() int
	close()
}

// refusedRecord is a record that the log will never accept, by its index in the batch.
type refusedRecord struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// sendError is why a delivery failed.
type sendError struct {
	text string
	// kind is the same for failures with the same cause, even if their texts differ, for example in
	// a port or a time.
	kind string
	// split says that a smaller delivery may be accepted.
	split bool
	// final says that the log itself refused the delivery, not a proxy in front of it. A single
	// record that is refused this way will never be accepted.
	final bool
	// after is how long the receiver asks to wait.
	after time.Duration
	// login says that the credentials were refused.
	login bool
}

func (e *sendError) Error() string { return e.text }

// failed returns the error of a failed attempt.
func failed(what string, err error) *sendError {
	return &sendError{text: fmt.Sprintf("%s: %v", what, err), kind: what + ": " + causeOf(err)}
}

// Causes of failures.
const (
	cutOff        = "the connection was cut"
	noCertificate = "client certificate"
)

// causeOf names why a connection failed. It is the same for all failures with one cause. A cut
// connection may show as a reset, a broken pipe or an end of file.
func causeOf(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var late net.Error
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return cutOff
	case errors.As(err, &name):
		return "no such host"
	case errors.As(err, &certificate):
		return certificate.Err.Error()
	case errors.As(err, &late) && late.Timeout():
		return "it took too long"
	case errors.As(err, &number):
		return number.Error()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return fmt.Sprintf("%T", err)
}

// gateway delivers to "quartermaster serve".
type gateway struct {
	url     string
	keyFile string
	client  *http.Client
	clock   *clock

	certFile string       // file of the client certificate; "": none
	asked    atomic.Bool  // it asked for a certificate, and has not answered since
	told     atomic.Int64 // number of shards in the last answer; 0: none yet

	mu      sync.Mutex
	encoder *zstd.Encoder
	plain   atomic.Bool // it does not accept compressed bodies
}

func newGateway(c *GatewayConfig, clk *clock, log *slog.Logger) (*gateway, error) {
	g := &gateway{
		url:      strings.TrimRight(c.URL, "/") + "/v1/events",
		keyFile:  c.KeyFile,
		certFile: c.ClientCertFile,
		clock:    clk,
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if c.CAFile != "" {
		if secure.RootCAs, err = transport.Pool(c.CAFile); err != nil {
			return nil, fmt.Errorf("gateway.ca_file: %w", err)
		}
	}
	own := func() (*tls.Certificate, error) { return new(tls.Certificate), nil } // none
	if c.ClientCertFile != "" {
		if _, err := configfile.Secret(c.ClientKeyFile); err != nil {
			return nil, fmt.Errorf("gateway.client_key_file: %w", err)
		}
		own = transport.NewCertificate(c.ClientCertFile, c.ClientKeyFile, log).Get
		if _, err := own(); err != nil {
			return nil, fmt.Errorf("gateway.client_cert_file: %w", err)
		}
	}
	secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		g.asked.Store(true)
		return own()
	}
	g.client = &http.Client{
		Timeout: c.Timeout,
		Transport: &http.Transport{
			Proxy:           http.ProxyFromEnvironment,
			TLSClientConfig: secure,
			MaxIdleConns:    2, IdleConnTimeout: 90 * time.Second,
			WriteBufferSize: 4 << 10, ReadBufferSize: 4 << 10,
		},
		// The key must only be sent to the configured address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return g, nil
}

// unreached returns why the gateway did not answer. If it asked for a certificate and then cut the
// connection, it refused the certificate, even if its alert was lost.
func (g *gateway) unreached(err error) *sendError {
	e := failed("reach the gateway", err)
	var alert *net.OpError
	if !g.asked.Load() || causeOf(err) != cutOff && (!errors.As(err, &alert) || alert.Op != "remote error") {
		return e
	}
	e.kind, e.login = noCertificate, true
	if g.certFile == "" {
		e.text += "; it asks for a client certificate, and gateway.client_cert_file names none"
	} else {
		e.text += "; it refuses the client certificate in " + g.certFile
	}
	return e
}

func (g *gateway) close() { g.client.CloseIdleConnections() }

// minCompressedSize is the size in bytes above which a body is compressed.
const minCompressedSize = 16 << 10

func (g *gateway) send(ctx context.Context, records [][]byte) ([]refusedRecord, error) {
	answer, err := g.ask(ctx, bytes.Join(records, nil))
	if err != nil {
		return nil, err
	}
	refused, shards, err := readAccepted(answer, len(records))
	if err == nil {
		g.told.Store(int64(shards))
	}
	return refused, err
}

func (g *gateway) shards() int { return int(g.told.Load()) }

// ask posts a batch and returns the gateway's answer if it accepted the batch.
func (g *gateway) ask(ctx context.Context, body []byte) ([]byte, error) {
	text, err := configfile.Secret(g.keyFile)
	if err != nil {
		return nil, &sendError{text: fmt.Sprintf("read the key: %v", err), kind: "key", login: true}
	}
	if _, err := domain.ParseClusterKey(text); err != nil {
		return nil, &sendError{text: fmt.Sprintf("read the key in %s: %v", g.keyFile, err), kind: "key", login: true}
	}
	packed := len(body) > minCompressedSize && !g.plain.Load()
	if packed {
		body = g.pack(body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+text)
	req.Header.Set("Content-Type", wire.BatchContentType)
	req.Header.Set("User-Agent", "node-reporter")
	if packed {
		req.Header.Set("Content-Encoding", "zstd")
	}
	sent := time.Now()
	res, err := g.client.Do(req)
	if err != nil {
		return nil, g.unreached(err)
	}
	g.asked.Store(false)
	defer res.Body.Close()
	received := time.Now()
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		g.clock.observe(sent, received, date)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return nil, failed("read the gateway's answer", err)
	}
	if res.StatusCode == http.StatusOK {
		return answer, nil
	}
	return nil, g.failure(res, answer, packed)
}

// readAccepted parses the answer to a delivery, with the present number of shards of the cluster. An
// answer that does not account for every record is invalid.
func readAccepted(answer []byte, n int) (refused []refusedRecord, shards int, err error) {
	var ans struct {
		Accepted *int            `json:"accepted"`
		Refused  []refusedRecord `json:"refused"`
		Shards   int             `json:"shards"`
	}
	err = json.Unmarshal(answer, &ans)
	if err == nil && (ans.Shards < 0 || ans.Shards > domain.MaxShards) {
		err = fmt.Errorf("it has %d shards", ans.Shards)
	}
	if err == nil && (ans.Accepted == nil || *ans.Accepted+len(ans.Refused) != n) {
		err = errors.New("it does not account for every event")
	}
	seen := map[int]bool{}
	for _, r := range ans.Refused {
		if r.Index < 0 || r.Index >= n || seen[r.Index] {
			err = fmt.Errorf("it refuses event %d of %d", r.Index, n)
		}
		seen[r.Index] = true
	}
	if err != nil {
		text := fmt.Sprintf("read the gateway's answer: %v; is this address the gateway's?", err)
		return nil, 0, &sendError{text: text, kind: "answer"}
	}
	return ans.Refused, ans.Shards, nil
}

func (g *gateway) failure(res *http.Response, answer []byte, packed bool) error {
	var said struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(answer, &said)
	if said.Error == "" {
		said.Error = string(answer[:min(len(answer), 200)])
	}
	// A proxy, or another server at this address, does not know events.
	own := res.Header.Get("Content-Type") == wire.AnswerContentType
	who := "the gateway"
	if !own {
		who = "something that is not the gateway"
	}
	e := &sendError{
		text: fmt.Sprintf("%s answered %s: %s", who, res.Status, printable(said.Error, 500)),
		kind: who + " " + res.Status,
	}
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.login = true
	case http.StatusRequestEntityTooLarge:
		e.split, e.final = true, own
	case http.StatusBadRequest:
		e.split, e.final = own, own
	case http.StatusUnsupportedMediaType:
		if packed {
			g.plain.Store(true)
		}
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = min(time.Duration(s)*time.Second, 5*time.Minute)
	}
	return e
}

func (g *gateway) pack(b []byte) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.encoder == nil {
		var err error
		g.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options above are constants
		}
	}
	return g.encoder.EncodeAll(b, nil)
}

// direct delivers to Kafka.
type direct struct {
	cluster string
	of      int // shards of the cluster
	config  kafka.Config

	mu  sync.Mutex
	log *kafka.Log
}

func newDirect(c *KafkaConfig, cluster, node string) (*direct, error) {
	d := &direct{cluster: cluster, of: c.Shards}
	d.config = kafka.Config{Brokers: c.Brokers, ClientID: "node-reporter-" + node}
	if c.TLS {
		d.config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if c.CAFile != "" {
			var err error
			if d.config.TLS.RootCAs, err = transport.Pool(c.CAFile); err != nil {
				return nil, fmt.Errorf("kafka.ca_file: %w", err)
			}
		}
		if c.CertFile != "" {
			if _, err := configfile.Secret(c.KeyFile); err != nil {
				return nil, fmt.Errorf("kafka.key_file: %w", err)
			}
			cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("kafka.cert_file: %w", err)
			}
			d.config.TLS.Certificates = []tls.Certificate{cert}
		}
	}
	if c.Mechanism != "" {
		password, err := configfile.Secret(c.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("kafka.password_file: %w", err)
		}
		algorithm := scram.SHA512
		if c.Mechanism == "SCRAM-SHA-256" {
			algorithm = scram.SHA256
		}
		if d.config.SASL, err = scram.Mechanism(algorithm, c.User, password); err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
	}
	return d, nil
}

func (d *direct) shards() int { return d.of }

func (d *direct) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log != nil {
		_ = d.log.Close()
	}
}

func (d *direct) open(ctx context.Context) (*kafka.Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log == nil {
		log, err := kafka.Open(ctx, d.config)
		if err != nil {
			return nil, failed("reach Kafka", err)
		}
		d.log = log
	}
	return d.log, nil
}

func (d *direct) send(ctx context.Context, records [][]byte) ([]refusedRecord, error) {
	if len(records) == 0 {
		return nil, nil // the number of shards is configured
	}
	log, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	recs, err := wire.ReadBatch(bytes.Join(records, nil))
	if err != nil {
		return nil, &sendError{text: err.Error(), split: true, final: true}
	}
	for i := range recs {
		if len(recs[i].Key) == 0 { // spooled before events had a key of their own
			recs[i].Key = []byte(d.cluster)
		}
		recs[i].Partition = domain.PartitionOf(recs[i].Key, recs[i].Topic.Partitions())
	}
	var large *kafka.TooLargeError
	switch err := log.Append(ctx, recs); {
	case errors.As(err, &large):
		return nil, &sendError{text: err.Error(), split: true, final: true}
	case err != nil:
		return nil, failed("write to Kafka", err)
	}
	return nil, nil
}

// courier delivers the events of a queue, in order, until its context ends.
type courier struct {
	queue   *spool.Queue
	topic   domain.Topic
	cluster string
	sender  sender
	refused *refusedFile
	log     *slog.Logger
	pace    pace

	sent        atomic.Int64 // events acknowledged
	failures    atomic.Int64
	failing     atomic.Pointer[sendError] // why delivery fails; nil if it does not
	last        atomic.Int64              // Unix time of the last acknowledgement
	loggedKinds map[string]bool           // kinds of failure that were logged since the last success
}

// Bounds on one delivery.
const (
	mostRecords = domain.MaxDelivered
	mostBytes   = 512 << 10
)

func (c *courier) run(ctx context.Context) {
	for ctx.Err() == nil {
		b, err := c.queue.Next(mostRecords, mostBytes)
		if err != nil {
			c.log.Error("the spool cannot be read; trying again", "topic", string(c.topic), "error", err)
		}
		if err != nil || len(b.Entries) == 0 {
			ready := c.queue.Ready()
			if err != nil {
				ready = nil // give a failing disk time, even if new events arrive
			}
			select {
			case <-ctx.Done():
			case <-ready:
			case <-time.After(5 * time.Second):
			}
			continue
		}
		if !c.deliver(ctx, &b) {
			return
		}
		if err := c.queue.Done(b); err != nil {
			c.log.Error("the delivery position cannot be written: events may be sent again, but count once",
				"topic", string(c.topic), "error", err)
		}
	}
}

// parcel is a record and the index of its entry in the batch.
type parcel struct {
	record []byte
	entry  int
}

// deliver returns true once every event of a batch is in the log or was set aside. It returns false
// if ctx ended first.
func (c *courier) deliver(ctx context.Context, b *spool.Batch) bool {
	var parcels []parcel
	for i, e := range b.Entries {
		record, _, err := unpack(e.Data)
		if err != nil {
			if !c.setAside(ctx, b, parcel{e.Data, i}, err.Error()) {
				return false
			}
			continue
		}
		parcels = append(parcels, parcel{record, i})
	}
	if own := sourceOf(c.cluster); b.Source != "" && !strings.HasPrefix(b.Source, own) {
		// The key of this cluster cannot deliver them, so they would block all others.
		why := fmt.Sprintf("it was observed as %s, but this node now belongs to cluster %s", b.Source, c.cluster)
		for _, p := range parcels {
			if !c.setAside(ctx, b, p, why) {
				return false
			}
		}
		return true
	}
	return len(parcels) == 0 || c.part(ctx, b, parcels)
}

// setAside writes an event that the log will never accept to the refused file, and records it as a
// loss, because its sequence number would otherwise be awaited for ever. If the file cannot be
// written, the event stays in the spool, unless it is a sample. It returns false if ctx ended
// first.
func (c *courier) setAside(ctx context.Context, batch *spool.Batch, p parcel, why string) bool {
	const kind = "refused"
	b := c.pace.backoff(c.pace.deliver)
	for {
		err := c.refused.add(c.topic, p.record, why)
		if err == nil || c.topic == domain.TopicTelemetry {
			if e := c.failing.Load(); e != nil && e.kind == kind {
				c.failing.Store(nil)
			}
			if !isLossReport(p.record) {
				c.queue.Refuse(batch, p.entry)
			}
			return true
		}
		text := fmt.Sprintf("a refused event cannot be written to %s: %v", c.refused.path, err)
		c.failing.Store(&sendError{text: text, kind: kind})
		select {
		case <-ctx.Done():
			return false
		case <-time.After(b.NextBackOff()):
		}
	}
}

// isLossReport reports whether a record is a report of a loss. If the log refuses such reports,
// reporting their loss would never end.
func isLossReport(record []byte) bool {
	recs, err := wire.ReadBatch(record)
	return err == nil && len(recs) == 1 && wire.TypeOf(&recs[0]) == domain.TypeSpoolDropped
}

// part delivers records until they are acknowledged, in halves if a delivery is too large. It
// returns false if ctx ended first.
func (c *courier) part(ctx context.Context, batch *spool.Batch, parcels []parcel) bool {
	records := make([][]byte, len(parcels))
	for i, p := range parcels {
		records[i] = p.record
	}
	b := c.pace.backoff(c.pace.deliver)
	for {
		refused, err := c.sender.send(ctx, records)
		if err == nil {
			if c.failing.Swap(nil) != nil {
				clear(c.loggedKinds)
				c.log.Info("events are delivered again", "topic", string(c.topic))
			}
			for _, r := range refused {
				if !c.setAside(ctx, batch, parcels[r.Index], r.Error) {
					return false
				}
			}
			c.sent.Add(int64(len(records) - len(refused)))
			c.last.Store(time.Now().Unix())
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		c.failures.Add(1)
		wait := b.NextBackOff()
		var e *sendError
		if !errors.As(err, &e) {
			e = failed("deliver", err)
		}
		switch {
		case len(records) == 1 && e.final:
			return c.setAside(ctx, batch, parcels[0], e.text)
		case len(records) > 1 && e.split:
			half := len(records) / 2
			return c.part(ctx, batch, parcels[:half]) && c.part(ctx, batch, parcels[half:])
		}
		wait = max(wait, e.after)
		c.failing.Store(e)
		if !c.loggedKinds[e.kind] {
			if c.loggedKinds == nil {
				c.loggedKinds = map[string]bool{}
			}
			c.loggedKinds[e.kind] = true
			level := slog.LevelWarn
			if e.login {
				level = slog.LevelError
			}
			c.log.Log(ctx, level, "events are not delivered; they wait in the spool",
				"topic", string(c.topic), "events", len(records), "error", e.text)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// refusedFile keeps the events that the log will never accept, so that a person can inspect them.
type refusedFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	failed bool // the last event could not be written, which was logged
	count  atomic.Int64
}

const (
	refusedName = "refused.jsonl"
	mostRefused = 64 << 20 // bound on the file in bytes, above which samples are not written
)

func newRefusedFile(dir string, log *slog.Logger) *refusedFile {
	return &refusedFile{path: filepath.Join(dir, refusedName), log: log}
}

func (f *refusedFile) add(topic domain.Topic, record []byte, why string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.write(topic, record, why)
	switch {
	case err == nil:
		f.log.Error("an event was refused for ever, and is kept beside the spool",
			"topic", string(topic), "error", why, "file", f.path)
	case !f.failed:
		f.log.Error("a refused event cannot be written beside the spool: a sample is dropped, others are retried",
			"topic", string(topic), "refused", why, "file", f.path, "error", err)
	}
	if f.failed = err != nil; err == nil || topic == domain.TopicTelemetry {
		f.count.Add(1)
	}
	return err
}

func (f *refusedFile) write(topic domain.Topic, record []byte, why string) error {
	line, err := json.Marshal(map[string]string{
		"at": time.Now().UTC().Format(time.RFC3339Nano), "topic": string(topic), "error": why,
		"record": base64.StdEncoding.EncodeToString(record),
	})
	if err != nil {
		return err
	}
	w, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer w.Close()
	info, err := w.Stat()
	if err != nil {
		return err
	}
	if topic == domain.TopicTelemetry && info.Size()+int64(len(line)) > mostRefused {
		return fmt.Errorf("it has %d MiB already; move it away", mostRefused>>20)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		_ = w.Truncate(info.Size()) // a partial line would spoil the next one
		return err
	}
	if err := syncFile(w); err != nil || info.Size() > 0 {
		return err
	}
	return syncDir(filepath.Dir(f.path))
}
