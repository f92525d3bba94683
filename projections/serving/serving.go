package serving

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// Report is the work of model servers in whole quarters of hours of [From, To).
type Report struct {
	Position string         `json:"position"`
	From     domain.Instant `json:"from"`
	To       domain.Instant `json:"to"`
	// Groups are by model, cluster and tier.
	Groups []Group `json:"groups"`
	Models []Model `json:"models"` // by name
	// Quantiles explains how quantiles are read from a histogram.
	Quantiles string `json:"quantiles"`
	registry.Completeness
}

// HowQuantiles explains how quantiles are read from histograms.
const HowQuantiles = "the bucket that holds the quantile is exact (more than \"above\", at most \"up_to\"); " +
	"\"micros\" is interpolated linearly within it, and is \"above\" in a bucket without an end; " +
	"histograms are merged only where their bounds are equal"

// Group is one model and tier in a cluster.
type Group struct {
	Model       string   `json:"model"`
	Cluster     string   `json:"cluster"`
	Provider    string   `json:"provider,omitempty"`
	Region      string   `json:"region,omitempty"`
	Tier        string   `json:"tier,omitempty"`
	Deployments []string `json:"deployments"`
	Engines     []string `json:"engines"`
	Servers     int      `json:"servers"`
	projections.ServedSums
	// TTFT and QueueWait have an entry for each set of bounds, the one with the most requests
	// first.
	TTFT      []projections.Latency `json:"ttft"`
	QueueWait []projections.Latency `json:"queue_wait"`
	// Memory is that of GPUs that a single deployment held. It and peaks are null unless the period is of whole hours.
	Memory *MemoryUse `json:"gpu_memory"`
}

// Model compares the clusters of a model.
type Model struct {
	Model    string   `json:"model"`
	Clusters []string `json:"clusters"`
	projections.ServedSums
	TTFT      []projections.Latency `json:"ttft"`
	QueueWait []projections.Latency `json:"queue_wait"`
	// Spread compares p50, p95 and p99 of clusters; null with fewer than two measurements.
	// EqualBounds is false if their histograms have different bounds, so that a difference may be
	// due to rounding.
	Spread *Spread `json:"ttft_spread"`
}

// Spread is the range of quantiles over clusters.
type Spread struct {
	P50         Range `json:"p50"`
	P95         Range `json:"p95"`
	P99         Range `json:"p99"`
	EqualBounds bool  `json:"equal_bounds"`
}

// Range has the clusters with the least and the greatest value, in microseconds.
type Range struct {
	Least        uint64 `json:"least_micros"`
	LeastAt      string `json:"least_cluster"`
	Greatest     uint64 `json:"greatest_micros"`
	GreatestAt   string `json:"greatest_cluster"`
	DifferenceOf uint64 `json:"difference_micros"`
}

// MemoryUse is GPU memory in use over time.
type MemoryUse struct {
	MeanMiB  uint64  `json:"mean_mib"` // mean of a GPU
	PeakMiB  uint32  `json:"peak_mib"` // peak of one GPU
	GPUMs    uint64  `json:"measured_gpu_ms"`
	Permille *uint64 `json:"permille"` // of the GPUs' memory; null if unknown
}

// Filter selects servers; empty fields match all.
type Filter struct {
	Cluster, Model, Tier string
}

// NewReport returns the work of model servers in [from, to), both whole quarters of an hour.
func NewReport(view projections.View, from, to domain.Instant, filter Filter) (*Report, error) {
	r, err := newReport(view, from, to, filter, from == from.HourStart() && to == to.HourStart())
	if err != nil {
		return nil, err
	}
	r.Completeness, err = registry.CompletenessOf(view, "", filter.Cluster, domain.Interval{From: from, To: to}, domain.TopicTelemetry)
	return r, err
}

// Groups returns the groups of [NewReport] without their memory, for which it would have to read the usage of every node.
func Groups(view projections.View, from, to domain.Instant, filter Filter) ([]Group, error) {
	r, err := newReport(view, from, to, filter, false)
	if err != nil {
		return nil, err
	}
	return r.Groups, nil
}

