package focus

import (
	"cmp"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// lines reads Cost and Usage.
type lines struct {
	*run
	cells []*cell
	// order has the columns in the order in which the id of a row has them.
	order  []*cell
	named  map[string]*cell
	billed *cell // of BilledCost
	length int   // bytes of the values given
	// hashed is what the id of the row before is the hash of: coded of each column in order. A value of the same
	// length replaces that of the row before in it; a value of another length makes it stale.
	hashed []byte
	stale  bool
	// begun is the state of the hash after the first head bytes of hashed, which are of the columns that seldom differ
	// from row to row, unless one of them changed.
	begun   []byte
	head    int
	another bool
	hasher  resumable
	// Columns that every row is asked for; nil if the file has none.
	lineID, corrects, provider, focusVersion, generated *cell

	known     map[string]*field // by name
	found     []deviation       // of the current row
	current   line              // the values of the columns, in the current row
	event     domain.BillingLineRecorded
	corrected domain.BillingLineCorrected
	other     map[string]string // columns without a field, and what the row adds to them
	added     []string          // those that the row added
	scratch   []byte
	watched   invoiceOf   // of the row before
	usable    [2]quantity // the last PricingQuantity and ConsumedQuantity that no other column could make unusable
	// seen has every row by 16 bytes of its SHA-256, to detect duplicates.
	seen *rowsSeen
	// currencies is the first currency of each invoice, by its key.
	currencies map[string]string
	// issuers has the issuers that the rows of the file name; nil until a row names none.
	issuers *issuers
	// most caches the result of mostOf by unit.
	most map[string]domain.NullDecimal
}

// resumable is a hash whose state can be kept, as those of the standard library are.
type resumable interface {
	hash.Hash
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// cell is one column of the file and its value in the current row. Most values repeat from row to row. They are
// read once: current, other, value and coded then stay as they are.
type cell struct {
	name  string // FOCUS's spelling, else the file's
	field *field // nil for columns that FOCUS 1.4 does not define
	ours  bool   // not kept in Other
	given string // the value in the file
	once  bool   // reading the value again would change nothing and report nothing
	value string // trimmed, "" for null
	coded []byte // its part in what the id of a row is the hash of; empty for null
	at    int    // of coded in hashed; -1 for a column that is not part of it
	// differs means that the value may well be another in the next row, so that hashed has it behind those that repeat.
	differs bool
	// from and to are where the value is in coded.
	from, to int
	// The last parsed value, because times and quantities repeat from row to row and costs from
	// column to column.
	last   []byte // as written
	time   domain.Instant
	number number
	plain  []byte // its form in the id of a row
}

// repeats reports whether the value equals the last parsed value.
func (c *cell) repeats() bool { return len(c.last) > 0 && string(c.last) == c.value }

// maxInvoicesWatched bounds the memory for the currencies of invoices.
const maxInvoicesWatched = 1 << 16

func (r *run) openLines(header []string, has func(string) bool) *lines {
	ls := &lines{
		run: r, named: map[string]*cell{}, other: map[string]string{}, known: map[string]*field{},
		seen: &rowsSeen{}, currencies: map[string]string{}, most: map[string]domain.NullDecimal{},
		hasher: sha256.New().(resumable), another: true,
	}
	if p := r.opts.Parts; p != nil {
		if p.seen == nil {
			p.seen = ls.seen
		}
		ls.seen = p.seen
	}
	known := map[string]*field{}
	for i := range fields {
		known[fold(fields[i].name)] = &fields[i]
		ls.known[fields[i].name] = &fields[i]
	}
	ours := map[string]string{}
	for _, name := range []string{columnLineID, columnCorrects, columnReason, columnFocusVersion, columnGenerated} {
		ours[fold(name)] = name
	}
	if !has(columnCorrects) {
		ours[fold(columnCorrectsShort)] = columnCorrects
	}
	for _, name := range header {
		c := &cell{name: strings.Clone(name), at: -1}
		if f := known[fold(name)]; f != nil {
			c.name, c.field = f.name, f
		} else if n := ours[fold(name)]; n != "" {
			c.name, c.ours = n, true
		} else if fold(name) == fold(columnProvider) {
			c.name = columnProvider
		} else if fold(name) == fold(columnPublisher) {
			c.name = columnPublisher
		} else if fold(name) == fold(columnSubcategory) {
			c.name = columnSubcategory
		} else if fold(name) == fold(columnIssuerSource) {
			c.name = columnIssuerSource
		}
		ls.cells = append(ls.cells, c)
		if c.name != "" {
			ls.named[c.name] = c
			if !slices.ContainsFunc(r.opts.ExportTime, func(s string) bool { return fold(s) == fold(c.name) }) {
				c.at, ls.order = 0, append(ls.order, c)
				c.differs = c.field == nil || c.field.text == nil || slices.Contains(differing, c.name)
			}
		}
	}
	ls.billed = ls.named["BilledCost"]
	ls.lineID, ls.corrects, ls.provider = ls.named[columnLineID], ls.named[columnCorrects], ls.named[columnProvider]
	ls.focusVersion, ls.generated = ls.named[columnFocusVersion], ls.named[columnGenerated]
	slices.SortFunc(ls.order, func(a, b *cell) int {
		if a.differs == b.differs {
			return strings.Compare(a.name, b.name)
		}
		if b.differs {
			return -1
		}
		return 1
	})
	return ls
}

// differing are texts that differ from row to row, as times, numbers and columns that FOCUS does not define may.
var differing = []string{"ResourceId", "ResourceName", "Tags"}

// columnCorrectsShort is an alias of x_CorrectsLineId.
const columnCorrectsShort = "x_Corrects"

func (ls *lines) end() error { return nil }

// value returns the value of a column, or "" if it is null or the column does not exist.
func (ls *lines) value(column string) string {
	return ls.named[column].text()
}

// text returns the value in the current row, "" if there is no such column.
func (c *cell) text() string {
	if c == nil {
		return ""
	}
	return c.value
}

func (ls *lines) refuse(column, reason string) error {
	return &refusal{field: column, value: ls.value(column), reason: reason}
}

// maxRepeated bounds the bytes of a row whose values are compared with those of the next: a value that repeats
// keeps the text of the row that it came from.
const maxRepeated = 8 << 10

// row turns one row into one event.
func (ls *lines) row(rec tabular.Row) error {
	for _, name := range ls.added {
		delete(ls.other, name)
		ls.readAgain(name)
	}
	ls.added, ls.found = ls.added[:0], ls.found[:0]
	changed := rec.Changed
	for i, c := range ls.cells {
		differs := false
		if changed == nil {
			differs = rec.Fields[i] != c.given
		} else if len(changed) > 0 && changed[0] == i {
			differs, changed = true, changed[1:]
		}
		if c.once && !differs {
			continue
		}
		if err := ls.take(c, rec.Fields[i]); err != nil {
			return err
		}
	}
	if ls.length > maxRepeated {
		for _, c := range ls.cells {
			c.once = false
		}
		ls.valid = domain.LineValidator{}
	}
	l := &ls.event.Line
	*l = ls.current
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
	corrects := ls.corrects.text()
	if corrects == l.LineID && corrects != "" {
		return ls.refuse(columnCorrects, "is the line itself")
	}
	for {
		var event domain.Event = &ls.event
		if corrects != "" {
			ls.corrected = domain.BillingLineCorrected{Line: *l, Corrects: corrects, Reason: ls.value(columnReason)}
			event = &ls.corrected
		}
		err := ls.emit(trueAt(l), l.LineID, event)
		if err == nil {
			break
		}
		var why *refusal
		if !errors.As(err, &why) {
			return err
		}
		switch why.field {
		case "corrects":
			why.field = columnCorrects
		case "Other":
			why.field = ls.wrongOther(l)
		}
		if !ls.settle(l, why.field) {
			why.value = ls.value(why.field)
			why.reason = strings.TrimPrefix(why.reason, strconv.Quote(why.value)+" ")
			return err
		}
	}
	ls.remember(l, id, first)
	return nil
}

// settle replaces a value that the ledger would refuse by a valid one, if attribution does not
// need the column. It reports false if the row must be refused.
func (ls *lines) settle(l *line, column string) bool {
	if ls.opts.Strict {
		return false
	}
	if v, ok := ls.other[column]; ok {
		text := cleaned(v, maxKept)
		if text == v {
			return false // the name of the column is invalid
		}
		ls.add(column, text)
		ls.found = append(ls.found, deviation{BrokenText, column, ""})
		return true
	}
	f := ls.known[column]
	if f == nil {
		return false
	}
	written := ls.value(column)
	if f.text != nil {
		written = *f.text(l)
	}
	kind, ok := f.settle(l)
	if !ok {
		return false
	}
	d := deviation{kind: kind, column: column}
	if kind == UnknownValue {
		d.value = written
	}
	ls.setAside(d, written)
	l.Other = ls.other
	return true
}

// setAside keeps the original text of a column and records the deviation.
func (ls *lines) setAside(d deviation, written string) {
	ls.add(domain.AsWritten(d.column), cleaned(written, maxKept))
	ls.found = append(ls.found, d)
}

// add sets a column of Other in the current row alone, also if the file has that column.
func (ls *lines) add(column, value string) {
	ls.other[column] = value
	ls.added = append(ls.added, column)
	ls.readAgain(column)
}

// readAgain has a column of the file read although its value may repeat.
func (ls *lines) readAgain(column string) {
	if c := ls.named[column]; c != nil {
		c.once = false
	}
}

// wrongOther returns the custom column for which a line is refused.
func (ls *lines) wrongOther(l *line) string {
	for _, c := range ls.cells {
		if v, ok := l.Other[c.name]; ok {
			alone := *l
			alone.Other = map[string]string{c.name: v}
			if domain.Validate(&domain.Envelope{Time: 1, Event: &domain.BillingLineRecorded{Line: alone}}) != nil {
				return c.name
			}
		}
	}
	return "" // there are too many of them
}

// take reads the value of a column.
func (ls *lines) take(c *cell, given string) error {
	ls.length += len(given) - len(c.given)
	c.given, c.once = given, true
	c.value = strings.TrimSpace(given)
	if isNull(c.value) {
		ls.notice(c, "the text "+c.value+" is read as null")
		c.value = ""
	}
	if err := ls.parse(c); err != nil {
		c.once = false
		return err
	}
	switch f := c.field; {
	case c.at < 0:
	case f == nil || f.text != nil || c.value == "":
		encode(ls, c, c.value)
	default:
		encode(ls, c, c.plain)
	}
	return nil
}

// notice warns of a value, in every row that has it.
func (ls *lines) notice(c *cell, reason string) {
	c.once = false
	ls.warn(reason, c.name)
}

// parse parses the value of one column into the line.
func (ls *lines) parse(c *cell) error {
	l, f := &ls.current, c.field
	switch {
	case f == nil && c.name == "":
		if c.value != "" {
			ls.notice(c, "the values of a column without a name are left out")
		}
	case f == nil && c.ours:
	case f == nil && c.value == "":
		delete(ls.other, c.name)
	case f == nil:
		ls.other[c.name] = c.value
	case c.value == "":
		f.clear(l)
		if f.needed {
			return &refusal{field: c.name, reason: "is null, but attribution needs it"}
		}
	case f.text != nil:
		*f.text(l) = c.value
		if f.json && !json.Valid([]byte(c.value)) {
			ls.notice(c, "the column holds something that is not JSON and is kept as written")
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
		reason := ls.readNumber(c)
		rounded := reason == "" && !c.number.rest.IsZero()
		switch {
		case rounded && ls.opts.Strict:
			scale := -int(c.number.rest.Exponent())
			return &refusal{field: c.name, value: c.value, reason: tooManyDecimals(scale)}
		case rounded:
			c.once = false
			ls.setAside(deviation{kind: MoreDecimals, column: c.name}, c.value)
		case reason != "" && (f.decides || ls.opts.Strict):
			return &refusal{field: c.name, value: c.value, reason: reason}
		case reason != "":
			c.once = false
			c.plain = append(c.plain[:0], c.value...)
			f.clear(l)
			ls.setAside(deviation{kind: NotANumber, column: c.name}, c.value)
			return nil
		}
		f.put(l, "", c.number)
	}
	return nil
}

// readNumber parses the number in a cell, or returns why it cannot.
func (ls *lines) readNumber(c *cell) string {
	if c.repeats() {
		return ""
	}
	c.last = c.last[:0]
	// Most costs of a line equal BilledCost, which has the narrowest bounds.
	if billed := ls.billed; string(billed.last) == c.value {
		c.number, c.plain = billed.number, append(c.plain[:0], billed.plain...)
	} else {
		var reason string
		if c.number, reason = c.field.parse(c.value); reason != "" {
			return reason
		}
		c.plain = append(c.plain[:0], cmp.Or(c.number.plain, c.value)...)
		c.number.plain = "" // it may be part of the text of a row
	}
	c.last = append(c.last, c.value...)
	return ""
}

// derive fills fields from the columns of older versions and from our own columns.
func (ls *lines) derive(l *line) error {
	if l.ServiceProviderName == "" {
		l.ServiceProviderName = ls.provider.text()
	}
	if l.InvoiceIssuerName == "" {
		if err := ls.inferIssuer(l); err != nil {
			return err
		}
	}
	if len(ls.other) > 0 {
		l.Other = ls.other
	}
	l.FocusVersion = ls.sum.FocusVersion
	if l.FocusVersion == versions[0] {
		fromPreview(l, ls.value(columnSubcategory))
	}
	if v := ls.focusVersion.text(); v != "" && ls.opts.FocusVersion == "" {
		l.FocusVersion = v
	}
	switch strings.ToLower(ls.generated.text()) {
	case "", "false":
	case "true":
		l.Generated = true
	default:
		return ls.refuse(columnGenerated, "is neither true nor false")
	}
	return nil
}

// plausible refuses combinations of columns that FOCUS does not allow.
func (ls *lines) plausible(l *line) error {
	correction := l.ChargeClass == "Correction"
	switch {
	case l.BillingPeriodEnd <= l.BillingPeriodStart:
		return ls.refuse("BillingPeriodEnd", "is not after BillingPeriodStart "+l.BillingPeriodStart.String())
	case l.ChargePeriodEnd <= l.ChargePeriodStart:
		return ls.refuse("ChargePeriodEnd", "is not after ChargePeriodStart "+l.ChargePeriodStart.String())
	case ls.opts.Currency != "" && l.BillingCurrency != ls.opts.Currency:
		return ls.refuse("BillingCurrency", "is not "+ls.opts.Currency+", the currency that the file is expected to be billed in")
	case correction || l.ChargeCategory != "Usage":
		// Corrections concern earlier charges, purchases future terms.
	case l.ChargePeriodStart >= l.BillingPeriodEnd:
		return ls.refuse("ChargePeriodStart", "is usage after the end of the billing period "+l.BillingPeriodEnd.String())
	case l.ChargePeriodEnd <= l.BillingPeriodStart:
		ls.warn("usage from before its billing period, without ChargeClass Correction: it was billed late", "")
	}
	if err := ls.dividable(l); err != nil {
		return err
	}
	if mayBeNegative(l) {
		return nil
	}
	for _, q := range []struct {
		column string
		value  domain.NullDecimal
	}{
		{"ConsumedQuantity", l.ConsumedQuantity},
		{"PricingQuantity", l.PricingQuantity},
		{"CommitmentDiscountQuantity", l.CommitmentDiscountQuantity},
	} {
		switch {
		case !q.value.Valid || !q.value.Decimal.IsNegative():
		case ls.opts.Strict:
			return ls.refuse(q.column, notNegative)
		default:
			ls.found = append(ls.found, deviation{kind: NegativeQuantity, column: q.column})
		}
	}
	return nil
}

// hasNegativeCost reports whether a charge lowers the bill. Suppliers reverse charges of an open
// period without ChargeClass Correction.
func hasNegativeCost(l *line) bool {
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

// trueAt returns when a charge became true: the end of its charge period if that is within the
// billing period, otherwise (corrections, prepaid terms, late usage) the end of the billing
// period, the latest time at which it was known. So no replay of history uses a charge before
// it could be known.
func trueAt(l *line) domain.Instant {
	if l.ChargePeriodEnd > l.BillingPeriodStart && l.ChargePeriodEnd <= l.BillingPeriodEnd {
		return l.ChargePeriodEnd
	}
	return l.BillingPeriodEnd
}

// identify sets the id of the line: x_LineId if the file has one, else an id computed from the
// row. See the package comment.
func (ls *lines) identify(l *line) (rowKey, rowSeen, error) {
	if id := ls.lineID.text(); id != "" {
		b := append(ls.scratch[:0], l.InvoiceIssuerName...)
		b = append(append(append(append(b, 0), l.BillingAccountID...), 0), id...)
		ls.scratch = b
		key := keyOf(b)
		if first := ls.seen.of(key); first.times > 0 {
			return key, first, ls.refuse(columnLineID, fmt.Sprintf("is also the id of line %d", first.line))
		}
		l.LineID = id
		return key, rowSeen{}, nil
	}
	key := ls.hash()
	first := ls.seen.of(key)
	l.LineID = idOf(key, first)
	return key, first, nil
}

// rowID returns the id of the current row.
func (ls *lines) rowID() string {
	if id := ls.lineID.text(); id != "" {
		return id
	}
	key := ls.hash()
	return idOf(key, ls.seen.of(key))
}

// idOf returns the id of the next row with a hash, of which there were some already.
func idOf(key rowKey, before rowSeen) string {
	var room [2 * len(key)]byte
	hex.Encode(room[:], key[:])
	if before.times > 0 {
		return string(room[:]) + "-" + strconv.Itoa(int(before.times)+1)
	}
	return string(room[:])
}

// hash returns the hash for the id of a row without x_LineId.
func (ls *lines) hash() (key rowKey) {
	if ls.stale {
		ls.stale, ls.head, ls.hashed = false, 0, ls.hashed[:0]
		for _, c := range ls.order {
			c.at = len(ls.hashed)
			ls.hashed = append(ls.hashed, c.coded...)
			if !c.differs {
				ls.head = len(ls.hashed)
			}
		}
	}
	if ls.another {
		ls.hasher.Reset()
		ls.hasher.Write(ls.hashed[:ls.head])
		ls.begun, _ = ls.hasher.AppendBinary(ls.begun[:0])
		ls.another = false
	} else {
		_ = ls.hasher.UnmarshalBinary(ls.begun)
	}
	ls.hasher.Write(ls.hashed[ls.head:])
	ls.scratch = ls.hasher.Sum(ls.scratch[:0])
	return rowKey(ls.scratch)
}

// encode sets coded, and the same in hashed.
func encode[T string | []byte](ls *lines, c *cell, value T) {
	ls.another = ls.another || !c.differs
	if old := c.coded[c.from:c.to]; len(old) == len(value) {
		copy(old, value)
		if !ls.stale {
			copy(ls.hashed[c.at+c.from:], value)
		}
		return
	}
	ls.stale = true
	c.coded, c.from, c.to = c.coded[:0], 0, 0
	if len(value) == 0 {
		return
	}
	b := append(append(c.coded, c.name...), '=')
	c.from = len(b)
	b = append(b, value...)
	c.to = len(b)
	// The length after each value makes the encoding unambiguous.
	c.coded = append(strconv.AppendInt(append(b, ' '), int64(len(value)), 10), '\n')
}

func keyOf(b []byte) rowKey {
	sum := sha256.Sum256(b)
	return rowKey(sum[:16])
}

func lineNumber(line int) int32 { return int32(min(line, math.MaxInt32)) }

// remember records an imported line, and warns of problems that only the invoice can resolve.
func (ls *lines) remember(l *line, key rowKey, first rowSeen) {
	if first.times > 0 {
		ls.warn(fmt.Sprintf(
			"this row equals the one in line %d, and both count: check against the invoice whether one is a duplicate",
			first.line,
		), "")
	}
	ls.seen.add(key, lineNumber(ls.line))

	rounded := false
	for _, d := range ls.found {
		ls.deviates(d)
		rounded = rounded || d.kind == MoreDecimals && ls.known[d.column].divided
	}
	if rounded {
		billed, effective := l.RoundedAway()
		of := invoiceRounded{
			issuer:   l.InvoiceIssuerName,
			account:  l.BillingAccountID,
			invoice:  l.InvoiceID,
			currency: l.BillingCurrency,
		}
		if l.InvoiceID == "" {
			of.period = domain.Interval{From: l.BillingPeriodStart, To: l.BillingPeriodEnd}
		}
		ls.round(of, billed, effective)
	}

	of := invoiceOf{l.InvoiceIssuerName, l.BillingAccountID, l.InvoiceID, l.BillingCurrency, l.BillingPeriodStart}
	if of == ls.watched {
		return
	}
	ls.watched = of
	// A supplier that names no invoice has one per account and billing period.
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
		ls.watched = invoiceOf{} // every row counts
	case !ok && len(ls.currencies) < maxInvoicesWatched:
		ls.currencies[string(b)] = strings.Clone(l.BillingCurrency)
	}
}

// invoiceOf is what says in which invoice and currency a line is billed.
type invoiceOf struct {
	issuer, account, invoice, currency string
	from                               domain.Instant // of the billing period
}
