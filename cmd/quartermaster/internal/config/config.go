// Package config is the configuration file of a production installation: its fields, their
// defaults, what the environment overrides, and what is refused. [Load] reads and checks all of
// it without connecting to anything. [Config.ForKafka] and [Config.ForPostgres] return what the
// adapters need to connect.
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

// Config is the configuration file. The log is an Apache Kafka cluster, the rows are in Postgres,
// and several instances with the same file share the work.
//
// Every field except webhooks, alertmanagers, api.providers, postgres.readers and postgres.others can be set in the
// environment instead, as QUARTERMASTER_ and the path of its key in capitals, lists separated by
// commas: QUARTERMASTER_POSTGRES_DSN_FILE. The environment overrides the file. An empty variable
// counts as not set.
//
// Secrets are in separate files, named by the fields that end in _file. A path in the file is
// relative to the file's directory, a path in the environment to the working directory.
//
// The tag default is the value of a field that is not set. deploy/quartermaster.yaml is the
// manual for operators, with the same content as the comments here.
type Config struct {
	// Instance names this process among those that share the work; the host name when empty.
	// Names of running processes must differ, and must not begin with rebuild-, which
	// "quartermaster generation rebuild" uses.
	Instance string `yaml:"instance"`

	Kafka    Kafka    `yaml:"kafka"`
	Postgres Postgres `yaml:"postgres"`

	// Listen is the address of the HTTP endpoints.
	Listen string `yaml:"listen" default:"127.0.0.1:7070"`

	API     API     `yaml:"api"`
	Gateway Gateway `yaml:"gateway"`

	// Snapshots is the directory of snapshots of the rows. When empty none can be scheduled, and
	// those made by commands are in the data directory (--data-dir). Instances on several
	// machines need a shared one, or a plan to copy from each. Of its files only scheduled
	// snapshots are removed, see [Schedules].
	Snapshots string `yaml:"snapshots"`

	// Parts is where the rows of sealed months are: a directory, or a bucket, as s3://bucket/prefix.
	// When empty they are in the data directory (--data-dir). No file in it is ever removed, and no
	// Parquet file is changed. Rows leave the database only if it is set: every instance MUST read the
	// same place then.
	Parts      string     `yaml:"parts"`
	PartsCache PartsCache `yaml:"parts_cache"`

	// PeopleKeys is the directory of the keys with which people's names are sealed in the log. When empty
	// it is people-keys in the data directory (--data-dir). It MUST NOT be in backups of the log: a copy of
	// a key undoes an erasure. Commands that name people and the schedule of removals need it.
	PeopleKeys string `yaml:"people_keys"`

	Archive Archive `yaml:"archive"`

	// Lease is how long an instance may be silent before others take over its partitions: 1s to
	// 1m.
	Lease time.Duration `yaml:"lease" default:"4s"`

	Schedules Schedules `yaml:"schedules"`

	// Webhooks receive events. They cannot be set in the environment.
	Webhooks []Webhook `yaml:"webhooks"`
	// Alertmanagers are told of open incidents. They cannot be set in the environment.
	Alertmanagers []Alertmanager `yaml:"alertmanagers"`

	File *configfile.File // where the value of each field came from

	// Set by tests: WrapDatabase wraps the connections to the database, Decoder replaces the decoder
	// of records, and Patient makes few rows wait to be written as many do.
	WrapDatabase func(driver.Connector) driver.Connector
	Decoder      func() projections.Decoder
	Patient      bool
}

// Kafka says how to reach the log.
type Kafka struct {
	// Brokers are the host:port addresses asked first.
	Brokers []string `yaml:"brokers"`
	// Replication is the replication factor of topics that are created, and the least
	// that existing ones may have.
	Replication int `yaml:"replication" default:"3"`
	// Codec compresses appended records: zstd, or lz4 where other readers of the log lack zstd.
	Codec string `yaml:"codec" default:"zstd"`
	// Batch is about how many events are read at a time while there is a backlog.
	Batch int  `yaml:"batch" default:"5000"`
	TLS   TLS  `yaml:"tls"`
	SASL  SASL `yaml:"sasl"`
}

// TLS encrypts connections to the brokers when Enabled.
type TLS struct {
	Enabled bool `yaml:"enabled" default:"false"`
	// CAFile holds the trusted certificates, in PEM; the system's when empty.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile identify this program to the brokers, in PEM. The key
	// is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the expected name in the broker's certificate; the dialled host when empty.
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
	// Readers are roles that may read views. They cannot be set in the environment.
	Readers []Reader `yaml:"readers"`
	// Others are databases that have the rows of some partitions. They cannot be set in the
	// environment.
	Others []Database `yaml:"others"`
}

// Reader is a role of the database that may read views.
type Reader struct {
	// Role is a name of small letters, digits and underscores.
	Role string `yaml:"role"`
	// Workspaces are those that the role sees, with the workspaces below them.
	Workspaces []string `yaml:"workspaces"`
	// WholeEstate lets the role see everything instead.
	WholeEstate bool `yaml:"whole_estate"`
}

