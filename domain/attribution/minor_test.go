package attribution_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// Rows add up to their total. Missing cents go where the remainder is largest.
func TestFoot(t *testing.T) {
	for _, c := range []struct {
		total         string
		amounts, want []string
	}{
		{"0.01", []string{"0.003", "0.004", "0.003"}, []string{"0.00", "0.01", "0.00"}},
		{"1.00", []string{"0.333", "0.333", "0.333"}, []string{"0.34", "0.33", "0.33"}},
		{"-1.00", []string{"-0.666", "-0.334"}, []string{"-0.67", "-0.33"}},
		{"5.03", []string{"2.5", "2.5"}, []string{"2.52", "2.51"}},
		{"4.99", []string{"2.5", "2.5"}, []string{"2.49", "2.50"}},
		{"783078.90", []string{"783078.9"}, []string{"783078.90"}},
		{"3", []string{"1.4", "1.6"}, []string{"1", "2"}}, // yen
		{"0.00", nil, nil},
	} {
		amounts := make([]attribution.Amount, len(c.amounts))
		for i, a := range c.amounts {
			amounts[i] = money(a)
		}
		var total attribution.Minor
		if err := total.UnmarshalText([]byte(c.total)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range attribution.Foot(amounts, total) {
			got = append(got, m.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v to %s are %v, want %v", c.amounts, c.total, got, c.want)
		}
	}
}

// naiveFoot is Foot in decimals, one unit at a time.
func naiveFoot(amounts []decimal.Decimal, total decimal.Decimal, places int32) []decimal.Decimal {
	out := make([]decimal.Decimal, len(amounts))
	given := make([]int, len(amounts)) // number of units given to each
	sum := decimal.Zero
	for i, a := range amounts {
		out[i] = a.RoundFloor(places)
		sum = sum.Add(out[i])
	}
	unit := decimal.New(1, -places)
	if total.LessThan(sum) {
		unit = unit.Neg()
	}
	for len(out) > 0 && !sum.Equal(total) {
		best := 0
		for i := range out {
			rest, other := amounts[i].Sub(amounts[i].RoundFloor(places)), amounts[best].Sub(amounts[best].RoundFloor(places))
			if given[i] < given[best] || given[i] == given[best] && rest.GreaterThan(other) {
				best = i
			}
		}
		out[best], sum = out[best].Add(unit), sum.Add(unit)
		given[best]++
	}
	return out
}

func TestFootAgainstNaive(t *testing.T) {
	currencies := map[string]int32{"USD": 2, "JPY": 0, "KWD": 3}
	long.Check(t, 500, 50_000, func(t *rapid.T) {
		currency := rapid.SampledFrom([]string{"USD", "JPY", "KWD"}).Draw(t, "currency")
		places := currencies[currency]
		amounts := make([]attribution.Amount, rapid.IntRange(1, 6).Draw(t, "rows"))
		exact := make([]decimal.Decimal, len(amounts))
		sum := attribution.Amount{}
		for i := range amounts {
			exact[i] = decimal.New(int64(rapid.IntRange(-30_000, 30_000).Draw(t, "amount")), -4)
			amounts[i] = money(exact[i].String())
			sum = sum.Add(amounts[i])
		}
		total := sum.Minor(currency)
		if want := exact[0]; len(exact) == 1 && total.String() != want.Round(places).StringFixed(places) && !want.Round(places).IsZero() {
			t.Fatalf("%s is rounded to %s", want, total)
		}
		// Statements are rounded separately, so that a total may differ by some units.
		off := decimal.New(int64(rapid.IntRange(-9, 9).Draw(t, "units off")), -places)
		total.Amount = total.Amount.Add(money(off.String()))
		want := naiveFoot(exact, total.Amount.Decimal(), places)
		back := attribution.Amount{}
		for i, m := range attribution.Foot(amounts, total) {
			if !m.Amount.Decimal().Equal(want[i]) || m.String() != want[i].StringFixed(places) {
				t.Fatalf("row %d of %v to %s is %s, want %s", i, exact, total, m, want[i])
			}
			back = back.Add(m.Amount)
		}
		if back != total.Amount {
			t.Fatalf("%v add up to %s, want %s", exact, back, total)
		}
	})
}

func TestMinorText(t *testing.T) {
	for _, c := range []struct{ amount, currency, want string }{
		{"783078.9", "USD", `"783078.90"`}, {"783078.9", "JPY", `"783079"`}, {"-0.005", "USD", `"-0.01"`}, {"0.004", "USD", `"0.00"`},
		{"1", "KWD", `"1.000"`}, {"0", "USD", `"0.00"`}, {"-0.5", "CLF", `"-0.5000"`},
	} {
		b, err := json.Marshal(money(c.amount).Minor(c.currency))
		if err != nil || string(b) != c.want {
			t.Errorf("%s %s is %s, %v, want %s", c.amount, c.currency, b, err, c.want)
		}
		var back attribution.Minor
		if err := json.Unmarshal(b, &back); err != nil || back != money(c.amount).Minor(c.currency) {
			t.Errorf("%s is read as %+v, %v", b, back, err)
		}
	}
}
