package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// SpansMonths is the status of an invoice whose lines fall in several billing months and together
// equal its total, except for its rounding.
const SpansMonths attribution.ReconciliationStatus = "spans_months"

// InvoiceReconciliation compares an invoice with its lines. If lines of other months name it too,
// Received is the whole invoice and Difference is the remainder after the lines of all months.
// Billed, Attributed and RoundingAdjustment are for this month, and those of all months add up to
// the invoice.
type InvoiceReconciliation struct {
	attribution.Reconciliation
	Elsewhere []InvoicePart `json:"elsewhere,omitempty"` // by month
	// RoundedAway is what rounding to 18 decimals removed from the billed costs of this month's
	// lines, exactly: the supplier's values less the kept values. Null if nothing was rounded.
	RoundedAway *domain.Decimal `json:"rounded_away,omitempty"`
}

// InvoicePart sums up the lines of one month that name an invoice.
type InvoicePart struct {
	Month  domain.Interval    `json:"period"`
	Lines  int                `json:"lines"`
	Billed attribution.Amount `json:"billed"`
}

type invoiceName struct{ issuer, account, id, currency string }

// linesOf identifies the lines of an invoice, or the lines of a period without an invoice.
type linesOf struct {
	invoiceName
	period domain.Interval
}

func linesOfLine(line *domain.BillingLine) linesOf {
	of := linesOf{invoiceName: invoiceName{line.InvoiceIssuerName, line.BillingAccountID, line.InvoiceID, line.BillingCurrency}}
	if of.id == "" {
		of.period = domain.Interval{From: line.BillingPeriodStart, To: line.BillingPeriodEnd}
	}
	return of
}

// named sums up lines that name invoices, by month.
type named map[invoiceName]map[int64]InvoicePart

func (n named) add(month int64, line *domain.BillingLine) {
	billed, err := attribution.AmountOf(line.BilledCost)
	if line.InvoiceID == "" || err != nil || line.ChargePeriodEnd <= line.ChargePeriodStart {
		return // it reconciles with nothing, or is in no division
	}
	name := invoiceName{line.InvoiceIssuerName, line.BillingAccountID, line.InvoiceID, line.BillingCurrency}
	parts := n[name]
	if parts == nil {
		parts = map[int64]InvoicePart{}
		n[name] = parts
	}
	p := parts[month]
	if p.Billed.Abs().Cmp(attribution.Whole(1e18)) > 0 {
		return // attribution reports such a sum as too large
	}
	p.Month = projections.BillingMonth(domain.Instant(month) * domain.Hour)
	p.Lines++
	p.Billed = p.Billed.Add(billed)
	parts[month] = p
}

// receivedInvoice is the last statement of an invoice.
type receivedInvoice struct {
	*domain.InvoiceReceived
	scope string
	name  invoiceName
	total attribution.Amount
	own   bool // of the month being read
}

func (r *receivedInvoice) subject() string {
	return ledgerName(r.name.issuer, r.name.account, r.name.id)
}

