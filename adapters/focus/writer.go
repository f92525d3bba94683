package focus

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Writer writes Cost and Usage as CSV: the columns of FOCUS 1.4 in its order, then x_LineId,
// x_CorrectsLineId, x_CorrectionReason, x_FocusVersion and x_Generated, then the other columns
// given to [NewWriter]. Numbers are plain decimals with all their digits, times are RFC 3339 in
// UTC, and null is an empty field. Equal lines give equal bytes. If a line keeps the supplier's
// original text of a column (domain.AsWritten), and reading that text gives the value of the
// line, the original text is written.
//
// [Run] reads the same lines back, with two exceptions due to CSV and FOCUS: in a text, CR LF
// becomes LF and surrounding blanks are lost; and the texts NULL, null and (null) become null.
type Writer struct {
	csv    *csv.Writer
	other  []string // names of additional columns
	record []string
	begun  bool
}

// NewWriter returns a Writer to w. Additional columns, such as those in Other, come last, in the
// order given. Nothing is written before the first line or Flush.
func NewWriter(w io.Writer, other ...string) *Writer {
	return &Writer{csv: csv.NewWriter(w), other: slices.Clone(other)}
}

// WriteLine writes one line. If the line has a value in a column that this Writer does not have,
// WriteLine returns an error instead of losing the value.
func (w *Writer) WriteLine(l *domain.BillingLine) error { return w.write(l, "", "") }

// WriteCorrection writes a line that corrects another.
func (w *Writer) WriteCorrection(c *domain.BillingLineCorrected) error {
	if c.Corrects == "" {
		return fmt.Errorf("write line %q: it corrects a line without naming it", c.Line.LineID)
	}
	return w.write(&c.Line, c.Corrects, c.Reason)
}

func (w *Writer) write(l *domain.BillingLine, corrects, reason string) error {
	if err := w.begin(); err != nil {
		return err
	}
	r := w.record[:0]
	found := 0
	for i := range fields {
		f := &fields[i]
		if len(l.Other) > 0 {
			column := domain.AsWritten(f.name)
			if text, ok := l.Other[column]; ok && f.writtenAs(l, text) {
				r = append(r, text)
				if !slices.Contains(w.other, column) {
					found++
				}
				continue
			}
		}
		switch {
		case f.text != nil:
			r = append(r, *f.text(l))
		case f.number != nil:
			r = append(r, nullDecimal(*f.number(l)))
		case f.cost != nil:
			r = append(r, f.cost(l).String())
		default:
			r = append(r, f.time(l).String())
		}
	}
	r = append(r, l.LineID, corrects, reason, l.FocusVersion, mark(l.Generated))
	for _, name := range w.other {
		v, ok := l.Other[name]
		if ok {
			found++
		}
		r = append(r, v)
	}
	w.record = r
	if found < len(l.Other) {
		return fmt.Errorf(
			"write line %q: it has %d columns that are not among the %d additional columns of this file",
			l.LineID, len(l.Other)-found, len(w.other),
		)
	}
	return w.csv.Write(r)
}

// begin writes the header once.
func (w *Writer) begin() error {
	if w.begun {
		return nil
	}
	var header []string
	for i := range fields {
		header = append(header, fields[i].name)
	}
	header = append(header, columnLineID, columnCorrects, columnReason, columnFocusVersion, columnGenerated)
	header = append(header, w.other...)
	seen := map[string]bool{}
	for _, name := range header {
		switch {
		case fold(name) == "":
			return errors.New("write Cost and Usage: a column has no name")
		case seen[fold(name)]:
			return fmt.Errorf("write Cost and Usage: duplicate column %q", name)
		}
		seen[fold(name)] = true
	}
	w.begun = true
	return w.csv.Write(header)
}

// Flush writes buffered data, and the header of a file without lines. It returns the first error
// of any write.
func (w *Writer) Flush() error {
	if err := w.begin(); err != nil {
		return err
	}
	w.csv.Flush()
	return w.csv.Error()
}

// WriteInvoices writes Invoice Detail as CSV: the columns of FOCUS 1.4 in its order, then
// x_Generated, with one row for each detail of each invoice, in the order given. Columns that an
// InvoiceReceived does not have (creation and last update of a detail, amounts in the payment
// currency) stay empty.
//
// It refuses an invoice without details, an invoice whose details do not add up to its total,
// and a duplicate invoice, because they would be different when read back.
func WriteInvoices(w io.Writer, invoices []domain.InvoiceReceived) error {
	out := csv.NewWriter(w)
	if err := out.Write(append(slices.Clone(invoiceColumns), columnGenerated)); err != nil {
		return err
	}
	seen := map[string]bool{}
	record := make([]string, 0, len(invoiceColumns)+1)
	for i := range invoices {
		inv := &invoices[i]
		key := strings.Join([]string{inv.InvoiceIssuerName, inv.BillingAccountID, inv.InvoiceID}, "\x00")
		switch {
		case len(inv.Details) == 0:
			return fmt.Errorf(
				"write invoice %q of %s: it has no details, and Invoice Detail has no row for a total",
				inv.InvoiceID, inv.InvoiceIssuerName,
			)
		case seen[key]:
			return fmt.Errorf("write invoice %q of %s: it is a duplicate", inv.InvoiceID, inv.InvoiceIssuerName)
		}
		seen[key] = true
		sum := domain.Decimal{}
		for _, d := range inv.Details {
			sum = sum.Add(d.BilledCost)
		}
		if !sum.Equal(inv.Total.Amount) {
			return fmt.Errorf(
				"write invoice %q of %s: its details add up to %s, its total is %s",
				inv.InvoiceID, inv.InvoiceIssuerName, sum, inv.Total,
			)
		}
		for _, d := range inv.Details {
			record = record[:0]
			for _, name := range invoiceColumns {
				record = append(record, invoiceCell(name, inv, &d))
			}
			if err := out.Write(append(record, mark(inv.Generated))); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// invoiceCell returns the value of a column of Invoice Detail.
func invoiceCell(name string, inv *domain.InvoiceReceived, d *domain.InvoiceDetail) string {
	switch name {
	case "BilledCost":
		return d.BilledCost.String()
	case "BillingAccountId":
		return inv.BillingAccountID
	case "BillingCurrency":
		return inv.Total.Currency
	case "BillingPeriodEnd":
		return inv.BillingPeriod.To.String()
	case "BillingPeriodStart":
		return inv.BillingPeriod.From.String()
	case "ChargeCategory":
		return d.ChargeCategory
	case "InvoiceDetailDescription":
		return d.Description
	case "InvoiceDetailGrain":
		return d.Grain
	case "InvoiceDetailId":
		return d.InvoiceDetailID
	case "InvoiceId":
		return inv.InvoiceID
	case "InvoiceIssueDate":
		return inv.IssueDate.String()
	case "InvoiceIssueStatus":
		return inv.Status
	case "InvoiceIssuerName":
		return inv.InvoiceIssuerName
	case "PaymentCurrency":
		return inv.PaymentCurrency
	case "PaymentDueDate":
		return inv.PaymentDueDate.String()
	case "PaymentTerms":
		return inv.PaymentTerms
	case "PurchaseOrderNumber":
		return inv.PurchaseOrder
	case "ReferenceInvoiceId":
		return inv.ReferenceInvoiceID
	}
	return ""
}

func nullDecimal(n domain.NullDecimal) string {
	if !n.Valid {
		return ""
	}
	return n.Decimal.String()
}

// mark returns "true", or "" for a flag that is not set.
func mark(set bool) string {
	if set {
		return "true"
	}
	return ""
}
