package costs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/storetest"
)

// classified is the house with classes of deployments and more attributes of machines.
func classified() *storetest.Log {
	l := house()
	deploy := func(name, workspace string, class domain.WorkloadClass, at domain.Instant) domain.Envelope {
		return domain.Envelope{Workspace: workspace, Cluster: "c", Time: at, Event: &domain.DeploymentChanged{Deployment: name, Model: "m", Class: class, Replicas: 1, Need: domain.GPUNeed{Count: 1}}}
	}
	l.Append(deploy("chat", "a", domain.ClassServing, storetest.Start-domain.Day), deploy("train", "b", domain.ClassTraining, storetest.Start+3*domain.Day))
	return l
}

// grouped are the groups by one dimension: value, currency and both amounts.
func grouped(r *costs.Report) string {
	var b strings.Builder
	for _, g := range r.Groups {
		for _, d := range r.By {
			fmt.Fprintf(&b, "%s=%s ", d, g.Key[d])
		}
		fmt.Fprintf(&b, "%s %s %s, %d bought, %d allocated\n", g.Currency, g.BilledMinor, g.EffectiveMinor, g.Bought/60_000, g.Allocated/60_000)
	}
	for _, t := range r.Totals {
		fmt.Fprintf(&b, "total %s %s %s\n", t.Currency, t.BilledMinor, t.EffectiveMinor)
	}
	return b.String()
}

func TestCostsByEveryDimension(t *testing.T) {
	var text strings.Builder
	for _, d := range []costs.Dimension{costs.ByProvider, costs.ByProviderClass, costs.ByGPUModel, costs.ByWorkloadClass, costs.ByModel, costs.ByBillingModel} {
		text.WriteString(grouped(report(t, classified(), costs.Query{Month: storetest.MayBill, By: []costs.Dimension{d}})) + "\n")
	}
	golden(t, "dimensions.txt", text.String())
}

// A condition selects the group of that value, and the conditions of all values together select
// everything.
func TestCostsWhere(t *testing.T) {
	storetest.FoldView(t, classified(), func(v projections.View) {
		for _, d := range costs.Dimensions() {
			whole, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{d}})
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]bool{}
			for _, g := range whole.Groups {
				values[g.Key[d]] = true
			}
			for value := range values {
				where := []dimension.Condition{{Dimension: d, Values: []string{value}}}
				part, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{d}, Where: where})
				if err != nil {
					t.Fatal(err)
				}
				of := slices.DeleteFunc(slices.Clone(whole.Groups), func(g costs.Group) bool { return g.Key[d] != value })
				if len(part.Groups) != len(of) {
					t.Fatalf("%s=%s has %d groups, want %d", d, value, len(part.Groups), len(of))
				}
				n := 0
				for i, g := range part.Groups {
					if g.Billed != of[i].Billed || g.Effective != of[i].Effective || g.Bought != of[i].Bought || g.Currency != of[i].Currency || part.Totals[i].Billed != g.Billed || part.Totals[i].BilledMinor != g.BilledMinor {
						t.Errorf("%s=%s is %+v, want %+v", d, value, g.Cost, of[i].Cost)
					}
					n += g.Allocations
				}
				err = costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{Where: where}, func(*costs.Allocation) error {
					n--
					return nil
				})
				if err != nil || n != 0 {
					t.Errorf("%s=%s has %d allocations more than are listed, %v", d, value, n, err)
				}
			}
		}
	})
}

// Rounded groups add up to rounded totals, and rounded workspaces are their statements.
func TestCostsMinorFoots(t *testing.T) {
	storetest.FoldView(t, classified(), func(v projections.View) {
		for _, by := range [][]costs.Dimension{{costs.ByWorkspace}, {costs.ByWorkspace, costs.ByComponent}, {costs.ByLine, costs.ByHour}, {costs.ByGPUModel, costs.ByProvider}} {
			r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: by})
			if err != nil {
				t.Fatal(err)
			}
			for _, total := range r.Totals {
				billed, effective, statements := total.Billed.Minor("USD"), total.Effective.Minor("USD"), attribution.Amount{}
				billed.Amount, effective.Amount = attribution.Amount{}, attribution.Amount{}
				for _, g := range r.Groups {
					if g.Currency == total.Currency {
						billed, effective = billed.Add(g.BilledMinor), effective.Add(g.EffectiveMinor)
					}
				}
				paid := map[string]attribution.Amount{}
				for _, s := range r.Statements {
					if s.Currency == total.Currency {
						statements = statements.Add(s.Amount.Amount)
						paid[s.Workspace] = paid[s.Workspace].Add(s.Amount.Amount)
					}
				}
				if billed != total.BilledMinor || effective != total.EffectiveMinor || billed.Amount != statements {
					t.Errorf("by %v: groups are %s and %s, statements %s, total %s and %s", by, billed, effective, statements, total.BilledMinor, total.EffectiveMinor)
				}
				for _, g := range r.Groups {
					if len(by) == 1 && by[0] == costs.ByWorkspace && g.Currency == total.Currency && g.BilledMinor.Amount != paid[g.Key[costs.ByWorkspace]] {
						t.Errorf("%v is %s, its statements %s", g.Key, g.BilledMinor, paid[g.Key[costs.ByWorkspace]])
					}
				}
			}
		}
	})
}

func TestCostsRefuseUnknownNames(t *testing.T) {
	var unknown *dimension.UnknownError
	if _, err := costs.ParseDimensions([]string{"cluster", "colour"}); !errors.As(err, &unknown) || unknown.Name != "colour" || !slices.Contains(unknown.Known, "gpu_model") {
		t.Errorf("colour: %v", err)
	}
	if _, err := costs.ParseDimensions([]string{"cluster", "cluster"}); err == nil {
		t.Error("a dimension was named twice")
	}
	if _, err := costs.ParseConditions([]string{"provider_class=neoclod"}); !errors.As(err, &unknown) || unknown.What != "provider_class" || !slices.Contains(unknown.Known, "neocloud") || !slices.Contains(unknown.Known, "unknown") {
		t.Errorf("neoclod: %v", err)
	}
	for _, words := range [][]string{{"cluster"}, {"colour=red"}} {
		if _, err := costs.ParseConditions(words); err == nil {
			t.Errorf("%v was read", words)
		}
	}
	where, err := costs.ParseConditions([]string{"provider=q", "cluster=c", "provider=p", "provider=p"})
	if want := "[{cluster [c]} {provider [p q]}]"; err != nil || fmt.Sprint(where) != want {
		t.Errorf("%v, %v, want %s", where, err, want)
	}
}
