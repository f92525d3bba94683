package remotewrite_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/goccy/go-yaml"

	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

var update = flag.Bool("update", false, "write the goldens")

// now is the time of the tests. Cells of 30 s begin with it.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// series is a series in text form, with its samples.
type series struct {
	text   string
	values []float64
	times  []time.Duration // after now
}

func one(text string, value float64) series {
	return series{text, []float64{value}, []time.Duration{0}}
}

// parse reads NAME{label="value",...} and returns the rest of the text.
func parse(t testing.TB, text string) (labels [][2]string, rest string) {
	t.Helper()
	name, rest, braces := strings.Cut(text, "{")
	if !braces {
		name, rest, _ = strings.Cut(text, " ")
		return [][2]string{{"__name__", name}}, rest
	}
	labels = append(labels, [2]string{"__name__", name})
	for {
		rest = strings.TrimLeft(rest, ", ")
		if end, ok := strings.CutPrefix(rest, "}"); ok {
			return labels, strings.TrimSpace(end)
		}
		key, after, ok := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if !ok || err != nil {
			t.Fatalf("series %q", text)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatal(err)
		}
		labels, rest = append(labels, [2]string{strings.TrimSpace(key), value}), after[len(quoted):]
	}
}

func nested(b []byte, num protowire.Number, msg []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), msg)
}

func (s *series) samples() (out []byte) {
	for i, v := range s.values {
		m := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(v))
		m = protowire.AppendVarint(protowire.AppendTag(m, 2, protowire.VarintType), uint64(now.Add(s.times[i]).UnixMilli()))
		out = nested(out, 2, m)
	}
	return out
}

func v1(t testing.TB, all []series) (msg []byte) {
	for _, s := range all {
		var ts []byte
		labels, _ := parse(t, s.text)
		for _, l := range labels {
			ts = nested(ts, 1, nested(nested(nil, 1, []byte(l[0])), 2, []byte(l[1])))
		}
		msg = nested(msg, 1, append(ts, s.samples()...))
	}
	return msg
}

func v2(t testing.TB, all []series) (msg []byte) {
	symbols := map[string]uint64{"": 0}
	list := []string{""}
	ref := func(s string) uint64 {
		n, ok := symbols[s]
		if !ok {
			n = uint64(len(list))
			symbols[s], list = n, append(list, s)
		}
		return n
	}
	var body []byte
	for _, s := range all {
		var refs []byte
		labels, _ := parse(t, s.text)
		for _, l := range labels {
			refs = protowire.AppendVarint(protowire.AppendVarint(refs, ref(l[0])), ref(l[1]))
		}
		body = nested(body, 5, append(nested(nil, 1, refs), s.samples()...))
	}
	for _, s := range list {
		msg = nested(msg, 4, []byte(s))
	}
	return append(msg, body...)
}

const (
	typeV1 = "application/x-protobuf"
	typeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// receiver is a receiver with a log that tests can inspect.
type receiver struct {
	http.Handler
	mu     sync.Mutex
	events []domain.Envelope
	fail   error
}

func newReceiver(change func(*remotewrite.Config)) *receiver {
	r := &receiver{}
	cfg := remotewrite.Config{
		Authenticate: func(req *http.Request) (string, error) {
			switch key := req.Header.Get("Authorization"); key {
			case "Bearer good":
				return "c1", nil
			case "Bearer later":
				return "", fmt.Errorf("%w: the rows have not caught up", remotewrite.ErrUnavailable)
			default:
				return "", fmt.Errorf("key %q is not one of this house", key)
			}
		},
		Append: func(_ context.Context, events []domain.Envelope) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fail != nil {
				return r.fail
			}
			for i := range events {
				if err := domain.Validate(&events[i]); err != nil {
					return fmt.Errorf("not valid: %w", err)
				}
			}
			r.events = append(r.events, events...)
			return nil
		},
		Now: func() time.Time { return now },
	}
	if change != nil {
		change(&cfg)
	}
	r.Handler = remotewrite.Handler(cfg)
	return r
}

