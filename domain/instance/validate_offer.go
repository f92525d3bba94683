package instance

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement/joint"
)

func (v *validator) offer(o *Offer, path string) {
	switch o.Kind {
	case domain.OfferReserved, domain.OfferCapacityBlock, domain.OfferOwned, domain.OfferSpendCommitment:
	case domain.OfferOnDemand, domain.OfferSpot:
		v.fault(path+"/kind", "%s is priced by its pool and cannot be bought in advance", o.Kind)
	default:
		v.fault(path+"/kind", "%q is none of reserved, capacity_block, owned, spend_commitment", clip(string(o.Kind)))
	}
	spend := o.Kind == domain.OfferSpendCommitment
	v.covers(path, spend, o.Pool, o.Spend, o.Rates, o.GuaranteesCapacity)
	v.commits(o.Commits, spend, path)
	v.check(o.Term >= 1 && o.Term <= maxTerm, path+"/term_epochs", "%d is not within 1 to %d", o.Term, maxTerm)
	v.check(v.in.Epoch != Months || o.Term <= 1200, path+"/term_epochs",
		"%d months: longer than the 1200 that a term may be", o.Term)
	v.amount(o.Upfront, path+"/upfront")
	v.amount(o.Hourly, path+"/hourly")
	v.check(o.Decline.Abs().LessThan(one), path+"/decline_per_epoch", "%s is not between -1 and 1", o.Decline)
	v.currency(o.Currency, path+"/currency")
	bounds := []struct {
		key     string
		n, most int
	}{{"covers_per_unit", o.PerUnit, 10_000}, {"lead_time_hours", o.LeadHours, 1_000_000},
		{"min_units", o.MinUnits, MaxUnits}, {"max_units", o.MaxUnits, math.MaxInt}, {"lot", o.Lot, 1_000_000}}
	for _, b := range bounds {
		v.check(b.n >= 0 && b.n <= b.most, path+"/"+b.key, "%d is not within 0 to %d", b.n, b.most)
	}
	v.check(o.To.IsZero() || o.From < o.To, path+"/to", "%s is not after %s, from which on a term may begin", o.To, o.From)
	lot := max(1, o.Lot)
	if o.MaxUnits > 0 {
		v.check(o.MaxUnits >= o.MinUnits, path+"/max_units",
			"nothing can be bought: at least %d units, and at most %d", o.MinUnits, o.MaxUnits)
		v.check(o.MaxUnits/lot*lot >= max(1, o.MinUnits), path+"/lot",
			"nothing can be bought: no multiple of %d is within %d to %d units", lot, max(1, o.MinUnits), o.MaxUnits)
	}
	for i, t := range o.Tiers {
		at := fmt.Sprintf("%s/tiers/%d", path, i)
		v.amount(t.Upfront, at+"/upfront")
		v.amount(t.Hourly, at+"/hourly")
		v.check(t.Units >= 1 && t.Units <= MaxUnits, at+"/units", "%d is not within 1 to %d", t.Units, MaxUnits)
		v.check(i == 0 || t.Units > o.Tiers[i-1].Units, at+"/units", "%d is not above the tier before", t.Units)
		v.check(o.MaxUnits == 0 || t.Units <= o.MaxUnits, at+"/units",
			"unreachable: an order has at most %d units", o.MaxUnits)
	}
	some := len(o.Ramp) == 0
	for i, r := range o.Ramp {
		at := fmt.Sprintf("%s/ramp/%d", path, i)
		v.check(r.Epoch >= 0 && r.Epoch < max(1, o.Term), at+"/epoch", "%d is not within the term, 0 to %d", r.Epoch, o.Term-1)
		v.check(i == 0 || r.Epoch > o.Ramp[i-1].Epoch, at+"/epoch", "%d is not after the step before", r.Epoch)
		v.check(r.Permille >= 0 && r.Permille <= 1000, at+"/permille", "%d is not within 0 to 1000", r.Permille)
		some = some || r.Permille > 0
		if n := lot * max(1, o.PerUnit); !spend && n*r.Permille%1000 != 0 {
			v.fault(at+"/permille",
				"%d thousandths of a lot of %d units are not whole: make the lot a multiple of %d", r.Permille, n,
				1000/gcd(1000, max(1, r.Permille)*max(1, o.PerUnit)))
		}
	}
	v.check(some, path+"/ramp", "it has no capacity at any time")
	if o.Exclusive != "" {
		v.id(o.Exclusive, path+"/exclusive")
	}
	if (o.Owned != nil) != (o.Kind == domain.OfferOwned) {
		v.fault(path+"/owned", "owned hardware must state its running costs, and other offers must not")
	}
	if w := o.Owned; w != nil {
		at := path + "/owned"
		v.check(o.GuaranteesCapacity, path+"/guarantees_capacity", "owned hardware is capacity: set it to true")
		v.check(len(o.Ramp) == 0, path+"/ramp", "owned hardware has no ramp: make later deliveries separate offers")
		v.amount(w.PowerKW, at+"/power_kw")
		if v.amount(w.PUE, at+"/pue") {
			v.check(w.PUE.GreaterThanOrEqual(one), at+"/pue",
				"%s is below 1: it is the facility's power over that of its machines", w.PUE)
		}
		v.amount(w.TariffKWh, at+"/tariff_kwh")
		v.amount(w.SpaceMonthly, at+"/space_monthly")
		v.amount(w.NetworkMonthly, at+"/network_monthly")
		v.amount(w.SupportMonthly, at+"/support_monthly")
		v.share(w.Salvage, at+"/salvage")
	}
}

