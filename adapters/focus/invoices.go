package focus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// invoices reads Invoice Detail. The rows of an invoice may be anywhere in the file, so an
// invoice is complete only at the end of the file.
type invoices struct {
	sheet
	held  int64 // memory held, approximately, in bytes
	list  []*invoice
	named map[[3]string]*invoice
	lost  bool // a bad row did not name its invoice
}

// head has the values that all rows of an invoice share.
type head struct {
	currency, status                 string
	issued, due                      domain.Instant
	period                           domain.Interval
	paidIn, terms, order, referenced string
	generated                        bool
}

type invoice struct {
	key     [3]string // issuer, account, id
	head    head
	total   domain.Decimal
	details []domain.InvoiceDetail
	lines   []int
	seen    map[rowKey]int // line of each detail
	at      domain.Instant // of its last update
	refused int            // line for which it is refused; 0: not refused
}

// neededOfInvoice are the columns that a file must have. The other columns that FOCUS makes
// mandatory may be missing, with a warning.
var (
	neededOfInvoice = []string{
		"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
		"InvoiceDetailId", "InvoiceId", "InvoiceIssueStatus", "InvoiceIssuerName",
	}
	wantedOfInvoice = []string{"InvoiceDetailLastUpdated", "InvoiceIssueDate", "PaymentDueDate", "PaymentTerms", "ReferenceInvoiceId"}
)

// Limits of the details in an event.
const (
	maxDetails     = 10_000
	maxDetailBytes = 1 << 20
)

func (r *run) openInvoices(header []string, has func(string) bool) (dataset, error) {
	if v := r.opts.FocusVersion; v != "" && v != "1.4" {
		return nil, fmt.Errorf("this is Invoice Detail, which FOCUS %s does not have: it came with 1.4", v)
	}
	r.sum.FocusVersion = "1.4"
	s, err := r.openSheet(header, has, InvoiceDetails, neededOfInvoice, wantedOfInvoice, append([]string{columnGenerated}, invoiceColumns...))
	if err != nil {
		return nil, err
	}
	return &invoices{sheet: s, named: map[[3]string]*invoice{}}, nil
}

func (iv *invoices) row(rec tabular.Row) error {
	iv.take(rec.Fields)
	key := [3]string{iv.value("InvoiceIssuerName"), iv.value("BillingAccountId"), iv.value("InvoiceId")}
	for i, column := range []string{"InvoiceIssuerName", "BillingAccountId", "InvoiceId"} {
		if key[i] == "" {
			iv.lost = true
			return &refusal{field: column, reason: "is null, so the row belongs to no invoice"}
		}
	}
	inv := iv.named[key]
	if inv == nil {
		for i := range key {
			key[i] = strings.Clone(key[i])
		}
		inv = &invoice{key: key, seen: map[rowKey]int{}}
		iv.named[key] = inv
		iv.list = append(iv.list, inv)
		iv.held += int64(len(key[0])+len(key[1])+len(key[2])) + 512
	}
	err := iv.add(inv)
	var why *refusal
	if errors.As(err, &why) && inv.refused == 0 {
		inv.refused = iv.line
	}
	if iv.held > iv.opts.InvoiceBytes {
		return fmt.Errorf("%w: its invoices take more than %d bytes", tabular.ErrTooLarge, iv.opts.InvoiceBytes)
	}
	return err
}

