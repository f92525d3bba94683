package domain_test

import (
	"testing"

	"quartermaster/domain"
)

func TestLookupGPUKnowsSpellingsOfRealSources(t *testing.T) {
	for _, c := range []struct{ spelling, name string }{
		{"V100M16", "V100 16GB"}, {"V100M32", "V100 32GB"}, {"V100 (32 GB)", "V100 32GB"},
		{"NVIDIA A100-SXM4-80GB", "A100 80GB"}, {"NVIDIA A100 80GB PCIe", "A100 80GB"}, {"A100 (40 GB)", "A100 40GB"},
		{"Tesla T4", "T4"}, {"NVIDIA T4 Tensor Core", "T4"}, {"T4 (16 GB)", "T4"}, {"NVIDIA T4G", "T4G"},
		{"NVIDIA Tesla V100", "V100"}, {"NVIDIA Tesla K80", "K80"}, {"NVIDIA Tesla M60", "M60"},
		{"NVIDIA H100 80GB HBM3", "H100 SXM 80GB"}, {"H100 HGX (80GB)", "H100 SXM 80GB"}, {"H100 PCIe (80GB)", "H100 PCIe 80GB"},
		{"H100 (80 GB)", "H100 80GB"}, {"NVIDIA H100 NVL", "H100 NVL 94GB"}, {"NVIDIA H200", "H200 141GB"}, {"H200", "H200 141GB"},
		{"H100", "H100"}, {"NVIDIA H100 Tensor Core GPU", "H100"},
		{"NVIDIA B200 Blackwell", "B200"}, {"NVIDIA B300 Blackwell", "B300"}, {"GH200 (96 GB)", "GH200 96GB"},
		{"RTX A6000 (48 GB)", "RTX A6000"}, {"A6000 (48 GB)", "RTX A6000"}, {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
		{"Quadro RTX 6000 (24 GB)", "Quadro RTX 6000"}, {"RTX4000 (8 GB)", "Quadro RTX 4000"},
		{"NVIDIA RTX PRO 6000 Blackwell", "RTX PRO 6000 Blackwell"}, {"NVIDIA GeForce RTX 4090", "RTX 4090"},
		{"AMD Instinct MI300X OAM", "MI300X"}, {"AMD Radeon Pro V520", "Radeon Pro V520"}, {" a10 ", "A10"},
	} {
		m, ok := domain.LookupGPU(c.spelling)
		if !ok || m.Name != c.name {
			t.Errorf("LookupGPU(%q) = %q, %v, want %q", c.spelling, m.Name, ok, c.name)
		}
	}
}

func TestLookupGPULeavesUnknownAndAmbiguousNamesAlone(t *testing.T) {
	for _, name := range []string{"", "G2", "G3", "H100 60GB", "GH200", "RTX 6000", "AWS Inferentia", "NVIDIA", "Qualcomm AI 100", "A100 60GB", "日本"} {
		if m, ok := domain.LookupGPU(name); ok {
			t.Errorf("LookupGPU(%q) = %q, want unknown", name, m.Name)
		}
	}
}

func TestGPUCatalogueIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range domain.GPUModels() {
		if seen[m.Name] {
			t.Errorf("%s is listed twice", m.Name)
		}
		seen[m.Name] = true
		if got, ok := domain.LookupGPU(m.Name); !ok || got.Name != m.Name {
			t.Errorf("LookupGPU(%q) = %q, %v: an alias of another model hides it", m.Name, got.Name, ok)
		}
		if m.Consumer && (m.ECC || m.MIG != nil) {
			t.Errorf("%s is a consumer card with ECC or MIG", m.Name)
		}
		if m.MIG == nil {
			continue
		}
		for _, p := range m.MIG.Profiles {
			if p.ComputeSlices*p.MaxInstances > m.MIG.ComputeSlices || p.MemorySlices*p.MaxInstances > m.MIG.MemorySlices {
				t.Errorf("%s: %d of %s do not fit %d compute and %d memory slices", m.Name, p.MaxInstances, p.Name, m.MIG.ComputeSlices, m.MIG.MemorySlices)
			}
			if got, ok := m.MIG.Profile("MIG " + p.Name); !ok || got != p {
				t.Errorf("%s: Profile(%q) = %v, %v", m.Name, p.Name, got, ok)
			}
		}
	}
}

func TestAliasesNameOneModelEach(t *testing.T) {
	a100, _ := domain.LookupGPU("A100 80GB")
	p, ok := a100.MIG.Profile("3g.40gb")
	if !ok || p != (domain.MIGProfile{Name: "3g.40gb", ComputeSlices: 3, MemorySlices: 4, MaxInstances: 2}) {
		t.Errorf("3g.40gb of the A100 80GB = %+v, %v", p, ok)
	}
	if t4, _ := domain.LookupGPU("T4"); t4.MIG != nil {
		t.Error("the T4 has no MIG")
	}
	if _, ok := (*domain.MIGLayout)(nil).Profile("1g.5gb"); ok {
		t.Error("no layout has no profiles")
	}
}
