package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"quartermaster/domain"
)

// Commands hands clusters their commands, and takes what they did with them:
//
//	GET  /v1/commands?wait=30s
//	POST /v1/commands/{id}       {"result": "done", "reference": "change-7"}
//	Authorization: Bearer <key of the cluster, of scope receive>
//
// GET answers with the open commands of the cluster of the key: as soon as there is one, else after the wait, which is at
// most a minute. A command is delivered until it is acknowledged, withdrawn or expired, so it may arrive several times. The
// receiver MUST carry it out once, by its id, MUST NOT carry it out after it expires, and SHOULD verify its approvals
// against keys of approvers that it knows from elsewhere.
//
//	200  The open commands; none after a wait without any. To POST: the result is in the log.
//	400  The wait, the body or the result is wrong.
//	401  The key is missing, mistyped, unknown or has ended.
//	403  The key is not to receive. The attempt is reported to Denied.
//	404  The cluster has no such command.
//	409  The command was acknowledged with another result.
//	410  The command expired or was withdrawn. Nothing is recorded.
//	429  Too many requests of the cluster wait; retry after Retry-After.
//	503  The log or the rows cannot be reached, or too many requests wait in all.
//
// However many requests wait, one read of the rows a second serves all of them.
type Commands struct {
	Keys *Keys
	// Open returns the open commands of all clusters. Calls do not overlap.
	Open func(context.Context) ([]Command, error)
	// Acknowledge records a result. It returns a [*StatusError] for one that is refused.
	Acknowledge func(ctx context.Context, caller Caller, id string, ack Acknowledgement) error
	// Denied is called for keys that are not to receive.
	Denied func(Denial)
	// Stopping ends the waiting of all requests when it is closed; nil: nothing does.
	Stopping <-chan struct{}
	Log      *slog.Logger

	mu      sync.Mutex
	waiting map[string]int // requests, by cluster
	all     int
	read    *commandsRead // the last one, possibly in progress

	// acknowledging makes one acknowledgement wait for the one before it, so that the second sees what the first said.
	acknowledging sync.Mutex
}

// Command is a command of a cluster, and how it is sent.
type Command struct {
	Cluster string
	Body    json.RawMessage
}

// Acknowledgement is what a cluster did with a command.
type Acknowledgement struct {
	Result    string `json:"result"` // done, failed, refused
	Reference string `json:"reference,omitempty"`
}

// commandsRead is one read of the open commands, shared by all who wait for it.
type commandsRead struct {
	began time.Time
	done  chan struct{} // closed once open and err are set
	open  map[string][]json.RawMessage
	err   error
}

// Limits of requests for commands.
const (
	longestWait     = time.Minute
	commandsFresh   = time.Second
	commandPatience = 5 * time.Second // timeout of a read
	clusterWaiting  = 16
	allWaiting      = 4096
	maxAck          = 8 << 10
	ackPatience     = 10 * time.Second // how long the body of an acknowledgement may take
)

// ServeHTTP answers a request.
func (c *Commands) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ans, err := c.answer(w, r)
	status := http.StatusOK
	if err != nil {
		var refusal *StatusError
		if !errors.As(err, &refusal) {
			c.Log.Warn("a request for commands failed", "error", err)
			refusal = refuse(http.StatusServiceUnavailable, "commands cannot be read or acknowledged at the moment; ask again later")
		}
		if status = refusal.Status; status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		}
		ans = ErrorBody{refusal.Text}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A cluster that does not get the answer asks again.
	_ = json.NewEncoder(w).Encode(ans)
}

func (c *Commands) answer(w http.ResponseWriter, r *http.Request) (any, error) {
	id, one := strings.CutPrefix(r.URL.Path, "/v1/commands/")
	method := http.MethodGet
	if one {
		method = http.MethodPost
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		return nil, refuse(http.StatusMethodNotAllowed, "%.20s is not supported: GET commands, POST what was done with one", r.Method)
	}
	caller, err := c.Keys.Caller(r, domain.KeyReceive)
	if err != nil {
		var refusal *StatusError
		if errors.As(err, &refusal) && refusal.OfKey() {
			c.Denied(Denial{Principal: "address " + remote(r), Reason: refusal.Kind})
		}
		return nil, err
	}
	if one {
		return c.acknowledge(w, r, caller, id)
	}
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > longestWait {
			return nil, refuse(http.StatusBadRequest, "wait %.20q is not a duration of at most %s", text, longestWait)
		}
	}
	return c.poll(r.Context(), caller.Cluster, wait)
}

