package projections_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// maxFaultRow is the maximum size of a row of faults, in bytes.
const maxFaultRow = 64 << 10

// faultFloods are faults that may be reported without end; each function returns the i-th of a day.
var faultFloods = map[string]func(i int) *domain.GPUFaultObserved{
	"one repeated fault": func(int) *domain.GPUFaultObserved {
		return &domain.GPUFaultObserved{GPU: storetest.GPU("c", "n", 0), Kind: domain.FaultXID, Code: 79, Fatal: true}
	},
	"eight GPUs, each fault with its own text": func(i int) *domain.GPUFaultObserved {
		return &domain.GPUFaultObserved{GPU: storetest.GPU("c", "n", i%8), Kind: domain.FaultXID, Code: uint32(13 + i%3), Detail: fmt.Sprintf("NVRM: Xid (PCI:0000:3b:00): 31, pid=%d, name=python, Ch 00000008", i)}
	},
	"unknown codes": func(i int) *domain.GPUFaultObserved {
		return &domain.GPUFaultObserved{GPU: storetest.GPU("c", "n", 0), Kind: domain.FaultXID, Code: uint32(i), Detail: strings.Repeat("é", 2000)}
	},
	"fatal faults of unknown GPUs": func(i int) *domain.GPUFaultObserved {
		return &domain.GPUFaultObserved{GPU: storetest.GPU("c", "n", i), Kind: []domain.FaultKind{domain.FaultXID, domain.FaultECC}[i%2], Code: 79, Fatal: true}
	},
	"everything": func(i int) *domain.GPUFaultObserved {
		kinds := []domain.FaultKind{domain.FaultXID, domain.FaultECC, domain.FaultRowRemap, domain.FaultNVLink, domain.FaultOffBus, domain.FaultThermal, domain.FaultHealth}
		return &domain.GPUFaultObserved{GPU: storetest.GPU("c", "n", i%100), Kind: kinds[i%7], Code: uint32(i % 9999), Fatal: i%3 == 0, Class: fmt.Sprint(i % 5)}
	},
}

// faultAt is the i-th of n faults of a day.
func faultAt(i, n int, f *domain.GPUFaultObserved) domain.Envelope {
	f.Node, f.Count = "n", 1
	return domain.Envelope{Source: "node-reporter/c/n", Cluster: "c", Time: storetest.Start + domain.Instant(i)*(domain.Day/domain.Instant(n)), Event: f}
}

