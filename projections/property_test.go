package projections_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// The rows are the same for every order in which partitions are read, and every size of batches.
func TestInterleavings(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.Draw(t)
		m := projections.NewMemory(domain.TopicSpecs())
		m.Strict = true
		var left []domain.TopicPartition
		for tp, n := range l.End() {
			if n > 0 {
				left = append(left, tp)
			}
		}
		slices.SortFunc(left, domain.TopicPartition.Compare)
		for len(left) > 0 {
			i := rapid.IntRange(0, len(left)-1).Draw(t, "partition")
			n, err := storetest.Step(context.Background(), l, m, left[i], rapid.IntRange(1, 7).Draw(t, "records"))
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		if storetest.DigestOf(t, m) != storetest.DigestOf(t, storetest.Fold(t, l)) {
			t.Fatal("rows differ")
		}
	})
}

// Any part of any stream may be repeated in the log: the rows are the same, and so is everything
// except the position.
func TestRepeats(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.Draw(t)
		before := storetest.Fold(t, l)
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
			records := l.Records(tp)
			if len(records) == 0 {
				continue
			}
			from := rapid.IntRange(0, len(records)-1).Draw(t, "from")
			for i := from; i <= rapid.IntRange(from, len(records)-1).Draw(t, "to"); i++ {
				// A record that does not decode has no place in a stream, and is quarantined
				// wherever it is in the log.
				if l.Event(&records[i]) != nil && domain.PartitionOf(records[i].Key, tp.Topic.Partitions()) == tp.Partition && l.Event(&records[i]).Topic() == tp.Topic {
					l.Repeat(tp, int64(i))
				}
			}
		}
		after := storetest.Fold(t, l)
		if storetest.DigestOf(t, after) == storetest.DigestOf(t, before) {
			return
		}
		// The first records of an incarnation that ended are no longer remembered: such a repeat is
		// uncertain, and changes nothing else.
		storetest.Look(t, before, func(a projections.View) error {
			storetest.Look(t, after, func(b projections.View) error {
				differ, err := projections.Differences(a, b, math.MaxInt)
				for _, d := range differ {
					row, getErr := b.Get(d.Key)
					if getErr != nil {
						return getErr
					}
					switch row := row.(type) {
					case *projections.Quarantined:
						if !d.InA && row.Kind == projections.KindUncertain {
							continue
						}
					case *projections.Stream:
						was, getErr := a.Get(d.Key)
						if now := *row; getErr == nil && was != nil {
							now.Uncompared = was.(*projections.Stream).Uncompared
							if x, err := projections.EncodeRow(&now); err == nil && row.Uncompared > now.Uncompared && slices.Equal(x, encoded(t, was)) {
								continue
							}
						}
					}
					t.Errorf("a repeat changed %s", d.Key)
				}
				return err
			})
			return nil
		})
	})
}

