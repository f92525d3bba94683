package cli

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// The help of costs names each dimension.
func TestHelpNamesDimensions(t *testing.T) {
	_, text, _ := strings.Cut((&Program{}).costsCommand().Long, "Dimensions for --by and --where: ")
	text, _, _ = strings.Cut(text, ".\n")
	words := strings.FieldsFunc(text, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r == '_') })
	for _, d := range costs.Dimensions() {
		name, _, _ := strings.Cut(string(d), ":")
		if !slices.Contains(words, name) {
			t.Errorf("the help does not name %s: %s", d, text)
		}
	}
}

// billedHome is a data directory with a bill that has something under every key that
// costs, allocations and explain answer with.
func billedDir(t *testing.T) string {
	t.Helper()
	dir, files := t.TempDir(), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const header = "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargeCategory,ChargePeriodStart,ChargePeriodEnd," +
		"InvoiceIssuerName,InvoiceId,ResourceId,SkuId,PricingQuantity,PricingUnit,PricingCategory,CommitmentDiscountId,CommitmentDiscountStatus,ServiceCategory,x_LineId,x_Team\n"
	const month = "42,USD,2026-05-01T00:00:00Z,2026-06-01T00:00:00Z,"
	const hour = "2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,acme,"
	for _, args := range [][]string{
		{"apply", "-f", write("estate.yaml", `apiVersion: quartermaster/v1
kind: Estate
workspace: platform
effective_from: 2026-01-01
regions: [{id: eu, country: DE}]
clusters:
  - {id: lab, provider: acme, provider_class: neocloud, region: eu, billing_account: "42"}
policies:
  - {id: idle, kind: idle_cost, value: owner}
`)},
		{"import", "usage", write("usage.csv", "hour,vc,total_gpu,running_gpu_mean,running_gpu_max,pending_gpu_mean,pending_gpu_max\n2026-05-01 00:00,research,8,4,4,0,0\n"),
			"--cluster", "lab", "--zone", "UTC", "--gpu-model", "V100", "--account", "42", "--sku", "s"},
		{"import", "focus", write("bill.csv", header+
			"10.001,10.001,"+month+"Usage,"+hour+"I,research-000,s,1,Hours,Standard,,,Compute,L1,t\n"+
			"1,1,"+month+"Usage,"+hour+",research-000,s,1,Hours,Standard,,,Compute,L2,\n"+
			"0,2,"+month+"Usage,"+hour+"I,,s,1,Hours,Committed,res,Unused,Compute,L3,\n"+
			"5,5,"+month+"Usage,"+hour+"I,gone,other,1,Hours,Standard,,,Compute,L4,\n")},
		{"import", "focus", write("invoice.csv", "InvoiceIssuerName,InvoiceId,InvoiceDetailId,BilledCost,BillingAccountId,BillingCurrency,ChargeCategory,InvoiceIssueStatus,PaymentCurrency,PaymentTerms,ReferenceInvoiceId,BillingPeriodStart,BillingPeriodEnd\n"+
			"acme,I,D1,15,42,USD,Usage,Issued,USD,Net 30,,2026-05-01T00:00:00Z,2026-06-01T00:00:00Z\n")},
	} {
		if code, out := command(t, dir, args...); code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, out)
		}
	}
	return dir
}

