package costs

import (
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// LedgerLine is one line of a supplier's bill, with the event that recorded it.
type LedgerLine struct {
	domain.BillingLine
	Corrects string // the line that it corrects, "" for none
	Reason   string // of the correction
	Event    LedgerEvent
	Stated   int            // number of times that the line was stated; the last counts
	Since    domain.Instant // when it was first stated
	// Before is the last earlier statement with another amount, nil for none.
	Before *domain.BillingLine
}

// LedgerEvent is the place of an event in the log.
type LedgerEvent struct {
	Type        domain.Type    `json:"type"`
	Topic       domain.Topic   `json:"topic"`
	Partition   int            `json:"partition"`
	Key         string         `json:"key"` // of the record
	Source      string         `json:"source"`
	Incarnation uint64         `json:"incarnation"`
	Sequence    uint64         `json:"sequence"`
	Line        uint64         `json:"line,omitempty"` // of the imported file: see [domain.Envelope]
	Time        domain.Instant `json:"time"`
	Appended    domain.Instant `json:"appended"`
}

// RawRow is the row of an imported file that an event was read from.
type RawRow struct {
	File    string   `json:"file"`
	SHA256  string   `json:"sha256"` // of the file
	Line    uint64   `json:"line"`   // at which the row starts
	Columns []string `json:"columns"`
	Values  []string `json:"values"` // as the file has them
}

func ledgerEvent(k projections.Key, v *projections.Version) LedgerEvent {
	return LedgerEvent{
		Type: v.Event.Type(), Topic: domain.TopicBilling,
		Partition: domain.PartitionOf([]byte(k.Scope), domain.TopicBilling.Partitions()), Key: k.Scope,
		Source: v.Order.Source, Incarnation: v.Order.Incarnation, Sequence: v.Order.Sequence, Line: v.Line,
		Time: v.Order.Time, Appended: v.Order.Appended,
	}
}

// ledgerLine returns what the ledger has of a line. It returns nil if the supplier removed it.
func ledgerLine(k projections.Key, h *projections.History) *LedgerLine {
	v := h.Latest()
	if billingLine(v) == nil {
		return nil
	}
	l := &LedgerLine{Event: ledgerEvent(k, v), Since: h.Versions[0].Order.Appended}
	for i := range h.Versions {
		if billingLine(&h.Versions[i]) != nil {
			l.Stated++
		}
	}
	if ev, ok := v.Event.(*domain.BillingLineCorrected); ok {
		l.Corrects, l.Reason = ev.Corrects, ev.Reason
	}
	l.BillingLine = *billingLine(v)
	for i := len(h.Versions) - 2; i >= 0 && l.Before == nil; i-- {
		if b := billingLine(&h.Versions[i]); b != nil && !sameAmounts(b, &l.BillingLine) {
			l.Before = b
		}
	}
	return l
}

// billingLine returns the line that an event states, or nil if it removes it.
func billingLine(v *projections.Version) *domain.BillingLine {
	switch ev := v.Event.(type) {
	case *domain.BillingLineCorrected:
		return &ev.Line
	case *domain.BillingLineRemoved:
		return nil
	default:
		return &ev.(*domain.BillingLineRecorded).Line
	}
}

// ledgerName names a line or an invoice in reports.
func ledgerName(issuer, account, id string) string {
	return domain.AccountKey(issuer, account) + "|" + id
}

// splitLedgerName returns the account's key and the id that [ledgerName] joined. It reports false for a text that is no
// such name.
func splitLedgerName(name string) (account, id string, ok bool) {
	bars := 0
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '\\':
			i++
		case '|':
			if bars++; bars == 2 {
				return name[:i], name[i+1:], true
			}
		}
	}
	return "", "", false
}

func (l *LedgerLine) name() string {
	return ledgerName(l.InvoiceIssuerName, l.BillingAccountID, l.LineID)
}

// EachLine calls yield with every line of a billing month (see [projections.MonthOf]), by issuer
// and account and then by line id, until yield returns an error. Every line id counts once, with
// its last statement, unless the supplier removed it; a correction is a line of its own. An accrual's lines do not count
// once an invoice of the account for the month is there. yield MUST NOT change the line.
func EachLine(view projections.View, month domain.Interval, yield func(*LedgerLine) error) error {
	if month != projections.BillingMonth(month.From) {
		return fmt.Errorf("read lines from %s to %s: want a calendar month in UTC", month.From, month.To)
	}
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}
	accruals := accrued{view: view}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		line := ledgerLine(k, row.(*projections.History))
		if line == nil {
			return nil
		}
		if replaced, err := accruals.replaced(&line.BillingLine); replaced || err != nil {
			return err
		}
		return yield(line)
	})
	if err != nil {
		return fmt.Errorf("read billing lines: %w", err)
	}
	return nil
}

// statedSince returns when a line of a billing month that counts was first stated, by its name in reports; 0 if the name
// is of no such line.
func (a *accrued) statedSince(month domain.Interval, name string) (domain.Instant, error) {
	scope, id, ok := splitLedgerName(name)
	if !ok {
		return 0, nil
	}
	k := projections.Key{Table: projections.TableBillingLines, Scope: scope, ID: id, Hour: projections.MonthStart(month.From)}
	row, err := a.view.Get(k)
	if err != nil {
		return 0, fmt.Errorf("read billing line %s: %w", name, err)
	}
	h, _ := row.(*projections.History)
	if h == nil {
		return 0, nil
	}
	l := ledgerLine(k, h)
	if l == nil {
		return 0, nil
	}
	if replaced, err := a.replaced(&l.BillingLine); replaced || err != nil {
		return 0, err
	}
	return l.Since, nil
}

// EachHistory calls yield with the history of every line of a billing month of an account, with
// those that the supplier removed, for which line is nil. It is otherwise as [EachLine]. The history
// grows with every statement about the line.
func EachHistory(view projections.View, month domain.Interval, account string, yield func(line *LedgerLine, statements int) error) error {
	at := projections.MonthStart(month.From)
	q := projections.Query{Table: projections.TableBillingLines, From: at, To: at + 1}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		var of string
		if ev, ok := h.Latest().Event.(*domain.BillingLineRemoved); ok {
			of = ev.BillingAccountID
		} else {
			of = billingLine(h.Latest()).BillingAccountID
		}
		if of != account {
			return nil
		}
		return yield(ledgerLine(k, h), len(h.Versions))
	})
	if err != nil {
		return fmt.Errorf("read billing lines: %w", err)
	}
	return nil
}

// BillingMonths returns the months with lines in the ledger, in order.
func BillingMonths(view projections.View) ([]domain.Interval, error) {
	tallies, err := projections.TalliesOf(view)
	if err != nil {
		return nil, fmt.Errorf("list the months with bills: %w", err)
	}
	var hours []int64
	for _, t := range tallies {
		if at, known := slices.BinarySearch(hours, t.Month); !known && t.Table == projections.TableBillingLines && t.Rows > 0 {
			hours = slices.Insert(hours, at, t.Month)
		}
	}
	months := make([]domain.Interval, len(hours))
	for i, h := range hours {
		months[i] = projections.BillingMonth(domain.Instant(h) * domain.Hour)
	}
	return months, nil
}
