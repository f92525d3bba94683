package whatif

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/projections"
)

func east(kind Kind, edit func(*Change)) Change {
	c := Change{Kind: kind, Region: "east", Model: "H100 SXM 80GB"}
	edit(&c)
	return c
}

// With nothing uncertain a trial equals the evaluation of the instance to the cent: the same
// purchases, spot, on-demand, shortage and holdings.
func TestDrawsEqualEvaluation(t *testing.T) {
	view := house(t)
	for name, alt := range map[string]Alternative{
		"best": {}, "nothing": {Buy: BuyNothing}, "no spot": {Without: []string{"spot"}}, "all spot": {SpotShare: ptr("1")},
	} {
		alt.Name = "x"
		r := answer(t, view, scenario([]Change{
			east(QuotaChange, func(c *Change) { c.Provider, c.LimitGPUs, c.When = "aws", number(Fixed, "64"), at("2026-08-01") }),
			east(PriceChange, func(c *Change) { c.Factor, c.When, c.OfferKind = number(Fixed, "0.9"), at("2026-09-01"), "on_demand" }),
		}, alt))
		k := &composer{ctx: t.Context(), s: r.Scenario, view: view, at: at("2026-06-01"), known: map[string]*composed{}}
		c, err := k.compose(&r.Scenario.Alternatives[0])
		if err != nil {
			t.Fatal(err)
		}
		e := &experiment{in: &Input{}, s: r.Scenario, c: c, spans: c.in.Spans()}
		if e.m, err = newModel(c.in, c.haven()); err != nil {
			t.Fatal(err)
		}
		set, err := e.reduce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var orders []instance.Order
		if alt.Buy != BuyNothing {
			a, err := solve(t.Context(), set.in)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range a.Purchases {
				orders = append(orders, p.Order)
			}
		}
		want, err := instance.Evaluate(t.Context(), set.in, orders)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Alternatives[0]
		for _, x := range []struct {
			what      string
			got, want decimal.Decimal
		}{{"cost", got.Expected, want.Cost}, {"penalty", got.Penalty, want.Penalty}, {"capacity", got.Committed, want.Committed.Add(want.Bought)}, {"median world", got.Median, want.Cost}} {
			if x.got.Sub(x.want).Abs().GreaterThan(dec("0.02")) {
				t.Errorf("%s: %s is %s, evaluated %s", name, x.what, x.got, x.want)
			}
		}
		if name == "nothing" && !got.Penalty.IsPositive() {
			t.Error("the quota refuses nothing: the case is too easy")
		}
	}
}

func ptr(s string) *domain.Decimal {
	d := dec(s)
	return &d
}

// Two equal alternatives have a difference of zero in every trial, whatever is uncertain, and a
// change that only one has does not redraw the other's numbers.
func TestCommonRandomNumbers(t *testing.T) {
	changes := []Change{
		east(DemandGrowth, func(c *Change) { c.Monthly = number(Triangular, "-0.02", "0.02", "0.1") }),
		east(ProviderOutage, func(c *Change) { c.Model, c.PerYear, c.Duration = "", number(Fixed, "2"), number(Lognormal, "6", "24") }),
		east(PriceChange, func(c *Change) { c.Factor, c.OfferKind = number(Lognormal, "1", "1.4"), "on_demand" }),
	}
	own := []Change{east(EfficiencyChange, func(c *Change) { c.Factor = number(Triangular, "1", "1.2", "1.5") })}
	r := answer(t, house(t), scenario(changes, Alternative{Name: "a"}, Alternative{Name: "b"}, Alternative{Name: "c", Changes: own}, Alternative{Name: "d", Buy: BuyNothing}))
	if !slices.Equal(r.trials[0], r.trials[1]) {
		t.Error("equal alternatives differ")
	}
	d := r.Differences[0]
	if !d.Mean.IsZero() || !d.P5.IsZero() || !d.P95.IsZero() || !d.Interval[0].IsZero() || !d.Cheaper.IsZero() {
		t.Errorf("equal alternatives differ: %+v", d)
	}
	if slices.Equal(r.trials[0], r.trials[2]) || slices.Equal(r.trials[0], r.trials[3]) {
		t.Error("unequal alternatives do not differ")
	}
	// Demand of "d" is that of "a" in every trial, but its purchases differ.
	for i := range r.trials[0] {
		if r.trials[0][i].demand != r.trials[3][i].demand {
			t.Fatalf("trial %d: demand %d and %d", i, r.trials[0][i].demand, r.trials[3][i].demand)
		}
	}
	for _, x := range r.Drivers {
		want := 4
		if strings.HasPrefix(x.Name, "efficiency") {
			want = 1
		}
		if len(x.Alternatives) != want {
			t.Errorf("driver %s is of %v", x.Name, x.Alternatives)
		}
	}
}

