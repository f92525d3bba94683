package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/projections/costs"
)

// twiceBilledHome is billedHome with a bill of April, in which research held half as much.
func twiceBilledHome(t *testing.T) string {
	t.Helper()
	dir, files := billedDir(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const april = "42,USD,2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,Usage,2026-04-30T23:00:00Z,2026-05-01T00:00:00Z,acme,"
	for _, args := range [][]string{
		{"import", "usage", write("april.csv", "hour,vc,total_gpu,running_gpu_mean,running_gpu_max,pending_gpu_mean,pending_gpu_max\n2026-04-30 23:00,research,8,2,2,0,0\n"),
			"--cluster", "lab", "--zone", "UTC", "--gpu-model", "V100", "--account", "42", "--sku", "s"},
		{"import", "focus", write("april-bill.csv", "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,"+
			"InvoiceIssuerName,InvoiceId,ResourceId,SkuId,PricingQuantity,PricingUnit,PricingCategory,ServiceCategory,x_LineId\n"+
			"8.005,8.005,"+april+"H,research-000,s,1,Hours,Standard,Compute,A1\n")},
	} {
		if code, out := command(t, dir, args...); code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, out)
		}
	}
	return dir
}

// atPosition hides where in the log an answer is from, and what made it.
var atPosition = regexp.MustCompile(`(?m)^(position|quartermaster|program):? .*$`)

func TestCostsExplained(t *testing.T) {
	dir := twiceBilledHome(t)
	args := []string{"costs", "explain", "--workspace", "research", "--period", "2026-05", "--largest", "2"}
	code, out := command(t, dir, args...)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	_, platform := command(t, dir, "costs", "explain", "--workspace", "platform", "--period", "2026-05")
	golden(t, "costs-explain.txt", atPosition.ReplaceAllString(out+"\n"+platform, "$1 ..."))

	code, doc := command(t, dir, append(args, "-o", "json")...)
	var w costs.Waterfall
	if err := json.Unmarshal([]byte(doc), &w); code != 0 || err != nil {
		t.Fatalf("exit %d, %v\n%s", code, err, doc)
	}
	_, whole := command(t, dir, "costs", "--period", "2026-05", "--workspace", "research", "--by", "", "-o", "json")
	var month costs.Report
	if err := json.Unmarshal([]byte(whole), &month); err != nil {
		t.Fatal(err)
	}
	top := &w.Currencies[0]
	if len(w.Currencies) != 1 || w.Before == nil || top.Effective != month.Totals[0].Effective || top.BilledMinor != month.Totals[0].BilledMinor {
		t.Errorf("explained are %+v, of %+v", w.Currencies, month.Totals)
	}
	if top.Before.Effective.String() != "2.001250000000000000" && top.Before.Effective.String() != "2.00125" {
		t.Errorf("before it was %s", top.Before.Effective)
	}
	if top.PerUseful != nil || top.PerUsefulAbsent != costs.NotMeasured {
		t.Errorf("nobody measured, and a useful hour costs %v (%s)", top.PerUseful, top.PerUsefulAbsent)
	}
	deepest := top.Steps[0].Steps[0].Steps[0]
	if len(deepest.Largest) == 0 {
		t.Fatalf("the deepest step names no allocation: %+v", deepest)
	}
	// The command that the table names explains that allocation.
	ref := deepest.Largest[0].Allocation
	if !strings.Contains(out, "  quartermaster costs explain '"+ref+"'\n") {
		t.Errorf("no command for %s in\n%s", ref, out)
	}
	if code, doc = command(t, dir, "costs", "explain", ref); code != 0 || !strings.HasPrefix(doc, ref+"\n") || !strings.Contains(doc, "useful not measured") {
		t.Errorf("explain %s: exit %d\n%s", ref, code, doc)
	}
	if code, doc = command(t, dir, "costs", "explain", ref, "-o", "json"); code != 0 || !strings.Contains(doc, deepest.Largest[0].Effective.String()) {
		t.Errorf("explain %s: exit %d\n%s", ref, code, doc)
	}
}

