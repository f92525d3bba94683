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
	"quartermaster/projections/registry"
)

// fillCluster fills empty fields of a registration from the previous declaration.
func fillCluster(reg, before *domain.ClusterRegistered) {
	for _, f := range []struct {
		now    *string
		before string
	}{
		{&reg.Name, before.Name}, {&reg.Provider, before.Provider}, {(*string)(&reg.ProviderClass), string(before.ProviderClass)},
		{&reg.Region, before.Region}, {&reg.BillingAccount, before.BillingAccount},
	} {
		if *f.now == "" {
			*f.now = f.before
		}
	}
	if len(reg.Certifications) == 0 {
		reg.Certifications = before.Certifications
	}
	reg.Labels = before.Labels
	reg.Shards = cmp.Or(reg.Shards, before.Shards)
}

// liveKeys returns the valid keys of a cluster with some scopes, in the order of issue.
func liveKeys(v projections.View, cluster string, scopes []string, at domain.Instant) ([]registry.ClusterKeyEntry, error) {
	keys, err := registry.ClusterKeys(v)
	return slices.DeleteFunc(keys, func(k registry.ClusterKeyEntry) bool {
		return k.Cluster != cluster || !k.Live(at) || slices.ContainsFunc(scopes, func(s string) bool { return !k.May(s) })
	}), err
}

// ClusterRegistration is the input of [Caller.RegisterCluster].
type ClusterRegistration struct {
	Name      string
	Workspace string // owner; "": the present owner, else platform
	domain.ClusterRegistered
	Expires domain.Instant // end of its first key; 0: none
	Scopes  []string       // of its first key; none: push
}

// NewKey is a key that a decision issues to a cluster. The log learns only its HMAC.
type NewKey struct {
	Cluster       string
	Workspace     string
	Registered    bool // the declaration of the cluster is new or changed
	Shards        uint32
	Key           domain.ClusterKey // none if a changed cluster has a valid key
	Expires       domain.Instant    // 0: never
	Scopes        []string          // what it may be used for; none: push
	Previous      string            // id of the previous key, valid until the overlap ends
	PreviousUntil domain.Instant
}

// RegisterCluster drafts the declaration of a cluster and its first key. For a cluster that was
// declared before, empty fields keep their value. A cluster with a valid key of these scopes gets no
// other; then the declaration must change something.
func (c *Caller) RegisterCluster(ctx context.Context, r *ClusterRegistration) (*NewKey, Draft, error) {
	at := Now()
	env := domain.Envelope{Time: at, Subject: r.Name, Cluster: r.Name, Workspace: r.Workspace, Event: &r.ClusterRegistered}
	wanted := r.Scopes
	if len(wanted) == 0 {
		wanted = []string{domain.KeyPush}
	}
	var declared, same, keyed bool
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		before, err := registry.Declared(v, auth, &env)
		if err != nil {
			return err
		}
		if declared = before != nil; declared {
			fillCluster(&r.ClusterRegistered, before.Event.(*domain.ClusterRegistered))
			env.Workspace = cmp.Or(env.Workspace, before.Workspace)
			if same, err = projections.SameEvent(before.Event, env.Event); err != nil {
				return err
			}
			same = same && env.Workspace == before.Workspace
		}
		env.Workspace = cmp.Or(env.Workspace, Platform)
		spaces, err := v.Scopes(projections.TableWorkspaces)
		if err == nil {
			err = among("workspace", env.Workspace, spaces)
		}
		if err != nil {
			return err
		}
		live, err := liveKeys(v, r.Name, wanted, at)
		if keyed = len(live) > 0; err == nil && keyed && same {
			err = &ConflictError{Err: fmt.Errorf("cluster %s has key %s already; \"quartermaster key rotate %s\" makes another",
				r.Name, live[len(live)-1].KeyID, r.Name)}
		}
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	if !declared && (r.Provider == "" || r.ProviderClass == "" || r.Region == "") {
		return nil, Draft{}, &helped{invalid("provider", "cluster %s is not declared yet", r.Name), RemedyDeclareCluster}
	}
	k := &NewKey{Cluster: r.Name, Workspace: env.Workspace, Registered: !same, Shards: r.Shards, Expires: r.Expires, Scopes: wanted}
	draft := Draft{Use: "cluster-register"}
	if !same {
		draft.Events = append(draft.Events, env)
	}
	if keyed {
		return k, draft, nil
	}
	var err error
	if k.Key, err = domain.NewClusterKey(rand.Reader); err != nil {
		return nil, Draft{}, err
	}
	draft.Events = append(draft.Events, domain.Envelope{
		Time: at, Subject: r.Name, Cluster: r.Name, Workspace: env.Workspace,
		Event: &domain.ClusterKeyIssued{KeyID: k.Key.ID, MAC: k.Key.MAC(r.Name), Expires: r.Expires, Scopes: r.Scopes},
	})
	return k, draft, nil
}

