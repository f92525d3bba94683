package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// ContractMethod is the version of how contracts are weighed.
const ContractMethod = "contract/1"

// Contract is an offer on the table: a purchase of capacity or of a price that is
// signed once or not at all. Amounts, units and epochs are as those of an [Offer].
type Contract struct {
	Name     string `json:"name"`
	Provider string `json:"provider,omitempty"`
	// Pool is named, or it is the only one of a region and class.
	Pool   string `json:"pool,omitempty"`
	Region string `json:"region,omitempty"`
	Class  string `json:"class,omitempty"`
	// Kind is reserved or capacity_block; reserved if not said.
	Kind               domain.OfferKind `json:"kind,omitempty"`
	Term               int              `json:"term_epochs"`
	Upfront            domain.Decimal   `json:"upfront"`
	Hourly             domain.Decimal   `json:"hourly"`
	Currency           string           `json:"currency,omitempty"`
	GuaranteesCapacity bool             `json:"guarantees_capacity"`
	PerUnit            int              `json:"covers_per_unit,omitempty"`
	// From and To bound the day on which the term may begin. Without To it begins
	// with the first epoch that begins at From or later.
	From      domain.Instant `json:"from,omitempty"`
	To        domain.Instant `json:"to,omitempty"`
	LeadHours int            `json:"lead_time_hours,omitempty"`
	MinUnits  int            `json:"min_units,omitempty"`
	MaxUnits  int            `json:"max_units,omitempty"`
	Lot       int            `json:"lot,omitempty"`
	Tiers     []Tier         `json:"tiers,omitempty"`
	Ramp      []RampStep     `json:"ramp,omitempty"`
	// Renews: it goes on for a second term at the same hourly price unless notice
	// is given so many days before the end of the first. Both are weighed.
	Renews     bool   `json:"renews,omitempty"`
	NoticeDays int    `json:"notice_days,omitempty"`
	Citation   string `json:"citation,omitempty"`
}

// Appraisal says what a contract is worth beside what can be bought without it.
// It is about the pools that have to do with the contract's, and no others.
type Appraisal struct {
	Contract string   `json:"contract"`
	Pool     string   `json:"pool"`
	Pools    []string `json:"pools"`    // that have to do with one another
	Instance string   `json:"instance"` // SHA-256 of the instance without the contract
	Methods  []string `json:"methods"`
	Currency string   `json:"currency"`
	Decision Decision `json:"decision"`
	Verdict  string   `json:"verdict"` // in words
	// Worth is Without.Cost − With.Cost. What is proven is that the least costs
	// there are differ by AtLeast or more, and AtMost or less.
	Worth   domain.Decimal `json:"worth"`
	AtLeast domain.Decimal `json:"worth_at_least"`
	AtMost  domain.Decimal `json:"worth_at_most"`
	Units   int            `json:"units"` // that the plan takes of it
	Order   *Order         `json:"order,omitempty"`
	Renewed bool           `json:"renewed,omitempty"` // the plan goes on for the second term
	Without Course         `json:"without"`
	With    Course         `json:"with"`
	// Signed is what comes of signing although the plan takes none: for the
	// smallest order, as early as it can begin.
	Signed *Course `json:"signed,omitempty"`
	// Hourly is the price asked, of the tier that the plan takes where it takes one,
	// and BreakEven the highest, in steps of 0.00001, at which it is proven that some
	// of it is worth taking; nil: at no price. The prices of other tiers move with
	// it, by as much. From BreakEvenAtMost on it is proven that none is; nil:
	// at no price, because what is bought without it is not proven to the last cent.
	Hourly          domain.Decimal  `json:"hourly"`
	BreakEven       *domain.Decimal `json:"break_even_hourly,omitempty"`
	BreakEvenAtMost *domain.Decimal `json:"break_even_hourly_at_most,omitempty"`
	// BreakEvenUse is the share of its hours in which a unit must be used to cost no
	// more than on demand, and Use that of what is committed in the pool during the
	// term, in the course with it (or Signed).
	BreakEvenUse *domain.Decimal `json:"break_even_utilization,omitempty"`
	Use          *domain.Decimal `json:"utilization,omitempty"`
	Replaces     []Replaced      `json:"replaces"`
	Notes        []string        `json:"notes,omitempty"`
}

