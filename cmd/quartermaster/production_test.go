package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/freeport"
	"quartermaster/adapters/postgres"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/cmd/quartermaster/internal/daemon"
	"quartermaster/domain"
	"quartermaster/projections"
)

// site is a log in production for tests: a broker that can be stopped and started,
// and a database of its own on the server that QM_POSTGRES_DSN names, behind a
// gate that can be shut.
type site struct {
	t      *testing.T
	config string // the file
	dsn    string // of the database, past the gate
	port   int
	data   string
	broker *kfake.Cluster
	script string // starts an Apache Kafka in data; "": broker is a fake
	gate   *gate
	estate *estate

	patient  bool          // instances wait for few rows as for many
	patience time.Duration // of commands that wait for rows; 0: the usual
	bucket   app.Bucket    // of every address s3://…; nil: none
}

func newSite(t *testing.T) *site {
	t.Helper()
	dsn, _ := database(t)
	s := &site{t: t, dsn: dsn, data: t.TempDir(), port: freeport.Row(t, 2), estate: newEstate(6, 10*time.Minute)}
	u, err := url.Parse(dsn)
	if err != nil || !config.IsURL(dsn) {
		t.Fatalf("QM_POSTGRES_DSN is no URL: %v", err)
	}
	s.gate = newGate(t, u.Host)
	u.Host = s.gate.address
	s.config = writeConfig(t, "kafka: {brokers: ['127.0.0.1:%d'], replication: 1}\npostgres: {dsn_file: %q}\nsnapshots: %q\nparts: %q\nlease: 1s\nschedules: {advice: off}\n",
		s.port, writeSecret(t, u.String()), t.TempDir(), t.TempDir())
	if code, out := s.command("generation", "migrate"); code != 0 {
		t.Fatal(out)
	}
	return s
}

// start starts the broker, with what it held before.
func (s *site) start() {
	s.t.Helper()
	if s.script != "" {
		s.kafka("start")
		return
	}
	var err error
	s.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(s.port), kfake.DataDir(s.data), kfake.SyncWrites())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.broker.Close)
}

func (s *site) openBucket(context.Context, string) (app.Bucket, error) { return s.bucket, nil }

// command runs a command on the site.
func (s *site) command(args ...string) (int, string) {
	var out strings.Builder
	code := commandLine(&app.App{Patience: s.patience, OpenBucket: s.openBucket}, &out, &out).Run(append(args, "--config", s.config, "--data-dir", s.data), strings.NewReader(""))
	return code, out.String()
}