// RotateKey drafts a new key of a cluster, with the scopes of the previous one, which stays valid for the overlap. A cluster
// with keys for several things rotates the one that has these scopes.
func (c *Caller) RotateKey(ctx context.Context, cluster string, scopes []string, overlap, expires domain.Instant) (*NewKey, Draft, error) {
	if overlap < 0 {
		return nil, Draft{}, invalid("overlap", "%s: want 0 or a positive duration", time.Duration(overlap))
	}
	at := Now()
	var live []registry.ClusterKeyEntry
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) (err error) {
		live, err = liveKeys(v, cluster, scopes, at)
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	switch n := len(live); {
	case n == 0:
		return nil, Draft{}, &NotFoundError{What: "key", Name: cluster, Err: fmt.Errorf("cluster %q has no valid key%s; "+
			"\"quartermaster cluster register\" makes one, \"quartermaster cluster list\" shows the clusters", cluster, toDo(scopes))}
	case n > 1 && !slices.Equal(live[0].Scopes, live[1].Scopes):
		return nil, Draft{}, &ConflictError{Err: fmt.Errorf("cluster %s has key %s to %s and key %s to %s: say which by its scope",
			cluster, live[0].KeyID, strings.Join(live[0].Scopes, " and "), live[1].KeyID, strings.Join(live[1].Scopes, " and "))}
	case n > 1:
		return nil, Draft{}, &ConflictError{Err: fmt.Errorf("cluster %s has two keys already, %s until %s; wait, or \"quartermaster key revoke %s\"",
			cluster, live[0].KeyID, live[0].Until, live[0].KeyID)}
	}
	key, err := domain.NewClusterKey(rand.Reader)
	if err != nil {
		return nil, Draft{}, err
	}
	k := &NewKey{Cluster: cluster, Key: key, Expires: expires, Scopes: live[0].Scopes, Previous: live[0].KeyID, PreviousUntil: at + overlap}
	return k, Draft{Use: "key-rotate", Events: []domain.Envelope{{Time: at, Subject: key.ID, Cluster: cluster, Event: &domain.ClusterKeyRotated{
		KeyID: key.ID, MAC: key.MAC(cluster), Expires: expires, PreviousKeyID: k.Previous, PreviousValidUntil: k.PreviousUntil,
		Scopes: k.Scopes,
	}}}}, nil
}

// toDo says what a key with scopes is for, "" for any.
func toDo(scopes []string) string {
	if len(scopes) == 0 {
		return ""
	}
	return " to " + strings.Join(scopes, " and ")
}

// RevokedKey is a key that a decision ends at once.
type RevokedKey struct {
	Cluster   string         `json:"cluster"`
	KeyID     string         `json:"key_id"`
	RevokedAt domain.Instant `json:"revoked_at"`
	KeysLeft  int            `json:"keys_left"` // valid keys of the cluster that remain
}

// RevokeKey drafts the end of a key, which is named by its id or given in full.
func (c *Caller) RevokeKey(ctx context.Context, id, reason string) (*RevokedKey, Draft, error) {
	// Accept the full key too: its owner may have only that at hand.
	if k, err := domain.ParseClusterKey(id); err == nil {
		id = k.ID
	}
	at := Now()
	var found *registry.ClusterKeyEntry
	left := 0
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		keys, err := registry.ClusterKeys(v)
		for i := range keys {
			if keys[i].KeyID == id {
				found = &keys[i]
			}
		}
		for i := range keys {
			if found != nil && keys[i].Cluster == found.Cluster && keys[i].KeyID != id && keys[i].Live(at) {
				left++
			}
		}
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	if found == nil {
		return nil, Draft{}, &NotFoundError{What: "key", Name: id, Err: fmt.Errorf("no cluster has a key %.20q; \"quartermaster cluster list\" shows them", id)}
	}
	if found.Revoked {
		return nil, Draft{}, &ConflictError{Err: fmt.Errorf("key %s was revoked already, at %s", id, found.Until)}
	}
	return &RevokedKey{found.Cluster, id, at, left}, Draft{Use: "key-revoke", Events: []domain.Envelope{{
		Time: at, Subject: id, Cluster: found.Cluster, Event: &domain.ClusterKeyRevoked{KeyID: id, Reason: reason},
	}}}, nil
}
