// Package baseline holds simple purchasing rules that a plan is compared with. Each rule is stated
// exactly, so that anyone can follow it.
//
// A rule sees the demand observed before the horizon and what is for sale, with the prices and
// holdings of the pool. It never sees the demand or the scenarios of the horizon, so they do not
// affect the baseline. [Baseline.Evaluate] computes what a baseline costs.
//
// A rule weighs the cost of a start against what it saves within the horizon. A pool must therefore
// have pro-rata prices, with each start at the share of its cost that falls within the horizon.
// Otherwise a term that extends beyond it would compare its full cost with a truncated saving. For
// the cost of a baseline under another end-of-horizon rule, evaluate it on the pool priced by that
// rule.
//
// Rules that buy take offers as they are sold: from the first epoch in which one can begin, and
// again whenever the term is over, if the offer can begin there, else from the next epoch in which
// it can. Least orders are not part of a pool and are ignored.
package baseline

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// Rule is how a baseline is chosen.
type Rule string

const (
	// BuyNothing decides nothing: nothing is bought, and existing commitments expire.
	BuyNothing Rule = "buy_nothing"
	// OnDemand serves everything on demand up to the quota, as if nothing were held, bought or run
	// on spot.
	OnDemand Rule = "on_demand"
	// Lookback buys the one commitment, of one offer, that would have saved most over the last
	// days. This is the rule of the cloud providers' own recommendations. AWS takes the on-demand
	// usage of a period and simulates quantities to find the one that saves most (Cost Explorer
	// API, GetReservationPurchaseRecommendation, LookbackPeriodInDays SEVEN_DAYS, THIRTY_DAYS or
	// SIXTY_DAYS). Azure simulates the total cost for each term and lookback of 7, 30 or 60 days
	// and highlights the commitment with the greatest savings (learn.microsoft.com, "Choose an
	// Azure saving plan commitment amount").
	//
	// The on-demand usage of an hour is its units less those held at the start and less what spot
	// may carry, if spot is cheaper. A unit of commitment costs the average hourly cost of a
	// purchase over its term. It saves the average on-demand price over the same epochs in each
	// hour in which it would have been used. Of equal savings the fewer units are taken. Of offers
	// that save equally the one with the shorter term is taken, then the smaller id, then the
	// smaller index.
	Lookback Rule = "lookback"
	// Ladder buys what Lookback would, in equal parts with staggered starts over a term, so that a
	// part expires and can be reconsidered at regular intervals. Units that do not divide evenly go
	// to the first parts.
	Ladder Rule = "ladder"
	// Peak reserves the highest demand of the last days in every epoch of the horizon, in addition
	// to what is held, as early as possible. It uses guaranteed offers if there are any, else
	// discount-only commitments: the cheapest per hour first, then the shorter term, the smaller id
	// and the smaller index.
	Peak Rule = "peak"
)

// Baseline is what a rule decides.
type Baseline struct {
	Rule      Rule
	Days      int // length of the lookback; 0: none
	Hours     int // observed in them
	Offer     int // index of the one offer that it buys; -1: none, or several
	Units     int // target
	Parts     int // of Ladder
	Purchases []procurement.Purchase
}

// Name identifies a baseline.
func (c *Baseline) Name() string {
	if c.Days == 0 {
		return string(c.Rule)
	}
	return fmt.Sprintf("%s_%dd", c.Rule, c.Days)
}

// Evaluate computes the cost of a baseline for a pool. The pool may differ from the one the rule
// saw, as long as it sells the same.
func (c *Baseline) Evaluate(p *procurement.Pool) (*procurement.Evaluation, error) {
	if c.Rule == OnDemand {
		p = bare(p)
	}
	ev, err := procurement.Evaluate(p, c.Purchases)
	if err != nil {
		return nil, fmt.Errorf("evaluate baseline %s: %w", c.Name(), err)
	}
	return ev, nil
}

// bare returns a pool without holdings and spot.
func bare(p *procurement.Pool) *procurement.Pool {
	q := *p
	q.Epochs = slices.Clone(p.Epochs)
	for m := range q.Epochs {
		e := &q.Epochs[m]
		e.Spot, e.HeldGuaranteed, e.HeldDiscountOnly = -1, 0, 0
	}
	return &q
}

// window returns the observed hours of the last days. past is units by the hour, ending right before
// the horizon; negative means not observed. Rules that look back buy nothing if no hour was observed.
func window(past []int, days int) []int {
	var hours []int
	for _, u := range past[max(0, len(past)-24*days):] {
		if u >= 0 {
			hours = append(hours, min(u, procurement.MaxUnits))
		}
	}
	return hours
}

