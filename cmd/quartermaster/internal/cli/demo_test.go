package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/serving"
	"quartermaster/simulations/demo"
)

// The generated demo has the exceptions that were planted and no others, says which, and
// has something to show for what a fleet can measure. What it plans and replays is left
// out here: the demo itself does both, and fails where they do not hold.
func TestDemo(t *testing.T) {
	long.Only(t, "fills a data directory with the whole demo")
	var out bytes.Buffer
	a := commandLine(&app.App{Dir: t.TempDir()}, &out, &bytes.Buffer{})
	d := &demoRun{app: a, say: func(string, ...any) {}}
	d.ans.Currency = "USD"
	if err := d.generate(); err != nil {
		t.Fatal(err)
	}
	if err := a.caller().Begin(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(d.demands, []byte("usage_hour,region_num,instance_type,norm_usage\n"), 0o600); err != nil { // is not billed
		t.Fatal(err)
	}
	for _, step := range []func(context.Context) error{d.estate, d.imports, d.activity, d.incidents, d.market, d.bill, d.show} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := a.caller()
	inv, err := c.Fleet(t.Context(), "", inventory.Filter{At: demoNow - domain.Hour})
	if err != nil {
		t.Fatal(err)
	}
	owed, err := c.Costs(t.Context(), "", demoCosts)
	if err != nil {
		t.Fatal(err)
	}
	found := foundExceptions(inv, owed)
	want := []demoException{
		{Report: "costs", Kind: "billed_never_seen", Subject: "demo-0001/i-nobody-knows"},
		{Report: "costs", Kind: "registered_neither", Subject: "gen-owned/gen-node-1213"},
		{Report: "costs", Kind: "unmatched_line", Subject: "demo-0001/i-nobody-knows"},
		{Report: "fleet", Kind: "node_never_seen", Subject: "gen-owned/gen-node-1213"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("exceptions %+v, want %+v", found, want)
	}
	if len(d.ans.Planted) != len(want) {
		t.Errorf("the answer plants %+v", d.ans.Planted)
	}
	for _, e := range d.ans.Planted {
		if !strings.Contains(out.String(), "planted on purpose: "+e.Kind+" "+e.Subject+": "+e.Why+"\n") || e.Why == "" {
			t.Errorf("the demo does not say that %s %s is planted:\n%s", e.Kind, e.Subject, out.String())
		}
	}
	if text, err := json.Marshal(d.ans); err != nil || !bytes.Contains(text, []byte(`"planted":[{"report":"costs","kind":"billed_never_seen"`)) {
		t.Errorf("the answer in JSON is %s, %v", text, err)
	}

	// The bill is what it is without the activity, and each team has a cost per useful hour.
	if d.ans.InvoiceTotal != "2417814.75" || d.ans.Difference != "0.00" {
		t.Errorf("the invoice is %s with a difference of %s", d.ans.InvoiceTotal, d.ans.Difference)
	}
	useful := 0
	for i := range owed.Groups {
		g := &owed.Groups[i]
		if g.Allocated == 0 || !slices.Contains(d.tenants, g.Key[costs.ByWorkspace]) {
			continue
		}
		if useful++; g.PerUseful == nil || g.PerUseful.LessThanOrEqual(*g.PerAllocated) || g.Measured >= g.Allocated {
			t.Errorf("%v: per useful hour %v of %v, measured %d ms of %d", g.Key, g.PerUseful, g.PerAllocated, g.Measured, g.Allocated)
		}
	}
	if useful != len(d.tenants) {
		t.Errorf("%d teams have a cost per useful hour, want %d", useful, len(d.tenants))
	}

	// Planting anything else is noticed.
	inv.Exceptions = append(inv.Exceptions, inventory.Exception{Kind: inventory.NodeUnregistered, Subject: "gen-owned/x"})
	if err := d.planted(inv, owed); err == nil || !strings.Contains(err.Error(), "node_unregistered") {
		t.Errorf("one more exception gives %v", err)
	}

	served, err := c.Serving(t.Context(), "", demo.ServingPeriod, serving.Filter{Cluster: d.owned})
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]int{}
	for i := range served.Groups {
		g := &served.Groups[i]
		servers[g.Tier] = g.Servers
		if len(g.TTFT) != 1 || g.TTFT[0].P95 == nil || g.Waiting == nil || g.Running == nil || g.KVCache == nil || g.Memory == nil {
			t.Errorf("of %s is missing: %+v", g.Tier, g)
		}
	}
	if len(servers) != 2 || servers["gold"] != 6 || servers["bronze"] != 2 {
		t.Errorf("servers by tier are %v", servers)
	}
	jobs, err := c.Jobs(t.Context(), "", demo.JobsPeriod, serving.JobsFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if n := &jobs.Total; len(jobs.Groups) != len(d.tenants) || n.Succeeded == 0 || n.Failed == 0 || n.Cancelled == 0 || n.WaitP95 == nil || *n.WaitP95 == 0 {
		t.Errorf("jobs of %d teams: %+v", len(jobs.Groups), n)
	}
	models, err := c.Models(t.Context(), "", demoNow-domain.Hour, domain.Hour, inventory.ModelFilter{Cluster: d.owned})
	if err != nil {
		t.Fatal(err)
	}
	status := map[inventory.ModelStatus]int{}
	for i := range models.Deployments {
		status[models.Deployments[i].Status]++
	}
	if status[inventory.ModelRunning] < 6_000 || status[inventory.ModelShadow] > 0 {
		t.Errorf("deployments are %v", status)
	}

	// A second run finds everything there.
	if d.ans.Imported = 0; d.activity(t.Context()) != nil || d.ans.Imported != 0 {
		t.Errorf("the second run imports %d events", d.ans.Imported)
	}
}

// Each rule of advice finds the cause that is planted for it in the generated demo, from its events, and nothing else.
func TestDemoCauses(t *testing.T) {
	causes := map[advice.RuleID]*DemoCause{}
	for i, c := range DemoCauses() {
		if c.Why == "" || c.About == (advice.Subject{}) || i >= len(advice.Rules()) || advice.Rules()[i].ID != c.Rule {
			t.Errorf("cause %d is %+v", i, c)
		}
		causes[c.Rule] = &c
	}
	if len(causes) != len(advice.Rules()) {
		t.Errorf("causes of %d rules, want %d", len(causes), len(advice.Rules()))
	}

	a := commandLine(&app.App{Dir: t.TempDir()}, io.Discard, io.Discard)
	d := &demoRun{app: a, say: func(string, ...any) {}}
	if err := d.generate(); err != nil {
		t.Fatal(err)
	}
	if err := a.caller().Begin(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(d.demands, []byte("usage_hour,region_num,instance_type,norm_usage\n"), 0o600); err != nil { // takes long to plan
		t.Fatal(err)
	}
	plan := func(ctx context.Context) error {
		q := app.UsualPlan()
		q.At, q.Assumptions.Months = demoNow, 1
		_, _, err := d.caller().Plan(ctx, "", q)
		return err
	}
	for _, step := range []func(context.Context) error{d.estate, d.imports, d.activity, d.incidents, d.market, d.bill, plan} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ans, err := d.caller().Advice(t.Context(), "", app.AdviceQuery{At: demoNow})
	if err != nil {
		t.Fatal(err)
	}
	found := map[advice.RuleID]int{}
	for i := range ans.Findings {
		f := &ans.Findings[i]
		if f.Status != advice.Firing {
			continue
		}
		found[f.Rule]++
		about, of := f.Subject.String(), causes[f.Rule]
		for _, word := range strings.Fields(of.About.String()) {
			if !slices.Contains(strings.Fields(about), word) {
				t.Errorf("%s finds %s, and what is planted is %s: %s", f.Rule, about, of.About, f.Summary)
			}
		}
	}
	for id, c := range causes {
		if found[id] == 0 {
			t.Errorf("%s does not find %s: %s", id, c.About, c.Why)
		}
	}
	// What is wrong with how a model is served is one incident.
	served := slices.IndexFunc(ans.Cases, func(c advice.Case) bool { return c.Subject.Model == demo.PlantedModel })
	if served < 0 || ans.Cases[served].Of != 4 || ans.Cases[served].Severity != domain.SeverityCritical {
		t.Errorf("incidents of model %s: %d of %+v", demo.PlantedModel, served, ans.Cases)
	}
}

// Whatever a report finds beyond what was planted, or fails to find of it, stops the demo.
func TestDemoPlanted(t *testing.T) {
	d := &demoRun{owned: "gen-owned", draw: func(uint64) func() uint64 { return nil }}
	inv, owed := &inventory.Inventory{}, &costs.Report{}
	for _, e := range plantedExceptions(d.owned) {
		if e.Why == "" {
			t.Errorf("%s %s is planted without a reason", e.Kind, e.Subject)
		}
		switch e.Report {
		case "fleet":
			inv.Exceptions = append(inv.Exceptions, inventory.Exception{Kind: e.Kind, Subject: e.Subject})
		case "costs":
			owed.Exceptions = append(owed.Exceptions, attribution.Exception{Kind: attribution.Kind(e.Kind), Subject: e.Subject})
		default:
			t.Errorf("%s %s is planted in %q", e.Kind, e.Subject, e.Report)
		}
	}
	if err := d.planted(inv, owed); err != nil || len(d.ans.Planted) != 4 {
		t.Errorf("what was planted gives %v and %v", err, d.ans.Planted)
	}
	more, fewer := *inv, *inv
	more.Exceptions = append(slices.Clone(inv.Exceptions), inventory.Exception{Kind: inventory.NodeNeverSeen, Subject: "gen-owned/gen-node-0001"})
	fewer.Exceptions = nil
	for _, other := range []*inventory.Inventory{&more, &fewer} {
		if err := d.planted(other, owed); err == nil {
			t.Errorf("fleet with %d exceptions passes", len(other.Exceptions))
		}
	}
	if err := d.planted(inv, &costs.Report{}); err == nil {
		t.Error("costs without exceptions pass")
	}
	public := &demoRun{owned: "openb"}
	if err := public.planted(&more, owed); err != nil || public.ans.Planted != nil {
		t.Errorf("public files, of which nothing is planted, give %v and %v", err, public.ans.Planted)
	}
}
