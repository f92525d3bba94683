package remotewrite

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"quartermaster/projections"
)

// fate is what became of a sample.
type fate int

const (
	mapped   fate = iota // into an event
	filtered             // nothing that is kept
	setAside             // kept by name, and its labels or value say too little or too much
	refused              // against the protocol
	fates
)

var (
	fateHeaders = [fates]string{"Mapped", "Filtered", "Set-Aside", "Refused"}
	fateNames   = [fates]string{"mapped", "filtered", "set_aside", "refused"}
)

// reason says why samples were filtered, set aside or refused. The set is closed,
// so that what is counted stays bounded.
type reason uint8

const (
	reasonNone reason = iota
	// Filtered.
	otherMetric  // not in the catalogue
	otherSeries  // of a metric of the catalogue, and of no use: another resource, condition or rank
	staleMarker  // the series ended
	noNews       // of a deployment or node, nothing that is to be stated now
	repeatedCell // a GPU's second reading in a cell of the grid
	// Set aside.
	otherCluster
	noNode
	podAsNode
	noDevice
	badDevice
	noModel
	noServer
	badLabel
	badBound
	badValue
	twoHolders
	tooMany
	tooManyDevices
	notValid
	// Refused.
	badSeries
	tooOld
	inFuture
	reasonCount
)

var reasons = [reasonCount]struct {
	name, help string
	fate       fate
}{
	otherMetric:    {"other_metric", "nothing is kept of this metric: write_relabel_configs of the stanza would save the traffic", filtered},
	otherSeries:    {"other_series", "the metric is kept, and this series of it is of no use", filtered},
	staleMarker:    {"stale_marker", "the series ended", filtered},
	noNews:         {"no_news", "replicas and conditions are stated when they change and every ten minutes, replicas only where a model server of the deployment is known, and faults of GPUs when their gauge changes", filtered},
	repeatedCell:   {"repeated_cell", "the GPU was read before in the same scrape interval: " + StepHeader + " is longer than scrape_interval, or the scrape came twice", filtered},
	otherCluster:   {"other_cluster", "the label cluster names another cluster, and the key is that of {cluster}: write with the key of the cluster that is meant, or relabel the name that Prometheus has for this one", setAside},
	noNode:         {"no_node", "no label node, hostname or Hostname says which machine the GPU is in: relabel __meta_kubernetes_pod_node_name to node", setAside},
	podAsNode:      {"pod_as_node", "Hostname is the exporter's pod, not the machine: relabel __meta_kubernetes_pod_node_name to node", setAside},
	noDevice:       {"no_device", "no label UUID says which GPU it is", setAside},
	badDevice:      {"bad_device", "the label UUID is not the id of a GPU", setAside},
	noModel:        {"no_model", "no label model_name says which model is served", setAside},
	noServer:       {"no_server", "neither pod nor instance says which server it is", setAside},
	badLabel:       {"bad_label", "a label, or namespace and name together, is longer than 256 bytes, holds control characters or is not UTF-8", setAside},
	badBound:       {"bad_bound", "the label le of a bucket is not a number above 0", setAside},
	badValue:       {"bad_value", "the value is blank, negative, beyond what the metric can be, or a fraction of a count", setAside},
	twoHolders:     {"two_holders", "two pods hold the GPU at once and no label vgpu tells them apart: the first counts", setAside},
	tooMany:        {"too_many", "the cluster named more GPUs, or more servers, in an hour than are kept", setAside},
	tooManyDevices: {"too_many_devices", "more GPUs, instances and replicas in an hour than are kept of one node: does the label that names the node say the same of several?", setAside},
	notValid:       {"not_valid", "what would come of it is no event that the log takes: a mapping rule may name something that is no name", setAside},
	badSeries:      {"bad_series", "the series breaks the protocol", refused},
	tooOld:         {"too_old", "the sample is older than seven days", refused},
	inFuture:       {"in_future", "the sample is more than ten minutes ahead: set the clock", refused},
}