// log opens the site's log.
func (s *site) log() *kafka.Log {
	s.t.Helper()
	l, err := kafka.Open(s.t.Context(), kafka.Config{Brokers: []string{fmt.Sprint("127.0.0.1:", s.port)}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	return l
}

// fill appends some samples.
func (s *site) fill(n int) {
	s.t.Helper()
	l := s.log()
	if err := errors.Join(l.EnsureTopics(s.t.Context(), domain.TopicSpecs()), s.estate.fill(s.t.Context(), &app.Conn{Log: l}, n)); err != nil {
		s.t.Fatal(err)
	}
}

// verified waits until the rows are those of the whole log.
func (s *site) verified() {
	s.t.Helper()
	if code, out := s.command("log", "replay", "--verify"); code != 0 || !strings.Contains(out, "equal: the live rows match the log") || strings.Contains(out, "not folded") {
		s.t.Fatalf("exit %d\n%s", code, out)
	}
}

// instance is a serve on a site.
type running struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error

	mu    sync.Mutex
	lines strings.Builder
	more  chan struct{}
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines.Write(p)
	close(r.more)
	r.more = make(chan struct{})
	return len(p), nil
}

// serve starts an instance.
func (s *site) serve(name string) *running {
	s.t.Helper()
	c, err := config.Load(s.config, func(key string) string {
		if key == "QUARTERMASTER_INSTANCE" {
			return name
		}
		return ""
	})
	if err != nil {
		s.t.Fatal(err)
	}
	c.Patient = s.patient
	r := &running{t: s.t, done: make(chan error, 1), more: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	d := daemon.New(&app.App{Dir: s.data, Config: c, ConfigPath: s.config, OpenBucket: s.openBucket}, r, false)
	d.Watch = 50 * time.Millisecond
	go func() { r.done <- d.ServeProduction(ctx, "127.0.0.1:0") }()
	s.t.Cleanup(stop)
	return r
}

// says waits until the instance logged a text n times in all.
func (r *running) says(n int, text string) {
	r.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		r.mu.Lock()
		said, more := r.lines.String(), r.more
		r.mu.Unlock()
		if strings.Count(said, text) >= n {
			return
		}
		select {
		case <-more:
		case err := <-r.done:
			r.done <- err
			r.t.Fatalf("it ended with %v before it said %q %d times:\n%s", err, text, n, said)
		case <-late:
			r.t.Fatalf("it does not say %q %d times:\n%s", text, n, said)
		}
	}
}

// address returns where the instance answers HTTP.
func (r *running) address() string {
	r.t.Helper()
	r.says(1, "msg=listening")
	r.mu.Lock()
	defer r.mu.Unlock()
	return regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(r.lines.String())[1]
}

// get asks the instance.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get("http://" + r.address() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// becomes waits until the instance answers so.
func (r *running) becomes(path string, code int, text string) {
	r.t.Helper()
	for late := time.After(2 * time.Minute); ; {
		got, body := r.get(path)
		if got == code && strings.Contains(body, text) {
			return
		}
		select {
		case <-late:
			r.t.Fatalf("GET %s: %d %s, want %d %s", path, got, body, code, text)
		case err := <-r.done:
			r.done <- err
			r.t.Fatalf("it ended with %v; GET %s: %d %s", err, path, got, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ends stops the instance, which must end well.
func (r *running) ends() {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// fails waits until the instance ends by itself, with an error that says all of this.
func (r *running) fails(target error, texts ...string) {
	r.t.Helper()
	err := <-r.done
	if target != nil && !errors.Is(err, target) {
		r.t.Fatalf("it ended with %v, want %v", err, target)
	}
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			r.t.Errorf("it ended with %q, which does not say %q", err, text)
		}
	}
}

// gate hands connections on to an address while it is open.
type gate struct {
	address string

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]bool
}

func newGate(t *testing.T, to string) *gate {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	g := &gate{address: ln.Addr().String(), conns: map[net.Conn]bool{}}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			g.mu.Lock()
			if err != nil || g.shut {
				in.Close()
				if err == nil {
					out.Close()
				}
				g.mu.Unlock()
				continue
			}
			g.conns[in], g.conns[out] = true, true
			g.mu.Unlock()
			pass := func(to, from net.Conn) {
				io.Copy(to, from)
				g.mu.Lock()
				defer g.mu.Unlock()
				for _, c := range []net.Conn{to, from} {
					c.Close()
					delete(g.conns, c)
				}
			}
			go pass(out, in)
			go pass(in, out)
		}
	}()
	return g
}

// set opens the gate, or shuts it and cuts what goes through.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = !open
	if g.shut {
		for c := range g.conns {
			c.Close()
		}
	}
}

func TestProduction(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(300)
	a := s.serve("a")
	a.says(1, "caught up")
	b := s.serve("b")
	b.says(1, "caught up")
	s.fill(300)
	s.verified()
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := b.get(path); code != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
	_, metrics := a.get("/metrics")
	for _, name := range []string{
		`quartermaster_records_total{generation="a",outcome="folded"}`, `quartermaster_records_total{generation="a",outcome="repeat"}`,
		"quartermaster_partition_lag_records", "quartermaster_partitions_held", "quartermaster_session 1",
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("metrics lack %s:\n%s", name, metrics)
		}
	}
	b.ends()
	s.fill(60)
	s.verified()
	a.ends()
	if code, out := s.command("fleet", "-o", "json"); code != 0 {
		t.Errorf("without an instance, rows that are whole cannot be read: %s", out)
	}
}

