package remotewrite

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"quartermaster/domain"
	"quartermaster/projections"
)

// serverScan collects samples of model servers.
type serverScan struct {
	servers []server
	server  map[string]uint32 // by labels
	samples []serverSample
}

type server struct {
	engine, deployment, model, tier, unit, node string
	refused                                     reason
}

type serverSample struct {
	period int64 // number of the half day: an event covers no more
	server uint32
	metric domain.SeriesMetric
	bound  uint64
	series uint64
	time   int64
	value  uint64
}

const halfDay = 12 * 3_600_000

// server takes a series of a model server, or of a pod's GPU requests.
func (s *scan) server(m *metric) {
	n := len(s.samples)
	serves := m.serves
	switch {
	case rankAbove(s.values[keyTPRank]) || rankAbove(s.values[keyPPRank]):
		s.drop(otherSeries, n) // every rank of a server reports the same
		return
	case m.family == familyPods && !isGPUResource(s.values[keyResource]):
		s.drop(otherSeries, n)
		return
	case (serves == domain.MetricPrefillSum || serves == domain.MetricPrefillCount) && string(s.values[keyMethod]) != "prefill":
		s.drop(otherSeries, n)
		return
	case m.family == familyVLLM && serves == domain.MetricRequestsOK:
		switch string(s.values[keyReason]) {
		case "abort":
			serves = domain.MetricRequestsAborted
		case "error":
			serves = domain.MetricRequestsFailed
		}
	}
	var bound uint64
	if serves.Kind() == domain.BucketKind {
		var ok bool
		if bound, ok = boundOf(s.values[keyLe]); !ok {
			s.drop(badBound, n)
			return
		}
	}
	s.text = append(s.text[:0], byte(m.family))
	for _, k := range [...]labelKey{
		keyModel, keyTier, keyNamespace, keyPod, keyExportedNamespace, keyExportedPod,
		keyInstance, keyDeployment, keyNode,
	} {
		s.text = append(append(s.text, s.values[k]...), 0)
	}
	at, ok := s.servers.server[string(s.text)]
	if !ok {
		key := string(s.text)
		s.spend(perTarget + 4*len(key))
		at = uint32(len(s.servers.servers))
		s.servers.servers = append(s.servers.servers, s.newServer(m.family))
		if s.servers.server == nil {
			s.servers.server = map[string]uint32{}
		}
		s.servers.server[key] = at
	}
	if why := s.servers.servers[at].refused; why != reasonNone {
		s.drop(why, n)
		return
	}
	// The hash covers the labels that distinguish series of one server. It leaves out labels that
	// name the Prometheus that scraped them, so that the series of two Prometheus servers are one.
	h := newHash
	for _, k := range [...]labelKey{
		keyInstance, keyEngine, keyDPRank, keyReason, keyErr, keyContainer, keyExportedContainer, keyResource,
	} {
		if m.family == familyPods && k == keyInstance {
			continue // the instance of kube-state-metrics, of which there may be several
		}
		h = h.add(s.values[k])
	}
	for _, x := range s.samples {
		v, ok := s.usable(x, m)
		if !ok {
			continue
		}
		s.account.samples[mapped]++
		s.servers.samples = append(s.servers.samples, serverSample{
			period: x.time / halfDay,
			server: at,
			metric: serves,
			bound:  bound,
			series: uint64(h),
			time:   x.time,
			value:  v,
		})
	}
}

func rankAbove(rank []byte) bool { return len(rank) > 0 && string(rank) != "0" }

// isGPUResource reports whether a resource that pods request is a whole GPU.
func isGPUResource(name []byte) bool { return string(name) == "nvidia_com_gpu" }

// boundOf parses the bound of a bucket in seconds and returns it in microseconds.
func boundOf(le []byte) (uint64, bool) {
	f, err := strconv.ParseFloat(string(le), 64)
	switch {
	case err != nil || math.IsNaN(f) || f <= 0:
		return 0, false
	case math.IsInf(f, 1):
		return domain.Infinite, true
	}
	x := math.Round(f * micros)
	if x < 1 || x >= 1<<52 {
		return 0, false
	}
	return uint64(x), true
}

