package registry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// trail returns the sentences of the trail.
func trail(t *testing.T, l *storetest.Log, f registry.TrailFilter) (says []string) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		all, err := a.Trail(v, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			says = append(says, e.Says)
		}
	})
	return says
}

// lifecycle is a log in which a recommendation was approved, carried out and recorded, beside other decisions.
func lifecycle() *storetest.Log {
	const day, start = domain.Day, storetest.Start
	l := storetest.NewLog()
	in := func(by storetest.Operator, workspace, cluster string, at domain.Instant, ev domain.Event) {
		l.Append(by.Sign(domain.Envelope{Workspace: workspace, Cluster: cluster, Time: at, Event: ev}))
	}
	rec := func(cluster string, at domain.Instant, ev domain.Event) {
		l.Append(domain.Envelope{Workspace: "acme", Cluster: cluster, Time: at, Event: ev})
	}
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("100"), start))
	l.Append(storetest.Ann.Register(storetest.Root, "acme", domain.RolePlanner, storetest.USD("10"), start))
	in(storetest.Root, "acme", "own", start, &domain.ClusterRegistered{Provider: "p", ProviderClass: domain.Neocloud, Region: "eu"})
	made := func(id, cost string) *domain.RecommendationApproved {
		proposed := &domain.RecommendationMade{
			Recommendation: id, Kind: "rightsize", Summary: "move chat", Cost: *storetest.USD(cost), Requester: "advisor",
		}
		rec("own", start+day, proposed)
		return storetest.Approve(proposed)
	}
	approved := []domain.Event{made("r1", "5"), made("r2", "50")}
	made("r3", "5")
	in(storetest.Ann, "acme", "", start+2*day, approved[0])
	in(storetest.Ann, "acme", "", start+2*day, approved[1])
	in(storetest.Ann, "acme", "", start+3*day, &domain.RecommendationRejected{Recommendation: "r3", Note: "too risky"})
	rec("", start+2*day+14*domain.Hour+32*60*domain.Second, &domain.RecommendationActuated{
		Recommendation: "r1", Reference: "change-7", Cluster: "own", Actor: domain.KeyActor("k1"),
	})
	rec("", start+4*day, &domain.OutcomeRecorded{Recommendation: "r1", Outcome: "succeeded"})
	in(storetest.Root, "acme", "", start+5*day, &domain.AccessGranted{Grant: "g", Principal: "user:corp/1", Role: domain.RoleViewer})
	in(storetest.Root, "acme", "", start+6*day, &domain.AccessRevoked{Grant: "g", Reason: "left"})
	in(storetest.Root, "", "own", start+6*day, &domain.ClusterKeyIssued{KeyID: "k1", MAC: make([]byte, 32), Scopes: []string{domain.KeyReceive}})
	in(storetest.Root, "", "own", start+7*day, &domain.ClusterKeyRotated{KeyID: "k2", MAC: make([]byte, 32), PreviousKeyID: "k1", PreviousValidUntil: start + 8*day})
	in(storetest.Root, "", "own", start+7*day, &domain.NodeDrained{Node: "n", Reason: "fan"})
	rec("own", start+8*day, &domain.IncidentOpened{
		Incident: "i", Rule: "idle", Version: 1, Subject: "cluster/own", Severity: domain.SeverityWarning, At: start + 8*day,
		Position: "0", Method: "advice/1", Summary: "SM activity 31%", Document: []byte("{}"),
	})
	in(storetest.Ann, "acme", "own", start+9*day, &domain.IncidentAcknowledged{Incident: "i", Note: "on it"})
	in(storetest.Ann, "acme", "", start+9*day, &domain.IncidentSilenced{Silence: "s", Rule: "idle", Subject: "cluster/own", Until: start + 30*day, Reason: "migration"})
	in(storetest.Ann, "acme", "", start+10*day, &domain.IncidentSilenced{Silence: "s", Incident: "i", Until: start + 11*day, Reason: "done"})
	rec("own", start+11*day, &domain.IncidentResolved{Incident: "i", At: start + 11*day, Position: "0", Method: "advice/1"})
	l.Append(domain.Envelope{Subject: "mallory", Time: start + 8*day, Event: &domain.AccessDenied{
		Entity: "main", Principal: "mallory", Action: "push events", Target: "own", Reason: "no such\nkey",
	}})
	return l
}

