package registry_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// Of several policies the one that keeps longest counts; a hold is in force until it is lifted; and
// only operators of the root's workspace decide either.
func TestRetention(t *testing.T) {
	const day = domain.Day
	start := storetest.Start
	l := storetest.NewLog()
	policy := func(by storetest.Operator, workspace, id, value string, from, to domain.Instant) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: workspace, Time: start + 1, Event: &domain.PolicySet{
			Policy: id, Kind: domain.PolicyRetention, Scope: "log", Value: value, EffectiveFrom: from, EffectiveTo: to,
		}})
	}
	hold := func(by storetest.Operator, workspace, id string, at domain.Instant, lifted bool) domain.Envelope {
		return by.Sign(domain.Envelope{Workspace: workspace, Time: at, Event: &domain.LegalHoldSet{Hold: id, Reason: "suit", Lifted: lifted}})
	}
	gone := []domain.Removed{{Topic: domain.TopicFleet, Partition: 1, To: 9, Records: 9}}
	removal := func(id string, at domain.Instant) domain.Envelope {
		return domain.Envelope{Time: at, Event: &domain.RemovalStarted{
			Entity: "home", Removal: id, What: domain.RetainedLog, Policy: "a", Rule: "90 days", By: "schedule", Removed: gone,
		}}
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, start),
		storetest.Bob.Register(storetest.Root, "acme", domain.RoleAdmin, nil, start),
		policy(storetest.Root, "home", "a", "90 days", start, 0),
		policy(storetest.Root, "home", "b", "100 days", start+2*day, start+4*day),
		policy(storetest.Bob, "acme", "c", "999 days", start, 0), // void: of another workspace
		hold(storetest.Root, "home", "x", start+day, false),
		hold(storetest.Root, "home", "x", start+3*day, true),
		hold(storetest.Bob, "acme", "y", start+day, false), // void
		removal("log/1", start+day), removal("log/2", start+2*day),
		domain.Envelope{Time: start + day, Event: &domain.RecordsRemoved{
			Entity: "home", Removal: "log/1", What: domain.RetainedLog, Policy: "a", Rule: "90 days", By: "schedule", Removed: gone,
		}},
	)
	storetest.FoldView(t, l, func(v projections.View) {
		a := authority(t, v)
		for _, c := range []struct {
			at       domain.Instant
			rule, by string
			holds    int
		}{
			{start - day, "", "", 0},
			{start + day, "90 days", "a", 1},
			{start + 2*day, "100 days", "b", 1},
			{start + 3*day, "100 days", "b", 0},
			{start + 4*day, "90 days", "a", 0},
		} {
			r, err := registry.NewRetention(v, a, c.at)
			if err != nil {
				t.Fatal(err)
			}
			var rule registry.RetentionRule
			if got := r.Rule(domain.RetainedLog); got != nil {
				rule = *got
			}
			if rule.Rule != c.rule || rule.Policy != c.by || r.Rule(domain.RetainedHours) != nil {
				t.Errorf("at %s: %+v", c.at, r.Rules)
			}
			if c.at >= start && len(r.Holds) != c.holds {
				t.Errorf("at %s: holds %+v", c.at, r.Holds)
			}
			open := r.Unfinished(domain.RetainedLog)
			if len(r.Removals) != 2 || r.Removals[1].Ended == nil || len(open) != 1 || open[0].Removal != "log/2" {
				t.Errorf("at %s: removals %+v", c.at, r.Removals)
			}
		}
		if void, err := a.Rejections(v); err != nil || len(void) != 2 {
			t.Errorf("void decisions: %+v, %v", void, err)
		}
	})
}

// A cluster's records are in the partitions of its key and of the keys of its shards.
func TestClusterPartitions(t *testing.T) {
	l := storetest.NewLog()
	tp, _ := l.AppendAt(domain.Envelope{Cluster: "c", Shards: 8, Time: storetest.Start, Event: &domain.NodeReturned{Node: "n"}}, storetest.Start)
	storetest.FoldView(t, l, func(v projections.View) {
		in, err := registry.ClusterPartitions(v, "c")
		if err != nil {
			t.Fatal(err)
		}
		plain := domain.TopicPartition{Topic: domain.TopicFleet, Partition: domain.PartitionOf([]byte("c"), domain.TopicFleet.Partitions())}
		if !in[tp] || !in[plain] || slices.ContainsFunc(domain.AllPartitions(), func(tp domain.TopicPartition) bool {
			return in[tp] && tp.Topic == domain.TopicBilling
		}) {
			t.Errorf("%v", in)
		}
	})
}
