package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/transport"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	figures "quartermaster/projections/advice"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Daemon folds the log continuously, and serves its status.
type Daemon struct {
	App     *app.App
	Log     *slog.Logger
	OwnWait time.Duration // how long it waits for commands that hold the embedded log; 0: a minute
	Watch   time.Duration // how often it checks topics and schema; 0: 30 s
	// Browser is the address of loopback for browsers of this machine, for which it prints a link; "": none. It is for
	// an embedded home.
	Browser string
	// Advice makes an embedded log have its rules evaluated every five minutes. With a configuration,
	// schedules.advice says when.
	Advice bool
	// Receivers are told of events of an embedded log. A configuration has its own.
	Receivers config.Receivers
}

// Command returns the command serve, for the log that the program's flags select. asJSON reports
// whether it logs JSON lines.
func Command(on *app.App, asJSON func() bool) *cobra.Command {
	var (
		listen  string
		gw      config.Gateway
		apiCfg  config.API
		browser string
		advice  bool
		told    string
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hold the log and fold it continuously",
		Long: `Serve holds the embedded log for other commands, which use it through the
socket in the data directory, and folds new events as they arrive. It stops cleanly on
SIGINT and SIGTERM.

With --config it is one of several instances, on one machine or more, that share the
partitions of an Apache Kafka cluster and keep the rows in one Postgres database. When
an instance dies, others take over its partitions within seconds, and no event is
counted twice. It also sends webhooks and runs scheduled jobs, each on one instance.
See "quartermaster config" for the file, and "quartermaster generation status" for
which instance folds what.

  GET /healthz   200 while it works
  GET /readyz    200 once the rows have caught up with the log. With --config also
                 503, with the reason: this instance has no session; no generation
                 of its method is live; a partition of the active generation that
                 it folds is stopped; or the log has been silent for more than a
                 minute. After ok come warnings: other stopped generations, and
                 records that the log lost
  GET /metrics   Prometheus metrics, and profiles of the process at /debug/pprof/

It serves the API on a unix socket, api.sock in the data directory, or api.socket in the
configuration. "--server unix:SOCKET" makes a command ask it. Only the user of this process
and root may use the socket. With --api, or api.listen in the configuration, it also answers
whoever has a grant ("quartermaster access grant"), at an address of its own, and records
what they ask. Other machines can reach it over TLS only.

With a data directory it also prints a link. The link opens the pages in one browser of this
machine, as the owner of the home, until the process ends. "quartermaster login --server
unix:SOCKET" makes another.

With --gateway, or gateway in the configuration, it accepts events from nodes on a
separate address. Each cluster authenticates with its key ("quartermaster cluster
register" makes it):

  POST /v1/events     a batch of events from a node-reporter
  POST /api/v1/write  Prometheus samples, by remote write 1.0 or 2.0
  GET  /api/v1/write  what became of the samples of the key's cluster, and why

It answers once the log has acknowledged, and refuses events of other clusters.
Other machines can reach it over TLS only.

Every five minutes it evaluates the rules of "quartermaster advice" and keeps incidents in the log:
see "quartermaster alerts". It tells webhooks and Alertmanagers of them: those of the configuration, or of the file that
--receivers names.

With -o json it logs JSON lines: time, level, msg and the fields of the message.`,
		Example: "  quartermaster serve\n  quartermaster serve --listen 0.0.0.0:7070\n" +
			"  quartermaster serve --gateway 0.0.0.0:7443 --gateway-cert gateway.pem --gateway-key gateway.key\n" +
			"  quartermaster serve --config /etc/quartermaster.yaml\n" +
			"  quartermaster serve --api 0.0.0.0:7444 --api-cert api.pem --api-key api.key",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := New(on, cmd.ErrOrStderr(), asJSON())
			d.Browser, d.Advice = browser, advice
			if on.Config == nil {
				if err := readAPI(cmd, &apiCfg); err != nil {
					return err
				}
				if told != "" {
					var err error
					if d.Receivers, err = config.ReadReceivers(told); err != nil {
						return err
					}
					if len(d.Receivers.Alertmanagers) > 0 && !advice {
						return errors.New("alertmanagers in " + told + " are told when rules are evaluated, and --advice=false is given")
					}
				}
				if apiCfg.Listen != "" && len(on.Brokers) > 0 {
					return errors.New("--api needs a data directory or a configuration, and --brokers is neither")
				}
				if err := errors.Join(gw.Check(), apiCfg.Check()); err != nil {
					return err
				}
				return d.Serve(cmd.Context(), listen, gw, apiCfg)
			}
			if cmd.Flags().Changed("browser") {
				return errors.New("--browser is for a log without a configuration: set api.url and a browser_client_id in " + on.ConfigPath)
			}
			if cmd.Flags().Changed("advice") {
				return errors.New("--advice is for a log without a configuration: set schedules.advice in " + on.ConfigPath)
			}
			if told != "" {
				return errors.New("--receivers is for a log without a configuration: set webhooks and alertmanagers in " + on.ConfigPath)
			}
			if cmd.Flags().Changed("api") {
				return errors.New("--api is for a log without a configuration: set api in " + on.ConfigPath)
			}
			if cmd.Flags().Changed("gateway") {
				return errors.New("--gateway is for a log without a configuration: set gateway in " + on.ConfigPath)
			}
			if !cmd.Flags().Changed("listen") {
				listen = on.Config.Listen
			}
			return d.ServeProduction(cmd.Context(), listen)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "address of the HTTP endpoints")
	cmd.Flags().StringVar(&browser, "browser", Loopback, "address of loopback for a browser of this machine, to which serve prints a link; empty: none")
	cmd.Flags().BoolVar(&advice, "advice", true, "evaluate the rules of \"quartermaster advice\" every five minutes, and keep incidents in the log")
	cmd.Flags().StringVar(&told, "receivers", "", "file with the keys webhooks and alertmanagers, as in a configuration: who is told of events")
	gatewayFlags(cmd, &gw)
	apiFlags(cmd, &apiCfg)
	return cmd
}

