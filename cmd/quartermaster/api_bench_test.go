package main

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"quartermaster/adapters/oidc/oidctest"
	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/cmd/quartermaster/internal/config"
)

// BenchmarkAPI asks a server, through its socket, questions whose answers are kept, with and without their tag; and the
// command, which folds the log first. Four are asked at once.
func BenchmarkAPI(b *testing.B) {
	dir := demoEstate(b)
	idp, cert := oidctest.New(b), testcert.New(b)
	s := serveListening(b, dir, idp, func(a *config.API) { a.CertFile, a.KeyFile = cert.Cert, cert.Key })
	s.command("access", "grant", "user:corp/ana", "--role", "viewer", "--key", filepath.Join(dir, "operator.pem"))
	pool, err := transport.Pool(cert.Cert)
	if err != nil {
		b.Fatal(err)
	}
	over := transport.Trusting(pool)
	over.Transport.(*http.Transport).MaxIdleConnsPerHost = 8
	token := idp.Token(b, "ana")
	const usage = "/api/v1/usage?from=2026-05-01&to=2026-05-04&by=workspace"
	ask := func(client *http.Client, base string, header ...string) (int, http.Header, error) {
		req, err := http.NewRequest(http.MethodGet, base+usage, nil)
		if err != nil {
			return 0, nil, err
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header, err
	}
	bearer := []string{"Authorization", "Bearer " + token}
	base := strings.Replace(s.base, "127.0.0.1", "localhost", 1)
	var tag string
	for end := time.Now().Add(5 * time.Second); tag == ""; {
		_, header, err := ask(over, base, bearer...)
		if err != nil || time.Now().After(end) {
			b.Fatalf("the grant has no effect: %v", err)
		}
		tag = header.Get("ETag")
	}
	socket := socketOf(dir)
	for _, c := range []struct {
		name   string
		client *http.Client
		base   string
		header []string
		want   int
	}{
		{"answer", socket, "http://quartermaster", nil, http.StatusOK},
		{"identity", over, base, bearer, http.StatusOK}, // over TLS, with a verified token, and recorded
		{"unchanged", over, base, append(bearer, "If-None-Match", tag), http.StatusNotModified},
	} {
		b.Run(c.name, func(b *testing.B) {
			var mu sync.Mutex
			var all []time.Duration
			b.SetParallelism(2)
			b.RunParallel(func(pb *testing.PB) {
				var took []time.Duration
				for pb.Next() {
					began := time.Now()
					if status, _, err := ask(c.client, c.base, c.header...); err != nil || status != c.want {
						b.Errorf("%d %v", status, err)
						return
					}
					took = append(took, time.Since(began))
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, took...)
			})
			slices.Sort(all)
			if len(all) > 0 {
				b.ReportMetric(float64(all[len(all)*99/100])/1e6, "ms-p99")
				b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "answers/s")
			}
		})
	}
	s.stop()
	b.Run("command", func(b *testing.B) {
		for b.Loop() {
			if code := run(strings.Split("usage --from 2026-05-01 --to 2026-05-04 --by workspace -o json --data-dir "+dir, " "),
				strings.NewReader(""), io.Discard, io.Discard); code != 0 {
				b.Fatal(code)
			}
		}
	})
}
