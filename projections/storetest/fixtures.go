package storetest

import (
	"context"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

// FaultRows returns the rows of faults.
func FaultRows(t testing.TB, l *Log) (rows []*projections.History) {
	t.Helper()
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.View(t.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
			rows = append(rows, row.(*projections.History))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Storm is a fault every ten seconds.
func Storm(from, to, g int, code uint32, fatal bool) (envs []domain.Envelope) {
	for s := from * 6; s < to*6; s++ {
		e := Fault(from, g, code, fatal)
		e.Time = Start + domain.Instant(s)*10*domain.Second
		envs = append(envs, e)
	}
	return envs
}

// MayBill is the billing month of these tests.
var MayBill = domain.Interval{From: Start, To: Start + 31*domain.Day}

// Frankfurt is the market of these tests.
var Frankfurt = domain.Market{Provider: "aws", Region: "eu-central-1"}

// Days returns the days from one to another, counted from Start.
func Days(from, to int) domain.Interval {
	return domain.Interval{From: Start + domain.Instant(from)*domain.Day, To: Start + domain.Instant(to)*domain.Day}
}

// Fold returns the rows of a log.
func Fold(t rapid.TB, l *Log) *projections.Memory {
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// DigestOf returns the digest of rows.
func DigestOf(t rapid.TB, m *projections.Memory) [32]byte {
	sum, _, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Look reads rows, and fails the test on an error.
func Look(t rapid.TB, m *projections.Memory, read func(projections.View) error) {
	if err := m.View(context.Background(), read); err != nil {
		t.Fatal(err)
	}
}

// Indices returns the numbers from 0 to n-1.
func Indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// Dec reads a decimal.
func Dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

// USD reads an amount in dollars.
func USD(s string) *domain.Money { return &domain.Money{Amount: Dec(s), Currency: "USD"} }

// Approve returns the approval of what an event proposes.
func Approve(made *domain.RecommendationMade) *domain.RecommendationApproved {
	digest, err := made.Digest()
	if err != nil {
		panic(err) // it has no value that JSON lacks
	}
	return &domain.RecommendationApproved{Recommendation: made.Recommendation, Digest: digest}
}

// FoldView folds a log into a strict store and passes its rows to read. No record may be
// quarantined: tests that need quarantine fold the log themselves.
func FoldView(t testing.TB, l *Log, read func(projections.View)) {
	t.Helper()
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		err := v.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
			t.Errorf("quarantined: %s", row.(*projections.Quarantined).Reason)
			return nil
		})
		read(v)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Operators that may sign after somebody registered them.
var (
	Ann = NewOperator("ann", 1)
	// Ben may commit next to nothing in the estate of [Estate], and how little is hidden from tenants.
	Ben     = NewOperator("ben", 1)
	Bob     = NewOperator("bob", 1)
	Mallory = NewOperator("mallory", 1)
)

// Fault is a fault of a GPU of node n, some minutes after Start.
func Fault(minutes, g int, code uint32, fatal bool) domain.Envelope {
	ev := &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultXID, Code: code, Class: "hardware", Fatal: fatal}
	if g >= 0 {
		ev.GPU = DeviceOf(g)
	}
	return Hardware(minutes, ev)
}

// Mended says that a GPU works again.
func Mended(minutes, g int) domain.Envelope {
	return Hardware(minutes, &domain.NodeReturned{Node: "n", GPU: DeviceOf(g), Faults: true})
}

// Minute is 60 seconds.
const Minute = 60 * domain.Second

// Span is the time between two minutes after Start.
func Span(from, to int) domain.Interval {
	return domain.Interval{From: Start + domain.Instant(from)*Minute, To: Start + domain.Instant(to)*Minute}
}

// DeviceOf returns a GPU of node n of cluster c.
func DeviceOf(i int) domain.GPUID { return GPU("c", "n", i) }

// Sampled is a report about node n of cluster c.
func Sampled(source string, from, to int, devices ...Seen) domain.Envelope {
	i := Span(from, to)
	return domain.Envelope{Source: source, Cluster: "c", Time: i.To, Event: Sample("n", i, devices...)}
}

// Hardware is a hardware event of cluster c, some minutes after Start.
func Hardware(minutes int, ev domain.Event) domain.Envelope {
	return domain.Envelope{Cluster: "c", Time: Start + domain.Instant(minutes)*Minute, Event: ev}
}

// Held is the first GPU of node n, held by a workspace, or idle if that is empty.
func Held(by string) Seen {
	s := Seen{ID: DeviceOf(0), Workspace: by, Activity: 500}
	if by == "" {
		s.Activity = 0
	}
	return s
}