// post sends a message and returns the answer.
func (r *receiver) post(t testing.TB, contentType string, msg []byte, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(snappy.Encode(nil, msg)))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Authorization", "Bearer good")
	for _, c := range change {
		c(req)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

// fates returns the counts of samples in the headers of an answer.
func fates(w *httptest.ResponseRecorder) string {
	var parts []string
	for _, f := range []string{"Mapped", "Filtered", "Set-Aside", "Refused"} {
		parts = append(parts, w.Header().Get("X-Quartermaster-Samples-"+f))
	}
	return strings.Join(parts, "/")
}

const (
	gpu0 = `UUID="GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d08"`
	gpu1 = `UUID="GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d09"`
)

// text formats events for a golden.
func text(t testing.TB, events []domain.Envelope) string {
	var b strings.Builder
	for i := range events {
		e := &events[i]
		fmt.Fprintf(&b, "%s %s cluster=%s workspace=%s subject=%s\n", e.Event.Type(), e.Time, e.Cluster, e.Workspace, e.Subject)
		switch ev := e.Event.(type) {
		case *domain.NodeSampled:
			fmt.Fprintf(&b, "  %s from %s to %s field %d\n", ev.Node, ev.Interval.From, ev.Interval.To, ev.ActivityField)
			for n := range ev.Entries() {
				fmt.Fprintf(&b, "  %s", domain.GPUID(ev.IDs[16*n:]))
				if len(ev.Parent) > 0 && ev.Parent[n] > 0 {
					fmt.Fprintf(&b, " of %s profile %s", domain.GPUID(ev.Parents[16*(ev.Parent[n]-1):]), ev.Text(ev.Profile, n))
				}
				if len(ev.Holder) > 0 && ev.Holder[n] > 0 {
					h := int(ev.Holder[n] - 1)
					fmt.Fprintf(&b, " held by %s/%s/%s", ev.Text(ev.HolderWorkspace, h), ev.Text(ev.HolderDeployment, h), ev.Text(ev.HolderUnit, h))
				}
				for _, c := range []struct {
					name   string
					values []uint32
				}{
					{"replica", ev.Replica}, {"active", ev.ActivityMean}, {"tensor", ev.TensorActive}, {"dram", ev.DRAMActive}, {"mib", ev.MemoryUsedMiB},
					{"watts", ev.PowerWatts}, {"celsius", ev.TemperatureC}, {"mhz", ev.SMClockMHz},
				} {
					switch {
					case len(c.values) == 0 || c.values[n] == 0:
					case c.name == "replica":
						fmt.Fprintf(&b, " replica=%d", c.values[n])
					default:
						fmt.Fprintf(&b, " %s=%d", c.name, c.values[n]-1)
					}
				}
				b.WriteByte('\n')
			}
		case *domain.MetricsObserved:
			at := 0
			for n := range ev.Server {
				s := int(ev.Server[n])
				fmt.Fprintf(&b, "  %s deployment=%s model=%s tier=%s unit=%s metric=%d bound=%d:", ev.Text(ev.Engine, s), ev.Text(ev.Deployment, s),
					ev.Text(ev.Model, s), ev.Text(ev.Tier, s), ev.Text(ev.Unit, s), ev.Metric[n], ev.Bound[n])
				for range ev.Samples[n] {
					fmt.Fprintf(&b, " %d@%d", ev.Value[at], ev.Offset[at])
					at++
				}
				b.WriteByte('\n')
			}
		default:
			j, err := json.Marshal(ev)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "  %s\n", j)
		}
	}
	return b.String()
}

// scrapes are exporters' outputs, in the spellings that occur in practice. Every file of
// testdata/scrapes is one, with the events made of it in the golden.
func TestScrapes(t *testing.T) {
	paths, err := filepath.Glob("testdata/scrapes/*.prom")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d scrapes, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			all := readScrape(t, path)
			var got [2]string
			for i, form := range []func(testing.TB, []series) []byte{v1, v2} {
				r := newReceiver(nil)
				w := r.post(t, []string{typeV1, typeV2}[i], form(t, all))
				if w.Code != http.StatusNoContent {
					t.Fatalf("answer %d: %s", w.Code, w.Body)
				}
				get := httptest.NewRequest(http.MethodGet, "/api/v1/write", nil)
				get.Header.Set("Authorization", "Bearer good")
				status := httptest.NewRecorder()
				r.ServeHTTP(status, get)
				got[i] = text(t, r.events) + "samples " + fates(w) + "\n" + status.Body.String()
			}
			if got[0] != got[1] {
				t.Errorf("1.0 says\n%s\n2.0 says\n%s", got[0], got[1])
			}
			golden := strings.TrimSuffix(path, ".prom") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got[0]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got[0] != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got[0], want)
			}
		})
	}
}