// New returns a daemon that logs to w.
func New(on *app.App, w io.Writer, asJSON bool) *Daemon {
	var handler slog.Handler = slog.NewTextHandler(w, nil)
	if asJSON {
		handler = slog.NewJSONHandler(w, nil)
	}
	return &Daemon{App: on, Log: slog.New(handler)}
}

// ownWait is how long serve waits for commands that hold the log to finish.
const ownWait = time.Minute

// own opens the log as its owner, once its present holder releases it.
func (d *Daemon) own(ctx context.Context) (*app.Conn, error) {
	wait := cmp.Or(d.OwnWait, ownWait)
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for first := true; ; first = false {
		h, err := d.App.OpenLog(ctx)
		if err != nil || h.Broker == nil || h.Broker.Owner() {
			return h, err
		}
		if refused := h.Broker.Refusal(); refused != nil {
			return nil, errors.Join(&app.DeniedError{Err: refused}, h.Shut())
		}
		gone := h.Broker.Done()
		if first {
			d.Log.Info("another process holds the log; waiting for it to finish", "data_dir", d.App.Dir, "at_most", wait.String())
		}
		select {
		case <-gone:
			err = nil
		case <-bound.Done():
			err = fmt.Errorf("another process holds %s, and has for %s: does \"quartermaster serve\" run there already?", d.App.Dir, wait)
		}
		if err := errors.Join(err, h.Log.Close(), h.CloseBroker()); err != nil {
			return nil, err
		}
	}
}

// How often serve reads the length of the log, counts what is in quarantine and missing, and
// checks whether a snapshot is due. The count reads every stream, which every instance with rows
// in a database pays for.
const (
	lookEvery      = 5 * time.Second
	countEvery     = 30 * time.Second
	countRowsEvery = 5 * time.Minute
	saveEvery      = 10 * time.Minute
)

// service is the common part of both kinds of serve: its status.
type service struct {
	app     *app.App
	watch   time.Duration // how often it checks topics and schema
	log     *slog.Logger
	conn    *app.Conn // nil until it is open
	failure atomic.Pointer[error]
	ready   atomic.Bool
	// progress returns what was folded, by generation of rows.
	progress     func() map[string]projections.Progress
	more         []prometheus.Collector
	certificates []ownCertificate

	active    atomic.Pointer[string] // the active generation; nil: unknown, or rows in memory
	hindrance atomic.Pointer[error]  // why folding is incomplete at the moment
	// behind are the partitions whose rows cannot catch up.
	behind atomic.Pointer[projections.Stops]

	incidents *prometheus.GaugeVec // that are open, by severity

	mu     sync.Mutex
	seen   httpapi.Seen
	seenAt time.Time // when the log last answered
}

