package packing_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain/packing"
)

// box is one machine as the verifier sees it: a node and the number of replicas of each workload on
// it.
type box struct {
	node *packing.Node
	on   map[string]int
	gpu  []int64 // free, by index
	// by GPU, the instances on its memory slices; nil if it is not divided
	mig   []map[int]string
	cpu   int64
	mem   int64
	apart [][2]string // classes that share no machine
}

func newBox(n *packing.Node) *box {
	b := &box{node: n, on: map[string]int{}, cpu: n.CPUMilli - n.Held.CPUMilli, mem: n.MemoryMiB - n.Held.MemoryMiB}
	for i := range n.GPUs {
		free := int64(1000)
		if i < len(n.Held.GPUMilli) {
			free -= n.Held.GPUMilli[i]
		}
		b.gpu = append(b.gpu, free)
		b.mig = append(b.mig, map[int]string{})
	}
	for _, h := range n.Held.Instances {
		if err := b.divide(h.Profile, h.GPU, h.Start); err != nil {
			panic(err)
		}
	}
	return b
}

// placement is how NVIDIA's Multi-Instance GPU User Guide lets instances of a
// profile lie.
type placement struct {
	starts []int
	size   int
	single bool
}

var placements = map[string]map[string]placement{
	"A100 80GB": {
		"1g.10gb": {[]int{0, 1, 2, 3, 4, 5, 6}, 1, false}, "1g.10gb+me": {[]int{0, 1, 2, 3, 4, 5, 6}, 1, true},
		"1g.20gb": {[]int{0, 2, 4, 6}, 2, false}, "2g.20gb": {[]int{0, 2, 4}, 2, false},
		"3g.40gb": {[]int{0, 4}, 4, false}, "4g.40gb": {[]int{0}, 4, false}, "7g.80gb": {[]int{0}, 8, false},
	},
	"A100 40GB": {
		"1g.5gb": {[]int{0, 1, 2, 3, 4, 5, 6}, 1, false}, "1g.5gb+me": {[]int{0, 1, 2, 3, 4, 5, 6}, 1, true},
		"1g.10gb": {[]int{0, 2, 4, 6}, 2, false}, "2g.10gb": {[]int{0, 2, 4}, 2, false},
		"3g.20gb": {[]int{0, 4}, 4, false}, "4g.20gb": {[]int{0}, 4, false}, "7g.40gb": {[]int{0}, 8, false},
	},
	"A30": {
		"1g.6gb": {[]int{0, 1, 2, 3}, 1, false}, "1g.6gb+me": {[]int{0, 1, 2, 3}, 1, true},
		"2g.12gb": {[]int{0, 2}, 2, false}, "2g.12gb+me": {[]int{0, 2}, 2, true}, "4g.24gb": {[]int{0}, 4, false},
	},
}

// may reports whether an instance can lie on a GPU from a start on.
func (b *box) may(profile string, gpu, start int) bool {
	p, ok := placements[b.node.Model][profile]
	if !ok || !b.node.MIG || !slices.Contains(p.starts, start) || len(b.mig[gpu]) == 0 && b.gpu[gpu] < 1000 {
		return false
	}
	for i := range p.size {
		if b.mig[gpu][start+i] != "" {
			return false
		}
	}
	for _, other := range b.mig[gpu] {
		if p.single && strings.HasSuffix(other, "+me") {
			return false
		}
	}
	return true
}

func (b *box) divide(profile string, gpu, start int) error {
	if gpu < 0 || gpu >= len(b.gpu) || !b.may(profile, gpu, start) {
		return fmt.Errorf("%s: no %s at %d on GPU %d", b.node.ID, profile, start, gpu)
	}
	b.gpu[gpu] = 0
	for i := range placements[b.node.Model][profile].size {
		b.mig[gpu][start+i] = profile
	}
	return nil
}

func (b *box) undivide(profile string, gpu, start int) {
	for i := range placements[b.node.Model][profile].size {
		delete(b.mig[gpu], start+i)
	}
	if len(b.mig[gpu]) == 0 {
		b.gpu[gpu] = 1000
	}
}

func (b *box) held() bool {
	h := b.node.Held
	return len(h.Instances) > 0 || h.CPUMilli > 0 || h.MemoryMiB > 0 || slices.Max(append([]int64{0}, h.GPUMilli...)) > 0
}

