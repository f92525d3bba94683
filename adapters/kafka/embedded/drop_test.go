package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// trim sends DeleteRecords and returns the answer's first offset.
func trim(t testing.TB, b *Broker, topic string, before int64) (int64, error) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Address()), kgo.Dialer(b.Dial), kgo.RequestRetries(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		return 0, err
	}
	p := res.Topics[0].Partitions[0]
	return p.LowWatermark, kerr.ErrorForCode(p.ErrorCode)
}

// held returns the first offset of topic t and the values from there on.
func held(t testing.TB, b *Broker) (first int64, values []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Address()), kgo.Dialer(b.Dial),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "t"
	for _, at := range []int64{earliestOffset, latestOffset} {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = at
		rt.Partitions = []kmsg.ListOffsetsRequestTopicPartition{rp}
		req.Topics = []kmsg.ListOffsetsRequestTopic{rt}
		res, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		offset := res.Topics[0].Partitions[0].Offset
		if at == earliestOffset {
			first = offset
			continue
		}
		for int64(len(values)) < offset-first {
			fs := cl.PollFetches(t.Context())
			if err := fs.Err(); err != nil {
				t.Fatal(err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				if r.Offset != first+int64(len(values)) {
					t.Fatalf("read offset %d, want %d", r.Offset, first+int64(len(values)))
				}
				values = append(values, string(r.Value))
			})
		}
	}
	return first, values
}

// bases returns the first offsets of the segment files of topic t.
func bases(t testing.TB, dir string) (out []int64) {
	t.Helper()
	p := &partition{dir: filepath.Join(dir, logDir, "partitions", "t-0")}
	if err := p.load(); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.segments {
		out = append(out, s.base)
	}
	return out
}

func TestDropSegments(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, SegmentBytes: 1 << 10}
	b := open(t, cfg)
	c := client(t, b)
	if err := createTopic(c, "t", 1); err != nil {
		t.Fatal(err)
	}
	var want []string
	appendMore := func() {
		t.Helper()
		for range 60 {
			v := strings.Repeat(fmt.Sprintf("value %d ", len(want)), 10)
			if _, err := produceTo(c, "t", 0, v); err != nil {
				t.Fatal(err)
			}
			want = append(want, v)
		}
	}
	check := func(b *Broker, first int64) {
		t.Helper()
		got, values := held(t, b)
		if got != first || !slices.Equal(values, want[first:]) {
			t.Fatalf("the log has %d values from offset %d on, want %d from %d on", len(values), got, len(want)-int(first), first)
		}
	}
	appendMore()
	all := bases(t, dir)
	if len(all) < 5 {
		t.Fatalf("segments begin at %v", all)
	}
	before := read(t, filepath.Join(dir, logDir)) // as a crash may leave the files
	for _, at := range []int64{0, 1, all[1] - 1} {
		if first, err := trim(t, b, "t", at); first != 0 || err != nil {
			t.Fatalf("trimmed before %d: the log begins at %d: %v", at, first, err)
		}
	}
	for _, at := range []int64{all[2] + 1, all[2], 3} {
		if first, err := trim(t, b, "t", at); first != all[2] || err != nil {
			t.Fatalf("trimmed before %d: the log begins at %d, not %d: %v", at, first, all[2], err)
		}
		check(b, all[2])
	}
	if left := bases(t, dir); !slices.Equal(left, all[2:]) {
		t.Fatalf("segments begin at %v, want %v", left, all[2:])
	}
	if _, err := trim(t, b, "unknown", 3); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Fatal(err)
	}
	check(open(t, Config{Dir: dir, ReadOnly: true}), all[2])
	appendMore()
	check(b, all[2])
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, cfg)
	c = client(t, b)
	check(b, all[2])

	// Everything: the last two segments stay, and offsets go on.
	all = bases(t, dir)
	first, err := trim(t, b, "t", 1<<40)
	if err != nil || first != all[len(all)-2] {
		t.Fatalf("trimmed everything: the log begins at %d of %v: %v", first, all, err)
	}
	appendMore()
	check(b, first)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	// A crash may leave segments that were to be deleted, with or without those between.
	path := filepath.Join(dir, logDir, "partitions", "t-0")
	for name, text := range before {
		if strings.HasSuffix(name, "0.dat") && strings.Contains(name, "t-0") {
			if err := os.WriteFile(filepath.Join(path, filepath.Base(name)), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	check(open(t, Config{Dir: dir, ReadOnly: true}), first)
	b = open(t, cfg)
	check(b, first)
	if left := bases(t, dir); left[0] != first {
		t.Fatal(left)
	}
	if _, err := os.Stat(filepath.Join(path, "0.dat")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the segment is still there: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	// What is missing without having been deleted is damage.
	whole := read(t, filepath.Join(dir, logDir))
	start := filepath.Join(path, startFile)
	for what, spoil := range map[string]func() error{
		"no start":      func() error { return os.Remove(start) },
		"empty start":   func() error { return os.WriteFile(start, nil, 0o600) },
		"negative":      func() error { return os.WriteFile(start, []byte("-1\n"), 0o600) },
		"start within":  func() error { return os.WriteFile(start, fmt.Appendln(nil, first+1), 0o600) },
		"start beyond":  func() error { return os.WriteFile(start, fmt.Appendln(nil, 1<<40), 0o600) },
		"first segment": func() error { return os.Remove(filepath.Join(path, fmt.Sprint(first, ".dat"))) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		for _, readOnly := range []bool{true, false} {
			b, err := Open(context.Background(), Config{Dir: dir, ReadOnly: readOnly})
			if !errors.As(err, &damage) {
				t.Errorf("%s, read only %t: %v", what, readOnly, err)
			}
			if err == nil {
				b.Close()
			}
		}
		whole.restore(t, filepath.Join(dir, logDir))
	}
	check(open(t, cfg), first)
}
