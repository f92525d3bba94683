package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
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