// LookBack is the baseline of rule [Lookback]. It takes the best of all offers.
func LookBack(p *procurement.Pool, past []int, days int) Baseline {
	hours := window(past, days)
	c := Baseline{Rule: Lookback, Days: days, Hours: len(hours), Offer: -1}
	var most *big.Rat
	used := map[int][]int{} // descending, by the first epoch of an offer
	for i := range p.Offers {
		units, saving := best(p, i, hours, used)
		if units == 0 {
			continue
		}
		better := c.Offer < 0
		if !better {
			a, b := &p.Offers[i], &p.Offers[c.Offer]
			better = cmp.Or(saving.Cmp(most), cmp.Compare(b.Term, a.Term), cmp.Compare(b.ID, a.ID)) > 0
		}
		if better {
			c.Offer, c.Units, most = i, units, saving
		}
	}
	if c.Offer >= 0 {
		c.Purchases = again(p, c.Offer, p.Offers[c.Offer].Starts[0].Epoch, c.Units)
	}
	return c
}

// best returns the units of an offer, from its first start, that would have saved most over some
// hours, and that saving per hour.
//
// With n hours of on-demand usage v, a unit's cost C over a term of H hours, and D the on-demand
// cost of a unit over the same H hours, x units save
//
//	(D·Σ min(v, x) − n·C·x) / (n·H)
//
// per hour. This is concave in x: the k-th unit pays while it would have been used in more than
// n·C/D hours. So the maximum is the usage of the hour at that rank in descending order.
//
// used keeps the usage by start epoch for other offers.
func best(p *procurement.Pool, offer int, hours []int, used map[int][]int) (units int, saving *big.Rat) {
	o := &p.Offers[offer]
	if len(o.Starts) == 0 || len(hours) == 0 {
		return 0, nil
	}
	start := o.Starts[0]
	onDemand, length := new(big.Int), int64(0)
	for m := start.Epoch; m < end(p, o, start.Epoch); m++ {
		e := &p.Epochs[m]
		n := int64((e.Span.To - e.Span.From) / domain.Hour)
		length += n
		if e.OnDemand > 0 {
			onDemand.Add(onDemand, product(int64(e.OnDemand), n))
		}
	}
	if onDemand.Sign() == 0 {
		return 0, nil
	}
	usage := used[start.Epoch]
	if usage == nil {
		usage = make([]int, len(hours))
		first := &p.Epochs[start.Epoch]
		for i, u := range hours {
			usage[i] = max(0, onDemandUsage(first, u))
		}
		slices.Sort(usage)
		slices.Reverse(usage)
		used[start.Epoch] = usage
	}
	cost := product(int64(len(hours)), int64(start.Cost))
	enough := new(big.Int).Quo(cost, onDemand) // a unit pays if used in more hours than this
	if !enough.IsInt64() || enough.Int64() >= int64(len(usage)) {
		return 0, nil
	}
	units = usage[enough.Int64()]
	if start.Max != procurement.Unlimited {
		units = min(units, start.Max)
	}
	if units == 0 {
		return 0, nil
	}
	served := int64(0)
	for _, v := range usage {
		served += int64(min(v, units))
	}
	gain := new(big.Int).Mul(onDemand, big.NewInt(served))
	gain.Sub(gain, cost.Mul(cost, big.NewInt(int64(units))))
	return units, new(big.Rat).SetFrac(gain, product(int64(len(hours)), length))
}