// commits checks what an offer or a commitment commits by the hour.
func (v *validator) commits(amount domain.Decimal, spend bool, path string) {
	v.amount(amount, path+"/commits_hourly")
	v.check(spend || amount.IsZero(), path+"/commits_hourly", "it is for spend commitments only")
}

// covers checks the pools of an offer or a commitment.
func (v *validator) covers(path string, spend bool, pool, name string, rates map[string]domain.Decimal, guaranteed bool) {
	if !spend {
		p := v.pools[pool]
		if v.check(p != nil, path+"/pool", "there is no pool %q", clip(pool)) {
			v.check(guaranteed || p.OnDemand != nil, path+"/guarantees_capacity",
				"it is a discount only, and pool %q sells nothing on demand that it would be the price of", pool)
		}
		v.check(name == "" && len(rates) == 0, path, "spend and rates are for spend commitments only")
		return
	}
	v.id(name, path+"/spend")
	v.check(pool == "", path+"/pool", "a spend commitment spans pools: name them in rates")
	v.check(!guaranteed, path+"/guarantees_capacity", "a spend commitment does not guarantee capacity")
	v.check(len(rates) > 0, path+"/rates", "it must name at least one pool with its committed price")
	for _, id := range slices.Sorted(maps.Keys(rates)) {
		at := path + "/rates/" + escape(id)
		p := v.pools[id]
		if v.check(p != nil, at, "there is no pool %q", clip(id)) {
			v.check(p.OnDemand != nil, at, "pool %q sells nothing on demand", id)
		}
		if v.amount(rates[id], at) {
			v.check(rates[id].IsPositive(), at, "a committed price of 0 would use nothing of the commitment")
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (v *validator) commitment(c *Commitment, path string) {
	switch c.Kind {
	case domain.OfferReserved, domain.OfferCapacityBlock, domain.OfferOwned, domain.OfferSpendCommitment:
	default:
		v.fault(path+"/kind", "%q is none of reserved, capacity_block, owned, spend_commitment", clip(string(c.Kind)))
	}
	spend := c.Kind == domain.OfferSpendCommitment
	v.covers(path, spend, c.Pool, c.Spend, c.Rates, c.GuaranteesCapacity)
	v.commits(c.Commits, spend, path)
	v.check(c.Units >= 1 && c.Units <= MaxUnits && (!spend || c.Units == 1), path+"/units",
		"%d is not within 1 to %d, or not the 1 of a spend commitment", c.Units, MaxUnits)
	v.amount(c.Upfront, path+"/upfront")
	v.amount(c.Hourly, path+"/hourly")
	v.currency(c.Currency, path+"/currency")
	v.check(!c.Term.From.IsZero(), path+"/term/from", "the day on which it began is not given")
	v.check(c.Term.To.IsZero() || c.Term.From < c.Term.To, path+"/term/to", "%s is not after %s", c.Term.To, c.Term.From)
	if c.Renews {
		v.check(!c.Term.To.IsZero(), path+"/renews", "an open-ended term cannot renew")
		v.check(!c.NoticeBy.IsZero(), path+"/notice_by", "it renews, so the day by which notice must be given is required")
		v.check(c.Term.To.IsZero() || c.Term.To-c.Term.From >= domain.Day, path+"/renews",
			"a renewing term must last at least a day")
	}
	v.check(c.NoticeBy.IsZero() || c.Term.To.IsZero() || c.NoticeBy <= c.Term.To, path+"/notice_by",
		"%s is after the end of the term", c.NoticeBy)
}

// spends checks that spend commitments with one name have one price per pool, and that a pool's use
// counts for at most one name.
func (v *validator) spends() {
	type rate struct {
		spend, currency, path string
		amount                domain.Decimal
	}
	known := map[string]rate{}
	add := func(spend, currency string, rates map[string]domain.Decimal, path string) {
		for _, pool := range slices.Sorted(maps.Keys(rates)) {
			have := rate{spend, cmp.Or(currency, v.in.Currency), path + "/rates/" + escape(pool), rates[pool]}
			other, ok := known[pool]
			switch {
			case !ok:
				known[pool] = have
			case other.spend != spend:
				v.fault(have.path, "the use of pool %q counts for %q already (%s)", pool, clip(other.spend), other.path)
			case !other.amount.Equal(have.amount) || other.currency != have.currency:
				v.fault(have.path, "%s %s, and %s says %s %s: commitments of one name have one price", have.amount,
					have.currency, other.path, other.amount, other.currency)
			}
		}
	}
	for i := range v.in.Commitments {
		if c := &v.in.Commitments[i]; c.Kind == domain.OfferSpendCommitment {
			add(c.Spend, c.Currency, c.Rates, fmt.Sprintf("/commitments/%d", i))
		}
	}
	for i := range v.in.Offers {
		if o := &v.in.Offers[i]; o.Kind == domain.OfferSpendCommitment {
			add(o.Spend, o.Currency, o.Rates, fmt.Sprintf("/offers/%d", i))
		}
	}
}

func (v *validator) overflow() {
	seen := map[[2]string]int{}
	for i := range v.in.Overflow {
		s, path := &v.in.Overflow[i], fmt.Sprintf("/overflow/%d", i)
		v.check(v.regions[s.From] != nil, path+"/from", "there is no region %q", clip(s.From))
		v.check(v.regions[s.To] != nil, path+"/to", "there is no region %q", clip(s.To))
		v.check(s.From != s.To, path+"/to", "it is the region itself")
		if j, ok := seen[[2]string{s.From, s.To}]; ok {
			v.fault(path, "the overflow from %q to %q duplicates /overflow/%d", s.From, s.To, j)
		}
		seen[[2]string{s.From, s.To}] = i
		v.check(s.RoundTripMS >= 0, path+"/round_trip_ms", "%d is negative", s.RoundTripMS)
		v.amount(s.Hourly, path+"/hourly")
		v.ratio(s.Overhead.Add(one), path+"/overhead")
		v.check(!s.Overhead.IsNegative(), path+"/overhead", "%s is negative", s.Overhead)
	}
}

// ratio checks a number of pool units per unit of demand. Capacity is counted in fractions, which
// have to stay small.
func (v *validator) ratio(d domain.Decimal, path string) {
	if _, _, ok := fraction(d); !ok {
		v.fault(path, "%s is not above 0 and at most 1000, with four digits after the point and six in all", clip(d.String()))
	}
}

// fraction converts a decimal with at most four digits after the point to a fraction.
func fraction(d domain.Decimal) (num, den int, ok bool) {
	const scale = 10_000
	if !d.IsPositive() || d.GreaterThan(thousand) {
		return 0, 0, false
	}
	n := d.Shift(4)
	if !n.Equal(n.Truncate(0)) {
		return 0, 0, false
	}
	k := int(n.IntPart())
	g := gcd(k, scale)
	return k / g, scale / g, k/g <= joint.MaxRatio
}

func (v *validator) substitutes() {
	classes := map[string]bool{}
	for i := range v.in.Pools {
		classes[v.in.Pools[i].Class] = true
	}
	for i := range v.in.Substitutes {
		s, path := &v.in.Substitutes[i], fmt.Sprintf("/substitutes/%d", i)
		v.check(classes[s.For], path+"/for", "no pool is of class %q", clip(s.For))
		v.check(classes[s.Class], path+"/class", "no pool is of class %q", clip(s.Class))
		v.check(s.For != s.Class, path+"/class", "it is the class itself")
		v.ratio(s.Units, path+"/units")
		for j, id := range s.Demands {
			v.check(v.demands[id] != nil, fmt.Sprintf("%s/demands/%d", path, j), "there is no demand %q", clip(id))
		}
	}
	if len(v.faults.List) > 0 {
		return
	}
	// For a pair of classes and a demand there is one rule, and no cycle creates work. This is
	// checked for the rules that apply to all, and for each named demand.
	demands := map[string]bool{"": true}
	for _, s := range v.in.Substitutes {
		for _, id := range s.Demands {
			demands[id] = true
		}
	}
	for _, demand := range slices.Sorted(maps.Keys(demands)) {
		var holds []int
		pairs := map[[2]string]int{}
		for i, s := range v.in.Substitutes {
			if len(s.Demands) > 0 && !slices.Contains(s.Demands, demand) {
				continue
			}
			if j, ok := pairs[[2]string{s.For, s.Class}]; ok {
				v.fault(fmt.Sprintf("/substitutes/%d", i), "the rule for %q by %q duplicates /substitutes/%d",
					s.For, s.Class, j)
				return
			}
			pairs[[2]string{s.For, s.Class}] = i
			holds = append(holds, i)
		}
		if !v.gain(holds) {
			return
		}
	}
}

// gain looks for a cycle of substitutes that reduces the work, after Bellman and Ford, and reports
// false if it finds one.
func (v *validator) gain(holds []int) bool {
	if len(holds) == 0 {
		return true
	}
	list := v.in.Substitutes
	least, by := map[string]*big.Rat{}, map[string]int{} // units of the class for one unit at the start of the walk
	for _, i := range holds {
		least[list[i].For], least[list[i].Class] = big.NewRat(1, 1), big.NewRat(1, 1)
	}
	last := ""
	for range len(least) {
		last = ""
		for _, i := range holds {
			s := &list[i]
			if w := new(big.Rat).Mul(least[s.For], s.Units.Rat()); w.Cmp(least[s.Class]) < 0 {
				least[s.Class], by[s.Class], last = w, i, s.Class
			}
		}
		if last == "" {
			return true
		}
	}
	for range len(least) { // back into the cycle
		last = list[by[last]].For
	}
	names, product := []string{last}, decimal.NewFromInt(1)
	for at := last; ; {
		s := &list[by[at]]
		product = product.Mul(s.Units)
		at = s.For
		names = append(names, at)
		if at == last {
			break
		}
	}
	slices.Reverse(names)
	v.fault(fmt.Sprintf("/substitutes/%d", by[last]),
		"the substitutes %s form a cycle that turns one unit into %s",
		strings.Join(names, " → "), product)
	return false
}

func (v *validator) posture(p *Posture) {
	switch p.Kind {
	case ActiveActive:
		v.check(p.Standby == "" && p.Cold == nil, "/posture/standby", "an active-active fleet has no standby region")
	case ActivePassive:
		v.check(v.regions[p.Standby] != nil, "/posture/standby", "there is no region %q", clip(p.Standby))
	case MultiProvider:
		v.check(p.Standby == "" && p.Cold == nil, "/posture/standby", "the other providers take over, and no standby region")
		for i := range v.in.Pools {
			v.check(v.in.Pools[i].Provider != "", fmt.Sprintf("/pools/%d/provider", i),
				"it is missing: the posture is for the loss of a provider, so every pool has to name its own")
		}
	default:
		v.fault("/posture/kind", "%q is none of %q, %q and %q", clip(string(p.Kind)), ActiveActive, ActivePassive, MultiProvider)
	}
	v.share(p.Share, "/posture/share")
	if p.Cold != nil {
		v.share(*p.Cold, "/posture/cold_price_share")
	}
	for i, id := range p.Demands {
		v.check(v.demands[id] != nil, fmt.Sprintf("/posture/demands/%d", i), "there is no demand %q", clip(id))
	}
	if len(p.Demands) == 0 {
		v.check(slices.ContainsFunc(v.in.Demands, func(d Demand) bool {
			return domain.WorkloadClass(d.Class) == domain.ClassServing
		}),
			"/posture/demands", "none is named, and no demand is of class serving: nothing would be protected")
	}
}

func (v *validator) budget(b *Budget, path string) {
	v.check(b.Basis == Cash || b.Basis == Accrual, path+"/basis",
		"%q is neither %q nor %q: a budget has to say when money counts", clip(string(b.Basis)), Cash, Accrual)
	v.amount(b.Amount, path+"/amount")
	if v.spans == nil {
		return
	}
	boundary := func(t domain.Instant) bool {
		return t <= v.spans[0].From || t >= v.spans[len(v.spans)-1].To ||
			slices.ContainsFunc(v.spans, func(s domain.Interval) bool {
				return s.From == t
			})
	}
	horizon, interval := domain.Interval{From: v.spans[0].From, To: v.spans[len(v.spans)-1].To}, b.Interval
	if interval.To == 0 { // without end
		interval.To = horizon.To
	}
	within := interval.Intersect(horizon)
	v.check(!within.Empty(), path+"/interval", "it does not overlap the horizon")
	v.check(boundary(interval.From) && boundary(interval.To), path+"/interval", "it does not begin and end at epoch boundaries")
}
