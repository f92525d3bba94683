package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// CommitmentUse is the cost of a commitment and what it was for, over the lines of the input. Over
// the whole term, Purchased equals Used plus Unused (FOCUS, EffectiveCost of commitment discounts).
// Over a shorter time, the difference is prepaid or accrued.
type CommitmentUse struct {
	Issuer     string `json:"issuer"`
	Commitment string `json:"commitment"`
	Currency   string `json:"currency"`
	Purchases  int    `json:"purchases"` // lines
	Purchased  Amount `json:"purchased"` // billed cost of the purchases
	UsedLines  int    `json:"used_lines"`
	Used       Amount `json:"used"` // effective cost of covered usage
	IdleLines  int    `json:"unused_lines"`
	Unused     Amount `json:"unused"` // effective cost of the unused part
	Owned      bool   `json:"owned"`
}

// owners holds the owners and the use of commitments.
type owners struct {
	shares   map[string][]share
	hardware map[string]Hardware // of contracts
	uses     map[[3]string]*CommitmentUse
}

type share struct {
	workspace string
	part      u128
}

func newOwners(cs []Commitment) (*owners, error) {
	s := &owners{shares: map[string][]share{}, hardware: map[string]Hardware{}, uses: map[[3]string]*CommitmentUse{}}
	for _, c := range cs {
		parts := make([]share, 0, len(c.Owners))
		var total Amount
		for _, p := range c.Owners {
			a, err := AmountOf(p.Share)
			if err != nil {
				return nil, fmt.Errorf("commitment %q: share of %q: %w", c.ID, p.Workspace, err)
			}
			if a.Sign() <= 0 || p.Workspace == "" {
				return nil, fmt.Errorf("commitment %q: share %s of %q is not a share", c.ID, p.Share, p.Workspace)
			}
			total = total.Add(a)
			m, _ := a.parts()
			parts = append(parts, share{p.Workspace, m})
		}
		if len(parts) > 0 && total != Whole(1) {
			return nil, fmt.Errorf("commitment %q: shares add up to %s, want 1", c.ID, total)
		}
		slices.SortFunc(parts, func(a, b share) int {
			return cmp.Or(
				strings.Compare(a.workspace, b.workspace),
				cmp.Compare(a.part.hi, b.part.hi), cmp.Compare(a.part.lo, b.part.lo),
			)
		})
		for i := len(parts) - 1; i > 0; i-- {
			if parts[i].workspace == parts[i-1].workspace {
				parts[i-1].part = parts[i-1].part.add(parts[i].part)
				parts = slices.Delete(parts, i, i+1)
			}
		}
		if before, ok := s.shares[c.ID]; ok && !slices.Equal(before, parts) {
			return nil, fmt.Errorf("commitment %q is given twice, with different owners", c.ID)
		}
		s.shares[c.ID] = parts
		s.hardware[c.ID] = s.hardware[c.ID].join(c.Hardware)
	}
	return s, nil
}

// account adds a line to the use of its commitment.
func (s *owners) account(b *book, r *record) {
	if r.commit == 0 || r.class.follows() {
		return
	}
	k := [3]string{b.texts[r.issuer], b.texts[r.commit], b.texts[r.currency]}
	u := s.uses[k]
	if u == nil {
		u = &CommitmentUse{Issuer: k[0], Commitment: k[1], Currency: k[2], Owned: len(s.shares[k[1]]) > 0}
		s.uses[k] = u
	}
	switch {
	case b.texts[r.category] == categoryPurchase:
		u.Purchases++
		u.Purchased = u.Purchased.Add(r.billed)
	case r.unused:
		u.IdleLines++
		u.Unused = u.Unused.Add(r.effective)
	default:
		u.UsedLines++
		u.Used = u.Used.Add(r.effective)
	}
}

func (s *owners) sorted() []CommitmentUse {
	all := make([]CommitmentUse, 0, len(s.uses))
	for _, u := range s.uses {
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b CommitmentUse) int {
		return cmp.Or(
			strings.Compare(a.Issuer, b.Issuer), strings.Compare(a.Commitment, b.Commitment),
			strings.Compare(a.Currency, b.Currency),
		)
	})
	return all
}

// owned divides the current record among its commitment's owners, for the
// charge period as a whole.
func (r *run) owned(rec *record) error {
	shares := r.owners.shares[r.line.Commitment]
	what := "the unused part"
	if rec.basis == byCovered {
		what = "a fee without known covered usage"
	}
	if len(shares) == 0 {
		r.trace.because("it is %s of commitment %q, which has no known owner", what, r.line.Commitment)
		key := allocationKey{workspace: Platform, component: UnusedCommitment}
		return r.all(rec, 0, ByCommitment, key, r.committed(rec), rec.bought)
	}
	r.trace.because("it is %s of commitment %q, which its owners pay for", what, r.line.Commitment)
	b, e, time := divisionOf(rec.billed), divisionOf(rec.effective), divisionOfMs(rec.bought)
	whole, _ := Whole(1).parts()
	hardware := r.committed(rec)
	r.out.Hour, r.out.MatchMethod, r.out.Of = 0, ByCommitment, Whole(1)
	var at u128
	for _, s := range shares {
		at = at.add(s.part)
		r.out.Weight, r.out.BoughtMs = signed(s.part, false), int64(time.next(at, whole).lo)
		key := r.keys.id(allocationKey{workspace: s.workspace, component: UnusedCommitment})
		if err := r.give(key, hardware, b.next(at, whole), e.next(at, whole)); err != nil {
			return err
		}
	}
	return nil
}
