package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"quartermaster/adapters/admission"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Gateway appends the events of nodes to the log:
//
//	POST /v1/events
//	Authorization: Bearer <key of the cluster>
//	Content-Type: application/vnd.quartermaster.events
//	Content-Encoding: zstd                               (or none)
//
// The body is a batch of encoded records. A record's key is the cluster of the caller's key or one
// of its shards, as the sender knew them when it numbered the event: so a record that is sent again
// has the same partition, even if the number of shards has changed. If a record names another
// cluster, the whole request fails with 403, nothing is appended, and the attempt is reported to
// Denied.
//
//	200  Accepted. Kafka has acknowledged every record except those listed as
//	     refused. A refused record will always be refused; the reason is given. The
//	     answer has the present number of shards of the cluster, for new events. The
//	     answer to an empty body names the cluster of the key.
//	400  The body is not a batch.
//	401  The key is missing, mistyped, unknown or has ended; the text says which.
//	403  A record names a cluster other than the key's, or the key is not to push.
//	408  The body did not arrive in half a minute.
//	413  The body is too large: send fewer records at once.
//	415  Unsupported content type or encoding.
//	429  The cluster sends too much; retry after Retry-After.
//	503  The log or the keys cannot be reached, all clusters together send too much,
//	     or the number of shards in a key is not known here yet; retry after
//	     Retry-After.
//
// After 408, 429 or 503, or without an answer, the sender may send the same batch again. The log
// may then contain a record twice; folds count it once, by its stream and sequence.
//
// A cluster gets at most a quarter of the memory and of the worker places. A request takes a
// place only after its whole body has arrived, and leaves it before it waits for the log. So no
// cluster blocks another, and the log can acknowledge many deliveries at once.
type Gateway struct {
	Keys *Keys
	// Read returns the records of a body, with topic, key, headers and value. A record without a
	// key has that of the cluster.
	Read func(body []byte) ([]domain.Record, error)
	// ContentType is the content type of the bodies that Read reads.
	ContentType string
	// AnswerType is the content type of answers. It tells them from the answers of a proxy.
	AnswerType string
	// NewDecoder returns a decoder of records. A decoder serves one request at a time.
	NewDecoder func() projections.Decoder
	// Append writes records and returns once they are acknowledged.
	Append func(context.Context, []domain.Record) error
	// Denied is called for records of another cluster and for invalid keys.
	Denied func(Denial)
	// Rate is the number of records per second that a cluster may send. Burst is how many it
	// may send at once after a pause; a larger batch counts as Burst.
	Rate, Burst int
	// MaxAge is how old an event may be, MaxAhead how far ahead of the clock; 7 days and
	// 10 minutes when zero. Events outside this range are always refused.
	MaxAge, MaxAhead time.Duration
	// Patience is how long a body may take to arrive; 30 s when zero.
	Patience time.Duration
	Log      *slog.Logger

	once     sync.Once
	decoders sync.Pool
	limiter  *admission.Limiter
	requests *prometheus.CounterVec
	records  *prometheus.CounterVec
}

// Denial is an attempt that the caller is not authorized for.
type Denial struct {
	Principal string // the key, or the address of the sender
	Target    string // the cluster in the record; "" if unknown or not a plain name
	// Reason is one of a few texts per principal. It contains nothing that the caller chose, so
	// the number of different denials stays small.
	Reason string
}

// Limits of requests. The memory of bodies is at most inFlight, as sent and as they wait for the
// log, plus places × maxBody for those being processed.
const (
	maxSent     = 4 << 20   // bytes of a body as sent
	maxBody     = 16 << 20  // bytes of a body after decompression
	inFlight    = 128 << 20 // bytes of all bodies as sent, and of those that wait for the log
	places      = 16
	requests    = 1024 // concurrent requests per cluster
	aQuarter    = 4
	retryAfter  = 2 // seconds
	maxRefusals = 1000
	recordCost  = 256 // bytes that a record takes beside its part of the body
)

// ErrorBody is the answer with any status other than 200.
type ErrorBody struct {
	Error string `json:"error"`
}

