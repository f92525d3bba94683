package plan

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
)

// problem states a pool for procurement.
func (c *composer) problem(p *Pool, s *shelf, f *future, salvage domain.Decimal) (*procurement.Pool, error) {
	n := len(c.span)
	out := &procurement.Pool{ID: p.Region + "|" + p.Kind}
	one := decimal.NewFromInt(1)
	spotPermille := 0
	if s.spot != nil {
		spotPermille = int(p.SpotShare.Shift(3).IntPart())
	}
	quota := procurement.Unlimited
	if s.quota != nil {
		quota = int(min(*s.quota/uint64(max(1, s.gpus)), maxUnits))
	}
	for m, span := range c.span {
		e := procurement.Epoch{Span: span, Demand: f.steps[m], Spot: -1, SpotPermille: spotPermille, Quota: quota}
		var err error
		if e.OnDemand, err = nano(s.onDemand.Hourly.Mul(c.discount.middle(m))); err != nil {
			return nil, err
		}
		if e.Shortage, err = nano(s.onDemand.Hourly.Mul(c.a.ShortageFactor).Mul(c.discount.middle(m))); err != nil {
			return nil, err
		}
		if spotPermille > 0 {
			price := s.spot.Hourly.DivRound(one.Sub(c.a.SpotOverhead), digits)
			if e.Spot, err = nano(price.Mul(c.discount.middle(m))); err != nil {
				return nil, err
			}
			// Spot that is dearer than not to serve serves nobody.
			e.Shortage = max(e.Shortage, e.Spot)
		}
		// A commitment counts in the months that it covers to the end.
		for i := range c.q.Held {
			h := &c.q.Held[i]
			if h.Region != p.Region || h.GPUs != s.gpus || !s.sells(p, h) || h.Term.From > span.From || h.Term.To < span.To {
				continue
			}
			if h.Guaranteed {
				e.HeldGuaranteed += h.Units
			} else {
				e.HeldPriceOnly += h.Units
			}
		}
		out.Epochs = append(out.Epochs, e)
	}
	for _, o := range s.terms {
		offer := procurement.Offer{ID: o.Market.Provider + "|" + o.Offer, Guaranteed: o.GuaranteesCapacity, Term: int(o.TermMonths)}
		bound := procurement.Unlimited
		if o.MaxUnits > 0 {
			bound = int(o.MaxUnits)
		}
		ready := c.q.At + domain.Instant(o.LeadTimeHours)*domain.Hour
		for m := 0; m < n && m+offer.Term <= len(c.all); m++ {
			if c.span[m].From < ready || c.span[m].From < o.ValidFrom || o.ValidTo != 0 && c.span[m].From >= o.ValidTo {
				continue
			}
			within, _ := purchaseCost(o, m, n, c.all, c.discount, salvage)
			cost, err := nano(within)
			if err != nil {
				return nil, err
			}
			offer.Starts = append(offer.Starts, procurement.Start{Epoch: m, Cost: cost, Max: bound})
		}
		out.Offers = append(out.Offers, offer)
	}
	return out, nil
}

// sells reports whether a commitment is for machines of the pool.
func (s *shelf) sells(p *Pool, h *Held) bool {
	if p.Unit == "vm" {
		return h.SKU == p.Kind
	}
	return h.GPUModel == p.Kind
}

// solve finds the purchases and has them checked. A start of which fewer units
// would be bought than its offer's least order is taken away and the rest
// solved anew, so that the bound stays that of all offers.
func solve(p *procurement.Pool, s *shelf) (*procurement.Solution, error) {
	sol, err := procurement.Solve(p)
	if err != nil {
		return nil, err
	}
	if _, err := check.Check(p, sol); err != nil {
		return nil, err
	}
	bound, certificate := sol.Bound, sol.Certificate
	for {
		tooFew := slices.IndexFunc(sol.Purchases, func(b procurement.Purchase) bool {
			return b.Units < int(s.terms[b.Offer].MinUnits)
		})
		if tooFew < 0 {
			break
		}
		b := sol.Purchases[tooFew]
		fewer := *p
		fewer.Offers = slices.Clone(p.Offers)
		o := &fewer.Offers[b.Offer]
		o.Starts = slices.DeleteFunc(slices.Clone(o.Starts), func(at procurement.Start) bool { return at.Epoch == b.Epoch })
		p = &fewer
		if sol, err = procurement.Solve(p); err != nil {
			return nil, err
		}
		if _, err := check.Check(p, sol); err != nil {
			return nil, err
		}
	}
	sol.Bound, sol.Certificate = bound, certificate
	return sol, nil
}

// money turns nano-units into the currency.
func money(n *big.Int) domain.Decimal { return decimal.NewFromBigInt(n, -9) }

func (c *composer) purchases(p *procurement.Pool, s *shelf, bought []procurement.Purchase, salvage domain.Decimal) ([]Purchase, error) {
	out := []Purchase{}
	for _, b := range bought {
		o := s.terms[b.Offer]
		units := decimal.NewFromInt(int64(b.Units))
		from := c.all[b.Epoch].From
		i := slices.IndexFunc(p.Offers[b.Offer].Starts, func(at procurement.Start) bool { return at.Epoch == b.Epoch })
		if i < 0 {
			return nil, fmt.Errorf("%s was bought from month %d on, when it is not sold", p.Offers[b.Offer].ID, b.Epoch)
		}
		cost := big.NewInt(int64(p.Offers[b.Offer].Starts[i].Cost))
		x := Purchase{
			Provider: o.Market.Provider, Offer: o.Offer, Kind: o.Kind, SKU: o.SKU, GPUModel: o.GPUModel,
			Units: b.Units, GPUs: b.Units * s.gpus,
			Term:    domain.Interval{From: from, To: c.all[b.Epoch+int(o.TermMonths)-1].To},
			Upfront: o.Upfront.Mul(units), Hourly: o.Hourly.Mul(units), Cost: money(cost.Mul(cost, big.NewInt(int64(b.Units)))),
			Guaranteed: o.GuaranteesCapacity, Generated: o.Generated, Citation: o.Citation,
		}
		if o.LeadTimeHours > 0 {
			x.OrderBy = from - domain.Instant(o.LeadTimeHours)*domain.Hour
		}
		out = append(out, x)
	}
	slices.SortFunc(out, comparePurchases)
	return out, nil
}
