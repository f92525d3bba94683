package costs_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// copies is a view of a fleet of equal nodes. It has the rows of the first one, encoded, and decodes a copy of each for
// every node, as a store does, so that a fleet needs neither a disk nor memory.
type copies struct {
	projections.View
	nodes  int
	tables map[projections.Table][]encoded // by key
}

type encoded struct {
	key   projections.Key
	row   []byte
	marks []mark
}

// mark is where a row names the first node, or a GPU of it.
type mark struct{ at, name int }

// firstNode is in the names of all that is about the first node, and nowhere else.
const firstNode = "n00000"

func nodeName(n int) string { return fmt.Sprintf("n%05d", n) }

// namesOf returns what the rows of a node are told from those of others by: its name, and the ids of its GPUs in both of
// their forms. Rows have their GPUs in the order of ids, which are equal but for the last bytes.
func namesOf(n int) (names [][]byte) {
	names = append(names, []byte(nodeName(n)))
	for g := range 8 {
		id := storetest.GPU("c1", firstNode, g)
		binary.BigEndian.PutUint32(id[12:], uint32(n)+binary.BigEndian.Uint32(id[12:]))
		names = append(names, slices.Clone(id[:]), []byte(id.String()))
	}
	return names
}

func newCopies(v projections.View, nodes int) (*copies, error) {
	c := &copies{v, nodes, map[projections.Table][]encoded{}}
	names := namesOf(0)
	for _, t := range []projections.Table{
		projections.TableNodes, projections.TableNodeGPUs, projections.TableUsage, projections.TableBillingLines,
	} {
		if err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			b, err := projections.EncodeRow(row)
			of := encoded{key: k, row: b}
			for i, name := range names {
				for at := 0; ; at++ {
					next := bytes.Index(b[at:], name)
					if next < 0 {
						break
					}
					at += next
					of.marks = append(of.marks, mark{at, i})
				}
			}
			c.tables[t] = append(c.tables[t], of)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Scan implements [projections.View].
func (c *copies) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	rows, ok := c.tables[q.Table]
	if !ok {
		return c.View.Scan(q, yield)
	}
	first, end := 0, c.nodes
	if at := strings.Index(q.ID, "n"); at >= 0 { // one node
		n, err := strconv.Atoi(q.ID[at+1 : at+len(firstNode)])
		if err != nil {
			return err
		}
		first, end = n, min(n+1, end)
	}
	var b []byte
	for n := first; n < end; n++ {
		names := namesOf(n)
		for i := range rows {
			k := rows[i].key
			if k.ID = strings.Replace(k.ID, firstNode, string(names[0]), 1); !q.Holds(k) {
				continue
			}
			if next := i + 1; q.Last && next < len(rows) && rows[next].key.ID == rows[i].key.ID && (q.To == 0 || rows[next].key.Hour < q.To) {
				continue // it is not the last
			}
			b = append(b[:0], rows[i].row...)
			for _, m := range rows[i].marks {
				copy(b[m.at:], names[m.name])
			}
			row, err := projections.DecodeRow(k.Table, b)
			if err == nil {
				err = yield(k, row)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Get implements [projections.View].
func (c *copies) Get(k projections.Key) (found projections.Row, err error) {
	q := projections.Query{Table: k.Table, Scope: k.Scope, ID: k.ID, From: k.Hour, To: k.Hour + 1}
	err = c.Scan(q, func(_ projections.Key, row projections.Row) error { found = row; return nil })
	return found, err
}

// Tallies counts what Scan has.
func (c *copies) Tallies() ([]projections.Tally, error) {
	all, err := projections.TalliesOf(c.View)
	all = slices.Clone(all)
	for i := range all {
		if _, ok := c.tables[all[i].Table]; ok {
			all[i].Rows *= int64(c.nodes)
		}
	}
	return all, err
}

// BenchmarkDivideFleet divides a month of nodes of eight GPUs with a sample and a billing line for each hour, and writes
// its canonical form, as the close of a month does. Rows are decoded one by one and not kept. QM_BENCH_DIVIDE_NODES sets
// the nodes; docs/evidence/benchmarks.md reports 12,500, which are 100,000 GPUs and 9.3 million lines. QM_BENCH_DIVIDE_GC
// is how many percent of garbage may wait.
func BenchmarkDivideFleet(b *testing.B) {
	number := func(name string, n int) int {
		if s := os.Getenv(name); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil {
				b.Fatal(err)
			}
		}
		return n
	}
	nodes := number("QM_BENCH_DIVIDE_NODES", 20)
	l := storetest.NewLog()
	l.Append(domain.Envelope{Workspace: "acme", Cluster: "c1", Time: storetest.Start, Event: &domain.ClusterRegistered{
		Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
	}})
	env := storetest.Node("c1", firstNode, "H100 80GB", 8, storetest.Start)
	registered := env.Event.(*domain.NodeRegistered)
	registered.ResourceID, registered.IDsDerived = "r"+firstNode, false
	l.Append(env)
	devices := make([]storetest.Seen, 8)
	for hour := range 31 * 24 {
		i := domain.Interval{From: storetest.Start + domain.Instant(hour)*domain.Hour, To: storetest.Start + domain.Instant(hour+1)*domain.Hour}
		for g := range devices {
			devices[g] = storetest.Seen{ID: storetest.GPU("c1", firstNode, g), Activity: g * 13 % 1001}
			if who := g/3 + hour/24; who > 0 {
				devices[g].Workspace, devices[g].Deployment = fmt.Sprintf("team-%d", who), fmt.Sprintf("job-%d", g/3%5)
			}
		}
		l.Append(domain.Envelope{Source: "reporter/c1", Cluster: "c1", Time: i.To, Event: storetest.Sample(firstNode, i, devices...)})
		l.Append(recorded(billLine(fmt.Sprintf("%s-%04d", firstNode, hour), "31.464", func(b *domain.BillingLine) {
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = i.From, i.To, "r"+firstNode
			b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(1)), "Hours"
		})))
	}
	m, err := l.Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(cmp.Or(number("QM_BENCH_DIVIDE_GC", 0), 100)))
	if err := m.View(context.Background(), func(v projections.View) error {
		fleet, err := newCopies(v, nodes)
		if err != nil {
			return err
		}
		for b.Loop() {
			stop := peakMemory()
			from := cpuTime(b)
			sum := sha256.New()
			_, s, err := costs.WriteCanonical(fleet, storetest.MayBill, sum)
			if err != nil {
				return err
			}
			b.ReportMetric((cpuTime(b) - from).Seconds(), "cpu-s")
			b.ReportMetric(float64(stop())/(1<<20), "MiB")
			b.ReportMetric(float64(s.Lines), "lines")
			b.ReportMetric(float64(s.Allocations), "allocations")
			b.Logf("SHA-256 %x, %d exceptions", sum.Sum(nil), len(s.Exceptions))
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// peakMemory watches the memory of the process until the result is called, which returns the most that it had.
func peakMemory() (stop func() uint64) {
	held := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	debug.FreeOSMemory()
	end, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			metrics.Read(held)
			most = max(most, held[0].Value.Uint64()-held[1].Value.Uint64())
			select {
			case <-end:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(end); return <-peak }
}
