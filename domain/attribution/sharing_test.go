package attribution_test

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// share draws rules that share lines, and the lines that they take if those have no machine of their own.
func (e *estate) share(t *rapid.T) {
	e.rules = []attribution.MeterRule{{Name: "held", ShareBy: domain.ShareByGPUHours}, {Name: "fixed"}}
	for _, w := range []string{"ada", "bob", "dan"} {
		if weight := rapid.Uint32Range(0, 4).Draw(t, "weight"); weight > 0 || w == "dan" {
			e.rules[1].Shares = append(e.rules[1].Shares, domain.WorkspaceWeight{Workspace: w, Weight: max(1, weight)})
		}
	}
	for i := range e.lines {
		e.lines[i].ToRule = rapid.SampledFrom([]string{"", "held", "fixed"}).Draw(t, "rule")
	}
}

// shares returns what a rule gives each workspace of a line, in rational numbers and without the package's code.
func (e *estate) shares(l *attribution.Line) map[string]*big.Rat {
	of := map[string]*big.Rat{}
	add := func(workspace string, n int64) {
		if n > 0 {
			if of[workspace] == nil {
				of[workspace] = new(big.Rat)
			}
			of[workspace].Add(of[workspace], big.NewRat(n, 1))
		}
	}
	if l.ToRule == "fixed" {
		for _, s := range e.rules[1].Shares {
			add(s.Workspace, int64(s.Weight))
		}
	} else {
		for i := range e.hours {
			h := &e.hours[i]
			if h.Hour+domain.Hour <= l.ChargePeriod.From || h.Hour >= l.ChargePeriod.To {
				continue
			}
			for _, p := range h.Parts {
				if p.Component == attribution.Allocated {
					add(cmp.Or(p.Workspace, attribution.Platform), 1000*p.GPUMs+p.Micros)
				}
			}
		}
	}
	if len(of) == 0 {
		add(attribution.Platform, 1)
	}
	total := new(big.Rat)
	for _, r := range of {
		total.Add(total, r)
	}
	for _, r := range of {
		r.Quo(r, total)
	}
	return of
}

// TestSharesAddUp checks lines that rules share against rational numbers: each part is within one unit of 10⁻¹⁸, and
// they add up to the line. No money of another line moves, except of lines that follow.
func TestSharesAddUp(t *testing.T) {
	seen := map[string]int{}
	long.Check(t, 500, 100_000, func(t *rapid.T) {
		e := drawEstate(t, drawing{plain: true, shared: true})
		allocations, _ := must(t, e)
		got := map[string]map[string]costs{}
		lines := map[string]*attribution.Line{}
		for i := range allocations {
			l := &allocations[i]
			if l.MatchMethod != attribution.ByRule {
				if l.Component == attribution.SharedCost && l.MatchMethod != attribution.ByFollowing {
					t.Fatalf("%s is shared by no rule", ref(l))
				}
				continue
			}
			if l.Component != attribution.SharedCost || l.Hour != 0 || l.Cluster != "" || l.BoughtMs != 0 {
				t.Fatalf("%s is shared", ref(l))
			}
			id := l.line.Account + "/" + l.line.ID
			if got[id] == nil {
				got[id], lines[id] = map[string]costs{}, &l.line
			}
			got[id][l.Workspace] = costs{l.Billed, l.Effective}
		}
		for id, l := range lines {
			want, sum := e.shares(l), costs{}
			if w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got[id])); !slices.Equal(w, g) {
				t.Fatalf("%s is shared by %v, want %v", id, g, w)
			}
			for workspace, part := range got[id] {
				sum = sum.add(part.billed, part.effective)
				for _, a := range [][2]attribution.Amount{{part.billed, l.Billed}, {part.effective, l.Effective}} {
					off := new(big.Rat).Mul(want[workspace], new(big.Rat).SetInt(units(a[1])))
					off.Sub(off, new(big.Rat).SetInt(units(a[0])))
					if off.Abs(off).Cmp(big.NewRat(1, 1)) >= 0 {
						t.Fatalf("%s: %s pays %s of %s, want a share of %s", id, workspace, a[0], a[1], want[workspace])
					}
				}
			}
			if sum != (costs{l.Billed, l.Effective}) {
				t.Fatalf("the shares of %+v add up to %v", l, sum)
			}
			seen[l.ToRule]++
			if _, ok := want[attribution.Platform]; ok && len(want) == 1 {
				seen["nobody held any"]++
			} else if len(want) > 1 {
				seen["among several"]++
			}
		}

		bare := *e
		bare.lines = slices.Clone(e.lines)
		for i := range bare.lines {
			bare.lines[i].ToRule = ""
		}
		without, _ := must(t, &bare)
		money := func(all []allocation) map[string]costs {
			of := map[string]costs{}
			for i := range all {
				l := &all[i]
				switch id := l.line.Account + "/" + l.line.ID; {
				case l.line.Recurring || l.line.Class >= attribution.Credit, lines[id] != nil: // it follows, or is shared
				default:
					of[ref(l)] = costs{l.Billed, l.Effective}
				}
			}
			return of
		}
		if with, without := money(allocations), money(without); !maps.Equal(with, without) {
			t.Fatalf("other lines are divided\n%v\nand without rules\n%v", with, without)
		}
	})
	for _, what := range []string{"held", "fixed", "nobody held any", "among several"} {
		if seen[what] == 0 {
			t.Errorf("no line was shared %s: %v", what, seen)
		}
	}
}

