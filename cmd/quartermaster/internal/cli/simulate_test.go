package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/shopspring/decimal"

	"quartermaster/adapters/chart"
	"quartermaster/adapters/highs"
	"quartermaster/adapters/importer"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/schemas"
	"quartermaster/simulations/whatif"
)

func scenarioFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "deploy", "demo", "scenarios", "*.yaml"))
	if err != nil || len(files) < len(whatif.Kinds())+2 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	return files
}

// Every kind of change has a worked scenario, and each scenario is one by the
// published schema too.
func TestScenarioFiles(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Scenario))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scenario.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("scenario.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[whatif.Kind]bool{}
	for _, path := range scenarioFiles(t) {
		s, err := (&app.App{}).ReadScenarioFile(path)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, x := range s.Changes {
			seen[x.Kind] = true
		}
		for _, a := range s.Alternatives {
			for _, x := range a.Changes {
				seen[x.Kind] = true
			}
		}
		if s.Question == "" {
			t.Errorf("%s asks no question", path)
		}
		if err := schema.Validate(plainYAML(t, path)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, k := range whatif.Kinds() {
		if !seen[k] {
			t.Errorf("%s has no worked scenario", k)
		}
	}
}

// plainYAML is a scenario file as values, for a checker of schemas.
func plainYAML(t *testing.T, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := app.ScenarioTree(data)
	if err != nil {
		t.Fatal(err)
	}
	var plain func(n *whatif.Node) any
	plain = func(n *whatif.Node) any {
		switch n.Shape {
		case whatif.Mapping:
			out := map[string]any{}
			for i, k := range n.Keys {
				out[k.Text] = plain(n.Values[i])
			}
			return out
		case whatif.List:
			out := []any{}
			for _, v := range n.Values {
				out = append(out, plain(v))
			}
			return out
		case whatif.Null:
			return nil
		}
		if !n.Quoted && (n.Text == "true" || n.Text == "false") {
			return n.Text == "true"
		}
		var number json.Number
		if !n.Quoted && json.Unmarshal([]byte(n.Text), &number) == nil {
			return number
		}
		return n.Text
	}
	return plain(doc)
}

const scenarioHead = "apiVersion: quartermaster/v1\nkind: Scenario\nname: n\n"

// What is wrong with a file is said with its place and what to do.
func TestScenarioFaults(t *testing.T) {
	body := func(changes string) string {
		return scenarioHead + "changes:\n" + changes + "alternatives: [{name: a}]\n"
	}
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "1:1: is empty; begin with apiVersion: quartermaster/v1"},
		"unknown field":    {scenarioHead + "horizn: 24 months\nalternatives: [{name: a}]\n", "4:1: horizn: unknown field; did you mean horizon?"},
		"no alternatives":  {scenarioHead, "1:1: lacks alternatives"},
		"unknown kind":     {body("  - {kind: demand_grow, monthly: 1}\n"), "5:12: changes[0].kind: \"demand_grow\" is unknown; did you mean demand_growth?"},
		"field of another": {body("  - kind: demand_growth\n    monthly: 0.1\n    replicas: 3\n"), "7:5: changes[0].replicas: unknown field"},
		"neither":          {body("  - {kind: demand_growth, region: r}\n"), "has 0 of monthly, factor, want exactly one"},
		"both":             {body("  - {kind: demand_growth, monthly: 0.1, factor: 2}\n"), "has 2 of monthly, factor, want exactly one"},
		"not a number":     {body("  - {kind: demand_growth, monthly: lots}\n"), "changes[0].monthly: is \"lots\", want a number such as 0.05"},
		"NaN":              {body("  - {kind: demand_growth, monthly: .nan}\n"), "want a number such as 0.05"},
		"number bomb":      {body("  - {kind: demand_growth, monthly: 1e999999999}\n"), "want a number such as 0.05"},
		"out of range":     {body("  - {kind: demand_growth, monthly: 3}\n"), "changes[0].monthly: is 3, at most 1 is allowed"},
		"negative price":   {body("  - {kind: price_change, hourly: -3}\n"), "is -3, at least 0 is allowed"},
		"descending":       {body("  - {kind: demand_growth, monthly: {triangular: [0.05, 0.02, 0]}}\n"), "want them ascending: least, most likely, most"},
		"lognormal of 0":   {body("  - {kind: lead_time, hours: {lognormal: {p50: 0, p95: 4}}}\n"), "has a median of 0, want one above 0"},
		"upside down":      {body("  - {kind: lead_time, hours: {lognormal: {p50: 9, p95: 4}}}\n"), "has p95 4 below p50 9"},
		"buys nothing":     {body("  - kind: new_offer\n    max_units: 0\n"), "6:16: changes[0].max_units: is 0, want 1 to 1000000"},
		"maybe a price":    {body("  - {kind: price_change, hourly: 3, probability: 0.6}\n"), "changes[0].probability: is for a factor: write the price as a factor of what it was"},
		"two shapes":       {body("  - {kind: lead_time, hours: {fixed: 1, poisson: 2}}\n"), "want exactly one of fixed, triangular, lognormal, poisson"},
		"ends first":       {body("  - {kind: demand_growth, monthly: 0.1, when: 2026-09, until: 2026-08}\n"), "changes[0].until: is not after when"},
		"no time":          {body("  - {kind: demand_growth, monthly: 0.1, when: soon}\n"), "\"soon\" is not a time; write a date such as 2026-09-01"},
		"twice":            {scenarioHead + "seed: 1\nseed: 2\nalternatives: [{name: a}]\n", "5:1: seed: stands on line 4 already"},
		"same name":        {scenarioHead + "alternatives: [{name: a}, {name: a}]\n", "two alternatives are called \"a\""},
		"runs":             {scenarioHead + "runs: 10000000\nalternatives: [{name: a}]\n", "4:7: runs: is 10000000, want 1 to 100000"},
		"horizon":          {scenarioHead + "horizon: 3 years\nalternatives: [{name: a}]\n", "4:10: horizon: is \"3 years\", want a number of months"},
		"position":         {scenarioHead + "base: {position: yesterday}\nalternatives: [{name: a}]\n", "base.position"},
		"instance and at":  {scenarioHead + "base: {instance: x.json, at: 2026-06-01}\nalternatives: [{name: a}]\n", "contradicts instance"},
		"without and only": {scenarioHead + "alternatives: [{name: a, without: [spot], only: [reserved]}]\n", "contradicts without"},
		"standby":          {scenarioHead + "alternatives: [{name: a, posture: {kind: active_passive, share: 1}}]\n", "lacks standby"},
		"renewal ends":     {body("  - {kind: renewal, commitment: c, end: true, term_months: 12}\n"), "contradicts term_months"},
		"alias":            {scenarioHead + "a: &a [1]\nb: *a\nalternatives: [{name: a}]\n", "4:4: anchors, aliases and merges are not read"},
		"tag":              {scenarioHead + "seed: !!int 3\nalternatives: [{name: a}]\n", "tags are not read"},
		"depth":            {scenarioHead + "x: " + deep + "\n", "nests deeper than 16"},
		"lines":            {scenarioHead + strings.Repeat("#\n", 1_000_000), "is larger than 1024 KiB"},
		"short lines":      {scenarioHead + strings.Repeat("\n", 500_000), "20001:1: too many lines"},
		"marks":            {scenarioHead + "x: [" + strings.Repeat("1,", 100_000) + "]", "too much punctuation"},
		"size":             {strings.Repeat("a", 2<<20), "is larger than 1024 KiB"},
		"not text":         {scenarioHead + "question: \x00\n", "4:11: byte 0x00 is not text"},
		"not yaml":         {scenarioHead + "x: [1, 2\n", "is not YAML"},
		"two documents":    {scenarioHead + "alternatives: [{name: a}]\n---\nx: 1\n", "a second scenario begins here"},
		"a list":           {"- 1\n", "is a list, want a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := app.ParseScenario([]byte(c.text))
			var faults whatif.Errors
			if !errors.As(err, &faults) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, have %v", c.want, err)
			}
		})
	}
}