// Accepted is the answer to a delivery.
type Accepted struct {
	Accepted int       `json:"accepted"`
	Refused  []Refused `json:"refused,omitempty"`
	// Cluster is the cluster of the key. It is set only in the answer to an empty body.
	Cluster string `json:"cluster,omitempty"`
	// Shards is the present number of shards of the cluster.
	Shards int `json:"shards"`
}

// Refused is a record that will never be accepted, by its index in the batch.
type Refused struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// fromNodes are the types of events that a node may report. Decisions are not among them.
var fromNodes = []domain.Type{
	domain.TypeNodeSampled, domain.TypeServingSampled, domain.TypeEnergyMetered,
	domain.TypeJobQueued, domain.TypeJobStarted, domain.TypeJobFinished,
	domain.TypeGPUFaultObserved, domain.TypeNodeCordoned, domain.TypeNodeDrained, domain.TypeNodeReturned,
	domain.TypeCollectorSilent, domain.TypeSpoolDropped,
	domain.TypeReplicasObserved, domain.TypeNodeRegistered,
}

const nodeSource = "node-reporter/"

// SourceOf returns the prefix of the source of every event that a cluster's nodes report.
func SourceOf(cluster string) string { return nodeSource + cluster + "/" }

func (g *Gateway) init() {
	g.once.Do(func() {
		g.decoders.New = func() any { return g.NewDecoder() }
		g.limiter = admission.New(admission.Limits{
			Requests:      requests,
			Bytes:         inFlight,
			ClusterBytes:  inFlight / aQuarter,
			Places:        places,
			ClusterPlaces: places / aQuarter,
			Rate:          g.Rate,
			Burst:         g.Burst,
			Patience:      g.Patience,
		})
		g.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_gateway_requests_total", Help: "Deliveries of nodes, by status code of the answer.",
		}, []string{"status"})
		g.records = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_gateway_records_total", Help: "Records of nodes, by cluster and outcome.",
		}, []string{"cluster", "outcome"})
	})
}

// Metrics returns the gateway's metrics.
func (g *Gateway) Metrics() []prometheus.Collector {
	g.init()
	return []prometheus.Collector{g.requests, g.records}
}

// ServeHTTP answers a delivery.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.init()
	ans, err := g.take(w, r)
	status := http.StatusOK
	if err != nil {
		var refusal *StatusError
		if !errors.As(err, &refusal) {
			refusal = refuse(http.StatusServiceUnavailable, "%v", err)
		}
		status = refusal.Status
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
	}
	g.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	var body any = ans
	if err != nil {
		body = ErrorBody{err.Error()}
	}
	w.Header().Set("Content-Type", g.AnswerType)
	w.WriteHeader(status)
	// A sender that does not get the answer sends again.
	_ = json.NewEncoder(w).Encode(body)
}

