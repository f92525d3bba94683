package projections

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
)

// ServingReport says what model servers did in whole hours of [From, To).
type ServingReport struct {
	Position string         `json:"position"`
	From     domain.Instant `json:"from"`
	To       domain.Instant `json:"to"`
	// Groups are by model, cluster and tier.
	Groups []ServingGroup `json:"groups"`
	Models []ServingModel `json:"models"` // by name
	// Quantiles says how a quantile is read from a histogram.
	Quantiles string `json:"quantiles"`
	Completeness
}

// HowQuantiles is the rule by which quantiles are read from histograms.
const HowQuantiles = "the bucket that holds the quantile is exact (more than \"above\", at most \"up_to\"); \"micros\" is interpolated linearly within it, and is \"above\" in a bucket without an end; histograms are merged only where their bounds are equal"

// ServingGroup is a model of a tier in a cluster.
type ServingGroup struct {
	Model       string   `json:"model"`
	Cluster     string   `json:"cluster"`
	Provider    string   `json:"provider,omitempty"`
	Region      string   `json:"region,omitempty"`
	Tier        string   `json:"tier,omitempty"`
	Deployments []string `json:"deployments"`
	Engines     []string `json:"engines"`
	Servers     int      `json:"servers"`
	ServedSums
	// TTFT and QueueWait have an entry for each set of bounds, the one of most
	// requests first.
	TTFT      []Latency `json:"ttft"`
	QueueWait []Latency `json:"queue_wait"`
	// Memory is that of the GPUs that the deployments held alone.
	Memory *MemoryUse `json:"gpu_memory"`
}

