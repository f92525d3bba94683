package packing

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// state is what matters of a machine for placing more on it.
type state struct {
	class    int
	cpu, mem int64     // free
	free     []uint16  // thousandths of each GPU, most free first
	divided  []gpuMask // GPUs divided into MIG instances, ascending; full as far as free is concerned
	used     bool      // something was placed on it
	held     bool      // something was there before
	tags     uint64    // of the classes on it
	owner    int       // the dedicated demand that it holds, or nobody
	counts   []count   // of the counted demands, ascending
}

const nobody = -1

type count struct{ demand, n int }

func emptyState(n *Node) state {
	s := state{cpu: n.CPUMilli - n.Held.CPUMilli, mem: n.MemoryMiB - n.Held.MemoryMiB, owner: nobody,
		held: n.Held.CPUMilli > 0 || n.Held.MemoryMiB > 0}
	s.free = freeGPUs(n)
	for _, h := range n.Held.GPUMilli {
		s.held = s.held || h > 0
	}
	for _, on := range masks(n) {
		if on != 0 {
			s.held = true
			s.divided = append(s.divided, on)
		}
	}
	slices.Sort(s.divided)
	slices.SortFunc(s.free, func(a, b uint16) int { return cmp.Compare(b, a) })
	return s
}

// freeGPUs returns the free part of each GPU of an empty node, by index; 0 for a divided GPU.
func freeGPUs(n *Node) []uint16 {
	free := make([]uint16, n.GPUs)
	for i := range free {
		free[i] = 1000
		if i < len(n.Held.GPUMilli) {
			free[i] -= uint16(n.Held.GPUMilli[i])
		}
	}
	for _, h := range n.Held.Instances {
		free[h.GPU] = 0
	}
	return free
}

// count returns the number of replicas of a counted demand on the machine.
func (s *state) count(demand int) int {
	for _, c := range s.counts {
		if c.demand == demand {
			return c.n
		}
	}
	return 0
}

// refuses returns the first constraint that keeps one more replica of a demand off the machine, ""
// if there is none.
func (r *run) refuses(s *state, demand int) Constraint {
	d := &r.p.demands[demand]
	if c := r.p.ruled[demand][s.class]; c != "" {
		return c
	}
	if s.owner != nobody && s.owner != demand || d.dedicated && s.owner != demand && (s.used || s.held) {
		return DedicatedConstraint
	}
	if d.gang != "" && r.gangs[d.gang] != r.p.classes[s.class].node.Fabric {
		return GangConstraint
	}
	if s.tags&d.against != 0 {
		return ClassConstraint
	}
	for _, a := range d.apartNode {
		if r.p.in[a.place][s.class] && s.count(a.demand) > 0 {
			return ApartConstraint
		}
	}
	for _, a := range d.apartCluster {
		if r.p.in[a.place][s.class] && r.clusters[clusterHolds{r.p.classes[s.class].cluster, a.demand, a.place}] {
			return ApartConstraint
		}
	}
	if d.maxPerNode > 0 && s.count(demand) >= d.maxPerNode {
		return MaxPerNodeConstraint
	}
	return s.lacks(d)
}

// lacks returns the first resource that is insufficient on a machine.
func (s *state) lacks(d *demand) Constraint {
	if d.profiles != nil {
		f := d.profiles[s.class]
		if f == nil {
			return GPUConstraint
		}
		if _, ok := s.wherever(f); !ok {
			return GPUConstraint
		}
	}
	switch {
	case d.whole > len(s.free) || d.whole > 0 && s.free[d.whole-1] < 1000:
		return GPUConstraint
	case d.part > 0 && (len(s.free) == 0 || s.free[0] < d.part):
		return GPUConstraint
	case s.cpu < d.cpu:
		return CPUConstraint
	case s.mem < d.mem:
		return MemoryConstraint
	}
	return ""
}

// with returns the state of a machine after taking one more replica. A part of a GPU is taken from
// one that had from thousandths free. For an instance, from says where it goes.
func (s *state) with(demand int, d *demand, from uint16) state {
	t := *s
	t.used = true
	t.tags |= d.tag
	t.cpu -= d.cpu
	t.mem -= d.mem
	if d.dedicated {
		t.owner = demand
	}
	switch {
	case d.profiles != nil:
		t.divide(d.profiles[s.class], from)
	case d.whole > 0: // the most free are first, so they are entirely free
		t.free = append(slices.Clone(s.free[d.whole:]), make([]uint16, d.whole)...)
	case d.part > 0:
		t.free = take(slices.Clone(s.free), from, d.part)
	}
	if d.counted {
		t.counts = slices.Clone(s.counts)
		i, ok := slices.BinarySearchFunc(t.counts, demand, func(c count, demand int) int {
			return cmp.Compare(c.demand, demand)
		})
		if !ok {
			t.counts = slices.Insert(t.counts, i, count{demand: demand})
		}
		t.counts[i].n++
	}
	return t
}

// take takes a part of a GPU that has from free, and keeps the most free first.
func take(free []uint16, from, part uint16) []uint16 {
	i := 0
	for free[i] != from || i+1 < len(free) && free[i+1] == from {
		i++
	}
	rest := from - part
	for ; i+1 < len(free) && free[i+1] > rest; i++ {
		free[i] = free[i+1]
	}
	free[i] = rest
	return free
}

// compare orders states. Only equal states compare as 0.
func (s *state) compare(t *state) int {
	if c := cmp.Or(cmp.Compare(s.class, t.class), cmp.Compare(s.cpu, t.cpu), cmp.Compare(s.mem, t.mem),
		cmp.Compare(s.tags, t.tags), slices.Compare(s.free, t.free), slices.Compare(s.divided, t.divided),
		cmp.Compare(s.owner, t.owner)); c != 0 {
		return c
	}
	if s.used != t.used {
		if s.used {
			return -1
		}
		return 1
	}
	return slices.CompareFunc(s.counts, t.counts, func(a, b count) int {
		return cmp.Or(cmp.Compare(a.demand, b.demand), cmp.Compare(a.n, b.n))
	})
}

// key appends an encoding that only equal states share.
func (s *state) key(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(s.class))
	to = binary.AppendVarint(to, s.cpu)
	to = binary.AppendVarint(to, s.mem)
	to = binary.AppendVarint(to, int64(s.owner))
	to = binary.AppendUvarint(to, s.tags)
	if s.used {
		to = append(to, 1)
	} else {
		to = append(to, 0)
	}
	// The class determines the number of GPUs.
	for _, f := range s.free {
		to = binary.BigEndian.AppendUint16(to, f)
	}
	to = binary.AppendUvarint(to, uint64(len(s.divided)))
	for _, on := range s.divided {
		to = binary.BigEndian.AppendUint16(to, uint16(on))
	}
	for _, c := range s.counts {
		to = binary.AppendUvarint(to, uint64(c.demand))
		to = binary.AppendUvarint(to, uint64(c.n))
	}
	return to
}
