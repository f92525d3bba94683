package transport

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMonitor(t *testing.T) {
	mux := http.NewServeMux()
	Monitor(mux, http.NotFoundHandler())
	for path, want := range map[string]int{
		"/debug/pprof/":                   http.StatusOK,
		"/debug/pprof/heap":               http.StatusOK,
		"/debug/pprof/goroutine":          http.StatusOK,
		"/debug/pprof/trace?seconds=0.01": http.StatusOK,
		"/debug/pprof/cmdline":            http.StatusNotFound,
		"/debug/pprof/symbol":             http.StatusNotFound,
		"/debug/vars":                     http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("GET %s: %d, want %d", path, w.Code, want)
		}
		w = httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code == http.StatusOK {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
}
