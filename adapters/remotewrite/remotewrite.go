// Package remotewrite receives what Prometheus scrapes: remote write 1.0 and 2.0,
// turned into events of the cluster whose key the request bears.
//
// What always holds:
//
//   - An answer that says success was given after the log acknowledged what came of
//     the request. A failure of the log is 503, so that Prometheus sends again.
//   - Nothing that counts rests on memory: events hold samples as they came, and
//     the folds take each once, however it is cut, repeated or delivered by several
//     Prometheus servers to several of ours. Memory serves to state slow facts
//     (replicas, cordons) only when they change, and again every ten minutes.
//   - Every sample is accounted for. It is mapped into an event, filtered as
//     nothing that is kept, set aside because its labels or value say too little
//     or too much, or refused because it breaks the protocol. The first three
//     count as written, as the protocol demands; the headers
//     X-Quartermaster-Samples-{Mapped,Filtered,Set-Aside,Refused} say how many of
//     each, a GET of the same address and /metrics say why.
//   - Memory is bounded by the requests in flight, whatever labels say: it is counted
//     before it is taken, of all clusters and of each. What a cluster may name in an
//     hour is bounded too, by what its rows are told apart by, and the rest is set aside.
//
// What is read: gauges of faults of dcgm-exporter become GPUFaultObserved when they
// change (fault.go); its other gauges become NodeSampled, one for each node
// and cell of the scrape's grid, with the best field for activity that came with
// it; series of vLLM, SGLang and TGI and the GPUs that pods ask for become
// MetricsObserved; replicas and node conditions of kube-state-metrics become
// ReplicasObserved, NodeCordoned and NodeReturned. See catalogue.go.
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

// Config says what the receiver stands on.
type Config struct {
	// Authenticate returns the cluster whose key the request bears. An error is
	// answered with 401, one that wraps [ErrUnavailable] with 503.
	Authenticate func(*http.Request) (cluster string, err error)

	// Append puts events into the log and returns nil once all are acknowledged.
	// It sets Source, which must begin with "prometheus/", Incarnation and
	// Sequence. It may be called again with the same facts after an error, and
	// must not keep more than a call's events behind one. Calls do not overlap.
	// An error that wraps [ErrRefused] means that nothing was appended, and that
	// of these events never all will be.
	Append func(ctx context.Context, events []domain.Envelope) error

	// Now is the clock.
	Now func() time.Time

	// Holder says whose a controller of that name in the namespace is, and which
	// deployment it or a pod is of; "" leaves that as it would be without. Without
	// it, or with ok false, there is no workspace, and the deployment is named
	// namespace/name, of a pod without what its controller added. Samples of GPUs
	// name no workspace: mapping rules say who pays when usage is read.
	Holder func(cluster, namespace, name string) (workspace, deployment string, ok bool)

	// Faulted returns the detail of the fault of a GPU that was last reported of a
	// DCGM field by Prometheus, "" when there is none. It is asked of gauges that are
	// seen for the first time; nil: nothing was reported.
	Faulted func(cluster, node string, gpu domain.GPUID, field uint32) (detail string, err error)

	// Patience is how long Append may take; 30 s when zero.
	Patience time.Duration

	// InFlight bounds the memory of all requests at once, with what is made of them,
	// beyond which the answer is 503; 256 MiB when zero. A cluster has a quarter of it,
	// beyond which the answer is 429, or 413 to a request that needs more by itself.
	InFlight int64

	// Rate is how many samples a second are taken of a cluster, and twice as many at
	// once after a while without any, beyond which the answer is 429. Zero: any.
	Rate int

	// Arrival is how long a body may take to arrive, after which the answer is 503 and
	// the connection is closed; 30 s when zero.
	Arrival time.Duration

	// Registerer is told of the metrics; nil: nobody.
	Registerer prometheus.Registerer

	// Log is told of failures; nil: nobody.
	Log *slog.Logger
}

// ErrUnavailable is wrapped by errors of Authenticate that are no refusal: the
// keys cannot be read now, say. Prometheus tries again.
var ErrUnavailable = errors.New("cannot tell now")

