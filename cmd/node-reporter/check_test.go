package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/dcgm/simdcgm"
	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/transport"
	"quartermaster/adapters/transport/testcert"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// checked writes a configuration and its secrets, runs the check, and returns the findings about
// secrets and delivery.
func checked(t *testing.T, config string, secrets map[string]string) (lines string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(config, "collector:") {
		config += "collector: {command: nowhere}\n"
	}
	path := filepath.Join(dir, "node-reporter.yaml")
	if err := os.WriteFile(path, []byte("node: n1\nspool: {dir: spool}\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	run([]string{"check", "--config", path, "-o", "json"}, &out, &errs)
	var ans struct{ Checks []finding }
	if err := json.Unmarshal([]byte(out.String()), &ans); err != nil {
		t.Fatalf("%s%s: %v", out.String(), errs.String(), err)
	}
	for _, f := range ans.Checks {
		if strings.HasPrefix(f.Check, "secret ") || f.Check == "gateway" || f.Check == "client certificate" || f.Check == "register" && strings.Contains(config, "https:") || f.Check == "kafka" || f.Check == "configuration" {
			lines += strings.ReplaceAll(strings.Join([]string{f.Check, f.Result, f.Found, f.Next}, " | "), dir+"/", "") + "\n"
		}
	}
	return lines
}

// newKey makes a key from a seed.
func newKey(t *testing.T, seed byte) domain.ClusterKey {
	t.Helper()
	k, err := domain.NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The real gateway answers with the cluster of the key, so that a key of another cluster is found
// before a node starts with it.
func TestCheckWhoseKey(t *testing.T) {
	lab, eu, stranger := newKey(t, 1), newKey(t, 2), newKey(t, 3)
	srv := httptest.NewServer(&httpapi.Gateway{
		Keys: &httpapi.Keys{
			Load: func(context.Context) ([]registry.ClusterKeyEntry, error) {
				return []registry.ClusterKeyEntry{
					{Cluster: "lab", KeyID: lab.ID, MAC: lab.MAC("lab")}, {Cluster: "eu", KeyID: eu.ID, MAC: eu.MAC("eu")},
				}, nil
			},
			Now: time.Now,
		},
		Read: wire.ReadBatch, ContentType: wire.BatchContentType, AnswerType: wire.AnswerContentType,
		NewDecoder: func() projections.Decoder { return new(wire.Decoder) },
		Append:     func(context.Context, []domain.Record) error { t.Error("something was appended"); return nil },
		Denied:     func(httpapi.Denial) {},
		Rate:       100, Burst: 100, Log: slog.New(slog.DiscardHandler),
	})
	defer srv.Close()
	for name, c := range map[string]struct {
		key  domain.ClusterKey
		want []string
	}{
		"the cluster's":     {lab, []string{"gateway | ok | ", "belongs to cluster lab"}},
		"another cluster's": {eu, []string{"gateway | failed | ", "the key, which belongs to cluster eu, but this node is configured for cluster lab", "write the key of cluster lab into key, or correct cluster"}},
		"nobody's":          {stranger, []string{"gateway | failed | ", "401 Unauthorized: key", "is not known here"}},
	} {
		lines := checked(t, "cluster: lab\ngateway: {url: '"+srv.URL+"', key_file: key}\n", map[string]string{"key": c.key.String()})
		for _, want := range c.want {
			if !strings.Contains(lines, want) {
				t.Errorf("%s: it lacks %q:\n%s", name, want, lines)
			}
		}
	}
}

// A gateway with an unknown certificate, and a node that is not registered, are reported with the
// setting to change.
func TestCheckSaysWhatIsMissing(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	config := "cluster: lab\ngateway: {url: '" + srv.URL + "', key_file: key}\n"
	lines := checked(t, config, map[string]string{"key": newKey(t, 1).String()})
	for _, want := range []string{"gateway | failed | ", "set gateway.ca_file to the certificate of the authority", "register | warning | register.enabled is off: the node counts nowhere", "set register.enabled to true"} {
		if !strings.Contains(lines, want) {
			t.Errorf("it lacks %q:\n%s", want, lines)
		}
	}
	if lines := checked(t, config+"register: {enabled: true}\n", map[string]string{"key": newKey(t, 1).String()}); !strings.Contains(lines, "register | ok | ") {
		t.Errorf("%s", lines)
	}
}

// A gateway with client certificates refuses a node without one and one of another authority. Check
// reports which, and what to do. The gateway accepts the right one.
func TestCheckClientCertificate(t *testing.T) {
	server, authority := testcert.New(t), testcert.New(t)
	lab := newKey(t, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.AnswerContentType)
		_, _ = w.Write([]byte(`{"accepted":0,"cluster":"lab"}`))
	}))
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	transport.NewAuthorities(authority.Cert, slog.New(slog.DiscardHandler)).Require(srv.TLS)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	defer srv.Close()
	right, wrong := authority.Client(t), testcert.New(t).Client(t)
	const next = " | set gateway.client_cert_file and gateway.client_key_file to a client certificate, and its key, of an authority in the gateway's client_ca_file"
	for name, c := range map[string]struct {
		own  *testcert.Certificate
		want []string
	}{
		"none":                {nil, []string{"gateway | failed | ", "it asks for a client certificate, and gateway.client_cert_file names none" + next}},
		"another authority's": {wrong, []string{"gateway | failed | ", "it refuses the client certificate in " + wrong.Cert + next}},
		"right":               {right, []string{"gateway | ok | ", "belongs to cluster lab", "client certificate | ok | ends at "}},
	} {
		own := ""
		if c.own != nil {
			own = ", client_cert_file: " + c.own.Cert + ", client_key_file: " + c.own.Key
		}
		lines := checked(t, "cluster: lab\ngateway: {url: '"+srv.URL+"', key_file: key, ca_file: "+server.Cert+own+"}\n", map[string]string{"key": lab.String()})
		for _, want := range c.want {
			if !strings.Contains(lines, want) {
				t.Errorf("%s: it lacks %q:\n%s", name, want, lines)
			}
		}
	}
	ended := testcert.Lasting(t, time.Now().AddDate(0, -2, 0), time.Now().Add(-time.Hour))
	if lines := checked(t, "cluster: lab\ngateway: {url: 'https://127.0.0.1:1', key_file: key, client_cert_file: "+ended.Cert+", client_key_file: "+ended.Key+"}\n", nil); !strings.Contains(lines, "client certificate | failed | the certificate in "+ended.Cert+" ended at ") {
		t.Error(lines)
	}
	if lines := checked(t, "cluster: lab\ngateway: {url: 'https://127.0.0.1:1', key_file: key, client_cert_file: x}\n", nil); !strings.Contains(lines, "client_cert_file and client_key_file belong together") {
		t.Error(lines)
	}
}