// A row of faults stays small, and counts each fault once by its kind.
func TestFaultRowsAreBounded(t *testing.T) {
	for name, flood := range faultFloods {
		t.Run(name, func(t *testing.T) {
			n := 20_000
			if name == "one repeated fault" {
				n = 100_000
			}
			l := storetest.NewLog()
			type kind struct {
				domain.FaultKind
				fatal bool
			}
			want, got, said := map[kind]uint64{}, map[kind]uint64{}, map[kind]uint64{}
			for i := range n {
				e := faultAt(i, n, flood(i))
				l.AppendAt(e, e.Time)
				f := e.Event.(*domain.GPUFaultObserved)
				want[kind{f.Kind, f.Fatal}]++
			}
			rows := storetest.FaultRows(t, l)
			if len(rows) != 1 {
				t.Fatalf("%d rows", len(rows))
			}
			b, err := projections.EncodeRow(rows[0])
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d versions, %d bytes", len(rows[0].Versions), len(b))
			first, last := domain.Instant(1<<62), domain.Instant(0)
			for i := range rows[0].Versions {
				v := &rows[0].Versions[i]
				f := v.Event.(*domain.GPUFaultObserved)
				got[kind{f.Kind, f.Fatal}] += v.Events()
				said[kind{f.Kind, f.Fatal}] += f.Count
				first, last = min(first, v.Order.Effective), max(last, v.Order.Effective, v.Last)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(said) != fmt.Sprint(want) {
				t.Errorf("counts %v and %v, want %v", got, said, want)
			}
			if end := faultAt(n-1, n, flood(n-1)).Time; first != storetest.Start || last != end {
				t.Errorf("from %s to %s, want %s to %s", first, last, storetest.Start, end)
			}
			if len(b) > maxFaultRow {
				t.Errorf("the row has %d bytes, at most %d are wanted", len(b), maxFaultRow)
			}
		})
	}
}

// TestWritingDoesNotGrowWithFaults counts the bytes that a store writes for a fault: no more after
// 3,000 faults of a day than after 600.
func TestWritingDoesNotGrowWithFaults(t *testing.T) {
	for name, flood := range faultFloods {
		t.Run(name, func(t *testing.T) {
			m := projections.NewMemory(domain.TopicSpecs())
			l := storetest.NewLog()
			written := map[int]int{}
			for i := range 3000 {
				e := faultAt(i, 3000, flood(i))
				tp, _ := l.AppendAt(e, e.Time)
				written[i/300] += changedBytes(t, l, m, tp)
			}
			if early, late := written[1], written[9]; late > early+early/10 {
				t.Errorf("the last 300 faults change %d bytes, the second 300 %d", late, early)
			}
		})
	}
}

// A failure is visible, whatever comes before and after it.
func TestNoFloodHidesAFailure(t *testing.T) {
	const n = 5000
	for name, flood := range faultFloods {
		t.Run(name, func(t *testing.T) {
			l := storetest.NewLog()
			lost := storetest.GPU("c", "n", 7)
			for i := range n {
				e := faultAt(i, n, flood(i))
				l.AppendAt(e, e.Time)
				if i == n/2 {
					e = faultAt(i, n, &domain.GPUFaultObserved{GPU: lost, Kind: domain.FaultOffBus, Fatal: true})
					l.AppendAt(e, e.Time)
				}
			}
			for _, row := range storetest.FaultRows(t, l) {
				ofGPU, ofNode := false, false
				for i := range row.Versions {
					f := row.Versions[i].Event.(*domain.GPUFaultObserved)
					if f.Kind == domain.FaultOffBus && f.Fatal {
						ofGPU, ofNode = ofGPU || f.GPU == lost, ofNode || f.GPU == (domain.GPUID{})
					}
				}
				if harmless := name == "unknown codes" || strings.HasPrefix(name, "eight GPUs"); harmless && !ofGPU || !ofGPU && !ofNode {
					t.Errorf("the failure is not in the row")
				}
			}
		})
	}
}

// Repeats give the same row in every order of arrival.
func TestFaultsCollapseInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var said []domain.Envelope
		for i := range rapid.IntRange(1, 20).Draw(rt, "faults") {
			e := faultAt(0, 1, &domain.GPUFaultObserved{
				GPU: storetest.GPU("c", "n", rapid.IntRange(0, 1).Draw(rt, "gpu")), Kind: domain.FaultXID,
				Code: 79, Fatal: rapid.Bool().Draw(rt, "fatal"), Detail: fmt.Sprint(i),
			})
			e.Time += domain.Instant(rapid.IntRange(0, 60).Draw(rt, "at")) * 20 * domain.Second
			e.Incarnation, e.Sequence = 1, uint64(i+1)
			said = append(said, e)
		}
		rows := func(order []domain.Envelope) []string {
			l := storetest.NewLog()
			for _, e := range order {
				l.AppendAt(e, storetest.Start+domain.Hour)
			}
			var out []string
			for _, row := range storetest.FaultRows(t, l) {
				b, err := projections.EncodeRow(row)
				if err != nil {
					rt.Fatal(err)
				}
				out = append(out, string(b))
			}
			return out
		}
		if a, b := rows(said), rows(rapid.Permutation(said).Draw(rt, "order")); !slices.Equal(a, b) {
			rt.Fatalf("the rows differ:\n%q\n%q", a, b)
		}
	})
}

// A view of what was known at a time shows the repeats up to then.
func TestKnownRepeats(t *testing.T) {
	l := storetest.NewLog()
	for s := range 11 {
		e := storetest.Fault(0, 0, 79, true)
		e.Time = storetest.Start + domain.Instant(s)*30*domain.Second
		l.AppendAt(e, e.Time)
	}
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for by, want := range map[domain.Instant]string{
		storetest.Start - 1: "", storetest.Start: "1 0", storetest.Start + 135*domain.Second: "5 135", storetest.Start + 300*domain.Second: "11 300", storetest.Start + domain.Hour: "11 300",
	} {
		var got string
		if err := m.View(t.Context(), func(v projections.View) error {
			return registry.Known(v, by).Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
				for _, v := range row.(*projections.History).Versions {
					got += fmt.Sprint(v.Events(), " ", int64((max(v.Last, v.Order.Effective)-storetest.Start)/domain.Second))
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
	}
}
