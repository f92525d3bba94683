package attribution

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// maxGPUs bounds the GPUs of one machine, far above any product. If a machine claims more, or a
// negative number, its number of GPUs counts as unknown, and only measured GPUs count.
const maxGPUs = 1024

// fleet holds the machines and indexes to find them.
type fleet struct {
	// descs are the distinct descriptions, by cluster, node and service.
	descs    []desc
	machines []machine
	index    []int32 // Input.Nodes to descs

	byResource map[[2]string][]int32 // (account, resource)
	bySKU      map[[2]string][]int32 // (account, SKU)
	byAccount  map[string][]int32
	also       map[[2]string][]int32               // as byResource, by Input.Also
	billed     map[[2]string]bool                  // (account, resource) named by lines that may buy machines
	elsewhere  func(account, resource string) bool // see [Input.Known]
}

// desc is one description of a machine.
type desc struct {
	Node
	machine  int32
	matches  []int32 // those that it takes part in
	hardware uint32  // see [hardwares]
	// due is when bills of its account are for, if some line buys machines in it: see [bills.due].
	due domain.Interval
}

// machine is a (cluster, node) under all of its descriptions.
type machine struct {
	first, end int32 // range of descs
	seen       bool  // in some state other than unobserved
	billed     bool  // some line that buys machines matches it
	unbilledMs int64 // GPU time that no line that buys machines covers
}

// counted returns the number of GPUs, -1 if it is implausible.
func (n *Node) counted() int {
	if n.GPUs < 0 || n.GPUs > maxGPUs {
		return -1
	}
	return n.GPUs
}

func (m *machine) subject(f *fleet) string {
	n := &f.descs[m.first].Node
	return n.Cluster + "/" + n.Node
}

func newFleet(nodes []Node, also []OtherID, h *hardwares, ex *exceptions) *fleet {
	f := &fleet{
		index:      make([]int32, len(nodes)),
		byResource: map[[2]string][]int32{},
		bySKU:      map[[2]string][]int32{},
		byAccount:  map[string][]int32{},
		also:       map[[2]string][]int32{},
		billed:     map[[2]string]bool{},
	}
	order := make([]int32, len(nodes))
	for i := range nodes {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return compareNodes(&nodes[a], &nodes[b]) })
	for _, i := range order {
		n := nodes[i]
		if n.Service.To == 0 {
			n.Service.To = math.MaxInt64 // in service still
		}
		if last := len(f.descs) - 1; last < 0 || f.descs[last].Node != n {
			if last < 0 || f.descs[last].Cluster != n.Cluster || f.descs[last].Node.Node != n.Node {
				f.machines = append(f.machines, machine{first: int32(len(f.descs))})
			}
			f.descs = append(f.descs, desc{Node: n, machine: int32(len(f.machines) - 1), hardware: h.of(&n)})
			f.machines[len(f.machines)-1].end = int32(len(f.descs))
		}
		f.index[i] = int32(len(f.descs) - 1)
	}
	for i := range f.descs {
		d, at := &f.descs[i], int32(i)
		if d.counted() < 0 {
			why := fmt.Sprintf("%d GPUs in one machine, of 0 to %d: their number counts as not stated", d.GPUs, maxGPUs)
			ex.at(QuantityUnusable, f.machines[d.machine].subject(f), why, "")
		}
		if d.Account == "" {
			continue
		}
		if d.Resource != "" {
			k := [2]string{d.Account, d.Resource}
			f.byResource[k] = append(f.byResource[k], at)
		}
		if d.GPUs == 0 {
			continue // no GPU time to divide by
		}
		f.byAccount[d.Account] = append(f.byAccount[d.Account], at)
		if d.SKU != "" {
			k := [2]string{d.Account, d.SKU}
			f.bySKU[k] = append(f.bySKU[k], at)
		}
	}
	for _, o := range also {
		k := [2]string{o.Account, o.Resource}
		f.also[k] = append(f.also[k], f.index[o.Node])
	}
	return f
}

