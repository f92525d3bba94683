package costs_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

var aprilBill = projections.BillingMonth(storetest.MayBill.From - 1)

// twoMonths is the house with bills for two hours of April, one of which a held.
func twoMonths() *storetest.Log {
	l := classified()
	l.Append(domain.Envelope{Source: "reporter/n1", Cluster: "c", Time: storetest.Start, Event: storetest.Sample("n1", storetest.Span(-120, -60),
		storetest.Seen{ID: storetest.GPU("c", "n1", 0), Workspace: "a", Deployment: "chat", Activity: -1}, storetest.Seen{ID: storetest.GPU("c", "n1", 1), Workspace: "a", Deployment: "old", Activity: -1})})
	april := func(id, billed, resource string, more func(*domain.BillingLine)) domain.Envelope {
		return recorded(billLine(id, billed, func(b *domain.BillingLine) {
			b.BillingPeriodStart, b.BillingPeriodEnd, b.InvoiceID = aprilBill.From, aprilBill.To, "i-0"
			b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = storetest.Start-2*domain.Hour, storetest.Start, resource
			b.PricingQuantity, b.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(2)), "Hours"
			b.ServiceCategory, b.RegionID, b.SKUID = "Compute", "eu", "gpu-2"
			if more != nil {
				more(b)
			}
		}))
	}
	l.Append(april("a1", "8.005", "r-1", nil), april("a2", "0.3", "", func(b *domain.BillingLine) {
		b.CommitmentDiscountID, b.CommitmentDiscountStatus, b.PricingCategory = "res", "Unused", "Committed"
		b.EffectiveCost = decimal.NewNullDecimal(b.BilledCost)
	}))
	return l
}

func waterfallOf(t *testing.T, v projections.View, workspace string, ledger costs.Ledger) *costs.Waterfall {
	t.Helper()
	var reports []*costs.Report
	for _, month := range []domain.Interval{storetest.MayBill, aprilBill} {
		r, err := costs.NewReport(v, costs.WaterfallOf(month, workspace, ledger, 2))
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	w, err := costs.NewWaterfall(reports[0], reports[1], costs.WaterfallQuery{Workspace: workspace, Ledger: ledger})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// stepText renders a waterfall like a table.
func stepText(b *strings.Builder, s *costs.Step, depth int) {
	or := func(d *domain.Decimal, absent costs.Absent) string {
		if d == nil {
			return string(absent)
		}
		return d.String()
	}
	percent := func(d *domain.Decimal, absent costs.Absent) string {
		return or(d, absent) + map[bool]string{true: "%"}[d != nil]
	}
	fmt.Fprintf(b, "%s%s: %s %s, %s of all; before %s, change %s, %s; %d allocations; per allocated %s, per useful %s\n", strings.Repeat("  ", depth), cmp.Or(s.Name, "(none)"),
		s.EffectiveMinor, s.Currency, percent(s.Share, "none"), s.Before.EffectiveMinor, s.Change.Minor, percent(s.Change.Percent, s.Change.PercentAbsent), s.Allocations,
		or(s.PerAllocated, s.PerAllocatedAbsent), or(s.PerUseful, s.PerUsefulAbsent))
	for i := range s.Steps {
		stepText(b, &s.Steps[i], depth+1)
	}
	for _, l := range s.Largest {
		fmt.Fprintf(b, "%s%s %s\n", strings.Repeat("  ", depth+1), l.Effective, l.Allocation)
	}
}

func TestWaterfallGolden(t *testing.T) {
	storetest.FoldView(t, twoMonths(), func(v projections.View) {
		w := waterfallOf(t, v, "a", costs.Effective)
		var b strings.Builder
		for i := range w.Currencies {
			stepText(&b, &w.Currencies[i], 0)
		}
		golden(t, "waterfall.txt", b.String())
		// The largest allocations can be explained.
		deepest := w.Currencies[1].Steps[0].Steps[0].Steps[0]
		ref, err := attribution.ParseRef(deepest.Largest[0].Allocation)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := costs.Explain(v, ref, nil); err != nil || x.Effective != deepest.Largest[0].Effective {
			t.Errorf("%s is explained as %+v, %v", deepest.Largest[0].Allocation, x, err)
		}
	})
}

// The first step of a waterfall equals the costs of the workspace, in both ledgers, for a report of
// one workspace and of all.
func TestWaterfallIsOfTheCosts(t *testing.T) {
	storetest.FoldView(t, twoMonths(), func(v projections.View) {
		all := map[domain.Interval]*costs.Report{}
		for _, month := range []domain.Interval{storetest.MayBill, aprilBill} {
			q := costs.WaterfallOf(month, "", costs.Billed, 2)
			q.By = append([]costs.Dimension{costs.ByWorkspace}, q.By...)
			r, err := costs.NewReport(v, q)
			if err != nil {
				t.Fatal(err)
			}
			all[month] = r
		}
		for _, workspace := range []string{"a", "b", "own", "platform", "platform:unobserved"} {
			w := waterfallOf(t, v, workspace, costs.Billed)
			whole, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, Workspace: workspace})
			if err != nil {
				t.Fatal(err)
			}
			for i, total := range whole.Totals {
				s := w.Currencies[i]
				if s.Billed != total.Billed || s.Effective != total.Effective || s.BilledMinor != total.BilledMinor || s.EffectiveMinor != total.EffectiveMinor || s.Bought != total.Bought || *s.Useful != *total.Useful {
					t.Errorf("%s begins with %+v, want %+v", workspace, s.Cost, total)
				}
			}
			w2, err := costs.NewWaterfall(all[storetest.MayBill], all[aprilBill], costs.WaterfallQuery{Workspace: workspace, Ledger: costs.Billed})
			if err != nil {
				t.Fatal(err)
			}
			one, _ := json.Marshal(w)
			other, _ := json.Marshal(w2)
			if string(one) != string(other) {
				t.Errorf("of one workspace\n%s\nof all\n%s", one, other)
			}
		}
	})
}

