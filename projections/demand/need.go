package demand

import (
	"slices"
	"strings"

	"quartermaster/domain"
)

// Nowhere is an entry in a list of allowed models, countries or clusters if rules leave nothing,
// because an empty list allows everything. Identifiers contain no control characters, so it matches
// none.
const Nowhere = "\x00nowhere"

// GPUNeed returns the GPUs that one replica needs in thousandths, 1000 for each whole
// one, and the models that this is for, sorted; none: any.
//
//   - Whole GPUs and parts of one are as declared. A required memory rules out models
//     on which that part, or one whole GPU, has less.
//   - A MIG profile is the larger of its shares of compute and memory, rounded up, on
//     the model where that is largest. Models without the profile are ruled out. If no
//     model is named, the models present in the fleet are used. A profile that is not in
//     the catalogue takes a whole GPU, and so does any profile on a model whose profiles
//     are unknown.
//   - Memory alone is the share of a GPU that has it, rounded up, or that many whole
//     GPUs, on the model where that is largest. If no model is named, it is the fewest
//     whole GPUs that suffice on some model.
//
// A model that the catalogue does not know, or whose memory is unknown, is accepted if
// it is named, and ignored otherwise. For memory alone, an unknown model gives a whole
// GPU.
func GPUNeed(n *domain.GPUNeed, present []string) (milli int64, models []string) {
	models = AllowedModels(n.Models)
	// within keeps the models that fits accepts. Unknown models stay if named.
	within := func(fits func(domain.GPUModel) bool) {
		if len(models) == 0 {
			for _, m := range domain.GPUModels() {
				if m.MemoryMiB > 0 && fits(m) {
					models = append(models, m.Name)
				}
			}
		} else {
			models = slices.DeleteFunc(models, func(name string) bool {
				m, known := domain.LookupGPU(name)
				return known && m.MemoryMiB > 0 && !fits(m)
			})
		}
		slices.Sort(models)
		if len(models) == 0 {
			models = []string{Nowhere}
		}
	}
	switch {
	case n.MIGProfile != "" && hasProfile(n.MIGProfile):
		return migNeed(n, models, present)
	case n.MIGProfile != "":
		milli = 1000
	case n.Count == 1 && n.Milli > 0 && n.Milli < 1000:
		milli = int64(n.Milli)
	case n.Count > 0:
		milli = int64(n.Count) * 1000
	case n.MemoryMiB > 0:
		return memoryNeed(n.MemoryMiB, models)
	default:
		return 0, nil
	}
	if n.MemoryMiB > 0 {
		part := uint64(min(milli, 1000))
		within(func(m domain.GPUModel) bool { return m.MemoryMiB*part/1000 >= n.MemoryMiB })
	}
	return milli, models
}

// hasProfile reports whether any model of the catalogue has a MIG profile.
func hasProfile(name string) bool {
	return slices.ContainsFunc(domain.GPUModels(), func(m domain.GPUModel) bool {
		_, ok := m.MIG.Profile(name)
		return ok
	})
}

func migNeed(n *domain.GPUNeed, models, present []string) (milli int64, fit []string) {
	named := models
	if len(named) == 0 {
		named = slices.DeleteFunc(slices.Clone(present), func(name string) bool {
			m, _ := domain.LookupGPU(name)
			_, ok := m.MIG.Profile(n.MIGProfile)
			return !ok
		})
	}
	if len(named) == 0 {
		for _, m := range domain.GPUModels() {
			named = append(named, m.Name)
		}
	}
	var families, whole []string
	for _, name := range named {
		m, known := domain.LookupGPU(name)
		p, ok := m.MIG.Profile(n.MIGProfile)
		switch {
		case ok:
			compute, memory := int64(m.MIG.ComputeSlices), int64(m.MIG.MemorySlices)
			if m.MemoryMiB*uint64(p.MemorySlices)/uint64(memory) >= n.MemoryMiB {
				fit = append(fit, name)
				milli = max(milli, ceilDiv(1000*int64(p.ComputeSlices), compute), ceilDiv(1000*int64(p.MemorySlices), memory))
			}
		case known && m.MIG != nil && m.MemoryMiB == 0:
			families = append(families, name) // the family's members are in the list too
		case len(models) > 0 && (!known || m.MIG != nil && len(m.MIG.Profiles) == 0 && m.MemoryMiB >= n.MemoryMiB):
			whole = append(whole, name)
		}
	}
	if len(fit) > 0 && len(models) > 0 {
		fit = append(fit, families...)
	}
	if len(whole) > 0 {
		milli, fit = 1000, append(fit, whole...)
	}
	if len(fit) == 0 {
		return 1000, []string{Nowhere}
	}
	slices.Sort(fit)
	return milli, fit
}

func memoryNeed(mib uint64, models []string) (milli int64, fit []string) {
	mib = min(mib, 1<<40)
	gpus := func(m domain.GPUModel) int64 { return ceilDiv(int64(mib), int64(m.MemoryMiB)) }
	if len(models) > 0 {
		for _, name := range models {
			m, known := domain.LookupGPU(name)
			switch {
			case !known:
				milli = max(milli, 1000)
			case m.MemoryMiB == 0: // a family, whose smallest member is in the list too
			case gpus(m) > 1:
				milli = max(milli, 1000*gpus(m))
			default:
				milli = max(milli, ceilDiv(1000*int64(mib), int64(m.MemoryMiB)))
			}
		}
		return milli, models
	}
	var fewest int64
	for _, m := range domain.GPUModels() {
		if m.MemoryMiB > 0 && (fewest == 0 || gpus(m) < fewest) {
			fewest = gpus(m)
		}
	}
	for _, m := range domain.GPUModels() {
		if m.MemoryMiB > 0 && gpus(m) == fewest {
			fit = append(fit, m.Name)
		}
	}
	slices.Sort(fit)
	return 1000 * fewest, fit
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// AllowedModels returns the catalogue's names of models, including those that a name leaves open:
// "H100" allows every H100, "H100 80GB" the SXM and the PCIe one. The list is sorted.
func AllowedModels(names []string) []string {
	var out []string
	for _, name := range names {
		m, known := domain.LookupGPU(name)
		if !known {
			out = append(out, name)
			continue
		}
		words := strings.Fields(m.Name)
		for _, other := range domain.GPUModels() {
			has := strings.Fields(other.Name)
			if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(has, w) }) {
				out = append(out, other.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
