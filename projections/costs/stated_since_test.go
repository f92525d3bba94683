package costs

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNamesOfLinesAreSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.SampledFrom([]rune(`ab|\`)), 1, 6, -1)
		issuer, account, id := part.Draw(t, "issuer"), part.Draw(t, "account"), part.Draw(t, "id")
		name := ledgerName(issuer, account, id)
		of, line, ok := splitLedgerName(name)
		if want := name[:len(name)-len(id)-1]; !ok || of != want || line != id {
			t.Fatalf("%q is split into %q and %q, want %q and %q", name, of, line, want, id)
		}
	})
	for _, other := range []string{"", "cluster/node", "issuer|account", `a\|b\|c|d`} {
		if _, _, ok := splitLedgerName(other); ok {
			t.Errorf("%q is taken for the name of a line", other)
		}
	}
}