// Decision is what an appraisal comes to.
type Decision string

// The decisions. Open: the plan takes some of it, and what that saves is within
// what could not be proven.
const (
	Take  Decision = "take"
	Leave Decision = "leave"
	Open  Decision = "open"
)

// Course is what is to be expected without a contract or with it.
type Course struct {
	Units      int            `json:"units"` // of the contract
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Penalty    domain.Decimal `json:"shortage_penalty"`
	Nominal    domain.Decimal `json:"nominal_cost"`
	// Unused is the expected unit-hours of its pool that are committed and serve
	// nothing, and Stranded what those of all pools cost in the scenario of least
	// demand, nominal.
	Unused   domain.Decimal `json:"unused_unit_hours"`
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
}

// Replaced is an offer, or a commitment that renews, of which another number is
// bought with the contract than without it.
type Replaced struct {
	Offer      string `json:"offer,omitempty"`
	Commitment string `json:"commitment,omitempty"`
	Without    int    `json:"units_without"`
	With       int    `json:"units_with"`
}

// Appraise weighs a contract against the instance without it. It refuses one that
// breaks a rule with [Faults], whose paths are those of the contract.
func Appraise(ctx context.Context, in *Instance, c *Contract, lp linear.Solver) (*Appraisal, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	offers, err := c.offers(in)
	if err != nil {
		return nil, err
	}
	pool := offers[0].Pool
	in, pools, err := in.around(ctx, pool)
	if err != nil {
		return nil, err
	}
	without, err := Solve(ctx, in, lp)
	if err != nil {
		return nil, err
	}
	beside := *in
	beside.Offers = slices.Concat(in.Offers, offers)
	with, err := Solve(ctx, &beside, lp)
	if err != nil {
		return nil, err
	}
	out := &Appraisal{
		Contract: c.Name, Pool: pool, Pools: pools, Instance: without.Instance, Methods: append([]string{ContractMethod}, without.Methods...),
		Currency: in.Currency, Hourly: c.Hourly, Replaces: []Replaced{}, Decision: Leave,
		AtMost:  decimal.Max(decimal.Zero, without.Cost.Sub(with.LowerBound)),
		AtLeast: decimal.Max(decimal.Zero, without.LowerBound.Sub(with.Cost)),
	}
	ours := func(p *Purchase) bool {
		return slices.ContainsFunc(offers, func(o Offer) bool { return o.ID == p.Offer })
	}
	bound := with.LowerBound
	i := slices.IndexFunc(with.Purchases, func(p Purchase) bool { return ours(&p) })
	if i < 0 || without.Cost.LessThanOrEqual(with.Cost) { // what is bought without it can be bought with it
		with, i = without, -1
	}
	m, err := newLoads().compile(ctx, &beside, nil)
	if err != nil {
		return nil, err
	}
	out.Worth = without.Cost.Sub(with.Cost)
	out.Without, out.With = m.course(without, pool, 0), m.course(with, pool, 0)
	if i < 0 {
		out.With.LowerBound = bound
		out.With.Gap = share(out.With.Cost.Sub(bound), bound)
		if err := m.signed(ctx, out, in, c, offers, lp); err != nil {
			return nil, err
		}
	} else {
		p := &with.Purchases[i]
		out.Units, out.With.Units, out.Order, out.Renewed = p.Units, p.Units, &p.Order, p.Offer != offers[0].ID
		out.Decision = Open
		if out.AtLeast.IsPositive() {
			out.Decision = Take
		}
		x := m.contractChoice(p.Offer, p.Epoch, p.Units)
		if x != nil {
			out.Hourly = x.pays().Hourly
		}
		out.BreakEvenUse = m.breakEvenUse(x)
		out.Use = m.use(with, pool, p.Epoch, p.Epoch+termOf(offers, p.Offer))
	}
	out.Replaces = replaced(without, with, ours)
	b := pricing{m: m, offers: offers, asked: out.Hourly}
	if out.BreakEven, out.BreakEvenAtMost, err = b.breakEven(ctx, in, pool, lp); err != nil {
		return nil, err
	}
	if c.Renews {
		out.Notes = append(out.Notes, fmt.Sprintf("it renews: ending it after the first term, by notice of %d days, and going on for a second one are both weighed, and no third one", c.NoticeDays))
	}
	out.Verdict = out.words(c)
	return out, nil
}

