package procurement

import (
	"fmt"
	"math/big"

	"quartermaster/domain"
)

// Serving is what served one epoch, in unit-hours. Demand is the sum of Guaranteed, DiscountOnly,
// Spot, OnDemand and Shortage.
type Serving struct {
	Demand       int64 `json:"demand"`
	Guaranteed   int64 `json:"guaranteed"`
	DiscountOnly int64 `json:"discount_only"`
	Spot         int64 `json:"spot"`
	OnDemand     int64 `json:"on_demand"`
	Shortage     int64 `json:"shortage"`
	// What was held or bought and served nothing, over the hours of the span or of the demand,
	// whichever are more.
	UnusedGuaranteed   int64 `json:"unused_guaranteed"`
	UnusedDiscountOnly int64 `json:"unused_discount_only"`
}

// Evaluation is the result of a set of purchases, in Nano. Everything is a weighted sum over the
// scenarios; purchases, made once, count in each.
type Evaluation struct {
	Epochs       []Serving `json:"epochs"`
	Purchases    *big.Int  `json:"purchases"`
	SpotCost     *big.Int  `json:"spot_cost"`
	OnDemandCost *big.Int  `json:"on_demand_cost"`
	ShortageCost *big.Int  `json:"shortage_cost"`
	Cost         *big.Int  `json:"cost"` // the sum of the four
	// Scenarios is the result of each scenario, without its weight, in the order of Pool.Weights;
	// empty if the pool names none.
	Scenarios []Evaluation `json:"scenarios,omitempty"`
}

// Evaluate serves every hour with what is held and bought, cheapest first. It refuses an invalid
// pool, and purchases that the pool does not offer.
func Evaluate(p *Pool, purchases []Purchase) (*Evaluation, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	have, spent, err := p.coverage(purchases)
	if err != nil {
		return nil, fmt.Errorf("pool %q: %w", p.ID, err)
	}
	served := make([]Serving, len(p.Epochs))
	for m := range p.Epochs {
		served[m] = p.serve(m, have[m])
	}
	weight := big.NewInt(int64(p.Weight()))
	ev := p.total(served, weight.Mul(weight, spent.big()))
	for i := range p.Weights {
		served := make([]Serving, len(p.Epochs))
		for m := range p.Epochs {
			e := &p.Epochs[m]
			if len(e.Cases) == 0 {
				served[m] = e.serve(have[m], &Case{e.Demand, Unlimited})
			} else {
				served[m] = e.serve(have[m], &e.Cases[i])
			}
		}
		ev.Scenarios = append(ev.Scenarios, *p.total(served, spent.big()))
	}
	return ev, nil
}

// total prices what served the epochs.
func (p *Pool) total(served []Serving, purchases *big.Int) *Evaluation {
	var spot, onDemand, shortage wide
	for m, s := range served {
		e := &p.Epochs[m]
		spot.addUnitHours(e.Spot, s.Spot)
		onDemand.addUnitHours(e.OnDemand, s.OnDemand)
		shortage.addUnitHours(e.Shortage, s.Shortage)
	}
	ev := &Evaluation{
		Epochs: served, Purchases: purchases, SpotCost: spot.big(), OnDemandCost: onDemand.big(),
		ShortageCost: shortage.big(),
	}
	ev.Cost = new(big.Int).Add(ev.Purchases, ev.SpotCost)
	ev.Cost.Add(ev.Cost, ev.OnDemandCost).Add(ev.Cost, ev.ShortageCost)
	return ev
}

func (w *wide) addUnitHours(price Nano, n int64) {
	if n > 0 { // a price may be negative only if nothing is served by it
		w.add(price, int(n))
	}
}

// maxCovered keeps the unit-hours of an epoch within 64 bits. Far less is useful: minimal purchases
// overlap at most twice for each unit of demand.
const maxCovered = 8 * MaxUnits

// held is what there is in an epoch, bought before or now.
type held struct{ guaranteed, discountOnly int }

