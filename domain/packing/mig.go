package packing

import (
	"cmp"
	"math/bits"
	"slices"

	"quartermaster/domain"
)

// A GPU that is divided into MIG instances is a row of memory slices. An instance of a profile
// takes a number of adjacent slices from one of a few starts. Two rules determine the legal starts:
// the start is a multiple of the memory slices taken, and at least as many compute slices as the
// profile has remain from the start on. On GPUs with 7 compute and 8 memory slices this gives the
// placements that NVIDIA publishes for A100 and H100 (Multi-Instance GPU User Guide, "Supported MIG
// Profiles", and its listing of "nvidia-smi mig -lgipp"): one slice from 0 to 6; two slices with
// one compute slice from 0, 2, 4, 6; 2g from 0, 2, 4; 3g from 0, 4; 4g and 7g from 0 only. A
// profile for which the vendor allows a single instance although there is room for more (media
// extensions) is limited to one per GPU.

// profile is the geometry of one profile on the GPUs of a class.
type profile struct {
	size   int // memory slices
	starts []int
	single bool // one per GPU
	layout *layout
}

// layout is all profiles of a GPU, used to see what an instance takes from others.
type layout struct{ profiles []profile }

// gpuMask has a bit for each memory slice of a divided GPU that is taken, and one more if an
// instance of a one-per-GPU profile is there.
type gpuMask uint16

const singleBit gpuMask = 1 << 8

// The choice of where an instance goes is encoded in the 16 bits that otherwise say from which GPU
// a part is taken: a divided flag, the start, and the GPU's previous mask.
const (
	dividedBit = 1 << 15
	startShift = 9
)

func encode(start int, before gpuMask) uint16 {
	return dividedBit | uint16(start)<<startShift | uint16(before)
}

func decode(from uint16) (start int, before gpuMask) {
	return int(from >> startShift & 7), gpuMask(from & (1<<startShift - 1))
}

// taken is the mask of an instance at a start.
func (f *profile) taken(start int) gpuMask {
	m := gpuMask(1<<f.size-1) << start
	if f.single {
		m |= singleBit
	}
	return m
}

// fits reports whether an instance fits there.
func (f *profile) fits(start int, on gpuMask) bool { return on&f.taken(start) == 0 }

// room is the number of further instances that a GPU takes. Starts are multiples of the size, so
// instances never overlap partially.
func (f *profile) room(on gpuMask) int {
	n := 0
	for _, s := range f.starts {
		if f.fits(s, on) {
			n++
		}
	}
	if f.single {
		n = min(n, 1)
	}
	return n
}

// choice returns the start that takes the least from what other instances could still have, and how
// much that is; false if there is none.
func (f *profile) choice(on gpuMask) (start, loss int, ok bool) {
	was := f.layout.promise(on)
	for _, s := range f.starts {
		if !f.fits(s, on) {
			continue
		}
		if by := was - f.layout.promise(on|f.taken(s)); !ok || by < loss {
			start, loss, ok = s, by, true
		}
	}
	return start, loss, ok
}

// promise sums the remaining room of a GPU over all profiles.
func (l *layout) promise(on gpuMask) int {
	sum := 0
	for i := range l.profiles {
		f := &l.profiles[i]
		if !f.single {
			sum += f.room(on) * f.size
		}
	}
	return sum
}

// layoutOf returns the MIG layout of a node, nil if its GPUs cannot be divided or the vendor's
// table is unknown.
func layoutOf(n *Node) *domain.MIGLayout {
	if !n.MIG || n.GPUs == 0 {
		return nil
	}
	m, ok := domain.LookupGPU(n.Model)
	if !ok || m.MIG == nil || m.MIG.MemorySlices > 8 {
		return nil
	}
	return m.MIG
}

// profileOn returns the geometry of a profile on a node's GPUs, nil if it does not fit.
func profileOn(name string, n *Node) *profile {
	l := layoutOf(n)
	p, ok := l.Profile(name)
	if !ok {
		return nil
	}
	all := &layout{}
	for _, other := range l.Profiles {
		all.profiles = append(all.profiles, lie(l, other, all))
	}
	f := lie(l, p, all)
	return &f
}

