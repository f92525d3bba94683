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

// fate is the outcome of a sample.
type fate int

const (
	mapped   fate = iota // became part of an event
	filtered             // not needed: deliberately not kept
	setAside             // of a kept metric, but its labels or value are missing or invalid
	refused              // violates the protocol
	fates
)

var (
	fateHeaders = [fates]string{"Mapped", "Filtered", "Set-Aside", "Refused"}
	fateNames   = [fates]string{"mapped", "filtered", "set_aside", "refused"}
)

// reason says why samples were filtered, set aside or refused. The set is closed, so that counters
// stay bounded.
type reason uint8

const (
	reasonNone reason = iota
	// Filtered.
	otherMetric  // not in the catalogue
	otherSeries  // of a metric of the catalogue, but not needed: another resource, condition or rank
	staleMarker  // the series ended
	noNews       // of a deployment or node, nothing to report now
	repeatedCell // the second reading of a GPU in a cell of the grid
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

// reasonInfo describes a reason to people.
type reasonInfo struct {
	name, help string
	fate       fate
}

var reasons = [reasonCount]reasonInfo{
	otherMetric: {
		"other_metric",
		"this metric is not kept; write_relabel_configs of the stanza would save the traffic",
		filtered,
	},
	otherSeries: {"other_series", "the metric is kept, but this series of it is not needed", filtered},
	staleMarker: {"stale_marker", "the series ended", filtered},
	noNews: {
		"no_news",
		"replicas and conditions are reported when they change and every ten minutes, " +
			"replicas only if a model server of the deployment is known; " +
			"faults of GPUs are reported when their gauge changes",
		filtered,
	},
	repeatedCell: {
		"repeated_cell",
		"the GPU already has a reading in this scrape interval: " + StepHeader +
			" is longer than scrape_interval, or the scrape was sent twice",
		filtered,
	},
	otherCluster: {
		"other_cluster",
		"the label cluster names another cluster, but the key belongs to {cluster}: " +
			"write with the key of the right cluster, or relabel Prometheus' name for this one",
		setAside,
	},
	noNode: {
		"no_node",
		"no label node, hostname or Hostname names the GPU's machine: " +
			"relabel __meta_kubernetes_pod_node_name to node",
		setAside,
	},
	podAsNode: {
		"pod_as_node",
		"Hostname is the exporter's pod, not the machine: relabel __meta_kubernetes_pod_node_name to node",
		setAside,
	},
	noDevice:  {"no_device", "no label UUID identifies the GPU", setAside},
	badDevice: {"bad_device", "the label UUID is not the id of a GPU", setAside},
	noModel:   {"no_model", "no label model_name names the model", setAside},
	noServer:  {"no_server", "neither pod nor instance identifies the server", setAside},
	badLabel: {
		"bad_label",
		"a label, or namespace and name together, is longer than 256 bytes, " +
			"holds control characters or is not UTF-8",
		setAside,
	},
	badBound: {"bad_bound", "the label le of a bucket is not a number above 0", setAside},
	badValue: {
		"bad_value",
		"the value is missing (NaN or a DCGM blank), negative, above the metric's maximum, or a fraction of a count",
		setAside,
	},
	twoHolders: {
		"two_holders",
		"two pods hold the GPU at once and no label vgpu tells them apart: the first counts",
		setAside,
	},
	tooMany: {"too_many", "the cluster named more GPUs or more servers in an hour than are kept", setAside},
	tooManyDevices: {
		"too_many_devices",
		"more GPUs, instances and replicas of one node in an hour than are kept: " +
			"does the node label have the same value on several nodes?",
		setAside,
	},
	notValid: {
		"not_valid",
		"the event made of these samples is not valid: a mapping rule may yield an invalid name",
		setAside,
	},
	badSeries: {"bad_series", "the series violates the protocol", refused},
	tooOld:    {"too_old", "the sample is older than seven days", refused},
	inFuture:  {"in_future", "the sample is more than ten minutes ahead: set the clock", refused},
}

// account counts the samples of a request by fate.
type account struct {
	samples       [fates]int
	histograms    int // valid ones
	exemplars     int
	badHistograms int
	badExemplars  int
}

// written is the number of samples that the sender may regard as written. Filtering is the
// receiver's choice, so it includes them.
func (a *account) written() int { return a.samples[mapped] + a.samples[filtered] + a.samples[setAside] }

// maxExamples is how many series are remembered for each reason.
const maxExamples = 5

// cluster is the state of the receiver for one cluster.
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
	devices  map[uint64]int // number of devices by hash of the node's name, in the hour of gpus
	kube     kube
}

