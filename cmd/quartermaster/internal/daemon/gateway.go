package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/remotewrite"
	"quartermaster/adapters/transport"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// gatewayFlags defines the gateway's flags, for a log without a configuration file.
func gatewayFlags(cmd *cobra.Command, g *config.Gateway) {
	f := cmd.Flags()
	f.StringVar(&g.Listen, "gateway", "", "address that accepts events from nodes and Prometheus; default none")
	f.StringVar(&g.CertFile, "gateway-cert", "", "certificate of the gateway, PEM")
	f.StringVar(&g.KeyFile, "gateway-key", "", "private key of the certificate, PEM")
	f.StringVar(&g.ClientCAFile, "gateway-client-ca", "",
		"CA certificates, PEM; clients must present a certificate of one of them; default no client certificates")
	f.BoolVar(&g.Plain, "gateway-plain", false, "accept events from other machines without TLS: for a proxy that terminates TLS")
	f.DurationVar(&g.MaxAge, "gateway-max-age", time.Duration(domain.MaxAge),
		"maximum age of events from nodes, at most 168h; older ones are refused")
	f.DurationVar(&g.MaxAhead, "gateway-max-ahead", time.Duration(domain.MaxAhead),
		"how far events from nodes may be ahead of the local clock, at most 10m")
	f.IntVar(&g.Rate, "gateway-rate", 20000,
		"events per second accepted from the nodes of one cluster; its Prometheus may send ten times as many samples")
}

// gateway accepts events from nodes and Prometheus on its own address.
type gateway struct {
	*service
	cfg     config.Gateway
	denials *denials
	events  *httpapi.Gateway
	orders  *httpapi.Commands
	writes  http.Handler  // handler of Prometheus remote write
	stream  *kafka.Stream // stream of the remote-write events; created with the first one
	rules   rules
	cert    *transport.Certificate // nil: no TLS
	clients *transport.Authorities // nil: client certificates are not requested
}

// samplesToAnEvent is how many Prometheus samples count as one node event in rate limits: a
// sample is one number, and an event has those of eight GPUs.
const samplesToAnEvent = 10

// Connections that a listener accepts at once.
const (
	maxGatewayConnections = 8192
	maxStatusConnections  = 256
)

// newGateway returns nil when none is configured. It registers its metrics with the service's.
func (s *service) newGateway(cfg config.Gateway) *gateway {
	if cfg.Listen == "" {
		return nil
	}
	g := &gateway{service: s, cfg: cfg, denials: newDenials(time.Now())}
	keys := &httpapi.Keys{Load: g.keys, Now: time.Now}
	g.events = &httpapi.Gateway{
		Keys: keys, Read: wire.ReadBatch, ContentType: wire.BatchContentType, AnswerType: wire.AnswerContentType,
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		Append:     func(ctx context.Context, recs []domain.Record) error { return s.conn.Log.Append(ctx, recs) },
		Denied:     g.denials.add,
		MaxAge:     cfg.MaxAge, MaxAhead: cfg.MaxAhead,
		Rate: cfg.Rate, Burst: max(2*cfg.Rate, wire.MaxBatch), Log: s.log,
	}
	g.orders = &httpapi.Commands{Keys: keys, Open: g.commands, Acknowledge: g.acknowledge, Denied: g.denials.add, Log: s.log}
	metrics := prometheus.NewRegistry()
	if cfg.CertFile != "" {
		g.cert = transport.NewCertificate(cfg.CertFile, cfg.KeyFile, s.log)
		s.shows("gateway", g.cert)
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quartermaster_gateway_certificate_expiry_timestamp_seconds", Help: "When the gateway's certificate ends, in seconds since 1970; 0: it cannot be read.",
		}, g.expiry))
	}
	if cfg.ClientCAFile != "" {
		g.clients = transport.NewAuthorities(cfg.ClientCAFile, s.log)
	}
	g.writes = remotewrite.Handler(remotewrite.Config{
		Authenticate: g.cluster, Append: g.scraped, Now: time.Now, Holder: g.holder, Faulted: g.faulted,
		Rate: samplesToAnEvent * cfg.Rate, Registerer: metrics, Log: s.log,
	})
	s.more = append(append(s.more, g.events.Metrics()...), metrics)
	return g
}

