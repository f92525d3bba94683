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

// ContractMethod is the version of the method that appraises contracts.
const ContractMethod = "contract/3"

// Appraisal compares a contract with what can be bought without it. It covers only the pools
// connected with the contract's pool.
type Appraisal struct {
	Contract string   `json:"contract"`
	Pool     string   `json:"pool"`
	Pools    []string `json:"pools"`    // connected with the contract's pool, including itself
	Instance string   `json:"instance"` // SHA-256 of the instance without the contract
	Methods  []string `json:"methods"`
	Currency string   `json:"currency"`
	Decision Decision `json:"decision"` // take, leave, or open: the saving is smaller than the proof gap
	Verdict  string   `json:"verdict"`  // in words
	// Worth is Without.Cost − With.Cost. It is proven that the difference between the two optimal
	// costs is at least AtLeast and at most AtMost.
	Worth   domain.Decimal `json:"worth"`
	AtLeast domain.Decimal `json:"worth_at_least"`
	AtMost  domain.Decimal `json:"worth_at_most"` // proven upper bound of its worth
	Units   int            `json:"units"`         // units of the contract that the plan takes
	Order   *Order         `json:"order,omitempty"`
	Renewed bool           `json:"renewed,omitempty"` // the plan renews for the second term
	Without Expectation    `json:"without"`
	With    Expectation    `json:"with"`
	// Signed says what happens if the contract is signed although the plan takes none of it: for
	// the smallest order at the earliest start.
	Signed *Expectation `json:"signed,omitempty"`
	// Hourly is the asked price, of the tier that the plan takes or else of the tier of the
	// smallest order. BreakEven is the highest price, in steps of 0.00001, at which taking some of
	// the contract is proven to pay; nil if there is no such price. Prices of other tiers shift by
	// the same amount. At prices of BreakEvenAtMost or more, it is proven that no order saves a
	// cent; nil if this is proven at no price because the cost without the contract is not proven
	// closely enough. If the contract still pays at the highest price tried, BreakEvenBeyond is
	// that price and the other two are nil.
	Hourly          domain.Decimal  `json:"hourly"`
	BreakEven       *domain.Decimal `json:"break_even_hourly,omitempty"`         // highest price at which it is proven to pay
	BreakEvenAtMost *domain.Decimal `json:"break_even_hourly_at_most,omitempty"` // saves less than a cent from here on
	BreakEvenBeyond *domain.Decimal `json:"break_even_hourly_beyond,omitempty"`  // instead of both: it still pays here
	// Upfront is the tier's asked upfront price; nil if there is none. If nothing is asked by the
	// hour, the upfront break-even is defined like the hourly one, in steps of a cent.
	Upfront                *domain.Decimal `json:"upfront,omitempty"`
	BreakEvenUpfront       *domain.Decimal `json:"break_even_upfront,omitempty"`
	BreakEvenUpfrontAtMost *domain.Decimal `json:"break_even_upfront_at_most,omitempty"` // likewise, if all is paid upfront
	// BreakEvenUse is the share of its hours in which a unit must be used to cost no more than on
	// demand. Use is the expected utilization of the committed capacity in the pool during the
	// term, with the contract (or with Signed), not counting failure spares.
	BreakEvenUse *domain.Decimal `json:"break_even_utilization,omitempty"`
	Use          *domain.Decimal `json:"utilization,omitempty"` // of the committed capacity
	Replaces     []Replaced      `json:"replaces"`
	Notes        []string        `json:"notes,omitempty"`
}

// Decision is the outcome of an appraisal.
type Decision string

// The decisions. Open means that the plan takes some of the contract, and the saving is smaller
// than the proof gap.
const (
	Take  Decision = "take"
	Leave Decision = "leave"
	Open  Decision = "open"
)

// Expectation is the expected result without or with a contract.
type Expectation struct {
	Units      int            `json:"units"` // of the contract
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Penalty    domain.Decimal `json:"shortage_penalty"`
	Nominal    domain.Decimal `json:"nominal_cost"`
	// Unused is the expected number of committed but unused unit-hours of its pool. Stranded is the
	// nominal cost of unused committed unit-hours in all pools in the scenario with the least
	// demand.
	Unused   domain.Decimal `json:"unused_unit_hours"`
	Stranded domain.Decimal `json:"stranded_at_low_demand"`
}

// Replaced is an offer, or a renewing commitment, whose bought quantity changes with the contract.
type Replaced struct {
	Offer      string `json:"offer,omitempty"`
	Commitment string `json:"commitment,omitempty"`
	Without    int    `json:"units_without"`
	With       int    `json:"units_with"`
}

