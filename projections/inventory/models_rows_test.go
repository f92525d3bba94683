package inventory_test

import (
	"fmt"
	"reflect"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// running is a log of some days in which a deployment holds a GPU, is counted and serves.
func running(days int, last domain.Instant) *storetest.Log {
	l := storetest.NewLog()
	l.Batch = 1000
	first := last - domain.Instant(days)*domain.Day
	l.Append(domain.Envelope{Cluster: "c", Workspace: "a", Time: last - 400*domain.Day, Event: &domain.DeploymentChanged{
		Deployment: "chat", Model: "llama", Class: domain.ClassServing, Replicas: 1,
	}})
	for at := first; at < last; at += 3 * domain.Hour {
		i := domain.Interval{From: at, To: at + domain.Hour}
		l.Append(
			domain.Envelope{Source: "reporter/c", Cluster: "c", Time: i.To, Event: storetest.Sample("n", i, storetest.Seen{
				ID: storetest.GPU("c", "n", 0), Workspace: "a", Deployment: "chat", Unit: "p1",
			})},
			domain.Envelope{Cluster: "c", Time: i.To, Event: &domain.ReplicasObserved{Deployment: "chat", Model: "llama", Ready: 1}},
			domain.Envelope{Cluster: "c", Time: i.To, Event: &domain.ServingSampled{
				Deployment: "chat", Model: "llama", Engine: "vllm", Interval: i,
			}})
	}
	return l
}

// An answer about models reads as many rows after 300 days as after 20, and says the same.
func TestModelsReadNoHistory(t *testing.T) {
	last := storetest.Start + 300*domain.Day
	for _, asked := range []domain.Instant{last, last + 2*domain.Day, last + 20*domain.Day} {
		var read []map[projections.Table]int
		var said []*inventory.ModelInventory
		for _, days := range []int{20, 300} {
			storetest.FoldView(t, running(days, last), func(v projections.View) {
				c := storetest.Count(v)
				inv, err := inventory.Models(c, asked, 6*domain.Hour, inventory.ModelFilter{})
				if err != nil {
					t.Fatal(err)
				}
				inv.Position = ""
				read, said = append(read, c.Rows), append(said, inv)
			})
		}
		if !reflect.DeepEqual(read[0], read[1]) {
			t.Errorf("at %s it reads %v after 20 days and %v after 300", asked, read[0], read[1])
		}
		if !reflect.DeepEqual(said[0], said[1]) {
			t.Errorf("at %s it says %+v after 20 days and %+v after 300", asked, said[0], said[1])
		}
		e := said[1].Deployments[0]
		got, want := fmt.Sprint(e.Status, e.LastSeen, len(e.SeenBy)), fmt.Sprint(inventory.ModelRunning, last-2*domain.Hour, 3)
		switch {
		case asked > last+7*domain.Day:
			want = fmt.Sprint(inventory.ModelStale, domain.Instant(0), 0)
		case asked > last:
			want = fmt.Sprint(inventory.ModelStale, last-2*domain.Hour, 3)
		}
		if got != want {
			t.Errorf("at %s: %s, want %s", asked, got, want)
		}
	}
}
