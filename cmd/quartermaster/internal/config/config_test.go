package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/configfile"
)

func noEnvironment(string) string { return "" }

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// parseConfig is readConfig of a file's content.
func parseConfig(path string, data []byte, getenv func(string) string) (*Config, error) {
	c := &Config{}
	file, err := configfile.Parse(path, data, envPrefix, getenv, c)
	if err != nil {
		return nil, err
	}
	return c.of(file)
}

func variable(path string) string { return configfile.Variable(envPrefix, path) }

// fieldPaths returns the paths of every field, without those of entries of lists.
func fieldPaths(t *testing.T) (paths []string) {
	t.Helper()
	file, err := configfile.Parse("", nil, envPrefix, noEnvironment, new(Config))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Values() {
		paths = append(paths, v.Key)
	}
	return paths
}

// listedFields returns the paths of the fields of the first entry of each list.
func listedFields() (paths []string) {
	for list, of := range map[string]reflect.Type{
		"webhooks": reflect.TypeFor[Webhook](), "alertmanagers": reflect.TypeFor[Alertmanager](), "postgres.others": reflect.TypeFor[Database](),
		"postgres.readers": reflect.TypeFor[Reader](), "api.providers": reflect.TypeFor[Provider](),
	} {
		for i := range of.NumField() {
			paths = append(paths, list+"[0]."+of.Field(i).Tag.Get("yaml"))
		}
	}
	return paths
}

// minimal is the least that a configuration says.
const minimal = "kafka: {brokers: ['k:9092']}\npostgres: {dsn: postgres://u@db/rows}\n"

