package registry

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// ClusterKeyEntry is a key of a cluster.
type ClusterKeyEntry struct {
	Cluster string         `json:"cluster"`
	KeyID   string         `json:"key_id"`
	MAC     []byte         `json:"-"`
	Issued  domain.Instant `json:"issued"`
	Scopes  []string       `json:"scopes"` // what it may be used for
	KeyLife
	// Shards are the numbers of shards that the cluster was declared with, the present one last.
	Shards []int `json:"-"`
}

// May reports whether the key may be used for something.
func (k *ClusterKeyEntry) May(scope string) bool { return slices.Contains(keyScopes(k.Scopes), scope) }

// keyScopes returns what a key may be used for that was issued with scopes.
func keyScopes(scopes []string) []string {
	if len(scopes) == 0 {
		return []string{domain.KeyPush}
	}
	return scopes
}

// clusterKey names a key of a cluster.
type clusterKey struct{ cluster, key string }

// ClusterKeys returns all keys that clusters ever had, by cluster, then by time of issue. If two
// keys were issued under one id, the first counts. The first event that ends a key ends it. Void
// decisions neither make a key nor end one.
func ClusterKeys(view projections.View) ([]ClusterKeyEntry, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	keys, err := a.clusterKeys(view)
	if err != nil {
		return nil, err
	}
	shards, err := declaredShards(view, a)
	if err != nil {
		return nil, err
	}
	out := make([]ClusterKeyEntry, 0, len(keys))
	for _, k := range keys {
		if k.Shards = shards[k.Cluster]; k.Shards == nil {
			k.Shards = []int{1}
		}
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b ClusterKeyEntry) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Issued, b.Issued), cmp.Compare(a.KeyID, b.KeyID))
	})
	return out, nil
}

// clusterKeys returns the keys of clusters, without shards.
func (a *Authority) clusterKeys(view projections.View) (map[clusterKey]*ClusterKeyEntry, error) {
	keys := map[clusterKey]*ClusterKeyEntry{}
	type end struct {
		clusterKey
		at      domain.Instant
		why     string
		revoked bool
	}
	var ends []end
	err := view.Scan(projections.Query{Table: projections.TableClusterKeys}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i, v := range h.Versions {
			if a.Judge(k, h, i) != "" {
				continue
			}
			id, at := clusterKey{k.Scope, k.ID}, v.Order.Effective
			issue := func(mac []byte, expires domain.Instant, scopes []string) {
				if keys[id] == nil {
					keys[id] = &ClusterKeyEntry{Cluster: k.Scope, KeyID: k.ID, MAC: mac, Issued: at, Scopes: keyScopes(scopes)}
				}
				if expires != 0 {
					ends = append(ends, end{id, expires, "expires", false})
				}
			}
			switch ev := v.Event.(type) {
			case *domain.ClusterKeyIssued:
				issue(ev.MAC, ev.Expires, ev.Scopes)
			case *domain.ClusterKeyRotated:
				issue(ev.MAC, ev.Expires, ev.Scopes)
				ends = append(ends, end{clusterKey{k.Scope, ev.PreviousKeyID}, ev.PreviousValidUntil, "replaced by " + k.ID, false})
			case *domain.ClusterKeyRevoked:
				ends = append(ends, end{id, at, RevokedFor(ev.Reason), true})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read keys of clusters: %w", err)
	}
	for _, e := range ends {
		if k := keys[e.clusterKey]; k != nil {
			k.End(e.at, e.why, e.revoked)
		}
	}
	return keys, nil
}

// declaredShards returns the numbers of shards that clusters were declared with, each once, the
// present one last. Void decisions do not count.
func declaredShards(view projections.View, a *Authority) (map[string][]int, error) {
	shards := map[string][]int{}
	err := view.Scan(projections.Query{Table: projections.TableClusters}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i, v := range h.Versions {
			if a.Judge(k, h, i) != "" {
				continue
			}
			n := max(1, int(v.Event.(*domain.ClusterRegistered).Shards))
			before := slices.DeleteFunc(shards[k.Scope], func(m int) bool { return m == n })
			shards[k.Scope] = append(before, n)
		}
		return nil
	})
	return shards, err
}
