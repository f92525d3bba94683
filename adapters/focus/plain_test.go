package focus

import "testing"

// appendPlain equals the String method, and no parsed number has trailing zeros.
func TestAppendPlain(t *testing.T) {
	for _, text := range []string{"0", "1", "-1", "0.1", "-0.000000000000000001", "1500", "12.50", "999999999999999999", "1000000000000000000", "123456789012345678901234.123456789012345678", "-0.05", "5e3", "1e-5", "100.001"} {
		n, reason := parseDecimal(text)
		d := n.kept
		if got := string(appendPlain(nil, d)); reason != "" || got != d.String() || d.Exponent() > 0 {
			t.Errorf("%s is appended as %s, want %s %s", text, got, d, reason)
		}
	}
}
