package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement/check/certificate"
)

// many is an instance of pools that share nothing, over three years with fifty offers each: terms
// of one month to three years, with and without upfront payments, and demand by the hour that
// follows the day and the week, grows, and jumps.
func many(pools int) *Instance {
	day0, _ := domain.ParseInstant("2026-01-01T00:00:00Z")
	rng := rand.New(rand.NewPCG(11, 13))
	in := &Instance{
		Format: Format, Name: fmt.Sprint(pools, " pools"), Currency: "USD", From: day0,
		Epoch: Months, Epochs: 36, AnnualRate: decimal.New(8, -2), Salvage: decimal.New(5, -1),
	}
	hours := 0
	for _, s := range in.Spans() {
		hours += int(hoursOf(s))
	}
	for i := range pools {
		region, id := fmt.Sprint("r", i%20), fmt.Sprint("pool ", i)
		if i < 20 {
			in.Regions = append(in.Regions, Region{ID: region})
		}
		price := 2 + 38*rng.Float64()
		cents := func(v float64) domain.Decimal { return decimal.New(int64(v*10_000), -4) }
		in.Pools = append(in.Pools, Pool{
			ID: id, Region: region, Class: fmt.Sprint("c", i/20), Unit: "vm", GPUs: 8, OnDemand: &Price{Hourly: cents(price)},
			Spot: &Spot{Price: Price{Hourly: cents(price * 0.4)}, Overhead: decimal.New(5, -2)},
		})
		d := Demand{
			ID: id, Pool: id, Hourly: make([]int, hours), Interruptible: decimal.New(int64(rng.IntN(4)), -1),
			Shortage: cents(10 * price),
		}
		base, swing, growth := 5+rng.IntN(60), 1+rng.IntN(30), rng.Float64()
		for h := range d.Hourly {
			u := base + int(float64(base)*growth*float64(h)/float64(hours))
			if h%168 < 120 && h%24 > 7 && h%24 < 20 {
				u += swing
			}
			d.Hourly[h] = u + rng.IntN(4)
		}
		in.Demands = append(in.Demands, d)
		for k := range 50 {
			term := []int{1, 3, 6, 12, 24, 36}[k%6]
			rate := price * (0.9 - 0.08*float64(k%6)) * (0.9 + 0.2*rng.Float64())
			o := Offer{
				ID: fmt.Sprint(id, " offer ", k), Kind: domain.OfferReserved, Pool: id, Term: term, Hourly: cents(rate),
				GuaranteesCapacity: true,
			}
			if k%3 == 1 {
				o.Upfront, o.Hourly = cents(rate*0.95*730*float64(term)/2), cents(rate*0.95/2)
			}
			if k%10 == 7 {
				o.MaxUnits = 5 + rng.IntN(20)
			}
			in.Offers = append(in.Offers, o)
		}
	}
	return in
}

// BenchmarkManyPools reads the file of an instance of 1,000 pools (QM_BENCH_POOLS), solves it with
// everything that "plan solve" does by default, and writes the answer. The goal is 25 s of CPU and
// 1 GiB for 1,000. QM_BENCH_FILE names a file that gets the instance, for "plan solve" itself.
func BenchmarkManyPools(b *testing.B) {
	pools := 100
	if n, err := strconv.Atoi(os.Getenv("QM_BENCH_POOLS")); err == nil {
		pools = n
	}
	file, err := json.Marshal(many(pools))
	if err != nil {
		b.Fatal(err)
	}
	if path := os.Getenv("QM_BENCH_FILE"); path != "" {
		if err := os.WriteFile(path, file, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		in, err := Parse("many.json", file)
		if err != nil {
			b.Fatal(err)
		}
		a, err := SolveUntil(context.Background(), context.Background(), in, nil, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := EndOfHorizon(context.Background(), in, a, nil, 0); err != nil {
			b.Fatal(err)
		}
		if err := Compare(context.Background(), in, a); err != nil {
			b.Fatal(err)
		}
		a.Forget()
		answer, err := json.Marshal(a)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := certificate.Check(context.Background(), file, answer); err != nil {
			b.Fatal(err)
		}
	}
}
