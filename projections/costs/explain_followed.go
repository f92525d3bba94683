package costs

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// isFee reports whether a line is the recurring fee of a commitment, which follows what the commitment covered.
func isFee(l *attribution.Line) bool { return isPurchase(l) && l.Recurring }

func isPurchase(l *attribution.Line) bool {
	return l.Class == attribution.Committed && l.Category == "Purchase"
}

// followedSum is what the lines of a scope cost.
type followedSum struct {
	attribution.Followed
	costs bool // some line has a cost
	keys  map[followedKey]costDelta
}

type followedKey struct {
	workspace, cluster, deployment string
	component                      attribution.Component
}

// followed returns what the line of an allocation follows, from the lines of the division; nil if nothing has a cost.
// It reports false if that does not give the weight of the allocation.
func (d *Division) followed(k *keptLine) (of *attribution.Followed, ok bool, err error) {
	l := &k.allocation
	var scopes []attribution.Scope
	fee := isFee(l.Line)
	if fee {
		scopes = append(scopes, attribution.CoveredBy(l.Line))
	} else {
		scopes = attribution.Scopes(l.Line, nil)
	}
	sums := make([]followedSum, len(scopes))
	for i := range scopes {
		sums[i] = followedSum{Followed: attribution.Explained(&scopes[i]), keys: map[followedKey]costDelta{}}
	}
	last := uint32(0)
	var in []int // the scopes of the last line
	var space []attribution.Scope
	lines := 0
	err = d.each(func(p *part) error {
		a := p.allocation
		if a.Line.Number == 0 {
			return nil // an invoice's rounding
		}
		if a.Line.Number != last {
			last, in = a.Line.Number, in[:0]
			lines++
			switch {
			case a.Line.Follows():
			case fee:
				covered := a.Line.Issuer == l.Line.Issuer && a.Line.Currency == l.Line.Currency && a.Line.Commitment == l.Line.Commitment
				if from := a.Line.ChargePeriod.From; covered && !isPurchase(a.Line) && a.MatchMethod != attribution.ByRule &&
					l.Line.ChargePeriod.From <= from && from < l.Line.ChargePeriod.To {
					in = append(in, 0)
				}
			default:
				space = attribution.Scopes(a.Line, space[:0])
				for i := range scopes {
					for j := range space {
						if scopes[i] == space[j] {
							in = append(in, i)
						}
					}
				}
			}
			for _, i := range in {
				sums[i].Lines++
				sums[i].costs = sums[i].costs || !a.Line.Billed.IsZero() || !a.Line.Effective.IsZero()
			}
		}
		if a.Component == attribution.TaxRecoverable {
			return nil // nothing follows what is no cost
		}
		for _, i := range in {
			s := &sums[i]
			s.Billed, s.Effective = s.Billed.Add(a.Billed), s.Effective.Add(a.Effective)
			key := followedKey{a.Workspace, a.Cluster, a.Deployment, a.Component}
			c := s.keys[key]
			s.keys[key] = costDelta{c.billed.Add(a.Billed), c.effective.Add(a.Effective)}
		}
		return nil
	})
	if err != nil || lines != d.Lines {
		return nil, false, err // a line has no allocation
	}
	for i := range sums {
		if s := &sums[i]; s.costs {
			return &s.Followed, s.gives(k, fee), nil
		}
	}
	return nil, true, nil
}