// add adds the current row to its invoice.
func (iv *invoices) add(inv *invoice) error {
	h, updated, err := iv.head()
	if err != nil {
		return err
	}
	d := domain.InvoiceDetail{
		InvoiceDetailID: iv.value("InvoiceDetailId"), ChargeCategory: iv.value("ChargeCategory"),
		Description: iv.value("InvoiceDetailDescription"), Grain: iv.value("InvoiceDetailGrain"),
	}
	if d.InvoiceDetailID == "" {
		return &refusal{field: "InvoiceDetailId", reason: "is null"}
	}
	cost := iv.value("BilledCost")
	reason := "is null"
	var billed number
	if cost != "" {
		if billed, reason = parseAmount(cost); reason == "" && iv.opts.Strict && !billed.rest.IsZero() {
			reason = tooManyDecimals(-int(billed.rest.Exponent()))
		}
	}
	if reason != "" {
		return &refusal{field: "BilledCost", value: cost, reason: reason}
	}
	d.BilledCost = billed.kept
	if d.Grain != "" && !json.Valid([]byte(d.Grain)) {
		iv.warn("the column holds something that is not JSON and is kept as written", "InvoiceDetailGrain")
	}
	if len(inv.lines) == 0 {
		h.currency, h.status = strings.Clone(h.currency), strings.Clone(h.status)
		h.paidIn, h.terms = strings.Clone(h.paidIn), strings.Clone(h.terms)
		h.order, h.referenced = strings.Clone(h.order), strings.Clone(h.referenced)
		inv.head = h
		iv.held += int64(len(h.terms) + len(h.order) + len(h.referenced))
	} else if column := h.unlike(&inv.head); column != "" {
		reason := fmt.Sprintf("differs from line %d of the same invoice", inv.lines[0])
		return &refusal{field: column, value: iv.value(column), reason: reason}
	}
	id := keyOf([]byte(d.InvoiceDetailID + "\x00" + d.ChargeCategory + "\x00" + d.Grain))
	if first, twice := inv.seen[id]; twice {
		reason := fmt.Sprintf("is also the id of the detail in line %d, in the same category and grain", first)
		return &refusal{field: "InvoiceDetailId", value: d.InvoiceDetailID, reason: reason}
	}
	inv.seen[id] = iv.line
	inv.lines = append(inv.lines, iv.line)
	inv.total = inv.total.Add(d.BilledCost)
	if !billed.rest.IsZero() {
		iv.sum.Deviations[MoreDecimals]++
		iv.warn("BilledCost has more than 18 decimals: it is rounded half to even", "")
		of := invoiceRounded{issuer: inv.key[0], account: inv.key[1], invoice: inv.key[2], currency: h.currency}
		iv.round(of, billed.rest, domain.Decimal{})
	}
	inv.at = max(inv.at, updated)
	d.InvoiceDetailID, d.ChargeCategory = strings.Clone(d.InvoiceDetailID), strings.Clone(d.ChargeCategory)
	d.Description, d.Grain = strings.Clone(d.Description), strings.Clone(d.Grain)
	inv.details = append(inv.details, d)
	iv.held += int64(len(d.InvoiceDetailID)+len(d.ChargeCategory)+len(d.Description)+len(d.Grain)) + 256
	return nil
}

// head reads the values of the invoice, and when this row was last updated.
func (iv *invoices) head() (head, domain.Instant, error) {
	h := head{
		currency: iv.value("BillingCurrency"), status: iv.value("InvoiceIssueStatus"),
		paidIn: iv.value("PaymentCurrency"), terms: iv.value("PaymentTerms"), order: iv.value("PurchaseOrderNumber"),
		referenced: iv.value("ReferenceInvoiceId"), generated: strings.EqualFold(iv.value(columnGenerated), "true"),
	}
	var created, updated domain.Instant
	for _, t := range []struct {
		column string
		into   *domain.Instant
		needed bool
	}{
		{"BillingPeriodStart", &h.period.From, true}, {"BillingPeriodEnd", &h.period.To, true},
		{"InvoiceIssueDate", &h.issued, false}, {"PaymentDueDate", &h.due, false},
		{"InvoiceDetailCreated", &created, false}, {"InvoiceDetailLastUpdated", &updated, false},
	} {
		v := iv.value(t.column)
		if v == "" {
			if t.needed {
				return h, 0, &refusal{field: t.column, reason: "is null"}
			}
			continue
		}
		at, reason := iv.clock.parse(v)
		if reason != "" {
			return h, 0, &refusal{field: t.column, value: v, reason: reason}
		}
		*t.into = at
	}
	switch mark := iv.value(columnGenerated); {
	case mark != "" && !h.generated && !strings.EqualFold(mark, "false"):
		return h, 0, &refusal{field: columnGenerated, value: mark, reason: "is neither true nor false"}
	case h.period.Empty():
		return h, 0, &refusal{
			field:  "BillingPeriodEnd",
			value:  iv.value("BillingPeriodEnd"),
			reason: "is not after BillingPeriodStart " + h.period.From.String(),
		}
	case iv.opts.Currency != "" && h.currency != iv.opts.Currency:
		return h, 0, &refusal{
			field:  "BillingCurrency",
			value:  h.currency,
			reason: "is not " + iv.opts.Currency + ", the currency that the file is expected to be billed in",
		}
	}
	if h.paidIn != "" && h.paidIn != h.currency {
		iv.warn("the invoice is paid in another currency; amounts in it are not kept", h.paidIn)
	}
	return h, max(created, updated), nil
}