func (d *Daemon) newService() *service {
	s := &service{app: d.App, log: d.Log, watch: cmp.Or(d.Watch, watchEvery), incidents: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quartermaster_incidents_open", Help: "Open incidents, by severity: see \"quartermaster alerts\".",
	}, []string{"severity"})}
	s.more = []prometheus.Collector{s.incidents}
	s.seen.Quarantined = -1
	return s
}

// answer serves the HTTP endpoints until ctx ends. It returns once it listens; wait returns when
// it has stopped. A failure calls cancel.
func (s *service) answer(ctx context.Context, cancel context.CancelCauseFunc, listen string) (wait func(), err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		Handler: httpapi.Handler(httpapi.Status{
			Failure: func() error {
				if e := s.failure.Load(); e != nil {
					return *e
				}
				return nil
			},
			CaughtUp: s.ready.Load,
			Behind: func() projections.Stops {
				if stops := s.behind.Load(); stops != nil {
					return *stops
				}
				return nil
			},
			Hindrance: func() error {
				var err error
				if e := s.hindrance.Load(); e != nil {
					err = *e
				}
				_, invalid := s.validity()
				return errors.Join(err, invalid)
			},
			Warnings: func() (warnings []string) {
				warnings, _ = s.validity()
				s.mu.Lock()
				defer s.mu.Unlock()
				return append(warnings, app.TrimmedTexts(s.seen.First)...)
			},
			Progress: s.progress,
			Active: func() string {
				if g := s.active.Load(); g != nil {
					return *g
				}
				return ""
			},
			Seen: func() httpapi.Seen {
				s.mu.Lock()
				defer s.mu.Unlock()
				seen := s.seen
				seen.End, seen.First, seen.Missing = s.seen.End.Clone(), s.seen.First.Clone(), maps.Clone(s.seen.Missing)
				return seen
			},
			More: s.more,
		}),
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(transport.Limit(ln, maxStatusConnections)); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve: %w", err))
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		bound, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := srv.Shutdown(bound); err != nil {
			s.log.Warn("some requests were cut off", "error", err)
		}
	})
	s.log.Info("listening", "address", ln.Addr().String(), "log", s.app.Place())
	return wg.Wait, nil
}

// ownCertificate is a certificate that the process shows.
type ownCertificate struct {
	of string // gateway or api
	*transport.Certificate
}

// validity returns warnings while certificates end soon, and an error while one is invalid.
func (s *service) validity() (warnings []string, err error) {
	s.mu.Lock()
	certificates := s.certificates
	s.mu.Unlock()
	for _, c := range certificates {
		_, warning, invalid := c.Validity(time.Now())
		if invalid != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", c.of, invalid))
		}
		if warning != "" {
			warnings = append(warnings, c.of+": "+warning)
		}
	}
	return warnings, err
}

// shows adds a certificate that the process shows.
func (s *service) shows(of string, c *transport.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.certificates = append(s.certificates, ownCertificate{of, c})
}

// look watches the log and the rows, until ctx ends.
func (s *service) look(ctx context.Context) {
	every := countEvery
	if s.conn.DB != nil {
		every = countRowsEvery
	}
	log, rows := time.NewTicker(lookEvery), time.NewTicker(every)
	defer log.Stop()
	defer rows.Stop()
	s.count(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-log.C:
			if trimmed, end, err := s.conn.Bounds(ctx); err == nil { // on an error, folding fails too, and reports it
				s.bounded(trimmed, end)
			}
		case <-rows.C:
			s.count(ctx)
		}
	}
}

// bounded records the bounds of the log, and reports newly missing records.
func (s *service) bounded(trimmed, end domain.Position) {
	s.mu.Lock()
	before := s.seen.First
	s.seen.First, s.seen.End, s.seenAt = trimmed, end, time.Now()
	s.mu.Unlock()
	if !maps.Equal(before, trimmed) {
		for _, text := range app.TrimmedTexts(trimmed) {
			s.log.Error(text)
		}
	}
}

