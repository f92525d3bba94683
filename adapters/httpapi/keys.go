package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// How old what is known of the keys may be: it is read again once it is older
// than keysFresh, or keysAgain when a key is asked for that is not among them, and
// nobody is let in once it is older than keysStale and cannot be read. So a key
// that is revoked ends within keysStale of the fold that learned of it.
const (
	keysFresh    = 2 * time.Second
	keysAgain    = 200 * time.Millisecond
	keysStale    = 4 * time.Second
	keysPatience = 3 * time.Second // with which they are read
)

// Keys knows whose key a request shows. It is safe for concurrent use.
type Keys struct {
	// Load returns every key that clusters have, as the rows have them now.
	Load func(context.Context) ([]projections.ClusterKeyEntry, error)
	// Now is the clock.
	Now func() time.Time

	mu    sync.Mutex
	at    time.Time // when the keys were read
	known map[string]projections.ClusterKeyEntry
}

// Caller is who sends a request.
type Caller struct{ Cluster, KeyID string }

// StatusError is why a request is not taken. What is wrong with it is for the
// sender to read, and tells no secret.
type StatusError struct {
	Status int // of HTTP
	Text   string
}

func (r *StatusError) Error() string { return r.Text }

func refuse(status int, format string, args ...any) *StatusError {
	return &StatusError{status, fmt.Sprintf(format, args...)}
}

// Caller returns whose key stands in the request's Authorization. The error is
// a *StatusError: 401 when the key is missing, mistyped, unknown or over, and 503
// while the keys cannot be read.
func (k *Keys) Caller(r *http.Request) (Caller, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Caller{}, refuse(http.StatusUnauthorized, "no cluster key: send it as Authorization: Bearer qmk_…")
	}
	key, err := domain.ParseClusterKey(strings.TrimSpace(text))
	if err != nil {
		return Caller{}, refuse(http.StatusUnauthorized, "%v", err)
	}
	e, err := k.entry(r.Context(), key.ID)
	switch {
	case err != nil:
		return Caller{}, err
	case e == nil:
		return Caller{}, refuse(http.StatusUnauthorized, "key %s is not known here; \"quartermaster cluster list\" shows those that are", key.ID)
	case !key.Is(e.Cluster, e.MAC):
		return Caller{}, refuse(http.StatusUnauthorized, "key %s has another secret than the one sent", key.ID)
	case !e.Live(domain.InstantOf(k.Now())):
		return Caller{}, refuse(http.StatusUnauthorized, "key %s of cluster %s ended at %s (%s); \"quartermaster key rotate %s\" makes another", key.ID, e.Cluster, e.Until, e.Why, e.Cluster)
	}
	return Caller{e.Cluster, key.ID}, nil
}

// entry returns what is known of a key, nil when nothing is.
func (k *Keys) entry(ctx context.Context, id string) (*projections.ClusterKeyEntry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := k.Now().Sub(k.at)
	_, found := k.known[id]
	if k.known == nil || age < 0 || age > keysFresh || !found && age > keysAgain {
		if err := k.read(ctx); err != nil && (k.known == nil || age < 0 || age > keysStale) {
			return nil, refuse(http.StatusServiceUnavailable, "which keys hold cannot be read at the moment: %v", err)
		}
	}
	if e, ok := k.known[id]; ok {
		return &e, nil
	}
	return nil, nil
}

// read reads the keys, for this request and those that follow, whether or not
// this one's sender waits for it.
func (k *Keys) read(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), keysPatience)
	defer stop()
	all, err := k.Load(ctx)
	if err != nil {
		return err
	}
	k.at, k.known = k.Now(), make(map[string]projections.ClusterKeyEntry, len(all))
	for _, e := range all {
		// Ids are random. Of two clusters that give one id to their keys the first
		// is taken, and the other's key then has another secret.
		if _, twice := k.known[e.KeyID]; !twice {
			k.known[e.KeyID] = e
		}
	}
	return nil
}