func newCluster(name string) *cluster {
	return &cluster{name: name, seed: maphash.MakeSeed(), kube: newKube()}
}

// maxTargets is how many GPUs a cluster may name in an hour, and how many servers.
const maxTargets = 1 << 17

// targets are the GPUs or the servers that a cluster named, by a hash of the fields that identify
// their rows. A target of the hour before that was named repeatedly keeps its place. So names that
// occur only once cannot displace stable targets, and do not take places in the next hour.
type targets struct {
	hour   int64
	known  map[uint64]int64 // time of the first naming in milliseconds since 1970, or cameAgain
	before map[uint64]struct{}
	kept   int // places reserved for before that are not used in this hour yet
}

// A target counts as named repeatedly if it was named at least lasting milliseconds after the first
// time. The parts of one scrape are never that far apart.
const (
	lasting   = 60_000
	cameAgain = -1
)

// turn begins an hour, and reports whether the hour changed.
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

// admit reports whether there is room for a target, and adds it.
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

// admitServer returns reasonNone if there is room for a server, or the reason for refusing it. name
// contains all fields that identify its rows, so equal names are one target and different names are
// two.
func (c *cluster) admitServer(name string, now int64) reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers.turn(now / 3_600_000)
	// The seed is secret, so that nobody can choose names with equal hashes.
	if !c.servers.admit(maphash.String(c.seed, name), now) {
		return tooMany
	}
	return reasonNone
}

// admitDevice is admitServer for a device of a node. name includes the node's name.
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

// enter adds the counts of an answered request.
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

// Status is the answer to a GET: the fates of a cluster's samples since this process started.
type Status struct {
	Cluster string            `json:"cluster"`
	Samples map[string]uint64 `json:"samples"` // by fate: mapped, filtered, set_aside, refused
	// Unacknowledged counts samples that were answered with 503. Prometheus sends them again.
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
	Examples []string `json:"examples"` // the first few series
}

func (c *cluster) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{
		Cluster:        c.name,
		Samples:        map[string]uint64{},
		Unacknowledged: c.failed,
		Events:         c.events,
		Reasons:        []ReasonStatus{},
	}
	for i, n := range c.samples {
		s.Samples[fateNames[i]] = n
	}
	for i, n := range c.reasons {
		if n > 0 {
			s.Reasons = append(s.Reasons, ReasonStatus{
				Reason:   reasons[i].name,
				Fate:     fateNames[reasons[i].fate],
				Samples:  n,
				Help:     strings.ReplaceAll(reasons[i].help, "{cluster}", strconv.Quote(c.name)),
				Examples: append([]string{}, c.examples[i]...),
			})
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
	samplesDesc = prometheus.NewDesc("quartermaster_remote_write_samples_total",
		"Samples that Prometheus sent, by cluster and outcome.", []string{"cluster", "fate"}, nil)
	reasonsDesc = prometheus.NewDesc("quartermaster_remote_write_unmapped_total",
		"Samples that are in no event, by cluster and reason.", []string{"cluster", "reason"}, nil)
	failedDesc = prometheus.NewDesc("quartermaster_remote_write_unacknowledged_total",
		"Samples answered with 503, because the log did not acknowledge their events.", []string{"cluster"}, nil)
	eventsDesc = prometheus.NewDesc("quartermaster_remote_write_events_total",
		"Events made of samples.", []string{"cluster"}, nil)
	requestsDesc = prometheus.NewDesc("quartermaster_remote_write_requests_total",
		"Requests, by class of status.", []string{"status"}, nil)
	bytesDesc = prometheus.NewDesc("quartermaster_remote_write_bytes_total",
		"Bytes read, compressed and decompressed together.", nil, nil)
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
