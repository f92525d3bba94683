package plan

import (
	"cmp"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Wait is the part of a purchase that could be ordered now, and waits until demand for it was there. A
// term that begins a month later costs what on-demand use costs more for that month. A term for demand
// that was forecast and does not come is idle to its end, so a forecast alone is no reason to order
// (investment that cannot be undone waits for more than its break-even: Dixit and Pindyck, "Investment
// under Uncertainty", 1994).
type Wait struct {
	Units int `json:"units"` // that wait
	// Seen is the number of machines that demand used in at least 60% of the hours of the last 30 days.
	// Held are those that serve it when the horizon begins. What is ordered now fills up to Seen.
	Seen int `json:"seen_units"`
	Held int `json:"held_units"`
}

const (
	seenHours = 30 * 24
	// idleMilli is the share of the hours seen that a machine may have been idle, in thousandths. Shares
	// of 300, 400 and 500 were measured: see decision 141.
	idleMilli = 400
)

// waits finds what of orders waits: of those that begin with the horizon, take less than a month to come,
// and are for a pool by itself whose end is not known. A pool with an on-demand quota, spares or a
// posture cannot wait: what it lacks may not be there on demand.
func (c *composer) waits(g *group, orders []instance.Order) (map[instance.Order]*Wait, error) {
	if c.a.SalvageFrom != Forecast || len(g.pools) > 1 || c.a.ServiceLevel.IsPositive() || c.protect(g) != nil ||
		g.pools[0].shelf.quota != nil {
		return nil, nil
	}
	k := g.pools[0]
	sold := make(map[string]*domain.OfferQuoted, len(k.shelf.terms))
	for _, t := range k.shelf.terms {
		sold[OfferName(k.name(), t.OfferQuoted)] = t.OfferQuoted
	}
	first := slices.DeleteFunc(slices.Clone(orders), func(o instance.Order) bool {
		return o.Epoch > 0 || sold[o.Offer] == nil || sold[o.Offer].LeadTimeHours >= longLead
	})
	if len(first) == 0 {
		return nil, nil
	}
	slices.SortFunc(first, func(x, y instance.Order) int { // the longest terms are for what lasts
		return cmp.Or(cmp.Compare(sold[y.Offer].TermMonths, sold[x.Offer].TermMonths), cmp.Compare(x.Offer, y.Offer))
	})
	past, err := c.past(k)
	if err != nil {
		return nil, err
	}
	past = past[max(0, len(past)-seenHours):]
	slices.Sort(past)
	seen, held := past[rank(len(past), idleMilli)], 0
	for i := range k.held {
		for _, t := range k.held[i].terms {
			if t.From <= c.span[0].From && t.To >= c.span[0].To {
				held += t.units
			}
		}
	}
	out := map[instance.Order]*Wait{}
	room := max(0, seen-held)
	for _, o := range first {
		now := min(o.Units, room)
		if now < int(sold[o.Offer].MinUnits) {
			now = 0
		}
		room -= now
		if now < o.Units {
			out[o] = &Wait{o.Units - now, seen, held}
		}
	}
	return out, nil
}