// readInvoices reads the invoices of the month and the invoices that its lines name.
func (l *ledger) readInvoices(view projections.View) error {
	var all []receivedInvoice
	accruals := accrued{view: view}
	at := projections.MonthStart(l.month.From)
	err := view.Scan(projections.Query{Table: projections.TableInvoices}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		ev := h.Latest().Event.(*domain.InvoiceReceived)
		r := receivedInvoice{InvoiceReceived: ev, scope: k.Scope, own: projections.MonthOf(ev.BillingPeriod) == l.month}
		r.name = invoiceName{ev.InvoiceIssuerName, ev.BillingAccountID, ev.InvoiceID, ev.Total.Currency}
		if _, here := l.named[r.name][at]; !r.own && !here {
			return nil
		}
		if isAccrual(ev.InvoiceID) {
			if replaced, err := accruals.replacedBy(k.Scope, l.month); replaced || err != nil {
				return err
			}
		}
		if r.own {
			l.billed.invoice(ev.BillingAccountID, h.Versions[0].Order.Appended)
		}
		l.invoiceRestated(&r, h)
		var err error
		if r.total, err = attribution.AmountOf(ev.Total.Amount); err != nil {
			l.except(InvoiceUnusable, r.subject(), "%s: %v", ev.Total, err)
			return nil
		}
		l.generated = l.generated || ev.Generated
		all = append(all, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read invoices: %w", err)
	}
	if err := l.readFurther(view, all); err != nil {
		return err
	}
	for i := range all {
		l.enterInvoice(&all[i])
	}
	return nil
}

// invoiceRestated reports an invoice whose earlier statement was different.
func (l *ledger) invoiceRestated(r *receivedInvoice, h *projections.History) {
	for i := len(h.Versions) - 2; i >= 0; i-- {
		before := h.Versions[i].Event.(*domain.InvoiceReceived)
		sameTotal := before.Total.Currency == r.Total.Currency && before.Total.Amount.Equal(r.Total.Amount)
		if !sameTotal || (before.Status == voided) != (r.Status == voided) {
			l.except(InvoiceRestated, r.subject(), "%s, %s; before %s, %s",
				r.Total, cmp.Or(r.Status, "no status"), before.Total, cmp.Or(before.Status, "no status"))
			return
		}
	}
}

const voided = "Voided"

// spanYears bounds the search for an invoice's lines around its own period: one year before and
// after.
const spanYears = 1

// readFurther reads the other months of an account if an invoice does not reconcile with the lines
// of the month, because some of its lines may be there. Every month reads the same for an invoice,
// and so gives the same result.
func (l *ledger) readFurther(view projections.View, all []receivedInvoice) error {
	at := projections.MonthStart(l.month.From)
	windows, wanted := map[string]domain.Interval{}, map[invoiceName]bool{}
	for i := range all {
		r := &all[i]
		parts := l.named[r.name]
		if r.Status == voided || r.own && len(parts) == 1 && r.rounds(r.total.Sub(parts[at].Billed)) {
			continue
		}
		windows[r.scope] = hull(windows[r.scope], hull(l.month, domain.Interval{
			From: max(0, domain.InstantOf(r.BillingPeriod.From.Time().AddDate(-spanYears, 0, 0))),
			To:   domain.InstantOf(r.BillingPeriod.To.Time().AddDate(spanYears, 0, 0)),
		}))
		wanted[r.name] = true
		delete(l.named, r.name)
	}
	for _, scope := range slices.Sorted(maps.Keys(windows)) {
		w := windows[scope]
		q := projections.Query{
			Table: projections.TableBillingLines, Scope: scope,
			From: projections.MonthStart(w.From), To: projections.MonthStart(w.To) + 1,
		}
		err := view.Scan(q, func(k projections.Key, row projections.Row) error {
			line := ledgerLine(k, row.(*projections.History))
			if line != nil && wanted[invoiceName{line.InvoiceIssuerName, line.BillingAccountID, line.InvoiceID, line.BillingCurrency}] {
				l.named.add(k.Hour, &line.BillingLine)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read billing lines: %w", err)
		}
	}
	return nil
}

// rounds reports whether a difference may be the rounding of a whole invoice: see
// [attribution.Reconciliation].
func (r *receivedInvoice) rounds(difference attribution.Amount) bool {
	return difference.Abs().Decimal().Cmp(decimal.New(1, int32(-domain.MinorUnits(r.name.currency)))) <= 0
}

// enterInvoice adds an invoice, or the month's part of it. The part is the sum of the month's
// lines, in whole minor units. One month, the invoice's own or else the first with lines of it,
// gets the remainder, so that the rounding occurs once. Rows of the invoice are then not compared,
// because lines of several months may name one.
func (l *ledger) enterInvoice(r *receivedInvoice) {
	at := projections.MonthStart(l.month.From)
	in := attribution.Invoice{
		Issuer: r.name.issuer, Account: r.name.account, ID: r.name.id, Currency: r.name.currency,
		Total: r.total, Status: r.Status, Generated: r.Generated,
	}
	parts := l.named[r.name]
	var elsewhere []InvoicePart
	var sum attribution.Amount
	months := slices.Sorted(maps.Keys(parts))
	for _, m := range months {
		if m != at {
			elsewhere = append(elsewhere, parts[m])
			sum = sum.Add(parts[m].Billed)
		}
	}
	if r.Status == voided || len(elsewhere) == 0 {
		if !r.own {
			l.except(InvoiceOfOtherPeriod, r.subject(), "it is for %s to %s, and lines of %s name it",
				r.BillingPeriod.From, r.BillingPeriod.To, monthText(l.month))
		}
		in.Details = r.details()
		l.invoices = append(l.invoices, in)
		return
	}
	home := projections.MonthStart(projections.MonthOf(r.BillingPeriod).From)
	if _, ok := parts[home]; !ok {
		home = months[0]
	}
	left := r.total // for the invoice's home month
	for _, m := range months {
		if m != home {
			left = left.Sub(parts[m].Billed.Minor(r.name.currency).Amount)
		}
	}
	if in.Total = left; home != at {
		in.Total = parts[at].Billed.Minor(r.name.currency).Amount
	}
	l.invoices = append(l.invoices, in)
	if l.spans == nil {
		l.spans = map[invoiceName]span{}
	}
	difference := r.total.Sub(sum).Sub(parts[at].Billed)
	l.spans[r.name] = span{received: r.total, elsewhere: elsewhere, sum: sum, reconciles: r.rounds(left.Sub(parts[home].Billed))}
	var text []string
	for _, m := range months {
		text = append(text, fmt.Sprintf("%s in %s", parts[m].Billed, monthText(parts[m].Month)))
	}
	l.except(InvoiceSpansMonths, r.subject(), "of %s received, lines come to %s; %s is left",
		r.Total, strings.Join(text, ", "), difference)
}

// details returns the rows of an invoice. A row whose amount attribution cannot represent is left
// out: the total is compared without it.
func (r *receivedInvoice) details() []attribution.InvoiceDetail {
	var rows []attribution.InvoiceDetail
	for _, d := range r.Details {
		if amount, err := attribution.AmountOf(d.BilledCost); err == nil && d.InvoiceDetailID != "" {
			rows = append(rows, attribution.InvoiceDetail{ID: d.InvoiceDetailID, Amount: amount})
		}
	}
	return rows
}

func monthText(m domain.Interval) string { return m.From.Time().Format("2006-01") }

// span is an invoice with lines in other months.
type span struct {
	received   attribution.Amount
	elsewhere  []InvoicePart
	sum        attribution.Amount // of elsewhere
	reconciles bool               // the lines of all months add up to it
}

// reconciliations compares the invoices of a division with their lines of all months.
func (l *ledger) reconciliations(result *attribution.Result) []InvoiceReconciliation {
	out := make([]InvoiceReconciliation, len(result.Invoices))
	for i, t := range result.Invoices {
		out[i].Reconciliation = t
		if away, ok := l.roundedAway[linesOf{invoiceName{t.Issuer, t.Account, t.Invoice, t.Currency}, t.Period}]; ok {
			out[i].RoundedAway = &away
		}
		s, spans := l.spans[invoiceName{t.Issuer, t.Account, t.Invoice, t.Currency}]
		if !spans {
			continue
		}
		x := &out[i]
		x.Elsewhere, x.Details = s.elsewhere, nil // only this month's part was compared
		whole := t.Attributed.Add(s.sum)
		x.Received, x.Difference = s.received, s.received.Sub(whole)
		x.DifferenceMinor = s.received.Minor(t.Currency).Sub(whole.Minor(t.Currency))
		if x.Status, x.After = attribution.Differs, x.Difference; s.reconciles {
			x.Status, x.After = SpansMonths, attribution.Amount{}
		}
	}
	return out
}