// ServedSums are counts and means. A mean is nil where nothing was measured.
type ServedSums struct {
	InputTokens     uint64  `json:"input_tokens"`
	GeneratedTokens uint64  `json:"generated_tokens"`
	RequestsOK      uint64  `json:"requests_ok"`
	RequestsFailed  uint64  `json:"requests_failed"`
	RequestsAborted uint64  `json:"requests_aborted"` // given up by who asked: neither
	Success         *uint64 `json:"success_permille"` // of those that succeeded or failed
	// Waiting and Running are means over time for each server, in thousandths of
	// a request; Peak is the highest mean of one server that was seen, Batch the
	// mean of Running as a share of it.
	Waiting *uint64 `json:"waiting_milli"`
	Running *uint64 `json:"running_milli"`
	Peak    *uint64 `json:"running_peak_milli"`
	Batch   *uint64 `json:"batch_permille"`
	KVCache *uint64 `json:"kv_cache_permille"`
	// MeanTTFT is the exact mean of times to the first token. Engines that do not
	// measure it (tgi) have the mean wait plus the mean prefill.
	MeanTTFT    *uint64 `json:"ttft_mean_micros"`
	GPURequests *uint64 `json:"gpu_requests_milli"` // of a pod, mean
	Crowded     uint64  `json:"crowded,omitempty"`  // samples without room
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

// LatencyBucket counts what took more than the bucket before and at most UpTo.
type LatencyBucket struct {
	UpTo  *uint64 `json:"up_to"` // microseconds; null: no end
	Count uint64  `json:"count"`
}

// Quantile is a time that a share of requests did not exceed, in microseconds.
type Quantile struct {
	Micros uint64  `json:"micros"`
	Above  uint64  `json:"above"`
	UpTo   *uint64 `json:"up_to"`
}

// ServingModel compares the clusters of a model.
type ServingModel struct {
	Model    string   `json:"model"`
	Clusters []string `json:"clusters"`
	ServedSums
	TTFT      []Latency `json:"ttft"`
	QueueWait []Latency `json:"queue_wait"`
	// Spread compares p50, p95 and p99 of clusters; nil with fewer than two that
	// measured. EqualBounds is false where their histograms have other bounds, so
	// that a difference may be one of rounding.
	Spread *Spread `json:"ttft_spread"`
}

// Spread is the range of quantiles over clusters.
type Spread struct {
	P50         Range `json:"p50"`
	P95         Range `json:"p95"`
	P99         Range `json:"p99"`
	EqualBounds bool  `json:"equal_bounds"`
}

// Range has the clusters with the least and the greatest, in microseconds.
type Range struct {
	Least        uint64 `json:"least_micros"`
	LeastAt      string `json:"least_cluster"`
	Greatest     uint64 `json:"greatest_micros"`
	GreatestAt   string `json:"greatest_cluster"`
	DifferenceOf uint64 `json:"difference_micros"`
}

// MemoryUse is GPU memory in use over time.
type MemoryUse struct {
	MeanMiB  uint64  `json:"mean_mib"` // of a GPU
	PeakMiB  uint32  `json:"peak_mib"` // of one GPU
	GPUMs    uint64  `json:"measured_gpu_ms"`
	Permille *uint64 `json:"permille"` // of what the GPUs have; null where that is not known
}

// ServingFilter picks what a report shows; empty fields match all.
type ServingFilter struct {
	Cluster, Model, Tier string
}

// Serving returns what model servers did in the hours of [from, to), both whole
// hours.
func Serving(view View, from, to domain.Instant, filter ServingFilter) (*ServingReport, error) {
	if from <= 0 || to <= from || from != from.HourStart() || to != to.HourStart() {
		return nil, fmt.Errorf("serving from %s to %s: want a whole hour and a later one", from, to)
	}
	r := &ServingReport{Position: view.Position().String(), From: from, To: to, Groups: []ServingGroup{}, Models: []ServingModel{}, Quantiles: HowQuantiles}
	var err error
	if r.Completeness, err = completeness(view, "", filter.Cluster, domain.Interval{From: from, To: to}, domain.TopicTelemetry); err != nil {
		return nil, err
	}
	type name struct{ model, cluster, tier string }
	groups := map[name]*served{}
	group := func(n name) *served {
		if filter.Cluster != "" && n.cluster != filter.Cluster || filter.Model != "" && n.model != filter.Model || filter.Tier != "" && n.tier != filter.Tier {
			return nil
		}
		g := groups[n]
		if g == nil {
			g = newServed()
			groups[n] = g
		}
		return g
	}
	span := Query{Table: TableServers, Scope: filter.Cluster, From: hourOf(from), To: hourOf(to-1) + 1}
	err = view.Scan(span, func(k Key, row Row) error {
		h := row.(*ServerHour)
		if h.Model == "" {
			return nil // a pod that asks for GPUs
		}
		if g := group(name{h.Model, k.Scope, h.Tier}); g != nil {
			g.server(h)
			g.servers[k.ID], g.deployments[h.Deployment], g.engines[h.Engine] = true, true, true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read server hours: %w", err)
	}
	span.Table = TableServing
	err = view.Scan(span, func(k Key, row Row) error {
		for i := range row.(*ServingHour).Sources {
			s := &row.(*ServingHour).Sources[i]
			if g := group(name{s.Model, k.Scope, s.Tier}); g != nil {
				g.sampled(s)
				g.servers[k.ID+"|"+s.Source], g.engines[s.Engine] = true, true
				g.deployments[strings.TrimSuffix(k.ID, "|"+s.Model+"|"+s.Tier)] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read serving hours: %w", err)
	}
	memory, f, err := memoryUse(view, span.From, span.To, filter.Cluster)
	if err != nil {
		return nil, err
	}
	models := map[string]*served{}
	by := map[string][]ServingGroup{}
	for _, n := range slices.SortedFunc(maps.Keys(groups), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.tier, b.tier))
	}) {
		g := groups[n]
		out := ServingGroup{
			Model: n.model, Cluster: n.cluster, Tier: n.tier, Servers: len(g.servers),
			Deployments: slices.Sorted(maps.Keys(g.deployments)), Engines: slices.Sorted(maps.Keys(g.engines)),
			ServedSums: g.sums(), TTFT: g.ttft.latencies(), QueueWait: g.wait.latencies(),
		}
		if c, _ := f.cluster(n.cluster, to); c != nil {
			out.Provider, out.Region = c.Provider, c.Region
		}
		var m memorySum
		for d := range g.deployments {
			m.add(memory[heldBy{n.cluster, d}])
		}
		out.Memory = m.use()
		r.Groups = append(r.Groups, out)
		by[n.model] = append(by[n.model], out)
		t := models[n.model]
		if t == nil {
			t = newServed()
			models[n.model] = t
		}
		t.join(g)
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		t := models[model]
		out := ServingModel{Model: model, Clusters: []string{}, ServedSums: t.sums(), TTFT: t.ttft.latencies(), QueueWait: t.wait.latencies(), Spread: spread(by[model])}
		for _, g := range by[model] {
			if !slices.Contains(out.Clusters, g.Cluster) {
				out.Clusters = append(out.Clusters, g.Cluster)
			}
		}
		r.Models = append(r.Models, out)
	}
	return r, nil
}

// spread compares clusters by their histogram of most requests.
func spread(groups []ServingGroup) *Spread {
	s := Spread{EqualBounds: true}
	var first []LatencyBucket
	seen := map[string]bool{}
	for _, g := range groups {
		if len(g.TTFT) == 0 || g.TTFT[0].P50 == nil {
			continue
		}
		t := g.TTFT[0]
		if len(seen) == 0 {
			first = t.Buckets
		}
		same := slices.EqualFunc(first, t.Buckets, func(a, b LatencyBucket) bool {
			return (a.UpTo == nil) == (b.UpTo == nil) && (a.UpTo == nil || *a.UpTo == *b.UpTo)
		})
		s.EqualBounds = s.EqualBounds && same && len(g.TTFT) == 1
		fresh := len(seen) == 0
		s.P50.widen(t.P50, g.Cluster, fresh)
		s.P95.widen(t.P95, g.Cluster, fresh)
		s.P99.widen(t.P99, g.Cluster, fresh)
		seen[g.Cluster] = true
	}
	if len(seen) < 2 {
		return nil
	}
	return &s
}

func (r *Range) widen(q *Quantile, cluster string, fresh bool) {
	if fresh || q.Micros < r.Least {
		r.Least, r.LeastAt = q.Micros, cluster
	}
	if fresh || q.Micros > r.Greatest {
		r.Greatest, r.GreatestAt = q.Micros, cluster
	}
	r.DifferenceOf = r.Greatest - r.Least
}

// served adds up servers.
type served struct {
	servers, deployments, engines map[string]bool
	counts                        map[domain.SeriesMetric]uint64
	gauges                        map[domain.SeriesMetric]*gauge
	ttft, wait                    layouts
	crowded                       uint64
}

type gauge struct{ sum, known, peak uint64 }

func newServed() *served {
	return &served{
		servers: map[string]bool{}, deployments: map[string]bool{}, engines: map[string]bool{},
		counts: map[domain.SeriesMetric]uint64{}, gauges: map[domain.SeriesMetric]*gauge{}, ttft: layouts{}, wait: layouts{},
	}
}

func (g *served) gauge(m domain.SeriesMetric, sum, known, peak uint64) {
	x := g.gauges[m]
	if x == nil {
		x = &gauge{}
		g.gauges[m] = x
	}
	x.sum, x.known, x.peak = saturating(x.sum, sum, 1), saturating(x.known, known, 1), max(x.peak, peak)
}

// server adds an hour of a server. Series of one metric, of the engines within it
// say, are added up: their gauges over the time that one of them was known.
func (g *served) server(h *ServerHour) {
	g.crowded = saturating(g.crowded, h.Crowded, 1)
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
				sum, known, peak = saturating(sum, s.Sum, 1), max(known, s.Known), saturating(peak, s.Max, 1)
			}
			if metric == domain.MetricKVCache { // a share, and no amount
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
				buckets[s.ID][s.Bound] = s.Sum
			}
			to, sums := g.ttft, domain.MetricTTFTSum
			if metric == domain.MetricQueueWait {
				to, sums = g.wait, domain.MetricQueueWaitSum
			}
			for id, b := range buckets {
				to.add(b, h.sumOf(sums, id))
			}
		default:
			for _, s := range all {
				g.counts[metric] = saturating(g.counts[metric], s.Sum, 1)
			}
		}
	}
}

