package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
)

// A tidier is a process of the campaign that runs one command: archive run, parts make or
// retention run, which trims the log and detaches hours. The test binary runs itself again
// under this name.
const tidierName = "crash-tidier"

const tidierVariable = "QM_CRASH_TIDIER"

func init() {
	if filepath.Base(os.Args[0]) == tidierName {
		var args []string
		if err := json.Unmarshal([]byte(os.Getenv(tidierVariable)), &args); err != nil {
			panic(err)
		}
		os.Exit(run(args, strings.NewReader(""), os.Stdout, os.Stderr))
	}
}

// tidiers are the commands that are killed.
var tidiers = [][]string{{"archive", "run"}, {"parts", "make"}, {"retention", "run"}}

// tidyPolicy lets go of everything that is archived, and of hours whose month is sealed. The records
// of the campaign are months older than the clock.
const tidyPolicy = `apiVersion: quartermaster/v1
kind: Estate
workspace: platform
effective_from: 2026-01-01
policies:
  - {id: log, kind: retention, scope: log, value: 1 day}
  - {id: hours, kind: retention, scope: hours, value: 1 month}
`

// The defects of the negative controls of tidy.
const (
	controlPart    = "a part that was damaged"
	controlSegment = "a segment of the archive that is gone"
	controlDetach  = "hours that left without a part"
	controlTrim    = "a trim of what is not archived"
)

// tidier runs one command, and kills it after a while. With whole it runs to its end, and must succeed.
func (c *campaign) tidier(ctx context.Context, rows *rowsOf, whole bool, args ...string) {
	self, err := os.Executable()
	if err != nil {
		c.t.Error(err)
		return
	}
	all, err := json.Marshal(append(args, "--config", rows.config, "--data-dir", filepath.Join(c.dir, "home"), "--quiet"))
	if err != nil {
		c.t.Error(err)
		return
	}
	name := strings.Join(args, " ")
	var said bytes.Buffer
	cmd := &exec.Cmd{
		Path: self, Args: []string{tidierName}, Env: append(os.Environ(), tidierVariable+"="+string(all), "GOMAXPROCS=2"),
		Stdout: &said, Stderr: &said, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	after := 3 * time.Minute
	if !whole {
		// From the moment that it starts to some after most have ended.
		after = c.draw(1500 * time.Millisecond)
	}
	select {
	case <-ended:
	case <-time.After(after):
		_ = cmd.Process.Kill()
		<-ended
	}
	switch status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case status.Signaled() && !whole:
		c.count(func(r *crashRun) { r.TidyKills[name]++ })
	case whole && cmd.ProcessState.ExitCode() != 0:
		c.t.Errorf("%s: %s\n%s", name, cmd.ProcessState, said.String())
	case cmd.ProcessState.ExitCode() != 0:
		// Another one has the lock, rows lag behind, a month changed or is being read: all are tried
		// again. A defect would stay, and the last run finds it.
		c.count(func(r *crashRun) { r.TidyRefused++ })
	default:
		c.count(func(r *crashRun) { r.TidyRuns++ })
	}
}

