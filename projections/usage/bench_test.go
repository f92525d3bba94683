package usage_test

import (
	"context"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// A thousand node-hours of eight GPUs whose holders change every two hours. A hundred thousand take
// a hundred times as long.
func BenchmarkUsage(b *testing.B) {
	const nodes, hours = 100, 10
	m, err := storetest.Fleet(nodes, hours, storetest.Start).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, by := range [][]usage.Dimension{nil, {usage.ByWorkspace, usage.ByGPU}, {usage.ByDeployment, usage.ByNode, usage.ByHour}} {
		name := "total"
		if len(by) > 0 {
			name = string(by[len(by)-1])
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err := m.View(context.Background(), func(v projections.View) error {
					_, err := usage.NewReport(v, storetest.Start, storetest.Start+hours*domain.Hour, usage.Filter{}, by...)
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