func TestConfigDefaults(t *testing.T) {
	c, err := parseConfig("q.yaml", []byte(minimal), noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c.File = nil
	want := &Config{
		Instance: host,
		Kafka:    Kafka{Brokers: []string{"k:9092"}, Replication: 3, Codec: "zstd", Batch: 5000},
		Postgres: Postgres{DSN: "postgres://u@db/rows", MaxConns: 16},
		Listen:   "127.0.0.1:7070", Lease: 4 * time.Second, Gateway: Gateway{TLSMin: "1.3", Rate: 20_000, MaxAge: 168 * time.Hour, MaxAhead: 10 * time.Minute},
		PartsCache: PartsCache{MiB: 20480}, Archive: Archive{SegmentMiB: 64, SealAfter: time.Hour},
		Schedules: Schedules{Advice: "*/5 * * * *"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
}

// Every fault names file, line, column and field, and what to do.
func TestConfigFaults(t *testing.T) {
	// with adds to what is needed.
	with := func(text string) string { return minimal + text }
	for name, c := range map[string]struct {
		text string
		want []string // the lines of the error
	}{
		"nothing": {"", []string{
			"q.yaml: kafka.brokers: is needed: name host:port of the brokers to ask first",
			"q.yaml: postgres.dsn: is needed, for example postgres://quartermaster@db:5432/quartermaster; or name a file that holds it: postgres.dsn_file",
		}},
		"no values": {"kafka:\npostgres: ~\nwebhooks:\n", []string{
			"q.yaml:1:1: kafka.brokers: is needed: name host:port of the brokers to ask first",
			"q.yaml:2:1: postgres.dsn: is needed, for example postgres://quartermaster@db:5432/quartermaster; or name a file that holds it: postgres.dsn_file",
		}},
		"unknown key":          {with("instnace: a\n"), []string{"q.yaml:3:1: instnace: unknown field; did you mean instance?"}},
		"unknown below":        {"kafka:\n  tls:\n    ca: x\n", []string{"q.yaml:3:5: kafka.tls.ca: unknown field; known are enabled, ca_file, cert_file, key_file, server_name"}},
		"unknown in list":      {with("webhooks:\n- name: a\n  addr: b\n"), []string{"q.yaml:5:3: webhooks[0].addr: unknown field; known are name, url, types, workspaces, severity, secret_file"}},
		"gateway in the clear": {with("gateway: {listen: '0.0.0.0:7443'}\n"), []string{"q.yaml:3:1: gateway: would accept keys unencrypted from other machines; give cert_file and key_file, or set plain to true where a proxy terminates TLS in front of it"}},
		"gateway nowhere":      {with("gateway: {plain: true}\n"), []string{"q.yaml:3:1: gateway: is configured but has no address; set gateway.listen, or omit the rest"}},
		"gateway rate":         {with("gateway: {rate: 0}\n"), []string{"q.yaml:3:17: gateway.rate: is 0, want 1 to 1000000"}},
		"long key":             {with(strings.Repeat("x", 200) + ": 1\n"), []string{"q.yaml:3:1: " + strings.Repeat("x", 63) + "…: unknown field; known are instance, kafka, postgres, listen, api, gateway, snapshots, parts, parts_cache, people_keys, archive, lease, schedules, webhooks, alertmanagers"}},
		"twice":                {with("lease: 4s\nlease: 5s\n"), []string{"q.yaml:4:1: lease: stands on line 3 already; keep one of them"}},
		"all at once": {"kafka:\n  batch: many\n  brokers: k:1\n  tls: on\nlease: 4\n", []string{
			`q.yaml:2:10: kafka.batch: "many" is not a whole number`,
			"q.yaml:3:12: kafka.brokers: is a single value, want a list: begin each entry with a dash",
			"q.yaml:4:8: kafka.tls: is a single value, want keys with values",
			`q.yaml:5:8: lease: "4" is not a duration; write for example 4s or 250ms`,
		}},
		"a list at the top":    {"- a\n", []string{"q.yaml:1:1: is a list, want keys with values"}},
		"a word at the top":    {"hunter2\n", []string{"q.yaml:1:1: is a single value, want keys with values"}},
		"a list for one value": {with("listen: [a]\n"), []string{"q.yaml:3:9: listen: is a list, want one value"}},
		"a hole in a list":     {"kafka:\n  brokers:\n  - k:1\n  -\n", []string{"q.yaml:4:5: kafka.brokers[1]: is empty"}},
		"a list in a list":     {"kafka: {brokers: [[k]]}\n", []string{"q.yaml:1:19: kafka.brokers[0]: is a list, want one value"}},
		"a hole in webhooks":   {with("webhooks: [~]\n"), []string{"q.yaml:3:12: webhooks[0]: is empty"}},
		"a complex key":        {"~: b\n", []string{"q.yaml:1:1: a key is a word"}},
		"an odd key":           {"[a]: b\n", []string{"q.yaml:1:4: is not YAML: found an invalid key for this map"}},
		"a colon":              {"kafka: {brokers: [k:1]}\n", []string{"q.yaml:1:20: kafka.brokers[0]: is a mapping, want one value; quote it if it holds a colon"}},
		"no YAML":              {"kafka: {\n", []string{"q.yaml:1:8: is not YAML: could not find flow mapping end token '}'"}},
		"tabs":                 {"kafka:\n\tbatch: 1\n", []string{"q.yaml:2:1: is not YAML: found character ' ' that cannot start any token"}},
		"an anchor":            {"a: &a [b]\n", []string{"q.yaml:1:4: anchors, aliases and merges are not read; write the value out"}},
		"a merge":              {"<<: {a: b}\n", []string{"q.yaml:1:1: anchors, aliases and merges are not read; write the value out"}},
		"a tag":                {"instance: !!str a\n", []string{"q.yaml:1:11: tags, directives and complex keys are not read; leave them out"}},
		"deep brackets":        {"kafka: " + strings.Repeat("[", 9) + "\n", []string{"q.yaml:1:16: nests too deep for a configuration"}},
		"deep dashes":          {strings.Repeat("- ", 40) + "a\n", []string{"q.yaml:1:61: nests too deep for a configuration"}},
		"long":                 {strings.Repeat("a: 1\n", 10_000), []string{"q.yaml:3334:4: is too long for a configuration"}},
		"two documents":        {minimal + "---\nlease: 4s\n", []string{"q.yaml:4:6: is a second document; a configuration is one"}},
		"no text":              {"instance: \xff\n", []string{"q.yaml: is not text in UTF-8"}},
		"NUL":                  {"instance: \x00\n", []string{"q.yaml: is not text in UTF-8"}},
		"a control character":  {with("snapshots: \"a\\nb\"\n"), []string{"q.yaml:3:12: snapshots: holds a control character, such as the end of a line; leave it out"}},

		"instance of rebuild": {with("instance: rebuild-b\n"), []string{`q.yaml:3:11: instance: rebuild-b begins with rebuild-, which "quartermaster generation rebuild" uses: choose another`}},
		"instance":            {with("instance: a/b\n"), []string{`q.yaml:3:11: instance: "a/b" is not a name: use letters, digits, dots, dashes and underscores, at most 100`}},
		"a broker's port":     {"kafka: {brokers: ['k:9092', k]}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:29: kafka.brokers[1]: "k" is not host:port`}},
		"a broker's host":     {"kafka: {brokers: [':9092']}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:19: kafka.brokers[0]: ":9092" is not host:port`}},
		"a broker at 0":       {"kafka: {brokers: ['k:0']}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:19: kafka.brokers[0]: "k:0" is not host:port`}},
		"a broker as URL":     {"kafka: {brokers: ['kafka://k:1']}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:19: kafka.brokers[0]: "kafka://k:1" is not host:port`}},
		"a broker twice":      {"kafka: {brokers: ['k:1', 'k:1']}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:26: kafka.brokers[1]: k:1 is there twice`}},
		"replication":         {"kafka: {brokers: ['k:1'], replication: 0}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:40: kafka.replication: is 0, want 1 to 9"}},
		"codec":               {"kafka: {brokers: ['k:1'], codec: gzip}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:34: kafka.codec: "gzip" is unknown; known are zstd, lz4`}},
		"batch":               {"kafka: {brokers: ['k:1'], batch: 1000000}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:34: kafka.batch: is 1000000, want 1 to 200000"}},
		"tls half":            {"kafka: {brokers: ['k:1'], tls: {enabled: true, cert_file: a}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:27: kafka.tls: cert_file and key_file belong together; give both or neither"}},
		"tls off":             {"kafka: {brokers: ['k:1'], tls: {ca_file: a}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:27: kafka.tls: is configured but not enabled; set kafka.tls.enabled to true, or omit the rest"}},
		"tls neither":         {"kafka: {brokers: ['k:1'], tls: {enabled: yes}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:42: kafka.tls.enabled: "yes" is neither true nor false`}},
		"sasl of no kind":     {"kafka: {brokers: ['k:1'], sasl: {user: a}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:27: kafka.sasl.mechanism: is needed with a user or password; known are SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"}},
		"sasl of another":     {"kafka: {brokers: ['k:1'], sasl: {mechanism: SCRAM-SHA-1, user: a, password_file: b}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{`q.yaml:1:45: kafka.sasl.mechanism: "SCRAM-SHA-1" is unknown; did you mean SCRAM-SHA-512?`}},
		"sasl without all":    {"kafka: {brokers: ['k:1'], sasl: {mechanism: SCRAM-SHA-512}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:27: kafka.sasl.user: is needed with kafka.sasl.mechanism", "q.yaml:1:27: kafka.sasl.password_file: is needed with kafka.sasl.mechanism: name a file that holds the password"}},
		"sasl in plain":       {"kafka: {brokers: ['k:1'], sasl: {mechanism: PLAIN, user: a, password_file: b}}\npostgres: {dsn: postgres://u@db/rows}\n", []string{"q.yaml:1:45: kafka.sasl.mechanism: PLAIN sends the password in clear text; set kafka.tls.enabled to true, or use SCRAM-SHA-512"}},
		"a password in a URL": {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'postgres://u:hunter2@db/rows'}\n", []string{"q.yaml:2:17: postgres.dsn: holds a password; put the password into a file that postgres.password_file names, or the whole DSN into one that postgres.dsn_file names"}},
		"a password behind":   {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'postgres://u@db/rows?password=hunter2'}\n", []string{"q.yaml:2:17: postgres.dsn: holds a password; put the password into a file that postgres.password_file names, or the whole DSN into one that postgres.dsn_file names"}},
		"a password in pairs": {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'host=db  password = hunter2'}\n", []string{"q.yaml:2:17: postgres.dsn: holds a password; put the password into a file that postgres.password_file names, or the whole DSN into one that postgres.dsn_file names"}},
		"an empty password":   {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'host=db password='}\n", []string{"q.yaml:2:17: postgres.dsn: holds a password; put the password into a file that postgres.password_file names, or the whole DSN into one that postgres.dsn_file names"}},
		"no dsn":              {"kafka: {brokers: ['k:1']}\npostgres: {dsn: hunter2}\n", []string{"q.yaml:2:17: postgres.dsn: is not a connection string; write postgres://user@host:5432/database, or host=… user=… dbname=…"}},
		"a dsn of odd mode":   {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'postgres://u@db/rows?sslmode=hunter2'}\n", []string{"q.yaml:2:17: postgres.dsn: is not a connection string; write postgres://user@host:5432/database, or host=… user=… dbname=…"}},
		"a broken URL":        {"kafka: {brokers: ['k:1']}\npostgres: {dsn: 'postgres://u:hunter2%@db/rows'}\n", []string{"q.yaml:2:17: postgres.dsn: is not a connection string; write postgres://user@host:5432/database, or host=… user=… dbname=…"}},
		"two dsns":            {"kafka: {brokers: ['k:1']}\npostgres:\n  dsn: host=db\n  dsn_file: a\n", []string{"q.yaml:4:13: postgres.dsn_file: is given as well as postgres.dsn; give one of the two"}},
		"max_conns":           {"kafka: {brokers: ['k:1']}\npostgres: {dsn: host=db, max_conns: 3}\n", []string{"q.yaml:2:37: postgres.max_conns: is 3, want 4 to 1000"}},
		"readers": {
			"kafka: {brokers: ['k:1']}\npostgres:\n  dsn: host=db\n  readers:\n" +
				"  - {role: finance, whole_estate: true}\n  - {role: 'bi; drop', workspaces: []}\n" +
				"  - {role: public, workspaces: [a]}\n  - {role: pg_monitor, workspaces: [a], whole_estate: true}\n" +
				"  - {role: finance, workspaces: [acme, '', acme]}\n  - {workspaces: [acme]}\n", []string{
				`q.yaml:6:12: postgres.readers[1].role: "bi; drop" is not a plain role: use small letters, digits and underscores`,
				"q.yaml:6:5: postgres.readers[1]: needs either the workspaces that the role sees, or whole_estate: true",
				"q.yaml:7:12: postgres.readers[2].role: public is not one of your roles; name the roles that may read",
				"q.yaml:8:12: postgres.readers[3].role: pg_monitor is not one of your roles; name the roles that may read",
				"q.yaml:8:5: postgres.readers[3]: needs either the workspaces that the role sees, or whole_estate: true",
				"q.yaml:9:12: postgres.readers[4].role: finance is there twice",
				"q.yaml:9:40: postgres.readers[4].workspaces[1]: is empty; name a workspace",
				"q.yaml:9:44: postgres.readers[4].workspaces[2]: acme is there twice",
				`q.yaml:10:5: postgres.readers[5].role: "" is not a plain role: use small letters, digits and underscores`,
			}},
		"listen":            {with("listen: 7070\n"), []string{`q.yaml:3:9: listen: "7070" is not host:port`}},
		"lease short":       {with("lease: 10ms\n"), []string{"q.yaml:3:8: lease: is 10ms, want 1s to 1m0s"}},
		"lease long":        {with("lease: 1h\n"), []string{"q.yaml:3:8: lease: is 1h0m0s, want 1s to 1m0s"}},
		"a schedule":        {with("schedules: {plan: 0 25 * * *}\n"), []string{`q.yaml:3:19: schedules.plan: "0 25 * * *" is not a schedule: end of range (25) above maximum (23): 25; want cron's five fields in UTC (minute, hour, day of month, month, day of week), for example 30 2 * * *`}},
		"a zone":            {with("schedules: {plan: CRON_TZ=Europe/Berlin 0 5 * * *}\n"), []string{`q.yaml:3:19: schedules.plan: "CRON_TZ=Europe/Berlin 0 5 * * *" names a zone or an interval; want cron's five fields in UTC (minute, hour, day of month, month, day of week), for example 30 2 * * *`}},
		"an interval":       {with("schedules: {plan: '@every 5m'}\n"), []string{`q.yaml:3:19: schedules.plan: "@every 5m" names a zone or an interval; want cron's five fields in UTC (minute, hour, day of month, month, day of week), for example 30 2 * * *`}},
		"the 30th February": {with("schedules: {plan: 0 5 30 2 *}\n"), []string{`q.yaml:3:19: schedules.plan: "0 5 30 2 *" never runs; want cron's five fields in UTC (minute, hour, day of month, month, day of week), for example 30 2 * * *`}},
		"no archive":        {with("schedules: {archive: 0 5 * * *}\n"), []string{"q.yaml:3:22: schedules.archive: has no archive to write to; set archive.url"}},
		"a strange archive": {with("archive: {url: \"gopher://x\", segment_mib: 0}\n"), []string{
			"q.yaml:3:16: archive.url: \"gopher://x\" is not a place for an archive: name a directory, as a path or as file:///path, or s3://bucket",
			"q.yaml:3:43: archive.segment_mib: is 0, want 1 to 512",
		}},
		"strange parts": {with("parts: gopher://x\nparts_cache: {mib: 0}\n"), []string{
			"q.yaml:3:8: parts: \"gopher://x\" is not a place for parts: name a directory by its path, or s3://bucket",
			"q.yaml:4:20: parts_cache.mib: is 0, want 1 to 1073741824",
		}},
		"nowhere to write": {with("schedules: {snapshot: 0 5 * * *}\n"), []string{"q.yaml:3:23: schedules.snapshot: has no directory to write to; set snapshots"}},
		"nothing to sign":  {with("archive: {url: /a}\nschedules: {checkpoint: 0 5 * * *}\n"), []string{"q.yaml:4:1: schedules.checkpoint_key_file: is needed with schedules.checkpoint: name the key that signs checkpoints"}},
		"nowhere to sign": {with("schedules: {checkpoint: 0 5 * * *, checkpoint_key_file: k, archive: 0 6 * * *}\n"), []string{
			"q.yaml:3:69: schedules.archive: has no archive to write to; set archive.url",
			"q.yaml:3:25: schedules.checkpoint: has no archive to write to; set archive.url",
		}},
		"witnesses": {with("archive: {witnesses: ['a b', 'https://w']}\n"), []string{
			`q.yaml:3:23: archive.witnesses[0]: "b" is not the http or https address of a witness`,
			`q.yaml:3:30: archive.witnesses[1]: "https://w" is not a verifier key and an address, separated by a space`,
		}},
		"others": {
			"kafka: {brokers: ['k:9092']}\npostgres:\n  dsn: postgres://u@db/rows\n  others:\n" +
				"  - {name: a, dsn: 'host=h', partitions: [qm.fleet, qm.telemetry/4-7]}\n" +
				"  - {name: a, dsn: 'postgres://u:hunter2@h/d', partitions: [qm.telemetry/7]}\n" +
				"  - {name: b, partitions: [qm.telemetri, qm.telemetry/8, qm.books/0-1, qm.market/x]}\n", []string{
				"q.yaml:6:12: postgres.others[1].name: a is there twice; each database needs its own name",
				"q.yaml:6:20: postgres.others[1].dsn: holds a password; put the password into a file that postgres.others[1].password_file names, or the whole DSN into one that postgres.others[1].dsn_file names",
				"q.yaml:6:61: postgres.others[1].partitions[0]: qm.telemetry/7 is in a already; the rows of a partition are in one database",
				"q.yaml:7:5: postgres.others[2].dsn: is needed, for example postgres://quartermaster@db:5432/quartermaster; or name a file that holds it: postgres.others[2].dsn_file",
				`q.yaml:7:28: postgres.others[2].partitions[0]: "qm.telemetri" is not a topic; did you mean qm.telemetry?`,
				`q.yaml:7:42: postgres.others[2].partitions[1]: "qm.telemetry/8" is not a partition of qm.telemetry: it has 0 to 7; write qm.telemetry, qm.telemetry/0 or qm.telemetry/0-7`,
				`q.yaml:7:58: postgres.others[2].partitions[2]: "qm.books/0-1" is not a partition of qm.books: it has 0 to 0; write qm.books, qm.books/0 or qm.books/0-0`,
				`q.yaml:7:72: postgres.others[2].partitions[3]: "qm.market/x" is not a partition of qm.market: it has 0 to 3; write qm.market, qm.market/0 or qm.market/0-3`,
			},
		},
		"providers": {with("api: {listen: '127.0.0.1:1', providers: [{name: a, issuer: 'https://x', audience: q}, {name: a, issuer: 'http://x', audience: q}, {name: b, issuer: 'https://x'}, {name: 'c/d', issuer: x, audience: q}]}\n"), []string{
			"q.yaml:3:94: api.providers[1].name: a is there twice; each provider needs its own name",
			`q.yaml:3:105: api.providers[1].issuer: "http://x" is not https, so anybody on the way could say who somebody is`,
			"q.yaml:3:149: api.providers[2].issuer: https://x is there twice",
			"q.yaml:3:131: api.providers[2].audience: is needed: without it a token for any other program of the provider would be accepted",
			`q.yaml:3:170: api.providers[3].name: "c/d" is not a name: use letters, digits, dots, dashes and underscores, at most 100`,
			`q.yaml:3:185: api.providers[3].issuer: "x" is not the URL of an issuer, such as https://login.example.com`,
		}},
		"url": {with("api: {listen: '127.0.0.1:1', url: 'https://Q.example'}\n"), []string{
			`q.yaml:3:35: api.url: "https://Q.example" is not the origin of a site, such as https://quartermaster.example.com, in small letters and without a path`}},
		"url in plain": {with("api: {listen: '127.0.0.1:1', url: 'http://q.example'}\n"), []string{
			`q.yaml:3:35: api.url: "http://q.example" is not https, so anybody on the way could take over sessions`}},
		"url with a port": {with("api: {listen: '127.0.0.1:1', url: 'https://q.example:443'}\n"), []string{
			`q.yaml:3:35: api.url: "https://q.example:443" names the usual port; leave it out, as browsers do`}},
		"browsers without a url": {with("api: {listen: '127.0.0.1:1', providers: [{name: a, issuer: 'https://x', audience: q, browser_client_id: w}, {name: b, issuer: 'https://y', audience: q, browser_secret_file: w}]}\n"), []string{
			"q.yaml:3:105: api.providers[0].browser_client_id: needs api.url, to which the provider sends browsers back",
			"q.yaml:3:174: api.providers[1].browser_secret_file: is the secret of no client; set browser_client_id"}},
		"api without an address": {with("api: {plain: true}\n"), []string{"q.yaml:3:1: api: is configured but has no address; set api.listen, or omit the rest"}},
		"api in plain":           {with("api: {listen: ':1'}\n"), []string{"q.yaml:3:1: api: would accept keys and tokens unencrypted from other machines; give cert_file and key_file, or set plain to true where a proxy terminates TLS in front of it"}},
		"webhooks": {with("webhooks:\n- {name: a, url: 'http://x/'}\n- {name: a, url: ftp://hunter2}\n- {url: 'http://u:hunter2@x'}\n- {name: d}\n- {name: e, url: 'https://x/#hunter2', types: [a b]}\n"), []string{
			"q.yaml:5:10: webhooks[1].name: a is there twice; each webhook needs its own name",
			"q.yaml:5:18: webhooks[1].url: is not an http or https address",
			`q.yaml:6:3: webhooks[2].name: "" is not a name: use letters, digits, dots, dashes and underscores, at most 100`,
			"q.yaml:6:9: webhooks[2].url: holds a user or password; sign with secret_file instead",
			"q.yaml:7:3: webhooks[3].url: is needed: name the http or https address to call",
			"q.yaml:8:18: webhooks[4].url: ends in a fragment, which is not sent; remove # and what follows",
			`q.yaml:8:48: webhooks[4].types[0]: "a b" is not an event type`,
		}},
		"severity": {with("webhooks: [{name: a, url: 'http://x/', severity: high}]\n"), []string{
			`q.yaml:3:50: webhooks[0].severity: "high" is not a severity: want info, warning or critical`}},
		"alertmanagers": {with("schedules: {advice: off}\nalertmanagers:\n- {name: a, url: 'http://x/'}\n- {name: a, url: 'http://u:hunter2@x', severity: low}\n"), []string{
			"q.yaml:6:10: alertmanagers[1].name: a is there twice; each Alertmanager needs its own name",
			"q.yaml:6:18: alertmanagers[1].url: holds a user or password; use token_file instead",
			`q.yaml:6:50: alertmanagers[1].severity: "low" is not a severity: want info, warning or critical`,
			"q.yaml:5:1: alertmanagers: are told when rules are evaluated; set schedules.advice",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig("q.yaml", []byte(c.text), noEnvironment)
			if want := strings.Join(c.want, "\n"); err == nil || err.Error() != want {
				t.Errorf("got\n%v\nwant\n%s", err, want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error("a secret is shown")
			}
		})
	}
	many := minimal
	for i := range 30 {
		many += fmt.Sprintf("k%d: 1\n", i)
	}
	if _, err := parseConfig("q.yaml", []byte(many), noEnvironment); err == nil || !strings.HasSuffix(err.Error(), "\nand 10 more") || strings.Count(err.Error(), "\n") != 20 {
		t.Errorf("of many faults twenty are shown and the rest is counted: %v", err)
	}
}

// The files themselves.
func TestConfigFileFaults(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), 64<<10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                           "no configuration is named",
		filepath.Join(dir, "nosuch"): "nosuch: no such file or directory",
		dir:                          "is not a regular file",
		"/dev/zero":                  "is not a regular file",
		large:                        "is larger than 64 KiB",
	} {
		if _, err := Load(path, noEnvironment); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
}

// samples is a value for every field, other than its default.
var samples = map[string]string{
	"instance":                      "other",
	"kafka.brokers":                 "k1:9092, k2:9092",
	"kafka.replication":             "2",
	"kafka.codec":                   "lz4",
	"kafka.batch":                   "7",
	"kafka.tls.enabled":             "true",
	"kafka.tls.ca_file":             "/f/ca",
	"kafka.tls.cert_file":           "/f/cert",
	"kafka.tls.key_file":            "/f/key",
	"kafka.tls.server_name":         "kafka",
	"kafka.sasl.mechanism":          "PLAIN",
	"kafka.sasl.user":               "u",
	"kafka.sasl.password_file":      "/f/kp",
	"postgres.dsn":                  "host=db",
	"postgres.dsn_file":             "/f/dsn",
	"postgres.password_file":        "/f/pp",
	"postgres.max_conns":            "8",
	"listen":                        ":8080",
	"gateway.listen":                ":7443",
	"gateway.cert_file":             "/f/gc",
	"gateway.key_file":              "/f/gk",
	"gateway.client_ca_file":        "/f/gca",
	"gateway.plain":                 "true",
	"gateway.rate":                  "7",
	"gateway.max_age":               "24h0m0s",
	"gateway.max_ahead":             "1m0s",
	"api.socket":                    "/f/api.sock",
	"api.listen":                    ":7444",
	"api.cert_file":                 "/f/ac",
	"api.key_file":                  "/f/ak",
	"api.plain":                     "true",
	"api.url":                       "https://q.example",
	"api.journal":                   "/f/j",
	"snapshots":                     "/f/s",
	"parts":                         "s3://vault/parts",
	"parts_cache.directory":         "/f/pc",
	"parts_cache.mib":               "7",
	"people_keys":                   "/f/pk",
	"gateway.tls_min":               "1.2",
	"archive.url":                   "/f/a",
	"archive.segment_mib":           "8",
	"archive.seal_after":            "2h0m0s",
	"archive.witnesses":             "witness.example+9f3b8ddd+BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g http://w",
	"schedules.archive":             "4 2 * * *",
	"schedules.retention":           "40 3 * * *",
	"schedules.advice":              "*/10 * * * *",
	"lease":                         "9s",
	"schedules.plan":                "1 2 * * *",
	"schedules.snapshot":            "2 2 * * *",
	"schedules.close_reminder":      "3 2 * * *",
	"schedules.checkpoint":          "@hourly",
	"schedules.checkpoint_key_file": "/f/ck",
}

// Every field can be set in the environment, which overrides the file, and a new
// field cannot be forgotten.
func TestConfigFromEnvironment(t *testing.T) {
	file, err := parseConfig("q.yaml", Example, noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]configfile.Value{}
	for _, v := range file.Values() {
		before[v.Key] = v
	}
	vars := map[string]string{"QUARTERMASTER_WEBHOOKS": "not read", "QUARTERMASTER_POSTGRES_OTHERS": "not read"}
	for path, text := range samples {
		vars[variable(path)] = text
	}
	delete(vars, variable("postgres.dsn")) // see TestConfigDSNFromEnvironment
	c, err := parseConfig("q.yaml", Example, environment(vars))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range c.Values() {
		switch v.Key {
		case "webhooks", "alertmanagers", "postgres.readers", "postgres.others", "api.providers":
			if v.From != configfile.FromDefault {
				t.Errorf("%s come from the %s", v.Key, v.From)
			}
			continue
		case "postgres.dsn":
			continue
		}
		text, ok := samples[v.Key]
		if !ok {
			t.Errorf("%s has no sample: add one", v.Key)
			continue
		}
		if v.From != configfile.FromEnvironment || v.At != variable(v.Key) {
			t.Errorf("%s comes from %s %s", v.Key, v.From, v.At)
		}
		got := fmt.Sprint(v.Value)
		if list, ok := v.Value.([]string); ok {
			got = strings.Join(list, ",")
		}
		if got != strings.ReplaceAll(text, ", ", ",") || reflect.DeepEqual(v.Value, before[v.Key].Value) {
			t.Errorf("%s is %s, want %s, and not what it was", v.Key, got, text)
		}
	}
	names := map[string]string{"QUARTERMASTER_DATA_DIR": "home", "QUARTERMASTER_CONFIG": "config", "QUARTERMASTER_DATA": "test data"}
	for _, path := range fieldPaths(t) {
		if other, taken := names[variable(path)]; taken {
			t.Errorf("%s and %s share %s", path, other, variable(path))
		}
		names[variable(path)] = path
	}

	// What is wrong there is said with the variable's name.
	_, err = parseConfig("q.yaml", []byte(minimal), environment(map[string]string{
		"QUARTERMASTER_KAFKA_BATCH": "x", "QUARTERMASTER_LEASE": "1", "QUARTERMASTER_KAFKA_TLS_ENABLED": "1",
	}))
	if want := `QUARTERMASTER_KAFKA_BATCH: kafka.batch: "x" is not a whole number
QUARTERMASTER_KAFKA_TLS_ENABLED: kafka.tls.enabled: "1" is neither true nor false
QUARTERMASTER_LEASE: lease: "1" is not a duration; write for example 4s or 250ms`; err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}
	text := "kafka:\n  brokers: ['a:1', 'b:1', 'c:1']\npostgres: {dsn: host=file}\n"
	_, err = parseConfig("q.yaml", []byte(text), environment(map[string]string{"QUARTERMASTER_KAFKA_BROKERS": "k:1,,x", "QUARTERMASTER_POSTGRES_DSN": "host=db password=hunter2"}))
	if want := `QUARTERMASTER_KAFKA_BROKERS: kafka.brokers[1]: "" is not host:port
QUARTERMASTER_KAFKA_BROKERS: kafka.brokers[2]: "x" is not host:port
QUARTERMASTER_POSTGRES_DSN: postgres.dsn: holds a password; put the password into a file that postgres.password_file names, or the whole DSN into one that postgres.dsn_file names`; err == nil || err.Error() != want {
		t.Errorf("got\n%v", err)
	}

	// It is enough by itself, without a file.
	c, err = Read("", environment(map[string]string{"QUARTERMASTER_KAFKA_BROKERS": "k:1", "QUARTERMASTER_POSTGRES_DSN": "host=db"}))
	if err != nil || c.Kafka.Brokers[0] != "k:1" {
		t.Errorf("without a file: %v", err)
	}
}

// The environment's way to name the database replaces the file's, in both forms.
func TestConfigDSNFromEnvironment(t *testing.T) {
	inFile := map[string]string{"dsn": "kafka: {brokers: ['k:1']}\npostgres: {dsn: host=file}\n", "dsn_file": "kafka: {brokers: ['k:1']}\npostgres: {dsn_file: /file}\n"}
	for in, text := range inFile {
		for _, name := range []string{"dsn", "dsn_file"} {
			c, err := parseConfig("q.yaml", []byte(text), environment(map[string]string{variable("postgres." + name): samples["postgres."+name]}))
			if err != nil {
				t.Fatal(err)
			}
			want := Postgres{DSN: "host=db", MaxConns: 16}
			if name == "dsn_file" {
				want = Postgres{DSNFile: "/f/dsn", MaxConns: 16}
			}
			if !reflect.DeepEqual(c.Postgres, want) {
				t.Errorf("%s in the file, %s in the environment: %+v", in, name, c.Postgres)
			}
		}
	}
	if _, err := parseConfig("", nil, environment(map[string]string{
		"QUARTERMASTER_KAFKA_BROKERS": "k:1", "QUARTERMASTER_POSTGRES_DSN": "host=db", "QUARTERMASTER_POSTGRES_DSN_FILE": "f",
	})); err == nil || err.Error() != "QUARTERMASTER_POSTGRES_DSN_FILE: postgres.dsn_file: is given as well as postgres.dsn; give one of the two" {
		t.Error(err)
	}
}

// A path counts from the file in which it stands.
func TestConfigPaths(t *testing.T) {
	c, err := parseConfig("/etc/qm/q.yaml", []byte("kafka: {brokers: ['k:1']}\npostgres: {dsn: host=db, password_file: db.password}\nsnapshots: /var/s\nwebhooks: [{name: a, url: 'http://x', secret_file: ../hook}]\n"),
		environment(map[string]string{"QUARTERMASTER_SCHEDULES_CHECKPOINT_KEY_FILE": "key"}))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Postgres.PasswordFile, c.Snapshots, c.Webhooks[0].SecretFile, c.Schedules.CheckpointKeyFile}
	if want := []string{"/etc/qm/db.password", "/var/s", "/etc/hook", "key"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every field that names a file is known to be one, and every secret as a secret.
func TestConfigFilesAreKnown(t *testing.T) {
	known := map[string]bool{}
	c := &Config{Webhooks: make([]Webhook, 1), Alertmanagers: make([]Alertmanager, 1), Postgres: Postgres{Others: make([]Database, 1)}, API: API{Providers: make([]Provider, 1)}}
	for _, f := range c.Files() {
		known[f.field] = f.Secret
	}
	for _, p := range append(fieldPaths(t), listedFields()...) {
		secret, ok := known[p]
		if strings.HasSuffix(p, "_file") != ok && p != "snapshots" && p != "api.socket" && p != "api.journal" && p != "parts" && p != "parts_cache.directory" && p != "people_keys" && p != "archive.url" {
			t.Errorf("%s is a file: %t", p, ok)
		}
		if secret != regexp.MustCompile(`(dsn|password|key|secret|token)_file$`).MatchString(p) {
			t.Errorf("%s is a secret: %t", p, secret)
		}
	}
}

var commented = regexp.MustCompile(`(?m)^( *)#([a-z_]+:|- )`)

// The example is the one that operators are given, it works as it stands, and
// shows every field with what holds without it.
func TestConfigExample(t *testing.T) {
	deployed, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "quartermaster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(deployed, Example) {
		t.Error("deploy/quartermaster.yaml differs from quartermaster.yaml here: copy one over the other")
	}
	if _, err := parseConfig("q.yaml", Example, noEnvironment); err != nil {
		t.Error(err)
	}
	all := commented.ReplaceAll(Example, []byte("$1$2"))
	all = bytes.Replace(all, []byte("\n  dsn: "), []byte("\n  #dsn: "), 1)
	all = bytes.Replace(all, []byte("\n      dsn: "), []byte("\n      #dsn: "), 1)
	// All of it at once: webhooks are a list, so that what follows a dash is deeper by two.
	c, err := parseConfig("q.yaml", all, noEnvironment)
	if err != nil {
		// TLS is described and not enabled there, which is the one thing that does not go together.
		all = bytes.Replace(all, []byte("enabled: false"), []byte("enabled: true"), 1)
		if c, err = parseConfig("q.yaml", all, noEnvironment); err != nil {
			t.Fatal(err)
		}
	}
	without, err := configfile.Parse("", nil, envPrefix, noEnvironment, new(Config))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range c.File.Values() {
		if v.Key == "kafka.replication" {
			continue // the example is for one broker, and says what production needs
		}
		if v.From != configfile.FromFile && v.Key != "postgres.dsn" {
			t.Errorf("%s is not in the example", v.Key)
		}
		standard := reflect.ValueOf(without.Values()[i].Value)
		if !standard.IsZero() && (standard.Kind() != reflect.Slice || standard.Len() > 0) && v.Key != "kafka.tls.enabled" && !reflect.DeepEqual(standard.Interface(), v.Value) {
			t.Errorf("the example shows %v for %s, and it is %v", v.Value, v.Key, standard)
		}
	}
	for _, path := range listedFields() {
		if path != "postgres.others[0].dsn" && path != "postgres.readers[0].whole_estate" && c.File.Origin(path).Kind != configfile.FromFile {
			t.Errorf("%s is not in the example", path)
		}
	}
}

// What is shown is a configuration, of the same meaning.
func TestConfigShowReadsBack(t *testing.T) {
	text := minimal + "instance: 'yes'\nsnapshots: \"a b: #c\"\nschedules: {plan: '*/5 * * * *'}\nwebhooks: [{name: a, url: 'http://x', types: [B, C], workspaces: [w]}]\n"
	text = strings.Replace(text, "rows}", "rows, readers: [{role: r, whole_estate: true}, {role: s, workspaces: [a, 'b: c']}], others: [{name: b, dsn: 'host=h', partitions: [qm.fleet/1-2]}]}", 1)
	c, err := parseConfig("/d/q.yaml", []byte(text), noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	readsBack(t, c)
}

func readsBack(t *testing.T, c *Config) {
	t.Helper()
	shown, err := configfile.YAML(c.Values())
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseConfig("/d/q.yaml", shown, noEnvironment)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	for i, v := range again.Values() {
		if was := c.Values()[i]; !reflect.DeepEqual(v.Value, was.Value) {
			t.Errorf("%s was %#v and is read back as %#v from\n%s", v.Key, was.Value, v.Value, shown)
		}
	}
}

func FuzzLoadConfig(f *testing.F) {
	f.Add([]byte(minimal), "9s")
	f.Add(Example, "")
	f.Add(commented.ReplaceAll(Example, []byte("$1$2")), "1h")
	f.Add([]byte("kafka: {brokers: [[[[[[[["), "x")
	f.Add([]byte("? a\n: *b\n"), "")
	f.Add([]byte("webhooks:\n- {name: a, url: 'http://x/y?z', types: [a]}\n"), "")
	f.Fuzz(func(t *testing.T, text []byte, lease string) {
		if len(text) > 64<<10 {
			return
		}
		vars := map[string]string{"QUARTERMASTER_LEASE": lease, "QUARTERMASTER_INSTANCE": "i"}
		c, err := parseConfig("/d/q.yaml", text, environment(vars))
		if err != nil {
			return
		}
		readsBack(t, c)
	})
}

// A misspelt variable would go unnoticed, and Kubernetes' own are none.
func TestEnvironmentFaults(t *testing.T) {
	environ := []string{
		"PATH=/bin", "QUARTERMASTER_DATA_DIR=x", "QUARTERMASTER_KAFKA_BROKER=k:1", "QUARTERMASTER_KAFKA_BROKERS=k:1",
		"QUARTERMASTER_WEBHOOKS=x", "QUARTERMASTER_PORT=tcp://10.0.0.1:7070", "QUARTERMASTER_PORT_7070_TCP_ADDR=10.0.0.1",
		"QUARTERMASTER_SERVICE_HOST=10.0.0.1", "QUARTERMASTER_SERVICE_PORT_HTTP=7070", "QUARTERMASTER_DB_SERVICE_PORT=5432",
	}
	for _, path := range fieldPaths(t) {
		environ = append(environ, variable(path)+"=x")
	}
	c, err := parseConfig("q.yaml", []byte(minimal), noEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	got := c.EnvironmentFaults(environ)
	if want := []string{"QUARTERMASTER_ALERTMANAGERS", "QUARTERMASTER_API_PROVIDERS", "QUARTERMASTER_KAFKA_BROKER", "QUARTERMASTER_POSTGRES_OTHERS", "QUARTERMASTER_POSTGRES_READERS", "QUARTERMASTER_WEBHOOKS", "QUARTERMASTER_WEBHOOKS"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A log without a configuration has receivers in a file of their own, with the same fields and the same errors.
func TestReadReceivers(t *testing.T) {
	read := func(text string) (Receivers, error) {
		path := filepath.Join(t.TempDir(), "receivers.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadReceivers(path)
	}
	r, err := read("webhooks:\n  - {name: w, url: https://example.com/x, severity: warning, secret_file: w.secret}\n" +
		"alertmanagers:\n  - {name: m, url: http://localhost:9093, token_file: /etc/m}\n")
	if err != nil || len(r.Webhooks) != 1 || len(r.Alertmanagers) != 1 || !filepath.IsAbs(r.Webhooks[0].SecretFile) || r.Alertmanagers[0].TokenFile != "/etc/m" {
		t.Errorf("%+v, %v", r, err)
	}
	for text, want := range map[string]string{
		"webhooks:\n  - {name: w, url: example.com}\n":                                     "webhooks[0].url: is not an http or https address",
		"webhooks:\n  - {name: w, url: 'http://a/', severity: loud}\n":                     `webhooks[0].severity: "loud" is not a severity`,
		"alertmanagers:\n  - {name: m, url: 'http://a'}\n  - {name: m, url: 'http://b'}\n": "alertmanagers[1].name: m is there twice",
		"kafka: {}\n": "kafka",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