// account says what became of the samples of a request.
type account struct {
	samples       [fates]int
	histograms    int // good ones
	exemplars     int
	badHistograms int
	badExemplars  int
}

// written is what counts as written for whoever sent it: filtering is our choice.
func (a *account) written() int { return a.samples[mapped] + a.samples[filtered] + a.samples[setAside] }

// maxExamples is how many series are remembered for each reason.
const maxExamples = 5

// cluster is what is remembered of a cluster.
type cluster struct {
	name string

	mu       sync.Mutex
	samples  [fates]uint64
	reasons  [reasonCount]uint64
	examples [reasonCount][]string
	failed   uint64 // samples whose events the log did not acknowledge
	events   uint64
	seed     maphash.Seed
	gpus     targets
	servers  targets
	devices  map[uint64]int // of each node in the hour of gpus, by the hash of its name
	kube     kube
}

func newCluster(name string) *cluster {
	return &cluster{name: name, seed: maphash.MakeSeed(), kube: newKube()}
}

// maxTargets is how many GPUs a cluster may name in an hour, and how many servers.
const maxTargets = 1 << 17

// targets are the GPUs or the servers that a cluster named, by the hash of what names
// their rows. Those of the hour before that came again in it keep their places, so that
// names that never come again take none from what is there all the time, and none in
// the hour after.
type targets struct {
	hour   int64
	known  map[uint64]int64 // when it was first named, in milliseconds since 1970; cameAgain
	before map[uint64]struct{}
	kept   int // places of before that were not taken in this hour
}

// A target came again when it was named so many milliseconds after it first was: parts of
// one scrape are no more than that apart.
const (
	lasting   = 60_000
	cameAgain = -1
)

// turn begins an hour, and reports whether it is another.
func (t *targets) turn(hour int64) bool {
	if hour == t.hour && t.known != nil {
		return false
	}
	t.before = nil
	if hour == t.hour+1 {
		t.before = map[uint64]struct{}{}
		for id, first := range t.known {
			if first == cameAgain {
				t.before[id] = struct{}{}
			}
		}
	}
	t.hour, t.known, t.kept = hour, map[uint64]int64{}, len(t.before)
	return true
}

// admit reports whether there is room for a target.
func (t *targets) admit(id uint64, now int64) bool {
	if t.again(id, now) {
		return true
	}
	if _, was := t.before[id]; was {
		t.kept--
		now = cameAgain
	} else if len(t.known)+t.kept >= maxTargets {
		return false
	}
	t.known[id] = now
	return true
}

// again reports whether a target was named in this hour before.
func (t *targets) again(id uint64, now int64) bool {
	first, ok := t.known[id]
	if ok && first != cameAgain && now-first >= lasting {
		t.known[id] = cameAgain
	}
	return ok
}

// admitServer returns why there is no room for a server, reasonNone when there is. name
// is all of what its rows are told apart by: two of one name are one target, and two of
// different names two.
func (c *cluster) admitServer(name string, now int64) reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers.turn(now / 3_600_000)
	// The seed is ours alone, so that nobody can name targets that are one here.
	if !c.servers.admit(maphash.String(c.seed, name), now) {
		return tooMany
	}
	return reasonNone
}

// admitDevice does so for a device of a node; name holds the node's.
func (c *cluster) admitDevice(node, name []byte, now int64) reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gpus.turn(now/3_600_000) || c.devices == nil {
		c.devices = map[uint64]int{}
	}
	id, of := maphash.Bytes(c.seed, name), maphash.Bytes(c.seed, node)
	switch {
	case c.gpus.again(id, now):
		return reasonNone
	case c.devices[of] >= projections.MaxScraped:
		return tooManyDevices
	case !c.gpus.admit(id, now):
		return tooMany
	}
	c.devices[of]++
	return reasonNone
}

