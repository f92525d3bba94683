// Package httpapi is the service's HTTP surface: whether it lives, whether it
// is ready, and its metrics in the Prometheus exposition format.
//
//	GET /healthz  200 while the process works, 503 once folding has failed
//	GET /readyz   200 once the rows have caught up with the log, as long as
//	              this process can keep them so, else 503 and why
//	GET /metrics  counters of the folds, lag per partition, quarantine, gaps
package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Status is what the service says of itself. Its functions are called for
// every request and must not block.
type Status struct {
	// Failure returns why the service cannot go on, nil while it can.
	Failure func() error
	// CaughtUp reports whether the rows have once reached the end of the log.
	CaughtUp func() bool
	// Hindrance returns why this process does not fold at the moment what it
	// should, though it may again; nil while it does.
	Hindrance func() error
	// Progress is what this process folded since its start, by generation of
	// rows; positions are of the partitions that it folds now.
	Progress func() map[string]projections.Progress
	// Seen is what was last seen of the log and of the rows.
	Seen func() Seen
	// More are further metrics.
	More []prometheus.Collector
}

// Seen is what is looked at now and then, because looking costs something.
type Seen struct {
	End         domain.Position         // of the log
	Quarantined int                     // records in quarantine that are not resolved; -1: not known yet
	Missing     map[domain.Topic]uint64 // events that are known to exist and have not arrived
}

// Handler serves the endpoints.
func Handler(s Status) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collector{s})
	reg.MustRegister(s.More...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Failure(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.Failure()
		if err == nil {
			err = s.Hindrance()
		}
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !s.CaughtUp():
			var n int64
			for _, p := range s.Progress() {
				n += p.Records
			}
			http.Error(w, fmt.Sprintf("folding: %d events so far", n), http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

var (
	recordsDesc    = prometheus.NewDesc("quartermaster_records_total", "Records folded since the start, by what became of them.", []string{"generation", "outcome"}, nil)
	nextDesc       = prometheus.NewDesc("quartermaster_partition_next_offset", "Offset of the next record to fold, of the partitions that this process folds.", []string{"generation", "topic", "partition"}, nil)
	lagDesc        = prometheus.NewDesc("quartermaster_partition_lag_records", "Records in the log that are not folded yet, of the partitions that this process folds.", []string{"generation", "topic", "partition"}, nil)
	quarantineDesc = prometheus.NewDesc("quartermaster_quarantine_open_records", "Records that could not be folded and are not resolved.", nil, nil)
	missingDesc    = prometheus.NewDesc("quartermaster_missing_events", "Events that are known to exist, by the gaps in their streams, and have not arrived.", []string{"topic"}, nil)
)

type collector struct{ s Status }

func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recordsDesc, nextDesc, lagDesc, quarantineDesc, missingDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	seen := c.s.Seen()
	for generation, p := range c.s.Progress() {
		for outcome, n := range map[string]int64{"folded": p.Folded, "repeat": p.Repeats, "quarantined": p.Quarantined} {
			ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(n), generation, outcome)
		}
		for tp, next := range p.Position {
			part := strconv.Itoa(tp.Partition)
			ch <- prometheus.MustNewConstMetric(nextDesc, prometheus.GaugeValue, float64(next), generation, string(tp.Topic), part)
			ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(max(0, seen.End[tp]-next)), generation, string(tp.Topic), part)
		}
	}
	if seen.Quarantined >= 0 {
		ch <- prometheus.MustNewConstMetric(quarantineDesc, prometheus.GaugeValue, float64(seen.Quarantined))
	}
	for topic, n := range seen.Missing {
		ch <- prometheus.MustNewConstMetric(missingDesc, prometheus.GaugeValue, float64(n), string(topic))
	}
}