// cluster returns the cluster that the request's key belongs to.
func (g *gateway) cluster(r *http.Request) (string, error) {
	c, err := g.events.Keys.Caller(r, domain.KeyPush)
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		if !refusal.OfKey() {
			return "", fmt.Errorf("%w: %w", remotewrite.ErrUnavailable, err)
		}
		g.events.Deny(r, refusal)
	}
	return c.Cluster, err
}

// scraped appends the events of a Prometheus request, those of nodes under the keys of their shards.
// The stream numbers the events of each partition, so it goes on when the number changes. Events that
// an earlier request left behind go first: while the log is unavailable at most one request is held.
func (g *gateway) scraped(ctx context.Context, events []domain.Envelope) error {
	if g.stream == nil {
		name := "home"
		if c := g.app.Config; c != nil {
			name = c.Instance
		}
		g.stream = g.conn.StreamOf("prometheus/"+name, app.NewIncarnation())
	}
	if err := g.stream.Flush(ctx); err != nil {
		return err
	}
	ptrs := make([]*domain.Envelope, len(events))
	for i := range events {
		ptrs[i] = &events[i]
		ptrs[i].Shards = g.events.Keys.Shards(ptrs[i].Cluster)
	}
	err := g.stream.Append(ctx, ptrs...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, kafka.ErrUndelivered) {
		// It took none of them because one of them is invalid.
		return fmt.Errorf("%w: %w", remotewrite.ErrRefused, err)
	}
	return err
}

// rules caches the mapping rules in force, and reloads them when they are older than
// rulesFresh. A call during a reload gets the previous rules without waiting, unless more
// than rulesStale have passed since the last load that ended began, successful or not.
type rules struct {
	mu      sync.Mutex
	began   time.Time                   // start of the last load
	settled time.Time                   // start of the last load that ended, successfully or not
	known   []registry.MappingRuleEntry // by priority
	reading chan struct{}               // closed when the running load ends; nil: none runs
}

const (
	rulesFresh    = 10 * time.Second
	rulesStale    = 30 * time.Second
	rulesPatience = 3 * time.Second // timeout of a load
)

// get returns the rules. load loads them; its calls do not overlap. If it fails, the previous
// rules stay in force.
func (r *rules) get(now time.Time, load func(context.Context) ([]registry.MappingRuleEntry, error)) []registry.MappingRuleEntry {
	r.mu.Lock()
	if age := now.Sub(r.began); r.reading == nil && (age < 0 || age >= rulesFresh) {
		r.began, r.reading = now, make(chan struct{})
		go r.load(load)
	}
	known, reading := r.known, r.reading
	age := now.Sub(r.settled)
	r.mu.Unlock()
	if reading == nil || age >= 0 && age < rulesStale {
		return known
	}
	<-reading
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

func (r *rules) load(load func(context.Context) ([]registry.MappingRuleEntry, error)) {
	ctx, stop := context.WithTimeout(context.Background(), rulesPatience)
	defer stop()
	known, err := load(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.known = known
	}
	r.settled = r.began
	close(r.reading)
	r.reading = nil
}

// holder returns the holder of a pod, by the first rule that matches its cluster and namespace.
func (g *gateway) holder(cluster, namespace, pod string) (workspace, deployment string, ok bool) {
	for _, r := range g.mappingRules() {
		if (r.Cluster == "" || r.Cluster == cluster) && (r.Namespace == "" || r.Namespace == namespace) {
			return r.ToWorkspace, r.ToDeployment, true
		}
	}
	return "", "", false
}

// faulted returns what Prometheus last reported of a GPU and a DCGM field.
func (g *gateway) faulted(cluster, node string, gpu domain.GPUID, field uint32) (detail string, err error) {
	ctx, stop := context.WithTimeout(context.Background(), rulesPatience)
	defer stop()
	err = g.conn.View(ctx, func(v projections.View) error {
		detail, err = projections.ScrapedFault(v, cluster, node, gpu, field)
		return err
	})
	return detail, err
}

func (g *gateway) mappingRules() []registry.MappingRuleEntry {
	return g.rules.get(time.Now(), g.loadRules)
}

// loadRules reads the mapping rules in force, by priority.
func (g *gateway) loadRules(ctx context.Context) (known []registry.MappingRuleEntry, err error) {
	err = g.conn.View(ctx, func(v projections.View) error {
		r, err := registry.New(v, app.Now())
		if err != nil {
			return err
		}
		known = slices.DeleteFunc(slices.Clone(r.MappingRules), func(e registry.MappingRuleEntry) bool { return e.Buys != "" || len(e.Columns) > 0 })
		return nil
	})
	if err != nil {
		g.log.Warn("mapping rules cannot be read; the previous ones stay in force", "error", err)
		return nil, err
	}
	slices.SortStableFunc(known, func(a, b registry.MappingRuleEntry) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Rule, b.Rule))
	})
	return known, nil
}

