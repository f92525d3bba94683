package registry_test

import (
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// recommended is a log with a recommendation for two clusters.
func recommended(events ...func(l *storetest.Log)) *storetest.Log {
	const day, start = domain.Day, storetest.Start
	l := storetest.NewLog()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("100"), start))
	l.Append(storetest.Ann.Register(storetest.Root, "acme", domain.RolePlanner, storetest.USD("100"), start))
	l.Append(storetest.Bob.Register(storetest.Root, "acme", domain.RoleOperator, storetest.USD("100"), start))
	l.Append(storetest.Ben.Register(storetest.Root, "rival", domain.RoleAdmin, storetest.USD("100"), start))
	l.Append(domain.Envelope{Workspace: "acme", Time: start + day, Event: &domain.RecommendationMade{
		Recommendation: "r", Kind: "shift", Summary: "move chat", Cost: *storetest.USD("5"), Requester: "ann", Expires: start + 10*day,
		Clusters: []string{"c1", "c2"}, WhyMore: "it moves load",
	}})
	for _, add := range events {
		add(l)
	}
	return l
}

// by appends an event that somebody signs on a day.
func by(who storetest.Operator, day int, ev domain.Event) func(*storetest.Log) {
	return func(l *storetest.Log) {
		l.Append(who.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start + domain.Instant(day)*domain.Day, Event: ev}))
	}
}

// said appends an event that nobody signs on a day.
func said(day int, ev domain.Event) func(*storetest.Log) {
	return func(l *storetest.Log) {
		l.Append(domain.Envelope{Workspace: "acme", Time: storetest.Start + domain.Instant(day)*domain.Day, Event: ev})
	}
}

func command(by storetest.Operator) *domain.CommandIssued {
	approval := by.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start + 2*domain.Day, Event: &domain.RecommendationApproved{Recommendation: "r"}})
	return &domain.CommandIssued{
		Command: "d", Recommendation: "r", Cluster: "c1", Kind: "shift", Expires: storetest.Start + 9*domain.Day, Document: []byte("{}"),
		Approvals: []domain.Approval{domain.ApprovalOf(approval.Signature)},
	}
}

func TestRecommendationsAreDecidedByOthers(t *testing.T) {
	approved := &domain.RecommendationApproved{Recommendation: "r"}
	for _, c := range []struct {
		name string
		log  *storetest.Log
		want []string
	}{
		{"not by whoever asked", recommended(by(storetest.Ann, 2, approved)), []string{`RecommendationApproved ann: operator "ann" asked for it: another person must approve it`}},
		{"nor by an operator of nodes", recommended(by(storetest.Bob, 2, approved)), []string{`RecommendationApproved bob: operator "bob" is operator, and RecommendationApproved is for [admin finance planner]`}},
		{"nor from another workspace", recommended(by(storetest.Ben, 2, approved)), []string{`RecommendationApproved ben: operator "ben" has no such key in the registry`}},
		{"nor after it expired", recommended(by(storetest.Root, 10, approved)), []string{"RecommendationApproved root: it expired at 2026-05-11T00:00:00Z: it must be proposed again"}},
		{"nor after it was withdrawn", recommended(by(storetest.Ann, 2, &domain.RecommendationWithdrawn{Recommendation: "r"}), by(storetest.Root, 3, approved)),
			[]string{`RecommendationApproved root: operator "ann" withdrew it at 2026-05-03T00:00:00Z`}},
		{"a void withdrawal withdraws nothing", recommended(by(storetest.Bob, 2, &domain.RecommendationWithdrawn{Recommendation: "r"}), by(storetest.Root, 3, approved)),
			[]string{`RecommendationWithdrawn bob: operator "bob" is operator, and RecommendationWithdrawn is for [admin finance planner]`}},
		{"a command needs its approval", recommended(said(3, command(storetest.Root))), []string{`CommandIssued : the log has no valid approval by operator "root"`}},
		{"and a valid one", recommended(by(storetest.Ann, 2, approved), said(3, command(storetest.Ann))), []string{
			`RecommendationApproved ann: operator "ann" asked for it: another person must approve it`, `CommandIssued : the log has no valid approval by operator "ann"`}},
		{"and then it is valid", recommended(by(storetest.Root, 2, approved), said(3, command(storetest.Root))), nil},
		{"nobody acts for another", recommended(by(storetest.Bob, 3, &domain.RecommendationActuated{Recommendation: "r", Actor: domain.OperatorActor("root")})),
			[]string{`RecommendationActuated bob: it names "operator:root" as its actor, and operator "bob" signed it`}},
		{"operators act, and say what came of it", recommended(by(storetest.Bob, 3, &domain.RecommendationActuated{Recommendation: "r", Actor: domain.OperatorActor("bob")}),
			by(storetest.Ann, 4, &domain.OutcomeRecorded{Recommendation: "r", Outcome: "partial", Actor: domain.OperatorActor("ann")})), nil},
	} {
		storetest.FoldView(t, c.log, func(v projections.View) {
			a, err := registry.NewAuthority(v)
			if err != nil {
				t.Fatal(err)
			}
			rejected, err := a.Rejections(v)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rejected {
				got = append(got, string(r.Type)+" "+r.Operator+": "+r.Reason)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s:\n%s\nwant:\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestTrailOfCommands holds that one line says who approved what, for which clusters, when it was actuated by whom, and
// what came of it.
func TestTrailOfCommands(t *testing.T) {
	l := recommended(
		by(storetest.Root, 2, &domain.RecommendationApproved{Recommendation: "r"}),
		said(3, command(storetest.Root)),
		said(4, &domain.RecommendationActuated{Recommendation: "r", Cluster: "c1", Command: "d", Actor: domain.KeyActor("k1")}),
		by(storetest.Bob, 5, &domain.RecommendationActuated{Recommendation: "r", Cluster: "c2", Actor: domain.OperatorActor("bob"), Result: "failed"}),
		said(6, &domain.OutcomeRecorded{Recommendation: "r", Outcome: "partial", Detail: "c2 is full"}),
		by(storetest.Ann, 7, &domain.RecommendationWithdrawn{Recommendation: "r", Reason: "enough"}),
	)
	want := []string{
		"requester ann in workspace acme asked for shift recommendation r for clusters c1, c2 (move chat), approved by root at 2026-05-03T00:00:00Z",
		"operator root in workspace acme approved shift recommendation r for clusters c1, c2, actuated at 2026-05-05T00:00:00Z in cluster c1 by key k1, " +
			"failed at 2026-05-06T00:00:00Z in cluster c2 by operator bob, outcome partial success (c2 is full)",
		"a program in workspace acme issued command d of shift recommendation r for cluster c1 until 2026-05-10T00:00:00Z, actuated at 2026-05-05T00:00:00Z by key k1",
		"key k1 in workspace acme carried out shift recommendation r for cluster c1, actuated at 2026-05-05T00:00:00Z by key k1",
		"operator bob in workspace acme failed to carry out shift recommendation r for cluster c2, failed at 2026-05-06T00:00:00Z by operator bob",
		"a program in workspace acme recorded what came of shift recommendation r for clusters c1, c2, outcome partial (c2 is full)",
		"operator ann in workspace acme withdrew shift recommendation r for clusters c1, c2 (enough), not actuated",
	}
	if got := trail(t, l, registry.TrailFilter{Recommendation: "r"}); !slices.Equal(got, want) {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := trail(t, l, registry.TrailFilter{Recommendation: "r", Cluster: "c2"}); len(got) != 5 {
		t.Errorf("of cluster c2 there are %d lines, want 5:\n%s", len(got), strings.Join(got, "\n"))
	}
}
