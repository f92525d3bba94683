package packing_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/packing"
)

// At every level of a curve the bound is at most the nodes, both rise with demand, and packing the
// level by itself does not contradict it.
func TestCurve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds, mix := drawNodes(t, 3, true), drawLoads(t, 5, 6)
		for i := range mix {
			mix[i].CPUMilli += int64(i) // no two are equal, or they would be scaled together
		}
		priced := rapid.Bool().Draw(t, "priced")
		for i := range kinds {
			kinds[i].Count = packing.Unlimited
			if priced {
				kinds[i].Cost = rapid.Int64Range(1, 9).Draw(t, "cost")
			}
		}
		levels := rapid.SliceOfN(rapid.Int64Range(0, 4000), 1, 6).Draw(t, "levels")
		opts := packing.Options{}
		if rapid.Bool().Draw(t, "with columns") {
			opts.LP = simplex{}
		}
		points, err := packing.Curve(t.Context(), kinds, mix, levels, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range points {
			if !slices.Contains(levels, c.Level) || i > 0 && (points[i-1].Level >= c.Level || points[i-1].LowerBound > c.LowerBound || points[i-1].CostLowerBound > c.CostLowerBound) {
				t.Fatalf("%+v", points)
			}
			if i > 0 && c.Unplaced == 0 && (points[i-1].Cost > c.Cost || !priced && points[i-1].Nodes > c.Nodes || points[i-1].Unplaced > 0) {
				t.Fatalf("%+v", points)
			}
			scaled := slices.Clone(mix)
			for k := range scaled {
				scaled[k].Replicas = (scaled[k].Replicas*int(c.Level) + 999) / 1000
			}
			alone, err := packing.Need(kinds, scaled, packing.Options{})
			if err != nil {
				t.Fatal(err)
			}
			// Each packing of the level is an upper bound for the other's bound.
			if len(alone.Unplaced) == 0 && c.LowerBound > alone.NodesUsed || c.Unplaced == 0 && alone.LowerBound > c.Nodes ||
				len(alone.Unplaced) == 0 && c.CostLowerBound > alone.Cost || c.Unplaced == 0 && c.LowerBound > c.Nodes {
				t.Fatalf("%+v, and alone %s", c, text(alone))
			}
		}
	})
}

// Many levels take no longer than a few: the number packed is bounded.
func TestCurveOfManyLevels(t *testing.T) {
	kinds := []packing.Node{{ID: "n", GPUs: 8, CPUMilli: 96, MemoryMiB: 384}}
	mix := []packing.Workload{{ID: "a", Replicas: 9, GPUMilli: 400, CPUMilli: 7, MemoryMiB: 20}, {ID: "b", Replicas: 5, GPUMilli: 1000, CPUMilli: 15, MemoryMiB: 50}}
	var levels []int64
	for i := range int64(3000) {
		levels = append(levels, 10*i)
	}
	points, err := packing.Curve(t.Context(), kinds, mix, levels, packing.Options{LP: simplex{}})
	if err != nil || len(points) != len(levels) {
		t.Fatal(err, len(points))
	}
	different := map[string]bool{}
	for i, c := range points {
		different[fmt.Sprint(c.Used)] = true
		if want := 400*((9*c.Level+999)/1000) + 1000*((5*c.Level+999)/1000); c.GPUMilli != want {
			t.Fatalf("level %d needs %d thousandths of a GPU, says %d", c.Level, want, c.GPUMilli)
		}
		if c.LowerBound > c.Nodes || c.Unplaced > 0 || i > 0 && c.Nodes < points[i-1].Nodes {
			t.Fatalf("%+v", c)
		}
	}
	if first, last := points[0], points[len(points)-1]; first.Nodes != 0 || last.Nodes < last.LowerBound || last.Nodes > last.LowerBound+1 || len(different) > 48 {
		t.Errorf("%+v to %+v, %d packed", first, last, len(different))
	}
	if _, err := packing.Curve(t.Context(), kinds, mix, []int64{-1}, packing.Options{}); err == nil {
		t.Error("a negative level is taken")
	}
	if _, err := packing.Curve(t.Context(), kinds, mix, []int64{1 << 50}, packing.Options{}); err == nil {
		t.Error("a level beyond counting is taken")
	}
}