// put puts one replica on the machine, on the GPUs named, an instance from a
// start on.
func (b *box) put(w *packing.Workload, gpus []int, starts ...int) error {
	b.on[w.ID]++
	b.cpu -= w.CPUMilli
	b.mem -= w.MemoryMiB
	if b.cpu < 0 || b.mem < 0 {
		return fmt.Errorf("%s: CPU %d and memory %d left after %s", b.node.ID, b.cpu, b.mem, w.ID)
	}
	if w.Profile != "" {
		if len(gpus) != 1 || len(starts) != 1 {
			return fmt.Errorf("%s has instances on GPUs %v from %v on", w.ID, gpus, starts)
		}
		return b.divide(w.Profile, gpus[0], starts[0])
	}
	if len(starts) > 0 {
		return fmt.Errorf("%s has no instance and starts at %v", w.ID, starts)
	}
	each := asked(w)
	if each > 1000 {
		each = 1000
	}
	if int64(len(gpus))*each != asked(w) {
		return fmt.Errorf("%s needs %d milli and sits on GPUs %v", w.ID, w.GPUMilli, gpus)
	}
	for _, i := range gpus {
		if i < 0 || i >= len(b.gpu) {
			return fmt.Errorf("%s has no GPU %d", b.node.ID, i)
		}
		if b.gpu[i] -= each; b.gpu[i] < 0 {
			return fmt.Errorf("%s: GPU %d is over by %d after %s", b.node.ID, i, -b.gpu[i], w.ID)
		}
	}
	return nil
}

// asked is the GPU milli that a replica takes: a whole GPU for a part that must be alone.
func asked(w *packing.Workload) int64 {
	if w.Isolated && w.GPUMilli > 0 && w.GPUMilli < 1000 {
		return 1000
	}
	return w.GPUMilli
}

func listed(list []string, x string) bool { return len(list) == 0 || slices.Contains(list, x) }

func names(list []string, x string) bool { return slices.Contains(list, x) }

// apartIn reports whether a workload may not have another next to it, given the machines of the
// two.
func apartIn(w *packing.Workload, other string, one, two *box, cluster bool) bool {
	for _, x := range w.ApartIn {
		both := listed(x.In.Regions, one.node.Region) && listed(x.In.Regions, two.node.Region) &&
			listed(x.In.Countries, one.node.Country) && listed(x.In.Countries, two.node.Country)
		if x.Cluster == cluster && both && names(x.Workloads, other) {
			return true
		}
	}
	return false
}

