package demo_test

import (
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/simulations/public"
)

func amount(t testing.TB, text string) domain.Decimal {
	t.Helper()
	d, err := decimal.NewFromString(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPrices(t *testing.T) {
	type machine struct{ provider, region, sku string }
	onDemand := map[machine]domain.Decimal{}
	seen := map[string]bool{}
	all := rows(t, "prices")
	for _, r := range all {
		m := machine{r["provider"], r["region"], r["instance_type"]}
		id := m.provider + " " + m.region + " " + m.sku + " " + r["offer"] + " " + r["term_months"]
		if seen[id] {
			t.Errorf("offer %s is there twice", id)
		}
		seen[id] = true
		gpu, known := domain.LookupGPU(r["gpu_model"])
		if !known || gpu.MemoryMiB == 0 {
			t.Errorf("offer %s: GPU model %q is not in the catalogue", id, r["gpu_model"])
		}
		memory := number(t, r["gpu_memory"]) * 1024 / number(t, r["gpu_count"])
		if off := memory*100/int(gpu.MemoryMiB) - 100; off < -3 || off > 3 {
			t.Errorf("offer %s: %d MiB a GPU, where the catalogue has %d", id, memory, gpu.MemoryMiB)
		}
		if r["source"] == "" || r["as_of"] == "" || r["currency"] != "USD" {
			t.Errorf("offer %s has no source, date or currency", id)
		}
		if !amount(t, r["upfront"]).Add(amount(t, r["hourly"])).IsPositive() {
			t.Errorf("offer %s costs nothing", id)
		}
		if r["offer"] == "on_demand" {
			onDemand[m] = amount(t, r["hourly"])
		}
	}
	if len(all) < 140 || len(all) > 170 {
		t.Errorf("%d prices, want about 150", len(all))
	}
	// A commitment that costs more than on-demand would be a typo.
	committed := 0
	for _, r := range all {
		m := machine{r["provider"], r["region"], r["instance_type"]}
		price, effective := onDemand[m], amount(t, r["effective_hourly"])
		if r["term_months"] == "0" || price.IsZero() {
			continue
		}
		committed++
		if share := effective.Div(price); share.LessThan(decimal.New(29, -2)) || share.GreaterThan(decimal.New(75, -2)) {
			t.Errorf("%v for %s months costs %s an hour, on demand %s", m, r["term_months"], effective, price)
		}
	}
	if committed < 40 {
		t.Errorf("%d prices with a term beside one on demand, want 40 and more", committed)
	}
	for _, want := range []string{
		"aws us-east-1 p3.16xlarge on_demand 0", "aws us-east-1 p3.16xlarge reserved_standard_no_upfront 12",
		"aws us-east-1 p4d.24xlarge on_demand 0", "aws us-east-1 p4d.24xlarge reserved_standard_no_upfront 12",
		"aws us-east-1 p4d.24xlarge reserved_or_savings_plan_all_upfront 36",
		"aws us-west-2 p4d.24xlarge on_demand 0", "aws us-west-2 p4d.24xlarge reserved_standard_no_upfront 12",
		"aws eu-central-1 p4d.24xlarge on_demand 0", "aws eu-central-1 p4d.24xlarge reserved_standard_no_upfront 12",
		"aws us-east-1 p5.48xlarge on_demand 0", "aws us-east-1 p5.48xlarge reserved_or_savings_plan_all_upfront 36",
		"aws us-west-2 p5.48xlarge on_demand 0", "aws eu-north-1 p5.48xlarge on_demand 0",
	} {
		if !seen[want] {
			t.Errorf("no price for %s", want)
		}
	}
}

// Every price that names one of the compilations is in it, digit for digit.
func TestPricesArePublished(t *testing.T) {
	all := public.Rows(t, "prices/gpu_offers.csv")
	type fact struct{ awsType, region, offer, months, gpus, upfront, hourly, asOf string }
	// Other providers' machines have other names there, or none.
	awsType := func(provider, name string) string {
		if provider == "aws" {
			return name
		}
		return ""
	}
	published := map[fact]bool{}
	for _, r := range all[1:] {
		published[fact{awsType(r[0], r[2]), r[1], r[8], r[9], r[4], amount(t, r[10]).String(), amount(t, r[11]).String(), r[14]}] = true
	}
	checked := 0
	for _, r := range rows(t, "prices") {
		switch r["provider"] {
		case "coreweave", "nebius":
			continue // not compiled there
		}
		if r["as_of"] == "2026-09" || r["as_of"] == "2025-03" {
			continue // newer than the compilation, or p3.16xlarge for a year
		}
		checked++
		x := fact{awsType(r["provider"], r["instance_type"]), r["region"], r["offer"], r["term_months"], r["gpu_count"], amount(t, r["upfront"]).String(), amount(t, r["hourly"]).String(), r["as_of"]}
		if !published[x] {
			t.Errorf("%s %s: no published price like %+v", r["provider"], r["instance_type"], x)
		}
	}
	if checked < 130 {
		t.Errorf("%d prices were compared, want 130 and more", checked)
	}
}
