// Package question verifies an answer against the question's document itself. The checker of package
// check proves a solution of the problem that the planner made from the document, so it cannot see
// an error of that translation. This package has a translation of its own, written from the text of
// schemas/instance/v1.schema.json, and imports neither the planner's nor the solvers' packages (a
// test of package check enforces it).
//
// From the two documents alone it recomputes, exactly or in decimals of 30 digits that are rounded
// as the schema says:
//
//   - whether each purchase is sold: window, lead time, lots, least and most order, tier, exclusive
//     names, notice of further terms; its dates, coverage, prices and cost;
//   - whether the posture is kept, region by region and epoch by epoch;
//   - the least cost of each hour in groups of one pool with one demand and plain offers;
//   - whether the stated recourse serves each demand from what there is (capacity held and bought,
//     quotas, spot, committed spend, routes), what it costs, and whether it keeps budgets and limits;
//   - what is held and a cold standby, all parts of the cost and their sum, the calendar, the costs
//     of scenarios, the worst tenth, and the cost at the end of the horizon.
//
// What the hours of other groups cost at least, and the lower bound, follow from the certificates of
// the answer. This package states each group's problem from its own reading, and has a [Prover] hold
// the certificate against it; package certificate is the one that uses the checker. So a certificate
// of another problem than the question's proves nothing.
//
// It does not verify: the digest of the instance; shadow prices, worths, reasons and notes; the best
// purchases under another salvage; baselines; stranded_at_low_demand.
package question

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// ErrRejected means that an answer does not follow from its question. The text after it names the
// constraint or the amount, and the epoch where there is one. A rejected answer MUST NOT be
// published.
var ErrRejected = errors.New("the answer does not follow from the question")

// Proven is what a certificate proves of a group: its purchases and serving cost Cost, and none cost
// less than Bound, both times the weights and in units of the answer's resolution. Exact is false
// where limits bind and Cost is only enough: then the stated cost may be above it.
type Proven struct {
	Cost, Bound *big.Int
	Exact       bool
}

// Prover holds a certificate against a problem. lots are those bought of each choice.
type Prover func(ctx context.Context, p *Problem, lots []int, c *Certificate) (Proven, error)

// Report is what was verified.
type Report struct {
	Cost, LowerBound domain.Decimal
	Groups           int // of pools
	Plain            int // of them, those whose hours this package served itself
	Waits            int // of them, those in which work may wait
}

// Check verifies the answer of a question. Its error wraps [ErrRejected] if the answer is wrong, and
// is the context's if that ends.
func Check(ctx context.Context, asked, answered []byte, prove Prover) (Report, error) {
	d, err := read(asked)
	if err != nil {
		return Report{}, err
	}
	a := &answer{}
	if err := json.Unmarshal(answered, a); err != nil {
		return Report{}, fmt.Errorf("read the answer: %w", err)
	}
	v := &verdict{a: a, prove: prove}
	err = v.all(ctx, d)
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("check the answer: %w", ctx.Err())
	} else if err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return v.report, nil
}

// verdict is an answer that is being verified.
type verdict struct {
	*reading
	a      *answer
	prove  Prover
	bought []int // lots by choice
	orders map[int]*choice
	report Report

	capacity, priced [][]int // guaranteed and discount-only units by pool and epoch, held and bought
	rows             [][]map[string]*poolHours
	// penalty and serving are, by scenario, what the recourse costs: discounted, between a least and
	// a most where the answer does not say which route or demand it was. nominal is serving by epoch
	// and scenario, not discounted.
	penalty, serving []interval
	nominal          [][]interval
	unserved         []domain.Decimal
}

// interval is an amount that is known between two others.
type interval struct{ least, most domain.Decimal }

func (i *interval) add(least, most domain.Decimal) {
	i.least, i.most = i.least.Add(least), i.most.Add(most)
}

func (i interval) times(n domain.Decimal) interval { return interval{i.least.Mul(n), i.most.Mul(n)} }

// holds reports whether an amount lies in it, give or take.
func (i interval) holds(v, give domain.Decimal) bool {
	return !v.LessThan(i.least.Sub(give)) && !v.GreaterThan(i.most.Add(give))
}

