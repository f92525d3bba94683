package cli

import (
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/simulations/demo"
)

// DemoCause is what makes a rule of advice fire on the generated demo, at its end.
type DemoCause struct {
	Rule advice.RuleID
	// About has what all findings of the cause are about. Findings have more fields.
	About advice.Subject
	Why   string
}

// DemoCauses are all causes of findings in the generated demo, in the order of the rules. A test holds that each rule finds its
// cause, and nothing else.
func DemoCauses() []DemoCause {
	rented, owned := advice.Subject{Cluster: demoRented}, advice.Subject{Workspace: demoResearch, Cluster: demoOwned}
	h100 := advice.Subject{Region: demo.PlantedRegion, GPUModel: demo.PlantedGPU}
	overloaded := advice.Subject{Cluster: demo.PlantedSmall, Model: demo.PlantedModel}
	contract := advice.Subject{Workspace: demo.PlantedChat, Name: plantedReserve}
	const asPublished = "a cluster as published ones are: the median activity of a GPU in Acme is 40% (Hu et al., NSDI'24), and a third of the " +
		"GPUs of Helios Earth had no work, half of them on Sundays (Hu et al., SC'21)"
	swapped := "the weights of two clusters were swapped on Saturday: two thirds of the requests go to a third of the replicas"
	return []DemoCause{
		{advice.UtilizationDay, rented, asPublished},
		{advice.UtilizationWeek, rented, "the same cluster, working days included"},
		{advice.ProviderCost, advice.Subject{Provider: plant(demo.PlantedSmall).Provider, GPUModel: demo.PlantedGPU},
			"the same model is served on the same GPUs at the list prices of two providers, 49.24 and 31.92 USD, the lower one reserved"},
		{advice.TierMismatch, rented, "the same cluster: most of its devices have little to do"},
		{advice.Routing, advice.Subject{Model: demo.PlantedModel}, swapped},
		{advice.Shadow, advice.Subject{Cluster: demoRented, Deployment: "jobs"}, "nobody declares the jobs of the virtual clusters"},
		{advice.Unseen, owned, "pods that need no GPU, or found no place: no node reports them"},
		{advice.KVCache, overloaded, swapped + ", and fill its KV cache"},
		{advice.QueueWait, overloaded, swapped + ", where they wait"},
		{advice.FirstToken, overloaded, swapped + ", so first tokens are late"},
		{advice.Oversized, advice.Subject{Workspace: demoResearch, Cluster: demoOwned, GPUModel: "A100 40GB"},
			"pods that hold a whole A100; in PAI most use a quarter of its memory (Hu et al., NSDI'24)"},
		{advice.OwnInstead, h100, "a DGX H100 for 270,000 USD (SemiAnalysis, May 2023), over four years in a colocation, beside list prices by the hour"},
		{advice.UnusedCommitment, contract, "five machines are reserved, and four are there"},
		{advice.CommitmentEnds, contract, "its term ends on 2026-08-15"},
		{advice.NoticeDue, contract, "it wants notice by 2026-06-30"},
		{advice.Quota, advice.Subject{Workspace: demoFirstTenant, Name: "gpus"}, "the quota is 150 GPUs"},
		{advice.Budget, advice.Subject{Workspace: demoFirstTenant, Name: "second-quarter"}, "the budget is 420,000 USD"},
		{advice.Failures, advice.Subject{Cluster: demoRented, Node: demoLemon}, "a lemon: one machine fails four times in its last week. Some nodes fail far more often than others (Kokolis et al., HPCA'25)"},
		{advice.SpotLosses, h100, "spot machines are taken back once in ten hours, where the plan assumes that 5% of their time is lost"},
		{advice.CostAnomaly, advice.Subject{Workspace: demo.PlantedSearch, Region: demo.PlantedRegion, Component: "allocated"},
			"a job that retries without end took four more machines on Saturday"},
		{advice.IdleWindow, advice.Subject{Cluster: demo.PlantedIndex}, "batch work pauses from 02:00 to 10:00 UTC, and its machines do not"},
		{advice.Evidence, advice.Subject{Cluster: demoOwned, Node: demo.SilentNode}, "a node is declared, and its agent was never installed"},
	}
}

// demoLemon is what [lemon] finds on the generated fleet.
const demoLemon = "vc-a09-004"

// lemon returns the machine that fails again and again: the next of the least busy ones.
func lemon(ms []machine) int {
	_, _, serviced := broken(ms)
	return serviced - 1
}

// lemonOutages are four failures within the last week.
var lemonOutages = []domain.Interval{onDay(25, 3), onDay(26, 14), onDay(28, 8), onDay(29, 20)}

// onDay returns two hours of a day of the demo's month, counted from 0.
func onDay(day, hour domain.Instant) domain.Interval {
	from := demoMonth.From + day*domain.Day + hour*domain.Hour
	return domain.Interval{From: from, To: from + 2*domain.Hour}
}

