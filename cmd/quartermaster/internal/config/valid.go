package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/witness"
	"quartermaster/domain"
)

// shown is how much of a text of any length is shown.
const shown = 64

var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	roleName   = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	typeName   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,99}$`)
	notRoles   = []string{"public", "none", "current_user", "current_role", "session_user"}
	codecs     = []string{"zstd", "lz4"}
	mechanisms = []string{"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}
	// neverBefore is the time after which a schedule must have a next run; any time works.
	neverBefore = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// RebuildPrefix begins the instance names of rebuilds.
const RebuildPrefix = "rebuild-"

// validate sets defaults that tags cannot express, resolves the paths of files, and refuses what
// cannot work.
func (c *Config) validate(f *configfile.File) {
	if c.Instance == "" {
		c.Instance, _ = os.Hostname() // an empty name is refused below, with advice
	}
	if !plainName.MatchString(c.Instance) {
		f.Add("instance", "%q is not a name: use letters, digits, dots, dashes and underscores, at most 100", domain.Clip(c.Instance, shown))
	}
	if strings.HasPrefix(c.Instance, RebuildPrefix) {
		f.Add("instance", "%s begins with %s, which \"quartermaster generation rebuild\" uses: choose another", domain.Clip(c.Instance, shown), RebuildPrefix)
	}
	for _, file := range c.Files() {
		f.Resolve(file.field, file.Path)
	}
	c.Kafka.validate(f)
	c.Postgres.validate(f)
	if problem := hostPort(c.Listen, true); problem != "" {
		f.Add("listen", "%s", problem)
	}
	c.API.validate(f)
	c.Gateway.validate(f)
	c.Archive.validate(f)
	within(f, "lease", c.Lease, time.Second, time.Minute)
	c.Schedules.validate(f)
	if c.Schedules.Snapshot != "" && c.Snapshots == "" {
		f.Add("schedules.snapshot", "has no directory to write to; set snapshots")
	}
	if c.Schedules.Archive != "" && c.Archive.URL == "" {
		f.Add("schedules.archive", "has no archive to write to; set archive.url")
	}
	if c.Schedules.Checkpoint != "" && c.Archive.URL == "" {
		f.Add("schedules.checkpoint", "has no archive to write to; set archive.url")
	}
	c.validateParts(f)
	(&Receivers{c.Webhooks, c.Alertmanagers}).validate(f)
	if len(c.Alertmanagers) > 0 && c.Schedules.Advice == "" {
		f.Add("alertmanagers", "are told when rules are evaluated; set schedules.advice")
	}
}

// namedFile is a field that names a file or directory.
type namedFile struct {
	field  string
	Path   *string
	Secret bool
}

// Files returns every field that names a file.
func (c *Config) Files() []namedFile {
	out := []namedFile{
		{"kafka.tls.ca_file", &c.Kafka.TLS.CAFile, false},
		{"kafka.tls.cert_file", &c.Kafka.TLS.CertFile, false},
		{"kafka.tls.key_file", &c.Kafka.TLS.KeyFile, true},
		{"kafka.sasl.password_file", &c.Kafka.SASL.PasswordFile, true},
		{"postgres.dsn_file", &c.Postgres.DSNFile, true},
		{"postgres.password_file", &c.Postgres.PasswordFile, true},
		{"gateway.cert_file", &c.Gateway.CertFile, false},
		{"gateway.key_file", &c.Gateway.KeyFile, true},
		{"gateway.client_ca_file", &c.Gateway.ClientCAFile, false},
		{"api.socket", &c.API.Socket, false},
		{"api.cert_file", &c.API.CertFile, false},
		{"api.key_file", &c.API.KeyFile, true},
		{"api.journal", &c.API.Journal, false},
		{"snapshots", &c.Snapshots, false},
		{"parts_cache.directory", &c.PartsCache.Directory, false},
		{"people_keys", &c.PeopleKeys, false},
		{"schedules.checkpoint_key_file", &c.Schedules.CheckpointKeyFile, true},
	}
	if !strings.Contains(c.Archive.URL, "://") {
		out = append(out, namedFile{"archive.url", &c.Archive.URL, false})
	}
	if !strings.Contains(c.Parts, "://") {
		out = append(out, namedFile{"parts", &c.Parts, false})
	}
	for i := range c.Postgres.Others {
		d, at := &c.Postgres.Others[i], fmt.Sprintf("postgres.others[%d]", i)
		out = append(out, namedFile{at + ".dsn_file", &d.DSNFile, true}, namedFile{at + ".password_file", &d.PasswordFile, true})
	}
	for i := range c.API.Providers {
		p, at := &c.API.Providers[i], fmt.Sprintf("api.providers[%d]", i)
		out = append(out, namedFile{at + ".ca_file", &p.CAFile, false}, namedFile{at + ".browser_secret_file", &p.BrowserSecretFile, true})
	}
	for i := range c.Webhooks {
		out = append(out, namedFile{fmt.Sprintf("webhooks[%d].secret_file", i), &c.Webhooks[i].SecretFile, true})
	}
	for i := range c.Alertmanagers {
		out = append(out, namedFile{fmt.Sprintf("alertmanagers[%d].token_file", i), &c.Alertmanagers[i].TokenFile, true})
	}
	return out
}

func (k *Kafka) validate(f *configfile.File) {
	if len(k.Brokers) == 0 {
		f.Add("kafka.brokers", "is needed: name host:port of the brokers to ask first")
	}
	for i, b := range k.Brokers {
		at := fmt.Sprintf("kafka.brokers[%d]", i)
		if problem := hostPort(b, false); problem != "" {
			f.Add(at, "%s", problem)
		} else if slices.Contains(k.Brokers[:i], b) {
			f.Add(at, "%s is there twice", b)
		}
	}
	within(f, "kafka.replication", k.Replication, 1, 9)
	among := func(path, value string, known []string) {
		if !slices.Contains(known, value) {
			f.Add(path, "%q is unknown; %s", domain.Clip(value, shown), domain.Suggest(value, known))
		}
	}
	among("kafka.codec", k.Codec, codecs)
	within(f, "kafka.batch", k.Batch, 1, 200_000)
	if t := k.TLS; t.Enabled {
		if (t.CertFile == "") != (t.KeyFile == "") {
			f.Add("kafka.tls", "cert_file and key_file belong together; give both or neither")
		}
	} else if t != (TLS{}) {
		f.Add("kafka.tls", "is configured but not enabled; set kafka.tls.enabled to true, or omit the rest")
	}
	switch s := k.SASL; {
	case s == SASL{}:
	case s.Mechanism == "":
		f.Add("kafka.sasl.mechanism", "is needed with a user or password; known are %s", strings.Join(mechanisms, ", "))
	default:
		among("kafka.sasl.mechanism", s.Mechanism, mechanisms)
		if s.User == "" {
			f.Add("kafka.sasl.user", "is needed with kafka.sasl.mechanism")
		}
		if s.PasswordFile == "" {
			f.Add("kafka.sasl.password_file", "is needed with kafka.sasl.mechanism: name a file that holds the password")
		}
		if s.Mechanism == "PLAIN" && !k.TLS.Enabled {
			f.Add("kafka.sasl.mechanism", "PLAIN sends the password in clear text; set kafka.tls.enabled to true, or use SCRAM-SHA-512")
		}
	}
}

func (p *Postgres) validate(f *configfile.File) {
	if p.DSN != "" && p.DSNFile != "" {
		// A value in the environment overrides the file, also in its other form.
		switch f.Origin("postgres.dsn").Kind {
		case f.Origin("postgres.dsn_file").Kind:
			f.Add("postgres.dsn_file", "is given as well as postgres.dsn; give one of the two")
		case configfile.FromEnvironment:
			f.Drop("postgres.dsn_file")
		default:
			f.Drop("postgres.dsn")
		}
	}
	checkDSN(f, "postgres", p.DSN, p.DSNFile)
	validateOthers(f, p.Others)
	within(f, "postgres.max_conns", p.MaxConns, 4, 1000)
	validateReaders(f, p.Readers)
}

// validateReaders refuses a role that is none of the operator's own, and one that is there twice.
func validateReaders(f *configfile.File, readers []Reader) {
	roles := map[string]bool{}
	for i, r := range readers {
		at := fmt.Sprintf("postgres.readers[%d]", i)
		switch {
		case !roleName.MatchString(r.Role):
			f.Add(at+".role", "%q is not a plain role: use small letters, digits and underscores", domain.Clip(r.Role, shown))
		case slices.Contains(notRoles, r.Role) || strings.HasPrefix(r.Role, "pg_"):
			f.Add(at+".role", "%s is not one of your roles; name the roles that may read", r.Role)
		case roles[r.Role]:
			f.Add(at+".role", "%s is there twice", r.Role)
		}
		roles[r.Role] = true
		if r.WholeEstate == (len(r.Workspaces) > 0) {
			f.Add(at, "needs either the workspaces that the role sees, or whole_estate: true")
		}
		for j, w := range r.Workspaces {
			at := fmt.Sprintf("%s.workspaces[%d]", at, j)
			switch {
			case w == "":
				f.Add(at, "is empty; name a workspace")
			case slices.Contains(r.Workspaces[:j], w):
				f.Add(at, "%s is there twice", domain.Clip(w, shown))
			}
		}
	}
}

// checkDSN refuses a missing connection string, and one that shows its password.
func checkDSN(f *configfile.File, at, dsn, dsnFile string) {
	if dsn == "" && dsnFile == "" {
		f.Add(at+".dsn", "is needed, for example postgres://quartermaster@db:5432/quartermaster; or name a file that holds it: %s.dsn_file", at)
	}
	if dsn == "" {
		return
	}
	if withPassword, err := readDSN(dsn); err != nil {
		f.Add(at+".dsn", "%v", err)
	} else if withPassword {
		f.Add(at+".dsn", "holds a password; put the password into a file that %[1]s.password_file names, "+
			"or the whole DSN into one that %[1]s.dsn_file names", at)
	}
}

// validateOthers refuses a map of partitions that says two things about one of them.
func validateOthers(f *configfile.File, others []Database) {
	names, placed := map[string]bool{}, map[domain.TopicPartition]string{}
	for i := range others {
		d, at := &others[i], fmt.Sprintf("postgres.others[%d]", i)
		switch {
		case !plainName.MatchString(d.Name):
			f.Add(at+".name", "%q is not a name: use letters, digits, dots, dashes and underscores, at most 100", domain.Clip(d.Name, shown))
		case names[d.Name]:
			f.Add(at+".name", "%s is there twice; each database needs its own name", d.Name)
		}
		names[d.Name] = true
		if d.DSN != "" && d.DSNFile != "" {
			f.Add(at+".dsn_file", "is given as well as %s.dsn; give one of the two", at)
		}
		checkDSN(f, at, d.DSN, d.DSNFile)
		for j, text := range d.Partitions {
			at := fmt.Sprintf("%s.partitions[%d]", at, j)
			some, err := partitionsOf(text)
			if err != nil {
				f.Add(at, "%v", err)
			}
			for _, tp := range some {
				if other, twice := placed[tp]; twice {
					f.Add(at, "%s is in %s already; the rows of a partition are in one database", tp, other)
					break
				}
				placed[tp] = d.Name
			}
		}
	}
}

// partitionsOf reads partitions: TOPIC for all of a topic, TOPIC/3, or TOPIC/4-7.
func partitionsOf(text string) ([]domain.TopicPartition, error) {
	name, numbers, some := strings.Cut(text, "/")
	topic := domain.Topic(name)
	n := topic.Partitions()
	if n == 0 {
		var known []string
		for _, s := range domain.TopicSpecs() {
			known = append(known, string(s.Topic))
		}
		return nil, fmt.Errorf("%q is not a topic; %s", domain.Clip(name, shown), domain.Suggest(name, known))
	}
	from, to := 0, n-1
	if some {
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b >= n {
			return nil, fmt.Errorf("%q is not a partition of %s: it has 0 to %d; write %[2]s, %[2]s/0 or %[2]s/0-%[3]d",
				domain.Clip(text, shown), topic, n-1)
		}
		from, to = a, b
	}
	var out []domain.TopicPartition
	for i := from; i <= to; i++ {
		out = append(out, domain.TopicPartition{Topic: topic, Partition: i})
	}
	return out, nil
}

func (a *API) validate(f *configfile.File) {
	if (a.CertFile == "") != (a.KeyFile == "") {
		f.Add("api", "cert_file and key_file belong together; give both or neither")
	}
	names, issuers := map[string]bool{}, map[string]bool{}
	for i := range a.Providers {
		p, at := &a.Providers[i], fmt.Sprintf("api.providers[%d]", i)
		p.validate(f, at, names, issuers)
		if p.BrowserClientID != "" && a.URL == "" {
			f.Add(at+".browser_client_id", "needs api.url, to which the provider sends browsers back")
		}
		if p.BrowserSecretFile != "" && p.BrowserClientID == "" {
			f.Add(at+".browser_secret_file", "is the secret of no client; set browser_client_id")
		}
	}
	if a.URL != "" {
		a.validateURL(f)
	}
	if a.Listen == "" {
		if a.CertFile != "" || a.Plain || a.URL != "" || len(a.Providers) > 0 {
			f.Add("api", "is configured but has no address; set api.listen, or omit the rest")
		}
		return
	}
	if problem := hostPort(a.Listen, true); problem != "" {
		f.Add("api.listen", "%s", problem)
	} else if a.CertFile == "" && !a.Plain && !loopback(a.Listen) {
		f.Add("api", "would accept keys and tokens unencrypted from other machines; give cert_file and key_file, "+
			"or set plain to true where a proxy terminates TLS in front of it")
	}
}

// validateURL wants the origin exactly as browsers write it, because it is compared with what they send.
func (a *API) validateURL(f *configfile.File) {
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme+"://"+u.Host != a.URL || strings.ToLower(a.URL) != a.URL:
		f.Add("api.url", "%q is not the origin of a site, such as https://quartermaster.example.com, in small letters and without a path", domain.Clip(a.URL, shown))
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(net.JoinHostPort(u.Hostname(), "1"))):
		f.Add("api.url", "%q is not https, so anybody on the way could take over sessions", domain.Clip(a.URL, shown))
	case u.Port() == "443" && u.Scheme == "https" || u.Port() == "80" && u.Scheme == "http":
		f.Add("api.url", "%q names the usual port; leave it out, as browsers do", domain.Clip(a.URL, shown))
	}
}

func (p *Provider) validate(f *configfile.File, path string, names, issuers map[string]bool) {
	if !plainName.MatchString(p.Name) {
		f.Add(path+".name", "%q is not a name: use letters, digits, dots, dashes and underscores, at most 100", domain.Clip(p.Name, shown))
	} else if names[p.Name] {
		f.Add(path+".name", "%s is there twice; each provider needs its own name", p.Name)
	}
	names[p.Name] = true
	switch u, err := url.Parse(p.Issuer); {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		f.Add(path+".issuer", "%q is not the URL of an issuer, such as https://login.example.com", domain.Clip(p.Issuer, shown))
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(net.JoinHostPort(u.Hostname(), "1"))):
		f.Add(path+".issuer", "%q is not https, so anybody on the way could say who somebody is", domain.Clip(p.Issuer, shown))
	case issuers[p.Issuer]:
		f.Add(path+".issuer", "%s is there twice", domain.Clip(p.Issuer, shown))
	}
	issuers[p.Issuer] = true
	if p.Audience == "" {
		f.Add(path+".audience", "is needed: without it a token for any other program of the provider would be accepted")
	}
}

func (g *Gateway) validate(f *configfile.File) {
	within(f, "gateway.rate", g.Rate, 1, 1_000_000)
	within(f, "gateway.max_age", g.MaxAge, time.Minute, time.Duration(domain.MaxAge))
	within(f, "gateway.max_ahead", g.MaxAhead, 0, time.Duration(domain.MaxAhead))
	if g.TLSMin != "" && g.TLSMin != "1.2" && g.TLSMin != "1.3" {
		f.Add("gateway.tls_min", "%.20q is not 1.2 or 1.3", g.TLSMin)
	}
	if (g.CertFile == "") != (g.KeyFile == "") {
		f.Add("gateway", "cert_file and key_file belong together; give both or neither")
	}
	if g.ClientCAFile != "" && g.CertFile == "" {
		f.Add("gateway.client_ca_file", "needs TLS, because clients present their certificates in it: give cert_file and key_file as well")
	}
	if g.Listen == "" {
		if g.CertFile != "" || g.ClientCAFile != "" || g.Plain {
			f.Add("gateway", "is configured but has no address; set gateway.listen, or omit the rest")
		}
		return
	}
	if problem := hostPort(g.Listen, true); problem != "" {
		f.Add("gateway.listen", "%s", problem)
	} else if g.CertFile == "" && !g.Plain && !loopback(g.Listen) {
		f.Add("gateway", "would accept keys unencrypted from other machines; give cert_file and key_file, "+
			"or set plain to true where a proxy terminates TLS in front of it")
	}
}

// loopback reports whether an address is reachable from this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *Archive) validate(f *configfile.File) {
	scheme, rest, ok := strings.Cut(a.URL, "://")
	directory := scheme == "file" && strings.HasPrefix(rest, "/")
	if ok && !directory && !bucketAddress(a.URL) {
		f.Add("archive.url", "%q is not a place for an archive: name a directory, as a path or as file:///path, or s3://bucket",
			domain.Clip(a.URL, shown))
	}
	within(f, "archive.segment_mib", a.SegmentMiB, 1, 512)
	within(f, "archive.seal_after", a.SealAfter, time.Minute, 31*24*time.Hour)
	for i, line := range a.Witnesses {
		if _, err := witness.Parse(line); err != nil {
			f.Add(fmt.Sprintf("archive.witnesses[%d]", i), "%v", err)
		}
	}
}

// bucketAddress reports whether an address names a bucket.
func bucketAddress(address string) bool {
	name, ok := strings.CutPrefix(address, "s3://")
	return ok && name != ""
}

// validateParts checks where parts are.
func (c *Config) validateParts(f *configfile.File) {
	if strings.Contains(c.Parts, "://") && !bucketAddress(c.Parts) {
		f.Add("parts", "%q is not a place for parts: name a directory by its path, or s3://bucket", domain.Clip(c.Parts, shown))
	}
	within(f, "parts_cache.mib", c.PartsCache.MiB, 1, 1<<30)
}

// Schedule is a schedule with its name.
type Schedule struct{ Name, Text string }

// All returns the schedules by name, including empty ones.
func (s *Schedules) All() []Schedule {
	return []Schedule{{"plan", s.Plan}, {"snapshot", s.Snapshot}, {"close_reminder", s.CloseReminder}, {"checkpoint", s.Checkpoint}, {"archive", s.Archive},
		{"retention", s.Retention}, {"advice", s.Advice}}
}

func (s *Schedules) validate(f *configfile.File) {
	if s.Advice == "off" {
		s.Advice = ""
	}
	for _, each := range s.All() {
		if each.Text == "" {
			continue
		}
		if _, err := ParseSchedule(each.Text); err != nil {
			f.Add("schedules."+each.Name, "%v", err)
		}
	}
	if s.Checkpoint != "" && s.CheckpointKeyFile == "" {
		f.Add("schedules.checkpoint_key_file", "is needed with schedules.checkpoint: name the key that signs checkpoints")
	}
}

// ParseSchedule reads cron's five fields, or @daily and its like. Times are UTC.
func ParseSchedule(text string) (cron.Schedule, error) {
	const want = "want cron's five fields in UTC (minute, hour, day of month, month, day of week), for example 30 2 * * *"
	if strings.Contains(text, "TZ=") || strings.HasPrefix(text, "@every") {
		// Time zones have clock changes, and intervals that count from the start differ between
		// instances.
		return nil, fmt.Errorf("%q names a zone or an interval; %s", domain.Clip(text, shown), want)
	}
	s, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a schedule: %v; %s", domain.Clip(text, shown), err, want)
	}
	if s.Next(neverBefore).IsZero() {
		return nil, fmt.Errorf("%q never runs; %s", domain.Clip(text, shown), want)
	}
	return utc{s}, nil
}

// utc is a schedule whose times are UTC whatever the machine's zone.
type utc struct{ cron.Schedule }

func (s utc) Next(t time.Time) time.Time { return s.Schedule.Next(t.UTC()) }

func (w *Webhook) validate(f *configfile.File, path string, names map[string]bool) {
	validateReceiver(f, path, "webhook", w.Name, w.URL, "secret_file", names)
	for i, t := range w.Types {
		if !typeName.MatchString(t) {
			f.Add(fmt.Sprintf("%s.types[%d]", path, i), "%q is not an event type", domain.Clip(t, shown))
		}
	}
	validateSeverity(f, path, w.Severity)
}

func (a *Alertmanager) validate(f *configfile.File, path string, names map[string]bool) {
	validateReceiver(f, path, "Alertmanager", a.Name, a.URL, "token_file", names)
	validateSeverity(f, path, a.Severity)
}

// validateReceiver checks name and address of what is told of events. An address may be a secret, so errors do not
// quote it.
func validateReceiver(f *configfile.File, path, kind, name, address, secret string, names map[string]bool) {
	if !plainName.MatchString(name) {
		f.Add(path+".name", "%q is not a name: use letters, digits, dots, dashes and underscores, at most 100", domain.Clip(name, shown))
	} else if names[name] {
		f.Add(path+".name", "%s is there twice; each %s needs its own name", name, kind)
	}
	names[name] = true
	switch u, err := url.Parse(address); {
	case address == "":
		f.Add(path+".url", "is needed: name the http or https address to call")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		f.Add(path+".url", "is not an http or https address")
	case u.User != nil && secret == "secret_file":
		f.Add(path+".url", "holds a user or password; sign with secret_file instead")
	case u.User != nil:
		f.Add(path+".url", "holds a user or password; use token_file instead")
	case u.Fragment != "":
		f.Add(path+".url", "ends in a fragment, which is not sent; remove # and what follows")
	}
}

func validateSeverity(f *configfile.File, path, severity string) {
	if severity != "" && !slices.Contains(domain.Severities(), domain.Severity(severity)) {
		f.Add(path+".severity", "%q is not a severity: want info, warning or critical", domain.Clip(severity, shown))
	}
}

// hostPort returns what is wrong with an address, or "". An address to listen on may omit the
// host and use port 0.
func hostPort(address string, listen bool) string {
	host, port, err := net.SplitHostPort(address)
	n, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil || !listen && (n == 0 || host == "") || strings.ContainsAny(host, " \t/@,") {
		return fmt.Sprintf("%q is not host:port", domain.Clip(address, shown))
	}
	return ""
}

// within refuses a value outside its bounds.
func within[T int | time.Duration](f *configfile.File, path string, v, least, most T) {
	if v < least || v > most {
		f.Add(path, "is %v, want %v to %v", v, least, most)
	}
}

// ReadAPI reads a file with the key api alone, for a log without a configuration.
func ReadAPI(path string) (API, error) {
	var c struct {
		API API `yaml:"api"`
	}
	f, err := configfile.Read(path, "", func(string) string { return "" }, &c)
	if err != nil {
		return API{}, err
	}
	a := &c.API
	f.Resolve("api.cert_file", &a.CertFile)
	f.Resolve("api.key_file", &a.KeyFile)
	f.Resolve("api.journal", &a.Journal)
	for i := range a.Providers {
		f.Resolve(fmt.Sprintf("api.providers[%d].ca_file", i), &a.Providers[i].CAFile)
		f.Resolve(fmt.Sprintf("api.providers[%d].browser_secret_file", i), &a.Providers[i].BrowserSecretFile)
	}
	if a.Socket != "" {
		f.Add("api.socket", "is in the data directory; remove it")
	}
	a.validate(f)
	return *a, f.Err()
}

// Receivers are who is told of events, for a log without a configuration.
type Receivers struct {
	Webhooks      []Webhook      `yaml:"webhooks"`
	Alertmanagers []Alertmanager `yaml:"alertmanagers"`
}

// ReadReceivers reads a file with the keys webhooks and alertmanagers alone.
func ReadReceivers(path string) (Receivers, error) {
	var r Receivers
	f, err := configfile.Read(path, "", func(string) string { return "" }, &r)
	if err != nil {
		return Receivers{}, err
	}
	r.validate(f)
	for i := range r.Webhooks {
		f.Resolve(fmt.Sprintf("webhooks[%d].secret_file", i), &r.Webhooks[i].SecretFile)
	}
	for i := range r.Alertmanagers {
		f.Resolve(fmt.Sprintf("alertmanagers[%d].token_file", i), &r.Alertmanagers[i].TokenFile)
	}
	return r, f.Err()
}

func (r *Receivers) validate(f *configfile.File) {
	names := map[string]bool{}
	for i := range r.Webhooks {
		r.Webhooks[i].validate(f, fmt.Sprintf("webhooks[%d]", i), names)
	}
	names = map[string]bool{}
	for i := range r.Alertmanagers {
		r.Alertmanagers[i].validate(f, fmt.Sprintf("alertmanagers[%d]", i), names)
	}
}

// Check validates an API configured by flags.
func (a *API) Check() error {
	f := configfile.New("api")
	a.validate(f)
	return f.Err()
}

// Check validates a gateway configured by flags.
func (g *Gateway) Check() error {
	f := configfile.New("gateway")
	g.validate(f)
	return f.Err()
}
