package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/simulations/whatif"
)

// simulateInstance answers a scenario that rests on one of the demo's instances.
func simulateInstance(t *testing.T, name, changes, alternatives string, flags ...string) (*whatif.Result, string, int) {
	t.Helper()
	instance, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy", "demo", "instances", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "scenario.yaml")
	text := scenarioHead + "base: {instance: \"" + filepath.ToSlash(instance) + "\"}\nseed: 3\nruns: 40\nchanges: " + changes + "\nalternatives: " + alternatives + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(append([]string{"--data-dir", filepath.Join(dir, "no data directory"), "simulate", file, "-o", "json"}, flags...), strings.NewReader(""), &out, &errs)
	r := &whatif.Result{}
	if code == 0 {
		if err := json.Unmarshal(out.Bytes(), r); err != nil {
			t.Fatal(err)
		}
	}
	said := errs.String()
	if code != 0 {
		var failed struct{ Error string }
		if err := json.Unmarshal(out.Bytes(), &failed); err == nil {
			said += failed.Error
		} else {
			said += out.String()
		}
	}
	if strings.Contains(said, linear.ErrUnavailable.Error()) {
		t.Skip("this build has no solver of linear programs")
	}
	return r, said, code
}

// What-ifs of an instance need no log: growth costs more, an outage leaves demand
// unserved and the same question gives the same answer.
func TestSimulateInstance(t *testing.T) {
	both := "[{name: best}, {name: rent, buy: nothing}]"
	same, errs, code := simulateInstance(t, "owned-hardware", "[]", both)
	if code != 0 {
		t.Fatal(errs)
	}
	if best, rent := same.Alternatives[0], same.Alternatives[1]; !best.Expected.LessThan(rent.Expected) || len(best.Purchases) == 0 || !best.P5.Equal(best.P95) {
		t.Errorf("best costs %s (%s to %s) with %d purchases, to rent %s", best.Expected, best.P5, best.P95, len(best.Purchases), rent.Expected)
	}
	if same.Position != "" {
		t.Errorf("an instance is at no position of a log, and the answer says %s", same.Position)
	}
	grown, errs, code := simulateInstance(t, "owned-hardware", "[{kind: demand_growth, monthly: {triangular: [0, 0.02, 0.04]}}]", both)
	if code != 0 {
		t.Fatal(errs)
	}
	for i, a := range grown.Alternatives {
		if was := same.Alternatives[i]; !a.Expected.GreaterThan(was.Expected) || !a.P5.LessThan(a.P95) {
			t.Errorf("%s: with growth %s (%s to %s), without %s", a.Alternative, a.Expected, a.P5, a.P95, was.Expected)
		}
	}
	again, _, _ := simulateInstance(t, "owned-hardware", "[{kind: demand_growth, monthly: {triangular: [0, 0.02, 0.04]}}]", both)
	if again.Alternatives[0].Trials != grown.Alternatives[0].Trials {
		t.Error("asked again, the trials come to something else")
	}
	out, errs, code := simulateInstance(t, "owned-hardware", "[{kind: provider_outage, region: eu-central-1, per_year: 6, duration: {fixed: 24}}]", both)
	if code != 0 {
		t.Fatal(errs)
	}
	for i, a := range out.Alternatives {
		if !a.Unserved.GreaterThan(same.Alternatives[i].Unserved) {
			t.Errorf("%s: %s unit-hours unserved with outages, %s without", a.Alternative, a.Unserved, same.Alternatives[i].Unserved)
		}
	}
}

// Regions that help each other out, carry each other, or contracts of which one is
// taken: what needs a solver of linear programs has one.
func TestSimulateCoupledInstance(t *testing.T) {
	for _, name := range []string{"four-regions", "n-plus-one", "ramp-and-tiers"} {
		t.Run(name, func(t *testing.T) {
			r, errs, code := simulateInstance(t, name, "[{kind: demand_growth, monthly: 0.05}]", "[{name: best}]")
			if code != 0 {
				t.Fatal(errs)
			}
			if a := r.Alternatives[0]; !a.Expected.IsPositive() || a.LowerBound.GreaterThan(a.Solved) {
				t.Errorf("expected %s, solved %s, bound %s", a.Expected, a.Solved, a.LowerBound)
			} else if a.TrialsAbove.Abs().GreaterThan(decimal.New(5, -2)) || len(a.Unmodelled) > 0 {
				t.Errorf("with nothing uncertain the trials cost %s more than was solved; unmodelled drivers are %v", a.TrialsAbove, a.Unmodelled)
			}
		})
	}
}

// What cannot be supposed of an instance is refused, with what to do instead.
func TestSimulateInstanceRefuses(t *testing.T) {
	for name, c := range map[string]struct{ instance, changes, want string }{
		"a price":         {"owned-hardware", "[{kind: price_change, factor: 0.9}]", "changes[0] price_change: an instance has no log to suppose it in; change the instance, or base the scenario on the log"},
		"a launch":        {"owned-hardware", "[{kind: demand_growth, monthly: 0}, {kind: quota_change, provider: aws, region: eu-central-1, limit_gpus: 8}]", "changes[1] quota_change: an instance has no log"},
		"scenarios":       {"single-pool", "[]", "the instance has scenarios of its own, which what-ifs do not draw; \"quartermaster plan solve\" answers it without trials"},
		"spend":           {"spend-commitment", "[]", "the instance has commitments to spend, which what-ifs do not draw; \"quartermaster plan solve\" answers it without trials"},
		"a region":        {"owned-hardware", "[{kind: provider_outage, region: mars, per_year: 1, duration: 4}]", "mars"},
		"an unknown file": {"nosuch", "[]", "base.instance: read "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errs, code := simulateInstance(t, c.instance, c.changes, "[{name: a}]"); code == 0 || !strings.Contains(errs, c.want) {
				t.Errorf("exit %d, want %q, have %s", code, c.want, errs)
			}
		})
	}
	if _, errs, code := simulateInstance(t, "owned-hardware", "[]", "[{name: a}]", "--freeze"); code == 0 || !strings.Contains(errs, "a scenario of an instance cannot be frozen: its base is not in the log") {
		t.Errorf("frozen: exit %d, %s", code, errs)
	}
}