// gives reports whether the scope gives the weight of an allocation: the cost of its key if that has the sign of the
// total, in the first ledger that has any. A line with recoverable tax has other weights: then it must give the billed
// cost, but for the last digit.
func (s *followedSum) gives(k *keptLine, effectiveFirst bool) bool {
	l := &k.allocation
	for _, effective := range []bool{effectiveFirst, !effectiveFirst} {
		cost := func(c costDelta) attribution.Amount {
			if effective {
				return c.effective
			}
			return c.billed
		}
		total, of := s.Billed, attribution.Amount{}
		if effective {
			total = s.Effective
		}
		weight := attribution.Amount{}
		for key, c := range s.keys {
			if a := cost(c); total.IsZero() || a.Sign() == total.Sign() {
				of = of.Add(a.Abs())
				if key == (followedKey{l.Workspace, l.Cluster, l.Deployment, l.Component}) {
					weight = a.Abs()
				}
			}
		}
		if of.IsZero() {
			continue
		}
		if k.reclaimed.IsZero() {
			return of == l.Of && weight == l.Weight
		}
		rest := l.Line.Billed.Sub(k.reclaimed).Decimal()
		off := l.Billed.Decimal().Mul(of.Decimal()).Sub(rest.Mul(weight.Decimal())).Abs()
		return off.Cmp(of.Decimal().Shift(-18)) <= 0
	}
	return false
}

// matchReason says why a line was divided by its match method, where the division alone tells. It reports false where
// it does not, or where the line follows others in a way that the division does not give back.
func (d *Division) matchReason(k *keptLine, t *attribution.Trace) (ok bool, err error) {
	l, line := &k.allocation, k.allocation.Line
	switch {
	case l.Component == attribution.TaxRecoverable && l.MatchMethod > attribution.ByAccount:
		t.MatchReason = fmt.Sprintf("policy %s says that %s of it is recoverable", line.TaxRule, k.taxShare)
		return true, nil
	case l.MatchMethod == attribution.ByFollowing, l.MatchMethod == attribution.ByCommitment && isFee(line):
		if t.Followed, ok, err = d.followed(k); !ok || err != nil {
			return false, err
		}
		switch f := t.Followed; {
		case f == nil && l.MatchMethod == attribution.ByFollowing:
			return false, nil
		case f == nil:
			t.MatchReason = d.ownersReason(l, "a fee without known covered usage")
		case isFee(line):
			t.MatchReason = fmt.Sprintf("it is a fee for commitment %q, and follows what that covered and what stayed unused", f.Name)
		default:
			t.MatchReason = fmt.Sprintf("it follows the charges of %s %q, the nearest that cost anything", f.Scope, f.Name)
		}
	case l.Component == attribution.Prepaid:
		t.MatchReason = fmt.Sprintf("it pays in advance for the term of commitment %q", line.Commitment)
	case l.MatchMethod == attribution.ByCommitment && line.Unused && !isPurchase(line):
		t.MatchReason = d.ownersReason(l, "the unused part")
	case l.MatchMethod == attribution.ByRule && line.To != "":
		t.MatchReason = fmt.Sprintf("mapping rule %s charges %s for it", line.ToRule, line.To)
	case l.MatchMethod == attribution.ByRule:
		t.MatchReason = fmt.Sprintf("mapping rule %s shares it", line.ToRule)
	default:
		return false, nil
	}
	return true, nil
}

// ownersReason says why a commitment's owners are charged.
func (d *Division) ownersReason(l *attribution.Allocation, what string) string {
	for i := range d.Commitments {
		if c := &d.Commitments[i]; c.Issuer == l.Line.Issuer && c.Commitment == l.Line.Commitment && c.Currency == l.Line.Currency && c.Owned {
			return fmt.Sprintf("it is %s of commitment %q, which its owners pay for", what, c.Commitment)
		}
	}
	return fmt.Sprintf("it is %s of commitment %q, which has no known owner", what, l.Line.Commitment)
}

// taxPolicy returns the policy by which a part of a billed amount is recoverable tax, and its share; "" unless there is
// exactly one.
func (d *Division) taxPolicy(billed, recoverable attribution.Amount) (name string, share attribution.Amount) {
	for i := range d.Policies {
		p := &d.Policies[i]
		if p.Kind != domain.PolicyRecoverableTax {
			continue
		}
		of, err := attribution.ParseAmount(p.Value)
		whole := attribution.PortionsOf(billed)
		if err != nil || whole.Next(of, attribution.Whole(1)) != recoverable {
			continue
		}
		if name != "" {
			return "", attribution.Amount{}
		}
		name, share = p.Workspace+"/"+p.Policy, of
	}
	return name, share
}
