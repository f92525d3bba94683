package cli

import (
	"bytes"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/domain/plan"
)

// Every key that a plan or the demo can answer with is in the help.
func TestHelpNamesEveryKeyOfPlans(t *testing.T) {
	for _, c := range []struct {
		answer reflect.Type
		args   []string
	}{
		{reflect.TypeFor[plan.Plan](), []string{"plan", "--help"}},
		{reflect.TypeFor[plan.Plan](), []string{"plan", "show", "--help"}},
		{reflect.TypeFor[[]app.RecordedPlan](), []string{"plan", "list", "--help"}},
		{reflect.TypeFor[demoAnswer](), []string{"demo", "--help"}},
	} {
		keys := map[string]bool{}
		apptest.JSONKeys(c.answer, keys)
		if len(keys) < 9 {
			t.Fatalf("%v: only %d keys were found", c.args, len(keys))
		}
		_, help := command(t, t.TempDir(), c.args...)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(k) + `\b`).MatchString(help) {
				t.Errorf("%v does not name %q", c.args, k)
			}
		}
	}
}

// Held commitments that a plan does not count stand in its summary.
func TestPlanNamesWhatItIgnores(t *testing.T) {
	var out bytes.Buffer
	a := commandLine(&app.App{}, &out, io.Discard)
	a.showPlan(&plan.Plan{Ignored: []plan.Ignored{{
		Commitment: "savings-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Units: 1, Reason: "spend_commitment spans pools and is not planned yet",
	}}}, 0)
	for _, want := range []string{"ignored: 1 held commitments are in no amount of this plan", "savings-1 (spend_commitment of aws): spend_commitment spans pools"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
