package domain_test

import (
	"testing"

	"quartermaster/domain"
)

func TestFamily(t *testing.T) {
	for kind, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "H100", "H100 NVL": "H100", "H100": "H100", "A100-SXM4-40GB": "A100", "A100 80GB": "A100",
		"NVIDIA H200": "H200", "GH200 96GB": "GH200", "V100S 32GB": "V100S", "L40S": "L40S", "RTX A6000": "RTX A6000",
		"p5.48xlarge": "p5", "p4de.24xlarge": "p4de", "u-6tb1.metal": "u-6tb1", "a3-highgpu-8g": "a3", "n1-standard-8": "n1",
		"Standard_ND96isr_H100_v5": "ND v5", "Standard_NC24ads_A100_v4": "NC v4", "Standard_NC6": "Standard_NC6",
		"A": "A", "": "", "all": "all", "my-pool": "my-pool", "gpu pool.x": "gpu pool.x", "Standard_": "Standard_",
	} {
		if got := domain.Family(kind); got != want {
			t.Errorf("the family of %q is %q, want %q", kind, got, want)
		}
	}
	for _, m := range domain.GPUModels() { // a family does not split further
		if f := domain.Family(m.Name); domain.Family(f) != f {
			t.Errorf("the family of %q is %q, and that of this %q", m.Name, f, domain.Family(f))
		}
	}
}
