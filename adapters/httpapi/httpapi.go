// Package httpapi is the HTTP API of the service: liveness, readiness, metrics in the
// Prometheus exposition format, and the [Gateway] for the events of nodes.
//
//	GET /healthz  200 while the process works, 503 once folding has failed
//	GET /readyz   200 once the rows have caught up with the log and while this
//	              process can keep them current, else 503 and the reason. A
//	              stopped partition of the active generation is named with
//	              offset, reason and remedy if this process folds it or cannot
//	              catch up because of it. After "ok", lines that begin with
//	              "warning: " name other problems, present or imminent.
//	GET /metrics  counters of the folds, lag per partition, quarantine, gaps
//
// With the metrics there are profiles of the process, below /debug/pprof/.
package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"quartermaster/adapters/transport"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// Status reports the state of the service. Its functions are called for every request. They
// MUST NOT block.
type Status struct {
	// Failure returns why the service cannot go on, or nil while it can.
	Failure func() error
	// CaughtUp reports whether the rows have reached the end of the log at least once.
	CaughtUp func() bool
	// Behind returns the partitions that keep the rows from reaching the end of the log,
	// whichever process folds them. Progress has those that this process folds.
	Behind func() projections.Stops
	// Hindrance returns why this process is temporarily not folding what it should, or nil.
	Hindrance func() error
	// Warnings returns present or imminent problems that do not affect readiness, one per line.
	Warnings func() []string
	// Progress returns what this process has folded since its start, by generation of rows.
	// Its positions are of the partitions that it folds now.
	Progress func() map[string]projections.Progress
	// Active returns the generation of rows that is read. Stopped partitions of other
	// generations do not affect readiness.
	Active func() string
	// Seen returns the last observation of the log and the rows.
	Seen func() Seen
	// More are additional metrics.
	More []prometheus.Collector
}

// Seen is an observation of the log and the rows. It is made only at intervals, because it is
// expensive.
type Seen struct {
	End         domain.Position         // of the log
	First       domain.Position         // first available offset of each partition that lost its beginning
	Quarantined int                     // unresolved records in quarantine; -1: not known yet
	Missing     map[domain.Topic]uint64 // events that are known to exist and have not arrived
	Uncompared  []inventory.Uncompared
}

// Handler serves the endpoints.
func Handler(s Status) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector{s},
	)
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
		active, others := stopped(s.Progress(), s.Active(), s.Behind())
		err := s.Failure()
		if err == nil {
			err = errors.Join(s.Hindrance(), errors.Join(active...))
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
			for _, warning := range s.Warnings() {
				fmt.Fprintln(w, "warning:", warning)
			}
			for _, stop := range others {
				fmt.Fprintln(w, "warning:", stop)
			}
		}
	})
	transport.Monitor(mux, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	return mux
}

// stopped describes the stopped partitions of the generation that is read and of the others.
// Behind has the partitions of the generation that is read, including those of other processes.
func stopped(progress map[string]projections.Progress, read string, behind projections.Stops) (active, others []error) {
	for _, generation := range slices.Sorted(maps.Keys(progress)) {
		stops := progress[generation].Stopped
		for _, tp := range stops.Partitions() {
			switch generation {
			case "":
				active = append(active, fmt.Errorf("%s %s", tp, stops[tp]))
			case read:
				active = append(active, fmt.Errorf("%s of generation %s %s", tp, generation, stops[tp]))
			default:
				others = append(others, fmt.Errorf("%s of generation %s, which is not read, %s", tp, generation, stops[tp]))
			}
		}
	}
	for _, tp := range behind.Partitions() {
		if _, own := progress[read].Stopped[tp]; !own {
			active = append(active, fmt.Errorf("%s of generation %s %s", tp, read, behind[tp]))
		}
	}
	return active, others
}