// refusal is the first constraint that keeps one more replica off a machine, given all machines. It
// is slow and independent of the packer.
func refusal(b *box, w *packing.Workload, all []*box, loads map[string]*packing.Workload) packing.Constraint {
	if !listed(w.Models, b.node.Model) {
		return packing.ModelConstraint
	}
	if _, ok := placements[b.node.Model][w.Profile]; w.Profile != "" && (!ok || !b.node.MIG || len(b.gpu) == 0) {
		return packing.ProfileConstraint
	}
	if g := asked(w); g > 0 && g < 1000 && b.node.Unshared {
		return packing.SharingConstraint
	}
	if !listed(w.Clusters, b.node.Cluster) {
		return packing.PlacementConstraint
	}
	if !listed(w.Countries, b.node.Country) {
		return packing.ResidencyConstraint
	}
	for _, c := range w.Certifications {
		if !slices.Contains(b.node.Certifications, c) {
			return packing.CertificationConstraint
		}
	}
	if b.node.Dedicated != "" && b.node.Dedicated != w.Workspace {
		return packing.DedicatedConstraint
	}
	if w.Gang != "" && b.node.Fabric == "" {
		return packing.GangConstraint
	}
	if w.Dedicated && b.held() {
		return packing.DedicatedConstraint
	}
	for id := range b.on {
		if id != w.ID && (w.Dedicated || loads[id].Dedicated) {
			return packing.DedicatedConstraint
		}
	}
	for _, other := range all {
		for id := range other.on {
			if w.Gang != "" && loads[id].Gang == w.Gang && other.node.Fabric != b.node.Fabric {
				return packing.GangConstraint
			}
		}
	}
	for id := range b.on {
		for _, pair := range b.apart {
			one, other := w.Class, loads[id].Class
			if one != other && (pair == [2]string{one, other} || pair == [2]string{other, one}) {
				return packing.ClassConstraint
			}
		}
	}
	for id := range b.on {
		if names(w.ApartNode, id) || names(loads[id].ApartNode, w.ID) || apartIn(w, id, b, b, false) || apartIn(loads[id], w.ID, b, b, false) {
			return packing.ApartConstraint
		}
	}
	for _, other := range all {
		if other.node.Cluster == b.node.Cluster {
			for id := range other.on {
				if names(w.ApartCluster, id) || names(loads[id].ApartCluster, w.ID) || apartIn(w, id, b, other, true) || apartIn(loads[id], w.ID, b, other, true) {
					return packing.ApartConstraint
				}
			}
		}
	}
	if w.MaxPerNode > 0 && b.on[w.ID] >= w.MaxPerNode {
		return packing.MaxPerNodeConstraint
	}
	whole, most := int64(0), int64(0)
	for _, f := range b.gpu {
		if f == 1000 {
			whole++
		}
		most = max(most, f)
	}
	instance := w.Profile == ""
	for i := range b.gpu {
		for s := range 8 {
			instance = instance || b.may(w.Profile, i, s)
		}
	}
	switch {
	case !instance:
		return packing.GPUConstraint
	case asked(w) >= 1000 && whole*1000 < asked(w), asked(w) < 1000 && most < asked(w):
		return packing.GPUConstraint
	case b.cpu < w.CPUMilli:
		return packing.CPUConstraint
	case b.mem < w.MemoryMiB:
		return packing.MemoryConstraint
	}
	return ""
}

// boxes lays a result out machine by machine, in Need with an empty one for
// every machine that could still be opened (one for a kind without a bound).
func boxes(nodes []packing.Node, byID map[string]*packing.Workload, r *packing.Result, open bool) ([]*box, error) {
	var all []*box
	left := map[string]int{}
	for i := range nodes {
		left[nodes[i].ID] = nodes[i].Count
		if open && nodes[i].Count <= 0 {
			left[nodes[i].ID] = 1 << 40
		}
	}
	for _, m := range r.Machines {
		i := slices.IndexFunc(nodes, func(n packing.Node) bool { return n.ID == m.Node })
		if i < 0 || m.Machines < 1 || len(m.On) == 0 {
			return nil, fmt.Errorf("machines %+v", m)
		}
		if left[m.Node] -= m.Machines; left[m.Node] < 0 {
			return nil, fmt.Errorf("%s is used more often than it is there", m.Node)
		}
		for range m.Machines {
			b := newBox(&nodes[i])
			for _, s := range m.On {
				w := byID[s.Workload]
				if w == nil || s.Replicas < 1 || len(s.GPUs)%s.Replicas != 0 {
					return nil, fmt.Errorf("share %+v", s)
				}
				each, starts := len(s.GPUs)/s.Replicas, len(s.Starts)/s.Replicas
				for k := range s.Replicas {
					if err := b.put(w, s.GPUs[k*each:(k+1)*each], s.Starts[k*starts:(k+1)*starts]...); err != nil {
						return nil, err
					}
				}
			}
			all = append(all, b)
		}
	}
	for i := range nodes {
		n := left[nodes[i].ID]
		if n > 1<<30 {
			n = 1
		}
		for range n {
			all = append(all, newBox(&nodes[i]))
		}
	}
	return all, nil
}

