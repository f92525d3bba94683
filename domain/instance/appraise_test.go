package instance

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/linear"
)

// level is an instance of one pool with a demand of ten units in each of the 1,416 hours of January
// and February 2026, at 10 an hour on demand.
func level() *Instance {
	hourly := make([]int, 1416)
	for i := range hourly {
		hourly[i] = 10
	}
	from, err := domain.ParseInstant("2026-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	d := decimal.RequireFromString
	return &Instance{
		Format: Format, Name: "level", Currency: "USD", From: from, Epoch: Months, Epochs: 2, AnnualRate: d("0"), Salvage: d("0"),
		Regions: []Region{{ID: "r"}, {ID: "s"}},
		Pools:   []Pool{{ID: "p", Region: "r", Class: "K", Unit: "gpu", OnDemand: &Price{Hourly: d("10")}}, {ID: "q", Region: "s", Class: "K", Unit: "gpu", OnDemand: &Price{Hourly: d("7")}}},
		Demands: []Demand{{ID: "d", Pool: "p", Hourly: hourly, Interruptible: d("0"), Shortage: d("100")}, {ID: "e", Pool: "q", Hourly: hourly, Interruptible: d("0"), Shortage: d("70")}},
		Offers:  []Offer{},
	}
}

// linearOrSkip is the shared solver, if this build has one.
func linearOrSkip(t *testing.T) linear.Solver {
	t.Helper()
	lp := solver()
	if lp == nil {
		t.Skip("this build has no solver of linear programs: make highs")
	}
	return lp
}

func appraise(t *testing.T, in *Instance, c *Contract, lp linear.Solver) *Appraisal {
	t.Helper()
	a, err := Appraise(context.Background(), in, c, lp)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func same(t *testing.T, what string, got domain.Decimal, want string) {
	t.Helper()
	if !got.Equal(decimal.RequireFromString(want)) {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}

// Ten units for both months at 6 instead of 10 save 10 × 1,416 × 4. A unit pays below 10, and from
// a utilization of six tenths. The other region is not affected.
func TestContractWorthTaking(t *testing.T) {
	c := &Contract{Name: "deal", Region: "r", Class: "K", Term: 2, Hourly: decimal.NewFromInt(6), GuaranteesCapacity: true}
	a := appraise(t, level(), c, nil)
	if a.Decision != Take || a.Units != 10 || a.Signed != nil || len(a.Pools) != 1 || a.Pool != "p" {
		t.Errorf("%s, %d units, of pools %v", a.Decision, a.Units, a.Pools)
	}
	same(t, "worth", a.Worth, "56640")
	same(t, "what is proven of it", a.AtLeast, "56640")
	same(t, "what it can be at most", a.AtMost, "56640")
	same(t, "cost without", a.Without.Cost, "141600")
	same(t, "the break-even price", *a.BreakEven, "9.99999")
	same(t, "the price from which on it is no use", *a.BreakEvenAtMost, "10")
	same(t, "the break-even utilization", *a.BreakEvenUse, "0.6")
	same(t, "utilization", *a.Use, "1")
}

// At 12 it is not taken; if signed anyway, one unit costs 2 × 1,416 more.
func TestContractToLeave(t *testing.T) {
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: decimal.NewFromInt(12), GuaranteesCapacity: true}
	a := appraise(t, level(), c, nil)
	if a.Decision != Leave || a.Units != 0 || a.Signed == nil || a.Signed.Units != 1 {
		t.Fatalf("%s, %d units, signed %+v", a.Decision, a.Units, a.Signed)
	}
	same(t, "worth", a.Worth, "0")
	same(t, "cost when signed", a.Signed.Cost.Sub(a.Without.Cost), "2832")
	same(t, "the break-even price", *a.BreakEven, "9.99999")
	same(t, "the break-even utilization", *a.BreakEvenUse, "1.2")
}

// Of twenty units, half present in the first month, ten serve in the second month and none is idle
// in the first. 20 × 744/2 + 20 × 672 unit-hours are paid for, and 10 × 1,416 of them save 10 each.
// The replaced purchases are named.
func TestContractWithLeastOrderAndRamp(t *testing.T) {
	lp := linearOrSkip(t)
	in := level()
	in.Offers = []Offer{{ID: "shelf", Kind: domain.OfferReserved, Pool: "p", Term: 2, Hourly: decimal.NewFromInt(9), GuaranteesCapacity: true}}
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: decimal.NewFromInt(5), GuaranteesCapacity: true, MinUnits: 20, Lot: 2,
		Ramp: []RampStep{{0, 500}, {1, 1000}}}
	a := appraise(t, in, c, lp)
	paid := int64(20*744/2 + 20*672) // unit-hours
	without := int64(9 * 10 * 1416)
	if a.Decision != Take || a.Units != 20 {
		t.Fatalf("%s, %d units: %s", a.Decision, a.Units, a.Verdict)
	}
	same(t, "worth", a.Worth, decimal.NewFromInt(without-5*paid).String())
	same(t, "unused", a.With.Unused, "6720")
	if len(a.Replaces) != 1 || a.Replaces[0] != (Replaced{Offer: "shelf", Without: 10, With: 0}) {
		t.Errorf("it replaces %+v", a.Replaces)
	}
	// All or nothing: the price at which 20 units cost as much as they save.
	exact := decimal.NewFromInt(without).DivRound(decimal.NewFromInt(paid), 12)
	if d := exact.Sub(*a.BreakEven); d.IsNegative() || d.GreaterThan(decimal.New(1, -5)) {
		t.Errorf("it breaks even at %s, want at most 0.00001 below %s", a.BreakEven, exact)
	}
	// At a higher price it is not taken, and signing costs the difference.
	c.Hourly = decimal.NewFromInt(7)
	b := appraise(t, in, c, lp)
	if b.Decision != Leave || !b.BreakEven.Equal(*a.BreakEven) {
		t.Errorf("at 7: %s, breaks even at %s, and at 5 at %s", b.Decision, b.BreakEven, a.BreakEven)
	}
	same(t, "cost when signed", b.Signed.Cost.Sub(b.Without.Cost), decimal.NewFromInt(7*paid-without).String())
}

// The plan takes the tier, so the tier's price is the one that breaks even: ten units at 6 instead
// of 10.
func TestContractBreaksEvenAtThePriceOfItsTier(t *testing.T) {
	lp := linearOrSkip(t)
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: decimal.NewFromInt(50), GuaranteesCapacity: true, Tiers: []Tier{{Units: 10, Hourly: decimal.NewFromInt(6)}}}
	a := appraise(t, level(), c, lp)
	if a.Decision != Take || a.Units != 10 || !strings.Contains(a.Verdict, "at up to 9.99999 USD an hour, and 6 are asked for an order of this size") {
		t.Errorf("%s, %d units: %s", a.Decision, a.Units, a.Verdict)
	}
	same(t, "the price asked", a.Hourly, "6")
	same(t, "the break-even price", *a.BreakEven, "9.99999")
	same(t, "the break-even utilization", *a.BreakEvenUse, "0.6")
}

