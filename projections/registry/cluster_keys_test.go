package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// The keys of a cluster say which numbers of shards it had, the present one last. Void declarations
// do not count.
func TestClusterKeysShards(t *testing.T) {
	declared := func(minutes int, shards uint32) domain.Envelope {
		env := storetest.Cluster("c", "acme", "p", "r", storetest.Start+domain.Instant(minutes)*storetest.Minute)
		env.Event.(*domain.ClusterRegistered).Shards = shards
		return env
	}
	void := storetest.NewOperator("mallory", 2).Sign(declared(4, 16))
	l := storetest.NewLog()
	l.Append(declared(0, 0), declared(1, 8), declared(2, 4), declared(3, 8), void)
	l.Append(storetest.Root.Sign(domain.Envelope{Cluster: "c", Time: storetest.Start + domain.Hour, Event: &domain.ClusterKeyIssued{KeyID: "k1", MAC: make([]byte, 32)}}))
	storetest.FoldView(t, l, func(v projections.View) {
		keys, err := registry.ClusterKeys(v)
		if err != nil || len(keys) != 1 || fmt.Sprint(keys[0].Shards) != "[1 4 8]" {
			t.Errorf("%+v, %v", keys, err)
		}
	})
}

func TestClusterKeys(t *testing.T) {
	at := func(minutes int) domain.Instant { return storetest.Start + domain.Instant(minutes)*storetest.Minute }
	event := func(cluster string, minutes int, ev domain.Event) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Cluster: cluster, Time: at(minutes), Event: ev})
	}
	mac := func(b byte) []byte { return []byte(strings.Repeat(string(rune('a'+b)), 32)) }
	issued := func(cluster, key string, minutes int, expires domain.Instant) domain.Envelope {
		return event(cluster, minutes, &domain.ClusterKeyIssued{KeyID: key, MAC: mac(0), Expires: expires})
	}
	rotated := func(key, previous string, minutes, until int) domain.Envelope {
		return event("c", minutes, &domain.ClusterKeyRotated{KeyID: key, MAC: mac(1), PreviousKeyID: previous, PreviousValidUntil: at(until)})
	}
	revoked := func(cluster, key string, minutes int) domain.Envelope {
		return event(cluster, minutes, &domain.ClusterKeyRevoked{KeyID: key, Reason: "laptop lost"})
	}
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // "cluster/key until why live", at minute 60
	}{
		{"none", nil, ""},
		{"issued", []domain.Envelope{issued("c", "k1", 0, 0)}, "c/k1 -  true"},
		{"dated a little ahead", []domain.Envelope{issued("c", "k1", 61, 0)}, "c/k1 -  true"},
		{"expired", []domain.Envelope{issued("c", "k1", 0, at(60))}, "c/k1 60 expires false"},
		{"not yet expired", []domain.Envelope{issued("c", "k1", 0, at(61))}, "c/k1 61 expires true"},
		{"both are valid during a rotation", []domain.Envelope{issued("c", "k1", 0, 0), rotated("k2", "k1", 50, 70)}, "c/k1 70 replaced by k2 true; c/k2 -  true"},
		{"only the new one after a rotation", []domain.Envelope{issued("c", "k1", 0, 0), rotated("k2", "k1", 10, 50)}, "c/k1 50 replaced by k2 false; c/k2 -  true"},
		{"expiry before the end of a rotation", []domain.Envelope{issued("c", "k1", 0, at(40)), rotated("k2", "k1", 10, 70)}, "c/k1 40 expires false; c/k2 -  true"},
		{"revoked", []domain.Envelope{issued("c", "k1", 0, 0), revoked("c", "k1", 59)}, "c/k1 59 revoked: laptop lost false"},
		{"revoked by a clock that is ahead", []domain.Envelope{issued("c", "k1", 0, 0), revoked("c", "k1", 65)}, "c/k1 65 revoked: laptop lost false"},
		{"revoked and issued again under its id", []domain.Envelope{issued("c", "k1", 0, 0), revoked("c", "k1", 5), issued("c", "k1", 10, 0)}, "c/k1 5 revoked: laptop lost false"},
		{"revoked in another cluster", []domain.Envelope{issued("c", "k1", 0, 0), revoked("d", "k1", 5)}, "c/k1 -  true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(storetest.Cluster("c", "acme", "p", "r", storetest.Start-storetest.Minute), storetest.Cluster("d", "acme", "p", "r", storetest.Start-storetest.Minute))
			l.Append(c.log...)
			var got []string
			storetest.FoldView(t, l, func(v projections.View) {
				keys, err := registry.ClusterKeys(v)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range keys {
					until := "-"
					if k.Until != 0 {
						until = fmt.Sprint(int64(k.Until-storetest.Start) / int64(storetest.Minute))
					}
					got = append(got, fmt.Sprintf("%s/%s %s %s %t", k.Cluster, k.KeyID, until, k.Why, k.Live(at(60))))
				}
			})
			if s := strings.Join(got, "; "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}
