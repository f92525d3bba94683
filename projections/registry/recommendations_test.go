package registry_test

import (
	"fmt"
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
	l.Append(domain.Envelope{Workspace: "acme", Time: start + day, Event: shift()})
	for _, cluster := range []string{"c1", "c2"} {
		l.Append(storetest.Root.Sign(domain.Envelope{
			Workspace: "acme", Cluster: cluster, Time: start, Event: &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: "eu"},
		}))
	}
	for _, scope := range domain.KeyScopes() {
		l.Append(storetest.Root.Sign(domain.Envelope{
			Cluster: "c1", Time: start, Event: &domain.ClusterKeyIssued{KeyID: scope, MAC: make([]byte, 32), Scopes: []string{scope}, Expires: start + 8*day},
		}))
	}
	for _, add := range events {
		add(l)
	}
	return l
}

// shift is what [recommended] proposes.
func shift() *domain.RecommendationMade {
	return &domain.RecommendationMade{
		Recommendation: "r", Kind: "shift", Summary: "move chat", Cost: *storetest.USD("5"), Requester: "ann", Expires: storetest.Start + 10*domain.Day,
		Clusters: []string{"c1", "c2"}, WhyMore: "it moves load", Document: []byte(`{"steps":["move 1 replica"]}`),
	}
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
	approval := by.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start + 2*domain.Day, Event: storetest.Approve(shift())})
	document, err := domain.CanonicalJSON(registry.OrderOf(shift(), "acme", "c1"))
	if err != nil {
		panic(err)
	}
	return &domain.CommandIssued{
		Command: "d", Recommendation: "r", Cluster: "c1", Kind: "shift", Expires: storetest.Start + 9*domain.Day, Document: document,
		Approvals: []domain.Approval{domain.ApprovalOf(approval.Signature)},
	}
}

