package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	log "quartermaster/adapters/kafka"
	"quartermaster/domain"
	"quartermaster/domain/long"
)

// seen is the result of a process without write access.
type seen struct {
	Error      string // of opening
	ReadOnly   bool
	Clean      bool
	Values     []string // of t/0
	Unfinished []Trim
	Append     string // the error of an append
	Create     string // the error of making a file in the directory
}

// look is the main function of that process.
func look(dir string) {
	var s seen
	defer func() {
		text, _ := json.Marshal(s)
		fmt.Println(string(text))
	}()
	f, err := os.Create(filepath.Join(dir, "made"))
	if err == nil {
		f.Close()
	} else {
		s.Create = err.Error()
	}
	b, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		s.Error = err.Error()
		return
	}
	defer b.Close()
	s.ReadOnly, s.Clean, s.Unfinished = b.ReadOnly(), b.Report.Clean, b.Report.Unfinished
	l, err := log.Open(context.Background(), log.Config{Dial: b.Dial, Patience: 5 * time.Second})
	if err != nil {
		s.Error = err.Error()
		return
	}
	defer l.Close()
	t0 := domain.TopicPartition{Topic: "t"}
	_, end, err := l.Bounds(context.Background(), t0)
	if err == nil {
		err = l.Read(context.Background(), t0, 0, end, func(rs []domain.Record) error {
			for _, r := range rs {
				s.Values = append(s.Values, string(r.Value))
			}
			return nil
		})
	}
	if err != nil {
		s.Error = err.Error()
	}
	if err := l.Append(context.Background(), []domain.Record{{Topic: "t", Value: []byte("more")}}); err != nil {
		s.Append = err.Error()
	}
}

// stranger is the user nobody, who owns none of the test's files.
const stranger = 65534

// lookAs runs look in a process of another user if root runs the test, because modes do not restrict
// root; otherwise in a process of this user.
func lookAs(t *testing.T, dir string) (s seen) {
	t.Helper()
	program, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	// Only root can read the folder of the test binary.
	own, err := os.MkdirTemp("", "reader")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(own, "look")
	binary, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(binary, program)
	if err := errors.Join(err, binary.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name)
	cmd.Dir = own
	cmd.Env = append(os.Environ(), "EMBEDDED_TEST_LOOK="+dir)
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatalf("look as another user: %v, %s", err, out)
	}
	return s
}

// reachable creates a folder that other users can access.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reader")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		chmod(t, dir, 0o755, 0o644)
		os.RemoveAll(dir)
	})
	return dir
}

// chmod sets the mode of every folder and file below dir, except sockets and the lock.
func chmod(t *testing.T, dir string, folders, files fs.FileMode) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return os.Chmod(path, folders)
		case e.Type().IsRegular() && e.Name() != lockFile:
			return os.Chmod(path, files)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stamp returns a fingerprint of a folder and everything below it.