// count counts what is in quarantine and what is missing.
func (s *service) count(ctx context.Context) {
	err := s.conn.View(ctx, func(v projections.View) error {
		quarantined, err := registry.Open(v)
		if err != nil {
			return err
		}
		missing, err := registry.Missing(v)
		if err != nil {
			return err
		}
		uncompared, err := inventory.UncomparedStreams(v)
		if err != nil {
			return err
		}
		incidents, _, err := figures.Incidents(v, app.Now(), app.Now())
		if err != nil {
			return err
		}
		open := map[domain.Severity]int{}
		for i := range incidents {
			if incidents[i].State == advice.Open {
				open[incidents[i].Case.Severity]++
			}
		}
		for _, severity := range domain.Severities() {
			s.incidents.WithLabelValues(string(severity)).Set(float64(open[severity]))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := totalUncompared(uncompared); n > totalUncompared(s.seen.Uncompared) {
			s.log.Warn("events may be repeats, but the originals are no longer remembered; some may be forged: see \"quartermaster inventory\"",
				"events", n, "streams", len(uncompared), "first", uncompared[0].String())
		}
		s.seen.Quarantined, s.seen.Missing, s.seen.Uncompared = quarantined.For(""), missing, uncompared
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot count what is in quarantine and what is missing", "error", err)
	}
}

func totalUncompared(streams []inventory.Uncompared) (n uint64) {
	for i := range streams {
		n += streams[i].Dropped + streams[i].Quarantined
	}
	return n
}

// Serve holds the embedded log and folds it, until ctx ends.
func (d *Daemon) Serve(ctx context.Context, listen string, gw config.Gateway, api config.API) (err error) {
	s := d.newService()
	gateway := s.newGateway(gw)
	h, err := d.own(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	s.conn = h
	work := newWorkMetrics()
	s.more = append(s.more, work)
	s.progress = func() map[string]projections.Progress {
		return map[string]projections.Progress{"": h.Runner.Progress()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait, err := s.answer(ctx, cancel, listen)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer func() {
		cancel(nil)
		wg.Wait()
		wait()
	}()
	if gateway != nil {
		pushed, err := gateway.serve(ctx, cancel)
		if err != nil {
			return err
		}
		wg.Go(pushed)
	}
	if h.Broker != nil { // nobody else serves this directory
		api.Socket = filepath.Join(d.App.Dir, apiSocket)
		asked, err := s.serveAPI(ctx, cancel, api, d.Browser)
		if err != nil {
			return err
		}
		wg.Go(asked)
	}

	start := time.Now()
	h.Load()
	if err := h.CatchUp(ctx); err != nil {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		return err
	}
	s.ready.Store(true)
	s.log.Info("caught up", "events", h.Runner.Progress().Records, "seconds", time.Since(start).Seconds())

	wg.Go(func() { s.look(ctx) })
	wg.Go(func() { s.tell(ctx) })
	reacting := make(chan struct{})
	if len(d.Receivers.Webhooks) > 0 {
		wg.Go(func() {
			if err := react(ctx, h, &config.Config{Webhooks: d.Receivers.Webhooks}, alone, work, s.log, reacting); err != nil {
				cancel(err)
			}
		})
	} else {
		close(reacting)
	}
	if d.Advice {
		wg.Go(func() {
			select { // a webhook hears of what comes after it was started for the first time
			case <-reacting:
			case <-ctx.Done():
			}
			if err := s.advise(ctx, d.Receivers.Alertmanagers, work); err != nil {
				cancel(fmt.Errorf("evaluate the rules of advice: %w", err))
			}
		})
	}
	wg.Go(func() {
		save := time.NewTicker(saveEvery)
		defer save.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-save.C:
				if err := h.Save(); err != nil {
					s.log.Error("cannot write a snapshot", "error", err)
				}
			}
		}
	})
	if err := h.Runner.Follow(ctx); err != nil {
		s.failure.Store(&err)
		return err
	}
	s.log.Info("stopping", "position", h.Runner.Progress().Position.String())
	return stopped(ctx)
}

// stopped returns nil for an intended stop, and the error of a failure.
func stopped(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
