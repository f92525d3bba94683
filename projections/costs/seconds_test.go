package costs_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// If charges split an hour, each part equals the sum of its seconds: the holder of each GPU, the
// time of each unit, and the activity.
func TestCostPartsAreTheirSeconds(t *testing.T) {
	const hourSeconds = 3600
	type second struct {
		workspace string
		activity  int64 // per mille
	}
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "owner", "p", "eu", storetest.Start))
		nodes := rapid.IntRange(1, 2).Draw(t, "nodes")
		gpus := rapid.IntRange(1, 3).Draw(t, "gpus")
		had := make([][][]second, nodes) // by node, second and GPU; a GPU without a workspace was idle
		for n := range nodes {
			name := fmt.Sprint("n", n)
			l.Append(storetest.Node("c", name, "H100 80GB", gpus, storetest.Start))
			had[n] = make([][]second, hourSeconds)
			for from := 0; from < hourSeconds; {
				to := min(hourSeconds, from+rapid.IntRange(1, 1500).Draw(t, "seconds"))
				var seen []storetest.Seen
				for g := range gpus {
					s := second{rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "workspace"), 0}
					if s.workspace != "" {
						s.activity = int64(rapid.IntRange(0, 1000).Draw(t, "activity"))
					}
					see := storetest.Seen{ID: storetest.GPU("c", name, g), Workspace: s.workspace, Activity: int(s.activity)}
					if s.workspace != "" {
						see.Unit = "unit-" + s.workspace
					}
					seen = append(seen, see)
					for at := from; at < to; at++ {
						had[n][at] = append(had[n][at], s)
					}
				}
				i := domain.Interval{From: storetest.Start + domain.Instant(from)*domain.Second, To: storetest.Start + domain.Instant(to)*domain.Second}
				l.Append(domain.Envelope{Source: "reporter/" + name, Cluster: "c", Time: i.To, Event: storetest.Sample(name, i, seen...)})
				from = to
			}
		}
		cut := rapid.SliceOfNDistinct(rapid.IntRange(1, hourSeconds-1), 0, 4, rapid.ID[int]).Draw(t, "cuts")
		slices.Sort(cut)
		var cuts []domain.Instant
		for _, s := range cut {
			cuts = append(cuts, storetest.Start+domain.Instant(s)*domain.Second)
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			type key struct {
				node, from int
				workspace  string
			}
			type sum struct{ gpu, known, held, useful int64 }
			got, want := map[key]sum{}, map[key]sum{}
			for n := range nodes {
				for i, from := range append([]int{0}, cut...) {
					for at := from; at < append(slices.Clone(cut), hourSeconds)[i]; at++ {
						there := map[string]bool{}
						for _, s := range had[n][at] {
							k := key{n, from, s.workspace}
							w := want[k]
							w.gpu += 1000
							if s.workspace != "" {
								w.known += 1000
								w.useful += 1000 * s.activity
								if !there[s.workspace] {
									there[s.workspace], w.held = true, w.held+1000
								}
							}
							want[k] = w
						}
					}
				}
			}
			described, err := costs.CostHours(v, []domain.Interval{{From: storetest.Start, To: storetest.Start + domain.Hour}}, func(int, domain.Instant) []domain.Instant { return cuts }, func(h *attribution.NodeHour) error {
				for _, p := range h.Parts {
					from := 0
					if h.Held != (domain.Interval{}) {
						from = int((h.Held.From - storetest.Start) / domain.Second)
					}
					k := key{h.Node, from, p.Workspace}
					s := got[k]
					if p.Micros != 0 {
						t.Errorf("whole seconds leave %d µs", p.Micros)
					}
					got[k] = sum{s.gpu + p.GPUMs, s.known + p.KnownMs, s.held + p.HeldMs, s.useful + p.UsefulMs}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if len(described) != nodes {
				t.Fatalf("%d descriptions of %d nodes", len(described), nodes)
			}
			for k := range maps.Keys(want) {
				w, g := want[k], got[k]
				// The activity of a segment is its mean, so that a part of it may differ from the
				// sum of its seconds; over the hour it is exact.
				if w.gpu != g.gpu || w.known != g.known || w.held != g.held {
					t.Errorf("%+v: got %+v, want %+v", k, g, w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("got %v, want %v", got, want)
			}
			for n := range nodes {
				for _, workspace := range []string{"a", "b"} {
					var g, w int64
					for k := range want {
						if k.node == n && k.workspace == workspace {
							g, w = g+got[k].useful, w+want[k].useful/1000
						}
					}
					if d := g - w; d < -16 || d > 16 { // each part rounds its milliseconds down
						t.Errorf("node %d, %s: useful %d ms, want %d", n, workspace, g, w)
					}
				}
			}
			return nil
		})
	})
}
