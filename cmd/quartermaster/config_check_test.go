package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/cli"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/config/configtest"
	"quartermaster/domain"
	"quartermaster/projections"
)

// checked runs config check and returns its lines by their checks.
func checked(t *testing.T, path string) (code int, checks map[string][]app.ConfigCheck) {
	t.Helper()
	code, out := command(t, t.TempDir(), "config", "check", "-o", "json", "--config", path)
	var ans cli.ConfigCheckAnswer
	if err := json.Unmarshal([]byte(out), &ans); err != nil || ans.OK != (code == 0) || ans.Config != path {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	checks = map[string][]app.ConfigCheck{}
	for _, c := range ans.Checks {
		checks[c.Check] = append(checks[c.Check], c)
	}
	return code, checks
}

// expect fails unless a check has the result, and says and advises so.
func expect(t *testing.T, checks map[string][]app.ConfigCheck, check, result, found, next string) {
	t.Helper()
	if !slices.ContainsFunc(checks[check], func(c app.ConfigCheck) bool {
		return c.Result == result && strings.Contains(c.Found, found) && strings.Contains(c.Next, next)
	}) {
		t.Errorf("%s: %+v\nwant %s, %q and %q", check, checks[check], result, found, next)
	}
}

// writeConfig writes a configuration; the brokers stand in its first line.
func writeConfig(t *testing.T, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "q.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeSecret(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// broker is one that speaks Kafka's protocol over TCP.
func broker(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// noDatabase is one that answers nobody.
const noDatabase = "postgres: {dsn: 'postgres://u@127.0.0.1:1/rows?sslmode=disable'}\n"

// What is wrong with topics is said topic by topic, and nothing is created.
func TestConfigCheckTopics(t *testing.T) {
	t.Parallel()
	address := broker(t)
	path := writeConfig(t, "kafka: {replication: 1, brokers: ['%s', '127.0.0.1:1']}\n%s", address, noDatabase)
	code, checks := checked(t, path)
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	expect(t, checks, "broker "+address, app.CheckOK, "answers (plain text)", "")
	expect(t, checks, "broker 127.0.0.1:1", app.CheckFailed, "connection refused", "")
	expect(t, checks, "log", app.CheckOK, "id ", "")
	expect(t, checks, "topics", app.CheckFailed, "there are none yet", "serve\" creates them")
	expect(t, checks, "postgres", app.CheckFailed, "connection refused", "start it, or correct postgres.dsn")
	path = writeConfig(t, "kafka: {replication: 1, brokers: ['%s']}\n%s", address, noDatabase)

	log, err := kafka.Open(t.Context(), kafka.Config{Brokers: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	specs := domain.TopicSpecs()
	if err := log.EnsureTopics(t.Context(), specs[:2]); err != nil {
		t.Fatal(err)
	}
	_, checks = checked(t, path) // which would find what the first one made
	expect(t, checks, "replication", app.CheckWarning, "may lose acknowledged events", "flush.messages=1")
	expect(t, checks, "durability", app.CheckWarning, string(specs[0].Topic)+", "+string(specs[1].Topic)+": replicas: 1", "flush.messages=1")
	expect(t, checks, "topic "+string(specs[0].Topic), app.CheckOK, "partitions, kept for ever", "")
	expect(t, checks, "topics", app.CheckFailed, "these do not exist: "+string(specs[2].Topic)+", ", "")
	if err := log.EnsureTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	_, checks = checked(t, path)
	expect(t, checks, "partitions", app.CheckOK, fmt.Sprintf("%d are led by brokers that answer; they hold 0 events", len(domain.AllPartitions())), "")
}

// Before the first start topics are missing as they should be, and more replicas
// than brokers are found before serve meets them.
func TestConfigCheckFirstStart(t *testing.T) {
	dsn, _ := database(t)
	address := broker(t)
	path := writeConfig(t, "kafka: {replication: 3, brokers: ['%s']}\npostgres: {dsn_file: %q}\n", address, writeSecret(t, dsn))
	_, checks := checked(t, path)
	expect(t, checks, "replication", app.CheckFailed, "kafka.replication is 3, and there are 1 brokers", "set kafka.replication: 1")
	expect(t, checks, "topics", app.CheckFailed, "there are none yet; they will be created by \"quartermaster serve\", but a trial failed", "")
	expect(t, checks, "schema", app.CheckWarning, "there is none yet", "will be created by \"quartermaster generation migrate\"")
	path = writeConfig(t, "kafka: {replication: 1, brokers: ['%s']}\npostgres: {dsn_file: %q}\n", address, writeSecret(t, dsn))
	if code, checks := checked(t, path); code != 0 {
		t.Errorf("all of it can be made, and it exits %d: %+v", code, checks)
	}
	if _, _, err := postgres.Migrate(t.Context(), postgres.Config{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	_, checks = checked(t, path)
	expect(t, checks, "topics", app.CheckWarning, "there are none yet", "will be created by \"quartermaster serve\"")
	db, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Bind(t.Context(), "another", nil); err != nil {
		t.Fatal(err)
	}
	_, checks = checked(t, path)
	expect(t, checks, "topics", app.CheckFailed, "there are none yet", "correct kafka.brokers")
}

// A user who may make neither schema nor topics is told which rights are missing.
func TestConfigCheckRights(t *testing.T) {
	dsn, db := database(t)
	role := fmt.Sprintf("restricted_%d", time.Now().UnixNano())
	exec := func(query string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	exec("create role " + role + " login password 'secret'")
	t.Cleanup(func() {
		for _, query := range []string{"grant " + role + " to current_user", "drop owned by " + role + " cascade", "drop role " + role} {
			if _, err := db.ExecContext(context.Background(), query); err != nil {
				t.Error(err)
			}
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	name := strings.TrimPrefix(u.Path, "/")
	const user = "SCRAM-SHA-512"
	describe := func(kind kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) (acls []kfake.ACL) {
		for _, op := range ops {
			acls = append(acls, kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true})
		}
		return acls
	}
	acls := slices.Concat(
		describe(kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
		describe(kmsg.ACLResourceTypeTopic, "*", kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationRead, kmsg.ACLOperationWrite))
	address := broker(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User(user, "reader", "right", acls...))
	path := writeConfig(t, "kafka: {replication: 1, brokers: ['%s'], sasl: {mechanism: %s, user: reader, password_file: %s}}\npostgres: {dsn_file: %s}\n",
		address, user, writeSecret(t, "right"), writeSecret(t, u.String()))
	code, checks := checked(t, path)
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	expect(t, checks, "schema", app.CheckFailed, "will be created by \"quartermaster generation migrate\", but these rights are missing: CREATE on database "+name, "grant them")
	expect(t, checks, "topics", app.CheckFailed, "will be created by \"quartermaster serve\", but these rights are missing: Create on the cluster", "grant them to User:reader")

	exec("grant create on database " + name + " to " + role)
	_, checks = checked(t, path)
	expect(t, checks, "schema", app.CheckWarning, "this user may make it", "generation migrate")
	if _, _, err := postgres.Migrate(t.Context(), postgres.Config{DSN: u.String()}); err != nil {
		t.Errorf("check says that the user may: %v", err)
	}
}

// Other settings, and more partitions, are what serve refuses too.
func TestConfigCheckSettings(t *testing.T) {
	t.Parallel()
	spec := domain.TopicSpecs()[0]
	address := broker(t, kfake.SeedTopics(int32(spec.Partitions)+1, string(spec.Topic)))
	_, checks := checked(t, writeConfig(t, "kafka: {brokers: ['%s']}\n%s", address, noDatabase))
	name := "topic " + string(spec.Topic)
	expect(t, checks, name, app.CheckFailed, fmt.Sprintf("partitions is %d, must be %d", spec.Partitions+1, spec.Partitions), "Kafka cannot remove partitions")
	expect(t, checks, name, app.CheckFailed, "retention.ms is ", "kafka-configs.sh --alter --entity-type topics --entity-name "+string(spec.Topic)+" --add-config retention.ms=-1")
}

// Encryption and logins that do not fit are told apart.
func TestConfigCheckConnections(t *testing.T) {
	t.Parallel()
	cert, key := configtest.Certificate(t)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	secure := broker(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "u", "right"), kfake.Superuser("PLAIN", "u", "right"))
	ca := writeSecret(t, string(cert))
	right, wrong := writeSecret(t, "right\n"), writeSecret(t, "hunter2")
	for name, c := range map[string]struct{ address, tls, sasl, result, found, next string }{
		"right":             {secure, "{enabled: true, ca_file: " + ca + "}", "{mechanism: SCRAM-SHA-512, user: u, password_file: " + right + "}", app.CheckOK, "answers (TLS, SCRAM-SHA-512)", ""},
		"right as it is":    {secure, "{enabled: true, ca_file: " + ca + "}", "{mechanism: PLAIN, user: u, password_file: " + right + "}", app.CheckOK, "answers (TLS, PLAIN)", ""},
		"wrong password":    {secure, "{enabled: true, ca_file: " + ca + "}", "{mechanism: SCRAM-SHA-512, user: u, password_file: " + wrong + "}", app.CheckFailed, "", "the login is wrong"}, // this broker hangs up, where Apache Kafka says so
		"unknown mechanism": {secure, "{enabled: true, ca_file: " + ca + "}", "{mechanism: SCRAM-SHA-256, user: u, password_file: " + right + "}", app.CheckFailed, "", "it closed the connection"},
		"no login":          {secure, "{enabled: true, ca_file: " + ca + "}", "{}", app.CheckFailed, "", "it closed the connection"},
		"no encryption":     {secure, "{}", "{}", app.CheckFailed, "", "it closed the connection"},
		"unknown authority": {secure, "{enabled: true}", "{}", app.CheckFailed, "unknown authority", "kafka.tls.ca_file"},
		"another name":      {secure, "{enabled: true, ca_file: " + ca + ", server_name: elsewhere}", "{}", app.CheckFailed, "elsewhere", "kafka.tls.server_name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, checks := checked(t, writeConfig(t, "kafka: {brokers: ['%s'], tls: %s, sasl: %s}\n%s", c.address, c.tls, c.sasl, noDatabase))
			expect(t, checks, "broker "+c.address, c.result, c.found, c.next)
			for _, list := range checks {
				for _, c := range list {
					if strings.Contains(c.Found+c.Next, "hunter2") {
						t.Errorf("a secret is shown: %+v", c)
					}
				}
			}
		})
	}
}

// database makes an empty one on the server that QM_POSTGRES_DSN names.
func database(t testing.TB) (dsn string, db *sql.DB) {
	t.Helper()
	server := os.Getenv("QM_POSTGRES_DSN")
	if server == "" {
		t.Skip("QM_POSTGRES_DSN names no server")
	}
	open := func(dsn string) *sql.DB {
		c, err := pq.NewConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		return sql.OpenDB(c)
	}
	admin := open(server)
	name := fmt.Sprintf("config_check_%d", time.Now().UnixNano())
	if _, err := admin.ExecContext(t.Context(), "create database "+pq.QuoteIdentifier(name)); err != nil {
		t.Fatal(err)
	}
	dsn = server + " dbname=" + name
	if u, err := url.Parse(server); err == nil && config.IsURL(server) {
		u.Path = "/" + name
		dsn = u.String()
	}
	db = open(dsn)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "drop database "+pq.QuoteIdentifier(name)+" with (force)")
		if err != nil { // an autovacuum is at work, which only waiting ends
			_, err = admin.ExecContext(context.Background(), "drop database "+pq.QuoteIdentifier(name))
		}
		if err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return dsn, db
}

// What a database holds is compared with this program and with the log.
func TestConfigCheckPostgres(t *testing.T) {
	dsn, db := database(t)
	address := os.Getenv("QM_KAFKA_BROKERS")
	if address == "" {
		address = broker(t)
	}
	address, _, _ = strings.Cut(address, ",")
	log, err := kafka.Open(t.Context(), kafka.Config{Brokers: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	id, err := log.ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	topics, err := log.TopicIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	path := writeConfig(t, "kafka: {replication: 1, brokers: ['%s']}\npostgres: {dsn_file: %s}\n", address, writeSecret(t, dsn))
	code, checks := checked(t, path)
	expect(t, checks, "postgres", app.CheckOK, "version ", "")
	expect(t, checks, "clock", app.CheckOK, "ahead of the database's", "")
	expect(t, checks, "schema", app.CheckWarning, "there is none yet", "generation migrate")
	if code != 0 || checks["generation"] != nil {
		t.Errorf("exit %d, %+v", code, checks)
	}

	_, version, err := postgres.Migrate(t.Context(), postgres.Config{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	if code, checks = checked(t, path); code != 0 {
		t.Errorf("all is well, and it exits %d: %+v", code, checks)
	}
	expect(t, checks, "schema", app.CheckOK, fmt.Sprint("version ", version), "")
	expect(t, checks, "generation", app.CheckOK, "none yet", "")
	expect(t, checks, "rows", app.CheckOK, "are of no log yet", "")

	exec(`insert into quartermaster.generations (name, method, state) values ('g', 'folds/0', 'live')`)
	exec(`insert into quartermaster.active (generation) values ('g')`)
	exec(`insert into quartermaster.log (log_id) values ('another')`)
	code, checks = checked(t, path)
	expect(t, checks, "generation", app.CheckFailed, "g was made by folds/0, this program folds with "+projections.Method, "generation rebuild")
	expect(t, checks, "rows", app.CheckFailed, "are of log another, and the brokers' is "+id, "do not belong together")
	if code != 1 {
		t.Errorf("exit %d", code)
	}

	exec(`update quartermaster.generations set method = $1`, projections.Method)
	exec(`update quartermaster.log set log_id = $1`, id)
	for topic, id := range topics {
		exec(`insert into quartermaster.topics (topic, topic_id, partitions) values ($1, $2, 1)`, string(topic), id)
	}
	code, checks = checked(t, path)
	expect(t, checks, "generation", app.CheckOK, "g, made by "+projections.Method, "")
	expect(t, checks, "rows", app.CheckOK, "are of this log", "")
	if code != 0 {
		t.Errorf("exit %d", code)
	}

	if topic := string(domain.TopicSpecs()[0].Topic); topics[domain.Topic(topic)] != "" {
		exec(`update quartermaster.topics set topic_id = 'was' where topic = $1`, topic)
		_, checks = checked(t, path)
		expect(t, checks, "rows", app.CheckFailed, "topic "+topic+" with id was, and now its id is", "recreate the log in another Kafka")
	}
	for _, v := range []struct {
		version int64
		advice  string
	}{{version + 1, "upgrade this program"}, {version - 1, "generation migrate"}} {
		exec(`delete from quartermaster.schema_version where version_id > 0`)
		exec(`insert into quartermaster.schema_version (version_id, is_applied) values ($1, true)`, v.version)
		_, checks = checked(t, path)
		if v.version > 0 {
			expect(t, checks, "schema", app.CheckFailed, fmt.Sprintf("version %d, this program", v.version), v.advice)
		}
	}
}

// A server that refuses is told from one that is away.
func TestConfigCheckPostgresRefuses(t *testing.T) {
	dsn, _ := database(t)
	cfg, err := pq.NewConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("host=%s port=%d sslmode=disable ", cfg.Host, cfg.Port)
	for _, c := range []struct{ dsn, found, next string }{
		{at + "user=" + cfg.User + " dbname=" + cfg.Database + " password=hunter2", "password authentication failed", "it refused the login"},
		{at + "user=" + cfg.User + " dbname=nosuch password='" + strings.ReplaceAll(cfg.Password, "'", `\'`) + "'", "nosuch", "create the database"},
		{"host=" + cfg.Host + " port=1 sslmode=disable user=u dbname=d", "connection refused", "start it"},
	} {
		_, checks := checked(t, writeConfig(t, "kafka: {brokers: ['127.0.0.1:1']}\npostgres: {dsn_file: %s}\n", writeSecret(t, c.dsn)))
		expect(t, checks, "postgres", app.CheckFailed, c.found, c.next)
		if strings.Contains(fmt.Sprint(checks), "hunter2") {
			t.Error("a secret is shown")
		}
	}
}

// What the brokers say of the topics is compared with what keeps acknowledged events.
func TestConfigCheckDurability(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		brokers, replicas int
		inSync, flush     string
		result            string
		found, next       string
	}{
		"one broker":         {1, 1, "1", "", app.CheckWarning, "replicas: 1, min.insync.replicas: 1, flush.messages: not told, flush.ms: not told; the only broker", "flush.messages=1"},
		"never flushed":      {1, 1, "1", fmt.Sprint(math.MaxInt64), app.CheckWarning, "flush.messages: never", "kafka.replication: 3"},
		"flushed":            {1, 1, "1", "1", app.CheckOK, "outlives a power cut", ""},
		"two":                {2, 2, "2", "", app.CheckWarning, "replicas: 2, min.insync.replicas: 2", "kafka.replication: 3"},
		"three":              {3, 3, "2", "", app.CheckOK, "outlives the loss of a machine", ""},
		"three, one in sync": {3, 3, "1", "", app.CheckFailed, "min.insync.replicas is 1, must be 2 or more", "--add-config min.insync.replicas=2"},
		"one of three":       {3, 1, "1", "", app.CheckFailed, "replicas is 1, must be 3 or more", "kafka-reassign-partitions.sh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(c.brokers))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			log, err := kafka.Open(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs(), Replication: c.replicas})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			if err := log.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
				t.Fatal(err)
			}
			// This broker keeps no flush.messages, and min.insync.replicas is read from what it says.
			cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				res := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
				for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
					r := kmsg.NewDescribeConfigsResponseResource()
					r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
					for name, value := range map[string]string{
						"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime",
						"max.message.bytes": fmt.Sprint(64 << 20), "min.insync.replicas": c.inSync, "flush.messages": c.flush,
					} {
						if value != "" {
							e := kmsg.NewDescribeConfigsResponseResourceConfig()
							e.Name, e.Value = name, kmsg.StringPtr(value)
							r.Configs = append(r.Configs, e)
						}
					}
					res.Resources = append(res.Resources, r)
				}
				return res, nil, true
			})
			_, checks := checked(t, writeConfig(t, "kafka: {replication: %d, brokers: ['%s']}\n%s", c.brokers, strings.Join(cluster.ListenAddrs(), "','"), noDatabase))
			check := "durability"
			if c.result == app.CheckFailed {
				check = "topic " + string(domain.TopicFleet)
			}
			expect(t, checks, check, c.result, c.found, c.next)
		})
	}
}

// No command shows a secret, whatever fails.
func TestSecretsAreNotShown(t *testing.T) {
	path, _ := configtest.Secrets(t)
	for _, args := range [][]string{{"show"}, {"show", "-o", "json"}, {"check"}, {"check", "-o", "json"}, {"check", "--offline"}} {
		_, out := command(t, t.TempDir(), append([]string{"config", "--config", path}, args...)...)
		if strings.Contains(out, "hunter2") || strings.Contains(out, "PRIVATE") || !strings.Contains(out, "https://example.com/…") {
			t.Errorf("%v:\n%s", args, out)
		}
	}
}
