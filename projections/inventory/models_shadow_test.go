package inventory

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// searched returns the same as [shadowIndex.of], found by searching all shadows of the deployment.
func searched(shadows []*ModelEntry, k modelKey) int {
	if k.deployment == "" {
		return -1
	}
	for i := len(shadows) - 1; i >= 0; i-- {
		e := shadows[i]
		if e.Cluster != k.cluster || e.Deployment != k.deployment {
			break
		}
		if (k.model == "" || e.Model == k.model && e.Tier == k.tier) && (e.Workspace == "" || k.workspace == "" || e.Workspace == k.workspace) {
			return i
		}
	}
	return -1
}

func TestShadowIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(what string) *rapid.Generator[string] {
			return rapid.SampledFrom([]string{"", what + "1", what + "2", what + "3"})
		}
		keys := rapid.MapOfN(rapid.Custom(func(t *rapid.T) modelKey {
			return modelKey{name("w").Draw(t, "workspace"), name("c").Draw(t, "cluster"), name("d").Draw(t, "deployment"), name("m").Draw(t, "model"), name("t").Draw(t, "tier")}
		}), rapid.Just(true), 0, 60).Draw(t, "seen")
		var x shadowIndex
		for _, k := range slices.SortedFunc(maps.Keys(keys), compareModels) {
			want, before := searched(x.all, k), len(x.all)
			e := x.of(k)
			if got := slices.Index(x.all, e); want >= 0 && got != want || want < 0 && got != before {
				t.Fatalf("%+v is of shadow %d, want %d of %d", k, got, want, before)
			}
			e.see(k, &sighting{}, 0)
		}
	})
}