func (s *scan) newServer(f family) (v server) {
	for _, k := range [...]labelKey{
		keyModel, keyTier, keyNamespace, keyPod, keyExportedNamespace, keyExportedPod,
		keyInstance, keyDeployment, keyNode,
	} {
		if !plain(s.values[k]) {
			v.refused = badLabel
			return v
		}
	}
	v.engine, v.model, v.tier = engines[f], string(s.values[keyModel]), string(s.values[keyTier])
	// kube-state-metrics describes other pods than its own; a model server describes itself.
	pod, namespace := s.first(keyPod, keyExportedPod), s.first(keyNamespace, keyExportedNamespace)
	if f == familyPods {
		pod, namespace = s.first(keyExportedPod, keyPod), s.first(keyExportedNamespace, keyNamespace)
		v.model = ""
		v.node = string(s.values[keyNode])
	}
	unit := pod
	if len(unit) == 0 {
		unit = s.values[keyInstance]
	}
	switch {
	case len(unit) == 0:
		v.refused = noServer
		return v
	case v.model == "" && f == familyTGI:
		// TGI reports no model: the deployment's name stands for it.
	case v.model == "" && f != familyPods:
		v.refused = noModel
		return v
	}
	v.unit = string(unit)
	switch {
	case len(pod) > 0:
		h := s.holderOf(namespace, pod)
		v.deployment, v.unit = h.deployment, h.unit
	case len(s.values[keyDeployment]) > 0:
		v.deployment = s.belongs(namespace, s.values[keyDeployment], false).deployment
	default:
		v.deployment = v.unit
	}
	if v.model == "" && f == familyTGI {
		v.model = v.deployment
	}
	if len(v.deployment) > maxText || len(v.unit) > maxText {
		v.refused = badLabel
		return v
	}
	if f != familyPods {
		v.node = string(s.values[keyNode])
	}
	id := projections.ServerID(v.deployment, v.model, v.tier, v.engine, v.unit)
	if v.refused = s.cluster.admitServer(id, s.now); v.refused != reasonNone {
		return v
	}
	if f != familyPods {
		s.cluster.serves(v.deployment, v.model, v.tier)
	}
	return v
}

// Bounds on one event, well below the 4 MiB of a record.
const (
	maxEventSamples = 1 << 15
	maxEventSeries  = 1 << 14
	maxEventBytes   = 3 << 20
)

// Upper bounds on the encoded size of an event's parts: a 32-bit number takes at most 5 bytes, a
// 64-bit number 10, and a text up to 3 more than its length.
const (
	sampleBytes = 5 + 10
	seriesBytes = 3*5 + 2*10
)

func (v *server) bytes() (n int) {
	for _, text := range [...]string{v.engine, v.deployment, v.model, v.tier, v.unit, v.node} {
		n += len(text) + 3 + 5
	}
	return n
}

// samplesOfServers appends the events of the servers' samples.
func (s *scan) samplesOfServers(events []domain.Envelope) []domain.Envelope {
	all := s.servers.samples
	if len(all) == 0 {
		return events
	}
	compare := func(a, b serverSample) int {
		if a.period != b.period {
			return cmp.Compare(a.period, b.period)
		}
		if a.server != b.server {
			return cmp.Compare(a.server, b.server)
		}
		if a.metric != b.metric {
			return cmp.Compare(a.metric, b.metric)
		}
		if a.bound != b.bound {
			return cmp.Compare(a.bound, b.bound)
		}
		if a.series != b.series {
			return cmp.Compare(a.series, b.series)
		}
		return cmp.Compare(a.time, b.time)
	}
	slices.SortFunc(all, compare)
	for i := 0; i < len(all); {
		j, series, bytes := i, 0, 0
		for j < len(all) && all[j].period == all[i].period && j-i < maxEventSamples {
			if j == i || !all[j].sameSeries(&all[j-1]) {
				series++
				bytes += seriesBytes
			}
			if j == i || all[j].server != all[j-1].server {
				bytes += s.servers.servers[all[j].server].bytes()
			}
			if bytes += sampleBytes; j > i && (series > maxEventSeries || bytes > maxEventBytes) {
				break
			}
			j++
		}
		s.spend(perEvent)
		events = append(events, s.metricsOf(all[i:j]))
		i = j
	}
	return events
}

func (a *serverSample) sameSeries(b *serverSample) bool {
	return a.server == b.server && a.metric == b.metric && a.bound == b.bound && a.series == b.series
}

func (s *scan) metricsOf(all []serverSample) domain.Envelope {
	first, last := all[0].time, all[0].time
	for i := range all {
		first, last = min(first, all[i].time), max(last, all[i].time)
	}
	m := &domain.MetricsObserved{
		Base: domain.Instant(first) * 1_000_000, StepMs: uint32(s.step.Milliseconds()),
		Offset: make([]uint32, len(all)), Value: make([]uint64, len(all)),
	}
	texts := map[string]uint32{}
	text := func(t string) uint32 {
		if t == "" {
			return 0
		}
		n := texts[t]
		if n == 0 {
			m.Strings = append(m.Strings, t)
			n = uint32(len(m.Strings))
			texts[t] = n
		}
		return n
	}
	server := -1
	for i := range all {
		x := &all[i]
		if server != int(x.server) {
			server = int(x.server)
			v := &s.servers.servers[server]
			m.Engine = append(m.Engine, text(v.engine))
			m.Deployment = append(m.Deployment, text(v.deployment))
			m.Model = append(m.Model, text(v.model))
			m.Tier = append(m.Tier, text(v.tier))
			m.Unit = append(m.Unit, text(v.unit))
			m.Node = append(m.Node, text(v.node))
		}
		if i == 0 || !x.sameSeries(&all[i-1]) {
			m.Server = append(m.Server, uint32(len(m.Engine)-1))
			m.Metric = append(m.Metric, uint32(x.metric))
			m.Bound = append(m.Bound, x.bound)
			m.Series = append(m.Series, x.series)
			m.Samples = append(m.Samples, 0)
		}
		m.Samples[len(m.Samples)-1]++
		m.Offset[i], m.Value[i] = uint32(x.time-first), x.value
	}
	return domain.Envelope{Cluster: s.cluster.name, Time: domain.Instant(last) * 1_000_000, Event: m}
}