func termOf(offers []Offer, id string) int {
	return offers[slices.IndexFunc(offers, func(o Offer) bool { return o.ID == id })].Term
}

func share(part, whole domain.Decimal) domain.Decimal {
	if !whole.IsPositive() {
		return decimal.Zero
	}
	return part.DivRound(whole, 12)
}

// offers states a contract as offers of an instance, those of a second term last.
// It is signed once, so that they exclude one another.
func (c *Contract) offers(in *Instance) ([]Offer, error) {
	pool, err := c.pool(in)
	if err != nil {
		return nil, err
	}
	kind := cmp.Or(c.Kind, domain.OfferReserved)
	if kind != domain.OfferReserved && kind != domain.OfferCapacityBlock {
		return nil, fault("/kind", nil, "%q is neither %s nor %s: write owned hardware and commitments to spend into an instance", clip(string(kind)), domain.OfferReserved, domain.OfferCapacityBlock)
	}
	if c.LeadHours < 0 || c.LeadHours > 1_000_000 {
		return nil, fault("/lead_time_hours", nil, "%d is not within 0 to 1000000", c.LeadHours)
	}
	if c.NoticeDays < 0 || c.NoticeDays > 3660 {
		return nil, fault("/notice_days", nil, "%d is not within 0 to 3660", c.NoticeDays)
	}
	spans := in.Spans()
	first := max(c.From, in.From+domain.Instant(c.LeadHours)*domain.Hour)
	s := slices.IndexFunc(spans, func(s domain.Interval) bool { return s.From >= first })
	if s < 0 || c.To != 0 && spans[s].From >= c.To {
		return nil, fault("/from", nil, "its term can begin with no epoch of the horizon, which is from %s to %s", day(spans[0].From), day(spans[len(spans)-1].To))
	}
	o := Offer{
		ID: c.Name, Provider: c.Provider, Kind: kind, Pool: pool, Term: c.Term, Upfront: c.Upfront, Hourly: c.Hourly, Currency: c.Currency,
		GuaranteesCapacity: c.GuaranteesCapacity, PerUnit: c.PerUnit, From: spans[s].From, To: c.To, LeadHours: c.LeadHours, MinUnits: c.MinUnits,
		MaxUnits: c.MaxUnits, Lot: c.Lot, Tiers: c.Tiers, Ramp: c.Ramp, Citation: c.Citation,
	}
	if o.To == 0 {
		o.To = o.From + domain.Hour
	}
	out := []Offer{o}
	ends := s + c.Term
	if c.Renews && ends < len(spans) && c.Term > 0 {
		if upfront := slices.ContainsFunc(c.Tiers, func(t Tier) bool { return !t.Upfront.IsZero() }); upfront || !c.Upfront.IsZero() {
			return nil, fault("/renews", nil, "it is paid upfront, and what renewing it costs upfront is not said: leave it out, and weigh the renewal as a contract of its own")
		}
		o.ID, o.Term = c.Name+", with a second term", 2*c.Term
		out = append(out, o)
	}
	once := len(out) > 1 || len(c.Tiers) > 0 || c.To != 0
	for i := range out {
		if once {
			out[i].Exclusive = "contract " + c.Name
		}
	}
	beside := *in
	beside.Offers = slices.Concat(in.Offers, out)
	var faults *Faults
	if err := beside.Validate(); errors.As(err, &faults) {
		mine := &Faults{More: faults.More}
		for _, f := range faults.List {
			for i := range out {
				at := fmt.Sprintf("/offers/%d", len(in.Offers)+i)
				if path, ok := strings.CutPrefix(f.Path, at); ok && !slices.ContainsFunc(mine.List, func(x Fault) bool { return x.Path == path && x.Detail == f.Detail }) {
					if path == "/id" {
						path = "/name"
					}
					mine.List = append(mine.List, Fault{Path: path, Detail: f.Detail})
				}
			}
		}
		if len(mine.List) == 0 {
			return nil, err
		}
		return nil, mine
	} else if err != nil {
		return nil, err
	}
	return out, nil
}

