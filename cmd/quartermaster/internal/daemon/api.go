package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/transport"
	"quartermaster/adapters/web"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
)

// apiSocket is the name of the API's socket in a data directory. Whoever owns the directory may use it.
const apiSocket = "api.sock"

// Loopback is the address for browsers of this machine, with any free port.
const Loopback = "127.0.0.1:0"

// mostAtOnce bounds the questions that are answered at once from rows in memory.
const mostAtOnce = 16

// maxAPIConnections bounds the connections to the API.
const maxAPIConnections = 256

// errNotReady means that the rows cannot answer yet.
var errNotReady = &app.UnavailableError{Err: errors.New("the rows have not caught up with the log since the start: ask again in a few seconds")}

// apiFlags defines the API's flags, for a log without a configuration file.
func apiFlags(cmd *cobra.Command, a *config.API) {
	f := cmd.Flags()
	f.StringVar(&a.Listen, "api", "", "address that answers whoever has a grant; default none")
	f.StringVar(&a.CertFile, "api-cert", "", "certificate of the API, PEM")
	f.StringVar(&a.KeyFile, "api-key", "", "private key of the certificate, PEM")
	f.String("api-config", "", "file with the key api, as in a configuration: also for identity providers; instead of the flags above")
	f.BoolVar(&a.Plain, "api-plain", false, "answer other machines without TLS: for a proxy that terminates TLS")
}

// readAPI reads the file that --api-config names.
func readAPI(cmd *cobra.Command, a *config.API) (err error) {
	path, err := cmd.Flags().GetString("api-config")
	if err != nil || path == "" {
		return err
	}
	for _, other := range []string{"api", "api-cert", "api-key", "api-plain"} {
		if cmd.Flags().Changed(other) {
			return fmt.Errorf("--%s and --api-config: give one of them", other)
		}
	}
	*a, err = config.ReadAPI(path)
	return err
}

// listenLoopback listens at an address that only this machine reaches.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if at, ok := ln.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("--browser %s: other machines could reach it; use 127.0.0.1", address), ln.Close())
	}
	return ln, nil
}

// ofOwner marks the connections of a socket that only the owner of the home may use.
type ofOwner struct{}

// serveAPI serves the API until ctx ends: on a socket to whoever may use it, and on an address to whoever has a grant. It
// returns once it listens; wait returns when it has stopped, and nobody uses the log and the rows any more. A failure
// calls cancel.
//
// On browser, an address of loopback, it answers browsers that a link made those of the owner; "": there are no links.
func (s *service) serveAPI(
	ctx context.Context, cancel context.CancelCauseFunc, cfg config.API, browser string,
) (wait func(), err error) {
	var servers []func() error
	defer func() {
		if err != nil {
			err = fmt.Errorf("api: %w", err)
		}
	}()
	share := s.conn.Sharing()
	atOnce := mostAtOnce
	if cfg := s.app.Config; cfg != nil {
		atOnce = cfg.Postgres.MaxConns / 4 // folding and the leases need the others
	}
	d, err := s.newDoorman(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && d.journal != nil {
			err = errors.Join(err, d.journal.unlock())
		}
	}()
	pages, err := web.Handler()
	if err != nil {
		return nil, err
	}
	handler, end := api.Handler(api.Config{
		Pages:  pages,
		Who:    d.who,
		Record: d.record,
		Logout: d.logout, Providers: loginProviders(cfg), Link: d.link, Key: d.cursorKey,
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
	public, local := d.publicSite(cfg), (*api.Site)(nil)
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		Handler:        handler,
		BaseContext: func(ln net.Listener) context.Context {
			if ln.Addr().Network() == "unix" {
				return context.WithValue(ctx, ofOwner{}, true)
			}
			if d.links != nil && "http://"+ln.Addr().String() == d.links.origin {
				return api.On(ctx, local)
			}
			return api.On(ctx, public)
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // every port scan causes errors
	}
	if cfg.Socket != "" {
		ln, err := transport.ListenSocket(ctx, cfg.Socket)
		if err != nil {
			return nil, err
		}
		servers = append(servers, func() error { return srv.Serve(transport.Limit(ln, maxAPIConnections)) })
		s.log.Info("serving the API", "socket", cfg.Socket)
	}
	if browser != "" {
		ln, err := listenLoopback(ctx, browser)
		if err != nil {
			return nil, err
		}
		d.links = newLinks("http://" + ln.Addr().String())
		local = d.links.site()
		servers = append(servers, func() error { return srv.Serve(transport.Limit(ln, maxAPIConnections)) })
		s.log.Info("open it in a browser of this machine, once and within 5 minutes", "link", d.links.make().Link)
	}
	if cfg.Listen != "" {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
		if err != nil {
			return nil, err
		}
		address := ln.Addr().String()
		ln = transport.Limit(ln, maxAPIConnections)
		if cfg.CertFile != "" {
			cert := transport.NewCertificate(cfg.CertFile, cfg.KeyFile, s.log)
			if _, err := cert.Get(); err != nil {
				return nil, errors.Join(err, ln.Close())
			}
			s.shows("api", cert)
			ln = tls.NewListener(ln, &tls.Config{
				MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Get() },
			})
		}
		servers = append(servers, func() error { return srv.Serve(ln) })
		s.log.Info("serving the API", "address", address, "tls", cfg.CertFile != "")
	}
	var wg sync.WaitGroup
	for _, serve := range servers {
		wg.Go(func() {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("api: %w", err))
			}
		})
	}
	var kept sync.WaitGroup
	kept.Go(func() { d.keep(ctx) })
	wg.Go(func() {
		<-ctx.Done()
		bound, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := srv.Shutdown(bound); err != nil {
			s.log.Warn("some answers were cut off", "error", errors.Join(err, srv.Close()))
		}
		end()
		kept.Wait()
		d.keepLast(ctx)
		if d.journal != nil {
			_ = d.journal.unlock()
		}
	})
	return wg.Wait, nil
}