func (v *verdict) all(ctx context.Context, d *document) error {
	a := v.a
	if a.Format != "quartermaster.answer/1" || a.Currency != d.Currency {
		return fmt.Errorf("format %q and currency %q, of a question in %q", a.Format, a.Currency, d.Currency)
	}
	digits := int32(9)
	if len(a.Proof) > 0 {
		digits = a.Proof[0].Digits
	}
	if digits < 4 || digits > 9 {
		return fmt.Errorf("amounts are counted to %d digits, which are not within 4 to 9", digits)
	}
	var err error
	if v.reading, err = understand(d, digits); err != nil {
		return err
	}
	if err := v.buy(); err != nil {
		return err
	}
	v.cover()
	if err := v.kept(v.capacity); err != nil {
		return err
	}
	if err := v.table(); err != nil {
		return err
	}
	cost, bound := new(big.Int), new(big.Int)
	var failed error // of a certificate
	if len(a.Proof) != len(v.groups) {
		failed = fmt.Errorf("%d certificates for %d groups of pools", len(a.Proof), len(v.groups))
	}
	exact := true
	for i, g := range v.groups {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, spare, err := v.problem(g)
		if err != nil {
			return err
		}
		if err := v.recourse(g, p, spare); err != nil {
			return err
		}
		if p.waits() {
			v.report.Waits++
		}
		if failed != nil {
			continue // a constraint that is not kept says more than a certificate that fails
		}
		proven, err := v.group(ctx, g, p, &a.Proof[i])
		if err != nil {
			failed = fmt.Errorf("certificate/%d (pools %s): %w", i, short(a.Proof[i].Pools), err)
			continue
		}
		exact = exact && proven.Exact
		cost.Add(cost, proven.Cost)
		bound.Add(bound, proven.Bound)
	}
	if failed != nil {
		return cmp.Or(v.bounded(), v.calendar(), failed)
	}
	v.report.Groups = len(v.groups)
	if err := v.amounts(cost, bound, exact); err != nil {
		return err
	}
	v.report.Cost, v.report.LowerBound = a.Cost, a.LowerBound
	return nil
}

func short(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:4], ", "), len(names)-4)
	}
	return strings.Join(names, ", ")
}

// group verifies what the certificate of a group proves.
func (v *verdict) group(ctx context.Context, g *group, p *Problem, c *Certificate) (Proven, error) {
	stated, ok := new(big.Int).SetString(c.Cost.String(), 10)
	bound, fine := new(big.Int).SetString(c.Bound.String(), 10)
	switch {
	case !slices.Equal(p.Pools, c.Pools):
		return Proven{}, fmt.Errorf("the pools that have to do with one another are %s", short(p.Pools))
	case c.Digits != v.digits || c.Weight != v.weight:
		return Proven{}, fmt.Errorf("digits %d and weight %d, of %d and %d", c.Digits, c.Weight, v.digits, v.weight)
	case !ok || !fine:
		return Proven{}, errors.New("cost_units or bound_units is no integer")
	}
	lots := make([]int, len(g.choices))
	for j, i := range g.choices {
		lots[j] = v.bought[i]
	}
	if p.Plain {
		v.report.Plain++
		if own, err := v.least(g, p, lots); err != nil {
			return Proven{}, err
		} else if own.Cmp(stated) != 0 {
			return Proven{}, fmt.Errorf("purchases and serving every hour at least cost come to %d units, not %d", own, stated)
		}
	}
	proven, err := v.prove(ctx, p, lots, c)
	if err != nil {
		return Proven{}, err
	}
	if n := proven.Cost.Cmp(stated); n > 0 || n < 0 && proven.Exact {
		return Proven{}, fmt.Errorf("its cost is %d units, not %d", proven.Cost, stated)
	}
	if proven.Bound.Cmp(bound) < 0 {
		return Proven{}, fmt.Errorf("its certificate proves a bound of %d units, not %d", proven.Bound, bound)
	}
	return Proven{stated, bound, proven.Exact}, nil
}