// verify checks a result against its input.
func verify(nodes []packing.Node, loads []packing.Workload, r *packing.Result, open bool, pairs ...[2]string) error {
	byID := map[string]*packing.Workload{}
	for i := range loads {
		byID[loads[i].ID] = &loads[i]
	}
	machines, err := boxes(nodes, byID, r, open)
	if err != nil {
		return err
	}
	for _, b := range machines {
		b.apart = pairs
	}
	all := machines
	if !slices.ContainsFunc(loads, func(w packing.Workload) bool { return len(w.ApartCluster) > 0 || len(w.ApartIn) > 0 || w.Gang != "" }) {
		all = nil // where nothing is apart, other machines do not matter
	}

	// Constraints: after removing one replica, it must be allowed back.
	placed, used := map[string]int{}, map[string]int{}
	for _, b := range machines {
		if len(b.on) > 0 {
			used[b.node.ID]++
		}
		for id, n := range b.on {
			placed[id] += n
			w := *byID[id]
			w.GPUMilli, w.CPUMilli, w.MemoryMiB, w.Profile = 0, 0, 0, ""
			if b.on[id]--; b.on[id] == 0 {
				delete(b.on, id)
			}
			if why := refusal(b, &w, all, byID); why != "" {
				return fmt.Errorf("%s is on %s against %s", id, b.node.ID, why)
			}
			b.on[id] = n
		}
	}

	// A gang is there whole or not at all.
	there, missing := map[string]bool{}, map[string]bool{}
	for id, w := range byID {
		there[w.Gang] = there[w.Gang] || placed[id] > 0
		missing[w.Gang] = missing[w.Gang] || placed[id] < w.Replicas
	}
	for g := range there {
		if g != "" && there[g] && missing[g] {
			return fmt.Errorf("gang %s is there in part", g)
		}
	}

	// Nothing is lost, and every machine explains what is left over.
	unplaced := map[string]packing.Unplaced{}
	var need, put, total int64
	for i, u := range r.Unplaced {
		if unplaced[u.Workload].Replicas != 0 || u.Replicas <= 0 || i > 0 && r.Unplaced[i-1].Workload >= u.Workload {
			return fmt.Errorf("unplaced %+v", r.Unplaced)
		}
		unplaced[u.Workload] = u
	}
	apart := slices.ContainsFunc(loads, func(w packing.Workload) bool {
		return len(w.ApartNode) > 0 || len(w.ApartCluster) > 0 || len(w.ApartIn) > 0
	})
	told := map[string]map[packing.Constraint]int{}
	hopeless := true // to place any of what is left
	empty := map[string]*box{}
	for i := range nodes {
		empty[nodes[i].ID] = newBox(&nodes[i])
	}
	for id, w := range byID {
		u := unplaced[id]
		if placed[id]+u.Replicas != w.Replicas {
			return fmt.Errorf("%s: %d placed and %d not, of %d", id, placed[id], u.Replicas, w.Replicas)
		}
		need += weight(w, nodes) * int64(w.Replicas)
		put += weight(w, nodes) * int64(placed[id])
		if u.Replicas == 0 {
			continue
		}
		kind := alike(w)
		if apart { // others may name it
			kind = w.ID
		}
		if told[kind] == nil {
			told[kind] = map[packing.Constraint]int{}
			for _, b := range machines {
				why := refusal(b, w, all, byID)
				if w.Gang != "" && !slices.Contains(static, why) {
					why = packing.GangConstraint // no fabric takes all of it
				}
				told[kind][why]++
			}
			for _, b := range empty {
				hopeless = hopeless && refusal(b, w, nil, byID) != ""
			}
		}
		why := maps.Clone(told[kind])
		for _, c := range u.RuledOut {
			if c.Machines != why[c.Constraint] || c.Machines == 0 {
				return fmt.Errorf("%s: %s rules out %d machines, not %d", id, c.Constraint, why[c.Constraint], c.Machines)
			}
			delete(why, c.Constraint)
		}
		if len(why) > 0 {
			return fmt.Errorf("%s is also ruled out by %v", id, why)
		}
	}

	count := 0
	for _, n := range used {
		count += n
	}
	for _, b := range machines {
		if !open || len(b.on) > 0 {
			total += 1000 * int64(len(b.gpu))
		}
	}
	if count != r.NodesUsed || need != r.GPUMilliNeeded || put != r.GPUMilliPlaced || total != r.GPUMilliTotal || len(r.Used) != len(nodes) {
		return fmt.Errorf("%d machines, %d needed, %d placed of %d GPUs; %+v", count, need, put, total, r)
	}
	for _, u := range r.Used {
		if used[u.Node] != u.Machines {
			return fmt.Errorf("%d of %s are used, not %d", used[u.Node], u.Node, u.Machines)
		}
	}
	if hopeless && r.LowerBound > r.NodesUsed {
		return fmt.Errorf("%d machines hold what the bound says needs %d", r.NodesUsed, r.LowerBound)
	}
	if open {
		machines = slices.DeleteFunc(machines, func(b *box) bool { return len(b.on) == 0 })
	}
	return verifyStranded(machines, loads, byID, r.Stranded)
}

