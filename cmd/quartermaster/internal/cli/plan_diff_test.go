package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/plan"
)

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

// someDay returns a day of the test's years.
func someDay(t *testing.T, s string) domain.Instant {
	t.Helper()
	at, err := domain.ParseTime(s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// twoPlans are a plan, and the same with a new pool, more of one purchase and none of another.
func twoPlans(t *testing.T) (a, b *plan.Plan) {
	t.Helper()
	term := domain.Interval{From: someDay(t, "2026-07-01"), To: someDay(t, "2027-07-01")}
	purchase := func(offer string, units int, cost string) plan.Purchase {
		return plan.Purchase{Provider: "aws", Offer: "big/8xA100/" + offer, Kind: domain.OfferReserved, SKU: "big", GPUModel: "A100 80GB", Units: units, GPUs: 8 * units, Term: term,
			Upfront: dec("1000").Mul(decimal.NewFromInt(int64(units))), Cost: dec(cost)}
	}
	price := dec("1943.25")
	pool := func(kind, cost string, hours int64) plan.PoolPlan {
		return plan.PoolPlan{
			Kind: kind, Unit: "gpu", GPUsPerUnit: 8, Amounts: plan.Amounts{Cost: dec(cost)}, Demand: plan.DemandSummary{UnitHours: hours},
			Served:         plan.Served{Held: hours * 3 / 4, Unused: hours / 16, OnDemand: hours / 4},
			Binding:        []plan.Binding{{Constraint: "on_demand_quota", Detail: "aws allows 8 GPUs on demand, and the plan uses all of it", Price: &price}},
			ExcludedOffers: []plan.ExcludedOffer{{Reason: "priced in EUR", Offers: 4, First: "big/8xA100/reserved"}},
		}
	}
	a = &plan.Plan{
		ID: "plan-aaaaaaaaaaaa", Position: "qm.fleet/0=1", Horizon: term, At: someDay(t, "2026-06-02"),
		Assumptions: plan.Assumptions{Months: 12, Weeks: 4, Currency: "USD"}, Methods: []string{"folds/7", "plan/8"},
		Total:     plan.Amounts{Cost: dec("800000"), Current: dec("1000000"), OnDemand: dec("750000"), LowerBound: dec("800000")},
		Baselines: []plan.Baseline{{Name: "buy_nothing", Cost: dec("1000000")}, {Name: "on_demand", Cost: dec("1600000")}, {Name: "lookback_30d", Cost: dec("804000")}},
		Regions: []plan.RegionPlan{{
			Region: "us-east-1", Amounts: plan.Amounts{Cost: dec("800000")},
			Purchases: []plan.Purchase{purchase("12m", 4, "400000"), purchase("36m", 2, "100000")}, Pools: []plan.PoolPlan{pool("A100 80GB", "800000", 40_000)},
		}},
		Excluded: []plan.ExcludedPool{{Region: "us-east-1", Kind: "H100 80GB", Unit: "gpu", Reason: "no demand data since 2026-05-01", Next: "import newer data"}},
		Ignored:  []plan.Ignored{{Commitment: "savings-1", Reason: "no pool of the plan has a committed price of it"}},
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	b = &plan.Plan{}
	if err := json.Unmarshal(text, b); err != nil {
		t.Fatal(err)
	}
	b.ID, b.Excluded, b.Ignored, b.Assumptions.MonthlyGrowth = "plan-bbbbbbbbbbbb", []plan.ExcludedPool{}, nil, dec("0.02")
	b.Total = plan.Amounts{Cost: dec("1100000"), Current: dec("1000000"), OnDemand: dec("950000"), LowerBound: dec("1090000"), Gap: dec("0.009174311927")}
	r := &b.Regions[0]
	r.Cost = dec("1100000")
	r.Purchases = []plan.Purchase{purchase("12m", 6, "600000")}
	r.Pools = append(r.Pools, pool("H100 80GB", "300000", 8_000))
	return a, b
}

func TestPlanSummaryShown(t *testing.T) {
	first, second := twoPlans(t)
	var out bytes.Buffer
	p := commandLine(&app.App{}, &out, io.Discard)
	p.showSummary(first.Summary())
	p.showSummary(second.Summary())
	golden(t, "plan-summary.txt", out.String())
	if rows := strings.Count(out.String(), "\n"); rows > 2*24 {
		t.Errorf("two summaries take %d lines, want one screen each", rows)
	}
}

// One label means one number: what a summary, the table of pools and the baselines call alike
// is alike.
func TestPlanLabels(t *testing.T) {
	first, _ := twoPlans(t)
	var out bytes.Buffer
	p := commandLine(&app.App{}, &out, io.Discard)
	p.output = asWide // titles stand on one line
	p.showPlan(first, 0)
	for _, c := range []struct{ label, number string }{
		{plan.BuyNothing, "1,000,000.00"}, {plan.UnderQuota, "1,600,000.00"},
	} {
		if !regexp.MustCompile(regexp.QuoteMeta("against "+c.label+" of "+c.number)).MatchString(out.String()) ||
			!regexp.MustCompile(regexp.QuoteMeta(c.label)+` +`+regexp.QuoteMeta(c.number)).MatchString(out.String()) {
			t.Errorf("%q is not %s everywhere in\n%s", c.label, c.number, out.String())
		}
	}
	header := regexp.MustCompile(`(?m)^ region .*$`).FindString(out.String())
	if !strings.Contains(header, plan.BuyNothing) || !strings.Contains(header, plan.WithoutQuota) || strings.Contains(header, plan.UnderQuota) ||
		strings.Contains(out.String(), "all on-demand") || strings.Contains(out.String(), "all on demand") {
		t.Errorf("labels of\n%s", out.String())
	}
}

func TestPlanDiffShown(t *testing.T) {
	first, second := twoPlans(t)
	dir := t.TempDir()
	write := func(name string, p *plan.Plan) string {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b := write("a.json", first), write("b.json", second)
	code, out := command(t, dir, "plan", "diff", a, b)
	if code != 1 {
		t.Errorf("exit %d", code)
	}
	golden(t, "plan-diff.txt", out)
	if code, out = command(t, dir, "plan", "diff", a, a); code != 0 || !strings.Contains(out, "the plans do not differ") {
		t.Errorf("exit %d\n%s", code, out)
	}
	code, out = command(t, dir, "plan", "diff", a, b, "-o", "json")
	var d plan.Diff
	if err := json.Unmarshal([]byte(out), &d); code != 1 || err != nil {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if len(d.Purchases) != 2 || d.Purchases[0].UnitsA != 4 || d.Purchases[0].UnitsB != 6 || d.Purchases[1].Status != plan.Removed || len(d.Pools) != 1 || d.Pools[0].Reason == "" ||
		!d.Costs[0].Change.Equal(dec("300000")) {
		t.Errorf("differs %+v", d)
	}
	if code, out = command(t, dir, "plan", "diff", a, b, "-o", "csv"); code != 1 || !strings.HasPrefix(out, "purchase,status,from,") || !strings.Contains(out, "us-east-1 big/8xA100/12m,changed,2026-07-01,4,6,2000,200000\n") {
		t.Errorf("exit %d\n%s", code, out)
	}
	second.Assumptions.Currency = "EUR"
	for _, c := range []struct {
		b    string
		want string
	}{
		{write("eur.json", second), "plans in different currencies cannot be compared"},
		{write("none.json", &plan.Plan{}), "it has no plan"},
		{filepath.Join(dir, "missing.json"), "is neither a file nor the id of a plan"},
		{"plan-000000000000", ""},
	} {
		if code, out := command(t, dir, "plan", "diff", a, c.b); code != 2 && code != 3 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d, want %q\n%s", c.b, code, c.want, out)
		}
	}
}

// A share is a number or a percentage, and both are the same assumption.
func TestShares(t *testing.T) {
	for text, want := range map[string]string{"0.02": "0.02", "2%": "0.02", "-1.5%": "-0.015", " 2% ": "0.02", "0": "0", "0%": "0"} {
		fl := usualPlan()
		fl.growth = text
		as, err := fl.assumptions()
		if err != nil || !as.MonthlyGrowth.Equal(dec(want)) || as.MonthlyGrowth.String() != want {
			t.Errorf("--growth %q is %s, %v; want %s", text, as.MonthlyGrowth, err, want)
		}
	}
	for _, text := range []string{"%", "2%%", "two", "", "0.000000000000000000002"} {
		fl := usualPlan()
		fl.growth = text
		if _, err := fl.assumptions(); err == nil || !strings.Contains(err.Error(), "such as 0.05 or 5%") {
			t.Errorf("--growth %q: %v", text, err)
		}
	}
}
