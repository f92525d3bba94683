package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Bounds on the content of a payload. Values beyond them are damage or malice, and the folds would
// have to keep them for ever.
const (
	maxText   = 64 << 10 // bytes of one text field
	maxDigits = 60       // digits of a decimal, including those after the point
	maxPlaces = 40       // digits of a decimal after the point
)

// mover copies fields between a domain event and its message, in either direction. Each message has
// one function that lists its fields once for both directions, so reading and writing always agree.
// The first field that is not valid in the log ends the copying: err names it.
type mover struct {
	decode bool
	path   []step // path of the current field
	err    error
}

// step is a step of a path into a message, or into a message of a list.
type step struct {
	field string
	index int // -1: not a list
}

func (m *mover) fail(field, format string, args ...any) {
	if m.err != nil {
		return
	}
	var at strings.Builder
	for _, s := range m.path {
		at.WriteString(s.field)
		if s.index >= 0 {
			at.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
		at.WriteByte('.')
	}
	m.err = fmt.Errorf("field %s%s: %s", at.String(), field, fmt.Sprintf(format, args...))
}

// same copies a value that has the same type on both sides.
func same[T any](m *mover, p, d *T) {
	if m.decode {
		*d = *p
	} else {
		*p = *d
	}
}

func text[T ~string](m *mover, field string, p *string, d *T) {
	if m.decode {
		*d = T(*p)
	} else {
		*p = string(*d)
	}
	m.checkText(field, *p)
}

func (m *mover) checkText(field, s string) {
	if err := checkText(s, maxText); err != nil {
		m.fail(field, "%v", err)
	}
}

// checkText checks the rules for every text in the log. NUL is refused because neither Postgres nor
// a CSV reader accepts it.
func checkText(s string, most int) error {
	switch {
	case len(s) <= most && plain(s):
		return nil
	case len(s) > most:
		return fmt.Errorf("text of %d bytes, more than %d", len(s), most)
	case !utf8.ValidString(s):
		return errors.New("text is not UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		return errors.New("text holds a NUL byte")
	}
	return nil
}

// plain reports whether s is ASCII without NUL. It tests eight bytes at a time: the high bit must
// be clear in each byte and in each byte minus one.
func plain(s string) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 32; s = s[32:] {
		w, x, y, z := word(s), word(s[8:]), word(s[16:]), word(s[24:])
		if (w|x|y|z|(w-ones)|(x-ones)|(y-ones)|(z-ones))&high != 0 {
			return false
		}
	}
	if len(s) >= 8 { // up to three words, and the last eight bytes, which may overlap with them
		w := word(s[len(s)-8:])
		for all := w | (w - ones); ; s = s[8:] {
			if len(s) < 8 {
				return all&high == 0
			}
			w = word(s)
			all |= w | (w - ones)
		}
	}
	for i := range len(s) {
		if s[i]-1 >= 0x7f {
			return false
		}
	}
	return true
}

func word(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func (m *mover) texts(field string, p, d *[]string) {
	same(m, p, d)
	for _, s := range *p {
		m.checkText(field, s)
	}
}

func (m *mover) labels(field string, p, d *map[string]string) {
	same(m, p, d)
	for k, v := range *p {
		m.checkText(field, k)
		m.checkText(field, v)
	}
}

func (m *mover) bytes(_ string, p, d *[]byte) { same(m, p, d) }

func (m *mover) gpu(field string, p *[]byte, d *domain.GPUID) {
	switch {
	case !m.decode:
		*p = nil
		if *d != (domain.GPUID{}) {
			*p = d[:]
		}
	case len(*p) == 0:
		*d = domain.GPUID{}
	case len(*p) != len(d):
		m.fail(field, "GPU id of %d bytes, want %d", len(*p), len(d))
	default:
		copy(d[:], *p)
	}
}

func (m *mover) instant(field string, p *int64, d *domain.Instant) {
	if m.decode {
		*d = domain.Instant(*p)
	} else {
		*p = int64(*d)
	}
	if *p < 0 || *p >= int64(endOfTime) {
		m.fail(field, "time of %d ns is outside the years 1970 to 2261", *p)
	}
}

func (m *mover) interval(field string, p **eventsv1.Interval, d *domain.Interval) {
	nested(m, field, p, d, interval)
}

func interval(m *mover, p *eventsv1.Interval, d *domain.Interval) {
	m.instant("from", &p.From, &d.From)
	m.instant("to", &p.To, &d.To)
}

func (m *mover) decimal(field string, p *string, d *domain.Decimal) {
	if m.decode && *p == "" {
		*d = domain.Decimal{}
		return
	}
	m.number(field, p, d)
}

func (m *mover) nullDecimal(field string, p *string, d *domain.NullDecimal) {
	if m.decode {
		d.Valid = *p != ""
	}
	if d.Valid {
		m.number(field, p, &d.Decimal)
	}
}

func (m *mover) number(field string, p *string, d *domain.Decimal) {
	var err error
	if m.decode {
		*d, err = parseDecimal(*p)
	} else {
		*p, err = formatDecimal(*d)
	}
	if err != nil {
		m.fail(field, "%v", err)
	}
}

func (m *mover) money(field string, p **eventsv1.Money, d *domain.Money) {
	nested(m, field, p, d, money)
}

func money(m *mover, p *eventsv1.Money, d *domain.Money) {
	m.decimal("amount", &p.Amount, &d.Amount)
	text(m, "currency", &p.Currency, &d.Currency)
}

func nested[P, D any](m *mover, field string, p **P, d *D, move func(*mover, *P, *D)) {
	within(m, step{field, -1}, p, d, move)
}

// optional is [nested] for a value that is absent when it is zero. So an event without it is encoded as before there was such
// a field.
func optional[P, D any](m *mover, field string, p **P, d *D, zero bool, move func(*mover, *P, *D)) {
	switch {
	case m.decode && *p == nil:
		var none D
		*d = none
	case !m.decode && zero:
		*p = nil
	default:
		nested(m, field, p, d, move)
	}
}

func (m *mover) optionalMoney(field string, p **eventsv1.Money, d *domain.Money) {
	optional(m, field, p, d, d.IsZero(), money)
}

func within[P, D any](m *mover, s step, p **P, d *D, move func(*mover, *P, *D)) {
	if m.err != nil {
		return
	}
	if *p == nil { // absent in a message: all its fields are zero
		*p = new(P)
	}
	m.path = append(m.path, s)
	move(m, *p, d)
	m.path = m.path[:len(m.path)-1]
}

func list[P, D any](m *mover, field string, p *[]*P, d *[]D, move func(*mover, *P, *D)) {
	if m.decode {
		*d = nil
		if len(*p) > 0 {
			*d = make([]D, len(*p))
		}
	} else {
		*p = make([]*P, len(*d))
	}
	for i := range *d {
		within(m, step{field, i}, &(*p)[i], &(*d)[i], move)
	}
}

// formatDecimal formats a decimal without an exponent. It keeps the digits after the point,
// including trailing zeros.
func formatDecimal(d domain.Decimal) (string, error) {
	e := int64(d.Exponent())
	switch {
	case e < -maxPlaces:
		return "", fmt.Errorf("decimal with %d digits after the point, more than %d", -e, maxPlaces)
	case e > maxDigits || int64(d.NumDigits())+max(e, 0) > maxDigits:
		return "", fmt.Errorf("decimal of more than %d digits", maxDigits)
	case e < 0:
		return d.StringFixed(int32(-e)), nil
	}
	return d.String(), nil
}

// parseDecimal parses the output of formatDecimal. It refuses exponents, because a dozen bytes
// could then stand for a number that fills the memory.
func parseDecimal(s string) (domain.Decimal, error) {
	whole, places, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	switch {
	case len(whole)+len(places) > maxDigits:
		return domain.Decimal{}, fmt.Errorf("decimal of more than %d digits", maxDigits)
	case !digits(whole) || point && !digits(places):
		return domain.Decimal{}, fmt.Errorf("%q is not a decimal such as -12.50", s)
	case len(places) > maxPlaces:
		return domain.Decimal{}, fmt.Errorf("decimal with %d digits after the point, more than %d", len(places), maxPlaces)
	}
	if len(whole)+len(places) > 18 { // may not fit 64 bits
		return decimal.NewFromString(s)
	}
	var n int64
	for _, part := range [...]string{whole, places} {
		for i := range len(part) {
			n = n*10 + int64(part[i]-'0')
		}
	}
	if s[0] == '-' {
		n = -n
	}
	return decimal.New(n, -int32(len(places))), nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
