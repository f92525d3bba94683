package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"quartermaster/adapters/kafka"
	"quartermaster/domain"
)

var fleet = domain.TopicPartition{Topic: domain.TopicFleet, Partition: 0}

// newLog starts an in-memory broker with the topics.
func newLog(t testing.TB) (l *kafka.Log, address string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l, err = kafka.Open(t.Context(), kafka.Config{Brokers: c.ListenAddrs(), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := l.EnsureTopics(t.Context(), domain.TopicSpecs()); err != nil {
		t.Fatal(err)
	}
	return l, c.ListenAddrs()[0]
}

// fill appends records with the numbers from to to-1, in batches of ten.
func fill(t testing.TB, l *kafka.Log, tp domain.TopicPartition, from, to int) {
	t.Helper()
	for ; from < to; from += 10 {
		var recs []domain.Record
		for i := from; i < min(from+10, to); i++ {
			recs = append(recs, domain.Record{
				Topic: tp.Topic, Partition: tp.Partition, Time: domain.Instant(1_750_000_000+i) * domain.Second,
				Key: []byte("k"), Value: []byte(fmt.Sprint("value ", i)),
				Headers: []domain.Header{{Key: "h", Value: []byte{byte(i)}}},
			})
		}
		if err := l.Append(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
	}
}

// identify returns the identity of a log.
func identify(t testing.TB, l *kafka.Log) Log {
	t.Helper()
	id, err := l.ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Log{id, func(ctx context.Context) (map[domain.Topic]string, error) { return l.TopicIDs(ctx) }}
}

// run archives a partition in segments of at least size bytes.
func run(t testing.TB, a *Archive, l *kafka.Log, tp domain.TopicPartition, size int64) error {
	t.Helper()
	firsts, nexts, err := l.BrokerBounds(t.Context(), []domain.TopicPartition{tp})
	if err != nil {
		t.Fatal(err)
	}
	return a.Seal(t.Context(), l, tp, firsts[tp], nexts[tp], Policy{Bytes: size}, nil)
}

// hashes reads a partition and returns the hashes of its records, by offset.
func hashes(t testing.TB, l *kafka.Log, tp domain.TopicPartition, from int64) (out []domain.Anchor) {
	t.Helper()
	_, next, err := l.Bounds(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Read(t.Context(), tp, from, next, func(recs []domain.Record) error {
		for i := range recs {
			out = append(out, recs[i].Anchor())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// raw returns the batches of a partition as the log holds them.
func raw(t testing.TB, l *kafka.Log, tp domain.TopicPartition) []byte {
	t.Helper()
	_, next, err := l.Bounds(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	if err := l.ReadBatches(t.Context(), tp, domain.Anchor{}, 0, next, func(bs kafka.Batches) error {
		b = append(b, bs.Bytes...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b
}

// archived is a log of 500 records in an archive of several segments.
func archived(t testing.TB) (*Archive, *kafka.Log, Directory) {
	l, _ := newLog(t)
	fill(t, l, fleet, 0, 500)
	dir := Directory(t.TempDir())
	a := New(dir, identify(t, l))
	if err := run(t, a, l, fleet, 2000); err != nil {
		t.Fatal(err)
	}
	return a, l, dir
}

func verify(t testing.TB, a *Archive) *Verified {
	t.Helper()
	v, err := a.Verify(t.Context(), domain.AllPartitions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSegmentsHoldTheBrokersBytes(t *testing.T) {
	a, l, _ := archived(t)
	want := raw(t, l, fleet)
	var got []byte
	if err := a.Batches(t.Context(), fleet, 0, func(b kafka.Batches) error {
		got = append(got, b.Bytes...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("archived %d bytes, the log has %d others", len(got), len(want))
	}
	v := verify(t, a)
	if v.Segments < 3 || v.Records != 500 || v.Bytes != int64(len(want)) || len(v.Faults) > 0 || v.Unreferenced > 0 {
		t.Fatalf("%+v", v)
	}
	end, err := a.Confirm(t.Context(), l, fleet, 0, 500)
	if err != nil || end != 500 {
		t.Fatalf("confirmed up to %d: %v", end, err)
	}
}

// TestAge seals what is old, and nothing else.
func TestAge(t *testing.T) {
	l, _ := newLog(t)
	fill(t, l, fleet, 0, 20)
	a := New(Directory(t.TempDir()), identify(t, l))
	p := Policy{Bytes: 1 << 20, Age: time.Hour, Now: 1_750_003_599 * domain.Second}
	if err := a.Seal(t.Context(), l, fleet, 0, 20, p, nil); err != nil {
		t.Fatal(err)
	}
	if end, err := a.End(t.Context(), fleet); end != 0 || err != nil {
		t.Fatal(end, err)
	}
	p.Now += domain.Second
	if err := a.Seal(t.Context(), l, fleet, 0, 20, p, nil); err != nil {
		t.Fatal(err)
	}
	if end, err := a.End(t.Context(), fleet); end != 20 || err != nil {
		t.Fatal(end, err)
	}
}

// TestTrimmed reads a log whose beginning is in the archive, trimmed at every kind of place: between
// segments, within one, within a batch, at the archive's end.
func TestTrimmed(t *testing.T) {
	a, l, _ := archived(t)
	fill(t, l, fleet, 500, 600)
	want := hashes(t, l, fleet, 0)
	wantRaw := raw(t, l, fleet)
	l.Archive = a
	var segment int64
	if err := a.manifests(t.Context(), fleet, 1, func(m *Manifest) error {
		segment = m.Last + 1
		return errFound
	}); !errors.Is(err, errFound) {
		t.Fatal(err)
	}
	for _, at := range []int64{3, 10, segment, 250, 255, 500} {
		if _, err := l.DeleteRecords(t.Context(), fleet, at); err != nil {
			t.Fatal(err)
		}
		if first, _, err := l.BrokerBounds(t.Context(), []domain.TopicPartition{fleet}); err != nil || first[fleet] != at {
			t.Fatalf("the log begins at %v, not at %d: %v", first, at, err)
		}
		if got := hashes(t, l, fleet, 0); !slices.Equal(got, want) {
			t.Fatalf("trimmed at %d: %d records differ from the %d of the log", at, len(got), len(want))
		}
		if got := raw(t, l, fleet); !bytes.Equal(got, wantRaw) {
			t.Fatalf("trimmed at %d: other bytes", at)
		}
		for _, from := range []int64{1, at - 1, at, at + 1, 599} {
			if got := hashes(t, l, fleet, from); !slices.Equal(got, want[from:]) {
				t.Fatalf("trimmed at %d, read from %d: other records", at, from)
			}
			// With the record before it, as a fold continues.
			var got []domain.Anchor
			if err := l.ReadAfter(t.Context(), fleet, want[from-1], from, 600, func(recs []domain.Record) error {
				for i := range recs {
					got = append(got, recs[i].Anchor())
				}
				return nil
			}); err != nil || !slices.Equal(got, want[from:]) {
				t.Fatalf("trimmed at %d, continued at %d: %v", at, from, err)
			}
			other := want[from-1]
			other.Hash[0]++
			if err := l.ReadAfter(t.Context(), fleet, other, from, 600, func([]domain.Record) error { return nil }); !errors.Is(err, kafka.ErrDiverged) {
				t.Fatalf("trimmed at %d, continued another log at %d: %v", at, from, err)
			}
			found, err := l.Diverged(t.Context(), domain.Position{fleet: from}, map[domain.TopicPartition]domain.Anchor{fleet: other})
			if err != nil || found[fleet] == nil {
				t.Fatalf("trimmed at %d, compared at %d: %v, %v", at, from, found, err)
			}
		}
		for _, i := range []int{0, 1, 249, 420, 555} {
			before, err := l.Before(t.Context(), []domain.TopicPartition{fleet}, domain.Instant(1_750_000_000+i)*domain.Second)
			if err != nil || before[fleet] != int64(i) {
				t.Fatalf("trimmed at %d: before record %d is %v: %v", at, i, before, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n int64
	err := l.Follow(ctx, fleet, 0, func(recs []domain.Record) error {
		if n += int64(len(recs)); n >= 600 {
			cancel()
		}
		return nil
	})
	if n != 600 || ctx.Err() == nil {
		t.Fatalf("followed %d records: %v", n, err)
	}
}

func TestNotArchivedEnough(t *testing.T) {
	a, l, _ := archived(t)
	fill(t, l, fleet, 500, 600)
	if _, err := l.DeleteRecords(t.Context(), fleet, 550); err != nil {
		t.Fatal(err)
	}
	l.Archive = a
	var lacks *kafka.UnarchivedError
	err := l.Read(t.Context(), fleet, 0, 600, func([]domain.Record) error { return nil })
	if !errors.As(err, &lacks) || lacks.From != 500 || lacks.To != 550 || !errors.Is(err, kafka.ErrTrimmed) {
		t.Fatal(err)
	}
	if first, _, err := l.Bounds(t.Context(), fleet); first != 550 || err != nil {
		t.Fatal(first, err)
	}
	var missing *MissingError
	if err := run(t, a, l, fleet, 2000); !errors.As(err, &missing) || missing.Archived != 500 || missing.First != 550 {
		t.Fatal(err)
	}
	// A second archive of the log cannot begin where the first one trimmed it.
	if err := run(t, New(Directory(t.TempDir()), identify(t, l)), l, fleet, 2000); !errors.As(err, &missing) || missing.Archived != 0 {
		t.Fatal(err)
	}
}

// TestTransactions archives committed and aborted transactions, and segments that end within them.
func TestTransactions(t *testing.T) {
	l, address := newLog(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.TransactionalID("x"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 12 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			r := &kgo.Record{Topic: string(fleet.Topic), Value: []byte(fmt.Sprint(i, n))}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(t.Context(), kgo.TransactionEndTry(i%3 != 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: string(fleet.Topic), Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	read := func(l *kafka.Log, from int64) (out []domain.Anchor) {
		t.Helper()
		if err := l.Read(t.Context(), fleet, from, 72, func(recs []domain.Record) error {
			for i := range recs {
				out = append(out, recs[i].Anchor())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := make([][]domain.Anchor, 72)
	for i := range want {
		want[i] = read(l, int64(i))
	}
	// A log that has none of the records any more.
	trimmed, _ := newLog(t)
	fill(t, trimmed, fleet, 0, 80)
	if _, err := trimmed.DeleteRecords(t.Context(), fleet, 72); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{1, 150, 400, 1 << 20} {
		a := New(Directory(t.TempDir()), identify(t, l))
		if err := run(t, a, l, fleet, size); err != nil {
			t.Fatal(err)
		}
		if end, err := a.End(t.Context(), fleet); end != 72 || err != nil {
			t.Fatalf("the archive ends at %d, not before the open transaction: %v", end, err)
		}
		trimmed.Archive = a
		for i := range want {
			if got := read(trimmed, int64(i)); !slices.Equal(got, want[i]) {
				t.Fatalf("segments of %d bytes, from %d: %v, want %v", size, i, got, want[i])
			}
		}
	}
}

func TestDirectory(t *testing.T) {
	d := Directory(filepath.Join(t.TempDir(), "a", "b"))
	if names, err := d.List(t.Context(), "x/"); names != nil || err != nil {
		t.Fatal(names, err)
	}
	if err := d.Put(t.Context(), "x/y/1", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), "x/y/1", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), "x/0", nil); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(t.Context(), "x/"); !slices.Equal(names, []string{"x/0", "x/y/1"}) || err != nil {
		t.Fatal(names, err)
	}
	r, err := d.Get(t.Context(), "x/y/1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); string(b) != "one" || err != nil {
		t.Fatalf("%q %v", b, err)
	}
	if _, err := d.Get(t.Context(), "x/2"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(string(d), "x", "*", unfinished+"*"))
	if len(left) > 0 || err != nil {
		t.Fatal(left, err)
	}
}

func FuzzManifest(f *testing.F) {
	m := Manifest{Format: Format, Archive: "a", Log: "l", Topic: fleet.Topic, Last: 9, Batches: 1, Bytes: 99, ObjectBytes: 5}
	m.Format = firstFormat
	f.Add(m.encode())
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err == nil && !bytes.Equal(m.encode(), text) {
			t.Error("accepted a text that is not canonical")
		}
	})
}

func FuzzSegment(f *testing.F) {
	l, _ := newLog(f)
	fill(f, l, fleet, 0, 30)
	b := raw(f, l, fleet)
	f.Add(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, _, err := describe(fleet, text, 0)
		if err == nil && (m.First != 0 || m.Last < 0 || int64(m.Batches) > m.Records()) {
			t.Errorf("%+v", m)
		}
	})
}
