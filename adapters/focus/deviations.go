package focus

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"quartermaster/domain"
)

// Deviation is a kind of value that FOCUS or a billing line does not allow, in a column that
// attribution does not need.
type Deviation string

// The deviations. A line stores a NegativeQuantity as it is. For all others the original text is
// kept in the column that domain.AsWritten names.
const (
	UnknownValue     Deviation = "unknown_value"     // not a value that FOCUS lists; becomes null
	NotANumber       Deviation = "not_a_number"      // not a number, or 10²⁴ or more; becomes null
	NegativePrice    Deviation = "negative_price"    // becomes null
	NegativeQuantity Deviation = "negative_quantity" // of a unit that does not measure machine time
	UnusableQuantity Deviation = "unusable_quantity" // machine time, negative or above 200,000,000 hours; becomes null
	MoreDecimals     Deviation = "more_decimals"     // more than 18; rounded half to even
	BrokenText       Deviation = "broken_text"       // too long, control characters, not UTF-8; cut and cleaned
)

// Rounding is what rounding to 18 decimals removed from the costs of the lines of one invoice:
// the exact sum of the amounts as written minus the amounts kept.
type Rounding struct {
	Issuer    string          `json:"issuer"`
	Account   string          `json:"account"`
	Invoice   string          `json:"invoice"`         // "" for lines without an invoice
	Period    domain.Interval `json:"period,omitzero"` // billing period, for lines without an invoice
	Currency  string          `json:"currency"`
	Lines     int             `json:"lines"` // number of rounded lines
	Billed    domain.Decimal  `json:"billed"`
	Effective domain.Decimal  `json:"effective"`
}

// invoiceRounded is the key of a Rounding.
type invoiceRounded struct {
	issuer, account, invoice, currency string
	period                             domain.Interval
}

// round adds the rounding differences of a line of an invoice. Invoices beyond
// maxInvoicesWatched are summed by currency alone.
func (r *run) round(of invoiceRounded, billed, effective domain.Decimal) {
	i, ok := r.rounded[of]
	if !ok && len(r.rounded) >= maxInvoicesWatched {
		of = invoiceRounded{currency: of.currency}
		i, ok = r.rounded[of]
	}
	if !ok {
		for _, s := range []*string{&of.issuer, &of.account, &of.invoice, &of.currency} {
			*s = strings.Clone(*s)
		}
		i = len(r.sum.Rounded)
		r.rounded[of] = i
		r.sum.Rounded = append(r.sum.Rounded, Rounding{
			Issuer:   of.issuer,
			Account:  of.account,
			Invoice:  of.invoice,
			Period:   of.period,
			Currency: of.currency,
		})
	}
	sum := &r.sum.Rounded[i]
	sum.Lines++
	sum.Billed, sum.Effective = sum.Billed.Add(billed), sum.Effective.Add(effective)
}

// deviates counts a deviation of an imported row.
func (r *run) deviates(d deviation) {
	r.sum.Deviations[d.kind]++
	reason, kept := "", ", and kept as written in "+domain.AsWritten(d.column)
	switch d.kind {
	case UnknownValue:
		reason = " is not one of the values of FOCUS: it is read as null" + kept
	case NotANumber:
		reason = " is not a number that can be stored: it is read as null" + kept
	case NegativePrice:
		reason = " is a negative price, which FOCUS does not have: it is read as null" + kept
	case NegativeQuantity:
		reason = " is negative, without ChargeClass Correction or a negative cost"
	case UnusableQuantity:
		reason = " is machine time that is negative without a negative cost, or too much for one charge: " +
			"it is read as null" + kept
	case MoreDecimals:
		reason = " has more than 18 decimals: it is rounded half to even" + kept
	case BrokenText:
		reason = " is too long or has invalid characters: it is cut and cleaned"
	}
	r.warn(d.column+reason, d.value)
}

// deviation is one deviating value. The field value is set only for kinds with few distinct values.
type deviation struct {
	kind          Deviation
	column, value string
}

