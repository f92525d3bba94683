package main

import "time"

// config is the file of a production home: the log is an Apache Kafka, the rows
// are in Postgres, and several instances with the same file share the work.
// Every field can be set in the environment instead, as QUARTERMASTER_ and the
// path of its key in capitals: QUARTERMASTER_POSTGRES_DSN_FILE.
type config struct {
	// Instance names this process among those that share the work; the host's
	// name when empty. No two that run at once may have the same.
	Instance string `yaml:"instance"`

	Kafka    kafkaConfig    `yaml:"kafka"`
	Postgres postgresConfig `yaml:"postgres"`

	// Listen is the address of the HTTP endpoints, 127.0.0.1:7070 when empty.
	Listen string `yaml:"listen"`

	// Snapshots is the directory of snapshots of the rows. Instances on several
	// machines need one that all of them reach, or a plan to copy from each.
	Snapshots string `yaml:"snapshots"`

	// Lease is how long an instance may be silent before others take over what it
	// folds, 4s when zero.
	Lease time.Duration `yaml:"lease"`

	Schedules schedulesConfig `yaml:"schedules"`

	// Webhooks are told of events.
	Webhooks []webhookConfig `yaml:"webhooks"`
}

// kafkaConfig says how to reach the log.
type kafkaConfig struct {
	// Brokers are the host:port addresses asked first.
	Brokers []string `yaml:"brokers"`
	// Replication is the replication factor of topics that are created; 3 when zero.
	Replication int `yaml:"replication"`
	// Codec compresses what is appended: zstd (when empty) or lz4.
	Codec string `yaml:"codec"`
	// Batch is about how many events are folded in one transaction while a backlog
	// is worked off; 20000 when zero.
	Batch int        `yaml:"batch"`
	TLS   tlsConfig  `yaml:"tls"`
	SASL  saslConfig `yaml:"sasl"`
}

// tlsConfig encrypts connections to the brokers when Enabled.
type tlsConfig struct {
	Enabled bool `yaml:"enabled"`
	// CAFile holds the certificates that are trusted, in PEM; the system's when empty.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile identify this program, in PEM.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name to be found in the broker's certificate; the host dialled when empty.
	ServerName string `yaml:"server_name"`
}

// saslConfig authenticates to the brokers when Mechanism is given.
type saslConfig struct {
	Mechanism    string `yaml:"mechanism"` // SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// postgresConfig says how to reach the rows.
type postgresConfig struct {
	// DSN is a libpq connection string without a password; DSNFile names a file
	// that holds one, with or without. One of the two is needed.
	DSN     string `yaml:"dsn"`
	DSNFile string `yaml:"dsn_file"`
	// PasswordFile names a file with the password.
	PasswordFile string `yaml:"password_file"`
	// MaxConns bounds the connections of one process; 16 when zero.
	MaxConns int `yaml:"max_conns"`
	// Readers are roles that may read the tables and views.
	Readers []string `yaml:"readers"`
}

// schedulesConfig says when to do what, in cron's five fields and UTC. An empty
// one is never run.
type schedulesConfig struct {
	Plan          string `yaml:"plan"`
	Snapshot      string `yaml:"snapshot"`
	CloseReminder string `yaml:"close_reminder"`
	Checkpoint    string `yaml:"checkpoint"`
	// CheckpointKeyFile names the Ed25519 key, in PEM, that signs checkpoints.
	CheckpointKeyFile string `yaml:"checkpoint_key_file"`
}

// webhookConfig names an address that is told of events, by a POST of one
// CloudEvents JSON event each.
type webhookConfig struct {
	Name string `yaml:"name"` // names the consumer group: keep it when the address changes
	URL  string `yaml:"url"`
	// Types are the event types to tell of; all alerts when empty.
	Types []string `yaml:"types"`
	// SecretFile names a file whose content signs the body with HMAC-SHA-256.
	SecretFile string `yaml:"secret_file"`
}
