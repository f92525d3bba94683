package admission

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// begin starts a request that ends with the test.
func begin(t *testing.T, l *Limiter, cluster string) *Request {
	t.Helper()
	q, err := l.Begin(cluster, start)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestShares(t *testing.T) {
	l := New(Limits{Requests: 2, Bytes: 100, ClusterBytes: 60})
	a, b := begin(t, l, "lab"), begin(t, l, "lab")
	if _, err := l.Begin("lab", start); !errors.Is(err, ErrCluster) {
		t.Errorf("a third request: %v", err)
	}
	c := begin(t, l, "eu")
	for i, step := range []struct {
		q    *Request
		n    int64
		want error
	}{
		{a, 61, ErrLarge}, {a, 40, nil}, {a, 21, ErrLarge}, {b, 21, ErrCluster}, {b, 20, nil},
		{c, 41, ErrFull}, {c, 40, nil}, {a, 1, ErrCluster}, {c, 1, ErrFull},
	} {
		if err := step.q.Take(step.n); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
	}
	a.Done()
	if err := c.Take(20); err != nil {
		t.Errorf("after another request released its memory: %v", err)
	}
	b.Done()
	c.Done()
	if l.bytes != 0 || l.clusters["lab"].bytes != 0 || l.clusters["lab"].requests != 0 {
		t.Errorf("%+v is left", l)
	}
}

func TestRate(t *testing.T) {
	l := New(Limits{Requests: 10, Rate: 100, Burst: 200})
	q := begin(t, l, "lab")
	if !q.Allow(start, 150) || q.Allow(start, 150) || !q.Allow(start, 50) {
		t.Error("a burst of 200 is not 150 and 50")
	}
	if _, err := l.Begin("lab", start); !errors.Is(err, ErrCluster) {
		t.Errorf("a request begins although the rate is used up: %v", err)
	}
	begin(t, l, "eu")
	if !q.Allow(start.Add(2*time.Second), 1000) {
		t.Error("more than a burst is never allowed")
	}
}

func TestPlaces(t *testing.T) {
	l := New(Limits{Requests: 10, Places: 2, ClusterPlaces: 1})
	lab, again, eu, third := begin(t, l, "lab"), begin(t, l, "lab"), begin(t, l, "eu"), begin(t, l, "us")
	over, end := context.WithCancel(t.Context())
	end()
	done, err := lab.Work(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Work(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a second place of one cluster: %v", err)
	}
	doneEU, err := eu.Work(t.Context())
	if err != nil {
		t.Fatalf("another cluster: %v", err)
	}
	if _, err := third.Work(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a third place: %v", err)
	}
	if n := len(l.clusters["us"].places); n != 0 {
		t.Errorf("a cancelled request keeps %d places", n)
	}
	done()
	doneEU()
	if _, err := again.Work(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		size   int
		length int64 // -1: unknown
		buf    int
		want   error
	}{
		"nothing":                       {0, 0, 0, nil},
		"small":                         {10, 10, 0, nil},
		"in a buffer":                   {10_000, 10_000, 20_000, nil},
		"beyond the buffer":             {50_000, 50_000, 20_000, nil},
		"of unknown length":             {50_000, -1, 0, nil},
		"more than the cluster's share": {90_000, 90_000, 0, ErrLarge},
		"more than the largest body":    {200_000, -1, 0, ErrLarge},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Limits{Requests: 1, Bytes: 1 << 20, ClusterBytes: 70_000})
			q := begin(t, l, "lab")
			sent := bytes.Repeat([]byte("abcdefg"), c.size/7+1)[:c.size]
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(sent))
			r.ContentLength = c.length
			got, err := q.Read(httptest.NewRecorder(), r, make([]byte, c.buf), 100_000)
			if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, sent) {
				t.Errorf("%d bytes and %v, want %d and %v", len(got), err, c.size, c.want)
			}
			if q.Bytes() < int64(len(got)) {
				t.Errorf("%d bytes are counted of %d", q.Bytes(), len(got))
			}
			q.Done()
			if l.bytes != 0 {
				t.Errorf("%d bytes are left", l.bytes)
			}
		})
	}
	l := New(Limits{Requests: 1, Bytes: 1 << 20, ClusterBytes: 1 << 20})
	var large *http.MaxBytesError
	if _, err := begin(t, l, "lab").Read(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345")), nil, 4); !errors.As(err, &large) {
		t.Errorf("a body that is too long: %v", err)
	}
}

// A Content-Length reserves no memory before the bytes arrive, and a sender that stops is
// dropped after Patience.
func TestSlowSender(t *testing.T) {
	const patience = 100 * time.Millisecond
	l := New(Limits{Requests: 1, Bytes: 1 << 20, ClusterBytes: 1 << 20, Patience: patience})
	said := make(chan error, 1)
	taken := make(chan int64, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := l.Begin("lab", start)
		if err == nil {
			_, err = q.Read(w, r, nil, 1<<30)
			taken <- q.Bytes()
			q.Done()
		}
		said <- err
	}))
	defer srv.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000000\r\n\r\nabc"); err != nil {
		t.Fatal(err)
	}
	if err := <-said; !errors.Is(err, ErrSlow) {
		t.Errorf("%v", err)
	}
	if n := <-taken; n != firstRead {
		t.Errorf("three bytes take %d", n)
	}
}
