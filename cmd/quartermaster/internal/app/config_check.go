package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/adapters/transport"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	// checkPatience is short, because a person waits for the check.
	checkPatience = time.Second
	checkAtMost   = time.Minute
	// farApart is the clock difference above which people who compare logs are confused. Nothing
	// depends on it: leases use the database's clock.
	farApart = 5 * time.Second
)

// checker checks a configuration and the servers that it names.
type checker struct {
	on   *App
	c    *config.Config
	list []ConfigCheck

	log *kafka.Log // nil: the log does not answer

	missing int   // 1 + index in list of the check of missing topics; 0: none
	create  error // why serve could not create them
}

func (k *checker) note(check, result, found, next string) {
	k.list = append(k.list, ConfigCheck{check, result, found, next})
}

func (k *checker) ok(check, format string, args ...any) {
	k.note(check, CheckOK, fmt.Sprintf(format, args...), "")
}

func (k *checker) failed(check string, err error, next string) {
	k.note(check, CheckFailed, err.Error(), next)
}

// CheckConfig checks a configuration. Without offline it also connects to the servers in it.
func (s *App) CheckConfig(ctx context.Context, path string, offline bool) []ConfigCheck {
	k := &checker{on: s}
	c, err := config.Read(path, os.Getenv)
	if err != nil {
		for _, e := range configfile.Joined(err) {
			k.failed("configuration", e, "")
		}
		return k.list
	}
	k.c = c
	given := map[string]int{}
	for _, v := range c.File.Values() {
		given[v.From]++
	}
	k.ok("configuration", "%d fields from the file, %d from the environment, %d defaults", given[configfile.FromFile], given[configfile.FromEnvironment], given[configfile.FromDefault])
	for _, name := range c.EnvironmentFaults(os.Environ()) {
		k.note("environment", CheckWarning, name+" does not name a field and is ignored", "correct its name, or unset it")
	}
	ready := k.secrets()
	k.api(time.Now())
	k.gateway(time.Now())
	k.snapshots()
	k.schedules(time.Now())
	k.webhooks()
	k.alertmanagers()
	switch {
	case offline:
		k.note("kafka", CheckSkipped, "offline", "")
		k.note("postgres", CheckSkipped, "offline", "")
	case !ready:
		k.note("kafka", CheckSkipped, "a secret is missing", "")
		k.note("postgres", CheckSkipped, "a secret is missing", "")
	default:
		ctx, cancel := context.WithTimeout(ctx, checkAtMost)
		defer cancel()
		id, topics := k.kafka(ctx)
		k.postgres(ctx, id, topics)
		if k.log != nil {
			_ = k.log.Close() // nothing is in progress
		}
	}
	return k.list
}

func (k *checker) secrets() (ready bool) {
	if err := k.c.CheckSecrets(); err != nil {
		for _, e := range configfile.Joined(err) {
			k.failed("secret", e, "")
		}
		return false
	}
	n := 0
	for _, f := range k.c.Files() {
		if f.Secret && *f.Path != "" {
			n++
		}
	}
	k.ok("secrets", "all %d are present, and only this user can read them", n)
	return true
}

// certificate checks a certificate of ours, in the files of a section of the configuration.
func (k *checker) certificate(of, certFile, keyFile string, now time.Time) {
	if certFile == "" {
		return
	}
	check, renew := of+" certificate", "renew it: serve reads both files again when they change"
	switch ends, warning, err := transport.NewCertificate(certFile, keyFile, slog.New(slog.DiscardHandler)).Validity(now); {
	case ends.IsZero():
		k.failed(check, err, fmt.Sprintf("write a certificate and its key in PEM into %s.cert_file and %[1]s.key_file", of))
	case err != nil:
		k.failed(check, err, renew)
	case warning != "":
		k.note(check, CheckWarning, warning, renew)
	default:
		k.ok(check, "ends at %s", ends.Format(time.RFC3339))
	}
}

