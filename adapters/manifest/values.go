package manifest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// entry is one mapping of a file that satisfies the schema. Its methods return the zero value for an
// absent field, and report faults that the schema cannot find.
type entry struct {
	l    *loader
	n    *node
	path string
}

func (e entry) fault(key, format string, args ...any) {
	at := e.n.get(key)
	if at == nil {
		at = e.n
	}
	e.l.fault(at, e.field(key), format, args...)
}

func (e entry) field(key string) string {
	if e.path == "" {
		return key
	}
	return e.path + "." + key
}

// sub returns a mapping within the entry.
func (e entry) sub(key string) (entry, bool) {
	n := e.n.get(key)
	if n == nil || n.shape != mapping {
		return entry{e.l, &node{shape: mapping, line: e.n.line, column: e.n.column}, e.field(key)}, false
	}
	return entry{e.l, n, e.field(key)}, true
}

func (e entry) has(key string) bool { return e.n.get(key) != nil }

func (e entry) text(key string) string {
	if n := e.n.get(key); n != nil {
		return n.text
	}
	return ""
}

func (e entry) texts(key string) []string {
	n := e.n.get(key)
	if n == nil {
		return nil
	}
	var out []string
	for _, v := range n.values {
		out = append(out, v.text)
	}
	return out
}

func (e entry) flag(key string) bool { return strings.EqualFold(e.text(key), "true") }

// whole reads a whole number, which the schema limits to 32 bits.
func (e entry) whole(key string) int64 {
	s := e.text(key)
	if s == "" {
		return 0
	}
	s, _, _ = strings.Cut(s, ".") // 8.0 is a whole number to JSON Schema
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		e.fault(key, "%s is not a whole number", strconv.Quote(s))
	}
	return v
}

func (e entry) count(key string) uint32 { return uint32(e.whole(key)) }

func (e entry) decimal(key string) domain.Decimal {
	s := e.text(key)
	if s == "" {
		return domain.Decimal{}
	}
	d, err := decimal.NewFromString(s)
	if err != nil {
		e.fault(key, "%s is not a number", strconv.Quote(s))
	}
	return d
}

func (e entry) nullDecimal(key string) domain.NullDecimal {
	return domain.NullDecimal{Decimal: e.decimal(key), Valid: e.has(key)}
}

// money reads "12.50 USD" or {amount, currency}.
func (e entry) money(key string) domain.Money {
	if m, ok := e.sub(key); ok {
		return domain.Money{Amount: m.decimal("amount"), Currency: m.text("currency")}
	}
	return e.amount(key, e.text(key))
}

// moneys reads a list of amounts, each in a form of [entry.money].
func (e entry) moneys(key string) []domain.Money {
	n := e.n.get(key)
	if n == nil {
		return nil
	}
	var out []domain.Money
	for _, v := range n.values {
		if v.shape == mapping {
			m := entry{e.l, v, e.field(key)}
			out = append(out, domain.Money{Amount: m.decimal("amount"), Currency: m.text("currency")})
			continue
		}
		out = append(out, e.amount(key, v.text))
	}
	return out
}

func (e entry) amount(key, s string) domain.Money {
	if s == "" {
		return domain.Money{}
	}
	amount, currency, _ := strings.Cut(s, " ")
	d, err := decimal.NewFromString(amount)
	if err != nil {
		e.fault(key, "%s is not an amount; write for example 12.50 USD", strconv.Quote(s))
	}
	return domain.Money{Amount: d, Currency: currency}
}

func (e entry) instant(key string) domain.Instant {
	s := e.text(key)
	if s == "" {
		return 0
	}
	if len(s) == len(time.DateOnly) {
		s += "T00:00:00Z"
	}
	t, err := domain.ParseInstant(s)
	if err != nil {
		e.fault(key, "%v", err)
		return 0
	}
	if t == 0 {
		e.fault(key, "%s stands for no time; write a later one", s)
	}
	return t
}

func (e entry) interval(key string) domain.Interval {
	i, _ := e.sub(key)
	return i.fromTo()
}

func (e entry) fromTo() domain.Interval {
	i := domain.Interval{From: e.instant("from"), To: e.instant("to")}
	if i.From != 0 && i.To != 0 && i.Empty() {
		e.fault("to", "%s is not after from, %s", i.To, i.From)
	}
	return i
}

