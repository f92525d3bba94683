package cli

import (
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// A document of a recommendation is read, or refused as invalid, and what is read is an event that validates or says why not.
func FuzzProposal(f *testing.F) {
	f.Add("kind: rightsize\nsummary: a slice is enough\nclusters: [lab]\nsteps: [one, two]\nsaving: 12.50 USD\n")
	f.Add("kind: shift\nsummary: x\nclusters: [b, a, a]\nwhy_more: load moves\ncost: 1e400 USD\nexpires: 2026-13-01\n")
	f.Add("kind: [\n")
	f.Fuzz(func(t *testing.T, text string) {
		made, err := parseProposal("p.yaml", []byte(text))
		if err != nil {
			if app.KindOf(err) != app.KindInvalid {
				t.Fatalf("%q: %v is not invalid", text, err)
			}
			return
		}
		again, err := parseProposal("p.yaml", []byte(text))
		if err != nil || again.Recommendation != made.Recommendation {
			t.Fatalf("%q has two ids, or none: %v", text, err)
		}
		_ = domain.Validate(&domain.Envelope{Workspace: "w", Time: 1, Event: made}) // which may refuse it, and must not panic
	})
}
