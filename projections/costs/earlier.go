package costs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Earlier is what came about earlier months since their close. The checklist of the next close has it, because nobody
// goes through the checklist of a closed month again.
type Earlier struct {
	untied []string // invoices of closed months that no longer equal their lines
	before string   // what came for months before the books begin
	bills  int
}

// Closed takes the present division of a closed month. A month is closed with every invoice equal to its lines, so each
// that is not was restated, voided or paid in another currency later, or its lines were.
func (e *Earlier) Closed(d *Division) {
	restated := map[string]string{}
	for _, x := range d.Exceptions {
		if x.Kind == InvoiceRestated {
			restated[x.Subject] = "; it was restated: " + x.Detail
		}
	}
	for _, u := range d.Unreconciled() {
		e.untied = append(e.untied, fmt.Sprintf("%s of %s: %s%s", u.Subject, monthText(d.Month), u.Why, restated[u.Subject]))
	}
}

// BeforeBooks reads the lines and invoices of months before the first closed one that were stated or removed since the
// last close, which has what is in known. They are posted nowhere: nothing of their months was closed.
func (e *Earlier) BeforeBooks(view projections.View, first domain.Interval, known Stated) error {
	lines, sums := 0, map[string]domain.Decimal{}
	q := projections.Query{Table: projections.TableBillingLines, To: projections.MonthStart(first.From)}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		if known(k.Scope, h.Latest()) {
			return nil
		}
		lines++
		if l := billingLine(h.Latest()); l != nil {
			sums[l.BillingCurrency] = sums[l.BillingCurrency].Add(l.BilledCost)
		}
		if was := known.last(k.Scope, h); was != nil {
			if l := billingLine(was); l != nil {
				sums[l.BillingCurrency] = sums[l.BillingCurrency].Sub(l.BilledCost)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read billing lines before %s: %w", monthText(first), err)
	}
	invoices := 0
	err = view.Scan(projections.Query{Table: projections.TableInvoices}, func(k projections.Key, row projections.Row) error {
		v := row.(*projections.History).Latest()
		if in := v.Event.(*domain.InvoiceReceived); !known(k.Scope, v) && projections.MonthOf(in.BillingPeriod).From < first.From {
			invoices++
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read invoices before %s: %w", monthText(first), err)
	}
	if e.bills = lines + invoices; e.bills > 0 {
		came := []string{fmt.Sprintf("%d lines", lines), fmt.Sprintf("%d invoices", invoices)}
		for _, currency := range slices.Sorted(maps.Keys(sums)) {
			came = append(came, sums[currency].String()+" "+currency)
		}
		e.before = fmt.Sprintf("for months before the books begin with %s there came, and is in no books: %s",
			monthText(first), strings.Join(came, ", "))
	}
	return nil
}

// earlier adds the checks of earlier months. e may be nil: the books begin.
func (c *Checklist) earlier(e *Earlier) {
	if e == nil {
		e = &Earlier{}
	}
	c.found(CheckClosedMonths, len(e.untied), true, "%s", some(e.untied))
	c.found(CheckBeforeBooks, e.bills, true, "%s", e.before)
}
