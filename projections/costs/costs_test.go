package costs_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

func report(t *testing.T, l *storetest.Log, q costs.Query) (r *costs.Report) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if r, err = costs.NewReport(v, q); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// house is a log of a month with some of everything; see houseEvents.
func house() *storetest.Log {
	l := storetest.NewLog()
	l.Append(houseEvents()...)
	return l
}

// houseEvents are two nodes of two GPUs that lines name, a pool of two, a commitment with owners,
// tax, a credit, and machines that only the bill or only the fleet knows. The first event is the
// operator's registration.
func houseEvents() (l logged) {
	const day = domain.Day
	limit := storetest.USD("1000000")
	node := func(name, resource string, billing domain.BillingModel) domain.Envelope {
		env := storetest.Node("c", name, "H100 80GB", 2, storetest.Start-day)
		r := env.Event.(*domain.NodeRegistered)
		r.ResourceID, r.SKU, r.BillingModel = resource, "gpu-2", billing
		return env
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, limit, storetest.Start-10*day),
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - day, Event: &domain.ClusterRegistered{
			Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1",
		}},
		node("n1", "r-1", domain.BillingOnDemand), node("n2", "r-2", domain.BillingReserved), node("n3", "", domain.BillingOnDemand), node("n4", "r-4", domain.BillingOnDemand),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - day, Event: &domain.CommitmentPurchased{
			Commitment: "res", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
			GPUsPerUnit: 2, Units: 1, Term: domain.Interval{From: storetest.Start - day, To: storetest.Start + 364*day}, Hourly: *storetest.USD("4"),
			Owners: []domain.Share{{Workspace: "a", Share: storetest.Dec("0.7")}, {Workspace: "b", Share: storetest.Dec("0.3")}},
		}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - day, Event: &domain.PolicySet{Policy: "idle", Kind: domain.PolicyIdleCost, Value: "owner", EffectiveFrom: storetest.Start - day}}),
	)
	seen := func(node string, i int, by, deployment string, activity int) storetest.Seen {
		pod := ""
		if deployment != "" {
			pod = fmt.Sprint(deployment, "-", i)
		}
		return storetest.Seen{ID: storetest.GPU("c", node, i), Workspace: by, Deployment: deployment, Unit: pod, Activity: activity}
	}
	report := func(node string, from, to int, devices ...storetest.Seen) {
		i := storetest.Span(from, to)
		l.Append(domain.Envelope{Source: "reporter/" + node, Cluster: "c", Time: i.To, Event: storetest.Sample(node, i, devices...)})
	}
	report("n1", 0, 60, seen("n1", 0, "a", "chat", 500), seen("n1", 1, "b", "train", 900))
	report("n1", 60, 120, seen("n1", 0, "a", "chat", 500), seen("n1", 1, "", "", 0))
	report("n2", 0, 120, seen("n2", 0, "b", "train", 800), seen("n2", 1, "b", "train", 800))
	report("n3", 0, 120, seen("n3", 0, "a", "chat", 100), seen("n3", 1, "", "", 0))
	report("x1", 0, 120, seen("x1", 0, "b", "train", 100))
	hours := func(from, to int, resource string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.ChargePeriodStart, l.ChargePeriodEnd, l.ResourceID = storetest.Span(60*from, 60*to).From, storetest.Span(60*from, 60*to).To, resource
			l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(int64(to-from))), "Hours"
			l.ServiceCategory, l.RegionID, l.SKUID = "Compute", "eu", "gpu-2"
		}
	}
	committed := func(status string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.CommitmentDiscountID, l.CommitmentDiscountStatus, l.PricingCategory = "res", status, "Committed"
			l.EffectiveCost = decimal.NewNullDecimal(l.BilledCost)
			l.BilledCost = decimal.Zero
		}
	}
	purchase := func(l *domain.BillingLine) {
		l.ChargeCategory, l.ChargeFrequency, l.CommitmentDiscountID, l.PricingCategory = "Purchase", "Recurring", "res", "Committed"
		l.EffectiveCost = decimal.NewNullDecimal(decimal.Zero)
	}
	category := func(c string) func(*domain.BillingLine) { return func(l *domain.BillingLine) { l.ChargeCategory = c } }
	for _, line := range []domain.BillingLine{
		billLine("01-n1", "10.01", hours(0, 2, "r-1")),
		billLine("02-n2", "8", hours(0, 2, "r-2"), committed("Used")),
		billLine("03-unused", "0.5", hours(2, 3, ""), committed("Unused")),
		billLine("04-purchase", "8.5", purchase),
		billLine("05-pool", "3.333", hours(0, 2, "")),
		billLine("06-unknown", "2", hours(0, 1, "r-9"), func(l *domain.BillingLine) { l.SKUID, l.RegionID = "other", "far" }),
		billLine("07-tax", "4.53", category("Tax")),
		billLine("08-credit", "-1", category("Credit")),
		billLine("09-eur", "7", hours(0, 1, "r-1"), func(l *domain.BillingLine) { l.BillingCurrency, l.InvoiceID = "EUR", "i-eur" }),
		billLine("10-open", "0.1", hours(0, 1, "r-1"), func(l *domain.BillingLine) { l.InvoiceID = "" }),
		billLine("12-week", "0.2", hours(0, 1, "r-1"), func(l *domain.BillingLine) { l.InvoiceID, l.BillingPeriodEnd = "", storetest.Start+7*domain.Day }),
	} {
		l.Append(recorded(line))
	}
	l.Append(
		domain.Envelope{Source: "focus/p", Time: storetest.MayBill.To, Event: &domain.BillingLineCorrected{Line: billLine("11-fix", "-0.01", hours(0, 2, "r-1"), func(l *domain.BillingLine) { l.PricingQuantity = decimal.NullDecimal{} }), Corrects: "01-n1", Reason: "price"}},
		domain.Envelope{Source: "focus/i", Time: storetest.MayBill.To, Event: &domain.InvoiceReceived{InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", Total: *storetest.USD("27.36"), Status: "Issued", BillingPeriod: storetest.MayBill}},
		domain.Envelope{Source: "focus/i", Time: storetest.MayBill.To, Event: &domain.InvoiceReceived{InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-eur", Total: domain.Money{Amount: storetest.Dec("7.5"), Currency: "EUR"}, Status: "Issued", BillingPeriod: storetest.MayBill}},
	)
	return l
}

// logged collects events for a log.
type logged []domain.Envelope

func (l *logged) Append(envs ...domain.Envelope) { *l = append(*l, envs...) }

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is otherwise; go test -run %s -update writes it anew\n%s", path, t.Name(), got)
	}
}

func reportText(t *testing.T, r *costs.Report) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func TestCostsGolden(t *testing.T) {
	r := report(t, house(), costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent}})
	golden(t, "costs.json", reportText(t, r))
}

