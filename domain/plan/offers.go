package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// shelf is what is for sale to a pool, in machines of one size.
type shelf struct {
	gpus     int // per machine
	onDemand *domain.OfferQuoted
	spot     *domain.OfferQuoted
	terms    []term                // by provider, offer and zone
	spends   []*domain.OfferQuoted // prices of spend commitments
	quota    *Quota                // of the on-demand provider
	others   int                   // unused on-demand suppliers
	left     []ExcludedOffer
}

// term is an offer of a reservation, a capacity block or hardware to own, and the months of the horizon in which it
// can begin; at least one.
type term struct {
	*domain.OfferQuoted
	starts []int
}

// stock sorts the offers of a pool. Machine sizes are not mixed: a pool counted in GPUs takes the
// size of the fleet's machines there, else the largest sold on demand. Of several on-demand or spot
// offers the cheapest is taken. The error says why there is no price to plan against.
func (c *composer) stock(p *Pool) (*shelf, error) {
	s := &shelf{}
	offers := make([]*domain.OfferQuoted, 0, len(p.Offers))
	for i := range p.Offers {
		offers = append(offers, &p.Offers[i])
	}
	slices.SortFunc(offers, func(x, y *domain.OfferQuoted) int {
		return cmp.Or(cmp.Compare(x.Market.Provider, y.Market.Provider), cmp.Compare(x.Offer, y.Offer),
			cmp.Compare(x.Zone, y.Zone))
	})
	s.gpus = p.NodeGPUs
	if p.inGPUs() && s.gpus == 0 {
		for _, o := range offers {
			if o.Kind == domain.OfferOnDemand && o.Currency == c.a.Currency {
				s.gpus = max(s.gpus, int(o.GPUCount))
			}
		}
	}
	suppliers := map[string]bool{}
	for _, o := range offers {
		switch {
		case o.Currency != c.a.Currency:
			s.leave(c.foreign(o.Currency), o)
		case p.inGPUs() && (s.gpus == 0 || int(o.GPUCount) != s.gpus):
			s.leave(fmt.Sprintf("machines of %d GPUs, the pool is planned in machines of %d", o.GPUCount, s.gpus), o)
		case o.ValidTo != 0 && o.ValidTo <= c.q.At, o.ValidFrom >= c.end():
			s.leave("not valid within the horizon", o)
		case o.Kind == domain.OfferOnDemand:
			suppliers[o.Market.Provider] = true
			s.onDemand = s.cheaper(s.onDemand, o)
		case o.Kind == domain.OfferSpot:
			s.spot = s.cheaper(s.spot, o)
		case o.Kind == domain.OfferReserved || o.Kind == domain.OfferCapacityBlock || o.Kind == domain.OfferOwned:
			c.consider(s, o)
		case o.Kind == domain.OfferSpendCommitment:
			c.offerSpend(s, o)
		default:
			s.leave(string(o.Kind)+" is not planned", o)
		}
	}
	if s.onDemand == nil {
		return nil, c.unpriced(p, s, offers)
	}
	s.keepSpends()
	s.others = len(suppliers) - 1
	if !p.inGPUs() {
		s.gpus = int(s.onDemand.GPUCount)
	}
	for i := range p.Quotas {
		// A quota counts GPUs, so it does not bound machines without GPUs.
		if q := &p.Quotas[i]; q.Provider == s.onDemand.Market.Provider && s.gpus > 0 &&
			(s.quota == nil || q.GPUs < s.quota.GPUs) {
			s.quota = q
		}
	}
	s.terms = slices.DeleteFunc(s.terms, func(t term) bool {
		if !s.uses(t.Market.Provider, t.GuaranteesCapacity || t.Kind == domain.OfferOwned) {
			s.leave("discount only, and of another provider than the on-demand price whose quota bounds it", t.OfferQuoted)
			return true
		}
		return false
	})
	if s.spot != nil {
		// Spot that is not cheaper than a shortage would serve no demand.
		one := decimal.NewFromInt(1)
		if !s.spot.Hourly.LessThan(s.onDemand.Hourly.Mul(c.a.ShortageFactor).Mul(one.Sub(c.a.SpotOverhead))) {
			s.leave("no cheaper, with interruptions, than to leave demand unserved", s.spot)
			s.spot = nil
		}
	}
	return s, nil
}

