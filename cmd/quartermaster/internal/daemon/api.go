package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"quartermaster/adapters/transport"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
)

// apiSocket is the name of the API's socket in a data directory. Whoever owns the directory may use it.
const apiSocket = "api.sock"

// mostAtOnce bounds the questions that are answered at once from rows in memory.
const mostAtOnce = 16

// maxAPIConnections bounds the connections to the API.
const maxAPIConnections = 256

// errNotReady means that the rows cannot answer yet.
var errNotReady = &app.UnavailableError{Err: errors.New("the rows have not caught up with the log since the start: ask again in a few seconds")}

// serveAPI serves the API on a unix socket, to whoever may use the socket, until ctx ends. It returns once it listens;
// wait returns when it has stopped, and nobody uses the log and the rows any more. A failure calls cancel.
func (s *service) serveAPI(ctx context.Context, cancel context.CancelCauseFunc, socket string) (wait func(), err error) {
	ln, err := transport.ListenSocket(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	share := s.conn.Sharing()
	atOnce := mostAtOnce
	if cfg := s.app.Config; cfg != nil {
		atOnce = cfg.Postgres.MaxConns / 4 // folding and the leases need the others
	}
	handler, end := api.Handler(api.Config{
		Who: func(*http.Request) (app.Principal, error) { return app.Everyone, nil },
		Open: func(who app.Principal) (*app.App, error) {
			if !s.ready.Load() {
				return nil, errNotReady
			}
			return share(who), nil
		},
		AtOnce:  atOnce,
		Context: ctx,
		Log:     s.log,
	})
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		Handler:        handler,
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(transport.Limit(ln, maxAPIConnections)); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("api: %w", err))
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		bound, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := srv.Shutdown(bound); err != nil {
			s.log.Warn("some answers were cut off", "error", errors.Join(err, srv.Close()))
		}
		end()
	})
	s.log.Info("serving the API", "socket", socket)
	return wg.Wait, nil
}
