package demo

import (
	"fmt"
	"io"
	"strconv"

	"github.com/shopspring/decimal"
)

// published is where and when a price was published.
type published struct{ source, asOf string }

// The sources of [Prices]. The commit identifies the state of a public repository that compiled the
// provider's prices.
var (
	awsOnDemand = published{"AWS EC2 price list, compiled by tsaol/aws-gpu@77fcd9f", "2026-01"}
	awsThree    = published{"AWS EC2 price list, compiled by Netflix-Skunkworks/service-capacity-modeling@dc69307", "2026-06"}
	// The page shows monthly prices of 730 hours, and no date of its own; the date is that of the
	// repository.
	awsOlder = published{"AWS EC2 price list by EC2Instances.info, compiled by AjitTK/aws-emr-configuration@9aa0ec3",
		"2025-03"}
	fsdl      = published{"provider's price list, compiled by the-full-stack/website@2bddc6d", "2023..2025-03"}
	coreweave = published{"coreweave.com/pricing, compiled by api-evangelist/coreweave", "2026-09"}
	lambda    = published{"lambda.ai/instances, compiled by api-evangelist/lambda-labs", "2026-09"}
	nebiusDoc = published{"docs.nebius.com, billing changes of October 2025", "2025-10"}
	nebius    = published{"nebius.com/prices, compiled by OpsLyft on 2026-05-18", "2026-05"}
)

// machineType is what is sold. Fields that a source does not state are empty.
type machineType struct {
	sku    string
	model  string // as the catalogue of GPUs spells it
	gpus   int
	gpuGB  int // of all GPUs
	vcpu   string
	memory string // GiB
}

// elsewhere is a price of a provider without a region. Prices are per hour.
type elsewhere struct {
	provider string
	machineType
	onDemand, spot string // "": not published
	published
}

// awsPrices are the prices of one machine type in one region of AWS: on demand, per hour; for a
// year, nothing upfront, per hour; for three years, all upfront.
type awsPrices struct {
	region                      string
	onDemand, oneYear, allThree string // "": not published, or not found
}

// Prices writes public list prices of machines with GPUs in the columns of the prices importer.
// They are facts with a date and a source: a term for which no published price was found is left
// out. It uses no draws.
//
// Regions are unspecified if the source names none. effective_hourly is hourly plus upfront over
// the hours of the term, to a millionth.
func Prices(w io.Writer) error {
	t := newTable(w, "provider", "region", "instance_type", "gpu_model", "gpu_count", "gpu_memory", "vcpu", "memory",
		"offer", "term_months", "upfront", "hourly", "effective_hourly", "currency", "as_of", "source")
	quote := func(provider, region string, m machineType, offer string, months int, price string, p published) {
		if price == "" || t.err != nil {
			return
		}
		upfront, hourly := "0", price
		effective, err := decimal.NewFromString(price)
		if err != nil {
			t.err = fmt.Errorf("price %q of %s: %w", price, m.sku, err)
			return
		}
		if offer == allUpfront {
			const hoursAMonth = 730 // 8,760 a year
			upfront, hourly = price, "0"
			effective = effective.DivRound(decimal.New(int64(months)*hoursAMonth, 0), 6)
		}
		t.row(provider, region, m.sku, m.model, strconv.Itoa(m.gpus), strconv.Itoa(m.gpuGB), m.vcpu, m.memory,
			offer, strconv.Itoa(months), upfront, hourly, effective.String(), "USD", p.asOf, p.source)
	}
	for _, m := range awsMachines {
		for _, p := range m.prices {
			quote("aws", p.region, m.machineType, "on_demand", 0, p.onDemand, awsOnDemand)
			oneYear := awsOnDemand
			if m.oneYearOlder {
				oneYear = awsOlder
			}
			quote("aws", p.region, m.machineType, "reserved_standard_no_upfront", 12, p.oneYear, oneYear)
			quote("aws", p.region, m.machineType, allUpfront, 36, p.allThree, awsThree)
		}
		quote("aws", anyRegion, m.machineType, "spot", 0, m.spot, fsdl)
	}
	for _, p := range otherPrices {
		quote(p.provider, anyRegion, p.machineType, "on_demand", 0, p.onDemand, p.published)
		quote(p.provider, anyRegion, p.machineType, "spot", 0, p.spot, p.published)
	}
	if err := t.close(); err != nil {
		return fmt.Errorf("write prices: %w", err)
	}
	return nil
}

const (
	anyRegion  = "unspecified"
	allUpfront = "reserved_or_savings_plan_all_upfront"
)

