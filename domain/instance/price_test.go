package instance

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
)

// oracle prices a purchase independently, in floating point with 300 bits and using only the
// document: epoch by epoch, from the terms of the contract.
func oracle(in *Instance, o *Offer, upfront, hourly domain.Decimal, start int) *big.Float {
	f := func() *big.Float { return new(big.Float).SetPrec(300) }
	num := func(d domain.Decimal) *big.Float { return f().SetRat(d.Rat()) }
	at := func(i int) time.Time {
		u := in.From.Time()
		if in.Epoch == Days {
			return u.AddDate(0, 0, i)
		}
		return u.AddDate(0, i, 0)
	}
	hours := func(i int) *big.Float { return f().SetInt64(int64(at(i+1).Sub(at(i)) / time.Hour)) }
	year := 12
	if in.Epoch == Days {
		year = 365
	}
	// root is (1 + rate)^(1/(2·year)), by Newton.
	base, root := num(in.AnnualRate), f().SetInt64(1)
	base.Add(base, f().SetInt64(1))
	for range 12 {
		p := f().SetInt64(1) // root^(2·year − 1)
		for range 2*year - 1 {
			p.Mul(p, root)
		}
		step := f().Quo(base, p)
		step.Sub(step, root).Quo(step, f().SetInt64(int64(2*year)))
		root.Add(root, step)
	}
	worth := func(halves int) *big.Float { // of a payment this many half epochs after the start
		x := f().SetInt64(1)
		for range halves {
			x.Quo(x, root)
		}
		return x
	}
	kept := f().Sub(f().SetInt64(1), num(in.Salvage))
	total := f()
	for i := range o.Term {
		total.Add(total, hours(start+i))
	}
	fx := f().SetInt64(1)
	if o.Currency != "" && o.Currency != in.Currency {
		fx = num(in.FX[o.Currency])
	}
	for range start {
		left := f().Sub(f().SetInt64(1), num(o.Decline))
		fx.Mul(fx, left) // both prices decline alike
	}
	up, hour := f().Mul(num(upfront), fx), f().Mul(num(hourly), fx)
	sum := f()
	if w := o.Owned; w != nil {
		plain := f().SetInt64(1)
		if o.Currency != "" && o.Currency != in.Currency {
			plain = num(in.FX[o.Currency])
		}
		capital := f().Mul(up, worth(2*start))
		left := f().Mul(up, num(w.Salvage))
		capital.Sub(capital, left.Mul(left, worth(2*(start+o.Term))))
		for i := start; i < start+o.Term; i++ {
			part := f().Mul(capital, hours(i))
			if part.Quo(part, total); i >= in.Epochs {
				part.Mul(part, kept)
			}
			sum.Add(sum, part)
		}
		for i := start; i < min(start+o.Term, in.Epochs); i++ {
			perHour := f().Mul(num(w.PowerKW), num(w.PUE))
			perHour.Mul(perHour, num(w.TariffKWh)).Mul(perHour, plain).Add(perHour, hour)
			cost := f().Mul(perHour, hours(i))
			month := f().Add(num(w.SpaceMonthly), num(w.NetworkMonthly))
			month.Add(month, num(w.SupportMonthly)).Mul(month, plain)
			if in.Epoch == Days {
				month.Quo(month, f().SetInt64(int64(time.Date(at(i).Year(), at(i).Month()+1, 0, 0, 0, 0, 0, time.UTC).Day())))
			}
			cost.Add(cost, month).Mul(cost, worth(2*i+1))
			sum.Add(sum, cost)
		}
		return sum
	}
	for i := start; i < start+o.Term; i++ {
		part := f().SetInt64(1)
		if len(o.Ramp) > 0 {
			permille := 0
			for _, r := range o.Ramp {
				if r.Epoch <= i-start {
					permille = r.Permille
				}
			}
			part.Quo(f().SetInt64(int64(permille)), f().SetInt64(1000))
		}
		cost := f().Mul(hour, hours(i))
		cost.Mul(cost, part).Mul(cost, worth(2*i+1))
		share := f().Mul(up, hours(i))
		cost.Add(cost, share.Quo(share, total).Mul(share, worth(2*start)))
		if i >= in.Epochs {
			cost.Mul(cost, kept)
		}
		sum.Add(sum, cost)
	}
	return sum
}

func TestPricesAgainstOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	number := func(most int64, places int32) domain.Decimal { return dec(fmt.Sprint(rng.Int64N(most))).Shift(-places) }
	checked := 0
	for range long.Count(8, 25) {
		in := &Instance{
			Format: Format, Name: "x", Currency: "USD", From: instant(t, []string{"2027-01-01T00:00:00Z", "2028-02-01T00:00:00Z"}[rng.IntN(2)]),
			Epoch: []EpochKind{Months, Days}[rng.IntN(2)], Epochs: 1 + rng.IntN(14), AnnualRate: number(20, 2), Salvage: number(11, 1),
			FX:      map[string]domain.Decimal{"EUR": dec("1.0837")},
			Regions: []Region{{ID: "r"}}, Pools: []Pool{{ID: "p", Region: "r", Class: "c", Unit: "vm", OnDemand: &Price{Hourly: dec("5")}}},
		}
		spans := in.Spans()
		hours := hoursOf(domain.Interval{From: in.From, To: spans[len(spans)-1].To})
		in.Demands = []Demand{{ID: "d", Pool: "p", Hourly: make([]int, hours), Shortage: dec("50")}}
		for k := range 4 {
			o := Offer{ID: fmt.Sprint("o", k), Kind: domain.OfferReserved, Pool: "p", Term: 1 + rng.IntN(20), Upfront: number(1_000_000, 2), Hourly: number(10_000, 3), Decline: number(20, 3), Lot: 4}
			if rng.IntN(2) == 0 {
				o.Currency = "EUR"
			}
			switch {
			case k == 3:
				o.Kind, o.GuaranteesCapacity = domain.OfferOwned, true
				o.Owned = &Owned{PowerKW: number(900, 2), PUE: dec("1.3"), TariffKWh: number(40, 2), SpaceMonthly: number(900, 0), NetworkMonthly: number(300, 0), SupportMonthly: number(2000, 0), Salvage: number(5, 1)}
			case rng.IntN(2) == 0:
				o.Ramp = []RampStep{{0, 250}, {1 + rng.IntN(3), 1000}}
				o.Term += 4
			}
			in.Offers = append(in.Offers, o)
		}
		if err := in.Validate(); err != nil {
			t.Fatal(err)
		}
		m, err := compile(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.choices {
			x := m.choice(i)
			want := oracle(in, x.offer, x.offer.Upfront, x.offer.Hourly, x.order.Epoch)
			want.Mul(want, new(big.Float).SetInt64(int64(x.order.Units)*1e9))
			half := 0.5
			n, _ := want.Add(want, big.NewFloat(half)).Int(nil)
			if n.Int64() != int64(m.cost(x)) {
				t.Fatalf("%s: cost %d, the oracle says %d\n%+v", choiceID(x), m.cost(x), n, x.offer)
			}
			checked++
		}
	}
	t.Logf("%d prices agree", checked)
}

// Work is levelled at least as well as by any other schedule: brute force over all of them.
func TestPutOffIsAsLevelAsCanBe(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	squares := func(x []int) (sum int) {
		for _, n := range x {
			sum += n * n
		}
		return sum
	}
	for range 400 {
		window := make([]int, 1+rng.IntN(4))
		for i := range window {
			window[i] = rng.IntN(5)
		}
		permille := []int{500, 1000, 700}[rng.IntN(3)]
		fixed, wait := make([]int, len(window)), make([]int, len(window))
		for i, n := range window {
			wait[i] = n * permille / 1000
			fixed[i] = n - wait[i]
		}
		best := -1
		var try func(i, left int)
		try = func(i, left int) {
			for i < len(wait) && left == 0 {
				if i++; i < len(wait) {
					left = wait[i]
				}
			}
			if i == len(wait) {
				if s := squares(fixed); best < 0 || s < best {
					best = s
				}
				return
			}
			for h := i; h < len(fixed); h++ {
				fixed[h]++
				try(i, left-1)
				fixed[h]--
			}
		}
		try(0, wait[0])
		got := append([]int(nil), window...)
		putOff(got, permille)
		if squares(got) != best {
			t.Fatalf("%v at %d permille becomes %v, %d, and %d can be", window, permille, got, squares(got), best)
		}
	}
}

// Rounding to units agrees with the decimal library's banker's rounding.
func TestRounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decimal.New(rapid.Int64().Draw(t, "coefficient"), int32(rapid.IntRange(-30, 3).Draw(t, "exponent")))
		if rapid.Bool().Draw(t, "half") {
			d = decimal.New(rapid.Int64Range(-1000, 1000).Draw(t, "n")*10+5, -10)
		}
		want := d.Shift(9).RoundBank(0).BigInt()
		got, err := rounded(d, 9)
		if want.IsInt64() != (err == nil) || err == nil && int64(got) != want.Int64() {
			t.Fatalf("%s: %d, %v, want %d", d, got, err, want)
		}
	})
}
