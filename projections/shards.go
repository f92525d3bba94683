package projections

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"quartermaster/domain"
)

// Rows about a node are stored under the key of its shard, and a node whose cluster changed its
// number of shards has rows under several keys; see [domain.ShardKey]. A [ClusterView] is the one
// place that knows this. Above it the scope of every row of a cluster is the cluster.

// ofNodes reports whether a table has rows about nodes, which are stored by shard. Their id is the
// node.
func ofNodes(t Table) bool {
	switch t {
	case TableUsage, TableNodeGPUs, TableFaults, TableHealth:
		return true
	}
	return false
}

// ClusterView is a view in which the scope of rows about nodes is their cluster, whatever shard
// they are stored in. Rows of a node and hour, day or month under several keys are joined, so that
// what one observer reported counts once.
type ClusterView struct {
	rows View

	mu    sync.Mutex
	known map[Table]map[string]*shards // see shardsOf
}

// shards are the scopes of a cluster in a table, in order, and the numbers of shards in them,
// ascending, 0 for none.
type shards struct {
	scopes []string
	of     []int
}

// ofNode returns the scopes that may have rows of a node.
func (s *shards) ofNode(cluster, node string) []string {
	scopes := make([]string, len(s.of))
	for i, of := range s.of {
		scopes[i] = domain.NodeKey(cluster, node, of)
	}
	return scopes
}

// ByCluster returns the view by cluster of a view of rows as they are stored. Stores pass it to
// readers.
func ByCluster(rows View) *ClusterView {
	return &ClusterView{rows: rows, known: map[Table]map[string]*shards{}}
}

// Stored returns the view of the rows as they are stored, for those who copy, compare or digest
// them.
func Stored(v View) View {
	if c, ok := v.(interface{ Stored() View }); ok {
		return c.Stored()
	}
	return v
}

// Stored returns the view of the rows as they are stored.
func (c *ClusterView) Stored() View { return c.rows }

// Position implements [View].
func (c *ClusterView) Position() domain.Position { return c.rows.Position() }

// Anchors implements [View].
func (c *ClusterView) Anchors() map[domain.TopicPartition]domain.Anchor { return c.rows.Anchors() }

