package demand

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

func TestGPUNeed(t *testing.T) {
	for _, c := range []struct {
		name   string
		need   domain.GPUNeed
		milli  int64
		models string // "some" for a list that is too long to write
	}{
		{"none", domain.GPUNeed{CPUMilli: 1000, Models: []string{"T4"}}, 0, ""},
		{"whole", domain.GPUNeed{Count: 4}, 4000, ""},
		{"part", domain.GPUNeed{Count: 1, Milli: 250}, 250, ""},
		{"all of one", domain.GPUNeed{Count: 1, Milli: 1000}, 1000, ""},
		{"models as the catalogue spells them, and one that it does not know", domain.GPUNeed{Count: 1, Models: []string{"V100M32", "Tesla T4", "G2"}}, 1000, "G2, T4, V100 32GB"},
		{"a family", domain.GPUNeed{Count: 1, Models: []string{"NVIDIA A100"}}, 1000, "A100, A100 40GB, A100 80GB"},
		{"SXM or PCIe", domain.GPUNeed{Count: 1, Models: []string{"H100 80GB"}}, 1000, "H100 80GB, H100 PCIe 80GB, H100 SXM 80GB"},
		{"memory rules models out", domain.GPUNeed{Count: 2, Models: []string{"A100 40GB", "A100 80GB", "G2"}, MemoryMiB: 60 << 10}, 2000, "A100 80GB, G2"},
		{"memory rules every model out", domain.GPUNeed{Count: 1, Models: []string{"T4"}, MemoryMiB: 60 << 10}, 1000, Nowhere},
		{"memory of a part", domain.GPUNeed{Count: 1, Milli: 500, Models: []string{"A100 40GB", "A100 80GB"}, MemoryMiB: 30 << 10}, 500, "A100 80GB"},
		{"memory of any model", domain.GPUNeed{Count: 1, MemoryMiB: 200 << 10}, 1000, "B300, MI325X"},
		{"a slice by memory", domain.GPUNeed{MIGProfile: "1g.10gb", Models: []string{"A100 80GB"}}, 143, "A100 80GB"}, // 1/7 of compute, 1/8 of memory
		{"a slice that is more on one model", domain.GPUNeed{MIGProfile: "1g.10gb", Models: []string{"A100 40GB", "A100 80GB", "T4"}}, 250, "A100 40GB, A100 80GB"},
		{"a slice of half the memory", domain.GPUNeed{MIGProfile: "3g.40gb", Models: []string{"A100 80GB"}}, 500, "A100 80GB"},
		{"a slice of any model", domain.GPUNeed{MIGProfile: "MIG 4g.24gb"}, 1000, "A30"},
		{"a slice of too little memory", domain.GPUNeed{MIGProfile: "1g.10gb", Models: []string{"A100 80GB"}, MemoryMiB: 11 << 10}, 1000, Nowhere},
		{"a slice that the model does not have", domain.GPUNeed{MIGProfile: "1g.6gb", Models: []string{"A100 80GB", "T4"}}, 1000, Nowhere},
		{"a slice of a model whose slices are not known", domain.GPUNeed{MIGProfile: "1g.10gb", Models: []string{"G2", "B300", "T4", "A100 80GB"}}, 1000, "A100 80GB, B300, G2"},
		{"a slice of a family", domain.GPUNeed{MIGProfile: "1g.10gb", Models: []string{"A100"}}, 250, "A100, A100 40GB, A100 80GB"},
		{"an unknown slice of any model", domain.GPUNeed{MIGProfile: "9g.9gb", MemoryMiB: 200 << 10}, 1000, "B300, MI325X"},
		{"an unknown slice", domain.GPUNeed{MIGProfile: "9g.9gb", Models: []string{"T4"}}, 1000, "T4"},
		{"memory alone", domain.GPUNeed{MemoryMiB: 10 << 10, Models: []string{"A100 40GB"}}, 250, "A100 40GB"},
		{"memory alone, where it is most", domain.GPUNeed{MemoryMiB: 10 << 10, Models: []string{"A100"}}, 250, "A100, A100 40GB, A100 80GB"},
		{"memory of an unknown model", domain.GPUNeed{MemoryMiB: 10 << 10, Models: []string{"G2", "A100 40GB"}}, 1000, "A100 40GB, G2"},
		{"memory of several", domain.GPUNeed{MemoryMiB: 100 << 10, Models: []string{"A100 40GB"}}, 3000, "A100 40GB"},
		{"memory of several of the largest", domain.GPUNeed{MemoryMiB: 500 << 10}, 2000, "B300, MI325X"},
	} {
		milli, models := GPUNeed(&c.need, nil)
		if got := strings.Join(models, ", "); milli != c.milli || got != c.models {
			t.Errorf("%s: %d of %q, want %d of %q", c.name, milli, got, c.milli, c.models)
		}
	}
}

// For every need, the result is consistent, and every allowed and known model has the requested
// memory in that part.
func TestGPUNeedHasTheMemory(t *testing.T) {
	names := []string{"G2", "A100"}
	profiles := []string{"", "", "odd"}
	for _, m := range domain.GPUModels() {
		names = append(names, m.Name)
		if m.MIG != nil {
			for _, p := range m.MIG.Profiles {
				profiles = append(profiles, p.Name)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := domain.GPUNeed{
			Models:     rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "models"),
			MIGProfile: rapid.SampledFrom(profiles).Draw(t, "profile"),
			MemoryMiB:  rapid.SampledFrom([]uint64{0, 1, 5 << 10, 17 << 10, 70 << 10, 300 << 10, 1 << 63}).Draw(t, "memory"),
		}
		if n.MIGProfile == "" {
			n.Count = rapid.Uint32Range(0, 8).Draw(t, "count")
			if n.Count == 1 {
				n.Milli = rapid.Uint32Range(0, 1000).Draw(t, "milli")
			}
		}
		milli, models := GPUNeed(&n, nil)
		if milli < 0 || milli > 1000 && milli%1000 != 0 || !slices.IsSorted(models) {
			t.Fatalf("%+v needs %d of %v", n, milli, models)
		}
		if (milli > 0) != (n.Count > 0 || n.MIGProfile != "" || n.MemoryMiB > 0) {
			t.Fatalf("%+v needs %d", n, milli)
		}
		perGPU := n.Count > 0 || n.MIGProfile != ""
		for _, name := range models {
			m, known := domain.LookupGPU(name)
			if !known || m.MemoryMiB == 0 || n.MemoryMiB == 1<<63 {
				continue
			}
			part := uint64(milli)
			if perGPU {
				part = min(part, 1000)
			}
			if m.MemoryMiB*part/1000 < n.MemoryMiB {
				t.Fatalf("%+v needs %d of %s, which has %d MiB", n, milli, name, m.MemoryMiB)
			}
		}
	})
}

// The weight of a slice depends on the models present.
func TestGPUNeedOnWhatIsThere(t *testing.T) {
	need := domain.GPUNeed{MIGProfile: "1g.10gb"}
	anywhere, _ := GPUNeed(&need, nil)
	there, models := GPUNeed(&need, []string{"H100 SXM 80GB", "T4"})
	if anywhere != 250 || there != 143 || len(models) != 1 || models[0] != "H100 SXM 80GB" {
		t.Errorf("a slice weighs %d anywhere, %d there on %v", anywhere, there, models)
	}
}
