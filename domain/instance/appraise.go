package instance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
)

// ContractMethod is the version of how contracts are weighed.
const ContractMethod = "contract/3"

// Appraisal says what a contract is worth beside what can be bought without it.
// It is about the pools that have to do with the contract's, and no others.
type Appraisal struct {
	Contract string   `json:"contract"`
	Pool     string   `json:"pool"`
	Pools    []string `json:"pools"`    // that have to do with one another
	Instance string   `json:"instance"` // SHA-256 of the instance without the contract
	Methods  []string `json:"methods"`
	Currency string   `json:"currency"`
	Decision Decision `json:"decision"` // take, leave, or open: what it saves is within what could not be proven
	Verdict  string   `json:"verdict"`  // in words
	// Worth is Without.Cost − With.Cost. What is proven is that the least costs
	// there are differ by AtLeast or more, and AtMost or less.
	Worth   domain.Decimal `json:"worth"`
	AtLeast domain.Decimal `json:"worth_at_least"`
	AtMost  domain.Decimal `json:"worth_at_most"` // what is proven of its worth
	Units   int            `json:"units"`         // that the plan takes of it
	Order   *Order         `json:"order,omitempty"`
	Renewed bool           `json:"renewed,omitempty"` // the plan goes on for the second term
	Without Expectation    `json:"without"`
	With    Expectation    `json:"with"`
	// Signed is what comes of signing although the plan takes none: for the
	// smallest order, as early as it can begin.
	Signed *Expectation `json:"signed,omitempty"`
	// Hourly is the price asked, of the tier that the plan takes, or of that which the
	// smallest order pays, and BreakEven the highest, in steps of 0.00001, at which it is
	// proven that some of it is worth taking; nil: at no price. The prices of other tiers
	// move with it, by as much. From BreakEvenAtMost on it is proven that none saves a
	// cent; nil: at no price, because what is bought without it is not proven to that. Beyond
	// is set, and both are nil, where it pays at all prices up to there.
	Hourly          domain.Decimal  `json:"hourly"`
	BreakEven       *domain.Decimal `json:"break_even_hourly,omitempty"`         // the highest price at which it is proven to pay
	BreakEvenAtMost *domain.Decimal `json:"break_even_hourly_at_most,omitempty"` // from there on it is proven to save less than a cent
	BreakEvenBeyond *domain.Decimal `json:"break_even_hourly_beyond,omitempty"`  // instead of both: it pays at this price still, and none was tried beyond
	// Upfront is asked of that tier besides, nil: nothing. Where nothing is asked by the
	// hour it breaks even as Hourly does, in steps of a cent.
	Upfront                *domain.Decimal `json:"upfront,omitempty"`
	BreakEvenUpfront       *domain.Decimal `json:"break_even_upfront,omitempty"`
	BreakEvenUpfrontAtMost *domain.Decimal `json:"break_even_upfront_at_most,omitempty"` // likewise, where all is paid upfront
	// BreakEvenUse is the share of its hours in which a unit must be used to cost no
	// more than on demand, and Use that of what is committed in the pool during the
	// term, in what is expected with it (or Signed), without what stands by for failures.
	BreakEvenUse *domain.Decimal `json:"break_even_utilization,omitempty"`
	Use          *domain.Decimal `json:"utilization,omitempty"` // of what is committed in the pool during its term, without what stands by
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

// Expectation is what is to be expected without a contract or with it.
type Expectation struct {
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
		Currency: in.Currency, Replaces: []Replaced{}, Decision: Leave,
		AtMost:  decimal.Max(decimal.Zero, without.Cost.Sub(with.LowerBound)),
		AtLeast: decimal.Max(decimal.Zero, without.LowerBound.Sub(with.Cost)),
	}
	out.asks(Tier{Upfront: c.Upfront, Hourly: c.Hourly})
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
	out.Without, out.With = m.expectation(without, pool, 0), m.expectation(with, pool, 0)
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
			out.asks(x.pays())
		}
		out.BreakEvenUse = m.breakEvenUse(x)
		out.Use = m.use(with, pool, p.Epoch, p.Epoch+termOf(offers, p.Offer))
	}
	out.Replaces = replaced(without, with, ours)
	asked := Tier{Hourly: out.Hourly}
	if out.Upfront != nil {
		asked.Upfront = *out.Upfront
	}
	hourly, upfront, err := m.pricing(offers, asked).of(ctx, in, pool, lp)
	if err != nil {
		return nil, err
	}
	out.BreakEven, out.BreakEvenAtMost, out.BreakEvenBeyond = hourly.low, hourly.high, hourly.beyond
	out.BreakEvenUpfront, out.BreakEvenUpfrontAtMost = upfront.low, upfront.high
	if x := out.BreakEvenBeyond; x != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("it pays at %s %s an hour still, and no price was tried beyond, so that no break-even is given: what is had without it is far dearer: look at what a shortage costs there", x, cmp.Or(c.Currency, in.Currency)))
	}
	if c.Renews {
		out.Notes = append(out.Notes, fmt.Sprintf("it renews: ending it after the first term, by notice of %d days, and going on for a second one are both weighed, and no third one", c.NoticeDays))
	}
	out.Verdict = out.words(c)
	return out, nil
}

