// Package config is the file of a production installation: what it may say, its
// defaults, what the environment overrides, and what is refused. [Load] reads and checks
// all of it and connects to nothing; [Config.ForKafka] and [Config.ForPostgres] give the
// adapters what they need to connect.
package config

import (
	"database/sql/driver"
	_ "embed"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/projections"
)

// Config is the file in production: the log is an Apache Kafka, the rows
// are in Postgres, and several instances with the same file share the work.
//
// Every field but webhooks can be set in the environment instead, as
// QUARTERMASTER_ and the path of its key in capitals, lists separated by commas:
// QUARTERMASTER_POSTGRES_DSN_FILE. What stands there overrides the file; a
// variable that is empty is one that is not set.
//
// Secrets stand in files of their own, which the fields that end in _file name.
// A path in the file counts from the file's directory, a path in the environment
// from where the program runs.
//
// The tag default is what a field has that is given nowhere. deploy/quartermaster.yaml
// is the manual for operators, of the same content as the comments here.
type Config struct {
	// Instance names this process among those that share the work; the host's
	// name when empty. No two that run at once may have the same, and none begins
	// with rebuild-, which "quartermaster generation rebuild" goes by.
	Instance string `yaml:"instance"`

	Kafka    Kafka    `yaml:"kafka"`
	Postgres Postgres `yaml:"postgres"`

	// Listen is the address of the HTTP endpoints.
	Listen string `yaml:"listen" default:"127.0.0.1:7070"`

	Gateway Gateway `yaml:"gateway"`

	// Snapshots is the directory of snapshots of the rows. When empty none can be
	// scheduled, and those that a person makes are in the data directory (--data-dir).
	// Instances on several machines need one that all of them reach, or a plan to
	// copy from each. Nothing that is kept there is ever removed.
	Snapshots string `yaml:"snapshots"`

	// Lease is how long an instance may be silent before others take over what it
	// folds: 1s to 1m.
	Lease time.Duration `yaml:"lease" default:"4s"`

	Schedules Schedules `yaml:"schedules"`

	// Webhooks are told of events. The environment has no say in them.
	Webhooks []Webhook `yaml:"webhooks"`

	File *configfile.File // where the value of each field came from

	// Tests put these between the program and its database, and in place of what
	// decodes records.
	WrapDatabase func(driver.Connector) driver.Connector
	Decoder      func() projections.Decoder
}

// Kafka says how to reach the log.
type Kafka struct {
	// Brokers are the host:port addresses asked first.
	Brokers []string `yaml:"brokers"`
	// Replication is the replication factor of topics that are created, and the least
	// that existing ones may have.
	Replication int `yaml:"replication" default:"3"`
	// Codec compresses what is appended: zstd, or lz4 for installations whose
	// other programs lack zstd.
	Codec string `yaml:"codec" default:"zstd"`
	// Batch is about how many events are folded in one transaction while a backlog
	// is worked off.
	Batch int  `yaml:"batch" default:"20000"`
	TLS   TLS  `yaml:"tls"`
	SASL  SASL `yaml:"sasl"`
}

// TLS encrypts connections to the brokers when Enabled.
type TLS struct {
	Enabled bool `yaml:"enabled" default:"false"`
	// CAFile holds the certificates that are trusted, in PEM; the system's when empty.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile identify this program to the brokers, in PEM. The key
	// is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name to be found in the broker's certificate; the host dialled when empty.
	ServerName string `yaml:"server_name"`
}

