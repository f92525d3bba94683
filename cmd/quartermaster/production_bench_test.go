package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

// BenchmarkProduction measures a log in production: the broker of QM_KAFKA_BROKERS,
// the database server of QM_POSTGRES_DSN, and "quartermaster serve" in processes
// of their own. "make bench-production" starts both servers for it.
//
// The workload is 2,000 nodes of eight GPUs in 80 clusters, sampled every 10 s. QM_BENCH_NODES
// and QM_BENCH_EVENTS say how many nodes and samples otherwise; the default is a million samples. The
// broker's log is filled once and kept, for further runs; it must hold nothing else.
//
//   - fold: one instance folds the log from its beginning into an empty database,
//     beside reading the same records and doing nothing, and beside a COPY of the
//     rows that come of it into empty tables of the same shape.
//   - rebuild: "quartermaster generation rebuild" folds the log once more, beside the
//     rows of fold. CPU is that until the last record is folded, without the comparison.
//   - take-over: of two instances that have caught up one is killed, and every node
//     sends a sample. The time is from the kill until the other has folded them.
//   - restart: the only instance is killed, every node sends a sample, and it is
//     started again. The time is from its start until it has folded them.
func BenchmarkProduction(b *testing.B) {
	p := newProduction(b)
	b.Run("fold", p.fold)
	b.Run("rebuild", p.rebuild)
	b.Run("take-over", p.takeOver)
	b.Run("restart", p.restart)
}

// estateNodes, estateInterval and estateClusters are the workload of production.
// The clusters are so many that the partitions are about equally long: what is
// left of a long one when the others are done is folded by one worker alone.
const (
	estateNodes    = 2000
	estateInterval = 10 * time.Second
	estateClusters = 80
)

// wantedSize returns the number in an environment variable.
func wantedSize(b *testing.B, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		b.Fatalf("%s is %q: want a number", name, s)
	}
	return n
}

// productionHome is a filled log and, once something was folded, rows.
type productionHome struct {
	whole  *testing.B // databases stay until its end
	home   *app.Conn
	estate *estate
	dir    string
	dsn    string
	db     *sql.DB
}

func newProduction(b *testing.B) *productionHome {
	brokers := os.Getenv("QM_KAFKA_BROKERS")
	if brokers == "" || os.Getenv("QM_POSTGRES_DSN") == "" {
		b.Skip(`QM_KAFKA_BROKERS and QM_POSTGRES_DSN name no servers: production is not measured; "make bench-production" starts both and measures it`)
	}
	events, nodes := wantedSize(b, "QM_BENCH_EVENTS", 1_000_000), wantedSize(b, "QM_BENCH_NODES", estateNodes)
	p := &productionHome{whole: b, estate: newEstate(nodes, estateInterval), dir: b.TempDir()}
	p.estate.clusters = estateClusters
	if err := os.WriteFile(p.config(), fmt.Appendf(nil, "kafka: {brokers: ['%s'], replication: 1}\npostgres: {dsn_file: dsn}\nschedules: {advice: off}\nlisten: 127.0.0.1:0\n",
		strings.ReplaceAll(brokers, ",", "', '")), 0o600); err != nil {
		b.Fatal(err)
	}
	p.empty(b)
	config, err := config.Load(p.config(), func(string) string { return "" })
	if err != nil {
		b.Fatal(err)
	}
	a := commandLine(&app.App{Config: config}, io.Discard, io.Discard)
	if p.home, err = a.Dial(b.Context()); err == nil {
		err = p.home.Log.EnsureTopics(b.Context(), domain.TopicSpecs())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.home.Shut(); err != nil {
			b.Error(err)
		}
	})
	if err := p.estate.fill(b.Context(), p.home, events); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *productionHome) config() string { return filepath.Join(p.dir, "quartermaster.yaml") }

// empty makes the data directory's rows those of a new database.
func (p *productionHome) empty(b *testing.B) {
	p.dsn, p.db = database(p.whole)
	if err := os.WriteFile(filepath.Join(p.dir, "dsn"), []byte(p.dsn), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.CommandContext(b.Context(), "quartermaster", "generation", "migrate", "--config", p.config()).CombinedOutput(); err != nil {
		b.Fatalf("migrate: %v\n%s", err, out)
	}
}

// served is an instance in a process of its own.
type served struct {
	cmd   *exec.Cmd
	out   bytes.Buffer // to be read once it has ended
	ended chan struct{}
}

func (p *productionHome) serve(b *testing.B, instance string) *served {
	s := &served{cmd: exec.Command("quartermaster", "serve", "--config", p.config()), ended: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), "QUARTERMASTER_INSTANCE="+instance, "QUARTERMASTER_DATA_DIR="+p.dir)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	b.Cleanup(s.kill)
	return s
}

