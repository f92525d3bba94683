package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/projections/access"
)

// TestRightEndsInTheQueue: a right that ends while a question waits for its turn does not answer it.
func TestRightEndsInTheQueue(t *testing.T) {
	var asked atomic.Int64
	s := &server{turns: make(chan struct{}, 1), past: make(chan struct{}, 1), Config: Config{
		Context: t.Context(), Log: slog.New(slog.DiscardHandler),
		Who: func(*http.Request) (app.Principal, error) {
			if asked.Add(1) > 1 {
				return app.Principal{Name: "ann", Scope: new(access.Scope)}, nil
			}
			return app.Principal{Name: "ann", Scope: access.Whole()}, nil
		},
		Open: func(app.Principal) (*app.App, error) {
			t.Error("it is answered")
			return nil, errNotThere
		},
	}}
	op := cli.Operations()[0]
	s.turns <- struct{}{}
	time.AfterFunc(judgedAgain+100*time.Millisecond, func() { <-s.turns })
	w := httptest.NewRecorder()
	s.answer(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, pathOf(&op), nil), &op)
	if w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(s.turns) != 0 {
		t.Error("its turn is not given back")
	}
}

// TestDocumentsWaitWithinTheirBound: no more documents than are answered at once wait for a turn.
func TestDocumentsWaitWithinTheirBound(t *testing.T) {
	s := newServer(Config{
		Context: t.Context(), Log: slog.New(slog.DiscardHandler), AtOnce: 1,
		Who: func(*http.Request) (app.Principal, error) {
			return app.Principal{Name: "ann", Scope: access.Whole()}, nil
		},
		Open: func(app.Principal) (*app.App, error) {
			return nil, errNotThere
		},
	})
	all := cli.Operations()
	op := &all[slices.IndexFunc(all, func(op cli.Operation) bool { return len(op.Files) > 0 && !op.Long })]
	named := url.Values{}
	for _, param := range op.Files {
		named.Set(param, "a")
	}
	s.turns <- struct{}{}
	read := make(chan struct{}, 3*mostBodies)
	var wg sync.WaitGroup
	for range cap(read) {
		wg.Go(func() {
			body := ended{strings.NewReader(`{"documents": [{"name": "a", "text": ""}]}`), read}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pathOf(op)+"?"+named.Encode(), body)
			r.Header.Set("Content-Type", "application/json")
			s.answer(httptest.NewRecorder(), r, op)
		})
	}
	for range mostBodies {
		<-read
	}
	select {
	case <-read:
		t.Errorf("more than %d bodies are read", mostBodies)
	case <-time.After(50 * time.Millisecond):
	}
	<-s.turns
	wg.Wait()
	if n := len(read); n != 2*mostBodies || len(s.bodies) != 0 || len(s.turns) != 0 {
		t.Errorf("%d more bodies were read; %d are held, and %d turns", n, len(s.bodies), len(s.turns))
	}
}

// ended says that a body is read to its end.
type ended struct {
	io.Reader
	read chan<- struct{}
}

func (e ended) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		e.read <- struct{}{}
	}
	return n, err
}