// Prices of a machine with eight H100, as simulations/demo cites them: CoreWeave on demand and spot, and Lambda on demand.
// Their lists name no region. The reserved price is generated: 80 % of on-demand.
var (
	smallOnDemand  = decimal.RequireFromString("49.24")
	smallSpot      = decimal.RequireFromString("19.71")
	largeOnDemand  = decimal.RequireFromString("31.92")
	largeReserved  = decimal.RequireFromString("25.536")
	plantedReserve = "ri-demo-2"
)

// The contract is for one machine more than there are, ends within 90 days, and wants notice within 30.
const plantedUnits = 5

var (
	plantedTerm   = domain.Interval{From: instantOf(2025, 8, 15), To: instantOf(2026, 8, 15)}
	plantedNotice = instantOf(2026, 6, 30)
)

// plant returns the planted cluster of a name.
func plant(cluster string) *demo.Plant {
	for _, p := range demo.Plants() {
		if p.Cluster == cluster {
			return &p
		}
	}
	return &demo.Plant{}
}

func plantedContract(at domain.Instant) domain.Envelope {
	p := plant(demo.PlantedLarge)
	return domain.Envelope{Time: at, Subject: plantedReserve, Workspace: p.Workspace, Event: &domain.CommitmentPurchased{
		Commitment: plantedReserve, Contract: "demo-2", Market: domain.Market{Provider: p.Provider, Region: demo.PlantedRegion},
		BillingAccount: p.Account, Kind: domain.OfferReserved, SKU: p.SKU, GPUModel: demo.PlantedGPU, GPUsPerUnit: 8, Units: plantedUnits,
		Term: plantedTerm, Upfront: domain.Money{Currency: "USD"}, Hourly: domain.Money{Amount: largeReserved, Currency: "USD"},
		Owners:   []domain.Share{{Workspace: p.Workspace, Share: decimal.New(1, 0)}},
		NoticeBy: plantedNotice,
	}}
}

// plantedOffers quotes what machines of the planted clusters' region cost, rented and owned.
//
// An owned one is a DGX H100: 270,000 USD, as SemiAnalysis estimated it in May 2023 (Epoch AI, training-cost-trends), over four
// years, and 10.2 kW, its most by the data sheet, in a colocation for 200 USD a kW and month, which is invented.
func plantedOffers() []domain.Envelope {
	small, large := plant(demo.PlantedSmall), plant(demo.PlantedLarge)
	var envs []domain.Envelope
	for _, o := range []domain.OfferQuoted{
		{Market: domain.Market{Provider: small.Provider}, Offer: small.SKU + "/on_demand", SKU: small.SKU, Kind: domain.OfferOnDemand, Hourly: smallOnDemand,
			Citation: "generated: the public list price, which names no region"},
		{Market: domain.Market{Provider: small.Provider}, Offer: small.SKU + "/spot", SKU: small.SKU, Kind: domain.OfferSpot, Hourly: smallSpot,
			Citation: "generated: the public list price, which names no region"},
		{Market: domain.Market{Provider: large.Provider}, Offer: large.SKU + "/on_demand", SKU: large.SKU, Kind: domain.OfferOnDemand, Hourly: largeOnDemand,
			Citation: "generated: the public list price, which names no region"},
		{Market: domain.Market{Provider: "own"}, Offer: "DGX H100/owned/48m", SKU: "DGX H100", Kind: domain.OfferOwned, TermMonths: 48,
			Upfront: decimal.NewFromInt(270_000), Hourly: decimal.RequireFromString("2.79"), GuaranteesCapacity: true, LeadTimeHours: 90 * 24,
			Citation: "generated: 270,000 USD as SemiAnalysis estimated in May 2023, and 10.2 kW for 200 USD a kW and month"},
	} {
		o.Market.Region, o.GPUModel, o.GPUCount, o.GPUMemoryMiB = demo.PlantedRegion, demo.PlantedGPU, 8, 80<<10
		o.Currency, o.ValidFrom, o.Generated = "USD", instantOf(2026, 1, 1), true
		envs = append(envs, domain.Envelope{Time: o.ValidFrom, Recorded: o.ValidFrom, Subject: o.Offer, Event: &o})
	}
	return envs
}

// plantedBills are the bills of the planted clusters.
func plantedBills() []monthBill {
	small, large, index := plant(demo.PlantedSmall), plant(demo.PlantedLarge), plant(demo.PlantedIndex)
	spot := index.Machines()
	return []monthBill{
		{small.Provider + "-2026-05", &demo.Estate{
			Issuer: "CoreWeave (generated)", Provider: small.Provider, Account: small.Account, Currency: "USD", Period: demoMonth,
			Nodes: append(small.Machines(), spot...), Spot: len(spot), OnDemandHourly: smallOnDemand, SpotHourly: smallSpot,
		}},
		{large.Provider + "-2026-05", &demo.Estate{
			Issuer: "Lambda (generated)", Provider: large.Provider, Account: large.Account, Currency: "USD", Period: demoMonth,
			Nodes: large.Machines(), Reserved: len(large.Machines()), CommitmentID: plantedReserve, Committed: plantedUnits,
			OnDemandHourly: largeOnDemand, ReservedHourly: largeReserved,
		}},
	}
}
