package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"quartermaster/domain"
)

// plainView exposes only the interface of a view, as a database does.
type plainView struct{ View }

// Tallies implements the view of [TalliesOf].
func (v plainView) Tallies() ([]Tally, error) { return TalliesOf(v.View) }

// storeOf returns a store with n usage hours, half of them sealed, and as many
// nodes with histories, all of one partition each.
func storeOf(t testing.TB, hours, nodes int) *Memory {
	t.Helper()
	m := NewMemory(domain.TopicSpecs())
	for i := range hours {
		k := Key{Table: TableUsage, Scope: "lab", ID: fmt.Sprint("node-", i%50), Hour: int64(i/50) - 3}
		row := &UsageHour{Holders: []Holder{{Workspace: fmt.Sprint("team-", i%7), Deployment: "chat"}}, Observers: []Observer{{Source: "reporter"}}}
		for g := range 8 {
			row.Observers[0].Devices = append(row.Observers[0].Devices, Device{
				ID: domain.DeriveGPUID("lab", k.ID, g), Segments: []Segment{{From: uint32(g), To: 3_600_000, Holder: 1}},
			})
		}
		p := m.parts[partitionOf(domain.TopicTelemetry, k.Scope)]
		p.tallies.at(k).rows++
		rows := p.rows
		if i%2 == 0 {
			rows.addSealed(k, appendUsage(nil, row))
		} else {
			rows.Add(k, row)
		}
	}
	for i := range nodes {
		k := Key{Table: TableNodes, Scope: "lab", ID: fmt.Sprint("node-", i)}
		h := &History{}
		if err := h.insert(Version{Event: &domain.NodeRegistered{Node: k.ID, SKU: strings.Repeat("x", 200)}}, true); err != nil {
			t.Fatal(err)
		}
		p := m.parts[partitionOf(domain.TopicFleet, k.Scope)]
		p.tallies.at(k).rows++
		p.rows.Add(k, h)
	}
	for i, tp := range domain.AllPartitions() {
		m.parts[tp].next = int64(i)
	}
	return m
}

func partitionOf(t domain.Topic, key string) domain.TopicPartition {
	return domain.TopicPartition{Topic: t, Partition: domain.PartitionOf([]byte(key), t.Partitions())}
}

