// Package remotewrite receives samples from Prometheus by remote write 1.0 and 2.0, and turns them
// into events of the cluster that the request's key belongs to.
//
// Invariants:
//
//   - Success is answered only after the log acknowledged the events of the
//     request. A failure of the log is answered with 503, so that Prometheus sends
//     again.
//   - No figure depends on this process's memory. Events hold samples as received,
//     and the folds count each once, however requests are split, repeated or
//     delivered by several Prometheus servers to several instances. Memory only
//     serves to state slow facts (replicas, cordons) when they change, and again
//     every ten minutes.
//   - Every sample is accounted for. It is mapped into an event, filtered because
//     it is not needed, set aside because its labels or value are missing or
//     invalid, or refused because it violates the protocol. The first three count
//     as written, as the protocol demands. The headers
//     X-Quartermaster-Samples-{Mapped,Filtered,Set-Aside,Refused} give the number
//     of each. A GET of the same address and /metrics give the reasons.
//   - Memory is bounded by the requests in flight, whatever their labels are. It is
//     counted before it is allocated, in total and for each cluster. The number of
//     targets (by the fields that identify their rows) that a cluster may name in an
//     hour is bounded too, and the rest is set aside.
//
// These series are read (see catalogue.go):
//
//   - Fault gauges of dcgm-exporter become GPUFaultObserved when they change
//     (fault.go).
//   - Its other gauges become NodeSampled, one for each node and cell of the
//     scrape's grid, with the best activity field that came with it.
//   - Series of vLLM, SGLang and TGI, and the GPUs that pods request, become
//     MetricsObserved.
//   - Replicas and node conditions of kube-state-metrics become ReplicasObserved,
//     NodeCordoned and NodeReturned.
package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"

	"quartermaster/adapters/admission"
	"quartermaster/domain"
)

// Config has the receiver's dependencies and limits.
type Config struct {
	// Authenticate returns the cluster that the request's key belongs to. An error is answered with
	// 401, or with 503 if it wraps [ErrUnavailable].
	Authenticate func(*http.Request) (cluster string, err error)

	// Append appends events to the log and returns nil once all are acknowledged. It sets Source,
	// which must begin with "prometheus/", Incarnation and Sequence. After an error it may be
	// called again with the same facts. It must not keep more than one call's events in the
	// background after an error. Calls do not overlap. An error that wraps [ErrRefused] means that
	// nothing was appended, and that the log will never accept all of these events.
	Append func(ctx context.Context, events []domain.Envelope) error

	// Now is the clock.
	Now func() time.Time

	// Holder returns the workspace and the deployment of a controller or pod with that name in the
	// namespace. An empty result means the default, and so does ok false or a nil Holder. By
	// default there is no workspace, and the deployment is namespace/name, for a pod without the
	// suffixes that its controller added. Samples of GPUs name no workspace, because mapping rules
	// assign them when usage is read.
	Holder func(cluster, namespace, name string) (workspace, deployment string, ok bool)

	// Faulted returns the detail of the last fault of a GPU's DCGM field that Prometheus reported,
	// or "" if there is none. It is called when a gauge is seen for the first time, and when a
	// lifetime counter increased. Nil means that nothing was reported.
	Faulted func(cluster, node string, gpu domain.GPUID, field uint32) (detail string, err error)

	// Patience bounds the time of Append; 0 means 30 s.
	Patience time.Duration

	// InFlight bounds the memory of all requests together, including the events made of them. Above
	// it, the answer is 503. Zero means 256 MiB. A cluster may use a quarter of it. Above that, the
	// answer is 429, or 413 if the request alone needs more.
	InFlight int64

	// Rate bounds the samples of a cluster a second. After a pause, twice as many are accepted at
	// once. Above it, the answer is 429. Zero means no bound.
	Rate int

	// Arrival bounds the time in which a body must arrive. After it, the answer is 503 and the
	// connection is closed. Zero means 30 s.
	Arrival time.Duration

	// Registerer, if not nil, gets the metrics.
	Registerer prometheus.Registerer

	// Log, if not nil, gets failures.
	Log *slog.Logger
}

// ErrUnavailable is wrapped by errors of Authenticate that do not reject the key, for example
// because the keys cannot be read now. Prometheus tries again.
var ErrUnavailable = errors.New("cannot check the key now")