// An invalid secret is reported once, in a fixed order, with the right advice, and only for the
// configured way of delivery.
func TestCheckSecrets(t *testing.T) {
	for name, c := range map[string]struct {
		config  string
		secrets map[string]string
		want    string
	}{
		"a bad key": {
			"cluster: lab\ngateway: {url: 'http://127.0.0.1:1', key_file: key}\n", map[string]string{"key": "qmk_x"},
			`configuration | ok | node n1 of cluster lab | 
secret gateway.key_file | failed | not a cluster key: it has 5 characters, want 73; was it cut? | "quartermaster cluster register" shows the cluster's key once; "quartermaster key rotate" makes another
gateway | skipped | not asked, because its secret cannot be used | 
`},
		"Kafka beside a gateway": {
			"cluster: lab\ngateway: {url: 'http://127.0.0.1:1', key_file: key}\nkafka: {password_file: password}\n", map[string]string{"key": "qmk_x"},
			`configuration | ok | node n1 of cluster lab | 
secret gateway.key_file | failed | not a cluster key: it has 5 characters, want 73; was it cut? | "quartermaster cluster register" shows the cluster's key once; "quartermaster key rotate" makes another
gateway | skipped | not asked, because its secret cannot be used | 
`},
		"Kafka": {
			"cluster: lab\nkafka: {brokers: ['127.0.0.1:1'], mechanism: SCRAM-SHA-512, user: u, password_file: password, cert_file: cert, key_file: key}\n", map[string]string{"cert": "x"},
			`configuration | ok | node n1 of cluster lab | 
secret kafka.key_file | failed | there is no file key; create it, readable by this program alone | write the private key of kafka.cert_file into it, in PEM
secret kafka.password_file | failed | there is no file password; create it, readable by this program alone | write the password of kafka.user into it, as the brokers know it
kafka | skipped | not asked, because its secret cannot be used | 
`},
	} {
		for range 5 {
			if lines := checked(t, c.config, c.secrets); lines != c.want {
				t.Fatalf("%s:\n%s\nwant\n%s", name, lines, c.want)
			}
		}
	}
}

// The collector is run with the configured engine, and check reports the engine it attached to and
// the results of the others.
func TestCheckEngine(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles C")
	}
	lib, collector := builtCollector(t)
	machine, err := simdcgm.NewMachine(lib, t.TempDir(), "gpus 2")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range machine.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	engine := "tcp://" + l.Addr().String()
	cfg := &Config{Collector: CollectorConfig{Command: collector, Engine: engine}}
	found := checkCollector(t.Context(), cfg)
	if len(found) < 2 || found[0].Result != resultOK || !strings.Contains(found[0].Found, "engine "+engine+", 2 devices") || found[1] != (finding{"engine " + engine, resultOK, "used", ""}) {
		t.Errorf("%+v", found)
	}
	if got, err := machine.Connects(); err != nil || len(got) != 1 || got[0] != "tcp "+l.Addr().String() {
		t.Errorf("it connected to %q, %v", got, err)
	}
	lines := checked(t, "cluster: lab\ncollector: {command: nowhere, engine: '127.0.0.1:5555'}\ngateway: {url: 'http://127.0.0.1:1', key_file: key}\n", nil)
	if !strings.Contains(lines, `collector.engine: "127.0.0.1:5555" has no scheme: write tcp://127.0.0.1:5555`) {
		t.Error(lines)
	}
}
