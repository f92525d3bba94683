package domain

// Events of qm.telemetry, keyed by cluster and shard: what the hardware did, and for which workload.

// NodeSampled reports a node over one interval. It is self-contained: nothing in it refers to an
// earlier event. Device i of the node is entry i of every array. An array is empty when the metric
// was not read. Otherwise it holds value+1, with 0 for blank, so that a blank is never read as a
// number.
//
// The struct has the layout of its encoding, one packed array per metric, because half a million of
// these are folded in about a second.
type NodeSampled struct {
	Node     string
	Interval Interval

	// Strings is the table that the string references of this event point into. A reference is
	// index+1; 0 means none.
	Strings []string

	// Entries: one per whole GPU, MIG instance or time-slice replica.
	IDs     []byte   // 16 bytes per entry: GPU UUID, or MIG UUID for an instance
	Parent  []uint32 // index+1 of the entry's physical GPU in Parents; empty or 0: the entry is a whole GPU
	Parents []byte   // 16 bytes per physical GPU that is cut up
	Profile []uint32 // string reference: MIG profile such as 1g.10gb; 0 none
	Model   []uint32 // string reference: model of the physical GPU as its driver names it; 0 unknown
	Replica []uint32 // time-slice replica number from 1; 0 none
	Holder  []uint32 // index+1 into the Holder arrays; 0: no holder, or HoldersUnknown

	// HoldersUnknown says that an entry without a holder may have had one: the agent did not ask
	// for holders, or could not find them out.
	HoldersUnknown bool

	// Holders: who held GPUs during this interval.
	HolderWorkspace  []uint32 // string reference
	HolderDeployment []uint32 // string reference
	HolderUnit       []uint32 // string reference: pod or job

	// ActivityField is the best DCGM field that the activity of any device was read from: 1002
	// (DCGM_FI_PROF_SM_ACTIVE), 1001 (GR_ENGINE_ACTIVE) or 203 (GPU_UTIL). For a device without
	// that field the agent reads the next best field that it has.
	ActivityField uint32
	ActivityMean  []uint32 // per mille of the interval
	ActivityMin   []uint32 // per mille
	ActivityMax   []uint32 // per mille
	TensorActive  []uint32 // per mille, DCGM field 1004
	DRAMActive    []uint32 // per mille, DCGM field 1005
	MemoryUsedMiB []uint32 // DCGM field 252
	PowerWatts    []uint32 // mean, DCGM field 155
	TemperatureC  []uint32 // DCGM field 150
	SMClockMHz    []uint32 // DCGM field 100

	// Other readings, sparse: entry, DCGM field id, value; ascending by entry and field.
	OtherEntry []uint32
	OtherField []uint32
	OtherValue []uint64

	// SkewNanos bounds how far the node's clock may be off, 0 unknown.
	SkewNanos uint64
}

// Entries returns the number of devices, instances and replicas reported.
func (s *NodeSampled) Entries() int { return len(s.IDs) / 16 }

// Histogram counts values by upper bound. Counts has one more entry than Bounds: the last counts
// the values above every bound.
type Histogram struct {
	Bounds []uint64 `json:"bounds"` // microseconds, ascending
	Counts []uint64 `json:"counts"`
	Sum    uint64   `json:"sum"` // microseconds
}

// ServingSampled reports a model server over one interval. Counters are differences over it.
type ServingSampled struct {
	Deployment       string    `json:"deployment"`
	Node             string    `json:"node,omitempty"`
	Unit             string    `json:"unit,omitempty"` // pod
	Model            string    `json:"model"`
	Tier             string    `json:"tier,omitempty"`
	Engine           string    `json:"engine"` // vllm, sglang, tgi
	Interval         Interval  `json:"interval"`
	TTFT             Histogram `json:"ttft"` // time to first token
	QueueDepthMilli  uint64    `json:"queue_depth_milli"`
	BatchSizeMilli   uint64    `json:"batch_size_milli"`
	KVCachePermille  uint64    `json:"kv_cache_permille"`
	PromptTokens     uint64    `json:"prompt_tokens"`
	GenerationTokens uint64    `json:"generation_tokens"`
	RequestsOK       uint64    `json:"requests_ok"`
	RequestsFailed   uint64    `json:"requests_failed"`
}

// SeriesMetric says what a series of [MetricsObserved] counts or measures.
type SeriesMetric uint32

// The metrics. Their numbers are stored in the log and never change.
const (
	MetricTTFT             SeriesMetric = iota + 1 // bucket of times to the first token, cumulative
	MetricTTFTSum                                  // counter, microseconds
	MetricTTFTCount                                // counter
	MetricQueueWait                                // bucket of times in the queue, cumulative
	MetricQueueWaitSum                             // counter, microseconds
	MetricQueueWaitCount                           // counter
	MetricPrefillSum                               // counter, microseconds of prefill; from engines without TTFT
	MetricPrefillCount                             // counter
	MetricWaiting                                  // gauge, thousandths of waiting requests
	MetricRunning                                  // gauge, thousandths of running requests
	MetricKVCache                                  // gauge, per mille
	MetricInputLength                              // counter, tokens read
	MetricGeneratedLength                          // counter, tokens written
	MetricRequestsOK                               // counter
	MetricRequestsFailed                           // counter
	MetricRequestsAborted                          // counter: cancelled by the client
	MetricRequestsReceived                         // counter; from engines that do not count successes
	MetricGPURequests                              // gauge, thousandths of GPUs that a pod requested
	metricEnd
)

// SeriesKind says how the values of a series are added up.
type SeriesKind int

