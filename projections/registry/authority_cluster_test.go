package registry_test

import (
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// Clusters and their keys are decided by the workspace that owns the cluster. Previously an auditor
// could revoke a key, and anyone with a key of any workspace could register another workspace's
// cluster as their own.
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
	rotated := &domain.ClusterKeyRotated{KeyID: "k2", MAC: mac, PreviousKeyID: "k1", PreviousValidUntil: storetest.Start + domain.Hour}
	revoked := &domain.ClusterKeyRevoked{KeyID: "k1", Reason: "r"}
	setup := func(role domain.Role) []domain.Envelope {
		return []domain.Envelope{
			storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
			storetest.Ann.Register(storetest.Root, owner, domain.RoleOperator, nil, storetest.Start+1),
			storetest.Bob.Register(storetest.Root, owner, role, nil, storetest.Start+1),
			storetest.Mallory.Register(storetest.Root, other, domain.RoleAdmin, nil, storetest.Start+1),
		}
	}
	for _, c := range []struct {
		name string
		role domain.Role // bob's
		log  []domain.Envelope
		want string   // owner of the cluster, and its valid keys
		void []string // parts of the reasons, in order
	}{
		{"an operator of the workspace does all of it", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Ann, owner, storetest.Start+2), key(storetest.Ann, storetest.Start+3, issued), key(storetest.Ann, storetest.Start+4, rotated), key(storetest.Ann, storetest.Start+5, revoked)}, "acme k2", nil},
		{"an admin of the root's workspace too", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Root, owner, storetest.Start+2), key(storetest.Root, storetest.Start+3, issued)}, "acme k1", nil},
		{"an auditor revokes nothing", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Ann, owner, storetest.Start+2), key(storetest.Ann, storetest.Start+3, issued), key(storetest.Bob, storetest.Start+4, revoked), key(storetest.Bob, storetest.Start+5, rotated)}, "acme k1",
			[]string{`k1 ClusterKeyRevoked bob: operator "bob" is auditor`, `k2 ClusterKeyRotated bob: operator "bob" is auditor`}},
		{"a planner registers nothing", domain.RolePlanner,
			[]domain.Envelope{cluster(storetest.Bob, owner, storetest.Start+2)}, "", []string{`c ClusterRegistered bob: operator "bob" is planner`}},
		{"an admin of another workspace has no say", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Ann, owner, storetest.Start+2), key(storetest.Ann, storetest.Start+3, issued), key(storetest.Mallory, storetest.Start+4, revoked), cluster(storetest.Mallory, owner, storetest.Start+5)}, "acme k1",
			[]string{`c ClusterRegistered mallory: operator "mallory" has no such key`, `k1 ClusterKeyRevoked mallory: operator "mallory" has no such key`}},
		{"nor takes the cluster", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Ann, owner, storetest.Start+2), cluster(storetest.Mallory, other, storetest.Start+3), key(storetest.Mallory, storetest.Start+4, issued)}, "acme",
			[]string{`c ClusterRegistered mallory: cluster "c" belongs to workspace "acme"`, `k1 ClusterKeyIssued mallory`}},
		{"not with an earlier date either", domain.RoleAuditor,
			[]domain.Envelope{cluster(storetest.Ann, owner, storetest.Start+3), cluster(storetest.Mallory, other, storetest.Start+2)}, "acme", []string{`belongs to workspace "acme"`}},
		{"nor before it is registered, with a key for later", domain.RoleAuditor,
			[]domain.Envelope{key(storetest.Mallory, storetest.Start+2, issued), cluster(storetest.Ann, owner, storetest.Start+3)}, "acme", []string{`cluster "c" was not registered before`}},
		{"an operator of both gives it away", domain.RoleAuditor,
			[]domain.Envelope{storetest.Ann.Register(storetest.Root, other, domain.RoleOperator, nil, storetest.Start+2), cluster(storetest.Ann, owner, storetest.Start+3), key(storetest.Ann, storetest.Start+4, issued), cluster(storetest.Ann, other, storetest.Start+5), key(storetest.Mallory, storetest.Start+6, revoked)}, "beta", nil},
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
			storetest.FoldView(t, l, func(v projections.View) {
				inv, err := inventory.New(v, inventory.Filter{At: storetest.Start + domain.Hour})
				if err != nil {
					t.Fatal(err)
				}
				keys, err := registry.ClusterKeys(v)
				if err != nil {
					t.Fatal(err)
				}
				got := inv.Clusters[0].Workspace
				for _, k := range keys {
					if k.Live(storetest.Start + storetest.Minute) {
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

// Nobody raises a limit of their own, under any name or with any key.
func TestOwnLimit(t *testing.T) {
	key2 := storetest.NewOperator("ann", 2)
	eur := func(eur, usd string) domain.Envelope {
		return storetest.Ann.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start + 2, Event: &domain.OperatorRegistered{
			Operator: "ann", PublicKey: storetest.Ann.Public(), Role: domain.RoleAdmin,
			AuthorityLimits: []domain.Money{{Amount: storetest.Dec(eur), Currency: "EUR"}, {Amount: storetest.Dec(usd), Currency: "USD"}},
		}})
	}
	for _, c := range []struct {
		name  string
		again domain.Envelope
		void  string
	}{
		{"the same", storetest.Ann.Register(storetest.Ann, "acme", domain.RoleAdmin, storetest.USD("100"), storetest.Start+2), ""},
		{"less", storetest.Ann.Register(storetest.Ann, "acme", domain.RoleFinance, storetest.USD("99"), storetest.Start+2), ""},
		{"another key", key2.Register(storetest.Ann, "acme", domain.RoleAdmin, storetest.USD("100"), storetest.Start+2), ""},
		{"more", storetest.Ann.Register(storetest.Ann, "acme", domain.RoleAdmin, storetest.USD("100.01"), storetest.Start+2), `operator "ann" would raise their own limit to 100.01 USD: another admin must`},
		{"another currency", storetest.Ann.Register(storetest.Ann, "acme", domain.RoleAdmin, &domain.Money{Amount: storetest.Dec("1"), Currency: "EUR"}, storetest.Start+2), `would raise their own limit to 1 EUR`},
		{"more, for another key", key2.Register(storetest.Ann, "acme", domain.RoleAdmin, storetest.USD("101"), storetest.Start+2), `would raise their own limit`},
		{"more, under another name", storetest.Ann.Sign(domain.Envelope{Workspace: "acme", Time: storetest.Start + 2, Event: &domain.OperatorRegistered{
			Operator: "anna", PublicKey: storetest.Ann.Public(), Role: domain.RoleAdmin, AuthorityLimits: []domain.Money{*storetest.USD("101")},
		}}), `would raise their own limit`},
		{"more, beside a limit in another currency", eur("0", "100.01"), `would raise their own limit to 100.01 USD`},
		{"a currency more", eur("0.01", "100"), `would raise their own limit to 0.01 EUR`},
		{"by the root, who may commit nothing", storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1"), storetest.Start+2), `operator "root" would raise their own limit to 1 USD`},
		{"by the root, elsewhere", storetest.Root.Register(storetest.Root, "acme", domain.RoleAdmin, storetest.USD("1"), storetest.Start+2), `operator "root" would raise their own limit to 1 USD`},
		{"by another admin", storetest.Ann.Register(storetest.Root, "acme", domain.RoleAdmin, storetest.USD("101"), storetest.Start+2), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start), storetest.Ann.Register(storetest.Root, "acme", domain.RoleAdmin, storetest.USD("100"), storetest.Start+1), c.again)
			if got := rejected(t, l); !strings.Contains(got, c.void) || (got == "") != (c.void == "") {
				t.Errorf("void: %q, want %q", got, c.void)
			}
		})
	}
}
