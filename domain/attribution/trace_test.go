package attribution_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// explained traces an allocation of an estate.
func explained(t fataler, e *estate, l *allocation) ([]allocation, *attribution.Trace) {
	t.Helper()
	allocations, res := tracing(t, e, l)
	return allocations, res.Trace
}

func tracing(t fataler, e *estate, l *allocation) ([]allocation, *attribution.Result) {
	t.Helper()
	r, err := attribution.ParseRef(ref(l))
	if err != nil {
		t.Fatal(err)
	}
	other := *e
	other.trace = &r
	allocations, res, err := other.run()
	if err != nil {
		t.Fatal(err)
	}
	return allocations, res
}

// weighed is what machines weigh in an allocation, from the usage of its group alone.
func weighed(t fataler, e *estate, allocations []allocation, l *attribution.Allocation, groups []attribution.Group) []attribution.MachineWeight {
	t.Helper()
	g := groups[l.Line.Matching.Group-1]
	in := e.input()
	w := &attribution.Weighing{OwnersFirst: g.OwnersFirst, Policy: e.policy}
	at := map[attribution.Node]int{}
	for i, n := range g.Nodes {
		at[e.nodes[n]] = i
		w.Nodes = append(w.Nodes, e.nodes[n])
	}
	for i := range allocations {
		if o := &allocations[i]; o.line.ID == l.Line.ID && o.line.Account == l.Line.Account && o.line.Issuer == l.Line.Issuer && o.Component == attribution.Unseen {
			w.Unseen = w.Unseen.Add(o.Weight)
		}
	}
	w.Cuts = func(node int) (all []domain.Instant) {
		for _, o := range groups {
			if slices.ContainsFunc(o.Nodes, func(n int) bool { return e.nodes[n] == w.Nodes[node] }) {
				all = append(all, o.Cuts...)
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	w.Usage = func(spans []domain.Interval, cuts attribution.Cuts, yield func(*attribution.NodeHour) error) error {
		within := func(node int, hour domain.Instant) []domain.Instant {
			if i, ok := at[e.nodes[node]]; ok {
				return cuts(i, hour)
			}
			return nil
		}
		return in.Usage(spans, within, func(h *attribution.NodeHour) error {
			i, ok := at[e.nodes[h.Node]]
			if !ok {
				return nil
			}
			here := *h
			here.Node = i
			return yield(&here)
		})
	}
	machines, ok, err := attribution.Weigh(l, w)
	if err != nil || !ok {
		t.Fatal(fmt.Sprintf("allocation %s is not given by its usage: %v, %+v", l.Ref(), err, machines))
	}
	for i := range machines {
		machines[i].Node = g.Nodes[machines[i].Node]
	}
	slices.SortFunc(machines, func(a, b attribution.MachineWeight) int { return a.Node - b.Node })
	return machines
}

// machinesFoot checks the trace of an allocation that is divided by use against the allocation.
func machinesFoot(t *rapid.T, e *estate, l *allocation, x *attribution.Trace) {
	var weight, useful, period int64
	for i, m := range x.Machines {
		weight, useful, period = weight+m.WeightMs, useful+m.UsefulMs, period+m.PeriodMs
		// Both are rounded cumulatively, so that one may be rounded up and the other not.
		if m.WeightMs < 0 || m.UsefulMs > m.WeightMs || m.WeightMs > m.PeriodMs+1 || i > 0 && x.Machines[i-1].Node >= m.Node {
			t.Fatalf("allocation %s: machine %+v of %+v", ref(l), m, x)
		}
		if n := &e.nodes[m.Node]; l.MatchMethod == attribution.ByResource && n.Resource != l.line.Resource && n.Resource != "" &&
			!slices.Contains(e.also, attribution.OtherID{Node: m.Node, Account: l.line.Account, Resource: l.line.Resource}) {
			t.Fatalf("allocation %s: machine %+v is not named", ref(l), n)
		}
	}
	if l.Component != attribution.Unseen && weight != l.Weight.Decimal().IntPart() || l.Component == attribution.Unseen && weight != 0 {
		t.Fatalf("allocation %s weighs %s, and its machines %d: %+v", ref(l), l.Weight, weight, x)
	}
	// Machines and the unseen part are each rounded down to milliseconds.
	if over := period + x.UnseenMs - l.Of.Decimal().IntPart(); over < -1 || over > 0 && e.policy.Discount != attribution.OwnersFirst {
		t.Fatalf("allocation %s is of %s, and its machines and what was unseen %d and %d: %+v", ref(l), l.Of, period, x.UnseenMs, x)
	}
}

// TestTrace traces allocations of drawn estates: the trace is of that allocation, adds up to it,
// and has no side effects.
func TestTrace(t *testing.T) {
	reached := map[attribution.MatchMethod]int{}
	long.Check(t, 300, 20_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{})
		allocations, _ := must(t, e)
		if len(allocations) == 0 {
			return
		}
		of := map[attribution.MatchMethod][]int{}
		for i := range allocations {
			of[allocations[i].MatchMethod] = append(of[allocations[i].MatchMethod], i)
		}
		for _, method := range slices.Sorted(maps.Keys(of)) {
			l := &allocations[rapid.SampledFrom(of[method]).Draw(t, "allocation")]
			reached[method]++
			traces(t, e, allocations, l)
		}
	})
	for r := attribution.ByResource; r <= attribution.ByNothing; r++ {
		if reached[r] == 0 {
			t.Errorf("no allocation was divided %s", r)
		}
	}
}

// traces traces an allocation.
func traces(t *rapid.T, e *estate, allocations []allocation, l *allocation) {
	again, res := tracing(t, e, l)
	x := res.Trace
	if !slices.Equal(allocations, again) {
		t.Fatalf("the trace of %s changes allocations", ref(l))
	}
	if x == nil {
		t.Fatalf("allocation %s is not traced", ref(l))
	}
	same, line := x.Allocation, *x.Allocation.Line
	holders := holdersText(same.Holders)
	same.Line, same.Holders, line.Matching, line.Node = nil, nil, attribution.Matching{}, ""
	if matching := x.Allocation.Line.Matching; l.Component != attribution.RoundingAdjustment {
		again, err := attribution.MatchingOf(matching.Group, matching.Bytes())
		if reason := again.Reason(); err != nil || reason != "" && reason != x.MatchReason || again.MeterReason(&line) != x.MeterReason ||
			reason == "" && l.MatchMethod <= attribution.ByAccount {
			t.Fatalf("allocation %s is matched as %+v, %v: %q, %q", ref(l), again, err, reason, again.MeterReason(&line))
		}
	}
	if same != l.Allocation || holders != l.holders || line != l.line || x.MatchReason == "" || x.ClassReason != l.line.ClassReason {
		t.Fatalf("allocation %s is traced as %+v", ref(l), x)
	}
	switch follows := l.MatchMethod == attribution.ByFollowing && l.Component != attribution.RoundingAdjustment; {
	case l.MatchMethod <= attribution.ByAccount:
		machinesFoot(t, e, l, x)
		if l.Component != attribution.Unmatched {
			if got := weighed(t, e, allocations, &x.Allocation, res.Groups); !slices.Equal(got, x.Machines) && !(len(got) == 0 && len(x.Machines) == 0) {
				t.Fatalf("allocation %s weighs %+v, want %+v", ref(l), got, x.Machines)
			}
		}
	case len(x.Machines) > 0 || x.UnseenMs != 0:
		t.Fatalf("allocation %s has machines %+v", ref(l), x)
	case follows && (x.Followed == nil || x.Followed.Lines == 0), x.Followed != nil && !follows && l.MatchMethod != attribution.ByCommitment:
		t.Fatalf("allocation %s follows %+v", ref(l), x.Followed)
	}
}

func TestTraceInWords(t *testing.T) {
	trace := func(e *estate, line, workspace string) *attribution.Trace {
		t.Helper()
		allocations, _, err := e.run()
		if err != nil {
			t.Fatal(err)
		}
		for i := range allocations {
			if l := &allocations[i]; l.line.ID == line && l.Workspace == workspace {
				if _, x := explained(t, e, l); x != nil {
					return x
				}
			}
		}
		t.Fatalf("%s has no allocation of %s", line, workspace)
		return nil
	}
	e := pool()
	e.add("pooled", attribution.OnDemand, "", "8", 5).Invoice = "v"
	e.add("tax", attribution.Tax, "", "2", 0).Invoice = "v"
	e.add("gone", attribution.OnDemand, "i-9", "2", 0).SKU = ""
	e.lines[2].ClassReason = "PricingCategory is Standard"
	x := trace(e, "pooled", "bob")
	want := []attribution.MachineWeight{{Node: 0, PeriodMs: 2 * hour}, {Node: 1, WeightMs: hour, UsefulMs: hour / 2, PeriodMs: 2 * hour}}
	if !slices.Equal(x.Machines, want) || x.UnseenMs != hour || !strings.Contains(x.MatchReason, "that no line names") {
		t.Errorf("%+v", x)
	}
	x = trace(e, "tax", "bob")
	if f := (attribution.Followed{Scope: "invoice", Name: "v", Lines: 1, Billed: money("8"), Effective: money("8")}); x.Followed == nil || *x.Followed != f || !strings.Contains(x.MatchReason, `invoice "v"`) {
		t.Errorf("%+v follows %+v", x, x.Followed)
	}
	x = trace(e, "gone", "platform")
	if x.ClassReason != "PricingCategory is Standard" || x.MatchReason != "no machine of the fleet matches it" || len(x.Machines) > 0 {
		t.Errorf("%+v", x)
	}
	// A missing allocation is not explained.
	e.trace = &attribution.Ref{Issuer: "S", Account: "x", Line: "pooled", Workspace: "cyd", Hour: start, Component: attribution.Allocated}
	if _, res, err := e.run(); err != nil || res.Trace != nil {
		t.Errorf("%+v, %v", res.Trace, err)
	}
	e.trace.Line, e.trace.Hour = "pooled", start+100*domain.Hour
	if _, res, err := e.run(); err != nil || res.Trace != nil {
		t.Errorf("%+v, %v", res.Trace, err)
	}
	// The trace distinguishes what owners' commitments took from what they left.
	e = pool()
	e.add("ri", attribution.Committed, "", "3", 1).Commitment = "k"
	e.add("od", attribution.OnDemand, "", "6", 3)
	e.commitments = []attribution.Commitment{{ID: "k", Owners: owner("bob")}}
	e.policy.Discount = attribution.OwnersFirst
	x = trace(e, "ri", "bob")
	if m := x.Machines; len(m) != 2 || m[1].WeightMs != hour/2 || m[1].UsefulMs != hour/4 || m[1].PeriodMs != 2*hour || m[0].WeightMs != 0 {
		t.Errorf("%+v", x)
	}
}