func TestProductionKafkaDown(t *testing.T) {
	s := newSite(t)
	a := s.serve("a")
	a.says(1, "opening log and database failed; trying again")
	if code, body := a.get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("ready without a log: %d %s", code, body)
	}
	s.start()
	a.says(1, "caught up")
	s.fill(120)
	s.verified()
	s.broker.Close()
	s.start()
	s.fill(120)
	s.verified()
	a.ends()
}

func TestProductionPostgresDown(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	s.gate.set(false)
	a := s.serve("a")
	a.says(1, "opening log and database failed; trying again")
	s.gate.set(true)
	a.says(1, "caught up")
	s.gate.set(false) // for longer than a lease
	a.says(1, "lost its session")
	a.becomes("/readyz", http.StatusServiceUnavailable, "does not hold a session")
	if code, body := a.get("/healthz"); code != http.StatusOK {
		t.Errorf("not alive without a database: %d %s", code, body)
	}
	s.fill(120)
	s.gate.set(true)
	s.verified()
	a.ends()
}

func TestProductionSecondOfAName(t *testing.T) {
	s := newSite(t)
	s.start()
	a := s.serve("twin")
	a.says(1, "caught up")
	s.serve("twin").fails(postgres.ErrInstanceTaken, `"twin"`)
	s.fill(60)
	s.verified()
	a.ends()
}

