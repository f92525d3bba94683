package app

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections/registry"
)

// settle has a draft decided with a key.
func settle(t *testing.T, c *Caller, by ed25519.PrivateKey, draft Draft) error {
	t.Helper()
	p, err := c.Propose(t.Context(), draft, by.Public().(ed25519.PublicKey))
	if err != nil {
		return err
	}
	return c.Decide(t.Context(), p, p.Sign(by), p.Key)
}

// registers has root register an operator.
func registers(t *testing.T, c *Caller, root ed25519.PrivateKey, workspace, name string, role domain.Role, limits ...domain.Money) ed25519.PrivateKey {
	t.Helper()
	public, private := key(name)
	if err := settle(t, c, root, RegisterOperator(workspace, &domain.OperatorRegistered{Operator: name, PublicKey: public, Role: role, AuthorityLimits: limits})); err != nil {
		t.Fatal(err)
	}
	return private
}

// What was declared is shown with who decided it; what nobody knows is refused by name.
func TestGet(t *testing.T) {
	_, c, root := begun(t)
	ctx := t.Context()
	if err := settle(t, c, root, policy("owner")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range DeclaredKinds() {
		if _, err := c.Get(ctx, "", kind, "", ""); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	got, err := c.Get(ctx, "", "policies", "spot", Platform)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Entries) != 1 || got.Entries[0].DecidedBy != "root" || got.Entries[0].Since == 0 || got.Position == "" || got.At == 0 {
		t.Fatalf("%+v", got)
	}
	// As it was before the policy.
	before, err := c.Get(ctx, At(firstEvents(t, got.Position)), "policies", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Entries) != 0 {
		t.Errorf("before it was decided: %+v", before.Entries)
	}
	var missing *NotFoundError
	for _, x := range []struct{ kind, name, workspace, want string }{
		{"colours", "", "", `there is no kind "colours"; there are: budgets, clusters, commitments`},
		{"policies", "cold", "", `there is no policy "cold"; there are: spot`},
		{"budgets", "cold", "", `there is no budget "cold"; none exist yet`},
		{"quotas", "", "nowhere", `there is no workspace "nowhere"; there are: platform`},
	} {
		if _, err := c.Get(ctx, "", x.kind, x.name, x.workspace); !errors.As(err, &missing) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	var wrong *InvalidError
	if _, err := c.Get(ctx, "", "offers", "", Platform); !errors.As(err, &wrong) || wrong.Field != "workspace" {
		t.Errorf("offers of a workspace: %v", err)
	}
}

// firstEvents is the position without the last event of the partition of policies.
func firstEvents(t *testing.T, position string) string {
	t.Helper()
	at, err := domain.ParsePosition(position)
	if err != nil {
		t.Fatal(err)
	}
	env := policy("owner").Events[0]
	k, err := env.Key()
	if err != nil {
		t.Fatal(err)
	}
	tp := domain.TopicPartition{Topic: env.Topic()}
	tp.Partition = domain.PartitionOf([]byte(k), tp.Topic.Partitions())
	at[tp]--
	return at.String()
}

// Who is revoked decides no more; and who may not revoke, or nobody, is refused before
// anything is signed.
func TestRevokeOperator(t *testing.T) {
	_, c, root := begun(t)
	ctx := t.Context()
	revoke := func(by ed25519.PrivateKey, name string, public []byte) error {
		t.Helper()
		_, draft, err := c.RevokeOperator(ctx, Platform, name, public, "left")
		if err != nil {
			return err
		}
		return settle(t, c, by, draft)
	}
	var denied *DeniedError
	if err := revoke(root, "root", nil); !errors.As(err, &denied) || !strings.Contains(err.Error(), "last admin") {
		t.Errorf("the last admin: %v", err)
	}
	ana := registers(t, c, root, Platform, "ana", domain.RolePlanner)
	bob := registers(t, c, root, Platform, "bob", domain.RolePlanner)
	if err := revoke(ana, "bob", nil); !errors.As(err, &denied) {
		t.Errorf("a planner revokes: %v", err)
	}
	var missing *NotFoundError
	if err := revoke(root, "eve", nil); !errors.As(err, &missing) || !slices.Contains(missing.Known, "ana") {
		t.Errorf("nobody of that name: %v", err)
	}
	other, _ := key("other")
	if err := revoke(root, "ana", other); !errors.As(err, &missing) || missing.What != "key" {
		t.Errorf("no such key: %v", err)
	}
	ans, draft, err := c.RevokeOperator(ctx, Platform, "ana", nil, "left")
	if err != nil || len(ans.Keys) != 1 || !bytes.Equal(ans.Keys[0].PublicKey, ana.Public().(ed25519.PublicKey)) {
		t.Fatalf("%+v, %v", ans, err)
	}
	if err := settle(t, c, root, draft); err != nil {
		t.Fatal(err)
	}
	if err := settle(t, c, ana, policy("owner")); !errors.As(err, &denied) {
		t.Errorf("decides after it ended: %v", err)
	}
	var twice *ConflictError
	if err := revoke(root, "ana", nil); !errors.As(err, &twice) {
		t.Errorf("twice: %v", err)
	}
	if err := revoke(bob, "bob", nil); err != nil {
		t.Errorf("gives up a key of their own: %v", err)
	}
	got, err := c.Get(ctx, "", "operators", "", "")
	if err != nil || len(got.Entries) != 1 || got.Entries[0].Name != "root" {
		t.Errorf("operators: %+v, %v", got, err)
	}
	registers(t, c, root, Platform, "second", domain.RoleAdmin)
	if err := revoke(root, "root", nil); err != nil {
		t.Errorf("an admin of two: %v", err)
	}
}

// Two keys of the only admin are no two admins.
func TestRevokeTheLastAdminWithTwoKeys(t *testing.T) {
	_, c, root := begun(t)
	public, second := key("second key")
	if err := settle(t, c, root, RegisterOperator(Platform, &domain.OperatorRegistered{Operator: "root", PublicKey: public, Role: domain.RoleAdmin})); err != nil {
		t.Fatal(err)
	}
	var denied *DeniedError
	if _, _, err := c.RevokeOperator(t.Context(), Platform, "root", nil, "gone"); !errors.As(err, &denied) {
		t.Errorf("both keys: %v", err)
	}
	_, draft, err := c.RevokeOperator(t.Context(), Platform, "root", root.Public().(ed25519.PublicKey), "rotated")
	if err != nil {
		t.Fatal(err)
	}
	if err := settle(t, c, second, draft); err != nil {
		t.Fatal(err)
	}
	var refused *DeniedError
	if err := settle(t, c, root, policy("owner")); !errors.As(err, &refused) {
		t.Errorf("the old key decides: %v", err)
	}
	if err := settle(t, c, second, policy("owner")); err != nil {
		t.Error(err)
	}
}

// The list names who decided under which role; an unknown operator is refused by name.
func TestDecisionsOfOperators(t *testing.T) {
	_, c, root := begun(t)
	ctx := t.Context()
	registers(t, c, root, Platform, "ana", domain.RoleFinance, domain.Money{Amount: domain.Decimal{}, Currency: "USD"})
	if err := settle(t, c, root, policy("owner")); err != nil {
		t.Fatal(err)
	}
	got, err := c.Decisions(ctx, "", registry.DecisionFilter{Operator: "root"})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for i := range got.Decisions {
		types = append(types, string(got.Decisions[i].Role)+" "+string(got.Decisions[i].Type))
	}
	if want := []string{"admin OperatorRegistered", "admin OperatorRegistered", "admin PolicySet"}; !slices.Equal(types, want) {
		t.Errorf("%v, want %v", types, want)
	}
	if got, err := c.Decisions(ctx, "", registry.DecisionFilter{Operator: "ana"}); err != nil || len(got.Decisions) != 0 {
		t.Errorf("ana decided nothing: %+v, %v", got, err)
	}
	var missing *NotFoundError
	if _, err := c.Decisions(ctx, "", registry.DecisionFilter{Operator: "eve"}); !errors.As(err, &missing) || !slices.Equal(missing.Known, []string{"ana", "root"}) {
		t.Errorf("unknown: %v", err)
	}
	var wrong *InvalidError
	if _, err := c.Decisions(ctx, "", registry.DecisionFilter{From: 2, To: 2}); !errors.As(err, &wrong) || wrong.Field != "until" {
		t.Errorf("no time: %v", err)
	}
}