// sumOf returns what a counter of the same series as a histogram adds up to.
func (h *ServerHour) sumOf(metric domain.SeriesMetric, id uint64) uint64 {
	if i, ok := h.find(ServerSeries{Metric: metric, ID: id}); ok {
		return h.Series[i].Sum
	}
	return 0
}

// sampled adds what servers reported as differences.
func (g *served) sampled(s *ServingSums) {
	g.gauge(domain.MetricWaiting, s.QueueDepthMilli, s.Known, 0)
	g.gauge(domain.MetricRunning, s.BatchSizeMilli, s.Known, 0)
	g.gauge(domain.MetricKVCache, s.KVCachePermille, s.Known, 0)
	for m, n := range map[domain.SeriesMetric]uint64{
		domain.MetricInputLength: s.PromptTokens, domain.MetricGeneratedLength: s.GenerationTokens,
		domain.MetricRequestsOK: s.RequestsOK, domain.MetricRequestsFailed: s.RequestsFailed,
	} {
		g.counts[m] = saturating(g.counts[m], n, 1)
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
		g.ttft.add(b, t.Sum)
		g.counts[domain.MetricTTFTSum] = saturating(g.counts[domain.MetricTTFTSum], t.Sum, 1)
		g.counts[domain.MetricTTFTCount] = saturating(g.counts[domain.MetricTTFTCount], n, 1)
	}
}

