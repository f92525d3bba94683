package app

import (
	"slices"
	"testing"

	"quartermaster/adapters/snapshotfile"
	"quartermaster/domain"
	"quartermaster/projections"
)

// Snapshots whose positions do not cover one another are checked in passes of
// their own.
func TestPasses(t *testing.T) {
	a, b := domain.TopicPartition{Topic: domain.TopicFleet}, domain.TopicPartition{Topic: domain.TopicFleet, Partition: 1}
	check := func(name string, at domain.Position) *SnapshotCheck {
		return &SnapshotCheck{File: name, Result: snapshotUnchecked, info: snapshotfile.Info{SnapshotInfo: projections.SnapshotInfo{Position: at}}}
	}
	done := check("done", domain.Position{})
	done.Result = snapshotDamaged
	passes := unchecked([]*SnapshotCheck{
		check("both", domain.Position{a: 2, b: 2}), check("b", domain.Position{b: 3}), check("a", domain.Position{a: 2}), done,
		check("none", domain.Position{}), check("a again", domain.Position{a: 2}),
	})
	got := [][]string{}
	for _, pass := range passes {
		names := []string{}
		for _, c := range pass {
			names = append(names, c.File)
		}
		got = append(got, names)
	}
	if len(got) != 2 || !slices.Equal(got[0], []string{"none", "a", "a again", "both"}) || !slices.Equal(got[1], []string{"b"}) {
		t.Errorf("passes are %v", got)
	}
}