// kill is what happens to a machine that loses power.
func (s *served) kill() {
	_ = s.cmd.Process.Kill() // unless it has ended
	<-s.ended
}

// folded returns how many records of the log are in the rows.
func (p *productionHome) folded(b *testing.B) (n int64) {
	if err := p.db.QueryRowContext(b.Context(), `select coalesce(sum(next_offset), 0) from quartermaster.partitions`).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// await waits until the rows stand for everything that is in the log.
func (p *productionHome) await(b *testing.B, alive *served, look func(folded int64)) {
	end, err := p.home.End(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for n := int64(-1); n < end.Records(); {
		select {
		case <-alive.ended:
			b.Fatalf("the instance ended: %s\n%s", alive.cmd.ProcessState, alive.out.String())
		case <-time.After(20 * time.Millisecond):
		}
		n = p.folded(b)
		if look != nil {
			look(n)
		}
	}
}

func (p *productionHome) fold(b *testing.B) {
	for b.Loop() {
		p.empty(b)
		drained := p.drain(b)
		servers := p.servers(b)
		before, wal := cpuOf(servers...), p.wal(b)

		s := p.serve(b, "fold")
		for owned := false; !owned; {
			if err := p.db.QueryRowContext(b.Context(), `select exists (select from quartermaster.partitions where owner is not null)`).Scan(&owned); err != nil {
				b.Fatal(err)
			}
		}
		end, err := p.home.End(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		events := end.Records()
		start := time.Now()
		var half time.Duration
		var memory []int // MiB after each quarter
		p.await(b, s, func(n int64) {
			for 4*n >= int64(len(memory)+1)*events {
				memory = append(memory, kilobytes(s.cmd.Process.Pid, "VmRSS")>>10)
			}
			if half == 0 && 2*n >= events {
				half = time.Since(start)
			}
		})
		took := time.Since(start)
		peak := kilobytes(s.cmd.Process.Pid, "VmHWM") >> 10
		own := cpuOf(s.cmd.Process.Pid)
		s.kill()
		after, written := cpuOf(servers...), p.wal(b)-wal
		if counted := p.counted(b); counted != events {
			b.Fatalf("of %d events %d were counted: the log holds repeats, or events of others; give a broker of its own", events, counted)
		}
		rows, copied := p.copyRows(b)

		million := float64(events) / 1e6
		rate := func(d time.Duration) float64 { return float64(events) / d.Seconds() }
		b.ReportMetric(float64(events), "events")
		b.ReportMetric(rate(took), "events/s")
		b.ReportMetric(rate(2*half), "first-half/s")
		b.ReportMetric(rate(2*(took-half)), "second-half/s")
		b.ReportMetric(rate(drained), "drained/s")
		b.ReportMetric(drained.Seconds()/took.Seconds(), "of-drain")
		b.ReportMetric(copied.Seconds()/took.Seconds(), "of-copy")
		b.ReportMetric(float64(rows), "rows")
		b.ReportMetric(float64(rows)/copied.Seconds(), "copied-rows/s")
		b.ReportMetric(float64(written)/(1<<20)/million, "WAL-MiB/M")
		b.ReportMetric(own[0].Seconds()/million, "cpu-s/M")
		b.ReportMetric((after[0]-before[0]).Seconds()/million, "postgres-cpu-s/M")
		if len(after) > 1 {
			b.ReportMetric((after[1]-before[1]).Seconds()/million, "kafka-cpu-s/M")
		}
		for i, m := range memory {
			b.ReportMetric(float64(m), fmt.Sprintf("MiB-at-%d%%", 25*(i+1)))
		}
		b.ReportMetric(float64(peak), "MiB-peak")
		b.ReportMetric(0, "ns/op")
	}
}

func (p *productionHome) rebuild(b *testing.B) {
	events := p.folded(b)
	if events == 0 {
		b.Skip("nothing was folded that it could be compared with: run fold before it")
	}
	for i := 0; b.Loop(); i++ {
		p.rebuildAs(b, fmt.Sprintf("rebuilt%d", i), events)
	}
}

func (p *productionHome) rebuildAs(b *testing.B, name string, events int64) {
	servers := p.servers(b)
	before, wal := cpuOf(servers...), p.wal(b)
	cmd := exec.CommandContext(b.Context(), "quartermaster", "generation", "rebuild", name, "--config", p.config(), "-o", "json", "--quiet")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	start := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var (
		own, after []time.Duration // when the last record was folded
		took       time.Duration
		written    int64
		peak       int
	)
	for done := false; !done; {
		select {
		case err := <-ended:
			var ans app.Rebuilt
			if err != nil || json.Unmarshal(out.Bytes(), &ans) != nil || !ans.Equal || took == 0 {
				b.Fatalf("%v: %s%s", err, out.String(), problems.String())
			}
			done = true
		case <-time.After(20 * time.Millisecond):
			var n int64
			if err := p.db.QueryRowContext(b.Context(), `
				select coalesce(sum(next_offset), 0) from quartermaster.partitions where generation = $1`, name).Scan(&n); err != nil {
				b.Fatal(err)
			}
			if n >= events && took == 0 {
				took, own, after, written = time.Since(start), cpuOf(cmd.Process.Pid), cpuOf(servers...), p.wal(b)-wal
				peak = kilobytes(cmd.Process.Pid, "VmHWM") >> 10
			}
		}
	}
	million := float64(events) / 1e6
	all := own[0] + after[0] - before[0]
	b.ReportMetric(float64(events)/took.Seconds(), "events/s")
	b.ReportMetric(float64(written)/(1<<20)/million, "WAL-MiB/M")
	b.ReportMetric(own[0].Seconds()/million, "cpu-s/M")
	b.ReportMetric((after[0]-before[0]).Seconds()/million, "postgres-cpu-s/M")
	if len(after) > 1 {
		b.ReportMetric((after[1]-before[1]).Seconds()/million, "kafka-cpu-s/M")
		all += after[1] - before[1]
	}
	b.ReportMetric(2*float64(events)/all.Seconds(), "events/s-of-2-cores") // if they did nothing else
	b.ReportMetric(float64(peak), "MiB-peak")
	b.ReportMetric(0, "ns/op")
}

// settle returns an instance once it has folded everything, others with it.
func (p *productionHome) settle(b *testing.B, instances ...string) (out []*served) {
	for _, name := range instances {
		out = append(out, p.serve(b, name))
	}
	p.await(b, out[0], nil)
	for owners := 0; owners != len(instances); {
		<-time.After(20 * time.Millisecond)
		if err := p.db.QueryRowContext(b.Context(), `select count(distinct owner) from quartermaster.partitions where owner is not null`).Scan(&owners); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// sample appends a sample of every node.
func (p *productionHome) sample(b *testing.B) {
	recs, err := p.estate.round()
	if err == nil {
		err = p.home.Log.Append(b.Context(), recs)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// takeOvers is how often each is tried; the slowest is reported beside the mean.
const takeOvers = 3

func reportSeconds(b *testing.B, took []time.Duration) {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	b.ReportMetric(sum.Seconds()/float64(len(took)), "s")
	b.ReportMetric(slices.Max(took).Seconds(), "s-slowest")
	b.ReportMetric(0, "ns/op")
}

func (p *productionHome) takeOver(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		for i := range takeOvers {
			both := p.settle(b, fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
			start := time.Now()
			both[0].kill()
			p.sample(b)
			p.await(b, both[1], nil)
			took = append(took, time.Since(start))
			both[1].kill()
		}
	}
	reportSeconds(b, took)
}

func (p *productionHome) restart(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		s := p.settle(b, "only")[0]
		for range takeOvers {
			s.kill()
			p.sample(b)
			start := time.Now()
			s = p.serve(b, "only") // whose name the dead one bears until its lease is over
			p.await(b, s, nil)
			took = append(took, time.Since(start))
		}
		s.kill()
	}
	reportSeconds(b, took)
}

// drain reads everything in the log as folding does, and does nothing with it.
func (p *productionHome) drain(b *testing.B) time.Duration {
	end, err := p.home.End(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	start := time.Now()
	for tp, to := range end {
		wg.Go(func() {
			if err := p.home.Log.Read(b.Context(), tp, 0, to, func([]domain.Record) error { return nil }); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// counted returns how many events the rows count: every stream is dense from 1.
func (p *productionHome) counted(b *testing.B) (n int64) {
	if err := p.db.QueryRowContext(b.Context(), fmt.Sprintf(`select coalesce(sum((facts ->> 'mark')::bigint), 0)::bigint from %s.streams`, p.schema(b))).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// schema returns where the active generation's rows are.
func (p *productionHome) schema(b *testing.B) (name string) {
	if err := p.db.QueryRowContext(b.Context(), `select 'rows_' || generation from quartermaster.active`).Scan(&name); err != nil {
		b.Fatal(err)
	}
	return name
}

// copyRows copies every row of the active generation into empty tables of the
// same shape, by COPY in one transaction, and returns their number and how long
// that took.
func (p *productionHome) copyRows(b *testing.B) (rows int, took time.Duration) {
	ctx := b.Context()
	schema := p.schema(b)
	// Tables with rows of their own: of a partitioned one, its partitions.
	tables := p.texts(b, `select relname::text from pg_class where relnamespace = $1::regnamespace and relkind = 'r' order by 1`, schema)
	if _, err := p.db.ExecContext(ctx, `create schema copied`); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	for _, table := range tables {
		name := pq.QuoteIdentifier(table[0])
		from, to := pq.QuoteIdentifier(schema)+"."+name, "copied."+name
		if _, err := p.db.ExecContext(ctx, fmt.Sprintf("create table %s (like %s including all)", to, from)); err != nil {
			b.Fatal(err)
		}
		var columns []string
		for _, c := range p.texts(b, `select attname::text from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped order by attnum`, from) {
			columns = append(columns, pq.QuoteIdentifier(c[0])+"::text")
		}
		held := p.texts(b, fmt.Sprintf("select %s from %s", strings.Join(columns, ", "), from))
		if len(held) == 0 {
			continue
		}
		rows += len(held)
		start := time.Now()
		if err := copyInto(ctx, p.db, to, held); err != nil {
			b.Fatal(err)
		}
		took += time.Since(start)
	}
	if _, err := p.db.ExecContext(ctx, `drop schema copied cascade`); err != nil {
		b.Fatal(err)
	}
	return rows, took
}

func copyInto(ctx context.Context, db *sql.DB, table string, rows [][]string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	stmt, err := tx.PrepareContext(ctx, "copy "+table+" from stdin")
	if err != nil {
		return err
	}
	defer stmt.Close()
	for _, row := range rows {
		values := make([]any, len(row))
		for i, v := range row {
			if v != null {
				values[i] = v
			}
		}
		if _, err := stmt.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	if _, err := stmt.ExecContext(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

// null stands for null in texts.
const null = "\x00"

// texts returns the answer to a query, whose columns are text.
func (p *productionHome) texts(b *testing.B, query string, args ...any) (out [][]string) {
	rows, err := p.db.QueryContext(b.Context(), query, args...)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		b.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			b.Fatal(err)
		}
		row := make([]string, len(columns))
		for i, v := range values {
			row[i] = v.String
			if !v.Valid {
				row[i] = null
			}
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return out
}

// wal returns how many bytes the server has written to its log.
func (p *productionHome) wal(b *testing.B) (bytes int64) {
	if err := p.db.QueryRowContext(b.Context(), `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}

// servers returns the processes of Postgres and, where QM_KAFKA_PID names it,
// Kafka, as far as they run on this machine.
func (p *productionHome) servers(b *testing.B) []int {
	var backend int
	if err := p.db.QueryRowContext(b.Context(), `select pg_backend_pid()`).Scan(&backend); err != nil {
		b.Fatal(err)
	}
	pids := []int{0}
	if f := statOf(backend); f != nil {
		pids[0], _ = strconv.Atoi(f[1]) // the parent
	}
	if kafka, err := strconv.Atoi(os.Getenv("QM_KAFKA_PID")); err == nil {
		pids = append(pids, kafka)
	}
	return pids
}

// statOf returns the fields of /proc/PID/stat from the state on, nil where there
// is none: proc_pid_stat(5), whose field 3 is the first here.
func statOf(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name of the program, in brackets, may hold anything.
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// cpuOf returns how long each process and its children, those included that have
// ended, have computed. A machine that does other things besides makes everything
// slow, but not this.
func cpuOf(pids ...int) []time.Duration {
	out := make([]time.Duration, len(pids))
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return out
	}
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(path))
		f := statOf(pid)
		if err != nil || len(f) < 15 {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		for i, of := range pids {
			if of == 0 || pid != of && parent != of {
				continue
			}
			for _, ticks := range f[11:15] { // utime, stime, cutime, cstime
				n, _ := strconv.ParseInt(ticks, 10, 64)
				out[i] += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return out
}

// kilobytes returns a line of /proc/PID/status, 0 where there is none.
func kilobytes(pid int, name string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
