package remotewrite

import "net/http"

// MaxTargets is how many GPUs, and how many servers, a cluster may name in an hour.
const MaxTargets = maxTargets

// Targets returns how many targets a cluster has named in this hour.
func Targets(h http.Handler, name string) int {
	c := h.(*receiver).cluster(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.gpus.known) + len(c.servers.known)
}
