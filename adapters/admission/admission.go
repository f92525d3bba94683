// Package admission bounds what clusters push into a process at the same time, so that
// no cluster takes from another what it needs and no sender takes more memory than
// was set aside, however slowly, often or much it sends.
//
// What always holds:
//
//   - Memory is counted before it is taken: while a body is read, as much as has
//     arrived, not what its header promises.
//   - A cluster has a share of all bounds, and beyond it is told so alone.
//   - Places to work in are taken once the whole body has arrived, so that whoever
//     sends a byte now and then keeps none.
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

// Limits are what is taken at once.
type Limits struct {
	// Requests is how many requests of a cluster are answered at a time.
	Requests int
	// Bytes is how much memory all requests take together, ClusterBytes how much of
	// it those of one cluster.
	Bytes, ClusterBytes int64
	// Places is how many requests are worked on at a time, ClusterPlaces how many of
	// one cluster. Only [Request.Work] asks for one.
	Places, ClusterPlaces int
	// Rate is how many things a second are taken of a cluster, Burst how many at once
	// after a while without any. No Rate: no limit.
	Rate, Burst int
	// Patience is how long a body may take to arrive; 30 s when zero.
	Patience time.Duration
}

// What a request fails with.
var (
	// ErrCluster means that the cluster takes its share already: it should send again
	// a little later (429).
	ErrCluster = errors.New("this cluster sends too much at once; send again later")
	// ErrFull means that all clusters together take what there is: send again later (503).
	ErrFull = errors.New("too much is sent at once; send again later")
	// ErrLarge means that the request will never fit: it must be made smaller (413).
	ErrLarge = errors.New("the request takes more memory than one may: send less at once")
	// ErrSlow means that the body did not arrive in time. Its connection is of no more
	// use: close it (408).
	ErrSlow = errors.New("the body did not arrive in time")
)

// Intake counts what is taken. It is safe for concurrent use.
type Intake struct {
	limits Limits
	places chan struct{}

	mu       sync.Mutex
	bytes    int64
	clusters map[string]*share // they have keys, so there are few
}

// share is what one cluster takes.
type share struct {
	requests int
	bytes    int64
	places   chan struct{}
	rate     *rate.Limiter
}

// New returns an Intake of which nothing is taken.
func New(l Limits) *Intake {
	if l.Patience == 0 {
		l.Patience = 30 * time.Second
	}
	return &Intake{limits: l, places: make(chan struct{}, l.Places), clusters: map[string]*share{}}
}

// Request is one that is being answered. Its methods are for one goroutine.
type Request struct {
	in    *Intake
	share *share
	bytes int64
}

// Begin counts a request of a cluster that comes at a time. The error is ErrCluster
// while too many are being answered or the cluster's rate is used up. Done ends it.
func (in *Intake) Begin(cluster string, now time.Time) (*Request, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.clusters[cluster]
	if s == nil {
		s = &share{places: make(chan struct{}, in.limits.ClusterPlaces)}
		if in.limits.Rate > 0 {
			s.rate = rate.NewLimiter(rate.Limit(in.limits.Rate), in.limits.Burst)
		}
		in.clusters[cluster] = s
	}
	if s.requests >= in.limits.Requests || s.rate != nil && s.rate.TokensAt(now) < 1 {
		return nil, ErrCluster
	}
	s.requests++
	return &Request{in: in, share: s}, nil
}

// Done gives back all that the request took.
func (q *Request) Done() {
	q.in.mu.Lock()
	defer q.in.mu.Unlock()
	q.share.requests--
	q.share.bytes -= q.bytes
	q.in.bytes -= q.bytes
	q.bytes = 0
}

// Bytes returns how much memory the request has taken.
func (q *Request) Bytes() int64 { return q.bytes }

// Take counts n bytes of memory more. The error is ErrLarge, ErrCluster or ErrFull.
func (q *Request) Take(n int64) error {
	q.in.mu.Lock()
	defer q.in.mu.Unlock()
	switch l := &q.in.limits; {
	case q.bytes+n > l.ClusterBytes:
		return ErrLarge
	case q.share.bytes+n > l.ClusterBytes:
		return ErrCluster
	case q.in.bytes+n > l.Bytes:
		return ErrFull
	}
	q.bytes += n
	q.share.bytes += n
	q.in.bytes += n
	return nil
}

// Allow reports whether n things more may come at a time, by the cluster's rate. More
// than a burst count as one.
func (q *Request) Allow(now time.Time, n int) bool {
	return q.share.rate == nil || q.share.rate.AllowN(now, min(n, q.in.limits.Burst))
}

// firstRead is how much memory a body takes before any of it has arrived.
const firstRead = 4 << 10

// Read reads a body of at most most bytes into buf, of whose memory it takes account,
// or into more when that is too small. The error is one of this package's, an
// *http.MaxBytesError, or that of the connection.
func (q *Request) Read(w http.ResponseWriter, r *http.Request, buf []byte, most int64) ([]byte, error) {
	// A writer without deadlines is a test's, whose bodies are all there.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(q.in.limits.Patience))
	body := http.MaxBytesReader(w, r.Body, most)
	buf = buf[:0]
	var taken int64
	for {
		if int64(len(buf)) == taken {
			// As much again, or what is still to come where that is less; one byte
			// more shows where it ends.
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
			// What follows may take longer than a body, and the connection says
			// whether its other end still waits.
			_ = conn.SetReadDeadline(time.Time{})
			return buf, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, ErrSlow
		case err != nil:
			return nil, err
		}
	}
}

// Work waits for a place to work in, which must be given back by what it returns. The
// error is that of ctx.
func (q *Request) Work(ctx context.Context) (done func(), err error) {
	for i, places := range []chan struct{}{q.share.places, q.in.places} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-q.share.places
			}
			return nil, context.Cause(ctx)
		}
	}
	return func() { <-q.in.places; <-q.share.places }, nil
}