func TestWaterfallRefuses(t *testing.T) {
	storetest.FoldView(t, twoMonths(), func(v projections.View) {
		get := func(q costs.Query) *costs.Report {
			r, err := costs.NewReport(v, q)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		good := get(costs.WaterfallOf(storetest.MayBill, "a", "", 0))
		for name, c := range map[string]struct {
			this, before *costs.Report
			q            costs.WaterfallQuery
		}{
			"no workspace":       {good, nil, costs.WaterfallQuery{}},
			"another workspace":  {good, nil, costs.WaterfallQuery{Workspace: "b"}},
			"not by component":   {get(costs.Query{Month: storetest.MayBill, Workspace: "a"}), nil, costs.WaterfallQuery{Workspace: "a"}},
			"not the month then": {good, good, costs.WaterfallQuery{Workspace: "a"}},
		} {
			if _, err := costs.NewWaterfall(c.this, c.before, c.q); !errors.Is(err, costs.ErrNotComparable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := costs.NewWaterfall(good, nil, costs.WaterfallQuery{Workspace: "a", Ledger: "paid"}); err == nil {
			t.Error("an unknown ledger was answered")
		}
		w, err := costs.NewWaterfall(good, nil, costs.WaterfallQuery{Workspace: "a"})
		if err != nil || w.Before != nil || w.Currencies[0].Before != nil || w.Currencies[0].Change.Amount != nil || w.Currencies[0].Change.PercentAbsent != costs.NoBillsBefore {
			t.Errorf("without a month before: %+v, %v", w, err)
		}
	})
}

// naiveStep is a step computed by scanning all groups again.
type naiveStep struct{ now, before *big.Rat }

func naiveSteps(this, before *costs.Report, of costs.Ledger, path []string) naiveStep {
	sum := func(r *costs.Report) *big.Rat {
		total := new(big.Rat)
		for _, g := range r.Groups {
			key := []string{g.Currency, g.Key[costs.ByComponent], g.Key[costs.ByCluster], g.Key[costs.ByDeployment]}
			if !slices.Equal(key[:len(path)], path) {
				continue
			}
			amount := g.Effective
			if of == costs.Billed {
				amount = g.Billed
			}
			total.Add(total, amount.Decimal().Rat())
		}
		return total
	}
	return naiveStep{sum(this), sum(before)}
}

// drawnReport is a report with some groups of a workspace.
func drawnReport(t *rapid.T, name string, month domain.Interval) *costs.Report {
	r := &costs.Report{Position: "p", Month: month, Workspace: "w", By: []costs.Dimension{costs.ByComponent, costs.ByCluster, costs.ByDeployment}, Lines: 1}
	paid := map[string]attribution.Amount{}
	seen := map[string]bool{}
	for range rapid.IntRange(0, 8).Draw(t, name+" groups") {
		pick := func(what string, of ...string) string { return rapid.SampledFrom(of).Draw(t, what) }
		g := costs.Group{Key: map[costs.Dimension]string{
			costs.ByComponent: pick("component", "allocated", "idle", "failed"), costs.ByCluster: pick("cluster", "", "c1", "c2"), costs.ByDeployment: pick("deployment", "", "d1", "d2"),
		}, Allocations: 1}
		g.Currency = pick("currency", "USD", "USD", "JPY")
		if id := fmt.Sprint(g.Key, g.Currency); seen[id] {
			continue
		} else {
			seen[id] = true
		}
		amount := func(what string) attribution.Amount {
			a, err := attribution.AmountOf(decimal.New(int64(rapid.IntRange(-20_000, 40_000).Draw(t, what)), -3))
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		g.Billed, g.Effective, g.Bought = amount("billed"), amount("effective"), int64(rapid.IntRange(0, 9).Draw(t, "bought"))
		r.Groups = append(r.Groups, g)
		paid[g.Currency] = paid[g.Currency].Add(g.Billed)
	}
	for currency, sum := range paid {
		r.Statements = append(r.Statements, attribution.Statement{Workspace: "w", Currency: currency, Billed: sum, Amount: sum.Minor(currency)})
	}
	return r
}

func TestWaterfallAgainstNaive(t *testing.T) {
	long.Check(t, 300, 30_000, func(t *rapid.T) {
		this, before := drawnReport(t, "this month", storetest.MayBill), drawnReport(t, "the month before", aprilBill)
		ledger := rapid.SampledFrom([]costs.Ledger{costs.Effective, costs.Billed}).Draw(t, "ledger")
		w, err := costs.NewWaterfall(this, before, costs.WaterfallQuery{Workspace: "w", Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		leaves := map[string]bool{}
		var walk func(s *costs.Step, path []string, whole *big.Rat)
		walk = func(s *costs.Step, path []string, whole *big.Rat) {
			want := naiveSteps(this, before, ledger, path)
			if whole == nil {
				whole = want.now
			}
			now, then, minor := s.Effective, s.Before.Effective, s.EffectiveMinor.Sub(s.Before.EffectiveMinor)
			if ledger == costs.Billed {
				now, then, minor = s.Billed, s.Before.Billed, s.BilledMinor.Sub(s.Before.BilledMinor)
			}
			change := new(big.Rat).Sub(want.now, want.before)
			if now.Decimal().Rat().Cmp(want.now) != 0 || then.Decimal().Rat().Cmp(want.before) != 0 || s.Change.Amount.Decimal().Rat().Cmp(change) != 0 || *s.Change.Minor != minor {
				t.Fatalf("%v is %s after %s, change %s, want %+v", path, now, then, s.Change.Amount, want)
			}
			ratio := func(got *domain.Decimal, part, of *big.Rat, defined bool, what string) {
				if (got != nil) != defined {
					t.Fatalf("%s of %v is %v", what, path, got)
				}
				if defined {
					p := new(big.Rat).Quo(new(big.Rat).Mul(part, big.NewRat(100, 1)), of)
					if off := p.Sub(p, got.Rat()); off.Abs(off).Cmp(big.NewRat(5, 1000)) > 0 {
						t.Fatalf("%s of %v is %s, off by %s", what, path, got, off.FloatString(4))
					}
				}
			}
			ratio(s.Share, want.now, whole, whole.Sign() != 0, "the share")
			ratio(s.Change.Percent, change, want.before, want.before.Sign() > 0, "the change")
			if len(path) == 4 {
				leaves[strings.Join(path, "|")] = true
				return
			}
			sum, sumThen := costs.Cost{}, costs.Cost{}
			for i := range s.Steps {
				x := &s.Steps[i]
				sum.Billed, sum.Effective = sum.Billed.Add(x.Billed), sum.Effective.Add(x.Effective)
				sum.BilledMinor.Amount, sum.EffectiveMinor.Amount = sum.BilledMinor.Amount.Add(x.BilledMinor.Amount), sum.EffectiveMinor.Amount.Add(x.EffectiveMinor.Amount)
				sum.Bought += x.Bought
				sumThen.BilledMinor.Amount, sumThen.EffectiveMinor.Amount = sumThen.BilledMinor.Amount.Add(x.Before.BilledMinor.Amount), sumThen.EffectiveMinor.Amount.Add(x.Before.EffectiveMinor.Amount)
				if i > 0 {
					a, b := s.Steps[i-1].Effective, x.Effective
					if ledger == costs.Billed {
						a, b = s.Steps[i-1].Billed, x.Billed
					}
					if a.Cmp(b) < 0 {
						t.Fatalf("%v: %s stands before %s", path, a, b)
					}
				}
				walk(x, append(slices.Clone(path), x.Name), whole)
			}
			if sum.Billed != s.Billed || sum.Effective != s.Effective || sum.Bought != s.Bought || sum.BilledMinor.Amount != s.BilledMinor.Amount || sum.EffectiveMinor.Amount != s.EffectiveMinor.Amount ||
				sumThen.BilledMinor.Amount != s.Before.BilledMinor.Amount || sumThen.EffectiveMinor.Amount != s.Before.EffectiveMinor.Amount {
				t.Fatalf("the steps of %v add up to %+v and %+v, want %+v and %+v", path, sum, sumThen, s.Cost, s.Before)
			}
		}
		for i := range w.Currencies {
			walk(&w.Currencies[i], []string{w.Currencies[i].Currency}, nil)
		}
		for _, r := range []*costs.Report{this, before} {
			for _, g := range r.Groups {
				if path := strings.Join([]string{g.Currency, g.Key[costs.ByComponent], g.Key[costs.ByCluster], g.Key[costs.ByDeployment]}, "|"); !leaves[path] {
					t.Fatalf("%s has no step", path)
				}
			}
		}
	})
}