func stamp(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		fmt.Fprintln(&text, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// closedLog is the data directory of a log that was stopped, with n batches of
// three records in several segments of t/0.
func closedLog(t *testing.T, dir string, n int) (values []string) {
	t.Helper()
	b := open(t, Config{Dir: dir, SegmentBytes: 2000})
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		vs := []string{fmt.Sprint(i), strings.Repeat("x", 100+i), "y"}
		if _, err := produceTo(c, "t", 0, vs...); err != nil {
			t.Fatal(err)
		}
		values = append(values, vs...)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return values
}

func lastSegment(t *testing.T, dir string) *segment {
	t.Helper()
	segs := segments(t, filepath.Join(dir, logDir))
	return segs[len(segs)-1]
}

// TestReadWithoutWriteAccess opens logs as a user who may read every file but write none.
func TestReadWithoutWriteAccess(t *testing.T) {
	refused := func(t *testing.T, s seen) {
		t.Helper()
		if s.Create == "" {
			t.Fatal("the other user can write to the directory: the test proves nothing")
		}
		if !s.ReadOnly || s.Error != "" {
			t.Fatalf("read only %v, %s", s.ReadOnly, s.Error)
		}
		for _, want := range []string{"append refused", ErrReadOnly.Error(), "permission denied"} {
			if !strings.Contains(s.Append, want) {
				t.Errorf("append: %q lacks %q", s.Append, want)
			}
		}
	}
	t.Run("stopped", func(t *testing.T) {
		dir := reachable(t)
		want := closedLog(t, dir, 30)
		chmod(t, dir, 0o555, 0o444)
		before := stamp(t, dir)
		s := lookAs(t, dir)
		refused(t, s)
		if !slices.Equal(s.Values, want) || !s.Clean || len(s.Unfinished) != 0 {
			t.Errorf("clean %v, unfinished %v, read %q", s.Clean, s.Unfinished, s.Values)
		}
		if after := stamp(t, dir); after != before {
			t.Errorf("reading changed\n%sto\n%s", before, after)
		}
	})
	t.Run("torn", func(t *testing.T) {
		dir := reachable(t)
		want := closedLog(t, dir, 30)
		last := lastSegment(t, dir)
		if err := errors.Join(last.check(t.Context()), os.Remove(filepath.Join(dir, stoppedFile))); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(last.file, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 77)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		chmod(t, dir, 0o555, 0o444)
		before := stamp(t, dir)
		s := lookAs(t, dir)
		refused(t, s)
		torn := Trim{File: last.file, Topic: "t", Position: last.good, Bytes: 77, LastOffset: int64(len(want)) - 1}
		if !slices.Equal(s.Values, want) || s.Clean || len(s.Unfinished) != 1 || withoutReason(s.Unfinished[0]) != torn {
			t.Errorf("clean %v, unfinished %v, read %q", s.Clean, s.Unfinished, s.Values)
		}
		if after := stamp(t, dir); after != before {
			t.Errorf("reading changed\n%sto\n%s", before, after)
		}
	})
	t.Run("owned", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("the owner and who only reads must be two users, which takes root")
		}
		dir := reachable(t)
		want := closedLog(t, dir, 30)
		chmod(t, dir, 0o755, 0o644)
		b := open(t, Config{Dir: dir})
		s := lookAs(t, dir)
		refused(t, s)
		if !slices.Equal(s.Values, want) {
			t.Errorf("read %q", s.Values)
		}
		// New files of the owner can be read as well.
		c := client(t, b)
		for _, v := range []string{"more", "and more"} {
			if _, err := produceTo(c, "t", 0, v); err != nil {
				t.Fatal(err)
			}
		}
		if s = lookAs(t, dir); !slices.Equal(s.Values, append(want, "more", "and more")) {
			t.Errorf("read %q", s.Values)
		}
		// A user who may use the socket is served, and may append.
		if err := os.Chmod(filepath.Join(dir, socketFile), 0o666); err != nil {
			t.Fatal(err)
		}
		if s = lookAs(t, dir); s.Error != "" || s.Append != "" || s.ReadOnly || s.Create == "" {
			t.Errorf("through the socket: %+v", s)
		}
	})
	t.Run("unreadable", func(t *testing.T) {
		dir := reachable(t)
		closedLog(t, dir, 3)
		chmod(t, dir, 0o555, 0o444)
		if err := os.Chmod(filepath.Join(dir, logDir, "topics.json"), 0); err != nil {
			t.Fatal(err)
		}
		if s := lookAs(t, dir); !strings.Contains(s.Error, "topics.json: permission denied") {
			t.Errorf("got %q", s.Error)
		}
	})
}

