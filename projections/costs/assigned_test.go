package costs_test

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// Rules about lines of no machine, whatever they match, never move the money of a line that is matched to machines by
// name or by pool, and every line still adds up. Who they name is charged.
func TestRulesLeaveMachinesAlone(t *testing.T) {
	taken, shared := 0, 0
	divided := func(t *rapid.T, rules ...domain.Envelope) (machines, lines map[string]string, byRule int) {
		l := house()
		l.Append(rules...)
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sums := exactly{}
		machines, lines = map[string]string{}, map[string]string{}
		if err := m.View(t.Context(), func(v projections.View) error {
			return costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{}, func(a *costs.Allocation) error {
				switch a.MatchMethod {
				case attribution.ByResource, attribution.ByPool:
					machines[a.Allocation] = fmt.Sprint(a.Billed, a.Effective)
				case attribution.ByRule:
					byRule++
					if a.Component == attribution.SharedCost {
						shared++
					}
					if a.Workspace == attribution.PlatformOutside != (a.Component == attribution.Outside) {
						t.Errorf("%s is %s", a.Allocation, a.Component)
					}
				}
				sums.add(a.Line, a.Billed, a.Effective)
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		for _, text := range sums.text() {
			lines[text] = ""
		}
		return machines, lines, byRule
	}
	long.Check(t, 100, 5_000, func(t *rapid.T) {
		var rules []domain.Envelope
		for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
			r := &domain.MappingRuleSet{
				Rule: fmt.Sprint("rule-", i), Priority: rapid.Uint32Range(0, 2).Draw(t, "priority"), EffectiveFrom: storetest.Start - domain.Day,
				Columns: map[string]string{
					rapid.SampledFrom([]string{"SkuId", "RegionId", "ResourceId", "ChargeCategory", "x_LineId"}).Draw(t, "column"): rapid.SampledFrom([]string{"*", "", "gpu-*", "other", "Tax", "*-unknown"}).Draw(t, "value"),
				},
			}
			switch rapid.IntRange(0, 3).Draw(t, "to") {
			case 0:
				r.Buys = domain.BuysOutside
			case 1:
				r.ToWorkspace = "b"
			case 2:
				r.ToShares = []domain.WorkspaceWeight{{Workspace: "b", Weight: 2}, {Workspace: "a", Weight: 1}}
			case 3:
				r.ToShareBy = domain.ShareByGPUHours
			}
			rules = append(rules, storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - domain.Day, Event: r}))
		}
		before, wantLines, none := divided(t)
		after, lines, n := divided(t, rules...)
		if none != 0 {
			t.Fatalf("%d allocations are by rule without a rule", none)
		}
		if !maps.Equal(before, after) {
			t.Errorf("money of machines moved: %v, before %v", after, before)
		}
		if !maps.Equal(lines, wantLines) {
			t.Errorf("lines add up to %v, before %v", lines, wantLines)
		}
		taken += n
	})
	if taken == 0 || shared == 0 {
		t.Errorf("rules took %d parts of lines, and shared %d", taken, shared)
	}
}