var otherPrices = []elsewhere{
	{"azure", machineType{"ND96amsr A100 v4", "A100 80GB", 8, 640, "96", "1900"}, "37.18", "", fsdl},
	{"azure", machineType{"NC96ads A100 v4", "A100 80GB", 4, 320, "96", "880"}, "14.69", "5.88", fsdl},
	{"azure", machineType{"NC24ads A100 v4", "A100 80GB", 1, 80, "24", "220"}, "3.67", "1.47", fsdl},
	{"azure", machineType{"NC24s v3", "V100 16GB", 4, 64, "24", "448"}, "12.24", "5.4", fsdl},
	{"azure", machineType{"NC64as T4 v3", "T4", 4, 64, "64", "440"}, "4.35", "1.73", fsdl},
	{"gcp", machineType{"a2-highgpu-1g", "A100 40GB", 1, 40, "12", "85"}, "3.67", "1.1", fsdl},
	{"gcp", machineType{"a2-highgpu-8g", "A100 40GB", 8, 320, "96", "680"}, "29.36", "8.81", fsdl},
	{"gcp", machineType{"n1-highmem-64", "V100 16GB", 8, 128, "64", "416"}, "23.63", "6.72", fsdl},
	{"gcp", machineType{"n1-highmem-32", "T4", 4, 64, "32", "208"}, "3.29", "0.84", fsdl},
	{"gcp", machineType{"n1-highmem-16", "P100", 2, 32, "16", "104"}, "3.87", "1.06", fsdl},
	{"oracle", machineType{"BM.GPU.H100.8", "H100 80GB", 8, 640, "", ""}, "80", "", fsdl},
	{"oracle", machineType{"BM.GPU.A100-v2.8", "A100 80GB", 8, 640, "128", "2048"}, "32", "", fsdl},
	{"oracle", machineType{"BM.GPU.A4.8", "A100 40GB", 8, 320, "64", "2048"}, "24.4", "", fsdl},
	{"coreweave", machineType{"HGX B200", "B200", 8, 1440, "128", "2048"}, "68.8", "34.11", coreweave},
	{"coreweave", machineType{"HGX H100", "H100 SXM 80GB", 8, 640, "", ""}, "49.24", "19.71", coreweave},
	{"lambda", machineType{"8x B200 SXM6", "B200", 8, 1440, "208", "2900"}, "53.52", "", lambda},
	{"lambda", machineType{"8x H100 SXM", "H100 SXM 80GB", 8, 640, "208", "1800"}, "31.92", "", lambda},
	{"lambda", machineType{"8x A100 SXM 80 GB", "A100 80GB", 8, 640, "240", "1800"}, "22.32", "", lambda},
	{"lambda", machineType{"8x A100 SXM 40 GB", "A100 40GB", 8, 320, "124", "1800"}, "15.92", "", lambda},
	{"lambda", machineType{"8x V100", "V100 16GB", 8, 128, "92", "448"}, "4.4", "", fsdl},
	{"nebius", machineType{"8gpu-128vcpu-1600gb", "H200 141GB", 8, 1128, "128", "1600"}, "28", "", nebiusDoc},
	{"nebius", machineType{"1gpu-16vcpu-200gb", "H200 141GB", 1, 141, "16", "200"}, "3.5", "", nebiusDoc},
	{"nebius", machineType{"HGX H100", "H100 SXM 80GB", 8, 640, "", ""}, "23.6", "10", nebius},
	{"runpod", machineType{"8x A100 80GB", "A100 80GB", 8, 640, "112", "1006"}, "15.12", "", fsdl},
	{"runpod", machineType{"8x A40", "A40", 8, 384, "40", "502"}, "6.32", "", fsdl},
	{"datacrunch", machineType{"8A100.176V", "A100 80GB", 8, 640, "176", "960"}, "14.8", "", fsdl},
	{"datacrunch", machineType{"8V100.48V", "V100 16GB", 8, 128, "48", "180"}, "8", "", fsdl},
	{"latitude.sh", machineType{"g3.xlarge.x86", "H100 80GB", 8, 640, "128", "1536"}, "32.2", "", fsdl},
	{"ovhcloud", machineType{"h100-1520", "H100 80GB", 4, 320, "120", "1520"}, "11.97", "", fsdl},
	{"ovhcloud", machineType{"l4-360", "L4", 4, 96, "90", "360"}, "4", "", fsdl},
	{"paperspace", machineType{"8x A100 80GB", "A100 80GB", 8, 640, "96", "720"}, "25.44", "", fsdl},
	{"fluidstack", machineType{"8x H100 80GB", "H100 80GB", 8, 640, "384", "1024"}, "38.08", "", fsdl},
}
