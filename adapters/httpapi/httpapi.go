// Package httpapi is the service's HTTP surface: whether it lives, whether it
// is ready, and its metrics in the Prometheus exposition format.
//
//	GET /healthz  200 while the process works, 503 once folding has failed
//	GET /readyz   200 once the rows have caught up with the log, else 503
//	GET /metrics  counters of the folds, and the lag per partition
package httpapi

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Status is what the service says of itself. Its functions are called for
// every request and must not block for long.
type Status struct {
	// Failure returns why the service cannot go on, nil while it can.
	Failure func() error
	// CaughtUp reports whether the rows have once reached the end of the log.
	CaughtUp func() bool
	// Progress is what the folds did since the start.
	Progress func() projections.Progress
	// Quarantined is how many records are in quarantine and not resolved, -1 when
	// that cannot be told.
	Quarantined func() int
	// End is how far the log is known to go.
	End func() domain.Position
}

// Handler serves the endpoints.
func Handler(s Status) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{s})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Failure(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch err := s.Failure(); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !s.CaughtUp():
			http.Error(w, fmt.Sprintf("folding: %d events so far", s.Progress().Records), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

var (
	recordsDesc    = prometheus.NewDesc("quartermaster_records_total", "Records read from the log since the start, by what became of them.", []string{"outcome"}, nil)
	nextDesc       = prometheus.NewDesc("quartermaster_partition_next_offset", "Offset of the next record to fold.", []string{"topic", "partition"}, nil)
	quarantineDesc = prometheus.NewDesc("quartermaster_quarantine_open_records", "Records that could not be folded and are not resolved.", nil, nil)
	lagDesc        = prometheus.NewDesc("quartermaster_partition_lag_records", "Records in the log that are not folded yet.", []string{"topic", "partition"}, nil)
)

type collector struct{ s Status }

func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- recordsDesc
	ch <- nextDesc
	ch <- lagDesc
	ch <- quarantineDesc
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	p, end := c.s.Progress(), c.s.End()
	outcome := func(name string, n int64) {
		ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(n), name)
	}
	outcome("folded", p.Folded)
	outcome("repeat", p.Repeats)
	outcome("quarantined", p.Quarantined)
	ch <- prometheus.MustNewConstMetric(quarantineDesc, prometheus.GaugeValue, float64(c.s.Quarantined()))
	for tp, next := range p.Position {
		part := fmt.Sprint(tp.Partition)
		ch <- prometheus.MustNewConstMetric(nextDesc, prometheus.GaugeValue, float64(next), string(tp.Topic), part)
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(max(0, end[tp]-next)), string(tp.Topic), part)
	}
}