func lie(l *domain.MIGLayout, p domain.MIGProfile, all *layout) profile {
	f := profile{size: int(p.MemorySlices), layout: all}
	for s := 0; s+f.size <= int(l.MemorySlices) && s+int(p.ComputeSlices) <= int(l.ComputeSlices); s += f.size {
		f.starts = append(f.starts, s)
	}
	f.single = int(p.MaxInstances) < len(f.starts)
	return f
}

// profileWeight is the larger of a profile's shares of a GPU, in thousandths, rounded up, on the
// node where that is largest; 0 for a name that no GPU has.
func profileWeight(name string, nodes []Node) int64 {
	most := int64(0)
	share := func(l *domain.MIGLayout) {
		if p, ok := l.Profile(name); ok {
			up := func(part, all uint32) int64 { return (int64(part)*1000 + int64(all) - 1) / int64(all) }
			most = max(most, up(p.ComputeSlices, l.ComputeSlices), up(p.MemorySlices, l.MemorySlices))
		}
	}
	for i := range nodes {
		share(layoutOf(&nodes[i]))
	}
	if most == 0 { // on no node: the largest share over all known GPUs
		for _, m := range domain.GPUModels() {
			share(m.MIG)
		}
	}
	return most
}

// wherever returns where on a machine an instance would go: the divided GPU that loses the least by
// it, or else an entirely free one. It returns false if there is no room.
func (s *state) wherever(f *profile) (from uint16, ok bool) {
	least := 0
	for i, on := range s.divided {
		if i > 0 && on == s.divided[i-1] {
			continue
		}
		start, loss, fits := f.choice(on)
		if fits && (!ok || loss < least || loss == least &&
			bits.OnesCount16(uint16(on)) > bits.OnesCount16(from&(1<<startShift-1))) {
			from, least, ok = encode(start, on), loss, true
		}
	}
	if ok || len(s.free) == 0 || s.free[0] < 1000 {
		return from, ok
	}
	start, _, ok := f.choice(0)
	return encode(start, 0), ok
}

// divide puts an instance on a GPU of the machine, which must own this state.
func (s *state) divide(f *profile, from uint16) {
	start, before := decode(from)
	if before == 0 { // an entirely free GPU counts as full from now on
		s.free = append(slices.Clone(s.free[1:]), 0)
		s.divided = slices.Clone(s.divided)
	} else {
		i, _ := slices.BinarySearch(s.divided, before)
		s.divided = slices.Delete(slices.Clone(s.divided), i, i+1)
	}
	after := before | f.taken(start)
	i, _ := slices.BinarySearch(s.divided, after)
	s.divided = slices.Insert(s.divided, i, after)
}

// can reports whether a machine has a GPU with the required mask and room at the required start.
func (s *state) can(f *profile, from uint16) bool {
	start, before := decode(from)
	if !slices.Contains(f.starts, start) || !f.fits(start, before) {
		return false
	}
	if before == 0 {
		return len(s.free) > 0 && s.free[0] == 1000
	}
	_, ok := slices.BinarySearch(s.divided, before)
	return ok
}

// masks returns the taken slices of each GPU of an empty node, by index; 0 if it is not divided.
func masks(n *Node) []gpuMask {
	on := make([]gpuMask, n.GPUs)
	for _, h := range n.Held.Instances {
		if f := profileOn(h.Profile, n); f != nil {
			on[h.GPU] |= f.taken(h.Start)
		}
	}
	return on
}

// checkInstances says what is wrong with held instances.
func (n *Node) checkInstances() string {
	on := make(map[int]gpuMask)
	held := slices.Clone(n.Held.Instances)
	slices.SortFunc(held, func(a, b Instance) int { return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Start, b.Start)) })
	for _, h := range held {
		f := profileOn(h.Profile, n)
		switch {
		case h.GPU < 0 || h.GPU >= n.GPUs:
			return "is on no GPU of it"
		case f == nil:
			return "is none of its GPUs"
		case !slices.Contains(f.starts, h.Start) || !f.fits(h.Start, on[h.GPU]):
			return "cannot lie there"
		case h.GPU < len(n.Held.GPUMilli) && n.Held.GPUMilli[h.GPU] != 0:
			return "is on a GPU of which a part is held, too"
		}
		on[h.GPU] |= f.taken(h.Start)
	}
	return ""
}
