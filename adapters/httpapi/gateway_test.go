package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"quartermaster/adapters/httpapi"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// The gateway does not depend on an encoding. In these tests a body is lines of "source type
// node"; a "!" at the end of the type makes a line that does not decode.
type lines struct{}

const linesType = "text/lines"

func readLines(body []byte) (recs []domain.Record, err error) {
	for _, l := range strings.Split(strings.TrimSpace(string(body)), "\n") {
		f := strings.Fields(l)
		if len(f) < 3 {
			return nil, fmt.Errorf("line %q", l)
		}
		rec := domain.Record{Topic: domain.TopicHardware, Value: []byte(l)}
		if key, ok := strings.CutPrefix(f[len(f)-1], "key="); ok {
			rec.Key, f = []byte(key), f[:len(f)-1]
		}
		if len(f) == 4 {
			rec.Headers = []domain.Header{{Key: "ce_cluster", Value: []byte(f[3])}}
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

func (lines) Decode(rec *domain.Record, env *domain.Envelope) error {
	f := strings.Fields(string(rec.Value))
	if strings.HasSuffix(f[1], "!") {
		return errors.New("field 3: cut off")
	}
	*env = domain.Envelope{Source: f[0], Incarnation: 1, Sequence: 1, Time: domain.Hour, Cluster: domain.ClusterOf(string(rec.Key))}
	switch f[1] {
	case "cordon":
		env.Event = &domain.NodeCordoned{Node: f[2]}
	case "nameless":
		env.Event = &domain.NodeCordoned{}
	case "signed":
		env.Event = &domain.NodeCordoned{Node: f[2]}
		env.Signature = &domain.Signature{Operator: "o", Key: make([]byte, 32), Bytes: make([]byte, 64)}
	case "leap":
		env.Sequence, env.Event = 1e18, &domain.NodeCordoned{Node: f[2]}
	case "leapt":
		env.PreviousSequence, env.Event = 1e18, &domain.NodeCordoned{Node: f[2]}
	case "mend":
		env.Cites, env.Event = "qm.hardware/1@7", &domain.NodeCordoned{Node: f[2]}
	case "register":
		env.Event = &domain.ClusterRegistered{Provider: f[2], ProviderClass: domain.Owned, Region: "eu"}
	}
	return nil
}

// house is a gateway with two clusters.
type house struct {
	*httpapi.Gateway
	keys     []registry.ClusterKeyEntry
	loads    int
	loadErr  error
	now      time.Time
	appended []domain.Record
	logErr   error
	mu       sync.Mutex // guards the fields below
	denied   []httpapi.Denial
	lab, eu  domain.ClusterKey
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{now: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	for i, c := range []struct {
		name string
		key  *domain.ClusterKey
	}{{"lab", &h.lab}, {"eu", &h.eu}} {
		k, err := domain.NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{byte(i + 1)}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		*c.key = k
		h.keys = append(h.keys, registry.ClusterKeyEntry{Cluster: c.name, KeyID: k.ID, MAC: k.MAC(c.name)})
	}
	h.Gateway = &httpapi.Gateway{
		Keys: &httpapi.Keys{
			Load: func(context.Context) ([]registry.ClusterKeyEntry, error) {
				h.loads++
				return slices.Clone(h.keys), h.loadErr
			},
			Now: func() time.Time { return h.now },
		},
		Read: readLines, ContentType: linesType, AnswerType: "text/answer",
		NewDecoder: func() projections.Decoder { return lines{} },
		Append: func(_ context.Context, recs []domain.Record) error {
			if h.logErr == nil {
				h.appended = append(h.appended, recs...)
			}
			return h.logErr
		},
		Denied: func(d httpapi.Denial) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.denied = append(h.denied, d)
		},
		// The events of these tests are of 1970, except those of TestGatewayAges.
		MaxAge: 100 * 366 * 24 * time.Hour,
		Rate:   100, Burst: 200, Log: slog.New(slog.DiscardHandler),
	}
	return h
}

// answered is the answer to a request.
type answered struct {
	status int
	text   string
	retry  bool // the answer says when to send again
	typ    string
}

// post sends a body and returns the answer.
func (h *house) post(key, body string, change ...func(*http.Request)) answered {
	r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", linesType)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answered{w.Code, w.Body.String(), w.Header().Get("Retry-After") != "", w.Header().Get("Content-Type")}
}

const labLine = "node-reporter/lab/n1 cordon n1\n"

// A record keeps the key that its sender gave it, if that is its cluster's and the cluster had as
// many shards once: a delivery that is sent again goes to the same partition after a change.
func TestGatewayShards(t *testing.T) {
	h := newHouse(t)
	h.keys[0].Shards = []int{1, 8, 4}
	lab := h.lab.String()
	key := domain.NodeKey("lab", "n1", 8)
	if a := h.post(lab, ""); a.status != 200 || !strings.Contains(a.text, `"cluster":"lab","shards":4`) {
		t.Errorf("an empty body: %+v", a)
	}
	if a := h.post(lab, labLine+"node-reporter/lab/n1 cordon n1 key="+key+"\n"); a.status != 200 || !strings.Contains(a.text, `"accepted":2,"shards":4`) {
		t.Errorf("%+v", a)
	}
	if len(h.appended) != 2 || string(h.appended[0].Key) != "lab" || string(h.appended[1].Key) != key ||
		h.appended[1].Partition != domain.PartitionOf([]byte(key), domain.TopicHardware.Partitions()) {
		t.Errorf("appended %+v", h.appended)
	}
	for name, c := range map[string]struct {
		key    string
		status int
		want   string
	}{
		"shards that it never had":    {"lab/3-of-16", 503, "the key \"lab/3-of-16\" is of 16 shards"},
		"shard of another cluster":    {"eu/3-of-8", 403, "record 0 is of cluster eu"},
		"another cluster":             {"eu", 403, "record 0 is of cluster eu"},
		"a shard that does not exist": {"lab/8-of-8", 200, "record is misplaced"},
	} {
		if a := h.post(lab, "node-reporter/lab/n1 cordon n1 key="+c.key+"\n"); a.status != c.status || !strings.Contains(strings.ReplaceAll(a.text, `\"`, `"`), c.want) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if len(h.appended) != 2 {
		t.Errorf("%d records are appended", len(h.appended))
	}
	if got := h.Keys.Shards("lab"); got != 4 || h.Keys.Shards("eu") != 1 {
		t.Errorf("lab has %d shards", got)
	}
}

func TestGatewayAccepts(t *testing.T) {
	h := newHouse(t)
	res := h.post(h.lab.String(), labLine+"node-reporter/lab/n2 cordon n2 lab\n")
	if res.status != http.StatusOK || res.text != "{\"accepted\":2,\"shards\":1}\n" {
		t.Fatalf("%d %s", res.status, res.text)
	}
	if len(h.appended) != 2 {
		t.Fatalf("appended %d", len(h.appended))
	}
	for _, rec := range h.appended {
		if string(rec.Key) != "lab" || rec.Partition != domain.PartitionOf([]byte("lab"), domain.TopicHardware.Partitions()) {
			t.Errorf("the record is not stamped: key %q, partition %d", rec.Key, rec.Partition)
		}
	}
}

// Records that can never be accepted are listed, and the rest is appended.
func TestGatewayRefusesSingleRecords(t *testing.T) {
	h := newHouse(t)
	res := h.post(h.lab.String(), labLine+
		"node-reporter/lab/n1 cordon! n1\n"+
		"node-reporter/lab/n1 register n1\n"+
		"node-reporter/lab/n1 nameless n1\n"+
		"importer/file cordon n1\n"+
		"node-reporter/lab/n1 signed n1\n"+
		"node-reporter/lab/n1 leap n1\n"+
		"node-reporter/lab/n1 leapt n1\n"+
		"node-reporter/lab/n1 mend n1\n"+labLine)
	var ans httpapi.Accepted
	if err := json.Unmarshal([]byte(res.text), &ans); err != nil || res.status != http.StatusOK {
		t.Fatalf("%d: %v", res.status, err)
	}
	want := []string{"1 field 3: cut off", "2 ClusterRegistered is not an event that a node may send", "3 NodeCordoned: node: is missing", `4 source "importer/file" does not begin with node-reporter/lab/`,
		`5 NodeCordoned: signature does not verify: not made by operator "o" over these bytes`,
		"6 sequence 1000000000000000000 is beyond the limit of 1099511627776: it must count the events of an incarnation from 1",
		"7 sequence 1000000000000000000 is beyond the limit of 1099511627776: it must count the events of an incarnation from 1",
		`8 it repairs "qm.hardware/1@7", which only an operator may: quartermaster quarantine repair`}
	var got []string
	for _, r := range ans.Refused {
		got = append(got, fmt.Sprint(r.Index, " ", r.Error))
	}
	if ans.Accepted != 2 || len(h.appended) != 2 || !slices.Equal(got, want) {
		t.Errorf("accepted %d, appended %d, refused %q\nwant %q", ans.Accepted, len(h.appended), got, want)
	}
}

// Events older or further ahead than configured are refused, with the reason.
func TestGatewayAges(t *testing.T) {
	for _, c := range []struct {
		now  time.Duration // since 1970; the events are of 01:00
		age  time.Duration
		want string
	}{
		{8 * 24 * time.Hour, 0, "NodeCordoned is of 1970-01-01T01:00:00Z, more than 168h0m0s ago"},
		{7 * 24 * time.Hour, 0, ""},
		{3 * time.Hour, time.Hour, "more than 1h0m0s ago"},
		{49 * time.Minute, 0, "more than 10m0s ahead of the clock here"},
		{50 * time.Minute, 0, ""},
	} {
		h := newHouse(t)
		h.MaxAge, h.now = c.age, time.Unix(0, 0).Add(c.now)
		res := h.post(h.lab.String(), labLine)
		var ans httpapi.Accepted
		if err := json.Unmarshal([]byte(res.text), &ans); err != nil || res.status != http.StatusOK {
			t.Fatalf("%d %s: %v", res.status, res.text, err)
		}
		if c.want == "" && (ans.Accepted != 1 || len(ans.Refused) != 0) || c.want != "" && (ans.Accepted != 0 || len(h.appended) != 0 || !strings.Contains(ans.Refused[0].Error, c.want)) {
			t.Errorf("at %s: accepted %d, refused %v, want %q", c.now, ans.Accepted, ans.Refused, c.want)
		}
	}
}

func TestGatewayAnswers(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	large := strings.Repeat(labLine, 5<<20/len(labLine))
	deflated := func(text string) string {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(w.EncodeAll([]byte(text), nil))
	}
	for name, c := range map[string]struct {
		prepare func(h *house)
		key     func(h *house) string
		body    string
		change  func(*http.Request)
		status  int
		want    string
		denied  string
	}{
		"no key":             {change: func(r *http.Request) { r.Header.Del("Authorization") }, status: 401, want: "no cluster key: send it as Authorization: Bearer", denied: "address 192.0.2.1 →  it shows no cluster key"},
		"basic auth":         {change: header("Authorization", "Basic Zm9v"), status: 401, want: "no cluster key", denied: "it shows no cluster key"},
		"mistyped":           {key: func(h *house) string { return strings.Replace(h.lab.String(), "a", "b", 1) }, status: 401, want: "checksum", denied: "mistyped or cut"},
		"cut":                {key: func(h *house) string { return h.lab.String()[:40] }, status: 401, want: "was it cut?", denied: "mistyped or cut"},
		"unknown":            {prepare: func(h *house) { h.keys = h.keys[1:] }, status: 401, want: "is not known here", denied: "its key is not known here"},
		"another's MAC":      {prepare: func(h *house) { h.keys[0].Cluster = "prod" }, status: 401, want: "has another secret", denied: "another secret"},
		"expired":            {prepare: func(h *house) { h.keys[0].Until, h.keys[0].Why = domain.Hour, "expires" }, status: 401, want: "of cluster lab ended at 1970-01-01T01:00:00Z (expires)", denied: "ended at"},
		"revoked":            {prepare: func(h *house) { h.keys[0].Revoked, h.keys[0].Why = true, "revoked: lost" }, status: 401, want: "(revoked: lost)", denied: "revoked"},
		"keys unreadable":    {prepare: func(h *house) { h.loadErr = errors.New("no database") }, status: 503, want: "the cluster keys cannot be read at the moment: no database"},
		"receives only":      {prepare: func(h *house) { h.keys[0].Scopes = []string{domain.KeyReceive} }, status: 403, want: "of cluster lab may not push: it is to receive", denied: "of cluster lab may not push"},
		"foreign source":     {body: labLine + "node-reporter/eu/n1 cordon n1", status: 403, want: "record 1 is of cluster eu, but the key is of cluster lab; nothing was accepted", denied: "→ eu its key pushes for cluster lab alone"},
		"foreign, no name":   {body: "node-reporter/e\x01u/n1 cordon n1", status: 403, want: `is of cluster \"e\\x01u\"`, denied: "→  its key pushes for cluster lab alone"},
		"foreign header":     {body: "node-reporter/lab/n1 cordon n1 eu", status: 403, want: "record 0 is of cluster eu", denied: "→ eu"},
		"get":                {change: func(r *http.Request) { r.Method = http.MethodGet }, status: 405, want: "POST a batch"},
		"content type":       {change: header("Content-Type", "application/json"), status: 415, want: "want text/lines"},
		"no content type":    {change: header("Content-Type", ""), status: 415, want: "want text/lines"},
		"content encoding":   {change: header("Content-Encoding", "br"), status: 415, want: "want zstd or none"},
		"not a batch":        {body: "x", status: 400, want: `line \"x\"`},
		"not zstd":           {change: header("Content-Encoding", "zstd"), status: 400, want: "the body is not valid zstd"},
		"too large":          {body: large, status: 413, want: "larger than 4 MiB as sent"},
		"a bomb":             {body: deflated(strings.Repeat(labLine, 17<<20/len(labLine))), change: header("Content-Encoding", "zstd"), status: 413, want: "16 MiB once decompressed"},
		"log unavailable":    {prepare: func(h *house) { h.logErr = errors.New("no leader") }, status: 503, want: "the log does not take events at the moment"},
		"empty body":         {body: " ", change: func(r *http.Request) { r.Body = http.NoBody }, status: 200, want: `{"accepted":0,"cluster":"lab","shards":1}`},
		"empty body, no key": {change: func(r *http.Request) { r.Body = http.NoBody; r.Header.Del("Authorization") }, status: 401, want: "no cluster key", denied: "no cluster key"},
		"no valid event":     {body: strings.Repeat("node-reporter/lab/n1 cordon! n1\n", 1001), status: 400, want: "more than 1000 records are not events"},
		"zstd":               {body: deflated(labLine), change: header("Content-Encoding", "zstd"), status: 200, want: `{"accepted":1,"shards":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			key, body := h.lab.String(), labLine
			if c.prepare != nil {
				c.prepare(h)
			}
			if c.key != nil {
				key = c.key(h)
			}
			if c.body != "" {
				body = c.body
			}
			change := c.change
			if change == nil {
				change = func(*http.Request) {}
			}
			res := h.post(key, body, change)
			if res.status != c.status || !strings.Contains(res.text, c.want) {
				t.Errorf("%d %s\nwant %d %s", res.status, res.text, c.status, c.want)
			}
			if res.typ != "text/answer" {
				t.Errorf("the answer has content type %q, like that of a proxy", res.typ)
			}
			if res.retry != (c.status == 503 || c.status == 429) {
				t.Errorf("Retry-After: %t", res.retry)
			}
			if strings.Contains(res.text, key[20:40]) {
				t.Error("the answer quotes the secret")
			}
			if c.status != http.StatusOK && len(h.appended) > 0 {
				t.Errorf("%d records were appended nevertheless", len(h.appended))
			}
			var told string
			for _, d := range h.denied {
				told += d.Principal + " → " + d.Target + " " + d.Reason
			}
			if !strings.Contains(told, c.denied) || (c.denied == "") != (told == "") {
				t.Errorf("denied %q, want %q", told, c.denied)
			}
		})
	}
}

func TestGatewayRate(t *testing.T) {
	h := newHouse(t)
	batch := strings.Repeat(labLine, 150)
	statuses := []int{h.post(h.lab.String(), batch).status, h.post(h.lab.String(), batch).status}
	// Another cluster has its own allowance, and this one is replenished with time.
	statuses = append(statuses, h.post(h.eu.String(), strings.ReplaceAll(batch, "lab", "eu")).status)
	h.now = h.now.Add(time.Second)
	statuses = append(statuses, h.post(h.lab.String(), batch).status)
	// A batch above the burst is accepted after a long enough pause.
	h.now = h.now.Add(10 * time.Second)
	statuses = append(statuses, h.post(h.lab.String(), batch+batch).status)
	if want := []int{200, 429, 200, 200, 200}; !slices.Equal(statuses, want) {
		t.Errorf("%v, want %v", statuses, want)
	}
}

// pass advances the fake time of a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }

// A key works soon after the rows have it and stops soon after they revoke it. The rows are not
// read for every request.
func TestKeysFollowTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.Keys.Now = time.Now
		lab := h.keys[0]
		try := func(after time.Duration) int {
			pass(after)
			status := h.post(h.lab.String(), labLine).status
			synctest.Wait()
			return status
		}
		h.keys = h.keys[1:]
		if s := try(0); s != 401 {
			t.Fatalf("before it is issued: %d", s)
		}
		h.keys = append(h.keys, lab)
		if s := try(250 * time.Millisecond); s != 200 {
			t.Errorf("a quarter of a second after it was issued: %d", s)
		}
		before := h.loads
		for range 20 {
			try(50 * time.Millisecond)
		}
		if h.loads != before {
			t.Errorf("20 requests in a second read the keys %d times", h.loads-before)
		}
		h.loadErr = errors.New("away")
		if s := try(2 * time.Second); s != 200 {
			t.Errorf("the rows are unavailable for a moment: %d", s)
		}
		if s := try(2 * time.Second); s != 503 {
			t.Errorf("the rows are unavailable for long: %d", s)
		}
		// Requests get the error meanwhile, and the rows are not read for a while.
		before = h.loads
		for range 10 {
			if s := try(10 * time.Millisecond); s != 503 {
				t.Errorf("the rows are unavailable: %d", s)
			}
		}
		if h.loads != before {
			t.Errorf("10 requests in a tenth of a second read the unavailable rows %d times", h.loads-before)
		}
		h.loadErr, h.keys[1].Revoked = nil, true
		if s := try(200 * time.Millisecond); s != 401 {
			t.Errorf("revoked: %d", s)
		}
	})
}

// A revoked key stops working within five seconds, however long reading the rows takes and
// however many requests come.
func TestKeysEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.Keys.Now = time.Now
		load := h.Keys.Load
		h.Keys.Load = func(ctx context.Context) ([]registry.ClusterKeyEntry, error) {
			keys, err := load(ctx)
			pass(2 * time.Second) // age of what Load returns
			return keys, err
		}
		if s := h.post(h.lab.String(), labLine).status; s != 200 {
			t.Fatal(s)
		}
		pass(1900 * time.Millisecond)
		h.keys[0].Revoked = true
		for at := time.Duration(0); at < 10*time.Second; at += 100 * time.Millisecond {
			if s := h.post(h.lab.String(), labLine).status; s != 401 && at > 5*time.Second {
				t.Fatalf("%s after it was revoked: %d", at, s)
			}
			pass(100 * time.Millisecond)
		}
		pass(3 * time.Second) // until no read is in progress
	})
}

// A slow read of the keys delays only requests with unknown keys.
func TestKeysReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.Keys.Now = time.Now
		if s := h.post(h.lab.String(), labLine).status; s != 200 {
			t.Fatal(s)
		}
		load, loads := h.Keys.Load, 0
		h.Keys.Load = func(ctx context.Context) ([]registry.ClusterKeyEntry, error) {
			loads++
			pass(1500 * time.Millisecond)
			return load(ctx)
		}
		pass(2100 * time.Millisecond)
		began := time.Now()
		stranger, err := domain.NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{9}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			go func() {
				if s := h.post(stranger.String(), labLine).status; s != 401 {
					t.Errorf("an unknown key: %d", s)
				}
			}()
		}
		synctest.Wait()
		if s := h.post(h.eu.String(), strings.ReplaceAll(labLine, "lab", "eu")).status; s != 200 || time.Since(began) > 0 {
			t.Errorf("a known key: %d after %s", s, time.Since(began))
		}
		pass(2 * time.Second)
		if loads != 1 {
			t.Errorf("the keys were read %d times for eleven requests", loads)
		}
	})
}

// Setting the clock back does not make a stale cache fresh.
func TestKeysOfAnotherTime(t *testing.T) {
	h := newHouse(t)
	if s := h.post(h.lab.String(), labLine).status; s != 200 {
		t.Fatal(s)
	}
	h.keys[0].Revoked = true
	h.now = h.now.Add(-time.Hour)
	if s := h.post(h.lab.String(), labLine).status; s != 401 {
		t.Errorf("after the clock was set back: %d", s)
	}
}

// Senders that never finish block neither other clusters nor the other senders of their own.
func TestGatewaySlowSenders(t *testing.T) {
	h := newHouse(t)
	srv := httptest.NewServer(h)
	defer srv.Close()
	const slow = 40 // more than the number of places
	for range slow {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// Status 100 means that the body is being read.
		if _, err := fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 4000000\r\nExpect: 100-continue\r\n\r\n", h.lab, linesType); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q: %v", line, err)
		}
	}
	for _, key := range []domain.ClusterKey{h.eu, h.lab} {
		cluster := map[domain.ClusterKey]string{h.eu: "eu", h.lab: "lab"}[key]
		if res := h.post(key.String(), strings.ReplaceAll(labLine, "lab", cluster)); res.status != http.StatusOK {
			t.Errorf("with %d slow senders of lab, %s gets %d %s", slow, cluster, res.status, res.text)
		}
	}
}

// A log that hangs for one cluster does not take the places of another.
func TestGatewayPlaces(t *testing.T) {
	h := newHouse(t)
	hangs, entered := make(chan struct{}), make(chan struct{}, 100)
	h.Append = func(_ context.Context, recs []domain.Record) error {
		if string(recs[0].Key) == "lab" {
			entered <- struct{}{}
			<-hangs
		}
		return nil
	}
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if res := h.post(h.lab.String(), labLine); res.status != http.StatusOK {
				t.Errorf("%d %s", res.status, res.text)
			}
		})
	}
	<-entered
	if res := h.post(h.eu.String(), strings.ReplaceAll(labLine, "lab", "eu")); res.status != http.StatusOK {
		t.Errorf("another cluster: %d %s", res.status, res.text)
	}
	close(hangs)
	wg.Wait()
}

// More deliveries of a cluster wait for the log at once than it has places.
func TestGatewayWaitsTogether(t *testing.T) {
	h := newHouse(t)
	var waiting sync.WaitGroup
	waiting.Add(64)
	h.Append = func(context.Context, []domain.Record) error {
		waiting.Done()
		waiting.Wait()
		return nil
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if res := h.post(h.lab.String(), labLine); res.status != http.StatusOK {
				t.Errorf("%d %s", res.status, res.text)
			}
		})
	}
	wg.Wait()
}

// A sender whose body does not arrive gets an answer, and its connection is closed.
func TestGatewayPatience(t *testing.T) {
	h := newHouse(t)
	h.Patience = 50 * time.Millisecond
	srv := httptest.NewServer(h)
	defer srv.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 4000000\r\n\r\nhalf", h.lab, linesType); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusRequestTimeout || !res.Close {
		t.Errorf("%s, to be closed: %t", res.Status, res.Close)
	}
}

// The number of different denials does not grow with what unauthenticated senders make up.
func TestGatewayDenialsAreFew(t *testing.T) {
	h := newHouse(t)
	kinds := map[httpapi.Denial]bool{}
	for i := range 50 {
		k, err := domain.NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{byte(i + 10)}, 64)))
		if err != nil {
			t.Fatal(err)
		}
		h.post(k.String(), labLine)
		h.post(k.String()[:20+i%30], labLine)
	}
	for _, d := range h.denied {
		kinds[d] = true
	}
	if len(h.denied) != 100 || len(kinds) != 2 {
		t.Errorf("%d denials of %d kinds: %v", len(h.denied), len(kinds), kinds)
	}
}