// ErrRefused is wrapped by errors of Append if the log will never accept one of the events, for
// example because it is too large. The receiver appends the others without it, and sets its samples
// aside.
var ErrRefused = errors.New("the log will never accept it")

// StepHeader is the request header with the scrape interval of its series, as a duration. The
// stanza sets it.
const StepHeader = "X-Quartermaster-Scrape-Interval"

const (
	defaultStep = 30 * time.Second
	leastStep   = 5 * time.Second
	mostStep    = 10 * time.Minute
	maxBody     = 32 << 20 // bytes, both compressed and decompressed
	retryAfter  = "5"

	maxConcurrent = 256 // concurrent requests of a cluster
	quarter       = 4
)

// Handler returns the receiver. POST writes samples. GET returns the [Status] of the cluster that
// the key belongs to.
func Handler(cfg Config) http.Handler {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = 256 << 20
	}
	limits := admission.Limits{
		Requests:     maxConcurrent,
		Bytes:        cfg.InFlight,
		ClusterBytes: cfg.InFlight / quarter,
		Rate:         cfg.Rate,
		Burst:        2 * cfg.Rate,
		Patience:     cfg.Arrival,
	}
	r := &receiver{cfg: cfg, clusters: map[string]*cluster{}, limiter: admission.New(limits)}
	r.gather.append = cfg.Append
	r.gather.patience = cfg.Patience
	accepted := remote.MessageTypes{remote.WriteV1MessageType, remote.WriteV2MessageType}
	r.write = remote.NewWriteHandler(r, accepted, remote.WithWriteHandlerMiddlewares())
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(r)
	}
	return r
}

type receiver struct {
	cfg     Config
	write   http.Handler
	gather  gatherer
	limiter *admission.Limiter

	mu       sync.Mutex
	clusters map[string]*cluster
	requests [6]uint64 // by the first digit of the status
	bytes    uint64
}

// delivery is a request with its cluster.
type delivery struct {
	*admission.Request
	cluster *cluster
	w       http.ResponseWriter
}

type deliveryKey struct{}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, err := r.cfg.Authenticate(req)
	if err != nil {
		status := http.StatusUnauthorized
		if errors.Is(err, ErrUnavailable) {
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", retryAfter)
		}
		r.count(status)
		http.Error(w, err.Error(), status)
		return
	}
	c := r.cluster(name)
	if req.Method == http.MethodGet {
		c.show(w)
		return
	}
	q, err := r.limiter.Begin(name, r.cfg.Now())
	if err != nil {
		r.count(http.StatusTooManyRequests)
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer q.Done()
	counted := &countingWriter{ResponseWriter: w, status: http.StatusOK}
	d := &delivery{q, c, w}
	r.write.ServeHTTP(counted, req.WithContext(context.WithValue(req.Context(), deliveryKey{}, d)))
	r.count(counted.status)
}

type countingWriter struct {
	http.ResponseWriter
	status int
}

func (w *countingWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (r *receiver) count(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[min(max(status/100, 0), 5)]++
}

// maxClusters bounds the clusters in memory. Clusters need keys, so there are few.
const maxClusters = 10_000

func (r *receiver) cluster(name string) *cluster {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[name]
	if c == nil {
		if len(r.clusters) >= maxClusters {
			clear(r.clusters)
		}
		c = newCluster(name)
		r.clusters[name] = c
	}
	return c
}

func (r *receiver) readBytes(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += uint64(n)
}

// refusalOf returns the answer to a request that did not arrive or exceeded a limit.
func (q *delivery) refusalOf(err error) error {
	switch {
	case errors.As(err, new(*refusal)):
		return err
	case errors.Is(err, admission.ErrLarge):
		return refuse(http.StatusRequestEntityTooLarge, "%w: lower max_samples_per_send", err)
	case errors.Is(err, admission.ErrCluster):
		return refuse(http.StatusTooManyRequests, "%w", err)
	case errors.Is(err, admission.ErrFull):
		return refuse(http.StatusServiceUnavailable, "%w", err)
	case errors.Is(err, admission.ErrSlow):
		// Prometheus drops what is answered with 408.
		q.w.Header().Set("Connection", "close")
		return refuse(http.StatusServiceUnavailable, "%w", err)
	}
	return refuse(http.StatusBadRequest, "%w", err)
}

// refusal is an error with the status of the answer, which tells the sender what to do.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Errorf(format, args...)}
}

