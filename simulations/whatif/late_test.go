package whatif

import (
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// A late delivery saves the rent of the missing hours and nothing else: the same purchase varies
// alike whether its term ends within the horizon or far beyond it, at any salvage.
func TestLateSparesTheRentOfItsHours(t *testing.T) {
	view := house(t)
	for _, salvage := range []string{"0", "0.5"} {
		for _, term := range []int{3, 12, 36} {
			s := scenario([]Change{east(NewOffer, func(c *Change) {
				c.Name, c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Guaranteed = "offer", "neo", "cheap", "reserved", term, number(Fixed, "4"), true
				c.MaxUnits, c.Until, c.LeadHours = 5, at("2026-08-15"), number(Triangular, "0", "300", "2160")
			}), {Kind: PriceChange, Offer: "year", Factor: number(Fixed, "3")}}, Alternative{Name: "x", Only: []string{"reserved"}})
			s.Assumptions.AnnualRate, s.Assumptions.Salvage = decimal.Zero, dec(salvage)
			r := answer(t, view, s)
			a := r.Alternatives[0]
			i := slices.IndexFunc(a.Purchases, func(p Purchase) bool { return strings.Contains(p.Offer, "cheap") })
			if i < 0 || a.Purchases[i].Units != 5 || a.Purchases[i].Term.From != at("2026-08-01") || len(a.Tornado) != 1 {
				t.Fatalf("term %d, salvage %s: bought is %+v, swings %+v", term, salvage, a.Purchases, a.Tornado)
			}
			// All five would serve in every hour; each costs 40 on demand instead of 4.
			late := a.Tornado[0].High.Sub(r.Drivers[0].P50).Ceil()
			want := dec("36").Mul(dec("5")).Mul(late)
			if got := a.Tornado[0].HighCost.Sub(a.Tornado[0].LowCost); !got.Equal(want) || !late.GreaterThan(dec("744")) {
				t.Errorf("term %d, salvage %s: %s hours late cost %s more, by hand %s", term, salvage, late, got, want)
			}
		}
	}
}

// With a ramp, a late delivery lacks what would be present in each epoch, and saves its rent in the
// currency at that time. For a term beyond the horizon, a change of the currency's value from an
// epoch on affects only what is paid from then.
func TestLateInStepsAndAnotherCurrency(t *testing.T) {
	in := plain(func(int) int { return 4 }, func(in *instance.Instance) {
		in.AnnualRate = decimal.Zero
		in.Offers = []instance.Offer{{
			ID: "o", Kind: domain.OfferReserved, Pool: "p", Term: 4, Hourly: dec("1"), Upfront: dec("8"), GuaranteesCapacity: true, Lot: 2,
			Ramp: []instance.RampStep{{Epoch: 0, Permille: 500}, {Epoch: 1, Permille: 1000}},
		}}
	})
	m, err := newModel(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &composed{in: in}
	if err := m.bought(in, &instance.Answer{Purchases: []instance.Purchase{{Order: instance.Order{Offer: "o", Units: 4}}}}); err != nil {
		t.Fatal(err)
	}
	w := c.newWorld(m)
	v, err := newEvaluator(m)
	if err != nil {
		t.Fatal(err)
	}
	cost := func(late, fx int64, from int) decimal.Decimal {
		if err := w.set(c, m, &values{}); err != nil {
			t.Fatal(err)
		}
		w.late[0], w.bought[0].fx, w.bought[0].from = late, fx, from
		o, err := v.evaluate(w)
		if err != nil {
			t.Fatal(err)
		}
		return money(o.cost)
	}
	// Two machines on the first of two days and four then, at 1 an hour and 8 upfront; two more
	// days are not credited. Missing machines cost 4 on demand.
	base := dec("32").Add(dec("48").Add(dec("96").Mul(dec("3")))).Add(dec("48").Mul(dec("4")))
	for _, x := range []struct {
		late, fx int64
		from     int
		want     decimal.Decimal
	}{
		{0, one, 0, base},
		{6, one, 0, base.Add(dec("6").Mul(dec("2")).Mul(dec("3")))},
		{30, one, 0, base.Add(dec("48").Add(dec("24")).Mul(dec("3")))},
		{1000, one, 0, base.Add(dec("48").Add(dec("96")).Mul(dec("3")))},
		{0, 2 * one, 0, base.Add(dec("32").Add(dec("336")))},
		{0, 2 * one, 1, base.Add(dec("288"))},
		{30, 2 * one, 1, base.Add(dec("288")).Add(dec("48").Mul(dec("3")).Add(dec("24").Mul(dec("2"))))},
	} {
		if got := cost(x.late, x.fx, x.from); !got.Equal(x.want) {
			t.Errorf("%d hours late, %d millionths from epoch %d: costs %s, by hand %s", x.late, x.fx, x.from, got, x.want)
		}
	}
}
