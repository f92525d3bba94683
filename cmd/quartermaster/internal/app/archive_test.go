package app_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/witness/witnesstest"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/projections"
)

// observed returns n events, one for each hour.
func observed(from, n int) (envs []domain.Envelope) {
	for i := from; i < from+n; i++ {
		at := apptest.May + domain.Instant(i)*domain.Hour
		envs = append(envs, domain.Envelope{
			Workspace: "research", Cluster: "lab", Time: at,
			Event: &domain.JobQueued{Job: fmt.Sprint("job-", i), Class: domain.ClassTraining},
		})
	}
	return envs
}

// TestTrimmedLogAnswersFromTheArchive archives a log in two runs, trims it within a segment, and asks
// the same questions again: of now, of the past, and of the whole log.
func TestTrimmedLogAnswersFromTheArchive(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	var notes strings.Builder
	a := &app.App{Dir: t.TempDir(), Brokers: cluster.ListenAddrs(), Tell: func(note string) { fmt.Fprintln(&notes, note) }}
	c := a.For(app.Everyone)
	fill := func(from, n int) {
		t.Helper()
		h, err := a.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		apptest.AppendEvents(t, h.Log, observed(from, n)...)
		if err := h.Shut(); err != nil {
			t.Fatal(err)
		}
	}
	seal := func(all bool) *app.Archived {
		t.Helper()
		ans, err := c.Archive(t.Context(), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		return ans
	}
	replayed := func() *app.Replay {
		t.Helper()
		ans, err := c.Replay(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return ans
	}
	asOf := func(at app.At) (string, string) {
		t.Helper()
		s, err := c.LogStats(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return s.Position, fmt.Sprintf("%+v", *s)
	}
	export := func() (text string) {
		t.Helper()
		if _, err := c.Tail(t.Context(), app.Newest{Lines: app.MaxTail}, false, func(r app.Record) error {
			text += fmt.Sprint(r.Topic, r.Partition, r.Offset, r.Subject, r.Appended) + "\n"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}

	fill(0, 150)
	first := seal(true)
	if first.Segments != 1 || first.Records != 150 || first.Waiting != 0 || first.Archive == "" {
		t.Fatalf("%+v", first)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	fill(150, 150)
	if again := seal(true); again.Segments != 1 || again.Records != 150 || again.Archive != first.Archive {
		t.Fatalf("%+v", again)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	fill(300, 50)
	want, tail := replayed(), export()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	past := app.At((apptest.May + 100*domain.Hour).String())
	pastPosition, pastStats := asOf(past)

	h, err := a.OpenLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tp := domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte("lab"), domain.TopicTelemetry.Partitions())}
	// At the end of a segment, and within one, which no command does.
	for _, at := range []int64{150, 225} {
		if _, err := h.Log.DeleteRecords(t.Context(), tp, at); err != nil {
			t.Fatal(err)
		}
		status, err := c.ArchiveStatus(t.Context())
		if err != nil || status.Records != 300 || status.Waiting != 50 || status.Segments != 2 {
			t.Fatalf("%+v: %v", status, err)
		}
		if got := replayed(); got.ReplayDigest != want.ReplayDigest || got.Events != 350 || got.Position != want.Position {
			t.Fatalf("trimmed, the log folds to %+v, want %+v", got, want)
		}
		if got := export(); got != tail {
			t.Fatalf("trimmed, the log has\n%s, want\n%s", got, tail)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if position, stats := asOf(past); position != pastPosition || stats != pastStats {
			t.Fatalf("trimmed, the past is at %s, want %s", position, pastPosition)
		}
		if ans, err := c.Replay(t.Context(), true); err != nil || !*ans.Equal {
			t.Fatalf("trimmed, the live rows differ: %+v: %v", ans, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(notes.String(), "trimmed") {
		t.Fatalf("a log that is archived counts as trimmed: %s", notes.String())
	}
	check, err := c.VerifyArchive(t.Context(), "", nil, nil)
	if err != nil || len(check.Faults) > 0 || check.Records != 300 || check.Segments != 2 {
		t.Fatalf("%+v: %v", check, err)
	}

	// A damaged segment is named.
	damaged := damageSegment(t, a.Dir, "*")
	if check, err = c.VerifyArchive(t.Context(), "", nil, nil); err != nil || len(check.Faults) != 1 ||
		!strings.Contains(damaged, check.Faults[0].Object) || check.Faults[0].Offset != 150 {
		t.Fatalf("%+v: %v", check, err)
	}
	if _, err = c.Replay(t.Context(), false); err == nil || !strings.Contains(app.Advised(err), "quartermaster archive verify") {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), h.Shut()); err != nil {
		t.Fatal(err)
	}
}

// TestArchiveSigned signs a checkpoint, removes the newest segment, and notices it.
func TestArchiveSigned(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, observed(0, 10)...)
	apptest.Close(t, h)
	key, err := keyfile.Create(filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := keyfile.LoadPublic(filepath.Join(dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	a := &app.App{Dir: dir}
	defer a.Close()
	c := a.For(app.Everyone)
	ans, err := c.Archive(t.Context(), true, key)
	if err != nil || ans.Checkpoint == nil || *ans.Checkpoint != 10 {
		t.Fatalf("%+v: %v", ans, err)
	}
	check, err := c.VerifyArchive(t.Context(), "", []ed25519.PublicKey{public}, nil)
	if err != nil || !check.Signed || check.CheckpointRecords != 10 || len(check.Faults) > 0 {
		t.Fatalf("%+v: %v", check, err)
	}

	// A witness cosigns it, once for a state of the archive.
	vkey, err := c.ArchiveKey(t.Context(), public)
	if err != nil {
		t.Fatal(err)
	}
	log, err := note.NewVerifier(vkey.Key)
	if err != nil {
		t.Fatal(err)
	}
	w := witnesstest.New(t, log)
	if check, err = c.VerifyArchive(t.Context(), "", []ed25519.PublicKey{public}, []string{w.Key}); err != nil || len(check.Faults) != 1 || check.Cosigned[0].Heads != 0 {
		t.Fatalf("not cosigned: %+v, %v", check, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	h, err = a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	noted := 0
	if err := h.View(t.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableCheckpoints}, func(projections.Key, projections.Row) error {
			noted++
			return nil
		})
	}); err != nil || noted != 1 {
		t.Errorf("the log has %d checkpoints: %v", noted, err)
	}
	a.Config = &config.Config{Archive: config.Archive{
		URL: ans.Location, SegmentMiB: 1, SealAfter: time.Hour, Witnesses: []string{w.Line()},
	}}
	for i, want := range []int{1, 0} {
		ans, err := h.Seal(t.Context(), true, key)
		if err != nil || len(ans.Witnesses) != want {
			t.Fatalf("%d: cosigned by %q: %v", i, ans.Witnesses, err)
		}
	}
	if a.Config = nil; h.Shut() != nil {
		t.Fatal("cannot close the log")
	}
	if size, requests := w.State(); size != 2 || requests != 1 {
		t.Errorf("the witness has %d heads after %d requests", size, requests)
	}
	jobs := domain.TopicPartition{Topic: domain.TopicTelemetry, Partition: domain.PartitionOf([]byte("lab"), domain.TopicTelemetry.Partitions())}
	proof, err := c.Prove(t.Context(), jobs.String()+"@7")
	if err != nil {
		t.Fatal(err)
	}
	var incomplete *app.IncompleteError
	if _, err := c.Prove(t.Context(), jobs.String()+"@10"); !errors.As(err, &incomplete) {
		t.Errorf("a record that there is not: %v", err)
	}
	witnessed, err := merkle.WitnessVerifier(w.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.Check(log, witnessed); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "qm.fleet/0", "qm.fleet/0@-1", "qm.fleet/9@0", "@1"} {
		if _, err := c.Prove(t.Context(), text); err == nil || errors.As(err, &incomplete) {
			t.Errorf("%q is a record: %v", text, err)
		}
	}
	if check, err = c.VerifyArchive(t.Context(), "", []ed25519.PublicKey{public}, []string{w.Key}); err != nil || len(check.Faults) > 0 ||
		check.Cosigned[0].Heads != 2 || check.Cosigned[0].At.IsZero() {
		t.Fatalf("%+v: %v", check, err)
	}
	if _, err := c.VerifyArchive(t.Context(), "", []ed25519.PublicKey{public}, []string{"x"}); err == nil {
		t.Error("a witness without a key is accepted")
	}

	files, err := filepath.Glob(filepath.Join(dir, "archive", "*", "manifests", "qm.telemetry", "*", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := errors.Join(os.Remove(files[0]), a.Close()); err != nil {
		t.Fatal(err)
	}
	if check, err = c.VerifyArchive(t.Context(), "", []ed25519.PublicKey{public}, nil); err != nil || len(check.Faults) == 0 {
		t.Fatalf("%+v: %v", check, err)
	}
}

// TestRestoreLog loses a log, and folds the new one to the same rows, also as of the past.
func TestRestoreLog(t *testing.T) {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, observed(0, 40)...)
	apptest.Close(t, h)
	lost := &app.App{Dir: dir}
	archived, err := lost.For(app.Everyone).Archive(t.Context(), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := lost.For(app.Everyone).Replay(t.Context(), false)
	if err := errors.Join(err, lost.Close()); err != nil {
		t.Fatal(err)
	}

	a := &app.App{Dir: filepath.Join(t.TempDir(), "new")}
	defer a.Close()
	c := a.For(app.Everyone)
	for range 2 { // the second has nothing to append, and compares everything
		ans, err := c.RestoreLog(t.Context(), archived.Location)
		if err != nil || ans.Records != 40 || ans.Position != want.Position || ans.Archive != archived.Archive || ans.Log == ans.Was {
			t.Fatalf("%+v: %v", ans, err)
		}
	}
	got, err := c.Replay(t.Context(), false)
	if err != nil || got.ReplayDigest != want.ReplayDigest || got.Position != want.Position {
		t.Fatalf("the new log folds to %+v, want %+v: %v", got, want, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}

	h, err = a.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apptest.AppendEvents(t, h.Log, observed(40, 1)...)
	apptest.Close(t, h)
	if _, err := c.RestoreLog(t.Context(), archived.Location); app.KindOf(err) != app.KindConflict {
		t.Fatalf("restored into a log that goes on: %v", err)
	}
	if _, err := lost.For(app.Everyone).RestoreLog(t.Context(), archived.Location); app.KindOf(err) != app.KindConflict {
		t.Fatalf("restored into the log itself: %v", err)
	}
	check, err := (&app.App{}).For(app.Everyone).VerifyArchive(t.Context(), archived.Location, nil, nil)
	if err != nil || check.Records != 40 || len(check.Faults) > 0 {
		t.Fatalf("without a log: %+v: %v", check, err)
	}
	if _, err := c.RestoreLog(t.Context(), t.TempDir()); app.KindOf(err) != app.KindNotFound {
		t.Fatalf("restored from nothing: %v", err)
	}
}

// damageSegment flips a bit in the second of the two archived segments of a topic, and returns its file.
func damageSegment(t *testing.T, dir, topic string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "archive", "*", "segments", topic, "*", "*.zst"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := errors.Join(os.Chmod(files[1], 0o600), os.WriteFile(files[1], text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return files[1]
}
