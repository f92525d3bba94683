package backtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/procurement"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// estate is a log of one pool: machines of eight GPUs with a demand of sixty, plus the given
// commitments, quotas, launches and outages.
func estate(events ...domain.Envelope) *storetest.Log {
	l := storetest.NewLog()
	start := at("2024-01-01")
	cluster := storetest.Cluster("c1", "home", "aws", "r", start)
	l.Append(root.Register(root, "home", domain.RoleAdmin, &domain.Money{Amount: decimal.NewFromInt(1_000_000_000), Currency: "USD"}, start), cluster)
	for day := start; day < at("2024-06-01"); day += domain.Day {
		l.Append(domain.Envelope{Cluster: "c1", Time: day + domain.Day, Recorded: day + domain.Day, Event: &domain.DemandObserved{
			Pool: "p", Model: "H100", Unit: "gpu", Interval: domain.Interval{From: day, To: day + domain.Day}, RunningMilli: 60_000,
		}})
	}
	l.Append(domain.Envelope{Time: start, Event: &domain.OfferQuoted{
		Market: aws, Offer: "od", SKU: "p5.48xlarge", GPUModel: "H100", GPUCount: 8, Kind: domain.OfferOnDemand, Hourly: decimal.NewFromInt(30), Currency: "USD", ValidFrom: start,
	}})
	l.Append(events...)
	return l
}

var (
	root = storetest.NewOperator("root", 1)
	aws  = domain.Market{Provider: "aws", Region: "r"}
)

// decided is a decision that is recorded when it is made.
func decided(day string, ev domain.Event) domain.Envelope {
	return root.Sign(domain.Envelope{Workspace: "home", Time: at(day), Event: ev})
}

func commitment(id string, units uint32, from, to string) *domain.CommitmentPurchased {
	zero := domain.Money{Amount: decimal.Zero, Currency: "USD"}
	return &domain.CommitmentPurchased{
		Commitment: id, Market: aws, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "p5.48xlarge", GPUModel: "H100", GPUsPerUnit: 8, Units: units,
		Term: domain.Interval{From: at(from), To: at(to)}, Upfront: zero, Hourly: zero, GuaranteesCapacity: true,
		Owners: []domain.Share{{Workspace: "home", Share: decimal.NewFromInt(1)}},
	}
}

func quotaSet(day, from string, gpus uint64) domain.Envelope {
	return decided(day, &domain.OnDemandQuotaSet{Market: aws, Account: "1", GPUModel: "H100", LimitGPUs: gpus, EffectiveFrom: at(from)})
}

func launch(recorded, day, name string, replicas uint32) domain.Envelope {
	return domain.Envelope{Workspace: "home", Cluster: "c1", Time: at(day), Recorded: at(recorded), Event: &domain.DeploymentChanged{
		Deployment: name, Class: domain.ClassServing, Replicas: replicas, Need: domain.GPUNeed{Models: []string{"H100"}, Count: 4},
	}}
}

