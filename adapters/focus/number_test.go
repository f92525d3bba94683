package focus

import (
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

func TestRoundingIsHalfToEven(t *testing.T) {
	for text, want := range map[string]string{
		"0.00000000000000000050":       "0", // a tie, rounded to even
		"0.0000000000000000015":        "0.000000000000000002",
		"0.0000000000000000025":        "0.000000000000000002",
		"-0.0000000000000000025":       "-0.000000000000000002",
		"0.00000000000000000250000001": "0.000000000000000003",
		"1e-19":                        "0",
		"6E-19":                        "0.000000000000000001",
		"1.23456789012345678901234":    "1.234567890123456789",
		"0.1000000000000000055511151231257827021181583404541015625": "0.100000000000000006",
		"999999999999999.9999999999999999994":                       "999999999999999.999999999999999999",
		"0." + strings.Repeat("0", 1073) + "5":                      "0",
	} {
		n, reason := parseAmount(text)
		exact := decimal.RequireFromString(text)
		if reason != "" || n.kept.String() != want || !n.kept.Add(n.rest).Equal(exact) || n.rest.IsZero() {
			t.Errorf("%s is kept as %s, want %s; rest %s, %s", text, n.kept, want, n.rest, reason)
		}
	}
}

// FuzzNumber compares the parser with rational arithmetic: kept plus rest is exact, and kept is
// within the bounds of a line.
func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "1.5", "-12.50", ".5", "5.", "1e3", "35.2E-7", "1e-19", "5e-324", "1e999999999", "1e-1100", "1e+2", "--1", "1e", "e1", ".", "", "NaN", "0x1",
		"999999999999999.9999999999999999995", "0.12345678901234567890123", "1_000", "1,000", "١", strings.Repeat("9", 2000),
	} {
		f.Add(s)
	}
	half := big.NewRat(1, 2e18)
	f.Fuzz(func(t *testing.T, text string) {
		for most, parse := range map[int]func(string) (number, string){maxDigits: parseDecimal, maxAmountDigits: parseAmount} {
			n, reason := parse(text)
			if reason != "" {
				if !n.kept.IsZero() || !n.rest.IsZero() || len(reason) > 200 {
					t.Fatalf("%q: %+v beside %q", text, n, reason)
				}
				continue
			}
			if len(text) > domain.MaxWritten {
				t.Fatalf("%q is read", text)
			}
			want, ok := new(big.Rat).SetString(text)
			if !ok {
				t.Fatalf("%q is no number, and read as %s", text, n.kept)
			}
			if got := new(big.Rat).Add(n.kept.Rat(), n.rest.Rat()); got.Cmp(want) != 0 || new(big.Rat).Abs(n.rest.Rat()).Cmp(half) > 0 {
				t.Fatalf("%q is read as %s and %s", text, n.kept, n.rest)
			}
			if n.kept.Exponent() < -maxDecimals || !n.kept.IsZero() && int(order(n.kept)) > most {
				t.Fatalf("%q is kept as %s, beyond the bounds of a line", text, n.kept)
			}
		}
	})
}
