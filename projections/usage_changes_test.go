package projections_test

import (
	"bytes"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// A day's change is that of the last record that changed it. After a snapshot, days without a later change have its end.
func TestUsageChanges(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "acme", "example", "eu-1", storetest.Start))
	for _, minutes := range []int{0, 60, 120, 24 * 60} {
		l.Append(storetest.Sampled("a", minutes, minutes+10, storetest.Held("w")))
	}
	changes := func(m *projections.Memory) (all *projections.UsageChanges) {
		storetest.Look(t, m, func(v projections.View) (err error) {
			all, err = projections.UsageChangesOf(v, projections.HourOf(storetest.Start))
			return err
		})
		return all
	}
	first := projections.HourOf(storetest.Start)
	partition := domain.PartitionOf([]byte("c"), domain.TopicTelemetry.Partitions())
	m := storetest.Fold(t, l)
	got := changes(m)
	want := []projections.UsageChange{{partition, "c", first, 2}, {partition, "c", first + 24, 3}}
	if !slices.Equal(got.Days, want) || got.Floors[partition] != -1 {
		t.Fatalf("%+v, want %+v", got, want)
	}
	l.AppendAt(storetest.Sampled("b", 180, 190, storetest.Held("w")), storetest.Start+domain.Day+domain.Hour)
	m = storetest.Fold(t, l)
	want[0].Offset = 4
	if got := changes(m); !slices.Equal(got.Days, want) {
		t.Errorf("after a late sample %+v, want %+v", got.Days, want)
	}
	var b bytes.Buffer
	storetest.Look(t, m, func(v projections.View) error {
		_, err := projections.WriteSnapshot(&b, v, "log")
		return err
	})
	again := projections.NewMemory(domain.TopicSpecs())
	if _, err := again.ReadSnapshot(bytes.NewReader(b.Bytes()), int64(b.Len()), "log"); err != nil {
		t.Fatal(err)
	}
	if got := changes(again); len(got.Days) != 0 || got.Floors[partition] != 4 {
		t.Errorf("after a snapshot %+v", got)
	}
}
