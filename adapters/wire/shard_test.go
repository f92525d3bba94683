package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
)

// A record says by its key which shard it is in, and is read back as it was written.
func TestShardsAreReadFromTheKey(t *testing.T) {
	sample := node(0)
	cordon := *sample
	cordon.Event = &domain.NodeCordoned{Node: "node-7", Reason: "test"}
	job := *sample
	job.Event = &domain.JobQueued{Job: "j", Deployment: "d"}
	var d Decoder
	for _, of := range []int{0, 1, 8, domain.MaxShards} {
		for _, env := range []domain.Envelope{*sample, cordon, job} {
			env.Shards = of
			rec, err := Encode(&env)
			if err != nil {
				t.Fatal(err)
			}
			name, byNode := domain.NodeOf(env.Event)
			want := env.Cluster
			if byNode {
				want = domain.NodeKey(env.Cluster, name, of)
			}
			var got domain.Envelope
			if err := d.Decode(&rec, &got); err != nil {
				t.Fatalf("%s in one of %d shards: %v", env.Event.Type(), of, err)
			}
			if string(rec.Key) != want || got.Cluster != env.Cluster || byNode && max(1, got.Shards) != max(1, of) {
				t.Errorf("%s in one of %d shards: key %q, want %q; read as cluster %q, %d shards",
					env.Event.Type(), of, rec.Key, want, got.Cluster, got.Shards)
			}
		}
	}
}

// A record under a key that its event does not have is refused, and the text says why.
func TestForgedShardsAreRefused(t *testing.T) {
	env := *node(0)
	env.Shards = 8
	sample, err := Encode(&env)
	if err != nil {
		t.Fatal(err)
	}
	name := env.Event.(*domain.NodeSampled).Node
	shard := domain.ShardOf(name, 8)
	env.Event = &domain.NodeCordoned{Node: name, Reason: "test"}
	cordon, err := Encode(&env)
	if err != nil {
		t.Fatal(err)
	}
	env.Event = &domain.JobQueued{Job: "j", Deployment: "d"}
	job, err := Encode(&env)
	if err != nil {
		t.Fatal(err)
	}
	key := func(shard, of int) string { return fmt.Sprintf("%s/%d-of-%d", env.Cluster, shard, of) }
	for _, x := range []struct {
		name, key, want string
		rec             domain.Record
	}{
		{"sample of another shard", key((shard+1)%8, 8), "another shard", sample},
		{"shard beyond the number of shards", key(8, 8), "from 0 to K-1", sample},
		{"shard of another number of shards", key((domain.ShardOf(name, 4)+1)%4, 4), "another shard", sample},
		{"one shard", key(0, 1), "K from 2", sample},
		{"too many shards", key(0, domain.MaxShards+1), "K from 2", sample},
		{"leading zero", env.Cluster + "/0" + fmt.Sprint(shard) + "-of-8", "from 0 to K-1", sample},
		{"cordon of another shard", key((shard+1)%8, 8), "another shard", cordon},
		{"a job in a shard", key(0, 8), "another shard", job},
	} {
		var d Decoder
		for _, warm := range []bool{false, true} { // the decoder remembers keys
			rec := x.rec
			rec.Key = []byte(x.key)
			rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
			var got domain.Envelope
			if err := d.Decode(&rec, &got); !errors.Is(err, domain.ErrMisplaced) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s, decoder warm %v: error %v, want one with %q", x.name, warm, err, x.want)
			}
			if x.rec.Topic == domain.TopicTelemetry && !warm {
				if err := d.Decode(&sample, &got); err != nil {
					t.Errorf("%s: the next record: %v", x.name, err)
				}
			}
		}
	}
	wrong := sample
	wrong.Partition++
	if err := new(Decoder).Decode(&wrong, new(domain.Envelope)); err == nil || !strings.Contains(err.Error(), "belongs to partition") {
		t.Errorf("another partition: error %v", err)
	}
}
