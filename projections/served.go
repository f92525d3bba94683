package projections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
)

// ServedSums are counts and means. A mean is nil if nothing was measured.
type ServedSums struct {
	InputTokens     uint64  `json:"input_tokens"`
	GeneratedTokens uint64  `json:"generated_tokens"`
	RequestsOK      uint64  `json:"requests_ok"`
	RequestsFailed  uint64  `json:"requests_failed"`
	RequestsAborted uint64  `json:"requests_aborted"` // cancelled by the client; neither OK nor failed
	Success         *uint64 `json:"success_permille"` // of those that succeeded or failed
	// Waiting and Running are means over time for each server, in thousandths of a request. Peak is
	// the highest mean of Running of one server. Batch is the mean of Running as a share of Peak.
	Waiting *uint64 `json:"waiting_milli"`
	Running *uint64 `json:"running_milli"`
	Peak    *uint64 `json:"running_peak_milli"`
	Batch   *uint64 `json:"batch_permille"`
	KVCache *uint64 `json:"kv_cache_permille"`
	// MeanTTFT is the exact mean of the time to first token. For engines that do not measure it
	// (tgi) it is the mean wait plus the mean prefill.
	MeanTTFT    *uint64 `json:"ttft_mean_micros"`
	GPURequests *uint64 `json:"gpu_requests_milli"` // of a pod, mean
	Crowded     uint64  `json:"crowded,omitempty"`  // samples that exceeded the size limit
}

// Latency is a histogram with its quantiles.
type Latency struct {
	Count   uint64          `json:"count"`
	Mean    *uint64         `json:"mean_micros"` // exact
	P50     *Quantile       `json:"p50"`
	P95     *Quantile       `json:"p95"`
	P99     *Quantile       `json:"p99"`
	Buckets []LatencyBucket `json:"buckets"`
}

// LatencyBucket counts requests above the bucket before and at most UpTo.
type LatencyBucket struct {
	UpTo  *uint64 `json:"up_to"` // microseconds; null: no end
	Count uint64  `json:"count"`
}

// Quantile is a time that a given share of requests did not exceed, in microseconds.
type Quantile struct {
	Micros uint64  `json:"micros"`
	Above  uint64  `json:"above"`
	UpTo   *uint64 `json:"up_to"`
}

// Served sums up servers.
type Served struct {
	Servers, Deployments, Engines map[string]bool
	counts                        map[domain.SeriesMetric]uint64
	gauges                        map[domain.SeriesMetric]*gauge
	TTFT, Wait                    layouts
	crowded                       uint64
}

type gauge struct{ sum, known, peak uint64 }

// NewServed returns an empty sum.
func NewServed() *Served {
	return &Served{
		Servers: map[string]bool{}, Deployments: map[string]bool{}, Engines: map[string]bool{},
		counts: map[domain.SeriesMetric]uint64{}, gauges: map[domain.SeriesMetric]*gauge{}, TTFT: layouts{}, Wait: layouts{},
	}
}

func (g *Served) gauge(m domain.SeriesMetric, sum, known, peak uint64) {
	x := g.gauges[m]
	if x == nil {
		x = &gauge{}
		g.gauges[m] = x
	}
	x.sum, x.known, x.peak = Saturating(x.sum, sum, 1), Saturating(x.known, known, 1), max(x.peak, peak)
}

// Quarters are quarters of an hour: bit i is the quarter from i × 15 minutes on.
type Quarters uint8

// AllQuarters has every quarter.
const AllQuarters Quarters = 0b1111

// QuartersOf returns the quarters of an hour that begin in [from, to).
func QuartersOf(hour int64, from, to domain.Instant) (q Quarters) {
	for i := range 4 {
		if at := domain.Instant(hour)*domain.Hour + domain.Instant(i)*domain.QuarterHour; from <= at && at < to {
			q |= 1 << i
		}
	}
	return q
}

// Has reports whether a quarter, 0 to 3, is one of them.
func (q Quarters) Has(i int) bool { return q>>i&1 == 1 }