// api checks the API's own certificate, and the authorities of identity providers.
func (k *checker) api(now time.Time) {
	k.certificate("api", k.c.API.CertFile, k.c.API.KeyFile, now)
	for _, p := range k.c.API.Providers {
		if p.CAFile == "" {
			continue
		}
		if _, err := transport.Pool(p.CAFile); err != nil {
			k.failed("identity provider "+p.Name, err, "write the authorities of the provider's certificate into ca_file, in PEM")
		}
	}
}

// gateway checks the gateway's own certificate and the CA of the clients' certificates.
func (k *checker) gateway(now time.Time) {
	g := k.c.Gateway
	k.certificate("gateway", g.CertFile, g.KeyFile, now)
	if g.ClientCAFile != "" {
		if _, err := transport.Pool(g.ClientCAFile); err != nil {
			k.failed("gateway clients", err, "write the authorities that sign the certificates of nodes into gateway.client_ca_file, in PEM")
			return
		}
		k.ok("gateway clients", "must show a certificate of an authority in %s", g.ClientCAFile)
	}
}

// snapshots writes a file into the directory, and removes it.
func (k *checker) snapshots() {
	dir := k.c.Snapshots
	if dir == "" {
		k.ok("snapshots", "none are scheduled: no directory is configured")
		return
	}
	f, err := os.CreateTemp(dir, ".config-check-*")
	if err == nil {
		_, err = f.WriteString("quartermaster config check\n")
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		k.failed("snapshots", err, fmt.Sprintf("create %s, and let this user (%d) write to it", dir, os.Getuid()))
		return
	}
	k.ok("snapshots", "%s can be written", dir)
}

func (k *checker) schedules(now time.Time) {
	for _, s := range k.c.Schedules.All() {
		if s.Text == "" {
			k.ok("schedule "+s.Name, "never")
			continue
		}
		next, err := config.ParseSchedule(s.Text)
		if err != nil {
			k.failed("schedule "+s.Name, err, "")
			continue
		}
		k.ok("schedule "+s.Name, "%s, next at %s", s.Text, next.Next(now).Format(time.RFC3339))
	}
}

func (k *checker) webhooks() {
	for _, w := range k.c.Webhooks {
		what := "incidents and what waits for a person"
		if len(w.Types) > 0 {
			what = strings.Join(w.Types, ", ")
		}
		signed := "unsigned"
		if w.SecretFile != "" {
			signed = "signed"
		}
		k.ok("webhook "+w.Name, "%s to %s, %s; not called", what, config.HiddenURL(w.URL), signed)
	}
}

func (k *checker) alertmanagers() {
	for _, a := range k.c.Alertmanagers {
		k.ok("alertmanager "+a.Name, "%s; not called", config.HiddenURL(a.URL))
	}
}

