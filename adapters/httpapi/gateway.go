package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Gateway takes the events of nodes into the log:
//
//	POST /v1/events
//	Authorization: Bearer <key of the cluster>
//	Content-Type: application/vnd.quartermaster.events
//	Content-Encoding: zstd                               (or none)
//
// The body is a batch of encoded records. Every record becomes one of the
// caller's cluster: the key of a record and its partition follow from whose key
// was shown, and a record that names another cluster makes the whole request
// fail with 403, is reported and changes nothing.
//
//	200  Accepted. Kafka has acknowledged every record that is not listed as
//	     refused. What is refused will be refused for ever, and why is said.
//	400  The body is no batch.
//	401  The key is missing, mistyped, unknown or has ended; which, is said.
//	403  A record names another cluster than the key's.
//	413  The body is too large: send fewer records at once.
//	415  Another content type or encoding.
//	429  Too much at once; Retry-After says when.
//	503  The log or the keys cannot be reached; Retry-After says when.
//
// After 429 and 503, and after no answer, the same may be sent again: the log
// may then hold a record twice, and folds count it once, by its stream and
// sequence.
type Gateway struct {
	Keys *Keys
	// Read returns the records of a body, with topic, headers and value.
	Read func(body []byte) ([]domain.Record, error)
	// ContentType is that of the bodies that Read reads.
	ContentType string
	// AnswerType is the content type of answers, by which senders know them from
	// those of a proxy.
	AnswerType string
	// NewDecoder returns what decodes records; one is used by one request at a time.
	NewDecoder func() projections.Decoder
	// Append writes records and returns once they are acknowledged.
	Append func(context.Context, []domain.Record) error
	// Denied is told of attempts at another cluster and of keys that do not hold.
	Denied func(Denial)
	// Rate is how many records of a cluster are taken per second, Burst how many
	// may come at once after a while without any; a larger batch counts as Burst.
	Rate, Burst int
	Log         *slog.Logger

	once     sync.Once
	decoders sync.Pool
	slots    chan struct{}
	mu       sync.Mutex
	limits   map[string]*rate.Limiter
	requests *prometheus.CounterVec
	records  *prometheus.CounterVec
}

// Denial is an attempt that was refused for what the caller may not do.
type Denial struct {
	Principal string // the key, or where the request came from
	Target    string // the cluster that was meant, when it is known
	Reason    string
}

// Bounds of a request. Sixteen are read at a time, so that bodies take at most
// 16 × (4 + 16) MiB.
const (
	maxSent      = 4 << 20  // bytes of a body as it is sent
	maxBody      = 16 << 20 // bytes of a body once decompressed
	atOnce       = 16
	retryAfter   = 2 // seconds
	maxRefusals  = 1000
	bodyPatience = 30 * time.Second
)

// ErrorBody is what is answered with every other status than 200.
type ErrorBody struct {
	Error string `json:"error"`
}

// Accepted is the answer to a delivery.
type Accepted struct {
	Accepted int       `json:"accepted"`
	Refused  []Refused `json:"refused,omitempty"`
}

// Refused is a record that the log will never hold, by its place in the batch.
type Refused struct {
	Index int    `json:"index"`
	Error string `json:"error"`
}

// fromNodes are the types of events that a node may report. A decision never
// comes this way.
var fromNodes = []domain.Type{
	domain.TypeNodeSampled, domain.TypeServingSampled, domain.TypeEnergyMetered,
	domain.TypeJobQueued, domain.TypeJobStarted, domain.TypeJobFinished,
	domain.TypeGPUFaultObserved, domain.TypeNodeCordoned, domain.TypeNodeDrained, domain.TypeNodeReturned,
	domain.TypeCollectorSilent, domain.TypeSpoolDropped,
	domain.TypeReplicasObserved, domain.TypeNodeRegistered,
}

const nodeSource = "node-reporter/"

// SourceOf returns what the source of every event of a cluster's nodes begins with.
func SourceOf(cluster string) string { return nodeSource + cluster + "/" }

func (g *Gateway) init() {
	g.once.Do(func() {
		g.decoders.New = func() any { return g.NewDecoder() }
		g.slots = make(chan struct{}, atOnce)
		g.limits = map[string]*rate.Limiter{}
		g.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_gateway_requests_total", Help: "Deliveries of nodes, by the status they were answered with.",
		}, []string{"status"})
		g.records = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quartermaster_gateway_records_total", Help: "Records of nodes, by cluster and what became of them.",
		}, []string{"cluster", "outcome"})
	})
}

// Metrics are the gateway's own.
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
	// Whoever does not get the answer sends again.
	_ = json.NewEncoder(w).Encode(body)
}

