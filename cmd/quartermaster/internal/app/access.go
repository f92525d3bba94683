package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// AccessChange is a decision about who may read.
type AccessChange struct {
	Workspace string           `json:"workspace"`
	Grant     string           `json:"grant,omitempty"`
	Principal domain.Principal `json:"principal"`
	Role      domain.Role      `json:"role,omitempty"`
	Clusters  []string         `json:"clusters,omitempty"`
	Until     domain.Instant   `json:"until,omitzero"`
	Operator  string           `json:"operator,omitempty"` // who signed
	At        domain.Instant   `json:"at,omitzero"`        // since when it counts; none for a dry run
}

// Grant drafts a right. A grant without an id is named by its role and principal, so that it replaces itself.
func (c *Caller) Grant(ctx context.Context, workspace string, g *domain.AccessGranted) (*AccessChange, Draft, error) {
	at := Now()
	g.Grant = cmp.Or(g.Grant, string(g.Role)+":"+string(g.Principal))
	if g.Until != 0 && g.Until <= at {
		return nil, Draft{}, invalid("until", "%s is past", g.Until)
	}
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		spaces, err := v.Scopes(projections.TableWorkspaces)
		if err != nil {
			return err
		}
		if err := among("workspace", workspace, spaces); err != nil {
			return err
		}
		clusters, err := v.Scopes(projections.TableClusters)
		if err != nil {
			return err
		}
		for _, cluster := range g.Clusters {
			if err := among("cluster", cluster, clusters); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, Draft{}, err
	}
	return &AccessChange{
		Workspace: workspace, Grant: g.Grant, Principal: g.Principal, Role: g.Role, Clusters: g.Clusters, Until: g.Until,
	}, Draft{Use: "access-grant", Events: []domain.Envelope{{Time: at, Subject: g.Grant, Workspace: workspace, Event: g}}}, nil
}

// Revoke drafts the end of a grant.
func (c *Caller) Revoke(ctx context.Context, workspace, grant, reason string) (*AccessChange, Draft, error) {
	at := Now()
	var found *access.Grant
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		all, err := access.Grants(v)
		if err != nil {
			return err
		}
		var live []string
		for i := range all {
			if g := &all[i]; g.Workspace == workspace && g.Live(at) {
				live = append(live, g.Grant)
				if g.Grant == grant {
					found = g
				}
			}
		}
		return oneOf("grant", grant, live)
	}); err != nil {
		return nil, Draft{}, err
	}
	if found == nil {
		return nil, Draft{}, invalid("grant", "is missing")
	}
	return &AccessChange{Workspace: workspace, Grant: grant, Principal: found.Principal, Role: found.Role, Clusters: found.Clusters},
		Draft{Use: "access-revoke", Events: []domain.Envelope{{
			Time: at, Subject: grant, Workspace: workspace, Event: &domain.AccessRevoked{Grant: grant, Reason: reason},
		}}}, nil
}

// EndSessions drafts the end of whatever a principal's identity provider gave them before now.
func (c *Caller) EndSessions(_ context.Context, workspace string, who domain.Principal, reason string) (*AccessChange, Draft, error) {
	at := Now()
	if kind, _, ok := who.Kind(); !ok || kind != domain.PrincipalUser {
		return nil, Draft{}, invalid("principal", "%q: want user:PROVIDER/SUBJECT, because only users have sessions", domain.Clip(string(who), widest))
	}
	return &AccessChange{Workspace: workspace, Principal: who}, Draft{Use: "access-end", OfEstate: true, SignAll: true, Events: []domain.Envelope{{
		Time: at, Subject: string(who), Workspace: workspace, Event: &domain.SessionEnded{Principal: who, At: at, Reason: reason},
	}}}, nil
}

// ServiceKeyChange is a decision about a key of a service account.
type ServiceKeyChange struct {
	Workspace     string         `json:"workspace"`
	Account       string         `json:"account"`
	KeyID         string         `json:"key_id"`
	Key           string         `json:"key,omitempty"` // shown once; not with a file
	KeyFile       string         `json:"key_file,omitempty"`
	Expires       domain.Instant `json:"expires,omitzero"`
	Previous      string         `json:"previous_key_id,omitempty"`
	PreviousUntil domain.Instant `json:"previous_valid_until,omitzero"`
	Operator      string         `json:"operator,omitempty"`
	At            domain.Instant `json:"at,omitzero"`
}

