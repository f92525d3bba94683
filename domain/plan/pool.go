package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/packing"
	"quartermaster/domain/procurement"
)

// candidate is a pool being planned.
type candidate struct {
	*Pool
	shelf                    *shelf
	fit                      *fit
	future                   *future
	held                     []holding
	guaranteed, discountOnly []int // machines held, by month
	owed                     domain.Decimal
	notes                    []string
	left, next               string // why it is not in the plan, "" if it is, and what to do
}

// refusal says why a pool cannot be planned, and what the user can do about it.
type refusal struct{ why, next string }

func (r *refusal) Error() string { return r.why }

// refuse records why a pool is not in the plan. An error that is not a refusal is about amounts:
// prices or demand too large to count.
func (k *candidate) refuse(why error) {
	k.left, k.next = why.Error(), "check the prices and the demand of the pool: one of them is larger than a plan can count"
	if r := (*refusal)(nil); errors.As(why, &r) {
		k.next = r.next
	}
}

// prepare gathers what is for sale to a pool and its demand.
func (c *composer) prepare(p *Pool) *candidate {
	k := &candidate{Pool: p, notes: []string{}}
	if err := c.fill(k); err != nil {
		k.refuse(err)
	}
	return k
}

func (c *composer) fill(k *candidate) (err error) {
	p := k.Pool
	if k.shelf, err = c.stock(p); err != nil {
		return err
	}
	h, err := observe(p, c.a, c.q.At)
	if err != nil {
		return err
	}
	if k.fit, err = perMachine(p, k.shelf, c.region(p.Region).Country); err != nil {
		return err
	}
	if c.a.Demand == Forecast {
		k.future, err = c.foresee(p, h, k.fit)
	} else {
		k.future, err = h.repeat(c.span, c.growth, k.fit)
	}
	if err != nil {
		return err
	}
	if p.Note != "" {
		k.notes = append(k.notes, p.Note)
	}
	k.notes = append(k.notes, h.notes...)
	if c.a.Demand == Forecast {
		k.notes = append(k.notes,
			fmt.Sprintf("demand is %d scenarios of a forecast by %s, equally likely, each of the same weeks of "+
				"past errors in all pools; beyond %d weeks its level grows as assumed",
				c.a.Scenarios, k.future.summary.Range.Candidate, forecast.MaxHorizon))
	} else {
		k.notes = append(k.notes, h.repeats...)
	}
	return c.spares(k)
}

// longLead is the lead time in hours, about a month, from which a plan mentions it.
const longLead = 720

// note adds the remarks that a reader of the pool's plan needs.
func (c *composer) note(k *candidate) {
	s := k.shelf
	note := func(text string, args ...any) { k.notes = append(k.notes, fmt.Sprintf(text, args...)) }
	switch {
	case len(s.terms) == 0 && len(s.left) == 0:
		note("no commitment is offered for it there")
	case len(s.terms) == 0:
		note("no commitment that could be considered is offered for it there")
	}
	if s.others > 0 {
		note("%d other on-demand suppliers are not used, so the bound is for %s alone", s.others, s.onDemand.Market.Provider)
	}
	if s.quota == nil {
		note("no quota set; on-demand is assumed unlimited")
	} else if s.quota.Shared {
		var with []string
		for _, other := range c.pools {
			if q := other.quota(); other != k && other.Region == k.Region && q != nil && q.Shared &&
				q.Provider == s.quota.Provider && !sharesQuota(k, other) {
				with = append(with, other.Kind)
			}
		}
		if len(with) > 0 {
			note("the on-demand quota of %s is for all models together, shared with %s, and another one bounds "+
				"one of them, too; each is planned as if it had all of its own", s.quota.Provider, listed(with))
		}
	}
	if n, latest := 0, ""; len(s.terms) > 0 {
		var last domain.Instant
		for i := range s.terms {
			t := &s.terms[i]
			if from := c.span[t.starts[0]].From; t.LeadTimeHours >= longLead && from > c.span[0].From {
				n++
				if from > last {
					last, latest = from, fmt.Sprintf("%s %s (%d days), from %s on", t.Market.Provider, t.Offer,
						t.LeadTimeHours/24, from.Time().Format("2006-01-02"))
				}
			}
		}
		if n > 0 {
			note("%d of %d commitments offered take a month or more to come and cannot be there when the horizon "+
				"begins; the last of them: %s", n, len(s.terms), latest)
		}
	}
	bound := 0
	for i := range k.Mix {
		if w := &k.Mix[i]; len(w.Countries)+len(w.Certifications)+len(w.Clusters)+len(w.ApartCluster) > 0 ||
			apartInClusters(w) {
			bound++
		}
	}
	if bound > 0 {
		note("the plan takes the %d workloads that residency, certifications or placement bind to be allowed here", bound)
	}
}

