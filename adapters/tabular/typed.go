package tabular

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"quartermaster/domain"
)

// Kind is the type of the values of a written column. A value is given by its text; the empty text is null.
type Kind uint8

// The kinds. A decimal is plain, without an exponent and without trailing zeros. A whole number fits in 64 bits. A time is in
// RFC 3339 in UTC. A flag is true or false.
const (
	Texts Kind = iota
	Decimals
	Wholes
	Times
	Flags
)

// Column is a column of a file that is written.
type Column struct {
	Name string
	Kind Kind
}

// Writer writes rows to a file of any format. All formats hold the same values.
type Writer interface {
	// Write writes a row with the text of a value for each column. The row is not kept. A value that the format
	// cannot hold is refused with a [*CellError]; nothing is rounded or cut.
	Write(row []string) error
	// Close ends the file. It MUST be called once, and returns the first error of any write.
	Close() error
}

// CellError is a value that a file cannot hold. The caller names the row and the column to the user, who picks another
// format.
type CellError struct {
	Row    int // from 1, without the header
	Column string
	Reason string
}

func (e *CellError) Error() string {
	return fmt.Sprintf("row %d, column %s: %s", e.Row, e.Column, e.Reason)
}

// Safe returns a text that no spreadsheet program takes for a formula, and that has no control character but tab and line
// feed:
//
//   - A text gets an apostrophe in front if, after any apostrophes, it begins with =, +, -, @, tab or line feed, or one of
//     the full-width forms of the first four.
//   - A control character becomes _xHHHH_, with its number in four hexadecimal digits. So a text that has such a form
//     already gets _x005F in front of it. ECMA-376 defines both for spreadsheets.
//
// [Plain] returns the text again.
func Safe(s string) string {
	if harmless(s) {
		return s
	}
	var b strings.Builder
	if formula(s) {
		b.WriteByte('\'')
	}
	after := false // a control character
	for i, r := range s {
		was := after
		after = r != '\t' && r != '\n' && unicode.IsControl(r)
		switch {
		case was && r == 'x' && escaped("_"+s[i:]): // some programs would let it share the underscore before it
			b.WriteString("_x0078_")
		case r == '_' && escaped(s[i:]):
			b.WriteString("_x005F_")
		case after:
			fmt.Fprintf(&b, "_x%04X_", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// harmless reports, at a glance, that a text is safe as it is.
func harmless(s string) bool {
	if s == "" {
		return true
	}
	if c := s[0]; c < '0' || c >= 0x80 || c == '=' || c == '@' {
		if formula(s) {
			return false
		}
	}
	for i := range len(s) {
		c := s[i]
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c == 0xc2 || c == '_' && i+1 < len(s) && s[i+1] == 'x' {
			return false
		}
	}
	return true
}

// formula reports whether a text begins as a formula, after any apostrophes.
func formula(s string) bool {
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(s, "'"))
	return strings.ContainsRune("=+-@\t\n＝＋－＠", r) && r != utf8.RuneError
}

// escaped reports whether a text begins with _xHHHH_.
func escaped(s string) bool {
	if len(s) < 7 || s[:2] != "_x" || s[6] != '_' {
		return false
	}
	_, err := strconv.ParseUint(s[2:6], 16, 16)
	return err == nil
}

// Plain returns the text of which [Safe] made another.
func Plain(s string) string {
	if s != "" && s[0] == '\'' && formula(s) {
		s = s[1:]
	}
	if !strings.Contains(s, "_x") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '_' || !escaped(s[i:]) {
			b.WriteByte(s[i])
			continue
		}
		n, _ := strconv.ParseUint(s[i+2:i+6], 16, 16)
		b.WriteRune(rune(n))
		i += 6
	}
	return b.String()
}

// Canonical returns the only text of a value that a file holds: a decimal without trailing zeros, a time in UTC. It
// returns a text that is no value of the kind as it is.
func Canonical(kind Kind, text string) string {
	switch kind {
	case Decimals:
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		if text == "-0" {
			return "0"
		}
	case Times:
		var t domain.Instant
		if t.UnmarshalText([]byte(text)) == nil {
			return t.String()
		}
	}
	return text
}
