package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/long"
)

// draw makes an instance of independent pools.
func draw(t testing.TB, rng *rand.Rand) *Instance {
	at := func(s string) domain.Instant {
		i, err := domain.ParseInstant(s)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	in := &Instance{
		Format: Format, Name: "drawn", Currency: "USD", From: at("2027-03-01T00:00:00Z"), Epoch: Days, Epochs: 2 + rng.IntN(4),
		AnnualRate: dec("0.1"), Salvage: dec("0.4"), FX: map[string]domain.Decimal{"EUR": dec("1.1")},
	}
	for p := range 1 + rng.IntN(3) {
		r := fmt.Sprint("r", p)
		in.Regions = append(in.Regions, Region{ID: r, Country: "US"})
		pool := Pool{ID: fmt.Sprint("p", p), Region: r, Class: "c", Unit: "vm", OnDemand: &Price{Hourly: dec("4"), Path: []PriceStep{{From: at("2027-03-02T12:00:00Z"), Hourly: dec("3.5")}}}, Quota: fmt.Sprint("q", p)}
		if rng.IntN(2) == 0 {
			n := rng.IntN(4)
			pool.Spot = &Spot{Price: Price{Hourly: dec("1.2")}, Overhead: dec("0.1"), Available: &n}
		}
		in.Quotas = append(in.Quotas, Quota{ID: pool.Quota, Limit: rng.IntN(8)})
		in.Pools = append(in.Pools, pool)
		d := Demand{ID: fmt.Sprint("d", p), Pool: pool.ID, Interruptible: dec("0.5"), Shortage: dec("40")}
		for range 24 * in.Epochs {
			d.Hourly = append(d.Hourly, rng.IntN(9))
		}
		in.Demands = append(in.Demands, d)
		for k := range 3 {
			in.Offers = append(in.Offers, Offer{
				ID: fmt.Sprintf("o%d.%d", p, k), Kind: domain.OfferReserved, Pool: pool.ID, Term: 1 + k, Upfront: dec(fmt.Sprint(rng.IntN(30))), Hourly: dec(fmt.Sprint(1 + rng.IntN(3))),
				GuaranteesCapacity: rng.IntN(2) == 0, MaxUnits: rng.IntN(6), LeadHours: rng.IntN(30), Currency: []string{"", "EUR"}[rng.IntN(2)],
			})
		}
		in.Commitments = append(in.Commitments, Commitment{
			ID: fmt.Sprint("held", p), Kind: domain.OfferReserved, Pool: pool.ID, Units: 1, Hourly: dec("2"), GuaranteesCapacity: true,
			Term: domain.Interval{From: at("2027-02-01T00:00:00Z"), To: at("2027-03-03T00:00:00Z")},
		})
	}
	in.Scenarios = []Scenario{{ID: "a", Weight: 4}, {ID: "b", Weight: 2, Factor: 1300, Spot: map[string]int{}}}
	for i := range in.Pools {
		if in.Pools[i].Spot != nil {
			in.Scenarios[1].Spot[in.Pools[i].ID] = 0
		}
	}
	return in
}

func solved(t *testing.T, in *Instance) *Answer {
	t.Helper()
	a, err := Solve(context.Background(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func shuffle[T any](rng *rand.Rand, list []T) {
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// The order of lists does not matter; an answer survives being written and read; and any change of
// it is detected.
func TestAnswersAreOneWhateverTheOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range long.Count(5, 15) {
		in := draw(t, rng)
		a := solved(t, in)
		first, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		other, err := Parse("in.json", text)
		if err != nil {
			t.Fatal(err)
		}
		shuffle(rng, other.Regions)
		shuffle(rng, other.Pools)
		shuffle(rng, other.Demands)
		shuffle(rng, other.Offers)
		shuffle(rng, other.Commitments)
		shuffle(rng, other.Quotas)
		shuffle(rng, other.Scenarios)
		second, err := json.Marshal(solved(t, other))
		if err != nil {
			t.Fatal(err)
		}
		if string(first) != string(second) {
			t.Fatalf("two answers:\n%s\n%s", first, second)
		}
		read, err := ParseAnswer("answer.json", first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(t.Context(), other, read); err != nil {
			t.Fatal(err)
		}
		// Every decimal and number of the answer counts.
		var tree map[string]any
		if err := json.Unmarshal(first, &tree); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"cost", "committed_cost", "purchase_cost", "serving_cost", "shortage_penalty", "lower_bound", "gap", "nominal_cost", "cvar_90", "stranded_at_low_demand"} {
			was := tree[key]
			tree[key] = "0.123"
			changed, _ := json.Marshal(tree)
			tree[key] = was
			x, err := ParseAnswer("answer.json", changed)
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(t.Context(), in, x); err == nil || !strings.Contains(err.Error(), key) {
				t.Fatalf("%s changed is not noticed: %v", key, err)
			}
		}
		for _, change := range []func(*Answer){
			func(a *Answer) { a.Recourse[0].Pools[0].OnDemand = "1" }, func(a *Answer) { a.Calendar[0].Cash = dec("1") },
			func(a *Answer) { a.Scenarios[0].Cost = dec("1") }, func(a *Answer) { a.Proof[0].Bound.SetInt64(1) },
			func(a *Answer) { a.Instance = strings.Repeat("0", 64) }, func(a *Answer) { a.Proof = a.Proof[1:] },
		} {
			x, err := ParseAnswer("answer.json", first)
			if err != nil {
				t.Fatal(err)
			}
			change(x)
			if err := Check(t.Context(), in, x); err == nil {
				t.Fatal("a changed answer passes")
			}
		}
	}
}

// Higher prices, more demand and tighter constraints never reduce the cost.
func TestAnswersAreMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	for i := range long.Count(12, 40) {
		in := draw(t, rng)
		before := solved(t, in)
		if !before.Gap.IsZero() && before.Gap.GreaterThan(dec("0.01")) {
			t.Logf("%d: gap %s", i, before.Gap)
		}
		copied := func() *Instance {
			text, _ := json.Marshal(in)
			out, err := Parse("x", text)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		for name, change := range map[string]func(*Instance){
			"dearer offer": func(in *Instance) { in.Offers[0].Hourly = in.Offers[0].Hourly.Mul(dec("1.2")) },
			"more demand":  func(in *Instance) { in.Demands[0].Hourly[3] += 2 },
			"less quota":   func(in *Instance) { in.Quotas[0].Limit = max(0, in.Quotas[0].Limit-1) },
			"fewer units": func(in *Instance) {
				in.Offers[0].MaxUnits = 1 + in.Offers[0].MaxUnits/4
				if in.Offers[0].MaxUnits > 1 {
					in.Offers[0].MaxUnits--
				}
			},
			"one offer less": func(in *Instance) { in.Offers = in.Offers[1:] },
		} {
			other := copied()
			change(other)
			after := solved(t, other)
			// The other cost is at least this one's bound, which is what is proven.
			if after.Cost.LessThan(before.LowerBound) {
				t.Errorf("%d, %s: cost %s before, and now %s", i, name, before.Cost, after.Cost)
			}
		}
	}
}

// Evaluate agrees with an answer about the answer's orders.
func TestEvaluateAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	for range long.Count(5, 10) {
		in := draw(t, rng)
		a := solved(t, in)
		var orders []Order
		for _, p := range a.Purchases {
			orders = append(orders, p.Order)
		}
		b, err := Evaluate(context.Background(), in, orders)
		if err != nil {
			t.Fatal(err)
		}
		if !b.Cost.Equal(a.Cost) || !b.Nominal.Equal(a.Nominal) || !b.CVaR.Equal(a.CVaR) || !b.Stranded.Equal(a.Stranded) || !b.LowerBound.IsZero() {
			t.Errorf("evaluated %s %s, answered %s %s", b.Cost, b.Nominal, a.Cost, a.Nominal)
		}
		// The parts add up, and the expectation is over the scenarios.
		if !a.Committed.Add(a.Bought).Add(a.Serving).Add(a.Penalty).Equal(a.Cost) {
			t.Errorf("the parts of %s do not sum up to it", a.Cost)
		}
		sum, weight := dec("0"), 0
		for _, s := range a.Scenarios {
			sum, weight = sum.Add(s.Cost.Mul(whole(s.Weight))), weight+s.Weight
		}
		if d := sum.DivRound(whole(weight), 12).Sub(a.Cost).Abs(); d.GreaterThan(dec("0.000000005")) {
			t.Errorf("scenarios come to %s on average, the cost is %s", sum.DivRound(whole(weight), 12), a.Cost)
		}
	}
}
