package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/kafka"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// newKafkaSite is a site with an Apache Kafka of its own.
func newKafkaSite(t *testing.T) *site {
	t.Helper()
	script := os.Getenv("QM_KAFKA_SH")
	if script == "" {
		t.Skip("QM_KAFKA_SH names no deploy/dev/kafka.sh to start a broker with")
	}
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.script, s.data = script, filepath.Join(t.TempDir(), "kafka")
	t.Cleanup(func() { s.kafka("clean") })
	return s
}

// kafka runs a command on the Apache Kafka of the site.
func (s *site) kafka(command string) {
	s.t.Helper()
	if out, err := exec.Command(s.script, command, "--dir", s.data, "--port", strconv.Itoa(s.port), "--heap", "256m").CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// longest returns the partition that holds most records, and where it ends.
func (s *site) longest() (tp domain.TopicPartition, next int64) {
	s.t.Helper()
	_, end, err := s.log().AllBounds(s.t.Context(), domain.AllPartitions())
	if err != nil {
		s.t.Fatal(err)
	}
	for at, n := range end {
		if n > end[tp] {
			tp = at
		}
	}
	return tp, end[tp]
}

// trim deletes the records of a partition before an offset.
func (s *site) trim(tp domain.TopicPartition, before int64) {
	s.t.Helper()
	upto := kadm.Offsets{}
	upto.AddOffset(string(tp.Topic), int32(tp.Partition), before, -1)
	if res, err := s.admin().DeleteRecords(s.t.Context(), upto); err != nil || res.Error() != nil {
		s.t.Fatal(err, res.Error())
	}
}

// status is what "generation status" says.
func (s *site) status() (ans app.GenerationsStatus) {
	s.t.Helper()
	code, out := s.command("generation", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &ans); code != 0 || err != nil {
		s.t.Fatal(code, err, out)
	}
	return ans
}

// says fails unless a command ends so and says this.
func (s *site) says(code int, text string, args ...string) {
	s.t.Helper()
	if got, out := s.command(args...); got != code || !strings.Contains(out, text) {
		s.t.Errorf("%v: exit %d, want %d and %q:\n%s", args, got, code, text, out)
	}
}

// What keeps rows from following the log, or from being folded again, is said by whatever
// is asked: an open transaction, a trimmed log, one that lost its end.
func TestProductionLost(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"Fake": newSite, "Kafka": newKafkaSite} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.patience = 500 * time.Millisecond
			s.start()
			s.fill(120)
			a := s.serve("a")
			a.says(1, "caught up")
			s.fill(120)
			s.verified()
			a.becomes("/readyz", http.StatusOK, "ok")
			t.Run("OpenTransaction", func(t *testing.T) { openTransaction(t, s, a) })
			t.Run("Trimmed", func(t *testing.T) { a = trimmedPast(t, s, a) })
			a.ends()
			t.Run("Tail", func(t *testing.T) { lostTail(t, s) })
		})
	}
}

// A transaction that its producer does not end stops the partition behind it, and
// everything says so, until it ends.
func openTransaction(t *testing.T, s *site, a *running) {
	f := newForeign(t, fmt.Sprint("127.0.0.1:", s.port))
	if err := f.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	f.produce(f.jobs(1))
	if err := s.log().Append(t.Context(), f.jobs(5)); err != nil {
		t.Fatal(err)
	}
	_, next, err := s.log().Bounds(t.Context(), f.tp)
	if err != nil {
		t.Fatal(err)
	}
	sentence := fmt.Sprintf("a transaction is open since offset %d", next-6)
	a.says(1, sentence)
	a.becomes("/readyz", http.StatusServiceUnavailable, fmt.Sprintf("%s of generation a stands still at offset %d: ", f.tp, next-6))
	if _, metrics := a.get("/metrics"); !strings.Contains(metrics, sentence) {
		t.Error("the metrics do not name it")
	}
	s.says(0, sentence, "generation", "status")
	s.says(1, sentence, "config", "check")
	s.says(commandline.ExitIncomplete, sentence, "fleet")
	if err := f.cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	a.becomes("/readyz", http.StatusOK, "ok")
	s.verified()
	for _, p := range s.status().Generations[0].Partitions {
		if p.Stopped != nil {
			t.Errorf("%s/%d still %s", p.Topic, p.Partition, p.Stopped)
		}
	}
}

