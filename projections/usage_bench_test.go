package projections_test

import (
	"context"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// A thousand node-hours of eight GPUs whose holders change every two hours; the
// time of a hundred thousand is a hundred times this.
func BenchmarkUsage(b *testing.B) {
	const nodes, hours = 100, 10
	m, err := storetest.Fleet(nodes, hours, t0).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range [][]projections.Dimension{nil, {projections.ByWorkspace, projections.ByGPU}, {projections.ByDeployment, projections.ByNode, projections.ByHour}} {
		name := "total"
		if len(by) > 0 {
			name = string(by[len(by)-1])
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err := m.View(context.Background(), func(v projections.View) error {
					_, err := projections.Usage(v, t0, t0+hours*domain.Hour, projections.UsageFilter{}, by...)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(nodes*hours), "ns/node-hour")
		})
	}
}