// The order of partitions, the order of events within them and repeats change nothing in a report
// except its position.
func TestCostsKnowNoOrder(t *testing.T) {
	all := costs.Dimensions()
	text := func(t *rapid.T, l *storetest.Log, m *projections.Memory) string {
		var text string
		storetest.Look(t, m, func(v projections.View) error {
			r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: all})
			if err != nil {
				return err
			}
			r.Position = ""
			b, err := json.Marshal(r)
			text = string(b)
			return err
		})
		return text
	}
	var want string
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		if want == "" {
			want = text(t, house(), storetest.Fold(t, house()))
		}
		events := houseEvents()
		l := storetest.NewLog()
		l.Append(events[0]) // the first to register decides
		for _, i := range rapid.Permutation(storetest.Indices(len(events)-1)).Draw(t, "order") {
			l.Append(events[1+i])
			if rapid.IntRange(0, 9).Draw(t, "repeat") == 0 {
				tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
				if n := len(l.Records(tp)); n > 0 {
					l.Repeat(tp, int64(n-1))
				}
			}
		}
		m := projections.NewMemory(domain.TopicSpecs())
		for _, i := range rapid.Permutation(storetest.Indices(len(domain.AllPartitions()))).Draw(t, "partitions") {
			tp := domain.AllPartitions()[i]
			for {
				n, err := storetest.Step(context.Background(), l, m, tp, rapid.IntRange(1, 5).Draw(t, "records"))
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
			}
		}
		if got := text(t, l, m); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// However a bill is divided, its parts add up to it: groups to totals, totals to lines and rounding