// uses reports whether a commitment of a provider can serve the pool. A discount-only commitment
// serves like on-demand use. Where a quota bounds that, only a commitment of the same provider is
// within it.
func (s *shelf) uses(provider string, guaranteed bool) bool {
	return guaranteed || s.quota == nil || provider == s.onDemand.Market.Provider
}

// consider puts a reservation on the shelf, or records why not.
func (c *composer) consider(s *shelf, o *domain.OfferQuoted) {
	var why string
	switch {
	case o.MaxUnits > 0 && o.MinUnits > o.MaxUnits:
		why = "the least that it sells is more than the most"
	case o.MinUnits > maxUnits:
		why = fmt.Sprintf("the least that it sells is more than %d machines", maxUnits)
	}
	t := term{o, c.starts(o)}
	if why = t.refused(why); why != "" {
		s.leave(why, o)
		return
	}
	s.terms = append(s.terms, t)
}

// refused says why a term cannot be planned, "" if it can. why is a reason of its kind of offer.
func (t *term) refused(why string) string {
	switch {
	case t.TermMonths == 0:
		return "a term of less than a month"
	case t.TermMonths > MaxMonths:
		return fmt.Sprintf("a term of more than %d months", MaxMonths)
	case why == "" && len(t.starts) == 0:
		return "cannot be there within the horizon"
	}
	return why
}

// starts are the months of the horizon in which an offer's term can begin.
func (c *composer) starts(o *domain.OfferQuoted) (out []int) {
	for m := range c.span {
		from := c.span[m].From
		if from >= c.ready(o) && from >= o.ValidFrom && (o.ValidTo == 0 || from < o.ValidTo) {
			out = append(out, m)
		}
	}
	return out
}

// ready is when an immediately ordered offer can begin.
func (c *composer) ready(o *domain.OfferQuoted) domain.Instant {
	const longest = 240 * 31 * 24 // beyond every horizon, and far within the range of an instant
	return c.q.At + domain.Instant(min(o.LeadTimeHours, longest))*domain.Hour
}

func (c *composer) foreign(currency string) string {
	return fmt.Sprintf("priced in %s, the plan is in %s", currency, c.a.Currency)
}

// unpriced says why a pool has no on-demand price.
func (c *composer) unpriced(p *Pool, s *shelf, offers []*domain.OfferQuoted) error {
	if p.Region == "" {
		return &refusal{"its region is not known, so there is no price to plan against",
			"register the cluster that the demand comes from, with its region"}
	}
	var currencies, sizes []string
	here := slices.ContainsFunc(offers, func(o *domain.OfferQuoted) bool { return o.Currency == c.a.Currency })
	for _, o := range offers {
		switch {
		case here && o.Kind != domain.OfferOnDemand:
		case o.Currency != c.a.Currency:
			currencies = append(currencies, o.Currency)
		case p.inGPUs() && int(o.GPUCount) != s.gpus:
			sizes = append(sizes, fmt.Sprint(o.GPUCount))
		}
	}
	joined := func(names []string) string {
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " and ")
	}
	switch {
	case len(sizes) > 0:
		return &refusal{fmt.Sprintf("offered on demand in machines of %s GPUs, the fleet there has machines of %d",
			joined(sizes), s.gpus), fmt.Sprintf("import prices on demand of machines of %d GPUs there", s.gpus)}
	case len(currencies) > 0:
		return &refusal{c.foreign(joined(currencies)),
			fmt.Sprintf("plan in that currency, or import prices in %s", c.a.Currency)}
	}
	return &refusal{"nobody offers it on demand there, so there is no price to plan against",
		"import prices that offer it on demand there"}
}

// cheaper keeps the cheaper of two offers of a kind; ties go to the first.
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
	s.left = append(s.left, ExcludedOffer{Reason: reason, Offers: 1, First: name})
}

func priceOf(o *domain.OfferQuoted) Price {
	return Price{Provider: o.Market.Provider, Offer: o.Offer, Hourly: o.Hourly, Generated: o.Generated, Citation: o.Citation}
}