// kafka tries the brokers one by one, then the log. It returns the log's id and its topics' ids,
// as far as they are known.
func (k *checker) kafka(ctx context.Context) (id string, topics map[domain.Topic]string) {
	cfg, err := k.c.ForKafka()
	if err != nil {
		k.failed("kafka", err, "")
		return "", nil
	}
	cfg.Patience = checkPatience
	found := make([]error, len(cfg.Brokers))
	var wg sync.WaitGroup
	for i, b := range cfg.Brokers {
		wg.Go(func() {
			one := cfg
			one.Brokers = []string{b}
			log, err := kafka.Open(ctx, one)
			if err == nil {
				err = log.Close()
			}
			found[i] = err
		})
	}
	wg.Wait()
	how := "plain text"
	if cfg.TLS != nil {
		how = "TLS"
	}
	if cfg.SASL != nil {
		how += ", " + cfg.SASL.Name()
	}
	for i, b := range cfg.Brokers {
		if found[i] != nil {
			k.failed("broker "+b, found[i], k.brokerAdvice(found[i]))
			continue
		}
		k.ok("broker "+b, "answers (%s)", how)
	}
	if !slices.Contains(found, nil) {
		k.note("log", CheckSkipped, "no broker answers", "")
		return "", nil
	}
	log, err := kafka.Open(ctx, cfg)
	if err != nil {
		k.failed("log", err, k.brokerAdvice(err))
		return "", nil
	}
	k.log = log
	if id, err = log.ID(ctx); err != nil {
		k.failed("log", err, "")
		return "", nil
	}
	k.ok("log", "id %s", id)
	if archived, err := (&App{Config: k.c, OpenBucket: k.on.OpenBucket}).attach(ctx, log, id); err != nil {
		k.failed("archive", err, "correct archive.url")
	} else if archived != nil {
		if _, err := archived.ID(ctx); err != nil {
			k.failed("archive", err, "correct archive.url, or let this user read it")
		} else {
			k.ok("archive", "%s can be read", archived)
		}
	}
	exist := k.topics(ctx, log)
	k.replication(ctx, log, exist)
	if !exist {
		return id, nil
	}
	first, next, err := log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		k.failed("partitions", err, "every broker must be reached at the address it advertises: check advertised.listeners, and that all brokers run")
		return id, nil
	}
	if trimmed := TrimmedTexts(trimmedOf(first)); len(trimmed) > 0 {
		for _, text := range trimmed {
			k.failed("partitions", errors.New(strings.TrimSuffix(text, "; "+kafka.Anew)), kafka.Anew)
		}
	} else {
		k.ok("partitions", "%d are led by brokers that answer; they hold %d events from offset 0 on", len(next), next.Records())
	}
	if topics, err = log.TopicIDs(ctx); err != nil {
		k.failed("topics", err, "")
	}
	return id, topics
}

// replication compares the replicas of new topics with the number of brokers. For existing topics
// [checker.durability] checks what the brokers report.
func (k *checker) replication(ctx context.Context, log *kafka.Log, exist bool) {
	n, err := log.Brokers(ctx)
	switch want := k.c.Kafka.Replication; {
	case err != nil:
		k.failed("replication", err, "")
	case want > n:
		k.failed("replication", fmt.Errorf("kafka.replication is %d, and there are %d brokers", want, n),
			fmt.Sprintf("start the others, or set kafka.replication: %d", n))
	case want < 3 && !exist:
		k.note("replication", CheckWarning, fmt.Sprintf("topics will get %d, with %d brokers: a machine that loses power may lose acknowledged events", want, n),
			"set kafka.replication: 3 with brokers on separate power, or flush.messages=1 on the topics: docs/operate/diverged.md")
	default:
		k.ok("replication", "%d, with %d brokers", want, n)
	}
}

// durability reports for existing topics whether the loss of a machine loses events.
func (k *checker) durability(ctx context.Context, log *kafka.Log, exist []domain.TopicSpec) {
	if len(exist) == 0 {
		return
	}
	ds, err := log.Durabilities(ctx, exist)
	if err != nil {
		k.failed("durability", err, "")
		return
	}
	for _, d := range Durabilities(ds) {
		found := d.Found
		if len(d.Topics) < len(domain.TopicSpecs()) {
			found = joinTopics(d.Topics) + ": " + found
		}
		if d.Unsafe {
			k.note("durability", CheckWarning, found, d.Next)
		} else {
			k.ok("durability", "%s", found)
		}
	}
}

// notYet downgrades missing topics to a warning if they can be created: the rows belong to no log
// yet, so no topic was deleted.
func (k *checker) notYet() {
	if k.missing == 0 {
		return
	}
	c := &k.list[k.missing-1]
	switch {
	case k.create == nil:
		c.Result, c.Next = CheckWarning, "they will be created by \"quartermaster serve\" at its first start"
	case errors.Is(k.create, kafka.ErrNoRight):
		c.Found += "; they will be created by \"quartermaster serve\", but these rights are missing: Create on the cluster, or on each of these topics"
		c.Next = "grant them to " + k.kafkaUser() + ", or create the topics as it"
	default:
		c.Found += "; they will be created by \"quartermaster serve\", but a trial failed: " + k.create.Error()
		c.Next = ""
	}
}

