package online_test

import (
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain/packing/online"
)

func TestRightsize(t *testing.T) {
	const hour = 3_600_000
	held := func(name, model string, peak uint32, active int64) online.Holding {
		return online.Holding{
			Cluster: "c", Workspace: "w", Deployment: name, Model: model, GPUMs: 80 * hour, MostTogether: 1,
			PeakMiB: peak, PeakKnownMs: hour, KnownMs: 1000, ActiveMs: active * 1000,
		}
	}
	together := held("together", "A100 80GB", 100, 10)
	together.MostTogether = 2
	dark := held("dark", "A100 80GB", 0, 10)
	dark.PeakKnownMs = 0
	idle := held("idle", "A100 80GB", 100, 0)
	idle.KnownMs = 0
	fits := online.Rightsize([]online.Holding{
		held("eight", "A100 80GB", 8_000, 100), held("busy", "A100 80GB", 8_000, 200), held("wide", "A100 80GB", 17_000, 10),
		held("over", "A100 80GB", 9_000, 10), held("full", "A100 80GB", 70_000, 900), held("old", "V100 32GB", 100, 10), held("odd", "G2", 100, 10),
		together, dark, idle,
	}, 250, map[string]online.Price{"c": {Currency: "USD", PerHour: decimal.RequireFromString("2.40")}})
	got := map[string]online.Fit{}
	for _, f := range fits {
		got[f.Deployment] = f
	}
	for _, c := range []struct {
		name, profile, why, saved string
		hours                     int64 // tenths saved
	}{
		// One slice of 7 and 8 weighs 1/7; of 80 hours 68.57 are saved. 17,000
		// MiB and a quarter more need four of eight slices of memory.
		{"eight", "1g.10gb", "", "164.57", 685},
		{"busy", "2g.20gb", "", "137.14", 571},
		{"wide", "3g.40gb", "", "96", 400},
		{"over", "1g.20gb", "", "144", 600},
		{"full", "", online.NeedsAll, "", 0},
		{"old", "", online.NotSliceable, "", 0},
		{"odd", "", online.NotKnown, "", 0},
		{"together", "", online.SeveralAtOnce, "", 0},
		{"dark", "", online.NotMeasured, "", 0},
		{"idle", "", online.NoActivity, "", 0},
	} {
		f := got[c.name]
		saved := ""
		if f.Saved != nil {
			saved = f.Saved.Amount.String()
		}
		if f.Profile != c.profile || f.Why != c.why || f.SavedGPUMs*10/hour != c.hours || saved != c.saved {
			t.Errorf("%s: %q %q, saves %d tenths of an hour, %q", c.name, f.Profile, f.Why, f.SavedGPUMs*10/hour, saved)
		}
	}
	if fits[0].Deployment != "eight" {
		t.Errorf("the largest saving is not first: %+v", fits[0])
	}
}
