package projections

import (
	"math"
	"slices"
	"sort"
	"unicode/utf8"

	"quartermaster/domain"
)

// A row of faults holds those of one node and day. A broken GPU, or anyone with a key of
// the cluster, may report any number of them, and a store writes a row as a whole. So a
// row keeps a bounded number of versions, and every event counts in exactly one of them:
//
//   - The same fault from the same source, known on the same day and at most RepeatGap
//     after the one before, is a repeat: one version holds the first time, the last time
//     and the count. The order of arrival does not matter.
//   - Beyond maxFaults fatal versions, and as many others, the two versions of the same
//     fault that are closest in time are merged.
//   - Beyond maxFaults different faults, a new one is counted in the rest of its kind.
//     The rest of fatal faults is kept for each GPU, up to maxFaultGPUs. Beyond those it
//     belongs to the node as a whole, which then counts as failed: no flood of faults
//     hides a failure.
//
// Fatal and other faults have separate bounds. A row usually has up to 64 KiB, and at
// most 512 KiB if every text in it is as long as [domain.Validate] allows.
const (
	RepeatGap    = 60 * domain.Second
	maxFaults    = 48
	maxFaultGPUs = 16
	// From maxLongTexts versions on, the texts of a new one are truncated to maxShortText bytes.
	maxLongTexts = 8
	maxShortText = 128
)

// Events returns the number of events that a version stands for.
func (v *Version) Events() uint64 { return max(1, v.Count) }

// LastAt returns the effective time of the last event that a version stands for.
func (v *Version) LastAt() domain.Instant { return max(v.Order.Effective, v.Last) }

// enterFault adds a fault, or a version of several faults.
func (h *History) enterFault(v Version) {
	f := *v.Event.(*domain.GPUFaultObserved)
	if len(h.Versions) >= maxLongTexts {
		f.Detail, f.Action = shorten(f.Detail), shorten(f.Action)
	}
	v.Event = &f
	from, to, n := v.Order.Effective, v.LastAt(), 0
	joined := false
	for i := 0; i < len(h.Versions); i++ {
		have := &h.Versions[i]
		if have.Order.Effective-to <= RepeatGap && from-have.LastAt() <= RepeatGap && have.repeats(&v) {
			v = mergeFaults(&v, have)
			h.Versions = slices.Delete(h.Versions, i, i+1)
			i--
			joined = true
		} else if !have.Rest && fatal(have) == f.Fatal {
			n++
		}
	}
	if joined || n < maxFaults {
		h.put(v)
		return
	}
	h.put(v)
	if h.mergeClosest(f.Fatal) {
		return
	}
	// All are different: count this one in the rest of its kind.
	h.Versions = slices.DeleteFunc(h.Versions, func(w Version) bool { return w.Order == v.Order })
	gpu := domain.GPUID{}
	if f.Fatal && h.roomFor(f.Kind, f.GPU) {
		gpu = f.GPU
	}
	v.Rest, v.Workspace, v.Signer = true, "", nil
	v.Event = &domain.GPUFaultObserved{
		Node: f.Node, GPU: gpu, Kind: f.Kind, Count: f.Count, Fatal: f.Fatal,
		Detail: "one of more faults than are kept apart",
	}
	for i := range h.Versions {
		have := &h.Versions[i]
		if r := have.Event.(*domain.GPUFaultObserved); have.Rest && r.Kind == f.Kind && r.GPU == gpu && r.Fatal == f.Fatal {
			v = mergeFaults(&v, have)
			h.Versions = slices.Delete(h.Versions, i, i+1)
			break
		}
	}
	h.put(v)
}

// put inserts a version in its place.
func (h *History) put(v Version) {
	i := sort.Search(len(h.Versions), func(i int) bool { return h.Versions[i].Order.After(v.Order) })
	h.Versions = slices.Insert(h.Versions, i, v)
}

// roomFor reports whether the rest of a kind's fatal faults is kept for a GPU.
func (h *History) roomFor(kind domain.FaultKind, gpu domain.GPUID) bool {
	n := 0
	for i := range h.Versions {
		v := &h.Versions[i]
		f := v.Event.(*domain.GPUFaultObserved)
		if !v.Rest || !f.Fatal || f.GPU == (domain.GPUID{}) {
			continue
		}
		if f.Kind == kind && f.GPU == gpu {
			return true
		}
		n++
	}
	return n < maxFaultGPUs
}

// mergeClosest merges the two versions of the same fault that are closest in time; of several such
// pairs, the first. It reports false if no fault occurs twice.
func (h *History) mergeClosest(isFatal bool) bool {
	first, second, least := -1, -1, domain.Instant(math.MaxInt64)
	for i := range h.Versions {
		a := &h.Versions[i]
		if a.Rest || fatal(a) != isFatal {
			continue
		}
		for j := i + 1; j < len(h.Versions); j++ {
			b := &h.Versions[j]
			if !a.repeats(b) {
				continue
			}
			if apart := b.Order.Effective - a.LastAt(); apart < least {
				first, second, least = i, j, apart
			}
			break // the next version of the fault is the closest to this one
		}
	}
	if first < 0 {
		return false
	}
	h.Versions[first] = mergeFaults(&h.Versions[first], &h.Versions[second])
	h.Versions = slices.Delete(h.Versions, second, second+1)
	return true
}

