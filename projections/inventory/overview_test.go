package inventory_test

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// overviewed is a log with two clusters of which one has telemetry of an hour and a half.
func overviewed() *storetest.Log {
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start-domain.Day),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - domain.Day, Event: &domain.WorkspaceRegistered{Name: "Home"}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start - domain.Day, Event: &domain.WorkspaceRegistered{Name: "Acme", Parent: "home"}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "emea", Time: storetest.Start - domain.Day, Event: &domain.WorkspaceRegistered{Name: "Emea", Parent: "acme"}}),
		domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.RegionDefined{Region: "us", Country: "US"}},
		storetest.Cluster("c1", "acme", "aws", "eu", storetest.Start),
		storetest.Cluster("c2", "rival", "gcp", "us", storetest.Start),
		storetest.Node("c1", "a", "H100 80GB", 8, storetest.Start),
		storetest.Node("c1", "b", "A100 40GB", 4, storetest.Start),
		storetest.Node("c2", "a", "H100 80GB", 8, storetest.Start),
	)
	for minutes := 0; minutes < 90; minutes += 30 {
		i := storetest.Span(minutes, minutes+30)
		l.Append(domain.Envelope{
			Source: "reporter/c1/a", Cluster: "c1", Time: i.To,
			Event: storetest.Sample("a", i, storetest.Seen{ID: storetest.GPU("c1", "a", 0), Activity: 500}),
		})
	}
	return l
}

func overviewOf(t *testing.T, l *storetest.Log, rights ...access.Right) (o *inventory.Overview) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		if len(rights) > 0 {
			scope, err := access.ScopeOf(v, rights)
			if err != nil {
				t.Fatal(err)
			}
			v = scope.View(v)
		}
		var err error
		if o, err = inventory.NewOverview(v); err != nil {
			t.Fatal(err)
		}
	})
	return o
}

// The overview ends with the newest sample, in the middle of an hour, and counts what the inventory counts then.
func TestOverview(t *testing.T) {
	l := overviewed()
	l.Append(domain.Envelope{Cluster: "c1", Time: storetest.Start + domain.Hour, Event: &domain.NodeRetired{Node: "b"}})
	o := overviewOf(t, l)
	if want := storetest.Start + 90*storetest.Minute; o.Until != want || o.At != want || o.Reaches.Telemetry != want {
		t.Errorf("until %s at %s reaches %+v, want %s", o.Until, o.At, o.Reaches, want)
	}
	if o.Reaches.Decisions != storetest.Start || o.Reaches.Billing != 0 || o.Reaches.Demand != 0 {
		t.Errorf("reaches %+v", o.Reaches)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		inv, err := inventory.New(v, inventory.Filter{At: o.At})
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, c := range inv.Counts {
			counts[c.Model] += c.GPUs
		}
		if len(o.GPUModels) != 1 || counts[o.GPUModels[0].Model] != 16 || o.GPUModels[0].GPUs != 16 {
			t.Errorf("%v, and the inventory counts %v", o.GPUModels, counts)
		}
		for i, c := range inv.Clusters {
			if of := o.Clusters[i]; of.Cluster != c.Cluster || of.Nodes != len(c.Nodes) || of.Workspace != c.Workspace || of.Region != c.Region {
				t.Errorf("%+v, and the inventory has %d nodes of %s", of, len(c.Nodes), c.Cluster)
			}
		}
	})
	if got, want := fmt.Sprint(o.Workspaces, o.Regions, o.Providers), "[{acme Acme home} {emea Emea acme} {home Home } {rival  }] [{eu } {us US}] [aws gcp]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Whoever sees a part gets that part, and no time of what is hidden.
func TestOverviewWithin(t *testing.T) {
	for _, c := range []struct{ workspace, want string }{
		{"acme", "2026-05-01T01:30:00Z [acme emea<acme] [c1] [aws] {}"},
		{"rival", " [rival] [c2] [gcp] {}"},
		{"nobody", " [] [] [] {}"},
	} {
		o := overviewOf(t, overviewed(), access.Right{Workspace: c.workspace, Role: domain.RoleViewer})
		var workspaces, clusters []string
		for _, w := range o.Workspaces {
			if w.Parent != "" {
				w.Workspace += "<" + w.Parent
			}
			workspaces = append(workspaces, w.Workspace)
		}
		for _, c := range o.Clusters {
			clusters = append(clusters, c.Cluster)
		}
		until := ""
		if o.Until > 0 {
			until = o.Until.String()
		}
		if got := fmt.Sprint(until, " ", workspaces, " ", clusters, " ", o.Providers, " {", o.Reaches.Decisions, "}"); got != c.want {
			t.Errorf("%s sees %s, want %s", c.workspace, got, c.want)
		}
	}
}

// An empty log has an overview without times.
func TestOverviewOfNothing(t *testing.T) {
	o := overviewOf(t, storetest.NewLog())
	if o.Until != 0 || o.At != 0 || o.Clusters == nil || o.GPUModels == nil || o.Providers == nil || o.Regions == nil || o.Workspaces == nil {
		t.Errorf("%+v", o)
	}
}
