package main

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"quartermaster/projections"
)

// config is the file of a production home: the log is an Apache Kafka, the rows
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
type config struct {
	// Instance names this process among those that share the work; the host's
	// name when empty. No two that run at once may have the same, and none begins
	// with rebuild-, which "quartermaster projection rebuild" goes by.
	Instance string `yaml:"instance"`

	Kafka    kafkaConfig    `yaml:"kafka"`
	Postgres postgresConfig `yaml:"postgres"`

	// Listen is the address of the HTTP endpoints.
	Listen string `yaml:"listen" default:"127.0.0.1:7070"`

	Gateway gatewayConfig `yaml:"gateway"`

	// Snapshots is the directory of snapshots of the rows. When empty none can be
	// scheduled, and those that a person makes are in the home's directory (--home).
	// Instances on several machines need one that all of them reach, or a plan to
	// copy from each. Nothing that is kept there is ever removed.
	Snapshots string `yaml:"snapshots"`

	// Lease is how long an instance may be silent before others take over what it
	// folds: 1s to 1m.
	Lease time.Duration `yaml:"lease" default:"4s"`

	Schedules schedulesConfig `yaml:"schedules"`

	// Webhooks are told of events. The environment has no say in them.
	Webhooks []webhookConfig `yaml:"webhooks"`

	from map[string]origin // where the value of each field came from, by its path

	// Tests put these between the program and its database, and in place of what
	// decodes records.
	wrap    func(driver.Connector) driver.Connector
	decoder func() projections.Decoder
}

// kafkaConfig says how to reach the log.
type kafkaConfig struct {
	// Brokers are the host:port addresses asked first.
	Brokers []string `yaml:"brokers"`
	// Replication is the replication factor of topics that are created.
	Replication int `yaml:"replication" default:"3"`
	// Codec compresses what is appended: zstd, or lz4 for installations whose
	// other programs lack zstd.
	Codec string `yaml:"codec" default:"zstd"`
	// Batch is about how many events are folded in one transaction while a backlog
	// is worked off.
	Batch int        `yaml:"batch" default:"20000"`
	TLS   tlsConfig  `yaml:"tls"`
	SASL  saslConfig `yaml:"sasl"`
}

