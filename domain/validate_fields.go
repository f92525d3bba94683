package domain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checker collects the first error of an event.
type checker struct {
	typ   Type
	at    string // the list that is being checked, "" outside of one
	index int    // the entry of that list, -1 outside of one
	err   *InvalidError
}

func (c *checker) bad(field, format string, args ...any) {
	if c.err != nil {
		return
	}
	if c.index >= 0 {
		field = c.at + "[" + strconv.Itoa(c.index) + "]." + field
	}
	c.err = &InvalidError{Type: c.typ, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// in prefixes the following fields with an entry of a list; out ends that.
func (c *checker) in(list string, i int) { c.at, c.index = list, i }
func (c *checker) out()                  { c.at, c.index = "", -1 }

func (c *checker) given(ok bool) bool {
	if !ok {
		c.bad("event", "is nil")
	}
	return ok
}

// envelope checks the context of the event.
func (c *checker) envelope(env *Envelope, topic Topic) {
	c.optionalID("source", env.Source)
	c.bounded("subject", env.Subject, 4*maxID)
	c.instant("time", env.Time)
	c.optionalInstant("recorded", env.Recorded)
	if _, _, _, shard := splitShardKey(env.Cluster); shard {
		c.bad("cluster", "%s is the form of a shard's key; a name does not end in /N-of-K", quote(env.Cluster))
	}
	if env.Shards < 0 || env.Shards > MaxShards {
		c.bad("shards", "%d is not from 1 to %d", env.Shards, MaxShards)
	}
	switch topic {
	case TopicWorkspaces, TopicProcurement, TopicIncidents:
		c.id("workspace", env.Workspace)
		c.optionalID("cluster", env.Cluster)
	case TopicFleet, TopicTelemetry, TopicHardware, TopicDeployments:
		c.id("cluster", env.Cluster)
		c.optionalID("workspace", env.Workspace)
	default:
		c.optionalID("workspace", env.Workspace)
		c.optionalID("cluster", env.Cluster)
	}
	if env.Cites != "" {
		tp, offset, _ := strings.Cut(env.Cites, "@")
		if p, err := ParsePosition(tp + "=" + offset); err != nil || len(p) != 1 {
			c.bad("cites", "%s is not topic/partition@offset", quote(env.Cites))
		}
	}
	if s := env.Signature; s != nil {
		c.id("signature.operator", s.Operator)
		c.bytes("signature.key", s.Key, 32)
		c.bytes("signature.bytes", s.Bytes, 64)
	}
}

// quote formats a value for an error: on one line, truncated if long.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

func (c *checker) id(field, s string) {
	if s == "" {
		c.bad(field, "is missing")
		return
	}
	c.optionalID(field, s)
}

func (c *checker) optionalID(field, s string) {
	if s != "" {
		c.bounded(field, s, maxID)
	}
}

// bounded accepts the bytes that an identifier may consist of.
func (c *checker) bounded(field, s string, most int) {
	if len(s) > most {
		c.bad(field, "has %d bytes, at most %d are allowed: %s", len(s), most, quote(s))
	} else if !plain(s) {
		c.bad(field, "holds control characters or is not UTF-8: %s", quote(s))
	}
}

// text accepts prose. Tabs and line ends are allowed, because suppliers send them and their columns
// are kept unchanged.
func (c *checker) text(field, s string) { c.prose(field, s, maxText) }

func (c *checker) prose(field, s string, most int) {
	if len(s) > most {
		c.bad(field, "has %d bytes, at most %d are allowed: %s", len(s), most, quote(s))
		return
	}
	if plain(s) {
		return
	}
	if !utf8.ValidString(s) {
		c.bad(field, "is not UTF-8: %s", quote(s))
		return
	}
	for _, r := range s {
		if unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' {
			c.bad(field, "holds the control character %U: %s", r, quote(s))
			return
		}
	}
}

// plain reports whether s is UTF-8 without control characters. It checks eight bytes at a time,
// because every string of every sample passes here: a byte below 0x20 borrows into its high bit,
// 0x7f carries into it, and the bytes of longer characters have it set.
func plain(s string) bool {
	const each = 0x0101010101010101
	if len(s) < 8 {
		for i := range len(s) {
			if b := s[i]; b < 0x20 || b >= 0x7f {
				return plainRunes(s)
			}
		}
		return true
	}
	x := eight(s[len(s)-8:]) // the last eight, which may overlap the word before
	odd := x | (x - 0x20*each) | (x + each)
	for rest := s; len(rest) >= 8; rest = rest[8:] {
		x = eight(rest)
		odd |= x | (x - 0x20*each) | (x + each)
	}
	return odd&(0x80*each) == 0 || plainRunes(s)
}

func eight(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func plainRunes(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// ids accepts a list of distinct identifiers, which may be empty.
func (c *checker) ids(field string, list []string) {
	if !c.listed(field, len(list)) {
		return
	}
	seen := make(map[string]bool, len(list))
	for _, s := range list {
		c.id(field, s)
		if seen[s] {
			c.bad(field, "names %s twice", quote(s))
		}
		seen[s] = true
	}
}

func (c *checker) someIDs(field string, list []string) {
	if len(list) == 0 {
		c.bad(field, "is empty, want at least one")
	}
	c.ids(field, list)
}

func (c *checker) listed(field string, n int) bool {
	if n > maxList {
		c.bad(field, "has %d entries, at most %d are allowed", n, maxList)
		return false
	}
	return true
}

func (c *checker) labels(field string, m map[string]string) {
	if !c.listed(field, len(m)) {
		return
	}
	for k, v := range m {
		// The message must not depend on map order, so it names no entry.
		if k == "" || len(k) > maxID || len(v) > maxID || !plain(k) || !plain(v) {
			c.bad(field,
				"holds a name that is empty, or a name or value over %d bytes, with control characters or not UTF-8", maxID)
			return
		}
	}
}

func (c *checker) countries(field string, list []string) {
	c.ids(field, list)
	for _, s := range list {
		c.country(field, s)
	}
}

func (c *checker) country(field, s string) {
	if !capitals(s, 2) {
		c.bad(field, "%s is not an ISO 3166-1 code of two capital letters, for example DE", quote(s))
	}
}

func (c *checker) currency(field, s string) {
	if !capitals(s, 3) {
		c.bad(field, "%s is not an ISO 4217 code of three capital letters, for example USD", quote(s))
	}
}

func capitals(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if s[i] < 'A' || s[i] > 'Z' {
			return false
		}
	}
	return true
}

// oneOf accepts the values of an enumeration.
func oneOf[T ~string](c *checker, field string, v T, allowed ...T) {
	for _, a := range allowed {
		if v == a {
			return
		}
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	if v == "" {
		c.bad(field, "is missing, want %s", strings.Join(names, ", "))
		return
	}
	c.bad(field, "%s is unknown, want %s", quote(string(v)), strings.Join(names, ", "))
}

func (c *checker) bytes(field string, b []byte, n int) {
	if len(b) != n {
		c.bad(field, "has %d bytes, want %d", len(b), n)
	}
}

func (c *checker) atMost(field string, v, most uint64) {
	if v > most {
		c.bad(field, "is %d, at most %d is allowed", v, most)
	}
}

func (c *checker) positive(field string, v uint32) {
	if v == 0 {
		c.bad(field, "is 0, want at least 1")
	}
}

func (c *checker) months(field string, v uint32) {
	if v == 0 || v > maxMonths {
		c.bad(field, "is %d, want 1 to %d", v, maxMonths)
	}
}

func (c *checker) instant(field string, t Instant) {
	if t == 0 {
		c.bad(field, "is missing")
		return
	}
	c.optionalInstant(field, t)
}

func (c *checker) optionalInstant(field string, t Instant) {
	if t < 0 || t >= endOfTime {
		c.bad(field, "%d ns is outside the years %d to %d", int64(t), minYear, maxYear)
	}
}

func (c *checker) interval(field string, i Interval) {
	c.openInterval(field, i)
	if i.To == 0 {
		c.bad(field, "has no end")
	}
}

// lacking checks the time without measurements that a node reports at the time said.
func (c *checker) lacking(field string, i Interval, said Instant) {
	switch {
	case i == Interval{}: // unknown
	case i.From < said-MaxLacking:
		c.bad(field, "begins at %s, more than 400 days before the event's time, %s: look at the clock of the node", i.From, said)
	case max(i.From, i.To) > said+MaxAhead:
		c.bad(field, "reaches %s, more than 10 minutes after the event's time, %s: look at the clock of the node",
			max(i.From, i.To), said)
	}
}

// openInterval accepts an interval whose end may be unknown.
func (c *checker) openInterval(field string, i Interval) {
	if i.From == 0 {
		c.bad(field, "has no beginning")
		return
	}
	c.optionalInstant(field, i.From)
	c.optionalInstant(field, i.To)
	if i.To != 0 && i.Empty() {
		c.bad(field, "is empty: from %s to %s", i.From, i.To)
	}
}

func (c *checker) sample(field string, i Interval) {
	c.interval(field, i)
	if c.err == nil && i.Length() > maxSample {
		c.bad(field, "covers more than 24 hours: from %s to %s", i.From, i.To)
	}
}

// until accepts an end that is missing or after the beginning.
func (c *checker) until(field string, from, to Instant) {
	c.optionalInstant(field, to)
	if to != 0 && to <= from {
		c.bad(field, "%s is not after the beginning %s", to, from)
	}
}

// decimal accepts a number of bounded size. It MUST run before any comparison or addition of the
// number: 1e1000000000 takes a gigabyte to compare.
func (c *checker) decimal(field string, d Decimal) bool {
	if d.Exponent() < -maxScale {
		c.bad(field, "has %d digits after the point, at most %d are allowed", -int64(d.Exponent()), maxScale)
		return false
	}
	if int64(d.NumDigits())+int64(d.Exponent()) <= maxInteger {
		return true // fewer digits than the limit has; this avoids a copy
	}
	coefficient := d.Coefficient()
	if d.Exponent() > maxInteger || coefficient.BitLen() > maxCoefficientBits || d.Abs().BigInt().Cmp(maxAmount) >= 0 {
		c.bad(field, "is 1e%d or more", maxInteger)
		return false
	}
	return true
}

func (c *checker) notNegative(field string, d Decimal) {
	if c.decimal(field, d) && d.IsNegative() {
		c.bad(field, "%s is negative", d)
	}
}

// fraction accepts a share from 0 to 1.
func (c *checker) fraction(field string, d NullDecimal) {
	if !d.Valid {
		c.bad(field, "is missing, want a number from 0 to 1")
		return
	}
	if c.decimal(field, d.Decimal) && (d.Decimal.IsNegative() || d.Decimal.Cmp(one) > 0) {
		c.bad(field, "%s is not between 0 and 1", d.Decimal)
	}
}

// money accepts an amount of either sign. The currency may be missing if the amount is zero.
func (c *checker) money(field string, m Money) {
	if c.decimal(field, m.Amount) && (m.Currency != "" || !m.Amount.IsZero()) {
		c.currency(field, m.Currency)
	}
}

func (c *checker) price(field string, m Money) {
	c.money(field, m)
	c.notNegative(field, m.Amount)
}

// amount accepts money that must name its currency even when it is zero.
func (c *checker) amount(field string, m Money) {
	c.price(field, m)
	c.currency(field, m.Currency)
}

func (c *checker) position(field, s string) {
	if len(s) > maxText {
		c.bad(field, "has %d bytes, at most %d are allowed", len(s), maxText)
		return
	}
	if _, err := ParsePosition(s); err != nil {
		c.bad(field, "%v", err)
	}
}

// computedFrom checks the fields that every computed result has.
func (c *checker) computedFrom(position, method string) {
	c.position("position", position)
	c.id("method", method)
}

func (c *checker) nodeAndReason(node, reason string) {
	c.id("node", node)
	c.text("reason", reason)
}