// readScrape reads a scrape in the text format.
func readScrape(t testing.TB, path string) (all []series) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") || line == "..." {
			continue
		}
		_, rest := parse(t, line)
		v, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, one(line, v))
	}
	return all
}

// If the public samples are available: every sample is accounted for, and with the labels that
// Prometheus adds some of each file are mapped.
func TestPublicScrapes(t *testing.T) {
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	if _, err := os.Stat(filepath.Join(dir, "prom")); err != nil {
		t.Skipf("the public samples are not at %s", dir)
	}
	for _, file := range []string{"dcgm_exporter.prom", "vllm.prom", "sglang.prom", "kube_state_metrics.prom"} {
		all := readScrape(t, filepath.Join(dir, "prom", file))
		w := newReceiver(nil).post(t, typeV2, v2(t, all))
		n := 0
		for part := range strings.SplitSeq(fates(w), "/") {
			k, _ := strconv.Atoi(part)
			n += k
		}
		if w.Code != http.StatusNoContent || n != len(all) {
			t.Errorf("%s: answer %d accounts for %s of %d: %s", file, w.Code, fates(w), len(all), w.Body)
		}
		t.Logf("%s: %s", file, fates(w))
		// With the target labels that Prometheus adds, only blanks are set aside.
		for i := range all {
			all[i].text = strings.Replace(all[i].text, "{", `{instance="10.0.0.1:8000",`, 1)
			if !strings.Contains(all[i].text, "node=") {
				all[i].text = strings.Replace(all[i].text, "{", `{node="n1",`, 1)
			}
		}
		w = newReceiver(nil).post(t, typeV2, v2(t, all))
		t.Logf("%s of a target: %s", file, fates(w))
		if strings.HasPrefix(fates(w), "0/") {
			t.Errorf("%s: nothing is mapped: %s", file, fates(w))
		}
	}
}

