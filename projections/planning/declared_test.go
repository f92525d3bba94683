package planning_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// A commitment is listed with the operator of its last valid decision.
func TestCommitmentStatements(t *testing.T) {
	const day = domain.Day
	start := storetest.Start
	l := storetest.NewLog()
	l.Append(buyer(start)...)
	l.Append(
		storetest.Ann.Register(storetest.Root, "home", domain.RoleFinance, storetest.USD("1000000"), start),
		purchased(storetest.Root, "acme", "c1", 2, domain.Interval{From: start + day, To: start + 9*day}, 0),
		renewed(storetest.Ann, "acme", "c1", 3, domain.Interval{From: start + 9*day, To: start + 20*day}, 2),
		renewed(storetest.Mallory, "acme", "c1", 9, domain.Interval{From: start + 20*day, To: start + 90*day}, 3), // void
	)
	storetest.FoldView(t, l, func(v projections.View) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			at, since, until domain.Instant
			by               string
			terms            int
		}{{start + day, start + day, start + 9*day, "root", 1}, {start + 3*day, start + day, start + 20*day, "ann", 2}, {start + 10*day, start + 9*day, start + 20*day, "ann", 1}} {
			got, err := planning.CommitmentStatements(v, a, c.at)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 {
				t.Fatalf("%d statements", len(got))
			}
			s := got[0]
			if s.Workspace != "acme" || s.Name != "c1" || s.Since != c.since || s.Until != c.until || s.DecidedBy != c.by || len(s.Declared.(planning.CommitmentEntry).Terms) != c.terms {
				t.Errorf("at %s: %+v", c.at, s)
			}
		}
		if got, err := planning.CommitmentStatements(v, a, start+20*day); err != nil || len(got) != 0 {
			t.Errorf("over: %+v, %v", got, err)
		}
	})
}