// kafkaUser is the user name that the brokers see.
func (k *checker) kafkaUser() string {
	switch c := k.c.Kafka; {
	case c.SASL.User != "":
		return "User:" + c.SASL.User
	case c.TLS.CertFile != "":
		return "the subject of " + c.TLS.CertFile
	}
	return "User:ANONYMOUS"
}

// topics checks each topic separately, so that each failure names its own.
func (k *checker) topics(ctx context.Context, log *kafka.Log) (exist bool) {
	specs := domain.TopicSpecs()
	found := make([]error, len(specs))
	var wg sync.WaitGroup
	for i := range specs {
		wg.Go(func() { found[i] = log.CheckTopics(ctx, specs[i:i+1]) })
	}
	wg.Wait()
	var missing []domain.Topic
	var there []domain.TopicSpec
	for i, s := range specs {
		name := "topic " + string(s.Topic)
		switch err := found[i]; {
		case err == nil:
			there = append(there, s)
			k.ok(name, "%d partitions, kept for ever", s.Partitions)
		case errors.Is(err, kafkago.UnknownTopicOrPartition):
			missing = append(missing, s.Topic)
		default:
			for _, e := range configfile.Joined(err) {
				var s *kafka.SettingError
				advice := k.topicAdvice(e)
				if errors.As(e, &s) { // whose text repeats the topic's name
					e = errors.New(strings.TrimPrefix(s.Error(), name+": "))
				}
				k.failed(name, e, advice)
			}
		}
	}
	k.durability(ctx, log, there)
	if len(missing) > 0 {
		k.missing, k.create = len(k.list)+1, log.TryTopics(ctx, missing...)
	}
	switch {
	case len(missing) == len(specs):
		k.failed("topics", errors.New("there are none yet"), "\"quartermaster serve\" creates them at its first start; if it ran before, this is a different Kafka cluster: correct kafka.brokers")
	case len(missing) > 0:
		k.failed("topics", fmt.Errorf("these do not exist: %s", joinTopics(missing)),
			"if they never existed, \"quartermaster serve\" creates them; if they were deleted, they cannot be recovered: "+kafka.Anew)
	}
	return len(missing) == 0
}

func joinTopics(topics []domain.Topic) string {
	var names []string
	for _, t := range topics {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

func (k *checker) topicAdvice(err error) string {
	var s *kafka.SettingError
	switch {
	case errors.Is(err, kafkago.TopicAuthorizationFailed):
		return "grant " + k.kafkaUser() + " Describe, DescribeConfigs, Read and Write on the topic, and Create on the cluster before the first start"
	case !errors.As(err, &s):
		return ""
	case s.Setting == "partitions":
		return fmt.Sprintf("the number of partitions is fixed, because keys would move, and Kafka cannot remove partitions. "+
			"If %s is still empty, delete it and create it with %s; else %s", s.Topic, s.Wanted, kafka.Anew)
	case s.Setting == kafka.Replicas:
		return "let more brokers hold it (kafka-reassign-partitions.sh), or set kafka.replication: " + s.Found + ": then a warning says what that may lose"
	default:
		value, _, _ := strings.Cut(s.Wanted, " ")
		return fmt.Sprintf("kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", s.Topic, s.Setting, value)
	}
}

// brokerAdvice says what to do about a broker that did not answer as expected.
func (k *checker) brokerAdvice(err error) string {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		record   tls.RecordHeaderError
		dns      *net.DNSError
	)
	hungUp := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case errors.As(err, &unknown):
		return "name the CA that signed the broker's certificate: kafka.tls.ca_file"
	case errors.As(err, &hostname):
		return "use the broker name in its certificate, or set kafka.tls.server_name"
	case errors.As(err, &record):
		return "it does not speak TLS on this port: use its TLS port, or set kafka.tls.enabled: false"
	case errors.Is(err, kafkago.SASLAuthenticationFailed):
		return "it refused the login: correct kafka.sasl.user, or the password in " + k.c.Kafka.SASL.PasswordFile
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return "this port does not support this kafka.sasl.mechanism"
	case errors.Is(err, kafkago.IllegalSASLState):
		return "this port does not ask for a login: omit kafka.sasl, or use the port that does"
	case errors.As(err, &dns):
		return "unknown host: correct kafka.brokers"
	case hungUp && k.c.Kafka.TLS.Enabled:
		return "it closed the connection: perhaps the port has no TLS (use its TLS port, or set kafka.tls.enabled: false), " +
			"needs a login (kafka.sasl), or the login is wrong"
	case hungUp:
		return "it closed the connection: perhaps the port needs TLS (kafka.tls.enabled: true) or a login (kafka.sasl), or the login is wrong"
	}
	return "" // the error is clear enough
}