// Database is a database beside the first one. It begins empty.
type Database struct {
	// Name is recorded in the first database and stays the same.
	Name string `yaml:"name"`
	// DSN, DSNFile and PasswordFile are as in [Postgres].
	DSN          string `yaml:"dsn"`
	DSNFile      string `yaml:"dsn_file"`
	PasswordFile string `yaml:"password_file"`
	// Partitions are those whose rows are here: TOPIC, TOPIC/3 or TOPIC/4-7. All others are in the
	// first database. It holds for generations that are made from now on.
	Partitions []string `yaml:"partitions"`
}

// API configures where questions are answered.
type API struct {
	// Socket is a unix socket. Only root and the user of this process may use it, and they may ask everything. When
	// empty there is none.
	Socket string `yaml:"socket"`
	// Listen is the address that answers whoever has a grant; none when empty.
	Listen string `yaml:"listen"`
	// CertFile and KeyFile hold the certificate of the API and its key, in PEM; both are reloaded when they change. The
	// key is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Plain answers without TLS to other machines, which is for a proxy that terminates TLS in front of the API.
	Plain bool `yaml:"plain" default:"false"`
	// URL is how browsers reach the API, such as https://quartermaster.example.com, without a path. It is needed for people
	// who log in with a browser.
	URL string `yaml:"url"`
	// Journal is the directory of what was asked in the last minutes, until it is in the log. It MUST be on a disk of
	// this machine. Each instance has a folder of its own in it, by its name. When empty it is access in the data
	// directory (--data-dir).
	Journal string `yaml:"journal"`
	// Providers are the identity providers whose access tokens are accepted. They cannot be set in the environment.
	Providers []Provider `yaml:"providers"`
}

// Provider is an identity provider, by OpenID Connect.
type Provider struct {
	// Name is in principals, user:NAME/SUBJECT: keep it.
	Name string `yaml:"name"`
	// Issuer is the URL of the provider, as its tokens say.
	Issuer string `yaml:"issuer"`
	// Audience is what the provider's access tokens for this API are for.
	Audience string `yaml:"audience"`
	// ClientID is the client that "quartermaster login" is known by to the provider. Without it nobody can log in with
	// that command.
	ClientID string `yaml:"client_id"`
	// BrowserClientID is the client that browsers log in through, with an authorization code and PKCE. Its redirect URI is
	// api.url and /api/v1/login/callback. It may be the client above. Without it browsers cannot log in.
	BrowserClientID string `yaml:"browser_client_id"`
	// BrowserSecretFile holds the secret of that client, and is readable by this program alone; none for a public client.
	BrowserSecretFile string `yaml:"browser_secret_file"`
	// Scopes are asked for at a login.
	Scopes []string `yaml:"scopes"`
	// SubjectClaim identifies somebody for ever; sub when empty. GroupsClaim has their groups; groups when empty.
	SubjectClaim string `yaml:"subject_claim"`
	GroupsClaim  string `yaml:"groups_claim"`
	// CAFile holds the certificates of the authorities of the provider, in PEM; the system's when empty.
	CAFile string `yaml:"ca_file"`
}

// Gateway configures where nodes and Prometheus push their observations.
type Gateway struct {
	// Listen is the address that accepts events; the gateway is off when it is empty.
	Listen string `yaml:"listen"`
	// CertFile and KeyFile hold the certificate of the gateway and its key, in PEM; both are
	// reloaded when they change. The key is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ClientCAFile holds CA certificates, in PEM, and is reloaded when it changes. Clients
	// without a certificate of one of them are refused. When empty, no client certificate is
	// requested. The key of the cluster is needed in either case.
	ClientCAFile string `yaml:"client_ca_file"`
	// TLSMin is the minimum TLS version: 1.3, or 1.2 with AEAD suites alone.
	TLSMin string `yaml:"tls_min" default:"1.3"`
	// Plain accepts events without TLS from other machines, which is for a proxy that terminates
	// TLS in front of the gateway.
	Plain bool `yaml:"plain" default:"false"`
	// Rate is how many events per second are accepted from the nodes of one cluster; its
	// Prometheus may send ten times as many samples.
	Rate int `yaml:"rate" default:"20000"`
	// MaxAge is the maximum age of events from nodes, and MaxAhead how far they may be ahead of
	// the clock. Events beyond are refused. The bounds may only be made narrower.
	MaxAge   time.Duration `yaml:"max_age" default:"168h"`
	MaxAhead time.Duration `yaml:"max_ahead" default:"10m"`
}

// Archive says where sealed segments of the log are kept.
type Archive struct {
	// URL is a directory, as a path or a file:// URL, or a bucket, as s3://bucket/prefix; when empty
	// there is no archive, and the log must hold everything. Instances on several machines need a
	// shared one.
	URL string `yaml:"url"`
	// SegmentMiB is the size at which a segment is sealed, in MiB.
	SegmentMiB int `yaml:"segment_mib" default:"64"`
	// SealAfter is the age of its oldest event at which a smaller segment is sealed.
	SealAfter time.Duration `yaml:"seal_after" default:"1h"`
	// Witnesses cosign checkpoints: for each its verifier key and its address, separated by a space.
	Witnesses []string `yaml:"witnesses"`
}

