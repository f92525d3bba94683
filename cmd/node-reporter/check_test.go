package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/httpapi"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/projections"
)

// checked writes a configuration and its secrets, runs the check, and returns what it
// finds of them and of delivery.
func checked(t *testing.T, config string, secrets map[string]string) (lines string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "node-reporter.yaml")
	if err := os.WriteFile(path, []byte("node: n1\nspool: {dir: spool}\ncollector: {command: nowhere}\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	run([]string{"check", "--config", path, "--json"}, &out, &errs)
	var ans struct{ Checks []finding }
	if err := json.Unmarshal([]byte(out.String()), &ans); err != nil {
		t.Fatalf("%s%s: %v", out.String(), errs.String(), err)
	}
	for _, f := range ans.Checks {
		if strings.HasPrefix(f.Check, "secret ") || f.Check == "gateway" || f.Check == "kafka" || f.Check == "configuration" {
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

// The gateway as it is says whose key it was shown, so that a key of another cluster
// is found before a node begins with it.
func TestCheckWhoseKey(t *testing.T) {
	lab, eu, stranger := newKey(t, 1), newKey(t, 2), newKey(t, 3)
	srv := httptest.NewServer(&httpapi.Gateway{
		Keys: &httpapi.Keys{
			Load: func(context.Context) ([]projections.ClusterKeyEntry, error) {
				return []projections.ClusterKeyEntry{
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
		"the cluster's":     {lab, []string{"gateway | ok | ", "that of cluster lab"}},
		"another cluster's": {eu, []string{"gateway | failed | ", "the key, which is that of cluster eu, and this node is configured as one of cluster lab", "write the key of cluster lab into key, or correct cluster"}},
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

// What is wrong with a secret is said once, in the same order each time, and advised on
// as what it is: nobody who uses one way of delivery is told of the other.
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
gateway | skipped | it is not asked without its secret | 
`},
		"Kafka beside a gateway": {
			"cluster: lab\ngateway: {url: 'http://127.0.0.1:1', key_file: key}\nkafka: {password_file: password}\n", map[string]string{"key": "qmk_x"},
			`configuration | ok | node n1 of cluster lab | 
secret gateway.key_file | failed | not a cluster key: it has 5 characters, want 73; was it cut? | "quartermaster cluster register" shows the cluster's key once; "quartermaster key rotate" makes another
gateway | skipped | it is not asked without its secret | 
`},
		"Kafka": {
			"cluster: lab\nkafka: {brokers: ['127.0.0.1:1'], mechanism: SCRAM-SHA-512, user: u, password_file: password, cert_file: cert, key_file: key}\n", map[string]string{"cert": "x"},
			`configuration | ok | node n1 of cluster lab | 
secret kafka.key_file | failed | there is no file key; create it, readable by this program alone | write the private key of kafka.cert_file into it, in PEM
secret kafka.password_file | failed | there is no file password; create it, readable by this program alone | write the password of kafka.user into it, as the brokers know it
kafka | skipped | it is not asked without its secret | 
`},
	} {
		for range 5 {
			if lines := checked(t, c.config, c.secrets); lines != c.want {
				t.Fatalf("%s:\n%s\nwant\n%s", name, lines, c.want)
			}
		}
	}
}