// apartInClusters reports whether some workload in ApartIn excludes w from whole clusters.
func apartInClusters(w *packing.Workload) bool {
	return slices.ContainsFunc(w.ApartIn, func(x packing.Apart) bool { return x.Cluster })
}

func (k *candidate) quota() *Quota {
	if k.left != "" {
		return nil
	}
	return k.shelf.quota
}

// problem states a pool for procurement.
func (c *composer) problem(k *candidate, salvage domain.Decimal) (*procurement.Pool, error) {
	s := k.shelf
	out := &procurement.Pool{ID: k.Region + "|" + k.Kind, Weights: slices.Repeat([]int{1}, len(k.future.cases))}
	one := decimal.NewFromInt(1)
	spotPermille := 0
	if s.spot != nil {
		spotPermille = int(k.SpotShare.Shift(3).IntPart())
	}
	quota := procurement.Unlimited
	if s.quota != nil {
		quota = int(min(s.quota.GPUs/uint64(s.gpus), maxUnits))
	}
	for m, span := range c.span {
		e := procurement.Epoch{
			Span: span, Spot: -1, SpotPermille: spotPermille, Quota: quota,
			HeldGuaranteed: k.guaranteed[m], HeldDiscountOnly: k.discountOnly[m],
		}
		if k.future.cases == nil {
			e.Demand = k.future.steps[m]
		}
		for i := range k.future.cases {
			e.Cases = append(e.Cases, procurement.Case{Demand: k.future.cases[i][m], SpotUnits: procurement.Unlimited})
		}
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
		}
		out.Epochs = append(out.Epochs, e)
	}
	for i := range s.terms {
		o := &s.terms[i]
		offer := procurement.Offer{
			ID: o.Market.Provider + "|" + o.Offer, Guaranteed: o.GuaranteesCapacity, Term: int(o.TermMonths),
		}
		bound := procurement.Unlimited
		if o.MaxUnits > 0 {
			bound = int(min(o.MaxUnits, procurement.MaxUnits))
		}
		for _, m := range o.starts {
			cost, err := nano(purchaseCost(o.OfferQuoted, m, len(c.span), c.all, c.discount, salvage))
			if err != nil {
				return nil, err
			}
			offer.Starts = append(offer.Starts, procurement.Start{Epoch: m, Cost: cost, Max: bound})
		}
		out.Offers = append(out.Offers, offer)
	}
	if n := len(k.future.cases); n > 1 {
		if err := out.Validate(); err != nil {
			return nil, &refusal{fmt.Sprintf("too much for %d scenarios together: %v", n, err), "ask for fewer scenarios"}
		}
	}
	return out, nil
}

