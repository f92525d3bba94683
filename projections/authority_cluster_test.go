package projections_test

import (
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Clusters and their keys are decisions of the workspace that owns the cluster.
// An auditor could revoke a key, and whoever had a key of any workspace could
// register a cluster of another one as theirs.
func TestClusterAuthority(t *testing.T) {
	const owner, other = "acme", "beta"
	cluster := func(by storetest.Operator, workspace string, at domain.Instant) domain.Envelope {
		return by.Sign(storetest.Cluster("c", workspace, "p", "r", at))
	}
	key := func(by storetest.Operator, at domain.Instant, ev domain.Event) domain.Envelope {
		return by.Sign(domain.Envelope{Cluster: "c", Time: at, Event: ev})
	}
	mac := []byte(strings.Repeat("m", 32))
	issued := &domain.ClusterKeyIssued{KeyID: "k1", MAC: mac}
	rotated := &domain.ClusterKeyRotated{KeyID: "k2", MAC: mac, PreviousKeyID: "k1", PreviousValidUntil: t0 + domain.Hour}
	revoked := &domain.ClusterKeyRevoked{KeyID: "k1", Reason: "r"}
	setup := func(role domain.Role) []domain.Envelope {
		return []domain.Envelope{
			root.Register(root, "home", domain.RoleAdmin, nil, t0),
			ann.Register(root, owner, domain.RoleOperator, nil, t0+1),
			bob.Register(root, owner, role, nil, t0+1),
			mallory.Register(root, other, domain.RoleAdmin, nil, t0+1),
		}
	}
	for _, c := range []struct {
		name string
		role domain.Role // bob's
		log  []domain.Envelope
		want string   // owner of the cluster, and the keys that hold
		void []string // parts of the reasons, in order
	}{
		{"an operator of the workspace does all of it", domain.RoleAuditor,
			[]domain.Envelope{cluster(ann, owner, t0+2), key(ann, t0+3, issued), key(ann, t0+4, rotated), key(ann, t0+5, revoked)}, "acme k2", nil},
		{"an admin of the root's workspace too", domain.RoleAuditor,
			[]domain.Envelope{cluster(root, owner, t0+2), key(root, t0+3, issued)}, "acme k1", nil},
		{"an auditor revokes nothing", domain.RoleAuditor,
			[]domain.Envelope{cluster(ann, owner, t0+2), key(ann, t0+3, issued), key(bob, t0+4, revoked), key(bob, t0+5, rotated)}, "acme k1",
			[]string{`k1 ClusterKeyRevoked bob: operator "bob" is auditor`, `k2 ClusterKeyRotated bob: operator "bob" is auditor`}},
		{"a planner registers nothing", domain.RolePlanner,
			[]domain.Envelope{cluster(bob, owner, t0+2)}, "", []string{`c ClusterRegistered bob: operator "bob" is planner`}},
		{"an admin of another workspace has no say", domain.RoleAuditor,
			[]domain.Envelope{cluster(ann, owner, t0+2), key(ann, t0+3, issued), key(mallory, t0+4, revoked), cluster(mallory, owner, t0+5)}, "acme k1",
			[]string{`c ClusterRegistered mallory: operator "mallory" has no such key`, `k1 ClusterKeyRevoked mallory: operator "mallory" has no such key`}},
		{"nor takes the cluster", domain.RoleAuditor,
			[]domain.Envelope{cluster(ann, owner, t0+2), cluster(mallory, other, t0+3), key(mallory, t0+4, issued)}, "acme",
			[]string{`c ClusterRegistered mallory: cluster "c" belongs to workspace "acme"`, `k1 ClusterKeyIssued mallory`}},
		{"not with an earlier date either", domain.RoleAuditor,
			[]domain.Envelope{cluster(ann, owner, t0+3), cluster(mallory, other, t0+2)}, "acme", []string{`belongs to workspace "acme"`}},
		{"nor before it is registered, with a key for later", domain.RoleAuditor,
			[]domain.Envelope{key(mallory, t0+2, issued), cluster(ann, owner, t0+3)}, "acme", []string{`cluster "c" was not registered before`}},
		{"an operator of both gives it away", domain.RoleAuditor,
			[]domain.Envelope{ann.Register(root, other, domain.RoleOperator, nil, t0+2), cluster(ann, owner, t0+3), key(ann, t0+4, issued), cluster(ann, other, t0+5), key(mallory, t0+6, revoked)}, "beta", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(setup(c.role)...)
			l.Append(c.log...)
			void := strings.Split(rejected(t, l), "\n")
			if void[0] == "" {
				void = nil
			}
			if len(void) != len(c.void) {
				t.Fatalf("void: %q, want %q", void, c.void)
			}
			for i := range void {
				if !strings.Contains(void[i], c.void[i]) {
					t.Errorf("void: %s\nwant: %s", void[i], c.void[i])
				}
			}
			view(t, l, func(v projections.View) {
				inv, err := projections.NewInventory(v, projections.InventoryFilter{At: t0 + domain.Hour})
				if err != nil {
					t.Fatal(err)
				}
				keys, err := projections.ClusterKeys(v)
				if err != nil {
					t.Fatal(err)
				}
				got := inv.Clusters[0].Workspace
				for _, k := range keys {
					if k.Live(t0 + minute) {
						got += " " + k.KeyID
					}
				}
				if got != c.want {
					t.Errorf("the cluster is of %q, want %q", got, c.want)
				}
			})
		})
	}
}

