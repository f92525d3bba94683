package instance

import (
	"strings"
	"testing"
)

// A gap that is more than rounding is explained, and a weak proof removes the prices of
// constraints.
func TestWeakProofIsSaid(t *testing.T) {
	m := &model{in: &Instance{Currency: "USD"}}
	for _, c := range []struct {
		gap, bound string
		note       string
		prices     int
	}{
		{"0.0001", "999900", "", 1},
		{"0.000485099677", "999515.14", "the gap is 0.049 %: these purchases cost up to 484.86 USD more than the best could", 1},
		{"1", "-294091255.06", "what loosening a constraint is worth is left out", 0},
	} {
		a := &Answer{Cost: dec("1000000"), LowerBound: dec(c.bound), Gap: dec(c.gap), Binding: []Binding{{Constraint: "budget", Price: dec("65.10")}}}
		m.weigh(a)
		if notes := strings.Join(a.Notes, "; "); !strings.Contains(notes, c.note) || (c.note == "") != (notes == "") || len(a.Binding) != c.prices {
			t.Errorf("gap %s: %q, %d prices", c.gap, notes, len(a.Binding))
		}
	}
}
