package online

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"quartermaster/domain/packing"
)

// Arrivals returns replicas in order of arrival: those of all workloads in random order, followed
// by replicas drawn with replacement until they request the given thousandths of a fleet's GPUs. If
// all together request more than that, random ones are left out instead. The draws are those of the
// paper's simulator (see [FGD]), so an equally seeded source repeats its arrivals exactly.
//
// The order of the workloads matters, and each must have one replica; see [Each].
func Arrivals(pods []packing.Workload, fleetMilli, perMille int64, draws Draws) ([]packing.Workload, error) {
	var asked, most int64
	for i := range pods {
		if err := pods[i].Check(); err != nil {
			return nil, err
		}
		asked += pods[i].GPUMilli
		most = max(most, pods[i].GPUMilli)
	}
	if most == 0 {
		return nil, fmt.Errorf("none of %d workloads needs a GPU, so no number of them loads the fleet", len(pods))
	}
	goal := fleetMilli * perMille // in millionths
	draws.Int()                   // the simulator draws and prints this one
	seq := slices.Clone(pods)
	draws.Shuffle(len(seq), func(i, j int) { seq[i], seq[j] = seq[j], seq[i] })
	if asked*1000 > goal {
		for asked*1000 > goal {
			i := draws.Intn(len(seq))
			asked -= seq[i].GPUMilli
			seq = slices.Delete(seq, i, i+1)
		}
		return seq, nil
	}
	for asked*1000 < goal {
		w := pods[draws.Intn(len(pods))]
		// A replica counts only by its need of one GPU here, so the last one may exceed the goal.
		if (asked+min(w.GPUMilli, 1000))*1000 > goal {
			break
		}
		if len(seq) == maxArrivals {
			return nil, fmt.Errorf("more than %d arrivals ask for %d.%d%% of the GPUs", maxArrivals, perMille/10, perMille%10)
		}
		asked += w.GPUMilli
		seq = append(seq, w)
	}
	return seq, nil
}

const maxArrivals = 1 << 22

// Each returns every replica as a workload with one replica. It keeps the workload's id, so that
// constraints on the workload still apply.
func Each(loads []packing.Workload) []packing.Workload {
	var out []packing.Workload
	for i := range loads {
		for range loads[i].Replicas {
			w := loads[i]
			w.Replicas = 1
			out = append(out, w)
		}
	}
	return out
}

// Series is a share of the fleet's GPUs, in hundredths of a percent, by the arrived load in percent
// of the fleet's GPUs.
type Series []Point

// Point is the value of a series at a load.
type Point struct {
	Percent    int
	Hundredths int64
}

// At returns the value at a load, false if there is none.
func (s Series) At(percent int) (hundredths int64, ok bool) {
	i, ok := slices.BinarySearchFunc(s, percent, func(p Point, at int) int { return p.Percent - at })
	if !ok {
		return 0, false
	}
	return s[i].Hundredths, true
}

// Last returns the value at the highest load, 0 for an empty series.
func (s Series) Last() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].Hundredths
}

// MarshalJSON writes an object of percentages by load, in ascending order of load.
func (s Series) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, p := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, strconv.Itoa(p.Percent))
		b = fmt.Appendf(b, ":%d.%02d", p.Hundredths/100, p.Hundredths%100)
	}
	return append(b, '}'), nil
}

// Run is the result of a replay.
type Run struct {
	Arrived      int   // replicas
	Placed       int   // replicas
	ArrivedMilli int64 // thousandths of GPUs
	PlacedMilli  int64
	FleetMilli   int64
	// Allocation is the share of allocated GPUs by arrived load: the mean over the arrivals that
	// bring the load to within half a percent of it.
	Allocation Series
}

