package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// spendKey identifies a spend commitment: an amount per hour over a term, which pays for the use of
// one provider's machines at committed prices, in any pool that has such a price. Suppliers call it
// a savings plan or a committed use discount.
type spendKey struct {
	provider, name string
	months         int
	paid           payment
}

// payment is how much of a spend commitment is paid upfront.
type payment int

const (
	hourly payment = iota
	partlyUpfront
	allUpfront
)

// paymentOf is that of prices.
func paymentOf(upfront, byHour domain.Decimal) payment {
	switch {
	case upfront.IsZero():
		return hourly
	case byHour.IsZero():
		return allUpfront
	}
	return partlyUpfront
}

func (k spendKey) String() string {
	term := "1 month"
	if k.months != 1 {
		term = fmt.Sprintf("%d months", k.months)
	}
	return fmt.Sprintf("%s %s, %s%s", k.provider, k.name, term, [...]string{
		hourly: "", partlyUpfront: ", partly paid upfront", allUpfront: ", paid upfront",
	}[k.paid])
}

func (k spendKey) compare(o spendKey) int {
	return cmp.Or(cmp.Compare(k.provider, o.provider), cmp.Compare(k.name, o.name), cmp.Compare(k.months, o.months),
		cmp.Compare(k.paid, o.paid))
}

// keyOf is the spend commitment that an offer is a price of. One without a name is on its own.
func keyOf(o *domain.OfferQuoted) spendKey {
	return spendKey{o.Market.Provider, cmp.Or(o.Spend, o.Offer), int(o.TermMonths), paymentOf(o.Upfront, o.Hourly)}
}

// committedRate is the price at which an hour of a machine uses up a spend commitment: what is paid by the
// hour and, spread over the term, upfront.
func committedRate(o *domain.OfferQuoted) domain.Decimal {
	if o.Upfront.IsZero() || o.TermMonths == 0 {
		return o.Hourly
	}
	return o.Hourly.Add(o.Upfront.DivRound(decimal.NewFromInt(int64(o.TermMonths)*domain.MonthHours), 9))
}

// spend is a spend commitment and the pools whose use on demand it can pay for.
type spend struct {
	spendKey
	pools  []*candidate // at least one
	prices []*domain.OfferQuoted
	held   []*Held
	// names are the pools' names in an instance. There the use of a pool counts for one spend
	// commitment. So a pool that several pay for is stated once for each: demand may be served in any
	// of them, and each has its own committed price. The first has the pool's own name.
	names []string
}

// alone reports whether a spend commitment pays for one pool and nothing is held of it. It is then
// the same as a discount-only reservation, which is simpler to plan: amounts are whole machines.
func (s *spend) alone() bool { return len(s.pools) == 1 && len(s.held) == 0 }

