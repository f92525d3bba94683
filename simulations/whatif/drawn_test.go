package whatif

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/long"
)

// drawnInstance has what trials evaluate in the same way as instances: currencies, prices and
// quotas that change within an epoch, spare units for failures, curves, commitments that renew or
// cover part of an epoch, offers in lots, with ramps, tiers, least orders and lead times, owned
// hardware, and bounded spot. It does not couple pools, which trials support less.
func drawnInstance(rng *rand.Rand) *instance.Instance {
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	day := func(n int) domain.Instant { return at("2027-03-01") + domain.Instant(n)*domain.Day/2 }
	currency := func() string { return []string{"", "EUR"}[rng.IntN(2)] }
	in := &instance.Instance{
		Format: instance.Format, Name: "drawn", Currency: "USD", From: day(0), Epoch: instance.Days, Epochs: 2 + rng.IntN(4),
		AnnualRate: dec("0.1"), Salvage: dec("0.4"), FX: map[string]domain.Decimal{"EUR": dec("1.1")},
	}
	for p := range 1 + rng.IntN(3) {
		r := fmt.Sprint("r", p)
		in.Regions = append(in.Regions, instance.Region{ID: r, Country: "US"})
		pool := instance.Pool{ID: fmt.Sprint("p", p), Region: r, Class: "c", Unit: "vm", GPUs: 8, OnDemand: &instance.Price{Hourly: dec("4"), Currency: currency()}}
		if chance(2) {
			pool.OnDemand.Path = []instance.PriceStep{{From: day(1 + rng.IntN(5)), Hourly: dec("3.5")}}
		}
		if chance(2) {
			pool.Spot = &instance.Spot{Price: instance.Price{Hourly: dec("1.2"), Currency: currency()}, Overhead: dec("0.1")}
			if n := rng.IntN(4); n > 0 {
				pool.Spot.Available = &n
			}
		}
		if !chance(4) {
			// Limits are in whole units: coupled problems may serve fractions of others.
			q := instance.Quota{ID: fmt.Sprint("q", p), Limit: 2 * rng.IntN(10)}
			if chance(4) {
				q.Limit = 1_000_000_000_000
			}
			if chance(2) {
				q.Path = []instance.QuotaStep{{From: day(1 + rng.IntN(5)), Limit: 2 * rng.IntN(10)}}
			}
			pool.Quota, pool.QuotaPerUnit = q.ID, 1+rng.IntN(2)
			in.Quotas = append(in.Quotas, q)
		}
		in.Pools = append(in.Pools, pool)
		d := instance.Demand{ID: fmt.Sprint("d", p), Pool: pool.ID, Interruptible: dec("0.5"), Shortage: dec("40")}
		if chance(3) {
			for range in.Epochs {
				low := rng.IntN(4)
				d.Duration = append(d.Duration, []instance.Step{{Units: low, Hours: 14}, {Units: low + 3, Hours: 10}})
			}
		} else {
			for range 24 * in.Epochs {
				d.Hourly = append(d.Hourly, rng.IntN(9))
			}
		}
		if chance(3) {
			d.Buffer = &instance.Buffer{ServiceLevel: dec("0.99"), FailuresPerGPUHour: dec("0.0005"), RepairHours: dec("8"), GPUsPerUnit: 8}
		}
		in.Demands = append(in.Demands, d)
		for k := range 3 {
			o := instance.Offer{
				ID: fmt.Sprintf("o%d.%d", p, k), Kind: domain.OfferReserved, Pool: pool.ID, Term: 1 + k, Upfront: dec(fmt.Sprint(rng.IntN(30))), Hourly: dec(fmt.Sprint(1 + rng.IntN(3))),
				GuaranteesCapacity: chance(2), MaxUnits: rng.IntN(6), LeadHours: rng.IntN(30), Currency: currency(),
			}
			switch rng.IntN(6) {
			case 0:
				o.Lot, o.MaxUnits = 2, 0
			case 1:
				o.Term, o.Ramp = 2, []instance.RampStep{{Epoch: 0, Permille: 500}, {Epoch: 1, Permille: 1000}}
				o.Lot, o.MaxUnits = 2, 0
			case 2:
				o.MaxUnits = 0
				o.Tiers = []instance.Tier{{Units: 2, Upfront: o.Upfront, Hourly: dec("0.9")}}
			case 3:
				o.Kind, o.GuaranteesCapacity, o.Term, o.LeadHours = domain.OfferOwned, true, 2+rng.IntN(6), 0
				o.Owned = &instance.Owned{
					PowerKW: dec("10"), PUE: dec("1.3"), TariffKWh: dec("0.1"), SpaceMonthly: dec("30"), NetworkMonthly: dec("10"), SupportMonthly: dec("20"), Salvage: dec("0.1"),
				}
			case 4:
				o.MinUnits, o.MaxUnits = 2, 0
			}
			in.Offers = append(in.Offers, o)
		}
		for k := range rng.IntN(3) {
			c := instance.Commitment{
				ID: fmt.Sprintf("held%d.%d", p, k), Kind: domain.OfferReserved, Pool: pool.ID, Units: 1 + rng.IntN(2), Hourly: dec("2"), Upfront: dec("5"), GuaranteesCapacity: chance(2), Currency: currency(),
				Term: domain.Interval{From: day(-2 - rng.IntN(5)), To: day(1 + rng.IntN(6))},
			}
			if chance(2) { // notice may or may not be too late
				c.Renews, c.NoticeBy = true, c.Term.To-domain.Instant(1+rng.IntN(5))*domain.Day
			}
			in.Commitments = append(in.Commitments, c)
		}
	}
	return in
}

