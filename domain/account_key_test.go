package domain

import "testing"

func TestAccountKey(t *testing.T) {
	for _, c := range []struct{ issuer, account, want string }{
		{"AWS", "42", "AWS|42"}, {"a|b", "42", `a\|b|42`}, {"a", "b|42", `a|b\|42`}, {`a\`, "b", `a\\|b`}, {`a\|b`, "c", `a\\\|b|c`},
		{"", "42", ""}, {"AWS", "", ""},
	} {
		if got := AccountKey(c.issuer, c.account); got != c.want {
			t.Errorf("%q and %q are %q, want %q", c.issuer, c.account, got, c.want)
		}
		if c.want == "" {
			continue
		}
		if issuer, account := SplitAccountKey(c.want); issuer != c.issuer || account != c.account {
			t.Errorf("%q is split into %q and %q, want %q and %q", c.want, issuer, account, c.issuer, c.account)
		}
	}
}