// A renewing contract is ended or continued, whichever is cheaper.
func TestContractThatRenews(t *testing.T) {
	lp := linearOrSkip(t)
	c := &Contract{Name: "deal", Pool: "p", Term: 1, Hourly: decimal.NewFromInt(6), GuaranteesCapacity: true, Renews: true, NoticeDays: 10}
	a := appraise(t, level(), c, lp)
	if a.Decision != Take || !a.Renewed || a.Units != 10 {
		t.Errorf("%s, renewed %t, %d units", a.Decision, a.Renewed, a.Units)
	}
	same(t, "worth", a.Worth, "56640")
}

// Faults of a contract are located.
func TestContractFaults(t *testing.T) {
	good := Contract{Name: "deal", Pool: "p", Term: 2, Hourly: decimal.NewFromInt(6), GuaranteesCapacity: true}
	for _, c := range []struct {
		path, want string
		change     func(*Contract)
	}{
		{"/pool", "there is no pool", func(c *Contract) { c.Pool = "x" }},
		{"/class", "there is no pool of", func(c *Contract) { c.Pool, c.Region, c.Class = "", "r", "x" }},
		{"", "no pool is named", func(c *Contract) { c.Pool = "" }},
		{"/from", "cannot begin with an epoch of the horizon", func(c *Contract) { c.LeadHours = 10_000 }},
		{"/hourly", "negative", func(c *Contract) { c.Hourly = decimal.NewFromInt(-1) }},
		{"/kind", "neither", func(c *Contract) { c.Kind = domain.OfferOwned }},
		{"/max_units", "nothing can be bought", func(c *Contract) { c.MinUnits, c.MaxUnits = 5, 4 }},
		{"/renews", "upfront", func(c *Contract) { c.Renews, c.Term, c.Upfront = true, 1, decimal.NewFromInt(1) }},
		{"/name", "", func(c *Contract) { c.Name = "" }},
	} {
		x := good
		c.change(&x)
		_, err := Appraise(context.Background(), level(), &x, nil)
		var faults *Faults
		if !errors.As(err, &faults) || faults.List[0].Path != c.path || !strings.Contains(faults.List[0].Detail, c.want) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}

// If hardware can be owned at 6 an hour, a contract pays only below that, and not below the 10 of
// on-demand: it breaks even with what it would replace.
func TestContractBreaksEvenWithOwnedHardware(t *testing.T) {
	in := level()
	// The lifetime is two months: 8,496 over 1,416 hours are 6 an hour.
	in.Offers = []Offer{{ID: "own", Kind: domain.OfferOwned, Pool: "p", Term: 2, Upfront: dec("8496"), GuaranteesCapacity: true, Owned: machine("0", "0", "0")}}
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: dec("5"), GuaranteesCapacity: true}
	a := appraise(t, in, c, nil)
	if a.Decision != Take || a.Units != 10 || len(a.Replaces) != 1 || a.Replaces[0] != (Replaced{Offer: "own", Without: 10}) {
		t.Errorf("%s, %d units instead of %+v", a.Decision, a.Units, a.Replaces)
	}
	same(t, "worth", a.Worth, "14160") // 10 × 1,416 × (6 − 5)
	same(t, "the break-even price", *a.BreakEven, "5.99999")
	same(t, "the price from which on it is no use", *a.BreakEvenAtMost, "6")
	// Running cost counts: 2 kW × 1.5 × 0.2 are 0.6 an hour.
	in.Offers[0].Owned = machine("2", "0", "0")
	same(t, "the break-even price with power", *appraise(t, in, c, nil).BreakEven, "6.59999")
	// If it costs more than owning, it is not taken.
	c.Hourly = dec("7")
	if b := appraise(t, in, c, nil); b.Decision != Leave || !b.BreakEven.Equal(dec("6.59999")) {
		t.Errorf("%s, breaks even at %s", b.Decision, b.BreakEven)
	}
}

