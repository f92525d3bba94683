package plan

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// shelf is what is for sale to a pool, in machines of one size.
type shelf struct {
	gpus     int // of a machine
	onDemand *domain.OfferQuoted
	spot     *domain.OfferQuoted
	terms    []*domain.OfferQuoted // reserved and capacity blocks, by provider, offer and zone
	quota    *uint64               // GPUs, of the on-demand provider
	left     []LeftOut
}

// stock sorts the offers of a pool. Machines of several sizes are not mixed: a
// pool counted in GPUs takes the size of the fleet's machines there, else the
// largest that is sold on demand. Of several on-demand or spot offers the
// cheapest is taken.
func stock(p *Pool, a *Assumptions, at, end domain.Instant) *shelf {
	s := &shelf{}
	offers := make([]*domain.OfferQuoted, 0, len(p.Offers))
	for i := range p.Offers {
		offers = append(offers, &p.Offers[i])
	}
	slices.SortFunc(offers, func(x, y *domain.OfferQuoted) int {
		return cmp.Or(cmp.Compare(x.Market.Provider, y.Market.Provider), cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Zone, y.Zone))
	})
	s.gpus = p.NodeGPUs
	if p.Unit == "gpu" && s.gpus == 0 {
		for _, o := range offers {
			if o.Kind == domain.OfferOnDemand && o.Currency == a.Currency {
				s.gpus = max(s.gpus, int(o.GPUCount))
			}
		}
	}
	for _, o := range offers {
		switch {
		case o.Currency != a.Currency:
			s.leave("priced in "+o.Currency, o)
		case p.Unit == "gpu" && (s.gpus == 0 || int(o.GPUCount) != s.gpus):
			s.leave(fmt.Sprintf("machines of %d GPUs, the pool is planned in machines of %d", o.GPUCount, s.gpus), o)
		case o.ValidTo != 0 && o.ValidTo <= at, o.ValidFrom >= end:
			s.leave("not valid within the horizon", o)
		case o.Kind == domain.OfferOnDemand:
			s.onDemand = s.cheaper(s.onDemand, o)
		case o.Kind == domain.OfferSpot:
			s.spot = s.cheaper(s.spot, o)
		case (o.Kind == domain.OfferReserved || o.Kind == domain.OfferCapacityBlock) && o.TermMonths > 0:
			s.terms = append(s.terms, o)
		case o.Kind == domain.OfferReserved || o.Kind == domain.OfferCapacityBlock:
			s.leave("a term of less than a month", o)
		default:
			s.leave(string(o.Kind)+" spans pools and is not planned yet", o)
		}
	}
	if s.onDemand != nil {
		if p.Unit == "vm" {
			s.gpus = int(s.onDemand.GPUCount)
		}
		for i := range p.Quotas {
			if q := &p.Quotas[i]; q.Provider == s.onDemand.Market.Provider {
				s.quota = &q.GPUs
			}
		}
	}
	return s
}

// cheaper keeps the cheaper of two offers of a kind, the first of equals.
func (s *shelf) cheaper(have, o *domain.OfferQuoted) *domain.OfferQuoted {
	if have == nil {
		return o
	}
	if o.Hourly.LessThan(have.Hourly) {
		have, o = o, have
	}
	s.leave("a dearer "+string(o.Kind)+" price", o)
	return have
}

func (s *shelf) leave(reason string, o *domain.OfferQuoted) {
	name := o.Market.Provider + " " + o.Offer
	for i := range s.left {
		if s.left[i].Reason == reason {
			s.left[i].Offers++
			return
		}
	}
	s.left = append(s.left, LeftOut{Reason: reason, Offers: 1, First: name})
}

func priceOf(o *domain.OfferQuoted) Price {
	return Price{Provider: o.Market.Provider, Offer: o.Offer, Hourly: o.Hourly, Generated: o.Generated, Citation: o.Citation}
}
