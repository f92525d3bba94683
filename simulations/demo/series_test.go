package demo_test

import (
	"strings"
	"testing"
	"time"

	"quartermaster/simulations/demo"
)

// tenths reads a number with one decimal, in tenths.
func tenths(t testing.TB, text string) int {
	t.Helper()
	whole, digit, ok := strings.Cut(text, ".")
	if !ok || len(digit) != 1 {
		t.Fatalf("%q has not one digit behind the point", text)
	}
	return number(t, whole)*10 + number(t, digit)
}

func TestLoad(t *testing.T) {
	last := map[string]time.Time{}
	hours, gpus := map[string]int{}, map[string]int{}
	var owned, running, pending, bursts int
	var byDay, ownedByDay [7]int
	running0, owned0 := map[string]int{}, map[string]int{}
	for _, r := range rows(t, "load") {
		at, err := time.Parse(time.RFC3339, r["hour"])
		if err != nil {
			t.Fatal(err)
		}
		vc := r["vc"]
		switch before, seen := last[vc]; {
		case !strings.HasPrefix(vc, "vc-a"):
			t.Fatalf("virtual cluster %q is not called generated", vc)
		case !seen && !at.Equal(demo.LoadPeriod.From.Time()), seen && at.Sub(before) != time.Hour:
			t.Fatalf("%s: hour %s follows %s", vc, at, before)
		}
		last[vc] = at
		hours[vc]++
		total, mean, most := number(t, r["total_gpu"]), tenths(t, r["running_gpu_mean"]), number(t, r["running_gpu_max"])
		waits, mostWaits := tenths(t, r["pending_gpu_mean"]), number(t, r["pending_gpu_max"])
		if most > total || mean > 10*most || waits > 10*mostWaits || total%8 != 0 || gpus[vc] != 0 && gpus[vc] != total {
			t.Fatalf("row %v", r)
		}
		gpus[vc] = total
		owned, running, pending = owned+10*total, running+mean, pending+waits
		running0[vc], owned0[vc] = running0[vc]+mean, owned0[vc]+10*total
		byDay[at.Weekday()] += mean
		ownedByDay[at.Weekday()] += 10 * total
		if waits > 10*total/4 {
			bursts++
		}
	}
	total := 0
	for vc, n := range hours {
		total += gpus[vc]
		if n != 31*24 {
			t.Errorf("%s has %d hours, want 744", vc, n)
		}
	}
	if len(hours) != 16 || total < 800 || total > 1000 {
		t.Errorf("%d virtual clusters with %d GPUs, want 16 with 800 to 1000", len(hours), total)
	}
	// Earth, May 2020: 667 per mille, on Sundays 516, from 8 to 910 by virtual
	// cluster, and pending 7 % of what is owned. Within bounds, not equal.
	within(t, "utilisation, per mille", running*1000/owned, 620, 720)
	within(t, "utilisation on Sundays, per mille", byDay[0]*1000/ownedByDay[0], 460, 600)
	within(t, "utilisation on Wednesdays, per mille", byDay[3]*1000/ownedByDay[3], 640, 780)
	within(t, "pending, per mille of owned", pending*1000/owned, 30, 160)
	within(t, "hours of a virtual cluster with a quarter of it pending", bursts, 300, 4000)
	least, most := 1000, 0
	for vc := range hours {
		u := running0[vc] * 1000 / owned0[vc]
		least, most = min(least, u), max(most, u)
	}
	within(t, "least utilisation of a virtual cluster, per mille", least, 0, 80)
	within(t, "greatest utilisation of a virtual cluster, per mille", most, 820, 960)
}

func within(t *testing.T, what string, got, least, most int) {
	t.Helper()
	t.Logf("%s: %d", what, got)
	if got < least || got > most {
		t.Errorf("%s: %d, want %d to %d", what, got, least, most)
	}
}

func TestDemand(t *testing.T) {
	type series struct{ region, machine string }
	sums := map[series]map[string]int{} // by month
	var last time.Time
	seen := map[series]bool{} // in the hour
	hours := 0
	total := map[string][2]int{} // by region: weekdays, weekends
	for _, r := range rows(t, "demand") {
		at, err := time.Parse("2006-01-02 15:04:05.000Z07:00", r["USAGE_HOUR"])
		if err != nil {
			t.Fatal(err)
		}
		if !at.Equal(last) {
			if hours > 0 && at.Sub(last) != time.Hour || hours == 0 && !at.Equal(demo.DemandPeriod.From.Time()) {
				t.Fatalf("hour %s follows %s", at, last)
			}
			last, hours = at, hours+1
			clear(seen)
		}
		s := series{r["REGION_NUM"], r["INSTANCE_TYPE"]}
		n := number(t, r["NORM_USAGE"])
		if seen[s] || n < 1 || n > 600 {
			t.Fatalf("row %v is the second of its hour, or out of bounds", r)
		}
		seen[s] = true
		if sums[s] == nil {
			sums[s] = map[string]int{}
		}
		sums[s][r["USAGE_HOUR"][:7]] += n
		w := total[s.region]
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
			w[1] += n
		} else {
			w[0] += n
		}
		total[s.region] = w
	}
	if hours != 26280 || !last.Add(time.Hour).Equal(demo.DemandPeriod.To.Time()) || len(sums) != 6 {
		t.Errorf("%d hours to %s of %d series, want 26280 of 6", hours, last, len(sums))
	}
	month := func(region, month string) int {
		return sums[series{region, "A"}][month] + sums[series{region, "B"}][month] + sums[series{region, "C"}][month]
	}
	// Regions 1 and 2 grew 5.1- and 3.3-fold; weekends are at 0.76 of weekdays.
	within(t, "growth of region 1, percent", month("1", "2026-05")*100/month("1", "2023-07"), 380, 560)
	within(t, "growth of region 2, percent", month("2", "2026-05")*100/month("2", "2023-07"), 260, 370)
	for region, w := range total {
		within(t, "weekend of region "+region+", percent of weekdays", w[1]*5*100/(w[0]*2), 70, 80)
	}
	for region, moved := range map[string][2]string{"1": {"2024-10", "2025-01"}, "2": {"2025-02", "2025-04"}} {
		a, b := sums[series{region, "A"}], sums[series{region, "B"}]
		if b[moved[0]] != 0 || a[moved[0]] == 0 || a[moved[1]] != 0 || b[moved[1]] == 0 {
			t.Errorf("region %s: type A %d and B %d before, %d and %d after the change", region, a[moved[0]], b[moved[0]], a[moved[1]], b[moved[1]])
		}
		third := 0
		for _, n := range sums[series{region, "C"}] {
			third += n
		}
		within(t, "type C of region "+region+", per mille", third*1000/(total[region][0]+total[region][1]), 30, 90)
	}
}
