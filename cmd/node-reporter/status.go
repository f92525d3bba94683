package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"quartermaster/adapters/transport"
)

// maxStatusConnections bounds the open connections of the status listener.
const maxStatusConnections = 32

// serve answers /metrics, /debug/pprof/, /healthz and /livez until the returned function is called.
func (r *reporter) serve() (stop func(), err error) {
	if r.cfg.Listen == "off" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", r.cfg.Listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	transport.Monitor(mux, promhttp.HandlerFor(r.metrics(), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", r.health)
	mux.HandleFunc("GET /livez", live)
	s := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		Handler:           mux,
	}
	go func() {
		if err := s.Serve(transport.Limit(l, maxStatusConnections)); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error("the status server ended", "error", err)
		}
	}()
	r.log.Info("status", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	}, nil
}

// problems returns what a person should fix, the most important first.
func (r *reporter) problems() (out []string) {
	if r.blocked.Load() {
		out = append(out, "the spool takes no more faults: free space on the disk of "+r.cfg.Spool.Dir)
	}
	for _, t := range queueNames {
		if st := r.queue(t).Stats(); st.Held > 0 {
			out = append(out, "the spool's disk does not accept events: they are held in memory")
			break
		}
	}
	r.mu.Lock()
	if s := r.memory.Silence; s.From != 0 {
		out = append(out, "the collector is silent since "+s.From.String()+": "+s.Why)
	}
	r.mu.Unlock()
	if n := r.excluded.Load(); n > 0 {
		out = append(out, fmt.Sprintf("%d devices and shares are not reported: a sample holds %d", n, mostEntries))
	}
	said := map[string]bool{}
	for _, c := range r.couriers {
		if why := c.failing.Load(); why != nil && !said[why.kind] {
			said[why.kind] = true
			out = append(out, "events are not delivered: "+why.text)
		}
	}
	r.held.mu.Lock()
	for i, f := range r.held.faults {
		if f != "" {
			out = append(out, "the holders of GPUs are not fully known ("+attributionSources[i]+"): "+f)
		}
	}
	r.held.mu.Unlock()
	return out
}

// health answers 200 for as long as the program works. A restart fixes nothing that it reports, and
// would lose the events in memory while the disk accepts none. Problems are in the body.
func (r *reporter) health(w http.ResponseWriter, _ *http.Request) {
	problems := r.problems()
	w.Header().Set("Content-Type", "application/json")
	// A client that does not get the answer asks again.
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": len(problems) == 0, "problems": append([]string{}, problems...)})
}

// live answers for as long as the process runs. It waits for nothing. Otherwise a disk that hangs
// would get the reporter killed, with the faults that it holds in memory until the disk accepts
// them.
func live(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// metrics returns the reporter's metrics, which read its counters.
func (r *reporter) metrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	type options = prometheus.CounterOpts
	type kind func(options, func() float64) prometheus.Collector
	add := func(construct kind, name, help string, labels prometheus.Labels, value func() float64) {
		reg.MustRegister(construct(options{Name: "node_reporter_" + name, Help: help, ConstLabels: labels}, value))
	}
	counter := func(o prometheus.CounterOpts, f func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(o, f)
	}
	gauge := func(o prometheus.CounterOpts, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(o), f)
	}
	load := func(n *atomic.Int64) func() float64 { return func() float64 { return float64(n.Load()) } }
	add(counter, "samples_total", "Samples made.", nil, load(&r.samples))
	add(counter, "faults_total", "Faults reported.", nil, load(&r.faults))
	add(counter, "fault_repeats_total", "Faults that the collector repeated after they were reported.", nil,
		load(&r.repeats))
	add(counter, "events_unmade_total",
		"Observations that could not be encoded as events: a defect of this program.", nil, load(&r.failed))
	add(counter, "collector_starts_total", "Starts of the collector.", nil,
		func() float64 { return float64(r.super.starts.Load()) })
	add(counter, "clock_steps_total", "Times that the clock was set by more than a second.", nil, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(r.sampler.steps)
	})
	add(gauge, "collector_silent", "1 while there are no measurements.", nil, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(boolInt(r.memory.Silence.From != 0))
	})
	add(gauge, "last_frame_timestamp_seconds", "Time of the collector's last frame.", nil, func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(r.last) / 1e9
	})
	add(gauge, "clock_error_bound_seconds", "Greatest known error of the clock; 0 if unknown.", nil,
		func() float64 { return r.clock.bound().Seconds() })
	add(gauge, "spool_blocked", "1 while the spool accepts no faults, on disk or in memory.", nil,
		func() float64 { return float64(boolInt(r.blocked.Load())) })
	add(gauge, "excluded_devices", "Devices and shares of devices that did not fit into the last sample.", nil,
		func() float64 { return float64(r.excluded.Load()) })
	add(gauge, "unknown_device_ids", "Devices held by pods whose ids are unknown.", nil, func() float64 {
		r.held.mu.Lock()
		defer r.held.mu.Unlock()
		return float64(r.held.unknown)
	})
	for _, c := range r.couriers {
		l := prometheus.Labels{"topic": string(c.topic)}
		q := c.queue
		add(gauge, "spool_bytes", "Bytes of the spool's segments.", l,
			func() float64 { return float64(q.Stats().Bytes) })
		add(gauge, "spool_waiting_events", "Events that wait for delivery.", l,
			func() float64 { return float64(q.Stats().Waiting) })
		add(gauge, "spool_held_events", "Events in memory that the disk did not accept.", l,
			func() float64 { return float64(q.Stats().Held) })
		add(counter, "spool_lost_events_total", "Events dropped or damaged.", l,
			func() float64 { return float64(q.Stats().Losses) })
		add(counter, "delivered_events_total", "Events that the log acknowledged.", l,
			func() float64 { return float64(c.sent.Load()) })
		add(counter, "delivery_failures_total", "Deliveries that failed and are retried.", l,
			func() float64 { return float64(c.failures.Load()) })
		add(gauge, "last_delivery_timestamp_seconds", "Time of the log's last acknowledgement.", l,
			func() float64 { return float64(c.last.Load()) })
	}
	if len(r.couriers) > 0 {
		refused := r.couriers[0].refused
		add(counter, "refused_events_total",
			"Events that the log will never accept; they are in the file refused.jsonl.", nil,
			func() float64 { return float64(refused.count.Load()) })
	}
	return reg
}
