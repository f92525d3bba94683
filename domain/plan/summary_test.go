package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// Of six machines of K from aws two wait, and four are signed when the horizon begins; three are decided in
// September, and two in July. A spend commitment counts no machines.
func TestSummarySigning(t *testing.T) {
	term := func(from string) domain.Interval { return domain.Interval{From: at(from), To: at("2029-06-01")} }
	p := &Plan{Horizon: term("2026-06-01"), Regions: []RegionPlan{
		{Region: "r", Purchases: []Purchase{
			{Provider: "aws", GPUModel: "K", SKU: "k8", Units: 6, Term: term("2026-06-01"), Upfront: dec("60"), Cost: dec("100"), Wait: &Wait{Units: 2}},
			{Provider: "aws", GPUModel: "K", SKU: "k4", Units: 3, Term: term("2026-10-01"), OrderBy: at("2026-09-01"), Cost: dec("10")},
			{Provider: "aws", SKU: "cpu", Units: 1, Term: term("2026-06-01"), Cost: dec("1")},
		}},
		{Region: "s", Purchases: []Purchase{
			{Provider: "aws", GPUModel: "K", SKU: "k8", Units: 2, Term: term("2026-08-01"), Cost: dec("20"), Decision: &Decision{By: at("2026-07-01")}},
			{Provider: "aws", SKU: "plan", Units: 50, Covers: []string{"s K"}, Term: term("2026-06-01"), Upfront: dec("7"), Cost: dec("5")},
		}},
	}}
	want := []Signing{
		{Supplier: "aws", Class: "K", Now: 4, Upfront: dec("40"), Waiting: 2, Later: 5, Next: at("2026-07-01"), Cost: dec("130")},
		{Supplier: "aws", Class: "cpu", Now: 1, Cost: dec("1")},
		{Supplier: "aws", Class: "spend", Upfront: dec("7"), Cost: dec("5")},
	}
	if got := p.Summary().Signing; !equalJSON(t, got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The rule that costs least is shown, if it keeps the budgets; up to 1% more is as good.
func TestSummaryNamesRule(t *testing.T) {
	p := &Plan{Total: Amounts{Cost: dec("1000")}, Baselines: []Baseline{
		{Name: "buy_nothing", Cost: dec("1001")}, {Name: "on_demand", Cost: dec("1002")}, {Name: "peak_60d", Cost: dec("1003"), Broken: []string{"b"}},
		{Name: "ladder_60d", Cost: dec("1012")}, {Name: "lookback_7d", Cost: dec("1010")}, {Name: "lookback_30d", Cost: dec("1010")},
	}}
	if r := p.Summary().Rule; r == nil || r.Baseline != "lookback_7d" || !r.More.Equal(dec("10")) || r.Percent.String() != "1" || !r.AsGood {
		t.Errorf("rule %+v", r)
	}
	p.Baselines = p.Baselines[:4]
	if r := p.Summary().Rule; r == nil || r.Baseline != "ladder_60d" || r.AsGood {
		t.Errorf("rule %+v", r)
	}
	p.Baselines = p.Baselines[:3]
	if r := p.Summary().Rule; r != nil {
		t.Errorf("rule %+v", r)
	}
}

func TestSummaryByHand(t *testing.T) {
	price := dec("700")
	p := &Plan{
		ID: "plan-1", Assumptions: Assumptions{Currency: "USD"},
		Total:     Amounts{Cost: dec("800"), Current: dec("1000"), OnDemand: dec("640"), LowerBound: dec("800")},
		Baselines: []Baseline{{Name: "buy_nothing", Cost: dec("1000")}, {Name: "on_demand", Cost: dec("1600")}},
		Regions: []RegionPlan{{
			Region: "east", Purchases: []Purchase{{Units: 2, GPUs: 16, Upfront: dec("10.50")}, {Units: 1, GPUs: 8, Upfront: dec("4")}},
			Pools: []PoolPlan{
				{Kind: "H100", GPUsPerUnit: 8, Served: Served{Held: 30, Unused: 10, OnDemand: 10}, ExcludedOffers: []ExcludedOffer{{"priced in EUR", 3, "o1"}},
					Binding: []Binding{{Constraint: "spot_share", Months: make([]domain.Instant, 9)}, {Constraint: "on_demand_quota", Price: &price}}},
				{Kind: "A100", GPUsPerUnit: 4, Served: Served{Held: 20, Spot: 10, Shortage: 10}, ExcludedOffers: []ExcludedOffer{{"priced in EUR", 2, "o2"}}},
			},
		}},
		Components: []Component{{Pools: []string{"east A100", "east H100"}, Binding: []Binding{{Constraint: "quota", Months: make([]domain.Instant, 10)}}}},
		Excluded:   []ExcludedPool{{"east", "V100", "gpu", "no demand", "import some"}, {"", "L4", "gpu", "no demand", "import some"}},
		Ignored:    []Ignored{{Commitment: "savings", Reason: "spans pools"}},
	}
	s := p.Summary()
	// Commitments serve 30 × 8 + 20 × 4 = 320 of 40 × 8 + 40 × 4 = 480 GPU-hours, and 10 × 8
	// of theirs are unused.
	if s.Coverage.String() != "66.67" || s.Utilization.String() != "80" {
		t.Errorf("coverage %s, utilization %s", s.Coverage, s.Utilization)
	}
	want := []Saving{
		{BuyNothing, dec("1000"), dec("200"), decimalOf("20"), nil},
		{UnderQuota, dec("1600"), dec("800"), decimalOf("50"), nil},
		{WithoutQuota, dec("640"), dec("-160"), decimalOf("-25"), nil},
	}
	if !equalJSON(t, s.Savings, want) {
		t.Errorf("savings %+v", s.Savings)
	}
	if s.Purchases != 2 || s.Units != 3 || s.GPUs != 24 || s.Upfront.String() != "14.5" || s.Pools != 2 || !slices.Equal(s.Regions, []string{"east"}) {
		t.Errorf("summary %+v", s)
	}
	if !equalJSON(t, s.Excluded, []Excluded{
		{"pools", "no demand", 2, []string{"east V100", "L4"}, "import some"},
		{"commitments", "spans pools", 1, []string{"savings"}, ""},
		{"offers", "priced in EUR", 5, []string{"o1", "o2"}, ""},
	}) {
		t.Errorf("excluded %+v", s.Excluded)
	}
	order := []string{}
	for _, b := range s.Binding {
		order = append(order, b.Constraint+" of "+strings.Join(b.Pools, "+"))
	}
	if !slices.Equal(order, []string{"on_demand_quota of east H100", "quota of east A100+east H100", "spot_share of east H100"}) {
		t.Errorf("binding %v", order)
	}
}

func decimalOf(s string) *domain.Decimal {
	d := dec(s)
	return &d
}

// A percentage of zero is null.
func TestSummaryOfNothing(t *testing.T) {
	s := (&Plan{}).Summary()
	if s.Coverage != nil || s.Utilization != nil || s.Savings[0].Percent != nil || len(s.Excluded)+len(s.Binding) != 0 {
		t.Errorf("summary %+v", s)
	}
}

// A summary agrees with the totals and the parts of the plan.
func TestSummaryFoots(t *testing.T) {
	full, lp, ctx := 0, lazily(t), t.Context()
	rapid.Check(t, func(t *rapid.T) {
		p, err := Compute(ctx, anyQuestion(t), lp)
		if err != nil {
			t.Fatal(err)
		}
		document, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Summary()
		for _, x := range s.Savings {
			if !x.Amount.Add(s.Cost).Equal(x.Cost) {
				t.Errorf("%s: %s saved and %s spent are not %s", x.Against, x.Amount, s.Cost, x.Cost)
			}
			var sum decimal.Decimal // of the pools
			for i := range p.Regions {
				for j := range p.Regions[i].Pools {
					q := &p.Regions[i].Pools[j]
					of := q.Current
					if x.Against == WithoutQuota {
						of = q.Amounts.OnDemand
					}
					sum = sum.Add(of.Sub(q.Cost))
				}
			}
			if x.Against != UnderQuota && !sum.Equal(x.Amount) {
				t.Errorf("%s: pools save %s, the summary says %s", x.Against, sum, x.Amount)
			}
		}
		for _, share := range []*domain.Decimal{s.Coverage, s.Utilization} {
			if share != nil && (share.IsNegative() || share.GreaterThan(decimal.NewFromInt(100))) {
				t.Errorf("%s%% of a whole", share)
			}
		}
		left, bindings, orders := 0, 0, 0
		for _, x := range s.Excluded {
			if x.What != "offers" {
				left += x.Count
			}
		}
		for i := range p.Regions {
			orders += len(p.Regions[i].Purchases)
			for j := range p.Regions[i].Pools {
				bindings += len(p.Regions[i].Pools[j].Binding)
			}
		}
		for i := range p.Components {
			bindings += len(p.Components[i].Binding)
		}
		if left != len(p.Excluded)+len(p.Ignored) || len(s.Binding) != bindings || s.Purchases != orders {
			t.Errorf("%d of %d excluded, %d of %d bounds, %d of %d orders", left, len(p.Excluded)+len(p.Ignored), len(s.Binding), bindings, s.Purchases, orders)
		}
		if orders > 0 {
			full++
		}
		if after, err := json.Marshal(p); err != nil || string(after) != string(document) {
			t.Errorf("a summary changes its plan: %v", err)
		}
	})
	if full == 0 {
		t.Error("no plan buys anything")
	}
}

// mirrored is a diff with its sides exchanged.
func mirrored(d *Diff) *Diff {
	status := map[Status]Status{Added: Removed, Removed: Added, Changed: Changed}
	turned := func(c AmountChange) AmountChange { return AmountChange{c.Name, c.B, c.A, c.Change.Neg()} }
	m := &Diff{A: d.B, B: d.A, Currency: d.Currency, Costs: []AmountChange{}, Assumptions: []AssumptionChange{}, Regions: []RegionChange{}, Pools: []PoolChange{}, Purchases: []PurchaseChange{}}
	for _, c := range d.Costs {
		m.Costs = append(m.Costs, turned(c))
	}
	for _, x := range d.Assumptions {
		m.Assumptions = append(m.Assumptions, AssumptionChange{x.Name, x.B, x.A})
	}
	for _, x := range d.Regions {
		m.Regions = append(m.Regions, RegionChange{x.Region, status[x.Status], turned(x.Cost)})
	}
	for _, x := range d.Pools {
		x.Status, x.Cost = status[x.Status], turned(x.Cost)
		x.UnitHoursA, x.UnitHoursB, x.HeldA, x.HeldB = x.UnitHoursB, x.UnitHoursA, x.HeldB, x.HeldA
		m.Pools = append(m.Pools, x)
	}
	for _, x := range d.Purchases {
		x.Status, x.Upfront, x.Cost, x.UnitsA, x.UnitsB = status[x.Status], turned(x.Upfront), turned(x.Cost), x.UnitsB, x.UnitsA
		m.Purchases = append(m.Purchases, x)
	}
	return m
}

// A plan does not differ from itself, a diff in the other direction is its mirror image, and
// changes of regions, pools and purchases add up to the changes of costs.
func TestAnyDiff(t *testing.T) {
	differ := 0
	rapid.Check(t, func(t *rapid.T) {
		first, second := anyQuestion(t), anyQuestion(t)
		if rapid.Bool().Draw(t, "alike") { // so that purchases change and are not only added and removed
			again := *first
			again.Assumptions.ShortageFactor = second.Assumptions.ShortageFactor
			again.Assumptions.Salvage = second.Assumptions.Salvage
			again.Pools = slices.Clone(first.Pools[:rapid.IntRange(1, len(first.Pools)).Draw(t, "kept")])
			second = &again
		}
		a, err := Compute(t.Context(), first, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Compute(t.Context(), second, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := NewDiff(a, a); err != nil || !d.Empty() {
			t.Fatalf("a plan differs from itself: %+v, %v", d, err)
		}
		d, err := NewDiff(a, b)
		if err != nil {
			t.Fatal(err)
		}
		back, err := NewDiff(b, a)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(mirrored(d))
		got, _ := json.Marshal(back)
		if string(got) != string(want) {
			t.Errorf("from the other side\n%s\nwant\n%s", got, want)
		}
		var regions, pools, units decimal.Decimal
		for _, x := range d.Regions {
			regions = regions.Add(x.Cost.Change)
		}
		for _, x := range d.Pools {
			pools = pools.Add(x.Cost.Change)
		}
		for _, x := range d.Purchases {
			units = units.Add(decimal.NewFromInt(int64(x.UnitsB - x.UnitsA)))
		}
		if total := d.Costs[0].Change; !total.Equal(regions) || !total.Equal(pools) {
			t.Errorf("cost changes by %s, of regions by %s, of pools by %s", total, regions, pools)
		}
		if n := b.Summary().Units - a.Summary().Units; !units.Equal(decimal.NewFromInt(int64(n))) {
			t.Errorf("%s units more by purchase, %d in all", units, n)
		}
		if !d.Empty() {
			differ++
		}
	})
	if differ == 0 {
		t.Error("no plans differ")
	}
}

func TestDiffByHand(t *testing.T) {
	q := question()
	a := compute(t, q)
	q = question()
	q.Pools = q.Pools[:1] // west only
	q.Assumptions.MonthlyGrowth = dec("0.02")
	b := compute(t, q)
	d, err := NewDiff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if !equalJSON(t, d.Assumptions, []AssumptionChange{{"monthly_growth", "0", "0.02"}}) {
		t.Errorf("assumptions %+v", d.Assumptions)
	}
	if len(d.Regions) != 2 || d.Regions[0].Status != Removed || d.Regions[0].Region != "east" || d.Regions[1].Status != Changed {
		t.Errorf("regions %+v", d.Regions)
	}
	if len(d.Pools) != 2 || d.Pools[0].UnitHoursB != 0 || d.Pools[1].UnitHoursB <= d.Pools[1].UnitHoursA {
		t.Errorf("pools %+v", d.Pools)
	}
	if i := slices.IndexFunc(d.Purchases, func(x PurchaseChange) bool { return x.Region == "east" && x.Status != Removed }); i >= 0 || len(d.Purchases) < 2 {
		t.Errorf("purchases %+v", d.Purchases)
	}
	// 0.02 and 0.020 are one assumption.
	q.Assumptions.MonthlyGrowth = dec("0.020")
	if d, err = NewDiff(b, compute(t, q)); err != nil || !d.Empty() {
		t.Errorf("0.02 and 0.020 differ: %+v, %v", d, err)
	}
	b.Assumptions.Currency = "EUR"
	if _, err := NewDiff(a, b); !errors.Is(err, ErrCurrencies) {
		t.Errorf("plans in two currencies: %v", err)
	}
}

// A plan of one region keeps its old encoding; a plan of several lists them.
func TestRegionsAsked(t *testing.T) {
	for _, c := range []struct {
		only []string
		want string
	}{
		{nil, ""}, {[]string{"west"}, `"region":"west"`}, {[]string{"east", "west"}, `"regions_asked":["east","west"]`},
	} {
		q := question()
		q.Only = c.only
		p := compute(t, q)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Asked(), c.only) || !strings.Contains(string(text), c.want) || len(c.only) < 2 && strings.Contains(string(text), "regions_asked") {
			t.Errorf("of %v: %s", c.only, text[:300])
		}
	}
}