// The same question gives the same bytes for any number of workers, and a document that is read
// back asks the same question.
func TestSameBytes(t *testing.T) {
	view := house(t)
	s := scenario([]Change{
		east(DemandGrowth, func(c *Change) { c.Monthly = number(Triangular, "0", "0.02", "0.05") }),
		east(NewOffer, func(c *Change) {
			c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Guaranteed, c.LeadHours = "neo", "half", "reserved", 6, number(Triangular, "18", "20", "25"), true, number(Lognormal, "200", "900")
		}),
	}, Alternative{Name: "a"}, Alternative{Name: "b", Buy: BuyNothing})
	var first []byte
	for _, workers := range []int{1, 3} {
		r, err := Run(t.Context(), &Input{Scenario: s, View: view, At: at("2026-06-01"), Solve: solve, EndOfHorizon: endOfHorizon, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
			var back Result
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			s = back.Scenario
			continue
		}
		if !bytes.Equal(b, first) {
			t.Error("the same question gives other bytes")
		}
	}
	other := *s
	other.Seed++
	r := answer(t, view, &other)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(b, first) {
		t.Error("another seed gives the same bytes")
	}
}

// Cancelling ends a run between trials.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := scenario([]Change{east(DemandGrowth, func(c *Change) { c.Monthly = number(Triangular, "0", "0.02", "0.05") })}, Alternative{Name: "a", Buy: BuyNothing})
	s.Runs = 100_000
	var drawn int64
	_, err := Run(ctx, &Input{Scenario: s, View: house(t), At: at("2026-06-01"), Solve: solve, EndOfHorizon: endOfHorizon, Workers: 1, Progress: func(done, _ int64) {
		drawn = done
		if done == 10 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || drawn > 11 {
		t.Errorf("after %d trials: %v", drawn, err)
	}
	cancel()
	if _, err := Run(ctx, &Input{Scenario: s, View: house(t), At: at("2026-06-01"), Solve: solve, EndOfHorizon: endOfHorizon}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it began: %v", err)
	}
}

// compose returns the alternative of a change on the house, and the forked rows.
func compose(t *testing.T, view projections.View, changes ...Change) *composed {
	t.Helper()
	s := scenario(changes)
	k := &composer{ctx: t.Context(), s: s, view: view, at: at("2026-06-01"), known: map[string]*composed{}}
	c, err := k.compose(&s.Alternatives[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each kind of change has an effect on the instance, the forked rows, or a trial; without the
// change there is none.
func TestEveryKindOfChange(t *testing.T) {
	view := house(t)
	plain := compose(t, view)
	cost := func(changes ...Change) decimal.Decimal {
		return answer(t, view, scenario(changes, Alternative{Name: "x", Buy: BuyNothing})).Alternatives[0].Expected
	}
	base := cost()
	pool := func(c *composed) *instance.Pool { return &c.in.Pools[c.pool("east H100 SXM 80GB")] }
	offer := func(c *composed, id string) *instance.Offer {
		i := slices.IndexFunc(c.in.Offers, func(o instance.Offer) bool { return strings.Contains(o.ID, id) && strings.HasPrefix(o.Pool, "east") })
		if i < 0 {
			return nil
		}
		return &c.in.Offers[i]
	}
	dearer := func(name string, c Change) {
		t.Helper()
		if got := cost(c); !got.GreaterThan(base) {
			t.Errorf("%s: costs %s, without it %s", name, got, base)
		}
	}
	cheaper := func(name string, c Change) {
		t.Helper()
		if got := cost(c); !got.LessThan(base) {
			t.Errorf("%s: costs %s, without it %s", name, got, base)
		}
	}
	tested := map[Kind]bool{}
	run := func(k Kind, f func(t *testing.T)) {
		tested[k] = true
		t.Run(string(k), f)
	}
	run(DemandGrowth, func(*testing.T) {
		dearer("growth", east(DemandGrowth, func(c *Change) { c.Monthly = number(Fixed, "0.03") }))
		cheaper("half of it", east(DemandGrowth, func(c *Change) { c.Factor, c.When = number(Fixed, "0.5"), at("2026-08-01") }))
	})
	run(EfficiencyChange, func(*testing.T) {
		cheaper("efficiency", east(EfficiencyChange, func(c *Change) { c.Factor = number(Fixed, "1.25") }))
	})
	run(ModelLaunch, func(t *testing.T) {
		launch := east(ModelLaunch, func(c *Change) {
			c.Deployment, c.When, c.Replicas, c.GPUs = "new", at("2026-08-01"), number(Fixed, "3"), 8
		})
		dearer("launch", launch)
		c := compose(t, view, launch)
		if l := c.levers[0]; l.unit != one || l.from != 2 || l.before != 0 {
			t.Errorf("a replica of 8 GPUs takes %d millionths of a machine from epoch %d", l.unit, l.from)
		}
	})
	run(DeploymentChange, func(t *testing.T) {
		double := Change{Kind: DeploymentChange, Deployment: "chat", Factor: number(Fixed, "2"), When: at("2026-07-01")}
		dearer("twice the replicas", double)
		cheaper("it ends", Change{Kind: DeploymentChange, Deployment: "chat", Removed: true, When: at("2026-07-01")})
		c := compose(t, view, double)
		if l := c.levers[0]; l.unit != one/2 || l.before != 6 {
			t.Errorf("a replica of 4 GPUs takes %d millionths of a machine, there are %d", l.unit, l.before)
		}
		s := &supposer{ctx: t.Context(), fork: NewFork(view), at: at("2026-06-01"), end: at("2027-01-01"), currency: "USD"}
		if err := s.suppose(0, &double); err != nil {
			t.Fatal(err)
		}
		row, err := s.fork.Rows().Get(projections.Key{Table: projections.TableDeployments, Scope: "c-east", ID: "chat"})
		if err != nil {
			t.Fatal(err)
		}
		if n := row.(*projections.History).At(at("2026-07-02")).Event.(*domain.DeploymentChanged).Replicas; n != 12 {
			t.Errorf("in the fork %d replicas are declared, want 12", n)
		}
	})
	run(ProviderOutage, func(*testing.T) {
		dearer("outage", east(ProviderOutage, func(c *Change) { c.Model, c.When, c.Duration = "", at("2026-07-15"), number(Fixed, "12") }))
		dearer("outages of the supplier", Change{Kind: ProviderOutage, Provider: "aws", PerYear: number(Fixed, "3"), Duration: number(Fixed, "6")})
		if got := cost(Change{Kind: ProviderOutage, Provider: "aws", PerYear: number(Fixed, "0"), Duration: number(Fixed, "6")}); !got.Equal(base) {
			t.Errorf("an outage that never is costs %s", got.Sub(base))
		}
	})
	run(Maintenance, func(*testing.T) {
		dearer("maintenance", east(Maintenance, func(c *Change) {
			c.When, c.Duration, c.Units = at("2026-07-15"), number(Fixed, "48"), number(Fixed, "4")
		}))
	})
	run(PriceChange, func(t *testing.T) {
		c := compose(t, view, east(PriceChange, func(c *Change) { c.Factor, c.When = number(Fixed, "0.5"), at("2026-09-01") }))
		if p := pool(c).OnDemand; len(p.Path) != 1 || !p.Path[0].Hourly.Equal(dec("20")) || !p.Hourly.Equal(dec("40")) {
			t.Errorf("on demand %+v", p)
		}
		if o := offer(c, "year from 2026-09-01"); o == nil || !o.Hourly.Equal(dec("10")) || offer(c, "year").To != at("2026-09-01") {
			t.Errorf("reserved %+v", c.in.Offers)
		}
		c = compose(t, view, east(PriceChange, func(c *Change) { c.Hourly, c.OfferKind = number(Fixed, "9"), "spot" }))
		if p := pool(c).Spot; !p.Hourly.Equal(dec("9")) {
			t.Errorf("spot %+v", p)
		}
	})
	run(NewOffer, func(t *testing.T) {
		c := compose(t, view, east(NewOffer, func(c *Change) {
			c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Guaranteed, c.MaxUnits = "neo", "cheap", "reserved", 3, number(Fixed, "15"), true, 5
		}), east(NewOffer, func(c *Change) {
			c.Provider, c.Offer, c.OfferKind, c.Term, c.Upfront, c.PowerKW, c.TariffKWh = "own", "machine", "owned", 60, number(Fixed, "300000"), number(Fixed, "10"), number(Fixed, "0.1")
		}))
		if o := offer(c, "cheap"); o == nil || o.MaxUnits != 5 || o.Term != 3 || !o.GuaranteesCapacity {
			t.Errorf("offered is %+v", o)
		}
		if o := offer(c, "machine"); o == nil || o.Owned == nil || !o.Owned.PowerKW.Equal(dec("10")) || o.Term != 60 {
			t.Errorf("owned is %+v", o)
		}
	})
	run(PurchaseMade, func(t *testing.T) {
		c := compose(t, view, east(PurchaseMade, func(c *Change) {
			c.Provider, c.Commitment, c.Units, c.When, c.Term, c.Hourly, c.Guaranteed = "aws", "c-2", number(Fixed, "3"), at("2026-07-01"), 12, number(Fixed, "25"), true
		}))
		if len(c.in.Commitments) != len(plain.in.Commitments)+1 || c.in.Commitments[1].Units != 3 {
			t.Errorf("held is %+v", c.in.Commitments)
		}
	})
	run(Renewal, func(t *testing.T) {
		c := compose(t, view, Change{Kind: Renewal, Commitment: "c-1", Term: 12, Factor: number(Fixed, "0.9")})
		if len(c.in.Commitments) != 2 || !c.in.Commitments[1].Hourly.Equal(dec("25.2")) || c.in.Commitments[1].Term.From != at("2027-01-01") {
			t.Errorf("held is %+v", c.in.Commitments)
		}
		c = compose(t, view, Change{Kind: Renewal, Commitment: "c-1", End: true})
		if len(c.in.Commitments) != 1 {
			t.Errorf("held is %+v", c.in.Commitments)
		}
	})
	run(FailureRate, func(*testing.T) {
		dearer("failures", east(FailureRate, func(c *Change) { c.PerGPUHour, c.RepairHours = number(Fixed, "0.0005"), number(Fixed, "48") }))
	})
	run(SpotInterruption, func(*testing.T) {
		dearer("interruptions", east(SpotInterruption, func(c *Change) { c.PerUnitHour, c.LostHours = number(Fixed, "0.5"), number(Fixed, "1") }))
		dearer("no spot", east(SpotInterruption, func(c *Change) { c.Available = number(Fixed, "0") }))
		if got := cost(east(SpotInterruption, func(c *Change) { c.PerUnitHour, c.LostHours = number(Fixed, "0.05"), number(Fixed, "1") })); !got.Equal(base) {
			t.Errorf("interruptions as they are assumed cost %s more", got.Sub(base))
		}
	})
	run(LeadTime, func(t *testing.T) {
		c := compose(t, view, east(LeadTime, func(c *Change) { c.Hours = number(Fixed, "1000") }))
		if o := offer(c, "year"); o.From != at("2026-06-01")+1000*domain.Hour {
			t.Errorf("offered from %s", o.From)
		}
		short := []Change{east(QuotaChange, func(c *Change) { c.Provider, c.LimitGPUs = "aws", number(Fixed, "8") })}
		late := append(slices.Clone(short), east(LeadTime, func(c *Change) { c.Hours = number(Lognormal, "24", "900") }))
		before, after := answer(t, view, scenario(short)).Alternatives[0], answer(t, view, scenario(late)).Alternatives[0]
		if !after.Penalty.GreaterThan(before.Penalty) {
			t.Errorf("late delivery leaves %s unserved, in time %s", after.Penalty, before.Penalty)
		}
	})
	run(QuotaChange, func(t *testing.T) {
		c := compose(t, view, east(QuotaChange, func(c *Change) { c.Provider, c.LimitGPUs, c.When = "aws", number(Fixed, "16"), at("2026-08-01") }))
		if q := c.in.Quotas[0]; q.Limit != 400 || len(q.Path) != 1 || q.Path[0].Limit != 16 {
			t.Errorf("quota %+v", q)
		}
		dearer("a smaller quota", east(QuotaChange, func(c *Change) { c.Provider, c.LimitGPUs = "aws", number(Fixed, "16") }))
	})
	run(FXChange, func(t *testing.T) {
		euros := east(NewOffer, func(c *Change) {
			c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Guaranteed, c.Currency = "neo", "euros", "reserved", 3, number(Fixed, "10"), true, "EUR"
		})
		if o := offer(compose(t, view, euros), "euros"); !o.Hourly.Equal(dec("11")) {
			t.Errorf("at the rate of the log 10 EUR are %s", o.Hourly)
		}
		if o := offer(compose(t, view, euros, Change{Kind: FXChange, Base: "EUR", Quote: "USD", Rate: number(Fixed, "1.5")}), "euros"); !o.Hourly.Equal(dec("15")) {
			t.Errorf("at the supposed rate 10 EUR are %s", o.Hourly)
		}
		r := answer(t, view, scenario([]Change{euros, {Kind: FXChange, Base: "EUR", Quote: "USD", Rate: number(Lognormal, "1.1", "1.4")}}))
		if a := r.Alternatives[0]; len(a.Purchases) == 0 || a.P5.Equal(a.P95) {
			t.Errorf("an uncertain rate moves nothing: %s to %s", a.P5, a.P95)
		}
	})
	for _, k := range Kinds() {
		if !tested[k] {
			t.Errorf("%s is not tested", k)
		}
	}
}

// A lost region is served by another if a posture says so.
func TestPosture(t *testing.T) {
	view := house(t)
	outage := []Change{{Kind: ProviderOutage, Region: "east", When: at("2026-07-15"), Duration: number(Fixed, "10")}}
	r := answer(t, view, scenario(outage,
		Alternative{Name: "down", Buy: BuyNothing},
		Alternative{Name: "over", Buy: BuyNothing, Posture: &instance.Posture{Kind: instance.ActiveActive, Share: dec("1")}},
		Alternative{Name: "half", Buy: BuyNothing, Posture: &instance.Posture{Kind: instance.ActivePassive, Share: dec("0.5"), Standby: "west", Cold: ptr("0.1")}},
	))
	down, over, half := &r.Alternatives[0], &r.Alternatives[1], &r.Alternatives[2]
	if !down.Unserved.IsPositive() || !over.Unserved.IsZero() || !half.Unserved.Equal(down.Unserved.Div(dec("2"))) {
		t.Errorf("unserved are %s without, %s with a posture and %s with half of one", down.Unserved, over.Unserved, half.Unserved)
	}
	if !half.Expected.GreaterThan(over.Expected) {
		t.Errorf("a cold standby all year costs %s, none %s", half.Expected, over.Expected)
	}
}

// A lost provider takes all of its pools, and the others carry its work if a posture says so.
func TestPostureOverProviders(t *testing.T) {
	in := &instance.Instance{
		Format: instance.Format, Name: "providers", Currency: "USD", From: at("2026-07-01"), Epoch: instance.Days, Epochs: 2,
		AnnualRate: dec("0"), Salvage: dec("0"), Regions: []instance.Region{{ID: "r"}},
		Demands: []instance.Demand{{ID: "d", Pool: "a", Class: "serving", Hourly: slices.Repeat([]int{4}, 48), Interruptible: dec("0"), Shortage: dec("20")}},
	}
	for _, p := range []string{"a", "b"} {
		in.Pools = append(in.Pools, instance.Pool{ID: p, Region: "r", Class: "A", Unit: "vm", GPUs: 8, Provider: p})
		in.Offers = append(in.Offers, instance.Offer{ID: p, Kind: domain.OfferReserved, Pool: p, Term: 2, Hourly: dec("1"), GuaranteesCapacity: true})
	}
	s := &Scenario{
		Name: "lost", Question: "who carries it?", Base: Base{Instance: "in.json"}, Seed: 1, Runs: 20, Set: 1,
		Changes: []Change{{Kind: ProviderOutage, Provider: "a", When: at("2026-07-01"), Duration: number(Fixed, "24")}},
		Alternatives: []Alternative{
			{Name: "best"}, {Name: "both", Posture: &instance.Posture{Kind: instance.MultiProvider, Share: dec("1")}},
		},
	}
	run := func() (*Result, error) {
		return Run(t.Context(), &Input{Scenario: s, Instance: in, Solve: func(ctx context.Context, in *instance.Instance) (*instance.Answer, error) {
			orders := []instance.Order{{Offer: "a", Units: 4}}
			if in.Posture != nil {
				orders = append(orders, instance.Order{Offer: "b", Units: 4})
			}
			return instance.Evaluate(ctx, in, orders)
		}})
	}
	r, err := run()
	if err != nil {
		t.Fatal(err)
	}
	if alone, both := r.Alternatives[0].Unserved, r.Alternatives[1].Unserved; !alone.IsPositive() || !both.IsZero() {
		t.Errorf("unserved are %s without a posture and %s with one", alone, both)
	}
	in.Pools[1].Provider = ""
	if _, err := run(); err == nil || !strings.Contains(err.Error(), `pool "b" does not name its provider`) {
		t.Errorf("a pool without a provider: %v", err)
	}
}

// An alternative without upfront payments buys nothing that is paid upfront, but still buys other
// offers that pay.
func TestPaymentOptions(t *testing.T) {
	changes := []Change{east(NewOffer, func(c *Change) {
		c.Provider, c.Offer, c.OfferKind, c.Term, c.Upfront, c.Hourly = "aws", "prepaid", "reserved", 6, number(Fixed, "30000"), number(Fixed, "0")
	})}
	r := answer(t, house(t), scenario(changes,
		Alternative{Name: "any"}, Alternative{Name: "none upfront", PaymentOptions: []string{NoUpfront}}, Alternative{Name: "all upfront", PaymentOptions: []string{AllUpfront}},
	))
	for i, want := range []struct{ upfront, hourly bool }{{true, false}, {false, true}, {true, false}} {
		x := &r.Alternatives[i]
		var upfront, hourly bool
		for _, p := range x.Purchases {
			if !strings.HasPrefix(p.Pool, "east") {
				continue // the offer is of that region
			}
			upfront, hourly = upfront || !p.Upfront.IsZero(), hourly || !p.Hourly.IsZero()
		}
		if upfront != want.upfront || hourly != want.hourly {
			t.Errorf("%s buys %+v", x.Alternative, x.Purchases)
		}
	}
}

func TestPaymentOption(t *testing.T) {
	for want, offers := range map[string][]instance.Offer{
		NoUpfront:      {{Hourly: dec("2")}, {Hourly: dec("2"), Tiers: []instance.Tier{{Units: 9, Hourly: dec("1")}}}},
		PartialUpfront: {{Upfront: dec("1"), Hourly: dec("2")}, {Hourly: dec("2"), Tiers: []instance.Tier{{Units: 9, Upfront: dec("1")}}}},
		AllUpfront:     {{Upfront: dec("1")}, {Kind: domain.OfferOwned, Upfront: dec("1"), Hourly: dec("2")}},
	} {
		for i := range offers {
			if have := PaymentOption(&offers[i]); have != want {
				t.Errorf("%s, want %s: %+v", have, want, offers[i])
			}
		}
	}
}

// References of a scenario to unknown things are reported.
func TestRefusals(t *testing.T) {
	view := house(t)
	for want, c := range map[string]Change{
		"no deployment \"nosuch\"":   {Kind: DeploymentChange, Deployment: "nosuch", Removed: true},
		"no commitment \"nosuch\"":   {Kind: Renewal, Commitment: "nosuch", End: true},
		"no pool is of region mars":  {Kind: DemandGrowth, Region: "mars", Factor: number(Fixed, "2")},
		"no offer then is one of":    {Kind: PriceChange, Provider: "nosuch", Factor: number(Fixed, "2")},
		"no cluster \"nosuch\"":      {Kind: ModelLaunch, Cluster: "nosuch", Deployment: "d", When: at("2026-07-01"), Replicas: number(Fixed, "1"), GPUs: 1},
		"more than a thousandfold":   {Kind: DemandGrowth, Monthly: number(Fixed, "1"), Factor: nil},
		"no cluster \"c-x\" is know": {Kind: Maintenance, Cluster: "c-x", When: at("2026-07-01"), Duration: number(Fixed, "4"), Units: number(Fixed, "1")},
	} {
		s := scenario([]Change{c}, Alternative{Name: "x", Buy: BuyNothing})
		if strings.Contains(want, "thousandfold") {
			s.Months, s.Assumptions.Months = 36, 36
		}
		_, err := Run(t.Context(), &Input{Scenario: s, View: view, At: at("2026-06-01"), Solve: solve, EndOfHorizon: endOfHorizon})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, have %v", want, err)
		}
	}
}

// Folding hypothetical events changes nothing below.
func TestForkLeavesTheRowsAlone(t *testing.T) {
	view := house(t)
	before := compose(t, view)
	answer(t, view, scenario([]Change{
		east(PriceChange, func(c *Change) { c.Factor = number(Fixed, "3") }),
		{Kind: DeploymentChange, Deployment: "chat", Removed: true},
		{Kind: Renewal, Commitment: "c-1", Term: 12, Factor: number(Fixed, "2")},
	}))
	after := compose(t, view)
	x, err := json.Marshal(before.in)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(after.in)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Error("the rows below are other than before")
	}
	f := NewFork(view)
	if err := f.Append(t.Context(), at("2026-06-01"), domain.Envelope{Time: at("2026-06-01"), Workspace: "platform", Event: &domain.WorkspaceRegistered{}}); err == nil {
		t.Error("an event that is no good was folded")
	}
}

// A quota that may change has in each trial its value with or without the change, for any
// probability and start, and keeps later limits of the log.
func TestQuotaThatMayChange(t *testing.T) {
	view := house(t)
	set := func(gpus, when, probability string) Change {
		return east(QuotaChange, func(c *Change) {
			c.Name, c.Provider, c.LimitGPUs, c.When = "limit "+gpus, "aws", number(Fixed, gpus), at(when)
			if probability != "" {
				c.Probability = number(Fixed, probability)
			}
		})
	}
	bare := func(c Change) Change {
		c.Region = "west" // where the log has no quota
		return c
	}
	trials := func(changes ...Change) *Result {
		return answer(t, view, scenario(changes, Alternative{Name: "x", Buy: BuyNothing, Without: []string{"spot"}}))
	}
	later := set("120", "2026-09-01", "")
	for name, c := range map[string]struct{ maybe, with, without []Change }{
		"likely, from the start":   {[]Change{set("64", "2026-06-01", "0.7")}, []Change{set("64", "2026-06-01", "")}, nil},
		"unlikely, from the start": {[]Change{set("64", "2026-06-01", "0.3")}, []Change{set("64", "2026-06-01", "")}, nil},
		"likely, later":            {[]Change{set("64", "2026-08-01", "0.7")}, []Change{set("64", "2026-08-01", "")}, nil},
		"then another limit":       {[]Change{set("64", "2026-08-01", "0.7"), later}, []Change{set("64", "2026-08-01", ""), later}, []Change{later}},
		"another limit first":      {[]Change{later, set("64", "2026-08-01", "0.7")}, []Change{set("64", "2026-08-01", ""), later}, []Change{later}},
		"unlikely, after another":  {[]Change{set("64", "2026-10-01", "0.3"), later}, []Change{later, set("64", "2026-10-01", "")}, []Change{later}},
		"where there is none":      {[]Change{bare(set("64", "2026-06-01", "0.3"))}, []Change{bare(set("64", "2026-06-01", ""))}, nil},
	} {
		r := trials(c.maybe...)
		with, without := trials(c.with...).trials[0][0], trials(c.without...).trials[0][0]
		if with.cost <= without.cost {
			t.Fatalf("%s: with the change %d, without %d: the case is too easy", name, with.cost, without.cost)
		}
		changed := int64(0)
		for i, o := range r.trials[0] {
			switch o {
			case with:
				changed++
			case without:
			default:
				t.Fatalf("%s: trial %d costs %d, with the change %d and without %d", name, i, o.cost, with.cost, without.cost)
			}
		}
		if share := r.Drivers[0].Mean.Mul(decimal.NewFromInt(int64(r.Runs))); !share.Equal(decimal.NewFromInt(changed)) || changed == 0 {
			t.Errorf("%s: it changes in %d trials of %d, the driver says in %s", name, changed, r.Runs, share)
		}
	}
}

// An answer states what its purchases depend on: upfront and hourly payments, and the salvage
// credited beyond the horizon, with the best purchases at salvage 0 and 1.
func TestWhatPurchasesRestOn(t *testing.T) {
	view := house(t)
	ask := func(salvage string) (*Result, *Outcome) {
		s := scenario([]Change{
			east(DemandGrowth, func(c *Change) { c.Monthly = number(Triangular, "0", "0.02", "0.05") }),
			east(NewOffer, func(c *Change) {
				c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Upfront, c.Guaranteed, c.MaxUnits = "neo", "long", "reserved", 36, number(Fixed, "5"), number(Fixed, "1000"), true, 8
			}),
		})
		s.Assumptions.Salvage = dec(salvage)
		r := answer(t, view, s)
		return r, &r.Alternatives[0]
	}
	r, half := ask("0.5")
	if r.Salvage == nil || !r.Salvage.Equal(dec("0.5")) || r.AnnualRate == nil || !r.AnnualRate.Equal(dec("0.08")) {
		t.Errorf("taken as given are %v a year and %v of what lies beyond", r.AnnualRate, r.Salvage)
	}
	long := 0
	for _, p := range half.Purchases {
		upfront, hourly := dec("0"), dec("20")
		if strings.Contains(p.Offer, "long") {
			upfront, hourly = dec("1000"), dec("5")
			long += p.Units
		}
		if n := decimal.NewFromInt(int64(p.Units)); !p.Upfront.Equal(upfront.Mul(n)) || !p.Hourly.Equal(hourly.Mul(n)) {
			t.Errorf("%d of %s: %s upfront and %s an hour", p.Units, p.Offer, p.Upfront, p.Hourly)
		}
	}
	if long == 0 || len(half.EndOfHorizon) != 2 {
		t.Fatalf("%d long terms, %+v: the case is too easy", long, half.EndOfHorizon)
	}
	for i, salvage := range []string{"0", "1"} {
		_, other := ask(salvage)
		x := &half.EndOfHorizon[i]
		if !x.Salvage.Equal(dec(salvage)) || !x.Best.Equal(other.Solved) || !x.LowerBound.Equal(other.LowerBound) || x.Cost.LessThan(*x.LowerBound) || len(x.Purchases) != len(other.Purchases) {
			t.Errorf("with %s credited: these cost %s, the best %s and at least %s; asked so, %s and %s", x.Salvage, x.Cost, x.Best, x.LowerBound, other.Solved, other.LowerBound)
		}
	}
}