// buy finds the choices that are bought, and verifies the orders.
func (v *verdict) buy() error {
	v.bought, v.orders = make([]int, len(v.choices)), map[int]*choice{}
	groups := map[string]string{}
	offers, goes := map[string]*offer{}, map[string]*commitment{}
	for i := range v.doc.Offers {
		offers[v.doc.Offers[i].ID] = &v.doc.Offers[i]
	}
	for i := range v.doc.Commitments {
		goes[v.doc.Commitments[i].ID] = &v.doc.Commitments[i]
	}
	type key struct {
		offer           string
		commitment      string
		epoch, renewals int
	}
	sold := map[key][]int{}
	for n := range v.a.Purchases {
		p := &v.a.Purchases[n]
		sold[key{p.Offer, p.Commitment, p.Epoch, p.Renewals}] = nil
	}
	for i, c := range v.choices {
		k := key{epoch: int(c.epoch)}
		if c.offer >= 0 {
			k.offer = v.doc.Offers[c.offer].ID
		} else {
			x := &v.further[-1-c.offer]
			k.commitment, k.renewals = x.goes.ID, x.renewals
		}
		if _, named := sold[k]; named {
			sold[k] = append(sold[k], i)
		}
	}
	sum := zero
	seen := map[key]bool{}
	for n := range v.a.Purchases {
		p := &v.a.Purchases[n]
		at := fmt.Sprintf("purchases/%d: ", n)
		k := key{p.Offer, p.Commitment, p.Epoch, p.Renewals}
		if p.Epoch < 0 || p.Epoch >= v.cal.n {
			return fmt.Errorf(at+"epoch %d is not within the horizon", p.Epoch)
		}
		if seen[k] {
			return fmt.Errorf(at+"%q is ordered twice from %s", p.Offer+p.Commitment, v.cal.name(p.Epoch))
		}
		seen[k] = true
		if p.Commitment == "" {
			o := offers[p.Offer]
			if o == nil {
				return fmt.Errorf(at+"there is no offer %q", p.Offer)
			}
			if err := v.order(o, p); err != nil {
				return fmt.Errorf(at+"offer %q from %s: %w", p.Offer, v.cal.name(p.Epoch), err)
			}
		} else if c := goes[p.Commitment]; c == nil || !c.Renews || p.Offer != "" {
			return fmt.Errorf(at+"commitment %q does not renew", p.Commitment)
		}
		found := -1
		var c *choice
		for _, i := range sold[k] {
			x, err := v.choice(i)
			if err != nil {
				return err
			}
			if p.Units%x.lot == 0 && p.Units/x.lot >= x.least && (x.most < 0 || p.Units/x.lot <= x.most) {
				found, c = i, x
			}
		}
		if found < 0 {
			return fmt.Errorf(at+"%d units of %q from %s for %d further terms are not sold: see min_units, max_units, tiers, "+
				"renews and notice_by", p.Units, p.Offer+p.Commitment, v.cal.name(p.Epoch), p.Renewals)
		}
		if other, twice := groups[c.group]; twice && c.group != "" {
			return fmt.Errorf(at+"%s and %s exclude one another (%s)", v.describe(c), other, c.group)
		}
		groups[c.group] = v.describe(c)
		v.bought[found], v.orders[found] = p.Units/c.lot, c
		if err := v.written(p, c, p.Units/c.lot); err != nil {
			return fmt.Errorf(at+"%s: %w", v.describe(c), err)
		}
		sum = sum.Add(p.Cost)
	}
	return same("purchase_cost", v.a.Bought, sum)
}

