package costs_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// What a workspace costs is its owner's by the hour: who answered for it then, whoever answers for it now. A workspace
// that was not mapped then shows an empty owner, and a kept month says the same as the rows.
func TestCostsByOwnerOfTheHour(t *testing.T) {
	l := house()
	mapped := func(workspace string, at domain.Instant, owner, centre string) {
		l.Append(domain.Envelope{Workspace: workspace, Time: at, Event: &domain.WorkspaceRegistered{
			Name: workspace, Owner: owner, CostCentre: centre, Entity: "gmbh",
		}})
	}
	mapped("a", storetest.Start+domain.Hour, "new", "2")
	mapped("a", storetest.Start-domain.Day, "old", "1")
	mapped("b", storetest.Start+40*domain.Day, "late", "3") // after the month
	q := costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByOwner, costs.ByCostCentre, costs.ByEntity, costs.ByHour, costs.ByLine}}
	r := report(t, l, q)
	owners := map[string]bool{}
	for _, g := range r.Groups {
		want := "  "
		switch hour := g.Key[costs.ByHour]; {
		case g.Key[costs.ByWorkspace] != "a":
		case hour == "" && g.Key[costs.ByLine] != "p|1|03-unused", hour != "" && hour < (storetest.Start+domain.Hour).String():
			want = "old 1 gmbh"
		default: // the charge period of the unused commitment begins later too
			want = "new 2 gmbh"
		}
		got := g.Key[costs.ByOwner] + " " + g.Key[costs.ByCostCentre] + " " + g.Key[costs.ByEntity]
		if owners[got] = true; got != want {
			t.Errorf("%v is %q, want %q", g.Key, got, want)
		}
	}
	if len(owners) != 3 || costs.Blank(costs.ByOwner) == "" {
		t.Errorf("owners are %v", owners)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		var kept bytes.Buffer
		if _, _, err := costs.WriteCanonical(v, storetest.MayBill, &kept); err != nil {
			t.Fatal(err)
		}
		d, err := costs.ReadCanonical(func() (io.ReadSeekCloser, error) { return closing{bytes.NewReader(kept.Bytes())}, nil })
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.Report(q)
		if err != nil {
			t.Fatal(err)
		}
		same := slices.EqualFunc(r.Groups, again.Groups, func(a, b costs.Group) bool { return fmt.Sprint(a.Key, a.Billed) == fmt.Sprint(b.Key, b.Billed) })
		if !same {
			t.Errorf("a kept month says %v, want %v", again.Groups, r.Groups)
		}
		var columns []string
		for _, c := range costs.ExportedColumns() {
			columns = append(columns, c.Name)
		}
		owner, workspace, hour := slices.Index(columns, "x_Owner"), slices.Index(columns, "x_WorkspaceId"), slices.Index(columns, "x_Hour")
		line := slices.Index(columns, "x_OriginLineId")
		_, err = d.Export(costs.AllocationFilter{Workspace: "a"}, nil, func(row []string) error {
			late := row[hour] >= (storetest.Start+domain.Hour).String() || row[line] == "03-unused"
			if row[workspace] != "a" || row[owner] != map[bool]string{true: "new", false: "old"}[late] {
				t.Errorf("x_Owner of %s at %s is %q", row[workspace], row[hour], row[owner])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
