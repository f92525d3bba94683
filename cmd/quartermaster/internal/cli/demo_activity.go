package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/serving"
	"quartermaster/simulations/demo"
)

// demoResearch is the workspace that the pods and the model servers of the owned cluster
// belong to.
const demoResearch = "research"

// activity appends generated events that are not in the files: reports of the owned nodes, model
// servers and jobs. Public data have none of these.
func (d *demoRun) activity(ctx context.Context) error {
	if d.draw == nil {
		return nil
	}
	for _, part := range []struct {
		name, cluster string
		told          func() []demo.Told
	}{
		{"deployments.v1", d.owned, func() []demo.Told { return demo.Deployments(demoResearch, instantOf(2026, 1, 5)) }},
		{"reports.v1", d.owned, func() []demo.Told { return demo.Reports(d.owned, demoResearch, d.draw(1), d.draw(5)) }},
		{"serving.v1", d.owned, func() []demo.Told { return demo.Serving(demoResearch, d.draw(6)) }},
		{"jobs.v1", d.billed, func() []demo.Told { return demo.Jobs(d.draw(2), d.draw(7)) }},
		{"planted.v1", "", func() []demo.Told { return demo.Planted(d.draw(8)) }},
	} {
		told := part.told()
		// Each model server is a separate source, like its exporter.
		sources := map[string][]domain.Envelope{}
		for _, t := range told {
			source := part.name
			if _, ok := t.Event.(*domain.ServingSampled); ok {
				source += "/" + t.Subject
			}
			sources[source] = append(sources[source], domain.Envelope{
				Time: t.At, Recorded: t.At, Subject: t.Subject, Workspace: t.Workspace, Cluster: cmp.Or(t.Cluster, part.cluster), Event: t.Event,
			})
		}
		if err := d.appendSources(ctx, part.name, sources); err != nil {
			return err
		}
	}
	return nil
}

// demoException is a deliberate exception of the generated demo.
type demoException struct {
	Report  string `json:"report"` // fleet or costs
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Why     string `json:"why"`
}

// plantedExceptions are all exceptions of fleet and costs in the generated demo, by report, kind
// and subject. A test checks that there are no others.
func plantedExceptions(owned string) []demoException {
	node, stray := owned+"/"+demo.SilentNode, demoAccount+"/"+demoStray
	return []demoException{
		{"costs", "billed_never_seen", stray, "the bill has a day of a machine that is not in the fleet"},
		{"costs", "registered_neither", node, "the same node, which is not billed either"},
		{"costs", "unmatched_line", stray, "the line of that machine matches nothing"},
		{"fleet", inventory.NodeNeverSeen, node, "a node is declared, and its agent was never installed"},
	}
}

// foundExceptions returns the exceptions of two reports, in the order of plantedExceptions.
func foundExceptions(inv *inventory.Inventory, owed *costs.Report) []demoException {
	found := []demoException{}
	for _, e := range owed.Exceptions {
		found = append(found, demoException{Report: "costs", Kind: string(e.Kind), Subject: e.Subject})
	}
	for _, e := range inv.Exceptions {
		found = append(found, demoException{Report: "fleet", Kind: e.Kind, Subject: e.Subject})
	}
	return found
}

// planted records the planted exceptions, and fails if a report finds others, which would be a
// defect.
func (d *demoRun) planted(inv *inventory.Inventory, owed *costs.Report) error {
	if d.draw == nil {
		return nil
	}
	d.ans.Planted = plantedExceptions(d.owned)
	same := func(a, b demoException) bool {
		return a.Report == b.Report && a.Kind == b.Kind && a.Subject == b.Subject
	}
	if found := foundExceptions(inv, owed); !slices.EqualFunc(found, d.ans.Planted, same) {
		return fmt.Errorf("the demo has the exceptions %v, want %v", found, d.ans.Planted)
	}
	return nil
}

// showPlanted lists the planted exceptions of a report.
func (d *demoRun) showPlanted(report string) {
	for _, e := range d.ans.Planted {
		if e.Report == report {
			fmt.Fprintf(d.app.out, "planted on purpose: %s %s: %s\n", e.Kind, e.Subject, e.Why)
		}
	}
}

// showRun shows the reports of model servers and jobs.
func (d *demoRun) showRun(ctx context.Context) error {
	if d.draw == nil {
		return nil
	}
	served, err := d.caller().Serving(ctx, "", demo.ServingPeriod, serving.Filter{Cluster: d.owned})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.app.out, "\n== Model servers from %s to %s (generated)\n", day(demo.ServingPeriod.From), day(demo.ServingPeriod.To))
	d.app.showServing(served)
	jobs, err := d.caller().Jobs(ctx, "", demo.JobsPeriod, serving.JobsFilter{})
	if err != nil {
		return err
	}
	fmt.Fprintf(d.app.out, "\n== Jobs from %s to %s (generated)\n", day(demo.JobsPeriod.From), day(demo.JobsPeriod.To))
	d.app.showJobs(jobs)
	return nil
}