func (k *checker) postgres(ctx context.Context, logID string, topics map[domain.Topic]string) {
	cfg, err := k.c.ForPostgres()
	if err != nil {
		k.failed("postgres", err, "")
		return
	}
	if host, plain := sentInPlain(cfg.DSN); plain {
		k.note("postgres", CheckWarning, "connections to "+host+" are not encrypted: sslmode=disable", "omit sslmode, or set sslmode=verify-full")
	}
	before := time.Now()
	s, err := postgres.Inspect(ctx, cfg)
	if err != nil {
		k.failed("postgres", err, postgresAdvice(err))
		return
	}
	version := fmt.Sprintf("%d.%d", s.Version/10000, s.Version%10000)
	switch {
	case s.Version < postgres.MinVersion:
		k.failed("postgres", fmt.Errorf("the server is version %s", version), "upgrade it to 15 or newer")
	case s.Standby:
		k.failed("postgres", errors.New("the server is a standby, which accepts no writes"), "name the primary, or add target_session_attrs=read-write")
	default:
		k.ok("postgres", "version %s", version)
	}
	k.clock(s.Clock, before, time.Now())
	defer k.otherDatabases(cfg, &s)
	switch {
	case len(s.MissingRights) > 0:
		k.notYet()
		k.failed("schema", fmt.Errorf("it will be created by \"quartermaster generation migrate\", but these rights are missing: %s", strings.Join(s.MissingRights, "; ")),
			"grant them to the user of postgres.dsn, or let that user own the database")
	case s.Schema == 0:
		k.notYet()
		k.note("schema", CheckWarning, "there is none yet; this user may make it", "it will be created by \"quartermaster generation migrate\": run that before the first start")
	case s.Schema < s.Wanted:
		k.failed("schema", fmt.Errorf("the schema is version %d, this program needs %d", s.Schema, s.Wanted), "stop older instances, then run \"quartermaster generation migrate\"")
	case s.Schema > s.Wanted:
		k.failed("schema", fmt.Errorf("it is version %d, this program knows %d", s.Schema, s.Wanted), "upgrade this program")
	default:
		k.ok("schema", "version %d", s.Schema)
		if len(s.MissingReaders) > 0 {
			k.note("readers", CheckWarning, "these are not roles of the server, so they cannot read: "+strings.Join(s.MissingReaders, ", "),
				"create role NAME login …, then \"quartermaster generation migrate\"; or take them out of postgres.readers")
		} else if len(cfg.Readers) > 0 {
			k.ok("readers", "all %d are roles of the server", len(cfg.Readers))
		}
		rows := postgres.Generation{Partitions: s.Partitions}
		stops := rows.Stops()
		for tp, d := range k.rows(ctx, s, logID, topics) {
			stops[tp] = StopOf(d)
		}
		for _, tp := range stops.Partitions() {
			stop := stops[tp]
			k.failed("partition "+tp.String(), fmt.Errorf("stands still at offset %d: %s", stop.Offset, stop.Reason), stop.Advice)
		}
	}
}