// Answers to invalid requests, and to requests at a bad time.
func TestAnswers(t *testing.T) {
	good := []series{one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1"}`, 0.5)}
	header := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	bomb := binary.AppendUvarint(nil, 31<<20)
	huge := binary.AppendUvarint(nil, 3<<30)
	body := func(b []byte) func(*http.Request) {
		return func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0; *r = *withBody(r, b) }
	}
	for name, c := range map[string]struct {
		msg    []byte
		change func(*http.Request)
		status int
		want   string
		fates  string
	}{
		"good":                    {status: 204, fates: "1/0/0/0"},
		"no key":                  {change: header("Authorization", ""), status: 401, want: "not one of this house"},
		"keys not known yet":      {change: header("Authorization", "Bearer later"), status: 503, want: "not caught up"},
		"json":                    {change: header("Content-Type", "application/json"), status: 415, want: "application/json"},
		"another message":         {change: header("Content-Type", "application/x-protobuf;proto=x.Y"), status: 415, want: "x.Y"},
		"json, broken":            {change: func(r *http.Request) { header("Content-Type", "image/png")(r); body([]byte("0"))(r) }, status: 415, want: "image/png"},
		"gzip":                    {change: header("Content-Encoding", "gzip"), status: 415, want: `"gzip"`},
		"not snappy":              {change: body([]byte("hello")), status: 400, want: "not snappy"},
		"empty body":              {change: body(nil), status: 400, want: "not snappy"},
		"a bomb":                  {change: body(append(bomb, 1, 2, 3)), status: 400, want: "more than snappy can do"},
		"a huge bomb":             {change: body(append(huge, 1, 2, 3)), status: 413, want: "lower max_samples_per_send"},
		"too long":                {change: body(make([]byte, 33<<20)), status: 413, want: "lower max_samples_per_send"},
		"large when decompressed": {msg: make([]byte, 40<<20), status: 413, want: "lower max_samples_per_send"},
		"cut off":                 {msg: []byte{5<<3 | 2, 200}, status: 400, want: "cut off"},
		"wrong interval":          {change: header(remotewrite.StepHeader, "fast"), status: 400, want: remotewrite.StepHeader},
		"interval too short":      {change: header(remotewrite.StepHeader, "1ms"), status: 400, want: "5s to 10m0s"},
		"no name":                 {msg: v2(t, []series{one(`{a="b"}`, 1), good[0]}), status: 400, want: "no name", fates: "1/0/0/1"},
		"label twice":             {msg: v2(t, []series{one(`up{a="b",a="c"}`, 1), good[0]}), status: 400, want: "twice", fates: "1/0/0/1"},
		"label without a name":    {msg: v2(t, []series{one(`up{="c"}`, 1)}), status: 400, want: "no name", fates: "0/0/0/1"},
		"a label that is not there": {msg: nested(nested(nil, 4, nil), 5, append(nested(nil, 1, []byte{9, 9}), good[0].samples()...)),
			status: 400, want: "symbol 9 of 1", fates: "0/0/0/1"},
		"odd labels": {msg: nested(nested(nil, 4, nil), 5, append(nested(nil, 1, []byte{0}), good[0].samples()...)), status: 400, want: "no value", fates: "0/0/0/1"},
		"too old": {msg: v2(t, []series{{good[0].text, []float64{1, 0.5}, []time.Duration{-8 * 24 * time.Hour, 0}}}),
			status: 400, want: "older than seven days", fates: "1/0/0/1"},
		"in the future": {msg: v2(t, []series{{good[0].text, []float64{1}, []time.Duration{time.Hour}}}), status: 400, want: "ahead", fates: "0/0/0/1"},
		"nothing kept":  {msg: v2(t, []series{one("up", 1), one(`go_goroutines{job="x"}`, 7)}), status: 204, fates: "0/2/0/0"},
		"stale":         {msg: v2(t, []series{one(good[0].text, math.Float64frombits(0x7ff0000000000002))}), status: 204, fates: "0/1/0/0"},
		"no number":     {msg: v2(t, []series{one(good[0].text, math.NaN()), one(good[0].text, math.Inf(1)), one(good[0].text, -1)}), status: 204, fates: "0/0/3/0"},
		"blank of DCGM": {msg: v2(t, []series{one(`DCGM_FI_DEV_FB_USED{`+gpu0+`,node="n1"}`, 9223372036854775794)}), status: 204, fates: "0/0/1/0"},
		"no requests":   {msg: []byte{}, status: 204, fates: "0/0/0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			msg := c.msg
			if msg == nil {
				msg = v2(t, good)
			}
			change := c.change
			if change == nil {
				change = func(*http.Request) {}
			}
			r := newReceiver(nil)
			w := r.post(t, typeV2, msg, change)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || c.fates != "" && fates(w) != c.fates {
				t.Errorf("answer %d, samples %s: %s; want %d, %s, %q", w.Code, fates(w), w.Body, c.status, c.fates, c.want)
			}
			if written := w.Header().Get("X-Prometheus-Remote-Write-Samples-Written"); c.fates != "" && w.Code == 204 && written == "" {
				t.Error("the answer does not say what was written")
			}
		})
	}
}

func withBody(r *http.Request, b []byte) *http.Request {
	out := r.Clone(r.Context())
	n := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(b))
	out.Body, out.ContentLength = n.Body, int64(len(b))
	return out
}

// A failed append is never answered as success. Samples that are sent again are mapped again,
// including statements.
func TestLogFails(t *testing.T) {
	r := newReceiver(nil)
	r.fail = errors.New("no leader")
	all := []series{
		one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1"}`, 0.5), one(`kube_node_spec_unschedulable{node="n1"}`, 1),
	}
	w := r.post(t, typeV2, v2(t, all))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "no leader") {
		t.Fatalf("answer %d: %s", w.Code, w.Body)
	}
	if n := w.Header().Get("X-Prometheus-Remote-Write-Samples-Written"); n != "0" {
		t.Errorf("%s samples are said to be written", n)
	}
	r.fail = nil
	if w = r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent || len(r.events) != 2 {
		t.Fatalf("answer %d with %d events: %s", w.Code, len(r.events), w.Body)
	}
	// Stated already, and not long ago.
	if w = r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent || len(r.events) != 3 {
		t.Fatalf("answer %d with %d events: %s", w.Code, len(r.events), w.Body)
	}
}