// tlsConfig encrypts connections to the brokers when Enabled.
type tlsConfig struct {
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

// saslConfig authenticates to the brokers when Mechanism is given.
type saslConfig struct {
	Mechanism    string `yaml:"mechanism"` // SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN, which needs TLS
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// postgresConfig says how to reach the rows.
type postgresConfig struct {
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

// gatewayConfig says how nodes and Prometheus push what they saw.
type gatewayConfig struct {
	// Listen is the address that takes events; none are taken when it is empty.
	Listen string `yaml:"listen"`
	// CertFile and KeyFile hold the certificate of the gateway and its key, in PEM;
	// both are read again when they change. The key is a secret.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Plain takes events without TLS from other machines, which is for a proxy
	// that ends TLS before the gateway.
	Plain bool `yaml:"plain" default:"false"`
	// Rate is how many events a second are taken from the nodes of one cluster; of its
	// Prometheus ten times as many samples.
	Rate int `yaml:"rate" default:"20000"`
}

// schedulesConfig says when to do what, in cron's five fields and UTC. An empty
// one is never run.
type schedulesConfig struct {
	Plan          string `yaml:"plan"`
	Snapshot      string `yaml:"snapshot"`
	CloseReminder string `yaml:"close_reminder"`
	Checkpoint    string `yaml:"checkpoint"`
	// CheckpointKeyFile names the Ed25519 key, in PEM, that signs checkpoints:
	// "quartermaster operator" makes one.
	CheckpointKeyFile string `yaml:"checkpoint_key_file"`
}

// webhookConfig names an address that is told of events, by a POST of one
// CloudEvents JSON event each.
type webhookConfig struct {
	Name string `yaml:"name"` // names the consumer group: keep it when the address changes
	URL  string `yaml:"url"`
	// Types are the event types to tell of; all alerts when empty.
	Types []string `yaml:"types"`
	// SecretFile names a file whose content signs the body with HMAC-SHA-256;
	// nothing is signed when empty.
	SecretFile string `yaml:"secret_file"`
}

// origin is where a value came from.
type origin struct {
	kind string // fromFile, fromEnvironment or fromDefault
	at   string // file:line:column, or the name of the variable
}

const (
	fromFile        = "file"
	fromEnvironment = "environment"
	fromDefault     = "default"
)

// variable returns the environment's name of a field.
func variable(path string) string {
	return "QUARTERMASTER_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// field is a place in a config that holds one value.
type field struct {
	path     string // the keys that lead to it: kafka.tls.ca_file
	standard string // what it holds when nothing is given
	value    reflect.Value
}

// fields returns every field, in the order of the struct. Of a list of structs
// it returns the list.
func (c *config) fields() []field { return fieldsOf(reflect.ValueOf(c).Elem(), "") }

func fieldsOf(v reflect.Value, path string) (out []field) {
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key := tag.Get("yaml")
		switch {
		case key == "":
		case v.Field(i).Kind() == reflect.Struct:
			out = append(out, fieldsOf(v.Field(i), path+key+".")...)
		default:
			out = append(out, field{path + key, tag.Get("default"), v.Field(i)})
		}
	}
	return out
}

// set stores what text says.
func set(v reflect.Value, text string) error {
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("holds a control character, such as the end of a line; leave it out")
	}
	switch v.Interface().(type) {
	case string:
		v.SetString(text)
	case bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		v.SetInt(int64(n))
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is no duration; write for example 4s or 250ms", text)
		}
		v.SetInt(int64(d))
	case []string:
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		v.Set(reflect.ValueOf(list))
	default:
		return fmt.Errorf("a %s is not read from text", v.Type())
	}
	return nil
}

// loadConfig reads the file, lays the environment over it, fills in what is given
// nowhere, and refuses what could not work, every secret that is not there
// included. It connects to nothing. Without a path everything is taken from the
// environment.
func loadConfig(path string, getenv func(string) string) (*config, error) {
	c, err := readConfig(path, getenv)
	if err != nil {
		return nil, err
	}
	if err := c.checkSecrets(); err != nil {
		return nil, err
	}
	return c, nil
}

// maxConfig bounds the file. A long one has two hundred lines.
const maxConfig = 64 << 10

var errNoConfig = errors.New("no configuration is named: give --config FILE, or everything in the environment; \"quartermaster config example\" prints one to begin from")

// readConfig is loadConfig without opening the files that the config names.
func readConfig(path string, getenv func(string) string) (*config, error) {
	var data []byte
	if path == "" {
		if !slices.ContainsFunc(new(config).fields(), func(f field) bool { return getenv(variable(f.path)) != "" }) {
			return nil, errNoConfig
		}
	} else {
		var err error
		if data, err = readSmall(path, maxConfig); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	return parseConfig(path, data, getenv)
}

// parseConfig is readConfig of a file's content.
func parseConfig(path string, data []byte, getenv func(string) string) (*config, error) {
	c := &config{from: map[string]origin{}}
	f := &faults{file: cmp.Or(path, "environment"), from: c.from}
	(&configReader{f}).read(data, reflect.ValueOf(c).Elem())
	for _, field := range c.fields() {
		if name := variable(field.path); field.path != "webhooks" && getenv(name) != "" {
			maps.DeleteFunc(c.from, func(p string, _ origin) bool { return strings.HasPrefix(p, field.path+"[") })
			c.from[field.path] = origin{fromEnvironment, name}
			if err := set(field.value, getenv(name)); err != nil {
				f.add(field.path, "%v", err)
			}
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	for _, field := range c.fields() {
		if _, given := c.from[field.path]; given {
			continue
		}
		c.from[field.path] = origin{kind: fromDefault}
		if field.standard != "" {
			if err := set(field.value, field.standard); err != nil {
				f.add(field.path, "%v", err)
			}
		}
	}
	c.validate(f, filepath.Dir(path))
	if err := f.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// readSmall returns the content of a regular file.
func readSmall(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is larger than %d KiB", path, most>>10)
	}
	return data, nil
}

// faults collects what is wrong with a configuration.
type faults struct {
	file string
	from map[string]origin
	list []error
}

// add notes a fault of a field. The message begins with where its value came
// from, or the mapping that lacks it, and never quotes a value that may be a
// secret.
func (f *faults) add(path, format string, args ...any) {
	at := f.file
	for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if o := f.from[p]; o.at != "" {
			at = o.at
			break
		}
	}
	f.addAt(at, path, format, args...)
}

func (f *faults) addAt(at, path, format string, args ...any) {
	if path != "" {
		at += ": " + path
	}
	f.list = append(f.list, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

// mostFaults is how many are shown.
const mostFaults = 20

func (f *faults) err() error {
	if n := len(f.list); n > mostFaults {
		return errors.Join(append(f.list[:mostFaults:mostFaults], fmt.Errorf("and %d more", n-mostFaults))...)
	}
	return errors.Join(f.list...)
}
