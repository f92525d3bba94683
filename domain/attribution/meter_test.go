package attribution_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
)

// TestMeterOfSuppliers reads texts as suppliers write them. Sources:
//
//   - Lambda: names and specs of GET /api/v1/instance-types, https://docs-api.lambda.ai/api/cloud.
//   - CoreWeave: units of https://docs.coreweave.com/billing/focus-export-api, names of
//     https://docs.coreweave.com/platform/instances/availability-matrix.
//   - Nebius: presets, and one item for GPU, vCPU and RAM since October 2025,
//     https://docs.nebius.com/signup-billing/billing-changes-oct-2025.
//   - Crusoe: types of https://docs.crusoecloud.com/compute/virtual-machines/overview.
//   - OVHcloud: names and specs of https://www.ovhcloud.com/en/public-cloud/prices/.
//   - Scaleway: names of https://www.scaleway.com/en/docs/gpu/reference-content/choosing-gpu-instance-type/.
//   - Oracle: shapes and metrics ("GPU Per Hour", "OCPU Per Hour") of https://www.oracle.com/cloud/price-list/.
//
// Lines without a source imitate invoices of small suppliers.
func TestMeterOfSuppliers(t *testing.T) {
	const gpu, machine, hardware, plain, addOn = attribution.GPUTime, attribution.MachineTime, attribution.HardwareTime, attribution.PlainTime, attribution.AddOn
	for _, c := range []struct {
		description, service, sku, unit string
		want, alone                     attribution.Meter
	}{
		{"8x H100 (80 GB SXM5)", "", "gpu_8x_h100_sxm5", "Hours", machine, 0},                          // Lambda
		{"8x H100 (80 GB SXM5), 208 CPU cores, 1800 GiB RAM, 22 TiB SSD", "", "", "Hours", machine, 0}, // Lambda
		{"1x H100 (80 GB SXM5)", "", "gpu_1x_h100_sxm5", "Hours", hardware, 0},                         // Lambda
		{"1x GH200 (96 GB)", "", "", "Hours", hardware, 0},                                             // Lambda
		{"", "", "gd-8xh100ib-i128", "Hours", machine, 0},                                              // CoreWeave
		{"", "", "gd-8xh100ib-i128", "GPU-Hours", gpu, 0},                                              // CoreWeave
		{"8gpu-128vcpu-1600gb", "Compute", "", "Hours", machine, 0},                                    // Nebius
		{"NVIDIA H200 NVLink GPU, vCPU and RAM", "Compute", "", "Hours", gpu, 0},                       // Nebius
		{"h100-80gb-sxm-ib.8x", "", "", "Hours", machine, 0},                                           // Crusoe
		{"h100-380, 30 vCores, 380 GB RAM, 200 GB NVMe", "", "", "Hours", hardware, 0},                 // OVHcloud
		{"H100-SXM-8-80G", "GPU Instances", "", "Hours", machine, 0},                                   // Scaleway
		{"H100-1-80G", "", "", "Minutes", hardware, 0},                                                 // Scaleway
		{"BM.GPU.H100.8", "", "", "Hours", machine, 0},                                                 // Oracle
		{"Compute - GPU - H100", "COMPUTE", "B98415", "GPU Per Hour", gpu, 0},                          // Oracle

		{"8x H100 GPU", "", "", "Hours", machine, 0},
		{"8xH100 GPU", "", "", "Hours", machine, 0},
		{"8 × NVIDIA H100 GPU", "", "", "Hours", machine, 0},
		{"8 H100 GPUs", "", "", "Hours", machine, 0},
		{"1x H100 GPU", "", "", "Hours", gpu, 0},
		{"NVIDIA H100 80 GB GPU", "", "", "Hours", gpu, 0},
		{"8x H100 GPU", "", "", "GPU-Hours", gpu, 0},
		{"GPU Server dual EPYC 30TB SSD", "", "", "Hours", machine, 0},
		{"H100 cluster, InfiniBand network", "", "", "Hours", hardware, 0},
		{"Dedicated H100 with 24/7 support", "", "", "Hours", hardware, 0},
		{"Bare metal with NVMe SSD", "", "", "Hours", machine, 0},
		{"96 cores, 2 TB RAM", "", "", "Hours", plain, 0},
		{"Reserved capacity", "", "H100-SXM-8", "Hours", machine, 0},
		{"p3.8xlarge GPU rental", "", "", "Hours", gpu, 0},
		{"Reserved capacity", "", "gpu-rental", "Hours", hardware, 0},

		{"500 GB SSD", "", "", "Hours", addOn, plain},
		{"Private network", "", "", "Hours", addOn, plain},
		{"Private network", "", "h100", "Hours", addOn, hardware},
		{"NVIDIA AI Enterprise software for H100", "", "", "GPU-Hours", addOn, gpu},
		{"NVIDIA AI Enterprise", "NVIDIA AI Enterprise", "", "GPU-Hours", addOn, gpu},
		{"Red Hat Enterprise Linux", "Red Hat Enterprise Linux", "", "Hours", addOn, plain},
		{"H100 software license", "", "", "Hours", addOn, plain},
		{"Windows Server", "", "", "Hours", addOn, plain},
		{"On Demand Windows Server p4d.24xlarge Instance Hour", "", "", "Hours", machine, 0},
		{"OCPU", "", "", "OCPU Per Hour", addOn, 0}, // Oracle: its unit is not time
	} {
		b := billingLine()
		b.ServiceCategory, b.ChargeDescription, b.ServiceName, b.SKUID = "Compute", c.description, c.service, c.sku
		b.PricingQuantity, b.PricingUnit = null("4"), c.unit
		l, err := attribution.LineOf(&b)
		if err != nil || l.Meter != c.want || l.Alone != c.alone {
			t.Errorf("%q of %q, SKU %q, by %s is %s, alone %s (%s; %v), want %s, alone %s", c.description, c.service, c.sku, c.unit, l.Meter, l.Alone, l.MeterReason, err, c.want, c.alone)
		}
	}
}

