package app

import (
	"encoding/json"
	"flag"
	"regexp"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	instances "quartermaster/domain/instance"
)

var writeInstances = flag.Bool("write-instances", false, "write deploy/demo/instances again")

const (
	awsListed = "AWS EC2 price list, compiled by tsaol/aws-gpu@77fcd9f, 2026-01"
	awsThirds = "AWS EC2 price list, compiled by Netflix-Skunkworks/service-capacity-modeling@dc69307, 2026-06"
	madeUp    = "made up"
)

func listed(s string) domain.Decimal { return decimal.RequireFromString(s) }

func momentOf(s string) domain.Instant {
	t, err := domain.ParseInstant(s)
	if err != nil {
		panic(err)
	}
	return t
}

// workday is demand of machines by the hour: a base, a working day that begins in
// hour begin of UTC and is higher on weekdays, growth in percent over a year, and
// noise that any reader can draw again.
func workday(in *instances.Instance, base, peak, begin, growth int, seed uint64) []int {
	spans := in.Spans()
	hours := int((spans[len(spans)-1].To - spans[0].From) / domain.Hour)
	out := make([]int, hours)
	for h := range out {
		t := (in.From + domain.Instant(h)*domain.Hour).Time()
		n := base
		if since := (t.Hour() - begin + 24) % 24; since < 12 {
			n += peak * (6 - max(since-6, 6-since)) / 6
			if d := t.Weekday(); d == 0 || d == 6 {
				n -= peak * (6 - max(since-6, 6-since)) / 9
			}
		}
		seed = seed*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		n += int(seed>>33)%3 - 1
		out[h] = max(0, n+n*growth*h/(100*8760))
	}
	return out
}

func durations(in *instances.Instance, hourly []int) [][]instances.Step {
	var out [][]instances.Step
	at := 0
	for _, s := range in.Spans() {
		count := map[int]int{}
		most := 0
		for range int((s.To - s.From) / domain.Hour) {
			count[hourly[at]]++
			most = max(most, hourly[at])
			at++
		}
		var curve []instances.Step
		for n := 1; n <= most; n++ {
			if count[n] > 0 {
				curve = append(curve, instances.Step{Units: n, Hours: count[n]})
			}
		}
		out = append(out, curve)
	}
	return out
}

func p4d(region, country string, onDemand string) (instances.Region, instances.Pool) {
	return instances.Region{ID: region, Country: country}, instances.Pool{
		ID: "p4d " + region, Region: region, Class: "p4d.24xlarge", Unit: "vm", GPUs: 8,
		OnDemand: &instances.Price{Hourly: listed(onDemand)}, Quota: "aws " + region,
	}
}

func termOffer(id, pool string, months int, upfront, hourly, citation string) instances.Offer {
	return instances.Offer{
		ID: id, Provider: "aws", Kind: domain.OfferReserved, Pool: pool, Term: months, Upfront: listed(upfront), Hourly: listed(hourly),
		GuaranteesCapacity: false, Citation: citation, Generated: citation == madeUp,
	}
}

