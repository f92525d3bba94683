package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"pgregory.net/rapid"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/config/configtest"
)

// Nothing starts without each of its secrets, or with one that others can read.
func TestSecretsAreNeeded(t *testing.T) {
	path, secrets := configtest.Secrets(t)
	c, err := Load(path, noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files() {
		if f.Secret && secrets[f.field] == "" {
			t.Errorf("%s is not put to the test: give it a file", f.field)
		}
	}
	for field, name := range secrets {
		file := filepath.Join(filepath.Dir(path), name)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what, want string) {
			t.Helper()
			_, err := Load(path, noEnvironment)
			if err == nil {
				t.Errorf("%s: %s, and it starts", field, what)
				return
			}
			for _, part := range []string{path + ":", field + ": ", file, want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %s: %v\nlacks %q", field, what, err, part)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%s: %s: a secret is shown", field, what)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Remove(file))
		refused("missing", "there is no file")
		must(os.Mkdir(file, 0o700))
		refused("a directory", "is not a regular file")
		must(os.Remove(file))
		for _, empty := range []string{"", "\n", "\r\n\n"} {
			must(os.WriteFile(file, []byte(empty), 0o600))
			refused("empty", "is empty; write the secret into it")
		}
		must(os.WriteFile(file, []byte(strings.Repeat("hunter2 ", 4000)), 0o600))
		refused("large", "is larger than 16 KiB")
		must(os.WriteFile(file, content, 0o600))
		for _, mode := range []fs.FileMode{0o604, 0o606, 0o620, 0o602} {
			must(os.Chmod(file, mode))
			refused("open", fmt.Sprintf("is open to users other than its owner (mode %04o); if nobody read it: chmod 600 ", mode))
		}
		must(os.Chmod(file, 0o600))
		if _, err := Load(path, noEnvironment); err != nil {
			t.Fatalf("%s is as it was, and is refused: %v", field, err)
		}
	}
}

// Secrets reach what needs them.
func TestConfigForAdapters(t *testing.T) {
	path, _ := configtest.Secrets(t)
	c, err := Load(path, environment(map[string]string{"QUARTERMASTER_INSTANCE": "i1", "QUARTERMASTER_KAFKA_CODEC": "lz4"}))
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.ForKafka()
	if err != nil {
		t.Fatal(err)
	}
	if k.Codec != kafka.LZ4 || k.Replication != 3 || k.Batch != 5000 || k.ClientID != "quartermaster-i1" || k.MinBytes != 65536 || k.MaxWait != 250*time.Millisecond ||
		k.TLS == nil || k.TLS.RootCAs == nil || len(k.TLS.Certificates) != 1 || k.SASL == nil || k.SASL.Name() != "SCRAM-SHA-512" {
		t.Errorf("%+v", k)
	}
	p, err := c.ForPostgres()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := pq.NewConfig(p.DSN)
	if err != nil || cfg.Password != configtest.Hunter2 || cfg.ApplicationName != "quartermaster i1" || cfg.Database != "rows" || p.MaxConns != 16 || !reflect.DeepEqual(p.Readers, []postgres.Reader{{Role: "finance"}, {Role: "bi", Workspaces: []string{"acme"}}}) {
		t.Errorf("%v: %s %s, %d connections, readers %q", err, cfg.ApplicationName, cfg.Database, p.MaxConns, p.Readers)
	}
	if len(p.Others) != 1 {
		t.Fatalf("%+v", p.Others)
	}
	o := p.Others[0]
	cfg, err = pq.NewConfig(o.DSN)
	if err != nil || cfg.Password != configtest.Hunter2 || cfg.Database != "more" || o.Name != "more" || len(o.Partitions) != 4 || o.Partitions[0].String() != "qm.telemetry/4" {
		t.Errorf("%v: %s, %s %v", err, cfg.Database, o.Name, o.Partitions)
	}
	for mechanism, name := range map[string]string{"PLAIN": "PLAIN", "SCRAM-SHA-256": "SCRAM-SHA-256"} {
		c.Kafka.SASL.Mechanism = mechanism
		if k, err := c.ForKafka(); err != nil || k.SASL.Name() != name {
			t.Errorf("%s: %v", mechanism, err)
		}
	}

	// What is there and unfit is named, and not quoted.
	dir := filepath.Dir(path)
	for name, want := range map[string]string{
		"cert.pem":       "kafka.tls.ca_file: " + filepath.Join(dir, "cert.pem") + " holds no certificate in PEM",
		"tls.key":        "kafka.tls.cert_file: ",
		"kafka.password": "kafka.sasl.password_file: user or password holds characters that SCRAM forbids",
		"dsn":            "postgres.dsn_file: is not a connection string; write postgres://",
		"checkpoint.key": "schedules.checkpoint_key_file: ",
	} {
		file := filepath.Join(dir, name)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("hunter2\x01\u0627x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, noEnvironment); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "dsn"), []byte("postgres://u:hunter2@db/rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, noEnvironment); err == nil || !strings.Contains(err.Error(), "postgres.password_file: stands beside a password in") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("two passwords: %v", err)
	}
}

// Any password reaches Postgres as it is, whatever the form of the connection
// string, and is told from none.
func TestDSNHoldsAnyPassword(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringN(1, 20, -1).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }).Draw(t, "password")
		for _, dsn := range []string{
			"postgres://u@h:1/d", "postgresql://u@h/d?sslmode=disable&connect_timeout=3", "postgres:///d?host=/run/x", "host=h user=u", "host='h' dbname = 'a b'", "",
		} {
			if with, err := readDSN(dsn); with || err != nil {
				t.Fatalf("%s holds a password: %t, %v", dsn, with, err)
			}
			full := addToDSN(dsn, map[string]string{"password": password})
			cfg, err := pq.NewConfig(full)
			if err != nil || cfg.Password != password {
				t.Fatalf("%s and %q: %q, %v", dsn, password, cfg.Password, err)
			}
			if with, err := readDSN(full); !with || err != nil {
				t.Fatalf("%q holds no password: %v", full, err)
			}
		}
	})
}