// mergeFaults merges two versions. The result has the content of the first, and is known since the
// first became known.
func mergeFaults(a, b *Version) Version {
	if a.Order.After(b.Order) {
		a, b = b, a
	}
	v := *a
	v.Count, v.Last = a.Events()+b.Events(), max(a.LastAt(), b.LastAt())
	if known := b.Known(); known < a.Known() {
		v.Recorded = known
	}
	f := *a.Event.(*domain.GPUFaultObserved)
	if more := b.Event.(*domain.GPUFaultObserved).Count; f.Count > math.MaxUint64-more {
		f.Count = math.MaxUint64
	} else {
		f.Count += more
	}
	v.Event = &f
	return v
}

func fatal(v *Version) bool { return v.Event.(*domain.GPUFaultObserved).Fatal }

// repeats reports whether two versions are of the same fault, from one source, and became known on
// the same day. So what is known at the end of a day does not change later.
func (v *Version) repeats(w *Version) bool {
	return sameFault(v, w) && v.Order.Source == w.Order.Source && DayOf(v.Known()) == DayOf(w.Known())
}

// sameFault reports whether two versions are equal and of the same device, ignoring counts. It
// ignores texts too, except those of monitoring systems, because a driver's text names processes
// and addresses.
func sameFault(v, w *Version) bool {
	a, b := v.Event.(*domain.GPUFaultObserved), w.Event.(*domain.GPUFaultObserved)
	if a.Code != b.Code || a.GPU != b.GPU || v.Workspace != w.Workspace ||
		v.Rest || w.Rest || v.Signer != nil || w.Signer != nil {
		return false
	}
	x, y := *a, *b
	x.Count, y.Count = 0, 0
	if !Scraped(v.Order.Source) || !Scraped(w.Order.Source) {
		x.Detail, y.Detail = "", ""
	}
	return x == y
}

// sight reports whether a fault is a further sighting of one that a monitoring system saw within
// SightingGap of it, and notes when it was last seen: if a GPU was returned in between, it has
// failed again (see Resume). The first sighting is the time of the fault: if v is earlier, it
// replaces the other.
func (h *History) sight(v *Version) bool {
	for i := range h.Versions {
		have := &h.Versions[i]
		to := have.Order.Effective // of one fault; further sightings do not extend it
		if have.Count > 0 {
			to = have.LastAt()
		}
		near := v.Order.Effective-to <= SightingGap && have.Order.Effective-v.Order.Effective <= SightingGap
		if !near || !Scraped(have.Order.Source) || !sameFault(have, v) {
			continue
		}
		if !have.Order.After(v.Order) {
			if v.Order.Effective > have.LastAt() {
				have.Last = v.Order.Effective
			}
			return true
		}
		v.Count, v.Last = have.Count, have.LastAt()
		h.Versions = slices.Delete(h.Versions, i, i+1)
		return false
	}
	return false
}

// shorten truncates a text.
func shorten(s string) string {
	if len(s) <= maxShortText {
		return s
	}
	n := maxShortText - len("…")
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Until returns the part of a version up to at. If repeats continue beyond at, it counts the share
// that belongs there if they are evenly spread.
func (v *Version) Until(at domain.Instant) Version {
	w := *v
	first := v.Order.Effective
	switch {
	case v.Last <= at:
	case at <= first || v.Count == 0:
		w.Count, w.Last = 0, 0
	default:
		w.Count, w.Last = 1+portion(v.Events()-1, uint64(at-first), uint64(v.Last-first)), at
	}
	return w
}

// Resume inserts the continuation of a fault whose device was returned between its repeats. The
// fault is assumed to recur at once, although it may have recurred later: by up to RepeatGap, or
// SightingGap for a monitoring system, or at any time up to the last repeat if the row was full.
// The versions MUST be in order, and stay in order.
func Resume(versions []Version) []Version {
	var going []*Version
	var out []Version
	for i := range versions {
		v := &versions[i]
		if out != nil {
			out = append(out, *v)
		}
		switch v.Event.(type) {
		case *domain.GPUFaultObserved:
			if v.Last > v.Order.Effective {
				going = append(going, v)
			}
		case *domain.NodeReturned:
			at := v.Order.Effective
			going = slices.DeleteFunc(going, func(f *Version) bool { return f.Last <= at || v.Left && Ends(v, f) })
			for _, f := range going {
				if !Ends(v, f) {
					continue
				}
				if out == nil {
					out = slices.Clone(versions[:i+1])
				}
				again := *f
				again.Order.Effective, again.Count, again.Last = at, 0, 0
				out = append(out, again)
			}
		}
	}
	if out == nil {
		return versions
	}
	return out
}

// SpreadRepeats appends a version. If it stands for several events, it appends evenly spread
// copies, at least least apart.
func SpreadRepeats(versions []Version, v *Version, least domain.Instant) []Version {
	versions = append(versions, *v)
	n := domain.Instant(min(v.Events()-1, math.MaxInt64))
	if n == 0 {
		return versions
	}
	step := max(1, least, (v.LastAt()-v.Order.Effective)/n)
	one := *v
	one.Count, one.Last = 0, 0
	for at := v.Order.Effective + step; at <= v.Last; at += step {
		one.Order.Effective = at
		versions = append(versions, one)
	}
	return versions
}

// Ends reports whether a return to service ends what a fault, a cordon or a drain began. A return
// of only faults ends those of its device, or of the node itself, and no cordon. A return reported
// by a monitoring system ends only a cordon that a monitoring system reported: that a scheduler
// would use a node does not repair its GPUs.
func Ends(returned, begun *Version) bool {
	r := returned.Event.(*domain.NodeReturned)
	if Scraped(returned.Order.Source) {
		_, cordon := begun.Event.(*domain.NodeCordoned)
		return cordon && Scraped(begun.Order.Source)
	}
	if !r.Faults {
		return true
	}
	f, fault := begun.Event.(*domain.GPUFaultObserved)
	return fault && f.GPU == r.GPU
}