// A contract's worth is the difference between the costs of two solved instances: without it, and
// with it as an offer that can be bought once.
func TestWorthIsTheDifferenceOfTwoInstances(t *testing.T) {
	lp := linearOrSkip(t)
	solve := func(in *Instance) *Answer {
		a, err := Solve(t.Context(), in, lp)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	held := level()
	held.Demands[0].Hourly = append(hoursAt(700, 4), hoursAt(716, 12)...)
	held.Commitments = []Commitment{{ID: "c", Kind: domain.OfferReserved, Pool: "p", Units: 3, Hourly: dec("8"), GuaranteesCapacity: true, Term: domain.Interval{From: held.From, To: held.Spans()[0].To}}}
	grown := level()
	grown.AnnualRate = dec("0.08")
	grown.Scenarios = []Scenario{{ID: "a", Weight: 3}, {ID: "b", Weight: 1, Factor: 400}}
	contracts := []Contract{
		{Name: "deal", Pool: "p", Term: 2, Hourly: dec("6"), GuaranteesCapacity: true, MaxUnits: 7},
		{Name: "deal", Pool: "p", Term: 1, Hourly: dec("8"), Upfront: dec("100"), GuaranteesCapacity: true, MinUnits: 3, Lot: 3},
		{Name: "deal", Pool: "p", Term: 2, Hourly: dec("9"), GuaranteesCapacity: true, Tiers: []Tier{{Units: 5, Hourly: dec("7")}}},
	}
	pay := 0
	for i, in := range []*Instance{held, grown} {
		// The other region is not affected.
		in.Pools, in.Demands = in.Pools[:1], in.Demands[:1]
		without := solve(in)
		for j := range contracts {
			c := &contracts[j]
			with := *in
			with.Offers = append(with.Offers, Offer{
				ID: c.Name, Kind: domain.OfferReserved, Pool: "p", Term: c.Term, Hourly: c.Hourly, Upfront: c.Upfront, GuaranteesCapacity: true,
				MinUnits: c.MinUnits, MaxUnits: c.MaxUnits, Lot: c.Lot, Tiers: c.Tiers, To: in.From + domain.Hour,
			})
			a := appraise(t, in, c, lp)
			same(t, "without", a.Without.Cost, without.Cost.String())
			beside := solve(&with)
			if a.Worth.IsPositive() {
				pay++
			}
			if !a.Worth.Equal(without.Cost.Sub(beside.Cost)) {
				t.Errorf("%d, %d: worth %s; apart they cost %s and %s", i, j, a.Worth, without.Cost, beside.Cost)
			}
		}
	}
	if pay < 4 {
		t.Errorf("%d contracts pay", pay)
	}
}

// If no order can be below a tier, the tier's price is the asked one, also for a contract that is
// not taken.
func TestContractToLeaveAsksThePriceOfItsLeastOrder(t *testing.T) {
	lp := linearOrSkip(t)
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: dec("50"), GuaranteesCapacity: true, MinUnits: 12, Tiers: []Tier{{Units: 10, Hourly: dec("12")}}}
	a := appraise(t, level(), c, lp)
	if a.Decision != Leave || a.Signed.Units != 12 || !strings.Contains(a.Verdict, "and 12 are asked for an order of this size") {
		t.Errorf("%s: %s", a.Decision, a.Verdict)
	}
	same(t, "the price asked", a.Hourly, "12")
	// Ten of twelve units save 10 each.
	exact := dec("100").DivRound(dec("12"), 12)
	if d := exact.Sub(*a.BreakEven); d.IsNegative() || d.GreaterThan(dec("0.00001")) {
		t.Errorf("it breaks even at %s, want at most 0.00001 below %s", a.BreakEven, exact)
	}
}

