package backtest

import (
	"fmt"
	"math/big"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
	"quartermaster/domain/procurement/check"
)

// books are the costs of the alternatives in a pool under one terminal rule.
type books struct {
	salvage   domain.Decimal
	past      *procurement.Pool // the actual demand, at that rule
	foresight *procurement.Solution
	served    Served // what serves demand with perfect foresight
	// unknown and known are the alternatives that do not know the end and those that do.
	unknown, known []costs
}

// costs are the costs of an alternative.
type costs struct {
	total, penalty *big.Int // Nano; the penalty is for unserved demand
	served         Served
}

// reckon computes the cost of each alternative and of perfect foresight under each terminal rule.
func (t *test) reckon() error {
	for i, b := range t.books {
		var err error
		if b.foresight, err = procurement.Solve(b.past); err != nil {
			return err
		}
		if _, err := check.Check(b.past, b.foresight); err != nil {
			return fmt.Errorf("the checker refuses perfect foresight; please report this: %w", err)
		}
		ev, err := procurement.Evaluate(b.past, b.foresight.Purchases)
		if err != nil {
			return err
		}
		b.served = servedOf(ev)
		if b.unknown, err = b.pay(&t.sets[0]); err != nil {
			return err
		}
		if b.known, err = b.pay(&t.sets[1+i]); err != nil {
			return err
		}
	}
	return nil
}

// pay computes the costs of the alternatives of a set.
func (b *books) pay(s *set) ([]costs, error) {
	var out []costs
	for i, name := range Alternatives() {
		c := baseline.Baseline{Rule: baseline.Rule(name), Offer: -1, Purchases: s.bought[i]}
		ev, err := c.Evaluate(b.past)
		if err != nil {
			return nil, err
		}
		if ev.Cost.Cmp(b.foresight.Bound) < 0 {
			return nil, fmt.Errorf("alternative %s costs %d, less than perfect foresight proves: %d", name, ev.Cost,
				b.foresight.Bound)
		}
		out = append(out, costs{ev.Cost, ev.ShortageCost, servedOf(ev)})
	}
	return out, nil
}

func servedOf(ev *procurement.Evaluation) Served {
	var out Served
	for _, s := range ev.Epochs {
		out.Reserved += s.Guaranteed + s.DiscountOnly
		out.Unused += s.UnusedGuaranteed + s.UnusedDiscountOnly
		out.Spot += s.Spot
		out.OnDemand += s.OnDemand
		out.Shortage += s.Shortage
	}
	return out
}