// shards is shardsOf, once for each table.
func (c *ClusterView) shards(t Table) (map[string]*shards, error) {
	if !ofNodes(t) {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.known[t]; ok {
		return known, nil
	}
	known, err := shardsOf(c.rows, t)
	if err == nil {
		c.known[t] = known
	}
	return known, err
}

// shardsOf returns where a table has rows, by cluster; nil if no cluster has shards.
func shardsOf(v View, t Table) (map[string]*shards, error) {
	scopes, err := v.Scopes(t)
	if err != nil {
		return nil, err
	}
	sharded := false
	known := map[string]*shards{}
	for _, scope := range scopes {
		cluster, _, of, err := domain.ParseShardKey(scope)
		if err != nil {
			return nil, fmt.Errorf("scopes of %s: %w", t, err)
		}
		sharded = sharded || of > 0
		s := known[cluster]
		if s == nil {
			s = &shards{}
			known[cluster] = s
		}
		s.scopes = append(s.scopes, scope)
		if !slices.Contains(s.of, of) {
			s.of = append(s.of, of)
		}
	}
	if !sharded {
		return nil, nil
	}
	for _, s := range known {
		slices.Sort(s.of)
	}
	return known, nil
}

// Scopes implements [View].
func (c *ClusterView) Scopes(t Table) ([]string, error) {
	known, err := c.shards(t)
	if err != nil || known == nil {
		if err != nil {
			return nil, err
		}
		return c.rows.Scopes(t)
	}
	return slices.Sorted(maps.Keys(known)), nil
}

// Get implements [View].
func (c *ClusterView) Get(k Key) (Row, error) {
	known, err := c.shards(k.Table)
	if err != nil {
		return nil, err
	}
	if known == nil {
		return c.rows.Get(k)
	}
	s := known[k.Scope]
	if s == nil {
		return nil, nil
	}
	var parts []Row
	for _, scope := range s.ofNode(k.Scope, k.ID) {
		at := k
		at.Scope = scope
		row, err := c.rows.Get(at)
		if err != nil {
			return nil, err
		}
		if row != nil {
			parts = append(parts, row)
		}
	}
	return joinRows(k, parts)
}

// Scan implements [View].
func (c *ClusterView) Scan(q Query, yield func(Key, Row) error) error {
	known, err := c.shards(q.Table)
	if err != nil {
		return err
	}
	if known == nil {
		return c.rows.Scan(q, yield)
	}
	var at Key
	var parts []Row
	flush := func() error {
		if len(parts) == 0 {
			return nil
		}
		row, err := joinRows(at, parts)
		parts = parts[:0]
		if err != nil {
			return err
		}
		return yield(at, row)
	}
	err = scanByCluster(c.rows, known, q, func(k Key, row Row) error {
		k.Scope = domain.ClusterOf(k.Scope)
		switch {
		case len(parts) == 0, k == at:
		case q.Last && k.Scope == at.Scope && k.ID == at.ID:
			parts = parts[:0] // a later hour of the same node
		default:
			if err := flush(); err != nil {
				return err
			}
		}
		at, parts = k, append(parts, row)
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// CompareByCluster orders keys of one table by cluster, id and hour, then by scope.
func (k Key) CompareByCluster(l Key) int {
	return cmp.Or(
		strings.Compare(domain.ClusterOf(k.Scope), domain.ClusterOf(l.Scope)),
		strings.Compare(k.ID, l.ID), cmp.Compare(k.Hour, l.Hour), strings.Compare(k.Scope, l.Scope),
	)
}

// HoldsByCluster is [Query.Holds] for a query whose scope is a cluster.
func (q *Query) HoldsByCluster(k Key) bool {
	k.Scope = domain.ClusterOf(k.Scope)
	return q.Holds(k)
}

// ScanByCluster calls yield for the rows of a table about nodes, as they are stored, in the order
// of [Key.CompareByCluster]. The scope of the query is a cluster, "" for all. If the query asks for
// the last row of each node, earlier ones may be among them.
func ScanByCluster(rows View, q Query, yield func(Key, Row) error) error {
	known, err := shardsOf(rows, q.Table)
	if err != nil {
		return err
	}
	if known == nil {
		return rows.Scan(q, yield) // each scope is a cluster
	}
	return scanByCluster(rows, known, q, yield)
}

// scanByCluster is ScanByCluster for a table with shards.
func scanByCluster(rows View, known map[string]*shards, q Query, yield func(Key, Row) error) error {
	if over, ok := rows.(*overView); ok {
		if all := (Query{Table: q.Table, From: q.From, To: q.To}); len(over.under(all)) == 0 {
			rows = over.View
		}
	}
	own, ok := rows.(interface {
		ScanByCluster(Query, func(Key, Row) error) error
	})
	if ok && q.ID == "" {
		return own.ScanByCluster(q, yield)
	}
	for _, cluster := range slices.Sorted(maps.Keys(known)) {
		if q.Scope != "" && q.Scope != cluster {
			continue
		}
		scopes := known[cluster].scopes
		if q.ID != "" {
			scopes = known[cluster].ofNode(cluster, q.ID)
		}
		if err := scanShards(rows, q, scopes, yield); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a scan whose reader has stopped.
var errEnough = errors.New("enough was read")

// scanShards merges the rows of several scopes of a cluster. A view with ForScans is told how many
// scans run at once, so that their pages take the memory of one.
func scanShards(rows View, q Query, scopes []string, yield func(Key, Row) error) error {
	if own, ok := rows.(interface{ ForScans(n int) View }); ok && len(scopes) > 1 {
		rows = own.ForScans(len(scopes))
	}
	scans := make([]rowScan, len(scopes))
	for i, scope := range scopes {
		q := q
		q.Scope = scope
		scans[i] = func(yield rowYield) error {
			return rows.Scan(q, func(k Key, row Row) error { return yield(k, row, nil) })
		}
	}
	return mergeRows(scans, Key.CompareByCluster, func(k Key, row Row, _ []byte) error { return yield(k, row) })
}