// plan plans a pool. Its error wraps check.ErrRejected if the solver is at fault, and otherwise
// says what about the pool cannot be planned.
func (c *composer) plan(k *candidate) (*PoolPlan, error) {
	s := k.shelf
	out := &PoolPlan{
		Kind: k.Kind, Unit: k.Unit, SKU: s.onDemand.SKU, GPUsPerUnit: s.gpus, Notes: k.notes, Demand: k.future.summary,
		Binding: []Binding{}, ExcludedOffers: s.left, OnDemand: priceOf(s.onDemand), Sensitivity: []Sensitivity{},
	}
	if out.ExcludedOffers == nil {
		out.ExcludedOffers = []ExcludedOffer{}
	}
	if s.quota != nil {
		out.QuotaGPUs = &s.quota.GPUs
	}
	if s.spot != nil && k.SpotShare.IsPositive() {
		price := priceOf(s.spot)
		out.Spot = &price
	}
	least := make([]int, len(s.terms))
	for i := range s.terms {
		least[i] = s.terms[i].least()
	}
	// Purchases made at one salvage can be made at a higher one for less, so each answer is an
	// upper bound for the next.
	salvages := []domain.Decimal{decimal.Zero, c.a.Salvage, decimal.NewFromInt(1)}
	var known []procurement.Purchase
	for i, salvage := range salvages {
		if i != 1 && salvage.Equal(c.a.Salvage) {
			continue
		}
		problem, err := c.problem(k, salvage)
		if err != nil {
			return nil, err
		}
		answer, err := solve(problem, least, known)
		if err != nil {
			return nil, err
		}
		known = answer.Purchases
		bought := c.purchases(problem, s, known)
		if i != 1 {
			out.Sensitivity = append(out.Sensitivity, Sensitivity{
				Salvage: salvage, Cost: expected(problem, answer.Cost).Add(k.owed), Purchases: bought,
			})
			continue
		}
		out.Purchases, out.Solver, out.Certificate = bought, string(answer.Algorithm), answer.Certificate
		out.Held = k.owed
		out.Cost, out.LowerBound = expected(problem, answer.Cost).Add(k.owed), expected(problem, answer.Bound).Add(k.owed)
		out.Gap = gap(out.Cost, out.LowerBound)
		c.explain(out.Purchases, problem, s, answer)
		if err := c.baselines(out, problem, k, answer); err != nil {
			return nil, err
		}
		if err := c.compare(out, problem, k); err != nil {
			return nil, err
		}
		if err := c.account(out, problem, k, answer.Purchases, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// money converts nano-units to the currency.
func money(n *big.Int) domain.Decimal { return decimal.NewFromBigInt(n, -9) }

// purchases describes what is bought. A checked solution buys only at starts of the problem.
func (c *composer) purchases(p *procurement.Pool, s *shelf, bought []procurement.Purchase) []Purchase {
	out := []Purchase{}
	for _, b := range bought {
		o := s.terms[b.Offer]
		units := decimal.NewFromInt(int64(b.Units))
		from := c.all[b.Epoch].From
		starts := p.Offers[b.Offer].Starts
		i := slices.IndexFunc(starts, func(at procurement.Start) bool { return at.Epoch == b.Epoch })
		x := Purchase{
			Provider: o.Market.Provider, Offer: o.Offer, Kind: o.Kind, SKU: o.SKU, GPUModel: o.GPUModel,
			Units: b.Units, GPUs: b.Units * s.gpus,
			Term:    domain.Interval{From: from, To: c.all[b.Epoch+int(o.TermMonths)-1].To},
			Upfront: o.Upfront.Mul(units), Hourly: o.Hourly.Mul(units), Cost: decimal.New(int64(starts[i].Cost), -9).Mul(units),
			Guaranteed: o.GuaranteesCapacity, Generated: o.Generated, Citation: o.Citation,
		}
		if o.LeadTimeHours > 0 {
			x.OrderBy = from - domain.Instant(o.LeadTimeHours)*domain.Hour
		}
		out = append(out, x)
	}
	slices.SortFunc(out, comparePurchases)
	return out
}

func comparePurchases(x, y Purchase) int {
	return cmp.Or(cmp.Compare(x.Term.From, y.Term.From), cmp.Compare(x.Provider, y.Provider),
		cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Term.To, y.Term.To))
}