func encoded(t *rapid.T, row projections.Row) []byte {
	b, err := projections.EncodeRow(row)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Omitted events are missing in number and place. When they are delivered late, nothing is missing
// any more.
func TestGaps(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		full := storetest.NewLog()
		for range rapid.IntRange(2, 60).Draw(t, "events") {
			full.Append(storetest.DrawEvent(t))
		}
		last := map[string]uint64{} // by partition and source
		name := func(rec *domain.Record) string {
			return fmt.Sprintf("%s/%d %s", rec.Topic, rec.Partition, full.Event(rec).Source)
		}
		for _, tp := range domain.AllPartitions() {
			for _, rec := range full.Records(tp) {
				last[name(&rec)] = full.Event(&rec).Sequence
			}
		}
		dropped := map[string][]uint64{}
		var late []domain.Record
		l := full.Filter(func(rec *domain.Record) bool {
			n, seq := name(rec), full.Event(rec).Sequence
			// Events after the last that arrived cannot be known.
			if seq == last[n] || rapid.IntRange(0, 2).Draw(t, "drop") > 0 {
				return true
			}
			dropped[n] = append(dropped[n], seq)
			late = append(late, *rec)
			return false
		})
		missing := func() map[string][]uint64 {
			out := map[string][]uint64{}
			storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
				return v.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
					s := row.(*projections.Stream)
					n := uint64(0)
					for _, g := range s.Gaps {
						for seq := g.First; seq <= g.Last; seq++ {
							out[k.Scope+" "+s.Source] = append(out[k.Scope+" "+s.Source], seq)
							n++
						}
					}
					if n != s.Missing() {
						t.Errorf("%s: %d in gaps, %d missing", k, n, s.Missing())
					}
					return nil
				})
			})
			return out
		}
		got := missing()
		if len(got) != len(dropped) {
			t.Fatalf("missing %v, want %v", got, dropped)
		}
		for n, want := range dropped {
			if !slices.Equal(got[n], want) {
				t.Errorf("%s misses %v, want %v", n, got[n], want)
			}
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			stats, err := registry.NewLogStats(v)
			var n uint64
			for _, p := range stats.Partitions {
				n += p.Missing
			}
			if n != uint64(len(late)) {
				t.Errorf("log stats miss %d events, want %d", n, len(late))
			}
			return err
		})
		for _, i := range rapid.Permutation(storetest.Indices(len(late))).Draw(t, "late") {
			rec := late[i]
			l.AppendRaw(domain.TopicPartition{Topic: rec.Topic, Partition: rec.Partition}, rec.Key, rec.Value, rec.Time)
		}
		if got := missing(); len(got) > 0 {
			t.Errorf("everything came, and %v is missing", got)
		}
	})
}

// Broken records stop nothing: the other records give the same rows as without them, and every
// broken one is in quarantine.
func TestBroken(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		clean, l := storetest.NewLog(), storetest.NewLog()
		broken := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "records") {
			if rapid.IntRange(0, 2).Draw(t, "broken") == 0 {
				tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
				offset := l.AppendRaw(tp, rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "key"), []byte(rapid.StringMatching(`[^0-9]*`).Draw(t, "value")), storetest.Start)
				broken[fmt.Sprintf("%s@%d", tp, offset)] = true
				continue
			}
			env := storetest.DrawEvent(t)
			clean.Append(env)
			l.Append(env)
		}
		m := storetest.Fold(t, l)
		storetest.Look(t, m, func(v projections.View) error {
			q, err := registry.Quarantine(v)
			if err != nil {
				return err
			}
			if len(q.Entries) != len(broken) || q.Open != len(broken) || q.Incomplete.For("anyone") != len(broken) {
				t.Errorf("%d in quarantine, %d open, want %d", len(q.Entries), q.Open, len(broken))
			}
			for _, e := range q.Entries {
				if !broken[e.ID] || e.Reason == "" {
					t.Errorf("in quarantine: %s, %q", e.ID, e.Reason)
				}
			}
			return nil
		})
		// Signed rows and streams contain offsets of records, so they are excluded.
		storetest.Look(t, m, func(a projections.View) error {
			return storetest.Fold(t, clean).View(context.Background(), func(b projections.View) error {
				differences, err := projections.Differences(a, b, 1000)
				for _, d := range differences {
					if !slices.Contains([]projections.Table{projections.TableQuarantine, projections.TableOperators, projections.TableQuotas, projections.TableClusters,
						projections.TableOutages, projections.TableUsageCorrections, projections.TableStreams}, d.Key.Table) {
						t.Errorf("%s differs", d.Key)
					}
				}
				return err
			})
		})
	})
}