// weight is the count of a replica in sums.
func weight(w *packing.Workload, nodes []packing.Node) int64 {
	if w.Profile == "" {
		return asked(w)
	}
	share := func(model string) int64 {
		p, ok := placements[model][w.Profile]
		if !ok {
			return 0
		}
		all, compute := 8, 7
		if model == "A30" {
			all, compute = 4, 4
		}
		g, _ := strconv.Atoi(w.Profile[:1])
		up := func(x, all int) int64 { return int64((x*1000 + all - 1) / all) }
		return max(up(p.size, all), up(g, compute))
	}
	most := int64(0)
	for i := range nodes {
		if nodes[i].MIG && nodes[i].GPUs > 0 {
			most = max(most, share(nodes[i].Model))
		}
	}
	if most == 0 {
		most = max(share("A100 80GB"), share("A100 40GB"), share("A30"))
	}
	return most
}

// static are the constraints that are tried before a gang's.
var static = []packing.Constraint{
	packing.ModelConstraint, packing.ProfileConstraint, packing.SharingConstraint, packing.PlacementConstraint,
	packing.ResidencyConstraint, packing.CertificationConstraint, packing.DedicatedConstraint,
}

// alike is equal for workloads that every machine treats the same.
func alike(w *packing.Workload) string {
	if w.Gang != "" || w.Dedicated || w.MaxPerNode > 0 || len(w.ApartNode) > 0 || len(w.ApartCluster) > 0 || len(w.ApartIn) > 0 {
		return "only " + w.ID
	}
	return fmt.Sprintf("%q %q %q %d %d %d %q %q %q %q", w.Class, w.Profile, w.Workspace, asked(w), w.CPUMilli, w.MemoryMiB, w.Models, w.Countries, w.Certifications, w.Clusters)
}

// verifyStranded draws every workload on every machine.
func verifyStranded(all []*box, loads []packing.Workload, byID map[string]*packing.Workload, got []packing.Stranded) error {
	drawn := int64(0)
	kinds := map[string]*packing.Workload{}
	for _, w := range loads {
		if w.GPUMilli == 0 && w.Profile == "" {
			continue
		}
		drawn += int64(w.Replicas)
		w.ApartNode, w.ApartCluster, w.ApartIn, w.MaxPerNode, w.Class = nil, nil, nil, 0, ""
		if key := alike(&w); kinds[key] == nil {
			kinds[key] = &w
		} else {
			kinds[key].Replicas += w.Replicas
		}
	}
	bare := map[string]*packing.Workload{}
	for id, w := range byID {
		bare[id] = &packing.Workload{Dedicated: w.Dedicated}
	}
	free, stranded := map[string]int64{}, map[string]int64{}
	for _, b := range all {
		sum := int64(0)
		for _, f := range b.gpu {
			sum += f
		}
		free[b.node.Model] += sum
		for _, w := range kinds {
			lost := sum
			if refusal(b, w, nil, bare) == "" {
				lost = 0
				for _, f := range b.gpu {
					if f < min(asked(w), 1000) || w.Profile != "" && f < 1000 {
						lost += f
					}
				}
			}
			stranded[b.node.Model] += lost * int64(w.Replicas)
		}
	}
	for i, s := range got {
		if i > 0 && got[i-1].Model >= s.Model {
			return fmt.Errorf("stranded GPUs are not in order: %+v", got)
		}
		if s.FreeMilli != free[s.Model] {
			return fmt.Errorf("%d milli of %q are free, not %d", free[s.Model], s.Model, s.FreeMilli)
		}
		off := new(big.Rat).SetInt64(s.StrandedMilli)
		if drawn > 0 {
			off.Sub(off, big.NewRat(stranded[s.Model], drawn))
		}
		if off.Abs(off).Cmp(big.NewRat(1, 2)) > 0 {
			return fmt.Errorf("%+v: %d over %d are stranded", s, stranded[s.Model], drawn)
		}
		delete(free, s.Model)
	}
	for model, f := range free {
		if f > 0 {
			return fmt.Errorf("%d milli of %q are free and not told", f, model)
		}
	}
	return nil
}
