package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
)

// crashPlan is how much befalls the rivals before a campaign ends.
type crashPlan struct {
	Kills, Freezes, PostgresCrashes, BrokerRestarts, Foreign, ClockSteps int

	Tidied int // kills of what archives, makes parts, trims and detaches

	least, most time.Duration // of the campaign; it fails when it takes longer
	pace        time.Duration // between five minutes of the fleet
	servers     time.Duration // about how long between faults of a server
	foreign     time.Duration // the same between writes of another program
	clock       time.Duration // the same between steps of the database's clock
	compare     time.Duration // between comparisons
}

var crashPlans = map[string]crashPlan{
	"short": {
		40, 6, 2, 2, 6, 4, 12, 60 * time.Second, 10 * time.Minute, 150 * time.Millisecond,
		16 * time.Second, 5 * time.Second, 8 * time.Second, 25 * time.Second,
	},
	// A third of what is promised, a bit more.
	"long": {
		350, 70, 18, 18, 30, 18, 100, 0, 2 * time.Hour, 150 * time.Millisecond,
		24 * time.Second, 12 * time.Second, 20 * time.Second, 2 * time.Minute,
	},
	// What loseTail does, alone; it gives no result to keep.
	"tail": {most: 10 * time.Minute, pace: 10 * time.Millisecond},
	// What tidy does, alone, and after loseTail.
	"tidy": {Tidied: 12, most: 15 * time.Minute, pace: 10 * time.Millisecond},
	"ends": {Tidied: 12, most: 15 * time.Minute, pace: 10 * time.Millisecond},
}