// otherDatabases checks those of postgres.others.
func (k *checker) otherDatabases(cfg postgres.Config, first *postgres.State) {
	if len(cfg.Others) > 0 && first.Schema != first.Wanted {
		k.note("databases", CheckSkipped, "the first database has no schema of this version", "")
		return
	}
	for i := range first.Others {
		s := &first.Others[i]
		check := "database " + s.Name
		if host, plain := sentInPlain(cfg.Others[i].DSN); plain {
			k.note(check, CheckWarning, "connections to "+host+" are not encrypted: sslmode=disable", "omit sslmode, or set sslmode=verify-full")
		}
		switch {
		case errors.Is(s.Err, postgres.ErrDatabases):
			k.failed(check, s.Err, "correct postgres.others; docs/operate/several-databases.md has the rules")
		case s.Err != nil:
			k.failed(check, s.Err, postgresAdvice(s.Err))
		case s.Version < postgres.MinVersion:
			k.failed(check, fmt.Errorf("the server is version %d.%d", s.Version/10000, s.Version%10000), "upgrade it to 15 or newer")
		case s.Standby:
			k.failed(check, errors.New("the server is a standby, which accepts no writes"), "name the primary, or add target_session_attrs=read-write")
		case s.Schema > s.Wanted:
			k.failed(check, fmt.Errorf("its schema is version %d, this program knows %d", s.Schema, s.Wanted), "upgrade this program")
		case s.Schema < s.Wanted && len(s.MissingRights) > 0:
			k.failed(check, fmt.Errorf("these rights are missing: %s", strings.Join(s.MissingRights, "; ")),
				"grant them to the user of its dsn, or let that user own the database")
		case s.Schema < s.Wanted:
			k.note(check, CheckWarning, "it has no schema of this version yet", "\"quartermaster generation migrate\" makes it")
		default:
			k.ok(check, "version %d.%d, schema %d", s.Version/10000, s.Version%10000, s.Schema)
		}
	}
	moved := 0
	for _, p := range first.Partitions {
		at := ""
		for _, o := range cfg.Others {
			if slices.Contains(o.Partitions, p.TopicPartition) {
				at = o.Name
			}
		}
		if p.Database != at {
			moved++
		}
	}
	if moved > 0 {
		k.note("databases", CheckWarning, fmt.Sprintf("%d partitions of generation %s are in another database than configured", moved, first.Active),
			"\"quartermaster generation rebuild\" makes a generation as configured; until then the rows stay where they are")
	}
}

