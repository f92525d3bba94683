package tabular

import (
	"strings"
	"testing"
)

func TestOtherDelimiter(t *testing.T) {
	for header, want := range map[string]string{
		"a,b,c":              "",
		"a":                  "",
		"a;b":                `";"`,
		"a;b;c, of all;d":    `";"`, // a comma within a name
		"a\tb":               "a tab",
		"a|b|c":              `"|"`,
		"amount;net,tax,vat": "",
	} {
		have := OtherDelimiter(strings.Split(header, ","))
		if want == "" && have != "" || want != "" && !strings.Contains(have, "looks like "+want) {
			t.Errorf("%q: %q, want %q", header, have, want)
		}
	}
}
