package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// InvoiceDetail is a row of an invoice's breakdown, as received.
type InvoiceDetail struct {
	ID     string // what lines name in their Detail
	Amount Amount
}

// DetailReconciliation compares rows of an invoice with the lines that name them.
type DetailReconciliation struct {
	// Detail is the id of the rows. "" is the remainder: the invoice's total without the rows that
	// lines name, and the lines that name none of its rows.
	Detail             string `json:"detail"`
	Rows               int    `json:"rows"` // rows that have the id
	Lines              int    `json:"lines"`
	Billed             Amount `json:"billed"`              // by the lines
	Received           Amount `json:"received"`            // by the rows
	Difference         Amount `json:"difference"`          // received less billed, before the rounding adjustment
	RoundingAdjustment Amount `json:"rounding_adjustment"` // the part of the difference that is rounding of the rows
	After              Amount `json:"after"`               // the difference less the rounding adjustment
}

// rowsOf adds up the rows of an invoice by id, in order.
func rowsOf(details []InvoiceDetail) []DetailReconciliation {
	var rows []DetailReconciliation
	for _, d := range details {
		n := len(rows)
		if n == 0 || rows[n-1].Detail != d.ID {
			rows = append(rows, DetailReconciliation{Detail: d.ID})
			n++
		}
		rows[n-1].Rows++
		rows[n-1].Received = rows[n-1].Received.Add(d.Amount)
	}
	return rows
}

// sortedDetails returns an invoice's rows in a fixed order, so that invoices with the same rows
// compare equal.
func sortedDetails(details []InvoiceDetail) []InvoiceDetail {
	details = slices.Clone(details)
	slices.SortFunc(details, compareDetails)
	return details
}

func compareDetails(a, b InvoiceDetail) int {
	return cmp.Or(strings.Compare(a.ID, b.ID), a.Amount.Cmp(b.Amount))
}

// count adds a line that names a row.
func (t *reconciliation) count(detail string, billed Amount) {
	byDetail := func(d DetailReconciliation, id string) int { return strings.Compare(d.Detail, id) }
	i, ok := slices.BinarySearchFunc(t.rows, detail, byDetail)
	if ok && detail != "" {
		t.rows[i].Lines++
		t.rows[i].Billed = t.rows[i].Billed.Add(billed)
	}
}

// compare computes which part of an invoice's difference is rounding of its rows, and reports
// whether that is all of it.
func (t *reconciliation) compare(ex *exceptions) (adjusted bool) {
	half, one := Amount{0, minorUnit(t.Currency) / 2}, Amount{0, minorUnit(t.Currency)}
	rest := DetailReconciliation{Lines: t.Lines, Billed: t.Attributed, Received: t.Received}
	adjusted = true
	for _, d := range t.rows {
		if d.Lines == 0 {
			continue
		}
		adjusted = d.reconcile(halves(half, d.Rows)) && adjusted
		t.Details = append(t.Details, d)
		rest.Lines, rest.Billed, rest.Received = rest.Lines-d.Lines, rest.Billed.Sub(d.Billed), rest.Received.Sub(d.Received)
		if !d.After.IsZero() {
			ex.amount(DetailDiffers, t.Issuer+"/"+t.Account+"/"+t.Invoice,
				fmt.Sprintf("detail %q is received as %s, and its %d lines add up to %s", d.Detail, d.Received, d.Lines, d.Billed),
				t.Currency, d.Lines, d.Billed, Amount{})
		}
	}
	adjusted = rest.reconcile(one) && adjusted
	if rest.Lines > 0 || !rest.Difference.IsZero() || len(t.Details) == 0 {
		t.Details = append(t.Details, rest)
	}
	return adjusted
}

// halves is n half minor units. n is capped at a number of rows that no invoice has.
func halves(half Amount, n int) Amount {
	return signed(u128{0, half.lo}.scale64(uint64(min(n, 1_000_000)), 1), false)
}

// reconcile computes the difference, and makes it the rounding adjustment if it is at most most. It
// reports whether the difference was fully explained.
func (d *DetailReconciliation) reconcile(most Amount) bool {
	d.Difference = d.Received.Sub(d.Billed)
	if d.Difference.Abs().Cmp(most) <= 0 {
		d.RoundingAdjustment = d.Difference
	}
	d.After = d.Difference.Sub(d.RoundingAdjustment)
	return d.After.IsZero()
}