// PartsCache says how files of parts in a bucket are kept on this machine.
type PartsCache struct {
	// Directory has the files. When empty they are in the data directory (--data-dir).
	Directory string `yaml:"directory"`
	// MiB bounds their size. The files that were read least recently are removed.
	MiB int `yaml:"mib" default:"20480"`
}

// Schedules says when to run which job, in cron's five fields and UTC. An empty one never runs.
type Schedules struct {
	Plan          string `yaml:"plan"`
	Snapshot      string `yaml:"snapshot"`
	CloseReminder string `yaml:"close_reminder"`
	Checkpoint    string `yaml:"checkpoint"`
	// Archive is when the log is archived.
	Archive string `yaml:"archive"`
	// Retention is when what retention policies let go is removed.
	Retention string `yaml:"retention"`
	// Advice is when the rules of "quartermaster advice" are evaluated; "off" for never.
	Advice string `yaml:"advice" default:"*/5 * * * *"`
	// CheckpointKeyFile names the Ed25519 key, in PEM, that signs checkpoints of the rows and of the
	// archive: "quartermaster operator" makes one.
	CheckpointKeyFile string `yaml:"checkpoint_key_file"`
}

// Webhook is an address that receives events, one POST for each, in CloudEvents JSON.
type Webhook struct {
	Name string `yaml:"name"` // names the consumer group: keep it when the address changes
	URL  string `yaml:"url"`
	// Types are the event types to send; when empty, incidents and what waits for a person.
	Types []string `yaml:"types"`
	// Workspaces are those whose events are sent; all when empty.
	Workspaces []string `yaml:"workspaces"`
	// Severity is the least that an incident has of which is told: info, warning or critical; info when empty.
	Severity string `yaml:"severity"`
	// SecretFile names a file whose content signs the body with HMAC-SHA-256; unsigned when
	// empty.
	SecretFile string `yaml:"secret_file"`
}

// Alertmanager is a Prometheus Alertmanager, by its API version 2.
type Alertmanager struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"` // without /api/v2/alerts
	// Workspaces are those whose incidents are sent; all when empty.
	Workspaces []string `yaml:"workspaces"`
	// Severity is the least that an incident has of which is told: info, warning or critical; info when empty.
	Severity string `yaml:"severity"`
	// TokenFile names a file with a bearer token; none when empty.
	TokenFile string `yaml:"token_file"`
}

// envPrefix begins the names of environment variables.
const envPrefix = "QUARTERMASTER_"

// Load reads the file, applies the environment and the defaults, and refuses what cannot work,
// including missing secrets. It connects to nothing. Without a path everything comes from the
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

var errNoConfig = errors.New("no configuration is named: give --config FILE, or set everything in the environment; " +
	"\"quartermaster config example\" prints one to start from")

// Read is [Load] without opening the files that the configuration names.
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

// of returns the configuration of a file, if it is valid.
func (c *Config) of(file *configfile.File) (*Config, error) {
	c.File = file
	c.validate(file)
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Example is a file to start from: deploy/quartermaster.yaml.
//
//go:embed quartermaster.yaml
var Example []byte

// Values returns the effective values, without secrets.
func (c *Config) Values() []configfile.Value {
	out := c.File.Values()
	for i := range out {
		switch hooks := out[i].Value.(type) {
		case []Reader:
			shown := []Reader{}
			for _, r := range hooks {
				r.Workspaces = append([]string{}, r.Workspaces...)
				shown = append(shown, r)
			}
			out[i].Value = shown
		case []Database:
			out[i].Value = append([]Database{}, hooks...)
		case []Provider:
			out[i].Value = append([]Provider{}, hooks...)
		case []Webhook:
			shown := []Webhook{}
			for _, w := range hooks {
				w.URL = HiddenURL(w.URL)
				shown = append(shown, w)
			}
			out[i].Value = shown
		case []Alertmanager:
			shown := []Alertmanager{}
			for _, a := range hooks {
				a.URL = HiddenURL(a.URL)
				shown = append(shown, a)
			}
			out[i].Value = shown
		}
	}
	return out
}

// HiddenURL returns an address without its secret parts.
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

// EnvironmentFaults finds variables that look like fields but are none: a misspelt one would go
// unnoticed.
func (c *Config) EnvironmentFaults(environ []string) []string {
	known := []string{"QUARTERMASTER_DATA_DIR", "QUARTERMASTER_CONFIG", "QUARTERMASTER_DATA"}
	return slices.DeleteFunc(c.File.Unknown(environ), func(name string) bool {
		return slices.Contains(known, name) || ofKubernetes.MatchString(name)
	})
}

// ofKubernetes matches the variables that Kubernetes sets in every container for a service whose
// name begins with quartermaster.
var ofKubernetes = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_[0-9]+_(TCP|UDP|SCTP).*)?$`)
