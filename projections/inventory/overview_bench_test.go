package inventory_test

import (
	"context"
	"testing"

	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

// The overview of a fleet of 100,000 GPUs in the middle of a day.
func BenchmarkOverview(b *testing.B) {
	m, err := storetest.Fleet(12_500, 2, storetest.Start).Fold(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		err := m.View(context.Background(), func(v projections.View) error {
			o, err := inventory.NewOverview(v)
			if err == nil && o.GPUModels[0].GPUs != 100_000 {
				b.Fatalf("%+v", o)
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
