package procurement_test

import (
	"fmt"
	"math"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// realistic is a pool of three years' hourly demand: growth from hundreds to
// 2,000 units, a day and a week, and noise from a fixed linear congruence.
// Twelve offers have terms of 1, 3, 6, 12, 24 and 36 months with three levels of
// payment, each to begin in any month after its lead time.
func realistic(seed uint64, perDay int) (hours [][]int, pool func([][]procurement.Step) *procurement.Pool) {
	const days = 1095
	noise := seed
	for d := range days {
		if perDay == 1 || d == 0 || d*36/days != (d-1)*36/days {
			hours = append(hours, nil)
		}
		last := &hours[len(hours)-1]
		for h := range 24 {
			noise = noise*6364136223846793005 + 1442695040888963407
			level := 400 + 1000*float64(d)/days + 200*math.Sin(float64(d)/60)
			day := 1 + 0.25*math.Sin(float64(h-9)*math.Pi/12)
			if d%7 >= 5 {
				day *= 0.85
			}
			*last = append(*last, int(level*day)+int(noise>>58))
		}
	}
	pool = func(steps [][]procurement.Step) *procurement.Pool {
		p := &procurement.Pool{ID: fmt.Sprintf("realistic-%d", seed)}
		month := len(steps) / 36
		at := domain.Instant(0)
		for m, st := range steps {
			n := len(hours[m])
			p.Epochs = append(p.Epochs, procurement.Epoch{
				Span: domain.Interval{From: at, To: at + domain.Instant(n)*domain.Hour}, Demand: st,
				OnDemand: 2_500_000_000 - 5_000_000*procurement.Nano(m/month), Spot: 1_300_000_000, Shortage: 20_000_000_000,
				SpotPermille: 150, Quota: 600, HeldGuaranteed: max(0, 200-10*(m/month)),
			})
			at += domain.Instant(n) * domain.Hour
		}
		for i, o := range []struct{ months, permille int }{
			{1, 900}, {1, 950}, {3, 850}, {3, 820}, {6, 760}, {6, 740}, {12, 644}, {12, 550}, {12, 539}, {24, 480}, {36, 445}, {36, 357},
		} {
			offer := procurement.Offer{ID: fmt.Sprintf("offer-%02d", i), Guaranteed: true, Term: o.months * month}
			for e := i % 3 * month; e < len(steps); e++ {
				hours := procurement.Nano(0)
				for m := e; m < min(e+offer.Term, len(steps)); m++ {
					hours += procurement.Nano((p.Epochs[m].Span.To - p.Epochs[m].Span.From) / domain.Hour)
				}
				offer.Starts = append(offer.Starts, procurement.Start{Epoch: e, Cost: hours * 2_500_000 * procurement.Nano(o.permille), Max: procurement.Unlimited})
			}
			p.Offers = append(p.Offers, offer)
		}
		return p
	}
	return hours, pool
}

func steps(hours [][]int) [][]procurement.Step {
	out := make([][]procurement.Step, len(hours))
	for i, h := range hours {
		out[i] = procurement.Steps(h)
	}
	return out
}

func BenchmarkSolve(b *testing.B) {
	for _, perDay := range []int{0, 1} {
		b.Run(fmt.Sprint(perDay), func(b *testing.B) {
			hours, pool := realistic(1, perDay)
			b.ReportAllocs()
			for b.Loop() {
				s, err := procurement.Solve(pool(steps(hours)))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(s.Work.Pushes), "pushes")
			}
		})
	}
}