// Store implements the interface that remote.NewWriteHandler needs. It always sets a status,
// because an error without a status would be answered as success.
func (r *receiver) Store(req *http.Request, kind remote.WriteMessageType) (*remote.WriteResponse, error) {
	res := remote.NewWriteResponse()
	a, err := r.store(req, kind)
	if a != nil {
		res.Samples, res.Histograms, res.Exemplars = a.written(), a.histograms, a.exemplars
		for i, n := range a.samples {
			res.SetExtraHeader("X-Quartermaster-Samples-"+fateHeaders[i], strconv.Itoa(n))
		}
	}
	var bad *refusal
	switch {
	case errors.As(err, &bad):
		res.SetStatusCode(bad.status)
		if bad.status == http.StatusServiceUnavailable || bad.status == http.StatusTooManyRequests {
			res.SetExtraHeader("Retry-After", retryAfter)
		}
		return res, err
	case err != nil:
		res.SetStatusCode(http.StatusInternalServerError)
		return res, err
	}
	res.SetStatusCode(http.StatusNoContent)
	return res, nil
}

func (r *receiver) store(req *http.Request, kind remote.WriteMessageType) (*account, error) {
	q := req.Context().Value(deliveryKey{}).(*delivery)
	c := q.cluster
	step, err := stepOf(req.Header.Get(StepHeader))
	if err != nil {
		return nil, err
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "snappy" {
		return nil, refuse(http.StatusUnsupportedMediaType, "content encoding %q is not accepted, only snappy", enc)
	}
	b, _ := buffers.Get().(*body)
	if b == nil {
		b = &body{}
	}
	defer b.done()
	raw, err := b.read(q.w, req, q.Request)
	if err != nil {
		return nil, q.refusalOf(err)
	}
	r.readBytes(len(b.compressed) + len(raw))
	now := r.cfg.Now()
	s := &scan{cluster: c, cfg: &r.cfg, step: step, now: now.UnixMilli(), account: &account{}, request: q.Request}
	if kind == remote.WriteV1MessageType {
		err = s.readV1(raw)
	} else {
		err = s.readV2(raw, b)
	}
	switch {
	case s.full != nil:
		return nil, q.refusalOf(s.full)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "read request: %w", err)
	case s.taken > 0 && !q.Allow(now, s.taken):
		return nil, q.refusalOf(admission.ErrCluster)
	}
	events, stated := s.events()
	if s.full != nil {
		return nil, q.refusalOf(s.full)
	}
	lost, err := r.gather.put(req.Context(), events)
	if err != nil {
		if r.cfg.Log != nil {
			r.cfg.Log.Error("remote write: append to the log", "cluster", c.name, "events", len(events), "err", err)
		}
		c.fail(s.account)
		// No event is known to be in the log, so no sample is reported as written.
		return nil, refuse(http.StatusServiceUnavailable, "the log did not acknowledge %d events; send again: %w", len(events), err)
	}
	for _, l := range lost {
		s.setAsideEvent(l.event, l.err)
		s.made--
		if r.cfg.Log != nil {
			r.cfg.Log.Error("remote write: the log refuses an event; its samples are set aside",
				"cluster", c.name, "type", string(l.event.Event.Type()), "err", l.err)
		}
	}
	stated()
	c.enter(s)
	if s.refused != nil {
		return s.account, refuse(http.StatusBadRequest,
			"%d samples, %d histograms and %d exemplars are refused, the others are written: %w",
			s.account.samples[refused], s.account.badHistograms, s.account.badExemplars, s.refused)
	}
	return s.account, nil
}

// stepOf reads the header with the scrape interval. Cells begin with the hour, so the result is the
// shortest step that divides the hour evenly and is not shorter than the interval.
func stepOf(text string) (time.Duration, error) {
	if text == "" {
		return defaultStep, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < leastStep || d > mostStep {
		return 0, refuse(http.StatusBadRequest,
			"%s: %q: want a duration from %s to %s, for example 30s: the scrape_interval of the jobs that are kept",
			StepHeader, text, leastStep, mostStep)
	}
	d = d.Truncate(time.Second)
	for time.Hour%d != 0 {
		d += time.Second
	}
	return d, nil
}