// pool finds the pool that a contract is for.
func (c *Contract) pool(in *Instance) (string, error) {
	if c.Pool != "" {
		if c.Region+c.Class != "" {
			return "", fault("/pool", nil, "name the pool, or its region and class, and not both")
		}
		if slices.ContainsFunc(in.Pools, func(p Pool) bool { return p.ID == c.Pool }) {
			return c.Pool, nil
		}
		return "", fault("/pool", nil, "there is no pool %q; %s", clip(c.Pool), poolsOf(in))
	}
	if c.Region == "" || c.Class == "" {
		return "", fault("", nil, "it names no pool: give pool, or region and class")
	}
	var found []string
	for i := range in.Pools {
		if p := &in.Pools[i]; p.Region == c.Region && p.Class == c.Class {
			found = append(found, p.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fault("/class", nil, "there is no pool of %q in %q; %s", clip(c.Class), clip(c.Region), poolsOf(in))
	case 1:
		return found[0], nil
	}
	slices.Sort(found)
	return "", fault("/class", nil, "%d pools are of %q in %q: give one as pool: %s", len(found), clip(c.Class), clip(c.Region), strings.Join(found[:min(len(found), 6)], ", "))
}

func poolsOf(in *Instance) string {
	var names []string
	for i := range in.Pools {
		names = append(names, in.Pools[i].ID)
	}
	slices.Sort(names)
	if n := len(names); n > 12 {
		names = append(names[:12], fmt.Sprintf("and %d more", n-12))
	}
	return "there are " + strings.Join(names, ", ")
}

// around is the part of an instance that has to do with a pool, and the pools in
// it. A posture may protect any demand, so that with one all is left in.
func (in *Instance) around(ctx context.Context, pool string) (*Instance, []string, error) {
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, nil, err
	}
	k := slices.IndexFunc(m.components, func(c component) bool {
		return slices.ContainsFunc(c.pools, func(p int) bool { return m.in.Pools[p].ID == pool })
	})
	if k < 0 {
		return nil, nil, fault("/pool", nil, "nothing is wanted from pool %q, so that nothing in it is worth buying", pool)
	}
	here := map[string]bool{}
	var pools []string
	for _, p := range m.components[k].pools {
		here[m.in.Pools[p].ID] = true
		pools = append(pools, m.in.Pools[p].ID)
	}
	slices.Sort(pools)
	if in.Posture != nil || len(pools) == len(in.Pools) {
		return in, pools, nil
	}
	out := *in
	rates := func(r map[string]domain.Decimal) bool {
		for id := range r {
			if here[id] {
				return true
			}
		}
		return false
	}
	quotas, demands, classes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	out.Pools = slices.DeleteFunc(slices.Clone(in.Pools), func(p Pool) bool { return !here[p.ID] })
	for i := range out.Pools {
		quotas[out.Pools[i].Quota], classes[out.Pools[i].Class] = true, true
	}
	out.Demands = slices.DeleteFunc(slices.Clone(in.Demands), func(d Demand) bool { return !here[d.Pool] })
	for i := range out.Demands {
		demands[out.Demands[i].ID] = true
	}
	out.Offers = slices.DeleteFunc(slices.Clone(in.Offers), func(o Offer) bool { return !here[o.Pool] && !rates(o.Rates) })
	out.Commitments = slices.DeleteFunc(slices.Clone(in.Commitments), func(c Commitment) bool { return !here[c.Pool] && !rates(c.Rates) })
	out.Quotas = slices.DeleteFunc(slices.Clone(in.Quotas), func(q Quota) bool { return !quotas[q.ID] })
	out.Substitutes = nil
	for _, s := range in.Substitutes {
		if named := len(s.Demands) > 0; named {
			s.Demands = slices.DeleteFunc(slices.Clone(s.Demands), func(id string) bool { return !demands[id] })
			if len(s.Demands) == 0 {
				continue
			}
		}
		if classes[s.For] && classes[s.Class] {
			out.Substitutes = append(out.Substitutes, s)
		}
	}
	out.Scenarios = slices.Clone(in.Scenarios)
	for i := range out.Scenarios {
		s := &out.Scenarios[i]
		s.Factors, s.Hourly, s.Spot = kept(s.Factors, demands), kept(s.Hourly, demands), kept(s.Spot, here)
	}
	return &out, pools, nil
}

func kept[V any](all map[string]V, names map[string]bool) map[string]V {
	var out map[string]V
	for name, v := range all {
		if names[name] {
			if out == nil {
				out = map[string]V{}
			}
			out[name] = v
		}
	}
	return out
}

// course sums an answer up.
func (m *model) course(a *Answer, pool string, units int) Course {
	out := Course{Units: units, Cost: a.Cost, LowerBound: a.LowerBound, Gap: a.Gap, Penalty: a.Penalty, Nominal: a.Nominal, Stranded: a.Stranded}
	_, out.Unused = m.committedUse(a, pool, 0, m.cal.n)
	return out
}

// committedUse is the expected unit-hours that are committed in a pool in epochs
// [from, to) and used, and those that are not.
func (m *model) committedUse(a *Answer, pool string, from, to int) (used, unused domain.Decimal) {
	weight := map[string]int{}
	for _, s := range a.Scenarios {
		weight[s.Scenario] = s.Weight
	}
	for _, r := range a.Recourse {
		if r.Epoch < from || r.Epoch >= to {
			continue
		}
		for _, p := range r.Pools {
			if p.Pool != pool {
				continue
			}
			// What an answer says of unit-hours is written by this package.
			n := func(text string) domain.Decimal {
				return decimal.RequireFromString(text).Mul(whole(weight[r.Scenario]))
			}
			used = used.Add(n(p.Guaranteed)).Add(n(p.PriceOnly))
			unused = unused.Add(n(p.UnusedCommitted))
		}
	}
	return used.DivRound(whole(m.weight), 6), unused.DivRound(whole(m.weight), 6)
}

func (m *model) use(a *Answer, pool string, from, to int) *domain.Decimal {
	used, unused := m.committedUse(a, pool, from, to)
	all := used.Add(unused)
	if !all.IsPositive() {
		return nil
	}
	x := used.DivRound(all, 6)
	return &x
}

// contractChoice is what an order of an offer from an epoch on is.
func (m *model) contractChoice(offer string, epoch, units int) *choice {
	for i := range m.choices {
		x := &m.choices[i]
		n := units / x.order.Units
		if x.order.Offer == offer && x.order.Epoch == epoch && n >= x.least && (x.max == procurement.Unlimited || n <= x.max) {
			return x
		}
	}
	return nil
}

// pays is the tier of an offer whose price a choice pays.
func (x *choice) pays() Tier {
	for _, t := range x.offer.Tiers {
		if t.Units == x.tier {
			return t
		}
	}
	return Tier{Upfront: x.offer.Upfront, Hourly: x.offer.Hourly}
}

// breakEvenUse is what a choice costs over what its hours cost on demand.
func (m *model) breakEvenUse(x *choice) *domain.Decimal {
	if x == nil {
		return nil
	}
	sum := decimal.Zero
	for _, v := range x.covers {
		if m.onDemand[v.Pool] == nil {
			return nil
		}
		for e := v.From; e < v.To; e++ {
			sum = sum.Add(m.onDemand[v.Pool][e].Mul(m.cal.middle[e]).Mul(whole(int64(v.Units) * m.cal.hoursIn(e, e+1))))
		}
	}
	if !sum.IsPositive() {
		return nil
	}
	use := decimal.New(int64(x.cost), -m.digits).DivRound(sum, 6)
	return &use
}

// signed finds what comes of the smallest order that the plan would not make: it is
// held, at its price, and the rest is solved around it.
func (m *model) signed(ctx context.Context, out *Appraisal, in *Instance, c *Contract, offers []Offer, lp linear.Solver) error {
	o := &offers[0]
	var x *choice
	for i := range m.choices {
		if y := &m.choices[i]; y.order.Offer == o.ID && (x == nil || y.order.Epoch < x.order.Epoch || y.order.Epoch == x.order.Epoch && y.least < x.least) {
			x = y
		}
	}
	if x == nil {
		return nil
	}
	n := max(1, x.least)
	units, perUnit := n*x.order.Units, max(1, o.PerUnit)
	held := *in
	held.Commitments = slices.Clone(in.Commitments)
	spans := in.epochs(x.order.Epoch + o.Term)
	upfront, hourly := x.upfront.Mul(whole(n)), x.hourly.DivRound(whole(x.order.Units*perUnit), digits)
	for i, r := range o.ramp(x.order.Epoch) {
		held.Commitments = append(held.Commitments, Commitment{
			ID: fmt.Sprintf("%s, signed, part %d", c.Name, i+1), Kind: o.Kind, Pool: o.Pool, Units: units * perUnit * r.permille / 1000,
			Term: domain.Interval{From: spans[r.from].From, To: spans[r.to-1].To}, Upfront: upfront, Hourly: hourly, GuaranteesCapacity: o.GuaranteesCapacity,
		})
		upfront = decimal.Zero
	}
	ans, err := Solve(ctx, &held, lp)
	if err != nil {
		return err
	}
	signed := m.course(ans, o.Pool, units)
	// What is held is owed within the horizon; an order is credited with what it is
	// worth beyond.
	owed := ans.Committed.Sub(m.owed.RoundBank(m.digits))
	instead := decimal.New(int64(x.cost), -m.digits).Mul(whole(n)).Sub(owed)
	signed.Cost, signed.LowerBound = signed.Cost.Add(instead), signed.LowerBound.Add(instead)
	signed.Gap = share(signed.Cost.Sub(signed.LowerBound), signed.LowerBound)
	out.Signed = &signed
	out.BreakEvenUse = m.breakEvenUse(x)
	out.Use = m.use(ans, o.Pool, x.order.Epoch, x.order.Epoch+o.Term)
	return nil
}

// replaced compares what else is bought.
func replaced(without, with *Answer, ours func(*Purchase) bool) []Replaced {
	out := []Replaced{}
	add := func(a *Answer, to func(*Replaced) *int) {
		for i := range a.Purchases {
			p := &a.Purchases[i]
			if ours(p) {
				continue
			}
			k := slices.IndexFunc(out, func(r Replaced) bool { return r.Offer == p.Offer && r.Commitment == p.Commitment })
			if k < 0 {
				k = len(out)
				out = append(out, Replaced{Offer: p.Offer, Commitment: p.Commitment})
			}
			*to(&out[k]) += p.Units
		}
	}
	add(without, func(r *Replaced) *int { return &r.Without })
	add(with, func(r *Replaced) *int { return &r.With })
	out = slices.DeleteFunc(out, func(r Replaced) bool { return r.Without == r.With })
	slices.SortFunc(out, func(a, b Replaced) int {
		return cmp.Or(cmp.Compare(a.Offer, b.Offer), cmp.Compare(a.Commitment, b.Commitment))
	})
	return out
}

// step is how finely prices are told apart: a cent for a thousand hours.
const step = 5

// pricing solves the component of a contract at other hourly prices.
type pricing struct {
	m      *model
	offers []Offer
	asked  domain.Decimal // of the tier that is taken
}

// breakEven finds the highest price at which something of a contract is proven to
// be worth taking, and the lowest, as far as it is proven, at which nothing is. The
// least cost rises with the price, up to that without the contract.
func (b *pricing) breakEven(ctx context.Context, in *Instance, pool string, lp linear.Solver) (low, high *domain.Decimal, err error) {
	base, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, nil, err
	}
	cost, bound, err := base.component(ctx, pool, lp)
	if err != nil {
		return nil, nil, err
	}
	type result struct{ cost, bound domain.Decimal }
	known := map[int64]result{}
	at := func(k int64) (result, error) {
		if r, ok := known[k]; ok {
			return r, nil
		}
		if err := b.set(decimal.New(k, -step)); err != nil {
			return result{}, err
		}
		c, l, err := b.m.component(ctx, pool, lp)
		if err == nil {
			known[k] = result{c, l}
		}
		return result{c, l}, err
	}
	pays := func(k int64) (bool, error) {
		r, err := at(k)
		return err == nil && r.cost.LessThan(bound), err
	}
	might := func(k int64) (bool, error) {
		r, err := at(k)
		return err == nil && r.bound.LessThan(cost), err
	}
	asked := int64(1) // in steps
	if x := b.asked.Shift(step); x.LessThan(decimal.New(1, 12)) {
		asked = max(1, x.IntPart())
	}
	// last returns the highest price from a lower one, at which it holds, for which
	// something holds; false where it holds as far as anybody would look.
	last := func(holds func(int64) (bool, error), from, guess int64) (int64, bool, error) {
		first, to := from, max(guess, from+1)
		for width := max(1, to-from); ; width *= 2 {
			ok, err := holds(to)
			if err != nil {
				return 0, false, err
			}
			if !ok {
				break
			}
			if to > 64*max(asked, first) {
				return 0, false, nil
			}
			from, to = to, to+width
		}
		for to-from > 1 {
			k := from + (to-from)/2
			ok, err := holds(k)
			if err != nil {
				return 0, false, err
			}
			if ok {
				from = k
			} else {
				to = k
			}
		}
		return from, true, nil
	}
	ok, err := might(0)
	if err != nil || !ok {
		return nil, nil, err
	}
	most := int64(0)
	if ok, err = pays(0); err != nil {
		return nil, nil, err
	} else if ok {
		if most, ok, err = last(pays, 0, asked); err != nil {
			return nil, nil, err
		} else if !ok {
			return nil, nil, fmt.Errorf("contract %q: it pays at 64 times the price asked, so the instance cannot do without it: look at what a shortage costs there", b.offers[0].ID)
		}
		x := decimal.New(most, -step)
		low = &x
	}
	k, ok, err := last(might, most, most+1)
	if err != nil || !ok {
		return low, nil, err
	}
	x := decimal.New(k+1, -step)
	return low, &x, nil
}

