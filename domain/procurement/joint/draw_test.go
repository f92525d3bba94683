package joint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// source is where a drawn problem comes from: rapid, which shrinks, or a seed.
type source func(low, high int) int

func drawn(t *rapid.T) source {
	return func(low, high int) int { return rapid.IntRange(low, high).Draw(t, "") }
}

func seeded(seed uint64) source {
	r := rand.New(rand.NewPCG(seed, 7))
	return func(low, high int) int { return low + r.IntN(high-low+1) }
}

// with selects the features that a drawn problem may have.
type with struct {
	epochs, pools, slots, cases, units, hours, choices int
	ratios, quotas, spends, needs, limits, whole       bool
	spot                                               bool
}

var everything = with{epochs: 3, pools: 3, slots: 4, cases: 2, units: 9, hours: 5, choices: 7, ratios: true, quotas: true, spends: true, needs: true, limits: true, whole: true, spot: true}

// million makes prices large, as real ones are in Nano.
const million = 1_000_000

func draw(n source, w with) *joint.Problem {
	chance := func(percent int) bool { return n(1, 100) <= percent }
	p := &joint.Problem{ID: "drawn", Weight: 1}
	pools, epochs := n(1, w.pools), n(1, w.epochs)
	for i := range pools {
		p.Pools = append(p.Pools, fmt.Sprintf("pool %d", i))
	}
	for i := range n(1, w.pools) {
		d := joint.Demand{ID: fmt.Sprintf("demand %d", i)}
		if w.spot {
			d.Interruptible = []int{0, 300, 1000}[n(0, 2)]
		}
		p.Demands = append(p.Demands, d)
		for k := range pools {
			if i != k && chance(40) {
				continue
			}
			r := joint.Route{Demand: i, Pool: k, Num: 1, Den: 1}
			if w.ratios && i != k && chance(50) {
				r.Num, r.Den = n(1, 4), n(1, 4)
			}
			p.Routes = append(p.Routes, r)
		}
	}
	weights := []int{1}
	if w.cases > 1 && chance(50) {
		weights = nil
		for range n(2, w.cases) {
			weights = append(weights, n(1, 3))
		}
	}
	p.Weight = 0
	for _, v := range weights {
		p.Weight += v
	}
	if w.quotas {
		for i := range n(0, 2) {
			p.Quotas = append(p.Quotas, fmt.Sprintf("quota %d", i))
		}
	}
	if w.spends && chance(60) {
		p.Spends = []string{"plan"}
	}
	for m := range epochs {
		e := joint.Epoch{Span: domain.Interval{From: domain.Instant(m) * domain.Day, To: domain.Instant(m+1) * domain.Day}}
		price := func(low, high int) procurement.Nano { return procurement.Nano(n(low, high)) * million }
		for range pools {
			s := joint.Supply{OnDemand: price(4, 12), Spot: -1, Quota: -1, Spend: -1}
			if chance(10) {
				s.OnDemand = -1
			}
			if w.spot && chance(50) {
				s.Spot = price(1, 9)
			}
			if chance(30) {
				s.HeldGuaranteed = n(0, w.units/2)
			}
			if chance(20) {
				s.HeldDiscountOnly = n(0, w.units/2)
			}
			if len(p.Quotas) > 0 && chance(60) {
				s.Quota, s.QuotaPerUnit = n(0, len(p.Quotas)-1), 1
				if w.ratios {
					s.QuotaPerUnit = n(1, 3)
				}
			}
			if len(p.Spends) > 0 && chance(60) {
				s.Spend, s.SpendPrice = 0, price(2, 8)
			}
			e.Pools = append(e.Pools, s)
		}
		for _, r := range p.Routes {
			x := procurement.Nano(0)
			if r.Demand != r.Pool {
				x = price(0, 3)
			}
			e.Routes = append(e.Routes, x)
		}
		for range p.Demands {
			e.Shortage = append(e.Shortage, price(8, 40))
		}
		for range p.Quotas {
			q := procurement.Unlimited
			if chance(80) {
				q = n(0, w.units*2)
			}
			e.Quotas = append(e.Quotas, q)
		}
		for range p.Spends {
			s := procurement.Nano(0)
			if chance(30) {
				s = price(0, 30)
			}
			e.Spends = append(e.Spends, s)
		}
		for _, v := range weights {
			c := joint.Case{Weight: v}
			for range pools {
				z := procurement.Unlimited
				if chance(50) {
					z = n(0, w.units)
				}
				c.Spot = append(c.Spot, z)
			}
			for range n(0, w.slots) {
				s := joint.Slot{Hours: n(1, w.hours)}
				for range p.Demands {
					s.Units = append(s.Units, n(0, w.units))
				}
				c.Slots = append(c.Slots, s)
			}
			slices.SortFunc(c.Slots, func(a, b joint.Slot) int { return slices.Compare(a.Units, b.Units) })
			c.Slots = slices.CompactFunc(c.Slots, func(a, b joint.Slot) bool { return slices.Equal(a.Units, b.Units) })
			e.Cases = append(e.Cases, c)
		}
		p.Epochs = append(p.Epochs, e)
	}
	if w.limits && chance(40) {
		for i := range n(1, 2) {
			l := joint.Limit{ID: fmt.Sprintf("limit %d", i)}
			switch n(0, 3) {
			case 0:
				l.Unserved = true
				l.Most = procurement.Nano(n(0, w.units*w.hours))
			case 1:
				l.Spot = true
				l.Most = procurement.Nano(n(0, w.units*w.hours))
			default:
				l.Most = procurement.Nano(n(50, 600)*w.hours) * million
			}
			if l.Unserved || l.Spot || chance(60) {
				for range epochs {
					l.Serving = append(l.Serving, int64([]int{1000, 1000, 1000, 0, 1500}[n(0, 4)]))
				}
			}
			p.Limits = append(p.Limits, l)
		}
	}
	for i := range n(0, w.choices) {
		from := n(0, epochs-1)
		to := n(from+1, epochs)
		c := joint.Choice{ID: fmt.Sprintf("choice %d", i), Max: procurement.Unlimited, Lot: 1}
		hours := procurement.Nano(w.hours * w.slots / 2 * (to - from))
		c.Cost = procurement.Nano(n(1, 9)) * million * hours
		c.Cover = []joint.Cover{{Pool: n(0, pools-1), From: from, To: to, Units: 1, Guaranteed: chance(65)}}
		if w.ratios && chance(15) {
			c.Cover[0].Units = 2
			c.Cost *= 2
		}
		if chance(15) { // a bundle, or a ramp
			c.Cover = append(c.Cover, joint.Cover{Pool: n(0, pools-1), From: from, To: epochs, Units: 1, Guaranteed: chance(65)})
			c.Cost *= 2
		}
		if len(p.Spends) > 0 && chance(30) {
			c.Cover = nil
			c.Spend = []joint.SpendCover{{Spend: 0, From: from, To: to, PerHour: procurement.Nano(n(1, 4)) * million}}
			c.Cost = c.Spend[0].PerHour * hours
		}
		if chance(40) {
			c.Max = n(0, w.units)
		}
		if w.whole {
			if chance(15) {
				c.Least = n(1, 5)
			}
			if chance(15) {
				c.Lot = n(2, 4)
			}
			if chance(15) {
				c.Group = "exclusive"
			}
		}
		if len(p.Limits) > 0 && chance(80) {
			c.Spent = make([]procurement.Nano, len(p.Limits))
			for l := range p.Limits {
				if !p.Limits[l].Unserved && !p.Limits[l].Spot {
					c.Spent[l] = c.Cost * procurement.Nano(n(0, 10)) / 10
				}
			}
		}
		p.Choices = append(p.Choices, c)
	}
	if w.needs && chance(40) {
		for i := range n(1, 2) {
			need := joint.Need{ID: fmt.Sprintf("need %d", i), Least: n(0, w.units)}
			for m := range epochs {
				if chance(60) {
					need.Epochs = append(need.Epochs, m)
				}
			}
			for k := range pools {
				if chance(70) {
					need.Terms = append(need.Terms, joint.NeedTerm{Pool: k, PerUnit: n(1, 2)})
				}
			}
			p.Needs = append(p.Needs, need)
		}
	}
	return p
}
