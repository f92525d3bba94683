package access_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/storetest"
)

// family is a root and workspaces below it: acme with emea and apac, emea with berlin; other is beside them. The
// parents of a and b are each other.
func family() []domain.Envelope {
	log := []domain.Envelope{storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start)}
	for _, w := range [][2]string{
		{"home", ""}, {"acme", "home"}, {"emea", "acme"}, {"apac", "acme"}, {"berlin", "emea"}, {"other", "home"}, {"a", "b"}, {"b", "a"},
	} {
		log = append(log, domain.Envelope{
			Workspace: w[0], Time: storetest.Start + 1, Event: &domain.WorkspaceRegistered{Name: w[0], Parent: w[1]},
		})
	}
	return log
}

// viewOf folds events, in memory that nothing changes any more.
func viewOf(t rapid.TB, log ...domain.Envelope) (v projections.View) {
	l := storetest.NewLog()
	l.Append(log...)
	storetest.Look(t, storetest.Fold(t, l), func(of projections.View) error { v = of; return nil })
	return v
}

func TestScopeOf(t *testing.T) {
	viewer, finance := domain.RoleViewer, domain.RoleFinance
	for _, c := range []struct {
		name   string
		rights []access.Right
		want   string // what is seen of workspaces, then of cluster c in them
	}{
		{"nothing", nil, ""},
		{"a workspace and those below", []access.Right{{Workspace: "acme", Role: viewer}}, "acme apac berlin emea / acme apac berlin emea"},
		{"not those above or beside", []access.Right{{Workspace: "emea", Role: viewer}}, "berlin emea / berlin emea"},
		{"one that is not registered", []access.Right{{Workspace: "new", Role: viewer}}, "new / new"},
		{"no name", []access.Right{{Role: viewer}}, ""},
		{"a cycle", []access.Right{{Workspace: "a", Role: viewer}}, "a b / a b"},
		{"some clusters", []access.Right{{Workspace: "emea", Role: viewer, Clusters: []string{"c"}}}, " / berlin emea"},
		{"some clusters, and more", []access.Right{
			{Workspace: "emea", Role: viewer, Clusters: []string{"d"}}, {Workspace: "berlin", Role: finance},
		}, "berlin / berlin"},
		{"the root", []access.Right{{Workspace: "home", Role: viewer}}, "everything"},
		{"some clusters of the root", []access.Right{{Workspace: "home", Role: viewer, Clusters: []string{"c"}}},
			" / acme apac berlin emea home other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(t, family()...)
			s, err := access.ScopeOf(v, c.rights)
			if err != nil {
				t.Fatal(err)
			}
			var all, some []string
			for _, w := range []string{"a", "acme", "apac", "b", "berlin", "emea", "home", "new", "other"} {
				if s.Sees(w, "") {
					all = append(all, w)
				}
				if s.Sees(w, "c") {
					some = append(some, w)
				}
			}
			got := strings.Join(all, " ") + " / " + strings.Join(some, " ")
			switch {
			case s.IsWhole():
				got = "everything"
			case len(some) == 0:
				got = ""
			case !slices.Equal(s.Workspaces(), append([]string{}, all...)):
				t.Errorf("Workspaces: %v, seen are %v", s.Workspaces(), all)
			}
			if got != c.want {
				t.Errorf("sees %q, want %q", got, c.want)
			}
		})
	}
}

// TestCustomers: whoever divides a workspace into many stays one customer.
func TestCustomers(t *testing.T) {
	v := viewOf(t, family()...)
	for want, rights := range map[string][]string{
		"acme": {"emea", "berlin"}, "acme other": {"other", "apac"}, "new": {"new"}, "": {"home", "acme"},
	} {
		var of []access.Right
		for _, w := range rights {
			of = append(of, access.Right{Workspace: w, Role: domain.RolePlanner})
		}
		s, err := access.ScopeOf(v, of)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.For("plan list"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Customers(), " "); got != want {
			t.Errorf("rights in %v are those of %q, want %q", rights, got, want)
		}
	}
}

// TestReach: a key of an account reaches no right of an account of the same name above or beside its workspace.
func TestReach(t *testing.T) {
	reach, err := access.Reach(viewOf(t, family()...))
	if err != nil {
		t.Fatal(err)
	}
	var rights []access.Right
	for _, w := range []string{"a", "acme", "apac", "b", "berlin", "emea", "home", "new", "other"} {
		rights = append(rights, access.Right{Workspace: w, Role: domain.RoleViewer})
	}
	for workspace, want := range map[string]string{
		"acme": "acme apac berlin emea", "emea": "berlin emea", "berlin": "berlin", "a": "a b", "new": "new", "unknown": "", "": "",
		"home": "a acme apac b berlin emea home new other",
	} {
		var got []string
		for _, r := range reach(workspace, rights) {
			got = append(got, r.Workspace)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("a key of %q reaches %v, want %s", workspace, got, want)
		}
	}
}

