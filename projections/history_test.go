package projections

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// The valid statement at any time is the last one stated before it, in every order of arrival,
// although not all equal statements are kept.
func TestHistoryHoldsWhatWasStatedLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type statement struct {
			at   domain.Instant
			name string
		}
		n := rapid.IntRange(1, 8).Draw(t, "statements")
		var said []statement
		for i := range n {
			said = append(said, statement{domain.Instant(i+1) * domain.Hour, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")})
		}
		// All but one arrive in order; one comes late.
		late := rapid.IntRange(0, n-1).Draw(t, "late")
		order := append(slices.Delete(slices.Clone(said), late, late+1), said[late])
		h := &History{}
		for i, s := range order {
			if err := h.insert(Version{
				Order: domain.Precedence{Effective: s.at, Time: s.at, Source: "s", Incarnation: 1, Sequence: uint64(i + 1)},
				Event: &domain.WorkspaceRegistered{Name: s.name},
			}, true); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range said {
			// If a late statement falls between repeats of a statement, only the first and last
			// time of that statement are known.
			got := h.At(s.at).Event.(*domain.WorkspaceRegistered).Name
			if got != s.name && !(i > late && said[late].name != s.name && i < n-1 && said[i+1].name == s.name) {
				t.Fatalf("at %s %q holds, want %q; arrived %v, kept %+v", s.at, got, s.name, order, h.Versions)
			}
		}
		for i := 1; i < len(h.Versions); i++ {
			if !h.Versions[i].Order.After(h.Versions[i-1].Order) {
				t.Fatalf("versions are not in order: %+v", h.Versions)
			}
		}
	})
}
