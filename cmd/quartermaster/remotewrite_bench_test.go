package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"google.golang.org/protobuf/proto"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/remotewrite"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// BenchmarkRemoteWrite measures how many samples a second are accepted, each request
// answered after the embedded log has acknowledged what came of it. Requests are
// what Prometheus sends of 64 nodes of eight GPUs and 32 model servers: 5,000
// samples each, from eight senders over HTTP. Beside it stands decompressing and
// decoding the same requests with the generated code and doing nothing.
//
// An operation is a sample. heap-MiB is what is held at the end, after a collection.
func BenchmarkRemoteWrite(b *testing.B) {
	start := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	bodies, samples := scrapeBodies(b, start, 1)
	b.Run("plain decoding", func(b *testing.B) {
		each := samples / len(bodies)
		var req writev2.Request
		for i := 0; i < b.N; i += each {
			raw, err := snappy.Decode(nil, bodies[i/each%len(bodies)])
			if err != nil {
				b.Fatal(err)
			}
			req.Reset()
			if err := proto.Unmarshal(raw, &req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
	})
	b.Run("acknowledged", func(b *testing.B) { acceptBodies(b, bodies, samples) })
	// Eight shards, each of which holds one metric of every GPU: the most events.
	bodies, samples = scrapeBodies(b, start, 8)
	b.Run("scattered and acknowledged", func(b *testing.B) { acceptBodies(b, bodies, samples) })
}

// acceptBodies sends requests until b.N samples are accepted.
func acceptBodies(b *testing.B, bodies [][]byte, samples int) {
	a := commandLine(&app.App{Dir: b.TempDir()}, io.Discard, io.Discard)
	h, err := a.Open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			b.Error(err)
		}
	}()
	stream := kafka.NewStream(h.Log, kafka.StreamConfig{Source: "prometheus/bench", Incarnation: 1, Encode: wire.Encode})
	srv := httptest.NewServer(remotewrite.Handler(remotewrite.Config{
		Authenticate: func(*http.Request) (string, error) { return "c1", nil },
		Append: func(ctx context.Context, events []domain.Envelope) error {
			all := make([]*domain.Envelope, len(events))
			for i := range events {
				all[i] = &events[i]
			}
			return stream.Append(ctx, all...)
		},
		Now: time.Now,
	}))
	defer srv.Close()
	each := samples / len(bodies)
	var next atomic.Int64
	requests := max(1, b.N/each)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= requests {
					return
				}
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL, bytes.NewReader(bodies[i%len(bodies)]))
				if err != nil {
					b.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")
				req.Header.Set("Content-Encoding", "snappy")
				res, err := client.Do(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusNoContent {
					b.Errorf("answer %d", res.StatusCode)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(requests*each)/b.Elapsed().Seconds(), "samples/s")
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc>>20), "heap-MiB")
}

// scrapeBodies returns requests, compressed, and how many samples they hold. They
// are of one hour, a scrape after the other; or each of a part of the series, and of
// as many scrapes as there are parts.
func scrapeBodies(b *testing.B, start time.Time, parts int) (bodies [][]byte, samples int) {
	const scrapes, nodes, servers = 24, 64, 32
	type series struct {
		labels []string
		value  float64
	}
	var all []series
	for n := range nodes {
		for g := range 8 {
			for i, m := range []string{"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK"} {
				v := 0.5
				if i > 3 {
					v = 60
				}
				all = append(all, series{[]string{
					"__name__", m, "UUID", fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", n+1, g+1), "gpu", fmt.Sprint(g), "device", fmt.Sprintf("nvidia%d", g),
					"modelName", "NVIDIA H100 80GB HBM3", "hostname", fmt.Sprintf("node-%03d", n), "exported_pod", fmt.Sprintf("chat-%d", n%8), "exported_namespace", "ml",
					"exported_container", "vllm", "pod", "dcgm-exporter-abcde", "namespace", "gpu-operator", "instance", fmt.Sprintf("10.0.0.%d:9400", n), "job", "dcgm",
				}, v})
			}
		}
	}
	for s := range servers {
		labels := func(name string, more ...string) []string {
			return append([]string{"__name__", name, "model_name", "llama-70b", "engine", "0", "pod", fmt.Sprintf("chat-%d", s), "namespace", "ml", "instance", fmt.Sprintf("10.1.0.%d:8000", s), "job", "vllm"}, more...)
		}
		for _, h := range []string{"vllm:time_to_first_token_seconds", "vllm:request_queue_time_seconds"} {
			for le := range 12 {
				all = append(all, series{labels(h+"_bucket", "le", fmt.Sprint(float64(le+1)/10)), float64(100 * le)})
			}
			all = append(all, series{labels(h+"_bucket", "le", "+Inf"), 1200}, series{labels(h + "_sum"), 600}, series{labels(h + "_count"), 1200})
		}
		for _, m := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:prompt_tokens_total", "vllm:generation_tokens_total"} {
			all = append(all, series{labels(m), 7})
		}
	}
	for k := range scrapes {
		first := k / parts * parts
		table := writev2.NewSymbolTable()
		req := &writev2.Request{}
		for i, s := range all {
			if i%parts != k%parts {
				continue
			}
			ts := &writev2.TimeSeries{LabelsRefs: table.SymbolizeLabels(s.labels, nil)}
			for at := first; at < first+parts; at++ {
				ts.Samples = append(ts.Samples, &writev2.Sample{Value: s.value, Timestamp: start.Add(time.Duration(at) * 30 * time.Second).UnixMilli()})
				samples++
			}
			req.Timeseries = append(req.Timeseries, ts)
		}
		req.Symbols = table.Symbols()
		raw, err := proto.Marshal(req)
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, snappy.Encode(nil, raw))
	}
	return bodies, samples
}