// take appends what a request holds. The error is a *StatusError, or what hinders
// the log.
func (g *Gateway) take(w http.ResponseWriter, r *http.Request) (*Accepted, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(http.StatusMethodNotAllowed, "%s is not answered here: POST a batch of events", r.Method)
	}
	caller, err := g.Keys.Caller(r)
	if err != nil {
		var refusal *StatusError
		if errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized {
			g.Deny(r, refusal)
		}
		return nil, err
	}
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-r.Context().Done():
		return nil, refuse(http.StatusServiceUnavailable, "the request ended")
	}
	body, err := g.body(w, r)
	if err != nil {
		return nil, err
	}
	recs, err := g.Read(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	if !g.limit(caller.Cluster).AllowN(g.Keys.Now(), min(len(recs), g.Burst)) {
		return nil, refuse(http.StatusTooManyRequests, "cluster %s sends more than %d events a second; send again later", caller.Cluster, g.Rate)
	}
	ans, taken, err := g.check(caller, recs)
	if err != nil {
		return nil, err
	}
	if len(taken) > 0 {
		if err := g.Append(r.Context(), taken); err != nil {
			g.Log.Warn("events of a node could not be appended", "cluster", caller.Cluster, "events", len(taken), "error", err)
			return nil, refuse(http.StatusServiceUnavailable, "the log does not take events at the moment; send again later")
		}
	}
	g.records.WithLabelValues(caller.Cluster, "accepted").Add(float64(ans.Accepted))
	g.records.WithLabelValues(caller.Cluster, "refused").Add(float64(len(recs) - ans.Accepted))
	return ans, nil
}

// Deny tells of a request that was refused for its key.
func (g *Gateway) Deny(r *http.Request, why *StatusError) {
	g.Denied(Denial{Principal: "address " + remote(r), Reason: why.Text})
}

// body reads and decompresses the body.
func (g *Gateway) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != g.ContentType {
		return nil, refuse(http.StatusUnsupportedMediaType, "content type %.60q; want %s", r.Header.Get("Content-Type"), g.ContentType)
	}
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d MiB as sent, or %d MiB once decompressed: send fewer events at once", maxSent>>20, maxBody>>20)
	// Whoever sends a byte now and then does not hold one of the slots for ever.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	sent, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSent))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "read the body: %v", err)
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return sent, nil
	case "zstd":
		body, err := inflate.DecodeAll(sent, nil)
		switch {
		case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
			return nil, tooLarge
		case err != nil:
			return nil, refuse(http.StatusBadRequest, "the body is no zstd: %v", err)
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

// check stamps the records of a batch as the cluster's and tells those that the
// log may hold from those that it never will. The error is a *StatusError of all.
func (g *Gateway) check(caller Caller, recs []domain.Record) (*Accepted, []domain.Record, error) {
	ans := &Accepted{}
	taken := recs[:0]
	decoder := g.decoders.Get().(projections.Decoder)
	defer g.decoders.Put(decoder)
	var env domain.Envelope
	for i := range recs {
		rec := recs[i]
		rec.Key = []byte(caller.Cluster)
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		foreign, err := g.checkOne(decoder, caller, &rec, &env)
		if foreign != "" {
			g.Denied(Denial{
				Principal: fmt.Sprintf("key %s of cluster %s", caller.KeyID, caller.Cluster), Target: foreign,
				Reason: fmt.Sprintf("its key pushes for cluster %s alone", caller.Cluster),
			})
			return nil, nil, refuse(http.StatusForbidden, "record %d is of cluster %s, and the key is that of cluster %s; nothing was taken", i, foreign, caller.Cluster)
		}
		if err == nil {
			taken = append(taken, rec)
			ans.Accepted++
			continue
		}
		g.Log.Warn("an event of a node was refused", "cluster", caller.Cluster, "index", i, "source", env.Source, "error", err)
		if len(ans.Refused) < maxRefusals {
			ans.Refused = append(ans.Refused, Refused{i, err.Error()})
		}
	}
	if len(recs)-ans.Accepted > maxRefusals {
		return nil, nil, refuse(http.StatusBadRequest, "more than %d records are no events that a node may send, the first: %s; nothing was taken", maxRefusals, ans.Refused[0].Error)
	}
	return ans, taken, nil
}

// checkOne checks one record; foreign is the other cluster that it names.
func (g *Gateway) checkOne(d projections.Decoder, caller Caller, rec *domain.Record, env *domain.Envelope) (foreign string, err error) {
	*env = domain.Envelope{}
	if c := rec.Header("ce_cluster"); c != nil && string(c) != caller.Cluster {
		return strings.ToValidUTF8(string(c), "?"), nil
	}
	if err := d.Decode(rec, env); err != nil {
		return "", err
	}
	if prefix := SourceOf(caller.Cluster); !strings.HasPrefix(env.Source, prefix) {
		if rest, ok := strings.CutPrefix(env.Source, nodeSource); ok {
			if other, _, ok := strings.Cut(rest, "/"); ok && other != caller.Cluster {
				return strings.Clone(other), nil
			}
		}
		return "", fmt.Errorf("source %.100q does not begin with %s", env.Source, prefix)
	}
	if t := env.Event.Type(); !slices.Contains(fromNodes, t) {
		return "", fmt.Errorf("%s is no event that a node may send", t)
	}
	return "", domain.Validate(env)
}

// limit returns the allowance of a cluster.
func (g *Gateway) limit(cluster string) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.limits[cluster]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(g.Rate), g.Burst)
		g.limits[cluster] = l
	}
	return l
}

// remote names where a request came from, without its port, which changes.
func remote(r *http.Request) string {
	if i := strings.LastIndexByte(r.RemoteAddr, ':'); i > 0 {
		return r.RemoteAddr[:i]
	}
	return r.RemoteAddr
}
