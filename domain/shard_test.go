package domain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

// A key says its cluster, shard and number of shards, and no other text does.
func TestShardKeysAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster := rapid.StringMatching(`[a-z/0-9-]{1,12}`).Draw(t, "cluster")
		of := rapid.IntRange(1, domain.MaxShards).Draw(t, "of")
		shard := rapid.IntRange(0, of-1).Draw(t, "shard")
		key := domain.ShardKey(cluster, shard, of)
		c, s, k, err := domain.ParseShardKey(key)
		if of == 1 {
			if key != cluster {
				t.Fatalf("the key of a cluster without shards is %q, want %q", key, cluster)
			}
			return
		}
		if err != nil || c != cluster || s != shard || k != of {
			t.Fatalf("%q is read as shard %d of %d of %q, error %v", key, s, k, c, err)
		}
	})
}

func TestShardKeysOfAnotherFormAreRefused(t *testing.T) {
	for _, key := range []string{
		"c/8-of-8", "c/0-of-1", "c/0-of-0", "c/00-of-8", "c/0-of-08", "c/0-of-1025", "/0-of-8",
		"c/99999999999999999999-of-8", "c/1-of-99999999999999999999",
	} {
		if c, s, k, err := domain.ParseShardKey(key); !errors.Is(err, domain.ErrMisplaced) {
			t.Errorf("%q is read as shard %d of %d of %q, error %v", key, s, k, c, err)
		}
	}
	for _, key := range []string{"c", "c/", "c/x", "c/1-of-", "c/-of-8", "c/-1-of-8", "c/1-of-8/x", "1-of-8", "c/+1-of-8", ""} {
		if c, s, k, err := domain.ParseShardKey(key); err != nil || c != key || s != 0 || k != 0 {
			t.Errorf("%q is read as shard %d of %d of %q, error %v; want a plain name", key, s, k, c, err)
		}
	}
}

func FuzzParseShardKey(f *testing.F) {
	for _, s := range []string{"c", "c/3-of-8", "a/b/1023-of-1024", "c/8-of-8", "/", "\x00/0-of-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		cluster, shard, of, err := domain.ParseShardKey(key)
		if err == nil && domain.ShardKey(cluster, shard, of) != key {
			t.Errorf("%q is read as shard %d of %d of %q, whose key is %q", key, shard, of, cluster, domain.ShardKey(cluster, shard, of))
		}
	})
}

// Every program must put a node in the same shard for ever.
func TestShardsOfNodes(t *testing.T) {
	for _, x := range []struct {
		node     string
		of, want int
	}{{"node-1", 8, 2}, {"node-2", 8, 1}, {"gpu-0007", 64, 36}, {"", 8, 1}, {"node-1", 1, 0}} {
		if got := domain.ShardOf(x.node, x.of); got != x.want {
			t.Errorf("%q is in shard %d of %d, want %d", x.node, got, x.of, x.want)
		}
		if of := x.of; of > 1 && domain.ShardOf(x.node, of) != domain.PartitionOf([]byte(x.node), of) {
			t.Errorf("the hash of %q is not that of partitions", x.node)
		}
	}
}

// Shards must be of about one size: the busiest bounds how fast a cluster is folded.
func TestShardsAreEven(t *testing.T) {
	const nodes, of = 100_000, 64
	var n [of]int
	for i := range nodes {
		n[domain.ShardOf(fmt.Sprintf("node-%05d", i), of)]++
	}
	for shard, n := range n {
		if n < nodes/of*8/10 || n > nodes/of*12/10 {
			t.Errorf("shard %d of %d has %d of %d nodes", shard, of, n, nodes)
		}
	}
}

// Only an event about a single node goes to a shard.
func TestKeysOfShards(t *testing.T) {
	for _, x := range []struct {
		event domain.Event
		want  string
	}{
		{&domain.NodeSampled{Node: "node-1"}, "c/2-of-8"},
		{&domain.CollectorSilent{Node: "node-1"}, "c/2-of-8"},
		{&domain.GPUFaultObserved{Node: "gpu-0007"}, domain.NodeKey("c", "gpu-0007", 8)},
		{&domain.ServingSampled{Node: "node-1"}, "c"},
		{&domain.JobQueued{Job: "j"}, "c"},
		{&domain.UsageCorrected{Node: "node-1"}, "c"},
		{&domain.NodeRegistered{Node: "node-1"}, "c"},
		{&domain.ReplicasObserved{Deployment: "d"}, "c"},
	} {
		env := domain.Envelope{Cluster: "c", Shards: 8, Event: x.event}
		if got, err := env.Key(); err != nil || got != x.want {
			t.Errorf("the key of %s is %q, error %v; want %q", x.event.Type(), got, err, x.want)
		}
	}
	env := domain.Envelope{Shards: 8, Event: &domain.NodeSampled{Node: "node-1"}}
	if _, err := env.Key(); !errors.Is(err, domain.ErrIncomplete) {
		t.Errorf("an event without a cluster: error %v", err)
	}
}

func TestClustersAreNotNamedLikeShards(t *testing.T) {
	env := domain.Envelope{
		Source: "s", Incarnation: 1, Sequence: 1, Time: 1, Cluster: "lab/3-of-8", Workspace: "w",
		Event: &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Owned, Region: "r"},
	}
	for _, name := range []string{"lab/3-of-8", "lab/9-of-8", "/0-of-2"} {
		env.Cluster = name
		if err := domain.Validate(&env); err == nil || !strings.Contains(err.Error(), "shard's key") {
			t.Errorf("a cluster named %q: error %v", name, err)
		}
	}
	env.Cluster = "lab/of-8"
	if err := domain.Validate(&env); err != nil {
		t.Error(err)
	}
}
