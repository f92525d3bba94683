package online

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Holding is what a deployment held of a cluster's GPUs over some time, and how it used them.
type Holding struct {
	Cluster    string `json:"cluster"`
	Workspace  string `json:"workspace"`
	Deployment string `json:"deployment"`
	Model      string `json:"model"` // of the GPUs, as the catalogue spells it
	// GPUMs is the time held, in milliseconds of a whole GPU.
	GPUMs int64 `json:"gpu_ms"`
	// MostTogether is the most GPUs that one of its units held at once on a node.
	MostTogether int `json:"most_gpus_together"`
	// PeakMiB is the peak memory on a GPU while the deployment held it alone, over PeakKnownMs of
	// device time. Both are 0 if memory was not measured.
	PeakMiB     uint32 `json:"peak_memory_mib"`
	PeakKnownMs int64  `json:"memory_known_ms"`
	// KnownMs is the part of GPUMs with measured activity. ActiveMs is that time multiplied by the
	// activity in per mille.
	KnownMs  int64 `json:"activity_known_ms"`
	ActiveMs int64 `json:"activity_permille_ms"`
}

// Activity returns the mean activity in per mille, false if none was measured.
func (h *Holding) Activity() (perMille int64, ok bool) {
	if h.KnownMs <= 0 {
		return 0, false
	}
	return h.ActiveMs / h.KnownMs, true
}

// Price is the all-in price of a GPU-hour of a cluster.
type Price struct {
	Currency string
	PerHour  domain.Decimal
}

// Fit is the slice of its GPU that is enough for a deployment, or why there is none.
type Fit struct {
	Holding
	// Profile is the smallest MIG profile that holds the peak memory and the mean activity with the
	// requested headroom; "" if Why gives a reason.
	Profile string `json:"profile,omitempty"`
	// PerGPU is the number of such slices per GPU.
	PerGPU uint32 `json:"slices_per_gpu,omitempty"`
	Why    string `json:"why,omitempty"`
	// SavedGPUMs is the part of the held time that would become free for others, in milliseconds of
	// a whole GPU. A slice counts as the larger of its shares of compute and memory.
	SavedGPUMs int64 `json:"saved_gpu_ms"`
	// Saved is SavedGPUMs at the price, rounded half away from zero to cents; nil without a price.
	Saved *domain.Money `json:"saved,omitempty"`
}

// Reasons why no slice is named.
const (
	NotMeasured   = "memory was not measured while it alone held a GPU"
	NoActivity    = "activity was not measured"
	NotSliceable  = "the GPU cannot be partitioned"
	NotKnown      = "the GPU model is not in the catalogue"
	SeveralAtOnce = "a unit uses several GPUs together"
	NeedsAll      = "it uses more than any smaller slice has"
)

// Rightsize names the sufficient slice for every holding, sorted by largest saving, then cluster,
// workspace and deployment. headroom is what a slice must have beyond the peak memory and the mean
// activity, in per mille. prices are by cluster.
func Rightsize(held []Holding, headroom int64, prices map[string]Price) []Fit {
	out := make([]Fit, 0, len(held))
	for i := range held {
		out = append(out, rightsize(&held[i], headroom, prices))
	}
	slices.SortFunc(out, func(a, b Fit) int {
		return cmp.Or(cmp.Compare(b.SavedGPUMs, a.SavedGPUMs), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Workspace, b.Workspace),
			cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Model, b.Model))
	})
	return out
}

func rightsize(h *Holding, headroom int64, prices map[string]Price) Fit {
	f := Fit{Holding: *h}
	gpu, known := domain.LookupGPU(h.Model)
	activity, measured := h.Activity()
	switch {
	case !known:
		f.Why = NotKnown
	case gpu.MIG == nil || len(gpu.MIG.Profiles) == 0 || gpu.MemoryMiB == 0:
		f.Why = NotSliceable
	case h.MostTogether > 1:
		f.Why = SeveralAtOnce
	case h.PeakKnownMs == 0:
		f.Why = NotMeasured
	case !measured:
		f.Why = NoActivity
	}
	if f.Why != "" {
		return f
	}
	l := gpu.MIG
	memory, compute := int64(h.PeakMiB)*(1000+headroom), activity*(1000+headroom)
	var best *domain.MIGProfile
	weight := func(p *domain.MIGProfile) *big.Rat {
		c, m := big.NewRat(int64(p.ComputeSlices), int64(l.ComputeSlices)),
			big.NewRat(int64(p.MemorySlices), int64(l.MemorySlices))
		if c.Cmp(m) > 0 {
			return c
		}
		return m
	}
	for i := range l.Profiles {
		p := &l.Profiles[i]
		if strings.ContainsAny(p.Name, "+-") || // with media engines or graphics, or without
			memory > int64(gpu.MemoryMiB)*int64(p.MemorySlices)/int64(l.MemorySlices)*1000 ||
			compute*int64(l.ComputeSlices) > 1_000_000*int64(p.ComputeSlices) {
			continue
		}
		if best == nil || weight(p).Cmp(weight(best)) < 0 {
			best = p
		}
	}
	if best == nil || weight(best).Cmp(big.NewRat(1, 1)) >= 0 {
		f.Why = NeedsAll
		return f
	}
	f.Profile, f.PerGPU = best.Name, best.MaxInstances
	spare := new(big.Rat).Sub(big.NewRat(1, 1), weight(best))
	spare.Mul(spare, new(big.Rat).SetInt64(h.GPUMs))
	f.SavedGPUMs = new(big.Int).Quo(spare.Num(), spare.Denom()).Int64()
	if p, ok := prices[h.Cluster]; ok {
		saved := decimal.NewFromInt(f.SavedGPUMs).Mul(p.PerHour).DivRound(decimal.NewFromInt(3_600_000), 2)
		f.Saved = &domain.Money{Amount: saved, Currency: p.Currency}
	}
	return f
}
