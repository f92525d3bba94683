package focus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"quartermaster/domain"
)

// lines reads Cost and Usage.
type lines struct {
	*run
	cells []*cell
	// order lists the columns by name, for the id of a row.
	order  []*cell
	named  map[string]*cell
	billed *cell // of BilledCost

	event     domain.BillingLineRecorded
	corrected domain.BillingLineCorrected
	other     map[string]string
	scratch   []byte
	// seen remembers every row by 16 bytes of SHA-256: what is there twice.
	seen map[rowKey]rowSeen
	// currencies is the first currency of each invoice, by its key.
	currencies map[string]string
	// most is the largest quantity of each unit of machine time that was seen.
	most map[string]domain.NullDecimal
}

type rowKey [16]byte

type rowSeen struct {
	line  int32 // of the first
	times int32
}

// cell is one column of the file and its value in the row at hand.
type cell struct {
	name  string // FOCUS's spelling, else the file's
	field *field // nil for columns that FOCUS 1.4 does not define
	ours  bool   // not to be kept in Other
	value string // trimmed, "" for null
	// What was read last, because times and quantities repeat from row to row
	// and costs from column to column.
	last   []byte // as written
	time   domain.Instant
	number domain.Decimal
	plain  []byte // as the id of a row has it
}

// repeats reports whether the value was read last.
func (c *cell) repeats() bool { return len(c.last) > 0 && string(c.last) == c.value }

// maxInvoicesWatched bounds the memory for currencies of invoices.
const maxInvoicesWatched = 1 << 16

func (r *run) openLines(header []string, has func(string) bool) *lines {
	ls := &lines{
		run: r, named: map[string]*cell{}, other: map[string]string{},
		seen: map[rowKey]rowSeen{}, currencies: map[string]string{}, most: map[string]domain.NullDecimal{},
	}
	known := map[string]*field{}
	for i := range fields {
		known[fold(fields[i].name)] = &fields[i]
	}
	ours := map[string]string{}
	for _, name := range []string{columnLineID, columnCorrects, columnReason, columnFocusVersion, columnGenerated} {
		ours[fold(name)] = name
	}
	if !has(columnCorrects) {
		ours[fold(columnCorrectsShort)] = columnCorrects
	}
	for _, name := range header {
		c := &cell{name: strings.Clone(name)}
		if f := known[fold(name)]; f != nil {
			c.name, c.field = f.name, f
		} else if n := ours[fold(name)]; n != "" {
			c.name, c.ours = n, true
		} else if fold(name) == fold(columnProvider) {
			c.name = columnProvider
		} else if fold(name) == fold(columnPublisher) {
			c.name = columnPublisher
		}
		ls.cells = append(ls.cells, c)
		if c.name != "" {
			ls.named[c.name] = c
			ls.order = append(ls.order, c)
		}
	}
	ls.billed = ls.named["BilledCost"]
	slices.SortFunc(ls.order, func(a, b *cell) int { return strings.Compare(a.name, b.name) })
	return ls
}

// columnCorrectsShort is another name of x_CorrectsLineId.
const columnCorrectsShort = "x_Corrects"

func (ls *lines) end() error { return nil }

// value returns what stands in a column, "" for null and when there is no such
// column.
func (ls *lines) value(column string) string {
	if c := ls.named[column]; c != nil {
		return c.value
	}
	return ""
}

func (ls *lines) refuse(column, reason string) error {
	return &refusal{field: column, value: ls.value(column), reason: reason}
}

// row turns one row into one event.
func (ls *lines) row(values []string) error {
	l := &ls.event.Line
	*l = domain.BillingLine{}
	clear(ls.other)
	for i, c := range ls.cells {
		c.value = strings.TrimSpace(values[i])
		if isNull(c.value) {
			ls.warn("the text "+c.value+" is read as null", c.name)
			c.value = ""
		}
		if err := ls.read(l, c); err != nil {
			return err
		}
	}
	if err := ls.derive(l); err != nil {
		return err
	}
	if err := ls.plausible(l); err != nil {
		return err
	}
	id, first, err := ls.identify(l)
	if err != nil {
		return err
	}
	var event domain.Event = &ls.event
	if corrects := ls.value(columnCorrects); corrects != "" {
		if corrects == l.LineID {
			return ls.refuse(columnCorrects, "is the line itself")
		}
		ls.corrected = domain.BillingLineCorrected{Line: *l, Corrects: corrects, Reason: ls.value(columnReason)}
		event = &ls.corrected
	}
	if err := ls.emit(trueAt(l), l.LineID, event); err != nil {
		var why *refusal
		if errors.As(err, &why) {
			switch why.field {
			case "corrects":
				why.field = columnCorrects
			case "Other":
				why.field = ls.wrongOther(l)
			}
			why.value = ls.value(why.field)
			why.reason = strings.TrimPrefix(why.reason, strconv.Quote(why.value)+" ")
		}
		return err
	}
	ls.remember(l, id, first)
	return nil
}

