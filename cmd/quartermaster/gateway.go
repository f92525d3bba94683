package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/remotewrite"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// gatewayFlags are for a home without a configuration file.
func gatewayFlags(cmd *cobra.Command, g *gatewayConfig) {
	f := cmd.Flags()
	f.StringVar(&g.Listen, "gateway", "", "address that takes events of nodes and Prometheus; none by default")
	f.StringVar(&g.CertFile, "gateway-cert", "", "certificate of the gateway, PEM")
	f.StringVar(&g.KeyFile, "gateway-key", "", "private key of the certificate, PEM")
	f.BoolVar(&g.Plain, "gateway-plain", false, "take events from other machines without TLS: for a proxy that ends TLS")
	f.IntVar(&g.Rate, "gateway-rate", 20000, "events a second that are taken from the nodes of one cluster; of its Prometheus ten times as many samples")
}

// check is validate for flags.
func (g *gatewayConfig) check() error {
	f := configfile.New("gateway")
	g.validate(f)
	return f.Err()
}

// gateway takes events of nodes from an address of its own.
type gateway struct {
	*service
	cfg     gatewayConfig
	denials *denials
	events  *httpapi.Gateway
	writes  http.Handler  // of Prometheus
	stream  *kafka.Stream // of what comes from there; made with the first
	rules   rules
}

// samplesToAnEvent is how many samples of Prometheus are taken where one event of a
// node is: a sample is one number, and an event those of eight GPUs.
const samplesToAnEvent = 10

// newGateway returns nil when none is configured. Its metrics are among the
// service's from then on.
func (s *service) newGateway(cfg gatewayConfig) *gateway {
	if cfg.Listen == "" {
		return nil
	}
	g := &gateway{service: s, cfg: cfg, denials: newDenials(time.Now())}
	keys := &httpapi.Keys{Load: g.keys, Now: time.Now}
	g.events = &httpapi.Gateway{
		Keys: keys, Read: wire.ReadBatch, ContentType: wire.BatchContentType, AnswerType: wire.AnswerContentType,
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		Append:     func(ctx context.Context, recs []domain.Record) error { return s.home.log.Append(ctx, recs) },
		Denied:     g.denials.add,
		Rate:       cfg.Rate, Burst: max(2*cfg.Rate, wire.MaxBatch), Log: s.log,
	}
	metrics := prometheus.NewRegistry()
	g.writes = remotewrite.Handler(remotewrite.Config{
		Authenticate: g.cluster, Append: g.scraped, Now: time.Now, Holder: g.holder, Rate: samplesToAnEvent * cfg.Rate, Registerer: metrics, Log: s.log,
	})
	s.more = append(append(s.more, g.events.Metrics()...), metrics)
	return g
}

// cluster returns whose key a request of Prometheus bears.
func (g *gateway) cluster(r *http.Request) (string, error) {
	c, err := g.events.Keys.Caller(r)
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		if refusal.Status != http.StatusUnauthorized {
			return "", fmt.Errorf("%w: %w", remotewrite.ErrUnavailable, err)
		}
		g.events.Deny(r, refusal)
	}
	return c.Cluster, err
}

// scraped appends what came of a request of Prometheus. What an earlier one left
// behind goes first: while the log is away no more than one request is held.
func (g *gateway) scraped(ctx context.Context, events []domain.Envelope) error {
	if g.stream == nil {
		name := "home"
		if c := g.app.config; c != nil {
			name = c.Instance
		}
		g.stream = g.home.streamOf("prometheus/" + name)
	}
	if err := g.stream.Flush(ctx); err != nil {
		return err
	}
	ptrs := make([]*domain.Envelope, len(events))
	for i := range events {
		ptrs[i] = &events[i]
	}
	err := g.stream.Append(ctx, ptrs...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, kafka.ErrUndelivered) {
		// It took none of them, for what one of them is.
		return fmt.Errorf("%w: %w", remotewrite.ErrRefused, err)
	}
	return err
}

// rules are the mapping rules in force, read again once they are older than
// rulesFresh. Who asks meanwhile gets those before and waits for nothing, unless it is
// longer than rulesStale that they were last read or could not be.
type rules struct {
	mu      sync.Mutex
	began   time.Time                      // the last read
	settled time.Time                      // the last read that ended began, however it ended
	known   []projections.MappingRuleEntry // by priority
	reading chan struct{}                  // closed when the read that goes on ends; nil: none does
}

