package online

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Holding is what a deployment held of the GPUs of a cluster over some time, and
// what it did with them.
type Holding struct {
	Cluster    string `json:"cluster"`
	Workspace  string `json:"workspace"`
	Deployment string `json:"deployment"`
	Model      string `json:"model"` // of the GPUs, as the catalogue spells it
	// GPUMs is the time held, in milliseconds of a whole GPU.
	GPUMs int64 `json:"gpu_ms"`
	// MostTogether is the most GPUs that one of its units held at once on a node.
	MostTogether int `json:"most_gpus_together"`
	// PeakMiB is the most memory seen in use on a GPU while it alone held it,
	// over PeakKnownMs of device time; both 0 when memory was not measured.
	PeakMiB     uint32 `json:"peak_memory_mib"`
	PeakKnownMs int64  `json:"memory_known_ms"`
	// KnownMs is the part of GPUMs for which activity was measured, ActiveMs that
	// times the activity in per mille.
	KnownMs  int64 `json:"activity_known_ms"`
	ActiveMs int64 `json:"activity_permille_ms"`
}

// Activity returns the mean activity in per mille, false when none was measured.
func (h *Holding) Activity() (perMille int64, ok bool) {
	if h.KnownMs <= 0 {
		return 0, false
	}
	return h.ActiveMs / h.KnownMs, true
}

// Price is what an hour of a GPU of a cluster costs, all in.
type Price struct {
	Currency string
	PerHour  domain.Decimal
}

// Fit says which slice of its GPU would do for a deployment, or why none is
// named.
type Fit struct {
	Holding
	// Profile is the smallest MIG profile that holds the peak of memory and the
	// mean of activity with the headroom asked for; "" when Why says why not.
	Profile string `json:"profile,omitempty"`
	// PerGPU is how many such slices a GPU gives.
	PerGPU uint32 `json:"slices_per_gpu,omitempty"`
	Why    string `json:"why,omitempty"`
	// SavedGPUMs is what of the time held would be free for others, in
	// milliseconds of a whole GPU; a slice counts as the larger of its shares of
	// compute and memory.
	SavedGPUMs int64 `json:"saved_gpu_ms"`
	// Saved is that at the price, rounded half away from zero to cents; nil where
	// there is no price.
	Saved *domain.Money `json:"saved,omitempty"`
}

// Why no slice is named.
const (
	NotMeasured   = "memory was not measured while it alone held a GPU"
	NoActivity    = "activity was not measured"
	NotSliceable  = "the GPU cannot be partitioned"
	NotKnown      = "the GPU model is not in the catalogue"
	SeveralAtOnce = "a unit uses several GPUs together"
	NeedsAll      = "it uses more than any smaller slice has"
)

// Rightsize names for every holding the slice that would do, the largest saving
// first, then by cluster, workspace and deployment. headroom is what a slice is
// to have beyond the peak of memory and the mean of activity, in per mille.
// prices are by cluster.
func Rightsize(held []Holding, headroom int64, prices map[string]Price) []Fit {
	out := make([]Fit, 0, len(held))
	for i := range held {
		out = append(out, rightsize(&held[i], headroom, prices))
	}
	slices.SortFunc(out, func(a, b Fit) int {
		return cmp.Or(cmp.Compare(b.SavedGPUMs, a.SavedGPUMs), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Workspace, b.Workspace),
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
		c, m := big.NewRat(int64(p.ComputeSlices), int64(l.ComputeSlices)), big.NewRat(int64(p.MemorySlices), int64(l.MemorySlices))
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
