package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// View narrows a view to the scope. Position and anchors stay, because they are those of the log.
func (s *Scope) View(v projections.View) projections.View {
	if s.IsWhole() {
		return v
	}
	return &view{&ground{scope: s, whole: v}}
}

// Of returns what decides who sees what in a narrowed view. It reports false for a view that is not narrowed.
func Of(v projections.View) (Lens, bool) {
	if n, ok := v.(*view); ok {
		return n.ground, true
	}
	return nil, false
}

// Beneath returns the view that a view was narrowed from, or the view itself. Only functions whose result is narrowed
// before any question sees it may call it; TestBeneath lists them.
func Beneath(v projections.View) projections.View {
	if n, ok := v.(*view); ok {
		return n.ground.whole
	}
	return v
}

// Lens says what is seen of a figure that was computed from all rows.
type Lens interface {
	// Scope returns the scope.
	Scope() *Scope
	// Owns reports whether a cluster belongs to a workspace of the scope.
	Owns(cluster string) (bool, error)
}

// ground is what the rules of tables read. It is safe for concurrent use.
type ground struct {
	scope *Scope
	whole projections.View

	mu        sync.Mutex
	authority *registry.Authority // over all rows
	owners    map[string]string   // of clusters
	guests    map[string]bool     // clusters with deployments of the scope, or a rule by which it pays
	deployed  map[[2]string][]string
}

// Scope implements [Lens].
func (g *ground) Scope() *Scope { return g.scope }

// Authority returns who may decide, by all rows.
func (g *ground) Authority() (*registry.Authority, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judges()
}

func (g *ground) judges() (_ *registry.Authority, err error) {
	if g.authority == nil {
		g.authority, err = registry.NewAuthority(g.whole)
	}
	return g.authority, err
}

// Owns implements [Lens]. The owner is the workspace of the last valid registration.
func (g *ground) Owns(cluster string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owners == nil {
		a, err := g.judges()
		if err != nil {
			return false, err
		}
		clusters, err := a.Clusters(g.whole)
		if err != nil {
			return false, err
		}
		g.owners = map[string]string{}
		for name, h := range clusters {
			g.owners[name] = h.Latest().Workspace
		}
	}
	owner := g.owners[cluster]
	return owner != "" && g.scope.Sees(owner, cluster), nil
}

// holds reports whether a deployment of a cluster was of the scope whenever it was declared.
func (g *ground) holds(cluster, deployment string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.readDeployments(); err != nil {
		return false, err
	}
	of := g.deployed[[2]string{cluster, deployment}]
	return len(of) > 0 && !slices.ContainsFunc(of, func(workspace string) bool { return !g.scope.Sees(workspace, cluster) }), nil
}

// visits reports whether the scope is a guest of a cluster: it has a deployment there, or pays by a rule.
func (g *ground) visits(cluster string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.readDeployments()
	return g.guests[cluster], err
}

// readDeployments reads the workspaces of deployments, and where the scope is a guest.
func (g *ground) readDeployments() error {
	if g.deployed != nil {
		return nil
	}
	deployed, guests := map[[2]string][]string{}, map[string]bool{}
	err := g.whole.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			workspace := h.Versions[i].Workspace
			if workspace == "" {
				continue
			}
			id := [2]string{k.Scope, k.ID}
			deployed[id] = append(deployed[id], workspace)
			if g.scope.Sees(workspace, k.Scope) {
				guests[k.Scope] = true
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableDeployments, err)
	}
	a, err := g.judges()
	if err != nil {
		return err
	}
	err = g.whole.Scan(projections.Query{Table: projections.TableMappingRules}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			ev, ok := h.Versions[i].Event.(*domain.MappingRuleSet)
			if ok && ev.Cluster != "" && !ev.Shares() && a.Judge(k, h, i) == "" {
				payer := ev.ToWorkspace
				if payer == "" {
					payer = k.Scope
				}
				if g.scope.Sees(payer, ev.Cluster) {
					guests[ev.Cluster] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableMappingRules, err)
	}
	g.deployed, g.guests = deployed, guests
	return nil
}

// deploymentOf returns the deployment that an id of parts begins with.
func deploymentOf(id string) string {
	deployment, _, _ := strings.Cut(id, "|")
	return deployment
}

// view is a narrowed view.
type view struct{ *ground }

// Authority returns who may decide, by all rows, for rows that are narrowed. It implements [registry.Judged].
func (v *view) Authority() (*registry.Authority, error) {
	a, err := v.ground.Authority()
	if err != nil {
		return nil, err
	}
	return a.Narrowed(func(workspace string) bool { return v.scope.Sees(workspace, "") }), nil
}

// Position implements [projections.View].
func (v *view) Position() domain.Position { return v.whole.Position() }

// Anchors implements [projections.View].
func (v *view) Anchors() map[domain.TopicPartition]domain.Anchor { return v.whole.Anchors() }

// Scan implements [projections.View].
func (v *view) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	rule, known := ruleOf[q.Table]
	if !known {
		return nil // deny by default
	}
	narrowed := func(k projections.Key, row projections.Row) (err error) {
		if rule.rule != nil {
			row, err = rule.rule(v.ground, k, row)
		}
		if err != nil || row == nil {
			return err
		}
		return yield(k, row)
	}
	if rule.where == nil {
		return v.whole.Scan(q, narrowed)
	}
	scopes := []string{q.Scope}
	if q.Scope == "" {
		var err error
		if scopes, err = v.whole.Scopes(q.Table); err != nil {
			return err
		}
	}
	for _, q.Scope = range scopes {
		seen, err := rule.where(v.ground, q.Scope)
		if err == nil && seen {
			err = v.whole.Scan(q, narrowed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Get implements [projections.View].
func (v *view) Get(k projections.Key) (projections.Row, error) {
	rule, known := ruleOf[k.Table]
	if !known {
		return nil, nil
	}
	if rule.where != nil {
		if seen, err := rule.where(v.ground, k.Scope); err != nil || !seen {
			return nil, err
		}
	}
	row, err := v.whole.Get(k)
	if err != nil || row == nil || rule.rule == nil {
		return row, err
	}
	return rule.rule(v.ground, k, row)
}

var errSeen = errors.New("seen")

// Scopes implements [projections.View]: the scopes with a row that is seen.
func (v *view) Scopes(t projections.Table) ([]string, error) {
	rule, known := ruleOf[t]
	if !known {
		return []string{}, nil
	}
	all, err := v.whole.Scopes(t)
	if err != nil {
		return nil, err
	}
	seen := []string{}
	for _, scope := range all {
		var is bool
		if rule.where != nil {
			is, err = rule.where(v.ground, scope)
		} else {
			err = v.Scan(projections.Query{Table: t, Scope: scope}, func(projections.Key, projections.Row) error { return errSeen })
			is = errors.Is(err, errSeen)
		}
		switch {
		case is:
			seen = append(seen, scope)
		case err != nil:
			return nil, err
		}
	}
	return seen, nil
}