// set gives a contract another hourly price, its tiers as much more or less.
func (b *pricing) set(price domain.Decimal) error {
	m, more := b.m, price.Sub(b.asked)
	for k := range m.components {
		c := &m.components[k]
		for j, i := range c.choices {
			x := &m.choices[i]
			if x.offer == nil || !slices.ContainsFunc(b.offers, func(o Offer) bool { return o.ID == x.offer.ID }) {
				continue
			}
			t := x.pays()
			fx, units := m.in.fx(x.offer.Currency), whole(x.order.Units)
			p := prices{t.Upfront.Mul(fx), decimal.Max(decimal.Zero, t.Hourly.Add(more)).Mul(fx)}
			x.hourly = p.hourly.Mul(units)
			var err error
			if x.cost, err = m.nano(m.worth(x.offer, p, x.order.Epoch).Mul(units)); err != nil {
				return fmt.Errorf("contract at %s an hour: %w", price, err)
			}
			if c.alone != nil {
				for at, choice := range c.offers {
					if choice == i {
						starts := c.alone.Offers[at[0]].Starts
						s := slices.IndexFunc(starts, func(s procurement.Start) bool { return s.Epoch == at[1] })
						starts[s].Cost = x.cost
					}
				}
				continue
			}
			y := &c.joint.Choices[j]
			y.Cost = x.cost
			for l, bound := range c.bounds {
				if y.Spent[l], err = m.spent(x, &m.bounds[bound]); err != nil {
					return fmt.Errorf("contract at %s an hour: %w", price, err)
				}
			}
		}
	}
	return nil
}