var (
	recordsDesc = prometheus.NewDesc(
		"quartermaster_records_total",
		"Records folded since the start, by outcome.",
		[]string{"generation", "outcome"}, nil,
	)
	nextDesc = prometheus.NewDesc(
		"quartermaster_partition_next_offset",
		"Offset of the next record to fold, per partition that this process folds.",
		[]string{"generation", "topic", "partition"}, nil,
	)
	lagDesc = prometheus.NewDesc(
		"quartermaster_partition_lag_records",
		"Records in the log that are not folded yet, per partition that this process folds.",
		[]string{"generation", "topic", "partition"}, nil,
	)
	stoppedDesc = prometheus.NewDesc(
		"quartermaster_partition_stopped",
		"1 for each stopped partition that this process folds, with the reason. The kind is shorter, "+
			"other_record or other_leader where the log diverged from the rows, else trimmed, corrupt, "+
			"transaction or passing.",
		[]string{"generation", "topic", "partition", "kind", "reason"}, nil,
	)
	quarantineDesc = prometheus.NewDesc(
		"quartermaster_quarantine_open_records",
		"Records that could not be folded and are not resolved.",
		nil, nil,
	)
	conflictsDesc = prometheus.NewDesc(
		"quartermaster_stream_conflicts_total",
		"Records folded since the start that have the source, incarnation and sequence of another "+
			"record but different content; they are also counted as quarantined.",
		[]string{"generation"}, nil,
	)
	uncomparedDesc = prometheus.NewDesc(
		"quartermaster_not_compared_total",
		"Records folded since the start that may be repeats: the record that came first is no longer "+
			"remembered. Telemetry was dropped, the rest is in quarantine.",
		[]string{"generation"}, nil,
	)
	streamsDesc = prometheus.NewDesc(
		"quartermaster_stream_not_compared_records",
		"Records of a stream that may be repeats: all that were ever dropped, and those still open in "+
			"quarantine; at most 100 streams. Incarnation 0 stands for all ended incarnations.",
		[]string{"topic", "partition", "source", "incarnation", "outcome"}, nil,
	)
	trimmedDesc = prometheus.NewDesc(
		"quartermaster_log_trimmed_records",
		"Records that the log no longer has at the beginning of a partition, per partition that lacks "+
			"any: rows cannot be folded again from such a log.",
		[]string{"topic", "partition"}, nil,
	)
	missingDesc = prometheus.NewDesc(
		"quartermaster_missing_events",
		"Events that are known to exist from the gaps in their streams but have not arrived.",
		[]string{"topic"}, nil,
	)
)

// maxStreams bounds the number of streams with metrics of their own, because sources choose
// their stream names.
const maxStreams = 100

type collector struct{ s Status }

func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		recordsDesc, nextDesc, lagDesc, stoppedDesc, quarantineDesc,
		conflictsDesc, uncomparedDesc, streamsDesc, trimmedDesc, missingDesc,
	} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	seen := c.s.Seen()
	for generation, p := range c.s.Progress() {
		for outcome, n := range map[string]int64{"folded": p.Folded, "repeat": p.Repeats, "quarantined": p.Quarantined} {
			ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(n), generation, outcome)
		}
		ch <- prometheus.MustNewConstMetric(conflictsDesc, prometheus.CounterValue, float64(p.Conflicts), generation)
		ch <- prometheus.MustNewConstMetric(uncomparedDesc, prometheus.CounterValue, float64(p.Uncompared), generation)
		for tp, next := range p.Position {
			part := strconv.Itoa(tp.Partition)
			ch <- prometheus.MustNewConstMetric(nextDesc, prometheus.GaugeValue, float64(next), generation, string(tp.Topic), part)
			lag := float64(max(0, seen.End[tp]-next))
			ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, lag, generation, string(tp.Topic), part)
		}
		for tp, stop := range p.Stopped {
			reason := strings.ToValidUTF8(stop.Reason, "?")
			ch <- prometheus.MustNewConstMetric(
				stoppedDesc, prometheus.GaugeValue, 1,
				generation, string(tp.Topic), strconv.Itoa(tp.Partition), stop.Kind, reason,
			)
		}
	}
	if seen.Quarantined >= 0 {
		ch <- prometheus.MustNewConstMetric(quarantineDesc, prometheus.GaugeValue, float64(seen.Quarantined))
	}
	for i := range seen.Uncompared[:min(len(seen.Uncompared), maxStreams)] {
		u := &seen.Uncompared[i]
		source := u.Source
		if !utf8.ValidString(source) {
			source = strconv.QuoteToASCII(source)
		}
		for outcome, n := range map[string]uint64{"dropped": u.Dropped, "quarantined": u.Quarantined} {
			ch <- prometheus.MustNewConstMetric(
				streamsDesc, prometheus.GaugeValue, float64(n),
				string(u.Topic), strconv.Itoa(u.Partition), source, strconv.FormatUint(u.Incarnation, 10), outcome,
			)
		}
	}
	for tp, first := range seen.First {
		ch <- prometheus.MustNewConstMetric(trimmedDesc, prometheus.GaugeValue, float64(first), string(tp.Topic), strconv.Itoa(tp.Partition))
	}
	for topic, n := range seen.Missing {
		ch <- prometheus.MustNewConstMetric(missingDesc, prometheus.GaugeValue, float64(n), string(topic))
	}
}
