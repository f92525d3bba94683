// Package admission limits the memory, concurrency and rate of the requests that clusters
// push into a process. No cluster can starve another, and no sender can exceed the memory
// budget, however slowly, often or much it sends.
//
// What always holds:
//
//   - Memory is counted before it is allocated. While a body is read, the count follows the
//     bytes that have arrived, not the Content-Length.
//   - Each cluster has its own share of every limit. A cluster over its share is refused
//     without affecting the others.
//   - A request takes a worker place only after its whole body has arrived, so a slow sender
//     holds none.
package admission

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits are the limits of a [Limiter].
type Limits struct {
	// Requests is the maximum number of concurrent requests of one cluster.
	Requests int
	// Bytes is the memory budget of all requests together. ClusterBytes is the budget of
	// one cluster's requests within it.
	Bytes, ClusterBytes int64
	// Places is the number of worker places. ClusterPlaces is the number that one cluster
	// may hold. Only [Request.Work] takes one.
	Places, ClusterPlaces int
	// Rate is the number of items per second that a cluster may send. Burst is how many it
	// may send at once after a pause. Zero Rate means no rate limit.
	Rate, Burst int
	// Patience is how long a body may take to arrive; 30 s when zero.
	Patience time.Duration
}

// The errors of a request.
var (
	// ErrCluster means that the cluster has used up its share: it should retry a little
	// later (429).
	ErrCluster = errors.New("this cluster sends too much at once; send again later")
	// ErrFull means that all clusters together have used up the budget: retry later (503).
	ErrFull = errors.New("the server receives too much at once; send again later")
	// ErrLarge means that the request can never fit: make it smaller (413).
	ErrLarge = errors.New("the request exceeds the memory limit of one request; send less at once")
	// ErrSlow means that the body did not arrive in time. The connection can no longer be
	// used: close it (408).
	ErrSlow = errors.New("the body did not arrive in time")
)

// Limiter enforces Limits. It is safe for concurrent use.
type Limiter struct {
	limits Limits
	places chan struct{}

	mu       sync.Mutex
	bytes    int64
	clusters map[string]*share // only clusters with a key get here, so there are few
}

// share is what one cluster uses at the moment.
type share struct {
	requests int
	bytes    int64
	places   chan struct{}
	rate     *rate.Limiter
}

// New returns a Limiter.
func New(l Limits) *Limiter {
	if l.Patience == 0 {
		l.Patience = 30 * time.Second
	}
	return &Limiter{limits: l, places: make(chan struct{}, l.Places), clusters: map[string]*share{}}
}

// Request is a request in progress. Its methods are not safe for concurrent use.
type Request struct {
	limiter *Limiter
	share   *share
	bytes   int64
}

// Begin starts a request of a cluster at the time now. The caller MUST end it with
// [Request.Done]. The error is ErrCluster while the cluster has too many requests in
// progress or has used up its rate.
func (l *Limiter) Begin(cluster string, now time.Time) (*Request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.clusters[cluster]
	if s == nil {
		s = &share{places: make(chan struct{}, l.limits.ClusterPlaces)}
		if l.limits.Rate > 0 {
			s.rate = rate.NewLimiter(rate.Limit(l.limits.Rate), l.limits.Burst)
		}
		l.clusters[cluster] = s
	}
	if s.requests >= l.limits.Requests || s.rate != nil && s.rate.TokensAt(now) < 1 {
		return nil, ErrCluster
	}
	s.requests++
	return &Request{limiter: l, share: s}, nil
}

// Done ends the request and releases its memory.
func (q *Request) Done() {
	q.limiter.mu.Lock()
	defer q.limiter.mu.Unlock()
	q.share.requests--
	q.share.bytes -= q.bytes
	q.limiter.bytes -= q.bytes
	q.bytes = 0
}

// Bytes returns the memory that the request has taken.
func (q *Request) Bytes() int64 { return q.bytes }

// Take reserves n more bytes of memory. The error is ErrLarge, ErrCluster or ErrFull.
func (q *Request) Take(n int64) error {
	q.limiter.mu.Lock()
	defer q.limiter.mu.Unlock()
	switch l := &q.limiter.limits; {
	case q.bytes+n > l.ClusterBytes:
		return ErrLarge
	case q.share.bytes+n > l.ClusterBytes:
		return ErrCluster
	case q.limiter.bytes+n > l.Bytes:
		return ErrFull
	}
	q.bytes += n
	q.share.bytes += n
	q.limiter.bytes += n
	return nil
}

// Allow reports whether the cluster's rate permits n more items at the time now. An n above
// Burst counts as one full burst, so that it is not refused forever.
func (q *Request) Allow(now time.Time, n int) bool {
	return q.share.rate == nil || q.share.rate.AllowN(now, min(n, q.limiter.limits.Burst))
}

// firstRead is the memory reserved for a body before any of it has arrived, in bytes.
const firstRead = 4 << 10

// Read reads a body of at most most bytes. It uses buf, or a larger buffer when buf is too
// small, and reserves the memory that the body occupies. The error is one of this package's,
// an *http.MaxBytesError, or that of the connection.
func (q *Request) Read(w http.ResponseWriter, r *http.Request, buf []byte, most int64) ([]byte, error) {
	// Only the writers of tests have no deadlines, and their bodies are in memory already.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(q.limiter.limits.Patience))
	body := http.MaxBytesReader(w, r.Body, most)
	buf = buf[:0]
	var taken int64
	for {
		if int64(len(buf)) == taken {
			// Double the buffer, but not beyond the Content-Length. One extra byte is
			// needed to read the EOF.
			n := max(taken, firstRead)
			if rest := r.ContentLength + 1 - taken; r.ContentLength > 0 && rest > 0 {
				n = min(n, rest)
			}
			if err := q.Take(n); err != nil {
				return nil, err
			}
			if taken += n; int64(cap(buf)) < taken {
				buf = append(make([]byte, 0, taken), buf...)
			}
		}
		n, err := body.Read(buf[len(buf):taken])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			// Processing may take longer than the body did. From here on the connection
			// shows whether the client still waits.
			_ = conn.SetReadDeadline(time.Time{})
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, ErrSlow
		case err != nil:
			return nil, err
		}
	}
}

// Work waits for a worker place. The caller MUST call done to release it. The error is the
// cause of ctx.
func (q *Request) Work(ctx context.Context) (done func(), err error) {
	for i, places := range []chan struct{}{q.share.places, q.limiter.places} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-q.share.places
			}
			return nil, context.Cause(ctx)
		}
	}
	return func() { <-q.limiter.places; <-q.share.places }, nil
}
