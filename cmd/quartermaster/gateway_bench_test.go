package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// BenchmarkGateway measures how many deliveries a second are answered when 64 nodes of one
// cluster deliver one sample at a time over HTTP, each answered after the embedded log has synced
// it. Beside it stands the same with an append for each delivery, one after the other.
//
// An operation is a delivery.
func BenchmarkGateway(b *testing.B) {
	const nodes = 64
	bodies := deliveries(b, nodes, 500)
	for _, way := range []struct {
		name string
		mu   sync.Locker
	}{{"an append for each delivery", new(sync.Mutex)}, {"deliveries together", nil}} {
		b.Run(way.name, func(b *testing.B) {
			h, err := commandLine(&app.App{Dir: b.TempDir()}, io.Discard, io.Discard).OpenLog(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := h.Shut(); err != nil {
					b.Error(err)
				}
			}()
			deliverAll(b, bodies, nodes, func(ctx context.Context, recs []domain.Record) error {
				if way.mu != nil {
					way.mu.Lock()
					defer way.mu.Unlock()
				}
				return h.Log.Append(ctx, recs)
			})
		})
	}
}

// deliveries returns bodies with one sample each, by node.
func deliveries(b *testing.B, nodes, each int) [][][]byte {
	e := newEstate(nodes, 10*time.Second)
	e.clusters, e.start = 1, domain.InstantOf(time.Now().Truncate(time.Hour))-2*domain.Hour
	bodies := make([][][]byte, nodes)
	for range each {
		recs, err := e.round()
		if err != nil {
			b.Fatal(err)
		}
		for n := range recs {
			body, err := wire.AppendBatch(nil, &recs[n])
			if err != nil {
				b.Fatal(err)
			}
			bodies[n] = append(bodies[n], body)
		}
	}
	return bodies
}

// deliverAll sends b.N deliveries, from all nodes at once. Each node sends its own in order.
func deliverAll(b *testing.B, bodies [][][]byte, nodes int, appendTo func(context.Context, []domain.Record) error) {
	key, err := domain.NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{1}, 64)))
	if err != nil {
		b.Fatal(err)
	}
	const cluster = "cluster-00"
	srv := httptest.NewServer(&httpapi.Gateway{
		Keys: &httpapi.Keys{
			Load: func(context.Context) ([]registry.ClusterKeyEntry, error) {
				return []registry.ClusterKeyEntry{{Cluster: cluster, KeyID: key.ID, MAC: key.MAC(cluster)}}, nil
			},
			Now: time.Now,
		},
		Read: wire.ReadBatch, ContentType: wire.BatchContentType, AnswerType: wire.AnswerContentType,
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		Append:     appendTo,
		Denied:     func(d httpapi.Denial) { b.Errorf("%+v", d) },
		Log:        slog.New(slog.DiscardHandler),
	})
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: nodes}}
	post := func(body []byte) error {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/v1/events", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+key.String())
		req.Header.Set("Content-Type", wire.BatchContentType)
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err == nil && (res.StatusCode != http.StatusOK || bytes.Contains(answer, []byte("refused"))) {
			err = fmt.Errorf("answer %d %s", res.StatusCode, answer)
		}
		return err
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for n := range nodes {
		wg.Go(func() {
			for i := 0; left.Add(-1) >= 0; i++ {
				if err := post(bodies[n][i%len(bodies[n])]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