// adjustments, workspaces to the total, statements to what was received.
func TestCostsAddUp(t *testing.T) {
	m, err := house().Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		by := rapid.SliceOfNDistinct(rapid.SampledFrom(costs.Dimensions()), 0, 4, rapid.ID).Draw(t, "by")
		storetest.Look(t, m, func(v projections.View) error {
			r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: by})
			if err != nil {
				return err
			}
			for _, total := range r.Totals {
				sum, useful := costs.Cost{}, int64(0)
				for _, g := range r.Groups {
					if g.Currency == total.Currency {
						sum.Billed, sum.Effective = sum.Billed.Add(g.Billed), sum.Effective.Add(g.Effective)
						sum.Bought, sum.Allocated, sum.Measured = sum.Bought+g.Bought, sum.Allocated+g.Allocated, sum.Measured+g.Measured
						useful += *g.Useful
						if *g.Useful > g.Measured || g.Measured > g.Allocated || g.Allocated > g.Bought || (g.PerUseful == nil) != (*g.Useful == 0) {
							t.Errorf("GPU time of %+v", g)
						}
					}
				}
				var lines, statements attribution.Amount
				for _, i := range r.Invoices {
					if i.Currency == total.Currency {
						lines = lines.Add(i.Billed).Add(i.RoundingAdjustment)
					}
				}
				for _, s := range r.Statements {
					if s.Currency == total.Currency {
						statements = statements.Add(s.Billed)
					}
				}
				if sum.Billed != total.Billed || sum.Effective != total.Effective || sum.Bought != total.Bought || sum.Allocated != total.Allocated || useful != *total.Useful {
					t.Errorf("by %v: groups add up to %+v, total %+v", by, sum, total)
				}
				if lines != total.Billed || statements != total.Billed {
					t.Errorf("lines and rounding adjustments are %s, statements %s, total %s", lines, statements, total.Billed)
				}
			}
			if r.UnreconciledCount != 1 || len(r.Unreconciled) != 1 || r.Coverage == nil || *r.Coverage != 1000 {
				t.Errorf("%d invoices differ, want the one in EUR; coverage %v", r.UnreconciledCount, r.Coverage)
			}
			parts := map[string]attribution.Amount{}
			for _, w := range []string{"a", "b", "own", "platform", "platform:unobserved", "nobody"} {
				part, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, Workspace: w, By: by})
				if err != nil {
					return err
				}
				for _, total := range part.Totals {
					parts[total.Currency] = parts[total.Currency].Add(total.Billed)
				}
				if slices.ContainsFunc(part.Statements, func(s attribution.Statement) bool { return s.Workspace != w }) || (part.Coverage == nil) != (w != "a" && w != "b") {
					t.Errorf("%s is shown the statements of others, or coverage %v", w, part.Coverage)
				}
				if len(part.Invoices) != len(r.Invoices) || part.Note == "" {
					t.Errorf("the invoices of %s are not whole: %+v", w, part.Invoices)
				}
			}
			for _, total := range r.Totals {
				if parts[total.Currency] != total.Billed {
					t.Errorf("workspaces add up to %s, total %s", parts[total.Currency], total.Billed)
				}
			}
			return nil
		})
	})
}