// Concurrent requests are appended together, but each gets its own answer.
func TestGathered(t *testing.T) {
	var calls int
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	r := newReceiver(nil)
	r.Handler = remotewrite.Handler(remotewrite.Config{
		Authenticate: func(*http.Request) (string, error) { return "c1", nil },
		Append: func(_ context.Context, events []domain.Envelope) error {
			calls++
			if calls == 1 {
				entered <- struct{}{}
				<-release
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, events...)
			return nil
		},
		Now: func() time.Time { return now },
	})
	msg := v2(t, []series{one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1"}`, 0.5)})
	var wg sync.WaitGroup
	wg.Go(func() { r.post(t, typeV2, msg) })
	<-entered
	const n = 20
	for range n {
		wg.Go(func() {
			if w := r.post(t, typeV2, msg); w.Code != http.StatusNoContent {
				t.Errorf("answer %d", w.Code)
			}
		})
	}
	close(release)
	wg.Wait()
	if len(r.events) != n+1 {
		t.Errorf("%d events", len(r.events))
	}
}

// An event that the log will never accept is set aside and reported. It affects neither the rest of
// its request nor concurrent requests.
func TestRefusedByTheLog(t *testing.T) {
	var calls int
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	var events []domain.Envelope // of one call at a time
	r := newReceiver(func(c *remotewrite.Config) {
		c.Authenticate = func(req *http.Request) (string, error) { return req.Header.Get("Cluster"), nil }
		c.Append = func(_ context.Context, all []domain.Envelope) error {
			if calls++; calls == 1 {
				entered <- struct{}{}
				<-release
			}
			for i := range all {
				if all[i].Subject == "large" {
					return fmt.Errorf("%w: record %d has too many bytes", remotewrite.ErrRefused, i)
				}
			}
			events = append(events, all...)
			return nil
		}
	})
	of := func(cluster string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set("Cluster", cluster) }
	}
	good := v2(t, []series{one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1"}`, 0.5)})
	bad := v2(t, []series{
		one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="a"}`, 0.5), one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="large"}`, 0.5), one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="z"}`, 0.5),
	})
	var wg sync.WaitGroup
	wg.Go(func() { r.post(t, typeV2, good, of("first")) })
	<-entered
	for range 5 {
		for cluster, c := range map[string]struct {
			msg  []byte
			want string
		}{"other": {good, "1/0/0/0"}, "c1": {bad, "2/0/1/0"}} {
			wg.Go(func() {
				if w := r.post(t, typeV2, c.msg, of(cluster)); w.Code != http.StatusNoContent || fates(w) != c.want {
					t.Errorf("%s: answer %d, samples %s, want %s: %s", cluster, w.Code, fates(w), c.want, w.Body)
				}
			})
		}
	}
	close(release)
	wg.Wait()
	if len(events) != 1+5+5*2 {
		t.Errorf("%d events", len(events))
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1/write", nil)
	of("c1")(req)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if !strings.Contains(w.Body.String(), `"not_valid"`) || !strings.Contains(w.Body.String(), "too many bytes") {
		t.Errorf("status %s", w.Body)
	}
}

// A million series with random labels use no memory beyond the requests in flight, whether their
// metric is kept or not.
func TestRandomSeries(t *testing.T) {
	total := long.Count(100_000, 1_000_000)
	r := newReceiver(func(c *remotewrite.Config) {
		c.Append = func(context.Context, []domain.Envelope) error { return nil }
	})
	const each = 2000
	var before, after runtime.MemStats
	var counts [4]int
	for i := 0; i < total; i += each {
		all := make([]series, 0, each)
		for j := range each {
			n := i + j
			switch n % 4 {
			case 0:
				all = append(all, one(fmt.Sprintf(`m%d{a="%d",b%d="x"}`, n, n, n), 1))
			case 1:
				all = append(all, one(fmt.Sprintf(`DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%08x-0000-0000-0000-000000000001",node="n%d"}`, n, n), 1))
			case 2:
				all = append(all, one(fmt.Sprintf(`vllm:num_requests_running{model_name="m%d",pod="p%d"}`, n, n), 1))
			default:
				all = append(all, one(fmt.Sprintf(`kube_deployment_spec_replicas{deployment="d%d"}`, n), 1))
			}
		}
		w := r.post(t, typeV2, v2(t, all))
		if w.Code != http.StatusNoContent {
			t.Fatalf("answer %d: %s", w.Code, w.Body)
		}
		for k, part := range strings.Split(fates(w), "/") {
			n, _ := strconv.Atoi(part)
			counts[k] += n
		}
		if i == total/2 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := counts[0] + counts[1] + counts[2] + counts[3]; n != total {
		t.Errorf("%d of %d samples are accounted for", n, total)
	}
	t.Logf("mapped/filtered/set aside/refused %v; heap %d MiB at half, %d MiB at the end", counts, before.HeapAlloc>>20, after.HeapAlloc>>20)
	// The bound is on the targets of a cluster, not on the samples sent.
	if after.HeapAlloc > 64<<20 {
		t.Errorf("the heap has %d MiB", after.HeapAlloc>>20)
	}
	runtime.KeepAlive(r)
}