// All is paid upfront: 6 × 1,416 replace 10 × 1,416 a unit. So it pays below 14,160 upfront, or
// with less than 4 an hour in addition. The same is reported at a higher price.
func TestContractPaidUpfrontAlone(t *testing.T) {
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Upfront: dec("8496"), GuaranteesCapacity: true}
	a := appraise(t, level(), c, nil)
	if a.Decision != Take || a.Units != 10 || a.BreakEvenBeyond != nil || len(a.Notes) > 0 ||
		!strings.HasSuffix(a.Verdict, "; it pays at up to 14159.99 USD upfront, and 8496 are asked, with nothing by the hour; besides what is asked upfront it pays at up to 3.99999 USD an hour") {
		t.Errorf("%s, %d units: %s %v", a.Decision, a.Units, a.Verdict, a.Notes)
	}
	same(t, "worth", a.Worth, "56640")
	same(t, "the price asked", a.Hourly, "0")
	same(t, "what is asked upfront", *a.Upfront, "8496")
	same(t, "the break-even price", *a.BreakEven, "3.99999")
	same(t, "the price from which on it is no use", *a.BreakEvenAtMost, "4")
	same(t, "the break-even upfront", *a.BreakEvenUpfront, "14159.99")
	same(t, "what is no use upfront", *a.BreakEvenUpfrontAtMost, "14160")
	same(t, "the break-even utilization", *a.BreakEvenUse, "0.6")

	c.Upfront = dec("20000")
	b := appraise(t, level(), c, nil)
	if b.Decision != Leave || b.BreakEven != nil || !strings.HasSuffix(b.Verdict, "; it pays at up to 14159.99 USD upfront, and 20000 are asked, with nothing by the hour") {
		t.Errorf("%s, breaks even at %s: %s", b.Decision, b.BreakEven, b.Verdict)
	}
	same(t, "the break-even upfront of what is left", *b.BreakEvenUpfront, "14159.99")
}

