package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/plan"
)

// Held commitments that a plan does not count stand in its summary.
func TestPlanNamesWhatItIgnores(t *testing.T) {
	var out bytes.Buffer
	a := commandLine(&app.App{}, &out, io.Discard)
	a.showPlan(&plan.Plan{Ignored: []plan.Ignored{{
		Commitment: "savings-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Units: 1, Reason: "no pool of the plan has a committed price of it",
	}}}, 0)
	for _, want := range []string{"ignored: 1 held commitments are not in the amounts of this plan", "savings-1 (spend_commitment of aws): no pool of the plan has"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