// Replay places arrivals on nodes, one after another. Of machines with the same score, the first in
// a random order is taken. The order is that of the paper's simulator (see [FGD]): with draws from
// which [Arrivals] has drawn, replays of the published seeds repeat the published results, except
// that [Random] draws differently, and that the simulator sometimes rounds a change of zero down
// when it scores FGD.
func Replay(nodes []packing.Node, arrivals []packing.Workload, mix *Mix, by Policy, draws Draws) (*Run, error) {
	nodes, err := shuffled(nodes, draws)
	if err != nil {
		return nil, err
	}
	f, err := New(nodes, mix, by, draws)
	if err != nil {
		return nil, err
	}
	r := &Run{Arrived: len(arrivals)}
	for i := range f.machines {
		r.FleetMilli += int64(len(f.machines[i].free)) * 1000
	}
	if r.FleetMilli == 0 {
		return nil, fmt.Errorf("none of %d machines has a GPU", len(f.machines))
	}
	for i := range f.machines {
		r.PlacedMilli += int64(len(f.machines[i].free))*1000 - f.machines[i].group.freeMilli()
	}
	held := r.PlacedMilli
	type mean struct{ sum, n int64 }
	by100 := map[int]mean{}
	last := -1
	for i := range arrivals {
		w := &arrivals[i]
		_, ok, err := f.Arrive(strconv.Itoa(i), w)
		if err != nil {
			return nil, err
		}
		r.ArrivedMilli += w.GPUMilli
		if ok {
			r.Placed++
			r.PlacedMilli += w.GPUMilli
		}
		last = nearest(r.ArrivedMilli*100, r.FleetMilli)
		m := by100[last]
		by100[last] = mean{m.sum + r.PlacedMilli, m.n + 1}
	}
	for k := 0; k <= last; k++ {
		m := by100[k]
		if m.n == 0 { // a replica of several GPUs may skip a step of a small fleet
			for _, near := range []int{k - 1, k + 1} {
				m.sum, m.n = m.sum+by100[near].sum, m.n+by100[near].n
			}
		}
		if m.n > 0 {
			whole := new(big.Int).Mul(big.NewInt(2*m.n), big.NewInt(r.FleetMilli))
			part := new(big.Int).Mul(big.NewInt(m.sum), big.NewInt(20_000))
			part.Add(part, big.NewInt(m.n*r.FleetMilli)).Quo(part, whole)
			r.Allocation = append(r.Allocation, Point{k, part.Int64()})
		}
	}
	r.PlacedMilli -= held
	return r, nil
}

// schedulerDraws are the draws of the simulator's scheduler between the arrivals and the order of
// the nodes. They were found by comparing with the published runs: of 0 to 59, only 10 repeats them.
const schedulerDraws = 10

// shuffled returns the machines of nodes, named so that they sort in a random order.
func shuffled(nodes []packing.Node, draws Draws) ([]packing.Node, error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b packing.Node) int { return cmp.Compare(a.ID, b.ID) })
	var out []packing.Node
	for i, n := range nodes {
		switch err := n.Check(); {
		case err != nil:
			return nil, err
		case i > 0 && n.ID == nodes[i-1].ID:
			return nil, fmt.Errorf("two nodes have the id %q", n.ID)
		case n.Count > maxMachines-len(out):
			return nil, fmt.Errorf("more than %d machines", maxMachines)
		}
		machine := n
		machine.Count = 1
		for range n.Count {
			out = append(out, machine)
		}
	}
	for range schedulerDraws {
		draws.Int()
	}
	order := make([]int, len(out))
	for i := range order { // as rand.Perm
		k := draws.Intn(i + 1)
		order[i], order[k] = order[k], i
	}
	for i := range out {
		out[i].ID = fmt.Sprintf("%08d %s", order[i], out[i].ID)
	}
	return out, nil
}

// nearest returns a/b to the nearest, halves to even.
func nearest(a, b int64) int {
	q, rest := a/b, a%b
	if rest*2 > b || rest*2 == b && q%2 == 1 {
		q++
	}
	return int(q)
}

// Mean returns the mean of series, to the nearest, at the loads that all have.
func Mean(of []Series) Series {
	if len(of) == 0 {
		return nil
	}
	var out Series
	for _, p := range of[0] {
		sum, all := int64(0), true
		for _, s := range of {
			v, ok := s.At(p.Percent)
			sum, all = sum+v, all && ok
		}
		if all {
			n := int64(len(of))
			out = append(out, Point{p.Percent, (2*sum + n) / (2 * n)})
		}
	}
	return out
}