// TestParts: a workspace of which only some clusters are seen is a part of the scope, too. No workspaces would mean all.
func TestParts(t *testing.T) {
	v := viewOf(t, family()...)
	s, err := access.ScopeOf(v, []access.Right{{Workspace: "emea", Role: domain.RoleViewer, Clusters: []string{"d"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Parts(); !slices.Equal(got, []string{"berlin", "emea"}) || len(s.Workspaces()) > 0 {
		t.Errorf("parts %v of %v", got, s.Workspaces())
	}
}

// TestMay asks with each role, in a workspace and in the root.
func TestMay(t *testing.T) {
	v := viewOf(t, family()...)
	for operation, rule := range access.Operations() {
		for _, role := range access.Roles() {
			for _, workspace := range []string{"acme", "home"} {
				s, err := access.ScopeOf(v, []access.Right{{Workspace: workspace, Role: role}})
				if err != nil {
					t.Fatal(err)
				}
				want := slices.Contains(rule.Roles, role) && (rule.Within || workspace == "home")
				err = s.May(operation)
				if denied := (*access.DeniedError)(nil); (err == nil) != want || err != nil && !errors.As(err, &denied) {
					t.Errorf("%s of %s asks %s: %v", role, workspace, operation, err)
				}
			}
		}
		if err := access.Whole().May(operation); err != nil {
			t.Error(err)
		}
		if new(access.Scope).May(operation) == nil {
			t.Errorf("nobody may ask %s", operation)
		}
	}
}

// TestForTakesRightsOfTheRole: a role in one workspace opens nothing of another, in which somebody has another role.
func TestForTakesRightsOfTheRole(t *testing.T) {
	v := viewOf(t, family()...)
	s, err := access.ScopeOf(v, []access.Right{{Workspace: "acme", Role: domain.RoleOperator}, {Workspace: "other", Role: domain.RoleFinance}})
	if err != nil {
		t.Fatal(err)
	}
	for operation, rule := range access.Operations() {
		of, err := s.For(operation)
		if err != nil {
			continue
		}
		for workspace, role := range map[string]domain.Role{"acme": domain.RoleOperator, "other": domain.RoleFinance} {
			if of.Sees(workspace, "") != slices.Contains(rule.Roles, role) {
				t.Errorf("%s sees %s: %v", operation, workspace, of.Sees(workspace, ""))
			}
		}
	}
}

// TestTables: every table has one rule, and says in words what it does.
func TestTables(t *testing.T) {
	rules := map[projections.Table]int{}
	for _, r := range access.Tables() {
		rules[r.Table]++
		if r.Seen == "" {
			t.Errorf("%s: no words", r.Table)
		}
	}
	for _, table := range projections.Tables() {
		if rules[table] != 1 {
			t.Errorf("%s has %d rules", table, rules[table])
		}
	}
}

// TestBelow asks for parts of the tree of workspaces, as finance and as a tenant see it.
func TestBelow(t *testing.T) {
	whole := viewOf(t, family()...)
	tenant := scopeOf(t, whole, access.Right{Workspace: "emea", Role: domain.RoleViewer}).View(whole)
	for _, c := range []struct {
		name, workspace, want string
		v                     projections.View
	}{
		{"a workspace", "acme", "acme apac berlin emea", whole},
		{"a leaf", "berlin", "berlin", whole},
		{"a cycle", "a", "a b", whole},
		{"a parent of the tenant's", "acme", "acme", tenant},
		{"the tenant's", "emea", "berlin emea", tenant},
	} {
		got, err := access.Below(c.v, c.workspace)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v %v, want %s", c.name, got, err, c.want)
		}
	}
}

// Who is refused is told which roles cover it, and whom to ask for one.
func TestDeniedNamesRoles(t *testing.T) {
	for operation, want := range map[string]string{
		"access list": `your rights do not cover "access list": that takes the role admin or auditor for the whole estate; an admin of the estate can grant it`,
		"audit trail": `your rights do not cover "audit trail": that takes the role admin or auditor; an admin of your workspace can grant it`,
		"no such":     `your rights do not cover "no such"`,
	} {
		if got := (&access.DeniedError{Operation: operation}).Error(); got != want {
			t.Errorf("%s: %s", operation, got)
		}
	}
}