// ErrRefused is wrapped by errors of Append for events of which the log will never take
// one: it is too large, say. The others are appended without it, and what it was made
// of is set aside.
var ErrRefused = errors.New("the log will never take it")

// StepHeader is the header of a request that says how often its series are
// scraped, as a duration. The stanza sets it.
const StepHeader = "X-Quartermaster-Scrape-Interval"

const (
	defaultStep = 30 * time.Second
	leastStep   = 5 * time.Second
	mostStep    = 10 * time.Minute
	maxBody     = 32 << 20 // bytes, compressed and not
	retryAfter  = "5"

	atOnce  = 256 // requests of a cluster
	quarter = 4
)

// Handler returns the receiver: POST writes, GET says what became of the samples
// of the key's cluster.
func Handler(cfg Config) http.Handler {
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = 256 << 20
	}
	r := &receiver{cfg: cfg, clusters: map[string]*cluster{}, limiter: admission.New(admission.Limits{
		Requests: atOnce, Bytes: cfg.InFlight, ClusterBytes: cfg.InFlight / quarter, Rate: cfg.Rate, Burst: 2 * cfg.Rate, Patience: cfg.Arrival,
	})}
	r.gather.append = cfg.Append
	r.gather.patience = cfg.Patience
	r.write = remote.NewWriteHandler(r, remote.MessageTypes{remote.WriteV1MessageType, remote.WriteV2MessageType}, remote.WithWriteHandlerMiddlewares())
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

// delivery is a request with whom it is of.
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
	r.write.ServeHTTP(counted, req.WithContext(context.WithValue(req.Context(), deliveryKey{}, &delivery{q, c, w})))
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

// maxClusters bounds what is remembered: clusters have keys, so there are few.
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

// hindered returns the answer to what did not arrive or did not fit in.
func (q *delivery) hindered(err error) error {
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

// refusal is an error with the status that says what to do about it.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status, fmt.Errorf(format, args...)}
}

// Store implements what remote.NewWriteHandler asks for. It always sets a status:
// an error without one would be answered as success.
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
		return nil, q.hindered(err)
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
		return nil, q.hindered(s.full)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "read request: %w", err)
	case s.taken > 0 && !q.Allow(now, s.taken):
		return nil, q.hindered(admission.ErrCluster)
	}
	events, stated := s.events()
	if s.full != nil {
		return nil, q.hindered(s.full)
	}
	lost, err := r.gather.put(req.Context(), events)
	if err != nil {
		if r.cfg.Log != nil {
			r.cfg.Log.Error("remote write: append to the log", "cluster", c.name, "events", len(events), "err", err)
		}
		c.fail(s.account)
		// Nothing is known to be in the log, so nothing is said to be written.
		return nil, refuse(http.StatusServiceUnavailable, "the log did not acknowledge %d events; send again: %w", len(events), err)
	}
	for _, l := range lost {
		s.disown(l.event, l.err)
		s.made--
		if r.cfg.Log != nil {
			r.cfg.Log.Error("remote write: the log does not take an event; what it was made of is set aside", "cluster", c.name, "type", string(l.event.Event.Type()), "err", l.err)
		}
	}
	stated()
	c.enter(s)
	if s.refused != nil {
		return s.account, refuse(http.StatusBadRequest, "%d samples, %d histograms and %d exemplars are refused, the others are written: %w",
			s.account.samples[refused], s.account.badHistograms, s.account.badExemplars, s.refused)
	}
	return s.account, nil
}

// stepOf reads the header that says how often series are scraped. Cells begin with
// the hour, so the step is the least that divides it evenly and is no shorter.
func stepOf(text string) (time.Duration, error) {
	if text == "" {
		return defaultStep, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < leastStep || d > mostStep {
		return 0, refuse(http.StatusBadRequest, "%s: %q: want a duration from %s to %s, for example 30s: what scrape_interval says of the jobs that are kept", StepHeader, text, leastStep, mostStep)
	}
	d = d.Truncate(time.Second)
	for time.Hour%d != 0 {
		d += time.Second
	}
	return d, nil
}
