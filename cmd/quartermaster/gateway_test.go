package main

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
)

// gatewayOf serves a data directory with a gateway and returns the addresses of both.
func gatewayOf(t *testing.T, dir string, gw config.Gateway) (health, events string) {
	t.Helper()
	lines := make(lineWriter, 1000)
	done := make(chan error, 1)
	ctx := t.Context()
	d := daemon.New(&app.App{Dir: dir}, lines, false)
	d.OwnWait = time.Second
	go func() { done <- d.Serve(ctx, "127.0.0.1:0", gw, config.API{}) }()
	t.Cleanup(func() {
		go func() {
			for range lines { // so that nothing waits to be read
			}
		}()
		if err := <-done; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	address := regexp.MustCompile(`address=(\S+)`)
	for {
		select {
		case line := <-lines:
			switch m := address.FindStringSubmatch(line); {
			case strings.Contains(line, "accepting events"):
				events = m[1]
			case strings.Contains(line, "listening"):
				health = m[1]
			case strings.Contains(line, "caught up"):
				go func() {
					for {
						select {
						case <-lines:
						case <-ctx.Done():
							return
						}
					}
				}()
				return health, events
			}
		case err := <-done:
			done <- err
			t.Fatalf("serve ended: %v", err)
		}
	}
}

// tell runs a command on a data directory and decodes its JSON answer.
func tell(t *testing.T, dir string, into any, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(slices.Concat([]string{"--data-dir", dir, "-o", "json"}, args), strings.NewReader(""), &out, &errs); code != 0 && code != commandline.ExitIncomplete {
		t.Fatalf("%v: %s%s", args, out.String(), errs.String())
	}
	if into != nil {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			t.Fatalf("%v: %v in %s", args, err, out.String())
		}
	}
}

// fault is the record of a fault on a node of a cluster.
func fault(t *testing.T, cluster, node string, sequence uint64, xid uint32) domain.Record {
	t.Helper()
	rec, err := wire.Encode(&domain.Envelope{
		Source: httpapi.SourceOf(cluster) + node, Incarnation: 1, Sequence: sequence, Time: app.Now(), Subject: node, Cluster: cluster,
		Event: &domain.GPUFaultObserved{Node: node, Kind: domain.FaultXID, Code: xid, Count: 1, Fatal: true, Class: "hardware", Action: "reboot"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func deliver(t *testing.T, client *http.Client, url, key string, recs ...domain.Record) (int, string) {
	t.Helper()
	var body []byte
	for i := range recs {
		var err error
		if body, err = wire.AppendBatch(body, &recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/events", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", wire.BatchContentType)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestGateway pushes a fault into a served home over TLS, sees it in the fleet
// once however often it was sent, and follows keys as they are rotated and revoked.
func TestGateway(t *testing.T) {
	dir, cert := t.TempDir(), testcert.New(t)
	var lab issuedKey
	tell(t, dir, &lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	_, address := gatewayOf(t, dir, config.Gateway{Listen: "127.0.0.1:0", CertFile: cert.Cert, KeyFile: cert.Key, Rate: 1000})

	roots, err := transport.Pool(cert.Cert)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"}}}
	url := "https://" + address

	node, err := wire.Encode(&domain.Envelope{
		Source: httpapi.SourceOf("lab") + "n1", Incarnation: 1, Sequence: 1, Time: app.Now(), Subject: "n1", Cluster: "lab",
		Event: &domain.NodeRegistered{Node: "n1", CPUMilli: 1000, MemoryMiB: 1024, GPUs: []domain.GPUDeclared{{ID: domain.DeriveGPUID("lab", "n1", 0), Model: "H100 SXM 80GB"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := deliver(t, client, url, lab.Key, node); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	first := fault(t, "lab", "n1", 1, 79)
	for range 3 {
		if status, text := deliver(t, client, url, lab.Key, first); status != http.StatusOK || text != "{\"accepted\":1,\"shards\":1}\n" {
			t.Fatalf("%d %s", status, text)
		}
	}
	var fleet inventory.Inventory
	tell(t, dir, &fleet, "fleet", "--cluster", "lab")
	if f := fleet.Clusters[0].Nodes[0].Health.Faults; len(f) != 1 || !strings.Contains(f[0], "xid 79") {
		t.Errorf("faults in the fleet: %q", f)
	}

	// Neither metrics nor profiles are where nodes are.
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		res, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s from the gateway: %d", path, res.StatusCode)
		}
	}

	// A record of another cluster: nothing is taken, and the attempt is in the log.
	if status, text := deliver(t, client, url, lab.Key, fault(t, "eu", "n1", 1, 79)); status != http.StatusForbidden || !strings.Contains(text, "record 0 is of cluster eu") {
		t.Errorf("another cluster: %d %s", status, text)
	}
	stranger, err := domain.NewClusterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if status, text := deliver(t, client, url, stranger.String(), first); status != http.StatusUnauthorized || !strings.Contains(text, "is not known here") {
		t.Errorf("a stranger: %d %s", status, text)
	}

	// Both keys hold while they are rotated, the new one alone once the old is revoked.
	var next issuedKey
	tell(t, dir, &next, "key", "rotate", "lab")
	second := fault(t, "lab", "n1", 2, 48)
	for _, key := range []string{lab.Key, next.Key} {
		await(t, key, func() (string, bool) {
			status, text := deliver(t, client, url, key, second)
			return text, status == http.StatusOK
		})
	}
	tell(t, dir, nil, "key", "revoke", lab.KeyID, "--reason", "laptop lost")
	await(t, "revoked", func() (string, bool) {
		status, text := deliver(t, client, url, lab.Key, second)
		return text, status == http.StatusUnauthorized && strings.Contains(text, "revoked: laptop lost")
	})
	if status, text := deliver(t, client, url, next.Key, second); status != http.StatusOK {
		t.Errorf("the new key: %d %s", status, text)
	}

	await(t, "denials", func() (string, bool) {
		var out, errs bytes.Buffer
		if code := run([]string{"--data-dir", dir, "log", "export", "--topic", "qm.books"}, strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatal(errs.String())
		}
		return out.String(), strings.Contains(out.String(), "its key pushes for cluster lab alone") && strings.Contains(out.String(), "is not known here")
	})
}

// await tries until done, for the five seconds that a change of keys may take,
// and some more on a busy machine.
func await(t *testing.T, what string, try func() (string, bool)) {
	t.Helper()
	late, again := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
	defer again.Stop()
	for {
		said, done := try()
		if done {
			return
		}
		select {
		case <-late:
			t.Fatalf("%s: %s", what, said)
		case <-again.C:
		}
	}
}

func TestGatewayConfigRefused(t *testing.T) {
	cert := testcert.New(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unencrypted": {[]string{"--gateway", "0.0.0.0:7443"}, "would accept keys unencrypted from other machines"},
		"half a pair": {[]string{"--gateway", "127.0.0.1:0", "--gateway-cert", "x.pem"}, "cert_file and key_file belong together"},
		"no address":  {[]string{"--gateway", "7443"}, "is not host:port"},
		"nowhere":     {[]string{"--gateway-plain"}, "is configured but has no address"},
		"no TLS":      {[]string{"--gateway", "127.0.0.1:0", "--gateway-client-ca", "ca.pem"}, "client_ca_file: needs TLS"},
		"no CA":       {[]string{"--gateway", "127.0.0.1:0", "--gateway-cert", cert.Cert, "--gateway-key", cert.Key, "--gateway-client-ca", "ca.pem"}, "client_ca_file: read the authorities: open ca.pem"},
		"no file":     {[]string{"--gateway", "127.0.0.1:0", "--gateway-cert", "x.pem", "--gateway-key", "x.key"}, "read the certificate: open x.pem"},
	} {
		var out, errs bytes.Buffer
		if code := run(slices.Concat([]string{"--data-dir", t.TempDir(), "serve", "--listen", "127.0.0.1:0"}, c.args), strings.NewReader(""), &out, &errs); code == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: %d %s", name, code, errs.String())
		}
	}
}

// receives configures a gateway, for instances that are started later.
func (s *site) receives() {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.config, append(text, "gateway: {listen: '127.0.0.1:0'}\n"...), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestProductionGateway pushes a fault through one of two instances on Postgres,
// with a key that is made, rotated and revoked while both run, and again through
// the other after Kafka was away: it counts once.
func TestProductionGateway(t *testing.T) {
	s := newSite(t)
	s.receives()
	s.start()
	s.fill(60)
	asked := func(into any, args ...string) {
		t.Helper()
		code, out := s.command(append(args, "-o", "json", "--quiet")...)
		if code != 0 {
			t.Fatalf("%v: %s", args, out)
		}
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("%v: %v in %s", args, err, out)
		}
	}
	a, b := s.serve("a"), s.serve("b")
	var urls []string
	for _, r := range []*running{a, b} {
		r.says(1, "accepting events from nodes")
		r.says(1, "caught up")
		r.mu.Lock()
		urls = append(urls, "http://"+regexp.MustCompile(`accepting events from nodes" address=(\S+)`).FindStringSubmatch(r.lines.String())[1])
		r.mu.Unlock()
	}
	var lab, next issuedKey
	asked(&lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	push := func(url, key string, rec domain.Record, status int, says string) {
		t.Helper()
		await(t, says, func() (string, bool) {
			got, text := deliver(t, http.DefaultClient, url, key, rec)
			return text, got == status && strings.Contains(text, says)
		})
	}
	first := fault(t, "lab", "n1", 1, 79)
	push(urls[0], lab.Key, first, http.StatusOK, `"accepted":1`)
	s.broker.Close()
	push(urls[1], lab.Key, first, http.StatusServiceUnavailable, "does not take events at the moment")
	s.start()
	push(urls[1], lab.Key, first, http.StatusOK, `"accepted":1`)
	asked(&next, "key", "rotate", "lab")
	for _, url := range urls {
		push(url, next.Key, first, http.StatusOK, `"accepted":1`)
	}
	var revoked map[string]any
	asked(&revoked, "key", "revoke", lab.KeyID)
	for _, url := range urls {
		push(url, lab.Key, first, http.StatusUnauthorized, "(revoked)")
	}
	s.verified()
	type source struct {
		Source string `json:"source"`
		Events int    `json:"events"`
	}
	var stats struct {
		Sources []source `json:"sources"`
	}
	asked(&stats, "log", "stats")
	if !slices.Contains(stats.Sources, source{httpapi.SourceOf("lab") + "n1", 1}) {
		t.Errorf("the fault was sent again and again, and does not count as one event: %+v", stats.Sources)
	}
	a.ends()
	b.ends()
}

// The log loses its end under a gateway that runs: a push is refused, as is every other
// append, so that nothing takes the offsets of what was lost.
func TestProductionGatewayDiverged(t *testing.T) {
	s := newSite(t)
	s.receives()
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	a.says(1, "accepting events from nodes")
	a.mu.Lock()
	url := "http://" + regexp.MustCompile(`accepting events from nodes" address=(\S+)`).FindStringSubmatch(a.lines.String())[1]
	a.mu.Unlock()
	var lab issuedKey
	code, out := s.command("cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu", "-o", "json", "--quiet")
	if err := json.Unmarshal([]byte(out), &lab); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	push := func(rec domain.Record, status int, says string) {
		t.Helper()
		await(t, says, func() (string, bool) {
			got, text := deliver(t, http.DefaultClient, url, lab.Key, rec)
			if status != http.StatusOK && got == http.StatusOK {
				t.Fatalf("it was appended: %s", text)
			}
			return text, got == status && strings.Contains(text, says)
		})
	}
	push(fault(t, "lab", "n1", 1, 79), http.StatusOK, `"accepted":1`)
	s.verified()
	s.broker.Close()
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(s.data)); err != nil {
		t.Fatal(err)
	}
	s.start()
	push(fault(t, "lab", "n1", 2, 79), http.StatusOK, `"accepted":1`)
	s.verified()
	s.broker.Close()
	s.data = before
	s.start()
	_, end, err := s.log().AllBounds(t.Context(), domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	push(fault(t, "lab", "n1", 3, 79), http.StatusServiceUnavailable, "docs/operate/diverged.md")
	if code, out := s.command("key", "revoke", lab.KeyID); code == 0 || !strings.Contains(out, "diverged") {
		t.Errorf("exit %d: %s", code, out)
	}
	if _, now, err := s.log().AllBounds(t.Context(), domain.AllPartitions()); err != nil || now.String() != end.String() {
		t.Errorf("the log grew from %s to %s, %v", end, now, err)
	}
	a.ends()
}

// A forger with the cluster's key cannot make a node's fault vanish: after more events than
// are remembered the true one is in quarantine, and inventory and metrics name its stream.
func TestGatewayFlood(t *testing.T) {
	t.Parallel() // the daemon counts for its metrics every half minute
	dir := t.TempDir()
	var lab issuedKey
	tell(t, dir, &lab, "cluster", "register", "lab", "--provider", "own", "--class", "owned", "--region", "eu")
	health, address := gatewayOf(t, dir, config.Gateway{Listen: "127.0.0.1:0", Rate: 1000})
	var forged []domain.Record
	for seq := uint64(10); seq < 310; seq++ {
		forged = append(forged, fault(t, "lab", "n1", seq, 13))
	}
	for _, recs := range [][]domain.Record{forged, {fault(t, "lab", "n1", 10, 79)}} {
		if status, text := deliver(t, http.DefaultClient, "http://"+address, lab.Key, recs...); status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
	}
	stream := httpapi.SourceOf("lab") + "n1"
	await(t, "metrics", func() (string, bool) {
		res, err := http.Get("http://" + health + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`quartermaster_stream_not_compared_records{incarnation="1",outcome="quarantined",partition="\d",source="` + stream + `",topic="qm.hardware"} 1\n`)
		return string(text), want.Match(text)
	})
	var fleet inventory.Inventory
	tell(t, dir, &fleet, "fleet", "--cluster", "lab")
	if !slices.ContainsFunc(fleet.Exceptions, func(e inventory.Exception) bool {
		return e.Kind == inventory.StreamNotCompared && strings.Contains(e.Subject, stream+"#1") && strings.Contains(e.Detail, "1 are in quarantine")
	}) {
		t.Errorf("exceptions %+v", fleet.Exceptions)
	}
}

// issuedKey is what "cluster register" and "key rotate" answer.
type issuedKey struct {
	KeyID      string `json:"key_id"`
	Key        string `json:"key"`
	Prometheus string `json:"prometheus"`
	Previous   string `json:"previous_key_id"`
}