// Open commands, as they are sent.
type openCommands struct {
	Commands []json.RawMessage `json:"commands"`
}

// poll returns the open commands of a cluster, and waits until there is one.
func (c *Commands) poll(ctx context.Context, cluster string, wait time.Duration) (*openCommands, error) {
	if err := c.enter(cluster); err != nil {
		return nil, err
	}
	defer c.leave(cluster)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		read := c.latest()
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, refuse(http.StatusServiceUnavailable, "the request ended")
		}
		if read.err != nil {
			return nil, read.err
		}
		if open := read.open[cluster]; len(open) > 0 {
			return &openCommands{open}, nil
		}
		next := time.NewTimer(commandsFresh)
		select {
		case <-next.C:
		case <-timer.C:
			next.Stop()
			return &openCommands{[]json.RawMessage{}}, nil
		case <-c.Stopping:
			next.Stop()
			return &openCommands{[]json.RawMessage{}}, nil
		case <-ctx.Done():
			next.Stop()
			return nil, refuse(http.StatusServiceUnavailable, "the request ended")
		}
	}
}

func (c *Commands) enter(cluster string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.waiting[cluster] >= clusterWaiting:
		return refuse(http.StatusTooManyRequests, "%d requests of cluster %s wait for commands already", clusterWaiting, cluster)
	case c.all >= allWaiting:
		return refuse(http.StatusServiceUnavailable, "%d requests wait for commands already", allWaiting)
	}
	if c.waiting == nil {
		c.waiting = map[string]int{}
	}
	c.waiting[cluster]++
	c.all++
	return nil
}

func (c *Commands) leave(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.waiting[cluster]--; c.waiting[cluster] == 0 {
		delete(c.waiting, cluster)
	}
}

// latest returns a read of the open commands that began less than a second ago, and starts one if there is none.
func (c *Commands) latest() *commandsRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Keys.Now()
	if c.read != nil {
		select {
		case <-c.read.done:
			if age := now.Sub(c.read.began); age >= 0 && age < commandsFresh {
				return c.read
			}
		default:
			return c.read
		}
	}
	c.read = &commandsRead{began: now, done: make(chan struct{})}
	go c.load(c.read)
	return c.read
}

func (c *Commands) load(read *commandsRead) {
	// Others may wait for this read, so it must survive the request that began it.
	ctx, stop := context.WithTimeout(context.Background(), commandPatience)
	defer stop()
	all, err := c.Open(ctx)
	read.err, read.open = err, map[string][]json.RawMessage{}
	for _, one := range all {
		read.open[one.Cluster] = append(read.open[one.Cluster], one.Body)
	}
	close(read.done)
}

func (c *Commands) acknowledge(w http.ResponseWriter, r *http.Request, caller Caller, id string) (any, error) {
	// A slow sender holds a connection only; it ends here, where the server can end it.
	_ = http.NewResponseController(w).SetReadDeadline(c.Keys.Now().Add(ackPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAck))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "read the body: %v", err)
	}
	var ack Acknowledgement
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&ack); err != nil || dec.More() {
		return nil, refuse(http.StatusBadRequest, `the body is not {"result": "done", "reference": "…"}`)
	}
	c.acknowledging.Lock()
	defer c.acknowledging.Unlock()
	if err := c.Acknowledge(r.Context(), caller, id, ack); err != nil {
		return nil, err
	}
	// What is read from now on does not have it.
	c.mu.Lock()
	c.read = nil
	c.mu.Unlock()
	return ack, nil
}

// Refuse returns an error with an HTTP status and a text for the sender.
func Refuse(status int, err error) error { return refuse(status, "%v", err) }