func FuzzScenario(f *testing.F) {
	for _, path := range scenarioFiles(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(scenarioHead + "alternatives: [{name: a}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := app.ParseScenario(data)
		if err != nil {
			var faults whatif.Errors
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		// What is read can be written and read again.
		a, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back whatif.Scenario
		if err := json.Unmarshal(a, &back); err != nil {
			t.Fatalf("%v: %s", err, a)
		}
		b, err := json.Marshal(back)
		if err != nil || !bytes.Equal(a, b) {
			t.Fatalf("%v\n%s\n%s", err, a, b)
		}
	})
}

// leanDemo fills a data directory with what worked scenarios rest on: of the demo's files what
// is of a day or later, its market and its commitments. Of use there is what was wanted
// and the machines, without the samples of each.
func leanDemo(t *testing.T, dir, since string) {
	t.Helper()
	a := commandLine(&app.App{Dir: dir}, &bytes.Buffer{}, &bytes.Buffer{})
	d := &demoRun{app: a, say: func(string, ...any) {}}
	if err := d.generate(); err != nil {
		t.Fatal(err)
	}
	recent := func(path string) (kept []string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.SplitAfter(string(data), "\n") {
			if i == 0 || line >= since {
				kept = append(kept, line)
			}
		}
		return kept
	}
	if err := os.WriteFile(d.demands, []byte(strings.Join(recent(d.demands), "")), 0o600); err != nil {
		t.Fatal(err)
	}
	var used []domain.Envelope
	machines := map[string]bool{}
	number := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, line := range recent(d.usage)[1:] { // hour, vc, total_gpu, running_gpu_mean, running_gpu_max, pending_gpu_mean
		row := strings.Split(line, ",")
		begin, err := time.Parse(time.RFC3339, row[0])
		if err != nil {
			t.Fatal(err)
		}
		hour := domain.Interval{From: domain.InstantOf(begin), To: domain.InstantOf(begin) + domain.Hour}
		add := func(subject string, ev domain.Event) {
			used = append(used, domain.Envelope{Time: hour.To, Recorded: hour.To, Subject: subject, Workspace: row[1], Cluster: d.billed, Event: ev})
		}
		if total := int(number(row[2])); !machines[row[1]] {
			machines[row[1]] = true
			for n := range total / 8 {
				node := &domain.NodeRegistered{Node: fmt.Sprintf("%s-%03d", row[1], n), SKU: demoSKU, BillingAccount: demoAccount, CPUMilli: 96_000, MemoryMiB: 768 << 10, IDsDerived: true}
				for i := range 8 {
					node.GPUs = append(node.GPUs, domain.GPUDeclared{ID: domain.DeriveGPUID(d.billed, node.Node, i), Index: uint32(i), Model: demoGPU, MemoryMiB: 32 << 10})
				}
				add(node.Node, node)
			}
		}
		add(row[1], &domain.DemandObserved{
			Pool: row[1], Model: demoGPU, Unit: "gpu", Interval: hour, RunningMilli: uint64(1000 * number(row[3])), PendingMilli: uint64(1000 * number(row[5])), OwnedMilli: uint64(1000 * number(row[2])),
		})
	}
	if err := func() error {
		if err := a.caller().Begin(t.Context(), false); err != nil {
			return err
		}
		for _, step := range []func(context.Context) error{
			d.estate,
			func(ctx context.Context) error {
				return d.caller().ImportColumns(ctx, importer.Demand, d.options[d.demands], []string{d.demands}, false, d.took)
			},
			func(ctx context.Context) error {
				return d.caller().ImportColumns(ctx, importer.Prices, d.options[d.prices], []string{d.prices}, false, d.took)
			},
			func(ctx context.Context) error { return d.append(ctx, "week", used) },
			d.market,
		} {
			if err := step(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// The worked scenarios, with few trials, on a week of the demo; and one of them
// frozen, answered again from the log, and compared with itself.
func TestWorkedScenarios(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	command := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		code := run(append([]string{"--data-dir", dir}, args...), strings.NewReader(""), &out, &errs)
		return out.String(), errs.String(), code
	}
	leanDemo(t, dir, "2026-05-25")
	// The data directory is opened once for all of them.
	quiet := commandLine(&app.App{Dir: dir}, &bytes.Buffer{}, &bytes.Buffer{})
	for _, path := range scenarioFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) { workScenario(t, quiet, path) })
	}
	if err := quiet.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", "..", "..", "..", "deploy", "demo", "scenarios", "new-offer.yaml")
	results := filepath.Join(t.TempDir(), "out")
	out, errs, code := command("simulate", file, "--runs", "20", "--freeze", "--out", results, "-o", "json")
	if code != 0 || !strings.Contains(errs, "recorded as sim-") {
		t.Fatalf("freeze: %s%s", out, errs)
	}
	var r whatif.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(results)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
		if _, err := chart.FormatOf(f.Name()); err == nil {
			if b, err := os.ReadFile(filepath.Join(results, f.Name())); err != nil || !bytes.Contains(b, []byte("<svg")) {
				t.Errorf("%s is no drawing: %v", f.Name(), err)
			}
		}
	}
	for _, want := range []string{"result.json", "alternatives.csv", "differences.csv", "purchases.csv", "tornado.csv", "cost-distribution.svg", "tornado-with-it.svg", "load-duration.csv", "break-even.csv", "break-even-us-east-1-p5.48xlarge.svg", "load-duration-with-it-us-east-1-p5.48xlarge.svg"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	if _, errs, code := command("simulate", file, "--runs", "20", "--freeze"); code != 0 || !strings.Contains(errs, "was recorded before") {
		t.Errorf("frozen again: %s", errs)
	}
	if out, errs, code := command("simulate", "list", "-o", "json"); code != 0 || strings.Count(out, r.ID) != 1 {
		t.Errorf("list: %s%s", out, errs)
	}
	if out, errs, code := command("simulate", "verify", r.ID); code != 0 || !strings.Contains(out, "equal: answered again from the log") {
		t.Errorf("verify: %s%s", out, errs)
	}
	out, errs, code = command("simulate", "diff", r.ID, filepath.Join(results, "result.json"), "-o", "json")
	if code != 0 || !strings.Contains(out, `"change": "0"`) {
		t.Errorf("diff: %s%s", out, errs)
	}
	if _, errs, code := command("simulate", "show", "sim-nothing"); code == 0 || !strings.Contains(errs, "no frozen scenario") {
		t.Errorf("show nothing: %s", errs)
	}
	if out, _, code := command("simulate", "changes", "price_change"); code != 0 || !strings.Contains(out, "offer_kind") {
		t.Errorf("changes: %s", out)
	}
	if _, errs, code := command("simulate", "changes", "nosuch"); code == 0 || !strings.Contains(errs, "no kind of change") {
		t.Errorf("changes: %s", errs)
	}
	// A run that is cancelled says so and records nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := commandLine(&app.App{Dir: dir}, &bytes.Buffer{}, &bytes.Buffer{})
	s, err := (&app.App{}).ReadScenarioFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.caller().Simulate(ctx, s, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// workScenario answers a scenario with few trials.
func workScenario(t *testing.T, a *Program, path string) {
	s, err := (&app.App{}).ReadScenarioFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A week is what there is, and a year and a half shows what each is about.
	s.Runs, s.Assumptions.Weeks = 8, 1
	s.Months = min(s.Months, long.Count(15, 18))
	s.Assumptions.Months = s.Months
	r, err := a.caller().Simulate(t.Context(), s, 0)
	if errors.Is(err, linear.ErrUnavailable) && !highs.Available() {
		t.Skipf("%s couples regions, and this build has no solver of linear programs", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Alternatives) < 2 || len(r.Differences) != len(r.Alternatives)-1 || !r.Alternatives[0].Expected.IsPositive() {
		t.Errorf("%d alternatives, %d differences", len(r.Alternatives), len(r.Differences))
	}
	same := true
	for _, d := range r.Differences {
		same = same && d.Mean.IsZero()
	}
	if same {
		t.Error("the alternatives do not differ: the scenario answers nothing")
	}
	// What comes late is bought all the same.
	const late = "p3dn.24xlarge/reserved_with_capacity/12m"
	if filepath.Base(path) == "lead-time.yaml" && !slices.ContainsFunc(r.Alternatives[0].Purchases, func(p whatif.Purchase) bool { return strings.Contains(p.Offer, late) }) {
		t.Errorf("%s is not bought: %+v", late, r.Alternatives[0].Purchases)
	}
	uncertain := func(name string) bool {
		return slices.ContainsFunc(r.Drivers, func(d whatif.Driver) bool { return slices.Contains(d.Alternatives, name) })
	}
	for _, a := range r.Alternatives {
		if strings.Contains(a.Alternative, "no upfront") {
			if len(a.Purchases) == 0 {
				t.Errorf("%q buys nothing", a.Alternative)
			}
			for _, p := range a.Purchases {
				if !p.Upfront.IsZero() {
					t.Errorf("%q buys %s for %s upfront", a.Alternative, p.Offer, p.Upfront)
				}
			}
		}
		// With nothing uncertain, and nothing beside the gap, trials are what was solved.
		if len(a.Solvers) > 0 && len(a.Unmodelled) == 0 && !uncertain(a.Alternative) && a.TrialsAbove.Abs().GreaterThan(decimal.New(1, 0)) {
			t.Errorf("%s: solved %s, drawn %s", a.Alternative, a.Solved, a.Expected)
		}
		if a.LowerBound.GreaterThan(a.Solved) || a.P5.GreaterThan(a.P50) || a.P50.GreaterThan(a.P95) || a.P95.GreaterThan(a.CVaR) && r.Runs > 20 {
			t.Errorf("%s: bound %s, solved %s, p5 %s, p50 %s, p95 %s, CVaR 90 %s", a.Alternative, a.LowerBound, a.Solved, a.P5, a.P50, a.P95, a.CVaR)
		}
	}
}