// A machine of eight GPUs by the hour, and items sold with one, by the columns that suppliers fill
// in.
var (
	machines = []map[string]string{
		{"ServiceName": "Amazon Elastic Compute Cloud", "ChargeDescription": "$32.7726 per On Demand Linux p4d.24xlarge Instance Hour", "SkuId": "S1", "x_UsageType": "BoxUsage:p4d.24xlarge"},
		{"ServiceName": "Cloud", "ChargeDescription": "H100 node", "SkuId": "S1"},
		{"ServiceName": "Cloud", "ChargeDescription": "8x H100 (80 GB SXM5), 208 CPU cores, 1800 GiB RAM", "SkuId": "S1"},
		{"ServiceName": "Cloud", "ChargeDescription": "Dedicated H100 with 24/7 support", "SkuId": "S1"},
		{"ServiceName": "Cloud", "ChargeDescription": "whatever", "SkuId": "p4"},
		{"ServiceName": "Virtual Machines", "SkuMeter": "ND96amsr A100 v4", "x_SkuMeterCategory": "Virtual Machines", "SkuId": "S1"},
	}
	addOns = []map[string]string{
		{"ServiceName": "NVIDIA GPU-Optimized AMI", "ChargeDescription": "AWS Marketplace software usage|us-east-1|p4d.24xlarge", "SkuId": "M", "x_UsageType": "SoftwareUsage:p4d.24xlarge", "PricingUnit": "Hours"},
		{"ServiceName": "NVIDIA AI Enterprise", "ChargeDescription": "NVIDIA AI Enterprise software per GPU", "SkuId": "M", "x_UsageType": "SoftwareUsage", "PricingUnit": "GPU-Hours"},
		{"ServiceName": "Amazon Elastic Compute Cloud", "ChargeDescription": "NVIDIA AI Enterprise software usage", "SkuId": "M", "PricingUnit": "GPU-Hours"},
		{"ServiceName": "NVIDIA AI Enterprise", "ChargeDescription": "NVIDIA AI Enterprise", "SkuId": "N", "PricingUnit": "GPU-Hours"},
		{"ServiceName": "Virtual Machines", "SkuMeter": "96 vCPU VM License", "x_SkuMeterCategory": "Virtual Machines Licenses", "SkuId": "L", "PricingUnit": "Hours"},
		{"ServiceName": "Red Hat Enterprise Linux", "ChargeDescription": "Red Hat Enterprise Linux", "SkuId": "R", "PricingUnit": "Hours"},
		{"ServiceName": "Cloud", "ChargeDescription": "InfiniBand network", "SkuId": "IB", "PricingUnit": "GPU-Hours", "x_SkuDescription": "InfiniBand network"},
		{"ServiceName": "Cloud", "ChargeDescription": "InfiniBand network", "SkuId": "IB", "PricingUnit": "Hours"},
	}
)