// Limits of a text in bytes, as in domain.Validate: maxText in a column of FOCUS, maxKept in a
// JSON or custom column.
const (
	maxText = 4096
	maxKept = 1 << 16
)

// cleaned replaces invalid characters of a text by U+FFFD and cuts it to at most most bytes.
func cleaned(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' {
			return utf8.RuneError
		}
		return r // strings.Map passes invalid UTF-8 as U+FFFD
	}, s)
	if len(s) > most {
		for s = s[:most]; !utf8.ValidString(s); {
			s = s[:len(s)-1]
		}
	}
	return s
}

// put stores a number or a text in a line.
func (f *field) put(l *line, text string, n number) {
	switch {
	case f.text != nil:
		*f.text(l) = text
	case f.cost != nil:
		*f.cost(l) = n.kept
	case f.number != nil:
		*f.number(l) = domain.NullDecimal{Decimal: n.kept, Valid: true}
	}
}

// clear makes the column null in a line.
func (f *field) clear(l *line) {
	switch {
	case f.text != nil:
		*f.text(l) = ""
	case f.cost != nil:
		*f.cost(l) = domain.Decimal{}
	case f.number != nil:
		*f.number(l) = domain.NullDecimal{}
	case f.time != nil:
		*f.time(l) = 0
	}
}

// parse parses a number of the column.
func (f *field) parse(text string) (number, string) {
	if f.divided {
		return parseAmount(text)
	}
	return parseDecimal(text)
}

// settle replaces a value that domain.Validate refuses by a valid one. It reports false if the
// row must be refused.
func (f *field) settle(l *line) (kind Deviation, ok bool) {
	switch {
	case f.decides:
		return "", false
	case f.number != nil:
		*f.number(l) = domain.NullDecimal{}
		return NegativePrice, true
	case f.text == nil:
		return "", false
	case f.closed:
		*f.text(l) = ""
		return UnknownValue, true
	}
	most := maxText
	if f.json {
		most = maxKept
	}
	text := cleaned(*f.text(l), most)
	if text == *f.text(l) {
		return "", false
	}
	*f.text(l) = text
	return BrokenText, true
}

// writtenAs reports whether reading text in this column gives the value that the line has, so
// that the writer may write the text instead. It does not compare Other.
func (f *field) writtenAs(l *line, text string) bool {
	if text == "" || text != strings.TrimSpace(text) || isNull(text) || f.time != nil {
		return false
	}
	again := *l
	if f.text == nil {
		n, reason := f.parse(text)
		if reason != "" {
			return !f.decides && f.number != nil && !f.number(l).Valid
		}
		if f.unusable(l, n.kept) {
			return !f.number(l).Valid
		}
		if f.put(&again, "", n); !n.rest.IsZero() {
			return f.equal(&again, l)
		}
	} else {
		f.put(&again, text, number{})
	}
	var invalid *domain.InvalidError
	err := domain.Validate(&domain.Envelope{Time: 1, Event: &domain.BillingLineRecorded{Line: again}})
	if !errors.As(err, &invalid) || invalid.Field != "line."+f.name {
		return false
	}
	_, ok := f.settle(&again)
	return ok && f.equal(&again, l)
}

// unusable reports whether the column is a quantity and d is out of bounds for its unit.
func (f *field) unusable(l *line, d domain.Decimal) bool {
	switch f.name {
	case "PricingQuantity":
		return unusable(l, l.PricingUnit, d, mostOf(l.PricingUnit)) != ""
	case "ConsumedQuantity":
		return unusable(l, l.ConsumedUnit, d, mostOf(l.ConsumedUnit)) != ""
	}
	return false
}

// equal compares the column of two lines.
func (f *field) equal(a, b *line) bool {
	switch {
	case f.text != nil:
		return *f.text(a) == *f.text(b)
	case f.cost != nil:
		return f.cost(a).Equal(*f.cost(b))
	case f.number != nil:
		x, y := f.number(a), f.number(b)
		return x.Valid == y.Valid && x.Decimal.Equal(y.Decimal)
	}
	return *f.time(a) == *f.time(b)
}