// A log that was trimmed before what is folded goes on, and everything says that the rows
// cannot be folded again.
func trimmedPast(t *testing.T, s *site, a *running) *running {
	tp, _ := s.longest()
	s.trim(tp, 5)
	sentence := "log is trimmed: " + tp.String() + " lacks records before offset 5"
	for range 2 {
		a.says(1, sentence)
		a.becomes("/readyz", http.StatusOK, "warning: "+sentence)
		if _, body := a.get("/readyz"); !strings.Contains(body, "cannot be folded again; "+kafka.Anew) {
			t.Errorf("/readyz says %s", body)
		}
		if _, metrics := a.get("/metrics"); !strings.Contains(metrics, fmt.Sprintf("quartermaster_log_trimmed_records{partition=\"%d\",topic=%q} 5", tp.Partition, tp.Topic)) {
			t.Error("the metrics do not name it")
		}
		s.says(0, sentence, "generation", "status")
		s.says(0, sentence, "streams", "list")
		s.says(0, sentence, "fleet")
		s.says(1, sentence, "config", "check")
		s.fill(10)
		a.ends()
		a = s.serve("a")
		a.says(1, "caught up")
	}
	if got := s.status().Trimmed; len(got) != 1 || got[0] != (app.TrimmedStatus{Topic: tp.Topic, Partition: tp.Partition, First: 5}) {
		t.Errorf("trimmed is %v", got)
	}
	return a
}

// A log that lost its end while nobody served is named by what asks, before and after
// other records took the offsets.
func lostTail(t *testing.T, s *site) {
	before := t.TempDir()
	if s.script == "" {
		s.broker.Close()
		if err := os.CopyFS(before, os.DirFS(s.data)); err != nil {
			t.Fatal(err)
		}
		s.start()
	}
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	a.ends()
	tp, _ := s.longest()
	if s.script == "" {
		s.broker.Close()
		s.data = before
	} else {
		s.kafka("kill")
		segment := filepath.Join(s.data, "broker-1", "data", fmt.Sprintf("%s-%d", tp.Topic, tp.Partition), "00000000000000000000.log")
		info, err := os.Stat(segment)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(segment, info.Size()-50); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	told := func() {
		t.Helper()
		s.says(0, "diverged: "+tp.String(), "generation", "status")
		s.says(1, "diverged: "+tp.String(), "config", "check")
		if _, out := s.command("config", "check"); strings.Contains(out, "are of this log") {
			t.Errorf("config check says of a log that lost records:\n%s", out)
		}
		g := s.status().Generations[0]
		if *g.Lag < 0 {
			t.Errorf("generation %s lags %d", g.Name, *g.Lag)
		}
		for _, p := range g.Partitions {
			if *p.Lag < 0 {
				t.Errorf("%s/%d lags %d", p.Topic, p.Partition, *p.Lag)
			}
			if p.Topic == tp.Topic && p.Partition == tp.Partition && (p.Stopped == nil || p.Stopped.Advice == "") {
				t.Errorf("%s/%d does not stand still", p.Topic, p.Partition)
			}
		}
	}
	told()
	b := s.serve("b")
	b.says(1, "error=\"fold "+tp.String())
	b.says(1, "diverged: "+tp.String())
	if s.script == "" { // Apache Kafka compares epochs, and so is certain at once
		b.says(1, "cannot continue reading a partition")
	}
	c := s.serve("c")
	for _, r := range []*running{c, b} { // one of them folds it, from now on or all along, and both name it
		r.becomes("/readyz", http.StatusServiceUnavailable, "diverged: "+tp.String())
	}
	c.ends()
	b.ends()
	b.mu.Lock()
	if said := b.lines.String(); strings.Contains(said, "does not answer") {
		t.Errorf("it says of a log that lost records:\n%s", said)
	}
	b.mu.Unlock()
	s.fill(600)
	told()
}
