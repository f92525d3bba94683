package access

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/registry"
)

// Right is a role in a workspace, and in those below it.
type Right struct {
	Workspace string
	Role      domain.Role
	Clusters  []string // limit it to what is in these clusters; none: all of the workspace
}

// Scope is what somebody may see and ask. It is immutable.
type Scope struct {
	owner  bool // asks everything and sees everything
	estate []domain.Role
	rights []Right // outside of the estate, closed over parents, in order
	sees   map[string]*reach
	tops   map[string]string // the workspace below the root that each of them is in
}

// reach is what a scope sees of a workspace: all of it, or what is in some clusters.
type reach struct {
	all      bool
	clusters map[string]bool
}

// Whole returns the scope that sees and asks everything: that of the owner of the home.
func Whole() *Scope { return &Scope{owner: true} }

// ScopeOf returns the scope of rights at the position of a view of everything. A right counts in its workspace and in
// those whose parents lead to it. A right in the root workspace sees the whole estate; see [registry.Authority.Root].
func ScopeOf(v projections.View, rights []Right) (*Scope, error) {
	root, parents, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	var roles []domain.Role
	var closed []Right
	tops := map[string]string{}
	for _, r := range rights {
		if r.Workspace == "" || r.Workspace == root && len(r.Clusters) == 0 {
			if r.Workspace != "" {
				roles = append(roles, r.Role)
			}
			continue
		}
		closed = append(closed, r)
		for workspace := range parents {
			if workspace != r.Workspace && workspace != root && under(parents, workspace, r.Workspace) {
				closed = append(closed, Right{workspace, r.Role, r.Clusters})
			}
		}
	}
	for _, r := range closed {
		tops[r.Workspace] = topOf(parents, r.Workspace, root)
	}
	return scopeOf(roles, closed, tops), nil
}

// topOf returns the workspace directly below the root that a workspace is in, or is.
func topOf(parents map[string]string, workspace, root string) string {
	for range parents {
		parent := parents[workspace]
		if parent == "" || parent == root {
			break
		}
		workspace = parent
	}
	return workspace
}

func scopeOf(estate []domain.Role, closed []Right, tops map[string]string) *Scope {
	slices.Sort(estate)
	s := &Scope{estate: slices.Compact(estate), sees: map[string]*reach{}, tops: tops}
	for _, r := range closed {
		clusters := slices.Compact(slices.Sorted(slices.Values(r.Clusters)))
		s.rights = append(s.rights, Right{r.Workspace, r.Role, clusters})
		of := s.sees[r.Workspace]
		if of == nil {
			of = &reach{clusters: map[string]bool{}}
			s.sees[r.Workspace] = of
		}
		of.all = of.all || len(clusters) == 0
		for _, cluster := range clusters {
			of.clusters[cluster] = true
		}
	}
	slices.SortFunc(s.rights, func(a, b Right) int {
		return cmp.Or(strings.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Role, b.Role), slices.Compare(a.Clusters, b.Clusters))
	})
	s.rights = slices.CompactFunc(s.rights, func(a, b Right) bool {
		return a.Workspace == b.Workspace && a.Role == b.Role && slices.Equal(a.Clusters, b.Clusters)
	})
	return s
}

// Reach returns what keeps the rights that a key of a service account reaches: those in the workspace of the key and in
// those below it; in the root workspace, all. Whoever may issue a key in a workspace names the account, and could name
// that of another workspace to have its rights.
func Reach(v projections.View) (func(workspace string, rights []Right) []Right, error) {
	root, parents, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	return func(workspace string, rights []Right) []Right {
		if workspace == root {
			return rights
		}
		return slices.DeleteFunc(slices.Clone(rights), func(r Right) bool {
			return r.Workspace != workspace && (workspace == "" || r.Workspace == root || !under(parents, r.Workspace, workspace))
		})
	}, nil
}

