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

// How old what is known of the keys may be. It is read again once it is older than
// keysFresh, or keysAgain when a key is asked for that is not among them; who has a key
// that is does not wait for that. Nobody is let in on what is older than keysStale, so
// a key that is revoked ends within keysStale of the fold that learned of it. A read
// that failed is answered with its error until keysAgain has passed.
const (
	keysFresh    = 2 * time.Second
	keysAgain    = 200 * time.Millisecond
	keysStale    = 4 * time.Second
	keysPatience = 3 * time.Second // with which they are read
)

// Keys knows whose key a request shows. It is safe for concurrent use.
type Keys struct {
	// Load returns every key that clusters have, as the rows have them now. Calls do
	// not overlap.
	Load func(context.Context) ([]registry.ClusterKeyEntry, error)
	// Now is the clock.
	Now func() time.Time

	mu    sync.Mutex
	at    time.Time // when reading began of what is known
	known map[string]registry.ClusterKeyEntry
	read  *keysRead // the last, which may be going on
}

// keysRead is a reading of the keys, for all who wait for it.
type keysRead struct {
	done chan struct{} // closed once the others are set
	err  error
	at   time.Time // when it ended
}

// Caller is who sends a request.
type Caller struct{ Cluster, KeyID string }

// StatusError is why a request is not taken. What is wrong with it is for the
// sender to read, and tells no secret.
type StatusError struct {
	Status int // of HTTP
	Text   string
	// Kind says in general what is wrong with a key: of a key that is not known here,
	// nothing that its sender made up.
	Kind string
}

func (r *StatusError) Error() string { return r.Text }

func refuse(status int, format string, args ...any) *StatusError {
	return &StatusError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// refuseKey refuses with 401.
func refuseKey(kind, format string, args ...any) *StatusError {
	return &StatusError{http.StatusUnauthorized, fmt.Sprintf(format, args...), kind}
}

// Caller returns whose key stands in the request's Authorization. The error is
// a *StatusError: 401 when the key is missing, mistyped, unknown or over, and 503
// while the keys cannot be read.
func (k *Keys) Caller(r *http.Request) (Caller, error) {
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
		return Caller{}, refuseKey("its key is not known here", "key %s is not known here; \"quartermaster cluster list\" shows those that are", key.ID)
	case !key.Is(e.Cluster, e.MAC):
		return Caller{}, refuseKey(fmt.Sprintf("key %s of cluster %s has another secret than the one sent", key.ID, e.Cluster), "key %s has another secret than the one sent", key.ID)
	case !e.Live(domain.InstantOf(k.Now())):
		ended := fmt.Sprintf("key %s of cluster %s ended at %s (%s)", key.ID, e.Cluster, e.Until, e.Why)
		return Caller{}, refuseKey(ended, "%s; \"quartermaster key rotate %s\" makes another", ended, e.Cluster)
	}
	return Caller{e.Cluster, key.ID}, nil
}

// entry returns what is known of a key, nil when it is none. The error is a
// *StatusError.
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
		return nil, refuse(http.StatusServiceUnavailable, "which keys hold cannot be read at the moment: %v", read.err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, found := k.known[id]; found {
		return &e, nil
	}
	return nil, nil
}

// look returns what is known of a key, if that may be answered with, and the read that
// would tell more, which it begins where none goes on.
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
	// For those who wait and those who follow, whether or not this one's sender does.
	go k.load(context.WithoutCancel(ctx), k.read, now)
	return e, found, k.read
}

// load reads the keys, as they are at a time or later.
func (k *Keys) load(ctx context.Context, read *keysRead, began time.Time) {
	ctx, stop := context.WithTimeout(ctx, keysPatience)
	defer stop()
	all, err := k.Load(ctx)
	known := make(map[string]registry.ClusterKeyEntry, len(all))
	for _, e := range all {
		// Ids are random. Of two clusters that give one id to their keys the first
		// is taken, and the other's key then has another secret.
		if _, twice := known[e.KeyID]; !twice {
			known[e.KeyID] = e
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if read.err, read.at = err, k.Now(); err == nil {
		k.at, k.known = began, known
	}
	close(read.done)
}
