package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lib/pq"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/postgres"
)

// maxSecret bounds a file with a secret, and one with certificates.
const (
	maxSecret       = 16 << 10
	maxCertificates = 1 << 20
)

// readSecret returns the content of a file, without the ends of lines after it.
// A file that others than its owner may open is refused, unless root wrote it
// for this program: see exposed. Errors never quote the content.
func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no file %s; create it, readable by this program alone", path)
	}
	if err != nil {
		return "", err
	}
	if exposed(path, info) {
		return "", fmt.Errorf("%s is open to others than its owner (mode %04o); if nobody read it: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	data, err := readSmall(path, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty; write the secret into it", path)
	}
	return secret, nil
}

// secretMounts are where container engines lay the secrets of one container.
// Their files belong to root and are open to all there is within the container.
var secretMounts = []string{"/run/secrets/", "/var/run/secrets/"}

// exposed reports whether others than those it is meant for may read or write a
// file. Root may hand one to a group (mode 0440, as fsGroup does in Kubernetes),
// and to a whole container below secretMounts.
func exposed(path string, info fs.FileInfo) bool {
	perm := info.Mode().Perm()
	if perm&0o077 == 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 || perm&0o022 != 0 {
		return true
	}
	if perm&0o007 == 0 {
		return false
	}
	for _, dir := range secretMounts {
		if strings.HasPrefix(filepath.Clean(path), dir) {
			return false
		}
	}
	return true
}

// checkSecrets opens every file that holds a secret, and all that is needed to
// connect, as later use will.
func (c *config) checkSecrets() error {
	f := &faults{file: "configuration", from: c.from}
	for _, file := range c.files() {
		if !file.secret || *file.path == "" {
			continue
		}
		if _, err := readSecret(*file.path); err != nil {
			f.add(file.field, "%v", err)
		}
	}
	if len(f.list) == 0 {
		if _, err := c.kafka(); err != nil {
			f.list = append(f.list, err)
		}
		if _, err := c.postgres(); err != nil {
			f.list = append(f.list, err)
		}
		if path := c.Schedules.CheckpointKeyFile; path != "" {
			if _, err := keyfile.LoadFor(path, exposed); err != nil {
				f.add("schedules.checkpoint_key_file", "%v", err)
			}
		}
	}
	return f.err()
}

// wrong is a fault of a field found later than by validate.
func (c *config) wrong(path, format string, args ...any) error {
	f := &faults{file: "configuration", from: c.from}
	f.add(path, format, args...)
	return f.err()
}

// Live folding gathers this much, or for this long, before it pays for a
// transaction.
const (
	gatherBytes = 64 << 10
	gatherFor   = 250 * time.Millisecond
)

// kafka returns how to reach the log.
func (c *config) kafka() (kafka.Config, error) {
	k := c.Kafka
	out := kafka.Config{
		Brokers: k.Brokers, Replication: k.Replication, Batch: k.Batch,
		ClientID: "quartermaster-" + c.Instance,
		MinBytes: gatherBytes, MaxWait: gatherFor,
	}
	if k.Codec == "lz4" {
		out.Codec = kafka.LZ4
	}
	var err error
	if k.TLS.Enabled {
		if out.TLS, err = c.tls(); err != nil {
			return kafka.Config{}, err
		}
	}
	if k.SASL.Mechanism != "" {
		if out.SASL, err = c.sasl(); err != nil {
			return kafka.Config{}, err
		}
	}
	return out, nil
}

func (c *config) tls() (*tls.Config, error) {
	t := c.Kafka.TLS
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := readSmall(t.CAFile, maxCertificates)
		if err != nil {
			return nil, c.wrong("kafka.tls.ca_file", "%v", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, c.wrong("kafka.tls.ca_file", "%s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := readSmall(t.CertFile, maxCertificates)
		if err != nil {
			return nil, c.wrong("kafka.tls.cert_file", "%v", err)
		}
		key, err := readSecret(t.KeyFile)
		if err != nil {
			return nil, c.wrong("kafka.tls.key_file", "%v", err)
		}
		pair, err := tls.X509KeyPair(cert, []byte(key))
		if err != nil {
			return nil, c.wrong("kafka.tls.cert_file", "%s and %s are no certificate and its key in PEM: %v", t.CertFile, t.KeyFile, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func (c *config) sasl() (sasl.Mechanism, error) {
	s := c.Kafka.SASL
	password, err := readSecret(s.PasswordFile)
	if err != nil {
		return nil, c.wrong("kafka.sasl.password_file", "%v", err)
	}
	algorithm := scram.SHA512
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.User, Password: password}, nil
	case "SCRAM-SHA-256":
		algorithm = scram.SHA256
	}
	m, err := scram.Mechanism(algorithm, s.User, password)
	if err != nil { // which would quote the password
		return nil, c.wrong("kafka.sasl.password_file", "user or password holds characters that SCRAM forbids")
	}
	return m, nil
}

// postgres returns how to reach the rows.
func (c *config) postgres() (postgres.Config, error) {
	p := c.Postgres
	dsn, field := p.DSN, "postgres.dsn"
	if p.DSNFile != "" {
		var err error
		field = "postgres.dsn_file"
		if dsn, err = readSecret(p.DSNFile); err != nil {
			return postgres.Config{}, c.wrong(field, "%v", err)
		}
	}
	withPassword, err := readDSN(dsn)
	if err != nil {
		return postgres.Config{}, c.wrong(field, "%v", err)
	}
	extra := map[string]string{"fallback_application_name": "quartermaster " + c.Instance}
	if p.PasswordFile != "" {
		if withPassword {
			return postgres.Config{}, c.wrong("postgres.password_file", "stands beside a password in %s; keep one of the two", p.DSNFile)
		}
		if extra["password"], err = readSecret(p.PasswordFile); err != nil {
			return postgres.Config{}, c.wrong("postgres.password_file", "%v", err)
		}
	}
	return postgres.Config{DSN: addToDSN(dsn, extra), MaxConns: p.MaxConns, Readers: p.Readers, Wrap: c.wrap}, nil
}

// readDSN checks a connection string and tells whether it holds a password. Its
// errors do not quote it.
func readDSN(dsn string) (withPassword bool, err error) {
	if _, err := pq.NewConfig(""); err != nil {
		return false, fmt.Errorf("the environment's own settings of Postgres are at fault: %v", err)
	}
	const none = "-none-"
	cfg, err := pq.NewConfig(addToDSN(dsn, map[string]string{"password": none}))
	if err != nil {
		return false, errors.New("is no connection string; write postgres://user@host:5432/database, or host=… user=… dbname=…")
	}
	if cfg.Password != none {
		return true, nil
	}
	if u, err := url.Parse(dsn); err == nil && isURL(dsn) {
		_, withPassword = u.User.Password()
		withPassword = withPassword || u.Query().Has("password")
	}
	return withPassword, nil
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// addToDSN adds settings to a connection string, which wins where it has them
// itself.
func addToDSN(dsn string, settings map[string]string) string {
	if u, err := url.Parse(dsn); err == nil && isURL(dsn) {
		q := u.Query()
		for key, value := range settings {
			if !q.Has(key) {
				q.Set(key, value)
			}
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	if isURL(dsn) {
		return dsn // as it is, to be refused
	}
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	var b strings.Builder
	for _, key := range []string{"password", "fallback_application_name"} {
		if value, ok := settings[key]; ok {
			fmt.Fprintf(&b, "%s='%s' ", key, escape.Replace(value))
		}
	}
	return b.String() + dsn
}