// demoInstances are the instances that a reader starts from. Demand is made up;
// prices are listed ones, or said to be made up.
func demoInstances() map[string]*instances.Instance {
	start := func(name string, months int) *instances.Instance {
		return &instances.Instance{
			Format: instances.Format, Name: name, Currency: "USD", From: momentOf("2027-01-01T00:00:00Z"), Epoch: instances.Months, Epochs: months,
			AnnualRate: listed("0.08"), Salvage: listed("0.5"), Source: "example: demand is made up; prices are cited, or marked as generated",
		}
	}
	out := map[string]*instances.Instance{}

	one := start("one pool: what to reserve, and for how long", 24)
	r, p := p4d("us-east-1", "US", "21.957642")
	p.Spot = &instances.Spot{Price: instances.Price{Hourly: listed("9.83")}, Overhead: listed("0.05")}
	one.Regions, one.Pools = []instances.Region{r}, []instances.Pool{p}
	one.Quotas = []instances.Quota{{ID: "aws us-east-1", Limit: 48}}
	one.Demands = []instances.Demand{{
		ID: "inference", Pool: p.ID, Class: "serving", Duration: durations(one, workday(one, 20, 16, 13, 20, 1)), Interruptible: listed("0.1"), Shortage: listed("220"),
	}}
	before := &instances.Instance{From: momentOf("2026-11-02T00:00:00Z"), Epoch: instances.Days, Epochs: 60}
	one.Demands[0].Past = workday(before, 19, 15, 13, 0, 5)
	one.Offers = []instances.Offer{
		termOffer("one year, no upfront", p.ID, 12, "0", "13.921094", awsListed), termOffer("three years, all upfront", p.ID, 36, "214419.99", "0", awsThirds),
		termOffer("three months", p.ID, 3, "0", "17.6", madeUp),
	}
	one.Commitments = []instances.Commitment{{
		ID: "bought in 2026", Kind: domain.OfferReserved, Pool: p.ID, Units: 6, Term: domain.Interval{From: momentOf("2026-07-01T00:00:00Z"), To: momentOf("2027-07-01T00:00:00Z")},
		Hourly: listed("13.921094"), NoticeBy: momentOf("2027-06-01T00:00:00Z"),
	}}
	one.Scenarios = []instances.Scenario{{ID: "as expected", Weight: 6}, {ID: "slow", Weight: 2, Factor: 750}, {ID: "fast", Weight: 2, Factor: 1300}}
	out["single-pool"] = one

	four := start("four regions that help each other out", 3)
	four.Salvage = listed("0")
	for i, x := range []struct {
		region, country, onDemand, quarter string
		begin                              int
	}{{"us-east-1", "US", "21.957642", "16.4", 13}, {"us-west-2", "US", "21.95764", "16.4", 16}, {"eu-central-1", "DE", "27.43298", "20.5", 7}, {"eu-west-1", "IE", "23.71569", "17.7", 8}} {
		r, p := p4d(x.region, x.country, x.onDemand)
		four.Regions, four.Pools = append(four.Regions, r), append(four.Pools, p)
		four.Quotas = append(four.Quotas, instances.Quota{ID: p.Quota, Limit: 12})
		d := instances.Demand{ID: "chat " + x.region, Pool: p.ID, Class: "serving", Hourly: workday(four, 8, 14, x.begin, 0, uint64(i+2)), Shortage: listed("300"), LatencyBudgetMS: 100}
		if x.country == "DE" {
			d.Countries = []string{"DE", "IE"} // its users' data stay in the EU
		}
		four.Demands = append(four.Demands, d)
		o := termOffer("three months in "+x.region, p.ID, 3, "0", x.quarter, madeUp)
		o.GuaranteesCapacity = true
		four.Offers = append(four.Offers, o)
	}
	for _, x := range []struct {
		from, to string
		ms       int
	}{{"us-east-1", "us-west-2", 62}, {"us-east-1", "eu-west-1", 70}, {"us-east-1", "eu-central-1", 92}, {"us-west-2", "eu-west-1", 130}, {"us-west-2", "eu-central-1", 150}, {"eu-west-1", "eu-central-1", 25}} {
		four.Overflow = append(four.Overflow, instances.Overflow{From: x.from, To: x.to, RoundTripMS: x.ms, Hourly: listed("0.35")}, instances.Overflow{From: x.to, To: x.from, RoundTripMS: x.ms, Hourly: listed("0.35")})
	}
	four.Notes = []string{"round trips are examples that follow the distances"}
	out["four-regions"] = four

	spend := start("a commitment to spend over two kinds of machines", 3)
	spend.Salvage = listed("0")
	spend.Regions = []instances.Region{{ID: "us-east-1", Country: "US"}}
	for i, x := range []struct{ class, onDemand, committed string }{{"p4d.24xlarge", "21.957642", "13.921094"}, {"p4de.24xlarge", "27.44705", "17.401365"}} {
		pool := x.class + " us-east-1"
		spend.Pools = append(spend.Pools, instances.Pool{ID: pool, Region: "us-east-1", Class: x.class, Unit: "vm", GPUs: 8, OnDemand: &instances.Price{Hourly: listed(x.onDemand)}})
		spend.Demands = append(spend.Demands, instances.Demand{ID: x.class, Pool: pool, Class: "training", Hourly: workday(spend, 6+2*i, 10, 1+12*i, 0, uint64(i+7)), Shortage: listed("300")})
	}
	spend.Offers = []instances.Offer{{
		ID: "compute plan, three months", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "compute plan", Term: 3, Hourly: listed("10"),
		Rates:    map[string]domain.Decimal{spend.Pools[0].ID: listed("13.921094"), spend.Pools[1].ID: listed("17.401365")},
		Citation: "committed prices are the one-year ones of " + awsListed, Generated: true,
	}}
	out["spend-commitment"] = spend

	ramp := start("a contract with a ramp and tiers", 12)
	r, p = p4d("us-east-1", "US", "21.957642")
	p.Quota = ""
	ramp.Regions, ramp.Pools = []instances.Region{r}, []instances.Pool{p}
	ramp.Demands = []instances.Demand{{ID: "growing", Pool: p.ID, Class: "training", Duration: durations(ramp, workday(ramp, 12, 6, 9, 120, 11)), Shortage: listed("220")}}
	tiered := termOffer("tiered, one year", p.ID, 12, "0", "15.4", madeUp)
	tiered.Tiers = []instances.Tier{{Units: 8, Hourly: listed("14.2")}, {Units: 16, Hourly: listed("13.6")}}
	tiered.To = momentOf("2027-01-02T00:00:00Z")
	ramped := termOffer("ramped, one year", p.ID, 12, "0", "13.9", madeUp)
	ramped.Lot, ramped.MinUnits, ramped.GuaranteesCapacity = 4, 8, true
	ramped.Ramp = []instances.RampStep{{Epoch: 0, Permille: 250}, {Epoch: 3, Permille: 500}, {Epoch: 6, Permille: 1000}}
	ramped.To = momentOf("2027-02-02T00:00:00Z")
	tiered.Exclusive, ramped.Exclusive = "one supplier", "one supplier"
	ramp.Offers = []instances.Offer{tiered, ramped}
	out["ramp-and-tiers"] = ramp

	own := start("buy hardware or rent it", 36)
	r, p = p4d("eu-central-1", "DE", "27.43298")
	p.Quota = ""
	own.Regions, own.Pools = []instances.Region{r}, []instances.Pool{p}
	own.Demands = []instances.Demand{{ID: "fine-tuning", Pool: p.ID, Class: "fine_tuning", Duration: durations(own, workday(own, 10, 6, 8, 10, 13)), Shortage: listed("300")}}
	own.Offers = []instances.Offer{
		termOffer("one year, no upfront", p.ID, 12, "0", "17.392445", awsListed),
		{
			ID: "own machine", Kind: domain.OfferOwned, Pool: p.ID, Term: 60, Upfront: listed("210000"), GuaranteesCapacity: true, LeadHours: 16 * 7 * 24,
			Owned: &instances.Owned{
				PowerKW: listed("5.2"), PUE: listed("1.35"), TariffKWh: listed("0.19"), SpaceMonthly: listed("450"), NetworkMonthly: listed("220"),
				SupportMonthly: listed("1400"), Salvage: listed("0.1"),
			},
			Citation: madeUp, Generated: true,
		},
	}
	out["owned-hardware"] = own

	loss := start("three regions, any of which may be lost", 1)
	loss.Salvage = listed("0")
	for i, x := range []struct{ region, country, onDemand, month string }{{"us-east-1", "US", "21.957642", "16.1"}, {"us-west-2", "US", "21.95764", "16.3"}, {"eu-west-1", "IE", "23.71569", "17.2"}} {
		r, p := p4d(x.region, x.country, x.onDemand)
		loss.Regions, loss.Pools = append(loss.Regions, r), append(loss.Pools, p)
		loss.Quotas = append(loss.Quotas, instances.Quota{ID: p.Quota, Limit: 6})
		loss.Demands = append(loss.Demands, instances.Demand{ID: "api " + x.region, Pool: p.ID, Class: "serving", Hourly: workday(loss, 6, 8, 8+4*i, 0, uint64(i+17)), Shortage: listed("300"), LatencyBudgetMS: 150})
		o := termOffer("a month in "+x.region, p.ID, 1, "0", x.month, madeUp)
		o.Kind, o.GuaranteesCapacity = domain.OfferCapacityBlock, true
		loss.Offers = append(loss.Offers, o)
		for _, y := range []string{"us-east-1", "us-west-2", "eu-west-1"} {
			if y != x.region {
				ms := 130
				if y[:2] == x.region[:2] {
					ms = 62
				}
				loss.Overflow = append(loss.Overflow, instances.Overflow{From: x.region, To: y, RoundTripMS: ms, Hourly: listed("0.35")})
			}
		}
	}
	loss.Posture = &instances.Posture{Kind: instances.ActiveActive, Share: listed("1")}
	out["n-plus-one"] = loss
	return out
}

// written is an instance as a file: one line for a list of numbers.
func written(in *instances.Instance) []byte {
	text, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		panic(err)
	}
	text = regexp.MustCompile(`\[\s+(?:\d+,\s+)*\d+\s+\]`).ReplaceAllFunc(text, func(list []byte) []byte {
		return []byte(strings.Join(strings.Fields(string(list)), ""))
	})
	text = regexp.MustCompile(`\{\s+"units": (\d+),\s+"hours": (\d+)\s+\}`).ReplaceAll(text, []byte(`{"units": $1, "hours": $2}`))
	return append(text, '\n')
}
