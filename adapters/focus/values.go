package focus

import (
	"bytes"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must mean the same on every machine

	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// isNull reports whether a nonempty value means null. FOCUS leaves null fields empty, but the
// sample data of its own project do not.
func isNull(v string) bool { return v == "NULL" || v == "null" || v == "(null)" }

// Limits of a number, as in domain.Validate.
const (
	maxDecimals = 18
	maxDigits   = 24 // before the point
)

// number is a number rounded to 18 decimals.
type number struct {
	kept domain.Decimal
	// rest is the number as written minus kept; zero if nothing was rounded.
	rest  domain.Decimal
	plain string // kept in the form of its String method; empty if something was rounded
}

// parseDecimal parses a number, or returns why it cannot. FOCUS allows exponents. It rounds half
// to even at 18 decimals.
func parseDecimal(s string) (number, string) { return parseBelow(s, maxDigits) }

// parseAmount parses an amount that attribution divides.
func parseAmount(s string) (number, string) { return parseBelow(s, maxAmountDigits) }

// parseBelow parses a number with at most most digits before the point.
func parseBelow(s string, most int) (number, string) {
	zero := number{plain: "0"}
	if d, plain, ok := parsePlain(s); ok {
		return number{kept: d, plain: plain}, ""
	}
	if len(s) > domain.MaxWritten {
		return zero, "is not a number: it has more than " + strconv.Itoa(domain.MaxWritten) + " characters"
	}
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return zero, notANumber(s)
		}
		if err != nil || e > domain.MaxWrittenPlaces || e < -domain.MaxWrittenPlaces {
			return zero, "is not a number that can be read: its exponent is beyond " + strconv.Itoa(domain.MaxWrittenPlaces)
		}
		mantissa, exponent = s[:i], e
	}
	digits, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	if len(whole)+len(fraction) == 0 || !isDigits(whole) || !isDigits(fraction) {
		return zero, notANumber(s)
	}
	// The number is coefficient × 10^-scale, without leading and trailing zeros.
	var room [80]byte
	coefficient := append(append(room[:0], whole...), fraction...)
	coefficient = bytes.TrimLeft(coefficient, "0")
	if len(coefficient) == 0 {
		return zero, ""
	}
	scale := len(fraction) - exponent + len(bytes.TrimRight(coefficient, "0")) - len(coefficient)
	coefficient = bytes.TrimRight(coefficient, "0")
	switch {
	case len(coefficient)-scale > most:
		return zero, tooLarge(most)
	case scale > domain.MaxWrittenPlaces:
		return zero, hasDecimals(scale) + ", at most " + strconv.Itoa(domain.MaxWrittenPlaces) + " are read"
	case scale > maxDecimals:
		exact := decimalOf(coefficient, scale, negative)
		kept := exact.RoundBank(maxDecimals)
		if int(order(kept)) > most {
			return zero, tooLarge(most)
		}
		return number{kept: kept, rest: exact.Sub(kept)}, ""
	}
	for ; scale < 0; scale++ {
		coefficient = append(coefficient, '0')
	}
	kept := decimalOf(coefficient, scale, negative)
	return number{kept: kept, plain: kept.String()}, ""
}

func hasDecimals(scale int) string {
	return "has " + strconv.Itoa(scale) + " decimals"
}

func tooManyDecimals(scale int) string {
	return hasDecimals(scale) + ", at most " + strconv.Itoa(maxDecimals) + " are kept exactly"
}

func tooLarge(most int) string {
	reason := "is 1e" + strconv.Itoa(most) + " or more"
	if most == maxAmountDigits {
		reason += ", too large for attribution"
	}
	return reason
}

// decimalOf returns digits × 10^-scale.
func decimalOf(digits []byte, scale int, negative bool) domain.Decimal {
	if len(digits) <= maxInt64Digits {
		n := int64(0)
		for _, d := range digits {
			n = 10*n + int64(d-'0')
		}
		if negative {
			n = -n
		}
		return decimal.New(n, -int32(scale))
	}
	n, _ := new(big.Int).SetString(string(digits), 10)
	if negative {
		n.Neg(n)
	}
	return decimal.NewFromBigInt(n, -int32(scale))
}

// maxInt64Digits is the number of decimal digits that always fit in an int64.
const maxInt64Digits = 18

// parsePlain parses a number of up to 18 digits that is written without an exponent and without zeros in front. It
// returns the beginning of the text that is the number in the form of its String method. It reports false for any
// other text, and if the number may be out of bounds.
func parsePlain(s string) (d domain.Decimal, plain string, ok bool) {
	digits := strings.TrimPrefix(s, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	fraction = strings.TrimRight(fraction, "0")
	if len(whole) == 0 || len(whole) > maxAmountDigits || len(whole)+len(fraction) > maxInt64Digits || whole[0] == '0' && len(whole) > 1 {
		return d, "", false
	}
	n := int64(0)
	for _, part := range [...]string{whole, fraction} {
		for i := range len(part) {
			digit := part[i] - '0'
			if digit > 9 {
				return d, "", false
			}
			n = 10*n + int64(digit)
		}
	}
	length := len(s) - len(digits) + len(whole)
	if len(fraction) > 0 {
		length += 1 + len(fraction)
	}
	switch negative := len(digits) < len(s); {
	case n == 0 && negative:
		return d, "", false
	case n == 0:
		return d, s[:length], true
	case negative:
		n = -n
	}
	return decimal.New(n, -int32(len(fraction))), s[:length], true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// notANumber returns why s is not a number, for the most common mistakes.
func notANumber(s string) string {
	switch {
	case strings.HasPrefix(s, "+"):
		return "has a plus sign, which FOCUS does not allow"
	case strings.ContainsRune(s, ',') && strings.Trim(s, "-.,0123456789") == "":
		return "has a comma: FOCUS writes numbers without thousands separators, with a point before the decimals"
	case strings.ContainsAny(s, "$€£¥"):
		return "has a currency sign: FOCUS names the currency in a column of its own"
	}
	return "is not a number"
}

// clock parses the times of a file: RFC 3339, or local times of one zone.
type clock struct {
	zone *time.Location // nil: times without a zone are refused
}

// withoutSeconds is Azure's format of times.
const withoutSeconds = "2006-01-02T15:04Z07:00"

// parse parses a time, or returns why it cannot.
func (k clock) parse(s string) (domain.Instant, string) {
	want := "is not a time such as 2026-05-01T00:00:00Z"
	if len(s) > 40 {
		return 0, want
	}
	if utc, ok := strings.CutSuffix(s, " UTC"); ok { // BigQuery's format
		s = utc + "Z"
	}
	s = strings.Replace(s, " ", "T", 1)
	for _, layout := range []string{time.RFC3339Nano, withoutSeconds} {
		if t, err := time.Parse(layout, s); err == nil {
			return instantOf(t)
		}
	}
	if t, why, ok := tabular.Local(s, k.zone); why != "" {
		return 0, why
	} else if ok {
		return instantOf(t)
	}
	if strings.Count(s, "/") == 2 {
		want += "; 5/1/26 is May to some and January to others"
	}
	return 0, want
}

func instantOf(t time.Time) (domain.Instant, string) {
	if y := t.UTC().Year(); y < 1970 || y > 2260 {
		return 0, "is outside the years 1970 to 2260"
	}
	return domain.InstantOf(t), ""
}
