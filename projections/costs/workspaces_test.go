package costs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// The reports of all workspaces are those that each would get by itself, and take one pass over the month.
func TestReportsOfEachWorkspace(t *testing.T) {
	by := [][]costs.Dimension{{costs.ByComponent}, {costs.ByCluster, costs.ByDeployment}, {costs.ByCharge}}
	for name, l := range map[string]*storetest.Log{"classified": classified(), "fleet": billedFleet(3, 30)} {
		storetest.FoldView(t, l, func(v projections.View) {
			form, opened := canonicalForm(t, v, storetest.MayBill), 0
			d, err := costs.ReadCanonical(func() (io.ReadSeekCloser, error) {
				opened++
				return openBytes(form)()
			})
			if err == nil {
				d, err = d.At(v)
			}
			if err != nil {
				t.Fatal(err)
			}
			opened = 0
			q := costs.EachWorkspace{Month: storetest.MayBill, By: by, Also: []string{"nobody"}}
			kept, err := d.WorkspaceReports(q)
			if err != nil {
				t.Fatal(err)
			}
			if opened != 1 {
				t.Errorf("%s: the month was read %d times", name, opened)
			}
			divided, err := costs.NewWorkspaceReports(v, q)
			if err != nil {
				t.Fatal(err)
			}
			all, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace}})
			if err != nil {
				t.Fatal(err)
			}
			workspaces := []string{"nobody"}
			for i := range all.Groups {
				workspaces = append(workspaces, all.Groups[i].Key[costs.ByWorkspace])
			}
			workspaces = slices.Compact(workspaces) // a group is of one currency
			if len(kept) != len(workspaces) || len(divided) != len(workspaces) || len(workspaces) < 3 {
				t.Errorf("%s: %d and %d workspaces instead of %d", name, len(kept), len(divided), len(workspaces))
			}
			for _, w := range workspaces {
				for i := range by {
					want, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, Workspace: w, By: by[i]})
					if err != nil {
						t.Fatal(err)
					}
					for _, have := range []map[string][]*costs.Report{kept, divided} {
						if got, want := jsonOf(t, have[w][i]), jsonOf(t, want); got != want {
							t.Errorf("%s: %s by %v:\n%s\ninstead of\n%s", name, w, by[i], got, want)
						}
					}
				}
			}
			q.Only, q.Also = workspaces[1], nil
			if one, err := d.WorkspaceReports(q); err != nil || len(one) != 1 || jsonOf(t, one[q.Only]) != jsonOf(t, kept[q.Only]) {
				t.Errorf("%s: only %s: %d workspaces, %v", name, q.Only, len(one), err)
			}
			q.By = [][]costs.Dimension{{"colour"}}
			if _, err := d.WorkspaceReports(q); err == nil {
				t.Error("an unknown dimension is no error")
			}
		})
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Ten times the workspaces, with as many allocations, take hardly longer.
func BenchmarkReportsOfEachWorkspace(b *testing.B) {
	for _, workspaces := range []int{10, 100} {
		b.Run(fmt.Sprint(workspaces), func(b *testing.B) {
			m, err := billedTeams(50, 100, workspaces).Fold(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			var d *costs.Division
			if err := m.View(context.Background(), func(v projections.View) (err error) {
				d, err = costs.Divide(v, storetest.MayBill, 1<<40)
				return err
			}); err != nil {
				b.Fatal(err)
			}
			q := costs.EachWorkspace{
				Month: storetest.MayBill,
				By:    [][]costs.Dimension{{costs.ByComponent}, {costs.ByCluster, costs.ByDeployment, costs.ByGPUModel}, {costs.ByCharge}},
			}
			var all map[string][]*costs.Report
			for b.Loop() {
				if all, err = d.WorkspaceReports(q); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(all)), "workspaces")
			b.ReportMetric(float64(d.Allocations), "allocations")
		})
	}
}