func snapshotOf(t testing.TB, m *Memory, of func(View) View) ([]byte, [32]byte) {
	t.Helper()
	var (
		b   bytes.Buffer
		sum [32]byte
	)
	if err := m.View(t.Context(), func(v View) (err error) {
		if sum, err = WriteSnapshot(&b, of(v), "test"); err != nil {
			return err
		}
		if again, err := DigestOf(of(v)); err != nil || again != sum {
			t.Errorf("the digest is %x: %v; the snapshot has %x", again, err, sum)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), sum
}

// Sections of several chunks give the same file from a store that encodes its partitions
// concurrently and from a plain view, and survive a round trip.
func TestSnapshotInChunks(t *testing.T) {
	m := storeOf(t, 8_000, 6_000)
	fast, sum := snapshotOf(t, m, func(v View) View { return v })
	plain, _ := snapshotOf(t, m, func(v View) View { return plainView{v} })
	if !bytes.Equal(fast, plain) {
		t.Fatalf("%d bytes and %d differ", len(fast), len(plain))
	}
	if len(fast) < 4*chunkSize {
		t.Fatalf("%d bytes are too few for chunks", len(fast))
	}
	again := NewMemory(domain.TopicSpecs())
	at, err := again.ReadSnapshot(bytes.NewReader(fast), int64(len(fast)), "test")
	if err != nil {
		t.Fatal(err)
	}
	if got, pos, err := again.Digest(); err != nil || got != sum || pos.String() != at.String() || at[domain.TopicPartition{Topic: domain.TopicWorkspaces}] != 35 {
		t.Errorf("read again: %x at %s, %v; want %x", got, pos, err, sum)
	}
	info, err := CheckSnapshot(bytes.NewReader(fast), int64(len(fast)))
	if err != nil || info.Digest != sum || info.Log != "test" || info.Method != Method || info.Position.String() != at.String() {
		t.Errorf("it is said to be of %+v: %v", info, err)
	}
	if short, err := ReadSnapshotInfo(bytes.NewReader(fast), int64(len(fast))); err != nil || !reflect.DeepEqual(short, info) {
		t.Errorf("its header says %+v: %v", short, err)
	}
}

// Both ways of reading a snapshot detect every changed byte and every truncation. Header and digest
// authenticate each other.
func TestCheckSnapshotEveryByte(t *testing.T) {
	whole, _ := snapshotOf(t, storeOf(t, 3, 3), func(v View) View { return v })
	for i := range whole {
		data := bytes.Clone(whole)
		data[i] ^= 1 << (i % 8)
		if _, err := CheckSnapshot(bytes.NewReader(data), int64(len(data))); !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("byte %d is changed: %v", i, err)
		}
		if _, err := CheckSnapshot(bytes.NewReader(whole[:i]), int64(i)); !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("cut to %d bytes: %v", i, err)
		}
		_, err := ReadSnapshotInfo(bytes.NewReader(data), int64(len(data)))
		if known := i < len(snapshotMagic)+60 || i >= len(whole)-64; known && !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("byte %d of header or end is changed: %v", i, err)
		}
		if _, err := ReadSnapshotInfo(bytes.NewReader(whole[:i]), int64(i)); !errors.Is(err, ErrSnapshotDamaged) {
			t.Errorf("the header of %d bytes: %v", i, err)
		}
	}
}

// A snapshot of an earlier form is of other folds, not damaged.
func TestSnapshotOfAnEarlierForm(t *testing.T) {
	whole, _ := snapshotOf(t, storeOf(t, 1, 1), func(v View) View { return v })
	old := append([]byte("QMSNAP3\n"), whole[len(snapshotMagic):]...)
	size := int64(len(old))
	_, a := ReadSnapshotInfo(bytes.NewReader(old), size)
	_, b := CheckSnapshot(bytes.NewReader(old), size)
	_, c := NewMemory(domain.TopicSpecs()).ReadSnapshot(bytes.NewReader(old), size, "test")
	for _, err := range []error{a, b, c} {
		if !errors.Is(err, ErrSnapshotMethod) {
			t.Error(err)
		}
	}
}

// backwards is a view whose database sorts text in another order.
type backwards struct{ plainView }

func (b backwards) Scan(q Query, yield func(Key, Row) error) error {
	if q.Table != TableNodes {
		return b.View.Scan(q, yield)
	}
	return errors.Join(yield(Key{TableNodes, q.Scope, "b", 0}, &History{}), yield(Key{TableNodes, q.Scope, "B", 0}, &History{}))
}

func TestSnapshotRefusesDisorder(t *testing.T) {
	m := storeOf(t, 0, 2)
	if err := m.View(t.Context(), func(v View) error {
		_, err := WriteSnapshot(io.Discard, backwards{plainView{v}}, "test")
		return err
	}); err == nil || !strings.Contains(err.Error(), "nodes lab/B comes after nodes lab/b") {
		t.Errorf("rows out of order: %v", err)
	}
}

