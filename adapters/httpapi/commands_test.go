package httpapi_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/domain"
	"quartermaster/projections/registry"
)

// office is a gateway that hands out commands, with one key of cluster lab that may receive.
type office struct {
	*httpapi.Commands
	key   string
	reads atomic.Int64
	open  atomic.Pointer[[]httpapi.Command]
	err   atomic.Pointer[error]
}

func newOffice(t *testing.T) *office {
	t.Helper()
	k, err := domain.NewClusterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{key: k.String()}
	o.Commands = &httpapi.Commands{
		Keys: &httpapi.Keys{Now: time.Now, Load: func(context.Context) ([]registry.ClusterKeyEntry, error) {
			return []registry.ClusterKeyEntry{{Cluster: "lab", KeyID: k.ID, MAC: k.MAC("lab"), Scopes: []string{domain.KeyReceive}}}, nil
		}},
		Open: func(context.Context) ([]httpapi.Command, error) {
			o.reads.Add(1)
			if err := o.err.Load(); err != nil {
				return nil, *err
			}
			if open := o.open.Load(); open != nil {
				return *open, nil
			}
			return nil, nil
		},
		Acknowledge: func(context.Context, httpapi.Caller, string, httpapi.Acknowledgement) error { return nil },
		Denied:      func(httpapi.Denial) {}, Log: slog.New(slog.DiscardHandler),
	}
	return o
}

func (o *office) ask(ctx context.Context, wait string) (status int, body string) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/commands?wait="+wait, nil)
	r.Header.Set("Authorization", "Bearer "+o.key)
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Any number of requests wait with one read of the rows a second, a cluster's are limited, and a command ends their wait.
func TestCommandsAreWaitedFor(t *testing.T) {
	o := newOffice(t)
	var wg sync.WaitGroup
	var got, refused atomic.Int64
	began := time.Now()
	for range 20 {
		wg.Go(func() {
			switch status, body := o.ask(t.Context(), "20s"); {
			case status == http.StatusOK && strings.Contains(body, `{"command":"c-1"}`) && !strings.Contains(body, "c-2"):
				got.Add(1)
			case status == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	<-time.After(1500 * time.Millisecond)
	o.open.Store(&[]httpapi.Command{{Cluster: "lab", Body: json.RawMessage(`{"command":"c-1"}`)}, {Cluster: "eu", Body: json.RawMessage(`{"command":"c-2"}`)}})
	wg.Wait()
	if took := time.Since(began); got.Load() != 16 || refused.Load() != 4 || took > 10*time.Second {
		t.Errorf("%d got it, %d were refused, after %s", got.Load(), refused.Load(), took)
	}
	if n := o.reads.Load(); n > 6 {
		t.Errorf("%d reads of the rows", n)
	}
}

func TestCommandsEndTheirWait(t *testing.T) {
	o := newOffice(t)
	if status, body := o.ask(t.Context(), "0s"); status != http.StatusOK || !strings.Contains(body, `{"commands":[]}`) {
		t.Errorf("%d %s", status, body)
	}
	stopping := make(chan struct{})
	o.Stopping = stopping
	time.AfterFunc(50*time.Millisecond, func() { close(stopping) })
	if status, body := o.ask(t.Context(), "30s"); status != http.StatusOK || !strings.Contains(body, `{"commands":[]}`) {
		t.Errorf("%d %s", status, body)
	}
	broken := newOffice(t)
	err := errors.New("secret of the database")
	broken.err.Store(&err)
	if status, body := broken.ask(t.Context(), "30s"); status != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
		t.Errorf("%d %s", status, body)
	}
	for _, wait := range []string{"x", "-1s", "61s"} {
		if status, _ := o.ask(t.Context(), wait); status != http.StatusBadRequest {
			t.Errorf("wait %s: %d", wait, status)
		}
	}
}