// TestReadOnlyTouchesNothing runs in a process that could write.
func TestReadOnlyTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), Config{Dir: filepath.Join(dir, "none"), ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open what is not there: %v", err)
	}
	if _, err := Open(t.Context(), Config{Dir: dir, ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open an empty directory: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("left %v, %v", entries, err)
	}
	want := closedLog(t, dir, 20)
	before := stamp(t, dir)
	b := open(t, Config{Dir: dir, ReadOnly: true})
	if !b.ReadOnly() || b.Owner() || !errors.Is(b.Refusal(), ErrReadOnly) {
		t.Fatalf("read only %v, owner %v, %v", b.ReadOnly(), b.Owner(), b.Refusal())
	}
	if r := b.Report; !r.Clean || r.Topics != 1 || r.Partitions != 1 || r.Records != 60 || r.Batches != 20 || r.Segments < 2 {
		t.Errorf("report %+v", r)
	}
	if got := readAll(t, b, "t", 0); !slices.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	c := client(t, b)
	if _, err := produceTo(c, "t", 0, "more"); !errors.Is(err, kafka.PolicyViolation) || !strings.Contains(err.Error(), errAsked.Error()) {
		t.Errorf("append: %v", err)
	}
	if err := createTopic(c, "t", 1); !errors.Is(err, kafka.TopicAlreadyExists) {
		t.Errorf("create a topic that is there: %v", err)
	}
	if err := createTopic(c, "new", 2); err != nil {
		t.Errorf("create a topic for the reader: %v", err)
	}
	if got := readAll(t, b, "new", 1); len(got) != 0 {
		t.Errorf("read %q", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Dial(t.Context(), "", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("dial after close: %v", err)
	}
	if after := stamp(t, dir); after != before {
		t.Errorf("reading changed\n%sto\n%s", before, after)
	}
	if b := open(t, Config{Dir: dir}); b.ReadOnly() || b.Refusal() != nil {
		t.Error("an owner is read only")
	}
}

// TestReaderAtEveryCut reads the log as a crash or a writing owner leaves it, cut at bytes of the
// last segment; with CI_LONG=1, at every byte.
func TestReaderAtEveryCut(t *testing.T) {
	dir := t.TempDir()
	want := closedLog(t, dir, 24)
	last := lastSegment(t, dir)
	good, err := os.ReadFile(last.file)
	if err != nil {
		t.Fatal(err)
	}
	// With the sizes recorded by a clean stop, the missing bytes would be damage.
	if err := os.Remove(filepath.Join(filepath.Dir(last.file), snapshotFile)); err != nil {
		t.Fatal(err)
	}
	at, next := boundaries(good)
	for cut := range len(good) + 1 {
		beside := slices.ContainsFunc(at, func(b int64) bool { return b-2 <= int64(cut) && int64(cut) <= b+2 })
		if !long.Run() && cut%31 != 0 && !beside {
			continue
		}
		if err := os.WriteFile(last.file, good[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), Config{Dir: dir, ReadOnly: true})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		i := 0
		for i+1 < len(at) && at[i+1] <= int64(cut) {
			i++
		}
		if got := readAll(t, b, "t", 0); !slices.Equal(got, want[:next[i]]) {
			t.Fatalf("cut at %d: read %d records, want %d", cut, len(got), next[i])
		}
		if torn := at[i] < int64(cut); torn != (len(b.Report.Unfinished) == 1) {
			t.Fatalf("cut at %d: unfinished %v", cut, b.Report.Unfinished)
		}
		b.Close()
		if left, err := os.ReadFile(last.file); err != nil || !bytes.Equal(left, good[:cut]) {
			t.Fatalf("cut at %d: reading changed the file, %v", cut, err)
		}
	}
}

func TestReaderRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	closedLog(t, dir, 40)
	segs := segments(t, filepath.Join(dir, logDir))
	flip(t, segs[1].file, 100)
	_, err := Open(t.Context(), Config{Dir: dir, ReadOnly: true})
	var d *DamageError
	if !errors.As(err, &d) || d.File != segs[1].file {
		t.Fatalf("open a damaged log: %v", err)
	}
	flip(t, segs[1].file, 100)
	// Records damaged after the opening are not delivered either.
	b := open(t, Config{Dir: dir, ReadOnly: true})
	if err := os.Truncate(segs[1].file, 100); err != nil {
		t.Fatal(err)
	}
	d2 := &kafka.Dialer{DialFunc: b.Dial}
	c, err := d2.DialLeader(t.Context(), "tcp", b.Address(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Seek(segs[1].base, kafka.SeekAbsolute); err != nil {
		t.Fatal(err)
	}
	batch := c.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second})
	if _, err := batch.ReadMessage(); err == nil {
		t.Fatal("read from a segment that was cut")
	}
	if err := batch.Close(); !errors.Is(err, kafka.InvalidMessage) {
		t.Fatalf("read from a segment that was cut: %v", err)
	}
}

// TestReaderAnswersAsTheOwner sends the same requests to the owner of a log and to a reader of
// its files.
func TestReaderAnswersAsTheOwner(t *testing.T) {
	dir := t.TempDir()
	owner := open(t, Config{Dir: dir, SegmentBytes: 400_000})
	c := client(t, owner)
	if err := createTopic(c, "t", 2, kafka.ConfigEntry{ConfigName: "max.message.bytes", ConfigValue: "3000000"}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	epoch := time.UnixMilli(1_700_000_000_000)
	var n int64
	for range 150 {
		var rs []kafka.Record
		for range 1 + rng.IntN(12) {
			n++
			at := epoch.Add(time.Duration(n*3+rng.Int64N(40)) * time.Millisecond) // out of order
			value := make([]byte, rng.IntN(2000))                                 // incompressible
			for i := range value {
				value[i] = byte(rng.Uint32())
			}
			rs = append(rs, kafka.Record{Time: at, Key: kafka.NewBytes([]byte("k")), Value: kafka.NewBytes(value),
				Headers: []kafka.Header{{Key: "h", Value: []byte("v")}}})
		}
		resp, err := c.Produce(t.Context(), &kafka.ProduceRequest{Topic: "t", Partition: 1, RequiredAcks: kafka.RequireAll,
			Compression: kafka.Compression(rng.IntN(5)), Records: kafka.NewRecordReader(rs...)})
		if err == nil {
			err = resp.Error
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reader := open(t, Config{Dir: dir, ReadOnly: true})
	if !owner.Owner() || reader.Report.Segments < 3 || reader.Report.Records != n {
		t.Fatalf("report %+v of %d records", reader.Report, n)
	}
	rc := client(t, reader)
	for _, s := range reader.reader.topics["t"].partitions[1].segments[:2] {
		if len(s.marks) < 4 {
			t.Fatalf("%d places to begin a search in %s", len(s.marks), s.file)
		}
	}

	fetch := func(c *kafka.Client, partition int, offset, limit int64) string {
		resp, err := c.Fetch(t.Context(), &kafka.FetchRequest{Topic: "t", Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: limit, MaxWait: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		fmt.Fprintln(&text, resp.Error, resp.HighWatermark, resp.LastStableOffset, resp.LogStartOffset)
		if resp.Error != nil {
			return text.String()
		}
		for {
			r, err := resp.Records.ReadRecord()
			if err != nil {
				break
			}
			value, _ := io.ReadAll(r.Value)
			fmt.Fprintf(&text, "%d %d %x %s\n", r.Offset, r.Time.UnixMilli(), sha256.Sum256(value), r.Headers)
		}
		return text.String()
	}
	compared := 0
	for offset := int64(-1); offset <= n+1; offset++ {
		if offset%7 > 1 && offset < n-3 {
			continue
		}
		for _, limit := range []int64{1, 20_000} {
			// The owner continues into the next segment where the reader ends.
			want, got := fetch(c, 1, offset, limit), fetch(rc, 1, offset, limit)
			if want != got && !(limit > 1 && len(got) > 100 && strings.HasPrefix(want, got)) {
				t.Fatalf("fetch from %d, %d bytes: the owner says\n%sthe reader\n%s", offset, limit, want, got)
			}
			compared++
		}
	}
	if want, got := fetch(c, 0, 0, 100), fetch(rc, 0, 0, 100); want != got {
		t.Fatalf("fetch from an empty partition: the owner says\n%sthe reader\n%s", want, got)
	}
	since := func(c *kafka.Client, partition int, ms int64) string {
		resp, err := c.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{"t": {{Partition: partition, Timestamp: ms}}}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(resp.Topics["t"])
	}
	for _, partition := range []int{0, 1, 2} {
		for _, special := range []int64{kafka.FirstOffset, kafka.LastOffset} {
			if want, got := since(c, partition, special), since(rc, partition, special); want != got {
				t.Fatalf("offset %d of t/%d: the owner says %s, the reader %s", special, partition, want, got)
			}
		}
		for ms := epoch.UnixMilli(); ms < epoch.UnixMilli()+3*n+60; ms += 1 + int64(partition%2)*4 {
			if want, got := since(c, partition, ms), since(rc, partition, ms); want != got {
				t.Fatalf("t/%d since %d: the owner says %s, the reader %s", partition, ms, want, got)
			}
			compared++
			if partition != 1 && ms > epoch.UnixMilli()+3 {
				break
			}
		}
	}
	if compared < 500 {
		t.Errorf("%d answers compared", compared)
	}
	configs := func(c *kafka.Client) map[string]string {
		resp, err := c.DescribeConfigs(t.Context(), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: "t"}}})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, e := range resp.Resources[0].ConfigEntries {
			m[e.ConfigName] = e.ConfigValue
		}
		return m
	}
	theirs, ours := configs(c), configs(rc)
	for name := range always {
		if theirs[name] != ours[name] {
			t.Errorf("%s: the owner says %q, the reader %q", name, theirs[name], ours[name])
		}
	}
}

// TestLogThroughReader uses the log through kafka.Log, like the programs do.
func TestLogThroughReader(t *testing.T) {
	dir := t.TempDir()
	owner := open(t, Config{Dir: dir})
	through := func(b *Broker) *log.Log {
		l, err := log.Open(t.Context(), log.Config{Dial: b.Dial, Patience: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := through(owner)
	specs := domain.TopicSpecs()
	// The log is older than the last topic.
	if err := l.EnsureTopics(t.Context(), specs[:len(specs)-1]); err != nil {
		t.Fatal(err)
	}
	start := 1_750_000_000 * domain.Second
	var all []domain.Record
	for i := range 3000 {
		all = append(all, domain.Record{Topic: specs[0].Topic, Partition: i % specs[0].Partitions, Time: start + domain.Instant(i)*domain.Second,
			Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", i)})
	}
	if err := l.Append(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	before := stamp(t, dir)
	r := through(open(t, Config{Dir: dir, ReadOnly: true}))
	if err := r.EnsureTopics(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	want, err := l.ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.ID(t.Context()); err != nil || got != want {
		t.Errorf("id %s, want %s, %v", got, want, err)
	}
	_, ends, err := r.AllBounds(t.Context(), domain.AllPartitions())
	if err != nil {
		t.Fatal(err)
	}
	if got := ends.Records(); got != int64(len(all)) {
		t.Errorf("%d records, want %d", got, len(all))
	}
	var parts []domain.TopicPartition
	for p := range specs[0].Partitions {
		parts = append(parts, domain.TopicPartition{Topic: specs[0].Topic, Partition: p})
	}
	for _, tp := range parts {
		i := tp.Partition
		var last domain.Anchor
		err := r.Read(t.Context(), tp, 0, ends[tp], func(rs []domain.Record) error {
			for _, rec := range rs {
				if string(rec.Value) != string(all[i].Value) || rec.Time != all[i].Time {
					return fmt.Errorf("offset %d holds %q of %s", rec.Offset, rec.Value, rec.Time)
				}
				i += specs[0].Partitions
				last = rec.Anchor()
			}
			return nil
		})
		if err != nil || i < len(all) {
			t.Fatalf("read %s up to record %d: %v", tp, i, err)
		}
		if err := r.ReadAfter(t.Context(), tp, last, ends[tp], ends[tp], nil); err != nil {
			t.Errorf("go on after the last record of %s: %v", tp, err)
		}
		if diverged, err := r.Diverged(t.Context(), ends, map[domain.TopicPartition]domain.Anchor{tp: last}); err != nil || len(diverged) != 0 {
			t.Errorf("diverged %v, %v", diverged, err)
		}
	}
	for i := -1; i <= len(all); i += 250 {
		at := start + domain.Instant(i)*domain.Second
		want, err := l.Before(t.Context(), parts, at)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Before(t.Context(), parts, at); err != nil || got.String() != want.String() {
			t.Errorf("before %s: %s, want %s, %v", at, got, want, err)
		}
	}
	began := time.Now()
	err = r.Append(t.Context(), all[:1])
	if err == nil || !strings.Contains(err.Error(), ErrReadOnly.Error()) || time.Since(began) > 4*time.Second {
		t.Errorf("append: %v after %s", err, time.Since(began))
	}
	// Follow waits and gets no new records.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	told := 0
	err = r.Follow(ctx, parts[0], ends[parts[0]], func(rs []domain.Record) error { told += 1 + len(rs); return nil })
	if !errors.Is(err, context.DeadlineExceeded) || told > 1 {
		t.Errorf("follow: told %d, %v", told, err)
	}
	if after := stamp(t, dir); after != before {
		t.Errorf("reading changed\n%sto\n%s", before, after)
	}
}

// TestReaderBesideAnOwner repeatedly opens the files while another process appends to them from four
// writers, is killed, and opens them again.
func TestReaderBesideAnOwner(t *testing.T) {
	dir := t.TempDir()
	rounds, opened := 3, 0
	if long.Run() {
		rounds = 30
	}
	ends := make([]int, writers)
	prefix := make([][]string, writers)
	openings := func(while func() bool) {
		for while() {
			b, err := Open(t.Context(), Config{Dir: dir, ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			for p := range writers {
				got := readAll(t, b, "t", p)
				if len(got) < ends[p] {
					t.Fatalf("t/%d had %d records and has %d", p, ends[p], len(got))
				}
				if n := min(len(got), len(prefix[p])); !slices.Equal(got[:n], prefix[p][:n]) {
					t.Fatalf("t/%d has other records than before", p)
				}
				ends[p], prefix[p] = len(got), got
			}
			b.Close()
			opened++
		}
	}
	for range rounds {
		a := start(t, dir, "EMBEDDED_TEST_WRITE=1")
		if said := a.line(t); !strings.HasPrefix(said, "open true") {
			t.Fatal(said)
		}
		a.line(t) // the first acknowledgement: the log exists
		go io.Copy(io.Discard, a.out)
		until := time.Now().Add(500 * time.Millisecond)
		openings(func() bool { return time.Now().Before(until) })
		a.cmd.Process.Kill()
		a.cmd.Wait()
		// The next owner trims the torn tail while the reader is open.
		next := start(t, dir)
		until = time.Now().Add(100 * time.Millisecond)
		openings(func() bool { return time.Now().Before(until) })
		next.in.Close()
		next.cmd.Wait()
	}
	total := 0
	for _, n := range ends {
		total += n
	}
	t.Logf("opened %d times, %d records in the end", opened, total)
	if opened < 3*rounds || total < 100 {
		t.Errorf("opened %d times, %d records: that proves little", opened, total)
	}
	b := open(t, Config{Dir: dir})
	for p := range writers {
		if got := readAll(t, b, "t", p); len(got) < ends[p] || !slices.Equal(got[:ends[p]], prefix[p]) {
			t.Errorf("the owner does not have what was read of t/%d", p)
		}
	}
}