// Two Prometheus servers, split, repeated and reordered requests yield the rows of one delivery.
func TestDeliveredTwice(t *testing.T) {
	var all []series
	for _, m := range []string{"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"} {
		for _, g := range []string{gpu0, gpu1} {
			s := series{text: m + "{" + g + `,node="n1",pod="chat-0",namespace="ml"}`}
			for k := range 20 {
				s.values = append(s.values, float64(k%2))
				s.times = append(s.times, -time.Duration(20-k)*30*time.Second)
			}
			all = append(all, s)
		}
	}
	ttft := series{text: `vllm:time_to_first_token_seconds_bucket{model_name="llama",pod="chat-0",instance="i",le="+Inf"}`}
	for k := range 20 {
		ttft.values, ttft.times = append(ttft.values, float64(10*k)), append(ttft.times, -time.Duration(20-k)*30*time.Second)
	}
	all = append(all, ttft)
	deliver := func(parts [][]series, replicas int) *projections.Memory {
		r := newReceiver(nil)
		for _, p := range parts {
			for range replicas {
				if w := r.post(t, typeV2, v2(t, p)); w.Code != http.StatusNoContent {
					t.Fatalf("answer %d: %s", w.Code, w.Body)
				}
			}
		}
		l := storetest.NewLog()
		for i := range r.events {
			r.events[i].Source = "prometheus/" + strconv.Itoa(i%2)
			l.Append(r.events[i])
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	once := answers(t, deliver([][]series{all}, 1))
	var apart [][]series
	for _, s := range all {
		for k := range s.values {
			apart = append(apart, []series{{s.text, s.values[k : k+1], s.times[k : k+1]}})
		}
	}
	if rowsDigest(t, deliver(apart, 1)) != rowsDigest(t, deliver(apart, 3)) {
		t.Error("repeats change rows")
	}
	if got := answers(t, deliver(apart, 2)); got != once {
		t.Errorf("split and repeated it says\n%s\nwant\n%s", got, once)
	}
	slices.SortStableFunc(apart, func(a, b []series) int { return int(a[0].times[0] - b[0].times[0]) })
	if got := answers(t, deliver(apart, 1)); got != once {
		t.Errorf("in another order it says\n%s\nwant\n%s", got, once)
	}
	if !strings.Contains(once, `"activity_permille": 500`) || !strings.Contains(once, `"count": 190`) {
		t.Errorf("it says\n%s", once)
	}
}

// answers are the figures that the views return.
func answers(t testing.TB, m *projections.Memory) string {
	var b strings.Builder
	err := m.View(t.Context(), func(v projections.View) error {
		from := domain.InstantOf(now) - domain.Hour
		u, err := usage.NewReport(v, from, from+2*domain.Hour, usage.Filter{}, usage.ByGPU, usage.ByDeployment)
		if err != nil {
			return err
		}
		s, err := serving.NewReport(v, from, from+2*domain.Hour, serving.Filter{})
		if err != nil {
			return err
		}
		u.Position, s.Position = "", ""
		enc := json.NewEncoder(&b)
		enc.SetIndent("", " ")
		return errors.Join(enc.Encode(u), enc.Encode(s))
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A mapping rule that joins two controllers into one deployment adds up their replicas, under the
// name that their pods' servers have.
func TestRuleNamesDeployment(t *testing.T) {
	r := newReceiver(func(c *remotewrite.Config) {
		c.Holder = func(_, namespace, _ string) (string, string, bool) { return "research", "chat", namespace == "ml" }
	})
	all := []series{one(`vllm:num_requests_running{model_name="llama",pod="blue-0",namespace="ml"}`, 1)}
	for _, name := range []string{"blue", "green"} {
		all = append(all, one(`kube_statefulset_replicas{namespace="ml",statefulset="`+name+`"}`, 3), one(`kube_statefulset_status_replicas_ready{namespace="ml",statefulset="`+name+`"}`, 2))
	}
	if w := r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent {
		t.Fatalf("answer %d: %s", w.Code, w.Body)
	}
	if got := text(t, r.events); !strings.Contains(got, `{"deployment":"chat","model":"llama","ready":4,"desired":6}`) || strings.Count(got, "ReplicasObserved") != 1 {
		t.Errorf("events:\n%s", got)
	}
}

// A GPU's model is the exporter's label modelName; for a MIG instance it is the model of its GPU.
// An invalid model is left out, but the reading still counts.
func TestModelOfGPU(t *testing.T) {
	for _, c := range []struct{ labels, want string }{
		{`modelName="NVIDIA H100 80GB HBM3"`, "NVIDIA H100 80GB HBM3"},
		{`modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="3"`, "NVIDIA A100-SXM4-40GB"},
		{`modelName=""`, ""},
		{`device="nvidia0"`, ""},
		{`modelName="` + strings.Repeat("x", 96) + `"`, strings.Repeat("x", 96)},
		{`modelName="` + strings.Repeat("x", 97) + `"`, ""},
		{"modelName=\"NVIDIA \x1b[31mH100\"", ""},
	} {
		r := newReceiver(func(*remotewrite.Config) {})
		if w := r.post(t, typeV2, v2(t, []series{one(`DCGM_FI_DEV_GPU_UTIL{`+gpu0+`,Hostname="n1",`+c.labels+`}`, 40)})); w.Code != http.StatusNoContent {
			t.Fatalf("%s: answer %d: %s", c.labels, w.Code, w.Body)
		}
		if len(r.events) != 1 {
			t.Fatalf("%s: %d events", c.labels, len(r.events))
		}
		s := r.events[0].Event.(*domain.NodeSampled)
		if got := s.Text(s.Model, 0); got != c.want || s.ActivityMean[0] != 401 {
			t.Errorf("%s: model %q, activity %d", c.labels, got, s.ActivityMean[0])
		}
	}
}

// Samples whose event would not be valid are set aside with the reason, and the rest of the request
// counts.
func TestNotValid(t *testing.T) {
	r := newReceiver(func(c *remotewrite.Config) {
		c.Holder = func(_, namespace, _ string) (string, string, bool) { return "", "team\x01", namespace == "ml" }
	})
	w := r.post(t, typeV2, v2(t, []series{
		one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1",pod="chat-0",namespace="ml"}`, 0.5), one(`DCGM_FI_DEV_FB_USED{`+gpu0+`,node="n1",pod="chat-0",namespace="ml"}`, 5),
		one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu1+`,node="n2",pod="chat-0",namespace="other"}`, 0.5),
	}))
	if got := fates(w); w.Code != http.StatusNoContent || got != "1/0/2/0" || len(r.events) != 1 {
		t.Errorf("answer %d, samples %s, %d events: %s", w.Code, got, len(r.events), w.Body)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r := newReceiver(func(c *remotewrite.Config) { c.Registerer = reg })
	r.post(t, typeV2, v2(t, []series{one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`}`, 0.5), one("up", 1)}))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+labelsOf(m)] += m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"quartermaster_remote_write_samples_total c1 set_aside":     1,
		"quartermaster_remote_write_samples_total c1 filtered":      1,
		"quartermaster_remote_write_unmapped_total c1 no_node":      1,
		"quartermaster_remote_write_requests_total 2xx":             1,
		"quartermaster_remote_write_unmapped_total c1 other_metric": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; there are %v", name, got[name], want, got)
		}
	}
}

func labelsOf(m *dto.Metric) (s string) {
	for _, l := range m.GetLabel() {
		s += " " + l.GetValue()
	}
	return s
}

func TestWorkload(t *testing.T) {
	for pod, want := range map[string]string{
		"vllm-qwen-7d4b9c6f8d-x2x9p": "vllm-qwen", "vllm-0": "vllm", "job-kx7zd": "job", "plain": "plain", "chat-serving": "chat-serving",
		"a-b-c": "a-b-c", "-0": "-0", "": "",
	} {
		if got := remotewrite.Workload(pod); got != want {
			t.Errorf("pod %q is of %q, want %q", pod, got, want)
		}
	}
}

func TestStanza(t *testing.T) {
	got := remotewrite.Stanza("c1", "https://qm.example/api/v1/write", "/etc/prometheus/qm.key", 15*time.Second)
	for _, want := range []string{"https://qm.example/api/v1/write", "/etc/prometheus/qm.key", "DCGM_FI_PROF_SM_ACTIVE", "vllm:time_to_first_token_seconds_bucket", remotewrite.StepHeader + ": 15s", `replacement: "c1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the stanza lacks %q:\n%s", want, got)
		}
	}
}

// The stanza has only fields that Prometheus 2.42 knows, because it refuses others:
// https://prometheus.io/docs/prometheus/2.42/configuration/configuration/#remote_write
func TestStanzaOfOldPrometheus(t *testing.T) {
	var known struct {
		RemoteWrite []struct {
			Name          string            `yaml:"name"`
			URL           string            `yaml:"url"`
			RemoteTimeout string            `yaml:"remote_timeout"`
			Headers       map[string]string `yaml:"headers"`
			Authorization struct {
				Type            string `yaml:"type"`
				Credentials     string `yaml:"credentials"`
				CredentialsFile string `yaml:"credentials_file"`
			} `yaml:"authorization"`
			Relabel []struct {
				SourceLabels []string `yaml:"source_labels"`
				Separator    string   `yaml:"separator"`
				TargetLabel  string   `yaml:"target_label"`
				Regex        string   `yaml:"regex"`
				Replacement  string   `yaml:"replacement"`
				Action       string   `yaml:"action"`
			} `yaml:"write_relabel_configs"`
			Queue struct {
				Capacity          int    `yaml:"capacity"`
				MaxShards         int    `yaml:"max_shards"`
				MinShards         int    `yaml:"min_shards"`
				MaxSamplesPerSend int    `yaml:"max_samples_per_send"`
				BatchSendDeadline string `yaml:"batch_send_deadline"`
				MinBackoff        string `yaml:"min_backoff"`
				MaxBackoff        string `yaml:"max_backoff"`
				RetryOn429        bool   `yaml:"retry_on_http_429"`
			} `yaml:"queue_config"`
			Metadata struct {
				Send              bool   `yaml:"send"`
				SendInterval      string `yaml:"send_interval"`
				MaxSamplesPerSend int    `yaml:"max_samples_per_send"`
			} `yaml:"metadata_config"`
		} `yaml:"remote_write"`
	}
	text := remotewrite.Stanza("c1", "https://qm.example/api/v1/write", "/etc/prometheus/qm.key", 15*time.Second)
	if err := yaml.UnmarshalWithOptions([]byte(text), &known, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	if w := known.RemoteWrite; len(w) != 1 || w[0].URL == "" || w[0].Headers[remotewrite.StepHeader] != "15s" || len(w[0].Relabel) != 2 {
		t.Errorf("it is %+v", w)
	}
}

// Any bytes get exactly one answer, and appended events are valid.
func fuzz(f *testing.F, contentType string, form func(testing.TB, []series) []byte) {
	all := []series{
		one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1",GPU_I_ID="1",GPU_I_PROFILE="1g.10gb"}`, 0.5), one(`vllm:time_to_first_token_seconds_bucket{model_name="m",pod="p-0",le="0.5"}`, 3),
		one(`kube_node_status_condition{node="n",condition="Ready",status="true"}`, 1), one("up", 1),
	}
	f.Add(form(f, all))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		r := newReceiver(nil)
		w := r.post(t, contentType, msg)
		if w.Code != 204 && w.Code != 400 {
			t.Errorf("answer %d: %s", w.Code, w.Body)
		}
	})
}

func FuzzV1(f *testing.F) { fuzz(f, typeV1, v1) }
func FuzzV2(f *testing.F) { fuzz(f, typeV2, v2) }