// spends are the spend commitments of pools, in order.
func (c *composer) spends(pools []*candidate) []spend {
	of, out := map[spendKey]*spend{}, []spend{}
	for _, k := range pools {
		if k.left != "" {
			continue
		}
		for _, o := range k.shelf.spends {
			key := keyOf(o)
			if c.q.SpendsApart {
				out = append(out, spend{spendKey: key, pools: []*candidate{k}, prices: []*domain.OfferQuoted{o}})
				continue
			}
			s := of[key]
			if s == nil {
				s = &spend{spendKey: key}
				of[key] = s
			}
			s.pools, s.prices = append(s.pools, k), append(s.prices, o)
		}
	}
	for i := range c.held {
		h := &c.held[i]
		if h.Kind != domain.OfferSpendCommitment || c.payable(h) != "" {
			continue
		}
		if s := of[h.spendKey()]; s != nil {
			s.held = append(s.held, h)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(of), spendKey.compare) {
		out = append(out, *of[key])
	}
	return out
}

// spendKey is that of a held spend commitment. Its term is counted in whole months of an average
// length, because a supplier's year may be 365 days.
func (h *Held) spendKey() spendKey {
	days := int((h.Term.To - h.Term.From) / domain.Day)
	return spendKey{h.Provider, h.Spend, (days*12 + 182) / 365, paymentOf(h.Upfront.Amount, h.Hourly.Amount)}
}

// payable says why a held spend commitment cannot be planned, "" if it can.
func (c *composer) payable(h *Held) string {
	paid, currency := h.Hourly.Amount, cmp.Or(h.Hourly.Currency, h.Upfront.Currency)
	none := h.Upfront.Amount.IsZero()
	switch {
	case h.Spend == "":
		return "it does not say which spend commitment it is, so its committed prices are not known"
	case h.Term.To == 0:
		return "its term has no end"
	case !h.SpendPerHour.Valid || !h.SpendPerHour.Decimal.IsPositive():
		return "it commits no amount by the hour"
	case currency != c.a.Currency:
		return fmt.Sprintf("paid in %s, the plan is in %s", currency, c.a.Currency)
	case !none && !paid.IsZero() && h.Upfront.Currency != currency:
		return "paid in two currencies"
	case none && !paid.IsZero() && !paid.Equal(h.SpendPerHour.Decimal):
		return fmt.Sprintf("it pays %s an hour and commits %s, and nothing is paid upfront", paid, h.SpendPerHour.Decimal)
	}
	return ""
}

// countSpends says of every held spend commitment whether it pays for anything in the plan.
func (c *composer) countSpends() {
	known := map[*Held]spendKey{}
	for _, s := range c.spends(c.planned()) {
		for _, h := range s.held {
			known[h] = s.spendKey
		}
	}
	for i := range c.held {
		h := &c.held[i]
		if h.Kind != domain.OfferSpendCommitment {
			continue
		}
		key, ok := known[h]
		if ok {
			h.CountsFor, h.NotCounted = key.String(), ""
		} else if h.NotCounted = c.payable(h); h.NotCounted == "" {
			h.NotCounted = fmt.Sprintf("no pool of the plan has a committed price of %s", h.spendKey())
		}
	}
}

// apart says what becomes of spend commitments that are planned for each pool by itself.
func (c *composer) apart() (notes []string) {
	if slices.ContainsFunc(c.pools, func(k *candidate) bool { return k.left == "" && len(k.shelf.spends) > 0 }) {
		notes = append(notes, "a spend commitment pays for one pool here, and not over pools as in a plan")
	}
	for i := range c.held {
		if h := &c.held[i]; h.Kind == domain.OfferSpendCommitment {
			notes = append(notes, fmt.Sprintf("the held spend commitment %s is not counted here", h.Commitment))
		}
	}
	return notes
}

// offerSpend puts a price of a spend commitment on the shelf, or records why not.
func (c *composer) offerSpend(s *shelf, o *domain.OfferQuoted) {
	var why string
	switch {
	case o.MinUnits > 1 || o.MaxUnits > 0:
		why = "a spend commitment that bounds the number of machines"
	case !committedRate(o).IsPositive():
		why = "its committed price is not above 0"
	}
	t := term{o, c.starts(o)}
	if why = t.refused(why); why != "" {
		s.leave(why, o)
		return
	}
	at := slices.IndexFunc(s.spends, func(x *domain.OfferQuoted) bool { return keyOf(x) == keyOf(o) })
	if at < 0 {
		s.spends = append(s.spends, o)
		return
	}
	if committedRate(o).LessThan(committedRate(s.spends[at])) {
		s.spends[at], o = o, s.spends[at]
	}
	s.leave("a dearer "+string(o.Kind)+" price", o)
}

// keepSpends removes the spend commitments that cannot pay for use at the pool's on-demand price.
func (s *shelf) keepSpends() {
	s.spends = slices.DeleteFunc(s.spends, func(o *domain.OfferQuoted) bool {
		switch {
		case o.Market.Provider != s.onDemand.Market.Provider:
			s.leave("pays for use of another provider than the on-demand price", o)
		case !committedRate(o).LessThan(s.onDemand.Hourly):
			s.leave("no cheaper than on demand", o)
		default:
			return false
		}
		return true
	})
}

// terms are the offers of terms of a pool in a group: what its shelf has, and spend commitments
// that pay for no other pool of it.
func (g *group) terms(c *composer, k *candidate) []term {
	out := slices.Clone(k.shelf.terms)
	for i := range g.alone {
		if s := &g.alone[i]; s.pools[0] == k {
			out = append(out, term{s.prices[0], c.starts(s.prices[0])})
		}
	}
	return out
}

// pay finds the spend commitments that can pay for pools of the group.
func (g *group) pay(c *composer) {
	first := map[*candidate]bool{}
	for _, s := range c.spends(g.pools) {
		if s.alone() {
			g.alone = append(g.alone, s)
			continue
		}
		for _, k := range s.pools {
			name := k.name()
			if first[k] {
				name += " paid by " + s.String()
			}
			s.names, first[k] = append(s.names, name), true
		}
		g.spans = append(g.spans, s)
	}
}

// spent names the pools of an instance in which a pool's use is paid by further spend commitments.
func (g *group) spent(k *candidate) (names []string) {
	for i := range g.spans {
		s := &g.spans[i]
		if at := slices.Index(s.pools, k); at >= 0 && s.names[at] != k.name() {
			names = append(names, s.names[at])
		}
	}
	return names
}

// state adds a spend commitment of a group to an instance. One unit commits what a machine of
// the pool with the least committed price takes of it in an hour.
func (s *spend) state(c *composer, in *instance.Instance) {
	rates := map[string]domain.Decimal{}
	o := instance.Offer{
		ID: s.String(), Kind: domain.OfferSpendCommitment, Provider: s.provider, Spend: s.String(), Term: s.months, Rates: rates,
		Citation: s.prices[0].Citation,
	}
	var least domain.Decimal
	for i, p := range s.prices {
		rate := committedRate(p)
		if rates[s.names[i]] = rate; i == 0 || rate.LessThan(least) {
			if least, o.Upfront, o.Hourly = rate, p.Upfront, p.Hourly; s.paid != hourly {
				o.Commits = rate
			}
		}
		o.From, o.Generated = max(o.From, c.ready(p), p.ValidFrom), o.Generated || p.Generated
		if p.ValidTo != 0 && (o.To == 0 || p.ValidTo < o.To) {
			o.To = p.ValidTo
		}
	}
	if o.From <= c.span[0].From {
		o.From = 0
	}
	if o.To == 0 || o.From < o.To {
		in.Offers = append(in.Offers, o)
	}
	for _, h := range s.held {
		x := instance.Commitment{
			ID: h.Commitment, Kind: h.Kind, Spend: s.String(), Units: 1, Term: h.Term, Hourly: h.SpendPerHour.Decimal,
			NoticeBy: h.notice(), Rates: rates,
		}
		if s.paid != hourly {
			x.Upfront, x.Hourly, x.Commits = h.Upfront.Amount, h.Hourly.Amount, h.SpendPerHour.Decimal
		}
		in.Commitments = append(in.Commitments, x)
	}
}

// spending is the part of an answer that belongs to no pool: what is committed to spend, and what cold
// standbys cost.
func (c *composer) spending(x *solved, p *Plan) {
	if len(x.spans) == 0 && !c.q.Posture.cold() {
		return
	}
	r := p.region("")
	amounts := amountsOf(x, "")
	r.add(&amounts)
	r.Calendar = sumMonths(r.Calendar, partOf(x.answer.Parts, "").Calendar)
	for i := range x.answer.Purchases {
		b := &x.answer.Purchases[i]
		at := slices.IndexFunc(x.spans, func(s spend) bool { return s.String() == b.Offer })
		if at < 0 {
			continue
		}
		s := &x.spans[at]
		commits := committedRate(slices.MinFunc(s.prices, func(a, b *domain.OfferQuoted) int {
			return committedRate(a).Cmp(committedRate(b))
		})).Mul(decimal.NewFromInt(int64(b.Units)))
		y := Purchase{
			SpendPerHour: decimal.NewNullDecimal(commits),
			Provider:     s.provider, Offer: s.name, Kind: domain.OfferSpendCommitment, Units: b.Units, Term: b.Term, Upfront: b.Upfront,
			Hourly: b.Hourly, Cost: b.Cost, Citation: s.prices[0].Citation, Worth: b.Worth, Reason: b.Reason,
			Decision: x.later[b.Order], Regret: x.regrets[b.Order],
		}
		for i, k := range s.pools {
			y.Covers = append(y.Covers, k.name())
			y.Generated = y.Generated || s.prices[i].Generated
		}
		r.Purchases = append(r.Purchases, y)
	}
	slices.SortFunc(r.Purchases, comparePurchases)
}