// TestSoftwareMovesNothing adds items sold with a machine, by their columns, and checks that the
// machine's line is divided as before.
func TestSoftwareMovesNothing(t *testing.T) {
	long.Check(t, 500, 40_000, func(t *rapid.T) {
		e := &estate{nodes: []attribution.Node{{Cluster: "c1", Node: "n1", Account: "x", Resource: "i", SKU: "p4", GPUs: 8, Registered: true,
			Service: domain.Interval{From: start, To: start + 4*domain.Hour}}}}
		for h := range rapid.IntRange(0, 4).Draw(t, "held") {
			e.hours = append(e.hours, attribution.NodeHour{Hour: start + domain.Instant(h)*domain.Hour, Owner: "own", Parts: []attribution.Part{
				{Component: attribution.Allocated, Workspace: "ada", GPUMs: 6 * hour}, {Component: attribution.Allocated, Workspace: "bob", GPUMs: 2 * hour},
			}})
		}
		line := func(id string, columns map[string]string, from, to int) attribution.Line {
			b := billingLine()
			b.LineID, b.ResourceID, b.ServiceCategory = id, "i", "Compute"
			b.ChargePeriodStart, b.ChargePeriodEnd = start+domain.Instant(from)*domain.Hour, start+domain.Instant(to)*domain.Hour
			b.ServiceName, b.ChargeDescription, b.SKUID, b.SKUMeter, b.PricingUnit = columns["ServiceName"], columns["ChargeDescription"], columns["SkuId"], columns["SkuMeter"], columns["PricingUnit"]
			b.Other = map[string]string{}
			for name, value := range columns {
				if strings.HasPrefix(name, "x_") {
					b.Other[name] = value
				}
			}
			b.BilledCost = decimal.NewFromInt(int64(rapid.IntRange(1, 300).Draw(t, id+" costs")))
			quantity := to - from
			if b.PricingUnit == "GPU-Hours" {
				quantity *= 8
			}
			b.PricingQuantity = null(fmt.Sprint(quantity))
			if b.PricingUnit == "" {
				b.PricingUnit = "Hours"
			}
			l, err := attribution.LineOf(&b)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		period := func(name string) (from, to int) {
			from = rapid.IntRange(0, 3).Draw(t, name+" from")
			return from, rapid.IntRange(from+1, 4).Draw(t, name+" to")
		}
		from, to := period("box")
		e.lines = []attribution.Line{line("box", rapid.SampledFrom(machines).Draw(t, "machine"), from, to)}
		divided := func() (box []attribution.Allocation) {
			allocations, _ := must(t, e)
			for _, g := range allocations {
				if g.line.ID == "box" {
					box = append(box, g.Allocation)
				}
			}
			return box
		}
		before := divided()
		for i := range rapid.IntRange(1, 2).Draw(t, "add-ons") {
			from := rapid.IntRange(from, to-1).Draw(t, "from")
			e.lines = append(e.lines, line(fmt.Sprint("added ", i), rapid.SampledFrom(addOns).Draw(t, "add-on"), from, to))
		}
		if after := divided(); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Fatalf("beside %+v the machine is divided\n%v\nand without\n%v", e.lines[1:], after, before)
		}
	})
}

// FuzzMeter reads any text and does not panic.
func FuzzMeter(f *testing.F) {
	for _, seed := range []string{"8xx", "8×", "H100x8", "BM.GPU.H100.8", "\u0130 windows server", "24xlarge", "x", "8 x", "..", "GPU-8-GB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := billingLine()
		b.ChargeDescription, b.ServiceName, b.SKUID, b.SKUMeter = text, text, text, text
		b.PricingQuantity, b.PricingUnit = null("4"), "Hours"
		if l, err := attribution.LineOf(&b); err != nil || l.Meter == 0 || l.Meter == attribution.AddOn && l.MeterReason == "" {
			t.Errorf("%q is %s (%v)", text, l.Meter, err)
		}
	})
}