// IssueServiceKey drafts a key of a service account. The key that the account has stays valid for the overlap.
func (c *Caller) IssueServiceKey(ctx context.Context, workspace, account string, overlap, expires domain.Instant) (*ServiceKeyChange, Draft, error) {
	if overlap < 0 {
		return nil, Draft{}, invalid("overlap", "%s: want 0 or a positive duration", time.Duration(overlap))
	}
	at := Now()
	var live []access.ServiceKey
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		spaces, err := v.Scopes(projections.TableWorkspaces)
		if err == nil {
			err = among("workspace", workspace, spaces)
		}
		if err != nil {
			return err
		}
		live, err = access.ServiceKeys(v)
		live = slices.DeleteFunc(live, func(k access.ServiceKey) bool {
			return k.Workspace != workspace || k.Account != account || !k.Live(at)
		})
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	if len(live) > 1 {
		return nil, Draft{}, &ConflictError{Err: fmt.Errorf("account %s has two keys already, %s until %s; wait, or \"quartermaster access key revoke %s\"",
			account, live[0].KeyID, live[0].Until, live[0].KeyID)}
	}
	key, err := domain.NewServiceKey(rand.Reader)
	if err != nil {
		return nil, Draft{}, err
	}
	k := &ServiceKeyChange{Workspace: workspace, Account: account, KeyID: key.ID, Key: key.String(), Expires: expires}
	if len(live) == 1 {
		k.Previous, k.PreviousUntil = live[0].KeyID, at+overlap
	}
	return k, Draft{Use: "access-key", Events: []domain.Envelope{{Time: at, Subject: key.ID, Workspace: workspace, Event: &domain.ServiceKeyIssued{
		Account: account, KeyID: key.ID, MAC: key.MAC(workspace, account), Expires: expires,
		PreviousKeyID: k.Previous, PreviousValidUntil: k.PreviousUntil,
	}}}}, nil
}

// RevokeServiceKey drafts the end of a key, which is named by its id or given in full.
func (c *Caller) RevokeServiceKey(ctx context.Context, id, reason string) (*ServiceKeyChange, Draft, error) {
	if k, err := domain.ParseServiceKey(id); err == nil {
		id = k.ID
	}
	at := Now()
	var found *access.ServiceKey
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		keys, err := access.ServiceKeys(v)
		for i := range keys {
			if keys[i].KeyID == id {
				found = &keys[i]
			}
		}
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	switch {
	case found == nil:
		return nil, Draft{}, &NotFoundError{What: "key", Name: id, Err: fmt.Errorf("no service account has a key %.20q; \"quartermaster access list\" shows them", id)}
	case found.Revoked:
		return nil, Draft{}, &ConflictError{Err: fmt.Errorf("key %s was revoked already, at %s", id, found.Until)}
	}
	return &ServiceKeyChange{Workspace: found.Workspace, Account: found.Account, KeyID: id}, Draft{Use: "access-key-revoke", Events: []domain.Envelope{{
		Time: at, Subject: id, Workspace: found.Workspace, Event: &domain.ServiceKeyRevoked{KeyID: id, Reason: reason},
	}}}, nil
}

// AccessFilter selects rights; empty fields match all.
type AccessFilter struct {
	Workspace string
	Principal domain.Principal
	Past      bool // with what does not count any more
}

// AccessList says who may read, and when they last did.
type AccessList struct {
	Position string             `json:"position"`
	At       domain.Instant     `json:"at"`
	Grants   []GrantInUse       `json:"grants"`
	Keys     []ServiceKeyListed `json:"keys"`
}

// GrantInUse is a grant with its use.
type GrantInUse struct {
	access.Grant
	Live bool `json:"live"`
	// LastUsed is when the principal last asked anything, by the minute; of a group that is unknown. None: never.
	LastUsed domain.Instant `json:"last_used,omitzero"`
	// Warnings say what a reviewer should look at.
	Warnings []string `json:"warnings"`
}