func TestCostsExplainForms(t *testing.T) {
	dir := twiceBilledHome(t)
	const ref = "issuer=acme;account=42;line=L1;hour=2026-05-01T00:00:00Z;workspace=research;cluster=lab;deployment=jobs;component=allocated"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, 2, "name an allocation, or --workspace and --period"},
		{[]string{ref, "--workspace", "research"}, 2, "an allocation and --workspace exclude each other"},
		{[]string{ref, "--period", "2026-05"}, 2, "an allocation and --period exclude each other"},
		{[]string{"--workspace", "research"}, 2, "--workspace needs --period"},
		{[]string{"--period", "2026-05"}, 2, "--period needs --workspace"},
		{[]string{"--workspace", "research", "--period", "May"}, 2, `--period "May" is not a billing month`},
		{[]string{"--workspace", "research", "--period", "2026-05", "--ledger", "paid"}, 2, `--ledger "paid": want effective or billed`},
		{[]string{"--workspace", "research", "--period", "2026-05", "--largest", "-1"}, 2, "--largest -1: want 0 or more"},
		{[]string{"--workspace", "no-such", "--period", "2026-05"}, 2, `there is no workspace "no-such"`},
		{[]string{"--workspace", "research", "--period", "2026-03"}, 0, "no bills in 2026-03; there are some in 2026-04, 2026-05"},
		{[]string{"--workspace", "research", "--period", "2026-04"}, 0, "the month before has no bills, so no change is shown"},
		{[]string{"--workspace", "research", "--period", "2026-06"}, 0, "no bills in 2026-06; there are some in 2026-04, 2026-05"},
		{[]string{"--workspace", "research", "--period", "2026-05", "--ledger", "billed"}, 0, "what research is charged for 2026-05, billed"},
		{[]string{"--workspace", "research", "--period", "2026-05", "-o", "csv"}, 0, "step,currency,cost,share,month_before,change,change_percent\nallocated,USD,2.75025,100,2.00125,0.749,37.43\nallocated/lab,"},
		{[]string{ref}, 0, "for the line"},
	} {
		code, out := command(t, dir, append([]string{"costs", "explain"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s", c.args, code, c.code, c.want, out)
		}
	}
}

// Answers are grouped by known dimensions and narrowed to known values.
func TestWhere(t *testing.T) {
	dir := twiceBilledHome(t)
	usage := []string{"usage", "--from", "2026-05-01", "--to", "2026-05-02"}
	month := []string{"costs", "--period", "2026-05", "--by", "component"}
	for _, c := range []struct {
		args  []string
		flags []string
		code  int
		want  string
	}{
		{month, []string{"--where", "component=allocated", "--where", "component=idle"}, 0, "costs of 2026-05, where component is allocated or idle\n"},
		{month, []string{"--where", "colour=red"}, 2, `--where: dimension "colour" is unknown; known are workspace, component`},
		{month, []string{"--where", "component=lost"}, 2, `--where: component "lost" is unknown; known are allocated`},
		{month, []string{"--where", "component"}, 2, `--where: condition "component" is not of the form dimension=value`},
		{[]string{"costs", "--period", "2026-05"}, []string{"--by", "team"}, 2, `--by: dimension "team" is unknown; known are workspace`},
		{[]string{"costs", "--period", "2026-05"}, []string{"--by", "line,line"}, 2, `--by: dimension "line" is named twice`},
		{usage, []string{"--where", "gpu_model=V100", "--where", "workspace="}, 0, ", where gpu_model is V100 and workspace is "},
		{usage, []string{"--where", "component=idle"}, 2, `--where: dimension "component" is unknown; known are workspace, cluster`},
		{usage, []string{"--by", "model"}, 2, `--by: dimension "model" is unknown`},
		{[]string{"costs", "allocations", "--period", "2026-05"}, []string{"--where", "team=a"}, 2, `--where: dimension "team" is unknown`},
	} {
		code, out := command(t, dir, append(slices.Clone(c.args), c.flags...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v %v: exit %d, want %d and %q\n%s", c.args, c.flags, code, c.code, c.want, out)
		}
	}
	// What is shown of a month is the sum of its parts.
	total := func(flags ...string) *costs.Report {
		_, doc := command(t, dir, append(append(slices.Clone(month), "-o", "json"), flags...)...)
		var r costs.Report
		if err := json.Unmarshal([]byte(doc), &r); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		return &r
	}
	all, held := total(), total("--where", "component=allocated")
	rest := []string{}
	for _, g := range all.Groups {
		if name := g.Key[costs.ByComponent]; name != "allocated" {
			rest = append(rest, "--where", "component="+name)
		}
	}
	other := total(rest...)
	if sum := held.Totals[0].Effective.Add(other.Totals[0].Effective); len(held.Groups) != 1 || len(rest) == 0 || sum != all.Totals[0].Effective {
		t.Errorf("%v and %v are not %v", held.Totals, other.Totals, all.Totals)
	}
	if len(held.Where) != 1 || held.Where[0].Values[0] != "allocated" {
		t.Errorf("the answer does not say what it is narrowed to: %+v", held.Where)
	}
	lines := func(flags ...string) int {
		_, doc := command(t, dir, append([]string{"costs", "allocations", "--period", "2026-05", "--limit", "0", "-o", "json"}, flags...)...)
		return strings.Count(doc, "\n")
	}
	if all, some := lines(), lines("--where", "component=allocated"); some == 0 || some >= all {
		t.Errorf("%d of %d allocations are listed", some, all)
	}
}
