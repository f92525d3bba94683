package procurement_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

func TestValidateNamesTheField(t *testing.T) {
	const most = procurement.MaxUnits
	for want, change := range map[string]func(*procurement.Pool, *procurement.Epoch, *procurement.Offer){
		"epochs: none":                       func(p *procurement.Pool, _ *procurement.Epoch, _ *procurement.Offer) { p.Epochs = nil },
		"epoch 1: span: ends before":         func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Span.To = e.Span.From - 1 },
		"epoch 1: demand[0].units -1":        func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Demand[0].Units = -1 },
		"demand[1].units 2: not above the 2": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Demand[1].Units = 2 },
		"demand[1].units 1: not above the 2": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Demand[1].Units = 1 },
		"demand[1].units 1000000001":         func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Demand[1].Units = most + 1 },
		"demand[0].hours 0":                  func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Demand[0].Hours = 0 },
		"demand[1].hours 1000000000": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Demand[1].Hours = procurement.MaxHours
		},
		"shortage -1: negative": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Shortage, e.OnDemand, e.Spot = -1, -1, -1
		},
		"shortage 3: below on-demand 5": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Shortage = 3 },
		"shortage 9: below spot 10":     func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Spot = 10 },
		"shortage 100000000000000001: a unit that is short": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Shortage = procurement.MaxWorth/10 + 1
		},
		"epoch 1: shortage 100000000000000000: a unit that is short": func(p *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			p.Epochs[0].Shortage, e.Shortage = procurement.MaxWorth/10, procurement.MaxWorth/10
		},
		"weights[1] 0: below 1": func(p *procurement.Pool, _ *procurement.Epoch, _ *procurement.Offer) { p.Weights = []int{3, 0} },
		"weights[1] 2: below 1, or the sum": func(p *procurement.Pool, _ *procurement.Epoch, _ *procurement.Offer) {
			p.Weights = []int{procurement.MaxWeight - 1, 2}
		},
		"epoch 1: cases: 1, of 2 scenarios": func(p *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			p.Weights, e.Cases, e.Demand = []int{1, 1}, make([]procurement.Case, 1), nil
		},
		"epoch 1: cases: 2, of 1 scenarios": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Cases = make([]procurement.Case, 2)
		},
		"demand: there are cases too": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Cases = make([]procurement.Case, 1)
		},
		"epoch 1: cases[0]: spot units -2": func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			e.Cases, e.Demand = []procurement.Case{{SpotUnits: -2}}, nil
		},
		"cases[1]: demand[0].hours 100000001": func(p *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			p.Weights, e.Demand, e.Shortage, e.OnDemand, e.Spot = []int{1, 9}, nil, 0, 0, 0
			e.Cases = []procurement.Case{{Demand: []procurement.Step{{Units: 1, Hours: most / 10}}}, {Demand: []procurement.Step{{Units: 1, Hours: most/10 + 1}}}}
		},
		"span: more than 1000000000 hours over all": func(p *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			p.Weights, e.Demand, e.Span.To = []int{1000}, nil, 1_000_001*domain.Hour
		},
		"epoch 1: shortage 50000000000000001: a unit that is short": func(p *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) {
			p.Weights, e.Shortage = []int{1, 1}, procurement.MaxWorth/20+1
		},
		"starts[1].cost 500000000000000001: not within": func(p *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) {
			p.Weights, o.Starts[1].Cost = []int{1, 1}, procurement.MaxWorth/2+1
		},
		"spot permille 1001":                   func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.SpotPermille = 1001 },
		"quota -2":                             func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.Quota = -2 },
		"held guaranteed -1":                   func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.HeldGuaranteed = -1 },
		"held discount-only 1000000001":        func(_ *procurement.Pool, e *procurement.Epoch, _ *procurement.Offer) { e.HeldDiscountOnly = most + 1 },
		`offer 0 ("o"): term 0`:                func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) { o.Term = 0 },
		"starts[1].epoch 2: not within 0 to 1": func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) { o.Starts[1].Epoch = 2 },
		"starts[1].epoch 0: not after the 0":   func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) { o.Starts[1].Epoch = 0 },
		"starts[0].cost -1":                    func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) { o.Starts[0].Cost = -1 },
		"starts[0].cost 1000000000000000001": func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) {
			o.Starts[0].Cost = procurement.MaxWorth + 1
		},
		"starts[0].max -2: neither Unlimited nor": func(_ *procurement.Pool, _ *procurement.Epoch, o *procurement.Offer) { o.Starts[0].Max = -2 },
	} {
		epoch := func() procurement.Epoch {
			return procurement.Epoch{Span: domain.Interval{To: 10 * domain.Hour}, Demand: []procurement.Step{{Units: 2, Hours: 4}, {Units: 3, Hours: 6}}, OnDemand: 5, Spot: 2, Shortage: 9, SpotPermille: 1000}
		}
		p := &procurement.Pool{ID: "p", Epochs: []procurement.Epoch{epoch(), epoch()}, Offers: []procurement.Offer{
			{ID: "o", Term: math.MaxInt, Starts: []procurement.Start{{Epoch: 0, Max: procurement.Unlimited}, {Epoch: 1, Max: 1}}},
		}}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		change(p, &p.Epochs[1], &p.Offers[0])
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), `pool "p": `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := procurement.Solve(p); err == nil {
			t.Errorf("solved, despite %s", want)
		}
	}
}

// Steps count hours, whatever their order and range.
func TestSteps(t *testing.T) {
	long.Check(t, 166, 50_000, func(t *rapid.T) {
		high := rapid.SampledFrom([]int{1, 9, 2000, 1 << 40}).Draw(t, "high")
		hours := rapid.SliceOf(rapid.IntRange(0, high)).Draw(t, "hours")
		steps := procurement.Steps(hours)
		var back []int
		for i, s := range steps {
			if i > 0 && s.Units <= steps[i-1].Units {
				t.Fatalf("%v does not ascend", steps)
			}
			back = append(back, slices.Repeat([]int{s.Units}, s.Hours)...)
		}
		want := slices.DeleteFunc(slices.Sorted(slices.Values(hours)), func(u int) bool { return u == 0 })
		if !slices.Equal(back, want) {
			t.Fatalf("%v from %v", steps, hours)
		}
	})
	if s := procurement.Steps([]int{3, -1, 0}); len(s) != 2 || s[0].Units != -1 {
		t.Errorf("negative demand became %v", s)
	}
}