func poolOf(t *testing.T, l *storetest.Log) Pool {
	t.Helper()
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var pools []Pool
	if err := m.View(context.Background(), func(v projections.View) error {
		var left []Excluded
		test := Log{From: at("2024-03-01"), To: at("2024-06-01"), Currency: "USD"}
		if pools, left, err = test.Pools(v); err == nil && (len(left) > 0 || len(pools) != 1) {
			err = fmt.Errorf("%d pools, left out: %v", len(pools), left)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return pools[0]
}

// Each decision uses what the log knew then, in machines: commitments that had begun, the quota,
// launches, and maintenance.
func TestFromLog(t *testing.T) {
	window := domain.Interval{From: at("2024-02-10"), To: at("2024-02-11")}
	p := poolOf(t, estate(
		decided("2024-01-02", commitment("held", 3, "2024-01-05", "2025-01-05")),
		decided("2024-02-02", commitment("ordered", 2, "2024-04-01", "2025-04-01")),
		quotaSet("2024-01-02", "2024-01-02", 100), quotaSet("2024-03-20", "2024-04-01", 41),
		launch("2024-02-20", "2024-04-15", "chat", 8), launch("2024-03-15", "2024-04-20", "more", 1),
		domain.Envelope{Workspace: "home", Cluster: "c1", Time: at("2024-02-01"), Event: &domain.MaintenanceScheduled{Maintenance: "m", Window: window}},
	))
	want := []Held{
		{3, true, domain.Interval{From: at("2024-01-05"), To: at("2025-01-05")}},
		{2, true, domain.Interval{From: at("2024-04-01"), To: at("2025-04-01")}},
	}
	if !slices.Equal(p.Held, want) {
		t.Errorf("held %+v\nwant %+v", p.Held, want)
	}
	for m, quota := range []int{12, 5, 5} {
		if p.Markets[m].Quota != quota {
			t.Errorf("month %d: a quota of %d, want %d", m, p.Markets[m].Quota, quota)
		}
	}
	down := forecast.Change{Span: window, Ignored: true, Why: "it was down, or in maintenance"}
	chat := forecast.Change{Span: domain.Interval{From: at("2024-04-15")}, Milli: 4000, Why: "c1/chat"}
	more := forecast.Change{Span: domain.Interval{From: at("2024-04-20")}, Milli: 500, Why: "c1/more"}
	for m, want := range [][]forecast.Change{{down, chat}, {down, chat, more}, {down, chat, more}} {
		if !slices.Equal(p.Changes[m], want) {
			t.Errorf("month %d: %+v\nwant %+v", m, p.Changes[m], want)
		}
	}
	if p := poolOf(t, estate()); p.Held != nil || p.Markets[0].Quota != procurement.Unlimited {
		t.Errorf("of nothing: held %v, a quota of %d", p.Held, p.Markets[0].Quota)
	}
}

// Events after the first decision do not change what was known at it, whatever time they are about.
func TestNothingLaterIsKnown(t *testing.T) {
	early := []domain.Envelope{
		decided("2024-01-02", commitment("held", 3, "2024-01-05", "2025-01-05")), quotaSet("2024-01-02", "2024-01-02", 100), launch("2024-02-20", "2024-04-15", "chat", 8),
	}
	before := poolOf(t, estate(early...))
	after := poolOf(t, estate(slices.Concat(early, []domain.Envelope{
		decided("2024-03-02", commitment("later", 9, "2024-03-05", "2025-03-05")),
		decided("2024-03-02", &domain.CommitmentEnded{Commitment: "held", At: at("2024-05-01")}),
		quotaSet("2024-03-02", "2024-01-03", 800),
		launch("2024-03-02", "2024-04-15", "chat", 80), launch("2024-03-02", "2024-02-15", "early", 80),
		{Workspace: "home", Cluster: "c1", Time: at("2024-02-01"), Recorded: at("2024-03-02"), Event: &domain.MaintenanceScheduled{Maintenance: "m", Window: domain.Interval{From: at("2024-02-10"), To: at("2024-02-11")}}},
	})...))
	if !slices.Equal(before.Held, after.Held) || before.Markets[0].Quota != after.Markets[0].Quota || !slices.Equal(before.Changes[0], after.Changes[0]) {
		t.Errorf("before %+v, %d, %+v\nafter  %+v, %d, %+v", before.Held, before.Markets[0].Quota, before.Changes[0], after.Held, after.Markets[0].Quota, after.Changes[0])
	}
	if before.Markets[1].Quota == after.Markets[1].Quota || slices.Equal(before.Changes[1], after.Changes[1]) {
		t.Error("a month later nothing more is known: the case is too easy")
	}
}

// A known launch is bought for when it comes, not when it has been observed.
func TestBuysForALaunch(t *testing.T) {
	p := flat("r", "2023-01-01", 365+366, 10_000)
	from := int((at("2024-04-01") - p.From) / domain.Hour)
	for h := from; h < len(p.Milli); h++ {
		p.Milli[h] = 26_000
	}
	p.Markets = generated(12)
	q := question("2024-01-01", "2025-01-01", []Pool{p})
	untold := run(t, q).Pools[0].Bought
	q.Pools[0].Changes = slices.Repeat([][]forecast.Change{{{Span: domain.Interval{From: at("2024-04-01")}, Milli: 16_000}}}, 12)
	told := run(t, q).Pools[0].Bought
	if want := []Bought{{"generated/3y", "2024-01", 10}, {"generated/3y", "2024-04", 16}}; !slices.Equal(told, want) {
		t.Errorf("told of it, the plan buys %v, want %v", told, want)
	}
	if slices.Equal(told, untold) {
		t.Error("untold, the plan buys the same: the case is too easy")
	}
}

// Observations during an outage are not learned from.
func TestOutageIsNotLearned(t *testing.T) {
	p := flat("r", "2023-01-01", 365+31, 10_000)
	out := domain.Interval{From: at("2023-12-20"), To: at("2024-01-01")}
	for h := int((out.From - p.From) / domain.Hour); h < int((out.To-p.From)/domain.Hour); h++ {
		p.Milli[h] = 0
	}
	p.Markets = generated(1)
	q := question("2024-01-01", "2024-02-01", []Pool{p})
	q.Horizon = 1
	untold := run(t, q).All.Forecast
	q.Pools[0].Changes = [][]forecast.Change{{{Span: out, Ignored: true}}}
	told := run(t, q).All.Forecast
	if told.At(900).Covered.String() != "0.9" || !told.AgainstNaive.IsZero() {
		t.Errorf("told of the outage: %+v", told)
	}
	if untold.AgainstNaive.IsZero() {
		t.Errorf("untold: %+v: the case is too easy", untold)
	}
}

// A price that was not quoted yet is that of the next quote of the same offer, and is marked. One
// that became known late counts as it was valid, and is marked too. Neither counts if a price was
// known.
func TestPricesAreCarriedBack(t *testing.T) {
	quote := func(offer, from string, hourly int64, kind domain.OfferKind) *domain.OfferQuoted {
		return &domain.OfferQuoted{
			Market: aws, Offer: offer, SKU: "p4d.24xlarge", GPUModel: "A100", GPUCount: 8, Kind: kind, Hourly: decimal.NewFromInt(hourly),
			Currency: "USD", ValidFrom: at(from), TermMonths: map[domain.OfferKind]uint32{domain.OfferReserved: 12}[kind],
		}
	}
	said := func(recorded string, q *domain.OfferQuoted) domain.Envelope {
		return domain.Envelope{Time: at(recorded), Event: q}
	}
	events := []domain.Envelope{
		said("2024-05-10", quote("a100", "2024-05-01", 20, domain.OfferOnDemand)),
		said("2024-07-01", quote("a100", "2024-07-01", 19, domain.OfferOnDemand)), // after the test, and not the next
		said("2024-03-15", quote("year", "2024-03-10", 9, domain.OfferReserved)),
	}
	for day := at("2024-01-01"); day < at("2024-06-01"); day += domain.Day {
		events = append(events, domain.Envelope{Cluster: "c1", Time: day + domain.Day, Recorded: day + domain.Day, Event: &domain.DemandObserved{
			Pool: "q", Model: "A100", Unit: "gpu", Interval: domain.Interval{From: day, To: day + domain.Day}, RunningMilli: 16_000,
		}})
	}
	m, err := estate(events...).Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var pools []Pool
	if err := m.View(context.Background(), func(v projections.View) error {
		test := Log{From: at("2024-03-01"), To: at("2024-06-01"), Currency: "USD"}
		var left []Excluded
		if pools, left, err = test.Pools(v); err == nil && len(left) > 0 {
			err = fmt.Errorf("left out: %v", left)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Kind != "H100" && len(p.Markets) == 3 })
	if len(pools) != 2 || i < 0 {
		t.Fatalf("%d pools", len(pools))
	}
	for m, market := range pools[i].Markets {
		if got := market.OnDemand; got.Hourly.String() != "20" || !got.Synthetic || got.Since != at("2024-05-10") {
			t.Errorf("month %d: %+v", m, got)
		}
		// From April on the commitment was known.
		if len(market.Terms) != 1 || market.Terms[0].Synthetic != (m == 0) || market.Terms[0].Hourly.String() != "9" {
			t.Errorf("month %d: %+v", m, market.Terms)
		}
	}
	for m, market := range pools[1-i].Markets {
		if market.OnDemand.Synthetic {
			t.Errorf("month %d: the price of the other pool was known", m)
		}
	}
	q := question("2024-03-01", "2024-06-01", pools)
	r := run(t, q)
	want := []SyntheticPrice{{"aws year", 1, at("2024-03-15")}, {"on_demand", 3, at("2024-05-10")}}
	got := slices.Clone(r.Pools[i].Prices)
	slices.SortFunc(got, func(a, b SyntheticPrice) int { return strings.Compare(a.Price, b.Price) })
	if !slices.Equal(got, want) || r.Pools[i].Synthetic != 3 || len(r.Pools[1-i].Prices) != 0 {
		t.Errorf("synthetic prices %+v and %+v", got, r.Pools[1-i].Prices)
	}
	if r.All.Synthetic != 3 || r.All.PoolMonths != 6 {
		t.Errorf("synthetic in %d of %d months of pools", r.All.Synthetic, r.All.PoolMonths)
	}
}
