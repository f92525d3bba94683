package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"quartermaster/domain"
	"quartermaster/projections/registry"
)

// Ages of the key cache. The keys are read again once the cache is older than keysFresh, or
// older than keysAgain if a request has an unknown key. A request with a known key does not
// wait for the read. A cache older than keysStale admits no request, so a revoked key stops
// working within keysStale of the fold of its revocation. After a failed read, its error is the
// answer until keysAgain has passed.
const (
	keysFresh    = 2 * time.Second
	keysAgain    = 200 * time.Millisecond
	keysStale    = 4 * time.Second
	keysPatience = 3 * time.Second // timeout of a read
)

// Keys authenticates requests by their cluster key. It is safe for concurrent use.
type Keys struct {
	// Load returns all cluster keys from the current rows. Calls do not overlap.
	Load func(context.Context) ([]registry.ClusterKeyEntry, error)
	// Now is the clock.
	Now func() time.Time

	mu     sync.Mutex
	at     time.Time // when the read that filled known began
	known  map[string]registry.ClusterKeyEntry
	shards map[string]int // by cluster
	read   *keysRead      // the last one, possibly in progress
}

// keysRead is one read of the keys, shared by all who wait for it.
type keysRead struct {
	done chan struct{} // closed once err and at are set
	err  error
	at   time.Time // when it ended
}

// Caller is the sender of a request.
type Caller struct {
	Cluster, KeyID string
	// Shards are the numbers of shards that the cluster was declared with, the present one last.
	Shards []int
}

// StatusError is the reason why a request is refused. Its text is for the sender and contains
// no secret.
type StatusError struct {
	Status int // HTTP status code
	Text   string
	// Kind describes what is wrong with a key. For an unknown key it contains nothing that the
	// sender chose.
	Kind string
}

func (r *StatusError) Error() string { return r.Text }

// OfKey reports whether the request is refused for its key.
func (r *StatusError) OfKey() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden
}

func refuse(status int, format string, args ...any) *StatusError {
	return &StatusError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// refuseKey refuses with 401.
func refuseKey(kind, format string, args ...any) *StatusError {
	return &StatusError{http.StatusUnauthorized, fmt.Sprintf(format, args...), kind}
}

// Caller returns the caller by the key in the Authorization header, which must have a scope. The
// error is a *StatusError: 401 when the key is missing, mistyped, unknown, expired or revoked, 403
// when it is for something else, and 503 while the keys cannot be read.
func (k *Keys) Caller(r *http.Request, scope string) (Caller, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Caller{}, refuseKey("it shows no cluster key", "no cluster key: send it as Authorization: Bearer qmk_…")
	}
	key, err := domain.ParseClusterKey(strings.TrimSpace(text))
	if err != nil {
		return Caller{}, refuseKey("its key is mistyped or cut", "%v", err)
	}
	e, err := k.entry(r.Context(), key.ID)
	switch {
	case err != nil:
		return Caller{}, err
	case e == nil:
		return Caller{}, refuseKey(
			"its key is not known here",
			"key %s is not known here; \"quartermaster cluster list\" shows the known keys", key.ID,
		)
	case !key.Is(e.Cluster, e.MAC):
		return Caller{}, refuseKey(
			fmt.Sprintf("key %s of cluster %s has another secret than the one sent", key.ID, e.Cluster),
			"key %s has another secret than the one sent", key.ID,
		)
	case !e.Live(domain.InstantOf(k.Now())):
		ended := fmt.Sprintf("key %s of cluster %s ended at %s (%s)", key.ID, e.Cluster, e.Until, e.Why)
		return Caller{}, refuseKey(ended, "%s; \"quartermaster key rotate %s\" issues a new one", ended, e.Cluster)
	}
	if !e.May(scope) {
		other := fmt.Sprintf("key %s of cluster %s may not %s", key.ID, e.Cluster, scope)
		return Caller{}, &StatusError{http.StatusForbidden, fmt.Sprintf("%s: it is to %s", other, strings.Join(e.Scopes, " and ")), other}
	}
	return Caller{e.Cluster, key.ID, e.Shards}, nil
}

// Shards returns the present number of shards of a cluster, as the cached keys say; 1 if it is
// unknown.
func (k *Keys) Shards(cluster string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(1, k.shards[cluster])
}

// entry returns the key with an id, or nil if it is unknown. The error is a *StatusError.
func (k *Keys) entry(ctx context.Context, id string) (*registry.ClusterKeyEntry, error) {
	e, found, read := k.look(ctx, id)
	if read == nil || found {
		return e, nil
	}
	select {
	case <-read.done:
	case <-ctx.Done():
		return nil, refuse(http.StatusServiceUnavailable, "the request ended")
	}
	if read.err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the cluster keys cannot be read at the moment: %v", read.err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, found := k.known[id]; found {
		return &e, nil
	}
	return nil, nil
}

// look returns the cached key with an id, if the cache is fresh enough to answer from. Where a
// newer read is needed, it returns that read too, and starts it if none is in progress.
func (k *Keys) look(ctx context.Context, id string) (e *registry.ClusterKeyEntry, found bool, read *keysRead) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Now()
	age := now.Sub(k.at)
	usable := k.known != nil && age >= 0 && age <= keysStale
	if entry, ok := k.known[id]; ok && usable {
		e, found = &entry, true
	}
	if usable && age <= keysFresh && (found || age <= keysAgain) {
		return e, found, nil
	}
	if k.read != nil {
		select {
		case <-k.read.done:
			if since := now.Sub(k.read.at); k.read.err != nil && since >= 0 && since <= keysAgain {
				return e, found, k.read
			}
		default:
			return e, found, k.read
		}
	}
	k.read = &keysRead{done: make(chan struct{})}
	// Others may wait for this read, so it must survive the end of this request.
	go k.load(context.WithoutCancel(ctx), k.read, now)
	return e, found, k.read
}

// load reads the keys into the cache. The read began at began.
func (k *Keys) load(ctx context.Context, read *keysRead, began time.Time) {
	ctx, stop := context.WithTimeout(ctx, keysPatience)
	defer stop()
	all, err := k.Load(ctx)
	known := make(map[string]registry.ClusterKeyEntry, len(all))
	shards := map[string]int{}
	for _, e := range all {
		if n := len(e.Shards); n > 0 {
			shards[e.Cluster] = e.Shards[n-1]
		}
		// Ids are random. If two clusters have keys with the same id, the first one wins and
		// the other fails the comparison of secrets.
		if _, twice := known[e.KeyID]; !twice {
			known[e.KeyID] = e
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if read.err, read.at = err, k.Now(); err == nil {
		k.at, k.known, k.shards = began, known, shards
	}
	close(read.done)
}