// take appends the records of a request. The error is a *StatusError, or any other error, which
// means 503.
func (g *Gateway) take(w http.ResponseWriter, r *http.Request) (*Accepted, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(http.StatusMethodNotAllowed, "%s is not supported: POST a batch of events", r.Method)
	}
	caller, err := g.Keys.Caller(r, domain.KeyPush)
	if err != nil {
		var refusal *StatusError
		if errors.As(err, &refusal) && refusal.OfKey() {
			g.Deny(r, refusal)
		}
		return nil, err
	}
	q, err := g.limiter.Begin(caller.Cluster, g.Keys.Now())
	if err != nil {
		return nil, g.busy(w, caller, err)
	}
	defer q.Done()
	sent, err := g.body(w, r, q)
	if err != nil {
		return nil, g.busy(w, caller, err)
	}
	done, err := q.Work(r.Context())
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the request ended")
	}
	done = sync.OnceFunc(done)
	defer done()
	body, err := decompressed(r, sent)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return &Accepted{Cluster: caller.Cluster, Shards: caller.shards()}, nil
	}
	recs, err := g.Read(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if !q.Allow(g.Keys.Now(), len(recs)) {
		return nil, g.busy(w, caller, admission.ErrCluster)
	}
	ans, taken, err := g.check(caller, recs)
	if err != nil {
		return nil, err
	}
	if len(taken) > 0 {
		// Deliveries that wait for the log share its next request, so more should wait than there
		// are places. A delivery that gets no memory for it waits in its place.
		if q.Take(int64(len(body)+recordCost*len(recs))) == nil {
			done()
		}
		if err := g.Append(r.Context(), taken); err != nil {
			g.Log.Warn("events of a node could not be appended", "cluster", caller.Cluster, "events", len(taken), "error", err)
			var l projections.Lasting
			if errors.As(err, &l) {
				return nil, refuse(
					http.StatusServiceUnavailable,
					"the log does not take events until an operator has acted: %v (%s); keep them", l, l.Advice(),
				)
			}
			return nil, refuse(http.StatusServiceUnavailable, "the log does not take events at the moment; send again later")
		}
	}
	g.records.WithLabelValues(caller.Cluster, "accepted").Add(float64(ans.Accepted))
	g.records.WithLabelValues(caller.Cluster, "refused").Add(float64(len(recs) - ans.Accepted))
	return ans, nil
}

// busy turns an error of the limiter into the answer. It returns other errors unchanged.
func (g *Gateway) busy(w http.ResponseWriter, caller Caller, err error) error {
	switch {
	case errors.Is(err, admission.ErrCluster):
		return refuse(
			http.StatusTooManyRequests,
			"cluster %s sends more than %d events a second, or too much at once; send again later",
			caller.Cluster, g.Rate,
		)
	case errors.Is(err, admission.ErrFull):
		return refuse(http.StatusServiceUnavailable, "%v", err)
	case errors.Is(err, admission.ErrSlow):
		w.Header().Set("Connection", "close")
		return refuse(http.StatusRequestTimeout, "%v", err)
	}
	return err
}

// Deny reports a request that was refused for its key to Denied.
func (g *Gateway) Deny(r *http.Request, why *StatusError) {
	g.Denied(Denial{Principal: "address " + remote(r), Reason: why.Kind})
}

var errTooLarge = refuse(
	http.StatusRequestEntityTooLarge,
	"the body is larger than %d MiB as sent, or %d MiB once decompressed: send fewer events at once",
	maxSent>>20, maxBody>>20,
)

// body reads the body as it was sent.
func (g *Gateway) body(w http.ResponseWriter, r *http.Request, q *admission.Request) ([]byte, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != g.ContentType {
		return nil, refuse(
			http.StatusUnsupportedMediaType,
			"content type %.60q; want %s", r.Header.Get("Content-Type"), g.ContentType,
		)
	}
	sent, err := q.Read(w, r, nil, maxSent)
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return sent, nil
	case errors.As(err, &large):
		return nil, errTooLarge
	case errors.Is(err, admission.ErrCluster), errors.Is(err, admission.ErrFull), errors.Is(err, admission.ErrSlow):
		return nil, err
	}
	return nil, refuse(http.StatusBadRequest, "read the body: %v", err)
}

// decompressed returns the decompressed body.
func decompressed(r *http.Request, sent []byte) ([]byte, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return sent, nil
	case "zstd":
		body, err := inflate.DecodeAll(sent, nil)
		switch {
		case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
			return nil, errTooLarge
		case err != nil:
			return nil, refuse(http.StatusBadRequest, "the body is not valid zstd: %v", err)
		}
		return body, nil
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, "content encoding %.20q; want zstd or none", encoding)
	}
}

// inflate decompresses at most maxBody bytes.
var inflate = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBody), zstd.WithDecoderConcurrency(2))
	if err != nil {
		panic(err) // the options above are constants
	}
	return d
}()

// remote returns the address of the sender without its port, which changes.
func remote(r *http.Request) string {
	if i := strings.LastIndexByte(r.RemoteAddr, ':'); i > 0 {
		return r.RemoteAddr[:i]
	}
	return r.RemoteAddr
}