// unlike returns the first column in which two rows of an invoice differ, or "".
func (h *head) unlike(first *head) string {
	switch {
	case h.currency != first.currency:
		return "BillingCurrency"
	case h.status != first.status:
		return "InvoiceIssueStatus"
	case h.issued != first.issued:
		return "InvoiceIssueDate"
	case h.due != first.due:
		return "PaymentDueDate"
	case h.period.From != first.period.From:
		return "BillingPeriodStart"
	case h.period.To != first.period.To:
		return "BillingPeriodEnd"
	case h.paidIn != first.paidIn:
		return "PaymentCurrency"
	case h.terms != first.terms:
		return "PaymentTerms"
	case h.order != first.order:
		return "PurchaseOrderNumber"
	case h.referenced != first.referenced:
		return "ReferenceInvoiceId"
	case h.generated != first.generated:
		return columnGenerated
	}
	return ""
}

// end emits the invoices in the order of their first rows.
func (iv *invoices) end() error {
	for _, inv := range iv.list {
		if err := iv.ctx.Err(); err != nil {
			return err
		}
		if len(inv.lines) == 0 {
			continue // all of its rows were bad
		}
		iv.line = inv.lines[0]
		why := &refusal{
			field:  "InvoiceId",
			value:  inv.key[2],
			reason: fmt.Sprintf("is refused as a whole because of line %d", inv.refused),
		}
		if inv.refused == 0 {
			err := iv.hand(inv)
			if err == nil {
				continue
			}
			if !errors.As(err, &why) {
				return fmt.Errorf("line %d: %w", inv.lines[0], err)
			}
			why.reason += "; the invoice is refused as a whole"
		}
		for _, line := range inv.lines {
			iv.bad(line, why)
		}
	}
	if iv.lost {
		iv.warn("rows that name no invoice were not imported: the invoices of this file may be incomplete", "")
	}
	return nil
}

// hand emits one invoice.
func (iv *invoices) hand(inv *invoice) error {
	h := &inv.head
	e := &domain.InvoiceReceived{
		InvoiceIssuerName: inv.key[0], BillingAccountID: inv.key[1], InvoiceID: inv.key[2],
		Total:     domain.Money{Amount: inv.total, Currency: h.currency},
		IssueDate: h.issued, Status: h.status, PaymentDueDate: h.due, PaymentCurrency: h.paidIn, PaymentTerms: h.terms,
		PurchaseOrder: h.order, ReferenceInvoiceID: h.referenced, BillingPeriod: h.period,
		Details: inv.details, Generated: h.generated,
	}
	if _, err := attribution.AmountOf(inv.total); err != nil {
		return &refusal{
			field:  "BilledCost",
			value:  inv.total.String(),
			reason: "is the total of an invoice, and too large to reconcile with attributed lines",
		}
	}
	size := 0
	for _, d := range inv.details {
		size += len(d.InvoiceDetailID) + len(d.ChargeCategory) + len(d.Description) + len(d.Grain) + 32
	}
	if len(e.Details) > maxDetails || size > maxDetailBytes {
		iv.warn(fmt.Sprintf(
			"an invoice has more than %d details or %d bytes of them: only its total is kept",
			maxDetails, maxDetailBytes,
		), e.InvoiceID)
		e.Details = nil
	}
	at := inv.at
	if at == 0 {
		at = h.issued
	}
	if at == 0 {
		at = h.period.To
	}
	return iv.emit(at, e.InvoiceID, e)
}