// onDemandUsage is the part of an hour's units that would have run on demand, given what is held in
// an epoch.
func onDemandUsage(e *procurement.Epoch, units int) int {
	spot := 0
	if e.Spot >= 0 && e.Spot < e.OnDemand {
		spot = units * e.SpotPermille / 1000
	}
	return units - spot - e.HeldGuaranteed - e.HeldDiscountOnly
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

func end(p *procurement.Pool, o *procurement.Offer, from int) int {
	return from + min(o.Term, len(p.Epochs)-from)
}

// again buys units of an offer from the first epoch in which it can begin, not before from, and
// again whenever the term is over. A start sells at most its Max.
func again(p *procurement.Pool, offer, from, units int) (out []procurement.Purchase) {
	o := &p.Offers[offer]
	for _, s := range o.Starts {
		if s.Epoch < from {
			continue
		}
		n := units
		if s.Max != procurement.Unlimited {
			n = min(n, s.Max)
		}
		if n > 0 {
			out = append(out, procurement.Purchase{Offer: offer, Epoch: s.Epoch, Units: n})
		}
		from = end(p, o, s.Epoch)
	}
	return out
}

// Ladders is the baseline of rule [Ladder] in the given number of parts, at most one per epoch of
// the term.
func Ladders(p *procurement.Pool, past []int, days, parts int) Baseline {
	c := LookBack(p, past, days)
	c.Rule, c.Purchases = Ladder, nil
	if c.Offer < 0 {
		return c
	}
	o := &p.Offers[c.Offer]
	c.Parts = max(1, min(parts, o.Term, c.Units))
	bought := map[int]int{} // units by epoch
	for i := range c.Parts {
		units := c.Units / c.Parts
		if i < c.Units%c.Parts {
			units++
		}
		after := o.Term/c.Parts*i + o.Term%c.Parts*i/c.Parts
		for _, b := range again(p, c.Offer, o.Starts[0].Epoch+after, units) {
			bought[b.Epoch] += b.Units
		}
	}
	for _, s := range o.Starts {
		n := bought[s.Epoch]
		if s.Max != procurement.Unlimited {
			n = min(n, s.Max)
		}
		if n > 0 {
			c.Purchases = append(c.Purchases, procurement.Purchase{Offer: c.Offer, Epoch: s.Epoch, Units: n})
		}
	}
	return c
}

// PeakReserved is the baseline of rule [Peak].
func PeakReserved(p *procurement.Pool, past []int, days int) Baseline {
	hours := window(past, days)
	c := Baseline{Rule: Peak, Days: days, Hours: len(hours), Offer: -1}
	if len(hours) == 0 {
		return c
	}
	c.Units = slices.Max(hours)
	guaranteed := slices.ContainsFunc(p.Offers, func(o procurement.Offer) bool { return o.Guaranteed && len(o.Starts) > 0 })
	covered := make([]int, len(p.Epochs))
	for m := range p.Epochs {
		covered[m] = p.Epochs[m].HeldGuaranteed
		if !guaranteed {
			covered[m] += p.Epochs[m].HeldDiscountOnly
		}
	}
	for m := range p.Epochs {
		for _, s := range cheapest(p, m, guaranteed) {
			units := c.Units - covered[m]
			if s.most != procurement.Unlimited {
				units = min(units, s.most)
			}
			if units <= 0 {
				continue
			}
			c.Purchases = append(c.Purchases, procurement.Purchase{Offer: s.offer, Epoch: m, Units: units})
			for e := m; e < s.end; e++ {
				covered[e] += units
			}
		}
	}
	slices.SortFunc(c.Purchases, func(a, b procurement.Purchase) int {
		return cmp.Or(cmp.Compare(a.Offer, b.Offer), cmp.Compare(a.Epoch, b.Epoch))
	})
	return c
}

type start struct {
	offer, end, most int
	cost, hours      int64
}

// byHour compares the hourly costs of two starts.
func byHour(a, b start) int {
	if a.cost < 0 || b.cost < 0 {
		return big.NewRat(a.cost, a.hours).Cmp(big.NewRat(b.cost, b.hours))
	}
	high, low := bits.Mul64(uint64(a.cost), uint64(b.hours))
	other, rest := bits.Mul64(uint64(b.cost), uint64(a.hours))
	return cmp.Or(cmp.Compare(high, other), cmp.Compare(low, rest))
}

// cheapest returns what can begin in an epoch, sorted by hourly cost.
func cheapest(p *procurement.Pool, m int, guaranteed bool) (out []start) {
	for i := range p.Offers {
		o := &p.Offers[i]
		at, ok := slices.BinarySearchFunc(o.Starts, m, func(s procurement.Start, m int) int { return cmp.Compare(s.Epoch, m) })
		if !ok || o.Guaranteed != guaranteed {
			continue
		}
		to := end(p, o, m)
		length := max(1, int64((p.Epochs[to-1].Span.To-p.Epochs[m].Span.From)/domain.Hour))
		out = append(out, start{i, to, o.Starts[at].Max, int64(o.Starts[at].Cost), length})
	}
	slices.SortFunc(out, func(a, b start) int {
		if c := byHour(a, b); c != 0 {
			return c
		}
		x, y := &p.Offers[a.offer], &p.Offers[b.offer]
		return cmp.Or(cmp.Compare(x.Term, y.Term), cmp.Compare(x.ID, y.ID), cmp.Compare(a.offer, b.offer))
	})
	return out
}