// component solves the component of a pool: what it costs at most and at least, in
// the currency, times the scenarios' weights, without what is held.
func (m *model) component(ctx context.Context, pool string, lp linear.Solver) (cost, bound domain.Decimal, err error) {
	for i := range m.components {
		c := &m.components[i]
		if !slices.ContainsFunc(c.pools, func(p int) bool { return m.in.Pools[p].ID == pool }) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return cost, bound, err
		}
		if c.alone != nil {
			s, err := procurement.Solve(c.alone)
			if err != nil {
				return cost, bound, err
			}
			return decimal.NewFromBigInt(s.Cost, -m.digits), decimal.NewFromBigInt(s.Bound, -m.digits), nil
		}
		s, err := joint.Solve(ctx, c.joint, lp)
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			return cost, bound, m.clash(clash)
		} else if err != nil {
			return cost, bound, err
		}
		return decimal.NewFromBigInt(s.Cost, -m.digits), decimal.NewFromBigInt(s.Bound, -m.digits), nil
	}
	return cost, bound, fmt.Errorf("no component has pool %q", pool)
}

// words says what an appraisal comes to.
func (a *Appraisal) words(c *Contract) string {
	var b strings.Builder
	money := func(d domain.Decimal) string { return d.StringFixed(2) + " " + a.Currency }
	switch a.Decision {
	case Take:
		fmt.Fprintf(&b, "take %d units: with them everything costs %s less, and it is proven to be at least %s", a.Units, money(a.Worth), money(a.AtLeast))
	case Open:
		fmt.Fprintf(&b, "%d units save %s, which is less than what could not be proven: they are worth between nothing and %s", a.Units, money(a.Worth), money(a.AtMost))
	default:
		b.WriteString("leave it: the plan takes none of it at the price asked")
		if a.AtMost.Round(2).IsPositive() {
			fmt.Fprintf(&b, ", and it is proven that it would save %s at most", money(a.AtMost))
		}
		if a.Signed != nil {
			fmt.Fprintf(&b, "; signed all the same, for %d units, everything costs %s more", a.Signed.Units, money(a.Signed.Cost.Sub(a.Without.Cost)))
		}
	}
	unit := cmp.Or(c.Currency, a.Currency)
	switch {
	case a.BreakEven != nil:
		fmt.Fprintf(&b, "; it pays at up to %s %s an hour, and %s are asked", a.BreakEven, unit, a.Hourly)
		if a.Units > 0 && len(c.Tiers) > 0 {
			b.WriteString(" for an order of this size")
		}
	case a.AtMost.IsPositive() || a.BreakEvenAtMost != nil:
		b.WriteString("; that it pays is proven at no price")
	default:
		b.WriteString("; it would not pay at any hourly price")
	}
	return b.String()
}
