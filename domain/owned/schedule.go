package owned

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// monthOf returns how many calendar months lie between year 0 and an instant. The part of a month
// is by its time.
func monthOf(t domain.Instant) *rat {
	at := t.Time()
	month := t.Month()
	whole := frac(int64(at.Year())*12+int64(at.Month())-1, 1)
	return sum(whole, frac(int64(t-month.From), int64(month.To-month.From)))
}

// floor returns the whole months of a number of months that is not negative.
func floor(m *rat) *rat {
	return new(rat).SetInt(new(big.Int).Quo(m.Num(), m.Denom()))
}

// begins returns when a life begins, or depreciation ends by disposal, in months.
func (c Convention) begins(t domain.Instant) *rat {
	m := monthOf(t)
	switch {
	case m.IsInt():
		return m
	case c == FullMonth:
		return floor(m)
	case c == HalfMonth:
		return sum(floor(m), frac(1, 2))
	case c == NextMonth:
		return sum(floor(m), frac(1, 1))
	default:
		return m
	}
}

// stretch is a time of equal depreciation per month.
type stretch struct {
	from, to *rat // in months; to is the end of the life
	carrying *rat // at from
	residual *rat
}

// at returns the carrying amount at a time, in months.
func (s *stretch) at(m *rat) *rat {
	whole := higher(less(s.carrying, s.residual), new(rat))
	switch {
	case m.Cmp(s.from) <= 0:
		return s.carrying
	case m.Cmp(s.to) >= 0:
		return less(s.carrying, whole)
	}
	done := ratio(less(m, s.from), less(s.to, s.from))
	return less(s.carrying, times(whole, done))
}

// loss is an amount that is written off at an instant.
type loss struct {
	at     domain.Instant
	amount *rat
	reason string
}

// schedule is the depreciation of an asset.
type schedule struct {
	begins    *rat
	stretches []stretch // by from
	losses    []loss    // impairments
	ends      *rat      // disposal, nil for none
}

// scheduleOf returns how an asset depreciates.
func scheduleOf(a *Asset, c Convention, except func(kind ProblemKind, format string, args ...any)) *schedule {
	begins := c.begins(a.InService)
	s := &schedule{begins: begins, stretches: []stretch{{
		from: begins, to: sum(begins, frac(int64(a.LifeMonths), 1)),
		carrying: ratOf(a.Capex.Amount), residual: ratOf(a.Residual.Amount),
	}}}
	life, residual := a.LifeMonths, a.Residual
	revisions := slices.Clone(a.Revisions)
	slices.SortStableFunc(revisions, func(x, y Revision) int { return cmp.Compare(x.From, y.From) })
	for _, r := range revisions {
		switch {
		case r.From < a.InService, a.Disposal != nil && a.Disposal.At >= a.InService && r.From >= a.Disposal.At:
			except(LateRevision, "the revision of %s is before service or after disposal", r.From)
			continue
		case other(a.Capex, r.Residual), other(a.Capex, r.Impairment):
			except(OtherCurrency, "the revision of %s is not in %s", r.From, a.Capex.Currency)
			continue
		}
		if r.LifeMonths > 0 {
			life = r.LifeMonths
		}
		if r.Residual.Currency != "" {
			residual = r.Residual
		}
		at := higher(monthOf(r.From), begins)
		last := &s.stretches[len(s.stretches)-1]
		next := stretch{
			from: at, to: higher(at, sum(begins, frac(int64(life), 1))),
			carrying: last.at(at), residual: ratOf(residual.Amount),
		}
		if impaired := ratOf(r.Impairment.Amount); impaired.Sign() > 0 {
			if impaired.Cmp(next.carrying) > 0 {
				except(TooImpaired, "the impairment of %s at %s is more than the carrying amount", r.Impairment, r.From)
				impaired = next.carrying
			}
			next.carrying = less(next.carrying, impaired)
			s.losses = append(s.losses, loss{r.From, impaired, r.Reason})
		}
		s.stretches = append(s.stretches, next)
	}
	if d := a.Disposal; d != nil {
		switch {
		case d.At < a.InService:
			except(BeforeService, "it is disposed of at %s and in service from %s", d.At, a.InService)
		case other(a.Capex, d.Proceeds):
			except(OtherCurrency, "its proceeds are not in %s", a.Capex.Currency)
			fallthrough
		default:
			// A convention may date it back, but not before a revision.
			s.ends = higher(c.begins(d.At), s.stretches[len(s.stretches)-1].from)
		}
	}
	return s
}

// other reports whether money is in another currency than the asset. An amount of zero needs none.
func other(capex, m domain.Money) bool { return !m.Amount.IsZero() && m.Currency != capex.Currency }

// carrying returns the carrying amount at a time, in months. Impairments at that time are
// deducted.
func (s *schedule) carrying(m *rat) *rat {
	if s.ends != nil && m.Cmp(s.ends) >= 0 {
		m = s.ends
	}
	at := &s.stretches[0]
	for i := range s.stretches[1:] {
		if next := &s.stretches[i+1]; next.from.Cmp(m) <= 0 {
			at = next
		}
	}
	return at.at(m)
}

// depreciated returns what was depreciated until a time, in months, without impairments.
func (s *schedule) depreciated(m *rat) *rat {
	if s.ends != nil && m.Cmp(s.ends) >= 0 {
		m = s.ends
	}
	total := new(rat)
	for i := range s.stretches {
		st := &s.stretches[i]
		until := m
		if i+1 < len(s.stretches) {
			until = lower(m, s.stretches[i+1].from)
		}
		if until.Cmp(st.from) >= 0 {
			total = sum(total, less(st.carrying, st.at(until)))
		}
	}
	return total
}

// minor rounds to minor units of a currency, half away from zero, as invoices do.
func minor(r *rat, currency string) domain.Decimal { return decimalOf(r, domain.MinorUnits(currency)) }

// decimalOf rounds to a number of decimals, half away from zero.
func decimalOf(r *rat, places int) domain.Decimal {
	return decimal.RequireFromString(r.FloatString(places))
}