func compareNodes(a, b *Node) int {
	return cmp.Or(
		strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Node, b.Node), byPeriod(a.Service, b.Service),
		strings.Compare(a.Account, b.Account), strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Region, b.Region), strings.Compare(a.SKU, b.SKU),
		strings.Compare(string(a.Billing), string(b.Billing)), strings.Compare(a.GPUModel, b.GPUModel),
		cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.CPUMilli, b.CPUMilli), cmp.Compare(a.MemoryMiB, b.MemoryMiB),
		compareBool(a.Registered, b.Registered))
}

// named returns the descriptions of the machines that a resource id names. All descriptions of such
// a machine count, except those with another resource id or another account: those are other
// hardware under the same name. The same hardware under another name counts too, unless the bill
// uses its own resource id; see [OtherID].
func (f *fleet) named(account, resource string) []int32 {
	key := [2]string{account, resource}
	named := f.byResource[key]
	if also := f.also[key]; len(also) > 0 {
		named = slices.Clone(named)
		for _, i := range also {
			if d := &f.descs[i]; d.Resource == "" || !f.billed[[2]string{d.Account, d.Resource}] {
				named = append(named, i)
			}
		}
		slices.Sort(named)
		named = slices.Compact(named)
	}
	var all []int32
	last := int32(-1)
	for _, i := range named {
		m := f.descs[i].machine
		if m == last {
			continue
		}
		last = m
		for at := f.machines[m].first; at < f.machines[m].end; at++ {
			d := &f.descs[at]
			_, other := slices.BinarySearch(named, at)
			if other || (d.Resource == resource || d.Resource == "") && (d.Account == account || d.Account == "") {
				all = append(all, at)
			}
		}
	}
	return all
}

// knows reports whether a resource id names a machine that is or was in service.
func (f *fleet) knows(account, resource string) bool {
	return len(f.byResource[[2]string{account, resource}]) > 0 || f.elsewhere != nil && f.elsewhere(account, resource)
}

// inService reports whether one of the descriptions was in service during a period.
func (f *fleet) inService(descs []int32, period domain.Interval) bool {
	return slices.ContainsFunc(descs, func(i int32) bool { return !f.descs[i].Service.Intersect(period).Empty() })
}

// inServiceMs returns the GPU time that descriptions were in service during a period. It is unknown
// if the number of GPUs of one of them is unknown.
func (f *fleet) inServiceMs(descs []int32, period domain.Interval) (ms int64, known bool) {
	for _, i := range descs {
		d := &f.descs[i]
		if held := int64(d.Service.Intersect(period).Length() / millisecond); held > 0 {
			if d.counted() < 0 {
				return 0, false
			}
			ms += held * int64(d.GPUs)
		}
	}
	return ms, true
}

// gpuMs converts machine time on descriptions into GPU time, by their number of GPUs. If the
// numbers differ, they are weighted by time in service during the period. The result is rounded
// towards zero. It is unknown if one number of GPUs is unknown, or the result is implausibly large.
func (f *fleet) gpuMs(nodeMs int64, descs []int32, period domain.Interval) (ms int64, known bool) {
	var time, gpuTime uint64
	gpus, same := -1, true
	for _, i := range descs {
		d := &f.descs[i]
		ms := uint64(d.Service.Intersect(period).Length() / millisecond)
		if ms == 0 {
			continue
		}
		if d.counted() < 0 {
			return 0, false
		}
		same = same && (gpus < 0 || gpus == d.GPUs)
		gpus = d.GPUs
		time += ms
		gpuTime += ms * uint64(d.GPUs)
	}
	if gpus < 0 {
		if gpus = f.descs[descs[0]].counted(); gpus < 0 {
			return 0, false
		}
	}
	n := u128{0, magnitude(nodeMs)}
	if same {
		n = n.scale64(uint64(gpus), 1)
	} else {
		n = n.scale64(gpuTime, time)
	}
	if n.hi != 0 || n.lo > maxMs {
		return 0, false
	}
	if nodeMs < 0 {
		return -int64(n.lo), true
	}
	return int64(n.lo), true
}
