package app

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"quartermaster/domain"
)

// drains is a log with approved recommendations to drain cluster lab, each with an order of some steps.
func drains(t *testing.T, steps map[string]string) (c *Caller, decide func(name string, d Draft)) {
	t.Helper()
	_, c, private := begun(t)
	keys := map[string]ed25519.PrivateKey{"root": private}
	decide = func(name string, d Draft) {
		t.Helper()
		public, _ := key(name)
		p, err := c.Propose(t.Context(), d, public)
		if err == nil {
			err = c.Decide(t.Context(), p, p.Sign(keys[name]), p.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	public, ann := key("ann")
	keys["ann"] = ann
	decide("root", RegisterOperator(Platform, &domain.OperatorRegistered{Operator: "ann", PublicKey: public, Role: domain.RolePlanner}))
	fifty, err := domain.ParseMoney("50 USD")
	if err != nil {
		t.Fatal(err)
	}
	for id, step := range steps {
		made := &domain.RecommendationMade{
			Recommendation: id, Kind: "drain", Summary: "drain it", Requester: "ann", Clusters: []string{"lab"},
			Saving: fifty, SavingLow: fifty, SavingHigh: fifty, Document: []byte(`{"steps":["` + step + `"]}`),
		}
		d, err := c.ProposeWritten(t.Context(), Platform, made)
		if err != nil {
			t.Fatal(err)
		}
		decide("ann", d.Draft)
		_, v, err := c.DecideRecommendation(t.Context(), id, Approve, "", "", "root")
		if err != nil {
			t.Fatal(err)
		}
		decide("root", v)
	}
	return c, decide
}

// An order that is too large for an event keeps back no other's.
func TestCommandsOfOthersAreIssued(t *testing.T) {
	c, _ := drains(t, map[string]string{"a-large": strings.Repeat("x", 1<<20-20), "small": "step", "z-large": strings.Repeat("x", 1<<20-20)})
	if _, err := c.IssueCommands(t.Context(), "", Now()); err == nil || !strings.Contains(err.Error(), "a-large") || !strings.Contains(err.Error(), "z-large") {
		t.Errorf("error %.300v, want one that names both recommendations with too large an order", err)
	}
	end, err := c.app.conn.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.IssueCommands(t.Context(), "", Now()); err == nil {
		t.Error("the second time there is no error")
	}
	if again, err := c.app.conn.End(t.Context()); err != nil || again.Records() != end.Records() {
		t.Errorf("%d records were appended again, %v", again.Records()-end.Records(), err)
	}
	open, err := c.OpenCommands(t.Context(), "lab", Now())
	if err != nil || len(open) != 1 || open[0].Recommendation != "small" {
		t.Errorf("open commands %.300v, %v", open, err)
	}
}

// A limit that is lowered after a command was issued asks for an approval that nobody gave.
func TestOrderAfterALimitWasLowered(t *testing.T) {
	c, decide := drains(t, map[string]string{"r": "step"})
	if _, err := c.IssueCommands(t.Context(), "r", Now()); err != nil {
		t.Fatal(err)
	}
	if sheet, err := c.CommandFile(t.Context(), "r"); err != nil || len(sheet.Approvals) != 1 {
		t.Fatal(sheet, err)
	}
	decide("root", Draft{Use: "test", Events: []domain.Envelope{{Time: Now(), Subject: "four-eyes", Workspace: Platform, Event: &domain.PolicySet{
		Policy: "four-eyes", Kind: domain.PolicySecondApproval, Value: "10 USD", EffectiveFrom: Now(),
	}}}})
	if _, err := c.CommandFile(t.Context(), "r"); KindOf(err) != KindConflict {
		t.Errorf("error %v, want a conflict", err)
	}
}

// What a person wrote for one workspace commands no cluster of another, however it came into the log.
func TestNobodyCommandsClustersOfOthers(t *testing.T) {
	c, decide := drains(t, map[string]string{"own": "step"})
	decide("ann", Draft{Use: "test", Events: []domain.Envelope{{Time: Now(), Subject: "theirs", Workspace: "research", Event: &domain.RecommendationMade{
		Recommendation: "theirs", Kind: "drain", Summary: "drain it", Requester: "ann", Cost: domain.Money{Currency: "USD"}, Clusters: []string{"lab"},
		Document: []byte(`{"steps":["step"]}`),
	}}}})
	_, d, err := c.DecideRecommendation(t.Context(), "theirs", Approve, "", "", "root")
	if err != nil {
		t.Fatal(err)
	}
	decide("root", d)
	if _, err := c.IssueCommands(t.Context(), "", Now()); err != nil {
		t.Fatal(err)
	}
	open, err := c.OpenCommands(t.Context(), "lab", Now())
	if err != nil || len(open) != 1 || open[0].Recommendation != "own" {
		t.Errorf("open commands %+v, %v", open, err)
	}
}
