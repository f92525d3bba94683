package tabular

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// BadRow is a row that was not imported.
type BadRow struct {
	File   string `json:"file"`
	Line   int    `json:"line"`            // where the row starts, from 1
	Field  string `json:"field,omitempty"` // column; empty when the row as a whole is wrong
	Value  string `json:"value,omitempty"` // at most 120 bytes of it
	Reason string `json:"reason"`
}

// String returns "file:line: field "value" reason".
func (b BadRow) String() string {
	s := b.File + ":" + strconv.Itoa(b.Line) + ": "
	if b.Field != "" {
		s += b.Field + " "
	}
	if b.Value != "" {
		s += strconv.Quote(b.Value) + " "
	}
	return s + b.Reason
}

// Warning is about something that was imported but should be checked. Equal warnings are counted.
type Warning struct {
	Reason string `json:"reason"`
	Value  string `json:"value,omitempty"`
	Rows   int    `json:"rows"`
	Line   int    `json:"line"` // of the first
}

// maxWarnings bounds the different warnings of a file. Further ones are counted as one.
const maxWarnings = 200

// Warnings counts equal warnings. The zero value is ready to use.
type Warnings struct {
	List []Warning
	at   map[Warning]int // by reason and value, to the index in List
}

// Add counts a warning about a line, and returns its index in List.
func (w *Warnings) Add(reason, value string, line int) int {
	key := Warning{Reason: reason, Value: Clip(value)}
	i, ok := w.at[key]
	if !ok && len(w.List) >= maxWarnings {
		key = Warning{Reason: "further warnings"}
		i, ok = w.at[key]
	}
	if !ok {
		if w.at == nil {
			w.at = map[Warning]int{}
		}
		key.Value = strings.Clone(key.Value)
		i = len(w.List)
		w.at[key] = i
		key.Line = line
		w.List = append(w.List, key)
	}
	w.List[i].Rows++
	return i
}

// Local parses a time without a zone: a day, or a day and a time separated by T. ok says whether s
// has that form. why says why it is not a unique moment in the zone. If zone is nil, the time is
// refused.
func Local(s string, zone *time.Location) (t time.Time, why string, ok bool) {
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02"} {
		naive, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if zone == nil {
			return naive, "has no time zone: say which zone the file's times are in, or write them with a trailing Z", true
		}
		t, why = inZone(naive, zone)
		return t, why, true
	}
	return time.Time{}, "", false
}

// inZone returns the moment at which clocks in a zone showed a local time, or why there is none.
// There is no such moment where clocks are put forward, and there are two where they are put back.
// Both are refused, because a guess would be wrong by an hour.
func inZone(naive time.Time, zone *time.Location) (t time.Time, why string) {
	var found []time.Time
	for _, around := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		_, offset := naive.Add(around).In(zone).Zone()
		t := naive.Add(-time.Duration(offset) * time.Second)
		if _, at := t.In(zone).Zone(); at == offset && !slices.ContainsFunc(found, t.Equal) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return naive, "does not exist in " + zone.String() + ": clocks were put forward over it"
	case 1:
		return found[0], ""
	default:
		return naive, "happened twice in " + zone.String() + ": clocks were put back over it; write it with its offset"
	}
}

// Clip shortens a value for display, at a character boundary of UTF-8.
func Clip(s string) string {
	const most = 120
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