// ServiceKeyListed is a key of a service account.
type ServiceKeyListed struct {
	access.ServiceKey
	Live     bool           `json:"live"`
	LastUsed domain.Instant `json:"last_used,omitzero"` // of the account
	Warnings []string       `json:"warnings"`
}

// unusedFor is after how long a review names what was not used.
const unusedFor = 90 * domain.Day

// AccessList returns who may read as of a point in time.
func (c *Caller) AccessList(ctx context.Context, at At, f AccessFilter) (*AccessList, error) {
	var out *AccessList
	err := c.readFrom(ctx, at, 0, func(v projections.View, now domain.Instant) error {
		out = &AccessList{Position: v.Position().String(), At: now, Grants: []GrantInUse{}, Keys: []ServiceKeyListed{}}
		grants, err := access.Grants(v)
		if err != nil {
			return err
		}
		keys, err := access.ServiceKeys(v)
		if err != nil {
			return err
		}
		used, err := lastAsked(v)
		if err != nil {
			return err
		}
		spaces, err := v.Scopes(projections.TableWorkspaces)
		if err != nil {
			return err
		}
		if err := among("workspace", f.Workspace, spaces); err != nil {
			return err
		}
		reach, err := access.Reach(v)
		if err != nil {
			return err
		}
		warn := func(since, last domain.Instant, group bool) []string {
			switch {
			case group:
				return []string{}
			case last == 0 && now-since > unusedFor:
				return []string{"never used"}
			case last != 0 && now-last > unusedFor:
				return []string{fmt.Sprintf("not used for %d days", (now-last)/domain.Day)}
			}
			return []string{}
		}
		keyed := map[domain.Principal]bool{}
		for i := range keys {
			k := ServiceKeyListed{ServiceKey: keys[i], Live: keys[i].Live(now)}
			who := domain.AccountOf(k.Account)
			keyed[who] = keyed[who] || k.Live
			if f.Workspace != "" && k.Workspace != f.Workspace || f.Principal != "" && who != f.Principal || !f.Past && !k.Live {
				continue
			}
			k.LastUsed = used[who]
			k.Warnings = warn(k.Issued, k.LastUsed, false)
			if k.Live && len(reach(k.Workspace, access.RightsOf(grants, []domain.Principal{who}, now))) == 0 {
				k.Warnings = append(k.Warnings, "its account has no grant")
			}
			out.Keys = append(out.Keys, k)
		}
		for i := range grants {
			g := GrantInUse{Grant: grants[i], Live: grants[i].Live(now)}
			if f.Workspace != "" && g.Workspace != f.Workspace || f.Principal != "" && g.Principal != f.Principal || !f.Past && !g.Live {
				continue
			}
			kind, _, _ := g.Principal.Kind()
			g.LastUsed = used[g.Principal]
			g.Warnings = warn(g.From, g.LastUsed, kind == domain.PrincipalGroup)
			if g.Live && kind == domain.PrincipalAccount && !keyed[g.Principal] {
				g.Warnings = append(g.Warnings, "the account has no key")
			}
			if g.Live && g.To == 0 && g.Role == domain.RoleAdmin {
				g.Warnings = append(g.Warnings, "admin without an end")
			}
			out.Grants = append(out.Grants, g)
		}
		return nil
	})
	return out, err
}

