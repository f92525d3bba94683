package attribution

import (
	"testing"

	"pgregory.net/rapid"
)

// What is moved and what stays is useful at most for as long as it is measured, and measured at most for as long as it is
// held, to the microsecond; and nothing is lost. Sums are rounded each by itself, which may give one a microsecond too much.
func TestMovedPartsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var of []use
		var micros int64
		for range rapid.IntRange(1, 6).Draw(t, "uses") {
			held := rapid.Int64Range(1, 50).Draw(t, "micros")
			known := held - rapid.Int64Range(0, min(2, held)).Draw(t, "unknown")
			of = append(of, use{micros: held, known: known, useful: rapid.Int64Range(0, known).Draw(t, "useful")})
			micros += held
		}
		before := append([]use{}, of...)
		part := rapid.Int64Range(0, micros).Draw(t, "part")
		moved := moveParts(nil, of, micros, part)
		var sum int64
		for i := range moved {
			for _, u := range []use{moved[i], of[i]} {
				if u.useful < 0 || u.useful > u.known || u.known > u.micros {
					t.Fatalf("%d of %d: %+v of %+v", part, micros, u, before[i])
				}
			}
			if moved[i].micros+of[i].micros != before[i].micros || moved[i].known+of[i].known != before[i].known || moved[i].useful+of[i].useful != before[i].useful {
				t.Fatalf("%+v and %+v are not %+v", moved[i], of[i], before[i])
			}
			sum += moved[i].micros
		}
		if sum != part {
			t.Fatalf("%d microseconds are moved, want %d", sum, part)
		}
	})
}