func newReport(view projections.View, from, to domain.Instant, filter Filter, withMemory bool) (*Report, error) {
	if from <= 0 || to <= from || from != from.QuarterStart() || to != to.QuarterStart() {
		return nil, fmt.Errorf("serving from %s to %s: want a whole quarter of an hour and a later one", from, to)
	}
	r := &Report{
		Position: view.Position().String(), From: from, To: to, Groups: []Group{}, Models: []Model{},
		Quantiles: HowQuantiles,
	}
	type name struct{ model, cluster, tier string }
	groups := map[name]*projections.Served{}
	group := func(n name) *projections.Served {
		if filter.Cluster != "" && n.cluster != filter.Cluster || filter.Model != "" && n.model != filter.Model ||
			filter.Tier != "" && n.tier != filter.Tier {
			return nil
		}
		g := groups[n]
		if g == nil {
			g = projections.NewServed()
			groups[n] = g
		}
		return g
	}
	span := projections.Query{
		Table: projections.TableServers, Scope: filter.Cluster, From: projections.HourOf(from),
		To: projections.HourOf(to-1) + 1,
	}
	err := view.Scan(span, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.ServerHour)
		q := projections.QuartersOf(k.Hour, from, to)
		if h.Model == "" || !h.Seen(q) {
			return nil // a pod that requests GPUs, or a server that was not seen then
		}
		if g := group(name{h.Model, k.Scope, h.Tier}); g != nil {
			g.Server(h, q)
			g.Servers[k.ID], g.Deployments[h.Deployment], g.Engines[h.Engine] = true, true, true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read server hours: %w", err)
	}
	span.Table = projections.TableServing
	err = view.Scan(span, func(k projections.Key, row projections.Row) error {
		for i := range row.(*projections.ServingHour).Sources {
			s, q := &row.(*projections.ServingHour).Sources[i], projections.QuartersOf(k.Hour, from, to)
			if !q.Has(int(s.Quarter)) {
				continue
			}
			if g := group(name{s.Model, k.Scope, s.Tier}); g != nil {
				g.Sampled(s, q)
				g.Servers[k.ID+"|"+s.Source], g.Engines[s.Engine] = true, true
				g.Deployments[strings.TrimSuffix(k.ID, "|"+s.Model+"|"+s.Tier)] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read serving hours: %w", err)
	}
	f, err := inventory.ReadClusters(view)
	var memory map[heldBy]*memorySum
	if withMemory {
		memory, f, err = memoryUse(view, span.From, span.To, filter.Cluster)
	}
	if err != nil {
		return nil, err
	}
	models := map[string]*projections.Served{}
	by := map[string][]Group{}
	for _, n := range slices.SortedFunc(maps.Keys(groups), func(a, b name) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.tier, b.tier))
	}) {
		g := groups[n]
		out := Group{
			Model: n.model, Cluster: n.cluster, Tier: n.tier, Servers: len(g.Servers),
			Deployments: slices.Sorted(maps.Keys(g.Deployments)), Engines: slices.Sorted(maps.Keys(g.Engines)),
			ServedSums: g.Sums(), TTFT: g.TTFT.Latencies(), QueueWait: g.Wait.Latencies(),
		}
		if c, _ := f.Cluster(n.cluster, to); c != nil {
			out.Provider, out.Region = c.Provider, c.Region
		}
		var m memorySum
		for d := range g.Deployments {
			m.add(memory[heldBy{n.cluster, d}])
		}
		out.Memory = m.use()
		r.Groups = append(r.Groups, out)
		by[n.model] = append(by[n.model], out)
		t := models[n.model]
		if t == nil {
			t = projections.NewServed()
			models[n.model] = t
		}
		t.Join(g)
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		t := models[model]
		out := Model{
			Model: model, Clusters: []string{}, ServedSums: t.Sums(), TTFT: t.TTFT.Latencies(),
			QueueWait: t.Wait.Latencies(), Spread: spread(by[model]),
		}
		for _, g := range by[model] {
			if !slices.Contains(out.Clusters, g.Cluster) {
				out.Clusters = append(out.Clusters, g.Cluster)
			}
		}
		r.Models = append(r.Models, out)
	}
	return r, nil
}