func (g *served) join(o *served) {
	for m, n := range o.counts {
		g.counts[m] = saturating(g.counts[m], n, 1)
	}
	for m, x := range o.gauges {
		g.gauge(m, x.sum, x.known, x.peak)
	}
	g.ttft.join(o.ttft)
	g.wait.join(o.wait)
	g.crowded = saturating(g.crowded, o.crowded, 1)
}

func (g *served) mean(m domain.SeriesMetric) *uint64 {
	x := g.gauges[m]
	if x == nil || x.known == 0 {
		return nil
	}
	v := x.sum / x.known
	return &v
}

func (g *served) sums() ServedSums {
	s := ServedSums{
		InputTokens: g.counts[domain.MetricInputLength], GeneratedTokens: g.counts[domain.MetricGeneratedLength],
		RequestsOK: g.counts[domain.MetricRequestsOK], RequestsFailed: g.counts[domain.MetricRequestsFailed], RequestsAborted: g.counts[domain.MetricRequestsAborted],
		Waiting: g.mean(domain.MetricWaiting), Running: g.mean(domain.MetricRunning), KVCache: g.mean(domain.MetricKVCache),
		GPURequests: g.mean(domain.MetricGPURequests), Crowded: g.crowded,
	}
	// An engine that counts what it received and what was aborted served the rest.
	if received := g.counts[domain.MetricRequestsReceived]; received > 0 {
		s.RequestsOK = saturating(s.RequestsOK, received-min(received, s.RequestsAborted), 1)
	}
	if n := saturating(s.RequestsOK, s.RequestsFailed, 1); n > 0 {
		v := share(s.RequestsOK, n)
		s.Success = &v
	}
	if x := g.gauges[domain.MetricRunning]; x != nil && x.peak > 0 {
		peak := x.peak
		s.Peak = &peak
		if s.Running != nil {
			v := share(min(*s.Running, peak), peak)
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
			v := saturating(prefill, wait, 1)
			s.MeanTTFT = &v
		}
	}
	return s
}

// share returns a of b in per mille, rounded down.
func share(a, b uint64) uint64 { return a/b*1000 + a%b*1000/max(b, 1) }

// layouts are histograms by their bounds: those of other bounds cannot be merged
// without guessing.
type layouts map[string]*layout

type layout struct {
	bounds     []uint64 // ascending, the last Infinite
	cumulative []uint64
	sum        uint64
}

// add adds a histogram, given how much each bucket and those below it grew. One
// that lacks its last bucket has not wholly arrived, and is left out.
func (l layouts) add(buckets map[uint64]uint64, sum uint64) {
	if _, whole := buckets[domain.Infinite]; !whole {
		return
	}
	bounds := slices.Sorted(maps.Keys(buckets))
	cumulative := make([]uint64, len(bounds))
	var most uint64
	for i, b := range bounds {
		// Buckets are scraped at once, but may have come in parts.
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
			have.cumulative[i] = saturating(have.cumulative[i], n, 1)
		}
		have.sum = saturating(have.sum, h.sum, 1)
	}
}