// period reads 2026, 2026-Q3, 2026-07 or {from, to}.
func (e entry) period(key string) domain.Interval {
	if i, ok := e.sub(key); ok {
		return i.fromTo()
	}
	s, _, _ := strings.Cut(e.text(key), ".")
	if s == "" {
		return domain.Interval{}
	}
	year, rest, _ := strings.Cut(s, "-")
	first, months := "01", 12
	switch {
	case strings.HasPrefix(rest, "Q"):
		first, months = map[string]string{"Q1": "01", "Q2": "04", "Q3": "07", "Q4": "10"}[rest], 3
	case rest != "":
		first, months = rest, 1
	}
	from, err := domain.ParseInstant(year + "-" + first + "-01T00:00:00Z")
	if err != nil || from == 0 {
		e.fault(key, "%s is not a period between 1970 and 2261; write for example 2026-Q3", strconv.Quote(s))
		return domain.Interval{}
	}
	return domain.Interval{From: from, To: e.later(key, from, months)}
}

// months reads "36 months" or "3 years".
func (e entry) months(key string) int {
	number, unit, _ := strings.Cut(e.text(key), " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0 // absent; the schema refuses anything else
	}
	if strings.HasPrefix(unit, "year") {
		n *= 12
	}
	return n
}

// term reads a mapping with from and either to or length.
func (e entry) term(key string) domain.Interval {
	t, _ := e.sub(key)
	switch {
	case t.has("to") && t.has("length"):
		t.fault("length", "conflicts with to; keep one of them")
	case t.has("to"):
		return t.fromTo()
	case t.has("length"):
		from := t.instant("from")
		if from == 0 {
			return domain.Interval{}
		}
		return domain.Interval{From: from, To: t.later("length", from, t.months("length"))}
	default:
		e.fault(key, "lacks its end; add to, or length: 36 months")
	}
	return domain.Interval{}
}

// later adds calendar months in UTC. A day that does not exist in the month becomes its last day: a
// month from 31 January ends on 28 February.
func (e entry) later(key string, t domain.Instant, months int) domain.Instant {
	at := t.Time()
	end := at.AddDate(0, months, 0)
	if end.Day() != at.Day() {
		end = end.AddDate(0, 0, -end.Day())
	}
	if end.Year() > 2261 {
		e.fault(key, "ends in %d, after 2261", end.Year())
		return t
	}
	return domain.InstantOf(end)
}

// scaled reads a number with a unit and returns it as a whole number of the smallest unit.
func (e entry) scaled(key string, units map[string]int64, smallest string) uint64 {
	s := e.text(key)
	if s == "" {
		return 0
	}
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(s[len(digits):])
	d, err := decimal.NewFromString(digits)
	factor, known := units[unit]
	if err != nil || !known {
		e.fault(key, "%s is not understood", strconv.Quote(s))
		return 0
	}
	d = d.Mul(decimal.NewFromInt(factor))
	if !d.IsInteger() {
		e.fault(key, "%s is not a whole number of %s", strconv.Quote(s), smallest)
		return 0
	}
	return uint64(d.IntPart())
}

func (e entry) micros(key string) uint64 {
	return e.scaled(key, map[string]int64{"us": 1, "ms": 1000, "s": 1_000_000}, "microseconds")
}

func (e entry) mebibytes(key string) uint64 {
	units := map[string]int64{}
	for i, prefix := range []string{"M", "G", "T"} {
		for _, suffix := range []string{"i", "iB"} {
			units[prefix+suffix] = 1 << (10 * i)
		}
	}
	return e.scaled(key, units, "MiB")
}

func (e entry) milliCPU(key string) uint64 {
	return e.scaled(key, map[string]int64{"": 1000, "m": 1}, "thousandths of a core")
}

func (e entry) labels(key string) map[string]string {
	m, ok := e.sub(key)
	if !ok {
		return nil
	}
	out := make(map[string]string, len(m.n.keys))
	for i, k := range m.n.keys {
		out[k.text] = m.n.values[i].text
	}
	return out
}

// gpu reads the UUID of a GPU or of a MIG instance.
func (e entry) gpu(key string) domain.GPUID {
	id, err := domain.ParseGPUID(e.text(key))
	if err != nil {
		e.fault(key, "%v", err)
	}
	return id
}

// key32 reads an Ed25519 public key in base64 or hexadecimal.
func (e entry) key32(key string) []byte {
	s := e.text(key)
	b, err := hex.DecodeString(s)
	if err != nil {
		b, err = base64.StdEncoding.DecodeString(s)
	}
	if err != nil {
		e.fault(key, "is neither base64 nor hexadecimal: %v", err)
	}
	return b
}

func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