// Appraise weighs a contract against the instance without it. A contract that breaks a rule is
// refused with [Faults] whose paths refer to the contract.
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
		Contract: c.Name, Pool: pool, Pools: pools, Instance: without.Instance,
		Methods:  append([]string{ContractMethod}, without.Methods...),
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
	if i < 0 || without.Cost.LessThanOrEqual(with.Cost) { // the purchases without it remain available with it
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
		out.Notes = append(out.Notes,
			fmt.Sprintf("it pays at %s %s an hour still, and no price was tried beyond, so that no break-even is "+
				"given: what is had without it is far dearer: look at what a shortage costs there", x,
				cmp.Or(c.Currency, in.Currency)))
	}
	if c.Renews {
		out.Notes = append(out.Notes,
			fmt.Sprintf("it renews: ending it after the first term, by notice of %d days, and going on for a "+
				"second one are both weighed, and no third one", c.NoticeDays))
	}
	out.Verdict = out.words(c)
	return out, nil
}

// asks records the asked prices.
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

// expectation summarizes an answer.
func (m *model) expectation(a *Answer, pool string, units int) Expectation {
	out := Expectation{
		Units: units, Cost: a.Cost, LowerBound: a.LowerBound, Gap: a.Gap, Penalty: a.Penalty, Nominal: a.Nominal,
		Stranded: a.Stranded,
	}
	_, _, out.Unused = m.committedUse(a, pool, 0, m.cal.n)
	return out
}

// committedUse returns the expected committed unit-hours of a pool in epochs [from, to), split into
// used, standing by for failures, and unused.
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
			// This package wrote the answer's unit-hours, so they parse.
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

// contractChoice finds the choice for an order of an offer that begins in an epoch.
func (m *model) contractChoice(offer string, epoch, units int) *choice {
	for i := range m.choices {
		x := m.choice(i)
		n := units / x.order.Units
		if x.order.Offer == offer && x.order.Epoch == epoch && n >= x.least && (x.max == procurement.Unlimited || n <= x.max) {
			return x
		}
	}
	return nil
}

// signed evaluates the smallest order that the plan does not make: the order is held at its price,
// and the rest is solved around it.
func (m *model) signed(ctx context.Context, out *Appraisal, in *Instance, c *Contract, offers []Offer, lp linear.Solver) error {
	o := &offers[0]
	var x *choice
	for i := range m.choices {
		if y := m.choice(i); y.order.Offer == o.ID &&
			(x == nil || y.order.Epoch < x.order.Epoch || y.order.Epoch == x.order.Epoch && y.least < x.least) {
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
			ID: fmt.Sprintf("%s, signed, part %d", c.Name, i+1), Kind: o.Kind, Pool: o.Pool,
			Units: units * perUnit * r.permille / 1000,
			Term:  domain.Interval{From: spans[r.from].From, To: spans[r.to-1].To}, Upfront: upfront, Hourly: hourly,
			GuaranteesCapacity: o.GuaranteesCapacity,
		})
		upfront = decimal.Zero
	}
	ans, err := Solve(ctx, &held, lp)
	if err != nil {
		return err
	}
	signed := m.expectation(ans, o.Pool, units)
	// Held commitments are owed within the horizon; an order is credited with its value beyond it.
	owed := ans.Committed.Sub(m.owed.RoundBank(m.digits))
	instead := decimal.New(int64(m.cost(x)), -m.digits).Mul(whole(n)).Sub(owed)
	signed.Cost, signed.LowerBound = signed.Cost.Add(instead), signed.LowerBound.Add(instead)
	signed.Gap = share(signed.Cost.Sub(signed.LowerBound), signed.LowerBound)
	out.Signed = &signed
	out.BreakEvenUse = m.breakEvenUse(x)
	out.asks(x.pays())
	out.Use = m.use(ans, o.Pool, x.order.Epoch, x.order.Epoch+o.Term)
	return nil
}

// replaced compares the other purchases.
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

// words summarizes an appraisal in a sentence.
func (a *Appraisal) words(c *Contract) string {
	var b strings.Builder
	money := func(d domain.Decimal) string { return d.StringFixed(2) + " " + a.Currency }
	switch a.Decision {
	case Take:
		fmt.Fprintf(&b, "take %d units: with them everything costs %s less, and it is proven to be at least %s",
			a.Units, money(a.Worth), money(a.AtLeast))
	case Open:
		fmt.Fprintf(&b, "%d units save %s, which is less than what could not be proven: they are worth between "+
			"nothing and %s", a.Units, money(a.Worth), money(a.AtMost))
	default:
		b.WriteString("leave it: the plan takes none of it at the price asked")
		if a.AtMost.Round(2).IsPositive() {
			fmt.Fprintf(&b, ", and it is proven that it would save %s at most", money(a.AtMost))
		}
		if a.Signed != nil {
			fmt.Fprintf(&b, "; signed all the same, for %d units, everything costs %s more", a.Signed.Units,
				money(a.Signed.Cost.Sub(a.Without.Cost)))
		}
	}
	unit := cmp.Or(c.Currency, a.Currency)
	size := ""
	if len(c.Tiers) > 0 {
		size = " for an order of this size"
	}
	switch {
	case a.Upfront != nil && a.Hourly.IsZero() && a.BreakEvenUpfront != nil:
		fmt.Fprintf(&b, "; it pays at up to %s %s upfront, and %s are asked%s, with nothing by the hour",
			a.BreakEvenUpfront, unit, a.Upfront, size)
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