// errNotCaughtUp means that the rows may not know of a key yet.
var errNotCaughtUp = errors.New("the rows have not caught up with the log yet")

// keys returns the keys of all clusters.
func (g *gateway) keys(ctx context.Context) (keys []registry.ClusterKeyEntry, err error) {
	if !g.ready.Load() {
		return nil, errNotCaughtUp
	}
	err = g.conn.View(ctx, func(v projections.View) error {
		keys, err = registry.ClusterKeys(v)
		return err
	})
	return keys, err
}

// serve serves until ctx ends. It returns once it listens; wait returns when it has stopped. The
// data directory must be open.
func (g *gateway) serve(ctx context.Context, cancel context.CancelCauseFunc) (wait func(), err error) {
	if err := g.readable(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", g.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.orders.Stopping = ctx.Done()
	mux := http.NewServeMux()
	mux.Handle("/v1/events", g.events)
	mux.Handle("/api/v1/write", g.writes)
	mux.Handle("/v1/commands", g.orders)
	mux.Handle("/v1/commands/", g.orders)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug), // every port scan causes errors
	}
	ln = transport.Limit(ln, maxGatewayConnections)
	serve := func() error { return srv.Serve(ln) }
	if g.cert != nil {
		srv.TLSConfig = g.tls()
		serve = func() error { return srv.ServeTLS(ln, "", "") }
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("gateway: %w", err))
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		bound, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := srv.Shutdown(bound); err != nil {
			g.log.Warn("some deliveries were cut off; they will be sent again", "error", err)
		}
	})
	wg.Go(func() { g.deny(ctx) })
	g.log.Info("accepting events from nodes", "address", ln.Addr().String(), "tls", g.cert != nil, "client_certificates", g.clients != nil)
	return wg.Wait, nil
}

// readable returns an error when the certificate or the client CAs cannot be read.
func (g *gateway) readable() error {
	if g.cert != nil {
		if _, err := g.cert.Get(); err != nil {
			return err
		}
	}
	if g.clients != nil {
		if _, err := g.clients.Get(); err != nil {
			return fmt.Errorf("client_ca_file: %w", err)
		}
	}
	return nil
}

// tls returns the TLS configuration of the gateway.
func (g *gateway) tls() *tls.Config {
	out := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.cert.Get() }}
	if g.cfg.TLSMin == "1.2" {
		out.MinVersion = tls.VersionTLS12
		for _, s := range tls.CipherSuites() { // TLS 1.3 suites are not configurable, and all are AEAD
			if strings.Contains(s.Name, "_ECDHE_") &&
				(strings.Contains(s.Name, "_GCM_") || strings.Contains(s.Name, "_CHACHA20_")) {
				out.CipherSuites = append(out.CipherSuites, s.ID)
			}
		}
	}
	if g.clients != nil {
		g.clients.Require(out)
	}
	return out
}

// expiry returns when the certificate ends, in seconds since 1970; 0 when unknown.
func (g *gateway) expiry() float64 {
	pair, err := g.cert.Get()
	if err != nil {
		return 0
	}
	return float64(pair.Leaf.NotAfter.Unix())
}
