package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/lib/pq"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/transport"
)

// maxCertificates bounds a file of certificates.
const maxCertificates = 1 << 20

// CheckSecrets opens every file that holds a secret or is needed to connect, in the same way as
// later use.
func (c *Config) CheckSecrets() error {
	f := c.File.Afresh()
	for _, file := range c.Files() {
		if !file.Secret || *file.Path == "" {
			continue
		}
		if _, err := configfile.Secret(*file.Path); err != nil {
			f.Add(file.field, "%v", err)
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	_, kafkaErr := c.ForKafka()
	_, postgresErr := c.ForPostgres()
	if path := c.Schedules.CheckpointKeyFile; path != "" {
		if _, err := keyfile.LoadFor(path, configfile.Exposed); err != nil {
			f.Add("schedules.checkpoint_key_file", "%v", err)
		}
	}
	return errors.Join(kafkaErr, postgresErr, f.Err())
}

// wrong returns a fault of a field that validate cannot find.
func (c *Config) wrong(path, format string, args ...any) error {
	f := c.File.Afresh()
	f.Add(path, format, args...)
	return f.Err()
}

// Live folding gathers this many events, or waits this long, before it commits a transaction.
const (
	gatherBytes = 64 << 10
	gatherFor   = 250 * time.Millisecond
)

// ForKafka returns how to connect to the log.
func (c *Config) ForKafka() (kafka.Config, error) {
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

func (c *Config) tls() (*tls.Config, error) {
	t := c.Kafka.TLS
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		var err error
		if out.RootCAs, err = transport.Pool(t.CAFile); err != nil {
			return nil, c.wrong("kafka.tls.ca_file", "%v", err)
		}
	}
	if t.CertFile != "" {
		cert, err := configfile.Small(t.CertFile, maxCertificates)
		if err != nil {
			return nil, c.wrong("kafka.tls.cert_file", "%v", err)
		}
		key, err := configfile.Secret(t.KeyFile)
		if err != nil {
			return nil, c.wrong("kafka.tls.key_file", "%v", err)
		}
		pair, err := tls.X509KeyPair(cert, []byte(key))
		if err != nil {
			return nil, c.wrong("kafka.tls.cert_file", "%s and %s are not a certificate and its key in PEM: %v", t.CertFile, t.KeyFile, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func (c *Config) sasl() (sasl.Mechanism, error) {
	s := c.Kafka.SASL
	password, err := configfile.Secret(s.PasswordFile)
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
	if err != nil { // the error would quote the password
		return nil, c.wrong("kafka.sasl.password_file", "user or password holds characters that SCRAM forbids")
	}
	return m, nil
}

// ForPostgres returns how to connect to the rows.
func (c *Config) ForPostgres() (postgres.Config, error) {
	p := c.Postgres
	dsn, err := c.connection("postgres", p.DSN, p.DSNFile, p.PasswordFile)
	if err != nil {
		return postgres.Config{}, err
	}
	cfg := postgres.Config{DSN: dsn, MaxConns: p.MaxConns, Wrap: c.WrapDatabase, Patient: c.Patient}
	for _, r := range p.Readers {
		cfg.Readers = append(cfg.Readers, postgres.Reader{Role: r.Role, Workspaces: r.Workspaces})
	}
	for i, d := range p.Others {
		at := fmt.Sprintf("postgres.others[%d]", i)
		dsn, err := c.connection(at, d.DSN, d.DSNFile, d.PasswordFile)
		if err != nil {
			return postgres.Config{}, err
		}
		o := postgres.Other{Name: d.Name, DSN: dsn}
		for _, text := range d.Partitions {
			some, err := partitionsOf(text)
			if err != nil {
				return postgres.Config{}, c.wrong(at+".partitions", "%v", err)
			}
			o.Partitions = append(o.Partitions, some...)
		}
		cfg.Others = append(cfg.Others, o)
	}
	return cfg, nil
}

// connection returns a connection string with its password. The fields are below at.
func (c *Config) connection(at, dsn, dsnFile, passwordFile string) (string, error) {
	field := at + ".dsn"
	if dsnFile != "" {
		var err error
		field = at + ".dsn_file"
		if dsn, err = configfile.Secret(dsnFile); err != nil {
			return "", c.wrong(field, "%v", err)
		}
	}
	withPassword, err := readDSN(dsn)
	if err != nil {
		return "", c.wrong(field, "%v", err)
	}
	extra := map[string]string{"fallback_application_name": "quartermaster " + c.Instance}
	if passwordFile != "" {
		if withPassword {
			return "", c.wrong(at+".password_file", "stands beside a password in %s; keep one of the two", dsnFile)
		}
		if extra["password"], err = configfile.Secret(passwordFile); err != nil {
			return "", c.wrong(at+".password_file", "%v", err)
		}
	}
	return addToDSN(dsn, extra), nil
}

// readDSN checks a connection string and tells whether it holds a password. Its
// errors do not quote it.
func readDSN(dsn string) (withPassword bool, err error) {
	if _, err := pq.NewConfig(""); err != nil {
		return false, fmt.Errorf("the Postgres settings in the environment are wrong: %v", err)
	}
	const none = "-none-"
	cfg, err := pq.NewConfig(addToDSN(dsn, map[string]string{"password": none}))
	if err != nil {
		return false, errors.New("is not a connection string; write postgres://user@host:5432/database, or host=… user=… dbname=…")
	}
	if cfg.Password != none {
		return true, nil
	}
	if u, err := url.Parse(dsn); err == nil && IsURL(dsn) {
		_, withPassword = u.User.Password()
		withPassword = withPassword || u.Query().Has("password")
	}
	return withPassword, nil
}

// IsURL reports whether a connection string is a URL rather than keywords.
func IsURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// addToDSN adds settings to a connection string. Settings that it already has take precedence.
func addToDSN(dsn string, settings map[string]string) string {
	if u, err := url.Parse(dsn); err == nil && IsURL(dsn) {
		q := u.Query()
		for key, value := range settings {
			if !q.Has(key) {
				q.Set(key, value)
			}
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	if IsURL(dsn) {
		return dsn // unchanged, to be refused
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