// order verifies an order against its offer.
func (v *verdict) order(o *offer, p *purchase) error {
	begins := v.cal.starts[p.Epoch]
	switch lot := max(1, o.Lot); {
	case begins < o.From || o.To != 0 && begins >= o.To:
		return fmt.Errorf("a term begins from %s on and before %s", o.From, o.To)
	case begins < v.doc.From+domain.Instant(o.LeadHours)*domain.Hour:
		return fmt.Errorf("it is delivered after %d hours", o.LeadHours)
	case p.Units < 1 || p.Units%lot != 0:
		return fmt.Errorf("%d units are not in lots of %d", p.Units, lot)
	case p.Units < o.MinUnits:
		return fmt.Errorf("%d units, and min_units is %d", p.Units, o.MinUnits)
	case o.MaxUnits > 0 && p.Units > o.MaxUnits:
		return fmt.Errorf("%d units, and max_units is %d", p.Units, o.MaxUnits)
	}
	return nil
}

// same reports an amount that is not what it should be.
func same(name string, have, want domain.Decimal) error {
	if have.Equal(want) {
		return nil
	}
	return fmt.Errorf("%s is %s, and comes to %s", name, have, want)
}

// written verifies what a purchase says about itself.
func (v *verdict) written(p *purchase, c *choice, lots int) error {
	n, covers, pool := whole(lots), 0, ""
	for _, x := range c.covers {
		covers = max(covers, x.Units*lots)
	}
	if c.pool >= 0 {
		pool = v.doc.Pools[c.pool].ID
	}
	switch {
	case p.Term != c.term:
		return fmt.Errorf("its term is %s to %s", c.term.From, c.term.To)
	case p.OrderBy != c.orderBy:
		return fmt.Errorf("it is ordered by %s", c.orderBy)
	case p.Pool != pool || p.Covers != covers || p.Tier != c.tier:
		return fmt.Errorf("it covers %d units of pool %q, at tier %d", covers, pool, c.tier)
	}
	return errors.Join(same("cost", p.Cost, decimal.New(c.cost, -v.digits).Mul(n)),
		near("upfront", p.Upfront, c.upfront.Mul(n)), near("hourly", p.Hourly, c.hourly.Mul(n)))
}

// near is same up to the digits of quotients.
func near(name string, have, want domain.Decimal) error {
	if have.Sub(want).Abs().LessThan(decimal.New(1, -15)) {
		return nil
	}
	return same(name, have, want)
}

// cover counts what is held and bought.
func (v *verdict) cover() {
	for p := range v.doc.Pools {
		v.capacity, v.priced = append(v.capacity, slices.Clone(v.guaranteed[p])), append(v.priced, slices.Clone(v.discount[p]))
	}
	for i, n := range v.bought {
		if n == 0 {
			continue
		}
		for _, c := range v.orders[i].covers {
			for e := c.From; e < c.To; e++ {
				if c.Guaranteed {
					v.capacity[c.Pool][e] += n * c.Units
				} else {
					v.priced[c.Pool][e] += n * c.Units
				}
			}
		}
	}
}

// table reads the rows of the recourse.
func (v *verdict) table() error {
	if len(v.a.Recourse) != v.cal.n*len(v.scenarios) {
		return fmt.Errorf("recourse has %d entries for %d epochs and %d scenarios", len(v.a.Recourse), v.cal.n, len(v.scenarios))
	}
	for e := range v.cal.n {
		v.rows = append(v.rows, nil)
		v.nominal = append(v.nominal, make([]interval, len(v.scenarios)))
		for s := range v.scenarios {
			row := &v.a.Recourse[e*len(v.scenarios)+s]
			if row.Epoch != e || row.Scenario != v.scenarios[s].ID {
				return fmt.Errorf("recourse/%d is of epoch %d and scenario %q", e*len(v.scenarios)+s, row.Epoch, row.Scenario)
			}
			by := map[string]*poolHours{}
			for i := range row.Pools {
				by[row.Pools[i].Pool] = &row.Pools[i]
			}
			if len(by) != len(v.doc.Pools) || len(by) != len(row.Pools) {
				return fmt.Errorf("recourse/%d is of %d pools, of %d", e*len(v.scenarios)+s, len(by), len(v.doc.Pools))
			}
			v.rows[e] = append(v.rows[e], by)
		}
	}
	v.penalty, v.serving = make([]interval, len(v.scenarios)), make([]interval, len(v.scenarios))
	v.unserved = make([]domain.Decimal, len(v.scenarios))
	return nil
}