// A table belongs to the topic whose events make its rows.
func TestTableTopics(t *testing.T) {
	found := map[Table]bool{}
	for _, typ := range domain.Types() {
		ev := domain.NewEvent(typ)
		env := &domain.Envelope{Event: ev}
		p, ok := Place(env, "scope")
		if !ok {
			continue
		}
		found[p.Key.Table] = true
		if got := p.Key.Table.Topic(); got != env.Topic() {
			t.Errorf("%s is of %s, and %s made it, of %s", p.Key.Table, got, typ, env.Topic())
		}
	}
	for _, t2 := range []Table{TableUsage, TableNodeGPUs, TableServing, TableServers, TableDemand} {
		found[t2] = true
		if t2.Topic() != domain.TopicTelemetry {
			t.Errorf("%s is of %s", t2, t2.Topic())
		}
	}
	for _, table := range Tables() {
		if table.Topic() != "" && !found[table] {
			t.Errorf("no event makes rows of %s", table)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	whole, _ := snapshotOf(f, storeOf(f, 3, 3), func(v View) View { return v })
	f.Add(whole)
	f.Add(whole[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		m := NewMemory(domain.TopicSpecs())
		at, err := m.ReadSnapshot(bytes.NewReader(data), int64(len(data)), "test")
		info, err2 := CheckSnapshot(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if err2 != nil || info.Position.String() != at.String() {
			t.Errorf("it is read, but the check says %v", err2)
		}
	})
}

// BenchmarkSnapshot writes and reads usage hours of nodes with eight GPUs. above-MB is the peak of
// memory above the rows while writing.
func BenchmarkSnapshot(b *testing.B) {
	for _, hours := range []int{50_000, 500_000} {
		m := storeOf(b, hours, 1000)
		for name, of := range map[string]func(View) View{"store": func(v View) View { return v }, "view": func(v View) View { return plainView{v} }} {
			b.Run(fmt.Sprintf("write/%s/%d", name, hours), func(b *testing.B) {
				var n int64
				write := func() {
					n = 0
					if err := m.View(context.Background(), func(v View) error {
						_, err := WriteSnapshot(countTo{&n}, of(v), "test")
						return err
					}); err != nil {
						b.Fatal(err)
					}
				}
				above := peak(write)
				for b.Loop() {
					write()
				}
				b.SetBytes(n)
				b.ReportMetric(float64(above)/1e6, "above-MB")
			})
		}
		var file bytes.Buffer
		if _, _, err := m.WriteSnapshot(&file, "test"); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("read/%d", hours), func(b *testing.B) {
			b.SetBytes(int64(file.Len()))
			for b.Loop() {
				if _, err := NewMemory(domain.TopicSpecs()).ReadSnapshot(bytes.NewReader(file.Bytes()), int64(file.Len()), "test"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("check/%d", hours), func(b *testing.B) {
			b.SetBytes(int64(file.Len()))
			for b.Loop() {
				if _, err := CheckSnapshot(bytes.NewReader(file.Bytes()), int64(file.Len())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type countTo struct{ n *int64 }

func (c countTo) Write(b []byte) (int, error) {
	*c.n += int64(len(b))
	return len(b), nil
}

// peak returns the peak of live memory during work, above that before it. It runs the garbage
// collector continuously, to count only live memory.
func peak(work func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	var most, before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			if s.HeapAlloc > most.HeapAlloc {
				most = s
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	work()
	close(done)
	<-ended
	return max(most.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// After a failure to write a snapshot, nobody reads the rows any more: folding continues at once.
// The race detector checks this.
func TestFailedSnapshotReadsNoFurther(t *testing.T) {
	m := NewMemory(domain.TopicSpecs())
	round := 0
	fold := func() {
		round++
		for _, tp := range domain.AllPartitions() {
			tx, err := m.Begin(t.Context(), tp)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := tx.Load(t.Context(), func(func(Key) bool) {})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				k := Key{Table: TableWorkspaces, Scope: tp.String(), ID: fmt.Sprint(i)}
				if err := change[*History](rows, k).insert(Version{
					Order: domain.Precedence{Effective: domain.Instant(round)},
					Event: &domain.WorkspaceRegistered{Name: fmt.Sprint(round)},
				}, true); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Commit(t.Context(), int64(round), domain.Anchor{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fold()
	for range 20 {
		if _, _, err := m.WriteSnapshot(fullDisk{}, "test"); err == nil {
			t.Fatal("a snapshot was written to a full disk")
		}
		fold()
	}
}
