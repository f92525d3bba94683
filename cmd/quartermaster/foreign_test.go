package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// foreign is another program that writes to our topics.
type foreign struct {
	t  *testing.T
	cl *kgo.Client
	tp domain.TopicPartition
	n  uint64
}

// newForeign returns one that writes in transactions, to the partition of a cluster.
func newForeign(t *testing.T, brokers ...string) *foreign {
	t.Helper()
	cl, err := foreignClient(brokers...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &foreign{t: t, cl: cl}
}

// foreignClient returns a producer of transactions. One of the same name that was there
// before is ended, and what it left open is aborted.
func foreignClient(brokers ...string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.TransactionTimeout(10*time.Minute), kgo.SeedBrokers(brokers...), kgo.TransactionalID("foreign"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(128<<20), kgo.BrokerMaxWriteBytes(256<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
}

// foreignRecord is a record as another client writes it.
func foreignRecord(rec *domain.Record) *kgo.Record {
	k := &kgo.Record{
		Topic: string(rec.Topic), Partition: int32(domain.PartitionOf(rec.Key, rec.Topic.Partitions())), Key: rec.Key, Value: rec.Value,
	}
	for _, h := range rec.Headers {
		k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return k
}

// transaction writes events, each of which is a job of cluster c1, and ends them so.
func (f *foreign) transaction(how kgo.TransactionEndTry, jobs int, values ...[]byte) {
	f.t.Helper()
	if err := f.cl.BeginTransaction(); err != nil {
		f.t.Fatal(err)
	}
	f.produce(f.jobs(jobs), values...)
	if err := f.cl.EndTransaction(f.t.Context(), how); err != nil {
		f.t.Fatal(err)
	}
}

// jobs returns the next events.
func (f *foreign) jobs(n int) (jobs []domain.Record) {
	f.t.Helper()
	for range n {
		f.n++
		rec, err := wire.Encode(&domain.Envelope{
			Source: "foreign", Incarnation: 1, Sequence: f.n, Time: domain.InstantOf(time.Now()), Workspace: "lab", Cluster: "c1", Subject: "c1/j",
			Event: &domain.JobQueued{Job: "j", Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}},
		})
		if err != nil {
			f.t.Fatal(err)
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		f.tp = domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}
		jobs = append(jobs, rec)
	}
	return jobs
}

// produce writes events and then these values.
func (f *foreign) produce(jobs []domain.Record, values ...[]byte) {
	f.t.Helper()
	var recs []*kgo.Record
	for i := range jobs {
		recs = append(recs, foreignRecord(&jobs[i]))
	}
	for _, v := range values {
		recs = append(recs, &kgo.Record{Topic: string(f.tp.Topic), Partition: int32(f.tp.Partition), Value: v})
	}
	if err := f.cl.ProduceSync(f.t.Context(), recs...).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
}

// writes does what stopped everything once: a transaction that commits, one that is
// aborted, a batch that unpacks to 65 MiB, and after it an event as usual.
func (f *foreign) writes() {
	f.transaction(kgo.TryCommit, 2)
	f.transaction(kgo.TryAbort, 3)
	f.transaction(kgo.TryCommit, 0, make([]byte, 65<<20))
	f.transaction(kgo.TryCommit, 1)
}

// leftBy returns the entries of quarantine that writes made.
func leftBy(t *testing.T, out string) (reasons []string, events int) {
	t.Helper()
	var list struct {
		Entries []struct {
			ID, Reason   string
			Offset, Last int64
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range list.Entries {
		if strings.Contains(e.Reason, "aborted") || strings.Contains(e.Reason, "unpacks") {
			reasons = append(reasons, e.Reason)
			events += int(max(0, e.Last-e.Offset)) + 1
		}
	}
	return reasons, events
}

// settled waits until quarantine holds what writes left there, and that all of the
// log is folded.
func settled(t *testing.T, command func(args ...string) (int, string)) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
		code, out := command("quarantine", "list", "-o", "json", "--quiet")
		if code != 0 {
			t.Fatal(out)
		}
		if reasons, events := leftBy(t, out); events == 4 {
			if n := len(reasons); reasons[n-1] != "the batch unpacks to more than 64 MiB" {
				t.Errorf("reasons %q", reasons)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("quarantine holds %s", out)
		}
	}
	if code, out := command("log", "replay", "--verify"); code != 0 || strings.Contains(out, "not folded") {
		t.Fatalf("exit %d: %s", code, out)
	}
}

// Writes of another program stop nothing: markers of transactions are stepped over,
// what was aborted or is too large is set aside, and what follows is folded.
func TestProductionForeignWrites(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(60)
	a := s.serve("a")
	a.says(1, "caught up")
	f := newForeign(t, fmt.Sprint("127.0.0.1:", s.port))
	f.writes()
	settled(t, s.command)
	if code, out := s.command("jobs", "--from", "2026-01-01", "--to", "2027-01-01", "-o", "json"); code != 5 || !strings.Contains(out, `"incomplete": 4`) {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := s.command("quarantine", "list", "-o", "wide"); code != 0 || !strings.Contains(out, ", 3 events: the records are of a transaction that its producer aborted") {
		t.Errorf("exit %d: %s", code, out)
	}
	a.becomes("/readyz", http.StatusOK, "ok")
	a.ends()
}

// The same on the Kafka and the instances of deploy/dev/integration.sh.
func TestForeignWritesWhileServing(t *testing.T) {
	config, brokers := os.Getenv("QM_SERVING_CONFIG"), os.Getenv("QM_KAFKA_BROKERS")
	if config == "" {
		t.Skip("QM_SERVING_CONFIG names no configuration that instances serve")
	}
	newForeign(t, strings.Split(brokers, ",")...).writes()
	settled(t, func(args ...string) (int, string) {
		var out strings.Builder
		code := run(append(args, "--config", config, "--data-dir", t.TempDir()), strings.NewReader(""), &out, &out)
		return code, out.String()
	})
}

// A partition whose records are gone stops alone, and everything says so alike.
func TestProductionTrimmed(t *testing.T) {
	s := newSite(t)
	s.start()
	s.fill(120)
	l := s.log()
	_, end, err := l.AllBounds(t.Context(), domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	var tp domain.TopicPartition
	for at, n := range end {
		if n > end[tp] {
			tp = at
		}
	}
	upto := kadm.Offsets{}
	upto.AddOffset(string(tp.Topic), int32(tp.Partition), 2, -1)
	if res, err := s.admin().DeleteRecords(t.Context(), upto); err != nil || res.Error() != nil {
		t.Fatal(err, res.Error())
	}
	sentence := "log is trimmed: " + tp.String() + " lacks records before offset 2"
	a := s.serve("a")
	a.says(1, "caught up")
	a.says(1, sentence)
	a.becomes("/readyz", http.StatusServiceUnavailable, tp.String()+" of generation a stands still at offset 0: ")
	if _, body := a.get("/readyz"); !strings.Contains(body, sentence+"; "+kafka.Anew) {
		t.Errorf("/readyz says %s", body)
	}
	if _, metrics := a.get("/metrics"); !strings.Contains(metrics, "quartermaster_partition_stopped{generation=\"a\",kind=\"trimmed\",partition=\""+strings.TrimPrefix(tp.String(), string(tp.Topic)+"/")+"\",reason=\"") {
		t.Error("the metrics name no partition that stands still")
	}
	if code, body := a.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	// All others are folded.
	var status app.GenerationsStatus
	code, out := s.command("generation", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil {
		t.Fatal(code, err, out)
	}
	for _, p := range status.Generations[0].Partitions {
		at := domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		switch {
		case at == tp && (p.Next != 0 || p.Stopped == nil || !strings.Contains(p.Stopped.Reason, sentence) || p.Stopped.Advice != kafka.Anew):
			t.Errorf("%s stands at %d: %v", at, p.Next, p.Stopped)
		case at != tp && (*p.Lag != 0 || p.Stopped != nil):
			t.Errorf("%s lags %d: %v", at, *p.Lag, p.Stopped)
		}
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"generation", "status"}, 0}, {[]string{"config", "check"}, 1}, {[]string{"fleet"}, 5}, {[]string{"log", "stats"}, 5},
		{[]string{"log", "replay"}, 1}, {[]string{"log", "export", "--topic", string(tp.Topic)}, 1},
	} {
		if code, out := s.command(c.args...); code != c.code || !strings.Contains(out, sentence) || !strings.Contains(strings.Join(strings.Fields(out), " "), kafka.Anew) {
			t.Errorf("%v: exit %d: %s", c.args, code, out)
		}
	}
	a.ends()
}