// drawnOrders buys some of what is sold, regardless of its worth.
func drawnOrders(t *testing.T, rng *rand.Rand, in *instance.Instance) []instance.Order {
	var out []instance.Order
	try := func(o instance.Order) bool {
		_, err := instance.Evaluate(t.Context(), in, []instance.Order{o})
		if err == nil {
			out = append(out, o)
		}
		return err == nil
	}
	for i := range in.Offers {
		if rng.IntN(2) == 0 {
			try(instance.Order{Offer: in.Offers[i].ID, Epoch: rng.IntN(in.Epochs), Units: 1 + rng.IntN(4)})
		}
	}
	for i := range in.Commitments {
		c := &in.Commitments[i]
		for e := range in.Epochs {
			if c.Renews && rng.IntN(3) > 0 && try(instance.Order{Commitment: c.ID, Renewals: 1, Epoch: e, Units: c.Units}) {
				break
			}
		}
	}
	return out
}

// With nothing uncertain a trial equals the evaluation of the instance, for any of its features, up
// to the millionth to which trials round each amount.
func TestDrawsEqualEvaluationOfDrawnInstances(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 5))
	seen := map[string]int{}
	for i := range long.Count(25, 60) {
		in := drawnInstance(rng)
		var answered *instance.Answer
		s := &Scenario{Name: "drawn", Question: "the same?", Base: Base{Instance: "in.json"}, Seed: 1, Runs: 1, Set: 1, Alternatives: []Alternative{{Name: "best"}}}
		r, err := Run(t.Context(), &Input{Scenario: s, Instance: in, Solve: func(ctx context.Context, in *instance.Instance) (*instance.Answer, error) {
			var err error
			answered, err = instance.Evaluate(ctx, in, drawnOrders(t, rng, in))
			return answered, err
		}})
		if err != nil {
			t.Fatalf("instance %d: %v", i, err)
		}
		orders := []instance.Order{}
		for _, p := range answered.Purchases {
			orders = append(orders, p.Order)
			seen["bought"]++
			if p.Commitment != "" {
				seen["renewed"]++
				continue
			}
			o := &in.Offers[slices.IndexFunc(in.Offers, func(o instance.Offer) bool { return o.ID == p.Offer })]
			for what, is := range map[string]bool{
				"in lots": o.Lot > 0, "with a ramp": o.Ramp != nil, "in tiers": p.Tier > 0, "owned": o.Owned != nil, "with a least order": o.MinUnits > 0,
				"in another currency": o.Currency != "", "for later": o.LeadHours > 24,
			} {
				if is {
					seen[what]++
				}
			}
		}
		want, err := instance.Evaluate(t.Context(), in, orders)
		if err != nil {
			t.Fatal(err)
		}
		got := &r.Alternatives[0]
		for _, x := range []struct {
			what      string
			got, want decimal.Decimal
		}{{"cost", got.Expected, want.Cost}, {"penalty", got.Penalty, want.Penalty}, {"capacity", got.Committed, want.Committed.Add(want.Bought)}} {
			if x.got.Sub(x.want).Abs().GreaterThan(dec("0.02")) {
				t.Errorf("instance %d: %s is %s, evaluated %s", i, x.what, x.got, x.want)
			}
		}
		if want.Penalty.IsPositive() {
			seen["short"]++
		}
		for j := range in.Demands {
			if in.Demands[j].Buffer != nil {
				seen["buffer"]++
			}
		}
	}
	for _, what := range []string{"bought", "renewed", "short", "buffer", "in lots", "with a ramp", "in tiers", "owned", "with a least order", "in another currency", "for later"} {
		if seen[what] == 0 {
			t.Errorf("no drawn instance has anything %s: the test is too easy", what)
		}
	}
}
