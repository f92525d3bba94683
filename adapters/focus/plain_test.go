package focus

import (
	"testing"

	"github.com/shopspring/decimal"
)

// A number is written plainly as its String method does, and has no trailing zeros.
func TestPlainNumbers(t *testing.T) {
	for _, text := range []string{
		"0", "-0", "0.00", "-0.0", "1", "-1", "0.1", "-0.000000000000000001", "1500", "12.50", "12.", ".5", "007", "-12.00", "999999999999999999",
		"1000000000000000000", "123456789012345678901234.123456789012345678", "-0.05", "5e3", "1e-5", "100.001", "999999999999999.999",
		"9999999999999999.99", "98.320000000000000000", "-98.32000000000000000000000",
	} {
		n, reason := parseDecimal(text)
		want := decimal.RequireFromString(text)
		if reason != "" || n.plain != n.kept.String() || n.kept.Exponent() > 0 || !n.kept.Equal(want) {
			t.Errorf("%s is read as %s and written as %s, want %s: %s", text, n.kept, n.plain, want, reason)
		}
	}
	for _, text := range []string{"", "-", ".", "-.", "1.2.3", "--1", "1-", "+1", "1 ", "1,0", "0x1", "1:2", "1/2"} {
		if _, plain, ok := parsePlain(text); ok {
			t.Errorf("%q is read as %s", text, plain)
		}
	}
}
