package archive

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// The test binary runs itself as the process that is killed.
func TestMain(m *testing.M) {
	if home := os.Getenv("ARCHIVE_TEST_HOME"); home != "" {
		if err := archiveAndTrim(home); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// archiveAndTrim archives the embedded log in home and trims what it confirmed, once.
func archiveAndTrim(home string) error {
	ctx := context.Background()
	l, b, err := openHome(ctx, home)
	if err != nil {
		return err
	}
	defer b.Close()
	defer l.Close()
	tps := []domain.TopicPartition{fleet}
	for range 50 {
		firsts, nexts, err := l.BrokerBounds(ctx, tps)
		if err != nil {
			return err
		}
		a := l.Archive.(*Archive)
		if err := a.Seal(ctx, l, fleet, firsts[fleet], nexts[fleet], Policy{Bytes: 3000}, nil); err != nil {
			return err
		}
		end, err := a.Confirm(ctx, l, fleet, firsts[fleet], nexts[fleet])
		if err != nil {
			return err
		}
		if _, err := l.DeleteRecords(ctx, fleet, end); err != nil {
			return err
		}
		var recs []domain.Record
		for i := range 100 {
			recs = append(recs, domain.Record{
				Topic: fleet.Topic, Partition: fleet.Partition, Time: domain.Second,
				Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", nexts[fleet]+int64(i)),
			})
		}
		if err := l.Append(ctx, recs); err != nil {
			return err
		}
	}
	return nil
}

// openHome opens the embedded log in home with its archive.
func openHome(ctx context.Context, home string) (*kafka.Log, *embedded.Broker, error) {
	b, err := embedded.Open(ctx, embedded.Config{Dir: filepath.Join(home, "log"), SegmentBytes: 4 << 10})
	if err != nil {
		return nil, nil, err
	}
	l, err := kafka.Open(ctx, kafka.Config{Dial: b.Dial})
	if err != nil {
		return nil, nil, err
	}
	if err := l.EnsureTopics(ctx, []domain.TopicSpec{{Topic: fleet.Topic, Partitions: 4}}); err != nil {
		return nil, nil, err
	}
	id, err := l.ID(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.Archive = New(Directory(filepath.Join(home, "archive")), Log{ID: id})
	return l, b, nil
}

// TestKill kills a process that appends, archives and trims, at random moments. After each kill the
// archive is whole, and archive and log together have every record.
func TestKill(t *testing.T) {
	home := t.TempDir()
	kills := long.Count(8, 200)
	rng := rand.New(rand.NewPCG(1, 2))
	trimmed, kill := int64(0), 0
	// On a busy machine the process may be killed before it trims, so it gets more and longer lives then.
	for ; kill < kills || trimmed == 0 && kill < 10*kills; kill++ {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "ARCHIVE_TEST_HOME="+home)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		life := 30 + rng.IntN(300*(1+kill/kills))
		time.AfterFunc(time.Duration(life)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed, or done
		if out.Len() > 0 {
			t.Fatalf("kill %d: %s", kill, &out)
		}
		l, b, err := openHome(t.Context(), home)
		if err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		firsts, nexts, err := l.BrokerBounds(t.Context(), []domain.TopicPartition{fleet})
		if err != nil {
			t.Fatal(err)
		}
		trimmed = firsts[fleet]
		n := int64(0)
		if err := l.Read(t.Context(), fleet, 0, nexts[fleet], func(recs []domain.Record) error {
			for i := range recs {
				if want := fmt.Sprint("value ", n); recs[i].Offset != n || string(recs[i].Value) != want {
					t.Fatalf("kill %d: offset %d has %q, want %q", kill, recs[i].Offset, recs[i].Value, want)
				}
				n++
			}
			return nil
		}); err != nil {
			t.Fatalf("kill %d: %v", kill, err)
		}
		if v := verify(t, l.Archive.(*Archive)); len(v.Faults) > 0 || v.Records < trimmed {
			t.Fatalf("kill %d: trimmed to %d: %+v", kill, trimmed, v)
		}
		l.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if trimmed == 0 {
		t.Error("nothing was trimmed")
	}
	t.Logf("%d kills, trimmed to %d", kill, trimmed)
}