// wrongOther returns which of the other columns is why a line is refused.
func (ls *lines) wrongOther(l *line) string {
	for _, c := range ls.order {
		if v, ok := l.Other[c.name]; ok {
			alone := *l
			alone.Other = map[string]string{c.name: v}
			if domain.Validate(&domain.Envelope{Time: 1, Event: &domain.BillingLineRecorded{Line: alone}}) != nil {
				return c.name
			}
		}
	}
	return "" // it is their number
}

// read puts the value of one column into the line.
func (ls *lines) read(l *line, c *cell) error {
	f := c.field
	switch {
	case c.value == "":
		if f != nil && f.needed {
			return &refusal{field: c.name, reason: "is null, and no charge can be attributed without it"}
		}
	case f == nil && c.name == "":
		ls.warn("the values of a column without a name are left out", "")
	case f == nil && c.ours:
	case f == nil:
		ls.other[c.name] = c.value
	case f.text != nil:
		*f.text(l) = c.value
		if f.json && !json.Valid([]byte(c.value)) {
			ls.warn("the column holds something that is not JSON and is kept as written", c.name)
		}
	case f.time != nil:
		if !c.repeats() {
			t, reason := ls.clock.parse(c.value)
			if reason != "" {
				return &refusal{field: c.name, value: c.value, reason: reason}
			}
			c.last, c.time = append(c.last[:0], c.value...), t
			c.plain = t.Time().AppendFormat(c.plain[:0], time.RFC3339Nano)
		}
		*f.time(l) = c.time
	default:
		if reason := ls.readNumber(c); reason != "" {
			return &refusal{field: c.name, value: c.value, reason: reason}
		}
		if f.cost != nil {
			*f.cost(l) = c.number
		} else {
			*f.number(l) = domain.NullDecimal{Decimal: c.number, Valid: true}
		}
	}
	return nil
}

// readNumber reads the number in a cell, or says why it cannot.
func (ls *lines) readNumber(c *cell) string {
	if c.repeats() {
		return ""
	}
	// Most costs of a line are what is billed, whose bounds are the narrowest.
	if billed := ls.billed; string(billed.last) == c.value {
		c.number, c.plain = billed.number, append(c.plain[:0], billed.plain...)
	} else {
		parse := parseDecimal
		if c.field.divided {
			parse = parseAmount
		}
		d, reason := parse(c.value)
		if reason != "" {
			return reason
		}
		c.number, c.plain = d, appendPlain(c.plain[:0], d)
	}
	c.last = append(c.last[:0], c.value...)
	return ""
}

// derive fills in what older versions say in other columns, and what only we
// write.
func (ls *lines) derive(l *line) error {
	if len(ls.other) > 0 {
		l.Other = ls.other
	}
	if l.ServiceProviderName == "" {
		l.ServiceProviderName = ls.value(columnProvider)
	}
	if l.InvoiceIssuerName == "" {
		for _, column := range []string{columnProvider, columnPublisher} {
			if v := ls.value(column); v != "" {
				ls.warn("InvoiceIssuerName is null and is taken from "+column, v)
				l.InvoiceIssuerName = v
				break
			}
		}
	}
	if l.InvoiceIssuerName == "" {
		return ls.refuse("InvoiceIssuerName", "is null, and no other column says who issued the invoice")
	}
	l.FocusVersion = ls.sum.FocusVersion
	if v := ls.value(columnFocusVersion); v != "" && ls.opts.FocusVersion == "" {
		l.FocusVersion = v
	}
	switch strings.ToLower(ls.value(columnGenerated)) {
	case "", "false":
	case "true":
		l.Generated = true
	default:
		return ls.refuse(columnGenerated, "is neither true nor false")
	}
	return nil
}