// Below returns a workspace and those whose parents lead to it, sorted, as far as the view shows them.
func Below(v projections.View, workspace string) ([]string, error) {
	_, parents, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	_, known := parents[workspace]
	all := []string{workspace}
	for of := range parents {
		if known && of != workspace && under(parents, of, workspace) {
			all = append(all, of)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Under returns conditions of which one, on the dimension of workspaces, selects what is of a workspace and of those below
// it; the same conditions for the workspace "".
func Under(v projections.View, workspace string, where []dimension.Condition, by dimension.Name) ([]dimension.Condition, error) {
	if workspace == "" {
		return where, nil
	}
	below, err := Below(v, workspace)
	return append(slices.Clone(where), dimension.Condition{Dimension: by, Values: below}), err
}

// treeOf returns the root workspace, and the parent of each workspace, "" for none.
func treeOf(v projections.View) (root string, parents map[string]string, err error) {
	a, err := registry.NewAuthority(v)
	if err != nil {
		return "", nil, err
	}
	parents = map[string]string{}
	err = v.Scan(projections.Query{Table: projections.TableWorkspaces}, func(k projections.Key, row projections.Row) error {
		if last := a.Latest(k, row.(*projections.History)); last != nil {
			if ev, ok := last.Event.(*domain.WorkspaceRegistered); ok {
				parents[k.Scope] = ev.Parent
			}
		}
		return nil
	})
	if err != nil {
		return "", nil, fmt.Errorf("read workspaces: %w", err)
	}
	return a.Root(), parents, nil
}

// under reports whether the parents of a workspace lead to another. A cycle of parents ends.
func under(parents map[string]string, workspace, top string) bool {
	for range parents {
		workspace = parents[workspace]
		switch workspace {
		case top:
			return true
		case "":
			return false
		}
	}
	return false
}

// IsWhole reports whether the scope sees everything.
func (s *Scope) IsWhole() bool { return s.owner || len(s.estate) > 0 }

// Sees reports whether the scope sees what a workspace has in a cluster; "" for what is in none.
func (s *Scope) Sees(workspace, cluster string) bool {
	if s.IsWhole() {
		return true
	}
	of := s.sees[workspace]
	return of != nil && (of.all || cluster != "" && of.clusters[cluster])
}

// seesSome reports whether the scope sees anything of a workspace.
func (s *Scope) seesSome(workspace string) bool { return s.IsWhole() || s.sees[workspace] != nil }

// Workspaces returns the workspaces that the scope sees all of, sorted; nil if it sees everything.
func (s *Scope) Workspaces() []string {
	if s.IsWhole() {
		return nil
	}
	all := []string{}
	for _, workspace := range slices.Sorted(maps.Keys(s.sees)) {
		if s.sees[workspace].all {
			all = append(all, workspace)
		}
	}
	return all
}

// Parts returns the workspaces of which the scope sees all or some clusters, sorted; nil if it sees everything.
func (s *Scope) Parts() []string {
	if s.IsWhole() {
		return nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(s.sees))...)
}

// Customers returns the workspaces directly below the root that the rights are in, sorted; nil if the scope sees
// everything. What each of them may take of the server is bounded, also if it divides itself into many workspaces.
func (s *Scope) Customers() []string {
	if s.IsWhole() {
		return nil
	}
	var all []string
	for workspace := range s.sees {
		all = append(all, s.tops[workspace])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Key is the canonical text of what the scope sees. Scopes with one key see the same of every view.
func (s *Scope) Key() string {
	if s.IsWhole() {
		return "everything"
	}
	var b strings.Builder
	for _, workspace := range slices.Sorted(maps.Keys(s.sees)) {
		if of := s.sees[workspace]; of.all {
			fmt.Fprintf(&b, "%q\n", workspace)
		} else {
			fmt.Fprintf(&b, "%q in %q\n", workspace, slices.Sorted(maps.Keys(of.clusters)))
		}
	}
	return b.String()
}

// DeniedError says that no right of somebody covers an operation, and which roles do. It depends on nothing but the
// operation.
type DeniedError struct{ Operation string }

func (e *DeniedError) Error() string {
	rule := operations[e.Operation]
	var takes string
	for i, role := range rule.Roles {
		switch {
		case i == 0:
		case i == len(rule.Roles)-1:
			takes += " or "
		default:
			takes += ", "
		}
		takes += string(role)
	}
	switch {
	case takes == "":
		return fmt.Sprintf("your rights do not cover %q", e.Operation)
	case rule.Within:
		return fmt.Sprintf("your rights do not cover %q: that takes the role %s; an admin of your workspace can grant it", e.Operation, takes)
	default:
		return fmt.Sprintf("your rights do not cover %q: that takes the role %s for the whole estate; an admin of the estate can grant it", e.Operation, takes)
	}
}

// May returns nil if some right covers an operation, and otherwise a [*DeniedError].
func (s *Scope) May(operation string) error {
	_, err := s.For(operation)
	return err
}

// For returns the part of the scope whose rights cover an operation: what the operation may see. It returns a
// [*DeniedError] if there is none.
func (s *Scope) For(operation string) (*Scope, error) {
	if s.owner {
		return s, nil
	}
	rule, known := operations[operation]
	if !known {
		return nil, &DeniedError{operation}
	}
	covers := func(role domain.Role) bool { return slices.Contains(rule.Roles, role) }
	if slices.ContainsFunc(s.estate, covers) {
		return &Scope{estate: slices.DeleteFunc(slices.Clone(s.estate), func(r domain.Role) bool { return !covers(r) })}, nil
	}
	if !rule.Within {
		return nil, &DeniedError{operation}
	}
	within := slices.DeleteFunc(slices.Clone(s.rights), func(r Right) bool { return !covers(r.Role) })
	if len(within) == 0 {
		return nil, &DeniedError{operation}
	}
	return scopeOf(nil, within, s.tops), nil
}