func (l layouts) latencies() []Latency {
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

// quantile returns the time that a share of requests, in per mille, did not
// exceed: the one of rank ceil(count × share).
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
		q.Micros += mulDiv(h.bounds[i]-q.Above, rank-below, n)
	}
	return q
}

type heldBy struct{ cluster, deployment string }

// memorySum adds up memory: MiB times milliseconds.
type memorySum struct {
	used, known, room uint64 // room: of GPUs whose memory is known
	inRoom            uint64 // used of those
	peak              uint32
}

func (m *memorySum) add(o *memorySum) {
	if o == nil {
		return
	}
	m.used, m.known, m.room = saturating(m.used, o.used, 1), saturating(m.known, o.known, 1), saturating(m.room, o.room, 1)
	m.inRoom, m.peak = saturating(m.inRoom, o.inRoom, 1), max(m.peak, o.peak)
}

func (m *memorySum) use() *MemoryUse {
	if m.known == 0 {
		return nil
	}
	u := &MemoryUse{MeanMiB: m.used / m.known, PeakMiB: m.peak, GPUMs: m.known}
	if m.room > 0 {
		v := share(m.inRoom, m.room)
		u.Permille = &v
	}
	return u
}

// memoryUse adds up the memory in use of whole GPUs, in hours in which one
// deployment alone held them.
func memoryUse(view View, from, to int64, cluster string) (map[heldBy]*memorySum, *fleet, error) {
	f, err := readFleet(view)
	if err != nil {
		return nil, nil, err
	}
	out := map[heldBy]*memorySum{}
	var ranks []*Observer
	err = eachUsage(view, f.index, Query{Scope: cluster, From: from, To: to}, func(k Key, u *UsageHour) error {
		ranks = ranked(ranks, u)
		var s *service
		if n := f.index[nodeName{k.Scope, k.ID}]; n != nil {
			s = n.at(domain.Instant(k.Hour) * domain.Hour)
		}
		seen := map[domain.GPUID]bool{}
		for _, o := range ranks {
			for i := range o.Devices {
				d := &o.Devices[i]
				if d.Memory.Known == 0 || d.Cut != 0 || d.Replica != 0 || seen[d.ID] {
					continue
				}
				seen[d.ID] = true
				who, ok := u.alone(d)
				if !ok || who == "" {
					continue
				}
				m := out[heldBy{k.Scope, who}]
				if m == nil {
					m = &memorySum{}
					out[heldBy{k.Scope, who}] = m
				}
				m.used, m.known = saturating(m.used, d.Memory.Sum, 1), m.known+uint64(d.Memory.Known)
				m.peak = max(m.peak, d.Memory.Max)
				if room := s.memory(d.ID); room > 0 {
					m.room = saturating(m.room, room, uint64(d.Memory.Known))
					m.inRoom = saturating(m.inRoom, d.Memory.Sum, 1)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read memory in use: %w", err)
	}
	return out, f, nil
}

// alone returns the one deployment that held a device in the hour.
func (u *UsageHour) alone(d *Device) (string, bool) {
	var who *Holder
	for _, s := range d.Segments {
		if s.Holder == 0 {
			continue
		}
		h := &u.Holders[s.Holder-1]
		if who != nil && (h.Deployment != who.Deployment || h.Workspace != who.Workspace) {
			return "", false
		}
		who = h
	}
	if who == nil {
		return "", false
	}
	return who.Deployment, true
}

// memory returns how much memory a GPU has, in MiB; 0: not known.
func (s *service) memory(id domain.GPUID) uint64 {
	if s == nil {
		return 0
	}
	for i := range s.node.GPUs {
		g := &s.node.GPUs[i]
		if g.ID != id {
			continue
		}
		if g.MemoryMiB > 0 {
			return g.MemoryMiB
		}
		if m, ok := domain.LookupGPU(g.Model); ok {
			return m.MemoryMiB
		}
	}
	return 0
}