// crashRun is what a campaign counted; the file of results holds one for each.
type crashRun struct {
	Passed  bool   `json:"passed"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Plan    string `json:"plan"`
	Seed    uint64 `json:"seed"`
	Seconds int    `json:"seconds"`

	Kills           map[string]int `json:"kills"` // by place; "anywhere" is at a random time
	Killed          int            `json:"killed"`
	Frozen          int            `json:"frozen"`    // and resumed
	Overtaken       int            `json:"overtaken"` // of these, whose partitions others had taken over when it was resumed
	Refused         int            `json:"refused"`   // commits that the database refused to whoever was overtaken
	PostgresCrashes int            `json:"postgres_crashes"`
	BrokerRestarts  int            `json:"broker_restarts"`
	Cut             int            `json:"cut"`                     // times that connections of a rival were cut
	Foreign         int            `json:"foreign,omitempty"`       // writes of another program
	ClockBack       int            `json:"clock_back,omitempty"`    // steps of the database's clock, after which all was folded again
	ClockForward    int            `json:"clock_forward,omitempty"` // the same

	Events      int64 `json:"events"`  // records in the log
	Repeats     int64 `json:"repeats"` // of these, repeats
	Quarantined int64 `json:"quarantined"`
	Conflicts   int64 `json:"conflicts"`           // of these, claims of another record's sequence
	Aborted     int64 `json:"aborted,omitempty"`   // of these, of transactions that were aborted
	Oversized   int64 `json:"oversized,omitempty"` // of these, of batches that unpack to too much
	Markers     int64 `json:"markers,omitempty"`   // ends of transactions, which are no records
	Commits     int   `json:"commits"`
	Claims      int   `json:"claims"` // that committed something
	Comparisons int   `json:"comparisons"`
	Rows        int   `json:"rows"` // compared in the last comparison
	Lost        int   `json:"lost"`
	Doubled     int   `json:"doubled"`
	Different   int   `json:"different"`
	Unfenced    int   `json:"unfenced"`

	// At the end the broker loses records, which is noticed and healed.
	TailRecords    int64 `json:"tail_records,omitempty"`    // acknowledged, and lost by the broker
	TailPartitions int   `json:"tail_partitions,omitempty"` // that lost some, each of which was said to have diverged
	TailRows       int   `json:"tail_rows,omitempty"`       // of the rebuild that was switched to, all of them equal

	// The archive, parts, trims and detached hours.
	TidyKills   map[string]int `json:"tidy_kills,omitempty"` // by command
	TidyRuns    int            `json:"tidy_runs,omitempty"`  // that came to their end
	TidyRefused int            `json:"tidy_refused,omitempty"`
	Trimmed     int64          `json:"trimmed,omitempty"`  // records that the broker no longer has
	Detached    int            `json:"detached,omitempty"` // months of partitions whose hours are in parts

	Controls map[string]string `json:"controls"` // by defect, how it was caught
	Restart  float64           `json:"restart_seconds"`
}

// TestCrashCampaign runs rival instances of serve on a real Kafka and Postgres,
// and while events are appended kills them, freezes and resumes them, cuts their
// connections, crashes the servers, steps the database's clock, and writes to the log as
// another program does. Rows must at all times be those of an independent fold over the
// raw log, byte for byte; each offset is folded in one commit, and whoever was overtaken
// commits nothing. Defects that are put in on purpose must be found. At the end the
// broker loses records, see [campaign.loseTail], and the log is archived and trimmed and rows
// leave the database, see [campaign.tidy].
//
// It runs when QM_CRASH names a plan. "make crash" runs it; QM_CRASH_SEED repeats
// the choices of a run, though not their timing. The plan "tail" is its end alone.
func TestCrashCampaign(t *testing.T) {
	name := os.Getenv("QM_CRASH")
	if name == "" {
		t.Skip("QM_CRASH names no plan; \"make crash\" runs this")
	}
	plan, known := crashPlans[name]
	if !known {
		t.Fatalf("QM_CRASH=%q: want short, long, tail, tidy or ends", name)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("QM_CRASH_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	said := &retold{T: t}
	t.Cleanup(said.again)
	c := &campaign{t: said, plan: plan, rng: rand.New(rand.NewPCG(seed, 3)), began: time.Now(), rivals: map[*process]bool{}}
	c.run.Plan, c.run.Seed, c.run.Kills, c.run.TidyKills, c.run.Controls = name, seed, map[string]int{}, map[string]int{}, map[string]string{}
	c.run.Date = time.Now().UTC().Format(time.DateOnly)
	if b, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		c.run.Commit = strings.TrimSpace(string(b))
	}
	c.start()
	c.campaign()
	c.run.Seconds, c.run.Passed = int(time.Since(c.began).Seconds()), !t.Failed()
	if path := os.Getenv("QM_CRASH_RESULTS"); path != "" && plan.Kills > 0 {
		if err := addResult(path, &c.run); err != nil {
			c.t.Error(err)
		}
	}
	b, err := json.MarshalIndent(&c.run, "", "  ")
	if err != nil {
		c.t.Fatal(err)
	}
	t.Logf("%s", b)
}

// retold is a test that says at its very end again why it failed: of a long output, the end
// is what is kept and read.
type retold struct {
	*testing.T
	mu  sync.Mutex
	why []string
}

func (t *retold) keep(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " | ")
	t.why = append(t.why, strings.ToValidUTF8(text[:min(len(text), 1500)], ""))
}

func (t *retold) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, why := range t.why[:min(len(t.why), 10)] {
		t.Logf("FAILED: %s", why)
	}
}

func (t *retold) Error(args ...any) {
	t.Helper()
	t.keep(fmt.Sprintln(args...))
	t.T.Error(args...)
}

func (t *retold) Errorf(format string, args ...any) {
	t.Helper()
	t.keep(fmt.Sprintf(format, args...))
	t.T.Errorf(format, args...)
}

func (t *retold) Fatal(args ...any) {
	t.Helper()
	t.keep(fmt.Sprintln(args...))
	t.T.Fatal(args...)
}

func (t *retold) Fatalf(format string, args ...any) {
	t.Helper()
	t.keep(fmt.Sprintf(format, args...))
	t.T.Fatalf(format, args...)
}

type campaign struct {
	t     *retold
	plan  crashPlan
	began time.Time

	dir         string
	ports       [2]int // of Postgres and Kafka
	brokers     []string
	dsn         string
	log         *kafka.Log
	work        *workload
	folded      atomic.Int64
	servers     sync.RWMutex // written by whoever takes a server down, read by who needs both
	failedRival atomic.Pointer[string]

	mu     sync.Mutex
	rng    *rand.Rand
	run    crashRun
	rivals map[*process]bool
}

// crashLease is the rivals' lease, the least that a configuration allows.
const crashLease = time.Second

func (c *campaign) say(format string, args ...any) {
	c.t.Logf("%7.1fs "+format, append([]any{time.Since(c.began).Seconds()}, args...)...)
}

// draw returns a random duration up to most.
func (c *campaign) draw(most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rng.Int64N(int64(most)))
}

// pick returns a random number below n.
func (c *campaign) pick(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *campaign) count(f func(*crashRun)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.run)
}

// rest waits, and reports whether ctx lasts.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// ---- Servers

func (c *campaign) script(ctx context.Context, name string, args ...string) (string, error) {
	port := c.ports[0]
	if name == "kafka" {
		port = c.ports[1]
	}
	args = append([]string{filepath.Join("..", "..", "deploy", "dev", name+".sh")}, args...)
	// A broker that was killed comes back once its session is over.
	cmd := exec.CommandContext(ctx, "env", append([]string{"KAFKA_SESSION=3", "bash"}, append(args, "--dir", filepath.Join(c.dir, name), "--port", strconv.Itoa(port))...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// start starts both servers in a fresh directory, removed in the end.
func (c *campaign) start() {
	t, ctx := c.t, context.Background()
	for i, v := range []struct {
		name string
		port int
	}{{"QM_CRASH_POSTGRES_PORT", 31432}, {"QM_CRASH_KAFKA_PORT", 31092}} {
		c.ports[i] = v.port
		if s := os.Getenv(v.name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("%s=%q is no port", v.name, s)
			}
			c.ports[i] = n
		}
	}
	var err error
	// Short, for the path of a socket, and open to the user of Postgres.
	if c.dir, err = os.MkdirTemp("", "qm-crash-"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"kafka", "postgres"} {
			if _, err := c.script(context.Background(), name, "clean"); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("what the rivals said is in %s", c.dir)
			return
		}
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"kafka", "postgres"} {
		if _, err := c.script(ctx, name, "start"); err != nil {
			t.Fatal(err)
		}
	}
	c.brokers = []string{fmt.Sprintf("127.0.0.1:%d", c.ports[1])}
	if c.dsn, err = c.script(ctx, "postgres", "dsn"); err != nil {
		t.Fatal(err)
	}
	c.log, err = kafka.Open(ctx, kafka.Config{Brokers: c.brokers, Patience: 2 * time.Minute, Dial: flaky(rand.New(rand.NewPCG(c.run.Seed, 4)), 0.002)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.log.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.log.EnsureTopics(ctx, domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	c.work = newWorkload(c.log, c.run.Seed)
	c.say("servers run: seed %d, in %s", c.run.Seed, c.dir)
}

// rowsOf is a database of rows that rivals fold into.
type rowsOf struct {
	db     *postgres.DB
	config string // the file that they start with
}

// database makes a database with a clock of its own, a first generation, and a trace of
// commits.
func (c *campaign) database(ctx context.Context, name string) *rowsOf {
	t, dsn := c.t, c.dsn
	do := func(query string) {
		t.Helper()
		connector, err := pq.NewConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		db := sql.OpenDB(connector)
		_, err = db.ExecContext(ctx, query)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if name != "quartermaster" {
		do("create database " + name)
		u, err := url.Parse(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		dsn = u.String()
	}
	do(fmt.Sprintf(clockSQL, name))
	if _, _, err := postgres.Migrate(ctx, postgres.Config{DSN: dsn}); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(ctx, postgres.Config{DSN: dsn, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.First(ctx, projections.Method); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `
		create schema crash;
		create table crash.trace (
			number bigserial primary key, generation text, topic text, partition integer, from_offset bigint, epoch bigint, to_offset bigint, rival text
		)`); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, name+".dsn")
	config := filepath.Join(c.dir, name+".yaml")
	rows := &rowsOf{db, config}
	text := fmt.Sprintf("lease: %s\nschedules: {advice: off}\nkafka:\n  brokers: [%s]\n  replication: 1\npostgres:\n  dsn_file: %s\narchive:\n  url: %s\n  segment_mib: 1\n  seal_after: 1m\nparts: %s\n",
		crashLease, c.brokers[0], file, rows.archive(), rows.parts())
	if err := errors.Join(os.WriteFile(file, []byte(dsn), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return rows
}

// ---- Rivals

// process is a running rival.
type process struct {
	name   string
	cmd    *exec.Cmd
	mu     sync.Mutex
	hears  bool // the signals that cut its connections, which before end it
	frozen bool
	by     string // who ended it: the place where it killed itself, or "anywhere"; "" while nobody did
}

// keep runs a rival, and another one whenever it was killed, until ctx ends.
func (c *campaign) keep(ctx context.Context, rows *rowsOf, name, control string, calm bool) {
	// A rival dies with the thread that started it, should this process die.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := 0; ctx.Err() == nil; i++ {
		instance := name
		if c.draw(2) == 0 {
			// A new name need not wait until the one before is known to be dead.
			instance = fmt.Sprintf("%s-%d", name, i)
		}
		if err := c.rival(ctx, rows, name, instance, control, calm); err != nil {
			c.t.Errorf("rival %s: %v", instance, err)
			text := err.Error()
			c.failedRival.Store(&text)
			return
		}
		rest(ctx, c.draw(300*time.Millisecond))
	}
}

// rival runs one until it ends; what it says goes to a log of the given name. It
// is an error that it ends by itself.
func (c *campaign) rival(ctx context.Context, rows *rowsOf, name, instance, control string, calm bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	hear, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hear.Close()
	said, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	c.mu.Lock()
	// Enough were killed: some live, so that the rest of the plan comes about.
	calm = calm || control == "" && c.run.Killed >= c.plan.Kills && c.rng.IntN(3) > 0
	order, err := json.Marshal(rivalOrder{Config: rows.config, Instance: instance, Lease: crashLease, Seed: c.rng.Uint64(), Control: control, Calm: calm, Ports: c.ports,
		Unfrozen: c.run.Frozen >= c.plan.Freezes})
	c.mu.Unlock()
	if err != nil {
		return err
	}
	p := &process{name: instance, cmd: &exec.Cmd{
		Path: self, Args: []string{rivalName}, Env: append(os.Environ(), rivalVariable+"="+string(order), "GOMAXPROCS=2"),
		Stdout: said, Stderr: said, ExtraFiles: []*os.File{tell}, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}}
	err = p.cmd.Start()
	tell.Close()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.rivals[p] = true
	c.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.by == "" {
			p.by = "end"
		}
		_ = p.cmd.Process.Kill()
	})
	defer stop()
	for lines := bufio.NewScanner(hear); lines.Scan(); {
		var e rivalEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		switch e.Event {
		case "hears":
			p.mu.Lock()
			p.hears = true
			p.mu.Unlock()
		case "kill":
			p.mu.Lock()
			if p.by == "" {
				p.by = e.Place
			}
			p.mu.Unlock()
		case "freeze":
			p.mu.Lock()
			p.frozen = true
			p.mu.Unlock()
			go c.thaw(ctx, rows, p, e.Place)
		case "cut":
			c.count(func(r *crashRun) { r.Cut++ })
		case "fenced":
			c.count(func(r *crashRun) { r.Refused++ })
		}
	}
	ended := p.cmd.Wait()
	c.mu.Lock()
	delete(c.rivals, p)
	c.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case p.by == "end" || ctx.Err() != nil:
	case p.by != "" && ok && status.Signaled() && status.Signal() == syscall.SIGKILL:
		if control == "" {
			c.count(func(r *crashRun) { r.Killed++; r.Kills[p.by]++ })
		}
	default:
		tail, _ := exec.Command("tail", "-n", "15", said.Name()).Output()
		return fmt.Errorf("it ended by itself: %v\n%s", ended, tail)
	}
	return nil
}

// owned returns how many partitions an instance owns.
func owned(ctx context.Context, rows *rowsOf, instance string) (n int, err error) {
	bound, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	err = rows.db.QueryRowContext(bound, `
		select count(*) from quartermaster.partitions p join quartermaster.sessions s on s.token = p.owner where s.instance = $1`, instance).Scan(&n)
	return n, err
}

// thaw resumes a frozen rival when others have taken over what it held, or some
// time after that should have happened.
func (c *campaign) thaw(ctx context.Context, rows *rowsOf, p *process, place string) {
	before, err := owned(ctx, rows, p.name)
	left := before
	for deadline := time.Now().Add(9 * crashLease); left > 0 && time.Now().Before(deadline) && rest(ctx, crashLease/4); {
		var now int
		if now, err = owned(ctx, rows, p.name); err == nil {
			left = now
		}
	}
	rest(ctx, c.draw(2*crashLease))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = false
	if p.by != "" || p.cmd.Process.Signal(syscall.SIGCONT) != nil {
		return
	}
	c.count(func(r *crashRun) {
		r.Frozen++
		if before > 0 && left == 0 {
			r.Overtaken++
		}
	})
	if left > 0 && err == nil {
		c.say("frozen %q, %s keeps %d of %d partitions", place, p.name, left, before)
	}
}

// befall does something to a random rival at random times.
func (c *campaign) befall(ctx context.Context, rows *rowsOf) {
	for rest(ctx, 300*time.Millisecond+c.draw(4*time.Second)) {
		var p *process
		c.mu.Lock()
		if n := len(c.rivals); n > 0 {
			some := make([]*process, 0, n)
			for p := range c.rivals {
				some = append(some, p)
			}
			slices.SortFunc(some, func(a, b *process) int { return strings.Compare(a.name, b.name) })
			p = some[c.rng.IntN(n)]
		}
		dice := c.rng.IntN(20)
		if c.run.Frozen >= c.plan.Freezes && dice >= 9 && dice < 15 {
			dice = 0 // enough; a freeze takes as long as many kills
		}
		c.mu.Unlock()
		if p == nil {
			continue
		}
		p.mu.Lock()
		switch {
		case p.frozen || p.by != "":
		case dice < 9:
			p.by = "anywhere"
			_ = p.cmd.Process.Kill()
		case dice < 15:
			if p.cmd.Process.Signal(syscall.SIGSTOP) == nil {
				p.frozen = true
				go c.thaw(ctx, rows, p, "anywhere")
			}
		case p.hears:
			sig := syscall.SIGUSR1
			if dice >= 18 {
				sig = syscall.SIGUSR2
			}
			if p.cmd.Process.Signal(sig) == nil {
				c.count(func(r *crashRun) { r.Cut++ })
			}
		}
		p.mu.Unlock()
	}
}

// until returns how long to wait before something is done again, longer once it was
// done often enough: while a server is down, little else can happen.
func (c *campaign) until(pace time.Duration, had func(*crashRun) int, want int) time.Duration {
	wait := pace/2 + c.draw(pace)
	c.mu.Lock()
	defer c.mu.Unlock()
	if had(&c.run) >= want {
		wait *= 5
	}
	return wait
}

// crashPostgres and crashKafka take the servers down and up again.
func (c *campaign) crashPostgres(ctx context.Context) {
	for rest(ctx, c.until(c.plan.servers, func(r *crashRun) int { return r.PostgresCrashes }, c.plan.PostgresCrashes)) {
		c.servers.Lock()
		_, err := c.script(context.Background(), "postgres", "immediate")
		if err == nil {
			rest(context.Background(), c.draw(2*time.Second))
			_, err = c.script(context.Background(), "postgres", "start")
		}
		c.servers.Unlock()
		if err != nil {
			c.t.Error(err)
			return
		}
		c.count(func(r *crashRun) { r.PostgresCrashes++ })
	}
}

func (c *campaign) crashKafka(ctx context.Context) {
	for i := 0; rest(ctx, c.until(c.plan.servers, func(r *crashRun) int { return r.BrokerRestarts }, c.plan.BrokerRestarts)); i++ {
		var err error
		if i%3 == 2 {
			_, err = c.script(context.Background(), "kafka", "restart")
		} else if _, err = c.script(context.Background(), "kafka", "kill"); err == nil {
			rest(context.Background(), c.draw(2*time.Second))
			_, err = c.script(context.Background(), "kafka", "start")
		}
		if err != nil {
			c.t.Error(err)
			return
		}
		c.count(func(r *crashRun) { r.BrokerRestarts++ })
	}
}

// ---- The campaign

func (c *campaign) campaign() {
	t := c.t
	// Whoever stops it is not left with two servers.
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.plan.most)
	defer cancel()
	appending, stopAppending := context.WithCancel(ctx)
	defer stopAppending()
	rows := c.database(ctx, "quartermaster")
	appended := make(chan error, 1)
	c.folded.Store(1 << 60)
	go func() {
		appended <- c.work.run(appending, c.plan.pace, func() bool { return c.work.appended.Load()-c.folded.Load() > 30_000 })
	}()
	for c.work.appended.Load() < 2000 && rest(ctx, 100*time.Millisecond) {
	}
	if c.plan.Kills == 0 {
		stopAppending()
		if err := <-appended; err != nil {
			t.Fatalf("append: %v", err)
		}
		generation := firstGeneration
		if c.run.Plan != "tidy" {
			c.loseTail(ctx, rows)
			generation = healedGeneration
		}
		if c.plan.Tidied > 0 && !t.Failed() {
			c.tidy(ctx, rows, generation)
		}
		return
	}
	for _, defect := range []string{controlFencing, controlPosition, controlRepeats} {
		c.control(ctx, defect)
	}
	c.controlAhead(ctx)

	live := newReference()
	var all, faults sync.WaitGroup
	running, stopRunning := context.WithCancel(ctx)
	faulty, stopFaults := context.WithCancel(running)
	defer stopRunning()
	defer stopFaults()
	for i := range 3 {
		all.Go(func() { c.keep(faulty, rows, fmt.Sprintf("rival-%d", i+1), "", false) })
	}
	for _, f := range []func(context.Context){
		c.crashPostgres, c.crashKafka, c.foreignWrites,
		func(ctx context.Context) { c.befall(ctx, rows) }, func(ctx context.Context) { c.stepClock(ctx, rows) },
	} {
		faults.Go(func() { f(faulty) })
	}
	faults.Go(func() { // so that appending waits for folding, and some batches are large
		for i := 1; rest(faulty, time.Second); i++ {
			var n int64
			if rows.db.QueryRowContext(faulty, `select sum(next_offset) from quartermaster.partitions`).Scan(&n) == nil {
				c.folded.Store(n)
			}
			if i%30 == 20 {
				c.work.wanted.Store(true)
			}
		}
	})
	began, compared := time.Now(), time.Now()
	for rest(ctx, time.Second) && !c.done(time.Since(began)) && c.failedRival.Load() == nil && !t.Failed() {
		if time.Since(compared) < c.plan.compare {
			continue
		}
		c.servers.RLock()
		ok := c.verify(ctx, rows, live)
		c.servers.RUnlock()
		compared = time.Now()
		if !ok {
			break
		}
	}
	c.say("faults end")
	stopFaults()
	faults.Wait()
	all.Wait()
	stopAppending()
	if err := <-appended; err != nil {
		t.Errorf("append: %v", err)
	}
	if ctx.Err() != nil {
		t.Errorf("it was stopped, or not all of the plan %+v befell the rivals within %s", c.plan, c.plan.most)
		return
	}
	if t.Failed() {
		return
	}
	// What is left is folded by whoever starts now.
	for i := range 2 {
		all.Go(func() { c.keep(running, rows, fmt.Sprintf("rival-%d", i+1), "", true) })
	}
	c.await(ctx, rows, firstGeneration)
	fresh := newReference()
	c.verify(ctx, rows, fresh)
	c.count(func(r *crashRun) {
		r.Events, r.Repeats, r.Quarantined, r.Conflicts = fresh.records, fresh.repeats, fresh.poisoned, fresh.conflicts
		r.Aborted, r.Oversized, r.Markers = fresh.aborted, fresh.oversized, fresh.markers
	})
	if fresh.conflicts == 0 {
		t.Error("no record claimed the place of another")
	}
	if fresh.aborted == 0 || fresh.oversized == 0 || fresh.markers == 0 {
		t.Error("no transaction was committed, aborted, or wrote a batch that is too large")
	}
	stopRunning()
	all.Wait()

	// A restart, by one alone, however long the log.
	if err := c.work.step(ctx); err != nil {
		t.Fatal(err)
	}
	last, stopLast := context.WithCancel(ctx)
	defer stopLast()
	start := time.Now()
	all.Go(func() { c.keep(last, rows, "rival-4", "", true) })
	c.await(ctx, rows, firstGeneration)
	c.run.Restart = float64(time.Since(start).Milliseconds()) / 1000
	stopLast()
	all.Wait()
	if !t.Failed() {
		c.loseTail(ctx, rows)
	}
	if !t.Failed() {
		c.tidy(ctx, rows, healedGeneration)
	}
}

// done reports whether all of the plan has befallen the rivals.
func (c *campaign) done(after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, p := &c.run, &c.plan
	if n := int(after.Seconds()); n%20 == 0 {
		c.say("%d killed, %d frozen (%d overtaken, %d commits refused), %d times cut, %d crashes of Postgres, %d restarts of the broker, %d foreign writes, %d steps of the clock, %d events given, %d folded",
			r.Killed, r.Frozen, r.Overtaken, r.Refused, r.Cut, r.PostgresCrashes, r.BrokerRestarts, r.Foreign, r.ClockBack+r.ClockForward, c.work.appended.Load(), c.folded.Load())
	}
	return after >= p.least && r.Killed >= p.Kills && r.Frozen >= p.Freezes && r.PostgresCrashes >= p.PostgresCrashes && r.BrokerRestarts >= p.BrokerRestarts &&
		r.Foreign >= p.Foreign && r.ClockBack+r.ClockForward >= p.ClockSteps
}

// verify compares rows and commits with a reference.
func (c *campaign) verify(ctx context.Context, rows *rowsOf, ref *reference) bool {
	start := time.Now()
	d, at, err := compareNow(ctx, rows, firstGeneration, c.brokers, ref)
	if err != nil {
		c.t.Errorf("compare: %v", err)
		return false
	}
	c.say("%d rows of %d events and %d commits under %d claims compared in %.1f s", d.Rows, at.Records(), d.Commits, d.Epochs, time.Since(start).Seconds())
	c.count(func(r *crashRun) {
		r.Comparisons++
		r.Rows, r.Commits, r.Claims = d.Rows, d.Commits, d.Epochs
		r.Lost, r.Doubled, r.Different, r.Unfenced = r.Lost+len(d.Lost), r.Doubled+len(d.Extra), r.Different+len(d.Changed), r.Unfenced+len(d.Trace)
	})
	if d.any() {
		c.t.Errorf("rows are not those of the log at %s:\n%s", at, d)
	}
	return !d.any()
}

// await waits until a generation has reached the end of the log.
func (c *campaign) await(ctx context.Context, rows *rowsOf, generation string) {
	_, end, err := c.log.AllBounds(ctx, domain.AllPartitions())
	if err != nil {
		c.t.Fatal(err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; {
		at, err := rows.position(ctx, generation)
		if err == nil && at.Covers(end) {
			return
		}
		if time.Now().After(deadline) || !rest(ctx, 50*time.Millisecond) {
			c.t.Fatalf("rows are at %s, the log ends at %s: %v", at, end, err)
		}
	}
}

// control puts a defect in, and looks whether the comparison finds it.
func (c *campaign) control(ctx context.Context, defect string) {
	const rounds = 40
	rows := c.database(ctx, "control_"+strings.ReplaceAll(strings.ToLower(strings.Fields(defect)[0]), " ", "_"))
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range 2 {
		// One is overtaken, so the other must be there to overtake it.
		calm := defect == controlFencing && i == 1
		wg.Go(func() { c.keep(ctx, rows, fmt.Sprintf("control-%d", i+1), defect, calm) })
	}
	ref := newReference()
	for round := range rounds {
		if !rest(ctx, 2*time.Second) {
			return
		}
		d, _, err := compareNow(ctx, rows, firstGeneration, c.brokers, ref)
		if err != nil {
			c.t.Errorf("control %q: %v", defect, err)
			return
		}
		wrong := len(d.Lost) + len(d.Extra) + len(d.Changed)
		if defect == controlRepeats {
			wrong = d.sums // every row shows the sequences, which are others'
		}
		if wrong > 0 {
			how := fmt.Sprintf("%d rows lost, %d of nowhere, %d different, %d commits out of place", len(d.Lost), len(d.Extra), len(d.Changed), len(d.Trace))
			c.say("control %q is caught in round %d: %s", defect, round+1, how)
			c.run.Controls[defect] = how
			return
		}
		if round%8 == 7 { // one that its own defect stopped shows nothing more
			c.again()
		}
	}
	c.t.Errorf("control %q is not caught in %d rounds: the campaign would not notice", defect, rounds)
}

// again kills all rivals, which are started again.
func (c *campaign) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.rivals {
		p.mu.Lock()
		if p.by == "" {
			p.by = "again"
		}
		_ = p.cmd.Process.Kill()
		p.mu.Unlock()
	}
}

// TestCrashResults holds the file of results: nothing was lost, doubled or
// different in any run that got to its end, every control was caught, and the sum
// over all runs is what production promises; docs/evidence/guarantees.md tells that sum.
func TestCrashResults(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "dev", "crash-results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var runs []*crashRun
	if err := json.Unmarshal(b, &runs); err != nil {
		t.Fatal(err)
	}
	var sum crashRun
	for _, r := range runs {
		controls := 3
		if r.ClockBack+r.ClockForward > 0 {
			controls = 4
		}
		if len(r.TidyKills) > 0 {
			controls += 4
		}
		if !r.Passed || r.Lost+r.Doubled+r.Different+r.Unfenced > 0 || len(r.Controls) != controls {
			t.Errorf("the run of seed %d, %s, did not pass: %+v", r.Seed, r.Date, r)
		}
		sum.Seconds += r.Seconds
		sum.Killed += r.Killed
		sum.Frozen += r.Frozen
		sum.Overtaken += r.Overtaken
		sum.Refused += r.Refused
		sum.PostgresCrashes += r.PostgresCrashes
		sum.BrokerRestarts += r.BrokerRestarts
		sum.Cut += r.Cut
		sum.Events += r.Events
		sum.Repeats += r.Repeats
		sum.Comparisons += r.Comparisons
	}
	t.Logf("%d runs: %d killed, %d frozen and resumed (%d overtaken, %d commits refused), %d crashes of Postgres, %d restarts of the broker, %d times cut off, %d events (%d repeats), %d comparisons",
		len(runs), sum.Killed, sum.Frozen, sum.Overtaken, sum.Refused, sum.PostgresCrashes, sum.BrokerRestarts, sum.Cut, sum.Events, sum.Repeats, sum.Comparisons)
	if sum.Killed < 1000 || sum.Frozen < 200 || sum.PostgresCrashes < 50 || sum.BrokerRestarts < 50 {
		t.Error("promised are 1000 kills, 200 frozen and resumed, 50 crashes of Postgres and 50 restarts of the broker")
	}
}

// addResult adds a run to the file of results.
func addResult(path string, run *crashRun) error {
	var runs []*crashRun
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &runs)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("read results: %w", err)
	}
	b, err = json.MarshalIndent(append(runs, run), "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
