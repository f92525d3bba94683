package instance

import (
	"fmt"
	"math/big"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// pricer prices the choices of a model as [model.worthOf] does. An offer without a ramp that is not
// owned has the same prices at all its starts: there it multiplies whole numbers in memory that is used
// again, because millions of choices are priced.
type pricer struct {
	m               *model
	offer, tier     int32 // whose prices are known
	upfront, hourly factor
	factors         map[[2]int]*[2]factor // of an upfront and an hourly price, by start and term

	sum, part, rest big.Int
}

// factor is coefficient × 10^exponent.
type factor struct {
	coefficient *big.Int
	exponent    int32
}

func factorOf(d domain.Decimal) factor { return factor{d.Coefficient(), d.Exponent()} }

func (m *model) pricer() *pricer {
	return &pricer{m: m, offer: -1, tier: -2, factors: map[[2]int]*[2]factor{}}
}

// of is the cost of one unit of a choice.
func (p *pricer) of(at listing) (procurement.Nano, error) {
	m := p.m
	if at.offer < 0 {
		return m.nano(m.worthOf(&m.renewals[-1-at.offer]))
	}
	o, s := &m.in.Offers[at.offer], int(at.epoch)
	if o.Owned != nil || len(o.Ramp) > 0 || !o.Decline.IsZero() {
		unit := m.unitPrices(o, int(at.tier), s)
		return m.nano(m.worth(o, unit, s).Mul(whole(max(1, o.Lot))))
	}
	if p.offer != at.offer || p.tier != at.tier {
		lot := m.lotPrices(o, int(at.tier), s)
		p.offer, p.tier, p.upfront, p.hourly = at.offer, at.tier, factorOf(lot.upfront), factorOf(lot.hourly)
	}
	key := [2]int{s, o.Term}
	f := p.factors[key]
	if f == nil {
		x := m.factorsOf(s, o.Term)
		f = &[2]factor{factorOf(x.upfront), factorOf(x.hourly)}
		p.factors[key] = f
	}
	a, b := p.upfront.exponent+f[0].exponent, p.hourly.exponent+f[1].exponent
	least := min(a, b, -m.digits)
	p.sum.Mul(p.upfront.coefficient, f[0].coefficient)
	if a > least {
		p.sum.Mul(&p.sum, tens(a-least))
	}
	p.part.Mul(p.hourly.coefficient, f[1].coefficient)
	if b > least {
		p.part.Mul(&p.part, tens(b-least))
	}
	p.sum.Add(&p.sum, &p.part)
	if least < -m.digits {
		halved(&p.sum, tens(-m.digits-least), &p.part, &p.rest)
	}
	if !p.sum.IsInt64() {
		return 0, fmt.Errorf("%s: %w", clip(m.worth(o, m.lotPrices(o, int(at.tier), s), s).Round(2).String()), errLarge)
	}
	n := procurement.Nano(p.sum.Int64())
	if n < 0 {
		return m.nano(m.worth(o, m.lotPrices(o, int(at.tier), s), s)) // for its error
	}
	return n, nil
}