// coverage adds purchases to what is held, and returns their cost.
func (p *Pool) coverage(purchases []Purchase) (have []held, spent wide, err error) {
	have = make([]held, len(p.Epochs))
	for m := range p.Epochs {
		have[m] = held{p.Epochs[m].HeldGuaranteed, p.Epochs[m].HeldDiscountOnly}
	}
	bought := make(map[[2]int]int, len(purchases))
	for i, b := range purchases {
		if b.Offer < 0 || b.Offer >= len(p.Offers) {
			return nil, spent, fmt.Errorf("purchase %d: there is no offer %d", i, b.Offer)
		}
		o := &p.Offers[b.Offer]
		s := o.startIn(b.Epoch)
		if s == nil {
			return nil, spent, fmt.Errorf("purchase %d: offer %d (%q) does not start in epoch %d", i, b.Offer, o.ID, b.Epoch)
		}
		most := MaxUnits
		if s.Max != Unlimited {
			most = s.Max
		}
		key := [2]int{b.Offer, b.Epoch}
		if b.Units < 1 || b.Units > most-bought[key] {
			return nil, spent,
				fmt.Errorf("purchase %d: %d units of offer %d (%q) from epoch %d: below 1, or above the %d that "+
					"there are", i, b.Units, b.Offer, o.ID, b.Epoch, most)
		}
		bought[key] += b.Units
		spent.add(s.Cost, b.Units)
		for m := b.Epoch; m < o.end(b.Epoch, len(p.Epochs)); m++ {
			if o.Guaranteed {
				have[m].guaranteed += b.Units
			} else {
				have[m].discountOnly += b.Units
			}
			if have[m].guaranteed+have[m].discountOnly > maxCovered {
				return nil, spent, fmt.Errorf("purchase %d: more than %d units would cover epoch %d", i, maxCovered, m)
			}
		}
	}
	return have, spent, nil
}

func (o *Offer) startIn(epoch int) *Start {
	for i := range o.Starts {
		if o.Starts[i].Epoch == epoch {
			return &o.Starts[i]
		}
	}
	return nil
}

// serve adds up an epoch over the scenarios, each times its weight.
func (p *Pool) serve(m int, have held) Serving {
	var out Serving
	for _, w := range p.ways(m) {
		s, n := p.Epochs[m].serve(have, &w.Case), int64(w.weight)
		out.Demand += n * s.Demand
		out.Guaranteed += n * s.Guaranteed
		out.DiscountOnly += n * s.DiscountOnly
		out.Spot += n * s.Spot
		out.OnDemand += n * s.OnDemand
		out.Shortage += n * s.Shortage
		out.UnusedGuaranteed += n * s.UnusedGuaranteed
		out.UnusedDiscountOnly += n * s.UnusedDiscountOnly
	}
	return out
}

// serve adds up the hours of an epoch in one scenario.
func (e *Epoch) serve(have held, c *Case) Serving {
	var out Serving
	quota := e.Quota
	if e.OnDemand < 0 {
		quota = 0
	} else if quota == Unlimited {
		quota = MaxUnits
	}
	hours := int64(0)
	for _, step := range c.Demand {
		left, n := step.Units, int64(step.Hours)
		take := func(most int) int {
			units := min(left, most)
			left -= units
			return units
		}
		spot := 0
		if e.Spot >= 0 {
			spot = c.spot(step.Units, e.SpotPermille)
		}
		guaranteed := take(have.guaranteed)
		discountOnly := take(min(have.discountOnly, quota))
		var spotUnits, onDemand int
		if e.Spot < e.OnDemand {
			spotUnits = take(spot)
			onDemand = take(quota - discountOnly)
		} else {
			onDemand = take(quota - discountOnly)
			spotUnits = take(spot)
		}
		hours += n
		out.Demand += int64(step.Units) * n
		out.Guaranteed += int64(guaranteed) * n
		out.DiscountOnly += int64(discountOnly) * n
		out.Spot += int64(spotUnits) * n
		out.OnDemand += int64(onDemand) * n
		out.Shortage += int64(left) * n
	}
	hours = max(hours, e.hours())
	out.UnusedGuaranteed = int64(have.guaranteed)*hours - out.Guaranteed
	out.UnusedDiscountOnly = int64(have.discountOnly)*hours - out.DiscountOnly
	return out
}

// spot is the number of units of an hour's demand that spot can carry.
func (c *Case) spot(units, permille int) int {
	share := units * permille / 1000
	if c.SpotUnits != Unlimited {
		share = min(share, c.SpotUnits)
	}
	return share
}

// hours is the length of the span.
func (e *Epoch) hours() int64 { return int64(e.Span.To/domain.Hour - e.Span.From/domain.Hour) }
