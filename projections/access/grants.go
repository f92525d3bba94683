package access

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Grant is a right that a principal has or had.
type Grant struct {
	Workspace string           `json:"workspace"`
	Grant     string           `json:"grant"`
	Principal domain.Principal `json:"principal"`
	Role      domain.Role      `json:"role"`
	Clusters  []string         `json:"clusters"`
	From      domain.Instant   `json:"from"`
	To        domain.Instant   `json:"to,omitzero"`   // zero: until revoked
	Why       string           `json:"why,omitempty"` // reason for To
	GrantedBy string           `json:"granted_by"`

	revoked bool
}

// Live reports whether the grant counts at a time. Like a key it counts as soon as it is known, and no more as soon as
// it is known to be revoked, because the clocks of those who decide and of those who check differ.
func (g *Grant) Live(at domain.Instant) bool { return !g.revoked && (g.To == 0 || at < g.To) }

// Right returns what the grant gives.
func (g *Grant) Right() Right { return Right{g.Workspace, g.Role, g.Clusters} }

// Grants returns every grant that ever counted, by workspace, id and time. Void decisions neither grant nor revoke.
func Grants(v projections.View) ([]Grant, error) {
	a, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	all := []Grant{}
	err = v.Scan(projections.Query{Table: projections.TableGrants}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		var last *Grant
		end := func(at domain.Instant, why string) {
			if last != nil && !last.revoked {
				last.revoked = true
				if last.To == 0 || at < last.To {
					last.To, last.Why = at, why
				}
			}
			last = nil
		}
		for i := range h.Versions {
			v := &h.Versions[i]
			if a.Judge(k, h, i) != "" {
				continue
			}
			switch ev := v.Event.(type) {
			case *domain.AccessGranted:
				end(v.Order.Effective, "replaced")
				g := Grant{
					Workspace: k.Scope, Grant: k.ID, Principal: ev.Principal, Role: ev.Role, Clusters: append([]string{}, ev.Clusters...),
					From: v.Order.Effective, To: ev.Until, GrantedBy: v.Signer.Operator,
				}
				if ev.Until != 0 {
					g.Why = "expires"
				}
				all = append(all, g)
				last = &all[len(all)-1]
			case *domain.AccessRevoked:
				end(v.Order.Effective, registry.RevokedFor(ev.Reason))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableGrants, err)
	}
	slices.SortStableFunc(all, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Grant, b.Grant), cmp.Compare(a.From, b.From))
	})
	return all, nil
}

// ServiceKey is a key that a service account has or had.
type ServiceKey struct {
	Workspace string         `json:"workspace"`
	Account   string         `json:"account"`
	KeyID     string         `json:"key_id"`
	MAC       []byte         `json:"-"`
	Issued    domain.Instant `json:"issued"`
	registry.KeyLife
}

// ServiceKeys returns all keys that service accounts ever had, by workspace, account and time of issue. If two keys were
// issued under one id, the first counts. The first event that ends a key ends it. Void decisions do neither.
func ServiceKeys(v projections.View) ([]ServiceKey, error) {
	a, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	type name struct{ workspace, key string }
	type end struct {
		name
		account string // whose key it may be; "": anybody's
		at      domain.Instant
		why     string
		revoked bool
	}
	keys := map[name]*ServiceKey{}
	var ends []end
	err = v.Scan(projections.Query{Table: projections.TableServiceKeys}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			v := &h.Versions[i]
			if a.Judge(k, h, i) != "" {
				continue
			}
			id := name{k.Scope, k.ID}
			switch ev := v.Event.(type) {
			case *domain.ServiceKeyIssued:
				if keys[id] == nil {
					keys[id] = &ServiceKey{Workspace: k.Scope, Account: ev.Account, KeyID: k.ID, MAC: ev.MAC, Issued: v.Order.Effective}
				}
				if ev.Expires != 0 {
					ends = append(ends, end{id, "", ev.Expires, "expires", false})
				}
				if ev.PreviousKeyID != "" {
					ends = append(ends, end{name{k.Scope, ev.PreviousKeyID}, ev.Account, ev.PreviousValidUntil, "replaced by " + k.ID, false})
				}
			case *domain.ServiceKeyRevoked:
				ends = append(ends, end{id, "", v.Order.Effective, registry.RevokedFor(ev.Reason), true})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableServiceKeys, err)
	}
	for _, e := range ends {
		if k := keys[e.name]; k != nil && (e.account == "" || e.account == k.Account) {
			k.End(e.at, e.why, e.revoked)
		}
	}
	all := make([]ServiceKey, 0, len(keys))
	for _, k := range keys {
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b ServiceKey) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Issued, b.Issued), cmp.Compare(a.KeyID, b.KeyID))
	})
	return all, nil
}

// Ended is since when what an identity provider gave somebody before is not valid any more: by whoever ended it, and by
// decision, that is by others than themselves. Decided is never after Any.
type Ended struct{ Any, Decided domain.Instant }

// SessionsEnded returns what was ended, by principal.
func SessionsEnded(v projections.View) (map[domain.Principal]Ended, error) {
	ended := map[domain.Principal]Ended{}
	err := v.Scan(projections.Query{Table: projections.TableSessions}, func(k projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			if ev, ok := v.Event.(*domain.SessionEnded); ok {
				// One that is dated in the future would lock somebody out. The log's time is in whole milliseconds.
				at, of := min(ev.At, v.Order.Appended+domain.Second/1000), ended[ev.Principal]
				of.Any = max(of.Any, at)
				if v.Signer != nil {
					of.Decided = max(of.Decided, at)
				}
				ended[ev.Principal] = of
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableSessions, err)
	}
	return ended, nil
}

// RightsOf returns the rights of somebody at a time: the grants to them, and to their groups.
func RightsOf(grants []Grant, who []domain.Principal, at domain.Instant) []Right {
	var rights []Right
	is := make(map[domain.Principal]bool, len(who)) // somebody may be in thousands of groups
	for _, p := range who {
		is[p] = true
	}
	for i := range grants {
		if g := &grants[i]; is[g.Principal] && g.Live(at) {
			rights = append(rights, g.Right())
		}
	}
	return rights
}

// Above returns a workspace, those that its parents lead to, and the root workspace: rights in any of them reach it.
func Above(v projections.View, workspace string) ([]string, error) {
	root, parents, err := treeOf(v)
	if err != nil {
		return nil, err
	}
	all := []string{workspace, root}
	for other := range parents {
		if other != workspace && under(parents, workspace, other) {
			all = append(all, other)
		}
	}
	return all, nil
}