// tidy archives the log, makes parts of sealed months, trims the log and detaches hours, and kills
// whoever does it, while rivals fold and are killed. Rows in the database and in parts together are those
// of the log, and the archive with what the log still holds is the log. The reference read each record
// before it could be trimmed. Defects that are put in on purpose must be found.
func (c *campaign) tidy(ctx context.Context, rows *rowsOf, generation string) {
	t := c.t
	var wg sync.WaitGroup
	defer wg.Wait()
	running, stopRivals := context.WithCancel(ctx)
	defer stopRivals()
	command := func(args ...string) (code int, out string) {
		var all strings.Builder
		code = run(append(args, "--config", rows.config, "--data-dir", filepath.Join(c.dir, "home")), strings.NewReader(""), &all, &all)
		return code, all.String()
	}
	must := func(args ...string) {
		t.Helper()
		if code, out := command(args...); code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, out)
		}
	}
	steps := func(n int) {
		for range n {
			if err := c.work.step(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 3 {
		wg.Go(func() { c.keep(running, rows, fmt.Sprintf("tidy-%d", i+1), "", false) })
	}
	if generation != firstGeneration { // which diverged from the log
		must("generation", "drop", firstGeneration, "--force")
	}
	policy := filepath.Join(c.dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(tidyPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	must("apply", "-f", policy)
	// Two months pass, so that what was reported is of sealed ones. Late records of them still come.
	c.work.at += 62 * domain.Day
	steps(20)
	ref := newReference()
	check := func() bool {
		// The reference reads first, up to the end, so that only what it has read is trimmed later.
		d, at, err := compareNow(ctx, rows, generation, c.brokers, ref)
		if err != nil {
			t.Errorf("compare: %v", err)
			return false
		}
		c.count(func(r *crashRun) {
			r.Comparisons++
			r.Lost, r.Doubled, r.Different, r.Unfenced = r.Lost+len(d.Lost), r.Doubled+len(d.Extra), r.Different+len(d.Changed), r.Unfenced+len(d.Trace)
		})
		if d.any() {
			t.Errorf("tidied rows are not those of the log at %s:\n%s", at, d)
		}
		return !d.any()
	}
	killed := func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range c.run.TidyKills {
			n += k
		}
		return n
	}
	for round := 0; killed() < c.plan.Tidied && ctx.Err() == nil && !t.Failed(); round++ {
		// What is in the log now is read before any of it may be trimmed.
		c.await(ctx, rows, generation)
		if !check() {
			return
		}
		if round%5 == 4 { // one that nobody disturbs
			c.tidier(ctx, rows, true, tidiers[round/5%len(tidiers)]...)
		} else {
			var both sync.WaitGroup
			for _, which := range []int{round, c.pick(len(tidiers))} { // two at once, which may be the same
				both.Go(func() { c.tidier(ctx, rows, false, tidiers[which%len(tidiers)]...) })
			}
			both.Wait()
		}
		steps(1 + c.pick(3))
	}
	// Whatever was left half done is finished.
	for range 2 {
		c.await(ctx, rows, generation)
		if t.Failed() || !check() {
			return
		}
		for _, args := range tidiers {
			c.tidier(ctx, rows, true, args...)
		}
	}
	steps(2)
	c.await(ctx, rows, generation)
	if t.Failed() || !check() {
		return
	}
	first, end, err := c.log.BrokerBounds(ctx, domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	var detached int
	if err := rows.db.QueryRowContext(ctx, `select count(*) from quartermaster.detached_months where generation = $1`, generation).Scan(&detached); err != nil {
		t.Fatal(err)
	}
	c.count(func(r *crashRun) { r.Trimmed, r.Detached = first.Records(), detached })
	if first.Records() == 0 || detached == 0 {
		t.Errorf("%d records were trimmed of %d, and the hours of %d months and partitions detached", first.Records(), end.Records(), detached)
	}
	must("archive", "verify")
	must("parts", "make") // of what came last
	must("parts", "verify")
	if code, out := command("log", "replay", "--verify"); code != 0 || strings.Contains(out, "not folded") {
		t.Errorf("exit %d: %s", code, out)
	}
	stopRivals()
	wg.Wait()
	c.say("%d records were trimmed, %d months and partitions detached, %v killed, %d whole, %d refused", c.run.Trimmed, detached, c.run.TidyKills, c.run.TidyRuns, c.run.TidyRefused)
	if !t.Failed() {
		c.tidyControls(ctx, rows, generation, command, ref)
	}
}

// tidyControls puts defects in, and looks whether they are found.
func (c *campaign) tidyControls(ctx context.Context, rows *rowsOf, generation string, command func(...string) (int, string), ref *reference) {
	t := c.t
	caught := func(defect, how string) {
		how = strings.ReplaceAll(how, c.dir, "…")
		how, _, _ = strings.Cut(how, ": rows that were")
		c.say("control %q is caught: %s", defect, how)
		c.count(func(r *crashRun) { r.Controls[defect] = how })
	}
	// refused is what a command says of a defect, "" if it finds nothing.
	refused := func(args ...string) string {
		code, out := command(args...)
		if code == 0 {
			return ""
		}
		line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
		return strings.Join(args, " ") + ": " + line
	}
	file := func(root, suffix string) string {
		var found []string
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, suffix) {
				found = append(found, path)
			}
			return err
		}); err != nil || len(found) == 0 {
			t.Fatalf("no %s in %s: %v", suffix, root, err)
		}
		return found[c.pick(len(found))]
	}
	// A part.
	var sum []byte
	if err := rows.db.QueryRowContext(ctx, `
		select sha256 from quartermaster.detached_months where generation = $1 and rows > 0 order by month, partition limit 1`, generation).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	part := file(rows.parts(), fmt.Sprintf("%x.parquet", sum))
	text, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(c.run.Seed, 7))
	damaged := slices.Clone(text)
	damaged[rng.IntN(len(text))] ^= 1 << rng.IntN(8)
	if err := os.WriteFile(part, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if how := refused("parts", "verify"); how == "" {
		t.Errorf("control %q is not caught", controlPart)
	} else {
		caught(controlPart, how)
	}
	if err := os.WriteFile(part, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if how := refused("parts", "verify"); how != "" {
		t.Errorf("the part is as it was: %s", how)
	}
	// Hours that nobody has: the comparison finds them.
	if _, err := rows.db.ExecContext(ctx, `
		create table crash.left_months as select * from quartermaster.detached_months where generation = '`+generation+`';
		delete from quartermaster.detached_months where generation = '`+generation+`'`); err != nil {
		t.Fatal(err)
	}
	if d, _, err := compareNow(ctx, rows, generation, c.brokers, ref); err != nil || len(d.Lost) == 0 {
		t.Errorf("control %q is not caught: %v", controlDetach, err)
	} else {
		caught(controlDetach, fmt.Sprintf("%d rows lost", len(d.Lost)))
	}
	if _, err := rows.db.ExecContext(ctx, `insert into quartermaster.detached_months select * from crash.left_months`); err != nil {
		t.Fatal(err)
	}
	// A segment.
	segment := file(rows.archive(), ".zst")
	if err := os.Rename(segment, segment+".gone"); err != nil {
		t.Fatal(err)
	}
	if how := refused("archive", "verify"); how == "" {
		t.Errorf("control %q is not caught", controlSegment)
	} else {
		caught(controlSegment, how)
	}
	if err := os.Rename(segment+".gone", segment); err != nil {
		t.Fatal(err)
	}
	if how := refused("archive", "verify"); how != "" {
		t.Errorf("the segment is as it was: %s", how)
	}
	// Records that nothing has archived, trimmed by another program. Nothing repairs that.
	for range 20 {
		if err := c.work.step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	_, end, err := c.log.BrokerBounds(ctx, domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.trim(ctx, domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: longest(end)}, end); err != nil {
		t.Fatal(err)
	}
	if how := refused("log", "replay", "--verify"); how == "" {
		t.Errorf("control %q is not caught", controlTrim)
	} else {
		caught(controlTrim, how)
	}
	// The comparison itself needs the records that it has not read.
	bound, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := ref.read(bound, c.brokers, end); err == nil {
		t.Errorf("control %q: the reference read records that are gone", controlTrim)
	}
}

// longest returns the partition of telemetry with the most records.
func longest(end domain.Position) (n int) {
	for tp, at := range end {
		if tp.Topic == domain.TopicTelemetry && at > end[domain.TopicPartition{Topic: tp.Topic, Partition: n}] {
			n = tp.Partition
		}
	}
	return n
}

// trim deletes the records of a partition as any program may.
func (c *campaign) trim(ctx context.Context, tp domain.TopicPartition, end domain.Position) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(string(tp.Topic), int32(tp.Partition), end[tp], -1)
	answers, err := kadm.NewClient(client).DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	return answers.Error()
}

func (r *rowsOf) parts() string   { return strings.TrimSuffix(r.config, ".yaml") + "-parts" }
func (r *rowsOf) archive() string { return strings.TrimSuffix(r.config, ".yaml") + "-archive" }

// detachedParts returns the parts of the months that are not in the database, and where they are read.
func (c *comparer) detachedParts(ctx context.Context) (list []projections.PartDigest, err error) {
	rows, err := c.tx.QueryContext(ctx, `
		select topic, partition, month, rows, sha256 from quartermaster.detached_months where generation = $1`, c.generation)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var p projections.PartDigest
		var sum sql.RawBytes
		if err := rows.Scan(&p.Partition.Topic, &p.Partition.Partition, &p.Month, &p.Rows, &sum); err != nil {
			return nil, err
		}
		copy(p.Digest[:], sum)
		list = append(list, p)
	}
	return list, rows.Err()
}

// left calls yield with the rows of a table that are in parts and not in the database.
func (c *comparer) left(list []projections.PartDigest, table string, met map[rowName]bool, yield func(rowName, []byte) error) error {
	of, ok := projections.TableNamed(table)
	if !ok || len(list) == 0 || !of.Timed() {
		return nil
	}
	logs, err := filepath.Glob(filepath.Join(c.parts, "*"))
	if err != nil || len(logs) == 0 {
		return fmt.Errorf("no parts in %s: %w", c.parts, err)
	}
	source := parts.NewSource(parts.Directory{Path: logs[0], Log: filepath.Base(logs[0])})
	defer source.Close()
	for _, p := range list {
		if p.Partition.Topic != of.Topic() {
			continue
		}
		err := source.Scan(p, projections.Query{Table: of}, func(k projections.Key, b []byte) error {
			name := rowName{table, k.Scope, k.ID, k.Hour}
			if k.Table != of || met[name] {
				return nil // late facts brought it back
			}
			_, raw, err := projections.SplitRow(b)
			if err != nil {
				return err
			}
			return yield(name, raw)
		})
		if err != nil {
			return fmt.Errorf("part %s: %w", p.PartKey, err)
		}
	}
	return nil
}