// The segments of a GPU's part never overlap, and at every moment in service its parts add up to
// it. Groups add up to the total, for every grouping.
func TestUsageAddsUp(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage}).Draw(t, "log")
		l := draw(t)
		from := storetest.Start + domain.Instant(rapid.IntRange(-30, 200).Draw(t, "from"))*storetest.Minute
		to := from + domain.Instant(rapid.IntRange(1, 400).Draw(t, "to"))*storetest.Minute
		m := storetest.Fold(t, l)
		storetest.Look(t, m, func(v projections.View) error {
			rowsDisjoint(t, v)
			inService := serviceTime(t, v, from, to)
			var declared, total int64
			type part struct {
				cluster, node string
				id            domain.GPUID
				replica       uint32
				hour          domain.Instant
			}
			ends := map[part]uint32{}
			err := usage.EachDeviceHour(v, from, to, func(d *usage.DeviceHour) error {
				edges := map[uint32]bool{}
				for _, s := range d.Segments {
					edges[s.From], edges[s.To] = true, true
					total += s.GPUMs
					if d.Declared {
						declared += s.GPUMs
					}
					if s.From >= s.To || s.To > 3_600_000 || s.GPUMs < 0 || s.Micros <= 0 || s.GPUMs > int64(s.To-s.From) {
						t.Errorf("segment %+v", s)
					}
					if (s.Holder != nil) != (s.State == inventory.Allocated) {
						t.Errorf("%s with holder %v", s.State, s.Holder)
					}
					if s.Known < 0 || s.Known > s.GPUMs || s.Active > 1000*s.GPUMs {
						t.Errorf("activity of %+v", s)
					}
					if s.State == inventory.Unprovisioned || s.State >= inventory.Unobserved || s.Device == d.GPU && s.Replica == 0 {
						continue // the rest of a GPU is listed beside its instances
					}
					p := part{d.Cluster, d.Node, s.Device, s.Replica, d.Hour}
					if s.From < ends[p] && s.State == inventory.Allocated {
						t.Errorf("%v overlaps at %d", p, s.From)
					}
				}
				// Between two edges the parts fill the GPU or, if it is undeclared, nothing.
				at := make([]uint32, 0, len(edges))
				for e := range edges {
					at = append(at, e)
				}
				slices.Sort(at)
				for i := 1; i < len(at); i++ {
					length := int64(at[i] - at[i-1])
					var filled float64
					seen := map[string]bool{}
					for _, s := range d.Segments {
						if s.From <= at[i-1] && at[i] <= s.To {
							filled += float64(s.GPUMs) * float64(length) / float64(s.To-s.From)
							key := fmt.Sprint(s.Device, s.Replica, s.State == inventory.Unprovisioned)
							if seen[key] {
								t.Errorf("%s twice at %d of %+v", key, at[i-1], d)
							}
							seen[key] = true
						}
					}
					if filled == 0 && !d.Declared {
						continue
					}
					if diff := filled - float64(length); diff > 8 || diff < -8 {
						t.Errorf("%s/%s %s: %.1f of %d ms are filled from %d", d.Cluster, d.Node, d.GPU, filled, length, at[i-1])
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if declared != inService {
				t.Errorf("states of declared GPUs add up to %d ms, in service %d", declared, inService)
			}
			for _, by := range [][]usage.Dimension{nil, {usage.ByWorkspace}, {usage.ByCluster, usage.ByNode, usage.ByGPU}, {usage.ByHour, usage.ByDeployment}, {usage.ByDay, usage.ByGPUModel, usage.ByRegion}, {usage.ByProvider, usage.ByProviderClass}, {usage.ByWorkloadClass, usage.ByBillingModel}} {
				r, err := usage.NewReport(v, from, to, usage.Filter{}, by...)
				if err != nil {
					return err
				}
				var sum usage.GPUTime
				for _, g := range append(r.Groups, usage.Group{GPUTime: r.Total}) {
					if n := g.Allocated + g.BusyUnattributed + g.Idle + g.Failed + g.Maintenance + g.Unprovisioned + g.Unobserved; n != g.Service {
						t.Errorf("states of %v add up to %d, in service %d", g.Key, n, g.Service)
					}
				}
				for _, g := range r.Groups {
					sum.Service += g.Service
					sum.Allocated += g.Allocated
				}
				if r.Total.Service != total || sum.Service != total || sum.Allocated != r.Total.Allocated {
					t.Errorf("by %v: %d in groups, %d in all, want %d", by, sum.Service, r.Total.Service, total)
				}
			}
			return nil
		})
	})
}

// rowsDisjoint checks that the segments of a device from one observer never overlap, and that
// measured time never exceeds the segment.
func rowsDisjoint(t *rapid.T, v projections.View) {
	err := v.Scan(projections.Query{Table: projections.TableUsage}, func(k projections.Key, row projections.Row) error {
		for _, o := range row.(*projections.UsageHour).Observers {
			for _, d := range o.Devices {
				var end uint32
				for _, s := range d.Segments {
					if s.From < end || s.To <= s.From || s.To > 3_600_000 || s.Known > s.To-s.From || s.Active > 1000*uint64(s.Known)+1000 {
						t.Errorf("%s, %s of %s: %+v", k, o.Source, d.ID, d.Segments)
					}
					end = s.To
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serviceTime adds up declared GPUs times time in service, in milliseconds, in the simplest way:
// minute by minute, which is how the generated fleets change.
func serviceTime(t *rapid.T, v projections.View, from, to domain.Instant) int64 {
	var ms int64
	a, err := registry.NewAuthority(v)
	if err != nil {
		t.Fatal(err)
	}
	err = v.Scan(projections.Query{Table: projections.TableNodes}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for at := from; at < to; at += domain.Second {
			gpus := map[domain.GPUID]bool{} // ids of generated nodes are derived: the last registration has all
			for i := range h.Versions {
				if h.Versions[i].Order.Effective > at {
					break
				}
				switch ev := h.Versions[i].Event.(type) {
				case *domain.NodeRegistered:
					clear(gpus)
					for _, g := range ev.GPUs {
						gpus[g.ID] = true
					}
				case *domain.NodeRetired:
					clear(gpus)
				case *domain.GPURetired:
					if a.Judge(k, h, i) == "" {
						delete(gpus, ev.GPU)
					}
				}
			}
			ms += 1000 * int64(len(gpus))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// A snapshot keeps everything, and every changed byte is detected.
func TestSnapshots(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.Draw(t)
		m := storetest.Fold(t, l)
		var b bytes.Buffer
		sum, at, err := m.WriteSnapshot(&b, "test")
		if err != nil {
			t.Fatal(err)
		}
		again := reopened(t, b.Bytes(), nil)
		if got, position, err := again.Digest(); err != nil || got != sum || position.String() != at.String() || sum != storetest.DigestOf(t, m) {
			t.Fatalf("read again: %x at %s, %v; want %x at %s", got, position, err, sum, at)
		}
		data := b.Bytes()
		i := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
		data[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if err := refused(data); err != nil {
			t.Fatalf("byte %d of %d: %v", i, len(data), err)
		}
		data = data[:rapid.IntRange(0, len(data)-1).Draw(t, "length")]
		if err := refused(data); err != nil {
			t.Fatalf("cut to %d bytes: %v", len(data), err)
		}
	})
}

// refused returns an error if a snapshot is accepted that must not be.
func refused(data []byte) error {
	_, err := projections.NewMemory(domain.TopicSpecs()).ReadSnapshot(bytes.NewReader(data), int64(len(data)), "test")
	if !errors.Is(err, projections.ErrSnapshotDamaged) && !errors.Is(err, projections.ErrSnapshotMethod) && !errors.Is(err, projections.ErrSnapshotLog) {
		return fmt.Errorf("want a refusal, not %v", err)
	}
	return nil
}

// Every byte of one snapshot, one after the other.
func TestSnapshotEveryByte(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Examples()[:4]...)
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, _, err := m.WriteSnapshot(&b, "test"); err != nil {
		t.Fatal(err)
	}
	for i := range b.Len() {
		data := bytes.Clone(b.Bytes())
		data[i] ^= 1 << (i % 8)
		if err := refused(data); err != nil {
			t.Errorf("byte %d of %d, %q: %v", i, len(data), data[max(0, i-20):min(len(data), i+20)], err)
		}
	}
}