// Server adds quarters of an hour of a server. Peaks are known of whole hours alone. Series of one metric, for example of the engines within it, are
// summed, and their gauges are averaged over the time for which one of them was known.
func (g *Served) Server(h *ServerHour, q Quarters) {
	g.crowded = Saturating(g.crowded, h.Crowded, 1)
	buckets := map[uint64]map[uint64]uint64{} // by series, then bound
	for i := 0; i < len(h.Series); {
		metric := h.Series[i].Metric
		j := i
		for j < len(h.Series) && h.Series[j].Metric == metric {
			j++
		}
		all := h.Series[i:j]
		i = j
		switch metric.Kind() {
		case domain.GaugeKind:
			var sum, known, peak uint64
			for _, s := range all {
				of, ms := s.in(q)
				sum, known, peak = Saturating(sum, of, 1), max(known, ms), Saturating(peak, s.Max, 1)
			}
			if q != AllQuarters {
				peak = 0
			}
			if metric == domain.MetricKVCache { // a share, which is not summed
				sum /= uint64(len(all))
				peak /= uint64(len(all))
			}
			g.gauge(metric, sum, known, peak)
		case domain.BucketKind:
			clear(buckets)
			for _, s := range all {
				if buckets[s.ID] == nil {
					buckets[s.ID] = map[uint64]uint64{}
				}
				buckets[s.ID][s.Bound], _ = s.in(q)
			}
			to, sums := g.TTFT, domain.MetricTTFTSum
			if metric == domain.MetricQueueWait {
				to, sums = g.Wait, domain.MetricQueueWaitSum
			}
			for id, b := range buckets {
				to.add(b, h.sumOf(sums, id, q))
			}
		default:
			for _, s := range all {
				of, _ := s.in(q)
				g.counts[metric] = Saturating(g.counts[metric], of, 1)
			}
		}
	}
}

// Sampled adds data that servers reported as differences, if it is of one of the quarters.
func (g *Served) Sampled(s *ServingSums, q Quarters) {
	if !q.Has(int(s.Quarter)) {
		return
	}
	g.gauge(domain.MetricWaiting, s.QueueDepthMilli, s.Known, 0)
	g.gauge(domain.MetricRunning, s.BatchSizeMilli, s.Known, 0)
	g.gauge(domain.MetricKVCache, s.KVCachePermille, s.Known, 0)
	for m, n := range map[domain.SeriesMetric]uint64{
		domain.MetricInputLength: s.PromptTokens, domain.MetricGeneratedLength: s.GenerationTokens,
		domain.MetricRequestsOK: s.RequestsOK, domain.MetricRequestsFailed: s.RequestsFailed,
	} {
		g.counts[m] = Saturating(g.counts[m], n, 1)
	}
	for _, t := range s.TTFT {
		b := map[uint64]uint64{}
		var n uint64
		for i, c := range t.Counts {
			n += c
			if i < len(t.Bounds) {
				b[t.Bounds[i]] = n
			} else {
				b[domain.Infinite] = n
			}
		}
		g.TTFT.add(b, t.Sum)
		g.counts[domain.MetricTTFTSum] = Saturating(g.counts[domain.MetricTTFTSum], t.Sum, 1)
		g.counts[domain.MetricTTFTCount] = Saturating(g.counts[domain.MetricTTFTCount], n, 1)
	}
}

// Join adds another sum.
func (g *Served) Join(o *Served) {
	for m, n := range o.counts {
		g.counts[m] = Saturating(g.counts[m], n, 1)
	}
	for m, x := range o.gauges {
		g.gauge(m, x.sum, x.known, x.peak)
	}
	g.TTFT.join(o.TTFT)
	g.Wait.join(o.Wait)
	g.crowded = Saturating(g.crowded, o.crowded, 1)
}

func (g *Served) mean(m domain.SeriesMetric) *uint64 {
	x := g.gauges[m]
	if x == nil || x.known == 0 {
		return nil
	}
	v := x.sum / x.known
	return &v
}