// What costs and its commands answer is held to its schemas, with each key in it once at least.
func TestCostsAnswers(t *testing.T) {
	dir := billedDir(t)
	all := "workspace,component,class,cluster,deployment,region,invoice,line,day,hour,match_method"
	const allocation = "issuer=acme;account=42;line=L1;hour=2026-05-01T00:00:00Z;workspace=research;cluster=lab;deployment=jobs;component=allocated"
	for _, c := range []struct {
		args []string
		some []string
	}{
		{[]string{"costs", "--period", "2026-05", "--by", all, "--workspace", "research"}, []string{"note", "workspace", "operator", "effective_from", "match_method", "rounding_adjustment", "unused_lines", "gpu_ms", "from"}},
		{[]string{"costs", "--period", "2026-05", "--by", ""}, []string{"period", "totals", "owned", "difference_minor", "missing"}},
		{[]string{"costs", "allocations", "--period", "2026-05", "--limit", "1"}, []string{"allocation", "useful_gpu_ms"}},
		{[]string{"costs", "explain", allocation}, []string{"weight_unit", "stated", "incarnation", "resource_id"}},
	} {
		code, out := command(t, dir, append(c.args, "-o", "json")...)
		var answer any
		if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil {
			t.Fatalf("%v: exit %d, %v\n%s", c.args, code, err, out)
		}
		if object, ok := answer.(map[string]any); ok {
			delete(object, "charge") // the columns of FOCUS
		}
		keys := map[string]bool{}
		apptest.KeysUnder(answer, keys)
		for _, k := range c.some {
			if !keys[k] {
				t.Errorf("%v does not answer with %q, so that its schema is not put to the test", c.args, k)
			}
		}
	}
}

// The table's cents foot, and what was generated says so wherever money stands.
func TestCostsShown(t *testing.T) {
	dir := billedDir(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"costs", "-o", "wide", "--period", "2026-05", "--by", ""}, "USD        16.00      18.00   24.00       4.00  not measured "},
		{[]string{"costs", "--period", "2026-05", "--by", "hour"}, "(whole period)"},
		{[]string{"costs", "--period", "2026-05"}, "(none yet, for 2026-05-01 to 2026-06-01)"},
		{[]string{"costs", "--period", "2026-05"}, "none: the platform"},
		{[]string{"costs", "allocations", "--period", "2026-05", "--limit", "2"}, "and 7 more; see --limit"},
		{[]string{"costs", "allocations", "--period", "2026-04"}, "no bills in 2026-04; there are some in 2026-05"},
		{[]string{"costs", "allocations", "--period", "2026-05", "--workspace", "platform:reliability"}, "no part of the bills of 2026-05 is charged to workspace platform:reliability"},
		{[]string{"costs", "explain", "issuer=acme;account=42;line=invoice:I;hour=;workspace=platform;cluster=;deployment=;component=rounding_adjustment"}, "generated for the rounding of the invoice"},
	} {
		if code, out := command(t, dir, c.args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit %d, want %q\n%s", c.args, code, c.want, out)
		}
	}
	for _, args := range [][]string{{"costs", "--period", "2026-05", "--limit", "1"}, {"costs", "allocations", "--period", "2026-05", "--limit", "-1"}, {"costs", "allocations", "--period", "x"}, {"costs", "explain"}} {
		if code, out := command(t, dir, args...); code != 2 {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
	}
	var b strings.Builder
	a := commandLine(&app.App{}, &b, io.Discard)
	a.output = asWide
	r := &costs.Report{Generated: true, Lines: 1, Invoices: []costs.InvoiceReconciliation{{Reconciliation: attribution.Reconciliation{Status: attribution.Reconciled, Generated: true}}}}
	if err := a.showCosts(t.Context(), "", r); err != nil || !strings.Contains(b.String(), generatedNote) || !strings.Contains(b.String(), "reconciled, generated") {
		t.Errorf("a generated bill is shown as\n%s", b.String())
	}
}

// TestInvoicesOfDocuments shows that a document names an invoice in full, and what there is without one.
func TestInvoicesOfDocuments(t *testing.T) {
	long := "(" + strings.Repeat("x", 2*widest) + ")"
	june := domain.Interval{From: domain.InstantOf(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)), To: domain.InstantOf(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC))}
	got := invoicesTable([]attribution.Statement{{Invoice: long, Period: june}, {Period: june}, {}})
	for i, want := range []string{long, "none yet, for 2026-06-01 to 2026-07-01", "the supplier's, not shown"} {
		if got.Rows[i][2] != want {
			t.Errorf("%q, want %q", got.Rows[i][2], want)
		}
	}
}