// asks notes the prices that are asked.
func (a *Appraisal) asks(t Tier) {
	a.Hourly, a.Upfront = t.Hourly, nil
	if t.Upfront.IsPositive() {
		a.Upfront = &t.Upfront
	}
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

// expectation sums an answer up.
func (m *model) expectation(a *Answer, pool string, units int) Expectation {
	out := Expectation{Units: units, Cost: a.Cost, LowerBound: a.LowerBound, Gap: a.Gap, Penalty: a.Penalty, Nominal: a.Nominal, Stranded: a.Stranded}
	_, _, out.Unused = m.committedUse(a, pool, 0, m.cal.n)
	return out
}

// committedUse is the expected unit-hours that are committed in a pool in epochs
// [from, to) and used, those that stand by for failures, and the others.
func (m *model) committedUse(a *Answer, pool string, from, to int) (used, standby, unused domain.Decimal) {
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
				return decimal.RequireFromString(cmp.Or(text, "0")).Mul(whole(weight[r.Scenario]))
			}
			committed := n(p.Guaranteed).Add(n(p.DiscountOnly))
			if all := committed.Add(n(p.Spot)).Add(n(p.OnDemand)); all.IsPositive() {
				by := committed.Mul(n(p.StandingBy)).DivRound(all, 12)
				standby, committed = standby.Add(by), committed.Sub(by)
			}
			used = used.Add(committed)
			unused = unused.Add(n(p.UnusedCommitted))
		}
	}
	return used.DivRound(whole(m.weight), 6), standby.DivRound(whole(m.weight), 6), unused.DivRound(whole(m.weight), 6)
}

func (m *model) use(a *Answer, pool string, from, to int) *domain.Decimal {
	used, standby, unused := m.committedUse(a, pool, from, to)
	all := used.Add(standby).Add(unused)
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
	signed := m.expectation(ans, o.Pool, units)
	// What is held is owed within the horizon; an order is credited with what it is
	// worth beyond.
	owed := ans.Committed.Sub(m.owed.RoundBank(m.digits))
	instead := decimal.New(int64(x.cost), -m.digits).Mul(whole(n)).Sub(owed)
	signed.Cost, signed.LowerBound = signed.Cost.Add(instead), signed.LowerBound.Add(instead)
	signed.Gap = share(signed.Cost.Sub(signed.LowerBound), signed.LowerBound)
	out.Signed = &signed
	out.BreakEvenUse = m.breakEvenUse(x)
	out.asks(x.pays())
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
	size := ""
	if len(c.Tiers) > 0 {
		size = " for an order of this size"
	}
	switch {
	case a.Upfront != nil && a.Hourly.IsZero() && a.BreakEvenUpfront != nil:
		fmt.Fprintf(&b, "; it pays at up to %s %s upfront, and %s are asked%s, with nothing by the hour", a.BreakEvenUpfront, unit, a.Upfront, size)
		if a.BreakEven != nil {
			fmt.Fprintf(&b, "; besides what is asked upfront it pays at up to %s %s an hour", a.BreakEven, unit)
		}
	case a.BreakEvenBeyond != nil:
		fmt.Fprintf(&b, "; it pays at %s %s an hour still, and no price was tried beyond", a.BreakEvenBeyond, unit)
	case a.BreakEven != nil:
		fmt.Fprintf(&b, "; it pays at up to %s %s an hour, and %s are asked%s", a.BreakEven, unit, a.Hourly, size)
	case a.AtMost.IsPositive() || a.BreakEvenAtMost != nil || a.BreakEvenUpfrontAtMost != nil:
		b.WriteString("; that it pays is proven at no price")
	default:
		b.WriteString("; it would not pay at any hourly price")
	}
	return b.String()
}