// A rule that is not given, or that says two things, is an error and no division.
func TestSharesAreRefused(t *testing.T) {
	rule := attribution.MeterRule{Name: "r", Shares: []domain.WorkspaceWeight{{Workspace: "a", Weight: 1}}}
	for want, rules := range map[string][]attribution.MeterRule{
		`mapping rule "r" is not given`:              nil,
		`mapping rule "r" is given twice`:            {rule, rule},
		`mapping rule "r" gives workspace "a" two`:   {{Name: "r", Shares: append(rule.Shares, rule.Shares...)}},
		`mapping rule "r" shares by "by_gpu_hours"`:  {{Name: "r", Shares: rule.Shares, ShareBy: domain.ShareByGPUHours}},
		`mapping rule "r" shares by "by_head"`:       {{Name: "r", ShareBy: "by_head"}},
		`mapping rule "r": a weight of no workspace`: {{Name: "r", Shares: []domain.WorkspaceWeight{{Weight: 1}}}},
	} {
		e := &estate{rules: rules, lines: []attribution.Line{{
			Account: "x", ID: "l", Currency: "USD", Class: attribution.Shared, ChargePeriod: month, BillingPeriod: month, ToRule: "r",
		}}}
		if _, _, err := e.run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A rule that says who is charged for lines of no machine says nothing about what lines buy.
func TestRulesOfChargesLeaveMeters(t *testing.T) {
	for _, b := range []domain.BillingLine{
		{SKUID: "gpu-8", PricingUnit: "Hours", PricingQuantity: null("2"), ChargeCategory: "Usage"},
		{SKUID: "licence", SKUMeter: "Windows License", PricingUnit: "Hours", PricingQuantity: null("2"), ChargeCategory: "Usage"},
	} {
		b.BillingCurrency = "USD"
		want, err := attribution.LineOf(&b)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{"SkuId": "*"}
		for _, rule := range []attribution.MeterRule{
			{Name: "one", Columns: all, To: "a"},
			{Name: "outside", Columns: all, Buys: domain.BuysOutside, To: attribution.PlatformOutside},
			{Name: "fixed", Columns: all, Shares: []domain.WorkspaceWeight{{Workspace: "a", Weight: 1}}},
			{Name: "held", Columns: all, ShareBy: domain.ShareByGPUHours},
		} {
			got, err := attribution.LineOf(&b, rule)
			if err != nil || got.ToRule != rule.Name || got.To != rule.To {
				t.Errorf("%s takes the line as %+v (%v)", rule.Name, got, err)
			}
			got.To, got.ToRule = "", ""
			if got != want {
				t.Errorf("%s makes of the line\n%+v, want\n%+v", rule.Name, got, want)
			}
		}
	}
}
