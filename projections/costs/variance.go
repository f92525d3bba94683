package costs

import (
	"math/big"

	"github.com/shopspring/decimal"

	"quartermaster/domain/attribution"
)

// Variance is why a cost is another than before, in amounts that add up to the difference exactly:
// Volume + Mix + Efficiency + Price + FX + Other = Difference.
//
// The cost of GPU time is, over the kinds i of hardware, the sum of A × sᵢ × eᵢ × pᵢ: hours held A, the share sᵢ of a kind
// in them, hours bought for an hour held eᵢ, and the cost of a bought hour pᵢ. The factors are changed one after the
// other, in the order volume A, mix s, efficiency e, price p, and each has what its change makes of the cost. This is the
// sequential variance analysis of cost accounting (Horngren, Datar and Rajan, Cost Accounting, chapters on flexible
// budgets, mix and yield): the order leaves no joint residual, and it is part of the definition. A kind that was not held
// before has the efficiency and the price of now, so that all of its cost is volume and mix. Each amount is exact in
// rational numbers and rounded down to 18 decimals; Price takes what rounding leaves. If one is 10¹⁵ or more, as after a
// month in which next to nothing was held, they are not told apart, and Price has all of it.
type Variance struct {
	Volume     attribution.Amount `json:"volume"`     // more or fewer hours were held
	Mix        attribution.Amount `json:"mix"`        // of other hardware or providers
	Efficiency attribution.Amount `json:"efficiency"` // with more or fewer bought hours for each
	Price      attribution.Amount `json:"price"`      // at another cost of a bought hour
	// FX is 0: both costs are in the currency that was billed.
	FX         attribution.Amount `json:"fx"`
	Other      attribution.Amount `json:"other"` // cost of kinds without held and bought hours: fees, idle, credits
	Difference attribution.Amount `json:"difference"`
}

// Held is GPU time of a kind of hardware, and its cost.
type Held struct {
	Cost              attribution.Amount
	Bought, Allocated int64
}

func (h *Held) measured() bool { return h.Bought > 0 && h.Allocated > 0 }

// VarianceOf explains the difference between two costs. Each kind has what it was before and what it is now.
func VarianceOf(kinds [][2]Held) Variance {
	var v Variance
	var total [2]int64
	for i := range kinds {
		v.Difference = v.Difference.Add(kinds[i][1].Cost).Sub(kinds[i][0].Cost)
		for t := range total {
			switch h := &kinds[i][t]; {
			case h.measured():
				total[t] += h.Allocated
			case t == 0:
				v.Other = v.Other.Sub(h.Cost)
			default:
				v.Other = v.Other.Add(h.Cost)
			}
		}
	}
	var then, volume, mix, efficiency big.Rat
	for i := range kinds {
		before, now := &kinds[i][0], &kinds[i][1]
		factor := func(h *Held, other *Held) (e, p *big.Rat) {
			if !h.measured() {
				h = other
			}
			if !h.measured() {
				return new(big.Rat), new(big.Rat)
			}
			cost := new(big.Rat).SetInt(h.Cost.Decimal().Shift(18).BigInt())
			return big.NewRat(h.Bought, h.Allocated), cost.Quo(cost, big.NewRat(h.Bought, 1))
		}
		e0, p0 := factor(before, now)
		e1, _ := factor(now, before)
		add := func(sum, hours, e *big.Rat) {
			x := new(big.Rat).Mul(hours, e)
			sum.Add(sum, x.Mul(x, p0))
		}
		var held [2]big.Rat
		for t, h := range []*Held{before, now} {
			if h.measured() {
				held[t].SetInt64(h.Allocated)
			}
		}
		add(&then, &held[0], e0)
		if total[0] > 0 {
			scaled := new(big.Rat).Mul(&held[0], big.NewRat(total[1], total[0]))
			add(&volume, scaled, e0)
		}
		add(&mix, &held[1], e0)
		add(&efficiency, &held[1], e1)
	}
	fits := true
	step := func(to, from *big.Rat) attribution.Amount {
		d := new(big.Rat).Sub(to, from)
		a, err := attribution.AmountOf(decimal.NewFromBigInt(new(big.Int).Quo(d.Num(), d.Denom()), -18))
		fits = fits && err == nil
		return a
	}
	v.Volume, v.Mix, v.Efficiency = step(&volume, &then), step(&mix, &volume), step(&efficiency, &mix)
	if !fits {
		v.Volume, v.Mix, v.Efficiency = attribution.Amount{}, attribution.Amount{}, attribution.Amount{}
	}
	v.Price = v.Difference.Sub(v.Other).Sub(v.Volume).Sub(v.Mix).Sub(v.Efficiency)
	return v
}