// Policies decide who is charged for idle time and who benefits from a discount, and synthetic data
// is marked.
func TestCostsFollowPolicies(t *testing.T) {
	l := house()
	by := []costs.Dimension{costs.ByWorkspace, costs.ByComponent, costs.ByMatchMethod}
	has := func(r *costs.Report, workspace, component, method string) bool {
		return slices.ContainsFunc(r.Groups, func(g costs.Group) bool {
			return g.Key[costs.ByWorkspace] == workspace && g.Key[costs.ByComponent] == component && g.Key[costs.ByMatchMethod] == method
		})
	}
	r := report(t, l, costs.Query{Month: storetest.MayBill, By: by})
	if !has(r, "own", "idle", "by_resource") || has(r, "platform", "idle", "by_resource") || r.Generated || r.Policies[1].Policy != "idle" {
		t.Errorf("as supplied, idle to the owner: %+v", r.Groups)
	}
	regions := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByRegion}})
	for _, g := range regions.Groups {
		// Without a known cluster, the supplier's region counts: tax and owners have none.
		if key := g.Key[costs.ByRegion]; key != "eu" && key != "far" && key != "" || key == "far" && g.Billed.String() != "2" {
			t.Errorf("region %q has %+v", key, g.Cost)
		}
	}
	if len(regions.Groups) != 4 { // eu in two currencies
		t.Errorf("regions: %+v", regions.Groups)
	}
	decide := func(policy string, kind domain.PolicyKind, value string) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.PolicySet{Policy: policy, Kind: kind, Value: value, EffectiveFrom: storetest.Start - domain.Day}})
	}
	l.Append(decide("idle", domain.PolicyIdleCost, "platform"), decide("rate", domain.PolicyCommitmentDiscount, "pool_rate"))
	l.Append(recorded(billLine("14-made", "1", func(l *domain.BillingLine) { l.Generated = true })))
	r = report(t, l, costs.Query{Month: storetest.MayBill, By: by})
	if has(r, "own", "idle", "by_pool") || !has(r, "platform", "idle", "by_pool") || has(r, "a", "allocated", "by_resource") || !r.Generated || r.Policies[0].Value != "pool_rate" {
		t.Errorf("one rate, idle to the platform: %+v, policies %+v", r.Groups, r.Policies)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		made := 0
		err := costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{}, func(l *costs.Allocation) error {
			if l.Generated {
				made++
			}
			if l.Generated && l.Line != "14-made" && !strings.HasPrefix(l.Line, "invoice:") {
				t.Errorf("a supplier sent %s", l.Line)
			}
			return nil
		})
		if err != nil || made == 0 {
			t.Errorf("%d generated allocations, %v", made, err)
		}
	})
}

// Quarantined records may concern any bill, so they count for every workspace.
func TestCostsLack(t *testing.T) {
	l := house()
	l.AppendRaw(domain.TopicPartition{Topic: domain.TopicBilling}, []byte("k"), []byte("no event"), storetest.Start)
	late := recorded(billLine("13-late", "1"))
	late.Source, late.Sequence = "focus/late", 3
	l.Append(late)
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	err = m.View(context.Background(), func(v projections.View) error {
		for _, w := range []string{"", "a"} {
			r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, Workspace: w})
			if err != nil {
				return err
			}
			if r.Incomplete != 1 || r.Missing != 2 {
				t.Errorf("costs of %q lack %+v", w, r.Completeness)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCostsRefuse(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		for _, q := range []costs.Query{
			{Month: storetest.MayBill, By: []costs.Dimension{"colour"}},
			{Month: storetest.MayBill, By: []costs.Dimension{costs.ByLine, costs.ByLine}},
			{Month: domain.Interval{From: storetest.Start, To: storetest.Start + domain.Day}},
		} {
			if _, err := costs.NewReport(v, q); err == nil {
				t.Errorf("%+v was answered", q)
			}
		}
		r, err := costs.NewReport(v, costs.Query{Month: projections.BillingMonth(storetest.MayBill.To)})
		if err != nil || len(r.Groups)+len(r.Totals)+len(r.Invoices)+len(r.Exceptions) != 0 {
			t.Errorf("June has nothing, and is %+v, %v", r, err)
		}
	})
}