// The kinds.
const (
	UnknownKind SeriesKind = iota
	CounterKind            // grows; restarts at 0 when its program restarts
	BucketKind             // a counter of values up to the series' bound
	GaugeKind
)

// Kind returns how the metric's values are added up.
func (m SeriesMetric) Kind() SeriesKind {
	switch m {
	case MetricTTFT, MetricQueueWait:
		return BucketKind
	case MetricWaiting, MetricRunning, MetricKVCache, MetricGPURequests:
		return GaugeKind
	case 0, metricEnd:
		return UnknownKind
	}
	if m < metricEnd {
		return CounterKind
	}
	return UnknownKind
}

// Infinite is the bound of the last bucket of a histogram.
const Infinite uint64 = 1<<64 - 1

// MetricsObserved holds samples of servers' metrics as a monitoring system scraped them. Counters
// are absolute values, not differences. Consumers keep the last value of each series, so that a
// redelivered sample, or a scrape in several parts, changes nothing.
//
// It has the layout of its encoding, one packed array per column. A string reference is index+1
// into Strings, 0 for none.
type MetricsObserved struct {
	Base Instant `json:"base"` // whole milliseconds; no sample is earlier
	// StepMs is the scrape interval that the monitoring system states. A gauge holds for the time
	// since the sample before, at most two steps.
	StepMs  uint32   `json:"step_ms"`
	Strings []string `json:"strings"`

	// Servers, one entry each.
	Engine     []uint32 `json:"engine"` // vllm, sglang, tgi, kubernetes
	Deployment []uint32 `json:"deployment"`
	Model      []uint32 `json:"model"`
	Tier       []uint32 `json:"tier"`
	Unit       []uint32 `json:"unit"` // pod, or address
	Node       []uint32 `json:"node"`

	// Series, one entry each.
	Server  []uint32 `json:"server"` // index of the server
	Metric  []uint32 `json:"metric"` // a [SeriesMetric]
	Bound   []uint64 `json:"bound"`  // of a bucket, microseconds or [Infinite]; else 0
	Series  []uint64 `json:"series"` // distinguishes series of one server, metric and bound
	Samples []uint32 `json:"samples"`

	// Samples, those of the first series first.
	Offset []uint32 `json:"offset_ms"` // after Base
	Value  []uint64 `json:"value"`
}

// JobQueued says that a job requested GPUs.
type JobQueued struct {
	Job        string        `json:"job"`
	Deployment string        `json:"deployment,omitempty"`
	Class      WorkloadClass `json:"class"`
	Need       GPUNeed       `json:"need"`
	Priority   int32         `json:"priority,omitempty"`
}

// JobStarted says that a job got what it requested.
type JobStarted struct {
	Job   string   `json:"job"`
	Nodes []string `json:"nodes,omitempty"`
	GPUs  uint32   `json:"gpus"`
}

// JobOutcome is how a job ended.
type JobOutcome string

// The outcomes of jobs.
const (
	JobSucceeded   JobOutcome = "succeeded"
	JobFailed      JobOutcome = "failed"
	JobCancelled   JobOutcome = "cancelled"
	JobPreempted   JobOutcome = "preempted"
	JobInterrupted JobOutcome = "interrupted" // by the hardware it ran on
)

// JobFinished says how a job ended.
type JobFinished struct {
	Job              string     `json:"job"`
	Outcome          JobOutcome `json:"outcome"`
	RetainedPermille uint32     `json:"retained_permille"` // share of its work that survives
	Detail           string     `json:"detail,omitempty"`
}

// DemandObserved states the demand for a pool over an interval, as means in thousandths of a unit.
type DemandObserved struct {
	Pool         string   `json:"pool"`
	Region       string   `json:"region,omitempty"`
	Model        string   `json:"model,omitempty"` // GPU model or machine type
	Unit         string   `json:"unit"`            // gpu, or vm where the source counts machines
	Interval     Interval `json:"interval"`
	RunningMilli uint64   `json:"running_milli"`
	PendingMilli uint64   `json:"pending_milli"`
	OwnedMilli   uint64   `json:"owned_milli,omitempty"` // capacity reserved for the pool
}

// EnergyMetered reports the reading of a power meter over an interval.
type EnergyMetered struct {
	Meter     string   `json:"meter"`
	Nodes     []string `json:"nodes,omitempty"`
	Interval  Interval `json:"interval"`
	WattHours Decimal  `json:"watt_hours"`
}

// UsageCorrected decides who held a device for an interval, overriding measurements. A later one
// with the same name replaces it or cancels it.
type UsageCorrected struct {
	Correction string   `json:"correction"`
	Node       string   `json:"node"`
	GPU        GPUID    `json:"gpu"`
	Replica    uint32   `json:"replica,omitempty"`
	Interval   Interval `json:"interval"`
	Workspace  string   `json:"workspace,omitempty"` // empty: nobody held it
	Deployment string   `json:"deployment,omitempty"`
	Unit       string   `json:"unit,omitempty"`
	Reason     string   `json:"reason"`
	Cancelled  bool     `json:"cancelled,omitempty"`
}

// Text returns the string that entry i of refs refers to, "" for none.
func (s *NodeSampled) Text(refs []uint32, i int) string {
	if i >= len(refs) || refs[i] == 0 {
		return ""
	}
	return s.Strings[refs[i]-1]
}

// Text returns the string that entry i of refs refers to, "" for none. It is safe for an event that
// was not validated.
func (m *MetricsObserved) Text(refs []uint32, i int) string {
	if i >= len(refs) || refs[i] == 0 || uint64(refs[i]) > uint64(len(m.Strings)) {
		return ""
	}
	return m.Strings[refs[i]-1]
}