const (
	rulesFresh    = 10 * time.Second
	rulesStale    = 30 * time.Second
	rulesPatience = 3 * time.Second // with which they are read
)

// get returns the rules. load reads them; calls do not overlap. When it fails, those
// before hold on.
func (r *rules) get(now time.Time, load func(context.Context) ([]projections.MappingRuleEntry, error)) []projections.MappingRuleEntry {
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

func (r *rules) load(load func(context.Context) ([]projections.MappingRuleEntry, error)) {
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

// holder says whose a pod is by the first rule that names its cluster and
// namespace. Rules that ask for labels of the pod match none, since the series of
// other programs do not bear them.
func (g *gateway) holder(cluster, namespace, pod string) (workspace, deployment string, ok bool) {
	for _, r := range g.mappingRules() {
		if (r.Cluster == "" || r.Cluster == cluster) && (r.Namespace == "" || r.Namespace == namespace) && len(r.Labels) == 0 {
			return r.ToWorkspace, r.ToDeployment, true
		}
	}
	return "", "", false
}

func (g *gateway) mappingRules() []projections.MappingRuleEntry {
	return g.rules.get(time.Now(), g.loadRules)
}

// loadRules reads the mapping rules in force, by priority.
func (g *gateway) loadRules(ctx context.Context) (known []projections.MappingRuleEntry, err error) {
	err = g.home.view(ctx, func(v projections.View) error {
		r, err := projections.NewRegistry(v, now())
		if err != nil {
			return err
		}
		known = slices.Clone(r.MappingRules)
		return nil
	})
	if err != nil {
		g.log.Warn("mapping rules cannot be read; those before hold on", "error", err)
		return nil, err
	}
	slices.SortStableFunc(known, func(a, b projections.MappingRuleEntry) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Rule, b.Rule))
	})
	return known, nil
}

// errNotCaughtUp means that the rows may not know of a key yet.
var errNotCaughtUp = errors.New("the rows have not caught up with the log yet")

// keys returns the keys of all clusters.
func (g *gateway) keys(ctx context.Context) (keys []projections.ClusterKeyEntry, err error) {
	if !g.ready.Load() {
		return nil, errNotCaughtUp
	}
	err = g.home.view(ctx, func(v projections.View) error {
		keys, err = projections.ClusterKeys(v)
		return err
	})
	return keys, err
}

// serve answers until ctx ends. It returns once it listens; wait returns when it
// has stopped. The home must be open.
func (g *gateway) serve(ctx context.Context, cancel context.CancelCauseFunc) (wait func(), err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", g.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/events", g.events)
	mux.Handle("/api/v1/write", g.writes)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug), // every scanner makes it say something
	}
	serve := func() error { return srv.Serve(ln) }
	if g.cfg.CertFile != "" {
		c := &shownCertificate{certFile: g.cfg.CertFile, keyFile: g.cfg.KeyFile, log: g.log}
		if _, err := c.get(nil); err != nil {
			return nil, errors.Join(fmt.Errorf("gateway: %w", err), ln.Close())
		}
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
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
	g.log.Info("taking events of nodes", "address", ln.Addr().String(), "tls", g.cfg.CertFile != "")
	return wg.Wait, nil
}

// shownCertificate is a pair of files, read again when either changes.
type shownCertificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	changed [2]time.Time
	pair    *tls.Certificate
}

// lookAgain is how long a certificate is shown before its files are looked at again.
const lookAgain = 10 * time.Second

func (c *shownCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.looked) < lookAgain {
		return c.pair, nil
	}
	c.looked = time.Now()
	var changed [2]time.Time
	for i, file := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(file); err == nil {
			changed[i] = info.ModTime()
		}
	}
	if c.pair != nil && changed == c.changed {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		if c.pair == nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		// One of the two may be half written: the next look will tell.
		c.log.Warn("the certificate changed and cannot be read; showing the one before", "error", err)
		return c.pair, nil
	}
	c.pair, c.changed = &pair, changed
	return c.pair, nil
}