// rows checks which method and log the rows were folded with. It returns the partitions where the
// log differs from what they were folded from.
func (k *checker) rows(ctx context.Context, s postgres.State, logID string, topics map[domain.Topic]string) map[domain.TopicPartition]*kafka.DivergedError {
	switch {
	case s.Active == "":
		k.ok("generation", "none yet; \"quartermaster generation migrate\" makes the first")
	case s.ActiveMethod != projections.Method:
		k.failed("generation", fmt.Errorf("%s was made by %s, this program folds with %s", s.Active, s.ActiveMethod, projections.Method),
			fmt.Sprintf("run the program that has %s, or \"quartermaster generation rebuild\" with this one", s.ActiveMethod))
	default:
		k.ok("generation", "%s, made by %s", s.Active, s.ActiveMethod)
	}
	bound := true
	switch {
	case s.LogID == "":
		k.ok("rows", "are of no log yet")
		k.notYet()
		return nil
	case logID == "":
		k.note("rows", CheckSkipped, "are of log "+s.LogID+", and no log answers", "")
		return nil
	case s.LogID != logID:
		bound = false
		k.failed("rows", fmt.Errorf("are of log %s, and the brokers' is %s", s.LogID, logID), "correct kafka.brokers or postgres.dsn: the two do not belong together")
	}
	for _, spec := range domain.TopicSpecs() {
		if was, is := s.Topics[spec.Topic].ID, topics[spec.Topic]; was != "" && is != "" && was != is {
			bound = false
			k.failed("rows", fmt.Errorf("are of topic %s with id %s, and now its id is %s: it was deleted and created again", spec.Topic, was, is),
				"a deleted topic cannot be recovered: "+kafka.Anew)
		}
	}
	switch {
	case !bound:
		return nil
	case len(topics) == 0:
		k.note("rows", CheckSkipped, "are of this log; whether it still holds what they were folded from cannot be told", "")
		return nil
	}
	rows := postgres.Generation{Partitions: s.Partitions}
	diverged, err := k.log.Diverged(ctx, rows.Position(), rows.Anchors())
	switch {
	case err != nil:
		k.failed("rows", err, "")
	case len(diverged) > 0:
		k.failed("rows", fmt.Errorf("were folded from records that %d partitions of the log no longer hold", len(diverged)), "see these partitions below")
	default:
		k.ok("rows", "are of this log")
	}
	return diverged
}

// clock compares this machine's clock with the database's, which was read between the times
// before and after.
func (k *checker) clock(database, before, after time.Time) {
	apart := before.Add(after.Sub(before) / 2).Sub(database).Round(time.Millisecond)
	how := fmt.Sprintf("this machine's is %s ahead of the database's, give or take %s", apart, (after.Sub(before) / 2).Round(time.Millisecond))
	if apart.Abs() >= farApart {
		k.note("clock", CheckWarning, how, "synchronize both with NTP; leases use the database's clock and are not affected, times in events and logs are")
		return
	}
	k.ok("clock", "%s", how)
}

// sentInPlain returns the host that the connection would reach over a network without encryption.
func sentInPlain(dsn string) (host string, plain bool) {
	cfg, err := pq.NewConfig(dsn)
	if err != nil || cfg.SSLMode != pq.SSLModeDisable {
		return "", false
	}
	hosts := []string{cfg.Host}
	if cfg.Hostaddr.IsValid() {
		hosts[0] = cfg.Hostaddr.String()
	}
	for _, m := range cfg.Multi {
		hosts = append(hosts, m.Host)
	}
	for _, h := range hosts {
		h = strings.Trim(h, "[]")
		ip := net.ParseIP(h)
		if h != "" && h != "localhost" && !strings.HasPrefix(h, "/") && !strings.HasPrefix(h, "@") && (ip == nil || !ip.IsLoopback()) {
			return h, true
		}
	}
	return "", false
}

func postgresAdvice(err error) string {
	var answer *pq.Error
	if !errors.As(err, &answer) {
		if strings.Contains(err.Error(), "SSL is not enabled") {
			return "the server does not support encryption: enable it there, or add sslmode=disable if it is on this machine"
		}
		return "start it, or correct postgres.dsn"
	}
	switch answer.Code {
	case "28P01", "28000":
		return "it refused the login: correct the user and the password, and see pg_hba.conf"
	case "3D000":
		return "create the database, or correct its name in postgres.dsn"
	case "42501":
		return "let the user read and create tables: it should own the database"
	case "53300":
		return "raise max_connections, or lower postgres.max_conns"
	}
	return ""
}

// Results of a check.
const (
	CheckOK      = "ok"
	CheckFailed  = "failed"
	CheckWarning = "warning" // works, with a risk that somebody should know
	CheckSkipped = "skipped"
)

// ConfigCheck is the result of one check.
type ConfigCheck struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warning, failed or skipped
	Found  string `json:"found"`
	Next   string `json:"next,omitempty"` // what to do
}
