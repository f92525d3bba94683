package costs_test

import (
	"context"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// Events that are appended after a month was billed, and change its division, are an exception of
// the month's report.
func TestCostsChangedAfterBill(t *testing.T) {
	const hour = domain.Hour
	billed := storetest.MayBill.To // of the house's invoices
	held := func(source, node string, from, to int) domain.Envelope {
		i := storetest.Span(from, to)
		return domain.Envelope{Source: source, Cluster: "c", Time: i.To, Event: storetest.Sample(node, i,
			storetest.Seen{ID: storetest.GPU("c", node, 0), Workspace: "b"}, storetest.Seen{ID: storetest.GPU("c", node, 1), Workspace: "b"})}
	}
	node := func(name string, from domain.Instant) domain.Envelope {
		env := storetest.Node("c", name, "H100 80GB", 2, from)
		env.Event.(*domain.NodeRegistered).InServiceFrom = from
		return env
	}
	rule := func(name string, from domain.Instant) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: billed + hour, Event: &domain.MappingRuleSet{Rule: name, Namespace: "n", ToWorkspace: "home", EffectiveFrom: from}})
	}
	fix := domain.Envelope{Source: "focus/fix", Cluster: "c", Time: storetest.Start, Event: &domain.UsageCorrected{
		Correction: "x", Node: "n2", GPU: storetest.GPU("c", "n2", 0), Interval: storetest.Span(0, 30), Workspace: "a", Reason: "wrong owner"}}
	cases := map[string]struct {
		env  domain.Envelope
		at   domain.Instant
		want string // the exception; "" for none
		ms   int64
	}{
		"samples that were imported": {held("sha256:1", "n1", 0, 120), billed + 180*domain.Day, "c/n1: samples", 2 * 2 * 3600_000},
		"of a node nobody declared":  {held("sha256:1", "x2", 0, 1), billed + 180*domain.Day, "c/x2: samples", 2 * 60_000},
		"before the bill":            {held("sha256:1", "n1", 0, 120), billed, "", 0},
		"a correction":               {fix, billed + hour, "c/n2: UsageCorrected", 1800_000},
		"a correction in time":       {fix, billed - hour, "", 0},
		"a node dated back":          {node("n7", storetest.Start), billed + hour, "c/n7: NodeRegistered", 0},
		"a node of June":             {node("n7", billed), billed + hour, "", 0},
		"a rule dated back":          {rule("pays", storetest.Start), billed + hour, "home/pays: MappingRuleSet", 0},
		"a rule of June":             {rule("pays", billed), billed + hour, "", 0},
		"a rule in time":             {rule("pays", storetest.Start), billed - hour, "", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := house()
			if c.env.Event.Type() == domain.TypeNodeRegistered {
				c.env.Source = "sha256:12/nodes.v1" // nodes may not backdate
			}
			l.AppendAt(c.env, c.at)
			found := ""
			for _, e := range report(t, l, costs.Query{Month: storetest.MayBill}).Exceptions {
				if e.Kind != costs.ChangedAfterBill {
					continue
				}
				if found != "" || e.GPUMs != c.ms || !strings.Contains(e.Detail, c.at.String()) || !strings.Contains(e.Detail, "billed at "+billed.String()) {
					t.Errorf("exception %+v", e)
				}
				found = e.Subject + ": " + e.Detail
			}
			if (c.want == "") != (found == "") || !strings.HasPrefix(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// A node's row of a month bounds the late days that it keeps, and loses no time.
func TestLateDaysAreBounded(t *testing.T) {
	l := storetest.NewLog()
	seen := storetest.Seen{ID: storetest.GPU("c", "n", 0), Workspace: "a"}
	for i := range 200 {
		at := storetest.Span(i, i+1)
		l.AppendAt(domain.Envelope{Source: "sha256:1", Cluster: "c", Time: at.To, Event: storetest.Sample("n", at, seen)}, storetest.MayBill.To+domain.Instant(i)*domain.Day)
	}
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableNodeGPUs}, func(_ projections.Key, row projections.Row) error {
			late, total := row.(*projections.NodeGPUs).Late, int64(0)
			for _, d := range late {
				total += d.GPUMs
			}
			if len(late) != 32 || total != 200*60_000 || late[0].First != storetest.MayBill.To || late[31].Last != storetest.MayBill.To+199*domain.Day {
				t.Errorf("%d days, %d ms: %+v", len(late), total, late)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