// spread compares clusters by their histogram with the most requests.
func spread(groups []Group) *Spread {
	s := Spread{EqualBounds: true}
	var first []projections.LatencyBucket
	seen := map[string]bool{}
	for _, g := range groups {
		if len(g.TTFT) == 0 || g.TTFT[0].P50 == nil {
			continue
		}
		t := g.TTFT[0]
		if len(seen) == 0 {
			first = t.Buckets
		}
		same := slices.EqualFunc(first, t.Buckets, func(a, b projections.LatencyBucket) bool {
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

func (r *Range) widen(q *projections.Quantile, cluster string, fresh bool) {
	if fresh || q.Micros < r.Least {
		r.Least, r.LeastAt = q.Micros, cluster
	}
	if fresh || q.Micros > r.Greatest {
		r.Greatest, r.GreatestAt = q.Micros, cluster
	}
	r.DifferenceOf = r.Greatest - r.Least
}

type heldBy struct{ cluster, deployment string }

// memorySum adds up memory: MiB times milliseconds.
type memorySum struct {
	used, known, room uint64 // room: memory of GPUs whose size is known
	inRoom            uint64 // used memory of those
	peak              uint32
}

func (m *memorySum) add(o *memorySum) {
	if o == nil {
		return
	}
	m.used = projections.Saturating(m.used, o.used, 1)
	m.known = projections.Saturating(m.known, o.known, 1)
	m.room = projections.Saturating(m.room, o.room, 1)
	m.inRoom, m.peak = projections.Saturating(m.inRoom, o.inRoom, 1), max(m.peak, o.peak)
}

func (m *memorySum) use() *MemoryUse {
	if m.known == 0 {
		return nil
	}
	u := &MemoryUse{MeanMiB: m.used / m.known, PeakMiB: m.peak, GPUMs: m.known}
	if m.room > 0 {
		v := projections.Share(m.inRoom, m.room)
		u.Permille = &v
	}
	return u
}

// memoryUse adds up the memory in use of whole GPUs, in hours in which a single deployment held
// them.
func memoryUse(view projections.View, from, to int64, cluster string) (map[heldBy]*memorySum, *inventory.Fleet, error) {
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, nil, err
	}
	out := map[heldBy]*memorySum{}
	var ranks []*projections.Observer
	query := projections.Query{Scope: cluster, From: from, To: to}
	err = inventory.EachUsage(view, f.Index, query, func(k projections.Key, u *projections.UsageHour) error {
		ranks = projections.Ranked(ranks, u)
		var s *inventory.Service
		if n := f.Index[inventory.NodeName{Cluster: k.Scope, Node: k.ID}]; n != nil {
			s = n.At(domain.Instant(k.Hour) * domain.Hour)
		}
		seen := map[domain.GPUID]bool{}
		for _, o := range ranks {
			for i := range o.Devices {
				d := &o.Devices[i]
				if d.Memory.Known == 0 || d.Cut != 0 || d.Replica != 0 || seen[d.ID] {
					continue
				}
				seen[d.ID] = true
				who, ok := u.Alone(d)
				if !ok || who == "" {
					continue
				}
				m := out[heldBy{k.Scope, who}]
				if m == nil {
					m = &memorySum{}
					out[heldBy{k.Scope, who}] = m
				}
				m.used, m.known = projections.Saturating(m.used, d.Memory.Sum, 1), m.known+uint64(d.Memory.Known)
				m.peak = max(m.peak, d.Memory.Max)
				if room := s.Memory(d.ID); room > 0 {
					m.room = projections.Saturating(m.room, room, uint64(d.Memory.Known))
					m.inRoom = projections.Saturating(m.inRoom, d.Memory.Sum, 1)
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
