package attribution_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/attribution"
)

// held returns the allocations of an estate with their holders.
func held(t *rapid.T, e *estate) (all []attribution.Allocation) {
	if _, err := attribution.Run(e.input(), func(l *attribution.Allocation) error {
		kept, line := *l, *l.Line
		kept.Line = &line
		all = append(all, kept)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// holdersFoot checks that what units have on machines adds up to each allocation in every figure, after the division is
// over, and that the weights of holders are those that the allocation was divided by.
func holdersFoot(t *rapid.T, e *estate) {
	for _, l := range held(t, e) {
		sum := l
		sum.Billed, sum.Effective, sum.BoughtMs, sum.AllocatedMs, sum.MeasuredMs, sum.UsefulMs = attribution.Amount{}, attribution.Amount{}, 0, 0, 0, 0
		var micros uint64
		var last *attribution.Holder
		if err := l.Divide(func(h *attribution.Holder, part *attribution.Allocation) error {
			if last != nil && cmp.Or(strings.Compare(last.Unit, h.Unit), strings.Compare(last.Node, h.Node)) >= 0 {
				t.Fatalf("%+v of allocation %s comes after %+v", *h, l.Ref(), *last)
			}
			of := *h
			last = &of
			micros += h.Micros
			if h.Known > h.Micros || h.Useful > h.Known {
				t.Fatalf("allocation %s has holder %+v", l.Ref(), *h)
			}
			if h.Unit != "" && l.Component != attribution.Allocated && l.MatchMethod <= attribution.ByAccount {
				t.Fatalf("allocation %s is held by %q", l.Ref(), h.Unit)
			}
			b, a, m, u := part.BoughtMs, part.AllocatedMs, part.MeasuredMs, part.UsefulMs
			if l.BoughtMs < 0 {
				b, a, m, u = -b, -a, -m, -u
			}
			if u < 0 || u > m || m > a || a > b {
				t.Fatalf("%+v has %d ms useful, %d measured, %d allocated and %d bought of allocation %s", *h, u, m, a, b, l.Ref())
			}
			if part.Billed.Sign()*l.Billed.Sign() < 0 || part.Effective.Sign()*l.Effective.Sign() < 0 {
				t.Fatalf("%+v has %s and %s of %s and %s", *h, part.Billed, part.Effective, l.Billed, l.Effective)
			}
			sum.Billed, sum.Effective = sum.Billed.Add(part.Billed), sum.Effective.Add(part.Effective)
			sum.BoughtMs, sum.AllocatedMs = sum.BoughtMs+part.BoughtMs, sum.AllocatedMs+part.AllocatedMs
			sum.MeasuredMs, sum.UsefulMs = sum.MeasuredMs+part.MeasuredMs, sum.UsefulMs+part.UsefulMs
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if sum != l {
			t.Fatalf("the holders of allocation %s have %+v of %+v", l.Ref(), sum, l)
		}
		// A single holder has all, whatever its weight.
		if weight := l.Weight.Decimal().Shift(3); l.Holders.Len() > 1 && l.MatchMethod <= attribution.ByAccount && fmt.Sprint(micros) != weight.String() {
			t.Fatalf("the holders of allocation %s weigh %d microseconds, want %s", l.Ref(), micros, weight)
		}
	}
}

// TestHoldersOfFollowing divides a machine's committed and on-demand time between two pods of one deployment, and lets
// tax and a credit follow. Each pod bears them as it bears the charges that they follow: billed cost by billed cost, of
// which the commitment has none, and effective cost by effective cost.
func TestHoldersOfFollowing(t *testing.T) {
	e := &estate{
		nodes: []attribution.Node{
			{Cluster: "c1", Node: "a", Account: "x", Resource: "i-a", SKU: "big", GPUs: 1, Service: month},
			{Cluster: "c1", Node: "b", Account: "x", Resource: "i-b", SKU: "big", GPUs: 1, Service: month},
		},
	}
	for i, unit := range []string{"pod-1", "pod-2"} {
		e.hours = append(e.hours, attribution.NodeHour{Node: i, Hour: start, Parts: []attribution.Part{
			{Component: attribution.Allocated, Workspace: "ada", Deployment: "d", Unit: unit, GPUMs: hour},
		}})
	}
	line := attribution.Line{Issuer: "S", Account: "x", Invoice: "v", Currency: "USD", BillingPeriod: month, Category: "Usage", NodeMs: hour}
	line.ChargePeriod.From, line.ChargePeriod.To = start, start+3600*1000*ms
	covered, demand, tax := line, line, line
	covered.ID, covered.Resource, covered.Class, covered.Commitment, covered.Effective = "1", "i-a", attribution.Committed, "k", money("6")
	demand.ID, demand.Resource, demand.Class, demand.Billed, demand.Effective = "2", "i-b", attribution.OnDemand, money("3"), money("3")
	tax.ID, tax.Class, tax.Category, tax.Billed, tax.Effective, tax.NodeMs = "3", attribution.Tax, "Tax", money("0.9"), money("0.9"), 0
	back := tax
	back.ID, back.Billed, back.Effective = "4", tax.Billed.Neg(), tax.Effective.Neg()
	e.lines = []attribution.Line{covered, demand, tax, back}
	got := map[string][]string{}
	if _, err := attribution.Run(e.input(), func(l *attribution.Allocation) error {
		return l.Divide(func(h *attribution.Holder, part *attribution.Allocation) error {
			got[l.Line.ID] = append(got[l.Line.ID], fmt.Sprintf("%s %s %s %s", h.Unit, h.Node, part.Billed, part.Effective))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"1": {"pod-1 c1/a 0 6"},
		"2": {"pod-2 c1/b 3 3"},
		"3": {"pod-1 c1/a 0 0.6", "pod-2 c1/b 0.9 0.3"},
		"4": {"pod-1 c1/a 0 -0.6", "pod-2 c1/b -0.9 -0.3"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("pods have %q, want %q", got, want)
	}
}

// TestBytesOfHolders counts what a division that is kept in memory keeps of holders.
func TestBytesOfHolders(t *testing.T) {
	var last int
	for n, h := range []*attribution.Holders{
		nil, attribution.HoldersOf(make([]attribution.Holder, 1)), attribution.HoldersOf(make([]attribution.Holder, 100)),
	} {
		if bytes := h.Bytes(); (bytes == 0) != (h == nil) || bytes < last+80*h.Len() {
			t.Errorf("holders %d take %d bytes, those before %d", n, bytes, last)
		} else {
			last = bytes
		}
	}
}

// TestDivideStops returns the error of the caller at once.
func TestDivideStops(t *testing.T) {
	enough, calls := errors.New("enough"), 0
	l := attribution.Allocation{Billed: money("1"), Holders: attribution.HoldersOf([]attribution.Holder{
		{Unit: "a", Micros: 1}, {Unit: "b", Micros: 2}, {Unit: "c", Micros: 3},
	})}
	err := l.Divide(func(*attribution.Holder, *attribution.Allocation) error {
		if calls++; calls == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 2 {
		t.Errorf("after %d calls it returned %v", calls, err)
	}
}
