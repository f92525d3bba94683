package domain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Instant is a moment in UTC: nanoseconds since the Unix epoch. It prints and parses as RFC 3339.
// The zero Instant stands for "not given"; no event is older than 1970.
type Instant int64

// Lengths in the unit of [Instant].
const (
	Second Instant = 1e9
	Hour   Instant = 3600 * Second
	Day    Instant = 24 * Hour

	QuarterHour = Hour / 4
)

// MonthHours are the hours of a month in prices: a year of 8,760 hours has twelve.
const MonthHours = 730

// InstantOf converts a time, dropping its location.
func InstantOf(t time.Time) Instant { return Instant(t.UnixNano()) }

// Time returns the instant as a time in UTC.
func (t Instant) Time() time.Time { return time.Unix(0, int64(t)).UTC() }

// IsZero reports whether the instant was not given.
func (t Instant) IsZero() bool { return t == 0 }

// HourStart returns the start of the UTC hour that holds t.
func (t Instant) HourStart() Instant { return t - mod(t, Hour) }

// QuarterStart returns the start of the quarter of an hour that holds t.
func (t Instant) QuarterStart() Instant { return t - mod(t, QuarterHour) }

// DayStart returns the start of the UTC day that holds t.
func (t Instant) DayStart() Instant { return t - mod(t, Day) }

func mod(t, d Instant) Instant {
	m := t % d
	if m < 0 {
		m += d
	}
	return m
}

// String returns RFC 3339 with as many fractional digits as needed, "" when zero.
func (t Instant) String() string {
	if t == 0 {
		return ""
	}
	return t.Time().Format(time.RFC3339Nano)
}

// MarshalText writes what [Instant.String] returns.
func (t Instant) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads RFC 3339 with a zone, or "" for the zero Instant.
func (t *Instant) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*t = 0
		return nil
	}
	v, err := ParseInstant(string(b))
	if err != nil {
		return err
	}
	*t = v
	return nil
}

// The years that an Instant may lie in. Outside them nanoseconds overflow or the value is a
// mistake.
const (
	minYear = 1970
	maxYear = 2261
)

// ParseInstant reads an RFC 3339 time. It refuses a time without a zone, which could mean any of
// more than twenty hours, and amounts of money depend on which.
func ParseInstant(s string) (Instant, error) {
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		if _, naive := time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(s, " ", "T", 1)); naive == nil {
			return 0, fmt.Errorf("time %q has no zone: write it in UTC with a trailing Z", s)
		}
		return 0, fmt.Errorf("time %q is not RFC 3339, for example 2026-05-01T00:00:00Z", s)
	}
	if y := v.UTC().Year(); y < minYear || y > maxYear {
		return 0, fmt.Errorf("time %q is outside the years %d to %d", s, minYear, maxYear)
	}
	return InstantOf(v), nil
}

// ParseTime reads what a person writes: an RFC 3339 time, or a date or month in UTC for its beginning.
// It refuses the first instant of all, because 0 stands for no time.
func ParseTime(s string) (Instant, error) {
	text := s
	for _, layout := range []string{time.DateOnly, "2006-01"} {
		if t, err := time.Parse(layout, s); err == nil {
			text = t.Format(time.RFC3339)
		}
	}
	t, err := ParseInstant(text)
	switch {
	case err != nil && text == s:
		return 0, fmt.Errorf("%w; a date such as 2026-05-01 or a month such as 2026-05 also works", err)
	case err == nil && t == 0:
		return 0, fmt.Errorf("time %q stands for no time: write a later one", s)
	}
	return t, err
}

// Month returns the calendar month, in UTC, that holds t.
func (t Instant) Month() Interval {
	at := t.Time()
	return Interval{
		InstantOf(time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)),
		InstantOf(time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)),
	}
}

// Interval is half-open: From belongs to it, To does not.
type Interval struct {
	From Instant `json:"from"`
	To   Instant `json:"to"`
}

// Empty reports whether the interval contains no instant.
func (i Interval) Empty() bool { return i.To <= i.From }

// Intersect returns the common part, which may be empty.
func (i Interval) Intersect(j Interval) Interval {
	return Interval{max(i.From, j.From), min(i.To, j.To)}
}

// Length returns the length in nanoseconds, 0 when empty.
func (i Interval) Length() Instant { return max(0, i.To-i.From) }

// Without returns the time of i that is in none of others, as disjoint intervals by time.
func (i Interval) Without(others []Interval) (rest []Interval) {
	others = slices.Clone(others)
	slices.SortFunc(others, func(x, y Interval) int { return cmp.Compare(x.From, y.From) })
	for _, o := range others {
		if before := (Interval{i.From, min(i.To, o.From)}); !before.Empty() {
			rest = append(rest, before)
		}
		i.From = max(i.From, o.To)
	}
	if !i.Empty() {
		rest = append(rest, i)
	}
	return rest
}