// lastAsked returns when principals last asked anything.
func lastAsked(v projections.View) (map[domain.Principal]domain.Instant, error) {
	last := map[domain.Principal]domain.Instant{}
	err := v.Scan(projections.Query{Table: projections.TableAccess, Last: true}, func(_ projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			if ev, ok := v.Event.(*domain.AccessRecorded); ok {
				last[ev.Principal] = max(last[ev.Principal], ev.Window.From)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableAccess, err)
	}
	return last, nil
}

// Access is what somebody asked in a minute.
type Access struct {
	Time      domain.Instant   `json:"time"` // begin of the minute
	Principal domain.Principal `json:"principal"`
	Operation string           `json:"operation"`
	// Workspaces could be seen; none: the whole estate.
	Workspaces []string `json:"workspaces"`
	Count      uint64   `json:"count"`
	Refused    uint64   `json:"refused,omitempty"`
	Position   string   `json:"position,omitempty"`
	Digest     []byte   `json:"digest,omitempty"` // SHA-256 of the last question
}

// AccessAudit says who read what, and who could have.
type AccessAudit struct {
	Position string          `json:"position"`
	Period   domain.Interval `json:"period"`
	Asked    []Access        `json:"asked"`
	Could    []access.Grant  `json:"could"` // the grants that counted at some time of the period
}

// AccessAuditQuestion asks who read what in a period. Empty fields match all.
type AccessAuditQuestion struct {
	Workspace string // the whole estate, and this workspace
	Principal domain.Principal
	// Period has the begin of the minutes. To 0: until now; From 0: the day before.
	Period  domain.Interval
	Refused bool // only what was refused
}

// AuditAccess answers who read what in a period.
func (c *Caller) AuditAccess(ctx context.Context, at At, q AccessAuditQuestion) (*AccessAudit, error) {
	if q.Period.To == 0 {
		q.Period.To = c.app.clock() + domain.Second
	}
	if q.Period.From == 0 {
		q.Period.From = q.Period.To - domain.Day
	}
	if q.Period.To <= q.Period.From {
		return nil, invalid("from", "%s to %s is no period", q.Period.From, q.Period.To)
	}
	var out *AccessAudit
	err := c.read(ctx, at, func(_ *Conn, v projections.View) (err error) {
		out, err = accessAudit(v, q)
		return err
	})
	return out, err
}

// accessAudit is [Caller.AuditAccess] for a period with both bounds.
func accessAudit(v projections.View, q AccessAuditQuestion) (*AccessAudit, error) {
	out := &AccessAudit{Position: v.Position().String(), Period: q.Period, Asked: []Access{}, Could: []access.Grant{}}
	spaces, err := v.Scopes(projections.TableWorkspaces)
	if err == nil {
		err = among("workspace", q.Workspace, spaces)
	}
	if err != nil {
		return nil, err
	}
	span := projections.Query{
		Table: projections.TableAccess, ID: string(q.Principal),
		From: projections.DayOf(q.Period.From), To: projections.HourOf(q.Period.To-1) + 1,
	}
	err = v.Scan(span, func(_ projections.Key, row projections.Row) error {
		versions := row.(*projections.History).Versions
		for i, v := range versions {
			ev, ok := v.Event.(*domain.AccessRecorded)
			// A journal that was appended again is one version, unless another instance appended one in between.
			again := ok && slices.ContainsFunc(versions[:i], func(before projections.Version) bool {
				of, ok := before.Event.(*domain.AccessRecorded)
				return ok && of.Journal == ev.Journal && of.Window == ev.Window
			})
			if !ok || again || ev.Window.From < q.Period.From || ev.Window.From >= q.Period.To {
				continue
			}
			for i := range ev.Asked {
				a := &ev.Asked[i]
				sees := q.Workspace == "" || len(a.Workspaces) == 0 || slices.Contains(a.Workspaces, q.Workspace)
				if !sees || q.Refused && a.Refused == 0 {
					continue
				}
				out.Asked = append(out.Asked, Access{
					Time: ev.Window.From, Principal: ev.Principal, Operation: a.Operation, Workspaces: append([]string{}, a.Workspaces...),
					Count: a.Count, Refused: a.Refused, Position: a.Position, Digest: a.Digest,
				})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableAccess, err)
	}
	slices.SortStableFunc(out.Asked, func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(string(a.Principal), string(b.Principal)), strings.Compare(a.Operation, b.Operation))
	})
	grants, err := access.Grants(v)
	if err != nil {
		return nil, err
	}
	above, err := access.Above(v, q.Workspace)
	if err != nil {
		return nil, err
	}
	for _, g := range grants {
		if g.From < q.Period.To && (g.To == 0 || g.To > q.Period.From) &&
			(q.Principal == "" || g.Principal == q.Principal) && (q.Workspace == "" || slices.Contains(above, g.Workspace)) {
			out.Could = append(out.Could, g)
		}
	}
	return out, nil
}