// plausible refuses what FOCUS does not allow and no single column shows.
func (ls *lines) plausible(l *line) error {
	correction := l.ChargeClass == "Correction"
	switch {
	case l.BillingPeriodEnd <= l.BillingPeriodStart:
		return ls.refuse("BillingPeriodEnd", "is not after BillingPeriodStart "+l.BillingPeriodStart.String())
	case l.ChargePeriodEnd <= l.ChargePeriodStart:
		return ls.refuse("ChargePeriodEnd", "is not after ChargePeriodStart "+l.ChargePeriodStart.String())
	case ls.opts.Currency != "" && l.BillingCurrency != ls.opts.Currency:
		return ls.refuse("BillingCurrency", "is not "+ls.opts.Currency+", in which the file is expected to be billed")
	case correction || l.ChargeCategory != "Usage":
		// Corrections are of earlier charges, purchases for terms to come.
	case l.ChargePeriodStart >= l.BillingPeriodEnd:
		return ls.refuse("ChargePeriodStart", "is usage after the end of the billing period "+l.BillingPeriodEnd.String()+", before it can have happened")
	case l.ChargePeriodEnd <= l.BillingPeriodStart:
		ls.warn("usage from before its billing period, without ChargeClass Correction: it was billed late", "")
	}
	if err := ls.dividable(l); err != nil {
		return err
	}
	if correction || l.ChargeCategory != "Usage" && l.ChargeCategory != "Purchase" || takenBack(l) {
		return nil
	}
	for _, q := range []struct {
		column string
		value  domain.NullDecimal
	}{
		{"ConsumedQuantity", l.ConsumedQuantity}, {"PricingQuantity", l.PricingQuantity}, {"CommitmentDiscountQuantity", l.CommitmentDiscountQuantity},
	} {
		if q.value.Valid && q.value.Decimal.IsNegative() {
			return ls.refuse(q.column, "is negative, which only a correction is or a charge that is taken back with a negative cost")
		}
	}
	return nil
}

// takenBack reports whether a charge lowers the bill: within an open period
// suppliers take back charges without ChargeClass Correction.
func takenBack(l *line) bool {
	if l.BilledCost.IsNegative() {
		return true
	}
	for _, n := range []domain.NullDecimal{l.EffectiveCost, l.ContractedCost, l.ListCost} {
		if n.Valid && n.Decimal.IsNegative() {
			return true
		}
	}
	return false
}

// trueAt returns when a charge became true: the end of its charge period where
// that lies in the billing period, and otherwise (corrections, terms paid in
// advance, late usage) the end of the billing period, when it was known at the
// latest. No replay of history can so use a charge before it could be known.
func trueAt(l *line) domain.Instant {
	if l.ChargePeriodEnd > l.BillingPeriodStart && l.ChargePeriodEnd <= l.BillingPeriodEnd {
		return l.ChargePeriodEnd
	}
	return l.BillingPeriodEnd
}

// identify gives the line its id: x_LineId where the file has one, else one
// made of the row itself. See the package comment.
func (ls *lines) identify(l *line) (rowKey, rowSeen, error) {
	if id := ls.value(columnLineID); id != "" {
		b := append(ls.scratch[:0], l.InvoiceIssuerName...)
		b = append(append(append(append(b, 0), l.BillingAccountID...), 0), id...)
		ls.scratch = b
		key := keyOf(b)
		if first, ok := ls.seen[key]; ok {
			return key, first, ls.refuse(columnLineID, fmt.Sprintf("is also the id of line %d", first.line))
		}
		l.LineID = id
		return key, rowSeen{}, nil
	}
	b := ls.scratch[:0]
	for _, c := range ls.order {
		if c.value == "" {
			continue
		}
		b = append(append(b, c.name...), '=')
		from := len(b)
		if f := c.field; f == nil || f.text != nil {
			b = append(b, c.value...)
		} else {
			b = append(b, c.plain...)
		}
		// The length behind each value keeps two rows from reading alike.
		b = append(strconv.AppendInt(append(b, ' '), int64(len(b)-from), 10), '\n')
	}
	ls.scratch = b
	key := keyOf(b)
	first := ls.seen[key]
	l.LineID = hex.EncodeToString(key[:])
	if first.times > 0 {
		l.LineID += "-" + strconv.Itoa(int(first.times)+1)
	}
	return key, first, nil
}

func keyOf(b []byte) rowKey {
	sum := sha256.Sum256(b)
	return rowKey(sum[:16])
}

// remember notes a line that went in, and warns of what only the invoice can
// settle.
func (ls *lines) remember(l *line, key rowKey, first rowSeen) {
	if first.times > 0 {
		ls.warn(fmt.Sprintf("this row equals the one in line %d, and both count: the invoice must tell whether that is one charge too many", first.line), "")
		first.times++
	} else {
		first = rowSeen{line: int32(min(ls.line, math.MaxInt32)), times: 1}
	}
	ls.seen[key] = first

	// Where suppliers name no invoice, the account has one for the period.
	invoice := l.InvoiceID
	if invoice == "" {
		invoice = l.BillingPeriodStart.String()
	}
	b := append(ls.scratch[:0], l.InvoiceIssuerName...)
	b = append(append(append(append(b, 0), l.BillingAccountID...), 0), invoice...)
	ls.scratch = b
	switch other, ok := ls.currencies[string(b)]; {
	case ok && other != l.BillingCurrency:
		ls.warn("one invoice is billed in two currencies", invoice+" in "+other+" and "+l.BillingCurrency)
	case !ok && len(ls.currencies) < maxInvoicesWatched:
		ls.currencies[string(b)] = strings.Clone(l.BillingCurrency)
	}
}