// enter adds a request that was answered.
func (c *cluster) enter(s *scan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range s.account.samples {
		c.samples[i] += uint64(n)
	}
	c.events += uint64(s.made)
	for i, n := range s.why {
		c.reasons[i] += uint64(n)
	}
	for i, examples := range s.examples {
		for _, e := range examples {
			if len(c.examples[i]) < maxExamples && !slices.Contains(c.examples[i], e) {
				c.examples[i] = append(c.examples[i], e)
			}
		}
	}
}

func (c *cluster) fail(a *account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed += uint64(a.written())
}

// Status is the answer to a GET: what became of the samples of a cluster since
// this process began.
type Status struct {
	Cluster string            `json:"cluster"`
	Samples map[string]uint64 `json:"samples"` // by fate: mapped, filtered, set_aside, refused
	// Unacknowledged counts samples that were answered with 503: Prometheus sends
	// them again.
	Unacknowledged uint64         `json:"unacknowledged"`
	Events         uint64         `json:"events"`
	Reasons        []ReasonStatus `json:"reasons"`
}

// ReasonStatus counts samples that were not mapped for one reason.
type ReasonStatus struct {
	Reason   string   `json:"reason"`
	Fate     string   `json:"fate"`
	Samples  uint64   `json:"samples"`
	Help     string   `json:"help"`
	Examples []string `json:"examples"` // series, the first few
}

func (c *cluster) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Cluster: c.name, Samples: map[string]uint64{}, Unacknowledged: c.failed, Events: c.events, Reasons: []ReasonStatus{}}
	for i, n := range c.samples {
		s.Samples[fateNames[i]] = n
	}
	for i, n := range c.reasons {
		if n > 0 {
			s.Reasons = append(s.Reasons, ReasonStatus{reasons[i].name, fateNames[reasons[i].fate], n, strings.ReplaceAll(reasons[i].help, "{cluster}", strconv.Quote(c.name)), append([]string{}, c.examples[i]...)})
		}
	}
	return s
}

func (c *cluster) show(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(c.status())
}

var (
	samplesDesc  = prometheus.NewDesc("quartermaster_remote_write_samples_total", "Samples that Prometheus sent, by cluster and what became of them.", []string{"cluster", "fate"}, nil)
	reasonsDesc  = prometheus.NewDesc("quartermaster_remote_write_unmapped_total", "Samples that are in no event, by cluster and reason.", []string{"cluster", "reason"}, nil)
	failedDesc   = prometheus.NewDesc("quartermaster_remote_write_unacknowledged_total", "Samples answered with 503, since the log did not acknowledge their events.", []string{"cluster"}, nil)
	eventsDesc   = prometheus.NewDesc("quartermaster_remote_write_events_total", "Events made of samples.", []string{"cluster"}, nil)
	requestsDesc = prometheus.NewDesc("quartermaster_remote_write_requests_total", "Requests, by class of status.", []string{"status"}, nil)
	bytesDesc    = prometheus.NewDesc("quartermaster_remote_write_bytes_total", "Bytes read, compressed and decompressed together.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *receiver) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{samplesDesc, reasonsDesc, failedDesc, eventsDesc, requestsDesc, bytesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *receiver) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	clusters := make([]*cluster, 0, len(r.clusters))
	for _, c := range r.clusters {
		clusters = append(clusters, c)
	}
	for i, n := range r.requests {
		if n > 0 {
			ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), string(rune('0'+i))+"xx")
		}
	}
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(r.bytes))
	r.mu.Unlock()
	for _, c := range clusters {
		s := c.status()
		name := strings.ToValidUTF8(s.Cluster, "?")
		for _, f := range fateNames {
			ch <- prometheus.MustNewConstMetric(samplesDesc, prometheus.CounterValue, float64(s.Samples[f]), name, f)
		}
		for _, x := range s.Reasons {
			ch <- prometheus.MustNewConstMetric(reasonsDesc, prometheus.CounterValue, float64(x.Samples), name, x.Reason)
		}
		ch <- prometheus.MustNewConstMetric(failedDesc, prometheus.CounterValue, float64(s.Unacknowledged), name)
		ch <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, float64(s.Events), name)
	}
}