// Nobody raises a limit of their own, under no name and with no key.
func TestOwnLimit(t *testing.T) {
	key2 := storetest.NewOperator("ann", 2)
	eur := func(eur, usd string) domain.Envelope {
		return ann.Sign(domain.Envelope{Workspace: "acme", Time: t0 + 2, Event: &domain.OperatorRegistered{
			Operator: "ann", PublicKey: ann.Public(), Role: domain.RoleAdmin,
			AuthorityLimits: []domain.Money{{Amount: dec(eur), Currency: "EUR"}, {Amount: dec(usd), Currency: "USD"}},
		}})
	}
	for _, c := range []struct {
		name  string
		again domain.Envelope
		void  string
	}{
		{"the same", ann.Register(ann, "acme", domain.RoleAdmin, usd("100"), t0+2), ""},
		{"less", ann.Register(ann, "acme", domain.RoleFinance, usd("99"), t0+2), ""},
		{"another key", key2.Register(ann, "acme", domain.RoleAdmin, usd("100"), t0+2), ""},
		{"more", ann.Register(ann, "acme", domain.RoleAdmin, usd("100.01"), t0+2), `operator "ann" would raise their own limit to 100.01 USD: another admin must`},
		{"another currency", ann.Register(ann, "acme", domain.RoleAdmin, &domain.Money{Amount: dec("1"), Currency: "EUR"}, t0+2), `would raise their own limit to 1 EUR`},
		{"more, for another key", key2.Register(ann, "acme", domain.RoleAdmin, usd("101"), t0+2), `would raise their own limit`},
		{"more, under another name", ann.Sign(domain.Envelope{Workspace: "acme", Time: t0 + 2, Event: &domain.OperatorRegistered{
			Operator: "anna", PublicKey: ann.Public(), Role: domain.RoleAdmin, AuthorityLimits: []domain.Money{*usd("101")},
		}}), `would raise their own limit`},
		{"more, beside a limit in another currency", eur("0", "100.01"), `would raise their own limit to 100.01 USD`},
		{"a currency more", eur("0.01", "100"), `would raise their own limit to 0.01 EUR`},
		{"by the root, who may commit nothing", root.Register(root, "home", domain.RoleAdmin, usd("1"), t0+2), `operator "root" would raise their own limit to 1 USD`},
		{"by the root, elsewhere", root.Register(root, "acme", domain.RoleAdmin, usd("1"), t0+2), `operator "root" would raise their own limit to 1 USD`},
		{"by another admin", ann.Register(root, "acme", domain.RoleAdmin, usd("101"), t0+2), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(root.Register(root, "home", domain.RoleAdmin, nil, t0), ann.Register(root, "acme", domain.RoleAdmin, usd("100"), t0+1), c.again)
			if got := rejected(t, l); !strings.Contains(got, c.void) || (got == "") != (c.void == "") {
				t.Errorf("void: %q, want %q", got, c.void)
			}
		})
	}
}