func TestRecommendationsAreDecidedByOthers(t *testing.T) {
	approved := storetest.Approve(shift())
	other := shift()
	other.To = "somewhere else"
	forged := func(edit func(*domain.CommandIssued)) *domain.CommandIssued {
		c := command(storetest.Root)
		edit(c)
		return c
	}
	acts := func(day int, cluster, key string) func(*storetest.Log) {
		return said(day, &domain.RecommendationActuated{Recommendation: "r", Cluster: cluster, Actor: domain.KeyActor(key)})
	}
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
		{"an approval names its content", recommended(by(storetest.Root, 2, &domain.RecommendationApproved{Recommendation: "r"})),
			[]string{"RecommendationApproved root: it does not say which content it approves"}},
		{"and approves no other", recommended(said(2, other), by(storetest.Root, 3, approved)),
			[]string{fmt.Sprintf("RecommendationApproved root: it approves content %.8x, and what was proposed last is %.8x", approved.Digest, storetest.Approve(other).Digest)}},
		{"a command says what was approved", recommended(by(storetest.Root, 2, approved), said(3, forged(func(c *domain.CommandIssued) { c.Document = []byte("{}") }))),
			[]string{"CommandIssued : it does not say what was approved"}},
		{"to a cluster that it touches", recommended(by(storetest.Root, 2, approved), said(3, forged(func(c *domain.CommandIssued) { c.Cluster = "c3" }))),
			[]string{`CommandIssued : the recommendation does not touch cluster "c3"`}},
		{"and for no longer", recommended(by(storetest.Root, 2, approved), said(3, forged(func(c *domain.CommandIssued) { c.Expires++ }))),
			[]string{"CommandIssued : it expires at 2026-05-10T00:00:00.000000001Z, after the 2026-05-10T00:00:00Z that its approvals are good for"}},
		{"nor of what was proposed before", recommended(by(storetest.Root, 2, approved), said(3, other), said(4, command(storetest.Root))),
			[]string{`CommandIssued : the log has no valid approval by operator "root"`}},
		{"a cluster acts with a key of its own", recommended(acts(3, "c1", domain.KeyReceive), acts(3, "c1", "k9"), acts(3, "c2", domain.KeyReceive)), []string{
			`RecommendationActuated : cluster "c1" has no key "k9"`, `RecommendationActuated : cluster "c2" has no key "receive"`}},
		{"to receive commands, while it lives", recommended(acts(3, "c1", domain.KeyPush), acts(8, "c1", domain.KeyReceive)), []string{
			`RecommendationActuated : key "push" of cluster "c1" may not receive commands`, `RecommendationActuated : key "receive" of cluster "c1" ended at 2026-05-09T00:00:00Z`}},
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

// TestProposalsStandByTheirContent holds that other content needs new approvals, that a command needs as many as a policy
// asked for when the last was signed, and that only what a key of the cluster did counts.
func TestProposalsStandByTheirContent(t *testing.T) {
	approved, other := storetest.Approve(shift()), shift()
	other.To = "somewhere else"
	two := func(l *storetest.Log) {
		l.Append(storetest.Root.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.PolicySet{
			Policy: "two", Kind: domain.PolicySecondApproval, Value: "1 USD", EffectiveFrom: storetest.Start, EffectiveTo: storetest.Start + 5*domain.Day,
		}}))
		l.Append(storetest.Bob.Register(storetest.Root, "acme", domain.RoleFinance, storetest.USD("100"), storetest.Start+domain.Day))
	}
	both := command(storetest.Root)
	both.Approvals = append(both.Approvals, command(storetest.Bob).Approvals...)
	acts := said(5, &domain.RecommendationActuated{Recommendation: "r", Cluster: "c1", Command: "d", Actor: domain.KeyActor("k9")})
	for _, c := range []struct {
		name      string
		log       *storetest.Log
		stage     registry.Stage
		approvals int
		acts      int
	}{
		{"approved", recommended(by(storetest.Root, 2, approved)), registry.StageApproved, 1, 0},
		{"other content before the approval", recommended(said(2, other), by(storetest.Root, 3, approved)), registry.StageProposed, 0, 0},
		{"other content after it", recommended(by(storetest.Root, 2, approved), said(3, other)), registry.StageProposed, 0, 0},
		{"and approved anew", recommended(by(storetest.Root, 2, approved), said(3, other), by(storetest.Root, 4, storetest.Approve(other))), registry.StageApproved, 1, 0},
		{"commanded", recommended(by(storetest.Root, 2, approved), said(3, command(storetest.Root)), acts), registry.StageIssued, 1, 0},
		{"a command lacks an approval", recommended(two, by(storetest.Root, 2, approved), by(storetest.Bob, 3, approved), said(4, command(storetest.Root))), registry.StageApproved, 2, 0},
		{"and has both", recommended(two, by(storetest.Root, 2, approved), by(storetest.Bob, 3, approved), said(4, both)), registry.StageIssued, 2, 0},
	} {
		storetest.FoldView(t, c.log, func(v projections.View) {
			all, err := registry.Proposals(v, storetest.Start+6*domain.Day)
			if err != nil || len(all) != 1 {
				t.Fatal(c.name, all, err)
			}
			if p := all[0]; p.Stage != c.stage || len(p.Approvals) != c.approvals || len(p.Actuations) != c.acts {
				t.Errorf("%s: %s with %d approvals and %d actuations, want %s, %d and %d", c.name, p.Stage, len(p.Approvals), len(p.Actuations), c.stage, c.approvals, c.acts)
			}
		})
	}
}

// TestTrailOfCommands holds that one line says who approved what, for which clusters, when it was actuated by whom, and
// what came of it.
func TestTrailOfCommands(t *testing.T) {
	l := recommended(
		by(storetest.Root, 2, storetest.Approve(shift())),
		said(3, command(storetest.Root)),
		said(4, &domain.RecommendationActuated{Recommendation: "r", Cluster: "c1", Command: "d", Actor: domain.KeyActor(domain.KeyReceive)}),
		by(storetest.Bob, 5, &domain.RecommendationActuated{Recommendation: "r", Cluster: "c2", Actor: domain.OperatorActor("bob"), Result: "failed"}),
		said(6, &domain.OutcomeRecorded{Recommendation: "r", Outcome: "partial", Detail: "c2 is full"}),
		by(storetest.Ann, 7, &domain.RecommendationWithdrawn{Recommendation: "r", Reason: "enough"}),
	)
	want := []string{
		"requester ann in workspace acme asked for shift recommendation r for clusters c1, c2 (move chat), approved by root at 2026-05-03T00:00:00Z",
		"operator root in workspace acme approved shift recommendation r for clusters c1, c2, actuated at 2026-05-05T00:00:00Z in cluster c1 by key receive, " +
			"failed at 2026-05-06T00:00:00Z in cluster c2 by operator bob, outcome partial success (c2 is full)",
		"a program in workspace acme issued command d of shift recommendation r for cluster c1 until 2026-05-10T00:00:00Z, actuated at 2026-05-05T00:00:00Z by key receive",
		"key receive in workspace acme carried out shift recommendation r for cluster c1, actuated at 2026-05-05T00:00:00Z by key receive",
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