// admin changes topics behind the program's back.
func (s *site) admin() *kadm.Client {
	s.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprint("127.0.0.1:", s.port)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

// topics are those that the site's Kafka has.
func (s *site) topics() []string {
	s.t.Helper()
	list, err := s.admin().ListTopics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Names()
}

// A new home takes a decision before anything else: its directory and its topics
// are made by that, and by nothing that only reads.
func TestProductionFirstCommands(t *testing.T) {
	s := newSite(t)
	s.start()
	for _, args := range [][]string{{"fleet"}, {"log", "stats"}, {"log", "replay", "--verify"}, {"generation", "rebuild", "b"}} {
		if code, out := s.command(args...); code == 0 || !strings.Contains(out, `start "quartermaster serve"`) {
			t.Errorf("%v: exit %d: %s", args, code, out)
		}
	}
	if made := s.topics(); len(made) > 0 {
		t.Errorf("commands that only read made topics %v", made)
	}
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\neffective_from: 2026-01-01\nregions: [{id: us-east, country: US}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.data = filepath.Join(t.TempDir(), "a", "home")
	if code, out := s.command("apply", "-f", file); code != 0 || !strings.Contains(out, "applied 1 changes") {
		t.Fatalf("exit %d: %s", code, out)
	}
	for path, mode := range map[string]os.FileMode{s.data: 0o700, filepath.Join(s.data, "operator.pem"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
}

// Rows of another log keep every command, and serve, from making topics there.
func TestProductionOtherKafka(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	a.ends()
	s.broker.Close()
	s.data = t.TempDir()
	var err error
	if s.broker, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(s.port), kfake.ClusterID("another")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.broker.Close)
	for _, args := range [][]string{{"fleet"}, {"operator", "add", "ana", "--role", "planner", "--new-key", filepath.Join(t.TempDir(), "k")}} {
		if code, out := s.command(args...); code == 0 || !strings.Contains(out, postgres.ErrOtherLog.Error()) {
			t.Errorf("%v: exit %d: %s", args, code, out)
		}
	}
	s.serve("a").fails(postgres.ErrOtherLog)
	if made := s.topics(); len(made) > 0 {
		t.Errorf("topics %v were made", made)
	}
}

// More replicas than brokers is for a person to mend.
func TestProductionReplication(t *testing.T) {
	s := newSite(t)
	s.start()
	s.broker.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.KeepControl()
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range req.(*kmsg.CreateTopicsRequest).Topics {
			one := kmsg.NewCreateTopicsResponseTopic()
			one.Topic, one.ErrorCode = topic.Topic, kerr.InvalidReplicationFactor.Code
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	s.serve("a").fails(nil, "kafka.replication is 1 and the cluster has 1 brokers", "lower kafka.replication")
}

func TestProductionPartitionsAdded(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	if _, err := s.admin().CreatePartitions(t.Context(), 1, string(domain.TopicMarket)); err != nil {
		t.Fatal(err)
	}
	a.fails(nil, "qm.market", "partitions is 5, must be 4")
	s.serve("a").fails(nil, "qm.market", "partitions is 5, must be 4")
}

func TestProductionTopicRecreated(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	a.ends()
	if _, err := s.admin().DeleteTopics(t.Context(), string(domain.TopicTelemetry)); err != nil {
		t.Fatal(err)
	}
	s.estate = newEstate(6, 10*time.Minute)
	s.fill(90) // further than before
	s.serve("a").fails(postgres.ErrOtherLog, "qm.telemetry", "deleted and created again")
	if code, out := s.command("fleet"); code == 0 || !strings.Contains(out, "deleted and created again") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// TestProductionNewer meets events that a later version of the program wrote:
// they are set aside until this one is upgraded, and hold up nothing.
func TestProductionNewer(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	l := s.log()
	records, err := s.estate.round()
	if err != nil {
		t.Fatal(err)
	}
	newer := records[0]
	newer.Headers = nil
	for _, h := range records[0].Headers {
		if h.Key == "ce_type" {
			h.Value = []byte("NodeDreamed")
		}
		newer.Headers = append(newer.Headers, h)
	}
	records[0] = newer
	if err := l.Append(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	a := s.serve("a")
	a.says(1, "caught up")
	s.verified()
	if code, out := s.command("quarantine", "list"); code != 0 || !strings.Contains(out, "NodeDreamed") {
		t.Errorf("exit %d: %s", code, out)
	}
	a.ends()
}

// TestProductionHuge meets a record of 20 MB, which another program wrote where
// somebody had raised the broker's limit.
func TestProductionHuge(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	limit := strconv.Itoa(32 << 20)
	admin := s.admin()
	if _, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, string(domain.TopicTelemetry)); err != nil {
		t.Fatal(err)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprint("127.0.0.1:", s.port)), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(32<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.ProduceSync(t.Context(), &kgo.Record{
		Topic: string(domain.TopicTelemetry), Partition: 3, Key: []byte("cluster-00"), Value: make([]byte, 20<<20),
		Headers: []kgo.RecordHeader{{Key: "ce_type", Value: []byte("NodeSampled")}},
	}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	a := s.serve("a")
	a.says(1, "caught up")
	s.fill(60)
	s.verified()
	if code, out := s.command("quarantine", "list"); code != 0 || !strings.Contains(out, "qm.telemetry/3@") {
		t.Errorf("exit %d: %s", code, out)
	}
	a.ends()
}

// TestProductionDiskFull fills the disk under a Postgres of its own, in memory.
func TestProductionDiskFull(t *testing.T) {
	script := os.Getenv("QM_POSTGRES_SH")
	if script == "" {
		t.Skip("QM_POSTGRES_SH does not name deploy/dev/postgres.sh")
	}
	dir := t.TempDir()
	for p := dir; p != "/"; p = filepath.Dir(p) { // the database's user must get there
		if info, err := os.Stat(p); err == nil && info.Mode()&0o005 != 0o005 {
			if err := os.Chmod(p, info.Mode()|0o055); err != nil {
				t.Skip(err)
			}
		}
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a disk to fill cannot be mounted here: %s", out)
	}
	t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	ln.Close()
	server := func(command string) string {
		out, err := exec.Command(script, command, "--dir", filepath.Join(dir, "pg"), "--port", port).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s", command, out)
		}
		return strings.TrimSpace(string(out))
	}
	server("start")
	t.Cleanup(func() { server("clean") })
	t.Setenv("QM_POSTGRES_DSN", server("dsn"))

	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(b)
	}
	f.Close()
	s.estate = newEstate(3000, 10*time.Minute)
	s.fill(9000)
	a.says(1, "No space left on device")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	// Without room for its own log a server ends; somebody starts it again.
	if exec.Command(script, "check", "--dir", filepath.Join(dir, "pg"), "--port", port).Run() != nil {
		server("start")
	}
	s.verified()
	a.ends()
}

// An instance whose folds made no live generation has nothing to do, and says so;
// one whose database is migrated under it ends.
func TestProductionUpgradeUnderIt(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	a.becomes("/readyz", http.StatusOK, "ok")
	c, err := config.Load(s.config, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := c.ForPostgres()
	if err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, method := range []string{"folds/99", projections.Method} {
		if _, err := db.ExecContext(t.Context(), `update quartermaster.generations set method = $1`, method); err != nil {
			t.Fatal(err)
		}
		if method != projections.Method {
			a.says(1, "no generation of "+projections.Method+" is live: folding nothing")
			a.becomes("/readyz", http.StatusServiceUnavailable, "no generation of "+projections.Method+" is live")
			continue
		}
		a.becomes("/readyz", http.StatusOK, "ok")
	}
	if _, err := db.ExecContext(t.Context(), `insert into quartermaster.schema_version (version_id, is_applied) values (99, true)`); err != nil {
		t.Fatal(err)
	}
	a.fails(postgres.ErrSchema, "version 99", "upgrade this program")
}

// A rebuild beside an instance hands its generation over before it is read, while
// events come in; without one it folds to the end itself.
func TestProductionRebuild(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(300)
	a := s.serve("a")
	a.says(1, "caught up")
	stop, stopped := make(chan struct{}), make(chan error, 1)
	l := s.log()
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := s.estate.fill(t.Context(), &app.Conn{Log: l}, 12); err != nil {
				stopped <- err
				return
			}
		}
	}()
	rebuilt := func(name string) {
		t.Helper()
		code, out := s.command("generation", "rebuild", name, "-o", "json", "--quiet")
		var ans app.Rebuilt
		if err := json.Unmarshal([]byte(out), &ans); err != nil || code != 0 || !ans.Equal || !ans.Switched || !ans.HandedOver {
			t.Fatalf("exit %d, %v: %s", code, err, out)
		}
	}
	rebuilt("b")
	code, out := s.command("generation", "status", "-o", "json", "--partitions")
	var status app.GenerationsStatus
	if err := json.Unmarshal([]byte(out), &status); err != nil || code != 0 || status.Active != "b" {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	for _, g := range status.Generations {
		for _, p := range g.Partitions {
			if p.Instance != "a" {
				t.Errorf("%s/%d of generation %s is folded by %q after the switch", p.Topic, p.Partition, g.Name, p.Instance)
			}
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	s.verified()
	a.ends()
	rebuilt("c")
	s.verified()
}

// Progress without a terminal is a line every ten seconds.
// The log loses the end of its partitions, as of a power cut, and other records take the
// offsets. Nothing says that it has caught up, nothing is appended, and a rebuild folds
// the log as it is.
func TestProductionDiverged(t *testing.T) {
	s := newSite(t)
	s.patience = time.Second
	s.start()
	s.fill(100)
	s.broker.Close()
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(s.data)); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.fill(200)
	a := s.serve("a")
	a.says(1, "caught up")
	s.broker.Close()
	s.data = before
	s.start()
	// It was connected all the while.
	a.says(1, "diverged")
	a.becomes("/readyz", http.StatusServiceUnavailable, "diverged")
	a.becomes("/metrics", http.StatusOK, `quartermaster_partition_stopped{generation="a",kind="shorter",`)
	a.ends()

	refused := func() {
		t.Helper()
		if code, out := s.command("operator", "add", "ann", "--role", "admin", "--new-key", filepath.Join(t.TempDir(), "ann.pem")); code == 0 || !strings.Contains(out, "diverged") {
			t.Errorf("appended to a log that lost records: exit %d\n%s", code, out)
		}
	}
	refused()
	s.fill(400)
	refused()
	b := s.serve("b")
	b.says(1, "diverged")
	b.becomes("/readyz", http.StatusServiceUnavailable, "")
	b.becomes("/metrics", http.StatusOK, `quartermaster_partition_stopped{generation="a",kind="other_record",`)
	if code, out := s.command("generation", "status"); code != 0 || !strings.Contains(out, "diverged") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if code, out := s.command("usage", "--from", "2026-05-01", "--to", "2026-06-01"); !strings.Contains(out, "diverged") {
		t.Errorf("a command that reads says nothing: exit %d\n%s", code, out)
	}
	b.mu.Lock()
	if said := b.lines.String(); strings.Contains(said, "caught up") {
		t.Errorf("it caught up with another log:\n%s", said)
	}
	b.mu.Unlock()

	code, out := s.command("generation", "rebuild", "healed", "-o", "json", "--quiet")
	var ans app.Rebuilt
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &ans); err != nil || code != 0 || ans.Switched || len(ans.Diverged) == 0 || ans.State != "live" {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if code, out := s.command("log", "replay", "--quiet"); code != 0 || !strings.Contains(out, ans.Digest) {
		t.Errorf("a replay is not what was rebuilt, %s: exit %d\n%s", ans.Digest, code, out)
	}
	wrong := strings.Repeat("0", 64)
	if code, out := s.command("generation", "switch", "healed", "--reason", "power cut", "--digest", wrong); code == 0 || !strings.Contains(out, "and not "+wrong) {
		t.Errorf("switched to rows that are not what a replay gave: exit %d\n%s", code, out)
	}
	code, out = s.command("generation", "switch", "healed", "--reason", "power cut", "-o", "json", "--quiet")
	var switched app.Switched
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &switched); err != nil || code != 0 || !switched.Replayed || switched.Digest != ans.Digest || len(switched.Lost) != len(ans.Diverged) {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	b.says(1, "caught up")
	s.verified()
	// The rows that nobody reads stand still, until they are dropped.
	b.becomes("/readyz", http.StatusOK, " of generation a, which is not read, stands still")
	if code, out := s.command("generation", "drop", "a", "--force"); code != 0 {
		t.Fatal(out)
	}
	b.becomes("/readyz", http.StatusOK, "ok\n")
	for late := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		_, ready := b.get("/readyz")
		if _, metrics := b.get("/metrics"); ready == "ok\n" && !strings.Contains(metrics, `quartermaster_partition_stopped{generation="a"`) {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("generation a is gone, and /readyz says %s", ready)
		}
	}
	if code, out := s.command("generation", "status"); code != 0 || !strings.Contains(out, "power cut") || strings.Contains(out, "not in the log yet") {
		t.Errorf("exit %d\n%s", code, out)
	}
	b.ends()
}

// The rows say which program they need, when it is not this one.
func TestProductionOtherMethod(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	cfg := postgres.Config{DSN: ""}
	c, err := config.Load(s.config, func(string) string { return "" })
	if err == nil {
		cfg, err = c.ForPostgres()
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `update quartermaster.generations set method = 'folds/99'`); err != nil {
		t.Fatal(err)
	}
	code, out := s.command("fleet")
	if code == 0 || !strings.Contains(out, "folds/99") || !strings.Contains(out, projections.Method) {
		t.Errorf("exit %d: %s", code, out)
	}
}
