package plan

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
)

// Baseline is a simple purchasing rule of package baseline. It serves the same demand as the plan,
// under the same quota and prices. Unserved demand is in Cost at the price of a shortage; Penalty
// is that part. The rules ignore least orders, so a baseline may buy fewer units than an offer
// sells.
type Baseline struct {
	Name    string         `json:"baseline"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	// Offer is what the rule buys, and Units its target. Both are empty in sums.
	Offer string `json:"offer,omitempty"`
	Units int    `json:"units,omitempty"`
}

// lookbackWeeks covers the sixty days of the rule with the longest lookback.
const lookbackWeeks = 9

// compare adds the baselines. Each includes what is still owed, except all-on-demand, which is
// computed as if nothing were held.
func (c *composer) compare(out *PoolPlan, p *procurement.Pool, k *candidate) error {
	past, err := c.past(k)
	if err != nil {
		return err
	}
	// Rules compare pro-rata prices and pay the same prices as the plan.
	sold, err := c.problem(k, decimal.NewFromInt(1))
	if err != nil {
		return err
	}
	for _, rule := range baseline.All(sold, past) {
		ev, err := rule.Evaluate(p)
		if err != nil {
			return err
		}
		x := Baseline{Name: rule.Name(), Cost: expected(p, ev.Cost), Penalty: expected(p, ev.ShortageCost), Units: rule.Units}
		if rule.Rule != baseline.OnDemand {
			x.Cost = x.Cost.Add(k.owed)
		}
		if rule.Offer >= 0 {
			x.Offer = p.Offers[rule.Offer].ID
		}
		out.Baselines = append(out.Baselines, x)
	}
	return nil
}

// past returns the observed demand before the horizon, in machines by the hour. If fewer than sixty
// days were observed, the rules use what there is.
func (c *composer) past(k *candidate) ([]int, error) {
	h, err := observe(k.Pool, &Assumptions{Weeks: lookbackWeeks}, c.q.At)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(h.milli))
	for i, milli := range h.milli {
		if out[i], err = k.fit.machines(milli, grown); err != nil {
			return nil, err
		}
	}
	if top := slices.Max(out); k.future.summary.Failures != nil && top > 0 {
		b, err := c.buffer(k, top)
		if err != nil {
			return nil, err
		}
		for i, n := range out {
			out[i] = b.With(n)
		}
	}
	return out, nil
}

// sumBaselines adds baselines by name.
func sumBaselines(into []Baseline, more []Baseline) []Baseline {
	for _, x := range more {
		i := slices.IndexFunc(into, func(y Baseline) bool { return y.Name == x.Name })
		if i < 0 {
			into = append(into, Baseline{Name: x.Name, Cost: x.Cost, Penalty: x.Penalty})
			continue
		}
		into[i].Cost, into[i].Penalty = into[i].Cost.Add(x.Cost), into[i].Penalty.Add(x.Penalty)
	}
	return into
}

// explain adds the worth and the reason of each purchase of a solution.
func (c *composer) explain(bought []Purchase, p *procurement.Pool, s *shelf, sol *answer) {
	for _, b := range sol.Purchases {
		o := &s.terms[b.Offer]
		starts := p.Offers[b.Offer].Starts
		at := slices.IndexFunc(starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
		worth := expected(p, big.NewInt(int64(sol.Certificate.Worth(p, b.Offer, at))))
		each := money(big.NewInt(int64(starts[at].Cost)))
		onDemand := decimal.Zero
		for m := b.Epoch; m < min(b.Epoch+int(o.TermMonths), len(p.Epochs)); m++ {
			hours := decimal.NewFromInt(hoursOf(p.Epochs[m].Span))
			onDemand = onDemand.Add(money(big.NewInt(int64(p.Epochs[m].OnDemand))).Mul(hours))
		}
		reason := fmt.Sprintf("one costs %s within the horizon and is worth %s at the certificate's prices",
			each.StringFixed(2), worth.StringFixed(2))
		if onDemand.IsPositive() {
			reason += fmt.Sprintf("; on demand all its hours cost %s; break-even utilization: %s%%",
				onDemand.StringFixed(2), each.Shift(2).DivRound(onDemand, 1))
		}
		if b.Units == o.least() && o.least() > 1 {
			reason += "; that is the least order"
		}
		i := slices.IndexFunc(bought, func(x Purchase) bool {
			return x.Reason == "" && x.Provider == o.Market.Provider && x.Offer == o.Offer &&
				x.Term.From == c.all[b.Epoch].From && x.Units == b.Units
		})
		bought[i].Worth, bought[i].Reason = &worth, reason
	}
}

// worthOfQuota is what one more machine of a quota would save: the difference between the proven
// lower bounds without it and with it. Both are exact except for the certificates' gaps.
func worthOfQuota(p *procurement.Pool, bound *big.Int) (domain.Decimal, error) {
	more := *p
	more.Epochs = slices.Clone(p.Epochs)
	for m := range more.Epochs {
		if e := &more.Epochs[m]; e.Quota >= 0 && e.Quota < procurement.MaxUnits {
			e.Quota++
		}
	}
	sol, err := procurement.Solve(&more)
	if err != nil {
		return decimal.Zero, err
	}
	return decimal.Max(decimal.Zero, expected(p, new(big.Int).Sub(bound, sol.Bound))), nil
}
