package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"quartermaster/domain"
)

// Limits of a user's table.
const (
	maxLine    = 1 << 10
	maxEntries = 10_000
	maxMeaning = 200
)

// Parse reads a table in the form that table.txt explains. name is the file's name, for errors,
// which state line and field.
func Parse(name, text string) (*Table, error) {
	t := &Table{entries: map[key]Entry{}}
	lines := map[key]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		bad := func(field, format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s: %s", name, n, field, fmt.Sprintf(format, args...))
		}
		if len(line) > maxLine {
			return nil, bad("line", "has %d bytes, more than the %d allowed", len(line), maxLine)
		}
		if !utf8.ValidString(line) {
			return nil, bad("line", "is not UTF-8")
		}
		line = strings.TrimSpace(line)
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if f[0] == "version" {
			if t.version != "" || len(lines) > 0 {
				return nil, bad("version", "it stands once, before the first fault")
			}
			v, err := strconv.ParseUint(strings.Join(f[1:], " "), 10, 31)
			if err != nil || v == 0 {
				return nil, bad("version", "%q is not a number from 1 to 2147483647", strings.Join(f[1:], " "))
			}
			t.version = strconv.FormatUint(v, 10)
			continue
		}
		if len(f) < 7 {
			return nil, bad("line", "has %d fields, want sort, code, class, action, again, fatal and meaning", len(f))
		}
		e := Entry{Sort: Sort(f[0]), Code: f[1], Class: f[2], Action: f[3], Again: f[4], Meaning: strings.Join(f[6:], " ")}
		if e.Again == "-" {
			e.Again = ""
		}
		switch e.Sort {
		case XID, Health, Recovers:
			c, err := strconv.ParseUint(e.Code, 10, 32)
			if err != nil {
				return nil, bad("code", "%q is not a number from 0 to 4294967295", e.Code)
			}
			e.Code = strconv.FormatUint(c, 10)
		case Sign:
			if !slices.Contains(signs, e.Code) {
				return nil, bad("code", "%q is no sign: %s", e.Code, domain.Suggest(e.Code, signs))
			}
		default:
			return nil, bad("sort", "%q is unknown, want xid, health, recovery or sign", f[0])
		}
		if !slices.Contains(Classes, e.Class) {
			return nil, bad("class", "%q is unknown, want %s", e.Class, strings.Join(Classes, ", "))
		}
		if !slices.Contains(Actions, e.Action) {
			return nil, bad("action", "%q is unknown: %s", e.Action, domain.Suggest(e.Action, Actions))
		}
		if e.Again != "" && !slices.Contains(Actions, e.Again) {
			return nil, bad("again", "%q is unknown: %s", e.Again, domain.Suggest(e.Again, Actions))
		}
		switch f[5] {
		case "yes":
			e.Fatal = true
		case "no":
		default:
			return nil, bad("fatal", "is %q, want yes or no", f[5])
		}
		if len(e.Meaning) > maxMeaning {
			return nil, bad("meaning", "has %d bytes, more than the %d allowed", len(e.Meaning), maxMeaning)
		}
		for _, r := range e.Meaning {
			if !unicode.IsPrint(r) {
				return nil, bad("meaning", "holds the character %U", r)
			}
		}
		k := key{e.Sort, e.Code}
		if first, ok := lines[k]; ok {
			return nil, bad("code", "%s %s stands in line %d already", e.Sort, e.Code, first)
		}
		if len(lines) == maxEntries {
			return nil, bad("line", "there are more than %d faults", maxEntries)
		}
		lines[k] = n
		t.entries[k] = e
	}
	if t.version == "" {
		return nil, fmt.Errorf(`%s: it does not state its version: begin with a line "version 1", and count up with each change`,
			name)
	}
	return t, nil
}
