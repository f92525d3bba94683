package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

func TestModels(t *testing.T) {
	at := func(minutes int) domain.Instant { return storetest.Start + domain.Instant(minutes)*storetest.Minute }
	declare := func(cluster, workspace, deployment, model string, replicas uint32, minutes int) domain.Envelope {
		return domain.Envelope{Cluster: cluster, Workspace: workspace, Time: at(minutes), Event: &domain.DeploymentChanged{
			Deployment: deployment, Model: model, Class: domain.ClassServing, Replicas: replicas,
		}}
	}
	replicas := func(cluster, deployment, model string, ready uint32, minutes int) domain.Envelope {
		return domain.Envelope{Cluster: cluster, Time: at(minutes), Event: &domain.ReplicasObserved{Deployment: deployment, Model: model, Ready: ready, Desired: ready}}
	}
	serving := func(cluster, deployment, model string, from, to int) domain.Envelope {
		return domain.Envelope{Cluster: cluster, Time: at(to), Event: &domain.ServingSampled{Deployment: deployment, Model: model, Engine: "vllm", Interval: storetest.Span(from, to)}}
	}
	holding := func(cluster, workspace, deployment string, from, to int, units ...string) domain.Envelope {
		var devices []storetest.Seen
		for i, u := range units {
			devices = append(devices, storetest.Seen{ID: storetest.GPU(cluster, "n", i), Workspace: workspace, Deployment: deployment, Unit: u, Activity: -1})
		}
		return domain.Envelope{Source: "reporter/" + cluster, Cluster: cluster, Time: at(to), Event: storetest.Sample("n", storetest.Span(from, to), devices...)}
	}
	owner := storetest.Cluster("c", "owner", "p", "eu", storetest.Start)

	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // "workspace/cluster/model/deployment status declared/ready units minute", at minute 600 with 60 to stale
	}{
		{"declared and counted", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), replicas("c", "chat", "llama", 1, 500), replicas("c", "chat", "llama", 2, 590)},
			"a/c/llama/chat running 3/2 0 590"},
		{"declared and not seen", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0)}, "a/c/llama/chat stale 3/- 0 -"},
		{"seen once, long ago", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), replicas("c", "chat", "llama", 2, 540)}, "a/c/llama/chat stale 3/- 0 540"},
		{"declared just now", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 541)}, "a/c/llama/chat pending 3/- 0 -"},
		{"declared later than asked", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 601)}, ""},
		{"scaled to zero", []domain.Envelope{declare("c", "a", "chat", "llama", 0, 0), replicas("c", "chat", "llama", 0, 599)}, "a/c/llama/chat stopped 0/0 0 -"},
		{"zero ready replicas are not a sign of life", []domain.Envelope{declare("c", "a", "chat", "llama", 1, 0), replicas("c", "chat", "llama", 0, 599)}, "a/c/llama/chat stale 1/0 0 -"},
		{"seen by holders of GPUs", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), holding("c", "a", "chat", 550, 590, "p1", "p2")},
			"a/c/llama/chat running 3/- 2 590"},
		{"the holder is another workspace", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), holding("c", "b", "chat", 550, 590, "p1")},
			"a/c/llama/chat stale 3/- 0 -; b/c//chat shadow 0/- 1 590"},
		{"undeclared, by what it serves and who holds GPUs", []domain.Envelope{owner, serving("c", "wild", "qwen", 540, 560), holding("c", "b", "wild", 560, 590, "p1")},
			"b/c/qwen/wild shadow 0/- 1 600"},
		{"undeclared, without a workspace: the cluster's owner", []domain.Envelope{owner, replicas("c", "", "qwen", 4, 590)}, "owner/c/qwen/ shadow 0/4 0 590"},
		{"another model under a declared name", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), replicas("c", "chat", "qwen", 1, 590)},
			"/c/qwen/chat shadow 0/1 0 590; a/c/llama/chat stale 3/- 0 -"},
		{"the same name in another cluster", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), replicas("d", "chat", "llama", 1, 590)},
			"/d/llama/chat shadow 0/1 0 590; a/c/llama/chat stale 3/- 0 -"},
		{"undeclared and gone", []domain.Envelope{replicas("c", "chat", "llama", 1, 100)}, ""},
		{"removed, then gone", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), replicas("c", "chat", "llama", 1, 570), {Cluster: "c", Time: at(580), Event: &domain.DeploymentRemoved{Deployment: "chat"}}}, ""},
		{"removed, and still running", []domain.Envelope{declare("c", "a", "chat", "llama", 3, 0), {Cluster: "c", Time: at(560), Event: &domain.DeploymentRemoved{Deployment: "chat"}}, replicas("c", "chat", "llama", 1, 570)},
			"/c/llama/chat shadow 0/1 0 570"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				inv, err := inventory.Models(v, at(600), domain.Hour, inventory.ModelFilter{})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range inv.Deployments {
					ready, seen := "-", "-"
					if e.ReadyReplicas != nil {
						ready = fmt.Sprint(*e.ReadyReplicas)
					}
					if e.LastSeen != 0 {
						seen = fmt.Sprint(int64((e.LastSeen - storetest.Start) / storetest.Minute))
					}
					got = append(got, fmt.Sprintf("%s/%s/%s/%s %s %d/%s %d %s", e.Workspace, e.Cluster, e.Model, e.Deployment, e.Status, e.DeclaredReplicas, ready, e.Units, seen))
				}
				if s := strings.Join(got, "; "); s != c.want {
					t.Errorf("got  %s\nwant %s", s, c.want)
				}
			})
		})
	}

	l := storetest.NewLog()
	l.Append(declare("c", "a", "chat", "llama", 3, 0), declare("d", "b", "chat", "llama", 2, 0), replicas("c", "chat", "llama", 3, 590), replicas("d", "test", "llama", 1, 590))
	storetest.FoldView(t, l, func(v projections.View) {
		inv, err := inventory.Models(v, at(600), domain.Hour, inventory.ModelFilter{})
		if err != nil {
			t.Fatal(err)
		}
		want := "[{Model:llama Clusters:[c d] Workspaces:[ a b] Deployments:3 Shadow:1 Stale:1 DeclaredReplicas:5 ReadyReplicas:4}]"
		if got := fmt.Sprintf("%+v", inv.Models); got != want || inv.StaleAfter != "1h0m0s" {
			t.Errorf("totals, stale after %s:\n%s\nwant\n%s", inv.StaleAfter, got, want)
		}
		one, err := inventory.Models(v, at(600), domain.Hour, inventory.ModelFilter{Workspace: "b", Cluster: "d"})
		if err != nil || len(one.Deployments) != 1 || one.Deployments[0].Workspace != "b" {
			t.Errorf("of b in d: %+v, %v", one, err)
		}
		for search, want := range map[string]int{"": 3, "LLAMA": 3, "hat": 2, "tes": 1, "b": 1, "B": 1, "none": 0, "l*": 0} {
			some, err := inventory.Models(v, at(600), domain.Hour, inventory.ModelFilter{Search: search})
			if err != nil || len(some.Deployments) != want {
				t.Errorf("with %q: %+v, %v", search, some, err)
			}
		}
		if _, err := inventory.Models(v, at(600), 0, inventory.ModelFilter{}); err == nil {
			t.Error("stale after no time was accepted")
		}
	})
}
