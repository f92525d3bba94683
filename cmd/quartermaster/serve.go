package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/httpapi"
	"quartermaster/domain"
	"quartermaster/projections"
)

func (a *app) serveCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Hold the log and fold it continuously",
		Long: `Serve holds the embedded log for other commands, which use it through the
socket in the home, and folds new events as they come. It stops cleanly on
SIGINT and SIGTERM.

  GET /healthz   200 while it works
  GET /readyz    200 once the rows have caught up with the log
  GET /metrics   Prometheus metrics

With --json it logs JSON lines: time, level, msg and what the message names.`,
		Example: "  quartermaster serve\n  quartermaster serve --listen 0.0.0.0:7070",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), listen)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "address of the HTTP endpoints")
	return cmd
}

// ownWait is how long serve waits for commands that hold the log to finish.
const ownWait = time.Minute

// own opens the log as its owner, once whoever holds it lets go.
func (a *app) own(ctx context.Context, log *slog.Logger) (*home, error) {
	bound, cancel := context.WithTimeout(ctx, a.ownWait)
	defer cancel()
	for first := true; ; first = false {
		h, err := a.openLog(ctx)
		if err != nil || h.broker == nil || h.broker.Owner() {
			return h, err
		}
		gone := h.broker.Done()
		if first {
			log.Info("another process holds the log; waiting for it to finish", "home", a.dir, "at_most", a.ownWait.String())
		}
		select {
		case <-gone:
			err = nil
		case <-bound.Done():
			err = fmt.Errorf("another process holds %s, and has for %s: is quartermaster served from there already?", a.dir, a.ownWait)
		}
		if err := errors.Join(err, h.log.Close(), h.closeBroker()); err != nil {
			return nil, err
		}
	}
}

// How often serve looks how long the log is, and whether a snapshot is due.
const (
	lookEvery = 5 * time.Second
	saveEvery = 10 * time.Minute
)

func (a *app) serve(ctx context.Context, listen string) (err error) {
	var handler slog.Handler = slog.NewTextHandler(a.err, nil)
	if a.json {
		handler = slog.NewJSONHandler(a.err, nil)
	}
	log := slog.New(handler)

	h, err := a.own(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	var (
		caughtUp atomic.Bool
		failure  atomic.Pointer[error]
		mu       sync.Mutex
		end      domain.Position
	)
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: httpapi.Handler(httpapi.Status{
			Failure: func() error {
				if e := failure.Load(); e != nil {
					return *e
				}
				return nil
			},
			CaughtUp: caughtUp.Load,
			Progress: h.runner.Progress,
			Quarantined: func() int {
				n := 0
				if err := h.store.View(context.Background(), func(v projections.View) error {
					l, err := projections.Quarantine(v)
					if err == nil {
						n = l.Open
					}
					return err
				}); err != nil {
					return -1
				}
				return n
			},
			End: func() domain.Position {
				mu.Lock()
				defer mu.Unlock()
				return end.Clone()
			},
		}),
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve: %w", err))
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		bound, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := srv.Shutdown(bound); err != nil {
			log.Warn("some requests were cut off", "error", err)
		}
	})
	defer cancel(nil)
	log.Info("listening", "address", ln.Addr().String(), "home", a.dir)

	start := time.Now()
	h.load()
	if err := h.catchUp(ctx); err != nil {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		return err
	}
	caughtUp.Store(true)
	log.Info("caught up", "events", h.runner.Progress().Records, "seconds", time.Since(start).Seconds())

	wg.Go(func() {
		look, save := time.NewTicker(lookEvery), time.NewTicker(saveEvery)
		defer look.Stop()
		defer save.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				e, err := h.end(ctx)
				if err != nil {
					continue // folding meets the same failure, and says so
				}
				mu.Lock()
				end = e
				mu.Unlock()
			case <-save.C:
				if err := h.save(); err != nil {
					log.Error("cannot write a snapshot", "error", err)
				}
			}
		}
	})
	if err := h.runner.Follow(ctx); err != nil {
		failure.Store(&err)
		return err
	}
	log.Info("stopping", "position", h.runner.Progress().Position.String())
	return stopped(ctx)
}

// stopped tells a wanted stop from a failure.
func stopped(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