// Sums returns totals and means.
func (g *Served) Sums() ServedSums {
	s := ServedSums{
		InputTokens: g.counts[domain.MetricInputLength], GeneratedTokens: g.counts[domain.MetricGeneratedLength],
		RequestsOK:      g.counts[domain.MetricRequestsOK],
		RequestsFailed:  g.counts[domain.MetricRequestsFailed],
		RequestsAborted: g.counts[domain.MetricRequestsAborted],
		Waiting:         g.mean(domain.MetricWaiting), Running: g.mean(domain.MetricRunning), KVCache: g.mean(domain.MetricKVCache),
		GPURequests: g.mean(domain.MetricGPURequests), Crowded: g.crowded,
	}
	// An engine that counts received and aborted requests served the rest.
	if received := g.counts[domain.MetricRequestsReceived]; received > 0 {
		s.RequestsOK = Saturating(s.RequestsOK, received-min(received, s.RequestsAborted), 1)
	}
	if n := Saturating(s.RequestsOK, s.RequestsFailed, 1); n > 0 {
		v := Share(s.RequestsOK, n)
		s.Success = &v
	}
	if x := g.gauges[domain.MetricRunning]; x != nil && x.peak > 0 {
		peak := x.peak
		s.Peak = &peak
		if s.Running != nil {
			v := Share(min(*s.Running, peak), peak)
			s.Batch = &v
		}
	}
	per := func(sum, count domain.SeriesMetric) (uint64, bool) {
		if g.counts[count] == 0 {
			return 0, false
		}
		return g.counts[sum] / g.counts[count], true
	}
	if v, ok := per(domain.MetricTTFTSum, domain.MetricTTFTCount); ok {
		s.MeanTTFT = &v
	} else if prefill, ok := per(domain.MetricPrefillSum, domain.MetricPrefillCount); ok {
		if wait, ok := per(domain.MetricQueueWaitSum, domain.MetricQueueWaitCount); ok {
			v := Saturating(prefill, wait, 1)
			s.MeanTTFT = &v
		}
	}
	return s
}

// Share returns a/b in per mille, rounded down.
func Share(a, b uint64) uint64 { return a/b*1000 + a%b*1000/max(b, 1) }

// layouts are histograms by their bounds. Histograms with different bounds cannot be merged without
// guessing.
type layouts map[string]*layout

type layout struct {
	bounds     []uint64 // ascending, the last Infinite
	cumulative []uint64
	sum        uint64
}

// add adds a histogram, given the growth of each cumulative bucket. A histogram without its last
// bucket has not arrived completely, and is skipped.
func (l layouts) add(buckets map[uint64]uint64, sum uint64) {
	if _, whole := buckets[domain.Infinite]; !whole {
		return
	}
	bounds := slices.Sorted(maps.Keys(buckets))
	cumulative := make([]uint64, len(bounds))
	var most uint64
	for i, b := range bounds {
		// Buckets are scraped together, but may have arrived in parts.
		most = max(most, buckets[b])
		cumulative[i] = most
	}
	l.join(layouts{fmt.Sprint(bounds): {bounds, cumulative, sum}})
}

func (l layouts) join(o layouts) {
	for key, h := range o {
		have := l[key]
		if have == nil {
			l[key] = &layout{h.bounds, slices.Clone(h.cumulative), h.sum}
			continue
		}
		for i, n := range h.cumulative {
			have.cumulative[i] = Saturating(have.cumulative[i], n, 1)
		}
		have.sum = Saturating(have.sum, h.sum, 1)
	}
}

func (l layouts) Latencies() []Latency {
	out := []Latency{}
	for _, key := range slices.Sorted(maps.Keys(l)) {
		out = append(out, l[key].latency())
	}
	slices.SortStableFunc(out, func(a, b Latency) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

func (h *layout) latency() Latency {
	out := Latency{Count: h.cumulative[len(h.cumulative)-1]}
	var before uint64
	for i, n := range h.cumulative {
		b := LatencyBucket{Count: n - before}
		if h.bounds[i] != domain.Infinite {
			b.UpTo = &h.bounds[i]
		}
		out.Buckets = append(out.Buckets, b)
		before = n
	}
	if out.Count == 0 {
		return out
	}
	mean := h.sum / out.Count
	out.Mean = &mean
	out.P50, out.P95, out.P99 = h.quantile(500), h.quantile(950), h.quantile(990)
	return out
}

// quantile returns the time that a share of requests, in per mille, did not exceed: that of rank
// ceil(count × share).
func (h *layout) quantile(permille uint64) *Quantile {
	count := h.cumulative[len(h.cumulative)-1]
	rank := count/1000*permille + (count%1000*permille+999)/1000
	i, _ := slices.BinarySearch(h.cumulative, rank)
	q := &Quantile{}
	var below uint64
	if i > 0 {
		q.Above, below = h.bounds[i-1], h.cumulative[i-1]
	}
	q.Micros = q.Above
	if h.bounds[i] != domain.Infinite {
		q.UpTo = &h.bounds[i]
		n := h.cumulative[i] - below
		q.Micros += portion(h.bounds[i]-q.Above, rank-below, n)
	}
	return q
}
