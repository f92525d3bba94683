package attribution

import (
	"fmt"

	"quartermaster/domain"
)

// recoverableTax is the key of the recoverable part of a line of tax.
var recoverableTax = allocationKey{workspace: PlatformTax, component: TaxRecoverable}

// taxRule returns the first rule for tax that is for a line, "" if none is.
func taxRule(b *domain.BillingLine, rules []MeterRule) string {
	for i := range rules {
		if r := &rules[i]; r.Tax && r.IsFor(b) {
			return r.Name
		}
	}
	return ""
}

// taxRules returns what is recoverable by each rule for tax.
func taxRules(rules []MeterRule) (map[string]Amount, error) {
	of := map[string]Amount{}
	for i := range rules {
		r := &rules[i]
		if !r.Tax {
			continue
		}
		if r.Recoverable.Sign() < 0 || r.Recoverable.Cmp(Whole(1)) > 0 {
			return nil, fmt.Errorf("rule for tax %q: a share of %s is not between 0 and 1", r.Name, r.Recoverable)
		}
		if before, ok := of[r.Name]; ok && before != r.Recoverable {
			return nil, fmt.Errorf("rule for tax %q is given twice, with different shares", r.Name)
		}
		of[r.Name] = r.Recoverable
	}
	return of, nil
}

// reclaim takes the recoverable part out of the effective cost of a line, and notes it for the billed one. It is
// rounded towards zero in the finest unit, so that a reversal has the reversed part.
func (b *book) reclaim(r *record, l *Line) error {
	if l.TaxRule == "" {
		return nil
	}
	share, ok := b.tax[l.TaxRule]
	if !ok || l.Class != Tax {
		return fmt.Errorf("line %q of account %q: rule for tax %q is not given, or the line is no tax", l.ID, l.Account, l.TaxRule)
	}
	r.recoverable = l.Billed.share(share)
	r.effective = l.Effective.Sub(l.Effective.share(share))
	return nil
}

// share returns the part of an amount that a share from 0 to 1 is, rounded towards zero.
func (a Amount) share(of Amount) Amount {
	n, _ := of.parts()
	whole, _ := Whole(1).parts()
	d := divisionOf(a)
	return d.next(n, whole)
}

// cost is the billed cost of a record without recoverable tax.
func (r *record) cost() Amount { return r.billed.Sub(r.recoverable) }

// withTax divides a record, and gives its recoverable tax in its place among the allocations. If all of it is
// recoverable, nothing else is divided.
func (r *run) withTax(rec *record, divide func(*record) error) error {
	if rec.recoverable.IsZero() || !rec.cost().IsZero() || !rec.effective.IsZero() {
		if err := divide(rec); err != nil || r.recoverable.IsZero() {
			return err
		}
		return r.giveTax()
	}
	r.out.Hour, r.out.MatchMethod = 0, ByFollowing
	if rec.basis == byRule {
		r.out.MatchMethod = ByRule
	}
	return r.giveTax()
}

// giveTax emits the recoverable tax of the current record.
func (r *run) giveTax() error {
	key, amount, caller := r.keys.id(recoverableTax), r.recoverable, r.out
	r.recoverable = Amount{}
	if t := r.trace; t != nil && t.current && t.key == key {
		t.because("policy %s says that %s of it is recoverable", r.line.TaxRule, r.book.tax[r.line.TaxRule])
		t.followed = nil
	}
	r.out.Holders = nil
	err := r.emit(key, 0, amount, Amount{})
	r.out = caller
	return err
}
