package whatif

import (
	"context"
	"testing"
	"time"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/projections"
)

func at(s string) domain.Instant {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return domain.InstantOf(t)
}

func usd(s string) domain.Money { return domain.Money{Amount: dec(s), Currency: "USD"} }

// house is a log with two regions. Each has a cluster, demand for four weeks, and prices on demand,
// as spot and reserved; the first also has a quota, a commitment and a deployment. It is a fork of
// an empty view.
func house(t testing.TB) projections.View {
	t.Helper()
	var base projections.View
	if err := projections.NewMemory(domain.TopicSpecs()).View(t.Context(), func(v projections.View) error {
		base = v
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	start, now := at("2026-05-04"), at("2026-06-01")
	var events []domain.Envelope
	add := func(workspace, cluster string, ev domain.Event) {
		events = append(events, domain.Envelope{Time: at("2026-01-01"), Workspace: workspace, Cluster: cluster, Event: ev})
	}
	for i, region := range []string{"east", "west"} {
		cluster := "c-" + region
		add("platform", "", &domain.RegionDefined{Region: region, Country: "US"})
		add("platform", cluster, &domain.ClusterRegistered{Provider: "aws", ProviderClass: domain.Hyperscaler, Region: region, BillingAccount: "acct"})
		offer := func(id string, kind domain.OfferKind, hourly string, edits ...func(*domain.OfferQuoted)) {
			o := &domain.OfferQuoted{
				Market: domain.Market{Provider: "aws", Region: region}, Offer: id, SKU: "big", GPUModel: "H100 SXM 80GB", GPUCount: 8, Kind: kind, Hourly: dec(hourly), Currency: "USD", ValidFrom: at("2026-01-01"),
			}
			for _, e := range edits {
				e(o)
			}
			add("", "", o)
		}
		offer("od", domain.OfferOnDemand, "40")
		offer("spot", domain.OfferSpot, "16")
		offer("year", domain.OfferReserved, "20", func(o *domain.OfferQuoted) { o.TermMonths, o.GuaranteesCapacity, o.LeadTimeHours = 12, true, 24 })
		for h := start; h < now; h += domain.Hour {
			gpus := uint64(80 + 8*((int64(h/domain.Hour)+int64(6*i))%24))
			events = append(events, domain.Envelope{Time: h + domain.Hour, Cluster: cluster, Event: &domain.DemandObserved{
				Pool: "p", Region: region, Model: "H100 SXM 80GB", Unit: "gpu", Interval: domain.Interval{From: h, To: h + domain.Hour}, RunningMilli: gpus * 1000,
			}})
		}
	}
	add("", "", &domain.OnDemandQuotaSet{Market: domain.Market{Provider: "aws", Region: "east"}, Account: "acct", GPUModel: "H100 SXM 80GB", LimitGPUs: 400, EffectiveFrom: at("2026-01-01")})
	add("", "", &domain.FXRateSet{Base: "EUR", Quote: "USD", Rate: dec("1.1"), Kind: domain.FXSpot, Effective: domain.Interval{From: at("2026-01-01"), To: at("2036-01-01")}})
	add("platform", "", &domain.PolicySet{Policy: "spot", Kind: domain.PolicySpotShare, EffectiveFrom: at("2026-01-01"), Share: domain.NullDecimal{Decimal: dec("0.25"), Valid: true}})
	add("platform", "", &domain.CommitmentPurchased{
		Commitment: "c-1", Market: domain.Market{Provider: "aws", Region: "east"}, BillingAccount: "acct", Kind: domain.OfferReserved, SKU: "big", GPUModel: "H100 SXM 80GB", GPUsPerUnit: 8,
		Units: 4, Term: domain.Interval{From: at("2026-01-01"), To: at("2027-01-01")}, Upfront: usd("0"), Hourly: usd("28"), GuaranteesCapacity: true, Owners: []domain.Share{{Workspace: "platform", Share: dec("1")}},
	})
	add("platform", "c-east", &domain.DeploymentChanged{Deployment: "chat", Class: domain.ClassServing, Replicas: 6, Need: domain.GPUNeed{Count: 4, Models: []string{"H100 SXM 80GB"}}})
	f := NewFork(base)
	if err := f.Append(t.Context(), at("2026-01-02"), events...); err != nil {
		t.Fatal(err)
	}
	return f.Rows()
}

// scenario is a question about the house on 1 June 2026 for six months.
func scenario(changes []Change, alternatives ...Alternative) *Scenario {
	if len(alternatives) == 0 {
		alternatives = []Alternative{{Name: "best", Buy: BuyBest}}
	}
	for i := range alternatives {
		if alternatives[i].Buy == "" {
			alternatives[i].Buy = BuyBest
		}
	}
	return &Scenario{
		Name: "test", Months: 6, Seed: 1, Runs: 50, Set: 4, Changes: changes, Alternatives: alternatives, Report: Reports(),
		Assumptions: plan.Assumptions{Months: 6, Weeks: 4, AnnualRate: dec("0.08"), Salvage: dec("0.5"), SpotOverhead: dec("0.05"), ShortageFactor: dec("10"), Currency: "USD"},
	}
}

func solve(ctx context.Context, in *instance.Instance) (*instance.Answer, error) {
	return instance.Solve(ctx, in, nil)
}

func endOfHorizon(ctx context.Context, in *instance.Instance, a *instance.Answer) error {
	return instance.EndOfHorizon(ctx, in, a, nil, 0)
}

func answer(t testing.TB, view projections.View, s *Scenario) *Result {
	t.Helper()
	r, err := Run(t.Context(), &Input{Scenario: s, View: view, At: at("2026-06-01"), Solve: solve, EndOfHorizon: endOfHorizon, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