// SASL authenticates to the brokers when Mechanism is given.
type SASL struct {
	Mechanism    string `yaml:"mechanism"` // SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN, which needs TLS
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// Postgres says how to reach the rows.
type Postgres struct {
	// DSN is a libpq connection string without a password; DSNFile names a file
	// that holds one, with or without. One of the two is needed.
	DSN     string `yaml:"dsn"`
	DSNFile string `yaml:"dsn_file"`
	// PasswordFile names a file with the password, when DSNFile holds none.
	PasswordFile string `yaml:"password_file"`
	// MaxConns bounds the connections of one process.
	MaxConns int `yaml:"max_conns" default:"16"`
	// Readers are roles that may read the tables and views: small letters, digits
	// and underscores.
	Readers []string `yaml:"readers"`
}

// Gateway says how nodes and Prometheus push what they saw.
type Gateway struct {
	// Listen is the address that takes events; none are taken when it is empty.
	Listen string `yaml:"listen"`
	// CertFile and KeyFile hold the certificate of the gateway and its key, in PEM;
	// both are read again when they change. The key is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ClientCAFile holds authorities, in PEM, and is read again when it changes. Who shows
	// no certificate of theirs is refused; none is asked for when it is empty. The key of
	// the cluster is needed all the same.
	ClientCAFile string `yaml:"client_ca_file"`
	// TLSMin is the oldest TLS that it speaks: 1.3, or 1.2 with AEAD suites alone.
	TLSMin string `yaml:"tls_min" default:"1.3"`
	// Plain takes events without TLS from other machines, which is for a proxy
	// that ends TLS before the gateway.
	Plain bool `yaml:"plain" default:"false"`
	// Rate is how many events a second are taken from the nodes of one cluster; of its
	// Prometheus ten times as many samples.
	Rate int `yaml:"rate" default:"20000"`
	// MaxAge is how old events of nodes may be, and MaxAhead how far they may be dated
	// ahead of the clock. What is beyond is refused; the bounds may be made narrower.
	MaxAge   time.Duration `yaml:"max_age" default:"168h"`
	MaxAhead time.Duration `yaml:"max_ahead" default:"10m"`
}

// Schedules says when to do what, in cron's five fields and UTC. An empty
// one is never run.
type Schedules struct {
	Plan          string `yaml:"plan"`
	Snapshot      string `yaml:"snapshot"`
	CloseReminder string `yaml:"close_reminder"`
	Checkpoint    string `yaml:"checkpoint"`
	// CheckpointKeyFile names the Ed25519 key, in PEM, that signs checkpoints:
	// "quartermaster operator" makes one.
	CheckpointKeyFile string `yaml:"checkpoint_key_file"`
}

// Webhook names an address that is told of events, by a POST of one
// CloudEvents JSON event each.
type Webhook struct {
	Name string `yaml:"name"` // names the consumer group: keep it when the address changes
	URL  string `yaml:"url"`
	// Types are the event types to tell of; all alerts when empty.
	Types []string `yaml:"types"`
	// SecretFile names a file whose content signs the body with HMAC-SHA-256;
	// nothing is signed when empty.
	SecretFile string `yaml:"secret_file"`
}

// envPrefix begins the names of variables.
const envPrefix = "QUARTERMASTER_"

// Load reads the file, lays the environment over it, fills in what is given
// nowhere, and refuses what could not work, every secret that is not there
// included. It connects to nothing. Without a path everything is taken from the
// environment.
func Load(path string, getenv func(string) string) (*Config, error) {
	c, err := Read(path, getenv)
	if err != nil {
		return nil, err
	}
	if err := c.CheckSecrets(); err != nil {
		return nil, err
	}
	return c, nil
}

var errNoConfig = errors.New("no configuration is named: give --config FILE, or everything in the environment; \"quartermaster config example\" prints one to begin from")

// Read is loadConfig without opening the files that the config names.
func Read(path string, getenv func(string) string) (*Config, error) {
	c := &Config{}
	if path == "" && !configfile.Given(envPrefix, getenv, c) {
		return nil, errNoConfig
	}
	file, err := configfile.Read(path, envPrefix, getenv, c)
	if err != nil {
		return nil, err
	}
	return c.of(file)
}

// of returns what was read from a file, if it could work.
func (c *Config) of(file *configfile.File) (*Config, error) {
	c.File = file
	c.validate(file)
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Example is a file to begin from: deploy/quartermaster.yaml.
//
//go:embed quartermaster.yaml
var Example []byte

// Values returns what is in effect, fit to be shown.
func (c *Config) Values() []configfile.Value {
	out := c.File.Values()
	for i := range out {
		if hooks, ok := out[i].Value.([]Webhook); ok {
			shown := []Webhook{}
			for _, w := range hooks {
				w.URL = HiddenURL(w.URL)
				shown = append(shown, w)
			}
			out[i].Value = shown
		}
	}
	return out
}

// HiddenURL leaves of an address what is no secret.
func HiddenURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "…"
	}
	if u.Path == "" && u.RawQuery == "" {
		return u.Scheme + "://" + u.Host
	}
	return u.Scheme + "://" + u.Host + "/…"
}

// EnvironmentFaults finds variables that look like fields and are none: a
// misspelt one would go unnoticed.
func (c *Config) EnvironmentFaults(environ []string) []string {
	known := []string{"QUARTERMASTER_DATA_DIR", "QUARTERMASTER_CONFIG", "QUARTERMASTER_DATA"}
	return slices.DeleteFunc(c.File.Unknown(environ), func(name string) bool {
		return slices.Contains(known, name) || ofKubernetes.MatchString(name)
	})
}

// ofKubernetes are the variables that Kubernetes sets in every container for a
// service whose name begins with quartermaster.
var ofKubernetes = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_[0-9]+_(TCP|UDP|SCTP).*)?$`)