// Of several tiers, the one that is taken breaks even.
func TestContractPaidUpfrontInTiers(t *testing.T) {
	lp := linearOrSkip(t)
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Upfront: dec("50000"), GuaranteesCapacity: true, Tiers: []Tier{{Units: 10, Upfront: dec("8496")}}}
	a := appraise(t, level(), c, lp)
	if a.Decision != Take || a.Units != 10 {
		t.Fatalf("%s, %d units: %s", a.Decision, a.Units, a.Verdict)
	}
	same(t, "what is asked upfront", *a.Upfront, "8496")
	same(t, "the break-even price", *a.BreakEven, "3.99999")
	same(t, "the break-even upfront", *a.BreakEvenUpfront, "14159.99")
}

// A free or nearly free contract breaks even where on-demand does.
func TestContractForNextToNothing(t *testing.T) {
	for _, hourly := range []string{"0", "0.00001", "0.01", "0.1"} {
		c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: dec(hourly), GuaranteesCapacity: true, MaxUnits: 10}
		a := appraise(t, level(), c, nil)
		if a.Decision != Take || a.Units != 10 || a.Upfront != nil || a.BreakEvenUpfront != nil {
			t.Errorf("%s: %s, %d units: %s", hourly, a.Decision, a.Units, a.Verdict)
		}
		same(t, hourly+": worth", a.Worth, dec("10").Sub(dec(hourly)).Mul(dec("14160")).String())
		same(t, hourly+": the break-even price", *a.BreakEven, "9.99999")
		same(t, hourly+": the price from which on it is no use", *a.BreakEvenAtMost, "10")
	}
}

// If only the contract serves, it breaks even with the cost of a shortage. If it pays at every
// price tried, that is reported and is not an error.
func TestContractWithoutABreakEven(t *testing.T) {
	lp := linearOrSkip(t)
	in := level()
	in.Pools[0].OnDemand = nil
	c := &Contract{Name: "deal", Pool: "p", Term: 2, Hourly: dec("1"), GuaranteesCapacity: true, MinUnits: 10, MaxUnits: 10}
	a := appraise(t, in, c, lp)
	same(t, "the break-even price against a shortage", *a.BreakEven, "99.99999")
	offers, err := c.offers(in)
	if err != nil {
		t.Fatal(err)
	}
	beside := *in
	beside.Offers = offers
	m, err := compile(&beside, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := m.pricing(offers, Tier{Hourly: dec("1")})
	b.scale = dec("0.5") // as if a shortage cost far more than expected
	got, _, err := b.of(t.Context(), in, "p", lp)
	if err != nil || got.low != nil || got.high != nil || got.beyond == nil || got.beyond.LessThan(dec("32")) {
		t.Errorf("%v, %v, beyond %v: %v", got.low, got.high, got.beyond, err)
	}
}

// If proofs leave a gap of a millionth, the price from which a contract saves nothing is still
// found to within one step.
func TestBreakEvenBesideRounding(t *testing.T) {
	lp := linearOrSkip(t)
	const file = "../../deploy/demo/instances/single-pool.json"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	a := appraise(t, in, &Contract{
		Name: "year", Provider: "aws", Pool: in.Pools[0].ID, Term: 12, Hourly: dec("12.9"), GuaranteesCapacity: true, From: in.Spans()[6].From,
		MinUnits: 8, MaxUnits: 24, Lot: 2, Tiers: []Tier{{Units: 16, Hourly: dec("12.4")}}, Ramp: []RampStep{{0, 500}, {1, 1000}},
	}, lp)
	if a.BreakEven == nil || a.BreakEvenAtMost == nil || !a.BreakEvenAtMost.Equal(a.BreakEven.Add(dec("0.00001"))) {
		t.Errorf("it pays up to %v, and not from %v on: %s", a.BreakEven, a.BreakEvenAtMost, a.Verdict)
	}
}
