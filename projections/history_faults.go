package projections

import (
	"math"
	"slices"
	"sort"
	"unicode/utf8"

	"quartermaster/domain"
)

// A row of faults holds those of a node and day. A broken GPU, or whoever has a key of
// the cluster, may report any number of them, and a store writes a row whole. So a row
// keeps a bounded number of versions, and every event counts in exactly one of them:
//
//   - The same fault from the same source, known on the same day, no more than
//     repeatGap after the one before, is a repeat: one version with the first time, the
//     last and the count. This does not depend on the order of arrival.
//   - Beyond maxFaults fatal ones, and as many others, the two versions of the same
//     fault that are closest in time become one.
//   - Beyond maxFaults different ones, a new one is counted with the rest of its kind.
//     The rest of fatal ones is kept for each GPU, up to maxFaultGPUs. Beyond those it
//     is of the node as a whole, which then counts as failed: no flood of faults hides
//     that something failed.
//
// Fatal faults and others do not share a bound. A row has 64 KiB or less, and at most
// 512 KiB where every text in it is as long as [domain.Validate] allows.
const (
	RepeatGap    = 60 * domain.Second
	maxFaults    = 48
	maxFaultGPUs = 16
	// From maxLongTexts versions on, the texts of a new one are cut to maxShortText bytes.
	maxLongTexts = 8
	maxShortText = 128
)

// Events returns how many events a version stands for.
func (v *Version) Events() uint64 { return max(1, v.Count) }

// LastAt returns when the last event took effect that a version stands for.
func (v *Version) LastAt() domain.Instant { return max(v.Order.Effective, v.Last) }

// enterFault counts a fault, or a version of several.
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
	// All are different: this one is counted with the rest of its kind.
	h.Versions = slices.DeleteFunc(h.Versions, func(w Version) bool { return w.Order == v.Order })
	gpu := domain.GPUID{}
	if f.Fatal && h.roomFor(f.Kind, f.GPU) {
		gpu = f.GPU
	}
	v.Rest, v.Workspace, v.Signer = true, "", nil
	v.Event = &domain.GPUFaultObserved{Node: f.Node, GPU: gpu, Kind: f.Kind, Count: f.Count, Fatal: f.Fatal, Detail: "one of more faults than are kept apart"}
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

// put enters a version in its place.
func (h *History) put(v Version) {
	i := sort.Search(len(h.Versions), func(i int) bool { return h.Versions[i].Order.After(v.Order) })
	h.Versions = slices.Insert(h.Versions, i, v)
}

// roomFor reports whether the rest of fatal faults of a kind is kept for a GPU.
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

// mergeClosest makes one of the two versions of the same fault that are closest in time;
// of several such pairs, of the first. It reports false where no fault is there twice.
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
			break // the next one of the fault is the closest to this
		}
	}
	if first < 0 {
		return false
	}
	h.Versions[first] = mergeFaults(&h.Versions[first], &h.Versions[second])
	h.Versions = slices.Delete(h.Versions, second, second+1)
	return true
}

// mergeFaults returns one version for two. It says what the first of them said, and is
// known since the first of them was.
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

// repeats reports whether two versions are of the same fault, from one source, and
// became known on the same day: what is known by the end of a day does not change later.
func (v *Version) repeats(w *Version) bool {
	return sameFault(v, w) && v.Order.Source == w.Order.Source && DayOf(v.Known()) == DayOf(w.Known())
}

// sameFault reports whether two versions say the same of the same device, but for how
// often and, unless a monitoring system said it, the text: a driver's text names
// processes and addresses.
func sameFault(v, w *Version) bool {
	a, b := v.Event.(*domain.GPUFaultObserved), w.Event.(*domain.GPUFaultObserved)
	if a.Code != b.Code || a.GPU != b.GPU || v.Rest || w.Rest || v.Signer != nil || w.Signer != nil || v.Workspace != w.Workspace {
		return false
	}
	x, y := *a, *b
	x.Count, y.Count = 0, 0
	if !Scraped(v.Order.Source) || !Scraped(w.Order.Source) {
		x.Detail, y.Detail = "", ""
	}
	return x == y
}

// sight reports whether a fault is a further sighting of one that a monitoring system
// saw within sightingGap of it, and notes when it was seen last: a GPU that was returned
// in between has failed again (see resume). The first sighting is when it happened: where
// v is earlier, it takes the place of the other.
func (h *History) sight(v *Version) bool {
	for i := range h.Versions {
		have := &h.Versions[i]
		to := have.Order.Effective // of one fault; it does not go on by being seen again
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

// shorten cuts a text.
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

// Until returns what a version stands for of the time up to at: of repeats that go on
// beyond it, as many as belong there if they are evenly spread.
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

// Resume enters that a fault goes on where its device is returned amid its repeats: it
// is taken as back at once, although it may have come repeatGap later (sightingGap, of a
// monitoring system), or at any time up to the last repeat where the row was full. The
// versions are in order, and stay so.
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

// SpreadRepeats appends a version and, where it stands for several events, as many of
// them as are least apart from each other, taken as evenly spread.
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

// Ends reports whether a return to service ends what a fault, a cordon or a drain
// began. One of faults alone ends those of its device, or of the node itself, and no
// cordon. What a monitoring system says ends only a cordon that one made: that a
// scheduler would use a node does not mend its GPUs.
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
