// Package configtest writes configurations with every kind of secret, for tests.
package configtest

import (
	"os"
	"path/filepath"
	"testing"

	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/transport/testcert"
)

// Hunter2 is part of every secret of [Secrets].
const Hunter2 = "hunter2-'\\ %"

// Certificate returns a self-signed certificate for localhost and its key, in PEM.
func Certificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	c := testcert.New(t)
	for file, text := range map[string]*[]byte{c.Cert: &cert, c.Key: &key} {
		var err error
		if *text, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// Secrets writes a configuration with every kind of secret.
func Secrets(t *testing.T) (path string, secrets map[string]string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := Certificate(t)
	write("cert.pem", string(cert))
	write("tls.key", string(key))
	write("gateway.key", string(key))
	write("api.key", string(key))
	write("kafka.password", Hunter2+"\n")
	write("dsn", "host=127.0.0.1 port=1 user=u dbname=rows")
	write("db.password", Hunter2+"\r\n")
	write("dsn2", "host=127.0.0.1 port=1 user=u dbname=more")
	write("db2.password", Hunter2)
	write("hook.secret", Hunter2)
	write("token", Hunter2)
	if _, err := keyfile.Create(filepath.Join(dir, "checkpoint.key")); err != nil {
		t.Fatal(err)
	}
	write("q.yaml", `
kafka:
  brokers: [127.0.0.1:1]
  tls: {enabled: true, ca_file: cert.pem, cert_file: cert.pem, key_file: tls.key}
  sasl: {mechanism: SCRAM-SHA-512, user: u, password_file: kafka.password}
postgres:
  dsn_file: dsn
  password_file: db.password
  readers: [{role: finance, whole_estate: true}, {role: bi, workspaces: [acme]}]
  others: [{name: more, dsn_file: dsn2, password_file: db2.password, partitions: [qm.telemetry/4-7]}]
api: {listen: "127.0.0.1:0", cert_file: cert.pem, key_file: api.key}
gateway: {listen: "127.0.0.1:0", cert_file: cert.pem, key_file: gateway.key}
schedules: {checkpoint: 0 1 * * *, checkpoint_key_file: checkpoint.key}
archive: {url: 's3://bucket'}
webhooks: [{name: a, url: "https://example.com/hunter2", secret_file: hook.secret}]
alertmanagers: [{name: a, url: "https://example.com/hunter2", token_file: token}]
`)
	return filepath.Join(dir, "q.yaml"), map[string]string{
		"kafka.tls.key_file": "tls.key", "kafka.sasl.password_file": "kafka.password",
		"gateway.key_file": "gateway.key", "api.key_file": "api.key",
		"postgres.dsn_file": "dsn", "postgres.password_file": "db.password",
		"postgres.others[0].dsn_file": "dsn2", "postgres.others[0].password_file": "db2.password",
		"schedules.checkpoint_key_file": "checkpoint.key", "webhooks[0].secret_file": "hook.secret",
		"alertmanagers[0].token_file": "token",
	}
}
