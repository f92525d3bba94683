package inventory_test

import (
	"context"
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// many is a cluster in which one name serves n models of n workspaces, all undeclared.
func many(n int) *storetest.Log {
	l := storetest.NewLog()
	for i := range n {
		l.Append(domain.Envelope{Cluster: "c", Workspace: fmt.Sprintf("w%05d", i), Time: storetest.Start + 1, Event: &domain.ReplicasObserved{
			Deployment: "server", Model: fmt.Sprintf("m%05d", i), Ready: 1, Desired: 1,
		}})
	}
	return l
}

// Ten times as many take ten times as long.
func BenchmarkModels(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		m, err := many(n).Fold(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				err := m.View(context.Background(), func(v projections.View) error {
					_, err := inventory.Models(v, storetest.Start+storetest.Minute, domain.Hour, inventory.ModelFilter{})
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/deployment")
		})
	}
}