func TestTrail(t *testing.T) {
	l := lifecycle()
	at := func(days, minutes int) string {
		return (storetest.Start + domain.Instant(days)*domain.Day + domain.Instant(minutes)*60*domain.Second).String()
	}
	approved := "operator ann in workspace acme approved rightsize recommendation r1 for cluster own, actuated at " +
		at(2, 14*60+32) + " by key k1, outcome success"
	for _, c := range []struct {
		name string
		f    registry.TrailFilter
		want []string
	}{
		{"recommendation", registry.TrailFilter{Recommendation: "r1"}, []string{
			"requester advisor in workspace acme asked for rightsize recommendation r1 for cluster own (move chat), approved by ann at " + at(2, 0),
			approved,
			"key k1 in workspace acme carried out rightsize recommendation r1 for cluster own as change-7, actuated at " + at(2, 14*60+32) + " by key k1",
			"a program in workspace acme recorded what came of rightsize recommendation r1 for cluster own, outcome succeeded",
		}},
		{"operator and time", registry.TrailFilter{Operator: "ann", From: storetest.Start + domain.Day, To: storetest.Start + 4*domain.Day}, []string{
			approved,
			`operator ann in workspace acme approved rightsize recommendation r2 for cluster own, took no effect: operator "ann" may commit 10 USD, this commits 50 USD`,
			"operator ann in workspace acme rejected rightsize recommendation r3 for cluster own (too risky), not actuated",
		}},
		{"cluster", registry.TrailFilter{Cluster: "own", From: storetest.Start + 5*domain.Day, To: storetest.Start + 9*domain.Day}, []string{
			"operator root in workspace acme issued cluster key k1 to receive in cluster own, in effect from " + at(6, 0) + " until " + at(8, 0) + ": replaced by key k2, by root",
			"operator root in workspace acme replaced cluster key k1 by k2 in cluster own, in effect from " + at(7, 0),
			"operator root in workspace acme drained node n (fan) in cluster own, in effect from " + at(7, 0),
			`mallory tried "push events" (own), refused: no such key`,
		}},
		{"workspace", registry.TrailFilter{Workspace: "acme", Operator: "root", From: storetest.Start + 5*domain.Day, To: storetest.Start + 6*domain.Day}, []string{
			"operator root in workspace acme granted role viewer to user:corp/1, in effect from " + at(5, 0) + " until " + at(6, 0) + ": revoked by root",
		}},
		{"incidents", registry.TrailFilter{Operator: "ann", From: storetest.Start + 9*domain.Day}, []string{
			"operator ann in workspace acme acknowledged incident i (on it) in cluster own, resolved at " + at(11, 0),
			"operator ann in workspace acme silenced rule idle for cluster/own until " + at(30, 0) + " (migration), in effect from " + at(9, 0) +
				" until " + at(10, 0) + ": superseded by ann",
			"operator ann in workspace acme silenced incident i until " + at(11, 0) + " (done), in effect from " + at(10, 0),
		}},
		{"nothing", registry.TrailFilter{Workspace: "other"}, nil},
	} {
		if got := trail(t, l, c.f); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestTrailNamesRecords holds that every signed event and every refused attempt of a log is in its trail once, under its
// own partition and offset, and so is what an outcome follows from.
func TestTrailNamesRecords(t *testing.T) {
	estate := storetest.NewLog()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1)).IntN
		estate.Append(storetest.Estate(r, r)...)
	}
	for name, l := range map[string]*storetest.Log{"estate": estate, "lifecycle": lifecycle()} {
		type place struct {
			typ    domain.Type
			signed string
		}
		want, all := map[string]place{}, map[string]place{}
		for _, tp := range domain.AllPartitions() {
			for _, rec := range l.Records(tp) {
				env := l.Event(&rec)
				p := place{typ: env.Event.Type()}
				if env.Signature != nil {
					p.signed = env.Signature.Operator
				}
				at := fmt.Sprintf("%s@%d", tp, rec.Offset)
				if all[at] = p; p.signed != "" || p.typ == domain.TypeAccessDenied {
					want[at] = p
				}
			}
		}
		storetest.FoldView(t, l, func(v projections.View) {
			counted := storetest.Count(v)
			a, err := registry.NewAuthority(counted)
			if err != nil {
				t.Fatal(err)
			}
			entries, err := a.Trail(counted, registry.TrailFilter{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range entries {
				e := &entries[i]
				at := fmt.Sprintf("%s@%d", e.Partition, e.Offset)
				if of, ok := want[at]; !ok || of.typ != e.Type || of.signed != "" && of.signed != e.Operator {
					t.Errorf("%s: %s is at %s, where the log has %+v", name, e.Says, at, all[at])
				}
				delete(want, at)
				for _, f := range e.Follows {
					if at := fmt.Sprintf("%s@%d", f.Partition, f.Offset); f.Partition != "" && all[at].typ != f.Type {
						t.Errorf("%s: %s follows from %+v, where the log has %+v", name, e.Says, f, all[at])
					}
				}
			}
			for at, p := range want {
				t.Errorf("%s: %s at %s is not in the trail", name, p.typ, at)
			}
			for table, n := range counted.Rows {
				if grows := table.Topic() == domain.TopicTelemetry || table == projections.TableFaults; grows && table != projections.TableUsageCorrections {
					t.Errorf("%s: %d rows of %s were read", name, n, table)
				}
			}
		})
	}
}
