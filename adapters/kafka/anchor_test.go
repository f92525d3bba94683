package kafka

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka/freeport"
	"quartermaster/domain"
)

// anchorAt returns the anchor of the record at an offset.
func anchorAt(t testing.TB, l *Log, tp domain.TopicPartition, offset int64) (a domain.Anchor) {
	t.Helper()
	if err := l.Read(t.Context(), tp, offset, offset+1, func(recs []domain.Record) error {
		a = recs[0].Anchor()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// A reader that resumes passes the last folded record, and the log must have that record.
func TestResumeAfterARecord(t *testing.T) {
	l := openAny(t)
	l.cfg.Patience = 200 * time.Millisecond
	tp := fill50(t, l, 1)
	last := anchorAt(t, l, tp, 29)
	got := 0
	if err := l.ReadAfter(t.Context(), tp, last, 30, 50, func(recs []domain.Record) error { got += len(recs); return nil }); err != nil || got != 20 {
		t.Fatalf("read %d records after one that is there: %v", got, err)
	}
	other := last
	other.Hash[0] ^= 1
	elected := last
	elected.Epoch += 5
	beyond := last
	beyond.Offset = 60
	for name, c := range map[string]struct {
		last domain.Anchor
		from int64
		end  int64
	}{
		"OtherRecord": {other, 30, -1}, "OtherEpoch": {elected, 30, -1}, "Shorter": {beyond, 61, 50}, "ShorterByOne": {anchorOf(last, 50), 51, 50},
	} {
		err := l.FollowAfter(t.Context(), tp, c.last, c.from, func([]domain.Record) error { t.Errorf("%s: records are handed out", name); return nil })
		var d *DivergedError
		if !errors.Is(err, ErrDiverged) || !errors.As(err, &d) || d.Position != c.from || d.Folded != c.last || d.End != c.end || d.Partition != tp {
			t.Errorf("%s: %v", name, err)
		}
		if c.end < 0 && d != nil && d.Found != last && !d.Found.IsZero() {
			t.Errorf("%s: found is %s, want %s", name, d.Found, last)
		}
	}
}

func anchorOf(a domain.Anchor, offset int64) domain.Anchor {
	a.Offset = offset
	return a
}

// TestLostTail kills a broker of Apache Kafka, truncates the end of a log segment, as a power cut
// does with unflushed data, and appends other records at its offsets.
func TestLostTail(t *testing.T) {
	script := os.Getenv("QM_KAFKA_SH")
	if script == "" {
		t.Skip("QM_KAFKA_SH names no deploy/dev/kafka.sh to start a broker with")
	}
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	dir, port := filepath.Join(t.TempDir(), "kafka"), freeport.Row(t, 2)
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command(script, command, "--dir", dir, "--port", strconv.Itoa(port), "--heap", "256m").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() { run("clean") })
	run("start")
	l := open(t, Config{Brokers: []string{"127.0.0.1:" + strconv.Itoa(port)}})
	tp := domain.TopicPartition{Topic: newTopic(t, l, 1)}
	add := func(from, n int) {
		t.Helper()
		for i := from; i < from+n; i++ { // one batch each
			if err := l.Append(t.Context(), numbered(tp, i, i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, 200)
	last := anchorAt(t, l, tp, 199)
	following, waits := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		following <- l.FollowAfter(t.Context(), tp, last, 200, func([]domain.Record) error {
			select {
			case waits <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	<-waits

	run("kill")
	found, err := filepath.Glob(filepath.Join(dir, "*", string(tp.Topic)+"-0", "00000000000000000000.log"))
	if more, _ := filepath.Glob(filepath.Join(dir, "*", "*", string(tp.Topic)+"-0", "00000000000000000000.log")); len(found) == 0 {
		found = more
	}
	if err != nil || len(found) != 1 {
		t.Fatalf("segments of %s: %q, %v", tp, found, err)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(found[0], info.Size()/2); err != nil {
		t.Fatal(err)
	}
	run("start")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// A reader that was connected before finds out when it reconnects.
	select {
	case err = <-following:
	case <-ctx.Done():
		t.Fatal("a reader goes on over a log that lost its end")
	}
	var d *DivergedError
	if !errors.As(err, &d) || d.Position != 200 {
		t.Fatalf("the reader ended with %v", err)
	}
	t.Log(err)
	_, end, err := l.Bounds(ctx, tp)
	if err != nil || end == 0 || end >= 200 {
		t.Fatalf("the log ends at %d: %v", end, err)
	}
	fresh := open(t, Config{Brokers: []string{"127.0.0.1:" + strconv.Itoa(port)}})
	var recs []domain.Record
	for i := int(end); i < 300; i++ {
		recs = append(recs, domain.Record{Topic: tp.Topic, Key: []byte("k"), Value: []byte("other " + strconv.Itoa(i))})
	}
	if err := fresh.Append(ctx, recs); err != nil {
		t.Fatal(err)
	}
	err = fresh.FollowAfter(ctx, tp, last, 200, func([]domain.Record) error { t.Error("records of another log are handed out"); return nil })
	if !errors.As(err, &d) || d.Since != end || d.Found.IsZero() || d.Found.Hash == last.Hash || !strings.Contains(err.Error(), "diverged") {
		t.Errorf("after the offsets were filled: %v, want one since %d", err, end)
	}
	t.Log(err)
}
