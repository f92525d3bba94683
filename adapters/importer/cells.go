package importer

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// refusal is the reason why a row is not imported. Any other error of a row ends the import.
type refusal struct {
	Field, Value, Reason string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s %q: %s", r.Field, r.Value, r.Reason)
}

// column is a column with its index in the header, -1 if it is absent.
type column struct {
	name string
	at   int
}

// cells reads the fields of one row. It keeps the first error as the refusal of the row.
type cells struct {
	line    int
	fields  [][]byte
	refused *refusal
	clock   *clock
}

func (c *cells) raw(k column) []byte {
	if k.at < 0 || k.at >= len(c.fields) {
		return nil
	}
	return bytes.TrimSpace(c.fields[k.at])
}

func (c *cells) refuse(k column, reason string) {
	if c.refused == nil {
		c.refused = &refusal{Field: k.name, Value: string(c.raw(k)), Reason: reason}
	}
}

// maxName is the longest identifier in events, in bytes.
const maxName = 256

// checkName returns why a text cannot be an identifier, or "".
func checkName(s string) string {
	if len(s) > maxName {
		return fmt.Sprintf("is longer than %d bytes", maxName)
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "holds a control character"
	}
	return ""
}

// text reads a field that may be empty.
func (c *cells) text(k column) string {
	s := string(c.raw(k))
	if reason := checkName(s); reason != "" {
		c.refuse(k, reason)
		return ""
	}
	return s
}

// name reads a field that must not be empty.
func (c *cells) name(k column) string {
	s := c.text(k)
	if s == "" {
		c.refuse(k, "is empty")
	}
	return s
}

// amount reads a nonnegative decimal number. It reports false if the field is empty.
func (c *cells) amount(k column) (domain.Decimal, bool) {
	b := c.raw(k)
	if len(b) == 0 {
		return domain.Decimal{}, false
	}
	d, reason := parseDecimal(string(b))
	if reason == "" && d.IsNegative() {
		reason = "is negative"
	}
	if reason != "" {
		c.refuse(k, reason)
		return domain.Decimal{}, false
	}
	return d, true
}

// parseDecimal reads plain and exponent notation exactly. It bounds the size of a number before
// any arithmetic.
func parseDecimal(s string) (domain.Decimal, string) {
	const digits = 18 // before the point, and twice as many after it
	if len(s) > 64 || strings.Trim(s, "+-.0123456789eE") != "" || !strings.ContainsAny(s, "0123456789") {
		return domain.Decimal{}, "is not a number"
	}
	d, err := decimal.NewFromString(s)
	if err != nil {
		return domain.Decimal{}, "is not a number"
	}
	if d.IsZero() {
		return decimal.Zero, ""
	}
	switch {
	case int(d.Exponent())+d.NumDigits() > digits:
		return domain.Decimal{}, "is too large"
	case d.Exponent() < -2*digits:
		return domain.Decimal{}, "has too many decimals"
	case d.Exponent() > 0:
		d = decimal.NewFromBigInt(d.BigInt(), 0)
	}
	return d, ""
}

// milli reads a quantity as thousandths, rounded half to even; 0 if empty.
func (c *cells) milli(k column) uint64 {
	d, ok := c.amount(k)
	if !ok {
		return 0
	}
	m := d.Shift(3).RoundBank(0)
	if m.GreaterThan(decimal.New(maxMilli, 0)) {
		c.refuse(k, "is too large")
		return 0
	}
	return uint64(m.IntPart())
}

// maxMilli bounds quantities: 10¹² units in thousandths.
const maxMilli = 1_000_000_000_000_000

// count reads a whole number from 0 to limit, such as "8" or "8.0". It refuses an empty field.
func (c *cells) count(k column, limit int64) uint64 {
	if len(c.raw(k)) == 0 {
		c.refuse(k, "is empty")
		return 0
	}
	d, ok := c.amount(k)
	switch {
	case !ok:
		return 0
	case !d.IsInteger():
		c.refuse(k, "is not a whole number")
		return 0
	case d.GreaterThan(decimal.New(limit, 0)):
		c.refuse(k, fmt.Sprintf("is more than %d", limit))
		return 0
	}
	return uint64(d.IntPart())
}

// optionalCount is count, but returns 0 for an empty or absent field.
func (c *cells) optionalCount(k column, limit int64) uint64 {
	if len(c.raw(k)) == 0 {
		return 0
	}
	return c.count(k, limit)
}

// instant reads a time. It refuses an empty field.
func (c *cells) instant(k column) domain.Instant {
	b := c.raw(k)
	if len(b) == 0 {
		c.refuse(k, "is empty")
		return 0
	}
	t, reason := c.clock.read(b)
	if reason != "" {
		c.refuse(k, reason)
		return 0
	}
	return t
}

// hour reads the start of an hour and returns the interval of that hour.
func (c *cells) hour(k column) domain.Interval {
	t := c.instant(k)
	if c.refused == nil && t.HourStart() != t {
		c.refuse(k, "is not the start of a UTC hour")
	}
	return domain.Interval{From: t, To: t + domain.Hour}
}

// clock parses the times of a file: RFC 3339, or local times of one zone.
type clock struct {
	zone  *time.Location // nil: times without a zone are refused
	shift domain.Instant
	// The last parsed time, because hourly files repeat each hour in many rows.
	lastText []byte
	lastTime domain.Instant
}

// Limits of times: the years 1971 to 2259. Adding or subtracting a day stays in the range of
// events.
const (
	minInstant = 365 * domain.Day
	maxInstant = 9151574400 * domain.Second // 2260-01-01T00:00:00Z
)

func (k *clock) read(b []byte) (domain.Instant, string) {
	if len(b) > 0 && bytes.Equal(b, k.lastText) {
		return k.lastTime, ""
	}
	t, reason := k.parse(string(b))
	if reason == "" {
		t, reason = shifted(t, k.shift)
	}
	if reason != "" {
		return 0, reason
	}
	k.lastText = append(k.lastText[:0], b...)
	k.lastTime = t
	return t, ""
}

func shifted(t, shift domain.Instant) (domain.Instant, string) {
	if t < minInstant || t > maxInstant {
		return 0, "is outside the years 1971 to 2259"
	}
	if t += shift; t < minInstant || t > maxInstant {
		return 0, "is shifted out of the years 1971 to 2259"
	}
	return t, ""
}

func (k *clock) parse(s string) (domain.Instant, string) {
	if len(s) > 40 {
		return 0, "is not a time"
	}
	spaced := strings.Replace(s, " ", "T", 1)
	if t, err := time.Parse(time.RFC3339Nano, spaced); err == nil {
		return instantOf(t)
	}
	if t, why, ok := tabular.Local(spaced, k.zone); why != "" {
		return 0, why
	} else if ok {
		return instantOf(t)
	}
	return 0, "is not a time such as 2026-05-01T00:00:00Z"
}

func instantOf(t time.Time) (domain.Instant, string) {
	if y := t.UTC().Year(); y < 1970 || y > 2260 {
		return 0, "is outside the years 1971 to 2259"
	}
	return domain.InstantOf(t), ""
}
