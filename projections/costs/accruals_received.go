package costs

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// accrued says which accruals are replaced by invoices of the supplier. It reads the invoices when it is first asked.
type accrued struct {
	view     projections.View
	invoices map[string]map[string]receivedAs // by account (see [domain.AccountKey]) and id; nil: not read
	months   map[accountMonth]*receivedMonth
}

// receivedAs is the billing period of an invoice. It is void if nothing is to be paid by it.
type receivedAs struct {
	period domain.Interval
	void   bool
}

type accountMonth struct {
	account string // see [domain.AccountKey]
	month   domain.Instant
}

// receivedMonth is what a supplier invoiced for a month.
type receivedMonth struct {
	ids      []string          // of invoices whose billing period is of the month, sorted
	periods  []domain.Interval // of all invoices of the account, by time, joined
	complete bool              // no more is expected
	// zone is the time of the month that invoices of a month before or after cover, because a supplier's months begin
	// in another time zone. Their invoice for this month is for a month all the same.
	zone domain.Instant
}

// String names the invoices.
func (m *receivedMonth) String() string {
	if len(m.ids) == 1 {
		return "invoice " + m.ids[0]
	}
	return "invoices " + strings.Join(m.ids, ", ")
}

// rest returns the time of a month that no invoice covers, or all of it if they cover it and more is expected.
func (m *receivedMonth) rest(month domain.Interval) []domain.Interval {
	if rest := month.Without(m.periods); len(rest) > 0 {
		return rest
	}
	return []domain.Interval{month}
}

// isAccrual reports whether an id is of an accrual's invoice or line.
func isAccrual(id string) bool { return strings.HasPrefix(id, accrualPrefix) }

// replaced reports whether a line is of an accrual that invoices replaced.
func (a *accrued) replaced(l *domain.BillingLine) (bool, error) {
	if !isAccrual(l.InvoiceID) {
		return false, nil
	}
	month := projections.MonthOf(domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd})
	return a.replacedBy(domain.AccountKey(l.InvoiceIssuerName, l.BillingAccountID), month)
}

// replacedBy reports whether the supplier's invoices for a month cover it, so that its accrual no longer counts. They
// begin where the invoice before would be of the month before, have no gap of more than a day, and end where the next
// one, of the same length, would be of the next month. So one invoice of a month in any time zone covers it, and weekly
// invoices do together.
func (a *accrued) replacedBy(account string, month domain.Interval) (bool, error) {
	m, err := a.received(account, month)
	return m != nil && m.complete, err
}

// received returns what was invoiced for a month: invoices that were received, and those that lines of the month name.
func (a *accrued) received(account string, month domain.Interval) (*receivedMonth, error) {
	if a.invoices == nil {
		if err := a.read(); err != nil {
			return nil, err
		}
		a.months = map[accountMonth]*receivedMonth{}
	}
	of := accountMonth{account, month.From}
	if m := a.months[of]; m != nil {
		return m, nil
	}
	all := map[string]receivedAs{}
	for id, in := range a.invoices[account] {
		all[id] = in
	}
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, Scope: account, From: at, To: at + 1}
	err := a.view.Scan(q, func(k projections.Key, row projections.Row) error {
		l := ledgerLine(k, row.(*projections.History))
		if l == nil || l.InvoiceID == "" || isAccrual(l.InvoiceID) {
			return nil
		}
		if _, known := a.invoices[account][l.InvoiceID]; known {
			return nil
		}
		named := all[l.InvoiceID]
		named.period = hull(named.period, domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd})
		all[strings.Clone(l.InvoiceID)] = named
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read billing lines: %w", err)
	}
	m := &receivedMonth{}
	var own, zones []domain.Interval
	for id, in := range all {
		if in.void || in.period.Empty() {
			continue
		}
		m.periods = append(m.periods, in.period)
		if projections.MonthOf(in.period) == month {
			m.ids = append(m.ids, id)
			own = append(own, in.period)
		} else if over := in.period.Intersect(month); !over.Empty() && over.Length() <= domain.Day && monthLong(in.period) {
			zones = append(zones, over)
		}
	}
	for _, zone := range inventory.Joined(byTime(zones)) {
		for _, in := range zone.Without(inventory.Joined(byTime(own))) {
			m.zone += in.Length()
		}
	}
	slices.Sort(m.ids)
	m.periods = inventory.Joined(byTime(m.periods))
	m.complete = covers(own, month)
	a.months[of] = m
	return m, nil
}

// monthLong reports whether a billing period is about as long as its month.
func monthLong(period domain.Interval) bool {
	off := period.Length() - projections.MonthOf(period).Length()
	return -domain.Day <= off && off <= domain.Day
}

// covers reports whether billing periods of a month cover it: see [accrued.replacedBy].
func covers(periods []domain.Interval, month domain.Interval) bool {
	if len(periods) == 0 {
		return false
	}
	periods = byTime(periods)
	first, last := periods[0], periods[0]
	for _, p := range periods {
		if p.From > last.To+domain.Day {
			return false
		}
		if p.From == first.From && p.To > first.To {
			first = p
		}
		if p.To > last.To || p.To == last.To && p.From < last.From {
			last = p
		}
	}
	before := domain.Interval{From: first.From - first.Length(), To: first.From}
	next := domain.Interval{From: last.To, To: last.To + last.Length()}
	return projections.MonthOf(before).From < month.From && projections.MonthOf(next).From > month.From
}

// read reads the invoices of all accounts.
func (a *accrued) read() error {
	a.invoices = map[string]map[string]receivedAs{}
	err := a.view.Scan(projections.Query{Table: projections.TableInvoices}, func(_ projections.Key, row projections.Row) error {
		in := row.(*projections.History).Latest().Event.(*domain.InvoiceReceived)
		if isAccrual(in.InvoiceID) {
			return nil
		}
		account := domain.AccountKey(in.InvoiceIssuerName, in.BillingAccountID)
		if a.invoices[account] == nil {
			a.invoices[account] = map[string]receivedAs{}
		}
		a.invoices[account][strings.Clone(in.InvoiceID)] = receivedAs{in.BillingPeriod, in.Status == voided}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read invoices: %w", err)
	}
	return nil
}