// Whoever reads an answer sees what it rests on: the rate, what is credited beyond the
// horizon and what that is worth, and what is paid on the first day. Where trials do not
// keep a constraint, it is said beside their cost.
// A position with an offset in every partition is a base, however long it is written.
func TestSimulateFromALongPosition(t *testing.T) {
	position := domain.Position{}
	for _, tp := range domain.AllPartitions() {
		position[tp] = 1 << 40
	}
	s, err := app.ParseScenario([]byte("apiVersion: quartermaster/v1\nkind: Scenario\nname: long\nseed: 1\nbase: {position: '" + position.String() + "'}\nalternatives: [{name: a}]\n"))
	if err != nil || s.Base.Position != position.String() {
		t.Errorf("a position of %d characters: %v", len(position.String()), err)
	}
}

func TestSimulateSaysWhatItRestsOn(t *testing.T) {
	dir := t.TempDir()
	file, results := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "out")
	instance, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy", "demo", "instances", "owned-hardware.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := scenarioHead + "base: {instance: \"" + filepath.ToSlash(instance) + "\"}\nruns: 20\nchanges: [{kind: demand_growth, monthly: {triangular: [0, 0.02, 0.2]}}]\nalternatives: [{name: best}, {name: as well}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run([]string{"--data-dir", filepath.Join(dir, "no data directory"), "simulate", file, "--out", results}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("%s%s", out.String(), errs.String())
	}
	for _, want := range []string{
		"discount rate ", "with 0% credited beyond the horizon: these purchases would cost ", ", the best found ",
		"with 100% credited beyond the horizon and purchases solved for it: \"as well\" costs 0.00 more than \"best\"", "upfront payments in all: ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said in\n%s", want, out.String())
		}
	}
	for name, want := range map[string]string{
		"purchases.csv": ",upfront,hourly,cost,", "alternatives.csv": ",annual_rate,salvage,", "end-of-horizon.csv": "alternative,salvage,cost,best_cost,lower_bound,best_units,currency\nbest,0,",
	} {
		if b, err := os.ReadFile(filepath.Join(results, name)); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %q: %v\n%s", name, want, err, b)
		}
	}
	a := commandLine(&app.App{}, &out, io.Discard)
	out.Reset()
	kept := whatif.Kept{Constraint: "max_spot_share 0.001", Share: decimal.New(25, -2)}
	a.showSimulation(&whatif.Result{Scenario: &whatif.Scenario{}, Alternatives: []whatif.Outcome{{Alternative: "best", Solvers: []string{"x"}, Solved: decimal.New(7, 0), Kept: []whatif.Kept{kept}}}})
	if want := "\"best\" keeps max_spot_share 0.001 in 25% of the trials, so its expected cost and the differences do not assume that it is kept; solved to keep it in expectation, it costs 7.00"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not said in\n%s", want, out.String())
	}
	if strings.Contains(out.String(), "assumptions: ") {
		t.Error("a document of an earlier version says what it took as given")
	}
}

// The shown growth combines assumptions and changes.
func TestSimulateSaysHowDemandGrows(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"nothing":            {"alternatives: [{name: a}]\n", "the last 4 weeks of demand repeat without growth; "},
		"assumed":            {"assumptions: {monthly_growth: 0.02}\nalternatives: [{name: a}]\n", "the last 4 weeks of demand repeat and grow by 2% a month; "},
		"drawn":              {"changes: [{kind: demand_growth, monthly: {triangular: [0, 0.02, 0.05]}}]\nalternatives: [{name: a}]\n", "repeat and grow by 0% to 5%, most likely 2%, a month; "},
		"lognormal":          {"changes: [{kind: demand_growth, monthly: {lognormal: {p50: 0.01, p95: 0.04}}}]\nalternatives: [{name: a}]\n", "repeat and grow by 1% at the median and 4% at p95 a month; "},
		"in a region":        {"assumptions: {monthly_growth: 0.01}\nchanges: [{kind: demand_growth, factor: 1.5, region: east, when: 2026-09-01}]\nalternatives: [{name: a}]\n", "repeat and grow by 1% a month, and are multiplied by 1.5 in east from 2026-09-01; "},
		"in one alternative": {"alternatives: [{name: a, changes: [{kind: demand_growth, monthly: 0.03}]}, {name: b}]\n", "repeat and grow by 3% a month in \"a\"; "},
	} {
		s, err := app.ParseScenario([]byte(scenarioHead + c.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		zero := decimal.Zero
		if have := takenAsGiven(&whatif.Result{Scenario: s, AnnualRate: &zero, Salvage: &zero}); !strings.Contains(have, c.want) {
			t.Errorf("%s: want %q in %q", name, c.want, have)
		}
	}
}
