package remotewrite_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"

	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// stored returns how many GPUs and servers the rows of events distinguish.
func stored(t *testing.T, events []domain.Envelope) int {
	t.Helper()
	l := storetest.NewLog()
	for i := range events {
		events[i].Source = "prometheus/test"
		l.Append(events[i])
	}
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	if err := m.View(t.Context(), func(v projections.View) error {
		for _, table := range []projections.Table{projections.TableUsage, projections.TableServers} {
			if err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
				switch row := row.(type) {
				case *projections.ServerHour:
					found[k.ID] = true
				case *projections.UsageHour:
					for _, o := range row.Observers {
						for _, d := range o.Devices {
							found[fmt.Sprint(k.ID, d.ID, d.Replica)] = true
						}
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// The bound on targets counts by the fields that identify rows: whichever label differs, there are
// as many targets as rows.
func TestTargetsAreWhatIsStored(t *testing.T) {
	for _, c := range []struct {
		series string
		labels []string
	}{
		{`DCGM_FI_PROF_SM_ACTIVE{node="n1",UUID="GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d08",GPU_I_ID="1",GPU_I_PROFILE="1g",vgpu="1",exported_pod="p",exported_namespace="n",exported_container="c"}`,
			[]string{"node", "UUID", "GPU_I_ID", "GPU_I_PROFILE", "vgpu", "exported_pod", "exported_namespace", "exported_container"}},
		{`vllm:num_requests_running{model_name="m",tier="t",pod="p",namespace="n",instance="i",node="x",engine="0",container="c"}`,
			[]string{"model_name", "tier", "pod", "namespace", "instance", "node", "engine", "container"}},
		{`vllm:num_requests_running{model_name="m",tier="t",deployment="d",instance="i",namespace="n"}`, []string{"deployment", "instance", "namespace"}},
		{`sglang:num_running_reqs{model_name="m",tier="t",pod="p",namespace="n"}`, []string{"model_name", "tier", "pod", "namespace"}},
		{`tgi_queue_size{tier="t",pod="p",namespace="n"}`, []string{"tier", "pod", "namespace"}},
		{`kube_pod_container_resource_requests{resource="nvidia_com_gpu",tier="t",node="x",exported_pod="p",exported_namespace="n",exported_container="c"}`,
			[]string{"tier", "node", "exported_pod", "exported_namespace", "exported_container"}},
	} {
		for _, label := range c.labels {
			for _, other := range []string{"7", "GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d09"} {
				at := strings.Index(c.series, label+`="`) + len(label) + 2
				end := at + strings.IndexByte(c.series[at:], '"')
				r := newReceiver(nil)
				w := r.post(t, typeV2, v2(t, []series{one(c.series, 1), one(c.series[:at]+other+c.series[end:], 1)}))
				if w.Code != http.StatusNoContent {
					t.Fatalf("answer %d: %s", w.Code, w.Body)
				}
				if named, rows := remotewrite.Targets(r.Handler, "c1"), stored(t, r.events); named != rows || rows == 0 {
					t.Errorf("%s with two values of %s: %d targets are counted, but %d are stored", c.series, label, named, rows)
				}
			}
		}
	}
}

// A cluster that names too many targets fills no more memory, whichever label is random.
func TestRandomTargets(t *testing.T) {
	for name, text := range map[string]func(i int) string{
		"tier": func(i int) string {
			return fmt.Sprintf(`vllm:num_requests_running{model_name="m",pod="p",tier="%d"}`, i)
		},
		"vgpu": func(i int) string {
			return fmt.Sprintf(`DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%08x-0000-0000-0000-000000000001",node="n%d",vgpu="%d"}`, i>>16+1, i>>8, i&0xffff)
		},
	} {
		named := map[string]bool{}
		r := newReceiver(func(c *remotewrite.Config) {
			c.Append = func(_ context.Context, events []domain.Envelope) error {
				for _, e := range events {
					switch ev := e.Event.(type) {
					case *domain.MetricsObserved:
						for i := range ev.Engine {
							named[ev.Text(ev.Tier, i)] = true
						}
					case *domain.NodeSampled:
						for i := range ev.Entries() {
							named[fmt.Sprintf("%x %d", ev.IDs[16*i:16*i+16], ev.Replica[i])] = true
						}
					}
				}
				return nil
			}
		})
		const each, total = 5000, remotewrite.MaxTargets + 15_000
		for n := 0; n < total; n += each {
			var all []series
			for i := n; i < n+each; i++ {
				all = append(all, one(text(i), 1))
			}
			if w := r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent {
				t.Fatalf("answer %d: %s", w.Code, w.Body)
			}
		}
		if len(named) != remotewrite.MaxTargets {
			t.Errorf("with random labels %s a cluster names %d targets, but may name %d", name, len(named), remotewrite.MaxTargets)
		}
	}
}

// Only as many devices of a node are kept as the rows hold. The rest is set aside with that reason.
// Other nodes and servers are not affected.
func TestTooManyDevices(t *testing.T) {
	r := newReceiver(nil)
	var all []series
	for i := range 2000 {
		all = append(all, one(fmt.Sprintf(`DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%08x-0000-0000-0000-000000000001",Hostname="same"}`, i+1), 1))
	}
	want := fmt.Sprintf("%d/0/%d/0", projections.MaxScraped, 2000-projections.MaxScraped)
	for range 2 { // again: the same devices are kept
		if w := r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent || fates(w) != want {
			t.Fatalf("answer %d, samples %s, want %s", w.Code, fates(w), want)
		}
	}
	if got := stored(t, r.events); got != projections.MaxScraped {
		t.Errorf("%d devices are stored of those reported as mapped", got)
	}
	if w := r.post(t, typeV2, v2(t, []series{one(`DCGM_FI_DEV_GPU_UTIL{`+gpu0+`,node="n1"}`, 1), one(`vllm:num_requests_running{model_name="m",pod="p"}`, 1)})); fates(w) != "2/0/0/0" {
		t.Errorf("beside it: %s", fates(w))
	}
	req := httptest.NewRequest(http.MethodGet, "/api/v1/write", nil)
	req.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if !strings.Contains(w.Body.String(), `"too_many_devices"`) {
		t.Errorf("status %s", w.Body)
	}
}

// A target that is named all the time keeps its place beside names that occur only once, both GPUs
// and servers.
func TestRandomTargetsStarveNone(t *testing.T) {
	at := now
	r := newReceiver(func(c *remotewrite.Config) {
		c.Now = func() time.Time { return at }
		c.Append = func(context.Context, []domain.Envelope) error { return nil }
	})
	steady := v2(t, []series{one(`DCGM_FI_DEV_GPU_UTIL{`+gpu0+`,node="n1"}`, 1), one(`vllm:num_requests_running{model_name="m",pod="p"}`, 1)})
	for range 2 {
		if w := r.post(t, typeV2, steady); fates(w) != "2/0/0/0" {
			t.Fatalf("samples %s", fates(w))
		}
		at = at.Add(2 * time.Minute)
	}
	const each = 5000
	for hour := range 2 {
		at = at.Add(time.Hour)
		for n := 0; n < remotewrite.MaxTargets+each; n += each {
			var all []series
			for i := n; i < n+each; i++ {
				all = append(all, one(fmt.Sprintf(`vllm:num_requests_running{model_name="m",pod="%d-%d"}`, hour, i), 1))
			}
			if w := r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent {
				t.Fatalf("answer %d: %s", w.Code, w.Body)
			}
		}
		if w := r.post(t, typeV2, steady); fates(w) != "2/0/0/0" {
			t.Errorf("hour %d: samples %s", hour, fates(w))
		}
	}
	if n := remotewrite.Targets(r.Handler, "c1"); n > remotewrite.MaxTargets+1 {
		t.Errorf("%d targets are remembered", n)
	}
	// In the next hour they do not occupy places that others may need.
	at = at.Add(time.Hour)
	if w := r.post(t, typeV2, v2(t, []series{one(`vllm:num_requests_running{model_name="m",pod="new"}`, 1)})); fates(w) != "1/0/0/0" {
		t.Errorf("a server that is new after them: samples %s", fates(w))
	}
}

// Servers with the longest labels are split over events that each fit into a record.
func TestEventsFitIntoRecords(t *testing.T) {
	long := func(i int, of string) string { return fmt.Sprintf("%s%06d%s", of, i, strings.Repeat("x", 100)) }
	var all []series
	const n = 6000
	for i := range n {
		all = append(all, one(fmt.Sprintf(`vllm:num_requests_running{model_name=%q,tier=%q,pod=%q,namespace=%q,node=%q}`,
			long(i, "m")+strings.Repeat("m", 149), long(i, "t")+strings.Repeat("t", 149), long(i, "p"), long(i, "s"), long(i, "n")+strings.Repeat("n", 149)), 1))
	}
	r := newReceiver(nil)
	if w := r.post(t, typeV2, v2(t, all)); w.Code != http.StatusNoContent || fates(w) != fmt.Sprintf("%d/0/0/0", n) {
		t.Fatalf("answer %d, samples %s: %.200s", w.Code, fates(w), w.Body)
	}
	if len(r.events) < 2 {
		t.Errorf("%d events of more than one record holds", len(r.events))
	}
	for i := range r.events {
		ev := r.events[i].Event.(*domain.MetricsObserved)
		size := 30*len(ev.Engine) + 35*len(ev.Series) + 15*len(ev.Value) // upper bound on the encoded size
		for _, text := range ev.Strings {
			size += len(text) + 3
		}
		if size > 3<<20 {
			t.Errorf("event %d takes %d bytes, but a record holds 4 MiB including the envelope", i, size)
		}
	}
	if got := stored(t, r.events); got != n {
		t.Errorf("%d servers are stored", got)
	}
}

// Requests that are small on the wire but large in memory are refused before they use it.
func TestLargeInMemory(t *testing.T) {
	symbols := func(n int, text string) (msg []byte) {
		for range n {
			msg = nested(msg, 4, []byte(text))
		}
		return msg
	}
	var many []series
	for i := range 2000 {
		many = append(many, one(fmt.Sprintf(`vllm:num_requests_running{model_name="m",pod="POD",tier="%d"}`, i), 1))
	}
	manyLong := bytes.Replace(v2(t, many), nested(nil, 4, []byte("POD")), nested(nil, 4, bytes.Repeat([]byte("x"), 1<<20)), 1)
	gpu := series{text: `DCGM_FI_PROF_SM_ACTIVE{` + gpu0 + `,node="n1"}`}
	for i := range 300_000 {
		gpu.values, gpu.times = append(gpu.values, 1), append(gpu.times, -time.Duration(i)*time.Second)
	}
	for name, c := range map[string]struct {
		msg    []byte
		status int
		want   string
	}{
		"symbols":           {symbols(15_000_000, ""), http.StatusRequestEntityTooLarge, "lower max_samples_per_send"},
		"samples":           {v2(t, []series{gpu}), http.StatusRequestEntityTooLarge, "lower max_samples_per_send"},
		"empty samples":     {nested(nil, 5, bytes.Repeat([]byte{2<<3 | 2, 0}, 10_000_000)), http.StatusRequestEntityTooLarge, "lower max_samples_per_send"},
		"one label of many": {manyLong, http.StatusNoContent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(func(c *remotewrite.Config) { c.InFlight = 160 << 20 })
			body := snappy.Encode(nil, c.msg)
			req := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
			req.Header.Set("Content-Type", typeV2)
			req.Header.Set("Authorization", "Bearer good")
			w := httptest.NewRecorder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.ServeHTTP(w, req)
			runtime.ReadMemStats(&after)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("answer %d: %.200s", w.Code, w.Body)
			}
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
				t.Errorf("%d MiB on the wire took %d MiB", len(body)>>20, took)
			}
		})
	}
}

// Each cluster has its own rate limit.
func TestRate(t *testing.T) {
	at := now
	r := newReceiver(func(c *remotewrite.Config) {
		c.Rate, c.Now = 10, func() time.Time { return at }
		c.Authenticate = func(req *http.Request) (string, error) { return req.Header.Get("Authorization"), nil }
	})
	send := func(cluster string, samples int) int {
		var all []series
		for i := range samples {
			all = append(all, one(fmt.Sprintf("m%d", i), 1))
		}
		w := r.post(t, typeV2, v2(t, all), func(req *http.Request) { req.Header.Set("Authorization", cluster) })
		if (w.Header().Get("Retry-After") != "") != (w.Code == http.StatusTooManyRequests) {
			t.Errorf("answer %d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		return w.Code
	}
	got := []int{send("a", 15), send("a", 15), send("b", 15), send("a", 5), send("a", 1)}
	at = at.Add(2 * time.Second)
	got = append(got, send("a", 1000))
	if want := "[204 429 204 204 429 204]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// dial opens a connection and sends the beginning of a request.
func dial(t *testing.T, address, key, begin string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 30000000\r\n%s", key, typeV2, begin); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Senders whose bodies never arrive are cut off. Until then they take next to no memory from
// others, however much they announce.
func TestSlowSenders(t *testing.T) {
	good := v2(t, []series{one(`DCGM_FI_PROF_SM_ACTIVE{`+gpu0+`,node="n1"}`, 0.5)})
	r := newReceiver(func(c *remotewrite.Config) { c.InFlight = 16 << 20 })
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	for range 100 {
		conn := dial(t, srv.Listener.Addr().String(), "good", "Expect: 100-continue\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if w := r.post(t, typeV2, good); w.Code != http.StatusNoContent {
		t.Errorf("beside slow senders the answer is %d: %s", w.Code, w.Body)
	}

	hasty := newReceiver(func(c *remotewrite.Config) { c.Arrival = 50 * time.Millisecond })
	srv = httptest.NewServer(hasty)
	t.Cleanup(srv.Close)
	conn := dial(t, srv.Listener.Addr().String(), "good", "\r\nabc")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusServiceUnavailable || !res.Close || !strings.Contains(string(text), "did not arrive in time") {
		t.Errorf("%s, to be closed: %t: %s", res.Status, res.Close, text)
	}
}

// The samples of a sender that disconnected are either both in the log and in the counts, or in
// neither.
func TestSenderLeaves(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	r := newReceiver(nil)
	r = newReceiver(func(c *remotewrite.Config) {
		c.Append = func(_ context.Context, events []domain.Envelope) error {
			entered <- struct{}{}
			<-release
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, events...)
			return nil
		}
	})
	send := func(ctx context.Context, node string) chan int {
		status := make(chan int, 1)
		msg := v2(t, []series{one(`kube_node_spec_unschedulable{node="`+node+`"}`, 1)})
		go func() {
			status <- r.post(t, typeV2, msg, func(req *http.Request) { *req = *req.WithContext(ctx) }).Code
		}()
		return status
	}
	leaves, leave := context.WithCancel(t.Context())
	onItsWay := send(leaves, "n1")
	<-entered
	leave()
	waiting := send(leaves, "n2") // disconnected already, or disconnects while it waits
	if code := <-waiting; code != http.StatusServiceUnavailable {
		t.Errorf("a sender that disconnected while it waited is answered %d", code)
	}
	close(release)
	if code := <-onItsWay; code != http.StatusNoContent {
		t.Errorf("a sender that disconnected during the append is answered %d", code)
	}
	// Only what was not appended is stated again.
	if a, b := <-send(t.Context(), "n1"), <-send(t.Context(), "n2"); a != http.StatusNoContent || b != http.StatusNoContent {
		t.Errorf("sent again: %d and %d", a, b)
	}
	var told []string
	for _, e := range r.events {
		told = append(told, e.Subject)
	}
	if fmt.Sprint(told) != "[n1 n2]" {
		t.Errorf("the log holds %v", told)
	}
	get := httptest.NewRequest(http.MethodGet, "/api/v1/write", nil)
	get.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, get)
	var status remotewrite.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Samples["mapped"] != 2 || status.Samples["filtered"] != 1 || status.Unacknowledged != 1 || status.Events != 2 {
		t.Errorf("%s: %v", w.Body, err)
	}
}
