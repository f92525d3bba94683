package reliability_test

import (
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain/reliability"
)

const hour = 3_600_000

// The source of the published rate: 419 interruptions in 54 days of 16,384 GPUs.
func TestPublishedRate(t *testing.T) {
	observed := int64(54 * 24 * 16_384)
	per := observed / 419
	if p := reliability.Published(); per < 50_000 || per > 51_000 || !p.GPUHours.Equal(dec("50000")) {
		t.Errorf("one in %d GPU-hours, the prior says %s", per, p.GPUHours)
	}
	// With that much evidence the prior has almost no weight.
	e, err := reliability.Published().Learn(reliability.Evidence{GPUMs: observed * hour, Interruptions: 419})
	if err != nil {
		t.Fatal(err)
	}
	if e.RatePrior.GreaterThan(dec("0.0024")) || e.PerGPUHour.Sub(dec("0.0000197")).Abs().GreaterThan(dec("0.0000001")) {
		t.Errorf("%+v", e)
	}
}

// By hand: without observations, the result is the prior. 150,000 GPU-hours with 3 interruptions
// plus 50,000 with 1 are 4 in 200,000, a quarter of it from the prior. Three repairs of 30 hours in
// total, and one that has lasted 2 so far, plus one of 24: (24 + 32)/4.
func TestLearnByHand(t *testing.T) {
	for _, c := range []struct {
		evidence                     reliability.Evidence
		rate, repair, prior, repair1 string
	}{
		{reliability.Evidence{}, "0.00002", "24", "1", "1"},
		{reliability.Evidence{GPUMs: 150_000 * hour, Interruptions: 3, Repairs: 3, RepairMs: 32 * hour}, "0.00002", "14", "0.25", "0.25"},
		{reliability.Evidence{GPUMs: 50_000 * hour}, "0.00001", "24", "0.5", "1"},
	} {
		e, err := reliability.Published().Learn(c.evidence)
		if err != nil || !e.PerGPUHour.Equal(dec(c.rate)) || !e.RepairHours.Equal(dec(c.repair)) || !e.RatePrior.Equal(dec(c.prior)) || !e.RepairPrior.Equal(dec(c.repair1)) {
			t.Errorf("%+v: %+v, %v", c.evidence, e, err)
		}
	}
	e, _ := reliability.Published().Learn(reliability.Evidence{})
	// 8 GPUs at one in 50,000 hours, a day each: 8·24/50,000.
	if q := e.Unavailability(8); !q.Equal(dec("0.00384")) {
		t.Errorf("unavailability %s", q)
	}
	if q := reliability.Unavailability(dec("0.000000000000000001"), dec("0.5"), 1); !q.Equal(dec("0.000000000000000001")) {
		t.Errorf("unavailability %s is not rounded up", q)
	}
}

// More faults never lower a rate, more hours without faults never raise it, and the result lies
// between the prior and the observed rate.
func TestLearnIsBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := reliability.Published()
		p.GPUHours = decimal.New(rapid.Int64Range(1, 1_000_000).Draw(t, "prior"), 0)
		ev := reliability.Evidence{
			GPUMs: rapid.Int64Range(1, 1e15).Draw(t, "time"), Interruptions: rapid.Int64Range(0, 1000).Draw(t, "interruptions"),
			Repairs: rapid.Int64Range(1, 1000).Draw(t, "repairs"), RepairMs: rapid.Int64Range(0, 1e12).Draw(t, "repair"),
		}
		e, err := p.Learn(ev)
		if err != nil {
			t.Fatal(err)
		}
		more, fewer := ev, ev
		more.Interruptions++
		fewer.GPUMs += hour
		a, _ := p.Learn(more)
		b, _ := p.Learn(fewer)
		if a.PerGPUHour.LessThan(e.PerGPUHour) || b.PerGPUHour.GreaterThan(e.PerGPUHour) {
			t.Fatalf("%+v, with a fault more %s, with more hours %s", e, a.PerGPUHour, b.PerGPUHour)
		}
		prior := dec("1").DivRound(p.GPUHours, 18)
		seen := decimal.New(ev.Interruptions*hour, 0).DivRound(decimal.New(ev.GPUMs, 0), 18)
		low, high := prior, seen
		if low.GreaterThan(high) {
			low, high = high, low
		}
		hair := dec("0.000000000000000002")
		if e.PerGPUHour.LessThan(low.Sub(hair)) || e.PerGPUHour.GreaterThan(high.Add(hair)) {
			t.Fatalf("%s is not between %s and %s", e.PerGPUHour, low, high)
		}
	})
}

func TestLearnRefuses(t *testing.T) {
	for want, change := range map[string]func(*reliability.Prior, *reliability.Evidence){
		"GPU-hours to an interruption 0": func(p *reliability.Prior, _ *reliability.Evidence) { p.GPUHours = dec("0") },
		"repair strength -1":             func(p *reliability.Prior, _ *reliability.Evidence) { p.RepairStrength = dec("-1") },
		"is negative":                    func(_ *reliability.Prior, e *reliability.Evidence) { e.RepairMs = -1 },
	} {
		p, e := reliability.Published(), reliability.Evidence{}
		change(&p, &e)
		if _, err := p.Learn(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
