package transport

import (
	"net/http"
	"net/http/pprof"
)

// Monitor adds metrics and profiles of the running process to the routes of a listener: both or
// neither, so that profiles are never reachable where metrics are not.
//
//	GET /metrics                the metrics
//	GET /debug/pprof/           the profiles: heap, goroutine, allocs, mutex, block
//	GET /debug/pprof/profile    CPU time, for ?seconds=30
//	GET /debug/pprof/trace      an execution trace, for ?seconds=1
//
// The command line is not among them.
func Monitor(mux *http.ServeMux, metrics http.Handler) {
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}
