package domain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A cluster may have shards, so that its telemetry and its hardware are in several partitions. An
// event about a node is in the shard of the node: the hash of its name modulo the number of shards,
// K. The key of its record is "c/3-of-8" for shard 3 of the 8 of cluster c, so that a record alone
// shows its partition. An event about no single node, such as a job's, has the plain name of the
// cluster as its key, whatever K is, and so has every event of a cluster without shards (K is 1).
//
// K may change. Producers begin a new incarnation then, because their records go to other
// partitions. Records under the key of another K stay valid for ever.

// MaxShards is the maximum number of shards of a cluster.
const MaxShards = 1024

// ErrMisplaced is returned for a record whose key does not belong to its event. It is quarantined.
var ErrMisplaced = errors.New("record is misplaced")

// ShardKey returns the key of a shard of a cluster, counted from 0, among of. With one shard it is
// the name of the cluster.
func ShardKey(cluster string, shard, of int) string {
	if of <= 1 {
		return cluster
	}
	b := make([]byte, 0, len(cluster)+len("/1023-of-1024"))
	b = append(append(b, cluster...), '/')
	b = strconv.AppendInt(b, int64(shard), 10)
	b = append(b, "-of-"...)
	return string(strconv.AppendInt(b, int64(of), 10))
}

// NodeKey returns the key of events about a node in a cluster with of shards.
func NodeKey(cluster, node string, of int) string { return ShardKey(cluster, ShardOf(node, of), of) }

// ShardOf returns the shard of a node among n: its hash as in [PartitionOf], modulo n.
func ShardOf(node string, n int) int {
	if n <= 1 {
		return 0
	}
	return int(murmur2(node)&0x7fffffff) % n
}

// ParseShardKey returns the parts of a key: shard 0 of 0 for the plain name of a cluster. It
// refuses a key in the form of [ShardKey] that ShardKey would not return.
func ParseShardKey(key string) (cluster string, shard, of int, err error) {
	cluster, shard, of, ok := splitShardKey(key)
	if !ok {
		return key, 0, 0, nil
	}
	if of < 2 || of > MaxShards || shard < 0 || shard >= of || cluster == "" || ShardKey(cluster, shard, of) != key {
		return "", 0, 0, fmt.Errorf("key %.80q: %w: a shard is N-of-K with N from 0 to K-1 and K from 2 to %d",
			key, ErrMisplaced, MaxShards)
	}
	return cluster, shard, of, nil
}

// ClusterOf returns the cluster of a key, which is the key itself unless it is that of a shard.
func ClusterOf(key string) string {
	if cluster, _, _, err := ParseShardKey(key); err == nil {
		return cluster
	}
	return key
}

// splitShardKey splits a text of the form cluster/N-of-K. N or K is -1 if it is too large. ok is
// false for any other text.
func splitShardKey(key string) (cluster string, shard, of int, ok bool) {
	at := strings.LastIndexByte(key, '/')
	if at < 0 {
		return "", 0, 0, false
	}
	n, k, ok := strings.Cut(key[at+1:], "-of-")
	if !ok || !digits(n) || !digits(k) {
		return "", 0, 0, false
	}
	number := func(s string) int {
		if i, err := strconv.Atoi(s); err == nil {
			return i
		}
		return -1
	}
	return key[:at], number(n), number(k), true
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// NodeOf returns the node that an event of [TopicTelemetry] or [TopicHardware] is about. It returns
// false for an event about no single node, and for events of other topics.
func NodeOf(ev Event) (node string, ok bool) {
	switch ev := ev.(type) {
	case *NodeSampled:
		return ev.Node, true
	case *GPUFaultObserved:
		return ev.Node, true
	case *NodeCordoned:
		return ev.Node, true
	case *NodeDrained:
		return ev.Node, true
	case *NodeReturned:
		return ev.Node, true
	case *CollectorSilent:
		return ev.Node, true
	case *SpoolDropped:
		return ev.Node, true
	}
	return "", false
}

// clusterKey returns the key of an event of [TopicTelemetry] or [TopicHardware], "" without a
// cluster.
func (e *Envelope) clusterKey() string {
	if e.Shards <= 1 || e.Cluster == "" {
		return e.Cluster
	}
	if node, ok := NodeOf(e.Event); ok {
		return NodeKey(e.Cluster, node, e.Shards)
	}
	return e.Cluster
}
